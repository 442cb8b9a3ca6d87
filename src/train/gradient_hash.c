/* SHA-256 over gradients, so that runs can be compared bit by bit. */
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "train/run.h"

struct ebb__gradient_hash {
    ebb__sha256 sha;
    ebb_named_tensor *params; /* sorted by name; tensors borrowed from the model */
    int n;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ebb_named_tensor *)a)->name, ((const ebb_named_tensor *)b)->name);
}

ebb_status ebb__gradient_hash_new(ebb__gradient_hash **out, const ebb_model *model)
{
    const ebb_named_tensor *params = NULL;
    int n = ebb_model_params(model, &params);
    ebb__gradient_hash *hash = ebb__calloc(1, sizeof(*hash));
    ebb_named_tensor *sorted = ebb__calloc((size_t)n, sizeof(*sorted));
    if (!hash || !sorted) {
        ebb__free(hash);
        ebb__free(sorted);
        return EBB_ENOMEM;
    }
    memcpy(sorted, params, (size_t)n * sizeof(*sorted));
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

static ebb_status add_copy(ebb__gradient_hash *hash, const ebb_tensor *grad, size_t bytes)
{
    void *copy = ebb__malloc(bytes);
    if (!copy) return EBB_ENOMEM;
    ebb_status st = ebb_read(grad, copy, bytes);
    if (st == EBB_OK) ebb__sha256_add(&hash->sha, copy, bytes);
    ebb__free(copy);
    return st;
}

ebb_status ebb__gradient_hash_add(ebb__gradient_hash *hash)
{
    for (int i = 0; i < hash->n; i++) {
        const ebb_tensor *grad = ebb_grad(hash->params[i].tensor);
        if (!grad) continue;
        size_t bytes = (size_t)ebb_tensor_elems(grad) * ebb_dtype_bytes(ebb_tensor_dtype(grad));
        if (ebb_tensor_is_contiguous(grad))
            ebb__sha256_add(&hash->sha, ebb_tensor_data(grad), bytes);
        else
            EBB_TRY(add_copy(hash, grad, bytes));
    }
    return EBB_OK;
}

void ebb__gradient_hash_hex(ebb__gradient_hash *hash, char out[65])
{
    ebb__sha256_hex(&hash->sha, out);
}
