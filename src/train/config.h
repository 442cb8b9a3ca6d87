/* train/config.h: a whole config, checked. */
#ifndef EBB_TRAIN_CONFIG_H
#define EBB_TRAIN_CONFIG_H

#include "core/json.h"
#include <ebb/plan.h>

enum { EBB__SCHEMA_BYTES = 256, EBB__NAME_BYTES = 128 };

typedef struct ebb__train_keys {
    int64_t steps, batch, accumulate; /* items per micro-batch; micro-batches per step */
    int precision;
    const cJSON *optimizer, *schedule, *clip_json, *loss_scale;
    double clip_norm;               /* 0: off */
    int64_t eval_every, save_every; /* in steps; 0: only at the end */
    bool fuse_optimizer, capture;
    int64_t loss_chunks;
} ebb__train_keys;

typedef struct ebb__memory_keys {
    const cJSON *checkpoint, *recompute, *offload, *compress, *allocator;
    size_t limit_bytes, host_limit_bytes; /* 0: none */
    bool offset_plan;
    char allocator_conf[512];         /* allocator as "key:value,..." */
} ebb__memory_keys;

typedef struct ebb__top_keys {
    char schema[EBB__SCHEMA_BYTES]; /* "$schema": for editors, not read */
    char name[EBB__NAME_BYTES];
    int64_t seed;
    const cJSON *model, *data, *train, *memory;
} ebb__top_keys;

/* What memory.offload and memory.compress say of an op. */
typedef struct ebb__config_saver {
    const char *op; /* borrowed from root; "*": all that nothing else is said of */
    ebb_saver saver;
} ebb__config_saver;

struct ebb_config {
    cJSON *root;                  /* as written, with sets and data paths applied */
    char *folder;                 /* of the config file */
    char *model_json, *data_json; /* texts of those objects */
    ebb__top_keys top;
    ebb__train_keys train;
    ebb__memory_keys memory;
    ebb_optim_options optim;
    ebb_schedule schedule;
    ebb_loss_scale loss_scale; /* as it begins */
    ebb_model_info model;
    int workers, prefetch;   /* of the data object */
    ebb_block_range *ranges; /* segments */
    int n_ranges;
    const ebb_plan *plan;    /* in place of ranges; NULL: none */
    ebb_plan *own_plan;      /* read from "plan:FILE" */
    size_t budget_bytes;     /* "budget:SIZE": a plan is made when a run opens; 0: none */
    const char **recompute; /* op names, borrowed from root */
    int n_recompute;
    ebb__config_saver *savers; /* no op twice */
    int n_savers;
    bool rounds;               /* one of them does */
    bool may_offload;     /* memory.offload "auto": planning may choose it, block by block */
};

/* From text, for configs that the library brings along.  Errors: as ebb_config_load(). */
EBB_NODISCARD ebb_status ebb__config_parse(ebb_config **out, const char *text);

/* Of parameters, their gradients and the optimizer's state; inputs that are not tokens. */
ebb_dtype ebb__config_dtype(const ebb_config *config);
/* For EBB_WITH_AUTOCAST() around every forward; EBB_F32: off. */
ebb_dtype ebb__config_autocast(const ebb_config *config);

/* SHA-256 of what a plan depends on: the model object with every default, keys sorted, batch, accumulate
 * and precision.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__config_sha256(char out[65], const ebb_config *config);

/* Data files, and the plan of "plan:FILE", that are not found from the working folder but are from `folder`
 * get its path in front.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__config_resolve_paths(cJSON *root, const char *folder);
/* Makes the paths that exist absolute, so that a run folder's config works from anywhere. */
EBB_NODISCARD ebb_status ebb__config_absolute_paths(cJSON *root);
/* A copy of the tree with every default filled in.  Owner: the caller's. */
EBB_NODISCARD ebb_status ebb__config_tree(cJSON **out, const ebb_config *config);

/* The tables of keys, for the reader, the printer and the test of the JSON Schema. */
extern const ebb__field ebb__top_fields[], ebb__train_fields[], ebb__memory_fields[];
extern const int ebb__n_top_fields, ebb__n_train_fields, ebb__n_memory_fields;

#endif
