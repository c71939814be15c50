// SPDX-License-Identifier: MIT
// evaluator_relax.c: many structures relaxed at once: a slot for each of the batch, filled again when its structure has ended. With a GPU the
// slots are two lanes: while the GPU computes the forces of one, the host makes the steps of the other. Which structures share a lane depends
// on their numbers of steps alone, so that runs repeat to the bit.
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "atoms/relax/relax.h"
#include "atoms/systems_batch.h"
#include "base/helper_thread.h"
#include "device/team.h"
#include "model/evaluator/evaluator.h"

// A structure that has ended and is not yet reported.
typedef struct ended {
    relaxation relaxation;
    mlff_system *system;
    mlff_relax_end end;
    const double *forces; /* in lane.forces, until its next computation */
} ended;

typedef struct step_work {
    double work;
    int slot;
} step_work;

struct relax_run;

// Structures whose forces are one computation.
typedef struct lane {
    struct relax_run *run;
    relaxation *slots;     /* [n_slots], the first n of them in use */
    mlff_system **systems; /* [n_slots] */
    int n_slots, n;
    ended *ended; /* [n_slots] the first n_ended of them in use */
    int n_ended, n_moving;
    atomic_int next_step; /* the first of the n_moving in `order` that no thread has taken */
    step_work *order;     /* [n_slots] slots that move, those with most work first */
    systems_batch batch;
    double *energies, *forces, *virials; /* [n_slots], [atoms][3], [n_slots][9] */
    size_t force_capacity;
    mlff_status status; /* of its forces, or of the queue's functions during its step */
    char cause[600];    /* of the forces' failure: errors have texts in the thread where they arise */
} lane;

enum { MOST_LANES = 2 };

typedef struct relax_run {
    mlff_evaluator *evaluator;
    mlff_relax_options options;
    mlff_relax_queue queue;
    lane lanes[MOST_LANES];
    int n_lanes, n_threads;
    bool drained; /* the queue has no further structure */
    helper_thread helper;
} relax_run;

mlff_relax_options mlff_relax_options_default(void)
{
    return (mlff_relax_options){.struct_size = sizeof(mlff_relax_options),
                                .optimizer = MLFF_LBFGS,
                                .force_limit = 0.05,
                                .max_steps = 1000,
                                .stress_limit = 500 * 6.241509074e-7, // 500 bar
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
        return mlff_fail(MLFF_ERR_USAGE, "%d structures at once is out of range; 16 to 1024 are usual", options->n_at_once);
    if (!(mlff_model_outputs(model) & MLFF_OUTPUT_FORCES))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "model '%s' has no forces, which relaxing needs; use another model", model->name);
    if (options->relax_cell && !(mlff_model_outputs(model) & MLFF_OUTPUT_STRESS))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "model '%s' has no stress, which relaxing a cell needs; relax the positions alone",
                         model->name);
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

// Takes a structure from the queue. One that cannot relax is reported at once.
static mlff_status take(relax_run *run, lane *to)
{
    const mlff_relax_options *o = &run->options;
    const relax_settings settings = {.optimizer = o->optimizer,
                                     .cell = o->relax_cell != 0,
                                     .keep_symmetry = o->keep_symmetry != 0,
                                     .force_limit = o->force_limit,
                                     .stress_limit = o->stress_limit,
                                     .pressure = o->pressure};
    mlff_system *system = NULL;
    mlff_status status = run->queue.next(run->queue.context, &system);
    if (status != MLFF_OK) return status;
    run->drained = !system;
    if (!system) return MLFF_OK;
    to->systems[to->n] = system;
    status = mlff_system_check(system, NULL);
    if (status == MLFF_OK) status = relaxation_create(system, &settings, &to->slots[to->n]);
    if (status == MLFF_ERR_MEMORY) return status;
    if (status == MLFF_OK) {
        to->n++;
        return MLFF_OK;
    }
    char cause[600];
    snprintf(cause, sizeof cause, "%s", mlff_last_error());
    return report(run, &to->slots[to->n], system, MLFF_RELAX_FAILED, NULL, cause);
}

static mlff_status refill(relax_run *run, lane *to)
{
    mlff_status status = MLFF_OK;
    while (to->n < to->n_slots && !run->drained && status == MLFF_OK) status = take(run, to);
    return status;
}

// Lanes take turns, so that few structures are in both.
static mlff_status fill(relax_run *run)
{
    mlff_status status = MLFF_OK;
    for (bool full = false; !full && !run->drained && status == MLFF_OK;) {
        full = true;
        for (int k = 0; k < run->n_lanes && !run->drained && status == MLFF_OK; k++) {
            lane *to = &run->lanes[k];
            if (to->n == to->n_slots) continue;
            status = take(run, to);
            full = false;
        }
    }
    return status;
}

// ---- forces -----------------------------------------------------------------------------------------------------------

static mlff_status compute(lane *l, mlff_system *const *systems, int n)
{
    mlff_status status = systems_batch_fill(&l->batch, systems, n);
    if (status != MLFF_OK) return status;
    const mlff_results results = {
        .energies = l->energies, .forces = l->forces, .virials = l->run->options.relax_cell ? l->virials : NULL};
    return mlff_evaluator_compute(l->run->evaluator, &l->batch.batch, &results);
}

static void remove_slot(lane *l, int slot)
{
    l->n--;
    l->slots[slot] = l->slots[l->n];
    l->systems[slot] = l->systems[l->n];
    l->slots[l->n] = (relaxation){0};
}

// A batch failed: each structure alone, and those that fail leave.
static mlff_status compute_each(lane *l)
{
    for (int s = 0; s < l->n;) {
        mlff_status status = compute(l, &l->systems[s], 1);
        if (status == MLFF_OK) {
            s++;
            continue;
        }
        if (status == MLFF_ERR_MEMORY || status == MLFF_ERR_DEVICE) return status;
        relaxation *r = &l->slots[s];
        char cause[600];
        if (r->n_steps > 0)
            snprintf(cause, sizeof cause, "after %" PRId64 " step%s: %s", r->n_steps, base_plural(r->n_steps), mlff_last_error());
        else
            snprintf(cause, sizeof cause, "%s", mlff_last_error());
        relaxation_undo(r);
        status = report(l->run, r, l->systems[s], MLFF_RELAX_FAILED, NULL, cause);
        remove_slot(l, s);
        if (status != MLFF_OK) return status;
    }
    return l->n == 0 ? MLFF_OK : compute(l, l->systems, l->n);
}

// In the helper's thread, where there are two lanes.
static void compute_all(void *context)
{
    lane *l = context;
    size_t n_atoms = 0;
    for (int s = 0; s < l->n; s++) n_atoms += (size_t)l->systems[s]->n_atoms;
    l->status = base_grow(&l->forces, &l->force_capacity, 3 * n_atoms, sizeof(double), "forces");
    if (l->status == MLFF_OK) l->status = compute(l, l->systems, l->n);
    if (l->status != MLFF_OK) snprintf(l->cause, sizeof l->cause, "%s", mlff_last_error());
}

static void start_forces(lane *l)
{
    if (l->run->n_lanes > 1)
        helper_start(&l->run->helper, compute_all, l);
    else
        compute_all(l);
}

static mlff_status finish_forces(lane *l)
{
    if (l->run->n_lanes > 1) helper_wait(&l->run->helper);
    if (l->status == MLFF_OK) return MLFF_OK;
    if (l->status == MLFF_ERR_MEMORY || l->status == MLFF_ERR_DEVICE) return mlff_fail(l->status, "%s", l->cause);
    return compute_each(l);
}

// ---- steps ------------------------------------------------------------------------------------------------------------

// Reports what has ended and takes new structures. After a failure the rest is given back as it stands.
static mlff_status exchange(lane *l)
{
    mlff_status status = MLFF_OK;
    for (int k = 0; k < l->n_ended; k++) {
        ended *e = &l->ended[k];
        if (status == MLFF_OK)
            status = report(l->run, &e->relaxation, e->system, e->end, e->forces, "");
        else
            report(l->run, &e->relaxation, e->system, MLFF_RELAX_STOPPED, NULL, "");
    }
    l->n_ended = 0;
    return status == MLFF_OK ? refill(l->run, l) : status;
}

// A thread takes structure after structure; the order changes no bit of the result. The caller's thread, in which the queue's functions
// are called, first reads and writes structures: for a molecule of 45 atoms that is 0.33 million instructions, as much as its 21 steps take
// of each of 16 threads.
static void step_some(void *context, const team_member *member)
{
    lane *l = context;
    if (member->thread == 0) l->status = exchange(l);
    for (int s; (s = atomic_fetch_add(&l->next_step, 1)) < l->n_moving;) relaxation_step(&l->slots[l->order[s].slot]);
}

static int by_work(const void *a, const void *b)
{
    const step_work *x = a, *y = b;
    return x->work != y->work ? (x->work < y->work) - (x->work > y->work) : x->slot - y->slot;
}

// The largest first, so that no thread begins one when the others are done.
static void order_steps(lane *l)
{
    for (int s = 0; s < l->n_moving; s++) l->order[s] = (step_work){relaxation_work(&l->slots[s]), s};
    if (l->n_moving > 1) qsort(l->order, (size_t)l->n_moving, sizeof *l->order, by_work);
}

// Takes the forces; structures that have arrived leave, the others move. Slots are visited from the last one, since one that leaves is
// replaced by the last.
static mlff_status move_all(lane *l)
{
    for (int s = l->n - 1; s >= 0; s--) {
        relaxation *r = &l->slots[s];
        const double *forces = l->forces + 3 * (size_t)l->batch.first_atom[s];
        relaxation_put(r, l->energies[s], forces, l->virials + 9 * (size_t)s);
        const bool arrived = relaxation_converged(r);
        if (!arrived && r->n_steps < l->run->options.max_steps) continue;
        l->ended[l->n_ended++] = (ended){*r, l->systems[s], arrived ? MLFF_RELAX_CONVERGED : MLFF_RELAX_STEPS, forces};
        remove_slot(l, s);
    }
    l->n_moving = l->n; // new ones, behind them, have no forces yet
    order_steps(l);
    l->next_step = 0;
    team_run(l->run->n_threads, step_some, l);
    return l->status;
}

// Lanes take turns: the forces of one are computed during the step of the other. A lane without structures stays so, since the queue is
// then drained.
static mlff_status relax_all(relax_run *run)
{
    lane *computing = &run->lanes[0];
    mlff_status status = fill(run);
    if (status != MLFF_OK || computing->n == 0) return status;
    start_forces(computing);
    while (computing) {
        lane *now = computing, *other = &run->lanes[run->n_lanes - 1 - (now - run->lanes)];
        if ((status = finish_forces(now)) != MLFF_OK) return status;
        if (run->queue.stopped && run->queue.stopped(run->queue.context)) return mlff_fail(MLFF_ERR_INTERRUPTED, "interrupted");
        computing = other != now && other->n > 0 ? other : NULL;
        if (computing) start_forces(computing);
        status = move_all(now);
        if (status != MLFF_OK && computing) helper_wait(&run->helper);
        if (status != MLFF_OK) return status;
        if (!computing && now->n > 0) start_forces(computing = now);
    }
    return MLFF_OK;
}

// Those under way are given back as they stand.
static void stop(relax_run *run)
{
    for (int k = 0; k < run->n_lanes; k++)
        for (lane *l = &run->lanes[k]; l->n > 0; remove_slot(l, l->n - 1))
            report(run, &l->slots[l->n - 1], l->systems[l->n - 1], MLFF_RELAX_STOPPED, NULL, "");
}

// ---- a run ------------------------------------------------------------------------------------------------------------

static mlff_status make_lane(relax_run *run, lane *l, int n_slots)
{
    l->run = run;
    l->n_slots = n_slots;
    l->slots = base_alloc((size_t)n_slots, sizeof *l->slots, "relaxations");
    l->systems = base_alloc((size_t)n_slots, sizeof *l->systems, "relaxations");
    l->energies = base_alloc((size_t)n_slots, sizeof *l->energies, "energies");
    l->virials = base_alloc(9 * (size_t)n_slots, sizeof *l->virials, "virials");
    l->ended = base_alloc((size_t)n_slots, sizeof *l->ended, "relaxations");
    l->order = base_alloc((size_t)n_slots, sizeof *l->order, "relaxations");
    return l->slots && l->systems && l->energies && l->virials && l->ended && l->order ? MLFF_OK : MLFF_ERR_MEMORY;
}

static void free_lane(lane *l)
{
    systems_batch_free(&l->batch);
    base_free(l->slots);
    base_free(l->ended);
    base_free(l->order);
    base_free(l->systems);
    base_free(l->energies);
    base_free(l->forces);
    base_free(l->virials);
}

// Two lanes where one GPU computes: forces on the CPU need its threads, and several devices have threads of their own.
static mlff_status make_lanes(relax_run *run)
{
    const mlff_evaluator_options *o = &run->evaluator->options;
    const int n_slots = run->options.n_at_once;
    run->n_lanes = n_slots > 1 && o->device.kind != MLFF_CPU && o->n_devices < 2 && helper_begin(&run->helper) ? 2 : 1;
    mlff_status status = make_lane(run, &run->lanes[0], n_slots - (run->n_lanes - 1) * (n_slots / 2));
    if (status == MLFF_OK && run->n_lanes > 1) status = make_lane(run, &run->lanes[1], n_slots / 2);
    return status;
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
    run.n_threads = team_size(evaluator->options.n_threads);
    MLFF_TRY(make_lanes(&run));
    MLFF_TRY(relax_all(&run));
done:
    if (status != MLFF_OK) {
        char cause[1000];
        snprintf(cause, sizeof cause, "%s", mlff_last_error());
        stop(&run);
        mlff_fail(status, "%s", cause);
    }
    helper_end(&run.helper);
    for (int k = 0; k < MOST_LANES; k++) free_lane(&run.lanes[k]);
    return status;
}
