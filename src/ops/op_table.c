/* ops/op_table.c: the table of built-in ops, made from ops.def. */
#include "ops/table.h"

#include <string.h>

static const ebb_op *const table[] = {
#define EBB_OP(id) &ebb_op_##id,
#include "ops/ops.def"
#undef EBB_OP
};

int ebb_op_count(void) { return (int)(sizeof table / sizeof table[0]); }

const ebb_op *ebb_op_at(int index)
{
    return index >= 0 && index < ebb_op_count() ? table[index] : NULL;
}

const ebb_op *ebb_op_find(const char *name)
{
    for (int i = 0; name && i < ebb_op_count(); i++) {
        if (strcmp(table[i]->name, name) == 0) return table[i];
    }
    return NULL;
}
