/* nn/config.h: the "model" object of a config as structs. */
#ifndef EBB_NN_CONFIG_H
#define EBB_NN_CONFIG_H

#include "core/json.h"

enum { EBB__MAX_HIDDEN = 256, EBB__TYPE_BYTES = 16 };

typedef enum ebb__act {
    EBB__ACT_GELU_TANH,
    EBB__ACT_GELU_ERF,
    EBB__ACT_RELU,
    EBB__ACT_SILU,
    EBB__ACT_TANH,
    EBB__ACT_SIGMOID,
    EBB__ACT_SWIGLU
} ebb__act;
typedef enum ebb__norm { EBB__LAYERNORM, EBB__RMSNORM } ebb__norm;
typedef enum ebb__position { EBB__POS_LEARNED, EBB__POS_ROPE } ebb__position;

typedef struct ebb__mlp_config {
    char type[EBB__TYPE_BYTES];
    int64_t input, output;
    const cJSON *hidden_json, *frozen; /* borrowed from the object that was read */
    int64_t hidden[EBB__MAX_HIDDEN];
    int n_hidden;
    int activation; /* ebb__act */
    double dropout;
} ebb__mlp_config;

typedef struct ebb__gpt_config {
    char type[EBB__TYPE_BYTES];
    int64_t layers, heads, kv_heads, head_dim, width, ffn_width, context,
        vocab;                      /* L H KV D C F T V */
    int norm, activation, position; /* ebb__norm, ebb__act, ebb__position */
    double norm_eps, rope_base, dropout;
    bool bias, tie_embeddings;
    const cJSON *frozen;
} ebb__gpt_config;

/* Which member holds depends on the type; `frozen` is the list of name patterns of either, or NULL. */
typedef struct ebb__model_config {
    const struct ebb__arch *arch;
    const cJSON *frozen;
    union {
        ebb__mlp_config mlp;
        ebb__gpt_config gpt;
    };
} ebb__model_config;

/* Reads and checks `object`, whose JSON path is "model".  The object must outlive what is borrowed.
 * Errors: EINVAL with the JSON path. */
EBB_NODISCARD ebb_status ebb__model_config_read(ebb__model_config *out, const cJSON *object);
/* Adds the keys that `object` lacks with their effective values.  Errors: as above; ENOMEM. */
EBB_NODISCARD ebb_status ebb__model_config_fill(cJSON *object);

/* The tables of keys, for the reader and for the test of the JSON Schema. */
extern const ebb__field ebb__mlp_fields[], ebb__gpt_fields[];
extern const int ebb__n_mlp_fields, ebb__n_gpt_fields;

#endif
