/* SHA-256 over gradients, so that runs can be compared bit by bit: per step one of each parameter's
 * gradient, and over those, sorted by name, that of the run.  So the order in which gradients come does
 * not matter, and none needs to be kept. */
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "tensor/host_view.h"
#include "train/run.h"

typedef struct entry {
    const char *name;
    const ebb_tensor *tensor; /* borrowed from the model */
    bool seen;                /* in this step */
    char digest[65];
} entry;

struct ebb__gradient_hash {
    ebb__sha256 sha;
    entry *params; /* sorted by name */
    int n;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

ebb_status ebb__gradient_hash_new(ebb__gradient_hash **out, const ebb_model *model)
{
    const ebb_named_tensor *params = NULL;
    int n = ebb_model_params(model, &params);
    ebb__gradient_hash *hash = ebb__calloc(1, sizeof(*hash));
    entry *sorted = ebb__calloc((size_t)n, sizeof(*sorted));
    if (!hash || !sorted) {
        ebb__free(hash);
        ebb__free(sorted);
        return EBB_ENOMEM;
    }
    for (int i = 0; i < n; i++)
        sorted[i] = (entry){ .name = params[i].name, .tensor = params[i].tensor };
    qsort(sorted, (size_t)n, sizeof(*sorted), by_name);
    *hash = (ebb__gradient_hash){ .params = sorted, .n = n };
    ebb__sha256_init(&hash->sha);
    *out = hash;
    return EBB_OK;
}

void ebb__gradient_hash_free(ebb__gradient_hash *hash)
{
    if (!hash) return;
    ebb__free(hash->params);
    ebb__free(hash);
}

ebb_status ebb__gradient_hash_one(ebb__gradient_hash *hash, const ebb_tensor *param)
{
    const ebb_tensor *grad = ebb_grad(param);
    for (int i = 0; grad && i < hash->n; i++) {
        if (hash->params[i].tensor != param) continue;
        ebb__sha256 sha;
        ebb__host_view view;
        ebb__sha256_init(&sha);
        EBB_TRY(ebb__host_view_of(&view, grad, EBB__VIEW_READ)); /* a leaf's gradient is contiguous */
        if (view.bytes) ebb__sha256_add(&sha, view.data, view.bytes);
        EBB_TRY(ebb__host_view_close(&view, EBB_OK));
        ebb__sha256_hex(&sha, hash->params[i].digest);
        hash->params[i].seen = true;
    }
    return EBB_OK;
}

ebb_status ebb__gradient_hash_step(ebb__gradient_hash *hash)
{
    for (int i = 0; i < hash->n; i++) {
        entry *e = &hash->params[i];
        if (!e->seen) EBB_TRY(ebb__gradient_hash_one(hash, e->tensor));
        if (e->seen) ebb__sha256_add(&hash->sha, e->digest, sizeof(e->digest));
        e->seen = false;
    }
    return EBB_OK;
}

void ebb__gradient_hash_hex(ebb__gradient_hash *hash, char out[65])
{
    ebb__sha256_hex(&hash->sha, out);
}
