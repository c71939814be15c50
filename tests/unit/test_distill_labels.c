// SPDX-License-Identifier: MIT
// test_distill_labels.c: runs from labels that are there: what is held out, runs that are stopped, labels that change, and the data that a
// student was trained on, found again.
#include <sys/stat.h>

#include "train/data/dataset.h"
#include "train/running/distill.h"
#include "unit/distill_runs.h"

enum { MOLECULES = 1, CELLS = 2, SOME_ENERGIES = 4, NO_FORCES = 8, NO_GROUPS = 16, ONE_ALUMINUM = 32, KILOJOULES = 64 };
enum { GROUP = 10 }; // frames of a trajectory

// The file of labels of most tests; in_folder's texts are used again.
static const char *first_file(void)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/a.extxyz", folder);
    return path;
}

// Water in springs, n frames in trajectories of ten, each around a start of its own.
static void write_labels(const char *path, int n, uint64_t seed, int kind)
{
    mlff_writer *writer;
    assert_ok(mlff_writer_open(path, "extxyz", 0, &writer));
    for (int k = 0; k < n; k++) {
        mlff_system *system;
        double energy, forces[9], stress[6] = {0};
        const bool in_cell = kind & CELLS && (k / GROUP % 2 || !(kind & MOLECULES));
        assert_ok(mlff_system_copy(rest, &system));
        for (int c = 0; c < 9; c++)
            system->positions[c] += 0.3 * (base_random_uniform(seed, (uint64_t)(k / GROUP), (uint64_t)c) - 0.5) +
                                    0.1 * (base_random_uniform(seed, (uint64_t)k, 10 + (uint64_t)c) - 0.5);
        system->group = kind & NO_GROUPS ? -1 : k / GROUP;
        assert_ok(log_springs(rest, system, &energy, forces));
        if (kind & KILOJOULES) energy *= 96.4853;
        for (int c = 0; c < 9 && kind & KILOJOULES; c++) forces[c] *= 96.4853;
        static const int voigt[6][2] = {{0, 0}, {1, 1}, {2, 2}, {1, 2}, {0, 2}, {0, 1}};
        for (int v = 0; v < 6; v++)
            for (int i = 0; i < 3; i++) stress[v] -= forces[3 * i + voigt[v][0]] * system->positions[3 * i + voigt[v][1]] / 1000;
        for (int c = 0; c < 3 && in_cell; c++) system->cell[4 * c] = 10, system->periodic[c] = 1;
        if (kind & ONE_ALUMINUM && k / GROUP == 3) system->species[0] = 13;
        const mlff_frame_results results = {.energy = kind & SOME_ENERGIES && k % 3 ? NAN : energy,
                                            .forces = kind & NO_FORCES ? NULL : forces,
                                            .stress = in_cell ? stress : NULL,
                                            .step = -1,
                                            .time_fs = NAN};
        assert_ok(mlff_writer_write(writer, system, &results));
        mlff_system_destroy(system);
    }
    assert_ok(mlff_writer_close(writer));
}

static mlff_distill_config small_config(const char *labels)
{
    mlff_distill_config config;
    assert_ok(mlff_distill_preset("demo", &config));
    mlff_distill_use_labels(&config, labels);
    config.n_features = 8;
    config.n_layers = 1;
    config.n_radial = 8;
    config.cutoff_angstrom = 4;
    config.n_steps = 120;
    config.nve_ps = 0.2;
    config.hot_ps = 0.1;
    config.speed_s = 0.05;
    config.seed = 7;
    return config;
}

static mlff_status run_with(const mlff_distill_config *config, const char *run,
                            int (*callback)(void *, const mlff_distill_progress *), void *context)
{
    mlff_distill_options options = mlff_distill_options_default();
    int passed;
    options.n_threads = 1;
    options.callback = callback;
    options.context = context;
    return mlff_distill(config, in_folder(run, ""), &options, &passed);
}

static const char *note_of(const mlff_model *model, const char *wanted)
{
    const char *key, *value;
    for (int k = 0; (key = mlff_model_metadata(model, k, &value)); k++)
        if (strcmp(key, wanted) == 0) return value;
    return NULL;
}

// The structures that the student of a run was trained on; NULL where they are not found.
static mlff_dataset *trained_on(const char *run)
{
    mlff_model *student;
    mlff_dataset *data;
    assert_ok(mlff_model_load(in_folder(run, "student.safetensors"), &student));
    assert_ok(mlff_model_training_data(student, in_folder(run, "student.safetensors"), 1, &data, NULL));
    mlff_model_destroy(student);
    return data;
}

// How many structures have two atoms closer than `onset` of the sum of their covalent radii (H 0.31, O 0.66 Å).
static int count_closer(const mlff_dataset *data, double onset)
{
    int n = 0;
    for (size_t f = 0; f < data->n_frames; f++) {
        const mlff_system *s = data->frames[f].system;
        double closest = INFINITY;
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < i; j++) {
                double square = 0;
                for (int c = 0; c < 3; c++) square += pow(s->positions[3 * i + c] - s->positions[3 * j + c], 2);
                closest = fmin(closest, sqrt(square) / ((s->species[i] == 1 ? 0.31 : 0.66) + (s->species[j] == 1 ? 0.31 : 0.66)));
            }
        n += closest < onset;
    }
    return n;
}

static char last_warning[1000];
static void keep_warning(void *context, const char *text)
{
    (void)context;
    snprintf(last_warning, sizeof last_warning, "%s", text);
}

// ---- tests ----------------------------------------------------------------------------------------------------------

// Runs this short do not decide on the drift; all else is measured.
static void assert_measured(const char *verdict)
{
    static const char drift[] = "{\"name\": \"stability.nve\"";
    for (const char *at = verdict; (at = strstr(at, "\"not measured\"")); at++) {
        const char *bar = at;
        while (bar > verdict && *bar != '{') bar--;
        if (strncmp(bar, drift, strlen(drift)) != 0) fail_msg("%.80s", bar);
    }
}

static void test_whole_run(void **state)
{
    (void)state;
    write_labels(in_folder("a.extxyz", ""), 120, 1, MOLECULES);
    const mlff_distill_config config = small_config(first_file());
    if (run_with(&config, "whole", NULL, NULL) != MLFF_OK) fail_msg("%s", mlff_last_error());
    char *verdict = content("whole", "verdict.json"), *page = content("whole", "report.html");
    static const char *const bars[] = {"held_out", "error.forces", "error.energy", "stability.nve", "stability.hot", "core"};
    for (size_t k = 0; k < sizeof bars / sizeof *bars; k++) assert_non_null(strstr(verdict, bars[k]));
    assert_non_null(strstr(verdict, "against the labels of 10 held-out structures"));
    assert_null(strstr(verdict, "speed"));
    assert_null(strstr(verdict, "structure\""));
    assert_measured(verdict);
    assert_non_null(strstr(page, "A student of a.extxyz"));
    assert_null(strstr(page, "eacher")); // there is none
    base_free(verdict);
    base_free(page);

    mlff_model *student;
    assert_ok(mlff_model_load(in_folder("whole", "student.safetensors"), &student));
    assert_null(note_of(student, "training.teacher"));
    assert_null(note_of(student, "training.highest_kelvin"));
    assert_string_equal(note_of(student, "training.data"), "100 structures of a.extxyz");
    mlff_dataset *data = trained_on("whole");
    char hash[65];
    assert_non_null(data);
    assert_ok(mlff_dataset_hash(data, hash));
    assert_string_equal(note_of(student, "training.data_hash"), hash);
    // Of each trajectory all ten frames are trained on, or none.
    assert_int_equal(mlff_dataset_size(data), 100);
    for (size_t f = 0; f < 100; f++) {
        int n = 0;
        for (size_t g = 0; g < 100; g++) n += data->frames[g].system->group == data->frames[f].system->group;
        assert_int_equal(n, GROUP);
    }
    // The fixed repulsion begins where a tenth of the structures have closer atoms.
    double onset = 0;
    assert_true(base_parse_double(note_of(student, "core_repulsion"), &onset));
    assert_true(onset < 1 && count_closer(data, onset) <= 10 && count_closer(data, onset + 0.002) >= 10);
    // It also says how near they come at the nearest: written with four digits, rounded down.
    const double nearest = mlff_model_nearest(student);
    assert_true(nearest < onset && count_closer(data, nearest - 1e-9) == 0 && count_closer(data, nearest + 1.1e-4) >= 1);
    mlff_dataset_destroy(data);
    mlff_model_destroy(student);
}

static void test_interrupted_runs(void **state)
{
    (void)state;
    const mlff_distill_config config = small_config(first_file());
    int n_interrupted = 0;
    for (int calls = 0;; calls += 2) { // later and later
        int left = calls;
        const mlff_status status =
            run_with(n_interrupted % 2 && access(in_folder("pieces", "config.json"), F_OK) == 0 ? NULL : &config, "pieces",
                     stop_sometimes, &left);
        if (status == MLFF_OK) break;
        if (status != MLFF_ERR_INTERRUPTED) fail_msg("%s", mlff_last_error());
        assert_true(++n_interrupted < 500);
    }
    assert_true(n_interrupted > 3);
    assert_same_file("whole", "pieces", "student.safetensors");
    assert_same_file("whole", "pieces", "config.json");
    remove_run("pieces");
}

// kill -9 at random times.
static void test_killed_runs(void **state)
{
    (void)state;
    const mlff_distill_config config = small_config(first_file());
    for (int k = 0; k < 6; k++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        while (child == 0) {
            run_with(&config, "pieces", NULL, NULL);
            remove_run("pieces"); // finished before it was killed: again from the start
        }
        usleep((useconds_t)(2000 + 200000 * base_random_uniform(3, (uint64_t)getpid(), (uint64_t)k)));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    if (run_with(&config, "pieces", NULL, NULL) != MLFF_OK) fail_msg("%s", mlff_last_error());
    assert_same_file("whole", "pieces", "student.safetensors");
    remove_run("pieces");
}

// One digit, a group's number alone, or one file more: another run. A file that was moved: the same run.
static void test_changed_labels(void **state)
{
    (void)state;
    char *labels = content("a.extxyz", ""), *again;
    mlff_distill_config config = small_config(first_file()), moved;
    char text[4000], two[700];
    mlff_warning_handler_set(keep_warning, NULL);
    static const char *const digits[] = {"group=3", "energy="};
    for (size_t k = 0; k < sizeof digits / sizeof *digits; k++) {
        char *digit = strstr(labels, digits[k]) + strlen(digits[k]) + (k == 0 ? -1 : 4);
        const char before = *digit;
        *digit = before == '4' ? '5' : '4';
        FILE *file = fopen(in_folder("a.extxyz", ""), "w");
        fputs(labels, file);
        fclose(file);
        assert_refused(run_with(NULL, "whole", NULL, NULL), MLFF_ERR_VALUE, "a.extxyz: its labels are not those that the run in");
        assert_refused(run_with(&config, "whole", NULL, NULL), MLFF_ERR_VALUE,
                       "a.extxyz: its labels are not those that the run in");
        last_warning[0] = 0;
        assert_null(trained_on("whole"));
        assert_non_null(strstr(last_warning, "a.extxyz: its labels are not those"));
        *digit = before;
    }
    FILE *file = fopen(in_folder("moved.extxyz", ""), "w");
    fputs(labels, file);
    fclose(file);
    base_free(labels);
    unlink(in_folder("a.extxyz", ""));
    assert_int_not_equal(run_with(NULL, "whole", NULL, NULL), MLFF_OK);
    last_warning[0] = 0;
    assert_null(trained_on("whole"));
    assert_true(strlen(last_warning) > 0);
    moved = config;
    assert_ok(mlff_distill_config_read(in_folder("whole", "config.json"), &moved, text, sizeof text));
    snprintf(two, sizeof two, "%s", in_folder("moved.extxyz", ""));
    moved.labels = two;
    assert_ok(mlff_distill_config_save(&moved, in_folder("whole", "config.json")));
    if (run_with(NULL, "whole", NULL, NULL) != MLFF_OK) fail_msg("%s", mlff_last_error());
    mlff_dataset *data = trained_on("whole");
    assert_non_null(data);
    mlff_dataset_destroy(data);
    mlff_warning_handler_set(NULL, NULL);
    again = content("whole", "config.json");
    assert_non_null(strstr(again, "moved.extxyz"));
    base_free(again);
    snprintf(two, sizeof two, "%s,%s", in_folder("moved.extxyz", ""), in_folder("moved.extxyz", ""));
    config = small_config(two);
    assert_refused(run_with(&config, "twice", NULL, NULL), MLFF_ERR_VALUE, "moved.extxyz: has the same labels as ");
    write_labels(in_folder("more.extxyz", ""), 60, 9, 0);
    snprintf(two, sizeof two, "%s,%s", in_folder("moved.extxyz", ""), in_folder("more.extxyz", ""));
    config = small_config(two);
    assert_refused(run_with(&config, "whole", NULL, NULL), MLFF_ERR_VALUE, "began with 1 file of labels, not with 2");
    remove_run("whole");
    unlink(in_folder("moved.extxyz", ""));
    unlink(in_folder("more.extxyz", ""));
}

// Molecules without and cells with stress, energies of a third of the frames, two files of which trajectories have the same numbers, and an
// element in one trajectory alone.
static void test_mixed_labels(void **state)
{
    (void)state;
    char files[700];
    mlff_model_info info;
    write_labels(in_folder("b.extxyz", ""), 200, 2, MOLECULES | CELLS | SOME_ENERGIES);
    write_labels(in_folder("c.extxyz", ""), 200, 3, MOLECULES | CELLS | ONE_ALUMINUM);
    snprintf(files, sizeof files, "%s,%s", in_folder("b.extxyz", ""), in_folder("c.extxyz", ""));
    mlff_distill_config config = small_config(files);
    config.n_structures = 300;
    if (run_with(&config, "mixed", NULL, NULL) != MLFF_OK) fail_msg("%s", mlff_last_error());
    char *verdict = content("mixed", "verdict.json"), *history = content("mixed", "history.jsonl");
    assert_measured(verdict);
    assert_non_null(strstr(verdict, "\"elements_not_judged\": [\"Al\"]")); // it stays in training
    assert_non_null(strstr(verdict, "\"stability.nve\", \"system\": \"H2O\""));
    assert_non_null(strstr(verdict, "\"stability.nve\", \"system\": \"cell H2O\""));
    assert_non_null(strstr(history, "stress_mae"));
    assert_null(strstr(history, "\"stress_mae_ev_per_angstrom3\": null"));
    base_free(verdict);
    base_free(history);
    mlff_model *student;
    assert_ok(mlff_model_load(in_folder("mixed", "student.safetensors"), &student));
    mlff_model_info_get(student, &info);
    assert_int_equal(info.n_elements, 3);
    assert_non_null(strstr(note_of(student, "training.data"), "structures of b.extxyz, c.extxyz"));
    mlff_model_destroy(student);
    mlff_dataset *data = trained_on("mixed");
    assert_non_null(data);
    assert_true(mlff_dataset_size(data) < 280);
    mlff_dataset_destroy(data);
    remove_run("mixed");
    unlink(in_folder("b.extxyz", ""));
    unlink(in_folder("c.extxyz", ""));
}

// A teacher beside the labels is measured, and did not teach.
static void test_teacher_beside(void **state)
{
    (void)state;
    mlff_distill_options options = mlff_distill_options_default();
    mlff_teacher *teacher;
    int passed;
    write_labels(in_folder("d.extxyz", ""), 100, 4, NO_GROUPS);
    assert_ok(mlff_teacher_create("springs", log_springs, rest, &teacher));
    options.teacher = teacher;
    options.n_threads = 1;
    mlff_distill_config config = small_config("");
    assert_ok(mlff_distill_preset("demo", &config));
    config.teacher = "springs";
    mlff_distill_use_labels(&config, in_folder("d.extxyz", ""));
    assert_true(config.min_speed == 1);
    config.core_repulsion = 0.5; // at most
    config.n_steps = 40;
    config.n_features = 8;
    config.compare_ps = config.nve_ps = config.hot_ps = 0.1;
    config.speed_s = 0.05;
    if (mlff_distill(&config, in_folder("beside", ""), &options, &passed) != MLFF_OK) fail_msg("%s", mlff_last_error());
    char *verdict = content("beside", "verdict.json"), *page = content("beside", "report.html");
    assert_non_null(strstr(verdict, "\"speed\""));
    assert_non_null(strstr(verdict, "\"spectrum\""));
    assert_non_null(strstr(verdict, "\"pressed\""));
    assert_non_null(strstr(verdict, "against the labels of"));
    assert_non_null(strstr(page, "A student of d.extxyz"));
    assert_non_null(strstr(page, "Beside the teacher"));
    mlff_model *student;
    assert_ok(mlff_model_load(in_folder("beside", "student.safetensors"), &student));
    assert_null(note_of(student, "training.teacher"));
    assert_string_equal(note_of(student, "core_repulsion"), "0.5");
    mlff_model_destroy(student);
    mlff_teacher_destroy(teacher);
    base_free(verdict);
    base_free(page);
    remove_run("beside");
    unlink(in_folder("d.extxyz", ""));
}

// A model's metadata may name anything: a pipe is not waited for.
static void test_data_is_a_pipe(void **state)
{
    (void)state;
    mlff_model *model;
    mlff_dataset *data = NULL;
    assert_ok(mlff_model_create("painn", NULL, &model));
    assert_ok(mlff_model_note(model, "data_hash", "0000"));
    assert_ok(mlff_model_note(model, "data_file", "pipe"));
    assert_ok(mlff_model_save(model, in_folder("m.safetensors", "")));
    assert_int_equal(mkfifo(in_folder("pipe", ""), 0600), 0);
    alarm(20);
    assert_ok(mlff_model_training_data(model, in_folder("m.safetensors", ""), 1, &data, NULL));
    alarm(0);
    assert_null(data);
    mlff_model_destroy(model);
    unlink(in_folder("pipe", ""));
    unlink(in_folder("m.safetensors", ""));
}

static mlff_status run_on(const mlff_dataset *data, const char *run, int *calls)
{
    mlff_distill_options options = mlff_distill_options_default();
    const mlff_distill_config config = small_config("my data");
    int passed;
    options.labels = data;
    options.n_threads = 1;
    options.callback = calls ? stop_sometimes : NULL;
    options.context = calls;
    return mlff_distill(&config, in_folder(run, ""), &options, &passed);
}

// A Hessian probe one of whose structures has too large a force to be judged does not validate; no half of one does.
static void test_probes_stay_whole(void **state)
{
    (void)state;
    mlff_dataset *all;
    distill_data data = {0};
    const double energy = -1, step = 0.01;
    assert_ok(mlff_dataset_create(&all));
    for (int k = 0; k < 60; k++) {
        mlff_system *side[2];
        double forces[2][9] = {{k % 3 == 0 ? 20.1 : 19.9}, {k % 3 == 1 ? 20.1 : 19.9}};
        mlff_labels labels[2];
        for (int s = 0; s < 2; s++) {
            assert_ok(mlff_system_copy(rest, &side[s]));
            side[s]->group = k;
            side[s]->positions[0] += 1e-3 * k + (s ? -step : step);
            labels[s] = (mlff_labels){.energy = energy, .forces = forces[s], .weight = 1};
        }
        assert_ok(mlff_dataset_add_probe(all, side[0], side[1], step, &labels[0], &labels[1]));
        for (int s = 0; s < 2; s++) mlff_system_destroy(side[s]);
    }
    assert_ok(distill_data_create(&data));
    assert_ok(distill_divide(all, 1, &data));
    const mlff_dataset *validation = data.validation;
    assert_true(validation->n_frames > 0 && validation->n_frames % 2 == 0);
    for (size_t f = 0; f < validation->n_frames; f++) {
        assert_true(validation->frames[f].probe_step == (f % 2 ? 0 : step));
        assert_true(validation->frames[f].system->label_forces[0] == 19.9);
        assert_int_equal(validation->frames[f].system->group, validation->frames[f / 2 * 2].system->group);
    }
    distill_data_free(&data);
    mlff_dataset_destroy(all);
}

// A dataset of the caller's in place of files: the run keeps it, and goes on without it, also in a folder that was moved.
static void test_dataset(void **state)
{
    (void)state;
    mlff_dataset *data, *found;
    write_labels(in_folder("e.extxyz", ""), 60, 5, 0);
    assert_ok(mlff_dataset_create(&data));
    assert_ok(mlff_dataset_read(data, in_folder("e.extxyz", "")));
    for (size_t f = 0; f < 60; f++) { // what extended XYZ files of labels do not have
        data->frames[f].weight = 1 + 0.01 * (double)f;
        assert_ok(mlff_system_add_masses(data->frames[f].system));
        data->frames[f].system->masses[1] = 2.014;
    }
    if (run_on(data, "data", NULL) != MLFF_OK) fail_msg("%s", mlff_last_error());
    assert_ok(run_on(data, "data", NULL));
    int n_moved = 0;
    for (int calls = 0;; calls++) { // later and later
        int left = calls;
        const mlff_status status = run_on(data, "before", &left);
        if (status == MLFF_OK) break;
        if (status != MLFF_ERR_INTERRUPTED) fail_msg("%s", mlff_last_error());
        if (access(in_folder("before", "config.json"), F_OK) != 0) continue; // the run did not begin
        assert_int_equal(rename(in_folder("before", ""), in_folder("after", "")), 0);
        if (run_with(NULL, "after", NULL, NULL) != MLFF_OK) fail_msg("%s", mlff_last_error());
        assert_same_file("data", "after", "student.safetensors");
        remove_run("after");
        n_moved++;
    }
    assert_true(n_moved > 3);
    remove_run("before");
    found = trained_on("data");
    assert_non_null(found);
    mlff_dataset_destroy(found);

    // A file that a killed process left is taken, one of other labels is not touched.
    mkdir(in_folder("left", ""), 0700);
    assert_ok(mlff_dataset_save(data, in_folder("left", "labels.mlff")));
    if (run_on(data, "left", NULL) != MLFF_OK) fail_msg("%s", mlff_last_error());
    assert_same_file("data", "left", "student.safetensors");
    remove_run("left");
    mkdir(in_folder("left", ""), 0700);
    data->frames[30].system->label_energy += 0.01;
    assert_ok(mlff_dataset_save(data, in_folder("left", "labels.mlff")));
    assert_refused(run_on(data, "data", NULL), MLFF_ERR_VALUE, "the run began with other labels");
    data->frames[30].system->label_energy -= 0.01;
    assert_refused(run_on(data, "left", NULL), MLFF_ERR_VALUE, "labels.mlff: is of another run");
    assert_refused(run_on(data, "a,b", NULL), MLFF_ERR_USAGE,
                   "this folder has one in its name"); // it could not go on without `data`
    mlff_dataset_destroy(data);
    remove_run("left");
    remove_run("data");
    unlink(in_folder("e.extxyz", ""));
}

static void test_refuses(void **state)
{
    (void)state;
    const char *path = in_folder("f.extxyz", "");
    char file[300];
    snprintf(file, sizeof file, "%s", path);
    write_labels(file, 49, 6, 0);
    mlff_distill_config config = small_config(file), wrong;
    assert_refused(run_with(&config, "nowhere", NULL, NULL), MLFF_ERR_VALUE,
                   "49 labelled structures; training, validation and test");
    write_labels(file, 60, 6, NO_FORCES);
    assert_refused(run_with(&config, "nowhere", NULL, NULL), MLFF_ERR_VALUE, "no structure has forces");
    write_labels(file, 60, 6, KILOJOULES);
    assert_refused(run_with(&config, "nowhere", NULL, NULL), MLFF_ERR_VALUE, "are energies in eV and forces in eV/Å");
    write_labels(file, 60, 6, 0);
    wrong = config;
    wrong.systems = "h2o";
    assert_refused(run_with(&wrong, "nowhere", NULL, NULL), MLFF_ERR_USAGE, "structures of their own");
    wrong = config;
    wrong.n_rounds = 1;
    assert_refused(run_with(&wrong, "nowhere", NULL, NULL), MLFF_ERR_USAGE, "rounds and Hessian probes");
    wrong = config;
    wrong.min_speed = 1;
    assert_refused(run_with(&wrong, "nowhere", NULL, NULL), MLFF_ERR_USAGE, "need a teacher to measure beside");
    wrong = config;
    wrong.n_structures = 49;
    assert_refused(run_with(&wrong, "nowhere", NULL, NULL), MLFF_ERR_USAGE, "give 50 or more, or 0 for all");
    wrong = config;
    wrong.labels = NULL;
    assert_refused(run_with(&wrong, "nowhere", NULL, NULL), MLFF_ERR_USAGE, "or labels");
    assert_int_equal(access(in_folder("nowhere", ""), F_OK), -1); // nothing is left behind
    // A folder that labels cannot go into: the labels stay.
    assert_ok(run_with(&config, "there", NULL, NULL));
    unlink(in_folder("there", "config.json"));
    assert_refused(run_with(&config, "there", NULL, NULL), MLFF_ERR_VALUE, "whose config.json is gone");
    remove_run("there");
    unlink(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_run),      cmocka_unit_test(test_interrupted_runs), cmocka_unit_test(test_killed_runs),
        cmocka_unit_test(test_changed_labels), // removes the whole run
        cmocka_unit_test(test_mixed_labels),   cmocka_unit_test(test_teacher_beside),   cmocka_unit_test(test_data_is_a_pipe),
        cmocka_unit_test(test_dataset),        cmocka_unit_test(test_refuses),          cmocka_unit_test(test_probes_stay_whole),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
