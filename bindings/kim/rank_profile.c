// SPDX-License-Identifier: MIT
// rank_profile.c: profile of the force field in a process of a simulator. A process has no barrier with the others when it ends, so
// each writes a file of its own; mlff report reads all of them.
#include "rank_profile.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEMORY_EVERY = 100, PATH_BYTES = 4096 };

struct rank_profile {
    mlff_evaluator *evaluator;
    mlff_callable inner, callable; // of the evaluator; the same with the parts
    mlff_stage *stages;            // [callable.n_stages] the evaluator's, then gather, then exchange
    int list_stage;                // of the evaluator's, −1: none
    bool exchanges, clocks;
    double parts_ns[N_RANK_PARTS]; // of this step
    int64_t n_rebuilds;            // −1: the evaluator keeps the list
    int rank, n_ranks, n_ghosts;
    mlff_system *system; // atoms of the first step
    mlff_monitor *monitor;
    bool failed, stepped;
    char path[PATH_BYTES];
};

static mlff_status not_called(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                              double *stress)
{
    (void)context, (void)frame, (void)wanted, (void)energy, (void)forces, (void)stress;
    return mlff_fail(MLFF_ERR_UNSUPPORTED, "the simulator makes the steps");
}

static mlff_status clock_set(void *context, int on)
{
    rank_profile *p = context;
    p->clocks = on != 0;
    return p->inner.stage_clock_set(p->inner.context, on);
}

static void stage_times(void *context, double *time_ns)
{
    const rank_profile *p = context;
    const int n = p->inner.n_stages;
    p->inner.stage_times(p->inner.context, time_ns);
    if (p->list_stage >= 0) time_ns[p->list_stage] += p->parts_ns[RANK_LIST];
    time_ns[n] = p->parts_ns[RANK_GATHER];
    if (p->exchanges) time_ns[n + 1] = p->parts_ns[RANK_EXCHANGE];
}

static void ledgers(void *context, int64_t *bytes)
{
    const rank_profile *p = context;
    p->inner.ledgers(p->inner.context, bytes);
}

static void counters(void *context, int64_t *n_pairs, int64_t *n_rebuilds, int64_t *n_growths)
{
    const rank_profile *p = context;
    p->inner.counters(p->inner.context, n_pairs, n_rebuilds, n_growths);
    if (p->n_rebuilds >= 0) *n_rebuilds = p->n_rebuilds; // the evaluator is given the list
}

static const char *advice(void *context, int stage)
{
    const rank_profile *p = context;
    return stage < p->inner.n_stages && stage != p->list_stage ? p->inner.stage_advice(p->inner.context, stage) : "";
}

static mlff_status wrap(rank_profile *p)
{
    const int n = p->inner.n_stages;
    p->stages = malloc(((size_t)n + 2) * sizeof *p->stages);
    if (!p->stages) return mlff_fail(MLFF_ERR_MEMORY, "MLFF_PROFILE: out of memory: %d stages", n);
    memcpy(p->stages, p->inner.stages, (size_t)n * sizeof *p->stages);
    p->stages[n] = (mlff_stage){"gather", "", -1, "and scatter"};
    p->stages[n + 1] = (mlff_stage){"exchange", "", -1, "waits for other ranks"};
    p->list_stage = -1;
    for (int k = 0; k < n; k++)
        if (strcmp(p->stages[k].name, "neighbors") == 0) p->list_stage = k;
    p->callable = (mlff_callable){.struct_size = sizeof p->callable,
                                  .name = p->inner.name,
                                  .device = p->inner.device,
                                  .notes = p->inner.notes,
                                  .context = p,
                                  .properties = p->inner.properties,
                                  .step = not_called,
                                  .n_stages = n + 1 + p->exchanges,
                                  .stages = p->stages,
                                  .stage_clock_set = clock_set,
                                  .stage_times = stage_times,
                                  .n_ledgers = p->inner.n_ledgers,
                                  .ledger_names = p->inner.ledger_names,
                                  .ledgers = ledgers,
                                  .counters = counters,
                                  .stage_advice = advice};
    return MLFF_OK;
}

static void release(rank_profile *p)
{
    mlff_monitor_destroy(p->monitor);
    mlff_system_destroy(p->system);
    mlff_callable_destroy(&p->inner);
    free(p->stages);
    free(p);
}

// A file of an earlier run goes; one that could not be written after hours is refused now.
static mlff_status try_file(const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) return mlff_fail(MLFF_ERR_IO, "MLFF_PROFILE: %s: %s", path, strerror(errno));
    fclose(file);
    unlink(path);
    return MLFF_OK;
}

mlff_status rank_profile_create(mlff_evaluator *evaluator, const mlff_model *model, int rank, int n_ranks, bool exchanges,
                                rank_profile **profile_out)
{
    const char *path = getenv("MLFF_PROFILE");
    char own[PATH_BYTES];
    mlff_evaluator_info info;
    *profile_out = NULL;
    if (!path || !path[0]) return MLFF_OK;
    mlff_status status = mlff_profile_rank_path(path, rank, own, sizeof own);
    if (status == MLFF_OK) status = try_file(own);
    if (status != MLFF_OK) return status;
    rank_profile *p = calloc(1, sizeof *p);
    if (!p) return mlff_fail(MLFF_ERR_MEMORY, "MLFF_PROFILE: out of memory");
    snprintf(p->path, sizeof p->path, "%s", path);
    mlff_evaluator_info_get(evaluator, &info);
    p->evaluator = evaluator;
    p->rank = rank;
    p->n_ranks = n_ranks;
    p->n_ghosts = -1;
    p->n_rebuilds = -1;
    p->exchanges = exchanges && info.device.kind == MLFF_CPU; // on a GPU the exchange is part of the stages beside it
    status = mlff_callable_from_evaluator(evaluator, model, &p->inner);
    if (status == MLFF_OK) status = wrap(p);
    if (status != MLFF_OK) {
        release(p);
        return status;
    }
    *profile_out = p;
    return MLFF_OK;
}

mlff_status rank_profile_step(rank_profile *p, mlff_status (*step)(void *context), void *context)
{
    if (!p || !p->monitor) return step(context);
    memset(p->parts_ns, 0, sizeof p->parts_ns);
    p->stepped = true;
    return mlff_monitor_call(p->monitor, step, context);
}

int64_t rank_profile_begin(const rank_profile *p)
{
    return p && p->clocks ? mlff_clock_ns() : 0;
}

void rank_profile_add(rank_profile *p, int part, int64_t begin)
{
    if (p && p->clocks && begin > 0) p->parts_ns[part] += (double)(mlff_clock_ns() - begin);
}

void rank_profile_list(rank_profile *p, int64_t begin, const mlff_neighbors *neighbors)
{
    mlff_neighbors_info info;
    if (!p) return;
    rank_profile_add(p, RANK_LIST, begin);
    mlff_neighbors_info_get(neighbors, &info);
    p->n_rebuilds = info.n_rebuilds;
}

static mlff_status begin(rank_profile *p, const int32_t *species, const unsigned char *owned, int n_atoms, int n_owned)
{
    int n = 0;
    mlff_status status = mlff_system_create(n_owned > 0 ? n_owned : 1, &p->system);
    if (status == MLFF_OK) p->system->n_atoms = n_owned; // a process may own none
    for (int i = 0; i < n_atoms && status == MLFF_OK; i++)
        if (!owned || owned[i]) p->system->species[n++] = species[i];
    if (status == MLFF_OK) status = mlff_monitor_create(&p->callable, p->system, NAN, MEMORY_EVERY, &p->monitor);
    return status;
}

void rank_profile_atoms(rank_profile *p, const int32_t *species, const unsigned char *owned, int n_atoms)
{
    int n_owned = 0;
    if (!p || p->monitor || p->failed) return;
    for (int i = 0; i < n_atoms; i++) n_owned += !owned || owned[i];
    p->n_ghosts = n_atoms - n_owned;
    if (begin(p, species, owned, n_atoms, n_owned) == MLFF_OK) return;
    p->failed = true;
    fprintf(stderr, "mlff: MLFF_PROFILE: rank %d: %s\n", p->rank, mlff_last_error());
}

void rank_profile_destroy(rank_profile *p)
{
    mlff_profile *profile = NULL;
    char name[256], notes[512];
    if (!p) return;
    if (p->stepped) {
        snprintf(name, sizeof name, p->n_ranks > 1 ? "%.200s, rank %d of %d" : "%.200s", p->inner.name, p->rank, p->n_ranks);
        snprintf(notes, sizeof notes,
                 "a step is a call of the force field by the simulator, whose own work between two calls is not part "
                 "of it: ns/day are of the force field alone");
        mlff_status status = mlff_monitor_profile(p->monitor, name, notes, &profile);
        if (status == MLFF_OK) status = mlff_profile_save_rank(profile, p->path, p->rank, p->n_ranks, p->n_ghosts);
        if (status != MLFF_OK) fprintf(stderr, "mlff: MLFF_PROFILE: rank %d: %s\n", p->rank, mlff_last_error());
        mlff_profile_destroy(profile);
    }
    release(p);
}
