/* data/text.c: a text file as bytes.
 * The last part of the file (eval_fraction of its bytes) is for evaluation.  Each part is cut into
 * windows of T tokens that do not overlap; targets are the tokens shifted by one, so a part of n
 * bytes has (n - 1) / T windows. */
#include <inttypes.h>

#include "core/file.h"
#include "core/mem.h"
#include "core/site.h"
#include "data/dataset.h"

static const char *const tokenizers[] = { "bytes", NULL };

typedef struct text_config {
    ebb__data_keys keys;
    char path[EBB__PATH_BYTES];
    int tokenizer;
    double eval_fraction;
} text_config;

#define FIELD(name, member, ...) \
    { .key = name, .offset = offsetof(text_config, member), __VA_ARGS__ }
static const ebb__field fields[] = {
    EBB__DATA_KEYS,
    FIELD("path", path, .kind = EBB__STRING, .bytes = EBB__PATH_BYTES, .required = true),
    FIELD("tokenizer", tokenizer, .kind = EBB__CHOICE, .choices = tokenizers),
    FIELD("eval_fraction", eval_fraction, .kind = EBB__NUMBER, .min = 0, .max = 1),
};
#undef FIELD
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

typedef struct text_state {
    text_config config;
    size_t bytes, train_bytes; /* of the file; before the evaluation part */
    unsigned char *text;       /* NULL until load */
} text_state;

static int64_t windows(size_t bytes, int64_t width)
{
    return bytes ? (int64_t)((bytes - 1) / (size_t)width) : 0;
}

static ebb_status text_open(ebb_dataset *data, const cJSON *object)
{
    text_state *s = data->state = ebb__calloc(1, sizeof *s);
    if (!s) return EBB_ENOMEM;
    text_config *c = &s->config;
    EBB__TRY(ebb__json_read(c, object, "data", fields, N_FIELDS));
    if (c->eval_fraction >= 1)
        return ebb_fail(EBB_EINVAL, "data.eval_fraction: %g is outside [0, 1)", c->eval_fraction);
    EBB__TRY(ebb__file_size(&s->bytes, c->path));
    s->train_bytes = s->bytes - (size_t)((double)s->bytes * c->eval_fraction);
    data->info.n_train = windows(s->train_bytes, data->info.width);
    data->info.n_eval = windows(s->bytes - s->train_bytes, data->info.width);
    if (!data->info.n_train)
        return ebb_fail(EBB_EINVAL,
                        "data.path: %s: %zu bytes for training (of %zu) are too few for "
                        "one window of context + 1 = %" PRId64,
                        c->path, s->train_bytes, s->bytes, data->info.width + 1);
    return EBB_OK;
}

static ebb_status check_bytes(const unsigned char *text, size_t n, int64_t vocab, const char *path)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] >= vocab)
            return ebb_fail(EBB_EINVAL, "data.path: %s: byte %d at offset %zu is outside [0, %"
                            PRId64 "), the model's vocab (256 takes every byte)",
                            path, text[i], i, vocab);
    return EBB_OK;
}

static ebb_status text_load(ebb_dataset *data)
{
    text_state *s = data->state;
    char *text = NULL;
    size_t bytes;
    EBB__TRY(ebb__file_read(&text, &bytes, s->config.path, s->bytes));
    ebb_status st = check_bytes((unsigned char *)text, bytes, data->info.classes, s->config.path);
    if (bytes != s->bytes)
        st = ebb_fail(EBB_EFORMAT, "data.path: %s: had %zu bytes when it was opened, now %zu",
                      s->config.path, s->bytes, bytes);
    if (st == EBB_OK) s->text = (unsigned char *)text;
    else ebb__free(text);
    return st;
}

static ebb_status text_fill(const ebb_dataset *data, bool eval, int64_t item, void *input,
                            ebb_dtype dtype, int32_t *targets)
{
    (void)dtype; /* tokens are i32 */
    const text_state *s = data->state;
    int64_t width = data->info.width;
    const unsigned char *window = s->text + (eval ? s->train_bytes : 0) + (size_t)(item * width);
    int32_t *tokens = input;
    for (int64_t i = 0; i < width; i++) {
        tokens[i] = window[i];
        targets[i] = window[i + 1];
    }
    return EBB_OK;
}

static void text_close(ebb_dataset *data)
{
    text_state *s = data->state;
    if (!s) return;
    ebb__free(s->text);
    ebb__free(s);
}

const ebb__dataset_kind ebb__dataset_text = {
    .name = "text", .gives_tokens = true,
    .fields = fields, .n_fields = N_FIELDS,
    .open = text_open, .load = text_load, .fill = text_fill, .close = text_close,
};
