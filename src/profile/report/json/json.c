// SPDX-License-Identifier: MIT
// json.c: JSON as text: numbers that read back to the same bits, in any locale; NaN is never written, it is null.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

static void json_next(json *j)
{
    if (!j->empty) base_text_add(&j->text, ",");
    if (!j->flat && j->depth > 0)
        base_text_add(&j->text, "\n%*s", 2 * j->depth, "");
    else if (!j->empty)
        base_text_add(&j->text, " ");
    j->empty = false;
}

static void json_quote(json *j, const char *value)
{
    base_text_add(&j->text, "\"");
    char escaped[8];
    while (*value) {
        value += base_json_character(value, escaped);
        if (j->html && strchr("<>&", escaped[0]))
            base_text_add(&j->text, "\\u%04x", (unsigned)escaped[0]);
        else
            base_text_add(&j->text, "%s", escaped);
    }
    base_text_add(&j->text, "\"");
}

static void json_value(json *j, double value)
{
    base_text_add_number(&j->text, value, 15, 17);
}

static void json_key(json *j, const char *key)
{
    json_next(j);
    if (!key) return;
    json_quote(j, key);
    base_text_add(&j->text, ": ");
}

void json_open(json *j, const char *key, char bracket)
{
    json_key(j, key);
    base_text_add(&j->text, "%c", bracket);
    j->depth++;
    j->empty = true;
}

void json_close(json *j, char bracket)
{
    j->depth--;
    if (!j->empty && !j->flat) base_text_add(&j->text, "\n%*s", 2 * j->depth, "");
    base_text_add(&j->text, "%c", bracket);
    j->empty = false;
}

void json_number(json *j, const char *key, double value)
{
    json_key(j, key);
    json_value(j, value);
}

void json_integer(json *j, const char *key, int64_t value)
{
    json_key(j, key);
    base_text_add(&j->text, "%lld", (long long)value);
}

void json_string(json *j, const char *key, const char *value)
{
    json_key(j, key);
    json_quote(j, value);
}

void json_boolean(json *j, const char *key, int value)
{
    json_key(j, key);
    base_text_add(&j->text, value < 0 ? "null" : value ? "true" : "false");
}

void json_numbers(json *j, const char *key, const double *values, int64_t n)
{
    json_open(j, key, '[');
    j->flat = true;
    for (int64_t i = 0; i < n; i++) json_number(j, NULL, values[i]);
    json_close(j, ']');
    j->flat = false;
}

mlff_status json_take(json *j, char **text_out)
{
    base_text_add(&j->text, "\n");
    mlff_status status = j->text.status;
    if (status == MLFF_OK)
        *text_out = j->text.text;
    else
        base_text_free(&j->text);
    return status;
}
