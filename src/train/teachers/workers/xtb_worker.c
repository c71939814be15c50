// SPDX-License-Identifier: MIT
// xtb_worker.c: GFN2-xTB and GFN1-xTB by libxtb (C API 1.0.0, header xtb.h of libxtb 6.5), in a worker.
//
// Results do not depend on the order of structures: each begins from its own guess of the charges. (A warm start from the
// structure before saves nothing for displaced molecules: 2.05 ms a call either way for ethanol.)
//
// Forces of libxtb 6.5.1 are wrong by up to 0.2 eV/Å where two atoms have the same x, y or z to about 1e-8 Å, as in molecules that were built
// along the axes; its energies are right. So all structures are computed turned, by one rotation that no symmetry has.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "worker.h"

#define LIBRARY "libxtb.so.6"
// Of the self-consistent field, relative to xtb's default of 1: forces are then the energy's derivative to 2e-6 eV/Å (1e-5 at 1),
// for 11 % more time.
#define ACCURACY 0.1
enum { MUTED = 0, MAX_ATOMIC_NUMBER = 86 };

// ---- the library

// Functions of xtb.h; its handles are pointers.
typedef struct xtb_library {
    void *(*newEnvironment)(void);
    void (*setVerbosity)(void *environment, int verbosity);
    int (*checkEnvironment)(void *environment);
    void (*getError)(void *environment, char *text, const int *text_bytes);
    void *(*newMolecule)(void *environment, const int *n_atoms, const int *numbers, const double *positions, const double *charge,
                         const int *n_unpaired, const double *lattice, const bool *periodic);
    void (*updateMolecule)(void *environment, void *molecule, const double *positions, const double *lattice);
    void (*delMolecule)(void **molecule);
    void *(*newCalculator)(void);
    void (*delCalculator)(void **calculator);
    void (*loadGFN1xTB)(void *environment, void *molecule, void *calculator, char *file);
    void (*loadGFN2xTB)(void *environment, void *molecule, void *calculator, char *file);
    void (*setAccuracy)(void *environment, void *calculator, double accuracy);
    void *(*newResults)(void);
    void (*delResults)(void **results);
    void (*singlepoint)(void *environment, void *molecule, void *calculator, void *results);
    void (*getEnergy)(void *environment, void *results, double *energy);
    void (*getGradient)(void *environment, void *results, double *gradient);
} xtb_library;

static mlff_status library_open(xtb_library *xtb, char *file, size_t file_bytes)
{
    void *h = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!h)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "xtb: %s cannot be opened (%s); install it: apt-get install libxtb6", LIBRARY,
                         dlerror());
    const bool complete =
        worker_find(h, "xtb_newEnvironment", &xtb->newEnvironment) && worker_find(h, "xtb_setVerbosity", &xtb->setVerbosity) &&
        worker_find(h, "xtb_checkEnvironment", &xtb->checkEnvironment) && worker_find(h, "xtb_getError", &xtb->getError) &&
        worker_find(h, "xtb_newMolecule", &xtb->newMolecule) && worker_find(h, "xtb_updateMolecule", &xtb->updateMolecule) &&
        worker_find(h, "xtb_delMolecule", &xtb->delMolecule) && worker_find(h, "xtb_newCalculator", &xtb->newCalculator) &&
        worker_find(h, "xtb_delCalculator", &xtb->delCalculator) && worker_find(h, "xtb_loadGFN1xTB", &xtb->loadGFN1xTB) &&
        worker_find(h, "xtb_loadGFN2xTB", &xtb->loadGFN2xTB) && worker_find(h, "xtb_setAccuracy", &xtb->setAccuracy) &&
        worker_find(h, "xtb_newResults", &xtb->newResults) && worker_find(h, "xtb_delResults", &xtb->delResults) &&
        worker_find(h, "xtb_singlepoint", &xtb->singlepoint) && worker_find(h, "xtb_getEnergy", &xtb->getEnergy) &&
        worker_find(h, "xtb_getGradient", &xtb->getGradient);
    if (!complete)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "xtb: %s lacks functions of its C API 1.0.0; install libxtb 6.5", LIBRARY);
    worker_limit_threads(); // now those that came with it
    void *function;
    memcpy(&function, &xtb->newEnvironment, sizeof function);
    worker_library_file(function, file, file_bytes);
    return MLFF_OK;
}

// ---- computing

// MLFF_OK, or what the library says is wrong.
static mlff_status check(const xtb_library *xtb, void *environment)
{
    char text[512] = "";
    const int bytes = sizeof text;
    if (!xtb->checkEnvironment(environment)) return MLFF_OK;
    xtb->getError(environment, text, &bytes);
    text[sizeof text - 1] = 0;
    return mlff_fail(MLFF_ERR_VALUE, "xtb: %.180s", text[0] ? text : "failed without saying why");
}

// A molecule and its calculator, kept for the next structure of the same atoms: making them takes as long as the calculation of a
// small molecule.
typedef struct prepared {
    void *molecule, *calculator;
    worker_request request; // of which they are
    int *species;           // [n_atoms]
} prepared;

typedef struct session {
    xtb_library xtb;
    void *environment;
    int method;
    prepared kept;
} session;

static void forget(session *s)
{
    if (s->kept.calculator) s->xtb.delCalculator(&s->kept.calculator);
    if (s->kept.molecule) s->xtb.delMolecule(&s->kept.molecule);
    free(s->kept.species);
    s->kept = (prepared){0};
}

// The same atoms, and no cell on either side.
static bool fits(const prepared *kept, const worker_request *request, const int *species)
{
    return kept->molecule && !request->periodic[0] && !kept->request.periodic[0] && kept->request.n_atoms == request->n_atoms &&
           kept->request.n_unpaired == request->n_unpaired && kept->request.charge == request->charge &&
           memcmp(kept->species, species, (size_t)request->n_atoms * sizeof *species) == 0;
}

// Of the unit quaternion (1, √2, √3, √5)/√11.
static const double turn[9] = {-0.45454545454545459, 0.038803957324252403, 0.88987790322495586,
                               0.85191958550599423,  -0.27272727272727293, 0.44704905160624031,
                               0.26004124592718225,  0.96130852883282036,  0.090909090909090939};

// Vectors [n][3] by the rotation or, back, by its inverse.
static void turn_vectors(double *vectors, size_t n, bool back)
{
    for (size_t i = 0; i < n; i++) {
        double *v = vectors + 3 * i, old[3] = {v[0], v[1], v[2]};
        for (int r = 0; r < 3; r++) {
            v[r] = 0;
            for (int c = 0; c < 3; c++) v[r] += (back ? turn[3 * c + r] : turn[3 * r + c]) * old[c];
        }
    }
}

// Brings the kept molecule to these positions (Bohr, turned), or makes another.
static mlff_status prepare(session *s, const worker_request *request, const int *species, const double *positions)
{
    const xtb_library *xtb = &s->xtb;
    double lattice[9], charge = request->charge;
    const bool any_cell = request->periodic[0]; // all three axes repeat, or none
    bool periodic[3] = {any_cell, any_cell, any_cell};
    if (fits(&s->kept, request, species)) {
        xtb->updateMolecule(s->environment, s->kept.molecule, positions, NULL);
        return check(xtb, s->environment);
    }
    forget(s);
    for (int k = 0; k < 9; k++) lattice[k] = request->cell[k] / BASE_BOHR_ANGSTROM;
    turn_vectors(lattice, 3, false);
    s->kept.request = *request;
    if (!(s->kept.species = malloc((size_t)request->n_atoms * sizeof *species)))
        return mlff_fail(MLFF_ERR_MEMORY, "xtb: out of memory");
    memcpy(s->kept.species, species, (size_t)request->n_atoms * sizeof *species);
    s->kept.molecule = xtb->newMolecule(s->environment, &request->n_atoms, species, positions, &charge, &request->n_unpaired,
                                        any_cell ? lattice : NULL, any_cell ? periodic : NULL);
    mlff_status status = check(xtb, s->environment);
    if (status != MLFF_OK) return status;
    s->kept.calculator = xtb->newCalculator();
    (s->method == 1 ? xtb->loadGFN1xTB : xtb->loadGFN2xTB)(s->environment, s->kept.molecule, s->kept.calculator, NULL);
    if ((status = check(xtb, s->environment)) != MLFF_OK) return status;
    xtb->setAccuracy(s->environment, s->kept.calculator, ACCURACY);
    return check(xtb, s->environment);
}

static mlff_status compute(void *context, const worker_request *request, const int32_t *species, double *positions,
                           worker_reply *reply, double *forces)
{
    mlff_status status = MLFF_OK;
    session *s = context;
    const xtb_library *xtb = &s->xtb;
    void *results = NULL;

    for (size_t k = 0; k < 3 * (size_t)request->n_atoms; k++) positions[k] /= BASE_BOHR_ANGSTROM;
    turn_vectors(positions, (size_t)request->n_atoms, false);
    MLFF_TRY(prepare(s, request, species, positions));
    results = xtb->newResults();
    xtb->singlepoint(s->environment, s->kept.molecule, s->kept.calculator, results);
    MLFF_TRY(check(xtb, s->environment));
    xtb->getEnergy(s->environment, results, &reply->energy);
    xtb->getGradient(s->environment, results, forces);
    MLFF_TRY(check(xtb, s->environment));
    turn_vectors(forces, (size_t)request->n_atoms, true);
    reply->energy *= BASE_HARTREE_EV;
    for (size_t k = 0; k < 3 * (size_t)request->n_atoms; k++) forces[k] *= -BASE_HARTREE_EV / BASE_BOHR_ANGSTROM;
done:
    if (results) xtb->delResults(&results);
    if (status != MLFF_OK) forget(s); // whatever state a failure left
    return status;
}

static mlff_status open_library(const char *method, void **session_out, worker_hello *hello)
{
    static session s;
    unsigned char digest[SHA256_BYTES];
    char file[128], identity[256];

    s.method = strcmp(method, "gfn1") == 0 ? 1 : 2;
    const mlff_status status = library_open(&s.xtb, file, sizeof file);
    if (status != MLFF_OK) return status;
    s.environment = s.xtb.newEnvironment();
    s.xtb.setVerbosity(s.environment, MUTED);
    snprintf(hello->text, sizeof hello->text, "GFN%d-xTB, %s", s.method, file);
    snprintf(identity, sizeof identity, "xtb:%s %s turned", method, file);
    sha256_of(identity, strlen(identity), digest);
    sha256_text(digest, hello->hash);
    for (int z = 1; z <= MAX_ATOMIC_NUMBER; z++) hello->elements[hello->n_elements++] = (unsigned char)z;
    *session_out = &s;
    return MLFF_OK;
}

const worker_kind worker_xtb = {
    .name = "xtb", .hint = "does the command xtb work here?", .open = open_library, .compute = compute};
