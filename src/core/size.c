/* size.c: sizes as people write them. */
#include <ctype.h>
#include <ebb/memory.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct unit_row {
    const char *name;
    uint64_t bytes;
} unit_row;

static const unit_row units[] = {
    { "", 1 },
    { "B", 1 },
    { "KiB", UINT64_C(1) << 10 },
    { "MiB", UINT64_C(1) << 20 },
    { "GiB", UINT64_C(1) << 30 },
    { "TiB", UINT64_C(1) << 40 },
    { "PiB", UINT64_C(1) << 50 },
    { "kB", 1000 },
    { "MB", 1000000 },
    { "GB", 1000000000 },
    { "TB", UINT64_C(1000000000000) },
};

enum { MAX_DIGITS = 18 }; /* of a fraction: 10^18 * 2^50 fits in 128 bits */

static ebb_status refuse(const char *text, const char *why)
{
    return ebb_fail(EBB_EINVAL,
                    "size: %s: got \"%.60s\"; allowed: a number of bytes, or a number with B, KiB, "
                    "MiB, GiB, TiB (powers of 1024) or kB, MB, GB, TB (powers of 1000)",
                    why, text);
}

static const unit_row *find_unit(const char *name)
{
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcasecmp(units[i].name, name) == 0) return &units[i];
    return NULL;
}

ebb_status ebb_size_parse(size_t *out, const char *text)
{
    const char *at = text;
    uint64_t whole = 0, fraction = 0, scale = 1; /* value = whole + fraction / scale */
    if (!isdigit((unsigned char)*at)) return refuse(text, "does not begin with a digit");
    for (; isdigit((unsigned char)*at); at++)
        if (__builtin_mul_overflow(whole, 10u, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*at - '0'), &whole))
            return refuse(text, "too large");
    if (*at == '.') {
        const char *first = ++at;
        for (; isdigit((unsigned char)*at); at++) {
            if (at - first >= MAX_DIGITS) return refuse(text, "too many digits");
            fraction = fraction * 10 + (uint64_t)(*at - '0');
            scale *= 10;
        }
        if (at == first) return refuse(text, "no digit after the point");
    }
    while (*at == ' ') at++;
    const unit_row *unit = find_unit(at);
    if (!unit) return refuse(text, "unknown unit");
    if (unit->bytes == 1 && scale > 1) return refuse(text, "part of a byte");
    unsigned __int128 bytes =
        (unsigned __int128)whole * unit->bytes + (unsigned __int128)fraction * unit->bytes / scale;
    if (bytes > SIZE_MAX) return refuse(text, "too large");
    *out = (size_t)bytes;
    return EBB_OK;
}

char *ebb_size_format(size_t bytes, char *buf, size_t buf_bytes)
{
    static const char *const names[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    if (bytes < 1024) {
        snprintf(buf, buf_bytes, "%zu B", bytes);
        return buf;
    }
    /* Hundredths of a unit, rounded; the next unit where they would read 1024.00. */
    for (int i = 0;; i++) {
        unsigned __int128 half = (unsigned __int128)1 << (10 * i + 9);
        uint64_t hundredths = (uint64_t)(((unsigned __int128)bytes * 100 + half) >> (10 * i + 10));
        if (hundredths >= 102400 && i < 5) continue;
        snprintf(buf, buf_bytes, "%llu.%02llu %s", (unsigned long long)(hundredths / 100),
                 (unsigned long long)(hundredths % 100), names[i]);
        return buf;
    }
}
