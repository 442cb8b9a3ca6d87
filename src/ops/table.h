/* ops/table.h: the descriptors of the built-in ops, one per row of ops.def. */
#ifndef EBB_OPS_TABLE_H
#define EBB_OPS_TABLE_H

#include <ebb/op.h>

#define EBB_OP(id) extern const ebb_op ebb_op_##id;
#include "ops/ops.def"
#undef EBB_OP

#endif
