/* core/threads.h: a pool of compute threads.
 * Work is divided into contiguous ranges whose borders depend only on n, grain and the thread
 * count, so results repeat bit by bit. */
#ifndef EBB_CORE_THREADS_H
#define EBB_CORE_THREADS_H

#include <ebb/status.h>

typedef struct ebb__threads ebb__threads;
typedef void ebb__range_fn(void *arg, int64_t begin, int64_t end, int thread);

/* n >= 1 threads, the calling one included (n - 1 are started).  Errors: ENOMEM, EINVAL. */
EBB_NODISCARD ebb_status ebb__threads_new(ebb__threads **out, int n);
void ebb__threads_free(ebb__threads *threads); /* NULL is fine */
int ebb__threads_count(const ebb__threads *threads);

/* How many ranges n items make: min(threads, ceil(n / grain)), at least 1; 0 for n = 0. */
int ebb__threads_ranges(const ebb__threads *threads, int64_t n, int64_t grain);
/* Range `index` of `ranges` over [0, n): sizes differ by at most one. */
void ebb__range_at(int64_t n, int ranges, int index, int64_t *begin, int64_t *end);

/* Runs fn over [0, n); returns when all of it is done.  Workers spin for a short while, then sleep.
 * `thread` is the range's index.  A call from inside fn, or while another thread's is under way,
 * does the same ranges by itself, one after another. */
void ebb__threads_run(ebb__threads *threads, int64_t n, int64_t grain, ebb__range_fn *fn,
                      void *arg);

/* Cores in the affinity mask of this process, at least 1. */
int ebb__cores(void);

#endif
