// SPDX-License-Identifier: MIT
// The GPU's kernels, run thread by thread on the CPU (emulate_cuda.h), against the float64 reference: every shape of
// tile, cluster and edge kernel; self-images, slabs, ghosts, ragged batches, handed-in pairs. No GPU is needed.
// Tolerance: 5e-6 of the rms force for Gaussian radial functions: float32 sums; energies 1e-6 of the atoms' sum.
#include "model/painn/painn_cuda_cell.h"
#include "support.h"

// The step's arrays in host memory; what the evaluator does around the kernels.
static void run_step(const mlff_model *model, const mlff_batch *batch, const painn_cuda_plan *shape, int numbers,
                     int cells_on_device, support_results *out, painn_cuda_report *report)
{
    painn_cuda_step step = {.numbers = numbers};
    painn_cuda_plan plan = *shape;
    size_t constants = 0;
    int n = batch->first_atom[batch->n_systems];
    painn_cuda_pack(model->parameters, model, painn_radial, NULL, &constants, NULL, &step);
    void *block = base_alloc(constants, 1, "constants");
    painn_cuda_pack(model->parameters, model, painn_radial, block, &constants, block, &step);
    step.atom_capacity = (n + PAINN_CUDA_ATOM_BLOCK - 1) / PAINN_CUDA_ATOM_BLOCK * PAINN_CUDA_ATOM_BLOCK;
    step.system_capacity = batch->n_systems;
    step.row_capacity = 64;
    void *arena = base_alloc(painn_cuda_arena(&step, NULL) + 256, 1, "arena");
    painn_cuda_arena(&step, (void *)(((uintptr_t)arena + 255) / 256 * 256));
    painn_cuda_system *systems = base_alloc((size_t)batch->n_systems, sizeof *systems, "systems");
    int32_t *system_of = base_alloc((size_t)n, sizeof *system_of, "systems");
    for (int s = 0; s < batch->n_systems; s++) {
        const unsigned char *periodic = batch->periodic ? batch->periodic + 3 * s : NULL;
        systems[s].first = batch->first_atom[s];
        systems[s].n = batch->first_atom[s + 1] - batch->first_atom[s];
        systems[s].flags = cell_complete(batch->cells ? batch->cells + 9 * s : NULL, periodic, step.cutoff, &systems[s]);
        if (cells_on_device) {
            systems[s].pending = 1;
            for (int a = 0; a < 3; a++) systems[s].wrapped[a] = periodic[a];
        }
        for (int i = batch->first_atom[s]; i < batch->first_atom[s + 1]; i++) system_of[i] = s;
    }
    painn_cuda_call call = {.n_atoms = n,
                            .n_systems = batch->n_systems,
                            .want_virial = 1,
                            .systems = systems,
                            .system_of = system_of,
                            .cells = batch->cells,
                            .species = batch->species,
                            .positions = batch->positions,
                            .owned = batch->owned,
                            .report = report,
                            .energies = out->r.energies,
                            .atom_energies = out->r.atom_energies,
                            .forces = out->r.forces,
                            .virials = out->r.virials,
                            .stresses = out->r.stresses};
    if (batch->pairs) {
        call.pair_first = batch->pairs->first;
        call.pair_neighbor = batch->pairs->neighbor;
        call.pair_shift = batch->pairs->shift;
        step.handed_pairs = 1;
    }
    step.call_in = &call;
    plan.n_atoms = n;
    plan.n_systems = batch->n_systems;
    plan.forces = 1;
    plan.n_multiprocessors = 16;
    int error = painn_cuda_prepare_node(step.numbers) | painn_cuda_prepare_edge();
    error |= painn_cuda_launch_list(&step, &plan, NULL) | painn_cuda_launch_reverse(&step, &plan, NULL);
    for (int l = 0; l < step.n_layers; l++)
        error |= painn_cuda_launch_message(&step, &plan, l, NULL) | painn_cuda_launch_mix(&step, &plan, l, 0, NULL);
    for (int l = step.n_layers - 1; l >= 0; l--) {
        error |= painn_cuda_launch_edges(&step, &plan, l, NULL);
        if (l > 0) error |= painn_cuda_launch_mix(&step, &plan, l, 1, NULL);
    }
    error |= painn_cuda_launch_forces(&step, &plan, NULL);
    assert_int_equal(error, 0);
    base_free(system_of);
    base_free(systems);
    base_free(arena);
    base_free(block);
}

static double rms(const double *x, size_t n)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++) sum += x[k] * x[k];
    return sqrt(sum / (double)n);
}

static support_results reference_of(const mlff_model *model, const mlff_batch *batch)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_evaluator *reference;
    options.precision = MLFF_FLOAT64;
    assert_ok(mlff_evaluator_create(model, &options, &reference));
    support_results expected = support_compute(reference, batch);
    mlff_evaluator_destroy(reference);
    return expected;
}

static void check(const mlff_model *model, const mlff_batch *batch, const painn_cuda_plan *shape, int cells_on_device,
                  double tolerance, const char *what)
{
    painn_cuda_report report = {0};
    support_results expected = reference_of(model, batch), got = reference_of(model, batch);
    size_t n = (size_t)expected.n_atoms, s = (size_t)expected.n_systems;
    double size = 0;
    for (size_t i = 0; i < n; i++) size += fabs(expected.r.atom_energies[i]);
    double *arrays[] = {got.r.energies, got.r.atom_energies, got.r.forces, got.r.virials};
    size_t lengths[] = {s, n, 3 * n, 9 * s};
    for (int k = 0; k < 4; k++)
        for (size_t i = 0; i < lengths[k]; i++) arrays[k][i] = NAN; // every element must be written
    run_step(model, batch, shape, PAINN_CUDA_SPLIT_HALVES, cells_on_device, &got, &report);
    double df = support_difference(got.r.forces, expected.r.forces, 3 * n), force = rms(expected.r.forces, 3 * n);
    double de = support_difference(got.r.energies, expected.r.energies, s),
           da = support_difference(got.r.atom_energies, expected.r.atom_energies, n);
    double dv = support_difference(got.r.virials, expected.r.virials, 9 * s), virial = support_largest(expected.r.virials, 9 * s);
    if (report.flags || df > 4 * tolerance * force || de > 1e-6 * size || da > 1e-6 * size || dv > 10 * tolerance * virial)
        fail_msg(
            "%s: flags %d, forces off by %.2e of %.2e, energies by %.2e of %.2e, atom energies by %.2e, virials by %.2e of %.2e",
            what, report.flags, df, force, de, size, da, dv, virial);
    support_results_free(&expected);
    support_results_free(&got);
}

// Two distorted benzenes and a lone atom between them.
typedef struct molecules {
    int32_t first_atom[4];
    int species[25];
    double positions[75];
    mlff_batch batch;
} molecules;

static void make_molecules(molecules *m)
{
    memset(m, 0, sizeof *m);
    m->first_atom[1] = 12;
    m->first_atom[2] = 13;
    m->first_atom[3] = 25;
    m->species[12] = 8;
    for (int copy = 0; copy < 2; copy++)
        for (int k = 0; k < 12; k++) {
            int i = 13 * copy + k;
            double radius = k < 6 ? 1.397 : 2.481;
            m->species[i] = k < 6 ? 6 : 1;
            m->positions[3 * i] = radius * cos(k * BASE_PI / 3) + 0.05 * sin(7 * k + 1 + copy);
            m->positions[3 * i + 1] = radius * sin(k * BASE_PI / 3) + 0.05 * sin(3 * k + 2);
            m->positions[3 * i + 2] = 0.05 * sin(5 * k + 3 * copy);
        }
    m->batch = (mlff_batch){.n_systems = 3, .first_atom = m->first_atom, .species = m->species, .positions = m->positions};
}

static mlff_model *untrained(int F, int L, const char *basis)
{
    mlff_painn_options options = mlff_painn_options_default();
    mlff_model *model;
    options.n_features = F;
    options.n_layers = L;
    options.radial_basis = basis;
    assert_ok(mlff_model_create_painn(&options, &model));
    return model;
}

static void test_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        painn_cuda_plan plan;
    } shapes[] = {
        {"tile 16, warp rows", {.cluster = 1, .tile = 16}},
        {"tile 32, table in shared memory", {.cluster = 1, .tile = 32, .edge_mode = 1}},
        {"cluster 2", {.cluster = 2, .tile = 16}},
        {"cluster 4", {.cluster = 4, .tile = 16, .edge_mode = 1}},
        {"cluster 8, block rows", {.cluster = 8, .tile = 16, .edge_mode = 2}},
    };
    molecules m;
    make_molecules(&m);
    mlff_model *model = untrained(128, 3, "gaussian"), *narrow = untrained(64, 2, "bessel"),
               *flat = untrained(128, 1, "gaussian");
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) check(model, &m.batch, &shapes[k].plan, 0, 5e-6, shapes[k].name);
    // Bessel functions oscillate: 128 intervals hold them to 1e-5.
    for (size_t k = 0; k < 2; k++) check(narrow, &m.batch, &shapes[k].plan, 0, 2e-5, "64 features, Bessel");
    check(flat, &m.batch, &shapes[4].plan, 0, 5e-6, "one layer");
    mlff_model_destroy(model);
    mlff_model_destroy(narrow);
    mlff_model_destroy(flat);
}

// The fast modes: forces as exact as operands of 11 and 8 bits make them, in tiles of every kind.
static void test_fast_modes(void **state)
{
    (void)state;
    static const painn_cuda_plan shapes[] = {
        {.cluster = 1, .tile = 16}, {.cluster = 1, .tile = 32, .edge_mode = 1}, {.cluster = 8, .tile = 16, .edge_mode = 2}};
    static const double most[] = {0, 2e-3, 2e-2};
    molecules m;
    make_molecules(&m);
    mlff_model *model = untrained(128, 3, "gaussian"), *narrow = untrained(64, 2, "gaussian");
    for (int numbers = PAINN_CUDA_HALVES; numbers <= PAINN_CUDA_BFLOATS; numbers++)
        for (int k = 0; k < 4; k++) {
            const mlff_model *of = k < 3 ? model : narrow;
            support_results expected = reference_of(of, &m.batch), got = reference_of(of, &m.batch);
            painn_cuda_report report = {0};
            run_step(of, &m.batch, &shapes[k % 3], numbers, 0, &got, &report);
            for (int i = 0; i < 75; i++) got.r.forces[i] -= expected.r.forces[i];
            double error = rms(got.r.forces, 75) / rms(expected.r.forces, 75);
            if (!(error > most[numbers] / 100 && error < most[numbers]))
                fail_msg("numbers %d, shape %d: force error %.2e", numbers, k, error);
            support_results_free(&expected);
            support_results_free(&got);
        }
    mlff_model_destroy(model);
    mlff_model_destroy(narrow);
}

static void test_cells(void **state)
{
    (void)state;
    const painn_cuda_plan plan = {.cluster = 8, .tile = 16, .edge_mode = 2};
    mlff_model *model = untrained(128, 3, "gaussian");
    int species[3] = {14, 8, 1};
    double positions[9] = {0, 0, 0, 1.5, 0.3, 0.2, 0.2, 1.4, 1.1}, cell[9] = {4.1, 0, 0, 0.7, 3.8, 0, -0.5, 0.6, 4.4};
    unsigned char periodic[3] = {1, 1, 1};
    int32_t first_atom[2] = {0, 3};
    mlff_batch batch = {.n_systems = 1,
                        .first_atom = first_atom,
                        .species = species,
                        .positions = positions,
                        .cells = cell,
                        .periodic = periodic};
    check(model, &batch, &plan, 0, 5e-6, "triclinic, self-images");
    check(model, &batch, &plan, 1, 5e-6, "triclinic, cell on the device");
    positions[0] = -20.2; // images away
    positions[4] = 9;
    periodic[1] = 0;
    check(model, &batch, &plan, 0, 5e-6, "slab");
    check(model, &batch, &plan, 1, 5e-6, "slab, cell on the device");
    periodic[0] = 0;
    check(model, &batch, &plan, 1, 5e-6, "wire, cell on the device");
    mlff_model_destroy(model);
}

static void test_pairs_and_ghosts(void **state)
{
    (void)state;
    const painn_cuda_plan plan = {.cluster = 1, .tile = 16, .edge_mode = 0};
    mlff_model *model = untrained(128, 2, "gaussian");
    molecules m;
    make_molecules(&m);
    mlff_neighbors *list;
    mlff_pairs pairs;
    assert_ok(mlff_neighbors_create(6.0, 0.0, &list)); // longer than the cutoff: what lies beyond is ignored
    assert_ok(mlff_neighbors_update(list, &m.batch));
    mlff_neighbors_get(list, &pairs, NULL, NULL);
    unsigned char owned[25];
    for (int i = 0; i < 25; i++) owned[i] = i % 5 != 0;
    pairs.symmetric = 1;
    m.batch.pairs = &pairs;
    m.batch.owned = owned;
    check(model, &m.batch, &plan, 0, 5e-6, "handed-in pairs, ghosts");
    mlff_neighbors_destroy(list);
    mlff_model_destroy(model);
}

static void test_reports(void **state)
{
    (void)state;
    const painn_cuda_plan plan = {.cluster = 1, .tile = 16, .edge_mode = 0};
    mlff_model *model = untrained(64, 1, "gaussian");
    molecules m;
    make_molecules(&m);
    support_results out = reference_of(model, &m.batch);
    painn_cuda_report report = {0};
    m.positions[7] = NAN;
    run_step(model, &m.batch, &plan, PAINN_CUDA_SPLIT_HALVES, 0, &out, &report);
    assert_true(report.flags & PAINN_CUDA_NOT_FINITE); // others follow from it
    assert_int_equal(report.atom, 2);
    assert_true(isnan(out.r.energies[0]));
    make_molecules(&m);
    memcpy(m.positions, m.positions + 3, 3 * sizeof(double));
    run_step(model, &m.batch, &plan, PAINN_CUDA_SPLIT_HALVES, 0, &out, &report);
    assert_int_equal(report.flags, PAINN_CUDA_SAME_POINT);
    make_molecules(&m);
    m.species[3] = 117;
    run_step(model, &m.batch, &plan, PAINN_CUDA_SPLIT_HALVES, 0, &out, &report);
    assert_int_equal(report.flags, PAINN_CUDA_ELEMENT);
    support_results_free(&out);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_fast_modes), cmocka_unit_test(test_cells),
                                       cmocka_unit_test(test_pairs_and_ghosts), cmocka_unit_test(test_reports)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
