/* ebb/autograd.h: recording and backward.
 * A node is recorded when an input needs a gradient and the grad mode is on.  After each node's
 * backward its saved slots are released at once, before the next node runs. */
#ifndef EBB_AUTOGRAD_H
#define EBB_AUTOGRAD_H

#include <ebb/op.h>
#include <ebb/ops.h>

EBB_BEGIN_DECLS

/* ---- leaves ------------------------------------------------------------------------------ */
/* Only a float tensor without history can be told to need a gradient.  Errors: EDTYPE, ESTATE. */
EBB_API EBB_NODISCARD ebb_status ebb_set_requires_grad(ebb_tensor *t, bool on);
EBB_API bool ebb_requires_grad(const ebb_tensor *t); /* a leaf that asks, or a result that has history */
EBB_API ebb_tensor *ebb_grad(const ebb_tensor *leaf); /* borrowed; NULL: none yet */
EBB_API void ebb_drop_grad(ebb_tensor *leaf);        /* frees the gradient's bytes */
/* grad: contiguous, retained; NULL drops. */
EBB_API EBB_NODISCARD ebb_status ebb_set_grad(ebb_tensor *leaf, ebb_tensor *grad);

/* ---- modes: per thread, scoped ----------------------------------------------------------- */
/* EBB_INFERENCE does what EBB_NO_GRAD does, under PyTorch's other name: calls record and keep nothing. */
typedef enum ebb_grad_mode { EBB_GRAD_ON, EBB_NO_GRAD, EBB_INFERENCE } ebb_grad_mode;
typedef struct ebb_mode_guard { int previous; } ebb_mode_guard;
EBB_API ebb_mode_guard ebb_mode_set(ebb_grad_mode mode);
EBB_API void ebb_mode_restore(ebb_mode_guard *guard);
EBB_API ebb_grad_mode ebb_mode(void);
/* EBB_WITH_MODE(EBB_NO_GRAD); holds until the scope ends, early returns included.  Once per scope. */
#define EBB_WITH_MODE(mode)                                                                  \
    __attribute__((cleanup(ebb_mode_restore), unused)) ebb_mode_guard ebb_mode_guard_ = ebb_mode_set(mode)

/* ---- autocast: mixed precision, per thread, scoped --------------------------------------- */
/* While it is on, calls run in the dtype that their op's `autocast` rule says: products in `dtype`,
 * losses, sums and norms in f32, others in that of their inputs (where those differ, in f32); a call
 * with an f64 input runs in f64.  Inputs of another float dtype are cast before, by recorded `cast`
 * calls: the gradient of an f32 weight is f32, and what segments and recipes make again is what
 * forward ran, whatever is on when backward is called.  A weight is cast at each use; a recipe for
 * `cast` keeps those copies from being saved.  Without it mixed dtypes are an error (EDTYPE). */
typedef struct ebb_autocast_guard { int previous; } ebb_autocast_guard;
/* EBB_BF16 or EBB_F16; any other dtype: off. */
EBB_API ebb_autocast_guard ebb_autocast_set(ebb_dtype dtype);
EBB_API void ebb_autocast_restore(ebb_autocast_guard *guard);
EBB_API ebb_dtype ebb_autocast(void); /* EBB_F32: off */
/* EBB_WITH_AUTOCAST(EBB_BF16); holds until the scope ends, early returns included.  Once per scope. */
#define EBB_WITH_AUTOCAST(dtype)                                                                                       \
    __attribute__((cleanup(ebb_autocast_restore), unused)) ebb_autocast_guard ebb_autocast_guard_ =                    \
        ebb_autocast_set(dtype)

/* ---- backward ---------------------------------------------------------------------------- */
typedef struct ebb_backward_options {
    size_t struct_bytes;
    bool retain_graph;          /* keep saved slots, so that backward can run again */
    ebb_tensor *const *grads;   /* per root, dL/droot (same shape and dtype); NULL: ones, and then
                                   roots must have one element */
    ebb_tensor *const *targets; /* when set: gradients of these go to target_grads (variables, NULL
                                   where no path leads to the target) and no leaf accumulates */
    ebb_tensor **target_grads;  /* bound when all went well; one listed twice is bound twice */
    int n_targets;
} ebb_backward_options;

/* Walks in reverse order of creation; never recursive.  Errors: ESTATE (a node's saved tensors were
 * released by an earlier backward, which is named; or changed in place since they were saved),
 * ESHAPE, EDTYPE, EUNSUPPORTED, ENOMEM, a hook's error.  A backward refused before its first node
 * (released graph, bad root) changes nothing.  One that fails midway releases the graph's saved
 * tensors and drops every leaf gradient it touched: see ebb_gradients_valid(). */
EBB_API EBB_NODISCARD ebb_status ebb_backward_ex(ebb_tensor *const roots[], int n_roots,
                                                 const ebb_backward_options *options);
EBB_API EBB_NODISCARD ebb_status ebb_backward(ebb_tensor *root);
/* False from a backward that failed midway until ebb_gradients_reset(): optimizers refuse (ESTATE)
 * until the accumulation group is done again. */
EBB_API bool ebb_gradients_valid(const ebb_context *ctx);
EBB_API void ebb_gradients_reset(ebb_context *ctx);

/* ---- hooks ------------------------------------------------------------------------------- */
typedef struct ebb_visitor ebb_visitor; /* calls back with the tensors that user data holds */
EBB_API void ebb_visit(ebb_visitor *visitor, ebb_tensor *held);

typedef struct ebb_hook {
    void *user;
    /* On a tensor's gradient, when it is complete and before it is used.  *grad may be rebound to a
     * tensor of the same shape and dtype.  Runs in order of registration.  `t` is the leaf; NULL for
     * a result, whose last handle may be gone by then. */
    ebb_status (*on_grad)(void *user, ebb_tensor *t, ebb_tensor **grad);
    /* On a leaf, after this backward's last contribution is in ebb_grad(leaf), when no node of it reads
     * the leaf any more.  May drop the gradient and change the leaf. */
    ebb_status (*on_accumulated)(void *user, ebb_tensor *leaf);
    void (*visit)(void *user, ebb_visitor *visitor); /* NULL: holds no tensors */
    void (*free)(void *user);                        /* NULL: nothing to free */
} ebb_hook;
/* Copies *hook.  *id (may be NULL) names it for ebb_hook_remove(). */
EBB_API EBB_NODISCARD ebb_status ebb_hook_add(ebb_tensor *t, const ebb_hook *hook, int *id);
EBB_API void ebb_hook_remove(ebb_tensor *t, int id);

/* Finds cycles through hooks' user data that nothing outside reaches (trial deletion) and frees
 * them.  Returns the number of tensors freed. */
EBB_API size_t ebb_collect(ebb_context *ctx);
/* How many it would free now. */
EBB_API size_t ebb_cyclic_tensors(const ebb_context *ctx);
/* The same two with a status: ENOMEM where there is no memory to look with; those above say 0 then. */
EBB_API EBB_NODISCARD ebb_status ebb_cycles_free(size_t *tensors, ebb_context *ctx);
EBB_API EBB_NODISCARD ebb_status ebb_cycles_count(size_t *tensors, const ebb_context *ctx);

/* ---- looking ----------------------------------------------------------------------------- */
typedef enum ebb_slot_state {
    EBB_SLOT_EMPTY,
    EBB_SLOT_KEPT,     /* holds the bytes */
    EBB_SLOT_PROMISED, /* a segment or recipe will make them again ... */
    EBB_SLOT_REFILLED, /* ... and has */
    EBB_SLOT_PACKED,   /* they are in host memory, compressed, or with a saver of the user's ... */
    EBB_SLOT_UNPACKED, /* ... and are back */
    EBB_SLOT_RELEASED
} ebb_slot_state;
typedef struct ebb_slot_info {
    const char *name;      /* "in0", "out0", "out1" */
    ebb_slot_state state;
    size_t bytes;          /* of its storage; what is held only when KEPT, REFILLED or UNPACKED */
    uint32_t version;      /* of the storage, when it was saved */
} ebb_slot_info;

EBB_API ebb_node *ebb_tensor_node(const ebb_tensor *t); /* borrowed; NULL for a leaf */
EBB_API const char *ebb_node_name(const ebb_node *node);  /* "gelu" */
EBB_API uint64_t ebb_node_seq(const ebb_node *node);      /* order of creation, 1.. */
EBB_API const char *ebb_node_scope(const ebb_node *node); /* "" when none */
EBB_API int ebb_node_slots(const ebb_node *node, ebb_slot_info *slots, int max); /* returns how many */
EBB_API size_t ebb_live_nodes(const ebb_context *ctx);
/* Calls `emit` for each storage that saved slots of live nodes hold, once, with the oldest node that
 * holds it and the slot's name; parameters that are saved are among them. */
EBB_API void ebb_each_saved(const ebb_context *ctx,
                            void (*emit)(void *user, const ebb_node *node, const char *slot,
                                         const ebb_storage *storage),
                            void *user);
/* Bytes that live nodes keep: each storage once. */
EBB_API size_t ebb_saved_bytes(const ebb_context *ctx);

/* Calls `emit` for each live node in order of creation. */
EBB_API void ebb_each_node(const ebb_context *ctx, void (*emit)(void *user, const ebb_node *node), void *user);

/* Why a storage is alive: writes lines, one per holder, each with a path from a live handle
 * ("handle 'loss' -> add #12 -> linear #7, slot in0"), or from a hook where only its user data, as its
 * visit function tells them, are left ("hook at loop.c:12 on 'w', which holds 'h'"; a hook without visit
 * looks like a handle).  Returns the length that all lines need, as snprintf does. */
EBB_API size_t ebb_why(const ebb_storage *storage, char *buf, size_t buf_bytes);

EBB_END_DECLS
#endif
