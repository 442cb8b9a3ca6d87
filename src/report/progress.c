#include <ebb/report.h>
#include <stdio.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

enum { LINE_BYTES = 256, BAR = 20 };

static int compose(char line[LINE_BYTES], const ebb_progress *p)
{
    char memory[32], peak[32], rate[32], left[32], bar[BAR + 1];
    int filled = p->steps > 0 ? (int)((double)p->step / (double)p->steps * BAR) : 0;
    for (int i = 0; i < BAR; i++) bar[i] = i < filled ? '#' : '.';
    bar[BAR] = '\0';
    ebb_size_format(p->allocated_bytes, memory, sizeof(memory));
    ebb_size_format(p->peak_allocated_bytes, peak, sizeof(peak));
    int n = snprintf(line, LINE_BYTES, "%s %s %lld/%lld  loss %.4f", p->phase, bar,
                     (long long)p->step, (long long)p->steps, p->loss);
    if (n > 0 && n < LINE_BYTES && p->items_per_s > 0)
        n += snprintf(line + n, (size_t)(LINE_BYTES - n), "  %s %s/s",
                      ebb_count_format(p->items_per_s, rate, sizeof(rate)), p->item);
    if (n > 0 && n < LINE_BYTES)
        n += snprintf(line + n, (size_t)(LINE_BYTES - n), "  mem %s (peak %s)", memory, peak);
    if (n > 0 && n < LINE_BYTES && p->seconds_left > 0)
        n += snprintf(line + n, (size_t)(LINE_BYTES - n), "  %s left",
                      ebb_time_format(p->seconds_left, left, sizeof(left)));
    return n < LINE_BYTES ? n : LINE_BYTES - 1;
}

void ebb_progress_show(ebb_progress_line *line, const ebb_progress *progress)
{
    double now = now_ms();
    bool last = progress->step == progress->steps;
    if (!line->file || (!last && now - line->last_ms < 100)) return;
    char text[LINE_BYTES];
    int n = compose(text, progress);
    fprintf(line->file, "\r%s%*s", text, line->shown > n ? line->shown - n : 0, "");
    fflush(line->file);
    line->shown = n;
    line->last_ms = now;
}

void ebb_progress_clear(ebb_progress_line *line)
{
    if (line->file && line->shown > 0) {
        fprintf(line->file, "\r%*s\r", line->shown, "");
        fflush(line->file);
    }
    line->shown = 0;
}
