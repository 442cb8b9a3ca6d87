#include <ebb/report.h>

#include "core/assert.h"
#include "core/json.h"
#include "core/threads.h"
#include "device/device.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

ebb_build_info ebb_build_info_get(void)
{
    return (ebb_build_info){ .version = EBB_VERSION,
                             .compiler = COMPILER,
                             .blas = ebb__blas_name(),
                             .cores = ebb__cores(),
                             .checks = EBB_CHECKS,
                             .n_ops = ebb_op_count() };
}

const char *ebb_nearest_word(const char *word, const char *const words[], int n)
{
    return ebb__nearest(word, words, n);
}
