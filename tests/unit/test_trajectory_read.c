// SPDX-License-Identifier: MIT
// test_trajectory_read.c: frames that are written as a LAMMPS dump, DCD or AMBER NetCDF are read again as the same structures, in any
// orientation of the cell; so are forms of these files that other programs write; files that lie or end too soon are refused.
#include "atoms/atoms.h"
#include "unit/test_folder.h"

enum { N = 5, FRAMES = 3, MOST = 1 << 14 };
static const char *const names[] = {"a.lammpstrj", "a.dcd", "a.nc"};
static const int species[N] = {8, 1, 1, 6, 8};
static const double box[9] = {6, 0, 0, 0, 7, 0, 0, 0, 8}, tilted[9] = {6, 0, 0, 1, 7, 0, -1, 2, 8};

static mlff_system *structure(const double cell[9], int frame)
{
    mlff_system *system;
    assert_ok(mlff_system_create(N, &system));
    assert_ok(mlff_system_add_velocities(system));
    assert_ok(mlff_system_add_masses(system));
    for (size_t i = 0; i < N; i++) {
        system->species[i] = species[i];
        system->masses[i] = 2.5 * (double)(i + 1);
        for (size_t c = 0; c < 3; c++) {
            system->positions[3 * i + c] = 9 * base_random_uniform(1, (uint64_t)frame, 3 * i + c) - 2;
            system->velocities[3 * i + c] = 0.01 * base_random_normal(2, (uint64_t)frame, 3 * i + c);
        }
    }
    if (cell) memcpy(system->cell, cell, sizeof system->cell);
    memset(system->periodic, cell != NULL, 3);
    return system;
}

static void write_frames(const char *path, const double cell[9], int n)
{
    mlff_writer *writer;
    assert_ok(mlff_writer_open(path, NULL, 0, &writer));
    for (int k = 0; k < n; k++) {
        mlff_system *system = structure(cell, k);
        assert_ok(mlff_writer_write(writer, system, &(mlff_frame_results){.energy = NAN, .step = k, .time_fs = 5.0 * k}));
        mlff_system_destroy(system);
    }
    assert_ok(mlff_writer_close(writer));
}

// Opened with the elements of frame 0.
static mlff_reader *open_with_topology(const char *path, const double cell[9])
{
    mlff_reader *reader;
    mlff_system *topology = structure(cell, 0);
    assert_ok(mlff_reader_open(path, NULL, &reader));
    assert_ok(mlff_reader_set_topology(reader, topology));
    mlff_system_destroy(topology);
    return reader;
}

static double dot(const double *a, const double *b)
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static double distance(const double *a, const double *b)
{
    const double d[3] = {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
    return sqrt(dot(d, d));
}

static void near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance)) fail_msg("%.15g, expected %.15g within %g", value, expected, tolerance);
}

// Float32 has 24 bits: 5e-7 at 7 Å for each of six coordinates; the cell of a DCD is cosines or degrees in float64.
static void compare(const mlff_system *read, const mlff_system *written, bool has_velocities, double tolerance)
{
    assert_int_equal(read->n_atoms, N);
    for (int a = 0; a < 3; a++) {
        assert_int_equal(read->periodic[a], written->periodic[a]);
        for (int b = 0; b <= a; b++)
            near(dot(read->cell + 3 * a, read->cell + 3 * b), dot(written->cell + 3 * a, written->cell + 3 * b), 1e-9);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(read->species[i], species[i]);
        near(read->masses[i], written->masses[i], 0);
        for (int a = 0; a < 3; a++)
            near(dot(read->positions + 3 * i, read->cell + 3 * a), dot(written->positions + 3 * i, written->cell + 3 * a),
                 20 * tolerance);
        for (int j = 0; j < i; j++)
            near(distance(read->positions + 3 * i, read->positions + 3 * j),
                 distance(written->positions + 3 * i, written->positions + 3 * j), tolerance);
        assert_int_equal(read->velocities != NULL, has_velocities);
        if (has_velocities)
            near(sqrt(dot(read->velocities + 3 * i, read->velocities + 3 * i)),
                 sqrt(dot(written->velocities + 3 * i, written->velocities + 3 * i)), 1e-8);
    }
}

static void compare_file(const char *path, const double cell[9], bool has_velocities, double tolerance)
{
    mlff_reader *reader = open_with_topology(path, cell);
    mlff_system *read;
    for (int k = 0; k < FRAMES; k++) {
        mlff_system *written = structure(cell, k);
        assert_ok(mlff_reader_next(reader, &read));
        assert_non_null(read);
        compare(read, written, has_velocities, tolerance);
        mlff_system_destroy(written);
        mlff_system_destroy(read);
    }
    assert_ok(mlff_reader_next(reader, &read));
    assert_null(read);
    mlff_reader_destroy(reader);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const double turned[9] = {1, 6, 0.3, -5, 2, 1, 0.5, 0.2, 7};
    const double *const cells[] = {box, tilted, turned, NULL};
    for (size_t c = 0; c < sizeof cells / sizeof *cells; c++)
        for (size_t k = 0; k < 3; k++) {
            char path[256];
            snprintf(path, sizeof path, "%s", in_folder(names[k]));
            write_frames(path, cells[c], FRAMES);
            compare_file(path, cells[c], k != 1, k == 0 ? 1e-13 : 3e-6);
            remove(path);
        }
}

// ---- other programs' forms

typedef struct bytes {
    unsigned char at[MOST];
    size_t n;
} bytes;

static void load(const char *path, bytes *file)
{
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    file->n = fread(file->at, 1, MOST, stream);
    fclose(stream);
}

static void save(const char *path, const bytes *file)
{
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(file->at, 1, file->n, stream), file->n);
    fclose(stream);
}

static void reverse(unsigned char *at, size_t n)
{
    for (size_t k = 0; k < n / 2; k++) {
        const unsigned char kept = at[k];
        at[k] = at[n - 1 - k];
        at[n - 1 - k] = kept;
    }
}

// The other byte order, and cosines instead of angles: what CHARMM writes on another machine.
static void test_foreign_dcd(void **state)
{
    (void)state;
    enum { TITLE = 92 + 4, CONTROL = 8, FRAME = 196, VECTORS = 3 * (4 * N + 8) };
    bytes file;
    char path[256];
    snprintf(path, sizeof path, "%s", in_folder("a.dcd"));
    write_frames(path, tilted, FRAMES);
    load(path, &file);
    assert_int_equal(file.n, FRAME + FRAMES * (56 + VECTORS));
    for (size_t k = 0; k < FRAMES; k++) {
        unsigned char *cell = file.at + FRAME + k * (56 + VECTORS) + 4;
        for (size_t a = 1; a <= 4; a += a == 1 ? 2 : 1) {
            double value;
            memcpy(&value, cell + 8 * a, 8);
            value = cos(value * BASE_PI / 180);
            memcpy(cell + 8 * a, &value, 8);
        }
    }
    save(path, &file);
    compare_file(path, tilted, false, 3e-6);

    for (size_t at = 0; at < FRAME; at += 4)
        if (at != 4 && !(at >= 100 && at < 180)) reverse(file.at + at, 4); // but CORD and the title
    for (size_t k = 0; k < FRAMES; k++) {
        unsigned char *frame = file.at + FRAME + k * (56 + VECTORS);
        for (size_t a = 0; a < 6; a++) reverse(frame + 4 + 8 * a, 8);
        reverse(frame, 4), reverse(frame + 52, 4);
        for (size_t at = 56; at < 56 + VECTORS; at += 4) reverse(frame + at, 4);
    }
    save(path, &file);
    compare_file(path, tilted, false, 3e-6);
    memset(file.at + CONTROL, 0, 4); // the number of frames is not known
    save(path, &file);
    compare_file(path, tilted, false, 3e-6);
    remove(path);
}

// Velocities in AMBER's unit with their scale_factor, and an unknown number of frames.
static void test_foreign_netcdf(void **state)
{
    (void)state;
    static const unsigned char scale[] = {0,   0,   0, 12, 's', 'c', 'a', 'l', 'e', '_', 'f',  'a', 'c', 't',
                                          'o', 'r', 0, 0,  0,   5,   0,   0,   0,   1,   0x40, 0,   0,   0};
    bytes file, changed;
    char path[256];
    snprintf(path, sizeof path, "%s", in_folder("a.nc"));
    write_frames(path, NULL, FRAMES);
    load(path, &file);
    // "velocities" with one attribute, behind which scale_factor = 2 is put; every offset moves.
    size_t at = 0;
    while (memcmp(file.at + at, "velocities\0\0", 12) != 0) at++;
    const size_t n_attributes = at + 12 + 4 + 12 + 4, behind = n_attributes + 4 + 4 + 8 + 4 + 4 + 20;
    file.at[n_attributes + 3] = 2;
    changed.n = file.n + sizeof scale;
    memcpy(changed.at, file.at, behind);
    memcpy(changed.at + behind, scale, sizeof scale);
    memcpy(changed.at + behind + sizeof scale, file.at + behind, file.n - behind);
    static const char *const variables[] = {"spatial\0", "time", "step", "coordinates\0", "velocities\0\0"};
    for (size_t v = 0; v < 5; v++) {
        const size_t length = (strlen(variables[v]) + 3) / 4 * 4, most = changed.n;
        size_t found = 0; // the last place: "spatial" is a dimension too
        for (size_t k = 152; k + length < most && k < 700; k += 4)
            if (memcmp(changed.at + k, variables[v], length) == 0) found = k;
        size_t p = found + length;
        p += 4 + 4 * (size_t)changed.at[p + 3]; // dimensions
        size_t n = changed.at[p + 7];
        for (p += 8; n > 0; n--) {
            p += 4 + ((size_t)changed.at[p + 3] + 3) / 4 * 4;
            const size_t unit = changed.at[p + 3] == 2 ? 1 : 4;
            p += 8 + (unit * changed.at[p + 7] + 3) / 4 * 4;
        }
        unsigned char *begin = changed.at + p + 8 + 4; // behind type and size, the low half
        const unsigned offset = (unsigned)begin[2] * 256 + begin[3] + (unsigned)sizeof scale;
        begin[2] = (unsigned char)(offset / 256);
        begin[3] = (unsigned char)offset;
    }
    memset(changed.at + 4, 0xff, 4);
    save(path, &changed);
    mlff_reader *reader = open_with_topology(path, NULL);
    mlff_system *read, *written = structure(NULL, 0);
    assert_ok(mlff_reader_next(reader, &read));
    near(read->velocities[4], 2 * written->velocities[4], 1e-8);
    near(read->positions[4], written->positions[4], 1e-6);
    for (int k = 1; k <= FRAMES; k++) {
        mlff_system_destroy(read);
        assert_ok(mlff_reader_next(reader, &read));
    }
    assert_null(read);
    mlff_system_destroy(written);
    mlff_reader_destroy(reader);
    remove(path);
}

// Frames that were written without a time are read without one.
static void test_netcdf_without_times(void **state)
{
    (void)state;
    char path[256];
    mlff_writer *writer;
    mlff_system *written = structure(NULL, 0), *read;
    snprintf(path, sizeof path, "%s", in_folder("a.nc"));
    assert_ok(mlff_writer_open(path, NULL, 0, &writer));
    assert_ok(mlff_writer_write(writer, written, NULL));
    assert_ok(mlff_writer_close(writer));
    mlff_reader *reader = open_with_topology(path, NULL);
    assert_ok(mlff_reader_next(reader, &read));
    assert_true(isnan(read->time_fs));
    mlff_system_destroy(read);
    mlff_system_destroy(written);
    mlff_reader_destroy(reader);
    remove(path);
}

// Masses of isotopes are in a column of a dump, and those of the elements are not.
static void test_masses_of_a_dump(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s", in_folder("masses.dump"));
    for (int heavy = 0; heavy < 2; heavy++) {
        mlff_system *water, *read;
        mlff_writer *writer;
        mlff_reader *reader;
        char *text;
        size_t length;
        assert_ok(mlff_system_build("h2o", 0, 0, &water));
        assert_ok(mlff_system_add_masses(water)); // those of the elements
        if (heavy) water->masses[2] = 2.014;
        assert_ok(mlff_writer_open(path, NULL, 0, &writer));
        assert_ok(mlff_writer_write(writer, water, NULL));
        assert_ok(mlff_writer_close(writer));
        assert_ok(base_read_file(path, 1 << 20, &text, &length));
        assert_true((strstr(text, "element x y z mass\n") != NULL) == heavy);
        base_free(text);
        assert_ok(mlff_reader_open(path, NULL, &reader));
        assert_ok(mlff_reader_next(reader, &read));
        assert_true((read->masses != NULL) == heavy);
        for (int i = 0; heavy && i < 3; i++) near(read->masses[i], water->masses[i], 0);
        mlff_system_destroy(read);
        mlff_reader_destroy(reader);
        mlff_system_destroy(water);
    }
    assert_int_equal(remove(path), 0);
}

// Units real, times, atoms in another order, positions as fractions of a tilted box that does not begin at 0, no elements, further columns. The
// units stand before the first frame alone, as LAMMPS writes them.
static void test_foreign_dump(void **state)
{
    (void)state;
    static const char *const text =
        "ITEM: UNITS\nreal\nITEM: TIME\n12.5\nITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n3\nITEM: BOX BOUNDS xy xz yz pp pp ff\n"
        "-1 12 2\n-3 7 1\n5 10 0.5\nITEM: ATOMS id type q xs ys zs vx vy vz mol\n"
        "3 1 0.1 0.5 0.25 0.2 1e-3 0 0 7\n1 2 -0.2 0 0 0 0 2e-3 0 7\n2 1 0.1 1 1 1 0 0 3e-3 7\n"
        "ITEM: TIMESTEP\n1\nITEM: NUMBER OF ATOMS\n3\nITEM: BOX BOUNDS pp pp pp\n0 9\n0 9\n0 9\n"
        "ITEM: ATOMS id x y z vx vy vz\n1 0 0 0 4e-3 0 0\n2 1 1 1 0 0 0\n3 2 2 2 0 0 0\n"
        "ITEM: UNITS\nmetal\nITEM: TIME\n0.0125\nITEM: TIMESTEP\n2\nITEM: NUMBER OF ATOMS\n3\nITEM: BOX BOUNDS pp pp pp\n0 9\n0 "
        "9\n0 9\n"
        "ITEM: ATOMS id x y z vx vy vz\n1 0 0 0 4 0 0\n2 1 1 1 0 0 0\n3 2 2 2 0 0 0\n";
    static const double expected[9] = {-1, -3, 5, 12, 7, 10, 0.5 * 10 + 0.25 * 2 + 0.2 * 1 - 1, 0.25 * 9.5 + 0.2 * 0.5 - 3, 6};
    mlff_reader *reader;
    mlff_system *water, *read;
    assert_ok(mlff_system_build("h2o", 0, 0, &water));
    write_text(in_folder("dump"), text);
    assert_ok(mlff_reader_open(in_folder("dump"), NULL, &reader));
    assert_ok(mlff_reader_set_topology(reader, water));
    assert_ok(mlff_reader_next(reader, &read));
    for (size_t k = 0; k < 9; k++) near(read->positions[k], expected[k], 1e-13);
    assert_int_equal(read->species[0], water->species[0]);
    near(read->velocities[1], 2e-3, 0);
    near(read->velocities[6], 1e-3, 0);
    near(read->cell[0], 10, 1e-13); // -1 12 less the tilts 2 and 1
    near(read->cell[4], 9.5, 1e-13);
    assert_true(read->periodic[0] && read->periodic[1] && !read->periodic[2]);
    near(read->time_fs, 12.5, 0);
    mlff_system_destroy(read);
    for (int k = 0; k < 2; k++) { // of units real, then of a file in units metal behind it
        assert_ok(mlff_reader_next(reader, &read));
        near(read->velocities[0], 4e-3, 1e-18);
        if (k == 0) assert_true(isnan(read->time_fs)); // this frame has none
        if (k == 1) near(read->time_fs, 12.5, 1e-14);
        mlff_system_destroy(read);
    }
    mlff_system_destroy(water);
    mlff_reader_destroy(reader);
    remove(in_folder("dump"));
}

// ---- what is refused

static mlff_status read_all(const char *name, const mlff_system *topology, const void *data, size_t n, int *n_frames_out)
{
    mlff_reader *reader = NULL;
    mlff_status status = atoms_reader_open_bytes(name, data, n, &reader);
    if (status == MLFF_OK && topology) status = mlff_reader_set_topology(reader, topology);
    for (*n_frames_out = 0; status == MLFF_OK; ++*n_frames_out) {
        mlff_system *system = NULL;
        status = mlff_reader_next(reader, &system);
        if (!system) break;
        mlff_system_destroy(system);
    }
    mlff_reader_destroy(reader);
    return status;
}

// Wherever a binary file ends too soon, it is an error that names the file, and the frames before are read.
static void test_cut_short(void **state)
{
    (void)state;
    mlff_system *topology = structure(box, 0);
    for (size_t k = 1; k < 3; k++) {
        bytes file;
        int n_frames;
        char path[256];
        snprintf(path, sizeof path, "%s", in_folder(names[k]));
        write_frames(path, box, FRAMES);
        load(path, &file);
        remove(path);
        for (size_t n = 0; n < file.n; n++) {
            const mlff_status status = read_all(names[k], topology, file.at, n, &n_frames);
            if (status != MLFF_ERR_FORMAT || !strstr(mlff_last_error(), names[k]) || strchr(mlff_last_error(), '\n'))
                fail_msg("%s: %zu of %zu bytes: status %d, %d frames: %s", names[k], n, file.n, status, n_frames,
                         mlff_last_error());
            assert_true(n_frames < FRAMES);
        }
        assert_int_equal(read_all(names[k], topology, file.at, file.n, &n_frames), MLFF_OK);
        assert_int_equal(n_frames, FRAMES);
    }
    mlff_system_destroy(topology);
}

// Counts that no file can have cost no memory.
static void test_absurd_counts(void **state)
{
    (void)state;
    mlff_system *topology = structure(box, 0);
    int n_frames;
    for (size_t k = 1; k < 3; k++) {
        bytes file;
        char path[256];
        snprintf(path, sizeof path, "%s", in_folder(names[k]));
        write_frames(path, box, 1);
        load(path, &file);
        remove(path);
        const size_t at = k == 1 ? 188 : 56; // the number of atoms
        const int64_t held = base_allocated_bytes();
        memset(file.at + at, 0x7f, 4);
        assert_int_equal(read_all(names[k], topology, file.at, file.n, &n_frames), k == 1 ? MLFF_ERR_LIMIT : MLFF_ERR_LIMIT);
        memset(file.at + at, 0, 4);
        file.at[at + (k == 1 ? 2 : 1)] = 0x10; // a million
        assert_int_equal(read_all(names[k], topology, file.at, file.n, &n_frames), MLFF_ERR_USAGE);
        assert_non_null(strstr(mlff_last_error(), "frames of 1048576 atoms, but the topology has 5"));
        assert_int_equal(base_allocated_bytes(), held);
    }
    static const char *const dumps[] = {
        "ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n99999999999\n",
        "ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n90000000\nITEM: BOX BOUNDS pp pp pp\n0 1\n0 1\n0 1\nITEM: ATOMS x y z\n0 0 "
        "0\n",
        "ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n1\nITEM: BOX BOUNDS pp pp pp\n0 1\n0 -1\n0 1\nITEM: ATOMS x y z\n0 0 0\n",
        "ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n1\nITEM: BOX BOUNDS pp pp pp\n0 1\n0 1\n0 1\nITEM: ATOMS x y\n0 0\n",
        "ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n1\nITEM: BOX BOUNDS pp pp pp\n0 1\n0 1\n0 1\nITEM: ATOMS x y z\n0 nan 0\n",
        "ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n2\nITEM: BOX BOUNDS pp pp pp\n0 1\n0 1\n0 1\nITEM: ATOMS id x y z\n1 0 0 0\n1 "
        "0 0 1\n",
        "ITEM: UNITS\nlj\n",
        "ITEM: TIME\nsoon\n",
        "ITEM: TIME\ninf\n"};
    for (size_t k = 0; k < sizeof dumps / sizeof *dumps; k++) {
        assert_true(read_all("a.dump", topology, dumps[k], strlen(dumps[k]), &n_frames) != MLFF_OK);
        assert_non_null(strstr(mlff_last_error(), "a.dump:"));
    }
    mlff_system_destroy(topology);
}

static void test_topology(void **state)
{
    (void)state;
    mlff_system *system = structure(box, 0), *small, *read;
    mlff_reader *reader;
    for (size_t k = 0; k < 3; k++) {
        char path[256];
        snprintf(path, sizeof path, "%s", in_folder(names[k]));
        write_frames(path, box, 1);
        assert_ok(mlff_reader_open(path, NULL, &reader));
        assert_int_equal(mlff_reader_next(reader, &read), k == 0 ? MLFF_OK : MLFF_ERR_USAGE); // a dump of ours has its elements
        if (k == 0) mlff_system_destroy(read);
        if (k > 0) assert_non_null(strstr(mlff_last_error(), "names no elements"));
        mlff_reader_destroy(reader);
        assert_ok(mlff_system_build("h2o", 0, 0, &small));
        assert_ok(mlff_reader_open(path, NULL, &reader));
        assert_ok(mlff_reader_set_topology(reader, small));
        assert_int_equal(mlff_reader_next(reader, &read), MLFF_ERR_USAGE);
        assert_non_null(strstr(mlff_last_error(), "frames of 5 atoms, but the topology has 3"));
        mlff_reader_destroy(reader);
        mlff_system_destroy(small);
        remove(path);
    }
    write_text(in_folder("a.xyz"), "1\n\nH 0 0 0\n");
    assert_ok(mlff_reader_open(in_folder("a.xyz"), NULL, &reader));
    assert_int_equal(mlff_reader_set_topology(reader, system), MLFF_ERR_USAGE);
    mlff_reader_destroy(reader);
    remove(in_folder("a.xyz"));
    mlff_system_destroy(system);
}

// A topology in another order than the numbers of a dump's atoms.
static void test_topology_against_elements(void **state)
{
    (void)state;
    char path[256];
    mlff_writer *writer;
    mlff_system *system = structure(NULL, 0), *read;
    snprintf(path, sizeof path, "%s", in_folder("a.dump"));
    assert_ok(mlff_writer_open(path, NULL, 0, &writer));
    assert_ok(mlff_writer_write(writer, system, NULL));
    assert_ok(mlff_writer_close(writer));
    for (int swapped = 0; swapped < 2; swapped++) {
        mlff_reader *reader;
        if (swapped) system->species[0] = 1, system->species[1] = 8;
        assert_ok(mlff_reader_open(path, NULL, &reader));
        assert_ok(mlff_reader_set_topology(reader, system));
        n_warnings = 0;
        mlff_warning_handler_set(count_warnings, NULL);
        assert_ok(mlff_reader_next(reader, &read));
        mlff_warning_handler_set(NULL, NULL);
        assert_int_equal(n_warnings, swapped);
        assert_int_equal(read->species[0], system->species[0]);
        mlff_system_destroy(read);
        mlff_reader_destroy(reader);
    }
    mlff_system_destroy(system);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),           cmocka_unit_test(test_foreign_dcd),
        cmocka_unit_test(test_foreign_netcdf),       cmocka_unit_test(test_foreign_dump),
        cmocka_unit_test(test_masses_of_a_dump),     cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_absurd_counts),        cmocka_unit_test(test_topology),
        cmocka_unit_test(test_netcdf_without_times), cmocka_unit_test(test_topology_against_elements),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
