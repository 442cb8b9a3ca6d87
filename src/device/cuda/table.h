/* device/cuda/table.h: an open device as the plugin's own C files see it, and the functions that its table
 * is made of, by file. */
#ifndef EBB_DEVICE_CUDA_TABLE_H
#define EBB_DEVICE_CUDA_TABLE_H

#include <pthread.h>
#include "device/cuda/cuda.h"

enum { EBB__CUDA_MIB = 1 << 20 };

/* One record: done when `event` is.  Queues are in order of tickets. */
typedef struct ebb__cuda_mark {
    uint64_t ticket;
    cudaEvent_t event;
} ebb__cuda_mark;

struct ebb__accel_stream {
    cudaStream_t stream;
    pthread_mutex_t mutex; /* of all below */
    uint64_t given, done;  /* tickets; all up to `done` are */
    ebb__cuda_mark *marks; /* a ring: of tickets above done, oldest first */
    int first, n_marks, capacity;
    cudaEvent_t *spare;    /* events to use again; room for `capacity` */
    int n_spare;
};

typedef struct ebb__cuda_reservation ebb__cuda_reservation; /* expandable.c */

typedef struct ebb__cuda_device {
    ebb__cuda shared; /* first: what kernels get as `self` */
    ebb__accel_stream compute;
    ebb__accel_facts facts;
    /* Page-locked words that the device writes for the host: one per use. */
    struct { double sum; unsigned error; } *words;

    ebb__provider device_memory, pinned_memory;
    size_t page_bytes;                   /* 0: no expandable segments */
    pthread_mutex_t reservations_mutex;  /* of the list and what hangs on it */
    ebb__cuda_reservation *reservations;
    struct ebb__cuda_driver *driver;     /* expandable.c: entry points of the driver */
} ebb__cuda_device;

/* Makes the device the calling thread's; every function of the table begins with it. */
#define EBB__CUDA_ENTER(device, self)       \
    ebb__cuda_device *device = (self);      \
    EBB__CUDA_TRY(&device->shared, cudaSetDevice(device->shared.ordinal))

/* open.c */
ebb_status ebb__cuda_count(const ebb__accel_host *host, int *n);
ebb_status ebb__cuda_open(void **self, const ebb__accel_host *host, int ordinal);
void ebb__cuda_close(void *self);
void ebb__cuda_facts(void *self, ebb__accel_facts *out);
ebb_status ebb__cuda_lend(void *self, void *memory);

/* memory.c, expandable.c */
/* Before memory goes: waits for all work of the device, which may still use it. */
void ebb__cuda_finish_work(ebb__cuda_device *device);
void ebb__cuda_memory_init(ebb__cuda_device *device);
void ebb__cuda_memory_deinit(ebb__cuda_device *device);
ebb__provider ebb__cuda_provider(void *self);
ebb__provider ebb__cuda_pinned(void *self);
/* Fills what is for expandable segments in device_memory, and page_bytes, where the device can. */
void ebb__cuda_expandable_init(ebb__cuda_device *device);
void ebb__cuda_expandable_deinit(ebb__cuda_device *device);

/* stream.c */
ebb_status ebb__cuda_stream_init(ebb__cuda_device *device, ebb__accel_stream *stream);
void ebb__cuda_stream_deinit(ebb__accel_stream *stream);
cudaStream_t ebb__cuda_stream_of(const ebb__cuda_device *device, const ebb__accel_stream *stream);
ebb_status ebb__cuda_stream_open(ebb__accel_stream **out, void *self);
void ebb__cuda_stream_close(void *self, ebb__accel_stream *stream);
ebb_status ebb__cuda_record(void *self, ebb__accel_stream *stream, uint64_t *ticket);
bool ebb__cuda_is_done(void *self, ebb__accel_stream *stream, uint64_t ticket);
ebb_status ebb__cuda_wait(void *self, ebb__accel_stream *stream, uint64_t ticket);
ebb_status ebb__cuda_stream_wait(void *self, ebb__accel_stream *stream, ebb__accel_stream *other, uint64_t ticket);
ebb_status ebb__cuda_host_call(void *self, ebb__accel_stream *stream, void (*work)(void *arg), void *arg);

/* work.c: bytes, and work that is not an op */
ebb_status ebb__cuda_copy(void *self, ebb__accel_stream *stream, void *to, const void *from, size_t bytes,
                          ebb__accel_copy_kind kind);
ebb_status ebb__cuda_synchronize(void *self);
ebb_status ebb__cuda_table_fill(void *self, const ebb_arg *to, double value);
ebb_status ebb__cuda_table_copy(void *self, const ebb_arg *to, const ebb_arg *from);
ebb_status ebb__cuda_table_add(void *self, const ebb_arg *to, const ebb_arg *from);
ebb_status ebb__cuda_table_update(void *self, const ebb__accel_step *step, const ebb__accel_param *params, int n);
ebb_status ebb__cuda_table_sum_squares(void *self, const ebb_arg *args, int n, double *sum);
ebb_status ebb__cuda_table_scale(void *self, const ebb_arg *args, int n, double factor);
ebb_status ebb__cuda_table_clip(void *self, const ebb_arg *args, int n, const ebb_arg *scaled, int n_scaled,
                                double max_norm, double *sum);

/* graph.c */
ebb_status ebb__cuda_capture_begin(void *self, bool varies);
ebb_status ebb__cuda_capture_end(void *self, ebb__accel_graph **out);
ebb_status ebb__cuda_graph_launch(void *self, ebb__accel_graph *graph, const ebb__accel_numbers *numbers);
void ebb__cuda_graph_free(void *self, ebb__accel_graph *graph);

/* gemm.c */
ebb_status ebb__cuda_gemms_open(ebb__cuda *cuda);
void ebb__cuda_gemms_close(ebb__cuda_gemms *gemms); /* NULL is a no-op */
size_t ebb__cuda_gemm_workspace_bytes(const ebb__cuda *cuda); /* what lend() is to bring for products */

/* plugin.c */
const char *ebb__cuda_op_name(unsigned index); /* by its row in ops.def */

/* fail.c: the host's message for what is no cudaError_t */
#define EBB__CUDA_FAIL(cuda, ...) ((cuda)->host->fail(__VA_ARGS__))

#endif
