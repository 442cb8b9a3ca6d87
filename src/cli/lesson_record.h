/* cli/lesson_record.h: lessons as JSON, and the page that is made of it. */
#ifndef EBB_CLI_LESSON_RECORD_H
#define EBB_CLI_LESSON_RECORD_H

#include "cli.h"
#include "course.h"

/* Runs n lessons from `from` and adds "lessons" to the object: what happened, event by event, and their
 * sources.  Returns how many failed. */
int cli_record_lessons(cli_json *json, const course_entry *from, int n);
/* Writes the page that shows recorded lessons; returns the exit status. */
int cli_write_course(const cli_args *args, const char *path, const cJSON *recorded);
lesson_view lesson_silent_view; /* says on stderr what is not true */

#endif
