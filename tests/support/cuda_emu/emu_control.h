/* emu_control.h: what a test tells the emulated device; C and C++. */
#ifndef EBB_TESTS_EMU_CONTROL_H
#define EBB_TESTS_EMU_CONTROL_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In which order the threads of a block, and the blocks, run between barriers.  A kernel whose result depends
 * on it has a race. */
typedef enum emu_order { EMU_IDENTITY, EMU_REVERSE, EMU_RANDOM, EMU_N_ORDERS } emu_order;
void emu_set_order(emu_order order, unsigned seed);
const char *emu_order_name(emu_order order);

/* Blocks on this many threads of the host; more than 1 with ThreadSanitizer only, which finds races between
 * blocks of different workers. */
void emu_set_workers(int workers);

/* What cudaGetLastError() gives: a launch that is refused leaves an error, and returns nothing. */
cudaError_t emu_take_last_error(void);

/* Emulated threads so far. */
unsigned long emu_threads_run(void);

#ifdef __cplusplus
}

#include <functional>
/* Where set, it gets each launch and runs it when the stream gets there (the fake runtime does); else a launch
 * runs at once. */
extern void (*emu_queue)(cudaStream_t stream, std::function<void()> work);
extern thread_local cudaError_t emu_last_error; /* of this thread of the host */
#endif
#endif
