/* block.cpp: a block's threads as fibers of one host thread; barriers, warp collectives, errors.
 * Never instrumented by ThreadSanitizer, and nothing is allocated while an emulated thread runs: it would see
 * a race in the allocator. */
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
    unsigned number, arrived, mask;
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
    int n, next, alive; /* threads; the next in `order` that starts; not exited */
    std::vector<emu_thread> threads;
    std::vector<state> states;
    std::vector<emu_fiber *> fibers; /* of each thread; nullptr: not started or exited */
    std::vector<emu_place> places;   /* where each waits */
    std::vector<int> order;
    std::vector<meeting> warps;
    barrier bar;
    std::vector<emu_fiber *> idle, used; /* used: for ThreadSanitizer two threads of a block never share one */
    emu_fiber *left; /* a fiber that just ended, for one of the two */
    emu_fiber host, *running;
    std::vector<char> dynamic_shared;
    char begun, ended; /* order the blocks of this worker, which use the same shared memory */
};

thread_local emu_thread *emu_running;
static thread_local emu_worker *self;

unsigned emu_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* ---- errors --------------------------------------------------------------------------------- */

static void print_running()
{
    const emu_thread *t = emu_running;
    if (t && self)
        fprintf(stderr, "EMU: kernel %s, block %u,%u,%u, thread %u,%u,%u\n", self->grid->kernel, t->block.x,
                t->block.y, t->block.z, t->thread.x, t->thread.y, t->thread.z);
    fflush(stderr);
}

void emu_fail(const char *what, emu_place place)
{
    enum { EXIT_STATUS = 97 };
    fprintf(stderr, "EMU ERROR: %s at %s:%d\n", what, place.file, place.line);
    print_running();
    _Exit(EXIT_STATUS);
}

#if defined(__SANITIZE_ADDRESS__) || defined(EMU_TSAN)
extern "C" void __sanitizer_set_death_callback(void (*callback)(void));
static void name_kernel_in_reports() { __sanitizer_set_death_callback(print_running); }
#else
static void name_kernel_in_reports() {}
#endif

/* ---- switching ------------------------------------------------------------------------------- */

static void switch_to(emu_worker *w, emu_fiber *to)
{
    emu_fiber *from = w->running;
    w->running = to;
    emu_fiber_switch(from, to);
}

/* Until the block's loop finds this thread READY. */
static void wait_as(state waiting, emu_place place)
{
    emu_thread *me = emu_running;
    self->states[me->number] = waiting;
    self->places[me->number] = place;
    switch_to(self, &self->host);
    emu_running = me;
}

/* ---- barriers -------------------------------------------------------------------------------- */

static void open_barrier()
{
    emu_worker *w = self;
    barrier *bar = &w->bar;
    emu_place first = {};
    for (int i = 0; i < w->n; i++) {
        if (w->states[i] != AT_BARRIER) continue;
        emu_running = &w->threads[i];
        if (w->alive < w->n)
            emu_fail("__syncthreads() after other threads of the block have returned", w->places[i]);
        if (first.file && (first.line != w->places[i].line || strcmp(first.file, w->places[i].file) != 0)) {
            fprintf(stderr, "EMU: others wait at %s:%d\n", first.file, first.line);
            emu_fail("threads of a block wait at different __syncthreads()", w->places[i]);
        }
        first = w->places[i];
        w->states[i] = READY;
    }
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
    emu_thread *me = emu_running;
    bar->votes[EMU_VOTE_COUNT] += predicate != 0;
    bar->votes[EMU_VOTE_AND] &= predicate != 0;
    bar->votes[EMU_VOTE_OR] |= predicate != 0;
    char *order = &bar->order[bar->number % 2];
    emu_release(order);
    if (++bar->waiting == w->alive) {
        w->states[me->number] = AT_BARRIER;
        w->places[me->number] = place;
        open_barrier();
        emu_running = me;
    } else {
        wait_as(AT_BARRIER, place);
    }
    emu_acquire(order);
    return bar->result[vote];
}

/* ---- warps ----------------------------------------------------------------------------------- */

static void join(meeting *m, unsigned mask, emu_collective kind, emu_place place)
{
    const emu_worker *w = self;
    int first = (int)emu_running->warp * 32;
    unsigned there = w->n - first >= 32 ? ~0u : (1u << (w->n - first)) - 1;
    if (!(mask >> emu_running->lane & 1)) emu_fail("a lane is not in its own mask", place);
    if (mask & ~there) emu_fail("a mask names lanes beyond the block's threads", place);
    if (m->arrived && (m->kind != kind || m->mask != mask || m->place.line != place.line)) {
        fprintf(stderr, "EMU: others of the warp are at %s:%d\n", m->place.file, m->place.line);
        emu_fail("lanes of a warp meet in different collectives (or masks: one at a time here)", place);
    }
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1 && w->states[first + lane] == EXITED)
            emu_fail("a warp's collective waits for a lane that has returned", place);
    m->mask = mask;
    m->kind = kind;
    m->place = place;
}

const uint64_t *emu_exchange(unsigned mask, uint64_t value, emu_collective kind, emu_place place)
{
    meeting *m = &self->warps[emu_running->warp];
    join(m, mask, kind, place);
    unsigned parity = m->number % 2;
    m->words[parity][emu_running->lane] = value;
    m->arrived |= 1u << emu_running->lane;
    if (kind == EMU_SYNCWARP) emu_release(&m->order[parity]);
    if (m->arrived == mask) {
        int first = (int)emu_running->warp * 32;
        for (int lane = 0; lane < 32; lane++)
            if (mask >> lane & 1 && self->states[first + lane] == IN_WARP) self->states[first + lane] = READY;
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
    emu_running = &w->threads[fiber->thread];
    emu_acquire(&w->grid->begun);
    emu_acquire(&w->begun);
    (*w->grid->body)();
    emu_release(&w->grid->done);
    emu_release(&w->ended);
    w->states[fiber->thread] = EXITED;
    w->fibers[fiber->thread] = nullptr;
    w->alive--;
    if (w->alive && w->bar.waiting == w->alive) open_barrier(); /* says what is wrong */
}

/* Runs threads one after the other as long as none has to wait: a kernel without barriers never switches.
 * For ThreadSanitizer each thread needs a fiber of its own. */
static void fiber_entry()
{
    emu_worker *w = self; /* and stays so, whichever host thread runs its blocks */
    emu_fiber *me = w->running;
    emu_fiber_entered(me);
    for (;;) {
        run_thread(w, me);
#ifndef EMU_TSAN
        if (w->next < w->n) {
            me->thread = w->order[w->next++];
            w->states[me->thread] = READY;
            w->fibers[me->thread] = me;
            continue;
        }
#endif
        w->left = me;
        switch_to(w, &w->host);
    }
}

static void resume(int thread)
{
    emu_worker *w = self;
    if (!w->fibers[thread]) {
        if (w->idle.empty()) w->idle.push_back(emu_fiber_new(fiber_entry));
        w->fibers[thread] = w->idle.back();
        w->idle.pop_back();
        w->fibers[thread]->thread = thread;
        w->states[thread] = READY;
    }
    switch_to(w, w->fibers[thread]);
#ifdef EMU_TSAN
    if (w->left) w->used.push_back(w->left);
#else
    if (w->left) w->idle.push_back(w->left);
#endif
    w->left = nullptr;
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
    emu_running = &self->threads[waiting];
    emu_fail("no thread of the block can go on", self->places[waiting]);
}

/* emu_shared.ld sets them; not there for ThreadSanitizer. */
extern "C" char emu_shared_begin[] __attribute__((weak));
extern "C" char emu_shared_end[] __attribute__((weak));

/* All bits set: NaN in every float type, -1 as an integer.  Over red zones too, hence not checked. */
__attribute__((no_sanitize("address"), noinline)) static void poison(char *from, char *to)
{
    for (volatile char *p = from; p < to && (uintptr_t)p % 8; p++) *p = (char)0xFF;
    volatile uint64_t *word = (uint64_t *)(((uintptr_t)from + 7) / 8 * 8);
    for (; (char *)(word + 1) <= to; word++) *word = ~UINT64_C(0);
    for (volatile char *p = (char *)word; p < to; p++) *p = (char)0xFF;
}

static void set_thread(emu_thread *t, const emu_grid *grid, long block, unsigned number)
{
    t->number = number;
    t->lane = number % 32;
    t->warp = number / 32;
    t->block_dim = grid->block;
    t->grid_dim = grid->grid;
    t->thread = make_uint3(number % grid->block.x, number / grid->block.x % grid->block.y,
                           number / grid->block.x / grid->block.y);
    t->block = make_uint3((unsigned)(block % grid->grid.x), (unsigned)(block / grid->grid.x % grid->grid.y),
                          (unsigned)(block / grid->grid.x / grid->grid.y));
    t->dynamic_shared = self->dynamic_shared.data();
}

static void begin_block(emu_grid *grid, long number)
{
    emu_worker *w = self;
    w->grid = grid;
    w->n = w->alive = (int)(grid->block.x * grid->block.y * grid->block.z);
    w->next = 0;
    w->bar.waiting = 0;
    w->bar.votes[EMU_VOTE_AND] = 1;
    w->bar.votes[EMU_VOTE_COUNT] = w->bar.votes[EMU_VOTE_OR] = 0;
    w->running = &w->host;
    w->states.assign(w->n, NOT_STARTED);
    w->fibers.assign(w->n, nullptr);
    w->places.assign(w->n, emu_place());
    w->warps.resize((w->n + 31) / 32);
    for (meeting &m : w->warps) m.arrived = 0;
    if (w->dynamic_shared.size() != grid->shared_bytes) std::vector<char>(grid->shared_bytes).swap(w->dynamic_shared);
    poison(w->dynamic_shared.data(), w->dynamic_shared.data() + grid->shared_bytes);
    if (emu_shared_begin) poison(emu_shared_begin, emu_shared_end);

    w->threads.resize(w->n);
    w->order.resize(w->n);
    unsigned random = grid->seed ^ (unsigned)number * 2654435761u;
    for (int i = 0; i < w->n; i++) {
        set_thread(&w->threads[i], grid, number, (unsigned)i);
        w->order[i] = grid->order == EMU_REVERSE ? w->n - 1 - i : i;
    }
    for (int i = w->n - 1; i > 0 && grid->order == EMU_RANDOM; i--)
        std::swap(w->order[i], w->order[emu_random(&random) % (unsigned)(i + 1)]);
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
        bool moved = false;
        for (; w->next < w->n; moved = true) resume(w->order[w->next++]);
        for (int k = 0; k < w->n; k++)
            if (w->states[w->order[k]] == READY) resume(w->order[k]), moved = true;
        if (!moved) deadlock();
    }
    emu_acquire(&w->ended);
    w->idle.insert(w->idle.end(), w->used.begin(), w->used.end());
    w->used.clear();
    emu_running = nullptr;
}
