/* json_scan.c: is this text JSON, to the letter of RFC 8259?  Builds nothing. */
#include "core/json_scan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "core/json_keys.h"

typedef struct scanner {
    const char *text;
    size_t bytes, at;
    const char *file;
    bool for_tree;
    int depth;
    uint32_t n_objects;
    ebb__json_keys keys;
} scanner;

static ebb_status scan_value(scanner *s);

/* Line and column (in characters) of an offset, both from 1. */
static void locate(const scanner *s, size_t at, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < at; i++) {
        unsigned char c = (unsigned char)s->text[i];
        if (c == '\n') {
            ++*line;
            *column = 1;
        } else if ((c & 0xC0) != 0x80) {
            ++*column;
        }
    }
}

static ebb_status wrong(const scanner *s, size_t at, const char *fmt, ...) EBB_PRINTF(3, 4);
static ebb_status wrong(const scanner *s, size_t at, const char *fmt, ...)
{
    char what[512];
    size_t line, column;
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    locate(s, at, &line, &column);
    return ebb_fail(EBB_EFORMAT, "%s:%zu:%zu: %s", s->file ? s->file : "JSON", line, column, what);
}

static ebb_status expected(const scanner *s, const char *what)
{
    if (s->at >= s->bytes) return wrong(s, s->at, "expected %s, got the end of the text", what);
    unsigned char c = (unsigned char)s->text[s->at];
    if (c > ' ' && c < 0x7F) return wrong(s, s->at, "expected %s, got '%c'", what, c);
    int length = ebb__utf8_length(s->text, s->bytes, s->at);
    if (length > 1)
        return wrong(s, s->at, "expected %s, got '%.*s'", what, length, s->text + s->at);
    return wrong(s, s->at, "expected %s, got the byte 0x%02X", what, c);
}

static bool next_is(const scanner *s, char c) { return s->at < s->bytes && s->text[s->at] == c; }

static bool skip(scanner *s, char c)
{
    if (!next_is(s, c)) return false;
    s->at++;
    return true;
}

static void skip_space(scanner *s)
{
    while (next_is(s, ' ') || next_is(s, '\n') || next_is(s, '\t') || next_is(s, '\r')) s->at++;
}

static bool next_is_digit(const scanner *s)
{
    return s->at < s->bytes && s->text[s->at] >= '0' && s->text[s->at] <= '9';
}

static ebb_status scan_digits(scanner *s, const char *where)
{
    if (!next_is_digit(s)) return expected(s, where);
    while (next_is_digit(s)) s->at++;
    return EBB_OK;
}

static ebb_status scan_number(scanner *s)
{
    size_t begin = s->at;
    ebb_status st = EBB_OK;
    skip(s, '-');
    bool zero = next_is(s, '0');
    st = scan_digits(s, "a digit");
    if (st == EBB_OK && zero && s->at - begin - (s->text[begin] == '-') > 1)
        st = wrong(s, begin, "a number must not begin with 0");
    if (st == EBB_OK && skip(s, '.')) st = scan_digits(s, "a digit after the point");
    if (st == EBB_OK && (skip(s, 'e') || skip(s, 'E'))) {
        if (!skip(s, '+')) skip(s, '-');
        st = scan_digits(s, "a digit in the exponent");
    }
    return st;
}

/* Four hexadecimal digits. */
static ebb_status scan_hex4(scanner *s, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        char c = s->at < s->bytes ? s->text[s->at] : '\0';
        if (c >= '0' && c <= '9')
            value = value << 4 | (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            value = value << 4 | (uint32_t)(c - 'A' + 10);
        else
            return expected(s, "four hexadecimal digits after \\u");
    }
    *out = value;
    return EBB_OK;
}

/* After "\u".  A high surrogate must be followed by a low one; neither may stand alone. */
static ebb_status scan_unicode(scanner *s)
{
    size_t begin = s->at - 2;
    uint32_t first = 0, second = 0;
    ebb_status st = scan_hex4(s, &first);
    if (st != EBB_OK) return st;
    if (first < 0xD800 || first > 0xDFFF) return EBB_OK;
    if (first < 0xDC00 && skip(s, '\\') && skip(s, 'u')) {
        st = scan_hex4(s, &second);
        if (st != EBB_OK) return st;
    }
    if (second < 0xDC00 || second > 0xDFFF)
        return wrong(s, begin, "the surrogate \\u%04X is not part of a pair", (unsigned)first);
    return EBB_OK;
}

static ebb_status scan_escape(scanner *s)
{
    if (skip(s, 'u')) return scan_unicode(s);
    if (s->at >= s->bytes || s->text[s->at] == '\0' || !strchr("\"\\/bfnrt", s->text[s->at]))
        return expected(s, "one of \" \\ / b f n r t u after the backslash");
    s->at++;
    return EBB_OK;
}

/* From the opening quote; [*begin, *end) is what is between the quotes. */
static ebb_status scan_string(scanner *s, size_t *begin, size_t *end)
{
    size_t quote = s->at++;
    *begin = s->at;
    while (!next_is(s, '"')) {
        if (s->at >= s->bytes) return wrong(s, quote, "the string that begins here does not end");
        unsigned char c = (unsigned char)s->text[s->at];
        if (skip(s, '\\')) {
            ebb_status st = scan_escape(s);
            if (st != EBB_OK) return st;
            continue;
        }
        if (c < ' ')
            return wrong(s, s->at, "the control character 0x%02X must be written as \\u%04X", c, c);
        int length = ebb__utf8_length(s->text, s->bytes, s->at);
        if (length == 0) return wrong(s, s->at, "the byte 0x%02X is not valid UTF-8 here", c);
        s->at += (size_t)length;
    }
    *end = s->at++;
    return EBB_OK;
}

static ebb_status scan_key(scanner *s, uint32_t object)
{
    size_t quote = s->at, begin, end;
    if (!next_is(s, '"')) return expected(s, "a key in double quotes");
    ebb_status st = scan_string(s, &begin, &end);
    if (st != EBB_OK || !s->for_tree) return st;
    bool twice;
    st = ebb__json_keys_add(&s->keys, &twice, s->text, object, begin, end);
    if (st != EBB_OK || !twice) return st;
    size_t shown = end - begin;
    while (shown > 100) shown--; /* cut between characters */
    while (shown < end - begin && shown > 0 &&
           ((unsigned char)s->text[begin + shown] & 0xC0) == 0x80)
        shown--;
    return wrong(s, quote, "duplicate key \"%.*s\"", (int)shown, s->text + begin);
}

static ebb_status scan_member(scanner *s, uint32_t object)
{
    ebb_status st = scan_key(s, object);
    if (st != EBB_OK) return st;
    skip_space(s);
    if (!skip(s, ':')) return expected(s, "':' after the key");
    return scan_value(s);
}

/* After "{" or "[", up to and with `close`. */
static ebb_status scan_items(scanner *s, char close, const char *what)
{
    bool is_object = close == '}';
    uint32_t object = is_object ? s->n_objects++ : 0;
    skip_space(s);
    if (skip(s, close)) return EBB_OK;
    for (;;) {
        skip_space(s);
        ebb_status st = is_object ? scan_member(s, object) : scan_value(s);
        if (st != EBB_OK) return st;
        if (skip(s, close)) return EBB_OK;
        if (!skip(s, ',')) return expected(s, what);
    }
}

static ebb_status scan_nested(scanner *s)
{
    if (++s->depth > EBB__JSON_MAX_DEPTH)
        return wrong(s, s->at, "nested more than %d deep", EBB__JSON_MAX_DEPTH);
    ebb_status st = skip(s, '{') ? scan_items(s, '}', "',' or '}'")
                                 : (s->at++, scan_items(s, ']', "',' or ']'"));
    s->depth--;
    return st;
}

static ebb_status scan_word(scanner *s)
{
    static const char *const words[] = { "true", "false", "null" };
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(words[i]);
        if (s->bytes - s->at < length || memcmp(s->text + s->at, words[i], length) != 0) continue;
        s->at += length;
        return EBB_OK;
    }
    return expected(s, "a value");
}

/* A value and the white space on both sides. */
static ebb_status scan_value(scanner *s)
{
    size_t begin, end;
    ebb_status st;
    skip_space(s);
    if (next_is(s, '{') || next_is(s, '['))
        st = scan_nested(s);
    else if (next_is(s, '"'))
        st = scan_string(s, &begin, &end);
    else if (next_is(s, '-') || next_is_digit(s))
        st = scan_number(s);
    else
        st = scan_word(s);
    if (st == EBB_OK) skip_space(s);
    return st;
}

ebb_status ebb__json_scan(const char *text, size_t bytes, const char *file, bool for_tree)
{
    scanner s = { .text = text, .bytes = bytes, .file = file, .for_tree = for_tree };
    ebb_status st;
    if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        st = wrong(&s, 0, "a byte order mark is not allowed");
    else
        st = scan_value(&s);
    if (st == EBB_OK && s.at < bytes) st = expected(&s, "the end of the text after the value");
    ebb__json_keys_deinit(&s.keys);
    return st;
}

ebb_status ebb__json_check(const char *text, size_t bytes, const char *file)
{
    return ebb__json_scan(text, bytes, file, false);
}
