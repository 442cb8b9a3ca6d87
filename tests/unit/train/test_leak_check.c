/* An observer that leaks while ebb_train() runs, and a watch that finds it. */
#include <ebb/leak.h>
#include <ebb/report.h>
#include <stdlib.h>

#include "train_support.h"

enum { STEPS = 24, SINCE = 8 };

typedef struct planted {
    bool leaks;
    ebb_leak_watch *watch;
    ebb_tensor *kept[STEPS];
    ebb_leak_report report;
    char *text;
    size_t bytes;
} planted;

/* Keeps a graph of its own, beside the model's. */
static ebb_status keep_a_graph(planted *p, ebb_context *ctx, int64_t step)
{
    EBB_LOCAL(w);
    EBB_LOCAL(h);
    EBB_TRY(ebb_zeros(&w, ctx, EBB_F32, EBB_SHAPE(128)));
    EBB_TRY(ebb_set_requires_grad(w, true));
    EBB_TRY(ebb_tanh(&h, w));
    EBB_TRY(ebb_tensor_set_name(h, "metric"));
    ebb_move(&p->kept[step - 1], &h);
    return EBB_OK;
}

static ebb_status on_step_begin(void *user, ebb_context *ctx, int64_t step)
{
    planted *p = user;
    if (!p->watch) EBB_TRY(ebb_leak_watch_new(&p->watch, ctx));
    return p->leaks ? keep_a_graph(p, ctx, step) : EBB_OK;
}

static ebb_status on_step_end(void *user, ebb_context *ctx, int64_t step)
{
    (void)ctx;
    (void)step;
    ebb_leak_watch_step(((planted *)user)->watch);
    return EBB_OK;
}

static ebb_status on_end(void *user, ebb_context *ctx)
{
    planted *p = user;
    (void)ctx;
    ebb_leak_report_get(&p->report, p->watch);
    FILE *file = open_memstream(&p->text, &p->bytes);
    cr_assert_not_null(file);
    ebb_leak_print(&p->report, file);
    fclose(file);
    for (int i = 0; i < STEPS; i++) ebb_drop(&p->kept[i]);
    return EBB_OK;
}

static planted watched(const char *json, const char *sets, bool leaks)
{
    planted p = { .leaks = leaks };
    ebb_observer observer = { .user = &p, .on_step_begin = on_step_begin, .on_step_end = on_step_end, .on_end = on_end };
    ebb_config *config = config_of(json, sets);
    ebb_train_options options = default_options();
    ebb_train_result result;
    options.observer = &observer;
    options.steps = STEPS;
    check_ok(ebb_train(&result, config, &options));
    ebb_config_free(config);
    ebb_leak_watch_free(p.watch);
    p.watch = NULL;
    check_no_live_blocks();
    return p;
}

static void check_clean(const char *json, const char *sets)
{
    planted p = watched(json, sets, false);
    cr_assert(!p.report.grows, "%s: %s", sets, p.text);
    cr_assert_eq(p.report.steps, STEPS);
    free(p.text);
}

Test(leak_check, training_leaves_nothing_behind)
{
    check_clean(SMALL_MLP, "");
    check_clean(SMALL_MLP, "data.prefetch=0 train.accumulate=2");
    check_clean(SMALL_GPT, "memory.checkpoint=every:1 train.eval_every=2");
    check_clean(SMALL_GPT, "memory.offload=all train.loss_chunks=2");
    check_clean(SMALL_GPT, "train.fuse_optimizer=true train.clip_norm=null memory.recompute=[\"layernorm\"]");
}

/* Without EBB_TRY() the line is unknown: the training loop's own, which calls, is not told. */
static ebb_status keep_without_a_line(void *user, ebb_context *ctx, int64_t step)
{
    planted *p = user;
    if (!p->watch && ebb_leak_watch_new(&p->watch, ctx) != EBB_OK) return EBB_ENOMEM;
    return ebb_zeros(&p->kept[step - 1], ctx, EBB_F32, EBB_SHAPE(8));
}

Test(leak_check, the_loop_is_not_told_as_the_line_of_an_observer)
{
    planted p = { 0 };
    ebb_observer observer = { .user = &p, .on_step_begin = keep_without_a_line, .on_step_end = on_step_end,
                              .on_end = on_end };
    ebb_config *config = config_of(SMALL_MLP, "");
    ebb_train_options options = default_options();
    ebb_train_result result;
    options.observer = &observer;
    options.steps = STEPS;
    check_ok(ebb_train(&result, config, &options));
    ebb_config_free(config);
    ebb_leak_watch_free(p.watch);
    cr_assert_eq(p.report.n_holders, 1);
    cr_assert(p.report.holders[0].line == 0 && strstr(p.text, "(line unknown)"), "%s", p.text);
    free(p.text);
    check_no_live_blocks();
}

Test(leak_check, an_observer_that_leaks_is_found)
{
    planted p = watched(SMALL_MLP, "", true);
    cr_assert(p.report.grows);
    cr_assert_eq(p.report.bytes_per_step, 2 * 512);
    cr_assert_eq(p.report.nodes, STEPS - SINCE);
    cr_assert_eq(p.report.since, SINCE);
    cr_assert_eq(p.report.n_holders, 2);
    for (int i = 0; i < 2; i++) {
        const ebb_leak_holder *h = &p.report.holders[i];
        cr_assert(strstr(h->file, "test_leak_check.c") != NULL, "%s", h->file);
        cr_assert(strstr(h->why, "metric") != NULL, "%s", h->why);
        cr_assert_eq(h->storages, STEPS - SINCE);
    }
    cr_assert(strstr(p.text, "leak: each step leaves 1.00 KiB behind") != NULL, "%s", p.text);
    cr_assert(strstr(p.text, "test_leak_check.c:") != NULL && strstr(p.text, "handle 'metric'") != NULL, "%s", p.text);
    free(p.text);
}

Test(config, is_read_from_text_too)
{
    ebb_config *config = NULL;
    const char *set = "train.batch=2", *wrong = "train.bach=2";
    check_ok(ebb_config_parse(&config, SMALL_MLP, &set, 1));
    char *text = ebb_config_print(config);
    cr_assert(strstr(text, "\"batch\":\t2") != NULL, "%s", text);
    free(text);
    ebb_config_free(config);
    config = NULL;
    check_fails(ebb_config_parse(&config, SMALL_MLP, &wrong, 1), EBB_EINVAL);
    check_message("did you mean \"batch\"");
    check_fails(ebb_config_parse(&config, "{", NULL, 0), EBB_EFORMAT);
    cr_assert_null(config);
    check_no_live_blocks();
}
