#include "course.h"

#define LESSON_ROW(id)               \
    extern const lesson lesson_##id; \
    extern const course_text course_source_##id;
#include "course.def"
#undef LESSON_ROW

const course_entry course[] = {
#define LESSON_ROW(id) { &lesson_##id, &course_source_##id },
#include "course.def"
#undef LESSON_ROW
};
const int course_size = sizeof(course) / sizeof(course[0]);
