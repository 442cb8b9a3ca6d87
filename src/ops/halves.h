/* ops/halves.h: f16 and bf16 operands are widened to f32 in the workspace, and results narrowed.  Sums are
 * then rounded once. */
#ifndef EBB_OPS_HALVES_H
#define EBB_OPS_HALVES_H

#include <ebb/op.h>

static inline bool ebb__is_half(ebb_dtype dtype) { return dtype == EBB_F16 || dtype == EBB_BF16; }

/* EDTYPE unless input i is f32, f64, f16 or bf16. */
EBB_NODISCARD ebb_status ebb__require_float_dtype(const ebb_call *call, int i);

/* n elements, on the call's threads. */
void ebb__halves_widen(const ebb_call *call, float *to, const void *from, ebb_dtype dtype, int64_t n);
void ebb__halves_narrow(const ebb_call *call, void *to, const float *from, ebb_dtype dtype, int64_t n);

/* The same for a short row, on the calling thread. */
void ebb__halves_widen_row(float *to, const void *from, ebb_dtype dtype, int64_t n);
void ebb__halves_narrow_row(void *to, const float *from, ebb_dtype dtype, int64_t n);

/* ---- kernels that know f32 and f64 only, on halves: all operands of a pass widened, all results narrowed.
 * Of other dtypes the kernel runs as it is.  For ops that read contiguous inputs. ---- */
/* What the copies take and, where it is not NULL, the kernel's own workspace() for f32. */
size_t ebb__halves_workspace(const ebb_call *call, int pass, int threads,
                             size_t (*own)(const ebb_call *call, int pass, int threads));
EBB_NODISCARD ebb_status ebb__halves_run(const ebb_call *call, int pass, ebb_status (*kernel)(const ebb_call *call));

#endif
