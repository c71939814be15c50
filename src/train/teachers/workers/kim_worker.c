// SPDX-License-Identifier: MIT
// kim_worker.c: a portable model of the KIM API, in a worker, which is its simulator.
//
// The model gets ghosts and neighbor lists (kim_ghosts.c) in its own unit of length; forces on ghosts are added to those of their
// atoms. The stress is that of all particles, -Σ r ⊗ F / V: ghosts move with the cell too, so that it holds for every model.
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kim_ghosts.h"
#include "kim_library.h"
#include "worker.h"

typedef struct session {
    kim_library kim;
    const char *name;
    kim_model *model;
    kim_arguments *arguments;
    kim_ghosts *ghosts;
    double length, energy;                 // Å and eV of the model's units
    int codes[MLFF_MAX_ATOMIC_NUMBER + 1]; // by atomic number
    int *particle_codes;
    double *coordinates, *forces; // [n][3] in the model's units
    size_t codes_capacity, coordinates_capacity, forces_capacity;
} session;

// ---- which model

// A model is all that its folder holds: its library, and the weights of a model that mlff kim installed.
static mlff_status hash_folder(const char *library, const char *name, char hash[SHA256_TEXT_BYTES])
{
    mlff_status status = MLFF_OK;
    char folder[PATH_MAX], path[2 * PATH_MAX], file_hash[SHA256_TEXT_BYTES];
    struct dirent **entries = NULL;
    unsigned char digest[SHA256_BYTES];
    sha256 sum;

    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(library, '/') ? strrchr(library, '/') - library : 0), library);
    const int n = scandir(folder, &entries, NULL, alphasort);
    if (n < 0) MLFF_FAIL(MLFF_ERR_IO, "kim:%s: its folder %s cannot be read", name, folder);
    sha256_begin(&sum);
    sha256_add(&sum, name, strlen(name) + 1);
    for (int k = 0; k < n; k++) {
        if (entries[k]->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entries[k]->d_name);
        MLFF_TRY(sha256_file(path, file_hash));
        sha256_add(&sum, entries[k]->d_name, strlen(entries[k]->d_name) + 1);
        sha256_add(&sum, file_hash, sizeof file_hash);
    }
    sha256_end(&sum, digest);
    sha256_text(digest, hash);
done:
    for (int k = 0; k < n; k++) free(entries[k]);
    free(entries);
    return status;
}

// Is `name` a portable model? Gives its library.
static mlff_status find_model(const kim_library *kim, const char *name, char library[PATH_MAX])
{
    mlff_status status = MLFF_OK;
    kim_collections *collections = NULL;
    kim_id type, collection;
    const char *file;

    if (kim->Collections_Create(&collections))
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "kim: its collections cannot be read: %s", kim_library_problem());
    if (kim->Collections_GetItemType(collections, name, &type))
        MLFF_FAIL(MLFF_ERR_USAGE,
                  "kim:%s: no such KIM model is installed; kim-api-collections-management list names those that are", name);
    const char *kind = kim->CollectionItemType_ToString(type);
    if (strcmp(kind, "portableModel") != 0)
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "kim:%s: %s; a portable model is needed", name,
                  strcmp(kind, "simulatorModel") == 0 ? "a simulator model, which only its own simulator can run"
                                                      : "a model driver, which has no parameters");
    if (kim->Collections_GetItemLibraryFileNameAndCollection(collections, type, name, &file, &collection))
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "kim:%s: %s", name, kim_library_problem());
    snprintf(library, PATH_MAX, "%s", file);
done:
    if (collections) kim->Collections_Destroy(&collections);
    return status;
}

// ---- its units, elements and arguments

static double length_in_angstrom(const char *unit)
{
    static const struct {
        const char *name;
        double angstrom;
    } units[] = {{"A", 1}, {"Bohr", BASE_BOHR_ANGSTROM}, {"cm", 1e8}, {"m", 1e10}, {"nm", 10}};
    for (size_t k = 0; k < sizeof units / sizeof *units; k++)
        if (strcmp(units[k].name, unit) == 0) return units[k].angstrom;
    return 0;
}

static double energy_in_ev(const char *unit)
{
    static const double joule = 1 / 1.6021766208e-19; // CODATA 2014, as all of mlff
    static const struct {
        const char *name;
        double ev;
    } units[] = {{"eV", 1},
                 {"kcal_mol", BASE_KCAL_PER_MOL_EV},
                 {"Hartree", BASE_HARTREE_EV},
                 {"J", joule},
                 {"erg", 1e-7 * joule},
                 {"amu_A2_per_ps2", 1e-6 * BASE_AMU_ANG2_FS2_EV}};
    for (size_t k = 0; k < sizeof units / sizeof *units; k++)
        if (strcmp(units[k].name, unit) == 0) return units[k].ev;
    return 0;
}

// A model need not take the units that it is asked for; then it computes in its own.
static mlff_status read_units(session *s)
{
    kim_id length, energy, charge, temperature, time;
    s->kim.Model_GetUnits(s->model, &length, &energy, &charge, &temperature, &time);
    s->length = length_in_angstrom(s->kim.LengthUnit_ToString(length));
    s->energy = energy_in_ev(s->kim.EnergyUnit_ToString(energy));
    if (s->length > 0 && s->energy > 0) return MLFF_OK;
    return mlff_fail(MLFF_ERR_UNSUPPORTED, "kim:%s: its units of length (%s) and energy (%s) cannot be converted to Å and eV",
                     s->name, s->kim.LengthUnit_ToString(length), s->kim.EnergyUnit_ToString(energy));
}

static mlff_status read_elements(session *s, worker_hello *hello)
{
    for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        int supported = 0;
        const kim_id species = s->kim.SpeciesName_FromString(mlff_element_symbol(z));
        if (s->kim.Model_GetSpeciesSupportAndCode(s->model, species, &supported, &s->codes[z]) || !supported) continue;
        hello->elements[hello->n_elements++] = (unsigned char)z;
    }
    kim_library_problem(); // a name that the KIM API does not know is no error here
    if (hello->n_elements > 0) return MLFF_OK;
    return mlff_fail(MLFF_ERR_UNSUPPORTED, "kim:%s: it knows no chemical element", s->name);
}

static bool supports(const session *s, const char *argument)
{
    kim_id status;
    const kim_id name = s->kim.ComputeArgumentName_FromString(argument);
    if (s->kim.ComputeArguments_GetArgumentSupportStatus(s->arguments, name, &status)) return false;
    return strcmp(s->kim.SupportStatus_ToString(status), "notSupported") != 0;
}

static bool set_integers(const session *s, const char *argument, const int *pointer)
{
    return !s->kim.ComputeArguments_SetArgumentPointerInteger(s->arguments, s->kim.ComputeArgumentName_FromString(argument),
                                                              pointer);
}

static bool set_doubles(const session *s, const char *argument, const double *pointer)
{
    return !s->kim.ComputeArguments_SetArgumentPointerDouble(s->arguments, s->kim.ComputeArgumentName_FromString(argument),
                                                             pointer);
}

static bool set_arguments(const session *s, const int *n, const int *contributing, const double *energy)
{
    return set_integers(s, "numberOfParticles", n) && set_integers(s, "particleSpeciesCodes", s->particle_codes) &&
           set_integers(s, "particleContributing", contributing) && set_doubles(s, "coordinates", s->coordinates) &&
           set_doubles(s, "partialEnergy", energy) && set_doubles(s, "partialForces", s->forces);
}

static mlff_status prepare_arguments(session *s)
{
    static const char *const needed[2] = {"partialEnergy", "partialForces"};
    const kim_library *kim = &s->kim;
    if (kim->Model_ComputeArgumentsCreate(s->model, &s->arguments))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "kim:%s: %s", s->name, kim_library_problem());
    for (int k = 0; k < 2; k++)
        if (!supports(s, needed[k]))
            return mlff_fail(MLFF_ERR_UNSUPPORTED, "kim:%s: it gives no %s, which labels need", s->name,
                             needed[k] + strlen("partial"));
    if (kim->ComputeArguments_SetCallbackPointer(s->arguments, kim->ComputeCallbackName_FromString("GetNeighborList"),
                                                 kim->LanguageName_FromString("c"), (kim_function *)kim_ghosts_list, s->ghosts))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "kim:%s: %s", s->name, kim_library_problem());
    return MLFF_OK;
}

// ---- opening

static mlff_status open_ghosts(session *s, double *influence_out)
{
    int n_lists = 0;
    const double *cutoffs = NULL;
    const int *no_ghost_rows;
    double lengths[64];
    s->kim.Model_GetInfluenceDistance(s->model, influence_out);
    s->kim.Model_GetNeighborListPointers(s->model, &n_lists, &cutoffs, &no_ghost_rows);
    *influence_out *= s->length;
    for (int k = 0; k < n_lists && k < 64; k++) lengths[k] = cutoffs[k] * s->length;
    return kim_ghosts_create(*influence_out, n_lists, lengths, no_ghost_rows, &s->ghosts);
}

static void describe(const session *s, double influence, const char *file, worker_hello *hello)
{
    static const char label[] = "Model Driver Name : ";
    const char *driver = strstr(s->kim.Model_ToString(s->model), label);
    const char *at = driver ? driver + strlen(label) : "";
    const int length = (int)strcspn(at, "\n");
    base_format(hello->text, sizeof hello->text, "KIM model%s%.*s, influence distance %.4g Å, %s", length > 0 ? " of " : "",
                length, at, influence, file);
}

static mlff_status open_model(const char *name, void **session_out, worker_hello *hello)
{
    static session s;
    mlff_status status = MLFF_OK;
    const kim_library *kim = &s.kim;
    char file[128], library[PATH_MAX];
    double influence;
    int accepted;

    s.name = name;
    setenv("MLFF_DEVICE", "cpu", 0); // of models that mlff kim installed: workers do not share a GPU unless told to
    MLFF_TRY(kim_library_open(&s.kim, file, sizeof file));
    MLFF_TRY(find_model(kim, name, library));
    MLFF_TRY(hash_folder(library, name, hello->hash));
    if (kim->Model_Create(kim->Numbering_FromString("zeroBased"), kim->LengthUnit_FromString("A"),
                          kim->EnergyUnit_FromString("eV"), kim->ChargeUnit_FromString("e"), kim->TemperatureUnit_FromString("K"),
                          kim->TimeUnit_FromString("ps"), name, &accepted, &s.model))
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "kim:%s: the model cannot be opened: %s", name, kim_library_problem());
    worker_limit_threads(); // of what came with the model
    MLFF_TRY(read_units(&s));
    MLFF_TRY(read_elements(&s, hello));
    MLFF_TRY(open_ghosts(&s, &influence));
    MLFF_TRY(prepare_arguments(&s));
    describe(&s, influence, file, hello);
    *session_out = &s;
done:
    return status;
}

// ---- computing

static double volume(const double c[9])
{
    return fabs(c[0] * (c[4] * c[8] - c[5] * c[7]) - c[1] * (c[3] * c[8] - c[5] * c[6]) + c[2] * (c[3] * c[7] - c[4] * c[6]));
}

static mlff_status reserve(session *s, size_t n)
{
    mlff_status status = base_grow(&s->particle_codes, &s->codes_capacity, n, sizeof *s->particle_codes, "particles");
    if (status == MLFF_OK) status = base_grow(&s->coordinates, &s->coordinates_capacity, 3 * n, sizeof(double), "particles");
    return status == MLFF_OK ? base_grow(&s->forces, &s->forces_capacity, 3 * n, sizeof(double), "particles") : status;
}

// From the model's particles to the structure's atoms, in Å and eV.
static void take_results(const session *s, const worker_request *request, const int *owner, const double *positions, int n,
                         worker_reply *reply, double *forces)
{
    static const int first[6] = {0, 1, 2, 1, 0, 0}, second[6] = {0, 1, 2, 2, 2, 1}; // xx yy zz yz xz xy
    const double force_unit = s->energy / s->length;
    double virial[9] = {0};
    reply->energy *= s->energy;
    for (int i = 0; i < n; i++)
        for (int a = 0; a < 3; a++) {
            const double force = s->forces[3 * i + a] * force_unit;
            forces[3 * owner[i] + a] += force;
            for (int b = 0; b < 3; b++) virial[3 * a + b] += force * positions[3 * i + b];
        }
    if (!request->periodic[0] || !request->periodic[1] || !request->periodic[2]) return;
    for (int k = 0; k < 6; k++)
        reply->stress[k] = -(virial[3 * first[k] + second[k]] + virial[3 * second[k] + first[k]]) / (2 * volume(request->cell));
}

static mlff_status compute(void *context, const worker_request *request, const int32_t *species, double *positions,
                           worker_reply *reply, double *forces)
{
    session *s = context;
    const int *owner, *contributing;
    const double *particles;
    int complete = 0;

    mlff_status status = kim_ghosts_update(s->ghosts, request, species, positions);
    if (status != MLFF_OK) return status;
    const int n = kim_ghosts_get(s->ghosts, &owner, &contributing, &particles);
    if ((status = reserve(s, (size_t)n)) != MLFF_OK) return status;
    for (int i = 0; i < n; i++) s->particle_codes[i] = s->codes[species[owner[i]]];
    for (size_t k = 0; k < 3 * (size_t)n; k++) s->coordinates[k] = particles[k] / s->length;
    memset(s->forces, 0, 3 * (size_t)n * sizeof *s->forces);
    reply->energy = 0;
    kim_library_problem(); // of this structure from here on
    if (!set_arguments(s, &n, contributing, &reply->energy))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "kim:%s: %s", s->name, kim_library_problem());
    s->kim.ComputeArguments_AreAllRequiredArgumentsAndCallbacksPresent(s->arguments, &complete);
    if (!complete) return mlff_fail(MLFF_ERR_UNSUPPORTED, "kim:%s: it needs more than atoms and neighbor lists", s->name);
    if (s->kim.Model_Compute(s->model, s->arguments))
        return mlff_fail(MLFF_ERR_VALUE, "kim:%s: %s", s->name, kim_library_problem());
    take_results(s, request, owner, particles, n, reply, forces);
    return MLFF_OK;
}

const worker_kind worker_kim = {
    .name = "kim", .hint = "the model may crash; does LAMMPS run it?", .open = open_model, .compute = compute};
