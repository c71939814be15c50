// SPDX-License-Identifier: MIT
// The trained SchNetPack models give the energies, forces and strain derivatives of the upstream code.
// Reference: data/painn/reference.json, upstream modules in float64. The float64 path must agree to 1e-9 (rounding of
// some 10⁵ operations), float32 forces to 2e-5 of the largest force (float32 sums of ~10³ terms).
#include "golden/reference_json.h"

static double *numbers(const cJSON *object, const char *key, int *n_out)
{
    const cJSON *array = cJSON_GetObjectItem(object, key), *item;
    if (!cJSON_IsArray(array)) return NULL;
    int n = cJSON_GetArraySize(array), k = 0;
    double *values = calloc((size_t)n * 9, sizeof *values);
    cJSON_ArrayForEach(item, array)
    {
        const cJSON *inner;
        if (cJSON_IsArray(item))
            cJSON_ArrayForEach(inner, item) values[k++] = inner->valuedouble;
        else
            values[k++] = item->valuedouble;
    }
    if (n_out) *n_out = k;
    return values;
}

static void check_case(const cJSON *c, int index)
{
    char name[256];
    snprintf(name, sizeof name, "data/painn/%s", cJSON_GetObjectItem(c, "model")->valuestring);
    const char *path = support_shared(name);
    if (!path) return;
    mlff_import_options options = mlff_import_options_default();
    options.energy_unit = "kcal/mol";
    options.elements = "H,C,O";
    mlff_model *model;
    assert_ok(mlff_model_import(path, &options, &model));

    int n;
    double *species = numbers(c, "Z", &n), *positions = numbers(c, "positions", NULL), *cell = numbers(c, "cell", NULL);
    double *forces = numbers(c, "forces", NULL), *strain = numbers(c, "dE_dstrain", NULL);
    double *atom_energies = numbers(c, "atom_energies", NULL);
    mlff_system *system;
    assert_ok(mlff_system_create(n, &system));
    for (int i = 0; i < n; i++) system->species[i] = (int)species[i];
    memcpy(system->positions, positions, sizeof(double) * 3 * (size_t)n);
    for (int k = 0; cell && k < 9; k++) system->cell[k] = cell[k];
    for (int k = 0; k < 3; k++) system->periodic[k] = cell != NULL;

    const double unit = BASE_KCAL_PER_MOL_EV;
    double raw = cJSON_GetObjectItem(c, "energy_raw")->valuedouble, mean = cJSON_GetObjectItem(c, "mean")->valuedouble;
    double scale = unit * support_largest(forces, 3 * (size_t)n);
    // Atoms' energies cancel (to 1.6 of 12 kcal/mol in case 3), so errors are counted in what is summed.
    double summed = 0;
    for (int k = 0; k < n; k++) summed += fabs(atom_energies[k]);
    for (int k = 0; k < n; k++) atom_energies[k] = unit * (atom_energies[k] + mean);
    for (int k = 0; k < 3 * n; k++) forces[k] *= unit;
    for (int k = 0; k < 9; k++) strain[k] *= -unit;
    const struct {
        mlff_precision precision;
        double force, energy;
    } runs[] = {{MLFF_FLOAT64, 1e-9, 1e-9},
                {MLFF_FLOAT32, 2e-5, 1e-5}} /* a GPU's filters, of degree 3 on the way forward: 7e-6 */;
    for (int k = 0; k < 2; k++) {
        mlff_evaluator *evaluator = support_evaluator(model, runs[k].precision);
        support_results out = support_compute_system(evaluator, system);
        mlff_evaluator_info info;
        mlff_evaluator_info_get(evaluator, &info);
        assert_int_equal(info.n_pairs, cJSON_GetObjectItem(c, "n_edges")->valueint);
        double df = support_difference(out.r.forces, forces, 3 * (size_t)n) / scale;
        double de = fabs(out.r.energies[0] / unit - mean * n - raw) / summed;
        double da = support_difference(out.r.atom_energies, atom_energies, (size_t)n) / (unit * summed);
        double dv = support_difference(out.r.virials, strain, 9) / support_largest(strain, 9);
        printf("case %2d %s float%d: energy %.1e, atom energies %.1e, forces %.1e, virial %.1e (relative)\n", index, name,
               k ? 32 : 64, de, da, df, dv);
        assert_true(df <= runs[k].force);
        // The offset of some 1e5 kcal/mol is added in double: its last bit is 1.5e-11 kcal/mol.
        assert_true(de <= runs[k].energy + 3e-16 * fabs(mean * n / summed));
        assert_true(da <= runs[k].energy + 3e-16 * fabs(mean / summed));
        assert_true(dv <= runs[k].force);
        support_results_free(&out);
        mlff_evaluator_destroy(evaluator);
    }
    mlff_system_destroy(system);
    mlff_model_destroy(model);
    free(species);
    free(positions);
    free(cell);
    free(forces);
    free(strain);
    free(atom_energies);
}

static void test_reference_cases(void **state)
{
    (void)state;
    const char *path = support_shared("data/painn/reference.json");
    if (!path) skip();
    cJSON *cases = read_json(path), *c;
    int index = 0;
    assert_int_equal(cJSON_GetArraySize(cases), 12);
    cJSON_ArrayForEach(c, cases) check_case(c, index++);
    cJSON_Delete(cases);
}

// The float64 oracle gives 0.137 eV/Å over the first 40 frames of the rMD17 trajectory of aspirin.
static void test_aspirin_force_error(void **state)
{
    (void)state;
    const char *path = support_shared("data/painn/aspirin.best_model"),
               *frames = support_shared("data/trajectories/aspirin-rmd17.extxyz");
    if (!path || !frames) skip();
    mlff_import_options options = mlff_import_options_default();
    options.energy_unit = "kcal/mol";
    options.elements = "H,C,O";
    mlff_model *model;
    assert_ok(mlff_model_import(path, &options, &model));
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT32);
    mlff_reader *reader;
    assert_ok(mlff_reader_open(frames, NULL, &reader));
    double sum = 0;
    int count = 0;
    for (int frame = 0; frame < 40; frame++) {
        mlff_system *system;
        assert_ok(mlff_reader_next(reader, &system));
        assert_non_null(system);
        support_results out = support_compute_system(evaluator, system);
        for (int k = 0; k < 3 * system->n_atoms; k++, count++) sum += fabs(out.r.forces[k] - system->label_forces[k]);
        support_results_free(&out);
        mlff_system_destroy(system);
    }
    printf("aspirin: force MAE %.6f eV/Å over 40 frames\n", sum / count);
    assert_true(fabs(sum / count - 0.137) < 0.0005);
    mlff_reader_destroy(reader);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_cases),
        cmocka_unit_test(test_aspirin_force_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
