/* Which OpenBLAS this is, and whether it may be called from several threads at once. */
#include "device/blas.h"

#include <cblas.h>
#include <pthread.h>
#include <stdio.h>
#include "device/device.h"

enum { SERIAL_FLAVOUR = 0 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char name[96];

static void set_up(void)
{
    /* Our threads divide the work; OpenBLAS' own would compete with them for the cores. */
    openblas_set_num_threads(1);
    char library[32] = "OpenBLAS", version[32] = "";
    (void)sscanf(openblas_get_config(), "%31s %31s", library, version);
    snprintf(name, sizeof name, "%s %s (%s)", library, version, openblas_get_corename());
}

ebb_status ebb__blas_check_flavour(int parallel)
{
    if (parallel != SERIAL_FLAVOUR) return EBB_OK;
    return ebb_fail(EBB_EDEVICE, "cpu: this OpenBLAS is the serial flavour, which gives wrong results "
                    "when several threads call it; install libopenblas0-pthread");
}

ebb_status ebb__blas_open(void)
{
    pthread_once(&once, set_up);
    return ebb__blas_check_flavour(openblas_get_parallel());
}

const char *ebb__blas_name(void)
{
    pthread_once(&once, set_up);
    return name;
}
