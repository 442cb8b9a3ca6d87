/* cudnn_load.c: cuDNN by dlopen(): where it is absent, the plugin's own kernels do the work. */
#if __has_include(<cudnn.h>)
#include <dlfcn.h>
#include "device/cuda/cudnn_api.h"

enum { OLDEST = 90000 }; /* the descriptors' numbers are those of version 9 */

static bool find(void *library, const char *name, void *to)
{
    void *symbol = dlsym(library, name);
    *(void **)to = symbol;
    return symbol != NULL;
}

bool ebb__cudnn_load(ebb__cudnn_api *api)
{
    static const char *const names[] = { "libcudnn.so.9", "libcudnn.so" };
    *api = (ebb__cudnn_api){ 0 };
    for (int i = 0; i < 2 && !api->library; i++) api->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    bool found = api->library != NULL;
#define FIND(name) found = found && find(api->library, "cudnn" #name, &api->name);
    EBB__CUDNN_FUNCTIONS(FIND)
#undef FIND
    if (found && api->GetVersion() >= OLDEST) return true;
    ebb__cudnn_unload(api);
    return false;
}

void ebb__cudnn_unload(ebb__cudnn_api *api)
{
    if (api->library) dlclose(api->library);
    *api = (ebb__cudnn_api){ 0 };
}
#else
typedef int ebb__no_cudnn_headers; /* a translation unit is not empty */
#endif
