/* What is kept from step to step should be the small thing that is used later,
 * not the large thing that it was computed from.
 *
 * In PyTorch:
 *     seen.append(batch)            # raw inputs: large, and needed no more
 *     seen.append(net(batch).detach())  # features: what the index is made of */
#include "lesson.h"

enum { STEPS = 16, PIXELS = 4096, FEATURES = 64, BATCH = 64 };
typedef enum what { RAW, DETACHED, ATTACHED } what;
typedef struct index_list { ebb_tensor *entries[STEPS]; } index_list;

static void clear(index_list *list)
{
    for (int i = 0; i < STEPS; i++) ebb_drop(&list->entries[i]);
}

enum { MADE_AT = __LINE__ + 6 };
static ebb_status collect(ebb_context *ctx, ebb_tensor *net, index_list *list, what kept)
{
    EBB_TRY(watch_begin(ctx));
    for (int i = 0; i < STEPS; i++) {
        EBB_LOCAL(batch); EBB_LOCAL(feature);
        EBB_TRY(ebb_normal(&batch, ctx, EBB_F32, EBB_SHAPE(BATCH, PIXELS), 0, 1));
        EBB_TRY(ebb_linear(&feature, batch, net, NULL));
        if (kept == DETACHED) EBB_TRY(ebb_detach(&feature, feature));
        ebb_bind(&list->entries[i], kept == RAW ? batch : feature);
        EBB_TRY(ebb_tensor_set_name(list->entries[i], "entry of list")); /* the local names go now */
        step_ends();
    }
    return EBB_OK;
}

LESSON(features, "Keep features, not the raw inputs that they come from")
{
    index_list list __attribute__((cleanup(clear))) = { { NULL } };
    NAME(net);
    STEP(parameter(&net, ctx, FEATURES, PIXELS));
    const size_t before = allocated(ctx);

    STEP(collect(ctx, net, &list, RAW));
    const size_t raw = allocated(ctx) - before;
    LEAK(watch_report());
    CHECK(raw == STEPS * BATCH * PIXELS * 4 && watch_report()->graph_bytes == 0, "Raw inputs: %s after %d steps. It "
          "is no graph that grows (%s of it is),", size(raw), STEPS, size(watch_report()->graph_bytes));
    CHECK(watch_names(__FILE__, MADE_AT, "handle 'entry of list'"), "and still the watch names the line that made "
          "them, %d, and who holds them: entries of the list.", MADE_AT);
    DO(clear(&list));

    STEP(collect(ctx, net, &list, DETACHED));
    const size_t features = allocated(ctx) - before;
    CHECK(features == STEPS * BATCH * FEATURES * 4, "Features: %s, 1/%zu of it.", size(features),
          raw / features);
    CHECK(ebb_live_nodes(ctx) == 0, "Detached they hold %zu nodes.", ebb_live_nodes(ctx));
    DO(clear(&list));

    STEP(collect(ctx, net, &list, ATTACHED));
    CHECK(allocated(ctx) - before == raw + features && ebb_live_nodes(ctx) == STEPS, "Without detach() each keeps its "
          "batch all the same, in its graph: %s.", size(allocated(ctx) - before));
    return EBB_OK;
}
