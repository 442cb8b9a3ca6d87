/* block.cpp: a block's threads as fibers of one host thread; barriers, warp collectives, errors.
 * Never instrumented, and nothing is allocated while an emulated thread runs: ThreadSanitizer would see a race in
 * the allocator. */
#include "block.h"

#include <cstdio>
#include <vector>

#include "fiber.h"

enum state : unsigned char { NOT_STARTED, READY, AT_BARRIER, IN_WARP, EXITED };

/* Lanes of one warp that meet.  Words and order are doubled, by parity of the meeting's number: a lane that is
 * late in leaving one meeting neither reads words of the next nor is ordered after those who came to it. */
struct meeting {
    uint64_t words[2][32];
    char order[2];
    unsigned number, arrived, mask, exited; /* the last three: bits of lanes */
    emu_collective kind;
    emu_place place;
};

struct barrier {
    int waiting;
    unsigned number;
    char order[2]; /* by parity of the number, as above */
    int votes[EMU_N_VOTES], result[EMU_N_VOTES];
};

/* What runs blocks, one after the other. */
struct emu_worker {
    emu_grid *grid;
    int n, alive; /* threads; not exited */
    dim3 shape;   /* that `threads` was made for */
    std::vector<emu_thread> threads;
    std::vector<state> states;
    std::vector<emu_fiber *> fibers; /* of each thread; nullptr: not started or exited */
    std::vector<emu_place> places;   /* where each waits */
    std::vector<int> order, turns;   /* the thread of each turn; the turn of each thread */
    std::vector<uint64_t> ready;     /* bits of turns: threads that can start or go on */
    int turn;                        /* of the thread that runs */
    std::vector<meeting> warps;
    barrier bar;
    std::vector<emu_fiber *> idle, used; /* used: for ThreadSanitizer two threads of a block never share one */
    size_t n_fibers;
    emu_fiber host, *running;
    std::vector<char> dynamic_shared;
    char begun, ended; /* order the blocks of this worker, which use the same shared memory */
};

EMU_THREAD_LOCAL emu_thread emu_me;
EMU_THREAD_LOCAL emu_block emu_here;
static EMU_THREAD_LOCAL emu_worker *self;

unsigned emu_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* ---- errors --------------------------------------------------------------------------------- */

static void print_running()
{
    if (emu_here.dim.x)
        fprintf(stderr, "EMU: kernel %s, block %u,%u,%u, thread %u,%u,%u\n", self->grid->kernel, emu_here.at.x,
                emu_here.at.y, emu_here.at.z, emu_me.at.x, emu_me.at.y, emu_me.at.z);
    fflush(stderr);
}

void emu_fail(const char *what, emu_place place)
{
    enum { EXIT_STATUS = 97 };
    fprintf(stderr, "EMU ERROR: %s at %s:%d\n", what, place.file, place.line);
    print_running();
    _Exit(EXIT_STATUS);
}

#if defined(EMU_ASAN) || defined(EMU_TSAN)
extern "C" void __sanitizer_set_death_callback(void (*callback)(void));
static void name_kernel_in_reports() { __sanitizer_set_death_callback(print_running); }
#else
static void name_kernel_in_reports() {}
#endif

/* ---- switching ------------------------------------------------------------------------------- */

static void set_ready(emu_worker *w, int thread)
{
    int turn = w->turns[thread];
    w->states[thread] = READY;
    w->ready[turn / 64] |= UINT64_C(1) << turn % 64;
}

/* The first turn from `from` on whose thread can run, or -1. */
static int next_turn(const emu_worker *w, int from)
{
    uint64_t skip = ~UINT64_C(0) << from % 64;
    for (size_t i = (size_t)from / 64; i < w->ready.size(); i++, skip = ~UINT64_C(0))
        if (w->ready[i] & skip) return (int)(64 * i) + __builtin_ctzll(w->ready[i] & skip);
    return -1;
}

/* The thread that runs next, or -1.  In rounds: all have their turn, so that none runs ahead by more than a
 * collective.  Else the first that can run, so that one warp waits at a barrier before the next warp goes on: what
 * is written again while others still read it shows. */
static int next_thread(emu_worker *w)
{
    int turn = w->grid->order == EMU_IDENTITY ? next_turn(w, w->turn + 1) : -1;
    if (turn < 0) turn = next_turn(w, 0);
    return turn < 0 ? -1 : w->order[turn];
}

static void take_turn(emu_worker *w, int thread)
{
    w->turn = w->turns[thread];
    w->ready[w->turn / 64] &= ~(UINT64_C(1) << w->turn % 64);
}

static void switch_to(emu_worker *w, emu_fiber *to)
{
    emu_fiber *from = w->running;
    w->running = to;
    emu_fiber_switch(from, to);
}

/* Runs the next thread; returns when the caller runs again.  The host is asked where there is none, and where there
 * is no fiber for it: it may allocate. */
static void switch_to_next(emu_worker *w)
{
    int thread = next_thread(w);
    bool started = thread >= 0 && w->fibers[thread];
    if (thread < 0 || (!started && w->idle.empty())) {
        if (w->running != &w->host) switch_to(w, &w->host);
        return;
    }
    if (!started) {
        w->fibers[thread] = w->idle.back();
        w->fibers[thread]->thread = thread;
        w->idle.pop_back();
    }
    take_turn(w, thread);
    switch_to(w, w->fibers[thread]);
}

/* Until this thread is set READY and has its turn. */
static void wait_as(state waiting, emu_place place)
{
    emu_worker *w = self;
    const int me = (int)emu_me.number;
    w->states[me] = waiting;
    w->places[me] = place;
    switch_to_next(w);
    emu_me = w->threads[me];
}

/* ---- barriers -------------------------------------------------------------------------------- */

static bool same_place(const emu_place &a, const emu_place &b)
{
    return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

static void open_barrier()
{
    emu_worker *w = self;
    barrier *bar = &w->bar;
    const emu_thread me = emu_me;
    emu_place first = {};
    for (int i = 0; i < w->n; i++) {
        if (w->states[i] != AT_BARRIER) continue;
        emu_me = w->threads[i];
        if (w->alive < w->n)
            emu_fail("__syncthreads() after other threads of the block have returned", w->places[i]);
        if (first.file && !same_place(first, w->places[i])) {
            fprintf(stderr, "EMU: others wait at %s:%d\n", first.file, first.line);
            emu_fail("threads of a block wait at different __syncthreads()", w->places[i]);
        }
        first = w->places[i];
        set_ready(w, i);
    }
    emu_me = me;
    memcpy(bar->result, bar->votes, sizeof bar->votes);
    bar->votes[EMU_VOTE_COUNT] = bar->votes[EMU_VOTE_OR] = 0;
    bar->votes[EMU_VOTE_AND] = 1;
    bar->waiting = 0;
    bar->number++;
}

int emu_barrier(int predicate, emu_vote vote, emu_place place)
{
    emu_worker *w = self;
    barrier *bar = &w->bar;
    const int me = (int)emu_me.number;
    bar->votes[EMU_VOTE_COUNT] += predicate != 0;
    bar->votes[EMU_VOTE_AND] &= predicate != 0;
    bar->votes[EMU_VOTE_OR] |= predicate != 0;
    char *order = &bar->order[bar->number % 2];
    emu_release(order);
    if (++bar->waiting == w->alive) {
        w->states[me] = AT_BARRIER;
        w->places[me] = place;
        open_barrier();
        take_turn(w, me);
    } else {
        wait_as(AT_BARRIER, place);
    }
    emu_acquire(order);
    return bar->result[vote];
}

/* ---- warps ----------------------------------------------------------------------------------- */

static void join(meeting *m, unsigned mask, emu_collective kind, emu_place place)
{
    int first = (int)emu_me.warp * 32, n = self->n;
    unsigned there = n - first >= 32 ? ~0u : (1u << (n - first)) - 1;
    if (!(mask >> emu_me.lane & 1)) emu_fail("a lane is not in its own mask", place);
    if (mask & ~there) emu_fail("a mask names lanes beyond the block's threads", place);
    if (m->arrived && (m->kind != kind || m->mask != mask || m->place.line != place.line)) {
        fprintf(stderr, "EMU: others of the warp are at %s:%d\n", m->place.file, m->place.line);
        emu_fail("lanes of a warp meet in different collectives (or masks: one at a time here)", place);
    }
    if (mask & m->exited) emu_fail("a warp's collective waits for a lane that has returned", place);
    m->mask = mask;
    m->kind = kind;
    m->place = place;
}

const uint64_t *emu_exchange(unsigned mask, uint64_t value, emu_collective kind, emu_place place)
{
    emu_worker *w = self;
    meeting *m = &w->warps[emu_me.warp];
    join(m, mask, kind, place);
    unsigned parity = m->number % 2;
    m->words[parity][emu_me.lane] = value;
    m->arrived |= 1u << emu_me.lane;
    if (kind == EMU_SYNCWARP) emu_release(&m->order[parity]);
    if (m->arrived == mask) {
        int first = (int)emu_me.warp * 32;
        for (unsigned others = mask & ~(1u << emu_me.lane); others; others &= others - 1)
            set_ready(w, first + __builtin_ctz(others));
        m->arrived = 0;
        m->number++;
    } else {
        wait_as(IN_WARP, place);
    }
    if (kind == EMU_SYNCWARP) emu_acquire(&m->order[parity]);
    return m->words[parity];
}

/* ---- a block --------------------------------------------------------------------------------- */

__attribute__((noinline)) static void run_thread(emu_worker *w, emu_fiber *fiber)
{
    emu_me = w->threads[fiber->thread];
    emu_acquire(&w->begun);
    w->grid->call(w->grid->arguments);
    emu_release(&w->ended);
    w->states[fiber->thread] = EXITED;
    w->fibers[fiber->thread] = nullptr;
    w->warps[emu_me.warp].exited |= 1u << emu_me.lane;
    w->alive--;
    if (w->alive && w->bar.waiting == w->alive) open_barrier(); /* says what is wrong */
}

/* Goes on with a thread that has not started, if that one is next: a kernel without barriers never switches.  For
 * ThreadSanitizer each thread needs a fiber of its own. */
static void fiber_entry()
{
    emu_worker *w = self; /* and stays so, whichever host thread runs its blocks */
    emu_fiber *me = w->running;
    emu_fiber_entered(me);
    for (;;) {
        run_thread(w, me);
#ifdef EMU_TSAN
        w->used.push_back(me);
#else
        int next = next_thread(w);
        if (next >= 0 && !w->fibers[next]) {
            me->thread = next;
            w->fibers[next] = me;
            take_turn(w, next);
            continue;
        }
        w->idle.push_back(me);
#endif
        switch_to_next(w);
    }
}

static void add_fiber(emu_worker *w)
{
    w->n_fibers++;
    w->idle.reserve(w->n_fibers); /* emulated threads push, and must not allocate */
    w->used.reserve(w->n_fibers);
    w->idle.push_back(emu_fiber_new(fiber_entry));
}

static void deadlock()
{
    int waiting = 0, at_barrier = 0, in_warp = 0;
    for (int i = 0; i < self->n; i++) {
        at_barrier += self->states[i] == AT_BARRIER;
        in_warp += self->states[i] == IN_WARP;
        if (self->states[i] != EXITED) waiting = i;
    }
    fprintf(stderr, "EMU: %d threads at __syncthreads(), %d in collectives of warps, %d have returned\n",
            at_barrier, in_warp, self->n - self->alive);
    emu_me = self->threads[waiting];
    emu_fail("no thread of the block can go on", self->places[waiting]);
}

/* All bits set: NaN in every float type, -1 as an integer.  Over red zones too, hence no call that AddressSanitizer
 * looks into. */
static void poison(char *from, size_t bytes)
{
    __asm__ volatile("rep stosb" : "+D"(from), "+c"(bytes) : "a"(0xFF) : "memory");
}

/* Threads by number, for blocks of this shape. */
static void set_threads(emu_worker *w, dim3 shape)
{
    if (shape.x == w->shape.x && shape.y == w->shape.y && shape.z == w->shape.z) return;
    w->shape = shape;
    w->threads.resize(w->n);
    for (unsigned i = 0; i < (unsigned)w->n; i++)
        w->threads[i] = { make_uint3(i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y), i % 32, i / 32, i };
}

static void set_turns(emu_worker *w, long number)
{
    const emu_grid *grid = w->grid;
    unsigned random = grid->seed ^ (unsigned)number * 2654435761u;
    w->order.resize(w->n);
    w->turns.resize(w->n);
    for (int i = 0; i < w->n; i++) w->order[i] = grid->order == EMU_REVERSE ? w->n - 1 - i : i;
    for (int i = w->n - 1; i > 0 && grid->order == EMU_RANDOM; i--)
        std::swap(w->order[i], w->order[emu_random(&random) % (unsigned)(i + 1)]);
    for (int i = 0; i < w->n; i++) w->turns[w->order[i]] = i;
    w->ready.assign((w->n + 63) / 64, ~UINT64_C(0));
    if (w->n % 64) w->ready.back() = (UINT64_C(1) << w->n % 64) - 1;
    w->turn = -1;
}

static void set_here(emu_worker *w, const emu_grid *grid, long number)
{
    const dim3 g = grid->grid, b = grid->block;
    emu_here.dim = make_uint3(b.x, b.y, b.z);
    emu_here.grid_dim = make_uint3(g.x, g.y, g.z);
    emu_here.at = make_uint3((unsigned)(number % g.x), (unsigned)(number / g.x % g.y), (unsigned)(number / g.x / g.y));
    emu_here.dynamic_shared = w->dynamic_shared.data();
}

static void begin_block(emu_grid *grid, long number)
{
    emu_worker *w = self;
    w->grid = grid;
    w->n = w->alive = (int)(grid->block.x * grid->block.y * grid->block.z);
    w->bar.waiting = 0;
    w->bar.votes[EMU_VOTE_AND] = 1;
    w->bar.votes[EMU_VOTE_COUNT] = w->bar.votes[EMU_VOTE_OR] = 0;
    w->running = &w->host;
    w->states.assign(w->n, NOT_STARTED);
    w->fibers.assign(w->n, nullptr);
    w->places.resize(w->n);
    w->warps.resize((w->n + 31) / 32);
    for (meeting &m : w->warps) m.arrived = m.exited = 0;
    if (w->dynamic_shared.size() != grid->shared_bytes) std::vector<char>(grid->shared_bytes).swap(w->dynamic_shared);
    poison(w->dynamic_shared.data(), grid->shared_bytes);
    poison(grid->shared.begin, (size_t)(grid->shared.end - grid->shared.begin));
    set_threads(w, grid->block);
    set_turns(w, number);
    set_here(w, grid, number);
}

emu_worker *emu_worker_new()
{
    name_kernel_in_reports();
    return new emu_worker();
}

void emu_run_block(emu_worker *w, emu_grid *grid, long number)
{
    self = w;
    w->host = emu_fiber_of_host();
    begin_block(grid, number);
    emu_release(&w->begun);
    while (w->alive) {
        int next = next_thread(w);
        if (next < 0) deadlock();
        if (!w->fibers[next] && w->idle.empty()) add_fiber(w);
        switch_to_next(w);
    }
    emu_acquire(&w->ended);
    w->idle.insert(w->idle.end(), w->used.begin(), w->used.end());
    w->used.clear();
    emu_here = {};
}
