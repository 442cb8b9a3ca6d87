/* lesson.c: runs a lesson, keeps its names, and tells a view what happens. */
#include "lesson.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct known { ebb_tensor **variable; const char *name, *function; } known;

/* The lesson that runs: one at a time. */
static struct {
    const lesson *lesson;
    ebb_context *ctx, *shown; /* the lesson's own, and whose bytes are shown */
    lesson_view *view;
    void *user;
    known names[LESSON_NAMES];
    int n_names;
    lesson_state state;
    ebb_table *table; /* under construction */
    ebb_leak_watch *watch;
    ebb_leak_report report;
    ebb_tensor **dropped; /* at the end */
    int n_dropped;
    bool left, failed, no_memory;
} now;

/* ---- names ------------------------------------------------------------------------------- */

/* "" for the lesson's own body. */
static const char *shown(const char *function)
{
    size_t n = strlen(now.lesson->name);
    bool body = function && strncmp(function, now.lesson->name, n) == 0 && strcmp(function + n, "_body") == 0;
    return body ? "" : function;
}

void lesson_know(ebb_tensor **variable, const char *name, const char *function)
{
    function = shown(function);
    if (now.n_names < LESSON_NAMES) now.names[now.n_names++] = (known){ variable, name, function };
}

void lesson_forget(ebb_tensor **variable)
{
    int kept = 0;
    for (int i = 0; i < now.n_names; i++)
        if (now.names[i].variable != variable) now.names[kept++] = now.names[i];
    now.n_names = kept;
    ebb_drop(variable);
}

/* ---- what is alive ------------------------------------------------------------------------ */

static void add_name(lesson_state *s, const known *k, bool same)
{
    ebb_tensor *t = *k->variable;
    ebb_tensor *grad = ebb_grad(t);
    lesson_name *name = &s->names[s->n_names++];
    *name = (lesson_name){
        .name = k->name,
        .function = k->function,
        .storage = ebb_storage_id(ebb_tensor_storage(t)),
        .bytes = ebb_storage_bytes(ebb_tensor_storage(t)),
        .grad_bytes = grad ? ebb_storage_bytes(ebb_tensor_storage(grad)) : 0,
        .references = ebb_tensor_refcount(t),
        .same = same,
    };
    ebb_tensor_describe(t, name->shape, sizeof(name->shape));
    if (!same && strcmp(ebb_tensor_name(t), k->name) != 0) {
        ebb_status named = ebb_tensor_set_name(t, k->name); /* for ebb_why(), which tells the shape otherwise */
        (void)named;
    }
}

/* Each name with the later ones that mean the same tensor behind it. */
static void look_at_names(lesson_state *s)
{
    bool done[LESSON_NAMES] = { false };
    s->n_names = 0;
    for (int i = 0; i < now.n_names; i++)
        for (int k = i; k < now.n_names; k++) {
            if (done[k] || !*now.names[k].variable || *now.names[k].variable != *now.names[i].variable) continue;
            add_name(s, &now.names[k], k != i);
            done[k] = true;
        }
}

static void add_node(void *user, const ebb_node *node)
{
    lesson_state *s = user;
    if (s->n_nodes == LESSON_NODES) {
        memmove(s->nodes, s->nodes + 1, (LESSON_NODES - 1) * sizeof(s->nodes[0]));
        s->n_nodes--;
    }
    lesson_node *n = &s->nodes[s->n_nodes++];
    *n = (lesson_node){ .seq = ebb_node_seq(node), .op = ebb_node_name(node) };
    n->n_slots = ebb_node_slots(node, n->slots, LESSON_SLOTS);
    if (n->n_slots > LESSON_SLOTS) n->n_slots = LESSON_SLOTS;
}

static const lesson_state *look(void)
{
    lesson_state *s = &now.state;
    s->allocated_bytes = ebb_memory_allocated_bytes(now.shown);
    s->reserved_bytes = ebb_memory_reserved_bytes(now.shown);
    s->saved_bytes = ebb_saved_bytes(now.shown);
    s->live_nodes = ebb_live_nodes(now.shown);
    s->n_nodes = 0;
    look_at_names(s);
    ebb_each_node(now.shown, add_node, s);
    return s;
}

/* ---- telling ------------------------------------------------------------------------------ */

static bool tell(lesson_event event)
{
    event.lesson = now.lesson;
    event.function = shown(event.function);
    if (!now.view(now.user, &event)) now.left = true;
    return !now.left;
}

static bool fail(int line, const char *text)
{
    if (!now.failed) tell((lesson_event){ .kind = LESSON_FAILS, .line = line, .text = text });
    now.failed = true;
    return false;
}

bool lesson_before(const lesson_line *l)
{
    return tell((lesson_event){ .kind = LESSON_BEFORE, .function = l->function, .text = l->text, .line = l->line });
}

bool lesson_after(const lesson_line *l)
{
    return tell((lesson_event){
        .kind = LESSON_AFTER, .function = l->function, .text = l->text, .line = l->line, .state = look() });
}

bool lesson_refused(const lesson_line *l, ebb_status expected, ebb_status got)
{
    char text[LESSON_TEXT];
    if (got != expected) {
        now.no_memory = now.no_memory || got == EBB_ENOMEM;
        snprintf(text, sizeof(text), "%s: %s, where it should be %s", l->text, ebb_status_name(got),
                 ebb_status_name(expected));
        return fail(l->line, text);
    }
    snprintf(text, sizeof(text), "%s: %s", ebb_status_name(got), ebb_message());
    return tell((lesson_event){ .kind = LESSON_REFUSED, .function = l->function, .text = l->text, .detail = text,
                                .line = l->line, .state = look() });
}

void lesson_say(int line, const char *fmt, ...)
{
    char text[LESSON_TEXT];
    va_list list;
    va_start(list, fmt);
    vsnprintf(text, sizeof(text), fmt, list);
    va_end(list);
    tell((lesson_event){ .kind = LESSON_SAYS, .line = line, .text = text });
}

bool lesson_check(int line, bool holds, const char *condition, const char *fmt, ...)
{
    char text[LESSON_TEXT], why[LESSON_TEXT + 256];
    va_list list;
    va_start(list, fmt);
    vsnprintf(text, sizeof(text), fmt, list);
    va_end(list);
    if (holds) return tell((lesson_event){ .kind = LESSON_HOLDS, .line = line, .text = text, .detail = condition });
    snprintf(why, sizeof(why), "no longer true: %s (%.200s)", text, condition);
    return fail(line, why);
}

void lesson_why(int line, const ebb_storage *storage)
{
    char text[LESSON_TEXT] = "nobody: the bytes are free\n";
    if (storage) ebb_why(storage, text, sizeof(text));
    tell((lesson_event){ .kind = LESSON_WHY, .line = line, .text = text });
}

/* Tells the lines that `print` prints. */
static void tell_printed(lesson_kind kind, int line, void (*print)(const void *what, FILE *file), const void *what)
{
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);
    if (file) print(what, file);
    if (file && fclose(file) == 0) tell((lesson_event){ .kind = kind, .line = line, .text = text });
    free(text);
}

static void print_leak(const void *report, FILE *file) { ebb_leak_print(report, file); }
static void print_table(const void *table, FILE *file) { ebb_table_print(table, file); }

void lesson_leak(int line, const ebb_leak_report *report) { tell_printed(LESSON_LEAK, line, print_leak, report); }

void lesson_row(const char *const cells[])
{
    int n = 0;
    while (cells[n]) n++;
    ebb_status st = now.table ? ebb_table_row(now.table, cells) : ebb_table_new(&now.table, n, cells);
    now.no_memory = now.no_memory || st == EBB_ENOMEM;
    if (st != EBB_OK) fail(0, ebb_message());
}

void lesson_table(int line)
{
    if (now.table) tell_printed(LESSON_TABLE, line, print_table, now.table);
    ebb_table_free(now.table);
    now.table = NULL;
}

/* ---- watching ----------------------------------------------------------------------------- */

ebb_status watch_begin(ebb_context *ctx)
{
    ebb_leak_watch_free(now.watch);
    now.watch = NULL;
    return ebb_leak_watch_new(&now.watch, ctx);
}

void step_ends(void) { ebb_leak_watch_step(now.watch); }

const ebb_leak_report *watch_report(void)
{
    ebb_leak_report_get(&now.report, now.watch);
    return &now.report;
}

bool watch_names(const char *file, int line, const char *holder)
{
    const ebb_leak_report *r = watch_report();
    const ebb_leak_holder *h = &r->holders[0];
    return r->grows && r->n_holders > 0 && strcmp(h->file, file) == 0 && h->line == line &&
           strstr(h->why, holder) != NULL;
}

void drop_at_end(ebb_tensor **variables, int n)
{
    now.dropped = variables;
    now.n_dropped = n;
}

void look_at(ebb_context *other) { now.shown = other ? other : now.ctx; }

/* ---- texts -------------------------------------------------------------------------------- */

enum { TEXTS = 16, TEXT_BYTES = 24 };

static char *next_text(void)
{
    static char texts[TEXTS][TEXT_BYTES];
    static int next;
    return texts[next++ % TEXTS];
}

const char *size(size_t bytes) { return ebb_size_format(bytes, next_text(), TEXT_BYTES); }

const char *percent(double part, double of)
{
    char *text = next_text();
    snprintf(text, TEXT_BYTES, "%.1f %%", of > 0 ? 100 * part / of : 0);
    return text;
}

const char *number(double value)
{
    char *text = next_text();
    snprintf(text, TEXT_BYTES, "%.6g", value);
    return text;
}

ebb_status parameter(ebb_tensor **out, ebb_context *ctx, int64_t rows, int64_t columns)
{
    EBB_LOCAL(w);
    ebb_status st = ebb_normal(&w, ctx, EBB_F32, EBB_SHAPE(rows, columns), 0, 0.05);
    if (st == EBB_OK) st = ebb_set_requires_grad(w, true);
    if (st == EBB_OK) ebb_move(out, &w);
    return st;
}

/* ---- running ------------------------------------------------------------------------------ */

static bool nothing_left(void)
{
    const lesson_state *s = look();
    char text[160];
    if (s->allocated_bytes == 0 && s->live_nodes == 0) return true;
    snprintf(text, sizeof(text), "the lesson leaves %s and %zu nodes alive", size(s->allocated_bytes), s->live_nodes);
    return fail(0, text);
}

/* Of what a lesson that did not come to its end still holds, the functions' own variables are gone. */
static void leave_midway(void)
{
    for (int i = 0; i < now.n_dropped; i++) ebb_drop(&now.dropped[i]);
    ebb_collect(now.ctx); /* a cycle that it did not come to break */
}

lesson_outcome lesson_run(const lesson *l, lesson_view *view, void *user)
{
    ebb_context_options options = { .struct_bytes = sizeof(options), .threads = 1, .seed = 1, .checks = -1 };
    memset(&now, 0, sizeof(now));
    now.lesson = l;
    now.view = view;
    now.user = user;
    if (ebb_context_new(&now.ctx, &options) != EBB_OK) {
        fail(0, ebb_message());
        return LESSON_NO_MEMORY;
    }
    look_at(NULL);
    tell((lesson_event){ .kind = LESSON_BEGINS, .text = l->claim, .state = look() });
    ebb_status st = l->body(now.ctx);
    if (st != EBB_OK && !now.left) fail(0, ebb_message());
    look_at(NULL);
    if (st != EBB_OK) leave_midway();
    if (!now.failed && nothing_left() && !now.left) tell((lesson_event){ .kind = LESSON_ENDS, .state = look() });
    ebb_table_free(now.table);
    ebb_leak_watch_free(now.watch);
    ebb_context_free(now.ctx);
    if (st == EBB_ENOMEM || now.no_memory) return LESSON_NO_MEMORY;
    return now.failed ? LESSON_FAILED : now.left ? LESSON_LEFT : LESSON_TRUE;
}
