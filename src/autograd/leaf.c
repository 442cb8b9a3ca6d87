/* leaf.c: tensors that ask for a gradient, and the gradients they hold. */
#include "autograd/node.h"

ebb_status ebb_set_requires_grad(ebb_tensor *t, bool on)
{
    char shape[96];
    if (on && !ebb_dtype_is_float(t->dtype))
        return ebb_fail(EBB_EDTYPE, "requires_grad: %s; only floats have gradients",
                        ebb_tensor_describe(t, shape, sizeof shape));
    if (t->node)
        return ebb_fail(EBB_ESTATE,
                        "requires_grad: the tensor was made by %s; only a leaf can be told, detach it first",
                        ebb_node_name(t->node));
    t->requires_grad = on;
    return EBB_OK;
}

bool ebb_requires_grad(const ebb_tensor *t) { return ebb__tensor_wants_grad(t); }
ebb_tensor *ebb_grad(const ebb_tensor *leaf) { return leaf->grad; }
void ebb_drop_grad(ebb_tensor *leaf) { ebb__engine_drop(&leaf->grad); }

ebb_status ebb_set_grad(ebb_tensor *leaf, ebb_tensor *grad)
{
    char a[96], b[96];
    if (!grad) {
        ebb_drop_grad(leaf);
        return EBB_OK;
    }
    ebb_arg x, g;
    ebb__tensor_arg(leaf, &x);
    ebb__tensor_arg(grad, &g);
    if (leaf->node) return ebb_fail(EBB_ESTATE, "set_grad: only a leaf holds a gradient");
    if (leaf->ctx != grad->ctx) return ebb_fail(EBB_EDEVICE, "set_grad: the tensors belong to different contexts");
    if (x.dtype != g.dtype || !ebb__arg_same_shape(&x, &g))
        return ebb_fail(EBB_ESHAPE, "set_grad: the gradient is %s, the tensor %s",
                        ebb_tensor_describe(grad, b, sizeof b), ebb_tensor_describe(leaf, a, sizeof a));
    if (!ebb_tensor_is_contiguous(grad)) return ebb_fail(EBB_EINVAL, "set_grad: the gradient is not contiguous");
    if (leaf->grad == grad) return EBB_OK;
    ebb_drop_grad(leaf);
    ebb__engine_retain(grad);
    leaf->grad = grad;
    return EBB_OK;
}
