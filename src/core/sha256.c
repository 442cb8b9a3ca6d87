/* sha256.c: FIPS 180-4, section 6.2. */
#include "core/sha256.h"

#include <string.h>

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

static uint32_t big_endian(const unsigned char *b)
{
    return ((uint32_t)b[0] << 24) | ((uint32_t)b[1] << 16) | ((uint32_t)b[2] << 8) | b[3];
}

static void expand(uint32_t w[64], const unsigned char block[64])
{
    for (int t = 0; t < 16; t++) w[t] = big_endian(block + 4 * t);
    for (int t = 16; t < 64; t++) {
        uint32_t a = w[t - 15], b = w[t - 2];
        w[t] = w[t - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ (a >> 3)) + w[t - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ (b >> 10));
    }
}

static void compress(uint32_t state[8], const unsigned char block[64])
{
    uint32_t w[64], s[8]; /* s: the standard's a to h */
    expand(w, block);
    memcpy(s, state, sizeof s);
    for (int t = 0; t < 64; t++) {
        uint32_t sum0 = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
        uint32_t sum1 = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25);
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t t1 = s[7] + sum1 + choice + K[t] + w[t];
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + sum0 + majority;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

void ebb__sha256_init(ebb__sha256 *h)
{
    static const uint32_t start[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    memset(h, 0, sizeof *h);
    memcpy(h->state, start, sizeof start);
}

void ebb__sha256_add(ebb__sha256 *h, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    size_t held = h->bytes % 64; /* bytes waiting in the block */
    h->bytes += bytes;
    if (held > 0) {
        size_t part = bytes < 64 - held ? bytes : 64 - held;
        if (part > 0) memcpy(h->block + held, from, part);
        if (held + part < 64) return;
        compress(h->state, h->block);
        from += part;
        bytes -= part;
    }
    for (; bytes >= 64; from += 64, bytes -= 64) compress(h->state, from);
    if (bytes > 0) memcpy(h->block, from, bytes);
}

void ebb__sha256_hex(ebb__sha256 *h, char out[65])
{
    static const char digits[] = "0123456789abcdef";
    uint64_t bits = h->bytes * 8;
    unsigned char tail[72] = { 0x80 }; /* one bit, zeros to 56 mod 64, then the length in bits */
    size_t zeros_end = 1 + (119 - h->bytes % 64) % 64;
    for (int i = 0; i < 8; i++) tail[zeros_end + (size_t)i] = (unsigned char)(bits >> (56 - 8 * i));
    ebb__sha256_add(h, tail, zeros_end + 8);
    for (int i = 0; i < 64; i++) out[i] = digits[(h->state[i / 8] >> (28 - 4 * (i % 8))) & 15];
    out[64] = '\0';
}
