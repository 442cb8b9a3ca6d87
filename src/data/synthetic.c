/* data/synthetic.c: items that are pure functions of (seed, split, item), with something to learn.
 * tokens:  each token follows from the one before by a fixed affine map, except one in eight, which
 *          is drawn; so the loss can fall well below log(vocab) but not to 0.
 * samples: a class is drawn; each input is the mean of a draw and the class's own pattern. */
#include "core/mem.h"
#include "core/rng.h"
#include "core/site.h"
#include "data/dataset.h"

enum { TOKENS = 0, SAMPLES = 1, FROM_MODEL = -1 };
static const char *const item_kinds[] = { "tokens", "samples", NULL };

typedef struct synthetic_config {
    ebb__data_keys keys;
    int64_t items, eval_items, seed;
    int kind;
} synthetic_config;

#define FIELD(name, member, ...) \
    { .key = name, .offset = offsetof(synthetic_config, member), __VA_ARGS__ }
static const ebb__field fields[] = {
    EBB__DATA_KEYS,
    FIELD("items", items, .kind = EBB__INT, .min = 1, .max = 1e8, .required = true),
    FIELD("eval_items", eval_items, .kind = EBB__INT, .min = 0, .max = 1e8),
    FIELD("seed", seed, .kind = EBB__INT, .min = 0, .max = 9007199254740991.0),
    FIELD("kind", kind, .kind = EBB__CHOICE, .choices = item_kinds),
};
#undef FIELD
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

/* Streams of one seed; an item's stream is drawn from these. */
enum { STREAM_TRAIN = 1, STREAM_EVAL = 2, STREAM_PATTERN = 3 };

static ebb_status synthetic_open(ebb_dataset *data, const cJSON *object)
{
    synthetic_config c = { .seed = -1, .kind = FROM_MODEL };
    int kind = data->info.tokens ? TOKENS : SAMPLES;
    EBB__TRY(ebb__json_read(&c, object, "data", fields, N_FIELDS));
    if (c.kind != FROM_MODEL && c.kind != kind)
        return ebb_fail(EBB_EINVAL, "data.kind: %s, but the model takes %s", item_kinds[c.kind],
                        item_kinds[kind]);
    if (c.seed >= 0) data->seed = (uint64_t)c.seed;
    data->info.n_train = c.items;
    data->info.n_eval = c.eval_items;
    return EBB_OK;
}

/* Uniform in [0, n). */
static int32_t below(uint32_t word, int64_t n)
{
    return (int32_t)((uint64_t)word * (uint64_t)n >> 32);
}

static void fill_tokens(const ebb_dataset *data, uint64_t stream, int32_t *tokens, int32_t *targets)
{
    int64_t vocab = data->info.classes, width = data->info.width;
    int32_t token = 0;
    for (int64_t i = 0; i <= width; i++) {
        uint32_t draw[4];
        ebb__philox(stream, (uint64_t)i, draw);
        bool drawn = i == 0 || draw[0] % 8 == 0;
        token = drawn ? below(draw[1], vocab) : (int32_t)(((int64_t)token * 5 + 7) % vocab);
        if (i < width) tokens[i] = token;
        if (i > 0) targets[i - 1] = token;
    }
}

static void fill_sample(const ebb_dataset *data, uint64_t stream, void *input, ebb_dtype dtype,
                        int32_t *target)
{
    uint32_t draw[4], own[4];
    ebb__philox(stream, UINT64_MAX, draw);
    *target = below(draw[0], data->info.classes);
    uint64_t pattern = ebb__seed_mix(ebb__seed_mix(data->seed, STREAM_PATTERN), (uint64_t)*target);
    for (int64_t i = 0; i < data->info.width; i++) {
        if (i % 4 == 0) {
            ebb__philox(stream, (uint64_t)i / 4, draw);
            ebb__philox(pattern, (uint64_t)i / 4, own);
        }
        float value = 0.5f * (ebb__u01_f32(draw[i % 4]) + ebb__u01_f32(own[i % 4]));
        if (dtype == EBB_F32) ((float *)input)[i] = value;
        else ((double *)input)[i] = value;
    }
}

static ebb_status synthetic_fill(const ebb_dataset *data, bool eval, int64_t item, void *input,
                                 ebb_dtype dtype, int32_t *targets)
{
    uint64_t split = ebb__seed_mix(data->seed, eval ? STREAM_EVAL : STREAM_TRAIN);
    uint64_t stream = ebb__seed_mix(split, (uint64_t)item);
    if (data->info.tokens) fill_tokens(data, stream, input, targets);
    else fill_sample(data, stream, input, dtype, targets);
    return EBB_OK;
}

const ebb__dataset_kind ebb__dataset_synthetic = {
    .name = "synthetic", .gives_tokens = true, .gives_samples = true,
    .fields = fields, .n_fields = N_FIELDS,
    .open = synthetic_open, .fill = synthetic_fill,
};
