// SPDX-License-Identifier: MIT
// parallel_dynamics.c: dynamics of a system that is divided among devices: the thread of each domain integrates its own atoms.
//
// The steps are those of dynamics.c, and an atom's arithmetic is the same, so that forces of the same bits give a trajectory of the same
// bits; kinetic energies and virials are summed by domains. One step, in the thread of each domain:
//   1. next positions and velocities of own atoms, from the current ones                        barrier
//      (at constant pressure and with chains their kinetic energy before that; the next cell)   barrier
//   2. positions of ghosts from the next positions of their owners; energy and forces; sum      (barriers of the exchange)
//   3. second kick; the thermostat, with the kinetic energy of all domains                      barrier
//   4. the next positions and velocities become the current ones
// All domains take step 4 or none does: a failure leaves every atom at the end of the last good step. If an atom has moved by half the
// skin, the threads end after 1, the system is decomposed again with its next positions, and the step goes on at 2. At constant pressure
// that is the distance from where the strain has brought it, and a cell that shrinks leaves less of the skin.
#include <math.h>
#include <string.h>

#include "parallel/parallel_dynamics.h"

static void destroy(void *context)
{
    parallel_dynamics *p = context;
    if (is_in_domains(p)) p->evaluator->dynamics = NULL;
    for (int k = 0; k < p->evaluator->n; k++) moving_release(&p->domains[k]);
    for (int s = NOW; s <= NEXT; s++) base_free(p->positions[s]), base_free(p->velocities[s]);
    base_free(p->forces);
    base_free(p);
}

// The first domain with atoms.
static const moving_domain *leader(const parallel_dynamics *p)
{
    int k = 0;
    while (k + 1 < p->evaluator->n && p->evaluator->decomposition->domains[k].n_owned == 0) k++;
    return &p->domains[k];
}

// ---- a step, in the thread of a domain ----------------------------------------------------------------------------------

static double sum_of(const double parts[3])
{
    return parts[0] + parts[1] + parts[2];
}

// Twice the kinetic energy of all domains, in their order, along x, y and z.
static void sum_kinetic(const parallel_dynamics *p, double twice[3])
{
    memset(twice, 0, 3 * sizeof *twice);
    for (int k = 0; k < p->evaluator->n; k++)
        for (int c = 0; c < 3; c++) twice[c] += p->domains[k].twice_kinetic[c];
}

static mlff_status count_kinetic(parallel_dynamics *p, int index, double twice[3])
{
    moving_domain *m = &p->domains[index];
    domain_outcome outcome;
    const mlff_status status = moving_move(m, MOVE_COUNT, &outcome);
    if (status != MLFF_OK) return status;
    memcpy(m->twice_kinetic, outcome.sum, sizeof m->twice_kinetic);
    if (!exchange_barrier(p->evaluator->exchange, index)) return crew_ended();
    sum_kinetic(p, twice);
    return MLFF_OK;
}

// Half a kick and a drift of constant volume.
static void set_motion(const mlff_dynamics_options *options, domain_motion *motion)
{
    motion->langevin = options->ensemble == MLFF_LANGEVIN;
    for (int c = 0; c < 3; c++) {
        motion->hold[c] = motion->shrink[c] = motion->stretch[c] = 1;
        motion->kick[c] = 0.5 * options->timestep_fs;
        motion->drift[c] = motion->langevin ? motion->kick[c] : options->timestep_fs;
    }
}

// The strain of this step, from the kinetic energy before it.
static void strain_motion(const parallel_dynamics *p, moving_domain *m, int64_t step, double twice[3])
{
    const mlff_dynamics_options *options = &p->options;
    moving_bath *next = &m->bath[NEXT];
    domain_motion *motion = &m->motion;
    const double volume = bath_volume(next->cell), square = motion->factor * motion->factor;
    if (options->ensemble == MLFF_MTK) {
        for (int c = 0; c < 3; c++) twice[c] *= square;
        bath_push_strain_rate(options, p->n_degrees, bath_temperature(options, step), volume, twice, next->virial, &next->state);
        bath_strained_kick(options, p->n_degrees, &next->state, motion->hold, motion->kick);
        bath_strained_drift(options, &next->state, motion->stretch, motion->drift);
    } else {
        bath_choose_strain(options, step, volume, twice, next->virial, &next->state);
        for (int c = 0; c < 3; c++) {
            motion->stretch[c] = exp(next->state.strain[c]);
            motion->shrink[c] = 1 / motion->stretch[c];
        }
    }
    for (int k = 0; k < 9; k++) next->cell[k] *= motion->stretch[k % 3];
}

// What a stochastic strain did to the kinetic energy of all domains, which all have kicked.
static void count_stretch(const parallel_dynamics *p, moving_domain *m)
{
    moving_bath *next = &m->bath[NEXT];
    const double *shrink = m->motion.shrink;
    double twice[3] = {0};
    for (int k = 0; k < p->evaluator->n; k++)
        for (int c = 0; c < 3; c++) twice[c] += p->domains[k].twice_kicked[c];
    for (int c = 0; c < 3; c++) next->state.heat += 0.5 * twice[c] * (shrink[c] * shrink[c] - 1);
    next->state.heat += p->options.pressure * (bath_volume(next->cell) - bath_volume(m->bath[NOW].cell));
}

// Square of the distance from where it was, strained with the cell, within which an atom and its neighbors are in the ranges of the decomposition.
static double bound_of(const decomposition *all, const double strained[3])
{
    const double smallest = fmin(fmin(strained[0], strained[1]), fmin(strained[2], 1)),
                 half = 0.5 * (all->skin - all->reach * (1 - smallest));
    return half > 0 ? half * half : -1;
}

static mlff_status begin_step(parallel_dynamics *p, int index, int64_t step)
{
    mlff_status status = MLFF_OK;
    const mlff_dynamics_options *options = &p->options;
    const decomposition *all = p->evaluator->decomposition;
    const bool strains = is_constant_pressure(options->ensemble);
    moving_domain *m = &p->domains[index];
    domain_motion *motion = &m->motion;
    domain_outcome outcome;
    double twice[3];
    m->bath[NEXT] = m->bath[NOW];
    motion->factor = 1;
    set_motion(options, motion);
    if (strains || bath_has_chains(options->ensemble)) MLFF_TRY(count_kinetic(p, index, twice));
    if (bath_has_chains(options->ensemble))
        motion->factor =
            bath_move_chains(options, p->n_degrees, bath_temperature(options, step), sum_of(twice), &m->bath[NEXT].state);
    if (strains) strain_motion(p, m, step, twice);
    memcpy(motion->cell, m->bath[NEXT].cell, sizeof motion->cell);
    for (int c = 0; c < 3; c++) {
        m->bath[NEXT].stretch[c] = motion->stretch[c];
        motion->strained[c] = m->bath[NEXT].strained[c] = m->bath[NOW].strained[c] * motion->stretch[c];
    }
    motion->bound = bound_of(all, motion->strained);
    motion->seed = options->seed;
    motion->step = (uint64_t)step;
    bath_langevin(options, step, &motion->keep, &motion->noise);
    m->begun = true;
    MLFF_TRY(moving_move(m, MOVE_BEGIN, &outcome));
    m->heat[NEXT] = m->heat[NOW] + (motion->langevin ? outcome.sum[0] : 0);
    memcpy(m->twice_kicked, outcome.sum, sizeof m->twice_kicked);
    m->far = outcome.far;
    if (outcome.atom >= 0)
        return mlff_fail(MLFF_ERR_UNSTABLE, "the position of atom %d is beyond %g Å", (int)all->domains[index].atom[outcome.atom],
                         FAR_AWAY);
    if (!exchange_barrier(p->evaluator->exchange, index)) return crew_ended();
    if (options->ensemble == MLFF_SCR) count_stretch(p, m);
done:
    return status;
}

static bool any_far(const parallel_dynamics *p)
{
    bool far = false;
    for (int k = 0; k < p->evaluator->n; k++) far = far || p->domains[k].far;
    return far;
}

// Energy and forces of the next positions, once all domains have theirs.
static mlff_status find_forces(parallel_dynamics *p, int index)
{
    mlff_status status = MLFF_OK;
    parallel_evaluator *e = p->evaluator;
    moving_domain *m = &p->domains[index];
    unsigned char periodic[3];
    mlff_batch batch;
    for (int k = 0; k < e->n; k++) {
        m->motion.next_of[k] = p->domains[k].there.positions[1 - m->now];
        m->motion.found_by[k] = p->domains[k].there.found;
    }
    MLFF_TRY(moving_move(m, MOVE_PLACE, NULL));
    parallel_describe_domain(e, index, periodic, &batch);
    batch.species = m->there.species;
    batch.owned = m->there.owned;
    batch.positions = m->there.local;
    if (batch.cells) batch.cells = m->there.cell;
    batch.location = m->plugin ? MLFF_DEVICE_MEMORY : MLFF_HOST;
    batch.stream = m->stream;
    MLFF_TRY(
        parallel_compute_domain(e, index, &batch,
                                &(mlff_results){.energies = m->found_energy,
                                                .forces = m->motion.found,
                                                .virials = is_constant_pressure(p->options.ensemble) ? m->found_virial : NULL,
                                                .location = batch.location}));
    MLFF_TRY(moving_wait(m));
    if (!isfinite(*m->found_energy)) return mlff_fail(MLFF_ERR_UNSTABLE, "the energy is %g eV", *m->found_energy);
    if (!exchange_barrier(e->exchange, index)) return crew_ended();
done:
    return status;
}

// The diagonal of what all domains have found, in their order. A domain without atoms has found nothing.
static void sum_virials(const parallel_dynamics *p, double virial[3])
{
    memset(virial, 0, 3 * sizeof *virial);
    for (int k = 0; k < p->evaluator->n; k++)
        for (int c = 0; c < 3 && p->evaluator->decomposition->domains[k].n_owned > 0; c++)
            virial[c] += p->domains[k].found_virial[4 * c];
}

// The second kick, with the forces that all domains found on own atoms.
static mlff_status kick_again(parallel_dynamics *p, int index)
{
    mlff_status status = MLFF_OK;
    moving_domain *m = &p->domains[index];
    domain_outcome outcome;
    set_motion(&p->options, &m->motion);
    if (p->options.ensemble == MLFF_MTK)
        bath_strained_kick(&p->options, p->n_degrees, &m->bath[NEXT].state, m->motion.hold, m->motion.kick);
    MLFF_TRY(moving_move(m, MOVE_ADD, NULL));
    MLFF_TRY(moving_move(m, MOVE_END, &outcome));
    if (outcome.atom >= 0)
        return mlff_fail(MLFF_ERR_UNSTABLE, "the force of atom %d is not finite",
                         (int)p->evaluator->decomposition->domains[index].atom[outcome.atom]);
    memcpy(m->twice_kinetic, outcome.sum, sizeof m->twice_kinetic);
done:
    return status;
}

// Thermostats that scale all velocities, and the cell's.
static mlff_status couple(parallel_dynamics *p, int index, int64_t step)
{
    mlff_status status = MLFF_OK;
    moving_domain *m = &p->domains[index];
    const mlff_dynamics_options *options = &p->options;
    const double temperature = bath_temperature(options, step);
    dynamics_bath *bath = &m->bath[NEXT].state;
    double *virial = m->bath[NEXT].virial, volume = bath_volume(m->bath[NEXT].cell), twice[3];
    if (is_constant_pressure(options->ensemble)) sum_virials(p, virial);
    if (options->ensemble == MLFF_SCR) bath_count_strain(virial, bath);
    if (options->ensemble > MLFF_LANGEVIN) {
        if (!exchange_barrier(p->evaluator->exchange, index)) return crew_ended();
        sum_kinetic(p, twice);
        if (options->ensemble == MLFF_MTK) bath_push_strain_rate(options, p->n_degrees, temperature, volume, twice, virial, bath);
        m->motion.factor = bath_has_chains(options->ensemble)
                               ? bath_move_chains(options, p->n_degrees, temperature, sum_of(twice), bath)
                               : bath_rescale(options, step, bath_draw(options, p->n_degrees, step), 0.5 * sum_of(twice), bath);
        MLFF_TRY(moving_move(m, MOVE_SCALE, NULL));
    }
    bath_end_step(options, p->n_degrees, volume, step, bath);
done:
    return status;
}

static void commit(moving_domain *m)
{
    m->now = 1 - m->now;
    m->heat[NOW] = m->heat[NEXT];
    m->bath[NOW] = m->bath[NEXT];
    m->energy = *m->found_energy;
    m->begun = false;
    m->n_done++;
    moving_aim(m);
}

// From step 2 on.
static mlff_status end_step(parallel_dynamics *p, int index, int64_t step)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(find_forces(p, index));
    MLFF_TRY(kick_again(p, index));
    MLFF_TRY(couple(p, index, step));
    if (!exchange_barrier(p->evaluator->exchange, index)) return crew_ended();
    commit(&p->domains[index]);
    p->evaluator->domains[index].apart_ns = exchange_apart(p->evaluator->exchange, index) - p->domains[index].apart_ns;
    p->domains[index].apart_ns = exchange_apart(p->evaluator->exchange, index);
done:
    return status;
}

static mlff_status make_steps(void *context, int index)
{
    mlff_status status = MLFF_OK;
    parallel_dynamics *p = context;
    moving_domain *m = &p->domains[index];
    bool begun = p->drifted;
    m->n_done = 0;
    m->apart_ns = exchange_apart(p->evaluator->exchange, index);
    p->evaluator->domains[index].idle = p->evaluator->decomposition->domains[index].n_owned == 0;
    if (p->evaluator->domains[index].idle) return MLFF_OK;
    const int64_t start = base_clock_ns();
    while (m->n_done < p->n_wanted) {
        const int64_t step = p->step + m->n_done;
        if (!begun) MLFF_TRY(begin_step(p, index, step));
        if (!begun && any_far(p)) break;
        begun = false;
        MLFF_TRY(end_step(p, index, step));
        if (m != leader(p)) continue;
        const int64_t now = base_clock_ns();
        if (p->times_ns) p->times_ns[m->n_done - 1] = (double)(now - p->last_ns);
        p->last_ns = now;
    }
done:
    if (status != MLFF_OK) moving_wait(m); // the others' arrays may be read
    p->evaluator->domains[index].work_ns += (double)(base_clock_ns() - start);
    return status;
}

// ---- the interface of a device that integrates --------------------------------------------------------------------------

// Takes over what the threads have done; returns the number of steps.
static int64_t take_steps(parallel_dynamics *p)
{
    const parallel_evaluator *e = p->evaluator;
    const moving_domain *first = leader(p);
    memcpy(p->bath, first->bath, sizeof p->bath);
    p->step += first->n_done;
    p->drifted = false;
    if (first->n_done == 0) return 0;
    p->behind = true;
    p->energy = 0;
    for (int k = 0; k < e->n; k++) {
        moving_domain *m = &p->domains[k];
        if (e->decomposition->domains[k].n_owned > 0)
            p->energy += m->energy;
        else
            m->heat[NOW] = m->heat[NEXT]; // its atoms have left in the middle of a step
    }
    return first->n_done;
}

// Back to where the step began; the text of the failure stays.
static void end_failed_step(parallel_dynamics *p)
{
    p->drifted = false;
    for (int k = 0; k < p->evaluator->n; k++) p->domains[k].begun = false, p->domains[k].heat[NEXT] = p->domains[k].heat[NOW];
}

static mlff_status run(void *context, int64_t n_steps, double *times_ns, int64_t *n_done_out, int *failed_out)
{
    mlff_status status = MLFF_OK;
    parallel_dynamics *p = context;
    parallel_evaluator *e = p->evaluator;
    int64_t n_done = 0;
    *failed_out = 0;
    p->last_ns = base_clock_ns();
    e->batch = &p->batch;
    e->results = &p->wanted;
    e->divided = true;
    if (!is_in_domains(p)) MLFF_TRY(parallel_divide_again(p));
    while (n_done < n_steps) {
        p->n_wanted = n_steps - n_done;
        p->times_ns = times_ns ? times_ns + n_done : NULL;
        status = crew_run(e->crew, make_steps, p);
        n_done += take_steps(p);
        if (status != MLFF_OK || n_done == n_steps) break;
        p->drifted = p->behind = true;
        status = parallel_divide_again(p);
        if (status != MLFF_OK) break;
    }
    if (status != MLFF_OK) end_failed_step(p);
    if (status == MLFF_OK) status = parallel_leave_domains(p);
done:
    e->n_computes += n_done;
    *n_done_out = n_done;
    return status;
}

static mlff_status put(void *context, mlff_dynamics *const *dynamics, int n)
{
    (void)n; // one
    mlff_status status = MLFF_OK;
    parallel_dynamics *p = context;
    const mlff_dynamics *from = dynamics[0];
    const size_t bytes = 3 * (size_t)from->system->n_atoms * sizeof(double);
    double virial[9];
    const mlff_results results = {
        .energies = &p->energy, .forces = p->forces, .virials = is_constant_pressure(from->options.ensemble) ? virial : NULL};
    p->options = from->options;
    p->system = from->system;
    p->n_degrees = dynamics_n_degrees(from);
    p->step = from->step;
    p->bath[NOW] = (moving_bath){.state = from->bath};
    memcpy(p->bath[NOW].cell, from->system->cell, sizeof p->bath[NOW].cell);
    p->evaluator->dynamics = NULL;
    p->drifted = p->fresh = false;
    for (int k = 0; k < p->evaluator->n; k++) p->domains[k].heat[NOW] = p->domains[k].heat[NEXT] = 0;
    memcpy(p->positions[NOW], from->system->positions, bytes);
    memcpy(p->velocities[NOW], from->system->velocities, bytes);
    mlff_batch_from_system(from->system, p->first_atom, &p->batch);
    p->batch.positions = p->positions[NOW];
    p->evaluator->divided = true;
    if (p->batch.cells) p->batch.cells = p->bath[NOW].cell;
    MLFF_TRY(parallel_compute_divided(p->evaluator, &p->batch, &results));
    for (int c = 0; c < 3 && results.virials; c++) p->bath[NOW].virial[c] = virial[4 * c];
    p->bath[NEXT] = p->bath[NOW];
    p->evaluator->n_computes++;
    MLFF_TRY(parallel_enter_domains(p));
    p->behind = false;
done:
    return status;
}

static void get(void *context, int index, mlff_dynamics *dynamics)
{
    (void)index;
    parallel_dynamics *p = context;
    const size_t bytes = 3 * (size_t)dynamics->system->n_atoms * sizeof(double);
    parallel_leave_domains(p); // where the run failed
    memcpy(dynamics->system->positions, p->positions[NOW], bytes);
    memcpy(dynamics->system->velocities, p->velocities[NOW], bytes);
    memcpy(dynamics->forces, p->forces, bytes);
    dynamics->potential_energy = p->energy;
    dynamics->bath = p->bath[NOW].state;
    memcpy(dynamics->system->cell, p->bath[NOW].cell, sizeof p->bath[NOW].cell);
    memcpy(dynamics->virial, p->bath[NOW].virial, sizeof dynamics->virial);
    for (int k = 0; k < p->evaluator->n; k++) dynamics->bath.heat += p->domains[k].heat[NOW];
}

static mlff_status allocate(parallel_dynamics *p, size_t n)
{
    double **arrays[] = {&p->positions[NOW], &p->positions[NEXT], &p->velocities[NOW], &p->velocities[NEXT], &p->forces};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++)
        if (!(*arrays[k] = base_alloc(3 * n, sizeof(double), "dynamics"))) return MLFF_ERR_MEMORY;
    p->wanted.forces = p->forces;
    return MLFF_OK;
}

mlff_status parallel_dynamics_create(void *self, mlff_dynamics *const *dynamics, int n, dynamics_resident *resident_out)
{
    mlff_status status = MLFF_OK;
    parallel_evaluator *e = self;
    parallel_dynamics *p = NULL;
    if (n != 1) return mlff_fail(MLFF_ERR_UNSUPPORTED, "several devices integrate one system, not replicas");
    MLFF_TRY(parallel_ensure_divided(e));
    if (e->refused) return mlff_fail(MLFF_ERR_UNSUPPORTED, "a system of this model is not divided among devices");
    if (!(p = base_alloc(1, sizeof *p, "dynamics"))) return MLFF_ERR_MEMORY;
    p->evaluator = e;
    for (int k = 0; k < e->n; k++) p->domains[k].plugin = exchange_plugin(e->exchange), p->domains[k].gpu = e->devices[k].index;
    MLFF_TRY(allocate(p, (size_t)dynamics[0]->system->n_atoms));
    MLFF_TRY(put(p, dynamics, 1));
    *resident_out = (dynamics_resident){
        .context = p, .gpu_index = e->devices[0].index, .put = put, .run = run, .get = get, .destroy = destroy};
    p = NULL;
done:
    if (p) destroy(p);
    return status;
}
