/* support/cases.h: how many cases a test runs.  AddressSanitizer makes programs several times slower, and looks for
 * wrong accesses, which some cases of each kind make as well as many; what is asked of values is checked in full
 * without it. */
#ifndef EBB_TESTS_CASES_H
#define EBB_TESTS_CASES_H

#ifdef __SANITIZE_ADDRESS__
#define CASES(all, sanitized) (sanitized)
#else
#define CASES(all, sanitized) (all)
#endif

#endif
