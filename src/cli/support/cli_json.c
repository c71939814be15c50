// SPDX-License-Identifier: MIT
// cli_json.c: JSON written value by value, so that a million frames need the memory of one.
#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "base/base.h"
#include "cli.h"

static void quote(FILE *file, const char *text)
{
    fputc('"', file);
    char escaped[8];
    while (*text) {
        text += base_json_character(text, escaped);
        fputs(escaped, file);
    }
    fputc('"', file);
}

static void before(cli_json *json, const char *key)
{
    bool compact = json->compact[json->depth];
    if (json->filled[json->depth]) fputs(compact ? ", " : ",", json->file);
    if (json->depth > 0 && !compact) fprintf(json->file, "\n%*s", 2 * json->depth, "");
    json->filled[json->depth] = true;
    if (key) {
        quote(json->file, key);
        fputs(": ", json->file);
    }
}

static void open_bracket(cli_json *json, const char *key, char bracket, bool compact)
{
    before(json, key);
    fputc(bracket, json->file);
    json->depth++;
    assert(json->depth < CLI_JSON_DEPTH);
    json->filled[json->depth] = false;
    json->compact[json->depth] = compact;
}

void cli_json_object(cli_json *json, const char *key)
{
    open_bracket(json, key, '{', false);
}

void cli_json_array(cli_json *json, const char *key)
{
    open_bracket(json, key, '[', false);
}

void cli_json_compact_array(cli_json *json, const char *key)
{
    open_bracket(json, key, '[', true);
}

void cli_json_end(cli_json *json, char bracket)
{
    bool on_new_line = json->filled[json->depth] && !json->compact[json->depth];
    json->depth--;
    if (on_new_line) fprintf(json->file, "\n%*s", 2 * json->depth, "");
    fputc(bracket, json->file);
    if (json->depth == 0) fputc('\n', json->file);
}

void cli_json_text(cli_json *json, const char *key, const char *text)
{
    before(json, key);
    if (text)
        quote(json->file, text);
    else
        fputs("null", json->file);
}

// 17 digits give every double back; whole numbers come out short by themselves.
void cli_json_number(cli_json *json, const char *key, double value)
{
    before(json, key);
    if (isfinite(value))
        fprintf(json->file, "%.17g", value);
    else
        fputs("null", json->file);
}

void cli_json_int(cli_json *json, const char *key, int64_t value)
{
    before(json, key);
    fprintf(json->file, "%" PRId64, value);
}

void cli_json_bool(cli_json *json, const char *key, bool value)
{
    before(json, key);
    fputs(value ? "true" : "false", json->file);
}

void cli_json_numbers(cli_json *json, const char *key, const double *values, int n)
{
    if (!values) {
        cli_json_text(json, key, NULL);
        return;
    }
    cli_json_compact_array(json, key);
    for (int i = 0; i < n; i++) cli_json_number(json, NULL, values[i]);
    cli_json_end(json, ']');
}
