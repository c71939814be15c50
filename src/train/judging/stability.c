// SPDX-License-Identifier: MIT
// stability.c: bars of a verdict that molecular dynamics give.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "analysis.h"
#include "atoms/analysis/spectrum.h"
#include "atoms/elements/covalent.h"
#include "atoms/images.h"
#include "model/evaluator/evaluator.h"
#include "verdict_kept.h"
#include "verdict_trajectory.h"

// ---- conservation of energy -----------------------------------------------------------------------------------------

static mlff_status take_energy(void *context, int64_t k, const mlff_system *system, const mlff_dynamics_state *state)
{
    (void)system;
    ((double *)context)[k] = state->conserved_energy;
    return MLFF_OK;
}

// How many times as long as asked for a run may become. Steps of small systems are short, and errors of their energy an atom larger.
static int64_t longest(int n_atoms)
{
    return n_atoms >= 64 ? 4 : n_atoms <= 4 ? 64 : 256 / n_atoms;
}

// An interval that holds the limit says nothing. The run is then made longer.
mlff_status verdict_nve(const verdict_run *run)
{
    mlff_status status = MLFF_OK;
    const mlff_verdict_options *o = &run->verdict->options;
    const int64_t n = trajectory_samples(run, o->nve_ps);
    const double sample_ps = trajectory_length(run, 1), per_atom = 1.0 / (run->start->n_atoms * sample_ps);
    trajectory t = {0};
    double *energies = NULL;
    size_t capacity = 0;
    analysis_slope drift = {NAN, NAN, false};
    int64_t done = 0, part = 0;
    MLFF_TRY(trajectory_begin(run, &run->student, MLFF_LANGEVIN, o->temperature_kelvin, o->seed, "NVE: equilibration", &t));
    status = trajectory_sample(run, &t, trajectory_samples(run, fmin(1.0, 0.1 * o->nve_ps)), NULL, NULL, &part);
    if (status == MLFF_OK) {
        MLFF_TRY(trajectory_begin_dynamics(run, &run->student, MLFF_NVE, o->temperature_kelvin, o->seed, &t));
        t.what = "NVE";
    }
    for (int64_t end = n; status == MLFF_OK && !drift.decided && end <= longest(run->start->n_atoms) * n; end *= 2) {
        MLFF_TRY(base_grow(&energies, &capacity, (size_t)end, sizeof *energies, "energies"));
        status = trajectory_sample(run, &t, end - done, take_energy, energies + done, &part);
        done += part;
        drift = analysis_drift(energies, done, o->max_drift / per_atom);
    }
    if (status != MLFF_OK && !verdict_of_structure(status)) goto done;
    const double slope = 1e3 * fabs(drift.slope) * per_atom, half = 1e3 * drift.half * per_atom,
                 ran_ps = trajectory_length(run, done);
    mlff_bar *bar = verdict_add(run->verdict, "stability.nve", "meV/atom/ps", slope, half, 1e3 * o->max_drift, 0);
    if (status != MLFF_OK) {
        bar->state = MLFF_BAR_FAILED;
        verdict_say(bar, "the run ended after %.2f ps: %s", ran_ps, mlff_last_error());
    } else {
        if (!drift.decided) bar->state = MLFF_BAR_NOT_MEASURED;
        char interval[40] = "";
        if (isfinite(half)) base_format(interval, sizeof interval, " (± %.2g meV/atom/ps, 99 %%)", half);
        verdict_say(bar, "slope of the total energy%s over %g ps of NVE at %g K, timestep %g fs%s", interval, ran_ps,
                    o->temperature_kelvin, o->timestep_fs, drift.decided ? "" : "; too short to tell: a longer run decides");
    }
    status = MLFF_OK;
done:
    trajectory_free(&t);
    base_free(energies);
    return status;
}

// ---- bonds at high temperature --------------------------------------------------------------------------------------

#define BOND_CHANGE 0.5 // Å
// Of the sum of covalent radii; no structure that is sampled has closer atoms than 0.55.
#define CLOSEST_CONTACT 0.55
#define FARTHEST_CONTACT 1.6

typedef struct bond_watch {
    bond_list bonds;
    double worst;             // Å
    double closest, farthest; // contacts
    char first[120];
    double timestep_fs;
} bond_watch;

// What is no longer as a bond or a contact must be; empty where all are.
static void find_broken(bond_watch *watch, const mlff_system *system, char *text, size_t size)
{
    double stretch;
    const int bond = bond_list_worst(&watch->bonds, system, &stretch);
    const contact_range contacts = bond_list_contacts(&watch->bonds, system);
    const int *z = system->species;
    watch->worst = fmax(watch->worst, stretch);
    watch->closest = fmin(watch->closest, contacts.closest);
    watch->farthest = fmax(watch->farthest, contacts.farthest);
    text[0] = 0;
    if (bond >= 0 && stretch > BOND_CHANGE) {
        const int a = watch->bonds.atoms[bond][0], b = watch->bonds.atoms[bond][1];
        base_format(text, size, "bond %s%d-%s%d off by %.2f Å", mlff_element_symbol(z[a]), a, mlff_element_symbol(z[b]), b,
                    stretch);
    } else if (contacts.closest < CLOSEST_CONTACT) {
        const int a = contacts.pair[0], b = contacts.pair[1];
        base_format(text, size, "%s%d and %s%d at %.2f of the sum of their covalent radii", mlff_element_symbol(z[a]), a,
                    mlff_element_symbol(z[b]), b, contacts.closest);
    } else if (contacts.farthest > FARTHEST_CONTACT) {
        base_format(text, size, "%s%d at %.2f of the sum of covalent radii from the nearest atom",
                    mlff_element_symbol(z[contacts.alone]), contacts.alone, contacts.farthest);
    }
}

static mlff_status watch_bonds(void *context, int64_t k, const mlff_system *system, const mlff_dynamics_state *state)
{
    bond_watch *watch = context;
    char broken[96];
    (void)state;
    find_broken(watch, system, broken, sizeof broken);
    if (!broken[0]) return MLFF_OK;
    base_format(watch->first, sizeof watch->first, "%s after %.2f ps", broken,
                (double)(k + 1) * TRAJECTORY_EVERY * watch->timestep_fs * 1e-3);
    return mlff_fail(MLFF_ERR_UNSTABLE, "%s", watch->first);
}

// Metals and noble gases alone: atoms that are apart need not be bonded.
static bool may_be_apart(const mlff_system *system)
{
    for (int i = 0; i < system->n_atoms; i++) {
        const int z = system->species[i];
        const bool is_noble = z == 2 || z == 10 || z == 18 || z == 36 || z == 54 || z == 86;
        if (!is_noble && !element_is_metal(z)) return false;
    }
    return true;
}

mlff_status verdict_hot(const verdict_run *run)
{
    mlff_status status = MLFF_OK;
    const mlff_verdict_options *o = &run->verdict->options;
    bond_watch watch = {.timestep_fs = o->timestep_fs, .closest = INFINITY};
    trajectory t = {0};
    const int64_t n = trajectory_samples(run, o->hot_ps);
    const double hot_ps = trajectory_length(run, n);
    int n_good = 0;
    char reason[160] = "", contacts[160] = "", bonds[96];
    MLFF_TRY(bond_list_create(run->start, &watch.bonds));
    if (watch.bonds.n == 0 && watch.bonds.n_in_contact == 0 && run->start->n_atoms > 1 && !may_be_apart(run->start)) {
        verdict_say(verdict_add(run->verdict, "stability.hot", "runs", NAN, NAN, o->hot_runs, 1),
                    "no two atoms are bonded to begin with (nearer than 1.25 of the sum of their covalent radii): name a relaxed "
                    "structure, with positions in Å");
        goto done;
    }
    for (int k = 0; k < o->hot_runs; k++) {
        int64_t done;
        char what[64];
        base_format(what, sizeof what, "%g K, run %d of %d", o->hot_kelvin, k + 1, o->hot_runs);
        MLFF_TRY(trajectory_begin(run, &run->student, MLFF_LANGEVIN, o->hot_kelvin, o->seed + 1000 + (uint64_t)k, what, &t));
        status = trajectory_sample(run, &t, n, watch_bonds, &watch, &done);
        if (status != MLFF_OK && !verdict_of_structure(status)) goto done;
        n_good += status == MLFF_OK;
        if (status != MLFF_OK && !reason[0]) snprintf(reason, sizeof reason, "run %d: %.140s", k, mlff_last_error());
        trajectory_free(&t);
    }
    status = MLFF_OK;
    mlff_bar *bar = verdict_add(run->verdict, "stability.hot", "runs", n_good, NAN, o->hot_runs, 1);
    if (watch.bonds.n_in_contact > 0)
        base_format(contacts, sizeof contacts,
                    "; %d atom%s in contact with metals, nearest ones at %.2f to %.2f of the sum of covalent radii (%.2f to %.2f "
                    "allowed)",
                    watch.bonds.n_in_contact, base_plural(watch.bonds.n_in_contact), watch.closest, watch.farthest,
                    CLOSEST_CONTACT, FARTHEST_CONTACT);
    if (watch.bonds.n > 0)
        base_format(bonds, sizeof bonds, "%d bond%s, largest change of a length %.2f Å (%.2f allowed)", watch.bonds.n,
                    base_plural(watch.bonds.n), watch.worst, BOND_CHANGE);
    else
        base_format(bonds, sizeof bonds, "no bonds%s", contacts[0] ? "" : ", so that explosions alone are judged");
    if (reason[0])
        verdict_say(bar, "%d of %d run%s of %g ps at %g K kept every bond%s; %s", n_good, o->hot_runs, base_plural(o->hot_runs),
                    hot_ps, o->hot_kelvin, watch.bonds.n_in_contact > 0 ? " and contact" : "", reason);
    else
        verdict_say(bar, "%d run%s of %g ps at %g K; %s%s", o->hot_runs, base_plural(o->hot_runs), hot_ps, o->hot_kelvin, bonds,
                    contacts);
done:
    trajectory_free(&t);
    bond_list_free(&watch.bonds);
    return status;
}

// ---- compressed pairs -----------------------------------------------------------------------------------------------

// Of each pair of elements the closest pair of atoms.
typedef struct closest_pair {
    int a, b;
    double distance, from_a[3]; // Å, to the nearest image of b
} closest_pair;

static int find_closest(const mlff_system *system, closest_pair *pairs, int most)
{
    atoms_images images;
    int n = 0;
    atoms_images_make(system, &images);
    for (int i = 0; i < system->n_atoms; i++)
        for (int j = i + 1; j < system->n_atoms; j++) {
            closest_pair one = {.a = i, .b = j};
            for (int c = 0; c < 3; c++) one.from_a[c] = system->positions[3 * j + c] - system->positions[3 * i + c];
            atoms_nearest_image(&images, one.from_a);
            one.distance = sqrt(one.from_a[0] * one.from_a[0] + one.from_a[1] * one.from_a[1] + one.from_a[2] * one.from_a[2]);
            int low = system->species[i], high = system->species[j], k = 0;
            if (low > high) low = system->species[j], high = system->species[i];
            for (; k < n; k++) {
                int p = system->species[pairs[k].a], q = system->species[pairs[k].b];
                if ((p == low && q == high) || (p == high && q == low)) break;
            }
            if (k == most) continue;
            if (k == n) pairs[n++] = one;
            if (one.distance < pairs[k].distance) pairs[k] = one;
        }
    return n;
}

// Energy, eV, and the force that pushes the pair apart, eV/Å, with atom b moved along their line to `distance` from a.
static mlff_status press(const verdict_run *run, mlff_system *system, const closest_pair *pair, double distance, double *forces,
                         double *energy, double *push_out)
{
    double *b = system->positions + 3 * (size_t)pair->b, u[3];
    const double before[3] = {b[0], b[1], b[2]};
    for (int c = 0; c < 3; c++) u[c] = pair->from_a[c] / pair->distance;
    for (int c = 0; c < 3; c++) b[c] += u[c] * (distance - pair->distance);
    mlff_status status = run->student.forces(run->student.context, system, energy, forces);
    const double *f = forces + 3 * (size_t)pair->b;
    *push_out = f[0] * u[0] + f[1] * u[1] + f[2] * u[2];
    for (int c = 0; c < 3; c++) b[c] = before[c];
    return status;
}

typedef struct barrier {
    double height;  // eV above the start, before the pair attracts, or at the end of the path
    double attract; // Å, where it attracts; 0: nowhere
    double depth;   // eV below the start that the energy falls to behind there; INFINITY where it is not finite
} barrier;

// From the pair's own distance to half the sum of its covalent radii. Attraction counts below 0.8 of the sum, and of a triple bond, which
// is as short as that, below 0.9 of its length.
static mlff_status find_barrier(const verdict_run *run, mlff_system *system, const closest_pair *pair, double *forces,
                                barrier *barrier_out)
{
    static const double STEP = 0.02; // Å
    const double sum = covalent_radius(system->species[pair->a]) + covalent_radius(system->species[pair->b]);
    const int n = (int)fmax(1, ceil((pair->distance - 0.5 * sum) / STEP));
    double start = 0;
    *barrier_out = (barrier){0};
    for (int k = 0; k <= n; k++) {
        const double distance = fmin(pair->distance, pair->distance + (0.5 * sum - pair->distance) * k / n);
        double energy, push;
        const mlff_status status = press(run, system, pair, distance, forces, &energy, &push);
        if (status != MLFF_OK && (k == 0 || !verdict_of_structure(status))) return status;
        if (k == 0) start = energy;
        if (barrier_out->attract == 0 && distance < fmin(0.8 * sum, 0.9 * pair->distance) && (status != MLFF_OK || !(push > 0)))
            barrier_out->attract = distance;
        if (barrier_out->attract > 0)
            barrier_out->depth = fmax(barrier_out->depth, status == MLFF_OK ? start - energy : INFINITY);
        else if (status == MLFF_OK)
            barrier_out->height = fmax(barrier_out->height, energy - start);
    }
    return MLFF_OK;
}

enum { MOST_PAIRS = 64, CORE_STRUCTURES = 16, LARGE_STRUCTURES = 4 };

// Over all structures, of each pair of elements the lowest barrier, and the deepest fall behind it.
typedef struct core_search {
    int n_structures, n_pairs; // of elements
    int n_failed;              // displaced structures for which the student has no finite result
    char problem[160];         // of the first of these
    closest_pair pairs[MOST_PAIRS];
    barrier lowest[MOST_PAIRS];
    bool attracts[MOST_PAIRS]; // in any of them
} core_search;

static bool is_pressed(const mlff_system *system, const closest_pair *pair)
{
    return pair->distance <= 0.5 * (covalent_radius(system->species[pair->a]) + covalent_radius(system->species[pair->b]));
}

// The pairs are found in the order of the atoms, so that pair k is of the same elements in each structure.
static mlff_status search_structure(const verdict_run *run, mlff_system *system, double *forces, core_search *s)
{
    closest_pair pairs[MOST_PAIRS];
    const int n = find_closest(system, pairs, MOST_PAIRS);
    if (s->n_structures == 0) {
        s->n_pairs = n;
        memcpy(s->pairs, pairs, sizeof pairs);
    }
    for (int k = 0; k < n; k++) {
        barrier b;
        if (is_pressed(system, &pairs[k])) continue;
        const mlff_status status = find_barrier(run, system, &pairs[k], forces, &b);
        if (status != MLFF_OK) return status;
        const double depth = fmax(b.depth, s->n_structures > 0 ? s->lowest[k].depth : 0);
        s->attracts[k] = s->attracts[k] || b.attract > 0;
        if (s->n_structures == 0 || b.height < s->lowest[k].height) s->lowest[k] = b;
        s->lowest[k].depth = depth;
    }
    s->n_structures++;
    return MLFF_OK;
}

static mlff_status search_structures(const verdict_run *run, core_search *s)
{
    mlff_status status = MLFF_OK;
    const mlff_verdict_options *o = &run->verdict->options;
    const int n = run->start->n_atoms <= 128 ? CORE_STRUCTURES : LARGE_STRUCTURES;
    mlff_system *system = NULL;
    mlff_vibrator *vibrator = NULL;
    double *forces = base_alloc(3 * (size_t)run->start->n_atoms, sizeof *forces, "forces");
    const bool expected = run->evaluator && evaluator_expect_magnitudes(run->evaluator, true); // none: a field of the caller's
    if (!forces) MLFF_TRY(MLFF_ERR_MEMORY);
    MLFF_TRY(mlff_system_copy(run->start, &system));
    for (int k = 0; k < n; k++) {
        MLFF_TRY(verdict_tell(run, "compressed pairs", (double)k / n));
        if (k == 1) {
            status = mlff_vibrator_create(run->start, &vibrator);
            if (status == MLFF_ERR_VALUE) break; // two atoms on one point
            MLFF_TRY(status);
        }
        if (k > 0) MLFF_TRY(mlff_vibrator_displace(vibrator, o->hot_kelvin, o->seed + 3000 + (uint64_t)k, system));
        status = search_structure(run, system, forces, s);
        if (k == 0 || !verdict_of_structure(status)) MLFF_TRY(status);
        if (status != MLFF_OK && s->n_failed++ == 0) snprintf(s->problem, sizeof s->problem, "%s", mlff_last_error());
    }
    status = MLFF_OK;
done:
    if (run->evaluator) evaluator_expect_magnitudes(run->evaluator, expected);
    mlff_vibrator_destroy(vibrator);
    mlff_system_destroy(system);
    base_free(forces);
    return status;
}

// The names of a pair's elements: "O-H".
static const char *name_pair(const mlff_system *system, const closest_pair *pair, char name[16])
{
    snprintf(name, 16, "%s-%s", mlff_element_symbol(system->species[pair->a]), mlff_element_symbol(system->species[pair->b]));
    return name;
}

static void tell_core(mlff_bar *bar, const mlff_system *system, const core_search *s, int lowest, int deepest)
{
    char where[80] = "", hole[120] = "", pair[16];
    int n_repel = 0;
    for (int k = 0; k < s->n_pairs; k++) n_repel += !s->attracts[k];
    const barrier *low = &s->lowest[lowest];
    const double depth = s->lowest[deepest].depth;
    if (low->attract > 0) base_format(where, sizeof where, ", which attracts from %.2f Å on", low->attract);
    if (isinf(depth))
        base_format(hole, sizeof hole, "; closer, the energy of %s is not finite", name_pair(system, &s->pairs[deepest], pair));
    else if (depth > 0)
        base_format(hole, sizeof hole, "; closer, the energy of %s falls %.3g eV below the start",
                    name_pair(system, &s->pairs[deepest], pair), depth);
    verdict_say(bar,
                "%d of %d pair%s of elements repel%s down to half the sum of their covalent radii in %d structure%s; lowest: "
                "%s%s%s",
                n_repel, s->n_pairs, base_plural(s->n_pairs), n_repel == 1 ? "s" : "", s->n_structures,
                base_plural(s->n_structures), name_pair(system, &s->pairs[lowest], pair), where, hole);
}

// The system as it is, and displaced as at the high temperature: of one structure alone, the result would depend on which it is.
mlff_status verdict_core(const verdict_run *run)
{
    mlff_status status = MLFF_OK;
    const double least = 2; // eV: 46 kT at 500 K and 23 kT at 1000 K, 1e-3 passages a microsecond at 1e13 attempts a second
    core_search s = {0};
    int lowest = 0, deepest = 0, pressed = -1;
    char pair[16];
    MLFF_TRY(search_structures(run, &s));
    for (int k = 0; k < s.n_pairs; k++) {
        if (s.lowest[k].height < s.lowest[lowest].height) lowest = k;
        if (s.lowest[k].depth > s.lowest[deepest].depth) deepest = k;
        if (is_pressed(run->start, &s.pairs[k])) pressed = k;
    }
    mlff_bar *bar =
        verdict_add(run->verdict, "core", "eV", s.n_pairs && pressed < 0 ? s.lowest[lowest].height : NAN, NAN, least, 1);
    if (s.n_pairs == 0)
        verdict_say(bar, "one atom has no pair to press; name a larger system");
    else if (pressed >= 0)
        verdict_say(bar, "%s are %.2f Å apart to begin with, half the sum of their covalent radii or less; name a relaxed system",
                    name_pair(run->start, &s.pairs[pressed], pair), s.pairs[pressed].distance);
    else
        tell_core(bar, run->start, &s, lowest, deepest);
    if (s.n_failed > 0) {
        bar->value = NAN;
        bar->state = MLFF_BAR_FAILED;
        verdict_say(bar, "the student fails at %d structure%s of %d displaced as at %g K: %s", s.n_failed,
                    base_plural(s.n_failed), s.n_failed + s.n_structures - 1, run->verdict->options.hot_kelvin, s.problem);
    }
done:
    return status;
}

// ---- beside the teacher ---------------------------------------------------------------------------------------------

enum { BINS = 200, LAGS = 512, LEAST_LAGS = 16, RUNS = VERDICT_RUNS / 2 }; // RUNS: by each of student and teacher
typedef struct observed {
    distance_histogram distances;
    double *velocities;                   // [n][3 n_atoms]
    double spectrum[LAGS], spectrum_step; // 1/cm
} observed;

static mlff_status observe(void *context, int64_t k, const mlff_system *system, const mlff_dynamics_state *state)
{
    observed *to = context;
    const size_t width = 3 * (size_t)system->n_atoms;
    (void)state;
    distance_histogram_add(&to->distances, system);
    spectrum_velocities(system, to->velocities + (size_t)k * width);
    return MLFF_OK;
}

// Run k of the comparison: the first RUNS by the teacher, the others by the student; each has a seed of its own.
static mlff_status observe_run(const verdict_run *run, int k, int64_t n, observed *to)
{
    mlff_status status = MLFF_OK;
    const mlff_verdict_options *o = &run->verdict->options;
    const mlff_force_field *field = k < RUNS ? run->teacher : &run->student;
    trajectory t = {0};
    int64_t done;
    char what[160];
    const int lags = n / 2 < LAGS ? (int)(n / 2) : LAGS;
    snprintf(what, sizeof what, "dynamics of %.100s, run %d of %d", field->name, k % RUNS + 1, RUNS);
    MLFF_TRY(distance_histogram_create(BINS, 0.05, &to->distances));
    const verdict_values values[] = {
        {"distances", to->distances.count, BINS}, {"spectrum", to->spectrum, lags}, {"spectrum_step", &to->spectrum_step, 1}};
    const int n_values = sizeof values / sizeof *values;
    if (verdict_kept_run(run, k, values, n_values)) goto done;
    if (!(to->velocities = base_alloc((size_t)n * 3 * (size_t)run->start->n_atoms, sizeof(double), "velocities")))
        MLFF_TRY(MLFF_ERR_MEMORY);
    MLFF_TRY(trajectory_begin(run, field, MLFF_LANGEVIN, o->temperature_kelvin, o->seed + 2000 + (uint64_t)k, what, &t));
    MLFF_TRY(trajectory_sample(run, &t, n / 5 + 1, NULL, NULL, &done)); // equilibration
    MLFF_TRY(trajectory_sample(run, &t, n, observe, to, &done));
    MLFF_TRY(spectrum_of(to->velocities, n, t.system->masses, t.system->n_atoms, TRAJECTORY_EVERY * o->timestep_fs, lags,
                         to->spectrum, &to->spectrum_step));
    MLFF_TRY(verdict_keep_run(run, k, values, n_values));
done:
    trajectory_free(&t);
    base_free(to->velocities);
    to->velocities = NULL;
    return status;
}

// Sums over the runs in `first` (a bit for each) and over the others.
static void add_runs(const double *const curves[2 * RUNS], unsigned first, int n, double *first_out, double *others_out)
{
    for (int k = 0; k < n; k++) {
        first_out[k] = others_out[k] = 0;
        for (int r = 0; r < 2 * RUNS; r++) *(first >> r & 1 ? first_out + k : others_out + k) += curves[r][k];
    }
}

// A permutation test: if student and teacher are the same, their runs are as different as any two halves of all runs, and the greatest of
// the 35 differences is theirs once in 35 times. TOLERANCE is a difference too small to matter.
static mlff_status judge(const verdict_run *run, const char *name, double step, const double *const curves[2 * RUNS], int n,
                         const char *of, double run_ps)
{
    static const double TOLERANCE = 0.01;
    enum { TEACHERS = (1 << RUNS) - 1 };
    double teacher[BINS + LAGS], student[BINS + LAGS], most = 0;
    for (unsigned first = 1; first < 1u << 2 * RUNS; first += 2) { // the half with run 0
        if (__builtin_popcount(first) != RUNS || first == TEACHERS) continue;
        add_runs(curves, first, n, teacher, student);
        most = fmax(most, analysis_distance(teacher, student, n));
    }
    add_runs(curves, TEACHERS, n, teacher, student);
    verdict_say(verdict_add(run->verdict, name, "", analysis_distance(teacher, student, n), NAN, most + TOLERANCE, 0),
                "%s over %d x %g ps at %g K; the runs of both, divided in two in other ways, differ by up to %.3f", of, RUNS,
                run_ps, run->verdict->options.temperature_kelvin, most);
    return verdict_keep(run->verdict, name, step, teacher, student, n);
}

// With fewer points than LEAST_LAGS, 260 1/cm from each other at 0.5 fs a step, the stretches of C-H and C=O are one.
static mlff_status judge_spectra(const verdict_run *run, double step, const double *const spectra[2 * RUNS], int64_t n)
{
    const mlff_verdict_options *o = &run->verdict->options;
    if (n / 2 >= LEAST_LAGS)
        return judge(run, "spectrum", step, spectra, n / 2 < LAGS ? (int)(n / 2) : LAGS, "vibrational density of states",
                     trajectory_length(run, n));
    const double least = 1e-3 * 2 * LEAST_LAGS * RUNS * TRAJECTORY_EVERY * o->timestep_fs;
    verdict_say(verdict_add(run->verdict, "spectrum", "", NAN, NAN, NAN, 0),
                "of the %g ps compared, four runs of %" PRId64 " sample%s, a spectrum has %" PRId64
                " points and needs %d: compare %.3g ps or more",
                o->compare_ps, n, base_plural(n), n / 2, LEAST_LAGS, least);
    return MLFF_OK;
}

static void not_compared(const verdict_run *run, const char *reason)
{
    static const char *const names[] = {"structure", "spectrum"};
    for (int k = 0; k < 2; k++) verdict_say(verdict_add(run->verdict, names[k], "", NAN, NAN, NAN, 0), "%s", reason);
}

mlff_status verdict_compare(const verdict_run *run)
{
    mlff_status status = MLFF_OK;
    const int64_t n = trajectory_samples(run, run->verdict->options.compare_ps / RUNS);
    const double *distances[2 * RUNS], *spectra[2 * RUNS];
    observed seen[2 * RUNS];
    memset(seen, 0, sizeof seen);
    if (!run->teacher) {
        not_compared(run, "no teacher to compare with");
        return MLFF_OK;
    }
    for (int k = 0; k < 2 * RUNS; k++) {
        status = observe_run(run, k, n, &seen[k]);
        if (status != MLFF_OK && !verdict_of_structure(status)) goto done;
        if (status != MLFF_OK) {
            char reason[240];
            snprintf(reason, sizeof reason, "dynamics of %.60s failed: %.150s", k < RUNS ? run->teacher->name : run->student.name,
                     mlff_last_error());
            not_compared(run, reason);
            status = MLFF_OK;
            goto done;
        }
        distances[k] = seen[k].distances.count;
        spectra[k] = seen[k].spectrum;
    }
    MLFF_TRY(
        judge(run, "structure", 0.05, distances, BINS, "distances of all pairs of atoms up to 10 Å", trajectory_length(run, n)));
    MLFF_TRY(judge_spectra(run, seen[0].spectrum_step, spectra, n));
done:
    for (int k = 0; k < 2 * RUNS; k++) distance_histogram_free(&seen[k].distances);
    return status;
}
