/* core/rng.h: Philox 4x32-10, a counter-based generator (Salmon et al., SC'11).
 * Nothing is stored: block `counter` of stream `seed` is a pure function. */
#ifndef EBB_CORE_RNG_H
#define EBB_CORE_RNG_H

#include <stdint.h>

/* Four 32-bit words of block `counter` under key `seed`. */
static inline void ebb__philox(uint64_t seed, uint64_t counter, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0; c1 = (uint32_t)p1; c2 = n2; c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
    out[0] = c0; out[1] = c1; out[2] = c2; out[3] = c3;
}

/* Uniform in [0, 1): 24 and 53 bits. */
static inline float ebb__u01_f32(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }
static inline double ebb__u01_f64(uint32_t high, uint32_t low)
{
    return (double)((((uint64_t)high << 32) | low) >> 11) * 0x1p-53;
}

/* Fills x with n normal draws (Box-Muller on blocks counter, counter + 1, ...: two draws a block);
 * (n + 1) / 2 blocks are used. */
void ebb__normal_f64(uint64_t seed, uint64_t counter, double *x, int64_t n);

/* Permutation of 0..n-1 drawn from (seed, stream): Fisher-Yates; the same on every machine. */
void ebb__permutation(uint64_t seed, uint64_t stream, int64_t *index, int64_t n);

/* A second seed from a seed and a small number, well mixed. */
uint64_t ebb__seed_mix(uint64_t seed, uint64_t salt);

#endif
