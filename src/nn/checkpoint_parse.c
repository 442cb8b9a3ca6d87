/* memory.checkpoint: which blocks run as segments. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include <ebb/nn.h>

#define ALLOWED "\"none\", \"every:K\", \"sqrt\" or a list of [first, last] block ranges"
#define IN_CONFIG "; in a whole config \"budget:SIZE\" and \"plan:FILE\" too"

static void every(ebb_block_range *ranges, int *n_ranges, int blocks, int k)
{
    int n = 0;
    for (int first = 0; first < blocks; first += k, n++) {
        int last = first + k - 1;
        ranges[n] = (ebb_block_range){ first, last < blocks ? last : blocks - 1 };
    }
    *n_ranges = n;
}

static ebb_status parse_word(ebb_block_range *ranges, int *n_ranges, int blocks, const char *word,
                             const char *path)
{
    *n_ranges = 0;
    if (strcmp(word, "none") == 0) return EBB_OK;
    if (strcmp(word, "sqrt") == 0) {
        long k = lround(sqrt((double)blocks));
        every(ranges, n_ranges, blocks, k > 0 ? (int)k : 1);
        return EBB_OK;
    }
    if (strncmp(word, "every:", 6) == 0) {
        char *end = NULL;
        long k = word[6] >= '0' && word[6] <= '9' ? strtol(word + 6, &end, 10) : 0;
        if (k < 1 || *end != '\0')
            return ebb_fail(EBB_EINVAL,
                            "%s: \"%.40s\": expected \"every:K\", K a whole number of "
                            "blocks from 1",
                            path, word);
        every(ranges, n_ranges, blocks, k < blocks ? (int)k : blocks);
        return EBB_OK;
    }
    if (strncmp(word, "plan:", 5) == 0 || strncmp(word, "budget:", 7) == 0)
        return ebb_fail(EBB_EINVAL, "%s: \"%.40s\" needs a whole config; here: " ALLOWED, path, word);
    return ebb_fail(EBB_EINVAL, "%s: unknown \"%.40s\"; expected " ALLOWED IN_CONFIG, path, word);
}

static bool whole(const cJSON *item, int *out)
{
    if (!cJSON_IsNumber(item) || item->valuedouble != floor(item->valuedouble)) return false;
    if (item->valuedouble < 0 || item->valuedouble > 1e9) return false;
    *out = (int)item->valuedouble;
    return true;
}

static ebb_status parse_list(ebb_block_range *ranges, int *n_ranges, int blocks, const cJSON *list,
                             const char *path)
{
    int n = 0, next = 0;
    for (const cJSON *item = list->child; item; item = item->next, n++) {
        int first, last;
        if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) != 2 || !whole(item->child, &first) ||
            !whole(item->child->next, &last))
            return ebb_fail(EBB_EINVAL, "%s[%d]: expected [first, last], block numbers from 0",
                            path, n);
        if (first > last || last >= blocks)
            return ebb_fail(EBB_EINVAL,
                            "%s[%d]: [%d, %d]: first <= last and last < %d, the number "
                            "of blocks",
                            path, n, first, last, blocks);
        if (first < next)
            return ebb_fail(EBB_EINVAL,
                            "%s[%d]: [%d, %d] overlaps or comes before the range ahead "
                            "of it",
                            path, n, first, last);
        ranges[n] = (ebb_block_range){ first, last };
        next = last + 1;
    }
    *n_ranges = n;
    return EBB_OK;
}

ebb_status ebb_checkpoint_parse(ebb_block_range *ranges, int *n_ranges, int blocks,
                                const char *json, const char *path)
{
    cJSON *value = NULL;
    EBB_TRY(ebb__json_parse(&value, json, strlen(json), path));
    ebb_status st;
    if (cJSON_IsString(value))
        st = parse_word(ranges, n_ranges, blocks, value->valuestring, path);
    else if (cJSON_IsArray(value))
        st = parse_list(ranges, n_ranges, blocks, value, path);
    else
        st = ebb_fail(EBB_EINVAL, "%s: expected " ALLOWED IN_CONFIG, path);
    cJSON_Delete(value);
    return st;
}
