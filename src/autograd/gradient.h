/* autograd/gradient.h: one backward while it runs, and where its gradients go. */
#ifndef EBB_AUTOGRAD_GRADIENT_H
#define EBB_AUTOGRAD_GRADIENT_H

#include "autograd/node.h"

typedef struct ebb__walk {
    ebb_context *ctx;
    uint64_t number;               /* stamp of the nodes and leaves it reaches */
    ebb_backward_options options;
    ebb_tensor *const *roots;
    int n_roots;
    ebb_node **nodes;              /* counted; youngest first once found */
    size_t n_nodes, cap_nodes;
    ebb_tensor **found;            /* [n_targets], counted: the targets' gradients until all went well */
    ebb_tensor **leaves;           /* counted */
    size_t n_leaves, cap_leaves;
} ebb__walk;

/* Computes the wanted gradients of one node from node->pending and hands them on. */
EBB_NODISCARD ebb_status ebb__node_backward(ebb__walk *w, ebb_node *node);
/* Adds a whole gradient at `edge`; *grad may be taken over. */
EBB_NODISCARD ebb_status ebb__gradient_add(ebb__walk *w, const ebb__edge *edge, ebb_tensor **grad);
/* The node gave no gradients: its leaves wait for one contribution less. */
EBB_NODISCARD ebb_status ebb__gradient_skip(ebb__walk *w, const ebb_node *node);
/* After the walk: leaves whose last contribution never came. */
EBB_NODISCARD ebb_status ebb__gradient_finish(ebb__walk *w);

#endif
