/* device/device.c: names, and what opening and closing a device does. */
#include "device/device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/site.h"
#include "device/blas.h"
#include "device/plugin.h"
#include "device/profile.h"

/* ---- names ---------------------------------------------------------------------------------- */

static const ebb__accel_kind cpu_kind = { .name = "cpu" };

/* A name taken apart: "dry:cuda:h100-80gb". */
typedef struct parsed {
    bool dry;
    const ebb__accel_kind *kind; /* NULL: unknown */
    const char *which;           /* ordinal, profile or file; NULL: not given */
} parsed;

static bool is_kind(const ebb__accel_kind *kind, const char *name)
{
    size_t n = strlen(kind->name);
    return strncmp(name, kind->name, n) == 0 && (name[n] == '\0' || name[n] == ':');
}

static parsed parse(const char *name)
{
    parsed p = { .dry = strncmp(name, "dry:", 4) == 0 };
    if (p.dry) name += 4;
    if (strcmp(name, cpu_kind.name) == 0) p.kind = &cpu_kind;
    for (int i = 0; !p.kind && ebb__accel_kind_at(i); i++)
        if (is_kind(ebb__accel_kind_at(i), name)) p.kind = ebb__accel_kind_at(i);
    const char *colon = strchr(name, ':');
    if (colon) p.which = colon + 1;
    return p;
}

static ebb_status unknown(const char *name)
{
    char known[128] = "cpu";
    for (int dry = 0; dry < 2; dry++) {
        if (dry) strncat(known, ", dry:cpu", sizeof known - strlen(known) - 1);
        for (int i = 0; ebb__accel_kind_at(i); i++) {
            strncat(known, dry ? ", dry:" : ", ", sizeof known - strlen(known) - 1);
            strncat(known, ebb__accel_kind_at(i)->name, sizeof known - strlen(known) - 1);
        }
    }
    return ebb_fail(EBB_EDEVICE, "device \"%.60s\" is unknown; there are: %s", name, known);
}

/* -1: it is not one. */
static int ordinal_of(const char *text)
{
    char *end = NULL;
    if (!text || *text < '0' || *text > '9') return -1;
    long n = strtol(text, &end, 10);
    return *end == '\0' && n < 4096 ? (int)n : -1;
}

void ebb__device_dry_name(char out[EBB__DEVICE_NAME_BYTES], const char *name)
{
    if (!name) name = cpu_kind.name;
    parsed p = parse(name);
    /* Without an ordinal it would be a profile's. */
    bool first = !p.dry && p.kind && p.kind != &cpu_kind && !p.which;
    snprintf(out, EBB__DEVICE_NAME_BYTES, "%s%s%s", p.dry ? "" : "dry:", name, first ? ":0" : "");
}

/* ---- the cpu -------------------------------------------------------------------------------- */

static ebb_status open_cpu(ebb__device *device)
{
    device->name = device->dry ? "dry:cpu" : cpu_kind.name;
    if (device->dry) return ebb__dry_provider_new(&device->provider);
    ebb_status st = ebb__blas_open();
    if (st == EBB_OK) st = ebb__threads_new(&device->threads, device->n_threads);
    if (st == EBB_OK) device->provider = ebb__host_provider();
    return st;
}

/* ---- accelerators --------------------------------------------------------------------------- */

/* What devices of this machine are: dry runs ask for it many times, and opening one takes a while, so the
 * facts of the last that was opened are kept. */
static struct {
    pthread_mutex_t lock;
    const ebb__accel *table; /* NULL: none yet */
    int ordinal;
    ebb__accel_facts facts;
} last = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void remember(const ebb__accelerator *accel, int ordinal)
{
    pthread_mutex_lock(&last.lock);
    last.table = accel->table;
    last.ordinal = ordinal;
    last.facts = accel->facts;
    pthread_mutex_unlock(&last.lock);
}

static bool is_remembered(ebb__accel_facts *out, const ebb__accel *table, int ordinal)
{
    pthread_mutex_lock(&last.lock);
    bool found = last.table == table && last.ordinal == ordinal;
    if (found) *out = last.facts;
    pthread_mutex_unlock(&last.lock);
    return found;
}

static ebb_status open_table(ebb__accelerator *accel, const ebb__accel_kind *kind, int ordinal)
{
    const ebb__accel *table = NULL;
    int n = 0;
    char what[64];
    EBB__TRY(ebb__accel_load(&table, kind));
    EBB__TRY(ebb__accel_count(&n, table));
    if (ordinal >= n)
        return ebb_fail(EBB_EDEVICE, "device %s:%d: this machine has %d, numbered from 0", kind->name, ordinal, n);
    snprintf(what, sizeof what, "opening device %s:%d", kind->name, ordinal);
    EBB__TRY(ebb__device_doing(what, table->open(&accel->self, ebb__accel_host_table(), ordinal)));
    accel->table = table;
    table->facts(accel->self, &accel->facts);
    remember(accel, ordinal);
    return EBB_OK;
}

/* Without keeping it open. */
static ebb_status facts_of(ebb__accel_facts *out, const ebb__accel_kind *kind, int ordinal)
{
    const ebb__accel *table = NULL;
    ebb__accelerator accel = { .table = NULL };
    EBB__TRY(ebb__accel_load(&table, kind));
    if (is_remembered(out, table, ordinal)) return EBB_OK;
    EBB__TRY(open_table(&accel, kind, ordinal));
    *out = accel.facts;
    table->close(accel.self);
    return EBB_OK;
}

/* NULL: the kind has no profile of its own. */
static const char *dry_which(const parsed *p) { return p->which ? p->which : p->kind->profile; }

static ebb_status dry_facts(ebb__accel_facts *out, const parsed *p)
{
    if (!dry_which(p))
        return ebb_fail(EBB_EDEVICE, "device dry:%s: no profile is built in; dry:%s:FILE.json names one like those of "
                        "devices/, dry:%s:0 a device of this machine", p->kind->name, p->kind->name, p->kind->name);
    int ordinal = ordinal_of(dry_which(p));
    return ordinal >= 0 ? facts_of(out, p->kind, ordinal) : ebb__profile_find(out, p->kind, dry_which(p));
}

static ebb_status open_dry(ebb__device *device, const parsed *p)
{
    ebb__accelerator *accel = device->accel;
    EBB__TRY(dry_facts(&accel->facts, p));
    snprintf(accel->name, sizeof accel->name, "dry:%s:%s", p->kind->name, dry_which(p));
    return ebb__dry_provider_new(&device->provider);
}

static ebb_status open_real(ebb__device *device, const parsed *p)
{
    ebb__accelerator *accel = device->accel;
    int ordinal = p->which ? ordinal_of(p->which) : 0;
    if (ordinal < 0)
        return ebb_fail(EBB_EDEVICE,
                        "device %s:%.60s: expected a number from 0; profiles are for dry runs, dry:%s:%.60s",
                        p->kind->name, p->which, p->kind->name, p->which);
    snprintf(accel->name, sizeof accel->name, "%s:%d", p->kind->name, ordinal);
    EBB__TRY(open_table(accel, p->kind, ordinal));
    ebb__streams_use(device->streams, accel->table, accel->self);
    device->provider = accel->table->provider(accel->self);
    return ebb__threads_new(&device->threads, device->n_threads);
}

/* The pool maps pages of one size on every device, so that layouts are predictable.  A page of 0 bytes: the device
 * maps none; its dry form could, and must not. */
static void check_pages(ebb__device *device)
{
    enum { POOL_PAGE = 2 << 20 };
    size_t page = device->accel->facts.page_bytes;
    if (page == 0 || POOL_PAGE % page) device->provider.reserve = NULL;
}

static ebb_status open_accelerator(ebb__device *device, const parsed *p)
{
    device->accel = ebb__calloc(1, sizeof *device->accel);
    if (!device->accel) return EBB_ENOMEM;
    device->name = device->accel->name;
    device->accel->kind = p->kind;
    ebb_status st = device->dry ? open_dry(device, p) : open_real(device, p);
    if (st == EBB_OK) check_pages(device);
    return st;
}

ebb_status ebb__device_facts(ebb__accel_facts *out, const char *name)
{
    parsed p = parse(name);
    if (!p.kind || p.kind == &cpu_kind) return unknown(name);
    if (p.dry) return dry_facts(out, &p);
    int ordinal = p.which ? ordinal_of(p.which) : 0;
    return ordinal >= 0 ? facts_of(out, p.kind, ordinal) : unknown(name);
}

/* ---- opening and closing -------------------------------------------------------------------- */

ebb_status ebb__device_open(ebb__device *out, const char *name, int threads)
{
    enum { MAX_THREADS = 1024 };
    if (!name) name = cpu_kind.name;
    parsed p = parse(name);
    if (!p.kind) return unknown(name);
    if (threads < 0 || threads > MAX_THREADS) {
        return ebb_fail(EBB_EINVAL, "device %s: %d threads; 1 to %d, or 0 for all cores", name, threads,
                        (int)MAX_THREADS);
    }
    if (threads == 0) threads = ebb__cores();
    ebb__device device = { .name = p.kind->name, .dry = p.dry, .n_threads = threads };
    ebb_status st = ebb__streams_new(&device.streams, p.dry);
    if (st == EBB_OK) st = p.kind == &cpu_kind ? open_cpu(&device) : open_accelerator(&device, &p);
    if (st == EBB_OK) *out = device;
    else ebb__device_close(&device);
    return st;
}

void ebb__device_close(ebb__device *device)
{
    if (!device->name) return; /* never opened */
    ebb__streams_free(device->streams);
    ebb__threads_free(device->threads);
    if (device->dry) ebb__dry_provider_free(&device->provider);
    if (device->accel && device->accel->table) device->accel->table->close(device->accel->self);
    ebb__free(device->accel);
    memset(device, 0, sizeof *device);
}

/* ---- errors --------------------------------------------------------------------------------- */

ebb_status ebb__device_doing(const char *what, ebb_status st)
{
    if (st != EBB_EDEVICE && st != EBB_ENOMEM) return st;
    return ebb_fail(st, "%s: %s", what, ebb_message());
}

/* ---- bytes ---------------------------------------------------------------------------------- */

ebb_status ebb__device_not_capturing(const ebb__device *device, const char *what)
{
    if (!device->capturing) return EBB_OK;
    return ebb_fail(EBB_ESTATE, "%s: not while a graph is captured; end the capture first", what);
}

/* What streams have kept says itself what it was for. */
static ebb_status synchronize(const ebb__device *device, const char *what)
{
    EBB__TRY(ebb__device_doing(what, device->accel->table->synchronize(device->accel->self)));
    return ebb__streams_error(device->streams);
}

ebb_status ebb__device_copy(const ebb__device *device, void *to, const void *from, size_t bytes,
                            ebb__accel_copy_kind kind, const char *what)
{
    const ebb__accelerator *accel = device->accel;
    if (device->dry || bytes == 0) return EBB_OK;
    if (!accel) {
        memcpy(to, from, bytes);
        return EBB_OK;
    }
    EBB__TRY(ebb__device_not_capturing(device, "values of tensors"));
    EBB__TRY(ebb__device_doing(what, accel->table->copy(accel->self, NULL, to, from, bytes, kind)));
    return kind == EBB__FROM_DEVICE ? synchronize(device, what) : EBB_OK;
}

ebb_status ebb__device_synchronize(const ebb__device *device)
{
    static const char what[] = "waiting for the device";
    if (device->dry || !device->accel) return EBB_OK;
    EBB__TRY(ebb__device_not_capturing(device, what));
    return synchronize(device, what);
}
