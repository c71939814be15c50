// SPDX-License-Identifier: MIT
// Sampling: eigenvalues, normal modes of a system of springs, relaxation, dynamics' temperature, selection, what sampling adds
// and that it is deterministic, exploration and its alarms. Teachers are functions with known answers, models, and GFN2-xTB.
#include "support.h"

#include "atoms/vibrations/vibrations.h"
#include "mlff_label.h"
#include "train/sampling/normal_modes.h"
#include "train/sampling/sample_geometry.h"
#include "train/sampling/walkers.h"
#include "train/teachers/teacher.h"

static mlff_system *molecule(const char *name)
{
    mlff_system *system;
    assert_ok(mlff_system_build(name, 0, 0, &system));
    return system;
}

// Every pair of atoms on a harmonic spring of its distance in the built molecule, k = 10 eV/Å².
#define SPRING 10.0
static mlff_status springs(void *context, const mlff_system *system, double *energy, double *forces)
{
    const mlff_system *rest = context;
    *energy = 0;
    for (int k = 0; k < 3 * system->n_atoms; k++) forces[k] = 0;
    for (int i = 0; i < system->n_atoms; i++)
        for (int j = i + 1; j < system->n_atoms; j++) {
            double r[3], r0 = 0, length = 0;
            for (int c = 0; c < 3; c++) {
                r[c] = system->positions[3 * j + c] - system->positions[3 * i + c];
                length += r[c] * r[c];
                r0 += pow(rest->positions[3 * j + c] - rest->positions[3 * i + c], 2);
            }
            length = sqrt(length);
            const double stretch = length - sqrt(r0);
            *energy += 0.5 * SPRING * stretch * stretch;
            for (int c = 0; c < 3; c++) {
                forces[3 * i + c] += SPRING * stretch * r[c] / length;
                forces[3 * j + c] -= SPRING * stretch * r[c] / length;
            }
        }
    return MLFF_OK;
}

static mlff_teacher *spring_teacher(mlff_system *rest)
{
    mlff_teacher *teacher;
    assert_ok(mlff_teacher_create("springs", springs, rest, &teacher));
    return teacher;
}

static void test_eigen(void **state)
{
    (void)state;
    enum { N = 12 };
    double a[N * N], copy[N * N], values[N], vectors[N * N];
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++) a[i * N + j] = a[j * N + i] = base_random_normal(3, (uint64_t)i, (uint64_t)j);
    memcpy(copy, a, sizeof a);
    assert_ok(symmetric_eigen(a, N, values, vectors, NULL, NULL));
    for (int k = 0; k < N; k++) {
        assert_true(k == 0 || values[k] >= values[k - 1]);
        for (int i = 0; i < N; i++) {
            double product = 0;
            for (int j = 0; j < N; j++) product += copy[i * N + j] * vectors[k * N + j];
            // 1e-13: 12 products of size 1
            if (!(fabs(product - values[k] * vectors[k * N + i]) < 1e-13)) fail_msg("value %d, row %d", k, i);
        }
    }
}

// Of H2 one vibration, ω² = k (1/m + 1/m), with one atom fixed k/m; displacements at T have the variance k_B T / k of the bond.
static void check_modes(bool fixed)
{
    mlff_system *h2;
    normal_modes modes;
    assert_ok(mlff_system_create(2, &h2));
    h2->species[0] = h2->species[1] = 1;
    h2->positions[3] = 0.5;
    h2->positions[4] = 0.6;
    if (fixed) assert_ok(mlff_system_add_fixed(h2));
    if (fixed) h2->fixed[0] = 1;
    mlff_teacher *teacher = spring_teacher(h2);
    assert_ok(normal_modes_find(teacher, h2, NULL, NULL, &modes));
    assert_int_equal(modes.n_modes, 1);
    const double mass = mlff_element_mass(1) * BASE_AMU_ANG2_FS2_EV;
    assert_true(fabs(modes.frequencies[0] - sqrt(SPRING * (fixed ? 1 : 2) / mass)) < 1e-4 * modes.frequencies[0]); // (h/r)²
    double sum = 0;
    enum { N = 4000 };
    for (int k = 0; k < N; k++) {
        mlff_system *copy;
        assert_ok(mlff_system_copy(h2, &copy));
        normal_modes_displace(&modes, copy, 300, 1, (uint64_t)k);
        double along = 0;
        assert_true(!fixed || memcmp(copy->positions, h2->positions, 3 * sizeof(double)) == 0);
        for (int c = 0; c < 3; c++) along += (copy->positions[3 + c] - copy->positions[c]) * h2->positions[3 + c] / sqrt(0.61);
        sum += pow(along - sqrt(0.61), 2) / N;
        mlff_system_destroy(copy);
    }
    const double expected = BASE_KB_EV_PER_K * 300 / SPRING;
    // 8 %: the variance of 4000 draws is known to sqrt(2/4000) = 2.2 %
    if (!(fabs(sum / expected - 1) < 0.08)) fail_msg("variance %g, expected %g Å²", sum, expected);
    normal_modes_free(&modes);
    mlff_teacher_destroy(teacher);
    mlff_system_destroy(h2);
}

static void test_modes(void **state)
{
    (void)state;
    check_modes(false);
    check_modes(true);
}

static void test_relax_and_dynamics(void **state)
{
    (void)state;
    mlff_system *rest = molecule("h2o");
    mlff_teacher *teacher = spring_teacher(rest);
    walkers w = {.teacher = teacher, .seed = 5};
    for (int k = 0; k < 24; k++) {
        mlff_system *moved;
        assert_ok(mlff_system_copy(rest, &moved));
        assert_ok(mlff_system_perturb(moved, 600, (uint64_t)k));
        assert_ok(walkers_add(&w, moved, 400, k));
        mlff_system_destroy(moved);
    }
    assert_ok(walkers_relax(&w, 0.01, 500));
    for (size_t k = 0; k < w.n; k++) // E <= F²/2k summed over three springs
        if (!(w.walkers[k].energy < 1e-4)) fail_msg("walker %zu: %g eV after relaxation", k, w.walkers[k].energy);
    // Mean potential energy of three vibrations at T: 3/2 k_B T.
    uint64_t step = 0;
    double sum = 0;
    int n = 0;
    assert_ok(walkers_thermalize(&w));
    assert_ok(walkers_forces(&w));
    assert_ok(walkers_run(&w, 1000, 0.5, 0.02, &step));
    assert_int_equal(step, 1000);
    for (int block = 0; block < 150; block++) {
        assert_ok(walkers_run(&w, 40, 0.5, 0.02, &step));
        for (size_t k = 0; k < w.n; k++, n++) sum += w.walkers[k].energy;
    }
    const double expected = 1.5 * BASE_KB_EV_PER_K * 400;
    printf("24 waters of springs at 400 K: %.4f eV, expected %.4f\n", sum / n, expected);
    // 6 %: 3600 energies, correlated over some 3 blocks, spread sqrt(2/3) each: 2.4 %; anharmonic 1 %
    assert_true(fabs(sum / n / expected - 1) < 0.06);
    walkers_free(&w);
    mlff_teacher_destroy(teacher);
    mlff_system_destroy(rest);
}

static void test_geometry(void **state)
{
    (void)state;
    mlff_system *ethanol = molecule("ethanol");
    sample_bonds bonds = {0};
    double closest;
    assert_ok(sample_bonds_find(ethanol, &bonds));
    assert_int_equal(bonds.n, 8);
    const double longest = sample_bonds_longest(&bonds, ethanol);
    assert_ok(sample_closest(ethanol, &closest));
    assert_true(longest > 0.9 && longest < 1.1 && closest > 0.9 && closest <= longest);
    ethanol->positions[3 * 8 + 0] -= 1; // the hydroxyl hydrogen leaves
    assert_true(sample_bonds_longest(&bonds, ethanol) > 1.6);
    for (int c = 0; c < 3; c++) ethanol->positions[3 * 8 + c] = ethanol->positions[3 * 7 + c];
    assert_ok(sample_closest(ethanol, &closest));
    assert_true(closest == 0);
    sample_bonds_free(&bonds);
    mlff_system_destroy(ethanol);
    // Through a cell's faces: silicon has 2 bonds an atom.
    mlff_system *silicon;
    assert_ok(mlff_system_build("silicon", 64, 0, &silicon));
    assert_ok(sample_bonds_find(silicon, &bonds));
    assert_int_equal(bonds.n, 128);
    assert_true(fabs(sample_bonds_longest(&bonds, silicon) - 2.352 / 2.22) < 1e-3);
    sample_bonds_free(&bonds);
    mlff_system_destroy(silicon);
}

// Of many copies and a few others, the selection has each of the others.
static void test_selection(void **state)
{
    (void)state;
    mlff_samples *samples, *known;
    mlff_system *system = molecule("ethanol");
    assert_ok(mlff_samples_create(&samples));
    assert_ok(mlff_samples_create(&known));
    for (int k = 0; k < 60; k++) {
        mlff_system *copy;
        assert_ok(mlff_system_copy(system, &copy));
        assert_ok(mlff_system_perturb(copy, k % 20 == 7 ? 3000 : 0.1, (uint64_t)k));
        for (int i = 0; i < 9; i++) copy->positions[3 * i] += k; // moved as a whole
        copy->group = k;
        assert_ok(mlff_samples_add(samples, copy, "x"));
        if (k == 27) assert_ok(mlff_samples_add(known, copy, "x"));
        mlff_system_destroy(copy);
    }
    assert_ok(mlff_samples_select(samples, 4, NULL));
    assert_int_equal(mlff_samples_size(samples), 4);
    bool seen[60] = {false};
    for (int k = 0; k < 4; k++) seen[mlff_samples_get(samples, k, NULL)->group] = true;
    assert_true(seen[7] && seen[27] && seen[47]);
    // What is known is not taken again.
    assert_ok(mlff_samples_select(samples, 2, known));
    for (int k = 0; k < 2; k++) assert_int_not_equal(mlff_samples_get(samples, k, NULL)->group, 27);
    mlff_samples_destroy(samples);
    mlff_samples_destroy(known);
    mlff_system_destroy(system);
}

static mlff_samples *seeds_of(const char *const *names, int n)
{
    mlff_samples *seeds;
    assert_ok(mlff_samples_create(&seeds));
    for (int k = 0; k < n; k++) {
        mlff_system *system = molecule(names[k]);
        assert_ok(mlff_samples_add(seeds, system, "builder"));
        mlff_system_destroy(system);
    }
    return seeds;
}

static mlff_samples *sample_with(mlff_teacher *teacher, const mlff_samples *seeds, const mlff_sample_options *options)
{
    mlff_samples *samples;
    assert_ok(mlff_samples_create(&samples));
    assert_ok(mlff_sample(teacher, seeds, options, samples));
    return samples;
}

static void test_sample(void **state)
{
    (void)state;
    static const char *const names[] = {"ethanol"};
    mlff_system *rest = molecule("ethanol");
    mlff_teacher *teacher = spring_teacher(rest);
    mlff_samples *seeds = seeds_of(names, 1), *samples[3];
    mlff_sample_options options = mlff_sample_options_default();
    options.n_samples = 120;
    for (int run = 0; run < 3; run++) {
        options.seed = run == 2;
        samples[run] = sample_with(teacher, seeds, &options);
        assert_int_equal(mlff_samples_size(samples[run]), 120);
    }
    int n_same = 0, n_of[4] = {0};
    for (int64_t k = 0; k < 120; k++) {
        const char *origin;
        double closest;
        const mlff_system *system[3];
        for (int run = 0; run < 3; run++) system[run] = mlff_samples_get(samples[run], k, &origin);
        assert_memory_equal(system[0]->positions, system[1]->positions, 27 * sizeof(double));
        n_same += memcmp(system[0]->positions, system[2]->positions, 27 * sizeof(double)) == 0;
        assert_ok(sample_closest(system[0], &closest));
        assert_true(closest >= options.closest && system[0]->group >= 0 && !system[0]->velocities);
        assert_non_null(mlff_samples_get(samples[0], k, &origin));
        n_of[0] += strncmp(origin, "modes", 5) == 0;
        n_of[1] += strcmp(origin, "rattle") == 0;
        n_of[2] += strncmp(origin, "md", 2) == 0;
        n_of[3] += strcmp(origin, "pairs") == 0;
    }
    printf("120 samples: %d modes, %d rattle, %d md, %d pairs\n", n_of[0], n_of[1], n_of[2], n_of[3]);
    assert_int_equal(n_same, 1); // the relaxed seed
    for (int m = 0; m < 4; m++) assert_true(n_of[m] > 5);

    options.methods = "modes,guess";
    assert_int_equal(mlff_sample(teacher, seeds, &options, samples[0]), MLFF_ERR_USAGE);
    assert_non_null(strstr(mlff_last_error(), "'guess'"));
    assert_int_equal(mlff_samples_size(samples[0]), 120);
    for (int run = 0; run < 3; run++) mlff_samples_destroy(samples[run]);
    mlff_samples_destroy(seeds);
    mlff_teacher_destroy(teacher);
    mlff_system_destroy(rest);
}

// No trajectory has so many samples that a test has all of them or none.
static void test_lengths_of_trajectories(void **state)
{
    (void)state;
    mlff_sample_options options = mlff_sample_options_default();
    options.methods = "md";
    options.oversample = 1;
    options.relax = 0;
    options.interval_fs = 2;
    options.n_samples = 500;
    for (int in_cell = 0; in_cell < 2; in_cell++) {
        mlff_system *system = molecule("ethanol");
        mlff_samples *seeds;
        int64_t n_of[500] = {0}, n_trajectories = 0;
        for (int c = 0; in_cell && c < 3; c++) system->cell[4 * c] = 12, system->periodic[c] = true;
        assert_ok(mlff_samples_create(&seeds));
        assert_ok(mlff_samples_add(seeds, system, NULL));
        mlff_teacher *teacher = spring_teacher(system);
        mlff_samples *samples = sample_with(teacher, seeds, &options);
        const int64_t n = mlff_samples_size(samples);
        assert_true(n > 450); // the springs let some atoms come too near
        for (int64_t k = 1; k < n; k++) n_of[mlff_samples_get(samples, k, NULL)->group]++;
        for (int g = 0; g < 500; g++) {
            n_trajectories += n_of[g] > 0;
            assert_true(n_of[g] <= (in_cell ? 240 : 60));
        }
        assert_int_equal(n_trajectories, in_cell ? 6 : 9); // a multiple of three temperatures
        mlff_samples_destroy(samples);
        mlff_samples_destroy(seeds);
        mlff_teacher_destroy(teacher);
        mlff_system_destroy(system);
    }
}

// Every other structure that fills its cell has a cell of its own, within the limits; slabs, molecules in vacuum and such with fixed atoms have
// none.
static void test_strained_cells(void **state)
{
    (void)state;
    static const char *const methods[] = {"thermal", "rattle", "md"};
    mlff_sample_options options = mlff_sample_options_default();
    options.oversample = 1;
    options.relax = 0;
    options.interval_fs = 2;
    enum { SLAB, VACUUM, FIXED, FILLS, N_KINDS };
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int m = 0; m < 3; m++)
            for (int strained = 0; strained < 2; strained++) {
                mlff_system *system = molecule("ethanol");
                mlff_samples *seeds;
                int64_t n_others = 0;
                double least = 1, most = 1;
                const double side = kind == VACUUM ? 12 : 7;
                for (int c = 0; c < 3; c++) system->cell[4 * c] = side, system->periodic[c] = kind != SLAB || c < 2;
                if (kind == FIXED) assert_ok(mlff_system_add_fixed(system));
                if (kind == FIXED) system->fixed[2] = 1;
                assert_ok(mlff_samples_create(&seeds));
                assert_ok(mlff_samples_add(seeds, system, NULL));
                mlff_teacher *teacher = spring_teacher(system);
                options.methods = methods[m];
                options.n_samples = m == 2 ? 481 : 121; // six trajectories
                options.strain = strained ? 0.03 : 0;
                mlff_samples *samples = sample_with(teacher, seeds, &options);
                const int64_t n = mlff_samples_size(samples);
                for (int64_t k = 0; k < n; k++) {
                    const double *cell = mlff_samples_get(samples, k, NULL)->cell;
                    n_others += memcmp(cell, system->cell, sizeof system->cell) != 0;
                    for (int c = 0; c < 9; c++) {
                        const double part = cell[c] / side - (c % 4 == 0);
                        assert_true(fabs(part) <= (c % 4 == 0 ? 0.04 : 0.01) + 1e-12);
                        if (c % 4 == 0) least = fmin(least, 1 + part), most = fmax(most, 1 + part);
                    }
                }
                if (kind == FILLS && strained) {
                    assert_true(n > 100 && n_others >= n / 3 && n_others <= 2 * n / 3 + 1);
                    assert_true(least < 0.995 && most > 1.005);
                } else {
                    assert_int_equal(n_others, 0);
                }
                mlff_samples_destroy(samples);
                mlff_samples_destroy(seeds);
                mlff_teacher_destroy(teacher);
                mlff_system_destroy(system);
            }
}

// Springs hold the atoms of each frame nearer than is wanted: the trajectories end, with none of them.
static void test_all_rejected(void **state)
{
    (void)state;
    mlff_sample_options options = mlff_sample_options_default();
    mlff_system *rest = molecule("ethanol");
    const char *const name = "ethanol";
    mlff_samples *seeds = seeds_of(&name, 1);
    mlff_teacher *teacher = spring_teacher(rest);
    options.methods = "md";
    options.relax = 0;
    options.n_samples = 10;
    options.closest = 0.99;
    for (int c = 0; c < 3; c++) rest->positions[3 * 1 + c] = 0.4 * rest->positions[3 * 1 + c] + 0.6 * rest->positions[c];
    mlff_samples *samples = sample_with(teacher, seeds, &options);
    assert_true(mlff_samples_size(samples) < 10);
    mlff_samples_destroy(samples);
    mlff_samples_destroy(seeds);
    mlff_teacher_destroy(teacher);
    mlff_system_destroy(rest);
}

// The number of processes is that of the threads: a run may go on with others.
static void test_number_of_processes(void **state)
{
    (void)state;
    mlff_sample_options options = mlff_sample_options_default();
    mlff_system *rest = molecule("ethanol");
    const char *const name = "ethanol";
    mlff_samples *seeds = seeds_of(&name, 1), *samples[2];
    options.methods = "md";
    options.relax = 0;
    options.n_samples = 50;
    for (int k = 0; k < 2; k++) {
        mlff_teacher *teacher;
        assert_ok(mlff_teacher_create("xtb:springs", springs, rest, &teacher));
        teacher->facts.n_parallel = k ? 32 : 1;
        samples[k] = sample_with(teacher, seeds, &options);
        mlff_teacher_destroy(teacher);
    }
    const int64_t n = mlff_samples_size(samples[0]);
    assert_int_equal(mlff_samples_size(samples[1]), n);
    for (int64_t k = 0; k < n; k++) {
        const mlff_system *one = mlff_samples_get(samples[0], k, NULL), *other = mlff_samples_get(samples[1], k, NULL);
        assert_int_equal(one->group, other->group);
        assert_memory_equal(one->positions, other->positions, 3 * sizeof(double) * (size_t)one->n_atoms);
    }
    for (int k = 0; k < 2; k++) mlff_samples_destroy(samples[k]);
    mlff_samples_destroy(seeds);
    mlff_system_destroy(rest);
}

// Atoms that are farther apart than those of molecules are pressed together too: three of argon at 3.8 Å, 1.8 times the sum of their radii.
static void test_pairs_of_large_atoms(void **state)
{
    (void)state;
    mlff_system *argon;
    mlff_samples *seeds;
    mlff_sample_options options = mlff_sample_options_default();
    options.methods = "pairs";
    options.relax = 0;
    options.oversample = 1;
    options.n_samples = 101;
    assert_ok(mlff_system_create(3, &argon));
    for (int k = 0; k < 3; k++) argon->species[k] = 18, argon->positions[3 * k] = 3.8 * k;
    assert_ok(mlff_samples_create(&seeds));
    assert_ok(mlff_samples_add(seeds, argon, NULL));
    mlff_teacher *teacher = spring_teacher(argon);
    mlff_samples *samples = sample_with(teacher, seeds, &options);
    int n_pressed = 0;
    for (int64_t k = 0; k < mlff_samples_size(samples); k++) {
        double closest;
        assert_ok(sample_closest(mlff_samples_get(samples, k, NULL), &closest));
        n_pressed += closest < 1;
    }
    assert_true(n_pressed > 20); // from 0.31 to 0.95 of 3.8 Å alike: two fifths of 100 are below 1
    mlff_samples_destroy(samples);
    mlff_samples_destroy(seeds);
    mlff_teacher_destroy(teacher);
    mlff_system_destroy(argon);
}

// Counts computations, and stops at one of them, or fails there; else it stops before candidates are chosen.
typedef struct stopping {
    mlff_system *rest;
    int64_t n_calls, n_stop, n_fail;
    int64_t n_candidates; // when it was asked last
    const char *method;
} stopping;

static mlff_status counted_springs(void *context, const mlff_system *system, double *energy, double *forces)
{
    stopping *s = context;
    if (++s->n_calls == s->n_fail) return mlff_fail(MLFF_ERR_INTERRUPTED, "the teacher ended");
    return springs(s->rest, system, energy, forces);
}

static int stop_there(void *context, const mlff_sample_progress *progress)
{
    stopping *s = context;
    s->n_candidates = progress->n_done;
    s->method = progress->method;
    return (s->n_stop > 0 && s->n_calls >= s->n_stop) || strcmp(progress->method, "select") == 0;
}

// What was made before the end is handed out, also behind other samples, and the teacher is not called again after a stop.
static void test_stopped(void **state)
{
    (void)state;
    static const char *const names[] = {"ethanol"};
    stopping s = {.rest = molecule("ethanol")};
    mlff_teacher *teacher;
    mlff_samples *seeds = seeds_of(names, 1), *whole, *samples;
    mlff_sample_options options = mlff_sample_options_default();
    assert_ok(mlff_teacher_create("springs", counted_springs, &s, &teacher));
    options.n_samples = 60;
    options.callback = stop_there;
    options.context = &s;
    assert_ok(mlff_samples_create(&whole));
    assert_int_equal(mlff_sample(teacher, seeds, &options, whole), MLFF_ERR_INTERRUPTED); // all candidates
    const int64_t n_calls = s.n_calls;
    assert_true(mlff_samples_size(whole) > 80);
    int n_in[4] = {0};
    for (int64_t at = 2; at < n_calls; at += 1 + n_calls / 37) {
        const bool fails = at % 2;
        s.n_calls = 0;
        s.n_stop = fails ? 0 : at;
        s.n_fail = fails ? at : 0;
        assert_ok(mlff_samples_create(&samples));
        assert_ok(mlff_samples_add(samples, s.rest, "mine"));
        assert_int_equal(mlff_sample(teacher, seeds, &options, samples), MLFF_ERR_INTERRUPTED);
        assert_non_null(strstr(mlff_last_error(), fails ? "the teacher ended" : "sampling was interrupted in "));
        const bool relaxed = strcmp(s.method, "relax") != 0;
        assert_int_equal(mlff_samples_size(samples), 1 + (relaxed ? 1 + s.n_candidates : 0));
        for (int64_t k = 1; k < mlff_samples_size(samples); k++)
            assert_memory_equal(mlff_samples_get(samples, k, NULL)->positions, mlff_samples_get(whole, k - 1, NULL)->positions,
                                27 * sizeof(double));
        if (!fails) assert_true(s.n_calls < at + 64); // those of one call
        n_in[0] += !relaxed;
        n_in[1] += strcmp(s.method, "modes") == 0;
        n_in[2] += strcmp(s.method, "rattle") == 0;
        n_in[3] += strcmp(s.method, "md") == 0;
        mlff_samples_destroy(samples);
    }
    printf("%lld calls; stopped %d times in relax, %d modes, %d rattle, %d md\n", (long long)n_calls, n_in[0], n_in[1], n_in[2],
           n_in[3]);
    assert_true(n_in[1] > 0 && n_in[2] > 0 && n_in[3] > 0);
    mlff_samples_destroy(whole);
    mlff_samples_destroy(seeds);
    mlff_teacher_destroy(teacher);
    mlff_system_destroy(s.rest);
}

static char warning[256];

static void keep_warning(void *context, const char *text)
{
    (void)context;
    snprintf(warning, sizeof warning, "%s", text);
}

static mlff_status fails_once(void *context, const mlff_system *system, double *energy, double *forces)
{
    stopping *s = context;
    if (++s->n_calls == s->n_fail) return mlff_fail(MLFF_ERR_VALUE, "no convergence");
    return springs(s->rest, system, energy, forces);
}

// One of the structures of a Hessian that the teacher cannot compute does not end the sampling.
static void test_without_modes(void **state)
{
    (void)state;
    static const char *const names[] = {"ethanol"};
    stopping s = {.rest = molecule("ethanol"), .n_fail = 20};
    mlff_teacher *teacher;
    mlff_samples *seeds = seeds_of(names, 1), *samples;
    mlff_sample_options options = mlff_sample_options_default();
    assert_ok(mlff_teacher_create("springs", fails_once, &s, &teacher));
    options.n_samples = 30;
    options.methods = "modes";
    options.relax = 0;
    mlff_warning_handler_set(keep_warning, NULL);
    samples = sample_with(teacher, seeds, &options);
    mlff_warning_handler_set(NULL, NULL);
    assert_int_equal(mlff_samples_size(samples), 30);
    assert_non_null(strstr(warning, "seed 0 has no normal modes"));
    assert_non_null(strstr(warning, "no convergence"));
    for (int64_t k = 1; k < 30; k++) {
        const char *origin;
        mlff_samples_get(samples, k, &origin);
        assert_memory_equal(origin, "thermal ", 8);
    }
    mlff_samples_destroy(samples);
    mlff_samples_destroy(seeds);
    mlff_teacher_destroy(teacher);
    mlff_system_destroy(s.rest);
}

// Where no seed is left after relaxation, the message has what the teacher said.
static void test_lost_seeds(void **state)
{
    (void)state;
    static const char *const names[] = {"ethanol"};
    stopping s = {.rest = molecule("ethanol"), .n_fail = 1};
    mlff_teacher *teacher;
    mlff_samples *seeds = seeds_of(names, 1), *samples;
    mlff_sample_options options = mlff_sample_options_default();
    assert_ok(mlff_teacher_create("springs", fails_once, &s, &teacher));
    assert_ok(mlff_samples_create(&samples));
    mlff_warning_handler_set(keep_warning, NULL);
    assert_refused(mlff_sample(teacher, seeds, &options, samples), MLFF_ERR_VALUE, "at the first: no convergence");
    mlff_warning_handler_set(NULL, NULL);
    mlff_samples_destroy(samples);
    mlff_samples_destroy(seeds);
    mlff_teacher_destroy(teacher);
    mlff_system_destroy(s.rest);
}

// The part that displacements of two samples from the seed have in common: their correlation.
static double correlation(const mlff_system *a, const mlff_system *b, const mlff_system *seed)
{
    double aa = 0, bb = 0, ab = 0;
    for (int k = 0; k < 3 * seed->n_atoms; k++) {
        const double x = a->positions[k] - seed->positions[k], y = b->positions[k] - seed->positions[k];
        aa += x * x, bb += y * y, ab += x * y;
    }
    return ab / sqrt(aa * bb);
}

// No structure of a seed is one of the next seed, whose test would then be of what was trained on.
static void test_neighboring_seeds(void **state)
{
    (void)state;
    static const char *const names[] = {"ethanol"}, *const methods[] = {"md", "thermal"};
    mlff_system *rest = molecule("ethanol");
    mlff_teacher *teacher = spring_teacher(rest);
    mlff_samples *seeds = seeds_of(names, 1);
    mlff_sample_options options = mlff_sample_options_default();
    options.n_samples = 30;
    options.oversample = 1;
    options.n_temperatures = 1;
    options.interval_fs = 5; // displacements are those of the first velocities
    options.relax = 0;
    for (int m = 0; m < 2; m++) {
        mlff_samples *samples[2];
        double largest = 0;
        options.methods = methods[m];
        for (int k = 0; k < 2; k++) {
            options.seed = 7 + (uint64_t)k;
            samples[k] = sample_with(teacher, seeds, &options);
        }
        const int64_t n[2] = {mlff_samples_size(samples[0]), mlff_samples_size(samples[1])};
        assert_true(n[0] > 2 && n[1] > 2);
        for (int64_t i = 1; i < n[0]; i++) // the first is the seed
            for (int64_t j = 1; j < n[1]; j++)
                largest = fmax(largest,
                               correlation(mlff_samples_get(samples[0], i, NULL), mlff_samples_get(samples[1], j, NULL), rest));
        printf("%s: %d and %d structures, correlation up to %.2f\n", methods[m], (int)n[0], (int)n[1], largest);
        if (!(largest < 0.85)) fail_msg("%s: a correlation of %.3f", methods[m], largest);
        for (int k = 0; k < 2; k++) mlff_samples_destroy(samples[k]);
    }
    mlff_samples_destroy(seeds);
    mlff_teacher_destroy(teacher);
    mlff_system_destroy(rest);
}

// Several systems, one of them periodic, by a model; a seed that the teacher cannot take is named.
static void test_several_systems(void **state)
{
    (void)state;
    static const char *const names[] = {"ethanol", "h2o", "benzene"};
    mlff_model *model = support_model(16, 2, "gaussian", "mollifier", 0, 1);
    mlff_teacher *teacher;
    mlff_samples *seeds = seeds_of(names, 3), *samples;
    mlff_system *water;
    assert_ok(mlff_system_build("water", 24, 1, &water));
    assert_ok(mlff_samples_add(seeds, water, "builder"));
    assert_ok(mlff_teacher_create_model(model, NULL, &teacher));
    mlff_sample_options options = mlff_sample_options_default();
    options.n_samples = 60;
    options.relax = 0;
    options.methods = "thermal,rattle,pairs";
    samples = sample_with(teacher, seeds, &options);
    int n_of[4] = {0};
    for (int64_t k = 0; k < mlff_samples_size(samples); k++) {
        const int n_atoms = mlff_samples_get(samples, k, NULL)->n_atoms;
        n_of[n_atoms == 9 ? 0 : n_atoms == 3 ? 1 : n_atoms == 12 ? 2 : 3]++;
    }
    for (int s = 0; s < 4; s++) assert_true(n_of[s] >= 3);
    water->charge = -1;
    assert_ok(mlff_samples_add(seeds, water, "builder"));
    assert_int_equal(mlff_sample(teacher, seeds, &options, samples), MLFF_ERR_UNSUPPORTED);
    assert_non_null(strstr(mlff_last_error(), "seed 4"));
    mlff_system_destroy(water);
    mlff_samples_destroy(samples);
    mlff_samples_destroy(seeds);
    mlff_teacher_destroy(teacher);
    mlff_model_destroy(model);
}

// A student that lets the hydroxyl hydrogen go, beyond 1.1 Å of its oxygen.
static mlff_status leaky(void *context, const mlff_system *system, double *energy, double *forces)
{
    const mlff_status status = springs(context, system, energy, forces);
    for (int c = 0; c < 3 && status == MLFF_OK; c++) forces[3 * 8 + c] += 3.0 * (c == 0);
    return status;
}

static void test_explore(void **state)
{
    (void)state;
    static const char *const names[] = {"ethanol"};
    mlff_system *rest = molecule("ethanol");
    mlff_teacher *members[2] = {spring_teacher(rest), NULL};
    mlff_samples *seeds = seeds_of(names, 1), *samples;
    mlff_explore_options options = mlff_explore_options_default();
    mlff_explore_info info;
    options.n_samples = 20;
    options.duration_fs = 500;
    assert_ok(mlff_samples_create(&samples));
    // One member, no deviations: frames that differ.
    assert_ok(mlff_explore(members, 1, seeds, &options, samples, &info));
    assert_int_equal(mlff_samples_size(samples), 20);
    assert_true(isnan(info.median_deviation) && info.n_bond_alarms == 0 && info.n_trajectories == 12);
    assert_true(fabs(info.simulated_fs - 12 * 500) < 1);
    // A second that pulls on atom 8 by 3 eV/Å: the deviation is 3/sqrt(2) everywhere.
    assert_ok(mlff_teacher_create("leaky", leaky, rest, &members[1]));
    assert_ok(mlff_explore(members, 2, seeds, &options, samples, &info));
    assert_true(fabs(info.median_deviation - 3 / sqrt(2)) < 1e-9 && fabs(info.upper_deviation - 3 / sqrt(2)) < 1e-9);
    assert_int_equal(mlff_samples_size(samples), 40);
    // An alarm below it ends every trajectory at its first frame.
    options.deviation_alarm = 1;
    assert_ok(mlff_explore(members, 2, seeds, &options, samples, &info));
    assert_int_equal(info.n_deviation_alarms, 12);
    assert_int_equal(info.n_frames, 0);
    // Bonds that may not stretch at all give bond alarms.
    options.deviation_alarm = 0;
    options.longest_bond = 1.06;
    assert_ok(mlff_explore(members, 1, seeds, &options, samples, &info));
    assert_true(info.n_bond_alarms > 6);
    mlff_samples_destroy(samples);
    mlff_samples_destroy(seeds);
    mlff_teacher_destroy(members[0]);
    mlff_teacher_destroy(members[1]);
    mlff_system_destroy(rest);
}

// GFN2-xTB's harmonic frequencies of water as the command gives them (xtb h2o.xyz --gfn 2 --hess).
static void test_xtb_modes(void **state)
{
    (void)state;
    mlff_teacher *teacher;
    if (mlff_teacher_open("xtb:gfn2", NULL, &teacher) != MLFF_OK) {
        printf("skipped: %s\n", mlff_last_error());
        skip();
    }
    mlff_system *water = molecule("h2o");
    normal_modes modes;
    assert_ok(normal_modes_find(teacher, water, NULL, NULL, &modes));
    assert_int_equal(modes.n_modes, 3);
    static const double expected[3] = {1539.5, 3644.0, 3652.4};
    for (int k = 0; k < 3; k++) {
        const double got = modes.frequencies[k] / 1.8836515674e-4;
        printf("water, mode %d: %.1f /cm\n", k, got);
        assert_true(fabs(got - expected[k]) < 3); // other steps, and the built geometry is rounded to 1e-4 Å
    }
    normal_modes_free(&modes);
    mlff_system_destroy(water);
    mlff_teacher_destroy(teacher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_eigen),
                                       cmocka_unit_test(test_modes),
                                       cmocka_unit_test(test_relax_and_dynamics),
                                       cmocka_unit_test(test_geometry),
                                       cmocka_unit_test(test_selection),
                                       cmocka_unit_test(test_pairs_of_large_atoms),
                                       cmocka_unit_test(test_sample),
                                       cmocka_unit_test(test_lengths_of_trajectories),
                                       cmocka_unit_test(test_strained_cells),
                                       cmocka_unit_test(test_number_of_processes),
                                       cmocka_unit_test(test_all_rejected),
                                       cmocka_unit_test(test_stopped),
                                       cmocka_unit_test(test_without_modes),
                                       cmocka_unit_test(test_lost_seeds),
                                       cmocka_unit_test(test_neighboring_seeds),
                                       cmocka_unit_test(test_several_systems),
                                       cmocka_unit_test(test_explore),
                                       cmocka_unit_test(test_xtb_modes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
