#include "drawn_config.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "draw.h"

static void add(drawn_config *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(drawn_config *c, const char *format, ...)
{
    size_t at = strlen(c->json), room = sizeof(c->json) - at;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(c->json + at, room, format, args);
    va_end(args);
    cr_assert(n >= 0 && (size_t)n < room, "a drawn config is too long");
}

static const char *pick(draw *d, int n, const char *const words[]) { return words[draw_int(d, n)]; }
#define PICK(d, ...) pick(d, (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *)), \
                          (const char *[]){ __VA_ARGS__ })

static void add_mlp(drawn_config *c, draw *d)
{
    add(c, "\"model\":{\"type\":\"mlp\",\"input\":%d,\"hidden\":%s,\"output\":%d,\"activation\":\"%s\","
        "\"dropout\":%s,\"frozen\":%s},", 3 + draw_int(d, 200),
        PICK(d, "[]", "[300]", "[64,32,64]", "[40,40,40,40,40]"), 2 + draw_int(d, 20),
        PICK(d, "relu", "gelu_tanh", "gelu_erf", "silu", "tanh", "sigmoid"),
        PICK(d, "0", "0", "0.2"), PICK(d, "[]", "[]", "[\"layers.0.weight\"]", "[\"*.bias\"]"));
}

static void add_gpt(drawn_config *c, draw *d)
{
    int kv = 1 << draw_int(d, 3), head_dim = 2 * (1 + draw_int(d, 8));
    int width = draw_int(d, 2) ? 4 * head_dim : 8 + draw_int(d, 60);
    add(c, "\"model\":{\"type\":\"gpt\",\"layers\":%d,\"heads\":4,\"kv_heads\":%d,\"head_dim\":%d,"
        "\"width\":%d,\"ffn_width\":%d,\"context\":%d,\"vocab\":%d,", 1 + draw_int(d, 5), kv, head_dim, width,
        width + draw_int(d, 100), 3 + draw_int(d, 30), 10 + draw_int(d, 300));
    add(c, "\"norm\":\"%s\",\"activation\":\"%s\",\"position\":\"%s\",\"bias\":%s,\"dropout\":%s,"
        "\"tie_embeddings\":%s,\"frozen\":%s},", PICK(d, "layernorm", "rmsnorm"),
        PICK(d, "gelu_tanh", "gelu_erf", "relu", "silu", "swiglu"), PICK(d, "learned", "rope"),
        PICK(d, "true", "false"), PICK(d, "0", "0", "0.1"), PICK(d, "true", "false"),
        PICK(d, "[]", "[]", "[\"embed.*\"]", "[\"blocks.0.*\"]"));
}

static void add_train(drawn_config *c, draw *d, bool tokens, int batch, int accumulate)
{
    int steps = 1 + draw_int(d, 9);
    bool fused = draw_chance(d, 0.4);
    const char *precision = PICK(d, "f32", "f32", "f64", "bf16", "f16");
    const char *scale = fused ? "null" : PICK(d, "null", "{}", "{\"init\":1e9,\"interval\":2}"); /* 1e9: f16 skips */
    add(c, "\"train\":{\"steps\":%d,\"batch\":%d,\"accumulate\":%d,\"precision\":\"%s\",\"loss_scale\":%s,\"clip_norm\":%s,"
        "\"fuse_optimizer\":%s,\"loss_chunks\":%s,\"eval_every\":%d,\"save_every\":%d,\"optimizer\":%s},",
        steps, batch, accumulate, precision, scale, fused ? "null" : PICK(d, "null", "1.0"),
        fused ? "true" : "false", tokens ? PICK(d, "1", "1", "2", "5") : "1", draw_int(d, 4), draw_int(d, 4),
        PICK(d, "{\"type\":\"adamw\",\"lr\":1e-3}", "{\"type\":\"sgd\",\"lr\":0.01}",
             "{\"type\":\"sgd\",\"lr\":0.01,\"momentum\":0.9}"));
}

void drawn_config_make(drawn_config *out, uint64_t seed)
{
    draw draws = { seed }, *d = &draws;
    bool tokens = draw_chance(d, 0.65);
    int batch = 2 + draw_int(d, 10), accumulate = draw_int(d, 2) ? 4 : 1;
    int partial = draw_int(d, 2) ? draw_int(d, batch) : 0; /* rows of an epoch's last batch; 0: full */
    int items = batch * (1 + draw_int(d, 9)) + partial;
    if (draw_chance(d, 0.2)) items = 1 + draw_int(d, batch); /* evaluation may then have larger batches */
    *out = (drawn_config){ .threads = 1 + draw_int(d, 2), .save = draw_int(d, 2) };
    add(out, "{\"name\":\"drawn-%llu\",\"seed\":%d,", (unsigned long long)seed, draw_int(d, 1000));
    if (tokens) add_gpt(out, d);
    else add_mlp(out, d);
    add(out, "\"data\":{\"type\":\"synthetic\",\"kind\":\"%s\",\"items\":%d,\"eval_items\":%d,\"seed\":1,"
        "\"workers\":%d,\"prefetch\":%d},", tokens ? "tokens" : "samples", items,
        draw_int(d, 3) ? draw_int(d, 3 * batch) : 0, draw_int(d, 3), draw_int(d, 4));
    add_train(out, d, tokens, batch, accumulate);
    const char *offload = PICK(d, "\"none\"", "\"none\"", "\"all\"", "[\"linear\",\"add\",\"attention_packed\",\"relu\"]");
    bool all = strcmp(offload, "\"all\"") == 0;
    add(out, "\"memory\":{\"checkpoint\":%s,\"recompute\":%s,\"offload\":%s,\"compress\":%s",
        PICK(d, "\"none\"", "\"every:1\"", "\"every:2\"", "\"sqrt\"", "[[0,0]]"),
        PICK(d, "[]", "[\"gelu\",\"layernorm\"]",
             "[\"gelu\",\"relu\",\"silu\",\"tanh\",\"sigmoid\",\"swiglu\",\"rmsnorm\",\"add\",\"dropout\"]"),
        offload, PICK(d, "\"none\"", "\"none\"", all ? "\"none\"" : "\"int8\"",
                      "{\"gelu\":\"int8\",\"layernorm\":\"bf16\",\"rmsnorm\":\"int8\"}"));
    add(out, ",\"offset_plan\":%s}}", PICK(d, "false", "true"));
}
