/* ops/autocast.h: the step of a dispatch that casts inputs. */
#ifndef EBB_OPS_AUTOCAST_H
#define EBB_OPS_AUTOCAST_H

#include <ebb/op.h>

/* Rebinds the inputs that autocast wants in another dtype to casts of them.  Nothing where it is off. */
EBB_NODISCARD ebb_status ebb__autocast_inputs(const ebb_op *op, ebb_tensor *ins[], int n_ins);

#endif
