// SPDX-License-Identifier: MIT
// cmd_train.c: mlff train: a student from labelled structures.
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/support/cli.h"
#include "mlff_train.h"

static const cli_option options[] = {
    {"output", 'o', "FILE", "model file to write, .safetensors (required)"},
    {"validation", 0, "FILE", "labelled structures that are not trained on; the best weights are selected by their error"},
    {"split", 0, "FRACTION", "without --validation: part used for validation, whole groups chosen by --seed (0.1)"},
    {"student", 0, "MODEL", "begin with this model's weights (default: a new PaiNN)"},
    {"features", 0, "N", "of a new student: width of the atoms' features (64)"},
    {"layers", 0, "N", "of a new student: message-passing layers (2)"},
    {"rbf", 0, "N", "of a new student: radial basis functions (20)"},
    {"cutoff", 0, "ANGSTROM", "of a new student, Å (5.0)"},
    {"cutoff-function", 0, "NAME", "of a new student: mollifier (smooth at the cutoff) or cosine (mollifier)"},
    {"core-repulsion", 0, "ONSET",
     "of a new student: fixed repulsion of nuclei below this part of the sum of covalent radii (0: none)"},
    {"recipe", 0, "NAME", "default, or schnetpack: batch 10, constant rate halved on plateaus, loss 0.01 E + 0.99 F (default)"},
    {"steps", 0, "N", "steps of the optimizer (20000)"},
    {"epochs", 0, "N", "passes over the data, in place of --steps"},
    {"batch", 0, "N", "structures in a step (32; schnetpack: 10)"},
    {"learning-rate", 0, "RATE", "highest (0.001 at batch 32, growing as the root of the batch)"},
    {"optimizer", 0, "NAME", "adamw, or soap: AdamW in the eigenbasis of the gradients' covariances (adamw)"},
    {"patience", 0, "N", "schnetpack: validations without gain before the rate is halved (75)"},
    {"energy-weight", 0, "W", "of the energy's squared error per atom², eV (1)"},
    {"energy-boost", 0, "FACTOR", "of the energy's weight in the last fifth of the run; 0: none (100; schnetpack: 0)"},
    {"forces-weight", 0, "W", "of the forces' squared error, (eV/Å)² (100)"},
    {"stress-weight", 0, "W", "of the stress' squared error, (eV/Å³)² (3000)"},
    {"huber", 0, "DELTA", "force errors beyond this count linearly, eV/Å (0: never)"},
    {"largest-force", 0, "F", "leave out structures with a larger force on an atom, eV/Å, also of the validation (0: none)"},
    {"largest-error", 0, "F",
     "leave out training structures at which --student is off by more in the force on an atom, eV/Å (0: none)"},
    {"nearer", 0, "PART",
     "with core repulsion: add structures with atoms nearer than labelled ones have, at most this part (0.03)"},
    {"validate-every", 0, "N", "steps (a hundredth of the run, one epoch at least)"},
    {"checkpoint", 0, "FILE", "written every 30 s; if it exists, the run continues from it with bit-identical results"},
    {"history", 0, "FILE", "errors at each validation, one JSON object a line"},
    {"device", 0, "DEVICE",
     "auto, cpu, cuda:0, or cuda:0,1: GPUs that share each batch (auto: a GPU if one works, else the CPU)"},
    {"precision", 0, "PRECISION", "float32, float64 (the reference, CPU), or, on a GPU, tf32 (float32)"},
    {"threads", 0, "N", "CPU threads (all cores this process may use)"},
    {"seed", 0, "S", "of the first weights and the order of structures (0)"},
    {"json", 0, NULL, "the result as JSON on standard output"},
    {0}};

// Options that are settings of a new student, with what they are when not given.
static const struct {
    const char *option, *setting, *otherwise;
} settings[] = {{"features", "n_features", "64"},
                {"layers", "n_layers", "2"},
                {"rbf", "n_radial", "20"},
                {"cutoff", "cutoff", "5"},
                {"cutoff-function", "cutoff_function", "mollifier"},
                {"core-repulsion", "core_repulsion", "0"}};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

typedef struct training {
    mlff_trainer_options trainer;
    const char *settings[N_SETTINGS];
    char seed[24];
    mlff_fit_options fit;
    const char *data, *validation, *begin, *output;
    double split, largest_force, largest_error;
    int64_t epochs;
    bool to_json;
    bool begun_trained;             // --student is no model with random weights
    bool left_out_far;              // by --largest-error: the metadata can not say which
    mlff_training_errors errors;    // of the best weights
    char best[PATH_MAX];            // of --checkpoint: the best model so far
    base_output reserve;            // space for the student
    bool history_failed, has_steps; // has_steps: of this run, beyond those of a checkpoint
    int64_t best_step;
} training;

// ---- options ------------------------------------------------------------------------------------------------------

static void take_recipe(cli_arguments *arguments, mlff_trainer_options *o)
{
    static const char *const recipes[] = {"default", "schnetpack", NULL};
    if (cli_choice(arguments, "recipe", recipes, 0) == 0) return;
    o->batch_size = 10;
    o->schedule = MLFF_PLATEAU;
    o->warm_up = 0;
    o->average = 0.995;
    o->clip = 0;
    o->energy_boost = 0;
    o->loss = (mlff_loss){.energy_weight = 0.01, .forces_weight = 0.99};
}

// "cuda:0,1": several GPUs.
static mlff_status take_gpus(const char *text, mlff_trainer_options *o)
{
    enum { MOST = sizeof o->devices / sizeof *o->devices };
    mlff_status status = MLFF_OK;
    for (const char *at = text + strlen("cuda:"); at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char one[24];
        mlff_device device;
        snprintf(one, sizeof one, "cuda:%.*s", (int)strcspn(at, ","), at);
        MLFF_TRY(mlff_device_parse(one, &device));
        for (int k = 0; k < o->n_devices; k++)
            if (o->devices[k] == device.index) return mlff_fail(MLFF_ERR_USAGE, "--device %s names a GPU twice", text);
        if (o->n_devices == MOST) return mlff_fail(MLFF_ERR_USAGE, "--device %s: at most %d GPUs", text, (int)MOST);
        o->devices[o->n_devices++] = device.index;
    }
    o->device = (mlff_device){MLFF_CUDA, o->devices[0]};
done:
    return status;
}

static void take_device(cli_arguments *arguments, mlff_trainer_options *o, mlff_status *status)
{
    static const char *const precisions[] = {"float32", "float64", "tf32", NULL};
    static const mlff_precision values[] = {MLFF_FLOAT32, MLFF_FLOAT64, MLFF_TF32};
    static const char *const optimizers[] = {"adamw", "soap", NULL}; // as enum mlff_trainer_optimizer
    o->precision = values[cli_choice(arguments, "precision", precisions, 0)];
    o->n_threads = (int)cli_int(arguments, "threads", 1, 4096, 0);
    o->optimizer = (mlff_trainer_optimizer)cli_choice(arguments, "optimizer", optimizers, 0);
    const bool on_cpu = o->precision == MLFF_FLOAT64;
    const char *device = cli_text(arguments, "device", on_cpu ? "cpu" : "");
    const bool several = strncmp(device, "cuda:", strlen("cuda:")) == 0 && strchr(device, ',');
    *status = several     ? take_gpus(device, o)
              : device[0] ? mlff_device_parse(device, &o->device)
                          : cli_device(arguments, &o->device);
}

// The best weights so far are beside the checkpoint, in a file that the command line does not name.
static int name_best(const cli_arguments *arguments, training *run)
{
    if (mlff_checkpoint_best_path(run->fit.checkpoint, run->best, sizeof run->best) != MLFF_OK)
        return cli_usage_error(arguments, "--checkpoint: this name is too long");
    run->fit.best = run->best;
    return cli_files_check_another(arguments, "checkpoint", run->best, true);
}

static int parse(cli_arguments *arguments, training *run)
{
    mlff_status status = MLFF_OK;
    mlff_trainer_options *o = &run->trainer;
    *o = mlff_trainer_options_default();
    run->fit = mlff_fit_options_default();
    take_recipe(arguments, o);
    take_device(arguments, o, &status);
    run->data = arguments->positional[0];
    run->output = cli_text(arguments, "output", NULL);
    run->validation = cli_text(arguments, "validation", NULL);
    run->begin = cli_text(arguments, "student", NULL);
    run->split = cli_number(arguments, "split", 1e-6, 0.9, 0.1);
    run->largest_force = cli_number(arguments, "largest-force", 0, 1e9, 0);
    run->largest_error = cli_number(arguments, "largest-error", 0, 1e30, 0);
    for (int k = 0; k < N_SETTINGS; k++) run->settings[k] = cli_text(arguments, settings[k].option, settings[k].otherwise);
    o->seed = (uint64_t)cli_int(arguments, "seed", 0, INT64_MAX, 0);
    o->n_steps = cli_int(arguments, "steps", 1, INT64_C(1000000000000), 20000);
    run->epochs = cli_int(arguments, "epochs", 1, 100000000, 0);
    o->batch_size = (int)cli_int(arguments, "batch", 1, 1 << 20, o->batch_size);
    o->plateau_patience = (int)cli_int(arguments, "patience", 1, 1000000, o->plateau_patience);
    const bool scaled = o->schedule == MLFF_COSINE;
    o->learning_rate = cli_number(arguments, "learning-rate", 0, 10, 1e-3 * (scaled ? sqrt(o->batch_size / 32.0) : 1));
    o->loss.energy_weight = cli_number(arguments, "energy-weight", 0, 1e12, o->loss.energy_weight);
    o->energy_boost = cli_number(arguments, "energy-boost", 0, 1e12, o->energy_boost);
    o->loss.forces_weight = cli_number(arguments, "forces-weight", 0, 1e12, o->loss.forces_weight);
    o->loss.stress_weight = cli_number(arguments, "stress-weight", 0, 1e12, o->loss.stress_weight);
    o->nearer = cli_number(arguments, "nearer", 0, 1, o->nearer);
    o->loss.huber_forces = cli_number(arguments, "huber", 0, 1e12, 0);
    run->fit.validate_every = cli_int(arguments, "validate-every", 1, INT64_MAX, 0);
    run->fit.checkpoint = cli_text(arguments, "checkpoint", NULL);
    run->fit.history = cli_text(arguments, "history", NULL);
    run->to_json = cli_given(arguments, "json");
    if (arguments->failed) return CLI_USAGE;
    if (!run->output) return cli_usage_error(arguments, "-o FILE is missing");
    if (cli_suffix_check(arguments, "-o", run->output, cli_models) != CLI_GOOD) return CLI_USAGE;
    if (cli_given(arguments, "steps") && cli_given(arguments, "epochs"))
        return cli_usage_error(arguments, "--steps and --epochs exclude each other");
    if (run->validation && cli_given(arguments, "split")) return cli_usage_error(arguments, "--split goes without --validation");
    if (run->largest_error > 0 && !run->begin) return cli_usage_error(arguments, "--largest-error needs --student");
    for (int k = 0; run->begin && k < N_SETTINGS; k++)
        if (cli_given(arguments, settings[k].option))
            return cli_usage_error(arguments, "--%s is of a new student; it excludes --student", settings[k].option);
    if (status == MLFF_OK && run->fit.checkpoint) return name_best(arguments, run);
    return cli_exit(status);
}

// ---- data and student -----------------------------------------------------------------------------------------------

static mlff_status check_left_out(const training *run, const char *path, const mlff_dataset *dataset, int64_t n_left_out)
{
    if (n_left_out == 0 || mlff_dataset_size(dataset) > 0) return MLFF_OK;
    return mlff_fail(MLFF_ERR_VALUE, "%s: all of its structures (%" PRId64 ") have a force above %g eV/Å; raise --largest-force",
                     path, n_left_out, run->largest_force);
}

static mlff_status load_data(const training *run, mlff_dataset **train_out, mlff_dataset **validation_out)
{
    mlff_status status = MLFF_OK;
    mlff_dataset *all = NULL;
    mlff_read_options read = mlff_read_options_default();
    int64_t n_left_out = 0, n_not_validated = 0;
    if (run->largest_force > 0) read.largest_force = run->largest_force;
    read.n_threads = run->trainer.n_threads;
    MLFF_TRY(mlff_dataset_create(run->validation ? train_out : &all));
    MLFF_TRY(mlff_dataset_read_some(run->validation ? *train_out : all, run->data, &read, &n_left_out));
    MLFF_TRY(check_left_out(run, run->data, run->validation ? *train_out : all, n_left_out));
    if (run->validation) {
        MLFF_TRY(mlff_dataset_create(validation_out));
        MLFF_TRY(mlff_dataset_read_some(*validation_out, run->validation, &read, &n_not_validated));
        MLFF_TRY(check_left_out(run, run->validation, *validation_out, n_not_validated));
        MLFF_TRY(cli_in(run->data, mlff_dataset_check(*train_out)));
        MLFF_TRY(cli_in(run->validation, mlff_dataset_check(*validation_out)));
    } else {
        MLFF_TRY(cli_in(run->data, mlff_dataset_check(all)));
        MLFF_TRY(cli_in(run->data, mlff_dataset_split(all, run->split, run->trainer.seed, train_out, validation_out)));
    }
    if (n_left_out + n_not_validated > 0 && !run->to_json)
        printf("%" PRId64 " structure%s left out, with a force above %g eV/Å\n", n_left_out + n_not_validated,
               base_plural(n_left_out + n_not_validated), run->largest_force);
done:
    mlff_dataset_destroy(all);
    return status;
}

// The validation selects the weights and states the error, which must not be that of structures trained on.
static mlff_status warn_of_copies(const training *run, const mlff_dataset *train, const mlff_dataset *validation)
{
    mlff_status status = MLFF_OK;
    const int64_t size = mlff_dataset_size(validation);
    int64_t n, first = 0, *copy_of = base_alloc((size_t)size, sizeof *copy_of, "copies");
    if (!copy_of) return MLFF_ERR_MEMORY;
    MLFF_TRY(mlff_dataset_copies(validation, train, &n, copy_of));
    if (n == 0) goto done;
    while (copy_of[first] < 0) first++;
    if (run->validation)
        mlff_warn("%" PRId64 " of %" PRId64 " structure%s of %s %s in %s too, moved, turned or with atoms in another order (the "
                  "first: structure %" PRId64 ", in %s %" PRId64 "): the error is not that of new structures; remove them",
                  n, size, base_plural(size), run->validation, n == 1 ? "is" : "are", run->data, first, run->data,
                  copy_of[first]);
    else
        mlff_warn("%" PRId64 " of %" PRId64
                  " structure%s for validation %s trained on too, moved, turned or with atoms in another "
                  "order: the error is not that of new structures; remove copies from %s, or give them one group=N",
                  n, size, base_plural(size), n == 1 ? "is" : "are", run->data);
done:
    base_free(copy_of);
    return status;
}

// A training cannot learn from structures at which the student that it begins with diverges.
static mlff_status leave_out_far(training *run, const mlff_model *student, mlff_dataset *data)
{
    mlff_status status = MLFF_OK;
    mlff_evaluator_options of_evaluator = mlff_evaluator_options_default();
    int64_t n_left_out;
    of_evaluator.device = run->trainer.device;
    of_evaluator.n_threads = run->trainer.n_threads;
    MLFF_TRY(mlff_dataset_remove_far(data, student, run->largest_error, &of_evaluator, &n_left_out));
    run->left_out_far = n_left_out > 0;
    if (mlff_dataset_size(data) == 0)
        return mlff_fail(MLFF_ERR_VALUE,
                         "%s: at all of its structures (%" PRId64 ") %s is off by more than %g eV/Å; raise --largest-error",
                         run->data, n_left_out, run->begin, run->largest_error);
    if (n_left_out > 0 && !run->to_json)
        printf("%" PRId64 " structure%s left out, at which %s is off by more than %g eV/Å\n", n_left_out, base_plural(n_left_out),
               run->begin, run->largest_error);
done:
    return status;
}

// A new student knows the elements of the training data.
static mlff_status make_student(training *run, mlff_dataset *data, mlff_model **model_out)
{
    mlff_status status = MLFF_OK;
    char elements[512];
    mlff_model *begun = NULL;
    mlff_setting chosen[N_SETTINGS + 3] = {{0}};
    mlff_model_info info;
    mlff_dataset_elements(data, elements, sizeof elements);
    snprintf(run->seed, sizeof run->seed, "%" PRIu64, run->trainer.seed);
    for (int k = 0; k < N_SETTINGS; k++) chosen[k] = (mlff_setting){settings[k].setting, run->settings[k]};
    chosen[N_SETTINGS] = (mlff_setting){"elements", elements};
    chosen[N_SETTINGS + 1] = (mlff_setting){"seed", run->seed};
    MLFF_TRY(run->begin ? mlff_model_load(run->begin, &begun) : mlff_model_create(NULL, chosen, &begun));
    mlff_model_info_get(begun, &info);
    run->begun_trained = info.trained;
    if (run->largest_error > 0) MLFF_TRY(leave_out_far(run, begun, data));
    MLFF_TRY(mlff_model_to_train(begun, data, run->trainer.n_threads, model_out));
done:
    mlff_model_destroy(begun);
    return status;
}

static void tell_nearer(const training *run, const mlff_trainer *trainer)
{
    const int64_t n = mlff_trainer_n_nearer(trainer);
    if (n > 0 && !run->to_json)
        printf("%" PRId64 " structure%s added: copies of labelled ones in which two atoms are moved nearer\n", n, base_plural(n));
}

// ---- the run --------------------------------------------------------------------------------------------------------

static int show(void *context, const mlff_fit_progress *p)
{
    training *run = context;
    char text[96], elements[96];
    run->has_steps = true;
    run->best_step = p->best_step;
    run->history_failed = p->history_failed;
    mlff_element_errors_text(p->element_force_mae, elements);
    if (p->validated && !run->to_json) {
        cli_progress_clear();
        if (p->step == p->n_steps || p->best_step == p->step)
            printf("step %9" PRId64 "  %s%s%s  (validation%s)\n", p->step, mlff_training_errors_text(&p->validation, text),
                   elements[0] ? "; by element " : "", elements, p->best_step == p->step ? ", best so far" : "");
        fflush(stdout);
    }
    cli_progress("train: step %" PRId64 " of %" PRId64 ", %.0f structures/s%s%s, %.0f s left", p->step, p->n_steps,
                 p->structures_per_s, p->best_step > 0 ? ", best " : "",
                 p->best_step > 0 ? mlff_training_errors_text(&p->best, text) : "", p->remaining_s);
    return cli_interrupted();
}

static void print_result(const training *run, const mlff_trainer *trainer, int64_t n_train)
{
    const mlff_training_errors *e = &run->errors;
    if (run->to_json) {
        cli_json json = {.file = stdout};
        cli_json_object(&json, NULL);
        cli_json_text(&json, "student", run->output);
        cli_json_int(&json, "steps", mlff_trainer_step(trainer));
        cli_json_int(&json, "training_structures", n_train);
        cli_json_int(&json, "nearer_structures", mlff_trainer_n_nearer(trainer));
        cli_json_int(&json, "validation_structures", e->n_frames);
        cli_json_number(&json, "energy_mae_ev_per_atom", e->energy_mae);
        cli_json_number(&json, "force_mae_ev_per_angstrom", e->force_mae);
        cli_json_number(&json, "force_rmse_ev_per_angstrom", e->force_rmse);
        cli_json_number(&json, "stress_mae_ev_per_angstrom3", e->stress_mae);
        cli_json_end(&json, '}');
        return;
    }
    char text[96];
    if (!run->has_steps)
        cli_print("nothing to do: %s is at the end of this training, step %" PRId64 "; its student is written again\n",
                  run->fit.checkpoint, mlff_trainer_step(trainer));
    cli_print("%s: %" PRId64 " structure%s trained, %" PRId64 " validated: %s (mean absolute)\n", run->output, n_train,
              base_plural(n_train), e->n_frames, mlff_training_errors_text(e, text));
}

// A disk that is full, or becomes full, does not cost the training.
static mlff_status reserve_student(training *run, const mlff_model *student)
{
    enum { METADATA = 65536 };
    mlff_model_info info;
    mlff_model_info_get(student, &info);
    return cli_reserve(run->output, info.n_bytes + METADATA, &run->reserve);
}

// What the student was trained on, and how well, into its metadata.
static mlff_status note_training(const training *run, const mlff_dataset *train, mlff_model *student)
{
    mlff_status status = MLFF_OK;
    char text[160], errors[96];
    const mlff_data_origin origin = {.path = run->left_out_far ? NULL : run->data,
                                     .largest_force = run->largest_force > 0 ? run->largest_force : INFINITY,
                                     .split = run->validation ? 0 : run->split,
                                     .seed = run->trainer.seed,
                                     .begun_with = run->begun_trained ? run->begin : NULL};
    MLFF_TRY(mlff_model_note_data(student, train, run->output, &origin));
    snprintf(text, sizeof text, "validation: %s (mean absolute)", mlff_training_errors_text(&run->errors, errors));
    MLFF_TRY(mlff_model_note(student, "error", text));
done:
    return status;
}

// A training that ends early without a checkpoint: its best student so far is kept, under another name. Returns `cause`.
static mlff_status keep_best(training *run, const mlff_dataset *train, mlff_model *best, mlff_status cause)
{
    char partial[PATH_MAX], what[64];
    cli_kept kept = cli_kept_begin(cause);
    cli_reserve_release(&run->reserve);
    mlff_status status = base_is_stream(run->output) ? MLFF_ERR_USAGE : note_training(run, train, best);
    if (status == MLFF_OK) status = base_partial_name(run->output, partial);
    if (status != MLFF_OK) return mlff_fail(cause, "%s; nothing is kept", kept.error);
    status = mlff_model_save(best, partial);
    if (status != MLFF_OK) {
        unlink(partial);
        return mlff_fail(cause, "%s; nothing is kept: %s", kept.error, mlff_last_error());
    }
    snprintf(what, sizeof what, "the best student so far (step %" PRId64 ")", run->best_step);
    cli_kept_thing(&kept, partial, what);
    return cli_kept_tell(&kept, "go on from it with --student");
}

static int run_train(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    training run = {0};
    mlff_dataset *train = NULL, *validation = NULL;
    mlff_model *student = NULL, *trained = NULL;
    mlff_trainer *trainer = NULL;
    int exit_status = parse(arguments, &run);
    if (exit_status != CLI_GOOD) return exit_status;

    cli_interrupt_catch();
    status = cli_output_check(run.output);
    if (status == MLFF_OK) status = cli_output_check(run.fit.history);
    if (status == MLFF_OK) status = load_data(&run, &train, &validation);
    if (status == MLFF_OK) status = warn_of_copies(&run, train, validation);
    if (status == MLFF_OK) status = make_student(&run, train, &student);
    if (status == MLFF_OK) status = reserve_student(&run, student);
    if (status == MLFF_OK && run.epochs) {
        const int64_t n = mlff_dataset_units(train), batch = run.trainer.batch_size;
        run.trainer.n_steps = run.epochs * ((n + batch - 1) / batch);
    }
    if (status == MLFF_OK) status = mlff_trainer_create(student, train, &run.trainer, &trainer);
    if (status == MLFF_OK) tell_nearer(&run, trainer);
    run.fit.callback = show;
    run.fit.context = &run;
    if (status == MLFF_OK) status = mlff_trainer_fit(trainer, validation, &run.fit, &trained);
    cli_progress_clear();
    if (trained) mlff_trainer_best(trainer, &run.errors);
    if (status != MLFF_OK && trained && !run.fit.checkpoint)
        status = keep_best(&run, train, trained, status);
    else if (status == MLFF_ERR_INTERRUPTED)
        status = mlff_fail(status, "%s; %s", mlff_last_error(),
                           run.fit.checkpoint ? "the same command continues" : "nothing is kept without --checkpoint FILE");
    if (status == MLFF_ERR_UNSTABLE && run.begin && run.largest_error == 0)
        status = mlff_fail(status, "%s; --largest-error 1000 leaves out structures at which %s diverges", mlff_last_error(),
                           run.begin);
    if (status == MLFF_ERR_IO && run.fit.checkpoint && trainer && mlff_trainer_step(trainer) > 0 &&
        access(run.fit.checkpoint, F_OK) == 0)
        status = mlff_fail(status, "%s; the same command goes on from %s", mlff_last_error(), run.fit.checkpoint);
    if (status == MLFF_OK) status = note_training(&run, train, trained);
    cli_reserve_release(&run.reserve);
    if (status == MLFF_OK) status = mlff_model_save(trained, run.output);
    if (status == MLFF_OK) print_result(&run, trainer, mlff_dataset_size(train));
    if (status == MLFF_OK && run.history_failed)
        status = mlff_fail(MLFF_ERR_IO, "%s: is not written; %s is", run.fit.history, run.output);
    mlff_trainer_destroy(trainer);
    mlff_model_destroy(trained);
    mlff_model_destroy(student);
    mlff_dataset_destroy(train);
    mlff_dataset_destroy(validation);
    return cli_exit(status);
}

const cli_command train_command = {
    .name = "train",
    .summary = "train a student on labelled structures",
    .usage = "DATA.extxyz -o STUDENT.safetensors [--validation FILE] [--features N] [--layers N] [--steps N] [OPTIONS]",
    .details =
        "DATA is extended XYZ with energies (eV) and forces (eV/Å), as ASE writes it, or a file of mlff label. The student is a\n"
        "PaiNN; its gradients are exact and its steps reproducible. The weights are averaged, and the average with the lowest\n"
        "error on the validation structures is written. Ctrl-C ends the run with its --checkpoint kept, exit status 130.",
    .examples = "mlff train labels.extxyz -o student.safetensors --steps 20000\n"
                "mlff train train.extxyz --validation valid.extxyz --features 128 --layers 3 -o big.safetensors\n"
                "mlff train labels.extxyz -o student.safetensors --checkpoint run.checkpoint --history history.jsonl",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .run = run_train,
};
