#include "report/strings.h"

#include <string.h>

#include "core/mem.h"

static size_t place_of(const ebb__strings *s, const char *text)
{
    size_t mask = s->capacity - 1, at = ebb__hash_bytes(EBB__HASH_START, text, strlen(text)) & mask;
    while (s->slots[at] && strcmp(s->texts[s->slots[at] - 1], text) != 0) at = (at + 1) & mask;
    return at;
}

static ebb_status grow(ebb__strings *s)
{
    if (s->n * 2 < s->capacity) return EBB_OK;
    size_t capacity = s->capacity ? s->capacity * 2 : 64;
    uint32_t *slots = ebb__calloc(capacity, sizeof *slots);
    if (!slots) return EBB_ENOMEM;
    ebb__free(s->slots);
    s->slots = slots;
    s->capacity = capacity;
    for (size_t i = 0; i < s->n; i++) s->slots[place_of(s, s->texts[i])] = (uint32_t)i + 1;
    return EBB_OK;
}

static ebb_status add(ebb__strings *s, uint32_t *index, const char *text)
{
    EBB_TRY(grow(s));
    EBB_TRY(ebb__grow(&s->texts, &s->cap, s->n + 1, sizeof *s->texts));
    size_t at = place_of(s, text);
    if (s->slots[at] == 0) {
        s->texts[s->n] = ebb__strdup(text);
        if (!s->texts[s->n]) return EBB_ENOMEM;
        s->slots[at] = (uint32_t)++s->n;
    }
    *index = s->slots[at] - 1;
    return EBB_OK;
}

ebb_status ebb__strings_add(ebb__strings *strings, uint32_t *index, const char *text)
{
    if (strings->n == 0) EBB_TRY(add(strings, index, ""));
    return add(strings, index, text ? text : "");
}

void ebb__strings_deinit(ebb__strings *strings)
{
    for (size_t i = 0; i < strings->n; i++) ebb__free(strings->texts[i]);
    ebb__free(strings->texts);
    ebb__free(strings->slots);
    *strings = (ebb__strings){ 0 };
}
