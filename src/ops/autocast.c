/* autocast.c: which dtype a call runs in, per thread.
 * The casts are calls like any other, so nodes, segments and recipes need not know of autocast. */
#include "ops/autocast.h"

#include <ebb/autograd.h>

#include "ops/halves.h"

static _Thread_local ebb_dtype current = EBB_F32; /* f32: off */

ebb_dtype ebb_autocast(void) { return current; }

ebb_autocast_guard ebb_autocast_set(ebb_dtype dtype)
{
    ebb_autocast_guard guard = { (int)current };
    current = ebb__is_half(dtype) ? dtype : EBB_F32;
    return guard;
}

void ebb_autocast_restore(ebb_autocast_guard *guard) { current = (ebb_dtype)guard->previous; }

/* Indices and masks stay what they are. */
static bool takes_part(const ebb_op *op, ebb_tensor *const ins[], int i)
{
    return !(op->no_grad_in & EBB_IN(i)) && ebb_dtype_is_float(ebb_tensor_dtype(ins[i]));
}

/* Of the inputs that take part: f64 where one is, their own where all agree, else f32. */
static ebb_dtype widest(const ebb_op *op, ebb_tensor *const ins[], int n_ins)
{
    int first = -1;
    bool differ = false;
    for (int i = 0; i < n_ins; i++) {
        if (!takes_part(op, ins, i)) continue;
        if (ebb_tensor_dtype(ins[i]) == EBB_F64) return EBB_F64;
        if (first < 0) first = i;
        differ = differ || ebb_tensor_dtype(ins[i]) != ebb_tensor_dtype(ins[first]);
    }
    return first < 0 || differ ? EBB_F32 : ebb_tensor_dtype(ins[first]);
}

ebb_status ebb__autocast_inputs(const ebb_op *op, ebb_tensor *ins[], int n_ins)
{
    if (current == EBB_F32) return EBB_OK;
    ebb_dtype dtype = widest(op, ins, n_ins);
    if (dtype != EBB_F64 && op->autocast == EBB_AUTOCAST_LOW) dtype = current;
    if (dtype != EBB_F64 && op->autocast == EBB_AUTOCAST_F32) dtype = EBB_F32;
    for (int i = 0; i < n_ins; i++) {
        if (!takes_part(op, ins, i) || ebb_tensor_dtype(ins[i]) == dtype) continue;
        ebb_status st = ebb_cast(&ins[i], ins[i], dtype);
        if (st != EBB_OK) return st;
    }
    return EBB_OK;
}
