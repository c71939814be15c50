// SPDX-License-Identifier: MIT
// ANI against what the original NeuroChem program computed: ANI-1x (member 0, 970 conformers) and ANI-2x (member 0,
// four diatomics), and the same model read from NeuroChem's files and from FeNNol's.
// Reference: the shared data's reference-neurochem-*.json*, energies stored as float32.
#include "ani_support.h"

#include "golden/reference_json.h"

static mlff_system *system_of(const cJSON *record)
{
    const cJSON *symbols = cJSON_GetObjectItemCaseSensitive(record, "symbols"), *item;
    mlff_system *system;
    assert_ok(mlff_system_create(cJSON_GetArraySize(symbols), &system));
    int at = 0;
    cJSON_ArrayForEach(item, symbols) system->species[at++] = mlff_element_number(item->valuestring);
    at = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(record, "positions_A")) system->positions[at++] = item->valuedouble;
    assert_int_equal(at, 3 * system->n_atoms);
    return system;
}

typedef struct worst {
    int n;
    double energy, force;
} worst;

static worst compare_1x(mlff_evaluator *evaluator, const char *path)
{
    worst w = {0};
    char *text;
    size_t length;
    assert_ok(base_read_file(path, 1 << 28, &text, &length));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        cJSON *record = cJSON_Parse(line);
        assert_non_null(record);
        mlff_system *system = system_of(record);
        support_results s = support_compute_system(evaluator, system);
        // The record's Hartree is another year's than ours.
        double expected = number_of(record, "energy_eV") / number_of(record, "hartree_eV") * BASE_HARTREE_EV;
        w.energy = fmax(w.energy, fabs(s.r.energies[0] - expected));
        const cJSON *item;
        int at = 0;
        cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(record, "forces_eV_A")) w.force =
            fmax(w.force, fabs(s.r.forces[at++] - item->valuedouble));
        w.n++;
        support_results_free(&s);
        mlff_system_destroy(system);
        cJSON_Delete(record);
    }
    base_free(text);
    return w;
}

static void test_ani1x(void **state)
{
    (void)state;
    const char *path = support_shared("data/ani1x/reference-neurochem-gdb97.jsonl");
    mlff_model *model = ani_1x();
    if (!path || !model) skip();
    for (int precision = MLFF_FLOAT32; precision <= MLFF_FLOAT64; precision++) {
        mlff_evaluator *evaluator = support_evaluator(model, (mlff_precision)precision);
        worst w = compare_1x(evaluator, path);
        printf("ANI-1x, %s, %d conformers: |dE| %.2e eV, |dF| %.2e eV/Å\n", precision == MLFF_FLOAT32 ? "float32" : "float64",
               w.n, w.energy, w.force);
        assert_int_equal(w.n, 970);
        // float64: the reference is stored in float32, half a unit in the last place of 10⁴ eV is 5e-4 eV; float32 adds its own
        // rounding, first of all of the forces.
        assert_true(w.energy < (precision == MLFF_FLOAT64 ? 3e-4 : 1e-3));
        assert_true(w.force < (precision == MLFF_FLOAT64 ? 6e-5 : 5e-4));
        mlff_evaluator_destroy(evaluator);
    }
    mlff_model_destroy(model);
}

// Both files hold member 0 of ANI-1x; FeNNol's rounds no constant, NeuroChem's prints shifts and angles with 8 digits.
static void test_fnx_is_the_same(void **state)
{
    (void)state;
    const char *path = support_shared("data/ani1x/ani1x-member0.fnx");
    mlff_model *a = ani_1x(), *b = NULL;
    if (!path || !a) skip();
    assert_ok(mlff_model_import(path, NULL, &b));
    mlff_evaluator *ea = support_evaluator(a, MLFF_FLOAT64), *eb = support_evaluator(b, MLFF_FLOAT64);
    mlff_system *system = ani_random_system(40, 4, 1, 0.9, 11);
    support_results ra = support_compute_system(ea, system), rb = support_compute_system(eb, system);
    double energy = fabs(ra.r.energies[0] - rb.r.energies[0]), force = support_difference(ra.r.forces, rb.r.forces, 120);
    printf("ANI-1x from .fnx and from NeuroChem: |dE| %.2e eV, |dF| %.2e of %.1f eV/Å\n", energy, force,
           support_largest(ra.r.forces, 120));
    assert_true(energy < 1e-5 && force < 1e-5); // angles differ in the 8th digit
    support_results_free(&ra);
    support_results_free(&rb);
    mlff_system_destroy(system);
    mlff_evaluator_destroy(ea);
    mlff_evaluator_destroy(eb);
    mlff_model_destroy(a);
    mlff_model_destroy(b);
}

static void test_ani2x_diatomics(void **state)
{
    (void)state;
    const char *path = support_shared("data/ani2x/reference-neurochem-diatomics.json");
    mlff_model *model = ani_2x();
    if (!path || !model) skip();
    mlff_evaluator_options options = mlff_evaluator_options_default();
    options.precision = MLFF_FLOAT64;
    options.members = "0";
    mlff_evaluator *evaluator;
    assert_ok(mlff_evaluator_create(model, &options, &evaluator));
    cJSON *list = read_json(path);
    const cJSON *record;
    int n = 0;
    cJSON_ArrayForEach(record, list)
    {
        mlff_system *system = system_of(record);
        assert_int_equal((int)number_of(record, "member"), 0);
        double energy = support_energy(evaluator, system) / BASE_HARTREE_EV * number_of(record, "hartree_kcal");
        double difference = energy - number_of(record, "energy_kcal");
        printf("ANI-2x %s2: %.4f kcal/mol, difference %.1e\n", mlff_element_symbol(system->species[0]), energy, difference);
        // Half a unit in the last place of a float32 of this size, in kcal/mol.
        assert_true(fabs(difference) < fmax(8e-3, 6e-8 * fabs(energy)));
        n++;
        mlff_system_destroy(system);
    }
    assert_int_equal(n, 4);
    cJSON_Delete(list);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ani1x), cmocka_unit_test(test_fnx_is_the_same),
                                       cmocka_unit_test(test_ani2x_diatomics)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
