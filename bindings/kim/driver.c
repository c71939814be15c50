// SPDX-License-Identifier: MIT
// driver.c: KIM model driver: a model file as a KIM portable model, for LAMMPS and every other KIM simulator.
//
// Simulators may create a model several times (LAMMPS does so twice) without computing: creation loads the weights, and the
// first computation creates the evaluator. The neighbor list is built here from the coordinates, which KIM allows, so that KIM's
// own list is never asked for.
//
// KIM's partial forces are the derivatives by every atom, ghosts too. A simulator whose ghosts are images of its own atoms adds their forces
// to these, so that any forces on ghosts will do that give the same sums; then the owned atoms are computed in their periodic cell (images.h).
// LAMMPS is such a simulator; of others the user says so.
//
// Environment variables: MLFF_DEVICE (auto), MLFF_PRECISION (float32), MLFF_KIM_GHOSTS (images under LAMMPS, else atoms), OMP_NUM_THREADS.
#include "driver.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/support/extrapolation.h"
#include "halo.h"
#include "images.h"
#include "KIM_ModelDriverHeaders.h"
#include "rank_profile.h"
#include "ranks.h"
#include "words.h"

typedef struct kim_model {
    mlff_model *model;
    mlff_evaluator *evaluator; // NULL until the first computation
    halo *halo;
    images *images;         // NULL: not looked for
    bool of_images;         // the last computation was in a periodic cell, without ghosts
    bool told_of_images;    // KIM's log says so
    rank_profile *profile;  // NULL: MLFF_PROFILE is not set
    char where[RANKS_TEXT]; // device, precision and threads
    extrapolation told;
    double length, energy;  // units of the simulator in one Å and one eV
    double influence, list; // in the simulator's unit of length; KIM keeps pointers to them
    int no_ghost_lists;     // KIM keeps a pointer to it
    size_t n_capacity;      // atoms that the arrays below hold
    double *positions;      // [n][3] Å
    double *forces;         // [n][3] eV/Å, of the batch
    double *atom_energies;  // [n] eV, of the batch
    double *atom_virials;   // [n][9] eV, of the batch
} kim_model;

int model_driver_create(KIM_ModelDriverCreate *create, KIM_LengthUnit length, KIM_EnergyUnit energy, KIM_ChargeUnit charge,
                        KIM_TemperatureUnit temperature, KIM_TimeUnit time);

static void destroy(kim_model *m)
{
    if (!m) return;
    rank_profile_destroy(m->profile);
    mlff_evaluator_destroy(m->evaluator);
    mlff_model_destroy(m->model);
    halo_destroy(m->halo);
    images_destroy(m->images);
    free(m->positions);
    free(m->forces);
    free(m->atom_energies);
    free(m->atom_virials);
    free(m);
}

// ---- a computation ---------------------------------------------------------------------------------------------------------

// What KIM hands over and wants; a result that is not wanted is NULL.
typedef struct kim_call {
    const int *n_atoms, *atomic_numbers, *contributing;
    const double *coordinates; // [n_atoms][3] of the simulator's unit, as all below
    double *energy, *forces, *atom_energies, *virial, *atom_virials;
} kim_call;

static bool get_call(const KIM_ModelComputeArguments *arguments, kim_call *call)
{
    typedef struct {
        KIM_ComputeArgumentName name;
        double **to;
    } row;
    int *n = NULL, *codes = NULL, *contributing = NULL;
    double *coordinates = NULL;
    const row rows[] = {{KIM_COMPUTE_ARGUMENT_NAME_coordinates, &coordinates},
                        {KIM_COMPUTE_ARGUMENT_NAME_partialEnergy, &call->energy},
                        {KIM_COMPUTE_ARGUMENT_NAME_partialForces, &call->forces},
                        {KIM_COMPUTE_ARGUMENT_NAME_partialParticleEnergy, &call->atom_energies},
                        {KIM_COMPUTE_ARGUMENT_NAME_partialVirial, &call->virial},
                        {KIM_COMPUTE_ARGUMENT_NAME_partialParticleVirial, &call->atom_virials}};
    int failed =
        KIM_ModelComputeArguments_GetArgumentPointerInteger(arguments, KIM_COMPUTE_ARGUMENT_NAME_numberOfParticles, &n) ||
        KIM_ModelComputeArguments_GetArgumentPointerInteger(arguments, KIM_COMPUTE_ARGUMENT_NAME_particleSpeciesCodes, &codes) ||
        KIM_ModelComputeArguments_GetArgumentPointerInteger(arguments, KIM_COMPUTE_ARGUMENT_NAME_particleContributing,
                                                            &contributing);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        failed = failed || KIM_ModelComputeArguments_GetArgumentPointerDouble(arguments, rows[k].name, rows[k].to);
    call->n_atoms = n;
    call->atomic_numbers = codes;
    call->contributing = contributing;
    call->coordinates = coordinates;
    return !failed;
}

// Ghosts of other ranks are images of no owned atom, but processes may each have a system of their own, as replicas do: the user says so.
static mlff_status look_for_images(kim_model *m, const mlff_model_info *info)
{
    const char *said = getenv("MLFF_KIM_GHOSTS");
    bool wanted = dlsym(RTLD_DEFAULT, "lammps_version") != NULL;
    const mlff_status status = said && *said ? words_ghosts("MLFF_KIM_GHOSTS", said, &wanted) : MLFF_OK;
    wanted = wanted && (ranks_count() == 1 || (said && *said)) && mlff_model_outputs(m->model) & MLFF_OUTPUT_VIRIALS;
    if (status != MLFF_OK || !wanted) return status;
    return images_create(info->n_layers * info->cutoff_angstrom, &m->images);
}

static mlff_status create_evaluator(kim_model *m)
{
    const char *precision = getenv("MLFF_PRECISION");
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_model_info info;
    mlff_evaluator *evaluator = NULL;

    mlff_status status = MLFF_OK;
    if (precision && *precision) status = words_precision("MLFF_PRECISION", precision, &options.precision);
    if (ranks_count() > 1 && !getenv("OMP_NUM_THREADS")) options.n_threads = 1;
    if (status == MLFF_OK) status = ranks_evaluator(getenv("MLFF_DEVICE"), m->model, &options, m->where, &evaluator);
    mlff_model_info_get(m->model, &info);
    if (status == MLFF_OK) status = rank_profile_create(evaluator, m->model, ranks_own(), ranks_count(), false, &m->profile);
    if (status == MLFF_OK) status = halo_create(info.cutoff_angstrom, info.n_layers, options.device.kind == MLFF_CPU, &m->halo);
    if (status == MLFF_OK) status = look_for_images(m, &info);
    if (status == MLFF_OK)
        m->evaluator = evaluator;
    else
        mlff_evaluator_destroy(evaluator);
    return status;
}

static mlff_status reserve(kim_model *m, size_t n)
{
    if (n <= m->n_capacity) return MLFF_OK;
    n += n / 4;
    free(m->positions);
    free(m->forces);
    free(m->atom_energies);
    free(m->atom_virials);
    m->positions = malloc(3 * n * sizeof(double));
    m->forces = malloc(3 * n * sizeof(double));
    m->atom_energies = malloc(n * sizeof(double));
    m->atom_virials = malloc(9 * n * sizeof(double));
    m->n_capacity = m->positions && m->forces && m->atom_energies && m->atom_virials ? n : 0;
    return m->n_capacity ? MLFF_OK : mlff_fail(MLFF_ERR_MEMORY, "out of memory: %zu atoms", n);
}

// Results of atoms from `first` on.
static void clear(const kim_call *call, int first)
{
    const size_t k = (size_t)first, n = (size_t)(*call->n_atoms - first);
    if (call->energy) *call->energy = 0;
    if (call->forces) memset(call->forces + 3 * k, 0, sizeof(double) * 3 * n);
    if (call->atom_energies) memset(call->atom_energies + k, 0, sizeof(double) * n);
    if (call->virial) memset(call->virial, 0, sizeof(double) * 6);
    if (call->atom_virials) memset(call->atom_virials + 6 * k, 0, sizeof(double) * 6 * n);
}

// From the batch's atoms to the simulator's, in its units; atom NULL: they are its first ones. What was computed into its arrays is there.
// KIM's virial is dE/dε, order xx yy zz yz xz xy.
static void scatter(const kim_model *m, const kim_call *call, const mlff_results *r, const int *atom, int n)
{
    static const size_t voigt[6] = {0, 4, 8, 5, 2, 1};
    const double force_unit = m->energy / m->length;
    if (call->energy) *call->energy = *r->energies * m->energy;
    for (int k = 0; r->forces != call->forces && k < n; k++)
        for (size_t c = 0, i = (size_t)(atom ? atom[k] : k); c < 3; c++)
            call->forces[3 * i + c] = r->forces[3 * (size_t)k + c] * force_unit;
    for (int k = 0; r->atom_energies != call->atom_energies && k < n; k++)
        call->atom_energies[atom ? atom[k] : k] = r->atom_energies[k] * m->energy;
    for (int k = 0; call->atom_virials && k < n; k++)
        for (size_t c = 0, i = (size_t)(atom ? atom[k] : k); c < 6; c++)
            call->atom_virials[6 * i + c] = -r->atom_virials[9 * (size_t)k + voigt[c]] * m->energy;
    for (int k = 0; call->virial && k < 6; k++) call->virial[k] = -r->virials[voigt[k]] * m->energy;
}

typedef struct kim_step {
    kim_model *m;
    const kim_call *call;
    const mlff_batch *batch;
} kim_step;

static mlff_status compute_batch(const kim_step *step, const int *atom, bool of_images)
{
    kim_model *m = step->m;
    const kim_call *call = step->call;
    const int n = step->batch->first_atom[1];
    double energy, virial[9];
    const bool adds_virial = of_images && call->forces;
    double *forces = !atom && m->energy == m->length ? call->forces : m->forces;
    double *atom_energies = !atom && m->energy == 1 ? call->atom_energies : m->atom_energies;
    const mlff_results results = {.energies = &energy,
                                  .atom_energies = call->atom_energies ? atom_energies : NULL,
                                  .forces = call->forces ? forces : NULL,
                                  .virials = call->virial || adds_virial ? virial : NULL,
                                  .atom_virials = call->atom_virials ? m->atom_virials : NULL};
    const mlff_status status = mlff_evaluator_compute(m->evaluator, step->batch, &results);
    if (status != MLFF_OK) return status;
    const int64_t begin = rank_profile_begin(m->profile);
    clear(call, atom ? 0 : n);
    scatter(m, call, &results, atom, n);
    for (int k = 0; adds_virial && k < 9; k++) virial[k] *= m->energy;
    if (adds_virial) images_add_virial(m->images, call->coordinates, virial, call->forces);
    rank_profile_add(m->profile, RANK_GATHER, begin);
    return MLFF_OK;
}

// Owned atoms in a cell, where ghosts are their images and the cell is large enough for the evaluator.
static mlff_status compute_images(kim_step *step, const double *positions)
{
    kim_model *m = step->m;
    const int *atom;
    const int64_t begin = rank_profile_begin(m->profile);
    mlff_status status = images_update(m->images, *step->call->n_atoms, step->call->atomic_numbers, step->call->contributing,
                                       positions, &step->batch, &atom);
    rank_profile_add(m->profile, RANK_GATHER, begin);
    if (status != MLFF_OK || !step->batch) return status;
    status = compute_batch(step, atom, true);
    if (status != MLFF_ERR_LIMIT) return status;
    images_destroy(m->images);
    m->images = NULL;
    step->batch = NULL;
    return MLFF_OK;
}

static mlff_status compute_step(void *context)
{
    kim_step *step = context;
    kim_model *m = step->m;
    const kim_call *call = step->call;
    const int n = *call->n_atoms;
    const int *atom;

    int64_t begin = rank_profile_begin(m->profile);
    mlff_status status = reserve(m, (size_t)n);
    if (status != MLFF_OK) return status;
    const double *positions = m->length == 1 ? call->coordinates : m->positions;
    for (size_t k = 0; m->length != 1 && k < 3 * (size_t)n; k++) m->positions[k] = call->coordinates[k] / m->length;
    rank_profile_add(m->profile, RANK_GATHER, begin);
    if (m->images) status = compute_images(step, positions);
    if (status != MLFF_OK || step->batch) return status;
    begin = rank_profile_begin(m->profile);
    status = halo_update(m->halo, n, call->atomic_numbers, call->contributing, positions, &step->batch, &atom);
    if (status != MLFF_OK) return status;
    if (halo_neighbors(m->halo)) rank_profile_list(m->profile, begin, halo_neighbors(m->halo));
    if (step->batch->first_atom[1] > 0) return compute_batch(step, atom, false);
    clear(call, 0); // a process may own no atoms
    return MLFF_OK;
}

static mlff_status compute_call(kim_model *m, const kim_call *call)
{
    kim_step step = {.m = m, .call = call};
    mlff_status status = m->evaluator ? MLFF_OK : create_evaluator(m);
    if (status == MLFF_OK) status = rank_profile_step(m->profile, compute_step, &step);
    m->of_images = status == MLFF_OK && step.batch->cells;
    if (status == MLFF_OK) rank_profile_atoms(m->profile, step.batch->species, step.batch->owned, step.batch->first_atom[1]);
    return status;
}

/* One line that users see, beside KIM's log: simulators print only that something failed. Where several processes run, the others
 * would wait for this one for ever (LAMMPS asks all of them to report an error together), so the process ends, and the MPI
 * launcher ends the rest. */
static void fail_compute(const KIM_ModelCompute *compute, const char *text)
{
    KIM_ModelCompute_LogEntry(compute, KIM_LOG_VERBOSITY_error, text, __LINE__, __FILE__);
    if (ranks_count() == 1) {
        fprintf(stderr, "mlff: kim: %s\n", text);
        return;
    }
    if (ranks_own() > 0) sleep(10); // the first rank may fail of the same: its end ends the others
    fprintf(stderr, "mlff: kim: rank %d: %s\n", ranks_own(), text);
    fflush(NULL);
    _exit(EXIT_FAILURE);
}

// One line in KIM's log: which device and precision this process took, and what it does with ghosts.
static void log_device(const KIM_ModelCompute *compute, const kim_model *m)
{
    char text[RANKS_TEXT + 100];
    snprintf(text, sizeof text, "rank %d on %s; %s", ranks_own(), m->where,
             m->of_images ? "ghosts are periodic images and are not computed" : "ghosts are computed");
    KIM_ModelCompute_LogEntry(compute, KIM_LOG_VERBOSITY_information, text, __LINE__, __FILE__);
}

// One line of one process of a host: a process knows its own atoms, and their positions alone.
static void warn_if_extrapolating(const KIM_ModelCompute *compute, kim_model *m)
{
    char text[EXTRAPOLATION_TEXT];
    mlff_evaluator_info info;
    mlff_evaluator_info_get(m->evaluator, &info);
    if (!extrapolation_by_distance(&m->told, m->model, info.n_near_pairs, text)) return;
    KIM_ModelCompute_LogEntry(compute, KIM_LOG_VERBOSITY_warning, text, __LINE__, __FILE__);
    if (ranks_first_to_warn()) fprintf(stderr, "mlff: kim: warning: %s\n", text);
}

static int compute(const KIM_ModelCompute *compute, const KIM_ModelComputeArguments *arguments)
{
    kim_model *m;
    kim_call call = {0};
    KIM_ModelCompute_GetModelBufferPointer(compute, (void **)&m);
    if (!get_call(arguments, &call)) {
        fail_compute(compute, "the simulator's arguments cannot be read");
        return 1;
    }
    const bool first = !m->evaluator;
    if (compute_call(m, &call) != MLFF_OK) {
        fail_compute(compute, mlff_last_error());
        return 1;
    }
    if (first || (m->of_images && !m->told_of_images))
        log_device(compute, m); // a crystal on its sites has ghosts in the first step
    m->told_of_images = m->told_of_images || m->of_images;
    warn_if_extrapolating(compute, m);
    return 0;
}

// ---- creation and destruction ----------------------------------------------------------------------------------------------

static int arguments_create(const KIM_ModelCompute *compute, KIM_ModelComputeArgumentsCreate *create)
{
    (void)compute;
    const KIM_ComputeArgumentName names[] = {KIM_COMPUTE_ARGUMENT_NAME_partialEnergy, KIM_COMPUTE_ARGUMENT_NAME_partialForces,
                                             KIM_COMPUTE_ARGUMENT_NAME_partialParticleEnergy,
                                             KIM_COMPUTE_ARGUMENT_NAME_partialVirial,
                                             KIM_COMPUTE_ARGUMENT_NAME_partialParticleVirial};
    int failed = 0;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        failed =
            failed || KIM_ModelComputeArgumentsCreate_SetArgumentSupportStatus(create, names[k], KIM_SUPPORT_STATUS_optional);
    return failed;
}

static int arguments_destroy(const KIM_ModelCompute *compute, KIM_ModelComputeArgumentsDestroy *destroy_arguments)
{
    (void)compute;
    (void)destroy_arguments;
    return 0;
}

static int model_destroy(KIM_ModelDestroy *model)
{
    kim_model *m;
    KIM_ModelDestroy_GetModelBufferPointer(model, (void **)&m);
    destroy(m);
    return 0;
}

// The path that failed is a copy's, which the KIM API makes and removes; it does not say of which model.
static mlff_status fail_load(mlff_status status, const char *path)
{
    char reason[1024];
    const char *error = mlff_last_error();
    const size_t n = strlen(path);
    snprintf(reason, sizeof reason, "%s", strncmp(error, path, n) == 0 ? error + n : error);
    return mlff_fail(status,
                     "the installed model's file%s%s; mlff kim list says which model it is: remove it, and install it again",
                     reason[0] == ':' ? "" : ": ", reason);
}

static mlff_status load(const KIM_ModelDriverCreate *create, kim_model *m)
{
    int n_files = 0;
    const char *folder, *file;
    char path[4096];
    KIM_ModelDriverCreate_GetNumberOfParameterFiles(create, &n_files);
    if (n_files != 1 || KIM_ModelDriverCreate_GetParameterFileBasename(create, 0, &file))
        return mlff_fail(MLFF_ERR_FORMAT, "%d parameter files, expected one; install the model with mlff kim install", n_files);
    KIM_ModelDriverCreate_GetParameterFileDirectoryName(create, &folder);
    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path)
        return mlff_fail(MLFF_ERR_LIMIT, "the path of the parameter file is too long");
    mlff_status status = mlff_model_load(path, &m->model);
    return status == MLFF_OK ? driver_check_model(m->model) : fail_load(status, path);
}

/* Every unit of length and energy of KIM 2.3 is offered: results are converted from Å and eV, by CODATA 2014 as all of mlff.
 * KIM_ModelDriverCreate_ConvertUnit is not used: it takes an erg for 10^7 J. */
static bool unit_factors(KIM_LengthUnit length, KIM_EnergyUnit energy, double *length_out, double *energy_out)
{
    const struct {
        KIM_LengthUnit unit;
        double factor; // in one Å
    } lengths[] = {{KIM_LENGTH_UNIT_A, 1},
                   {KIM_LENGTH_UNIT_Bohr, 1 / 0.5291772105638411},
                   {KIM_LENGTH_UNIT_cm, 1e-8},
                   {KIM_LENGTH_UNIT_m, 1e-10},
                   {KIM_LENGTH_UNIT_nm, 0.1}};
    const struct {
        KIM_EnergyUnit unit;
        double factor; // in one eV
    } energies[] = {{KIM_ENERGY_UNIT_eV, 1},
                    {KIM_ENERGY_UNIT_kcal_mol, 1 / 0.04336410390059322},
                    {KIM_ENERGY_UNIT_Hartree, 1 / 27.211386024367243},
                    {KIM_ENERGY_UNIT_J, 1.6021766208e-19},
                    {KIM_ENERGY_UNIT_erg, 1.6021766208e-12},
                    {KIM_ENERGY_UNIT_amu_A2_per_ps2, 1 / 1.036426957050445e-4}};
    *length_out = *energy_out = 0;
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
        if (KIM_LengthUnit_Equal(lengths[k].unit, length)) *length_out = lengths[k].factor;
    for (size_t k = 0; k < sizeof energies / sizeof *energies; k++)
        if (KIM_EnergyUnit_Equal(energies[k].unit, energy)) *energy_out = energies[k].factor;
    return *length_out > 0 && *energy_out > 0;
}

static mlff_status set_units(KIM_ModelDriverCreate *create, kim_model *m, KIM_LengthUnit length, KIM_EnergyUnit energy)
{
    if (KIM_LengthUnit_Equal(length, KIM_LENGTH_UNIT_unused)) length = KIM_LENGTH_UNIT_A;
    if (KIM_EnergyUnit_Equal(energy, KIM_ENERGY_UNIT_unused)) energy = KIM_ENERGY_UNIT_eV;
    if (!unit_factors(length, energy, &m->length, &m->energy) ||
        KIM_ModelDriverCreate_SetUnits(create, length, energy, KIM_CHARGE_UNIT_unused, KIM_TEMPERATURE_UNIT_unused,
                                       KIM_TIME_UNIT_unused))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "the simulator's units cannot be converted from Å and eV");
    return MLFF_OK;
}

// The evaluator finds neighbors itself. KIM wants one list of the simulator's, which is never asked for: a short one takes less time. LAMMPS
// refuses lists that are not longer than its skin, 2 Å by default.
#define LIST_ANGSTROM 3.0

static mlff_status describe(KIM_ModelDriverCreate *create, kim_model *m)
{
    mlff_model_info info;
    mlff_model_info_get(m->model, &info);
    m->influence = info.n_layers * info.cutoff_angstrom * m->length;
    m->list = fmin(LIST_ANGSTROM, info.cutoff_angstrom) * m->length;
    m->no_ghost_lists = 1;
    int failed = KIM_ModelDriverCreate_SetModelNumbering(create, KIM_NUMBERING_zeroBased);
    for (int k = 0; k < info.n_elements; k++) {
        const int z = info.elements[k];
        failed = failed || KIM_ModelDriverCreate_SetSpeciesCode(create, KIM_SpeciesName_FromString(mlff_element_symbol(z)), z);
    }
    KIM_ModelDriverCreate_SetInfluenceDistancePointer(create, &m->influence);
    KIM_ModelDriverCreate_SetNeighborListPointers(create, 1, &m->list, &m->no_ghost_lists);
    KIM_ModelDriverCreate_SetModelBufferPointer(create, m);
    return failed ? mlff_fail(MLFF_ERR_UNSUPPORTED, "KIM refused an element of the model") : MLFF_OK;
}

static bool set_routines(KIM_ModelDriverCreate *create)
{
    typedef struct {
        KIM_ModelRoutineName name;
        KIM_Function *function;
    } row;
    const row rows[] = {{KIM_MODEL_ROUTINE_NAME_ComputeArgumentsCreate, (KIM_Function *)arguments_create},
                        {KIM_MODEL_ROUTINE_NAME_Compute, (KIM_Function *)compute},
                        {KIM_MODEL_ROUTINE_NAME_ComputeArgumentsDestroy, (KIM_Function *)arguments_destroy},
                        {KIM_MODEL_ROUTINE_NAME_Destroy, (KIM_Function *)model_destroy}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (KIM_ModelDriverCreate_SetRoutinePointer(create, rows[k].name, KIM_LANGUAGE_NAME_c, 1, rows[k].function)) return false;
    return true;
}

int model_driver_create(KIM_ModelDriverCreate *create, KIM_LengthUnit length, KIM_EnergyUnit energy, KIM_ChargeUnit charge,
                        KIM_TemperatureUnit temperature, KIM_TimeUnit time)
{
    (void)charge, (void)temperature, (void)time; // of no result
    kim_model *m = calloc(1, sizeof *m);
    mlff_status status = m ? load(create, m) : mlff_fail(MLFF_ERR_MEMORY, "out of memory: a KIM model");
    if (status == MLFF_OK) status = set_units(create, m, length, energy);
    if (status == MLFF_OK) status = describe(create, m);
    if (status == MLFF_OK && !set_routines(create)) status = mlff_fail(MLFF_ERR_UNSUPPORTED, "KIM refused the model's routines");
    if (status == MLFF_OK) return 0;
    KIM_ModelDriverCreate_LogEntry(create, KIM_LOG_VERBOSITY_error, mlff_last_error(), __LINE__, __FILE__);
    if (ranks_own() == 0) fprintf(stderr, "mlff: kim: %s\n", mlff_last_error()); // the same on every rank
    destroy(m);
    return 1;
}
