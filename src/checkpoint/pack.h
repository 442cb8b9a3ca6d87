/* checkpoint/pack.h: the bytes of one saved storage, kept elsewhere or in another form.
 *
 * Slots that save the same storage share its pack.  Everything that can fail is done before the call
 * that saves (reserve); packing itself cannot fail.  What an asynchronous copy still reads or writes
 * is let go only at fixed points of program order, after having the computation wait for the copy: so a
 * dry run, which copies nothing, allocates and frees in the same order.
 *   RESERVED -> HELD                   the packer could not: the bytes stay
 *            -> AWAY -> BACK -> AWAY   packed at once, unpacked when a slot is opened
 *            -> LEAVING -> AWAY        offloaded: the copy runs until the next storage is packed
 *                          AWAY -> COMING -> BACK   and starts back when the slot after it is opened */
#ifndef EBB_CHECKPOINT_PACK_H
#define EBB_CHECKPOINT_PACK_H

#include <ebb/checkpoint.h>
#include "autograd/saver.h"

typedef enum ebb__pack_state {
    EBB__PACK_RESERVED, EBB__PACK_HELD, EBB__PACK_LEAVING, EBB__PACK_AWAY, EBB__PACK_COMING, EBB__PACK_BACK
} ebb__pack_state;

typedef struct ebb__pack {
    int refs;                 /* slots, and the call that reserved it */
    int opened;               /* slots that are open */
    ebb__pack_state state;
    ebb_context *ctx;         /* counted */
    const ebb_packer *packer;
    ebb_storage *source;      /* what it was made of, while that is alive; not counted */
    uint32_t version;         /* of source, when it was packed */
    ebb_storage *storage;     /* counted: the bytes on the device; NULL: AWAY, or given to the one slot */
    ebb__block *block;        /* the packed form */
    bool drops;               /* packer->drop() is owed */
    size_t bytes;             /* of the storage */
    ebb_dtype dtype;
    ebb__owner owner;         /* who made it */
    struct ebb__pack *prev, *next; /* in the order of packing */
    ebb__piece piece;         /* of the copy under way, in the stream's queue until `ticket` */
    uint64_t ticket;
} ebb__pack;

/* A pack for a storage of that size; attached to `source` where that exists.  *out NULL: such a storage
 * is kept as it is.  Owner: *out is the caller's.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__pack_reserve(ebb__pack **out, ebb_context *ctx, const ebb_packer *packer,
                                           size_t bytes, ebb_dtype dtype, ebb_storage *source);
void ebb__pack_attach(ebb__pack *pack, ebb_storage *source);
void ebb__pack_release(ebb__pack *pack); /* NULL is fine */
/* Forgets a pack that the storage was changed since. */
void ebb__pack_forget_stale(ebb_storage *storage);
void ebb__pack_before_change(ebb_storage *storage); /* waits for a copy that reads it */
/* What came back for nobody goes again. */
void ebb__packs_rest(ebb_context *ctx);

/* policy.c: what is said of ops. */
const ebb_packer *ebb__saver_packer(ebb_saver saver, const ebb_packer *custom); /* NULL: does not pack */
/* How the outputs of the call that is being recorded are packed; NULL: not. */
const ebb_packer *ebb__output_packer(const ebb_context *ctx, const ebb_op *op);

/* offload.c: the host pool and the stream of copies. */
extern const ebb_packer ebb__offload;
EBB_NODISCARD ebb_status ebb__host_alloc(ebb__block **out, ebb_context *ctx, size_t bytes, const ebb__owner *owner);
void ebb__host_release(ebb_context *ctx, ebb__block *block);
void ebb__host_copy_out(ebb__pack *pack);  /* starts: storage to block */
void ebb__host_copy_back(ebb__pack *pack); /* starts: block to storage */
void ebb__host_join(ebb__pack *pack);      /* the computation goes on after the copy that was started last */
void ebb__host_close(ebb_context *ctx);
/* As ebb__pool_each_live(), of the host pool. */
void ebb__host_each_live(const ebb_context *ctx, void (*emit)(void *user, const ebb__block *block), void *user);
uint64_t ebb__host_fingerprint(const ebb_context *ctx); /* of the host pool's layout; 0: none yet */

/* compress.c */
extern const ebb_packer ebb__bf16_packer, ebb__int8_packer;

#endif
