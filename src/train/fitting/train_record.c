// SPDX-License-Identifier: MIT
// train_record.c: JSON of runs and verdicts, as it is written.
#include "train_record.h"

#include <inttypes.h>
#include <math.h>

static void add_key(base_text *text, bool first, const char *key)
{
    base_text_add(text, "%s\"%s\": ", first ? "" : ", ", key);
}

void record_number(base_text *text, bool first, const char *key, double value)
{
    add_key(text, first, key);
    base_text_add_number(text, value, 9, 9);
}

void record_exact(base_text *text, bool first, const char *key, double value)
{
    add_key(text, first, key);
    base_text_add_number(text, value, 6, 17);
}

void record_integer(base_text *text, bool first, const char *key, int64_t value)
{
    add_key(text, first, key);
    base_text_add(text, "%" PRId64, value);
}

static void add_string(base_text *text, bool first, const char *key, const char *value, bool keep_bytes)
{
    add_key(text, first, key);
    if (!value) {
        base_text_add(text, "null");
        return;
    }
    char escaped[8];
    base_text_add(text, "\"");
    while (*value) {
        const bool is_text = !keep_bytes || base_utf8_length(value) > 0;
        if (!is_text) base_text_add(text, "\\udc%02x", (unsigned)(unsigned char)*value); // as Python's surrogateescape
        value += base_json_character(value, escaped);
        if (is_text) base_text_add(text, "%s", escaped);
    }
    base_text_add(text, "\"");
}

void record_text(base_text *text, bool first, const char *key, const char *value)
{
    add_string(text, first, key, value, false);
}

void record_names(base_text *text, bool first, const char *key, const char *value)
{
    add_string(text, first, key, value, true);
}
