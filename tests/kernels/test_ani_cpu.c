// SPDX-License-Identifier: MIT
// Every CPU path of ANI against the float64 reference: random and extreme graphs, several shapes of model; batches, ghosts,
// members; and that bits do not depend on threads, batch or the way the work is cut.
// Tolerance: forces and virials to 2e-5 of the largest, energies to 1e-5 of the sum of atom energies' sizes (float32
// sums of some 1000 terms, and powers whose relative error is some 20 roundings).
#include "ani_support.h"

static const double floors[2] = {1e-2, 5e-2};

static void check_batch(const mlff_model *model, const mlff_batch *batch, const char *what)
{
    support_check_paths(model, batch, floors, what);
}

static void check_system(const mlff_model *model, const mlff_system *system, const char *what)
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    check_batch(model, &batch, what);
}

// ANI-2x's and ANI-1x's grids, an odd one, one whose angular reach is the longer.
static const ani_form forms[] = {
    {"H,C,N,O,S,F,Cl", 3, 16, 8, 4, 5.1, 3.5, 14.1, {48, 32, 16, 0}},
    {"H,C,N,O", 1, 16, 4, 8, 5.2, 3.5, 32.0, {64, 40, 0}},
    {"O,H", 2, 5, 3, 6, 4.0, 3.0, 8.0, {20, 7, 9, 0}},
    {"H,C", 2, 20, 5, 3, 3.0, 4.5, 2.0, {33, 0}},
};
enum { N_FORMS = sizeof forms / sizeof *forms };
static const int n_elements[N_FORMS] = {7, 4, 2, 2};

static mlff_system *system_for(int form, int n, int periodic, double closest, uint64_t seed)
{
    mlff_system *system = ani_random_system(n, n_elements[form], periodic, closest, seed);
    for (int i = 0; form == 2 && i < n; i++)
        if (system->species[i] == 6) system->species[i] = 8;
    return system;
}

static void test_random_systems(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 7, 13, 30};
    for (int f = 0; f < N_FORMS; f++) {
        mlff_model *model = ani_shaped(&forms[f], 17 + (uint64_t)f);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int periodic = 0; periodic < 2; periodic++) {
                char what[128];
                snprintf(what, sizeof what, "form %d, %d atoms, periodic %d", f, sizes[s], periodic);
                mlff_system *system = system_for(f, sizes[s], periodic, 1.0, 100 * (uint64_t)f + s);
                check_system(model, system, what);
                mlff_system_destroy(system);
            }
        mlff_model_destroy(model);
    }
}

// One atom; atoms out of reach; pairs at both cutoffs; a straight line; a cell smaller than the cutoff; a crowd in which
// one atom has more neighbors than a flush of triples takes.
static void test_extremes(void **state)
{
    (void)state;
    mlff_model *model = ani_shaped(&ani_small_2x, 3);
    static const double distances[] = {0.3, 1.0, 3.4999999, 3.5, 3.5000001, 5.0999999, 5.1, 5.1000001, 40.0};
    for (size_t k = 0; k < sizeof distances / sizeof *distances; k++) {
        mlff_system *line = ani_line(distances[k]);
        char what[64];
        snprintf(what, sizeof what, "line at %.8g Å", distances[k]);
        check_system(model, line, what);
        mlff_system_destroy(line);
    }
    mlff_system *tiny;
    assert_ok(mlff_system_create(1, &tiny));
    tiny->species[0] = 16;
    for (int c = 0; c < 3; c++) {
        tiny->cell[4 * c] = 2.1;
        tiny->periodic[c] = 1;
    }
    check_system(model, tiny, "one atom and its images");
    mlff_system_destroy(tiny);
    mlff_system *crowd = ani_random_system(80, 7, 0, 1.1, 8);
    for (int k = 0; k < 240; k++) crowd->positions[k] *= 0.6; // some 40 neighbors within 3.5 Å: 800 triples an atom
    check_system(model, crowd, "crowd");
    mlff_system_destroy(crowd);
    mlff_model_destroy(model);
}

// A ragged batch gives what its systems give one by one, bit for bit, whether the members are split among threads or, in a
// batch too large for that, blocks of atoms are; and although the species present differ.
static void test_batches(void **state)
{
    (void)state;
    enum { MOST = 170, LARGEST = 20 };
    static const int sizes[2] = {6, MOST}; // atoms: some 50; some 1800 × 1008 columns × 3 members > 4 Mi floats
    mlff_model *model = ani_shaped(&ani_small_2x, 5);
    mlff_evaluator *together = support_evaluator_on(model, MLFF_FLOAT32, NULL, 2, NULL);
    mlff_evaluator *alone = support_evaluator_on(model, MLFF_FLOAT32, NULL, 2, NULL);
    for (int k = 0; k < 2; k++) {
        const int n = sizes[k];
        mlff_system *systems[MOST];
        for (int s = 0; s < n; s++) {
            const int size = 1 + (int)(LARGEST * base_random_uniform(400, 50, (uint64_t)s));
            systems[s] = ani_random_system(size, 1 + s % 7, s % 2, 1.0, 400 + (uint64_t)s);
        }
        joined j = join(systems, n);
        if (k == 0) check_batch(model, &j.batch, "ragged batch");
        support_results all = support_compute(together, &j.batch);
        printf("batch of %d systems, %d atoms\n", n, all.n_atoms);
        for (int s = 0; s < n; s += k ? 13 : 1) {
            support_results one = support_compute_system(alone, systems[s]);
            size_t size = (size_t)systems[s]->n_atoms;
            assert_memory_equal(one.r.forces, all.r.forces + 3 * j.first_atom[s], sizeof(double) * 3 * size);
            assert_memory_equal(one.r.energies, all.r.energies + s, sizeof(double));
            assert_memory_equal(one.r.virials, all.r.virials + 9 * s, 9 * sizeof(double));
            support_results_free(&one);
        }
        // energy alone takes a shorter way and says the same
        double *energies = calloc((size_t)n, sizeof *energies);
        assert_ok(mlff_evaluator_compute(together, &j.batch, &(mlff_results){.energies = energies}));
        assert_memory_equal(energies, all.r.energies, sizeof *energies * (size_t)n);
        free(energies);
        support_results_free(&all);
        unjoin(&j);
        for (int s = 0; s < n; s++) mlff_system_destroy(systems[s]);
    }
    mlff_evaluator_destroy(together);
    mlff_evaluator_destroy(alone);
    mlff_model_destroy(model);
}

// A periodic system opened up: images within the cutoff are ghosts. Energies of owned atoms and folded forces are the
// periodic system's, in both precisions; the list of the open system has no rows of ghosts' pairs in `truncated`.
static void test_ghosts(void **state)
{
    (void)state;
    enum { MOST = 3000 };
    mlff_model *model = ani_shaped(&ani_small_2x, 6);
    mlff_system *system = ani_random_system(14, 7, 1, 1.1, 31);
    static int32_t species[MOST], owner[MOST];
    static double positions[3 * MOST];
    static unsigned char owned[MOST];
    int n = 0;
    for (int image = 0; image < 125; image++) {
        int k = image == 0 ? 62 : image <= 62 ? image - 1 : image, shift[3] = {k % 5 - 2, k / 5 % 5 - 2, k / 25 - 2};
        for (int i = 0; i < system->n_atoms; i++) {
            double r[3], nearest = 1e9;
            for (int c = 0; c < 3; c++) {
                r[c] = system->positions[3 * i + c];
                for (int a = 0; a < 3; a++) r[c] += shift[a] * system->cell[3 * a + c];
            }
            for (int j = 0; j < system->n_atoms; j++) {
                double square = 0;
                for (int c = 0; c < 3; c++) square += pow(r[c] - system->positions[3 * j + c], 2);
                nearest = fmin(nearest, square);
            }
            if (image > 0 && nearest > 5.1 * 5.1) continue;
            assert_true(n < MOST);
            species[n] = system->species[i];
            owner[n] = i;
            owned[n] = image == 0;
            memcpy(positions + 3 * n++, r, sizeof r);
        }
    }
    int32_t first_atom[2] = {0, n};
    mlff_batch batch = {.n_systems = 1, .first_atom = first_atom, .species = species, .positions = positions, .owned = owned};
    mlff_neighbors *list;
    assert_ok(mlff_neighbors_create(5.1, 0.0, &list));
    assert_ok(mlff_neighbors_update(list, &batch));
    mlff_pairs pairs;
    mlff_neighbors_get(list, &pairs, NULL, NULL);
    int32_t *first = malloc(sizeof *first * (size_t)(n + 1));
    for (int i = 0; i <= n; i++) first[i] = pairs.first[i < system->n_atoms ? i : system->n_atoms];
    mlff_pairs truncated = {first, pairs.neighbor, NULL, 0};
    for (int precision = MLFF_FLOAT32; precision <= MLFF_FLOAT64; precision++) {
        mlff_evaluator *evaluator = support_evaluator_on(model, (mlff_precision)precision, NULL, 2, NULL);
        support_results whole = support_compute_system(evaluator, system);
        for (int handed = 0; handed < 2; handed++) {
            batch.pairs = handed ? &truncated : NULL;
            support_results open = support_compute(evaluator, &batch);
            for (int i = system->n_atoms; i < n; i++) {
                assert_true(open.r.atom_energies[i] == 0);
                for (int c = 0; c < 3; c++) open.r.forces[3 * owner[i] + c] += open.r.forces[3 * i + c];
            }
            double df = support_difference(open.r.forces, whole.r.forces, 3 * (size_t)system->n_atoms);
            double dv = support_difference(open.r.virials, whole.r.virials, 9);
            double limit = precision == MLFF_FLOAT64 ? 1e-12 : 1e-5; // images' distances differ in the last bits
            printf("%d ghosts, precision %d, handed %d: forces differ by %.1e\n", n - system->n_atoms, precision, handed, df);
            assert_true(df < limit * support_largest(whole.r.forces, 3 * (size_t)system->n_atoms));
            assert_true(dv < limit * support_largest(whole.r.virials, 9));
            assert_true(fabs(open.r.energies[0] - whole.r.energies[0]) < limit * support_atom_energy_size(&whole));
            support_results_free(&open);
        }
        // nothing but ghosts
        batch.pairs = NULL;
        memset(owned, 0, sizeof owned);
        support_results none = support_compute(evaluator, &batch);
        assert_true(none.r.energies[0] == 0 && support_largest(none.r.forces, 3 * (size_t)n) == 0);
        memset(owned, 1, (size_t)system->n_atoms);
        support_results_free(&none);
        support_results_free(&whole);
        mlff_evaluator_destroy(evaluator);
    }
    free(first);
    mlff_neighbors_destroy(list);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

// Members one by one: their mean is the energy, their deviation the uncertainty; a selection is the mean of its members.
static void test_members(void **state)
{
    (void)state;
    enum { M = 3, N = 12 };
    mlff_model *model = ani_shaped(&ani_small_2x, 7);
    mlff_system *system = ani_random_system(N, 7, 1, 1.0, 90);
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    for (int precision = MLFF_FLOAT32; precision <= MLFF_FLOAT64; precision++) {
        double energy, forces[3 * N], each[M], member_forces[M][3 * N], deviation, deviations[3 * N];
        mlff_evaluator *evaluator = support_evaluator_on(model, (mlff_precision)precision, NULL, 2, NULL);
        mlff_results results = {.energies = &energy,
                                .forces = forces,
                                .member_energies = each,
                                .member_forces = member_forces[0],
                                .energy_deviations = &deviation,
                                .force_deviations = deviations};
        assert_ok(mlff_evaluator_compute(evaluator, &batch, &results));
        mlff_evaluator_info info;
        mlff_evaluator_info_get(evaluator, &info);
        assert_int_equal(info.n_members, M);
        double limit = precision == MLFF_FLOAT64 ? 1e-12 : 2e-6, size = support_largest(forces, 3 * N), mean = 0, square = 0;
        for (int m = 0; m < M; m++) mean += each[m] / M;
        for (int m = 0; m < M; m++) square += (each[m] - mean) * (each[m] - mean);
        assert_true(fabs(mean - energy) < limit * fabs(energy));
        assert_true(fabs(deviation - sqrt(square / (M - 1))) < 10 * limit * fabs(energy));
        assert_true(deviation > 0.01); // members differ
        for (int k = 0; k < 3 * N; k++) {
            double average = (member_forces[0][k] + member_forces[1][k] + member_forces[2][k]) / M, sum = 0;
            for (int m = 0; m < M; m++) sum += pow(member_forces[m][k] - average, 2);
            assert_true(fabs(average - forces[k]) < limit * size);
            assert_true(fabs(deviations[k] - sqrt(sum / (M - 1))) < 10 * limit * size);
        }
        // each member by itself, bit for bit; and two of them
        for (int m = 0; m < M; m++) {
            char text[8];
            snprintf(text, sizeof text, "%d", m);
            mlff_evaluator *single = support_evaluator_on(model, (mlff_precision)precision, NULL, 2, text);
            double one, none;
            assert_ok(mlff_evaluator_compute(single, &batch, &(mlff_results){.energies = &one, .energy_deviations = &none}));
            assert_memory_equal(&one, &each[m], sizeof one);
            assert_true(isnan(none)); // one member has no deviation
            mlff_evaluator_destroy(single);
        }
        mlff_evaluator *pair = support_evaluator_on(model, (mlff_precision)precision, NULL, 2, "2,0");
        double two = support_energy(pair, system);
        assert_true(fabs(two - 0.5 * (each[0] + each[2])) < limit * fabs(two));
        mlff_evaluator_destroy(pair);
        mlff_evaluator_destroy(evaluator);
    }
    static const char *const wrong[] = {"3", "-1", "0,0", "", "0,", "a", "0 1", "0,1,2,3"};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        mlff_evaluator_options options = mlff_evaluator_options_default();
        mlff_evaluator *evaluator = NULL;
        options.members = wrong[k];
        assert_int_equal(mlff_evaluator_create(model, &options, &evaluator), MLFF_ERR_USAGE);
        assert_non_null(strstr(mlff_last_error(), "from 0 to 2"));
        assert_null(evaluator);
    }
    mlff_model *single = support_model(16, 1, "gaussian", "cosine", 0, 1);
    mlff_evaluator *evaluator = support_evaluator_on(single, MLFF_FLOAT32, NULL, 1, NULL);
    double value;
    assert_int_equal(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energy_deviations = &value}),
                     MLFF_ERR_UNSUPPORTED);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(single);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

// After the first calls nothing is allocated, although neighbors and species change.
static void test_no_allocation(void **state)
{
    (void)state;
    mlff_model *model = ani_shaped(&ani_small_2x, 8);
    mlff_evaluator *evaluator = support_evaluator_on(model, MLFF_FLOAT32, NULL, 2, NULL);
    mlff_system *system = ani_random_system(50, 7, 1, 1.0, 12);
    double forces[150], *base = malloc(sizeof(double) * 150);
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    memcpy(base, system->positions, sizeof(double) * 150);
    int64_t before = 0;
    mlff_evaluator_info info = {0};
    for (int call = 0; call < 40; call++) {
        for (int k = 0; k < 150; k++)
            system->positions[k] = base[k] + 0.3 * base_random_normal(3, (uint64_t)call % 20, (uint64_t)k);
        if (call == 20) before = base_allocation_count();
        if (call > 20) system->species[call % 50] = 1;
        assert_ok(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.forces = forces}));
    }
    mlff_evaluator_info_get(evaluator, &info);
    assert_int_equal(base_allocation_count() - before, 0);
    assert_true(info.n_growths > 0 && info.host_bytes > 100000);
    free(base);
    mlff_system_destroy(system);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

// Clocks of the stages, of one thread so that it has a part in each: on, all of the vocabulary runs; off, all is zero. An element
// that the model has not is refused by name.
static void test_stages_and_elements(void **state)
{
    (void)state;
    static const char *const names[] = {"neighbors", "geometry",         "aev_radial",   "aev_angular",
                                        "network",   "network_backward", "aev_backward", "forces"};
    mlff_model *model = ani_shaped(&ani_small_2x, 8);
    mlff_system *system = ani_random_system(40, 7, 1, 1.0, 12);
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    double forces[120], times[8];
    for (int precision = MLFF_FLOAT32; precision <= MLFF_FLOAT64; precision++) {
        mlff_evaluator *evaluator = support_evaluator_on(model, (mlff_precision)precision, NULL, 1, NULL);
        int n;
        const mlff_stage *stages = mlff_evaluator_stages(evaluator, &n);
        assert_int_equal(n, 8);
        for (int on = 1; on >= 0; on--) {
            assert_ok(mlff_evaluator_stage_clock_set(evaluator, on));
            assert_ok(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.forces = forces}));
            mlff_evaluator_stage_times(evaluator, times);
            for (int k = 0; k < n; k++) {
                assert_string_equal(stages[k].name, names[k]);
                assert_true(on ? times[k] > 0 : times[k] == 0);
            }
        }
        mlff_evaluator_destroy(evaluator);
    }
    system->species[4] = 14;
    mlff_evaluator *evaluator = support_evaluator_on(model, MLFF_FLOAT32, NULL, 2, NULL);
    assert_int_equal(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.forces = forces}), MLFF_ERR_ELEMENT);
    assert_non_null(strstr(mlff_last_error(), "Si"));
    assert_non_null(strstr(mlff_last_error(), "H, C, N, O, F, S, Cl"));
    mlff_evaluator_destroy(evaluator);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_systems),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_ghosts),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_stages_and_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
