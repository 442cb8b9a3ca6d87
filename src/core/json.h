/* core/json.h: JSON text into structs, strictly.
 * cJSON alone accepts text that is not JSON; a strict scan (RFC 8259, UTF-8) goes before it and
 * gives line and column.  Objects are read by a table of fields, so that every unknown key, wrong
 * type or value out of range is an error with the JSON path, what is allowed and the nearest known
 * key. */
#ifndef EBB_CORE_JSON_H
#define EBB_CORE_JSON_H

#include <cjson/cJSON.h>
#include <ebb/status.h>

/* Strict scan of the grammar only: EFORMAT "FILE:LINE:COLUMN: what" (`file` NULL: "JSON").  Columns
 * count characters.  Nesting deeper than 512 and unpaired surrogates are refused; a key given twice
 * is valid here, as in the RFC. */
EBB_NODISCARD ebb_status ebb__json_check(const char *text, size_t bytes, const char *file);
/* Scan, then cJSON.  Also refuses (EFORMAT, with line and column) what a tree would hide: a key given
 * twice (the message contains "duplicate" and the key).  Numbers of any length are rounded right.
 * \u0000, which would end a C string, stands in the tree as EBB__JSON_ZERO; ebb__json_read() refuses
 * it.  Owner: *out is the caller's; cJSON_Delete().  Errors: EFORMAT, ENOMEM. */
EBB_NODISCARD ebb_status ebb__json_parse(cJSON **out, const char *text, size_t bytes,
                                         const char *file);
/* What \u0000 becomes in a tree: two bytes that are not UTF-8, so that no text can hold them. */
#define EBB__JSON_ZERO "\xC0\x80"
/* Makes cJSON allocate with ebb__malloc; parse, load and set do so themselves.  Call it before a
 * tree is made by cJSON_Create...(), so that faults reach it.  Printed text: cJSON_free(). */
void ebb__json_init(void);
/* Reads and parses a file.  Errors: EIO (missing, a folder, more than 64 MiB), EFORMAT, ENOMEM. */
EBB_NODISCARD ebb_status ebb__json_load(cJSON **out, const char *path);

typedef enum ebb__field_kind {
    EBB__INT,      /* int64_t; whole numbers up to 2^53 - 1, which are exact in JSON */
    EBB__NUMBER,   /* double */
    EBB__BOOL,     /* bool */
    EBB__STRING,   /* char[] of field.bytes; longer is an error; NUL inside is an error */
    EBB__CHOICE,   /* int: index into field.choices */
    EBB__SIZE,     /* size_t: a number of bytes or "512MiB"; null, where not required: 0 */
    EBB__JSON,     /* const cJSON *: borrowed, any value; for parts read by their own reader */
    EBB__PAIR      /* double[2]: an array of two numbers */
} ebb__field_kind;

typedef struct ebb__field {
    const char *key;
    ebb__field_kind kind;
    size_t offset;             /* into the struct */
    bool required;
    double min, max;           /* INT, NUMBER, SIZE, PAIR: both included; -INFINITY, INFINITY: open;
                                  min == max: no bounds */
    size_t bytes;              /* STRING: of the buffer */
    const char *const *choices; /* CHOICE: ends with NULL */
} ebb__field;

/* Reads `object` into `dst` by the table; keys that are absent leave dst as it is (defaults go
 * there before).  A zero character (\u0000) in any string or key, however deep, is an error.  `path`
 * ("train.optimizer", "" at the top) starts the path in messages.  On an error dst is as it was.
 * Errors: EINVAL, message "train.optimizer.lrr: unknown key; did you mean \"lr\"? ...". */
EBB_NODISCARD ebb_status ebb__json_read(void *dst, const cJSON *object, const char *path, const ebb__field *fields,
                                        int n_fields);

/* The nearest of `words` (edit distance; upper and lower case alike), NULL where none is near. */
const char *ebb__nearest(const char *word, const char *const words[], int n);

/* Sets the value at "a.b.c" (objects are made on the way; a number selects an array element) to
 * `text` parsed as JSON, or as a string where it is not JSON (but text that begins with {, [ or "
 * must be JSON).  On an error the tree is as it was.  Errors: EINVAL, ENOMEM. */
EBB_NODISCARD ebb_status ebb__json_set(cJSON *root, const char *assignment /* "a.b.c=text" */);

#endif
