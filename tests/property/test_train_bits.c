/* Runs that must agree: to the bit where only memory is arranged differently, to rounding where sums
 * are taken in another order. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drawn_config.h"
#include "support/cases.h"
#include "support/training.h"

static const char gpt[] =
    "{\"seed\":3,\"model\":{\"type\":\"gpt\",\"layers\":4,\"heads\":2,\"width\":16,\"context\":8,"
    "\"vocab\":40,\"dropout\":0.1},"
    "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":21,\"eval_items\":5,\"seed\":1},"
    "\"train\":{\"steps\":7,\"batch\":4,\"accumulate\":2,\"clip_norm\":1.0,\"eval_every\":3,"
    "\"optimizer\":{\"type\":\"adamw\",\"lr\":3e-3,\"weight_decay\":0.1}}}";

static const char llama[] =
    "{\"seed\":5,\"model\":{\"type\":\"gpt\",\"layers\":3,\"heads\":4,\"kv_heads\":2,\"width\":24,"
    "\"ffn_width\":40,\"context\":9,\"vocab\":30,\"norm\":\"rmsnorm\",\"activation\":\"swiglu\","
    "\"position\":\"rope\",\"bias\":false,\"tie_embeddings\":false,\"frozen\":[\"blocks.0.*\"]},"
    "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":16,\"eval_items\":4,\"seed\":1},"
    "\"train\":{\"steps\":6,\"batch\":4,\"optimizer\":{\"type\":\"adamw\",\"lr\":3e-3}}}";

static const char mlp[] =
    "{\"seed\":7,\"model\":{\"type\":\"mlp\",\"input\":12,\"hidden\":[30,20,25],\"output\":6,"
    "\"activation\":\"gelu_erf\",\"dropout\":0.2},"
    "\"data\":{\"type\":\"synthetic\",\"kind\":\"samples\",\"items\":50,\"eval_items\":9,\"seed\":1},"
    "\"train\":{\"steps\":9,\"batch\":8,\"optimizer\":{\"type\":\"sgd\",\"lr\":0.1,\"momentum\":0.9}}}";

static const char *const texts[] = { gpt, llama, mlp };
enum { N_TEXTS = sizeof(texts) / sizeof(texts[0]) };

static const char *const ways[] = {
    "memory.checkpoint=\"none\"", /* a repeated run */
    "memory.checkpoint=\"every:1\"",
    "memory.checkpoint=\"every:2\"",
    "memory.checkpoint=\"every:100\"",
    "memory.checkpoint=\"sqrt\"",
    "memory.checkpoint=[[1,2]]",
    "memory.recompute=[\"gelu\",\"layernorm\"]",
    "memory.offload=\"all\"",
    "memory={\"checkpoint\":\"every:1\",\"offload\":\"all\",\"recompute\":[\"gelu\",\"dropout\"]}",
    "memory={\"checkpoint\":[[1,1]],\"offload\":[\"add\",\"linear\",\"gelu\"]}",
    "memory.recompute=[\"cast\",\"gelu\",\"swiglu\",\"layernorm\","
    "\"rmsnorm\",\"rope\",\"add\",\"linear\",\"dropout\"]",
};
enum { N_WAYS = sizeof(ways) / sizeof(ways[0]) };

/* ---- what a run leaves ---------------------------------------------------------------------- */

typedef struct outcome {
    ebb_train_result result;
    char *weights;              /* the file's bytes */
    size_t weights_bytes;
} outcome;

static outcome run(const char *text, const char *const sets[4], int threads)
{
    temp_folder folder = temp_folder_make();
    outcome o;
    ebb_config *config = config_of(text, sets);
    o.result = train_config(config, threads, temp_path(&folder, "run"));
    o.weights = read_text(temp_path(&folder, "run/weights.safetensors"), &o.weights_bytes);
    ebb_config_free(config);
    temp_folder_remove(&folder);
    return o;
}

static void check_same_outcome(const outcome *a, const outcome *b, int text, const char *way)
{
    const ebb_train_result *x = &a->result, *y = &b->result;
    cr_assert(strlen(x->gradients_sha256) == 64);
    cr_assert(strcmp(x->gradients_sha256, y->gradients_sha256) == 0,
              "config %d: other gradients: %s", text, way);
    cr_assert(x->loss_first == y->loss_first && x->loss_last == y->loss_last && x->eval_loss == y->eval_loss,
              "config %d: loss %.17g, not %.17g: %s", text, y->loss_last, x->loss_last, way);
    cr_assert(a->weights_bytes == b->weights_bytes && memcmp(a->weights, b->weights, a->weights_bytes) == 0,
              "config %d: other weights: %s", text, way);
}

/* Under AddressSanitizer each way runs with one config. */
static bool is_asked(int text, int way) { return (text + way) % CASES(1, N_TEXTS) == 0; }

static void check_ways(const char *precision)
{
    for (int t = 0; t < N_TEXTS; t++) {
        outcome plain = run(texts[t], (const char *const[4]){ precision }, 2);
        cr_assert(isfinite(plain.result.loss_last) && plain.result.loss_last != plain.result.loss_first);
        for (int w = 0; w < N_WAYS; w++) {
            if (!is_asked(t, w)) continue;
            outcome other = run(texts[t], (const char *const[4]){ precision, ways[w] }, 2);
            check_same_outcome(&plain, &other, t, ways[w]);
            if (w == 1) cr_assert(other.result.recomputed_ops > 0 && plain.result.recomputed_ops == 0);
            free(other.weights);
        }
        free(plain.weights);
    }
    check_no_live_blocks();
}

Test(train_bits, recomputing_does_not_change_a_bit_of_a_run_in_f32) { check_ways("train.precision=\"f32\""); }

Test(train_bits, recomputing_does_not_change_a_bit_of_a_run_in_f64) { check_ways("train.precision=\"f64\""); }

Test(train_bits, recomputing_does_not_change_a_bit_of_a_run_in_bf16) { check_ways("train.precision=\"bf16\""); }

Test(train_bits, recomputing_does_not_change_a_bit_of_a_run_in_f16) { check_ways("train.precision=\"f16\""); }

/* With whatever recomputing, accumulation, freezing and tying was drawn. */
Test(train_bits, the_optimizer_inside_backward_does_not_change_a_bit)
{
    for (uint64_t seed = 100; seed < 100 + CASES(30, 10); seed++) {
        drawn_config drawn;
        drawn_config_make(&drawn, seed);
        outcome plain = run(drawn.json, (const char *const[4]){ "train.clip_norm=null", "train.loss_scale=null", "train.fuse_optimizer=false" },
                            drawn.threads);
        outcome fused = run(drawn.json, (const char *const[4]){ "train.clip_norm=null", "train.loss_scale=null", "train.fuse_optimizer=true" },
                            drawn.threads);
        check_same_outcome(&plain, &fused, (int)seed, drawn.json);
        cr_assert(fused.result.memory.peak_allocated_bytes <= plain.result.memory.peak_allocated_bytes);
        free(plain.weights);
        free(fused.weights);
    }
    check_no_live_blocks();
}

Test(train_bits, workers_and_prefetch_do_not_change_a_bit)
{
    outcome plain = run(gpt, (const char *const[4]){ "data.workers=0", "data.prefetch=0" }, 1);
    outcome other = run(gpt, (const char *const[4]){ "data.workers=3", "data.prefetch=4" }, 1);
    check_same_outcome(&plain, &other, 0, "3 workers");
    free(plain.weights);
    free(other.weights);
}

/* ---- to rounding ----------------------------------------------------------------------------- */

/* |a - b| / |a| over all weights of two files with the same layout. */
static double weight_distance(const outcome *a, const outcome *b, bool f64)
{
    cr_assert(a->weights_bytes == b->weights_bytes);
    size_t header = 0, item = f64 ? 8 : 4;
    memcpy(&header, a->weights, 8);
    cr_assert(memcmp(a->weights, b->weights, 8 + header) == 0, "the layouts differ");
    double error = 0, norm = 0;
    for (size_t at = 8 + header; at < a->weights_bytes; at += item) {
        double x, y;
        float p, q;
        memcpy(&x, a->weights + at, item);
        memcpy(&y, b->weights + at, item);
        memcpy(&p, a->weights + at, 4);
        memcpy(&q, b->weights + at, 4);
        if (!f64) x = (double)p, y = (double)q;
        error += (x - y) * (x - y);
        norm += x * x;
    }
    cr_assert(norm > 0);
    return sqrt(error / norm);
}

/* One step of plain SGD with lr 1 from the same weights: weights then differ as gradients do. */
static const char one_step[] =
    "{\"seed\":3,\"model\":{\"type\":\"gpt\",\"layers\":2,\"heads\":2,\"width\":16,\"context\":8,"
    "\"vocab\":40},"
    "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":24,\"eval_items\":0,\"seed\":1},"
    "\"train\":{\"steps\":1,\"batch\":8,\"optimizer\":{\"type\":\"sgd\",\"lr\":1.0,\"weight_decay\":0}}}";

static void check_accumulation(const char *precision, bool f64, double tolerance)
{
    outcome whole = run(one_step, (const char *const[4]){ precision }, 2);
    outcome parts = run(one_step, (const char *const[4]){ precision, "train.batch=2",
                                                          "train.accumulate=4" }, 2);
    double distance = weight_distance(&whole, &parts, f64);
    cr_assert(distance <= tolerance, "gradients of 4 x 2 and 1 x 8 differ by %.2e", distance);
    cr_assert(fabs(whole.result.loss_last - parts.result.loss_last) <= tolerance * whole.result.loss_last);
    cr_assert(parts.result.memory.peak_allocated_bytes < whole.result.memory.peak_allocated_bytes);
    free(whole.weights);
    free(parts.weights);
}

Test(train_bits, four_batches_of_two_give_the_gradient_of_one_of_eight)
{
    check_accumulation("train.precision=\"f32\"", false, 1e-6);
    check_accumulation("train.precision=\"f64\"", true, 1e-14);
}

/* 5 items in batches of 2, accumulated 3 at a time: batches of 2, 2 and 1. */
Test(train_bits, a_partial_batch_counts_by_its_items)
{
    outcome whole = run(one_step, (const char *const[4]){ "train.precision=\"f64\"", "data.items=5" }, 1);
    outcome parts = run(one_step, (const char *const[4]){ "train.precision=\"f64\"", "data.items=5",
                                                          "train.batch=2", "train.accumulate=3" }, 1);
    double distance = weight_distance(&whole, &parts, true);
    cr_assert(distance <= 1e-14, "gradients differ by %.2e", distance);
    free(whole.weights);
    free(parts.weights);
}

Test(train_bits, one_thread_and_two_agree_to_rounding)
{
    for (int t = 0; t < N_TEXTS; t++) {
        outcome one = run(texts[t], (const char *const[4]){ NULL }, 1);
        outcome two = run(texts[t], (const char *const[4]){ NULL }, 2);
        double distance = weight_distance(&one, &two, false);
        cr_assert(distance <= 1e-5, "config %d: weights differ by %.2e", t, distance);
        cr_assert(fabs(one.result.loss_last - two.result.loss_last) <= 1e-5 * one.result.loss_last);
        free(one.weights);
        free(two.weights);
    }
}
