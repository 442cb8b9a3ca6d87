#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "train_support.h"

typedef struct files {
    temp_folder folder;
    const char *weights, *batch, *out;
} files;

static files make_files(ebb_context *ctx, const char *model_json, ebb_dtype input)
{
    EBB_LOCAL(inputs);
    EBB_LOCAL(targets);
    files f = { .folder = temp_folder_make() };
    f.weights = temp_path(&f.folder, "w");
    f.batch = temp_path(&f.folder, "b");
    f.out = temp_path(&f.folder, "g");
    int32_t labels[4] = { 0, 3, -1, 1 };
    ebb_model *model = NULL;
    check_ok(ebb_model_new(&model, ctx, model_json, EBB_F32, 1));
    check_ok(ebb_model_save(model, f.weights));
    ebb_model_free(model);
    check_ok(ebb_uniform(&inputs, ctx, input, 2, (int64_t[]){ 4, 12 }, 0, 1));
    check_ok(ebb_from_data(&targets, ctx, EBB_I32, 1, (int64_t[]){ 4 }, labels));
    ebb_named_tensor batch[2] = { { "inputs", inputs }, { "targets", targets } };
    check_ok(ebb_safetensors_save(f.batch, batch, 2));
    return f;
}

#define MLP "{\"type\":\"mlp\",\"input\":12,\"hidden\":[16,8],\"output\":4}"

Test(grads, writes_a_gradient_for_each_parameter_that_wants_one)
{
    with_context(ctx)
    {
        files f = make_files(ctx, MLP, EBB_F64);
        ebb_config *config = config_of(SMALL_MLP, "model.frozen=[\"layers.0.*\"]");
        ebb_train_options options = default_options();
        double loss = 0;
        size_t peak = 0;
        check_ok(ebb_grads(&loss, &peak, config, &options, f.weights, f.batch, f.out));
        cr_assert(loss > 0 && peak > 0);
        ebb_safetensors *file = NULL;
        check_ok(ebb_safetensors_open(&file, f.out));
        cr_assert_eq(ebb_safetensors_count(file), 4);
        cr_assert(ebb_safetensors_find(file, "layers.0.weight") < 0 &&
                  ebb_safetensors_find(file, "layers.2.bias") >= 0);
        ebb_safetensors_close(file);
        ebb_config_free(config);
        temp_folder_remove(&f.folder);
    }
}

Test(grads, files_that_do_not_fit_are_refused)
{
    with_context(ctx)
    {
        files f = make_files(ctx, MLP, EBB_F32);
        ebb_config *config = config_of(SMALL_GPT, ""),
                   *wide = config_of(SMALL_MLP, "train.precision=f64");
        ebb_config *right = config_of(SMALL_MLP, "");
        ebb_train_options options = default_options();
        double loss = 0;
        size_t peak = 0;
        check_fails(ebb_grads(&loss, &peak, config, &options, f.weights, f.batch, f.out),
                    EBB_EFORMAT);
        check_fails(ebb_grads(&loss, &peak, wide, &options, f.weights, f.batch, f.out),
                    EBB_EFORMAT);
        check_fails(ebb_grads(&loss, &peak, right, &options, f.weights, f.weights, f.out),
                    EBB_EFORMAT);
        check_message("inputs");
        check_fails(ebb_grads(&loss, &peak, right, &options, "/no/such", f.batch, f.out), EBB_EIO);
        options.device = "dry:cpu";
        check_fails(ebb_grads(&loss, &peak, right, &options, f.weights, f.batch, f.out),
                    EBB_EUNSUPPORTED);
        ebb_config_free(config);
        ebb_config_free(wide);
        ebb_config_free(right);
        temp_folder_remove(&f.folder);
    }
}

Test(grads, an_output_that_is_an_input_is_refused_under_any_name)
{
    with_context(ctx)
    {
        files f = make_files(ctx, MLP, EBB_F32);
        ebb_config *config = config_of(SMALL_MLP, "");
        ebb_train_options options = default_options();
        double loss = 0;
        size_t peak = 0, before = 0, after = 0;
        char *weights = read_text(f.weights, &before);
        check_fails(ebb_grads(&loss, &peak, config, &options, f.weights, f.batch, f.weights),
                    EBB_EINVAL);
        check_message("weights");
        check_fails(ebb_grads(&loss, &peak, config, &options, f.weights, f.batch, f.batch),
                    EBB_EINVAL);
        check_message("batch");
        cr_assert_eq(symlink(f.weights, f.out), 0);
        check_fails(ebb_grads(&loss, &peak, config, &options, f.weights, f.batch, f.out),
                    EBB_EINVAL);
        char *still = read_text(f.weights, &after);
        cr_assert(before == after && memcmp(weights, still, before) == 0);
        free(weights);
        free(still);
        ebb_config_free(config);
        temp_folder_remove(&f.folder);
    }
}

Test(grads, a_loss_that_is_not_finite_is_an_error)
{
    with_context(ctx)
    {
        EBB_LOCAL(inputs);
        EBB_LOCAL(targets);
        files f = make_files(ctx, MLP, EBB_F32);
        ebb_config *config = config_of(SMALL_MLP, "");
        ebb_train_options options = default_options();
        double loss = 0;
        size_t peak = 0;
        int32_t label = 1;
        check_ok(ebb_full(&inputs, ctx, EBB_F32, 2, (int64_t[]){ 1, 12 }, NAN));
        check_ok(ebb_from_data(&targets, ctx, EBB_I32, 1, (int64_t[]){ 1 }, &label));
        ebb_named_tensor batch[2] = { { "inputs", inputs }, { "targets", targets } };
        check_ok(ebb_safetensors_save(f.batch, batch, 2));
        check_fails(ebb_grads(&loss, &peak, config, &options, f.weights, f.batch, f.out),
                    EBB_ESTATE);
        check_message("the loss is");
        cr_assert(access(f.out, F_OK) != 0);
        ebb_config_free(config);
        temp_folder_remove(&f.folder);
    }
}
