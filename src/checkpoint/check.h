/* checkpoint/check.h: is what a recompute made what forward made? */
#ifndef EBB_CHECKPOINT_CHECK_H
#define EBB_CHECKPOINT_CHECK_H

#include "checkpoint/segment.h"

/* Of a storage's bytes, never 0; 0 on a dry device, or where the context does not check. */
uint64_t ebb__check_hash(const ebb_storage *storage);
/* The entry's op still gives the shapes and dtypes that it gave in forward.  Errors: ESTATE, naming
 * segment, op, output, both shapes; what infer() says. */
EBB_NODISCARD ebb_status ebb__check_shapes(const ebb__segment *segment, const ebb__entry *entry);
/* `found` for output `out` of the entry is what `slot` remembers.  Errors: ESTATE. */
EBB_NODISCARD ebb_status ebb__check_bytes(const ebb__segment *segment, const ebb__entry *entry, int out,
                                          const ebb__slot *slot, uint64_t found);

#endif
