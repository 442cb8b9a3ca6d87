/* The "optimizer" object of a config. */
#include "optim_support.h"

Test(optim_json, every_key_is_read)
{
    ebb_optim_options o;
    check_ok(
        ebb_optim_options_parse(&o,
                                "{\"type\":\"adamw\",\"lr\":3e-4,\"betas\":[0.8,0.95],\"eps\":1e-6,"
                                "\"weight_decay\":0.1,\"decay\":\"all\"}",
                                "train.optimizer"));
    cr_assert(o.struct_bytes == sizeof o && o.kind == EBB_ADAMW && o.lr == 3e-4 && o.beta1 == 0.8 &&
              o.beta2 == 0.95);
    cr_assert(o.eps == 1e-6 && o.weight_decay == 0.1 && o.decay == EBB_DECAY_ALL);
    check_ok(
        ebb_optim_options_parse(&o,
                                "{\"type\":\"sgd\",\"lr\":1,\"momentum\":0.9,\"nesterov\":true,"
                                "\"decay\":\"none\"}",
                                "train.optimizer"));
    cr_assert(o.kind == EBB_SGD && o.momentum == 0.9 && o.nesterov && o.decay == EBB_DECAY_NONE &&
              o.weight_decay == 0);
    check_no_live_blocks();
}

Test(optim_json, defaults_are_adamw_without_decay)
{
    ebb_optim_options o;
    check_ok(ebb_optim_options_parse(&o, "{}", "train.optimizer"));
    cr_assert(o.kind == EBB_ADAMW && o.lr == 1e-3 && o.beta1 == 0.9 && o.beta2 == 0.999 &&
              o.eps == 1e-8);
    cr_assert(o.weight_decay == 0 && o.decay == EBB_DECAY_MATRICES && o.momentum == 0 &&
              !o.nesterov);
}

static const struct bad_config { const char *json, *word; } bad_configs[] = {
    { "[]", "train.optimizer" },
    { "{\"type\":\"adam\"}", "train.optimizer.type" },
    { "{\"lrr\":1}", "did you mean \"lr\"" },
    { "{\"lr\":0}", "train.optimizer.lr" },
    { "{\"lr\":-1}", "train.optimizer.lr" },
    { "{\"lr\":1e999}", "train.optimizer.lr" },
    { "{\"lr\":\"0.1\"}", "train.optimizer.lr" },
    { "{\"betas\":[0.9,1]}", "train.optimizer.betas[1]" },
    { "{\"betas\":[1,0.9]}", "train.optimizer.betas[0]" },
    { "{\"betas\":[0.9]}", "train.optimizer.betas" },
    { "{\"betas\":0.9}", "train.optimizer.betas" },
    { "{\"eps\":0}", "train.optimizer.eps" },
    { "{\"weight_decay\":-0.1}", "train.optimizer.weight_decay" },
    { "{\"decay\":\"some\"}", "train.optimizer.decay" },
    { "{\"type\":\"sgd\",\"momentum\":1}", "train.optimizer.momentum" },
    { "{\"type\":\"sgd\",\"nesterov\":true}", "train.optimizer.nesterov" },
    { "{\"type\":\"sgd\",\"nesterov\":1}", "train.optimizer.nesterov" },
};

Test(optim_json, bad_values_are_refused_with_the_json_path)
{
    for (size_t i = 0; i < sizeof bad_configs / sizeof bad_configs[0]; i++) {
        ebb_optim_options o = { .lr = 7 };
        ebb_status st = ebb_optim_options_parse(&o, bad_configs[i].json, "train.optimizer");
        cr_expect(st == EBB_EINVAL && o.lr == 7, "%s: %s", bad_configs[i].json,
                  ebb_status_name(st));
        cr_expect(strstr(ebb_message(), bad_configs[i].word), "%s: \"%s\" lacks \"%s\"",
                  bad_configs[i].json, ebb_message(), bad_configs[i].word);
    }
    check_no_live_blocks();
}

Test(optim_json, a_key_given_twice_is_refused)
{
    ebb_optim_options o;
    check_fails(ebb_optim_options_parse(&o, "{\"lr\":1,\"lr\":2}", "train.optimizer"),
                EBB_EFORMAT); /* B69 */
    check_message("duplicate");
    check_message("lr");
}
