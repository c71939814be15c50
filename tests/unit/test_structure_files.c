// SPDX-License-Identifier: MIT
// test_structure_files.c: PDB and LAMMPS data: what is read, what is refused and how. The texts follow the two formats' manuals.
#include "unit/near.h"
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
        assert_null(system->masses); // they are the elements'
        mlff_system_destroy(system);
    }
    // Types of one element with other masses: deuterium, and mass moved from a heavy atom to hydrogen.
    mlff_system *heavy =
        read_text("x.data", "c\n3 atoms\n0 9 xlo xhi\n0 9 ylo yhi\n0 9 zlo zhi\n\nMasses\n\n1 13.967 # O\n2 2.014 # H\n"
                            "3 1.008\n\nAtoms\n\n1 1 0 0 0\n2 2 1 0 0\n3 3 0 1 0\n");
    assert_true(heavy->species[0] == 8 && heavy->species[1] == 1 && heavy->species[2] == 1);
    assert_non_null(heavy->masses);
    assert_true(heavy->masses[0] == 13.967 && heavy->masses[1] == 2.014 && heavy->masses[2] == 1.008);
    mlff_system_destroy(heavy);
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
        {DATA_HEAD DATA_MASSES "Atoms\n\n1 1 1 2 3\n", "1 atom in the section Atoms, 3 in the header"},
        {DATA_HEAD DATA_MASSES "Atoms\n\n1 1 1 2 3\n2 2 0 0 0\n2 2 1 1 1\n", "atom 2 is there twice"},
        {DATA_HEAD DATA_MASSES "Atoms\n\n1 1 1 2 3\n2 2 0 0 0\n3 4 1 1 1\n", "type 4 has no mass"},
        {DATA_HEAD "Masses\n\n1 300\n", "no element has mass 300"},
        {DATA_HEAD "Masses\n\n1 0 # H\n", "a mass of 0"},
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

    static const char *const without_cell[] = {
        "CRYST1    1.000    1.000    1.000  90.00  90.00  90.00 P 1           1\n" PDB_O "END\n",
        "CRYST1    0.000    0.000    0.000  90.00  90.00  90.00 P 1           1\n" PDB_O "END\n",
    };
    for (int k = 0; k < 2; k++) {
        system = read_text("x.pdb", without_cell[k]);
        assert_true(!system->periodic[0] && system->cell[0] == 0 && !system->masses);
        mlff_system_destroy(system);
    }
    system = read_text("x.pdb", PDB_O "ATOM      2  D   HOH A   1       1.900   2.000   3.000  1.00  0.00           D  \n");
    assert_true(system->species[1] == 1 && system->masses && system->masses[1] == 2.014);
    mlff_system_destroy(system);
}

static char warning[256];

static void keep_warning(void *context, const char *text)
{
    (void)context;
    n_warnings++;
    snprintf(warning, sizeof warning, "%s", text);
}

#define PDB_ALTERNATE(name, letter, kind, residue, x, occupancy, element)                                                        \
    "ATOM      1 " name letter kind " " residue "   " x "   0.000   0.000" occupancy "  0.00          " element "\n"

// Of each residue the location of highest occupancy: not one letter for the whole file, whose other residues would lose atoms.
static void reads_pdb_locations(void **state)
{
    (void)state;
    static const char *const text =
        // B has more
        PDB_ALTERNATE(" N  ", " ", "SER", "A   1 ", "   1.000", "  1.00", " N")
            PDB_ALTERNATE(" CB ", "A", "SER", "A   1 ", "   2.000", "  0.40", " C")
                PDB_ALTERNATE(" CB ", "B", "SER", "A   1 ", "   3.000", "  0.60", " C")
                    PDB_ALTERNATE(" OG ", "A", "SER", "A   1 ", "   4.000", "  0.40", " O")
                        PDB_ALTERNATE(" OG ", "B", "SER", "A   1 ", "   5.000", "  0.60", " O")
        // the same of both: A, though B comes first; and without occupancies
        PDB_ALTERNATE(" CG ", "B", "VAL", "A   2 ", "   6.000", "  0.50", " C")
            PDB_ALTERNATE(" CG ", "A", "VAL", "A   2 ", "   7.000", "  0.50", " C")
                PDB_ALTERNATE(" CD ", "C", "VAL", "A   2A", "   8.000", "      ", " C")
                    PDB_ALTERNATE(" CD ", "D", "VAL", "A   2A", "   9.000", "      ", " C")
        // letters that no residue before had; an atom without the chosen letter keeps its own best; other chains have other residues
        PDB_ALTERNATE(" CE ", "E", "LYS", "B   1 ", "  10.000", "  0.20", " C")
            PDB_ALTERNATE(" CE ", "F", "LYS", "B   1 ", "  11.000", "  0.80", " C")
                PDB_ALTERNATE(" NZ ", "E", "LYS", "B   1 ", "  12.000", "  0.20", " N")
                    PDB_ALTERNATE(" NZ ", "G", "LYS", "B   1 ", "  13.000", "  0.70", " N")
        // two kinds of residue in one place: the fewer atoms of a higher occupancy, and none of the others
        PDB_ALTERNATE(" CB ", "A", "SER", "B   7 ", "  14.000", "  0.30", " C")
            PDB_ALTERNATE(" OG ", "A", "SER", "B   7 ", "  15.000", "  0.30", " O")
                PDB_ALTERNATE(" CX ", "A", "SER", "B   7 ", "  16.000", "  0.30", " C")
                    PDB_ALTERNATE(" CB ", "B", "ALA", "B   7 ", "  17.000", "  0.70", " C") "END\n";
    static const double x[] = {1, 3, 5, 7, 8, 11, 13, 17};
    mlff_warning_handler_set(keep_warning, NULL);
    n_warnings = 0;
    mlff_system *system = read_text("x.pdb", text);
    mlff_warning_handler_set(NULL, NULL);
    assert_int_equal(system->n_atoms, 8);
    for (size_t i = 0; i < 8; i++)
        if (system->positions[3 * i] != x[i]) fail_msg("atom %zu: x is %g, not %g", i, system->positions[3 * i], x[i]);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warning, "9 atoms of alternate locations left out; each residue keeps that of highest occupancy"));
    mlff_system_destroy(system);
    // Of one location nothing is left out.
    n_warnings = 0;
    mlff_warning_handler_set(keep_warning, NULL);
    system = read_text("x.pdb", PDB_ALTERNATE(" CB ", "B", "SER", "A   1 ", "   3.000", "  0.60", " C") "END\n");
    mlff_warning_handler_set(NULL, NULL);
    assert_true(system->n_atoms == 1 && n_warnings == 0);
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
        // One further right, as behind a number of five digits: y is not 52.005 Å.
        {"ATOM      1  O   HOH A10000       1.005   2.005   3.005  1.00  0.00           O\n", "columns 31 to 54"},
        {PDB_ALTERNATE(" CB ", "B", "SER", "A   1 ", "   3.000", "  half", " C"), "expected an occupancy in columns 55 to 60"},
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

#define CIF_CELL                                                                                                                 \
    "_cell_length_a 4.0(1)\n_cell_length_b 4\n_cell_length_c 4.0\n_cell_angle_alpha 90\n_cell_angle_beta 90\n_cell_angle_gamma " \
    "90\n"
#define CIF_ROWS "loop_\n_atom_site_label\n_atom_site_fract_x\n_atom_site_fract_y\n_atom_site_fract_z\n"
#define CIF_TYPED                                                                                                                \
    "loop_\n_atom_site_label\n_atom_site_type_symbol\n_atom_site_fract_x\n_atom_site_fract_y\n_atom_site_fract_z\n_atom_site_"   \
    "occupancy\n"
#define CIF_CENTERED "loop_\n_symmetry_equiv_pos_as_xyz\n'x,y,z'\n'x+1/2, y+1/2, z'\n'-x,-y,-z'\n\"-x+1/2,.5-y,-z\"\n"

// A site in a general place has an image for each operation, one on the inversion center half as many.
static void reads_cif(void **state)
{
    (void)state;
    mlff_system *system = read_text("x.cif", "# comment\ndata_a\n_symmetry_space_group_name_H-M 'C -1'\n" CIF_CELL CIF_CENTERED
                                             "_chemical_name\n;text with\nloop_ in it\n;\n" CIF_TYPED
                                             "O1 O2- 0 0 0 1\n'Cl 1' Cl .25(2) 0.1 0.2 ? # end\nD1 D 0.5 0.0 0.5 1.0\n");
    static const int species[] = {8, 8, 17, 17, 17, 17, 1, 1};
    static const double chlorine[4][3] = {{1, 0.4, 0.8}, {3, 2.4, 0.8}, {3, 3.6, 3.2}, {1, 1.6, 3.2}};
    assert_int_equal(system->n_atoms, 8);
    for (int i = 0; i < 8; i++) assert_int_equal(system->species[i], species[i]);
    for (int k = 0; k < 4; k++)
        for (int c = 0; c < 3; c++) assert_near(system->positions[3 * (2 + k) + c], chlorine[k][c], 1e-12);
    assert_true(system->cell[0] == 4 && system->cell[3] == 0 && system->periodic[2]);
    assert_true(system->masses && system->masses[7] == 2.014 && system->masses[0] == mlff_element_mass(8)); // deuterium
    mlff_system_destroy(system);

    // Told by its first line; two blocks are two frames, one without atoms is none. A hexagonal cell, no symmetry, labels alone.
    static const char *const blocks =
        "data_global\n_x 1\ndata_one\n_cell_length_a 3\n_cell_length_b 3\n_cell_length_c 5\n_cell_angle_alpha 90\n"
        "_cell_angle_beta 90\n_cell_angle_gamma 120\n_space_group_IT_number 1\n" CIF_ROWS
        "Si1 0 0 0\nO1A 0 1 0\ndata_two\n" CIF_CELL CIF_ROWS "Fe 0.5 0.5 0.5\n";
    mlff_reader *reader = NULL;
    assert_ok(atoms_reader_open_bytes("file", blocks, strlen(blocks), &reader));
    assert_ok(mlff_reader_next(reader, &system));
    assert_true(system->n_atoms == 2 && system->species[0] == 14 && system->species[1] == 8);
    assert_near(system->positions[3], -1.5, 1e-12);
    mlff_system_destroy(system);
    assert_ok(mlff_reader_next(reader, &system));
    assert_true(system->n_atoms == 1 && system->species[0] == 26 && system->positions[0] == 2);
    mlff_system_destroy(system);
    assert_ok(mlff_reader_next(reader, &system));
    assert_null(system);
    mlff_reader_destroy(reader);

    // mmCIF: names with dots, positions in Å, no cell.
    system = read_text("x.mmcif", "data_M\nloop_\n_atom_site.type_symbol\n_atom_site.label_atom_id\n_atom_site.Cartn_x\n"
                                  "_atom_site.Cartn_y\n_atom_site.Cartn_z\nC CA 1 2 3\nN N 2.5 2 3\n");
    assert_true(system->n_atoms == 2 && system->species[0] == 6 && system->positions[3] == 2.5 && !system->periodic[0]);
    mlff_system_destroy(system);
}

// Silicon: 32 operations of F 2 3 make the 8 atoms of the cell of two sites.
static void reads_a_symmetric_cif(void **state)
{
    (void)state;
    static const char *const turns[] = {"x,y,z", "-x,-y,z", "-x,y,-z", "x,-y,-z", "y,z,x", "-y,-z,x", "-y,z,-x", "y,-z,-x"};
    static const char *const shifts[] = {"0,0,0", "0,1/2,1/2", "1/2,0,1/2", "1/2,1/2,0"};
    char text[8192];
    int n = snprintf(text, sizeof text,
                     "data_Si\n_symmetry_Int_Tables_number 196\n_cell_length_a 5.431\n_cell_length_b 5.431\n"
                     "_cell_length_c 5.431\n_cell_angle_alpha 90\n_cell_angle_beta 90\n_cell_angle_gamma 90\n"
                     "loop_\n_symmetry_equiv_pos_as_xyz\n");
    for (size_t t = 0; t < 8; t++)
        for (size_t s = 0; s < 4; s++) {
            char parts[3][16], by[3][8];
            assert_int_equal(sscanf(turns[t], "%15[^,],%15[^,],%15s", parts[0], parts[1], parts[2]), 3);
            assert_int_equal(sscanf(shifts[s], "%7[^,],%7[^,],%7s", by[0], by[1], by[2]), 3);
            n += snprintf(text + n, sizeof text - (size_t)n, "'%s+%s,%s+%s,%s+%s'\n", parts[0], by[0], parts[1], by[1], parts[2],
                          by[2]);
        }
    snprintf(text + n, sizeof text - (size_t)n, CIF_ROWS "Si 0 0 0\nSi 0.25 0.25 0.25\n");
    mlff_system *system = read_text("si.cif", text);
    assert_int_equal(system->n_atoms, 8);
    for (int i = 0; i < 8; i++) { // each has 4 neighbors at a √3/4
        int n_near = 0;
        for (int j = 0; j < 8; j++) {
            double r2 = 0;
            for (int c = 0; c < 3; c++) {
                const double d = system->positions[3 * i + c] - system->positions[3 * j + c];
                r2 += (d - 5.431 * round(d / 5.431)) * (d - 5.431 * round(d / 5.431));
            }
            n_near += fabs(sqrt(r2) - 5.431 * sqrt(3) / 4) < 1e-9;
        }
        assert_int_equal(n_near, 4);
    }
    mlff_system_destroy(system);
}

// Positions of three or four digits, as they stand in files: a site on a threefold axis of a cell of 15 Å has one image of each layer, and
// a file that lists all atoms beside the operations has each once.
static void counts_rounded_sites_once(void **state)
{
    (void)state;
    static const char *const hexagonal =
        "data_a\n_cell_length_a 15\n_cell_length_b 15\n_cell_length_c 6\n_cell_angle_alpha 90\n_cell_angle_beta 90\n"
        "_cell_angle_gamma 120\nloop_\n_symmetry_equiv_pos_as_xyz\nx,y,z\n-y,x-y,z\n-x+y,-x,z\n" CIF_ROWS "Si 0.333 0.667 0.25\n";
    mlff_system *system = read_text("x.cif", hexagonal);
    assert_int_equal(system->n_atoms, 1);
    mlff_system_destroy(system);
    system = read_text("x.cif", "data_a\n" CIF_CELL "loop_\n_symmetry_equiv_pos_as_xyz\nx,y,z\n-x,-y,-z\n" CIF_ROWS
                                "Si1 0.1234 0.2 0.25\nSi2 0.8765 0.8 0.75\nO1 0.1234 0.2 0.75\n");
    assert_int_equal(system->n_atoms, 4);
    assert_near(system->positions[3], 4 * 0.8766, 1e-12);
    mlff_system_destroy(system);
}

#define MMCIF_ALTERNATES                                                                                                         \
    "data_M\nloop_\n_atom_site.type_symbol\n_atom_site.label_alt_id\n_atom_site.auth_seq_id\n_atom_site.Cartn_x\n"               \
    "_atom_site.Cartn_y\n_atom_site.Cartn_z\n_atom_site.occupancy\n"

// The first location of each residue, whatever its name.
static void chooses_locations_of_mmcif(void **state)
{
    (void)state;
    mlff_system *system =
        read_text("x.mmcif", MMCIF_ALTERNATES "O . 1 0 0 0 1\nH B 1 0.9 0 0 1\nH B 1 0 0.9 0 1\nO . 2 5 0 0 1\n"
                                              "H A 2 5.9 0 0 1\nH A 2 5 0.9 0 1\nH C 2 5.8 0 0 0\nH C 2 5 0.8 0 0\n");
    assert_int_equal(system->n_atoms, 6);
    assert_true(system->positions[3] == 0.9 && system->positions[12] == 5.9);
    mlff_system_destroy(system);
}

static void refuses_cif(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"data_a\n" CIF_CELL CIF_TYPED "Fe1 Fe 0 0 0 0.5\n", "'Fe1' has occupancy 0.5"},
        {"data_a\n_symmetry_space_group_name_H-M 'F d -3 m'\n" CIF_CELL CIF_ROWS "Si 0 0 0\n", "'F d -3 m' without its symmetry"},
        {"data_a\n_space_group_name_Hall '-F 4vw 2vw 3'\n" CIF_CELL CIF_ROWS "Si 0 0 0\n", "'-F 4vw 2vw 3' without its symmetry"},
        {"data_a\n_symmetry_space_group_name_Hall '-P 1'\n" CIF_CELL CIF_ROWS "Si 0 0 0\n", "'-P 1' without its symmetry"},
        {MMCIF_ALTERNATES "O . 1 0 0 0 1\nH 1 1 0.9 0 0 0.5\nH 2 1 0.9 0.2 0 0.5\n", "has occupancy 0.5"},
        {"data_a\n" CIF_CELL CIF_ROWS "CL1 0 0 0\n", "'CL1' is not clear"},
        {"data_a\n" CIF_CELL CIF_ROWS "Si 0 ? 0\n", "'Si' has no position"},
        {"data_a\n" CIF_CELL CIF_ROWS "Si 0 x 0\n", "'x' is not a position"},
        {"data_a\n" CIF_CELL CIF_ROWS "Si 0 0\n", "has 3 of 4 values"},
        {"data_a\n_cell_length_a 4\n" CIF_ROWS "Si 0 0 0\n", "1 of 6"},
        {"data_a\n" CIF_ROWS "Si 0 0 0\n", "fractions without a cell"},
        {"data_a\n" CIF_CELL "_symmetry_equiv_pos_as_xyz 'x,y'\n", "'x,y' is not a symmetry operation"},
        {"data_a\n" CIF_CELL "_symmetry_equiv_pos_as_xyz 'x,x,z'\n", "'x,x,z' is not a symmetry operation"},
        {"data_a\n_cell_length_a\n", "a name without a value"},
        {"data_a\n_x 'open\n", "does not end in its line"},
        {"data_a\n_x\n;open\n", "began with ;"},
        {"data_a\nloop_\n1 2\n", "without names of columns"},
        {"data_a\n_x 1\n", "no data block with atom sites"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_reader *reader = NULL;
        mlff_system *system = NULL;
        assert_ok(atoms_reader_open_bytes("x.cif", cases[k].text, strlen(cases[k].text), &reader));
        assert_int_not_equal(mlff_reader_next(reader, &system), MLFF_OK);
        if (!strstr(mlff_last_error(), cases[k].error)) fail_msg("case %zu: '%s'", k, mlff_last_error());
        mlff_reader_destroy(reader);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_lammps_data),
        cmocka_unit_test(reads_velocities),
        cmocka_unit_test(refuses_lammps_data),
        cmocka_unit_test(reads_pdb),
        cmocka_unit_test(reads_pdb_locations),
        cmocka_unit_test(refuses_pdb),
        cmocka_unit_test(reads_cif),
        cmocka_unit_test(reads_a_symmetric_cif),
        cmocka_unit_test(counts_rounded_sites_once),
        cmocka_unit_test(chooses_locations_of_mmcif),
        cmocka_unit_test(refuses_cif),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
