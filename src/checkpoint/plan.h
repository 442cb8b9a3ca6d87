/* checkpoint/plan.h: how a chain of blocks keeps what backward needs: nested segments, and per block the ops
 * whose outputs are made again, and whether what is kept waits in host memory. */
#ifndef EBB_CHECKPOINT_PLAN_H
#define EBB_CHECKPOINT_PLAN_H

#include <ebb/plan.h>

enum { EBB__MAX_PLAN_OPS = 32, EBB__MAX_RECIPES = 128, EBB__MAX_PLAN_DEPTH = 128 };

struct ebb_plan {
    int n_blocks;
    ebb_block_range *segments; /* each before those inside it; room for 2 * n_blocks */
    int n_segments;
    uint32_t *ops;             /* per block: mask over names */
    bool *offload;             /* per block: what it keeps, but for its output, goes to host memory; not in segments */
    const ebb_op *names[EBB__MAX_PLAN_OPS];
    int n_names;
    ebb_plan_info info;        /* of the dry run that confirmed it; zeros: none did */
    char config_sha256[65];    /* of the config that it is for */
};

/* No segments, no recipes, nothing offloaded.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__plan_new(ebb_plan **out, int n_blocks);
EBB_NODISCARD ebb_status ebb__plan_copy(ebb_plan **out, const ebb_plan *plan);
/* The op's bit; added where it is new.  0: no room. */
uint32_t ebb__plan_op(ebb_plan *plan, const ebb_op *op);
/* `list` and the block's own ops into ops[EBB__MAX_RECIPES]; returns how many. */
int ebb__plan_ops(const ebb_op **ops, const ebb_plan *plan, int block, const ebb_op *const *list, int n);

bool ebb__plan_same(const ebb_plan *a, const ebb_plan *b); /* info not looked at */
/* No segment holds a block that is offloaded: it makes its tensors again.  Errors: EINVAL. */
EBB_NODISCARD ebb_status ebb__plan_check_offload(const ebb_plan *plan, const char *what);

/* Ranges nest properly and come outer first, within `blocks`; `what` starts messages.  Errors: EINVAL. */
EBB_NODISCARD ebb_status ebb__ranges_check(const ebb_block_range *ranges, int n, int blocks, const char *what);

#endif
