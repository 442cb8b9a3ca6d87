/* ops/lanes.h: elements of any float dtype as compute values, a short run ("lanes") at a time.
 * The compute type of f32, f16 and bf16 is float, that of f64 is double.  Kernels are written once
 * per compute type, on contiguous lanes; what is strided, broadcast or half goes through a small
 * buffer on the stack. */
#ifndef EBB_OPS_LANES_H
#define EBB_OPS_LANES_H

#include <ebb/op.h>

/* Before a loop whose iterations do not depend on each other although pointers may be equal. */
#if defined(__clang__)
#define EBB__IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define EBB__IVDEP _Pragma("GCC ivdep")
#endif

/* The most elements that go through a buffer at once.  Measured on [2048, 1536] f32, gradient of a
 * broadcast factor: 256 2.4 ms, 512 1.8 ms, 1024 1.0 ms (long runs suit the prefetcher). */
enum { EBB__LANES = 1024 };

typedef union ebb__lanes {
    float f32[EBB__LANES];
    double f64[EBB__LANES];
} __attribute__((aligned(64))) ebb__lanes;

/* Whether a dtype is its own compute type, so that lanes can be used where they lie. */
static inline bool ebb__is_compute_dtype(ebb_dtype dtype)
{
    return dtype == EBB_F32 || dtype == EBB_F64;
}

/* Elements offset, offset + stride, ... (n of them) as compute values: a pointer into `data` where
 * stride is 1 and the dtype is a compute type, else `buf`, filled; then n <= EBB__LANES. */
const void *ebb__lanes_read(ebb_dtype dtype, const void *data, int64_t offset, int64_t stride,
                            int64_t n, ebb__lanes *buf);
/* Writes compute values back, rounded to nearest even; nothing to do where `lanes` lies there. */
void ebb__lanes_write(ebb_dtype dtype, void *data, int64_t offset, int64_t stride, int64_t n,
                      const void *lanes);

/* Sums in f64 in a fixed order: sixteen running sums, folded by halves. */
double ebb__lanes_sum(ebb_dtype dtype, const void *lanes, int64_t n);
double ebb__lanes_dot(ebb_dtype dtype, const void *a, const void *b, int64_t n);
/* sums[i] += lanes[i] */
void ebb__lanes_add(double *sums, ebb_dtype dtype, const void *lanes, int64_t n);
/* The largest; -inf for n = 0; NaNs are passed over. */
double ebb__lanes_max(ebb_dtype dtype, const void *lanes, int64_t n);

/* One elementwise formula on lanes: out[i] = f(in[0][i], ...), or += where `accumulate`.  out may be
 * one of the inputs. */
typedef void ebb__lanes_fn(void *out, const void *const in[], int64_t n, bool accumulate,
                           const void *params);

/* Defines a static ebb__lanes_fn for compute type T.  In `expr`, a (b, c) are the elements of
 * the inputs and p is the double that params points to (0 where NULL). */
#define EBB__LANES_FN(name, T, load, expr)                                                       \
    static void name(void *out_, const void *const in_[], int64_t n_, bool accumulate_,          \
                     const void *params_)                                                        \
    {                                                                                            \
        T *y_ = (T *)out_;                                                                       \
        const T p = params_ ? (T) * (const double *)params_ : (T)0;                              \
        (void)p;                                                                                 \
        if (accumulate_) {                                                                       \
            EBB__IVDEP for (int64_t i_ = 0; i_ < n_; i_++) { load(T) y_[i_] += (expr); }         \
        } else {                                                                                 \
            EBB__IVDEP for (int64_t i_ = 0; i_ < n_; i_++) { load(T) y_[i_] = (expr); }          \
        }                                                                                        \
    }
#define EBB__LOAD_1(T) const T a = ((const T *)in_[0])[i_];
#define EBB__LOAD_2(T) EBB__LOAD_1(T) const T b = ((const T *)in_[1])[i_];
#define EBB__LOAD_3(T) EBB__LOAD_2(T) const T c = ((const T *)in_[2])[i_];
#define EBB__LANES_FN_1(name, T, expr) EBB__LANES_FN(name, T, EBB__LOAD_1, expr)
#define EBB__LANES_FN_2(name, T, expr) EBB__LANES_FN(name, T, EBB__LOAD_2, expr)
#define EBB__LANES_FN_3(name, T, expr) EBB__LANES_FN(name, T, EBB__LOAD_3, expr)

#endif
