/* Learning rates against their formulas. */
#include "optim_support.h"

static const double pi = 3.14159265358979323846;

static void check_lr(const ebb_schedule *s, int64_t step, double expected)
{
    double lr = ebb_schedule_lr(s, step);
    cr_assert(fabs(lr - expected) < 1e-15, "kind %d, step %d: %.17g, expected %.17g", (int)s->kind,
              (int)step, lr, expected);
}

Test(schedule, warmup_rises_linearly_and_reaches_lr_at_its_last_step)
{
    for (int kind = EBB_SCHED_CONSTANT; kind <= EBB_SCHED_COSINE; kind++) {
        ebb_schedule s = { .warmup = 4, .steps = 20, .lr = 0.8, .min_lr = 0.1 };
        s.kind = kind;
        for (int step = 0; step < 4; step++) check_lr(&s, step, 0.2 * (step + 1));
        check_lr(&s, 4, 0.8);
        check_lr(&s, -3, 0.2);
    }
}

Test(schedule, constant_stays)
{
    ebb_schedule s = { .kind = EBB_SCHED_CONSTANT, .steps = 10, .lr = 0.3, .min_lr = 0.1 };
    for (int step = 0; step < 12; step++) check_lr(&s, step, 0.3);
}

Test(schedule, linear_falls_to_min_lr_at_the_last_step_and_stays_there)
{
    ebb_schedule s = { .kind = EBB_SCHED_LINEAR, .warmup = 2, .steps = 13, .lr = 1, .min_lr = 0.5 };
    for (int step = 2; step < 13; step++) check_lr(&s, step, 1 - 0.05 * (step - 2));
    check_lr(&s, 12, 0.5);
    check_lr(&s, 13, 0.5);
    check_lr(&s, 1000000, 0.5);
}

Test(schedule, cosine_falls_to_min_lr_at_the_last_step_and_stays_there)
{
    ebb_schedule s = { .kind = EBB_SCHED_COSINE, .warmup = 0, .steps = 9, .lr = 1, .min_lr = 0.2 };
    for (int step = 0; step < 9; step++)
        check_lr(&s, step, 0.2 + 0.8 * 0.5 * (1 + cos(pi * step / 8)));
    check_lr(&s, 0, 1);
    check_lr(&s, 4, 0.6);
    check_lr(&s, 8, 0.2);
    check_lr(&s, 9, 0.2);
}

Test(schedule, short_runs_never_divide_by_zero)
{
    ebb_schedule s = { .kind = EBB_SCHED_COSINE, .steps = 1, .lr = 1, .min_lr = 0 };
    check_lr(&s, 0, 1);
    check_lr(&s, 1, 0);
    s.steps = 2;
    check_lr(&s, 0, 1);
    check_lr(&s, 1, 0);
    s = (ebb_schedule){ .kind = EBB_SCHED_LINEAR, .warmup = 10, .steps = 5, .lr = 1, .min_lr = 0 };
    check_lr(&s, 4, 0.5);
    check_lr(&s, 9, 1);
    s = (ebb_schedule){ .kind = EBB_SCHED_LINEAR, .warmup = 3, .steps = 4, .lr = 1, .min_lr = 0 };
    check_lr(&s, 3, 1);
}

Test(schedule, configs_are_read_and_checked)
{
    ebb_schedule s;
    check_ok(ebb_schedule_parse(&s, "{\"type\":\"cosine\",\"warmup\":20,\"min_lr\":3e-5}",
                                "train.schedule"));
    cr_assert(s.kind == EBB_SCHED_COSINE && s.warmup == 20 && s.min_lr == 3e-5);
    check_ok(ebb_schedule_parse(&s, "{}", "train.schedule"));
    cr_assert(s.kind == EBB_SCHED_CONSTANT && s.warmup == 0 && s.min_lr == 0);
    check_fails(ebb_schedule_parse(&s, "{\"type\":\"cosin\"}", "train.schedule"), EBB_EINVAL);
    check_message("train.schedule.type");
    check_fails(ebb_schedule_parse(&s, "{\"warmup\":-1}", "train.schedule"), EBB_EINVAL);
    check_fails(ebb_schedule_parse(&s, "{\"warmup\":1.5}", "train.schedule"), EBB_EINVAL);
    check_fails(ebb_schedule_parse(&s, "{\"min_lr\":-0.1}", "train.schedule"), EBB_EINVAL);
    check_fails(ebb_schedule_parse(&s, "{\"minlr\":0}", "train.schedule"), EBB_EINVAL);
    check_message("\"min_lr\"");
    check_no_live_blocks();
}
