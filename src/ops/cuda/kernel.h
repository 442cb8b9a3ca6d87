/* ops/cuda/kernel.h: what every .cu file includes, and all it needs: one source for nvcc and, in the tests,
 * for g++ on an emulated device (tests/support/cuda_emu).
 *
 * What a kernel file keeps to, so that both compile it:
 *  - kernels are declared EBB_KERNEL and launched with EBB_LAUNCH, device functions are declared EBB_DEVICE,
 *    dynamic shared memory is named with EBB_DYNAMIC_SHARED;
 *  - no inline PTX, textures, cooperative groups, cudaMemcpyToSymbol, half2 arithmetic;
 *  - f32 and halves compute in float, f64 in double.  A kernel that uses doubles says so to tests/cuda/doubles.py:
 *    by a template argument double, or by f64 in its name.  0.5 is a double, R(0.5) or 0.5f is not;
 *  - sinf and cosf of any f32 angle use local memory, which is refused: reduce the angle (sincospif) first;
 *  - addresses of inputs are aligned to their elements only (views); wider loads check.
 * Results must not depend on the order in which threads or blocks run: no floating-point atomics. */
#ifndef EBB_OPS_CUDA_KERNEL_H
#define EBB_OPS_CUDA_KERNEL_H

/* The types are __half and __nv_bfloat16 only: `half` is free for variables. */
#define CUDA_NO_HALF
#define CUDA_NO_BFLOAT16
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include <cuda_emu.h>
#endif
#include <float.h>
#include <math.h>
#include <stdint.h>

#include "device/cuda/cuda.h"
#include "ops/attrs.h"

/* Both are local to their file: two files may have kernels of one name. */
#define EBB_KERNEL static __global__
#define EBB_DEVICE static __device__ __forceinline__

/* ---- launching ---------------------------------------------------------------------------- */

enum {
    EBB__CUDA_THREADS = 256,               /* per block, where nothing else speaks */
    EBB__CUDA_BLOCKS_PER_PROCESSOR = 16,   /* most, of a grid that strides */
    EBB__CUDA_DYNAMIC_SHARED = 48 * 1024,  /* more must be asked for; at most 99 KiB on all of our devices */
    EBB__CUDA_MAX_DYNAMIC_SHARED = 99 * 1024
};

/* EBB_LAUNCH(cuda, kernel, grid, block, shared_bytes, arguments...) queues the kernel on the compute stream;
 * the enclosing function returns with the message where that fails.  An empty grid does nothing.  A kernel
 * with more than one template argument is put in parentheses: (rows<T, 256>). */
#ifdef __CUDACC__
#define EBB_LAUNCH(cuda, kernel, grid, block, shared_bytes, ...)                                             \
    do {                                                                                                     \
        const dim3 grid_ = dim3(grid);                                                                       \
        if (!grid_.x || !grid_.y || !grid_.z) break;                                                         \
        if ((shared_bytes) > EBB__CUDA_DYNAMIC_SHARED)                                                       \
            EBB__CUDA_TRY(cuda, cudaFuncSetAttribute(                                                        \
                kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(shared_bytes)));                  \
        kernel<<<grid_, dim3(block), (shared_bytes), (cuda)->stream>>>(__VA_ARGS__);                         \
        EBB__CUDA_LAUNCHED(cuda);                                                                            \
    } while (0)
#define EBB_DYNAMIC_SHARED(T, name)                                        \
    extern __shared__ __align__(16) unsigned char ebb__dynamic_shared[];   \
    T *name = reinterpret_cast<T *>(ebb__dynamic_shared)
#else
#define EBB_LAUNCH(cuda, kernel, grid, block, shared_bytes, ...)                                             \
    do {                                                                                                     \
        const dim3 grid_ = dim3(grid);                                                                       \
        if (!grid_.x || !grid_.y || !grid_.z) break;                                                         \
        emu_launch(#kernel, grid_, dim3(block), (shared_bytes), (cuda)->stream,                              \
                   [=]() { kernel(__VA_ARGS__); });                                                          \
        EBB__CUDA_LAUNCHED(cuda);                                                                            \
    } while (0)
#define EBB_DYNAMIC_SHARED(T, name) T *name = static_cast<T *>(emu_dynamic_shared())
#endif

static inline int64_t ebb__ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }

/* Blocks for n items, at `threads` per block, of a kernel that loops with EBB_GRID_STRIDE. */
static inline unsigned ebb__grid(const ebb__cuda *cuda, int64_t n, int threads)
{
    int64_t most = (int64_t)cuda->processors * EBB__CUDA_BLOCKS_PER_PROCESSOR, blocks = ebb__ceil_div(n, threads);
    return (unsigned)(blocks < most ? blocks : most);
}

/* i: this thread's share of [0, n), n of any size. */
#define EBB_GRID_STRIDE(i, n)                                                       \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);       \
         i += (int64_t)gridDim.x * blockDim.x)

/* ---- dtypes ------------------------------------------------------------------------------- */

/* What a stored type computes in. */
template <class T> struct ebb__real_of { typedef float type; };
template <> struct ebb__real_of<double> { typedef double type; };
template <class T> using ebb__real = typename ebb__real_of<T>::type;

/* A value as it is stored -> as it is computed with, and back (rounded to nearest even). */
EBB_DEVICE float ebb__load(const float *p) { return *p; }
EBB_DEVICE double ebb__load(const double *p) { return *p; }
EBB_DEVICE float ebb__load(const __half *p) { return __half2float(*p); }
EBB_DEVICE float ebb__load(const __nv_bfloat16 *p) { return __bfloat162float(*p); }
EBB_DEVICE void ebb__store(float *p, float v) { *p = v; }
EBB_DEVICE void ebb__store(double *p, double v) { *p = v; }
EBB_DEVICE void ebb__store(__half *p, float v) { *p = __float2half_rn(v); }
EBB_DEVICE void ebb__store(__nv_bfloat16 *p, float v) { *p = __float2bfloat16_rn(v); }

/* A gradient: written, or added to what is there. */
template <class T> EBB_DEVICE void ebb__put(T *p, ebb__real<T> v, bool accumulate)
{
    ebb__store(p, accumulate ? ebb__load(p) + v : v);
}

static inline ebb_status ebb__cuda_no_dtype(const ebb__cuda *cuda, ebb_dtype dtype)
{
    return cuda->host->fail(EBB_EDTYPE, "%s: dtype number %d has no CUDA kernel; f32, f64, f16 and bf16 have", cuda->op,
                            (int)dtype);
}

/* EBB_CUDA_FEW_DTYPES, for tests that run nothing else: kernels of f32 and bf16 only. */
#ifdef EBB_CUDA_FEW_DTYPES
#define EBB__OTHER_FLOATS(...)
#else
#define EBB__OTHER_FLOATS(...) __VA_ARGS__
#endif

/* EBB_FLOATS(cuda, dtype, T, statements): runs the statements with T as the stored type; the enclosing function
 * returns EDTYPE for a dtype that is not a float. */
#define EBB_FLOATS(cuda, dtype_, T, ...)                                                                    \
    switch (dtype_) {                                                                                       \
    case EBB_F32: { typedef float T; __VA_ARGS__; break; }                                                  \
    case EBB_BF16: { typedef __nv_bfloat16 T; __VA_ARGS__; break; }                                         \
    EBB__OTHER_FLOATS(case EBB_F64: { typedef double T; __VA_ARGS__; break; })                              \
    EBB__OTHER_FLOATS(case EBB_F16: { typedef __half T; __VA_ARGS__; break; })                              \
    default: return ebb__cuda_no_dtype(cuda, dtype_);                                                       \
    }

/* ---- sums and maxima of a warp and of a block ------------------------------------------------ */

#define EBB__FULL_WARP 0xffffffffu

/* All 32 lanes call, all get the result; the order of additions is fixed. */
template <class R> EBB_DEVICE R ebb__warp_sum(R v)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(EBB__FULL_WARP, v, lanes);
    return v;
}

/* The larger of the two; NaN where one is NaN, unlike fmax. */
template <class R> EBB_DEVICE R ebb__larger(R a, R b) { return a > b || a != a ? a : b; }

template <class R> EBB_DEVICE R ebb__warp_max(R v)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) v = ebb__larger(v, __shfl_xor_sync(EBB__FULL_WARP, v, lanes));
    return v;
}

/* All THREADS threads of a one-dimensional block call, THREADS a multiple of 32 up to 1024; all get the result.
 * May be called again at once: it ends with a barrier. */
template <int THREADS, class R> EBB_DEVICE R ebb__block_sum(R v)
{
    static_assert(THREADS % 32 == 0 && THREADS <= 1024, "whole warps");
    __shared__ R of_warp[THREADS / 32];
    v = ebb__warp_sum(v);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < THREADS / 32 ? of_warp[threadIdx.x % 32] : R(0);
    v = ebb__warp_sum(v);
    __syncthreads();
    return v;
}

template <int THREADS, class R> EBB_DEVICE R ebb__block_max(R v)
{
    static_assert(THREADS % 32 == 0 && THREADS <= 1024, "whole warps");
    __shared__ R of_warp[THREADS / 32];
    v = ebb__warp_max(v);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    v = of_warp[threadIdx.x % 32 < THREADS / 32 ? threadIdx.x % 32 : 0];
    v = ebb__warp_max(v);
    __syncthreads();
    return v;
}

/* ---- bad data ----------------------------------------------------------------------------- */

/* The first report since the last synchronize stays: code as ebb__cuda.error says, not 0. */
EBB_DEVICE void ebb__report(unsigned *error, unsigned code) { atomicCAS(error, 0u, code); }

#endif
