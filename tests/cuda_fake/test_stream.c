/* Streams, tickets, host calls. */
#include "fake_device.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { SEEDS = 24, N = 1024 };

/* A second stream brings bytes which the compute stream copies on.  True: the right bytes arrive. */
static bool hand_over(fake_device *d, bool wait)
{
    const ebb__accel *t = d->table;
    ebb__provider pinned = t->pinned(d->self);
    ebb__accel_stream *side;
    uint64_t ticket;
    char *from = pinned.alloc(pinned.self, N), back[N];
    void *a = fake_new(d, N), *b = fake_new(d, N);
    plugin_ok(t->stream_open(&side, d->self));
    memset(from, 5, N);
    plugin_ok(t->copy(d->self, side, a, from, N, EBB__TO_DEVICE));
    plugin_ok(t->record(d->self, side, &ticket));
    if (wait) plugin_ok(t->stream_wait(d->self, NULL, side, ticket));
    plugin_ok(t->copy(d->self, NULL, b, a, N, EBB__ON_DEVICE));
    fake_get(d, back, b, N);
    t->stream_close(d->self, side);
    pinned.free(pinned.self, from, N);
    fake_delete(d, a, N);
    fake_delete(d, b, N);
    return back[0] == 5 && back[N - 1] == 5;
}

Test(stream, a_wait_orders_two_streams)
{
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        with_fake(d, .deferred = true, .seed = seed) cr_assert(hand_over(&d, true), "seed %u", seed);
    }
}

/* What the fake is for. */
Test(stream, a_missing_wait_is_seen)
{
    int wrong = 0;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        with_fake(d, .deferred = true, .seed = seed) wrong += !hand_over(&d, false);
    }
    cr_assert(wrong > 0, "no seed of %d showed it", SEEDS);
}

Test(stream, tickets_grow_and_are_done_in_order)
{
    with_fake(d, .deferred = true) {
        const ebb__accel *t = d.table;
        enum { RECORDS = 100 };
        uint64_t tickets[RECORDS];
        void *p = fake_new(&d, 64);
        char bytes[64] = { 0 };
        for (int i = 0; i < RECORDS; i++) {
            fake_put(&d, p, bytes, sizeof bytes);
            plugin_ok(t->record(d.self, NULL, &tickets[i]));
            cr_assert(i == 0 || tickets[i] > tickets[i - 1]);
        }
        plugin_ok(t->wait(d.self, NULL, tickets[RECORDS / 2]));
        for (int i = 0; i <= RECORDS / 2; i++) cr_assert(t->is_done(d.self, NULL, tickets[i]), "%d", i);
        plugin_ok(t->synchronize(d.self));
        cr_assert(t->is_done(d.self, NULL, tickets[RECORDS - 1]));
        plugin_ok(t->wait(d.self, NULL, tickets[0]));
        fake_delete(&d, p, 64);
    }
}

/* Else memory of what is still on its way would be used again. */
Test(stream, a_wait_says_nothing_of_later_tickets)
{
    int later = 0;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        with_fake(d, .deferred = true, .seed = seed) {
            const ebb__accel *t = d.table;
            ebb__provider pinned = t->pinned(d.self);
            ebb__accel_stream *side;
            uint64_t first, second;
            char byte = 9, *back = pinned.alloc(pinned.self, N);
            void *p = fake_new_from(&d, &byte, 1);
            plugin_ok(t->synchronize(d.self));
            plugin_ok(t->stream_open(&side, d.self));
            back[0] = 0;
            plugin_ok(t->copy(d.self, side, back + 1, p, 1, EBB__FROM_DEVICE));
            plugin_ok(t->record(d.self, side, &first));
            plugin_ok(t->copy(d.self, side, back, p, 1, EBB__FROM_DEVICE));
            plugin_ok(t->record(d.self, side, &second));
            plugin_ok(t->wait(d.self, side, first));
            bool done = t->is_done(d.self, side, second);
            cr_assert(!done || back[0] == 9, "seed %u: done, and nothing has come", seed);
            later += !done;
            plugin_ok(t->wait(d.self, side, second));
            cr_assert(back[0] == 9);
            t->stream_close(d.self, side);
            pinned.free(pinned.self, back, N);
            fake_delete(&d, p, 1);
        }
    }
    cr_assert(later > 0, "in %d seeds the second was always done", SEEDS);
}

Test(stream, events_are_used_again)
{
    with_fake(d) {
        uint64_t ticket;
        for (int i = 0; i < 1000; i++) plugin_ok(d.table->record(d.self, NULL, &ticket));
        cr_assert(fake_get_counts().events <= 2, "%ld", fake_get_counts().events);
    }
}

Test(stream, polling_gets_there)
{
    with_fake(d, .deferred = true, .seed = 3) {
        uint64_t ticket;
        char byte = 1;
        void *p = fake_new_from(&d, &byte, 1);
        plugin_ok(d.table->record(d.self, NULL, &ticket));
        int polls = 0;
        while (!d.table->is_done(d.self, NULL, ticket)) cr_assert(++polls < 1000);
        fake_delete(&d, p, 1);
    }
}

/* ---- host calls ------------------------------------------------------------------------------------- */

typedef struct host_note {
    atomic_int done;
    const char *pinned;
    char seen;
} host_note;

static void look(void *arg)
{
    host_note *note = arg;
    note->seen = note->pinned[0];
    atomic_store(&note->done, 1);
}

Test(stream, a_host_call_comes_after_what_is_before_it)
{
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        with_fake(d, .deferred = true, .seed = seed) {
            const ebb__accel *t = d.table;
            ebb__provider pinned = t->pinned(d.self);
            ebb__accel_stream *side;
            char *back = pinned.alloc(pinned.self, 1), byte = 42;
            void *p = fake_new_from(&d, &byte, 1);
            host_note note = { .pinned = back };
            uint64_t ticket;
            plugin_ok(t->synchronize(d.self));
            plugin_ok(t->stream_open(&side, d.self));
            plugin_ok(t->copy(d.self, side, back, p, 1, EBB__FROM_DEVICE));
            plugin_ok(t->host_call(d.self, side, look, &note));
            plugin_ok(t->record(d.self, side, &ticket));
            plugin_ok(t->wait(d.self, side, ticket));
            cr_assert(atomic_load(&note.done) && note.seen == 42);
            t->stream_close(d.self, side);
            pinned.free(pinned.self, back, 1);
            fake_delete(&d, p, 1);
        }
    }
}

/* ---- failures --------------------------------------------------------------------------------------- */

static ebb_status stream_script(fake_device *d, void *arg)
{
    const ebb__accel *t = d->table;
    ebb__accel_stream *side = NULL;
    uint64_t ticket = 0;
    char byte = 1;
    (void)arg;
    void *p = d->memory.alloc(d->memory.self, 1);
    if (!p) return plugin_host()->fail(EBB_ENOMEM, "no memory");
    ebb_status st = t->stream_open(&side, d->self);
    for (int i = 0; i < 4 && st == EBB_OK; i++) {
        st = t->copy(d->self, side, p, &byte, 1, EBB__TO_DEVICE);
        if (st == EBB_OK) st = t->record(d->self, side, &ticket);
        if (st == EBB_OK) st = t->stream_wait(d->self, NULL, side, ticket);
        if (st == EBB_OK) (void)t->is_done(d->self, side, ticket);
        if (st == EBB_OK) st = t->wait(d->self, side, ticket);
    }
    d->closing_from = fake_get_counts().calls;
    t->stream_close(d->self, side);
    d->memory.free(d->memory.self, p, 1);
    return st;
}

Test(stream, any_call_may_fail)
{
    fake_sweep(stream_script, NULL, (fake_changes){ 0 });
    fake_sweep(stream_script, NULL, (fake_changes){ .deferred = true });
}
