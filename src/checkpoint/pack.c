/* pack.c: reserving, packing, opening and letting go. */
#include "checkpoint/pack.h"

#include "core/assert.h"
#include "core/mem.h"
#include "core/site.h"
#include "tensor/upward.h"

static bool is_offload(const ebb__pack *p) { return p->packer == &ebb__offload; }

static ebb_arg as_row(const ebb__pack *p, const ebb_storage *storage)
{
    int64_t n = (int64_t)(p->bytes / ebb_dtype_bytes(p->dtype));
    return (ebb_arg){ .data = storage ? storage->data : NULL, .dtype = p->dtype, .ndim = 1, .elems = n,
                      .dims = { n }, .strides = { 1 } };
}

static void *packed_data(const ebb__pack *p) { return p->ctx->device.dry ? NULL : ebb__block_data(p->block); }

/* ---- the list ------------------------------------------------------------------------------ */

static void link_last(ebb__pack *p)
{
    p->prev = p->ctx->last_pack;
    if (p->prev) p->prev->next = p;
    p->ctx->last_pack = p;
}

static void unlink_pack(ebb__pack *p)
{
    if (p->prev) p->prev->next = p->next;
    if (p->next) p->next->prev = p->prev;
    else if (p->ctx->last_pack == p) p->ctx->last_pack = p->prev;
}

/* ---- bytes on the device ------------------------------------------------------------------- */

static void hold(ebb__pack *p, ebb_storage *storage)
{
    p->storage = storage;
    ebb__storage_count_kept(storage, 1);
}

static void let_go(ebb__pack *p)
{
    ebb_storage *storage = p->storage;
    if (!storage) return;
    p->storage = NULL;
    ebb__storage_count_kept(storage, -1);
    ebb__storage_release(storage);
}

/* A copy under way is joined: what is computed afterwards finds it done. */
static void finish_copy(ebb__pack *p)
{
    if (p->state != EBB__PACK_LEAVING && p->state != EBB__PACK_COMING) return;
    ebb__host_join(p);
    if (p->ctx->leaving == p) p->ctx->leaving = NULL;
    if (p->ctx->coming == p) p->ctx->coming = NULL;
}

static void send_away(ebb__pack *p)
{
    finish_copy(p);
    let_go(p);
    p->state = EBB__PACK_AWAY;
}

/* ---- reserving ----------------------------------------------------------------------------- */

static ebb_status reserve_block(ebb__pack *p, size_t bytes)
{
    return is_offload(p) ? ebb__host_alloc(&p->block, p->ctx, bytes, &p->owner)
                         : ebb__pool_alloc(p->ctx->pool, &p->block, bytes, 0, &p->owner);
}

ebb_status ebb__pack_reserve(ebb__pack **out, ebb_context *ctx, const ebb_packer *packer, size_t bytes,
                             ebb_dtype dtype, ebb_storage *source)
{
    ebb__pack shape = { .bytes = bytes, .dtype = dtype };
    ebb_arg row = as_row(&shape, NULL);
    size_t packed = bytes;
    *out = NULL;
    EBB__TRY(ebb__device_not_capturing(&ctx->device, packer->name));
    if (packer->packed_bytes) packed = packer->packed_bytes(packer->user, &row);
    if (bytes == 0 || packed == SIZE_MAX) return EBB_OK;
    ebb__pack *p = ebb__calloc(1, sizeof *p);
    if (!p) return EBB_ENOMEM;
    *p = (ebb__pack){ .refs = 1, .ctx = ctx, .packer = packer, .bytes = bytes, .dtype = dtype,
                      .owner = ebb__owner_now(ctx, EBB_CAT_ACTIVATION, packer->name) };
    ebb_status st = reserve_block(p, packed);
    if (st != EBB_OK) {
        ebb__free(p);
        return st;
    }
    atomic_fetch_add(&ctx->refs, 1);
    if (source) ebb__pack_attach(p, source);
    *out = p;
    return EBB_OK;
}

void ebb__pack_attach(ebb__pack *p, ebb_storage *source)
{
    EBB_ASSERT(!source->pack && !p->source);
    p->source = source;
    source->pack = p;
}

void ebb__pack_release(ebb__pack *p)
{
    if (!p || --p->refs > 0) return;
    ebb_context *ctx = p->ctx;
    finish_copy(p);
    let_go(p);
    if (p->drops && p->packer->drop) p->packer->drop(p->packer->user, packed_data(p));
    if (is_offload(p)) ebb__host_release(ctx, p->block);
    else ebb__pool_release(ctx->pool, p->block);
    if (p->source) p->source->pack = NULL;
    unlink_pack(p);
    ebb__free(p);
    ebb__context_release(ctx);
}

void ebb__pack_forget_stale(ebb_storage *storage)
{
    ebb__pack *p = storage->pack;
    if (!p || p->state == EBB__PACK_RESERVED || p->version == storage->version) return;
    p->source = NULL;
    storage->pack = NULL;
}

void ebb__pack_before_change(ebb_storage *storage)
{
    if (storage->pack && storage->pack->state == EBB__PACK_LEAVING) send_away(storage->pack);
}

/* ---- packing ------------------------------------------------------------------------------- */

static void pack_now(ebb__pack *p, ebb_storage *storage)
{
    ebb_context *ctx = p->ctx;
    ebb_arg row = as_row(p, storage);
    p->version = storage->version;
    link_last(p);
    ctx->packed_from_bytes += is_offload(p) ? 0 : p->bytes;
    ctx->packed_bytes += is_offload(p) ? 0 : ebb__block_requested(p->block);
    if (!is_offload(p)) {
        p->drops = !ctx->device.dry && p->packer->pack(p->packer->user, &row, packed_data(p));
        if (p->drops || ctx->device.dry) {
            p->state = EBB__PACK_AWAY;
            return;
        }
    }
    ebb__storage_retain(storage);
    hold(p, storage);
    p->state = EBB__PACK_HELD;
    if (!is_offload(p)) return;
    if (ctx->leaving) send_away(ctx->leaving); /* the fixed point at which the one before is let go */
    ctx->leaving = p;
    ctx->offloaded_bytes += p->bytes;
    p->state = EBB__PACK_LEAVING;
    ebb__host_copy_out(p);
}

bool ebb__pack_take(ebb__slot *slot, ebb_storage *storage)
{
    ebb__pack *p = storage->pack;
    if (!p || (p->state != EBB__PACK_RESERVED && p->version != storage->version)) return false;
    p->refs++;
    slot->pack = p;
    slot->state = EBB_SLOT_PACKED;
    if (p->state == EBB__PACK_RESERVED) pack_now(p, storage);
    return true;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* AWAY -> BACK, or COMING where a copy has to run. */
static ebb_status fetch(ebb__pack *p)
{
    if (p->source && p->source->version == p->version) { /* somebody holds the bytes anyway */
        ebb__storage_retain(p->source);
        hold(p, p->source);
        p->state = EBB__PACK_BACK;
        return EBB_OK;
    }
    ebb__owner owner = p->owner;
    owner.category = EBB_CAT_TEMPORARY;
    owner.phase = p->ctx->phase;
    ebb_storage *storage = NULL;
    ebb_status st = ebb__storage_new(&storage, p->ctx, p->bytes, &owner);
    if (st != EBB_OK) return st;
    hold(p, storage);
    p->state = EBB__PACK_BACK;
    if (is_offload(p)) {
        p->ctx->fetched_bytes += p->bytes;
        p->state = EBB__PACK_COMING;
        ebb__host_copy_back(p);
    } else if (!p->ctx->device.dry) {
        ebb_arg row = as_row(p, storage);
        st = p->packer->unpack(p->packer->user, &row, packed_data(p));
    }
    if (st != EBB_OK) send_away(p);
    return st;
}

/* The storage that was packed before this one is likely needed next. */
static ebb_status prefetch_before(ebb__pack *p)
{
    if (p->ctx->coming) return EBB_OK;
    ebb__pack *next = p->prev;
    while (next && !(is_offload(next) && next->state == EBB__PACK_AWAY && next->opened == 0)) next = next->prev;
    if (!next) return EBB_OK;
    ebb_status st = fetch(next);
    if (next->state == EBB__PACK_COMING) p->ctx->coming = next;
    return st;
}

/* The only slot takes the bytes over, so that a kernel may write over them. */
static void give_to_slot(ebb__pack *p, ebb__slot *slot)
{
    bool over = p->refs == 1 && p->state == EBB__PACK_BACK && !p->ctx->retain_graph;
    slot->storage = p->storage;
    if (over) {
        p->storage = NULL;
        p->state = EBB__PACK_AWAY;
    } else {
        ebb__storage_retain(p->storage);
        ebb__storage_count_kept(p->storage, 1);
    }
    slot->state = EBB_SLOT_UNPACKED;
    p->opened++;
}

ebb_status ebb__pack_open(ebb__slot *slot)
{
    ebb__pack *p = slot->pack;
    ebb_status st = p->state == EBB__PACK_AWAY ? fetch(p) : EBB_OK;
    if (st != EBB_OK) return st;
    if (p->state == EBB__PACK_COMING) {
        finish_copy(p);
        p->state = EBB__PACK_BACK;
    }
    give_to_slot(p, slot);
    return is_offload(p) ? prefetch_before(p) : EBB_OK;
}

void ebb__pack_shut(ebb__slot *slot)
{
    ebb__pack *p = slot->pack;
    slot->state = EBB_SLOT_PACKED;
    p->opened--;
    if (p->opened == 0 && p->state == EBB__PACK_BACK && p->ctx->retain_graph) send_away(p);
}

void ebb__pack_drop(ebb__slot *slot)
{
    ebb__pack *p = slot->pack;
    slot->pack = NULL;
    ebb__pack_release(p);
}

void ebb__packs_rest(ebb_context *ctx)
{
    for (ebb__pack *p = ctx->last_pack; p; p = p->prev)
        if (p->opened == 0 && (p->state == EBB__PACK_BACK || p->state == EBB__PACK_COMING)) send_away(p);
}
