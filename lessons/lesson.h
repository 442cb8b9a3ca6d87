/* lesson.h: the words that lessons are written with.
 *
 * A lesson is one C file on ebb's public API.  It runs by itself or in `ebb lesson`:
 *
 *     cc lessons/names.c lessons/lesson.c lessons/terminal.c -lebb -o names
 *
 * A STEP shows its own source line, runs it, and shows what is alive then: the names, the tape (what
 * recorded calls keep for backward) and the bytes.  A CHECK states what must be true, with the figures
 * that were measured: a lesson whose claim no longer holds fails. */
#ifndef EBB_LESSON_H
#define EBB_LESSON_H

#include <ebb/ebb.h>

typedef struct lesson {
    const char *name, *claim, *file;
    ebb_status (*body)(ebb_context *ctx);
} lesson;

/* LESSON(names, "What is claimed") { ... return EBB_OK; }: the body has a context `ctx` (cpu, one thread),
 * and must leave nothing alive in it.  Compiled by itself the file is a program. */
#define LESSON(id, claim)                                                       \
    static ebb_status id##_body(ebb_context *ctx);                              \
    extern const lesson lesson_##id;                                            \
    const lesson lesson_##id = { #id, claim, __FILE__, id##_body };             \
    LESSON_PROGRAM(id)                                                          \
    static ebb_status id##_body(ebb_context *ctx __attribute__((unused)))
#ifdef EBB_COURSE /* all lessons in one program */
#define LESSON_PROGRAM(id)
#else
#define LESSON_PROGRAM(id) \
    int main(int argc, char *argv[]) { return lesson_program(&lesson_##id, argc, argv); }
#endif

/* Declares a name as EBB_LOCAL() does, one that is shown while it means a tensor. */
#define NAME(var)                                                               \
    __attribute__((cleanup(lesson_forget))) ebb_tensor *var = NULL;             \
    lesson_know(&var, #var, __func__)

/* Runs a call that may fail; an error ends the function. */
#define STEP(...)                                                               \
    do {                                                                        \
        lesson_line line_ = { __func__, #__VA_ARGS__, __LINE__ };               \
        if (!lesson_before(&line_)) return EBB_ESTATE;                          \
        ebb_site site_ = ebb_call_site(__FILE__, __LINE__);                     \
        ebb_status status_ = (__VA_ARGS__);                                     \
        ebb_call_site(site_.file, site_.line);                                  \
        if (status_ != EBB_OK) return status_;                                  \
        if (!lesson_after(&line_)) return EBB_ESTATE;                           \
    } while (0)
/* Runs a statement that cannot fail. */
#define DO(...)                                                                 \
    do {                                                                        \
        lesson_line line_ = { __func__, #__VA_ARGS__, __LINE__ };               \
        if (!lesson_before(&line_)) return EBB_ESTATE;                          \
        ebb_site site_ = ebb_call_site(__FILE__, __LINE__);                     \
        __VA_ARGS__;                                                            \
        ebb_call_site(site_.file, site_.line);                                  \
        if (!lesson_after(&line_)) return EBB_ESTATE;                           \
    } while (0)
/* Runs a call that must fail so, and shows what it says. */
#define REFUSED(expected, ...)                                                  \
    do {                                                                        \
        lesson_line line_ = { __func__, #__VA_ARGS__, __LINE__ };               \
        if (!lesson_before(&line_)) return EBB_ESTATE;                          \
        ebb_site site_ = ebb_call_site(__FILE__, __LINE__);                     \
        ebb_status status_ = (__VA_ARGS__);                                     \
        ebb_call_site(site_.file, site_.line);                                  \
        if (!lesson_refused(&line_, (expected), status_)) return EBB_ESTATE;    \
    } while (0)

/* Prose, as printf() writes it. */
#define SAY(...) lesson_say(__LINE__, __VA_ARGS__)
/* The prose that follows is true; where the condition is not, the lesson fails. */
#define CHECK(condition, ...)                                                   \
    do {                                                                        \
        if (!lesson_check(__LINE__, (condition), #condition, __VA_ARGS__)) return EBB_ESTATE; \
    } while (0)
/* Who holds bytes (below), as ebb_why() tells it. */
#define WHY(bytes) lesson_why(__LINE__, ebb_storage_find(ctx, (bytes)))
/* What steps left behind, as ebb_leak_print() tells it. */
#define LEAK(report) lesson_leak(__LINE__, (report))
/* A table: TITLES("regime", ">bytes") (">": right-aligned), a ROW(...) of texts each, END_TABLE(). */
#define TITLES(...) lesson_row((const char *const[]){ __VA_ARGS__, NULL })
#define ROW(...) lesson_row((const char *const[]){ __VA_ARGS__, NULL })
#define END_TABLE() lesson_table(__LINE__)

/* ---- short words for ebb's ---------------------------------------------------------------- */

enum { KiB = 1024, MiB = 1024 * 1024 };

static inline size_t allocated(const ebb_context *ctx) { return ebb_memory_allocated_bytes(ctx); }
static inline size_t reserved(const ebb_context *ctx) { return ebb_memory_reserved_bytes(ctx); }
/* A weak reference to the bytes behind a tensor: it can be asked for when all names are gone. */
static inline uint64_t bytes_of(const ebb_tensor *t) { return ebb_storage_id(ebb_tensor_storage(t)); }
static inline bool is_alive(const ebb_context *ctx, uint64_t bytes) { return ebb_storage_find(ctx, bytes) != NULL; }
/* What these n variables, which outlive the lesson's functions, still hold when it ends is dropped then. */
void drop_at_end(ebb_tensor **variables, int n);
/* Steps show what is alive in another context from here on; NULL: in the lesson's own. */
void look_at(ebb_context *other);
/* ebb_leak_watch_new(), _step() and _report_get(), with the watch in the lesson's care. */
ebb_status watch_begin(ebb_context *ctx);
void step_ends(void);
const ebb_leak_report *watch_report(void);
/* The line that has most is this one, and who holds its newest is told so. */
bool watch_names(const char *file, int line, const char *holder);
/* A matrix that asks for its gradient, as torch.nn.Linear makes one. */
ebb_status parameter(ebb_tensor **out, ebb_context *ctx, int64_t rows, int64_t columns);
/* "4.00 MiB", "12.5 %"; texts are valid until the sixteenth next one. */
const char *size(size_t bytes);
const char *percent(double part, double of);
const char *number(double value);

/* ---- what the words call ------------------------------------------------------------------ */

typedef struct lesson_line {
    const char *function, *text;
    int line;
} lesson_line;

void lesson_know(ebb_tensor **variable, const char *name, const char *function);
void lesson_forget(ebb_tensor **variable); /* the variable's scope ends: drops what it holds */
/* False: a view (below) wants the lesson to end. */
bool lesson_before(const lesson_line *line);
bool lesson_after(const lesson_line *line);
bool lesson_refused(const lesson_line *line, ebb_status expected, ebb_status got);
bool lesson_check(int line, bool holds, const char *condition, const char *fmt, ...) EBB_PRINTF(4, 5);
void lesson_say(int line, const char *fmt, ...) EBB_PRINTF(2, 3);
void lesson_why(int line, const ebb_storage *storage);
void lesson_leak(int line, const ebb_leak_report *report);
void lesson_row(const char *const cells[]); /* until NULL; the first row is the titles */
void lesson_table(int line);

/* ---- who looks at a lesson ---------------------------------------------------------------- */

enum { LESSON_NAMES = 24, LESSON_NODES = 32, LESSON_SLOTS = 6, LESSON_TEXT = 2048 };

/* What a name means.  Names of one tensor stand together. */
typedef struct lesson_name {
    const char *name, *function;
    char shape[64];
    uint64_t storage;  /* its id */
    size_t bytes, grad_bytes; /* of the storage; of the gradient */
    int references;    /* to the tensor, the engine's included */
    bool same;         /* as the name before */
} lesson_name;
typedef struct lesson_node {
    uint64_t seq;
    const char *op;
    int n_slots;
    ebb_slot_info slots[LESSON_SLOTS];
} lesson_node;
typedef struct lesson_state {
    size_t allocated_bytes, reserved_bytes, saved_bytes;
    int n_names, n_nodes; /* of those that are listed here */
    size_t live_nodes;
    lesson_name names[LESSON_NAMES];
    lesson_node nodes[LESSON_NODES]; /* the newest */
} lesson_state;

typedef enum lesson_kind {
    LESSON_BEGINS, /* text: the claim */
    LESSON_BEFORE, LESSON_AFTER, /* a step: text is its source */
    LESSON_REFUSED, /* after a step that failed as it should: detail says how */
    LESSON_SAYS, LESSON_HOLDS, /* prose; and prose that was checked */
    LESSON_WHY, LESSON_LEAK, LESSON_TABLE, /* lines of text */
    LESSON_ENDS, LESSON_FAILS  /* text: what is not true, or went wrong */
} lesson_kind;
typedef struct lesson_event {
    lesson_kind kind;
    const lesson *lesson;
    const char *function, *text, *detail;
    int line;
    const lesson_state *state; /* of BEGINS, AFTER, REFUSED and ENDS */
} lesson_event;
/* False: the lesson shall end here. */
typedef bool lesson_view(void *user, const lesson_event *event);

typedef enum lesson_outcome { LESSON_TRUE, LESSON_LEFT, LESSON_FAILED, LESSON_NO_MEMORY } lesson_outcome;
lesson_outcome lesson_run(const lesson *l, lesson_view *view, void *user);

/* ---- on a terminal ------------------------------------------------------------------------ */

typedef struct lesson_terminal {
    void *file;     /* FILE * */
    bool stops;     /* waits for Enter before each step */
    bool colour;
    bool steps;     /* false: only what is said and checked */
    int columns;    /* wide */
    int line;       /* of the step that was shown last */
} lesson_terminal;
lesson_view lesson_terminal_view; /* user: a lesson_terminal */
/* The comment that a lesson's source begins with. */
void lesson_terminal_intro(const lesson_terminal *t, const char *source);
/* A paragraph. */
void lesson_terminal_text(const lesson_terminal *t, const char *text);
/* "  name   text", of a list. */
void lesson_terminal_item(const lesson_terminal *t, const char *name, const char *text);
/* stdout; stops where both ends are a terminal and `all` is false.  As wide as the terminal, at least 40
 * columns and at most 80, which is also the width elsewhere. */
lesson_terminal lesson_terminal_here(bool all);
/* main() of a lesson by itself, with the statuses of `ebb lesson`. */
int lesson_program(const lesson *l, int argc, char *argv[]);

#endif
