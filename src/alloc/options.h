/* alloc/options.h: the allocator's settings, in PyTorch's spelling.
 *     "expandable_segments:True,max_split_size_mb:64,roundup_power2_divisions:[256:1,512:2,>:4]"
 * The environment variable EBB_ALLOC_CONF holds it, as does ebb_context_options.allocator; the
 * config's memory.allocator is an object with the same keys. */
#ifndef EBB_ALLOC_OPTIONS_H
#define EBB_ALLOC_OPTIONS_H

#include <ebb/status.h>

struct cJSON;

enum { EBB__N_ROUNDING_INTERVALS = 16 }; /* [2^i, 2^(i+1)) MiB; the ends include what lies beyond */

typedef struct ebb__alloc_options {
    size_t max_split_bytes;              /* larger blocks are never split; 0: no bound */
    size_t max_non_split_rounding_bytes; /* how much larger than asked for such a block may be */
    double garbage_collection_threshold; /* of the limit; 0: off */
    bool expandable_segments;
    bool offset_plan; /* the training loop makes a plan from a dry run */
    uint16_t roundup_power2_divisions[EBB__N_ROUNDING_INTERVALS]; /* 0 or 1: off */
    size_t deferred_release_bytes; /* freed bytes that wait to be freed together; 0: none wait */
} ebb__alloc_options;

ebb__alloc_options ebb__alloc_options_default(void);

/* Applies "key:value,..." to *options; NULL and "" change nothing.  `where` begins every message
 * ("EBB_ALLOC_CONF").  On an error *options is as it was.
 * Errors: EINVAL (an unknown key names the nearest one and all that there are). */
EBB_NODISCARD ebb_status ebb__alloc_options_parse(ebb__alloc_options *options, const char *text,
                                                  const char *where);

/* Writes an object's members as "key:value,..." and checks them.  `where`: its JSON path.
 * Errors: EINVAL. */
EBB_NODISCARD ebb_status ebb__alloc_options_from_json(char *text, size_t text_bytes,
                                                      const struct cJSON *object,
                                                      const char *where);

#endif
