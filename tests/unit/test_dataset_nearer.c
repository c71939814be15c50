// SPDX-License-Identifier: MIT
// Structures that a training adds, with two atoms nearer than in any label: which ones, and that their forces are those of the energy that
// dataset_nearer.c defines.
#include <math.h>
#include <string.h>

#include "atoms/elements/covalent.h"
#include "atoms/zbl.h"
#include "support.h"
#include "train/data/dataset.h"
#include "train/sampling/sample_geometry.h"

#define ONSET "0.7"

static mlff_model *model_with(const char *core_repulsion)
{
    mlff_model *model;
    assert_ok(support_create(&model, "painn",
                             "n_features=16; n_layers=1; n_radial=8; cutoff=4; elements=H,C,O; seed=5; core_repulsion=%s",
                             core_repulsion));
    return model;
}

static void compute(mlff_evaluator *evaluator, const mlff_system *system, double *energy, double *forces)
{
    int32_t first[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first, &batch);
    assert_ok(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = energy, .forces = forces}));
}

// Energies of a plain model, without repulsion, and of the model whose repulsion is added.
typedef struct calculators {
    mlff_model *plain, *repelling;
    mlff_evaluator *of_plain, *of_repelling;
} calculators;

static calculators make_calculators(void)
{
    const mlff_evaluator_options options = {
        .struct_size = sizeof options, .precision = MLFF_FLOAT64, .skin_angstrom = 0.5, .n_threads = 1};
    calculators c = {.plain = model_with("0"), .repelling = model_with(ONSET)};
    assert_ok(mlff_evaluator_create(c.plain, &options, &c.of_plain));
    assert_ok(mlff_evaluator_create(c.repelling, &options, &c.of_repelling));
    return c;
}

static void free_calculators(calculators *c)
{
    mlff_evaluator_destroy(c->of_plain);
    mlff_evaluator_destroy(c->of_repelling);
    mlff_model_destroy(c->plain);
    mlff_model_destroy(c->repelling);
}

// An ethanol molecule whose nearest two atoms are pressed to `ratio` of the sum of their covalent radii; in a cell, wrapped through its sides.
static mlff_system *pressed_ethanol(double ratio, bool in_cell, uint64_t seed)
{
    mlff_system *system;
    assert_ok(mlff_system_build("ethanol", 0, 0, &system));
    sample_contact closest;
    for (int k = 0; k < 27; k++) system->positions[k] += 0.03 * base_random_normal(seed, 1, (uint64_t)k);
    assert_ok(sample_closest_pair(system, &closest));
    const int i = closest.a, j = closest.b;
    for (int c = 0; c < 3; c++)
        system->positions[3 * j + c] =
            system->positions[3 * i + c] + ratio / closest.ratio * (system->positions[3 * j + c] - system->positions[3 * i + c]);
    if (in_cell)
        for (int c = 0; c < 3; c++) system->cell[4 * c] = 8, system->periodic[c] = true;
    for (int k = 0; in_cell && k < 27; k++) system->positions[k] -= 8 * floor(system->positions[k] / 8); // wrapped
    return system;
}

static void add_labelled(mlff_dataset *data, mlff_evaluator *teacher, mlff_system *system)
{
    double energy, forces[27];
    compute(teacher, system, &energy, forces);
    assert_ok(mlff_dataset_add(data, system, &(mlff_labels){.energy = energy, .forces = forces, .weight = 2}));
    mlff_system_destroy(system);
}

// E(x with the pair moved back to r_c) of the plain model, and the repulsion of the two atoms, as the difference of both models there.
static double defined_energy(const calculators *c, const mlff_system *at, const sample_contact *pair, const double r_c)
{
    mlff_system *back;
    double plain, with, without, forces[27], u[3], r = 0;
    assert_ok(mlff_system_copy(at, &back));
    for (int k = 0; k < 3; k++) {
        u[k] = at->positions[3 * pair->b + k] - at->positions[3 * pair->a + k];
        if (at->periodic[k]) u[k] -= 8 * round(u[k] / 8);
        r += u[k] * u[k];
    }
    r = sqrt(r);
    for (int k = 0; k < 3; k++) back->positions[3 * pair->b + k] += (r_c / r - 1) * u[k];
    compute(c->of_plain, back, &plain, forces);
    mlff_system_destroy(back);
    compute(c->of_plain, at, &without, forces);
    compute(c->of_repelling, at, &with, forces);
    return plain + with - without;
}

// A force of 0 on a fixed atom is that of a constraint, and no label: no structure has a force made of it.
static void test_fixed_atoms(void **state)
{
    (void)state;
    calculators c = make_calculators();
    for (int pressed = 0; pressed < 2; pressed++) {
        mlff_dataset *data, *nearer;
        sample_contact pair;
        double energy, forces[27];
        assert_ok(mlff_dataset_create(&data));
        assert_ok(mlff_dataset_create(&nearer));
        mlff_system *from = pressed_ethanol(pressed ? 0.65 : 1, false, 7);
        assert_ok(sample_closest_pair(from, &pair));
        compute(c.of_plain, from, &energy, forces);
        assert_ok(mlff_system_add_fixed(from));
        from->fixed[pair.a] = 1;
        for (int k = 0; k < 3; k++) forces[3 * pair.a + k] = 0;
        assert_ok(mlff_dataset_add(data, from, &(mlff_labels){.energy = energy, .forces = forces, .weight = 1}));
        mlff_system_destroy(from);
        assert_ok(dataset_make_nearer(data, c.repelling, 2, 1, 11, nearer));
        assert_true(nearer->n_frames > 0); // of other atoms
        for (size_t f = 0; f < nearer->n_frames; f++)
            for (int k = 0; k < 3; k++) assert_true(nearer->frames[f].system->label_forces[3 * pair.a + k] == 0);
        mlff_dataset_destroy(data);
        mlff_dataset_destroy(nearer);
    }
    free_calculators(&c);
}

static void test_forces(void **state)
{
    (void)state;
    calculators c = make_calculators();
    for (int in_cell = 0; in_cell < 2; in_cell++) {
        mlff_dataset *data, *nearer;
        assert_ok(mlff_dataset_create(&data));
        assert_ok(mlff_dataset_create(&nearer));
        mlff_system *from = pressed_ethanol(0.65, in_cell, 7);
        sample_contact pair;
        assert_ok(sample_closest_pair(from, &pair));
        assert_true(fabs(pair.ratio - 0.65) <= 1e-9);
        const double radii = covalent_radius(from->species[pair.a]) + covalent_radius(from->species[pair.b]);
        add_labelled(data, c.of_plain, from);
        assert_ok(dataset_make_nearer(data, c.repelling, 2, 1, 11, nearer));
        assert_true(nearer->n_frames >= 2); // then others, of elements without pressed atoms
        for (size_t k = 0; k < 2; k++) {
            mlff_system *made = nearer->frames[k].system;
            sample_contact now;
            double largest = 0;
            assert_ok(sample_closest_pair(made, &now));
            assert_true(now.ratio < 0.65 && now.ratio >= 0.2);
            assert_true(isnan(made->label_energy) && isnan(made->label_stress[0]) && nearer->frames[k].weight == 2);
            for (int a = 0; a < 27; a++) largest = fmax(largest, fabs(made->label_forces[a]));
            for (int a = 0; a < 27; a++) { // differences of 1e-4 Å: 1e-8 of the third derivative, some 1e4 eV/Å³ in the core
                const double at = made->positions[a], h = 1e-4;
                made->positions[a] = at + h;
                const double plus = defined_energy(&c, made, &pair, 0.65 * radii);
                made->positions[a] = at - h;
                const double minus = defined_energy(&c, made, &pair, 0.65 * radii);
                made->positions[a] = at;
                const double expected = (minus - plus) / (2 * h);
                if (!(fabs(made->label_forces[a] - expected) <= 1e-5 * largest))
                    fail_msg("component %d: %.9g, expected %.9g", a, made->label_forces[a], expected);
            }
        }
        mlff_dataset_destroy(data);
        mlff_dataset_destroy(nearer);
    }
    free_calculators(&c);
}

// The frame of the data from which `made` comes: all atoms but one, *moved, are at their places.
static const mlff_system *origin_of(const mlff_dataset *data, const mlff_system *made, int *moved)
{
    for (size_t f = 0; f < data->n_frames; f++) {
        const mlff_system *from = data->frames[f].system;
        int n = 0;
        for (int a = 0; a < 9; a++)
            if (memcmp(from->positions + 3 * a, made->positions + 3 * a, 3 * sizeof(double)) != 0) n++, *moved = a;
        if (n == 1) return from;
    }
    fail_msg("a structure of no frame");
    return NULL;
}

// The atom towards which `moved` went, and its distance before in *before.
static int partner_of(const mlff_system *from, const mlff_system *made, int moved, double *before)
{
    int partner = -1;
    for (int i = 0; i < 9; i++) {
        double d[3], u[3], square = 0, along = 0, rest = 0;
        for (int c = 0; c < 3; c++) {
            u[c] = from->positions[3 * moved + c] - from->positions[3 * i + c];
            d[c] = made->positions[3 * moved + c] - from->positions[3 * moved + c];
            square += u[c] * u[c], along += u[c] * d[c], rest += d[c] * d[c];
        }
        if (i == moved || !(along < 0) || rest - along * along / square > 1e-12) continue;
        partner = i, *before = sqrt(square);
    }
    assert_true(partner >= 0);
    return partner;
}

// Of labels without pressed atoms: E(x with the atom moved back) + V(r), V ending at the labelled distance; what pulls the two together ends.
static void test_unpressed(void **state)
{
    (void)state;
    calculators c = make_calculators();
    mlff_dataset *data, *nearer;
    assert_ok(mlff_dataset_create(&data));
    assert_ok(mlff_dataset_create(&nearer));
    for (int k = 0; k < 30; k++) add_labelled(data, c.of_plain, pressed_ethanol(0.85, false, (uint64_t)k));
    assert_ok(dataset_make_nearer(data, c.repelling, 1, 1, 11, nearer));
    if (!(nearer->n_frames >= 10 && nearer->n_frames <= 5 * 20)) fail_msg("%zu structures", nearer->n_frames);
    for (size_t k = 0; k < nearer->n_frames; k++) {
        const mlff_system *made = nearer->frames[k].system;
        int moved = -1;
        double before = 0, slope, r = 0, along = 0, scale = 1;
        const mlff_system *from = origin_of(data, made, &moved);
        const int partner = partner_of(from, made, moved, &before);
        double u[3];
        for (int x = 0; x < 3; x++) {
            u[x] = made->positions[3 * moved + x] - made->positions[3 * partner + x];
            r += u[x] * u[x];
        }
        r = sqrt(r);
        for (int x = 0; x < 3; x++) along += u[x] / r * from->label_forces[3 * moved + x];
        const double radii = covalent_radius(made->species[moved]) + covalent_radius(made->species[partner]);
        assert_true(r < before && r >= 0.2 * radii && made->species[moved] <= made->species[partner]);
        zbl_pair(made->species[moved], made->species[partner], before, r, &slope);
        for (int a = 0; a < 27; a++) scale = fmax(scale, fabs(made->label_forces[a]));
        for (int a = 0; a < 27; a++) {
            const double push = (slope + fmin(along, 0)) * u[a % 3] / r;
            const double expected = from->label_forces[a] - (a / 3 == moved ? push : 0) + (a / 3 == partner ? push : 0);
            if (!(fabs(made->label_forces[a] - expected) <= 1e-9 * scale)) // rounding of r
                fail_msg("structure %zu, component %d: %.12g, expected %.12g", k, a, made->label_forces[a], expected);
        }
        assert_true(isnan(made->label_energy));
        assert_true(fabs(nearer->frames[k].weight - 2 * fmin(0.3, 3.0 / fabs(slope))) <= 1e-9);
    }
    mlff_dataset_destroy(data);
    mlff_dataset_destroy(nearer);
    free_calculators(&c);
}

// Five pressed molecules and fifteen others.
static mlff_dataset *twenty(const calculators *c)
{
    mlff_dataset *data;
    assert_ok(mlff_dataset_create(&data));
    for (int k = 0; k < 20; k++) add_labelled(data, c->of_plain, pressed_ethanol(k < 5 ? 0.7 : 0.9, false, (uint64_t)k));
    return data;
}

// How many are made of pressed atoms: two at 0.76 or less, which were the nearest.
static int64_t count_made(const mlff_dataset *data, const mlff_model *model, double part)
{
    mlff_dataset *nearer;
    int64_t n = 0;
    assert_ok(mlff_dataset_create(&nearer));
    assert_ok(dataset_make_nearer(data, model, part, 2, 3, nearer));
    for (size_t k = 0; k < nearer->n_frames; k++) {
        const mlff_system *made = nearer->frames[k].system;
        int moved = -1;
        double before;
        sample_contact closest;
        const mlff_system *from = origin_of(data, made, &moved);
        const int partner = partner_of(from, made, moved, &before);
        assert_ok(sample_closest_pair(from, &closest));
        n +=
            closest.ratio <= 0.76 && (moved == closest.a || moved == closest.b) && (partner == closest.a || partner == closest.b);
    }
    mlff_dataset_destroy(nearer);
    return n;
}

// Only of structures with pressed atoms, forces that a teacher can be trusted with, and no more than asked for.
static void test_choice(void **state)
{
    (void)state;
    calculators c = make_calculators();
    mlff_dataset *data = twenty(&c);
    assert_int_equal(count_made(data, c.repelling, 1), 10); // two of each
    assert_int_equal(count_made(data, c.repelling, 0.35), 7);
    assert_int_equal(count_made(data, c.repelling, 0.04), 0);
    assert_int_equal(count_made(data, c.plain, 1), 0);
    data->frames[0].system->label_forces[4] = -61;
    base_free(data->frames[1].system->label_forces);
    data->frames[1].system->label_forces = NULL;
    data->frames[2].probe_step = 0.01; // frames 2 and 3
    assert_int_equal(count_made(data, c.repelling, 1), 2);
    mlff_dataset_destroy(data);
    free_calculators(&c);
}

// The same structures for any number of threads.
static void test_threads(void **state)
{
    (void)state;
    calculators c = make_calculators();
    mlff_dataset *data, *made[2];
    assert_ok(mlff_dataset_create(&data));
    for (int k = 0; k < 30; k++) add_labelled(data, c.of_plain, pressed_ethanol(0.6 + 0.02 * (k % 10), false, (uint64_t)k));
    for (int t = 0; t < 2; t++) {
        assert_ok(mlff_dataset_create(&made[t]));
        assert_ok(dataset_make_nearer(data, c.repelling, 0.5, 1 + 2 * t, 9, made[t]));
    }
    assert_true(made[0]->n_frames >= 15 && made[1]->n_frames == made[0]->n_frames);
    for (size_t f = 0; f < made[0]->n_frames; f++) {
        assert_memory_equal(made[0]->frames[f].system->positions, made[1]->frames[f].system->positions, 27 * sizeof(double));
        assert_memory_equal(made[0]->frames[f].system->label_forces, made[1]->frames[f].system->label_forces,
                            27 * sizeof(double));
    }
    for (int t = 0; t < 2; t++) mlff_dataset_destroy(made[t]);
    mlff_dataset_destroy(data);
    free_calculators(&c);
}

// A trainer adds them to its set; errors and steps are of the data as before where none is asked for.
static void test_trainer(void **state)
{
    (void)state;
    calculators c = make_calculators();
    mlff_dataset *data = twenty(&c);
    for (int with = 0; with < 2; with++) {
        mlff_trainer_options options = mlff_trainer_options_default();
        mlff_trainer *trainer;
        mlff_training_errors errors;
        options.nearer = with ? 0.2 : 0;
        options.n_threads = 1;
        options.batch_size = 64;
        assert_ok(mlff_trainer_create(c.repelling, data, &options, &trainer));
        const int64_t n_nearer = mlff_trainer_n_nearer(trainer); // 4 of pressed atoms, and others
        assert_true(with ? n_nearer >= 4 : n_nearer == 0);
        assert_ok(mlff_trainer_run(trainer, 1, NULL, &errors));
        assert_int_equal(errors.n_frames, 20 + n_nearer);
        mlff_trainer_destroy(trainer);
    }
    mlff_trainer_options wrong = mlff_trainer_options_default();
    mlff_trainer *none;
    wrong.nearer = NAN;
    assert_refused(mlff_trainer_create(c.repelling, data, &wrong, &none), MLFF_ERR_USAGE, "nearer");
    mlff_dataset_destroy(data);
    free_calculators(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forces), cmocka_unit_test(test_fixed_atoms), cmocka_unit_test(test_unpressed),
        cmocka_unit_test(test_choice), cmocka_unit_test(test_threads),     cmocka_unit_test(test_trainer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
