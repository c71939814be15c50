// SPDX-License-Identifier: MIT
// test_distill.c: a whole run from teacher to verdict in seconds; interrupted and killed runs end in the same bits; settings.
#include <inttypes.h>
#include <limits.h>
#include <sys/stat.h>

#include "mlff_distill.h"
#include "train/running/distill.h"
#include "unit/distill_runs.h"

static mlff_distill_config small_config(void)
{
    mlff_distill_config config;
    assert_int_equal(mlff_distill_preset("demo", &config), MLFF_OK);
    config.teacher = "springs";
    config.systems = "h2o";
    config.n_structures = 60;
    config.n_features = 8;
    config.n_layers = 1;
    config.n_radial = 8;
    config.cutoff_angstrom = 4;
    config.batch_size = 8;
    config.n_steps = 120;
    config.nve_ps = 0.2;
    config.hot_ps = 0.1;
    config.speed_s = 0.05;
    config.seed = 7;
    return config;
}

// Two rounds of exploration and a baseline.
static mlff_distill_config exploring_config(void)
{
    mlff_distill_config config = small_config();
    config.n_structures = 100; // of which each round takes 10
    config.n_rounds = 2;
    config.committee = 2;
    config.n_probes = 1;
    config.baseline = 1;
    config.compare_ps = 0.6;
    return config;
}

static int64_t n_calls; // of the teacher

static mlff_status counted_springs(void *context, const mlff_system *system, double *energy, double *forces)
{
    n_calls++;
    return log_springs(context, system, energy, forces);
}

static mlff_status run_with(const mlff_distill_config *config, const char *run,
                            int (*callback)(void *, const mlff_distill_progress *), void *context, int *passed)
{
    mlff_distill_options options = mlff_distill_options_default();
    mlff_teacher *teacher = NULL;
    n_calls = 0;
    assert_int_equal(mlff_teacher_create("springs", counted_springs, rest, &teacher), MLFF_OK);
    options.teacher = teacher;
    options.n_threads = 1;
    options.callback = callback;
    options.context = context;
    mlff_status status = mlff_distill(config, in_folder(run, ""), &options, passed);
    mlff_teacher_destroy(teacher);
    return status;
}

static void make_whole(void)
{
    const mlff_distill_config config = small_config();
    int passed = -1;
    if (access(in_folder("whole", "verdict.json"), F_OK) == 0) return;
    if (run_with(&config, "whole", NULL, NULL, &passed) != MLFF_OK) fail_msg("%s", mlff_last_error());
    assert_int_equal(passed, 0); // 120 steps make no student that meets 50 meV/Å
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

// ---- tests ----------------------------------------------------------------------------------------------------------

static void test_whole_run(void **state)
{
    (void)state;
    make_whole();
    mlff_model *student = NULL;
    assert_int_equal(mlff_model_load(in_folder("whole", "student.safetensors"), &student), MLFF_OK);
    const char *key, *value;
    int noted = 0;
    for (int k = 0; (key = mlff_model_metadata(student, k, &value)); k++) {
        if (strcmp(key, "training.teacher") == 0) noted += strcmp(value, "springs") == 0;
        if (strcmp(key, "training.error") == 0) noted += strstr(value, "meV/Å") != NULL;
    }
    assert_int_equal(noted, 2);
    mlff_model_destroy(student);
    assert_int_equal(access(in_folder("whole", "student.checkpoint"), F_OK), -1); // no longer needed
    char *page = NULL, *json = NULL;
    size_t length;
    assert_int_equal(base_read_file(in_folder("whole", "report.html"), 1 << 24, &page, &length), MLFF_OK);
    assert_true(strstr(page, "error.forces") && strstr(page, "<polyline") && strstr(page, "<circle") && !strstr(page, "http"));
    assert_int_equal(base_read_file(in_folder("whole", "verdict.json"), 1 << 24, &json, &length), MLFF_OK);
    assert_non_null(strstr(json, "\"verdict\": \"failed\""));
    assert_non_null(strstr(json, "\"student\": \"student\"")); // not the name of the untrained model it began as
    base_free(page);
    base_free(json);
}

// The learning curve of a run, without the times that follow in each line.
static char *read_curve(const char *run)
{
    char *text = content(run, "history.jsonl");
    char *to = text;
    for (const char *line = text; *line;) {
        const char *times = strstr(line, ", \"structures_per_s\""), *end = strchr(line, '\n');
        assert_non_null(times);
        assert_non_null(end);
        memmove(to, line, (size_t)(times - line));
        to += times - line;
        *to++ = '\n';
        line = end + 1;
    }
    *to = 0;
    return text;
}

// However often a run was stopped, no validation is missing from its history, and none is there twice.
static void assert_same_curve(void)
{
    char *whole = read_curve("whole"), *pieces = read_curve("pieces");
    assert_true(strlen(whole) > 0);
    assert_string_equal(pieces, whole);
    base_free(whole);
    base_free(pieces);
}

static void test_interrupted_runs(void **state)
{
    (void)state;
    const mlff_distill_config config = small_config();
    int passed = -1, n_interrupted = 0;
    make_whole();
    for (int calls = 0;; calls += 3) { // later and later
        int left = calls;
        mlff_status status = run_with(calls % 2 && calls > 3 ? NULL : &config, "pieces", stop_sometimes, &left, &passed);
        if (status == MLFF_OK) break;
        if (status != MLFF_ERR_INTERRUPTED) fail_msg("%s", mlff_last_error());
        n_interrupted++;
        assert_true(n_interrupted < 500);
    }
    assert_true(n_interrupted > 3);
    assert_same_file("whole", "pieces", "samples.extxyz");
    assert_same_file("whole", "pieces", "student.safetensors");
    assert_same_curve();
    remove_run("pieces");
}

// kill -9 after random times until a run gets through: MLFF_KILLS times at most (8).
static void test_killed_runs(void **state)
{
    (void)state;
    const mlff_distill_config config = small_config();
    const char *asked = getenv("MLFF_KILLS");
    const int kills = asked ? atoi(asked) : 8;
    int passed = -1;
    make_whole();
    for (int k = 0; k < kills; k++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            for (;;) {
                run_with(&config, "pieces", NULL, NULL, &passed);
                remove_run("pieces"); // finished before it was killed: again from the start
            }
        }
        usleep((useconds_t)(5000 + 400000 * base_random_uniform(3, (uint64_t)getpid(), (uint64_t)k)));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    if (run_with(&config, "pieces", NULL, NULL, &passed) != MLFF_OK) fail_msg("%s", mlff_last_error());
    assert_same_file("whole", "pieces", "student.safetensors");
    assert_same_curve();
    remove_run("pieces");
}

// Young students explore, what they meet is labelled, and the student is judged beside one that never saw it.
static void test_rounds(void **state)
{
    (void)state;
    const mlff_distill_config config = exploring_config();
    mlff_dataset *labels = NULL;
    int passed = -1;
    if (run_with(&config, "rounds", NULL, NULL, &passed) != MLFF_OK) fail_msg("%s", mlff_last_error());
    char *json = NULL, *record = NULL, *page = NULL;
    json = content("rounds", "verdict.json");
    record = content("rounds", "round-1.json");
    page = content("rounds", "report.html");
    assert_non_null(strstr(json, "\"name\": \"baseline\""));
    assert_null(strstr(json, "\"name\": \"baseline\", \"state\": \"not measured\"")); // as drift may be, of runs this short
    assert_null(strstr(json, "\"name\": \"structure\", \"state\": \"not measured\""));
    assert_null(strstr(json, "\"name\": \"spectrum\", \"state\": \"not measured\""));
    assert_non_null(strstr(record, "\"committee\": 2"));
    assert_null(strstr(record, "\"median_deviation_ev_per_angstrom\": null"));
    int n_commas = 0, n_structures = 0; // 10 at most: young students may lose too many trajectories
    assert_int_equal(sscanf(record, "{\"round\": 1, \"structures\": %d", &n_structures), 1);
    if (!(n_structures >= 3 && n_structures <= 10)) fail_msg("%d structures", n_structures);
    const char *errors = strstr(record, "\"error_ev_per_angstrom\": ["); // of each labelled structure
    assert_non_null(errors);
    for (size_t k = (size_t)(errors - record) + 1; record[k] != ']'; k++) n_commas += record[k] == ',';
    assert_int_equal(n_commas, n_structures - 1);
    assert_non_null(strstr(page, "deviation of the committee"));
    assert_non_null(strstr(page, "vibrational density of states"));
    assert_non_null(strstr(page, ">baseline</text>"));
    assert_non_null(strstr(json, "\"force_mae_by_element_ev_per_angstrom\": {\"H\": "));
    base_free(page);
    assert_int_equal(mlff_dataset_create(&labels), MLFF_OK);
    assert_int_equal(mlff_dataset_read(labels, in_folder("rounds", "labels-1.mlff")), MLFF_OK);
    assert_int_equal(mlff_dataset_size(labels), n_structures);
    mlff_dataset_destroy(labels);
    // The baseline has as many labels more as the rounds have.
    int64_t n_explored = 0;
    assert_int_equal(mlff_dataset_create(&labels), MLFF_OK);
    for (int k = 1; k <= 2; k++) {
        const char *path = in_folder("rounds", k == 1 ? "labels-1.mlff" : "labels-2.mlff");
        if (access(path, F_OK) == 0) assert_int_equal(mlff_dataset_read(labels, path), MLFF_OK);
    }
    n_explored = mlff_dataset_size(labels);
    mlff_dataset_destroy(labels);
    assert_int_equal(mlff_dataset_create(&labels), MLFF_OK);
    assert_int_equal(mlff_dataset_read(labels, in_folder("rounds", "baseline.mlff")), MLFF_OK);
    assert_int_equal(mlff_dataset_size(labels), n_explored);
    mlff_dataset_destroy(labels);
    // What the student was trained on, those of the rounds included, is found again in its folder.
    mlff_model *student = NULL;
    assert_int_equal(mlff_model_load(in_folder("rounds", "student.safetensors"), &student), MLFF_OK);
    assert_int_equal(mlff_model_training_data(student, in_folder("rounds", "student.safetensors"), 1, &labels, NULL), MLFF_OK);
    assert_non_null(labels);
    assert_true(mlff_dataset_size(labels) > 100); // probes count twice
    mlff_dataset_destroy(labels);
    mlff_model_destroy(student);
    assert_int_equal(access(in_folder("rounds", "young-0-1.safetensors"), F_OK), -1); // no longer needed
    base_free(json);
    base_free(record);
}

static void test_interrupted_rounds(void **state)
{
    (void)state;
    const mlff_distill_config config = exploring_config();
    int passed = -1, n_interrupted = 0;
    for (int calls = 0;; calls += 5) {
        int left = calls;
        mlff_status status = run_with(&config, "pieces", stop_sometimes, &left, &passed);
        if (status == MLFF_OK) break;
        if (status != MLFF_ERR_INTERRUPTED) fail_msg("%s", mlff_last_error());
        assert_true(++n_interrupted < 500);
    }
    assert_true(n_interrupted > 5);
    static const char *const same[] = {"labels.mlff",         "explored-1.extxyz", "round-1.json",        "labels-1.mlff",
                                       "student.safetensors", "baseline.mlff",     "baseline.safetensors"};
    for (size_t k = 0; k < sizeof same / sizeof *same; k++) assert_same_file("rounds", "pieces", same[k]);
    remove_run("pieces");
}

// Stops a run in a training that is half done, and the next one where that goes on.
typedef struct half_way {
    const char *stage, *model;     // that is there already
    int n_before;                  // trainings of this stage
    double stopped, resumed, last; // fractions of steps
} half_way;

static int stop_half_way(void *context, const mlff_distill_progress *progress)
{
    half_way *h = context;
    if (strcmp(progress->stage, h->stage) != 0 || strncmp(progress->text, "step ", 5) != 0) return 0;
    if (h->stopped > 0) {
        h->resumed = progress->fraction;
        return 1;
    }
    h->n_before -= progress->fraction < h->last;
    h->last = progress->fraction;
    if (h->n_before > 0 || progress->fraction < 0.5) return 0;
    h->stopped = progress->fraction;
    return 1;
}

// A student that is there does not cost the training behind it its checkpoint, of the second young student or of the baseline.
static void test_training_goes_on(void **state)
{
    (void)state;
    mlff_distill_config config = exploring_config();
    config.n_steps = 3000; // with several validations of the young ones
    half_way trainings[] = {{.stage = "round", .model = "young-0-1.safetensors", .n_before = 1},
                            {.stage = "train", .model = "round-2.json"},
                            {.stage = "baseline", .model = "student.safetensors"}};
    int passed = -1;
    for (size_t k = 0; k < sizeof trainings / sizeof *trainings; k++) {
        half_way *h = &trainings[k];
        assert_int_equal(run_with(&config, "pieces", stop_half_way, h, &passed), MLFF_ERR_INTERRUPTED);
        assert_int_equal(access(in_folder("pieces", h->model), F_OK), 0);
        assert_int_equal(run_with(NULL, "pieces", stop_half_way, h, &passed), MLFF_ERR_INTERRUPTED);
        printf("%s: stopped at %.2f, went on at %.2f\n", h->stage, h->stopped, h->resumed);
        if (!(h->stopped > 0 && h->resumed >= h->stopped)) fail_msg("%s begins again", h->stage);
        remove_run("pieces");
    }
    remove_run("rounds");
}

// What a verdict measures, in order: "speed", "NVE", "500 K, run 1 of 1", "compressed pairs", "atoms pressed together", "dynamics of springs, run 1 of 4", ...
typedef struct judging {
    char parts[32][64];
    int n;
    int first;      // part that this run measured first; -1: none
    int n_measured; // parts that this run measured
    bool stops;     // where a part begins that no run has begun
} judging;

static int stop_at_new_part(void *context, const mlff_distill_progress *progress)
{
    judging *j = context;
    char part[64];
    int k = 0;
    if (strcmp(progress->stage, "verdict") != 0 || progress->milestone || strncmp(progress->text, "errors", 6) == 0) return 0;
    snprintf(part, sizeof part, "%s", progress->text);
    if (strncmp(part, "speed", 5) == 0 || strncmp(part, "NVE", 3) == 0) part[strcspn(part, " :")] = 0;
    while (k < j->n && strcmp(j->parts[k], part) != 0) k++;
    if (j->first < 0) j->first = k;
    if (k >= j->n_measured) j->n_measured = k + 1;
    if (k < j->n) return 0;
    assert_true(j->n < 32);
    snprintf(j->parts[j->n++], sizeof j->parts[0], "%s", part);
    return j->stops;
}

static mlff_status judge_on(const mlff_distill_config *config, judging *j, bool stops)
{
    int passed;
    j->first = -1;
    j->n_measured = 0;
    j->stops = stops;
    return run_with(config, "pieces", stop_at_new_part, j, &passed);
}

// Lines of verdict-parts.jsonl without those of speed, which is another each time.
static char *read_parts(const char *run)
{
    char *text = content(run, "verdict-parts.jsonl"), *speed = strstr(text, "{\"part\": \"speed\"");
    assert_non_null(speed);
    const char *rest_of_lines = strchr(speed, '\n');
    memmove(speed, rest_of_lines, strlen(rest_of_lines) + 1);
    return text;
}

// Whatever is measured when a verdict is interrupted, what was measured before is not measured again, and the bars have the same bits.
static void test_verdict_goes_on(void **state)
{
    (void)state;
    mlff_distill_config config = small_config();
    config.compare_ps = 0.6;
    config.min_speed = 1e-6; // far below, so that the speed is decided
    judging j = {0};
    int passed = -1;
    if (run_with(&config, "judged", NULL, NULL, &passed) != MLFF_OK) fail_msg("%s", mlff_last_error());
    for (int stopped = -1;; stopped = j.n - 1) {
        const mlff_status status = judge_on(&config, &j, true);
        if (stopped >= 0 && j.first != stopped)
            fail_msg("stopped in \"%s\", went on with \"%s\"", j.parts[stopped], j.parts[j.first]);
        if (status == MLFF_OK) break;
        if (status != MLFF_ERR_INTERRUPTED) fail_msg("%s", mlff_last_error());
    }
    assert_int_equal(j.n, 5 + 8); // eight runs beside the teacher
    char *whole = read_parts("judged"), *pieces = read_parts("pieces"), *before, *after;
    assert_string_equal(pieces, whole);
    before = content("pieces", "verdict.json");
    // Of a verdict that is finished nothing is measured but errors, and after another setting what depends on it.
    assert_int_equal(judge_on(NULL, &j, false), MLFF_OK);
    assert_int_equal(j.first, -1);
    after = content("pieces", "verdict.json");
    assert_string_equal(after, before);
    config.hot_ps = 0.2;
    assert_int_equal(mlff_distill_config_save(&config, in_folder("pieces", "config.json")), MLFF_OK);
    assert_int_equal(judge_on(NULL, &j, false), MLFF_OK);
    assert_string_equal(j.parts[j.first], "500 K, run 1 of 1");
    assert_int_equal(j.n_measured, j.first + 1);
    // Of a file that is damaged nothing is taken.
    write_text(in_folder("pieces", "verdict-parts.jsonl"), "{\"part\": \"nve\", \"system\"\n[]\n{}\n");
    config.hot_ps = 0.1;
    assert_int_equal(mlff_distill_config_save(&config, in_folder("pieces", "config.json")), MLFF_OK);
    assert_int_equal(judge_on(NULL, &j, false), MLFF_OK);
    assert_int_equal(j.n_measured, j.n);
    base_free(pieces);
    pieces = read_parts("pieces");
    assert_string_equal(pieces, whole);
    base_free(whole);
    base_free(pieces);
    base_free(before);
    base_free(after);
    remove_run("pieces");
    remove_run("judged");
}

// Stops in a stage at its call number `left`, or where the next one begins.
typedef struct stop_in {
    const char *stage;
    int left;
} stop_in;

static int stop_in_stage(void *context, const mlff_distill_progress *progress)
{
    stop_in *stop = context;
    if (strcmp(progress->stage, stop->stage) == 0) return --stop->left < 0;
    return strcmp(progress->stage, "label") == 0;
}

// However often a sampling is interrupted, the teacher computes each structure once, and the samples have the same bits.
static void test_sampling_goes_on(void **state)
{
    (void)state;
    const mlff_distill_config config = small_config();
    int passed, n_interrupted = 0;
    stop_in stop = {"sample", INT_MAX};
    assert_int_equal(run_with(&config, "sampled", stop_in_stage, &stop, &passed), MLFF_ERR_INTERRUPTED);
    const int64_t whole = n_calls;
    int64_t pieces = 0;
    assert_int_equal(access(in_folder("sampled", "samples.extxyz"), F_OK), 0);
    assert_int_equal(access(in_folder("sampled", "samples.recorded"), F_OK), -1); // no longer needed
    for (int calls = 5; access(in_folder("pieces", "samples.extxyz"), F_OK) != 0; calls += 40, n_interrupted++) {
        stop.left = calls;
        assert_int_equal(run_with(&config, "pieces", stop_in_stage, &stop, &passed), MLFF_ERR_INTERRUPTED);
        pieces += n_calls;
    }
    printf("%d interruptions, %" PRId64 " calls of the teacher, %" PRId64 " without an interruption\n", n_interrupted, pieces,
           whole);
    assert_true(n_interrupted > 5);
    assert_int_equal(pieces, whole);
    assert_same_file("sampled", "pieces", "samples.extxyz");
    remove_run("pieces");
    // Of a file whose end is damaged the calls before it are taken.
    stop.left = 200;
    assert_int_equal(run_with(&config, "pieces", stop_in_stage, &stop, &passed), MLFF_ERR_INTERRUPTED);
    pieces = n_calls;
    struct stat file;
    assert_int_equal(stat(in_folder("pieces", "samples.recorded"), &file), 0);
    assert_int_equal(truncate(in_folder("pieces", "samples.recorded"), file.st_size - 7), 0);
    stop.left = INT_MAX;
    assert_int_equal(run_with(&config, "pieces", stop_in_stage, &stop, &passed), MLFF_ERR_INTERRUPTED);
    pieces += n_calls;
    assert_true(pieces > whole && pieces < whole + 20);
    assert_same_file("sampled", "pieces", "samples.extxyz");
    remove_run("pieces");
    remove_run("sampled");
}

// Stops where the teacher labels what a round met, and counts how often the students' dynamics are told of.
typedef struct stop_at_labels {
    bool stops;
    int n_explorations;
} stop_at_labels;

static int stop_in_round(void *context, const mlff_distill_progress *progress)
{
    stop_at_labels *stop = context;
    if (strcmp(progress->stage, "round") != 0) return strcmp(progress->stage, "train") == 0;
    if (strncmp(progress->text, "dynamics by partly", 18) == 0) stop->n_explorations++;
    return stop->stops && strstr(progress->text, " label") && !progress->milestone;
}

// An exploration whose structures are being labelled is not repeated, and the round has the same record.
static void test_exploration_goes_on(void **state)
{
    (void)state;
    mlff_distill_config config = exploring_config();
    config.n_rounds = 1;
    int passed;
    stop_at_labels whole = {0}, cut = {.stops = true};
    assert_int_equal(run_with(&config, "met", stop_in_round, &whole, &passed), MLFF_ERR_INTERRUPTED);
    assert_int_equal(run_with(&config, "pieces", stop_in_round, &cut, &passed), MLFF_ERR_INTERRUPTED);
    assert_int_equal(access(in_folder("pieces", "round-1.json"), F_OK), -1);
    assert_true(cut.n_explorations > 0 && cut.n_explorations == whole.n_explorations);
    cut = (stop_at_labels){0};
    assert_int_equal(run_with(NULL, "pieces", stop_in_round, &cut, &passed), MLFF_ERR_INTERRUPTED);
    assert_int_equal(cut.n_explorations, 0);
    static const char *const same[] = {"explored-1.extxyz", "labels-1.mlff", "round-1.json"};
    for (size_t k = 0; k < sizeof same / sizeof *same; k++) assert_same_file("met", "pieces", same[k]);
    assert_int_equal(access(in_folder("pieces", "explored-1.json"), F_OK), -1); // no longer needed
    remove_run("pieces");
    remove_run("met");
}

// The record of a round of many structures has two numbers of each.
static void test_long_record(void **state)
{
    (void)state;
    base_text text = {0};
    int64_t n = 0;
    double upper = 0;
    base_text_add(&text,
                  "{\"structures\": 100000, \"upper_deviation_ev_per_angstrom\": 0.5, \"deviation_ev_per_angstrom\": [0.123456");
    for (int k = 1; k < 200000; k++) base_text_add(&text, ", 0.123456");
    base_text_add(&text, "]}\n");
    char path[300];
    snprintf(path, sizeof path, "%s/record.json", folder);
    assert_int_equal(base_text_write(&text, path), MLFF_OK);
    assert_int_equal(distill_round_read(path, &n, &upper), MLFF_OK);
    assert_true(n == 100000 && upper == 0.5);
    assert_int_equal(remove(path), 0);
    base_text_free(&text);
}

// Each system has its own bars of dynamics; a history that is gone costs the page a curve and nothing else.
static void test_two_systems(void **state)
{
    (void)state;
    mlff_distill_config config = small_config();
    int passed = -1;
    config.systems = "h2o,h2o";
    config.min_speed = 1e-6; // far below, so that the speed is decided
    if (run_with(&config, "two", NULL, NULL, &passed) != MLFF_OK) fail_msg("%s", mlff_last_error());
    unlink(in_folder("two", "history.jsonl"));
    char *before = content("two", "verdict.json");
    if (run_with(NULL, "two", NULL, NULL, &passed) != MLFF_OK) fail_msg("%s", mlff_last_error());
    char *json = NULL, *page = NULL;
    json = content("two", "verdict.json");
    page = content("two", "report.html");
    assert_string_equal(json, before); // bars of both were measured before
    base_free(before);
    int n_nve = 0;
    for (const char *at = json; (at = strstr(at, "\"stability.nve\", \"system\": \"h2o\"")); at++) n_nve++;
    assert_int_equal(n_nve, 2);
    assert_non_null(strstr(page, "h2o: slope"));
    assert_null(strstr(page, "Learning curve"));
    base_free(json);
    base_free(page);
    remove_run("two");
}

// From another directory and in another place: files of structures in the folder are named relative to it, others by their real path.
static void test_elsewhere(void **state)
{
    (void)state;
    const char *const water = "3\n\nO 0 0 0\nH 0.96 0 0\nH -0.24 0.93 0\n";
    mlff_distill_config config = small_config();
    char here[1024];
    int passed;
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(mkdir(in_folder("away", ""), 0777), 0);
    write_text(in_folder("away", "in.xyz"), water);
    write_text(in_folder("out.xyz", ""), water);
    assert_int_equal(chdir(folder), 0);
    config.systems = "away/in.xyz,out.xyz";
    if (run_with(&config, "away", NULL, NULL, &passed) != MLFF_OK) fail_msg("%s", mlff_last_error());
    char *json = content("away", "config.json"), *whole = realpath("out.xyz", NULL), wanted[1100];
    snprintf(wanted, sizeof wanted, "\"systems\": \"in.xyz,%s\"", whole);
    assert_non_null(strstr(json, wanted));
    assert_int_equal(chdir(here), 0);
    assert_int_equal(rename(in_folder("away", ""), in_folder("moved", "")), 0);
    if (run_with(NULL, "moved", NULL, NULL, &passed) != MLFF_OK) fail_msg("%s", mlff_last_error());
    char given[700];
    snprintf(given, sizeof given, "%s,%s", in_folder("moved", "in.xyz"), in_folder("out.xyz", ""));
    config.systems = given;
    if (run_with(&config, "moved", NULL, NULL, &passed) != MLFF_OK) fail_msg("%s", mlff_last_error());
    // As a run begun before: relative to the directory of its first call.
    char *at = strstr(json, "\"in.xyz"), *before = base_alloc(strlen(json) + 16, 1, "settings");
    assert_non_null(before);
    sprintf(before, "%.*s\"away/in.xyz%s", (int)(at - json), json, at + strlen("\"in.xyz"));
    write_text(in_folder("moved", "config.json"), before);
    write_text(in_folder("moved", "made-with.json"), before);
    if (run_with(NULL, "moved", NULL, NULL, &passed) != MLFF_OK) fail_msg("%s", mlff_last_error());
    config.systems = in_folder("out.xyz", "");
    assert_refused(run_with(&config, "moved", NULL, NULL, &passed), MLFF_ERR_VALUE, "asked for is \"systems\"");
    free(whole);
    base_free(before);
    base_free(json);
    unlink(in_folder("moved", "in.xyz"));
    unlink(in_folder("out.xyz", ""));
    remove_run("moved");
}

static void test_refuses(void **state)
{
    (void)state;
    mlff_distill_config config = small_config();
    mlff_teacher *other = NULL;
    mlff_distill_options options = mlff_distill_options_default();
    int passed;
    make_whole();
    config.seed = 8;
    assert_refused(run_with(&config, "whole", NULL, NULL, &passed), MLFF_ERR_VALUE,
                   "another run: asked for is \"seed\": 8 in place of 7");
    assert_refused(run_with(NULL, "nowhere", NULL, NULL, &passed), MLFF_ERR_IO, "no run to go on with");
    assert_int_equal(access(in_folder("nowhere", ""), F_OK), -1); // nothing is left behind
    config.optimizer = "sophia";
    assert_refused(run_with(&config, "nowhere", NULL, NULL, &passed), MLFF_ERR_USAGE, "adamw and soap");
    config = exploring_config();
    config.committee = 9; // no room for its students
    assert_refused(run_with(&config, "nowhere", NULL, NULL, &passed), MLFF_ERR_USAGE, "committee is 9; it must be");
    config = small_config();
    config.learning_rate = 2; // which config.json would not be read with
    assert_refused(run_with(&config, "nowhere", NULL, NULL, &passed), MLFF_ERR_USAGE, "learning_rate is 2; it must be");
    config = small_config();
    config.seed = (UINT64_C(1) << 53) + 1; // which JSON would round
    assert_refused(run_with(&config, "nowhere", NULL, NULL, &passed), MLFF_ERR_USAGE, "from 0 to 9007199254740992");
    config = small_config();
    config.optimizer = "soap";
    config.systems = "unobtainium";
    assert_refused(run_with(&config, "nowhere", NULL, NULL, &passed), MLFF_ERR_USAGE, "there are silicon");
    assert_int_equal(access(in_folder("nowhere", ""), F_OK), -1);
    assert_int_equal(mlff_teacher_create("changed", log_springs, rest, &other), MLFF_OK); // labels name their teacher
    options.teacher = other;
    options.n_threads = 1;
    assert_refused(mlff_distill(NULL, in_folder("whole", ""), &options, &passed), MLFF_ERR_VALUE, "teacher");
    mlff_teacher_destroy(other);
    options.teacher = NULL; // the folder has no more than its name
    assert_refused(mlff_distill(NULL, in_folder("whole", ""), &options, &passed), MLFF_ERR_UNSUPPORTED,
                   "it may be a calculator of Python, which only Python calls: there distill(...)");
    config = small_config();
    config.teacher = "ase:ase.calculators.emt.EMT";
    assert_refused(mlff_distill(&config, in_folder("nowhere", ""), &options, &passed), MLFF_ERR_UNSUPPORTED,
                   "is a calculator of Python");
    assert_refused(mlff_distill_preset("fast", &config), MLFF_ERR_USAGE, "thorough");
    mlff_model *student = NULL; // of a version that held out others
    assert_ok(mlff_model_load(in_folder("whole", "student.safetensors"), &student));
    assert_ok(mlff_model_note(student, "data_hash", "0"));
    assert_ok(mlff_model_save(student, in_folder("whole", "student.safetensors")));
    mlff_model_destroy(student);
    config = small_config();
    assert_refused(run_with(&config, "whole", NULL, NULL, &passed), MLFF_ERR_VALUE, "other training structures");
    remove_run("whole");
}

// An edited config.json: what the files were made with stays, what only judges them may change.
static void test_edited_settings(void **state)
{
    (void)state;
    const mlff_distill_config whole = small_config();
    int passed = -1, left = 12; // a half-finished run
    char *student = NULL, *verdict = NULL, *again = NULL;
    size_t n, n_again;
    for (int finished = 0; finished < 2; finished++) {
        mlff_distill_config edited = whole;
        const mlff_status status = run_with(&whole, "edited", finished ? NULL : stop_sometimes, &left, &passed);
        assert_int_equal(status, finished ? MLFF_OK : MLFF_ERR_INTERRUPTED);
        edited.seed = 8;
        assert_int_equal(mlff_distill_config_save(&edited, in_folder("edited", "config.json")), MLFF_OK);
        assert_refused(run_with(NULL, "edited", NULL, NULL, &passed), MLFF_ERR_VALUE, "has \"seed\": 8 in place of 7");
        edited = whole;
        edited.n_features = 16;
        assert_int_equal(mlff_distill_config_save(&edited, in_folder("edited", "config.json")), MLFF_OK);
        assert_refused(run_with(NULL, "edited", NULL, NULL, &passed), MLFF_ERR_VALUE, "\"n_features\": 16 in place of 8");
        edited = whole;
        edited.systems = "h2o,h2o";
        assert_int_equal(mlff_distill_config_save(&edited, in_folder("edited", "config.json")), MLFF_OK);
        assert_refused(run_with(NULL, "edited", NULL, NULL, &passed), MLFF_ERR_VALUE, "\"systems\": \"h2o,h2o\"");
        assert_int_equal(mlff_distill_config_save(&whole, in_folder("edited", "config.json")), MLFF_OK);
    }
    assert_int_equal(base_read_file(in_folder("edited", "student.safetensors"), 1 << 24, &student, &n), MLFF_OK);
    verdict = content("edited", "verdict.json");
    assert_null(strstr(verdict, "\"limit\": 250"));
    mlff_distill_config looser = whole;
    looser.max_force_error = 0.25; // eV/Å
    assert_int_equal(mlff_distill_config_save(&looser, in_folder("edited", "config.json")), MLFF_OK);
    if (run_with(NULL, "edited", NULL, NULL, &passed) != MLFF_OK) fail_msg("%s", mlff_last_error());
    base_free(verdict);
    verdict = content("edited", "verdict.json");
    assert_non_null(strstr(verdict, "\"limit\": 250"));
    assert_int_equal(base_read_file(in_folder("edited", "student.safetensors"), 1 << 24, &again, &n_again), MLFF_OK);
    assert_true(n == n_again && memcmp(student, again, n) == 0);
    // Without its configuration the folder is no place for a new run.
    unlink(in_folder("edited", "config.json"));
    assert_refused(run_with(&whole, "edited", NULL, NULL, &passed), MLFF_ERR_VALUE, "whose config.json is gone");
    base_free(student);
    base_free(again);
    base_free(verdict);
    remove_run("edited");
}

static void test_settings(void **state)
{
    (void)state;
    const char *path = in_folder("config", "");
    mlff_distill_config config = small_config(), read;
    char text[1000];
    config.learning_rate = 1.0 / 3;                            // a run that goes on must have the same settings to the last bit
    config.systems = "w\377\303 \360\237\222\231 \\udc80.xyz"; // a name of any bytes, in a file of UTF-8
    assert_int_equal(mlff_distill_config_save(&config, path), MLFF_OK);
    char *json = content("config", "");
    assert_non_null(strstr(json, "w\\udcff\\udcc3 \360\237\222\231 \\\\udc80.xyz"));
    base_free(json);
    assert_int_equal(mlff_distill_preset("thorough", &read), MLFF_OK);
    assert_int_equal(mlff_distill_config_read(path, &read, text, sizeof text), MLFF_OK);
    assert_string_equal(read.teacher, config.teacher);
    assert_string_equal(read.systems, config.systems);
    assert_true(read.learning_rate == config.learning_rate);
    assert_true(read.seed == 7 && read.n_steps == 120 && read.cutoff_angstrom == 4 && read.core_repulsion == 0.7 &&
                read.nve_ps == 0.2 && read.n_rounds == 0);
    static const char *const bad[][2] = {{"[1]", "not a JSON object"},
                                         {"{\"n_steps\": 0}", "n_steps"},
                                         {"{\"n_steps\": 1.5}", "whole"},
                                         {"{\"mesage\": 1}", "not a setting"},
                                         {"{\"cutoff_angstrom\": \"5\"}", "cutoff_angstrom"},
                                         {"{\"teacher\": 3}", "not a text"},
                                         {"{\"n_structures\": 1e300}", "n_structures"},
                                         {"{", "not a JSON object"},
                                         {"{} {}", "something follows the JSON object: \"{}\""},
                                         {"{\"systems\": \"\\udc\"}", "not a JSON object"},
                                         {"{\"systems\": \"h2o\\u0000x\"}", "a zero byte"},
                                         {"{\"lowest_kelvin\": 900, \"highest_kelvin\": 300}", "below"}};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        const mlff_distill_config before = read;
        write_text(path, bad[k][0]);
        assert_refused(mlff_distill_config_read(path, &read, text + 500, 500), MLFF_ERR_FORMAT, bad[k][1]);
        assert_memory_equal(&before, &read, sizeof read);
    }
    unlink(path);
}

// The verdict's dynamics begin with the seed that the teacher relaxed, and with the same one when the run goes on.
static void test_rough_system(void **state)
{
    (void)state;
    mlff_distill_config config = small_config();
    char path[300], text[300] = "";
    int passed, length = 0;
    snprintf(path, sizeof path, "%s", in_folder("rough.xyz", ""));
    for (int i = 0; i < 3; i++) {
        const double *r = rest->positions + 3 * (size_t)i;
        length += snprintf(text + length, sizeof text - (size_t)length, "%s %.9f %.9f %.9f\n", i ? "H" : "3\n\nO", 1.5 * r[0],
                           1.5 * r[1], 1.5 * r[2]);
    }
    write_text(path, text);
    config.systems = path;
    if (run_with(&config, "rough", NULL, NULL, &passed) != MLFF_OK) fail_msg("%s", mlff_last_error());
    char *verdict = content("rough", "verdict.json");
    assert_null(strstr(verdict, "no two atoms are bonded"));
    base_free(verdict);
    char *parts = content("rough", "verdict-parts.jsonl");
    assert_int_equal(unlink(in_folder("rough", "verdict.json")), 0);
    assert_ok(run_with(&config, "rough", NULL, NULL, &passed));
    char *again = content("rough", "verdict-parts.jsonl");
    assert_string_equal(again, parts);
    base_free(parts);
    base_free(again);
    remove_run("rough");
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_run),
        cmocka_unit_test(test_interrupted_runs),
        cmocka_unit_test(test_killed_runs),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_interrupted_rounds),
        cmocka_unit_test(test_training_goes_on),
        cmocka_unit_test(test_two_systems),
        cmocka_unit_test(test_verdict_goes_on),
        cmocka_unit_test(test_sampling_goes_on),
        cmocka_unit_test(test_exploration_goes_on),
        cmocka_unit_test(test_long_record),
        cmocka_unit_test(test_edited_settings),
        cmocka_unit_test(test_elsewhere),
        cmocka_unit_test(test_rough_system),
        cmocka_unit_test(test_refuses), // removes the whole run
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
