#include "report/out.h"

#include <ebb/report.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

ebb__out ebb__out_begin(const char *path)
{
    ebb__out out = { 0 };
    out.status = ebb__write_begin(&out.writer, path);
    return out;
}

void ebb__out_bytes(ebb__out *out, const void *data, size_t bytes)
{
    if (out->status == EBB_OK) out->status = ebb__write(out->writer, data, bytes);
}

void ebb__out_text(ebb__out *out, const char *text) { ebb__out_bytes(out, text, strlen(text)); }

void ebb__out_printf(ebb__out *out, const char *fmt, ...)
{
    char text[512];
    va_list list;
    va_start(list, fmt);
    int n = vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    if (n < 0 || (size_t)n >= sizeof text) n = (int)sizeof text - 1;
    ebb__out_bytes(out, text, (size_t)n);
}

void ebb__out_json(ebb__out *out, const char *text)
{
    ebb__out_text(out, "\"");
    for (const char *at = text; *at;) {
        size_t plain = 0;
        while (at[plain] && (unsigned char)at[plain] >= 0x20 && !strchr("\"\\<", at[plain]))
            plain++;
        ebb__out_bytes(out, at, plain);
        at += plain;
        if (*at) ebb__out_printf(out, "\\u%04x", (unsigned char)*at++);
    }
    ebb__out_text(out, "\"");
}

ebb_status ebb_file_write(const char *path, const void *data, size_t bytes)
{
    ebb__out out = ebb__out_begin(path);
    ebb__out_bytes(&out, data, bytes);
    return ebb__out_end(&out);
}

ebb_status ebb__out_end(ebb__out *out)
{
    if (out->status == EBB_OK) out->status = ebb__write_commit(&out->writer);
    ebb__write_abort(&out->writer);
    return out->status;
}
