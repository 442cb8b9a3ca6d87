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

#ifdef __FLT16_MAX__ /* gcc 12; clang 15 on x86-64 */
static inline float ebb__f16_to_f32(uint16_t h) { _Float16 x; memcpy(&x, &h, 2); return (float)x; }
static inline uint16_t ebb__f32_to_f16(float x) { _Float16 y = (_Float16)x; uint16_t h; memcpy(&h, &y, 2); return h; }
#else
static inline float ebb__f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3FFu;
    if (exponent == 31) return ebb__bits_f32(sign | 0x7F800000u | fraction << 13 | (fraction ? 0x400000u : 0));
    if (exponent) return ebb__bits_f32(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f; /* subnormal */
    return sign ? -magnitude : magnitude;
}
static inline uint16_t ebb__f32_to_f16(float x)
{
    uint32_t u = ebb__f32_bits(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
    if (magnitude >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* rounds to 65536 and more */
    if (magnitude < 0x38800000u) { /* subnormal: adding 0.5 leaves units of 2^-24, rounded to even */
        float shifted = ebb__bits_f32(magnitude) + 0.5f;
        return (uint16_t)(sign | (ebb__f32_bits(shifted) - 0x3F000000u));
    }
    uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}
#endif

#endif
