/* json_parse.c: a text that passed the strict scan becomes a cJSON tree. */
#include <pthread.h>

#include "core/file.h"
#include "core/json.h"
#include "core/json_plain.h"
#include "core/json_scan.h"
#include "core/mem.h"

enum { MAX_FILE_BYTES = 64 << 20 };

static void set_hooks(void)
{
    cJSON_Hooks hooks = { .malloc_fn = ebb__malloc, .free_fn = ebb__free };
    cJSON_InitHooks(&hooks);
}

void ebb__json_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_hooks);
}

ebb_status ebb__json_parse(cJSON **out, const char *text, size_t bytes, const char *file)
{
    ebb__json_init();
    ebb_status st = ebb__json_scan(text, bytes, file, true);
    if (st != EBB_OK) return st;
    char *plain = NULL; /* NULL: the text is plain as it is */
    st = ebb__json_plain(&plain, &bytes, text, bytes);
    if (st != EBB_OK) return st;
    cJSON *root = cJSON_ParseWithLengthOpts(plain ? plain : text, bytes, NULL, false);
    ebb__free(plain);
    if (!root) return EBB_ENOMEM; /* the scan left nothing else to refuse; ebb__malloc said so */
    *out = root;
    return EBB_OK;
}

ebb_status ebb__json_load(cJSON **out, const char *path)
{
    char *text;
    size_t bytes;
    ebb_status st = ebb__file_read(&text, &bytes, path, MAX_FILE_BYTES);
    if (st != EBB_OK) return st;
    st = ebb__json_parse(out, text, bytes, path);
    ebb__free(text);
    return st;
}
