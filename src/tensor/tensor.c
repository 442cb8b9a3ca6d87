/* tensor.c: tensors as counted names for bytes. */
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/mem.h"
#include "tensor/upward.h"

/* ---- shapes ------------------------------------------------------------------------------- */

bool ebb__dims_elems(int64_t *elems, int ndim, const int64_t *dims)
{
    int64_t n = 1; /* without the zeros, so that strides fit as well */
    bool empty = false;
    for (int i = 0; i < ndim; i++) {
        if (dims[i] < 0) return false;
        if (dims[i] == 0) empty = true;
        else if (__builtin_mul_overflow(n, dims[i], &n)) return false;
    }
    *elems = empty ? 0 : n;
    return true;
}

void ebb__arg_contiguous(ebb_arg *arg)
{
    int64_t stride = 1;
    for (int i = arg->ndim - 1; i >= 0; i--) {
        arg->strides[i] = stride;
        stride *= arg->dims[i] > 0 ? arg->dims[i] : 1;
    }
    bool fits = ebb__dims_elems(&arg->elems, arg->ndim, arg->dims);
    EBB_ASSERT(fits);
    (void)fits;
}

bool ebb__arg_same_shape(const ebb_arg *a, const ebb_arg *b)
{
    return a->ndim == b->ndim && memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof a->dims[0]) == 0;
}

void ebb__tensor_arg(const ebb_tensor *t, ebb_arg *arg)
{
    memset(arg, 0, sizeof *arg);
    arg->dtype = t->dtype;
    arg->ndim = t->ndim;
    arg->elems = t->elems;
    memcpy(arg->dims, t->dims, sizeof arg->dims);
    memcpy(arg->strides, t->strides, sizeof arg->strides);
    arg->data = ebb_tensor_data(t);
}

/* ---- making and freeing ------------------------------------------------------------------- */

static void list_add(ebb_tensor *t)
{
    ebb_context *ctx = t->ctx;
    pthread_mutex_lock(&ctx->lock);
    t->id = ctx->next_tensor_id++;
    t->prev = ctx->last_tensor;
    if (t->prev) t->prev->next = t;
    else ctx->tensors = t;
    ctx->last_tensor = t;
    pthread_mutex_unlock(&ctx->lock);
}

static void list_remove(ebb_tensor *t)
{
    ebb_context *ctx = t->ctx;
    pthread_mutex_lock(&ctx->lock);
    if (t->prev) t->prev->next = t->next;
    else ctx->tensors = t->next;
    if (t->next) t->next->prev = t->prev;
    else ctx->last_tensor = t->prev;
    pthread_mutex_unlock(&ctx->lock);
}

ebb_status ebb__tensor_over(ebb_tensor **out, ebb_storage *storage, const ebb_arg *shape, int64_t offset)
{
    ebb_tensor *t = ebb__calloc(1, sizeof *t);
    if (!t) return EBB_ENOMEM;
    atomic_init(&t->refs, 1);
    t->ctx = storage->ctx;
    t->storage = storage;
    ebb__storage_retain(storage);
    t->dtype = shape->dtype;
    t->ndim = shape->ndim;
    t->elems = shape->elems;
    t->offset = offset;
    memcpy(t->dims, shape->dims, sizeof t->dims);
    memcpy(t->strides, shape->strides, sizeof t->strides);
    list_add(t);
    *out = t;
    return EBB_OK;
}

ebb_status ebb__tensor_new(ebb_tensor **out, ebb_context *ctx, const ebb_arg *shape, const ebb__owner *owner)
{
    size_t bytes;
    if (!ebb__mul_size(&bytes, (size_t)shape->elems, ebb_dtype_bytes(shape->dtype)) || bytes > PTRDIFF_MAX)
        return ebb_fail(EBB_ESHAPE, "%s: %lld elements of %s overflow the address space",
                        owner->op ? owner->op : "tensor", (long long)shape->elems, ebb_dtype_name(shape->dtype));
    ebb_arg arg = *shape;
    ebb__arg_contiguous(&arg);
    ebb_storage *storage;
    ebb_status st = ebb__storage_new(&storage, ctx, bytes, owner);
    if (st != EBB_OK) return st;
    st = ebb__tensor_over(out, storage, &arg, 0);
    ebb__storage_release(storage);
    return st;
}

/* Not recursive in depth: nodes free one another from a list (ebb__node_release). */
static void tensor_free(ebb_tensor *t)
{
    list_remove(t);
    EBB_ASSERT(!t->pending);
    if (t->grad) ebb__engine_drop(&t->grad);
    ebb__hooks_free(t->hooks);
    ebb__node_release(t->node);
    ebb__segment_release(t->recipe.segment);
    ebb__storage_release(t->storage);
    ebb__free(t->name);
    ebb__free(t);
}

ebb_tensor *ebb_retain(ebb_tensor *t)
{
    if (t) atomic_fetch_add(&t->refs, 1);
    return t;
}

void ebb_drop(ebb_tensor **var)
{
    if (!var || !*var) return;
    ebb_tensor *t = *var;
    *var = NULL;
    if (atomic_fetch_sub(&t->refs, 1) == 1) tensor_free(t);
}

void ebb_move(ebb_tensor **out, ebb_tensor **from)
{
    if (out == from) return;
    ebb_tensor *old = *out;
    *out = *from;
    *from = NULL;
    ebb_drop(&old);
}

void ebb_bind(ebb_tensor **out, ebb_tensor *t)
{
    ebb_tensor *old = *out;
    *out = ebb_retain(t);
    ebb_drop(&old);
}

void ebb__engine_retain(ebb_tensor *t)
{
    atomic_fetch_add(&t->refs, 1);
    t->engine_refs++;
}

void ebb__engine_drop(ebb_tensor **t)
{
    if (!*t) return;
    (*t)->engine_refs--;
    ebb_drop(t);
}

bool ebb__tensor_is_sole(const ebb_tensor *t)
{
    return atomic_load(&t->refs) == 1 && atomic_load(&t->storage->refs) == 1;
}

/* ---- looking ------------------------------------------------------------------------------ */

int ebb_tensor_refcount(const ebb_tensor *t) { return t ? atomic_load(&t->refs) : 0; }
ebb_context *ebb_tensor_context(const ebb_tensor *t) { return t->ctx; }
ebb_dtype ebb_tensor_dtype(const ebb_tensor *t) { return t->dtype; }
int ebb_tensor_ndim(const ebb_tensor *t) { return t->ndim; }
const int64_t *ebb_tensor_dims(const ebb_tensor *t) { return t->dims; }
const int64_t *ebb_tensor_strides(const ebb_tensor *t) { return t->strides; }
int64_t ebb_tensor_elems(const ebb_tensor *t) { return t->elems; }
ebb_storage *ebb_tensor_storage(const ebb_tensor *t) { return t->storage; }
const char *ebb_tensor_name(const ebb_tensor *t) { return t->name ? t->name : ""; }

int64_t ebb_tensor_dim(const ebb_tensor *t, int axis)
{
    if (axis < 0) axis += t->ndim;
    return axis >= 0 && axis < t->ndim ? t->dims[axis] : 1;
}

bool ebb_tensor_is_contiguous(const ebb_tensor *t)
{
    int64_t stride = 1;
    for (int i = t->ndim - 1; i >= 0 && t->elems; i--) {
        if (t->dims[i] != 1 && t->strides[i] != stride) return false;
        stride *= t->dims[i];
    }
    return true;
}

void *ebb_tensor_data(const ebb_tensor *t)
{
    if (!t->storage->data) return NULL;
    return (char *)t->storage->data + (size_t)t->offset * ebb_dtype_bytes(t->dtype);
}

ebb_status ebb_tensor_set_name(ebb_tensor *t, const char *name)
{
    char *copy = name ? ebb__strdup(name) : NULL;
    if (name && !copy) return EBB_ENOMEM;
    ebb__free(t->name);
    t->name = copy;
    return EBB_OK;
}
