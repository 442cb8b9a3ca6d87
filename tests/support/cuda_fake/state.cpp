/* state.cpp: options from the environment, counts, which call fails, the last error. */
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emu_control.h"
#include "state.h"

namespace fake {

fake_options options;
fake_counts counts;
std::mutex big_lock;
cudaError_t crash = cudaSuccess;

static unsigned random_state;

static const char *text(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value ? value : otherwise;
}

/* The program may leave by _exit(), so it is written whenever something goes. */
void write_report()
{
    const char *path = getenv("FAKE_CUDA_REPORT");
    FILE *file = path ? fopen(path, "w") : nullptr;
    if (!file) return;
    fprintf(file, "{\"alive\": %ld, \"blocks\": %ld, \"pinned\": %ld, \"streams\": %ld, \"events\": %ld, \"graphs\": %ld, "
            "\"pages\": %ld, \"reservations\": %ld, \"blas_objects\": %ld, \"cudnn_objects\": %ld, \"used_bytes\": %zu, "
            "\"peak_bytes\": %zu, \"calls\": %ld, \"launches\": %ld, \"products\": %ld, \"graph_launches\": %ld, "
            "\"cudnn_executions\": %ld, \"failed\": %s, \"failed_call\": \"%s\"}\n", fake_alive(&counts), counts.blocks, counts.pinned,
            counts.streams, counts.events, counts.graphs, counts.pages, counts.reservations, counts.blas_objects,
            counts.cudnn_objects, counts.used_bytes, counts.peak_bytes, counts.calls, counts.launches,
            counts.products, counts.graph_launches, counts.cudnn_executions, counts.failed ? "true" : "false",
            counts.failed ? counts.failed_call : "");
    fclose(file);
}

static void read_environment()
{
    options.capacity_bytes = (size_t)atol(text("FAKE_CUDA_MIB", "1024")) << 20;
    options.deferred = strcmp(text("FAKE_CUDA_STREAMS", "eager"), "deferred") == 0;
    options.seed = (unsigned)atol(text("FAKE_CUDA_SEED", "1"));
    options.fail_nth = atol(text("FAKE_CUDA_FAIL_NTH", "0"));
    options.fail_rate = atof(text("FAKE_CUDA_FAIL_RATE", "0"));
    options.protect = atoi(text("FAKE_CUDA_PROTECT", "0")) != 0;
    options.devices = atoi(text("FAKE_CUDA_DEVICES", "1"));
    options.compute = atoi(text("FAKE_CUDA_COMPUTE", "80"));
    options.cudnn = atoi(text("FAKE_CUDA_CUDNN", "1")) != 0;
    options.vmm = atoi(text("FAKE_CUDA_VMM", "1")) != 0;
    const char *driver = getenv("FAKE_CUDA_DRIVER");
    options.driver = driver ? atoi(driver) : CUDART_VERSION;
    random_state = options.seed;
    write_report();
}

guard enter()
{
    static std::once_flag once;
    std::call_once(once, read_environment);
    return guard(big_lock);
}

unsigned random_below(unsigned n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

bool must_fail(const char *call)
{
    counts.calls++;
    bool fails = counts.calls == options.fail_nth;
    if (options.fail_rate > 0 && random_below(1u << 20) < options.fail_rate * (1u << 20)) fails = true;
    if (fails) {
        counts.failed = true;
        counts.failed_call = call;
    }
    return fails;
}

void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("cuda_fake: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

cudaError_t result(cudaError_t error)
{
    if (error != cudaSuccess) emu_last_error = error;
    return error;
}

}

fake_options fake_get_options(void)
{
    fake::guard lock = fake::enter();
    return fake::options;
}

void fake_set_options(const fake_options *wanted)
{
    fake::guard lock = fake::enter();
    if (fake_alive(&fake::counts) > 0) fake::die("options change while %ld things are alive", fake_alive(&fake::counts));
    fake::options = *wanted;
    fake::random_state = wanted->seed;
    fake::counts.calls = 0;
    fake::counts.failed = false;
    fake::counts.failed_call = nullptr;
    fake::crash = cudaSuccess;
}

fake_counts fake_get_counts(void)
{
    fake::guard lock = fake::enter();
    return fake::counts;
}

long fake_alive(const fake_counts *c)
{
    return c->blocks + c->pinned + c->streams + c->events + c->graphs + c->pages + c->reservations + c->blas_objects +
           c->cudnn_objects;
}
