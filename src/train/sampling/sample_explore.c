// SPDX-License-Identifier: MIT
// sample_explore.c: dynamics by a student, watched: which of the frames that it meets are worth a label.
//
// The deviation of a committee at a frame is max_i sqrt(Σ_c var_m F_ic^m) over members m. Frames are looked at every interval.
// A trajectory ends at an alarm (a broken bond, a contact, a deviation above the alarm level); the frame before it is taken,
// since there the student is wrong and the structure still physical.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "samples.h"
#include "walkers.h"

#define ADAPTIVE_ALARM 5.0 // times the median deviation of the first tenth

typedef struct explored_frame {
    mlff_system *system; // NULL: not kept
    double deviation;
    double temperature;
    bool before_alarm;
} explored_frame;

typedef struct exploration {
    mlff_teacher *const *committee;
    int n_members;
    mlff_explore_options options;
    walkers w;
    explored_frame *frames; // [n_frames]
    size_t n_frames, capacity;
    size_t *last_frame; // [w.n] of each trajectory, SIZE_MAX: none
    double alarm;       // eV/Å; 0: none yet
    mlff_explore_info info;
} exploration;

mlff_explore_options mlff_explore_options_default(void)
{
    return (mlff_explore_options){.struct_size = sizeof(mlff_explore_options),
                                  .n_samples = 100,
                                  .temperatures = {300, 600, 1000},
                                  .n_temperatures = 3,
                                  .n_trajectories = 4,
                                  .duration_fs = 5000,
                                  .timestep_fs = 0.5,
                                  .friction_per_fs = 0.02,
                                  .interval_fs = 25,
                                  .longest_bond = 1.6,
                                  .closest = 0.55,
                                  .strain = 0.03};
}

static mlff_status check_options(const mlff_explore_options *o, int n_members, const mlff_samples *seeds)
{
    if (n_members < 1 || seeds->n == 0)
        return mlff_fail(MLFF_ERR_USAGE, "exploring needs a model and a seed structure; %d and %zu were given", n_members,
                         seeds->n);
    if (o->n_samples < 1 || o->n_trajectories < 1 || o->n_temperatures < 1 || o->n_temperatures > MLFF_SAMPLE_TEMPERATURES)
        return mlff_fail(MLFF_ERR_USAGE, "%" PRId64 " samples of %d trajectories at %d temperatures; give 1 or more",
                         o->n_samples, o->n_trajectories, o->n_temperatures);
    for (int t = 0; t < o->n_temperatures; t++)
        if (!(o->temperatures[t] > 0 && o->temperatures[t] <= 1e5))
            return mlff_fail(MLFF_ERR_USAGE, "a temperature of %g K; give one above 0 and up to 100000", o->temperatures[t]);
    if (!(o->timestep_fs > 0 && o->timestep_fs <= 10 && o->friction_per_fs > 0 && o->interval_fs >= o->timestep_fs &&
          o->duration_fs >= o->interval_fs))
        return mlff_fail(
            MLFF_ERR_USAGE,
            "dynamics of %g fs with a timestep of %g fs, a friction of %g /fs and frames each %g fs; the timestep must be above "
            "0 and at most 10, the friction above 0, the interval at least the timestep and at most the whole",
            o->duration_fs, o->timestep_fs, o->friction_per_fs, o->interval_fs);
    if (!(o->longest_bond > 1 && o->closest >= 0 && o->closest < 1 && o->deviation_alarm >= 0))
        return mlff_fail(MLFF_ERR_USAGE, "longest bond %g (above 1), closest %g (0 to 1), deviation alarm %g eV/Å (0 or more)",
                         o->longest_bond, o->closest, o->deviation_alarm);
    if (!(o->strain >= 0 && o->strain <= 0.3))
        return mlff_fail(MLFF_ERR_USAGE, "a strain of %g; give one of 0 to 0.3", o->strain);
    return MLFF_OK;
}

// ---- deviation

double sample_deviation(mlff_label *const *labels, int n_members, size_t structure, int n_atoms)
{
    double largest = 0;
    for (int i = 0; i < n_atoms; i++) {
        double square = 0;
        for (size_t c = 3 * (size_t)i; c < 3 * (size_t)i + 3; c++) {
            double mean = 0;
            for (int m = 0; m < n_members; m++) mean += labels[m][structure].forces[c] / n_members;
            for (int m = 0; m < n_members; m++) square += pow(labels[m][structure].forces[c] - mean, 2) / (n_members - 1);
        }
        largest = fmax(largest, square);
    }
    return sqrt(largest);
}

// Deviations of the walkers alive into their `deviation`; a teacher that is an ensemble has set its own already.
static mlff_status find_deviations(exploration *e)
{
    mlff_status status = MLFF_OK;
    const size_t n_members = (size_t)e->n_members;
    const mlff_system **systems = base_alloc(e->w.n, sizeof *systems, "structures");
    mlff_label **labels = base_alloc(n_members, sizeof *labels, "labels");
    size_t n = 0;

    if (!systems || !labels) MLFF_TRY(MLFF_ERR_MEMORY);
    for (size_t k = 0; k < e->w.n; k++)
        if (e->w.walkers[k].alive) systems[n++] = e->w.walkers[k].system;
    if (n_members < 2 || n == 0) goto done;
    for (size_t m = 0; m < n_members; m++) {
        mlff_label *made = base_alloc(n, sizeof *made, "labels");
        if (!made) MLFF_TRY(MLFF_ERR_MEMORY);
        labels[m] = made;
        MLFF_TRY(mlff_teacher_compute(e->committee[m], systems, (int)n, made));
    }
    n = 0;
    for (size_t k = 0; k < e->w.n; k++) {
        walker *one = &e->w.walkers[k];
        if (!one->alive) continue;
        bool all = true;
        for (size_t m = 0; m < n_members; m++) all = all && labels[m][n].status == MLFF_OK;
        one->deviation = all ? sample_deviation(labels, e->n_members, n, one->system->n_atoms) : INFINITY;
        n++;
    }
done:
    for (size_t m = 0; labels && m < n_members; m++) {
        for (size_t k = 0; labels[m] && k < n; k++) mlff_label_clear(&labels[m][k]);
        base_free(labels[m]);
    }
    base_free(labels);
    base_free(systems);
    return status;
}

// A quantile of the frames' deviations; NaN without any.
static mlff_status quantile(const exploration *e, double share, double *value_out)
{
    size_t n = 0;
    double *sorted = base_alloc(e->n_frames, sizeof *sorted, "deviations");
    if (!sorted) return MLFF_ERR_MEMORY;
    for (size_t k = 0; k < e->n_frames; k++)
        if (isfinite(e->frames[k].deviation)) sorted[n++] = e->frames[k].deviation;
    base_sort(sorted, n);
    *value_out = n > 0 ? sorted[(size_t)(share * (double)(n - 1))] : NAN;
    base_free(sorted);
    return MLFF_OK;
}

// ---- frames

static mlff_status keep_frame(exploration *e, size_t k)
{
    const walker *one = &e->w.walkers[k];
    mlff_status status = base_grow(&e->frames, &e->capacity, e->n_frames + 1, sizeof *e->frames, "frames");
    if (status != MLFF_OK) return status;
    explored_frame frame = {.deviation = one->deviation, .temperature = one->temperature};
    if ((status = mlff_system_copy(one->system, &frame.system)) != MLFF_OK) return status;
    base_free(frame.system->velocities);
    frame.system->velocities = NULL;
    e->last_frame[k] = e->n_frames;
    e->frames[e->n_frames++] = frame;
    return MLFF_OK;
}

// The trajectory ends; the frame looked at before is worth a label.
static void raise_alarm(exploration *e, size_t k, int *count)
{
    e->w.walkers[k].alive = false;
    ++*count;
    if (e->last_frame[k] != SIZE_MAX) e->frames[e->last_frame[k]].before_alarm = true;
}

static mlff_status look_at(exploration *e, const bool *was_alive)
{
    mlff_status status = MLFF_OK;
    for (size_t k = 0; k < e->w.n; k++) {
        walker *one = &e->w.walkers[k];
        double closest;
        if (!one->alive) {
            if (was_alive[k]) raise_alarm(e, k, &e->info.n_deviation_alarms);
            continue;
        }
        MLFF_TRY(sample_closest(one->system, &closest));
        if (closest < e->options.closest || sample_bonds_longest(&one->bonds, one->system) > e->options.longest_bond) {
            raise_alarm(e, k, &e->info.n_bond_alarms);
        } else if (one->deviation == INFINITY || (e->alarm > 0 && one->deviation > e->alarm)) {
            raise_alarm(e, k, &e->info.n_deviation_alarms);
        } else {
            MLFF_TRY(keep_frame(e, k));
        }
    }
done:
    return status;
}

static mlff_status run(exploration *e, int64_t start_ns)
{
    mlff_status status = MLFF_OK;
    const mlff_explore_options *o = &e->options;
    const int n_steps = (int)lround(o->interval_fs / o->timestep_fs), n_intervals = (int)(o->duration_fs / o->interval_fs);
    uint64_t step = 0;
    bool *was_alive = base_alloc(e->w.n, sizeof *was_alive, "trajectories");

    if (!was_alive) MLFF_TRY(MLFF_ERR_MEMORY);
    MLFF_TRY(walkers_thermalize(&e->w));
    MLFF_TRY(walkers_forces(&e->w));
    e->alarm = o->deviation_alarm;
    for (int interval = 0; interval < n_intervals && walkers_alive(&e->w) > 0; interval++) {
        for (size_t k = 0; k < e->w.n; k++) was_alive[k] = e->w.walkers[k].alive;
        e->info.simulated_fs += (double)walkers_alive(&e->w) * n_steps * o->timestep_fs;
        MLFF_TRY(walkers_run(&e->w, n_steps, o->timestep_fs, o->friction_per_fs, &step));
        MLFF_TRY(find_deviations(e));
        MLFF_TRY(look_at(e, was_alive));
        if (e->alarm == 0 && interval >= n_intervals / 10) {
            double median;
            MLFF_TRY(quantile(e, 0.5, &median));
            e->alarm = isfinite(median) ? ADAPTIVE_ALARM * median : INFINITY;
        }
        const mlff_sample_progress progress = {.method = "explore",
                                               .n_done = interval + 1,
                                               .n_total = n_intervals,
                                               .n_rejected = e->info.n_bond_alarms + e->info.n_deviation_alarms,
                                               .elapsed_s = 1e-9 * (double)(base_clock_ns() - start_ns)};
        if (o->callback && o->callback(o->context, &progress) != 0) MLFF_FAIL(MLFF_ERR_INTERRUPTED, "exploring was interrupted");
    }
done:
    base_free(was_alive);
    return status;
}

// ---- which of them

// Frames before an alarm first, then by falling deviation.
static int compare_frames(const void *a, const void *b)
{
    const explored_frame *x = a, *y = b;
    if (x->before_alarm != y->before_alarm) return x->before_alarm ? -1 : 1;
    return (x->deviation < y->deviation) - (x->deviation > y->deviation);
}

static mlff_status take_frame(explored_frame *frame, mlff_samples *samples)
{
    char origin[SAMPLE_ORIGIN_BYTES];
    base_format(origin, sizeof origin, "%s %g K", frame->before_alarm ? "alarm" : "student", frame->temperature);
    snprintf(frame->system->config_type, sizeof frame->system->config_type, "%s", origin);
    const mlff_status status = samples_take(samples, frame->system, origin);
    frame->system = NULL;
    return status;
}

// Twice as many as wanted by deviation, of which those that differ most; all by difference where there is no deviation.
static mlff_status choose_frames(exploration *e, mlff_samples *samples)
{
    mlff_status status = MLFF_OK;
    mlff_samples *chosen = NULL;
    const bool ranked = isfinite(e->info.median_deviation);
    const size_t limit = ranked ? 2 * (size_t)e->options.n_samples : e->n_frames;

    MLFF_TRY(mlff_samples_create(&chosen));
    if (ranked) qsort(e->frames, e->n_frames, sizeof *e->frames, compare_frames);
    e->info.deviation_level = NAN;
    for (size_t k = 0; k < e->n_frames && k < limit; k++) {
        if (isfinite(e->frames[k].deviation)) e->info.deviation_level = fmin(e->frames[k].deviation, e->info.deviation_level);
        MLFF_TRY(take_frame(&e->frames[k], chosen));
    }
    if (chosen->n > 0) MLFF_TRY(mlff_samples_select(chosen, e->options.n_samples, samples));
    while (chosen->n > 0) {
        sample *last = &chosen->samples[--chosen->n];
        MLFF_TRY(samples_take(samples, last->system, last->origin));
    }
done:
    mlff_samples_destroy(chosen);
    return status;
}

mlff_status mlff_explore(mlff_teacher *const *committee, int n_members, const mlff_samples *seeds,
                         const mlff_explore_options *given, mlff_samples *samples, mlff_explore_info *info_out)
{
    mlff_status status = MLFF_OK;
    exploration e = {.committee = committee, .n_members = n_members, .options = mlff_explore_options_default()};
    const int64_t start_ns = base_clock_ns();
    int64_t group = 0, n_strained = 0;

    MLFF_TRY(base_take_options(__func__, "mlff_explore_options", given, sizeof e.options, &e.options));
    MLFF_TRY(check_options(&e.options, n_members, seeds));
    for (size_t k = 0; k < samples->n; k++)
        if (samples->samples[k].system->group >= group) group = samples->samples[k].system->group + 1;
    e.w = (walkers){.teacher = committee[0], .seed = e.options.seed};
    const int n_walkers = e.options.n_trajectories * e.options.n_temperatures;
    for (int k = 0; k < n_walkers; k++) {
        const mlff_system *seed = seeds->samples[(size_t)(k / e.options.n_temperatures) % seeds->n].system;
        MLFF_TRY(mlff_teacher_check(committee[0], seed, "a seed"));
        MLFF_TRY(walkers_add(&e.w, seed, e.options.temperatures[k % e.options.n_temperatures], group++));
        if ((size_t)(k / e.options.n_temperatures) / seeds->n % 2 == 1 && e.options.strain > 0)
            MLFF_TRY(sample_strain(e.w.walkers[k].system, e.options.strain, e.options.seed, n_strained++));
    }
    if (!(e.last_frame = base_alloc((size_t)n_walkers, sizeof *e.last_frame, "trajectories"))) MLFF_TRY(MLFF_ERR_MEMORY);
    for (int k = 0; k < n_walkers; k++) e.last_frame[k] = SIZE_MAX;
    MLFF_TRY(run(&e, start_ns));
    e.info.n_frames = (int64_t)e.n_frames;
    e.info.n_trajectories = n_walkers;
    MLFF_TRY(quantile(&e, 0.5, &e.info.median_deviation));
    MLFF_TRY(quantile(&e, 0.9, &e.info.upper_deviation));
    MLFF_TRY(choose_frames(&e, samples));
    if (info_out) *info_out = e.info;
done:
    for (size_t k = 0; k < e.n_frames; k++) mlff_system_destroy(e.frames[k].system);
    base_free(e.frames);
    base_free(e.last_frame);
    walkers_free(&e.w);
    return status;
}
