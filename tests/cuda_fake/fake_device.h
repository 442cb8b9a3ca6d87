/* cuda_fake/fake_device.h: the plugin's device 0 (or another), opened through its table over the fake runtime. */
#ifndef EBB_TESTS_FAKE_DEVICE_H
#define EBB_TESTS_FAKE_DEVICE_H

#include <criterion/criterion.h>
#include "cuda_fake.h"
#include "device/cuda/cuda.h"

typedef struct fake_device {
    const ebb__accel *table;
    void *self;
    ebb__provider memory;
    ebb__accel_facts facts;
    void *lent;
    ebb_status st;     /* of opening */
    long closing_from; /* a script that closes things says from which call on, before; 0: it does not */
} fake_device;

ebb__accel_entry ebb_accel_plugin; /* the plugin's */
const ebb__accel *plugin_table(void);
const ebb__accel_host *plugin_host(void);
const char *plugin_message(void); /* the last that the plugin set; "" when there was none */

/* Options as the environment says, changed by the caller before the device is opened. */
#define with_fake(device, ...)                                                                            \
    for (fake_device device = fake_device_open((fake_changes){ __VA_ARGS__ }); device.self;               \
         fake_device_close(&device))

/* 0 and false: as the environment says. */
typedef struct fake_changes {
    bool deferred, protect, no_cudnn, no_vmm;
    unsigned seed;
    size_t mib;
    int compute, devices;
    long fail_nth;
    bool refuse_launches;
    fake_engine engine;
} fake_changes;

void fake_change(fake_changes changes);
/* The test ends where that fails, or where after closing anything is alive. */
fake_device fake_device_open(fake_changes changes);
void fake_device_close(fake_device *device);
/* The same for sweeps, where it may fail: device->st says; try_close() checks that all is gone. */
fake_device fake_device_try_open(int ordinal);
void fake_device_try_close(fake_device *device);

/* Runs `script` again and again, with the n-th call that can fail failing for n = 1, 2, ... until it has run
 * through, each launch in both ways; each time it must return an error with a message (but for the calls of
 * absorbed.h), and nothing may be alive afterwards.  Returns how many calls there are. */
typedef ebb_status fake_script(fake_device *device, void *arg);
long fake_sweep(fake_script *script, void *arg, fake_changes changes);

#define plugin_ok(call)                                                                              \
    do {                                                                                             \
        ebb_status plugin_status_ = (call);                                                          \
        cr_assert(plugin_status_ == EBB_OK, "%s: %d: %s", #call, (int)plugin_status_, plugin_message()); \
    } while (0)

/* In scripts of sweeps. */
#define SCRIPT_TRY(call)                                   \
    do {                                                   \
        ebb_status script_status_ = (call);                \
        if (script_status_ != EBB_OK) return script_status_; \
    } while (0)

/* ---- device memory, of exactly so many bytes; copies wait ------------------------------------------ */
void *fake_new(fake_device *device, size_t bytes);
void fake_delete(fake_device *device, void *p, size_t bytes);
void fake_put(fake_device *device, void *to, const void *from, size_t bytes);
void fake_get(fake_device *device, void *to, const void *from, size_t bytes);
void *fake_new_from(fake_device *device, const void *from, size_t bytes);

/* A contiguous argument of up to 3 dims; 0 ends them. */
ebb_arg fake_arg(void *data, ebb_dtype dtype, int64_t a, int64_t b, int64_t c);

/* ---- numbers of any float dtype ---------------------------------------------------------------------- */
double fake_load(const void *p, int64_t i, ebb_dtype dtype);
void fake_store(void *p, int64_t i, ebb_dtype dtype, double value);
double fake_random(unsigned *state); /* in [-1, 1] */
size_t fake_dtype_bytes(ebb_dtype dtype);

#endif
