// SPDX-License-Identifier: MIT
// distill_report.c: a run as a page for a browser: the verdict, learning curves, parity plots. One file, drawings as SVG.
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "distill.h"
#include "train/fitting/train_record.h"

enum { WIDTH = 460, HEIGHT = 300, LEFT = 64, BOTTOM = 44, TOP = 12, RIGHT = 26, MOST_POINTS = 3000 };

// Text of a page: what could be markup is escaped.
static void add_text(base_text *page, const char *text)
{
    for (; *text; text++) switch (*text) {
        case '<': base_text_add(page, "&lt;"); break;
        case '>': base_text_add(page, "&gt;"); break;
        case '&': base_text_add(page, "&amp;"); break;
        case '"': base_text_add(page, "&quot;"); break;
        default: base_text_add(page, "%c", *text);
        }
}

// ---- drawings -------------------------------------------------------------------------------------------------------

typedef struct axis {
    double low, high;
    bool logarithmic;
    const char *label;
} axis;

static double place_on(const axis *a, double value)
{
    return a->logarithmic ? log(value / a->low) / log(a->high / a->low) : (value - a->low) / (a->high - a->low);
}

static double x_of(const axis *a, double value)
{
    return LEFT + place_on(a, value) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const axis *a, double value)
{
    return HEIGHT - BOTTOM - place_on(a, value) * (HEIGHT - TOP - BOTTOM);
}

static void begin_drawing(base_text *page, const char *title, const axis *x, const axis *y)
{
    base_text_add(page, "<figure><figcaption>");
    add_text(page, title);
    base_text_add(page,
                  "</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                  "class=\"frame\"/>",
                  WIDTH, HEIGHT, LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    for (int k = 0; k <= 4; k++) {
        const double f = k / 4.0;
        const double vx = x->logarithmic ? x->low * pow(x->high / x->low, f) : x->low + f * (x->high - x->low);
        const double vy = y->logarithmic ? y->low * pow(y->high / y->low, f) : y->low + f * (y->high - y->low);
        base_text_add(page,
                      "<text x=\"%.1f\" y=\"%d\" class=\"tick\" text-anchor=\"middle\">%.3g</text><text x=\"%d\" y=\"%.1f\" "
                      "class=\"tick\" text-anchor=\"end\">%.3g</text>",
                      x_of(x, vx), HEIGHT - BOTTOM + 16, vx, LEFT - 6, y_of(y, vy) + 4, vy);
    }
    base_text_add(page,
                  "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text><text transform=\"translate(14 %d) rotate(-90)\" "
                  "text-anchor=\"middle\">%s</text>",
                  (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x->label, (TOP + HEIGHT - BOTTOM) / 2, y->label);
}

static void end_drawing(base_text *page)
{
    base_text_add(page, "</svg></figure>");
}

// ---- learning curve -------------------------------------------------------------------------------------------------

typedef struct curve {
    double (*point)[3]; // step, training and validation force error, meV/Å
    size_t n, capacity;
} curve;

static double number_at(const cJSON *line, const char *part, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(line, part), key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

static mlff_status read_curve(const char *path, curve *to)
{
    mlff_status status = MLFF_OK;
    char *text = NULL;
    size_t length;
    MLFF_TRY(base_read_file(path, (size_t)1 << 30, &text, &length));
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        cJSON *json = cJSON_ParseWithLength(line, (size_t)(end - line));
        const cJSON *step = cJSON_GetObjectItemCaseSensitive(json, "step");
        const double training = 1e3 * number_at(json, "training", "force_mae_ev_per_angstrom");
        const double validation = 1e3 * number_at(json, "validation", "force_mae_ev_per_angstrom");
        if (cJSON_IsNumber(step) && training > 0 && validation > 0) {
            status = base_grow(&to->point, &to->capacity, to->n + 1, sizeof *to->point, "a curve");
            if (status == MLFF_OK) {
                to->point[to->n][0] = step->valuedouble;
                to->point[to->n][1] = training;
                to->point[to->n++][2] = validation;
            }
        }
        cJSON_Delete(json);
        if (status != MLFF_OK) break;
    }
done:
    base_free(text);
    return status;
}

static void draw_curve(base_text *page, const curve *c)
{
    if (c->n < 2) return;
    axis x = {.low = 0, .high = c->point[c->n - 1][0], .label = "step"};
    axis y = {.low = INFINITY, .high = 0, .logarithmic = true, .label = "force error, meV/Å"};
    for (size_t k = 0; k < c->n; k++)
        for (int s = 1; s < 3; s++) {
            y.low = fmin(y.low, c->point[k][s]);
            y.high = fmax(y.high, c->point[k][s]);
        }
    y.low *= 0.8;
    y.high *= 1.25;
    begin_drawing(page,
                  "Learning curve: mean absolute force error of training batches (gray) and of the averaged weights on the "
                  "validation structures (blue)",
                  &x, &y);
    for (int s = 1; s < 3; s++) {
        base_text_add(page, "<polyline class=\"%s\" points=\"", s == 1 ? "minor" : "major");
        for (size_t k = 0; k < c->n; k++) base_text_add(page, "%.1f,%.1f ", x_of(&x, c->point[k][0]), y_of(&y, c->point[k][s]));
        base_text_add(page, "\"/>");
    }
    end_drawing(page);
}

// ---- parity ---------------------------------------------------------------------------------------------------------

typedef struct parity {
    double (*force)[2], (*energy)[2]; // teacher and student
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
    char of_teacher[80], of_student[80];
    if (n < 2) return;
    for (size_t k = 0; k < n; k++) {
        low = fmin(low, fmin(point[k][0], point[k][1]));
        high = fmax(high, fmax(point[k][0], point[k][1]));
        mean += point[k][0] / (double)n;
    }
    const bool shifted = fabs(mean) > 100 * (high - low); // energies: only differences can be read
    const double zero = shifted ? mean : 0, margin = 0.04 * (high - low) + 1e-12;
    snprintf(of_teacher, sizeof of_teacher, "teacher, %s%s", unit, shifted ? " from the mean" : "");
    snprintf(of_student, sizeof of_student, "student, %s%s", unit, shifted ? " from the mean" : "");
    const axis x = {.low = low - zero - margin, .high = high - zero + margin, .label = of_teacher};
    axis y = x;
    y.label = of_student;
    begin_drawing(page, title, &x, &y);
    base_text_add(page, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"minor\"/><g class=\"dots\">",
                  x_of(&x, x.low), y_of(&y, y.low), x_of(&x, x.high), y_of(&y, y.high));
    const size_t stride = n / MOST_POINTS + 1;
    for (size_t k = 0; k < n; k += stride)
        base_text_add(page, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"1.6\"/>", x_of(&x, point[k][0] - zero),
                      y_of(&y, point[k][1] - zero));
    base_text_add(page, "</g>");
    end_drawing(page);
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

static void add_verdict(base_text *page, const mlff_verdict *verdict)
{
    static const char *const states[] = {"passed", "failed", "not measured"};
    int n;
    const mlff_bar *bars = mlff_verdict_bars(verdict, &n);
    const bool passed = mlff_verdict_passed(verdict);
    base_text_add(
        page, "<p class=\"verdict %s\">%s</p><table><tr><th>bar</th><th></th><th>measured</th><th>limit</th><th>how</th></tr>",
        passed ? "passed" : "failed",
        passed ? "Passed: within every limit the student may stand in for its teacher."
               : "Failed: at least one limit is not met.");
    for (int k = 0; k < n; k++) {
        base_text_add(page, "<tr><td>");
        add_text(page, bars[k].name);
        base_text_add(page, "</td><td class=\"%s\">%s</td><td>", bars[k].state == MLFF_BAR_PASSED ? "passed" : "failed",
                      states[bars[k].state]);
        if (isfinite(bars[k].value)) base_text_add(page, "%.4g", bars[k].value);
        if (isfinite(bars[k].uncertainty)) base_text_add(page, " ± %.2g", bars[k].uncertainty);
        base_text_add(page, " ");
        if (isfinite(bars[k].value)) add_text(page, bars[k].unit);
        base_text_add(page, "</td><td>%s ", bars[k].at_least ? "at least" : "at most");
        if (isfinite(bars[k].limit)) base_text_add(page, "%.4g", bars[k].limit);
        base_text_add(page, "</td><td>");
        if (bars[k].system[0]) {
            add_text(page, bars[k].system);
            base_text_add(page, ": ");
        }
        add_text(page, bars[k].text);
        base_text_add(page, "</td></tr>");
    }
    base_text_add(page, "</table>");
}

static void add_head(base_text *page, const mlff_model *student, const mlff_distill_config *config)
{
    mlff_model_info info;
    mlff_model_info_get(student, &info);
    base_text_add(
        page,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
        "content=\"width=device-width\"><title>Distillation</title><style>"
        ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:1.5em auto;padding:0 "
        "1em}table{border-collapse:collapse;width:100%%}td,th{text-align:left;padding:.25em .6em;border-bottom:1px solid "
        "#8884;vertical-align:top}.passed{color:#1a7f37}.failed{color:#c62828}.verdict{font-size:1.25em;font-weight:600}"
        ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:1em}figure{margin:0}svg{width:"
        "100%%;font-size:11px;fill:currentColor}.frame{fill:none;stroke:#8888}.tick{opacity:.75}polyline,line{fill:none}"
        ".major{stroke:#1f77d0;stroke-width:2}.minor{stroke:#888;stroke-width:1.2}.dots{fill:#1f77d0;fill-opacity:.45}"
        "figcaption{font-size:.9em;min-height:3em}</style><h1>");
    add_text(page, config->systems);
    base_text_add(page, ": ");
    add_text(page, config->teacher);
    base_text_add(page, " to ");
    add_text(page, info.description);
    base_text_add(page, "</h1>");
}

mlff_status distill_report(const distill *d)
{
    mlff_status status = MLFF_OK;
    base_text page = {0};
    curve learning = {0};
    if (distill_is_there(d, DISTILL_HISTORY)) MLFF_TRY(read_curve(d->path[DISTILL_HISTORY], &learning));
    add_head(&page, d->student, &d->config);
    add_verdict(&page, d->verdict);
    base_text_add(&page, "<h2>Training and held-out structures</h2><div class=\"plots\">");
    draw_curve(&page, &learning);
    MLFF_TRY(add_parities(&page, d->student, d->data.test));
    base_text_add(&page,
                  "</div><p>%d structures were asked for, %" PRId64 " of them met by young students; %" PRId64
                  " are held out; seed %" PRIu64 ".</p></html>\n",
                  d->config.n_structures, d->n_explored, mlff_dataset_size(d->data.test), d->config.seed);
    MLFF_TRY(record_write(&page, d->path[DISTILL_REPORT]));
done:
    base_free(learning.point);
    base_text_free(&page);
    return status;
}
