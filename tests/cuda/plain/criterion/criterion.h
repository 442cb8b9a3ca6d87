/* plain/criterion/criterion.h: Criterion's asserts for a program without Criterion: they say what is wrong and end
 * it. */
#ifndef EBB_TESTS_PLAIN_CRITERION_H
#define EBB_TESTS_PLAIN_CRITERION_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* message: a format and its arguments, or "" */
__attribute__((format(printf, 4, 5))) static inline void plain_assert(int right, const char *file, int line,
                                                                      const char *message, ...)
{
    if (right) return;
    va_list args;
    va_start(args, message);
    fprintf(stderr, "%s:%d: Assertion Failed: ", file, line);
    vfprintf(stderr, message, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}
#define cr_assert(...) PLAIN_PICK(__VA_ARGS__, PLAIN_MESSAGE, PLAIN_MESSAGE, PLAIN_MESSAGE, PLAIN_MESSAGE,         \
    PLAIN_MESSAGE, PLAIN_MESSAGE, PLAIN_MESSAGE, PLAIN_MESSAGE, PLAIN_MESSAGE, PLAIN_MESSAGE, PLAIN_BARE, 0)(__VA_ARGS__)
#define PLAIN_PICK(a, b, c, d, e, f, g, h, i, j, k, name, ...) name
#define PLAIN_MESSAGE(condition, ...) plain_assert(!!(condition), __FILE__, __LINE__, __VA_ARGS__)
#define PLAIN_BARE(condition) plain_assert(!!(condition), __FILE__, __LINE__, "%s", #condition)

#endif
