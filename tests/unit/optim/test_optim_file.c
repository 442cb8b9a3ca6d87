/* State in files: by name, all or nothing. */
#include "optim_support.h"

#include <stdlib.h>

/* Two parameters and an AdamW over them; gradients 1 and 2 give them different moments. */
typedef struct pair { ebb_tensor *a, *b; ebb_optim *optim; } pair;

static ebb_optim *new_optim(ebb_context *ctx, ebb_named_tensor *params, int n)
{
    ebb_optim *optim = NULL;
    ebb_optim_options options = adamw_options(0.1);
    check_ok(ebb_optim_new(&optim, ctx, params, n, &options));
    return optim;
}

static void pair_make(pair *p, ebb_context *ctx, bool reversed)
{
    *p = (pair){ 0 };
    make_param(&p->a, ctx, EBB_F32, 2, (double[]){ 0.5, -0.5 });
    make_param(&p->b, ctx, EBB_F32, 2, (double[]){ 0.5, -0.5 });
    ebb_named_tensor params[] = { { "A", p->a }, { "B", p->b }, { "A", p->a } };
    p->optim = new_optim(ctx, params + (reversed ? 1 : 0), 2);
}

static void pair_step(pair *p)
{
    give_grad(p->a, (double[]){ 1, 2 });
    give_grad(p->b, (double[]){ -3, 0.25 });
    check_ok(ebb_optim_step(p->optim, 0.1));
}

static void pair_free(pair *p)
{
    ebb_optim_free(p->optim);
    ebb_drop(&p->a);
    ebb_drop(&p->b);
}

/* B53 */
Test(optim_file, state_is_matched_by_name_not_by_position)
{
    temp_folder folder = temp_folder_make();
    with_context(ctx) {
        pair first, second;
        pair_make(&first, ctx, false);
        for (int i = 0; i < 3; i++) pair_step(&first);
        check_ok(ebb_optim_save(first.optim, temp_path(&folder, "state")));
        pair_make(&second, ctx, true);
        EBB_WITH_MODE(EBB_NO_GRAD);
        check_ok(ebb_copy_into(second.a, first.a));
        check_ok(ebb_copy_into(second.b, first.b));
        check_ok(ebb_optim_load(second.optim, temp_path(&folder, "state")));
        cr_assert(ebb_optim_steps(second.optim) == 3);
        pair_step(&first);
        pair_step(&second);
        for (int i = 0; i < 2; i++)
            cr_assert(value_at(first.a, i) == value_at(second.a, i) &&
                      value_at(first.b, i) == value_at(second.b, i));
        pair_free(&first);
        pair_free(&second);
    }
    temp_folder_remove(&folder);
}

Test(optim_file, the_file_holds_named_moments_and_the_step)
{
    temp_folder folder = temp_folder_make();
    with_context(ctx) {
        pair p;
        ebb_safetensors *file = NULL;
        int64_t step;
        float m[2];
        pair_make(&p, ctx, false);
        pair_step(&p);
        pair_step(&p);
        check_ok(ebb_optim_save(p.optim, temp_path(&folder, "state")));
        check_ok(ebb_safetensors_open(&file, temp_path(&folder, "state")));
        cr_assert(ebb_safetensors_count(file) == 5);
        check_ok(ebb_safetensors_read_data(&step, 8, file,
                                           ebb_safetensors_find(file, "optimizer.step")));
        cr_assert(step == 2);
        check_ok(ebb_safetensors_read_data(m, 8, file, ebb_safetensors_find(file, "A.m")));
        cr_assert(fabs((double)m[0] - 0.19) < 1e-6 && fabs((double)m[1] - 0.38) < 1e-6);
        cr_assert(ebb_safetensors_find(file, "B.v") >= 0);
        ebb_safetensors_close(file);
        pair_free(&p);
    }
    temp_folder_remove(&folder);
}

/* What loading `path` into the pair's optimizer says; nothing may change. */
static void check_refused(pair *p, const char *path, const char *word)
{
    check_fails(ebb_optim_load(p->optim, path), EBB_EFORMAT);
    check_message(word);
    cr_assert(ebb_optim_steps(p->optim) == 0);
}

Test(optim_file, missing_extra_and_misshapen_state_is_refused_by_name)
{
    temp_folder folder = temp_folder_make();
    with_context(ctx) {
        pair p;
        EBB_LOCAL(c);
        EBB_LOCAL(wide);
        EBB_LOCAL(step);
        pair_make(&p, ctx, false);
        make_param(&c, ctx, EBB_F32, 2, (double[]){ 0, 0 });
        make_param(&wide, ctx, EBB_F64, 2, (double[]){ 0, 0 });
        const char *path = temp_path(&folder, "state");

        ebb_optim *one = new_optim(ctx, (ebb_named_tensor[]){ { "A", p.a } }, 1);
        check_ok(ebb_optim_save(one, path));
        check_refused(&p, path, "'B.m' is missing");
        ebb_optim_free(one);

        ebb_optim *three =
            new_optim(ctx, (ebb_named_tensor[]){ { "A", p.a }, { "B", p.b }, { "C", c } }, 3);
        check_ok(ebb_optim_save(three, path));
        check_refused(&p, path, "'C.m' is in the file");
        ebb_optim_free(three);

        ebb_optim *other = new_optim(ctx, (ebb_named_tensor[]){ { "A", p.a }, { "B", wide } }, 2);
        check_ok(ebb_optim_save(other, path));
        check_refused(&p, path, "'B.m' is F64");
        ebb_optim_free(other);

        ebb_optim_options sgd = sgd_options(0.1);
        ebb_optim *plain = NULL;
        check_ok(ebb_optim_new(&plain, ctx, (ebb_named_tensor[]){ { "A", p.a }, { "B", p.b } }, 2,
                               &sgd));
        check_ok(ebb_optim_save(plain, path));
        check_refused(&p, path, "'A.m' is missing");
        ebb_optim_free(plain);

        check_ok(ebb_full(&step, ctx, EBB_I64, 0, NULL, -1));
        check_ok(ebb_safetensors_save(path,
                                      (ebb_named_tensor[]){ { "optimizer.step", step },
                                                            { "A.m", p.a },
                                                            { "A.v", p.a },
                                                            { "B.m", p.b },
                                                            { "B.v", p.b } },
                                      5));
        check_refused(&p, path, "-1");
        write_text(path, "{}");
        check_refused(&p, path, "state");
        check_fails(ebb_optim_load(p.optim, temp_path(&folder, "none")), EBB_EIO);
        pair_free(&p);
    }
    temp_folder_remove(&folder);
}

Test(optim_file, every_failed_allocation_of_save_and_load_leaves_all_as_it_was)
{
    temp_folder folder = temp_folder_make();
    with_context(ctx) {
        pair from, to;
        const char *path = temp_path(&folder, "state");
        uint64_t n = 0, n_load = 0;
        pair_make(&from, ctx, false);
        pair_make(&to, ctx, false);
        pair_step(&from);
        for (bool fired = true; fired;) {
            write_text(path, "old");
            int64_t live = ebb_host_live_blocks();
            ebb_fault_arm(++n);
            ebb_status st = ebb_optim_save(from.optim, path);
            fired = ebb_fault_fired();
            ebb_fault_arm(0);
            cr_assert(st == (fired ? EBB_ENOMEM : EBB_OK) && ebb_host_live_blocks() == live,
                      "save, allocation %llu", (unsigned long long)n);
            char *now = read_text(path, NULL);
            cr_assert(!strcmp(now, "old") == fired);
            free(now);
        }
        for (bool fired = true; fired;) {
            int64_t live = ebb_host_live_blocks();
            ebb_fault_arm(++n_load);
            ebb_status st = ebb_optim_load(to.optim, path);
            fired = ebb_fault_fired();
            ebb_fault_arm(0);
            cr_assert(st == (fired ? EBB_ENOMEM : EBB_OK) && ebb_host_live_blocks() == live,
                      "load, allocation %llu", (unsigned long long)n_load);
            cr_assert(ebb_optim_steps(to.optim) == (fired ? 0 : 1));
        }
        cr_assert(n > 8 && n_load > 12);
        pair_free(&from);
        pair_free(&to);
    }
    temp_folder_remove(&folder);
}

Test(optim_file, saving_and_loading_ask_the_pool_for_nothing)
{
    temp_folder folder = temp_folder_make();
    with_context(ctx) {
        pair p;
        ebb_memory_stats before, after;
        pair_make(&p, ctx, false);
        pair_step(&p);
        ebb_memory_stats_get(ctx, &before);
        check_ok(ebb_optim_save(p.optim, temp_path(&folder, "state")));
        check_ok(ebb_optim_load(p.optim, temp_path(&folder, "state")));
        ebb_memory_stats_get(ctx, &after);
        cr_assert(after.n_allocs == before.n_allocs);
        pair_free(&p);
    }
    temp_folder_remove(&folder);
}

Test(optim_file, a_dry_optimizer_writes_no_file)
{
    temp_folder folder = temp_folder_make();
    with_device(ctx, "dry:cpu") {
        EBB_LOCAL(w);
        check_ok(ebb_zeros(&w, ctx, EBB_F32, 1, (int64_t[]){ 4 }));
        check_ok(ebb_set_requires_grad(w, true));
        ebb_optim *optim = new_optim(ctx, &(ebb_named_tensor){ "w", w }, 1);
        check_ok(ebb_optim_save(optim, temp_path(&folder, "state")));
        check_fails(ebb_optim_load(optim, temp_path(&folder, "state")), EBB_EIO);
        ebb_optim_free(optim);
    }
    temp_folder_remove(&folder);
}
