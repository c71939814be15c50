// SPDX-License-Identifier: MIT
// cli_json.c: JSON written value by value, so that a million frames need the memory of one.
#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "cli.h"

// Bytes of the well-formed UTF-8 character at `text`, or 0: a file's name may be any bytes, JSON may not.
static int character_bytes(const unsigned char *text)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    int n = text[0] < 0x80                      ? 1
            : text[0] >= 0xc2 && text[0] < 0xe0 ? 2
            : (text[0] & 0xf0) == 0xe0          ? 3
            : (text[0] & 0xf8) == 0xf0          ? 4
                                                : 0;
    unsigned code = n > 1 ? text[0] & (0x7fu >> n) : text[0];
    for (int i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    return n > 1 && (code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) ? 0 : n;
}

static void quote(FILE *file, const char *text)
{
    fputc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        int n = character_bytes(c);
        if (n == 0)
            fputs("\\ufffd", file);
        else if (*c == '"' || *c == '\\')
            fprintf(file, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f)
            fprintf(file, "\\u%04x", *c);
        else
            fwrite(c, 1, (size_t)n, file);
        c += n ? n : 1;
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
