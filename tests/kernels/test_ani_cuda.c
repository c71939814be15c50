// SPDX-License-Identifier: MIT
// ANI on a GPU, real or emulated, against the float64 reference: elements, cells, contacts, ragged batches, members, batches on the device,
// given pairs with and without their reverses, repeatability, flat memory, stages. Skipped with a message where there is no GPU.
// Tolerance: 2e-5 of the rms force, as the goals; a structure by itself and in a batch agree to 5e-6 (sums in another order).
#include "ani_support.h"
#include "gpu_support.h"

static mlff_evaluator *evaluator_on(const mlff_model *model, mlff_device_kind kind, const char *members)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_evaluator *evaluator;
    options.device.kind = kind;
    options.members = members;
    options.precision = kind == MLFF_CPU ? MLFF_FLOAT64 : MLFF_FLOAT32;
    assert_ok(mlff_evaluator_create(model, &options, &evaluator));
    return evaluator;
}

static void check_batch(const mlff_model *model, mlff_evaluator *gpu, const char *members, const mlff_batch *batch,
                        const char *what)
{
    mlff_evaluator *reference = evaluator_on(model, MLFF_CPU, members);
    support_results expected = support_compute(reference, batch), got = support_compute(gpu, batch);
    gpu_compare(what, &got, &expected, 2e-5, 1e-2, 5e-2);
    support_results again = support_compute(gpu, batch);
    assert_memory_equal(again.r.forces, got.r.forces, sizeof(double) * 3 * (size_t)got.n_atoms);
    assert_memory_equal(again.r.energies, got.r.energies, sizeof(double) * (size_t)got.n_systems);
    support_results_free(&again);
    support_results_free(&expected);
    support_results_free(&got);
    mlff_evaluator_destroy(reference);
}

static void check_system(const mlff_model *model, mlff_evaluator *gpu, const mlff_system *system, const char *what)
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    check_batch(model, gpu, NULL, &batch, what);
}

// ANI-2x's and ANI-1x's grids, an odd one, one whose angular reach is the longer.
static const ani_form forms[] = {
    {"H,C,N,O,S,F,Cl", 3, 16, 8, 4, 5.1, 3.5, 14.1, {48, 32, 16, 0}},
    {"H,C,N,O", 1, 16, 4, 8, 5.2, 3.5, 32.0, {64, 40, 0}},
    {"H,C", 2, 5, 3, 6, 4.0, 3.0, 8.0, {20, 7, 9, 0}},
    {"H,C", 2, 16, 5, 3, 3.0, 4.5, 2.0, {33, 0}},
};
enum { N_FORMS = sizeof forms / sizeof *forms };
static const int n_elements[N_FORMS] = {7, 4, 2, 2};

static void test_forms(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 13, 40};
    if (!have_gpu()) return;
    for (int f = 0; f < N_FORMS; f++) {
        mlff_model *model = ani_shaped(&forms[f], 17 + (uint64_t)f);
        mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA, NULL);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int periodic = 0; periodic < 2; periodic++) {
                char what[128];
                snprintf(what, sizeof what, "form %d, %d atoms, periodic %d", f, sizes[s], periodic);
                mlff_system *system = ani_random_system(sizes[s], n_elements[f], periodic, 1.0, 100 * (uint64_t)f + s);
                check_system(model, gpu, system, what);
                mlff_system_destroy(system);
            }
        mlff_evaluator_destroy(gpu);
        mlff_model_destroy(model);
    }
}

// Pairs at both cutoffs and in contact; a straight line; a cell smaller than the cutoff; more neighbors than rows first hold.
static void test_extremes(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    mlff_model *model = ani_shaped(&ani_small_2x, 3);
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA, NULL);
    static const double distances[] = {0.3, 1.0, 3.4999999, 3.5000001, 5.0999999, 5.1000001, 40.0};
    for (size_t k = 0; k < sizeof distances / sizeof *distances; k++) {
        mlff_system *line = ani_line(distances[k]);
        char what[64];
        snprintf(what, sizeof what, "line at %.8g Å", distances[k]);
        check_system(model, gpu, line, what);
        mlff_system_destroy(line);
    }
    mlff_system *tiny;
    assert_ok(mlff_system_create(1, &tiny));
    tiny->species[0] = 16;
    for (int c = 0; c < 3; c++) {
        tiny->cell[4 * c] = 2.1;
        tiny->periodic[c] = 1;
    }
    check_system(model, gpu, tiny, "one atom and its images");
    mlff_system_destroy(tiny);
    mlff_system *crowd = ani_random_system(80, 7, 0, 1.1, 8);
    for (int k = 0; k < 240; k++) crowd->positions[k] *= 0.6; // some 40 neighbors within 3.5 Å: 800 triples an atom
    check_system(model, gpu, crowd, "crowd");
    mlff_system_destroy(crowd);
    mlff_evaluator_destroy(gpu);
    mlff_model_destroy(model);
}

// Systems of up to `most` atoms in one batch, every fifth atom a ghost where `owned` is taken.
typedef struct random_batch {
    joined of;
    unsigned char *owned;
} random_batch;

static random_batch random_batch_make(int n, int most, uint64_t seed)
{
    mlff_system *systems[16];
    random_batch b;
    assert_true(n <= 16);
    for (int s = 0; s < n; s++)
        systems[s] = ani_random_system(1 + (int)(most * base_random_uniform(seed, 50, (uint64_t)s)), 1 + s % 7, s % 2, 1.0,
                                       seed + (uint64_t)s);
    b.of = join(systems, n);
    b.owned = calloc((size_t)b.of.first_atom[n], 1);
    for (int i = 0; i < b.of.first_atom[n]; i++) b.owned[i] = i % 5 != 0;
    for (int s = 0; s < n; s++) mlff_system_destroy(systems[s]);
    return b;
}

static void random_batch_free(random_batch *b)
{
    unjoin(&b->of);
    free(b->owned);
}

static void test_batches(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    mlff_model *model = ani_shaped(&ani_small_2x, 5);
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA, NULL);
    random_batch b = random_batch_make(14, 24, 77);
    joined j = b.of;
    check_batch(model, gpu, NULL, &j.batch, "ragged batch");
    j.batch.owned = b.owned;
    check_batch(model, gpu, NULL, &j.batch, "with ghosts");
    mlff_neighbors *list;
    mlff_pairs pairs;
    assert_ok(mlff_neighbors_create(6.0, 0.0, &list)); // longer than the cutoff: what lies beyond is ignored
    assert_ok(mlff_neighbors_update(list, &j.batch));
    mlff_neighbors_get(list, &pairs, NULL, NULL);
    j.batch.pairs = &pairs;
    pairs.symmetric = 1;
    check_batch(model, gpu, NULL, &j.batch, "handed-in pairs, ghosts");
    pairs.symmetric = 0;
    check_batch(model, gpu, NULL, &j.batch, "handed-in pairs of which nothing is known");
    mlff_neighbors_destroy(list);
    random_batch_free(&b);
    mlff_evaluator_destroy(gpu);
    mlff_model_destroy(model);
}

// Members chosen, each by itself, and how far they deviate.
static void test_members(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    mlff_model *model = ani_shaped(&ani_small_2x, 6);
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA, "2,0"), *reference = evaluator_on(model, MLFF_CPU, "2,0");
    random_batch b = random_batch_make(3, 20, 9);
    joined j = b.of;
    check_batch(model, gpu, "2,0", &j.batch, "two of three members");
    mlff_evaluator_info info;
    mlff_evaluator_info_get(gpu, &info);
    assert_int_equal(info.n_members, 2);
    size_t n = (size_t)j.first_atom[3];
    double *values[2];
    for (int k = 0; k < 2; k++) {
        double *v = values[k] = calloc(6 + 6 * n + 3 + 3 * n, sizeof *v);
        const mlff_results results = {
            .member_energies = v, .member_forces = v + 6, .energy_deviations = v + 6 + 6 * n, .force_deviations = v + 9 + 6 * n};
        assert_ok(mlff_evaluator_compute(k ? gpu : reference, &j.batch, &results));
    }
    double force = rms(values[0] + 6, 6 * n), energy = rms(values[0], 6);
    // Energies of hundreds of eV here: operands have 22 bits, and tensor cores cut their sums off (4e-7 of the size on an H200).
    assert_true(support_difference(values[0], values[1], 6) < 2e-6 * energy);
    assert_true(support_difference(values[0] + 6, values[1] + 6, 6 * n) < 8e-5 * force);
    assert_true(support_difference(values[0] + 6 + 6 * n, values[1] + 6 + 6 * n, 3) < 2e-6 * energy);
    assert_true(support_difference(values[0] + 9 + 6 * n, values[1] + 9 + 6 * n, 3 * n) < 8e-5 * force);
    free(values[0]);
    free(values[1]);
    random_batch_free(&b);
    mlff_evaluator_destroy(gpu);
    mlff_evaluator_destroy(reference);
    mlff_model_destroy(model);
}

// The real networks, from a molecule to a box in which tiles and parts are as in large systems.
static void test_2x(void **state)
{
    (void)state;
    static const struct {
        const char *builder;
        int n_atoms;
    } cases[] = {{"benzene", 0}, {"aspirin", 0}, {"water", 63}, {"water", 300}};
    if (!have_gpu()) return;
    mlff_model *model = ani_2x();
    if (!model) assert_ok(mlff_model_create("ani", NULL, &model));
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA, NULL);
    mlff_device_info info = {.struct_size = sizeof info};
    assert_ok(mlff_device_info_get((mlff_device){MLFF_CUDA, 0}, &info));
    const size_t n_cases =
        strstr(info.name, "emulated") ? 1 : sizeof cases / sizeof *cases; // thread by thread, larger ones take long
    for (size_t k = 0; k < n_cases; k++) {
        mlff_system *system;
        assert_ok(mlff_system_build(cases[k].builder, cases[k].n_atoms, 1, &system));
        assert_ok(mlff_system_perturb(system, 300.0, k));
        check_system(model, gpu, system, cases[k].builder);
        mlff_system_destroy(system);
    }
    mlff_evaluator_destroy(gpu);
    mlff_model_destroy(model);
}

// The tiles of 128 slots that large systems have, with widths of all kinds, on a GPU that can.
static void test_wide_tiles(void **state)
{
    (void)state;
    static const ani_form widths[] = {{"H,C,N,O", 2, 16, 8, 4, 5.1, 3.5, 14.1, {250, 150, 40, 0}},
                                      {"H,C,N", 3, 16, 4, 8, 5.2, 3.5, 32.0, {220, 180, 90, 0}},
                                      {"H,C", 2, 16, 8, 4, 5.1, 3.5, 14.1, {128, 0}}};
    if (!have_gpu()) return;
    setenv("MLFF_CUDA_PLAN", "tile=128", 1);
    for (int f = 0; f < 3; f++) {
        mlff_model *model = ani_shaped(&widths[f], 40 + (uint64_t)f);
        mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA, NULL);
        mlff_system *system = ani_random_system(30, 4 - f, 1, 1.0, (uint64_t)f);
        char what[64];
        snprintf(what, sizeof what, "tiles of 128 slots, form %d", f);
        check_system(model, gpu, system, what);
        mlff_system_destroy(system);
        mlff_evaluator_destroy(gpu);
        mlff_model_destroy(model);
    }
    unsetenv("MLFF_CUDA_PLAN");
}

static mlff_status exchange_nothing(void *context, int layer, const mlff_halo_array *arrays, int n_arrays, mlff_location location,
                                    void *stream)
{
    (void)context, (void)layer, (void)arrays, (void)n_arrays, (void)location, (void)stream;
    return MLFF_OK;
}

// With halo hooks pairs of two ghosts are not listed. Other atoms are owned in the second call, where positions are the same: the list that
// was kept has no pairs of two former ghosts.
static void test_other_ghosts(void **state)
{
    (void)state;
    enum { N = 24 };
    if (!have_gpu()) return;
    const mlff_halo halo = {.forward = exchange_nothing, .reverse = exchange_nothing};
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_model *model = ani_shaped(&ani_small_2x, 5);
    mlff_system *system = ani_random_system(N, 7, 0, 1.2, 62); // no cell: one as small is listed in each call
    mlff_evaluator *gpu;
    unsigned char owned[N];
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    batch.owned = owned;
    options.device.kind = MLFF_CUDA;
    options.halo = &halo;
    static const char *const plans[] = {"cell_list=1,fused_search=0",
                                        "cell_list=1,fused_search=0,tile=128"}; // as for large systems
    for (int p = 0; p < 2; p++) {
        setenv("MLFF_CUDA_PLAN", plans[p], 1);
        assert_ok(mlff_evaluator_create(model, &options, &gpu));
        unsetenv("MLFF_CUDA_PLAN");
        for (int call = 0; call < 2; call++) {
            for (int i = 0; i < N; i++) owned[i] = (i % 3 == 0) == (call == 0);
            check_batch(model, gpu, NULL, &batch, call ? "ghosts that are owned now" : "a third is owned");
        }
        mlff_evaluator_destroy(gpu);
    }
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

// Calls on the device that are not waited for: of given pairs of which one has no reverse the energy is no number, and the next call tells.
static void test_missing_reverse(void **state)
{
    (void)state;
    enum { N = 12 };
    if (!have_gpu()) return;
    const mlff_device device = {MLFF_CUDA, 0};
    mlff_model *model = ani_shaped(&ani_small_2x, 6);
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA, NULL);
    mlff_system *system = ani_random_system(N, 4, 0, 1.2, 63);
    int32_t first_atom[2], first[N + 1] = {0}, neighbor[N * N], shift[3 * N * N] = {0}, n = 0;
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    for (int i = 0; i < N; i++, first[i] = n)
        for (int j = 0; j < N; j++)
            if (j != i) neighbor[n++] = j; // within the cutoff or not
    mlff_pairs pairs = {.first = there(first, sizeof first),
                        .neighbor = there(neighbor, sizeof neighbor),
                        .shift = there(shift, sizeof shift),
                        .symmetric = 1};
    batch.species = there(system->species, sizeof(int32_t) * N);
    batch.positions = there(system->positions, sizeof(double) * 3 * N);
    batch.cells = NULL;
    batch.periodic = NULL;
    batch.location = MLFF_DEVICE_MEMORY;
    batch.pairs = &pairs;
    const mlff_results results = {
        .energies = there(NULL, 8), .forces = there(NULL, sizeof(double) * 3 * N), .location = MLFF_DEVICE_MEMORY};
    double energy;
    assert_ok(mlff_stream_create(device, &batch.stream));
    for (int call = 0; call < 3; call++) {
        if (call == 2) { // without the last pair of atom 0
            for (int k = first[1]; k < n; k++) neighbor[k - 1] = neighbor[k];
            for (int i = 1; i <= N; i++) first[i]--;
            assert_ok(mlff_device_copy(device, (void *)(uintptr_t)pairs.first, first, sizeof first));
            assert_ok(mlff_device_copy(device, (void *)(uintptr_t)pairs.neighbor, neighbor, sizeof neighbor));
        }
        const mlff_status status = mlff_evaluator_compute(gpu, &batch, &results);
        assert_ok(mlff_stream_synchronize(device, batch.stream));
        assert_ok(mlff_device_copy(device, &energy, results.energies, sizeof energy));
        assert_true(call < 2 ? status == MLFF_OK && isfinite(energy) : status != MLFF_OK || isnan(energy));
    }
    assert_int_not_equal(mlff_evaluator_compute(gpu, &batch, &results), MLFF_OK);
    assert_non_null(strstr(mlff_last_error(), "without its reverse"));
    void *const arrays[] = {(void *)(uintptr_t)pairs.first,
                            (void *)(uintptr_t)pairs.neighbor,
                            (void *)(uintptr_t)pairs.shift,
                            (void *)(uintptr_t)batch.species,
                            (void *)(uintptr_t)batch.positions,
                            results.energies,
                            results.forces};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) mlff_device_release(device, arrays[k]);
    mlff_stream_destroy(device, batch.stream);
    mlff_evaluator_destroy(gpu);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

// Without owned atoms the networks have nothing to compute. The sums still wait for what the AEVs' kernel stores: the flags of the list.
static void test_no_owned_atoms(void **state)
{
    (void)state;
    enum { N = 6 };
    if (!have_gpu()) return;
    const mlff_device device = {MLFF_CUDA, 0};
    static const ani_form one_member = {"H,C", 1,   16,   8,      4,
                                        5.1,   3.5, 14.1, {16, 0}}; // so few blocks that the emulator starts all early
    mlff_model *model = ani_shaped(&one_member, 6);
    mlff_system *system = ani_random_system(N, 2, 0, 1.2, 64);
    mlff_evaluator *gpu;
    setenv("MLFF_CUDA_PLAN", "cluster=1", 1);
    gpu = evaluator_on(model, MLFF_CUDA, NULL);
    unsetenv("MLFF_CUDA_PLAN");
    const unsigned char owned[N] = {0};
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    void *positions = there(system->positions, sizeof(double) * 3 * N);
    batch.species = there(system->species, sizeof(int32_t) * N);
    batch.owned = there(owned, sizeof owned);
    batch.positions = positions;
    batch.cells = NULL;
    batch.periodic = NULL;
    batch.location = MLFF_DEVICE_MEMORY;
    const mlff_results results = {.energies = there(NULL, 8), .location = MLFF_DEVICE_MEMORY};
    assert_ok(mlff_stream_create(device, &batch.stream));
    for (int call = 0; call < 3; call++) {
        double energy;
        if (call == 2) { // two atoms on one point
            memcpy(system->positions, system->positions + 3, 3 * sizeof *system->positions);
            assert_ok(mlff_device_copy(device, positions, system->positions, sizeof(double) * 3 * N));
        }
        const mlff_status status = mlff_evaluator_compute(gpu, &batch, &results);
        assert_ok(mlff_stream_synchronize(device, batch.stream));
        assert_ok(mlff_device_copy(device, &energy, results.energies, sizeof energy));
        if (call < 2 ? status != MLFF_OK || energy != 0 : status == MLFF_OK && !isnan(energy))
            fail_msg("call %d: status %d, energy %g", call, status, energy);
    }
    void *const arrays[] = {positions, (void *)(uintptr_t)batch.species, (void *)(uintptr_t)batch.owned, results.energies};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) mlff_device_release(device, arrays[k]);
    mlff_stream_destroy(device, batch.stream);
    mlff_evaluator_destroy(gpu);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

// Batch and results on the device; errors named; stages that add up; no memory taken after the first calls.
static void test_on_device(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    mlff_device device = {MLFF_CUDA, 0};
    mlff_model *model = ani_shaped(&ani_small_2x, 6);
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA, NULL);
    random_batch b = random_batch_make(4, 20, 3);
    joined j = b.of;
    support_results expected = support_compute(gpu, &j.batch);
    size_t n = (size_t)expected.n_atoms;
    double *forces = calloc(3 * n, sizeof *forces), energies[4];
    mlff_batch on = j.batch;
    on.location = MLFF_DEVICE_MEMORY;
    on.species = there(j.species, sizeof(int32_t) * n);
    on.positions = there(j.positions, sizeof(double) * 3 * n);
    on.cells = there(j.cells, sizeof(double) * 36);
    assert_ok(mlff_stream_create(device, &on.stream));
    mlff_results results = {
        .energies = there(NULL, 32), .forces = there(NULL, sizeof(double) * 3 * n), .location = MLFF_DEVICE_MEMORY};
    mlff_device_memory before, after;
    for (int k = 0; k < 6; k++) {
        assert_ok(mlff_evaluator_compute(gpu, &on, &results));
        if (k == 1) assert_ok(mlff_device_memory_get(device, &before));
    }
    assert_ok(mlff_stream_synchronize(device, on.stream));
    assert_ok(mlff_device_memory_get(device, &after));
    assert_true(after.allocated == before.allocated);
    assert_ok(mlff_device_copy(device, forces, results.forces, sizeof(double) * 3 * n));
    assert_ok(mlff_device_copy(device, energies, results.energies, sizeof energies));
    assert_memory_equal(forces, expected.r.forces, sizeof(double) * 3 * n);
    assert_memory_equal(energies, expected.r.energies, sizeof energies);

    mlff_results here = {.energies = energies, .forces = forces};
    double kept = j.positions[5];
    j.positions[5] = NAN;
    assert_int_equal(mlff_evaluator_compute(gpu, &j.batch, &here), MLFF_ERR_VALUE);
    j.positions[5] = kept;
    j.species[1] = 26;
    assert_int_equal(mlff_evaluator_compute(gpu, &j.batch, &here), MLFF_ERR_ELEMENT);
    j.species[1] = 6;
    int n_stages;
    const mlff_stage *stages = mlff_evaluator_stages(gpu, &n_stages);
    double *time_ns = calloc((size_t)n_stages, sizeof *time_ns), sum = 0;
    assert_ok(mlff_evaluator_stage_clock_set(gpu, 1));
    for (int k = 0; k < 5; k++) assert_ok(mlff_evaluator_compute(gpu, &j.batch, &here));
    mlff_evaluator_stage_times(gpu, time_ns);
    for (int k = 0; k < n_stages; k++) {
        assert_true(time_ns[k] >= 0 && time_ns[k] < 1e11); // emulated on a busy machine: seconds
        sum += time_ns[k];
    }
    assert_true(sum > 0);
    int launch = 0; // after the host's stages
    while (launch < n_stages && strcmp(stages[launch].name, "launch") != 0) launch++;
    assert_true(launch + 3 < n_stages);
    assert_string_equal(stages[launch + 3].name, "aev_radial");
    free(time_ns);
    mlff_device_release(device, (void *)(uintptr_t)on.species);
    mlff_device_release(device, (void *)(uintptr_t)on.positions);
    mlff_device_release(device, (void *)(uintptr_t)on.cells);
    mlff_device_release(device, results.energies);
    mlff_device_release(device, results.forces);
    mlff_stream_destroy(device, on.stream);
    free(forces);
    support_results_free(&expected);
    random_batch_free(&b);
    mlff_evaluator_destroy(gpu);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms),
                                       cmocka_unit_test(test_extremes),
                                       cmocka_unit_test(test_batches),
                                       cmocka_unit_test(test_members),
                                       cmocka_unit_test(test_2x),
                                       cmocka_unit_test(test_wide_tiles),
                                       cmocka_unit_test(test_other_ghosts),
                                       cmocka_unit_test(test_missing_reverse),
                                       cmocka_unit_test(test_no_owned_atoms),
                                       cmocka_unit_test(test_on_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
