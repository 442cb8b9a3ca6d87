/* checkpoint/chain.h: the fastest way to run a chain of stages forward and backward in M bytes: pure
 * numbers in, a plan out.
 *
 * Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, "Optimal checkpointing for heterogeneous chains",
 * arXiv 1911.13214: the first stages of a chain either run as a segment (only its input is held, and it
 * is run again, under a plan of its own, when backward comes to it), or the first stage runs directly,
 * holding what backward needs.  Here a direct stage has choices, each with its bytes and extra time, and
 * the gradients of the stages that are done take memory as backward goes on. */
#ifndef EBB_CHECKPOINT_CHAIN_H
#define EBB_CHECKPOINT_CHAIN_H

#include <ebb/nn.h>

enum { EBB__MAX_CHOICES = 24 };

/* How a stage that runs directly keeps what its backward needs.  Bytes are above those of its input. */
typedef struct ebb__choice {
    size_t keep;     /* held from its forward to its backward; its output is not counted */
    size_t forward;  /* peak while it runs forward: what it keeps and its output included */
    size_t backward; /* peak while it runs backward: what it keeps, the gradient that comes in, and its own
                        parameters' gradients included */
    size_t owed;     /* what of its output is made again in the backward of the stage behind it: so much more there */
    size_t host;     /* kept in host memory beside; where not 0, only outside segments: inside, nothing is kept */
    double extra_ns; /* recomputing, in its backward */
    double copy_ns;  /* to host memory and back; outside segments only: inside, nothing is copied */
} ebb__choice;

typedef struct ebb__stage {
    size_t input;     /* of the tensor that enters */
    size_t replay;    /* peak of a forward that keeps nothing, above the input, output included */
    size_t gradients; /* of its parameters; 0 where they are there before backward begins */
    double forward_ns;
    double replay_ns; /* forward as the last stage of a replay, which stops early */
    bool divisible;   /* may be in a segment */
    int n_choices;    /* 1.. */
    ebb__choice choices[EBB__MAX_CHOICES];
} ebb__stage;

typedef struct ebb__chain {
    int n;
    ebb__stage *stages; /* divisible ones are neighbours; the last one is never divisible */
} ebb__chain;

/* Costs of all stretches of a chain for all multiples of `unit` bytes up to steps * unit. */
typedef struct ebb__chain_table ebb__chain_table;

/* The grid: `unit` is chosen so that steps lie between n_steps and twice that, where rounding loses
 * least.  max_bytes: the largest budget that will be asked for.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__chain_solve(ebb__chain_table **out, const ebb__chain *chain, size_t max_bytes,
                                          int n_steps);
void ebb__chain_table_free(ebb__chain_table *table); /* NULL is a no-op */

/* Forward time and extra time of the best plan in `bytes`; INFINITY where none fits. */
double ebb__chain_cost(const ebb__chain_table *table, size_t bytes);
/* The smallest budget that has a plan; SIZE_MAX where none has. */
size_t ebb__chain_smallest(const ebb__chain_table *table);

/* The best plan in `bytes`: choice[stage], and segments as ranges of stages, outer first; room for 2 n.
 * False: none fits. */
bool ebb__chain_plan(const ebb__chain_table *table, size_t bytes, int *choice, ebb_block_range *segments,
                     int *n_segments);

/* What a plan takes, given as above, whether or not a table proposed it: least bytes, and forward and extra time. */
typedef struct ebb__chain_figures {
    size_t bytes;
    double ns;
} ebb__chain_figures;
ebb__chain_figures ebb__chain_run(const ebb__chain *chain, const int *choice, const ebb_block_range *segments,
                                  int n_segments);

/* Internals that chain.c and chain_plan.c share. */
struct ebb__chain_table {
    const ebb__chain *chain; /* borrowed */
    size_t unit;
    int steps;
    float **cost;         /* [first * n + last]: steps + 1 costs; NULL: never needed */
    float *rows;          /* their memory */
    double *forward_sum;  /* prefix sums over stages */
    size_t *gradient_sum;
    int *alike_sum;       /* stages equal to the next one */
};

/* One way to run stages [first, last]: the first `length` as a segment, or the first with `choice`. */
typedef struct ebb__way {
    int length; /* 0: direct */
    int choice;
    int need, rest, inner; /* least m; m is reduced by rest for what follows, by inner for the segment */
    float cost;
} ebb__way;
bool ebb__chain_way_direct(ebb__way *way, const ebb__chain_table *t, int first, int last, int choice);
bool ebb__chain_way_segment(ebb__way *way, const ebb__chain_table *t, int first, int last, int length);
/* The two rows that a way adds up; NULL: 0. */
void ebb__chain_way_rows(const float **rest, const float **inner, const ebb__chain_table *t, const ebb__way *way,
                         int first, int last);

#endif
