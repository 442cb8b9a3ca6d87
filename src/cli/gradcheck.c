#include <string.h>

#include "cli.h"

typedef struct tally {
    const cli_args *args;
    cli_json *json; /* NULL: print */
    cJSON *results;
    int n, n_failed;
} tally;

static void take(void *user, const ebb_gradcheck_result *r)
{
    tally *t = user;
    t->n++;
    t->n_failed += !r->passed;
    if (t->json) {
        cJSON *object = cli_add_object(t->json, t->results);
        cli_put_text(t->json, object, "op", r->op);
        cli_put_text(t->json, object, "case", r->op_case);
        cli_put_bool(t->json, object, "passed", r->passed);
        cli_put_number(t->json, object, "worst", r->worst);
        if (!r->passed) cli_put_text(t->json, object, "message", r->message);
    } else if (!r->passed || !t->args->quiet) {
        printf("%-4s %-16s %-32s %9.1e%s%s\n", r->passed ? "ok" : "FAIL", r->op, r->op_case,
               r->worst, r->passed ? "" : "  ", r->message);
    }
}

static ebb_status check_all(tally *t)
{
    for (int i = 0; i < ebb_op_count(); i++) {
        ebb_status st = ebb_gradcheck(ebb_op_at(i), t->args->device, 1, take, t);
        if (st != EBB_OK) return st;
    }
    return EBB_OK;
}

static int unknown_op(const cli_args *args, const char *name)
{
    const char *names[256];
    int n = ebb_op_count() < 256 ? ebb_op_count() : 256;
    for (int i = 0; i < n; i++) names[i] = ebb_op_at(i)->name;
    const char *near = ebb_nearest_word(name, names, n);
    return cli_usage(args, "no op \"%s\"%s%s%s", name, near ? "; did you mean \"" : "",
                     near ? near : "", near ? "\"?" : "");
}

static int run(const cli_args *args)
{
    const ebb_op *op = args->n_operands > 0 ? ebb_op_find(args->operands[0]) : NULL;
    if (args->n_operands > 0 && !op) return unknown_op(args, args->operands[0]);
    cli_json json = { NULL, false };
    tally t = { .args = args };
    if (args->json) {
        json = cli_json_begin();
        t.json = &json;
        t.results = cli_put_array(&json, NULL, "results");
    }
    ebb_status st = op ? ebb_gradcheck(op, args->device, 1, take, &t) : check_all(&t);
    if (st != EBB_OK) {
        cJSON_Delete(json.root);
        return cli_fail(args, st);
    }
    int status = t.n_failed > 0 ? CLI_FAILED : CLI_DONE;
    if (args->json) {
        cli_put_number(&json, NULL, "cases", t.n);
        cli_put_number(&json, NULL, "failed", t.n_failed);
        return cli_json_end(&json, args, status);
    }
    if (!args->quiet) printf("%d cases, %d failed\n", t.n, t.n_failed);
    return status;
}

const cli_command cli_gradcheck = {
    .name = "gradcheck",
    .operands = "[OP]",
    .min_operands = 0,
    .max_operands = 1,
    .summary = "Checks every op's backward against finite differences",
    .details = "In f64, over the op's own cases, on --device; relative error by norm at most 1e-6.\n"
               "Exit status 1 where a case fails, or an op has none.\n",
    .run = run,
};
