/* queue.cpp: streams as queues, and the scheduler that draws which goes on. */
#include <thread>

#include "emu_control.h"
#include "state.h"

namespace fake {

static std::vector<cudaStream_t> streams;
static std::condition_variable host_function_done;

static bool is_ready(cudaStream_t s)
{
    if (s->queue.empty() || s->busy) return false;
    const entry &first = s->queue.front();
    return !first.wait || first.wait->done >= first.wait_for;
}

static void forget(cudaEvent_t event)
{
    if (!event) return;
    event->queued--;
    if (event->destroyed && event->queued == 0) delete event;
}

/* The first entry of the stream is done. */
static void finish_first(cudaStream_t s)
{
    entry first = std::move(s->queue.front());
    s->queue.pop_front();
    if (first.record && first.record->done < first.reached) first.record->done = first.reached;
    forget(first.wait);
    forget(first.record);
    counts.done++;
    if (all_empty()) work_is_done();
}

static void go_on();

/* On a thread of its own, as a driver does it: whoever schedules it may hold locks that it takes. */
static void run_on_host(cudaStream_t s)
{
    s->busy = true;
    std::thread([s, run = s->queue.front().run] {
        run();
        guard lock(big_lock);
        s->busy = false;
        finish_first(s);
        go_on();
        host_function_done.notify_all();
    }).detach();
}

/* Runs the first entry of a stream that is ready, or begins to. */
static void run_first(cudaStream_t s)
{
    const entry &first = s->queue.front();
    if (first.on_host) {
        run_on_host(s);
        return;
    }
    if (first.run && crash == cudaSuccess) {
        access device;
        first.run();
    }
    finish_first(s);
}

static bool run_any()
{
    std::vector<cudaStream_t> ready;
    for (cudaStream_t s : streams)
        if (is_ready(s)) ready.push_back(s);
    if (ready.empty()) return false;
    run_first(ready[random_below((unsigned)ready.size())]);
    return true;
}

void run_until(guard &lock, const std::function<bool()> &done)
{
    while (!done()) {
        if (run_any()) continue;
        bool busy = false;
        for (cudaStream_t s : streams) busy = busy || s->busy;
        if (!busy) die("nothing can go on: a stream waits for an event that nobody reaches");
        host_function_done.wait(lock);
    }
}

bool all_empty()
{
    for (cudaStream_t s : streams)
        if (!s->queue.empty()) return false;
    return true;
}

void run_one()
{
    if (options.deferred) run_any();
}

int device_of(cudaStream_t stream) { return stream ? stream->device : current_device(); }

bool is_forbidden_by_capture()
{
    bool forbidden = false;
    for (cudaStream_t s : streams) {
        bool mine = s->capturer == std::this_thread::get_id();
        if (!s->capturing || s->mode == cudaStreamCaptureModeRelaxed) continue;
        if (!mine && s->mode == cudaStreamCaptureModeThreadLocal) continue;
        s->invalidated = forbidden = true;
    }
    return forbidden;
}

static cudaStream_t legacy_stream()
{
    static CUstream_st stream;
    static bool known;
    if (!known) streams.push_back(&stream);
    known = true;
    return &stream;
}

/* What follows when work comes or ends: eager, all that can run; deferred, now and then something. */
static void go_on()
{
    if (options.deferred) {
        if (random_below(4) == 0) run_any();
        return;
    }
    while (run_any()) {}
}

void push(cudaStream_t stream, entry what)
{
    cudaStream_t s = stream ? stream : legacy_stream();
    if (s->capturing) {
        s->captured.push_back(std::move(what));
        return;
    }
    if (what.wait) what.wait->queued++;
    if (what.record) what.record->queued++;
    s->queue.push_back(std::move(what));
    go_on();
}

void push(cudaStream_t stream, std::function<void()> run)
{
    push(stream, entry{ std::move(run), false, nullptr, 0, nullptr, 0 });
}

/* ---- kernels ---------------------------------------------------------------------------------------- */

/* A launch that is to fail is refused, or does so as kernels do: nothing is said here, every later call reports it.
 * What is said of a launch is the thread's last error: one that an earlier call left would be taken for it. */
static void launch(cudaStream_t stream, std::function<void()> work)
{
    guard lock = enter();
    if (crash != cudaSuccess) {
        result(crash);
        return;
    }
    if (emu_last_error != cudaSuccess) die("a launch finds the error %d of an earlier call", (int)emu_last_error);
    counts.launches++;
    bool fails = must_fail("launch");
    if (fails && options.refuse_launches) result(cudaErrorLaunchOutOfResources);
    else if (fails) crash = cudaErrorLaunchFailure;
    else if (device_of(stream) != current_device()) result(cudaErrorInvalidResourceHandle);
    else push(stream, std::move(work));
}

__attribute__((constructor)) static void hook_kernels() { emu_queue = launch; }

}

using namespace fake;

/* ---- streams ---------------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    FAKE_CALL(cudaErrorMemoryAllocation);
    if (flags != cudaStreamNonBlocking) die("a stream that waits for the legacy stream is not modelled");
    *stream = new CUstream_st;
    streams.push_back(*stream);
    counts.streams++;
    return cudaSuccess;
}

/* As on a device: returns at once, what is queued still runs.  Here it is run now, in its turn. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    guard lock = enter();
    run_until(lock, [&] { return stream->queue.empty(); });
    for (size_t i = 0; i < streams.size(); i++) {
        if (streams[i] != stream) continue;
        streams.erase(streams.begin() + (long)i);
        counts.streams--;
        delete stream;
        write_report();
        return cudaSuccess;
    }
    die("cudaStreamDestroy of what is no stream");
}

static cudaError_t refuse_in_capture(cudaStream_t stream)
{
    stream->invalidated = true;
    return result(cudaErrorStreamCaptureUnsupported);
}

/* A wait that is to fail has waited nevertheless, as one that reports an earlier error. */
static cudaError_t waited(bool fails) { return result(crash == cudaSuccess && fails ? cudaErrorUnknown : crash); }

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    guard lock = enter();
    bool fails = must_fail(__func__);
    cudaStream_t s = stream ? stream : legacy_stream();
    if (s->capturing) return refuse_in_capture(s);
    if (is_forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
    run_until(lock, [&] { return s->queue.empty(); });
    return waited(fails);
}

cudaError_t cudaDeviceSynchronize(void)
{
    guard lock = enter();
    bool fails = must_fail(__func__);
    int device = current_device();
    for (cudaStream_t s : streams)
        if (s->capturing && s->device == device) return refuse_in_capture(s);
    run_until(lock, [=] {
        for (cudaStream_t s : streams)
            if (s->device == device && !s->queue.empty()) return false;
        return true;
    });
    return waited(fails);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *arg)
{
    FAKE_CALL(cudaErrorUnknown);
    push(stream, entry{ [=] { function(arg); }, true, nullptr, 0, nullptr, 0 });
    return cudaSuccess;
}

/* ---- events ----------------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    FAKE_CALL(cudaErrorMemoryAllocation);
    *event = new CUevent_st;
    counts.events++;
    return cudaSuccess;
}

/* Waits for nothing, or it would hide missing waits. */
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    guard lock = enter();
    if (event->destroyed) die("an event is destroyed twice");
    counts.events--;
    event->destroyed = true;
    if (event->queued == 0) delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    FAKE_CALL(cudaErrorUnknown);
    if (stream && stream->capturing) return refuse_in_capture(stream);
    if (event->device != device_of(stream)) return result(cudaErrorInvalidResourceHandle);
    event->recorded++;
    push(stream, entry{ nullptr, false, nullptr, 0, event, event->recorded });
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    FAKE_CALL(cudaErrorUnknown);
    if (stream && stream->capturing) return refuse_in_capture(stream);
    push(stream, entry{ nullptr, false, event, event->recorded, nullptr, 0 });
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    FAKE_UNSAFE_CALL(cudaErrorUnknown);
    run_one();
    return event->done >= event->recorded ? cudaSuccess : result(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    guard lock = enter();
    bool fails = must_fail(__func__);
    if (is_forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
    unsigned long wanted = event->recorded;
    run_until(lock, [&] { return event->done >= wanted; });
    return waited(fails);
}

/* ---- graphs ----------------------------------------------------------------------------------------- */

struct CUgraph_st {
    std::vector<entry> entries;
    int device;
};
struct CUgraphExec_st {
    std::vector<entry> entries;
    int device;
};

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    FAKE_CALL(cudaErrorUnknown);
    if (!stream || stream->capturing) return result(cudaErrorIllegalState);
    stream->capturing = true;
    stream->mode = mode;
    stream->capturer = std::this_thread::get_id();
    stream->invalidated = false;
    stream->captured.clear();
    return cudaSuccess;
}

/* Ends the capture also where it fails. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    guard lock = enter();
    bool fails = must_fail(__func__), was = stream->capturing, broken = stream->invalidated;
    stream->capturing = false;
    *graph = nullptr;
    if (crash != cudaSuccess) return result(crash);
    if (fails) return result(cudaErrorUnknown);
    if (!was) return result(cudaErrorIllegalState);
    if (broken) return result(cudaErrorStreamCaptureInvalidated);
    *graph = new CUgraph_st{ std::move(stream->captured), stream->device };
    counts.graphs++;
    stream->captured.clear();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    FAKE_CALL(cudaErrorMemoryAllocation);
    *exec = new CUgraphExec_st{ graph->entries, graph->device };
    counts.graphs++;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    guard lock = enter();
    counts.graphs--;
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    guard lock = enter();
    counts.graphs--;
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    FAKE_CALL(cudaErrorUnknown);
    if (exec->device != device_of(stream)) return result(cudaErrorInvalidResourceHandle);
    counts.graph_launches++;
    for (const entry &e : exec->entries) push(stream, e);
    return cudaSuccess;
}
