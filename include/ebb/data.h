/* ebb/data.h: datasets, their loader, and safetensors files. */
#ifndef EBB_DATA_H
#define EBB_DATA_H

#include <ebb/tensor.h>

EBB_BEGIN_DECLS

/* ---- safetensors ------------------------------------------------------------------------- */
typedef struct ebb_named_tensor { const char *name; ebb_tensor *tensor; } ebb_named_tensor;

/* Writes beside and renames.  Names are unique; a small view writes its own bytes only, not its
 * base's.  The header is padded so that data starts at a multiple of 8.  On a dry device nothing is
 * written.  Errors: EIO, EINVAL, ENOMEM, EDEVICE (some tensors are dry, others not). */
EBB_API EBB_NODISCARD ebb_status ebb_safetensors_save(const char *path,
                                                      const ebb_named_tensor *tensors, int n);

typedef struct ebb_safetensors ebb_safetensors; /* an open file: header only */
/* Checks the whole header (lengths against the file before anything is allocated, duplicate keys,
 * offsets without overlap or hole, shapes against offsets).  Errors: EIO, EFORMAT, ENOMEM. */
EBB_API EBB_NODISCARD ebb_status ebb_safetensors_open(ebb_safetensors **out, const char *path);
EBB_API void ebb_safetensors_close(ebb_safetensors *file); /* NULL is a no-op */
EBB_API int ebb_safetensors_count(const ebb_safetensors *file);
typedef struct ebb_safetensors_entry {
    const char *name;          /* borrowed from the file */
    bool known_dtype;          /* false: ebb has no such dtype (F8, BOOL, ...): see dtype_name */
    ebb_dtype dtype;
    const char *dtype_name;
    int ndim;                  /* may exceed EBB_MAX_DIMS: dims then holds the first ones */
    int64_t dims[EBB_MAX_DIMS];
    size_t bytes;
} ebb_safetensors_entry;
EBB_API ebb_safetensors_entry ebb_safetensors_at(const ebb_safetensors *file, int index);
EBB_API int ebb_safetensors_find(const ebb_safetensors *file, const char *name); /* -1: none */
/* Reads entry `index` into a new tensor; unaligned data is fine.  Errors: EUNSUPPORTED (a dtype
 * that ebb lacks, more than EBB_MAX_DIMS dims: such entries open but do not read), EIO, ENOMEM. */
EBB_API EBB_NODISCARD ebb_status ebb_safetensors_read(ebb_tensor **out, ebb_context *ctx,
                                                      const ebb_safetensors *file, int index);
/* The same bytes into host memory; data_bytes must be the entry's bytes.  Works for any dtype. */
EBB_API EBB_NODISCARD ebb_status ebb_safetensors_read_data(void *data, size_t data_bytes,
                                                           const ebb_safetensors *file, int index);

/* ---- datasets ---------------------------------------------------------------------------- */
/* Made from the "data" object of a config.  Opening reads headers only; the bytes are loaded by
 * ebb_dataset_load() (never called on a dry device). */
typedef struct ebb_dataset ebb_dataset;

typedef struct ebb_dataset_info {
    bool tokens;               /* true: inputs and targets are i32 [B, T]; false: inputs f32 [B, in]
                                  (scaled to [0, 1]), targets i32 [B] */
    int64_t n_train, n_eval;   /* items: windows of T tokens, or samples */
    int64_t width;             /* T, or in */
    int64_t classes;           /* vocabulary, or classes (targets lie below) */
} ebb_dataset_info;

/* `data_json`: the object's text.  `width`: what the model takes: context length T for tokens,
 * input width for samples; `classes`: the model's vocab or output.  Both are checked against the
 * data.
 * Types ("?": may be left out):
 *   idx        {"images","labels","eval_images"?,"eval_labels"?,"normalize"?: [mean, std]}
 *   text       {"path","tokenizer"?: "bytes","eval_fraction"?: 0}
 *   synthetic  {"items","eval_items"?: 0,"kind"?: "tokens"|"samples","seed"?: that of the call}
 * "workers" and "prefetch" are allowed in all: they are for who makes the loader.
 * text: the last eval_fraction of the bytes is for evaluation; each part is cut into
 * (bytes - 1) / T windows.  A vocab below 256 is fine as long as no byte of the file lies above it
 * (checked on load).
 * Errors: EINVAL with the JSON path, EIO, EFORMAT. */
EBB_API EBB_NODISCARD ebb_status ebb_dataset_open(ebb_dataset **out, const char *data_json,
                                                  bool tokens, int64_t width, int64_t classes,
                                                  uint64_t seed);
EBB_API EBB_NODISCARD ebb_status ebb_dataset_load(ebb_dataset *data);
EBB_API void ebb_dataset_close(ebb_dataset *data); /* NULL is a no-op */
EBB_API ebb_dataset_info ebb_dataset_info_get(const ebb_dataset *data);

/* A loader yields batches in an order that is a pure function of (seed, epoch) for training (each
 * epoch a fresh permutation, the last batch of an epoch partial) and 0, 1, 2, ... for evaluation.
 * Its ring of prefetch + 1 batches (category input) is allocated by ebb_loader_new(); worker
 * threads fill it.  On a dry device no data is read and no thread started.  The dataset is borrowed
 * and must outlive it. */
typedef struct ebb_loader ebb_loader;
typedef struct ebb_loader_options {
    size_t struct_bytes;
    bool eval;                 /* evaluation split, in order, one pass per ebb_loader_rewind() */
    int64_t batch;             /* items per batch */
    int workers, prefetch;     /* threads (0: load in the calling thread) and batches ahead */
    uint64_t seed;
    int64_t first_batch;       /* training: index of the first batch (resume) */
    ebb_dtype dtype;           /* of sample inputs: F32 or F64 */
} ebb_loader_options;
EBB_API EBB_NODISCARD ebb_status ebb_loader_new(ebb_loader **out, ebb_context *ctx,
                                                ebb_dataset *data,
                                                const ebb_loader_options *options);
EBB_API void ebb_loader_free(ebb_loader *loader); /* joins its threads; NULL is a no-op */
/* The next batch: inputs and targets are borrowed views into the ring, valid until the next call.
 * *n_items: rows (smaller in an epoch's last batch).  *n_targets: targets that count.
 * Evaluation: *n_items 0 at the end of the pass.  A batch's storages get a new version when they
 * are given back, so that a graph which outlives its batch is found by backward.
 * Errors: those of reading, as a worker found them; asking again gives the same error. */
EBB_API EBB_NODISCARD ebb_status ebb_loader_next(ebb_loader *loader, ebb_tensor **inputs,
                                                 ebb_tensor **targets, int64_t *n_items,
                                                 int64_t *n_targets);
/* The caller needs the batch no more, though a graph may.  With prefetch 0, where no other batch waits
 * for the ring, its bytes then go as soon as no saved slot reads them, and ebb_loader_next() allocates
 * the next batch's; otherwise the ring keeps them for the next batch. */
EBB_API void ebb_loader_release(ebb_loader *loader);
/* Evaluation: to the start of the pass.  Training loaders stay where they are. */
EBB_API void ebb_loader_rewind(ebb_loader *loader);
/* Moves on by n batches without loading them (a dry run skips what repeats). */
EBB_API void ebb_loader_skip(ebb_loader *loader, int64_t n_batches);
EBB_API int64_t ebb_loader_batches(const ebb_loader *loader);  /* per epoch, or evaluation pass */
EBB_API int64_t ebb_loader_position(const ebb_loader *loader); /* index of the next batch */

EBB_END_DECLS
#endif
