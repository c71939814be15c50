// SPDX-License-Identifier: MIT
// evaluator_replicas.c: simulations that make their steps together. Each is an mlff_dynamics; forces of all that still run are one
// computation, or all are integrated on the evaluator's device in one batch. One that fails ends, and the others go on.
#include <string.h>

#include "atoms/systems_batch.h"
#include "model/evaluator/evaluator.h"

struct mlff_replicas {
    mlff_evaluator *evaluator;
    int n, n_running;
    bool constant_pressure;
    mlff_dynamics **dynamics; /* [n] */
    char **errors;            /* [n] why it ended; NULL: it runs */
    int *running;             /* [n_running] those that run, ascending */
    mlff_dynamics **together; /* [n_running] the same */
    mlff_system **systems;    /* [n_running] theirs */
    systems_batch batch;
    double *energies, *virials; /* [n], [n][9] */
    double *forces;             /* [atoms][3] */
    dynamics_resident resident; /* of those that run */
    bool placed;                /* they are on the device */
};

// ---- those that run ---------------------------------------------------------------------------------------------------

static void list_running(mlff_replicas *r)
{
    r->n_running = 0;
    for (int k = 0; k < r->n; k++) {
        if (r->errors[k]) continue;
        r->running[r->n_running] = k;
        r->systems[r->n_running] = r->dynamics[k]->system;
        r->together[r->n_running++] = r->dynamics[k];
    }
}

// Replica number k ends with the last error.
static mlff_status end_replica(mlff_replicas *r, int k)
{
    if (!(r->errors[k] = base_strdup(mlff_last_error()))) return mlff_fail(MLFF_ERR_MEMORY, "out of memory: replicas");
    r->placed = false;
    mlff_warn("replica %d has ended: %s", k, r->errors[k]);
    return MLFF_OK;
}

static bool is_of_all(mlff_status status)
{
    return status == MLFF_ERR_MEMORY || status == MLFF_ERR_DEVICE;
}

// ---- forces on the host -----------------------------------------------------------------------------------------------

static mlff_status compute(mlff_replicas *r, mlff_system *const *systems, int n)
{
    const mlff_status status = systems_batch_fill(&r->batch, systems, n);
    if (status != MLFF_OK) return status;
    return mlff_evaluator_compute(
        r->evaluator, &r->batch.batch,
        &(mlff_results){.energies = r->energies, .forces = r->forces, .virials = r->constant_pressure ? r->virials : NULL});
}

// What compute() left for the system at index `at` of its batch, to the simulation.
static mlff_status take(mlff_replicas *r, mlff_dynamics *dynamics, int at)
{
    memcpy(dynamics->new_forces, r->forces + 3 * (size_t)r->batch.first_atom[at],
           3 * (size_t)dynamics->system->n_atoms * sizeof(double));
    for (int c = 0; c < 3 && r->constant_pressure; c++) dynamics->new_virial[c] = r->virials[9 * (size_t)at + 4 * (size_t)c];
    return dynamics_check_forces(dynamics, dynamics->step + 1, r->energies[at]);
}

// Ends the step of the i-th that runs; one that has failed ends with the last error.
static mlff_status end_step(mlff_replicas *r, int i, mlff_status computed, double energy)
{
    const mlff_status status = dynamics_step_end(r->together[i], computed, energy);
    return status == MLFF_OK || is_of_all(computed) ? MLFF_OK : end_replica(r, r->running[i]);
}

// A batch failed: each is computed alone, and those that fail end. After a failure of the device all go back.
static mlff_status step_one_by_one(mlff_replicas *r)
{
    mlff_status failed = MLFF_OK;
    for (int i = 0; i < r->n_running; i++) {
        mlff_status computed = failed != MLFF_OK ? failed : compute(r, &r->systems[i], 1);
        if (is_of_all(computed)) failed = computed;
        if (computed == MLFF_OK) computed = take(r, r->together[i], 0);
        const mlff_status ended = end_step(r, i, computed, r->energies[0]);
        if (failed == MLFF_OK) failed = ended;
    }
    return failed;
}

static mlff_status step_on_host(mlff_replicas *r)
{
    mlff_status status = MLFF_OK;
    for (int i = 0; i < r->n_running; i++) {
        dynamics_step_begin(r->together[i]);
        const mlff_status placed = dynamics_check_positions(r->together[i], r->together[i]->step + 1);
        if (placed != MLFF_OK) MLFF_TRY(end_step(r, i, placed, 0));
    }
    list_running(r);
    if (r->n_running == 0) return MLFF_OK;
    const mlff_status together = compute(r, r->systems, r->n_running);
    if (together != MLFF_OK && !is_of_all(together)) MLFF_TRY(step_one_by_one(r));
    for (int i = 0; i < r->n_running && (together == MLFF_OK || is_of_all(together)); i++)
        MLFF_TRY(end_step(r, i, together == MLFF_OK ? take(r, r->together[i], i) : together, r->energies[i]));
    status = is_of_all(together) ? together : MLFF_OK;
done:
    list_running(r);
    return status;
}

static mlff_status run_on_host(mlff_replicas *r, int64_t n_steps, double *times_ns)
{
    mlff_status status = MLFF_OK;
    for (int i = 0; i < r->n_running; i++) {
        mlff_dynamics_state state; // computes forces that are not there yet
        MLFF_TRY(mlff_dynamics_state_get(r->together[i], &state));
    }
    for (int64_t k = 0; k < n_steps && r->n_running > 0; k++) {
        const int64_t start_ns = base_clock_ns();
        MLFF_TRY(step_on_host(r));
        if (times_ns) times_ns[k] = (double)(base_clock_ns() - start_ns);
    }
done:
    return status;
}

// ---- on the device ----------------------------------------------------------------------------------------------------

// All that run have just been put there.
static void fetch(mlff_replicas *r)
{
    for (int i = 0; i < r->n_running; i++) {
        r->resident.get(r->resident.context, i, r->together[i]);
        r->together[i]->has_forces = r->together[i]->placed = true;
    }
    r->placed = true;
}

static mlff_status place(mlff_replicas *r)
{
    for (int i = 0; i < r->n_running; i++) r->placed = r->placed && r->together[i]->placed; // false after a restart
    if (r->placed) return MLFF_OK;
    const mlff_status status = r->resident.put(r->resident.context, r->together, r->n_running);
    if (status == MLFF_OK) fetch(r);
    return status;
}

static mlff_status run_on_device(mlff_replicas *r, int64_t n_steps, double *times_ns)
{
    mlff_status status = MLFF_OK;
    for (int64_t n_done = 0, n; n_done < n_steps && r->n_running > 0; n_done += n) {
        int failed = 0;
        char cause[900];
        n = 0;
        MLFF_TRY(place(r));
        for (int i = 0; i < r->n_running; i++) dynamics_resident_begin(r->together[i]);
        const mlff_status ran =
            r->resident.run(r->resident.context, n_steps - n_done, times_ns ? times_ns + n_done : NULL, &n, &failed);
        snprintf(cause, sizeof cause, "%s", mlff_last_error());
        for (int i = 0; i < r->n_running; i++) {
            const mlff_status own = !is_of_all(ran) && i == failed ? ran : MLFF_OK;
            if (dynamics_resident_end(r->together[i], &r->resident, i, n, own, cause) != MLFF_OK)
                MLFF_TRY(end_replica(r, r->running[i]));
        }
        list_running(r);
        if (is_of_all(ran)) return mlff_fail(ran, "%s", cause);
    }
done:
    return status;
}

// Devices integrate where they can; where not, the host does, with forces from the device, and a warning says why.
static mlff_status integrate_on_device(mlff_replicas *r)
{
    if (!evaluator_can_integrate(r->evaluator, r->together[0]->options.ensemble)) return MLFF_OK;
    // A device integrates without checks of the systems; a call of the evaluator makes them.
    mlff_status status = compute(r, r->systems, r->n_running);
    if (status != MLFF_OK) return status;
    status = r->evaluator->interface->dynamics_create(r->evaluator->self, r->together, r->n, &r->resident);
    if (status == MLFF_OK) fetch(r);
    if (status != MLFF_ERR_UNSUPPORTED) return status;
    mlff_warn("%s: the host integrates, with forces from the GPU", mlff_last_error());
    return MLFF_OK;
}

// ---- the interface ----------------------------------------------------------------------------------------------------

static mlff_status check(const mlff_dynamics_options *const *options, mlff_system *const *systems, int n)
{
    for (int k = 0; k < n; k++) {
        if (!options[k] || !systems[k])
            return mlff_fail(MLFF_ERR_USAGE, "mlff_replicas_create: replica %d has no options or no system", k);
        if (options[k]->ensemble != options[0]->ensemble || options[k]->timestep_fs != options[0]->timestep_fs)
            return mlff_fail(MLFF_ERR_USAGE,
                             "replica %d has another ensemble or timestep than replica 0; replicas make their steps together", k);
        for (int other = 0; other < k; other++)
            if (systems[k] == systems[other])
                return mlff_fail(MLFF_ERR_USAGE, "replicas %d and %d have one system; copy it (mlff_system_copy)", other, k);
    }
    return MLFF_OK;
}

static mlff_status allocate(mlff_replicas *r, mlff_system *const *systems)
{
    const size_t n = (size_t)r->n;
    size_t n_atoms = 0;
    for (int k = 0; k < r->n; k++) n_atoms += (size_t)systems[k]->n_atoms;
    r->dynamics = base_alloc(n, sizeof *r->dynamics, "replicas");
    r->errors = base_alloc(n, sizeof *r->errors, "replicas");
    r->running = base_alloc(n, sizeof *r->running, "replicas");
    r->together = base_alloc(n, sizeof *r->together, "replicas");
    r->systems = base_alloc(n, sizeof *r->systems, "replicas");
    r->energies = base_alloc(n, sizeof *r->energies, "replicas");
    r->virials = base_alloc(9 * n, sizeof *r->virials, "replicas");
    r->forces = base_alloc(3 * n_atoms, sizeof *r->forces, "replicas");
    const bool whole =
        r->dynamics && r->errors && r->running && r->together && r->systems && r->energies && r->virials && r->forces;
    return whole ? MLFF_OK : MLFF_ERR_MEMORY;
}

mlff_status mlff_replicas_create(mlff_evaluator *evaluator, const mlff_dynamics_options *const *options,
                                 mlff_system *const *systems, int n, mlff_replicas **replicas_out)
{
    mlff_status status = MLFF_OK;
    mlff_replicas *r = NULL;
    if (!evaluator || !options || !systems || !replicas_out || n < 1)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_replicas_create: an evaluator, options and systems of 1 or more replicas, and a "
                                         "place for the result are needed");
    MLFF_TRY(check(options, systems, n));
    if (!(r = base_alloc(1, sizeof *r, "replicas"))) MLFF_TRY(MLFF_ERR_MEMORY);
    r->evaluator = evaluator;
    r->n = n;
    MLFF_TRY(allocate(r, systems));
    for (int k = 0; k < n; k++) MLFF_TRY(dynamics_of_evaluator(evaluator, options[k], systems[k], NULL, NULL, &r->dynamics[k]));
    r->constant_pressure = is_constant_pressure(r->dynamics[0]->options.ensemble);
    list_running(r);
    MLFF_TRY(integrate_on_device(r));
    evaluator_warn_not_conservative(evaluator, EVALUATOR_ENERGY_DRIFTS);
    *replicas_out = r;
    r = NULL;
done:
    mlff_replicas_destroy(r);
    return status;
}

void mlff_replicas_destroy(mlff_replicas *r)
{
    if (!r) return;
    if (r->resident.context) r->resident.destroy(r->resident.context);
    for (int k = 0; k < r->n; k++) {
        if (r->dynamics) mlff_dynamics_destroy(r->dynamics[k]);
        if (r->errors) base_free(r->errors[k]);
    }
    systems_batch_free(&r->batch);
    base_free(r->dynamics);
    base_free(r->errors);
    base_free(r->running);
    base_free(r->together);
    base_free(r->systems);
    base_free(r->energies);
    base_free(r->virials);
    base_free(r->forces);
    base_free(r);
}

mlff_status mlff_replicas_run(mlff_replicas *r, int64_t n_steps, double *times_ns)
{
    if (!r) return mlff_fail(MLFF_ERR_USAGE, "mlff_replicas_run: no replicas");
    if (n_steps < 0) return mlff_fail(MLFF_ERR_USAGE, "mlff_replicas_run: %lld steps; expected 0 or more", (long long)n_steps);
    const mlff_status status = r->resident.context ? run_on_device(r, n_steps, times_ns) : run_on_host(r, n_steps, times_ns);
    if (status != MLFF_OK || r->n_running > 0) return status;
    return mlff_fail(MLFF_ERR_UNSTABLE, "%d of %d replica%s ended; the first: %s", r->n, r->n, base_plural(r->n), r->errors[0]);
}

mlff_dynamics *mlff_replicas_dynamics(mlff_replicas *r, int replica)
{
    return r && replica >= 0 && replica < r->n ? r->dynamics[replica] : NULL;
}

const char *mlff_replicas_error(const mlff_replicas *r, int replica)
{
    return r && replica >= 0 && replica < r->n && r->errors[replica] ? r->errors[replica] : "";
}

mlff_device mlff_replicas_device(const mlff_replicas *r)
{
    return r->resident.context ? (mlff_device){MLFF_CUDA, r->resident.gpu_index} : (mlff_device){.kind = MLFF_CPU};
}
