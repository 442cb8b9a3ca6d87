/* device/blas.h: the BLAS library underneath, called single-threaded from our own threads. */
#ifndef EBB_DEVICE_BLAS_H
#define EBB_DEVICE_BLAS_H

#include <ebb/status.h>

/* Makes the library ready: one thread per call.  Errors: EDEVICE (a flavour that may not be used). */
EBB_NODISCARD ebb_status ebb__blas_open(void);

/* EDEVICE where `parallel` (openblas_get_parallel(): 0 serial, 1 pthreads, 2 OpenMP) names the serial
 * flavour.  It has no locks: two callers at once give wrong results now and then. */
EBB_NODISCARD ebb_status ebb__blas_check_flavour(int parallel);

#endif
