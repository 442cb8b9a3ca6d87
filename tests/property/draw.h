/* property/draw.h: small draws that a test repeats from its seed; not the engine's generator. */
#ifndef EBB_TESTS_DRAW_H
#define EBB_TESTS_DRAW_H

#include <stdbool.h>
#include <stdint.h>

typedef struct draw { uint64_t state; } draw;

/* SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). */
static inline uint64_t draw_bits(draw *d)
{
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static inline int draw_int(draw *d, int n) { return (int)(draw_bits(d) % (uint64_t)n); } /* 0..n-1 */
static inline double draw_unit(draw *d) { return (double)(draw_bits(d) >> 11) * 0x1p-53; } /* [0, 1) */
static inline bool draw_chance(draw *d, double p) { return draw_unit(d) < p; }

#endif
