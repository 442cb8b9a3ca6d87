/* report/page_parts.h: the files that the pages are made of, built into the library as text. */
#ifndef EBB_REPORT_PAGE_PARTS_H
#define EBB_REPORT_PAGE_PARTS_H

#include <stddef.h>

typedef struct ebb__page_part {
    const unsigned char *text;
    size_t bytes;
} ebb__page_part;

/* d3: 0 bytes where the build found none. */
extern const ebb__page_part ebb__page_css, ebb__page_trace_body, ebb__page_plan_body, ebb__page_shared_js,
    ebb__page_trace_js, ebb__page_plan_js, ebb__page_d3;

#endif
