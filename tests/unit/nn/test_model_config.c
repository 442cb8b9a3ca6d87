#include <ebb/nn.h>
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "nn/config.h"
#include "support/support.h"

#define GPT "{\"type\":\"gpt\",\"layers\":2,\"heads\":4,\"width\":8,\"context\":4,\"vocab\":16"
#define MLP "{\"type\":\"mlp\",\"input\":3,\"output\":2"

static void refused(const char *json, ebb_status status, const char *message)
{
    ebb_model_info info;
    check_fails(ebb_model_inspect(&info, json), status);
    check_message(message);
    check_no_live_blocks();
}

Test(model_config, a_gpt_needs_its_sizes_only)
{
    ebb_model_info info;
    check_ok(ebb_model_inspect(&info, GPT "}"));
    cr_assert_str_eq(info.type, "gpt");
    cr_assert(info.tokens && info.width == 4 && info.classes == 16 && info.blocks == 2);
    /* Per block: norms 4 C, qkv (3 C + 3) C, out (C + 1) C, up (4 C + 4) C, down 4 C C + C. */
    int64_t block = 4 * 8 + 24 * 9 + 8 * 9 + 32 * 9 + 8 * 33;
    cr_assert_eq(info.parameters, 16 * 8 + 4 * 8 + 2 * block + 16);
    check_no_live_blocks();
}

Test(model_config, an_mlp_counts_layers_as_blocks)
{
    ebb_model_info info;
    check_ok(ebb_model_inspect(&info, MLP ",\"hidden\":[5,7]}"));
    cr_assert(!info.tokens && info.width == 3 && info.classes == 2 && info.blocks == 3);
    cr_assert_eq(info.parameters, 3 * 5 + 5 + 5 * 7 + 7 + 7 * 2 + 2);
    check_ok(ebb_model_inspect(&info, MLP "}"));
    cr_assert_eq(info.blocks, 1, "no hidden layer: one linear layer");
}

Test(model_config, the_stated_head_dim_wins_over_width_by_heads)
{
    /* Field case B74: Mistral NeMo's 5120 wide model has heads of 128, not 160. */
    ebb_model_info info;
    check_ok(ebb_model_inspect(&info,
                               "{\"type\":\"gpt\",\"layers\":40,\"heads\":32,\"kv_heads\":8,\"head_"
                               "dim\":128,\"width\":5120,"
                               "\"ffn_width\":14336,\"context\":1024,\"vocab\":131072,\"norm\":"
                               "\"rmsnorm\",\"activation\":\"swiglu\","
                               "\"position\":\"rope\",\"bias\":false,\"tie_embeddings\":false}"));
    cr_assert_eq(info.parameters, 12247782400);
}

Test(model_config, a_bare_gelu_is_refused_and_both_forms_are_named)
{
    refused(GPT ",\"activation\":\"gelu\"}", EBB_EINVAL, "gelu_erf");
    refused(MLP ",\"activation\":\"gelu\"}", EBB_EINVAL, "gelu_tanh");
}

Test(model_config, swiglu_is_for_gpt_only)
{
    refused(MLP ",\"activation\":\"swiglu\"}", EBB_EINVAL, "model.activation");
}

Test(model_config, unknown_keys_name_the_nearest_one)
{
    refused(GPT ",\"layer\":3}", EBB_EINVAL, "did you mean \"layers\"");
    refused(MLP ",\"hiden\":[3]}", EBB_EINVAL, "did you mean \"hidden\"");
}

Test(model_config, sizes_that_do_not_fit_are_refused_with_their_path)
{
    refused(GPT ",\"kv_heads\":3}", EBB_EINVAL, "model.kv_heads");
    refused(GPT ",\"kv_heads\":0}", EBB_EINVAL, "model.kv_heads");
    refused("{\"type\":\"gpt\",\"layers\":2,\"heads\":3,\"width\":8,\"context\":4,\"vocab\":16}",
            EBB_EINVAL, "model.heads");
    refused(GPT ",\"head_dim\":3,\"position\":\"rope\"}", EBB_EINVAL, "model.head_dim");
    refused(MLP ",\"hidden\":[4,0]}", EBB_EINVAL, "model.hidden[1]");
    refused(MLP ",\"hidden\":7}", EBB_EINVAL, "model.hidden");
    refused(MLP ",\"dropout\":1.5}", EBB_EINVAL, "model.dropout");
    refused("{\"type\":\"rnn\"}", EBB_EINVAL, "model.type");
    refused("{\"layers\":2}", EBB_EINVAL, "model.type");
    refused("[]", EBB_EINVAL, "model");
}

Test(model_config, more_parameters_than_int64_holds_are_refused)
{
    refused(
        "{\"type\":\"gpt\",\"layers\":10000,\"heads\":65536,\"head_dim\":65536,\"width\":16777216,"
        "\"ffn_width\":16777216,\"context\":4,\"vocab\":16}",
        EBB_EINVAL, "2^63");
}

static void check_filled(const char *json, const char *key, const char *expected)
{
    cJSON *object = NULL;
    check_ok(ebb__json_parse(&object, json, strlen(json), "test"));
    check_ok(ebb__model_config_fill(object));
    char *text = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(object, key));
    cr_assert(text && strcmp(text, expected) == 0, "%s is %s, not %s", key, text, expected);
    cJSON_free(text);
    cJSON_Delete(object);
    check_no_live_blocks();
}

Test(model_config, defaults_are_written_back_as_effective_values)
{
    check_filled(GPT "}", "kv_heads", "4");
    check_filled(GPT "}", "head_dim", "2");
    check_filled(GPT "}", "ffn_width", "32");
    check_filled(GPT "}", "activation", "\"gelu_tanh\"");
    check_filled(GPT "}", "tie_embeddings", "true");
    check_filled(GPT "}", "frozen", "[]");
    check_filled(GPT ",\"kv_heads\":2}", "kv_heads", "2");
    check_filled(MLP "}", "hidden", "[]");
    check_filled(MLP "}", "activation", "\"relu\"");
}
