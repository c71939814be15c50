// SPDX-License-Identifier: MIT
// test_files.c: extended XYZ: what is read from every form of comment and column, what is refused and how.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "unit/test_folder.h"

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-14 * fabs(b); // a few roundings
}

// ---- extended XYZ, what is read

static void reads_plain(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "2\nmolecule made by hand\nH 0 0 0\nO 0 0 1.5\n",
        "2\n\nH 0 0 0\nO 0 0 1.5",
        "\xef\xbb\xbf"
        "2\r\n\r\nH 0 0 0\r\nO 0 0 1.5\r\n",
        "  2  \r\nIt's \"quoted, energy=low tail=\r\nh 0 0 0 extra 5\r\no 0 0 1.5 x\r\n\r\n\r\n",
        "\n\n2\n= = '\n1 0 0 0\n8\t0.0\t0\t15e-1\t9 9 9\n\n",
        "2\nenergy=unknown Energy=5 pbc=maybe\nH 0 0 0\nO 0 0 1.5D0\n",
    };
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        mlff_system *system = read_text("a.xyz", texts[k]);
        assert_int_equal(system->n_atoms, 2);
        assert_true(system->species[0] == 1 && system->species[1] == 8 && system->positions[5] == 1.5);
        assert_true(!system->periodic[0] && !system->periodic[1] && !system->periodic[2] && system->cell[0] == 0.0);
        assert_true(isnan(system->label_energy) && isnan(system->label_stress[0]) && isnan(system->charge) &&
                    isnan(system->spin));
        assert_true(!system->velocities && !system->masses && !system->fixed && !system->label_forces);
        mlff_system_destroy(system);
    }
}

static void reads_comments(void **state)
{
    (void)state;
    static const char *const comments[] = {
        "Lattice=\"1 2 3 4 5 7 7 8 10\" energy=-1.5 charge=-1 spin=2 pbc=\"T F T\"",
        "lattice='1 2 3 4 5 7 7 8 10' PBC='1 0 1' charge=-1 spin=2 energy=-1.5",
        "flag LATTICE={1 2 3 4 5 7 7 8 10} pbc={True False True} free_energy=-1.5 total_charge=-1 multiplicity=2.0",
        "Lattice=[[1, 2, 3], [4, 5, 7], [7, 8, 10]] pbc=[T, F, T] energy = -1.5 config=\"a=b \\\" energy=7\" charge= -1 spin =2",
        "energy=-9 Lattice=\"1,2,3,4,5,7,7,8,10\" free_energy=-1.5 pbc=\".true. .false. .TRUE.\" charge=-1 spin=2 note=it's",
    };
    for (size_t k = 0; k < sizeof comments / sizeof comments[0]; k++) {
        char text[512];
        snprintf(text, sizeof text, "1\n%s\nAr 1 2 3\n", comments[k]);
        mlff_system *system = read_text("a.extxyz", text);
        static const double cell[9] = {1, 2, 3, 4, 5, 7, 7, 8, 10};
        assert_memory_equal(system->cell, cell, sizeof cell);
        assert_true(system->periodic[0] == 1 && system->periodic[1] == 0 && system->periodic[2] == 1);
        if (!(system->label_energy == -1.5 && system->charge == -1.0 && system->spin == 2.0))
            fail_msg("%s: energy %g charge %g spin %g", comments[k], system->label_energy, system->charge, system->spin);
        mlff_system_destroy(system);
    }
    mlff_system *system = read_text("a.xyz", "1\nLattice=\"3 4 5\" energy=nan\nAr 1 2 3\n"); // the diagonal; pbc follows Lattice
    assert_true(system->cell[0] == 3 && system->cell[4] == 4 && system->cell[8] == 5 && system->cell[1] == 0);
    assert_true(system->periodic[0] && system->periodic[1] && system->periodic[2] && isnan(system->label_energy));
    mlff_system_destroy(system);
    system = read_text("a.xyz", "1\nLattice=\"3 4 5\" pbc=F\nAr 1 2 3\n");
    assert_true(!system->periodic[0] && !system->periodic[1] && !system->periodic[2]);
    mlff_system_destroy(system);
}

// Pairs that nothing here reads are kept as they stand: not those that are read, not words, nothing that would swallow what follows it.
static void keeps_other_pairs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"Properties=species:S:1:pos:R:3 name=mol_17 energy=-1 smiles=\"C C\" pbc=F", "name=mol_17 smiles=\"C C\""},
        {"a = 1 Lattice=\"3 4 5\" b='x y' word c=[1, 2] step=7 time_fs=3 group=2 config_type=md", "a = 1 b='x y' c=[1, 2]"},
        {"Lattice=\"3 4 5\" REF_energy=-3 tail=\"never ends", "REF_energy=-3"},
        {"Lattice=\"3 4 5\" q=\"a \\\" b\" open={1 {2}", "q=\"a \\\" b\""},
        {"Lattice=\"3 4 5\" REF_energy=-3 tail=\"never ends\\\"", "REF_energy=-3"},
        {"energy=-1 name=free_text", NULL},
        {"Lattice=\"3 4 5\" energy=-1", NULL},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char text[512];
        snprintf(text, sizeof text, "1\n%s\nAr 1 2 3\n", cases[k][0]);
        mlff_system *system = read_text("a.extxyz", text), *copy;
        assert_ok(mlff_system_copy(system, &copy));
        for (const mlff_system *one = system; one; one = one == system ? copy : NULL) {
            assert_int_equal(one->info != NULL, cases[k][1] != NULL);
            if (one->info) assert_string_equal(one->info, cases[k][1]);
        }
        mlff_system_destroy(system);
        mlff_system_destroy(copy);
    }
    // 100 KB of pairs: the first 64 KiB.
    char *text = malloc(200000), *end = text + sprintf(text, "1\nLattice=\"3 4 5\"");
    for (int k = 0; k < 10000; k++) end += sprintf(end, " k%04d=123", k);
    strcpy(end, "\nAr 1 2 3\n");
    mlff_system *system = read_text("a.extxyz", text);
    assert_true(strlen(system->info) < 65536 && strlen(system->info) > 65000);
    assert_int_equal(mlff_system_set_info(system, "two\nlines"), MLFF_ERR_USAGE);
    mlff_system_destroy(system);
    free(text);
}

// Of atoms that have moved, pairs that are labels by other names are no longer true.
static void drops_labels_of_other_names(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"q=\"a b\" REF_energy=-3 name=mol_17", "q=\"a b\" name=mol_17"},
        {"dft_stress=[[1, 2, 3], [4, 5, 6], [7, 8, 9]] kinetic_energy=2 'my virials' = \"1 2 3\" x={1 2}",
         "kinetic_energy=2 x={1 2}"},
        {"REF_energy=-3", NULL},
        {"name=mol_17", "name=mol_17"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char text[512];
        snprintf(text, sizeof text, "1\nLattice=\"3 4 5\" %s\nAr 1 2 3\n", cases[k][0]);
        mlff_system *system = read_text("a.extxyz", text);
        assert_string_equal(system->info, cases[k][0]);
        assert_ok(mlff_system_perturb(system, 300, 0));
        assert_int_equal(system->info != NULL, cases[k][1] != NULL);
        if (system->info) assert_string_equal(system->info, cases[k][1]);
        mlff_system_destroy(system);
    }
}

static void reads_columns(void **state)
{
    (void)state;
    mlff_system *system =
        read_text("a.xyz", "2\nProperties=forces:R:3:tag:S:2:pos:R:3:mass:R:1:Z:I:1:move_mask:L:1:velo:R:3:momenta:R:3\n"
                           "1 2 3 a b 4 5 6 2.014 1 F .1 .2 .3 9 9 9\n"
                           "-1 -2 -3 c d 7 8 9 16 8 T .4 .5 .6 9 9 9\n");
    static const double forces[6] = {1, 2, 3, -1, -2, -3}, positions[6] = {4, 5, 6, 7, 8, 9},
                        velocities[6] = {.1, .2, .3, .4, .5, .6};
    assert_memory_equal(system->label_forces, forces, sizeof forces);
    assert_memory_equal(system->positions, positions, sizeof positions);
    assert_memory_equal(system->velocities, velocities, sizeof velocities);
    assert_true(system->masses[0] == 2.014 && system->masses[1] == 16 && system->species[0] == 1 && system->species[1] == 8);
    assert_true(system->fixed[0] == 1 && system->fixed[1] == 0);
    mlff_system_destroy(system);

    // Momenta in ASE's unit: v = p / m · sqrt(eV/amu), and 1 fs is 0.0982… of ASE's time unit.
    system = read_text("a.xyz", "1\nProperties=species:S:1:pos:R:3:momenta:R:3\nSi 0 0 0 28.085 0 -56.17\n");
    assert_true(near(system->velocities[0], 0.09822694788464063) && system->velocities[1] == 0.0 &&
                near(system->velocities[2], -2 * 0.09822694788464063));
    mlff_system_destroy(system);

    mlff_warning_handler_set(count_warnings, NULL);
    n_warnings = 0;
    system = read_text("a.xyz", "3\nProperties=species:S:1:pos:R:3:move_mask:L:3\nH 0 0 0 F F F\nH 0 0 1 T F T\nH 0 0 2 T T T\n");
    mlff_warning_handler_set(NULL, NULL);
    assert_true(system->fixed[0] == 1 && system->fixed[1] == 0 && system->fixed[2] == 0);
    assert_int_equal(n_warnings, 1);
    mlff_system_destroy(system);
}

// The charge of the whole is that of the comment line, else the sum of the atoms' initial charges where that is an ion's.
static void reads_initial_charges(void **state)
{
    (void)state;
    static const struct {
        const char *comment, *first, *second;
        double charge; // NaN: not told
    } cases[] = {
        {"", "0", "1", 1},         {"", "-0.7", "-0.31", -1},     {"", "0.4", "-0.38", NAN}, // of a neutral molecule, computed
        {"", "1", "-1", NAN},      {"charge=-2 ", "0", "1", -2},  {"charge=0 ", "0", "1", 0}, {"", "nan", "1", NAN},
        {"", "unknown", "1", NAN}, {"", "1e300", "1e300", 2e300}, {"", "inf", "-inf", NAN},   {"", "0.25", "0.25", 1},
        {"", "-2", "-0.5", -3},    {"", "inf", "0", NAN},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char text[256];
        snprintf(text, sizeof text, "2\n%sProperties=species:S:1:initial_charges:R:1:pos:R:3\nH %s 0 0 0\nH %s 0 0 1\n",
                 cases[k].comment, cases[k].first, cases[k].second);
        mlff_system *system = read_text("a.xyz", text);
        assert_true(isnan(cases[k].charge) ? isnan(system->charge) : system->charge == cases[k].charge);
        assert_true(system->positions[5] == 1);
        mlff_system_destroy(system);
    }
    mlff_system *system = read_text("a.xyz", "2\nProperties=species:S:1:initial_charges:R:2:pos:R:3\nH 0 1 0 0 0\nH 0 1 0 0 1\n");
    assert_true(isnan(system->charge) && system->positions[5] == 1);
    mlff_system_destroy(system);
}

static void reads_stress(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        double voigt[6];
    } cases[] = {
        {"stress=\"1 2 3 4 5 6\"", {1, 2, 3, 4, 5, 6}},
        {"stress=\"1 6 5 6 2 4 5 4 3\"", {1, 2, 3, 4, 5, 6}},
        {"stress=[[1,6,5],[6,2,4],[5,4,3]]", {1, 2, 3, 4, 5, 6}},
        {"virial=\"8 0 0 0 16 4 0 4 -8\"", {-1, -2, 1, -.5, 0, 0}}, // -virial / 8 Å³
        {"virial=\"8 0 0 0 8 0 0 0 8\" stress=\"1 2 3 4 5 6\"", {1, 2, 3, 4, 5, 6}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char text[256];
        snprintf(text, sizeof text, "1\nLattice=\"2 2 2\" %s\nAr 0 0 0\n", cases[k].key);
        mlff_system *system = read_text("a.xyz", text);
        for (int c = 0; c < 6; c++) assert_true(system->label_stress[c] == cases[k].voigt[c]);
        mlff_system_destroy(system);
    }
    mlff_system *system = read_text("a.xyz", "1\nvirial=\"1 0 0 0 1 0 0 0 1\"\nAr 0 0 0\n");
    assert_true(isnan(system->label_stress[0]));
    mlff_system_destroy(system);
}

static void reads_frames(void **state)
{
    (void)state;
    const char *text = "1\na\nH 0 0 0\n\n2\nb\nHe 0 0 1\nHe 0 0 2\n3\nc\nLi 1 1 1\nLi 2 2 2\nLi 3 3 3\n\n\n";
    mlff_reader *reader;
    assert_ok(atoms_reader_open_bytes("-", text, strlen(text), &reader));
    for (int k = 1; k <= 3; k++) {
        mlff_system *system;
        assert_ok(mlff_reader_next(reader, &system));
        assert_int_equal(system->n_atoms, k);
        assert_int_equal(system->species[k - 1], k);
        mlff_system_destroy(system);
    }
    for (int k = 0; k < 2; k++) {
        mlff_system *system = (mlff_system *)&reader;
        assert_ok(mlff_reader_next(reader, &system));
        assert_null(system);
    }
    mlff_reader_destroy(reader);
}

// ---- what is refused

#define ROW "H 0 0 0\n"

static void refuses_xyz(void **state)
{
    (void)state;
    static const bad_text cases[] = {
        {"", MLFF_ERR_FORMAT, "a.xyz: empty"},
        {"\n \n", MLFF_ERR_FORMAT, "a.xyz: empty"},
        {"two\nc\n" ROW, MLFF_ERR_FORMAT, "a.xyz:1: expected a number of atoms, found 'two'"},
        {"2.0\nc\n" ROW ROW, MLFF_ERR_FORMAT, "a.xyz:1:"},
        {"0\nc\n", MLFF_ERR_FORMAT, "a.xyz:1: a frame of 0 atoms"},
        {"1\nProperties=species:S:1:pos:R:3:forces:R:3:force:R:3\nH 0 0 0 1 1 1 2 2 2\n", MLFF_ERR_FORMAT,
         "a.xyz:2: Properties: force is a quantity that other columns have too"},
        {"-1\nc\n", MLFF_ERR_FORMAT, "a.xyz:1:"},
        {"1000000000\nc\n" ROW, MLFF_ERR_LIMIT, "a.xyz:1: claims 1000000000 atoms"},
        {"99999999999999999999\nc\n" ROW, MLFF_ERR_FORMAT, "a.xyz:1:"},
        {"90000000\nc\n" ROW, MLFF_ERR_FORMAT, "a.xyz:3: the file ends after 1 of the 90000000 atoms that line 1 promises"},
        {"3", MLFF_ERR_FORMAT, "a.xyz:1: the file ends where the comment"},
        {"3\nc", MLFF_ERR_FORMAT, "a.xyz:2: the file ends after 0 of the 3"},
        {"2\nc\n" ROW "1\nc\n" ROW, MLFF_ERR_FORMAT, "a.xyz:4: no row of an atom, but line 1 promises 2 atoms"},
        {"2\nc\n" ROW "\n" ROW, MLFF_ERR_FORMAT, "a.xyz:4: no row"},
        {"1\nc\nH 0 0\n", MLFF_ERR_FORMAT, "a.xyz:3: 3 columns, expected 4 (species:S:1:pos:R:3)"},
        {"1\nProperties=species:S:1:pos:R:3\nH 0 0 0 1\n", MLFF_ERR_FORMAT, "a.xyz:3: 5 columns, expected 4"},
        {"1\nc\nH 0 zero 0\n", MLFF_ERR_FORMAT, "a.xyz:3: column 3, 'zero', is not a number"},
        {"1\nc\nH 0 0 0,5\n", MLFF_ERR_FORMAT, "a.xyz:3: column 4, '0,5'"},
        {"1\nc\nH 0 nan 0\n", MLFF_ERR_VALUE, "a.xyz:3: column 3, 'nan', is not finite"},
        {"1\nc\nH 0 0 -inf\n", MLFF_ERR_VALUE, "a.xyz:3:"},
        {"1\nc\nH 0 0 1e999\n", MLFF_ERR_VALUE, "a.xyz:3:"},
        {"1\nProperties=species:S:1:pos:R:3:forces:R:3\nH 0 0 0 1 nan 1\n", MLFF_ERR_VALUE, "a.xyz:3: column 6"},
        {"1\nc\nXx 0 0 0\n", MLFF_ERR_ELEMENT, "a.xyz:3: column 1, 'Xx', is not an element"},
        {"1\nc\nHydrogen 0 0 0\n", MLFF_ERR_ELEMENT, "'Hydrogen'"},
        {"1\nc\n119 0 0 0\n", MLFF_ERR_ELEMENT, "'119'"},
        {"1\nProperties=species:S:1:pos:R:3:Z:I:1\nO 0 0 0 6\n", MLFF_ERR_ELEMENT,
         "a.xyz:3: column 5, '6', is another element than O of an earlier column"},
        {"1\nProperties=species:S:1\nH\n", MLFF_ERR_FORMAT, "a.xyz:2: Properties=species:S:1: species (or Z) and pos"},
        {"1\nProperties=pos:R:3\n0 0 0\n", MLFF_ERR_FORMAT, "a.xyz:2:"},
        {"1\nProperties=\n" ROW, MLFF_ERR_FORMAT, "a.xyz:2:"},
        {"1\nProperties=species:S:1:pos:R\n" ROW, MLFF_ERR_FORMAT, "from 'pos:R' on"},
        {"1\nProperties=species:S:1:pos:Q:3\n" ROW, MLFF_ERR_FORMAT, "type one of R I S L"},
        {"1\nProperties=species:S:1:pos:R:2\n" ROW, MLFF_ERR_FORMAT, "pos has 2 columns, expected 3"},
        {"1\nProperties=species:S:1:pos:R:3:x:R:0\n" ROW, MLFF_ERR_FORMAT, "'0' is not a number of columns"},
        {"1\nProperties=species:S:1:pos:R:3:x:R:2000000000\n" ROW, MLFF_ERR_LIMIT, "columns"},
        {"1\nProperties=species:S:1:pos:R:3:move_mask:L:2\nH 0 0 0 T T\n", MLFF_ERR_FORMAT, "move_mask"},
        {"1\nProperties=species:S:1:pos:R:3:move_mask:L:1\nH 0 0 0 perhapsNot\n", MLFF_ERR_FORMAT, "is not T or F"},
        {"1\nLattice=\"1 2 3 4\"\n" ROW, MLFF_ERR_FORMAT, "a.xyz:2: Lattice= is not"},
        {"1\nLattice=\"1 0 0 0 1 0 0 0 1 0\"\n" ROW, MLFF_ERR_FORMAT, "a.xyz:2: Lattice= is not"},
        {"1\nLattice=\"5 5 5 pbc=T\n" ROW, MLFF_ERR_FORMAT, "a.xyz:2: Lattice= is not"},
        {"1\nLattice=\"5 5 5\" energy=low\n" ROW, MLFF_ERR_FORMAT, "a.xyz:2: energy= is not"},
        {"1\nLattice=\"5 5 5\" pbc=\"T T\"\n" ROW, MLFF_ERR_FORMAT, "a.xyz:2: pbc= is not"},
        {"1\nLattice=\"5 5 5\" stress=\"1 2 3\"\n" ROW, MLFF_ERR_FORMAT, "a.xyz:2: stress= is not"},
        {"1\nLattice=\"5 5 nan\"\n" ROW, MLFF_ERR_VALUE, "a.xyz:2:"},
        {"1\nLattice=\"1 0 0 0 1 0 1 1 0\"\n" ROW, MLFF_ERR_VALUE, "no volume"},
        {"1\npbc=\"T T T\"\n" ROW, MLFF_ERR_VALUE, "a.xyz:2: periodic along axis 1"},
        {"1\nProperties=species:S:1:pos:R:3:masses:R:1\nH 0 0 0 0\n", MLFF_ERR_VALUE, "mass"},
        {"1\nProperties=species:S:1:pos:R:3:masses:R:1:momenta:R:3\nH 0 0 0 0 1 1 1\n", MLFF_ERR_VALUE, "mass"},
    };
    refuse_all("a.xyz", cases, sizeof cases / sizeof cases[0]);
}

static char warning[512];

static void keep_warning(void *context, const char *text)
{
    (void)context;
    n_warnings++;
    snprintf(warning, sizeof warning, "%s", text);
}

// Labels of other names than those that are read are told once, with what to call them; where the frame has labels, nothing is said.
static void warns_of_labels_of_other_names(void **state)
{
    (void)state;
    static const struct {
        const char *comment, *told; // NULL: nothing
    } cases[] = {
        {"REF_energy=-1 REF_stress=\"1 0 0 0 1 0 0 0 1\" Properties=species:S:1:pos:R:3:REF_forces:R:3",
         "a.xyz:2: labels of other names are not read; rename REF_energy to energy, REF_forces to forces, REF_stress to stress "
         "if they "
         "are meant"},
        {"Energy=-1 Properties=species:S:1:pos:R:3:forces:R:3",
         "a.xyz:2: labels of other names are not read; rename Energy to energy if they are meant"},
        {"free_energy=-1 dft_virial=\"1 0 0 0 1 0 0 0 1\" Properties=species:S:1:pos:R:3:DFT_force:R:3",
         "a.xyz:2: labels of other names are not read; rename DFT_force to forces, dft_virial to virial if they are meant"},
        {"energy=-1 Lattice=\"2 0 0 0 2 0 0 0 2\" virials=\"8 0 0 0 8 0 0 0 8\" Properties=species:S:1:pos:R:3:forces:R:3",
         "a.xyz:2: labels of other names are not read; rename virials to virial if they are meant"},
        {"energy=-1 Lattice=\"2 0 0 0 2 0 0 0 2\" stress=\"1 1 1 0 0 0\" virial=\"8 8 8 0 0 0\" "
         "Properties=species:S:1:pos:R:3:forces:R:3",
         "a.xyz:3: stress= is read, not virial=, which says another stress (it is minus stress times volume); remove one"},
        {"energy=-1 Lattice=\"2 0 0 0 2 0 0 0 2\" stress=\"-1.001 -1 -1 0 0 0\" virial=\"8 8 8 0 0 0\" "
         "Properties=species:S:1:pos:R:3:forces:R:3",
         NULL},
        {"energy=-1 REF_energy=-2 Properties=species:S:1:pos:R:3:force:R:3", NULL},
        {"energy=-1 tags=3 Properties=species:S:1:pos:R:3:magmoms:R:3", NULL},
        {"kinetic_energy=0.1 Properties=species:S:1:pos:R:3:velo:R:3", NULL},
    };
    mlff_warning_handler_set(keep_warning, NULL);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char text[400];
        n_warnings = 0;
        for (int f = 0, length = 0; f < 2; f++)
            length += snprintf(text + length, sizeof text - (size_t)length, "1\n%s\nH 0 0 0 0 0 0\n", cases[k].comment);
        mlff_system_destroy(read_text("a.xyz", text));
        assert_int_equal(n_warnings, cases[k].told != NULL);
        if (cases[k].told) assert_string_equal(warning, cases[k].told);
    }
    mlff_warning_handler_set(NULL, NULL);
}

// Forces belong to the free energy: it is the label, in any order, and a difference is told once.
static void reads_the_energy_of_the_forces(void **state)
{
    (void)state;
    static const struct {
        const char *energies;
        double label;
        bool told;
    } cases[] = {
        {"energy=-1.25 free_energy=-1.5", -1.5, true},
        {"free_energy=-1.5 energy=-1.25", -1.5, true},
        {"energy=-1.5 free_energy=-1.5", -1.5, false},
        {"energy=-1.4999996 free_energy=-1.5", -1.5, false},
        {"energy=-1.25", -1.25, false},
        {"free_energy=-1.5", -1.5, false},
        {"energy=-1.25 electronic_free_energy=-1.5", -1.25, false},
    };
    mlff_warning_handler_set(keep_warning, NULL);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char text[400];
        n_warnings = 0;
        for (int f = 0, length = 0; f < 2; f++)
            length += snprintf(text + length, sizeof text - (size_t)length,
                               "1\nProperties=species:S:1:pos:R:3:forces:R:3 %s\nH 0 0 0 0 0 0\n", cases[k].energies);
        mlff_system *system = read_text("a.xyz", text);
        assert_true(system->label_energy == cases[k].label);
        mlff_system_destroy(system);
        assert_int_equal(n_warnings, cases[k].told);
        if (cases[k].told)
            assert_string_equal(warning, "a.xyz:2: free_energy= is read, to which forces belong, not energy=, 0.25 eV above it; "
                                         "rename free_energy if energy is meant");
    }
    mlff_warning_handler_set(NULL, NULL);
}

// A file in which some frames have a free energy that is not their energy, and others an energy alone, mixes two kinds of labels.
static void warns_of_two_kinds_of_energies(void **state)
{
    (void)state;
    static const struct {
        const char *energies[3], *told; // NULL: nothing
    } cases[] = {
        {{"energy=-1", "free_energy=-1", "energy=-1"},
         "a.xyz:2: a frame without free_energy=, which is the label of that in line 5: "},
        {{"free_energy=-1", "note=1", "energy=-1"},
         "a.xyz:8: a frame without free_energy=, which is the label of that in line 2: "},
        {{"free_energy=-1 energy=-2", "energy=-1", "energy=-1"},
         "a.xyz:5: a frame without free_energy=, which is the label of that in line 2: energies of two kinds are mixed; give "
         "free_energy= in all frames or in none"},
        {{"free_energy=-1 energy=-1", "energy=-1", "energy=-1"}, NULL},
        {{"free_energy=-1", "free_energy=-1 energy=-1", "note=1"}, NULL},
    };
    mlff_warning_handler_set(keep_warning, NULL);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char text[400];
        mlff_reader *reader;
        mlff_system *system = NULL;
        int length = 0;
        warning[0] = 0;
        for (int f = 0; f < 3; f++)
            length += snprintf(text + length, sizeof text - (size_t)length, "1\nProperties=species:S:1:pos:R:3 %s\nH 0 0 0\n",
                               cases[k].energies[f]);
        assert_ok(atoms_reader_open_bytes("a.xyz", text, strlen(text), &reader));
        for (int f = 0; f < 3; f++) {
            assert_ok(mlff_reader_next(reader, &system));
            mlff_system_destroy(system);
        }
        mlff_reader_destroy(reader);
        if (strncmp(warning, cases[k].told ? cases[k].told : "", cases[k].told ? strlen(cases[k].told) : 1) != 0)
            fail_msg("case %zu: '%s'", k, warning);
    }
    mlff_warning_handler_set(NULL, NULL);
}

// Charge and spin are words to some programs, labels nan: a warning once, and unknown; nothing is said of free text.
static void warns_of_what_is_no_number(void **state)
{
    (void)state;
    static const char *const comments[] = {
        "Lattice=\"5 5 5\" spin=singlet charge=-1",
        "Properties=species:S:1:pos:R:3 multiplicity=\"1 2\" total_charge=-1",
        "Properties=species:S:1:pos:R:3 spin=singlet charge=-1",
        "spin=singlet charge=-1",
        "Properties=species:S:1:pos:R:3 charge=-1 energy=nan",
        "Lattice=\"5 5 5\" charge=-1 stress=\"1 2 3 nan 5 6\"",
        "Lattice=\"5 5 5\" charge=-1 virial=\"nan nan nan nan nan nan nan nan nan\"",
    };
    mlff_warning_handler_set(keep_warning, NULL);
    for (size_t k = 0; k < sizeof comments / sizeof comments[0]; k++) {
        char text[512];
        snprintf(text, sizeof text, "1\n%s\n" ROW "1\n%s\n" ROW, comments[k], comments[k]);
        mlff_reader *reader;
        n_warnings = 0;
        assert_ok(atoms_reader_open_bytes("a.xyz", text, strlen(text), &reader));
        for (int frame = 0; frame < 2; frame++) {
            mlff_system *system = NULL;
            assert_ok(mlff_reader_next(reader, &system));
            assert_true(isnan(system->spin) && system->charge == -1 && isnan(system->label_stress[0]));
            mlff_system_destroy(system);
        }
        mlff_reader_destroy(reader);
        assert_int_equal(n_warnings, k != 3);
        if (k == 2) assert_string_equal(warning, "a.xyz:2: spin= is not a finite number; it is not read");
        if (k == 4) assert_string_equal(warning, "a.xyz:2: energy= is not a finite number; it is not read");
        if (k == 5) assert_string_equal(warning, "a.xyz:2: stress= has a number that is not finite; it is not read");
        if (k == 6) assert_string_equal(warning, "a.xyz:2: virial= has a number that is not finite; it is not read");
    }
    mlff_warning_handler_set(NULL, NULL);
}

static volatile sig_atomic_t n_signals;

static void on_alarm(int number)
{
    (void)number;
    if (++n_signals > 200) _exit(3); // 10 s: the wait would never end
}

// A signal ends the wait for an idle pipe, also where its handler asks for calls to be restarted.
static void ends_waiting_at_a_signal(void **state)
{
    (void)state;
    const char *path = in_folder("idle.xyz");
    assert_int_equal(mkfifo(path, 0600), 0);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, old;
    sigaction(SIGALRM, &action, &old);
    for (int writers = 0; writers < 2; writers++) { // none yet; one that has said half a frame
        int writer = writers ? open(path, O_RDWR) : -1;
        if (writers) assert_int_equal(write(writer, "1\nc\n", 4), 4);
        mlff_reader *reader = NULL;
        mlff_system *system = NULL;
        n_signals = 0;
        struct itimerval often = {{0, 50000}, {0, 50000}}, never = {{0, 0}, {0, 0}}; // µs: one may come before the wait begins
        setitimer(ITIMER_REAL, &often, NULL);
        mlff_status status = mlff_reader_open(path, NULL, &reader);
        if (status == MLFF_OK) status = mlff_reader_next(reader, &system);
        setitimer(ITIMER_REAL, &never, NULL);
        if (status != MLFF_ERR_INTERRUPTED) fail_msg("%s: %s", mlff_status_name(status), mlff_last_error());
        assert_true(n_signals > 0 && system == NULL);
        mlff_reader_destroy(reader);
        if (writer >= 0) close(writer);
    }
    sigaction(SIGALRM, &old, NULL);
    unlink(path);
}

static void stays_failed(void **state)
{
    (void)state;
    const char *text = "1\na\nH 0 0 0\n1\nb\nQ 0 0 0\n1\nc\nH 0 0 0\n";
    mlff_reader *reader;
    mlff_system *system = NULL;
    assert_ok(atoms_reader_open_bytes("a.xyz", text, strlen(text), &reader));
    assert_ok(mlff_reader_next(reader, &system));
    mlff_system_destroy(system);
    system = NULL;
    assert_int_equal(mlff_reader_next(reader, &system), MLFF_ERR_ELEMENT);
    assert_int_equal(mlff_reader_next(reader, &system), MLFF_ERR_ELEMENT);
    assert_non_null(strstr(mlff_last_error(), "a.xyz"));
    assert_null(system);
    mlff_reader_destroy(reader);
    // More atoms than said: the next "count" is a row.
    text = "1\na\nH 0 0 0\nH 0 0 1\n";
    assert_ok(atoms_reader_open_bytes("a.xyz", text, strlen(text), &reader));
    assert_ok(mlff_reader_next(reader, &system));
    mlff_system_destroy(system);
    assert_int_equal(mlff_reader_next(reader, &system), MLFF_ERR_FORMAT);
    assert_non_null(
        strstr(mlff_last_error(), "a.xyz:4: expected a number of atoms, found 'H 0 0 1'; does the frame before have more"));
    mlff_reader_destroy(reader);
}

static void refuses_paths(void **state)
{
    (void)state;
    mlff_reader *reader = NULL;
    assert_int_equal(mlff_reader_open("no/such/file.xyz", NULL, &reader), MLFF_ERR_IO);
    assert_string_equal(mlff_last_error(), "no/such/file.xyz: No such file or directory");
    assert_int_equal(mlff_reader_open(folder, NULL, &reader), MLFF_ERR_IO);
    assert_int_equal(mlff_reader_open("", NULL, &reader), MLFF_ERR_USAGE);
    assert_int_equal(mlff_reader_open(NULL, NULL, &reader), MLFF_ERR_USAGE);
    const char *path = in_folder("notes.txt");
    write_text(path, "Dear all,\nthis is no structure.\n");
    assert_int_equal(mlff_reader_open(path, NULL, &reader), MLFF_ERR_FORMAT);
    assert_non_null(strstr(mlff_last_error(), "neither extended XYZ"));
    assert_null(reader);
    // Of ASE's own files the way to read them is told.
    static const char *const of_ase[][2] = {{"- of UlmASE-Trajectory", "is a trajectory of ASE; convert it: ase convert "},
                                            {"SQLite format 3", "(Python's Dataset.read reads it, with its groups)"}};
    for (size_t k = 0; k < 2; k++) {
        write_text(path, of_ase[k][0]);
        assert_int_equal(mlff_reader_open(path, NULL, &reader), MLFF_ERR_FORMAT);
        assert_non_null(strstr(mlff_last_error(), of_ase[k][1]));
    }
    unlink(path);
}

// A comment of 15 MB is read, one of 17 MB is refused, each in a buffer that grows no further than it must.
static void bounds_lines(void **state)
{
    (void)state;
    for (int megabytes = 15; megabytes <= 17; megabytes += 2) {
        const char *path = in_folder("long.xyz");
        FILE *file = fopen(path, "w");
        fputs("1\nx=\"", file);
        for (int k = 0; k < megabytes << 10; k++) fprintf(file, "%1023d ", k);
        fputs("\" energy=-2.5\nH 0 0 0\n", file);
        fclose(file);
        mlff_reader *reader;
        mlff_system *system = NULL;
        assert_ok(mlff_reader_open(path, NULL, &reader));
        mlff_status status = mlff_reader_next(reader, &system);
        if (megabytes == 15) {
            assert_ok(status);
            assert_true(system->label_energy == -2.5);
        } else {
            assert_int_equal(status, MLFF_ERR_LIMIT);
            assert_non_null(strstr(mlff_last_error(), "long.xyz:2: a line of more than 16 MB"));
        }
        mlff_system_destroy(system);
        mlff_reader_destroy(reader);
        unlink(path);
    }
}

static void refuses_binary(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n_bytes;
        const char *told;
    } files[] = {{"1\nc\nH 0 \0 0 0\n", 14, "a.xyz:3: a zero byte in the text; is this"},
                 {"\xff\xfe\x31\0\n\0c\0\n\0", 10, "a.xyz:1: a zero byte in the text; it is UTF-16, save it as UTF-8"},
                 {"\xfe\xff\0\x31\0\n\0c\0\n", 10, "it is UTF-16"}};
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        mlff_reader *reader = NULL;
        mlff_system *system = NULL;
        mlff_status status = atoms_reader_open_bytes("a.xyz", files[k].bytes, files[k].n_bytes, &reader);
        if (status == MLFF_OK) status = mlff_reader_next(reader, &system);
        assert_int_equal(status, MLFF_ERR_FORMAT);
        if (!strstr(mlff_last_error(), files[k].told)) fail_msg("'%s' does not say '%s'", mlff_last_error(), files[k].told);
        mlff_reader_destroy(reader);
    }
}

static void ignores_the_locale(void **state)
{
    (void)state;
    static const char *const commas[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "cs_CZ.UTF-8"};
    bool found = false;
    for (size_t k = 0; k < sizeof commas / sizeof commas[0] && !found; k++) found = setlocale(LC_ALL, commas[k]) != NULL;
    if (!found) {
        printf("skipped: no locale with a decimal comma is installed\n");
        skip();
    }
    mlff_system *system = read_text("a.xyz", "1\nc\nH 1.5 0.00000000000000000000000000012345678901234567890123 1e-300\n");
    assert_true(system->positions[0] == 1.5 && system->positions[2] == 1e-300);
    setlocale(LC_ALL, "C");
    mlff_system_destroy(system);
}

// ---- trajectories of others; numbers by ASE 3.22

static void reads_trajectories(void **state)
{
    (void)state;
    const char *path = support_shared("data/trajectories/nacl-water.extxyz");
    if (!path) skip();
    mlff_reader *reader;
    assert_ok(mlff_reader_open(path, NULL, &reader));
    for (int frame = 0; frame < 6; frame++) {
        mlff_system *system;
        assert_ok(mlff_reader_next(reader, &system));
        assert_int_equal(system->n_atoms, 1584);
        assert_true(system->cell[4] == 25.25 && system->periodic[2] == 1 && system->label_forces && system->velocities);
        if (frame == 0) assert_true(system->label_energy == -7705.7685546875 && system->label_stress[1] == 0.005301905795931816);
        if (frame == 5) {
            double kinetic = 0.0;
            for (int k = 0; k < 3 * 1584; k++)
                kinetic += 0.5 * BASE_AMU_ANG2_FS2_EV * atoms_mass(system, k / 3) * system->velocities[k] * system->velocities[k];
            double temperature = kinetic / (1.5 * 1584 * BASE_KB_EV_PER_K);
            if (fabs(temperature - 297.6390997818409) > 1e-9) fail_msg("%.12f K", temperature); // roundings of 4752 terms
        }
        mlff_system_destroy(system);
    }
    mlff_reader_destroy(reader);
    path = support_shared("data/trajectories/aspirin-rmd17.extxyz");
    if (path) assert_int_equal(count_frames(path), 800);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_plain),
        cmocka_unit_test(reads_comments),
        cmocka_unit_test(keeps_other_pairs),
        cmocka_unit_test(drops_labels_of_other_names),
        cmocka_unit_test(reads_columns),
        cmocka_unit_test(reads_initial_charges),
        cmocka_unit_test(reads_stress),
        cmocka_unit_test(reads_frames),
        cmocka_unit_test(refuses_xyz),
        cmocka_unit_test(stays_failed),
        cmocka_unit_test(refuses_paths),
        cmocka_unit_test(bounds_lines),
        cmocka_unit_test(refuses_binary),
        cmocka_unit_test(ignores_the_locale),
        cmocka_unit_test(reads_trajectories),
        cmocka_unit_test(warns_of_what_is_no_number),
        cmocka_unit_test(warns_of_labels_of_other_names),
        cmocka_unit_test(reads_the_energy_of_the_forces),
        cmocka_unit_test(warns_of_two_kinds_of_energies),
        cmocka_unit_test(ends_waiting_at_a_signal),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
