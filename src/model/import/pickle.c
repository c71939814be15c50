// SPDX-License-Identifier: MIT
// pickle.c: the stack machine of Python's pickle, without the part that runs code.
//
// Values live in one arena with a fixed budget, so that a small file cannot claim much memory; nothing here
// recurses, so that depth needs no stack.
#include "pickle.h"

#include <inttypes.h>
#include <string.h>

#include "model/model.h"

enum {
    CHUNK_BYTES = 64 << 10,
    MAX_ARENA_BYTES = 64 << 20,
    MAX_STACK = 1000000,
    MAX_MEMO = 1000000,
    MAX_MARKS = 10000,
    MAX_DICT_ITEMS = 20000, // keys and values; a lookup takes linear time
    MAX_TEXT_BYTES = 1 << 20,
};

typedef struct chunk chunk;
struct chunk {
    chunk *next;
    size_t used, size;
    _Alignas(16) char data[];
};

struct pickle {
    const unsigned char *bytes;
    size_t length, at;
    size_t opcode_at; // offset of the opcode being run, for errors
    const char *name;
    chunk *chunks;
    size_t arena_bytes;
    pickle_value **stack, **memo;
    size_t n_stack, stack_capacity, n_memo, memo_capacity;
    uint32_t *marks;
    size_t n_marks, mark_capacity;
    pickle_value **globals; // every one named, also where the stack no longer holds it
    size_t n_globals, global_capacity;
    pickle_value *root;
};

// ---- memory

static mlff_status fail(const pickle *p, const char *what)
{
    return mlff_fail(MLFF_ERR_FORMAT, "%s: %s (at byte %zu of the pickle)", p->name, what, p->opcode_at);
}

static void *arena_alloc(pickle *p, size_t bytes)
{
    bytes = (bytes + 15) / 16 * 16;
    if (!p->chunks || p->chunks->size - p->chunks->used < bytes) {
        size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        if (size > MAX_ARENA_BYTES - p->arena_bytes) {
            mlff_fail(MLFF_ERR_LIMIT, "%s: its pickle unfolds to more than %d MB, no model's description does (at byte %zu)",
                      p->name, MAX_ARENA_BYTES >> 20, p->opcode_at);
            return NULL;
        }
        chunk *fresh = base_alloc(1, sizeof *fresh + size, "a pickle");
        if (!fresh) return NULL;
        fresh->size = size;
        fresh->next = p->chunks;
        p->chunks = fresh;
        p->arena_bytes += size;
    }
    void *memory = p->chunks->data + p->chunks->used;
    p->chunks->used += bytes;
    return memory;
}

static mlff_status push(pickle *p, pickle_value *value)
{
    if (p->n_stack >= MAX_STACK) return fail(p, "too many values on the stack");
    mlff_status status = base_grow(&p->stack, &p->stack_capacity, p->n_stack + 1, sizeof *p->stack, "a pickle");
    if (status == MLFF_OK) p->stack[p->n_stack++] = value;
    return status;
}

static pickle_value *make(pickle *p, pickle_kind kind)
{
    pickle_value *value = arena_alloc(p, sizeof *value);
    if (value) value->kind = kind;
    return value;
}

// NULL is a failed allocation with the text set: budget or memory.
static mlff_status push_made(pickle *p, pickle_value *value)
{
    return value ? push(p, value) : MLFF_ERR_LIMIT;
}

static mlff_status push_integer(pickle *p, pickle_kind kind, int64_t integer)
{
    pickle_value *value = make(p, kind);
    if (value) value->integer = integer;
    return push_made(p, value);
}

static mlff_status extend(pickle *p, pickle_value *container, pickle_value *const *items, size_t n)
{
    if (n == 0) return MLFF_OK;
    size_t count = container->n + n; // both are at most MAX_STACK, or bounded by the arena
    if (container->kind == PICKLE_DICT && count > MAX_DICT_ITEMS)
        return mlff_fail(MLFF_ERR_LIMIT, "%s: a dictionary with more than %d entries (at byte %zu of the pickle)", p->name,
                         MAX_DICT_ITEMS / 2, p->opcode_at);
    if (count > container->capacity) {
        size_t capacity = count + container->capacity / 2;
        pickle_value **grown = arena_alloc(p, capacity * sizeof *grown);
        if (!grown) return MLFF_ERR_LIMIT;
        if (container->n) memcpy(grown, container->items, container->n * sizeof *grown);
        container->items = grown;
        container->capacity = (uint32_t)capacity;
    }
    memcpy(container->items + container->n, items, n * sizeof *items);
    container->n = (uint32_t)count;
    return MLFF_OK;
}

// ---- the stack

// The topmost `n` values, none of them below the last mark.
static mlff_status top(pickle *p, size_t n, pickle_value ***values_out)
{
    size_t floor = p->n_marks ? p->marks[p->n_marks - 1] : 0;
    if (p->n_stack - floor < n) return fail(p, "an opcode needs more values than the stack has");
    *values_out = p->stack + p->n_stack - n;
    return MLFF_OK;
}

// Takes away the last mark; the values above it are stack[*first_out] … stack[n_stack - 1].
static mlff_status pop_mark(pickle *p, size_t *first_out)
{
    if (p->n_marks == 0) return fail(p, "an opcode needs a mark that is not there");
    *first_out = p->marks[--p->n_marks];
    return MLFF_OK;
}

// A container of the values from stack[first] on, in their place.
static mlff_status collect(pickle *p, pickle_kind kind, size_t first)
{
    pickle_value *container = make(p, kind);
    if (!container) return MLFF_ERR_LIMIT;
    mlff_status status = extend(p, container, p->stack + first, p->n_stack - first);
    p->n_stack = first;
    return status == MLFF_OK ? push(p, container) : status;
}

// stack[first] … are added to the container just below them. An inert object accepts and drops them.
static mlff_status add_items(pickle *p, size_t first, bool pairs)
{
    size_t floor = p->n_marks ? p->marks[p->n_marks - 1] : 0;
    if (first <= floor) return fail(p, "items without a container");
    pickle_value *container = p->stack[first - 1];
    size_t n = p->n_stack - first;
    bool fits = pairs ? container->kind == PICKLE_DICT : container->kind == PICKLE_LIST || container->kind == PICKLE_SET;
    if (!fits && container->kind != PICKLE_OBJECT) return fail(p, "items for something that holds none");
    if (pairs && n % 2 != 0) return fail(p, "a key without a value");
    mlff_status status = fits ? extend(p, container, p->stack + first, n) : MLFF_OK;
    p->n_stack = first;
    return status;
}

// OrderedDict([[key, value], …]) is the one call whose result is more than an inert object.
static mlff_status ordered_dict(pickle *p, const pickle_value *arguments, pickle_value **value_out)
{
    pickle_value *dict = make(p, PICKLE_DICT);
    if (!dict) return MLFF_ERR_LIMIT;
    const pickle_value *pairs = arguments->n == 1 ? arguments->items[0] : NULL;
    if (arguments->n > 1 || (pairs && pairs->kind != PICKLE_LIST))
        return fail(p, "an OrderedDict whose arguments are not a list");
    for (uint32_t i = 0; pairs && i < pairs->n; i++) {
        const pickle_value *pair = pairs->items[i];
        if ((pair->kind != PICKLE_LIST && pair->kind != PICKLE_TUPLE) || pair->n != 2)
            return fail(p, "an OrderedDict with an item that is not a pair");
        mlff_status status = extend(p, dict, pair->items, 2);
        if (status != MLFF_OK) return status;
    }
    *value_out = dict;
    return MLFF_OK;
}

// REDUCE, NEWOBJ, NEWOBJ_EX: the class and its arguments become an object. The arguments' names are not kept.
static mlff_status make_object(pickle *p, size_t n_values)
{
    pickle_value **values = NULL, *object = NULL;
    mlff_status status = top(p, n_values, &values);
    if (status != MLFF_OK) return status;
    if (values[0]->kind != PICKLE_GLOBAL || values[1]->kind != PICKLE_TUPLE)
        return fail(p, "a call of something that is not a class");
    if (strcmp(values[0]->text, "collections.OrderedDict") == 0) {
        status = ordered_dict(p, values[1], &object);
    } else if (!(object = make(p, PICKLE_OBJECT))) {
        status = MLFF_ERR_LIMIT;
    } else {
        pickle_value *parts[3] = {values[0], values[1], NULL};
        status = extend(p, object, parts, 3);
    }
    if (status != MLFF_OK) return status;
    p->n_stack -= n_values;
    return push(p, object);
}

static mlff_status build(pickle *p)
{
    pickle_value **values = NULL;
    mlff_status status = top(p, 2, &values);
    if (status != MLFF_OK) return status;
    if (values[0]->kind == PICKLE_OBJECT)
        values[0]->items[2] = values[1];
    else if (values[0]->kind != PICKLE_DICT) // the attributes of an OrderedDict are not read
        return fail(p, "state for something that is not an object");
    p->n_stack--;
    return MLFF_OK;
}

// ---- the memo

static mlff_status memo_put(pickle *p, size_t index)
{
    pickle_value **value = NULL;
    mlff_status status = top(p, 1, &value);
    if (status != MLFF_OK) return status;
    if (index >= MAX_MEMO) return fail(p, "a memo index beyond a million");
    status = base_grow(&p->memo, &p->memo_capacity, index + 1, sizeof *p->memo, "a pickle"); // new places are NULL
    if (status != MLFF_OK) return status;
    p->n_memo += p->memo[index] == NULL;
    p->memo[index] = *value;
    return MLFF_OK;
}

static mlff_status memo_get(pickle *p, size_t index)
{
    if (index >= p->memo_capacity || !p->memo[index]) return fail(p, "a memo index that was never filled");
    return push(p, p->memo[index]);
}

// ---- arguments of opcodes

static mlff_status take(pickle *p, uint64_t n, const unsigned char **bytes_out)
{
    if (n > p->length - p->at) return fail(p, "it ends in the middle: truncated");
    *bytes_out = p->bytes + p->at;
    p->at += n;
    return MLFF_OK;
}

// Little-endian, n <= 8.
static mlff_status take_unsigned(pickle *p, int n, uint64_t *value_out)
{
    const unsigned char *bytes = NULL;
    mlff_status status = take(p, (uint64_t)n, &bytes);
    if (status != MLFF_OK) return status;
    *value_out = 0;
    for (int i = n - 1; i >= 0; i--) *value_out = *value_out << 8 | bytes[i];
    return MLFF_OK;
}

static mlff_status push_text(pickle *p, pickle_kind kind, const unsigned char *bytes, uint64_t n)
{
    if (n > MAX_TEXT_BYTES) return fail(p, "a text longer than a megabyte");
    if (kind == PICKLE_TEXT && (memchr(bytes, 0, n) || !weights_utf8_valid((const char *)bytes, n)))
        return fail(p, "a text that is not UTF-8");
    pickle_value *value = make(p, kind);
    char *copy = value ? arena_alloc(p, n + 1) : NULL;
    if (!copy) return MLFF_ERR_LIMIT;
    memcpy(copy, bytes, n); // the arena is zeroed: terminated
    value->text = copy;
    value->n = (uint32_t)n;
    return push(p, value);
}

static mlff_status push_counted(pickle *p, pickle_kind kind, int count_bytes)
{
    uint64_t n = 0;
    const unsigned char *bytes = NULL;
    mlff_status status = take_unsigned(p, count_bytes, &n);
    if (status == MLFF_OK) status = take(p, n, &bytes);
    return status == MLFF_OK ? push_text(p, kind, bytes, n) : status;
}

// Two's complement of n bytes; more than 8 are refused.
static mlff_status push_long(pickle *p, int count_bytes)
{
    uint64_t n = 0, value = 0;
    mlff_status status = take_unsigned(p, count_bytes, &n);
    if (status == MLFF_OK && n > 8) return fail(p, "an integer of more than 64 bits");
    if (status == MLFF_OK) status = take_unsigned(p, (int)n, &value);
    if (status != MLFF_OK) return status;
    if (n > 0 && n < 8 && value >> (8 * n - 1)) value |= ~(uint64_t)0 << (8 * n);
    return push_integer(p, PICKLE_INTEGER, (int64_t)value);
}

static mlff_status push_real(pickle *p)
{
    const unsigned char *bytes = NULL;
    mlff_status status = take(p, 8, &bytes);
    if (status != MLFF_OK) return status;
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++) bits = bits << 8 | bytes[i]; // the only big-endian opcode
    pickle_value *value = make(p, PICKLE_REAL);
    if (value) memcpy(&value->real, &bits, sizeof bits);
    return push_made(p, value);
}

static mlff_status push_global(pickle *p, const char *module, size_t module_bytes, const char *name, size_t name_bytes)
{
    if (module_bytes > 500 || name_bytes > 500) return fail(p, "a class name of more than 500 bytes");
    pickle_value *value = make(p, PICKLE_GLOBAL);
    char *text = value ? arena_alloc(p, module_bytes + name_bytes + 2) : NULL;
    if (!text) return MLFF_ERR_LIMIT;
    memcpy(text, module, module_bytes);
    text[module_bytes] = '.';
    memcpy(text + module_bytes + 1, name, name_bytes);
    value->text = text;
    value->n = (uint32_t)(module_bytes + name_bytes + 1);
    if (memchr(text, 0, value->n) || !weights_utf8_valid(text, value->n)) return fail(p, "a class name that is not UTF-8");
    mlff_status status = base_grow(&p->globals, &p->global_capacity, p->n_globals + 1, sizeof *p->globals, "a pickle");
    if (status != MLFF_OK) return status;
    p->globals[p->n_globals++] = value;
    return push(p, value);
}

// GLOBAL: two lines.
static mlff_status take_global(pickle *p)
{
    const char *line[2];
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        line[i] = (const char *)p->bytes + p->at;
        const char *end = memchr(line[i], '\n', p->length - p->at);
        if (!end) return fail(p, "it ends in the middle of a class name: truncated");
        bytes[i] = (size_t)(end - line[i]);
        p->at += bytes[i] + 1;
    }
    return push_global(p, line[0], bytes[0], line[1], bytes[1]);
}

static mlff_status stack_global(pickle *p)
{
    pickle_value **values = NULL;
    mlff_status status = top(p, 2, &values);
    if (status != MLFF_OK) return status;
    if (values[0]->kind != PICKLE_TEXT || values[1]->kind != PICKLE_TEXT) return fail(p, "a class whose name is not a text");
    const pickle_value *module = values[0], *name = values[1];
    p->n_stack -= 2;
    return push_global(p, module->text, module->n, name->text, name->n);
}

// ---- opcodes

static mlff_status protocol(pickle *p)
{
    uint64_t number = 0;
    mlff_status status = take_unsigned(p, 1, &number);
    if (status == MLFF_OK && number > 5)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: pickle protocol %" PRIu64 "; 2 to 5 are read", p->name, number);
    return status;
}

static mlff_status persistent(pickle *p)
{
    pickle_value **values = NULL;
    mlff_status status = top(p, 1, &values);
    return status == MLFF_OK ? collect(p, PICKLE_PERSISTENT, p->n_stack - 1) : status;
}

static mlff_status mark(pickle *p)
{
    if (p->n_marks >= MAX_MARKS) return fail(p, "it is nested too deeply");
    mlff_status status = base_grow(&p->marks, &p->mark_capacity, p->n_marks + 1, sizeof *p->marks, "a pickle");
    if (status == MLFF_OK) p->marks[p->n_marks++] = (uint32_t)p->n_stack;
    return status;
}

static mlff_status pop(pickle *p)
{
    pickle_value **values = NULL;
    mlff_status status = top(p, 1, &values);
    if (status == MLFF_OK) p->n_stack--;
    return status;
}

static mlff_status unsigned_then(pickle *p, int n, mlff_status (*use)(pickle *, size_t))
{
    uint64_t value = 0;
    mlff_status status = take_unsigned(p, n, &value);
    return status == MLFF_OK ? use(p, (size_t)value) : status;
}

static mlff_status push_index(pickle *p, size_t value)
{
    return push_integer(p, PICKLE_INTEGER, (int64_t)value);
}

static mlff_status push_int32(pickle *p, size_t value)
{
    return push_integer(p, PICKLE_INTEGER, (int32_t)(uint32_t)value);
}

// FRAME: the length of what follows; only a hint for readers of streams.
static mlff_status skip_frame(pickle *p, size_t value)
{
    (void)p;
    (void)value;
    return MLFF_OK;
}

static mlff_status tuple_of(pickle *p, size_t n)
{
    pickle_value **values = NULL;
    mlff_status status = top(p, n, &values);
    return status == MLFF_OK ? collect(p, PICKLE_TUPLE, p->n_stack - n) : status;
}

static mlff_status marked(pickle *p, unsigned char opcode)
{
    size_t first = 0;
    mlff_status status = pop_mark(p, &first);
    if (status != MLFF_OK) return status;
    switch (opcode) {
    case 't': return collect(p, PICKLE_TUPLE, first);
    case 'l': return collect(p, PICKLE_LIST, first);
    case 0x91: return collect(p, PICKLE_SET, first);
    case 'd':
        if ((p->n_stack - first) % 2 != 0) return fail(p, "a key without a value");
        return collect(p, PICKLE_DICT, first);
    case 'e':
    case 0x90: return add_items(p, first, false);
    case 'u': return add_items(p, first, true);
    default: p->n_stack = first; return MLFF_OK; // POP_MARK
    }
}

static mlff_status one_item(pickle *p, size_t n)
{
    pickle_value **values = NULL;
    mlff_status status = top(p, n + 1, &values);
    return status == MLFF_OK ? add_items(p, p->n_stack - n, n == 2) : status;
}

static mlff_status run_opcode(pickle *p, unsigned char opcode)
{
    switch (opcode) {
    case 0x80: return protocol(p);
    case 0x95: return unsigned_then(p, 8, skip_frame);
    case '(': return mark(p);
    case '0': return pop(p);
    case 'N': return push_made(p, make(p, PICKLE_NONE));
    case 0x88: return push_integer(p, PICKLE_BOOL, 1);
    case 0x89: return push_integer(p, PICKLE_BOOL, 0);
    case 'J': return unsigned_then(p, 4, push_int32);
    case 'K': return unsigned_then(p, 1, push_index);
    case 'M': return unsigned_then(p, 2, push_index);
    case 0x8a: return push_long(p, 1);
    case 0x8b: return push_long(p, 4);
    case 'G': return push_real(p);
    case 'X': return push_counted(p, PICKLE_TEXT, 4);
    case 0x8c: return push_counted(p, PICKLE_TEXT, 1);
    case 0x8d: return push_counted(p, PICKLE_TEXT, 8);
    case 'U':
    case 'C': return push_counted(p, PICKLE_BYTES, 1);
    case 'T':
    case 'B': return push_counted(p, PICKLE_BYTES, 4);
    case 0x8e: return push_counted(p, PICKLE_BYTES, 8);
    case ')': return push_made(p, make(p, PICKLE_TUPLE));
    case ']': return push_made(p, make(p, PICKLE_LIST));
    case '}': return push_made(p, make(p, PICKLE_DICT));
    case 0x8f: return push_made(p, make(p, PICKLE_SET));
    case 0x85: return tuple_of(p, 1);
    case 0x86: return tuple_of(p, 2);
    case 0x87: return tuple_of(p, 3);
    case 't':
    case 'l':
    case 'd':
    case 'e':
    case 'u':
    case '1':
    case 0x90:
    case 0x91: return marked(p, opcode);
    case 'a': return one_item(p, 1);
    case 's': return one_item(p, 2);
    case 'q': return unsigned_then(p, 1, memo_put);
    case 'r': return unsigned_then(p, 4, memo_put);
    case 0x94: return memo_put(p, p->n_memo);
    case 'h': return unsigned_then(p, 1, memo_get);
    case 'j': return unsigned_then(p, 4, memo_get);
    case 'c': return take_global(p);
    case 0x93: return stack_global(p);
    case 'R':
    case 0x81: return make_object(p, 2);
    case 0x92: return make_object(p, 3);
    case 'b': return build(p);
    case 'Q': return persistent(p);
    default:
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: pickle opcode 0x%02x at byte %zu is none that torch.save writes", p->name,
                         opcode, p->opcode_at);
    }
}

mlff_status pickle_parse(const char *bytes, size_t length, const char *name, pickle **pickle_out)
{
    mlff_status status = MLFF_OK;
    pickle *p = base_alloc(1, sizeof *p, "a pickle");
    if (!p) return MLFF_ERR_MEMORY;
    p->bytes = (const unsigned char *)bytes;
    p->length = length;
    p->name = name;
    MLFF_TRY(base_grow(&p->stack, &p->stack_capacity, 64, sizeof *p->stack, "a pickle")); // never NULL from here on

    for (;;) {
        p->opcode_at = p->at;
        if (p->at == length) {
            status = fail(p, "it ends without a STOP: truncated");
            goto done;
        }
        unsigned char opcode = p->bytes[p->at++];
        if (opcode == '.') break;
        MLFF_TRY(run_opcode(p, opcode));
    }
    pickle_value **values = NULL;
    MLFF_TRY(top(p, 1, &values));
    p->root = *values;
    p->bytes = NULL; // the caller's; no value points into it
    *pickle_out = p;
    p = NULL;
done:
    pickle_destroy(p);
    return status;
}

const pickle_value *pickle_root(const pickle *p)
{
    return p->root;
}

const char *pickle_global(const pickle *p, size_t index)
{
    return index < p->n_globals ? p->globals[index]->text : NULL;
}

void pickle_destroy(pickle *p)
{
    if (!p) return;
    while (p->chunks) {
        chunk *next = p->chunks->next;
        base_free(p->chunks);
        p->chunks = next;
    }
    base_free(p->stack);
    base_free(p->memo);
    base_free(p->marks);
    base_free(p->globals);
    base_free(p);
}

// ---- access to values

const pickle_value *pickle_get(const pickle_value *dict, const char *key)
{
    if (!dict || dict->kind != PICKLE_DICT) return NULL;
    for (uint32_t i = dict->n; i >= 2; i -= 2) // the last of equal keys counts
        if (dict->items[i - 2]->kind == PICKLE_TEXT && strcmp(dict->items[i - 2]->text, key) == 0) return dict->items[i - 1];
    return NULL;
}

const char *pickle_class(const pickle_value *value)
{
    static const char *const words[] = {
        [PICKLE_NONE] = "None",   [PICKLE_BOOL] = "a bool",       [PICKLE_INTEGER] = "an integer",   [PICKLE_REAL] = "a number",
        [PICKLE_TEXT] = "a text", [PICKLE_BYTES] = "bytes",       [PICKLE_TUPLE] = "a tuple",        [PICKLE_LIST] = "a list",
        [PICKLE_SET] = "a set",   [PICKLE_DICT] = "a dictionary", [PICKLE_PERSISTENT] = "a storage",
    };
    if (!value) return "missing";
    if (value->kind == PICKLE_OBJECT) return value->items[0]->text;
    return value->kind == PICKLE_GLOBAL ? value->text : words[value->kind];
}

const pickle_value *pickle_state(const pickle_value *value)
{
    return value && value->kind == PICKLE_OBJECT ? value->items[2] : NULL;
}

bool pickle_is(const pickle_value *value, const char *class_name)
{
    return value && value->kind == PICKLE_OBJECT && strcmp(value->items[0]->text, class_name) == 0;
}

const char *pickle_text(const pickle_value *value, const char *otherwise)
{
    return value && value->kind == PICKLE_TEXT ? value->text : otherwise;
}
