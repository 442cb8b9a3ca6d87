/* threads.c: a pool of compute threads that is handed one job at a time.
 * Each worker watches a word of its own, so a job of few ranges wakes few workers.  A waiting
 * thread spins for a short while, since jobs mostly follow each other closely, and then sleeps in
 * the kernel until the word changes. */
#include "core/threads.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/mem.h"

enum { MAX_THREADS = 4096, SPIN_NS = 30000, SPINS_PER_CLOCK = 32 };

/* A word and whether the one thread that waits for it sleeps.  The waiter writes `asleep`, then
 * reads `value`; the other side writes `value`, then reads `asleep`: as both are sequentially
 * consistent, one of them sees the other, and no wake is lost. */
typedef struct signal_word {
    _Atomic uint32_t value, asleep;
} signal_word;

typedef struct worker {
    signal_word ticket; /* changes when there is a job for this worker */
    ebb__threads *pool;
    pthread_t id;
    int index;
    char apart[128]; /* no two workers' words share a cache line */
} worker;

struct ebb__threads {
    worker *workers; /* n - 1; workers[i].index is i + 1 */
    int n, n_started;
    bool spin; /* false when there are more threads than cores */
    atomic_flag busy;
    /* The job: written before the tickets, read after them. */
    ebb__range_fn *fn; /* NULL: the worker ends */
    void *arg;
    int64_t n_items;
    int n_ranges;
    char apart[128];
    signal_word pending; /* workers that have not finished the job */
};

static void futex_wait(_Atomic uint32_t *word, uint32_t while_value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A waiter wants its word to become, or to leave, a value. */
static bool arrived(uint32_t seen, uint32_t value, bool until_equal)
{
    return (seen == value) == until_equal;
}

/* Between looks at the clock the core is offered to others: the thread that is waited for may need
 * this very core, whatever the count of cores says. */
static bool spin_for(signal_word *word, uint32_t value, bool until_equal)
{
    int64_t end = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPINS_PER_CLOCK; i++) {
            uint32_t seen = atomic_load_explicit(&word->value, memory_order_acquire);
            if (arrived(seen, value, until_equal)) return true;
            pause_cpu();
        }
        sched_yield();
    } while (now_ns() < end);
    return false;
}

static void wait_for(signal_word *word, uint32_t value, bool until_equal, bool spin)
{
    uint32_t seen = atomic_load_explicit(&word->value, memory_order_acquire);
    if (arrived(seen, value, until_equal)) return;
    if (spin && spin_for(word, value, until_equal)) return;
    atomic_store(&word->asleep, 1);
    while (seen = atomic_load(&word->value), !arrived(seen, value, until_equal))
        futex_wait(&word->value, seen);
    atomic_store(&word->asleep, 0);
}

static void wake(signal_word *word)
{
    if (atomic_load(&word->asleep)) futex_wake(&word->value);
}

static void run_range(const ebb__threads *threads, int index)
{
    int64_t begin, end;
    ebb__range_at(threads->n_items, threads->n_ranges, index, &begin, &end);
    threads->fn(threads->arg, begin, end, index);
}

static void *work(void *arg)
{
    worker *self = arg;
    ebb__threads *threads = self->pool;
    for (uint32_t ticket = 0;; ticket++) {
        wait_for(&self->ticket, ticket, false, threads->spin);
        if (!threads->fn) return NULL;
        run_range(threads, self->index);
        if (atomic_fetch_sub(&threads->pending.value, 1) == 1) wake(&threads->pending);
    }
}

static void hand_out(ebb__threads *threads, int n_workers)
{
    for (int i = 0; i < n_workers; i++) {
        atomic_fetch_add(&threads->workers[i].ticket.value, 1);
        wake(&threads->workers[i].ticket);
    }
}

/* The program's signals go to its own threads: workers start with all of them blocked. */
static int start_worker(worker *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&w->id, NULL, work, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static ebb_status start_workers(ebb__threads *threads)
{
    for (int i = 0; i < threads->n - 1; i++) {
        worker *w = &threads->workers[i];
        w->pool = threads;
        w->index = i + 1;
        int error = start_worker(w);
        if (error)
            return ebb_fail(EBB_ENOMEM, "threads: cannot start thread %d of %d: %s", i + 2,
                            threads->n, strerror(error));
        threads->n_started++;
    }
    return EBB_OK;
}

ebb_status ebb__threads_new(ebb__threads **out, int n)
{
    if (n < 1 || n > MAX_THREADS)
        return ebb_fail(EBB_EINVAL, "threads: expected 1..%d, got %d", MAX_THREADS, n);
    ebb__threads *threads = ebb__calloc(1, sizeof *threads);
    if (!threads) return EBB_ENOMEM;
    threads->n = n;
    threads->spin = n <= ebb__cores();
    atomic_flag_clear(&threads->busy);
    ebb_status st = EBB_OK;
    if (n > 1) {
        threads->workers = ebb__calloc((size_t)n - 1, sizeof *threads->workers);
        st = threads->workers ? start_workers(threads) : EBB_ENOMEM;
    }
    if (st != EBB_OK) {
        ebb__threads_free(threads);
        return st;
    }
    *out = threads;
    return EBB_OK;
}

void ebb__threads_free(ebb__threads *threads)
{
    if (!threads) return;
    threads->fn = NULL;
    hand_out(threads, threads->n_started);
    for (int i = 0; i < threads->n_started; i++) pthread_join(threads->workers[i].id, NULL);
    ebb__free(threads->workers);
    ebb__free(threads);
}

int ebb__threads_count(const ebb__threads *threads) { return threads->n; }

int ebb__threads_ranges(const ebb__threads *threads, int64_t n, int64_t grain)
{
    if (n <= 0) return 0;
    if (grain < 1) grain = 1;
    int64_t pieces = n / grain + (n % grain != 0);
    return pieces < threads->n ? (int)pieces : threads->n;
}

void ebb__range_at(int64_t n, int ranges, int index, int64_t *begin, int64_t *end)
{
    int64_t each = n / ranges, longer = n % ranges; /* the first `longer` ranges have one more */
    *begin = index * each + (index < longer ? index : longer);
    *end = *begin + each + (index < longer);
}

static void run_alone(ebb__range_fn *fn, void *arg, int64_t n, int ranges)
{
    for (int i = 0; i < ranges; i++) {
        int64_t begin, end;
        ebb__range_at(n, ranges, i, &begin, &end);
        fn(arg, begin, end, i);
    }
}

void ebb__threads_run(ebb__threads *threads, int64_t n, int64_t grain, ebb__range_fn *fn, void *arg)
{
    EBB_ASSERT(fn && n >= 0);
    int ranges = ebb__threads_ranges(threads, n, grain);
    /* A call from inside a job, or from a second thread, does the same ranges by itself. */
    if (ranges <= 1 || atomic_flag_test_and_set(&threads->busy)) {
        run_alone(fn, arg, n, ranges);
        return;
    }
    threads->fn = fn;
    threads->arg = arg;
    threads->n_items = n;
    threads->n_ranges = ranges;
    atomic_store(&threads->pending.value, (uint32_t)ranges - 1);
    hand_out(threads, ranges - 1);
    run_range(threads, 0);
    wait_for(&threads->pending, 0, true, threads->spin);
    atomic_flag_clear(&threads->busy);
}

int ebb__cores(void)
{
    cpu_set_t mask;
    int n = 0;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0)
        n = CPU_COUNT(&mask);
    else
        n = (int)sysconf(_SC_NPROCESSORS_ONLN); /* more cores than the mask has bits */
    return n < 1 ? 1 : n;
}
