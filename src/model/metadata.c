// SPDX-License-Identifier: MIT
// metadata.c: what the metadata of all model files have in common: numbers and choices by key, elements, what a new model's say.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"

mlff_status model_metadata_number(const mlff_model *model, const char *key, double least, double most, double *value_out)
{
    const char *text = weights_get(&model->file, key);
    double value;
    if (!text) return mlff_fail(MLFF_ERR_FORMAT, "%s: its metadata has no %s", model->name, key);
    if (!base_parse_double(text, &value) || !(value >= least && value <= most))
        return mlff_fail(MLFF_ERR_FORMAT, "%s: metadata %s is \"%.40s\"; expected a number from %g to %g", model->name, key, text,
                         least, most);
    *value_out = value;
    return MLFF_OK;
}

mlff_status model_metadata_count(const mlff_model *model, const char *key, int least, int most, int *value_out)
{
    const char *text = weights_get(&model->file, key);
    int64_t value;
    if (!text) return mlff_fail(MLFF_ERR_FORMAT, "%s: its metadata has no %s", model->name, key);
    if (!base_parse_int64(text, &value) || value < least || value > most)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: metadata %s is \"%.40s\"; expected a whole number from %d to %d", model->name, key,
                         text, least, most);
    *value_out = (int)value;
    return MLFF_OK;
}

mlff_status model_metadata_choice(const mlff_model *model, const char *key, const char *const *choices, int *index_out)
{
    const char *text = weights_get(&model->file, key);
    base_text known = {0};
    if (!text) return mlff_fail(MLFF_ERR_FORMAT, "%s: its metadata has no %s", model->name, key);
    for (int i = 0; choices[i]; i++) {
        if (strcmp(text, choices[i]) == 0) {
            *index_out = i;
            base_text_free(&known);
            return MLFF_OK;
        }
        base_text_add(&known, "%s\"%s\"", i ? ", " : "", choices[i]);
    }
    mlff_status status = mlff_fail(MLFF_ERR_FORMAT, "%s: metadata %s is \"%.40s\"; known are %s", model->name, key, text,
                                   known.text ? known.text : "none");
    base_text_free(&known);
    return status;
}

mlff_status model_energy_unit(const char *name, double *ev_out)
{
    static const struct {
        const char *name;
        double ev;
    } units[] = {{"kcal/mol", BASE_KCAL_PER_MOL_EV}, {"eV", 1.0}, {"Hartree", BASE_HARTREE_EV}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].name, name) == 0) {
            *ev_out = units[i].ev;
            return MLFF_OK;
        }
    return mlff_fail(MLFF_ERR_USAGE, "energy unit \"%.40s\" is not known; use kcal/mol, eV or Hartree", name);
}

// One element of a list: a symbol or an atomic number. 0 if it is neither.
static int element_of(const char *token, size_t length)
{
    char text[8];
    int64_t number;
    if (length == 0 || length >= sizeof text) return 0;
    memcpy(text, token, length);
    text[length] = 0;
    if (isdigit((unsigned char)text[0]))
        return base_parse_int64(text, &number) && number >= 1 && number <= MLFF_MAX_ATOMIC_NUMBER ? (int)number : 0;
    return mlff_element_number(text);
}

mlff_status model_elements_parse(const char *elements, bool known[MLFF_MAX_ATOMIC_NUMBER + 1])
{
    memset(known, 0, (MLFF_MAX_ATOMIC_NUMBER + 1) * sizeof *known);
    for (const char *token = elements;;) {
        token += strspn(token, " ");
        size_t length = strcspn(token, " ,");
        int number = element_of(token, length);
        if (number == 0)
            return mlff_fail(MLFF_ERR_ELEMENT,
                             "\"%.*s\" in the elements \"%.60s\" is not an element; expected a list such as H,C,O",
                             (int)(length < 20 ? length : 20), token, elements);
        if (known[number])
            return mlff_fail(MLFF_ERR_ELEMENT, "element %d appears twice in the elements \"%.60s\"", number, elements);
        known[number] = true;
        token += length;
        token += strspn(token, " ");
        if (*token == 0) return MLFF_OK;
        if (*token++ != ',') return mlff_fail(MLFF_ERR_ELEMENT, "the elements \"%.60s\" are not a list such as H,C,O", elements);
    }
}

mlff_status model_elements_set(model_weights *weights, const char *elements)
{
    mlff_status status = MLFF_OK;
    bool known[MLFF_MAX_ATOMIC_NUMBER + 1];
    base_text text = {0};

    if (!elements) return weights_set(weights, "elements", "unknown");
    MLFF_TRY(model_elements_parse(elements, known));
    for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        if (known[z]) base_text_add(&text, "%s%d", text.length ? "," : "", z);
    MLFF_TRY(text.status);
    MLFF_TRY(weights_set(weights, "elements", "%s", text.text));
done:
    base_text_free(&text);
    return status;
}

mlff_status model_elements_set_within(model_weights *weights, const char *elements, int last, const char *kind)
{
    mlff_status status = MLFF_OK;
    bool known[MLFF_MAX_ATOMIC_NUMBER + 1];
    base_text all = {0};
    if (!elements) {
        for (int z = 1; z <= last; z++) base_text_add(&all, "%s%d", z > 1 ? "," : "", z);
        MLFF_TRY(all.status);
        elements = all.text;
    }
    MLFF_TRY(model_elements_parse(elements, known));
    for (int z = last + 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        if (known[z]) MLFF_FAIL(MLFF_ERR_ELEMENT, "element %d in \"%.60s\": %s has 1 to %d", z, elements, kind, last);
    MLFF_TRY(model_elements_set(weights, elements));
done:
    base_text_free(&all);
    return status;
}

mlff_status model_untrained_set(model_weights *weights, const char *architecture, uint64_t seed)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(weights_set(weights, "format", "mlff"));
    MLFF_TRY(weights_set(weights, "architecture", "%s", architecture));
    MLFF_TRY(weights_set(weights, "energy_unit", "eV"));
    MLFF_TRY(weights_set(weights, "energy_unit_ev", "1"));
    MLFF_TRY(weights_set(weights, "length_unit", "Ang"));
    MLFF_TRY(weights_set(weights, "length_unit_angstrom", "1"));
    MLFF_TRY(weights_set(weights, "trained", "false"));
    MLFF_TRY(weights_set(weights, "seed", "%llu", (unsigned long long)seed));
    MLFF_TRY(weights_set(weights, "source", "new"));
    MLFF_TRY(weights_set(weights, "source_version", "%s", mlff_version()));
done:
    return status;
}
