// SPDX-License-Identifier: MIT
// evaluator.c: one model on one device: options, input checks, ensembles member by member. The work is done through the
// interface of the device (evaluator.h).
#include "evaluator.h"

#include <math.h>
#include <string.h>

#include "assemble.h"

// ---- creation and destruction -------------------------------------------------------------------------------------

mlff_evaluator_options mlff_evaluator_options_default(void)
{
    return (mlff_evaluator_options){.struct_size = sizeof(mlff_evaluator_options), .skin_angstrom = 0.5};
}

// "0,3" to indices of members.
static mlff_status parse_members(const mlff_model *model, const char *text, int *members, int *n_out)
{
    int n = 0;
    if (model->n_members < 2 && strcmp(text, "0") != 0)
        return mlff_fail(MLFF_ERR_USAGE, "members \"%.60s\": the model is no ensemble; leave them out", text);
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
    if (chosen.n_devices < 0 || (chosen.n_devices > 0 && !chosen.devices))
        return mlff_fail(MLFF_ERR_USAGE, "mlff_evaluator_create: %d devices; give the array `devices` and their number",
                         chosen.n_devices);
    if (chosen.n_devices > 1 && chosen.halo)
        return mlff_fail(MLFF_ERR_USAGE,
                         "mlff_evaluator_create: an evaluator on several devices exchanges ghosts itself; give either "
                         "`devices` or `halo`");
    if (chosen.n_devices > 0) chosen.device = chosen.devices[0];
    if (chosen.device.kind != MLFF_CPU && chosen.device.kind != MLFF_CUDA)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_evaluator_create: unknown kind of device %d", (int)chosen.device.kind);
    *chosen_out = chosen;
    return MLFF_OK;
}

// Ghosts have their energy in another process: the energy must be a sum over atoms.
static mlff_status refuse_ghosts(const mlff_model *model)
{
    return mlff_fail(MLFF_ERR_UNSUPPORTED,
                     "%s has no energies of atoms, so that a system cannot be divided among processes; run it in one process",
                     model->name);
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
    if (chosen.halo && !(mlff_model_outputs(model) & MLFF_OUTPUT_ATOM_ENERGIES)) return refuse_ghosts(model);
    if (!(e = base_alloc(1, sizeof *e, "an evaluator"))) return MLFF_ERR_MEMORY;
    e->model = model;
    e->interface = chosen.n_devices > 1              ? &parallel_evaluator_interface
                   : chosen.device.kind == MLFF_CUDA ? &gpu_evaluator_interface
                                                     : &cpu_evaluator_interface;
    if (chosen.members) {
        if (!(members = base_alloc((size_t)model->n_members, sizeof *members, "members"))) MLFF_TRY(MLFF_ERR_MEMORY);
        MLFF_TRY(parse_members(model, chosen.members, members, &n_members));
    }
    e->options = chosen;
    e->options.members = NULL; // neither the caller's text nor its struct of hooks is kept
    if (chosen.halo) {
        e->halo = *chosen.halo;
        e->options.halo = &e->halo;
    }
    MLFF_TRY(e->interface->create(model, &e->options, members, n_members, &e->self));
    e->options.devices = NULL;
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
    if (e->self) e->interface->destroy(e->self);
    base_free(e->member_value);
    base_free(e->member_mean);
    base_free(e);
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
    int n_atoms = batch->location == MLFF_HOST ? batch->first_atom[batch->n_systems] : 0; // on the device the plugin checks
    for (int i = 0; i < n_atoms; i++) {
        int z = batch->species[i];
        if (z < 1 || z > MLFF_MAX_ATOMIC_NUMBER || !model->known[z]) return unknown_element(model, batch, i);
    }
    if (!batch->owned || (mlff_model_outputs(model) & MLFF_OUTPUT_ATOM_ENERGIES)) return MLFF_OK;
    if (batch->location != MLFF_HOST) return refuse_ghosts(model); // what the array says is not known here
    for (int i = 0; i < n_atoms; i++)
        if (!batch->owned[i]) return refuse_ghosts(model);
    return MLFF_OK;
}

// A result that the model does not have is refused; it is never filled with zeros.
static mlff_status check_outputs(const mlff_model *model, const mlff_results *results)
{
    const unsigned has = mlff_model_outputs(model);
    if (results->atom_energies && !(has & MLFF_OUTPUT_ATOM_ENERGIES))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "model '%s' computes the energy of a system only; it has no energies of atoms",
                         model->name);
    if ((results->forces || results->member_forces || results->force_deviations) && !(has & MLFF_OUTPUT_FORCES))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "model '%s' has no forces; ask for energies only", model->name);
    if (results->stresses && !(has & MLFF_OUTPUT_STRESS))
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "model '%s' has no stress: its forces are not the derivative of its energy, and it "
                         "predicts no stress",
                         model->name);
    if (results->virials && !(has & (MLFF_OUTPUT_VIRIALS | MLFF_OUTPUT_STRESS)))
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "model '%s' has no virials: its forces are not the derivative of its energy, and it predicts no stress",
                         model->name);
    if (results->atom_virials && !(has & MLFF_OUTPUT_VIRIALS))
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "model '%s' has no virials of atoms: they are derivatives of the energy, which its forces are not",
                         model->name);
    if (results->force_errors && !(has & MLFF_OUTPUT_FORCE_ERRORS))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "model '%s' does not estimate the error of its forces: it has no confidence head",
                         model->name);
    return MLFF_OK;
}

static mlff_status check_atom_virials(const mlff_evaluator *e, const mlff_results *results)
{
    mlff_evaluator_info info;
    if (!results->atom_virials) return MLFF_OK;
    mlff_evaluator_info_get(e, &info);
    if (info.device.kind != MLFF_CPU || e->options.n_devices > 1)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "virials of atoms are computed on one CPU only; choose device cpu");
    return MLFF_OK;
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

// Runs the members one by one.
static mlff_status compute_members(mlff_evaluator *e, const mlff_batch *batch, const mlff_results *out)
{
    mlff_status status = MLFF_OK;
    mlff_evaluator_info info;
    mlff_evaluator_info_get(e, &info);
    const size_t n_systems = (size_t)batch->n_systems, n_forces = 3 * (size_t)batch->first_atom[n_systems];
    const size_t old = e->member_capacity + e->mean_capacity;
    const bool forces = out->member_forces || out->force_deviations;
    MLFF_TRY(base_grow(&e->member_value, &e->member_capacity, n_systems + n_forces, sizeof(double), "members"));
    MLFF_TRY(base_grow(&e->member_mean, &e->mean_capacity, n_systems + n_forces, sizeof(double), "members"));
    if (old != e->member_capacity + e->mean_capacity) e->n_growths++;
    double *energy = e->member_value, *force = e->member_value + n_systems;
    const mlff_results member = {.energies = energy, .forces = forces ? force : NULL};
    for (int m = 0; m < info.n_members; m++) {
        e->interface->select_member(e->self, m);
        MLFF_TRY(e->interface->compute(e->self, batch, &member));
        if (out->member_energies) memcpy(out->member_energies + (size_t)m * n_systems, energy, sizeof(double) * n_systems);
        if (out->member_forces) memcpy(out->member_forces + (size_t)m * n_forces, force, sizeof(double) * n_forces);
        if (out->energy_deviations) add_deviation(m, n_systems, energy, e->member_mean, out->energy_deviations);
        if (out->force_deviations) add_deviation(m, n_forces, force, e->member_mean + n_systems, out->force_deviations);
    }
    if (out->energy_deviations) finish_deviation(info.n_members, n_systems, out->energy_deviations);
    if (out->force_deviations) finish_deviation(info.n_members, n_forces, out->force_deviations);
done:
    e->interface->select_member(e->self, -1);
    return status;
}

static mlff_status check_members(const mlff_model *model, const mlff_batch *batch, const mlff_results *results)
{
    if (!wants_members(results)) return MLFF_OK;
    if (!model->architecture->ensemble)
        return mlff_fail(
            MLFF_ERR_UNSUPPORTED, "results of members are asked for, but model '%s' is not an ensemble%s", model->name,
            mlff_model_outputs(model) & MLFF_OUTPUT_FORCE_ERRORS ? "; it has expected errors of its forces (force_errors)"
                                                                 : " and does not estimate the error of its forces");
    if (batch->location != MLFF_HOST || results->location != MLFF_HOST)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "results of members are given to arrays of the host only");
    return MLFF_OK;
}

// ---- the call ---------------------------------------------------------------------------------------------------

// Sums lose digits where a model extrapolates without bound, as in a crystal of one hydrogen atom in (1 Å)³, where float32 gives
// −1.5e15 eV and float64 −3.4e4. The result of float32 itself shows it: trained models have some 10 eV per atom besides their
// offsets, and in float32 a difference of 1 meV is lost from 1000 eV on (relative error 1e-6, measured).
static const double largest_energy_ev = 1000;

static void warn_of_magnitude(mlff_evaluator *e, const mlff_batch *batch, const mlff_results *results)
{
    if (e->warned_of_magnitude || e->options.precision == MLFF_FLOAT64 || !results->energies || batch->location != MLFF_HOST ||
        results->location != MLFF_HOST)
        return;
    for (int s = 0; s < batch->n_systems; s++) {
        double energy = results->energies[s];
        int n_owned = 0;
        for (int i = batch->first_atom[s]; i < batch->first_atom[s + 1]; i++) {
            if (batch->owned && !batch->owned[i]) continue;
            energy -= e->model->offset[batch->species[i]];
            n_owned++;
        }
        if (!(fabs(energy) > largest_energy_ev * n_owned)) continue;
        e->warned_of_magnitude = true;
        base_warn(
            "system %d: the model gives %.2g eV per atom besides its offsets; it was not trained for such atoms, and sums in "
            "float32 are not accurate there; check positions and cell, or compute in float64",
            s, energy / n_owned);
        return;
    }
}

void evaluator_warn_of_charge(mlff_evaluator *e, const double *charges, int n_systems)
{
    if (!charges || e->warned_of_charge) return;
    for (int s = 0; s < n_systems; s++) {
        if (!isfinite(charges[s]) || charges[s] == 0) continue;
        e->warned_of_charge = true;
        if (mlff_model_depends_on_charge(e->model)) return;
        base_warn("system %d has a charge of %g e, which the model %s does not depend on: results are as without it (said once)",
                  s, charges[s], e->model->name);
        return;
    }
}

bool evaluator_expect_magnitudes(mlff_evaluator *e, bool expected)
{
    bool before = e->warned_of_magnitude;
    e->warned_of_magnitude = expected;
    return before;
}

// Of a model that predicts its stress. If the caller wants no stresses, they are computed into the array of virials, which is then filled
// from the last system to the first: no stress is overwritten before it is read.
static mlff_status compute_predicted_virials(mlff_evaluator *e, const mlff_batch *batch, const mlff_results *results)
{
    mlff_results predicted = *results;
    if (results->location != MLFF_HOST)
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "the virials of model '%s', which predicts its stress, are given to arrays of the host only",
                         e->model->name);
    predicted.virials = NULL;
    if (!predicted.stresses) predicted.stresses = results->virials;
    const mlff_status status = mlff_evaluator_compute(e, batch, &predicted);
    if (status != MLFF_OK) return status; // `batch` may be NULL
    for (int s = batch->n_systems - 1; s >= 0; s--) {
        double stress[6];
        memcpy(stress, predicted.stresses + 6 * (size_t)s, sizeof stress);
        assemble_virial(batch, s, stress, results->virials + 9 * (size_t)s);
    }
    return MLFF_OK;
}

mlff_status mlff_evaluator_compute(mlff_evaluator *e, const mlff_batch *batch, const mlff_results *results)
{
    mlff_status status = MLFF_OK;
    if (!e) return mlff_fail(MLFF_ERR_USAGE, "mlff_evaluator_compute: no evaluator");
    if (results && results->virials &&
        (mlff_model_outputs(e->model) & (MLFF_OUTPUT_VIRIALS | MLFF_OUTPUT_STRESS)) == MLFF_OUTPUT_STRESS)
        return compute_predicted_virials(e, batch, results);
    if (e->interface->begin) e->interface->begin(e->self);
    MLFF_TRY(check_batch(e->model, batch, results));
    MLFF_TRY(check_outputs(e->model, results));
    MLFF_TRY(check_atom_virials(e, results));
    MLFF_TRY(check_members(e->model, batch, results));
    evaluator_warn_of_charge(e, batch->charges, batch->n_systems);
    MLFF_TRY(e->interface->prepare(e->self, batch, results));
    if (wants_members(results)) MLFF_TRY(compute_members(e, batch, results));
    MLFF_TRY(e->interface->compute(e->self, batch, results));
    warn_of_magnitude(e, batch, results);
done:
    return status;
}

// ---- stages and information ---------------------------------------------------------------------------------------

const mlff_stage *mlff_evaluator_stages(const mlff_evaluator *e, int *n_out)
{
    int n;
    return e->interface->stages(e->self, n_out ? n_out : &n);
}

mlff_status mlff_evaluator_stage_clock_set(mlff_evaluator *e, int on)
{
    return e->interface->stage_clock_set(e->self, on);
}

void mlff_evaluator_stage_times(const mlff_evaluator *e, double *time_ns)
{
    e->interface->stage_times(e->self, time_ns);
}

int mlff_evaluator_stage_spans(const mlff_evaluator *e, mlff_stage_span *spans, int capacity)
{
    return e->interface->stage_spans ? e->interface->stage_spans(e->self, spans, capacity) : 0;
}

static const model_stage *describe(const mlff_evaluator *e, int stage)
{
    int n;
    const mlff_stage *stages = mlff_evaluator_stages(e, &n);
    return stage >= 0 && stage < n ? model_stage_find(e->model, &stages[stage]) : NULL;
}

const char *mlff_evaluator_stage_advice(const mlff_evaluator *e, int stage)
{
    const model_stage *description = describe(e, stage);
    return description ? description->advice : "";
}

int mlff_evaluator_stage_work(const mlff_evaluator *e, int stage, const mlff_work_size *size, mlff_stage_work *work_out)
{
    const model_stage *description = describe(e, stage);
    *work_out = (mlff_stage_work){0};
    if (!description || !description->work) return 0;
    description->work(e->model, &mlff_evaluator_stages(e, NULL)[stage], size, work_out);
    return 1;
}

const char *mlff_evaluator_kernel_stage(const mlff_evaluator *e, const char *kernel)
{
    return e->interface->kernel_stage ? e->interface->kernel_stage(e->self, kernel) : NULL;
}

void mlff_evaluator_info_get(const mlff_evaluator *e, mlff_evaluator_info *info_out)
{
    *info_out = (mlff_evaluator_info){
        .device = e->options.device, .precision = e->options.precision, .cpu_path = "", .n_members = 1, .n_near_pairs = -1};
    e->interface->info(e->self, info_out);
    info_out->n_growths += e->n_growths;
    info_out->host_bytes += (int64_t)sizeof(double) * (int64_t)(e->member_capacity + e->mean_capacity);
}

int mlff_evaluator_domains(const mlff_evaluator *e, mlff_domain_info *domains, int capacity)
{
    return e->interface->domains ? e->interface->domains(e->self, domains, capacity) : 0;
}

mlff_status mlff_evaluator_domain_stage_times(const mlff_evaluator *e, int domain, double *time_ns)
{
    if (!e || !time_ns || domain < 0 || domain >= mlff_evaluator_domains(e, NULL, 0))
        return mlff_fail(MLFF_ERR_USAGE, "mlff_evaluator_domain_stage_times: no evaluator, no domain %d, or no place for times",
                         domain);
    e->interface->domain_stage_times(e->self, domain, time_ns);
    return MLFF_OK;
}
