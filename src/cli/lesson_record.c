#include "lesson_record.h"

#include <string.h>

static const char *const kinds[] = {
    [LESSON_BEGINS] = "begin", [LESSON_BEFORE] = "before",   [LESSON_AFTER] = "step", [LESSON_REFUSED] = "refused",
    [LESSON_SAYS] = "say",     [LESSON_HOLDS] = "check",     [LESSON_WHY] = "why",    [LESSON_TABLE] = "table",
    [LESSON_LEAK] = "leak",
    [LESSON_ENDS] = "end",     [LESSON_FAILS] = "failed",
};

static const char *const slot_states[] = {
    [EBB_SLOT_EMPTY] = "empty",       [EBB_SLOT_KEPT] = "kept",     [EBB_SLOT_PROMISED] = "promised",
    [EBB_SLOT_REFILLED] = "refilled", [EBB_SLOT_PACKED] = "packed", [EBB_SLOT_UNPACKED] = "unpacked",
    [EBB_SLOT_RELEASED] = "released",
};

/* ---- what is alive ------------------------------------------------------------------------ */

static void put_names(cli_json *json, cJSON *state, const lesson_state *s)
{
    cJSON *names = cli_put_array(json, state, "names");
    for (int i = 0; i < s->n_names; i++) {
        const lesson_name *n = &s->names[i];
        cJSON *name = cli_add_object(json, names);
        cli_put_text(json, name, "name", n->name);
        cli_put_text(json, name, "function", n->function);
        cli_put_text(json, name, "tensor", n->shape);
        cli_put_number(json, name, "storage", (double)n->storage);
        cli_put_bytes(json, name, "bytes", n->bytes);
        cli_put_bytes(json, name, "gradient_bytes", n->grad_bytes);
        cli_put_number(json, name, "references", n->references);
        cli_put_bool(json, name, "same_as_before", n->same);
    }
}

static void put_tape(cli_json *json, cJSON *state, const lesson_state *s)
{
    cJSON *tape = cli_put_array(json, state, "tape");
    for (int i = 0; i < s->n_nodes; i++) {
        cJSON *node = cli_add_object(json, tape);
        cli_put_number(json, node, "node", (double)s->nodes[i].seq);
        cli_put_text(json, node, "op", s->nodes[i].op);
        cJSON *slots = cli_put_array(json, node, "slots");
        for (int k = 0; k < s->nodes[i].n_slots; k++) {
            cJSON *slot = cli_add_object(json, slots);
            cli_put_text(json, slot, "name", s->nodes[i].slots[k].name);
            cli_put_text(json, slot, "state", slot_states[s->nodes[i].slots[k].state]);
            cli_put_bytes(json, slot, "bytes", s->nodes[i].slots[k].bytes);
        }
    }
}

static void put_state(cli_json *json, cJSON *event, const lesson_state *s)
{
    cJSON *state = cli_put_object(json, event, "state");
    cli_put_bytes(json, state, "allocated_bytes", s->allocated_bytes);
    cli_put_bytes(json, state, "reserved_bytes", s->reserved_bytes);
    cli_put_bytes(json, state, "saved_bytes", s->saved_bytes);
    cli_put_number(json, state, "live_nodes", (double)s->live_nodes);
    put_names(json, state, s);
    put_tape(json, state, s);
}

/* ---- events ------------------------------------------------------------------------------- */

typedef struct recording {
    cli_json *json;
    cJSON *events;
} recording;

static bool record(void *user, const lesson_event *e)
{
    recording *r = user;
    if (e->kind == LESSON_BEFORE) return true; /* the step follows */
    cJSON *event = cli_add_object(r->json, r->events);
    cli_put_text(r->json, event, "kind", kinds[e->kind]);
    if (e->line) cli_put_number(r->json, event, "line", e->line);
    if (e->function) cli_put_text(r->json, event, "function", e->function);
    if (e->text) cli_put_text(r->json, event, "text", e->text);
    if (e->detail) cli_put_text(r->json, event, "detail", e->detail);
    if (e->state) put_state(r->json, event, e->state);
    return true;
}

bool lesson_silent_view(void *user, const lesson_event *e)
{
    (void)user;
    if (e->kind == LESSON_FAILS) fprintf(stderr, "ebb: lesson %s: line %d: %s\n", e->lesson->name, e->line, e->text);
    return true;
}

int cli_record_lessons(cli_json *json, const course_entry *from, int n)
{
    int n_failed = 0;
    cJSON *list = cli_put_array(json, NULL, "lessons");
    for (int i = 0; i < n; i++) {
        cJSON *one = cli_add_object(json, list);
        cli_put_text(json, one, "name", from[i].lesson->name);
        cli_put_text(json, one, "claim", from[i].lesson->claim);
        cli_put_text(json, one, "source", (const char *)from[i].source->text);
        recording r = { json, cli_put_array(json, one, "events") };
        bool holds = lesson_run(from[i].lesson, record, &r) == LESSON_TRUE;
        cli_put_bool(json, one, "holds", holds);
        n_failed += !holds;
    }
    return n_failed;
}
