// SPDX-License-Identifier: MIT
// cli.h: what the subcommands share. A command is one row of a table: its options, its help and its function are declared
// together, so that --help cannot say what the parser does not do. The command uses the libraries through include/ only.
#ifndef CLI_H
#define CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/base.h"
#include "mlff_label.h"
#include "mlff_profile.h"

enum { CLI_GOOD = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

/* ---- commands and their options: cli_options.c ------------------------------------------------- */

enum { CLI_MAX_OPTIONS = 40, CLI_MAX_GIVEN = 64 };

typedef struct cli_option {
    const char *name;  // long name, without dashes
    char letter;       // or 0
    const char *value; // placeholder shown in the help, NULL for a switch
    const char *help;  // one line or several; units and the default are said here
} cli_option;

typedef struct cli_arguments cli_arguments;
typedef struct cli_command {
    const char *name;
    const char *summary;
    const char *usage;         // what follows "mlff NAME"; a line that begins with a blank goes on from the one before
    const char *details;       // paragraph before the options
    const char *examples;      // lines, each a command that works
    const cli_option *options; // ends with a row of zeros
    int min_positional, max_positional;
    int (*run)(cli_arguments *arguments);
} cli_command;

struct cli_arguments {
    const cli_command *command;
    const char *values[CLI_MAX_OPTIONS]; // by row of command->options; "" for a switch that was given
    int given_row[CLI_MAX_GIVEN];        // every option as it came, for those that may come several times
    const char *given_value[CLI_MAX_GIVEN];
    int n_given;
    char **positional;
    int n_positional;
    bool quiet;  // nothing is to be printed for people
    bool failed; // a value was refused, and said so; the command then ends with CLI_USAGE
};

extern const cli_command *const cli_commands[]; // NULL-terminated, in the order of the help: cli_commands.c
extern const cli_option cli_common_options[];   // what every command has beside its own

extern const cli_command import_command, new_command, info_command, eval_command, md_command, relax_command, vibrations_command,
    phonons_command, analyze_command, profile_command, report_command, compare_command, bench_command, serve_command,
    check_command, devices_command, kim_command, distill_command, sample_command, label_command, train_command, verdict_command,
    completion_command, manual_command;

void cli_command_help(const cli_command *command, FILE *file);
// Runs a command on what follows its name on the command line.
int cli_command_run(const cli_command *command, int argc, char **argv);

bool cli_given(const cli_arguments *arguments, const char *name);
// Whether the command has this option at all.
bool cli_has_option(const cli_arguments *arguments, const char *name);
const char *cli_text(const cli_arguments *arguments, const char *name, const char *otherwise);
// The index-th value of an option that may be given several times; NULL past the last.
const char *cli_each(const cli_arguments *arguments, const char *name, int index);
// A number out of [minimum, maximum]; what is not sets `failed`.
int64_t cli_int(cli_arguments *arguments, const char *name, int64_t minimum, int64_t maximum, int64_t otherwise);
/* Numbers of `what` that an option lists, as 32,64,128, each from 1 to `most`. MLFF_ERR_USAGE: one is none, or there are none, or more
 * than CLI_SIZES. */
enum { CLI_SIZES = 64 };
mlff_status cli_sizes(const char *option, const char *list, const char *what, int most, int sizes[CLI_SIZES], int *n_out);
double cli_number(cli_arguments *arguments, const char *name, double minimum, double maximum, double otherwise);
// Index of the value in `choices` (NULL-terminated).
int cli_choice(cli_arguments *arguments, const char *name, const char *const *choices, int otherwise);
// Says in one line on stderr what is wrong with the command line and where help is; returns CLI_USAGE.
int cli_usage_error(const cli_arguments *arguments, const char *format, ...) MLFF_PRINTF(2, 3);

/* ---- people and machines: cli_output.c --------------------------------------------------------- */

// Warnings of the library to stderr, each text once; a closed pipe ends the command when its files are complete.
void cli_output_start(void);
// From now on no progress, and no standard output but for a command that puts its results there. False: it cannot be, and was said.
bool cli_quiet(bool keep_output);
// Ends the output: what stdout did not take is a failure, and a reader that left ends the process by SIGPIPE. Returns the exit status.
int cli_output_end(int exit_status);
// Whether the reader of stdout, such as head, has left: a command that writes no file then has nothing more to do.
bool cli_reader_left(void);
// "mlff: <text>" on stderr, above the progress line.
void cli_say(const char *format, ...) MLFF_PRINTF(1, 2);
// printf for texts that hold names or other text of files: control characters but line ends become '?', so that terminal escapes do
// not reach the terminal.
void cli_print(const char *format, ...) MLFF_PRINTF(1, 2);
// A cell of a table: a percentile with five digits, or "–" where it needs more steps than were made (P95 20, P99 100). Returns `text`.
const char *cli_percentile(char text[32], int width, double value, double fraction, int64_t n_steps);
// Reports the library's last error if status is one; returns the exit status that belongs to it.
int cli_exit(mlff_status status);
// Reports the library's last error if `status` is one, and keeps the first failure: for commands that go on after one.
int cli_first(int exit_status, mlff_status status);
// The device that --device names; without it a GPU if there is one, else the CPU, and a missing GPU gives no warning.
mlff_status cli_device(cli_arguments *arguments, mlff_device *device_out);
// The last error is that of the CPU, which device auto took since a GPU refused with `cause`, or "": adds it. Returns `status`.
enum { CLI_CAUSE = 512 };
mlff_status cli_refused_twice(mlff_status status, const char *cause);
// Puts the input's name in front of the library's error, if there is one that does not say it already; an error of a file names
// its own. Returns `status`.
mlff_status cli_in(const char *path, mlff_status status);
// Fails if a file of this name could not be written at the end of a long run. NULL and "-" are fine.
mlff_status cli_output_check(const char *path);
// Reserves space in the folder of `path` for what a long run writes there at its end, in a file without a name: nothing is left of it,
// however the command ends. Nothing is reserved for NULL, "-" and streams. Fails where there is no such space.
mlff_status cli_reserve(const char *path, int64_t bytes, base_output *reserve);
void cli_reserve_release(base_output *reserve);

// One line on a terminal's stderr that is overwritten, at most ten times a second; nothing where stderr is no terminal.
void cli_progress(const char *format, ...) MLFF_PRINTF(1, 2);
void cli_progress_steps(const char *what, int64_t step, int64_t n_steps, int64_t start_ns);
void cli_progress_clear(void);

// From now on Ctrl-C, SIGTERM and SIGHUP (unless it is ignored) ask the command to end well; a second Ctrl-C or SIGTERM kills
// it, a second SIGHUP does not.
void cli_interrupt_catch(void);
bool cli_interrupted(void);
// The process that SIGTERM and SIGHUP are passed on to from now on (Ctrl-C reaches it from the terminal), or, negative, a process group
// of its own, to which all are passed on; 0: none.
void cli_child_set(int process);

// Columns of the terminal on stdout, between 60 and 160; 100 where there is none.
int cli_width(void);

/* ---- files of a command line: cli_files.c ------------------------------------------------------- */

// Outputs named /dev/stdout, /dev/fd/1 or /proc/self/fd/1 become "-".
void cli_files_name_stdout(cli_arguments *arguments);

// Refuses a command line where an output is also an input or another output. Called for every command before it runs: an option
// shown with FILE is an output unless cli_files.c lists it as an input, every argument is an input. An exit status.
int cli_files_check(const cli_arguments *arguments);
// The same for another file that `option` writes, which must be writable too; `with_outputs`: it must not be another output either.
// An exit status.
int cli_files_check_another(const cli_arguments *arguments, const char *option, const char *path, bool with_outputs);
// Are two names the same file, by device and inode or, where neither exists yet, by folder and name? NULL, "-" and streams never are.
bool cli_outputs_collide(const char *a, const char *b);
// The same where `input` may be a model known by name, or have settings behind colons.
bool cli_overwrites(const char *output, const char *input);
// CLI_USAGE unless `path` (or NULL, "-", a stream) ends in one of `suffixes`, NULL-terminated: the form of a file is known by its name.
extern const char *const cli_extxyz[], *const cli_models[]; // suffixes
int cli_suffix_check(const cli_arguments *arguments, const char *option, const char *path, const char *const *suffixes);
/* A usage error where frames cannot be written to `path`: by --format, else by its suffix. NULL is fine. */
int cli_format_check(cli_arguments *arguments, const char *path);

/* ---- what a run that ends early keeps: cli_kept.c ------------------------------------------------- */

typedef struct cli_kept {
    mlff_status cause;
    char error[1024]; // of the run
    char text[600];   // "12 frames in a-partial.extxyz and 11 frames in a-partial.json"
    bool any_output;
    int64_t n_least; // frames in the shortest output
} cli_kept;
// Of a run that failed with `cause` and the last error.
cli_kept cli_kept_begin(mlff_status cause);
// A file with `what`, "the best student so far".
void cli_kept_thing(cli_kept *kept, const char *path, const char *what);
// An output with `n` of `what` ("frame"), which may be 0.
void cli_kept_add(cli_kept *kept, const char *path, int64_t n, const char *what);
// mlff_writer_keep of the writer, which may be NULL, and cli_kept_add.
void cli_kept_frames(cli_kept *kept, mlff_writer *writer, const char *what);
// Makes the run's error the last one, with what is kept and the remedy where something is. Returns the cause.
mlff_status cli_kept_tell(const cli_kept *kept, const char *remedy);
// The same where --skip goes on behind what is kept and `n_before` others.
mlff_status cli_kept_tell_skip(const cli_kept *kept, int64_t n_before);

/* ---- JSON, written as it comes: cli_json.c ------------------------------------------------------ */

#define CLI_EV_ANG3_PER_BAR 6.241509074e-7 // 1e5 Pa in eV/Å³

enum { CLI_JSON_DEPTH = 8 };
typedef struct cli_json {
    FILE *file;
    int depth;
    bool filled[CLI_JSON_DEPTH]; // something stands before the next value
    bool compact[CLI_JSON_DEPTH];
} cli_json;

// A key is NULL for an element of an array. What is not finite is null.
void cli_json_object(cli_json *json, const char *key);
void cli_json_array(cli_json *json, const char *key);
void cli_json_compact_array(cli_json *json, const char *key); // on one line
void cli_json_end(cli_json *json, char bracket);
void cli_json_text(cli_json *json, const char *key, const char *text); // NULL text: null
void cli_json_number(cli_json *json, const char *key, double value);
void cli_json_int(cli_json *json, const char *key, int64_t value);
void cli_json_bool(cli_json *json, const char *key, bool value);
void cli_json_numbers(cli_json *json, const char *key, const double *values, int n); // NULL values: null

/* ---- model, device and input of eval, md and profile: cli_setup.c ------------------------------- */

#define CLI_EVALUATOR_OPTIONS                                                                                                    \
    {"device", 0, "DEVICE",                                                                                                      \
     "auto, cpu or cuda:0 (auto: a GPU if one works, else the CPU); cuda:0,1: several GPUs\ndivide a system in space, or share " \
     "the frames of --batch"},                                                                                                   \
        {"precision", 0, "PRECISION",                                                                                            \
         "float32, float64 (the reference, CPU), on a GPU tf32, bf16; CPU: tf32 with AMX, bf16 of Orb (float32)"},               \
        {"threads", 0, "N", "CPU threads (all cores this process may use)"},                                                     \
        {"skin", 0, "ANGSTROM", "skin of the neighbor list, Å; a larger one needs fewer rebuilds (0.5)"},                        \
        {"members", 0, "LIST", "members of an ensemble to run, such as 0,3 (all)"},                                              \
    {                                                                                                                            \
        "random-weights", 0, NULL, "MODEL is the name of a published model, such as orb-v2: use its sizes with random weights"   \
    }
#define CLI_SYSTEM_OPTIONS                                                                                                       \
    {"system", 0, "NAME", "a built-in system instead of INPUT: " CLI_SYSTEM_NAMES},                                              \
    {                                                                                                                            \
        "n-atoms", 0, "N", "number of atoms of --system; the nearest possible number is built and reported (64)"                 \
    }
/* How structures are read, and frames written, where names do not say it. */
#define CLI_READER_OPTIONS                                                                                                       \
    {"input-format", 0, "NAME",                                                                                                  \
     "format of INPUT: extxyz, poscar, pdb, cif, lammps-data, lammps-dump,\ndcd or netcdf (default: from name and content)"},    \
    {                                                                                                                            \
        "topology", 0, "FILE", "a structure of the same atoms, or a built-in molecule: the elements of DCD, NetCDF and dumps"    \
    }
/* For long runs over the frames of INPUT, which go on behind those that are done. */
#define CLI_SKIP_OPTION                                                                                                          \
    {                                                                                                                            \
        "skip", 0, "N", "frames at the beginning of INPUT that are left out, such as those of a run that ended early (0)"        \
    }
#define CLI_FORMAT_OPTION                                                                                                        \
    {                                                                                                                            \
        "format", 0, "NAME", "format of -o: extxyz, lammps-dump, dcd or netcdf (default: from its suffix)"                       \
    }
#define CLI_SYSTEM_NAMES "silicon, aluminum, iron,\nwater, h2o, methane, ethanol, benzene, aspirin, caffeine"

enum { CLI_MAX_DEVICES = 64 };
typedef struct cli_setup {
    mlff_model *model;
    mlff_model_info info;
    mlff_evaluator *evaluator;
    mlff_evaluator_info evaluator_info;
    char device[64]; // "cpu", "cuda:0,1"
    int n_gpus;
    const char *precision;
} cli_setup;

// Loads the model and makes the evaluator that the options ask for. An exit status; CLI_GOOD has filled the setup.
int cli_setup_make(cli_arguments *arguments, cli_setup *setup);
// One line for people: model, device, precision, and whether it is untrained.
void cli_setup_print(const cli_setup *setup);
// Where the evaluator divides a system: atoms, ghosts and mean times of each domain's computations. Nothing else.
void cli_domains_print(const cli_setup *setup, double n_computes);
void cli_domains_json(const cli_setup *setup, double n_computes, cli_json *json);
void cli_setup_free(cli_setup *setup);
// Fails, and names them, if the system has elements that the model does not know.
mlff_status cli_model_check_elements(const mlff_model *model, const mlff_system *system, const char *name);
// Silicon, or, of the built-in systems whose elements the model knows, the first one with the most elements, of those that --n-atoms can change where
// it is given; silicon where it knows none.
const char *cli_default_system(const cli_arguments *arguments, const mlff_model *model);

// The system of a run and where it came from.
typedef struct cli_input {
    mlff_system *system;
    bool is_built; // by --system
    char formula[64];
    char text[512]; // one line for people: "silicon, 64 atoms (50 asked)"
} cli_input;
// Opens `path` with --input-format and --topology, where the command has them. Fails as mlff_reader_open, mlff_reader_set_topology.
mlff_status cli_reader_open(const cli_arguments *arguments, const char *path, mlff_reader **reader_out);
// Frames of `path`, again from the first after the last, with the options of cli_reader_open. Fails as mlff_trajectory_file_with.
mlff_status cli_trajectory_file(const cli_arguments *arguments, const char *path, mlff_trajectory **trajectory_out);
// mlff_reader_next, whose error names --topology where frames need one and the command has it.
mlff_status cli_reader_next(const cli_arguments *arguments, mlff_reader *reader, mlff_system **system_out);
// mlff_samples_read with the options of cli_reader_open. Fails as these and cli_reader_next.
mlff_status cli_samples_read(const cli_arguments *arguments, mlff_samples *samples, const char *path);
// Reads past the first `n` frames; *n_out is how many there were. Fails as cli_reader_next, and with MLFF_ERR_INTERRUPTED.
mlff_status cli_reader_skip(const cli_arguments *arguments, mlff_reader *reader, int64_t n, int64_t *n_out);
// The error of an input without frames, or without any behind those that --skip leaves out.
mlff_status cli_no_frames(const char *path, int64_t n_skipped);
// mlff_system_build, whose error says so where `name` is a file.
mlff_status cli_system_build(const char *name, int n_atoms, uint64_t seed, mlff_system **system_out);
// First frame of `path`, or the built-in system of --system and --n-atoms (`otherwise` if not given). An exit status.
int cli_input_make(cli_arguments *arguments, const char *path, const char *otherwise, uint64_t seed, cli_input *input);
void cli_input_free(cli_input *input);
// cli_model_check_elements, and cli_model_complete of a built-in system.
mlff_status cli_input_check(const mlff_model *model, cli_input *input);
// Built-in systems are neutral, their electrons paired: says so to a model that depends on charge and spin.
void cli_model_complete(const mlff_model *model, mlff_system *system);

/* ---- several structures in one call: cli_batch.c ------------------------------------------------ */

typedef struct cli_batch {
    mlff_batch batch; // of the arrays below
    int32_t *first_atom, *species;
    double *positions, *cells, *charges; // charges: [2 n] charges, then spins
    unsigned char *periodic;
    size_t first_capacity, species_capacity, position_capacity, cell_capacity, charge_capacity, periodic_capacity;
} cli_batch;
// Copies the systems in; arrays grow, and are used again by the next call.
mlff_status cli_batch_fill(cli_batch *batch, mlff_system *const *systems, int n);
// The s-th of them alone.
mlff_batch cli_batch_one(const cli_batch *batch, int s, int32_t first_atom[2]);
void cli_batch_free(cli_batch *batch);

/* Makes an empty folder of this process alone below TMPDIR, or /tmp: mlff-KIND-XXXXXX. `purpose` stands in messages; `folder` has PATH_MAX
 * bytes. Fails with MLFF_ERR_IO. */
mlff_status cli_temporary_folder(const char *kind, const char *purpose, char *folder);

#endif
