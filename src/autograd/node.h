/* autograd/node.h: recorded calls, their edges and their saved slots. */
#ifndef EBB_AUTOGRAD_NODE_H
#define EBB_AUTOGRAD_NODE_H

#include "core/site.h"
#include "ops/record.h"

/* A call without its data: enough to replay it.  Counted: nodes and segments share it. */
typedef struct ebb__record {
    atomic_int refs;
    const ebb_op *op;
    int n_in, n_out;
    uint64_t rng_seed, rng_offset;
    int64_t view_offset;
    const char *scope;          /* for the ledger */
    ebb__site site;
    uint64_t node;              /* seq; 0: none */
    unsigned char attrs[EBB_ATTR_BYTES];
    ebb_arg args[];             /* n_in inputs, then n_out outputs; data NULL */
} ebb__record;

EBB_NODISCARD ebb_status ebb__record_new(ebb__record **out, const ebb_call *call);
void ebb__record_release(ebb__record *record); /* NULL is fine */
/* Fills `call` (zeroed first); no data. */
void ebb__record_to_call(const ebb__record *record, ebb_context *ctx, ebb_call *call);

/* A saved tensor: a promise to yield its bytes.  `where` says how it is kept now.
 * KEPT: storage is held.  PROMISED: promise.segment will make it.  REFILLED: both.
 * PACKED: pack will give it.  UNPACKED: both. */
typedef struct ebb__slot {
    ebb_slot_state state;
    uint32_t version;           /* of storage when saved (KEPT) */
    ebb_storage *storage;       /* KEPT, REFILLED, UNPACKED: counted */
    int64_t offset;             /* elements into storage */
    ebb__promise promise;       /* PROMISED, REFILLED: counted segment */
    struct ebb__pack *pack;     /* PACKED, UNPACKED: counted */
    uint64_t hash;              /* PROMISED: of the bytes, when the context checks recomputes; 0: unknown */
    struct ebb__slot *prev, *next; /* the segment's list of promises */
    struct ebb__slot *chain;    /* scratch of a replay */
    bool remade;                /* REFILLED: by a call that ran again; else the bytes were kept all along */
    size_t bytes;               /* of the storage */
    uint64_t released_by;       /* number of the backward that released it */
} ebb__slot;

/* Saves `t` (bytes held, or a promise where a saver can make them again).  Never fails. */
void ebb__slot_save(ebb__slot *slot, ebb_tensor *t);
void ebb__slot_keep(ebb__slot *slot, ebb_storage *storage, int64_t offset);
/* Whether opening fails for what the slot is: released, or its bytes were changed. */
bool ebb__slot_is_stale(const ebb__slot *slot);
/* Makes the bytes be there: refills where promised.  `what` ("linear #7, slot in0") names it where it is stale.
 * Errors: ESTATE (released; changed in place), and what a recompute gives. */
EBB_NODISCARD ebb_status ebb__slot_open(ebb__slot *slot, const char *what);
void *ebb__slot_data(const ebb__slot *slot, ebb_dtype dtype);
void ebb__slot_release(ebb__slot *slot, uint64_t backward); /* RELEASED; what it held is dropped */
/* REFILLED -> PROMISED, UNPACKED -> PACKED, where it can be made again. */
void ebb__slot_unfill(ebb__slot *slot);

/* Where the gradient of an input goes.  At most one of node and leaf is set; none: not wanted. */
typedef struct ebb__edge { ebb_node *node; ebb_tensor *leaf; int out; } ebb__edge;

struct ebb_node {
    atomic_int refs;
    ebb_context *ctx;
    uint64_t seq;
    ebb_node *prev, *next;      /* the context's list of live nodes */
    ebb__record *record;        /* counted */
    ebb__edge *edges;           /* n_in */
    ebb__slot *slots;           /* n_slots */
    int n_slots;
    signed char slot_of_in[EBB_MAX_IN], slot_of_out[EBB_MAX_OUT]; /* -1: not saved */
    struct ebb__hooks *hooks[EBB_MAX_OUT]; /* on the gradients of its outputs */
    bool released;
    uint64_t released_by;       /* number of that backward */

    /* Scratch of the backward that runs. */
    uint64_t stamp;
    bool wanted;                /* lies on a way to a target */
    ebb_tensor *pending[EBB_MAX_OUT]; /* gradients of the outputs, gathered */
    ebb_node *free_next;        /* list of nodes being freed */
};

EBB_NODISCARD ebb_status ebb__node_new(ebb_node **out, const ebb_call *call, ebb__record *record,
                                       ebb_tensor *const ins[]);
/* Union of needs over the inputs whose gradient is wanted. */
uint32_t ebb__node_needs(const ebb_node *node);
/* "in0" and so on. */
const char *ebb__slot_name(const ebb_node *node, int slot);
/* Releases every saved slot. */
void ebb__node_release_slots(ebb_node *node, uint64_t backward);
bool ebb__tensor_wants_grad(const ebb_tensor *t);

#endif
