/* Any plan for any model, not only good ones: the same bits as keeping everything, and the bytes of its dry run. */
#include <ebb/plan.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/plan.h"
#include "draw.h"
#include "drawn_config.h"
#include "support/cases.h"
#include "support/training.h"
#include "train/planner.h"

/* Some stretches of [first, last] as segments, with others inside.  `inside` a segment: not all of it as one. */
static void draw_segments(ebb_plan *plan, draw *d, int first, int last, bool inside)
{
    for (int at = first, end; at <= last; at = end + 1) {
        end = at + draw_int(d, last - at + 1);
        bool whole = inside && at == first && end == last;
        if (whole || draw_int(d, 3) == 0) continue;
        plan->segments[plan->n_segments++] = (ebb_block_range){ at, end };
        draw_segments(plan, d, at, end, true);
    }
}

static bool in_segment(const ebb_plan *plan, int block)
{
    for (int i = 0; i < plan->n_segments; i++)
        if (plan->segments[i].first <= block && block <= plan->segments[i].last) return true;
    return false;
}

static ebb_plan *draw_plan(draw *d, int blocks)
{
    static const char *const ops[] = { "gelu", "relu", "silu", "tanh", "sigmoid", "swiglu", "layernorm", "rmsnorm",
                                       "linear", "attention_packed", "add", "dropout", "rope", "cast" };
    enum { N_OPS = sizeof(ops) / sizeof(ops[0]) };
    ebb_plan *plan = NULL;
    check_ok(ebb__plan_new(&plan, blocks));
    draw_segments(plan, d, 0, blocks - 1, false);
    for (int b = 0; b < blocks; b++) {
        for (int k = 0; k < N_OPS; k++)
            if (draw_chance(d, 0.3)) plan->ops[b] |= ebb__plan_op(plan, ebb_op_find(ops[k]));
        plan->offload[b] = draw_chance(d, 0.5) && !in_segment(plan, b);
    }
    return plan;
}

static const char exact[] = "memory.compress=none"; /* rounding is not what is asked of plans */

/* Under the plan, by way of its file. */
static ebb_train_result train_under(const char *text, const ebb_plan *plan, int threads)
{
    temp_folder folder = temp_folder_make();
    char set[320];
    check_ok(ebb_plan_save(plan, temp_path(&folder, "plan.json")));
    snprintf(set, sizeof(set), "memory.checkpoint=plan:%s", temp_path(&folder, "plan.json"));
    ebb_config *config = config_of(text, (const char *const[4]){ set, exact });
    ebb_train_result result = train_config(config, threads, NULL);
    ebb_config_free(config);
    temp_folder_remove(&folder);
    return result;
}

static void check_drawn(uint64_t seed)
{
    static const char *const nothing[4] = { "memory.checkpoint=none", "memory.recompute=[]", "memory.offload=none", exact };
    drawn_config drawn;
    drawn_config_make(&drawn, seed);
    draw d = { ~seed };
    ebb_train_options options = train_options(drawn.threads);
    ebb_config *config = config_of(drawn.json, (const char *const[4]){ exact });
    ebb_config *plain = config_of(drawn.json, nothing);
    ebb_train_result none = train_config(plain, drawn.threads, NULL);
    for (int i = 0; i < 3; i++) {
        ebb_plan *plan = draw_plan(&d, config->model.blocks);
        check_ok(ebb__plan_predict(plan, config, &options));
        ebb_plan_info info = ebb_plan_info_get(plan);
        ebb_train_result r = train_under(drawn.json, plan, drawn.threads);
        cr_assert_str_eq(r.gradients_sha256, none.gradients_sha256, "seed %llu: %s", (unsigned long long)seed, drawn.json);
        cr_assert(r.loss_first == none.loss_first && r.loss_last == none.loss_last, "seed %llu", (unsigned long long)seed);
        cr_assert_eq(r.memory.peak_allocated_bytes, info.peak_allocated_bytes, "seed %llu", (unsigned long long)seed);
        cr_assert_eq(r.memory.peak_reserved_bytes, info.peak_reserved_bytes, "seed %llu", (unsigned long long)seed);
        cr_assert_eq(r.host_memory.peak_reserved_bytes, info.peak_host_bytes, "seed %llu", (unsigned long long)seed);
        ebb_plan_free(plan);
    }
    ebb_config_free(config);
    ebb_config_free(plain);
}

enum { SEEDS = CASES(40, 10) };

Test(drawn_plans, give_the_same_bits_in_the_bytes_predicted)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) check_drawn(seed);
    check_no_live_blocks();
}
