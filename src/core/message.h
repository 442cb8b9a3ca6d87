/* core/message.h: the thread's message, kept over work whose own errors have no caller to tell: what failed before it
 * is still to be read after it.
 *
 *     ebb__message kept;
 *     ebb__message_keep(&kept);
 *     ... closes something ...
 *     ebb__message_put_back(&kept); */
#ifndef EBB_CORE_MESSAGE_H
#define EBB_CORE_MESSAGE_H

#include <ebb/status.h>

enum { EBB__MESSAGE_BYTES = 4096 };

typedef struct ebb__message {
    char text[EBB__MESSAGE_BYTES]; /* up to its zero */
} ebb__message;

void ebb__message_keep(ebb__message *out);
void ebb__message_put_back(const ebb__message *kept);

#endif
