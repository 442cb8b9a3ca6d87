/* status.c: the message of the last failure and the current call site, both per thread. */
#include <ebb/status.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/message.h"
#include "core/site.h"

static _Thread_local char message[EBB__MESSAGE_BYTES];
static _Thread_local ebb__site site;

const char *ebb_message(void) { return message; }

void ebb__message_keep(ebb__message *out) { memcpy(out->text, message, strlen(message) + 1); }

void ebb__message_put_back(const ebb__message *kept) { memcpy(message, kept->text, strlen(kept->text) + 1); }

const char *ebb_status_name(ebb_status status)
{
    static const char *const names[] = {
        "OK",      "EINVAL",       "ESHAPE", "EDTYPE",  "ENOMEM", "EBUDGET",
        "EDEVICE", "EUNSUPPORTED", "EIO",    "EFORMAT", "ESTATE",
    };
    int index = -(int)status;
    return index >= 0 && index < (int)(sizeof names / sizeof *names) ? names[index] : "unknown";
}

/* Ends a text that was cut at the buffer's end with "...", never inside a UTF-8 character. */
static void mark_cut(char *text, size_t bytes)
{
    size_t end = bytes - sizeof "...";
    while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80) end--;
    memcpy(text + end, "...", sizeof "...");
}

ebb_status ebb_fail(ebb_status status, const char *fmt, ...)
{
    char text[EBB__MESSAGE_BYTES]; /* apart from `message`, which may be among the arguments */
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0) text[0] = '\0';
    if (n >= (int)sizeof text) mark_cut(text, sizeof text);
    memcpy(message, text, strlen(text) + 1);
    return status;
}

ebb_site ebb_call_site(const char *file, int line)
{
    ebb_site before = site;
    site = (ebb_site){ file, line };
    return before;
}

ebb__site ebb__site_get(void) { return site; }

/* The one place where ebb prints and stops: its own state is wrong, so going on would be worse. */
_Noreturn void ebb__assert_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "ebb: %s:%d: assertion failed: %s\n", file, line, what);
    abort();
}
