/* optim/optim_file.c: an optimizer's state in a safetensors file, by name. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "core/site.h"
#include "optim/optim.h"
#include "tensor/tensor.h"

static const char step_name[] = "optimizer.step";

/* ---- the names --------------------------------------------------------------------------- */

/* Every tensor of the state with the name it has in a file; the names are allocated. */
typedef struct state_list { ebb_named_tensor *items; int n; } state_list;

static void list_free(state_list *list)
{
    for (int i = 0; i < list->n; i++) ebb__free((char *)list->items[i].name);
    ebb__free(list->items);
}

static ebb_status list_add(state_list *list, const char *name, const char *suffix, ebb_tensor *t)
{
    size_t bytes = strlen(name) + strlen(suffix) + 2;
    char *full = ebb__malloc(bytes);
    if (!full) return EBB_ENOMEM;
    snprintf(full, bytes, "%s%s%s", name, *suffix ? "." : "", suffix);
    list->items[list->n++] = (ebb_named_tensor){ full, t };
    return EBB_OK;
}

static ebb_status list_make(state_list *list, const ebb_optim *o)
{
    *list = (state_list){ .items = ebb__calloc((size_t)o->n * EBB__MAX_STATES + 1,
                                               sizeof *list->items) };
    if (!list->items) return EBB_ENOMEM;
    ebb_status st = list_add(list, step_name, "", o->step_tensor);
    for (int i = 0; i < o->n; i++)
        for (int s = 0; s < o->n_states && st == EBB_OK; s++)
            st = list_add(list, o->params[i].name, o->kind->states[s], o->params[i].states[s]);
    if (st != EBB_OK) list_free(list);
    return st;
}

/* ---- saving ------------------------------------------------------------------------------ */

ebb_status ebb_optim_save(const ebb_optim *optim, const char *path)
{
    state_list list;
    EBB__TRY(ebb_write(optim->step_tensor, &optim->steps, sizeof optim->steps));
    EBB__TRY(list_make(&list, optim));
    ebb_status st = ebb_safetensors_save(path, list.items, list.n);
    list_free(&list);
    return st;
}

/* ---- loading ----------------------------------------------------------------------------- */

static bool same_shape(const ebb_safetensors_entry *e, const ebb_tensor *t)
{
    if (!e->known_dtype || e->dtype != ebb_tensor_dtype(t) || e->ndim != ebb_tensor_ndim(t))
        return false;
    for (int i = 0; i < e->ndim; i++)
        if (e->dims[i] != ebb_tensor_dims(t)[i]) return false;
    return true;
}

static ebb_status check_extra(const state_list *list, const ebb_safetensors *file, const char *path)
{
    for (int i = 0; i < ebb_safetensors_count(file); i++) {
        const char *name = ebb_safetensors_at(file, i).name;
        int k = 0;
        while (k < list->n && strcmp(list->items[k].name, name)) k++;
        if (k == list->n)
            return ebb_fail(EBB_EFORMAT,
                            "%s: '%s' is in the file but the optimizer has no such state", path,
                            name);
    }
    return EBB_OK;
}

/* All names, dtypes and shapes, before a byte is changed.  *total: bytes of all of them. */
static ebb_status check_file(size_t *total, const state_list *list, const ebb_safetensors *file,
                             const char *path)
{
    char shape[96];
    *total = 0;
    for (int i = 0; i < list->n; i++) {
        const ebb_named_tensor *want = &list->items[i];
        int index = ebb_safetensors_find(file, want->name);
        if (index < 0) return ebb_fail(EBB_EFORMAT, "%s: state '%s' is missing", path, want->name);
        ebb_safetensors_entry e = ebb_safetensors_at(file, index);
        if (!same_shape(&e, want->tensor))
            return ebb_fail(EBB_EFORMAT,
                            "%s: state '%s' is %s with %d dims and %zu bytes; expected %s", path,
                            want->name, e.dtype_name, e.ndim, e.bytes,
                            ebb_tensor_describe(want->tensor, shape, sizeof shape));
        *total += e.bytes; /* within the file's size */
    }
    return ebb_safetensors_count(file) == list->n ? EBB_OK : check_extra(list, file, path);
}

static ebb_status read_data(char *buffer, const state_list *list, const ebb_safetensors *file)
{
    for (int i = 0; i < list->n; i++) {
        int index = ebb_safetensors_find(file, list->items[i].name);
        size_t bytes = ebb_safetensors_at(file, index).bytes;
        EBB__TRY(ebb_safetensors_read_data(buffer, bytes, file, index));
        buffer += bytes;
    }
    return EBB_OK;
}

/* Cannot fail: sizes were checked, and states have no history. */
static ebb_status take(const state_list *list, const char *buffer)
{
    for (int i = 0; i < list->n; i++) {
        ebb_tensor *t = list->items[i].tensor;
        size_t bytes = (size_t)ebb_tensor_elems(t) * ebb_dtype_bytes(ebb_tensor_dtype(t));
        EBB__TRY(ebb_write(t, buffer, bytes));
        buffer += bytes;
    }
    return EBB_OK;
}

/* Read wholly into host memory first: an error midway leaves the state as it was, and the pool
 * (whose peak a dry run must know) is not asked for anything. */
static ebb_status load_checked(ebb_optim *o, const state_list *list, const ebb_safetensors *file,
                               const char *path)
{
    size_t total;
    int64_t steps = 0;
    EBB__TRY(check_file(&total, list, file, path));
    char *buffer = ebb__malloc(total);
    if (!buffer) return EBB_ENOMEM;
    ebb_status st = read_data(buffer, list, file);
    if (st == EBB_OK) memcpy(&steps, buffer, sizeof steps); /* the first of the list */
    if (st == EBB_OK && steps < 0)
        st = ebb_fail(EBB_EFORMAT, "%s: '%s' is %" PRId64 "; it counts steps", path, step_name,
                      steps);
    if (st == EBB_OK) st = take(list, buffer);
    if (st == EBB_OK) o->steps = steps;
    ebb__free(buffer);
    return st;
}

ebb_status ebb_optim_load(ebb_optim *optim, const char *path)
{
    ebb_safetensors *file = NULL;
    state_list list;
    EBB__TRY(list_make(&list, optim));
    ebb_status st = ebb_safetensors_open(&file, path);
    if (st == EBB_OK) st = load_checked(optim, &list, file, path);
    ebb_safetensors_close(file);
    list_free(&list);
    return st;
}
