/* ebb/nn.h: models built from the "model" object of a config. */
#ifndef EBB_NN_H
#define EBB_NN_H

#include <ebb/checkpoint.h>
#include <ebb/data.h>

EBB_BEGIN_DECLS

typedef struct ebb_model ebb_model;

/* Reads and checks the config, allocates parameters (category parameter) and initialises them from
 * `seed` (gpt: N(0, 0.02), residual projections scaled by 1/sqrt(2 layers), norms 1 and 0, biases 0;
 * mlp: Kaiming uniform as in PyTorch's Linear).  A frozen pattern ("embed.*", "blocks.0.*") names
 * parameters that need no gradient.  Errors: EINVAL with the JSON path ("model.heads: ..."). */
EBB_API EBB_NODISCARD ebb_status ebb_model_new(ebb_model **out, ebb_context *ctx, const char *model_json,
                                               ebb_dtype dtype, uint64_t seed);
EBB_API void ebb_model_free(ebb_model *model); /* NULL is a no-op */

typedef struct ebb_model_info {
    const char *type;         /* "mlp", "gpt" */
    bool tokens;              /* inputs are i32 [B, T], else float [B, in] */
    int64_t width;            /* T, or in */
    int64_t classes;          /* vocabulary, or output */
    int blocks;               /* units that memory.checkpoint counts: transformer blocks, mlp layers */
    int64_t parameters;       /* elements, tied ones once */
} ebb_model_info;
EBB_API ebb_model_info ebb_model_info_get(const ebb_model *model);
/* Reads the config only and fills `info`; allocates nothing large. */
EBB_API EBB_NODISCARD ebb_status ebb_model_inspect(ebb_model_info *info, const char *model_json);

/* All parameters, tied ones once, in a fixed order; borrowed. */
EBB_API int ebb_model_params(const ebb_model *model, const ebb_named_tensor **params);
EBB_API EBB_NODISCARD ebb_status ebb_model_save(const ebb_model *model, const char *path);
/* By name; extra, missing, wrong shape or dtype: EFORMAT naming it. */
EBB_API EBB_NODISCARD ebb_status ebb_model_load(ebb_model *model, const char *path);

/* Blocks [first, last] (both included) run as one segment. */
typedef struct ebb_block_range { int first, last; } ebb_block_range;
/* Parses memory.checkpoint ("none", "every:K", "sqrt", [[0, 3], ...]) for a model of `blocks`
 * blocks; *ranges has room for `blocks`.  Errors: EINVAL with `path`. */
EBB_API EBB_NODISCARD ebb_status ebb_checkpoint_parse(ebb_block_range *ranges, int *n_ranges, int blocks,
                                                      const char *json, const char *path);
/* Ranges in order, a range before those inside it, at any depth; two overlap only where one holds the
 * other, and none is given twice.  Errors: EINVAL. */
EBB_API EBB_NODISCARD ebb_status ebb_model_set_checkpoint(ebb_model *model, const ebb_block_range *ranges, int n);
/* More than 1: ebb_model_loss() takes head and cross-entropy in so many parts (see
 * ebb_linear_cross_entropy()).  Errors: EUNSUPPORTED for an mlp. */
EBB_API EBB_NODISCARD ebb_status ebb_model_set_loss_chunks(ebb_model *model, int64_t chunks);
EBB_API void ebb_model_train_mode(ebb_model *model, bool on); /* dropout on or off */

/* -> logits [B, T, V] or [B, out]. */
EBB_API EBB_NODISCARD ebb_status ebb_model_logits(ebb_tensor **out, ebb_model *model, ebb_tensor *inputs);
/* Mean cross-entropy over targets that are not ignored, or their sum over `normalizer` where > 0. */
EBB_API EBB_NODISCARD ebb_status ebb_model_loss(ebb_tensor **out, ebb_model *model, ebb_tensor *inputs,
                                                ebb_tensor *targets, double normalizer);

EBB_END_DECLS
#endif
