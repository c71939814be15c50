// SPDX-License-Identifier: MIT
// test_structure_files.c: PDB and LAMMPS data: what is read, what is refused and how. The texts follow the two formats' manuals.
#include "unit/read_text.h"

#define DATA_HEAD "c\n3 atoms\n2 atom types\n0 10 xlo xhi\n-1 9 ylo yhi\n0 12.5 zlo zhi\n"
#define DATA_MASSES "Masses\n\n1 15.999\n2 1.008\n\n"

static void reads_lammps_data(void **state)
{
    (void)state;
    // One water in all styles: atoms in any order, image flags or none.
    static const char *const atoms[] = {
        "Atoms\n\n3 2 1 2.8 3\n1 1 1 2 3\n2 2 1.9 2 3\n",
        "Atoms # atomic\n\n3 2 1 2.8 3 0 0 -1\n1 1 1 2 3 0 0 0\n2 2 1.9 2 3 0 0 0\n",
        "Atoms # charge\n\n1 1 -.8 1 2 3\n2 2 .4 1.9 2 3 # H\n3 2 .4 1 2.8 3\n",
        "Atoms # molecular\n\n1 7 1 1 2 3\n2 7 2 1.9 2 3\n3 7 2 1 2.8 3\n",
        "Atoms  # full\n\n1 1 1 -.8 1 2 3\n2 1 2 .4 1.9 2 3\n3 1 2 .4 1 2.8 3\n\nBonds\n\n1 1 1 2\n",
        "Atoms\n\n1 1 1 -.8 1 2 3\n2 1 2 .4 1.9 2 3\n3 1 2 .4 1 2.8 3\n",
    };
    static const double cell[9] = {10, 0, 0, 1, 10, 0, 0, -2, 12.5}, positions[9] = {1, 2, 3, 1.9, 2, 3, 1, 2.8, 3};
    for (size_t k = 0; k < sizeof atoms / sizeof *atoms; k++) {
        char text[1024];
        snprintf(text, sizeof text, "%s1 0 -2 xy xz yz\n\n%s%s", DATA_HEAD, DATA_MASSES, atoms[k]);
        mlff_system *system = read_text("x.data", text);
        assert_true(system->n_atoms == 3 && system->species[0] == 8 && system->species[1] == 1 && system->species[2] == 1);
        for (int c = 0; c < 9; c++)
            if (system->cell[c] != cell[c] || system->positions[c] != positions[c])
                fail_msg("style %zu, number %d: cell %g, position %g", k, c, system->cell[c], system->positions[c]);
        assert_true(system->periodic[0] && system->periodic[1] && system->periodic[2]);
        mlff_system_destroy(system);
    }
}

// Å/ps in units metal, Å/fs in units real; without units they cannot be read.
static void reads_velocities(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        double velocity;
    } cases[] = {{"LAMMPS data file, units = metal\n", 0.003}, {"LAMMPS data file, units = real\n", 3}, {"LAMMPS\n", NAN}};
    for (int k = 0; k < 3; k++) {
        char text[512];
        snprintf(text, sizeof text,
                 "%s1 atoms\n0 9 xlo xhi\n0 9 ylo yhi\n0 9 zlo zhi\n\nMasses\n\n1 77 # Si\n\nAtoms\n\n5 1 0 0 "
                 "0\n\nVelocities\n\n5 1 2 "
                 "3\n",
                 cases[k].head);
        mlff_warning_handler_set(count_warnings, NULL);
        n_warnings = 0;
        mlff_system *system = read_text("file", text); // told by its first word
        mlff_warning_handler_set(NULL, NULL);
        assert_int_equal(system->species[0], 14);
        if (isnan(cases[k].velocity))
            assert_true(!system->velocities && n_warnings == 1);
        else
            assert_true(system->velocities && fabs(system->velocities[2] - cases[k].velocity) < 1e-15);
        mlff_system_destroy(system);
    }
}

static void refuses_lammps_data(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {DATA_HEAD DATA_MASSES "Atoms\n\n1 1 0 1 2 3\n", "Atoms # charge"},
        {DATA_HEAD DATA_MASSES "Atoms\n\n1 1 1 2 3\n", "1 atoms in the section Atoms, 3 in the header"},
        {DATA_HEAD DATA_MASSES "Atoms\n\n1 1 1 2 3\n2 2 0 0 0\n2 2 1 1 1\n", "atom 2 is there twice"},
        {DATA_HEAD DATA_MASSES "Atoms\n\n1 1 1 2 3\n2 2 0 0 0\n3 4 1 1 1\n", "type 4 has no mass"},
        {DATA_HEAD "Masses\n\n1 300\n", "no element has mass 300"},
        {"LAMMPS data, units = lj\n1 atoms\n", "units lj"},
        {"c\n1 atoms\n\n" DATA_MASSES "Atoms\n\n1 1 1 2 3\n", "no box"},
        {"c\n1 atoms\n0 nan xlo xhi\n", "not finite"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_reader *reader = NULL;
        mlff_system *system = NULL;
        assert_ok(atoms_reader_open_bytes("x.data", cases[k].text, strlen(cases[k].text), &reader));
        assert_int_not_equal(mlff_reader_next(reader, &system), MLFF_OK);
        if (!strstr(mlff_last_error(), cases[k].error)) fail_msg("case %zu: '%s'", k, mlff_last_error());
        mlff_reader_destroy(reader);
    }
}

#define PDB_O "ATOM      1  O   HOH A   1       1.000   2.000   3.000  1.00  0.00           O  \n"
#define PDB_H "HETATM    2  H1 AHOH A   1       1.900   2.000   3.000  0.50  0.00           H  \n"
#define PDB_OTHER "HETATM    2  H1 BHOH A   1       1.800   2.000   3.000  0.50  0.00           H  \n"
#define PDB_OLD "ATOM      3 HG11 VAL A   1      -1.000   2.800   3.000\nATOM      4 CL   CL  A   2       5.000   5.000   5.000\n"

static void reads_pdb(void **state)
{
    (void)state;
    static const char *const text =
        "CRYST1   10.000   10.000   12.000  90.00  90.00 120.00 P 1           1\nMODEL        1\n" PDB_O PDB_H PDB_OTHER PDB_OLD
        "TER\nENDMDL\nMODEL        2\n" PDB_O "ENDMDL\nEND\n";
    static const int species[4] = {8, 1, 1, 17};
    mlff_reader *reader = NULL;
    mlff_system *system = NULL;
    mlff_warning_handler_set(count_warnings, NULL);
    n_warnings = 0;
    assert_ok(atoms_reader_open_bytes("file", text, strlen(text), &reader));
    assert_ok(mlff_reader_next(reader, &system));
    mlff_warning_handler_set(NULL, NULL);
    assert_int_equal(n_warnings, 1); // of the alternate location
    assert_int_equal(system->n_atoms, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(system->species[i], species[i]);
    assert_true(system->positions[3] == 1.9 && system->positions[6] == -1);
    // 1e-12 Å: cosines of the angles
    assert_true(fabs(system->cell[3] + 5) < 1e-12 && fabs(system->cell[4] - 10 * sqrt(0.75)) < 1e-12 && system->cell[8] == 12);
    mlff_system_destroy(system);
    assert_ok(mlff_reader_next(reader, &system));
    assert_true(system->n_atoms == 1 && system->cell[0] == 10 && system->periodic[2]);
    mlff_system_destroy(system);
    assert_ok(mlff_reader_next(reader, &system));
    assert_null(system);
    mlff_reader_destroy(reader);

    system = read_text("x.pdb", "CRYST1    1.000    1.000    1.000  90.00  90.00  90.00 P 1           1\n" PDB_O "END\n");
    assert_true(!system->periodic[0] && system->cell[0] == 0);
    mlff_system_destroy(system);
}

static void refuses_pdb(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"ATOM      1  O   HOH A   1       1.000   2.000\n", "columns 31 to 54"},
        {"ATOM      1  ??  HOH A   1       1.000   2.000   3.000\n", "no element"},
        {"CRYST1   10.000   10.000   12.000  10.00  90.00 120.00\n" PDB_O, "no cell has"},
        {"END\n", "no ATOM or HETATM"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_reader *reader = NULL;
        mlff_system *system = NULL;
        assert_ok(atoms_reader_open_bytes("x.pdb", cases[k].text, strlen(cases[k].text), &reader));
        assert_int_not_equal(mlff_reader_next(reader, &system), MLFF_OK);
        if (!strstr(mlff_last_error(), cases[k].error)) fail_msg("case %zu: '%s'", k, mlff_last_error());
        mlff_reader_destroy(reader);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_lammps_data), cmocka_unit_test(reads_velocities), cmocka_unit_test(refuses_lammps_data),
        cmocka_unit_test(reads_pdb),         cmocka_unit_test(refuses_pdb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
