/* state.h: what the files of the fake share: its options, its counts, its lock, and the queues of streams. */
#ifndef EBB_TESTS_CUDA_FAKE_STATE_H
#define EBB_TESTS_CUDA_FAKE_STATE_H

#include <cuda_runtime_api.h>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
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

/* The device that the calling thread has chosen: 0 until it chooses. */
enum { MOST_DEVICES = 4 };
int current_device();

/* A call of the runtime: takes the lock; fails where it is its turn, or where a kernel has crashed. */
#define FAKE_CALL(error)                                                     \
    fake::guard lock = fake::enter();                                        \
    if (fake::crash != cudaSuccess) return fake::result(fake::crash);        \
    if (fake::must_fail(__func__)) return fake::result(error)

/* One that may wait or allocate, too. */
#define FAKE_UNSAFE_CALL(error)                                              \
    FAKE_CALL(error);                                                        \
    if (fake::is_forbidden_by_capture()) return fake::result(cudaErrorStreamCaptureUnsupported)

/* A kernel that was told to fail: from then on every call says so, as on a real device.  cudaGetLastError() does where
 * such a call has left it. */
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
bool all_empty(); /* no stream has work */
void run_one(); /* in deferred mode: what a query gives time for */
int device_of(cudaStream_t stream); /* the legacy stream is the current device's */
/* A capture that is not relaxed forbids what may wait or allocate: this thread, or (global) any.  The call has then
 * broken the capture. */
bool is_forbidden_by_capture();

/* ---- memory.cpp ----------------------------------------------------------------------------------- */

bool is_device(const void *p, size_t bytes, int device); /* all of it is accessible memory of that device */
bool touches_device(const void *p, size_t bytes);
bool is_pinned(const void *p, size_t bytes);
void work_is_done(); /* all streams are empty: memory that was freed too early goes now */
/* Device memory that vmm.cpp maps, page by page. */
void add_page(char *p, size_t bytes, int device);
void remove_page(char *p, size_t bytes);
bool take_capacity(size_t bytes, int device); /* false: it is full */
void give_capacity(size_t bytes, int device);
/* While one is alive the running thread may touch device memory. */
struct access {
    access();
    ~access();
};

}

struct CUevent_st {
    int device = fake::current_device();
    unsigned long recorded = 0, done = 0;
    long queued = 0;        /* entries of queues that name it */
    bool destroyed = false; /* goes when no entry does any more: destroying waits for nothing */
};

struct CUstream_st {
    int device = fake::current_device();
    std::deque<fake::entry> queue;
    bool busy = false; /* its first entry runs on the host, without the lock */
    bool capturing = false, invalidated = false;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id capturer;
    std::vector<fake::entry> captured;
};

#endif
