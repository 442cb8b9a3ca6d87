/* cuda_emu.h: the part of CUDA C++ that ebb's kernels use, for g++: what is built into nvcc.
 * Types and prototypes are NVIDIA's own headers; functions that run are here and in block.cpp and launch.cpp.
 *
 * Not modelled: weak memory order, coalescing, bank conflicts, the accuracy of fast mathematics, occupancy. */
#ifndef EBB_TESTS_CUDA_EMU_H
#define EBB_TESTS_CUDA_EMU_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wclass-memaccess"
#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#pragma GCC diagnostic pop

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __launch_bounds__
#undef __forceinline__
#undef __noinline__
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __launch_bounds__(...)
#define __forceinline__ inline /* not forced: kernels share what they call, and compile in half the time */
#define __noinline__ __attribute__((noinline))
/* Blocks of one worker run one after the other and share these bytes.  Without ThreadSanitizer there is one
 * worker; the bytes of the launching file are poisoned before each block and have AddressSanitizer's red zones. */
#ifdef __SANITIZE_THREAD__
#define __shared__ static thread_local
#else
#define __shared__ static
#endif

/* ---- the running thread ---------------------------------------------------------------------- */

struct emu_thread {
    uint3 at;
    unsigned lane, warp;
    unsigned number; /* within its block */
};
struct emu_block {
    uint3 at, dim, grid_dim; /* dim.x is 0 where no block runs */
    void *dynamic_shared;
};
/* Variables, not pointers: sanitizers need not check these, and kernels read them all the time.  Of C's kind: one of
 * C++'s would be looked up through a function. */
#define EMU_THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))
extern EMU_THREAD_LOCAL emu_thread emu_me;
extern EMU_THREAD_LOCAL emu_block emu_here;

#define threadIdx (emu_me.at)
#define blockIdx (emu_here.at)
#define blockDim (emu_here.dim)
#define gridDim (emu_here.grid_dim)
static const int warpSize __attribute__((unused)) = 32;

static inline void *emu_dynamic_shared() { return emu_here.dynamic_shared; }

/* ---- launching -------------------------------------------------------------------------------- */

/* The __shared__ variables of one file of kernels. */
struct emu_span {
    char *begin, *end;
};
/* A kernel and its arguments: `bytes` that are copied. */
struct emu_body {
    void (*call)(const void *arguments);
    const void *arguments;
    size_t bytes;
};
/* Runs the kernel, or hands it to emu_queue where that is set.  cudaGetLastError() says whether it could. */
void emu_launch_from(emu_span shared, const char *kernel, dim3 grid, dim3 block, size_t shared_bytes,
                            cudaStream_t stream, emu_body body);

#ifdef EMU_FILE /* the file's name: ebb_emulate() gives it, and has the linker lay these variables side by side */
#ifdef __SANITIZE_THREAD__
static const emu_span emu_shared_of_file = { nullptr, nullptr }; /* each worker has its own */
#else
#define EMU_NAME_(prefix, file) prefix##file
#define EMU_NAME(prefix, file) EMU_NAME_(prefix, file)
extern "C" char EMU_NAME(emu_shared_begin_, EMU_FILE)[], EMU_NAME(emu_shared_end_, EMU_FILE)[];
static const emu_span emu_shared_of_file = { EMU_NAME(emu_shared_begin_, EMU_FILE), EMU_NAME(emu_shared_end_, EMU_FILE) };
#endif

/* body: a lambda that holds the arguments, as launches take them: bit by bit. */
template <class Body>
static inline void emu_launch(const char *kernel, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                              const Body &body)
{
    static_assert(std::is_trivially_copyable<Body>::value, "a kernel's arguments are copied to the device");
    auto call = [](const void *arguments) { (*static_cast<const Body *>(arguments))(); };
    emu_launch_from(emu_shared_of_file, kernel, grid, block, shared_bytes, stream, { call, &body, sizeof body });
}
#endif

/* ---- barriers, votes, shuffles ---------------------------------------------------------------- */

/* Where a call stands in the source: a default argument is evaluated at the call. */
struct emu_place {
    const char *file;
    int line;
};
#define EMU_HERE emu_place{ __builtin_FILE(), __builtin_LINE() }

enum emu_vote { EMU_VOTE_COUNT, EMU_VOTE_AND, EMU_VOTE_OR, EMU_N_VOTES };
int emu_barrier(int predicate, emu_vote vote, emu_place place);
static inline void emu_syncthreads(emu_place place) { emu_barrier(0, EMU_VOTE_COUNT, place); }
#define __syncthreads() emu_syncthreads(EMU_HERE)
#define __syncthreads_count(predicate) emu_barrier((predicate), EMU_VOTE_COUNT, EMU_HERE)
#define __syncthreads_and(predicate) emu_barrier((predicate), EMU_VOTE_AND, EMU_HERE)
#define __syncthreads_or(predicate) emu_barrier((predicate), EMU_VOTE_OR, EMU_HERE)

enum emu_collective { EMU_SYNCWARP, EMU_SHUFFLE, EMU_SHUFFLE_XOR, EMU_SHUFFLE_DOWN, EMU_SHUFFLE_UP, EMU_BALLOT };
/* Waits for all lanes of the mask, returns what each gave (32 words, valid until this lane's next collective).
 * Only EMU_SYNCWARP orders memory. */
const uint64_t *emu_exchange(unsigned mask, uint64_t value, emu_collective kind, emu_place place);
[[noreturn]] void emu_fail(const char *what, emu_place place);

template <class T> static inline T emu_shuffle(unsigned mask, T value, int from, emu_collective kind, emu_place place)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "shuffled values have 8 bytes at most");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    const uint64_t *words = emu_exchange(mask, word, kind, place);
    if (!(mask >> from & 1)) emu_fail("a shuffle reads a lane outside of its mask", place);
    memcpy(&value, &words[from], sizeof value);
    return value;
}

/* Lanes fall into groups of `width`; where the source would be in another group, a lane reads itself. */
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32, emu_place place = EMU_HERE)
{
    int group = (int)emu_me.lane & ~(width - 1);
    return emu_shuffle(mask, value, group + (from & (width - 1)), EMU_SHUFFLE, place);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, emu_place place = EMU_HERE)
{
    int lane = (int)emu_me.lane, from = lane ^ bits;
    if ((from & ~(width - 1)) > (lane & ~(width - 1))) from = lane;
    return emu_shuffle(mask, value, from, EMU_SHUFFLE_XOR, place);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, emu_place place = EMU_HERE)
{
    int lane = (int)emu_me.lane, in_group = lane & (width - 1);
    int from = in_group + (int)by < width ? lane + (int)by : lane;
    return emu_shuffle(mask, value, from, EMU_SHUFFLE_DOWN, place);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, emu_place place = EMU_HERE)
{
    int lane = (int)emu_me.lane, in_group = lane & (width - 1);
    int from = in_group >= (int)by ? lane - (int)by : lane;
    return emu_shuffle(mask, value, from, EMU_SHUFFLE_UP, place);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate, emu_place place = EMU_HERE)
{
    const uint64_t *words = emu_exchange(mask, predicate != 0, EMU_BALLOT, place);
    unsigned ballot = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        if (mask >> lane & 1 && words[lane]) ballot |= 1u << lane;
    return ballot;
}
static inline int __any_sync(unsigned mask, int predicate, emu_place place = EMU_HERE)
{
    return __ballot_sync(mask, predicate, place) != 0;
}
static inline int __all_sync(unsigned mask, int predicate, emu_place place = EMU_HERE)
{
    return __ballot_sync(mask, !predicate, place) == 0;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, emu_place place = EMU_HERE)
{
    emu_exchange(mask, 0, EMU_SYNCWARP, place);
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

/* ---- atomics: they order memory too, more than the hardware's do; else ThreadSanitizer would report the
 * "last block" pattern, which is right with __threadfence() ------------------------------------------- */

template <class T, class Change> static inline T emu_atomic(T *p, Change change)
{
    typedef typename std::conditional<sizeof(T) == 4, uint32_t, uint64_t>::type word;
    static_assert(sizeof(T) == sizeof(word), "atomics have 4 or 8 bytes");
    word *bits = reinterpret_cast<word *>(p), old = __atomic_load_n(bits, __ATOMIC_ACQUIRE), changed;
    T before, after;
    do {
        memcpy(&before, &old, sizeof before);
        after = change(before);
        memcpy(&changed, &after, sizeof after);
    } while (!__atomic_compare_exchange_n(bits, &old, changed, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    return before;
}
template <class T> static inline T atomicAdd(T *p, T v) { return emu_atomic(p, [=](T old) { return (T)(old + v); }); }
template <class T> static inline T atomicMax(T *p, T v)
{
    return emu_atomic(p, [=](T old) { return std::max(old, v); });
}
template <class T> static inline T atomicMin(T *p, T v)
{
    return emu_atomic(p, [=](T old) { return std::min(old, v); });
}
template <class T> static inline T atomicOr(T *p, T v) { return emu_atomic(p, [=](T old) { return (T)(old | v); }); }
template <class T> static inline T atomicExch(T *p, T v) { return emu_atomic(p, [=](T) { return v; }); }
template <class T> static inline T atomicCAS(T *p, T expected, T v)
{
    return emu_atomic(p, [=](T old) { return old == expected ? v : old; });
}

/* ---- arithmetic ------------------------------------------------------------------------------- */

template <class T> static inline T __ldg(const T *p) { return *p; }
/* Macros, since glibc has functions of these names. */
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(x, y) powf(x, y)
#define __fdividef(x, y) ((float)(x) / (float)(y))
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline double emu_sinpi(double x) { return sin(M_PI * remainder(x, 2)); }
static inline double emu_cospi(double x) { return cos(M_PI * remainder(x, 2)); }
static inline float sinpif(float x) { return (float)emu_sinpi(x); }
static inline float cospif(float x) { return (float)emu_cospi(x); }
static inline double sinpi(double x) { return emu_sinpi(x); }
static inline double cospi(double x) { return emu_cospi(x); }
static inline void sincospif(float x, float *s, float *c) { *s = sinpif(x), *c = cospif(x); }
static inline void sincospi(double x, double *s, double *c) { *s = sinpi(x), *c = cospi(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return (uint64_t)((unsigned __int128)a * b >> 64); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
template <class To, class From> static inline To emu_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline float __int_as_float(int x) { return emu_bits<float>(x); }
static inline int __float_as_int(float x) { return emu_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return emu_bits<float>(x); }
static inline unsigned __float_as_uint(float x) { return emu_bits<unsigned>(x); }
using std::max;
using std::min;

#endif
