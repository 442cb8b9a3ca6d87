/* The course as one page: style, the recorded lessons as JSON, and the script that shows them. */
#include <stdlib.h>

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

int cli_write_course(const cli_args *args, const char *path, const cJSON *recorded)
{
    char *page = NULL;
    size_t bytes = 0;
    char *data = cJSON_PrintUnformatted(recorded);
    FILE *file = data ? open_memstream(&page, &bytes) : NULL;
    bool made = file && write_page(file, data);
    if (file) made = fclose(file) == 0 && made;
    cJSON_free(data);
    ebb_status st = made ? ebb_file_write(path, page, bytes)
                         : ebb_fail(EBB_ENOMEM, "%s: no memory for the page", path);
    free(page);
    return st == EBB_OK ? CLI_DONE : cli_fail(args, st);
}
