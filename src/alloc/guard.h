/* alloc/guard.h: makes wrong uses of the pool's memory visible, where the host can touch it.
 *
 *   checks >= 2: free memory holds 0xFF bytes (NaN in every float type); the bytes between what
 *                was asked for and the block's end hold a pattern that is verified at release.
 *   checks >= 3: a block that is handed out must still hold 0xFF everywhere: nobody wrote to it
 *                after its release.
 *   AddressSanitizer builds: free blocks and tails are poisoned at any level.
 *
 * The layout never depends on any of it.  Call with the lock held, and only for watched pools. */
#ifndef EBB_ALLOC_GUARD_H
#define EBB_ALLOC_GUARD_H

#include "alloc/pool_state.h"

/* Whether a pool with this provider and level needs the calls below. */
bool ebb__guard_is_needed(const ebb__provider *provider, int checks);

void ebb__guard_memory_new(const ebb__pool *pool, unsigned char *base, size_t bytes);
void ebb__guard_memory_end(unsigned char *base, size_t bytes);
void ebb__guard_take(const ebb__pool *pool, const ebb__block *block);
void ebb__guard_release(const ebb__pool *pool, const ebb__block *block); /* asserts the tail */
void ebb__guard_free(const ebb__pool *pool, const ebb__block *block); /* no stream reads it now */

#endif
