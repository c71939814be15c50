// SPDX-License-Identifier: MIT
// Orb on a GPU, real or emulated, against the float64 reference: every kind of tile and every precision; molecules, skewed cells with more
// neighbors than the cap, one atom, atoms without edges, ragged batches, given pairs, repeatability. Skipped with a message where there
// is no GPU. The models are untrained and small, with random norms: two layers, hidden layers of 128.
// Tolerances, of the rms force (energies: of 1 eV for each atom; stress: of the largest, twice): 2e-5 for float32, the goal; 5e-3 for
// tf32, whose operands have 11 bits; 5e-2 for bf16, with 8 bits. Untrained models may have hardly any forces: what is compared with is
// at least FORCE_FLOOR, and of the stress what such forces come to at the mean distance of edges, FORCE_FLOOR · EDGE / (volume per atom).
#include "base/random.h"
#include "gpu_support.h"
#include "model/model.h"

#define FORCE_FLOOR 1e-2 // eV/Å
#define EDGE 4.5         // Å: the mean distance in a sphere of the cutoff, 6 Å

static const double tolerance[] = {[MLFF_FLOAT32] = 2e-5, [MLFF_TF32] = 5e-3, [MLFF_BF16] = 5e-2};

// Norms of untrained models have weights 1 and biases 0; those of trained models differ: 0.5 to 1.5, and −0.2 to 0.2.
static mlff_model *with_norms(mlff_model *model)
{
    for (size_t t = 0; t < model->file.n_tensors; t++) {
        model_tensor *tensor = &model->file.tensors[t];
        const bool bias = strstr(tensor->name, "layer_norm.bias") != NULL;
        if (!bias && !strstr(tensor->name, "layer_norm.weight")) continue;
        for (int k = 0; k < 256; k++) {
            const float u = (float)base_random_uniform(5, t, (uint64_t)k);
            ((float *)tensor->data)[k] = bias ? 0.4f * (u - 0.5f) : 0.5f + u;
        }
    }
    return model;
}

static mlff_model *model_of(const char *architecture, const char *settings)
{
    mlff_model *model;
    assert_ok(support_create(&model, architecture, "%s", settings));
    return with_norms(model);
}

static mlff_model *small_model(const char *architecture, int seed)
{
    char settings[64];
    snprintf(settings, sizeof settings, "n_layers=2; hidden=128; seed=%d", seed);
    return model_of(architecture, settings);
}

static mlff_evaluator *evaluator_on(const mlff_model *model, mlff_device_kind kind, mlff_precision precision)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_evaluator *evaluator;
    options.device.kind = kind;
    options.precision = precision;
    assert_ok(mlff_evaluator_create(model, &options, &evaluator));
    return evaluator;
}

// Arrays for energies, forces, and stress of models that have it: not direct ones with charge and spin.
static support_results results_for(const mlff_model *model, const mlff_batch *batch)
{
    support_results s = {.n_systems = batch->n_systems, .n_atoms = batch->first_atom[batch->n_systems]};
    s.r.energies = calloc((size_t)s.n_systems, sizeof(double));
    s.r.forces = calloc((size_t)s.n_atoms * 3, sizeof(double));
    if (mlff_model_outputs(model) & MLFF_OUTPUT_STRESS) s.r.stresses = calloc((size_t)s.n_systems * 6, sizeof(double));
    return s;
}

static support_results compute(const mlff_model *model, mlff_evaluator *evaluator, const mlff_batch *batch)
{
    support_results s = results_for(model, batch);
    assert_ok(mlff_evaluator_compute(evaluator, batch, &s.r));
    return s;
}

// Those of the reference, with the estimated errors of forces of models that have them.
static support_results compute_reference(const mlff_model *model, const mlff_batch *batch)
{
    mlff_evaluator *reference = evaluator_on(model, MLFF_CPU, MLFF_FLOAT64);
    support_results s = results_for(model, batch);
    if (mlff_model_outputs(model) & MLFF_OUTPUT_FORCE_ERRORS) s.r.force_errors = calloc((size_t)s.n_atoms, sizeof(double));
    assert_ok(mlff_evaluator_compute(reference, batch, &s.r));
    mlff_evaluator_destroy(reference);
    return s;
}

static void free_reference(support_results *expected)
{
    free(expected->r.force_errors);
    support_results_free(expected);
}

// The stress of forces of FORCE_FLOOR on every atom, eV/Å³; 0 where a system has no cell.
static double stress_floor(const mlff_batch *batch, size_t system)
{
    if (!batch->cells) return 0;
    const double *c = batch->cells + 9 * system;
    const double volume =
        fabs(c[0] * (c[4] * c[8] - c[5] * c[7]) + c[1] * (c[5] * c[6] - c[3] * c[8]) + c[2] * (c[3] * c[7] - c[4] * c[6]));
    const int n_atoms = batch->first_atom[system + 1] - batch->first_atom[system];
    return volume > 0 ? FORCE_FLOOR * EDGE * n_atoms / volume : 0;
}

// Errors of forces that the model estimates; relative, as they are means over bins of positive centers. Energies have the bits of `got`.
static void check_force_errors(const char *what, const support_results *expected, mlff_evaluator *gpu, mlff_precision precision,
                               const mlff_batch *batch, const support_results *got)
{
    const size_t n = (size_t)expected->n_atoms, s = (size_t)expected->n_systems;
    double *errors = calloc(n + s, sizeof *errors), *energies = errors + n, worst = 0;
    assert_ok(mlff_evaluator_compute(gpu, batch, &(mlff_results){.energies = energies, .force_errors = errors}));
    assert_memory_equal(energies, got->r.energies, sizeof *energies * s);
    for (size_t i = 0; i < n; i++) {
        assert_true(expected->r.force_errors[i] > 0);
        worst = fmax(worst, errors[i] > 0 ? fabs(errors[i] / expected->r.force_errors[i] - 1) : INFINITY);
    }
    printf("%s: estimated errors of forces %.1e\n", what, worst);
    if (!(worst <= tolerance[precision])) fail_msg("%s: estimated errors of forces are off by %.2e of them", what, worst);
    free(errors);
}

// The same bits again.
static void check_repeated(mlff_evaluator *gpu, const mlff_model *model, const mlff_batch *batch, const support_results *got)
{
    support_results again = compute(model, gpu, batch);
    assert_memory_equal(again.r.forces, got->r.forces, sizeof(double) * 3 * (size_t)got->n_atoms);
    assert_memory_equal(again.r.energies, got->r.energies, sizeof(double) * (size_t)got->n_systems);
    support_results_free(&again);
}

// The same bits of the energies without forces.
static void check_energies_alone(mlff_evaluator *gpu, const mlff_batch *batch, const support_results *got)
{
    const size_t s = (size_t)got->n_systems;
    double *energies = calloc(s, sizeof *energies);
    assert_ok(mlff_evaluator_compute(gpu, batch, &(mlff_results){.energies = energies}));
    assert_memory_equal(energies, got->r.energies, sizeof(double) * s);
    free(energies);
}

// `repeats`: the same bits in other calls too.
static void check(const char *what, const mlff_model *model, const support_results *expected, mlff_evaluator *gpu,
                  mlff_precision precision, const mlff_batch *batch, bool repeats)
{
    support_results got = compute(model, gpu, batch);
    const size_t n = 3 * (size_t)expected->n_atoms, s = (size_t)expected->n_systems;
    double square = 0, worst = 0, stress = 0, largest = 1e-12;
    for (size_t k = 0; k < n; k++) square += pow(got.r.forces[k] - expected->r.forces[k], 2);
    for (size_t k = 0; k < s; k++) {
        const double off = fabs(got.r.energies[k] - expected->r.energies[k]) / (batch->first_atom[k + 1] - batch->first_atom[k]);
        if (!(off < INFINITY)) fail_msg("%s: energy %zu is %g, %g expected", what, k, got.r.energies[k], expected->r.energies[k]);
        worst = fmax(worst, off);
    }
    for (size_t k = 0; k < 6 * s && got.r.stresses; k++) {
        if (isnan(got.r.stresses[k]) != isnan(expected->r.stresses[k]))
            fail_msg("%s: stress %zu is %g", what, k, got.r.stresses[k]);
        if (isnan(got.r.stresses[k])) continue;
        stress = fmax(stress, fabs(got.r.stresses[k] - expected->r.stresses[k]));
        largest = fmax(largest, fmax(fabs(expected->r.stresses[k]), stress_floor(batch, k / 6)));
    }
    const double force = sqrt(square / (double)n) / fmax(rms(expected->r.forces, n), FORCE_FLOOR);
    printf("%s: forces %.1e, energy %.1e eV per atom, stress %.1e\n", what, force, worst, stress / largest);
    if (!(force <= tolerance[precision]) || worst > tolerance[precision] || stress > 2 * tolerance[precision] * largest)
        fail_msg("%s: forces %.2e, energy %.2e eV per atom, stress %.2e of %.2e", what, force, worst, stress, largest);
    if (repeats) check_repeated(gpu, model, batch, &got);
    if (repeats || expected->r.force_errors) check_energies_alone(gpu, batch, &got);
    if (expected->r.force_errors) check_force_errors(what, expected, gpu, precision, batch, &got);
    support_results_free(&got);
}

static void check_batch(const char *what, const mlff_model *model, mlff_evaluator *gpu, mlff_precision precision,
                        const mlff_batch *batch)
{
    support_results expected = compute_reference(model, batch);
    // Where a computation takes seconds, a batch alone is repeated, by each kind of kernel.
    check(what, model, &expected, gpu, precision, batch,
          !gpu_is_emulated() || (precision == MLFF_FLOAT32 && batch->n_systems > 1));
    free_reference(&expected);
}

static void check_system(const char *what, const mlff_model *model, mlff_evaluator *gpu, mlff_precision precision,
                         mlff_system *system)
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    check_batch(what, model, gpu, precision, &batch);
    mlff_system_destroy(system);
}

// In float32 nodes have no networks: clusters of 8 for them run the kernels of tile=7.
static bool is_repetition(const char *plan, mlff_precision precision)
{
    return precision == MLFF_FLOAT32 && strcmp(plan, "tile=8") == 0;
}

// The emulated GPU, which takes seconds for a plan, has one fast mode of each but the last, in turn.
static bool is_left_out(size_t plan, size_t n_plans, mlff_precision precision)
{
    return gpu_is_emulated() && plan + 1 < n_plans && precision == (plan % 2 == 0 ? MLFF_TF32 : MLFF_BF16);
}

// The systems with every plan and in every precision of a GPU, against one reference for all; frees them.
static void check_plans(const char *what, const mlff_model *model, const char *const *plans, size_t n_plans, int n_systems,
                        mlff_system *const *systems)
{
    enum { MOST = 3 };
    int32_t first_atom[MOST][2];
    mlff_batch batches[MOST];
    support_results expected[MOST];
    assert_true(n_systems <= MOST);
    for (int k = 0; k < n_systems; k++) {
        mlff_batch_from_system(systems[k], first_atom[k], &batches[k]);
        expected[k] = compute_reference(model, &batches[k]);
    }
    for (size_t t = 0; t < n_plans; t++)
        for (int p = MLFF_FLOAT32; p <= MLFF_BF16; p++) {
            if (p == MLFF_FLOAT64 || is_repetition(plans[t], (mlff_precision)p) || is_left_out(t, n_plans, (mlff_precision)p))
                continue;
            char text[96];
            assert_int_equal(setenv("MLFF_CUDA_PLAN", plans[t], 1), 0);
            mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA, (mlff_precision)p);
            for (int k = 0; k < n_systems; k++) {
                snprintf(text, sizeof text, "%s, system %d of %d atoms, %s, precision %d", what, k, systems[k]->n_atoms, plans[t],
                         p);
                const bool repeats = !gpu_is_emulated() || (p == MLFF_FLOAT32 && k == 0);
                check(text, model, &expected[k], gpu, (mlff_precision)p, &batches[k], repeats);
            }
            mlff_evaluator_destroy(gpu);
        }
    unsetenv("MLFF_CUDA_PLAN");
    for (int k = 0; k < n_systems; k++) {
        free_reference(&expected[k]);
        mlff_system_destroy(systems[k]);
    }
}

static void test_tiles_and_precisions(void **state)
{
    (void)state;
    static const char *const plans[] = {"tile=0", "tile=1", "tile=2", "tile=3", "tile=4", ""};
    if (!have_gpu()) return;
    mlff_model *model = small_model("orb-v2", 3);
    mlff_system *system = support_random_system(5, 0, 1.0, 2);
    check_plans("tiles", model, plans, sizeof plans / sizeof *plans, 1, &system);
    mlff_model_destroy(model);
}

// Networks of edges by one kernel each, 512 wide, and in the fast modes of nodes: 280 edges, of which 24 begin a third tile of 128 rows, or a fifth of
// 64; no edges. Clusters of 2 blocks, of 4, and of 4 for edges and 8 for nodes; clusters of 2 in tiles of 32, 48, 64 and 80 rows.
static void test_networks(void **state)
{
    (void)state;
    static const char *const plans[] = {"tile=5", "tile=7", "tile=8", "tile=9", "tile=10", "tile=11", "tile=12"};
    if (!have_gpu()) return;
    mlff_model *model = model_of("orb-v2", "n_layers=2; hidden=512; seed=17");
    mlff_system *systems[] = {support_random_system(14, 1, 1.2, 3), support_random_system(1, 0, 1.0, 5),
                              support_random_system(14, 0, 1.2, 3)};
    check_plans("networks", model, plans, sizeof plans / sizeof *plans, 3, systems);
    mlff_model_destroy(model);
}

// Three systems of different sizes in one batch; frees them.
static void check_joined(const mlff_model *model, mlff_evaluator *gpu, mlff_precision precision, mlff_system *systems[3])
{
    joined all = join(systems, 3);
    check_batch("a batch", model, gpu, precision, &all.batch);
    unjoin(&all);
    for (int k = 0; k < 3; k++) mlff_system_destroy(systems[k]);
}

// Systems with few edges or none, and a batch of different sizes.
static void check_shapes(const mlff_model *model, mlff_evaluator *gpu)
{
    check_system("one atom", model, gpu, MLFF_FLOAT32, support_random_system(1, 0, 1.0, 5));
    check_system("one atom in a cell", model, gpu, MLFF_FLOAT32, support_random_system(1, 1, 1.0, 5));
    mlff_system *apart = support_random_system(2, 0, 1.0, 6);
    apart->positions[0] += 40;
    check_system("no edges", model, gpu, MLFF_FLOAT32, apart);
    mlff_system *systems[3] = {support_random_system(3, 0, 1.0, 8), support_random_system(4, 1, 1.2, 9),
                               support_random_system(1, 0, 1.0, 10)};
    check_joined(model, gpu, MLFF_FLOAT32, systems);
}

// All layers by one kernel: more layers than slots of its exchange; edges that end within a group of 32 and within one of 16; more atoms than 8; no
// edges; a batch. With 10 neighbors the emulated GPU, which has 32 multiprocessors, takes this kernel, too; with 20 an H100 has blocks with two
// groups of edges.
static void test_layers_together(void **state)
{
    (void)state;
    static const char *const plans[] = {""};
    if (!have_gpu()) return;
    mlff_model *model = model_of("orb-v2", "n_layers=5; hidden=512; max_neighbors=10; seed=19");
    mlff_system *systems[] = {support_random_system(14, 1, 1.2, 3), support_random_system(5, 0, 1.0, 2)};
    check_plans("layers together", model, plans, 1, 2, systems);
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA, MLFF_FLOAT32);
    check_shapes(model, gpu);
    mlff_evaluator_destroy(gpu);
    mlff_model_destroy(model);
    model = model_of("orb-v2", "n_layers=2; hidden=512; seed=20");
    mlff_system *many_edges = support_random_system(14, 1, 1.2, 3);
    check_plans("layers together, 280 edges", model, plans, 1, 1, &many_edges);
    mlff_model_destroy(model);
}

// A layer's nodes by one kernel: units of 16 atoms that end within 8; more units than are computed at once, 54 atoms on the emulated GPU and 135 on an
// H100; more layers than slots of its exchange; more than 16 edges of an atom; a batch.
static void test_nodes_together(void **state)
{
    (void)state;
    static const char *const plans[] = {""};
    if (!have_gpu()) return;
    mlff_model *model = model_of("orb-v2", "n_layers=3; hidden=512; max_neighbors=4; seed=23");
    mlff_system *systems[] = {support_random_system(54, 1, 1.2, 3), support_random_system(21, 0, 1.0, 2),
                              gpu_is_emulated() ? NULL : support_random_system(135, 1, 1.2, 4)};
    check_plans("nodes together", model, plans, 1, gpu_is_emulated() ? 2 : 3, systems);
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA, MLFF_TF32);
    mlff_system *parts[3] = {support_random_system(5, 0, 1.0, 8), support_random_system(12, 1, 1.2, 9),
                             support_random_system(1, 0, 1.0, 10)};
    check_joined(model, gpu, MLFF_TF32, parts);
    mlff_evaluator_destroy(gpu);
    mlff_model_destroy(model);
    model = model_of("orb-v2", "n_layers=2; hidden=512; max_neighbors=40; seed=24");
    mlff_system *dense = support_random_system(17, 1, 1.0, 6);
    check_plans("nodes together, 40 edges of an atom", model, plans, 1, 1, &dense);
    mlff_model_destroy(model);
}

// Six atoms on a line, or `off` Å beside it in turn: no rotation about a line is caused by forces.
static mlff_system *line_of_atoms(double off)
{
    static const int elements[] = {1, 6, 7, 8, 6, 1};
    static const double along[3] = {0.6, 0.48, 0.64}, aside[3] = {0.8, -0.36, -0.48};
    mlff_system *line;
    assert_ok(mlff_system_create(6, &line));
    for (int i = 0; i < 6; i++) {
        line->species[i] = elements[i];
        for (int c = 0; c < 3; c++) line->positions[3 * i + c] = 1.25 * i * along[c] + (i % 2 ? off : -off) * aside[c];
    }
    return line;
}

static void test_systems(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    mlff_model *model = small_model("orb-v2", 4);
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA, MLFF_FLOAT32);
    check_shapes(model, gpu);
    check_system("two atoms", model, gpu, MLFF_FLOAT32, support_random_system(2, 0, 1.0, 6));
    check_system("7 atoms, periodic", model, gpu, MLFF_FLOAT32, support_random_system(7, 1, 1.2, 7));
    check_system("a line", model, gpu, MLFF_FLOAT32, line_of_atoms(0));
    check_system("almost a line", model, gpu, MLFF_FLOAT32, line_of_atoms(1e-3));
    mlff_evaluator_destroy(gpu);
    mlff_model_destroy(model);
}

// Face-centered aluminum: shells of 12, 6 and 24 neighbors, so that the 20 nearest end inside the third one. The GPU warns as the CPU does,
// once; displaced atoms have no ties.
static void test_ties(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    for (int displaced = 0; displaced < 2; displaced++) {
        mlff_model *model = small_model("orb-v2", 7);
        mlff_system *system;
        mlff_batch batch;
        int32_t first_atom[2];
        char warnings[2][SUPPORT_WARNING_BYTES] = {"", ""};
        assert_ok(mlff_system_build("aluminum", 4, 0, &system));
        assert_int_equal(system->n_atoms, 4);
        if (displaced) assert_ok(mlff_system_perturb(system, 300.0, 7));
        mlff_batch_from_system(system, first_atom, &batch);
        for (int kind = MLFF_CPU; kind <= MLFF_CUDA; kind++) {
            mlff_evaluator *evaluator = evaluator_on(model, (mlff_device_kind)kind, MLFF_FLOAT32);
            double energy;
            mlff_warning_handler_set(support_keep_warning, warnings[kind != MLFF_CPU]);
            for (int call = 0; call < 2; call++)
                assert_ok(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy}));
            mlff_warning_handler_set(NULL, NULL);
            mlff_evaluator_destroy(evaluator);
        }
        assert_string_equal(warnings[1], warnings[0]);
        if (displaced)
            assert_string_equal(warnings[1], "");
        else
            assert_non_null(strstr(warnings[1], "4 of 4 atoms"));
        mlff_system_destroy(system);
        mlff_model_destroy(model);
    }
}

// Silicon, pressed so that its atoms repel each other, in a left-handed cell.
static mlff_system *left_handed_silicon(void)
{
    mlff_system *system;
    assert_ok(mlff_system_build("silicon", 8, 0, &system));
    assert_ok(mlff_system_perturb(system, 300, 3));
    for (int k = 0; k < 24; k++) system->positions[k] *= 0.8;
    for (int k = 0; k < 9; k++) system->cell[k] *= k < 3 ? -0.8 : 0.8;
    return system;
}

// Bessel functions and harmonics, SiLU, root mean square norms, repulsion: atoms down to 0.6 Å; a cap of 6 edges.
static void test_v3(void **state)
{
    (void)state;
    static const char *const plans[] = {""};
    if (!have_gpu()) return;
    mlff_model *model = model_of("orb-v3-direct", "n_layers=2; hidden=128; max_neighbors=6; seed=9");
    mlff_system *systems[] = {support_random_system(6, 1, 0.6, 12), left_handed_silicon(), support_random_system(9, 0, 0.6, 13)};
    check_plans("v3", model, plans, 1, 3, systems);
    mlff_model_destroy(model);
}

// Twice as large: no pair is within the range of the repulsion, whose forces are larger than the networks'.
static mlff_system *spread(mlff_system *system)
{
    for (int k = 0; k < 3 * system->n_atoms; k++) system->positions[k] *= 2;
    for (int k = 0; k < 9; k++) system->cell[k] *= 2;
    return system;
}

// Forces and stress are the derivative of the energy, the repulsion is the mean over atoms; every kind of tile.
static void test_conservative(void **state)
{
    (void)state;
    static const char *const tiles[] = {"tile=0", "tile=1", "tile=2", "tile=3", "tile=4", ""};
    if (!have_gpu()) return;
    mlff_model *model = model_of("orb-v3-conservative", "n_layers=3; hidden=128; max_neighbors=6; seed=11");
    mlff_system *systems[] = {support_random_system(5, 1, 0.8, 14), spread(support_random_system(4, 1, 1.2, 23))};
    check_plans("conservative", model, tiles, sizeof tiles / sizeof *tiles, 2, systems);
    mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA, MLFF_FLOAT32);
    check_shapes(model, gpu);
    check_system("conservative, 9 atoms", model, gpu, MLFF_FLOAT32, support_random_system(9, 0, 0.8, 13));
    check_system("conservative, beyond the repulsion", model, gpu, MLFF_FLOAT32, spread(support_random_system(8, 1, 1.0, 22)));
    mlff_evaluator_destroy(gpu);
    mlff_model_destroy(model);
}

// Charge and spin of each system; the same atoms with other charges; none given is an error.
static void test_charge_and_spin(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    for (int conservative = 0; conservative < 2; conservative++) {
        mlff_model *model;
        assert_ok(support_create(&model, conservative ? "orb-v3-conservative" : "orb-v3-direct",
                                 "n_layers=2; hidden=128; conditioned=true; seed=15"));
        with_norms(model);
        mlff_evaluator *gpu = evaluator_on(model, MLFF_CUDA, MLFF_FLOAT32);
        mlff_system *systems[2] = {support_random_system(4, 0, 1.0, 16), support_random_system(4, 0, 1.0, 16)};
        joined all = join(systems, 2);
        const double charges[3][2] = {{0, 1}, {-2, 3}, {1, 0}}, spins[3][2] = {{1, 2}, {3, 0}, {2, 1}};
        for (int k = 0; k < 3; k++) {
            all.batch.charges = charges[k];
            all.batch.spins = spins[k];
            check_batch(conservative ? "conservative, charges" : "direct, charges", model, gpu, MLFF_FLOAT32, &all.batch);
        }
        support_results both = compute(model, gpu, &all.batch);
        assert_true(fabs(both.r.energies[0] - both.r.energies[1]) > 1e-3); // the systems differ by charge and spin alone
        support_results_free(&both);
        all.batch.charges = NULL;
        double energies[2];
        assert_int_equal(mlff_evaluator_compute(gpu, &all.batch, &(mlff_results){.energies = energies}), MLFF_ERR_VALUE);
        unjoin(&all);
        for (int k = 0; k < 2; k++) mlff_system_destroy(systems[k]);
        mlff_evaluator_destroy(gpu);
        mlff_model_destroy(model);
    }
}

// Positions after some steps of NVE, made on the device of the evaluator, follow those made with the float64 reference. The forces of an
// untrained model are small: 3·10⁻⁴ Å is 1 % of the way that the atoms go.
static void follow_dynamics(const char *architecture)
{
    mlff_model *model = small_model(architecture, 6);
    mlff_dynamics_options options = mlff_dynamics_options_default();
    double first[3 * 4];
    options.timestep_fs = 0.5;
    options.temperature_kelvin = 100;
    for (int kind = MLFF_CPU; kind <= MLFF_CUDA; kind++) {
        mlff_evaluator *evaluator = evaluator_on(model, (mlff_device_kind)kind, kind == MLFF_CPU ? MLFF_FLOAT64 : MLFF_FLOAT32);
        mlff_system *system = support_random_system(4, 1, 1.5, 21);
        mlff_dynamics *dynamics;
        mlff_dynamics_state after;
        assert_ok(mlff_system_add_masses(system));
        assert_ok(mlff_system_add_velocities(system));
        assert_ok(mlff_system_thermalize(system, 100, 4));
        assert_ok(mlff_dynamics_create_on(evaluator, &options, system, NULL, NULL, &dynamics));
        assert_int_equal(mlff_dynamics_device(dynamics).kind, kind);
        assert_ok(mlff_dynamics_run(dynamics, 7, NULL));
        mlff_dynamics_state_get(dynamics, &after);
        printf("%s, %s: potential energy %.6f eV after 7 steps\n", architecture, kind == MLFF_CPU ? "CPU" : "GPU",
               after.potential_energy);
        if (kind == MLFF_CPU)
            memcpy(first, system->positions, sizeof first);
        else
            assert_true(support_difference(system->positions, first, 12) < 3e-6);
        mlff_dynamics_destroy(dynamics);
        mlff_system_destroy(system);
        mlff_evaluator_destroy(evaluator);
    }
    mlff_model_destroy(model);
}

static void test_dynamics(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    follow_dynamics("orb-v2");
    follow_dynamics("orb-v3-conservative");
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiles_and_precisions),
                                       cmocka_unit_test(test_networks),
                                       cmocka_unit_test(test_layers_together),
                                       cmocka_unit_test(test_nodes_together),
                                       cmocka_unit_test(test_systems),
                                       cmocka_unit_test(test_v3),
                                       cmocka_unit_test(test_ties),
                                       cmocka_unit_test(test_conservative),
                                       cmocka_unit_test(test_charge_and_spin),
                                       cmocka_unit_test(test_dynamics)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
