/* launch.cpp: a grid of blocks, in the order and on the workers that the test asked for. */
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

#include "block.h"

enum { MOST_THREADS = 1024, MOST_BLOCKS_YZ = 65535, MOST_SHARED_BYTES = 99 * 1024 };

void (*emu_queue)(cudaStream_t stream, std::function<void()> work);
thread_local cudaError_t emu_last_error = cudaSuccess;
static emu_order thread_order = EMU_IDENTITY;
static unsigned order_seed = 1;
static int n_workers = 1;
static std::atomic<unsigned long> n_threads_run;

void emu_set_order(emu_order order, unsigned seed)
{
    thread_order = order;
    order_seed = seed;
}

const char *emu_order_name(emu_order order)
{
    static const char *const names[EMU_N_ORDERS] = { "identity", "reverse", "random" };
    return names[order];
}

void emu_set_workers(int workers)
{
#ifdef EMU_TSAN
    n_workers = workers;
#else
    if (workers > 1) fputs("EMU: more than one worker needs ThreadSanitizer\n", stderr), abort();
#endif
}

cudaError_t emu_take_last_error(void)
{
    cudaError_t error = emu_last_error;
    emu_last_error = cudaSuccess;
    return error;
}

unsigned long emu_threads_run(void) { return n_threads_run; }

static std::vector<long> block_order(const emu_grid *grid)
{
    std::vector<long> blocks((size_t)grid->grid.x * grid->grid.y * grid->grid.z);
    std::iota(blocks.begin(), blocks.end(), 0L);
    if (grid->order == EMU_REVERSE) std::reverse(blocks.begin(), blocks.end());
    unsigned random = grid->seed;
    for (size_t i = blocks.size() - 1; i > 0 && grid->order == EMU_RANDOM; i--)
        std::swap(blocks[i], blocks[emu_random(&random) % (i + 1)]);
    return blocks;
}

static void run_share(emu_worker *worker, emu_grid *grid, const std::vector<long> *blocks, size_t first, size_t step)
{
    for (size_t i = first; i < blocks->size(); i += step) emu_run_block(worker, grid, (*blocks)[i]);
}

/* Only the thread that launches gives workers out: the host threads share nothing that would order them.  Starting
 * and joining them orders the launch, as a stream does. */
static void run_grid(emu_grid grid)
{
    static std::vector<emu_worker *> &workers = *new std::vector<emu_worker *>; /* never destroyed: else a leak */
    std::vector<long> blocks = block_order(&grid);
    size_t n = std::min((size_t)n_workers, blocks.size());
    while (workers.size() < n) workers.push_back(emu_worker_new());
    if (n == 1) {
        run_share(workers[0], &grid, &blocks, 0, 1);
    } else {
        std::vector<std::thread> threads;
        for (size_t k = 0; k < n; k++) threads.emplace_back(run_share, workers[k], &grid, &blocks, k, n);
        for (std::thread &thread : threads) thread.join();
    }
    n_threads_run += blocks.size() * grid.block.x * grid.block.y * grid.block.z;
}

void emu_launch_from(emu_span shared, const char *kernel, dim3 grid, dim3 block, size_t shared_bytes,
                     cudaStream_t stream, emu_body body)
{
    size_t threads = (size_t)block.x * block.y * block.z;
    bool valid = threads >= 1 && threads <= MOST_THREADS && block.z <= 64 && grid.x >= 1 && grid.y >= 1 &&
                 grid.z >= 1 && grid.x <= INT32_MAX && grid.y <= MOST_BLOCKS_YZ && grid.z <= MOST_BLOCKS_YZ &&
                 shared_bytes <= MOST_SHARED_BYTES;
    if (!valid) {
        emu_last_error = cudaErrorInvalidConfiguration;
        return;
    }
    emu_order order = thread_order;
    unsigned seed = order_seed;
    const char *first = static_cast<const char *>(body.arguments);
    std::vector<char> arguments(first, first + body.bytes); /* as aligned as malloc()'s */
    std::function<void()> work = [=] {
        run_grid({ kernel, shared, grid, block, shared_bytes, body.call, arguments.data(), order, seed });
    };
    if (emu_queue) emu_queue(stream, work);
    else work();
}
