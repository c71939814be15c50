// SPDX-License-Identifier: MIT
// parallel_dynamics.c: dynamics of a system that is divided among devices: the thread of each domain integrates its own atoms.
//
// The steps are those of dynamics.c (NVE, Langevin, Bussi, Nosé-Hoover), and an atom's arithmetic is the same, so that forces of the same
// bits give a trajectory of the same bits; kinetic energies are summed by domains. One step, in the thread of each domain:
//   1. next positions and velocities of own atoms, from the current ones                        barrier
//   2. positions of ghosts from the next positions of their owners; energy and forces; sum      (barriers of the exchange)
//   3. second kick; the thermostat, with the kinetic energy of all domains                      barrier
//   4. the next positions and velocities become the current ones
// All domains take step 4 or none does: a failure leaves every atom at the end of the last good step. If an atom has moved by half the
// skin, the threads end after 1, the system is decomposed again with its next positions, and the step goes on at 2.
#include <math.h>
#include <string.h>

#include "parallel/parallel.h"

#define FAR_AWAY 1e9 // as in dynamics.c

enum { NOW, NEXT };

// Own atoms of a domain. At rest the forces of the current positions are in the domain's array; within a step in this one.
typedef struct moving_domain {
    double *inverse_mass;                  // [n_owned] Å/fs² per eV/Å; 0: fixed
    double *positions[2], *velocities[2];  // [n_owned][3] current, next
    double *forces;                        // [n_local][3] of the current positions
    double energy, twice_kinetic, heat[2]; // eV; heat: that Langevin's bath gave to own atoms, current, next
    dynamics_bath bath[2];                 // of the system: each domain has the same numbers
    int64_t n_done;                        // steps since the threads began
    bool begun;                            // within a step
    bool far;                              // an atom has left the range of the decomposition
    size_t mass_capacity, position_capacity[2], velocity_capacity[2], force_capacity;
} moving_domain;

typedef struct parallel_dynamics {
    parallel_evaluator *evaluator;
    mlff_dynamics_options options;
    const mlff_system *system; // the caller's: species, masses, cell
    double n_degrees, volume;
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_results wanted;
    double *positions[2], *velocities[2], *forces; // [n_atoms][3] on the way between two decompositions
    moving_domain domains[MAX_DOMAINS];
    dynamics_bath bath[2]; // current, next; without Langevin's heat
    double energy;         // eV
    int64_t step;          // steps made
    bool in_domains;       // else the atoms are in the arrays above
    bool drifted;          // in the middle of a step
    bool fresh;            // the decomposition is newer than the atoms of the domains
    // of the run under way
    int64_t n_wanted, last_ns;
    double *times_ns; // NULL: not wanted
} parallel_dynamics;

static void destroy(void *context)
{
    parallel_dynamics *p = context;
    for (int k = 0; k < p->evaluator->n; k++) {
        moving_domain *m = &p->domains[k];
        base_free(m->inverse_mass);
        base_free(m->forces);
        for (int s = NOW; s <= NEXT; s++) base_free(m->positions[s]), base_free(m->velocities[s]);
    }
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

// ---- atoms into and out of the domains ----------------------------------------------------------------------------------

static mlff_status take_domain(void *context, int index)
{
    mlff_status status = MLFF_OK;
    parallel_dynamics *p = context;
    domain *d = &p->evaluator->domains[index];
    moving_domain *m = &p->domains[index];
    const domain_atoms *atoms = &p->evaluator->decomposition->domains[index];
    const size_t n = (size_t)atoms->n_owned;
    m->far = false;
    m->begun = p->drifted;
    memcpy(m->bath, p->bath, sizeof m->bath);
    m->twice_kinetic = 0;
    if (n == 0) return MLFF_OK;
    if (p->fresh) MLFF_TRY(parallel_take_atoms(p->evaluator, index));
    MLFF_TRY(base_grow(&m->inverse_mass, &m->mass_capacity, n, sizeof(double), "atoms of a domain"));
    MLFF_TRY(base_grow(&m->forces, &m->force_capacity, 3 * (size_t)atoms->n_local, sizeof(double), "atoms of a domain"));
    for (int s = NOW; s <= NEXT; s++) {
        MLFF_TRY(base_grow(&m->positions[s], &m->position_capacity[s], 3 * n, sizeof(double), "atoms of a domain"));
        MLFF_TRY(base_grow(&m->velocities[s], &m->velocity_capacity[s], 3 * n, sizeof(double), "atoms of a domain"));
    }
    double *forces = p->drifted ? m->forces : d->forces;
    for (size_t i = 0; i < n; i++) {
        const size_t from = 3 * (size_t)atoms->atom[i], size = 3 * sizeof(double);
        m->inverse_mass[i] = is_fixed(p->system, atoms->atom[i]) ? 0 : inverse_mass(p->system, atoms->atom[i]);
        memcpy(forces + 3 * i, p->forces + from, size);
        for (int s = NOW; s <= (p->drifted ? NEXT : NOW); s++) {
            memcpy(m->positions[s] + 3 * i, p->positions[s] + from, size);
            memcpy(m->velocities[s] + 3 * i, p->velocities[s] + from, size);
        }
    }
done:
    return status;
}

static mlff_status leave_domain(void *context, int index)
{
    parallel_dynamics *p = context;
    const moving_domain *m = &p->domains[index];
    const domain_atoms *atoms = &p->evaluator->decomposition->domains[index];
    const double *forces = m->begun ? m->forces : p->evaluator->domains[index].forces;
    for (size_t i = 0; i < (size_t)atoms->n_owned; i++) {
        const size_t to = 3 * (size_t)atoms->atom[i], size = 3 * sizeof(double);
        memcpy(p->forces + to, forces + 3 * i, size);
        for (int s = NOW; s <= (m->begun ? NEXT : NOW); s++) {
            memcpy(p->positions[s] + to, m->positions[s] + 3 * i, size);
            memcpy(p->velocities[s] + to, m->velocities[s] + 3 * i, size);
        }
    }
    return MLFF_OK;
}

// Into domains of a new decomposition, in the middle of a step (`drifted`) or between two.
static mlff_status divide_again(parallel_dynamics *p)
{
    mlff_status status = MLFF_OK;
    parallel_evaluator *e = p->evaluator;
    if (p->in_domains) MLFF_TRY(crew_run(e->crew, leave_domain, p));
    p->in_domains = false;
    p->batch.positions = p->positions[p->drifted ? NEXT : NOW];
    MLFF_TRY(decomposition_make(e->decomposition, e->crew, &p->batch));
    p->fresh = true;
    status = crew_run(e->crew, take_domain, p);
    p->fresh = false;
    if (status != MLFF_OK) e->decomposition->n_made = 0; // arrays may be of another decomposition
    p->in_domains = status == MLFF_OK;
done:
    return status;
}

// ---- a step, in the thread of a domain ----------------------------------------------------------------------------------

static void exchange_arrays(double **a, size_t *a_capacity, double **b, size_t *b_capacity)
{
    double *const array = *a;
    const size_t capacity = *a_capacity;
    *a = *b, *a_capacity = *b_capacity;
    *b = array, *b_capacity = capacity;
}

static double sum_kinetic(const parallel_dynamics *p)
{
    double sum = 0;
    for (int k = 0; k < p->evaluator->n; k++) sum += p->domains[k].twice_kinetic;
    return sum;
}

static void count_kinetic(moving_domain *m, int n_owned, int which)
{
    m->twice_kinetic = 0;
    for (int i = 0; i < n_owned; i++) {
        const double *v = m->velocities[which] + 3 * (size_t)i;
        if (m->inverse_mass[i] > 0) m->twice_kinetic += (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]) / m->inverse_mass[i];
    }
}

static void scale_velocities(moving_domain *m, int n_owned, double factor)
{
    for (size_t k = 0; k < 3 * (size_t)n_owned; k++) m->velocities[NEXT][k] *= factor;
}

// Langevin's bath at one step.
typedef struct noise_of_step {
    double keep, noise;
    uint64_t seed, step;
} noise_of_step;

// The O step of one atom; returns its heat, eV.
static double add_noise(const noise_of_step *bath, size_t atom, double inverse_mass_of_atom, double v[3])
{
    const double deviation = sqrt(bath->noise * inverse_mass_of_atom);
    double before = 0, after = 0;
    for (size_t c = 0; c < 3; c++) {
        before += v[c] * v[c];
        v[c] = bath->keep * v[c] + deviation * random_normal(bath->seed, 3 * atom + c, bath->step);
        after += v[c] * v[c];
    }
    return 0.5 * (after - before) / inverse_mass_of_atom;
}

// Next positions and velocities; `factor`: of the velocities before the kick.
static mlff_status advance(parallel_dynamics *p, int index, int64_t step, double factor)
{
    moving_domain *m = &p->domains[index];
    const decomposition *all = p->evaluator->decomposition;
    const domain_atoms *atoms = &all->domains[index];
    const mlff_dynamics_options *options = &p->options;
    const bool langevin = options->ensemble == MLFF_LANGEVIN;
    const double kick = 0.5 * options->timestep_fs, drift = langevin ? kick : options->timestep_fs,
                 bound = 0.25 * all->skin * all->skin;
    noise_of_step bath = {.seed = options->seed, .step = (uint64_t)step};
    bath_langevin(options, step, &bath.keep, &bath.noise);
    m->heat[NEXT] = m->heat[NOW];
    m->far = false;
    for (size_t i = 0; i < (size_t)atoms->n_owned; i++) {
        double *x = m->positions[NEXT] + 3 * i, *v = m->velocities[NEXT] + 3 * i;
        const size_t atom = (size_t)atoms->atom[i];
        const double *then = all->positions + 3 * atom, scale = kick * m->inverse_mass[i];
        double square = 0;
        memcpy(x, m->positions[NOW] + 3 * i, 3 * sizeof(double));
        for (size_t c = 0; c < 3; c++) v[c] = m->velocities[NOW][3 * i + c] * factor;
        if (scale == 0) continue;
        for (size_t c = 0; c < 3; c++) {
            v[c] += scale * m->forces[3 * i + c];
            x[c] += drift * v[c];
        }
        if (langevin) {
            m->heat[NEXT] += add_noise(&bath, atom, m->inverse_mass[i], v);
            for (size_t c = 0; c < 3; c++) x[c] += drift * v[c];
        }
        for (size_t c = 0; c < 3; c++) {
            square += (x[c] - then[c]) * (x[c] - then[c]);
            if (!(fabs(x[c]) <= FAR_AWAY)) return mlff_fail(MLFF_ERR_UNSTABLE, "the position of atom %zu is %g Å", atom, x[c]);
        }
        if (!(square <= bound)) m->far = true;
    }
    return MLFF_OK;
}

static mlff_status begin_step(parallel_dynamics *p, int index, int64_t step)
{
    moving_domain *m = &p->domains[index];
    domain *d = &p->evaluator->domains[index];
    double factor = 1;
    m->bath[NEXT] = m->bath[NOW];
    if (bath_has_chains(p->options.ensemble)) {
        count_kinetic(m, p->evaluator->decomposition->domains[index].n_owned, NOW);
        if (!exchange_barrier(p->evaluator->exchange, index)) return crew_ended();
        factor = bath_move_chains(&p->options, p->n_degrees, bath_temperature(&p->options, step), sum_kinetic(p), &m->bath[NEXT]);
    }
    exchange_arrays(&m->forces, &m->force_capacity, &d->forces, &d->force_capacity);
    m->begun = true;
    const mlff_status status = advance(p, index, step, factor);
    if (status != MLFF_OK) return status;
    return exchange_barrier(p->evaluator->exchange, index) ? MLFF_OK : crew_ended();
}

// Back to where a step began that failed.
static void go_back(parallel_dynamics *p, int index)
{
    moving_domain *m = &p->domains[index];
    domain *d = &p->evaluator->domains[index];
    if (m->begun) exchange_arrays(&m->forces, &m->force_capacity, &d->forces, &d->force_capacity);
    m->begun = false;
}

static bool any_far(const parallel_dynamics *p)
{
    bool far = false;
    for (int k = 0; k < p->evaluator->n; k++) far = far || p->domains[k].far;
    return far;
}

// The next positions of own atoms and ghosts, in the frame of the domain.
static void place_atoms(const parallel_dynamics *p, int index)
{
    const decomposition *all = p->evaluator->decomposition;
    const domain_atoms *atoms = &all->domains[index];
    double *to = p->evaluator->domains[index].positions, offset[3];
    for (size_t i = 0; i < (size_t)atoms->n_local; i++) {
        const size_t ghost = i - (size_t)atoms->n_owned;
        const double *from = i < (size_t)atoms->n_owned
                                 ? p->domains[index].positions[NEXT] + 3 * i
                                 : p->domains[atoms->source[ghost]].positions[NEXT] + 3 * (size_t)atoms->source_row[ghost];
        neighbors_offset(all->axes.cell, atoms->shift + 3 * i, offset);
        for (size_t c = 0; c < 3; c++) to[3 * i + c] = from[c] + offset[c];
    }
}

// The second kick, with the forces of the next positions.
static mlff_status kick_again(parallel_dynamics *p, int index)
{
    moving_domain *m = &p->domains[index];
    const domain *d = &p->evaluator->domains[index];
    const domain_atoms *atoms = &p->evaluator->decomposition->domains[index];
    if (!isfinite(d->energy)) return mlff_fail(MLFF_ERR_UNSTABLE, "the energy is %g eV", d->energy);
    for (size_t i = 0; i < (size_t)atoms->n_owned; i++) {
        const double scale = 0.5 * p->options.timestep_fs * m->inverse_mass[i];
        for (size_t c = 0; c < 3; c++) {
            const double force = d->forces[3 * i + c];
            if (!isfinite(force))
                return mlff_fail(MLFF_ERR_UNSTABLE, "the force of atom %d is %g eV/Å", (int)atoms->atom[i], force);
            if (scale > 0) m->velocities[NEXT][3 * i + c] += scale * force;
        }
    }
    return MLFF_OK;
}

// Thermostats that scale all velocities.
static mlff_status couple(parallel_dynamics *p, int index, int64_t step)
{
    moving_domain *m = &p->domains[index];
    const mlff_dynamics_options *options = &p->options;
    const int n_owned = p->evaluator->decomposition->domains[index].n_owned;
    if (options->ensemble > MLFF_LANGEVIN) {
        count_kinetic(m, n_owned, NEXT);
        if (!exchange_barrier(p->evaluator->exchange, index)) return crew_ended();
        const double twice = sum_kinetic(p);
        const double factor =
            bath_has_chains(options->ensemble)
                ? bath_move_chains(options, p->n_degrees, bath_temperature(options, step), twice, &m->bath[NEXT])
                : bath_rescale(options, step, bath_draw(options, p->n_degrees, step), 0.5 * twice, &m->bath[NEXT]);
        scale_velocities(m, n_owned, factor);
    }
    bath_end_step(options, p->n_degrees, p->volume, step, &m->bath[NEXT]);
    return MLFF_OK;
}

static void commit(parallel_dynamics *p, int index)
{
    moving_domain *m = &p->domains[index];
    exchange_arrays(&m->positions[NOW], &m->position_capacity[NOW], &m->positions[NEXT], &m->position_capacity[NEXT]);
    exchange_arrays(&m->velocities[NOW], &m->velocity_capacity[NOW], &m->velocities[NEXT], &m->velocity_capacity[NEXT]);
    m->heat[NOW] = m->heat[NEXT];
    m->bath[NOW] = m->bath[NEXT];
    m->energy = p->evaluator->domains[index].energy;
    m->begun = false;
    m->n_done++;
}

// From step 2 on.
static mlff_status end_step(parallel_dynamics *p, int index, int64_t step)
{
    mlff_status status = MLFF_OK;
    parallel_evaluator *e = p->evaluator;
    place_atoms(p, index);
    MLFF_TRY(parallel_compute_domain(e, index));
    if (!exchange_barrier(e->exchange, index)) return crew_ended();
    const int64_t summing = base_clock_ns(), summed = (parallel_sum_forces(e, index), base_clock_ns());
    e->domains[index].gather_ns += (double)(summed - summing);
    e->domains[index].work_ns -= (double)(summed - summing);
    MLFF_TRY(kick_again(p, index));
    MLFF_TRY(couple(p, index, step));
    if (!exchange_barrier(e->exchange, index)) return crew_ended();
    commit(p, index);
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
    if (p->evaluator->decomposition->domains[index].n_owned == 0) return MLFF_OK;
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
    p->energy = 0;
    for (int k = 0; k < e->n; k++) p->energy += e->decomposition->domains[k].n_owned > 0 ? p->domains[k].energy : 0;
    return first->n_done;
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
    if (!p->in_domains) MLFF_TRY(divide_again(p));
    while (n_done < n_steps) {
        p->n_wanted = n_steps - n_done;
        p->times_ns = times_ns ? times_ns + n_done : NULL;
        status = crew_run(e->crew, make_steps, p);
        n_done += take_steps(p);
        for (int k = 0; status != MLFF_OK && k < e->n; k++) go_back(p, k);
        if (status != MLFF_OK || n_done == n_steps) break;
        p->drifted = true;
        status = divide_again(p);
        if (status != MLFF_OK) p->drifted = false;
        MLFF_TRY(status);
    }
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
    const mlff_results results = {.energies = &p->energy, .forces = p->forces};
    p->options = from->options;
    p->system = from->system;
    p->n_degrees = dynamics_n_degrees(from);
    p->volume = mlff_system_volume(from->system);
    p->step = from->step;
    p->bath[NOW] = p->bath[NEXT] = from->bath;
    p->in_domains = p->drifted = p->fresh = false;
    for (int k = 0; k < p->evaluator->n; k++) p->domains[k].heat[NOW] = p->domains[k].heat[NEXT] = 0;
    memcpy(p->positions[NOW], from->system->positions, bytes);
    memcpy(p->velocities[NOW], from->system->velocities, bytes);
    mlff_batch_from_system(from->system, p->first_atom, &p->batch);
    p->batch.positions = p->positions[NOW];
    p->evaluator->divided = true;
    MLFF_TRY(parallel_compute_divided(p->evaluator, &p->batch, &results));
    p->evaluator->n_computes++;
    MLFF_TRY(crew_run(p->evaluator->crew, take_domain, p));
    p->in_domains = true;
done:
    return status;
}

static void get(void *context, int index, mlff_dynamics *dynamics)
{
    (void)index;
    parallel_dynamics *p = context;
    const size_t bytes = 3 * (size_t)dynamics->system->n_atoms * sizeof(double);
    if (p->in_domains) crew_run(p->evaluator->crew, leave_domain, p);
    memcpy(dynamics->system->positions, p->positions[NOW], bytes);
    memcpy(dynamics->system->velocities, p->velocities[NOW], bytes);
    memcpy(dynamics->forces, p->forces, bytes);
    dynamics->potential_energy = p->energy;
    dynamics->bath = p->bath[NOW];
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
    if (is_constant_pressure(dynamics[0]->options.ensemble))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "several devices do not integrate at constant pressure");
    MLFF_TRY(parallel_ensure_divided(e));
    if (e->refused) return mlff_fail(MLFF_ERR_UNSUPPORTED, "a system of this model is not divided among devices");
    if (!(p = base_alloc(1, sizeof *p, "dynamics"))) return MLFF_ERR_MEMORY;
    p->evaluator = e;
    MLFF_TRY(allocate(p, (size_t)dynamics[0]->system->n_atoms));
    MLFF_TRY(put(p, dynamics, 1));
    *resident_out = (dynamics_resident){
        .context = p, .gpu_index = e->devices[0].index, .put = put, .run = run, .get = get, .destroy = destroy};
    p = NULL;
done:
    if (p) destroy(p);
    return status;
}
