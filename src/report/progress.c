#include <ebb/report.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

enum { LINE_BYTES = 256, LONGEST_BAR = 20, SHORTEST_BAR = 5, COLUMNS = 80 };

/* The line's parts, in order.  Where the terminal is too narrow the least important ones become brief,
 * then go; what room is left is the bar's. */
typedef enum part { STEP, LOSS, RATE, MEMORY, PEAK, LEFT, N_PARTS } part;
enum { FORMS = 2, PART_BYTES = 64 };
typedef struct parts {
    char text[N_PARTS][FORMS][PART_BYTES]; /* whole, brief; "" where there is nothing to tell */
    int form[N_PARTS];                     /* FORMS: dropped */
} parts;
static const part least_first[N_PARTS] = { RATE, PEAK, LEFT, MEMORY, LOSS, STEP };

static void set(parts *all, part p, const char *whole, const char *brief)
{
    snprintf(all->text[p][0], PART_BYTES, "%s", whole);
    snprintf(all->text[p][1], PART_BYTES, "%s", brief);
}

static void tell(parts *all, const ebb_progress *p)
{
    char whole[PART_BYTES], brief[PART_BYTES], value[32];
    *all = (parts){ 0 };
    snprintf(whole, sizeof(whole), "%lld/%lld", (long long)p->step, (long long)p->steps);
    set(all, STEP, whole, whole);
    snprintf(whole, sizeof(whole), "loss %.4f", p->loss);
    if (!isnan(p->loss)) set(all, LOSS, whole, whole + 5);
    ebb_count_format(p->items_per_s, value, sizeof(value));
    snprintf(whole, sizeof(whole), "%s %s/s", value, p->item ? p->item : "");
    snprintf(brief, sizeof(brief), "%s/s", value);
    if (p->items_per_s > 0) set(all, RATE, whole, brief);
    ebb_size_format(p->allocated_bytes, value, sizeof(value));
    snprintf(whole, sizeof(whole), "mem %s", value);
    set(all, MEMORY, whole, value);
    ebb_size_format(p->peak_allocated_bytes, value, sizeof(value));
    snprintf(whole, sizeof(whole), "(peak %s)", value);
    snprintf(brief, sizeof(brief), "peak %s", value);
    set(all, PEAK, whole, brief);
    ebb_time_format(p->seconds_left, value, sizeof(value));
    snprintf(whole, sizeof(whole), "%s left", value);
    if (p->seconds_left > 0) set(all, LEFT, whole, whole);
}

static const char *shown(const parts *all, int p)
{
    return all->form[p] < FORMS ? all->text[p][all->form[p]] : "";
}

static int length(const parts *all, const char *phase)
{
    int n = (int)strlen(phase);
    for (int p = 0; p < N_PARTS; p++)
        if (*shown(all, p)) n += (int)strlen(shown(all, p)) + (p == STEP || p == PEAK ? 1 : 2);
    return n;
}

static void fit(parts *all, const char *phase, int room)
{
    for (int form = 1; form <= FORMS; form++)
        for (int i = 0; i < N_PARTS && length(all, phase) > room; i++)
            all->form[least_first[i]] = form;
}

static int add(char *line, int n, const char *text)
{
    int more = snprintf(line + n, (size_t)(LINE_BYTES - n), "%s", text);
    return n + more < LINE_BYTES ? n + more : LINE_BYTES - 1;
}

static int add_bar(char *line, int n, const ebb_progress *p, int room)
{
    char bar[LONGEST_BAR + 2] = " ";
    int width = room < LONGEST_BAR ? room : LONGEST_BAR;
    int filled = p->steps > 0 ? (int)((double)p->step / (double)p->steps * width) : 0;
    if (width < SHORTEST_BAR) return n;
    for (int i = 0; i < width; i++) bar[1 + i] = i < filled ? '#' : '.';
    return add(line, n, bar);
}

/* At most `room` characters; returns how many. */
static int compose(char line[LINE_BYTES], const ebb_progress *p, int room)
{
    parts all;
    tell(&all, p);
    fit(&all, p->phase, room);
    int n = add(line, 0, p->phase);
    n = add_bar(line, n, p, room - length(&all, p->phase) - 1);
    for (int i = 0; i < N_PARTS; i++) {
        if (!*shown(&all, i)) continue;
        n = add(line, n, i == STEP || i == PEAK ? " " : "  ");
        n = add(line, n, shown(&all, i));
    }
    if (n > room) line[n = room] = '\0';
    return n;
}

/* Characters that a line may have: not the last column, where some terminals wrap already. */
static int room_of(FILE *file)
{
    struct winsize size = { 0 };
    if (ioctl(fileno(file), TIOCGWINSZ, &size) != 0) return LINE_BYTES - 1; /* no terminal: no width */
    int columns = size.ws_col > 0 ? size.ws_col : COLUMNS;
    return (columns < LINE_BYTES ? columns : LINE_BYTES) - 1;
}

void ebb_progress_show(ebb_progress_line *line, const ebb_progress *progress)
{
    double now = now_ms();
    bool last = progress->step == progress->steps;
    if (!line->file || (!last && now - line->last_ms < 100)) return;
    char text[LINE_BYTES];
    int room = room_of(line->file), n = compose(text, progress, room);
    int before = line->shown < room ? line->shown : room; /* the terminal may have become narrower */
    fprintf(line->file, "\r%s%*s", text, before > n ? before - n : 0, "");
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
