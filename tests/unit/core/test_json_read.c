/* Objects into structs, and the messages that a wrong config gets. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "support/support.h"

typedef struct options {
    int64_t batch;
    double lr;
    bool verbose;
    char name[8];
    int activation;
    size_t limit;
    const cJSON *extra;
    double betas[2];
    int64_t any;
    double positive;
} options;

static const char *const activations[] = { "relu", "silu", "tanh", NULL };

static const ebb__field fields[] = {
    { .key = "batch",
      .kind = EBB__INT,
      .offset = offsetof(options, batch),
      .min = 1,
      .max = 1000000 },
    { .key = "lr", .kind = EBB__NUMBER, .offset = offsetof(options, lr), .min = 0, .max = 10 },
    { .key = "verbose", .kind = EBB__BOOL, .offset = offsetof(options, verbose) },
    { .key = "name", .kind = EBB__STRING, .offset = offsetof(options, name), .bytes = 8 },
    { .key = "activation",
      .kind = EBB__CHOICE,
      .offset = offsetof(options, activation),
      .choices = activations },
    { .key = "limit", .kind = EBB__SIZE, .offset = offsetof(options, limit) },
    { .key = "extra", .kind = EBB__JSON, .offset = offsetof(options, extra) },
    { .key = "betas", .kind = EBB__PAIR, .offset = offsetof(options, betas), .min = 0, .max = 1 },
    { .key = "any", .kind = EBB__INT, .offset = offsetof(options, any) },
    { .key = "positive",
      .kind = EBB__NUMBER,
      .offset = offsetof(options, positive),
      .min = 0,
      .max = INFINITY },
};

enum { N_FIELDS = sizeof fields / sizeof *fields };

static ebb_status read_text_as(options *o, const char *path, const char *text)
{
    cJSON *tree = NULL;
    check_ok(ebb__json_parse(&tree, text, strlen(text), NULL));
    ebb_status st = ebb__json_read(o, tree, path, fields, N_FIELDS);
    o->extra = NULL; /* borrowed from the tree */
    cJSON_Delete(tree);
    check_no_live_blocks();
    return st;
}

Test(json_read, reads_every_kind)
{
    static const char text[] =
        "{\"batch\": 16, \"lr\": 3e-4, \"verbose\": true, \"name\": \"seven77\", \"activation\": "
        "\"silu\","
        "\"limit\": \"512MiB\", \"extra\": [1], \"betas\": [0.9, 1], \"any\": -9007199254740991,"
        "\"positive\": 1e300}";
    options o = { 0 };
    cJSON *tree = NULL;
    check_ok(ebb__json_parse(&tree, text, strlen(text), NULL));
    check_ok(ebb__json_read(&o, tree, "", fields, N_FIELDS));
    cr_assert_eq(o.batch, 16);
    cr_assert_eq(o.lr, 3e-4);
    cr_assert(o.verbose);
    cr_assert_str_eq(o.name, "seven77");
    cr_assert_eq(o.activation, 1);
    cr_assert_eq(o.limit, (size_t)512 << 20);
    cr_assert(o.extra == cJSON_GetObjectItemCaseSensitive(tree, "extra"));
    cr_assert(o.betas[0] == 0.9 && o.betas[1] == 1.0);
    cr_assert_eq(o.any, -9007199254740991);
    cr_assert_eq(o.positive, 1e300);
    cJSON_Delete(tree);
    check_no_live_blocks();
}

Test(json_read, absent_keys_keep_their_defaults)
{
    options o = { .batch = 5, .lr = 0.5, .name = "kept" };
    check_ok(read_text_as(&o, "", "{\"lr\": 1.0}"));
    cr_assert(o.batch == 5 && o.lr == 1.0);
    cr_assert_str_eq(o.name, "kept");
    check_ok(read_text_as(&o, "", "{}"));
    cr_assert_eq(o.batch, 5);
}

Test(json_read, whole_numbers_may_be_written_in_any_way)
{
    options o = { 0 };
    check_ok(read_text_as(&o, "", "{\"batch\": 1e3, \"any\": -4.0}"));
    cr_assert(o.batch == 1000 && o.any == -4);
}

Test(json_read, sizes_are_numbers_text_or_null)
{
    options o = { .limit = 5 };
    check_ok(read_text_as(&o, "", "{\"limit\": 1500000}"));
    cr_assert_eq(o.limit, 1500000);
    check_ok(read_text_as(&o, "", "{\"limit\": \"1.5KiB\"}"));
    cr_assert_eq(o.limit, 1536);
    check_ok(read_text_as(&o, "", "{\"limit\": null}"));
    cr_assert_eq(o.limit, 0);
}

/* "Nothing" is a size only where the key may be left out. */
Test(json_read, a_size_that_is_required_is_not_null)
{
    static const ebb__field required[] = {
        { .key = "limit", .kind = EBB__SIZE, .offset = offsetof(options, limit), .required = true, .min = 1, .max = 9 },
    };
    options o = { .limit = 5 };
    cJSON *tree = NULL;
    check_ok(ebb__json_parse(&tree, "{\"limit\": null}", 15, NULL));
    check_fails(ebb__json_read(&o, tree, "", required, 1), EBB_EINVAL);
    cr_assert_str_eq(ebb_message(), "limit: expected a number of bytes in 1..9 or a size such as \"512MiB\" or "
                     "\"1.5GiB\", got null");
    cr_assert(o.limit == 5);
    cJSON_Delete(tree);
    check_no_live_blocks();
}

typedef struct wrong {
    const char *text, *message;
} wrong;

/* The whole message: it is what the user reads. */
Test(json_read, messages_say_where_what_is_allowed_and_what_came)
{
    static const wrong rows[] = {
        { "{\"lrr\": 1}",
          "train.lrr: unknown key; did you mean \"lr\"? known keys: batch, lr, verbose, "
          "name, activation, limit, extra, betas, any, positive" },
        { "{\"Batch\": 1}",
          "train.Batch: unknown key; did you mean \"batch\"? known keys: batch, lr, verbose,"
          " name, activation, limit, extra, betas, any, positive" },
        { "{\"zzzzzz\": 1}",
          "train.zzzzzz: unknown key; known keys: batch, lr, verbose, name, activation, "
          "limit, extra, betas, any, positive" },
        { "{\"batch\": \"x\"}", "train.batch: expected a whole number in 1..1000000, got \"x\"" },
        { "{\"batch\": 0}", "train.batch: expected a whole number in 1..1000000, got 0" },
        { "{\"batch\": 1000001}",
          "train.batch: expected a whole number in 1..1000000, got 1000001" },
        { "{\"batch\": 1.5}", "train.batch: expected a whole number in 1..1000000, got 1.5" },
        { "{\"batch\": true}", "train.batch: expected a whole number in 1..1000000, got true" },
        { "{\"batch\": null}", "train.batch: expected a whole number in 1..1000000, got null" },
        { "{\"any\": 9007199254740993}",
          "train.any: expected a whole number (beyond 2^53 - 1 whole numbers "
          "are not exact), got 9007199254740992" },
        { "{\"any\": -9007199254740992}",
          "train.any: expected a whole number (beyond 2^53 - 1 whole numbers "
          "are not exact), got -9007199254740992" },
        { "{\"any\": 1e999}",
          "train.any: expected a whole number (beyond 2^53 - 1 whole numbers are not "
          "exact), got inf" },
        { "{\"lr\": -0.5}", "train.lr: expected a number in 0..10, got -0.5" },
        { "{\"lr\": 1e999}", "train.lr: expected a finite number in 0..10, got inf" },
        { "{\"lr\": []}", "train.lr: expected a number in 0..10, got an array of 0" },
        { "{\"positive\": 1e999}",
          "train.positive: expected a finite number of at least 0, got inf" },
        { "{\"positive\": -1}", "train.positive: expected a number of at least 0, got -1" },
        { "{\"verbose\": 1}", "train.verbose: expected true or false, got 1" },
        { "{\"name\": 7}", "train.name: expected a string, got 7" },
        { "{\"name\": \"12345678\"}",
          "train.name: expected a string of at most 7 bytes (it has 8), got "
          "\"12345678\"" },
        { "{\"activation\": \"gelu\"}",
          "train.activation: expected one of relu, silu, tanh, got \"gelu\"" },
        { "{\"activation\": \"a\\nb\"}",
          "train.activation: expected one of relu, silu, tanh, got \"a b\"" },
        { "{\"activation\": {}}",
          "train.activation: expected one of relu, silu, tanh, got an object" },
        { "{\"limit\": \"5X\"}",
          "train.limit: expected a number of bytes, a size such as \"512MiB\" or "
          "\"1.5GiB\", or null, got \"5X\"" },
        { "{\"limit\": -1}",
          "train.limit: expected a number of bytes, a size such as \"512MiB\" or \"1.5GiB\","
          " or null, got -1" },
        { "{\"limit\": 1e17}",
          "train.limit: expected a number of bytes, a size such as \"512MiB\" or "
          "\"1.5GiB\", or null, got 1e+17" },
        { "{\"betas\": [0.9]}",
          "train.betas: expected an array of two numbers in 0..1, got an array of 1" },
        { "{\"betas\": [0.9, 2]}",
          "train.betas: expected an array of two numbers in 0..1, got an array of 2" },
        { "{\"betas\": [0.9, \"x\"]}",
          "train.betas: expected an array of two numbers in 0..1, got an array of "
          "2" },
        { "{\"betas\": 0.9}", "train.betas: expected an array of two numbers in 0..1, got 0.9" },
        { "[1]", "train: expected an object, got an array of 1" },
        { "3.25", "train: expected an object, got 3.25" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        options o = { 0 };
        check_fails(read_text_as(&o, "train", rows[i].text), EBB_EINVAL);
        cr_assert_str_eq(ebb_message(), rows[i].message);
    }
}

Test(json_read, the_top_level_has_no_path)
{
    options o = { 0 };
    check_fails(read_text_as(&o, "", "{\"lrr\": 1}"), EBB_EINVAL);
    cr_assert(strncmp(ebb_message(), "lrr: unknown key", 16) == 0, "%s", ebb_message());
    check_fails(read_text_as(&o, "", "{\"batch\": 0}"), EBB_EINVAL);
    cr_assert(strncmp(ebb_message(), "batch: expected", 15) == 0, "%s", ebb_message());
    check_fails(read_text_as(&o, "", "null"), EBB_EINVAL);
    cr_assert_str_eq(ebb_message(), "top level: expected an object, got null");
    check_fails(ebb__json_read(&o, NULL, "train", fields, N_FIELDS), EBB_EINVAL);
    cr_assert_str_eq(ebb_message(), "train: expected an object, got nothing");
}

Test(json_read, an_error_leaves_the_struct_as_it_was)
{
    options o = { .batch = 5, .lr = 0.5 }, before = o;
    check_fails(read_text_as(&o, "", "{\"batch\": 7, \"lr\": 11}"), EBB_EINVAL);
    cr_assert_eq(memcmp(&o, &before, sizeof o), 0);
}

Test(json_read, a_required_key_that_is_absent_is_named)
{
    static const ebb__field required[] = {
        { .key = "lr", .kind = EBB__NUMBER, .offset = offsetof(options, lr), .required = true }
    };
    options o = { 0 };
    cJSON *tree = NULL;
    check_ok(ebb__json_parse(&tree, "{}", 2, NULL));
    check_fails(ebb__json_read(&o, tree, "train", required, 1), EBB_EINVAL);
    cr_assert_str_eq(ebb_message(), "train.lr: this key is required");
    cJSON_Delete(tree);
}

Test(json_read, long_strings_are_shown_cut_between_characters)
{
    char text[400] = "{\"lr\": \"x", *end = text + strlen(text);
    for (int i = 0; i < 100; i++) end = stpcpy(end, "\xC3\xA9");
    strcpy(end, "\"}");
    options o = { 0 };
    check_fails(read_text_as(&o, "", text), EBB_EINVAL);
    const char *cut = strstr(ebb_message(), "...\"");
    cr_assert_not_null(cut);
    cr_assert(cut[-2] == '\xC3' && cut[-1] == '\xA9');
}

Test(json_read, a_long_list_of_keys_is_cut_with_dots)
{
    enum { N = 60 };
    static char keys[N][40];
    static ebb__field many[N];
    for (int i = 0; i < N; i++) {
        snprintf(keys[i], sizeof keys[i], "a_rather_long_name_of_a_key_%d", i);
        many[i] = (ebb__field){ .key = keys[i], .kind = EBB__BOOL };
    }
    cJSON *tree = NULL;
    bool unused[1];
    check_ok(ebb__json_parse(&tree, "{\"b\":1}", 7, NULL));
    check_fails(ebb__json_read(unused, tree, "", many, N), EBB_EINVAL);
    cr_assert_str_eq(ebb_message() + strlen(ebb_message()) - 5, ", ...");
    cJSON_Delete(tree);
}

Test(json_read, the_nearest_word_is_found)
{
    static const char *const words[] = {
        "checkpoint", "recompute", "offload", "lr", "eps", "batch"
    };
    static const struct {
        const char *word, *nearest;
    } rows[] = {
        { "chekpoint", "checkpoint" },
        { "checkpoints", "checkpoint" },
        { "recopmute", "recompute" },
        { "LR", "lr" },
        { "l", "lr" },
        { "rl", "lr" },
        { "learning_rate", NULL },
        { "batch_size", "batch" },
        { "esp", "eps" },
        { "off", "offload" },
        { "", NULL },
        { "xyzxyz", NULL },
        { "0123456789012345678901234567890123456789012345678901234567890123456789", NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *nearest = ebb__nearest(rows[i].word, words, 6);
        cr_assert(nearest == rows[i].nearest ||
                      (nearest && rows[i].nearest && !strcmp(nearest, rows[i].nearest)),
                  "%s -> %s", rows[i].word, nearest ? nearest : "none");
    }
    cr_assert_null(ebb__nearest("a", words, 0));
}

Test(json_read, no_memory_for_the_list_of_keys)
{
    options o = { 0 };
    cJSON *tree = NULL;
    check_ok(ebb__json_parse(&tree, "{\"lrr\":1}", 9, NULL));
    ebb_fault_arm(1);
    check_fails(ebb__json_read(&o, tree, "", fields, N_FIELDS), EBB_ENOMEM);
    cJSON_Delete(tree);
    check_no_live_blocks();
}

/* As a C string each of these would look like a valid config. */
Test(json_read, a_zero_character_anywhere_is_refused)
{
    static const char *const texts[] = {
        "{\"name\":\"ab\\u0000cd\"}",      "{\"activation\":\"relu\\u0000\"}",
        "{\"limit\":\"1MiB\\u0000\"}",     "{\"batch\\u0000\":1}",
        "{\"extra\":[1,[\"x\\u0000\"]]}", "{\"extra\":{\"a\":{\"k\\u0000\":1}}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        options o = { .batch = 5 };
        check_fails(read_text_as(&o, "train", texts[i]), EBB_EINVAL);
        check_message("a zero character (\\u0000) is not allowed in a ");
        cr_assert_eq(o.batch, 5);
        cr_assert_null(strstr(ebb_message(), EBB__JSON_ZERO));
    }
    options o = { .batch = 5 };
    check_fails(read_text_as(&o, "train", texts[0]), EBB_EINVAL);
    check_message("train.name: a zero");
    check_fails(read_text_as(&o, "train", texts[3]), EBB_EINVAL);
    check_message("train: a zero");
}
