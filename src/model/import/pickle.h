/* SPDX-License-Identifier: MIT */
/* pickle.h: a pickle read as data. Nothing in it is ever executed or looked up: a class is its name, an object is
 * {class, arguments, state}. The values form a graph that may share parts and refer to itself, so code that walks it
 * bounds the walk. Binary opcodes of protocols 2 to 5, as torch.save writes them. */
#ifndef PICKLE_H
#define PICKLE_H

#include "base/base.h"

typedef enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL, /* integer: 0 or 1 */
    PICKLE_INTEGER,
    PICKLE_REAL,
    PICKLE_TEXT, /* UTF-8 without NUL, terminated */
    PICKLE_BYTES,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_SET,
    PICKLE_DICT,      /* also collections.OrderedDict; items are key, value, key, value, … */
    PICKLE_GLOBAL,    /* text: "module.name" of a class or function */
    PICKLE_OBJECT,    /* items: class (a PICKLE_GLOBAL), arguments, state (NULL if none was given) */
    PICKLE_PERSISTENT /* items: the identifier */
} pickle_kind;

typedef struct pickle_value pickle_value;
struct pickle_value {
    pickle_kind kind;
    uint32_t n, capacity; /* items, or bytes of text */
    union {
        int64_t integer;
        double real;
        const char *text;
        pickle_value **items;
    };
};

typedef struct pickle pickle;
/* Reads the pickle that begins `bytes`; `name` begins the error text. Memory is bounded whatever the input says. */
mlff_status pickle_parse(const char *bytes, size_t length, const char *name, pickle **pickle_out);
/* Borrowed until the pickle is destroyed, as all values. */
const pickle_value *pickle_root(const pickle *pickle);
/* "module.name" of the class or function that the pickle names at this place, in the order of the file and also where no value
 * refers to it; NULL from the number of them on. */
const char *pickle_global(const pickle *pickle, size_t index);
void pickle_destroy(pickle *pickle);

/* Value of a text key; NULL if absent or if `dict` is NULL or no dictionary. */
const pickle_value *pickle_get(const pickle_value *dict, const char *key);
/* Class name of an object ("torch.nn.modules.linear.Identity"), else a word for what it is ("a dictionary"). */
const char *pickle_class(const pickle_value *value);
/* Whether it is an object of this class. */
bool pickle_is(const pickle_value *value, const char *class_name);
/* The text, or `otherwise` if it is none. */
const char *pickle_text(const pickle_value *value, const char *otherwise);
/* State of an object; NULL if it has none or `value` is not an object. */
const pickle_value *pickle_state(const pickle_value *value);

#endif
