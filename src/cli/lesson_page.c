/* The course as one page: style, the recorded lessons as JSON, and the script that shows them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lesson_record.h"

static void put_part(FILE *file, const char *before, const course_text *part, const char *after)
{
    fputs(before, file);
    fwrite(part->text, 1, part->bytes, file);
    fputs(after, file);
}

/* JSON inside a script element: "</" would end it. */
static void put_json(FILE *file, const char *text)
{
    for (; *text; text++) {
        fputc(*text, file);
        if (text[0] == '<' && text[1] == '/') fputc('\\', file);
    }
}

static bool write_page(FILE *file, const char *data)
{
    put_part(file,
             "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
             "<title>ebb: how memory lives</title>\n<style>\n",
             &course_page_css, "</style>\n</head>\n<body>\n");
    put_part(file, "", &course_page_body, "<script type=\"application/json\" id=\"data\">\n");
    put_json(file, data);
    put_part(file, "\n</script>\n<script>\n", &course_page_js, "</script>\n</body>\n</html>\n");
    return !ferror(file);
}

/* Written beside and renamed, so that the page is whole or the old one. */
int cli_write_course(const cli_args *args, const char *path, const cJSON *recorded)
{
    char beside[4096];
    char *data = cJSON_PrintUnformatted(recorded);
    int n = snprintf(beside, sizeof(beside), "%s.partial", path);
    if (!data) return cli_fail(args, ebb_fail(EBB_ENOMEM, "%s: no memory for the page", path));
    FILE *file = n > 0 && n < (int)sizeof(beside) ? fopen(beside, "w") : NULL;
    bool good = file && write_page(file, data);
    if (file) good = fclose(file) == 0 && good;
    cJSON_free(data);
    if (good && rename(beside, path) == 0) return CLI_DONE;
    int error = errno;
    if (file) remove(beside);
    return cli_fail(args, ebb_fail(EBB_EIO, "cannot write %s: %s", path, strerror(error)));
}
