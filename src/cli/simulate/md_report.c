// SPDX-License-Identifier: MIT
// md_report.c: the table, the summary and the warnings of mlff md.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "cli/simulate/md.h"
#include "cli/simulate/md_replicas.h"

// Beyond these a run is no simulation of anything: good ones drift by less than 1 meV/atom and stay near their temperature.
#define ABSURD_DRIFT 50.0 // meV/atom, NVE
#define ABSURD_HEATING 10.0
const char *const md_ensembles[] = {"nve", "langevin", "bussi", "nose-hoover", "scr", "mtk", NULL};
const char *const md_ensemble_titles[] = {"NVE (velocity Verlet)",
                                          "Langevin (BAOAB)",
                                          "NVT (stochastic velocity rescaling)",
                                          "NVT (Nosé-Hoover chains)",
                                          "NPT (stochastic cell rescaling)",
                                          "NPT (Martyna-Tobias-Klein)"};

static double drift_mev_per_atom(const simulation *run)
{
    return 1000 * (run->last.conserved_energy - run->first.conserved_energy) / run->input.system->n_atoms;
}

void md_print_header(const simulation *run)
{
    cli_setup_print(&run->setup);
    cli_print("%s; %s, timestep %g fs; %s\n", run->input.text, md_ensemble_titles[run->options.ensemble],
              run->options.timestep_fs, run->velocities);
    if (run->in_domains)
        printf("integrated in the %s, each by its own thread; the atoms are gathered for lines and files\n", run->integrated_on);
    else if (run->resident)
        printf("integrated on %s, where the atoms stay between lines and files\n", run->integrated_on);
    printf("%10s %12s %16s %12s %10s %12s", "step", "time", "E_pot", "E_kin", "T", "drift");
    if (run->constant_pressure) printf(" %12s %12s", "volume", "pressure");
    printf("\n%10s %12s %16s %12s %10s %12s", "", "fs", "eV", "eV", "K", "meV/atom");
    if (run->constant_pressure) printf(" %12s %12s", "Å³ ", "bar"); // one column: Å and ³ are two bytes each
    putchar('\n');
}

void md_show(simulation *run)
{
    const mlff_dynamics_state *state = &run->last;
    if (run->table)
        printf("%10" PRId64 " %12.2f %16.6f %12.6f %10.2f %12.5f", state->step, state->time_fs, state->potential_energy,
               state->kinetic_energy, state->temperature_kelvin, drift_mev_per_atom(run));
    if (run->table && run->constant_pressure) printf(" %12.3f %12.1f", state->volume, state->pressure / CLI_EV_ANG3_PER_BAR);
    if (run->table) putchar('\n');
    fflush(stdout); // each line as it comes, also into a pipe or a file
    if (!run->to_json) return;
    cli_json *json = &run->json;
    cli_json_object(json, NULL);
    cli_json_int(json, "step", state->step);
    cli_json_number(json, "time_fs", state->time_fs);
    cli_json_number(json, "potential_energy_ev", state->potential_energy);
    cli_json_number(json, "kinetic_energy_ev", state->kinetic_energy);
    cli_json_number(json, "temperature_kelvin", state->temperature_kelvin);
    cli_json_number(json, "drift_mev_per_atom", drift_mev_per_atom(run));
    if (run->constant_pressure) {
        cli_json_number(json, "volume_ang3", state->volume);
        cli_json_number(json, "pressure_bar", state->pressure / CLI_EV_ANG3_PER_BAR);
    }
    cli_json_end(json, '}');
}

static double mean_temperature(const simulation *run)
{
    return run->n_states ? run->temperature_sum / (double)run->n_states : run->last.temperature_kelvin;
}

// Fitted slope of the conserved energy and the half width of its 95 % interval, meV/atom/ps.
static void drift_slope(const simulation *run, double *slope_out, double *half_out)
{
    const double unit = 1000 / (run->options.timestep_fs * 1e-3 * run->input.system->n_atoms);
    md_series_slope(&run->drift, slope_out, half_out);
    *slope_out *= unit;
    *half_out *= unit;
}

static double density_at_mean_volume(const simulation *run)
{
    const mlff_system *system = run->input.system;
    return mlff_system_density(system) * mlff_system_volume(system) * (double)run->n_states / run->volume_sum;
}

// Of constant pressure, with standard errors where the run is long enough for them.
static void print_means(const simulation *run)
{
    const double volume = run->volume_sum / (double)run->n_states, of_volume = md_series_error(&run->volume);
    const double pressure = run->pressure_sum / (double)run->n_states / CLI_EV_ANG3_PER_BAR;
    const double of_pressure = md_series_error(&run->pressure) / CLI_EV_ANG3_PER_BAR, density = density_at_mean_volume(run);
    if (isfinite(of_volume) && isfinite(of_pressure))
        printf("mean volume %.3f ± %.2g Å³ (%.4f ± %.2g g/cm³), mean pressure %.1f ± %.*f bar (standard errors of ten blocks of ",
               volume, of_volume, density, density * of_volume / volume, pressure, of_pressure < 10, of_pressure);
    else
        printf("mean volume %.3f Å³ (%.4f g/cm³), mean pressure %.1f bar (of ", volume, density, pressure);
    printf("%" PRId64 " state%s)\n", run->n_states, base_plural(run->n_states));
}

void md_hint_at_halved_temperature(const simulation *run)
{
    const double asked = run->options.temperature_kelvin, mean = mean_temperature(run);
    if (run->options.ensemble != MLFF_NVE || !run->drawn || run->n_states < 100 || !(mean > 0.35 * asked && mean < 0.7 * asked))
        return;
    fflush(stdout);
    cli_say("hint: the mean temperature is %.4g K, where velocities were drawn at %.4g K: from a start near an energy minimum, "
            "half of "
            "the kinetic energy becomes potential energy. Run with --ensemble bussi or langevin first, or draw at %.4g K",
            mean, asked, 2 * asked);
}

void md_warn_if_far_from_training(simulation *run)
{
    const double asked = run->options.ramp_steps > 0 ? fmax(run->options.temperature_kelvin, run->options.ramp_end_kelvin)
                                                     : run->options.temperature_kelvin;
    double highest;
    if (!mlff_model_extrapolates_at(run->setup.model, asked, &highest)) return;
    cli_say("warning: the model was trained at up to %g K; at %g K its forces are extrapolated", highest, asked);
    run->told.told_temperature = true;
}

void md_warn_if_ramp_is_over(const mlff_dynamics_options *options, int64_t step)
{
    if (options->ramp_steps == 0 || step < options->ramp_steps) return;
    cli_say("warning: the ramp ends at step %" PRId64 ", as --ramp-steps, by default --n-steps, counts from step 0, and this run "
            "begins at step %" PRId64 ": the thermostat is at %g K from its start",
            options->ramp_steps, step, options->ramp_end_kelvin);
}

void md_watch_extrapolation(simulation *run)
{
    mlff_evaluator_info info;
    char text[EXTRAPOLATION_TEXT];
    mlff_evaluator_info_get(run->setup.evaluator, &info);
    if (extrapolation_by_distance(&run->told, run->setup.model, info.n_near_pairs, text))
        cli_say("warning: step %" PRId64 ": %s", run->last.step, text);
    if (extrapolation_by_temperature(&run->told, run->setup.model, run->last.temperature_kelvin, run->n_free, text))
        cli_say("warning: step %" PRId64 ": %s", run->last.step, text);
}

const char *md_doubt_of_student(const simulation *run)
{
    const char *key;
    for (int k = 0; (key = mlff_model_metadata(run->setup.model, k, NULL)); k++)
        if (strncmp(key, "training.", strlen("training.")) == 0)
            return "; or the student does not know such structures: judge it with mlff verdict, and train it with labels of them";
    return "";
}

void md_warn_if_absurd(const simulation *run)
{
    double drift = drift_mev_per_atom(run), hottest = fmax(mean_temperature(run), run->last.temperature_kelvin);
    double asked = fmax(run->options.temperature_kelvin, run->first.temperature_kelvin);
    fflush(stdout); // the summary goes before what is said of it
    if (run->options.ensemble == MLFF_NVE && fabs(drift) > ABSURD_DRIFT)
        cli_say("warning: the conserved energy drifted by %.3g meV/atom: this is not a trajectory of the model; halve --timestep "
                "(now %g fs) or relax the start%s",
                drift, run->options.timestep_fs, md_doubt_of_student(run));
    if (asked > 0 && hottest > ABSURD_HEATING * asked)
        cli_say("warning: the temperature is %.4g K where %.4g K was asked for: the start was strained or the run has exploded; "
                "relax the start or halve --timestep (now %g fs)%s",
                hottest, asked, run->options.timestep_fs, md_doubt_of_student(run));
}

void md_print_summary(simulation *run, bool partial)
{
    double seconds = (double)run->step_ns * 1e-9, wall = (double)run->wall_ns * 1e-9, n = (double)run->n_done;
    double rate = n > 0 && seconds > 0 ? n / seconds : NAN, ns_per_day = rate * run->options.timestep_fs * 0.0864;
    double temperature = mean_temperature(run), slope, half;
    drift_slope(run, &slope, &half);
    mlff_evaluator_info info;
    mlff_evaluator_info_get(run->setup.evaluator, &info);
    if (run->table) {
        printf("\n%" PRId64 " step%s%s", run->n_done, base_plural(run->n_done),
               partial ? cli_interrupted() ? " (interrupted)" : " (stopped)" : "");
        if (run->n_done > 0) {
            printf(" in %.3f s: %.1f steps/s, %.3f ms a step, %.3f ns/day", seconds, rate, 1e3 * seconds / n, ns_per_day);
            if (wall > 1.05 * seconds) printf("; with output %.3f s, %.3f ns/day", wall, ns_per_day * seconds / wall);
        }
        putchar('\n');
        printf("mean temperature %.2f K", temperature);
        if (run->resident && run->n_states) printf(" (of %" PRId64 " state%s)", run->n_states, base_plural(run->n_states));
        if (isfinite(slope))
            printf(", drift of the conserved energy %.4g ± %.2g meV/atom/ps (fitted slope, 95 %%)\n", slope, half);
        else
            printf(", drift of the conserved energy %.5f meV/atom over %g fs\n", drift_mev_per_atom(run),
                   run->last.time_fs - run->first.time_fs);
        if (run->constant_pressure && run->n_states) print_means(run);
        printf("neighbor list rebuilt %" PRId64 " time%s\n", info.n_rebuilds, base_plural(info.n_rebuilds));
        cli_domains_print(&run->setup, (double)info.n_computes);
    }
    if (!run->to_json) return;
    cli_json *json = &run->json;
    cli_json_end(json, ']');
    cli_json_object(json, "summary");
    cli_json_text(json, "model", run->setup.info.name);
    cli_json_bool(json, "trained", run->setup.info.trained);
    cli_json_text(json, "device", run->setup.device);
    cli_json_text(json, "precision", run->setup.precision);
    cli_json_text(json, "integrated_on", run->integrated_on);
    cli_json_text(json, "system", run->input.text);
    cli_json_int(json, "n_atoms", run->input.system->n_atoms);
    cli_json_text(json, "ensemble", md_ensembles[run->options.ensemble]);
    cli_json_number(json, "timestep_fs", run->options.timestep_fs);
    cli_json_int(json, "n_steps", run->n_done);
    cli_json_bool(json, "partial", partial);
    cli_json_number(json, "total_time_s", seconds);
    cli_json_number(json, "wall_time_s", (double)run->wall_ns * 1e-9);
    cli_json_number(json, "steps_per_second", rate);
    cli_json_number(json, "ns_per_day", ns_per_day);
    cli_json_number(json, "mean_temperature_kelvin", temperature);
    cli_json_number(json, "drift_mev_per_atom", drift_mev_per_atom(run));
    cli_json_number(json, "drift_slope_mev_per_atom_per_ps", slope);
    cli_json_number(json, "drift_slope_half_width", half);
    if (run->constant_pressure && run->n_states) {
        cli_json_number(json, "mean_volume_ang3", run->volume_sum / (double)run->n_states);
        cli_json_number(json, "mean_volume_error_ang3", md_series_error(&run->volume));
        cli_json_number(json, "density_at_mean_volume_g_per_cm3", density_at_mean_volume(run));
        cli_json_number(json, "mean_pressure_bar", run->pressure_sum / (double)run->n_states / CLI_EV_ANG3_PER_BAR);
        cli_json_number(json, "mean_pressure_error_bar", md_series_error(&run->pressure) / CLI_EV_ANG3_PER_BAR);
    }
    cli_json_int(json, "n_rebuilds", info.n_rebuilds);
    cli_domains_json(&run->setup, (double)info.n_computes, json);
    cli_json_end(json, '}');
    cli_json_end(json, '}');
}
