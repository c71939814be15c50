// SPDX-License-Identifier: MIT
// test_verdict.c: observables against closed forms, and verdicts against planted truth: a student that is its teacher passes, one
// that differs fails the bars that it must.
#include <unistd.h>

#include "atoms/analysis/spectrum.h"
#include "mlff_train.h"
#include "support.h"
#include "train/judging/analysis.h"
#include "train/judging/verdict.h"
#include "unit/log_springs.h"

// ---- observables ----------------------------------------------------------------------------------------------------

static void test_slope(void **state)
{
    (void)state;
    enum { N = 2000 };
    static double x[N], y[N];
    int covered = 0;
    for (int k = 0; k < N; k++) y[k] = 3 + 0.25 * k;
    double slope, half;
    base_slope(NULL, y, N, 10, &slope, &half);
    assert_true(fabs(slope - 0.25) < 1e-12 && half < 1e-12);
    for (int k = 0; k < N; k++) { // unequal intervals
        x[k] = k < 8 ? k : 100.0 * (k - 7);
        y[k] = -1e5 + 0.5 * x[k];
    }
    base_slope(x, y, N, 10, &slope, &half);
    assert_true(fabs(slope - 0.5) < 1e-12 && half < 1e-12);
    for (int trial = 0; trial < 200; trial++) { // correlated noise: the interval covers the planted slope about 95 times in 100
        double noise = 0;
        for (int k = 0; k < N; k++) {
            noise = 0.98 * noise + base_random_normal(1, (uint64_t)trial, (uint64_t)k);
            y[k] = 1e-3 * k + noise;
        }
        base_slope(NULL, y, N, 10, &slope, &half);
        covered += fabs(slope - 1e-3) <= half;
    }
    if (covered < 176 || covered > 199)
        fail_msg("the 95 %% interval covers %d of 200", covered); // binomial at 0.9 … 0.98, 3 sigma
}

// Planted drifts at half and at twice the limit in correlated noise, looked at up to three times, as a verdict looks at a run that is made
// longer: how often the wrong side is told, and how often none.
static void test_sides_of_a_limit(void **state)
{
    (void)state;
    enum { N = 500, LOOKS = 3, TRIALS = SUPPORT_CASES(400) };
    static double y[4 * N];
    static const double noises[] = {0.01, 0.03, 0.1}, drifts[] = {0.5, 2}; // of the limit: 1e-4 a sample
    for (int d = 0; d < 2; d++)
        for (int s = 0; s < 3; s++) {
            int wrong = 0, none = 0;
            for (int trial = 0; trial < TRIALS; trial++) {
                analysis_slope drift = {0};
                double noise = 0;
                for (int k = 0; k < 4 * N; k++) {
                    noise = 0.9 * noise + noises[s] * base_random_normal(2 + (uint64_t)(3 * d + s), (uint64_t)trial, (uint64_t)k);
                    y[k] = -500 + 1e-4 * drifts[d] * k + noise;
                }
                for (int look = 0; look < LOOKS && !drift.decided; look++) drift = analysis_drift(y, N << look, 1e-4);
                none += !drift.decided;
                wrong += drift.decided && (fabs(drift.slope) > 1e-4) != (drifts[d] > 1);
            }
            print_message("drift of %g limits, noise %g: %d of %d told wrong, %d not told\n", drifts[d], noises[s], wrong, TRIALS,
                          none);
            assert_true(wrong <= 0.04 * TRIALS); // 0.5 % for each of three looks; the binomial's spread is 0.6 %
        }
}

static void test_spectrum(void **state)
{
    (void)state;
    enum { N = 4096, LAGS = 512 };
    static double v[3 * N], spectrum[LAGS];
    const double mass = 12, dt = 4, wavenumber = 1500; // 1/cm
    for (int k = 0; k < N; k++) v[3 * k + 1] = cos(2 * BASE_PI * wavenumber * 2.99792458e-5 * dt * k);
    double step, sum = 0;
    int peak = 0;
    assert_int_equal(spectrum_of(v, N, &mass, 1, dt, LAGS, spectrum, &step), MLFF_OK);
    for (int k = 0; k < LAGS; k++) {
        sum += spectrum[k];
        if (spectrum[k] > spectrum[peak]) peak = k;
    }
    assert_true(fabs(sum - 1) < 1e-12);
    assert_true(fabs(peak * step - wavenumber) <= step);
    assert_true(fabs(LAGS * step - 1 / (2 * dt * 2.99792458e-5)) < 1e-9); // Nyquist's wavenumber
}

static void test_distances_and_bonds(void **state)
{
    (void)state;
    mlff_system *system = NULL;
    distance_histogram histogram;
    bond_list bonds;
    double stretch;
    assert_int_equal(mlff_system_build("h2o", 0, 0, &system), MLFF_OK);
    assert_int_equal(distance_histogram_create(100, 0.05, &histogram), MLFF_OK);
    distance_histogram_add(&histogram, system);
    assert_true(histogram.total == 3); // two O-H, one H-H
    assert_int_equal(bond_list_create(system, &bonds), MLFF_OK);
    assert_int_equal(bonds.n, 2); // no bond between the hydrogens
    bond_list_worst(&bonds, system, &stretch);
    assert_true(stretch < 1e-12);
    const int h = bonds.atoms[1][system->species[bonds.atoms[1][0]] == 1 ? 0 : 1];
    for (int c = 0; c < 3; c++) system->positions[3 * h + c] += 5;
    assert_int_equal(bond_list_worst(&bonds, system, &stretch), 1);
    assert_true(stretch > 3);
    // Through a periodic cell the shifted molecule is whole again.
    for (int c = 0; c < 3; c++) system->cell[4 * c] = 5, system->periodic[c] = 1;
    bond_list_worst(&bonds, system, &stretch);
    assert_true(stretch < 1e-9);
    bond_list_free(&bonds);
    distance_histogram_free(&histogram);
    mlff_system_destroy(system);
    assert_true(analysis_distance((double[]){1, 1}, (double[]){2, 2}, 2) == 0);
    assert_true(analysis_distance((double[]){1, 0}, (double[]){0, 5}, 2) == 1);
}

// Atoms of a metal move against each other by more than a bond may: only where they collide or leave the others is that found. Oxygen
// on it has contacts too, water beside it keeps its bonds.
static void test_contacts_of_metals(void **state)
{
    (void)state;
    mlff_system *metal = NULL, *water = NULL, *both = NULL;
    bond_list bonds;
    double stretch;
    assert_ok(mlff_system_build("aluminum", 32, 0, &metal));
    assert_ok(bond_list_create(metal, &bonds));
    assert_int_equal(bonds.n, 0);
    assert_int_equal(bonds.n_in_contact, metal->n_atoms);
    contact_range range = bond_list_contacts(&bonds, metal);
    const double rest = 4.05 / sqrt(2) / (2 * 1.21); // nearest neighbors of the lattice over two radii
    assert_true(fabs(range.closest - rest) < 0.01 && fabs(range.farthest - rest) < 0.01);
    const double x = metal->positions[0];
    metal->positions[0] = x + 0.6; // allowed
    range = bond_list_contacts(&bonds, metal);
    assert_true(bond_list_worst(&bonds, metal, &stretch) == -1 && stretch == 0);
    assert_true(range.closest > 0.75 && range.farthest < 1.2);
    for (int c = 0; c < 3; c++) metal->positions[c] = metal->positions[3 + c] + (c == 0 ? 1.0 : 0.0);
    range = bond_list_contacts(&bonds, metal);
    assert_true(fabs(range.closest - 1.0 / 2.42) < 1e-6 && range.pair[0] == 0 && range.pair[1] == 1);
    metal->periodic[0] = 0;
    metal->positions[0] = 60;
    range = bond_list_contacts(&bonds, metal);
    assert_true(range.alone == 0 && range.farthest > 10);
    bond_list_free(&bonds);
    mlff_system_destroy(metal);

    assert_ok(mlff_system_build("h2o", 0, 0, &water));
    assert_ok(mlff_system_create(5, &both));
    memcpy(both->species, water->species, 3 * sizeof *both->species);
    memcpy(both->positions, water->positions, 9 * sizeof(double));
    for (int i = 3; i < 5; i++) { // Cu and O, 1.8 Å from each other, 10 Å from the molecule
        both->species[i] = i == 3 ? 29 : 8;
        both->positions[3 * i] = 10 + 1.8 * (i - 3);
    }
    assert_ok(bond_list_create(both, &bonds));
    assert_true(bonds.n == 2 && bonds.n_in_contact == 2 && !bonds.in_contact[0] && bonds.in_contact[3] && bonds.in_contact[4]);
    bond_list_free(&bonds);
    mlff_system_destroy(both);
    mlff_system_destroy(water);
}

// A text that is longer than its room ends with a whole character.
static void test_text_of_a_bar(void **state)
{
    (void)state;
    mlff_bar bar = {0};
    verdict_say(&bar, "%s", "");
    assert_string_equal(bar.text, "");
    verdict_say(&bar, "1 meV/Å³");
    assert_string_equal(bar.text, "1 meV/Å³");
    for (int before = 300; before < 330; before++) {
        verdict_say(&bar, "%*s%s", before, "", "Å³…Å³…Å³…");
        assert_in_range(strlen(bar.text), sizeof bar.text - 3, sizeof bar.text - 1);
        for (const char *at = bar.text; *at; at += base_utf8_length(at)) assert_true(base_utf8_length(at) > 0);
    }
}

// Rigid motion has no internal velocities; a stretch keeps its own.
static void test_internal_velocities(void **state)
{
    (void)state;
    static const char *const names[] = {"h2o", "ethanol"};
    for (int k = 0; k < 2; k++) {
        mlff_system *system = NULL;
        assert_int_equal(mlff_system_build(names[k], 0, 0, &system), MLFF_OK);
        assert_int_equal(mlff_system_add_velocities(system), MLFF_OK);
        assert_int_equal(mlff_system_add_masses(system), MLFF_OK);
        double *internal = calloc(3 * (size_t)system->n_atoms, sizeof *internal), omega[3] = {0.01, -0.02, 0.03};
        assert_non_null(internal);
        for (int i = 0; i < system->n_atoms; i++)
            for (int a = 0; a < 3; a++) {
                const int b = (a + 1) % 3, c = (a + 2) % 3;
                system->velocities[3 * i + a] =
                    0.5 + omega[b] * system->positions[3 * i + c] - omega[c] * system->positions[3 * i + b];
            }
        spectrum_velocities(system, internal);
        for (int c = 0; c < 3 * system->n_atoms; c++) assert_true(fabs(internal[c]) < 1e-8); // ε of the inertia: 1e-9
        free(internal);
        mlff_system_destroy(system);
    }
}

// ---- verdicts -------------------------------------------------------------------------------------------------------

// A model as teacher, its energy and forces scaled.
typedef struct scaled {
    mlff_evaluator *evaluator;
    double scale;
} scaled;

static mlff_status evaluate(void *context, const mlff_system *system, double *energy, double *forces)
{
    const scaled *teacher = context;
    int32_t first[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first, &batch);
    mlff_status status =
        mlff_evaluator_compute(teacher->evaluator, &batch, &(mlff_results){.energies = energy, .forces = forces});
    *energy *= teacher->scale;
    for (int k = 0; k < 3 * system->n_atoms; k++) forces[k] *= teacher->scale;
    return status;
}

// A model of water trained for a second on springs about the built geometry, so that its dynamics hold together.
static mlff_model *make_water(const mlff_system *rest, mlff_dataset **test_out)
{
    mlff_model *fresh = NULL, *model = NULL;
    mlff_dataset *data = NULL, *parts[2];
    mlff_trainer *trainer = NULL;
    mlff_trainer_options options = mlff_trainer_options_default();
    const mlff_setting settings[] = {{"n_features", "16"},
                                     {"n_layers", "1"},
                                     {"n_radial", "12"},
                                     {"cutoff", "4"},
                                     {"elements", "H,O"},
                                     {"seed", "3"},
                                     {"cutoff_function", "mollifier"},
                                     {0}};
    assert_int_equal(mlff_model_create("painn", settings, &fresh), MLFF_OK);
    assert_int_equal(mlff_dataset_create(&data), MLFF_OK);
    for (int k = 0; k < 240; k++) {
        mlff_system *system = NULL;
        double energy, forces[9];
        assert_int_equal(mlff_system_copy(rest, &system), MLFF_OK);
        const double size = 0.05 + 0.5 * base_random_uniform(9, (uint64_t)k, 99);
        for (int c = 0; c < 9; c++) system->positions[c] += size * (base_random_uniform(9, (uint64_t)k, (uint64_t)c) - 0.5);
        assert_int_equal(log_springs((void *)rest, system, &energy, forces), MLFF_OK);
        assert_int_equal(mlff_dataset_add(data, system, &(mlff_labels){.energy = energy, .forces = forces, .weight = 1}),
                         MLFF_OK);
        mlff_system_destroy(system);
    }
    assert_int_equal(mlff_dataset_split(data, 0.1, 1, &parts[0], &parts[1]), MLFF_OK);
    options.precision = MLFF_FLOAT64;
    options.n_steps = 1500;
    options.batch_size = 16;
    options.learning_rate = 5e-3;
    assert_int_equal(mlff_trainer_create(fresh, parts[0], &options, &trainer), MLFF_OK);
    assert_int_equal(mlff_trainer_run(trainer, 1500, NULL, NULL), MLFF_OK);
    assert_int_equal(mlff_trainer_model(trainer, 0, &model), MLFF_OK);
    mlff_trainer_destroy(trainer);
    mlff_dataset_destroy(data);
    mlff_dataset_destroy(parts[0]);
    mlff_model_destroy(fresh);
    *test_out = parts[1];
    return model;
}

static const mlff_bar *find_bar(const mlff_verdict *verdict, const char *name)
{
    int n;
    const mlff_bar *bars = mlff_verdict_bars(verdict, &n);
    for (int k = 0; k < n; k++)
        if (strcmp(bars[k].name, name) == 0) return &bars[k];
    fail_msg("no bar %s", name);
    return NULL;
}

static void assert_bar(const mlff_verdict *verdict, const char *name, mlff_bar_state state)
{
    const mlff_bar *bar = find_bar(verdict, name);
    if (bar->state != state)
        fail_msg("%s: state %d, value %g, limit %g: %s", name, bar->state, bar->value, bar->limit, bar->text);
}

static void test_verdicts(void **state)
{
    (void)state;
    mlff_system *rest = NULL;
    mlff_dataset *test = NULL;
    mlff_verdict *verdict = NULL;
    assert_int_equal(mlff_system_build("h2o", 0, 0, &rest), MLFF_OK);
    mlff_model *student = make_water(rest, &test);
    mlff_verdict_options options = mlff_verdict_options_default();
    options.n_threads = 1;
    options.nve_ps = 4;
    options.hot_ps = 1;
    options.hot_runs = 2;
    options.compare_ps = 4;
    options.max_force_error = 0.3;
    options.max_energy_error = 0.1;
    options.max_drift = 5e-5; // float32 forces of a smooth model at 0.5 fs drift by less than a tenth of this
    options.min_speed = 0.2;  // the same model on both sides: about 1, on any machine above this
    scaled teacher = {.scale = 1};
    const mlff_evaluator_options one = {
        .struct_size = sizeof one, .precision = MLFF_FLOAT32, .skin_angstrom = 0.5, .n_threads = 1};
    assert_int_equal(mlff_evaluator_create(student, &one, &teacher.evaluator), MLFF_OK);
    const mlff_force_field same = {"itself", evaluate, &teacher};

    // The student is its teacher: structure and spectrum agree within the teacher's own noise.
    assert_int_equal(mlff_verdict_create(student, &same, test, rest, &options, &verdict), MLFF_OK);
    static const char *const all[] = {"error.forces",  "error.energy",  "speed",     "speed.batch",
                                      "stability.nve", "stability.hot", "structure", "spectrum"};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) assert_bar(verdict, all[k], MLFF_BAR_PASSED);
    assert_null(strstr(find_bar(verdict, "error.energy")->text, "shifted"));
    const double ratio = find_bar(verdict, "speed")->value;
    assert_true(ratio > 0.2 && ratio < 5);
    mlff_verdict_destroy(verdict);

    // A teacher four times as stiff: vibrations at twice the wavenumber, narrower distances.
    teacher.scale = 4;
    options.hot_ps = options.nve_ps = 0;
    assert_int_equal(mlff_verdict_create(student, &same, test, rest, &options, &verdict), MLFF_OK);
    assert_bar(verdict, "spectrum", MLFF_BAR_FAILED);
    assert_int_equal(mlff_verdict_passed(verdict), 0);
    mlff_verdict_destroy(verdict);

    // Runs of 12 samples, and of one, are too short for a spectrum: told with what is needed, which then is enough.
    static const double lengths_ps[] = {0.2, 0.001, 0.512};
    for (int k = 0; k < 3; k++) {
        options.compare_ps = lengths_ps[k];
        assert_int_equal(mlff_verdict_create(student, &same, test, rest, &options, &verdict), MLFF_OK);
        const mlff_bar *bar = find_bar(verdict, "spectrum");
        assert_int_equal(bar->state == MLFF_BAR_NOT_MEASURED, k < 2);
        assert_int_equal(strstr(bar->text, "points and needs 16: compare 0.512 ps or more") != NULL, k < 2);
        assert_true(find_bar(verdict, "structure")->state != MLFF_BAR_NOT_MEASURED);
        mlff_verdict_destroy(verdict);
    }
    options.compare_ps = 4;

    // Without a teacher the bars that need one are not measured, and the verdict fails.
    assert_int_equal(mlff_verdict_create(student, NULL, test, rest, &options, &verdict), MLFF_OK);
    assert_bar(verdict, "speed", MLFF_BAR_NOT_MEASURED);
    assert_bar(verdict, "structure", MLFF_BAR_NOT_MEASURED);
    assert_int_equal(mlff_verdict_passed(verdict), 0);
    mlff_verdict_destroy(verdict);

    // Labels of another zero of the energy, 3 eV for three atoms: told as that.
    mlff_dataset *shifted = NULL;
    assert_int_equal(mlff_dataset_create(&shifted), MLFF_OK);
    for (int64_t k = 0; k < mlff_dataset_size(test); k++) {
        mlff_system *system = NULL;
        assert_int_equal(mlff_dataset_get(test, k, &system), MLFF_OK);
        const mlff_labels labels = {.energy = system->label_energy + 3.0, .forces = system->label_forces, .weight = 1};
        assert_int_equal(mlff_dataset_add(shifted, system, &labels), MLFF_OK);
        mlff_system_destroy(system);
    }
    options.compare_ps = 0;
    assert_int_equal(mlff_verdict_create(student, NULL, shifted, rest, &options, &verdict), MLFF_OK);
    assert_bar(verdict, "error.energy", MLFF_BAR_FAILED);
    double shift = 0;
    const char *told = strstr(find_bar(verdict, "error.energy")->text, "all are shifted by ");
    assert_non_null(told);
    assert_int_equal(sscanf(told, "all are shifted by %lf meV/atom", &shift), 1);
    assert_true(fabs(shift + 1000) < 100); // max_energy_error is 100 meV/atom, and the student passed
    mlff_verdict_destroy(verdict);
    mlff_dataset_destroy(shifted);

    // Random weights: wrong forces, and dynamics that fall apart are failed bars, no failure of the call.
    mlff_model *random = NULL;
    assert_int_equal(
        mlff_model_create("painn", (mlff_setting[]){{"n_features", "16"}, {"elements", "H,O"}, {"seed", "5"}, {0}}, &random),
        MLFF_OK);
    options.hot_ps = options.nve_ps = 1;
    options.compare_ps = 0;
    options.max_force_error = 0.1;
    assert_int_equal(mlff_verdict_create(random, NULL, test, rest, &options, &verdict), MLFF_OK);
    assert_bar(verdict, "error.forces", MLFF_BAR_FAILED);
    mlff_verdict_destroy(verdict);

    // A baseline: the student is as good as itself and better than random weights. Two systems: each has its bars, under its name.
    mlff_samples *systems = NULL;
    assert_int_equal(mlff_samples_create(&systems), MLFF_OK);
    assert_int_equal(mlff_samples_add_named(systems, NULL, "h2o", 0, 1), MLFF_OK);
    assert_int_equal(mlff_samples_add_named(systems, NULL, "nosuch", 0, 1), MLFF_ERR_USAGE);
    assert_non_null(strstr(mlff_last_error(), "there are silicon,"));
    assert_int_equal(mlff_samples_add(systems, rest, "second"), MLFF_OK);
    options.hot_ps = 0;
    options.nve_ps = 0.2;
    options.systems = systems;
    options.baseline = student;
    assert_int_equal(mlff_verdict_create(student, NULL, test, NULL, &options, &verdict), MLFF_OK);
    assert_bar(verdict, "baseline", MLFF_BAR_PASSED);
    assert_true(find_bar(verdict, "baseline")->value == 1);
    int n_bars, n_first = 0, n_second = 0;
    const mlff_bar *bars = mlff_verdict_bars(verdict, &n_bars);
    for (int k = 0; k < n_bars; k++) {
        n_first += strcmp(bars[k].name, "stability.nve") == 0 && strcmp(bars[k].system, "h2o") == 0;
        n_second += strcmp(bars[k].name, "stability.nve") == 0 && strcmp(bars[k].system, "second") == 0;
    }
    assert_true(n_first == 1 && n_second == 1);
    mlff_verdict_destroy(verdict);
    assert_int_equal(mlff_verdict_create(random, NULL, test, NULL, &options, &verdict), MLFF_OK);
    assert_bar(verdict, "baseline", MLFF_BAR_FAILED);
    mlff_verdict_destroy(verdict);
    for (int k = 0; k < 15; k++) assert_int_equal(mlff_samples_add(systems, rest, NULL), MLFF_OK);
    assert_int_equal(mlff_verdict_create(student, NULL, test, NULL, &options, &verdict), MLFF_ERR_USAGE);
    assert_non_null(strstr(mlff_last_error(), "17 were given"));
    options.systems = NULL;
    assert_int_equal(mlff_verdict_create(student, NULL, test, NULL, &options, &verdict), MLFF_ERR_USAGE);
    mlff_samples_destroy(systems);
    mlff_model_destroy(random);
    mlff_evaluator_destroy(teacher.evaluator);
    mlff_model_destroy(student);
    mlff_dataset_destroy(test);
    mlff_system_destroy(rest);
}

// The interval of the slope decides: a limit far above it, one that a run of 0.2 ps cannot tell from it but a longer one can, and one that
// no run of four times the length can tell from a slope of nearly 0.
static void test_length_of_a_run(void **state)
{
    (void)state;
    static const struct {
        double max_drift; // eV/atom/ps
        mlff_bar_state expected;
        bool is_longer;
    } cases[] = {{1e-2, MLFF_BAR_PASSED, false}, {2e-4, MLFF_BAR_PASSED, true}, {1e-9, MLFF_BAR_NOT_MEASURED, true}};
    mlff_system *rest = NULL;
    mlff_dataset *test = NULL;
    assert_int_equal(mlff_system_build("h2o", 0, 0, &rest), MLFF_OK);
    mlff_model *student = make_water(rest, &test);
    mlff_verdict_options options = mlff_verdict_options_default();
    options.n_threads = 1;
    options.nve_ps = 0.2;
    options.hot_ps = options.compare_ps = 0;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_verdict *verdict = NULL;
        options.max_drift = cases[k].max_drift;
        assert_int_equal(mlff_verdict_create(student, NULL, test, rest, &options, &verdict), MLFF_OK);
        const mlff_bar *bar = find_bar(verdict, "stability.nve");
        print_message("limit %g: %g ± %g meV/atom/ps, %s\n", 1e3 * cases[k].max_drift, bar->value, bar->uncertainty, bar->text);
        assert_bar(verdict, "stability.nve", cases[k].expected);
        assert_int_equal(strstr(bar->text, "over 0.2 ps") == NULL, cases[k].is_longer);
        assert_int_equal(strstr(bar->text, "too short") != NULL, cases[k].expected == MLFF_BAR_NOT_MEASURED);
        mlff_verdict_destroy(verdict);
    }
    mlff_model_destroy(student);
    mlff_dataset_destroy(test);
    mlff_system_destroy(rest);
}

// An ensemble beside itself: what a verdict times of a teacher is energies and forces, as of the student, and no deviations of the members
// (which took 2.1 times as long). Its error is 0, and is told in units of the members' deviations.
static void test_speed_of_an_ensemble(void **state)
{
    (void)state;
    mlff_model *ensemble;
    mlff_teacher *teacher;
    mlff_teacher_info info;
    mlff_verdict *verdict;
    mlff_dataset *test;
    mlff_system *start;
    mlff_label label;
    mlff_teacher_options one = mlff_teacher_options_default();
    mlff_verdict_options options = mlff_verdict_options_default();
    one.n_threads = options.n_threads = 1;
    options.nve_ps = options.hot_ps = options.compare_ps = 0;
    assert_ok(mlff_model_create("ani", (mlff_setting[]){{"n_members", "4"}, {"elements", "H,O"}, {0}}, &ensemble));
    assert_ok(mlff_teacher_create_model(ensemble, &one, &teacher));
    mlff_teacher_info_get(teacher, &info);
    assert_ok(mlff_system_build("h2o", 0, 0, &start));
    assert_ok(mlff_dataset_create(&test));
    assert_ok(mlff_teacher_compute(teacher, (const mlff_system *const *)&start, 1, &label));
    assert_ok(mlff_dataset_add(test, start, &(mlff_labels){.energy = label.energy, .forces = label.forces, .weight = 1}));
    const mlff_force_field field = {info.name, mlff_teacher_forces, teacher};
    assert_ok(mlff_verdict_create(ensemble, &field, test, start, &options, &verdict));
    static const char *const names[] = {"speed", "speed.batch"};
    for (int k = 0; k < 2; k++) {
        const mlff_bar *bar = find_bar(verdict, names[k]);
        printf("%s %.2f: %s\n", names[k], bar->value, bar->text);
        assert_non_null(
            strstr(bar->text, k ? "32 structures of 3 atoms a call" : "energy and forces of 3 atoms, one structure a call"));
        // 1, and what else is done on a shared machine; sanitizers make the copying around calls slow
        if (!SUPPORT_SANITIZED) assert_true(bar->value > 0.6 && bar->value < 1.6);
    }
    assert_non_null(strstr(find_bar(verdict, "error.forces")->text, "0.00 x the spread of the teacher's members"));
    assert_true(verdict->teacher_spread > 0 && verdict->teacher_spread < label.force_deviation);
    mlff_label_clear(&label);
    mlff_verdict_destroy(verdict);
    mlff_dataset_destroy(test);
    mlff_system_destroy(start);
    mlff_teacher_destroy(teacher);
    mlff_model_destroy(ensemble);
}

// A teacher that keeps its last result, as ASE's calculators do.
typedef struct keeping {
    const mlff_system *rest;
    mlff_system *last;
    int n_kept;
    bool fails; // at structures that are far from the rest
} keeping;

static mlff_status keep_last(void *context, const mlff_system *system, double *energy, double *forces)
{
    keeping *k = context;
    if (k->fails && fabs(system->positions[3] - k->rest->positions[3]) > 1e-6) return mlff_fail(MLFF_ERR_CALLBACK, "too far");
    const size_t size = 3 * sizeof(double) * (size_t)system->n_atoms;
    if (k->last && memcmp(k->last->positions, system->positions, size) == 0) k->n_kept++;
    mlff_system_destroy(k->last);
    k->last = NULL;
    const mlff_status status = mlff_system_copy(system, &k->last);
    return status == MLFF_OK ? log_springs((void *)k->rest, system, energy, forces) : status;
}

// No timed call finds the structure of the call before it, whose result a teacher may still have.
static void test_speed_without_kept_results(void **state)
{
    (void)state;
    mlff_model *student;
    mlff_verdict *verdict;
    mlff_dataset *test;
    mlff_system *start;
    double energy, forces[9];
    mlff_verdict_options options = mlff_verdict_options_default();
    options.n_threads = 1;
    options.nve_ps = options.hot_ps = options.compare_ps = 0;
    assert_ok(mlff_system_build("h2o", 0, 0, &start));
    assert_ok(mlff_model_create("painn", (mlff_setting[]){{"n_features", "32"}, {"n_layers", "1"}, {0}}, &student));
    assert_ok(mlff_dataset_create(&test));
    keeping kept = {.rest = start};
    assert_ok(log_springs(start, start, &energy, forces));
    assert_ok(mlff_dataset_add(test, start, &(mlff_labels){.energy = energy, .forces = forces, .weight = 1}));
    const mlff_force_field field = {"keeping", keep_last, &kept};
    assert_ok(mlff_verdict_create(student, &field, test, start, &options, &verdict));
    assert_int_equal(kept.n_kept, 0);
    mlff_verdict_destroy(verdict);
    // A teacher that fails at a displaced structure costs one bar.
    kept.fails = true;
    assert_ok(mlff_verdict_create(student, &field, test, start, &options, &verdict));
    assert_true(find_bar(verdict, "speed")->state != MLFF_BAR_NOT_MEASURED);
    assert_bar(verdict, "speed.batch", MLFF_BAR_NOT_MEASURED);
    assert_string_equal(find_bar(verdict, "speed.batch")->text, "32 structures of 3 atoms a call: too far");
    mlff_verdict_destroy(verdict);
    mlff_system_destroy(kept.last);
    mlff_dataset_destroy(test);
    mlff_model_destroy(student);
    mlff_system_destroy(start);
}

// ---- compressed pairs -----------------------------------------------------------------------------------------------

// Two hydrogen atoms: E = k/2 (d - 0.74 Å)², and below `hole` a slope of 5 eV/Å inwards.
typedef struct well {
    double stiffness, hole;
} well;

static mlff_status in_well(void *context, const mlff_system *system, double *energy, double *forces)
{
    const well *w = context;
    double r[3], d = 0, slope;
    for (int c = 0; c < 3; c++) r[c] = system->positions[3 + c] - system->positions[c];
    d = sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2]);
    const double from = fmax(d, w->hole) - 0.74;
    *energy = w->stiffness / 2 * from * from - 5 * fmax(w->hole - d, 0);
    slope = d < w->hole ? 5 : w->stiffness * from;
    for (int c = 0; c < 3; c++) {
        forces[3 + c] = -slope * r[c] / d;
        forces[c] = -forces[3 + c];
    }
    return MLFF_OK;
}

static mlff_status in_well_of_cell(void *context, const mlff_system *system, double *energy, double *forces)
{
    mlff_system *nearest;
    assert_int_equal(mlff_system_copy(system, &nearest), MLFF_OK);
    for (int c = 0; c < 3; c++) {
        double *b = &nearest->positions[3 + c];
        *b -= 10 * round((*b - nearest->positions[c]) / 10);
    }
    const mlff_status status = in_well(context, nearest, energy, forces);
    mlff_system_destroy(nearest);
    return status;
}

static void test_core(void **state)
{
    (void)state;
    mlff_system *system;
    assert_int_equal(mlff_system_create(2, &system), MLFF_OK);
    system->species[0] = system->species[1] = 1;
    system->positions[5] = 0.74;
    const struct {
        well well;
        mlff_bar_state state;
        double height; // eV
        const char *says;
    } cases[] = {
        {{72, 0},
         MLFF_BAR_PASSED,
         36 * 0.43 * 0.43,
         "1 of 1 pairs of elements repel"}, // to 0.31 Å, half the sum of covalent radii
        {{72, 0.45}, MLFF_BAR_PASSED, 36 * 0.29 * 0.29, "attracts from 0.4"},
        {{12, 0.45}, MLFF_BAR_FAILED, 6 * 0.29 * 0.29, "attracts from 0.4"},
        {{12, 0.70},
         MLFF_BAR_FAILED,
         6 * 0.04 * 0.04,
         "attracts from 0.4"}, // attraction farther out is chemistry, the lowered rim is not
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        well planted = cases[k].well;
        mlff_verdict verdict = {.options = mlff_verdict_options_default()};
        const verdict_run run = {.verdict = &verdict, .student = {"well", in_well, &planted}, .start = system};
        assert_int_equal(verdict_core(&run), MLFF_OK);
        const mlff_bar *bar = verdict.bars;
        // The rim lies within a step of 0.02 Å of a point of the path.
        if (bar->state != cases[k].state || fabs(bar->value - cases[k].height) > planted.stiffness * 0.43 * 0.02)
            fail_msg("case %zu: %g eV, %g planted: %s", k, bar->value, cases[k].height, bar->text);
        assert_non_null(strstr(bar->text, cases[k].says));
    }
    // The pair of a cell's two sides: 0.74 Å across the boundary, 9.26 Å inside. The well measures the nearest image.
    well strong = cases[0].well;
    mlff_verdict across = {.options = mlff_verdict_options_default()};
    const verdict_run in_cell = {.verdict = &across, .student = {"well", in_well_of_cell, &strong}, .start = system};
    for (int c = 0; c < 3; c++) system->cell[4 * c] = 10, system->periodic[c] = 1;
    system->positions[2] = 0.3;
    system->positions[5] = 9.56;
    assert_int_equal(verdict_core(&in_cell), MLFF_OK);
    if (fabs(across.bars[0].value - cases[0].height) > strong.stiffness * 0.43 * 0.02) fail_msg("%g eV", across.bars[0].value);
    // What cannot be measured: a pair that begins pressed, and one atom.
    for (int n = 1; n <= 2; n++) {
        mlff_system *odd;
        well planted = cases[0].well;
        mlff_verdict verdict = {.options = mlff_verdict_options_default()};
        assert_int_equal(mlff_system_create(n, &odd), MLFF_OK);
        for (int k = 0; k < n; k++) odd->species[k] = 1;
        odd->positions[3 * n - 1] = 0.2;
        const verdict_run run = {.verdict = &verdict, .student = {"well", in_well, &planted}, .start = odd};
        assert_int_equal(verdict_core(&run), MLFF_OK);
        assert_int_equal(verdict.bars[0].state, MLFF_BAR_NOT_MEASURED);
        assert_non_null(strstr(verdict.bars[0].text, n == 1 ? "no pair" : "0.20 Å apart to begin with"));
        mlff_system_destroy(odd);
    }
    mlff_system_destroy(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slope),
        cmocka_unit_test(test_sides_of_a_limit),
        cmocka_unit_test(test_spectrum),
        cmocka_unit_test(test_distances_and_bonds),
        cmocka_unit_test(test_contacts_of_metals),
        cmocka_unit_test(test_text_of_a_bar),
        cmocka_unit_test(test_internal_velocities),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_length_of_a_run),
        cmocka_unit_test(test_speed_of_an_ensemble),
        cmocka_unit_test(test_speed_without_kept_results),
        cmocka_unit_test(test_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
