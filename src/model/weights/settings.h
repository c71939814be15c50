/* SPDX-License-Identifier: MIT */
/* settings.h: settings of a new model, as text, into the options of its architecture. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include "base/base.h"
#include "mlff.h"

typedef enum model_setting_kind {
    SETTING_COUNT,  /* int, from `least` to `most` */
    SETTING_NUMBER, /* double, from `least` to `most` */
    SETTING_FLAG,   /* int: "true" or "false" */
    SETTING_SEED,   /* uint64_t */
    SETTING_TEXT    /* const char *, borrowed from the caller; one of `choices` if there are any */
} model_setting_kind;

/* One setting of an architecture. A table of them ends with a name of NULL. */
typedef struct model_setting {
    const char *name, *value, *description; /* value: the default, NULL: not set */
    model_setting_kind kind;
    size_t offset; /* in the architecture's struct of options */
    double least, most;
    const char *const *choices; /* ends with NULL */
} model_setting;

/* Fills `options`, a zeroed struct, from the defaults of the table, then from `preset` and then from `given`, which end with a name of NULL
 * and may be NULL. Fails with MLFF_ERR_USAGE for a setting that is unknown or twice there, and for a value out of range. */
mlff_status model_settings_parse(const char *architecture, const model_setting *table, const mlff_setting *preset,
                                 const mlff_setting *given, void *options);

#endif
