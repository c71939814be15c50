// SPDX-License-Identifier: MIT
// cli_setup.c: what eval, md and profile begin with: a model, an evaluator on a device, and a system to work on.
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "cli.h"

// In the order of mlff_precision, from float32.
static const char *const precisions[] = {"float32", "float64", "tf32", "bf16", NULL};

mlff_status cli_device(cli_arguments *arguments, mlff_device *device_out)
{
    if (cli_given(arguments, "device")) return mlff_device_parse(cli_text(arguments, "device", NULL), device_out);
    return mlff_device_parse("cuda", device_out) == MLFF_OK ? MLFF_OK : mlff_device_parse("cpu", device_out);
}

mlff_status cli_refused_twice(mlff_status status, const char *cause)
{
    if (status != MLFF_ERR_UNSUPPORTED || !cause[0]) return status;
    return mlff_fail(status, "%s (device auto: %s)", mlff_last_error(), cause);
}

// Takes the CPU where the device is "auto" and the GPU has no path for this model or precision.
static mlff_status make_evaluator(const cli_arguments *arguments, const mlff_model *model, mlff_evaluator_options *options,
                                  mlff_device *devices, mlff_evaluator **evaluator_out)
{
    char cause[CLI_CAUSE];
    const bool any = strcmp(cli_text(arguments, "device", "auto"), "auto") == 0;
    snprintf(cause, sizeof cause, "%s", mlff_device_problem());
    mlff_status status = mlff_evaluator_create(model, options, evaluator_out);
    if (status == MLFF_ERR_UNSUPPORTED && any && devices[0].kind == MLFF_CUDA) {
        snprintf(cause, sizeof cause, "%s", mlff_last_cause());
        if (cli_given(arguments, "device")) base_warn("device auto: %s; using the CPU", cause);
        devices[0] = (mlff_device){.kind = MLFF_CPU};
        status = mlff_evaluator_create(model, options, evaluator_out);
    }
    return any ? cli_refused_twice(status, cause) : status;
}

int cli_setup_make(cli_arguments *arguments, cli_setup *setup)
{
    mlff_status status = MLFF_OK;
    cli_setup made = {0};
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_device devices[CLI_MAX_DEVICES];

    int precision = cli_choice(arguments, "precision", precisions, 0);
    options.n_threads = (int)cli_int(arguments, "threads", 1, 4096, 0);
    options.skin_angstrom = cli_number(arguments, "skin", 0, 10, options.skin_angstrom);
    if (arguments->failed) return CLI_USAGE;
    options.precision = (mlff_precision)(MLFF_FLOAT32 + precision);
    options.members = cli_text(arguments, "members", NULL);

    // Without --device the choice is "auto", and a missing GPU gives no warning; the report names the device.
    options.devices = devices;
    options.n_devices = 1;
    if (cli_given(arguments, "device"))
        MLFF_TRY(mlff_devices_parse(cli_text(arguments, "device", NULL), devices, CLI_MAX_DEVICES, &options.n_devices));
    else if (mlff_device_parse("cuda", devices) != MLFF_OK)
        MLFF_TRY(mlff_device_parse("cpu", devices));
    if (cli_given(arguments, "random-weights"))
        MLFF_TRY(mlff_model_create(arguments->positional[0], NULL, &made.model));
    else
        status = mlff_model_load(arguments->positional[0], &made.model);
    if (status == MLFF_ERR_IO && mlff_teacher_is_process(arguments->positional[0]))
        MLFF_FAIL(status, "%s is a teacher, for sample, label, distill, verdict and profile; give a model file",
                  arguments->positional[0]);
    MLFF_TRY(status);
    mlff_model_info_get(made.model, &made.info);
    MLFF_TRY(make_evaluator(arguments, made.model, &options, devices, &made.evaluator));
    mlff_evaluator_info_get(made.evaluator, &made.evaluator_info);
    mlff_devices_text(devices, options.n_devices, made.device, sizeof made.device);
    made.n_gpus = devices[0].kind == MLFF_CUDA ? options.n_devices : 0;
    made.precision = precisions[precision];

    *setup = made;
    made = (cli_setup){0};
done:
    cli_setup_free(&made);
    return cli_exit(status);
}

void cli_setup_print(const cli_setup *setup)
{
    bool said = setup->info.trained || strstr(setup->info.description, "untrained");
    cli_print("%s%s; on %s, %s\n", setup->info.description, said ? "" : ", untrained", setup->device, setup->precision);
}

void cli_domains_print(const cli_setup *setup, double n_computes)
{
    mlff_domain_info domains[CLI_MAX_DEVICES];
    const int n = mlff_evaluator_domains(setup->evaluator, domains, CLI_MAX_DEVICES);
    int most = 0, sum = 0;
    if (n < 2) return;
    printf("%8s %10s %10s %12s %12s %12s\n%8s %10s %10s %12s %12s %12s\n", "domain", "atoms", "ghosts", "compute", "exchange",
           "wait", "", "", "", "ms a step", "ms a step", "ms a step");
    for (int k = 0; k < n; k++) {
        const mlff_domain_info *d = &domains[k];
        char device[16];
        mlff_device_text(d->device, device, sizeof device);
        printf("%8s %10d %10d %12.3f %12.3f %12.3f\n", device, d->n_owned, d->n_ghosts, 1e-6 * d->compute_ns / n_computes,
               1e-6 * d->exchange_ns / n_computes, 1e-6 * d->wait_ns / n_computes);
        const int n_atoms = d->n_owned + d->n_ghosts;
        most = n_atoms > most ? n_atoms : most;
        sum += n_atoms;
    }
    // Not of times: on a busy machine threads that wait for a processor make any domain seem slow.
    printf("the largest domain has %d atom%s with its ghosts, %.1f %% more than the mean\n", most, base_plural(most),
           100 * ((double)most * n / (double)sum - 1));
}

void cli_domains_json(const cli_setup *setup, double n_computes, cli_json *json)
{
    mlff_domain_info domains[CLI_MAX_DEVICES];
    const int n = mlff_evaluator_domains(setup->evaluator, domains, CLI_MAX_DEVICES);
    if (n < 2) return;
    cli_json_array(json, "domains");
    for (int k = 0; k < n; k++) {
        char device[16];
        mlff_device_text(domains[k].device, device, sizeof device);
        cli_json_object(json, NULL);
        cli_json_text(json, "device", device);
        cli_json_int(json, "n_owned", domains[k].n_owned);
        cli_json_int(json, "n_ghosts", domains[k].n_ghosts);
        cli_json_number(json, "compute_ms", 1e-6 * domains[k].compute_ns / n_computes);
        cli_json_number(json, "exchange_ms", 1e-6 * domains[k].exchange_ns / n_computes);
        cli_json_number(json, "wait_ms", 1e-6 * domains[k].wait_ns / n_computes);
        cli_json_end(json, '}');
    }
    cli_json_end(json, ']');
}

void cli_setup_free(cli_setup *setup)
{
    mlff_evaluator_destroy(setup->evaluator);
    mlff_model_destroy(setup->model);
    *setup = (cli_setup){0};
}

mlff_status cli_model_check_elements(const mlff_model *model, const mlff_system *system, const char *name)
{
    bool known[MLFF_MAX_ATOMIC_NUMBER + 1] = {false}, wanted[MLFF_MAX_ATOMIC_NUMBER + 1] = {false};
    mlff_model_info info;
    mlff_model_info_get(model, &info);
    if (info.n_elements == 0) return MLFF_OK;
    for (int i = 0; i < info.n_elements; i++) known[info.elements[i]] = true;
    for (int i = 0; i < system->n_atoms; i++)
        if (system->species[i] >= 1 && system->species[i] <= MLFF_MAX_ATOMIC_NUMBER) wanted[system->species[i]] = true;

    char lacking[512] = "", has[640] = "";
    for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        char *list = wanted[z] && !known[z] ? lacking : known[z] ? has : NULL;
        if (!list) continue;
        size_t length = strlen(list), bytes = list == lacking ? sizeof lacking : sizeof has;
        snprintf(list + length, bytes - length, "%s%s", length ? ", " : "", mlff_element_symbol(z));
    }
    if (!lacking[0]) return MLFF_OK;
    return mlff_fail(MLFF_ERR_ELEMENT, "%s: the model %s does not know %s; it knows %s", name, info.name, lacking, has);
}

static int count_elements(const mlff_system *system)
{
    bool present[MLFF_MAX_ATOMIC_NUMBER + 1] = {false};
    int n = 0;
    for (int i = 0; i < system->n_atoms; i++) {
        n += !present[system->species[i]];
        present[system->species[i]] = true;
    }
    return n;
}

const char *cli_default_system(const cli_arguments *arguments, const mlff_model *model)
{
    enum { LARGE = 300 }; // atoms that no molecule has
    int n, most = 0;
    const bool grows = cli_given(arguments, "n-atoms");
    const char *chosen = "silicon";
    const mlff_builder_info *builders = mlff_builders(&n);
    for (int i = -1; i < n; i++) {
        mlff_system *system = NULL;
        const char *name = i < 0 ? "silicon" : builders[i].name;
        if (mlff_system_build(name, grows ? LARGE : 0, 0, &system) != MLFF_OK) continue;
        const bool known = cli_model_check_elements(model, system, name) == MLFF_OK;
        // Most like what the model is made for: the most elements; where a size is asked for, first of all those that can have it.
        const int rank = count_elements(system) + (grows && system->n_atoms > LARGE / 2 ? MLFF_MAX_ATOMIC_NUMBER : 0);
        mlff_system_destroy(system);
        if (known && i < 0) break;
        if (known && rank > most) chosen = name, most = rank;
    }
    return chosen;
}

static mlff_status take_first(const cli_arguments *arguments, mlff_reader *reader, const char *path, mlff_system **system_out)
{
    mlff_system *system = NULL;
    const mlff_status status = cli_reader_next(arguments, reader, &system);
    if (status == MLFF_OK && !system) return mlff_fail(MLFF_ERR_FORMAT, "%s: holds no frame", path);
    if (status == MLFF_OK) *system_out = system;
    return status;
}

// The first frame of a file, or a built-in molecule, which has no file.
static mlff_status read_topology(const cli_arguments *arguments, const char *name, mlff_system **system_out)
{
    int n = 0;
    const mlff_builder_info *builders = mlff_builders(&n);
    for (int k = 0; access(name, F_OK) != 0 && k < n; k++)
        if (strcmp(builders[k].name, name) == 0) return mlff_system_build(name, 0, 0, system_out);
    mlff_reader *reader = NULL;
    mlff_status status = mlff_reader_open(name, NULL, &reader);
    if (status == MLFF_OK) status = take_first(arguments, reader, name, system_out);
    mlff_reader_destroy(reader);
    return status;
}

// What the options say of a file; *format_out and *topology_out stay NULL where they do not.
static mlff_status read_options(const cli_arguments *arguments, const char **format_out, mlff_system **topology_out)
{
    if (!cli_has_option(arguments, "input-format")) return MLFF_OK;
    const char *structure = cli_text(arguments, "topology", NULL);
    *format_out = cli_text(arguments, "input-format", NULL);
    return structure ? read_topology(arguments, structure, topology_out) : MLFF_OK;
}

mlff_status cli_reader_open(const cli_arguments *arguments, const char *path, mlff_reader **reader_out)
{
    mlff_status status = MLFF_OK;
    mlff_reader *reader = NULL;
    mlff_system *topology = NULL;
    const char *format = NULL;

    MLFF_TRY(read_options(arguments, &format, &topology));
    MLFF_TRY(mlff_reader_open(path, format, &reader));
    if (topology) MLFF_TRY(mlff_reader_set_topology(reader, topology));
    *reader_out = reader;
    reader = NULL;
done:
    mlff_system_destroy(topology);
    mlff_reader_destroy(reader);
    return status;
}

mlff_status cli_trajectory_file(const cli_arguments *arguments, const char *path, mlff_trajectory **trajectory_out)
{
    mlff_system *topology = NULL;
    const char *format = NULL;
    mlff_status status = read_options(arguments, &format, &topology);
    if (status == MLFF_OK) status = mlff_trajectory_file_with(path, format, topology, trajectory_out);
    mlff_system_destroy(topology);
    return status;
}

// MLFF_ERR_USAGE of a reader that is open tells of its topology: there is none, or it has other atoms.
static mlff_status name_topology(const cli_arguments *arguments, mlff_status status)
{
    if (status != MLFF_ERR_USAGE || !cli_has_option(arguments, "topology") || cli_given(arguments, "topology")) return status;
    return mlff_fail(status, "%s: --topology FILE", mlff_last_error());
}

mlff_status cli_reader_next(const cli_arguments *arguments, mlff_reader *reader, mlff_system **system_out)
{
    return name_topology(arguments, mlff_reader_next(reader, system_out));
}

mlff_status cli_samples_read(const cli_arguments *arguments, mlff_samples *samples, const char *path)
{
    mlff_reader *reader = NULL;
    mlff_status status = cli_reader_open(arguments, path, &reader);
    if (status == MLFF_OK) status = name_topology(arguments, mlff_samples_add_frames(samples, reader, path));
    mlff_reader_destroy(reader);
    return status;
}

mlff_status cli_reader_skip(const cli_arguments *arguments, mlff_reader *reader, int64_t n, int64_t *n_out)
{
    for (*n_out = 0; *n_out < n; ++*n_out) {
        mlff_system *system = NULL;
        if (cli_interrupted()) return mlff_fail(MLFF_ERR_INTERRUPTED, "interrupted");
        const mlff_status status = cli_reader_next(arguments, reader, &system);
        if (status != MLFF_OK || !system) return status;
        mlff_system_destroy(system);
    }
    return MLFF_OK;
}

mlff_status cli_no_frames(const char *path, int64_t n_skipped)
{
    if (n_skipped == 0) return mlff_fail(MLFF_ERR_FORMAT, "%s: holds no frame", path);
    return mlff_fail(MLFF_ERR_USAGE, "%s: holds %" PRId64 " frame%s, all of which --skip leaves out", path, n_skipped,
                     base_plural(n_skipped));
}

static mlff_status first_frame(const cli_arguments *arguments, const char *path, mlff_system **system_out)
{
    mlff_reader *reader = NULL;
    mlff_status status = cli_reader_open(arguments, path, &reader);
    if (status == MLFF_OK) status = take_first(arguments, reader, path, system_out);
    mlff_reader_destroy(reader);
    return status;
}

mlff_status cli_system_build(const char *name, int n_atoms, uint64_t seed, mlff_system **system_out)
{
    const mlff_status status = mlff_system_build(name, n_atoms, seed, system_out);
    if (status == MLFF_ERR_USAGE && access(name, F_OK) == 0)
        return mlff_fail(status, "--system names a built-in system; give the file '%s' without --system", name);
    return status;
}

int cli_input_make(cli_arguments *arguments, const char *path, const char *otherwise, uint64_t seed, cli_input *input)
{
    static const char *const reader_options[] = {"input-format", "topology"};
    mlff_status status = MLFF_OK;
    cli_input made = {0};
    const char *name = cli_text(arguments, "system", path ? NULL : otherwise);
    int64_t n_atoms = cli_int(arguments, "n-atoms", 1, INT_MAX, 0);

    if (arguments->failed) return CLI_USAGE;
    if (path && name) return cli_usage_error(arguments, "INPUT '%s' and --system exclude each other", path);
    for (int k = 0; !path && k < 2; k++)
        if (cli_has_option(arguments, reader_options[k]) && cli_given(arguments, reader_options[k]))
            return cli_usage_error(arguments, "--%s needs %s", reader_options[k],
                                   cli_has_option(arguments, "input") ? "--input" : "INPUT");
    if (path && n_atoms) return cli_usage_error(arguments, "--n-atoms goes with --system; '%s' has its own atoms", path);
    if (!path && !name) return cli_usage_error(arguments, "an INPUT file or --system NAME is missing");

    if (path) {
        MLFF_TRY(first_frame(arguments, path, &made.system));
        MLFF_TRY(mlff_system_check(made.system, path));
    } else {
        MLFF_TRY(cli_system_build(name, (int)n_atoms, seed, &made.system));
        made.is_built = true;
    }
    mlff_system_formula(made.system, made.formula, sizeof made.formula);
    int length = snprintf(made.text, sizeof made.text, "%s, %d atom%s (%s)", path ? path : name, made.system->n_atoms,
                          base_plural(made.system->n_atoms), made.formula);
    if (n_atoms && n_atoms != made.system->n_atoms && length > 0 && (size_t)length < sizeof made.text)
        snprintf(made.text + length, sizeof made.text - (size_t)length, ", nearest to the %" PRId64 " asked for", n_atoms);
    *input = made;
done:
    return cli_exit(status);
}

void cli_model_complete(const mlff_model *model, mlff_system *system)
{
    if (!mlff_model_depends_on_charge(model)) return;
    system->charge = 0;
    system->spin = 1;
}

mlff_status cli_input_check(const mlff_model *model, cli_input *input)
{
    if (input->is_built) cli_model_complete(model, input->system);
    return cli_model_check_elements(model, input->system, input->text);
}

void cli_input_free(cli_input *input)
{
    mlff_system_destroy(input->system);
    *input = (cli_input){0};
}
