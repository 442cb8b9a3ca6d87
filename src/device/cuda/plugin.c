/* plugin.c: the plugin's one entry: the table of functions, and the table of ops out of ops.def. */
#include "device/cuda/table.h"

/* ---- ops ---------------------------------------------------------------------------------------- */

/* What every kernel needs before it: the calling thread may be new to CUDA, and messages name the op. */
static ebb_status run(void *self, const ebb_call *call, const ebb__accel_op *op, ebb__accel_kernel *kernel)
{
    EBB__CUDA_ENTER(device, self);
    const char *outer = device->shared.op;
    device->shared.op = op->name;
    ebb_status st = kernel(self, call);
    device->shared.op = outer;
    return st;
}

#define EBB_OP(id)                                                                \
    static ebb_status forward_##id(void *self, const ebb_call *call)              \
    {                                                                             \
        return run(self, call, &ebb_cuda_##id, ebb_cuda_##id.forward);            \
    }                                                                             \
    static ebb_status backward_##id(void *self, const ebb_call *call)             \
    {                                                                             \
        return run(self, call, &ebb_cuda_##id, ebb_cuda_##id.backward);           \
    }
#include "ops/ops.def"
#undef EBB_OP

static const struct { const ebb__accel_op *op; ebb__accel_kernel *forward, *backward; } rows[] = {
#define EBB_OP(id) { &ebb_cuda_##id, forward_##id, backward_##id },
#include "ops/ops.def"
#undef EBB_OP
};
enum { N_OPS = sizeof rows / sizeof *rows };

/* What the library gets; C cannot fill it from other files' constants before the program runs. */
static ebb__accel_op ops[N_OPS];
static pthread_once_t ops_once = PTHREAD_ONCE_INIT;

static void fill_ops(void)
{
    for (int i = 0; i < N_OPS; i++) {
        ops[i].name = rows[i].op->name;
        ops[i].forward = rows[i].op->forward ? rows[i].forward : NULL;
        ops[i].backward = rows[i].op->backward ? rows[i].backward : NULL;
    }
}

const char *ebb__cuda_op_name(unsigned index) { return index < N_OPS ? rows[index].op->name : "an op"; }

/* ---- the table ------------------------------------------------------------------------------------ */

static const ebb__accel table = {
    .abi = EBB__ACCEL_ABI,
    .name = "cuda",
    .count = ebb__cuda_count,
    .open = ebb__cuda_open,
    .close = ebb__cuda_close,
    .facts = ebb__cuda_facts,
    .lend = ebb__cuda_lend,
    .provider = ebb__cuda_provider,
    .pinned = ebb__cuda_pinned,
    .stream_open = ebb__cuda_stream_open,
    .stream_close = ebb__cuda_stream_close,
    .record = ebb__cuda_record,
    .is_done = ebb__cuda_is_done,
    .wait = ebb__cuda_wait,
    .stream_wait = ebb__cuda_stream_wait,
    .host_call = ebb__cuda_host_call,
    .copy = ebb__cuda_copy,
    .synchronize = ebb__cuda_synchronize,
    .fill = ebb__cuda_table_fill,
    .arg_copy = ebb__cuda_table_copy,
    .arg_add = ebb__cuda_table_add,
    .update = ebb__cuda_table_update,
    .sum_squares = ebb__cuda_table_sum_squares,
    .scale = ebb__cuda_table_scale,
    .clip = ebb__cuda_table_clip,
    .ops = ops,
    .n_ops = N_OPS,
    .capture_begin = ebb__cuda_capture_begin,
    .capture_end = ebb__cuda_capture_end,
    .graph_launch = ebb__cuda_graph_launch,
    .graph_free = ebb__cuda_graph_free,
};

EBB_API const ebb__accel *ebb_accel_plugin(int abi);

/* The library compares the ABI numbers itself. */
EBB_API const ebb__accel *ebb_accel_plugin(int abi)
{
    (void)abi;
    pthread_once(&ops_once, fill_ops);
    return &table;
}
