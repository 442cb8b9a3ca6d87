/* lesson: the course on how memory lives, run. */
#include <stdlib.h>
#include <string.h>

#include "lesson_record.h"

/* ---- the list ----------------------------------------------------------------------------- */

static int print_list(const cli_args *args)
{
    if (args->json) {
        cli_json json = cli_json_begin();
        cJSON *list = cli_put_array(&json, NULL, "lessons");
        for (int i = 0; i < course_size; i++) {
            cJSON *item = cli_add_object(&json, list);
            cli_put_text(&json, item, "name", course[i].lesson->name);
            cli_put_text(&json, item, "claim", course[i].lesson->claim);
        }
        return cli_json_end(&json, args, CLI_DONE);
    }
    lesson_terminal terminal = lesson_terminal_here(true);
    lesson_terminal_text(&terminal, "Each lesson shows one thing with measured bytes. In this order:\n");
    for (int i = 0; i < course_size; i++)
        lesson_terminal_item(&terminal, course[i].lesson->name, course[i].lesson->claim);
    char last[128];
    snprintf(last, sizeof(last), "\nebb lesson %s runs the first, step by step; --all does not stop.",
             course[0].lesson->name);
    lesson_terminal_text(&terminal, last);
    return CLI_DONE;
}

static const course_entry *find(const cli_args *args)
{
    const char *names[64];
    int n = 0;
    for (; n < course_size && n < 64; n++) {
        names[n] = course[n].lesson->name;
        if (strcmp(names[n], args->operands[0]) == 0) return &course[n];
    }
    const char *near = ebb_nearest_word(args->operands[0], names, n);
    cli_usage(args, "no lesson \"%s\"%s%s%s; ebb lesson lists them", args->operands[0],
              near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    return NULL;
}

/* ---- running ------------------------------------------------------------------------------ */

static bool show(void *user, const lesson_event *event)
{
    bool goes_on = lesson_terminal_view(user, event);
    for (int i = 0; i < course_size && event->kind == LESSON_BEGINS; i++)
        if (course[i].lesson == event->lesson) lesson_terminal_intro(user, (const char *)course[i].source->text);
    return goes_on;
}

/* Lessons [from, from + n) on the terminal. */
static int run_shown(const course_entry *from, int n, const cli_args *args)
{
    lesson_terminal terminal = lesson_terminal_here(args->all);
    int n_failed = 0;
    for (int i = 0; i < n; i++) {
        if (i && !args->quiet) putchar('\n');
        lesson_outcome outcome = args->quiet ? lesson_run(from[i].lesson, lesson_silent_view, NULL)
                                             : lesson_run(from[i].lesson, show, &terminal);
        if (outcome == LESSON_LEFT) return CLI_DONE;
        if (outcome == LESSON_NO_MEMORY) return CLI_NO_MEMORY;
        n_failed += outcome == LESSON_FAILED;
    }
    if (n == 1 && n_failed == 0 && !args->quiet && from + 1 < course + course_size)
        printf("\nNext: ebb lesson %s\n", from[1].lesson->name);
    if (n > 1 && !args->quiet && n_failed == 0) printf("\n%d lessons, all true\n", n);
    if (n > 1 && n_failed > 0) fprintf(stderr, "ebb: %d of %d lessons are no longer true\n", n_failed, n);
    return n_failed ? CLI_FAILED : CLI_DONE;
}

static int run_recorded(const course_entry *from, int n, const cli_args *args)
{
    cli_json json = cli_json_begin();
    int n_failed = cli_record_lessons(&json, from, n), status = n_failed ? CLI_FAILED : CLI_DONE;
    if (args->html && !json.failed) {
        int written = cli_write_course(args, args->html, json.root);
        if (written != CLI_DONE) {
            cJSON_Delete(json.root);
            return written;
        }
    }
    if (args->json) return cli_json_end(&json, args, status);
    cJSON_Delete(json.root);
    if (json.failed) return cli_fail(args, ebb_fail(EBB_ENOMEM, "lesson: no memory for what was recorded"));
    cli_say_wrote(args, args->html);
    if (n_failed > 0) fprintf(stderr, "ebb: %d of %d lessons are no longer true\n", n_failed, n);
    return status;
}

static int run(const cli_args *args)
{
    const course_entry *from = course;
    int n = course_size;
    if (args->n_operands > 0) {
        from = find(args);
        n = 1;
    }
    if (!from || cli_check_writable(args, args->html) != CLI_DONE) return CLI_USAGE;
    if (args->html) return run_recorded(from, n, args);
    if (args->n_operands == 0 && !args->all) return print_list(args);
    return args->json ? run_recorded(from, n, args) : run_shown(from, n, args);
}

static const cli_option options[] = {
    { "--all", NULL, CLI_FLAG, offsetof(cli_args, all), "does not stop; without a NAME: every lesson", false },
    { "--html", "FILE", CLI_TEXT, offsetof(cli_args, html), "the course as one page, for a browser; needs no network",
      false },
};

const cli_command cli_lesson = {
    .name = "lesson",
    .operands = "[NAME]",
    .min_operands = 0,
    .max_operands = 1,
    .summary = "Shows how memory lives and when backward frees it",
    .details = "Without a NAME it lists the lessons.  A lesson shows each source line before it runs\n"
               "(Enter runs it, q leaves), and then what is alive: the names, the tape (what backward\n"
               "will read), the bytes.  Every claim is checked; one that is no longer true is exit status 1.\n",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .run = run,
    .no_config = true,
};
