// SPDX-License-Identifier: MIT
// dataset_hash.c: the name of a dataset's content.
#include <math.h>

#include "base/sha256.h"
#include "dataset.h"

static void add_frame(sha256 *hash, const dataset_frame *frame)
{
    const mlff_system *s = frame->system;
    const size_t atoms = (size_t)s->n_atoms;
    const unsigned char has[4] = {s->label_forces != NULL, frame->atom_energies != NULL, !isnan(s->label_stress[0]),
                                  !isnan(s->label_energy)};
    sha256_add(hash, &s->n_atoms, sizeof s->n_atoms);
    sha256_add(hash, s->species, atoms * sizeof *s->species);
    sha256_add(hash, s->positions, 3 * atoms * sizeof *s->positions);
    sha256_add(hash, s->cell, sizeof s->cell);
    sha256_add(hash, s->periodic, sizeof s->periodic);
    sha256_add(hash, has, sizeof has);
    if (has[0]) sha256_add(hash, s->label_forces, 3 * atoms * sizeof *s->label_forces);
    if (has[1]) sha256_add(hash, frame->atom_energies, atoms * sizeof *frame->atom_energies);
    if (has[2]) sha256_add(hash, s->label_stress, sizeof s->label_stress);
    if (has[3]) sha256_add(hash, &s->label_energy, sizeof s->label_energy);
    sha256_add(hash, &frame->weight, sizeof frame->weight);
    sha256_add(hash, &frame->probe_step, sizeof frame->probe_step);
}

mlff_status mlff_dataset_hash(const mlff_dataset *dataset, char text[65])
{
    sha256 hash;
    unsigned char digest[SHA256_BYTES];
    if (!dataset || !text) return mlff_fail(MLFF_ERR_USAGE, "mlff_dataset_hash: dataset and text must be given");
    sha256_begin(&hash);
    for (size_t k = 0; k < dataset->n_frames; k++) add_frame(&hash, &dataset->frames[k]);
    sha256_end(&hash, digest);
    sha256_text(digest, text);
    return MLFF_OK;
}
