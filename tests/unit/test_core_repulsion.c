// SPDX-License-Identifier: MIT
// test_core_repulsion.c: the fixed repulsion of nuclei: its slope and smoothness, its place in energies, forces and stress, what a
// trainer makes of it. Values of the universal potential: Ziegler, Biersack and Littmark (1985), computed by hand.
#include "atoms/elements/covalent.h"
#include "atoms/zbl.h"
#include "mlff_train.h"
#include "support.h"

enum { H = 1, C = 6, O = 8 };

static mlff_model *make_model(const char *core)
{
    mlff_model *model;
    assert_ok(support_create(&model, "painn",
                             "n_features=16; n_layers=2; n_radial=8; cutoff=4; core_repulsion=%s; elements=H,C,N,O,Si,Cl; seed=3",
                             core));
    return model;
}

// Far inside the onset the switching function is 1 to first order in t³, so that V is the universal potential.
static void test_values(void **state)
{
    (void)state;
    double slope;
    // H and H at 0.05 Å: a = 0.8854 · 0.529177/2 = 0.234267 Å, φ(0.213432) = 0.792894, V = 14.39964/0.05 · φ
    const double expected = 228.348, end = 1e3; // an onset so far away that s = 1 to 1e-12
    assert_true(fabs(zbl_pair(H, H, end, 0.05, &slope) - expected) < 1e-5 * expected);
    assert_true(zbl_pair(C, O, 1, 1, &slope) == 0 && slope == 0);
    assert_true(zbl_pair(C, O, 1, 2, &slope) == 0 && slope == 0);
}

// dV/dr against central differences with h = 1e-5 Å: truncation V'''h²/6 below 1e-7 of V' here.
static void test_slope(void **state)
{
    (void)state;
    static const int pairs[][2] = {{H, H}, {H, C}, {C, O}, {17, 17}};
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        const int a = pairs[k][0], b = pairs[k][1];
        const double end = 0.7 * (covalent_radius(a) + covalent_radius(b)), h = 1e-5;
        double before = INFINITY;
        for (double t = 0.2; t < 0.99; t += 0.05) {
            double slope, unused;
            const double v = zbl_pair(a, b, end, t * end, &slope);
            const double difference =
                (zbl_pair(a, b, end, t * end + h, &unused) - zbl_pair(a, b, end, t * end - h, &unused)) / (2 * h);
            if (!(slope < 0 && v < before)) fail_msg("%d-%d at %g of the onset does not repel", a, b, t);
            if (!(fabs(slope - difference) <= 1e-6 * fabs(slope) + 1e-6))
                fail_msg("%d-%d at %g of the onset: slope %g, difference %g", a, b, t, slope, difference);
            before = v;
        }
    }
}

// Smooth at the onset: V, V' and V'' vanish there as the third, second and first power of the distance to it.
static void test_end(void **state)
{
    (void)state;
    const double end = 0.7 * 2 * covalent_radius(C);
    double near_slope, far_slope;
    const double near = zbl_pair(C, C, end, end * (1 - 1e-3), &near_slope);
    const double far = zbl_pair(C, C, end, end * (1 - 1e-2), &far_slope);
    assert_true(near > 0 && fabs(far / near - 1000) < 60); // 3 % for the next order in 1 − t
    assert_true(near_slope < 0 && fabs(far_slope / near_slope - 100) < 6);
}

// A compressed structure: model with repulsion = model without + sum over pairs, in float64 and float32.
static void test_is_added(void **state)
{
    (void)state;
    mlff_model *with = make_model("0.7"), *without = make_model("0");
    mlff_system *system;
    double sum = 0, slope;
    int64_t n_within = 0;
    assert_ok(mlff_system_build("ethanol", 0, 0, &system));
    for (int k = 0; k < 3 * system->n_atoms; k++) system->positions[k] *= 0.45;
    for (int i = 0; i < system->n_atoms; i++)
        for (int j = 0; j < i; j++) {
            const double *a = system->positions + 3 * i, *b = system->positions + 3 * j;
            const double r = sqrt(pow(a[0] - b[0], 2) + pow(a[1] - b[1], 2) + pow(a[2] - b[2], 2));
            const double end = 0.7 * (covalent_radius(system->species[i]) + covalent_radius(system->species[j]));
            sum += zbl_pair(system->species[i], system->species[j], end, r, &slope);
            n_within += 2 * (r < end);
        }
    assert_true(sum > 10);
    for (int exact = 0; exact < 2; exact++) {
        mlff_evaluator *a = support_evaluator(with, exact ? MLFF_FLOAT64 : MLFF_FLOAT32);
        mlff_evaluator *b = support_evaluator(without, exact ? MLFF_FLOAT64 : MLFF_FLOAT32);
        const double difference = support_energy(a, system) - support_energy(b, system);
        // float32 rounds the network's energy; both have the same. On a GPU the repulsion itself is summed in float32.
        if (!(fabs(difference - sum) <= (exact ? 1e-10 : 1e-5) * sum)) fail_msg("%.12g added, %.12g expected", difference, sum);
        mlff_evaluator_info within, none;
        mlff_evaluator_info_get(a, &within);
        mlff_evaluator_info_get(b, &none);
        const bool counted = within.device.kind == MLFF_CPU;
        assert_int_equal(within.n_near_pairs, counted ? n_within : -1);
        assert_int_equal(none.n_near_pairs, counted ? 0 : -1);
        mlff_evaluator_destroy(a);
        mlff_evaluator_destroy(b);
    }
    mlff_system_destroy(system);
    mlff_model_destroy(with);
    mlff_model_destroy(without);
}

// Pairs that are counted as near: of a model that says how near its training structures come these, with or without repulsion; else those within it.
static void test_near_pairs(void **state)
{
    (void)state;
    static const struct {
        const char *core, *nearest;
        double end; // of the sum of covalent radii
    } cases[] = {{"0", NULL, 0},           {"0.9", NULL, 0.9}, {"0.9", "0.8", 0.95 * 0.8},
                 {"0", "0.8", 0.95 * 0.8}, {"0", "none", 0},   {"0", "-1", 0}};
    mlff_system *system = support_random_system(12, 1, 0.9, 5);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_model *model = make_model(cases[k].core);
        mlff_evaluator_info info;
        int64_t expected = 0;
        if (cases[k].nearest) assert_ok(mlff_model_note(model, "nearest_of_covalent", cases[k].nearest));
        assert_true(mlff_model_nearest(model) == 0.8 || (cases[k].end != 0.95 * 0.8 && isnan(mlff_model_nearest(model))));
        mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT32);
        support_energy(evaluator, system);
        mlff_evaluator_info_get(evaluator, &info);
        for (int i = 0; i < system->n_atoms; i++) // images in the cells around it too
            for (int j = 0; j < system->n_atoms; j++)
                for (int image = 0; image < 125; image++) {
                    const int shift[3] = {image % 5 - 2, image / 5 % 5 - 2, image / 25 - 2};
                    double square = 0;
                    if (i == j && image == 62) continue;
                    for (int c = 0; c < 3; c++) {
                        double d = system->positions[3 * j + c] - system->positions[3 * i + c];
                        for (int a = 0; a < 3; a++) d += shift[a] * system->cell[3 * a + c];
                        square += d * d;
                    }
                    expected +=
                        sqrt(square) < cases[k].end * (covalent_radius(system->species[i]) + covalent_radius(system->species[j]));
                }
        assert_true(cases[k].end == 0 || expected > 0);
        assert_int_equal(info.n_near_pairs, info.device.kind == MLFF_CPU ? expected : -1);
        mlff_evaluator_destroy(evaluator);
        mlff_model_destroy(model);
    }
    mlff_system_destroy(system);
}

// Forces and stress against differences of the energy, in a small periodic cell with self-images, some pairs within the onset.
static void test_derivatives(void **state)
{
    (void)state;
    mlff_model *model = make_model("1");
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT64);
    mlff_system *system = support_random_system(12, 1, 0.9, 5);
    support_results r = support_compute_system(evaluator, system);
    const double h = 1e-4; // Å; the repulsion's fourth derivative is large: 1e-5 of the largest force allows for it
    const double scale = support_largest(r.r.forces, 36), volume = mlff_system_volume(system);
    for (int k = 0; k < 36; k++) {
        const double x = system->positions[k];
        system->positions[k] = x + h;
        const double plus = support_energy(evaluator, system);
        system->positions[k] = x - h;
        const double minus = support_energy(evaluator, system);
        system->positions[k] = x;
        if (!(fabs(r.r.forces[k] + (plus - minus) / (2 * h)) <= 1e-5 * scale))
            fail_msg("component %d: force %g, difference %g", k, r.r.forces[k], -(plus - minus) / (2 * h));
    }
    double energy[2];
    for (int side = 0; side < 2; side++) { // strain along x
        mlff_system *strained;
        assert_ok(mlff_system_copy(system, &strained));
        const double factor = 1 + (side ? h : -h);
        for (int i = 0; i < 12; i++) strained->positions[3 * i] *= factor;
        for (int a = 0; a < 3; a++) strained->cell[3 * a] *= factor;
        energy[side] = support_energy(evaluator, strained);
        mlff_system_destroy(strained);
    }
    const double stress = (energy[1] - energy[0]) / (2 * h) / volume;
    if (!(fabs(r.r.stresses[0] - stress) <= 1e-5 * fabs(stress))) fail_msg("stress %g, difference %g", r.r.stresses[0], stress);
    support_results_free(&r);
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

// The setting is written only where it is given; a file with it loads and says so; what it cannot go with is refused.
static void test_setting(void **state)
{
    (void)state;
    mlff_model *with = make_model("0.7"), *without = make_model("0"), *none = NULL;
    mlff_model_info info;
    const char *key, *value;
    bool found = false;
    for (int k = 0; (key = mlff_model_metadata(without, k, &value)); k++) assert_string_not_equal(key, "core_repulsion");
    for (int k = 0; (key = mlff_model_metadata(with, k, &value)); k++) found = found || strcmp(key, "core_repulsion") == 0;
    assert_true(found);
    mlff_model_info_get(with, &info);
    assert_non_null(strstr(info.description, "core repulsion below 0.7"));
    assert_int_equal(support_create(&none, "painn", "cutoff=0.5; core_repulsion=0.7; elements=H,C"), MLFF_ERR_VALUE);
    assert_non_null(strstr(mlff_last_error(), "cutoff"));
    assert_int_equal(support_create(&none, "painn", "core_repulsion=1.5"), MLFF_ERR_USAGE);
    mlff_model_destroy(with);
    mlff_model_destroy(without);
}

// Labels made by a model with repulsion, in which pairs are within it: a trainer that begins with the same weights has no error left.
static void test_trainer_subtracts(void **state)
{
    (void)state;
    mlff_model *model = make_model("1");
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT64);
    mlff_system *system = support_random_system(12, 1, 0.9, 5);
    support_results r = support_compute_system(evaluator, system);
    const mlff_labels labels = {
        .energy = r.r.energies[0], .forces = r.r.forces, .stress = r.r.stresses, .atom_energies = r.r.atom_energies, .weight = 1};
    mlff_dataset *data;
    mlff_trainer *trainer;
    mlff_trainer_options options = mlff_trainer_options_default();
    mlff_training_errors errors;
    options.precision = MLFF_FLOAT64;
    options.n_threads = 1;
    options.loss.atom_energies_weight = 1;
    assert_ok(mlff_dataset_create(&data));
    assert_ok(mlff_dataset_add(data, system, &labels));
    assert_ok(mlff_trainer_create(model, data, &options, &trainer));
    assert_ok(mlff_trainer_validate(trainer, data, &errors));
    // float64: sums of some hundred terms of at most 1e3 eV/Å
    if (!(errors.force_mae < 1e-9 && errors.energy_mae < 1e-9 && errors.stress_mae < 1e-9))
        fail_msg("forces %g, energy %g, stress %g", errors.force_mae, errors.energy_mae, errors.stress_mae);
    if (!(errors.loss < 1e-12)) fail_msg("a loss of %g, of energies of atoms", errors.loss);
    mlff_trainer_destroy(trainer);
    mlff_dataset_destroy(data);
    support_results_free(&r);
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),     cmocka_unit_test(test_slope),
        cmocka_unit_test(test_end),        cmocka_unit_test(test_is_added),
        cmocka_unit_test(test_near_pairs), cmocka_unit_test(test_derivatives),
        cmocka_unit_test(test_setting),    cmocka_unit_test(test_trainer_subtracts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
