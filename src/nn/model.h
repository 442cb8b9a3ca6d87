/* nn/model.h: what every kind of model has in common.
 * A kind is a row of ebb__archs[]: how its config is read, which parameters it has, and its forward
 * pass in three parts: enter (inputs to x), one block after another (x to x), leave (x to logits).
 * model.c does the rest: allocation, names, initialisation, files, checkpoint segments. */
#ifndef EBB_NN_MODEL_H
#define EBB_NN_MODEL_H

#include "checkpoint/plan.h"
#include "nn/config.h"
#include <ebb/nn.h>

enum { EBB__PARAM_NAME_BYTES = 64 };

typedef enum ebb__init {
    EBB__INIT_ZERO,
    EBB__INIT_ONE,
    EBB__INIT_NORMAL, /* N(0, scale^2) */
    EBB__INIT_UNIFORM /* U(-scale, scale) */
} ebb__init;

typedef struct ebb__param_spec {
    char name[EBB__PARAM_NAME_BYTES];
    int ndim;
    int64_t dims[2];
    ebb__init init;
    double scale;
    ebb_tensor **slot; /* where the kind's own weights struct borrows it; NULL when only counting */
} ebb__param_spec;

typedef ebb_status ebb__param_fn(void *user, const ebb__param_spec *spec);

typedef struct ebb__arch {
    const char *type;
    bool tokens;            /* inputs are i32 [B, T], else float [B, in] */
    const char *block_name; /* "blocks": block 3 is called "blocks.3" in reports */
    const ebb__field *fields;
    const int *n_fields;
    void (*defaults)(ebb__model_config *c);
    /* After the table was read: what the table cannot say, and values that derive from others. */
    ebb_status (*check)(ebb__model_config *c, const cJSON *object);
    ebb_status (*fill)(cJSON *object, const ebb__model_config *c); /* JSON fields only */
    ebb_status (*info)(ebb_model_info *info, const ebb__model_config *c);
    size_t (*weights_bytes)(const ebb__model_config *c);
    /* Names every parameter in the fixed order of files; weights may be NULL (counting). */
    ebb_status (*params)(const ebb__model_config *c, void *weights, ebb__param_fn *emit,
                         void *user);
    ebb_status (*enter)(ebb_tensor **x, const ebb_model *model, ebb_tensor *inputs);
    ebb_status (*block)(ebb_tensor **out, const ebb_model *model, int index, ebb_tensor *x);
    ebb_status (*leave)(ebb_tensor **logits, const ebb_model *model, ebb_tensor *x);
    /* x to the loss in model->loss_chunks parts, without logits as a whole; NULL: not built. */
    ebb_status (*loss)(ebb_tensor **loss, const ebb_model *model, ebb_tensor *x, ebb_tensor *targets,
                       double normalizer);
} ebb__arch;

extern const ebb__arch ebb__mlp, ebb__gpt;
extern const ebb__arch *const ebb__archs[];
extern const int ebb__n_archs;

struct ebb_model {
    ebb_context *ctx;
    ebb__model_config config;
    ebb_model_info info;
    ebb_dtype dtype;
    bool training;
    void *weights;            /* the kind's struct of borrowed tensors */
    ebb_named_tensor *params; /* owned, in the fixed order */
    char (*names)[EBB__PARAM_NAME_BYTES];
    int n_params;
    ebb_block_range *ranges; /* segments, each before those inside it */
    int n_ranges, cap_ranges;
    const ebb_plan *plan;    /* borrowed; ops to recompute per block; NULL: the context's list alone */
    int64_t loss_chunks;     /* 1: cross-entropy of logits */
    char (*block_names)[24]; /* "blocks.3", for scopes and segments */
};

/* Allocates and initialises every parameter, and checks the frozen patterns. */
EBB_NODISCARD ebb_status ebb__model_make_params(ebb_model *model, uint64_t seed);
/* Segments and op recipes as the plan says, which must outlive the model's use.  Errors: EINVAL (a plan
 * for another number of blocks). */
EBB_NODISCARD ebb_status ebb__model_follow(ebb_model *model, const ebb_plan *plan);
/* x as `act` says; not for swiglu. */
EBB_NODISCARD ebb_status ebb__activate(ebb_tensor **out, ebb_tensor *x, ebb__act act);
/* Dropout while training, else x itself. */
EBB_NODISCARD ebb_status ebb__model_dropout(ebb_tensor **out, const ebb_model *model, ebb_tensor *x,
                                            double p);

#endif
