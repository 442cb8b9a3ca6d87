/* cuda_fake/fake_device.c: opening, sweeping, copying. */
#include "fake_device.h"
#include "absorbed.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[512];

static ebb_status fail(ebb_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return code;
}

static const ebb__accel_host host = { .abi = EBB__ACCEL_ABI, .fail = fail };

const ebb__accel_host *plugin_host(void) { return &host; }
const char *plugin_message(void) { return message; }

const ebb__accel *plugin_table(void) { return ebb_accel_plugin(EBB__ACCEL_ABI); }

/* ---- opening ---------------------------------------------------------------------------------------- */

void fake_change(fake_changes c)
{
    fake_options options = fake_get_options();
    options.deferred = c.deferred;
    options.protect = c.protect;
    options.cudnn = !c.no_cudnn;
    options.vmm = !c.no_vmm;
    options.seed = c.seed ? c.seed : 1;
    options.fail_nth = c.fail_nth;
    options.refuse_launches = c.refuse_launches;
    options.engine = c.engine;
    if (c.mib) options.capacity_bytes = c.mib << 20;
    if (c.compute) options.compute = c.compute;
    if (c.devices) options.devices = c.devices;
    fake_set_options(&options);
}

static ebb_status open_and_lend(fake_device *d, int ordinal)
{
    SCRIPT_TRY(d->table->open(&d->self, &host, ordinal));
    d->table->facts(d->self, &d->facts);
    d->memory = d->table->provider(d->self);
    d->lent = d->memory.alloc(d->memory.self, d->facts.lent_bytes);
    if (!d->lent) return fail(EBB_ENOMEM, "no memory to lend");
    return d->table->lend(d->self, d->lent);
}

fake_device fake_device_try_open(int ordinal)
{
    fake_device d = { .table = plugin_table() };
    d.st = open_and_lend(&d, ordinal);
    return d;
}

void fake_device_try_close(fake_device *d)
{
    if (d->self) {
        (void)d->table->lend(d->self, NULL);
        if (d->lent) d->memory.free(d->memory.self, d->lent, d->facts.lent_bytes);
        d->table->close(d->self);
        d->self = NULL;
    }
    fake_counts counts = fake_get_counts();
    cr_assert(fake_alive(&counts) == 0, "alive: %ld blocks, %ld pinned, %ld streams, %ld events, %ld graphs, %ld pages, "
              "%ld reservations, %ld of cuBLAS, %ld of cuDNN", counts.blocks, counts.pinned, counts.streams,
              counts.events, counts.graphs, counts.pages, counts.reservations, counts.blas_objects,
              counts.cudnn_objects);
    cr_assert(counts.used_bytes == 0);
}

fake_device fake_device_open(fake_changes changes)
{
    fake_change(changes);
    fake_device d = fake_device_try_open(0);
    cr_assert(d.st == EBB_OK, "open: %s", message);
    return d;
}

void fake_device_close(fake_device *d)
{
    plugin_ok(d->table->synchronize(d->self));
    fake_device_try_close(d);
}

/* One run of a sweep; false: no call failed. */
static bool sweep_once(fake_script *script, void *arg, fake_changes changes, fake_counts *counts)
{
    long n = changes.fail_nth;
    fake_change(changes);
    message[0] = '\0';
    fake_device d = fake_device_try_open(0);
    ebb_status st = d.st == EBB_OK ? script(&d, arg) : d.st;
    if (st == EBB_OK) st = d.table->synchronize(d.self);
    *counts = fake_get_counts();
    fake_device_try_close(&d);
    if (!counts->failed) {
        cr_assert(st == EBB_OK, "without a failing call: %s", message);
        return false;
    }
    bool absorbed = fake_may_be_absorbed(counts->failed_call, d.closing_from && n > d.closing_from);
    if (st == EBB_OK) cr_assert(absorbed, "call %ld, %s: nobody was told", n, counts->failed_call);
    else cr_assert(message[0] != '\0', "call %ld, %s: no message", n, counts->failed_call);
    return true;
}

long fake_sweep(fake_script *script, void *arg, fake_changes changes)
{
    enum { MOST = 100000 };
    fake_counts counts;
    for (changes.fail_nth = 1; changes.fail_nth < MOST; changes.fail_nth++) {
        changes.refuse_launches = false;
        if (!sweep_once(script, arg, changes, &counts)) return changes.fail_nth - 1;
        changes.refuse_launches = true;
        if (strcmp(counts.failed_call, "launch") == 0) (void)sweep_once(script, arg, changes, &counts);
    }
    cr_assert_fail("a script without an end");
    return MOST;
}

/* ---- memory ------------------------------------------------------------------------------------------- */

void *fake_new(fake_device *d, size_t bytes)
{
    void *p = d->memory.alloc(d->memory.self, bytes);
    cr_assert(p != NULL, "no device memory of %zu bytes", bytes);
    return p;
}

void fake_delete(fake_device *d, void *p, size_t bytes) { d->memory.free(d->memory.self, p, bytes); }

void fake_put(fake_device *d, void *to, const void *from, size_t bytes)
{
    plugin_ok(d->table->copy(d->self, NULL, to, from, bytes, EBB__TO_DEVICE));
}

void fake_get(fake_device *d, void *to, const void *from, size_t bytes)
{
    plugin_ok(d->table->copy(d->self, NULL, to, from, bytes, EBB__FROM_DEVICE));
    plugin_ok(d->table->synchronize(d->self));
}

void *fake_new_from(fake_device *d, const void *from, size_t bytes)
{
    void *p = fake_new(d, bytes);
    fake_put(d, p, from, bytes);
    return p;
}

ebb_arg fake_arg(void *data, ebb_dtype dtype, int64_t a, int64_t b, int64_t c)
{
    ebb_arg arg = { .data = data, .dtype = dtype, .dims = { a, b, c }, .elems = 1 };
    while (arg.ndim < 3 && arg.dims[arg.ndim] > 0) arg.elems *= arg.dims[arg.ndim++];
    int64_t stride = 1;
    for (int d = arg.ndim - 1; d >= 0; d--) {
        arg.strides[d] = stride;
        stride *= arg.dims[d];
    }
    return arg;
}

/* ---- numbers -------------------------------------------------------------------------------------------- */

size_t fake_dtype_bytes(ebb_dtype dtype) { return dtype == EBB_F64 ? 8 : dtype == EBB_F32 ? 4 : 2; }

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Halves through gcc's own type. */
double fake_load(const void *p, int64_t i, ebb_dtype dtype)
{
    switch (dtype) {
    case EBB_F64: return ((const double *)p)[i];
    case EBB_F32: return ((const float *)p)[i];
    case EBB_F16: return ((const _Float16 *)p)[i];
    default: return from_bits((uint32_t)((const uint16_t *)p)[i] << 16);
    }
}

void fake_store(void *p, int64_t i, ebb_dtype dtype, double value)
{
    uint32_t bits = to_bits((float)value);
    switch (dtype) {
    case EBB_F64: ((double *)p)[i] = value; break;
    case EBB_F32: ((float *)p)[i] = (float)value; break;
    case EBB_F16: ((_Float16 *)p)[i] = (_Float16)value; break;
    default: ((uint16_t *)p)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

double fake_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / (1 << 23) - 1;
}
