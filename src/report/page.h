/* report/page.h: what the pages share: one file with style, d3, the data as JSON, and scripts. */
#ifndef EBB_REPORT_PAGE_H
#define EBB_REPORT_PAGE_H

#include <ebb/frontier.h>

#include "report/out.h"
#include "report/page_parts.h"

/* Up to the data, whose names of categories, phases and actions are written: {"schema":1,... */
void ebb__page_begin(ebb__out *out, const char *title, const ebb__page_part *body);
/* Closes the data's object; then the scripts. */
void ebb__page_end(ebb__out *out, const ebb__page_part *script);
/* ,"frontier":{...}; NULL: nothing. */
void ebb__page_frontier(ebb__out *out, const ebb_frontier *frontier);

#endif
