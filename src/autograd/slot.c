/* slot.c: a saved slot is a promise; how it is kept is its state. */
#include "autograd/saver.h"
#include "core/assert.h"

void ebb__slot_keep(ebb__slot *slot, ebb_storage *storage, int64_t offset)
{
    EBB_ASSERT(slot->state == EBB_SLOT_EMPTY);
    slot->offset = offset;
    slot->version = storage->version;
    slot->bytes = storage->bytes;
    if (ebb__pack_take(slot, storage)) return;
    slot->state = EBB_SLOT_KEPT;
    slot->storage = storage;
    ebb__storage_retain(storage);
    ebb__storage_count_kept(storage, 1);
}

void ebb__slot_save(ebb__slot *slot, ebb_tensor *t)
{
    ebb__promise promise = ebb__saver_promise(t);
    slot->bytes = t->storage->bytes;
    if (promise.segment) ebb__promise_take(slot, promise, t->storage);
    else ebb__slot_keep(slot, t->storage, t->offset);
}

static void drop_bytes(ebb__slot *slot)
{
    ebb_storage *storage = slot->storage;
    slot->storage = NULL;
    if (slot->state == EBB_SLOT_KEPT || !slot->remade) ebb__storage_count_kept(storage, -1);
    else ebb__storage_count_refilled(storage, -1);
    ebb__storage_release(storage);
}

void ebb__slot_unfill(ebb__slot *slot)
{
    if (slot->state == EBB_SLOT_UNPACKED) {
        drop_bytes(slot);
        ebb__pack_shut(slot);
    }
    if (slot->state != EBB_SLOT_REFILLED || !ebb__promise_repeatable(slot)) return;
    drop_bytes(slot);
    slot->state = EBB_SLOT_PROMISED;
}

void ebb__slot_release(ebb__slot *slot, uint64_t backward)
{
    if (slot->state == EBB_SLOT_EMPTY || slot->state == EBB_SLOT_RELEASED) return;
    if (slot->storage) drop_bytes(slot);
    if (slot->state == EBB_SLOT_UNPACKED) ebb__pack_shut(slot);
    slot->state = EBB_SLOT_RELEASED;
    slot->released_by = backward;
    if (slot->pack) ebb__pack_drop(slot);
    if (slot->promise.segment) ebb__promise_drop(slot);
}

static bool holds_bytes(const ebb__slot *slot)
{
    return slot->state == EBB_SLOT_KEPT || slot->state == EBB_SLOT_REFILLED || slot->state == EBB_SLOT_UNPACKED;
}

bool ebb__slot_is_stale(const ebb__slot *slot)
{
    return slot->state == EBB_SLOT_RELEASED || (holds_bytes(slot) && slot->version != slot->storage->version);
}

ebb_status ebb__slot_open(ebb__slot *slot, const char *what)
{
    if (slot->state == EBB_SLOT_PROMISED) return ebb__promise_fill(slot);
    if (slot->state == EBB_SLOT_PACKED) return ebb__pack_open(slot);
    if (slot->state == EBB_SLOT_RELEASED)
        return ebb_fail(EBB_ESTATE, "%s was released by backward %llu", what, (unsigned long long)slot->released_by);
    EBB_ASSERT(slot->state != EBB_SLOT_EMPTY);
    if (slot->version != slot->storage->version)
        return ebb_fail(EBB_ESTATE, "%s was changed in place since it was saved: saved version %u, found %u", what,
                        slot->version, slot->storage->version);
    return EBB_OK;
}

void *ebb__slot_data(const ebb__slot *slot, ebb_dtype dtype)
{
    if (!slot->storage->data) return NULL;
    return (char *)slot->storage->data + (size_t)slot->offset * ebb_dtype_bytes(dtype);
}
