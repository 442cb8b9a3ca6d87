/* state.h: what the files of the fake share: its options, its counts, its lock, and the queues of streams. */
#ifndef EBB_TESTS_CUDA_FAKE_STATE_H
#define EBB_TESTS_CUDA_FAKE_STATE_H

#include <cuda_runtime_api.h>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "cuda_fake.h"

namespace fake {

/* ---- state.cpp ------------------------------------------------------------------------------------ */

extern fake_options options;
extern fake_counts counts;

/* Every call of the API holds it; work of streams runs under it too, but for host functions.  Waiting for
 * them lets it go. */
extern std::mutex big_lock;
typedef std::unique_lock<std::mutex> guard;
guard enter(); /* reads the environment the first time */

void write_report(); /* FAKE_CUDA_REPORT, where it is set */

/* Counts a call that can fail, by its name (a literal); true: it is to fail. */
bool must_fail(const char *call);
unsigned random_below(unsigned n);
[[noreturn]] void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
cudaError_t result(cudaError_t error); /* remembers it for cudaGetLastError() */
cudaError_t take_last_error();
cudaError_t peek_last_error();

/* A call of the runtime: takes the lock; fails where it is its turn, or where a kernel has crashed. */
#define FAKE_CALL(error)                                                     \
    fake::guard lock = fake::enter();                                        \
    if (fake::crash != cudaSuccess) return fake::result(fake::crash);        \
    if (fake::must_fail(__func__)) return fake::result(error)

/* A kernel that was told to fail: from then on every call says so, as on a real device. */
extern cudaError_t crash;

/* ---- queue.cpp ------------------------------------------------------------------------------------ */

struct entry {
    std::function<void()> run;  /* may be empty */
    bool on_host;               /* a host function: runs without the lock, on a thread of its own */
    cudaEvent_t wait;           /* NULL or: goes on when this event has reached... */
    unsigned long wait_for;
    cudaEvent_t record;         /* NULL or: this event reaches... */
    unsigned long reached;
};
/* Puts it at the end of the stream, or into what the stream captures. */
void push(cudaStream_t stream, entry what);
void push(cudaStream_t stream, std::function<void()> run);
/* Runs work of any stream until `done`; dies where nothing can go on. */
void run_until(guard &lock, const std::function<bool()> &done);
void drain(guard &lock);
bool all_empty(); /* no stream has work */
void run_one(); /* in deferred mode: what a query gives time for */
bool is_capturing();

/* ---- memory.cpp ----------------------------------------------------------------------------------- */

bool is_device(const void *p, size_t bytes);  /* all of it is accessible device memory */
bool touches_device(const void *p, size_t bytes);
bool is_pinned(const void *p, size_t bytes);
void work_is_done(); /* all streams are empty: memory that was freed too early goes now */
/* Device memory that vmm.cpp maps, page by page. */
void add_page(char *p, size_t bytes);
void remove_page(char *p, size_t bytes);
bool take_capacity(size_t bytes); /* false: the device is full */
void give_capacity(size_t bytes);
/* While one is alive the running thread may touch device memory. */
struct access {
    access();
    ~access();
};

}

struct CUevent_st {
    unsigned long recorded = 0, done = 0;
    long queued = 0;        /* entries of queues that name it */
    bool destroyed = false; /* goes when no entry does any more: destroying waits for nothing */
};

struct CUstream_st {
    std::deque<fake::entry> queue;
    bool busy = false; /* its first entry runs on the host, without the lock */
    bool capturing = false, invalidated = false;
    std::vector<fake::entry> captured;
};

#endif
