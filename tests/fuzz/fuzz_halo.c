// SPDX-License-Identifier: MIT
// fuzz_halo.c: any bytes as the atoms that a simulator hands the KIM driver: contributing or not, with coordinates, twice, so that the second
// call may keep the first one's choice. The first byte has the number of atoms and of layers, the second the scale of coordinates.
#include <math.h>

#include "fuzz/fuzz_file.h"
#include "halo.h"

enum { MOST_ATOMS = 12 };

static void update(halo *h, int n, const int *species, const int *contributing, const double *positions)
{
    const mlff_batch *batch = NULL;
    const int *atom = NULL;
    const mlff_status status = halo_update(h, n, species, contributing, positions, &batch, &atom);
    int n_owned = 0;
    fuzz_demand_text(status);
    if (status != MLFF_OK) return;
    const int n_kept = batch->first_atom[1];
    fuzz_demand(n_kept >= 0 && n_kept <= n, "atoms of the batch are atoms of the caller");
    for (int i = 0; i < n; i++) n_owned += contributing[i] != 0;
    for (int k = 0; k < n_kept; k++) {
        fuzz_demand(atom[k] >= 0 && atom[k] < n, "an atom is one of the caller's");
        fuzz_demand(batch->species[k] == species[atom[k]], "its element is that of the caller");
        fuzz_demand(memcmp(batch->positions + 3 * k, positions + 3 * atom[k], 3 * sizeof(double)) == 0,
                    "its position is that of the caller");
        n_owned -= batch->owned[k];
    }
    fuzz_demand(n_owned == 0, "no contributing atom is lost");
    for (int k = 0; batch->pairs && k < n_kept; k++) {
        fuzz_demand(batch->pairs->first[k] <= batch->pairs->first[k + 1], "rows are in order");
        for (int p = batch->pairs->first[k]; p < batch->pairs->first[k + 1]; p++)
            fuzz_demand(batch->pairs->neighbor[p] >= 0 && batch->pairs->neighbor[p] < n_kept, "a neighbor is in the batch");
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    int species[MOST_ATOMS], contributing[MOST_ATOMS], n = 0;
    double positions[3 * MOST_ATOMS];
    halo *h = NULL;
    if (length < 2) return 0;
    const int n_atoms = bytes[0] % (MOST_ATOMS + 1), n_layers = 1 + bytes[0] / 16 % 4;
    const double scale = ldexp(1, (int)bytes[1] - 128);
    for (size_t at = 2; at + 8 <= length && n < n_atoms; at += 8, n++) {
        species[n] = bytes[at];
        contributing[n] = bytes[at + 1] & 1;
        for (size_t c = 0; c < 3; c++) {
            const int value = (int16_t)(bytes[at + 2 + 2 * c] | bytes[at + 3 + 2 * c] << 8);
            positions[3 * (size_t)n + c] = value == INT16_MIN ? NAN : value * scale;
        }
    }
    fuzz_demand(halo_create(2, n_layers, bytes[0] & 1, &h) == MLFF_OK, "a halo can be created");
    update(h, n, species, contributing, positions);
    for (int k = 0; k < n; k++) positions[3 * k] += bytes[1] % 2 ? 0.4 : 4; // within the margin, or beyond it
    update(h, n, species, contributing, positions);
    halo_destroy(h);
    return 0;
}
