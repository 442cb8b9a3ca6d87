/* train/gradcheck.h: one case of an op, made ready for finite differences. */
#ifndef EBB_TRAIN_GRADCHECK_H
#define EBB_TRAIN_GRADCHECK_H

#include <ebb/train.h>

/* An input: a contiguous leaf that holds the values, and how the op's input is seen through it. */
typedef struct ebb__probe_in {
    const ebb_case_in *spec;
    ebb_tensor *leaf; /* f64, i32 or u8; for strided inputs larger than the input */
    int64_t elems;    /* of the leaf */
    bool differentiable;
    double *analytic, *numeric; /* [elems] where differentiable; dL/dleaf */
} ebb__probe_in;

typedef struct ebb__probe {
    ebb_context *ctx;
    const ebb_op *op;
    const ebb_op_case *op_case;
    int n_in, n_out;
    ebb__probe_in in[EBB_MAX_IN];
    ebb_tensor
        *weights[EBB_MAX_OUT]; /* L = sum over float outputs of sum(weight * out); NULL: not one */
    int64_t out_elems;         /* of all float outputs together */
    double coarsest;           /* largest epsilon of an output's dtype */
} ebb__probe;

/* Inputs only, drawn from a stream that depends on the op and the case.  ebb__probe_end() must
 * follow, on errors too. */
EBB_NODISCARD ebb_status ebb__probe_begin(ebb__probe *p, ebb_context *ctx, const ebb_op *op,
                                          const ebb_op_case *op_case);
void ebb__probe_end(ebb__probe *p);
/* The inputs as the op gets them: views of the leaves where the case is strided.  Counted, on errors
 * too: ebb_drop() each. */
EBB_NODISCARD ebb_status ebb__probe_inputs(ebb__probe *p, ebb_tensor *ins[EBB_MAX_IN]);
/* Runs the op; outs: n_out variables. */
EBB_NODISCARD ebb_status ebb__probe_run(ebb__probe *p, ebb_tensor *outs[EBB_MAX_OUT]);
/* Looks at the outputs once and makes the weights. */
EBB_NODISCARD ebb_status ebb__probe_weigh(ebb__probe *p);
/* All weighted outputs, one after another: values[out_elems] = weight * out, without recording. */
EBB_NODISCARD ebb_status ebb__probe_values(ebb__probe *p, double *values);

/* What the backwards of an op's cases read, against what its `needs` names. */
typedef struct ebb__needs {
    uint32_t read[EBB_MAX_IN]; /* EBB_IN | EBB_OUT mask: what input i's gradient was seen to read */
    bool tried[EBB_MAX_IN];    /* some case asked for input i's gradient */
    char lacking[160];         /* what `needs` lacks; empty: nothing */
} ebb__needs;

/* Runs the op's backward kernel over every case, on calls made by hand in which all data is there.
 * A case that cannot run is left out.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__needs_check(ebb__needs *needs, ebb_context *ctx, const ebb_op *op);
/* The first thing that `needs` names and no case reads, as text; false: there is none. */
bool ebb__needs_surplus(const ebb__needs *needs, const ebb_op *op, char *text, size_t text_bytes);

#endif
