/* checkpoint/segment.h: recorded calls that can make their values again.
 *
 * A value is a number: entry * EBB_MAX_OUT + output for what a call in the segment made, -(k + 1) for
 * external k, a tensor that entered without a recorded call (or whose bytes are kept on purpose).
 * Sources of an entry are values, so a replay needs no pointers from forward.  An external is a saved
 * slot like any other: kept, or itself a promise of the enclosing segment.  An op recipe is a segment
 * with one entry. */
#ifndef EBB_CHECKPOINT_SEGMENT_H
#define EBB_CHECKPOINT_SEGMENT_H

#include <ebb/checkpoint.h>
#include "autograd/node.h"
#include "checkpoint/contract.h"
#include "checkpoint/uid_map.h"

typedef struct ebb__entry {
    ebb__record *record;           /* counted */
    int32_t source[EBB_MAX_IN];    /* values */
} ebb__entry;

typedef struct ebb__external {
    ebb__slot slot;
    ebb_dtype dtype;
} ebb__external;

typedef struct ebb__segment {
    atomic_int refs;               /* promises, tensors with the recipe, and forward while it runs */
    ebb_context *ctx;
    uint64_t number;
    char name[48];
    bool recipe;
    ebb__contract *contract;       /* counted; NULL: a recipe */
    int depth;                     /* of promises that may have to be filled before this one */
    ebb__entry *entries;
    size_t n_entries, cap_entries;
    ebb__external **externals;     /* one by one: slots are linked and must not move */
    size_t n_externals, cap_externals;
    ebb__slot *promises;           /* slots that this segment has to fill, PROMISED or REFILLED */
    struct ebb__segment *next_filled;
    bool in_filled;
    bool spent;                    /* its externals are gone: what is refilled is the last there is */

    /* While forward runs. */
    struct ebb__segment *parent;   /* the enclosing active segment */
    ebb__uid_map map;              /* tensor id -> value */
    ebb_checkpoint_options options;
    ebb_saver saver;               /* of the call that is being recorded */
    uint64_t first_tensor_id;      /* tensors with a smaller id come from outside */
    ebb__external *spare[EBB_MAX_IN + EBB_MAX_OUT]; /* reserved for the call that is being recorded */
    int n_spare;
} ebb__segment;

/* Filling and freeing follow promises from segment to segment by recursion: bounded. */
enum { EBB__MAX_NESTING = 4096, EBB__MAX_RECIPE_DEPTH = 256 };

/* segment.c */
EBB_NODISCARD ebb_status ebb__segment_new(ebb__segment **out, ebb_context *ctx, const char *name, bool recipe);
void ebb__segment_retain(ebb__segment *segment);
/* Room for one more call with that many inputs and outputs; nothing else may fail. */
EBB_NODISCARD ebb_status ebb__segment_reserve(ebb__segment *segment, int n_in, int n_out);
/* Appends the call: inputs that are no values yet become externals, kept or promised by `outer`. */
void ebb__segment_append(ebb__segment *segment, ebb__record *record, ebb_tensor *const ins[], ebb_tensor *const outs[],
                         ebb_saver saver);
/* A replay runs a call to make that value; else the bytes are an external's, kept or promised elsewhere. */
bool ebb__segment_makes(const ebb__segment *segment, int32_t value);
/* What forward alone needed is freed. */
void ebb__segment_close(ebb__segment *segment);

/* replay.c: fills every promise of `segment`. */
EBB_NODISCARD ebb_status ebb__segment_fill(ebb__segment *segment);

/* recipe.c */
EBB_NODISCARD ebb_status ebb__recipe_begin(ebb__recording *r, const ebb_call *call, ebb_tensor *const ins[]);
void ebb__recipe_commit(ebb__recording *r, ebb_tensor *const ins[], ebb_tensor *const outs[]);

#endif
