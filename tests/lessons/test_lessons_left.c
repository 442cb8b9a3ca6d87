/* Each lesson is left before each of its steps, and has its allocations fail: it leaves nothing behind, and
 * says which of the two it was.  Arguments: names of lessons, otherwise all that do not take long. */
#include <ebb/memory.h>
#include <stdio.h>
#include <string.h>

#include "course.h"

static int n_wrong;

static void wrong(const lesson *l, const char *how, long at, lesson_outcome outcome, const char *text)
{
    printf("%s: %s %ld: outcome %d: %s\n", l->name, how, at, (int)outcome, text);
    n_wrong++;
}

typedef struct leaver { long steps, leaves_at; char text[256]; } leaver;

/* Leaves before step `leaves_at`, or after it where that is negative. */
static bool view(void *user, const lesson_event *e)
{
    leaver *v = user;
    if (e->kind == LESSON_FAILS) snprintf(v->text, sizeof v->text, "%s", e->text);
    if (e->kind == LESSON_BEFORE && ++v->steps == v->leaves_at) return false;
    return !((e->kind == LESSON_AFTER || e->kind == LESSON_REFUSED) && v->steps == -v->leaves_at);
}

static void leave_at_each_step(const lesson *l)
{
    long steps = 1;
    for (long at = 1; at <= steps; at++)
        for (int after = 0; after < 2; after++) {
            leaver v = { .leaves_at = after ? -at : at };
            lesson_outcome outcome = lesson_run(l, view, &v);
            if (outcome != LESSON_LEFT && outcome != LESSON_TRUE) wrong(l, "left at step", at, outcome, v.text);
            if (outcome == LESSON_LEFT && v.steps >= steps) steps = v.steps + 1;
        }
}

static void fail_allocations(const lesson *l)
{
    lesson_outcome outcome = LESSON_NO_MEMORY;
    for (long n = 1; outcome != LESSON_TRUE; n += 1 + n / 16) {
        leaver v = { 0 };
        ebb_fault_arm(n);
        outcome = lesson_run(l, view, &v);
        ebb_fault_arm(0);
        if (outcome != LESSON_NO_MEMORY && outcome != LESSON_TRUE) wrong(l, "allocation", n, outcome, v.text);
        if (outcome == LESSON_FAILED) return;
    }
}

/* These make the same calls as others, on hundreds of MiB or in whole trainings. */
static bool takes_long(const lesson *l)
{
    static const char *const names[] = { "driver", "deep", "reuse", "out_of_memory", "features" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(l->name, names[i]) == 0) return true;
    return false;
}

static bool is_asked(const lesson *l, int argc, char *argv[])
{
    for (int i = 1; i < argc; i++)
        if (strcmp(l->name, argv[i]) == 0) return true;
    return argc == 1 && !takes_long(l);
}

int main(int argc, char *argv[])
{
    for (int i = 0; i < course_size; i++) {
        const lesson *l = course[i].lesson;
        if (!is_asked(l, argc, argv)) continue;
        leave_at_each_step(l);
        fail_allocations(l);
    }
    return n_wrong != 0;
}
