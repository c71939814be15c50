// SPDX-License-Identifier: MIT
// teacher.c: opens teachers by name, checks what goes in and what comes out; a caller's function as teacher.
#include "teacher.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/voigt.h"

mlff_teacher_options mlff_teacher_options_default(void)
{
    return (mlff_teacher_options){.struct_size = sizeof(mlff_teacher_options),
                                  .device = {MLFF_CPU, 0},
                                  .precision = MLFF_PRECISION_DEFAULT,
                                  .deviations = 1,
                                  .timeout_s = 120};
}

mlff_status teacher_allocate(const teacher_kind *kind, const mlff_teacher_options *options, mlff_teacher **teacher_out)
{
    mlff_teacher *teacher = base_alloc(1, sizeof *teacher, "a teacher");
    if (!teacher) return MLFF_ERR_MEMORY;
    teacher->kind = kind;
    teacher->options = *options;
    teacher->facts.n_members = teacher->facts.n_parallel = 1;
    pthread_mutex_init(&teacher->lock, NULL);
    *teacher_out = teacher;
    return MLFF_OK;
}

int mlff_teacher_is_process(const char *name)
{
    return strncmp(name, "xtb:", 4) == 0 || strncmp(name, "kim:", 4) == 0;
}

mlff_status mlff_teacher_open(const char *name, const mlff_teacher_options *given, mlff_teacher **teacher_out)
{
    mlff_teacher_options options = mlff_teacher_options_default();
    mlff_status status = base_take_options(__func__, "mlff_teacher_options", given, sizeof options, &options);
    if (status != MLFF_OK) return status;
    if (!name || !name[0]) return mlff_fail(MLFF_ERR_USAGE, "no teacher was named; give a model file, xtb:gfn2 or kim:MODEL");
    if (!(options.timeout_s > 0)) return mlff_fail(MLFF_ERR_USAGE, "a timeout of %g s; it must be above 0", options.timeout_s);
    if (strncmp(name, "xtb:", 4) == 0) return teacher_xtb_open(name + 4, &options, teacher_out);
    if (strncmp(name, "kim:", 4) == 0) return teacher_kim_open(name + 4, &options, teacher_out);
    status = teacher_model_open(name, &options, teacher_out);
    if (status == MLFF_ERR_IO && !strpbrk(name, "./"))
        return mlff_fail(status, "%s; other teachers are xtb:gfn2, xtb:gfn1 and kim:MODEL", mlff_last_error());
    return status;
}

void mlff_teacher_destroy(mlff_teacher *teacher)
{
    if (!teacher) return;
    if (teacher->kind->destroy) teacher->kind->destroy(teacher);
    pthread_mutex_destroy(&teacher->lock);
    systems_batch_free(&teacher->batch);
    base_free(teacher);
}

void mlff_teacher_info_get(const mlff_teacher *teacher, mlff_teacher_info *info_out)
{
    *info_out = (mlff_teacher_info){.name = teacher->facts.name,
                                    .description = teacher->facts.description,
                                    .hash = teacher->facts.hash,
                                    .n_elements = teacher->facts.n_elements,
                                    .elements = teacher->facts.elements,
                                    .n_members = teacher->facts.n_members,
                                    .has_stress = teacher->facts.has_stress,
                                    .has_atom_energies = teacher->facts.has_atom_energies};
}

// ---- checks

static bool knows(const mlff_teacher *teacher, int z)
{
    for (int k = 0; k < teacher->facts.n_elements; k++)
        if (teacher->facts.elements[k] == z) return true;
    return teacher->facts.n_elements == 0;
}

mlff_status mlff_teacher_check(const mlff_teacher *teacher, const mlff_system *system, const char *name)
{
    const char *colon = name ? ": " : "";
    mlff_status status = mlff_system_check(system, name);
    if (status != MLFF_OK) return status;
    if (!name) name = "";
    if (isfinite(system->charge) && system->charge != 0)
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "%s%sa charge of %g e; students know neutral systems only, leave the structure out", name, colon,
                         system->charge);
    for (int i = 0; i < system->n_atoms; i++)
        if (!knows(teacher, system->species[i]))
            return mlff_fail(MLFF_ERR_ELEMENT,
                             "%s%sthe teacher %s does not know %s (atom %d); take another teacher or leave it out", name, colon,
                             teacher->facts.name, mlff_element_symbol(system->species[i]), i);
    return teacher->kind->check ? teacher->kind->check(teacher, system, name) : MLFF_OK;
}

void teacher_label_fail(mlff_label *label, mlff_status status)
{
    const mlff_label failed = {.status = status, .energy = NAN, .stress = {NAN}, .energy_deviation = NAN, .force_deviation = NAN};
    mlff_label_clear(label);
    *label = failed;
    snprintf(label->problem, sizeof label->problem, "%s", mlff_last_error());
}

void mlff_label_clear(mlff_label *label)
{
    if (!label) return;
    base_free(label->forces);
    base_free(label->atom_energies);
    label->forces = label->atom_energies = NULL;
}

mlff_status teacher_label_allocate(mlff_label *label, int n_atoms, bool atom_energies)
{
    label->forces = base_alloc(3 * (size_t)n_atoms, sizeof(double), "forces");
    if (atom_energies) label->atom_energies = base_alloc((size_t)n_atoms, sizeof(double), "atom energies");
    return label->forces && (label->atom_energies || !atom_energies) ? MLFF_OK : MLFF_ERR_MEMORY;
}

// A result that is not finite is a failure of its structure.
static void check_label(const mlff_teacher *teacher, const mlff_system *system, mlff_label *label)
{
    bool finite = isfinite(label->energy);
    for (size_t k = 0; finite && k < 3 * (size_t)system->n_atoms; k++) finite = isfinite(label->forces[k]);
    for (int k = 0; finite && k < 6 && !isnan(label->stress[0]); k++) finite = isfinite(label->stress[k]);
    if (finite) return;
    mlff_fail(MLFF_ERR_VALUE, "%s gave an energy, a force or a stress that is not finite", teacher->facts.name);
    teacher_label_fail(label, MLFF_ERR_VALUE);
}

// ---- computing

// Labels of the structures that pass the check, in the places of all.
static mlff_status compute_checked(mlff_teacher *teacher, const mlff_system *const *systems, int n, mlff_label *labels)
{
    mlff_status status = MLFF_OK;
    const mlff_system **good = base_alloc((size_t)n, sizeof *good, "structures");
    mlff_label *good_labels = base_alloc((size_t)n, sizeof *good_labels, "labels");
    int n_good = 0;

    if (!good || !good_labels) MLFF_TRY(MLFF_ERR_MEMORY);
    for (int k = 0; k < n; k++) {
        const mlff_status checked = mlff_teacher_check(teacher, systems[k], NULL);
        if (checked == MLFF_OK) {
            good_labels[n_good] = labels[k];
            good[n_good++] = systems[k];
        } else {
            teacher_label_fail(&labels[k], checked);
        }
    }
    if (n_good > 0) status = teacher->kind->compute(teacher, good, n_good, good_labels);
    for (int k = 0, g = 0; k < n && g < n_good; k++)
        if (labels[k].status == MLFF_OK) labels[k] = good_labels[g++];
done:
    base_free(good);
    base_free(good_labels);
    return status;
}

static mlff_status compute_labels(mlff_teacher *teacher, const mlff_system *const *systems, int n, bool forces_alone,
                                  mlff_label *labels)
{
    mlff_status status;

    if (n < 0) return mlff_fail(MLFF_ERR_USAGE, "mlff_teacher_compute: %d structures", n);
    for (int k = 0; k < n; k++)
        labels[k] = (mlff_label){.energy = NAN, .stress = {NAN}, .energy_deviation = NAN, .force_deviation = NAN};
    if (!teacher->kind->concurrent) {
        pthread_mutex_lock(&teacher->lock);
        teacher->forces_alone = forces_alone;
    }
    status = compute_checked(teacher, systems, n, labels);
    if (!teacher->kind->concurrent) pthread_mutex_unlock(&teacher->lock);
    for (int k = 0; k < n; k++) {
        if (status != MLFF_OK)
            mlff_label_clear(&labels[k]);
        else if (labels[k].status == MLFF_OK)
            check_label(teacher, systems[k], &labels[k]);
    }
    return status;
}

mlff_status mlff_teacher_compute(mlff_teacher *teacher, const mlff_system *const *systems, int n, mlff_label *labels)
{
    return compute_labels(teacher, systems, n, false, labels);
}

// ---- energies and forces alone

// Of kinds that give labels only.
static mlff_status forces_of_labels(mlff_teacher *teacher, mlff_system *const *systems, int n, double *energies, double *forces)
{
    mlff_label *labels = base_alloc((size_t)n, sizeof *labels, "labels");
    if (!labels) return MLFF_ERR_MEMORY;
    mlff_status status = compute_labels(teacher, (const mlff_system *const *)systems, n, true, labels);
    for (int k = 0; status == MLFF_OK && k < n; k++) {
        if (labels[k].status != MLFF_OK) {
            status = mlff_fail(labels[k].status, "%s", labels[k].problem);
            break;
        }
        energies[k] = labels[k].energy;
        memcpy(forces, labels[k].forces, 3 * sizeof(double) * (size_t)systems[k]->n_atoms);
        forces += 3 * (size_t)systems[k]->n_atoms;
    }
    for (int k = 0; k < n; k++) mlff_label_clear(&labels[k]);
    base_free(labels);
    return status;
}

static mlff_status check_finite(const mlff_teacher *teacher, const mlff_batch *batch, const double *energies,
                                const double *forces)
{
    bool finite = true;
    for (int k = 0; k < batch->n_systems; k++) finite = finite && isfinite(energies[k]);
    for (size_t a = 0; finite && a < 3 * (size_t)batch->first_atom[batch->n_systems]; a++) finite = isfinite(forces[a]);
    return finite ? MLFF_OK : mlff_fail(MLFF_ERR_VALUE, "%s gave an energy or a force that is not finite", teacher->facts.name);
}

mlff_status teacher_forces(mlff_teacher *teacher, mlff_system *const *systems, int n, double *energies, double *forces,
                           double *deviations)
{
    mlff_status status = MLFF_OK;
    if (!teacher->kind->forces) return forces_of_labels(teacher, systems, n, energies, forces);
    for (int k = 0; k < n && status == MLFF_OK; k++) status = mlff_teacher_check(teacher, systems[k], NULL);
    if (status != MLFF_OK) return status;
    pthread_mutex_lock(&teacher->lock);
    status = systems_batch_fill(&teacher->batch, systems, n);
    if (status == MLFF_OK) status = teacher->kind->forces(teacher, &teacher->batch.batch, energies, forces, deviations);
    if (status == MLFF_OK) status = check_finite(teacher, &teacher->batch.batch, energies, forces);
    pthread_mutex_unlock(&teacher->lock);
    return status;
}

void teacher_expect_magnitudes(mlff_teacher *teacher, bool expected)
{
    pthread_mutex_lock(&teacher->lock);
    teacher->expects_magnitudes = expected;
    pthread_mutex_unlock(&teacher->lock);
}

mlff_status mlff_teacher_forces(void *teacher, const mlff_system *system, double *energy, double *forces)
{
    mlff_system *const one = (mlff_system *)system; // which is only read
    return teacher_forces(teacher, &one, 1, energy, forces, NULL);
}

// ---- a caller's function

typedef struct function_state {
    mlff_force_function function;
    void *context;
    mlff_virial_function virial; // or NULL
    void *virial_context;
} function_state;

static bool is_periodic(const mlff_system *system)
{
    return system->periodic[0] && system->periodic[1] && system->periodic[2];
}

static mlff_status compute_with_stress(const function_state *state, const mlff_system *system, mlff_label *label)
{
    double virial[9];
    const mlff_status status = state->virial(state->virial_context, system, &label->energy, label->forces, virial);
    if (status != MLFF_OK || isnan(virial[0])) return status;
    const double volume = mlff_system_volume(system);
    for (int k = 8; k >= 0; k--) label->stress[voigt_index[k]] = -0.5 * (virial[k] + virial[3 * (k % 3) + k / 3]) / volume;
    return MLFF_OK;
}

static mlff_status function_compute(mlff_teacher *teacher, const mlff_system *const *systems, int n, mlff_label *labels)
{
    const function_state *state = teacher->state;
    for (int k = 0; k < n; k++) {
        mlff_status status = teacher_label_allocate(&labels[k], systems[k]->n_atoms, false);
        if (status != MLFF_OK) return status;
        if (state->virial && !teacher->forces_alone && is_periodic(systems[k]))
            status = compute_with_stress(state, systems[k], &labels[k]);
        else
            status = state->function(state->context, systems[k], &labels[k].energy, labels[k].forces);
        if (status == MLFF_ERR_INTERRUPTED) return status;
        if (status != MLFF_OK) teacher_label_fail(&labels[k], status);
    }
    return MLFF_OK;
}

static void function_destroy(mlff_teacher *teacher)
{
    base_free(teacher->state);
}

mlff_status mlff_teacher_create(const char *name, mlff_force_function function, void *context, mlff_teacher **teacher_out)
{
    static const teacher_kind kind = {.compute = function_compute, .destroy = function_destroy};
    const mlff_teacher_options options = mlff_teacher_options_default();
    mlff_teacher *teacher;
    unsigned char digest[SHA256_BYTES];

    if (!name || !name[0] || !function) return mlff_fail(MLFF_ERR_USAGE, "a teacher needs a name and a function");
    function_state *state = base_alloc(1, sizeof *state, "a teacher");
    if (!state) return MLFF_ERR_MEMORY;
    mlff_status status = teacher_allocate(&kind, &options, &teacher);
    if (status != MLFF_OK) {
        base_free(state);
        return status;
    }
    *state = (function_state){.function = function, .context = context};
    teacher->state = state;
    snprintf(teacher->facts.name, sizeof teacher->facts.name, "%s", name);
    snprintf(teacher->facts.description, sizeof teacher->facts.description, "%s, a function of the caller", name);
    sha256_of(name, strlen(name), digest);
    sha256_text(digest, teacher->facts.hash);
    *teacher_out = teacher;
    return MLFF_OK;
}

void mlff_teacher_virial_set(mlff_teacher *teacher, mlff_virial_function function, void *context)
{
    function_state *state = teacher->state;
    state->virial = function;
    state->virial_context = context;
    teacher->facts.has_stress = function != NULL;
}
