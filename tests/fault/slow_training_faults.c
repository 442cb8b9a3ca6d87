/* Every allocation of a run. */
#include "run_faults.h"
#include "support/support.h"

Test(slow_training_faults, every_allocation_of_a_run_may_fail)
{
    run_faults(1, 1);
}
