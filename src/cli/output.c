/* Errors and JSON objects on their way out. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* ---- errors ------------------------------------------------------------------------------- */

/* Written by hand: it must work when memory is gone. */
static void print_string(const char *text, size_t bytes)
{
    putchar('"');
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

/* Messages about a config begin with its JSON path: "train.optimizer.lrr: ...".  Returns its length; 0
 * where there is none. */
static size_t json_path_length(const char *message)
{
    static const char *const roots[] = { "model", "data", "train",  "memory",
                                         "name",  "seed", "$schema" };
    size_t length =
        strspn(message, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.$[]");
    if (message[length] != ':') return 0;
    for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        size_t n = strlen(roots[i]);
        if (strncmp(message, roots[i], n) == 0 && (n == length || strchr(".[", message[n])))
            return length;
    }
    /* An unknown key at the top has a path of one word. */
    return strncmp(message + length, ": unknown key", 13) == 0 ? length : 0;
}

static void print_error(const cli_args *args, const char *code, const char *message)
{
    fprintf(stderr, "ebb: %s\n", message);
    if (!args->json) return;
    size_t path = json_path_length(message);
    printf("{\"schema\": %d, \"error\": {\"code\": \"%s\", \"message\": ", CLI_SCHEMA, code);
    print_string(message, strlen(message));
    if (path > 0) {
        printf(", \"path\": ");
        print_string(message, path);
    }
    printf("}}\n");
}

int cli_exit_status(ebb_status status)
{
    switch (status) {
    case EBB_OK: return CLI_DONE;
    case EBB_ENOMEM: return CLI_NO_MEMORY;
    case EBB_EINVAL:
    case EBB_EUNSUPPORTED:
    case EBB_EDEVICE: return CLI_USAGE;
    default: return CLI_FAILED;
    }
}

int cli_fail(const cli_args *args, ebb_status status)
{
    print_error(args, ebb_status_name(status), ebb_message());
    return cli_exit_status(status);
}

int cli_fail_config(const cli_args *args, ebb_status status)
{
    print_error(args, ebb_status_name(status), ebb_message());
    return status == EBB_ENOMEM ? CLI_NO_MEMORY : CLI_USAGE;
}

int cli_fail_about(const cli_args *args, ebb_status status, const char *what)
{
    char text[1024];
    snprintf(text, sizeof(text), "%s: %s", what, ebb_message());
    return cli_fail_text(args, status, text);
}

int cli_fail_text(const cli_args *args, ebb_status status, const char *text)
{
    print_error(args, ebb_status_name(status), text);
    return cli_exit_status(status);
}

int cli_usage(const cli_args *args, const char *fmt, ...)
{
    char text[512];
    va_list list;
    va_start(list, fmt);
    vsnprintf(text, sizeof(text), fmt, list);
    va_end(list);
    print_error(args, "EINVAL", text);
    if (args->command)
        fprintf(stderr, "usage: ebb %s %s [OPTIONS]; ebb %s --help tells more\n",
                args->command->name, args->command->operands, args->command->name);
    else
        fprintf(stderr, "usage: ebb COMMAND [OPTIONS]; ebb --help lists the commands\n");
    return CLI_USAGE;
}

int cli_check_writable(const cli_args *args, const char *file)
{
    char folder[4096];
    const char *slash = file ? strrchr(file, '/') : NULL;
    struct stat info;
    if (!file) return CLI_DONE;
    if (strcmp(file, "-") == 0)
        return cli_usage(args, "\"-\" is no file; standard output is /dev/stdout");
    if (!*file) return cli_usage(args, "cannot write \"\": a file's name is missing");
    if (file[strlen(file) - 1] == '/' || (stat(file, &info) == 0 && S_ISDIR(info.st_mode)))
        return cli_usage(args, "cannot write %s: it is a folder", file);
    if (stat(file, &info) == 0 && !S_ISREG(info.st_mode)) { /* written to as it is */
        if (access(file, W_OK) == 0) return CLI_DONE;
        return cli_usage(args, "cannot write %s: %s", file, strerror(errno));
    }
    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - file) + 1 : 1, slash ? file : ".");
    if (access(folder, W_OK | X_OK) == 0) return CLI_DONE;
    return cli_usage(args, "cannot write %s: %s: %s", file, folder, strerror(errno));
}

void cli_say_wrote(const cli_args *args, const char *file)
{
    if (args->json || args->quiet || !file) return;
    fprintf(strcmp(file, "/dev/stdout") == 0 ? stderr : stdout, "wrote %s\n", file);
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void check(cli_json *json, const void *made)
{
    if (!made) json->failed = true;
}

cli_json cli_json_begin(void)
{
    cli_json json = { .root = cJSON_CreateObject() };
    check(&json, json.root);
    cli_put_number(&json, NULL, "schema", CLI_SCHEMA);
    return json;
}

static cJSON *target(const cli_json *json, cJSON *object) { return object ? object : json->root; }

void cli_put_number(cli_json *json, cJSON *object, const char *key, double value)
{
    check(json, cJSON_AddNumberToObject(target(json, object), key, value));
}

void cli_put_count(cli_json *json, cJSON *object, const char *key, double count)
{
    cli_put_number(json, object, key, round(count));
}

void cli_put_known(cli_json *json, cJSON *object, const char *key, double value, bool known)
{
    if (known && isfinite(value))
        cli_put_number(json, object, key, value);
    else
        cli_put_null(json, object, key);
}

void cli_put_bytes(cli_json *json, cJSON *object, const char *key, size_t bytes)
{
    cli_put_number(json, object, key, (double)bytes);
}

void cli_put_text(cli_json *json, cJSON *object, const char *key, const char *value)
{
    if (value)
        check(json, cJSON_AddStringToObject(target(json, object), key, value));
    else
        cli_put_null(json, object, key);
}

void cli_put_bool(cli_json *json, cJSON *object, const char *key, bool value)
{
    check(json, cJSON_AddBoolToObject(target(json, object), key, value));
}

void cli_put_null(cli_json *json, cJSON *object, const char *key)
{
    check(json, cJSON_AddNullToObject(target(json, object), key));
}

/* On failure the root stands in, so that callers need no check: what they add is never printed. */
cJSON *cli_put_object(cli_json *json, cJSON *object, const char *key)
{
    cJSON *made = cJSON_AddObjectToObject(target(json, object), key);
    check(json, made);
    return made ? made : json->root;
}

cJSON *cli_put_array(cli_json *json, cJSON *object, const char *key)
{
    cJSON *made = cJSON_AddArrayToObject(target(json, object), key);
    check(json, made);
    return made;
}

cJSON *cli_add_object(cli_json *json, cJSON *array)
{
    cJSON *made = cJSON_CreateObject();
    if (made && cJSON_AddItemToArray(array, made)) return made;
    cJSON_Delete(made);
    json->failed = true;
    return json->root;
}

int cli_json_end(cli_json *json, const cli_args *args, int status)
{
    char *text = json->failed ? NULL : cJSON_Print(json->root);
    cJSON_Delete(json->root);
    if (!text) {
        print_error(args, "ENOMEM", "no memory for the JSON output");
        return CLI_NO_MEMORY;
    }
    puts(text);
    cJSON_free(text);
    return status;
}
