/* tensor/upward.h: the calls that go upward: declared here, defined by the folder named. */
#ifndef EBB_TENSOR_UPWARD_H
#define EBB_TENSOR_UPWARD_H

#include "tensor/tensor.h"

void ebb__node_retain(ebb_node *node);          /* autograd */
void ebb__node_release(ebb_node *node);         /* autograd */
void ebb__hooks_free(struct ebb__hooks *hooks); /* autograd */
void ebb__segment_release(struct ebb__segment *segment); /* checkpoint */
void ebb__saver_storage_gone(ebb_storage *s);   /* checkpoint: it is freed */
void ebb__saver_deinit(ebb_context *ctx);       /* checkpoint: what the savers keep in a context */
size_t ebb__saver_resident_bytes(const ebb_context *ctx); /* checkpoint: of the host pool */
/* The tensor's bytes may be changed in place: ESTATE where they are in a segment from outside. */
EBB_NODISCARD ebb_status ebb__segment_allows_change(const ebb_tensor *t, const char *what); /* checkpoint */

/* Advice for the pool's out-of-memory message; an ebb__adviser whose self is the context. */
void ebb__advise_checkpoint(void *self, size_t wanted_bytes, char *buf, size_t buf_bytes); /* checkpoint */

#endif
