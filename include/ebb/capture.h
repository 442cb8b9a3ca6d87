/* ebb/capture.h: work that is captured once and then launched as a whole, without its calls.
 *
 *     EBB_TRY(ebb_capture_begin(ctx));
 *     ... calls of ebb: nothing is computed, all of it becomes the graph ...
 *     EBB_TRY(ebb_capture_end(&graph, ctx));
 *     for (...) { EBB_TRY(ebb_write(x, ...)); EBB_TRY(ebb_graph_launch(graph)); EBB_TRY(ebb_item(loss, &value)); }
 *
 * A launch does the same work on the same addresses: it reads what lies in the tensors that were there before
 * (keep them), and writes the tensors that the captured calls made (those that are still alive may be read).
 * What was a number when it was captured stays so: learning rates, the step that AdamW corrects for, the
 * generator's offset.  Devices with graphs have it: accelerators. */
#ifndef EBB_CAPTURE_H
#define EBB_CAPTURE_H

#include <ebb/tensor.h>

typedef struct ebb_graph ebb_graph; /* opaque; single owner */

EBB_BEGIN_DECLS

/* Until the end nothing may wait for the device: reading and writing values, clipping, offloading and taking
 * a batch from a loader are ESTATE.  Memory comes from segments of the graph's own; none is given back, so that
 * a request may fail that otherwise would have been served.
 * Errors: EUNSUPPORTED (no graphs on this device), ESTATE (a capture runs), EDEVICE. */
EBB_API EBB_NODISCARD ebb_status ebb_capture_begin(ebb_context *ctx);
/* The capture is over, also on errors; then its memory is the context's again.  out NULL: it is thrown away.
 * Owner: *out is the caller's.  Errors: ESTATE (none runs), EDEVICE, ENOMEM. */
EBB_API EBB_NODISCARD ebb_status ebb_capture_end(ebb_graph **out, ebb_context *ctx);
/* Asynchronous.  Errors: EDEVICE, ESTATE (while a capture runs). */
EBB_API EBB_NODISCARD ebb_status ebb_graph_launch(ebb_graph *graph);
/* Waits for its launches; its memory is the context's again.  NULL is a no-op. */
EBB_API void ebb_graph_free(ebb_graph *graph);

EBB_END_DECLS
#endif
