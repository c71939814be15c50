// SPDX-License-Identifier: MIT
// Orb against orb-models 0.5.5 in float64 (make_orb_vectors.py): checkpoints that its modules wrote, and energies, forces and
// stress of molecules, crystals, self-images, one atom and no edges, with 20 and with 120 neighbors.
// float64 to 1e-9 of the largest force, stress or energy: sums in another order differ by 1e-13. float32 to 2e-5.
// Where trained weights are found by name (MLFF_MODEL_PATH), also a trajectory of salt water whose energies and forces Orb computed.
#include <float.h>

#include "device/cpu.h"
#include "golden/reference_json.h"
#include "model/model.h"

static const char *const models[] = {"v2", "v3-direct", "v3-conservative", "v3-direct-omol", "v3-conservative-omol"};
enum { N_MODELS = sizeof models / sizeof *models };

static mlff_evaluator *cpu_evaluator(const mlff_model *model, mlff_precision precision)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_evaluator *evaluator;
    options.precision = precision;
    assert_ok(mlff_evaluator_create(model, &options, &evaluator));
    return evaluator;
}

static mlff_model *import_model(const char *name)
{
    char path[256];
    mlff_import_options options = mlff_import_options_default();
    mlff_model *model = NULL;
    options.elements = "H,C,N,O,F,Na,Al,Si,Cl,Ar";
    snprintf(path, sizeof path, "tests/golden/orb/orb-%s.ckpt", name);
    assert_ok(mlff_model_import(path, &options, &model));
    return model;
}

// The model with another cap, which a checkpoint does not hold, and, for PyTorch's float64, its ε of RMSNorm.
static mlff_model *with_cap(const mlff_model *model, const char *cap)
{
    model_weights weights = {0};
    mlff_model *changed = NULL;
    assert_ok(weights_copy(&model->file, &weights));
    assert_ok(weights_set(&weights, "max_neighbors", "%s", cap));
    if (strcmp(weights_get(&weights, "norm"), "rms_norm") == 0)
        assert_ok(weights_set(&weights, "norm_epsilon", "%.17g", DBL_EPSILON));
    assert_ok(model_from_weights(&weights, model->name, &changed));
    return changed;
}

static mlff_system *system_of(const cJSON *record)
{
    double numbers[64];
    mlff_system *system;
    assert_ok(mlff_system_create(read_numbers(record, "numbers", numbers, 64), &system));
    for (int i = 0; i < system->n_atoms; i++) system->species[i] = (int)numbers[i];
    assert_int_equal(read_numbers(record, "positions", system->positions, 3 * system->n_atoms), 3 * system->n_atoms);
    for (int k = 0; k < 3; k++) system->periodic[k] = read_numbers(record, "cell", system->cell, 9) == 9;
    system->charge = number_of(record, "charge");
    system->spin = number_of(record, "spin");
    return system;
}

// The largest difference, relative to the largest expected number, or to `largest`.
static void compare(const char *what, const cJSON *record, int n, const double *expected, const double *found, double largest,
                    double tolerance)
{
    for (int k = 0; k < n; k++) largest = fmax(largest, fabs(expected[k]));
    for (int k = 0; k < n; k++)
        if (!(fabs(found[k] - expected[k]) <= tolerance * largest))
            fail_msg("%s: %s[%d] is %.17g, orb-models has %.17g", record->string, what, k, found[k], expected[k]);
}

static void check_record(const cJSON *record, const mlff_model *model, mlff_evaluator *evaluator, double tolerance)
{
    double expected[192], energy = 0, forces[192], stress[6];
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_system *system = system_of(record);
    const bool has_stress = cJSON_GetObjectItem(record, "stress") && mlff_model_outputs(model) & MLFF_OUTPUT_STRESS;
    mlff_results results = {.energies = &energy, .forces = forces, .stresses = has_stress ? stress : NULL};
    mlff_batch_from_system(system, first_atom, &batch);
    assert_ok(mlff_evaluator_compute(evaluator, &batch, &results));
    const double reference = number_of(record, "energy");
    compare("energy", record, 1, &reference, &energy, system->n_atoms, tolerance); // terms of some eV for each atom cancel
    compare("forces", record, read_numbers(record, "forces", expected, 192), expected, forces, 1e-3, tolerance);
    if (has_stress) compare("stress", record, read_numbers(record, "stress", expected, 192), expected, stress, 1e-3, tolerance);
    mlff_system_destroy(system);
}

// The mean over the bins of orb-models' probabilities, where the model has them; else the result is refused.
static void check_force_error(const cJSON *record, const mlff_model *model, mlff_evaluator *evaluator, double tolerance)
{
    double probability[64], expected = 0, energy = 0, found[64];
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_system *system = system_of(record);
    const int n = read_numbers(record, "confidence of atom 0", probability, 64);
    const model_tensor *edges = weights_find(&model->file, "heads.confidence.bin_edges");
    mlff_results results = {.energies = &energy, .force_errors = found};
    mlff_batch_from_system(system, first_atom, &batch);
    const mlff_status status = mlff_evaluator_compute(evaluator, &batch, &results);
    if (!edges) {
        assert_int_equal(status, MLFF_ERR_UNSUPPORTED);
        assert_non_null(strstr(mlff_last_error(), "no confidence head"));
    } else {
        assert_int_equal(status, MLFF_OK);
        assert_int_equal(n, edges->n_elements - 1);
        const float *edge = edges->data;
        for (int k = 0; k < n; k++) expected += probability[k] * 0.5 * ((double)edge[k] + (double)edge[k + 1]);
        compare("force error", record, 1, &expected, found, 0, tolerance);
    }
    mlff_system_destroy(system);
}

// Every record with both caps.
static void check_model(const char *name, mlff_precision precision, double tolerance)
{
    char path[256];
    snprintf(path, sizeof path, "tests/golden/orb/orb-%s.json", name);
    cJSON *json = read_json(path);
    mlff_model *imported = import_model(name);
    const cJSON *cap, *record;
    int n_checked = 0;
    cJSON_ArrayForEach(cap, cJSON_GetObjectItem(json, "max_neighbors"))
    {
        mlff_model *model = with_cap(imported, cap->string);
        mlff_evaluator *evaluator = support_evaluator(model, precision);
        cJSON_ArrayForEach(record, cap)
        {
            check_record(record, model, evaluator, tolerance);
            check_force_error(record, model, evaluator, tolerance);
            n_checked++;
        }
        mlff_evaluator_destroy(evaluator);
        mlff_model_destroy(model);
    }
    assert_true(n_checked >= 9);
    mlff_model_destroy(imported);
    cJSON_Delete(json);
}

static void float64_is_that_of_orb_models(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) check_model(models[m], MLFF_FLOAT64, 1e-9);
}

static void float32_is_within_its_rounding(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) check_model(models[m], MLFF_FLOAT32, 2e-5);
}

// Operands of 8 bits: 2e-3 a product. 0.02 of the largest force, twice what was measured.
static void bfloat16_is_within_its_rounding(void **state)
{
    (void)state;
    if (!cpu_has_bfloat16()) skip();
    for (int m = 0; m < N_MODELS; m++) check_model(models[m], MLFF_BF16, 0.02);
}

// Squares of the difference of the forces in float32 and float64, and of the forces, added to sum[2].
static void add_difference(const mlff_model *model, const mlff_system *crystal, double sum[2])
{
    double forces[2][3 * 8];
    assert_int_equal(crystal->n_atoms, 8);
    for (int k = 0; k < 2; k++) {
        mlff_evaluator *evaluator = cpu_evaluator(model, k == 0 ? MLFF_FLOAT64 : MLFF_FLOAT32);
        int32_t first_atom[2];
        mlff_batch batch;
        mlff_batch_from_system(crystal, first_atom, &batch);
        assert_ok(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.forces = forces[k]}));
        mlff_evaluator_destroy(evaluator);
    }
    for (int k = 0; k < 3 * 8; k++) {
        sum[0] += pow(forces[1][k] - forces[0][k], 2);
        sum[1] += pow(forces[0][k], 2);
    }
}

// Displaced crystals, where direct forces are small differences of numbers that are nearly the same for all atoms: the sharpest test
// of sums in float32, over six of them, as one alone varies by half. Orb-v2's published size. 4.5e-5 is half of what sums without parts
// give (nn_kernels.product: 9.0e-5; in parts 3.0e-5).
static void float32_of_a_crystal_keeps_its_digits(void **state)
{
    (void)state;
    if (SUPPORT_SANITIZED) skip(); // half a minute there
    double sum[2] = {0, 0};
    mlff_model *model;
    assert_ok(mlff_model_create("orb-v2", NULL, &model));
    for (uint64_t seed = 7; seed < 13; seed++) {
        mlff_system *crystal;
        assert_ok(mlff_system_build("silicon", 8, 0, &crystal));
        assert_ok(mlff_system_perturb(crystal, 300.0, seed));
        add_difference(model, crystal, sum);
        mlff_system_destroy(crystal);
    }
    printf("difference %.2e of the rms force\n", sqrt(sum[0] / sum[1]));
    assert_true(sqrt(sum[0] / sum[1]) < 4.5e-5);
    mlff_model_destroy(model);
}

static void the_size_of_the_published_model(void **state)
{
    (void)state;
    mlff_model *model;
    mlff_model_info info;
    assert_ok(mlff_model_create("orb-v2", NULL, &model));
    mlff_model_info_get(model, &info);
    assert_int_equal(info.n_parameters, 25213601);
    assert_false(info.has_atom_energies);
    assert_false(info.conservative);
    mlff_model_destroy(model);
}

static void charge_and_spin_are_required_where_they_matter(void **state)
{
    (void)state;
    mlff_model *model = import_model("v3-direct-omol");
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT64);
    double energy, positions[3] = {0};
    const int32_t species[1] = {8}, first_atom[2] = {0, 1};
    mlff_batch batch = {.n_systems = 1, .first_atom = first_atom, .species = species, .positions = positions};
    mlff_results results = {.energies = &energy};
    assert_int_equal(mlff_evaluator_compute(evaluator, &batch, &results), MLFF_ERR_VALUE);
    assert_non_null(strstr(mlff_last_error(), "charge"));
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

// Face-centered aluminum: shells of 12, 6 and 24 neighbors, so that the 20 nearest end inside the third one.
static void ties_at_the_cap_are_told_once(void **state)
{
    (void)state;
    mlff_model *imported = import_model("v2");
    for (int k = 0; k < 4; k++) {
        mlff_model *model = with_cap(imported, k < 2    ? "20"
                                               : k == 2 ? "18"
                                                        : "120"); // ties in both precisions; whole shells; no cap
        mlff_evaluator *evaluator = cpu_evaluator(model, k == 0 ? MLFF_FLOAT64 : MLFF_FLOAT32);
        char warnings[SUPPORT_WARNING_BYTES] = "";
        double energy;
        int32_t first_atom[2];
        mlff_system *system;
        mlff_batch batch;
        mlff_results results = {.energies = &energy};
        assert_ok(mlff_system_create(4, &system));
        for (int i = 0; i < 4; i++) {
            system->species[i] = 13;
            for (int c = 0; c < 3; c++) system->positions[3 * i + c] = i > 0 && c != i - 1 ? 2.025 : 0;
        }
        for (int c = 0; c < 3; c++) {
            system->cell[4 * c] = 4.05;
            system->periodic[c] = 1;
        }
        mlff_batch_from_system(system, first_atom, &batch);
        mlff_warning_handler_set(support_keep_warning, warnings);
        for (int call = 0; call < 2; call++) assert_ok(mlff_evaluator_compute(evaluator, &batch, &results));
        mlff_warning_handler_set(NULL, NULL);
        if (k < 2) {
            assert_non_null(strstr(warnings, "4 of 4 atoms"));
            assert_non_null(strstr(warnings, "20 nearest"));
            assert_ptr_equal(strchr(warnings, '\n'), warnings + strlen(warnings) - 1); // one line
        } else {
            assert_string_equal(warnings, "");
        }
        mlff_system_destroy(system);
        mlff_evaluator_destroy(evaluator);
        mlff_model_destroy(model);
    }
    mlff_model_destroy(imported);
}

static void atom_energies_are_refused(void **state)
{
    (void)state;
    mlff_model *model = import_model("v2");
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT64);
    double energy, atom_energy, positions[3] = {0};
    const int32_t species[1] = {8}, first_atom[2] = {0, 1};
    mlff_batch batch = {.n_systems = 1, .first_atom = first_atom, .species = species, .positions = positions};
    mlff_results results = {.energies = &energy, .atom_energies = &atom_energy};
    assert_int_equal(mlff_evaluator_compute(evaluator, &batch, &results), MLFF_ERR_UNSUPPORTED);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

// A published model of this architecture that is installed, or NULL and a message.
static mlff_model *trained_model(void)
{
    static const char *const names[] = {"orb-v2", "orb-d3-v2"};
    char path[1024];
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        mlff_model *model;
        mlff_model_info info;
        if (mlff_model_find(names[k], path, sizeof path) != MLFF_OK) continue;
        assert_ok(mlff_model_load(path, &model));
        mlff_model_info_get(model, &info);
        if (info.trained) return model;
        printf("%s holds untrained weights\n", path);
        mlff_model_destroy(model);
    }
    printf("skipped: neither orb-v2 nor orb-d3-v2 with trained weights is in a folder of MLFF_MODEL_PATH (mlff import "
           "orb-v2-20241011.ckpt)\n");
    return NULL;
}

// 6 frames of 1584 atoms. Orb wrote energies in float32 (5e-4 eV) and computed with TF32, whose forces deviate by some 2e-3 of the rms
// force; 1 % and 1 meV for each atom are far below what a wrong weight, cap or normalization gives.
static void a_trajectory_of_orb_is_reproduced(void **state)
{
    (void)state;
    const char *frames = support_shared("data/trajectories/nacl-water.extxyz");
    mlff_model *model = frames ? trained_model() : NULL;
    if (!model) skip();
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT32);
    mlff_reader *reader;
    mlff_system *system;
    assert_ok(mlff_reader_open(frames, NULL, &reader));
    int frame = 0;
    for (;; frame++) {
        int32_t first_atom[2];
        mlff_batch batch;
        assert_ok(mlff_reader_next(reader, &system));
        if (!system) break;
        mlff_batch_from_system(system, first_atom, &batch);
        support_results got = {.n_systems = 1, .n_atoms = system->n_atoms};
        const size_t n = 3 * (size_t)system->n_atoms;
        got.r.energies = calloc(1, sizeof(double));
        got.r.forces = calloc(n, sizeof(double));
        assert_ok(mlff_evaluator_compute(evaluator, &batch, &got.r));
        double difference = 0, size = 0;
        for (size_t k = 0; k < n; k++) {
            difference += pow(got.r.forces[k] - system->label_forces[k], 2);
            size += pow(system->label_forces[k], 2);
        }
        const double force = sqrt(difference / size), energy = (got.r.energies[0] - system->label_energy) / system->n_atoms;
        printf("frame %d: forces %.1e of the rms force, energy %.1e eV per atom\n", frame, force, energy);
        if (!(force < 1e-2 && fabs(energy) < 1e-3))
            fail_msg("frame %d: forces differ by %.2e of the rms force, the energy by %.2e eV per atom", frame, force, energy);
        support_results_free(&got);
        mlff_system_destroy(system);
    }
    assert_int_equal(frame, 6);
    mlff_reader_destroy(reader);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

// A crystal of atoms within each other's repulsion, with the cell vectors a b c and b a c: one lattice, right- and left-handed.
static void stress_does_not_depend_on_the_order_of_vectors(void **state)
{
    (void)state;
    mlff_model *model = import_model("v3-direct");
    mlff_system *system;
    assert_ok(mlff_system_build("silicon", 8, 0, &system));
    for (int k = 0; k < 24; k++) system->positions[k] *= 0.8;
    for (int k = 0; k < 9; k++) system->cell[k] *= 0.8;
    assert_ok(mlff_system_perturb(system, 300, 3));
    for (int precision = MLFF_FLOAT32; precision <= MLFF_FLOAT64; precision++) {
        mlff_evaluator *evaluator = support_evaluator(model, (mlff_precision)precision);
        double stress[2][6], largest = 0;
        for (int k = 0; k < 2; k++) {
            int32_t first_atom[2];
            mlff_batch batch;
            mlff_batch_from_system(system, first_atom, &batch);
            assert_ok(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.stresses = stress[k]}));
            for (int c = 0; c < 3; c++) {
                const double a = system->cell[c];
                system->cell[c] = system->cell[3 + c];
                system->cell[3 + c] = a;
            }
        }
        for (int k = 0; k < 6; k++) largest = fmax(largest, fabs(stress[0][k]));
        assert_true(largest > 0.1); // eV/Å³: of the repulsion
        assert_true(support_difference(stress[0], stress[1], 6) < (precision == MLFF_FLOAT64 ? 1e-9 : 2e-5) * largest);
        mlff_evaluator_destroy(evaluator);
    }
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float64_is_that_of_orb_models),
        cmocka_unit_test(float32_is_within_its_rounding),
        cmocka_unit_test(bfloat16_is_within_its_rounding),
        cmocka_unit_test(the_size_of_the_published_model),
        cmocka_unit_test(float32_of_a_crystal_keeps_its_digits),
        cmocka_unit_test(charge_and_spin_are_required_where_they_matter),
        cmocka_unit_test(atom_energies_are_refused),
        cmocka_unit_test(ties_at_the_cap_are_told_once),
        cmocka_unit_test(stress_does_not_depend_on_the_order_of_vectors),
        cmocka_unit_test(a_trajectory_of_orb_is_reproduced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
