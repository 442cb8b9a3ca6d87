/* Text from a trained gpt whose tokens are bytes.  Every token is drawn from one forward over the last
 * `context` tokens. */
#include <math.h>
#include <string.h>

#include "core/mem.h"
#include "core/rng.h"
#include "train/run.h"

/* What a sampling run holds. */
typedef struct sampler {
    ebb__run run;
    ebb_config *config;
    int32_t *ids;     /* the prompt, then what was drawn */
    int64_t n_prompt;
    double *logits;   /* [vocab] */
} sampler;

static ebb_status check_options(const ebb_sample_options *o)
{
    if (!o || o->struct_bytes != sizeof(*o))
        return ebb_fail(EBB_EINVAL, "sample options: struct_bytes must be sizeof(ebb_sample_options), %zu",
                        sizeof(*o));
    if (o->prompt_bytes == 0 || !o->prompt)
        return ebb_fail(EBB_EINVAL, "sample: the prompt is empty; it takes a byte to go on from");
    if (o->tokens < 1 || o->tokens > INT32_MAX || o->prompt_bytes > INT32_MAX)
        return ebb_fail(EBB_EINVAL, "sample: %lld tokens after %zu bytes; from 1 to 2^31 - 1 of each",
                        (long long)o->tokens, o->prompt_bytes);
    if (!(o->temperature >= 0) || isinf(o->temperature))
        return ebb_fail(EBB_EINVAL, "sample: temperature %g; from 0", o->temperature);
    return EBB_OK;
}

static ebb_status open_sampler(sampler *s, const char *run_dir, const ebb_sample_options *o,
                               const ebb_train_options *train)
{
    EBB_TRY(ebb__run_open_trained(&s->run, &s->config, run_dir, train));
    const ebb_model_info *model = &s->config->model;
    if (s->run.dry) return ebb_fail(EBB_EUNSUPPORTED, "sample: a dry device has no values; use cpu");
    if (!model->tokens) return ebb_fail(EBB_EINVAL, "sample: %s: an %s makes no text", run_dir, model->type);
    s->n_prompt = (int64_t)o->prompt_bytes;
    s->ids = ebb__malloc((o->prompt_bytes + (size_t)o->tokens) * sizeof(*s->ids));
    s->logits = ebb__malloc((size_t)model->classes * sizeof(*s->logits));
    if (!s->ids || !s->logits) return EBB_ENOMEM;
    for (int64_t i = 0; i < s->n_prompt; i++) {
        s->ids[i] = (unsigned char)o->prompt[i];
        if (s->ids[i] >= model->classes)
            return ebb_fail(EBB_EINVAL, "sample: byte %d of the prompt is outside [0, %lld), the model's vocab",
                            s->ids[i], (long long)model->classes);
    }
    ebb_model_train_mode(s->run.model, false);
    return EBB_OK;
}

/* Logits of the token after the first n. */
static ebb_status look(sampler *s, int64_t n)
{
    EBB_LOCAL(tokens);
    EBB_LOCAL(logits);
    EBB_WITH_MODE(EBB_NO_GRAD);
    const ebb_model_info *model = &s->config->model;
    int64_t length = n < model->width ? n : model->width;
    int64_t dims[] = { 1, length };
    EBB_TRY(ebb_from_data(&tokens, s->run.ctx, EBB_I32, 2, dims, s->ids + n - length));
    EBB_TRY(ebb__run_logits(&logits, &s->run, tokens)); /* [1, length, vocab] */
    EBB_TRY(ebb_narrow(&logits, logits, 1, length - 1, 1));
    EBB_TRY(ebb_cast(&logits, logits, EBB_F64));
    return ebb_read(logits, s->logits, (size_t)model->classes * sizeof(*s->logits));
}

/* u in [0, 1).  Logits that are not numbers lead to some token, never out of bounds. */
static int32_t draw(const double *logits, int n, double temperature, double u)
{
    int best = 0;
    double total = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    if (temperature == 0) return best;
    for (int i = 0; i < n; i++) total += exp((logits[i] - logits[best]) / temperature);
    for (int i = 0; i < n; i++) {
        u -= exp((logits[i] - logits[best]) / temperature) / total;
        if (u < 0) return i;
    }
    return best;
}

static ebb_status sample(unsigned char *out, sampler *s, const ebb_sample_options *o)
{
    int n_bytes = s->config->model.classes < 256 ? (int)s->config->model.classes : 256;
    for (int64_t t = 0; t < o->tokens; t++) {
        uint32_t words[4];
        EBB_TRY(look(s, s->n_prompt + t));
        ebb__philox(o->seed, (uint64_t)t, words);
        int32_t id = draw(s->logits, n_bytes, o->temperature, ebb__u01_f64(words[0], words[1]));
        s->ids[s->n_prompt + t] = id;
        out[t] = (unsigned char)id;
    }
    return EBB_OK;
}

ebb_status ebb_sample(unsigned char *out, const char *run_dir, const ebb_sample_options *options)
{
    EBB_TRY(check_options(options));
    ebb_train_options train = { .struct_bytes = sizeof(train), .device = options->device,
                                .threads = options->threads };
    sampler s = { .n_prompt = 0 };
    ebb_status st = open_sampler(&s, run_dir, options, &train);
    if (st == EBB_OK) st = sample(out, &s, options);
    ebb__run_close(&s.run);
    ebb_config_free(s.config);
    ebb__free(s.ids);
    ebb__free(s.logits);
    return st;
}
