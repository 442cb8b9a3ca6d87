/* core/mem.h: host memory for bookkeeping, every allocation of which can be made to fail.
 * Tensor bytes come from the pool (alloc/pool.h), never from here. */
#ifndef EBB_CORE_MEM_H
#define EBB_CORE_MEM_H

#include <ebb/status.h>

/* As malloc, calloc, realloc, free, strdup; NULL with the message set (ENOMEM) when memory is gone
 * or the fault counter says so.  Sizes of 0 give a valid pointer. */
void *ebb__malloc(size_t bytes);
void *ebb__calloc(size_t n, size_t bytes); /* checks the product */
void *ebb__realloc(void *old, size_t bytes);
char *ebb__strdup(const char *text);
void ebb__free(void *p); /* NULL is fine */

/* Grows *items (of item_bytes each) so that it holds at least `want`; *cap is in items. */
EBB_NODISCARD ebb_status ebb__grow(void *items, size_t *cap, size_t want, size_t item_bytes);

/* One tick of the fault counter: true when this allocation must fail (the message is set).  The
 * pool calls it once per request. */
bool ebb__fault(void);

/* a * b into *out; false on overflow. */
bool ebb__mul_size(size_t *out, size_t a, size_t b);

#endif
