/* ebb/ops.h: the ops, as plain verbs.
 * Results go to the first parameter: the variable is rebound, what it held is dropped; on error it
 * keeps what it held.  Inputs are borrowed.  All inputs of one call share one dtype and context
 * (index and mask inputs aside; autocast of ebb/autograd.h makes dtypes agree): EDTYPE, EDEVICE.  Shapes that do not
 * fit: ESHAPE.  Shapes are written in the order B T H C. */
#ifndef EBB_OPS_H
#define EBB_OPS_H

#include <ebb/tensor.h>

EBB_BEGIN_DECLS

#define EBB_UNARY(name) EBB_API EBB_NODISCARD ebb_status name(ebb_tensor **out, ebb_tensor *x)
#define EBB_BINARY(name) EBB_API EBB_NODISCARD ebb_status name(ebb_tensor **out, ebb_tensor *a, ebb_tensor *b)

/* ---- elementwise; binary ones broadcast as NumPy does ------------------------------------ */
EBB_BINARY(ebb_add);
EBB_BINARY(ebb_sub);
EBB_BINARY(ebb_mul);
EBB_BINARY(ebb_div);
EBB_API EBB_NODISCARD ebb_status ebb_scale(ebb_tensor **out, ebb_tensor *x, double factor);
EBB_UNARY(ebb_neg);
EBB_UNARY(ebb_exp);
EBB_UNARY(ebb_tanh);
EBB_UNARY(ebb_sigmoid);
EBB_UNARY(ebb_relu); /* the gradient at 0 is 0 */
EBB_UNARY(ebb_silu); /* x * sigmoid(x) */

/* The two gelus differ by up to 4.73e-4 (at |x| = 2.70); nobody may guess which one is meant. */
typedef enum ebb_gelu_kind {
    EBB_GELU_ERF, /* x * Phi(x); "gelu" of BERT.  Hendrycks and Gimpel, arXiv 1606.08415 */
    EBB_GELU_TANH /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); "gelu_new" of GPT-2 */
} ebb_gelu_kind;
EBB_API EBB_NODISCARD ebb_status ebb_gelu(ebb_tensor **out, ebb_tensor *x, ebb_gelu_kind kind);
/* silu(gate) * up; both [..., F].  Shazeer, arXiv 2002.05202. */
EBB_API EBB_NODISCARD ebb_status ebb_swiglu(ebb_tensor **out, ebb_tensor *gate, ebb_tensor *up);

/* Inverted dropout: each element is 0 with probability p, else x / (1 - p).  The mask is a pure
 * function of (seed, offset), so nothing is saved.  p in [0, 1]; p = 1 gives zeros; p = 0 gives x. */
EBB_API EBB_NODISCARD ebb_status ebb_dropout(ebb_tensor **out, ebb_tensor *x, double p);
/* Rounds to nearest even; f32 f64 f16 bf16 among each other, i32 i64 u8 among each other and to floats. */
EBB_API EBB_NODISCARD ebb_status ebb_cast(ebb_tensor **out, ebb_tensor *x, ebb_dtype dtype);

/* ---- products ---------------------------------------------------------------------------- */
/* op(a) @ op(b): [..., M, K] x [..., K, N] -> [..., M, N]; batch dims broadcast.  trans_x: that
 * operand's last two dims are swapped. */
EBB_API EBB_NODISCARD ebb_status ebb_matmul_ex(ebb_tensor **out, ebb_tensor *a, ebb_tensor *b,
                                               bool trans_a, bool trans_b);
EBB_BINARY(ebb_matmul);
/* x [..., I] @ weight^T + bias: weight [O, I], bias [O] or NULL -> [..., O]. */
EBB_API EBB_NODISCARD ebb_status ebb_linear(ebb_tensor **out, ebb_tensor *x, ebb_tensor *weight,
                                            ebb_tensor *bias);

/* ---- reductions -------------------------------------------------------------------------- */
#define EBB_ALL_AXES 0, NULL /* "n_axes, axes": ebb_mean(&loss, x, EBB_ALL_AXES, false) */
/* Over the given axes (n_axes 0: all); keep_dims leaves them as 1.  Half precision sums in f32.
 * The mean of nothing is NaN. */
EBB_API EBB_NODISCARD ebb_status ebb_sum(ebb_tensor **out, ebb_tensor *x, int n_axes, const int *axes, bool keep_dims);
EBB_API EBB_NODISCARD ebb_status ebb_mean(ebb_tensor **out, ebb_tensor *x, int n_axes, const int *axes, bool keep_dims);
EBB_API EBB_NODISCARD ebb_status ebb_softmax(ebb_tensor **out, ebb_tensor *x, int axis);
EBB_API EBB_NODISCARD ebb_status ebb_log_softmax(ebb_tensor **out, ebb_tensor *x, int axis);

/* ---- shapes: views share storage, nothing is copied -------------------------------------- */
/* One dim may be -1.  A non-contiguous x is copied first. */
EBB_API EBB_NODISCARD ebb_status ebb_reshape(ebb_tensor **out, ebb_tensor *x, int ndim, const int64_t *dims);
EBB_API EBB_NODISCARD ebb_status ebb_permute(ebb_tensor **out, ebb_tensor *x, int ndim, const int *axes);
EBB_API EBB_NODISCARD ebb_status ebb_transpose(ebb_tensor **out, ebb_tensor *x, int axis0, int axis1);
/* x[..., start : start + length, ...] along axis. */
EBB_API EBB_NODISCARD ebb_status ebb_narrow(ebb_tensor **out, ebb_tensor *x, int axis, int64_t start, int64_t length);
EBB_UNARY(ebb_contiguous); /* x itself where it is contiguous, else a copy */
/* The same values with bytes of its own, so that a small part need not keep the whole. */
EBB_UNARY(ebb_copy);
/* The same data without history. */
EBB_UNARY(ebb_detach);
/* 1 to EBB_MAX_IN tensors joined along axis. */
EBB_API EBB_NODISCARD ebb_status ebb_cat(ebb_tensor **out, int n, ebb_tensor *const xs[], int axis);

/* ---- layers ------------------------------------------------------------------------------ */
/* table [V, C], index i32 or i64 [...] -> [..., C].  An index outside [0, V) is EINVAL. */
EBB_API EBB_NODISCARD ebb_status ebb_embedding(ebb_tensor **out, ebb_tensor *table, ebb_tensor *index);
/* Over the last axis: (x - mean) / sqrt(var + eps) * gain + bias; gain [C], bias [C] or NULL.  Saves
 * mean and 1/std per row.  Ba et al., arXiv 1607.06450. */
EBB_API EBB_NODISCARD ebb_status ebb_layernorm(ebb_tensor **out, ebb_tensor *x, ebb_tensor *gain,
                                               ebb_tensor *bias, double eps);
/* x / sqrt(mean(x^2) + eps) * gain.  Saves 1/rms per row.  Zhang and Sennrich, arXiv 1910.07467. */
EBB_API EBB_NODISCARD ebb_status ebb_rmsnorm(ebb_tensor **out, ebb_tensor *x, ebb_tensor *gain, double eps);

typedef struct ebb_rope_options {
    int64_t head_dim;    /* D, even, at most 65536; dimension i pairs with i + D/2 */
    int64_t heads;       /* the first `heads` heads of the last axis are rotated; 0: all */
    double base;         /* 10000 */
    int64_t position;    /* of the first row; -2^52 to 2^52 */
} ebb_rope_options;
/* x [B, T, H * D] (or packed [B, T, (H + 2 KV) * D] with heads = H + KV): rotates by the row's
 * position.  Su et al., arXiv 2104.09864. */
EBB_API EBB_NODISCARD ebb_status ebb_rope(ebb_tensor **out, ebb_tensor *x, const ebb_rope_options *options);

typedef struct ebb_attention_options {
    int64_t heads;       /* H, 1 to 65536 */
    int64_t kv_heads;    /* KV, divides H; 0: H.  Query heads 2h and 2h+1 share kv head h (adjacent) */
    bool causal;         /* row i sees columns j <= i + (Tk - Tq) */
    double scale;        /* 0: 1 / sqrt(D) */
} ebb_attention_options;
/* softmax(q k^T * scale + mask) v, tile by tile; saves one log-sum-exp per row, never T x T
 * (Dao et al., arXiv 2205.14135).  q [B, Tq, H * D], k and v [B, Tk, KV * D], mask u8 [B, Tk] or
 * [B, Tq, Tk] (1: may look) or NULL -> [B, Tq, H * D].  A row that may look at nothing gives 0 and
 * no gradient. */
EBB_API EBB_NODISCARD ebb_status ebb_attention(ebb_tensor **out, ebb_tensor *q, ebb_tensor *k, ebb_tensor *v,
                                               ebb_tensor *mask, const ebb_attention_options *options);
/* The same on one packed tensor qkv [B, T, (H + 2 KV) * D]: its gradient is one tensor too. */
EBB_API EBB_NODISCARD ebb_status ebb_attention_packed(ebb_tensor **out, ebb_tensor *qkv,
                                                      const ebb_attention_options *options);

/* ---- losses: scalars --------------------------------------------------------------------- */
enum { EBB_IGNORE = -1 };
/* logits [..., V], targets i32 or i64 [...]: -log softmax(logits)[target], fused.  Targets equal to
 * EBB_IGNORE do not count; another target outside [0, V) is EINVAL.
 * normalizer > 0: the sum is divided by it (gradient accumulation over a group with that many
 * targets); 0: by the number of targets that count (0 of them: loss 0, zero gradient). */
EBB_API EBB_NODISCARD ebb_status ebb_cross_entropy(ebb_tensor **out, ebb_tensor *logits, ebb_tensor *targets,
                                                   double normalizer);
/* ebb_cross_entropy(hidden weight^T, targets): hidden [..., C], weight [V, C].  Logits are made for one of
 * `chunks` (from 1) parts of the rows at a time, again in backward, so that they never exist as a whole,
 * nor does their gradient.  The number of chunks changes rounding. */
EBB_API EBB_NODISCARD ebb_status ebb_linear_cross_entropy(ebb_tensor **out, ebb_tensor *hidden, ebb_tensor *weight,
                                                          ebb_tensor *targets, double normalizer, int64_t chunks);
/* mean((a - b)^2) */
EBB_BINARY(ebb_mse);

#undef EBB_UNARY
#undef EBB_BINARY

EBB_END_DECLS
#endif
