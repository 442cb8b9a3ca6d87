/* data/loader.c: batches from a ring that worker threads fill ahead of the compute thread.
 * Where host code cannot touch the device's memory, workers fill a slot's stage (data/stage.h), and the
 * compute thread has it copied: a batch ahead where it is ready.
 *
 * Batch number b lives in slot b % n_slots.  Workers take batch numbers in order under the lock and
 * copy out which items the batch has, so neither the order nor any byte depends on their number.
 * Invariant: a slot is written only while its batch lies in
 *     [position, position - (held ? 1 : 0) + n_slots),
 * so never the one that the compute thread holds. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <ebb/memory.h>
#include <ebb/op.h>
#include <ebb/ops.h>

#include "core/mem.h"
#include "core/rng.h"
#include "core/site.h"
#include "data/dataset.h"
#include "data/stage.h"

enum { MAX_WORKERS = 64, MAX_PREFETCH = 1024, MESSAGE_BYTES = 4096 };
/* Sums of a position with slots and batches do not overflow. */
static const int64_t MAX_POSITION = (int64_t)1 << 62;

typedef struct slot {
    ebb_tensor *inputs, *targets;           /* [batch, width], [batch] or [batch, width] */
    ebb_tensor *part_inputs, *part_targets; /* views of the first rows: an epoch's last batch */
    ebb__stage stage;                       /* where workers write */
    int64_t *items;                         /* [batch]: which items; NULL on a dry device */
    int64_t n_items, n_targets;
    bool ready;
    ebb_status status;
    char message[MESSAGE_BYTES];            /* of status */
} slot;

struct ebb_loader {
    ebb_context *ctx;
    ebb_dataset *data;
    ebb_loader_options options;
    bool dry;
    int64_t n_items, n_batches;             /* per epoch or pass */
    int64_t per_item_targets;
    size_t input_row_bytes;
    int n_slots;
    slot *slots;
    ebb__stream *copies;                    /* from stages to the device; NULL: there are none */

    int64_t position;                       /* next batch to hand out */
    int64_t next_fill;                      /* next batch that a worker takes */
    slot *held;                             /* what the compute thread reads */
    int64_t *order, order_epoch;            /* permutation of the epoch that next_fill is in */

    pthread_mutex_t lock;
    pthread_cond_t work, done;              /* for workers; for the compute thread */
    bool has_lock, paused, stop;
    int busy;                               /* workers that are filling */
    int n_threads;
    pthread_t threads[MAX_WORKERS];
};

/* ---- filling ----------------------------------------------------------------------------- */

static int64_t rows_of(const ebb_loader *l, int64_t batch)
{
    if (!l->n_batches) return 0;
    int64_t first = batch % l->n_batches * l->options.batch, left = l->n_items - first;
    return left < l->options.batch ? left : l->options.batch;
}

/* Chooses the items of a batch.  Under the lock, batches in order: one permutation is enough. */
static slot *assign(ebb_loader *l, int64_t batch)
{
    slot *s = &l->slots[batch % l->n_slots];
    int64_t epoch = batch / l->n_batches, first = batch % l->n_batches * l->options.batch;
    s->n_items = rows_of(l, batch);
    if (!l->options.eval && epoch != l->order_epoch) {
        ebb__permutation(l->options.seed, (uint64_t)epoch, l->order, l->n_items);
        l->order_epoch = epoch;
    }
    for (int64_t i = 0; i < s->n_items; i++)
        s->items[i] = l->options.eval ? first + i : l->order[first + i];
    return s;
}

static void fill(const ebb_loader *l, slot *s)
{
    const ebb_dataset *data = l->data;
    ebb_dtype dtype = data->info.tokens ? EBB_I32 : l->options.dtype;
    char *input = ebb__stage_inputs(&s->stage, s->inputs);
    int32_t *targets = ebb__stage_targets(&s->stage, s->targets);
    s->status = EBB_OK;
    s->n_targets = 0;
    for (int64_t i = 0; i < s->n_items && s->status == EBB_OK; i++) {
        s->status = data->kind->fill(data, l->options.eval, s->items[i], input, dtype, targets);
        for (int64_t t = 0; t < l->per_item_targets; t++) s->n_targets += targets[t] != EBB_IGNORE;
        input += l->input_row_bytes;
        targets += l->per_item_targets;
    }
    if (s->status != EBB_OK) snprintf(s->message, sizeof s->message, "%s", ebb_message());
}

static bool can_fill(const ebb_loader *l)
{
    int64_t limit = l->position - (l->held ? 1 : 0) + l->n_slots;
    return !l->paused && l->next_fill < limit && (!l->options.eval || l->next_fill < l->n_batches) &&
           l->slots[l->next_fill % l->n_slots].inputs; /* released: made again by the compute thread */
}

static void *worker(void *loader)
{
    ebb_loader *l = loader;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        if (!can_fill(l)) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        slot *s = assign(l, l->next_fill++);
        l->busy++;
        pthread_mutex_unlock(&l->lock);
        fill(l, s);
        pthread_mutex_lock(&l->lock);
        l->busy--;
        s->ready = true;
        pthread_cond_signal(&l->done);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- making ------------------------------------------------------------------------------ */

/* The first `rows` rows of t, over the same storage. */
static ebb_status first_rows(ebb_tensor **out, const ebb_tensor *t, int64_t rows)
{
    ebb_arg shape;
    ebb__tensor_arg(t, &shape);
    shape.dims[0] = rows;
    ebb__arg_contiguous(&shape);
    return ebb__tensor_over(out, ebb_tensor_storage(t), &shape, 0);
}

static void drop_tensors(slot *s)
{
    ebb_drop(&s->part_inputs);
    ebb_drop(&s->part_targets);
    ebb_drop(&s->inputs);
    ebb_drop(&s->targets);
}

static ebb_status make_tensors(slot *s, const ebb_loader *l)
{
    const ebb_dataset_info *info = &l->data->info;
    int64_t dims[2] = { l->options.batch, info->width };
    int64_t last = l->n_items % l->options.batch;
    /* Zeros rather than empty: what is reserved is resident from the start, also in a ring used late. */
    EBB__TRY(ebb__full(&s->inputs, l->ctx, info->tokens ? EBB_I32 : l->options.dtype, 2, dims, 0, "zeros of a batch"));
    ebb_tensor_set_category(s->inputs, EBB_CAT_INPUT);
    EBB__TRY(ebb__full(&s->targets, l->ctx, EBB_I32, info->tokens ? 2 : 1, dims, 0, "zeros of a batch"));
    ebb_tensor_set_category(s->targets, EBB_CAT_INPUT);
    if (last) {
        EBB__TRY(first_rows(&s->part_inputs, s->inputs, last));
        EBB__TRY(first_rows(&s->part_targets, s->targets, last));
    }
    return EBB_OK;
}

static ebb_status slot_new(slot *s, const ebb_loader *l)
{
    EBB__TRY(make_tensors(s, l));
    if (l->dry) return EBB_OK;
    size_t bytes;
    if (!ebb__mul_size(&bytes, (size_t)l->options.batch, sizeof *s->items))
        return ebb_fail(EBB_ENOMEM, "loader: a batch of %lld overflows",
                        (long long)l->options.batch);
    s->items = ebb__malloc(bytes);
    if (!s->items) return EBB_ENOMEM;
    return l->copies ? ebb__stage_open(&s->stage, l->ctx, s->inputs, s->targets) : EBB_OK;
}

static ebb_status start_threads(ebb_loader *l)
{
    if (pthread_mutex_init(&l->lock, NULL)) return ebb_fail(EBB_ENOMEM, "loader: no mutex");
    pthread_cond_init(&l->work, NULL); /* cannot fail with default attributes on Linux */
    pthread_cond_init(&l->done, NULL);
    l->has_lock = true;
    if (l->dry || !l->n_batches) return EBB_OK;
    for (; l->n_threads < l->options.workers; l->n_threads++) {
        int code = pthread_create(&l->threads[l->n_threads], NULL, worker, l);
        if (code)
            return ebb_fail(EBB_ENOMEM, "loader: cannot start worker %d of %d: %s",
                            l->n_threads + 1, l->options.workers, strerror(code));
    }
    return EBB_OK;
}

static ebb_status fill_in(ebb_loader *l)
{
    l->slots = ebb__calloc((size_t)l->n_slots, sizeof *l->slots);
    if (!l->slots) return EBB_ENOMEM;
    if (!l->dry && !ebb__device_is_host(&l->ctx->device))
        EBB__TRY(ebb__stream_open(&l->copies, l->ctx->device.streams, "copies of batches"));
    for (int i = 0; i < l->n_slots; i++) EBB__TRY(slot_new(&l->slots[i], l));
    if (!l->dry && !l->options.eval) {
        l->order = ebb__malloc((size_t)l->n_items * sizeof *l->order);
        if (!l->order) return EBB_ENOMEM;
    }
    return start_threads(l);
}

static ebb_status check_options(const ebb_loader_options *o, const ebb_dataset *data, bool dry)
{
    if (!o || o->struct_bytes != sizeof *o)
        return ebb_fail(EBB_EINVAL, "loader: options are missing or have a wrong struct_bytes");
    if (o->batch < 1)
        return ebb_fail(EBB_EINVAL, "loader: batch %lld must be >= 1", (long long)o->batch);
    if (o->workers < 0 || o->workers > MAX_WORKERS)
        return ebb_fail(EBB_EINVAL, "loader: workers %d is outside [0, %d]", o->workers,
                        MAX_WORKERS);
    if (o->prefetch < 0 || o->prefetch > MAX_PREFETCH)
        return ebb_fail(EBB_EINVAL, "loader: prefetch %d is outside [0, %d]", o->prefetch,
                        MAX_PREFETCH);
    if (o->first_batch < 0 || o->first_batch > MAX_POSITION)
        return ebb_fail(EBB_EINVAL, "loader: first_batch %lld is outside [0, 2^62]",
                        (long long)o->first_batch);
    if (!data->info.tokens && o->dtype != EBB_F32 && o->dtype != EBB_F64)
        return ebb_fail(EBB_EDTYPE, "loader: sample inputs are f32 or f64, not %s",
                        ebb_dtype_name(o->dtype));
    if (!o->eval && data->info.n_train < 1)
        return ebb_fail(EBB_EINVAL, "loader: the data has no training items");
    if (!dry && !data->loaded) return ebb_fail(EBB_ESTATE, "loader: call ebb_dataset_load() first");
    return EBB_OK;
}

ebb_status ebb_loader_new(ebb_loader **out, ebb_context *ctx, ebb_dataset *data,
                          const ebb_loader_options *options)
{
    if (!out || !ctx || !data) return ebb_fail(EBB_EINVAL, "loader: an argument is NULL");
    bool dry = ebb_context_is_dry(ctx);
    EBB__TRY(check_options(options, data, dry));
    ebb_loader *l = ebb__calloc(1, sizeof *l);
    if (!l) return EBB_ENOMEM;
    const ebb_dataset_info *info = &data->info;
    l->ctx = ctx;
    l->data = data;
    l->options = *options;
    l->dry = dry;
    l->n_items = options->eval ? info->n_eval : info->n_train;
    l->n_batches = l->n_items / options->batch + (l->n_items % options->batch != 0);
    l->per_item_targets = info->tokens ? info->width : 1;
    l->input_row_bytes =
        (size_t)info->width * ebb_dtype_bytes(info->tokens ? EBB_I32 : options->dtype);
    l->n_slots = options->prefetch + 1;
    l->position = l->next_fill = options->eval ? 0 : options->first_batch;
    l->order_epoch = -1;
    ebb_status st = fill_in(l);
    if (st == EBB_OK) *out = l;
    else ebb_loader_free(l);
    return st;
}

static void stop_threads(ebb_loader *l)
{
    if (!l->has_lock) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_threads; i++) pthread_join(l->threads[i], NULL);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->done);
    pthread_mutex_destroy(&l->lock);
}

void ebb_loader_free(ebb_loader *loader)
{
    if (!loader) return;
    stop_threads(loader);
    for (int i = 0; loader->slots && i < loader->n_slots; i++) {
        slot *s = &loader->slots[i];
        if (loader->copies) ebb__stage_close(&s->stage, loader->ctx, loader->copies);
        drop_tensors(s);
        ebb__free(s->items);
    }
    if (loader->copies) ebb__stream_close(loader->copies);
    ebb__free(loader->slots);
    ebb__free(loader->order);
    ebb__free(loader);
}

/* ---- taking ------------------------------------------------------------------------------ */

/* The held slot goes back to the workers.  Its bytes will change under whoever still has a view of
 * them, so its version grows and a saved slot that reads it later is an error.  Under the lock. */
static void give_back(ebb_loader *l)
{
    if (!l->held) return;
    l->held->ready = false;
    if (l->copies) ebb__stage_reuse(&l->held->stage, l->copies);
    if (l->held->inputs) {
        ebb__storage_bump(ebb_tensor_storage(l->held->inputs));
        ebb__storage_bump(ebb_tensor_storage(l->held->targets));
    }
    l->held = NULL;
    pthread_cond_broadcast(&l->work);
}

void ebb_loader_release(ebb_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    if (loader->held && loader->n_slots == 1) drop_tensors(loader->held);
    pthread_mutex_unlock(&loader->lock);
}

/* Makes again what was released: by the compute thread, so that it has its place in program order.
 * Under the lock. */
static ebb_status make_again(ebb_loader *l)
{
    slot *s = &l->slots[0];
    if (s->inputs) return EBB_OK;
    ebb_status st = make_tensors(s, l);
    if (st != EBB_OK) drop_tensors(s);
    pthread_cond_broadcast(&l->work);
    return st;
}

/* Waits for batch `position`, or makes it where there are no workers.  Under the lock. */
static slot *obtain(ebb_loader *l)
{
    slot *s = &l->slots[l->position % l->n_slots];
    if (l->dry) {
        s->n_items = rows_of(l, l->position);
        s->n_targets = s->n_items * l->per_item_targets;
    } else if (l->n_threads) {
        while (!s->ready) pthread_cond_wait(&l->done, &l->lock);
    } else {
        fill(l, assign(l, l->position));
    }
    return s;
}

/* The computation goes on with the batch on the device.  The next one, where it is ready, is sent along,
 * so that its copy runs beside this batch's computation. */
static void bring(ebb_loader *l, slot *s)
{
    slot *next = &l->slots[l->position % l->n_slots];
    ebb__stage_send(&s->stage, s->inputs, s->targets, l->copies);
    ebb__stage_join(&s->stage, l->copies);
    pthread_mutex_lock(&l->lock);
    bool ready = next != s && next->ready && next->status == EBB_OK;
    pthread_mutex_unlock(&l->lock);
    if (ready) ebb__stage_send(&next->stage, next->inputs, next->targets, l->copies);
}

ebb_status ebb_loader_next(ebb_loader *loader, ebb_tensor **inputs, ebb_tensor **targets,
                           int64_t *n_items, int64_t *n_targets)
{
    ebb_loader *l = loader;
    *n_items = *n_targets = 0;
    EBB__TRY(ebb__device_not_capturing(&l->ctx->device, "loader"));
    pthread_mutex_lock(&l->lock);
    give_back(l);
    ebb_status made = make_again(l);
    bool over = l->options.eval && l->position >= l->n_batches;
    slot *s = made != EBB_OK || over ? NULL : obtain(l);
    if (s && s->status == EBB_OK) {
        l->held = s;
        l->position++;
    }
    pthread_mutex_unlock(&l->lock);
    if (!s) return made == EBB_OK ? ebb__streams_error(l->ctx->device.streams) : made;
    /* A batch that failed stays in its slot: asking again gives the same error. */
    if (s->status != EBB_OK) return ebb_fail(s->status, "%s", s->message);
    if (l->copies) bring(l, s);
    EBB__TRY(ebb__streams_error(l->ctx->device.streams)); /* of bringing, and of giving the last one back */
    bool whole = s->n_items == l->options.batch;
    *inputs = whole ? s->inputs : s->part_inputs;
    *targets = whole ? s->targets : s->part_targets;
    *n_items = s->n_items;
    *n_targets = s->n_targets;
    return EBB_OK;
}

/* Throws away what was filled ahead and goes on at `position`. */
static void move_to(ebb_loader *l, int64_t position)
{
    pthread_mutex_lock(&l->lock);
    l->paused = true;
    while (l->busy) pthread_cond_wait(&l->done, &l->lock);
    give_back(l);
    for (int i = 0; i < l->n_slots; i++) {
        l->slots[i].ready = false;
        l->slots[i].status = EBB_OK;
        if (l->copies) ebb__stage_reuse(&l->slots[i].stage, l->copies);
    }
    l->position = l->next_fill = position;
    l->paused = false;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
}

void ebb_loader_rewind(ebb_loader *loader)
{
    if (loader->options.eval) move_to(loader, 0);
}

void ebb_loader_skip(ebb_loader *loader, int64_t n_batches)
{
    int64_t position;
    if (n_batches <= 0) return;
    if (__builtin_add_overflow(loader->position, n_batches, &position) || position > MAX_POSITION)
        position = MAX_POSITION;
    if (loader->options.eval && position > loader->n_batches) position = loader->n_batches;
    move_to(loader, position);
}

int64_t ebb_loader_batches(const ebb_loader *loader)
{
    return loader->n_batches;
}

int64_t ebb_loader_position(const ebb_loader *loader)
{
    return loader->position;
}
