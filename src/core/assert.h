/* core/assert.h: our own mistakes.  A caller's mistake is a status, never an assert. */
#ifndef EBB_CORE_ASSERT_H
#define EBB_CORE_ASSERT_H

/* EBB_CHECKS: 0 none, 1 asserts, 2 invariants, 3 heap walks: the build's default level. */
#ifndef EBB_CHECKS
#define EBB_CHECKS 1
#endif

_Noreturn void ebb__assert_failed(const char *what, const char *file, int line);

#if EBB_CHECKS >= 1
#define EBB_ASSERT(cond) ((cond) ? (void)0 : ebb__assert_failed(#cond, __FILE__, __LINE__))
#else
#define EBB_ASSERT(cond) ((void)sizeof(cond))
#endif

#endif
