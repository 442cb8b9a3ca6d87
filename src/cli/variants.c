/* --vary PATH=V1,V2,...: a list or an object is one value, whatever commas it holds. */
#include <string.h>

#include "cli.h"

/* The end of the value that starts at `text`: a comma at the top level, or the end of the text; NULL
 * where brackets or quotes do not close. */
static const char *value_end(const char *text)
{
    int depth = 0;
    bool quoted = false;
    for (; *text; text++) {
        if (quoted) {
            if (*text == '\\' && text[1])
                text++;
            else if (*text == '"')
                quoted = false;
        } else if (*text == '"') {
            quoted = true;
        } else if (*text == '[' || *text == '{') {
            depth++;
        } else if (*text == ']' || *text == '}') {
            if (--depth < 0) return NULL;
        } else if (*text == ',' && depth == 0) {
            return text;
        }
    }
    return depth == 0 && !quoted ? text : NULL;
}

int cli_variants(cli_variant variants[CLI_MAX_VARIANTS], const cli_args *args, const char *vary)
{
    const char *equals = strchr(vary, '=');
    if (!equals || equals == vary) {
        cli_usage(args, "--vary: \"%s\": expected PATH=V1,V2,..., such as train.batch=8,16", vary);
        return -1;
    }
    int path = (int)(equals - vary), n = 0;
    for (const char *at = equals + 1;; n++) {
        const char *end = value_end(at);
        if (!end || end == at || n == CLI_MAX_VARIANTS) {
            cli_usage(args,
                      !end        ? "--vary: \"%s\": brackets or quotes do not match"
                      : end == at ? "--vary: \"%s\": an empty value"
                                  : "--vary: \"%s\": too many values",
                      vary);
            return -1;
        }
        int length = snprintf(variants[n].set, CLI_VARIANT_BYTES, "%.*s=%.*s", path, vary,
                              (int)(end - at), at);
        if (length >= CLI_VARIANT_BYTES) {
            cli_usage(args, "--vary: \"%.40s...\": a value is too long", vary);
            return -1;
        }
        variants[n].value = variants[n].set + path + 1;
        if (*end == '\0') return n + 1;
        at = end + 1;
    }
}
