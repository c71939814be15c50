// SPDX-License-Identifier: MIT
// Every CPU path of PaiNN against the float64 reference: random and extreme graphs, every variant of the model.
// Tolerance: forces to 2e-5 of the largest, as the golden cases; energies to 1e-5 of the sum of atom energies' sizes.
#include "model/painn/painn.h"
#include "support.h"

static const double floors[2] = {1e-3, 1e-3};

static mlff_evaluator *evaluator_on(const mlff_model *model, mlff_precision precision, const char *path, int n_threads)
{
    return support_evaluator_on(model, precision, path, n_threads, NULL);
}

static void compare(const char *what, const support_results *got, const support_results *expected)
{
    support_compare(what, got, expected, floors);
}

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

static const struct variant {
    int F, L;
    const char *basis, *cutoff;
    int shared;
} variants[] = {
    {128, 3, "gaussian", "cosine", 0}, {64, 2, "bessel", "cosine", 0},    {128, 3, "gaussian", "mollifier", 1},
    {24, 1, "gaussian", "cosine", 0},  {50, 4, "bessel", "mollifier", 1},
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

static mlff_model *model_of(int v)
{
    return support_model(variants[v].F, variants[v].L, variants[v].basis, variants[v].cutoff, variants[v].shared,
                         17 + (uint64_t)v);
}

static void test_random_systems(void **state)
{
    (void)state;
    static const struct {
        int atoms, seed;
    } sizes[] = {{13, 4}, {1, 0}, {2, 1}, {3, 2}, {7, 3}, {30, 5}};
    for (int v = 0; v < N_VARIANTS; v++) {
        mlff_model *model = model_of(v);
        for (size_t s = 0; s < SUPPORT_CASES(sizeof sizes / sizeof *sizes); s++)
            for (int periodic = 0; periodic < 2; periodic++) {
                char what[128];
                snprintf(what, sizeof what, "variant %d, %d atoms, periodic %d", v, sizes[s].atoms, periodic);
                mlff_system *system = support_random_system(sizes[s].atoms, periodic, 1.0, (uint64_t)(100 * v + sizes[s].seed));
                check_system(model, system, what);
                mlff_system_destroy(system);
            }
        mlff_model_destroy(model);
    }
}

// A block boundary (64 atoms), several blocks a thread.
static void test_many_atoms(void **state)
{
    (void)state;
    mlff_model *model = model_of(1);
    static const struct {
        int atoms, seed;
    } sizes[] = {{65, 6}, {64, 5}, {150, 7}};
    for (int s = 0; s < SUPPORT_CASES(3); s++) {
        mlff_system *system = support_random_system(sizes[s].atoms, 1, 1.2, (uint64_t)sizes[s].seed);
        check_system(model, system, "many atoms");
        mlff_system_destroy(system);
    }
    mlff_model_destroy(model);
}

// One atom; atoms out of reach; a pair at 0.3 Å; a pair at the cutoff; a cell smaller than the cutoff.
static void test_extremes(void **state)
{
    (void)state;
    mlff_model *model = model_of(0);
    static const double distances[] = {0.3, 1.0, 4.9999999, 5.0, 5.0000001, 40.0};
    for (size_t k = 0; k < sizeof distances / sizeof *distances; k++) {
        mlff_system *pair;
        assert_ok(mlff_system_create(2, &pair));
        pair->species[0] = 8;
        pair->species[1] = 1;
        pair->positions[3] = distances[k] * 0.6;
        pair->positions[4] = distances[k] * 0.8;
        char what[64];
        snprintf(what, sizeof what, "pair at %.8g Å", distances[k]);
        check_system(model, pair, what);
        mlff_system_destroy(pair);
    }
    mlff_system *tiny;
    assert_ok(mlff_system_create(1, &tiny));
    tiny->species[0] = 14;
    for (int c = 0; c < 3; c++) {
        tiny->cell[4 * c] = 2.3;
        tiny->periodic[c] = 1;
    }
    check_system(model, tiny, "one atom and its images");
    mlff_system_destroy(tiny);
    mlff_model_destroy(model);
}

// A ragged batch gives what its systems give one by one, bit for bit.
static void test_batch(void **state)
{
    (void)state;
    mlff_model *model = model_of(0);
    enum { N = 5 };
    static const int sizes[N] = {9, 1, 17, 4, 12};
    mlff_system *systems[N];
    for (int s = 0; s < N; s++) systems[s] = support_random_system(sizes[s], s % 2, 1.0, 40 + (uint64_t)s);
    joined j = join(systems, N);
    check_batch(model, &j.batch, "ragged batch");
    mlff_evaluator *together = evaluator_on(model, MLFF_FLOAT32, NULL, 2), *alone = evaluator_on(model, MLFF_FLOAT32, NULL, 2);
    support_results all = support_compute(together, &j.batch);
    for (int s = 0; s < N; s++) {
        support_results one = support_compute_system(alone, systems[s]);
        assert_memory_equal(one.r.forces, all.r.forces + 3 * j.first_atom[s], sizeof(double) * 3 * (size_t)sizes[s]);
        assert_memory_equal(one.r.energies, all.r.energies + s, sizeof(double));
        assert_memory_equal(one.r.virials, all.r.virials + 9 * s, 9 * sizeof(double));
        support_results_free(&one);
        mlff_system_destroy(systems[s]);
    }
    support_results_free(&all);
    unjoin(&j);
    mlff_evaluator_destroy(together);
    mlff_evaluator_destroy(alone);
    mlff_model_destroy(model);
}

// Pairs given by the caller, in a scrambled order and with pairs beyond the cutoff, symmetric or said not to be: as the own list.
static void test_handed_pairs(void **state)
{
    (void)state;
    mlff_model *model = model_of(0);
    mlff_system *system = support_random_system(20, 1, 1.2, 77);
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    mlff_neighbors *list;
    assert_ok(mlff_neighbors_create(6.0, 0.0, &list));
    assert_ok(mlff_neighbors_update(list, &batch));
    mlff_pairs pairs;
    mlff_neighbors_get(list, &pairs, NULL, NULL);
    int n = pairs.first[20];
    int32_t *neighbor = malloc(sizeof(int32_t) * (size_t)n), *shift = malloc(sizeof(int32_t) * 3 * (size_t)n);
    for (int i = 0; i < 20; i++)
        for (int p = pairs.first[i]; p < pairs.first[i + 1]; p++) { // each row back to front
            int from = pairs.first[i] + pairs.first[i + 1] - 1 - p;
            neighbor[p] = pairs.neighbor[from];
            memcpy(shift + 3 * p, pairs.shift + 3 * from, 3 * sizeof *shift);
        }
    mlff_evaluator *evaluator = evaluator_on(model, MLFF_FLOAT32, NULL, 2);
    support_results own = support_compute(evaluator, &batch);
    for (int symmetric = 0; symmetric < 2; symmetric++) {
        mlff_pairs handed = {pairs.first, neighbor, shift, symmetric};
        mlff_batch with_pairs = batch;
        with_pairs.pairs = &handed;
        check_batch(model, &with_pairs, symmetric ? "handed pairs" : "handed pairs, not symmetric");
        support_results out = support_compute(evaluator, &with_pairs);
        if (symmetric) assert_memory_equal(out.r.forces, own.r.forces, sizeof(double) * 60);
        compare("handed against own", &out, &own);
        support_results_free(&out);
    }
    // A list that lies about its symmetry is caught.
    int32_t first[3] = {0, 1, 1}, one = 1, two_atoms[2] = {0, 2};
    mlff_pairs lie = {first, &one, NULL, 1};
    mlff_batch two = batch;
    two.first_atom = two_atoms;
    two.pairs = &lie;
    double energy;
    double near[6] = {0, 0, 0, 1, 1, 1};
    two.positions = near;
    assert_int_equal(mlff_evaluator_compute(evaluator, &two, &(mlff_results){.energies = &energy}), MLFF_ERR_VALUE);
    assert_non_null(strstr(mlff_last_error(), "no reverse"));
    support_results_free(&own);
    mlff_evaluator_destroy(evaluator);
    mlff_neighbors_destroy(list);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
    free(neighbor);
    free(shift);
}

// Handed pairs do not spare the checks of positions and cells: no energy of an atom that is nowhere, no infinite stress.
static void test_handed_pairs_of_bad_systems(void **state)
{
    (void)state;
    mlff_model *model = model_of(0);
    mlff_evaluator *evaluator = evaluator_on(model, MLFF_FLOAT32, NULL, 1);
    const int32_t species[2] = {1, 8}, first_atom[2] = {0, 2}, first[3] = {0, 1, 2}, none[3] = {0, 0, 0}, neighbor[2] = {1, 0};
    const unsigned char periodic[3] = {1, 1, 1};
    static const struct {
        double x, cell[9]; // of atom 0; the cell
        bool lone;
        const char *words;
    } cases[] = {{NAN, {9, 0, 0, 0, 9, 0, 0, 0, 9}, true, "atom 0 of system 0 has a coordinate that is not finite"},
                 {0, {0}, false, "a vector of 0 Å along a"},
                 {0, {9, 0, 0, 0, NAN, 0, 0, 0, 9}, false, "a vector of nan Å along b"},
                 {0, {9, 0, 0, 0, 9, 0, 9, 9, 0}, false, "span no volume"},
                 {0, {9, 0, 0, 0, 9, 0, 0, 0, 9}, false, NULL}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const double positions[6] = {cases[k].x, 0, 0, 1, 0, 0};
        const mlff_pairs pairs = {cases[k].lone ? none : first, neighbor, NULL, 1};
        const mlff_batch batch = {.n_systems = 1,
                                  .first_atom = first_atom,
                                  .species = species,
                                  .positions = positions,
                                  .cells = cases[k].cell,
                                  .periodic = periodic,
                                  .pairs = &pairs};
        double energy, stress[6];
        const mlff_status status =
            mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy, .stresses = stress});
        if (!cases[k].words)
            assert_true(status == MLFF_OK && isfinite(stress[0]));
        else if (status != MLFF_ERR_VALUE || !strstr(mlff_last_error(), cases[k].words))
            fail_msg("case %zu: %s \"%s\"; expected \"%s\"", k, mlff_status_name(status), status ? mlff_last_error() : "",
                     cases[k].words);
    }
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

// ---- ghosts -------------------------------------------------------------------------------------------------------

// A periodic system opened up: its own atoms, and each image within `reach` as a ghost. `owner` maps to the original.
typedef struct opened {
    int n;
    int32_t species[4096], owner[4096];
    double positions[3 * 4096];
    unsigned char owned[4096];
} opened;

static void open_up(const mlff_system *system, double reach, opened *o)
{
    o->n = 0;
    for (int image = 0; image < 343; image++) {
        int k = image == 0 ? 171 : image <= 171 ? image - 1 : image; // the original first
        int shift[3] = {k % 7 - 3, k / 7 % 7 - 3, k / 49 - 3};
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
            if (image > 0 && nearest > reach * reach) continue;
            assert_true(o->n < 4096);
            o->species[o->n] = system->species[i];
            o->owner[o->n] = i;
            o->owned[o->n] = image == 0;
            memcpy(o->positions + 3 * o->n, r, sizeof r);
            o->n++;
        }
    }
}

static bool near(const opened *o, int i, int j, double cutoff)
{
    double square = 0;
    for (int c = 0; c < 3; c++) square += pow(o->positions[3 * i + c] - o->positions[3 * j + c], 2);
    return square < cutoff * cutoff;
}

static void fold(const opened *o, double *forces, int n_owned)
{
    for (int i = n_owned; i < o->n; i++)
        for (int c = 0; c < 3; c++) forces[3 * o->owner[i] + c] += forces[3 * i + c];
}

// Borrows all; `pairs` NULL: the evaluator makes the list.
static mlff_batch batch_of(const opened *o, const int32_t first_atom[2], const mlff_pairs *pairs)
{
    return (mlff_batch){.n_systems = 1,
                        .first_atom = first_atom,
                        .species = o->species,
                        .positions = o->positions,
                        .owned = o->owned,
                        .pairs = pairs};
}

// A deep halo (layers × cutoff) of ghosts with rows and no hooks: what KIM and LAMMPS hand over.
static void test_deep_halo(void **state)
{
    (void)state;
    mlff_model *model;
    assert_ok(support_create(&model, "painn", "n_features=32; n_layers=2; cutoff=4"));
    mlff_system *system = support_random_system(12, 1, 1.4, 31);
    static opened o;
    open_up(system, 8.0, &o);
    int32_t first_atom[2] = {0, o.n};
    const mlff_batch batch = batch_of(&o, first_atom, NULL);
    for (int precision = MLFF_FLOAT32; precision <= MLFF_FLOAT64; precision++) {
        mlff_evaluator *evaluator = evaluator_on(model, (mlff_precision)precision, NULL, 2);
        support_results expected = support_compute_system(evaluator, system), got = support_compute(evaluator, &batch);
        fold(&o, got.r.forces, 12);
        got.n_atoms = 12;
        compare("deep halo", &got, &expected);
        for (int i = 12; i < o.n; i++) assert_true(got.r.atom_energies[i] == 0);
        support_results_free(&expected);
        support_results_free(&got);
        mlff_evaluator_destroy(evaluator);
    }
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

// Rows of atoms that owned ones depend on, atoms sorted by their number of edges from an owned one (what the KIM driver hands over:
// layers then end early), or the same in another order.
static void test_truncated_rows(void **state)
{
    (void)state;
    enum { LAYERS = 3 };
    static const double cutoff = 2.6;
    mlff_model *model;
    assert_ok(support_create(&model, "painn", "n_features=32; n_layers=3; cutoff=2.6"));
    mlff_system *system = support_random_system(14, 1, 1.4, 32);
    static opened all, o;
    static int level[4096];
    static int32_t first[4097], neighbor[200000];
    open_up(system, LAYERS * cutoff, &all);
    for (int i = 0; i < all.n; i++) level[i] = all.owned[i] ? 0 : LAYERS + 1;
    for (int k = 0; k < LAYERS; k++)
        for (int i = 0; i < all.n; i++)
            for (int j = 0; level[i] == k && j < all.n; j++)
                if (level[j] > k + 1 && near(&all, i, j, cutoff)) level[j] = k + 1;
    for (int sorted = 0; sorted < 2; sorted++) {
        int level_of[4096], n_pairs = 0;
        o.n = 0;
        for (int k = 0; k <= LAYERS; k++)
            for (int i = 0; i < all.n; i++) {
                if (sorted ? level[i] != k : k > 0 || level[i] > LAYERS) continue;
                o.species[o.n] = all.species[i];
                o.owner[o.n] = all.owner[i];
                o.owned[o.n] = all.owned[i];
                memcpy(o.positions + 3 * o.n, all.positions + 3 * i, 3 * sizeof(double));
                level_of[o.n++] = level[i];
            }
        for (int i = 0; i < o.n; i++) {
            first[i] = n_pairs;
            for (int j = 0; j < o.n && level_of[i] < LAYERS; j++)
                if (i != j && near(&o, i, j, cutoff)) neighbor[n_pairs++] = j;
        }
        first[o.n] = n_pairs;
        assert_true(level_of[o.n - 1] == LAYERS || !sorted);
        const mlff_pairs pairs = {first, neighbor, NULL, 0};
        int32_t first_atom[2] = {0, o.n};
        const mlff_batch batch = batch_of(&o, first_atom, &pairs);
        for (int n_threads = 1; n_threads <= 3; n_threads++) {
            mlff_evaluator *evaluator = evaluator_on(model, MLFF_FLOAT32, NULL, n_threads);
            support_results expected = support_compute_system(evaluator, system), got = support_compute(evaluator, &batch);
            for (int i = 14; i < o.n; i++) assert_true(got.r.atom_energies[i] == 0);
            fold(&o, got.r.forces, 14);
            got.n_atoms = 14;
            compare(sorted ? "truncated rows, sorted" : "truncated rows", &got, &expected);
            support_results_free(&expected);
            support_results_free(&got);
            mlff_evaluator_destroy(evaluator);
        }
    }
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

typedef struct exchange {
    const opened *o;
    int n_calls;
} exchange;

static mlff_status fill_ghosts(void *context, int layer, const mlff_halo_array *arrays, int n_arrays, mlff_location location,
                               void *stream)
{
    exchange *x = context;
    (void)layer, (void)stream;
    assert_int_equal(location, MLFF_HOST);
    for (int a = 0; a < n_arrays; a++) {
        size_t row = (size_t)arrays[a].width * (size_t)arrays[a].element_bytes;
        for (int i = 0; i < x->o->n; i++)
            if (!x->o->owned[i]) memcpy((char *)arrays[a].data + row * i, (char *)arrays[a].data + row * x->o->owner[i], row);
    }
    x->n_calls++;
    return MLFF_OK;
}

static mlff_status return_ghosts(void *context, int layer, const mlff_halo_array *arrays, int n_arrays, mlff_location location,
                                 void *stream)
{
    exchange *x = context;
    (void)layer, (void)location, (void)stream;
    for (int a = 0; a < n_arrays; a++)
        for (int i = 0; i < x->o->n; i++) {
            if (x->o->owned[i]) continue;
            for (int k = 0; k < arrays[a].width; k++) {
                size_t to = (size_t)x->o->owner[i] * arrays[a].width + k, from = (size_t)i * arrays[a].width + k;
                if (arrays[a].element_bytes == 4) {
                    ((float *)arrays[a].data)[to] += ((float *)arrays[a].data)[from];
                    ((float *)arrays[a].data)[from] = 0;
                } else {
                    ((double *)arrays[a].data)[to] += ((double *)arrays[a].data)[from];
                    ((double *)arrays[a].data)[from] = 0;
                }
            }
        }
    x->n_calls++;
    return MLFF_OK;
}

// One cutoff of ghosts, rows of owned atoms only, features exchanged layer by layer: the exact small halo.
static void test_exchanged_halo(void **state)
{
    (void)state;
    mlff_model *model = support_model(32, 3, "gaussian", "cosine", 0, 3);
    mlff_system *system = support_random_system(14, 1, 1.4, 32);
    static opened o;
    open_up(system, 5.0, &o);
    static int32_t first[4097], neighbor[200000];
    int n_pairs = 0;
    for (int i = 0; i < o.n; i++) {
        first[i] = n_pairs;
        for (int j = 0; j < o.n && o.owned[i]; j++) {
            double square = 0;
            for (int c = 0; c < 3; c++) square += pow(o.positions[3 * i + c] - o.positions[3 * j + c], 2);
            if (i != j && square < 25) neighbor[n_pairs++] = j;
        }
    }
    first[o.n] = n_pairs;
    mlff_pairs pairs = {first, neighbor, NULL, 0};
    int32_t first_atom[2] = {0, o.n};
    const mlff_batch batch = batch_of(&o, first_atom, &pairs);
    for (int precision = MLFF_FLOAT32; precision <= MLFF_FLOAT64; precision++) {
        exchange context = {&o, 0};
        mlff_halo halo = {.forward = fill_ghosts, .reverse = return_ghosts, .context = &context};
        mlff_evaluator_options settings = mlff_evaluator_options_default();
        settings.precision = (mlff_precision)precision;
        settings.halo = &halo;
        settings.n_threads = 2;
        mlff_evaluator *with_halo, *plain = evaluator_on(model, (mlff_precision)precision, NULL, 2);
        assert_ok(mlff_evaluator_create(model, &settings, &with_halo));
        support_results expected = support_compute_system(plain, system), got = support_compute(with_halo, &batch);
        assert_int_equal(context.n_calls, 4); // two between three layers, each way
        fold(&o, got.r.forces, 14);
        got.n_atoms = 14;
        compare("exchanged halo", &got, &expected);
        support_results_free(&expected);
        support_results_free(&got);
        mlff_evaluator_destroy(with_halo);
        mlff_evaluator_destroy(plain);
    }
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

// Weights beyond float32 and radial functions too narrow for its tables are said, not answered with nonsense.
static void test_beyond_float32(void **state)
{
    (void)state;
    mlff_model *model = model_of(0);
    mlff_system *system = support_random_system(8, 0, 1.2, 3);
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    double energy = 17;
    painn_parameters *parameters = model->parameters;
    float *weight = (float *)(uintptr_t)parameters->layer[1].W2, *width = (float *)(uintptr_t)parameters->width;
    for (int k = 0; k < 128 * 384; k++) weight[k] *= 1e30f;
    mlff_evaluator *evaluator = evaluator_on(model, MLFF_FLOAT32, NULL, 1);
    assert_int_equal(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy}), MLFF_ERR_VALUE);
    assert_non_null(strstr(mlff_last_error(), "not finite"));
    assert_true(energy == 17); // untouched
    mlff_evaluator_destroy(evaluator);

    for (int k = 0; k < parameters->n_radial; k++) width[k] = 0.002f;
    mlff_evaluator_options options = mlff_evaluator_options_default();
    assert_int_equal(mlff_evaluator_create(model, &options, &evaluator), MLFF_ERR_UNSUPPORTED);
    assert_non_null(strstr(mlff_last_error(), "float64"));
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

static void test_options_out_of_range(void **state)
{
    (void)state;
    mlff_model *model = model_of(0);
    mlff_evaluator *evaluator = NULL;
    const mlff_evaluator_options good = mlff_evaluator_options_default();
    const mlff_device unknown = {.kind = (mlff_device_kind)5};
    mlff_evaluator_options bad[5] = {good, good, good, good, good};
    bad[0].device = unknown;
    bad[1].devices = &unknown;
    bad[1].n_devices = 1;
    bad[2].precision = (mlff_precision)77;
    bad[3].n_threads = -1;
    bad[4].skin_angstrom = NAN;
    for (int k = 0; k < 5; k++) {
        assert_int_equal(mlff_evaluator_create(model, &bad[k], &evaluator), MLFF_ERR_USAGE);
        assert_null(evaluator);
    }
    mlff_model_destroy(model);
}

// After the first calls nothing is allocated, whatever the neighbors do within the skin's list.
static void test_no_allocation(void **state)
{
    (void)state;
    mlff_model *model = model_of(0);
    mlff_system *system = support_random_system(40, 1, 1.2, 8);
    mlff_evaluator *evaluator = evaluator_on(model, MLFF_FLOAT32, NULL, 2);
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    double energy, forces[120], stress[6], start[120];
    memcpy(start, system->positions, sizeof start);
    mlff_results results = {.energies = &energy, .forces = forces, .stresses = stress};
    assert_ok(mlff_evaluator_compute(evaluator, &batch, &results));
    int64_t before = 0;
    for (int step = 0; step < 300; step++) {
        if (step == 100) before = base_allocation_count();
        for (int k = 0; k < 120; k++) system->positions[k] = start[k] + 0.1 * base_random_normal(9, (uint64_t)step, (uint64_t)k);
        assert_ok(mlff_evaluator_compute(evaluator, &batch, &results));
    }
    mlff_evaluator_info info;
    mlff_evaluator_info_get(evaluator, &info);
    assert_true(info.n_rebuilds >= 2);
    assert_int_equal(base_allocation_count() - before, 0);
    mlff_evaluator_destroy(evaluator);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

// The stages' clocks: a name for every slot, times that add up to no more than the call, zeros when off.
static void test_stage_clock(void **state)
{
    (void)state;
    mlff_model *model = model_of(0);
    mlff_system *system = support_random_system(60, 1, 1.2, 8);
    mlff_evaluator *evaluator = evaluator_on(model, MLFF_FLOAT32, NULL, 2);
    int n;
    const mlff_stage *stages = mlff_evaluator_stages(evaluator, &n);
    double *time_ns = calloc((size_t)n, sizeof *time_ns), sum = 0;
    for (int k = 0; k < n; k++) assert_true(stages[k].name && *stages[k].name && stages[k].phase);
    support_results out = support_compute_system(evaluator, system);
    mlff_evaluator_stage_times(evaluator, time_ns);
    for (int k = 0; k < n; k++) assert_true(time_ns[k] == 0);
    assert_ok(mlff_evaluator_stage_clock_set(evaluator, 1));
    support_results_free(&out);
    int64_t start = base_clock_ns();
    out = support_compute_system(evaluator, system);
    double call_ns = (double)(base_clock_ns() - start);
    mlff_evaluator_stage_times(evaluator, time_ns);
    for (int k = 0; k < n; k++) {
        if (time_ns[k] <= 0) fail_msg("stage %s %s %d has no time", stages[k].phase, stages[k].name, stages[k].layer);
        sum += time_ns[k];
    }
    assert_true(sum <= call_ns); // and what lies between the stages is little, on a quiet machine
    support_results_free(&out);
    free(time_ns);
    mlff_evaluator_destroy(evaluator);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_systems),
        cmocka_unit_test(test_many_atoms),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_handed_pairs),
        cmocka_unit_test(test_handed_pairs_of_bad_systems),
        cmocka_unit_test(test_deep_halo),
        cmocka_unit_test(test_truncated_rows),
        cmocka_unit_test(test_exchanged_halo),
        cmocka_unit_test(test_beyond_float32),
        cmocka_unit_test(test_options_out_of_range),
        cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_stage_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
