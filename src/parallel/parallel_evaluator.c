// SPDX-License-Identifier: MIT
// parallel_evaluator.c: an evaluator on several devices, each served by its own thread.
//
// A batch of one system is divided in space: each device computes the atoms of its domain, with ghosts within one cutoff of it and an
// exchange of their features after each layer (exchange.c), and adds what the other domains found of its atoms' forces. The systems of
// a batch of several are handed out: each device gets a run of them with about as many atoms.
#include <stdio.h>
#include <string.h>

#include "device/device.h"
#include "model/evaluator/assemble.h"
#include "parallel/parallel.h"

// ---- creation and destruction -------------------------------------------------------------------------------------------

static void destroy(void *self)
{
    parallel_evaluator *e = self;
    if (!e) return;
    for (int k = 0; k < e->n; k++) {
        domain *d = &e->domains[k];
        mlff_evaluator_destroy(d->evaluator);
        mlff_evaluator_destroy(d->whole);
        base_free(d->share_first);
        base_free(d->species);
        base_free(d->owned);
        base_free(d->positions);
        base_free(d->forces);
        base_free(d->atom_energies);
    }
    exchange_destroy(e->exchange);
    decomposition_destroy(e->decomposition);
    crew_destroy(e->crew);
    base_free(e->members);
    base_free(e->stages);
    base_free(e);
}

static mlff_status check_devices(const mlff_evaluator_options *options)
{
    const int n = options->n_devices;
    if (n > MAX_DOMAINS) return mlff_fail(MLFF_ERR_LIMIT, "mlff_evaluator_create: %d devices; at most %d", n, MAX_DOMAINS);
    for (int k = 0; k < n; k++)
        if (options->devices[k].kind != options->devices[0].kind)
            return mlff_fail(MLFF_ERR_USAGE,
                             "mlff_evaluator_create: the devices are of two kinds; use GPUs alone or the CPU alone");
    return MLFF_OK;
}

// The evaluator of a device; of the whole batch warns the one of all devices, once.
static mlff_status create_on_device(const parallel_evaluator *e, const mlff_evaluator_options *options,
                                    mlff_evaluator **evaluator_out)
{
    const mlff_status status = mlff_evaluator_create(e->model, options, evaluator_out);
    if (status == MLFF_OK) (*evaluator_out)->warned_of_magnitude = (*evaluator_out)->warned_of_charge = true;
    return status;
}

static mlff_status create_whole(void *context, int index)
{
    parallel_evaluator *e = context;
    mlff_evaluator_options options = e->options;
    options.device = e->devices[index];
    return create_on_device(e, &options, &e->domains[index].whole);
}

static mlff_status list_stages(parallel_evaluator *e)
{
    int n;
    const mlff_stage *own = mlff_evaluator_stages(e->domains[0].whole, &n);
    if (!(e->stages = base_alloc((size_t)n + 1, sizeof *e->stages, "stages"))) return MLFF_ERR_MEMORY;
    memcpy(e->stages, own, (size_t)n * sizeof *own);
    e->stages[n] = (mlff_stage){"exchange", "", -1, "waits for other devices"};
    e->n_stages = n + 1;
    return MLFF_OK;
}

static mlff_status create(const mlff_model *model, mlff_evaluator_options *options, const int *members, int n_members,
                          void **self_out)
{
    mlff_status status = MLFF_OK;
    base_text list = {0};
    parallel_evaluator *e = NULL;
    MLFF_TRY(check_devices(options));
    if (!(e = base_alloc(1, sizeof *e, "an evaluator"))) return MLFF_ERR_MEMORY;
    e->model = model;
    e->n = options->n_devices;
    e->member = -1;
    memcpy(e->devices, options->devices, (size_t)e->n * sizeof *e->devices);
    e->decomposing_threads = options->device.kind == MLFF_CPU ? e->n : options->n_threads;
    if (options->device.kind == MLFF_CPU) options->n_threads = 1; // of each domain
    for (int k = 0; k < n_members; k++) base_text_add(&list, "%s%d", k ? "," : "", members[k]);
    MLFF_TRY(list.status);
    e->members = list.text;
    list.text = NULL;
    e->options = *options;
    e->options.devices = NULL;
    e->options.n_devices = 0;
    e->options.members = e->members;
    MLFF_TRY(crew_create(e->n, e->devices[0].kind == MLFF_CUDA, &e->crew));
    MLFF_TRY(crew_run(e->crew, create_whole, e));
    MLFF_TRY(list_stages(e));
    mlff_evaluator_info info;
    mlff_evaluator_info_get(e->domains[0].whole, &info);
    if (info.cpu_path[0]) options->cpu_path = info.cpu_path;
    *self_out = e;
    e = NULL;
done:
    base_text_free(&list);
    destroy(e);
    return status;
}

static mlff_status work_on_share(void *context, int index);

// ---- one system, divided in space ---------------------------------------------------------------------------------------

static mlff_status create_divided(void *context, int index)
{
    mlff_status status = MLFF_OK;
    parallel_evaluator *e = context;
    domain *d = &e->domains[index];
    mlff_evaluator_options options = e->options;
    options.device = e->devices[index];
    options.halo = &e->hooks[index];
    if (d->evaluator) return MLFF_OK; // of an earlier call in which another device failed
    MLFF_TRY(create_on_device(e, &options, &d->evaluator));
    if (e->clock_on && (status = mlff_evaluator_stage_clock_set(d->evaluator, 1)) != MLFF_OK) {
        mlff_evaluator_destroy(d->evaluator);
        d->evaluator = NULL;
    }
done:
    return status;
}

mlff_status parallel_ensure_divided(parallel_evaluator *e)
{
    mlff_status status = MLFF_OK;
    if (e->domains[e->n - 1].evaluator || e->refused) return MLFF_OK;
    // GPUs compute little of ghosts, and wait while the host decomposes: 1.2 Å by default, which atoms of a crystal hardly leave, and
    // 1.8 Å where no features of ghosts are exchanged between layers.
    const double more = e->devices[0].kind != MLFF_CUDA ? 1 : e->model->n_layers > 1 ? 2.4 : 3.6;
    const double skin = more * e->options.skin_angstrom;
    if (!e->decomposition) MLFF_TRY(decomposition_create(e->n, e->model->cutoff, skin, &e->decomposition));
    if (!e->exchange) MLFF_TRY(exchange_create(e->crew, e->decomposition, e->devices, &e->exchange));
    for (int k = 0; k < e->n; k++) e->hooks[k] = exchange_hooks(e->exchange, k);
    status = create_divided(e, 0);
    if (status == MLFF_ERR_UNSUPPORTED) {
        base_warn("%s: a system by itself is computed on one of the devices", mlff_last_error());
        e->refused = true;
        return MLFF_OK;
    }
    for (int k = 1; status == MLFF_OK && k < e->n; k++) status = create_divided(e, k);
done:
    return status;
}

mlff_status parallel_take_atoms(parallel_evaluator *e, int index)
{
    mlff_status status = MLFF_OK;
    domain *d = &e->domains[index];
    const domain_atoms *atoms = &e->decomposition->domains[index];
    const size_t n = (size_t)atoms->n_local;
    MLFF_TRY(base_grow(&d->species, &d->species_capacity, n, sizeof *d->species, "atoms of a domain"));
    MLFF_TRY(base_grow(&d->owned, &d->owned_capacity, n, 1, "atoms of a domain"));
    MLFF_TRY(base_grow(&d->positions, &d->position_capacity, 3 * n, sizeof(double), "atoms of a domain"));
    MLFF_TRY(base_grow(&d->forces, &d->force_capacity, 3 * n, sizeof(double), "atoms of a domain"));
    MLFF_TRY(base_grow(&d->atom_energies, &d->energy_capacity, n, sizeof(double), "atoms of a domain"));
    for (size_t i = 0; i < n; i++) {
        d->species[i] = e->batch->species[atoms->atom[i]];
        d->owned[i] = i < (size_t)atoms->n_owned;
    }
    d->first_atom[1] = atoms->n_local;
    MLFF_TRY(exchange_update(e->exchange, index));
done:
    return status;
}

static void place_atoms(const parallel_evaluator *e, int index)
{
    const domain_atoms *atoms = &e->decomposition->domains[index];
    double *to = e->domains[index].positions, offset[3];
    for (size_t i = 0; i < (size_t)atoms->n_local; i++) {
        const double *from = e->batch->positions + 3 * (size_t)atoms->atom[i];
        neighbors_offset(e->decomposition->axes.cell, atoms->shift + 3 * i, offset);
        for (size_t c = 0; c < 3; c++) to[3 * i + c] = from[c] + offset[c];
    }
}

void parallel_describe_domain(const parallel_evaluator *e, int index, unsigned char periodic[3], mlff_batch *batch_out)
{
    const domain *d = &e->domains[index];
    for (int k = 0; k < 3; k++) periodic[k] = e->decomposition->periodic[k] && !e->decomposition->divided[k];
    *batch_out = (mlff_batch){.n_systems = 1,
                              .first_atom = d->first_atom,
                              .species = d->species,
                              .positions = d->positions,
                              .cells = e->batch->cells,
                              .periodic = periodic,
                              .owned = d->owned,
                              .charges = e->batch->charges,
                              .spins = e->batch->spins};
}

// Puts before the failure of a device's evaluator which numbers of atoms or systems it tells of.
static mlff_status describe_failure(mlff_status status, const char *format, int first, int last)
{
    char text[1024], where[64];
    if (status != MLFF_ERR_VALUE && status != MLFF_ERR_LIMIT) return status;
    snprintf(text, sizeof text, "%s", mlff_last_error());
    snprintf(where, sizeof where, format, first, last);
    return mlff_fail(status, "%s: %s", where, text);
}

mlff_status parallel_compute_domain(parallel_evaluator *e, int index, const mlff_batch *batch, const mlff_results *results)
{
    const domain *d = &e->domains[index];
    if (e->model->architecture->ensemble) d->evaluator->interface->select_member(d->evaluator->self, e->member);
    const mlff_status status = mlff_evaluator_compute(d->evaluator, batch, results);
    return describe_failure(status, "domain %d of %d, which numbers its atoms itself", index, e->n);
}

// In the order of domains.
static void sum_forces(const parallel_evaluator *e, int index)
{
    const domain *d = &e->domains[index];
    const domain_atoms *atoms = &e->decomposition->domains[index];
    for (int k = 0; k < atoms->n_shared; k++) {
        double *own = d->forces + 3 * (size_t)atoms->shared[k];
        for (int32_t j = atoms->holder_first[k]; j < atoms->holder_first[k + 1]; j++)
            for (size_t c = 0; c < 3; c++) own[c] += e->domains[atoms->holder[j]].forces[3 * (size_t)atoms->holder_row[j] + c];
    }
}

// Results of own atoms.
static void gather_atoms(const parallel_evaluator *e, int index)
{
    const domain *d = &e->domains[index];
    const domain_atoms *atoms = &e->decomposition->domains[index];
    if (e->results->forces) sum_forces(e, index);
    for (size_t i = 0; i < (size_t)atoms->n_owned; i++) {
        const size_t atom = (size_t)atoms->atom[i];
        if (e->results->forces) memcpy(e->results->forces + 3 * atom, d->forces + 3 * i, 3 * sizeof(double));
        if (e->results->atom_energies) e->results->atom_energies[atom] = d->atom_energies[i];
    }
}

static mlff_status work_on_domain(void *context, int index)
{
    mlff_status status = MLFF_OK;
    parallel_evaluator *e = context;
    domain *d = &e->domains[index];
    const mlff_results *wanted = e->results;
    unsigned char periodic[3];
    mlff_batch batch;
    d->energy = 0;
    memset(d->virial, 0, sizeof d->virial);
    d->idle = e->decomposition->domains[index].n_owned == 0;
    if (d->idle) return MLFF_OK; // nor does it hold ghosts
    const int64_t start = base_clock_ns(), apart = exchange_apart(e->exchange, index);
    if (e->fresh) MLFF_TRY(parallel_take_atoms(e, index));
    place_atoms(e, index);
    parallel_describe_domain(e, index, periodic, &batch);
    MLFF_TRY(parallel_compute_domain(e, index, &batch,
                                     &(mlff_results){.energies = &d->energy,
                                                     .atom_energies = wanted->atom_energies ? d->atom_energies : NULL,
                                                     .forces = wanted->forces ? d->forces : NULL,
                                                     .virials = wanted->virials || wanted->stresses ? d->virial : NULL}));
    if (!exchange_barrier(e->exchange, index)) return crew_ended();
    const int64_t gathering = base_clock_ns();
    gather_atoms(e, index);
    d->work_ns += (double)(gathering - start);
    d->gather_ns += (double)(base_clock_ns() - gathering);
    d->apart_ns = exchange_apart(e->exchange, index) - apart;
done:
    return status;
}

mlff_status parallel_compute_divided(parallel_evaluator *e, const mlff_batch *batch, const mlff_results *results)
{
    mlff_status status = MLFF_OK;
    double virial[9] = {0}, energy = 0;
    e->batch = batch;
    e->results = results;
    MLFF_TRY(parallel_ensure_divided(e));
    if (e->refused) return crew_run(e->crew, work_on_share, e);
    if (results->force_errors)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "estimated errors of forces are not computed for a system divided among devices; "
                                               "choose one device");
    e->fresh = !decomposition_serves(e->decomposition, e->batch);
    if (e->fresh) e->dynamics = NULL;
    if (e->fresh) MLFF_TRY(decomposition_make(e->decomposition, e->decomposing_threads, e->batch));
    status = crew_run(e->crew, work_on_domain, e);
    if (status != MLFF_OK) e->decomposition->n_made = 0; // arrays may be of another decomposition
    MLFF_TRY(status);
    for (int k = 0; k < e->n; k++) {
        energy += e->domains[k].energy;
        for (int c = 0; c < 9; c++) virial[c] += e->domains[k].virial[c];
    }
    if (results->energies) results->energies[0] = energy;
    if (results->virials) memcpy(results->virials, virial, sizeof virial);
    if (results->stresses) assemble_stress(e->batch, 0, virial, results->stresses);
done:
    return status;
}

// ---- several systems, handed out ----------------------------------------------------------------------------------------

// First system of a share: shares have about as many atoms.
static int share_begin(const mlff_batch *batch, int share, int n)
{
    const int64_t goal = (int64_t)batch->first_atom[batch->n_systems] * share / n;
    int s = 0;
    while (s < batch->n_systems && batch->first_atom[s + 1] - (batch->first_atom[s + 1] - batch->first_atom[s]) / 2 <= goal) s++;
    return share == n ? batch->n_systems : share == 0 ? 0 : s;
}

static double *part(double *array, size_t offset)
{
    return array ? array + offset : NULL;
}

static mlff_status work_on_share(void *context, int index)
{
    mlff_status status = MLFF_OK;
    parallel_evaluator *e = context;
    domain *d = &e->domains[index];
    const mlff_batch *all = e->batch;
    const int begin = share_begin(all, index, e->n), n = share_begin(all, index + 1, e->n) - begin;
    d->idle = n <= 0;
    if (d->idle) return MLFF_OK;
    const size_t s = (size_t)begin, atom = (size_t)all->first_atom[begin];
    MLFF_TRY(base_grow(&d->share_first, &d->first_capacity, (size_t)n + 1, sizeof *d->share_first, "systems"));
    for (int k = 0; k <= n; k++) d->share_first[k] = all->first_atom[begin + k] - all->first_atom[begin];
    const mlff_batch share = {.n_systems = n,
                              .first_atom = d->share_first,
                              .species = all->species + atom,
                              .positions = all->positions + 3 * atom,
                              .cells = all->cells ? all->cells + 9 * s : NULL,
                              .periodic = all->periodic ? all->periodic + 3 * s : NULL,
                              .charges = all->charges ? all->charges + s : NULL,
                              .spins = all->spins ? all->spins + s : NULL};
    const mlff_results *wanted = e->results;
    const mlff_results results = {.energies = part(wanted->energies, s),
                                  .atom_energies = part(wanted->atom_energies, atom),
                                  .forces = part(wanted->forces, 3 * atom),
                                  .stresses = part(wanted->stresses, 6 * s),
                                  .virials = part(wanted->virials, 9 * s),
                                  .force_errors = part(wanted->force_errors, atom)};
    if (e->model->architecture->ensemble) d->whole->interface->select_member(d->whole->self, e->member);
    status = mlff_evaluator_compute(d->whole, &share, &results);
    if (begin > 0) status = describe_failure(status, "of systems %d to %d, numbered from 0 on", begin, begin + n - 1);
done:
    return status;
}

// ---- the interface ------------------------------------------------------------------------------------------------------

static mlff_status prepare(void *self, const mlff_batch *batch, const mlff_results *results)
{
    parallel_evaluator *e = self;
    if (batch->location != MLFF_HOST || results->location != MLFF_HOST)
        return mlff_fail(MLFF_ERR_USAGE, "an evaluator on several devices takes batches in host memory");
    if (batch->pairs || batch->owned)
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "an evaluator on several devices finds pairs and ghosts itself; give none, or use one device");
    e->divided = batch->n_systems == 1;
    return MLFF_OK;
}

static mlff_status compute(void *self, const mlff_batch *batch, const mlff_results *results)
{
    parallel_evaluator *e = self;
    e->batch = batch;
    e->results = results;
    const mlff_status status = e->divided ? parallel_compute_divided(e, batch, results) : crew_run(e->crew, work_on_share, e);
    if (status == MLFF_OK && e->member < 0) e->n_computes++;
    return status;
}

static void select_member(void *self, int member)
{
    parallel_evaluator *e = self;
    e->member = member;
}

static const mlff_evaluator *evaluator_of(const parallel_evaluator *e, int index)
{
    const domain *d = &e->domains[index];
    return e->divided && !e->refused && d->evaluator ? d->evaluator : d->whole;
}

static const mlff_stage *stages(const void *self, int *n_out)
{
    const parallel_evaluator *e = self;
    *n_out = e->n_stages;
    return e->stages;
}

static mlff_status stage_clock_set(void *self, int on)
{
    mlff_status status = MLFF_OK;
    parallel_evaluator *e = self;
    e->clock_on = on != 0;
    for (int k = 0; k < e->n; k++) {
        MLFF_TRY(mlff_evaluator_stage_clock_set(e->domains[k].whole, on));
        if (e->domains[k].evaluator) MLFF_TRY(mlff_evaluator_stage_clock_set(e->domains[k].evaluator, on));
    }
done:
    return status;
}

// Of a divided evaluator on GPUs the exchange is the last stage, as it is here; another has no such stage.
static void domain_stage_times(const void *self, int index, double *time_ns)
{
    const parallel_evaluator *e = self;
    const mlff_evaluator *evaluator = evaluator_of(e, index);
    memset(time_ns, 0, (size_t)e->n_stages * sizeof *time_ns);
    if (e->domains[index].idle) return;
    mlff_evaluator_stage_times(evaluator, time_ns);
    if (evaluator == e->domains[index].evaluator) time_ns[e->n_stages - 1] += (double)e->domains[index].apart_ns;
}

static void stage_times(const void *self, double *time_ns)
{
    domain_stage_times(self, 0, time_ns);
}

static const char *kernel_stage(const void *self, const char *kernel)
{
    return mlff_evaluator_kernel_stage(evaluator_of(self, 0), kernel);
}

static void info(const void *self, mlff_evaluator_info *info_out)
{
    const parallel_evaluator *e = self;
    info_out->n_threads = e->n;
    info_out->n_computes = e->n_computes;
    for (int k = 0; k < e->n; k++) {
        const mlff_evaluator *const both[2] = {e->domains[k].evaluator, e->domains[k].whole};
        for (int b = 0; b < 2; b++) {
            mlff_evaluator_info one;
            if (!both[b]) continue;
            mlff_evaluator_info_get(both[b], &one);
            info_out->cpu_path = one.cpu_path;
            info_out->n_members = one.n_members;
            info_out->n_growths += one.n_growths;
            info_out->host_bytes += one.host_bytes;
            info_out->device_bytes += one.device_bytes;
            if (both[b] != evaluator_of(e, k)) continue;
            if (!e->domains[k].idle) info_out->n_pairs += one.n_pairs;
            if (one.n_rebuilds > info_out->n_rebuilds) info_out->n_rebuilds = one.n_rebuilds;
        }
    }
}

static int domains(const void *self, mlff_domain_info *domains_out, int capacity)
{
    const parallel_evaluator *e = self;
    if (!e->divided || e->refused || !e->exchange) return 0;
    for (int k = 0; k < e->n && k < capacity; k++) {
        const domain *d = &e->domains[k];
        const domain_atoms *atoms = &e->decomposition->domains[k];
        double total, wait;
        exchange_times(e->exchange, k, &total, &wait);
        domains_out[k] = (mlff_domain_info){.device = e->devices[k],
                                            .n_owned = atoms->n_owned,
                                            .n_ghosts = atoms->n_local - atoms->n_owned,
                                            .compute_ns = d->work_ns - total,
                                            .exchange_ns = total - wait + d->gather_ns,
                                            .wait_ns = wait};
    }
    return e->n;
}

const evaluator_interface parallel_evaluator_interface = {
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .compute = compute,
    .select_member = select_member,
    .stages = stages,
    .stage_clock_set = stage_clock_set,
    .stage_times = stage_times,
    .kernel_stage = kernel_stage,
    .info = info,
    .domains = domains,
    .domain_stage_times = domain_stage_times,
    .dynamics_create = parallel_dynamics_create,
};
