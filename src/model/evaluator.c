// SPDX-License-Identifier: MIT
// evaluator.c: one model on one device: pairs and edge vectors in, energies, forces and stress out.
#include <math.h>
#include <string.h>

#include "atoms/neighbors.h"
#include "device/cpu.h"
#include "device/device.h"
#include "device/team.h"
#include "model/model.h"
#include "model/pairs.h"

enum { STAGE_NEIGHBORS, STAGE_GEOMETRY, STAGE_BACKEND }; // then the backend's, then forces

struct mlff_evaluator {
    const mlff_model *model;
    mlff_evaluator_options options;
    mlff_halo halo;
    model_backend *backend; // on the CPU, with the neighbour list and all below it
    const device_plugin *plugin;
    cuda_evaluator *cuda; // on a GPU, where one object does the whole step
    mlff_neighbors *neighbors;
    pairs_filter handed; // pairs of the caller
    mlff_stage *stages;
    int n_stages;
    stage_clock clock;
    double *time_ns;                    // [n_stages]
    double *vectors;                    // [n_pairs][3] model length units, where these are not Å
    double *pair_gradient;              // [n_pairs][3]
    double *atom_energy;                // [n_atoms]
    double *member_value, *member_mean; // [n_systems + 3 n_atoms] energies and forces of one member, and the mean so far
    size_t member_capacity, mean_capacity;
    size_t vector_capacity, gradient_capacity, energy_capacity;
    int64_t n_computes, n_pairs, n_growths;
};

mlff_evaluator_options mlff_evaluator_options_default(void)
{
    return (mlff_evaluator_options){.struct_size = sizeof(mlff_evaluator_options), .skin_angstrom = 0.5};
}

// "0,3" to indices of members.
static mlff_status parse_members(const mlff_model *model, const char *text, int *members, int *n_out)
{
    int n = 0;
    for (const char *token = text;; token++) {
        char number[16];
        int64_t member = -1;
        size_t length = strcspn(token, ",");
        if (length < sizeof number) {
            memcpy(number, token, length);
            number[length] = 0;
            if (!base_parse_int64(number, &member)) member = -1;
        }
        for (int k = 0; k < n; k++)
            if (members[k] == member) member = -1;
        if (member < 0 || member >= model->n_members)
            return mlff_fail(MLFF_ERR_USAGE, "members \"%.60s\": expected a list of different numbers from 0 to %d, such as 0,%d",
                             text, model->n_members - 1, model->n_members - 1);
        members[n++] = (int)member;
        token += length;
        if (*token == 0) break;
    }
    *n_out = n;
    return MLFF_OK;
}

// The caller's options over the defaults, checked.
static mlff_status choose_options(const mlff_evaluator_options *options, mlff_evaluator_options *chosen_out)
{
    mlff_evaluator_options chosen = mlff_evaluator_options_default();
    mlff_status status = base_take_options("mlff_evaluator_create", "mlff_evaluator_options", options, sizeof chosen, &chosen);
    if (status != MLFF_OK) return status;
    if (!(chosen.skin_angstrom >= 0) || chosen.skin_angstrom > 100)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_evaluator_create: a skin of %g Å; it must lie in 0 … 100 Å", chosen.skin_angstrom);
    if (chosen.n_threads < 0 || chosen.n_threads > 4096)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_evaluator_create: %d threads; 0 means all", chosen.n_threads);
    if (chosen.precision < MLFF_PRECISION_DEFAULT || chosen.precision > MLFF_BF16)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_evaluator_create: unknown precision %d", (int)chosen.precision);
    if (chosen.precision == MLFF_PRECISION_DEFAULT) chosen.precision = MLFF_FLOAT32;
    *chosen_out = chosen;
    return MLFF_OK;
}

static mlff_status create_on_gpu(mlff_evaluator *e, const int *members, int n_members)
{
    mlff_status status = MLFF_OK;
    const model_architecture *kind = e->model->architecture;
    if (!kind->create_gpu) return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s runs on the CPU only; use --device cpu", kind->title);
    MLFF_TRY(device_plugin_get(&e->plugin));
    MLFF_TRY(kind->create_gpu(e->model, e->plugin, &e->options, members, n_members, &e->cuda));
done:
    return status;
}

static mlff_status create_on_cpu(mlff_evaluator *e, const int *members, int n_members)
{
    mlff_status status = MLFF_OK;
    mlff_evaluator_options *chosen = &e->options;
    if (chosen->precision > MLFF_FLOAT64)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s is a fast mode of GPUs; on the CPU use float32 or float64",
                         chosen->precision == MLFF_TF32 ? "tf32" : "bf16");
    if (chosen->n_threads == 0) chosen->n_threads = team_default_size();
    if (chosen->n_threads > TEAM_MAX) chosen->n_threads = TEAM_MAX;
    MLFF_TRY(cpu_path_choose(chosen->cpu_path, &chosen->cpu_path));
    const cpu_options cpu = {.precision = chosen->precision,
                             .n_threads = chosen->n_threads,
                             .path = chosen->cpu_path,
                             .halo = chosen->halo,
                             .members = members,
                             .n_members = n_members};
    MLFF_TRY(e->model->architecture->create_cpu(e->model, &cpu, &e->backend));
    MLFF_TRY(neighbors_create_on(e->model->cutoff, chosen->skin_angstrom, chosen->cpu_path, chosen->n_threads, &e->neighbors));

    e->n_stages = STAGE_BACKEND + e->backend->n_stages + 1;
    if (!(e->stages = base_alloc((size_t)e->n_stages, sizeof *e->stages, "stages")) ||
        !(e->time_ns = base_alloc((size_t)e->n_stages, sizeof *e->time_ns, "stages")))
        return MLFF_ERR_MEMORY;
    e->stages[STAGE_NEIGHBORS] = (mlff_stage){"neighbors", "forward", -1, ""};
    e->stages[STAGE_GEOMETRY] = (mlff_stage){"geometry", "forward", -1, "input check"};
    memcpy(e->stages + STAGE_BACKEND, e->backend->stages, sizeof *e->stages * (size_t)e->backend->n_stages);
    e->stages[e->n_stages - 1] = (mlff_stage){"forces", "backward", -1, "energy sum, stress"};
    e->clock.time_ns = e->time_ns;
done:
    return status;
}

mlff_status mlff_evaluator_create(const mlff_model *model, const mlff_evaluator_options *options, mlff_evaluator **evaluator_out)
{
    mlff_status status = MLFF_OK;
    mlff_evaluator_options chosen;
    mlff_evaluator *e = NULL;
    int *members = NULL, n_members = 0;
    if (!model || !evaluator_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_evaluator_create: model and evaluator_out must be given");
    MLFF_TRY(choose_options(options, &chosen));
    if (!(e = base_alloc(1, sizeof *e, "an evaluator"))) return MLFF_ERR_MEMORY;
    e->model = model;
    if (chosen.members) {
        if (!(members = base_alloc((size_t)model->n_members, sizeof *members, "members"))) MLFF_TRY(MLFF_ERR_MEMORY);
        MLFF_TRY(parse_members(model, chosen.members, members, &n_members));
    }
    e->options = chosen;
    e->options.members = NULL; // the caller's text is not kept, nor its struct of hooks
    if (chosen.halo) {
        e->halo = *chosen.halo;
        e->options.halo = &e->halo;
    }
    MLFF_TRY(chosen.device.kind == MLFF_CUDA ? create_on_gpu(e, members, n_members) : create_on_cpu(e, members, n_members));
    *evaluator_out = e;
    e = NULL;
done:
    base_free(members);
    mlff_evaluator_destroy(e);
    return status;
}

void mlff_evaluator_destroy(mlff_evaluator *e)
{
    if (!e) return;
    if (e->cuda) e->plugin->destroy(e->cuda);
    if (e->backend) e->backend->destroy(e->backend);
    mlff_neighbors_destroy(e->neighbors);
    pairs_filter_free(&e->handed);
    base_free(e->stages);
    base_free(e->time_ns);
    base_free(e->vectors);
    base_free(e->pair_gradient);
    base_free(e->atom_energy);
    base_free(e->member_value);
    base_free(e->member_mean);
    base_free(e);
}

cuda_evaluator *evaluator_on_gpu(mlff_evaluator *e, const device_plugin **plugin_out)
{
    *plugin_out = e->plugin;
    return e->cuda;
}

// ---- checks -----------------------------------------------------------------------------------------------------

static mlff_status unknown_element(const mlff_model *model, const mlff_batch *batch, int atom)
{
    int z = batch->species[atom], system = 0;
    while (batch->first_atom[system + 1] <= atom) system++;
    const char *symbol = mlff_element_symbol(z);
    base_text known = {0};
    for (int k = 0; k < model->n_elements; k++)
        base_text_add(&known, "%s%s", k ? ", " : "", mlff_element_symbol(model->elements[k]));
    mlff_status status;
    if (!symbol)
        status = mlff_fail(MLFF_ERR_ELEMENT, "atom %d of system %d has atomic number %d; 1 to %d are elements",
                           atom - batch->first_atom[system], system, z, MLFF_MAX_ATOMIC_NUMBER);
    else if (known.text)
        status = mlff_fail(MLFF_ERR_ELEMENT, "atom %d of system %d is %s, which model '%s' does not know; it knows %s",
                           atom - batch->first_atom[system], system, symbol, model->name, known.text);
    else
        status = mlff_fail(MLFF_ERR_ELEMENT, "atom %d of system %d is %s, for which model '%s' has no embedding",
                           atom - batch->first_atom[system], system, symbol, model->name);
    base_text_free(&known);
    return status;
}

static mlff_status check_batch(const mlff_model *model, const mlff_batch *batch, const mlff_results *results)
{
    if (!batch || !results || !batch->first_atom || !batch->species || !batch->positions)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_evaluator_compute: batch, its arrays and results must be given");
    if (batch->n_systems < 1 || batch->first_atom[0] != 0)
        return mlff_fail(MLFF_ERR_USAGE, "a batch of %d systems that begins at atom %d; at least 1 and 0 are needed",
                         batch->n_systems, batch->n_systems < 1 ? 0 : (int)batch->first_atom[0]);
    for (int s = 0; s < batch->n_systems; s++)
        if (batch->first_atom[s + 1] <= batch->first_atom[s])
            return mlff_fail(MLFF_ERR_USAGE, "system %d of the batch has %d atoms; each needs at least 1", s,
                             (int)(batch->first_atom[s + 1] - batch->first_atom[s]));
    int n_atoms = batch->location == MLFF_HOST ? batch->first_atom[batch->n_systems] : 0; // on the device the device looks
    for (int i = 0; i < n_atoms; i++) {
        int z = batch->species[i];
        if (z < 1 || z > MLFF_MAX_ATOMIC_NUMBER || !model->known[z]) return unknown_element(model, batch, i);
    }
    return MLFF_OK;
}

// ---- forces -----------------------------------------------------------------------------------------------------

// F_i = Σ g over the row of i − Σ g over the pairs that end in i.
static void assemble_forces(const model_graph *graph, const double *g, double unit, double *forces)
{
    if (graph->reverse) {
        for (int i = 0; i < graph->n_atoms; i++) {
            double f[3] = {0, 0, 0};
            for (int p = graph->first[i]; p < graph->first[i + 1]; p++) {
                const double *a = g + 3 * (size_t)p, *b = g + 3 * (size_t)graph->reverse[p];
                for (int c = 0; c < 3; c++) f[c] += a[c] - b[c];
            }
            for (int c = 0; c < 3; c++) forces[3 * (size_t)i + c] = unit * f[c];
        }
        return;
    }
    memset(forces, 0, sizeof(double) * 3 * (size_t)graph->n_atoms);
    for (int i = 0; i < graph->n_atoms; i++)
        for (int p = graph->first[i]; p < graph->first[i + 1]; p++)
            for (int c = 0; c < 3; c++) {
                forces[3 * (size_t)i + c] += unit * g[3 * (size_t)p + c];
                forces[3 * (size_t)graph->neighbor[p] + c] -= unit * g[3 * (size_t)p + c];
            }
}

// Virial −dE/dε = −Σ g ⊗ r of each system, and from it the stress (dE/dε)/V.
static void assemble_virials(const mlff_batch *batch, const model_graph *graph, const double *g, double energy_unit,
                             const mlff_results *out)
{
    for (int s = 0; s < batch->n_systems; s++) {
        double virial[9] = {0};
        for (int p = graph->first[batch->first_atom[s]]; p < graph->first[batch->first_atom[s + 1]]; p++)
            for (int a = 0; a < 3; a++)
                for (int b = 0; b < 3; b++)
                    virial[3 * a + b] -= energy_unit * g[3 * (size_t)p + a] * graph->vectors[3 * (size_t)p + b];
        if (out->virials) memcpy(out->virials + 9 * (size_t)s, virial, sizeof virial);
        if (!out->stresses) continue;
        double *stress = out->stresses + 6 * (size_t)s;
        const unsigned char *periodic = batch->periodic ? batch->periodic + 3 * (size_t)s : NULL;
        const double *h = batch->cells ? batch->cells + 9 * (size_t)s : NULL;
        double volume = NAN;
        if (h && periodic && periodic[0] && periodic[1] && periodic[2])
            volume = fabs(h[0] * (h[4] * h[8] - h[5] * h[7]) - h[1] * (h[3] * h[8] - h[5] * h[6]) +
                          h[2] * (h[3] * h[7] - h[4] * h[6]));
        static const int voigt[6][2] = {{0, 0}, {1, 1}, {2, 2}, {1, 2}, {0, 2}, {0, 1}};
        for (int k = 0; k < 6; k++) {
            int a = voigt[k][0], b = voigt[k][1];
            stress[k] = -0.5 * (virial[3 * a + b] + virial[3 * b + a]) / volume;
        }
    }
}

static void assemble_energies(const mlff_model *model, const mlff_batch *batch, const double *raw, const mlff_results *out)
{
    for (int s = 0; s < batch->n_systems; s++) {
        // The model's part and the offsets, some 10⁴ times larger, are summed apart.
        double energy = 0, offset = 0;
        for (int i = batch->first_atom[s]; i < batch->first_atom[s + 1]; i++) {
            bool owned = !batch->owned || batch->owned[i];
            double own_offset = owned ? model->offset[batch->species[i]] : 0.0;
            energy += raw[i];
            offset += own_offset;
            if (out->atom_energies) out->atom_energies[i] = raw[i] * model->energy_unit + own_offset;
        }
        if (out->energies) out->energies[s] = energy * model->energy_unit + offset;
    }
}

// What is not finite is never handed out: x · 0 is 0 for every finite x, and NaN for all else.
static mlff_status check_finite(const mlff_batch *batch, const model_graph *graph, const double *raw, const double *gradient)
{
    double sum[3] = {0, 0, 0};
    for (int i = 0; i < graph->n_atoms; i++) sum[0] += raw[i] * 0.0;
    for (size_t p = 0; gradient && p < (size_t)graph->n_pairs; p++)
        for (int c = 0; c < 3; c++) sum[c] += gradient[3 * p + c] * 0.0;
    if (sum[0] + sum[1] + sum[2] == 0.0) return MLFF_OK;
    for (int s = 0; s < batch->n_systems; s++)
        for (int i = batch->first_atom[s]; i < batch->first_atom[s + 1]; i++) {
            bool finite = isfinite(raw[i]);
            for (int p = graph->first[i]; gradient && p < graph->first[i + 1]; p++)
                for (int c = 0; c < 3; c++) finite = finite && isfinite(gradient[3 * (size_t)p + c]);
            if (!finite)
                return mlff_fail(
                    MLFF_ERR_VALUE,
                    "energy or force of atom %d of system %d is not finite: atoms too close, or weights too large for "
                    "float32; look at the structure, try --precision float64, in MD halve the timestep",
                    i - batch->first_atom[s], s);
        }
    return MLFF_OK;
}

// The same of a GPU's results, which are in the caller's arrays already.
static mlff_status check_finite_results(const mlff_batch *batch, const mlff_results *results)
{
    double sum = 0;
    for (int s = 0; results->energies && s < batch->n_systems; s++) sum += results->energies[s] * 0.0;
    for (int k = 0; results->forces && k < 3 * batch->first_atom[batch->n_systems]; k++) sum += results->forces[k] * 0.0;
    return sum == 0.0
               ? MLFF_OK
               : mlff_fail(MLFF_ERR_VALUE, "energies or forces are not finite: atoms too close, or activations beyond what "
                                           "the GPU's products hold (some 4,000); look at the structure, try --device cpu");
}

// ---- members ----------------------------------------------------------------------------------------------------

static bool wants_members(const mlff_results *out)
{
    return out->member_energies || out->member_forces || out->energy_deviations || out->force_deviations;
}

// Welford's update: `square` gathers the sum of squared differences from the running mean of k + 1 values.
static void add_deviation(int k, size_t n, const double *value, double *mean, double *square)
{
    for (size_t i = 0; i < n; i++) {
        double before = value[i] - (k ? mean[i] : 0.0);
        mean[i] = (k ? mean[i] : 0.0) + before / (k + 1);
        square[i] = (k ? square[i] : 0.0) + before * (value[i] - mean[i]);
    }
}

static void finish_deviation(int n_members, size_t n, double *square)
{
    for (size_t i = 0; i < n; i++) square[i] = n_members > 1 ? sqrt(square[i] / (n_members - 1)) : NAN;
}

// Energies of systems and, if wanted, forces of one member; on the CPU the graph is in the model's length unit.
static mlff_status compute_member(mlff_evaluator *e, const mlff_batch *batch, const model_graph *graph, int member,
                                  double *energy, double *force)
{
    mlff_status status = MLFF_OK;
    model_backend *backend = e->backend;
    if (e->cuda) {
        const mlff_results results = {.energies = energy, .forces = force};
        e->plugin->select_member(e->cuda, member);
        MLFF_TRY(e->plugin->compute(e->cuda, batch, &results));
        return check_finite_results(batch, &results);
    }
    backend->select_member(backend, member);
    MLFF_TRY(backend->compute(backend, graph, e->atom_energy, force ? e->pair_gradient : NULL, &e->clock, STAGE_BACKEND));
    stage_begin(&e->clock);
    assemble_energies(e->model, batch, e->atom_energy, &(mlff_results){.energies = energy});
    if (force) assemble_forces(graph, e->pair_gradient, e->model->energy_unit / e->model->length_unit, force);
done:
    return status;
}

// One member after the other through the same backend.
static mlff_status compute_members(mlff_evaluator *e, const mlff_batch *batch, const model_graph *graph, const mlff_results *out)
{
    mlff_status status = MLFF_OK;
    model_backend *backend = e->backend;
    mlff_evaluator_info info;
    if (e->cuda ? e->model->n_members == 1 : !backend->select_member)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "results of members are asked for, but model '%s' is no ensemble", e->model->name);
    mlff_evaluator_info_get(e, &info);
    const int n_members = info.n_members;
    size_t n_systems = (size_t)batch->n_systems, n_forces = 3 * (size_t)batch->first_atom[n_systems], old = e->member_capacity;
    bool forces = out->member_forces || out->force_deviations;
    MLFF_TRY(base_grow(&e->member_value, &e->member_capacity, n_systems + n_forces, sizeof(double), "members"));
    MLFF_TRY(base_grow(&e->member_mean, &e->mean_capacity, n_systems + n_forces, sizeof(double), "members"));
    if (old != e->member_capacity) e->n_growths++;
    double *energy = e->member_value, *force = e->member_value + n_systems;
    for (int m = 0; m < n_members; m++) {
        MLFF_TRY(compute_member(e, batch, graph, m, energy, forces ? force : NULL));
        if (out->member_energies) memcpy(out->member_energies + (size_t)m * n_systems, energy, sizeof(double) * n_systems);
        if (out->member_forces) memcpy(out->member_forces + (size_t)m * n_forces, force, sizeof(double) * n_forces);
        if (out->energy_deviations) add_deviation(m, n_systems, energy, e->member_mean, out->energy_deviations);
        if (out->force_deviations) add_deviation(m, n_forces, force, e->member_mean + n_systems, out->force_deviations);
        if (backend) stage_end(&e->clock, e->n_stages - 1);
    }
    if (out->energy_deviations) finish_deviation(n_members, n_systems, out->energy_deviations);
    if (out->force_deviations) finish_deviation(n_members, n_forces, out->force_deviations);
done:
    if (e->cuda)
        e->plugin->select_member(e->cuda, -1);
    else
        backend->select_member(backend, -1);
    return status;
}

// ---- the call ---------------------------------------------------------------------------------------------------

static mlff_status compute_on_gpu(mlff_evaluator *e, const mlff_batch *batch, const mlff_results *results)
{
    mlff_status status = MLFF_OK;
    const bool on_host = batch->location == MLFF_HOST && results->location == MLFF_HOST;
    if (wants_members(results) && !on_host)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "results of members are given to arrays of the host only");
    if (wants_members(results)) MLFF_TRY(compute_members(e, batch, NULL, results));
    MLFF_TRY(e->plugin->compute(e->cuda, batch, results));
    if (on_host) MLFF_TRY(check_finite_results(batch, results));
done:
    return status;
}

// Rows of neighbours, the caller's or our own, with edge vectors in Å.
static mlff_status find_pairs(mlff_evaluator *e, const mlff_batch *batch, model_graph *graph)
{
    mlff_status status = MLFF_OK;
    mlff_pairs pairs;
    if (batch->pairs) {
        MLFF_TRY(pairs_filter_update(&e->handed, batch, e->model->cutoff));
        pairs_filter_get(&e->handed, &pairs, &graph->vectors, &graph->reverse);
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

// Room for a call; edge vectors in the model's unit.
static mlff_status prepare(mlff_evaluator *e, model_graph *graph, bool gradient)
{
    mlff_status status = MLFF_OK;
    const size_t n_pairs = (size_t)graph->n_pairs, old = e->vector_capacity + e->gradient_capacity + e->energy_capacity;
    const double unit = e->model->length_unit;
    if (unit != 1.0) {
        MLFF_TRY(base_grow(&e->vectors, &e->vector_capacity, 3 * n_pairs, sizeof(double), "edge vectors"));
        for (size_t k = 0; k < 3 * n_pairs; k++) e->vectors[k] = graph->vectors[k] / unit;
        graph->vectors = e->vectors;
    }
    if (gradient) MLFF_TRY(base_grow(&e->pair_gradient, &e->gradient_capacity, 3 * n_pairs, sizeof(double), "pair gradients"));
    MLFF_TRY(base_grow(&e->atom_energy, &e->energy_capacity, (size_t)graph->n_atoms, sizeof(double), "atom energies"));
    if (old != e->vector_capacity + e->gradient_capacity + e->energy_capacity) e->n_growths++;
done:
    return status;
}

static mlff_status compute_on_cpu(mlff_evaluator *e, const mlff_batch *batch, const mlff_results *results)
{
    mlff_status status = MLFF_OK;
    const mlff_model *model = e->model;
    const bool gradient =
        results->forces || results->stresses || results->virials || results->member_forces || results->force_deviations;
    const double force_unit = model->energy_unit / model->length_unit;
    model_graph graph = {.n_atoms = batch->first_atom[batch->n_systems],
                         .species = batch->species,
                         .owned = batch->owned,
                         .halo = e->options.halo};
    if (batch->location != MLFF_HOST || results->location != MLFF_HOST)
        return mlff_fail(MLFF_ERR_USAGE, "this evaluator runs on the CPU; batch and results must live in host memory");
    stage_end(&e->clock, STAGE_GEOMETRY);
    MLFF_TRY(find_pairs(e, batch, &graph));
    const double *vectors = graph.vectors;
    stage_end(&e->clock, STAGE_NEIGHBORS);
    MLFF_TRY(prepare(e, &graph, gradient));
    stage_end(&e->clock, STAGE_GEOMETRY);

    if (wants_members(results)) MLFF_TRY(compute_members(e, batch, &graph, results));
    MLFF_TRY(
        e->backend->compute(e->backend, &graph, e->atom_energy, gradient ? e->pair_gradient : NULL, &e->clock, STAGE_BACKEND));
    stage_begin(&e->clock);
    MLFF_TRY(check_finite(batch, &graph, e->atom_energy, gradient ? e->pair_gradient : NULL));

    graph.vectors = vectors;
    if (results->forces) assemble_forces(&graph, e->pair_gradient, force_unit, results->forces);
    if (results->stresses || results->virials) assemble_virials(batch, &graph, e->pair_gradient, force_unit, results);
    if (results->energies || results->atom_energies) assemble_energies(model, batch, e->atom_energy, results);
    stage_end(&e->clock, e->n_stages - 1);
    e->n_computes++;
    e->n_pairs = graph.n_pairs;
done:
    return status;
}

mlff_status mlff_evaluator_compute(mlff_evaluator *e, const mlff_batch *batch, const mlff_results *results)
{
    mlff_status status = MLFF_OK;
    if (!e) return mlff_fail(MLFF_ERR_USAGE, "mlff_evaluator_compute: no evaluator");
    if (e->clock.on) memset(e->time_ns, 0, sizeof(double) * (size_t)e->n_stages);
    e->clock.n_spans = 0;
    stage_begin(&e->clock);
    MLFF_TRY(check_batch(e->model, batch, results));
    status = e->cuda ? compute_on_gpu(e, batch, results) : compute_on_cpu(e, batch, results);
done:
    return status;
}

// ---- what it knows of itself --------------------------------------------------------------------------------------

const mlff_stage *mlff_evaluator_stages(const mlff_evaluator *e, int *n_out)
{
    if (e->cuda) return e->plugin->stages(e->cuda, n_out);
    if (n_out) *n_out = e->n_stages;
    return e->stages;
}

mlff_status mlff_evaluator_stage_clock_set(mlff_evaluator *e, int on)
{
    if (e->cuda) return e->plugin->stage_clock_set(e->cuda, on);
    e->clock.on = on != 0;
    memset(e->time_ns, 0, sizeof(double) * (size_t)e->n_stages);
    return MLFF_OK;
}

void mlff_evaluator_stage_times(const mlff_evaluator *e, double *time_ns)
{
    if (e->cuda)
        e->plugin->stage_times(e->cuda, time_ns);
    else
        memcpy(time_ns, e->time_ns, sizeof(double) * (size_t)e->n_stages);
}

int mlff_evaluator_stage_spans(const mlff_evaluator *e, mlff_stage_span *spans, int capacity)
{
    int n = e->cuda ? 0 : e->clock.n_spans;
    if (n > capacity) n = capacity;
    if (n > 0) memcpy(spans, e->clock.spans, (size_t)n * sizeof *spans);
    return n;
}

void mlff_evaluator_info_get(const mlff_evaluator *e, mlff_evaluator_info *info_out)
{
    if (e->cuda) {
        *info_out =
            (mlff_evaluator_info){.device = e->options.device, .precision = e->options.precision, .cpu_path = "", .n_members = 1};
        e->plugin->evaluator_info(e->cuda, info_out);
        return;
    }
    mlff_neighbors_info list;
    mlff_neighbors_info_get(e->neighbors, &list);
    int64_t backend_bytes = 0, backend_growths = 0;
    e->backend->info(e->backend, &backend_bytes, &backend_growths);
    int64_t own = (int64_t)sizeof(double) * (int64_t)(e->vector_capacity + e->gradient_capacity + e->energy_capacity +
                                                      e->member_capacity + e->mean_capacity);
    *info_out = (mlff_evaluator_info){.device = e->options.device,
                                      .precision = e->options.precision,
                                      .cpu_path = e->options.cpu_path,
                                      .n_threads = e->options.n_threads,
                                      .n_computes = e->n_computes,
                                      .n_pairs = e->n_pairs,
                                      .n_rebuilds = list.n_rebuilds,
                                      .n_growths = list.n_growths + backend_growths + e->n_growths + e->handed.n_growths,
                                      .host_bytes = own + backend_bytes + list.bytes + pairs_filter_bytes(&e->handed),
                                      .n_members = e->backend->n_members ? e->backend->n_members : 1};
}
