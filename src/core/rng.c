/* rng.c: draws from Philox blocks, the same on every machine and for every thread count. */
#include "core/rng.h"

#include <math.h>

static const double TWO_PI = 6.283185307179586476925286766559;

void ebb__normal_f64(uint64_t seed, uint64_t counter, double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 2) {
        uint32_t w[4];
        ebb__philox(seed, counter + (uint64_t)(i / 2), w);
        /* 1 - u is in (0, 1], so the logarithm is finite. */
        double radius = sqrt(-2.0 * log(1.0 - ebb__u01_f64(w[0], w[1])));
        double angle = TWO_PI * ebb__u01_f64(w[2], w[3]);
        x[i] = radius * cos(angle);
        if (i + 1 < n) x[i + 1] = radius * sin(angle);
    }
}

typedef struct word_stream {
    uint64_t seed, counter;
    uint32_t block[4];
    int left;
} word_stream;

static uint64_t next_word(word_stream *s)
{
    if (s->left == 0) {
        ebb__philox(s->seed, s->counter++, s->block);
        s->left = 2;
    }
    int at = 2 * (2 - s->left--);
    return ((uint64_t)s->block[at] << 32) | s->block[at + 1];
}

/* Uniform in [0, bound) without bias: the high half of word * bound, where words whose low half
 * falls in the first 2^64 mod bound values are drawn again (Lemire, 2019). */
static uint64_t below(word_stream *s, uint64_t bound)
{
    uint64_t reject = (0 - bound) % bound;
    for (;;) {
        unsigned __int128 product = (unsigned __int128)next_word(s) * bound;
        if ((uint64_t)product >= reject) return (uint64_t)(product >> 64);
    }
}

void ebb__permutation(uint64_t seed, uint64_t stream, int64_t *index, int64_t n)
{
    word_stream words = { .seed = ebb__seed_mix(seed, stream) };
    for (int64_t i = 0; i < n; i++) index[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)below(&words, (uint64_t)i + 1);
        int64_t swap = index[i];
        index[i] = index[j];
        index[j] = swap;
    }
}

/* The finaliser of SplitMix64: a bijection of 64-bit words in which each bit depends on all. */
static uint64_t mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t ebb__seed_mix(uint64_t seed, uint64_t salt) { return mix(mix(seed) ^ salt); }
