#include "pool_rig.h"

#include <string.h>

static void *counted_alloc(void *self, size_t bytes)
{
    pool_rig *rig = self;
    if (rig->n_refusals > 0) {
        rig->n_refusals--;
        return NULL;
    }
    void *p = rig->inner.alloc(rig->inner.self, bytes);
    if (p) rig->n_given++, rig->bytes_out += bytes;
    return p;
}

static void counted_free(void *self, void *p, size_t bytes)
{
    pool_rig *rig = self;
    rig->n_returned++;
    rig->bytes_out -= bytes;
    rig->inner.free(rig->inner.self, p, bytes);
}

static void *counted_reserve(void *self, size_t bytes)
{
    pool_rig *rig = self;
    void *p = rig->inner.reserve(rig->inner.self, bytes);
    if (p) rig->n_given++;
    return p;
}

static void counted_unreserve(void *self, void *p, size_t bytes)
{
    pool_rig *rig = self;
    rig->n_returned++;
    rig->inner.unreserve(rig->inner.self, p, bytes);
}

static bool counted_commit(void *self, void *p, size_t bytes)
{
    pool_rig *rig = self;
    if (rig->n_refusals > 0) {
        rig->n_refusals--;
        return false;
    }
    bool done = rig->inner.commit(rig->inner.self, p, bytes);
    if (done) rig->bytes_out += bytes;
    return done;
}

static void counted_decommit(void *self, void *p, size_t bytes)
{
    pool_rig *rig = self;
    rig->bytes_out -= bytes;
    rig->inner.decommit(rig->inner.self, p, bytes);
}

static bool counted_remap(void *self, void *from, void *to, size_t bytes)
{
    pool_rig *rig = self;
    rig->n_moves++;
    return rig->inner.remap(rig->inner.self, from, to, bytes);
}

void rig_init_with(pool_rig *rig, rig_kind kind, const ebb__pool_options *options)
{
    *rig = (pool_rig){ .dry = kind == RIG_DRY, .live_blocks = ebb_host_live_blocks() };
    if (rig->dry)
        check_ok(ebb__dry_provider_new(&rig->inner));
    else
        rig->inner = options->exact ? ebb__page_provider() : ebb__host_provider();
    ebb__provider provider = { .alloc = counted_alloc,
                               .free = counted_free,
                               .self = rig,
                               .touchable = rig->inner.touchable,
                               .reserve = counted_reserve,
                               .unreserve = counted_unreserve,
                               .commit = counted_commit,
                               .decommit = counted_decommit,
                               .remap = counted_remap };
    check_ok(ebb__pool_new(&rig->pool, provider, options));
}

void rig_init(pool_rig *rig, rig_kind kind, size_t limit_bytes, int checks)
{
    rig_init_with(rig, kind, &(ebb__pool_options){ .limit_bytes = limit_bytes, .checks = checks });
}

void rig_init_conf(pool_rig *rig, rig_kind kind, size_t limit_bytes, int checks, const char *conf)
{
    ebb__alloc_options alloc = ebb__alloc_options_default();
    check_ok(ebb__alloc_options_parse(&alloc, conf, "test"));
    rig_init_with(
        rig, kind,
        &(ebb__pool_options){ .limit_bytes = limit_bytes, .checks = checks, .alloc = &alloc });
}

static void note_stat(void *user, const char *key, uint64_t value)
{
    rig_stat_query *query = user;
    if (strcmp(key, query->key) != 0) return;
    query->value = value;
    query->found = true;
}

uint64_t rig_stat(const pool_rig *rig, const char *key)
{
    rig_stat_query query = { .key = key };
    ebb__pool_each_stat(rig->pool, note_stat, &query);
    cr_assert(query.found, "there is no statistic %s", key);
    return query.value;
}

void rig_end(pool_rig *rig)
{
    cr_assert(ebb__pool_check(rig->pool), "%s", ebb_message());
    ebb_memory_stats stats = rig_stats(rig);
    cr_assert(stats.allocated_bytes == 0 && stats.requested_bytes == 0, "%zu bytes are alive",
              stats.allocated_bytes);
    cr_assert(stats.n_allocs == stats.n_frees);
    ebb__pool_free(rig->pool);
    cr_assert(rig->n_given == rig->n_returned && rig->bytes_out == 0,
              "%zu segments given, %zu returned", rig->n_given, rig->n_returned);
    if (rig->dry) ebb__dry_provider_free(&rig->inner);
    cr_assert(ebb_host_live_blocks() == rig->live_blocks, "host blocks are alive");
}

static ebb__block *take(pool_rig *rig, size_t bytes, int stream, const ebb__owner *owner)
{
    ebb__block *block = NULL;
    check_ok(ebb__pool_alloc(rig->pool, &block, bytes, stream, owner));
    cr_assert(block != NULL);
    cr_assert(ebb__block_requested(block) == bytes);
    return block;
}

ebb__block *rig_take(pool_rig *rig, size_t bytes) { return take(rig, bytes, 0, NULL); }

ebb__block *rig_take_as(pool_rig *rig, size_t bytes, ebb_category category, const char *op)
{
    return take(rig, bytes, 0, &(ebb__owner){ .category = category, .op = op });
}

ebb__block *rig_take_on(pool_rig *rig, size_t bytes, int stream)
{
    return take(rig, bytes, stream, NULL);
}

void rig_give(pool_rig *rig, ebb__block *block) { ebb__pool_release(rig->pool, block); }

ebb_memory_stats rig_stats(const pool_rig *rig)
{
    ebb_memory_stats stats;
    ebb__pool_stats(rig->pool, &stats);
    return stats;
}
