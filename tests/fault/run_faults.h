/* fault/run_faults.h: whole runs with a folder, in which one allocation fails. */
#ifndef EBB_TESTS_RUN_FAULTS_H
#define EBB_TESTS_RUN_FAULTS_H

#include <stdint.h>

/* Allocations first, first + stride, ... of a run fail, until one is not reached.  Each time: ENOMEM,
 * no live block, and only whole files in the run's folder. */
void run_faults(uint64_t first, uint64_t stride);

#endif
