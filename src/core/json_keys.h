/* core/json_keys.h: the keys met so far in a JSON text, to find one that is given twice. */
#ifndef EBB_CORE_JSON_KEYS_H
#define EBB_CORE_JSON_KEYS_H

#include <ebb/status.h>

/* A key as written in the text, without its quotes, and the object that it belongs to. */
typedef struct ebb__json_key {
    size_t begin, end;
    uint32_t object, hash;
} ebb__json_key;

/* A hash table of keys; {0} is empty.  ebb__json_keys_deinit() frees what it holds. */
typedef struct ebb__json_keys {
    ebb__json_key *slots;
    size_t cap, n;
} ebb__json_keys;

/* Adds the key at text[begin, end), which must be a valid JSON string.  *twice: the object has it
 * already ("a" and "\u0061" are one key).  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__json_keys_add(ebb__json_keys *keys, bool *twice, const char *text,
                                            uint32_t object, size_t begin, size_t end);
void ebb__json_keys_deinit(ebb__json_keys *keys);

#endif
