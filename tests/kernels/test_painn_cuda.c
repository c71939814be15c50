// SPDX-License-Identifier: MIT
// PaiNN on a real GPU against the float64 reference: ragged batches, cells, batches on the device, given pairs,
// large systems, fast modes, full rows, errors, repeatability, flat memory, stages. Skipped with a message where there is no GPU.
// Tolerance: 2e-5 of the rms force, as the goals; a structure by itself and in a batch agree to 5e-6 (sums in another order).
#include "gpu_support.h"
#include "model/painn/painn.h"

static mlff_model *untrained(int F)
{
    mlff_model *model;
    assert_ok(support_create(&model, "painn", "n_features=%d", F));
    return model;
}

static mlff_evaluator *evaluator_on(const mlff_model *model, mlff_device_kind kind)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_evaluator *evaluator;
    options.device.kind = kind;
    options.precision = kind == MLFF_CPU ? MLFF_FLOAT64 : MLFF_FLOAT32;
    assert_ok(mlff_evaluator_create(model, &options, &evaluator));
    return evaluator;
}

static mlff_system *built(const char *name, int n_atoms, uint64_t seed)
{
    mlff_system *system;
    assert_ok(mlff_system_build(name, n_atoms, seed, &system));
    assert_ok(mlff_system_perturb(system, 300.0, seed));
    return system;
}

static void check_systems(const mlff_model *model, mlff_evaluator *gpu, mlff_system *const *systems, int n, const char *what)
{
    mlff_evaluator *reference = evaluator_on(model, MLFF_CPU);
    joined j = join(systems, n);
    support_results expected = support_compute(reference, &j.batch), got = support_compute(gpu, &j.batch);
    gpu_compare(what, &got, &expected, 2e-5, 1e-6, 1e-3);
    for (int k = 0; k < n; k++) {
        support_results one = support_compute_system(gpu, systems[k]);
        size_t at = 3 * (size_t)j.first_atom[k], count = 3 * (size_t)systems[k]->n_atoms;
        double force = fmax(rms(expected.r.forces + at, count), 1e-6);
        assert_true(support_difference(one.r.forces, got.r.forces + at, count) <= 4 * 5e-6 * force + 1e-9);
        support_results_free(&one);
    }
    support_results_free(&expected);
    support_results_free(&got);
    unjoin(&j);
    mlff_evaluator_destroy(reference);
}

static void test_ragged(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    for (int F = 64; F <= 128; F *= 2) {
        mlff_model *model = untrained(F);
        mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA);
        mlff_system *systems[] = {built("h2o", 0, 1),     built("benzene", 0, 2),  built("silicon", 64, 3),
                                  built("aspirin", 0, 4), built("water", 24, 5),   built("silicon", 8, 6),
                                  built("methane", 0, 7), built("silicon", 512, 8)};
        const int n = sizeof systems / sizeof *systems;
        check_systems(model, gpu, systems, n, "ragged batch");
        check_systems(model, gpu, systems, 3, "three of them");
        for (int k = 0; k < n; k++) {
            check_systems(model, gpu, systems + k, 1, "one of them");
            mlff_system_destroy(systems[k]);
        }
        mlff_evaluator_destroy(gpu);
        mlff_model_destroy(model);
    }
}

static void test_trained(void **state)
{
    (void)state;
    static const char *const files[] = {"data/painn/ethanol.best_model", "data/painn/aspirin.best_model"}, *const names[] = {
                                                                                                               "ethanol",
                                                                                                               "aspirin"};
    if (!have_gpu()) return;
    for (int k = 0; k < 2; k++) {
        const char *path = support_shared(files[k]);
        mlff_import_options options = mlff_import_options_default();
        mlff_model *model;
        options.energy_unit = "kcal/mol";
        if (!path) continue;
        assert_ok(mlff_model_import(path, &options, &model));
        mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA);
        mlff_system *system = built(names[k], 0, 11);
        check_systems(model, gpu, &system, 1, files[k]);
        mlff_system_destroy(system);
        mlff_evaluator_destroy(gpu);
        mlff_model_destroy(model);
    }
}

// The same bits each time; no memory allocated after the first calls of a size; sizes and neighbor counts may change.
static void test_repeats(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    mlff_model *model = untrained(128);
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA);
    mlff_device_memory before, after;
    mlff_evaluator_info info;
    mlff_system *system = built("silicon", 216, 1);
    support_results first = support_compute_system(gpu, system);
    for (int k = 0; k < 3; k++) {
        support_results again = support_compute_system(gpu, system);
        assert_memory_equal(again.r.forces, first.r.forces, sizeof(double) * 3 * 216);
        assert_memory_equal(again.r.energies, first.r.energies, sizeof(double));
        support_results_free(&again);
    }
    mlff_evaluator_info_get(gpu, &info);
    int64_t growths = info.n_growths;
    assert_ok(mlff_device_memory_get((mlff_device){MLFF_CUDA, 0}, &before));
    for (int k = 0; k < 200; k++) {
        assert_ok(mlff_system_perturb(system, 300.0, 100 + (uint64_t)k)); // a hotter and hotter random walk
        support_results next = support_compute_system(gpu, system);
        assert_true(isfinite(next.r.energies[0]));
        support_results_free(&next);
    }
    assert_ok(mlff_device_memory_get((mlff_device){MLFF_CUDA, 0}, &after));
    mlff_evaluator_info_get(gpu, &info);
    assert_true(info.n_growths <= growths + 1); // rows may have grown once
    assert_true(after.allocated - before.allocated < 64 << 20);
    support_results_free(&first);
    mlff_system_destroy(system);
    mlff_evaluator_destroy(gpu);
    mlff_model_destroy(model);
}

// Batch and results on the device, with the evaluator's list and with given pairs.
static void test_on_device(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    mlff_device device = {MLFF_CUDA, 0};
    mlff_model *model = untrained(128);
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA);
    mlff_system *systems[] = {built("silicon", 64, 1), built("benzene", 0, 2)};
    joined j = join(systems, 2);
    support_results expected = support_compute(gpu, &j.batch);
    size_t n = (size_t)expected.n_atoms;
    double *forces = calloc(3 * n, sizeof *forces), energies[2];
    mlff_batch on = j.batch;
    on.location = MLFF_DEVICE_MEMORY;
    on.species = there(j.species, sizeof(int32_t) * n);
    on.positions = there(j.positions, sizeof(double) * 3 * n);
    on.cells = there(j.cells, sizeof(double) * 18);
    assert_ok(mlff_stream_create(device, &on.stream));
    mlff_results results = {
        .energies = there(NULL, 16), .forces = there(NULL, sizeof(double) * 3 * n), .location = MLFF_DEVICE_MEMORY};
    mlff_neighbors *list;
    mlff_pairs pairs, on_pairs;
    assert_ok(mlff_neighbors_create(5.5, 0.0, &list));
    assert_ok(mlff_neighbors_update(list, &j.batch));
    mlff_neighbors_get(list, &pairs, NULL, NULL);
    on_pairs = pairs;
    on_pairs.symmetric = 1;
    on_pairs.first = there(pairs.first, sizeof(int32_t) * (n + 1));
    on_pairs.neighbor = there(pairs.neighbor, sizeof(int32_t) * (size_t)pairs.first[n]);
    on_pairs.shift = pairs.shift ? there(pairs.shift, sizeof(int32_t) * 3 * (size_t)pairs.first[n]) : NULL;
    for (int handed = 0; handed < 2; handed++) {
        on.pairs = handed ? &on_pairs : NULL;
        for (int k = 0; k < 5; k++) assert_ok(mlff_evaluator_compute(gpu, &on, &results));
        assert_ok(mlff_stream_synchronize(device, on.stream));
        assert_ok(mlff_device_copy(device, forces, results.forces, sizeof(double) * 3 * n));
        assert_ok(mlff_device_copy(device, energies, results.energies, sizeof energies));
        assert_true(support_difference(forces, expected.r.forces, 3 * n) <= 2e-5 * rms(expected.r.forces, 3 * n));
        assert_true(support_difference(energies, expected.r.energies, 2) <= 1e-5 * fabs(expected.r.energies[0]) + 1e-5);
    }
    pairs.symmetric = 1;
    j.batch.pairs = &pairs;
    support_results handed = support_compute(gpu, &j.batch);
    gpu_compare("handed-in pairs on the host", &handed, &expected, 5e-6, 1e-6, 1e-3);
    support_results_free(&handed);
    mlff_device_release(device, (void *)(uintptr_t)on.species);
    mlff_device_release(device, (void *)(uintptr_t)on.positions);
    mlff_device_release(device, (void *)(uintptr_t)on.cells);
    mlff_device_release(device, (void *)(uintptr_t)on_pairs.first);
    mlff_device_release(device, (void *)(uintptr_t)on_pairs.neighbor);
    mlff_device_release(device, (void *)(uintptr_t)on_pairs.shift);
    mlff_device_release(device, results.energies);
    mlff_device_release(device, results.forces);
    mlff_stream_destroy(device, on.stream);
    free(forces);
    mlff_neighbors_destroy(list);
    support_results_free(&expected);
    unjoin(&j);
    mlff_system_destroy(systems[0]);
    mlff_system_destroy(systems[1]);
    mlff_evaluator_destroy(gpu);
    mlff_model_destroy(model);
}

// The fast modes are as exact as 11 and 8 bits allow, and repeatable.
static void test_fast_modes(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    static const mlff_precision modes[] = {MLFF_TF32, MLFF_BF16};
    static const double most[] = {4e-3, 2e-2};
    mlff_model *model = untrained(128);
    mlff_evaluator *reference = evaluator_on(model, MLFF_CPU);
    mlff_system *systems[] = {built("silicon", 64, 3), built("aspirin", 0, 4), built("silicon", 1000, 5)};
    for (int k = 0; k < 6; k++) {
        mlff_evaluator_options options = mlff_evaluator_options_default();
        mlff_evaluator *gpu;
        options.device.kind = MLFF_CUDA;
        options.precision = modes[k % 2];
        assert_ok(mlff_evaluator_create(model, &options, &gpu));
        mlff_system *system = systems[k / 2];
        support_results expected = support_compute_system(reference, system), got = support_compute_system(gpu, system),
                        again = support_compute_system(gpu, system);
        size_t n = 3 * (size_t)system->n_atoms;
        assert_memory_equal(again.r.forces, got.r.forces, sizeof(double) * n);
        for (size_t i = 0; i < n; i++) got.r.forces[i] -= expected.r.forces[i];
        double error = rms(got.r.forces, n) / rms(expected.r.forces, n);
        if (!(error < most[k % 2] && error > most[k % 2] / 200)) fail_msg("mode %d, system %d: error %.2e", k % 2, k / 2, error);
        support_results_free(&expected);
        support_results_free(&got);
        support_results_free(&again);
        mlff_evaluator_destroy(gpu);
    }
    for (int k = 0; k < 3; k++) mlff_system_destroy(systems[k]);
    mlff_evaluator_destroy(reference);
    mlff_model_destroy(model);
}

// A large system uses the cell list and keeps its Verlet list for some steps: the same bits as the search of all pairs, in all kinds of
// cells.
static void test_large(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    mlff_model *model = untrained(64);
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA), *all_pairs;
    setenv("MLFF_CUDA_PLAN", "cell_list=0", 1);
    all_pairs = evaluator_on(model, MLFF_CUDA);
    unsetenv("MLFF_CUDA_PLAN");
    mlff_system *systems[] = {built("silicon", 2744, 1), built("benzene", 0, 2), built("silicon", 4096, 3),
                              built("silicon", 1728, 4)};
    memset(systems[2]->periodic, 0, 3);
    systems[3]->periodic[1] = 0;
    for (int k = 0; k < 3; k++) systems[0]->cell[3 + k] += 0.3 * systems[0]->cell[k]; // triclinic, and other neighbors
    mlff_evaluator_info info;
    for (int step = 0; step < 12; step++) {
        joined j = join(systems, 4);
        support_results expected = support_compute(all_pairs, &j.batch), got = support_compute(gpu, &j.batch);
        assert_memory_equal(got.r.forces, expected.r.forces, sizeof(double) * 3 * (size_t)expected.n_atoms);
        assert_memory_equal(got.r.virials, expected.r.virials, sizeof(double) * 36);
        // Without virials energies are summed during the backward pass.
        double energies[4] = {NAN, NAN, NAN, NAN};
        mlff_results some = {.energies = energies, .forces = expected.r.forces};
        memset(some.forces, 0, sizeof(double) * 3 * (size_t)expected.n_atoms);
        assert_ok(mlff_evaluator_compute(gpu, &j.batch, &some));
        assert_memory_equal(energies, got.r.energies, sizeof energies);
        assert_memory_equal(some.forces, got.r.forces, sizeof(double) * 3 * (size_t)expected.n_atoms);
        support_results_free(&expected);
        support_results_free(&got);
        unjoin(&j);
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < 3 * systems[k]->n_atoms; i++) systems[k]->positions[i] += 0.01 * sin(i + 37 * k + step / 4);
    }
    mlff_evaluator_info_get(gpu, &info);
    assert_true(info.n_rebuilds >= 1 && info.n_rebuilds <= 6); // of 12
    mlff_evaluator_destroy(all_pairs);
    check_systems(model, gpu, systems + 3, 1, "slab of 1728");
    for (int k = 0; k < 4; k++) mlff_system_destroy(systems[k]);
    mlff_evaluator_destroy(gpu);
    mlff_model_destroy(model);
}

// Pairs of which some lack their reverses, as the CPU takes them.
static void test_one_way(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    mlff_model *model = untrained(128);
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA), *reference = evaluator_on(model, MLFF_CPU);
    mlff_system *systems[] = {built("silicon", 64, 1), built("benzene", 0, 2)};
    joined j = join(systems, 2);
    mlff_neighbors *list;
    mlff_pairs pairs;
    assert_ok(mlff_neighbors_create(5.2, 0.0, &list));
    assert_ok(mlff_neighbors_update(list, &j.batch));
    mlff_neighbors_get(list, &pairs, NULL, NULL);
    int n = j.first_atom[2], to = 0;
    int32_t *first = calloc((size_t)n + 1, sizeof *first), *neighbor = calloc((size_t)pairs.first[n], sizeof *neighbor),
            *shift = calloc((size_t)pairs.first[n], 3 * sizeof *shift);
    for (int i = 0; i < n; i++) {
        for (int p = pairs.first[i]; p < pairs.first[i + 1] && i % 5; p++)
            if (p % 7) {
                neighbor[to] = pairs.neighbor[p];
                if (pairs.shift) memcpy(shift + 3 * to, pairs.shift + 3 * (size_t)p, 3 * sizeof *shift);
                to++;
            }
        first[i + 1] = to;
    }
    pairs = (mlff_pairs){.first = first, .neighbor = neighbor, .shift = shift};
    j.batch.pairs = &pairs;
    for (int k = 0; k < 2; k++) {
        support_results expected = support_compute(reference, &j.batch), got = support_compute(gpu, &j.batch);
        gpu_compare("pairs without their reverses", &got, &expected, 2e-5, 1e-6, 1e-3);
        support_results_free(&expected);
        support_results_free(&got);
    }
    mlff_neighbors_destroy(list);
    free(first);
    free(neighbor);
    free(shift);
    unjoin(&j);
    mlff_system_destroy(systems[0]);
    mlff_system_destroy(systems[1]);
    mlff_evaluator_destroy(reference);
    mlff_evaluator_destroy(gpu);
    mlff_model_destroy(model);
}

// Ghosts' features exchanged layer by layer: a periodic system opened up, its images within one cutoff as ghosts, rows of
// owned atoms only. Hooks work on copies of the arrays.
typedef struct opened {
    int n;
    int32_t species[2048], owner[2048];
    double positions[3 * 2048];
    unsigned char owned[2048];
} opened;

static mlff_status fill_ghosts(void *context, int layer, const mlff_halo_array *arrays, int n_arrays, mlff_location location,
                               void *stream)
{
    const opened *o = context;
    const mlff_device device = {MLFF_CUDA, 0};
    assert_in_range(layer, 0, 2);
    assert_int_equal(location, MLFF_DEVICE_MEMORY);
    assert_ok(mlff_stream_synchronize(device, stream));
    for (int a = 0; a < n_arrays; a++) {
        size_t width = (size_t)arrays[a].width, bytes = width * sizeof(float) * (size_t)o->n;
        float *rows = malloc(bytes);
        assert_int_equal(arrays[a].element_bytes, sizeof(float));
        assert_ok(mlff_device_copy(device, rows, arrays[a].data, bytes));
        for (int i = 0; i < o->n; i++)
            if (!o->owned[i]) memcpy(rows + width * (size_t)i, rows + width * (size_t)o->owner[i], width * sizeof(float));
        assert_ok(mlff_device_copy(device, arrays[a].data, rows, bytes));
        free(rows);
    }
    return MLFF_OK;
}

static void test_halo(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    mlff_model *model = untrained(128);
    mlff_system *system = built("silicon", 64, 9);
    static opened o;
    mlff_neighbors *list;
    mlff_pairs pairs;
    int32_t first_atom[2];
    mlff_batch whole;
    mlff_batch_from_system(system, first_atom, &whole);
    assert_ok(mlff_neighbors_create(5.0, 0.0, &list));
    assert_ok(mlff_neighbors_update(list, &whole));
    mlff_neighbors_get(list, &pairs, NULL, NULL);
    // Each image that a pair leads to is a ghost, once; the rows of the 64 stay as they are.
    static int32_t first[2049], neighbor[8192], shifts[3 * 2048];
    o.n = 64;
    for (int i = 0; i < 64; i++) {
        o.species[i] = system->species[i];
        o.owner[i] = i;
        o.owned[i] = 1;
        memcpy(o.positions + 3 * i, system->positions + 3 * i, 3 * sizeof(double));
    }
    for (int i = 0; i < 64; i++) {
        for (int p = pairs.first[i]; p < pairs.first[i + 1]; p++) {
            const int32_t *shift = pairs.shift + 3 * (size_t)p;
            int at = shift[0] || shift[1] || shift[2] ? 64 : pairs.neighbor[p];
            while (at >= 64 && at < o.n && (o.owner[at] != pairs.neighbor[p] || memcmp(shifts + 3 * at, shift, 12) != 0)) at++;
            if (at == o.n) {
                assert_true(o.n < 2048);
                o.species[at] = system->species[pairs.neighbor[p]];
                o.owner[at] = pairs.neighbor[p];
                memcpy(shifts + 3 * at, shift, 12);
                for (int c = 0; c < 3; c++) {
                    o.positions[3 * at + c] = system->positions[3 * pairs.neighbor[p] + c];
                    for (int a = 0; a < 3; a++) o.positions[3 * at + c] += shift[a] * system->cell[3 * a + c];
                }
                o.n++;
            }
            neighbor[p] = at;
        }
        first[i + 1] = pairs.first[i + 1];
    }
    for (int i = 64; i < o.n; i++) first[i + 1] = first[64];
    mlff_pairs handed = {.first = first, .neighbor = neighbor};
    int32_t one[2] = {0, o.n};
    mlff_batch batch = {
        .n_systems = 1, .first_atom = one, .species = o.species, .positions = o.positions, .owned = o.owned, .pairs = &handed};
    mlff_halo halo = {.forward = fill_ghosts, .context = &o};
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_evaluator *gpu, *reference = evaluator_on(model, MLFF_CPU);
    options.device.kind = MLFF_CUDA;
    options.halo = &halo;
    assert_ok(mlff_evaluator_create(model, &options, &gpu));
    support_results expected = support_compute_system(reference, system);
    for (int repeat = 0; repeat < 2; repeat++) {
        support_results got = support_compute(gpu, &batch);
        for (int i = 64; i < o.n; i++)
            for (int c = 0; c < 3; c++) got.r.forces[3 * o.owner[i] + c] += got.r.forces[3 * i + c];
        double force = rms(expected.r.forces, 192), off = support_difference(got.r.forces, expected.r.forces, 192);
        if (off > 4 * 2e-5 * force) fail_msg("exchanged halo: forces off by %.2e of %.2e", off, force);
        assert_true(fabs(got.r.energies[0] - expected.r.energies[0]) <= 1e-6 * fabs(expected.r.energies[0]) + 1e-5);
        support_results_free(&got);
    }
    support_results_free(&expected);
    mlff_evaluator_destroy(gpu);
    mlff_evaluator_destroy(reference);
    mlff_neighbors_destroy(list);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

// More neighbors than a row first holds; error messages; stages that add up.
static void test_limits(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    mlff_model *model = untrained(128);
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA);
    mlff_system *dense = built("silicon", 216, 1);
    for (int k = 0; k < 9; k++) dense->cell[k] *= 0.7;
    for (int k = 0; k < 3 * 216; k++) dense->positions[k] *= 0.7;
    check_systems(model, gpu, &dense, 1, "dense silicon");

    double energy, forces[3 * 216];
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_results results = {.energies = &energy, .forces = forces};
    mlff_batch_from_system(dense, first_atom, &batch);
    double kept = dense->positions[5];
    dense->positions[5] = NAN;
    assert_int_equal(mlff_evaluator_compute(gpu, &batch, &results), MLFF_ERR_VALUE);
    dense->positions[5] = kept;
    dense->species[7] = 118;
    assert_int_equal(mlff_evaluator_compute(gpu, &batch, &results), MLFF_ERR_ELEMENT);
    dense->species[7] = 14;
    memcpy(dense->positions, dense->positions + 3, 3 * sizeof(double));
    assert_int_equal(mlff_evaluator_compute(gpu, &batch, &results), MLFF_ERR_VALUE);
    dense->positions[0] += 1.0;
    assert_ok(mlff_evaluator_compute(gpu, &batch, &results)); // as good as new

    int n_stages;
    mlff_evaluator_stages(gpu, &n_stages);
    double *time_ns = calloc((size_t)n_stages, sizeof *time_ns), sum = 0;
    assert_ok(mlff_evaluator_stage_clock_set(gpu, 1));
    for (int k = 0; k < 5; k++) assert_ok(mlff_evaluator_compute(gpu, &batch, &results));
    mlff_evaluator_stage_times(gpu, time_ns);
    for (int k = 0; k < n_stages; k++) {
        assert_true(time_ns[k] >= 0 && time_ns[k] < 1e8);
        sum += time_ns[k];
    }
    assert_true(sum > 1e4);
    free(time_ns);
    mlff_system_destroy(dense);
    mlff_evaluator_destroy(gpu);
    mlff_model_destroy(model);
}

// Atoms with a hundred neighbors and atoms with a few, in the fused layers: a block with few edges reaches an exchange first, and must not
// overwrite what others still read.
static void test_uneven(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    mlff_model *model = untrained(128);
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA);
    mlff_system *slab = built("silicon", 64, 1);
    double top = 0;
    for (int k = 0; k < 9; k++) slab->cell[k] *= 0.65;
    for (int k = 0; k < 3 * 64; k++) slab->positions[k] *= 0.65;
    slab->periodic[2] = 0;
    for (int i = 0; i < 56; i++) top = fmax(top, slab->positions[3 * i + 2]);
    for (int i = 56; i < 64; i++) {
        slab->positions[3 * i] = (i - 56) % 4 * 0.25 * slab->cell[0];
        slab->positions[3 * i + 1] = (i - 56) / 4 * 0.5 * slab->cell[4];
        slab->positions[3 * i + 2] = top + 4.0;
    }
    check_systems(model, gpu, &slab, 1, "a slab and atoms above it");
    support_results first = support_compute_system(gpu, slab);
    for (int repeat = 0; repeat < 200; repeat++) {
        support_results again = support_compute_system(gpu, slab);
        assert_memory_equal(again.r.forces, first.r.forces, sizeof(double) * 3 * 64);
        support_results_free(&again);
    }
    support_results_free(&first);
    mlff_system_destroy(slab);
    mlff_evaluator_destroy(gpu);
    mlff_model_destroy(model);
}

static mlff_status reference_forces(void *context, const mlff_system *system, double *energy, double *forces)
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    return mlff_evaluator_compute(context, &batch, &(mlff_results){.energies = energy, .forces = forces});
}

// Dynamics that stay on the GPU follow those of the CPU, noise included: 60 steps to 1e-5 Å (float32 forces), also when
// rows overflow on the way.
static void test_dynamics(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    char path[64];
    double gone[192];
    snprintf(path, sizeof path, "/tmp/mlff_test_painn_cuda_%ld.restart", (long)getpid());
    mlff_model *model = untrained(128);
    mlff_evaluator *reference = evaluator_on(model, MLFF_CPU);
    for (int langevin = 0; langevin < 2; langevin++) {
        mlff_system *system = built("silicon", 64, 5), *start;
        assert_ok(mlff_system_add_masses(system));
        assert_ok(mlff_system_add_velocities(system));
        assert_ok(mlff_system_add_fixed(system));
        assert_ok(mlff_system_thermalize(system, 300.0, 1));
        system->fixed[3] = 1;
        memset(system->velocities + 9, 0, 3 * sizeof(double));
        assert_ok(mlff_system_copy(system, &start));
        mlff_dynamics_options options = mlff_dynamics_options_default();
        options.ensemble = langevin ? MLFF_LANGEVIN : MLFF_NVE;
        options.seed = 77;
        mlff_dynamics *expected;
        assert_ok(mlff_dynamics_create(&options, system, reference_forces, reference, &expected));
        for (int k = 0; k < 60; k++) assert_ok(mlff_dynamics_step(expected));
        mlff_dynamics_state then;
        assert_ok(mlff_dynamics_state_get(expected, &then));

        if (langevin) setenv("MLFF_CUDA_PLAN", "cell_list=1", 1); // with candidates kept from step to step
        mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA);
        unsetenv("MLFF_CUDA_PLAN");
        mlff_dynamics *dynamics;
        double times[60];
        assert_ok(mlff_dynamics_create_on(gpu, &options, start, NULL, NULL, &dynamics));
        assert_int_equal(mlff_dynamics_device(dynamics).kind, MLFF_CUDA);
        assert_ok(mlff_dynamics_run(dynamics, 37, times));
        assert_ok(mlff_dynamics_save(dynamics, path));
        assert_ok(mlff_dynamics_run(dynamics, 23, times + 37));
        mlff_dynamics_state now;
        assert_ok(mlff_dynamics_state_get(dynamics, &now));
        assert_int_equal(now.step, 60);
        assert_true(support_difference(start->positions, system->positions, 192) <= 1e-5);
        assert_true(fabs(now.kinetic_energy - then.kinetic_energy) <= 1e-4 * then.kinetic_energy);
        assert_true(fabs(now.potential_energy - then.potential_energy) <= 1e-5 * fabs(then.potential_energy) + 1e-5);
        assert_true(fabs(now.conserved_energy - then.conserved_energy) <= 1e-4);
        for (int k = 0; k < 60; k++) assert_true(times[k] > 0 && times[k] < 1e11);

        // Continued from the restart file on the same GPU to the bit, on the CPU as if the whole run had been there.
        memcpy(gone, start->positions, sizeof gone);
        assert_ok(mlff_dynamics_restore(dynamics, path));
        assert_ok(mlff_dynamics_run(dynamics, 23, NULL));
        assert_memory_equal(start->positions, gone, sizeof gone);
        assert_ok(mlff_dynamics_restore(expected, path));
        assert_ok(mlff_dynamics_run(expected, 23, NULL));
        assert_true(support_difference(system->positions, gone, 192) <= 1e-5);
        unlink(path);
        mlff_dynamics_destroy(dynamics);
        mlff_evaluator_destroy(gpu);
        mlff_dynamics_destroy(expected);
        mlff_system_destroy(system);
        mlff_system_destroy(start);
    }
    mlff_evaluator_destroy(reference);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ragged),    cmocka_unit_test(test_trained),    cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_on_device), cmocka_unit_test(test_fast_modes), cmocka_unit_test(test_large),
        cmocka_unit_test(test_one_way),   cmocka_unit_test(test_halo),       cmocka_unit_test(test_limits),
        cmocka_unit_test(test_uneven),    cmocka_unit_test(test_dynamics)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
