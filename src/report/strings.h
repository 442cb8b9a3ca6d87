/* report/strings.h: each text once; index 0 is "". */
#ifndef EBB_REPORT_STRINGS_H
#define EBB_REPORT_STRINGS_H

#include <ebb/status.h>

typedef struct ebb__strings {
    char **texts;
    size_t n, cap;
    uint32_t *slots; /* hash table of index + 1; 0: empty */
    size_t capacity; /* of slots: a power of 2 */
} ebb__strings;

/* Index of `text` (NULL: ""), which is copied when it is new.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__strings_add(ebb__strings *strings, uint32_t *index, const char *text);
void ebb__strings_deinit(ebb__strings *strings);

/* FNV-1a over bytes. */
static inline uint64_t ebb__hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}
#define EBB__HASH_START 14695981039346656037u

#endif
