/* json_keys.c: an open-addressing hash table over keys that stay in the text. */
#include "core/json_keys.h"

#include <string.h>

#include "core/mem.h"

enum { FIRST_CAP = 64 }; /* a power of two, as every capacity */

static uint32_t hex4(const char *at)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        uint32_t digit = (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        value = value << 4 | digit;
    }
    return value;
}

static uint32_t escaped(char c)
{
    switch (c) {
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return (unsigned char)c;
    }
}

/* The UTF-8 bytes of a code point as one number. */
static uint32_t pack_utf8(uint32_t point)
{
    if (point < 0x80) return point;
    if (point < 0x800) return (0xC0 | point >> 6) << 8 | (0x80 | (point & 63));
    if (point < 0x10000)
        return (0xE0 | point >> 12) << 16 | (0x80 | (point >> 6 & 63)) << 8 | (0x80 | (point & 63));
    return (0xF0 | point >> 18) << 24 | (0x80 | (point >> 12 & 63)) << 16 |
           (0x80 | (point >> 6 & 63)) << 8 | (0x80 | (point & 63));
}

static int plain_length(unsigned char lead)
{
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* The next character of a valid string, as its UTF-8 bytes: equal keys give equal sequences,
 * written plainly or with escapes. */
static uint32_t next_char(const char *text, size_t *at)
{
    const char *c = text + *at;
    if (*c != '\\') {
        int length = plain_length((unsigned char)*c);
        uint32_t packed = 0;
        for (int i = 0; i < length; i++) packed = packed << 8 | (unsigned char)c[i];
        *at += (size_t)length;
        return packed;
    }
    if (c[1] != 'u') {
        *at += 2;
        return escaped(c[1]);
    }
    uint32_t point = hex4(c + 2);
    *at += 6;
    if (point < 0xD800 || point > 0xDBFF) return pack_utf8(point);
    *at += 6;
    return pack_utf8(0x10000 + ((point - 0xD800) << 10) + (hex4(c + 8) - 0xDC00));
}

static uint32_t hash_key(const char *text, uint32_t object, size_t begin, size_t end)
{
    uint64_t hash = 0x9E3779B97F4A7C15u * ((uint64_t)object + 1);
    for (size_t at = begin; at < end;) {
        hash = (hash ^ next_char(text, &at)) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
    }
    return (uint32_t)hash;
}

static bool same_key(const char *text, const ebb__json_key *a, const ebb__json_key *b)
{
    if (a->hash != b->hash || a->object != b->object) return false;
    size_t i = a->begin, j = b->begin;
    while (i < a->end && j < b->end)
        if (next_char(text, &i) != next_char(text, &j)) return false;
    return i == a->end && j == b->end;
}

/* The slot that holds an equal key, or the empty one where it belongs.  `begin` is never 0 in a
 * used slot: a key comes after "{" and a quote. */
static ebb__json_key *find_slot(const ebb__json_keys *keys, const char *text,
                                const ebb__json_key *key)
{
    size_t at = key->hash & (keys->cap - 1);
    while (keys->slots[at].begin && !same_key(text, &keys->slots[at], key))
        at = (at + 1) & (keys->cap - 1);
    return &keys->slots[at];
}

static ebb_status make_room(ebb__json_keys *keys, const char *text)
{
    if (keys->n < keys->cap / 2) return EBB_OK;
    ebb__json_keys wider = { .cap = keys->cap ? 2 * keys->cap : FIRST_CAP, .n = keys->n };
    wider.slots = ebb__calloc(wider.cap, sizeof *wider.slots);
    if (!wider.slots) return EBB_ENOMEM;
    for (size_t i = 0; i < keys->cap; i++)
        if (keys->slots[i].begin) *find_slot(&wider, text, &keys->slots[i]) = keys->slots[i];
    ebb__free(keys->slots);
    *keys = wider;
    return EBB_OK;
}

ebb_status ebb__json_keys_add(ebb__json_keys *keys, bool *twice, const char *text, uint32_t object,
                              size_t begin, size_t end)
{
    ebb_status st = make_room(keys, text);
    if (st != EBB_OK) return st;
    ebb__json_key key = { begin, end, object, hash_key(text, object, begin, end) };
    ebb__json_key *slot = find_slot(keys, text, &key);
    *twice = slot->begin != 0;
    if (*twice) return EBB_OK;
    *slot = key;
    keys->n++;
    return EBB_OK;
}

void ebb__json_keys_deinit(ebb__json_keys *keys)
{
    ebb__free(keys->slots);
    *keys = (ebb__json_keys){ 0 };
}
