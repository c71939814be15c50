// SPDX-License-Identifier: MIT
// test_poscar.c: POSCAR and CONTCAR: what is read from every way to write them, what is refused and how.
#include "unit/read_text.h"

#define POSCAR_CELL "4 0 0\n0 5 0\n1 0 6\n"

static void reads_poscars(void **state)
{
    (void)state;
    // The same system in several writings: Na at the origin, Na and Cl at (0.5, 0.5, 0.5) and (0.25, 0, 0).
    static const char *const texts[] = {
        "salt\n1.0\n" POSCAR_CELL "Na Cl\n2 1\nDirect\n0 0 0\n.5 .5 .5\n.25 0 0\n",
        "salt\r\n  2.0 twice\r\n2 0 0\r\n0 2.5 0\r\n.5 0 3\r\nNa_pv Cl/1a2b ! elements\r\n2 1 ! counts\r\ncartesian\r\n0 0 0 "
        "Na\r\n1.25 1.25 1.5 Na\r\n.5 0 0 Cl\r\n",
        "\n-120\n8 0 0\n0 10 0\n2 0 12\nNa Cl\n 2 1\nd\n0 0 0\n.5 .5 .5\n.25 0 0\n\n",
        "1\n2 1 3\n2 0 0\n0 5 0\n.5 0 2\nNa Cl\n2 1\nKartesisch\n0 0 0\n1.25 2.5 1\n.5 0 0\n",
        "1\n1\n" POSCAR_CELL "Na Na Cl\n1 1 1\nDirect\n0 0 0\n.5 .5 .5\n.25 0 0\n\n0 0 0\n0 0 0\n0 0 0\n",
    };
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        mlff_system *system = read_text(k % 2 ? "CONTCAR" : "file", texts[k]); // the last has a name that says nothing
        static const double cell[9] = {4, 0, 0, 0, 5, 0, 1, 0, 6}, positions[9] = {0, 0, 0, 2.5, 2.5, 3, 1, 0, 0};
        assert_int_equal(system->n_atoms, 3);
        assert_true(system->species[0] == 11 && system->species[1] == 11 && system->species[2] == 17);
        for (int c = 0; c < 9; c++)
            if (fabs(system->cell[c] - cell[c]) > 1e-14 || fabs(system->positions[c] - positions[c]) > 1e-14)
                fail_msg("text %zu, number %d: cell %g, position %g", k, c, system->cell[c], system->positions[c]);
        assert_true(system->periodic[0] && system->periodic[1] && system->periodic[2] && !system->fixed && !system->velocities);
        mlff_system_destroy(system);
    }
}

static void reads_poscar_extras(void **state)
{
    (void)state;
    mlff_warning_handler_set(count_warnings, NULL);
    n_warnings = 0;
    mlff_system *system = read_text(
        "POSCAR", "c\n1\n" POSCAR_CELL "H\n3\nSelective dynamics\nDirect\n0 0 0 F F F\n0 0 .5 .TRUE. .FALSE. T H1\n0 .5 0 T T T\n"
                  "Lattice velocities and vectors\n1\n0 0 0\n0 0 0\n0 0 0\n4 0 0\n0 5 0\n1 0 6\n"
                  "Cartesian\n.1 0 0\n0 .2 0\n0 0 -.3E-01\n");
    mlff_warning_handler_set(NULL, NULL);
    assert_int_equal(n_warnings, 1);
    assert_true(system->fixed[0] == 1 && system->fixed[1] == 0 && system->fixed[2] == 0);
    assert_true(system->velocities[0] == .1 && system->velocities[4] == .2 && system->velocities[8] == -.03);
    mlff_system_destroy(system);

    mlff_reader *reader;
    const char *text = "c\n1\n" POSCAR_CELL "H\n1\nD\n0 0 0\n\n.1 .2 .3\n";
    assert_ok(atoms_reader_open_bytes("x/POSCAR.old", text, strlen(text), &reader));
    assert_ok(mlff_reader_next(reader, &system));
    assert_true(system->velocities[2] == .3);
    mlff_system_destroy(system);
    assert_ok(mlff_reader_next(reader, &system));
    assert_null(system);
    mlff_reader_destroy(reader);
}

static void refuses_poscars(void **state)
{
    (void)state;
    static const bad_text cases[] = {
        {"", MLFF_ERR_FORMAT, "POSCAR:0: the file ends where the comment"},
        {"c\n1\n" POSCAR_CELL "2 1\nDirect\n0 0 0\n", MLFF_ERR_UNSUPPORTED,
         "POSCAR:6: a POSCAR of VASP 4, without element names"},
        {"c\n0\n" POSCAR_CELL, MLFF_ERR_VALUE, "POSCAR:2: a scale of 0"},
        {"c\nscale\n" POSCAR_CELL, MLFF_ERR_FORMAT, "POSCAR:2: expected the scale"},
        {"c\n1 -1 1\n" POSCAR_CELL, MLFF_ERR_VALUE, "POSCAR:2: a scale of -1"},
        {"c\n-5\n1 0 0\n0 1 0\n1 1 0\nH\n1\nD\n0 0 0\n", MLFF_ERR_VALUE, "no volume"},
        {"c\n1\n1 0 0\n0 1 0\n1 1 0\nH\n1\nD\n0 0 0\n", MLFF_ERR_VALUE, "POSCAR: the periodic cell vectors are not independent"},
        {"c\n1\n1 0 0\n0 1\n", MLFF_ERR_FORMAT, "POSCAR:4: expected three numbers (a cell vector), found '0 1'"},
        {"c\n1\n1 0 0\n0 inf 0\n", MLFF_ERR_VALUE, "POSCAR:4:"},
        {"c\n1\n" POSCAR_CELL "Hx\n1\nD\n0 0 0\n", MLFF_ERR_ELEMENT, "POSCAR:6: 'Hx' is not an element"},
        {"c\n1\n" POSCAR_CELL "H O\n1\nD\n0 0 0\n", MLFF_ERR_FORMAT, "POSCAR:7: expected a count"},
        {"c\n1\n" POSCAR_CELL "H\n1 1\nD\n0 0 0\n", MLFF_ERR_FORMAT, "POSCAR:7: more counts"},
        {"c\n1\n" POSCAR_CELL "H\n0\nD\n0 0 0\n", MLFF_ERR_FORMAT, "POSCAR:7: no atoms"},
        {"c\n1\n" POSCAR_CELL "H\n-1\nD\n0 0 0\n", MLFF_ERR_FORMAT, "POSCAR:7:"},
        {"c\n1\n" POSCAR_CELL "H\n1000000000\nD\n0 0 0\n", MLFF_ERR_LIMIT, "POSCAR:7: claims more"},
        {"c\n1\n" POSCAR_CELL "H\n90000000\nD\n0 0 0\n", MLFF_ERR_FORMAT, "POSCAR:9: the file ends where the position"},
        {"c\n1\n" POSCAR_CELL "H\n1\n0 0 0\n", MLFF_ERR_FORMAT, "POSCAR:8: expected Direct or Cartesian, found '0 0 0'"},
        {"c\n1\n" POSCAR_CELL "H\n1\nD\n0 zero 0\n", MLFF_ERR_FORMAT, "POSCAR:9: expected three numbers"},
        {"c\n1\n" POSCAR_CELL "H\n1\nD\n0 nan 0\n", MLFF_ERR_VALUE, "POSCAR:9:"},
        {"c\n1\n" POSCAR_CELL "H\n1\nS\nD\n0 0 0 T T\n", MLFF_ERR_FORMAT, "POSCAR:10: expected T or F three times"},
        {"c\n1\n" POSCAR_CELL "H\n2\nD\n0 0 0\n0 0 .5\n\n1 0 0\n", MLFF_ERR_FORMAT, "where the velocity of an atom"},
        {"c\n1\n" POSCAR_CELL "H\n2\nD\n0 0 0\n0 0 .5\n\n1 0 0\n1 0\n", MLFF_ERR_FORMAT,
         "POSCAR:13: expected the velocity of atom 1 "},
    };
    refuse_all("POSCAR", cases, sizeof cases / sizeof cases[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_poscars),
        cmocka_unit_test(reads_poscar_extras),
        cmocka_unit_test(refuses_poscars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
