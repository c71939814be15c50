// SPDX-License-Identifier: MIT
// restart.c: the file from which a simulation continues bit for bit.
//
// Text, so that it can be looked at: named lines, then one line of position, velocity and force for each atom, then "end".
// Numbers are hexadecimal floats ("0x1.8p+1"), which keep every bit; the "C" locale is put in force around them.
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoms/atoms.h"
#include "atoms/dynamics/dynamics.h"

static const char magic[] = "mlff restart file";
static const char columns[] = "position_angstrom[3] velocity_angstrom_per_fs[3] force_ev_per_angstrom[3]";
static const char *const ensemble_names[] = {"nve", "langevin", "bussi", "nose-hoover", "scr", "mtk"}; // by mlff_ensemble

#define MAX_STEP (INT64_MAX / 2) // further steps can be counted without overflow
enum { LINE_BYTES = 512, ROW_VALUES = 9 };

// FNV-1a, byte after byte from the lowest.
static const uint64_t hash_start = 0xcbf29ce484222325u;

static uint64_t hash_add(uint64_t hash, uint64_t value, int n_bytes)
{
    for (int k = 0; k < n_bytes; k++) {
        hash ^= value >> 8 * k & 0xff;
        hash *= 0x100000001b3u;
    }
    return hash;
}

static uint64_t hash_species(const mlff_system *system)
{
    uint64_t hash = hash_start;
    for (int i = 0; i < system->n_atoms; i++) hash = hash_add(hash, (uint32_t)system->species[i], 4);
    return hash;
}

static uint64_t hash_masses(const mlff_system *system)
{
    uint64_t hash = hash_start, bits;
    for (int i = 0; i < system->n_atoms; i++) {
        memcpy(&bits, &system->masses[i], sizeof bits);
        hash = hash_add(hash, bits, 8);
    }
    return hash;
}

static uint64_t hash_fixed(const mlff_system *system)
{
    uint64_t hash = hash_start;
    for (int i = 0; i < system->n_atoms; i++) hash = hash_add(hash, is_fixed(system, i), 1);
    return hash;
}

// ---- writing ------------------------------------------------------------------------------------------------------------

// NVE and Langevin at one temperature have no further options and no state of a bath.
static bool has_bath_lines(const mlff_dynamics_options *options)
{
    return options->ensemble > MLFF_LANGEVIN || options->ramp_steps > 0;
}

static void write_doubles(FILE *file, const char *name, const double *values, int n)
{
    fprintf(file, "%s", name);
    for (int k = 0; k < n; k++) fprintf(file, " %a", values[k]);
    fputc('\n', file);
}

enum { N_BATH_OPTIONS = 7, N_BATH = 4 * CHAIN_LENGTH + 3 };
static const char bath_options_line[] = "bath_options"; // thermostat_fs pressure barostat_fs compressibility anisotropic ramp
static const char bath_line[] = "bath";                 // chains on atoms and cell: positions, rates; strain rates
static const char virial_line[] = "virial_ev";

static void pack_bath_options(const mlff_dynamics_options *options, double values[N_BATH_OPTIONS])
{
    const double all[N_BATH_OPTIONS] = {options->thermostat_fs,   options->pressure,         options->barostat_fs,
                                        options->compressibility, options->anisotropic != 0, (double)options->ramp_steps,
                                        options->ramp_end_kelvin};
    memcpy(values, all, sizeof all);
}

static void write_bath_options(FILE *file, const mlff_dynamics_options *options)
{
    double values[N_BATH_OPTIONS];
    pack_bath_options(options, values);
    write_doubles(file, bath_options_line, values, N_BATH_OPTIONS);
}

static void write_bath(FILE *file, const mlff_dynamics *dynamics)
{
    const dynamics_bath *bath = &dynamics->bath;
    double values[N_BATH];
    memcpy(values, &bath->on_atoms, sizeof bath->on_atoms);
    memcpy(values + 2 * CHAIN_LENGTH, &bath->on_cell, sizeof bath->on_cell);
    memcpy(values + 4 * CHAIN_LENGTH, bath->strain_rate, sizeof bath->strain_rate);
    write_doubles(file, bath_line, values, N_BATH);
    write_doubles(file, virial_line, dynamics->virial, 3);
}

static void write_state(FILE *file, const mlff_dynamics *dynamics)
{
    const mlff_system *system = dynamics->system;
    const mlff_dynamics_options *options = &dynamics->options;
    fprintf(file, "%s\n", magic);
    fprintf(file, "n_atoms %d\n", system->n_atoms);
    fprintf(file, "species_hash %016" PRIx64 "\n", hash_species(system));
    fprintf(file, "masses_hash %016" PRIx64 "\n", hash_masses(system));
    fprintf(file, "fixed_hash %016" PRIx64 "\n", hash_fixed(system));
    fprintf(file, "cell_angstrom");
    for (int k = 0; k < 9; k++) fprintf(file, " %a", system->cell[k]);
    fprintf(file, "\nperiodic %d %d %d\n", system->periodic[0] != 0, system->periodic[1] != 0, system->periodic[2] != 0);
    fprintf(file, "ensemble %s\n", ensemble_names[options->ensemble]);
    fprintf(file, "timestep_fs %a\n", options->timestep_fs);
    fprintf(file, "temperature_kelvin %a\n", options->temperature_kelvin);
    fprintf(file, "friction_per_fs %a\n", options->friction_per_fs);
    fprintf(file, "seed %016" PRIx64 "\n", options->seed);
    if (has_bath_lines(options)) write_bath_options(file, options);
    fprintf(file, "step %" PRId64 "\n", dynamics->step);
    fprintf(file, "time_fs %a\n", dynamics->time_fs);
    fprintf(file, "bath_heat_ev %a\n", dynamics->bath.heat);
    if (has_bath_lines(options)) write_bath(file, dynamics);
    fprintf(file, "has_forces %d\n", dynamics->has_forces);
    fprintf(file, "potential_energy_ev %a\n", dynamics->potential_energy);
    fprintf(file, "atoms %s\n", columns);
    for (int i = 0; i < system->n_atoms; i++) {
        const double *rows[3] = {system->positions, system->velocities, dynamics->forces};
        for (int k = 0; k < ROW_VALUES; k++) fprintf(file, "%s%a", k ? " " : "", rows[k / 3][3 * (size_t)i + (size_t)(k % 3)]);
        fputc('\n', file);
    }
    fprintf(file, "end\n");
}

mlff_status mlff_dynamics_save(const mlff_dynamics *dynamics, const char *path)
{
    if (!dynamics || !path) return mlff_fail(MLFF_ERR_USAGE, "mlff_dynamics_save: no dynamics or no path");
    base_output output;
    mlff_status status = base_output_open(path, &output);
    if (status != MLFF_OK) return status;
    locale_t callers = uselocale(base_c_locale());
    write_state(output.file, dynamics);
    uselocale(callers);
    return base_output_commit(&output);
}

// ---- reading ------------------------------------------------------------------------------------------------------------

typedef struct restart_reader {
    const char *path;
    FILE *file;
    int64_t line_number;
    char line[LINE_BYTES], *value; /* the value is what follows a line's name */
} restart_reader;

// The next line, without its end.
static mlff_status next_line(restart_reader *reader)
{
    reader->line_number++;
    if (!fgets(reader->line, sizeof reader->line, reader->file)) {
        if (ferror(reader->file)) return base_fail_reading(reader->path, errno);
        return mlff_fail(MLFF_ERR_FORMAT, "%s: ends before line %" PRId64 "; it is cut off, use an earlier restart file",
                         reader->path, reader->line_number);
    }
    size_t length = strlen(reader->line);
    if (length == 0 || reader->line[length - 1] != '\n')
        return mlff_fail(MLFF_ERR_FORMAT, "%s:%" PRId64 ": the line is cut off or not of a restart file", reader->path,
                         reader->line_number);
    reader->line[length - 1] = 0;
    return MLFF_OK;
}

// The next line must be `name`, a blank, and a value.
static mlff_status named_line(restart_reader *reader, const char *name)
{
    mlff_status status = next_line(reader);
    if (status != MLFF_OK) return status;
    size_t length = strlen(name);
    if (strncmp(reader->line, name, length) != 0 || reader->line[length] != ' ')
        return mlff_fail(MLFF_ERR_FORMAT, "%s:%" PRId64 ": \"%.40s\", expected %s", reader->path, reader->line_number,
                         reader->line, name);
    reader->value = reader->line + length + 1;
    return MLFF_OK;
}

// Exactly n finite numbers, one blank between.
static mlff_status parse_doubles(const restart_reader *reader, char *text, int n, double *values)
{
    for (int k = 0; k < n; k++) {
        char *end = text + strcspn(text, " ");
        bool last = *end == 0;
        *end = 0;
        if (!base_parse_double(text, &values[k]) || !isfinite(values[k]) || last != (k == n - 1))
            return mlff_fail(MLFF_ERR_FORMAT, "%s:%" PRId64 ": %d finite numbers expected, number %d is \"%.40s\"", reader->path,
                             reader->line_number, n, k + 1, text);
        text = end + 1;
    }
    return MLFF_OK;
}

static mlff_status named_doubles(restart_reader *reader, const char *name, int n, double *values)
{
    mlff_status status = named_line(reader, name);
    char *text = reader->value;
    return status == MLFF_OK ? parse_doubles(reader, text, n, values) : status;
}

static mlff_status named_integer(restart_reader *reader, const char *name, int64_t low, int64_t high, int64_t *value_out)
{
    mlff_status status = named_line(reader, name);
    char *text = reader->value;
    if (status != MLFF_OK) return status;
    if (!base_parse_int64(text, value_out) || *value_out < low || *value_out > high)
        return mlff_fail(MLFF_ERR_FORMAT, "%s:%" PRId64 ": %s is \"%.40s\", expected a whole number from %" PRId64 " to %" PRId64,
                         reader->path, reader->line_number, name, text, low, high);
    return MLFF_OK;
}

static mlff_status named_hash(restart_reader *reader, const char *name, uint64_t *value_out)
{
    mlff_status status = named_line(reader, name);
    char *text = reader->value;
    if (status != MLFF_OK) return status;
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return mlff_fail(MLFF_ERR_FORMAT, "%s:%" PRId64 ": %s is \"%.40s\", expected 16 hexadecimal digits", reader->path,
                         reader->line_number, name, text);
    *value_out = strtoull(text, NULL, 16);
    return MLFF_OK;
}

static mlff_status read_magic(restart_reader *reader)
{
    const mlff_status status = next_line(reader);
    if (status == MLFF_ERR_IO) return status;
    if (status != MLFF_OK || strcmp(reader->line, magic) != 0)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: is not a restart file; it does not begin with \"%s\"", reader->path, magic);
    return MLFF_OK;
}

// The lines that say of which system the file is. *others_out: other masses or other fixed atoms, which are not refused.
static mlff_status read_system(restart_reader *reader, const mlff_system *system, double cell[9], bool *others_out)
{
    mlff_status status = MLFF_OK;
    int64_t n_atoms;
    uint64_t hash, masses, fixed;
    double periodic[3];
    MLFF_TRY(read_magic(reader));
    MLFF_TRY(named_integer(reader, "n_atoms", 1, INT32_MAX, &n_atoms));
    if (n_atoms != system->n_atoms)
        MLFF_FAIL(MLFF_ERR_VALUE, "%s: is of a system of %" PRId64 " atom%s, this one has %d; use the input the run began with",
                  reader->path, n_atoms, base_plural(n_atoms), system->n_atoms);
    MLFF_TRY(named_hash(reader, "species_hash", &hash));
    if (hash != hash_species(system))
        MLFF_FAIL(MLFF_ERR_VALUE,
                  "%s: is of a system with other elements or another order of atoms; use the input the run began with",
                  reader->path);
    MLFF_TRY(named_hash(reader, "masses_hash", &masses));
    MLFF_TRY(named_hash(reader, "fixed_hash", &fixed));
    MLFF_TRY(named_doubles(reader, "cell_angstrom", 9, cell));
    MLFF_TRY(named_doubles(reader, "periodic", 3, periodic));
    for (int axis = 0; axis < 3; axis++)
        if ((periodic[axis] != 0) != (system->periodic[axis] != 0))
            MLFF_FAIL(MLFF_ERR_VALUE, "%s: is of a system with another periodicity; use the input the run began with",
                      reader->path);
    *others_out = masses != hash_masses(system) || fixed != hash_fixed(system);
    if (masses != hash_masses(system))
        base_warn("%s: was written by a run with other masses; this one continues with those of its input", reader->path);
    if (fixed != hash_fixed(system))
        base_warn("%s: was written by a run in which other atoms were fixed; this one continues with those that its input fixes",
                  reader->path);
done:
    return status;
}

// The line of options that only some ensembles have; where they differ, a warning says so.
static mlff_status read_bath_options(restart_reader *reader, mlff_dynamics_options *then, const mlff_dynamics_options *now)
{
    mlff_status status = MLFF_OK;
    double values[N_BATH_OPTIONS], ours[N_BATH_OPTIONS];
    const int64_t at = reader->line_number;
    const long place = ftell(reader->file);
    MLFF_TRY(next_line(reader));
    if (strncmp(reader->line, bath_options_line, strlen(bath_options_line)) != 0) { // a file without them
        if (place < 0 || fseek(reader->file, place, SEEK_SET) != 0) MLFF_TRY(base_fail_reading(reader->path, errno));
        reader->line_number = at;
        return MLFF_OK;
    }
    MLFF_TRY(parse_doubles(reader, reader->line + sizeof bath_options_line, N_BATH_OPTIONS, values));
    pack_bath_options(now, ours);
    if (then->ensemble == now->ensemble && memcmp(values, ours, sizeof ours) != 0)
        base_warn(
            "%s: was written by a run with other settings of thermostat, barostat or ramp; this one continues with its own and "
            "will not be the same to the bit",
            reader->path);
    then->ramp_steps = fabs(values[5]) < (double)MAX_STEP ? (int64_t)values[5] : 0;
done:
    return status;
}

// State of thermostat and barostat, where the file's ensemble has one.
static mlff_status read_bath(restart_reader *reader, const mlff_dynamics_options *then, dynamics_bath *bath, double virial[3])
{
    mlff_status status = MLFF_OK;
    double values[N_BATH];
    if (!has_bath_lines(then)) return MLFF_OK;
    MLFF_TRY(named_doubles(reader, bath_line, N_BATH, values));
    MLFF_TRY(named_doubles(reader, virial_line, 3, virial));
    memcpy(&bath->on_atoms, values, sizeof bath->on_atoms);
    memcpy(&bath->on_cell, values + 2 * CHAIN_LENGTH, sizeof bath->on_cell);
    memcpy(bath->strain_rate, values + 4 * CHAIN_LENGTH, sizeof bath->strain_rate);
done:
    return status;
}

// The lines that say how the file's run was made; where this one is made otherwise, a warning says so.
static mlff_status read_options(restart_reader *reader, const mlff_dynamics_options *now, mlff_dynamics_options *then_out)
{
    mlff_status status = MLFF_OK;
    mlff_dynamics_options then = mlff_dynamics_options_default();
    MLFF_TRY(named_line(reader, "ensemble"));
    const char *name = reader->value;
    int ensemble = 0;
    while (ensemble <= MLFF_MTK && strcmp(name, ensemble_names[ensemble]) != 0) ensemble++;
    if (ensemble > MLFF_MTK)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s:%" PRId64 ": ensemble \"%.40s\" is unknown", reader->path, reader->line_number, name);
    then.ensemble = (mlff_ensemble)ensemble;
    MLFF_TRY(named_doubles(reader, "timestep_fs", 1, &then.timestep_fs));
    MLFF_TRY(named_doubles(reader, "temperature_kelvin", 1, &then.temperature_kelvin));
    MLFF_TRY(named_doubles(reader, "friction_per_fs", 1, &then.friction_per_fs));
    MLFF_TRY(named_hash(reader, "seed", &then.seed));
    MLFF_TRY(read_bath_options(reader, &then, now));
    bool same = then.ensemble == now->ensemble && then.timestep_fs == now->timestep_fs;
    if (now->ensemble != MLFF_NVE) same = same && then.temperature_kelvin == now->temperature_kelvin && then.seed == now->seed;
    if (now->ensemble == MLFF_LANGEVIN) same = same && then.friction_per_fs == now->friction_per_fs;
    *then_out = then;
    if (!same)
        base_warn(
            "%s: was written by a run with %s, %g fs, %g K, friction %g/fs, seed %" PRIu64
            "; this one continues with %s, %g fs, %g K, friction %g/fs, seed %" PRIu64 " and will not be the same to the bit",
            reader->path, ensemble_names[then.ensemble], then.timestep_fs, then.temperature_kelvin, then.friction_per_fs,
            then.seed, ensemble_names[now->ensemble], now->timestep_fs, now->temperature_kelvin, now->friction_per_fs, now->seed);
done:
    return status;
}

// Constant pressure changes the cell. 1e-6 Å: that of the input may have gone through a text file.
static void warn_of_cell(const restart_reader *reader, mlff_ensemble then, const double cell[9], const mlff_system *system)
{
    bool differs = false;
    for (int k = 0; k < 9; k++) differs = differs || !(fabs(cell[k] - system->cell[k]) <= 1e-6);
    if (differs && !is_constant_pressure(then))
        base_warn("%s: its cell is not that of the input; this run continues with that of the file", reader->path);
}

// Reads the rows of the atoms into arrays of [n_atoms][3].
static mlff_status read_atoms(restart_reader *reader, int n_atoms, double *positions, double *velocities, double *forces)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(named_line(reader, "atoms"));
    if (strcmp(reader->value, columns) != 0)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s:%" PRId64 ": columns are \"%.120s\", expected \"%s\"", reader->path, reader->line_number,
                  reader->value, columns);
    for (size_t i = 0; i < (size_t)n_atoms; i++) {
        double row[ROW_VALUES];
        MLFF_TRY(next_line(reader));
        MLFF_TRY(parse_doubles(reader, reader->line, ROW_VALUES, row));
        memcpy(positions + 3 * i, row, 3 * sizeof *row);
        memcpy(velocities + 3 * i, row + 3, 3 * sizeof *row);
        memcpy(forces + 3 * i, row + 6, 3 * sizeof *row);
    }
    MLFF_TRY(next_line(reader));
    if (strcmp(reader->line, "end") != 0 || fgetc(reader->file) != EOF)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s:%" PRId64 ": more lines than a system of %d atom%s has; the file is damaged", reader->path,
                  reader->line_number, n_atoms, base_plural(n_atoms));
done:
    return status;
}

static mlff_status restore(mlff_dynamics *dynamics, restart_reader *reader)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = dynamics->system;
    size_t bytes = 3 * (size_t)system->n_atoms * sizeof(double);
    int64_t step, has_forces;
    double time_fs, energy, *forces = dynamics->forces, cell[9], virial[3] = {0};
    dynamics_bath bath = {0};
    bool others = false;
    mlff_dynamics_options then = mlff_dynamics_options_default();
    MLFF_TRY(read_system(reader, system, cell, &others));
    MLFF_TRY(read_options(reader, &dynamics->options, &then));
    MLFF_TRY(named_integer(reader, "step", 0, MAX_STEP, &step));
    MLFF_TRY(named_doubles(reader, "time_fs", 1, &time_fs));
    MLFF_TRY(named_doubles(reader, "bath_heat_ev", 1, &bath.heat));
    MLFF_TRY(read_bath(reader, &then, &bath, virial));
    MLFF_TRY(named_integer(reader, "has_forces", 0, 1, &has_forces));
    MLFF_TRY(named_doubles(reader, "potential_energy_ev", 1, &energy));
    // Into the arrays that only a step uses, so that a file that fails changes nothing.
    MLFF_TRY(read_atoms(reader, system->n_atoms, dynamics->old_positions, dynamics->old_velocities, dynamics->new_forces));

    const bool lacks_virial = is_constant_pressure(dynamics->options.ensemble) && !is_constant_pressure(then.ensemble);
    warn_of_cell(reader, then.ensemble, cell, system);
    memcpy(system->positions, dynamics->old_positions, bytes);
    memcpy(system->velocities, dynamics->old_velocities, bytes);
    for (int i = 0; i < system->n_atoms; i++)
        if (is_fixed(system, i)) memset(system->velocities + 3 * (size_t)i, 0, 3 * sizeof(double));
    // As at creation: the run that wrote the file may have moved the whole.
    if (dynamics->options.ensemble > MLFF_LANGEVIN && (then.ensemble <= MLFF_LANGEVIN || others) &&
        dynamics_conserves_momentum(dynamics))
        atoms_stop_drift(system);
    dynamics->forces = dynamics->new_forces;
    dynamics->new_forces = forces;
    dynamics->step = step;
    dynamics->time_fs = time_fs;
    dynamics->bath = bath;
    memcpy(dynamics->virial, virial, sizeof virial);
    memcpy(system->cell, cell, sizeof cell);
    dynamics->potential_energy = energy;
    dynamics->has_forces = has_forces != 0 && !lacks_virial;
    dynamics->placed = false; // a device has others
    dynamics->guarded = false;
done:
    return status;
}

mlff_status mlff_dynamics_restore(mlff_dynamics *dynamics, const char *path)
{
    if (!dynamics || !path) return mlff_fail(MLFF_ERR_USAGE, "mlff_dynamics_restore: no dynamics or no path");
    restart_reader reader = {.path = path, .value = reader.line};
    mlff_status status = base_open(path, "r", &reader.file);
    if (status != MLFF_OK) return status;
    locale_t callers = uselocale(base_c_locale());
    status = restore(dynamics, &reader);
    uselocale(callers);
    fclose(reader.file);
    return status;
}
