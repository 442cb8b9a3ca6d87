/* core/json_plain.h: JSON text as cJSON can read it without losing anything. */
#ifndef EBB_CORE_JSON_PLAIN_H
#define EBB_CORE_JSON_PLAIN_H

#include <ebb/status.h>

/* `text` passed the strict scan.  *out: a copy in which each number of more than 63 characters, of
 * which cJSON would drop the rest, is a short text of the double nearest to it, and \u0000 is
 * EBB__JSON_ZERO; *out_bytes: its length.  Both stay as they are where there is nothing to change.
 * Owner: ebb__free().  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__json_plain(char **out, size_t *out_bytes, const char *text,
                                         size_t bytes);

#endif
