/* terminal.c: a lesson as text. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lesson.h"

enum { MOST_COLUMNS = 80, LEAST_COLUMNS = 40, INDENT = 5, ITEM_INDENT = 18, LABEL = 7 };
enum { BAR = 24, LEAST_BAR = 4, SHOWN_NODES = 6, LINE_BYTES = 512 };

static const char *const bold = "\033[1m", *const dim = "\033[2m", *const green = "\033[32m", *const red = "\033[31m";

/* ---- lines -------------------------------------------------------------------------------- */

static void styled(const lesson_terminal *t, const char *style, const char *text)
{
    if (t->colour) fprintf(t->file, "%s%s\033[0m", style, text);
    else fputs(text, t->file);
}

/* Words of `text`; the cursor stands in `column`, and lines begin at `indent`.  A word that is wider than a
 * line is cut in pieces. */
static void wrap_from(const lesson_terminal *t, int column, int indent, const char *text)
{
    bool first = true; /* no blank before the next word; */
    int gap = 1;       /* otherwise so many */
    while (*text) {
        int n = (int)strcspn(text, " \n");
        if (n == 0 && *text == ' ') { /* a second blank, which goes where the line ends */
            gap++;
            text++;
            continue;
        }
        if (!first && column + gap + n > t->columns) {
            fprintf(t->file, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            fprintf(t->file, "%*s", gap, "");
            column += gap;
        }
        gap = 1;
        bool whole = n <= t->columns - column;
        if (!whole) n = t->columns - column;
        fprintf(t->file, "%.*s", n, text);
        column += n;
        text += n;
        first = !whole || *text == '\n';
        if (first) {
            fprintf(t->file, "\n%*s", indent, "");
            column = indent;
        }
        if (whole && *text) text++;
    }
    fputc('\n', t->file);
}

static void wrap(const lesson_terminal *t, const char *text) { wrap_from(t, INDENT, INDENT, text); }

void lesson_terminal_text(const lesson_terminal *t, const char *text) { wrap_from(t, 0, 0, text); }

void lesson_terminal_item(const lesson_terminal *t, const char *name, const char *text)
{
    fprintf(t->file, "  %-*s", ITEM_INDENT - 2, name);
    wrap_from(t, ITEM_INDENT, ITEM_INDENT, text);
}

/* "label  text"; what is too long goes on in the next line. */
static void field(const lesson_terminal *t, const char *label, const char *text)
{
    char head[16];
    snprintf(head, sizeof(head), "%*s%-6s ", INDENT, "", label);
    styled(t, dim, head);
    wrap_from(t, INDENT + LABEL, INDENT + LABEL, text);
}

/* Lines as they are; those that are too long go on in the next, indented. */
static void show_lines(const lesson_terminal *t, const char *head, const char *text)
{
    int indent = INDENT + (*head ? 2 : 0);
    if (*head) fprintf(t->file, "%*s%s\n", INDENT, "", head);
    while (*text) {
        int n = (int)strcspn(text, "\n"), left = indent;
        while (n > t->columns - left) {
            int cut = t->columns - left, blank = cut;
            while (blank > 0 && text[blank] != ' ') blank--;
            if (blank > 0) cut = blank;
            fprintf(t->file, "%*s%.*s\n", left, "", cut, text);
            text += cut + (blank > 0);
            n -= cut + (blank > 0);
            left = indent + 4;
        }
        int shown = n; /* the blanks of an empty last cell are not */
        while (shown > 0 && text[shown - 1] == ' ') shown--;
        fprintf(t->file, "%*s%.*s\n", shown ? left : 0, "", shown, text);
        text += n + (text[n] == '\n');
    }
}

/* Appends to a line of LINE_BYTES. */
static void EBB_PRINTF(2, 3) put(char *line, const char *fmt, ...)
{
    size_t n = strlen(line);
    va_list list;
    va_start(list, fmt);
    vsnprintf(line + n, LINE_BYTES - n, fmt, list);
    va_end(list);
}

/* ---- what is alive ------------------------------------------------------------------------ */

/* "x = y in block(): f32[4, 4], 64 B, 2 references"; returns the index of the next tensor. */
static int names_line(char *line, const lesson_state *s, int i)
{
    const lesson_name *n = &s->names[i];
    do {
        put(line, "%s%s", &s->names[i] == n ? "" : " = ", s->names[i].name);
        if (s->names[i].function[0]) put(line, " in %s()", s->names[i].function);
        i++;
    } while (i < s->n_names && s->names[i].same);
    put(line, ": %s, %s, %d reference%s", n->shape, size(n->bytes), n->references, n->references == 1 ? "" : "s");
    if (n->grad_bytes > 0) put(line, ", gradient %s", size(n->grad_bytes));
    return i;
}

static void show_names(const lesson_terminal *t, const lesson_state *s)
{
    for (int i = 0; i < s->n_names;) {
        char line[LINE_BYTES] = "";
        const char *label = i == 0 ? "names" : "";
        i = names_line(line, s, i);
        field(t, label, line);
    }
    if (s->n_names == 0) field(t, "names", "none");
}

static const char *state_word(ebb_slot_state state)
{
    switch (state) {
    case EBB_SLOT_EMPTY: return "";
    case EBB_SLOT_KEPT: return "keeps";
    case EBB_SLOT_PROMISED: return "can make again";
    case EBB_SLOT_REFILLED: return "has made again";
    case EBB_SLOT_PACKED: return "has packed";
    case EBB_SLOT_UNPACKED: return "has unpacked";
    case EBB_SLOT_RELEASED: return "has released";
    }
    return "";
}

/* "linear #3 keeps in0 4.00 MiB, in1 1.00 MiB" */
static void node_line(char *line, const lesson_node *n)
{
    const char *before = "";
    put(line, "%s #%llu", n->op, (unsigned long long)n->seq);
    for (int k = 0; k < n->n_slots; k++) {
        const char *word = state_word(n->slots[k].state);
        if (!*word) continue;
        put(line, "%s ", k ? "," : "");
        if (strcmp(word, before) != 0) put(line, "%s ", word);
        before = word;
        put(line, "%s %s", n->slots[k].name, size(n->slots[k].bytes));
    }
    if (n->n_slots == 0) put(line, " keeps nothing");
}

static void show_tape(const lesson_terminal *t, const lesson_state *s)
{
    int from = s->n_nodes > SHOWN_NODES ? s->n_nodes - SHOWN_NODES : 0;
    for (int i = from; i < s->n_nodes; i++) {
        char line[LINE_BYTES] = "";
        node_line(line, &s->nodes[i]);
        field(t, i == from ? "tape" : "", line);
    }
    if (from > 0) {
        char line[LINE_BYTES] = "";
        put(line, "and %zu older ones", s->live_nodes - SHOWN_NODES);
        field(t, "", line);
    }
    if (s->n_nodes == 0) field(t, "tape", "empty");
}

static void show_bytes(const lesson_terminal *t, const lesson_state *s)
{
    char line[LINE_BYTES], text[LINE_BYTES], bar[BAR + 1];
    snprintf(text, sizeof(text), "%s allocated, %s reserved", size(s->allocated_bytes), size(s->reserved_bytes));
    int room = t->columns - INDENT - LABEL - (int)strlen("[] ") - (int)strlen(text);
    if (room < LEAST_BAR) room = t->columns - INDENT - LABEL - (int)strlen("[]"); /* a line of its own */
    size_t cells = room > BAR ? BAR : (size_t)room;
    size_t full = s->reserved_bytes ? (s->allocated_bytes * cells + s->reserved_bytes - 1) / s->reserved_bytes : 0;
    memset(bar, '.', cells);
    memset(bar, '#', full);
    bar[cells] = 0;
    line[0] = 0;
    put(line, "[%s] %s", bar, text);
    field(t, "live", line);
}

static void show_state(const lesson_terminal *t, const lesson_state *s)
{
    show_names(t, s);
    show_tape(t, s);
    show_bytes(t, s);
}

/* ---- the comment at the top --------------------------------------------------------------- */

/* The line's text behind " * " or the opening of the comment, without its end; NULL: it is not of the comment. */
static const char *comment_line(const char **at, char line[LINE_BYTES])
{
    if (!*at) return NULL;
    size_t n = strcspn(*at, "\n");
    const char *next = (*at)[n] ? *at + n + 1 : NULL, *text = *at + (n < 3 ? n : 3);
    snprintf(line, LINE_BYTES, "%.*s", (int)(n - (size_t)(text - *at)), text);
    char *end = strstr(line, "*/");
    if (end) {
        while (end > line && end[-1] == ' ') end--;
        *end = 0;
        next = NULL;
    }
    *at = next;
    return line;
}

/* Prose is filled again; lines of code, which are indented, stay as they are. */
void lesson_terminal_intro(const lesson_terminal *t, const char *source)
{
    char line[LINE_BYTES], prose[LESSON_TEXT] = "";
    fputc('\n', t->file);
    while (comment_line(&source, line)) {
        bool code = line[0] == ' ';
        if (!code && line[0]) {
            size_t n = strlen(prose);
            snprintf(prose + n, sizeof(prose) - n, "%s%s", n ? " " : "", line);
            if (source) continue;
        }
        if (prose[0]) {
            fprintf(t->file, "%*s", INDENT, "");
            wrap(t, prose);
            prose[0] = 0;
        }
        if (code) show_lines(t, "", line + 1);
        else if (!line[0]) fputc('\n', t->file);
    }
}

/* ---- events ------------------------------------------------------------------------------- */

static void show_source(lesson_terminal *t, const lesson_event *e)
{
    char mark[16], line[LINE_BYTES] = "";
    snprintf(mark, sizeof(mark), "%*d ", INDENT - 1, e->line);
    put(line, "%s;", e->text);
    if (e->function && e->function[0]) put(line, "   (in %s)", e->function);
    if (e->kind == LESSON_AFTER) put(line, "   (returned)");
    t->line = e->line;
    fputc('\n', t->file);
    styled(t, dim, mark);
    if (t->colour) fputs(bold, t->file);
    wrap(t, line);
    if (t->colour) fputs("\033[0m", t->file);
}

/* Enter runs the line; "q" leaves; the end of the input lets the rest run. */
static bool wait_for_enter(lesson_terminal *t)
{
    fprintf(t->file, "%*s", INDENT, "");
    styled(t, dim, "Enter runs it, q leaves ");
    fflush(t->file);
    int first = getchar(), c = first;
    while (c != '\n' && c != EOF) c = getchar();
    if (c == EOF) t->stops = false;
    /* The question goes; where no newline was typed, it is in this line. */
    if (t->colour) fputs(c == EOF ? "\r\033[2K" : "\033[1A\033[2K", t->file);
    else if (c == EOF) fputc('\n', t->file);
    return first != 'q';
}

static void show_marked(const lesson_terminal *t, const char *style, const char *mark, const char *text)
{
    char head[16];
    snprintf(head, sizeof(head), "%*s ", INDENT - 1, mark);
    styled(t, style, head);
    wrap(t, text);
}

static void show_text(const lesson_terminal *t, const lesson_event *e)
{
    switch (e->kind) {
    case LESSON_BEGINS:
        styled(t, bold, e->lesson->name);
        fputs(": ", t->file);
        wrap_from(t, (int)strlen(e->lesson->name) + 2, INDENT, e->text);
        break;
    case LESSON_SAYS:
        fputc('\n', t->file);
        show_marked(t, "", "", e->text);
        break;
    case LESSON_HOLDS: show_marked(t, green, "ok", e->text); break;
    case LESSON_FAILS: show_marked(t, red, "FAIL", e->text); break;
    case LESSON_WHY: show_lines(t, "kept alive by", e->text); break;
    case LESSON_LEAK:
    case LESSON_TABLE: show_lines(t, "", e->text); break;
    case LESSON_ENDS: show_marked(t, green, "ok", "Nothing is left alive."); break;
    case LESSON_REFUSED: show_marked(t, red, "no", e->detail); break;
    case LESSON_BEFORE:
    case LESSON_AFTER: break;
    }
}

bool lesson_terminal_view(void *user, const lesson_event *e)
{
    lesson_terminal *t = user;
    bool step = e->kind == LESSON_BEFORE || e->kind == LESSON_AFTER;
    if (step && !t->steps) return true;
    if (e->kind == LESSON_BEFORE) {
        show_source(t, e);
        return !t->stops || wait_for_enter(t);
    }
    if (e->kind == LESSON_AFTER && t->line != e->line) show_source(t, e); /* other steps ran inside it */
    show_text(t, e);
    if (t->steps && (e->kind == LESSON_AFTER || e->kind == LESSON_REFUSED)) show_state(t, e->state);
    return true;
}

static int columns_of(int fd)
{
    struct winsize window;
    if (ioctl(fd, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_col > MOST_COLUMNS) return MOST_COLUMNS;
    return window.ws_col < LEAST_COLUMNS ? LEAST_COLUMNS : window.ws_col;
}

lesson_terminal lesson_terminal_here(bool all)
{
    const char *term = getenv("TERM"), *plain = getenv("NO_COLOR");
    bool out = isatty(STDOUT_FILENO) != 0;
    return (lesson_terminal){
        .file = stdout,
        .stops = !all && out && isatty(STDIN_FILENO),
        .colour = out && term && strcmp(term, "dumb") != 0 && !(plain && *plain),
        .steps = true,
        .columns = columns_of(STDOUT_FILENO),
    };
}

enum { PROGRAM_FAILED = 1, PROGRAM_USAGE = 2, PROGRAM_NO_MEMORY = 3 };

int lesson_program(const lesson *l, int argc, char *argv[])
{
    if (argc > 1) {
        fprintf(stderr, "%s: takes no arguments (\"%s\")\n", l->name, argv[1]);
        return PROGRAM_USAGE;
    }
    lesson_terminal terminal = lesson_terminal_here(false);
    lesson_outcome outcome = lesson_run(l, lesson_terminal_view, &terminal);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "%s: standard output cannot be written\n", l->name);
        return PROGRAM_FAILED;
    }
    if (outcome == LESSON_NO_MEMORY) return PROGRAM_NO_MEMORY;
    return outcome == LESSON_FAILED ? PROGRAM_FAILED : 0;
}
