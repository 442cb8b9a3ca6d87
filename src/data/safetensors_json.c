/* data/safetensors_json.c: see safetensors_json.h.  The text is valid JSON; every step still stops
 * at the end, so that a mistake of the check could not run over it. */
#include "data/safetensors_json.h"

#include <string.h>

char ebb__cursor_peek(ebb__cursor *c)
{
    while (c->at < c->end && strchr(" \t\r\n", *c->at) && *c->at) c->at++;
    return c->at < c->end ? *c->at : 0;
}

bool ebb__cursor_take(ebb__cursor *c, char ch)
{
    if (ebb__cursor_peek(c) != ch || c->at >= c->end) return false;
    c->at++;
    return true;
}

static int hex_digit(char ch)
{
    if (ch >= '0' && ch <= '9') return ch - '0';
    if (ch >= 'a' && ch <= 'f') return ch - 'a' + 10;
    if (ch >= 'A' && ch <= 'F') return ch - 'A' + 10;
    return -1;
}

/* Four hex digits; false when there are fewer. */
static bool hex4(ebb__cursor *c, uint32_t *out)
{
    if (c->end - c->at < 4) return false;
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(c->at[i]);
        if (digit < 0) return false;
        value = value << 4 | (uint32_t)digit;
    }
    c->at += 4;
    *out = value;
    return true;
}

static char *put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xC0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *to++ = (char)(0xE0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3F));
        *to++ = (char)(0x80 | (code & 0x3F));
    } else {
        *to++ = (char)(0xF0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3F));
        *to++ = (char)(0x80 | (code >> 6 & 0x3F));
        *to++ = (char)(0x80 | (code & 0x3F));
    }
    return to;
}

/* After "\u": one code point, of one or two escapes.  A lone surrogate becomes U+FFFD. */
static bool unicode_escape(ebb__cursor *c, uint32_t *out)
{
    uint32_t high;
    if (!hex4(c, &high)) return false;
    *out = high;
    if (high < 0xD800 || high > 0xDFFF) return true;
    *out = 0xFFFD;
    if (high > 0xDBFF || c->end - c->at < 6 || c->at[0] != '\\' || c->at[1] != 'u') return true;
    ebb__cursor ahead = { c->at + 2, c->end };
    uint32_t low;
    if (!hex4(&ahead, &low) || low < 0xDC00 || low > 0xDFFF) return true;
    c->at = ahead.at;
    *out = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

bool ebb__cursor_string(ebb__cursor *c, char *buf, size_t *bytes)
{
    static const char escapes[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (!ebb__cursor_take(c, '"')) return false;
    char *to = buf;
    while (c->at < c->end && *c->at != '"') {
        char ch = *c->at++;
        if (ch != '\\') { *to++ = ch; continue; }
        if (c->at >= c->end) return false;
        char kind = *c->at++;
        uint32_t code;
        const char *found = kind ? strchr(escapes, kind) : NULL;
        if (found) *to++ = values[found - escapes];
        else if (kind == 'u' && unicode_escape(c, &code)) to = put_utf8(to, code);
        else return false;
    }
    if (c->at >= c->end) return false;
    c->at++;
    *to = 0;
    *bytes = (size_t)(to - buf);
    return true;
}

bool ebb__cursor_uint(ebb__cursor *c, uint64_t *out)
{
    ebb__cursor_peek(c);
    const char *start = c->at;
    uint64_t value = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*c->at - '0'), &value)) return false;
        c->at++;
    }
    if (c->at == start) return false;
    if (c->at < c->end && (*c->at == '.' || *c->at == 'e' || *c->at == 'E')) return false;
    *out = value;
    return true;
}

static void skip_string(ebb__cursor *c)
{
    c->at++;
    while (c->at < c->end && *c->at != '"') c->at += *c->at == '\\' && c->end - c->at > 1 ? 2 : 1;
    if (c->at < c->end) c->at++;
}

void ebb__cursor_skip_value(ebb__cursor *c)
{
    int depth = 0;
    do {
        char ch = ebb__cursor_peek(c);
        if (!ch) return;
        if (ch == '"') { skip_string(c); continue; }
        if (ch == '{' || ch == '[') depth++;
        else if (ch == '}' || ch == ']') depth--;
        else if (ch != ',' && ch != ':') { /* a number or a word */
            while (c->at < c->end && !strchr(",:]} \t\r\n", *c->at)) c->at++;
            continue;
        }
        c->at++;
    } while (depth > 0);
}
