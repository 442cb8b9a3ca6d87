/* The pool of compute threads.  Under ThreadSanitizer these tests also show that it has no race. */
#include "core/threads.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/support.h"

Test(threads, ranges_cover_all_once_with_sizes_that_differ_by_one)
{
    static const int64_t sizes[] = { 1, 2, 3, 7, 64, 1000, INT64_MAX };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int ranges = 1; ranges <= 7 && ranges <= sizes[s]; ranges++) {
            int64_t next = 0, least = INT64_MAX, most = 0;
            for (int i = 0; i < ranges; i++) {
                int64_t begin, end;
                ebb__range_at(sizes[s], ranges, i, &begin, &end);
                cr_assert_eq(begin, next);
                if (end - begin < least) least = end - begin;
                if (end - begin > most) most = end - begin;
                next = end;
            }
            cr_assert_eq(next, sizes[s]);
            cr_assert_leq(most - least, 1);
        }
    }
}

Test(threads, range_count_follows_grain_and_threads)
{
    ebb__threads *threads = NULL;
    check_ok(ebb__threads_new(&threads, 3));
    cr_assert_eq(ebb__threads_count(threads), 3);
    cr_assert_eq(ebb__threads_ranges(threads, 0, 10), 0);
    cr_assert_eq(ebb__threads_ranges(threads, 1, 10), 1);
    cr_assert_eq(ebb__threads_ranges(threads, 10, 10), 1);
    cr_assert_eq(ebb__threads_ranges(threads, 11, 10), 2);
    cr_assert_eq(ebb__threads_ranges(threads, 1000, 10), 3);
    cr_assert_eq(ebb__threads_ranges(threads, 2, 0), 2);
    cr_assert_eq(ebb__threads_ranges(threads, INT64_MAX, 1), 3);
    cr_assert_eq(ebb__threads_ranges(threads, INT64_MAX, INT64_MAX), 1);
    ebb__threads_free(threads);
    check_no_live_blocks();
}

Test(threads, a_count_outside_the_limits_is_refused)
{
    ebb__threads *threads = NULL;
    check_fails(ebb__threads_new(&threads, 0), EBB_EINVAL);
    check_fails(ebb__threads_new(&threads, -1), EBB_EINVAL);
    check_fails(ebb__threads_new(&threads, 1000000), EBB_EINVAL);
    check_message("1000000");
    cr_assert_null(threads);
    ebb__threads_free(NULL);
}

Test(threads, every_allocation_may_fail)
{
    for (uint64_t n = 1;; n++) {
        ebb__threads *threads = NULL;
        ebb_fault_arm(n);
        ebb_status st = ebb__threads_new(&threads, 3);
        ebb__threads_free(threads);
        check_no_live_blocks();
        if (!ebb_fault_fired()) {
            cr_assert_eq(st, EBB_OK);
            cr_assert_eq(n, 3, "two allocations: the pool and its workers");
            return;
        }
        cr_assert_eq(st, EBB_ENOMEM);
        cr_assert_null(threads);
    }
}

typedef struct marks {
    int64_t n;
    int hits[1000];
    int owner[1000];
    _Atomic int calls;
} marks;

static void mark(void *arg, int64_t begin, int64_t end, int thread)
{
    marks *m = arg;
    atomic_fetch_add(&m->calls, 1);
    for (int64_t i = begin; i < end; i++) {
        m->hits[i]++; /* plain: each index belongs to one range */
        m->owner[i] = thread;
    }
}

static void check_run(ebb__threads *threads, int64_t n, int64_t grain)
{
    static marks m;
    m = (marks){ .n = n };
    ebb__threads_run(threads, n, grain, mark, &m);
    int ranges = ebb__threads_ranges(threads, n, grain);
    cr_assert_eq(m.calls, ranges);
    for (int r = 0; r < ranges; r++) {
        int64_t begin, end;
        ebb__range_at(n, ranges, r, &begin, &end);
        for (int64_t i = begin; i < end; i++) cr_assert(m.hits[i] == 1 && m.owner[i] == r);
    }
}

Test(threads, run_does_each_range_once_under_its_index)
{
    for (int count = 1; count <= 5; count++) {
        ebb__threads *threads = NULL;
        check_ok(ebb__threads_new(&threads, count));
        for (int64_t n = 0; n <= 20; n++)
            for (int64_t grain = 1; grain <= 4; grain++) check_run(threads, n, grain);
        check_run(threads, 1000, 1);
        ebb__threads_free(threads);
    }
    check_no_live_blocks();
}

static void add_up(void *arg, int64_t begin, int64_t end, int thread)
{
    int64_t *sums = arg;
    for (int64_t i = begin; i < end; i++) sums[thread] += i;
}

/* Jobs of changing width, so that workers are left out and come back. */
Test(threads, many_small_jobs_in_a_row)
{
    ebb__threads *threads = NULL;
    check_ok(ebb__threads_new(&threads, 4));
    int64_t sums[4] = { 0 }, expected = 0;
    for (int job = 0; job < 20000; job++) {
        int64_t n = 1 + job % 7;
        ebb__threads_run(threads, n, 1, add_up, sums);
        expected += n * (n - 1) / 2;
    }
    cr_assert_eq(sums[0] + sums[1] + sums[2] + sums[3], expected);
    ebb__threads_free(threads);
    check_no_live_blocks();
}

/* Pauses longer than workers spin: they sleep and must be woken. */
Test(threads, workers_that_sleep_are_woken)
{
    ebb__threads *threads = NULL;
    check_ok(ebb__threads_new(&threads, 2));
    int64_t sums[2] = { 0 };
    for (int job = 0; job < 200; job++) {
        if (job % 2) usleep(300);
        ebb__threads_run(threads, 2, 1, add_up, sums);
    }
    cr_assert_eq(sums[1], 200);
    ebb__threads_free(threads);
}

static void nap(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)begin, (void)end;
    if (thread > 0) usleep(2000);
    atomic_fetch_add((_Atomic int *)arg, 1);
}

Test(threads, a_caller_that_sleeps_is_woken)
{
    ebb__threads *threads = NULL;
    check_ok(ebb__threads_new(&threads, 3));
    for (int job = 0; job < 20; job++) {
        _Atomic int done = 0;
        ebb__threads_run(threads, 3, 1, nap, &done);
        cr_assert_eq(done, 3, "run returns when all ranges are done");
    }
    ebb__threads_free(threads);
}

typedef struct nested {
    ebb__threads *threads;
    _Atomic int64_t sum;
} nested;

static void inner(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t i = begin; i < end; i++) atomic_fetch_add(&((nested *)arg)->sum, i);
}

static void outer(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)begin, (void)end, (void)thread;
    ebb__threads_run(((nested *)arg)->threads, 10, 1, inner, arg);
}

Test(threads, a_job_inside_a_job_runs_by_itself)
{
    nested n = { 0 };
    check_ok(ebb__threads_new(&n.threads, 3));
    ebb__threads_run(n.threads, 3, 1, outer, &n);
    cr_assert_eq(n.sum, 3 * 45);
    ebb__threads_free(n.threads);
}

static void *run_many(void *arg)
{
    for (int i = 0; i < 500; i++) ebb__threads_run(((nested *)arg)->threads, 10, 1, inner, arg);
    return NULL;
}

Test(threads, two_callers_at_once_both_get_their_work_done)
{
    nested n = { 0 };
    pthread_t other;
    check_ok(ebb__threads_new(&n.threads, 2));
    cr_assert_eq(pthread_create(&other, NULL, run_many, &n), 0);
    run_many(&n);
    pthread_join(other, NULL);
    cr_assert_eq(n.sum, 2 * 500 * 45);
    ebb__threads_free(n.threads);
}

Test(threads, more_threads_than_cores_work)
{
    ebb__threads *threads = NULL;
    int count = 4 * ebb__cores() + 3;
    int64_t *sums = calloc((size_t)count, sizeof *sums), total = 0;
    check_ok(ebb__threads_new(&threads, count));
    for (int job = 0; job < 100; job++) ebb__threads_run(threads, 1000, 1, add_up, sums);
    for (int i = 0; i < count; i++) total += sums[i];
    cr_assert_eq(total, 100 * (1000 * 999 / 2));
    ebb__threads_free(threads);
    free(sums);
    check_no_live_blocks();
}

static int os_threads(void)
{
    int n = -1;
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && n < 0 && fgets(line, sizeof line, status))
        if (sscanf(line, "Threads: %d", &n) == 1) break;
    if (status) fclose(status);
    return n;
}

Test(threads, one_thread_starts_none_and_affinity_stays)
{
    cpu_set_t before, after;
    int threads_before = os_threads();
    ebb__threads *threads = NULL;
    sched_getaffinity(0, sizeof before, &before);
    check_ok(ebb__threads_new(&threads, 1));
    cr_assert_eq(os_threads(), threads_before);
    int64_t sum = 0;
    ebb__threads_run(threads, 10, 1, add_up, &sum);
    cr_assert_eq(sum, 45);
    ebb__threads_free(threads);
    sched_getaffinity(0, sizeof after, &after);
    cr_assert(CPU_EQUAL(&before, &after));
}

Test(threads, cores_counts_the_affinity_mask)
{
    cpu_set_t one;
    cr_assert_geq(ebb__cores(), 1);
    sched_getaffinity(0, sizeof one, &one);
    int first = 0;
    while (!CPU_ISSET(first, &one)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    cr_assert_eq(ebb__cores(), 1);
}

/* Threads of this process that sleep, as the system sees them. */
static int sleeping_threads(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
        char path[300], state = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!file) continue;
        if (fscanf(file, "%*d (%*[^)]) %c", &state) == 1 && state == 'S') n++;
        fclose(file);
    }
    if (tasks) closedir(tasks);
    return n;
}

/* However busy the machine is, a worker without work goes to sleep at some time. */
Test(threads, idle_workers_sleep)
{
    ebb__threads *threads = NULL;
    int before = sleeping_threads();
    check_ok(ebb__threads_new(&threads, 2));
    int64_t sums[2] = { 0 };
    ebb__threads_run(threads, 2, 1, add_up, sums);
    int asleep = before;
    for (int tries = 0; tries < 1000 && asleep <= before; tries++) {
        usleep(10000);
        asleep = sleeping_threads();
    }
    cr_assert_gt(asleep, before);
    ebb__threads_free(threads);
}
