// SPDX-License-Identifier: MIT
// sample.c: structures around seeds by several methods, and a choice of those that differ most.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "atoms/atoms.h"
#include "normal_modes.h"
#include "pressed_pairs.h"
#include "samples.h"
#include "walkers.h"

// Streams of random numbers, beside those of walkers (groups), probes and pressed pairs.
enum { STREAM_MODES = 0x6d6f6465, STREAM_RATTLE = 0x72617474 };

enum method { METHOD_MODES, METHOD_THERMAL, METHOD_RATTLE, METHOD_MD, METHOD_PAIRS, N_METHODS };
static const char *const method_names[N_METHODS] = {"modes", "thermal", "rattle", "md", "pairs"};
// Shares of the samples where all are asked for.
static const double method_shares[N_METHODS] = {0.25, 0.25, 0.25, 0.4, 0.1};

#define RELAXED_FORCE 0.02 // eV/Å
enum { RELAX_STEPS = 300, CHAIN_LENGTH = 10, MAX_DESCENT_STEPS = 8, CHAINS_AT_ONCE = 64 };

typedef struct sampling {
    mlff_teacher *teacher;
    mlff_sample_options options;
    bool asked[N_METHODS];
    mlff_samples *seeds; // relaxed copies
    mlff_samples *candidates;
    int64_t next_group, n_strained;
    mlff_sample_progress progress;
    int64_t start_ns;
} sampling;

mlff_sample_options mlff_sample_options_default(void)
{
    return (mlff_sample_options){.struct_size = sizeof(mlff_sample_options),
                                 .n_samples = 1000,
                                 .temperatures = {300, 600, 1000},
                                 .n_temperatures = 3,
                                 .timestep_fs = 1,
                                 .friction_per_fs = 0.02,
                                 .interval_fs = 25,
                                 .rattle_angstrom = 0.15,
                                 .closest = 0.55,
                                 .oversample = 2,
                                 .strain = 0.03,
                                 .relax = 1};
}

// ---- options

static mlff_status parse_methods(const char *list, bool asked[N_METHODS])
{
    for (const char *at = list; *at;) {
        const size_t length = strcspn(at, ",");
        int found = -1;
        for (int m = 0; m < N_METHODS; m++)
            if (strlen(method_names[m]) == length && strncmp(method_names[m], at, length) == 0) found = m;
        if (found < 0)
            return mlff_fail(MLFF_ERR_USAGE,
                             "'%.*s' is not a method of sampling; choose from modes, thermal, rattle, md and pairs", (int)length,
                             at);
        asked[found] = true;
        at += length + (at[length] == ',');
    }
    return MLFF_OK;
}

static mlff_status check_options(sampling *s)
{
    const mlff_sample_options *o = &s->options;
    if (o->n_samples < 1) return mlff_fail(MLFF_ERR_USAGE, "%" PRId64 " samples; give 1 or more", o->n_samples);
    if (o->n_temperatures < 1 || o->n_temperatures > MLFF_SAMPLE_TEMPERATURES)
        return mlff_fail(MLFF_ERR_USAGE, "%d temperatures; give 1 to %d", o->n_temperatures, MLFF_SAMPLE_TEMPERATURES);
    for (int t = 0; t < o->n_temperatures; t++)
        if (!(o->temperatures[t] > 0 && o->temperatures[t] <= 1e5))
            return mlff_fail(MLFF_ERR_USAGE, "a temperature of %g K; give one above 0 and up to 100000", o->temperatures[t]);
    if (!(o->timestep_fs > 0 && o->timestep_fs <= 10 && o->friction_per_fs > 0 && o->interval_fs >= o->timestep_fs))
        return mlff_fail(
            MLFF_ERR_USAGE,
            "dynamics with a timestep of %g fs, a friction of %g /fs and samples each %g fs; the first must be above 0 and at "
            "most 10, the second above 0, the third at least the timestep",
            o->timestep_fs, o->friction_per_fs, o->interval_fs);
    if (!(o->rattle_angstrom > 0 && o->rattle_angstrom <= 1 && o->closest >= 0 && o->closest < 1 && o->oversample >= 1 &&
          o->oversample <= 100))
        return mlff_fail(
            MLFF_ERR_USAGE,
            "rattle of %g Å, closest %g, oversample %g; the first must be above 0 and at most 1, the second 0 or more and "
            "below 1, the third 1 to 100",
            o->rattle_angstrom, o->closest, o->oversample);
    if (!(o->strain >= 0 && o->strain <= 0.3))
        return mlff_fail(MLFF_ERR_USAGE, "a strain of %g; give one of 0 to 0.3", o->strain);
    return parse_methods(o->methods ? o->methods : "modes,rattle,md,pairs", s->asked);
}

// ---- candidates

static mlff_status report(sampling *s, const char *method)
{
    s->progress.method = method;
    s->progress.n_done = (int64_t)s->candidates->n;
    s->progress.elapsed_s = 1e-9 * (double)(base_clock_ns() - s->start_ns);
    if (s->options.callback && s->options.callback(s->options.context, &s->progress) != 0)
        return mlff_fail(MLFF_ERR_INTERRUPTED, "sampling was interrupted in %s, at %" PRId64 " of some %" PRId64 " candidates",
                         method, s->progress.n_done, s->progress.n_total);
    return MLFF_OK;
}

static mlff_status proceed(void *context)
{
    sampling *s = context;
    return report(s, s->progress.method);
}

// Takes the system, and keeps it if it is physical.
static mlff_status offer(sampling *s, mlff_system *system, const char *origin, int64_t group)
{
    double closest;
    mlff_status status = sample_closest(system, &closest);
    if (status == MLFF_OK && closest >= s->options.closest) {
        base_free(system->velocities);
        system->velocities = NULL;
        system->group = group;
        snprintf(system->config_type, sizeof system->config_type, "%s", origin);
        atoms_drop_labels(system);
        return samples_take(s->candidates, system, origin);
    }
    s->progress.n_rejected++;
    mlff_system_destroy(system);
    return status;
}

static mlff_status offer_copy(sampling *s, const mlff_system *system, const char *origin, int64_t group)
{
    mlff_system *copy;
    const mlff_status status = mlff_system_copy(system, &copy);
    return status == MLFF_OK ? offer(s, copy, origin, group) : status;
}

// The share k of n parts of a total.
static int64_t part(int64_t total, int64_t n, int64_t k)
{
    return (k + 1) * total / n - k * total / n;
}

// Every other structure, chain or trajectory has a cell of its own: the stress says how the energy changes with the cell at one size alone.
static mlff_status strain(sampling *s, int64_t k, mlff_system *system)
{
    if (k % 2 == 0 || s->options.strain == 0) return MLFF_OK;
    return sample_strain(system, s->options.strain, s->options.seed, s->n_strained++);
}

static walkers walkers_of(sampling *s)
{
    return (walkers){.teacher = s->teacher, .seed = s->options.seed, .proceed = proceed, .context = s};
}

// ---- relaxed seeds

static mlff_status relax_seeds(sampling *s, const mlff_samples *seeds)
{
    mlff_status status = MLFF_OK;
    walkers w = walkers_of(s);
    int64_t n_lost = 0;

    for (size_t k = 0; k < seeds->n; k++) {
        char name[48];
        snprintf(name, sizeof name, "seed %zu", k);
        MLFF_TRY(mlff_teacher_check(s->teacher, seeds->samples[k].system, name));
        MLFF_TRY(walkers_add(&w, seeds->samples[k].system, 0, 0));
    }
    if (s->options.relax) {
        MLFF_TRY(report(s, "relax"));
        MLFF_TRY(walkers_relax(&w, RELAXED_FORCE, RELAX_STEPS));
    }
    for (size_t k = 0; k < w.n; k++) {
        if (!w.walkers[k].alive) {
            n_lost++;
            continue;
        }
        mlff_system *copy;
        MLFF_TRY(mlff_system_copy(w.walkers[k].system, &copy));
        base_free(copy->velocities);
        copy->velocities = NULL;
        copy->group = s->next_group++;
        MLFF_TRY(samples_take(s->seeds, copy, "seed"));
    }
    if (n_lost > 0 && s->seeds->n > 0)
        base_warn("left out %" PRId64 " of %zu seed%s, at which the teacher failed while they were relaxed: %s", n_lost, seeds->n,
                  base_plural((int64_t)seeds->n), w.problem);
    if (s->seeds->n == 0)
        MLFF_FAIL(MLFF_ERR_VALUE, "no seed is left: the teacher failed at each while they were relaxed; at the first: %s",
                  w.problem);
done:
    walkers_free(&w);
    return status;
}

// ---- modes and thermal

// *found_out: whether the teacher computes all that a Hessian takes. A structure that it cannot costs the modes, not the samples.
static mlff_status find_modes(sampling *s, size_t seed, normal_modes *modes, bool *found_out)
{
    const mlff_status status = normal_modes_find(s->teacher, s->seeds->samples[seed].system, proceed, s, modes);
    *found_out = status == MLFF_OK;
    if (status == MLFF_OK || status == MLFF_ERR_MEMORY || status == MLFF_ERR_DEVICE || status == MLFF_ERR_INTERRUPTED)
        return status;
    base_warn("seed %zu has no normal modes, as the teacher cannot compute a displacement by 0.01 Å (%s): independent "
              "displacements in their place",
              seed, mlff_last_error());
    return MLFF_OK;
}

static mlff_status sample_displaced(sampling *s, size_t seed, int64_t n, bool by_modes)
{
    mlff_status status = MLFF_OK;
    const mlff_system *system = s->seeds->samples[seed].system;
    const mlff_sample_options *o = &s->options;
    normal_modes modes = {0};

    // A Hessian takes 6 N labels: not for a handful of samples.
    const bool bulk = system->periodic[0] || system->periodic[1] || system->periodic[2];
    by_modes = by_modes && !bulk && system->n_atoms <= NORMAL_MODES_MAX_ATOMS && n >= system->n_atoms;
    MLFF_TRY(report(s, by_modes ? "modes" : "thermal"));
    if (by_modes) MLFF_TRY(find_modes(s, seed, &modes, &by_modes));
    if (!by_modes) s->progress.method = "thermal";
    for (int64_t k = 0; k < n; k++) {
        char origin[SAMPLE_ORIGIN_BYTES];
        const double temperature = o->temperatures[k % o->n_temperatures];
        const uint64_t stream = ((uint64_t)STREAM_MODES << 32) + (uint64_t)s->next_group;
        mlff_system *copy;
        base_format(origin, sizeof origin, "%s %g K", by_modes ? "modes" : "thermal", temperature);
        if (by_modes) {
            MLFF_TRY(mlff_system_copy(system, &copy));
            normal_modes_displace(&modes, copy, temperature, o->seed, stream);
        } else {
            MLFF_TRY(sample_perturbed(system, temperature, o->seed, stream, &copy));
        }
        if ((status = strain(s, k / o->n_temperatures, copy)) != MLFF_OK) mlff_system_destroy(copy);
        MLFF_TRY(status);
        MLFF_TRY(offer(s, copy, origin, s->next_group++));
        if (k % 64 == 0) MLFF_TRY(proceed(s));
    }
done:
    normal_modes_free(&modes);
    return status;
}

// ---- rattle and relax

// A chain goes on from its last structure for CHAIN_LENGTH samples; each is rattled and then descends a random number of steps.
static void rattle(const sampling *s, walker *chain, uint64_t draw)
{
    const uint64_t stream = ((uint64_t)STREAM_RATTLE << 32) + (uint64_t)chain->group;
    mlff_system *system = chain->system;
    const double width = s->options.rattle_angstrom * (0.2 + 0.8 * base_random_uniform(s->options.seed, stream, draw << 24));
    for (size_t k = 0; k < 3 * (size_t)system->n_atoms; k++)
        if (!(system->fixed && system->fixed[k / 3]))
            system->positions[k] += width * base_random_normal(s->options.seed, stream, (draw << 24) + 1 + k);
}

static mlff_status run_chains(sampling *s, walkers *w, int length)
{
    mlff_status status = MLFF_OK;
    for (int link = 0; link < length && walkers_alive(w) > 0; link++) {
        for (size_t k = 0; k < w->n; k++) {
            double closest;
            if (!w->walkers[k].alive) continue;
            rattle(s, &w->walkers[k], (uint64_t)link);
            MLFF_TRY(sample_closest(w->walkers[k].system, &closest));
            w->walkers[k].alive = closest >= 0.5 * s->options.closest; // else the teacher is not asked
        }
        const int n_steps = (int)((MAX_DESCENT_STEPS + 1) * base_random_uniform(s->options.seed, STREAM_RATTLE, (uint64_t)link));
        if (n_steps > 0) MLFF_TRY(walkers_relax(w, RELAXED_FORCE, n_steps));
        for (size_t k = 0; k < w->n; k++)
            if (w->walkers[k].alive) MLFF_TRY(offer_copy(s, w->walkers[k].system, "rattle", w->walkers[k].group));
        MLFF_TRY(proceed(s));
    }
done:
    return status;
}

static mlff_status sample_rattled(sampling *s, int64_t n)
{
    mlff_status status = MLFF_OK;
    walkers w = {0};
    MLFF_TRY(report(s, "rattle"));
    const int64_t n_seeds = (int64_t)s->seeds->n, n_chains = fmax((double)((n + CHAIN_LENGTH - 1) / CHAIN_LENGTH), 1);
    for (int64_t first = 0; first < n_chains; first += CHAINS_AT_ONCE) {
        const int64_t end = first + CHAINS_AT_ONCE < n_chains ? first + CHAINS_AT_ONCE : n_chains;
        walkers_free(&w);
        w = walkers_of(s);
        for (int64_t c = first; c < end; c++) {
            MLFF_TRY(walkers_add(&w, s->seeds->samples[c % n_seeds].system, 0, s->next_group++));
            MLFF_TRY(strain(s, c / n_seeds, w.walkers[w.n - 1].system));
        }
        MLFF_TRY(run_chains(s, &w, n < CHAIN_LENGTH ? (int)n : CHAIN_LENGTH));
    }
done:
    walkers_free(&w);
    return status;
}

// ---- dynamics

// Samples of a trajectory, which is held out as a whole or not at all: 1.5 ps by default, or 6 where atoms go on around each other, as in a
// liquid.
enum { LONGEST = 60, LONGEST_IN_CELL = 240 };

static int64_t longest_trajectory(const sampling *s)
{
    for (size_t k = 0; k < s->seeds->n; k++) {
        const mlff_system *system = s->seeds->samples[k].system;
        if (system->periodic[0] || system->periodic[1] || system->periodic[2]) return LONGEST_IN_CELL;
    }
    return LONGEST;
}

// Trajectories side by side: as many of each temperature and seed that none is longer than that, and of each seed so many, unless they become short,
// that some can be held out. The number of threads is not asked: the structures must not depend on it.
static int64_t count_trajectories(const sampling *s, int64_t n)
{
    enum { FEWEST = 2, FEWEST_OF_SEED = 6 };
    const int64_t n_seeds = (int64_t)s->seeds->n, least = n_seeds * s->options.n_temperatures, longest = longest_trajectory(s);
    const int64_t is_short = longest == LONGEST_IN_CELL ? longest / 4 : longest / 3;
    int64_t wanted = least;
    while (wanted < FEWEST || wanted * longest < n) wanted += least;
    while (wanted < FEWEST_OF_SEED * n_seeds && (wanted + least) * is_short <= n) wanted += least;
    return wanted < n ? wanted : n;
}

static mlff_status sample_dynamics(sampling *s, int64_t n)
{
    mlff_status status = MLFF_OK;
    const mlff_sample_options *o = &s->options;
    walkers w = walkers_of(s);
    const int64_t n_seeds = (int64_t)s->seeds->n, n_walkers = count_trajectories(s, n);
    const int n_steps = (int)lround(o->interval_fs / o->timestep_fs);
    const bool several = n_walkers > n_seeds * o->n_temperatures; // of a seed and temperature
    uint64_t step = 0;

    MLFF_TRY(report(s, "md"));
    for (int64_t k = 0; k < n_walkers; k++) {
        const double temperature = o->temperatures[k % o->n_temperatures];
        MLFF_TRY(walkers_add(&w, s->seeds->samples[k / o->n_temperatures % n_seeds].system, temperature, s->next_group++));
        const int64_t turn = k / o->n_temperatures / n_seeds;
        MLFF_TRY(strain(s, several ? turn : k, w.walkers[w.n - 1].system));
    }
    MLFF_TRY(walkers_thermalize(&w));
    MLFF_TRY(walkers_forces(&w));
    enum { MOST_IN_VAIN = 1000 };
    const int64_t end = (int64_t)s->candidates->n + n;
    int n_in_vain = 0; // frames of each trajectory since one was taken
    while (n_in_vain < MOST_IN_VAIN && (int64_t)s->candidates->n < end && walkers_alive(&w) > 0) {
        const size_t before = s->candidates->n;
        MLFF_TRY(walkers_run(&w, n_steps, o->timestep_fs, o->friction_per_fs, &step));
        for (size_t k = 0; k < w.n && (int64_t)s->candidates->n < end; k++) {
            const walker *one = &w.walkers[k];
            char origin[SAMPLE_ORIGIN_BYTES];
            if (!one->alive) continue;
            base_format(origin, sizeof origin, "md %g K", one->temperature);
            MLFF_TRY(offer_copy(s, one->system, origin, one->group));
        }
        n_in_vain = s->candidates->n > before ? 0 : n_in_vain + 1;
        MLFF_TRY(proceed(s));
    }
    if (walkers_alive(&w) < w.n)
        base_warn("%zu of %zu %s ended early: the teacher failed or the system exploded; a lower temperature or a shorter "
                  "timestep may help",
                  w.n - walkers_alive(&w), w.n, w.n == 1 ? "trajectory" : "trajectories");
done:
    walkers_free(&w);
    return status;
}

// ---- compressed pairs

static mlff_status sample_pairs(sampling *s, size_t seed, int64_t n)
{
    mlff_status status = MLFF_OK;
    const mlff_system *system = s->seeds->samples[seed].system;
    pressed_pairs pairs = {.closest = s->options.closest, .kelvin = s->options.temperatures[0], .seed = s->options.seed};
    for (int t = 1; t < s->options.n_temperatures; t++) pairs.kelvin = fmin(pairs.kelvin, s->options.temperatures[t]);
    MLFF_TRY(pressed_pairs_open(system, &pairs));
    for (int64_t k = 0; k < n; k++) {
        mlff_system *copy;
        MLFF_TRY(pressed_pairs_make(&pairs, system, s->next_group, &copy, NULL));
        MLFF_TRY(offer(s, copy, "pairs", s->next_group++));
    }
    MLFF_TRY(report(s, "pairs"));
done:
    pressed_pairs_close(&pairs);
    return status;
}

// ---- all of them

static mlff_status sample_by(sampling *s, enum method method, int64_t n)
{
    mlff_status status = MLFF_OK;
    const int64_t n_seeds = (int64_t)s->seeds->n;
    if (n < 1) return MLFF_OK;
    if (method == METHOD_RATTLE) return sample_rattled(s, n);
    if (method == METHOD_MD) return sample_dynamics(s, n);
    for (int64_t seed = 0; seed < n_seeds; seed++) {
        if (method == METHOD_PAIRS)
            MLFF_TRY(sample_pairs(s, (size_t)seed, part(n, n_seeds, seed)));
        else
            MLFF_TRY(sample_displaced(s, (size_t)seed, part(n, n_seeds, seed), method == METHOD_MODES));
    }
done:
    return status;
}

static mlff_status make_candidates(sampling *s)
{
    mlff_status status = MLFF_OK;
    double shares = 0;
    for (int m = 0; m < N_METHODS; m++) shares += s->asked[m] ? method_shares[m] : 0;
    for (int m = 0; m < N_METHODS; m++) {
        if (!s->asked[m]) continue;
        // A structure of a trajectory takes interval/timestep calls of the teacher: no more of them than are wanted.
        const int64_t n_all = m == METHOD_MD ? s->options.n_samples : s->progress.n_total;
        const int64_t n = (int64_t)ceil((double)n_all * method_shares[m] / shares);
        MLFF_TRY(sample_by(s, (enum method)m, n));
    }
done:
    return status;
}

static mlff_status choose_candidates(sampling *s, int64_t n_wanted)
{
    mlff_status status = report(s, "select");
    if (status != MLFF_OK) return status;
    if (n_wanted < 1) {
        samples_truncate(s->candidates, 0);
        return MLFF_OK;
    }
    const int64_t n_seeds = (int64_t)s->seeds->n, n = n_seeds + (int64_t)s->candidates->n;
    if ((int64_t)s->candidates->n < n_wanted)
        base_warn("%" PRId64 " structure%s in place of %" PRId64 ": %" PRId64
                  " candidate%s rejected (atoms too close, or the teacher failed)",
                  n, base_plural(n), n_seeds + n_wanted, s->progress.n_rejected, base_plural(s->progress.n_rejected));
    return mlff_samples_select(s->candidates, n_wanted, s->seeds);
}

// Moves all of `from` behind `to`.
static mlff_status move_samples(mlff_samples *from, mlff_samples *to)
{
    if (from->n == 0) return MLFF_OK;
    mlff_status status = base_grow(&to->samples, &to->capacity, to->n + from->n, sizeof *to->samples, "samples");
    if (status != MLFF_OK) return status;
    memcpy(to->samples + to->n, from->samples, from->n * sizeof *to->samples);
    to->n += from->n;
    from->n = 0;
    return MLFF_OK;
}

// The first number that no group of the samples has.
static int64_t free_group(const mlff_samples *samples)
{
    int64_t group = 0;
    for (size_t k = 0; k < samples->n; k++)
        if (samples->samples[k].system->group >= group) group = samples->samples[k].system->group + 1;
    return group;
}

static mlff_status make_samples(sampling *s, const mlff_samples *seeds)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(relax_seeds(s, seeds));
    if ((int64_t)s->seeds->n > s->options.n_samples) MLFF_TRY(mlff_samples_select(s->seeds, s->options.n_samples, NULL));
    MLFF_TRY(make_candidates(s));
    MLFF_TRY(choose_candidates(s, s->options.n_samples - (int64_t)s->seeds->n));
done:
    return status;
}

mlff_status mlff_sample(mlff_teacher *teacher, const mlff_samples *seeds, const mlff_sample_options *given, mlff_samples *samples)
{
    mlff_status status = MLFF_OK;
    sampling s = {.teacher = teacher, .options = mlff_sample_options_default(), .start_ns = base_clock_ns()};
    char cause[1024];

    MLFF_TRY(base_take_options(__func__, "mlff_sample_options", given, sizeof s.options, &s.options));
    MLFF_TRY(check_options(&s));
    if (seeds->n == 0) MLFF_FAIL(MLFF_ERR_USAGE, "sampling needs at least one seed structure");
    MLFF_TRY(mlff_samples_create(&s.seeds));
    MLFF_TRY(mlff_samples_create(&s.candidates));
    s.next_group = free_group(samples);
    s.progress.n_total = (int64_t)ceil((double)s.options.n_samples * s.options.oversample);
    const mlff_status made = make_samples(&s, seeds);
    if (made != MLFF_OK) snprintf(cause, sizeof cause, "%s", mlff_last_error());
    // What is finished is handed out also where the rest is not.
    MLFF_TRY(move_samples(s.seeds, samples));
    MLFF_TRY(move_samples(s.candidates, samples));
    if (made != MLFF_OK) MLFF_FAIL(made, "%s", cause);
done:
    mlff_samples_destroy(s.seeds);
    mlff_samples_destroy(s.candidates);
    return status;
}
