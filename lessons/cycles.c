/* A hook's closure that holds a result of the tensor it hangs on makes a cycle:
 * each keeps the other, and no count reaches 0.  Only a collector that knows what
 * the closure holds can free it, by taking references away until one was the last.
 *
 * In PyTorch:
 *     h = torch.tanh(w)
 *     w.register_hook(lambda g: g + h)   # w -> hook -> h -> graph -> w
 *     del w, h                      # frees nothing
 *     gc.collect()                  # frees it where gc can see every link */
#include "lesson.h"

typedef struct closure { ebb_tensor *captured; } closure;

static ebb_status add_captured(void *user, ebb_tensor *leaf, ebb_tensor **grad)
{
    (void)leaf;
    return ebb_add(grad, *grad, ((closure *)user)->captured);
}
static void visit(void *user, ebb_visitor *v) { ebb_visit(v, ((closure *)user)->captured); }
static void release(void *user) { ebb_drop(&((closure *)user)->captured); }

LESSON(cycles, "A reference cycle is freed by the collector only")
{
    static closure seen;
    const ebb_hook hook = { .user = &seen, .on_grad = add_captured, .visit = visit, .free = release };
    NAME(w);
    NAME(h);
    STEP(parameter(&w, ctx, 512, 512));
    STEP(ebb_tanh(&h, w));
    STEP(ebb_hook_add(w, &hook, NULL));
    DO(ebb_bind(&seen.captured, h));
    size_t freed = 0;
    STEP(ebb_cycles_free(&freed, ctx));
    CHECK(freed == 0, "While a name reaches it, it is no garbage.");

    DO(ebb_drop(&h));
    const uint64_t w_bytes = bytes_of(w);
    DO(ebb_drop(&w));
    CHECK(allocated(ctx) == 2 * MiB, "No name is left, and %s are alive:", size(allocated(ctx)));
    WHY(w_bytes);
    size_t cyclic = 0;
    STEP(ebb_cycles_count(&cyclic, ctx));
    CHECK(cyclic == 2, "%zu tensors hold one another and nothing else does.", cyclic);

    STEP(ebb_cycles_free(&freed, ctx)); /* ebb_collect(), which says when it has no memory to look with */
    CHECK(freed == 2 && allocated(ctx) == 0, "The collector removed the hook. That dropped h, h's node "
          "dropped w, and counting did the rest: %s.", size(allocated(ctx)));

    STEP(parameter(&w, ctx, 512, 512));
    STEP(ebb_tanh(&h, w));
    int id = 0;
    STEP(ebb_hook_add(w, &hook, &id));
    DO(ebb_bind(&seen.captured, h));
    DO(ebb_hook_remove(w, id));
    DO(ebb_drop(&h));
    DO(ebb_drop(&w));
    CHECK(allocated(ctx) == 0, "Or take the hook off when it is done: no cycle, no collector.");
    return EBB_OK;
}
