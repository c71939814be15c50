// SPDX-License-Identifier: MIT
// settings.c: settings of a new model: defaults, ranges, and errors that name what was expected.
#include "settings.h"

#include <stdio.h>
#include <string.h>

static mlff_status set_choice(const model_setting *setting, const char *value, void *field)
{
    base_text known = {0};
    for (int i = 0; setting->choices && setting->choices[i]; i++) {
        base_text_add(&known, "%s%s", i ? ", " : "", setting->choices[i]);
        if (value && strcmp(value, setting->choices[i]) == 0) {
            base_text_free(&known);
            memcpy(field, &setting->choices[i], sizeof setting->choices[i]);
            return MLFF_OK;
        }
    }
    mlff_status status = MLFF_OK;
    if (setting->choices)
        status = mlff_fail(MLFF_ERR_USAGE, "%s is '%.40s'; expected one of %s", setting->name, value ? value : "", known.text);
    else
        memcpy(field, &value, sizeof value);
    base_text_free(&known);
    return status;
}

static mlff_status set(const model_setting *setting, const char *value, void *options)
{
    void *field = (char *)options + setting->offset;
    int64_t whole = 0;
    double number = 0;
    if (setting->kind == SETTING_TEXT) return set_choice(setting, value, field);
    if (!value) return mlff_fail(MLFF_ERR_USAGE, "%s has no value", setting->name);
    switch (setting->kind) {
    case SETTING_COUNT:
        if (!base_parse_int64(value, &whole) || (double)whole < setting->least || (double)whole > setting->most)
            return mlff_fail(MLFF_ERR_USAGE, "%s is '%.40s', not a whole number from %g to %g", setting->name, value,
                             setting->least, setting->most);
        *(int *)field = (int)whole;
        break;
    case SETTING_NUMBER:
        if (!base_parse_double(value, &number) || !(number >= setting->least && number <= setting->most))
            return mlff_fail(MLFF_ERR_USAGE, "%s is '%.40s', not a number from %g to %g", setting->name, value, setting->least,
                             setting->most);
        *(double *)field = number;
        break;
    case SETTING_SEED:
        if (!base_parse_int64(value, &whole) || whole < 0)
            return mlff_fail(MLFF_ERR_USAGE, "%s is '%.40s', not a whole number from 0 to 2^63 - 1", setting->name, value);
        *(uint64_t *)field = (uint64_t)whole;
        break;
    default:
        if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
            return mlff_fail(MLFF_ERR_USAGE, "%s is '%.40s'; expected true or false", setting->name, value);
        *(int *)field = value[0] == 't';
    }
    return MLFF_OK;
}

static mlff_status unknown_setting(const char *architecture, const model_setting *table, const char *name)
{
    base_text known = {0};
    for (const model_setting *s = table; s->name; s++) base_text_add(&known, "%s%s", s == table ? "" : ", ", s->name);
    mlff_status status = mlff_fail(MLFF_ERR_USAGE, "architecture '%s' has no setting '%.40s'; it has %s", architecture, name,
                                   known.text ? known.text : "none");
    base_text_free(&known);
    return status;
}

static mlff_status set_all(const char *architecture, const model_setting *table, const mlff_setting *given, void *options)
{
    mlff_status status = MLFF_OK;
    for (const mlff_setting *g = given; g && g->name; g++) {
        const model_setting *s = table;
        while (s->name && strcmp(s->name, g->name) != 0) s++;
        if (!s->name) return unknown_setting(architecture, table, g->name);
        for (const mlff_setting *before = given; before < g; before++)
            if (strcmp(before->name, g->name) == 0) MLFF_FAIL(MLFF_ERR_USAGE, "setting '%s' is given twice", g->name);
        MLFF_TRY(set(s, g->value, options));
    }
done:
    return status;
}

mlff_status model_settings_parse(const char *architecture, const model_setting *table, const mlff_setting *preset,
                                 const mlff_setting *given, void *options)
{
    mlff_status status = MLFF_OK;
    for (const model_setting *s = table; s->name; s++)
        if (s->value) MLFF_TRY(set(s, s->value, options));
    MLFF_TRY(set_all(architecture, table, preset, options));
    MLFF_TRY(set_all(architecture, table, given, options));
done:
    return status;
}
