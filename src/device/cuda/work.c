/* work.c: bytes to and from the device, and work on the compute stream that is not an op. */
#include "device/cuda/table.h"
#include "ops/cuda/bad_data.h"

ebb_status ebb__cuda_copy(void *self, ebb__accel_stream *stream, void *to, const void *from, size_t bytes,
                          ebb__accel_copy_kind kind)
{
    static const enum cudaMemcpyKind kinds[] = {
        [EBB__TO_DEVICE] = cudaMemcpyHostToDevice,
        [EBB__FROM_DEVICE] = cudaMemcpyDeviceToHost,
        [EBB__ON_DEVICE] = cudaMemcpyDeviceToDevice,
    };
    EBB__CUDA_ENTER(device, self);
    if (bytes == 0) return EBB_OK;
    EBB__CUDA_TRY(&device->shared,
                  cudaMemcpyAsync(to, from, bytes, kinds[kind], ebb__cuda_stream_of(device, stream)));
    return EBB_OK;
}

/* Gives the device's error word and clears it.  Waits for the compute stream, also where something fails: host
 * memory that copies write is the caller's to free afterwards. */
static ebb_status take_error(ebb__cuda_device *device, unsigned *word)
{
    ebb__cuda *cuda = &device->shared;
    cudaError_t copied = cudaSuccess;
    *word = device->words->error = 0;
    if (cuda->error) {
        copied = cudaMemcpyAsync(&device->words->error, cuda->error, sizeof *cuda->error, cudaMemcpyDeviceToHost,
                                 cuda->stream);
    }
    EBB__CUDA_TRY(cuda, cudaStreamSynchronize(cuda->stream));
    if (copied != cudaSuccess) return ebb__cuda_fail(cuda, copied, "cudaMemcpyAsync");
    if (device->words->error == 0) return EBB_OK;
    *word = device->words->error;
    EBB__CUDA_TRY(cuda, cudaMemsetAsync(cuda->error, 0, sizeof *cuda->error, cuda->stream));
    return EBB_OK;
}

ebb_status ebb__cuda_synchronize(void *self)
{
    EBB__CUDA_ENTER(device, self);
    unsigned word;
    ebb_status st = take_error(device, &word);
    if (st != EBB_OK || word == 0) return st;
    return EBB__CUDA_FAIL(&device->shared, EBB_EINVAL,
                          "%s: %s (found on the device, some time after the call)",
                          ebb__cuda_op_name((word >> 8) - 1), ebb__cuda_bad_text(word));
}

ebb_status ebb__cuda_table_fill(void *self, const ebb_arg *to, double value)
{
    EBB__CUDA_ENTER(device, self);
    return ebb__cuda_fill(&device->shared, to, value);
}

ebb_status ebb__cuda_table_copy(void *self, const ebb_arg *to, const ebb_arg *from)
{
    EBB__CUDA_ENTER(device, self);
    return ebb__cuda_arg_copy(&device->shared, to, from);
}

ebb_status ebb__cuda_table_add(void *self, const ebb_arg *to, const ebb_arg *from)
{
    EBB__CUDA_ENTER(device, self);
    return ebb__cuda_arg_add(&device->shared, to, from);
}

ebb_status ebb__cuda_table_update(void *self, const ebb__accel_step *step, const ebb__accel_param *params, int n)
{
    EBB__CUDA_ENTER(device, self);
    return ebb__cuda_update(&device->shared, step, params, n);
}

ebb_status ebb__cuda_table_sum_squares(void *self, const ebb_arg *args, int n, double *sum)
{
    EBB__CUDA_ENTER(device, self);
    ebb__cuda *cuda = &device->shared;
    ebb_status st = ebb__cuda_sum_squares(cuda, args, n);
    if (st != EBB_OK) return st;
    EBB__CUDA_TRY(cuda, cudaMemcpyAsync(&device->words->sum, cuda->partials, sizeof *cuda->partials,
                                        cudaMemcpyDeviceToHost, cuda->stream));
    EBB__CUDA_TRY(cuda, cudaStreamSynchronize(cuda->stream));
    *sum = device->words->sum;
    return EBB_OK;
}

ebb_status ebb__cuda_table_scale(void *self, const ebb_arg *args, int n, double factor)
{
    EBB__CUDA_ENTER(device, self);
    return ebb__cuda_scale(&device->shared, args, n, factor);
}

ebb_status ebb__cuda_table_clip(void *self, const ebb_arg *args, int n, const ebb_arg *scaled, int n_scaled,
                                double max_norm, double *sum)
{
    EBB__CUDA_ENTER(device, self);
    ebb__cuda *cuda = &device->shared;
    ebb_status st = ebb__cuda_sum_squares(cuda, args, n);
    if (st != EBB_OK) return st;
    EBB__CUDA_TRY(cuda, cudaMemcpyAsync(sum, cuda->partials, sizeof *sum, cudaMemcpyDeviceToHost, cuda->stream));
    return ebb__cuda_scale_to(cuda, scaled, n_scaled, max_norm);
}
