#include "report/emit.h"

#include <string.h>

#include "core/assert.h"
#include "core/mem.h"

/* Opcodes of pickle protocol 2. */
enum {
    PROTO = 0x80,
    STOP = '.',
    EMPTY_DICT = '}',
    EMPTY_LIST = ']',
    MARK = '(',
    SETITEMS = 'u',
    APPENDS = 'e',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    LONG1 = 0x8a,
    BINUNICODE = 'X',
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    BINPUT = 'q',
    LONG_BINPUT = 'r',
    BINGET = 'h',
    LONG_BINGET = 'j'
};

static void put(ebb__emit *e, unsigned char opcode) { ebb__out_bytes(e->out, &opcode, 1); }

/* Little endian, whatever the machine. */
static void put_word(ebb__emit *e, uint64_t value, int n_bytes)
{
    unsigned char bytes[8];
    for (int i = 0; i < n_bytes; i++) bytes[i] = (unsigned char)(value >> (8 * i));
    ebb__out_bytes(e->out, bytes, (size_t)n_bytes);
}

/* ---- what is remembered ------------------------------------------------------------------- */

static size_t memo_place(const ebb__emit *e, const void *key)
{
    size_t mask = e->memo_capacity - 1, at = ((uintptr_t)key * 0x9e3779b97f4a7c15u >> 20) & mask;
    while (e->memo[at].key && e->memo[at].key != key) at = (at + 1) & mask;
    return at;
}

static ebb_status grow_memo(ebb__emit *e)
{
    if (e->n_memo * 2 < e->memo_capacity) return EBB_OK;
    ebb__emit old = *e;
    e->memo_capacity = old.memo_capacity ? old.memo_capacity * 2 : 256;
    e->memo = ebb__calloc(e->memo_capacity, sizeof *e->memo);
    if (!e->memo) {
        *e = old;
        return EBB_ENOMEM;
    }
    for (size_t i = 0; i < old.memo_capacity; i++)
        if (old.memo[i].key) e->memo[memo_place(e, old.memo[i].key)] = old.memo[i];
    ebb__free(old.memo);
    return EBB_OK;
}

static bool get(ebb__emit *e, const void *thing)
{
    size_t at = e->memo_capacity ? memo_place(e, thing) : 0;
    if (!e->memo_capacity || !e->memo[at].key) return false;
    uint32_t index = e->memo[at].index;
    put(e, index < 256 ? BINGET : LONG_BINGET);
    put_word(e, index, index < 256 ? 1 : 4);
    return true;
}

void ebb__emit_remember(ebb__emit *e, const void *thing)
{
    if (!e->pickle || e->out->status != EBB_OK) return;
    e->out->status = grow_memo(e);
    if (e->out->status != EBB_OK) return;
    uint32_t index = (uint32_t)e->n_memo++;
    size_t at = memo_place(e, thing);
    e->memo[at].key = thing;
    e->memo[at].index = index;
    put(e, index < 256 ? BINPUT : LONG_BINPUT);
    put_word(e, index, index < 256 ? 1 : 4);
}

/* ---- places ------------------------------------------------------------------------------- */

/* Before a value: as an item of a list it needs a comma, or now and then a new batch. */
static void begin_value(ebb__emit *e)
{
    if (e->depth == 0 || !e->open[e->depth - 1].list) return;
    int n = e->open[e->depth - 1].n++;
    if (e->pickle && n > 0 && n % EBB__EMIT_BATCH == 0) {
        put(e, APPENDS);
        put(e, MARK);
    }
    if (!e->pickle && n > 0) ebb__out_text(e->out, ",\n");
}

static void open_place(ebb__emit *e, bool list)
{
    begin_value(e);
    EBB_ASSERT(e->depth < EBB__EMIT_DEPTH);
    e->open[e->depth].list = list;
    e->open[e->depth++].n = 0;
    if (!e->pickle) {
        ebb__out_text(e->out, list ? "[" : "{");
        return;
    }
    put(e, list ? EMPTY_LIST : EMPTY_DICT);
    put(e, MARK);
}

void ebb__emit_dict(ebb__emit *e) { open_place(e, false); }
void ebb__emit_list(ebb__emit *e) { open_place(e, true); }

void ebb__emit_end(ebb__emit *e)
{
    bool list = e->open[--e->depth].list;
    if (e->pickle)
        put(e, list ? APPENDS : SETITEMS);
    else
        ebb__out_text(e->out, list ? "]" : "}");
}

/* ---- values ------------------------------------------------------------------------------- */

static void put_text(ebb__emit *e, const char *text)
{
    if (!e->pickle) {
        ebb__out_json(e->out, text);
    } else if (!get(e, text)) {
        put(e, BINUNICODE);
        put_word(e, strlen(text), 4);
        ebb__out_text(e->out, text);
        ebb__emit_remember(e, text);
    }
}

void ebb__emit_key(ebb__emit *e, const char *key)
{
    bool first = e->open[e->depth - 1].n++ == 0;
    if (!e->pickle && !first) ebb__out_text(e->out, ", ");
    put_text(e, key);
    if (!e->pickle) ebb__out_text(e->out, ": ");
}

void ebb__emit_text(ebb__emit *e, const char *text)
{
    begin_value(e);
    put_text(e, text);
}

void ebb__emit_number(ebb__emit *e, uint64_t value)
{
    begin_value(e);
    if (!e->pickle) {
        ebb__out_printf(e->out, "%llu", (unsigned long long)value);
    } else if (value < 1u << 8) {
        put(e, BININT1);
        put_word(e, value, 1);
    } else if (value < 1u << 16) {
        put(e, BININT2);
        put_word(e, value, 2);
    } else if (value < 1u << 31) {
        put(e, BININT);
        put_word(e, value, 4);
    } else { /* signed: a top bit needs a byte of zeros, which no size here comes near */
        put(e, LONG1);
        put_word(e, 8, 1);
        put_word(e, value & INT64_MAX, 8);
    }
}

void ebb__emit_bool(ebb__emit *e, bool value)
{
    begin_value(e);
    if (e->pickle)
        put(e, value ? NEWTRUE : NEWFALSE);
    else
        ebb__out_text(e->out, value ? "true" : "false");
}

bool ebb__emit_again(ebb__emit *e, const void *thing)
{
    size_t at = e->pickle && e->memo_capacity ? memo_place(e, thing) : 0;
    if (!e->pickle || !e->memo_capacity || !e->memo[at].key) return false;
    begin_value(e);
    return get(e, thing);
}

void ebb__emit_begin(ebb__emit *e, ebb__out *out, bool pickle)
{
    *e = (ebb__emit){ .out = out, .pickle = pickle };
    if (!pickle) return;
    put(e, PROTO);
    put(e, 2);
}

void ebb__emit_finish(ebb__emit *e)
{
    if (e->pickle)
        put(e, STOP);
    else
        ebb__out_text(e->out, "\n");
    ebb__free(e->memo);
}
