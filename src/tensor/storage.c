/* storage.c: counted bytes and the category they are in. */
#include "core/assert.h"
#include "core/mem.h"
#include "tensor/upward.h"

static ebb_category effective(const ebb_storage *s)
{
    if (s->base <= EBB_CAT_INPUT) return s->base;
    if (s->kept > 0) return EBB_CAT_ACTIVATION;
    if (s->refilled > 0) return EBB_CAT_RECOMPUTED;
    return s->base;
}

/* Appends to the context's list, so that ids grow along it. */
static void enlist(ebb_storage *s)
{
    ebb_context *ctx = s->ctx;
    pthread_mutex_lock(&ctx->lock);
    s->id = ctx->next_tensor_id++;
    s->prev = ctx->last_storage;
    if (s->prev) s->prev->next = s;
    else ctx->storages = s;
    ctx->last_storage = s;
    ctx->n_storages++;
    ctx->storage_bytes += s->bytes;
    pthread_mutex_unlock(&ctx->lock);
}

static void delist(ebb_storage *s)
{
    ebb_context *ctx = s->ctx;
    pthread_mutex_lock(&ctx->lock);
    if (s->prev) s->prev->next = s->next;
    else ctx->storages = s->next;
    if (s->next) s->next->prev = s->prev;
    else ctx->last_storage = s->prev;
    ctx->n_storages--;
    ctx->storage_bytes -= s->bytes;
    pthread_mutex_unlock(&ctx->lock);
}

ebb_status ebb__storage_new(ebb_storage **out, ebb_context *ctx, size_t bytes, const ebb__owner *owner)
{
    ebb_storage *s = ebb__calloc(1, sizeof *s);
    if (!s) return EBB_ENOMEM;
    ebb_status st = ebb__pool_alloc(ctx->pool, &s->block, bytes, 0, owner);
    if (st != EBB_OK) {
        ebb__free(s);
        return st;
    }
    atomic_init(&s->refs, 1);
    atomic_fetch_add(&ctx->refs, 1);
    s->ctx = ctx;
    s->bytes = bytes;
    s->base = owner->category;
    s->data = ctx->device.dry ? NULL : ebb__block_data(s->block);
    enlist(s);
    *out = s;
    return EBB_OK;
}

void ebb__storage_retain(ebb_storage *s) { atomic_fetch_add(&s->refs, 1); }

void ebb__storage_release(ebb_storage *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1) return;
    EBB_ASSERT(s->kept == 0 && s->refilled == 0);
    ebb_context *ctx = s->ctx;
    if (s->pack || s->contract) ebb__saver_storage_gone(s);
    delist(s);
    ebb__pool_release(ctx->pool, s->block);
    ebb__free(s);
    ebb__context_release(ctx);
}

void ebb__storage_bump(ebb_storage *s) { s->version++; }

static void move_category(ebb_storage *s)
{
    ebb_category want = effective(s);
    if (ebb__block_owner(s->block)->category != want) ebb__block_set_category(s->ctx->pool, s->block, want);
}

void ebb__storage_count_kept(ebb_storage *s, int change)
{
    s->kept += change;
    EBB_ASSERT(s->kept >= 0);
    move_category(s);
}

void ebb__storage_count_refilled(ebb_storage *s, int change)
{
    s->refilled += change;
    EBB_ASSERT(s->refilled >= 0);
    move_category(s);
}

size_t ebb_storage_bytes(const ebb_storage *s) { return s->bytes; }
uint64_t ebb_storage_id(const ebb_storage *s) { return s->id; }
uint32_t ebb_storage_version(const ebb_storage *s) { return s->version; }
ebb_category ebb_storage_category(const ebb_storage *s) { return effective(s); }

ebb_storage_info ebb_storage_info_get(const ebb_storage *s)
{
    const ebb__owner *owner = ebb__block_owner(s->block);
    return (ebb_storage_info){
        .id = s->id,
        .bytes = s->bytes,
        .category = effective(s),
        .op = owner->op ? owner->op : "",
        .scope = owner->scope ? owner->scope : "",
        .file = owner->file ? owner->file : "",
        .line = owner->line,
    };
}

void ebb_each_storage(const ebb_context *ctx, void (*emit)(void *user, const ebb_storage *storage), void *user)
{
    for (const ebb_storage *s = ctx->storages; s; s = s->next) emit(user, s);
}

const ebb_storage *ebb_storage_find(const ebb_context *ctx, uint64_t id)
{
    const ebb_storage *s = ctx->last_storage;
    while (s && s->id > id) s = s->prev;
    return s && s->id == id ? s : NULL;
}

void ebb_tensor_set_category(ebb_tensor *t, ebb_category category)
{
    t->storage->base = category;
    move_category(t->storage);
}
