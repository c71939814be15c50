// SPDX-License-Identifier: MIT
// cmd_md.c: mlff md: molecular dynamics by a model.
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/simulate/md.h"
#include "cli/simulate/md_files.h"
#include "cli/simulate/md_replicas.h"
#include "cli/support/cli.h"

static const cli_option options[] = {
    {"ensemble", 0, "NAME",
     "nve (velocity Verlet); at constant temperature langevin (BAOAB), bussi (stochastic\nrescaling of velocities), nose-hoover "
     "(chains); at constant pressure scr (stochastic\ncell rescaling, with bussi), mtk (Martyna-Tobias-Klein) (nve)"},
    {"temperature", 0, "K", "temperature of the thermostat and of drawn velocities, K (300)"},
    {"ramp-to", 0, "K", "bring the thermostat to this temperature, linearly over --ramp-steps"},
    {"ramp-steps", 0, "N", "steps of --ramp-to, counted from step 0 (--n-steps)"},
    {"thermostat-time", 0, "FS", "time constant of bussi, nose-hoover, scr, mtk, fs (100)"},
    {"pressure", 0, "BAR", "pressure for scr and mtk, bar; 10000 bar are 1 GPa (1)"},
    {"barostat-time", 0, "FS", "time constant of scr and mtk, fs (1000)"},
    {"compressibility", 0, "PER_BAR",
     "compressibility for scr, 1/bar; it affects only the time constant (4.5e-5, that of water)"},
    {"anisotropic", 0, NULL, "for scr and mtk: strain the cell along x, y and z independently"},
    {"timestep", 0, "FS", "timestep, fs (0.5)"},
    {"n-steps", 0, "N", "steps to make, also after a restart (1000)"},
    {"friction", 0, "PER_FS", "friction for langevin, 1/fs (0.01)"},
    {"seed", 0, "S", "seed of velocities and noise (0)"},
    {"replicas", 0, "N",
     "number of copies that run together; replica k has the seed S + k and its own files:\nrun-0.extxyz, … for -o run.extxyz; "
     "likewise for --checkpoint and --restart"},
    {"temperatures", 0, "LIST", "temperatures of the replicas, one for each, as 300,350,400, K"},
    {"thermalize", 0, NULL, "draw velocities even if INPUT has some"},
    {"output", 'o', "FILE",
     "trajectory to write: .extxyz (energy, forces and velocities too), .lammpstrj or .dump (LAMMPS), .dcd,\n.nc (AMBER NetCDF)"},
    CLI_FORMAT_OPTION,
    {"every", 0, "K", "steps between lines of the table and frames of the trajectory (100)"},
    {"checkpoint", 0, "FILE", "write a restart file here, at the end and every --checkpoint-every steps"},
    {"checkpoint-every", 0, "K", "steps between restart files (10000)"},
    {"restart", 0, "FILE",
     "continue from a restart file; INPUT, or --system, is that of its run. Frames of -o\nafter the restart are removed, new "
     "ones "
     "are appended"},
    {"profile", 0, "FILE", "profile the whole run and write the report as JSON (mlff report FILE shows it)"},
    {"profile-every", 0, "K", "steps between memory samples of --profile (100)"},
    {"kernels", 0, "N", "with --profile: trace windows of N steps with CUPTI for the GPU's kernels by name (0; 20 are enough)"},
    {"json", 0, NULL, "table and summary as JSON on standard output"},
    CLI_READER_OPTIONS,
    CLI_SYSTEM_OPTIONS,
    CLI_EVALUATOR_OPTIONS,
    {0}};

// A run of steps on a GPU is made in pieces of about this time, so that Ctrl-C need not wait longer. After a piece the atoms come
// to the host and are checked, in some 50 ns each: pieces of large systems are longer.
#define PATIENCE_NS 100000000
#define PATIENCE_NS_AN_ATOM 5000
#define LONGEST_PATIENCE_NS 1000000000

static mlff_status write_frame(simulation *run)
{
    if (!run->writer) return MLFF_OK;
    mlff_frame_results results = {
        .energy = run->last.potential_energy, .forces = run->last.forces, .step = run->last.step, .time_fs = run->last.time_fs};
    return mlff_writer_write(run->writer, run->input.system, &results);
}

// A new run replaces the file only once its first forces are there; one that goes on from a restart file cuts it behind the restart's
// step.
static mlff_status open_trajectory(simulation *run)
{
    mlff_status status = MLFF_OK;
    int64_t n_removed = 0;
    if (!run->output) return MLFF_OK;
    if (!run->restart) return md_new_trajectory(run->output, run->format, &run->writer);
    MLFF_TRY(md_resume_trajectory(run->output, run->format, run->input.system->n_atoms, run->first.step, run->every, &n_removed,
                                  &run->lacks_frame, &run->writer));
    if (n_removed > 0)
        cli_say("%s: removed %" PRId64 " frame%s from after step %" PRId64 ", where the restart file begins", run->output,
                n_removed, base_plural(n_removed), run->first.step);
done:
    return status;
}

// Velocities without motion of the whole have 3 degrees of freedom less than Langevin dynamics, which drives that motion as well:
// they are scaled, so that the start has the temperature asked for.
mlff_status md_draw_velocities(const mlff_dynamics_options *options_of_run, mlff_system *system)
{
    mlff_status status = mlff_system_thermalize(system, options_of_run->temperature_kelvin, options_of_run->seed);
    bool any_fixed = false;
    for (int i = 0; system->fixed && i < system->n_atoms; i++) any_fixed = any_fixed || system->fixed[i];
    if (status != MLFF_OK || options_of_run->ensemble != MLFF_LANGEVIN || any_fixed || system->n_atoms < 2) return status;
    const double factor = sqrt(system->n_atoms / (system->n_atoms - 1.0));
    for (size_t k = 0; k < 3 * (size_t)system->n_atoms; k++) system->velocities[k] *= factor;
    return MLFF_OK;
}

static mlff_status start(simulation *run)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = run->input.system;

    system->config_type[0] = 0; // of INPUT: frames of dynamics are made otherwise
    if (!run->restart) {
        run->drawn = !system->velocities || run->thermalize;
        if (run->drawn) MLFF_TRY(md_draw_velocities(&run->options, system));
        run->velocities = run->drawn ? "velocities drawn (Maxwell-Boltzmann)" : "velocities of the file";
    } else {
        run->velocities = "continued from a restart file";
    }
    if (run->profile) {
        MLFF_TRY(mlff_callable_from_evaluator(run->setup.evaluator, run->setup.model, &run->callable));
        MLFF_TRY(mlff_monitor_create(&run->callable, system, run->options.timestep_fs, run->profile_every, &run->monitor));
        MLFF_TRY(mlff_monitor_kernels(run->monitor, run->kernels));
    }
    MLFF_TRY(mlff_dynamics_create_on(run->setup.evaluator, &run->options, system, run->monitor ? mlff_monitor_forces : NULL,
                                     run->monitor, &run->dynamics));
    if (run->monitor && run->constant_pressure) mlff_dynamics_virial_set(run->dynamics, mlff_monitor_virial, run->monitor);
    mlff_device device = mlff_dynamics_device(run->dynamics);
    run->resident = device.kind != MLFF_CPU;
    run->in_domains = run->resident && mlff_evaluator_domains(run->setup.evaluator, NULL, 0) > 1;
    if (run->in_domains)
        snprintf(run->integrated_on, sizeof run->integrated_on, "domains of %s", run->setup.device);
    else
        mlff_device_text(device, run->integrated_on, sizeof run->integrated_on);
    if (run->restart) MLFF_TRY(mlff_dynamics_restore_on(run->setup.evaluator, run->dynamics, run->restart));
    MLFF_TRY(mlff_dynamics_state_get(run->dynamics, &run->first));
    run->last = run->first;
    if (run->restart && !run->has_ramp_steps) md_warn_if_ramp_is_over(&run->options, run->first.step);
    MLFF_TRY(open_trajectory(run));
    if (!run->restart || run->lacks_frame) MLFF_TRY(write_frame(run)); // that of a restart is the last of the run before
    for (int i = 0; i < run->input.system->n_atoms; i++)
        run->n_free += !(run->input.system->fixed && run->input.system->fixed[i]);
    md_warn_if_far_from_training(run);
    if (run->table) md_print_header(run);
    if (run->to_json) {
        run->json.file = stdout;
        cli_json_object(&run->json, NULL);
        cli_json_array(&run->json, "thermo");
    }
    md_show(run);
done:
    return status;
}

// Steps to the next line, frame or file; on the host one, whose state is looked at.
static int64_t next_piece(const simulation *run)
{
    if (!run->resident) return 1;
    int64_t n = run->n_steps - run->n_done, to_line = run->every - run->last.step % run->every;
    int64_t to_checkpoint = run->checkpoint ? run->checkpoint_every - run->n_done % run->checkpoint_every : n;
    if (to_line < n) n = to_line;
    if (to_checkpoint < n) n = to_checkpoint;
    return run->piece < n ? run->piece : n;
}

static mlff_status make_piece(simulation *run)
{
    mlff_status status;
    mlff_dynamics_state before = run->last;
    int64_t n = next_piece(run), start_ns = mlff_clock_ns();
    status = run->monitor ? mlff_monitor_run(run->monitor, run->dynamics, n) : mlff_dynamics_run(run->dynamics, n, NULL);
    int64_t time_ns = mlff_clock_ns() - start_ns, patience = PATIENCE_NS + PATIENCE_NS_AN_ATOM * run->input.system->n_atoms;
    if (patience > LONGEST_PATIENCE_NS) patience = LONGEST_PATIENCE_NS;
    run->step_ns += time_ns;
    if (time_ns < patience / 2 && run->piece < INT32_MAX) run->piece *= 2;
    if (time_ns > patience && run->piece > 1) run->piece /= 2;
    char cause[1100];
    snprintf(cause, sizeof cause, "%s", mlff_last_error());
    mlff_status seen = mlff_dynamics_state_get(run->dynamics, &run->last); // also of steps before one that failed
    if (seen == MLFF_OK) run->n_done += run->last.step - before.step;
    if (seen == MLFF_OK && run->last.step > before.step)
        md_series_add(&run->drift, run->last.conserved_energy, run->last.step - before.step);
    return status == MLFF_OK ? seen : mlff_fail(status, "%s", cause);
}

// After an explosion the atoms are back at the last good step: its frame and restart file are kept. Returns `cause`.
static mlff_status keep_last_good(simulation *run, mlff_status cause)
{
    char text[1100];
    if (cause != MLFF_ERR_UNSTABLE) return cause;
    snprintf(text, sizeof text, "%s", mlff_last_error());
    cli_reserve_release(&run->reserve);
    const bool written = run->last.step % run->every == 0;
    if (!written) md_show(run);
    if (!written) cli_exit(write_frame(run));
    if (run->checkpoint) cli_exit(mlff_dynamics_save(run->dynamics, run->checkpoint));
    return mlff_fail(cause, "%s", text);
}

// A run that cannot write ends with the frame and the restart file of its last step, for which space is reserved. Where the frame still
// cannot be written (a limit of the file's size), the run that goes on begins with it. Returns `cause`, with that in its text.
static mlff_status keep_last_step(simulation *run, mlff_status cause, bool frame_is_missing)
{
    char text[1100];
    if (cause != MLFF_ERR_IO || !run->checkpoint) return cause;
    snprintf(text, sizeof text, "%s", mlff_last_error());
    cli_reserve_release(&run->reserve);
    if (frame_is_missing) frame_is_missing = write_frame(run) != MLFF_OK;
    if (mlff_dynamics_save(run->dynamics, run->checkpoint) != MLFF_OK)
        return mlff_fail(cause, "%s; the restart file is that of before: %s", text, mlff_last_error());
    return mlff_fail(cause, "%s; then %s was written, of step %" PRId64 "%s, and the run can go on from it", text,
                     run->checkpoint, run->last.step, frame_is_missing ? ", whose frame is missing" : "");
}

static mlff_status steps(simulation *run)
{
    mlff_status status = MLFF_OK;
    int64_t begun_ns = mlff_clock_ns();

    run->piece = 10;
    if (run->checkpoint && !run->restart) MLFF_TRY(mlff_dynamics_save(run->dynamics, run->checkpoint));
    md_reserve(run->checkpoint, 1, run->input.system->n_atoms, &run->reserve);
    while (run->n_done < run->n_steps && !cli_interrupted()) {
        MLFF_TRY(keep_last_good(run, make_piece(run)));
        md_watch_extrapolation(run);
        bool written = run->last.step % run->every == 0;
        if (written || !run->resident) {
            run->n_states++;
            run->temperature_sum += run->last.temperature_kelvin;
            run->volume_sum += run->last.volume;
            run->pressure_sum += run->last.pressure;
            if (run->constant_pressure) {
                md_series_add(&run->volume, run->last.volume, 1);
                md_series_add(&run->pressure, run->last.pressure, 1);
            }
        }
        if (written) {
            md_show(run);
            MLFF_TRY(keep_last_step(run, write_frame(run), true));
        } else if (run->n_done == run->n_steps || cli_interrupted()) {
            md_show(run); // the table ends with the last step; the trajectory keeps its even spacing
        }
        if (run->checkpoint && run->n_done % run->checkpoint_every == 0)
            MLFF_TRY(keep_last_step(run, mlff_dynamics_save(run->dynamics, run->checkpoint), false));
        cli_progress_steps("md", run->n_done, run->n_steps, begun_ns);
        if (cli_reader_left() && !run->output && !run->checkpoint && !run->profile) {
            run->n_steps = run->n_done;
            break;
        }
    }
    cli_progress_clear();
    if (run->checkpoint) MLFF_TRY(keep_last_step(run, mlff_dynamics_save(run->dynamics, run->checkpoint), false));
done:
    cli_reserve_release(&run->reserve);
    run->wall_ns = mlff_clock_ns() - begun_ns;
    return status;
}

// Whether no file of a profile of this name is there; of several GPUs each has one.
static bool is_free_profile(const void *context, const char *name)
{
    const simulation *run = context;
    char path[PATH_MAX];
    for (int k = 0; k == 0 || k < run->setup.n_gpus; k++)
        if (mlff_profile_rank_path(name, k, path, sizeof path) != MLFF_OK || access(path, F_OK) == 0) return false;
    return true;
}

// The file of --profile; of several GPUs the first one's. NAME-partial for a run that ended early where one of the files is there, which may
// be of a whole run.
static mlff_status name_profile(const simulation *run, char *name)
{
    if (run->n_done < run->n_steps && !base_is_stream(run->profile) && !is_free_profile(run, run->profile))
        return base_partial_name_where(run->profile, is_free_profile, run, name);
    snprintf(name, PATH_MAX, "%s", run->profile);
    return MLFF_OK;
}

static void remove_profile(const simulation *run, const char *name)
{
    char path[PATH_MAX];
    for (int k = 0; k == 0 || k < run->setup.n_gpus; k++)
        if (mlff_profile_rank_path(name, k, path, sizeof path) == MLFF_OK) unlink(path);
}

// Also of a run that ended early: how it went until then is what one wants to see. `kept` is the name of the file, "" without one.
static mlff_status save_profile(simulation *run, char *kept)
{
    mlff_status status = MLFF_OK;
    char name[PATH_MAX], notes[96] = "";
    kept[0] = 0;
    if (!run->monitor || run->n_done == 0) return MLFF_OK;
    MLFF_TRY(name_profile(run, name));
    if (run->n_done < run->n_steps)
        snprintf(notes, sizeof notes, "partial: ended after %" PRId64 " of %" PRId64 " steps", run->n_done, run->n_steps);
    status = mlff_monitor_save(run->monitor, NULL, *notes ? notes : NULL, name);
    if (status != MLFF_OK && strcmp(name, run->profile) != 0) remove_profile(run, name);
    if (status != MLFF_OK) goto done;
    if (strcmp(name, "-") != 0) snprintf(kept, PATH_MAX, "%s", name);
    if (run->table) cli_print("profile: %s (mlff report %s shows it)\n", name, name);
done:
    return status;
}

// Options that the ensemble does not have are refused: who gives them expects another ensemble.
static int check_ensemble(cli_arguments *arguments, const simulation *run)
{
    static const char *const of_pressure[] = {"pressure", "barostat-time", "anisotropic", NULL};
    const mlff_ensemble ensemble = run->options.ensemble;
    for (int k = 0; of_pressure[k]; k++)
        if (cli_given(arguments, of_pressure[k]) && !run->constant_pressure)
            return cli_usage_error(arguments, "--%s needs --ensemble scr or mtk", of_pressure[k]);
    if (cli_given(arguments, "compressibility") && ensemble != MLFF_SCR)
        return cli_usage_error(arguments, "--compressibility needs --ensemble scr");
    if (cli_given(arguments, "friction") && ensemble != MLFF_LANGEVIN)
        return cli_usage_error(arguments, "--friction needs --ensemble langevin");
    if (cli_given(arguments, "thermostat-time") && ensemble < MLFF_BUSSI)
        return cli_usage_error(arguments, "--thermostat-time needs --ensemble bussi, nose-hoover, scr or mtk");
    if (cli_given(arguments, "ramp-steps") && !cli_given(arguments, "ramp-to"))
        return cli_usage_error(arguments, "--ramp-steps needs --ramp-to K");
    if (cli_given(arguments, "ramp-to") && ensemble == MLFF_NVE)
        return cli_usage_error(arguments, "--ramp-to needs a thermostat; give --ensemble");
    return CLI_GOOD;
}

static int parse_replicas(cli_arguments *arguments, simulation *run)
{
    static const char *const not_of_replicas[] = {"profile", NULL};
    const char *list = cli_text(arguments, "temperatures", NULL);
    int n_listed = 0;
    run->n_replicas = (int)cli_int(arguments, "replicas", 1, 100000, 0);
    if (list && md_parse_temperatures(list, &run->temperatures, &n_listed) != MLFF_OK)
        return cli_usage_error(arguments, "%s", mlff_last_error());
    if (list && run->n_replicas == 0) run->n_replicas = n_listed;
    if (list && run->n_replicas != n_listed)
        return cli_usage_error(arguments, "--temperatures lists %d, where --replicas is %d", n_listed, run->n_replicas);
    if (list && cli_given(arguments, "temperature"))
        return cli_usage_error(arguments, "--temperature and --temperatures contradict each other");
    for (int k = 0; run->n_replicas && not_of_replicas[k]; k++)
        if (cli_given(arguments, not_of_replicas[k]))
            return cli_usage_error(arguments, "--%s is of one simulation, without --replicas", not_of_replicas[k]);
    if (run->n_replicas && run->output && strcmp(run->output, "-") == 0)
        return cli_usage_error(arguments, "replicas have a trajectory each; -o needs the name of a file");
    return CLI_GOOD;
}

static int parse(cli_arguments *arguments, simulation *run)
{
    run->options = mlff_dynamics_options_default();
    const char *const named = cli_text(arguments, "ensemble", "nve");
    if (strcmp(named, "nvt") == 0)
        return cli_usage_error(arguments, "--ensemble nvt needs its thermostat: bussi, nose-hoover or langevin");
    if (strcmp(named, "npt") == 0) return cli_usage_error(arguments, "--ensemble npt needs its barostat: scr or mtk");
    run->options.ensemble = (mlff_ensemble)cli_choice(arguments, "ensemble", md_ensembles, MLFF_NVE);
    run->constant_pressure = run->options.ensemble == MLFF_SCR || run->options.ensemble == MLFF_MTK;
    run->options.temperature_kelvin = cli_number(arguments, "temperature", 0, 1e6, 300);
    run->options.timestep_fs = cli_number(arguments, "timestep", 1e-6, 100, 0.5);
    run->options.friction_per_fs = cli_number(arguments, "friction", 0, 1000, 0.01);
    run->options.seed = (uint64_t)cli_int(arguments, "seed", 0, INT64_MAX, 0);
    run->n_steps = cli_int(arguments, "n-steps", 0, INT64_MAX, 1000);
    run->options.thermostat_fs = cli_number(arguments, "thermostat-time", 1e-6, 1e9, 100);
    run->options.pressure = CLI_EV_ANG3_PER_BAR * cli_number(arguments, "pressure", -1e7, 1e8, 1);
    run->options.barostat_fs = cli_number(arguments, "barostat-time", 1e-6, 1e9, 1000);
    run->options.compressibility = cli_number(arguments, "compressibility", 1e-12, 1, 4.5e-5) / CLI_EV_ANG3_PER_BAR;
    run->options.anisotropic = cli_given(arguments, "anisotropic");
    run->options.ramp_end_kelvin = cli_number(arguments, "ramp-to", 0, 1e6, run->options.temperature_kelvin);
    run->has_ramp_steps = cli_given(arguments, "ramp-steps");
    if (cli_given(arguments, "ramp-to")) run->options.ramp_steps = cli_int(arguments, "ramp-steps", 1, INT64_MAX, run->n_steps);
    run->every = cli_int(arguments, "every", 1, INT64_MAX, 100);
    run->checkpoint = cli_text(arguments, "checkpoint", NULL);
    run->checkpoint_every = cli_int(arguments, "checkpoint-every", 1, INT64_MAX, 10000);
    run->restart = cli_text(arguments, "restart", NULL);
    run->output = cli_text(arguments, "output", NULL);
    run->format = cli_text(arguments, "format", NULL);
    run->to_json = cli_given(arguments, "json");
    run->profile = cli_text(arguments, "profile", NULL);
    run->profile_every = cli_int(arguments, "profile-every", 1, INT64_MAX, 100);
    run->kernels = cli_int(arguments, "kernels", 0, 10000, 0);
    run->thermalize = cli_given(arguments, "thermalize");
    bool frames_to_stdout = run->output && strcmp(run->output, "-") == 0;
    run->table = !run->to_json && !frames_to_stdout;

    if (arguments->failed) return CLI_USAGE;
    const int ensemble = check_ensemble(arguments, run), replicas = parse_replicas(arguments, run);
    if (ensemble != CLI_GOOD || replicas != CLI_GOOD) return ensemble != CLI_GOOD ? ensemble : replicas;
    if (cli_given(arguments, "profile-every") && !run->profile)
        return cli_usage_error(arguments, "--profile-every needs --profile FILE");
    if (cli_given(arguments, "kernels") && !run->profile) return cli_usage_error(arguments, "--kernels needs --profile FILE");
    if (cli_given(arguments, "checkpoint-every") && !run->checkpoint)
        return cli_usage_error(arguments, "--checkpoint-every needs --checkpoint FILE");
    if (run->restart && arguments->n_positional < 2 && !cli_given(arguments, "system"))
        return cli_usage_error(
            arguments,
            "--restart '%s' needs the INPUT, or the --system, of its run too: a restart file holds neither elements "
            "nor the name of that file",
            run->restart);
    if (!run->n_replicas && !run->restart && md_refuses(arguments, run->checkpoint, run->checkpoint)) return CLI_USAGE;
    if (run->restart && run->thermalize)
        return cli_usage_error(arguments, "--restart continues with the velocities of its file; it excludes --thermalize");
    if (cli_format_check(arguments, run->output) != CLI_GOOD) return CLI_USAGE;
    if (run->to_json && frames_to_stdout) return cli_usage_error(arguments, "--json and -o - cannot both have standard output");
    return CLI_GOOD;
}

// Of several GPUs each writes a file.
static int check_profiles(const cli_arguments *arguments, const simulation *run)
{
    char path[PATH_MAX];
    int exit_status = cli_exit(cli_output_check(run->profile));
    if (exit_status != CLI_GOOD || !run->profile || run->setup.n_gpus < 2) return exit_status;
    if (base_is_stream(run->profile))
        return cli_usage_error(
            arguments, "--profile of several GPUs writes a file of each; '%s' is none, give the name of a file", run->profile);
    for (int k = 1; k < run->setup.n_gpus && exit_status == CLI_GOOD; k++) {
        exit_status = cli_exit(mlff_profile_rank_path(run->profile, k, path, sizeof path));
        if (exit_status == CLI_GOOD) exit_status = cli_files_check_another(arguments, "profile", path, true);
    }
    return exit_status;
}

static int run_replicas(const cli_arguments *arguments, simulation *run, const char *path)
{
    const md_replicas_task task = {.setup = &run->setup,
                                   .input = &run->input,
                                   .options = run->options,
                                   .n = run->n_replicas,
                                   .temperatures = run->temperatures,
                                   .ensemble = md_ensemble_titles[run->options.ensemble],
                                   .n_steps = run->n_steps,
                                   .every = run->every,
                                   .checkpoint_every = run->checkpoint_every,
                                   .output = run->output,
                                   .format = run->format,
                                   .checkpoint = run->checkpoint,
                                   .restart = run->restart,
                                   .has_ramp_steps = run->has_ramp_steps,
                                   .thermalize = run->thermalize,
                                   .table = run->table,
                                   .to_json = run->to_json};
    const int exit_status = md_replicas_check_files(arguments, &task);
    if (exit_status != CLI_GOOD) return exit_status;
    md_warn_if_far_from_training(run);
    mlff_status status = cli_in(path, md_replicas_run(&task));
    if (status == MLFF_ERR_UNSTABLE) status = mlff_fail(status, "%s%s", mlff_last_error(), md_doubt_of_student(run));
    return cli_exit(status);
}

static int run_md(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK, stepped;
    simulation run = {0};
    const char *path = arguments->n_positional > 1 ? arguments->positional[1] : NULL;

    int exit_status = parse(arguments, &run);
    if (exit_status == CLI_GOOD) exit_status = cli_setup_make(arguments, &run.setup);
    if (exit_status == CLI_GOOD) exit_status = check_profiles(arguments, &run);
    if (exit_status == CLI_GOOD) exit_status = cli_input_make(arguments, path, NULL, run.options.seed, &run.input);
    if (exit_status != CLI_GOOD) {
        cli_setup_free(&run.setup);
        free(run.temperatures);
        return exit_status;
    }

    MLFF_TRY(cli_input_check(run.setup.model, &run.input));
    MLFF_TRY(cli_output_check(run.checkpoint));
    cli_interrupt_catch();
    if (run.n_replicas) {
        exit_status = run_replicas(arguments, &run, path);
        goto done;
    }
    status = start(&run);
    if (!run.restart || !strstr(mlff_last_error(), run.restart)) status = cli_in(path, status); // which names its own file
    if (status != MLFF_OK) goto done;
    stepped = cli_in(path, steps(&run));
    char cause[1100];
    snprintf(cause, sizeof cause, "%s", mlff_last_error());
    md_print_summary(&run, run.n_done < run.n_steps);
    // Each file is completed whatever befell the others, also after a failed step: its frames show why it failed.
    if (run.writer) exit_status = cli_first(exit_status, mlff_writer_close(run.writer));
    run.writer = NULL;
    char profile[PATH_MAX];
    exit_status = cli_first(exit_status, save_profile(&run, profile));
    if (stepped != MLFF_OK)
        MLFF_FAIL(stepped, "%s%s%s%s", cause, stepped == MLFF_ERR_UNSTABLE ? md_doubt_of_student(&run) : "",
                  *profile ? "; kept: the profile in " : "", profile);
    md_warn_if_absurd(&run);
    if (!arguments->quiet) md_hint_at_halved_temperature(&run);
    if (run.n_done < run.n_steps)
        MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted after %" PRId64 " of %" PRId64 " step%s; what was written is kept%s%s",
                  run.n_done, run.n_steps, base_plural(run.n_steps), *profile ? ", the profile in " : "", profile);
done:
    mlff_writer_destroy(run.writer);
    mlff_dynamics_destroy(run.dynamics);
    mlff_monitor_destroy(run.monitor);
    mlff_callable_destroy(&run.callable);
    cli_input_free(&run.input);
    cli_setup_free(&run.setup);
    free(run.temperatures);
    return cli_first(exit_status, status);
}

const cli_command md_command = {
    .name = "md",
    .summary = "molecular dynamics by a model",
    .usage = "MODEL INPUT|--system NAME [--n-atoms N] [--ensemble NAME] [--temperature K] [--timestep FS]\n"
             " [--n-steps N] [--seed S] [-o TRAJ.extxyz] [--every K] [OPTIONS]",
    .details =
        "Starts from the first frame of INPUT (- is standard input) or from a built-in system. If INPUT has no velocities, they\n"
        "are drawn from the Maxwell-Boltzmann distribution at --temperature. Fixed atoms of INPUT do not move.\n"
        "The table shows potential and kinetic energy (eV), temperature (K) and the drift of the conserved energy since the\n"
        "start (meV/atom). After the run the slope of the drift is fitted. If energies or positions are no longer finite, the\n"
        "run ends with an error. Ctrl-C ends it after the current step with exit status 130; trajectory and restart file are\n"
        "kept. If a file of --profile is there already, it stays as it was, and the steps until then are in NAME-partial.json.\n"
        "A file of --checkpoint that is there is not replaced without --restart; one of -o is.",
    .examples =
        "mlff md silicon.safetensors --system silicon --n-atoms 64 --n-steps 1000 -o silicon.extxyz\n"
        "mlff md ethanol.safetensors ethanol.xyz --ensemble langevin --temperature 500 --timestep 0.5 --n-steps 20000\n"
        "mlff md water.safetensors --system water --n-atoms 192 --ensemble scr --pressure 1 --n-steps 100000\n"
        "mlff md ethanol.safetensors ethanol.xyz --replicas 4 --temperatures 300,350,400,450 --ensemble bussi -o r.extxyz\n"
        "mlff md water.safetensors --system water --n-atoms 192 --checkpoint water.restart --n-steps 100000\n"
        "mlff md water.safetensors --system water --n-atoms 192 --restart water.restart --n-steps 100000",
    .options = options,
    .min_positional = 1,
    .max_positional = 2,
    .run = run_md,
};
