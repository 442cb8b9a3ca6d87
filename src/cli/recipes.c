/* memory.recompute: an op of the list that the model does not have, or whose inputs are not kept, saves
 * nothing.  That is no error, but the user should know. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { MAX_LISTED = 64 };

void cli_recipes_begin(cli_recipes *r, const ebb_config *config)
{
    char *text = ebb_config_print(config);
    *r = (cli_recipes){ .config = text ? cJSON_Parse(text) : NULL };
    free(text);
    r->list = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(r->config, "memory"), "recompute");
}

static void look_at(void *user, const ebb_node *node)
{
    cli_recipes *r = user;
    const char *name = ebb_node_name(node);
    int i = 0;
    for (const cJSON *op = r->list->child; op && i < MAX_LISTED; op = op->next, i++)
        if (cJSON_IsString(op) && strcmp(op->valuestring, name) == 0) r->seen |= UINT64_C(1) << i;
}

void cli_recipes_look(cli_recipes *r, const ebb_context *ctx)
{
    if (cJSON_IsArray(r->list) && r->list->child && !r->seen) ebb_each_node(ctx, look_at, r);
}

void cli_recipes_count(cli_recipes *r, const ebb_context *ctx)
{
    ebb_recompute_stats stats;
    ebb_recompute_stats_get(ctx, &stats);
    r->refused = stats.refused_recipes;
}

static void say(const cli_recipes *r)
{
    int i = 0;
    for (const cJSON *op = r->list->child; op && i < MAX_LISTED; op = op->next, i++)
        if (cJSON_IsString(op) && !(r->seen >> i & 1))
            fprintf(stderr, "ebb: memory.recompute: \"%s\": no such call takes part in backward; "
                            "nothing is recomputed\n", op->valuestring);
    if (r->refused > 0)
        fprintf(stderr, "ebb: memory.recompute: %llu call%s of the listed ops kept their outputs: the "
                        "inputs to make them from again are not kept\n",
                (unsigned long long)r->refused, r->refused == 1 ? "" : "s");
}

void cli_recipes_end(cli_recipes *r, bool said)
{
    if (said && cJSON_IsArray(r->list)) say(r);
    cJSON_Delete(r->config);
    *r = (cli_recipes){ 0 };
}
