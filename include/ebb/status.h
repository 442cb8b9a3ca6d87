/* ebb/status.h: how calls fail.
 * Every call that can fail returns 0 or a negative code.  The message is kept per thread in a
 * fixed buffer (so that it works when memory is gone), set once where the fault is found. */
#ifndef EBB_STATUS_H
#define EBB_STATUS_H

#include <ebb/types.h>

typedef enum ebb_status {
    EBB_OK = 0,
    EBB_EINVAL = -1,       /* a value that is not allowed */
    EBB_ESHAPE = -2,       /* shapes that do not fit */
    EBB_EDTYPE = -3,       /* dtypes that do not fit */
    EBB_ENOMEM = -4,       /* memory is gone, or a limit is reached */
    EBB_EBUDGET = -5,      /* no plan fits the budget */
    EBB_EDEVICE = -6,      /* device missing, failing, or mixed */
    EBB_EUNSUPPORTED = -7, /* right, but not built */
    EBB_EIO = -8,          /* the operating system refused a file */
    EBB_EFORMAT = -9,      /* a file or text that is not what it should be */
    EBB_ESTATE = -10       /* right call, wrong moment (graph released, changed in place, ...) */
} ebb_status;

EBB_BEGIN_DECLS

/* The last failure's message on this thread; "" when there was none.  Owner: ebb; valid until the
 * next failing call on this thread. */
EBB_API const char *ebb_message(void);
/* "ENOMEM" for EBB_ENOMEM, "OK" for EBB_OK. */
EBB_API const char *ebb_status_name(ebb_status status);
/* Sets the message and returns `status`; for user-defined ops and hooks too. */
EBB_API ebb_status ebb_fail(ebb_status status, const char *fmt, ...) EBB_PRINTF(2, 3);
/* A line of the user's program; file NULL: unknown. */
typedef struct ebb_site {
    const char *file;
    int line;
} ebb_site;
/* Remembers which line makes the next nodes and blocks; returns the line that was remembered before.
 * Thread: local.  `file` must outlive the context (a string literal). */
EBB_API ebb_site ebb_call_site(const char *file, int line);

EBB_END_DECLS

/* Returns from the current function when `call` fails.  Allowed where all that is owned sits in
 * EBB_LOCAL variables.  While the call runs, its line is the call site; then the one before is again: a call
 * made without EBB_TRY() is told by the line of the EBB_TRY() that is around it, or by none. */
#define EBB_TRY(call)                                                  \
    do {                                                               \
        ebb_site ebb_try_site_ = ebb_call_site(__FILE__, __LINE__);    \
        ebb_status ebb_try_status_ = (call);                           \
        ebb_call_site(ebb_try_site_.file, ebb_try_site_.line);         \
        if (ebb_try_status_ != EBB_OK) return ebb_try_status_;         \
    } while (0)

#endif
