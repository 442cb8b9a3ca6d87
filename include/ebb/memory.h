/* ebb/memory.h: what memory is used, and by whom.
 * Statistics follow PyTorch's words: allocated = blocks handed out (rounded to 512 bytes), reserved
 * = segments held from the system, requested = what was asked for before rounding. */
#ifndef EBB_MEMORY_H
#define EBB_MEMORY_H

#include <ebb/context.h>

/* Each byte is in exactly one, in this order of precedence. */
typedef enum ebb_category {
    EBB_CAT_PARAMETER, EBB_CAT_OPTIMIZER, EBB_CAT_GRADIENT, EBB_CAT_INPUT,
    EBB_CAT_ACTIVATION,  /* saved by a live node */
    EBB_CAT_RECOMPUTED,  /* refilled by a recompute */
    EBB_CAT_WORKSPACE, EBB_CAT_TEMPORARY,
    EBB_N_CATEGORIES
} ebb_category;

typedef struct ebb_memory_stats {
    size_t allocated_bytes, reserved_bytes, requested_bytes;
    size_t peak_allocated_bytes, peak_reserved_bytes, peak_requested_bytes;
    size_t by_category[EBB_N_CATEGORIES];         /* now; sums to allocated_bytes */
    size_t by_category_at_peak[EBB_N_CATEGORIES]; /* at the first instant of the peak; sums to
                                                     peak_allocated_bytes */
    uint64_t n_allocs, n_frees, n_segment_allocs, n_segment_frees, n_alloc_retries, n_ooms;
} ebb_memory_stats;

EBB_BEGIN_DECLS

EBB_API const char *ebb_category_name(ebb_category category); /* "parameters", "activations", ... as in JSON */
EBB_API void ebb_memory_stats_get(const ebb_context *ctx, ebb_memory_stats *stats);
/* One figure of it, as torch.cuda.memory_allocated(), memory_reserved() and max_memory_allocated() give. */
EBB_API size_t ebb_memory_allocated_bytes(const ebb_context *ctx);
EBB_API size_t ebb_memory_reserved_bytes(const ebb_context *ctx);
EBB_API size_t ebb_memory_peak_allocated_bytes(const ebb_context *ctx);
EBB_API void ebb_memory_reset_peak(ebb_context *ctx);
/* Every statistic by its PyTorch name: KIND.POOL.VALUE with KIND allocation, allocated_bytes, segment,
 * reserved_bytes, active, active_bytes, inactive_split, inactive_split_bytes, requested_bytes; POOL
 * all, large_pool, small_pool; VALUE current, peak, allocated, freed; oversize_allocations.VALUE,
 * oversize_segments.VALUE; num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc,
 * num_device_free, max_split_size.  `key` is valid during the call. */
EBB_API void ebb_memory_each_stat(const ebb_context *ctx, void (*emit)(void *user, const char *key, uint64_t value),
                                  void *user);
/* False once ebb_record_stream() was called: when memory comes back depends on time then, and a dry run
 * predicts it no longer to the byte. */
EBB_API bool ebb_memory_is_exact(const ebb_context *ctx);
/* Sets every .allocated and .freed and the counts of num_* to 0. */
EBB_API void ebb_memory_reset_accumulated(ebb_context *ctx);
/* Returns whole free segments and pages to the system; waits for streams that work with freed blocks. */
/* Nothing while a graph is captured. */
EBB_API void ebb_memory_empty_cache(ebb_context *ctx);
/* Says what a tensor's bytes are for.  A storage that is saved or temporary needs no call. */
EBB_API void ebb_tensor_set_category(ebb_tensor *t, ebb_category category);
EBB_API ebb_category ebb_storage_category(const ebb_storage *s);
/* Who asked for a storage. */
typedef struct ebb_storage_info {
    uint64_t id;           /* grows with each storage of the context */
    size_t bytes;          /* requested */
    ebb_category category; /* now */
    const char *op, *scope; /* "gelu", "blocks.3"; "" where none.  Valid while the graph and the model are */
    const char *file;      /* the user's line, where EBB_TRY() told it; else "" and 0 */
    int line;
} ebb_storage_info;
EBB_API ebb_storage_info ebb_storage_info_get(const ebb_storage *s);
/* Calls `emit` for each storage that is alive, in order of creation. */
EBB_API void ebb_each_storage(const ebb_context *ctx, void (*emit)(void *user, const ebb_storage *storage), void *user);
/* Bytes outside the pool: resident memory of the process now less what the pool has touched. */
EBB_API size_t ebb_memory_outside_bytes(const ebb_context *ctx);

/* "512MiB", "2GiB", "1500000": bytes.  Errors: EINVAL (says what is allowed). */
EBB_API EBB_NODISCARD ebb_status ebb_size_parse(size_t *out, const char *text);
/* "1.50 GiB"; returns buf. */
EBB_API char *ebb_size_format(size_t bytes, char *buf, size_t buf_bytes);

/* ---- faults: every allocation can be made to fail ---------------------------------------- */
/* The n-th allocation from now (host bookkeeping and pool requests alike; 1 is the next) fails with
 * ENOMEM, once.  0 turns it off.  Process-wide.  The environment variable EBB_FAIL_ALLOC=n arms it
 * when the first context is made. */
EBB_API void ebb_fault_arm(uint64_t n);
EBB_API uint64_t ebb_fault_count(void); /* allocations since ebb_fault_arm() */
EBB_API bool ebb_fault_fired(void);     /* the armed one has failed */
EBB_API int64_t ebb_host_live_blocks(void); /* host allocations of ebb that are alive */

EBB_END_DECLS
#endif
