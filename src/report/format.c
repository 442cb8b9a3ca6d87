#include <ebb/report.h>
#include <stdio.h>
#include <string.h>

#include "core/json_scan.h"

char *ebb_time_format(double seconds, char *buf, size_t buf_bytes)
{
    if (!(seconds >= 0)) seconds = 0;
    if (seconds < 60) {
        snprintf(buf, buf_bytes, seconds < 10 ? "%.1f s" : "%.0f s", seconds);
    } else if (seconds < 3600) {
        int whole = (int)(seconds + 0.5);
        snprintf(buf, buf_bytes, "%d min %d s", whole / 60, whole % 60);
    } else {
        double minutes = seconds / 60 + 0.5;
        double hours = minutes / 60 < 1e9 ? minutes / 60 : 1e9;
        long long h = (long long)hours;
        snprintf(buf, buf_bytes, "%lld h %d min", h, (int)(minutes - (double)h * 60) % 60);
    }
    return buf;
}

char *ebb_count_format(double count, char *buf, size_t buf_bytes)
{
    static const char *const units[] = { "", " k", " M", " G", " T" };
    int unit = 0;
    while (count >= 999.5 && unit < 4) {
        count /= 1000;
        unit++;
    }
    int digits = unit == 0 || count >= 99.95 ? 0 : count >= 9.995 ? 1 : 2;
    snprintf(buf, buf_bytes, "%.*f%s", digits, count, units[unit]);
    return buf;
}

char *ebb_utf8_text(char *buf, const void *bytes, size_t n)
{
    const char *from = bytes;
    char *to = buf;
    for (size_t at = 0; at < n;) {
        size_t length = from[at] ? (size_t)ebb__utf8_length(from, n, at) : 0;
        memcpy(to, length ? from + at : "\xEF\xBF\xBD", length ? length : 3);
        to += length ? length : 3;
        at += length ? length : 1;
    }
    *to = '\0';
    return buf;
}
