// SPDX-License-Identifier: MIT
// gpu_dynamics.c: dynamics on the GPU: many steps are captured into each graph, and nothing leaves the device until requested. Rows that
// become too long are detected after a chunk of steps. The chunk is then repeated from its beginning with longer rows, with the
// trajectory that longer rows would have given. A chunk that fails is repeated step by step, so that the failing step is known and the
// atoms remain as before it. So is a chunk in which activations exceeded what halves hold: its steps that do so are repeated with
// float32's range, and others keep their bits, wherever chunks begin.
#include "gpu_dynamics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "integrate.h"

static const int steps_of_graph[GRAPHS] = {100, 10, 4, 1};

static void forget(gpu_dynamics *d)
{
    for (int k = 0; k < GRAPHS; k++) {
        if (d->graphs[k]) cudaGraphExecDestroy(d->graphs[k]);
        d->graphs[k] = NULL;
    }
    if (d->stamped) cudaGraphExecDestroy(d->stamped);
    if (d->wide) cudaGraphExecDestroy(d->wide);
    d->stamped = d->wide = NULL;
}

void gpu_dynamics_destroy(gpu_dynamics *d)
{
    if (!d || cuda_stuck()) return; // left to the end of the process
    cuda_use(d->evaluator->device);
    if (d->stream && cuda_wait(d->stream, CHUNK * d->step_s) == cudaErrorLaunchTimeout) return;
    if (d->evaluator->dynamics == d) d->evaluator->dynamics = NULL;
    forget(d);
    if (d->stream) cudaStreamDestroy(d->stream);
    if (d->pinned) cudaFreeHost(d->pinned);
    cuda_release(d->evaluator->device, d->block);
    free(d->first_atom);
    free(d->periodic);
    free(d->cells);
    free(d->charges);
    free(d->masses);
    free(d->baths);
    free(d);
}

// Steps whose forces' own kernels move the atoms. A copy may precede a graph's first kernel: nothing to overlap with.
static mlff_status enqueue_fused(gpu_dynamics *d, gpu_step *step, const gpu_plan *plan, int n_steps)
{
    step->motion = d->motion;
    step->motion.n_steps = n_steps;
    cudaError_t error = gpu_launch_advance(&step->motion, 0, d->stream);
    if (error != cudaSuccess) return cuda_failed(error, "launching the integrator");
    for (int k = 0; k < n_steps; k++) {
        step->motion.place = k;
        const mlff_status status = gpu_evaluator_enqueue(d->evaluator, step, plan, d->stream);
        if (status != MLFF_OK) return status;
    }
    return MLFF_OK;
}

// Steps with a kernel of the integrator between two computations of forces.
static mlff_status enqueue_systems(gpu_dynamics *d, const gpu_step *step, const gpu_plan *plan, int n_steps)
{
    gpu_systems systems = d->systems;
    cudaError_t error = gpu_launch_systems(&systems, 0, 1, 0, d->stream);
    for (int k = 0; k < n_steps && error == cudaSuccess; k++) {
        const mlff_status status = gpu_evaluator_enqueue(d->evaluator, step, plan, d->stream);
        if (status != MLFF_OK) return status;
        systems.place = k;
        error = gpu_launch_systems(&systems, 1, k + 1 < n_steps, plan->overlap, d->stream);
    }
    return error == cudaSuccess ? MLFF_OK : cuda_failed(error, "launching the integrator");
}

static mlff_status capture(gpu_dynamics *d, int n_steps, uint64_t *stamps, bool wide, cudaGraphExec_t *graph_out)
{
    mlff_status status = MLFF_OK;
    gpu_evaluator *e = d->evaluator;
    cudaGraph_t graph = NULL;
    gpu_step step = e->step;
    gpu_motion finish = d->motion;
    e->wide = wide;
    gpu_plan plan = gpu_evaluator_make_plan(e, d->n_atoms, d->n_systems, d->largest, gpu_evaluator_isolated(&d->batch), 1);
    e->wide = 0;
    d->cell_list = plan.cell_list;
    plan.virial = d->constant_pressure;
    plan.chained = plan.overlap && !d->constant_pressure; // cells that change are read before the atoms
    step.call_in = e->staged;
    gpu_step_choose_rows(&step, 0);
    step.stamps = stamps;
    step.overflow = &d->motion.trouble->overflow;
    step.follows_motion = 1;
    finish.n_steps = n_steps;
    CUDA_TRY(cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal), "capturing dynamics");
    status = d->fused ? enqueue_fused(d, &step, &plan, n_steps) : enqueue_systems(d, &step, &plan, n_steps);
    cudaError_t error = status == MLFF_OK ? gpu_launch_finish(&finish, plan.overlap, d->stream) : cudaSuccess;
    if (error != cudaSuccess) status = cuda_failed(error, "launching the integrator");
    error = cudaStreamEndCapture(d->stream, &graph);
    if (status == MLFF_OK && error != cudaSuccess) status = cuda_failed(error, "capturing dynamics");
    if (status != MLFF_OK) goto done;
    CUDA_TRY(cudaGraphInstantiate(graph_out, graph, cudaGraphInstantiateFlagUseNodePriority),
             "instantiating the graph of dynamics");
done:
    if (graph) cudaGraphDestroy(graph);
    return status;
}

// Computes forces at the current positions with long enough rows, and captures graphs for the current addresses.
static mlff_status recapture(gpu_dynamics *d)
{
    mlff_status status = MLFF_OK;
    gpu_evaluator *e = d->evaluator;
    forget(d);
    if (!d->constant_pressure) { // else the cells change on the GPU
        e->device_cells = d->systems.cells;
        e->host_cells = d->cells;
    }
    e->trusted_atoms = 0; // wait for this call
    const double begin_s = cuda_seconds();
    PLUGIN_TRY(gpu_evaluator_compute(e, &d->batch, &d->results));
    CUDA_TRY(cuda_wait(d->stream, 0), "a step on the GPU");
    d->step_s = cuda_seconds() - begin_s;
    e->report = (gpu_report *)(uintptr_t)d->motion.report;
    PLUGIN_TRY(gpu_evaluator_send_call(e, &d->batch, &d->results, d->stream));
    for (int k = 0; k < GRAPHS; k++) PLUGIN_TRY(capture(d, steps_of_graph[k], NULL, false, &d->graphs[k]));
    CUDA_TRY(cuda_copy(d->seen, d->state, d->state_bytes, cudaMemcpyDeviceToHost), "copying atoms from the GPU");
    e->dynamics = d;
done:
    e->report = NULL;
    e->device_cells = e->host_cells = NULL;
    return status;
}

// One system without a bath of the whole is moved by the kernels that compute its forces.
static bool is_fused(const gpu_dynamics_start *starts, int n_systems)
{
    const mlff_dynamics_options *options = starts[0].options;
    return n_systems == 1 && options->ensemble <= MLFF_LANGEVIN && options->ramp_steps <= 0;
}

static gpu_motion make_motion(const mlff_dynamics_options *options, int n_atoms)
{
    gpu_motion motion = {.n_atoms = n_atoms,
                         .langevin = options->ensemble == MLFF_LANGEVIN && options->friction_per_fs > 0,
                         .timestep_fs = options->timestep_fs,
                         .seed = options->seed};
    bath_langevin(options, 0, &motion.keep, &motion.noise);
    return motion;
}

static mlff_status check_starts(const gpu_evaluator *e, const gpu_dynamics_start *starts, int n_systems)
{
    for (int s = 0; s < n_systems; s++)
        if (!starts[s].system->velocities || !starts[s].system->masses)
            return host.fail(MLFF_ERR_USAGE, "dynamics on the GPU needs velocities and masses; add them to the system");
    if (e->has_halo)
        return host.fail(MLFF_ERR_UNSUPPORTED, "dynamics on the GPU does not exchange ghosts; use an evaluator without a halo");
    return MLFF_OK;
}

mlff_status gpu_dynamics_create(gpu_evaluator *e, const gpu_dynamics_start *starts, int n_systems, gpu_dynamics **dynamics_out)
{
    mlff_status status = check_starts(e, starts, n_systems);
    if (status != MLFF_OK) return status;
    gpu_dynamics *d = calloc(1, sizeof *d);
    if (!d) return host.fail(MLFF_ERR_MEMORY, "out of memory: dynamics");
    d->evaluator = e;
    d->n_systems = n_systems;
    d->fused = is_fused(starts, n_systems);
    d->constant_pressure = bath_has_pressure(starts[0].options->ensemble);
    d->motion = make_motion(starts[0].options, starts[0].system->n_atoms);
    PLUGIN_TRY(cuda_use(e->device));
    PLUGIN_TRY(gpu_evaluator_make_stream(true, &d->stream));
    d->batch = (mlff_batch){.n_systems = n_systems, .location = MLFF_DEVICE_MEMORY, .stream = d->stream};
    d->results.location = MLFF_DEVICE_MEMORY;
    PLUGIN_TRY(gpu_dynamics_place(d, starts));
    PLUGIN_TRY(recapture(d));
    *dynamics_out = d;
    d = NULL;
done:
    gpu_dynamics_destroy(d);
    return status;
}

// Enqueues the graphs of a chunk; with `wide` it is one step with float32's range, else with stage clocks on its last step is stamped.
static mlff_status launch_chunk(gpu_dynamics *d, int n_steps, bool wide, int *n_graphs_out)
{
    mlff_status status = MLFF_OK;
    const bool stamped = d->evaluator->clock_on && !wide;
    *n_graphs_out = 0;
    if (stamped && !d->stamped) PLUGIN_TRY(capture(d, 1, d->evaluator->io.stamps, false, &d->stamped));
    if (wide && !d->wide) PLUGIN_TRY(capture(d, 1, NULL, true, &d->wide));
    for (int k = 0, left = stamped ? n_steps - 1 : wide ? 0 : n_steps; k < GRAPHS; k++)
        for (; left >= steps_of_graph[k]; left -= steps_of_graph[k], ++*n_graphs_out)
            CUDA_TRY(cudaGraphLaunch(d->graphs[k], d->stream), "starting dynamics");
    if (!stamped && !wide) return MLFF_OK;
    CUDA_TRY(cudaGraphLaunch(wide ? d->wide : d->stamped, d->stream), "starting dynamics");
    ++*n_graphs_out;
done:
    return status;
}

// AGAIN: rows were too short. OVERFLOW: activations exceeded what halves hold.
typedef enum chunk_outcome { CHUNK_DONE, CHUNK_AGAIN, CHUNK_OVERFLOW } chunk_outcome;

// The first system whose energy is not finite, or -1.
static int find_not_finite(const gpu_dynamics *d)
{
    const double *energies = gpu_dynamics_seen(d, d->results.energies);
    for (int s = 0; s < d->n_systems; s++)
        if (!isfinite(energies[s])) return s;
    return -1;
}

// The status that a chunk's flags mean, with atoms as the system counts them.
static mlff_status report_status(const gpu_dynamics *d, const gpu_report *trouble, int *failed_out)
{
    gpu_report local = *trouble;
    int s = 0;
    while (s + 1 < d->n_systems && d->first_atom[s + 1] <= trouble->atom) s++;
    local.atom -= d->first_atom[s];
    if (trouble->flags & (GPU_SAME_POINT | GPU_SHIFT_RANGE)) local.other -= d->first_atom[s];
    *failed_out = s;
    return gpu_evaluator_report_status(d->evaluator, &local);
}

static mlff_status run_chunk(gpu_dynamics *d, int n_steps, bool wide, chunk_outcome *outcome_out, int *failed_out)
{
    mlff_status status = MLFF_OK;
    gpu_evaluator *e = d->evaluator;
    gpu_report *trouble = d->motion.trouble;
    int n_graphs;
    memset(trouble, 0, sizeof *trouble);
    *outcome_out = CHUNK_DONE;
    const double begin_s = cuda_seconds();
    CUDA_TRY(cudaMemcpyAsync(d->motion.step + 1, d->motion.step, sizeof(int64_t), cudaMemcpyDeviceToDevice, d->stream),
             "dynamics");
    CUDA_TRY(cudaMemcpyAsync(d->kept, d->state, d->state_bytes, cudaMemcpyDeviceToDevice, d->stream), "dynamics");
    PLUGIN_TRY(launch_chunk(d, n_steps, wide, &n_graphs));
    CUDA_TRY(
        cudaMemcpyAsync(d->times, d->motion.times, (size_t)(n_steps + 1) * sizeof(uint64_t), cudaMemcpyDeviceToHost, d->stream),
        "dynamics");
    CUDA_TRY(cudaMemcpyAsync(d->seen, d->state, d->state_bytes, cudaMemcpyDeviceToHost, d->stream), "dynamics");
    CUDA_TRY(cudaMemcpyAsync(d->report, d->motion.report, sizeof *d->report, cudaMemcpyDeviceToHost, d->stream), "dynamics");
    CUDA_TRY(cuda_wait(d->stream, n_steps * d->step_s), "dynamics on the GPU");
    d->step_s = (cuda_seconds() - begin_s) / n_steps;
    if (trouble->flags & GPU_ROW_FULL) {
        // Restore the beginning of the chunk, with longer rows.
        CUDA_TRY(cuda_copy(d->state, d->kept, d->state_bytes, cudaMemcpyDeviceToDevice), "dynamics");
        PLUGIN_TRY(gpu_evaluator_grow(e, d->n_atoms, d->n_systems, trouble->longest_row));
        PLUGIN_TRY(recapture(d));
        *outcome_out = CHUNK_AGAIN;
        return MLFF_OK;
    }
    if (trouble->overflow && e->kind->widen && !wide) {
        *outcome_out = CHUNK_OVERFLOW;
        return MLFF_OK;
    }
    if (trouble->flags) PLUGIN_TRY(report_status(d, trouble, failed_out));
    const int wrong = find_not_finite(d);
    if (wrong >= 0) {
        *failed_out = wrong;
        return host.fail(MLFF_ERR_UNSTABLE, "the energy is not finite");
    }
    if (e->clock_on && !wide) gpu_evaluator_read_stamps(e, 1, e->launch_ns * n_graphs / n_steps);
done:
    return status;
}

// Adds these steps to the evaluator's counters.
static void count(const gpu_dynamics *d, int n_steps)
{
    gpu_evaluator *e = d->evaluator;
    e->n_computes += n_steps;
    e->n_pairs = d->report->n_pairs;
    if (!d->cell_list) return;
    e->n_rebuilds += d->report->n_lists - e->lists_counted;
    e->lists_counted = d->report->n_lists;
}

// Restores the beginning of the last chunk.
static mlff_status restore(gpu_dynamics *d)
{
    mlff_status status = MLFF_OK;
    CUDA_TRY(cuda_copy(d->state, d->kept, d->state_bytes, cudaMemcpyDeviceToDevice), "dynamics");
    CUDA_TRY(cuda_copy(d->seen, d->state, d->state_bytes, cudaMemcpyDeviceToHost), "dynamics");
done:
    return status;
}

// The system that overflowed in the last chunk, by its energy or its forces.
static int find_overflow(const gpu_dynamics *d)
{
    const int wrong = find_not_finite(d);
    const double *forces = gpu_dynamics_seen(d, d->motion.forces);
    for (int s = 0; wrong < 0 && s < d->n_systems; s++)
        for (int k = 3 * d->first_atom[s]; k < 3 * d->first_atom[s + 1]; k++)
            if (!isfinite(forces[k])) return s;
    return wrong < 0 ? 0 : wrong;
}

// One step that overflowed, with float32's range.
static mlff_status repeat_wide(gpu_dynamics *d, chunk_outcome *outcome_out, int *failed_out)
{
    bool can;
    *failed_out = find_overflow(d);
    mlff_status status = restore(d);
    if (status == MLFF_OK) status = gpu_evaluator_widen(d->evaluator, &can);
    if (status != MLFF_OK) return status;
    if (!can) return host.fail(MLFF_ERR_UNSTABLE, "activations are beyond what this GPU's kernels hold; use device cpu");
    return run_chunk(d, 1, true, outcome_out, failed_out);
}

mlff_status gpu_dynamics_run(gpu_dynamics *d, int64_t n_steps, double *times_ns, int64_t *n_done_out, int *failed_out)
{
    mlff_status status = MLFF_OK;
    int64_t n_done = 0, careful = 0; // up to this step, chunks of one step
    *failed_out = 0;
    PLUGIN_TRY(cuda_use(d->evaluator->device));
    if (d->evaluator->dynamics != d) PLUGIN_TRY(recapture(d)); // the evaluator has served others
    while (n_done < n_steps) {
        int chunk = n_done < careful ? 1 : n_steps - n_done < CHUNK ? (int)(n_steps - n_done) : CHUNK;
        chunk_outcome outcome;
        status = run_chunk(d, chunk, false, &outcome, failed_out);
        if (status == MLFF_OK && outcome == CHUNK_OVERFLOW && chunk == 1) status = repeat_wide(d, &outcome, failed_out);
        if (status == MLFF_ERR_DEVICE || status == MLFF_ERR_MEMORY) break;
        if (status != MLFF_OK || outcome == CHUNK_OVERFLOW) {
            const mlff_status restored = restore(d);
            if (restored != MLFF_OK) status = restored;
            if (restored != MLFF_OK || chunk == 1) break;
            status = MLFF_OK;
            careful = n_done + chunk;
            continue;
        }
        if (outcome == CHUNK_AGAIN) continue;
        for (int k = 0; times_ns && k < chunk; k++) times_ns[n_done + k] = (double)(d->times[k + 1] - d->times[k]);
        n_done += chunk;
        count(d, chunk);
    }
done:
    *n_done_out = n_done;
    return status;
}
