// SPDX-License-Identifier: MIT
// distill_report.c: a run as a page for a browser: the verdict, learning curves, parity plots. One file, drawings as SVG.
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/drawing.h"
#include "distill.h"
#include "train/fitting/history.h"
#include "train/judging/verdict.h"

enum { MOST_POINTS = 3000 };

// ---- student beside teacher

static void draw_comparison(base_text *page, const verdict_curve *c)
{
    const bool spectrum = strcmp(c->of, "spectrum") == 0;
    drawing_axis x = {.high = c->step * (c->n - 1), .label = spectrum ? "wavenumber, 1/cm" : "distance, Å"};
    drawing_axis y = {.label = "share"};
    char title[200];
    for (int k = 0; k < c->n; k++) y.high = fmax(y.high, 1.05 * fmax(c->teacher[k], c->student[k]));
    if (!(y.high > 0)) return;
    snprintf(title, sizeof title, "%s%s%s of the teacher (gray) and the student (blue)", c->system, c->system[0] ? ": " : "",
             spectrum ? "vibrational density of states" : "distances between atoms");
    drawing_begin(page, title, &x, &y);
    drawing_line(page, &x, &y, "minor", c->step, c->teacher, c->n);
    drawing_line(page, &x, &y, "major", c->step, c->student, c->n);
    drawing_end(page);
}

// Time of a call on the first system against the error; the teacher's is its own measure.
static void draw_front(base_text *page, const mlff_verdict *verdict)
{
    if (verdict->n_times == 0 || !(verdict->total_force_error > 0)) return;
    const verdict_times *t = &verdict->times[0];
    const double error = 1e3 * verdict->total_force_error, other = 1e3 * verdict->baseline_force_error;
    const drawing_axis x = {.low = 0.5 * fmin(t->student_us, t->teacher_us),
                            .high = 4 * fmax(t->student_us, t->teacher_us),
                            .logarithmic = true,
                            .label = "time of a call, µs"};
    const drawing_axis y = {.high = 1.2 * (other > error ? other : error), .label = "force error, meV/Å"};
    drawing_begin(page, "Speed and error: down and to the left is better", &x, &y);
    base_text_add(page, "<g class=\"marks\">");
    drawing_point(page, &x, &y, t->student_us, error, "student");
    if (isfinite(other)) drawing_point(page, &x, &y, t->student_us, other, "baseline");
    drawing_point(page, &x, &y, t->teacher_us, 0, "teacher");
    base_text_add(page, "</g>");
    drawing_end(page);
}

// ---- rounds

// Appends an array of numbers of a record.
static mlff_status read_numbers(const cJSON *record, const char *key, double **values, size_t *n, size_t *capacity)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(record, key))
    {
        const mlff_status status = base_grow(values, capacity, *n + 1, sizeof **values, "deviations");
        if (status != MLFF_OK) return status;
        (*values)[(*n)++] = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    }
    return MLFF_OK;
}

// Deviation of the committee against the error of its first member, of the structures that rounds labelled.
static mlff_status draw_rounds(base_text *page, const distill *d)
{
    mlff_status status = MLFF_OK;
    double *value[2] = {NULL, NULL};
    size_t n[2] = {0, 0}, capacity[2] = {0, 0}, length;
    char *path = NULL, *text = NULL;
    cJSON *record = NULL;
    for (int k = 1; k <= d->n_rounds; k++) {
        if (!(path = distill_path(d, "round", k, ".json"))) MLFF_TRY(MLFF_ERR_MEMORY);
        MLFF_TRY(base_read_file(path, (size_t)1 << 30, &text, &length));
        record = cJSON_ParseWithLength(text, length);
        MLFF_TRY(read_numbers(record, "deviation_ev_per_angstrom", &value[0], &n[0], &capacity[0]));
        MLFF_TRY(read_numbers(record, "error_ev_per_angstrom", &value[1], &n[1], &capacity[1]));
        cJSON_Delete(record);
        base_free(text);
        base_free(path);
        record = NULL, text = path = NULL;
    }
    if (n[0] < 2 || n[0] != n[1]) goto done;
    drawing_axis axes[2] = {{.low = INFINITY, .logarithmic = true, .label = "deviation of the committee, eV/Å"},
                            {.low = INFINITY, .logarithmic = true, .label = "largest error of a force, eV/Å"}};
    for (int side = 0; side < 2; side++)
        for (size_t k = 0; k < n[side]; k++) {
            value[side][k] = fmax(value[side][k], 1e-6);
            axes[side].low = fmin(axes[side].low, 0.9 * value[side][k]);
            axes[side].high = fmax(axes[side].high, 1.1 * value[side][k]);
        }
    drawing_begin(page, "Structures of the rounds: deviation of the committee, and error of its first member", &axes[0],
                  &axes[1]);
    base_text_add(page, "<g class=\"dots\">");
    for (size_t k = 0; k < n[0]; k += n[0] / MOST_POINTS + 1)
        drawing_point(page, &axes[0], &axes[1], value[0][k], value[1][k], NULL);
    base_text_add(page, "</g>");
    drawing_end(page);
done:
    cJSON_Delete(record);
    base_free(text);
    base_free(path);
    base_free(value[0]);
    base_free(value[1]);
    return status;
}

// ---- parity ---------------------------------------------------------------------------------------------------------

typedef struct parity {
    double (*force)[2], (*energy)[2]; // label and student
    size_t n_forces, n_energies, force_capacity, energy_capacity;
} parity;

static mlff_status add_parity(parity *p, mlff_evaluator *evaluator, const mlff_system *system, int stride)
{
    mlff_status status = MLFF_OK;
    int32_t first[2];
    mlff_batch batch;
    double energy, *forces = base_alloc(3 * (size_t)system->n_atoms, sizeof *forces, "forces");
    if (!forces) return MLFF_ERR_MEMORY;
    mlff_batch_from_system(system, first, &batch);
    MLFF_TRY(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy, .forces = forces}));
    if (!isnan(system->label_energy)) {
        MLFF_TRY(base_grow(&p->energy, &p->energy_capacity, p->n_energies + 1, sizeof *p->energy, "points"));
        p->energy[p->n_energies][0] = system->label_energy / system->n_atoms;
        p->energy[p->n_energies++][1] = energy / system->n_atoms;
    }
    for (int k = 0; system->label_forces && k < 3 * system->n_atoms; k += stride) {
        MLFF_TRY(base_grow(&p->force, &p->force_capacity, p->n_forces + 1, sizeof *p->force, "points"));
        p->force[p->n_forces][0] = system->label_forces[k];
        p->force[p->n_forces++][1] = forces[k];
    }
done:
    base_free(forces);
    return status;
}

static void draw_parity(base_text *page, const char *title, double (*point)[2], size_t n, const char *unit)
{
    double low = INFINITY, high = -INFINITY, mean = 0;
    char of_label[80], of_student[80];
    if (n < 2) return;
    for (size_t k = 0; k < n; k++) {
        low = fmin(low, fmin(point[k][0], point[k][1]));
        high = fmax(high, fmax(point[k][0], point[k][1]));
        mean += point[k][0] / (double)n;
    }
    const bool shifted = fabs(mean) > 100 * (high - low); // energies: only differences can be read
    const double zero = shifted ? mean : 0, margin = 0.04 * (high - low) + 1e-12;
    snprintf(of_label, sizeof of_label, "label, %s%s", unit, shifted ? " from the mean" : "");
    snprintf(of_student, sizeof of_student, "student, %s%s", unit, shifted ? " from the mean" : "");
    const drawing_axis x = {.low = low - zero - margin, .high = high - zero + margin, .label = of_label};
    drawing_axis y = x;
    y.label = of_student;
    drawing_begin(page, title, &x, &y);
    drawing_line(page, &x, &y, "minor", x.high - x.low, (double[]){y.low, y.high}, 2);
    base_text_add(page, "<g class=\"dots\">");
    for (size_t k = 0; k < n; k += n / MOST_POINTS + 1) drawing_point(page, &x, &y, point[k][0] - zero, point[k][1] - zero, NULL);
    base_text_add(page, "</g>");
    drawing_end(page);
}

static mlff_status add_parities(base_text *page, const mlff_model *student, const mlff_dataset *test)
{
    mlff_status status = MLFF_OK;
    mlff_evaluator *evaluator = NULL;
    mlff_system *system = NULL;
    parity p = {0};
    MLFF_TRY(mlff_evaluator_create(student, NULL, &evaluator));
    for (int64_t k = 0; k < mlff_dataset_size(test); k++) {
        MLFF_TRY(mlff_dataset_get(test, k, &system));
        MLFF_TRY(add_parity(&p, evaluator, system, 1 + (int)(mlff_dataset_size(test) * 3 * system->n_atoms / (4 * MOST_POINTS))));
        mlff_system_destroy(system);
        system = NULL;
    }
    draw_parity(page, "Forces of the held-out structures", p.force, p.n_forces, "eV/Å");
    draw_parity(page, "Energies of the held-out structures", p.energy, p.n_energies, "eV/atom");
done:
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    base_free(p.force);
    base_free(p.energy);
    return status;
}

// ---- the page -------------------------------------------------------------------------------------------------------

static void add_verdict(base_text *page, const mlff_verdict *verdict, bool of_labels)
{
    static const char *const states[] = {"passed", "failed", "not measured"};
    int n;
    const mlff_bar *bars = mlff_verdict_bars(verdict, &n);
    const bool passed = mlff_verdict_passed(verdict);
    base_text_add(page,
                  "<p class=\"verdict %s\">%s</p><table "
                  "class=\"bars\"><tr><th>bar</th><th></th><th>measured</th><th>limit</th><th>how</th></tr>",
                  passed ? "passed" : "failed",
                  !passed     ? "Failed: at least one limit is not met."
                  : of_labels ? "Passed: within every limit the student may be used for structures like those of its labels."
                              : "Passed: within every limit the student may stand in for its teacher.");
    for (int k = 0; k < n; k++) {
        base_text_add(page, "<tr><td>");
        drawing_text(page, bars[k].name);
        base_text_add(page, "</td><td class=\"%s\">%s</td><td>", bars[k].state == MLFF_BAR_PASSED ? "passed" : "failed",
                      states[bars[k].state]);
        if (isfinite(bars[k].value)) base_text_add(page, "%.4g", bars[k].value);
        if (isfinite(bars[k].uncertainty))
            base_text_add(page, bars[k].uncertainty < 99.5 ? " ± %.2g" : " ± %.0f", bars[k].uncertainty);
        base_text_add(page, " ");
        if (isfinite(bars[k].value)) drawing_text(page, base_unit(bars[k].unit, bars[k].value));
        base_text_add(page, "</td><td>%s ", bars[k].at_least ? "at least" : "at most");
        if (isfinite(bars[k].limit)) base_text_add(page, "%.4g", bars[k].limit);
        base_text_add(page, "</td><td>");
        if (bars[k].system[0]) {
            drawing_text(page, bars[k].system);
            base_text_add(page, ": ");
        }
        drawing_text(page, bars[k].text);
        base_text_add(page, "</td></tr>");
    }
    base_text_add(page, "</table>");
}

static void add_error(base_text *page, double error)
{
    base_text_add(page, isfinite(error) ? "<td>%.3g</td>" : "<td></td>", 1e3 * error);
}

// Of several, those with the largest errors.
static void add_compositions(base_text *page, const mlff_verdict *verdict)
{
    enum { MOST = 20 };
    if (verdict->n_compositions < 2) return;
    base_text_add(page, "<h2>Errors by composition</h2><table class=\"bars\"><tr><th>composition</th><th>structures</th>"
                        "<th>forces, meV/Å</th><th>energy, meV/atom</th></tr>");
    for (int k = 0; k < verdict->n_compositions && k < MOST; k++) {
        const verdict_composition *c = &verdict->compositions[k];
        base_text_add(page, "<tr><td>");
        drawing_text(page, c->name);
        base_text_add(page, "</td><td>%" PRId64 "</td>", c->n_structures);
        add_error(page, composition_force_error(c));
        add_error(page, composition_energy_error(c));
        base_text_add(page, "</tr>");
    }
    base_text_add(page, "</table><p>Mean absolute errors on the held-out structures that are judged");
    if (verdict->n_compositions > MOST)
        base_text_add(page, "; %d compositions with smaller errors are in verdict.json", verdict->n_compositions - MOST);
    base_text_add(page, ".</p>");
}

static void add_head(base_text *page, const mlff_model *student, const mlff_distill_config *config)
{
    mlff_model_info info;
    base_text names = {0};
    mlff_model_info_get(student, &info);
    drawing_page_begin(page, "Distillation");
    base_text_add(page, "<h1>A student of ");
    distill_add_names(config->labels ? config->labels : config->teacher, &names);
    if (names.text) drawing_text(page, names.text);
    base_text_free(&names);
    base_text_add(page, "</h1><p>");
    if (config->labels) {
        base_text_add(page, "Trained and judged on these labels");
        if (config->teacher) base_text_add(page, ", measured beside another teacher");
    } else {
        base_text_add(page, "Systems: ");
        drawing_text(page, config->systems);
    }
    if (config->teacher) {
        base_text_add(page, ". Teacher: ");
        drawing_text(page, config->teacher);
    }
    base_text_add(page, ". Student: ");
    drawing_text(page, info.description);
    base_text_add(page, ".</p>");
}

// How many structures there were, and what became of them.
static void add_numbers(base_text *page, const distill *d)
{
    const int64_t n_train = mlff_dataset_size(d->data.train), n_test = mlff_dataset_size(d->data.test);
    if (d->config.labels)
        base_text_add(page, "<p>%" PRId64 " labelled structures are trained on; ", n_train);
    else
        base_text_add(page, "<p>%d structures were asked for, %" PRId64 " of them from rounds of active learning; ",
                      d->config.n_structures, d->n_explored);
    base_text_add(page, "%" PRId64 " are held out; seed %" PRIu64 ".</p></html>\n", n_test, d->config.seed);
}

mlff_status distill_report(const distill *d)
{
    mlff_status status = MLFF_OK;
    base_text page = {0};
    add_head(&page, d->student, &d->config);
    add_verdict(&page, d->verdict, d->config.labels);
    add_compositions(&page, d->verdict);
    base_text_add(&page, "<h2>Training and held-out structures</h2><div class=\"plots\">");
    if (distill_is_there(d, DISTILL_HISTORY)) MLFF_TRY(history_draw(d->path[DISTILL_HISTORY], &page));
    MLFF_TRY(draw_rounds(&page, d));
    MLFF_TRY(add_parities(&page, d->student, d->data.test));
    if (d->teacher) base_text_add(&page, "</div><h2>Beside the teacher</h2><div class=\"plots\">");
    draw_front(&page, d->verdict);
    for (int k = 0; k < d->verdict->n_curves; k++) draw_comparison(&page, &d->verdict->curves[k]);
    base_text_add(&page, "</div>");
    add_numbers(&page, d);
    MLFF_TRY(base_text_write(&page, d->path[DISTILL_REPORT]));
done:
    base_text_free(&page);
    return status;
}
