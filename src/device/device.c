/* The built-in devices: "cpu", and "dry:cpu", which does everything but the work. */
#include "device/device.h"

#include <string.h>
#include "device/blas.h"

static ebb_status open_cpu(ebb__device *device, int threads)
{
    ebb_status st = ebb__blas_open();
    if (st == EBB_OK) st = ebb__threads_new(&device->threads, threads);
    if (st == EBB_OK) device->provider = ebb__host_provider();
    return st;
}

static ebb_status open_dry_cpu(ebb__device *device, int threads)
{
    (void)threads;
    return ebb__dry_provider_new(&device->provider);
}

static const struct known {
    const char *name;
    bool dry;
    ebb_status (*open)(ebb__device *device, int threads);
} known[] = {
    { "cpu", false, open_cpu },
    { "dry:cpu", true, open_dry_cpu },
};
enum { N_KNOWN = sizeof known / sizeof *known };

static const struct known *find(const char *name)
{
    for (int i = 0; i < N_KNOWN; i++) {
        if (strcmp(known[i].name, name) == 0) return &known[i];
    }
    return NULL;
}

/* "cpu, dry:cpu" */
static const char *known_names(char *buf, size_t bytes)
{
    buf[0] = '\0';
    for (int i = 0; i < N_KNOWN; i++) {
        if (i > 0) strncat(buf, ", ", bytes - strlen(buf) - 1);
        strncat(buf, known[i].name, bytes - strlen(buf) - 1);
    }
    return buf;
}

ebb_status ebb__device_open(ebb__device *out, const char *name, int threads)
{
    enum { MAX_THREADS = 1024 };
    const struct known *kind = find(name ? name : "cpu");
    if (!kind) {
        char names[128];
        return ebb_fail(EBB_EDEVICE, "device \"%s\" is unknown; there are: %s", name,
                        known_names(names, sizeof names));
    }
    if (threads < 0 || threads > MAX_THREADS) {
        return ebb_fail(EBB_EINVAL, "device %s: %d threads; 1 to %d, or 0 for all cores", kind->name,
                        threads, (int)MAX_THREADS);
    }
    if (threads == 0) threads = ebb__cores();
    ebb__device device = { .name = kind->name, .dry = kind->dry, .n_threads = threads };
    ebb_status st = ebb__streams_new(&device.streams, kind->dry);
    if (st == EBB_OK) st = kind->open(&device, threads);
    if (st == EBB_OK) *out = device;
    else ebb__streams_free(device.streams);
    return st;
}

void ebb__device_close(ebb__device *device)
{
    if (!device->name) return; /* never opened */
    ebb__streams_free(device->streams);
    ebb__threads_free(device->threads);
    if (device->dry) ebb__dry_provider_free(&device->provider);
    memset(device, 0, sizeof *device);
}
