// SPDX-License-Identifier: MIT
// verdict_file.c: a verdict as JSON.
#include <math.h>
#include <string.h>

#include "train/fitting/train_record.h"
#include "verdict.h"

static bool has_speed(const mlff_verdict *verdict)
{
    for (int k = 0; k < verdict->n_bars; k++)
        if (strcmp(verdict->bars[k].name, "speed") == 0) return true;
    return false;
}

// Of several.
static void add_compositions(base_text *text, const mlff_verdict *verdict)
{
    if (verdict->n_compositions < 2) return;
    base_text_add(text, ",\n  \"errors_by_composition\": [");
    for (int k = 0; k < verdict->n_compositions; k++) {
        const verdict_composition *c = &verdict->compositions[k];
        base_text_add(text, "%s\n    {", k ? "," : "");
        record_text(text, true, "composition", c->name);
        record_integer(text, false, "n_structures", c->n_structures);
        record_number(text, false, "force_mae_ev_per_angstrom", composition_force_error(c));
        record_number(text, false, "energy_mae_ev_per_atom", composition_energy_error(c));
        base_text_add(text, "}");
    }
    base_text_add(text, "\n  ]");
}

mlff_status mlff_verdict_save(const mlff_verdict *verdict, const char *path)
{
    static const char *const states[] = {"passed", "failed", "not measured"};
    const mlff_verdict_options *o = &verdict->options;
    base_text text = {0};
    base_text_add(&text, "{\n  ");
    record_text(&text, true, "verdict", verdict->partial ? "not finished" : mlff_verdict_passed(verdict) ? "passed" : "failed");
    record_text(&text, false, "student", verdict->student);
    record_text(&text, false, "teacher", verdict->teacher[0] ? verdict->teacher : NULL);
    record_integer(&text, false, "seed", (int64_t)o->seed);
    record_number(&text, false, "timestep_fs", o->timestep_fs);
    record_number(&text, false, "temperature_k", o->temperature_kelvin);
    if (has_speed(verdict)) record_number(&text, false, "speed_s", o->speed_s);
    record_number(&text, false, "teacher_force_deviation_ev_per_angstrom", verdict->teacher_spread);
    if (isfinite(verdict->stress_error)) record_number(&text, false, "stress_mae_ev_per_angstrom3", verdict->stress_error);
    base_text_add(&text, ",\n  \"force_mae_by_element_ev_per_angstrom\": {");
    for (int z = 0, n = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        if (isfinite(verdict->force_error[z])) record_number(&text, n++ == 0, mlff_element_symbol(z), verdict->force_error[z]);
    base_text_add(&text, "}");
    add_compositions(&text, verdict);
    base_text_add(&text, ",\n  \"elements_not_judged\": [");
    for (int k = 0; k < verdict->n_unjudged; k++)
        base_text_add(&text, "%s\"%s\"", k ? ", " : "", mlff_element_symbol(verdict->unjudged[k]));
    base_text_add(&text, "],\n  \"bars\": [");
    for (int k = 0; k < verdict->n_bars; k++) {
        const mlff_bar *bar = &verdict->bars[k];
        base_text_add(&text, "%s\n    {", k ? "," : "");
        record_text(&text, true, "name", bar->name);
        if (bar->system[0]) record_text(&text, false, "system", bar->system);
        record_text(&text, false, "state", states[bar->state]);
        record_number(&text, false, "value", bar->value);
        record_number(&text, false, "uncertainty", bar->uncertainty);
        record_number(&text, false, "limit", bar->limit);
        record_text(&text, false, "must", bar->at_least ? "reach" : "not exceed");
        record_text(&text, false, "unit", bar->unit);
        record_text(&text, false, "text", bar->text);
        base_text_add(&text, "}");
    }
    base_text_add(&text, "\n  ]\n}\n");
    mlff_status status = base_text_write(&text, path);
    base_text_free(&text);
    return status;
}
