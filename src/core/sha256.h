/* core/sha256.h: FIPS 180-4. */
#ifndef EBB_CORE_SHA256_H
#define EBB_CORE_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct ebb__sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
} ebb__sha256;

void ebb__sha256_init(ebb__sha256 *h);
void ebb__sha256_add(ebb__sha256 *h, const void *data, size_t bytes);
void ebb__sha256_hex(ebb__sha256 *h, char out[65]); /* finishes */

#endif
