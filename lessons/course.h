/* course.h: all lessons in reading order, their sources, and the page they are shown on. */
#ifndef EBB_COURSE_H
#define EBB_COURSE_H

#include "lesson.h"

/* A file as it was when the program was built; a zero follows the bytes. */
typedef struct course_text {
    const unsigned char *text;
    size_t bytes;
} course_text;

typedef struct course_entry {
    const lesson *lesson;
    const course_text *source;
} course_entry;
extern const course_entry course[];
extern const int course_size;

extern const course_text course_page_css, course_page_body, course_page_js;

#endif
