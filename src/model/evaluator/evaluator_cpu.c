// SPDX-License-Identifier: MIT
// evaluator_cpu.c: evaluator on the CPU: neighbor list, a backend of the architecture, sums of what it computes.
#include <string.h>

#include "assemble.h"
#include "atoms/neighbors.h"
#include "core_repulsion.h"
#include "device/cpu.h"
#include "device/team.h"
#include "evaluator.h"
#include "near_pairs.h"
#include "pairs.h"

enum { STAGE_NEIGHBORS, STAGE_GEOMETRY, STAGE_BACKEND }; // then the backend's, then forces

typedef struct cpu_evaluator {
    const mlff_model *model;
    mlff_evaluator_options *options; // the evaluator's
    model_backend *backend;
    mlff_neighbors *neighbors;
    pairs_filter given; // pairs of the caller
    model_graph graph;  // of the batch that was prepared
    const double *vectors_angstrom;
    int member; // −1: the mean
    mlff_stage *stages;
    int n_stages;
    stage_clock clock;
    double *time_ns;       // [n_stages]
    double *vectors;       // [n_pairs][3] model length units, where these are not Å
    double *pair_gradient; // [n_pairs][3]
    double *per_atom;      // [n_atoms] energies or [n_systems], then [n_atoms][3] direct forces, [n_systems][6] stress
    size_t vector_capacity, gradient_capacity, output_capacity;
    double near_radius[MLFF_MAX_ATOMIC_NUMBER + 1]; // near_pairs.h
    bool counts_near;
    int64_t n_computes, n_pairs, n_near_pairs, n_growths;
} cpu_evaluator;

// ---- creation and destruction -------------------------------------------------------------------------------------

static void destroy(void *self)
{
    cpu_evaluator *e = self;
    if (!e) return;
    if (e->backend) e->backend->destroy(e->backend);
    mlff_neighbors_destroy(e->neighbors);
    pairs_filter_free(&e->given);
    base_free(e->stages);
    base_free(e->time_ns);
    base_free(e->vectors);
    base_free(e->pair_gradient);
    base_free(e->per_atom);
    base_free(e);
}

static mlff_status create_stages(cpu_evaluator *e)
{
    e->n_stages = STAGE_BACKEND + e->backend->n_stages + 1;
    if (!(e->stages = base_alloc((size_t)e->n_stages, sizeof *e->stages, "stages")) ||
        !(e->time_ns = base_alloc((size_t)e->n_stages, sizeof *e->time_ns, "stages")))
        return MLFF_ERR_MEMORY;
    e->stages[STAGE_NEIGHBORS] = (mlff_stage){"neighbors", "forward", -1, ""};
    e->stages[STAGE_GEOMETRY] = (mlff_stage){"geometry", "forward", -1, "input check"};
    memcpy(e->stages + STAGE_BACKEND, e->backend->stages, sizeof *e->stages * (size_t)e->backend->n_stages);
    e->stages[e->n_stages - 1] = (mlff_stage){"forces", "backward", -1, "energy sum, stress"};
    e->clock.time_ns = e->time_ns;
    return MLFF_OK;
}

static mlff_status create(const mlff_model *model, mlff_evaluator_options *options, const int *members, int n_members,
                          void **self_out)
{
    mlff_status status = MLFF_OK;
    cpu_evaluator *e = NULL;
    if (options->precision == MLFF_BF16 && !model->architecture->cpu_bfloat16)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s has no bf16 on the CPU; use float32 or float64 there",
                         model->architecture->title);
    options->n_threads = team_size(options->n_threads);
    const bool tiled = options->precision == MLFF_TF32 || options->precision == MLFF_BF16;
    MLFF_TRY(cpu_path_choose(options->cpu_path, tiled, &options->cpu_path));
    if (!(e = base_alloc(1, sizeof *e, "an evaluator"))) return MLFF_ERR_MEMORY;
    e->model = model;
    e->options = options;
    e->member = -1;
    e->counts_near = near_pairs_radii(model, e->near_radius);
    const cpu_options cpu = {.precision = options->precision,
                             .n_threads = options->n_threads,
                             .path = options->cpu_path,
                             .halo = options->halo,
                             .members = members,
                             .n_members = n_members};
    MLFF_TRY(model->architecture->create_cpu(model, &cpu, &e->backend));
    MLFF_TRY(neighbors_create_on(model->cutoff, options->skin_angstrom, options->cpu_path, options->n_threads, &e->neighbors));
    MLFF_TRY(create_stages(e));
    *self_out = e;
    e = NULL;
done:
    destroy(e);
    return status;
}

// ---- a call -------------------------------------------------------------------------------------------------------

static void begin(void *self)
{
    cpu_evaluator *e = self;
    if (e->clock.on) memset(e->time_ns, 0, sizeof(double) * (size_t)e->n_stages);
    e->clock.n_spans = 0;
    stage_begin(&e->clock);
}

// Neighbor list rows, from the caller's pairs or the evaluator's list, with edge vectors in Å.
static mlff_status find_pairs(cpu_evaluator *e, const mlff_batch *batch, model_graph *graph)
{
    mlff_status status = MLFF_OK;
    mlff_pairs pairs;
    if (batch->pairs) {
        MLFF_TRY(pairs_filter_update(&e->given, batch, e->model->cutoff));
        pairs_filter_get(&e->given, &pairs, &graph->vectors, &graph->reverse);
    } else {
        MLFF_TRY(mlff_neighbors_update(e->neighbors, batch));
        mlff_neighbors_get(e->neighbors, &pairs, &graph->vectors, &graph->reverse);
    }
    graph->first = pairs.first;
    graph->neighbor = pairs.neighbor;
    graph->n_pairs = pairs.first[graph->n_atoms];
done:
    return status;
}

// Results that need more than the energy.
static bool wants_derivatives(const mlff_results *results)
{
    return results->forces || results->stresses || results->virials || results->atom_virials || results->member_forces ||
           results->force_deviations;
}

static size_t output_size(const cpu_evaluator *e)
{
    const size_t n_atoms = (size_t)e->graph.n_atoms, n_systems = (size_t)e->graph.n_systems;
    const unsigned has = e->model->outputs;
    return (has & MODEL_ATOM_ENERGY ? n_atoms : n_systems) + (has & MODEL_ATOM_FORCE ? 3 * n_atoms : 0) +
           (has & MODEL_STRESS ? 6 * n_systems : 0);
}

static model_outputs place_outputs(const cpu_evaluator *e, const mlff_results *results)
{
    const bool derivatives = wants_derivatives(results);
    const size_t n_atoms = (size_t)e->graph.n_atoms, n_systems = (size_t)e->graph.n_systems;
    const unsigned has = e->model->outputs;
    double *at = e->per_atom;
    model_outputs outputs = {.force_error = results->force_errors}; // the unit follows: assemble_results
    *(has & MODEL_ATOM_ENERGY ? &outputs.atom_energy : &outputs.system_energy) = at;
    at += has & MODEL_ATOM_ENERGY ? n_atoms : n_systems;
    if (!derivatives) return outputs;
    if (has & MODEL_PAIR_GRADIENT) outputs.pair_gradient = e->pair_gradient;
    if (has & MODEL_ATOM_FORCE) {
        outputs.atom_force = at;
        at += 3 * n_atoms;
    }
    if (has & MODEL_STRESS) {
        outputs.stress = at;
        memset(at, 0, sizeof *at * 6 * n_systems);
    }
    return outputs;
}

// Buffers for a call; edge vectors in the model's unit.
static mlff_status reserve(cpu_evaluator *e, bool derivatives)
{
    mlff_status status = MLFF_OK;
    model_graph *graph = &e->graph;
    const size_t n_pairs = (size_t)graph->n_pairs, old = e->vector_capacity + e->gradient_capacity + e->output_capacity;
    const double unit = e->model->length_unit;
    if (unit != 1.0) {
        MLFF_TRY(base_grow(&e->vectors, &e->vector_capacity, 3 * n_pairs, sizeof(double), "edge vectors"));
        for (size_t k = 0; k < 3 * n_pairs; k++) e->vectors[k] = graph->vectors[k] / unit;
        graph->vectors = e->vectors;
    }
    if (derivatives && e->model->outputs & MODEL_PAIR_GRADIENT)
        MLFF_TRY(base_grow(&e->pair_gradient, &e->gradient_capacity, 3 * n_pairs, sizeof(double), "pair gradients"));
    MLFF_TRY(base_grow(&e->per_atom, &e->output_capacity, output_size(e), sizeof(double), "energies of atoms"));
    if (old != e->vector_capacity + e->gradient_capacity + e->output_capacity) e->n_growths++;
done:
    return status;
}

static mlff_status prepare(void *self, const mlff_batch *batch, const mlff_results *results)
{
    mlff_status status = MLFF_OK;
    cpu_evaluator *e = self;
    if (batch->location != MLFF_HOST || results->location != MLFF_HOST)
        return mlff_fail(MLFF_ERR_USAGE, "this evaluator runs on the CPU; batch and results must live in host memory");
    e->graph = (model_graph){.n_systems = batch->n_systems,
                             .n_atoms = batch->first_atom[batch->n_systems],
                             .first_atom = batch->first_atom,
                             .species = batch->species,
                             .owned = batch->owned,
                             .halo = e->options->halo,
                             .positions = batch->positions,
                             .cells = batch->cells,
                             .charges = batch->charges,
                             .spins = batch->spins};
    stage_end(&e->clock, STAGE_GEOMETRY);
    MLFF_TRY(find_pairs(e, batch, &e->graph));
    e->vectors_angstrom = e->graph.vectors;
    stage_end(&e->clock, STAGE_NEIGHBORS);
    MLFF_TRY(reserve(e, wants_derivatives(results)));
    stage_end(&e->clock, STAGE_GEOMETRY);
done:
    return status;
}

static mlff_status compute(void *self, const mlff_batch *batch, const mlff_results *results)
{
    mlff_status status = MLFF_OK;
    cpu_evaluator *e = self;
    const model_outputs outputs = place_outputs(e, results);
    stage_begin(&e->clock);
    MLFF_TRY(e->backend->compute(e->backend, &e->graph, &outputs, &e->clock, STAGE_BACKEND));
    stage_begin(&e->clock);
    model_graph graph = e->graph;
    graph.vectors = e->vectors_angstrom;
    if (e->model->core_repulsion > 0) core_repulsion_add(e->model, &graph, &outputs);
    if (e->counts_near) e->n_near_pairs = near_pairs_count(&graph, e->near_radius);
    MLFF_TRY(assemble_check_finite(batch, &e->graph, &outputs));
    assemble_results(e->model, batch, &graph, &outputs, results);
    stage_end(&e->clock, e->n_stages - 1);
    if (e->member < 0) e->n_computes++;
    e->n_pairs = graph.n_pairs;
done:
    return status;
}

static void select_member(void *self, int member)
{
    cpu_evaluator *e = self;
    e->member = member;
    e->backend->select_member(e->backend, member);
}

// ---- stages and information -----------------------------------------------------------------------------------------

static const mlff_stage *stages(const void *self, int *n_out)
{
    const cpu_evaluator *e = self;
    *n_out = e->n_stages;
    return e->stages;
}

static mlff_status stage_clock_set(void *self, int on)
{
    cpu_evaluator *e = self;
    e->clock.on = on != 0;
    memset(e->time_ns, 0, sizeof(double) * (size_t)e->n_stages);
    return MLFF_OK;
}

static void stage_times(const void *self, double *time_ns)
{
    const cpu_evaluator *e = self;
    memcpy(time_ns, e->time_ns, sizeof(double) * (size_t)e->n_stages);
}

static int stage_spans(const void *self, mlff_stage_span *spans, int capacity)
{
    const cpu_evaluator *e = self;
    int n = e->clock.n_spans < capacity ? e->clock.n_spans : capacity;
    if (n > 0) memcpy(spans, e->clock.spans, (size_t)n * sizeof *spans);
    return n;
}

static void info(const void *self, mlff_evaluator_info *info_out)
{
    const cpu_evaluator *e = self;
    mlff_neighbors_info list;
    int64_t backend_bytes = 0, backend_growths = 0;
    mlff_neighbors_info_get(e->neighbors, &list);
    e->backend->info(e->backend, &backend_bytes, &backend_growths);
    int64_t own = (int64_t)sizeof(double) * (int64_t)(e->vector_capacity + e->gradient_capacity + e->output_capacity);
    info_out->cpu_path = e->options->cpu_path;
    info_out->n_threads = e->options->n_threads;
    info_out->n_computes = e->n_computes;
    info_out->n_pairs = e->n_pairs;
    info_out->n_rebuilds = list.n_rebuilds;
    info_out->n_growths = list.n_growths + backend_growths + e->n_growths + e->given.n_growths;
    info_out->host_bytes = own + backend_bytes + list.bytes + pairs_filter_bytes(&e->given);
    info_out->n_near_pairs = e->n_near_pairs;
    if (e->backend->n_members) info_out->n_members = e->backend->n_members;
}

const evaluator_interface cpu_evaluator_interface = {
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .prepare = prepare,
    .compute = compute,
    .select_member = select_member,
    .stages = stages,
    .stage_clock_set = stage_clock_set,
    .stage_times = stage_times,
    .stage_spans = stage_spans,
    .info = info,
};
