/* SPDX-License-Identifier: MIT */
/* msgpack.h: a strict reader of MessagePack in memory: bounds are checked once, then values are found without copies. */
#ifndef MSGPACK_H
#define MSGPACK_H

#include "base/base.h"

enum msgpack_kind {
    MSGPACK_NIL,
    MSGPACK_BOOL,
    MSGPACK_NUMBER,
    MSGPACK_TEXT,
    MSGPACK_BYTES,
    MSGPACK_EXTENSION,
    MSGPACK_ARRAY,
    MSGPACK_MAP
};

typedef struct msgpack_value {
    enum msgpack_kind kind;
    int extension;             /* type of an extension */
    uint32_t n;                /* bytes of a text, of bytes, of an extension; items of an array, pairs of a map */
    double number;             /* also 0 and 1 of a bool */
    const unsigned char *data; /* the bytes, or the first item */
    const unsigned char *end;  /* of all that was checked */
} msgpack_value;

/* One value that fills `length` bytes, with all that is in it; fails on a length that lies, a code that does not exist, a
 * nesting deeper than 32. `what` names it in errors. */
mlff_status msgpack_parse(const void *bytes, size_t length, const char *what, msgpack_value *value_out);
/* Of checked values: item of an array; value of a map's key (false: absent; of equal keys the last), or key and value by index; equality with a text. */
bool msgpack_item(const msgpack_value *array, uint32_t index, msgpack_value *value_out);
bool msgpack_get(const msgpack_value *map, const char *key, msgpack_value *value_out);
bool msgpack_pair(const msgpack_value *map, uint32_t index, msgpack_value *key_out, msgpack_value *value_out);
bool msgpack_equals(const msgpack_value *value, const char *text);

#endif
