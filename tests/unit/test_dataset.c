// SPDX-License-Identifier: MIT
// Datasets: what may enter, energies of elements by least squares, splits by trajectory. Expected numbers are computed here.
#include "support.h"

#include "base/voigt.h"
#include "mlff_train.h"
#include "train/data/dataset.h"
#include "train/data/least_squares.h"

static mlff_system *molecule(const char *name)
{
    mlff_system *system;
    assert_ok(mlff_system_build(name, 0, 0, &system));
    return system;
}

// E = Σ n_z e_z with these energies of H, C, N, O.
static const double element_energies[4] = {-13.6, -1035.7, -1485.1, -2041.8};
static int place_of(int z)
{
    return z == 1 ? 0 : z - 5;
}

static double sum_of_elements(const mlff_system *system)
{
    double energy = 0;
    for (int i = 0; i < system->n_atoms; i++) energy += element_energies[place_of(system->species[i])];
    return energy;
}

static void add_molecules(mlff_dataset *data, const char *const *names, int n)
{
    for (int k = 0; k < n; k++) {
        mlff_system *system = molecule(names[k]);
        system->label_energy = sum_of_elements(system);
        assert_ok(mlff_dataset_add(data, system, NULL));
        mlff_system_destroy(system);
    }
}

static void test_shifts_of_full_rank(void **state)
{
    (void)state;
    static const char *const names[] = {"ethanol", "methane", "caffeine", "aspirin", "h2o", "benzene"};
    mlff_dataset *data;
    double shifts[119];
    assert_ok(mlff_dataset_create(&data));
    add_molecules(data, names, 6);
    assert_ok(mlff_dataset_shifts(data, shifts));
    for (int z = 0; z < 119; z++) {
        const double expected = z == 1 || (z >= 6 && z <= 8) ? element_energies[place_of(z)] : 0;
        // 1e-9 eV: 6 rows of sums up to 3e4 eV, condition number some 10, rounding 2e-16
        if (!(fabs(shifts[z] - expected) < 1e-9)) fail_msg("element %d: %.15g, expected %.15g", z, shifts[z], expected);
    }
    mlff_dataset_destroy(data);
}

// One molecule determines one direction only: the solution of least norm is E n / |n|².
static void test_shifts_of_one_molecule(void **state)
{
    (void)state;
    mlff_dataset *data;
    double shifts[119];
    assert_ok(mlff_dataset_create(&data));
    mlff_system *system = molecule("ethanol"); // C2H6O: |n|² = 4 + 36 + 1
    for (int k = 0; k < 1000; k++) {
        system->label_energy = -4000 + (k % 2 ? 0.5 : -0.5);
        assert_ok(mlff_dataset_add(data, system, NULL));
    }
    assert_ok(mlff_dataset_shifts(data, shifts));
    const double expected[3] = {-4000.0 * 6 / 41, -4000.0 * 2 / 41, -4000.0 / 41};
    const int z[3] = {1, 6, 8};
    // 1e-8 eV: 1000 rotations of sums of 1e5 eV
    for (int k = 0; k < 3; k++)
        if (!(fabs(shifts[z[k]] - expected[k]) < 1e-8)) fail_msg("%d: %.15g, expected %.15g", z[k], shifts[z[k]], expected[k]);
    mlff_system_destroy(system);
    mlff_dataset_destroy(data);
}

// Random rows against the condition that the residual is orthogonal to every column, and the solution to the null space.
static void test_least_squares(void **state)
{
    (void)state;
    enum { N = 7, ROWS = 200 };
    double rows[ROWS][N], b[ROWS], x[N];
    least_squares problem;
    assert_ok(least_squares_create(N, &problem));
    for (int r = 0; r < ROWS; r++) {
        for (int k = 0; k < N - 2; k++) rows[r][k] = base_random_normal(1, (uint64_t)k, (uint64_t)r);
        rows[r][N - 2] = rows[r][0] + rows[r][1]; // null vectors (1, 1, 0, 0, 0, -1, 0) and (0, 0, 0, 0, 0, 0, 1)
        rows[r][N - 1] = 0;
        b[r] = base_random_normal(2, 0, (uint64_t)r);
        least_squares_add(&problem, rows[r], b[r]);
    }
    assert_ok(least_squares_solve(&problem, x));
    for (int k = 0; k < N; k++) {
        double product = 0;
        for (int r = 0; r < ROWS; r++) {
            double residual = -b[r];
            for (int j = 0; j < N; j++) residual += rows[r][j] * x[j];
            product += rows[r][k] * residual;
        }
        // 1e-12: 200 products of size 1
        if (!(fabs(product) < 1e-12)) fail_msg("column %d: residual along it %.3e", k, product);
    }
    assert_true(fabs(x[0] + x[1] - x[5]) < 1e-13);
    assert_true(fabs(x[6]) < 1e-13);
    least_squares_free(&problem);
}

static void test_refusals(void **state)
{
    (void)state;
    mlff_dataset *data;
    mlff_system *system = molecule("h2o");
    double forces[9] = {0}, stress[6] = {0}, shifts[119];
    assert_ok(mlff_dataset_create(&data));
    assert_refused(mlff_dataset_shifts(data, shifts), MLFF_ERR_VALUE, "no structure");
    assert_refused(mlff_dataset_add(data, system, NULL), MLFF_ERR_VALUE, "structure 0: no label");
    mlff_labels labels = {.energy = -1, .forces = forces, .weight = 1};
    forces[4] = NAN;
    assert_refused(mlff_dataset_add(data, system, &labels), MLFF_ERR_VALUE, "the force on atom 1 is not finite");
    forces[4] = 0;
    labels.stress = stress;
    assert_refused(mlff_dataset_add(data, system, &labels), MLFF_ERR_VALUE, "three periodic axes");
    labels.stress = NULL;
    labels.weight = 0;
    assert_refused(mlff_dataset_add(data, system, &labels), MLFF_ERR_VALUE, "weight");
    labels.weight = 1;
    labels.energy = INFINITY;
    assert_refused(mlff_dataset_add(data, system, &labels), MLFF_ERR_VALUE, "energy is not finite");
    labels.energy = NAN; // absent; forces are there
    system->charge = 1;
    assert_refused(mlff_dataset_add(data, system, &labels), MLFF_ERR_UNSUPPORTED, "charge");
    system->charge = 0;
    assert_ok(mlff_dataset_add(data, system, &labels));
    system->positions[0] = NAN;
    assert_refused(mlff_dataset_add(data, system, &labels), MLFF_ERR_VALUE, "position of atom 0");
    assert_int_equal(mlff_dataset_size(data), 1);
    mlff_system *out;
    assert_refused(mlff_dataset_get(data, 1, &out), MLFF_ERR_USAGE, "of a dataset of 1");
    mlff_system_destroy(system);
    mlff_dataset_destroy(data);
}

static void test_probes(void **state)
{
    (void)state;
    mlff_dataset *data;
    mlff_system *plus = molecule("h2o"), *minus = molecule("h2o"), *out;
    double forces[9] = {1, 2, 3};
    const mlff_labels labels = {.energy = NAN, .forces = forces, .weight = 1}, without = {.energy = -1, .weight = 1};
    assert_ok(mlff_dataset_create(&data));
    plus->positions[0] += 0.006; // h = 0.01 along (0.6, 0.8, 0)
    plus->positions[1] += 0.008;
    minus->positions[0] -= 0.006;
    minus->positions[1] -= 0.008;
    assert_refused(mlff_dataset_add_probe(data, plus, minus, 0.02, &labels, &labels), MLFF_ERR_VALUE, "0.02 Å apart");
    assert_refused(mlff_dataset_add_probe(data, plus, minus, 0.01, &labels, &without), MLFF_ERR_VALUE, "no forces");
    assert_int_equal(mlff_dataset_size(data), 0);
    assert_ok(mlff_dataset_add_probe(data, plus, minus, 0.01, &labels, &labels));
    assert_int_equal(mlff_dataset_size(data), 2);
    assert_ok(mlff_dataset_get(data, 1, &out));
    assert_true(out->label_forces[2] == 3 && isnan(out->label_energy) && out->positions[0] == minus->positions[0]);
    mlff_system_destroy(out);
    minus->species[1] = 8;
    assert_refused(mlff_dataset_add_probe(data, plus, minus, 0.01, &labels, &labels), MLFF_ERR_VALUE, "differ in atoms");
    mlff_system_destroy(plus);
    mlff_system_destroy(minus);
    mlff_dataset_destroy(data);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

#define GOOD_FRAME                                                                                                               \
    "2\nProperties=species:S:1:pos:R:3:forces:R:3 energy=-1.5 group=7 config_type=\"md 300 K of a long name\"\nH 0 0 0 0 0 "     \
    "1\nH 0 0 0.8 0 0 -1\n"

static char warned[256];
static int n_warned;
static void take_warning(void *context, const char *text)
{
    (void)context;
    n_warned++;
    snprintf(warned, sizeof warned, "%s", text);
}

static void test_files(void **state)
{
    (void)state;
    char path[] = "/tmp/test_dataset_XXXXXX.extxyz";
    close(mkstemps(path, 7));
    mlff_dataset *data;
    mlff_system *out;
    assert_ok(mlff_dataset_create(&data));
    write_file(path, GOOD_FRAME GOOD_FRAME);
    assert_ok(mlff_dataset_read(data, path));
    assert_int_equal(mlff_dataset_size(data), 2);
    assert_ok(mlff_dataset_get(data, 0, &out));
    assert_true(out->label_energy == -1.5 && out->label_forces[2] == 1 && out->group == 7);
    assert_string_equal(out->config_type, "md 300 K of a long name"); // 23 bytes
    mlff_system_destroy(out);
    // A bad frame leaves the dataset as it was.
    write_file(path, GOOD_FRAME "1\nenergy=-1 charge=1 Properties=species:S:1:pos:R:3\nH 0 0 0\n");
    assert_refused(mlff_dataset_read(data, path), MLFF_ERR_UNSUPPORTED, "frame 1: a charge of 1 e");
    write_file(path, GOOD_FRAME "1\nenergy=-1 Properties=species:S:1:pos:R:3:forces:R:3\nH 0 0 0 nan 0 0\n");
    assert_refused(mlff_dataset_read(data, path), MLFF_ERR_VALUE, "not finite");
    write_file(path, "1\nProperties=species:S:1:pos:R:3\nH 0 0 0\n");
    assert_refused(mlff_dataset_read(data, path), MLFF_ERR_VALUE, "frame 0: no label");
    // Labels of other names are named in the error itself.
    write_file(path, GOOD_FRAME
               "1\nREF_energy=-1 virials=\"1 0 0 0 1 0 0 0 1\" Properties=species:S:1:pos:R:3:REF_forces:R:3\nH 0 0 0 0 0 0\n");
    assert_refused(
        mlff_dataset_read(data, path), MLFF_ERR_VALUE,
        "frame 1: no label of the names that are read; rename REF_energy to energy, REF_forces to forces, virials to virial");
    // A stress that does not count is told.
    write_file(path, "1\nenergy=-1 stress=\"1 1 1 0 0 0\" Lattice=\"9 0 0 0 9 0 0 0 9\" pbc=\"T T F\" "
                     "Properties=species:S:1:pos:R:3\nH 0 0 0\n");
    mlff_warning_handler_set(take_warning, NULL);
    assert_ok(mlff_dataset_read(data, path));
    mlff_warning_handler_set(NULL, NULL);
    n_warned = 0; // of the next tests
    assert_non_null(strstr(warned, ": the stress of 1 structure does not count, as pbc is not T along all three axes"));
    assert_refused(mlff_dataset_read(data, "/nowhere.extxyz"), MLFF_ERR_IO, "/nowhere.extxyz");
    assert_int_equal(mlff_dataset_size(data), 3);
    unlink(path);
    mlff_dataset_destroy(data);
}

// Numbers are groups as they are; a text is one of its own.
static void test_group_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int same; // index of a text with the same group; -1: none
        int64_t group;
    } texts[] = {
        {"7", -1, 7},   {"run3", -1, 0},  {"\"run 3\"", -1, 0}, {"run3", 1, 0}, {"9007199254740993", -1, 9007199254740993},
        {"-2", -1, -1}, {"\"\"", -1, -1}, {"run4", -1, 0}};
    enum { N = sizeof texts / sizeof *texts };
    char path[] = "/tmp/test_dataset_XXXXXX.extxyz", frame[200];
    int64_t groups[N];
    close(mkstemps(path, 7));
    for (int k = 0; k < N; k++) {
        mlff_dataset *data;
        mlff_system *out;
        assert_ok(mlff_dataset_create(&data));
        snprintf(frame, sizeof frame, "1\nProperties=species:S:1:pos:R:3 energy=-1.5 group=%s\nH 0 0 0\n", texts[k].text);
        write_file(path, frame);
        assert_ok(mlff_dataset_read(data, path));
        assert_ok(mlff_dataset_get(data, 0, &out));
        groups[k] = out->group;
        if (texts[k].group) assert_int_equal(groups[k], texts[k].group);
        if (!texts[k].group) assert_true(groups[k] >= INT64_C(1) << 61 && groups[k] < INT64_C(1) << 62);
        for (int other = 0; other < k; other++)
            if (groups[k] != -1) assert_true((groups[k] == groups[other]) == (texts[k].same == other));
        mlff_system_destroy(out);
        mlff_dataset_destroy(data);
    }
    unlink(path);
}

static void test_other_units(void **state)
{
    (void)state;
    static const char *const names[] = {"ethanol", "methane", "caffeine", "aspirin", "h2o", "benzene"};
    mlff_dataset *data;
    assert_ok(mlff_dataset_create(&data));
    for (int k = 0; k < 10; k++) add_molecules(data, names, 6);
    assert_ok(mlff_dataset_check(data));
    mlff_system *system = molecule("ethanol");
    system->label_energy = sum_of_elements(system) / 0.04336410390059322; // kcal/mol
    assert_ok(mlff_dataset_add(data, system, NULL));
    assert_refused(mlff_dataset_check(data), MLFF_ERR_VALUE, "structure 60");
    mlff_system_destroy(system);
    mlff_dataset_destroy(data);
}

// Springs between all atoms of a displaced ethanol, 5 eV/Å² from their lengths at rest.
static void label_by_springs(mlff_system *system, uint64_t seed)
{
    mlff_system *rest = molecule("ethanol");
    assert_ok(mlff_system_perturb(system, 600, seed));
    system->label_energy = sum_of_elements(system);
    if (!system->label_forces) system->label_forces = base_alloc(27, sizeof(double), "forces");
    memset(system->label_forces, 0, 27 * sizeof(double));
    for (int i = 0; i < 9; i++)
        for (int j = 0; j < 9; j++) {
            if (i == j) continue;
            const double *a = &system->positions[3 * i], *b = &system->positions[3 * j];
            const double *p = &rest->positions[3 * i], *q = &rest->positions[3 * j];
            const double r = sqrt(pow(b[0] - a[0], 2) + pow(b[1] - a[1], 2) + pow(b[2] - a[2], 2));
            const double stretch = r - sqrt(pow(q[0] - p[0], 2) + pow(q[1] - p[1], 2) + pow(q[2] - p[2], 2));
            system->label_energy += 1.25 * stretch * stretch; // half of each pair
            for (int c = 0; c < 3; c++) system->label_forces[3 * i + c] += 5 * stretch * (b[c] - a[c]) / r;
        }
    mlff_system_destroy(rest);
}

// What no neighbor list takes is told as it is.
static void test_impossible_structures(void **state)
{
    (void)state;
    static const struct {
        double edge, x;
        const char *told;
    } cases[] = {{5, 5e6, "structure 1: atom 0 lies 1000000 cells outside its cell; wrap its position, or leave"},
                 {1e30, 0, "structure 1: cell vector 0 has a component of 1e+30"},
                 {5, 1e12, "structure 1: atom 0 has a coordinate of 1e+12"},
                 {1e-9, 0, "structure 1: it repeats too often"},
                 {0.01, 0, "structure 1: it repeats too often: an atom has 4.2e+06 neighbors within 1 Å; use a larger cell"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_dataset *data;
        assert_ok(mlff_dataset_create(&data));
        for (int f = 0; f < 2; f++) {
            mlff_system *system = NULL;
            assert_ok(mlff_system_create(1, &system));
            system->species[0] = 1;
            system->positions[0] = f ? cases[k].x : 0;
            for (int c = 0; c < 3; c++) system->periodic[c] = 1, system->cell[4 * c] = f ? cases[k].edge : 5;
            system->label_energy = -1;
            assert_ok(mlff_dataset_add(data, system, NULL));
            mlff_system_destroy(system);
        }
        assert_refused(mlff_dataset_check(data), k < 3 ? MLFF_ERR_VALUE : MLFF_ERR_LIMIT, cases[k].told);
        mlff_dataset_destroy(data);
    }
}

// Labels that a mistake has changed, by the text that refuses them; NULL: nothing is wrong.
static void test_labels_of_each_other(void **state)
{
    (void)state;
    enum { N = 60 };
    static const char *const refused[] = {
        NULL,
        "do not belong together",
        "do not belong together",
        "do not belong together",
        "half of the structures",
        "structure 5: atoms 0 and 1 are on one point; move one of them, or leave the structure out",
        "structure 7: its forces are",
        NULL,
        "about 0.5",
        "about 1.",
        NULL,
        "structure 9: its energy is"};
    for (int mistake = 0; mistake < 12; mistake++) {
        mlff_dataset *data;
        assert_ok(mlff_dataset_create(&data));
        double others[27] = {0};
        for (int k = 0; k < N; k++) {
            mlff_system *system = molecule("ethanol");
            label_by_springs(system, (uint64_t)k);
            double *forces = system->label_forces, own[27];
            memcpy(own, forces, sizeof own);
            for (int i = 0; i < 27; i++) {
                if (mistake == 1) forces[i] = -forces[i];           // gradients
                if (mistake == 2 && k % 3 == 0) forces[i] *= 23.06; // kcal/mol/Å in one of three
                if (mistake == 3) forces[i] = others[i];            // of the structure before
                if (mistake == 8) forces[i] /= 0.529177;            // as positions in Bohr
                if (mistake == 9) forces[i] *= 0.529177;            // eV/Bohr
                if (mistake == 10) forces[i] *= 0.8;                // a poor derivative
            }
            if (mistake == 4 && k % 2) system->label_energy *= 23.06;
            if (mistake == 11 && k == 9) system->label_energy += 9 * 200.0;
            if (mistake == 6 && k == 7)
                for (int i = 0; i < 27; i++) forces[i] *= 1000;
            if (mistake == 7 && k == 7)
                for (int i = 0; i < 27; i++) forces[i] *= 10; // one structure of large forces may be right
            if (mistake == 5 && k == 5) memcpy(&system->positions[3], system->positions, 3 * sizeof(double));
            memcpy(others, own, sizeof own);
            assert_ok(mlff_dataset_add(data, system, NULL));
            mlff_system_destroy(system);
        }
        if (refused[mistake])
            assert_refused(mlff_dataset_check(data), MLFF_ERR_VALUE, refused[mistake]);
        else
            assert_ok(mlff_dataset_check(data));
        if (refused[mistake]) printf("refused: %s\n", mlff_last_error());
        int64_t n_dropped = -1; // of labels by one teacher they are left out
        assert_ok(dataset_drop_outliers(data, &n_dropped));
        assert_int_equal(n_dropped, mistake == 6 || mistake == 11);
        assert_int_equal(mlff_dataset_size(data), N - n_dropped);
        if (n_dropped > 0) assert_ok(mlff_dataset_check(data));
        mlff_dataset_destroy(data);
    }
}

// A crystal of two atoms that is strained at random by up to 3 %: E = ½ c V ε : ε and σ = c ε to first order in ε, no forces.
static mlff_system *strained_crystal(uint64_t seed)
{
    enum { N_ATOMS = 2 };
    const double stiffness = 0.5, length = 4; // eV/Å³, Å
    mlff_system *system;
    double strain[9];
    assert_ok(mlff_system_create(N_ATOMS, &system));
    system->label_energy = 0;
    for (int a = 0; a < 3; a++) {
        system->periodic[a] = 1;
        for (int b = 0; b <= a; b++)
            strain[3 * a + b] = strain[3 * b + a] = 0.06 * (base_random_uniform(5, seed, (uint64_t)(3 * a + b)) - 0.5);
    }
    for (int k = 0; k < 9; k++) {
        system->cell[k] = length * ((k % 4 == 0) + strain[k]);
        system->label_energy += 0.5 * stiffness * pow(length, 3) * strain[k] * strain[k];
        system->label_stress[voigt_index[k]] = stiffness * strain[k];
    }
    system->label_forces = base_alloc(3 * N_ATOMS, sizeof(double), "forces");
    memset(system->label_forces, 0, 3 * N_ATOMS * sizeof(double));
    for (int i = 0; i < N_ATOMS; i++) {
        system->species[i] = 29;
        for (int c = 0; c < 3; c++)
            system->positions[3 * i + c] = 0.5 * i * (system->cell[c] + system->cell[3 + c] + system->cell[6 + c]);
    }
    return system;
}

static void test_stress_of_energies(void **state)
{
    (void)state;
    static const struct {
        double scale;
        const char *refused; // NULL: nothing is wrong
    } cases[] = {{1, NULL},
                 {0.7, NULL}, // a poor derivative
                 {-1, "do not belong together"},
                 {0, "but the stress is 0"},            // in place of none
                 {160.2, "0.00624? Convert it"},        // GPa
                 {1 / 160.2, "do not belong together"}, // GPa over eV/Å³
                 {20, "do not belong together"},        // below what no stress exceeds
                 {-64, "do not belong together"}};      // a virial, eV
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_dataset *data;
        assert_ok(mlff_dataset_create(&data));
        for (int f = 0; f < 60; f++) {
            mlff_system *system = strained_crystal((uint64_t)f);
            for (int v = 0; v < 6; v++) system->label_stress[v] *= cases[k].scale;
            assert_ok(mlff_dataset_add(data, system, NULL));
            mlff_system_destroy(system);
        }
        if (cases[k].refused)
            assert_refused(mlff_dataset_check(data), MLFF_ERR_VALUE, cases[k].refused);
        else
            assert_ok(mlff_dataset_check(data));
        mlff_dataset_destroy(data);
    }
}

// Groups of the frames of both parts, and whether a group is in both.
static void check_split(const mlff_dataset *data, double fraction, int64_t n_validation)
{
    mlff_dataset *parts[2];
    bool seen[2][64] = {{false}};
    assert_ok(mlff_dataset_split(data, fraction, 3, &parts[0], &parts[1]));
    assert_int_equal(mlff_dataset_size(parts[1]), n_validation);
    assert_int_equal(mlff_dataset_size(parts[0]) + mlff_dataset_size(parts[1]), mlff_dataset_size(data));
    for (int p = 0; p < 2; p++) {
        for (int64_t k = 0; k < mlff_dataset_size(parts[p]); k++) {
            mlff_system *system;
            assert_ok(mlff_dataset_get(parts[p], k, &system));
            if (system->group >= 0) seen[p][system->group] = true;
            mlff_system_destroy(system);
        }
        mlff_dataset_destroy(parts[p]);
    }
    for (int g = 0; g < 64; g++) assert_false(seen[0][g] && seen[1][g]);
}

static void test_split(void **state)
{
    (void)state;
    mlff_dataset *grouped, *loose, *none[2];
    mlff_system *system = molecule("h2o");
    assert_ok(mlff_dataset_create(&grouped));
    assert_ok(mlff_dataset_create(&loose));
    for (int k = 0; k < 200; k++) {
        system->label_energy = k;
        system->group = k / 10;
        assert_ok(mlff_dataset_add(grouped, system, NULL));
        system->group = -1;
        assert_ok(mlff_dataset_add(loose, system, NULL));
    }
    check_split(grouped, 0.1, 20);
    check_split(grouped, 0.01, 10); // no group is so small: the smallest
    check_split(loose, 0.1, 20);
    assert_refused(mlff_dataset_split(loose, 1, 0, &none[0], &none[1]), MLFF_ERR_USAGE, "share");
    mlff_system_destroy(system);
    mlff_dataset_destroy(grouped);
    mlff_dataset_destroy(loose);
}

enum { MANY = 20000 };

// Frames of 1 to 7 atoms, of which frame `odd` has a force that is no number. Every third has an empty line before it.
static void write_many(const char *path, int odd)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int f = 0; f < MANY; f++) {
        const int n = f % 7 + 1;
        fprintf(file, "%s%d\nProperties=species:S:1:pos:R:3:forces:R:3 energy=%d%s\n", f % 3 == 0 ? "\n" : "", n, -f,
                f == 7 ? " charge=none" : "");
        for (int i = 0; i < n; i++) fprintf(file, "H %d.5 0 %d 0.25 %s %d\n", i, f, f == odd && i == n - 1 ? "x" : "-1", i);
    }
    fclose(file);
}

// A file of many parts, which threads read, gives the frames in their order, one warning, and errors with the line of the file.
static void test_many_frames(void **state)
{
    (void)state;
    char path[] = P_tmpdir "/mlff-many-XXXXXX.extxyz", line[64];
    const int descriptor = mkstemps(path, 7);
    mlff_dataset *data;
    assert_true(descriptor >= 0);
    close(descriptor);
    write_many(path, -1);
    assert_ok(mlff_dataset_create(&data));
    mlff_warning_handler_set(take_warning, NULL);
    assert_ok(mlff_dataset_read(data, path));
    assert_int_equal(n_warned, 1);
    assert_non_null(strstr(warned, ":47: charge= is not")); // behind 42 lines of seven frames and 3 empty ones
    assert_int_equal(mlff_dataset_size(data), MANY);
    for (int f = 0; f < MANY; f++) {
        mlff_system *system;
        assert_ok(mlff_dataset_get(data, f, &system));
        if (system->n_atoms != f % 7 + 1 || system->label_energy != -f || system->positions[2] != f ||
            system->label_forces[0] != 0.25)
            fail_msg("frame %d has %d atoms and energy %g", f, system->n_atoms, system->label_energy);
        mlff_system_destroy(system);
    }
    write_many(path, MANY - 5);
    int64_t n_lines = 0;
    for (int f = 0; f <= MANY - 5; f++) n_lines += f % 7 + 3 + (f % 3 == 0);
    snprintf(line, sizeof line, ":%lld: ", (long long)n_lines);
    assert_refused(mlff_dataset_read(data, path), MLFF_ERR_FORMAT, line);
    assert_int_equal(mlff_dataset_size(data), MANY); // as before
    mlff_dataset_destroy(data);
    remove(path);
}

// The last frames of a file of many parts have another energy as their label than the others.
static void test_two_kinds_of_energies(void **state)
{
    (void)state;
    char path[] = P_tmpdir "/mlff-kinds-XXXXXX.extxyz", expected[128];
    const int descriptor = mkstemps(path, 7);
    mlff_dataset *data;
    assert_true(descriptor >= 0);
    FILE *file = fdopen(descriptor, "w");
    assert_non_null(file);
    for (int f = 0; f < MANY; f++)
        fprintf(file, "1\nProperties=species:S:1:pos:R:3 %s=-1\nH 0 0 %d\n", f < MANY - 3 ? "energy" : "free_energy", f);
    fclose(file);
    n_warned = 0;
    assert_ok(mlff_dataset_create(&data));
    mlff_warning_handler_set(take_warning, NULL);
    assert_ok(mlff_dataset_read(data, path));
    mlff_warning_handler_set(NULL, NULL);
    assert_int_equal(n_warned, 1);
    snprintf(expected, sizeof expected, "%s:2: a frame without free_energy=, which is the label of that in line %d:", path,
             3 * (MANY - 3) + 2);
    assert_memory_equal(warned, expected, strlen(expected));
    mlff_dataset_destroy(data);
    remove(path);
}

static void write_energies(const char *path, const char *keys)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int f = 0; f < 4; f++)
        fprintf(file, "2\nProperties=species:S:1:pos:R:3:forces:R:3 %s\nH 0 0 0 0 0 0\nH 0 0 0.%d 0 0 0\n", keys, 7 + f);
    fclose(file);
}

// Files with an energy alone beside files with a free energy that is another: in one dataset, and in that for validation.
static void test_energies_of_two_files(void **state)
{
    (void)state;
    static const struct {
        const char *first, *second;
        bool is_mixed;
    } cases[] = {{"energy=-1", "energy=-1 free_energy=-1.2", true},
                 {"free_energy=-1.2", "energy=-1", true},
                 {"energy=-1", "energy=-1.2 free_energy=-1.2", false},
                 {"energy=-1 free_energy=-1.2", "free_energy=-1.2", false},
                 {"energy=-1", "energy=-1", false}};
    char folder[] = P_tmpdir "/mlff-kinds-XXXXXX", paths[2][64], expected[256];
    assert_non_null(mkdtemp(folder));
    for (int k = 0; k < 2; k++) snprintf(paths[k], sizeof paths[k], "%s/%d.xyz", folder, k);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        write_energies(paths[0], cases[c].first);
        write_energies(paths[1], cases[c].second);
        const bool is_first_free = strstr(cases[c].first, "free_energy");
        snprintf(expected, sizeof expected, "%s:2: a structure without free_energy, which is the label of %s:2: energies of two",
                 paths[is_first_free], paths[!is_first_free]);
        for (int validates = 0; validates < 2; validates++) {
            mlff_dataset *data[2];
            mlff_model *student, *best = NULL;
            mlff_trainer *trainer;
            mlff_trainer_options options = mlff_trainer_options_default();
            options.n_steps = 1;
            mlff_warning_handler_set(NULL, NULL);
            for (int k = 0; k < 2; k++) assert_ok(mlff_dataset_create(&data[k]));
            mlff_warning_handler_set(take_warning, NULL);
            assert_ok(mlff_dataset_read(data[0], paths[0]));
            n_warned = 0; // of energies that are not read
            warned[0] = 0;
            assert_ok(mlff_dataset_read(data[validates], paths[1]));
            if (validates) {
                assert_ok(support_create(&student, "painn", "n_features=8; n_layers=1; n_radial=4; elements=H"));
                assert_ok(mlff_trainer_create(student, data[0], &options, &trainer));
                n_warned = 0;
                warned[0] = 0;
                assert_ok(mlff_trainer_fit(trainer, data[1], NULL, &best));
                mlff_trainer_destroy(trainer);
                mlff_model_destroy(student);
                mlff_model_destroy(best);
            }
            const bool is_told = strncmp(warned, expected, strlen(expected)) == 0;
            if (is_told != cases[c].is_mixed)
                fail_msg("%s beside %s%s: %d warnings, the last '%s', expected '%s'", cases[c].first, cases[c].second,
                         validates ? " to validate" : "", n_warned, warned, cases[c].is_mixed ? expected : "");
            for (int k = 0; k < 2; k++) mlff_dataset_destroy(data[k]);
        }
    }
    mlff_warning_handler_set(NULL, NULL);
    for (int k = 0; k < 2; k++) remove(paths[k]);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shifts_of_full_rank),
                                       cmocka_unit_test(test_shifts_of_one_molecule),
                                       cmocka_unit_test(test_least_squares),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_probes),
                                       cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_many_frames),
                                       cmocka_unit_test(test_two_kinds_of_energies),
                                       cmocka_unit_test(test_energies_of_two_files),
                                       cmocka_unit_test(test_group_texts),
                                       cmocka_unit_test(test_other_units),
                                       cmocka_unit_test(test_labels_of_each_other),
                                       cmocka_unit_test(test_impossible_structures),
                                       cmocka_unit_test(test_stress_of_energies),
                                       cmocka_unit_test(test_split)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
