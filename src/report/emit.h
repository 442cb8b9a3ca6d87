/* report/emit.h: nested values written as JSON or as a Python pickle (protocol 2), by the same calls.
 *
 *     ebb__emit_dict(e);  ebb__emit_key(e, "size");  ebb__emit_number(e, 512);  ebb__emit_end(e);
 *
 * A pickle remembers what stands at a pointer, so that texts and frames are written once. */
#ifndef EBB_REPORT_EMIT_H
#define EBB_REPORT_EMIT_H

#include "report/out.h"

enum { EBB__EMIT_DEPTH = 16, EBB__EMIT_BATCH = 1000 /* items of a list in one opcode */ };

typedef struct ebb__emit {
    ebb__out *out;
    bool pickle;
    int depth;
    struct {
        bool list;
        int n;
    } open[EBB__EMIT_DEPTH];
    struct {
        const void *key;
        uint32_t index;
    } * memo; /* hash table; key NULL: empty */
    size_t memo_capacity, n_memo;
} ebb__emit;

void ebb__emit_begin(ebb__emit *emit, ebb__out *out, bool pickle);
void ebb__emit_finish(ebb__emit *emit);

void ebb__emit_dict(ebb__emit *emit);
void ebb__emit_list(ebb__emit *emit);
void ebb__emit_end(ebb__emit *emit);                  /* of the innermost */
void ebb__emit_key(ebb__emit *emit, const char *key); /* in a dict, before each value */
/* `text` and keys must stay where they are until the end: they are known by their addresses. */
void ebb__emit_text(ebb__emit *emit, const char *text);
void ebb__emit_number(ebb__emit *emit, uint64_t value);
void ebb__emit_bool(ebb__emit *emit, bool value);
/* True: the value remembered under `thing` has been written again.  False: write it, and then call
 * ebb__emit_remember(). */
bool ebb__emit_again(ebb__emit *emit, const void *thing);
void ebb__emit_remember(ebb__emit *emit, const void *thing);

#endif
