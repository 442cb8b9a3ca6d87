/* Device memory, page-locked memory, expandable segments. */
#include "fake_device.h"

#include <signal.h>
#include <string.h>
#include "alloc/pool.h"

enum { PAGE = 2 << 20 };

Test(memory, exhaustion_is_an_answer)
{
    with_fake(d, .mib = 64) {
        cr_assert(d.memory.alloc(d.memory.self, 128u << 20) == NULL);
        void *p = fake_new(&d, 32u << 20);
        cr_assert(d.memory.alloc(d.memory.self, 32u << 20) == NULL);
        fake_delete(&d, p, 32u << 20);
        fake_delete(&d, fake_new(&d, 32u << 20), 32u << 20);
    }
}

Test(memory, pinned_memory_has_exactly_the_size)
{
    with_fake(d) {
        ebb__provider pinned = d.table->pinned(d.self);
        cr_assert(pinned.touchable && !pinned.reserve);
        char *p = pinned.alloc(pinned.self, 12345);
        cr_assert(p != NULL);
        memset(p, 1, 12345);
        pinned.free(pinned.self, p, 12345);
    }
}

/* ---- queued work still uses it: the plugin waits before memory goes ------------------------------------
 * The fake's memory turns into NaN where it does not. */

enum { SEEDS = 8, FLOATS = 1024 };

static void check_sevens(const float *values)
{
    for (int i = 0; i < FLOATS; i++) cr_assert(values[i] == 7, "element %d is %g", i, (double)values[i]);
}

Test(memory, page_locked_goes_after_the_copies_from_it)
{
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        with_fake(d, .deferred = true, .seed = seed) {
            ebb__provider pinned = d.table->pinned(d.self);
            float *from = pinned.alloc(pinned.self, FLOATS * sizeof *from), *a = fake_new(&d, sizeof(float[FLOATS]));
            static float back[FLOATS];
            for (int i = 0; i < FLOATS; i++) from[i] = 7;
            plugin_ok(d.table->copy(d.self, NULL, a, from, sizeof back, EBB__TO_DEVICE));
            pinned.free(pinned.self, from, sizeof back);
            fake_get(&d, back, a, sizeof back);
            check_sevens(back);
            fake_delete(&d, a, sizeof back);
        }
    }
}

Test(memory, page_locked_goes_after_the_copies_to_it)
{
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        with_fake(d, .deferred = true, .seed = seed) {
            ebb__provider pinned = d.table->pinned(d.self);
            float *to = pinned.alloc(pinned.self, FLOATS * sizeof *to), *a = fake_new(&d, sizeof(float[FLOATS]));
            plugin_ok(d.table->copy(d.self, NULL, to, a, FLOATS * sizeof *to, EBB__FROM_DEVICE));
            pinned.free(pinned.self, to, FLOATS * sizeof *to);
            fake_delete(&d, a, FLOATS * sizeof *to);
        }
    }
}

/* By kernels, of which the fake does not know what they read, and by a copy, of which it does. */
static void use_and_delete(fake_device *d, bool by_kernel)
{
    static float back[FLOATS];
    float *a = fake_new(d, sizeof back), *b = fake_new(d, sizeof back);
    ebb_arg from = fake_arg(a, EBB_F32, FLOATS, 0, 0), to = fake_arg(b, EBB_F32, FLOATS, 0, 0);
    plugin_ok(d->table->fill(d->self, &from, 7));
    if (by_kernel) plugin_ok(d->table->arg_copy(d->self, &to, &from));
    else plugin_ok(d->table->copy(d->self, NULL, b, a, sizeof back, EBB__ON_DEVICE));
    fake_delete(d, a, sizeof back);
    fake_get(d, back, b, sizeof back);
    check_sevens(back);
    fake_delete(d, b, sizeof back);
}

Test(memory, of_the_device_goes_after_the_work_that_uses_it)
{
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        with_fake(d, .deferred = true, .seed = seed) {
            use_and_delete(&d, true);
            use_and_delete(&d, false);
        }
    }
}

#ifndef __SANITIZE_ADDRESS__ /* it says so itself, in its own way */
/* What the fake is for. */
Test(memory, that_goes_too_early_is_seen, .signal = SIGABRT)
{
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        with_fake(d, .deferred = true, .seed = seed) {
            void *a = fake_new(&d, 64);
            ebb_arg arg = fake_arg(a, EBB_F32, 16, 0, 0);
            plugin_ok(d.table->fill(d.self, &arg, 1));
            cr_assert(cudaFree(a) == cudaSuccess);
            plugin_ok(d.table->synchronize(d.self));
        }
    }
}
#endif

/* ---- expandable segments ------------------------------------------------------------------------------ */

Test(memory, expandable_pages_keep_their_bytes_when_they_move)
{
    with_fake(d) {
        const ebb__provider *m = &d.memory;
        char back[16];
        char *range = m->reserve(m->self, 8 * PAGE);
        cr_assert(range != NULL);
        cr_assert(m->commit(m->self, range, 2 * PAGE));
        fake_put(&d, range + PAGE - 8, "across two pages", 16);
        cr_assert(m->remap(m->self, range, range + 4 * PAGE, 2 * PAGE));
        fake_get(&d, back, range + 5 * PAGE - 8, 16);
        cr_assert(memcmp(back, "across two pages", 16) == 0);
        m->decommit(m->self, range + 4 * PAGE, PAGE);
        cr_assert(fake_get_counts().pages == 1);
        m->unreserve(m->self, range, 8 * PAGE);
    }
}

Test(memory, a_commit_that_fails_changes_nothing)
{
    with_fake(d, .mib = 16) {
        const ebb__provider *m = &d.memory;
        size_t used = fake_get_counts().used_bytes;
        char *range = m->reserve(m->self, 32 * PAGE);
        cr_assert(m->commit(m->self, range, PAGE));
        cr_assert(!m->commit(m->self, range + PAGE, 16 * PAGE));
        cr_assert(fake_get_counts().used_bytes == used + PAGE);
        cr_assert(m->commit(m->self, range + PAGE, PAGE));
        m->unreserve(m->self, range, 32 * PAGE);
    }
}

Test(memory, a_page_is_no_device_memory_before_commit, .signal = SIGABRT)
{
    with_fake(d) {
        char *range = d.memory.reserve(d.memory.self, 2 * PAGE);
        fake_put(&d, range, "x", 1);
    }
}

#ifndef __SANITIZE_ADDRESS__ /* it takes the signal itself */
Test(memory, a_page_traps_after_decommit, .signal = SIGSEGV)
{
    with_fake(d) {
        char *range = d.memory.reserve(d.memory.self, 2 * PAGE);
        cr_assert(d.memory.commit(d.memory.self, range, PAGE));
        range[0] = 1; /* the fake's device memory is the host's */
        d.memory.decommit(d.memory.self, range, PAGE);
        range[0] = 1;
    }
}
#endif

Test(memory, a_range_goes_after_the_work_that_uses_it)
{
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        with_fake(d, .deferred = true, .seed = seed) {
            const ebb__provider *m = &d.memory;
            static float back[FLOATS];
            float *range = m->reserve(m->self, 2 * PAGE), *b = fake_new(&d, sizeof back);
            cr_assert(m->commit(m->self, range, PAGE));
            ebb_arg arg = fake_arg(range, EBB_F32, FLOATS, 0, 0);
            plugin_ok(d.table->fill(d.self, &arg, 7));
            plugin_ok(d.table->copy(d.self, NULL, b, range, sizeof back, EBB__ON_DEVICE));
            m->unreserve(m->self, range, 2 * PAGE);
            fake_get(&d, back, b, sizeof back);
            check_sevens(back);
            fake_delete(&d, b, sizeof back);
        }
    }
}

/* Mapping is not ordered with streams: the plugin waits before a page goes. */
Test(memory, pages_go_after_the_work_that_uses_them)
{
    for (unsigned seed = 1; seed <= 8; seed++) {
        with_fake(d, .deferred = true, .seed = seed) {
            const ebb__provider *m = &d.memory;
            char *range = m->reserve(m->self, 4 * PAGE), back[2];
            cr_assert(m->commit(m->self, range, 2 * PAGE));
            fake_put(&d, range, "ab", 2);
            plugin_ok(d.table->copy(d.self, NULL, range + PAGE, range, 2, EBB__ON_DEVICE));
            cr_assert(m->remap(m->self, range + PAGE, range + 3 * PAGE, PAGE));
            plugin_ok(d.table->copy(d.self, NULL, range + 3 * PAGE + 2, range, 2, EBB__ON_DEVICE));
            m->decommit(m->self, range, PAGE);
            fake_get(&d, back, range + 3 * PAGE + 2, 2);
            cr_assert(memcmp(back, "ab", 2) == 0);
            m->unreserve(m->self, range, 4 * PAGE);
        }
    }
}

static ebb_status grow_and_move(fake_device *d, void *arg)
{
    const ebb__provider *m = &d->memory;
    (void)arg;
    char *range = m->reserve ? m->reserve(m->self, 8 * PAGE) : NULL;
    if (!range) return plugin_host()->fail(EBB_ENOMEM, "no reservation");
    ebb_status st = EBB_OK;
    if (!m->commit(m->self, range, 3 * PAGE)) st = plugin_host()->fail(EBB_ENOMEM, "no pages");
    if (st == EBB_OK && !m->remap(m->self, range, range + 4 * PAGE, 2 * PAGE)) {
        st = plugin_host()->fail(EBB_ENOMEM, "pages do not move");
        fake_counts counts = fake_get_counts();
        cr_assert(counts.pages == 3, "%ld pages", counts.pages);
        /* Back where they were, and usable. */
        if (counts.failed) m->decommit(m->self, range, 3 * PAGE);
        cr_assert(fake_get_counts().pages == 0);
    }
    if (st == EBB_OK) { /* also where the page that goes would not go */
        m->decommit(m->self, range + 4 * PAGE, PAGE);
        bool all = m->commit(m->self, range + 4 * PAGE, PAGE);
        fake_counts counts = fake_get_counts();
        cr_assert(counts.pages == (all ? 3 : 2), "%ld pages", counts.pages);
        if (!all) st = plugin_host()->fail(EBB_ENOMEM, "no page");
    }
    m->unreserve(m->self, range, 8 * PAGE);
    return st;
}

Test(memory, any_call_under_expandable_segments_may_fail) { fake_sweep(grow_and_move, NULL, (fake_changes){ 0 }); }

/* ---- under the pool ------------------------------------------------------------------------------------- */

static void allocate_and_release(fake_device *d, bool expandable)
{
    enum { N = 24 };
    ebb__alloc_options alloc = ebb__alloc_options_default();
    alloc.expandable_segments = expandable;
    ebb__pool *pool;
    ebb__block *blocks[N];
    cr_assert(ebb__pool_new(&pool, d->memory, &(ebb__pool_options){ .alloc = &alloc }) == EBB_OK);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            size_t bytes = (size_t)(i + 1) * (size_t)(round + 1) * 50000;
            cr_assert(ebb__pool_alloc(pool, &blocks[i], bytes, 0, NULL) == EBB_OK);
            void *p = ebb__block_data(blocks[i]);
            ebb_arg arg = fake_arg(p, EBB_F32, (int64_t)(bytes / 4), 0, 0);
            plugin_ok(d->table->fill(d->self, &arg, i));
        }
        for (int i = 0; i < N; i++) {
            float value;
            fake_get(d, &value, ebb__block_data(blocks[i]), sizeof value);
            cr_assert(value == (float)i);
            ebb__pool_release(pool, blocks[i]);
        }
        cr_assert(ebb__pool_check(pool));
    }
    ebb__pool_free(pool);
}

Test(memory, serves_the_pool)
{
    with_fake(d) allocate_and_release(&d, false);
}

Test(memory, serves_the_pool_with_expandable_segments)
{
    with_fake(d, .deferred = true) allocate_and_release(&d, true);
}
