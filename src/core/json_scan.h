/* core/json_scan.h: the strict scan behind ebb__json_check() and ebb__json_parse(). */
#ifndef EBB_CORE_JSON_SCAN_H
#define EBB_CORE_JSON_SCAN_H

#include <ebb/status.h>

enum { EBB__JSON_MAX_DEPTH = 512 };

/* `for_tree`: also refuses what the grammar allows but a tree would hide: a key given twice.
 * Errors: EFORMAT "FILE:LINE:COLUMN: what" (`file` may be NULL); ENOMEM. */
EBB_NODISCARD ebb_status ebb__json_scan(const char *text, size_t bytes, const char *file,
                                        bool for_tree);

/* Bytes of the UTF-8 character at `at` (1 to 4), 0 where it is not valid UTF-8. */
int ebb__utf8_length(const char *text, size_t bytes, size_t at);

#endif
