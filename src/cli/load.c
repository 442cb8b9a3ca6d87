#include "cli.h"

int cli_load_config(ebb_config **out, const cli_args *args)
{
    ebb_status st = ebb_config_load(out, args->operands[0], args->sets, args->n_sets);
    return st == EBB_OK ? CLI_DONE : cli_fail_config(args, st);
}

ebb_train_options cli_train_options(const cli_args *args)
{
    return (ebb_train_options){
        .struct_bytes = sizeof(ebb_train_options),
        .device = args->device,
        .threads = (int)args->threads,
        .steps = args->steps,
        .out_dir = args->out,
        .resume_dir = args->resume,
        .check_recompute = args->check_recompute,
    };
}
