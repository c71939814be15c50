// SPDX-License-Identifier: MIT
// Files of labels: resumed, cut at every byte, damaged, of another teacher, on a full disk; read back as datasets.
#include "support.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "train/data/dataset.h"
#include "train/teachers/teacher.h"

static char folder[] = "/tmp/test_labels_XXXXXX";

static const char *in_folder(const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

// A teacher that counts its calls. E = Σ x, F = -1 along x; structures of methane cannot be labelled.
static int n_calls;
static mlff_status plane(void *context, const mlff_system *system, double *energy, double *forces)
{
    (void)context;
    n_calls++;
    if (system->n_atoms == 5) return mlff_fail(MLFF_ERR_VALUE, "no methane");
    *energy = 0;
    for (int i = 0; i < system->n_atoms; i++) {
        *energy += system->positions[3 * i];
        forces[3 * i] = -1;
        forces[3 * i + 1] = forces[3 * i + 2] = 0;
    }
    return MLFF_OK;
}

static mlff_teacher *teacher_of(const char *name)
{
    mlff_teacher *teacher;
    assert_ok(mlff_teacher_create(name, plane, NULL, &teacher));
    return teacher;
}

// n displaced waters, and one methane in their middle where `methane`.
static mlff_samples *make_samples(int n, bool methane)
{
    mlff_samples *samples;
    assert_ok(mlff_samples_create(&samples));
    for (int k = 0; k < n; k++) {
        mlff_system *system;
        assert_ok(mlff_system_build(methane && k == n / 2 ? "methane" : "h2o", 0, 0, &system));
        assert_ok(mlff_system_perturb(system, 300, (uint64_t)k));
        system->group = k / 10;
        assert_ok(mlff_samples_add(samples, system, "test"));
        mlff_system_destroy(system);
    }
    return samples;
}

static void label_all(const char *path, mlff_teacher *teacher, const mlff_samples *samples)
{
    mlff_shard *shard;
    assert_ok(mlff_shard_open(path, teacher, &shard));
    assert_ok(mlff_shard_label(shard, teacher, samples, NULL, NULL));
    assert_ok(mlff_shard_close(shard));
}

static char *read_all(const char *path, size_t *length)
{
    char *bytes;
    assert_ok(base_read_file(path, 1 << 30, &bytes, length));
    return bytes;
}

static void assert_same_bytes(const char *path, const char *other)
{
    size_t lengths[2];
    char *bytes[2] = {read_all(path, &lengths[0]), read_all(other, &lengths[1])};
    assert_int_equal(lengths[0], lengths[1]);
    assert_memory_equal(bytes[0], bytes[1], lengths[0]);
    base_free(bytes[0]);
    base_free(bytes[1]);
}

static void write_all(const char *path, const char *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static int stop_early(void *context, const mlff_label_progress *progress)
{
    *(mlff_label_progress *)context = *progress;
    return 1;
}

static void test_resume(void **state)
{
    (void)state;
    mlff_teacher *teacher = teacher_of("plane");
    // In calls of 8, 32, …, of which a second one is computed before the callback is told of the first.
    mlff_samples *samples = make_samples(200, true);
    mlff_shard *shard;
    mlff_label_progress progress;
    mlff_shard_info info;
    mlff_label_options options = mlff_label_options_default();
    options.callback = stop_early;
    options.context = &progress;
    const char *path = in_folder("resume.labels");
    n_calls = 0;
    assert_ok(mlff_shard_open(path, teacher, &shard));
    assert_int_equal(mlff_shard_label(shard, teacher, samples, &options, NULL), MLFF_ERR_INTERRUPTED);
    const int first = n_calls;
    assert_true(first > 0 && first < 200 && progress.n_done == first && progress.n_total == 200);
    assert_ok(mlff_shard_close(shard));
    assert_ok(mlff_shard_open(path, teacher, &shard));
    assert_ok(mlff_shard_label(shard, teacher, samples, NULL, &progress));
    assert_int_equal(n_calls, 200);
    assert_int_equal(progress.n_before, first);
    assert_int_equal(progress.n_failed, 1);
    mlff_shard_info_get(shard, &info);
    assert_true(info.n_labels == 199 && info.n_failed == 1 && strcmp(info.teacher, "plane") == 0);
    // A failure is not tried again.
    assert_ok(mlff_shard_label(shard, teacher, samples, NULL, NULL));
    assert_int_equal(n_calls, 200);
    mlff_shard *second;
    assert_int_equal(mlff_shard_open(path, teacher, &second), MLFF_ERR_IO); // in use
    assert_ok(mlff_shard_close(shard));

    // A run that was never stopped gives the same bytes.
    const char *whole = in_folder("whole.labels");
    label_all(whole, teacher, samples);
    assert_same_bytes(path, whole);
    mlff_samples_destroy(samples);
    mlff_teacher_destroy(teacher);
}

// Cut anywhere behind the header (every fifth byte: each cut syncs the disk twice), a file is good for its whole labels, and ends
// as one that was never cut.
static void test_cut_everywhere(void **state)
{
    (void)state;
    mlff_teacher *teacher = teacher_of("plane");
    mlff_samples *samples = make_samples(3, false), *none = make_samples(0, false);
    const char *path = in_folder("cut.labels");
    size_t header, whole, length;
    label_all(path, teacher, none);
    base_free(read_all(path, &header));
    label_all(path, teacher, samples);
    char *bytes = read_all(path, &whole);
    for (size_t cut = header; cut < whole; cut += SUPPORT_SANITIZED ? 35 : 5) {
        write_all(path, bytes, cut);
        label_all(path, teacher, samples);
        char *again = read_all(path, &length);
        if (length != whole || memcmp(bytes, again, whole) != 0)
            fail_msg("cut at byte %zu of %zu: %zu bytes", cut, whole, length);
        base_free(again);
    }
    base_free(bytes);
    mlff_samples_destroy(samples);
    mlff_samples_destroy(none);
    mlff_teacher_destroy(teacher);
}

// Structures that are there twice have two labels each, also where the file was cut between them, and none is added to those.
static void test_cut_between_equal_structures(void **state)
{
    (void)state;
    mlff_teacher *teacher = teacher_of("plane");
    mlff_samples *samples = make_samples(3, false);
    const char *path = in_folder("equal.labels");
    size_t once, whole, length;
    label_all(path, teacher, samples);
    base_free(read_all(path, &once));
    unlink(path);
    for (int64_t k = 0; k < 3; k++) assert_ok(mlff_samples_add(samples, mlff_samples_get(samples, k, NULL), "again"));
    label_all(path, teacher, samples);
    char *bytes = read_all(path, &whole);
    assert_true(whole > once);
    for (size_t cut = once; cut <= whole; cut += whole - once) {
        write_all(path, bytes, cut);
        label_all(path, teacher, samples);
        char *again = read_all(path, &length);
        assert_int_equal(length, whole);
        assert_memory_equal(again, bytes, whole);
        base_free(again);
    }
    base_free(bytes);
    mlff_samples_destroy(samples);
    mlff_teacher_destroy(teacher);
}

// A flipped bit is found wherever it is; only at the end is it taken for an unfinished label.
static void test_damage(void **state)
{
    (void)state;
    mlff_teacher *teacher = teacher_of("plane");
    mlff_samples *samples = make_samples(3, false);
    const char *path = in_folder("damage.labels");
    mlff_shard *shard;
    mlff_samples *none = make_samples(0, false);
    size_t header, whole;
    label_all(path, teacher, none);
    base_free(read_all(path, &header));
    label_all(path, teacher, samples);
    char *bytes = read_all(path, &whole);
    const size_t last = whole - (whole - header) / 3; // the last label begins here
    for (size_t at = 0; at < whole; at += SUPPORT_SANITIZED ? 41 : 11) {
        bytes[at] ^= 0x10;
        write_all(path, bytes, whole);
        bytes[at] ^= 0x10;
        const mlff_status status = mlff_shard_open(path, teacher, &shard);
        if (status == MLFF_OK) assert_ok(mlff_shard_close(shard));
        if ((status == MLFF_OK) != (at >= last)) fail_msg("byte %zu of %zu: %s", at, whole, mlff_last_error());
    }
    write_all(path, "hello\n", 6);
    assert_int_equal(mlff_shard_open(path, teacher, &shard), MLFF_ERR_FORMAT);
    base_free(bytes);
    mlff_samples_destroy(samples);
    mlff_samples_destroy(none);
    mlff_teacher_destroy(teacher);
}

static void test_other_teacher(void **state)
{
    (void)state;
    mlff_teacher *teacher = teacher_of("plane"), *other = teacher_of("another plane");
    mlff_samples *samples = make_samples(2, false);
    mlff_shard *shard;
    const char *path = in_folder("other.labels");
    label_all(path, teacher, samples);
    assert_int_equal(mlff_shard_open(path, other, &shard), MLFF_ERR_VALUE);
    assert_non_null(strstr(mlff_last_error(), "of another teacher, plane"));
    assert_ok(mlff_shard_open(path, teacher, &shard));
    assert_int_equal(mlff_shard_label(shard, other, samples, NULL, NULL), MLFF_ERR_VALUE);
    assert_ok(mlff_shard_close(shard));
    mlff_samples_destroy(samples);
    mlff_teacher_destroy(teacher);
    mlff_teacher_destroy(other);
}

// A file that may not grow further (as on a full disk) keeps its whole labels.
static void test_full_disk(void **state)
{
    (void)state;
    mlff_teacher *teacher = teacher_of("plane");
    mlff_samples *samples = make_samples(100, false);
    mlff_shard *shard;
    mlff_shard_info info;
    struct rlimit before, tight;
    const char *path = in_folder("full.labels");
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    tight = before;
    tight.rlim_cur = 10000;
    assert_ok(mlff_shard_open(path, teacher, &shard));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    const mlff_status status = mlff_shard_label(shard, teacher, samples, NULL, NULL);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, MLFF_ERR_IO);
    mlff_shard_info_get(shard, &info);
    const int64_t kept = info.n_labels;
    assert_ok(mlff_shard_close(shard));
    assert_ok(mlff_shard_open(path, teacher, &shard));
    mlff_shard_info_get(shard, &info);
    assert_true(kept > 0 && kept < 100 && info.n_labels == kept);
    assert_ok(mlff_shard_label(shard, teacher, samples, NULL, NULL));
    mlff_shard_info_get(shard, &info);
    assert_int_equal(info.n_labels, 100);
    assert_ok(mlff_shard_close(shard));
    mlff_samples_destroy(samples);
    mlff_teacher_destroy(teacher);
}

// Killed at random moments and gone on with each time, the file ends as one that was never stopped.
static void test_kills(void **state)
{
    (void)state;
    mlff_teacher *teacher = teacher_of("plane");
    mlff_samples *samples = make_samples(4000, false);
    const char *path = in_folder("kill.labels"), *whole = in_folder("unkilled.labels");
    size_t length;
    label_all(whole, teacher, samples);
    for (int k = 0; k < SUPPORT_CASES(20); k++) {
        const pid_t child = fork();
        if (child == 0) {
            label_all(path, teacher, samples);
            _exit(0);
        }
        usleep((useconds_t)(200 + 9000 * base_random_uniform(5, 0, (uint64_t)k)));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (access(path, R_OK) == 0 && k % 5 == 4) { // and power lost: the end is torn
            char *torn = read_all(path, &length);
            write_all(path, torn, length > 2000 ? length - 333 : length);
            base_free(torn);
        }
    }
    label_all(path, teacher, samples);
    assert_same_bytes(path, whole);
    mlff_samples_destroy(samples);
    mlff_teacher_destroy(teacher);
}

static void test_dataset(void **state)
{
    (void)state;
    mlff_teacher *teacher = teacher_of("plane");
    mlff_samples *samples = make_samples(5, true); // the third is methane, which fails
    mlff_dataset *data, *again;
    mlff_shard *shard;
    const char *path = in_folder("data.labels"), *text = in_folder("data.extxyz");
    assert_ok(mlff_samples_add_probes(samples, 2, 0.01, 7));
    assert_int_equal(mlff_samples_size(samples), 5 + 20);
    label_all(path, teacher, samples);
    assert_ok(mlff_dataset_create(&data));
    assert_ok(mlff_dataset_read(data, path));
    assert_int_equal(mlff_dataset_size(data), 4 + 16);
    for (int64_t k = 0; k < 20; k++) {
        mlff_system *system;
        assert_ok(mlff_dataset_get(data, k, &system));
        double sum = 0;
        for (int i = 0; i < system->n_atoms; i++) sum += system->positions[3 * i];
        assert_true(system->label_energy == sum && system->label_forces[0] == -1);
        assert_int_equal(system->group, 0);
        mlff_system_destroy(system);
    }
    int n_probes = 0;
    for (size_t k = 0; k < data->n_frames; k++) n_probes += data->frames[k].probe_step == 0.01;
    assert_int_equal(n_probes, 8);
    assert_ok(mlff_shard_export(path, text));
    assert_ok(mlff_dataset_create(&again));
    assert_ok(mlff_dataset_read(again, text));
    assert_int_equal(mlff_dataset_size(again), 20);

    // A label of the caller's own, with atom energies, is centered.
    mlff_label label = {.energy = -3, .stress = {NAN}, .energy_deviation = 0.1, .force_deviation = 0.5};
    double forces[9] = {0, 0, 30}, atom_energies[3] = {-1, -0.5, -1.5};
    label.forces = forces;
    label.atom_energies = atom_energies;
    mlff_system *water;
    assert_ok(mlff_system_build("h2o", 0, 0, &water));
    assert_ok(mlff_shard_open(path, teacher, &shard));
    water->charge = 1;
    assert_int_equal(mlff_shard_append(shard, water, &label, "own"), MLFF_ERR_UNSUPPORTED);
    assert_non_null(strstr(mlff_last_error(), "a charge of 1 e"));
    water->charge = 0;
    for (int k = 0; k < 4; k++) { // one of them would make the file unreadable
        mlff_label wild = label;
        double wild_forces[9] = {0}, wild_energies[3] = {0};
        wild.forces = wild_forces;
        wild.atom_energies = wild_energies;
        double *const places[4] = {&wild.energy, &wild_forces[8], &wild_energies[2], &wild.stress[5]};
        wild.stress[0] = 0;
        *places[k] = k ? NAN : INFINITY;
        assert_int_equal(mlff_shard_append(shard, water, &wild, "own"), MLFF_ERR_VALUE);
        assert_non_null(strstr(mlff_last_error(), "not finite"));
    }
    assert_ok(mlff_shard_append(shard, water, &label, "own"));
    assert_ok(mlff_shard_close(shard));
    mlff_read_options options = mlff_read_options_default();
    int64_t n_left_out = 0;
    options.largest_force = 29;
    assert_ok(mlff_dataset_read_some(again, path, &options, &n_left_out));
    assert_int_equal(n_left_out, 1);
    options = mlff_read_options_default();
    options.largest_force_deviation = 0.4;
    assert_ok(mlff_dataset_read_some(again, path, &options, &n_left_out));
    assert_int_equal(n_left_out, 1);
    assert_ok(mlff_dataset_read_some(again, path, NULL, &n_left_out));
    assert_int_equal(n_left_out, 0);
    mlff_dataset_center_atom_energies(again);
    const double *centered = again->frames[again->n_frames - 1].atom_energies;
    assert_true(centered[0] == 0 && centered[1] == 0.5 && centered[2] == -0.5);
    mlff_system_destroy(water);
    mlff_dataset_destroy(again);
    mlff_dataset_destroy(data);
    mlff_samples_destroy(samples);
    mlff_teacher_destroy(teacher);
}

// What a file of labels keeps of a dataset, to the bit: everything.
static void test_dataset_save(void **state)
{
    (void)state;
    char path[300], hashes[2][65];
    mlff_dataset *data, *again;
    mlff_system *water, *plus, *minus;
    double forces[9] = {0.1, 0, 0, 0.2, 1.0 / 3, 0, 0, 0, -1}, stress[6] = {1e-3, 2e-3, 0, 0, 0, -1e-4},
           atoms[3] = {-1, 0.5, M_PI};
    snprintf(path, sizeof path, "%s/dataset.labels", folder);
    assert_ok(mlff_dataset_create(&data));
    assert_int_equal(mlff_dataset_save(data, path), MLFF_ERR_VALUE); // empty
    assert_int_equal(access(path, F_OK), -1);
    assert_ok(mlff_system_build("h2o", 0, 0, &water));
    mlff_labels labels = {.energy = NAN, .forces = forces, .weight = 0.25};
    assert_ok(mlff_dataset_add(data, water, &labels));
    assert_ok(mlff_system_add_masses(water));
    assert_ok(mlff_system_add_fixed(water));
    water->masses[2] = 2.0141;
    water->fixed[1] = 1;
    water->group = 77;
    water->charge = 0;
    water->spin = 3;
    for (int c = 0; c < 3; c++) water->cell[4 * c] = 9.1, water->periodic[c] = 1;
    labels = (mlff_labels){.energy = -1.0 / 7, .stress = stress, .atom_energies = atoms, .weight = 1};
    assert_ok(mlff_dataset_add(data, water, &labels));
    assert_ok(mlff_system_copy(water, &plus));
    assert_ok(mlff_system_copy(water, &minus));
    plus->positions[4] += 0.01;
    minus->positions[4] -= 0.01;
    labels = (mlff_labels){.energy = 1, .forces = forces, .weight = 2};
    assert_ok(mlff_dataset_add_probe(data, plus, minus, 0.01, &labels, &labels));
    assert_ok(mlff_dataset_add(data, water, &labels));
    assert_ok(mlff_dataset_save(data, path));
    assert_ok(mlff_dataset_create(&again));
    assert_ok(mlff_dataset_read(again, path));
    assert_ok(mlff_dataset_hash(data, hashes[0]));
    assert_ok(mlff_dataset_hash(again, hashes[1]));
    assert_string_equal(hashes[0], hashes[1]); // numbers, weights and steps of probes
    assert_int_equal(again->n_frames, 5);
    assert_null(again->frames[0].system->masses);
    for (size_t f = 0; f < 5; f++) {
        const mlff_system *system = again->frames[f].system;
        assert_int_equal(system->group, f == 0 ? -1 : 77);
        assert_true(f == 0 ? isnan(system->spin) : system->spin == 3);
        assert_true(f == 0 ? isnan(system->charge) : system->charge == 0); // both, for teachers that depend on them
        assert_true(f == 0 || (system->masses[2] == 2.0141 && system->masses[1] == water->masses[1]));
        assert_true(f == 0 || (system->fixed[1] == 1 && system->fixed[0] == 0));
    }
    unlink(path);
    mlff_system_destroy(water);
    mlff_system_destroy(plus);
    mlff_system_destroy(minus);
    mlff_dataset_destroy(data);
    mlff_dataset_destroy(again);
}

static int keep_first(void *context, const mlff_label_progress *progress)
{
    int64_t *first = context;
    if (*first == 0) *first = progress->n_done;
    return 0;
}

// Structures of the first call: few for a CPU; for GPUs as many as fit into one batch, at least one, and at most those that there are.
static void test_first_call(void **state)
{
    (void)state;
    enum { N = 40 };
    static const struct {
        mlff_device_kind kind;
        int batch_atoms, expected;
    } cases[] = {{MLFF_CPU, 30, 8}, {MLFF_CUDA, 30, 10},   {MLFF_CUDA, 32, 10},    {MLFF_CUDA, 33, 11},
                 {MLFF_CUDA, 2, 1}, {MLFF_CUDA, 3 * N, N}, {MLFF_CUDA, 1 << 20, N}};
    mlff_samples *samples = make_samples(N, false); // three atoms each
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int64_t first = 0;
        mlff_shard *shard;
        mlff_teacher *teacher = teacher_of("plane");
        const mlff_label_options options = {.struct_size = sizeof options, .callback = keep_first, .context = &first};
        const char *path = in_folder("first.bin");
        teacher->options.device.kind = cases[k].kind; // calls are divided by it; the function is called all the same
        teacher->facts.batch_atoms = cases[k].batch_atoms;
        assert_ok(mlff_shard_open(path, teacher, &shard));
        assert_ok(mlff_shard_label(shard, teacher, samples, &options, NULL));
        assert_ok(mlff_shard_close(shard));
        assert_int_equal(first, cases[k].expected);
        assert_int_equal(remove(path), 0);
        mlff_teacher_destroy(teacher);
    }
    mlff_samples_destroy(samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_resume),        cmocka_unit_test(test_cut_everywhere),
                                       cmocka_unit_test(test_damage),        cmocka_unit_test(test_cut_between_equal_structures),
                                       cmocka_unit_test(test_other_teacher), cmocka_unit_test(test_full_disk),
                                       cmocka_unit_test(test_kills),         cmocka_unit_test(test_dataset),
                                       cmocka_unit_test(test_dataset_save),  cmocka_unit_test(test_first_call)};
    if (!mkdtemp(folder)) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || failed;
}
