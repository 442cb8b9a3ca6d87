/* modes.c: whether calls are recorded, per thread. */
#include <ebb/autograd.h>

static _Thread_local ebb_grad_mode current = EBB_GRAD_ON;

ebb_grad_mode ebb_mode(void) { return current; }

ebb_mode_guard ebb_mode_set(ebb_grad_mode mode)
{
    ebb_mode_guard guard = { current };
    current = mode;
    return guard;
}

void ebb_mode_restore(ebb_mode_guard *guard) { current = (ebb_grad_mode)guard->previous; }
