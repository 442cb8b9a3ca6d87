/* Text from a trained gpt. */
#include "train_support.h"

enum { TOKENS = 40 };

/* A gpt that has learnt "abcdefg" over and over. */
static const char alphabet_gpt[] =
    "{\"seed\":3,\"model\":{\"type\":\"gpt\",\"layers\":1,\"heads\":2,\"width\":16,\"context\":8,\"vocab\":128},"
    "\"data\":{\"type\":\"text\",\"path\":\"%s\"},"
    "\"train\":{\"steps\":60,\"batch\":16,\"optimizer\":{\"type\":\"adamw\",\"lr\":0.02}}}";

static const char *make_run(const temp_folder *folder)
{
    char text[1601], json[1024];
    for (int i = 0; i < 1600; i++) text[i] = (char)('a' + i % 7);
    text[1600] = '\0';
    write_text(temp_path(folder, "text"), text);
    snprintf(json, sizeof(json), alphabet_gpt, temp_path(folder, "text"));
    ebb_train_options options = default_options();
    options.out_dir = temp_path(folder, "run");
    ebb_train_result r = train_with(json, "", &options);
    cr_assert_lt(r.loss_last, 0.2);
    return temp_path(folder, "run");
}

static ebb_sample_options sample_options(const char *prompt, double temperature, uint64_t seed)
{
    return (ebb_sample_options){ .struct_bytes = sizeof(ebb_sample_options), .threads = 1, .prompt = prompt,
                                 .prompt_bytes = strlen(prompt), .tokens = TOKENS, .temperature = temperature,
                                 .seed = seed };
}

Test(sample, goes_on_as_the_model_has_learnt)
{
    temp_folder folder = temp_folder_make();
    const char *run = make_run(&folder);
    static const char *const prompts[] = { "c", "abc", "efgabcdefgabcdefgabc" }; /* one beyond the context */
    for (int p = 0; p < 3; p++) {
        unsigned char out[TOKENS];
        ebb_sample_options o = sample_options(prompts[p], 0, 1);
        check_ok(ebb_sample(out, run, &o));
        for (int t = 0; t < TOKENS; t++)
            cr_assert(out[t] == "defgabc"[t % 7], "%s, byte %d: %c", prompts[p], t, out[t]);
    }
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(sample, draws_by_seed_and_temperature)
{
    temp_folder folder = temp_folder_make();
    const char *run = make_run(&folder);
    unsigned char out[4][TOKENS];
    static const struct { double temperature; uint64_t seed; } ways[] = { { 5, 1 }, { 5, 1 }, { 5, 2 }, { 1e-300, 7 } };
    for (int w = 0; w < 4; w++) {
        ebb_sample_options o = sample_options("abc", ways[w].temperature, ways[w].seed);
        check_ok(ebb_sample(out[w], run, &o));
        for (int t = 0; t < TOKENS; t++) cr_assert(out[w][t] < 128);
    }
    cr_assert(memcmp(out[0], out[1], TOKENS) == 0 && memcmp(out[0], out[2], TOKENS) != 0);
    cr_assert(memcmp(out[3], "defgabcd", 8) == 0, "next to no temperature is none");
    temp_folder_remove(&folder);
}

Test(sample, refuses_what_it_cannot_do)
{
    temp_folder folder = temp_folder_make();
    const char *run = make_run(&folder);
    unsigned char out[TOKENS];
    ebb_sample_options o = sample_options("", 1, 1);
    check_fails(ebb_sample(out, run, &o), EBB_EINVAL);
    check_message("prompt");
    o = sample_options("\xC3\xA4", 1, 1);
    check_fails(ebb_sample(out, run, &o), EBB_EINVAL);
    check_message("byte 195");
    o = sample_options("a", -1, 1);
    check_fails(ebb_sample(out, run, &o), EBB_EINVAL);
    o = sample_options("a", 1, 1);
    o.tokens = 0;
    check_fails(ebb_sample(out, run, &o), EBB_EINVAL);
    o = sample_options("a", 1, 1);
    o.device = "dry:cpu";
    check_fails(ebb_sample(out, run, &o), EBB_EUNSUPPORTED);
    o = sample_options("a", 1, 1);
    check_fails(ebb_sample(out, temp_path(&folder, "absent"), &o), EBB_EIO);
    ebb_train_options options = default_options();
    options.out_dir = temp_path(&folder, "mlp");
    train_with(SMALL_MLP, "train.steps=1", &options);
    check_fails(ebb_sample(out, temp_path(&folder, "mlp"), &o), EBB_EINVAL);
    check_message("mlp");
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(sample, every_failed_allocation_is_enomem_and_leaves_nothing)
{
    temp_folder folder = temp_folder_make();
    const char *run = make_run(&folder);
    unsigned char out[TOKENS];
    ebb_sample_options o = sample_options("abc", 1, 1);
    o.tokens = 2;
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        ebb_fault_arm(n);
        ebb_status st = ebb_sample(out, run, &o);
        fired = ebb_fault_fired();
        ebb_fault_arm(0);
        cr_assert(st == (fired ? EBB_ENOMEM : EBB_OK), "allocation %llu: %s", (unsigned long long)n, ebb_message());
        check_no_live_blocks();
    }
    temp_folder_remove(&folder);
}
