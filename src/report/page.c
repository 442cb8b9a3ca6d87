#include "report/page.h"

#include "report/capture.h"

static void part(ebb__out *out, const char *before, const ebb__page_part *p, const char *after)
{
    ebb__out_text(out, before);
    ebb__out_bytes(out, p->text, p->bytes);
    ebb__out_text(out, after);
}

static void write_names(ebb__out *out)
{
    ebb__out_text(out, "{\"schema\":1,\"version\":\"" EBB_VERSION "\",\"categories\":[");
    for (int i = 0; i < EBB_N_CATEGORIES; i++)
        ebb__out_printf(out, "%s\"%s\"", i ? "," : "", ebb_category_name((ebb_category)i));
    ebb__out_text(out, "],\"phases\":[");
    for (int i = 0; i < EBB__N_PHASES; i++)
        ebb__out_printf(out, "%s\"%s\"", i ? "," : "", ebb__phase_name((ebb__phase)i));
    ebb__out_text(out, "],\"actions\":[");
    for (int i = 0; i < EBB__N_ACTIONS; i++)
        ebb__out_printf(out, "%s\"%s\"", i ? "," : "", ebb__action_name((ebb__action)i));
    ebb__out_text(out, "]");
}

void ebb__page_begin(ebb__out *out, const char *title, const ebb__page_part *body)
{
    ebb__out_text(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                       "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
    ebb__out_text(out, title);
    part(out, "</title>\n<style>\n", &ebb__page_css, "</style>\n</head>\n<body>\n");
    part(out, "", body, "<script type=\"application/json\" id=\"data\">\n");
    write_names(out);
}

void ebb__page_end(ebb__out *out, const ebb__page_part *script)
{
    part(out, "}\n</script>\n<script>\n", &ebb__page_d3, "\n</script>\n");
    part(out, "<script>\n", &ebb__page_shared_js, "");
    part(out, "", script, "</script>\n</body>\n</html>\n");
}

ebb_status ebb_page_check(void)
{
    if (ebb__page_d3.bytes > 0) return EBB_OK;
    return ebb_fail(EBB_EUNSUPPORTED, "page: this build has no d3: install node-d3 (or set EBB_D3 to a d3.min.js) and "
                    "build again");
}
