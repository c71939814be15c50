// SPDX-License-Identifier: MIT
/* The KIM model driver from the side of a simulator: installed models (tests/kim/run.sh) against the evaluator that knows the cell,
 * on explicit ghost atoms whose forces are folded back; every unit system; forces against numerical derivatives with ghosts moving
 * freely; refusals. All in float64. Tolerances: 1e-10 eV for sums of up to 10^3 terms of up to 10^3 eV (ANI's offsets) in another
 * order, 1e-11 relative where units are converted there and back. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "KIM_SimulatorHeaders.h"
#include "mlff.h"

#define assert_ok(call)                                                                                                          \
    do {                                                                                                                         \
        if ((call) != MLFF_OK) fail_msg("%s: %s", #call, mlff_last_error());                                                     \
    } while (0)

static void assert_close(double value, double expected, double tolerance, const char *what)
{
    if (!(fabs(value - expected) <= tolerance)) fail_msg("%s: %.17g, expected %.17g within %g", what, value, expected, tolerance);
}

// ---- a simulator -------------------------------------------------------------------------------------------------------

typedef struct atoms {
    int n, *codes, *contributing, *owner; // owner: the atom of which a ghost is an image
    double *positions;                    // [n][3] in the simulator's unit
    double energy, virial[6], *forces, *energies, *virials;
} atoms;

typedef struct simulator {
    KIM_Model *model;
    KIM_ComputeArguments *arguments;
    double influence;
} simulator;

// The driver builds its own list: asking for KIM's is an error here.
static int no_list(void *data, int n_lists, const double *cutoffs, int list, int atom, int *n, const int **neighbors)
{
    (void)data, (void)n_lists, (void)cutoffs, (void)list, (void)atom, (void)n, (void)neighbors;
    return 1;
}

static simulator open_model(const char *name, KIM_LengthUnit length, KIM_EnergyUnit energy)
{
    simulator s;
    int accepted = 0;
    assert_int_equal(KIM_Model_Create(KIM_NUMBERING_zeroBased, length, energy, KIM_CHARGE_UNIT_e, KIM_TEMPERATURE_UNIT_K,
                                      KIM_TIME_UNIT_ps, name, &accepted, &s.model),
                     0);
    assert_true(accepted);
    KIM_Model_GetInfluenceDistance(s.model, &s.influence);
    assert_int_equal(KIM_Model_ComputeArgumentsCreate(s.model, &s.arguments), 0);
    assert_int_equal(KIM_ComputeArguments_SetCallbackPointer(s.arguments, KIM_COMPUTE_CALLBACK_NAME_GetNeighborList,
                                                             KIM_LANGUAGE_NAME_c, (KIM_Function *)no_list, NULL),
                     0);
    return s;
}

static simulator open_metal(const char *name)
{
    return open_model(name, KIM_LENGTH_UNIT_A, KIM_ENERGY_UNIT_eV);
}

static void close_model(simulator *s)
{
    KIM_Model_ComputeArgumentsDestroy(s->model, &s->arguments);
    KIM_Model_Destroy(&s->model);
}

static int compute(simulator *s, atoms *a)
{
    KIM_ComputeArguments *c = s->arguments;
    KIM_ComputeArguments_SetArgumentPointerInteger(c, KIM_COMPUTE_ARGUMENT_NAME_numberOfParticles, &a->n);
    KIM_ComputeArguments_SetArgumentPointerInteger(c, KIM_COMPUTE_ARGUMENT_NAME_particleSpeciesCodes, a->codes);
    KIM_ComputeArguments_SetArgumentPointerInteger(c, KIM_COMPUTE_ARGUMENT_NAME_particleContributing, a->contributing);
    KIM_ComputeArguments_SetArgumentPointerDouble(c, KIM_COMPUTE_ARGUMENT_NAME_coordinates, a->positions);
    KIM_ComputeArguments_SetArgumentPointerDouble(c, KIM_COMPUTE_ARGUMENT_NAME_partialEnergy, &a->energy);
    KIM_ComputeArguments_SetArgumentPointerDouble(c, KIM_COMPUTE_ARGUMENT_NAME_partialForces, a->forces);
    KIM_ComputeArguments_SetArgumentPointerDouble(c, KIM_COMPUTE_ARGUMENT_NAME_partialParticleEnergy, a->energies);
    KIM_ComputeArguments_SetArgumentPointerDouble(c, KIM_COMPUTE_ARGUMENT_NAME_partialVirial, a->virial);
    KIM_ComputeArguments_SetArgumentPointerDouble(c, KIM_COMPUTE_ARGUMENT_NAME_partialParticleVirial, a->virials);
    return KIM_Model_Compute(s->model, c);
}

static atoms alloc_atoms(int n)
{
    atoms a = {.n = n};
    a.codes = calloc((size_t)n + 1, sizeof(int));
    a.contributing = calloc((size_t)n + 1, sizeof(int));
    a.owner = calloc((size_t)n + 1, sizeof(int));
    a.positions = calloc(3 * (size_t)n + 3, sizeof(double));
    a.forces = calloc(3 * (size_t)n + 3, sizeof(double));
    a.energies = calloc((size_t)n + 1, sizeof(double));
    a.virials = calloc(6 * (size_t)n + 6, sizeof(double));
    return a;
}

static void free_atoms(atoms *a)
{
    free(a->codes);
    free(a->contributing);
    free(a->owner);
    free(a->positions);
    free(a->forces);
    free(a->energies);
    free(a->virials);
}

static double distance_to_box(const double *x, const double low[3], const double high[3])
{
    double square = 0;
    for (int c = 0; c < 3; c++) {
        double outside = fmax(fmax(low[c] - x[c], x[c] - high[c]), 0);
        square += outside * outside;
    }
    return sqrt(square);
}

// Atoms of the system and their images within `shell` (Å) of its bounding box, positions times `length`.
static atoms with_ghosts(const mlff_system *system, double shell, double length)
{
    enum { MOST = 60000, REACH = 5 };
    atoms a = alloc_atoms(MOST);
    double low[3] = {INFINITY, INFINITY, INFINITY}, high[3] = {-INFINITY, -INFINITY, -INFINITY};
    int n = 0, reach[3];
    for (int i = 0; i < system->n_atoms; i++)
        for (int c = 0; c < 3; c++) {
            low[c] = fmin(low[c], system->positions[3 * i + c]);
            high[c] = fmax(high[c], system->positions[3 * i + c]);
        }
    for (int c = 0; c < 3; c++) reach[c] = system->periodic[c] ? REACH : 0;
    for (int pass = 0; pass < 2; pass++) // owned atoms first
        for (int u = -reach[0]; u <= reach[0]; u++)
            for (int v = -reach[1]; v <= reach[1]; v++)
                for (int w = -reach[2]; w <= reach[2]; w++)
                    for (int i = 0; i < system->n_atoms && ((u | v | w) == 0) == (pass == 0); i++) {
                        double x[3];
                        for (int c = 0; c < 3; c++)
                            x[c] = system->positions[3 * i + c] + u * system->cell[c] + v * system->cell[3 + c] +
                                   w * system->cell[6 + c];
                        if (distance_to_box(x, low, high) > shell) continue;
                        assert_true(n < MOST);
                        for (int c = 0; c < 3; c++) a.positions[3 * n + c] = x[c] * length;
                        a.codes[n] = system->species[i];
                        a.contributing[n] = pass == 0;
                        a.owner[n++] = i;
                    }
    a.n = n;
    return a;
}

// ---- what is expected ---------------------------------------------------------------------------------------------------

typedef struct expected {
    double energy, virial[9], *forces, *energies, *virials;
} expected;

static expected evaluate(const char *file, const mlff_system *system)
{
    mlff_model *model;
    mlff_evaluator *evaluator;
    mlff_evaluator_options options = mlff_evaluator_options_default();
    expected e = {.forces = calloc(3 * (size_t)system->n_atoms, sizeof(double)),
                  .energies = calloc((size_t)system->n_atoms, sizeof(double)),
                  .virials = calloc(9 * (size_t)system->n_atoms, sizeof(double))};
    int32_t first_atom[2];
    mlff_batch batch;
    options.precision = MLFF_FLOAT64;
    assert_ok(mlff_model_load(file, &model));
    assert_ok(mlff_evaluator_create(model, &options, &evaluator));
    mlff_batch_from_system(system, first_atom, &batch);
    const mlff_results results = {
        .energies = &e.energy, .forces = e.forces, .atom_energies = e.energies, .virials = e.virial, .atom_virials = e.virials};
    assert_ok(mlff_evaluator_compute(evaluator, &batch, &results));
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
    return e;
}

static void free_expected(expected *e)
{
    free(e->forces);
    free(e->energies);
    free(e->virials);
}

// Those of ghosts folded onto their owners. KIM's sign is that of dE/dε.
static void check_atom_virials(const atoms *a, const expected *e, int n_owned, double energy)
{
    static const int voigt[6] = {0, 4, 8, 5, 2, 1};
    double *folded = calloc(6 * (size_t)n_owned, sizeof(double)), sum[6] = {0};
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < 6; k++) {
            folded[6 * a->owner[i] + k] += a->virials[6 * i + k];
            sum[k] += a->virials[6 * i + k];
        }
    for (int i = 0; i < n_owned; i++)
        for (int k = 0; k < 6; k++)
            assert_close(folded[6 * i + k] / energy, -e->virials[9 * i + voigt[k]], 1e-9, "virial of an atom");
    for (int k = 0; k < 6; k++) assert_close(sum[k], a->virial[k], 1e-9 * energy, "sum of virials of atoms");
    free(folded);
}

static void check(const atoms *a, const expected *e, int n_owned, double length, double energy)
{
    static const int voigt[6] = {0, 4, 8, 5, 2, 1};
    double *folded = calloc(3 * (size_t)n_owned, sizeof(double)), sum = 0;
    for (int i = 0; i < a->n; i++)
        for (int c = 0; c < 3; c++) folded[3 * a->owner[i] + c] += a->forces[3 * i + c];
    assert_close(a->energy / energy, e->energy, 1e-10 + 1e-13 * fabs(e->energy), "energy");
    for (int i = 0; i < n_owned; i++) assert_close(a->energies[i] / energy, e->energies[i], 1e-10, "energy of an atom");
    for (int i = 0; i < a->n; i++) sum += a->energies[i];
    assert_close(sum, a->energy, 1e-11 * fabs(a->energy), "sum of energies of atoms");
    for (int k = 0; k < 3 * n_owned; k++) assert_close(folded[k] / energy * length, e->forces[k], 1e-10, "folded force");
    for (int k = 0; k < 6; k++) assert_close(a->virial[k] / energy, -e->virial[voigt[k]], 1e-9, "virial");
    check_atom_virials(a, e, n_owned, energy);
    free(folded);
}

// A model on a system against the evaluator, in the units asked for.
static void compare(const char *name, const char *file, const mlff_system *system, KIM_LengthUnit length_unit, double length,
                    KIM_EnergyUnit energy_unit, double energy)
{
    simulator s = open_model(name, length_unit, energy_unit);
    atoms a = with_ghosts(system, s.influence / length + 0.7, length);
    expected e = evaluate(file, system);
    assert_int_equal(compute(&s, &a), 0);
    check(&a, &e, system->n_atoms, length, energy);
    free_expected(&e);
    free_atoms(&a);
    close_model(&s);
}

static mlff_system *build(const char *name, int n)
{
    mlff_system *system;
    assert_ok(mlff_system_build(name, n, 1, &system));
    assert_ok(mlff_system_perturb(system, 300, 2));
    return system;
}

// ---- tests ---------------------------------------------------------------------------------------------------------------

static void test_systems(void **state)
{
    (void)state;
    static const struct {
        const char *model, *file, *system;
        int n_atoms;
    } cases[] = {{"Silicon_PaiNN", "silicon.safetensors", "silicon", 8}, // smaller than the halo
                 {"Silicon_PaiNN", "silicon.safetensors", "silicon", 64},
                 {"Water_PaiNN", "water.safetensors", "water", 81},
                 {"Water_PaiNN", "water.safetensors", "h2o", 3},
                 {"Water_ANI", "ani.safetensors", "water", 81},
                 {"Water_ANI", "ani.safetensors", "h2o", 3}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_system *system = build(cases[k].system, cases[k].n_atoms);
        compare(cases[k].model, cases[k].file, system, KIM_LENGTH_UNIT_A, 1, KIM_ENERGY_UNIT_eV, 1);
        mlff_system_destroy(system);
    }
}

// Factors of CODATA 2014, 1 kcal = 4.184 kJ; the numbers here have nine digits. KIM 2.3's own factor of an erg is wrong by 10^14.
static void test_units(void **state)
{
    (void)state;
    const struct {
        KIM_LengthUnit length_unit;
        double length;
        KIM_EnergyUnit energy_unit;
        double energy;
    } cases[] = {{KIM_LENGTH_UNIT_A, 1, KIM_ENERGY_UNIT_kcal_mol, 23.0605480120},
                 {KIM_LENGTH_UNIT_Bohr, 1.88972612546, KIM_ENERGY_UNIT_Hartree, 0.03674932248},
                 {KIM_LENGTH_UNIT_m, 1e-10, KIM_ENERGY_UNIT_J, 1.6021766208e-19},
                 {KIM_LENGTH_UNIT_nm, 0.1, KIM_ENERGY_UNIT_erg, 1.6021766208e-12},
                 {KIM_LENGTH_UNIT_cm, 1e-8, KIM_ENERGY_UNIT_amu_A2_per_ps2, 9648.53329}};
    mlff_system *system = build("h2o", 3);
    expected e = evaluate("water.safetensors", system);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        simulator s = open_model("Water_PaiNN", cases[k].length_unit, cases[k].energy_unit);
        const double length = s.influence / 7.0; // two layers of 3.5 Å
        assert_close(length / cases[k].length, 1, 2e-9, "unit of length");
        atoms a = with_ghosts(system, 0, length);
        assert_int_equal(compute(&s, &a), 0);
        const double energy = a.energy / e.energy;
        assert_close(energy / cases[k].energy, 1, 2e-9, "unit of energy");
        for (int i = 0; i < 9; i++)
            assert_close(a.forces[i] / (energy / length), e.forces[i], 1e-11 * (1 + fabs(e.forces[i])), "force in other units");
        for (int i = 0; i < 3; i++)
            assert_close(a.energies[i] / energy, e.energies[i], 1e-11 * fabs(e.energies[i]), "energy of an atom");
        free_atoms(&a);
        close_model(&s);
    }
    free_expected(&e);
    mlff_system_destroy(system);
}

// Half of a water box contributes, the rest are free ghosts: forces on both are derivatives of the energy; two halves add up.
static void test_partial(void **state)
{
    (void)state;
    static const char *const names[] = {"Water_PaiNN", "Water_ANI"};
    for (int k = 0; k < 2; k++) {
        mlff_system *system = build("water", 81);
        simulator s = open_metal(names[k]);
        atoms a = alloc_atoms(system->n_atoms);
        double energy[3], *forces = calloc(3 * (size_t)a.n, sizeof(double));
        for (int i = 0; i < a.n; i++) a.codes[i] = system->species[i];
        memcpy(a.positions, system->positions, 3 * (size_t)a.n * sizeof(double));
        for (int part = 2; part >= 0; part--) { // all, the second half, the first half
            for (int i = 0; i < a.n; i++) a.contributing[i] = part == 2 || (i < 40) == (part == 0);
            assert_int_equal(compute(&s, &a), 0);
            energy[part] = a.energy;
            for (int i = 0; i < 3 * a.n; i++) forces[i] += (part == 2 ? 1 : -1) * a.forces[i];
        }
        assert_close(energy[0] + energy[1], energy[2], 1e-9, "two halves");
        for (int i = 0; i < 3 * a.n; i++) assert_close(forces[i], 0, 1e-9, "forces of two halves");

        /* h = 1e-4 Å, fourth order. Rounding of energies of 6·10^4 eV (ANI's offsets): 7e-12/1e-4. The curvature of a cosine cutoff
         * jumps where a pair crosses it, which leaves an error of order h there (2.5e-6 eV/Å seen for h = 1e-3). */
        const double h = 1e-4;
        memcpy(forces, a.forces, 3 * (size_t)a.n * sizeof(double));
        for (int i = 0; i < 3 * a.n; i += 17) {
            double at = a.positions[i], e[4];
            static const double step[4] = {-2, -1, 1, 2};
            for (int j = 0; j < 4; j++) {
                a.positions[i] = at + step[j] * h;
                assert_int_equal(compute(&s, &a), 0);
                e[j] = a.energy;
            }
            a.positions[i] = at;
            assert_close(forces[i], -(e[0] - 8 * e[1] + 8 * e[2] - e[3]) / (12 * h), 2e-6 * (1 + fabs(forces[i])),
                         "numerical derivative");
        }
        free(forces);
        free_atoms(&a);
        close_model(&s);
        mlff_system_destroy(system);
    }
}

// Re-neighboring in a simulator: other numbers of ghosts, another order, atoms that moved, between calls of one model.
static void test_reordered(void **state)
{
    (void)state;
    mlff_system *system = build("silicon", 64);
    simulator s = open_metal("Silicon_PaiNN");
    for (int round = 0; round < 4; round++) {
        expected e = evaluate("silicon.safetensors", system);
        atoms a = with_ghosts(system, s.influence + 0.5 * round, 1), b = alloc_atoms(a.n);
        for (int i = 0; i < a.n; i++) { // ghosts come first, backwards
            int k = round % 2 ? a.n - 1 - i : i;
            b.codes[k] = a.codes[i];
            b.contributing[k] = a.contributing[i];
            b.owner[k] = a.owner[i];
            memcpy(b.positions + 3 * k, a.positions + 3 * i, 3 * sizeof(double));
        }
        assert_int_equal(compute(&s, &b), 0);
        double *folded = calloc(3 * 64, sizeof(double));
        for (int i = 0; i < b.n; i++)
            for (int c = 0; c < 3; c++) folded[3 * b.owner[i] + c] += b.forces[3 * i + c];
        assert_close(b.energy, e.energy, 1e-10, "energy");
        for (int k = 0; k < 192; k++) assert_close(folded[k], e.forces[k], 1e-10, "force");
        free(folded);
        free_expected(&e);
        free_atoms(&a);
        free_atoms(&b);
        for (int k = 0; k < 192; k++) system->positions[k] += 0.05 * sin(7 * k + round); // a few steps of dynamics
    }
    close_model(&s);
    mlff_system_destroy(system);
}

static void test_edges(void **state)
{
    (void)state;
    simulator s = open_metal("Water_PaiNN"), twice = open_metal("Water_PaiNN");
    close_model(&twice);
    int supported = 1, code, n_lists;
    const double *cutoffs;
    const int *no_ghost_lists;
    KIM_Model_GetSpeciesSupportAndCode(s.model, KIM_SPECIES_NAME_Si, &supported, &code);
    assert_false(supported);
    KIM_Model_GetSpeciesSupportAndCode(s.model, KIM_SPECIES_NAME_O, &supported, &code);
    assert_true(supported && code == 8);
    assert_close(s.influence, 7.0, 1e-12, "influence distance");
    KIM_Model_GetNeighborListPointers(s.model, &n_lists, &cutoffs, &no_ghost_lists);
    assert_true(n_lists == 1 && fabs(cutoffs[0] - 3.0) < 1e-12 && no_ghost_lists[0] == 1);

    KIM_SupportStatus status;
    KIM_ComputeArguments_GetArgumentSupportStatus(s.arguments, KIM_COMPUTE_ARGUMENT_NAME_partialParticleVirial, &status);
    assert_true(KIM_SupportStatus_Equal(status, KIM_SUPPORT_STATUS_optional));
    KIM_ComputeArguments_GetArgumentSupportStatus(s.arguments, KIM_COMPUTE_ARGUMENT_NAME_partialParticleEnergy, &status);
    assert_true(KIM_SupportStatus_Equal(status, KIM_SUPPORT_STATUS_optional));

    atoms none = alloc_atoms(0), ghosts = alloc_atoms(2);
    none.energy = ghosts.energy = 1;
    assert_int_equal(compute(&s, &none), 0);
    assert_close(none.energy, 0, 0, "no atoms");
    ghosts.codes[0] = 8, ghosts.codes[1] = 1;
    ghosts.positions[3] = 1;
    ghosts.forces[5] = 1;
    assert_int_equal(compute(&s, &ghosts), 0);
    assert_close(ghosts.energy + ghosts.forces[5], 0, 0, "ghosts alone");

    ghosts.contributing[0] = 1;
    ghosts.positions[3] = 0; // on one point
    assert_true(compute(&s, &ghosts) != 0);
    ghosts.positions[3] = NAN;
    assert_true(compute(&s, &ghosts) != 0);
    ghosts.positions[3] = 1; // and it goes on afterwards
    assert_int_equal(compute(&s, &ghosts), 0);
    assert_true(isfinite(ghosts.energy) && ghosts.energy != 0);
    free_atoms(&none);
    free_atoms(&ghosts);
    close_model(&s);
}

// A device that does not exist is found out in the first computation, and only there.
static void test_lazy(void **state)
{
    (void)state;
    char before[64];
    snprintf(before, sizeof before, "%s", getenv("MLFF_DEVICE") ? getenv("MLFF_DEVICE") : "");
    setenv("MLFF_DEVICE", "tpu", 1);
    simulator s = open_metal("Water_PaiNN");
    atoms a = alloc_atoms(1);
    a.codes[0] = 8;
    a.contributing[0] = 1;
    assert_true(compute(&s, &a) != 0);
    setenv("MLFF_DEVICE", before, 1);
    assert_int_equal(compute(&s, &a), 0);
    free_atoms(&a);
    close_model(&s);
}

// Models in one process, two of them alike, whose calls are interleaved, closed in between; without virials of atoms, so that ghosts are images.
static void test_several(void **state)
{
    (void)state;
    enum { N = 4 };
    static const char *const names[N] = {"Water_PaiNN", "Water_ANI", "Silicon_PaiNN", "Water_PaiNN"};
    static const char *const files[N] = {"water.safetensors", "ani.safetensors", "silicon.safetensors", "water.safetensors"};
    mlff_system *systems[N] = {build("water", 81), build("water", 81), build("silicon", 64), build("h2o", 3)};
    simulator simulators[N];
    atoms a[N];
    expected e[N];
    setenv("MLFF_KIM_GHOSTS", "images", 1);
    for (int k = 0; k < N; k++) {
        simulators[k] = open_metal(names[k]);
        a[k] = with_ghosts(systems[k], simulators[k].influence + 0.7, 1);
        e[k] = evaluate(files[k], systems[k]);
    }
    for (int turn = 0; turn < 3; turn++)
        for (int k = 0; k < N - turn; k++) { // the last one is closed after each turn
            const int n_owned = systems[k]->n_atoms;
            double *folded = calloc(3 * (size_t)n_owned, sizeof(double)), *virials = a[k].virials;
            a[k].virials = NULL;
            assert_int_equal(compute(&simulators[k], &a[k]), 0);
            a[k].virials = virials;
            for (int i = 0; i < 3 * a[k].n; i++) folded[3 * a[k].owner[i / 3] + i % 3] += a[k].forces[i];
            assert_close(a[k].energy, e[k].energy, 1e-10 + 1e-13 * fabs(e[k].energy), "energy of one of several");
            for (int i = 0; i < 3 * n_owned; i++) assert_close(folded[i], e[k].forces[i], 1e-10, "force of one of several");
            free(folded);
            if (k == N - turn - 1) close_model(&simulators[k]);
        }
    close_model(&simulators[0]);
    for (int k = 0; k < N; k++) {
        free_atoms(&a[k]);
        free_expected(&e[k]);
        mlff_system_destroy(systems[k]);
    }
    unsetenv("MLFF_KIM_GHOSTS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_systems), cmocka_unit_test(test_units),
                                       cmocka_unit_test(test_partial), cmocka_unit_test(test_reordered),
                                       cmocka_unit_test(test_edges),   cmocka_unit_test(test_lazy),
                                       cmocka_unit_test(test_several)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
