/* cuda/planted.cu: kernels with a mistake, each beside its right twin: is the emulator worth its name?
 *
 * Usage: planted NAME right|wrong     runs the kernel in each order of threads; exits with 1 and says
 * "wrong result" where a sum is not what it should be.  What else must find a mistake is in CMakeLists.txt. */
#include "ops/cuda/kernel.h"
#include "support/cuda_emu/emu_control.h"

#include <cstdio>
#include <vector>

enum { THREADS = 64, BLOCKS = 4, N = BLOCKS * THREADS };

/* Each kernel leaves in out[b] the sum of block b's 64 elements; WRONG leaves the mistake in. */
#define KERNEL(name) \
    template <bool WRONG> EBB_KERNEL void name(float *out, const float *in, int n __attribute__((unused)))

EBB_DEVICE float sum_in_order(const float *values, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += values[i];
    return sum;
}

KERNEL(missing_barrier)
{
    __shared__ float values[THREADS];
    values[threadIdx.x] = in[blockIdx.x * THREADS + threadIdx.x];
    if (!WRONG) __syncthreads();
    if (threadIdx.x == THREADS / 2) out[blockIdx.x] = sum_in_order(values, THREADS);
}

/* The tile is filled again while others still read it. */
KERNEL(tile_reuse)
{
    __shared__ float tile[32];
    float sum = 0;
    for (int first = 0; first < THREADS; first += 32) {
        if (threadIdx.x < 32) tile[threadIdx.x] = in[blockIdx.x * THREADS + first + threadIdx.x];
        __syncthreads();
        sum += sum_in_order(tile, 32);
        if (!WRONG) __syncthreads();
    }
    if (threadIdx.x == THREADS - 1) out[blockIdx.x] = sum;
}

/* As ebb__block_sum(), but for its last barrier: a second sum writes words that others still read for the first. */
template <bool WRONG> EBB_DEVICE float block_sum(float v)
{
    __shared__ float of_warp[THREADS / 32];
    v = ebb__warp_sum(v);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    v = sum_in_order(of_warp, THREADS / 32);
    if (!WRONG) __syncthreads();
    return v;
}

KERNEL(sum_after_sum)
{
    float sum = block_sum<WRONG>(in[blockIdx.x * THREADS + threadIdx.x]);
    sum = block_sum<WRONG>(sum / THREADS); /* wrong, where one thread's was */
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

KERNEL(out_of_bounds)
{
    __shared__ float values[THREADS];
    values[threadIdx.x] = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; WRONG ? i <= n : i < n; i += N) values[threadIdx.x] += in[i];
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = sum_in_order(values, THREADS);
}

KERNEL(shared_out_of_bounds)
{
    __shared__ float values[THREADS];
    values[threadIdx.x] = in[blockIdx.x * THREADS + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = sum_in_order(values, THREADS) + (WRONG ? 0 * values[n - N + THREADS] : 0);
}

KERNEL(dynamic_out_of_bounds)
{
    EBB_DYNAMIC_SHARED(float, values);
    values[threadIdx.x] = in[blockIdx.x * THREADS + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = sum_in_order(values, THREADS) + (WRONG ? 0 * values[n - N + THREADS] : 0);
}

KERNEL(uninitialised_shared)
{
    __shared__ float values[THREADS + 1];
    values[threadIdx.x] = in[blockIdx.x * THREADS + threadIdx.x];
    if (!WRONG && threadIdx.x == 0) values[THREADS] = 0;
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = sum_in_order(values, THREADS + 1);
}

KERNEL(unwritten_output)
{
    float sum = ebb__block_sum<THREADS>(in[blockIdx.x * THREADS + threadIdx.x]);
    if (threadIdx.x == 0 && !(WRONG && blockIdx.x == 2)) out[blockIdx.x] = sum;
}

KERNEL(divergent_barrier)
{
    __shared__ float values[THREADS];
    values[threadIdx.x] = in[blockIdx.x * THREADS + threadIdx.x];
    if (WRONG && threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sum_in_order(values, THREADS);
}

KERNEL(early_return)
{
    __shared__ float values[THREADS];
    values[threadIdx.x] = in[blockIdx.x * THREADS + threadIdx.x];
    if (WRONG && threadIdx.x == 7) return;
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = sum_in_order(values, THREADS);
}

KERNEL(barrier_in_a_warp)
{
    __shared__ float values[THREADS];
    values[threadIdx.x] = in[blockIdx.x * THREADS + threadIdx.x];
    if (!WRONG || threadIdx.x != 3) __syncwarp(WRONG ? ~0u : __ballot_sync(~0u, 1));
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = sum_in_order(values, THREADS);
}

/* All blocks add to out[0]; the host divides it again. */
KERNEL(between_blocks)
{
    float sum = ebb__block_sum<THREADS>(in[blockIdx.x * THREADS + threadIdx.x]);
    if (threadIdx.x != 0) return;
    if (WRONG) out[BLOCKS] += sum;
    else atomicAdd(&out[BLOCKS], sum);
    out[blockIdx.x] = sum;
}

KERNEL(misaligned_vector)
{
    float sum = 0;
    const float *mine = in + blockIdx.x * THREADS;
    if (threadIdx.x == 0) {
        for (int i = 0; i < THREADS; i += 4) {
            const float4 v = *(const float4 *)(const void *)(mine + i);
            sum += v.x + v.y + v.z + v.w;
        }
        if (WRONG) sum += 0 * ((const float4 *)(const void *)(in + 1))->x;
        out[blockIdx.x] = sum;
    }
}

/* Right under emulation and on the device: the last block to arrive adds up what all have written. */
KERNEL(last_block)
{
    __shared__ bool last;
    float sum = ebb__block_sum<THREADS>(in[blockIdx.x * THREADS + threadIdx.x]);
    if (threadIdx.x == 0) {
        out[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd((unsigned *)(void *)&out[BLOCKS + 1], 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) out[BLOCKS] = sum_in_order(out, BLOCKS);
}

typedef void kernel(float *, const float *, int);
static const struct planted {
    const char *name;
    kernel *right, *wrong;
} kernels[] = {
#define ROW(name) { #name, name<false>, name<true> }
    ROW(missing_barrier), ROW(tile_reuse), ROW(sum_after_sum), ROW(out_of_bounds), ROW(shared_out_of_bounds),
    ROW(dynamic_out_of_bounds), ROW(uninitialised_shared), ROW(unwritten_output), ROW(divergent_barrier),
    ROW(early_return), ROW(barrier_in_a_warp), ROW(between_blocks), ROW(misaligned_vector), ROW(last_block),
};

static bool is_right(const char *name, kernel *run)
{
    std::vector<float> in(N), out(BLOCKS + 2, NAN);
    out[BLOCKS] = out[BLOCKS + 1] = 0;
    for (int i = 0; i < N; i++) in[i] = (float)(i % 13 - 5);
    float *to = out.data(), *from = in.data();
    emu_launch(name, BLOCKS, THREADS, THREADS * sizeof(float), nullptr, [=] { run(to, from, N); });
    bool right = emu_take_last_error() == cudaSuccess;
    for (int b = 0; b < BLOCKS; b++) right = right && out[b] == sum_in_order(&in[b * THREADS], THREADS);
    return right && (out[BLOCKS] == 0 || out[BLOCKS] == sum_in_order(in.data(), N));
}

int main(int argc, char **argv)
{
    enum { ORDERS_PER_KIND = 3 };
    if (argc != 3) return fprintf(stderr, "usage: planted NAME right|wrong\n"), 2;
#ifdef __SANITIZE_THREAD__
    emu_set_workers(2);
#endif
    int status = 2;
    for (const planted &k : kernels) {
        if (strcmp(k.name, argv[1]) != 0) continue;
        status = 0;
        for (int i = 0; i < EMU_N_ORDERS * ORDERS_PER_KIND && status == 0; i++) {
            emu_set_order((emu_order)(i % EMU_N_ORDERS), (unsigned)i);
            if (is_right(k.name, strcmp(argv[2], "wrong") == 0 ? k.wrong : k.right)) continue;
            printf("wrong result in %s order\n", emu_order_name((emu_order)(i % EMU_N_ORDERS)));
            status = 1;
        }
    }
    return status;
}
