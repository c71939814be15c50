// SPDX-License-Identifier: MIT
// msgpack.c: a strict reader of MessagePack (github.com/msgpack/msgpack, spec.md) in memory.
#include "msgpack.h"

#include <string.h>

enum { MAX_DEPTH = 32 };

static uint64_t big_endian(const unsigned char *p, int n)
{
    uint64_t value = 0;
    for (int k = 0; k < n; k++) value = value << 8 | p[k];
    return value;
}

static double signed_number(const unsigned char *p, int n)
{
    int unused = 64 - 8 * n;
    return (double)((int64_t)(big_endian(p, n) << unused) >> unused);
}

static double floating(const unsigned char *p, int n)
{
    uint64_t bits = big_endian(p, n);
    uint32_t half = (uint32_t)bits;
    double wide;
    float narrow;
    memcpy(&wide, &bits, sizeof wide);
    memcpy(&narrow, &half, sizeof narrow);
    return n == 8 ? wide : (double)narrow;
}

// Reads one head at *cursor: scalars, texts and bytes whole, arrays and maps up to their first item. False where the bytes
// end before what they announce, or the code does not exist.
static bool head(const unsigned char **cursor, const unsigned char *end, msgpack_value *v)
{
    const unsigned char *p = *cursor;
    if (p == end) return false;
    unsigned code = *p++;
    int n_length = -1; // bytes of a length that follows
    *v = (msgpack_value){.kind = MSGPACK_NIL, .end = end};
    if (code < 0x80 || code >= 0xe0) {
        v->kind = MSGPACK_NUMBER;
        v->number = code < 0x80 ? (double)code : (double)code - 256;
    } else if (code < 0xa0) {
        v->kind = code < 0x90 ? MSGPACK_MAP : MSGPACK_ARRAY;
        v->n = code & 15;
    } else if (code < 0xc0) {
        v->kind = MSGPACK_TEXT;
        v->n = code & 31;
    } else if (code == 0xc2 || code == 0xc3) {
        v->kind = MSGPACK_BOOL;
        v->number = code == 0xc3;
    } else if (code >= 0xc4 && code <= 0xc9) {
        v->kind = code < 0xc7 ? MSGPACK_BYTES : MSGPACK_EXTENSION;
        n_length = 1 << (code - (code < 0xc7 ? 0xc4 : 0xc7));
    } else if (code >= 0xca && code <= 0xd3) {
        int n = code < 0xcc ? 4 << (code - 0xca) : 1 << ((code - 0xcc) & 3);
        if (end - p < n) return false;
        v->kind = MSGPACK_NUMBER;
        v->number = code < 0xcc ? floating(p, n) : code < 0xd0 ? (double)big_endian(p, n) : signed_number(p, n);
        p += n;
    } else if (code >= 0xd4 && code <= 0xd8) {
        v->kind = MSGPACK_EXTENSION;
        v->n = 1u << (code - 0xd4);
    } else if (code >= 0xd9 && code <= 0xdb) {
        v->kind = MSGPACK_TEXT;
        n_length = 1 << (code - 0xd9);
    } else if (code >= 0xdc) {
        v->kind = code < 0xde ? MSGPACK_ARRAY : MSGPACK_MAP;
        n_length = code & 1 ? 4 : 2;
    } else if (code != 0xc0) {
        return false;
    }
    if (n_length > 0) {
        if (end - p < n_length) return false;
        v->n = (uint32_t)big_endian(p, n_length);
        p += n_length;
    }
    if (v->kind == MSGPACK_EXTENSION) {
        if (p == end) return false;
        v->extension = (int)(signed char)*p++;
    }
    // An item takes at least one byte, so no count can be larger than what is left.
    if ((uint64_t)v->n * (v->kind == MSGPACK_MAP ? 2 : 1) > (uint64_t)(end - p)) return false;
    v->data = p;
    *cursor = v->kind == MSGPACK_ARRAY || v->kind == MSGPACK_MAP ? p : p + v->n;
    return true;
}

static bool skip(const unsigned char **cursor, const unsigned char *end, int depth)
{
    msgpack_value v;
    if (!head(cursor, end, &v)) return false;
    if (v.kind != MSGPACK_ARRAY && v.kind != MSGPACK_MAP) return true;
    if (depth == MAX_DEPTH) return false;
    uint64_t n = (uint64_t)v.n * (v.kind == MSGPACK_MAP ? 2 : 1);
    for (uint64_t k = 0; k < n; k++)
        if (!skip(cursor, end, depth + 1)) return false;
    return true;
}

mlff_status msgpack_parse(const void *bytes, size_t length, const char *what, msgpack_value *value_out)
{
    const unsigned char *start = bytes, *cursor = start, *end = start + length;
    if (length == 0 || !skip(&cursor, end, 0))
        return mlff_fail(MLFF_ERR_FORMAT, "%s: is not MessagePack, or was cut short (its bytes end before what they announce)",
                         what);
    if (cursor != end)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: %zu byte%s behind the end of its MessagePack", what, (size_t)(end - cursor),
                         base_plural(end - cursor));
    cursor = start;
    head(&cursor, end, value_out);
    return MLFF_OK;
}

static bool nth(const msgpack_value *of, uint64_t index, msgpack_value *value_out, msgpack_value *next_out)
{
    const unsigned char *cursor = of->data;
    for (uint64_t k = 0; k < index; k++)
        if (!skip(&cursor, of->end, 0)) return false;
    if (!head(&cursor, of->end, value_out)) return false;
    if (!next_out) return true;
    cursor = of->data;
    for (uint64_t k = 0; k <= index; k++)
        if (!skip(&cursor, of->end, 0)) return false;
    return head(&cursor, of->end, next_out);
}

bool msgpack_item(const msgpack_value *array, uint32_t index, msgpack_value *value_out)
{
    return array->kind == MSGPACK_ARRAY && index < array->n && nth(array, index, value_out, NULL);
}

bool msgpack_pair(const msgpack_value *map, uint32_t index, msgpack_value *key_out, msgpack_value *value_out)
{
    return map->kind == MSGPACK_MAP && index < map->n && nth(map, 2 * (uint64_t)index, key_out, value_out);
}

bool msgpack_equals(const msgpack_value *value, const char *text)
{
    size_t length = strlen(text);
    return value->kind == MSGPACK_TEXT && value->n == length && memcmp(value->data, text, length) == 0;
}

// Of equal keys the last counts, as in Python.
bool msgpack_get(const msgpack_value *map, const char *key, msgpack_value *value_out)
{
    if (map->kind != MSGPACK_MAP) return false;
    const unsigned char *cursor = map->data;
    bool found = false;
    for (uint32_t k = 0; k < map->n; k++) {
        msgpack_value name;
        const unsigned char *start = cursor;
        if (!skip(&cursor, map->end, 0) || !head(&start, map->end, &name)) return false;
        start = cursor;
        if (!skip(&cursor, map->end, 0)) return false;
        if (msgpack_equals(&name, key)) found = head(&start, map->end, value_out);
    }
    return found;
}
