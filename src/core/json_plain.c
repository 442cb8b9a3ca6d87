/* json_plain.c: two things that cJSON does not hold, put into others that it does. */
#include "core/json_plain.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/mem.h"

enum { MAX_NUMBER = 63 /* characters of a number that cJSON reads */ };

static const char zero_escape[] = "\\u0000";

/* ---- what stands at a place ---------------------------------------------------------------- */

/* Length of the number at `at`; 0: none begins there.  In a text that passed the scan, and outside
 * of its strings, what begins so and goes on with these characters is a number. */
static size_t number_length(const char *text, size_t bytes, size_t at)
{
    static const char digits[] = "0123456789", others[] = "+-.eE";
    size_t end = at;
    if (text[at] != '-' && !memchr(digits, text[at], 10)) return 0;
    while (end < bytes && (memchr(digits, text[end], 10) || memchr(others, text[end], 5))) end++;
    return end - at;
}

/* Length of the string at `at`, with its quotes. */
static size_t string_length(const char *text, size_t at)
{
    size_t end = at + 1;
    while (text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    return end + 1 - at;
}

/* Length of the escape at `at`; 0: there is none.  A backslash and what it escapes belong together:
 * \\u0000 is no zero character. */
static size_t escape_length(const char *string, size_t n, size_t at, bool *zero)
{
    size_t whole = strlen(zero_escape);
    *zero = n - at >= whole && memcmp(string + at, zero_escape, whole) == 0;
    if (string[at] != '\\') return 0;
    return *zero ? whole : 2;
}

static bool string_is_plain(const char *string, size_t n)
{
    bool zero = false;
    for (size_t at = 0; at < n && !zero;) {
        size_t escape = escape_length(string, n, at, &zero);
        at += escape ? escape : 1;
    }
    return !zero;
}

static bool is_plain(const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t n = 1;
        if (text[at] == '"') {
            n = string_length(text, at);
            if (!string_is_plain(text + at, n)) return false;
        } else {
            n = number_length(text, bytes, at);
            if (n > MAX_NUMBER) return false;
        }
        at += n ? n : 1;
    }
    return true;
}

/* ---- making it plain: what is written is never longer than what was read ---------------------- */

static size_t make_string_plain(char *to, const char *from, size_t n)
{
    size_t used = 0;
    for (size_t at = 0; at < n;) {
        bool zero;
        size_t escape = escape_length(from, n, at, &zero), step = escape ? escape : 1;
        const char *what = zero ? EBB__JSON_ZERO : from + at;
        size_t length = zero ? strlen(EBB__JSON_ZERO) : step;
        memmove(to + used, what, length);
        used += length;
        at += step;
    }
    return used;
}

/* from[n] may be written to.  strtod() and snprintf() use the point of the locale. */
static size_t make_number_plain(char *to, char *from, size_t n)
{
    char point = *localeconv()->decimal_point, after = from[n], digits[40];
    char *dot = memchr(from, '.', n);
    if (dot) *dot = point;
    from[n] = '\0';
    double value = strtod(from, NULL); /* any length, rounded right; infinite above DBL_MAX */
    from[n] = after;
    if (isinf(value)) snprintf(digits, sizeof digits, "%s1e999", value < 0 ? "-" : "");
    else snprintf(digits, sizeof digits, "%.17g", value);
    dot = strchr(digits, point);
    if (dot) *dot = '.';
    memcpy(to, digits, strlen(digits));
    return strlen(digits);
}

/* In place; returns the new length. */
static size_t make_plain(char *text, size_t bytes)
{
    size_t used = 0;
    for (size_t at = 0; at < bytes;) {
        bool string = text[at] == '"';
        size_t n = string ? string_length(text, at) : number_length(text, bytes, at);
        if (string) {
            used += make_string_plain(text + used, text + at, n);
        } else if (n > MAX_NUMBER) {
            used += make_number_plain(text + used, text + at, n);
        } else {
            n = n ? n : 1;
            memmove(text + used, text + at, n);
            used += n;
        }
        at += n;
    }
    return used;
}

ebb_status ebb__json_plain(char **out, size_t *out_bytes, const char *text, size_t bytes)
{
    if (is_plain(text, bytes)) return EBB_OK;
    char *copy = ebb__malloc(bytes + 1);
    if (!copy) return EBB_ENOMEM;
    memcpy(copy, text, bytes);
    *out_bytes = make_plain(copy, bytes);
    *out = copy;
    return EBB_OK;
}
