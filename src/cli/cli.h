/* cli/cli.h: what the commands share.  The command line sees ebb's public headers only. */
#ifndef EBB_CLI_CLI_H
#define EBB_CLI_CLI_H

#include <cjson/cJSON.h>
#include <ebb/ebb.h>
#include <stdio.h>

/* Exit statuses. */
enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_NO_MEMORY = 3 };
/* Number that grows when a field of the JSON output changes. */
enum { CLI_SCHEMA = 1 };

/* ---- arguments --------------------------------------------------------------------------- */

enum { CLI_MAX_SETS = 128, CLI_MAX_OPERANDS = 4 };

typedef struct cli_args {
    const struct cli_command *command;
    const char *operands[CLI_MAX_OPERANDS];
    int n_operands;
    /* common options */
    const char *sets[CLI_MAX_SETS];
    int n_sets;
    const char *device;
    int64_t threads;
    bool json, quiet, help, saved, check_recompute, frontier, segments, allocated, offload, calibrate, all, leak_check;
    bool ops;
    /* options of some commands; NULL or 0 where not given */
    const char *out, *resume, *vary, *weights, *batch, *html, *snapshot, *perfetto, *against;
    const char *prompt, *temperature, *seed, *budget, *write, *limit;
    int64_t steps, from, events, tokens;
    bool compare, memory_summary;
} cli_args;

typedef enum cli_kind { CLI_FLAG, CLI_TEXT, CLI_COUNT, CLI_SET } cli_kind;

typedef struct cli_option {
    const char *name, *value; /* "--steps", "N"; value NULL: a flag */
    cli_kind kind;
    size_t offset; /* into cli_args */
    const char *help;
    bool required;
} cli_option;

typedef struct cli_command {
    const char *name, *operands; /* "train", "CONFIG" */
    int min_operands, max_operands;
    const char *summary, *details;
    const cli_option *options;
    int n_options;
    int (*run)(const cli_args *args); /* returns the exit status */
    bool no_config; /* it reads none: --set, --device and --threads would do nothing and are refused */
} cli_command;

extern const cli_command cli_train, cli_compare, cli_estimate, cli_trace, cli_grads, cli_eval, cli_sample,
    cli_gradcheck, cli_info, cli_plan, cli_max_batch, cli_lesson;
extern const cli_command *const cli_commands[];
extern const int cli_n_commands;
extern const cli_option cli_common_options[];
extern const int cli_n_common_options;
/* False: an option of every command that would do nothing in this one, as it reads no config. */
bool cli_option_applies(const cli_option *option, const cli_command *command);

/* Fills args from argv[1..).  Returns CLI_DONE, or CLI_USAGE after saying what is wrong. */
int cli_parse(cli_args *args, int argc, char **argv);
void cli_help(FILE *file);
void cli_command_help(FILE *file, const cli_command *command);

/* ---- errors ------------------------------------------------------------------------------ */

/* Says ebb's last message on stderr, and as JSON on stdout where asked for; returns the exit status
 * that `status` means. */
int cli_fail(const cli_args *args, ebb_status status);
/* The same for errors that come from reading a config: they are always wrong usage, unless memory
 * is gone. */
int cli_fail_config(const cli_args *args, ebb_status status);
/* Says that `what` (a file, a key of the config) is where the last message comes from. */
int cli_fail_about(const cli_args *args, ebb_status status, const char *what);
/* An error of a run: where it tells of a data file, the file's key is put in front. */
int cli_fail_run(const cli_args *args, ebb_status status, const ebb_config *config);
/* An error with a text of its own. */
int cli_fail_text(const cli_args *args, ebb_status status, const char *text);
/* The exit status that `status` means. */
int cli_exit_status(ebb_status status);
/* Wrong usage: the text on stderr (and as JSON), and where help is. */
int cli_usage(const cli_args *args, const char *fmt, ...) EBB_PRINTF(2, 3);

/* Before work that takes time: `file` (NULL: nothing) can be made where it is.  CLI_DONE, or CLI_USAGE after
 * saying why not. */
int cli_check_writable(const cli_args *args, const char *file);
/* "wrote FILE" where a summary is wanted; not into what was written. */
void cli_say_wrote(const cli_args *args, const char *file);

/* ---- JSON -------------------------------------------------------------------------------- */

/* An object under construction; `failed` when memory was gone. */
typedef struct cli_json {
    cJSON *root;
    bool failed;
} cli_json;

cli_json cli_json_begin(void); /* with "schema" */
/* Each adds to `object` (NULL: the root). */
void cli_put_number(cli_json *json, cJSON *object, const char *key, double value);
void cli_put_bytes(cli_json *json, cJSON *object, const char *key, size_t bytes);
void cli_put_text(cli_json *json, cJSON *object, const char *key,
                  const char *value); /* NULL: null */
/* A number of things, such as FLOPs: rounded to a whole one. */
void cli_put_count(cli_json *json, cJSON *object, const char *key, double count);
/* null where `known` is false, or the value not finite. */
void cli_put_known(cli_json *json, cJSON *object, const char *key, double value, bool known);
void cli_put_bool(cli_json *json, cJSON *object, const char *key, bool value);
void cli_put_null(cli_json *json, cJSON *object, const char *key);
cJSON *cli_put_object(cli_json *json, cJSON *object, const char *key);
cJSON *cli_put_array(cli_json *json, cJSON *object, const char *key);
cJSON *cli_add_object(cli_json *json, cJSON *array);
/* Prints the object on stdout and frees it; returns `exit_status`, or what failed. */
int cli_json_end(cli_json *json, const cli_args *args, int exit_status);

/* ---- configs, runs, results -------------------------------------------------------------- */

/* Loads the config of the first operand with --set applied; returns the exit status. */
int cli_load_config(ebb_config **out, const cli_args *args);
/* Training options from the command line. */
ebb_train_options cli_train_options(const cli_args *args);

/* Whether a run computed anything: a dry one measures memory only. */
bool cli_is_dry(const ebb_train_result *result);
/* The fields that `train` prints, and the memory object of any report. */
void cli_put_result(cli_json *json, cJSON *object, const ebb_train_result *result);
void cli_put_memory(cli_json *json, cJSON *object, const ebb_memory_stats *memory);
/* The host pool that offloaded tensors are in: two fields; a line, where there was any. */
void cli_put_host(cli_json *json, cJSON *object, const ebb_memory_stats *host);
void cli_print_host(const ebb_memory_stats *host, FILE *file);
void cli_print_result(const ebb_train_result *result, FILE *file);

/* What segments promised and did, of all of them, after the run. */
typedef struct cli_segment {
    char name[64];
    ebb_segment_report report; /* but for its name */
} cli_segment;
typedef struct cli_segments {
    cli_segment *all;
    int n;
    bool failed; /* no memory for one */
} cli_segments;
void cli_segments_collect(ebb_train_options *options, cli_segments *segments);
void cli_segments_free(cli_segments *segments);
bool cli_segments_free_nothing(const cli_segments *segments); /* one of them */
/* Those that free nothing, and why, on stderr. */
void cli_segments_warn(const cli_segments *segments, const cli_args *args);
/* trained: with times and how often, which a run cut short does not have. */
void cli_put_segments(cli_json *json, cJSON *object, const cli_segments *segments, bool trained);
ebb_status cli_print_segments(const cli_segments *segments, bool trained);

/* Peak against time, for the pages of plan and trace. */
enum { CLI_FRONTIER_POINTS = 48, CLI_FRONTIER_MARKS = 8 };
typedef struct cli_frontier {
    ebb_plan *plans[CLI_FRONTIER_POINTS];
    ebb_frontier_mark marks[CLI_FRONTIER_MARKS];
    char names[CLI_FRONTIER_MARKS][64];
    const ebb_config *config;
    int n, n_marks;
    bool allocated;
} cli_frontier;
/* Plans, and none, every:1 and sqrt as marks.  `config` must outlive it.  On errors too, cli_frontier_free() must
 * follow. */
ebb_status cli_frontier_make(cli_frontier *frontier, const ebb_config *config, const ebb_train_options *options,
                             bool allocated);
/* Adds what `config` itself says, where there is room; the same figures as an earlier mark's are that mark. */
ebb_status cli_frontier_mark(cli_frontier *frontier, const char *name, const ebb_config *config,
                             const ebb_train_options *options, bool own);
ebb_frontier cli_frontier_page(const cli_frontier *frontier, const char *name); /* borrows */
void cli_frontier_free(cli_frontier *frontier);

/* Shows progress on stderr where that is a terminal (or EBB_PROGRESS=1), and turns the first Ctrl-C
 * into an early, clean end.  The line outlives the run. */
void cli_watch(ebb_train_options *options, const cli_args *args, ebb_progress_line *line);
bool cli_interrupted(void);

/* What became of memory.recompute: which ops the model has, how many recipes were refused. */
typedef struct cli_recipes {
    cJSON *config; /* tree with the list, or NULL */
    const cJSON *list;
    uint64_t seen; /* bit i: op i of the list was called */
    uint64_t refused;
} cli_recipes;
void cli_recipes_begin(cli_recipes *recipes, const ebb_config *config);
/* In an observer: on_backward, and on_end. */
void cli_recipes_look(cli_recipes *recipes, const ebb_context *ctx);
void cli_recipes_count(cli_recipes *recipes, const ebb_context *ctx);
/* Says on stderr which ops of the list do nothing (where `said`: a run was made), and frees. */
void cli_recipes_end(cli_recipes *recipes, bool said);

/* What steps leave behind: begin before the first, step after each, end while the model is there. */
typedef struct cli_leak {
    bool on;
    ebb_progress_line *line; /* cleared before a warning */
    int64_t steps, told_at;  /* the step of the warning; 0: none */
    ebb_leak_watch *watch;
    ebb_leak_report report;
    cli_json json; /* of the report; it outlives the model, as does the text */
    char *text;
    size_t bytes;
} cli_leak;
ebb_status cli_leak_begin(cli_leak *leak, ebb_context *ctx);
void cli_leak_step(cli_leak *leak);
void cli_leak_end(cli_leak *leak);
void cli_put_leak(cli_json *json, cli_leak *leak); /* "leak_check" */
void cli_leak_free(cli_leak *leak);

/* The variants of `compare`: the set "PATH=VALUE" and the value for each; split at top-level commas.
 * Returns how many, or -1 after a message. */
enum { CLI_MAX_VARIANTS = 32, CLI_VARIANT_BYTES = 512 };
typedef struct cli_variant {
    char set[CLI_VARIANT_BYTES];
    const char *value; /* within set */
} cli_variant;
int cli_variants(cli_variant variants[CLI_MAX_VARIANTS], const cli_args *args, const char *vary);
/* Names of at most `room` columns (< CLI_NAME_BYTES): the values, of objects that are longer only what differs.
 * True: some do not tell which row it is even so, and begin with its number, from 1. */
enum { CLI_NAME_BYTES = 32 };
bool cli_variant_names(char names[][CLI_NAME_BYTES], const cli_variant variants[], int n, int room);

#endif
