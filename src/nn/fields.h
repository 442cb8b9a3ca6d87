/* nn/fields.h: the inverse of ebb__json_read(): effective values back into the JSON object. */
#ifndef EBB_NN_FIELDS_H
#define EBB_NN_FIELDS_H

#include "core/json.h"

/* Adds every key of the table that `object` lacks, with the value that `src` holds.  EBB__JSON
 * fields and empty strings are left out: their own readers add them.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__fields_fill(cJSON *object, const void *src, const ebb__field *fields,
                                          int n_fields);
/* Adds `value` (taken over, on errors too; NULL is ENOMEM) under `key` unless the key is there. */
EBB_NODISCARD ebb_status ebb__fields_add(cJSON *object, const char *key, cJSON *value);

#endif
