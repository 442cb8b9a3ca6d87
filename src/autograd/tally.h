/* autograd/tally.h: what is alive, counted by the line of the program that made it. */
#ifndef EBB_AUTOGRAD_TALLY_H
#define EBB_AUTOGRAD_TALLY_H

#include "autograd/node.h"

/* The tensor or the node that a hook hangs on; at most one is set. */
typedef struct ebb__hooked { const ebb_tensor *leaf; const ebb_node *node; } ebb__hooked;

typedef struct ebb__line {
    uint64_t key;                 /* of what follows; 0: free */
    const char *op, *scope, *file; /* "" where unknown.  As all pointers here: to be followed while */
    int line_number;               /* nothing was freed since the tally was taken */
    size_t bytes, graph_bytes, storages, nodes, hooks;
    const ebb_storage *storage;   /* the newest from before the last step; the last step's where there is none */
    const ebb_node *node;         /* likewise */
    ebb__hooked hooked;           /* of the newest hook */
} ebb__line;

enum { EBB__TALLY_LINES = 512 };

typedef struct ebb__tally {
    int64_t step;                 /* at whose end it was taken; 0: not yet */
    ebb__line lines[EBB__TALLY_LINES]; /* a hash table by key */
    int n_lines;
    ebb__line rest;               /* of lines beyond those that have room */
} ebb__tally;

/* Ids from last_tensor and last_node on are of the last step. */
void ebb__tally_take(ebb__tally *tally, const ebb_context *ctx, int64_t step, uint64_t last_tensor,
                     uint64_t last_node);
/* A line of zeros where there is none. */
const ebb__line *ebb__tally_find(const ebb__tally *tally, uint64_t key);

/* As ebb_why() (ebb/autograd.h): who holds a node; a tensor or node that hooks hang on. */
size_t ebb__why_node(const ebb_node *node, char *buf, size_t buf_bytes);
size_t ebb__why_hook(ebb__hooked on, char *buf, size_t buf_bytes);

#endif
