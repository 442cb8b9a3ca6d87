/* tensor/capture.h: captures whose numbers vary from launch to launch: those of optimizer steps, and the offset
 * of the generator (include/ebb/capture.h has the others, in which what was a number stays so). */
#ifndef EBB_TENSOR_CAPTURE_H
#define EBB_TENSOR_CAPTURE_H

#include <ebb/capture.h>

#include "device/accel.h"

/* EUNSUPPORTED, naming the device, where it has no graphs. */
EBB_NODISCARD ebb_status ebb__capture_possible(const ebb_context *ctx, const char *what);
/* As ebb_capture_begin(); ebb_capture_end() ends it. */
EBB_NODISCARD ebb_status ebb__capture_begin_varying(ebb_context *ctx);
EBB_NODISCARD ebb_status ebb__graph_launch_with(ebb_graph *graph, const ebb__accel_numbers *numbers);

#endif
