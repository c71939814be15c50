// SPDX-License-Identifier: MIT
// ANI's GPU kernels, run thread by thread on the CPU (emulate_cuda.h), against the float64 reference: every shape of tile
// and cluster, with the virial and without; the sort by species. No GPU is needed.
// Tolerance: 2e-5 of the rms force, as the goals: float32 sums, and powers whose relative error is some 20 roundings;
// energies 1e-6 of the atoms' sum.
#include "ani_support.h"
#include "gpu/neighbors/cell.h"
#include "model/ani/gpu/ani_gpu.h"

typedef struct shape {
    const char *name;
    int tile, cluster, n_parts, n_multiprocessors; // few of these: an atom's AEV has one warp
    int small, fused_search, wgmma;                // wgmma: blocks of ani_wgmma.cu
} shape;

static int round_up(int n, int unit)
{
    return (n + unit - 1) / unit * unit;
}

// The step's arrays in host memory; what the evaluator does around the kernels.
static void run_step(const mlff_model *model, const mlff_batch *batch, const shape *form, int member, bool virial,
                     support_results *out, gpu_report *report)
{
    const ani_parameters *P = model->parameters;
    ani_gpu_step step = {0};
    int members[ANI_MAX_MEMBERS], n = batch->first_atom[batch->n_systems];
    size_t constants = 0;
    for (int m = 0; m < P->n_members; m++) members[m] = m;
    step.wgmma_blocks = form->wgmma;
    gpu_packer operands = {0};
    ani_gpu_pack(P, model, members, P->n_members, NULL, &constants, NULL, &operands, &step);
    void *block = base_alloc(constants, 1, "constants"), *written = base_alloc(operands.at, 1, "operands");
    ani_gpu_source *sources = base_alloc((size_t)(P->n_members * P->n_species * ANI_GPU_MAX_HIDDEN), sizeof *sources, "weights");
    operands.base = written;
    ani_gpu_pack(P, model, members, P->n_members, block, &constants, block, &operands, &step);
    ani_gpu_list_sources(P, members, P->n_members, sources);
    step.gpu.neighbors.atom_capacity = round_up(n, GPU_ATOM_BLOCK);
    step.gpu.neighbors.system_capacity = batch->n_systems;
    step.gpu.neighbors.row_capacity = 64;
    step.tile = form->tile;
    step.cluster = form->cluster;
    step.warm_code = form->fused_search;
    step.n_parts = form->n_parts < P->n_members ? form->n_parts : P->n_members;
    void *list_arena = base_alloc(gpu_step_arena(&step.gpu, NULL) + 256, 1, "arena");
    void *arena = base_alloc(ani_gpu_arena(&step, NULL) + 256, 1, "arena");
    gpu_step_arena(&step.gpu, (void *)(((uintptr_t)list_arena + 255) / 256 * 256));
    ani_gpu_arena(&step, (void *)(((uintptr_t)arena + 255) / 256 * 256));
    gpu_system *systems = base_alloc((size_t)batch->n_systems, sizeof *systems, "systems");
    int32_t *system_of = base_alloc((size_t)n, sizeof *system_of, "systems");
    for (int s = 0; s < batch->n_systems; s++) {
        systems[s].first = batch->first_atom[s];
        systems[s].n = batch->first_atom[s + 1] - batch->first_atom[s];
        systems[s].flags =
            cell_complete(batch->cells ? batch->cells + 9 * s : NULL, batch->periodic ? batch->periodic + 3 * s : NULL,
                          step.gpu.neighbors.cutoff, &systems[s]);
        for (int i = batch->first_atom[s]; i < batch->first_atom[s + 1]; i++) system_of[i] = s;
    }
    gpu_call call = {.n_atoms = n,
                     .n_systems = batch->n_systems,
                     .want_virial = virial,
                     .member = member,
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
        step.gpu.neighbors.given_pairs = 1;
    }
    step.gpu.call_in = &call;
    const gpu_plan plan = {.n_atoms = n,
                           .n_systems = batch->n_systems,
                           .forces = 1,
                           .virial = virial,
                           .n_multiprocessors = form->n_multiprocessors,
                           .small = form->small,
                           .fused_search = form->fused_search};
    const int wide = step.wgmma_blocks > 0;
    int can, error = wide ? ani_gpu_prepare_wgmma(232448, &can)
                          : ani_gpu_prepare_network((int)ani_gpu_network_bytes(&step, form->tile));
    error |= ani_gpu_prepare_aev((int)ani_gpu_aev_bytes(&step, step.gpu.neighbors.row_capacity));
    error |= ani_gpu_launch_operands(&step, sources, NULL);
    error |= ani_gpu_launch_arrange(&step, &plan, NULL);
    if (!ani_gpu_fuses_search(&step, &plan)) error |= gpu_launch_neighbors(&step.gpu, &plan, NULL);
    if (!ani_gpu_chained(&plan) && !wide) error |= gpu_launch_reverse(&step.gpu, &plan, NULL);
    error |= ani_gpu_launch_aev(&step, &plan, NULL);
    error |= wide ? ani_gpu_launch_wgmma(&step, &plan, NULL) : ani_gpu_launch_network(&step, &plan, NULL);
    if (ani_gpu_sums_apart(&step, &plan)) error |= ani_gpu_launch_sums(&step, &plan, NULL);
    error |= ani_gpu_launch_aev_back(&step, &plan, NULL);
    error |= ani_gpu_launch_forces(&step, &plan, NULL);
    assert_int_equal(error, 0);
    base_free(system_of);
    base_free(systems);
    base_free(arena);
    base_free(list_arena);
    base_free(sources);
    base_free(written);
    base_free(block);
}

static double rms(const double *x, size_t n)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++) sum += x[k] * x[k];
    return sqrt(sum / (double)n);
}

static support_results reference_of(const mlff_model *model, const mlff_batch *batch, int member)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_evaluator *reference;
    char text[16];
    snprintf(text, sizeof text, "%d", member);
    options.precision = MLFF_FLOAT64;
    if (member >= 0) options.members = text;
    assert_ok(mlff_evaluator_create(model, &options, &reference));
    support_results expected = support_compute(reference, batch);
    mlff_evaluator_destroy(reference);
    return expected;
}

static void check(const mlff_model *model, const mlff_batch *batch, const shape *form, int member, bool virial, const char *what)
{
    const double tolerance = 2e-5;
    gpu_report report = {0};
    support_results expected = reference_of(model, batch, member), got = reference_of(model, batch, member);
    size_t n = (size_t)expected.n_atoms, s = (size_t)expected.n_systems;
    double size = 0, difference2 = 0;
    for (size_t i = 0; i < n; i++) size += fabs(expected.r.atom_energies[i]);
    double *arrays[] = {got.r.energies, got.r.atom_energies, got.r.forces, got.r.virials};
    size_t lengths[] = {s, n, 3 * n, 9 * s};
    for (int k = 0; k < (virial ? 4 : 3); k++)
        for (size_t i = 0; i < lengths[k]; i++) arrays[k][i] = NAN; // every element must be written
    run_step(model, batch, form, member, virial, &got, &report);
    for (size_t i = 0; i < 3 * n; i++) difference2 += pow(got.r.forces[i] - expected.r.forces[i], 2);
    double df = sqrt(difference2 / (3.0 * (double)n)), force = fmax(rms(expected.r.forces, 3 * n), 1e-2);
    double de = support_difference(got.r.energies, expected.r.energies, s),
           da = support_difference(got.r.atom_energies, expected.r.atom_energies, n);
    double dv = support_difference(got.r.virials, expected.r.virials, 9 * s), // 0 where they were not asked for
        largest = fmax(support_largest(expected.r.virials, 9 * s), 5e-2);
    if (getenv("MLFF_VERBOSE")) printf("%s, %s: forces off by %.2e of %.2e\n", form->name, what, df, force);
    if (report.flags || !(df <= tolerance * force) || de > 1e-6 * size || da > 1e-6 * size || dv > 5 * tolerance * largest)
        fail_msg("%s, %s: flags %d, forces off by %.2e of %.2e, energies by %.2e of %.2e, atom energies by %.2e, virials by %.2e "
                 "of %.2e",
                 form->name, what, report.flags, df, force, de, size, da, dv, largest);
    support_results_free(&expected);
    support_results_free(&got);
}

static void check_system(const mlff_model *model, const mlff_system *system, const shape *form, const char *what)
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    for (int virial = 0; virial < 2; virial++) check(model, &batch, form, -1, virial, what);
}

static const shape shapes[] = {
    {"tile 16, cluster of 8, block a system", 16, 8, 8, 100, 16, 0, 0},
    {"tile 16, rows with AEVs", 16, 1, 8, 100, 0, 1, 0},
    {"tile 16, rows with AEVs, 4 warps an atom", 16, 1, 8, 5, 0, 1, 0},
    {"tile 16, cluster of 2", 16, 2, 8, 1, 0, 0, 0},
    {"tile 16", 16, 1, 2, 100, 0, 0, 0},
    {"tile 32, cluster of 4", 32, 4, 8, 100, 0, 0, 0},
    {"tile 32", 32, 1, 1, 1, 0, 0, 0},
    {"tile 64", 64, 1, 2, 1, 0, 0, 0},
    {"tile 128, four warps a product", 128, 1, 2, 1, 0, 0, 3},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void test_shapes(void **state)
{
    (void)state;
    mlff_model *model = ani_shaped(&ani_small_2x, 17);
    mlff_system *systems[] = {ani_random_system(19, 4, 1, 1.0, 1), ani_random_system(35, 7, 0, 1.0, 2)};
    for (int k = 0; k < N_SHAPES; k++)
        for (int s = 0; s < 2; s++)
            check_system(model, systems[s], &shapes[k], s ? "35 atoms of 7 elements" : "19 of 4, periodic");
    mlff_system_destroy(systems[0]);
    mlff_system_destroy(systems[1]);
    mlff_model_destroy(model);
}

// Atoms of a species have slots in their order, from a multiple of the tile on; ghosts have none. One block and several; a species of which
// there are ghosts only, and one that is absent.
static void test_sort(void **state)
{
    (void)state;
    mlff_model *model = ani_shaped(&ani_small_2x, 17);
    const ani_parameters *P = model->parameters;
    const int counts[] = {1, 130, 2 * ANI_GPU_SORT_ATOMS, 2 * ANI_GPU_SORT_ATOMS + 1, 5 * ANI_GPU_SORT_ATOMS + 77};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const int n = counts[c];
        ani_gpu_step step = {.n_species = P->n_species, .n_members = 1, .n_parts = 1, .stored_tiles = 1, .tile = 128};
        step.gpu.neighbors.atom_capacity = round_up(n, GPU_ATOM_BLOCK);
        void *arena = base_alloc(ani_gpu_arena(&step, NULL) + 256, 1, "arena");
        ani_gpu_arena(&step, (void *)(((uintptr_t)arena + 255) / 256 * 256));
        int32_t *species = base_alloc((size_t)n, sizeof *species, "atoms"), species_of[MLFF_MAX_ATOMIC_NUMBER + 1];
        unsigned char *owned = base_alloc((size_t)n, 1, "atoms");
        for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) species_of[z] = -1;
        for (int q = 0; q < P->n_species; q++) species_of[P->atomic_number[q]] = q;
        for (int i = 0; i < n; i++) {
            const int q = (int)(base_random_uniform(9, (uint64_t)n, (uint64_t)i) * (P->n_species - 1)); // never the last
            species[i] = P->atomic_number[q];
            owned[i] = q != 1 && base_random_uniform(10, (uint64_t)n, (uint64_t)i) < 0.7;
        }
        const gpu_call call = {.n_atoms = n, .n_systems = 1, .species = species, .owned = owned};
        const gpu_plan plan = {.n_atoms = n, .n_systems = 1};
        step.gpu.call_in = &call;
        step.species_of = species_of;
        assert_int_equal(ani_gpu_launch_arrange(&step, &plan, NULL), 0);
        int next = 0, n_present = 0;
        for (int q = 0; q < P->n_species; q++) {
            bool present = false;
            next = round_up(next, step.tile);
            assert_int_equal(step.groups->first_slot[q], next);
            for (int i = 0; i < n; i++) {
                if (species[i] != P->atomic_number[q]) continue;
                present = true;
                assert_int_equal(step.slot_of[i], owned[i] ? next : -1);
                next += owned[i];
            }
            assert_int_equal(step.groups->rank_of[P->atomic_number[q]], present ? n_present : -1);
            n_present += present;
        }
        assert_int_equal(step.groups->first_slot[P->n_species], round_up(next, step.tile));
        assert_int_equal(step.groups->n_present, n_present);
        base_free(owned);
        base_free(species);
        base_free(arena);
    }
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_sort)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
