// SPDX-License-Identifier: MIT
// fuzz_compute.c: frames of any text, computed with small models in float32 and float64: an error, or finite results that agree
// unless the warning about float32 was given.
#include <math.h>

#include "atoms/atoms.h"
#include "fuzz/fuzz_file.h"
#include "mlff.h"

enum { MODELS = 3, MOST_ATOMS = 40 };
static mlff_evaluator *evaluators[MODELS][2];
static bool warned;

static void remember(void *context, const char *text)
{
    (void)context;
    warned |= strstr(text, "float32") != NULL;
}

static void create_evaluators(void)
{
    static const mlff_setting one_layer[] = {
        {"n_features", "8"}, {"n_layers", "1"}, {"n_radial", "4"}, {"elements", "H,C,O"}, {0}};
    static const mlff_setting two_layers[] = {{"n_features", "4"}, {"n_layers", "2"},     {"n_radial", "3"},
                                              {"cutoff", "3"},     {"elements", "H,C,O"}, {0}};
    static const mlff_setting ani[] = {{"n_members", "1"}, {"hidden", "4,4,4"}, {"elements", "H,C,O"}, {0}};
    const mlff_setting *const settings[MODELS] = {one_layer, two_layers, ani};
    for (int m = 0; m < MODELS; m++) {
        mlff_model *model = NULL;
        fuzz_demand(mlff_model_create(m < 2 ? "painn" : "ani", settings[m], &model) == MLFF_OK, "a model can be created");
        for (int k = 0; k < 2; k++) {
            mlff_evaluator_options options = mlff_evaluator_options_default();
            options.n_threads = 1;
            options.precision = k ? MLFF_FLOAT64 : MLFF_FLOAT32;
            fuzz_demand(mlff_evaluator_create(model, &options, &evaluators[m][k]) == MLFF_OK, "an evaluator can be created");
        }
    }
    mlff_warning_handler_set(remember, NULL);
}

// Thin or very skewed cells are legal and take as long as the images they reach, or their triples of neighbors: some 1e10 where an
// atom has 1e5. Lengths of partly periodic cells, distances of the planes of others.
static bool is_short(const mlff_system *system)
{
    double images = system->n_atoms, volume = 0;
    const bool bulk = system->periodic[0] && system->periodic[1] && system->periodic[2];
    for (int k = 0; k < 3; k++) {
        const double *a = system->cell + 3 * k, *b = system->cell + 3 * ((k + 1) % 3), *c = system->cell + 3 * ((k + 2) % 3);
        const double area[3] = {b[1] * c[2] - b[2] * c[1], b[2] * c[0] - b[0] * c[2], b[0] * c[1] - b[1] * c[0]};
        const double *u = bulk ? area : a;
        const double length = sqrt(u[0] * u[0] + u[1] * u[1] + u[2] * u[2]);
        volume = fabs(a[0] * area[0] + a[1] * area[1] + a[2] * area[2]);
        if (system->periodic[k]) images *= 1 + 10 / (bulk ? volume / length : length);
    }
    return images < 20000 && (!bulk || system->n_atoms * 524 < 3000 * volume); // 4/3 π 5³ Å³
}

static void compute(const mlff_system *system)
{
    int32_t first_atom[2];
    mlff_batch batch;
    double forces[2][3 * MOST_ATOMS], energy[2], stress[6];
    mlff_batch_from_system(system, first_atom, &batch);
    if (!is_short(system)) return;
    for (int m = 0; m < MODELS; m++) {
        mlff_status status[2];
        for (int k = 0; k < 2; k++) {
            const mlff_results results = {.energies = &energy[k], .forces = forces[k], .stresses = stress};
            status[k] = mlff_evaluator_compute(evaluators[m][k], &batch, &results);
            fuzz_demand_text(status[k]);
            if (status[k] != MLFF_OK) continue;
            fuzz_demand(isfinite(energy[k]), "an energy is finite");
            for (int i = 0; i < 3 * system->n_atoms; i++) fuzz_demand(isfinite(forces[k][i]), "forces are finite");
        }
        if (status[0] != MLFF_OK || status[1] != MLFF_OK || warned) continue;
        // 1e-3 of the sum of energies: some 1e4 roundings of float32.
        const double scale = fmax(1, fmax(fabs(energy[0]), fabs(energy[1])));
        fuzz_demand(fabs(energy[0] - energy[1]) <= 1e-3 * scale * system->n_atoms, "float32 and float64 agree");
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    mlff_reader *reader = NULL;
    if (!evaluators[0][0]) create_evaluators();
    if (length > 4096) return 0;
    mlff_status status = atoms_reader_open_bytes("file", bytes, length, &reader);
    for (int frame = 0; status == MLFF_OK && frame < 4; frame++) {
        mlff_system *system = NULL;
        status = mlff_reader_next(reader, &system);
        if (!system) break;
        if (system->n_atoms <= MOST_ATOMS) compute(system);
        mlff_system_destroy(system);
    }
    mlff_reader_destroy(reader);
    return 0;
}
