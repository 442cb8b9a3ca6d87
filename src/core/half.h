/* core/half.h: f16 and bf16 as bits.  Rounding is to nearest even; NaN stays NaN. */
#ifndef EBB_CORE_HALF_H
#define EBB_CORE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t ebb__f32_bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
static inline float ebb__bits_f32(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }

static inline float ebb__bf16_to_f32(uint16_t h) { return ebb__bits_f32((uint32_t)h << 16); }
static inline uint16_t ebb__f32_to_bf16(float x)
{
    uint32_t u = ebb__f32_bits(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

/* _Float16 is in gcc 12 and clang for x86-64 and aarch64; conversions round to nearest even. */
static inline float ebb__f16_to_f32(uint16_t h) { _Float16 x; memcpy(&x, &h, 2); return (float)x; }
static inline uint16_t ebb__f32_to_f16(float x)
{
    _Float16 y = (_Float16)x;
    uint16_t h;
    memcpy(&h, &y, 2);
    return h;
}

#endif
