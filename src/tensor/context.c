/* context.c: pools, generators and the default device, owned together. */
#include "tensor/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/mem.h"
#include "core/message.h"
#include "core/site.h"
#include "tensor/upward.h"

static void arm_faults_from_environment(void)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&done)) return;
    const char *text = getenv("EBB_FAIL_ALLOC");
    if (text && *text) ebb_fault_arm(strtoull(text, NULL, 10));
}

static ebb_status open_pool(ebb_context *ctx, const ebb_context_options *o)
{
    ebb__alloc_options alloc = ebb__alloc_options_default();
    ebb_status st = ebb__alloc_options_parse(&alloc, getenv("EBB_ALLOC_CONF"), "EBB_ALLOC_CONF");
    if (st == EBB_OK) st = ebb__alloc_options_parse(&alloc, o->allocator, "allocator");
    if (st != EBB_OK) return st;
    size_t limit = o->memory_limit_bytes;
    if (limit == 0 && ctx->device.accel) limit = ctx->device.accel->facts.capacity_bytes;
    if (limit == SIZE_MAX) limit = 0;
    ebb__pool_options pool = { .limit_bytes = limit, .checks = ctx->checks, .alloc = &alloc,
                               .fences = ebb__streams_fences(ctx->device.streams) };
    ctx->offset_plan = alloc.offset_plan;
    return ebb__pool_new(&ctx->pool, ctx->device.provider, &pool);
}

/* Memory that an accelerator's libraries work in comes from the pool like any other, so that it is counted,
 * and a dry run knows it. */
static ebb_status lend(ebb_context *ctx)
{
    const ebb__accelerator *accel = ctx->device.accel;
    ebb__owner owner = { .category = EBB_CAT_WORKSPACE, .op = "device libraries" };
    if (!accel || accel->facts.lent_bytes == 0) return EBB_OK;
    EBB__TRY(ebb__pool_alloc(ctx->pool, &ctx->lent, accel->facts.lent_bytes, 0, &owner));
    if (ctx->device.dry) return EBB_OK;
    return ebb__device_doing(owner.op, accel->table->lend(accel->self, ebb__block_data(ctx->lent)));
}

/* Errors of the work that is done with are nobody's any more. */
static void take_back(ebb_context *ctx)
{
    const ebb__accelerator *accel = ctx->device.accel;
    if (accel && !ctx->device.dry) {
        (void)accel->table->synchronize(accel->self);
        (void)accel->table->lend(accel->self, NULL);
    }
    ebb__pool_release(ctx->pool, ctx->lent);
    ebb__pool_free(ctx->pool);
}

ebb_status ebb_context_new(ebb_context **out, const ebb_context_options *options)
{
    ebb_context_options o = { .struct_bytes = sizeof o, .checks = -1 };
    if (!out) return ebb_fail(EBB_EINVAL, "context: out is NULL");
    if (options) {
        if (options->struct_bytes != sizeof o)
            return ebb_fail(EBB_EINVAL, "context: options.struct_bytes is %zu, expected %zu",
                            options->struct_bytes, sizeof o);
        o = *options;
    }
    if (o.threads < 0 || o.threads > 1024)
        return ebb_fail(EBB_EINVAL, "context: threads is %d, allowed are 0 (all cores) to 1024", o.threads);
    arm_faults_from_environment();
    ebb_context *ctx = ebb__calloc(1, sizeof *ctx);
    if (!ctx) return EBB_ENOMEM;
    ctx->checks = o.checks < 0 ? EBB_CHECKS : o.checks;
    ebb__message before;
    ebb_status st = ebb__device_open(&ctx->device, o.device ? o.device : "cpu",
                                     o.threads ? o.threads : ebb__cores());
    if (st != EBB_OK) goto fail;
    st = open_pool(ctx, &o);
    if (st != EBB_OK) goto fail_device;
    st = lend(ctx);
    if (st != EBB_OK) goto fail_pool;
    ebb__pool_set_adviser(ctx->pool, ebb__advise_checkpoint, ctx);
    pthread_mutex_init(&ctx->lock, NULL);
    atomic_init(&ctx->refs, 1);
    ctx->seed = o.seed;
    ctx->phase = EBB__PHASE_FORWARD;
    ctx->host_limit_bytes = o.host_limit_bytes;
    ctx->check_recompute = o.check_recompute;
    ctx->next_tensor_id = ctx->next_node_seq = ctx->next_segment_number = 1;
    *out = ctx;
    return EBB_OK;
fail_pool:
    ebb__message_keep(&before);
    take_back(ctx);
    ebb__message_put_back(&before);
fail_device:
    ebb__device_close(&ctx->device);
fail:
    ebb__free(ctx);
    return st;
}

void ebb__context_release(ebb_context *ctx)
{
    if (atomic_fetch_sub(&ctx->refs, 1) != 1) return;
    ebb__message before; /* an error of what is closed is nobody's; one that led here is somebody's */
    ebb__message_keep(&before);
    ebb__saver_deinit(ctx);
    take_back(ctx);
    ebb__device_close(&ctx->device);
    pthread_mutex_destroy(&ctx->lock);
    ebb__free(ctx->accel_ops);
    ebb__free(ctx->recompute_ops);
    ebb__free(ctx);
    ebb__message_put_back(&before);
}

void ebb_context_drop(ebb_context **variable)
{
    ebb_context_free(*variable);
    *variable = NULL;
}

void ebb_context_free(ebb_context *ctx)
{
    if (ctx) ebb__context_release(ctx);
}

const char *ebb_context_device(const ebb_context *ctx) { return ctx->device.name; }
bool ebb_context_is_dry(const ebb_context *ctx) { return ctx->device.dry; }
int ebb_context_threads(const ebb_context *ctx) { return ctx->device.n_threads; }
ebb__pool *ebb__context_pool(const ebb_context *ctx) { return ctx->pool; }
ebb__threads *ebb__context_threads(const ebb_context *ctx) { return ctx->device.threads; }

void ebb_seed(ebb_context *ctx, uint64_t seed)
{
    ctx->seed = seed;
    ctx->rng_offset = 0;
}

uint64_t ebb_rng_offset(const ebb_context *ctx) { return ctx->rng_offset; }
void ebb_rng_set_offset(ebb_context *ctx, uint64_t offset) { ctx->rng_offset = offset; }

const char *ebb_scope(ebb_context *ctx, const char *name)
{
    const char *before = ctx->scope;
    ctx->scope = name;
    return before;
}

ebb__phase ebb__phase_set(ebb_context *ctx, ebb__phase phase)
{
    ebb__phase before = ctx->phase;
    ctx->phase = phase;
    ebb__trace_mark(ctx->pool, EBB__ACT_PHASE, &(ebb__owner){ .phase = phase });
    return before;
}

ebb__owner ebb__owner_now(const ebb_context *ctx, ebb_category category, const char *op)
{
    ebb__site site = ebb__site_get();
    return (ebb__owner){ .category = category, .op = op, .scope = ctx->scope, .phase = ctx->phase,
                         .segment = ctx->segment_number, .file = site.file, .line = site.line };
}

void ebb_memory_stats_get(const ebb_context *ctx, ebb_memory_stats *stats) { ebb__pool_stats(ctx->pool, stats); }

static ebb_memory_stats stats_of(const ebb_context *ctx)
{
    ebb_memory_stats stats;
    ebb_memory_stats_get(ctx, &stats);
    return stats;
}

size_t ebb_memory_allocated_bytes(const ebb_context *ctx) { return stats_of(ctx).allocated_bytes; }
size_t ebb_memory_reserved_bytes(const ebb_context *ctx) { return stats_of(ctx).reserved_bytes; }
size_t ebb_memory_peak_allocated_bytes(const ebb_context *ctx) { return stats_of(ctx).peak_allocated_bytes; }
void ebb_memory_reset_peak(ebb_context *ctx) { ebb__pool_reset_peak(ctx->pool); }
void ebb_memory_reset_accumulated(ebb_context *ctx) { ebb__pool_reset_accumulated(ctx->pool); }
bool ebb_memory_is_exact(const ebb_context *ctx) { return ebb__pool_is_exact(ctx->pool); }
void ebb_memory_empty_cache(ebb_context *ctx) { ebb__pool_empty_cache(ctx->pool); }

void ebb_memory_each_stat(const ebb_context *ctx, void (*emit)(void *user, const char *key, uint64_t value), void *user)
{
    ebb__pool_each_stat(ctx->pool, emit, user);
}

size_t ebb_memory_outside_bytes(const ebb_context *ctx)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
    fclose(file);
    size_t resident = (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
    size_t pool = ebb__pool_resident_bytes(ctx->pool) + ebb__saver_resident_bytes(ctx);
    return resident > pool ? resident - pool : 0;
}
