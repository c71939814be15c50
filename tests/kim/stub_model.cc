// SPDX-License-Identifier: MIT
// stub_model.cc: a KIM portable model for test_kim_teacher.c that uses what mlff's own models do not: its own units (Bohr, Hartree)
// whatever it is asked for, numbers from 1, two neighbor lists of KIM's, one of them of ghosts too, and an influence distance of two
// cutoffs. Some elements make it fail, crash or hang.
//
//   E = Σ_i 0.1 Σ_j f(r_ij, 7) Σ_k f(r_jk, 7) + Σ_i 0.2 w_i Σ_j w_j f(r_ij, 5),   f(r, c) = (1 - (r/c)²)³ for r < c,   w: Si 1, H 2
#include <cmath>
#include <csignal>
#include <unistd.h>
#include <vector>

#include "KIM_ModelHeaders.hpp"
#include "KIM_SharedLibrarySchema.hpp"

namespace
{
constexpr double cutoffs[2] = {7, 5}, influence = 14;
constexpr int no_ghost_rows[2] = {0, 1};
enum { SILICON = 3, NEON = 5, KRYPTON = 6, HYDROGEN = 7, XENON = 8 };

double weight(int code)
{
    return code == HYDROGEN ? 2 : 1;
}

struct edge {
    double value, slope_over_r, vector[3]; // of f; from the first particle to the second
};

edge make_edge(const double *positions, int i, int j, double cutoff)
{
    edge e = {};
    double square = 0;
    for (int c = 0; c < 3; c++) {
        e.vector[c] = positions[3 * j + c] - positions[3 * i + c];
        square += e.vector[c] * e.vector[c];
    }
    const double u = 1 - square / (cutoff * cutoff);
    if (u <= 0) return e;
    e.value = u * u * u;
    e.slope_over_r = -6 * u * u / (cutoff * cutoff);
    return e;
}

void add_force(double *forces, const edge &e, int i, int j, double factor)
{
    for (int c = 0; c < 3; c++) {
        forces[3 * i + c] += factor * e.slope_over_r * e.vector[c];
        forces[3 * j + c] -= factor * e.slope_over_r * e.vector[c];
    }
}

// Neighbors of a particle, numbered from 0; a copy, for KIM's own is of the last particle that was asked for.
bool get_row(const KIM::ModelComputeArguments *arguments, int list, int particle, std::vector<int> &row)
{
    int n;
    const int *neighbors;
    if (arguments->GetNeighborList(list, particle + 1, &n, &neighbors)) return false;
    row.assign(neighbors, neighbors + n);
    for (int &neighbor : row) neighbor--;
    return true;
}

int compute(const KIM::ModelCompute *compute, const KIM::ModelComputeArguments *arguments)
{
    namespace names = KIM::COMPUTE_ARGUMENT_NAME;
    const int *n, *codes, *contributing;
    const double *positions;
    double *energy, *forces;
    std::vector<int> first, second;
    if (arguments->GetArgumentPointer(names::numberOfParticles, &n) ||
        arguments->GetArgumentPointer(names::particleSpeciesCodes, &codes) ||
        arguments->GetArgumentPointer(names::particleContributing, &contributing) ||
        arguments->GetArgumentPointer(names::coordinates, &positions) ||
        arguments->GetArgumentPointer(names::partialEnergy, &energy) ||
        arguments->GetArgumentPointer(names::partialForces, &forces))
        return 1;
    *energy = 0;
    for (int k = 0; k < 3 * *n; k++) forces[k] = 0;
    for (int i = 0; i < *n; i++) {
        if (codes[i] == NEON) {
            compute->LogEntry(KIM::LOG_VERBOSITY::error, "no parameters of neon", __LINE__, __FILE__);
            return 1;
        }
        if (codes[i] == KRYPTON) std::raise(SIGSEGV);
        if (codes[i] == XENON) pause();
        if (!contributing[i]) continue;
        if (!get_row(arguments, 0, i, first)) return 1;
        for (const int j : first) {
            const edge to_j = make_edge(positions, i, j, cutoffs[0]);
            if (!get_row(arguments, 0, j, second)) return 1;
            for (const int k : second) {
                const edge to_k = make_edge(positions, j, k, cutoffs[0]);
                *energy += 0.1 * to_j.value * to_k.value;
                add_force(forces, to_j, i, j, 0.1 * to_k.value);
                add_force(forces, to_k, j, k, 0.1 * to_j.value);
            }
        }
        if (!get_row(arguments, 1, i, first)) return 1;
        for (const int j : first) {
            const edge to_j = make_edge(positions, i, j, cutoffs[1]);
            const double factor = 0.2 * weight(codes[i]) * weight(codes[j]);
            *energy += factor * to_j.value;
            add_force(forces, to_j, i, j, factor);
        }
    }
    return 0;
}

int arguments_create(const KIM::ModelCompute *, KIM::ModelComputeArgumentsCreate *arguments)
{
    return arguments->SetArgumentSupportStatus(KIM::COMPUTE_ARGUMENT_NAME::partialEnergy, KIM::SUPPORT_STATUS::required) ||
           arguments->SetArgumentSupportStatus(KIM::COMPUTE_ARGUMENT_NAME::partialForces, KIM::SUPPORT_STATUS::required);
}

int arguments_destroy(const KIM::ModelCompute *, KIM::ModelComputeArgumentsDestroy *)
{
    return 0;
}

int destroy(KIM::ModelDestroy *)
{
    return 0;
}

template <typename F> KIM::Function *routine(F *function)
{
    return reinterpret_cast<KIM::Function *>(function);
}

int create(KIM::ModelCreate *model, KIM::LengthUnit, KIM::EnergyUnit, KIM::ChargeUnit, KIM::TemperatureUnit, KIM::TimeUnit)
{
    namespace routines = KIM::MODEL_ROUTINE_NAME;
    namespace species = KIM::SPECIES_NAME;
    const KIM::LanguageName cpp = KIM::LANGUAGE_NAME::cpp;
    model->SetInfluenceDistancePointer(&influence);
    model->SetNeighborListPointers(2, cutoffs, no_ghost_rows);
    return model->SetModelNumbering(KIM::NUMBERING::oneBased) ||
           model->SetUnits(KIM::LENGTH_UNIT::Bohr, KIM::ENERGY_UNIT::Hartree, KIM::CHARGE_UNIT::unused,
                           KIM::TEMPERATURE_UNIT::unused, KIM::TIME_UNIT::unused) ||
           model->SetSpeciesCode(species::Si, SILICON) || model->SetSpeciesCode(species::Ne, NEON) ||
           model->SetSpeciesCode(species::Kr, KRYPTON) || model->SetSpeciesCode(species::H, HYDROGEN) ||
           model->SetSpeciesCode(species::Xe, XENON) ||
           model->SetRoutinePointer(routines::ComputeArgumentsCreate, cpp, 1, routine(arguments_create)) ||
           model->SetRoutinePointer(routines::Compute, cpp, 1, routine(compute)) ||
           model->SetRoutinePointer(routines::ComputeArgumentsDestroy, cpp, 1, routine(arguments_destroy)) ||
           model->SetRoutinePointer(routines::Destroy, cpp, 1, routine(destroy));
}
} // namespace

extern "C" {
__attribute__((visibility("default"))) int kim_shared_library_schema_version = KIM_SHARED_LIBRARY_SCHEMA_VERSION;

__attribute__((visibility("default")))
KIM::SHARED_LIBRARY_SCHEMA::SharedLibrarySchemaV2 kim_shared_library_schema = {KIM::COLLECTION_ITEM_TYPE::portableModel,
                                                                               "Stub_Model",
                                                                               KIM::LANGUAGE_NAME::cpp,
                                                                               routine(create),
                                                                               nullptr, // driver
                                                                               nullptr, // specification of a simulator model
                                                                               0,       // parameter files
                                                                               nullptr,
                                                                               0, // metadata files
                                                                               nullptr};
}
