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
/* Remembers which line of the user's program makes the next nodes and blocks.  Thread: local.
 * `file` must outlive the context (a string literal). */
EBB_API void ebb_call_site(const char *file, int line);

EBB_END_DECLS

/* Returns from the current function when `call` fails.  Allowed where all that is owned sits in
 * EBB_LOCAL variables. */
#define EBB_TRY(call)                                                  \
    do {                                                               \
        ebb_call_site(__FILE__, __LINE__);                             \
        ebb_status ebb_try_status_ = (call);                           \
        if (ebb_try_status_ != EBB_OK) return ebb_try_status_;         \
    } while (0)

#endif
