// SPDX-License-Identifier: MIT
// test_system.c: elements, systems made, copied, repeated, checked and named; random motion at a temperature.
#include "atoms/atoms.h"
#include "mlff_analysis.h"
#include "support.h"

static void knows_elements(void **state)
{
    (void)state;
    assert_string_equal(mlff_element_symbol(14), "Si");
    assert_string_equal(mlff_element_symbol(118), "Og");
    assert_null(mlff_element_symbol(0));
    assert_null(mlff_element_symbol(119));
    for (int z = 1; z <= 118; z++) {
        assert_int_equal(mlff_element_number(mlff_element_symbol(z)), z);
        assert_true(mlff_element_mass(z) > 0.9 * z); // no nucleus is lighter than its protons
        // Weights rise with Z but for the pairs everybody knows (Ar K, Co Ni, Te I, …) by at most 3 amu.
        if (z > 1) assert_true(mlff_element_mass(z) > mlff_element_mass(z - 1) - 3.1);
    }
    assert_int_equal(mlff_element_number("si"), 0);
    assert_int_equal(mlff_element_number(""), 0);
    assert_int_equal(mlff_element_number(NULL), 0);
    assert_true(mlff_element_mass(1) == 1.008 && mlff_element_mass(8) == 15.999 && mlff_element_mass(79) == 196.966569);
    assert_true(mlff_element_mass(0) == 0.0 && mlff_element_mass(-5) == 0.0 && mlff_element_mass(119) == 0.0);
}

static mlff_system *sample(void)
{
    mlff_system *system;
    assert_ok(mlff_system_create(2, &system));
    system->species[0] = 6;
    system->species[1] = 8;
    const double positions[6] = {0, 0, 0, 1.1, 0.2, -0.3}, cell[9] = {4, 0, 0, 1, 5, 0, 0, 0, 6};
    memcpy(system->positions, positions, sizeof positions);
    memcpy(system->cell, cell, sizeof cell);
    system->periodic[0] = system->periodic[2] = 1;
    assert_ok(mlff_system_add_velocities(system));
    assert_ok(mlff_system_add_masses(system));
    assert_ok(mlff_system_add_fixed(system));
    system->velocities[4] = 0.01;
    system->masses[1] = 17.999;
    system->fixed[0] = 1;
    system->charge = -1.0;
    system->spin = 2.0;
    system->label_energy = -3.0;
    system->label_stress[0] = 0.5;
    system->label_forces = base_alloc(2, 3 * sizeof(double), "forces");
    return system;
}

static void creates_empty(void **state)
{
    (void)state;
    mlff_system *system = NULL;
    int64_t bytes = base_allocated_bytes();
    assert_int_equal(mlff_system_create(0, &system), MLFF_ERR_USAGE);
    assert_int_equal(mlff_system_create(-3, &system), MLFF_ERR_USAGE);
    assert_null(system);
    assert_ok(mlff_system_create(3, &system));
    assert_true(isnan(system->charge) && isnan(system->spin) && isnan(system->label_energy) && isnan(system->label_stress[0]));
    assert_null(system->velocities);
    assert_null(system->masses);
    assert_null(system->fixed);
    assert_null(system->label_forces);
    mlff_system_destroy(system);
    mlff_system_destroy(NULL);
    assert_int_equal(base_allocated_bytes(), bytes);
}

static void copies_all(void **state)
{
    (void)state;
    int64_t bytes = base_allocated_bytes();
    mlff_system *system = sample(), *copy;
    assert_ok(mlff_system_copy(system, &copy));
    assert_memory_equal(copy->species, system->species, 2 * sizeof(int));
    assert_memory_equal(copy->positions, system->positions, 6 * sizeof(double));
    assert_memory_equal(copy->cell, system->cell, sizeof system->cell);
    assert_memory_equal(copy->periodic, system->periodic, 3);
    assert_memory_equal(copy->velocities, system->velocities, 6 * sizeof(double));
    assert_memory_equal(copy->masses, system->masses, 2 * sizeof(double));
    assert_memory_equal(copy->fixed, system->fixed, 2);
    assert_memory_equal(copy->label_forces, system->label_forces, 6 * sizeof(double));
    assert_true(copy->charge == -1.0 && copy->spin == 2.0 && copy->label_energy == -3.0 && copy->label_stress[0] == 0.5);
    assert_ptr_not_equal(copy->positions, system->positions);
    mlff_system_destroy(system);
    mlff_system_destroy(copy);
    assert_int_equal(base_allocated_bytes(), bytes);
}

static void has_a_density(void **state)
{
    (void)state;
    mlff_system *system = sample();
    assert_true(isnan(mlff_system_density(system))); // a slab
    system->periodic[1] = 1;
    // 12.011 and 17.999 amu in 120 Å³; 1e-9: the constant has nine digits.
    assert_true(fabs(mlff_system_density(system) / (30.010 / 120.0 * 1.66053904) - 1) < 1e-9);
    mlff_system_destroy(system);
}

static void repeats(void **state)
{
    (void)state;
    mlff_system *system = sample(), *large = NULL;
    assert_ok(mlff_system_repeat(system, (int[]){2, 3, 1}, &large));
    assert_int_equal(large->n_atoms, 12);
    assert_true(large->cell[0] == 8 && large->cell[3] == 3 && large->cell[4] == 15 && large->cell[8] == 6);
    assert_true(large->charge == -6.0 && isnan(large->spin) && isnan(large->label_energy) && !large->label_forces);
    // The last image, shift (1, 2, 0): 4 + 2 · 1 and 2 · 5.
    assert_true(large->positions[30] == 6.0 && large->positions[31] == 10.0 && large->positions[32] == 0.0);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(large->species[i], i % 2 ? 8 : 6);
        assert_int_equal(large->fixed[i], i % 2 == 0);
        assert_true(large->masses[i] == system->masses[i % 2] &&
                    large->velocities[3 * i + 1] == system->velocities[3 * (i % 2) + 1]);
    }
    assert_true(fabs(mlff_system_volume(large) - 6 * 120.0) < 1e-9); // products of small integers, one rounding each
    mlff_system_destroy(large);

    large = NULL;
    assert_int_equal(mlff_system_repeat(system, (int[]){1, 0, 1}, &large), MLFF_ERR_USAGE);
    assert_int_equal(mlff_system_repeat(system, (int[]){50000, 50000, 1}, &large), MLFF_ERR_LIMIT);
    memset(system->cell, 0, sizeof system->cell);
    assert_int_equal(mlff_system_repeat(system, (int[]){2, 1, 1}, &large), MLFF_ERR_USAGE);
    assert_null(large);
    mlff_system_destroy(system);
}

static void expect(mlff_system *system, mlff_status expected, const char *text)
{
    assert_int_equal(mlff_system_check(system, "x.xyz:2"), expected);
    if (expected == MLFF_OK) return;
    if (strncmp(mlff_last_error(), "x.xyz:2: ", 9) != 0 || !strstr(mlff_last_error(), text))
        fail_msg("'%s' lacks '%s'", mlff_last_error(), text);
}

static void checks(void **state)
{
    (void)state;
    mlff_system *system = sample();
    expect(system, MLFF_OK, "");
    assert_ok(mlff_system_check(system, NULL));
    system->species[1] = 0;
    expect(system, MLFF_ERR_ELEMENT, "atom 1 ");
    system->species[1] = 119;
    expect(system, MLFF_ERR_ELEMENT, "119");
    system->species[1] = 8;
    system->positions[5] = NAN;
    expect(system, MLFF_ERR_VALUE, "position of atom 1 ");
    system->positions[5] = 0;
    system->velocities[0] = INFINITY;
    expect(system, MLFF_ERR_VALUE, "velocity of atom 0 ");
    system->velocities[0] = 0;
    system->masses[1] = 0;
    expect(system, MLFF_ERR_VALUE, "mass");
    system->masses[1] = 1;
    system->cell[8] = INFINITY;
    expect(system, MLFF_ERR_VALUE, "cell");
    system->cell[8] = 0;
    expect(system, MLFF_ERR_VALUE, "axis 3");
    system->periodic[2] = 0;
    expect(system, MLFF_OK, ""); // a zero vector where nothing repeats
    system->periodic[1] = 1;
    system->cell[4] = 1e-9; // the second vector now lies along the first
    expect(system, MLFF_ERR_VALUE, "not independent");
    system->cell[4] = 5;
    system->periodic[2] = 1;
    system->cell[6] = 5, system->cell[7] = 5; // in the plane of the other two
    expect(system, MLFF_ERR_VALUE, "no volume");
    system->cell[8] = 1e-3; // flat, but a cell
    expect(system, MLFF_OK, "");
    memcpy(system->cell, (double[9]){5, 0, 0, 5000002.5, 5, 0, 0, 0, 5}, sizeof system->cell); // 125 Å³
    expect(system, MLFF_ERR_VALUE, "the cell is too skewed");
    memcpy(system->cell, (double[9]){5, 0, 0, 0, 5, 0, 5, 5, 1e-3}, sizeof system->cell);
    for (int k = 0; k < 9; k++) system->cell[k] *= 1e-7; // a unit error, not dependence
    expect(system, MLFF_OK, "");
    mlff_system_destroy(system);
}

static void names(void **state)
{
    (void)state;
    static const struct {
        int species[6];
        const char *formula;
    } cases[] = {
        {{8, 6, 1, 1, 1, 1}, "CH4O"}, {{11, 17, 0}, "ClNa"}, {{8, 1, 1}, "H2O"}, {{1, 35, 6, 17}, "CHBrCl"}, {{14}, "Si"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        int n = 0;
        while (n < 6 && cases[k].species[n]) n++;
        mlff_system *system;
        assert_ok(mlff_system_create(n, &system));
        memcpy(system->species, cases[k].species, (size_t)n * sizeof(int));
        char text[64];
        mlff_system_formula(system, text, sizeof text);
        assert_string_equal(text, cases[k].formula);
        mlff_system_destroy(system);
    }
    // All elements at once do not fit: cut at an element, with an ellipsis, within the bytes.
    mlff_system *all;
    assert_ok(mlff_system_create(118, &all));
    for (int z = 1; z <= 118; z++) all->species[z - 1] = z;
    char text[64];
    mlff_system_formula(all, text, sizeof text);
    assert_true(strncmp(text, "CHAcAgAl", 8) == 0 && strcmp(text + strlen(text) - 3, "…") == 0);
    mlff_system_destroy(all);
}

static void becomes_a_batch(void **state)
{
    (void)state;
    mlff_system *system = sample();
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    assert_true(batch.n_systems == 1 && batch.first_atom == first_atom && first_atom[0] == 0 && first_atom[1] == 2);
    assert_true(batch.cells == system->cell && batch.periodic == system->periodic && batch.positions == system->positions);
    assert_true(!batch.owned && !batch.pairs && !batch.stream && batch.location == MLFF_HOST);
    memset(system->cell, 0, sizeof system->cell);
    mlff_batch_from_system(system, first_atom, &batch);
    assert_null(batch.cells);
    mlff_system_destroy(system);
}

static void perturbs(void **state)
{
    (void)state;
    mlff_system *system, *first, *second;
    assert_ok(mlff_system_build("silicon", 8000, 0, &system));
    assert_ok(mlff_system_add_fixed(system));
    system->fixed[5] = 1;
    system->label_energy = 1.0;
    assert_ok(mlff_system_copy(system, &first));
    assert_ok(mlff_system_copy(system, &second));
    assert_ok(mlff_system_perturb(first, 300.0, 7));
    assert_ok(mlff_system_perturb(second, 300.0, 7));
    assert_memory_equal(first->positions, second->positions, (size_t)system->n_atoms * 3 * sizeof(double));
    assert_true(isnan(first->label_energy));
    assert_memory_equal(first->positions + 15, system->positions + 15, 3 * sizeof(double));

    double square = 0.0;
    for (int k = 0; k < 3 * system->n_atoms; k++) square += pow(first->positions[k] - system->positions[k], 2);
    double deviation = sqrt(square / (3 * (system->n_atoms - 1)));
    // sqrt(k_B · 300 K / (28 amu (25 meV / ħ)²)) = 0.0786 Å; 24000 samples have it to 1/sqrt(48000) = 0.5 %, times four.
    if (fabs(deviation / 0.0786 - 1.0) > 0.02) fail_msg("deviation %.5f Å, expected 0.0786", deviation);
    assert_ok(mlff_system_perturb(second, 300.0, 8));
    assert_memory_not_equal(first->positions, second->positions, 24);

    mlff_system_destroy(second);
    assert_ok(mlff_system_copy(system, &second));
    assert_ok(mlff_system_perturb(second, 1e6, 1));
    for (int k = 0; k < 3 * system->n_atoms; k++) assert_true(fabs(second->positions[k] - system->positions[k]) < 0.3 + 1e-12);
    assert_int_equal(mlff_system_perturb(second, -1.0, 1), MLFF_ERR_VALUE);
    assert_int_equal(mlff_system_perturb(second, NAN, 1), MLFF_ERR_VALUE);
    mlff_system_destroy(system);
    mlff_system_destroy(first);
    mlff_system_destroy(second);
}

// Bonds, of one length at rest in these systems, deviate by sqrt(k_B · 300 K / 30 eV/Å²) = 0.0294 Å; 15 %: three standard errors of 200
// bonds, and what sweeps leave where bonds share atoms. The rest moves as by mlff_system_perturb, 0.0786 Å, and as bonds
// push and pull.
static void vibrates(void **state)
{
    (void)state;
    enum { FRAMES = 100 };
    static const char *const names[] = {"h2o", "methane", "benzene", "water"};
    for (size_t m = 0; m < sizeof names / sizeof *names; m++) {
        mlff_system *rest = NULL, *moved = NULL;
        mlff_geometry *geometry = NULL;
        mlff_vibrator *vibrator = NULL;
        double square = 0;
        assert_ok(mlff_system_build(names[m], 24, 0, &rest));
        assert_ok(mlff_geometry_create(rest, &geometry));
        assert_ok(mlff_vibrator_create(rest, &vibrator));
        assert_ok(mlff_system_copy(rest, &moved));
        for (uint64_t seed = 0; seed < FRAMES; seed++) {
            assert_ok(mlff_vibrator_displace(vibrator, 300, seed, moved));
            assert_ok(mlff_geometry_add(geometry, moved));
            for (int k = 0; k < 3 * rest->n_atoms; k++) square += pow(moved->positions[k] - rest->positions[k], 2);
        }
        for (int k = 0; k < mlff_geometry_size(geometry); k++) {
            mlff_geometry_kind kind;
            mlff_geometry_get(geometry, k, &kind, NULL);
            if (!kind.is_angle && fabs(kind.deviation / 0.0294 - 1) > 0.15)
                fail_msg("%s: bonds %s-%s deviate by %.4f Å, expected 0.0294", names[m], mlff_element_symbol(kind.elements[0]),
                         mlff_element_symbol(kind.elements[1]), kind.deviation);
        }
        const double deviation = sqrt(square / (3.0 * FRAMES * rest->n_atoms));
        if (!(deviation > 0.05 && deviation < 0.085)) fail_msg("%s: atoms moved by %.4f Å", names[m], deviation);
        mlff_vibrator_destroy(vibrator);
        mlff_geometry_destroy(geometry);
        mlff_system_destroy(rest);
        mlff_system_destroy(moved);
    }
}

// Without bonds of nonmetals the displacements are those of mlff_system_perturb; fixed atoms stay; at 0 K nothing moves.
static void vibrates_as_perturbed_without_bonds(void **state)
{
    (void)state;
    mlff_system *silicon, *other, *ethanol, *moved;
    mlff_vibrator *vibrator;
    assert_ok(mlff_system_build("silicon", 64, 0, &silicon));
    assert_ok(mlff_system_copy(silicon, &other));
    assert_ok(mlff_vibrator_create(silicon, &vibrator));
    assert_ok(mlff_vibrator_displace(vibrator, 300, 6, other)); // from the rest again, not from where it was
    assert_ok(mlff_vibrator_displace(vibrator, 300, 7, other));
    assert_ok(mlff_system_perturb(silicon, 300, 7));
    assert_memory_equal(silicon->positions, other->positions, 3 * 64 * sizeof(double));
    assert_ok(mlff_system_build("ethanol", 0, 0, &ethanol));
    assert_int_equal(mlff_vibrator_displace(vibrator, 300, 7, ethanol), MLFF_ERR_USAGE);
    mlff_vibrator_destroy(vibrator);
    assert_ok(mlff_system_add_fixed(ethanol));
    ethanol->fixed[0] = ethanol->fixed[1] = 1;
    assert_ok(mlff_system_copy(ethanol, &moved));
    assert_ok(mlff_vibrator_create(ethanol, &vibrator));
    assert_ok(mlff_vibrator_displace(vibrator, 300, 7, moved));
    assert_memory_equal(moved->positions, ethanol->positions, 6 * sizeof(double));
    assert_memory_not_equal(moved->positions + 6, ethanol->positions + 6, 21 * sizeof(double));
    assert_ok(mlff_vibrator_displace(vibrator, 0, 7, moved));
    for (int k = 0; k < 27; k++) assert_true(fabs(moved->positions[k] - ethanol->positions[k]) < 1e-12);
    assert_int_equal(mlff_vibrator_displace(vibrator, -1, 7, moved), MLFF_ERR_VALUE);
    mlff_vibrator_destroy(vibrator);
    mlff_system_destroy(silicon);
    mlff_system_destroy(other);
    mlff_system_destroy(ethanol);
    mlff_system_destroy(moved);
}

static double kinetic(const mlff_system *system)
{
    double energy = 0.0;
    for (int i = 0; i < system->n_atoms; i++)
        for (int c = 0; c < 3; c++)
            energy += 0.5 * BASE_AMU_ANG2_FS2_EV * atoms_mass(system, i) * pow(system->velocities[3 * i + c], 2);
    return energy;
}

static void thermalizes(void **state)
{
    (void)state;
    mlff_system *system;
    assert_ok(mlff_system_build("water", 300, 1, &system));
    assert_ok(mlff_system_thermalize(system, 350.0, 3));
    double expected = 0.5 * (3 * 300 - 3) * BASE_KB_EV_PER_K * 350.0;
    assert_true(fabs(kinetic(system) / expected - 1.0) < 1e-12); // scaled to it: roundings only
    double drift[3] = {0}, oxygen = 0.0, hydrogen = 0.0;
    for (int i = 0; i < 300; i++)
        for (int c = 0; c < 3; c++) {
            double v = system->velocities[3 * i + c];
            drift[c] += atoms_mass(system, i) * v;
            *(system->species[i] == 8 ? &oxygen : &hydrogen) += atoms_mass(system, i) * v * v;
        }
    for (int c = 0; c < 3; c++) assert_true(fabs(drift[c]) < 1e-12);
    // Both elements have the same mean energy; 300 and 600 samples have it to sqrt(2/300) = 8 %, times four.
    assert_true(fabs(2.0 * oxygen / hydrogen - 1.0) < 0.4);
    double again = system->velocities[17];
    assert_ok(mlff_system_thermalize(system, 350.0, 3));
    assert_true(system->velocities[17] == again);

    assert_ok(mlff_system_add_fixed(system));
    for (int i = 0; i < 100; i++) system->fixed[i] = 1;
    assert_ok(mlff_system_thermalize(system, 350.0, 3));
    assert_true(fabs(kinetic(system) / (0.5 * 600 * BASE_KB_EV_PER_K * 350.0) - 1.0) < 1e-12);
    for (int k = 0; k < 300; k++) assert_true(system->velocities[k] == 0.0);
    assert_ok(mlff_system_thermalize(system, 0.0, 3));
    assert_true(kinetic(system) == 0.0);
    assert_int_equal(mlff_system_thermalize(system, INFINITY, 3), MLFF_ERR_VALUE);
    mlff_system_destroy(system);

    assert_ok(mlff_system_create(1, &system));
    assert_int_equal(mlff_system_thermalize(system, 300.0, 1), MLFF_ERR_VALUE); // species 0 has no mass
    system->species[0] = 18;
    assert_ok(mlff_system_thermalize(system, 300.0, 1));
    assert_true(fabs(kinetic(system) / (1.5 * BASE_KB_EV_PER_K * 300.0) - 1.0) < 1e-12);
    mlff_system_destroy(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_elements),  cmocka_unit_test(creates_empty),
        cmocka_unit_test(copies_all),      cmocka_unit_test(repeats),
        cmocka_unit_test(checks),          cmocka_unit_test(names),
        cmocka_unit_test(becomes_a_batch), cmocka_unit_test(perturbs),
        cmocka_unit_test(vibrates),        cmocka_unit_test(vibrates_as_perturbed_without_bonds),
        cmocka_unit_test(thermalizes),     cmocka_unit_test(has_a_density),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
