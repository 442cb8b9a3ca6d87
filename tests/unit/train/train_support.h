/* train_support.h: small configs, and runs of them. */
#ifndef TRAIN_SUPPORT_H
#define TRAIN_SUPPORT_H

#include <ebb/train.h>
#include <stdio.h>
#include <string.h>

#include "support/support.h"

#define SMALL_MLP                                                                                  \
    "{\"seed\":3,\"model\":{\"type\":\"mlp\",\"input\":12,\"hidden\":[16,8],\"output\":4},"        \
    "\"data\":{\"type\":\"synthetic\",\"items\":20,\"eval_items\":6},"                             \
    "\"train\":{\"steps\":6,\"batch\":4,\"optimizer\":{\"type\":\"adamw\",\"lr\":0.01,\"weight_"   \
    "decay\":0.1}}}"
#define SMALL_GPT                                                                                  \
    "{\"seed\":3,\"model\":{\"type\":\"gpt\",\"layers\":3,\"heads\":2,\"width\":16,\"context\":8," \
    "\"vocab\":32},"                                                                               \
    "\"data\":{\"type\":\"synthetic\",\"items\":20,\"eval_items\":6},"                             \
    "\"train\":{\"steps\":4,\"batch\":4,\"clip_norm\":1,\"optimizer\":{\"type\":\"adamw\",\"lr\":" \
    "0.01}}}"

/* A config from its text.  `sets` is "a=1 b=2"; values without spaces.  Owner: the caller. */
static inline ebb_config *config_of(const char *json, const char *sets)
{
    temp_folder folder = temp_folder_make();
    char path[512], text[1024];
    const char *list[32];
    int n = 0;
    cr_assert(strlen(sets) < sizeof(text));
    strcpy(text, sets);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) list[n++] = word;
    snprintf(path, sizeof(path), "%s/config.json", folder.path);
    write_text(path, json);
    ebb_config *config = NULL;
    check_ok(ebb_config_load(&config, path, list, n));
    temp_folder_remove(&folder);
    return config;
}

static inline ebb_train_options default_options(void)
{
    return (ebb_train_options){ .struct_bytes = sizeof(ebb_train_options),
                                .threads = 2,
                                .hash_gradients = true };
}

static inline ebb_train_result train_with(const char *json, const char *sets,
                                          const ebb_train_options *options)
{
    ebb_config *config = config_of(json, sets);
    ebb_train_result result;
    check_ok(ebb_train(&result, config, options));
    ebb_config_free(config);
    check_no_live_blocks();
    return result;
}

static inline ebb_train_result train_once(const char *json, const char *sets)
{
    ebb_train_options options = default_options();
    return train_with(json, sets, &options);
}

#endif
