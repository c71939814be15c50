// SPDX-License-Identifier: MIT
// md_replicas.c: mlff md --replicas.
#include "cli/simulate/md_replicas.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/simulate/md_files.h"
#include "cli/simulate/md_series.h"

// Steps are made in pieces of about this time, so that Ctrl-C need not wait longer.
#define PATIENCE_NS 100000000
// Means and slopes are of about this many states, or one each LONGEST_SAMPLE steps.
enum { SAMPLES = 100, LONGEST_SAMPLE = 1000 };

typedef struct replica {
    mlff_dynamics_options options;
    mlff_system *system;
    mlff_dynamics *dynamics; // borrowed
    mlff_dynamics_state first, last;
    md_series drift;
    double temperature_sum;
    int64_t n_states;
    bool ended;
    bool lacks_frame; // of its last step, as it could not be written
} replica;

typedef struct replicas_run {
    const md_replicas_task *task;
    mlff_replicas *together;
    replica *each; // [task->n]
    int64_t n_done, piece, step_ns, wall_ns;
    int64_t sample_every; // steps between the states that means and slopes are of
    int n_running;
    bool unseen;
    base_output reserve; // see md_files.h
    mlff_writer *first;  // of replica 0's trajectory: open, and with it locked against other runs, from start to end
} replicas_run;

mlff_status md_parse_temperatures(const char *list, double **temperatures_out, int *n_out)
{
    int n = 1;
    for (const char *at = list; *at; at++) n += *at == ',';
    double *values = calloc((size_t)n, sizeof *values);
    if (!values) return mlff_fail(MLFF_ERR_MEMORY, "out of memory: temperatures");
    const char *at = list;
    for (int k = 0; k < n; k++) {
        char number[40];
        const size_t length = strcspn(at, ",");
        snprintf(number, sizeof number, "%.*s", (int)(length < 30 ? length : 30), at);
        if (!base_parse_double(number, &values[k]) || !(values[k] >= 0 && values[k] <= 1e6)) {
            free(values);
            return mlff_fail(MLFF_ERR_USAGE,
                             "--temperatures '%s': '%s' is not a temperature from 0 to 1000000 K; give some, as in "
                             "300,350,400",
                             list, number);
        }
        at += length + 1;
    }
    *temperatures_out = values;
    *n_out = n;
    return MLFF_OK;
}

// ---- files ------------------------------------------------------------------------------------------------------------

// run.extxyz of replica 7 of 256: run-007.extxyz. Fails where the name is too long.
static mlff_status name_of(const replicas_run *run, const char *path, int k, char name[PATH_MAX])
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
    const int stem = (int)(dot && dot > base ? (size_t)(dot - path) : strlen(path)),
              digits = snprintf(NULL, 0, "%d", run->task->n - 1);
    const int length = snprintf(name, PATH_MAX, "%.*s-%0*d%s", stem, path, digits, k, path + stem);
    return length < PATH_MAX ? MLFF_OK : mlff_fail(MLFF_ERR_USAGE, "%s: this name is too long", path);
}

int md_replicas_check_files(const cli_arguments *arguments, const md_replicas_task *task)
{
    static const char *const options[] = {"output", "checkpoint"};
    const char *const outputs[] = {task->output, task->checkpoint};
    const replicas_run run = {.task = task};
    int exit_status = CLI_GOOD;
    char name[PATH_MAX], restart[PATH_MAX];
    for (int k = 0; k < task->n; k++)
        for (int o = 0; o < 2 && exit_status == CLI_GOOD; o++) {
            if (!outputs[o]) continue;
            exit_status = cli_exit(name_of(&run, outputs[o], k, name));
            // Different names of options give different names of replicas' files.
            if (exit_status == CLI_GOOD) exit_status = cli_files_check_another(arguments, options[o], name, false);
            if (exit_status == CLI_GOOD && o == 1 && !task->restart && md_refuses(arguments, name, task->checkpoint))
                return CLI_USAGE;
            // A restart file is replaced by the next one, but not by frames.
            if (exit_status != CLI_GOOD || o == 1 || !task->restart) continue;
            exit_status = cli_exit(name_of(&run, task->restart, k, restart));
            if (exit_status == CLI_GOOD && cli_overwrites(name, restart))
                exit_status =
                    cli_usage_error(arguments, "%s would overwrite the restart file '%s'; give another name", name, restart);
        }
    return exit_status;
}

// All trajectories but the first are opened for each frame, so that any number of replicas fits into the limit of open files.
static mlff_status write_frame(const replicas_run *run, int k)
{
    mlff_status status = MLFF_OK;
    mlff_writer *writer = k == 0 ? run->first : NULL;
    replica *r = &run->each[k];
    char name[PATH_MAX];
    if (!run->task->output) return MLFF_OK;
    r->lacks_frame = true;
    MLFF_TRY(name_of(run, run->task->output, k, name));
    if (k > 0) MLFF_TRY(mlff_writer_open(name, run->task->format, 1, &writer));
    MLFF_TRY(mlff_writer_write(
        writer, r->system,
        &(mlff_frame_results){
            .energy = r->last.potential_energy, .forces = r->last.forces, .step = r->last.step, .time_fs = r->last.time_fs}));
    if (k > 0) {
        status = mlff_writer_close(writer);
        writer = NULL;
    }
    r->lacks_frame = status != MLFF_OK;
done:
    if (k > 0) mlff_writer_destroy(writer);
    return status;
}

// The name under which a restart file waits for those of the other replicas: NAME.next, beside what a link leads to.
static mlff_status next_name(const replicas_run *run, const char *path, int k, char target[PATH_MAX], char next[PATH_MAX])
{
    char name[PATH_MAX];
    const mlff_status status = name_of(run, path, k, name);
    if (status != MLFF_OK) return status;
    if (!base_link_target(name, target)) memcpy(target, name, PATH_MAX);
    const int length = snprintf(next, PATH_MAX, "%s.next", target);
    return length < PATH_MAX ? MLFF_OK : mlff_fail(MLFF_ERR_USAGE, "%s: this name is too long", path);
}

// Of one that has ended.
static mlff_status save_ended(const replicas_run *run, int k)
{
    char name[PATH_MAX];
    if (!run->task->checkpoint) return MLFF_OK;
    const mlff_status status = name_of(run, run->task->checkpoint, k, name);
    return status == MLFF_OK ? mlff_dynamics_save(run->each[k].dynamics, name) : status;
}

// Restart files of all that run, of one step: none gets its name before all are written, so that a run that is killed leaves either those
// of before, or some of them and the others as NAME.next (restore).
static mlff_status save(const replicas_run *run)
{
    mlff_status status = MLFF_OK;
    char name[PATH_MAX], next[PATH_MAX];
    if (!run->task->checkpoint) return MLFF_OK;
    for (int k = 0; k < run->task->n && status == MLFF_OK; k++) {
        if (run->each[k].ended) continue;
        status = next_name(run, run->task->checkpoint, k, name, next);
        if (status == MLFF_OK) status = mlff_dynamics_save(run->each[k].dynamics, next);
    }
    if (status != MLFF_OK) { // the disk may be full
        for (int k = 0; k < run->task->n; k++)
            if (next_name(run, run->task->checkpoint, k, name, next) == MLFF_OK) unlink(next);
        return status;
    }
    for (int k = 0; k < run->task->n; k++) {
        if (run->each[k].ended) continue;
        MLFF_TRY(next_name(run, run->task->checkpoint, k, name, next));
        if (rename(next, name) != 0) MLFF_FAIL(MLFF_ERR_IO, "%s: cannot be replaced: %s", name, strerror(errno));
    }
done:
    return status;
}

// A new run empties the trajectory; one that goes on from a restart file cuts it behind the restart's step.
static mlff_status open_trajectory(replicas_run *run, int k)
{
    mlff_status status = MLFF_OK;
    mlff_writer *writer = NULL;
    char name[PATH_MAX];
    bool lacks_frame = true;
    if (!run->task->output) return MLFF_OK;
    MLFF_TRY(name_of(run, run->task->output, k, name));
    if (run->task->restart)
        MLFF_TRY(md_resume_trajectory(name, run->task->format, run->each[k].system->n_atoms, run->each[k].first.step,
                                      run->task->every, NULL, &lacks_frame, &writer));
    else
        MLFF_TRY(md_new_trajectory(name, run->task->format, &writer));
    if (k == 0)
        run->first = writer;
    else
        MLFF_TRY(mlff_writer_close(writer));
    if (lacks_frame) MLFF_TRY(write_frame(run, k));
done:
    return status;
}

// ---- start ------------------------------------------------------------------------------------------------------------

static mlff_status make_systems(replicas_run *run)
{
    const md_replicas_task *task = run->task;
    const bool draws = !task->input->system->velocities || task->thermalize;
    mlff_status status = MLFF_OK;
    for (int k = 0; k < task->n; k++) {
        replica *r = &run->each[k];
        r->options = task->options;
        r->options.seed += (uint64_t)k;
        if (task->temperatures) r->options.temperature_kelvin = task->temperatures[k];
        MLFF_TRY(mlff_system_copy(task->input->system, &r->system));
        r->system->config_type[0] = 0; // of INPUT: frames of dynamics are made otherwise
        if (draws && !task->restart) MLFF_TRY(md_draw_velocities(&r->options, r->system));
    }
    if (!draws && !task->restart) cli_say("all replicas start with the velocities of the input; --thermalize draws each its own");
done:
    return status;
}

// Of a restart file; -1 where none is there or it is not readable.
static int64_t step_of(const char *path)
{
    char line[256];
    int64_t step = -1;
    FILE *file = fopen(path, "re");
    while (file && step < 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "step %" SCNd64, &step) != 1 && strncmp(line, "atoms ", 6) == 0) break;
    if (file) fclose(file);
    return step;
}

static bool is_step_of_another(const int64_t *steps, int n, int64_t step)
{
    for (int k = 0; k < n; k++)
        if (steps[k] == step) return true;
    return false;
}

// A restart file that waits for its name is taken, and gets it, where that of another replica is of its step: the run was killed between.
static mlff_status restore(const replicas_run *run, int k, int64_t *steps)
{
    mlff_status status = MLFF_OK;
    char name[PATH_MAX], next[PATH_MAX];
    mlff_evaluator *evaluator = run->task->setup->evaluator;
    MLFF_TRY(next_name(run, run->task->restart, k, name, next));
    const int64_t waiting = step_of(next);
    const bool is_newer = waiting > steps[k] && is_step_of_another(steps, run->task->n, waiting);
    if (!is_newer) MLFF_TRY(name_of(run, run->task->restart, k, next)); // not what a link leads to, for messages
    MLFF_TRY(mlff_dynamics_restore_on(evaluator, run->each[k].dynamics, next));
    if (!is_newer) goto done;
    (void)rename(next, name); // in a folder that cannot be written the next run finds both again
    steps[k] = waiting;
done:
    return status;
}

static mlff_status restore_all(const replicas_run *run)
{
    mlff_status status = MLFF_OK;
    const int n = run->task->n;
    char name[PATH_MAX];
    if (!run->task->restart) return MLFF_OK;
    int64_t *steps = calloc((size_t)n, sizeof *steps);
    if (!steps) return mlff_fail(MLFF_ERR_MEMORY, "out of memory: replicas");
    for (int k = 0; k < n; k++) {
        MLFF_TRY(name_of(run, run->task->restart, k, name));
        steps[k] = step_of(name);
    }
    for (int k = 0; k < n; k++) MLFF_TRY(restore(run, k, steps));
    for (int k = 1; k < n; k++)
        if (steps[k] != steps[0]) {
            cli_say(
                "replica %d goes on from step %" PRId64 ", replica 0 from step %" PRId64
                ": their restart files are of different steps, as after an early end; each makes --n-steps steps from its own",
                k, steps[k], steps[0]);
            break;
        }
done:
    free(steps);
    return status;
}

static mlff_status start(replicas_run *run)
{
    mlff_status status = MLFF_OK;
    const size_t n = (size_t)run->task->n;
    const mlff_dynamics_options **options = calloc(n, sizeof *options);
    mlff_system **systems = calloc(n, sizeof *systems);
    if (!options || !systems || !(run->each = calloc(n, sizeof *run->each)))
        MLFF_FAIL(MLFF_ERR_MEMORY, "out of memory: replicas");
    MLFF_TRY(make_systems(run));
    for (size_t k = 0; k < n; k++) options[k] = &run->each[k].options, systems[k] = run->each[k].system;
    MLFF_TRY(mlff_replicas_create(run->task->setup->evaluator, options, systems, (int)n, &run->together));
    for (int k = 0; k < (int)n; k++) run->each[k].dynamics = mlff_replicas_dynamics(run->together, k);
    MLFF_TRY(restore_all(run));
    MLFF_TRY(mlff_replicas_run(run->together, 0, NULL)); // forces of all, together
    for (int k = 0; k < (int)n; k++) {
        MLFF_TRY(mlff_dynamics_state_get(run->each[k].dynamics, &run->each[k].first));
        run->each[k].last = run->each[k].first;
        MLFF_TRY(open_trajectory(run, k));
    }
    if (!run->task->restart)
        MLFF_TRY(save(run));
    else if (!run->task->has_ramp_steps)
        md_warn_if_ramp_is_over(&run->task->options, run->each[0].first.step);
    run->n_running = (int)n;
done:
    free(options);
    free(systems);
    return status;
}

// ---- what is printed --------------------------------------------------------------------------------------------------

static double drift_mev(const replica *r)
{
    return 1000 * (r->last.conserved_energy - r->first.conserved_energy) / r->system->n_atoms;
}

static double mean_temperature(const replica *r)
{
    return r->n_states ? r->temperature_sum / (double)r->n_states : r->last.temperature_kelvin;
}

static void print_header(const replicas_run *run)
{
    const md_replicas_task *task = run->task;
    char device[16];
    mlff_device_text(mlff_replicas_device(run->together), device, sizeof device);
    cli_setup_print(task->setup);
    cli_print("%d replica%s of %s; %s, timestep %g fs; integrated on %s\n", task->n, base_plural(task->n), task->input->text,
              task->ensemble, task->options.timestep_fs, device);
    printf("%10s %12s %8s %12s %10s %10s %14s\n%10s %12s %8s %12s %10s %10s %14s\n", "step", "time", "running", "mean T",
           "lowest T", "highest T", "largest drift", "", "fs", "", "K", "K", "K", "meV/atom");
}

static void show(const replicas_run *run)
{
    double sum = 0, lowest = INFINITY, highest = 0, drift = 0;
    const replica *any = NULL;
    if (!run->task->table || run->n_running == 0) return;
    for (int k = 0; k < run->task->n; k++) {
        const replica *r = &run->each[k];
        if (r->ended) continue;
        any = r;
        sum += r->last.temperature_kelvin;
        lowest = fmin(lowest, r->last.temperature_kelvin);
        highest = fmax(highest, r->last.temperature_kelvin);
        if (fabs(drift_mev(r)) > fabs(drift)) drift = drift_mev(r);
    }
    printf("%10" PRId64 " %12.2f %8d %12.2f %10.2f %10.2f %14.5f\n", any->last.step, any->last.time_fs, run->n_running,
           sum / run->n_running, lowest, highest, drift);
    fflush(stdout);
}

// Fitted slope of the conserved energy and the half width of its 95 % interval, meV/atom/ps.
static void slope_of(const replica *r, double *slope, double *half)
{
    const double unit = 1000 / (r->options.timestep_fs * 1e-3 * r->system->n_atoms);
    md_series_slope(&r->drift, slope, half);
    *slope *= unit;
    *half *= unit;
}

static double rate(const replicas_run *run)
{
    double n = 0;
    for (int k = 0; k < run->task->n; k++) n += (double)(run->each[k].last.step - run->each[k].first.step);
    return run->step_ns > 0 ? n / ((double)run->step_ns * 1e-9) : 0;
}

static void print_summary(const replicas_run *run)
{
    printf("\n%" PRId64 " step%s of %d replica%s in %.3f s: %.0f structure-steps/s", run->n_done, base_plural(run->n_done),
           run->task->n, base_plural(run->task->n), (double)run->step_ns * 1e-9, rate(run));
    if ((double)run->wall_ns > 1.05 * (double)run->step_ns)
        printf("; with output %.3f s, %.0f structure-steps/s", (double)run->wall_ns * 1e-9,
               rate(run) * (double)run->step_ns / (double)run->wall_ns);
    putchar('\n');
    printf("%8s %20s %10s %10s %26s\n%8s %20s %10s %10s %26s\n", "replica", "seed", "T asked", "mean T", "drift (95 %)", "", "",
           "K", "K", "meV/atom/ps");
    for (int k = 0; k < run->task->n; k++) {
        const replica *r = &run->each[k];
        double slope, half;
        slope_of(r, &slope, &half);
        printf("%8d %20" PRIu64 " %10.2f %10.2f", k, r->options.seed, r->options.temperature_kelvin, mean_temperature(r));
        if (isfinite(slope))
            printf(" %13.4g ± %10.2g", slope, half);
        else
            printf(" %26s", "too few states");
        puts(r->ended ? "  ended early" : "");
    }
}

static void print_json(const replicas_run *run, bool partial)
{
    cli_json json = {.file = stdout};
    char device[16];
    mlff_device_text(mlff_replicas_device(run->together), device, sizeof device);
    cli_json_object(&json, NULL);
    cli_json_array(&json, "replicas");
    for (int k = 0; k < run->task->n; k++) {
        const replica *r = &run->each[k];
        double slope, half;
        slope_of(r, &slope, &half);
        cli_json_object(&json, NULL);
        cli_json_int(&json, "replica", k);
        cli_json_int(&json, "seed", (int64_t)r->options.seed);
        cli_json_number(&json, "temperature_kelvin", r->options.temperature_kelvin);
        cli_json_int(&json, "n_steps", r->last.step - r->first.step);
        cli_json_number(&json, "mean_temperature_kelvin", mean_temperature(r));
        cli_json_number(&json, "drift_slope_mev_per_atom_per_ps", slope);
        cli_json_number(&json, "drift_slope_half_width", half);
        cli_json_text(&json, "ended", mlff_replicas_error(run->together, k));
        cli_json_end(&json, '}');
    }
    cli_json_end(&json, ']');
    cli_json_object(&json, "summary");
    cli_json_text(&json, "model", run->task->setup->info.name);
    cli_json_text(&json, "integrated_on", device);
    cli_json_int(&json, "n_replicas", run->task->n);
    cli_json_int(&json, "n_running", run->n_running);
    cli_json_int(&json, "n_steps", run->n_done);
    cli_json_bool(&json, "partial", partial);
    cli_json_number(&json, "total_time_s", (double)run->step_ns * 1e-9);
    cli_json_number(&json, "wall_time_s", (double)run->wall_ns * 1e-9);
    cli_json_number(&json, "structure_steps_per_second", rate(run));
    cli_json_end(&json, '}');
    cli_json_end(&json, '}');
}

// ---- steps ------------------------------------------------------------------------------------------------------------

// The state of all after a piece. Of one that has ended in it the last good frame and restart file are kept.
// States are sampled at equal intervals: pieces grow with their speed, so that their ends would favor the start.
static mlff_status look(replicas_run *run)
{
    const bool sampled = run->n_done % run->sample_every == 0;
    mlff_status status = MLFF_OK;
    for (int k = 0; k < run->task->n; k++) {
        replica *r = &run->each[k];
        if (r->ended) continue;
        r->ended = *mlff_replicas_error(run->together, k) != '\0';
        MLFF_TRY(mlff_dynamics_state_get(r->dynamics, &r->last));
        if (!r->ended && !sampled) continue;
        if (!r->ended) {
            md_series_add(&r->drift, r->last.conserved_energy, run->sample_every);
            r->temperature_sum += r->last.temperature_kelvin;
            r->n_states++;
            continue;
        }
        run->n_running--;
        if (r->last.step % run->task->every != 0) MLFF_TRY(write_frame(run, k));
        MLFF_TRY(save_ended(run, k));
    }
done:
    return status;
}

// Replicas may be at different steps, after a restart.
static int64_t steps_to_line(const replicas_run *run)
{
    const int64_t every = run->task->every;
    int64_t n = every;
    for (int k = 0; k < run->task->n; k++) {
        const int64_t own = every - run->each[k].last.step % every;
        if (!run->each[k].ended && own < n) n = own;
    }
    return n;
}

static int64_t next_piece(const replicas_run *run)
{
    const md_replicas_task *task = run->task;
    int64_t n = task->n_steps - run->n_done, to_line = steps_to_line(run);
    int64_t to_checkpoint = task->checkpoint ? task->checkpoint_every - run->n_done % task->checkpoint_every : n;
    int64_t to_sample = run->sample_every - run->n_done % run->sample_every;
    if (to_line < n) n = to_line;
    if (to_sample < n) n = to_sample;
    if (to_checkpoint < n) n = to_checkpoint;
    return run->piece < n ? run->piece : n;
}

static mlff_status make_piece(replicas_run *run)
{
    const int64_t n = next_piece(run), start_ns = mlff_clock_ns();
    const mlff_status status = mlff_replicas_run(run->together, n, NULL);
    const int64_t time_ns = mlff_clock_ns() - start_ns;
    if (status != MLFF_OK && status != MLFF_ERR_UNSTABLE) return status;
    run->step_ns += time_ns;
    run->n_done += n;
    if (time_ns < PATIENCE_NS / 2 && run->piece < INT32_MAX) run->piece *= 2;
    if (time_ns > PATIENCE_NS && run->piece > 1) run->piece /= 2;
    return look(run);
}

// As of one simulation (cmd_md.c): a run that cannot write ends with frames and restart files of its last step.
static mlff_status keep_last_step(replicas_run *run, mlff_status cause)
{
    mlff_status saved;
    int64_t step = -1;
    int n_missing = 0;
    char text[1100], missing[80] = "";
    if (cause != MLFF_ERR_IO || !run->task->checkpoint) return cause;
    snprintf(text, sizeof text, "%s", mlff_last_error());
    cli_reserve_release(&run->reserve);
    for (int k = 0; k < run->task->n; k++) {
        if (run->each[k].ended) continue;
        step = run->each[k].last.step;
        if (run->each[k].lacks_frame && write_frame(run, k) != MLFF_OK) n_missing++;
    }
    saved = save(run);
    if (saved != MLFF_OK) return mlff_fail(cause, "%s; restart files are those of before: %s", text, mlff_last_error());
    if (n_missing > 0)
        snprintf(missing, sizeof missing, ", of which %d frame%s missing", n_missing, n_missing == 1 ? " is" : "s are");
    return mlff_fail(cause, "%s; then restart files were written, of step %" PRId64 "%s, and the run can go on from them", text,
                     step, missing);
}

static bool at_line(const replicas_run *run, int k)
{
    return !run->each[k].ended && run->each[k].last.step % run->task->every == 0;
}

static mlff_status write_frames(replicas_run *run)
{
    mlff_status status = MLFF_OK;
    for (int k = 0; k < run->task->n; k++) run->each[k].lacks_frame = run->task->output && at_line(run, k);
    for (int k = 0; k < run->task->n && status == MLFF_OK; k++)
        if (at_line(run, k)) status = write_frame(run, k);
    return status;
}

static mlff_status steps(replicas_run *run)
{
    mlff_status status = MLFF_OK;
    const md_replicas_task *task = run->task;
    const int64_t begun_ns = mlff_clock_ns();
    run->piece = 10;
    md_reserve(task->checkpoint, task->n, task->input->system->n_atoms, &run->reserve);
    run->sample_every = task->n_steps / SAMPLES;
    if (run->sample_every > task->every) run->sample_every = task->every;
    if (run->sample_every > LONGEST_SAMPLE) run->sample_every = LONGEST_SAMPLE;
    if (run->sample_every < 1) run->sample_every = 1;
    while (run->n_done < task->n_steps && run->n_running > 0 && !run->unseen && !cli_interrupted()) {
        MLFF_TRY(make_piece(run));
        int shown = 0;
        while (shown < task->n - 1 && run->each[shown].ended) shown++;
        if (at_line(run, shown) || run->n_done == task->n_steps) show(run);
        MLFF_TRY(keep_last_step(run, write_frames(run)));
        if (task->checkpoint && run->n_done % task->checkpoint_every == 0) MLFF_TRY(keep_last_step(run, save(run)));
        cli_progress_steps("md", run->n_done, task->n_steps, begun_ns);
        run->unseen = cli_reader_left() && !task->output && !task->checkpoint;
    }
    MLFF_TRY(keep_last_step(run, save(run)));
done:
    cli_reserve_release(&run->reserve);
    run->wall_ns = mlff_clock_ns() - begun_ns;
    cli_progress_clear();
    return status;
}

static mlff_status name_ended(const replicas_run *run)
{
    char list[200] = "";
    const int n_ended = run->task->n - run->n_running;
    for (int k = 0; k < run->task->n; k++) {
        const size_t length = strlen(list);
        if (run->each[k].ended && length < sizeof list - 20)
            snprintf(list + length, sizeof list - length, "%s%d", length ? ", " : "", k);
    }
    return mlff_fail(MLFF_ERR_UNSTABLE, "%d of %d replica%s ended early: %s%s; their last good frames and restart files are kept",
                     n_ended, run->task->n, base_plural(run->task->n), list, strlen(list) >= sizeof list - 20 ? ", …" : "");
}

mlff_status md_replicas_run(const md_replicas_task *task)
{
    mlff_status status = MLFF_OK;
    replicas_run run = {.task = task};
    MLFF_TRY(start(&run));
    if (task->table) print_header(&run);
    show(&run);
    MLFF_TRY(steps(&run));
    if (task->table) print_summary(&run);
    if (task->to_json) print_json(&run, run.n_done < task->n_steps || run.n_running < task->n);
    fflush(stdout);
    if (run.n_running < task->n) MLFF_TRY(name_ended(&run));
    if (run.n_done < task->n_steps && !run.unseen)
        MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted after %" PRId64 " of %" PRId64 " step%s; what was written is kept",
                  run.n_done, task->n_steps, base_plural(task->n_steps));
done:
    if (run.first) {
        const mlff_status closed = mlff_writer_close(run.first);
        if (status == MLFF_OK) status = closed;
    }
    mlff_replicas_destroy(run.together);
    for (int k = 0; run.each && k < task->n; k++) mlff_system_destroy(run.each[k].system);
    free(run.each);
    return status;
}
