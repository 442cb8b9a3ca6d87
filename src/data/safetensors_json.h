/* data/safetensors_json.h: a cursor over JSON text that ebb__json_check() has passed.
 * cJSON turns every number into a double, which cannot tell 1 from 1.0 and loses digits above 2^53;
 * offsets and shapes need both. */
#ifndef EBB_DATA_SAFETENSORS_JSON_H
#define EBB_DATA_SAFETENSORS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ebb__cursor { const char *at, *end; } ebb__cursor;

/* The next character that is not white space; 0 at the end. */
char ebb__cursor_peek(ebb__cursor *c);
/* Steps over `ch` when it comes next. */
bool ebb__cursor_take(ebb__cursor *c, char ch);
/* Decodes a string into buf as UTF-8 with a NUL; buf needs as many bytes as the quoted text has.
 * *bytes: without the NUL (a decoded \u0000 counts).  False: no string comes next. */
bool ebb__cursor_string(ebb__cursor *c, char *buf, size_t *bytes);
/* A whole number written in digits only.  False: anything else, or above UINT64_MAX. */
bool ebb__cursor_uint(ebb__cursor *c, uint64_t *out);
void ebb__cursor_skip_value(ebb__cursor *c);

#endif
