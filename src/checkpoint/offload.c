/* offload.c: the host pool, and the stream that copies to it and back.
 * On the CPU a second pool stands for host memory, with its own limit and statistics.  With an accelerator
 * it is pinned memory, of exact sizes.  Nobody but that stream works with its blocks, so that one may be
 * given out again while a copy that reads or writes it is still to come. */
#include <string.h>

#include "checkpoint/pack.h"
#include "core/mem.h"
#include "tensor/upward.h"

const ebb_packer ebb__offload = { .name = "offload" };

struct ebb__host {
    ebb__pool *pool;
    ebb__stream *stream;
};

static ebb_status host_open(ebb_context *ctx)
{
    struct ebb__host *host = ebb__calloc(1, sizeof *host);
    if (!host) return EBB_ENOMEM;
    const ebb__accelerator *accel = ctx->device.accel;
    ebb__pool_options o = { .limit_bytes = ctx->host_limit_bytes, .checks = ctx->checks, .exact = accel != NULL };
    ebb__provider provider = ctx->device.provider;
    if (accel && accel->table) provider = accel->table->pinned(accel->self);
    if (accel) provider.touchable = false; /* free blocks may have copies to come: no fills, no poison */
    ebb_status st = ebb__pool_new(&host->pool, provider, &o);
    if (st == EBB_OK) st = ebb__stream_open(&host->stream, ctx->device.streams, "offload");
    if (st == EBB_OK) {
        ctx->host = host;
        return EBB_OK;
    }
    ebb__pool_free(host->pool);
    ebb__free(host);
    return st;
}

void ebb__host_close(ebb_context *ctx)
{
    if (!ctx->host) return;
    ebb__stream_close(ctx->host->stream);
    ebb__pool_free(ctx->host->pool);
    ebb__free(ctx->host);
    ctx->host = NULL;
}

ebb_status ebb__host_alloc(ebb__block **out, ebb_context *ctx, size_t bytes, const ebb__owner *owner)
{
    ebb_status st = ctx->host ? EBB_OK : host_open(ctx);
    return st == EBB_OK ? ebb__pool_alloc(ctx->host->pool, out, bytes, 0, owner) : st;
}

void ebb__host_release(ebb_context *ctx, ebb__block *block) { ebb__pool_release(ctx->host->pool, block); }

static void copy(ebb__pack *p, void *to, const void *from, ebb__accel_copy_kind kind)
{
    ebb__stream *stream = p->ctx->host->stream;
    ebb__stream_copy(stream, &p->piece, to, from, p->bytes, kind);
    p->ticket = ebb__stream_record(stream);
}

void ebb__host_copy_out(ebb__pack *p)
{
    copy(p, ebb__block_data(p->block), p->storage->data, EBB__FROM_DEVICE);
}

void ebb__host_copy_back(ebb__pack *p)
{
    copy(p, p->storage->data, ebb__block_data(p->block), EBB__TO_DEVICE);
}

void ebb__host_join(ebb__pack *p) { ebb__stream_join(p->ctx->host->stream, p->ticket); }

void ebb_host_memory_stats_get(const ebb_context *ctx, ebb_memory_stats *stats)
{
    memset(stats, 0, sizeof *stats);
    if (ctx->host) ebb__pool_stats(ctx->host->pool, stats);
}

void ebb_host_memory_reset_peak(ebb_context *ctx)
{
    if (ctx->host) ebb__pool_reset_peak(ctx->host->pool);
}

size_t ebb__saver_resident_bytes(const ebb_context *ctx)
{
    if (!ctx->host) return 0;
    if (ebb__device_is_host(&ctx->device)) return ebb__pool_resident_bytes(ctx->host->pool);
    ebb_memory_stats stats; /* pinned memory is all there */
    ebb__pool_stats(ctx->host->pool, &stats);
    return ctx->device.dry ? 0 : stats.reserved_bytes;
}

void ebb__host_each_live(const ebb_context *ctx, void (*emit)(void *user, const ebb__block *block), void *user)
{
    if (ctx->host) ebb__pool_each_live(ctx->host->pool, emit, user);
}

uint64_t ebb__host_fingerprint(const ebb_context *ctx)
{
    return ctx->host ? ebb__pool_fingerprint(ctx->host->pool) : 0;
}
