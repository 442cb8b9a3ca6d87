/* core/site.h: the call site of the EBB_TRY() that runs on this thread. */
#ifndef EBB_CORE_SITE_H
#define EBB_CORE_SITE_H

#include <ebb/status.h>

typedef ebb_site ebb__site;

ebb__site ebb__site_get(void);

/* As EBB_TRY(), inside the library: the call site stays the user's. */
#define EBB__TRY(call)                                                   \
    do {                                                                 \
        ebb_status ebb_try_status_ = (call);                             \
        if (ebb_try_status_ != EBB_OK) return ebb_try_status_;           \
    } while (0)

#endif
