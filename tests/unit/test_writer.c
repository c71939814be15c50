// SPDX-License-Identifier: MIT
// test_writer.c: what is written reads back exactly; frames are added to a trajectory, or it is resumed at a step; outputs appear whole
// or not at all, and a full disk is told.
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "unit/test_folder.h"

// A system with everything, numbers of all sizes; n_atoms differ from frame to frame.
static mlff_system *random_frame(uint64_t seed, mlff_frame_results *results, double **forces_out)
{
    mlff_system *system;
    int n_atoms = 1 + (int)(20 * base_random_uniform(seed, 1, 0));
    assert_ok(mlff_system_create(n_atoms, &system));
    double *forces = malloc((size_t)n_atoms * 3 * sizeof(double)), *stress = malloc(6 * sizeof(double));
    if (seed % 2) assert_ok(mlff_system_add_masses(system));
    if (seed % 3) assert_ok(mlff_system_add_velocities(system));
    if (seed % 4 == 1) assert_ok(mlff_system_add_fixed(system));
    for (int i = 0; i < n_atoms; i++) {
        system->species[i] = 1 + (int)(118 * base_random_uniform(seed, 2, (uint64_t)i));
        if (system->masses) system->masses[i] = 1.0 + 200.0 * base_random_uniform(seed, 3, (uint64_t)i);
        if (system->fixed) system->fixed[i] = i % 2 == 0;
    }
    for (int k = 0; k < 3 * n_atoms; k++) {
        double size = pow(10.0, k % 17 - 8);
        system->positions[k] = size * base_random_normal(seed, 4, (uint64_t)k);
        forces[k] = size * base_random_normal(seed, 5, (uint64_t)k);
        if (system->velocities) system->velocities[k] = 0.01 * base_random_normal(seed, 6, (uint64_t)k);
    }
    if (seed % 5) {
        for (int k = 0; k < 9; k++) system->cell[k] = 10.0 * (k % 4 == 0) + base_random_uniform(seed, 7, (uint64_t)k);
        for (int c = 0; c < 3; c++) system->periodic[c] = (seed >> c) & 1;
        for (int k = 0; k < 6; k++) stress[k] = 0.01 * base_random_normal(seed, 8, (uint64_t)k);
    }
    if (seed % 7 == 0) system->charge = -2.0, system->spin = 3.0;
    if (seed % 3 == 1) assert_ok(mlff_system_set_info(system, "name=mol_17 smiles=\"C(=O) [O-]\" list=[[1, 2], [3, 4]] it's=so"));
    if (seed % 2) strcpy(system->config_type, "md 300 K");
    *results = (mlff_frame_results){
        -1234.5 * base_random_uniform(seed, 9, 0), forces, seed % 5 ? stress : NULL, (int64_t)seed, 0.5 * (double)seed, NULL};
    *forces_out = forces;
    if (!results->stress) free(stress);
    return system;
}

static void compare_frames(uint64_t seed, const mlff_system *out, const mlff_system *in, const mlff_frame_results *results)
{
    size_t n = (size_t)out->n_atoms;
    assert_int_equal(in->n_atoms, out->n_atoms);
    assert_memory_equal(in->species, out->species, n * sizeof(int));
    assert_memory_equal(in->positions, out->positions, 3 * n * sizeof(double));
    assert_memory_equal(in->cell, out->cell, sizeof in->cell);
    assert_memory_equal(in->periodic, out->periodic, 3);
    assert_memory_equal(in->label_forces, results->forces, 3 * n * sizeof(double));
    assert_true(in->label_energy == results->energy);
    if (results->stress) assert_memory_equal(in->label_stress, results->stress, sizeof in->label_stress);
    assert_int_equal(results->stress != NULL, !isnan(in->label_stress[0]));
    assert_int_equal(out->masses != NULL, in->masses != NULL);
    if (out->masses) assert_memory_equal(in->masses, out->masses, n * sizeof(double));
    assert_int_equal(out->fixed != NULL, in->fixed != NULL);
    if (out->fixed) assert_memory_equal(in->fixed, out->fixed, n);
    assert_int_equal(out->velocities != NULL, in->velocities != NULL);
    for (size_t k = 0; out->velocities && k < 3 * n; k++) // as momenta: two products on the way out, two on the way in
        if (fabs(in->velocities[k] / out->velocities[k] - 1.0) > 4 * 1.2e-16) fail_msg("seed %d: velocity %zu", (int)seed, k);
    assert_string_equal(in->info ? in->info : "", out->info ? out->info : "");
    assert_string_equal(in->config_type, out->config_type);
    assert_true(seed % 7 ? isnan(in->charge) && isnan(in->spin) : in->charge == -2.0 && in->spin == 3.0);
}

static void reads_back(void **state)
{
    (void)state;
    enum { N_FRAMES = 120 };
    const char *path = in_folder("back.extxyz");
    mlff_writer *writer;
    assert_ok(mlff_writer_open(path, NULL, 0, &writer));
    for (uint64_t seed = 0; seed < N_FRAMES; seed++) {
        mlff_frame_results results;
        double *forces;
        mlff_system *system = random_frame(seed, &results, &forces);
        assert_ok(mlff_writer_write(writer, system, &results));
        assert_int_not_equal(access(path, F_OK), 0); // not there before it is whole
        mlff_system_destroy(system);
        free(forces);
        free((void *)results.stress);
    }
    assert_ok(mlff_writer_close(writer));

    mlff_reader *reader;
    assert_ok(mlff_reader_open(path, NULL, &reader));
    int64_t bytes = 0;
    for (uint64_t seed = 0; seed < N_FRAMES; seed++) {
        mlff_frame_results results;
        double *forces;
        mlff_system *out = random_frame(seed, &results, &forces), *in;
        assert_ok(mlff_reader_next(reader, &in));
        assert_non_null(in);
        compare_frames(seed, out, in, &results);
        mlff_system_destroy(in);
        mlff_system_destroy(out);
        free(forces);
        free((void *)results.stress);
        if (seed == N_FRAMES / 2) bytes = base_allocated_bytes();
    }
    assert_int_equal(base_allocated_bytes(), bytes); // frames read do not pile up
    mlff_system *end;
    assert_ok(mlff_reader_next(reader, &end));
    assert_null(end);
    mlff_reader_destroy(reader);
    unlink(path);
}

static void appends(void **state)
{
    (void)state;
    const char *path = in_folder("grown.extxyz");
    mlff_system *system;
    mlff_writer *writer;
    assert_ok(mlff_system_build("h2o", 0, 0, &system));
    for (int k = 1; k <= 3; k++) {
        assert_ok(mlff_writer_open(path, NULL, 1, &writer));
        assert_ok(mlff_writer_write(writer, system, NULL));
        assert_int_equal(count_frames(path), 2 * k - 1); // whole at once, the writer still open
        assert_ok(mlff_writer_write(writer, system, &(mlff_frame_results){.energy = -1, .step = k, .time_fs = NAN}));
        if (k < 3)
            assert_ok(mlff_writer_close(writer));
        else
            mlff_writer_destroy(writer); // given up: frames stay
    }
    assert_int_equal(count_frames(path), 6);
    write_text(path, "1\nwithout an end of line\nAr 0 0 0");
    assert_ok(mlff_writer_open(path, NULL, 1, &writer));
    assert_ok(mlff_writer_write(writer, system, NULL));
    assert_ok(mlff_writer_close(writer));
    assert_int_equal(count_frames(path), 2);
    unlink(path);
    mlff_system_destroy(system);
}

static void keeps_outputs_whole(void **state)
{
    (void)state;
    const char *path = in_folder("kept.xyz");
    mlff_system *system;
    mlff_writer *writer = NULL;
    write_text(path, "1\nold\nAr 0 0 0\n");
    assert_ok(mlff_system_build("methane", 0, 0, &system));

    assert_ok(mlff_writer_open(path, NULL, 0, &writer)); // given up: the old file stays, nothing else is left (see remove_folder)
    assert_ok(mlff_writer_write(writer, system, NULL));
    mlff_writer_destroy(writer);
    mlff_writer_destroy(NULL);
    mlff_system *old = NULL;
    mlff_reader *reader;
    assert_ok(mlff_reader_open(path, NULL, &reader));
    assert_ok(mlff_reader_next(reader, &old));
    assert_int_equal(old->species[0], 18);
    mlff_system_destroy(old);
    mlff_reader_destroy(reader);

    assert_ok(mlff_writer_open(path, NULL, 0, &writer));
    system->positions[4] = NAN;
    assert_int_equal(mlff_writer_write(writer, system, NULL), MLFF_ERR_VALUE);
    assert_non_null(strstr(mlff_last_error(), "atom 1 "));
    system->positions[4] = 0;
    system->species[3] = 0;
    assert_int_equal(mlff_writer_write(writer, system, NULL), MLFF_ERR_ELEMENT);
    system->species[3] = 1;
    assert_int_equal(mlff_writer_write(writer, system, &(mlff_frame_results){.energy = INFINITY, .step = -1, .time_fs = NAN}),
                     MLFF_ERR_VALUE);
    mlff_frame_results commented = {.energy = NAN, .step = -1, .time_fs = NAN, .comment = "a=1\nb=2"};
    assert_int_equal(mlff_writer_write(writer, system, &commented), MLFF_ERR_USAGE);
    char longest[20000] = "a=";
    memset(longest + 2, 'x', sizeof longest - 3); // of any length
    commented.comment = longest;
    assert_ok(mlff_writer_write(writer, system, &commented));
    assert_ok(mlff_writer_close(writer));
    assert_int_equal(count_frames(path), 1); // of the frames refused nothing was written
    unlink(path);

    assert_int_equal(mlff_writer_open(folder, NULL, 0, &writer), MLFF_ERR_IO);
    assert_int_equal(mlff_writer_open("no/such/folder/a.xyz", NULL, 0, &writer), MLFF_ERR_IO);
    assert_int_equal(mlff_writer_open("no/such/folder/a.xyz", NULL, 1, &writer), MLFF_ERR_IO);
    assert_int_equal(mlff_writer_open(NULL, NULL, 0, &writer), MLFF_ERR_USAGE);
    mlff_system_destroy(system);
}

static void tells_of_a_full_disk(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) skip();
    mlff_system *system;
    assert_ok(mlff_system_build("benzene", 0, 0, &system));
    for (int append = 0; append < 2; append++) {
        mlff_writer *writer;
        assert_ok(mlff_writer_open("/dev/full", NULL, append, &writer));
        mlff_status written = mlff_writer_write(writer, system, NULL);
        if (written != MLFF_OK) assert_non_null(strstr(mlff_last_error(), "No space left on device"));
        mlff_status closed = mlff_writer_close(writer);
        assert_true(written == MLFF_ERR_IO || closed == MLFF_ERR_IO);
        assert_true(strncmp(mlff_last_error(), "/dev/full: ", 11) == 0);
    }
    mlff_system_destroy(system);
}

// Frames of a file that cannot be written whole are kept under a name that no file has; what has the writer's name stays.
static void keeps_a_part(void **state)
{
    (void)state;
    static const char *const names[][3] = {{"part.extxyz", "part-partial.extxyz", "part-partial-2.extxyz"},
                                           {"part.nc", "part-partial.nc", "part-partial-2.nc"},
                                           {"part.dcd", "part-partial.dcd", "part-partial-2.dcd"}};
    mlff_system *system;
    char path[PATH_MAX], name[PATH_MAX];
    assert_ok(mlff_system_build("methane", 0, 0, &system));
    for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
        int64_t n = -1;
        snprintf(path, sizeof path, "%s", in_folder(names[f][0]));
        write_text(path, "mine");
        for (int k = 1; k <= 2; k++) {
            mlff_writer *writer;
            mlff_reader *reader;
            mlff_system *read = NULL;
            assert_ok(mlff_writer_open(path, NULL, 0, &writer));
            for (int frame = 0; frame < 3; frame++) assert_ok(mlff_writer_write(writer, system, NULL));
            system->positions[4] = NAN;
            assert_int_equal(mlff_writer_write(writer, system, NULL), MLFF_ERR_VALUE);
            system->positions[4] = 0;
            assert_ok(mlff_writer_keep(writer, name, sizeof name, &n));
            assert_string_equal(name, in_folder(names[f][k]));
            assert_int_equal(n, 3);
            assert_ok(mlff_reader_open(name, NULL, &reader));
            if (f > 0) assert_ok(mlff_reader_set_topology(reader, system));
            for (int frame = 0; frame <= 3; frame++) {
                assert_ok(mlff_reader_next(reader, &read));
                assert_int_equal(read != NULL, frame < 3);
                mlff_system_destroy(read);
            }
            mlff_reader_destroy(reader);
        }
        for (int k = 1; k <= 2; k++) unlink(in_folder(names[f][k]));
        struct stat there;
        assert_int_equal(stat(path, &there), 0);
        assert_int_equal(there.st_size, 4);
        unlink(path);
    }

    // Nothing of no frame; an appended file has its frames.
    int64_t n = -1;
    mlff_writer *writer;
    snprintf(path, sizeof path, "%s", in_folder("none.extxyz"));
    for (int append = 0; append < 2; append++) {
        assert_ok(mlff_writer_open(path, NULL, append, &writer));
        assert_ok(mlff_writer_keep(writer, name, sizeof name, &n));
        assert_string_equal(name, "");
        assert_int_equal(n, 0);
    }
    assert_ok(mlff_writer_open(path, NULL, 1, &writer));
    assert_ok(mlff_writer_write(writer, system, NULL));
    assert_ok(mlff_writer_keep(writer, name, sizeof name, &n));
    assert_string_equal(name, path);
    assert_int_equal(n, 1);
    assert_int_equal(count_frames(path), 1);
    unlink(path);

    // The longest name that a file may have.
    enum { LONGEST = 255 };
    char longest[LONGEST + 1];
    memset(longest, 'x', LONGEST);
    memcpy(longest + LONGEST - 7, ".extxyz", 8);
    snprintf(path, sizeof path, "%s/%s", folder, longest);
    assert_ok(mlff_writer_open(path, NULL, 0, &writer));
    assert_ok(mlff_writer_write(writer, system, NULL));
    assert_ok(mlff_writer_keep(writer, name, sizeof name, &n));
    assert_int_equal(strlen(name), strlen(path));
    assert_non_null(strstr(name, "x-partial.extxyz"));
    assert_int_equal(unlink(name), 0);
    mlff_system_destroy(system);
}

// Steps of the frames of a trajectory, -1 after the last.
static void assert_steps(const char *path, const int *expected)
{
    char *text = NULL, *at;
    size_t length;
    assert_ok(base_read_file(path, 1 << 20, &text, &length));
    for (at = text; *expected >= 0; expected++) {
        at = strstr(at, " step=");
        assert_non_null(at);
        assert_int_equal(atoi(at += 6), *expected);
    }
    assert_null(strstr(at, " step="));
    base_free(text);
}

// A trajectory of 2 atoms with the steps 0, 2, 4, 6 and, if `partial` bytes are given, the begin of a fifth frame.
static void write_trajectory(const char *path, int partial)
{
    char frame[128];
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int step = 0; step <= 8; step += 2) {
        const int length = snprintf(frame, sizeof frame,
                                    "2\nProperties=species:S:1:pos:R:3 step=%d pbc=\"F F F\"\nH 0 0 0\nH 0 0 %d\n", step, step);
        fwrite(frame, 1, (size_t)(step < 8 ? length : partial), file);
    }
    fclose(file);
}

static void resumes_a_trajectory(void **state)
{
    (void)state;
    const char *path = in_folder("resumed.extxyz");
    for (int partial = 0; partial < 60; partial++) { // cut off at every byte of a frame
        mlff_writer *writer;
        int64_t n_removed, last;
        write_trajectory(path, partial);
        assert_ok(mlff_writer_resume(path, NULL, 2, 4, 2, &n_removed, &last, &writer));
        assert_int_equal(n_removed, partial ? 2 : 1);
        assert_int_equal(last, 4);
        assert_steps(path, (int[]){0, 2, 4, -1});
        mlff_system *system;
        assert_ok(mlff_system_create(2, &system));
        system->species[0] = system->species[1] = 1;
        assert_ok(mlff_writer_write(writer, system, &(mlff_frame_results){.energy = NAN, .step = 6, .time_fs = NAN}));
        assert_ok(mlff_writer_close(writer));
        mlff_system_destroy(system);
        assert_steps(path, (int[]){0, 2, 4, 6, -1});
        assert_int_equal(count_frames(path), 4);
    }
    mlff_writer *writer = NULL;
    write_trajectory(path, 0);
    assert_int_equal(mlff_writer_resume(path, NULL, 3, 4, 2, NULL, NULL, &writer), MLFF_ERR_FORMAT);
    assert_non_null(strstr(mlff_last_error(), "another -o"));
    assert_steps(path, (int[]){0, 2, 4, 6, -1}); // untouched
    write_text(path, "2\nno step here\nH 0 0 0\nH 0 0 1\n");
    assert_int_equal(mlff_writer_resume(path, NULL, 2, 4, 2, NULL, NULL, &writer), MLFF_ERR_FORMAT);
    unlink(path);
    int64_t last = 0;
    assert_ok(mlff_writer_resume(path, NULL, 2, 4, 2, NULL, &last, &writer)); // nothing there: it begins
    assert_int_equal(last, -1);
    assert_ok(mlff_writer_close(writer));
    write_trajectory(path, 20);
    assert_ok(mlff_writer_resume(path, NULL, 2, 9, 2, NULL, &last, &writer));
    assert_int_equal(last, 6); // the frame of step 8 is cut off
    assert_ok(mlff_writer_close(writer));
    unlink(path);
}

// A frame that did not fit leaves nothing in the file, also once there is space again.
static void adds_after_a_limit(void **state)
{
    (void)state;
    const char *path = in_folder("limited.extxyz");
    mlff_writer *writer;
    mlff_system *system;
    struct rlimit before, small;
    unlink(path);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_ok(mlff_system_create(2, &system));
    system->species[0] = system->species[1] = 1;
    assert_ok(mlff_writer_open(path, NULL, 1, &writer));
    signal(SIGXFSZ, SIG_IGN);
    small = (struct rlimit){.rlim_cur = 1000, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    mlff_status status = MLFF_OK;
    int step = -2;
    while (status == MLFF_OK)
        status = mlff_writer_write(writer, system, &(mlff_frame_results){.energy = NAN, .step = step += 2, .time_fs = NAN});
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, MLFF_ERR_IO);
    assert_true(step > 2);
    const int64_t n_whole = count_frames(path);
    assert_int_equal(n_whole, step / 2);
    assert_ok(mlff_writer_write(writer, system, &(mlff_frame_results){.energy = NAN, .step = step, .time_fs = NAN}));
    assert_ok(mlff_writer_close(writer));
    assert_int_equal(count_frames(path), n_whole + 1);
    mlff_system_destroy(system);
    unlink(path);
}

// Two runs that add frames to one file would write over each other's.
static void refuses_a_second_writer(void **state)
{
    (void)state;
    const char *path = in_folder("shared.extxyz");
    mlff_writer *first, *second = NULL;
    write_trajectory(path, 0);
    assert_ok(mlff_writer_open(path, NULL, 1, &first));
    assert_int_equal(mlff_writer_open(path, NULL, 1, &second), MLFF_ERR_IO);
    assert_non_null(strstr(mlff_last_error(), "another process is writing frames there"));
    assert_int_equal(mlff_writer_resume(path, NULL, 2, 0, 2, NULL, NULL, &second), MLFF_ERR_IO);
    assert_steps(path, (int[]){0, 2, 4, 6, -1}); // nothing was removed
    assert_ok(mlff_writer_close(first));
    assert_ok(mlff_writer_open(path, NULL, 1, &second));
    assert_ok(mlff_writer_close(second));
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back),           cmocka_unit_test(appends),
        cmocka_unit_test(resumes_a_trajectory), cmocka_unit_test(keeps_outputs_whole),
        cmocka_unit_test(keeps_a_part),         cmocka_unit_test(tells_of_a_full_disk),
        cmocka_unit_test(adds_after_a_limit),   cmocka_unit_test(refuses_a_second_writer),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
