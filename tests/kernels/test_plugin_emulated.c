// SPDX-License-Identifier: MIT
// The whole GPU plugin on an emulated GPU (tests/emulate), through the public interface: batches on host and device, growth and
// captures. Dynamics: test_plugin_dynamics_emulated.c, failures: test_plugin_failures_emulated.c. No GPU is needed.
// Tolerance: 2e-5 of the rms force against float64; a structure by itself and in a batch agree to 5e-6 (sums in another order).
#include <time.h>

#include "mlff_exchange.h"
#include "plugin_scene.h"

static void compare(const char *what, const support_results *got, const support_results *expected)
{
    size_t n = (size_t)expected->n_atoms, s = (size_t)expected->n_systems;
    double force = rms(expected->r.forces, 3 * n), df = support_difference(got->r.forces, expected->r.forces, 3 * n);
    double energy = support_atom_energy_size(expected), de = support_difference(got->r.energies, expected->r.energies, s);
    double virial = support_largest(expected->r.virials, 9 * s),
           dv = support_difference(got->r.virials, expected->r.virials, 9 * s);
    if (df > 4 * 2e-5 * force || de > 1e-6 * energy || dv > 1e-4 * virial)
        fail_msg("%s: forces off by %.2e of %.2e rms, energies by %.2e of %.2e, virials by %.2e of %.2e", what, df, force, de,
                 energy, dv, virial);
}

// Ghosts: layers end at the atoms that owned ones depend on, if these come first; in another order all is right too. New memory is NaN, so
// that nothing is read that was not computed.
static void test_ghosts(void **state)
{
    (void)state;
    enum { N = 400, OWNED = 20 };
    static double positions[3 * N];
    static int32_t species[N];
    static unsigned char owned[N];
    const int32_t first_atom[2] = {0, N};
    mlff_model *model = support_model(32, 3, "gaussian", "cosine", 0, 3);
    mlff_evaluator *evaluator;
    emulate_counts before = counts();
    int64_t steps[3];
    setenv("MLFF_CUDA_PLAN", "fused=0", 1);
    assert_ok(create_on(model, MLFF_CUDA, &evaluator));
    unsetenv("MLFF_CUDA_PLAN");
    const mlff_batch batch = {
        .n_systems = 1, .first_atom = first_atom, .species = species, .positions = positions, .owned = owned};
    for (int order = 0; order < 3; order++) { // all are owned; a chain whose first atoms are; the same in another order
        for (int i = 0; i < N; i++) {
            const int at = order == 2 ? 7 * i % N : i;
            species[at] = i % 3 ? 1 : 6;
            owned[at] = order == 0 || i < OWNED;
            for (int c = 0; c < 3; c++) positions[3 * at + c] = (c == 0) * 1.4 * i + 0.3 * sin(1.7 * i + 2.1 * c);
        }
        support_results expected = reference_of(model, &batch), got = support_compute(evaluator, &batch);
        const int64_t so_far = counts().steps;
        support_results again = support_compute(evaluator, &batch);
        steps[order] = counts().steps - so_far;
        assert_memory_equal(again.r.forces, got.r.forces, 3 * N * sizeof(double));
        support_results_free(&again);
        compare(order == 2 ? "ghosts in another order" : order ? "ghosts behind owned atoms" : "no ghosts", &got, &expected);
        for (int i = 0; i < N; i++)
            if (!owned[i] && got.r.atom_energies[i] != 0) fail_msg("ghost %d has the energy %g", i, got.r.atom_energies[i]);
        support_results_free(&got);
        support_results_free(&expected);
    }
    // In tiles of 96 atoms 96, 192 and 288 of 400 have features where owned atoms are first, and as many adjoints. With what other kernels do for all
    // atoms 0.85 of the steps remain; in another order most tiles have an atom whose features are needed.
    if (steps[1] > 0.9 * steps[0])
        fail_msg("layers are computed for all ghosts: %lld steps of %lld", (long long)steps[1], (long long)steps[0]);
    mlff_evaluator_destroy(evaluator);
    assert_given_back(&before, "ghosts", 0);
    mlff_model_destroy(model);
}

static mlff_status count_exchange(void *context, int layer, const mlff_halo_array *arrays, int n_arrays, mlff_location location,
                                  void *stream)
{
    (void)layer, (void)arrays, (void)n_arrays, (void)location, (void)stream;
    ++*(int *)context;
    return MLFF_OK;
}

// With hooks the first layer starts before the host knows that inputs are valid and rows long enough. The hooks are called in one good step
// alone: not in that whose rows were too short, nor where a position is not finite. One layer without forces has no exchange.
static void test_hooks(void **state)
{
    (void)state;
    emulate_counts before = counts();
    for (int layers = 1; layers <= 3; layers += 2)
        for (int forces = 0; forces < 2; forces++) {
            int calls = 0;
            mlff_model *model = support_model(32, layers, "gaussian", "cosine", 0, 3);
            mlff_system *system = support_random_system(160, 1, 1.2, 7);
            mlff_evaluator *evaluator, *plain;
            mlff_evaluator_options options = mlff_evaluator_options_default();
            mlff_evaluator_info info, expected_info;
            int32_t first_atom[2];
            mlff_batch batch;
            options.device = gpu;
            options.halo = &(mlff_halo){.forward = count_exchange, .reverse = count_exchange, .context = &calls};
            assert_ok(mlff_evaluator_create(model, &options, &evaluator));
            assert_ok(create_on(model, MLFF_CUDA, &plain));
            mlff_batch_from_system(system, first_atom, &batch);
            support_results expected = support_compute(plain, &batch);
            double *energies = calloc(1 + 3 * 160, sizeof *energies), x = system->positions[100];
            const mlff_results results = {.energies = energies, .forces = forces ? energies + 1 : NULL};
            const int exchanges = layers - 1 + forces * layers;
            for (int call = 1; call <= 2; call++) {
                assert_ok(mlff_evaluator_compute(evaluator, &batch, &results));
                assert_int_equal(calls, call * exchanges);
                assert_true(support_difference(energies, expected.r.energies, 1) <= 1e-6 * support_atom_energy_size(&expected));
                mlff_evaluator_info_get(evaluator, &info);
                mlff_evaluator_info_get(plain, &expected_info);
                assert_int_equal(info.n_pairs, expected_info.n_pairs);
                if (call == 1) assert_true(info.n_growths >= 2); // arrays, and rows
                system->positions[100] = NAN;
                assert_int_equal(mlff_evaluator_compute(evaluator, &batch, &results), MLFF_ERR_VALUE);
                assert_non_null(strstr(mlff_last_error(), "atom 33 "));
                assert_int_equal(calls, call * exchanges);
                system->positions[100] = x;
            }
            free(energies);
            support_results_free(&expected);
            mlff_evaluator_destroy(evaluator);
            mlff_evaluator_destroy(plain);
            mlff_system_destroy(system);
            mlff_model_destroy(model);
        }
    assert_given_back(&before, "hooks", 0);
}

// A kernel of a programmatic launch starts before the previous one is complete, so that what it reads before it waits must be older. With
// other numbers of atoms what the last call left is wrong: a message that took its number of atoms from there left rows out. Each layer is a
// kernel; blocks that walk over atoms, and a block for each row.
static void test_early_kernels(void **state)
{
    (void)state;
    enum { CALLS = 3 };
    static const int sizes[][CALLS] = {{150, 200, 150}, {24, 40, 24}};
    mlff_model *model = support_model(32, 2, "gaussian", "cosine", 0, 3);
    for (int way = 0; way < 4; way++) {
        mlff_evaluator *evaluator;
        emulate_counts before = counts();
        setenv("MLFF_CUDA_PLAN", "fused=0", 1);
        assert_ok(create_on(model, MLFF_CUDA, &evaluator));
        unsetenv("MLFF_CUDA_PLAN");
        for (int k = 0; k < CALLS; k++) {
            mlff_system *system = support_random_system(sizes[way / 2][k], 1, 1.4, 10 + (uint64_t)k);
            mlff_neighbors *list;
            mlff_pairs pairs;
            int32_t first_atom[2];
            mlff_batch batch;
            char what[64];
            snprintf(what, sizeof what, "call %d, %d atoms, %s", k, system->n_atoms, way % 2 ? "pairs given" : "own list");
            mlff_batch_from_system(system, first_atom, &batch);
            support_results expected = reference_of(model, &batch);
            assert_ok(mlff_neighbors_create(5.0, 0.0, &list));
            assert_ok(mlff_neighbors_update(list, &batch));
            mlff_neighbors_get(list, &pairs, NULL, NULL);
            pairs.symmetric = 1;
            if (way % 2) batch.pairs = &pairs;
            support_results got = support_compute(evaluator, &batch);
            compare(what, &got, &expected);
            support_results_free(&expected);
            support_results_free(&got);
            mlff_neighbors_destroy(list);
            mlff_system_destroy(system);
        }
        mlff_evaluator_destroy(evaluator);
        assert_given_back(&before, "early kernels", 0);
        // Before Hopper there are no programmatic launches. Else of a layer message and update, and their reverse, in each call.
        const char *capability = getenv("MLFF_EMULATE_CAPABILITY");
        const int64_t early = counts().early - before.early;
        if (capability ? early != 0 : early < CALLS * 2 * 4 - 2) fail_msg("%d kernels began early", (int)early);
    }
    mlff_model_destroy(model);
}

// Rows of arrays, copied and summed, on the GPU as on the CPU.
static void test_rows(void **state)
{
    (void)state;
    enum { ROWS = 7, WIDTH = 8 };
    const mlff_device cpu = {MLFF_CPU, 0};
    const int32_t to_row[] = {6, 0, 3}, first[] = {0, 2, 2, 5}, from_row[] = {4, 1, 1, 5, 2};
    float from[ROWS * WIDTH], to[ROWS * WIDTH], results[2][ROWS * WIDTH];
    for (int k = 0; k < ROWS * WIDTH; k++) from[k] = 1.0f / (float)(k + 1), to[k] = (float)k;
    emulate_counts before = counts();
    for (int sums = 0; sums < 3; sums++)
        for (int tables = 0; tables < 2; tables++) {
            for (int on = 0; on < 2; on++) {
                const mlff_device device = on ? gpu : cpu;
                void *memory[5], *stream;
                const void *sources[5] = {from, to, to_row, first, from_row};
                const size_t bytes[5] = {sizeof from, sizeof to, sizeof to_row, sizeof first, sizeof from_row};
                assert_ok(mlff_stream_create(device, &stream));
                for (int k = 0; k < 5; k++) {
                    // The GPU writes page-locked memory of the host.
                    assert_ok(k == 1 ? mlff_host_allocate(device, bytes[k], &memory[k])
                                     : mlff_device_allocate(device, bytes[k], &memory[k]));
                    assert_ok(mlff_device_copy(device, memory[k], sources[k], bytes[k]));
                }
                const mlff_rows rows = {.to = memory[1],
                                        .from = memory[0],
                                        .width = WIDTH,
                                        .element_bytes = 4,
                                        .n_rows = 3,
                                        .add = sums == 2,
                                        .to_row = tables ? memory[2] : NULL,
                                        .first = sums ? memory[3] : NULL,
                                        .from_row = tables ? memory[4] : NULL};
                assert_ok(mlff_device_zero(device, (float *)memory[0] + 2 * WIDTH, WIDTH * sizeof(float), stream));
                assert_ok(mlff_device_rows(device, &rows, stream));
                assert_ok(mlff_stream_synchronize(device, stream));
                assert_ok(mlff_device_copy(device, results[on], memory[1], sizeof to));
                for (int k = 0; k < 5; k++)
                    k == 1 ? mlff_host_release(device, memory[k]) : mlff_device_release(device, memory[k]);
                mlff_stream_destroy(device, stream);
            }
            assert_memory_equal(results[0], results[1], sizeof to);
            for (int c = 0; c < WIDTH; c++) { // row 0 of the three, and one that is not among them
                const int at = tables ? 6 : 0, a = tables ? 4 : 0, b = 1;
                const float sum = (sums == 2 ? (float)(at * WIDTH + c) : 0) + from[a * WIDTH + c];
                assert_true(results[0][at * WIDTH + c] == (sums ? sum + from[b * WIDTH + c] : from[a * WIDTH + c]));
                assert_true(results[0][5 * WIDTH + c] == to[5 * WIDTH + c]);
                const float last = (sums == 2 ? to[3 * WIDTH + c] : 0) + from[WIDTH + c] + from[5 * WIDTH + c]; // and zeros
                if (tables && sums) assert_true(results[0][3 * WIDTH + c] == last);
            }
        }
    const mlff_rows odd = {.to = to, .from = from, .width = 6, .element_bytes = 4, .n_rows = 1},
                    wide = {.to = to, .from = from, .width = 4, .element_bytes = 8, .n_rows = 1};
    assert_int_equal(mlff_device_rows(gpu, &odd, NULL), MLFF_ERR_USAGE);
    assert_int_equal(mlff_device_rows(gpu, &wide, NULL), MLFF_ERR_USAGE);
    assert_int_equal(mlff_device_rows(cpu, NULL, NULL), MLFF_ERR_USAGE);
    // Memory of other processes: tests/lammps opens it.
    mlff_memory_handle handle;
    void *memory, *opened;
    assert_ok(mlff_device_allocate(gpu, 100, &memory));
    assert_ok(mlff_memory_share(gpu, memory, &handle));
    assert_int_equal(mlff_memory_open(gpu, &handle, &opened), MLFF_ERR_DEVICE); // of this process
    assert_int_equal(mlff_memory_share(gpu, to, &handle), MLFF_ERR_DEVICE);
    assert_int_equal(mlff_memory_share(cpu, to, &handle), MLFF_ERR_UNSUPPORTED);
    assert_int_equal(mlff_memory_open(cpu, &handle, &opened), MLFF_ERR_UNSUPPORTED);
    assert_int_equal(mlff_memory_open(gpu, NULL, &opened), MLFF_ERR_USAGE);
    mlff_device_release(gpu, memory);
    assert_given_back(&before, "rows", 0);
    // Memory that was shared is the process's alone again: pages of the heap that a forked child writes too corrupt both heaps.
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) assert_null(strstr(line, "memfd:emulated"));
    fclose(maps);
}

// Ragged batches equal the reference and single calls; after the first call of a size nothing is allocated and nothing captured, for any
// number of neighbors.
static void test_host(void **state)
{
    (void)state;
    scene s;
    emulate_counts before;
    mlff_evaluator *evaluator;
    make_scene_on_gpu(&s, 11, &before, &evaluator);
    for (int k = 0; k < N_SYSTEMS; k++) { // the batch grows from the small to the large
        support_results one = support_compute_system(evaluator, s.systems[k]);
        support_results_free(&one);
    }
    support_results expected = reference_of(s.model, &s.batch), got = support_compute(evaluator, &s.batch);
    compare("ragged batch", &got, &expected);
    for (int k = 0; k < N_SYSTEMS; k++) {
        support_results one = support_compute_system(evaluator, s.systems[k]);
        size_t at = 3 * (size_t)s.first_atom[k], n = 3 * (size_t)s.systems[k]->n_atoms;
        assert_true(support_difference(one.r.forces, got.r.forces + at, n) <= 5e-6 * rms(expected.r.forces, 54));
        support_results_free(&one);
    }
    support_results_free(&expected);

    emulate_counts settled = counts();
    int64_t pairs = 0;
    for (int step = 0; step < 4; step++) {
        mlff_evaluator_info info;
        for (int k = 0; k < 9 * N_SYSTEMS; k++) s.cells[k] *= 1.05; // fewer and fewer neighbors
        for (int k = 0; k < 3 * 18; k++) s.positions[k] *= 1.05;
        support_results next = support_compute(evaluator, &s.batch), then = reference_of(s.model, &s.batch);
        compare("expanded batch", &next, &then);
        mlff_evaluator_info_get(evaluator, &info);
        assert_true(info.n_pairs != pairs);
        pairs = info.n_pairs;
        support_results_free(&next);
        support_results_free(&then);
    }
    emulate_counts after = counts();
    assert_int_equal(after.allocations, settled.allocations);
    assert_int_equal(after.captures, settled.captures);
    assert_int_equal(after.graph_launches, settled.graph_launches + 4);
    support_results_free(&got);
    mlff_evaluator_destroy(evaluator);
    assert_given_back(&before, "host batches", 0);
    free_scene(&s);
}

// Vectors of the same lattice, skewed: images are found, and where they are too many the call is refused. Pairs were left out without a word.
static void test_skewed_cells(void **state)
{
    (void)state;
    mlff_model *model = support_model(32, 1, "gaussian", "cosine", 0, 3);
    mlff_evaluator *evaluator;
    mlff_system *system = support_random_system(4, 1, 1.2, 5);
    const double b[3] = {system->cell[3], system->cell[4], system->cell[5]};
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    support_results expected = reference_of(model, &batch);
    assert_ok(create_on(model, MLFF_CUDA, &evaluator));
    for (int skew = 0; skew <= 4000; skew = skew == 0 ? 10 : 20 * skew) {
        double energy;
        for (int c = 0; c < 3; c++) system->cell[3 + c] = b[c] + skew * system->cell[c];
        if (skew < 4000) {
            support_results got = support_compute_system(evaluator, system);
            compare("a skewed cell", &got, &expected);
            support_results_free(&got);
            continue;
        }
        const mlff_status status = mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy});
        assert_int_equal(status, MLFF_ERR_LIMIT);
        assert_non_null(strstr(mlff_last_error(), "repeats more than 500 times within the cutoff"));
    }
    support_results_free(&expected);
    mlff_evaluator_destroy(evaluator);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

// More than 512 atoms, without virials: energies are summed on another stream during the backward pass. The same bits as with
// virials, where all sums come last; stage clocks exclude them.
static void test_sums_apart(void **state)
{
    (void)state;
    enum { N = 576 };
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_system *system;
    mlff_evaluator *evaluator;
    mlff_model *model = support_model(32, 1, "gaussian", "cosine", 0, 3);
    assert_ok(mlff_system_build("silicon", N, 0, &system));
    assert_ok(mlff_system_perturb(system, 300.0, 3));
    mlff_batch_from_system(system, first_atom, &batch);
    assert_ok(create_on(model, MLFF_CUDA, &evaluator));
    support_results expected = reference_of(model, &batch), all = support_compute(evaluator, &batch);
    compare("silicon", &all, &expected);
    double energy, *atom_energies = calloc(N, sizeof *atom_energies), *forces = calloc(3 * N, sizeof *forces);
    const mlff_results some = {.energies = &energy, .atom_energies = atom_energies, .forces = forces};
    int n_stages;
    const mlff_stage *stages = mlff_evaluator_stages(evaluator, &n_stages);
    double *time_ns = calloc((size_t)n_stages, sizeof *time_ns);
    for (int clocks = 0; clocks < 2; clocks++) {
        energy = NAN;
        forces[3 * N - 1] = NAN;
        assert_ok(mlff_evaluator_stage_clock_set(evaluator, clocks));
        assert_ok(mlff_evaluator_compute(evaluator, &batch, &some));
        assert_memory_equal(&energy, all.r.energies, sizeof energy);
        assert_memory_equal(atom_energies, all.r.atom_energies, N * sizeof *atom_energies);
        assert_memory_equal(forces, all.r.forces, 3 * N * sizeof *forces);
    }
    mlff_evaluator_stage_times(evaluator, time_ns);
    for (int k = 0; k < n_stages; k++) {
        const bool none = strcmp(stages[k].name, "sums") == 0 || strcmp(stages[k].name, "repeated") == 0;
        assert_true(none ? time_ns[k] == 0 : time_ns[k] > 0);
    }
    assert_string_equal(stages[3].name, "launch");
    free(time_ns);
    free(atom_energies);
    free(forces);
    support_results_free(&expected);
    support_results_free(&all);
    mlff_evaluator_destroy(evaluator);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

// Stages of the host around those of the GPU: together they are the whole call.
static void test_host_stages(void **state)
{
    (void)state;
    scene s;
    emulate_counts before;
    mlff_evaluator *evaluator;
    make_scene_on_gpu(&s, 27, &before, &evaluator);
    assert_ok(mlff_evaluator_stage_clock_set(evaluator, 1));
    support_results got = support_compute(evaluator, &s.batch); // measures the launch
    int n_stages, n_host = 0;
    const mlff_stage *stages = mlff_evaluator_stages(evaluator, &n_stages);
    double *time_ns = calloc((size_t)n_stages, sizeof *time_ns), least = 1.0;
    for (int turn = 0; turn < 5; turn++) { // the machine may interrupt the call outside of the stages
        double sum = 0.0;
        const int64_t start = base_clock_ns();
        assert_ok(mlff_evaluator_compute(evaluator, &s.batch, &got.r));
        const double call_ns = (double)(base_clock_ns() - start);
        mlff_evaluator_stage_times(evaluator, time_ns);
        for (int k = 0; k < n_stages; k++) {
            assert_true(time_ns[k] >= 0.0);
            sum += time_ns[k];
        }
        assert_true(sum <= call_ns);
        least = fmin(least, 1.0 - sum / call_ns);
    }
    if (least > 0.02) fail_msg("%.1f %% of a call is in no stage", 100.0 * least);
    for (int k = 0; k < n_stages; k++) n_host += strcmp(stages[k].phase, "host") == 0 && time_ns[k] > 0.0;
    assert_int_equal(n_host, 4);
    free(time_ns);
    support_results_free(&got);
    mlff_evaluator_destroy(evaluator);
    assert_given_back(&before, "stages of the host", 0);
    free_scene(&s);
}

// Clocks that are on before the first call: what lies between steps is measured once for a graph, by steps like the first one.
static void test_clocks(void **state)
{
    (void)state;
    scene s;
    emulate_counts before;
    mlff_evaluator *evaluator;
    mlff_evaluator_info info;
    make_scene_on_gpu(&s, 27, &before, &evaluator);
    plan_failure("cudaMalloc", 1, OUT_OF_MEMORY);
    assert_int_equal(mlff_evaluator_stage_clock_set(evaluator, 1), MLFF_ERR_MEMORY);
    for (int nth = 1; nth < 4; nth += 2) {
        plan_failure("cudaGraphLaunch", nth, UNKNOWN);
        assert_int_equal(mlff_evaluator_stage_clock_set(evaluator, 1), MLFF_ERR_DEVICE);
        assert_true(mend());
    }
    assert_ok(mlff_evaluator_stage_clock_set(evaluator, 1)); // as good as new
    int n_stages;
    assert_string_equal(mlff_evaluator_stages(evaluator, &n_stages)[3].name, "launch");
    double *time_ns = calloc((size_t)n_stages, sizeof *time_ns), sum = 0;
    support_results expected = reference_of(s.model, &s.batch), got = support_compute(evaluator, &s.batch);
    compare("clocks from the first call on", &got, &expected);
    mlff_evaluator_stage_times(evaluator, time_ns);
    for (int k = 0; k < n_stages; k++) {
        if (!(time_ns[k] >= 0 && time_ns[k] < 1e11)) fail_msg("stage %d: %g ns", k, time_ns[k]);
        sum += time_ns[k];
    }
    assert_true(sum > time_ns[3] && time_ns[3] > 0);
    emulate_counts settled = counts();
    support_results again = support_compute(evaluator, &s.batch);
    assert_int_equal(counts().graph_launches, settled.graph_launches + 1);
    assert_int_equal(counts().captures, settled.captures);
    assert_memory_equal(again.r.forces, got.r.forces, 3 * sizeof(double) * (size_t)s.first_atom[N_SYSTEMS]);
    mlff_evaluator_info_get(evaluator, &info);
    assert_int_equal(info.n_computes, 2);
    free(time_ns);
    support_results_free(&again);
    support_results_free(&got);
    mlff_evaluator_destroy(evaluator);
    assert_given_back(&before, "clocks", 0);
    support_results_free(&expected);
    free_scene(&s);
}

// Calls use the same memory of the evaluator: one that is not waited for is complete before one on another stream begins, or one of the host.
static void check_order(mlff_evaluator *evaluator, const mlff_batch *on, const mlff_batch *host, double *forces,
                        const support_results *expected)
{
    const size_t n = 3 * (size_t)expected->n_atoms, bytes = n * sizeof(double);
    double *nothing = calloc(1, bytes), *seen = calloc(1, bytes), *others = there(NULL, bytes);
    const mlff_results wanted = {.forces = forces, .location = MLFF_DEVICE_MEMORY};
    mlff_batch other = *on;
    support_results results = support_compute(evaluator, host);
    support_results_free(&results);
    assert_ok(mlff_stream_create(gpu, &other.stream));
    for (int turn = 0; turn < 2; turn++) { // the second needs no copy of its call
        assert_ok(mlff_stream_synchronize(gpu, on->stream));
        assert_ok(mlff_device_copy(gpu, forces, nothing, bytes));
        assert_ok(mlff_evaluator_compute(evaluator, on, &wanted));
    }
    assert_ok(mlff_evaluator_compute(evaluator, &other, &(mlff_results){.forces = others, .location = MLFF_DEVICE_MEMORY}));
    assert_ok(mlff_stream_synchronize(gpu, other.stream));
    assert_ok(mlff_stream_synchronize(gpu, on->stream));
    for (int k = 0; k < 2; k++) {
        assert_ok(mlff_device_copy(gpu, seen, k ? others : forces, bytes));
        assert_true(support_difference(seen, expected->r.forces, n) < 1e-4);
    }
    assert_ok(mlff_device_copy(gpu, forces, nothing, bytes));
    assert_ok(mlff_evaluator_compute(evaluator, on, &wanted));
    results = support_compute(evaluator, host);
    assert_ok(mlff_device_copy(gpu, seen, forces, bytes));
    assert_true(support_difference(seen, expected->r.forces, n) < 1e-4);
    support_results_free(&results);
    mlff_stream_destroy(gpu, other.stream);
    mlff_device_release(gpu, others);
    free(seen);
    free(nothing);
}

// Batch and results on the device: from the second call on the host does not wait, and results are correct after synchronization.
static void test_device(void **state)
{
    (void)state;
    scene s;
    make_scene(&s, 21);
    emulate_counts before = counts();
    support_results expected = reference_of(s.model, &s.batch), got = reference_of(s.model, &s.batch);
    mlff_evaluator *evaluator;
    assert_ok(create_on(s.model, MLFF_CUDA, &evaluator));
    size_t n = (size_t)expected.n_atoms;
    mlff_batch on = s.batch;
    on.location = MLFF_DEVICE_MEMORY;
    on.species = there(s.species, sizeof(int32_t) * n);
    on.positions = there(s.positions, sizeof(double) * 3 * n);
    on.cells = there(s.cells, sizeof s.cells);
    assert_ok(mlff_stream_create(gpu, &on.stream));
    mlff_results results = {.energies = there(NULL, sizeof(double) * N_SYSTEMS),
                            .forces = there(NULL, sizeof(double) * 3 * n),
                            .virials = there(NULL, sizeof(double) * 9 * N_SYSTEMS),
                            .location = MLFF_DEVICE_MEMORY};
    const double nothing[96] = {0};
    for (int call = 0; call < 3; call++) {
        assert_ok(mlff_device_copy(gpu, results.forces, nothing, sizeof(double) * 3 * n));
        emulate_counts ready = counts();
        assert_ok(mlff_evaluator_compute(evaluator, &on, &results));
        if (call > 0) {
            assert_int_equal(counts().allocations, ready.allocations);
            assert_int_equal(counts().captures, ready.captures);
            assert_ok(mlff_device_copy(gpu, got.r.forces, results.forces, sizeof(double) * 3 * n));
            assert_true(support_largest(got.r.forces, 3 * n) == 0); // still on its way
        }
        assert_ok(mlff_stream_synchronize(gpu, on.stream));
        assert_ok(mlff_device_copy(gpu, got.r.forces, results.forces, sizeof(double) * 3 * n));
        assert_ok(mlff_device_copy(gpu, got.r.energies, results.energies, sizeof(double) * N_SYSTEMS));
        assert_ok(mlff_device_copy(gpu, got.r.virials, results.virials, sizeof(double) * 9 * N_SYSTEMS));
        compare("batch on the device", &got, &expected);
    }
    check_order(evaluator, &on, &s.batch, results.forces, &expected);
    mlff_device_release(gpu, (void *)(uintptr_t)on.species);
    mlff_device_release(gpu, (void *)(uintptr_t)on.positions);
    mlff_device_release(gpu, (void *)(uintptr_t)on.cells);
    mlff_device_release(gpu, results.energies);
    mlff_device_release(gpu, results.forces);
    mlff_device_release(gpu, results.virials);
    mlff_evaluator_destroy(evaluator);
    mlff_stream_destroy(gpu, on.stream);
    assert_given_back(&before, "batch on the device", 0);
    support_results_free(&expected);
    support_results_free(&got);
    free_scene(&s);
}

static void test_devices(void **state)
{
    (void)state;
    mlff_device_info info = {.struct_size = sizeof info};
    mlff_device_memory before, within, after;
    void *memory, *start, *end;
    double time_ns = -1;
    int64_t grown = -1;
    assert_ok(mlff_device_info_get(gpu, &info));
    assert_string_equal(info.name, "emulated GPU 0");
    assert_ok(mlff_memory_scope_begin(gpu, &before));
    assert_ok(mlff_device_allocate(gpu, 1 << 20, &memory));
    assert_ok(mlff_memory_scope_end(gpu, &before, &within, &grown));
    assert_int_equal(grown, 1 << 20);
    mlff_device_release(gpu, memory);
    assert_ok(mlff_memory_scope_end(gpu, &before, &after, &grown));
    assert_int_equal(grown, 0);
    assert_int_equal(within.allocated - before.allocated, 1 << 20);
    assert_int_equal(before.free - within.free, 1 << 20);
    assert_int_equal(after.allocated, before.allocated);
    assert_int_equal(after.peak - before.allocated, 1 << 20);
    assert_ok(mlff_device_peak_reset(gpu));
    assert_ok(mlff_device_memory_get(gpu, &after));
    assert_int_equal(after.peak, after.allocated);
    assert_ok(mlff_device_warm_up(gpu));
    assert_ok(mlff_device_cache_empty(gpu));
    assert_ok(mlff_device_synchronize(gpu));
    assert_ok(mlff_event_create(gpu, &start));
    assert_ok(mlff_event_create(gpu, &end));
    assert_ok(mlff_event_record(gpu, start, NULL));
    assert_ok(mlff_event_record(gpu, end, NULL));
    assert_ok(mlff_event_elapsed(gpu, start, end, &time_ns));
    assert_true(time_ns >= 0);
    mlff_event_destroy(gpu, start);
    mlff_event_destroy(gpu, end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices),      cmocka_unit_test(test_rows),       cmocka_unit_test(test_ghosts),
        cmocka_unit_test(test_host),         cmocka_unit_test(test_sums_apart), cmocka_unit_test(test_host_stages),
        cmocka_unit_test(test_clocks),       cmocka_unit_test(test_device),     cmocka_unit_test(test_early_kernels),
        cmocka_unit_test(test_skewed_cells), cmocka_unit_test(test_hooks)};
    return run_on_emulator(tests, sizeof tests / sizeof *tests);
}
