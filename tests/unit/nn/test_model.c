#include <ebb/memory.h>
#include <ebb/nn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

#define GPT "{\"type\":\"gpt\",\"layers\":3,\"heads\":2,\"width\":8,\"context\":4,\"vocab\":16"
#define MLP "{\"type\":\"mlp\",\"input\":6,\"output\":3,\"hidden\":[5,4],\"activation\":\"tanh\""

static ebb_tensor *find(const ebb_model *model, const char *name)
{
    const ebb_named_tensor *params;
    int n = ebb_model_params(model, &params);
    for (int i = 0; i < n; i++)
        if (strcmp(params[i].name, name) == 0) return params[i].tensor;
    return NULL;
}

static void make_tokens(ebb_tensor **tokens, ebb_tensor **targets, ebb_context *ctx, int64_t rows,
                        int64_t length)
{
    int32_t data[64];
    for (int i = 0; i < 64; i++) data[i] = (i * 7 + 3) % 16;
    int64_t dims[2] = { rows, length };
    check_ok(ebb_from_data(tokens, ctx, EBB_I32, 2, dims, data));
    check_ok(ebb_from_data(targets, ctx, EBB_I32, 2, dims, data + 1));
}

Test(model, parameters_have_the_names_and_shapes_of_the_file_format)
{
    with_context(ctx)
    {
        ebb_model *model = NULL;
        check_ok(ebb_model_new(&model, ctx,
                               GPT ",\"kv_heads\":1,\"ffn_width\":12,\"activation\":\"swiglu\"}",
                               EBB_F32, 1));
        const ebb_named_tensor *params;
        int n = ebb_model_params(model, &params);
        cr_assert_eq(n, 2 + 3 * 14 + 2);
        cr_assert_str_eq(params[0].name, "embed.tokens.weight");
        cr_assert_str_eq(params[1].name, "embed.positions.weight");
        cr_assert_str_eq(params[n - 1].name, "norm.bias");
        ebb_tensor *qkv = find(model, "blocks.2.attn.qkv.weight"),
                   *gate = find(model, "blocks.0.mlp.gate.weight");
        cr_assert(qkv && ebb_tensor_dim(qkv, 0) == (2 + 2) * 4 && ebb_tensor_dim(qkv, 1) == 8);
        cr_assert(gate && ebb_tensor_dim(gate, 0) == 12 && ebb_tensor_dim(gate, 1) == 8);
        cr_assert(find(model, "head.weight") == NULL, "tied: no head of its own");
        cr_assert_str_eq(ebb_tensor_name(qkv), "blocks.2.attn.qkv.weight");
        ebb_model_free(model);
    }
}

Test(model, parts_that_the_config_leaves_out_have_no_parameters)
{
    with_context(ctx)
    {
        ebb_model *model = NULL;
        check_ok(ebb_model_new(&model, ctx,
                               GPT ",\"norm\":\"rmsnorm\",\"position\":\"rope\",\"bias\":false,"
                                   "\"tie_embeddings\":false}",
                               EBB_F32, 1));
        const ebb_named_tensor *params;
        int n = ebb_model_params(model, &params);
        cr_assert_eq(n, 1 + 3 * 6 + 2);
        cr_assert(find(model, "head.weight") && !find(model, "embed.positions.weight") &&
                  !find(model, "norm.bias"));
        ebb_model_free(model);
    }
}

Test(model, every_parameter_byte_is_of_the_parameter_category)
{
    with_context(ctx)
    {
        ebb_model *model = NULL;
        check_ok(ebb_model_new(&model, ctx, GPT "}", EBB_F32, 1));
        ebb_memory_stats stats;
        ebb_memory_stats_get(ctx, &stats);
        cr_assert_eq(stats.by_category[EBB_CAT_PARAMETER], stats.allocated_bytes);
        ebb_model_free(model);
    }
}

static double spread(const ebb_tensor *t)
{
    int64_t n = ebb_tensor_elems(t);
    const float *x = ebb_tensor_data(t);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    return sqrt(squares / (double)n - sum / (double)n * (sum / (double)n));
}

Test(model, weights_start_as_documented)
{
    with_context(ctx)
    {
        ebb_model *model = NULL;
        check_ok(
            ebb_model_new(&model, ctx,
                          "{\"type\":\"gpt\",\"layers\":8,\"heads\":2,\"width\":64,\"context\":4,"
                          "\"vocab\":256}",
                          EBB_F32, 3));
        cr_assert_float_eq(spread(find(model, "embed.tokens.weight")), 0.02, 0.001);
        cr_assert_float_eq(spread(find(model, "blocks.7.mlp.up.weight")), 0.02, 0.001);
        cr_assert_float_eq(spread(find(model, "blocks.7.mlp.down.weight")), 0.02 / 4, 0.0003,
                           "by sqrt(2 layers)");
        cr_assert_eq(((float *)ebb_tensor_data(find(model, "blocks.0.norm1.weight")))[63], 1.0f);
        cr_assert_eq(((float *)ebb_tensor_data(find(model, "blocks.0.attn.qkv.bias")))[5], 0.0f);
        ebb_model_free(model);
        model = NULL;
        check_ok(ebb_model_new(&model, ctx, "{\"type\":\"mlp\",\"input\":100,\"output\":200}",
                               EBB_F32, 3));
        cr_assert_float_eq(spread(find(model, "layers.0.weight")), 0.1 / sqrt(3), 0.002,
                           "uniform within 1/sqrt(in)");
        cr_assert_float_eq(spread(find(model, "layers.0.bias")), 0.1 / sqrt(3), 0.01);
        ebb_model_free(model);
    }
}

Test(model, a_seed_gives_the_same_weights_whatever_the_threads_and_the_dtype)
{
    float first[16 * 8] = { 0 };
    for (int threads = 1; threads <= 2; threads++) {
        with_options(ctx, ((ebb_context_options){ .threads = threads }))
        {
            ebb_model *model = NULL;
            check_ok(ebb_model_new(&model, ctx, GPT "}", threads == 1 ? EBB_F32 : EBB_F64, 5));
            ebb_tensor *table = find(model, "embed.tokens.weight");
            for (int i = 0; i < 16 * 8; i++) {
                if (threads == 1)
                    first[i] = ((float *)ebb_tensor_data(table))[i];
                else
                    cr_assert_eq((float)((double *)ebb_tensor_data(table))[i], first[i]);
            }
            ebb_model_free(model);
        }
    }
}

Test(model, making_a_model_does_not_draw_from_the_contexts_generator)
{
    with_context(ctx)
    {
        ebb_model *model = NULL;
        ebb_rng_set_offset(ctx, 77);
        check_ok(ebb_model_new(&model, ctx, GPT "}", EBB_F32, 5));
        cr_assert_eq(ebb_rng_offset(ctx), 77);
        ebb_model_free(model);
    }
}

Test(model, frozen_patterns_stop_gradients_and_must_match_something)
{
    with_context(ctx)
    {
        ebb_model *model = NULL;
        check_ok(
            ebb_model_new(&model, ctx, GPT ",\"frozen\":[\"embed.*\",\"*.norm1.*\"]}", EBB_F32, 5));
        cr_assert(!ebb_requires_grad(find(model, "embed.tokens.weight")));
        cr_assert(!ebb_requires_grad(find(model, "blocks.1.norm1.bias")));
        cr_assert(ebb_requires_grad(find(model, "blocks.1.norm2.bias")));
        ebb_model_free(model);
        model = NULL;
        check_fails(
            ebb_model_new(&model, ctx, GPT ",\"frozen\":[\"embed.*\",\"block.*\"]}", EBB_F32, 5),
            EBB_EINVAL);
        check_message("model.frozen[1]");
        cr_assert(model == NULL);
    }
}

/* Loss of a model, its gradients as one array; grads has room. */
static double gradients(ebb_context *ctx, const char *json, const char *checkpoint, float *grads,
                        int64_t *n_grads)
{
    EBB_LOCAL(loss);
    EBB_LOCAL(tokens);
    EBB_LOCAL(targets);
    ebb_model *model = NULL;
    double value = 0;
    ebb_block_range ranges[8];
    int n_ranges = 0;
    check_ok(ebb_model_new(&model, ctx, json, EBB_F32, 5));
    ebb_seed(ctx, 9);
    check_ok(ebb_checkpoint_parse(ranges, &n_ranges, ebb_model_info_get(model).blocks, checkpoint,
                                  "checkpoint"));
    check_ok(ebb_model_set_checkpoint(model, ranges, n_ranges));
    make_tokens(&tokens, &targets, ctx, 3, 4);
    check_ok(ebb_model_loss(&loss, model, tokens, targets, 0));
    check_ok(ebb_backward(loss));
    check_ok(ebb_item(loss, &value));
    const ebb_named_tensor *params;
    int n = ebb_model_params(model, &params);
    *n_grads = 0;
    for (int i = 0; i < n; i++) {
        ebb_tensor *grad = ebb_grad(params[i].tensor);
        if (!ebb_requires_grad(params[i].tensor)) {
            cr_assert(grad == NULL, "%s is frozen, yet has a gradient", params[i].name);
            continue;
        }
        cr_assert(grad != NULL, "%s has no gradient", params[i].name);
        memcpy(grads + *n_grads, ebb_tensor_data(grad),
               (size_t)ebb_tensor_elems(grad) * sizeof(float));
        *n_grads += ebb_tensor_elems(grad);
    }
    ebb_drop(&loss);
    ebb_model_free(model);
    return value;
}

enum { ROOM = 16384 };

static void check_same_bits(const char *json)
{
    static float none[ROOM], some[ROOM];
    static const char *const modes[] = { "\"every:1\"", "\"sqrt\"", "[[1,2]]", "[[0,0],[2,2]]" };
    with_context(ctx)
    {
        int64_t n = 0, m = 0;
        double loss = gradients(ctx, json, "\"none\"", none, &n);
        for (int i = 0; i < 4; i++) {
            double other = gradients(ctx, json, modes[i], some, &m);
            cr_assert(loss == other && n == m && memcmp(none, some, (size_t)n * sizeof(float)) == 0,
                      "%s changes bits", modes[i]);
        }
    }
}

Test(model, checkpointing_changes_no_bit) { check_same_bits(GPT "}"); }
Test(model, checkpointing_changes_no_bit_with_dropout) { check_same_bits(GPT ",\"dropout\":0.3}"); }
Test(model, checkpointing_changes_no_bit_with_frozen_parts)
{
    check_same_bits(GPT ",\"frozen\":[\"embed.*\",\"blocks.0.*\"]}");
}
Test(model, checkpointing_changes_no_bit_in_llama_style)
{
    check_same_bits(
        GPT ",\"kv_heads\":1,\"norm\":\"rmsnorm\",\"activation\":\"swiglu\",\"position\":\"rope\","
            "\"bias\":false,\"tie_embeddings\":false}");
}

Test(model, segments_out_of_order_are_refused)
{
    with_context(ctx)
    {
        ebb_model *model = NULL;
        check_ok(ebb_model_new(&model, ctx, GPT "}", EBB_F32, 5));
        ebb_block_range bad[2] = { { 1, 2 }, { 0, 0 } };
        check_fails(ebb_model_set_checkpoint(model, bad, 2), EBB_EINVAL);
        ebb_block_range far = { 0, 3 };
        check_fails(ebb_model_set_checkpoint(model, &far, 1), EBB_EINVAL);
        ebb_model_free(model);
    }
}

Test(model, shorter_texts_than_the_context_are_fine_and_longer_ones_refused)
{
    with_context(ctx)
    {
        ebb_model *model = NULL;
        check_ok(ebb_model_new(&model, ctx, GPT "}", EBB_F32, 5));
        {
            EBB_LOCAL(tokens);
            EBB_LOCAL(targets);
            EBB_LOCAL(logits);
            make_tokens(&tokens, &targets, ctx, 2, 3);
            check_ok(ebb_model_logits(&logits, model, tokens));
            cr_assert(ebb_tensor_dim(logits, 1) == 3 && ebb_tensor_dim(logits, 2) == 16);
            make_tokens(&tokens, &targets, ctx, 2, 5);
            check_fails(ebb_model_logits(&logits, model, tokens), EBB_ESHAPE);
            check_message("T <= 4");
        }
        ebb_model_free(model);
    }
}

Test(model, dropout_acts_in_training_only)
{
    with_context(ctx)
    {
        ebb_model *model = NULL;
        double with = 0, without = 0, again = 0;
        check_ok(ebb_model_new(&model, ctx, GPT ",\"dropout\":0.5}", EBB_F32, 5));
        {
            EBB_LOCAL(tokens);
            EBB_LOCAL(targets);
            EBB_LOCAL(loss);
            make_tokens(&tokens, &targets, ctx, 2, 4);
            check_ok(ebb_model_loss(&loss, model, tokens, targets, 0));
            check_ok(ebb_item(loss, &with));
            ebb_model_train_mode(model, false);
            uint64_t offset = ebb_rng_offset(ctx);
            check_ok(ebb_model_loss(&loss, model, tokens, targets, 0));
            check_ok(ebb_item(loss, &without));
            check_ok(ebb_model_loss(&loss, model, tokens, targets, 0));
            check_ok(ebb_item(loss, &again));
            cr_assert_eq(ebb_rng_offset(ctx), offset);
        }
        cr_assert(with != without && without == again);
        ebb_model_free(model);
    }
}

Test(model, weights_survive_a_file)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "w.safetensors");
    with_context(ctx)
    {
        ebb_model *a = NULL, *b = NULL;
        check_ok(ebb_model_new(&a, ctx, MLP "}", EBB_F32, 1));
        check_ok(ebb_model_new(&b, ctx, MLP "}", EBB_F32, 2));
        check_ok(ebb_model_save(a, path));
        check_ok(ebb_model_load(b, path));
        const ebb_named_tensor *pa, *pb;
        int n = ebb_model_params(a, &pa);
        ebb_model_params(b, &pb);
        for (int i = 0; i < n; i++)
            cr_assert_eq(memcmp(ebb_tensor_data(pa[i].tensor), ebb_tensor_data(pb[i].tensor),
                                (size_t)ebb_tensor_elems(pa[i].tensor) * sizeof(float)),
                         0, "%s", pa[i].name);
        ebb_model_free(a);
        ebb_model_free(b);
    }
    temp_folder_remove(&folder);
}

Test(model, a_file_of_another_model_is_refused_by_name_and_changes_nothing)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "w.safetensors");
    with_context(ctx)
    {
        ebb_model *a = NULL, *wider = NULL, *deeper = NULL, *f64 = NULL;
        check_ok(ebb_model_new(&a, ctx, MLP "}", EBB_F32, 1));
        check_ok(ebb_model_new(&wider, ctx,
                               "{\"type\":\"mlp\",\"input\":6,\"output\":3,\"hidden\":[5,9]}",
                               EBB_F32, 1));
        check_ok(ebb_model_new(&deeper, ctx,
                               "{\"type\":\"mlp\",\"input\":6,\"output\":3,\"hidden\":[5,4,3]}",
                               EBB_F32, 1));
        check_ok(ebb_model_new(&f64, ctx, MLP "}", EBB_F64, 1));
        check_ok(ebb_model_save(a, path));
        float before = ((float *)ebb_tensor_data(find(wider, "layers.0.weight")))[0];
        check_fails(ebb_model_load(wider, path), EBB_EFORMAT);
        check_message("layers.1.weight");
        cr_assert_eq(((float *)ebb_tensor_data(find(wider, "layers.0.weight")))[0], before);
        check_fails(ebb_model_load(deeper, path), EBB_EFORMAT);
        check_fails(ebb_model_load(f64, path), EBB_EFORMAT);
        check_message("f64");
        check_ok(ebb_model_save(deeper, path));
        check_fails(ebb_model_load(a, path), EBB_EFORMAT);
        ebb_model_free(a);
        ebb_model_free(wider);
        ebb_model_free(deeper);
        ebb_model_free(f64);
    }
    temp_folder_remove(&folder);
}

Test(model, a_dry_model_allocates_what_a_real_one_does)
{
    size_t bytes[2] = { 0, 0 };
    for (int dry = 0; dry < 2; dry++) {
        with_device(ctx, dry ? "dry:cpu" : "cpu")
        {
            ebb_model *model = NULL;
            check_ok(ebb_model_new(&model, ctx, GPT "}", EBB_F32, 5));
            ebb_memory_stats stats;
            ebb_memory_stats_get(ctx, &stats);
            bytes[dry] = stats.peak_allocated_bytes;
            ebb_model_free(model);
        }
    }
    cr_assert(bytes[0] == bytes[1] && bytes[0] > 0);
}

Test(model, a_failed_allocation_anywhere_leaves_nothing)
{
    with_context(ctx)
    {
        bool done = false;
        for (uint64_t n = 1; !done && n < 2000; n++) {
            ebb_model *model = NULL;
            ebb_fault_arm(n);
            ebb_status st =
                ebb_model_new(&model, ctx, MLP ",\"frozen\":[\"layers.0.*\"]}", EBB_F32, 1);
            ebb_fault_arm(0);
            done = st == EBB_OK;
            cr_assert(done || st == EBB_ENOMEM, "allocation %llu: %s", (unsigned long long)n,
                      ebb_status_name(st));
            ebb_memory_stats stats;
            ebb_model_free(model);
            ebb_memory_stats_get(ctx, &stats);
            cr_assert_eq(stats.allocated_bytes, 0);
        }
        cr_assert(done);
    }
}
