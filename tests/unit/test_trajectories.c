// SPDX-License-Identifier: MIT
// test_trajectories.c: LAMMPS dumps and DCD files: what a reader of these formats finds is the structure that was written, whatever the
// orientation of its cell; they grow frame by frame, a dump is resumed at a step, and what a format cannot hold is refused.
#include "unit/test_folder.h"

enum { N = 5 };

SUPPORT void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance)) fail_msg("%.15g, expected %.15g", value, expected);
}

static mlff_system *structure(const double cell[9])
{
    mlff_system *system;
    assert_ok(mlff_system_create(N, &system));
    assert_ok(mlff_system_add_velocities(system));
    const int species[N] = {8, 1, 1, 6, 8};
    for (int i = 0; i < N; i++) {
        system->species[i] = species[i];
        for (int c = 0; c < 3; c++) {
            system->positions[3 * i + c] = 3 * base_random_uniform(1, 1, (uint64_t)(3 * i + c));
            system->velocities[3 * i + c] = 0.01 * base_random_normal(1, 2, (uint64_t)(3 * i + c));
        }
    }
    if (cell) memcpy(system->cell, cell, sizeof system->cell);
    for (int c = 0; c < 3; c++) system->periodic[c] = cell && (cell[3 * c] != 0 || cell[3 * c + 1] != 0 || cell[3 * c + 2] != 0);
    return system;
}

static void write_frames(const char *path, mlff_system *system, int n, int append, const double *forces)
{
    mlff_writer *writer;
    assert_ok(mlff_writer_open(path, NULL, append, &writer));
    for (int k = 0; k < n; k++)
        assert_ok(mlff_writer_write(writer, system,
                                    &(mlff_frame_results){.energy = NAN, .forces = forces, .step = 10 * k, .time_fs = 5.0 * k}));
    assert_ok(mlff_writer_close(writer));
}

static double dot(const double *a, const double *b)
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static const double cells[][9] = {
    {6, 0, 0, 0, 7, 0, 0, 0, 8},        // as it is written
    {6, 0, 0, 1, 7, 0, -1, 2, 8},       // tilted, as it is written
    {1, 6, 0.3, -5, 2, 1, 0.5, 0.2, 7}, // turned
    {-6, 0, 0, 1, -7, 0, 0.7, 0.9, 8},  // half a turn about z
    {-6, 0, 0, 1, 7, 0, 0.5, 0.2, -8},  // and about y
    {1, 6, 0.3, -5, 2, 1, 0, 0, 0},     // a slab
    {0, 0, 0, 1, 6, 0.3, 0, 0, 0},      // a wire
    {0, 0, 0, 0, 0, 0, 0, 0, 0},        // a molecule
};
enum { MOLECULE = sizeof cells / sizeof *cells - 1 };

// Lengths and angles of the cell, distances of atoms and where they lie along the cell's vectors do not depend on the orientation.
static void compare(const mlff_system *system, const double *cell, const double *origin, const double *positions,
                    double tolerance)
{
    for (int a = 0; a < 3; a++)
        for (int b = 0; system->periodic[a] && b <= a; b++)
            if (system->periodic[b])
                assert_near(dot(cell + 3 * a, cell + 3 * b), dot(system->cell + 3 * a, system->cell + 3 * b), 1e-9 * 64);
    for (int i = 0; i < N; i++) {
        for (int axis = 0; axis < 3; axis++) {
            const double *r = positions + 3 * i;
            if (system->periodic[axis])
                assert_near(dot(r, cell + 3 * axis), dot(system->positions + 3 * i, system->cell + 3 * axis), 60 * tolerance);
            else if (origin && cell[3 * axis + axis] > 0 && cell[3] == 0 && cell[6] == 0 && cell[7] == 0)
                assert_true(r[axis] > origin[axis] && r[axis] < origin[axis] + cell[3 * axis + axis]);
        }
        for (int j = 0; j < i; j++) {
            double there[3], here[3];
            for (int c = 0; c < 3; c++) {
                there[c] = positions[3 * i + c] - positions[3 * j + c];
                here[c] = system->positions[3 * i + c] - system->positions[3 * j + c];
            }
            assert_near(sqrt(dot(there, there)), sqrt(dot(here, here)), tolerance);
        }
    }
}

static void read_line(FILE *file, char line[512])
{
    assert_non_null(fgets(line, 512, file));
}

// The box from the bounds, as LAMMPS's manual gives it.
static void read_box(FILE *file, const mlff_system *system, double cell[9], double origin[3])
{
    char line[512];
    double bound[3][3] = {{0}};
    read_line(file, line);
    const int tilted = strstr(line, "xy xz yz") != NULL;
    for (int c = 0; c < 3; c++) assert_int_equal(strchr(line, 0)[-9 + 3 * c], system->periodic[c] ? 'p' : 'f');
    for (int c = 0; c < 3; c++) {
        read_line(file, line);
        assert_int_equal(sscanf(line, "%lf %lf %lf", &bound[c][0], &bound[c][1], &bound[c][2]), 2 + tilted);
    }
    const double xy = bound[0][2], xz = bound[1][2], yz = bound[2][2];
    origin[0] = bound[0][0] - fmin(fmin(0, xy), fmin(xz, xy + xz));
    origin[1] = bound[1][0] - fmin(0, yz);
    origin[2] = bound[2][0];
    const double own[9] = {bound[0][1] - fmax(fmax(0, xy), fmax(xz, xy + xz)) - origin[0],
                           0,
                           0,
                           xy,
                           bound[1][1] - fmax(0, yz) - origin[1],
                           0,
                           xz,
                           yz,
                           bound[2][1] - origin[2]};
    memcpy(cell, own, sizeof own);
}

static void test_dump(void **state)
{
    (void)state;
    static const int types[N] = {3, 1, 1, 2, 3}; // H, C, O
    double forces[3 * N];
    for (int k = 0; k < 3 * N; k++) forces[k] = k - 7;
    for (size_t c = 0; c < sizeof cells / sizeof *cells; c++) {
        mlff_system *system = structure(cells[c]);
        char path[256], line[512];
        snprintf(path, sizeof path, "%s", in_folder("a.lammpstrj"));
        write_frames(path, system, 2, 0, forces);
        FILE *file = fopen(path, "r");
        double cell[9], origin[3], positions[3 * N];
        for (int frame = 0; frame < 2; frame++) {
            read_line(file, line);
            read_line(file, line);
            assert_int_equal(atoi(line), 10 * frame);
            read_line(file, line);
            read_line(file, line);
            assert_int_equal(atoi(line), N);
            read_box(file, system, cell, origin);
            read_line(file, line);
            assert_string_equal(line, "ITEM: ATOMS id type element x y z vx vy vz fx fy fz\n");
            for (int i = 0; i < N; i++) {
                int id, type;
                char element[8];
                double *r = positions + 3 * i, v[3], f[3];
                read_line(file, line);
                assert_int_equal(sscanf(line, "%d %d %7s %lf %lf %lf %lf %lf %lf %lf %lf %lf", &id, &type, element, r, r + 1,
                                        r + 2, v, v + 1, v + 2, f, f + 1, f + 2),
                                 12);
                assert_int_equal(id, i + 1);
                assert_int_equal(type, types[i]);
                assert_string_equal(element, mlff_element_symbol(system->species[i]));
                // Å/fs to Å/ps; vectors keep their lengths and their angles with each other.
                assert_near(dot(v, v), 1e6 * dot(system->velocities + 3 * i, system->velocities + 3 * i), 1e-7);
                assert_near(dot(v, f), 1e3 * dot(system->velocities + 3 * i, forces + 3 * i), 1e-7);
                assert_near(dot(f, r), dot(forces + 3 * i, system->positions + 3 * i), 1e-9);
            }
            compare(system, cell, origin, positions, 1e-12);
        }
        assert_int_equal(fgetc(file), EOF);
        fclose(file);
        remove(path);
        mlff_system_destroy(system);
    }
}

static int read_record(FILE *file, void *bytes, int n)
{
    int32_t before, after;
    assert_int_equal(fread(&before, 4, 1, file), 1);
    assert_true(before <= n);
    assert_int_equal(fread(bytes, 1, (size_t)before, file), before);
    assert_int_equal(fread(&after, 4, 1, file), 1);
    assert_int_equal(before, after);
    return before;
}

static void test_dcd(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cells / sizeof *cells; c++) {
        mlff_system *system = structure(cells[c]);
        char path[256], header[256];
        int32_t control[20], n_atoms;
        snprintf(path, sizeof path, "%s", in_folder("a.dcd"));
        write_frames(path, system, 3, c % 2, NULL); // a new file, and one that grows
        FILE *file = fopen(path, "rb");
        assert_int_equal(read_record(file, header, sizeof header), 84);
        assert_memory_equal(header, "CORD", 4);
        memcpy(control, header + 4, sizeof control);
        assert_int_equal(control[0], 3);
        assert_int_equal(control[2], 10); // steps between frames, each 5 fs / 10 in CHARMM's unit of time
        float timestep;
        memcpy(&timestep, header + 40, sizeof timestep);
        const double charmm_fs = sqrt(1.66053904e-27 / (4184 / 6.022140857e23)) * 1e5; // 1e-10 m √(amu / (kcal/mol)), in fs
        assert_near(timestep * charmm_fs, 0.5, 1e-6);
        assert_int_equal(control[10], c < MOLECULE);
        assert_int_equal(read_record(file, header, sizeof header), 84); // one title
        assert_int_equal(read_record(file, &n_atoms, 4), 4);
        assert_int_equal(n_atoms, N);
        for (int frame = 0; frame < 3; frame++) {
            double row[6] = {0}, cell[9] = {0}, positions[3 * N];
            float column[N];
            if (control[10]) {
                assert_int_equal(read_record(file, row, sizeof row), 48);
                const double degree = acos(-1) / 180, cg = cos(row[1] * degree), sg = sin(row[1] * degree),
                             cb = cos(row[3] * degree), ca = cos(row[4] * degree), y = (ca - cb * cg) / sg;
                const double own[9] = {
                    row[0], 0, 0, row[2] * cg, row[2] * sg, 0, row[5] * cb, row[5] * y, row[5] * sqrt(1 - cb * cb - y * y)};
                memcpy(cell, own, sizeof own);
            }
            for (int k = 0; k < 3; k++) {
                assert_int_equal(read_record(file, column, sizeof column), 4 * N);
                for (int i = 0; i < N; i++) positions[3 * i + k] = column[i];
            }
            compare(system, cell, NULL, positions, 2e-6); // float32 of 10 Å
        }
        assert_int_equal(fgetc(file), EOF);
        fclose(file);
        remove(path);
        mlff_system_destroy(system);
    }
}

// Frames with times and without steps, as mlff eval writes those of another file: one step between frames.
static void test_dcd_without_steps(void **state)
{
    (void)state;
    mlff_system *system = structure(NULL);
    mlff_writer *writer;
    char path[256], header[84];
    int32_t control[20];
    float timestep;
    snprintf(path, sizeof path, "%s", in_folder("times.dcd"));
    assert_ok(mlff_writer_open(path, NULL, 0, &writer));
    for (int k = 0; k < 3; k++)
        assert_ok(mlff_writer_write(writer, system, &(mlff_frame_results){.energy = NAN, .step = -1, .time_fs = 100 + 2.5 * k}));
    assert_ok(mlff_writer_close(writer));
    FILE *file = fopen(path, "rb");
    assert_int_equal(read_record(file, header, sizeof header), 84);
    fclose(file);
    memcpy(control, header + 4, sizeof control);
    memcpy(&timestep, header + 40, sizeof timestep);
    assert_int_equal(control[2], 1);
    assert_near(timestep * 48.88821, 2.5, 1e-5); // CHARMM's unit of time, fs; float32
    remove(path);
    mlff_system_destroy(system);
}

static void assert_same_files(const char *a, const char *b)
{
    char *texts[2];
    size_t lengths[2];
    assert_ok(base_read_file(a, 1 << 20, &texts[0], &lengths[0]));
    assert_ok(base_read_file(b, 1 << 20, &texts[1], &lengths[1]));
    assert_int_equal(lengths[0], lengths[1]);
    assert_memory_equal(texts[0], texts[1], lengths[0]);
    for (int k = 0; k < 2; k++) base_free(texts[k]);
}

static void put_bytes(const char *path, long at, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "r+b");
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, n, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

// A run that goes on with a DCD makes the bytes of a whole run: whatever of the last frame is there, whatever the header counts, and from
// any step on. The steps of its frames are those of the header.
static void test_dcd_goes_on(void **state)
{
    (void)state;
    mlff_system *system = structure(cells[1]);
    char path[256], whole[256];
    mlff_writer *writer;
    int64_t n_removed, last;
    const long frame_bytes = 56 + 3 * (4 * N + 8);
    snprintf(path, sizeof path, "%s", in_folder("a.dcd"));
    snprintf(whole, sizeof whole, "%s", in_folder("whole.dcd"));
    write_frames(whole, system, 5, 0, NULL); // steps 0 to 40
    for (int k = 0; k < 4 * frame_bytes; k += k < frame_bytes + 8 ? 1 : 29) {
        const int step = k % 45, n_frames = 5 - (int)((k + frame_bytes - 1) / frame_bytes), n_kept = step / 10 + 1;
        const int32_t n_counted = k % 2 ? 5 : n_frames > 1 ? n_frames - 1 : n_frames;
        write_frames(path, system, 5, 0, NULL);
        put_bytes(path, 8, &n_counted, 4); // stale where the run was killed
        assert_int_equal(truncate(path, 196 + 5 * frame_bytes - k), 0);
        const int n_there = n_counted < 2 ? 1 : n_frames; // of one frame the interval is not known
        const bool gap = n_there < n_kept && 10 * n_there < step;
        const mlff_status status = mlff_writer_resume(path, NULL, N, step, 10, &n_removed, &last, &writer);
        assert_int_equal(status, gap ? MLFF_ERR_UNSUPPORTED : MLFF_OK);
        if (gap) continue;
        const int n_stay = n_there < n_kept ? n_there : n_kept;
        assert_int_equal(last, 10 * (n_stay - 1));
        for (int f = n_stay; f < 5; f++)
            assert_ok(
                mlff_writer_write(writer, system, &(mlff_frame_results){.energy = NAN, .step = 10 * f, .time_fs = 5.0 * f}));
        assert_ok(mlff_writer_close(writer));
        assert_same_files(path, whole);
    }

    // Another interval, another number of atoms, and frames without steps: the file stays.
    write_frames(path, system, 5, 0, NULL);
    assert_int_equal(mlff_writer_resume(path, NULL, N, 20, 5, NULL, NULL, &writer), MLFF_ERR_UNSUPPORTED);
    assert_non_null(strstr(mlff_last_error(), "give this run another -o"));
    assert_int_equal(mlff_writer_resume(path, NULL, N, 60, 10, NULL, NULL, &writer), MLFF_ERR_UNSUPPORTED);
    assert_int_equal(mlff_writer_resume(path, NULL, N + 1, 20, 10, NULL, NULL, &writer), MLFF_ERR_FORMAT);
    assert_same_files(path, whole);
    for (int uneven = 0; uneven < 2; uneven++) {
        float timestep;
        assert_ok(mlff_writer_open(path, NULL, 0, &writer));
        for (int k = 0; k < 4; k++)
            assert_ok(mlff_writer_write(
                writer, system,
                &(mlff_frame_results){.energy = NAN, .step = uneven ? 10 * k - k / 3 : -1, .time_fs = 5.0 * k - k / 3}));
        assert_ok(mlff_writer_close(writer));
        assert_int_equal(mlff_writer_resume(path, NULL, N, 20, 10, NULL, NULL, &writer), MLFF_ERR_FORMAT);
        FILE *file = fopen(path, "rb");
        assert_int_equal(fseek(file, 44, SEEK_SET), 0);
        assert_int_equal(fread(&timestep, 4, 1, file), 1);
        assert_true(timestep == 0); // one interval would give wrong times
        fclose(file);
    }
    remove(path);
    remove(whole);
    mlff_system_destroy(system);
}

static void test_growing(void **state)
{
    (void)state;
    mlff_system *system = structure(cells[2]);
    char path[256];
    int64_t n_removed;
    mlff_writer *writer;
    snprintf(path, sizeof path, "%s", in_folder("a.dump"));
    write_frames(path, system, 5, 1, NULL); // steps 0 to 40
    FILE *file = fopen(path, "a");
    fputs("ITEM: TIMESTEP\n50\nITEM: NUMB", file); // a run that was killed
    fclose(file);
    assert_ok(mlff_writer_resume(path, NULL, N, 20, 10, &n_removed, NULL, &writer));
    assert_int_equal(n_removed, 3);
    assert_ok(mlff_writer_write(writer, system, &(mlff_frame_results){.energy = NAN, .step = 30, .time_fs = NAN}));
    assert_ok(mlff_writer_close(writer));
    char *text;
    size_t length;
    assert_ok(base_read_file(path, 1 << 20, &text, &length));
    int n = 0;
    for (const char *at = text; (at = strstr(at, "ITEM: TIMESTEP\n")); at++) assert_int_equal(atoi(at + 15), 10 * n++);
    assert_int_equal(n, 4);
    base_free(text);
    assert_int_equal(mlff_writer_resume(path, NULL, N + 1, 20, 10, NULL, NULL, &writer), MLFF_ERR_FORMAT);
    remove(path);

    snprintf(path, sizeof path, "%s", in_folder("a.dcd"));
    assert_ok(mlff_writer_open(path, NULL, 1, &writer));
    for (int k = 0; k < 2; k++) { // the header counts what is there already: the run may be killed
        int32_t count;
        assert_ok(mlff_writer_write(writer, system, NULL));
        file = fopen(path, "rb");
        assert_int_equal(fseek(file, 8, SEEK_SET), 0);
        assert_int_equal(fread(&count, 4, 1, file), 1);
        assert_int_equal(count, k + 1);
        fclose(file);
    }
    assert_ok(mlff_writer_close(writer));
    assert_ok(mlff_writer_open(path, NULL, 1, &writer)); // as it was left, it can be added to
    assert_ok(mlff_writer_write(writer, system, NULL));
    assert_ok(mlff_writer_close(writer));
    int32_t count = 0;
    file = fopen(path, "r+b");
    assert_int_equal(fseek(file, 8, SEEK_SET), 0);
    assert_int_equal(fread(&count, 4, 1, file), 1);
    assert_int_equal(count, 3);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    assert_int_equal(ftell(file), 196 + 3 * (56 + 3 * (4 * N + 8)));
    fputs("half a frame", file);
    fclose(file);
    assert_int_equal(mlff_writer_open(path, NULL, 1, &writer), MLFF_ERR_FORMAT);
    assert_int_equal(mlff_writer_resume(path, NULL, N, 0, 10, NULL, NULL, &writer), MLFF_ERR_FORMAT);
    remove(path);
    mlff_system_destroy(system);
}

static uint32_t read_u32(FILE *file)
{
    unsigned char b[4];
    assert_int_equal(fread(b, 1, 4, file), 4);
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static float read_float(FILE *file)
{
    const uint32_t bits = read_u32(file);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double read_double(FILE *file)
{
    const uint64_t high = read_u32(file), bits = high << 32 | read_u32(file);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// The header is read as its specification says: names, their lengths, and where each variable begins.
static void test_netcdf(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cells / sizeof *cells; c++) {
        mlff_system *system = structure(cells[c]);
        const bool has_cell = c < MOLECULE;
        char path[256], text[64];
        snprintf(path, sizeof path, "%s", in_folder("a.nc"));
        write_frames(path, system, 3, 0, NULL);
        FILE *file = fopen(path, "rb");
        assert_int_equal(read_u32(file), 0x43444602); // "CDF" 2
        assert_int_equal(read_u32(file), 3);
        assert_int_equal(read_u32(file), 10);
        for (uint32_t n = read_u32(file); n > 0; n--) {
            const uint32_t length = read_u32(file);
            assert_int_equal(fread(text, 1, (length + 3) / 4 * 4, file), (length + 3) / 4 * 4);
            const uint32_t size = read_u32(file);
            if (length == 4 && memcmp(text, "atom", 4) == 0) assert_int_equal(size, N);
        }
        assert_int_equal(read_u32(file), 12);
        for (uint32_t n = read_u32(file); n > 0; n--)
            for (int part = 0; part < 2; part++) { // name and value
                const uint32_t length = read_u32(file);
                assert_int_equal(fread(text, 1, (length + 3) / 4 * 4, file), (length + 3) / 4 * 4);
                if (part == 0) assert_int_equal(read_u32(file), 2);
            }
        assert_int_equal(read_u32(file), 11);
        long begins[16] = {0}, sizes[16] = {0};
        char variables[16][16] = {{0}};
        const uint32_t n_variables = read_u32(file);
        assert_int_equal(n_variables, has_cell ? 9 : 5);
        for (uint32_t v = 0; v < n_variables; v++) {
            const uint32_t length = read_u32(file);
            assert_true(length < 16);
            assert_int_equal(fread(variables[v], 1, (length + 3) / 4 * 4, file), (length + 3) / 4 * 4);
            for (uint32_t n = read_u32(file); n > 0; n--) assert_true(read_u32(file) < 6);
            read_u32(file);
            for (uint32_t n = read_u32(file); n > 0; n--) {
                for (int part = 0; part < 2; part++) {
                    const uint32_t bytes = (read_u32(file) + 3) / 4 * 4;
                    assert_int_equal(fread(text, 1, bytes, file), bytes);
                    if (part == 0) assert_int_equal(read_u32(file), 2);
                }
            }
            read_u32(file);
            sizes[v] = read_u32(file);
            assert_int_equal(read_u32(file), 0);
            begins[v] = read_u32(file);
            if (v > 0) assert_int_equal(begins[v], begins[v - 1] + sizes[v - 1]);
        }
        assert_int_equal(begins[0], ftell(file));
        long frame_bytes = 0;
        for (uint32_t v = has_cell ? 3 : 1; v < n_variables; v++) frame_bytes += sizes[v];
        for (int frame = 0; frame < 3; frame++) {
            double positions[3 * N], lengths[3] = {0}, angles[3] = {0}, cell[9] = {0};
            for (uint32_t v = has_cell ? 3 : 1; v < n_variables; v++) {
                assert_int_equal(fseek(file, begins[v] + frame * frame_bytes, SEEK_SET), 0);
                if (strcmp(variables[v], "time") == 0) assert_near(read_float(file), 0.005 * frame, 1e-9);
                if (strcmp(variables[v], "step") == 0) assert_true(read_double(file) == 10 * frame);
                for (int k = 0; k < 3 * N && strcmp(variables[v], "coordinates") == 0; k++) positions[k] = read_float(file);
                for (int i = 0; i < N && strcmp(variables[v], "velocities") == 0; i++) {
                    const double u[3] = {read_float(file), read_float(file), read_float(file)}, *w = system->velocities + 3 * i;
                    assert_near(dot(u, u), 1e6 * dot(w, w), 1e-6 * (1 + 1e6 * dot(w, w))); // float32
                }
                for (int k = 0; k < 3 && strcmp(variables[v], "cell_lengths") == 0; k++) lengths[k] = read_double(file);
                for (int k = 0; k < 3 && strcmp(variables[v], "cell_angles") == 0; k++) angles[k] = read_double(file);
            }
            if (has_cell) {
                const double degree = acos(-1) / 180, ca = cos(angles[0] * degree), cb = cos(angles[1] * degree),
                             cg = cos(angles[2] * degree), sg = sin(angles[2] * degree), y = (ca - cb * cg) / sg;
                const double own[9] = {lengths[0],
                                       0,
                                       0,
                                       lengths[1] * cg,
                                       lengths[1] * sg,
                                       0,
                                       lengths[2] * cb,
                                       lengths[2] * y,
                                       lengths[2] * sqrt(1 - cb * cb - y * y)};
                memcpy(cell, own, sizeof own);
            }
            compare(system, cell, NULL, positions, 2e-6); // float32 of 10 Å
        }
        assert_int_equal(fseek(file, 0, SEEK_END), 0);
        assert_int_equal(ftell(file), begins[has_cell ? 3 : 1] + 3 * frame_bytes);
        fclose(file);
        remove(path);
        mlff_system_destroy(system);
    }
}

// A restart cuts the file behind its step, also where the last frame is cut off or not yet counted by the header.
static void test_growing_netcdf(void **state)
{
    (void)state;
    mlff_system *system = structure(cells[1]);
    char path[256];
    int64_t n_removed;
    mlff_writer *writer;
    snprintf(path, sizeof path, "%s", in_folder("a.nc"));
    write_frames(path, system, 5, 1, NULL); // steps 0 to 40
    FILE *file = fopen(path, "r+b");
    assert_int_equal(fseek(file, 4, SEEK_SET), 0);
    assert_int_equal(fwrite("\0\0\0\4", 1, 4, file), 4); // killed before the fifth frame was counted
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const long whole = ftell(file);
    fputs("half a frame", file);
    fclose(file);
    assert_int_equal(mlff_writer_open(path, NULL, 1, &writer), MLFF_ERR_FORMAT);
    assert_int_equal(mlff_writer_resume(path, NULL, N + 1, 20, 10, NULL, NULL, &writer), MLFF_ERR_FORMAT);
    assert_ok(mlff_writer_resume(path, NULL, N, 20, 10, &n_removed, NULL, &writer));
    assert_int_equal(n_removed, 3);
    file = fopen(path, "rb"); // before the next frame the header is right again
    assert_int_equal(read_u32(file), 0x43444602);
    assert_int_equal(read_u32(file), 3);
    fclose(file);
    for (int k = 3; k < 5; k++)
        assert_ok(mlff_writer_write(writer, system, &(mlff_frame_results){.energy = NAN, .step = 10 * k, .time_fs = 5.0 * k}));
    assert_ok(mlff_writer_close(writer));
    file = fopen(path, "rb");
    assert_int_equal(read_u32(file), 0x43444602);
    assert_int_equal(read_u32(file), 5);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    assert_int_equal(ftell(file), whole);
    fclose(file);
    assert_ok(mlff_writer_resume(path, NULL, N, -1, 10, &n_removed, NULL, &writer)); // all frames are later
    assert_int_equal(n_removed, 5);
    assert_ok(mlff_writer_write(writer, system, NULL));
    assert_ok(mlff_writer_close(writer));
    remove(path);
    mlff_system_destroy(system);
}

// A name that says no format is refused, unless the format is given.
static void test_formats(void **state)
{
    (void)state;
    static const char *const wrong[] = {"a.txt", "a", "a.pdb", "extxyz"};
    mlff_writer *writer = NULL;
    mlff_reader *reader = NULL;
    mlff_system *system = structure(cells[1]), *read = NULL;
    char path[256];
    int n = 0;
    const mlff_file_format *formats = mlff_file_formats(&n);
    assert_true(n >= 8 && strcmp(formats[0].name, "extxyz") == 0 && formats[0].reads && formats[0].writes);
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        assert_int_equal(mlff_writer_open(in_folder(wrong[k]), NULL, 0, &writer), MLFF_ERR_USAGE);
        assert_non_null(strstr(mlff_last_error(), "netcdf (.nc .ncdf)"));
    }
    assert_int_equal(mlff_writer_open("a.dcd", "pdb", 0, &writer), MLFF_ERR_USAGE);
    assert_int_equal(mlff_writer_open("-", "dcd", 0, &writer), MLFF_ERR_UNSUPPORTED);
    snprintf(path, sizeof path, "%s", in_folder("frames.txt"));
    assert_ok(mlff_writer_open(path, "extxyz", 0, &writer));
    assert_ok(mlff_writer_write(writer, system, NULL));
    assert_ok(mlff_writer_close(writer));
    assert_int_equal(mlff_reader_open(path, "xtc", &reader), MLFF_ERR_USAGE);
    assert_ok(mlff_reader_open(path, "extxyz", &reader));
    assert_ok(mlff_reader_next(reader, &read));
    assert_int_equal(read->n_atoms, N);
    mlff_system_destroy(read);
    mlff_reader_destroy(reader);
    remove(path);
    mlff_system_destroy(system);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const names[] = {"a.dump", "a.dcd", "a.nc"};
    const double left[9] = {6, 0, 0, 0, 7, 0, 0, 0, -8};
    for (int k = 0; k < 3; k++) {
        mlff_system *system = structure(left), *small;
        mlff_writer *writer;
        assert_ok(mlff_writer_open(in_folder(names[k]), NULL, 0, &writer));
        assert_int_equal(mlff_writer_write(writer, system, NULL), MLFF_ERR_UNSUPPORTED);
        system->cell[8] = 8;
        system->positions[4] = NAN;
        assert_int_equal(mlff_writer_write(writer, system, NULL), MLFF_ERR_VALUE);
        system->positions[4] = 1;
        assert_ok(mlff_writer_write(writer, system, NULL));
        assert_ok(mlff_system_create(1, &small));
        small->species[0] = 1;
        assert_int_equal(mlff_writer_write(writer, small, NULL), k > 0 ? MLFF_ERR_UNSUPPORTED : MLFF_OK);
        mlff_system_destroy(small);
        mlff_system_destroy(system);
        mlff_writer_destroy(writer); // cancelled: no file is left
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dump),        cmocka_unit_test(test_dcd),     cmocka_unit_test(test_dcd_without_steps),
        cmocka_unit_test(test_dcd_goes_on), cmocka_unit_test(test_netcdf),  cmocka_unit_test(test_growing_netcdf),
        cmocka_unit_test(test_formats),     cmocka_unit_test(test_growing), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
