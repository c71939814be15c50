// SPDX-License-Identifier: MIT
// evaluator_relax.c: many structures relaxed at once: a slot for each of the batch, filled again when its structure has ended.
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "atoms/relax/relax.h"
#include "atoms/systems_batch.h"
#include "device/team.h"
#include "model/evaluator/evaluator.h"

// A structure that has ended and is not yet reported.
typedef struct ended {
    relaxation relaxation;
    mlff_system *system;
    mlff_relax_end end;
    const double *forces; /* in relax_run.forces, until the next computation */
} ended;

typedef struct relax_run {
    mlff_evaluator *evaluator;
    mlff_relax_options options;
    mlff_relax_queue queue;
    relaxation *slots;     /* [n_slots], the first n of them in use */
    mlff_system **systems; /* [n_slots] */
    int n_slots, n, n_threads;
    ended *ended; /* [n_slots] the first n_ended of them in use */
    int n_ended, n_moving;
    atomic_int next_step; /* the first of n_moving slots that no thread has taken */
    bool drained;         /* the queue has no further structure */
    mlff_status status;   /* of the queue's functions during a step */
    systems_batch batch;
    double *energies, *forces, *virials; /* [n_slots], [atoms][3], [n_slots][9] */
    size_t force_capacity;
} relax_run;

mlff_relax_options mlff_relax_options_default(void)
{
    return (mlff_relax_options){.struct_size = sizeof(mlff_relax_options),
                                .optimizer = MLFF_LBFGS,
                                .force_limit = 0.05,
                                .max_steps = 1000,
                                .stress_limit = 3e-4,
                                .n_at_once = 64,
                                .keep_symmetry = 1};
}

static mlff_status check_options(const mlff_relax_options *options, const mlff_model *model)
{
    if (options->optimizer != MLFF_FIRE && options->optimizer != MLFF_LBFGS)
        return mlff_fail(MLFF_ERR_USAGE, "optimizer %d is unknown; use MLFF_FIRE or MLFF_LBFGS", (int)options->optimizer);
    if (!(options->force_limit > 0) || !(options->stress_limit > 0) || !isfinite(options->pressure) || options->max_steps < 0)
        return mlff_fail(MLFF_ERR_USAGE, "limits of forces and stress must be above 0, the pressure finite, and steps 0 or more");
    if (options->n_at_once < 1 || options->n_at_once > 1 << 20)
        return mlff_fail(MLFF_ERR_USAGE, "%d structures at once cannot be meant; 16 to 1024 are usual", options->n_at_once);
    if (!(mlff_model_outputs(model) & MLFF_OUTPUT_FORCES))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "model '%s' has no forces, which relaxing needs", model->name);
    if (options->relax_cell && !(mlff_model_outputs(model) & MLFF_OUTPUT_VIRIALS))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "model '%s' has no virial, which relaxing a cell needs", model->name);
    return MLFF_OK;
}

// ---- the queue --------------------------------------------------------------------------------------------------------

static mlff_status report(relax_run *run, relaxation *r, mlff_system *system, mlff_relax_end end, const double *forces,
                          const char *error)
{
    const bool computed = forces != NULL;
    mlff_relaxed result = {.end = end,
                           .n_steps = r->n_steps,
                           .start_energy = computed || r->n_steps > 0 ? r->start_energy : NAN,
                           .energy = computed ? r->energy : NAN,
                           .largest_force = computed ? r->largest_force : NAN,
                           .largest_stress = computed && run->options.relax_cell ? r->largest_stress : NAN,
                           .forces = forces,
                           .error = error};
    relaxation_destroy(r);
    return run->queue.done(run->queue.context, system, &result);
}

// Takes structures from the queue until all slots are in use. One that cannot relax is reported at once.
static mlff_status refill(relax_run *run)
{
    const mlff_relax_options *o = &run->options;
    const relax_settings settings = {.optimizer = o->optimizer,
                                     .cell = o->relax_cell != 0,
                                     .keep_symmetry = o->keep_symmetry != 0,
                                     .force_limit = o->force_limit,
                                     .stress_limit = o->stress_limit,
                                     .pressure = o->pressure};
    while (run->n < run->n_slots && !run->drained) {
        mlff_system *system = NULL;
        mlff_status status = run->queue.next(run->queue.context, &system);
        if (status != MLFF_OK) return status;
        run->drained = !system;
        if (!system) break;
        run->systems[run->n] = system;
        status = mlff_system_check(system, NULL);
        if (status == MLFF_OK) status = relaxation_create(system, &settings, &run->slots[run->n]);
        if (status == MLFF_ERR_MEMORY) return status;
        if (status == MLFF_OK) {
            run->n++;
            continue;
        }
        char cause[600];
        snprintf(cause, sizeof cause, "%s", mlff_last_error());
        if ((status = report(run, &run->slots[run->n], system, MLFF_RELAX_FAILED, NULL, cause)) != MLFF_OK) return status;
    }
    return MLFF_OK;
}

// ---- forces -----------------------------------------------------------------------------------------------------------

static mlff_status compute(relax_run *run, mlff_system *const *systems, int n, double *energies, double *forces, double *virials)
{
    mlff_status status = systems_batch_fill(&run->batch, systems, n);
    if (status != MLFF_OK) return status;
    const mlff_results results = {.energies = energies, .forces = forces, .virials = run->options.relax_cell ? virials : NULL};
    return mlff_evaluator_compute(run->evaluator, &run->batch.batch, &results);
}

static void remove_slot(relax_run *run, int slot)
{
    run->n--;
    run->slots[slot] = run->slots[run->n];
    run->systems[slot] = run->systems[run->n];
    run->slots[run->n] = (relaxation){0};
}

// A batch failed: each structure alone, and those that fail leave.
static mlff_status compute_each(relax_run *run)
{
    for (int s = 0; s < run->n;) {
        mlff_status status = compute(run, &run->systems[s], 1, run->energies, run->forces, run->virials);
        if (status == MLFF_OK) {
            s++;
            continue;
        }
        if (status == MLFF_ERR_MEMORY || status == MLFF_ERR_DEVICE) return status;
        char cause[600];
        snprintf(cause, sizeof cause, "%s", mlff_last_error());
        status = report(run, &run->slots[s], run->systems[s], MLFF_RELAX_FAILED, NULL, cause);
        remove_slot(run, s);
        if (status != MLFF_OK) return status;
    }
    return run->n == 0 ? MLFF_OK : compute(run, run->systems, run->n, run->energies, run->forces, run->virials);
}

static mlff_status compute_all(relax_run *run)
{
    size_t n_atoms = 0;
    for (int s = 0; s < run->n; s++) n_atoms += (size_t)run->systems[s]->n_atoms;
    mlff_status status = base_grow(&run->forces, &run->force_capacity, 3 * n_atoms, sizeof(double), "forces");
    if (status != MLFF_OK) return status;
    status = compute(run, run->systems, run->n, run->energies, run->forces, run->virials);
    if (status == MLFF_OK || status == MLFF_ERR_MEMORY || status == MLFF_ERR_DEVICE) return status;
    return compute_each(run);
}

// ---- steps ------------------------------------------------------------------------------------------------------------

// Reports what has ended and takes new structures. After a failure the rest is given back as it stands.
static mlff_status exchange(relax_run *run)
{
    mlff_status status = MLFF_OK;
    for (int k = 0; k < run->n_ended; k++) {
        ended *e = &run->ended[k];
        if (status == MLFF_OK)
            status = report(run, &e->relaxation, e->system, e->end, e->forces, "");
        else
            report(run, &e->relaxation, e->system, MLFF_RELAX_STOPPED, NULL, "");
    }
    run->n_ended = 0;
    return status == MLFF_OK ? refill(run) : status;
}

// A thread takes structure after structure; the order changes no bit of the result. The caller's thread, in which the queue's functions
// are called, first reads and writes structures: for a molecule of 45 atoms that is 0.33 million instructions, as much as its 21 steps take
// of each of 16 threads.
static void step_some(void *context, const team_member *member)
{
    relax_run *run = context;
    if (member->thread == 0) run->status = exchange(run);
    for (int s; (s = atomic_fetch_add(&run->next_step, 1)) < run->n_moving;) relaxation_step(&run->slots[s]);
}

// Takes the forces; structures that have arrived leave, the others move. Slots are visited from the last one, since one that leaves is
// replaced by the last.
static mlff_status move_all(relax_run *run)
{
    for (int s = run->n - 1; s >= 0; s--) {
        relaxation *r = &run->slots[s];
        const double *forces = run->forces + 3 * (size_t)run->batch.first_atom[s];
        relaxation_put(r, run->energies[s], forces, run->virials + 9 * (size_t)s);
        const bool arrived = relaxation_converged(r);
        if (!arrived && r->n_steps < run->options.max_steps) continue;
        run->ended[run->n_ended++] = (ended){*r, run->systems[s], arrived ? MLFF_RELAX_CONVERGED : MLFF_RELAX_STEPS, forces};
        remove_slot(run, s);
    }
    run->n_moving = run->n; // new ones, behind them, have no forces yet
    run->next_step = 0;
    team_run(run->n_threads, step_some, run);
    return run->status;
}

// Those under way are given back as they stand.
static void stop(relax_run *run)
{
    for (; run->n > 0; remove_slot(run, run->n - 1))
        report(run, &run->slots[run->n - 1], run->systems[run->n - 1], MLFF_RELAX_STOPPED, NULL, "");
}

mlff_status mlff_relax(mlff_evaluator *evaluator, const mlff_relax_options *options, const mlff_relax_queue *queue)
{
    mlff_status status = MLFF_OK;
    relax_run run = {.evaluator = evaluator, .options = mlff_relax_options_default()};
    if (!evaluator || !queue || !queue->next || !queue->done)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_relax: an evaluator and a queue with both functions are needed");
    run.queue = *queue;
    MLFF_TRY(base_take_options("mlff_relax", "mlff_relax_options", options, sizeof run.options, &run.options));
    MLFF_TRY(check_options(&run.options, evaluator->model));
    evaluator_warn_not_conservative(evaluator, "where its forces vanish need not be a minimum of its energy");
    run.n_slots = run.options.n_at_once;
    run.n_threads = evaluator->options.n_threads > 0 ? evaluator->options.n_threads : team_default_size();
    run.slots = base_alloc((size_t)run.n_slots, sizeof *run.slots, "relaxations");
    run.systems = base_alloc((size_t)run.n_slots, sizeof *run.systems, "relaxations");
    run.energies = base_alloc((size_t)run.n_slots, sizeof *run.energies, "energies");
    run.virials = base_alloc(9 * (size_t)run.n_slots, sizeof *run.virials, "virials");
    run.ended = base_alloc((size_t)run.n_slots, sizeof *run.ended, "relaxations");
    if (!run.slots || !run.systems || !run.energies || !run.virials || !run.ended) MLFF_TRY(MLFF_ERR_MEMORY);
    MLFF_TRY(refill(&run));
    while (run.n > 0) {
        MLFF_TRY(compute_all(&run));
        if (run.n == 0)
            MLFF_TRY(refill(&run)); // all of them failed
        else
            MLFF_TRY(move_all(&run));
    }
done:
    if (run.n > 0) {
        char cause[1000];
        snprintf(cause, sizeof cause, "%s", mlff_last_error());
        stop(&run);
        mlff_fail(status, "%s", cause);
    }
    systems_batch_free(&run.batch);
    base_free(run.slots);
    base_free(run.ended);
    base_free(run.systems);
    base_free(run.energies);
    base_free(run.forces);
    base_free(run.virials);
    return status;
}
