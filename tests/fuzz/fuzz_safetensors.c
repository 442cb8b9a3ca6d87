/* A safetensors file as the fuzzer has it: header length and header JSON; the data is not touched. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* What a header promises once it is accepted. */
static void check(const ebb__st_header *header, uint64_t data_bytes)
{
    uint64_t total = 0;
    for (int i = 0; i < header->n; i++) {
        const ebb__st_entry *e = &header->entries[i];
        if (e->begin > e->end || e->end > data_bytes || ebb__st_header_find(header, e->name) != i)
            abort();
        total += e->end - e->begin;
    }
    if (total != data_bytes) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    size_t length;
    ebb__st_header header;
    if (ebb__st_header_length(&length, data, bytes, "fuzz") != EBB_OK) return 0;
    const char *text = (const char *)data + EBB__ST_PREFIX_BYTES;
    uint64_t data_bytes = bytes - EBB__ST_PREFIX_BYTES - length;
    if (ebb__st_header_parse(&header, text, length, data_bytes, "fuzz") != EBB_OK) return 0;
    check(&header, data_bytes);
    ebb__st_header_free(&header);
    return 0;
}
