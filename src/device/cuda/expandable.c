/* expandable.c: expandable segments: an address range that gets physical memory page by page.
 *
 * Each page is one allocation handle of the driver, mapped where the pool commits; remap() moves the handle.
 * Mapping is not ordered with the device's work, so that pages are taken away only after all of it. */
#include <cuda.h>
#include <stdlib.h>
#include "device/cuda/table.h"

struct ebb__cuda_driver {
    CUresult (*granularity)(size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags which);
    CUresult (*reserve)(CUdeviceptr *p, size_t bytes, size_t alignment, CUdeviceptr at, unsigned long long flags);
    CUresult (*address_free)(CUdeviceptr p, size_t bytes);
    CUresult (*create)(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                       unsigned long long flags);
    CUresult (*release)(CUmemGenericAllocationHandle handle);
    CUresult (*map)(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags);
    CUresult (*unmap)(CUdeviceptr p, size_t bytes);
    CUresult (*set_access)(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *access, size_t n);
};

/* An address range and the handle of each of its pages; 0: none (the driver gives no handle 0). */
struct ebb__cuda_reservation {
    ebb__cuda_reservation *next;
    char *base;
    size_t bytes;
    CUmemGenericAllocationHandle handles[];
};

/* ---- the driver's functions ------------------------------------------------------------------- */

enum { VMM_SINCE = 10020 }; /* the CUDA version that brought them all */

static bool load_driver(struct ebb__cuda_driver *driver)
{
    struct { const char *name; void *to; } const entries[] = {
        { "cuMemGetAllocationGranularity", &driver->granularity },
        { "cuMemAddressReserve", &driver->reserve },
        { "cuMemAddressFree", &driver->address_free },
        { "cuMemCreate", &driver->create },
        { "cuMemRelease", &driver->release },
        { "cuMemMap", &driver->map },
        { "cuMemUnmap", &driver->unmap },
        { "cuMemSetAccess", &driver->set_access },
    };
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *entry = NULL;
        enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
        cudaError_t error = cudaGetDriverEntryPointByVersion(entries[i].name, &entry, VMM_SINCE, cudaEnableDefault,
                                                             &found);
        if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || !entry) {
            (void)cudaGetLastError();
            return false;
        }
        *(void **)entries[i].to = entry;
    }
    return true;
}

static CUmemAllocationProp page_prop(const ebb__cuda_device *device)
{
    CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED };
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device->shared.ordinal;
    return prop;
}

/* ---- pages of a reservation (the mutex is held) ------------------------------------------------- */

static ebb__cuda_reservation *find(const ebb__cuda_device *device, const void *p)
{
    const char *at = p;
    for (ebb__cuda_reservation *r = device->reservations; r; r = r->next) {
        if (at >= r->base && at < r->base + r->bytes) return r;
    }
    return NULL;
}

static CUmemGenericAllocationHandle *handle_of(const ebb__cuda_device *device, ebb__cuda_reservation *r, void *p)
{
    return &r->handles[(size_t)((char *)p - r->base) / device->page_bytes];
}

/* A page that cannot be unmapped stays where it is: give_page() finds it, drop() tries again. */
static void unmap_page(const ebb__cuda_device *device, ebb__cuda_reservation *r, char *p)
{
    CUmemGenericAllocationHandle *handle = handle_of(device, r, p);
    if (!*handle || device->driver->unmap((CUdeviceptr)p, device->page_bytes) != CUDA_SUCCESS) return;
    (void)device->driver->release(*handle);
    *handle = 0;
}

static bool map_page(const ebb__cuda_device *device, ebb__cuda_reservation *r, char *p,
                     CUmemGenericAllocationHandle handle)
{
    if (device->driver->map((CUdeviceptr)p, device->page_bytes, 0, handle, 0) != CUDA_SUCCESS) return false;
    *handle_of(device, r, p) = handle;
    return true;
}

static bool give_page(const ebb__cuda_device *device, ebb__cuda_reservation *r, char *p)
{
    CUmemAllocationProp prop = page_prop(device);
    CUmemGenericAllocationHandle handle = 0;
    if (*handle_of(device, r, p)) return true;
    if (device->driver->create(&handle, device->page_bytes, &prop, 0) != CUDA_SUCCESS) return false;
    if (map_page(device, r, p, handle)) return true;
    (void)device->driver->release(handle);
    return false;
}

static bool set_access(const ebb__cuda_device *device, void *p, size_t bytes)
{
    CUmemAccessDesc access = { .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    access.location = page_prop(device).location;
    return device->driver->set_access((CUdeviceptr)p, bytes, &access, 1) == CUDA_SUCCESS;
}

static void take_pages(ebb__cuda_device *device, ebb__cuda_reservation *r, char *p, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += device->page_bytes) unmap_page(device, r, p + at);
}

/* ---- the provider's functions --------------------------------------------------------------------- */

static void *reserve(void *self, size_t bytes)
{
    ebb__cuda_device *device = self;
    size_t pages = (bytes + device->page_bytes - 1) / device->page_bytes;
    ebb__cuda_reservation *r = calloc(1, sizeof *r + pages * sizeof *r->handles);
    CUdeviceptr base = 0;
    if (!r) return NULL;
    r->bytes = pages * device->page_bytes;
    if (device->driver->reserve(&base, r->bytes, 0, 0, 0) != CUDA_SUCCESS) {
        free(r);
        return NULL;
    }
    r->base = (char *)base;
    pthread_mutex_lock(&device->reservations_mutex);
    r->next = device->reservations;
    device->reservations = r;
    pthread_mutex_unlock(&device->reservations_mutex);
    return r->base;
}

static void drop(ebb__cuda_device *device, ebb__cuda_reservation *r)
{
    for (int tries = 0; tries < 2; tries++) take_pages(device, r, r->base, r->bytes);
    (void)device->driver->address_free((CUdeviceptr)r->base, r->bytes);
    free(r);
}

static void unreserve(void *self, void *p, size_t bytes)
{
    ebb__cuda_device *device = self;
    (void)bytes;
    ebb__cuda_finish_work(device);
    pthread_mutex_lock(&device->reservations_mutex);
    ebb__cuda_reservation *r = find(device, p);
    for (ebb__cuda_reservation **at = &device->reservations; r && *at; at = &(*at)->next) {
        if (*at != r) continue;
        *at = r->next;
        break;
    }
    if (r) drop(device, r);
    pthread_mutex_unlock(&device->reservations_mutex);
}

static bool commit(void *self, void *p, size_t bytes)
{
    ebb__cuda_device *device = self;
    pthread_mutex_lock(&device->reservations_mutex);
    ebb__cuda_reservation *r = find(device, p);
    size_t at = 0;
    while (r && at < bytes && give_page(device, r, (char *)p + at)) at += device->page_bytes;
    bool done = r && at >= bytes && set_access(device, p, bytes);
    if (r && !done) take_pages(device, r, p, at);
    pthread_mutex_unlock(&device->reservations_mutex);
    return done;
}

static void decommit(void *self, void *p, size_t bytes)
{
    ebb__cuda_device *device = self;
    ebb__cuda_finish_work(device);
    pthread_mutex_lock(&device->reservations_mutex);
    ebb__cuda_reservation *r = find(device, p);
    if (r) take_pages(device, r, p, bytes);
    pthread_mutex_unlock(&device->reservations_mutex);
}

/* Moves one page's handle; false: it is where it was. */
static bool move_page(ebb__cuda_device *device, ebb__cuda_reservation *old, char *from, ebb__cuda_reservation *new,
                      char *to)
{
    CUmemGenericAllocationHandle *handle = handle_of(device, old, from), moved = *handle;
    if (!moved || device->driver->unmap((CUdeviceptr)from, device->page_bytes) != CUDA_SUCCESS) return false;
    *handle = 0;
    if (map_page(device, new, to, moved)) {
        if (set_access(device, to, device->page_bytes)) return true;
        (void)device->driver->unmap((CUdeviceptr)to, device->page_bytes);
        *handle_of(device, new, to) = 0;
    }
    if (map_page(device, old, from, moved) && set_access(device, from, device->page_bytes)) return false;
    /* It fits nowhere any more: give it back, so that the range has one page less but nothing leaks. */
    (void)device->driver->unmap((CUdeviceptr)from, device->page_bytes);
    (void)device->driver->release(moved);
    *handle_of(device, old, from) = 0;
    return false;
}

static bool remap(void *self, void *from, void *to, size_t bytes)
{
    ebb__cuda_device *device = self;
    ebb__cuda_finish_work(device);
    pthread_mutex_lock(&device->reservations_mutex);
    ebb__cuda_reservation *old = find(device, from), *new = find(device, to);
    size_t at = 0, page = device->page_bytes;
    while (old && new && at < bytes && move_page(device, old, (char *)from + at, new, (char *)to + at)) at += page;
    bool done = old && new && at >= bytes;
    while (!done && at > 0) { /* back */
        at -= page;
        (void)move_page(device, new, (char *)to + at, old, (char *)from + at);
    }
    pthread_mutex_unlock(&device->reservations_mutex);
    return done;
}

/* ---- opening ---------------------------------------------------------------------------------------- */

void ebb__cuda_expandable_init(ebb__cuda_device *device)
{
    struct ebb__cuda_driver *driver = calloc(1, sizeof *driver);
    CUmemAllocationProp prop = page_prop(device);
    size_t granularity = 0;
    pthread_mutex_init(&device->reservations_mutex, NULL);
    bool can = driver && load_driver(driver) &&
               driver->granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
               granularity > 0;
    if (!can) {
        free(driver);
        return;
    }
    size_t least = 2 * EBB__CUDA_MIB;
    device->driver = driver;
    device->page_bytes = (least + granularity - 1) / granularity * granularity;
    device->device_memory.reserve = reserve;
    device->device_memory.unreserve = unreserve;
    device->device_memory.commit = commit;
    device->device_memory.decommit = decommit;
    device->device_memory.remap = remap;
}

void ebb__cuda_expandable_deinit(ebb__cuda_device *device)
{
    while (device->reservations) {
        ebb__cuda_reservation *r = device->reservations;
        device->reservations = r->next;
        drop(device, r);
    }
    pthread_mutex_destroy(&device->reservations_mutex);
    free(device->driver);
    device->driver = NULL;
}
