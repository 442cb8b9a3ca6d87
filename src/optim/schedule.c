/* optim/schedule.c: the learning rate of each step. */
#include <math.h>
#include <string.h>

#include "core/json.h"
#include "optim/optim.h"

static const char *const kinds[] = { [EBB_SCHED_CONSTANT] = "constant",
                                     [EBB_SCHED_LINEAR] = "linear",
                                     [EBB_SCHED_COSINE] = "cosine", NULL };

typedef struct schedule_config { int kind; int64_t warmup; double min_lr; } schedule_config;

#define FIELD(name, member, ...) \
    { .key = name, .offset = offsetof(schedule_config, member), __VA_ARGS__ }
const ebb__field ebb__schedule_fields[] = {
    FIELD("type", kind, .kind = EBB__CHOICE, .choices = kinds),
    FIELD("warmup", warmup, .kind = EBB__INT, .min = 0, .max = 1e12),
    FIELD("min_lr", min_lr, .kind = EBB__NUMBER, .min = 0, .max = 1e6),
};
#undef FIELD
const int ebb__n_schedule_fields = sizeof ebb__schedule_fields / sizeof ebb__schedule_fields[0];

ebb_status ebb_schedule_parse(ebb_schedule *out, const char *json, const char *path)
{
    schedule_config config = { .kind = EBB_SCHED_CONSTANT };
    cJSON *object = NULL;
    ebb_status st = ebb__json_parse(&object, json, strlen(json), path);
    if (st != EBB_OK) return st;
    st = ebb__json_read(&config, object, path, ebb__schedule_fields, ebb__n_schedule_fields);
    cJSON_Delete(object);
    if (st != EBB_OK) return st;
    *out = (ebb_schedule){ .kind = config.kind, .warmup = config.warmup, .min_lr = config.min_lr };
    return EBB_OK;
}

/* How far the decay is, in [0, 1]: 0 at the first step after the warm-up, 1 at the last step.
 * Where those are one step, it is 0: a single step at the lowest rate would be of no use. */
static double decayed(const ebb_schedule *s, int64_t step)
{
    int64_t length = s->steps - 1 - s->warmup;
    if (length <= 0) return step >= s->steps ? 1 : 0;
    double done = (double)(step - s->warmup) / (double)length;
    return done < 1 ? done : 1;
}

double ebb_schedule_lr(const ebb_schedule *schedule, int64_t step)
{
    const ebb_schedule *s = schedule;
    if (step < 0) step = 0;
    if (step < s->warmup) return s->lr * (double)(step + 1) / (double)s->warmup;
    if (s->kind == EBB_SCHED_CONSTANT) return s->lr;
    double left = 1 - decayed(s, step);
    if (s->kind == EBB_SCHED_COSINE) left = 0.5 * (1 - cos(3.14159265358979323846 * left));
    return s->min_lr + (s->lr - s->min_lr) * left;
}
