/* report/out.h: a file under construction.  The first failure sticks and is told at the end, so that
 * writers read straight on. */
#ifndef EBB_REPORT_OUT_H
#define EBB_REPORT_OUT_H

#include <ebb/status.h>

#include "core/file.h"

typedef struct ebb__out {
    ebb__writer *writer;
    ebb_status status;
} ebb__out;

ebb__out ebb__out_begin(const char *path);
void ebb__out_bytes(ebb__out *out, const void *data, size_t bytes);
void ebb__out_text(ebb__out *out, const char *text);
void ebb__out_printf(ebb__out *out, const char *fmt, ...) EBB_PRINTF(2, 3); /* up to 511 bytes */
/* A JSON string with its quotes; "<" is escaped too, so that it can stand in a page. */
void ebb__out_json(ebb__out *out, const char *text);
/* Renames the file into place, or removes it where something failed. */
EBB_NODISCARD ebb_status ebb__out_end(ebb__out *out);

#endif
