// SPDX-License-Identifier: MIT
// gpu_dynamics.c: dynamics on the GPU: many steps are captured into each graph, and nothing leaves the device until requested. Rows that
// become too long are detected after a chunk of steps. The chunk is then repeated from its beginning with longer rows, with the
// trajectory that longer rows would have given. A chunk that fails is repeated step by step, so that the failing step is known and the
// atoms remain as before it. So is a chunk in which activations exceeded what halves hold: its steps that do so are repeated with
// float32's range, and others keep their bits, wherever chunks begin.
#include "integrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "gpu/evaluator/gpu_evaluator.h"
#include "gpu/gpu_pack.h"

enum { CHUNK = 1000, GRAPHS = 3 };
static const int steps_of_graph[GRAPHS] = {100, 10, 1};

struct gpu_dynamics {
    gpu_evaluator *evaluator;
    gpu_motion motion;
    mlff_batch batch;
    mlff_results results;
    int32_t first_atom[2];
    unsigned char periodic[3];
    cudaStream_t stream;
    cudaGraphExec_t graphs[GRAPHS], stamped; // stamped: one step with stage stamps; NULL until requested
    cudaGraphExec_t wide;                    // one step with float32's range; NULL until needed
    void *block, *pinned;
    double step_s;      // time of a step, as last measured
    size_t state_bytes; // positions, velocities, forces, heat, step, energy: contiguous, saved to restart a chunk
    char *state, *kept; // on the device; `kept`: the state at the beginning of the chunk
    char *seen;         // page-locked: copy of the state between calls
    uint64_t *times;    // page-locked, [CHUNK + 1]
    gpu_report *report; // page-locked, of the last step
    double *masses;     // host, amu
    int bins;           // 1: the device counts Verlet lists
};

// Address of a state array in the host's copy.
static const double *seen(const gpu_dynamics *d, const double *array)
{
    return (const double *)(const void *)(d->seen + ((const char *)array - d->state));
}

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
    d->evaluator->report = NULL;
    d->evaluator->device_cell = NULL;
    forget(d);
    if (d->stream) cudaStreamDestroy(d->stream);
    if (d->pinned) cudaFreeHost(d->pinned);
    cuda_release(d->evaluator->device, d->block);
    free(d->masses);
    free(d);
}

static mlff_status capture(gpu_dynamics *d, int n_steps, uint64_t *stamps, bool wide, cudaGraphExec_t *graph_out)
{
    mlff_status status = MLFF_OK;
    gpu_evaluator *e = d->evaluator;
    cudaGraph_t graph = NULL;
    gpu_step step = e->step;
    e->wide = wide;
    gpu_plan plan = gpu_evaluator_make_plan(e, d->motion.n_atoms, 1, d->motion.n_atoms, 1);
    e->wide = 0;
    d->bins = plan.bins;
    plan.chained = plan.overlap;
    step.call_in = e->staged;
    gpu_step_choose_rows(&step, 0);
    step.stamps = stamps;
    step.overflow = &d->motion.trouble->overflow;
    step.motion = d->motion;
    step.motion.n_steps = n_steps;
    step.follows_motion = 1;
    CUDA_TRY(cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal), "capturing dynamics");
    // A copy may precede a graph's first kernel: nothing to overlap with.
    cudaError_t error = gpu_launch_advance(&step.motion, 0, d->stream);
    for (int k = 0; k < n_steps && error == cudaSuccess && status == MLFF_OK; k++) {
        step.motion.place = k;
        status = gpu_evaluator_enqueue(e, &step, &plan, d->stream);
    }
    if (error == cudaSuccess && status == MLFF_OK) error = gpu_launch_finish(&step.motion, plan.overlap, d->stream);
    if (error != cudaSuccess) status = cuda_failed(error, "launching the integrator");
    error = cudaStreamEndCapture(d->stream, &graph);
    if (status == MLFF_OK && error != cudaSuccess) status = cuda_failed(error, "capturing dynamics");
    if (status != MLFF_OK) goto done;
    CUDA_TRY(cudaGraphInstantiate(graph_out, graph, 0), "instantiating the graph of dynamics");
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
    e->report = NULL;
    e->trusted_atoms = 0; // wait for this call
    const double begin_s = cuda_seconds();
    PLUGIN_TRY(gpu_evaluator_compute(e, &d->batch, &d->results));
    CUDA_TRY(cuda_wait(d->stream, 0), "a step on the GPU");
    d->step_s = cuda_seconds() - begin_s;
    e->report = (gpu_report *)(uintptr_t)d->motion.report;
    PLUGIN_TRY(gpu_evaluator_send_call(e, &d->batch, &d->results, d->stream));
    for (int k = 0; k < GRAPHS; k++) PLUGIN_TRY(capture(d, steps_of_graph[k], NULL, false, &d->graphs[k]));
    CUDA_TRY(cuda_copy(d->seen, d->state, d->state_bytes, cudaMemcpyDeviceToHost), "copying atoms from the GPU");
done:
    return status;
}

// Arrays that are uploaded once.
typedef struct uploaded_atoms {
    double *inverse_mass, *cell; // [n_atoms], [9]
    int32_t *species;            // [n_atoms]
} uploaded_atoms;

// Sets pointers relative to `base`; returns the bytes.
static size_t place_arrays(gpu_dynamics *d, void *base, uploaded_atoms *uploaded, double **energy)
{
    gpu_packer p = {NULL, base, 0};
    const size_t n = (size_t)d->motion.n_atoms;
    const void *at;
#define PLACE(pointer, bytes) (gpu_pack(&p, bytes, &at), pointer = (void *)(uintptr_t)at)
    PLACE(d->state, 0);
    PLACE(d->motion.positions, 3 * n * sizeof(double));
    PLACE(d->motion.velocities, 3 * n * sizeof(double));
    PLACE(d->motion.forces, 3 * n * sizeof(double));
    PLACE(d->motion.heat, n * sizeof(double));
    PLACE(d->motion.step, 2 * sizeof(int64_t));
    PLACE(*energy, sizeof(double));
    d->state_bytes = p.at;
    PLACE(d->kept, d->state_bytes);
    PLACE(uploaded->inverse_mass, n * sizeof(double));
    d->motion.inverse_mass = uploaded->inverse_mass;
    PLACE(uploaded->cell, 9 * sizeof(double));
    PLACE(uploaded->species, n * sizeof(int32_t));
    PLACE(d->motion.report, sizeof *d->motion.report);
    PLACE(d->motion.times, (CHUNK + 1) * sizeof(uint64_t));
#undef PLACE
    return p.at;
}

// Copies the system's atoms to the GPU.
static mlff_status upload(gpu_dynamics *d, const mlff_system *system, int64_t first_step, const uploaded_atoms *to)
{
    mlff_status status = MLFF_OK;
    const size_t n = (size_t)system->n_atoms;
    double *inverse_mass = calloc(n, sizeof *inverse_mass);
    if (!inverse_mass || !(d->masses = calloc(n, sizeof *d->masses))) {
        status = host.fail(MLFF_ERR_MEMORY, "out of memory: dynamics");
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        d->masses[i] = system->masses[i];
        inverse_mass[i] = system->fixed && system->fixed[i] ? 0.0 : 1.0 / (BASE_AMU_ANG2_FS2_EV * d->masses[i]);
    }
    const struct {
        void *to;
        const void *from;
        size_t bytes;
    } copies[] = {{to->inverse_mass, inverse_mass, n * sizeof(double)},
                  {d->motion.positions, system->positions, 3 * n * sizeof(double)},
                  {d->motion.velocities, system->velocities, 3 * n * sizeof(double)},
                  {d->motion.step, &first_step, sizeof first_step},
                  {to->cell, system->cell, sizeof system->cell},
                  {to->species, system->species, n * sizeof(int32_t)}};
    for (size_t k = 0; k < sizeof copies / sizeof *copies; k++)
        CUDA_TRY(cuda_copy(copies[k].to, copies[k].from, copies[k].bytes, cudaMemcpyHostToDevice), "copying atoms to the GPU");
done:
    free(inverse_mass);
    return status;
}

static mlff_status place(gpu_dynamics *d, const mlff_system *system, int64_t first_step)
{
    mlff_status status = MLFF_OK;
    uploaded_atoms uploaded;
    double *energy;
    PLUGIN_TRY(cuda_allocate(d->evaluator->device, place_arrays(d, NULL, &uploaded, &energy), "dynamics", &d->block));
    place_arrays(d, d->block, &uploaded, &energy);
    CUDA_TRY(cudaHostAlloc(&d->pinned, 512 + d->state_bytes + (CHUNK + 1) * sizeof(uint64_t), cudaHostAllocMapped),
             "page-locked memory for dynamics");
    memset(d->pinned, 0, 512);
    d->motion.trouble = d->pinned;
    d->report = (gpu_report *)((char *)d->pinned + 256);
    d->seen = (char *)d->pinned + 512;
    d->times = (uint64_t *)(d->seen + d->state_bytes);
    PLUGIN_TRY(upload(d, system, first_step, &uploaded));
    d->batch.species = uploaded.species;
    d->batch.positions = d->motion.positions;
    d->batch.cells = uploaded.cell;
    d->evaluator->device_cell = uploaded.cell;
    memcpy(d->evaluator->host_cell, system->cell, sizeof system->cell);
    d->results = (mlff_results){.energies = energy, .forces = d->motion.forces, .location = MLFF_DEVICE_MEMORY};
done:
    return status;
}

mlff_status gpu_dynamics_create(gpu_evaluator *e, const mlff_system *system, const gpu_dynamics_options *options,
                                gpu_dynamics **dynamics_out)
{
    mlff_status status = MLFF_OK;
    if (!system->velocities || !system->masses)
        return host.fail(MLFF_ERR_USAGE, "dynamics on the GPU needs velocities and masses; add them to the system");
    if (e->has_halo)
        return host.fail(MLFF_ERR_UNSUPPORTED, "dynamics on the GPU does not exchange ghosts; use an evaluator without a halo");
    gpu_dynamics *d = calloc(1, sizeof *d);
    if (!d) return host.fail(MLFF_ERR_MEMORY, "out of memory: dynamics");
    double damping = options->friction_per_fs * options->timestep_fs;
    d->evaluator = e;
    d->motion = (gpu_motion){.n_atoms = system->n_atoms,
                             .langevin = options->friction_per_fs > 0,
                             .timestep_fs = options->timestep_fs,
                             .keep = exp(-damping),
                             .noise = -expm1(-2 * damping) * BASE_KB_EV_PER_K * options->temperature_kelvin,
                             .seed = options->seed};
    d->first_atom[1] = system->n_atoms;
    memcpy(d->periodic, system->periodic, sizeof d->periodic);
    PLUGIN_TRY(cuda_use(e->device));
    CUDA_TRY(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), "creating a stream");
    d->batch = (mlff_batch){.n_systems = 1,
                            .first_atom = d->first_atom,
                            .periodic = d->periodic,
                            .location = MLFF_DEVICE_MEMORY,
                            .stream = d->stream};
    PLUGIN_TRY(place(d, system, options->first_step));
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

static mlff_status run_chunk(gpu_dynamics *d, int n_steps, bool wide, chunk_outcome *outcome_out)
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
        PLUGIN_TRY(gpu_evaluator_grow(e, d->motion.n_atoms, 1, trouble->longest_row));
        PLUGIN_TRY(recapture(d));
        *outcome_out = CHUNK_AGAIN;
        return MLFF_OK;
    }
    if (trouble->overflow && e->kind->widen && !wide) {
        *outcome_out = CHUNK_OVERFLOW;
        return MLFF_OK;
    }
    if (trouble->flags) PLUGIN_TRY(gpu_evaluator_report_status(e, trouble));
    double energy = *seen(d, d->results.energies);
    if (!isfinite(energy)) return host.fail(MLFF_ERR_UNSTABLE, "the energy is %g eV", energy);
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
    if (!d->bins) return;
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

// One step that overflowed, with float32's range.
static mlff_status repeat_wide(gpu_dynamics *d, chunk_outcome *outcome_out)
{
    bool can;
    mlff_status status = restore(d);
    if (status == MLFF_OK) status = gpu_evaluator_widen(d->evaluator, &can);
    if (status != MLFF_OK) return status;
    if (!can) return host.fail(MLFF_ERR_UNSTABLE, "activations are beyond what this GPU's kernels hold; use --device cpu");
    return run_chunk(d, 1, true, outcome_out);
}

mlff_status gpu_dynamics_run(gpu_dynamics *d, int64_t n_steps, double *times_ns, int64_t *n_done_out)
{
    mlff_status status = MLFF_OK;
    int64_t n_done = 0, careful = 0; // up to this step, chunks of one step
    PLUGIN_TRY(cuda_use(d->evaluator->device));
    while (n_done < n_steps) {
        int chunk = n_done < careful ? 1 : n_steps - n_done < CHUNK ? (int)(n_steps - n_done) : CHUNK;
        chunk_outcome outcome;
        status = run_chunk(d, chunk, false, &outcome);
        if (status == MLFF_OK && outcome == CHUNK_OVERFLOW && chunk == 1) status = repeat_wide(d, &outcome);
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

mlff_status gpu_dynamics_get(gpu_dynamics *d, double *positions, double *velocities, double *forces, double *energies)
{
    size_t n = (size_t)d->motion.n_atoms, bytes = 3 * n * sizeof(double);
    const double *v = seen(d, d->motion.velocities), *heat = seen(d, d->motion.heat);
    if (positions) memcpy(positions, seen(d, d->motion.positions), bytes);
    if (velocities) memcpy(velocities, v, bytes);
    if (forces) memcpy(forces, seen(d, d->motion.forces), bytes);
    if (!energies) return MLFF_OK;
    energies[0] = *seen(d, d->results.energies);
    energies[1] = energies[2] = 0;
    for (size_t i = 0; i < n; i++) {
        energies[1] += 0.5 * BASE_AMU_ANG2_FS2_EV * d->masses[i] *
                       (v[3 * i] * v[3 * i] + v[3 * i + 1] * v[3 * i + 1] + v[3 * i + 2] * v[3 * i + 2]);
        energies[2] += heat[i];
    }
    return MLFF_OK;
}
