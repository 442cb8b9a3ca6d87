/* data/dataset.h: what a kind of dataset must offer. */
#ifndef EBB_DATA_DATASET_H
#define EBB_DATA_DATASET_H

#include <ebb/data.h>
#include "core/json.h"

typedef struct ebb__dataset_kind {
    const char *name;      /* "idx" */
    bool gives_tokens, gives_samples;
    const ebb__field *fields; /* of the config object */
    int n_fields;
    /* Reads the config object, checks the files' headers against info.width and info.classes, sets
     * info.n_train and info.n_eval.  What it leaves in data->state is closed on errors too. */
    ebb_status (*open)(ebb_dataset *data, const cJSON *object);
    ebb_status (*load)(ebb_dataset *data); /* NULL: nothing to read */
    /* Writes one item: `input` is a row of width i32 (tokens), f32 or f64 (samples); `targets` has
     * width entries (tokens) or one.  Called from any thread at once, after load. */
    ebb_status (*fill)(const ebb_dataset *data, bool eval, int64_t item, void *input,
                       ebb_dtype dtype, int32_t *targets);
    void (*close)(ebb_dataset *data);      /* frees data->state */
} ebb__dataset_kind;

struct ebb_dataset {
    const ebb__dataset_kind *kind;
    ebb_dataset_info info;
    uint64_t seed;
    bool loaded;
    void *state;
};

extern const ebb__dataset_kind ebb__dataset_idx, ebb__dataset_text, ebb__dataset_synthetic;

/* Keys that every data object may have.  A kind's config struct begins with these; "workers" and
 * "prefetch" are checked here and used by whoever makes the loader. */
typedef struct ebb__data_keys {
    char type[32];
    int64_t workers, prefetch;
} ebb__data_keys;

#define EBB__DATA_KEY(name, member, ...) \
    { .key = name, .offset = offsetof(ebb__data_keys, member), __VA_ARGS__ }
#define EBB__DATA_KEYS                                                              \
    EBB__DATA_KEY("type", type, .kind = EBB__STRING, .bytes = 32),                  \
    EBB__DATA_KEY("workers", workers, .kind = EBB__INT, .min = 0, .max = 64),       \
    EBB__DATA_KEY("prefetch", prefetch, .kind = EBB__INT, .min = 0, .max = 1024)

enum { EBB__PATH_BYTES = 4096 };

#endif
