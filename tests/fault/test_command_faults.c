/* EBB_FAIL_ALLOC=n of the command: it says so and exits with 3, never crashes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "support/support.h"

typedef struct outcome { int status; char *said; } outcome; /* exit status; stderr, to be freed */

static outcome run_train(const temp_folder *folder, unsigned long long n)
{
    char command[2048];
    const char *err = temp_path(folder, "err");
    int length = snprintf(command, sizeof(command),
                          "EBB_FAIL_ALLOC=%llu '%s' train '%s/models/gpt-synthetic.json' --quiet "
                          "--threads 1 --steps 3 --set data.workers=0 --set model.layers=2 "
                          "--out '%s' >'%s' 2>'%s'", n, EBB_PROGRAM, EBB_SOURCE_DIR,
                          temp_path(folder, "run"), temp_path(folder, "out"), err);
    cr_assert(length > 0 && (size_t)length < sizeof(command));
    int status = system(command);
    cr_assert(WIFEXITED(status), "allocation %llu: the command did not exit by itself", n);
    return (outcome){ WEXITSTATUS(status), read_text(err, NULL) };
}

/* Returns whether the n-th allocation was reached. */
static bool check_fault(unsigned long long n)
{
    temp_folder folder = temp_folder_make();
    outcome o = run_train(&folder, n);
    cr_assert(o.status == 0 || o.status == 3, "allocation %llu: exit status %d: %s", n, o.status, o.said);
    cr_assert(strstr(o.said, "Sanitizer") == NULL, "allocation %llu: %s", n, o.said);
    if (o.status == 3) cr_assert(strstr(o.said, "memory") != NULL, "allocation %llu: said \"%s\"", n, o.said);
    else cr_assert(o.said[0] == '\0', "allocation %llu: done, but said \"%s\"", n, o.said);
    free(o.said);
    temp_folder_remove(&folder);
    return o.status == 3;
}

/* 1, 2, 3, ... ever further apart, so that the start (the config, the model) is sampled well and the
 * end is reached. */
Test(command_faults, a_failed_allocation_exits_with_3_and_a_message)
{
    int reached = 0, last = 0;
    for (double n = 1; n < 30000; n = n * 1.27 + 1) {
        bool fired = check_fault((unsigned long long)n);
        reached += fired;
        last = !fired;
    }
    cr_assert(reached >= 20, "only %d allocations failed", reached);
    cr_assert(last, "the run's end was not reached: more samples");
}
