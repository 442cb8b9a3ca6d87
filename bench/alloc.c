/* alloc.c: what the allocator costs and wastes, on the traces of real training steps (taken from dry
 * runs) and on adversarial ones.  Prints one JSON object.
 *   alloc MODELS_DIR [--quick]      --quick: few repeats and small models, for a smoke test
 * It measures an internal part, so unlike other benchmarks it includes internal headers. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alloc/plan.h"
#include "alloc/pool_state.h"
#include "tensor/context.h"
#include "train/run.h"

static void die(const char *what)
{
    fprintf(stderr, "alloc: %s: %s\n", what, ebb_message());
    exit(1);
}

static void need(ebb_status status, const char *what)
{
    if (status != EBB_OK) die(what);
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* CPU time: others may load the machine */
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- traces ------------------------------------------------------------------------------ */

typedef enum what { TAKE, GIVE, UNIT } what;

typedef struct op {
    what what;
    int slot; /* of the block */
    size_t bytes;
    ebb_category category;
    const char *unit;
} op;

typedef struct trace {
    op *ops;
    size_t n, cap;
    int n_slots;
    size_t last_group; /* index of the op that begins the last whole step */
} trace;

static void add(trace *t, op o)
{
    if (t->n == t->cap)
        t->ops = realloc(t->ops, (t->cap = t->cap ? 2 * t->cap : 1024) * sizeof *t->ops);
    if (!t->ops) die("memory");
    t->ops[t->n++] = o;
}

static int take(trace *t, size_t bytes)
{
    add(t, (op){ .what = TAKE, .slot = t->n_slots, .bytes = bytes, .category = EBB_CAT_TEMPORARY });
    return t->n_slots++;
}

static void give(trace *t, int slot) { add(t, (op){ .what = GIVE, .slot = slot }); }

/* The event's text ends with the run. */
static const char *unit_name(const char *text)
{
    static const char *const names[] = { "group", "last_group", "eval" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], text) == 0) return names[i];
    return "other";
}

/* A block's name is the address it had on the dry device. */
typedef struct name {
    uint64_t segment;
    size_t offset;
    int slot;
} name;

static void from_pool(trace *t, const ebb__pool *pool)
{
    ebb__event e;
    name *live = NULL;
    size_t n = 0, cap = 0;
    for (size_t i = 0; ebb__trace_get(pool, i, &e); i++) {
        if (e.action == EBB__ACT_UNIT) {
            if (strcmp(e.owner.op, "group") == 0) t->last_group = t->n;
            add(t, (op){ .what = UNIT, .unit = unit_name(e.owner.op) });
        } else if (e.action == EBB__ACT_ALLOC) {
            if (n == cap) live = realloc(live, (cap = cap ? 2 * cap : 1024) * sizeof *live);
            if (!live) die("memory");
            live[n++] = (name){ e.segment, e.offset, take(t, e.requested) };
        } else if (e.action == EBB__ACT_FREE_REQUESTED) {
            size_t k = n;
            while (k-- > 0 && (live[k].segment != e.segment || live[k].offset != e.offset)) {}
            give(t, live[k].slot);
            live[k] = live[--n];
        }
    }
    free(live);
}

static void record(trace *t, const char *dir, const char *model, const char *const sets[],
                   int n_sets)
{
    char path[1024];
    ebb_config *config = NULL;
    ebb_train_options options = { .struct_bytes = sizeof options, .threads = 1, .steps = 8 };
    ebb__run run = { 0 };
    snprintf(path, sizeof path, "%s/%s", dir, model);
    need(ebb_config_load(&config, path, sets, n_sets), "config");
    need(ebb__run_open_recorded(&run, config, &options, "dry:cpu"), "dry run");
    need(ebb__train_cut_short(&run), "dry run");
    *t = (trace){ 0 };
    from_pool(t, ebb__context_pool(run.ctx));
    ebb__run_close(&run);
    ebb_config_free(config);
}

/* ---- replay ------------------------------------------------------------------------------ */

static ebb__pool *pool_new(ebb__provider provider, const char *conf)
{
    ebb__alloc_options alloc = ebb__alloc_options_default();
    ebb__pool *pool = NULL;
    need(ebb__alloc_options_parse(&alloc, conf, "bench"), "options");
    need(ebb__pool_new(&pool, provider, &(ebb__pool_options){ .checks = 1, .alloc = &alloc }),
         "pool");
    return pool;
}

/* Blocks that a repeated part leaves behind are given back when it comes to them again. */
static void replay(ebb__pool *pool, const trace *t, size_t from, size_t to, ebb__block **slots)
{
    for (size_t i = from; i < to; i++) {
        const op *o = &t->ops[i];
        if (o->what == UNIT) {
            ebb__trace_mark(pool, EBB__ACT_UNIT, &(ebb__owner){ .op = o->unit });
            continue;
        }
        ebb__pool_release(pool, slots[o->slot]);
        slots[o->slot] = NULL;
        ebb__owner owner = { .category = o->category, .op = "bench" };
        if (o->what == TAKE)
            need(ebb__pool_alloc(pool, &slots[o->slot], o->bytes, 0, &owner), "replay");
    }
}

static ebb__block **slots_new(const trace *t)
{
    ebb__block **slots = calloc((size_t)t->n_slots + 1, sizeof *slots);
    if (!slots) die("memory");
    return slots;
}

static void release_all(ebb__pool *pool, const trace *t, ebb__block **slots)
{
    for (int i = 0; i < t->n_slots; i++) ebb__pool_release(pool, slots[i]);
    free(slots);
}

/* ---- the cost of a pair ------------------------------------------------------------------ */

enum { N_HOLES = 2 * 160 };

/* Leaves free blocks of many sizes, small and large, between blocks in use. */
static void make_holes(ebb__pool *pool, ebb__block **holes)
{
    for (int i = 0; i < N_HOLES; i++) {
        size_t bytes = i % 4 < 2 ? 512 * (1 + (size_t)i * 7 % 500)
                                 : ((size_t)2 << 20) + (size_t)i * 7 % 50 * 65536;
        need(ebb__pool_alloc(pool, &holes[i], bytes, 0, NULL), "holes");
    }
    for (int i = 0; i < N_HOLES; i += 2) {
        ebb__pool_release(pool, holes[i]);
        holes[i] = NULL;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

static size_t pairs_in(const trace *t, size_t from, size_t to)
{
    size_t n = 0;
    for (size_t i = from; i < to; i++) n += t->ops[i].what == TAKE;
    return n;
}

static size_t step_end(const trace *t)
{
    size_t i = t->last_group + 1;
    while (i < t->n && t->ops[i].what != UNIT) i++;
    return i;
}

/* Median ns per allocate + free of the last step, its trace kept or not. */
static double pair_ns(const trace *t, bool traced, int rounds, size_t *free_blocks)
{
    ebb__provider dry;
    ebb__block *holes[N_HOLES];
    double ns[64];
    need(ebb__dry_provider_new(&dry), "provider");
    ebb__pool *pool = pool_new(dry, "");
    ebb__block **slots = slots_new(t);
    size_t end = step_end(t), pairs = pairs_in(t, t->last_group, end);
    int repeats = (int)(200000 / (pairs + 1)) + 1;
    make_holes(pool, holes);
    replay(pool, t, 0, end, slots);
    *free_blocks = pool->free[EBB__POOL_SMALL].n_blocks + pool->free[EBB__POOL_LARGE].n_blocks;
    if (traced) need(ebb__trace_start(pool, 1 << 16), "trace");
    for (int r = 0; r < rounds; r++) {
        double start = now_ns();
        for (int k = 0; k < repeats; k++) replay(pool, t, t->last_group, end, slots);
        ns[r] = (now_ns() - start) / ((double)pairs * repeats);
    }
    ebb__trace_stop(pool);
    release_all(pool, t, slots);
    for (int i = 1; i < N_HOLES; i += 2) ebb__pool_release(pool, holes[i]);
    ebb__pool_free(pool);
    ebb__dry_provider_free(&dry);
    return median(ns, rounds);
}

/* ---- against malloc ---------------------------------------------------------------------- */

typedef struct heap {
    const char *name;
    void *(*take)(void *self, size_t bytes, void **handle);
    void (*give)(void *self, void *handle);
    void *self;
} heap;

static void *pool_take(void *self, size_t bytes, void **handle)
{
    ebb__block *block = NULL;
    need(ebb__pool_alloc(self, &block, bytes, 0, NULL), "pool");
    *handle = block;
    return ebb__block_data(block);
}

static void pool_give(void *self, void *handle) { ebb__pool_release(self, handle); }

typedef struct c_heap {
    void *(*take)(size_t bytes);
    void (*give)(void *p);
} c_heap;

static void *c_take(void *self, size_t bytes, void **handle)
{
    return *handle = ((c_heap *)self)->take(bytes);
}

static void c_give(void *self, void *handle) { ((c_heap *)self)->give(handle); }

static void touch(unsigned char *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 4096) ((volatile unsigned char *)p)[i] = 1;
}

/* Median ns per allocate, first touch of every page, free; over the last step. */
static double touched_ns(const heap *h, const trace *t, int rounds)
{
    void **handles = calloc((size_t)t->n_slots + 1, sizeof *handles);
    size_t end = step_end(t), pairs = pairs_in(t, t->last_group, end);
    double ns[64];
    if (!handles) die("memory");
    for (int r = -1; r < rounds; r++) {
        double start = now_ns();
        for (size_t i = t->last_group; i < end; i++) {
            const op *o = &t->ops[i];
            if (o->what == UNIT) continue;
            if (handles[o->slot]) h->give(h->self, handles[o->slot]);
            handles[o->slot] = NULL;
            if (o->what == TAKE && o->bytes)
                touch(h->take(h->self, o->bytes, &handles[o->slot]), o->bytes);
        }
        if (r >= 0) ns[r] = (now_ns() - start) / (double)pairs; /* the first round warms caches */
    }
    for (int i = 0; i < t->n_slots; i++)
        if (handles[i]) h->give(h->self, handles[i]);
    free(handles);
    return median(ns, rounds);
}

/* Loaded by itself, since linking it would replace malloc. */
static bool find_mimalloc(c_heap *out)
{
    void *library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("libmimalloc.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    *(void **)&out->take = dlsym(library, "mi_malloc");
    *(void **)&out->give = dlsym(library, "mi_free");
    return out->take && out->give;
}

static void print_touched(const trace *t, int rounds)
{
    ebb__pool *pool = pool_new(ebb__host_provider(), "");
    c_heap libc = { malloc, free }, mi;
    double ours = touched_ns(&(heap){ "pool", pool_take, pool_give, pool }, t, rounds);
    double theirs = touched_ns(&(heap){ "malloc", c_take, c_give, &libc }, t, rounds);
    ebb__pool_free(pool);
    printf("\"first_touch\": {\"pool_ns\": %.1f, \"malloc_ns\": %.1f, \"malloc_over_pool\": %.3f",
           ours, theirs, theirs / ours);
    if (find_mimalloc(&mi)) {
        double mimalloc = touched_ns(&(heap){ "mimalloc", c_take, c_give, &mi }, t, rounds);
        printf(", \"mimalloc_ns\": %.1f, \"mimalloc_over_pool\": %.3f", mimalloc, mimalloc / ours);
    }
    printf("}");
}

/* ---- fragmentation ----------------------------------------------------------------------- */

typedef struct waste {
    size_t active, reserved;
} waste;

static waste measure(const trace *t, const char *conf, bool traced, ebb__plan **plan)
{
    ebb__provider dry;
    ebb_memory_stats stats;
    need(ebb__dry_provider_new(&dry), "provider");
    ebb__pool *pool = pool_new(dry, conf);
    ebb__block **slots = slots_new(t);
    if (!traced && plan) need(ebb__pool_follow_plan(pool, *plan), "plan");
    if (traced) need(ebb__trace_start(pool, 3 * t->n + 1024), "trace");
    replay(pool, t, 0, t->n, slots);
    ebb__pool_stats(pool, &stats);
    if (traced) need(ebb__plan_from_trace(plan, pool), "plan");
    release_all(pool, t, slots);
    ebb__pool_free(pool);
    ebb__dry_provider_free(&dry);
    return (waste){ stats.peak_allocated_bytes, stats.peak_reserved_bytes };
}

static double share(waste w) { return 1 - (double)w.active / (double)w.reserved; }

static void print_waste(const char *label, const trace *t)
{
    static bool some;
    ebb__plan *plan = NULL;
    waste pool = measure(t, "", true, &plan);
    size_t live = ebb__plan_live_bytes(plan);
    double start = now_ns();
    waste expandable = measure(t, "expandable_segments:True", false, NULL);
    double expandable_ms = (now_ns() - start) * 1e-6;
    waste planned = measure(t, "", false, &plan);
    printf("%s\n    {\"trace\": \"%s\", \"requests\": %d, \"live_bytes\": %zu, "
           "\"peak_active_bytes\": %zu, "
           "\"pool\": %.4f, \"expandable\": %.4f, \"plan\": %.4f, \"plan_over_live\": %.4f, "
           "\"expandable_ms\": %.1f}",
           some ? "," : "", label, t->n_slots, live, pool.active, share(pool), share(expandable),
           share(planned), (double)planned.reserved / (double)live - 1, expandable_ms);
    some = true;
}

/* ---- adversarial traces ------------------------------------------------------------------ */

static uint64_t seed = 88172645463325252u;

static size_t draw(size_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (size_t)(seed % below);
}

/* Every other block stays, so that each freed hole is too small for the next, larger ones. */
static void growing(trace *t)
{
    int kept[400];
    int n = 0;
    for (size_t round = 1; round <= 10; round++) {
        int slots[40];
        for (int i = 0; i < 40; i++) slots[i] = take(t, round * 600000 + (size_t)i * 1000);
        for (int i = 0; i < 40; i++)
            if (i % 4)
                give(t, slots[i]);
            else
                kept[n++] = slots[i];
    }
    for (int i = 0; i < n; i++) give(t, kept[i]);
}

/* Steps over batches of varying length: activations are kept forward and freed backward. */
static void lengths(trace *t)
{
    for (int step = 0; step < 60; step++) {
        size_t length = 64 + draw(960);
        int slots[48];
        for (int i = 0; i < 48; i++) {
            slots[i] = take(t, length * (i % 3 == 0 ? 12288 : 3072));
            int scratch = take(t, length * 4096);
            give(t, scratch);
        }
        for (int i = 48; i-- > 0;) give(t, slots[i]);
    }
}

/* Blocks of all sizes come and go at random. */
static void random_lives(trace *t)
{
    int live[256], n = 0;
    for (int i = 0; i < 20000; i++) {
        if (n == 256 || (n > 0 && draw(100) < 48)) {
            size_t k = draw((size_t)n);
            give(t, live[k]);
            live[k] = live[--n];
        } else {
            live[n++] = take(t, (size_t)1 << (9 + draw(15)) | draw(512));
        }
    }
    while (n > 0) give(t, live[--n]);
}

/* ---- all of it --------------------------------------------------------------------------- */

#define GPT                                                                                        \
    "model.layers=12", "model.heads=12", "model.width=768", "model.context=256",                   \
        "model.vocab=512", "data.items=160", "data.eval_items=16", "train.eval_every=4"
#define MLP                                                                                        \
    "model.input=784", "model.hidden=[4096,4096,2048,2048]", "data.items=40000",                   \
        "data.eval_items=4096", "train.eval_every=4"
#define BATCH_16    "train.batch=16", "train.accumulate=1"
#define BATCH_4_4   "train.batch=4", "train.accumulate=4"
#define ROWS_4096   "train.batch=4096", "train.accumulate=1"
#define ROWS_1024_4 "train.batch=1024", "train.accumulate=4"

static const struct {
    const char *label, *model, *sets[12];
} real_runs[] = {
    { "gpt none", "gpt-synthetic.json", { GPT, BATCH_16 } },
    { "gpt every:1", "gpt-synthetic.json", { GPT, BATCH_16, "memory.checkpoint=every:1" } },
    { "gpt sqrt", "gpt-synthetic.json", { GPT, BATCH_16, "memory.checkpoint=sqrt" } },
    { "gpt accumulate:4", "gpt-synthetic.json", { GPT, BATCH_4_4 } },
    { "mlp none", "mlp-synthetic.json", { MLP, ROWS_4096 } },
    { "mlp every:1", "mlp-synthetic.json", { MLP, ROWS_4096, "memory.checkpoint=every:1" } },
    { "mlp sqrt", "mlp-synthetic.json", { MLP, ROWS_4096, "memory.checkpoint=sqrt" } },
    { "mlp accumulate:4", "mlp-synthetic.json", { MLP, ROWS_1024_4 } },
};
enum { N_REAL = sizeof real_runs / sizeof *real_runs };

static void record_run(trace *t, const char *dir, int i, bool quick)
{
    const char *const *sets = real_runs[i].sets;
    int n = 0;
    while (n < 12 && sets[n]) n++;
    record(t, dir, real_runs[i].model, sets, quick ? 0 : n);
}

/* Most of its requests are of 0.1 to 4 MiB. */
static const char *const tensor_sized[] = { "model.layers=4", "model.heads=4", "model.width=256",
                                            "model.context=128", "train.batch=8" };

static const struct {
    const char *label;
    void (*make)(trace *t);
} adversaries[] = {
    { "growing", growing },
    { "lengths", lengths },
    { "random", random_lives },
};

int main(int argc, char **argv)
{
    bool quick = argc > 2 && strcmp(argv[2], "--quick") == 0;
    int rounds = quick ? 3 : 15;
    trace t;
    if (argc < 2) {
        fprintf(stderr, "usage: alloc MODELS_DIR [--quick]\n");
        return 2;
    }
    record_run(&t, argv[1], 0, quick);
    size_t free_blocks;
    double off = pair_ns(&t, false, rounds, &free_blocks),
           on = pair_ns(&t, true, rounds, &free_blocks);
    printf("{\"schema\": 1, \"bench\": \"alloc\",\n  \"pair\": {\"ns\": %.1f, \"free_blocks\": "
           "%zu, \"traced_ns\": %.1f, "
           "\"ns_per_event\": %.1f},\n  ",
           off, free_blocks, on, (on - off) / 3); /* a pair makes 3 events */
    free(t.ops);
    record(&t, argv[1], "gpt-synthetic.json", tensor_sized,
           quick ? 0 : sizeof tensor_sized / sizeof *tensor_sized);
    print_touched(&t, rounds);
    free(t.ops);
    printf(",\n  \"fragmentation\": [");
    for (int i = 0; i < N_REAL; i++) {
        record_run(&t, argv[1], i, quick);
        print_waste(real_runs[i].label, &t);
        free(t.ops);
    }
    for (size_t i = 0; i < sizeof adversaries / sizeof *adversaries; i++) {
        t = (trace){ 0 };
        adversaries[i].make(&t);
        print_waste(adversaries[i].label, &t);
        free(t.ops);
    }
    printf("\n  ]}\n");
    return 0;
}
