/* support/stub_memory.h: the stub's device memory, mapped without access but while its work runs, and its
 * pinned memory. */
#ifndef EBB_TESTS_STUB_MEMORY_H
#define EBB_TESTS_STUB_MEMORY_H

#include "alloc/pool.h"
#include "support/stub_accel.h"

ebb__provider stub_device_memory(void);
ebb__provider stub_pinned_memory(void);
/* Capacity of the device, and which request fails (0: none). */
void stub_memory_limit(size_t capacity_bytes, uint64_t fail_at);
void stub_memory_count(stub_counts *counts);
/* Lets work touch it, or nobody; calls nest. */
void stub_memory_open(bool open);
bool stub_memory_is_device(const void *p);
bool stub_memory_is_pinned(const void *p);

#endif
