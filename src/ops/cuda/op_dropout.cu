/* ops/cuda/op_dropout.cu: the words of core/rng.h's Philox, one block of four to a thread, so that element
 * 4 i + w is decided as in ops/op_dropout.c and masks are the same to the bit. */
#include "ops/cuda/kernel.h"

enum { WORDS = 4 };

/* Words of block `counter` under key `seed`: Philox 4x32-10 (Salmon et al., SC'11), as ebb__philox(). */
EBB_DEVICE uint4 philox(uint64_t seed, uint64_t counter)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint4 c = make_uint4((uint32_t)counter, (uint32_t)(counter >> 32), 0, 0);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint32_t high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
        uint32_t high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
        c = make_uint4(high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

typedef struct dropping {
    uint64_t seed, offset;
    int64_t elems;
    uint32_t threshold; /* words below it drop their element */
    bool drop_all;      /* p = 1 */
    double scale;
} dropping;

static dropping dropping_of(const ebb_call *call)
{
    double p = EBB_ATTRS(call, const ebb__dropout_attrs)->p, threshold = p * 4294967296.0;
    bool all = threshold >= 4294967296.0;
    return { call->rng_seed, call->rng_offset, call->in[0].elems, all ? 0 : (uint32_t)threshold, all,
             all ? 0 : 1 / (1 - p) };
}

template <class T> struct alignas(WORDS * sizeof(T) < 16 ? WORDS * sizeof(T) : 16) four {
    T at[WORDS];
};

/* A dropped NaN is 0 too; y may be x.  ahead: NULL, or what a launched graph adds to the offset.  WIDE: both lie where
 * four elements can be moved at once. */
template <class T, bool WIDE>
EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS)
drop(T *y, const T *x, uint64_t seed, uint64_t offset, uint32_t threshold, bool drop_all, ebb__real<T> scale,
     int64_t elems, bool accumulate, const uint64_t *ahead)
{
    typedef ebb__real<T> R;
    if (ahead) offset += *ahead;
    EBB_GRID_STRIDE(i, (elems + WORDS - 1) / WORDS) {
        uint4 block = philox(seed, offset + (uint64_t)i);
        bool out[WORDS] = { block.x < threshold, block.y < threshold, block.z < threshold, block.w < threshold };
        if (WIDE && (i + 1) * WORDS <= elems) {
            four<T> v = reinterpret_cast<const four<T> *>(x)[i], to = v;
            if (accumulate) to = reinterpret_cast<const four<T> *>(y)[i];
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                ebb__put(&to.at[w], drop_all || out[w] ? R(0) : ebb__load(&v.at[w]) * scale, accumulate);
            }
            reinterpret_cast<four<T> *>(y)[i] = to;
        } else {
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                int64_t at = i * WORDS + w;
                if (at < elems) ebb__put(y + at, drop_all || out[w] ? R(0) : ebb__load(x + at) * scale, accumulate);
            }
        }
    }
}

static ebb_status run(ebb__cuda *cuda, const ebb_call *call, const void *x, void *y, bool accumulate)
{
    dropping d = dropping_of(call);
    const uint64_t *ahead = cuda->varies ? (const uint64_t *)cuda->given : NULL;
    EBB_FLOATS(cuda, call->in[0].dtype, T, {
        typedef ebb__real<T> R;
        R scale = (R)d.scale;
        unsigned grid = ebb__grid(cuda, ebb__ceil_div(d.elems, WORDS), EBB__CUDA_THREADS);
        bool wide = (uintptr_t)x % alignof(four<T>) == 0 && (uintptr_t)y % alignof(four<T>) == 0;
        if (wide)
            EBB_LAUNCH(cuda, (drop<T, true>), grid, EBB__CUDA_THREADS, 0, (T *)y, (const T *)x, d.seed, d.offset,
                       d.threshold, d.drop_all, scale, d.elems, accumulate, ahead);
        else
            EBB_LAUNCH(cuda, (drop<T, false>), grid, EBB__CUDA_THREADS, 0, (T *)y, (const T *)x, d.seed, d.offset,
                       d.threshold, d.drop_all, scale, d.elems, accumulate, ahead);
    });
    return EBB_OK;
}

static ebb_status forward(void *self, const ebb_call *call)
{
    return run((ebb__cuda *)self, call, call->in[0].data, call->out[0].data, false);
}

static ebb_status backward(void *self, const ebb_call *call)
{
    if (!call->din[0].data) return EBB_OK;
    return run((ebb__cuda *)self, call, call->dout[0].data, call->din[0].data, call->accumulate[0]);
}

extern "C" const ebb__accel_op ebb_cuda_dropout = { "dropout", forward, backward };
