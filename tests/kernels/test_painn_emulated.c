// SPDX-License-Identifier: MIT
// The GPU's kernels, run thread by thread on the CPU (emulate_cuda.h), against the float64 reference: every shape of
// tile and edge kernel; self-images, slabs, ghosts, ragged batches, given pairs. No GPU is needed.
// Tolerance: 5e-6 of the rms force for Gaussian radial functions: float32 sums; energies 1e-6 of the atoms' sum.
#include "gpu/neighbors/cell.h"
#include "model/painn/gpu/painn_gpu.h"
#include "support.h"

// The step's arrays in host memory; what the evaluator does around the kernels.
typedef struct rig {
    const mlff_model *model;
    painn_gpu_step step;
    void *block, *arena;
} rig;

static rig make_rig(const mlff_model *model, int n_atoms, int n_systems, int numbers, int row_capacity)
{
    rig r = {.model = model,
             .step = {.gpu.neighbors = {.skin = 0.5, .incoming_room = 1, .row_capacity = row_capacity}, .numbers = numbers}};
    size_t constants = 0;
    painn_gpu_pack(model->parameters, model, painn_radial, NULL, &constants, NULL, &r.step);
    r.block = base_alloc(constants, 1, "constants");
    painn_gpu_pack(model->parameters, model, painn_radial, r.block, &constants, r.block, &r.step);
    r.step.gpu.neighbors.atom_capacity = (n_atoms + GPU_ATOM_BLOCK - 1) / GPU_ATOM_BLOCK * GPU_ATOM_BLOCK;
    r.step.gpu.neighbors.system_capacity = n_systems;
    const size_t own = gpu_step_arena(&r.step.gpu, NULL);
    r.arena = base_alloc(own + painn_gpu_arena(&r.step, NULL) + 256, 1, "arena");
    char *arena = (char *)(((uintptr_t)r.arena + 255) / 256 * 256);
    gpu_step_arena(&r.step.gpu, arena);
    painn_gpu_arena(&r.step, arena + own);
    assert_int_equal(painn_gpu_prepare_node(numbers, r.step.n_features) | painn_gpu_prepare_edge(numbers, r.step.n_features) |
                         painn_gpu_prepare_forces(r.step.n_features),
                     0);
    return r;
}

static void free_rig(rig *r)
{
    base_free(r->arena);
    base_free(r->block);
}

static void run_rig(rig *r, const mlff_batch *batch, const gpu_plan *shape, int cells_on_device, support_results *out,
                    gpu_report *report)
{
    painn_gpu_step *step = &r->step;
    gpu_plan plan = *shape;
    int n = batch->first_atom[batch->n_systems];
    gpu_system *systems = base_alloc((size_t)batch->n_systems, sizeof *systems, "systems");
    int32_t *system_of = base_alloc((size_t)n, sizeof *system_of, "systems");
    for (int s = 0; s < batch->n_systems; s++) {
        const unsigned char *periodic = batch->periodic ? batch->periodic + 3 * s : NULL;
        systems[s].first = batch->first_atom[s];
        systems[s].n = batch->first_atom[s + 1] - batch->first_atom[s];
        systems[s].flags =
            cell_complete(batch->cells ? batch->cells + 9 * s : NULL, periodic, step->gpu.neighbors.cutoff, &systems[s]);
        cell_bins(cell_reach(&step->gpu), &systems[s]);
        if (cells_on_device) {
            systems[s].pending = 1;
            for (int a = 0; a < 3; a++) systems[s].wrapped[a] = periodic[a];
        }
        for (int i = batch->first_atom[s]; i < batch->first_atom[s + 1]; i++) system_of[i] = s;
    }
    gpu_call call = {.n_atoms = n,
                     .n_systems = batch->n_systems,
                     .want_virial = out->r.virials || out->r.stresses,
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
    }
    gpu_step_choose_rows(&step->gpu, !batch->pairs ? 0 : batch->pairs->symmetric ? 1 : 2);
    step->gpu.call_in = &call;
    step->call_above = step->gpu.call;
    plan.n_atoms = n;
    plan.n_systems = batch->n_systems;
    plan.forces = 1;
    plan.virial = call.want_virial;
    plan.n_multiprocessors = 16;
    painn_gpu_plan_rows(&plan, step->n_features);
    int error = gpu_launch_neighbors(&step->gpu, &plan, NULL);
    if (!plan.fused) error |= gpu_launch_reverse(&step->gpu, &plan, NULL);
    if (!plan.fused) error |= painn_gpu_launch_core(step, &plan, NULL);
    if (plan.fused) {
        assert_true(painn_gpu_prepare_fused(step, plan.fused) > 0);
        error |= painn_gpu_launch_fused(step, &plan, NULL);
    }
    for (int l = 0; l < step->n_layers && !plan.fused; l++)
        error |= painn_gpu_launch_message(step, &plan, l, NULL) | painn_gpu_launch_update(step, &plan, l, 0, NULL);
    if (painn_gpu_sums_separate(step, &plan)) error |= painn_gpu_launch_sums(step, &plan, NULL);
    for (int l = step->n_layers - 1; l >= 0 && !plan.fused; l--) {
        error |= painn_gpu_launch_edges(step, &plan, l, NULL);
        if (l > 0) error |= painn_gpu_launch_update(step, &plan, l, 1, NULL);
    }
    error |= painn_gpu_launch_forces(step, &plan, plan.fused, NULL);
    assert_int_equal(error, 0);
    base_free(system_of);
    base_free(systems);
}

static void run_step(const mlff_model *model, const mlff_batch *batch, const gpu_plan *shape, int numbers, int cells_on_device,
                     support_results *out, gpu_report *report)
{
    rig r = make_rig(model, batch->first_atom[batch->n_systems], batch->n_systems, numbers, 64);
    run_rig(&r, batch, shape, cells_on_device, out, report);
    free_rig(&r);
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

// For the results of a step: NaN, as every element must be written.
static support_results unwritten(const mlff_batch *batch)
{
    support_results s = support_results_for(batch);
    double *arrays[] = {s.r.energies, s.r.atom_energies, s.r.forces, s.r.virials};
    const size_t n_systems = (size_t)s.n_systems, n = (size_t)s.n_atoms, lengths[] = {n_systems, n, 3 * n, 9 * n_systems};
    for (int k = 0; k < 4; k++)
        for (size_t i = 0; i < lengths[k]; i++) arrays[k][i] = NAN;
    return s;
}

static void check(const mlff_model *model, const mlff_batch *batch, const gpu_plan *shape, int cells_on_device, double tolerance,
                  const char *what)
{
    gpu_report report = {0};
    support_results expected = reference_of(model, batch), got = unwritten(batch);
    size_t n = (size_t)expected.n_atoms, s = (size_t)expected.n_systems;
    double size = 0;
    for (size_t i = 0; i < n; i++) size += fabs(expected.r.atom_energies[i]);
    run_step(model, batch, shape, PAINN_GPU_SPLIT_HALVES, cells_on_device, &got, &report);
    double df = support_difference(got.r.forces, expected.r.forces, 3 * n), force = rms(expected.r.forces, 3 * n);
    double de = support_difference(got.r.energies, expected.r.energies, s),
           da = support_difference(got.r.atom_energies, expected.r.atom_energies, n);
    double dv = support_difference(got.r.virials, expected.r.virials, 9 * s), virial = support_largest(expected.r.virials, 9 * s);
    if (report.flags || df > 4 * tolerance * force || de > 1e-6 * size || da > 1e-6 * size || dv > 10 * tolerance * virial)
        fail_msg(
            "%s: flags %d, forces off by %.2e of %.2e, energies by %.2e of %.2e, atom energies by %.2e, virials by %.2e of %.2e",
            what, report.flags, df, force, de, size, da, dv, virial);
    // Without virials small systems' energies are summed concurrently with the forces: the same bits.
    support_results without = unwritten(batch), all = without;
    without.r.virials = without.r.stresses = NULL;
    run_step(model, batch, shape, PAINN_GPU_SPLIT_HALVES, cells_on_device, &without, &report);
    assert_memory_equal(without.r.energies, got.r.energies, s * sizeof(double));
    assert_memory_equal(without.r.atom_energies, got.r.atom_energies, n * sizeof(double));
    assert_memory_equal(without.r.forces, got.r.forces, 3 * n * sizeof(double));
    assert_int_equal(report.flags, 0);
    support_results_free(&all);
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
    mlff_model *model;
    assert_ok(support_create(&model, "painn", "n_features=%d; n_layers=%d; radial_basis=%s", F, L, basis));
    return model;
}

static void test_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        gpu_plan plan;
    } shapes[] = {
        {"tile 16, table in shared memory", {.tile = 16}},
        {"wgmma tile 32, table in shared memory", {.tile = 32, .wgmma = 1, .edge_mode = PAINN_GPU_TABLE_SHARED}},
        {"wgmma tile 16, four rows a warp", {.tile = 16, .wgmma = 1, .edge_mode = PAINN_GPU_SHORT_ROWS}},
        {"tile 16, a block for each row", {.tile = 16, .edge_mode = PAINN_GPU_ROW_BLOCK}},
        {"wgmma tile 24, a block for each row", {.tile = 24, .wgmma = 1, .edge_mode = PAINN_GPU_ROW_BLOCK}},
        {"wgmma tile 8", {.tile = 8, .wgmma = 1}},
        {"wgmma tile 16", {.tile = 16, .wgmma = 1}},
    };
    molecules m;
    make_molecules(&m);
    mlff_model *model = untrained(128, 3, "gaussian"), *narrow = untrained(64, 2, "bessel"),
               *narrowest = untrained(32, 2, "gaussian"), *flat = untrained(128, 1, "gaussian");
    for (size_t k = 0; k < (SUPPORT_SANITIZED ? 3 : sizeof shapes / sizeof *shapes); k++)
        check(model, &m.batch, &shapes[k].plan, 0, 5e-6, shapes[k].name);
    check(narrowest, &m.batch, &shapes[0].plan, 0, 5e-6, "32 features");
    check(narrowest, &m.batch, &shapes[2].plan, 0, 5e-6, "32 features, a block for each row");
    // Bessel functions oscillate: 128 intervals hold them to 1e-5.
    for (size_t k = 0; k < (SUPPORT_SANITIZED ? 2 : sizeof shapes / sizeof *shapes); k++)
        check(narrow, &m.batch, &shapes[k].plan, 0, 2e-5, "64 features, Bessel");
    check(flat, &m.batch, &shapes[5].plan, 0, 5e-6, "one layer");
    mlff_model_destroy(model);
    mlff_model_destroy(narrow);
    mlff_model_destroy(narrowest);
    mlff_model_destroy(flat);
}

// Two atoms of the first benzene pushed to 0.37 of their bond and the lone atom's neighbors left alone: the core repulsion, in energies,
// forces and virials, with layers one by one and fused; its forces of some 1e3 eV/Å decide the tolerance, 5e-6 of them.
static void test_core_repulsion(void **state)
{
    (void)state;
    const gpu_plan apart = {.tile = 16}, fused = {.fused = PAINN_GPU_ONE_TILE};
    mlff_model *narrow, *wide;
    molecules m;
    make_molecules(&m);
    for (int c = 0; c < 3; c++) m.positions[3 + c] = m.positions[c] + 0.37 * (m.positions[3 + c] - m.positions[c]);
    assert_ok(support_create(&narrow, "painn", "n_features=64; n_layers=1; core_repulsion=0.7; elements=H,C,O"));
    assert_ok(support_create(&wide, "painn", "n_features=128; n_layers=1; core_repulsion=0.7; elements=H,C,O"));
    check(narrow, &m.batch, &apart, 0, 5e-6, "core repulsion");
    check(wide, &m.batch, &fused, 0, 5e-6, "core repulsion after fused layers");
    mlff_model_destroy(narrow);
    mlff_model_destroy(wide);
}

// Fused layers: tiles of 8 atoms, the last one with one to all atoms; in clusters of one tile and of two; rows longer than a warp, with
// images; one layer; and the edge modes. Clusters of two tiles give the same bits as clusters of one.
static void test_layers(void **state)
{
    (void)state;
    const gpu_plan one = {.fused = PAINN_GPU_ONE_TILE}, two = {.fused = PAINN_GPU_CLUSTER_OF_TWO},
                   doubled = {.fused = PAINN_GPU_TWO_TILES};
    molecules m;
    make_molecules(&m);
    mlff_model *model = untrained(128, 3, "gaussian"), *flat = untrained(128, 1, "gaussian");
    if (!SUPPORT_SANITIZED) check(model, &m.batch, &one, 0, 5e-6, "four tiles");
    check(model, &m.batch, &doubled, 0, 5e-6, "two tiles a cluster");
    for (int n = 1; n <= 12; n += n < 7 ? 6 : n == 7 ? 1 : 4) { // 1, 7, 8, 12 atoms
        if (SUPPORT_SANITIZED && n % 8 < 4) continue;
        mlff_batch part = m.batch;
        part.n_systems = 1;
        part.first_atom = (int32_t[]){0, n};
        check(model, &part, &one, 0, 5e-6, "a tile a cluster");
        check(n == 12 ? flat : model, &part, &one, 0, 5e-6, "one layer");
        check(n == 12 ? flat : model, &part, &doubled, 0, 5e-6, "two tiles a cluster");
        if (n <= 8) continue;
        check(model, &part, &two, 0, 5e-6, "two tiles a cluster of 16 blocks");
        support_results a = unwritten(&part), b = unwritten(&part);
        gpu_report report = {0};
        for (int numbers = PAINN_GPU_SPLIT_HALVES; numbers <= PAINN_GPU_BFLOATS; numbers++) {
            run_step(model, &part, &one, numbers, 0, &a, &report);
            run_step(model, &part, &two, numbers, 0, &b, &report);
            assert_memory_equal(a.r.forces, b.r.forces, sizeof(double) * 36);
        }
        support_results_free(&a);
        support_results_free(&b);
    }
    double cell[9] = {4.2, 0, 0, 0, 4.2, 0, 0, 0, 4.2}, positions[21];
    const unsigned char periodic[3] = {1, 1, 1};
    for (int k = 0; k < 21; k++) positions[k] = 2.1 * (k / 3 >> k % 3 & 1) + 0.2 * sin(5 * k + 1);
    mlff_batch dense = {.n_systems = 1,
                        .first_atom = (int32_t[]){0, 7},
                        .species = (int[]){6, 1, 8, 6, 7, 6, 1},
                        .positions = positions,
                        .cells = cell,
                        .periodic = periodic};
    check(model, &dense, &one, 0, 5e-6, "some 50 neighbors each");
    check(model, &dense, &doubled, 0, 5e-6, "some 50 neighbors each, two tiles a cluster");
    for (int mode = PAINN_GPU_TABLE_SHARED; mode <= PAINN_GPU_ROW_BLOCK; mode++) {
        const gpu_plan apart = {.tile = 16, .edge_mode = mode};
        check(model, &dense, &apart, 0, 5e-6, "some 50 neighbors each, a kernel for each part");
    }
    for (int F = 32; F <= 64; F *= 2) { // fewer blocks for a tile, more slots for weights
        mlff_model *narrow = untrained(F, F == 64 ? 2 : 3, "gaussian");
        mlff_batch benzene = m.batch;
        benzene.n_systems = 1;
        benzene.first_atom = (int32_t[]){0, 12};
        check(narrow, &m.batch, &one, 0, 5e-6, "few features, four tiles");
        check(narrow, &m.batch, &doubled, 0, 5e-6, "few features, two tiles a cluster");
        check(narrow, &benzene, &two, 0, 5e-6, "few features, one cluster for two tiles");
        check(narrow, &dense, &doubled, 0, 5e-6, "few features, some 50 neighbors each");
        mlff_model_destroy(narrow);
    }
    mlff_model_destroy(model);
    mlff_model_destroy(flat);
}

// The fast modes: forces as exact as operands of 11 and 8 bits allow, with every kind of tile.
static void test_fast_modes(void **state)
{
    (void)state;
    static const gpu_plan shapes[] = {{.tile = 16},
                                      {.tile = 24, .wgmma = 1},
                                      {.tile = 32, .wgmma = 1, .edge_mode = PAINN_GPU_TABLE_SHARED},
                                      {.tile = 16, .edge_mode = PAINN_GPU_ROW_BLOCK},
                                      {.fused = PAINN_GPU_TWO_TILES}};
    static const double most[] = {0, 4e-3, 2e-2}; // 64 untrained features: 2.0e-3
    molecules m;
    make_molecules(&m);
    mlff_model *model = untrained(128, 3, "gaussian"), *narrow = untrained(64, 2, "gaussian");
    for (int numbers = PAINN_GPU_HALVES; numbers <= PAINN_GPU_BFLOATS; numbers++)
        for (int k = SUPPORT_SANITIZED ? 3 : 0; k < (SUPPORT_SANITIZED ? 4 : 7); k++) {
            const mlff_model *of = k < 5 ? model : narrow;
            support_results expected = reference_of(of, &m.batch), got = unwritten(&m.batch);
            gpu_report report = {0};
            run_step(of, &m.batch, &shapes[k % 5], numbers, 0, &got, &report);
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
    const gpu_plan plan = {.tile = 16, .edge_mode = PAINN_GPU_ROW_BLOCK};
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
    const gpu_plan whole = {.fused = PAINN_GPU_ONE_TILE};
    mlff_neighbors *list;
    mlff_pairs pairs;
    assert_ok(mlff_neighbors_create(5.0, 0.0, &list));
    assert_ok(mlff_neighbors_update(list, &batch));
    mlff_neighbors_get(list, &pairs, NULL, NULL);
    pairs.symmetric = 1;
    batch.pairs = &pairs;
    check(model, &batch, &whole, 1, 5e-6, "triclinic, given pairs");
    batch.pairs = NULL;
    mlff_neighbors_destroy(list);
    positions[0] = -20.2; // images away
    positions[4] = 9;
    periodic[1] = 0;
    check(model, &batch, &plan, 0, 5e-6, "slab");
    check(model, &batch, &plan, 1, 5e-6, "slab, cell on the device");
    periodic[0] = 0;
    check(model, &batch, &plan, 1, 5e-6, "wire, cell on the device");
    mlff_model_destroy(model);
}

// Systems for the cell list: several, each in its own kind of box, some of their atoms outside it.
typedef struct boxes {
    int32_t first_atom[6];
    int species[1200];
    double positions[3600], cells[45];
    unsigned char periodic[15];
    mlff_batch batch;
} boxes;

static void make_boxes(boxes *b)
{
    static const struct {
        int n;
        double cell[9];
        unsigned char periodic[3];
    } kinds[5] = {{500, {26, 0, 0, 6, 24, 0, -5, 4, 25}, {1, 1, 1}}, // three bins and more along each axis
                  {200, {9, 0, 0, 0, 31, 0, 2, 0, 18}, {1, 1, 0}},   // its own neighbor along x
                  {300, {14, 0, 0, 0, 14, 0, 0, 0, 60}, {0, 0, 1}},
                  {180, {25, 0, 0, 0, 25, 0, 0, 0, 40}, {0, 0, 0}},
                  {20, {40, 0, 0, 0, 40, 0, 0, 0, 40}, {1, 1, 1}}}; // a gas: bins are larger than they need be
    memset(b, 0, sizeof *b);
    uint64_t seed = 5;
    for (int s = 0, i = 0; s < 5; s++) {
        memcpy(b->cells + 9 * s, kinds[s].cell, sizeof kinds[s].cell);
        memcpy(b->periodic + 3 * s, kinds[s].periodic, 3);
        // Points of a lattice, displaced, so that no two are close.
        int m = (int)ceil(cbrt(kinds[s].n));
        for (int k = 0; k < kinds[s].n; k++, i++) {
            double f[3];
            for (int a = 0; a < 3; a++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                int at = a == 0 ? k % m : a == 1 ? k / m % m : k / m / m;
                f[a] =
                    (at + 0.3 * (double)(seed >> 40) / 16777216.0) / m + (i % 7 == 0 && b->periodic[3 * s + a] ? i % 3 - 1 : 0);
            }
            for (int c = 0; c < 3; c++)
                b->positions[3 * i + c] = f[0] * kinds[s].cell[c] + f[1] * kinds[s].cell[3 + c] + f[2] * kinds[s].cell[6 + c] - 7;
            b->species[i] = i % 2 ? 14 : 8;
        }
        b->first_atom[s + 1] = i;
    }
    b->batch = (mlff_batch){.n_systems = 5,
                            .first_atom = b->first_atom,
                            .species = b->species,
                            .positions = b->positions,
                            .cells = b->cells,
                            .periodic = b->periodic};
}

// Neighbors by the cell list give the rows that all pairs give, bit for bit, whether candidates are new or kept.
static void test_cell_list(void **state)
{
    (void)state;
    const gpu_plan all_pairs = {.tile = 16}, cell_list = {.tile = 16, .cell_list = 1};
    mlff_model *model = untrained(32, 1, "gaussian");
    boxes b;
    make_boxes(&b);
    support_results expected = unwritten(&b.batch), got = unwritten(&b.batch);
    size_t n = (size_t)b.first_atom[5];
    rig of_cell_list = make_rig(model, (int)n, 5, PAINN_GPU_SPLIT_HALVES, 64),
        of_all = make_rig(model, (int)n, 5, PAINN_GPU_SPLIT_HALVES, 64);
    // Displacements between steps (Å), change of the first cell's vector, lists built so far, factor of the first system's lengths. The
    // thin box needs a list in each step. Cells may change as far as the skin allows: 2 % are kept, though pairs come inside the cutoff.
    static const struct {
        double move, grow;
        int first, last, thin, n_lists;
        double scale;
    } steps[] = {{0, 0, 0, 1200, 1, 1, 1},     {0.2, 0, 500, 510, 1, 2, 1}, {0, 0, 0, 0, 0, 3, 1},    {0.1, 0, 0, 1000, 0, 3, 1},
                 {0.06, 0, 5, 6, 0, 3, 1},     {0.2, 0, 40, 50, 0, 4, 1},   {0, 0.01, 0, 0, 0, 4, 1}, {0, 0, 0, 0, 0, 4, 0.98},
                 {0.02, 0, 5, 6, 0, 4, 0.995}, {0, 0, 0, 0, 0, 5, 0.9},     {0, 0, 0, 0, 0, 5, 1.02}, {0, 2, 0, 0, 0, 6, 1}};
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
        gpu_report report = {0}, other = {0};
        if (!steps[k].thin) b.cells[9] = 12.5; // wide enough
        for (int i = steps[k].first; i < steps[k].last; i++) b.positions[3 * i + i % 3] += steps[k].move;
        b.cells[0] += steps[k].grow;
        for (int i = 0; i < 3 * b.first_atom[1]; i++) b.positions[i] *= steps[k].scale;
        for (int c = 0; c < 9; c++) b.cells[c] *= steps[k].scale;
        run_rig(&of_all, &b.batch, &all_pairs, 1, &expected, &other);
        run_rig(&of_cell_list, &b.batch, &cell_list, k % 2, &got, &report);
        assert_int_equal(report.flags, 0);
        assert_int_equal(report.n_pairs, other.n_pairs);
        for (size_t i = 0; i < n; i++) {
            size_t row = i * (size_t)of_all.step.gpu.neighbors.row_capacity;
            assert_int_equal(of_cell_list.step.gpu.neighbors.row_length[i], of_all.step.gpu.neighbors.row_length[i]);
            assert_memory_equal(of_cell_list.step.gpu.neighbors.edges + row, of_all.step.gpu.neighbors.edges + row,
                                sizeof *of_all.step.gpu.neighbors.edges * (size_t)of_all.step.gpu.neighbors.row_length[i]);
        }
        assert_memory_equal(got.r.forces, expected.r.forces, sizeof(double) * 3 * n);
        if (report.n_lists != steps[k].n_lists) fail_msg("step %zu: %d lists made", k, report.n_lists);
    }
    support_results_free(&expected);
    support_results_free(&got);
    free_rig(&of_cell_list);
    free_rig(&of_all);
    mlff_model_destroy(model);
}

// The fused search and one block for each row give the rows of the search of all images (which long rows use), bit for bit: thin cells,
// and a crystal whose atoms are half a cell apart.
static void test_rows(void **state)
{
    (void)state;
    static const gpu_plan plans[2] = {{.tile = 16}, {.tile = 16, .fused_search = GPU_FUSED_ATOMS}};
    mlff_model *model = untrained(64, 1, "gaussian");
    boxes b;
    memset(&b, 0, sizeof b);
    static const struct {
        int n;
        double edge;
        unsigned char periodic[3];
    } kinds[5] = {
        {64, 10.862, {1, 1, 1}}, {8, 5.431, {1, 1, 0}}, {3, 3.1, {1, 1, 1}}, {100, 12.0, {0, 1, 1}}, {70, 14.0, {0, 0, 0}}};
    for (int s = 0, i = 0; s < 5; s++) {
        const double *edge = &kinds[s].edge, shear = s < 2 ? 0.0 : 0.15;
        const double cell[9] = {*edge, shear * *edge, 0, 0, *edge, -2 * shear * *edge, shear * *edge, 0, *edge};
        memcpy(b.cells + 9 * s, cell, sizeof cell);
        memcpy(b.periodic + 3 * s, kinds[s].periodic, 3);
        const int m = s == 0 ? 2 : s == 1 ? 1 : (int)ceil(cbrt(kinds[s].n));
        for (int k = 0; k < kinds[s].n; k++, i++) {
            static const double diamond[8][3] = {{0, 0, 0},          {0, 0.5, 0.5},      {0.5, 0, 0.5},      {0.5, 0.5, 0},
                                                 {0.25, 0.25, 0.25}, {0.25, 0.75, 0.75}, {0.75, 0.25, 0.75}, {0.75, 0.75, 0.25}};
            const int unit = s < 2 ? k / 8 : k, at[3] = {unit % m, unit / m % m, unit / m / m};
            double f[3];
            for (int a = 0; a < 3; a++) f[a] = (at[a] + (s < 2 ? diamond[k % 8][a] : 0.3 * sin(i + 2.0 * a) + 0.3)) / m;
            for (int c = 0; c < 3; c++) b.positions[3 * i + c] = f[0] * cell[c] + f[1] * cell[3 + c] + f[2] * cell[6 + c];
            b.species[i] = i % 2 ? 14 : 8;
        }
        b.first_atom[s + 1] = i;
    }
    b.batch = (mlff_batch){.n_systems = 5,
                           .first_atom = b.first_atom,
                           .species = b.species,
                           .positions = b.positions,
                           .cells = b.cells,
                           .periodic = b.periodic};
    const size_t n = (size_t)b.first_atom[5];
    support_results expected = unwritten(&b.batch), got = unwritten(&b.batch);
    rig all = make_rig(model, (int)n, 5, PAINN_GPU_SPLIT_HALVES, 1040);
    gpu_report reports[3] = {{0}};
    run_rig(&all, &b.batch, &plans[0], 0, &expected, &reports[2]);
    assert_int_equal(reports[2].flags, 0);
    for (int k = 0; k < 2; k++) {
        rig by_row = make_rig(model, (int)n, 5, PAINN_GPU_SPLIT_HALVES, 112);
        run_rig(&by_row, &b.batch, &plans[k], 1 - k, &got, &reports[k]);
        assert_int_equal(reports[k].flags, 0);
        assert_int_equal(reports[k].n_pairs, reports[2].n_pairs);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(by_row.step.gpu.neighbors.row_length[i], all.step.gpu.neighbors.row_length[i]);
            assert_memory_equal(by_row.step.gpu.neighbors.edges + i * 112, all.step.gpu.neighbors.edges + i * 1040,
                                sizeof(gpu_edge) * (size_t)all.step.gpu.neighbors.row_length[i]);
        }
        assert_memory_equal(got.r.forces, expected.r.forces, sizeof(double) * 3 * n);
        free_rig(&by_row);
    }
    support_results_free(&expected);
    support_results_free(&got);
    // One after the other, each of them wrapped by a block for some of its rows.
    for (int s = 0; s < 5; s++) {
        const int at = b.first_atom[s], m = b.first_atom[s + 1] - at, one[2] = {0, m};
        const mlff_batch own = {.n_systems = 1,
                                .first_atom = one,
                                .species = b.species + at,
                                .positions = b.positions + 3 * at,
                                .cells = b.cells + 9 * s,
                                .periodic = b.periodic + 3 * s};
        const gpu_plan together = {.tile = 16, .fused_search = GPU_FUSED_ATOMS + 16};
        support_results results = unwritten(&own);
        rig by_block = make_rig(model, m, 1, PAINN_GPU_SPLIT_HALVES, 112);
        run_rig(&by_block, &own, &together, s % 2, &results, &reports[0]);
        assert_int_equal(reports[0].flags, 0);
        for (int i = 0; i < m; i++) {
            const gpu_edge *got_row = by_block.step.gpu.neighbors.edges + i * 112,
                           *row = all.step.gpu.neighbors.edges + (size_t)(at + i) * 1040;
            assert_int_equal(by_block.step.gpu.neighbors.row_length[i], all.step.gpu.neighbors.row_length[at + i]);
            for (int k = 0; k < by_block.step.gpu.neighbors.row_length[i]; k++) {
                gpu_edge edge = row[k];
                edge.packed -= at * PAINN_GPU_INTERVALS;
                assert_memory_equal(&got_row[k], &edge, sizeof edge);
            }
        }
        free_rig(&by_block);
        support_results_free(&results);
    }
    free_rig(&all);
    mlff_model_destroy(model);
}

static void test_pairs_and_ghosts(void **state)
{
    (void)state;
    const gpu_plan plan = {.tile = 16};
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
    check(model, &m.batch, &plan, 0, 5e-6, "given pairs, ghosts");
    const gpu_plan whole = {.tile = 16, .fused = PAINN_GPU_ONE_TILE}, cell_list = {.tile = 16, .cell_list = 1};
    check(model, &m.batch, &whole, 0, 5e-6, "given pairs, fused layers");
    // Shorter than the cutoff: no others are looked for.
    mlff_neighbors *near;
    mlff_pairs short_pairs;
    assert_ok(mlff_neighbors_create(2.0, 0.0, &near));
    assert_ok(mlff_neighbors_update(near, &m.batch));
    mlff_neighbors_get(near, &short_pairs, NULL, NULL);
    short_pairs.symmetric = 1;
    m.batch.pairs = &short_pairs;
    check(model, &m.batch, &cell_list, 0, 5e-6, "given pairs, of few neighbors");
    // One of them without its reverse.
    support_results all = unwritten(&m.batch), out = all;
    gpu_report report = {0};
    out.r.virials = out.r.stresses = NULL;
    for (int p = short_pairs.first[3]; p < short_pairs.first[4]; p++) ((int32_t *)(uintptr_t)short_pairs.neighbor)[p] = 4;
    run_step(model, &m.batch, &whole, PAINN_GPU_SPLIT_HALVES, 0, &out, &report);
    assert_true(report.flags & GPU_NOT_SYMMETRIC);
    support_results_free(&all);
    mlff_neighbors_destroy(near);
    m.batch.pairs = &pairs;
    // Without their reverses: some rows empty, and of the others every third pair.
    int32_t first[26] = {0}, neighbor[25 * 24];
    for (int i = 0; i < 25; i++) {
        int to = first[i];
        for (int p = pairs.first[i]; p < pairs.first[i + 1] && i % 4 != 3; p++)
            if (p % 3) neighbor[to++] = pairs.neighbor[p];
        first[i + 1] = to;
    }
    pairs = (mlff_pairs){.first = first, .neighbor = neighbor};
    check(model, &m.batch, &plan, 0, 5e-6, "pairs without their reverses");
    const gpu_plan in_blocks = {.tile = 16, .edge_mode = PAINN_GPU_ROW_BLOCK};
    check(model, &m.batch, &in_blocks, 0, 5e-6, "pairs without their reverses, a block a row");
    mlff_neighbors_destroy(list);
    mlff_model_destroy(model);
}

static void test_reports(void **state)
{
    (void)state;
    const gpu_plan plan = {.tile = 16};
    mlff_model *model = untrained(64, 1, "gaussian");
    molecules m;
    make_molecules(&m);
    support_results out = unwritten(&m.batch);
    gpu_report report = {0};
    m.positions[7] = NAN;
    run_step(model, &m.batch, &plan, PAINN_GPU_SPLIT_HALVES, 0, &out, &report);
    assert_true(report.flags & GPU_NOT_FINITE); // others follow from it
    assert_int_equal(report.atom, 2);
    assert_true(isnan(out.r.energies[0]));
    make_molecules(&m);
    memcpy(m.positions, m.positions + 3, 3 * sizeof(double));
    run_step(model, &m.batch, &plan, PAINN_GPU_SPLIT_HALVES, 0, &out, &report);
    assert_int_equal(report.flags, GPU_SAME_POINT);
    make_molecules(&m);
    m.species[3] = 117;
    run_step(model, &m.batch, &plan, PAINN_GPU_SPLIT_HALVES, 0, &out, &report);
    assert_int_equal(report.flags, GPU_ELEMENT);
    support_results_free(&out);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_core_repulsion),
                                       cmocka_unit_test(test_layers), cmocka_unit_test(test_fast_modes),
                                       cmocka_unit_test(test_cells),  cmocka_unit_test(test_cell_list),
                                       cmocka_unit_test(test_rows),   cmocka_unit_test(test_pairs_and_ghosts),
                                       cmocka_unit_test(test_reports)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
