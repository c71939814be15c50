/* SPDX-License-Identifier: MIT */
/* train_batch.h: a batch of labelled structures on the CPU: predictions, the loss and its derivatives. */
#ifndef TRAIN_BATCH_H
#define TRAIN_BATCH_H

#include "train_backend.h"

/* Model units. Atoms of the batch's frames follow one another; first_atom says where each frame's begin. */
typedef struct train_batch {
    const train_set *set;
    const int32_t *frames; /* [n_frames] */
    int n_frames, n_atoms;
    int64_t total_frames, total_atoms; /* that the loss is a mean over; train_batch_begin sets the batch's own */
    int32_t *first_atom;               /* [n_frames + 1] */
    double *energy;                    /* [n_atoms] predicted energies of atoms, without offsets */
    double *forces;                    /* [n_atoms][3] predicted */
    double *strain;                    /* [n_frames][9] predicted dE/dε = Σ g ⊗ r */
    double *c;                         /* [n_atoms] ∂L/∂ε of each atom's energy */
    double *v;                         /* [n_atoms][3] ∂L/∂F */
    double *B;                         /* [n_frames][9] (1/V) ∂L/∂σ */
    size_t frame_capacity, atom_capacity;
} train_batch;

/* Gathers frames[n_frames], borrowed; grows the arrays. Fails with MLFF_ERR_MEMORY. */
mlff_status train_batch_begin(train_batch *batch, const train_set *set, const int32_t *frames, int n_frames);
void train_batch_free(train_batch *batch);

/* Forces and dE/dε of frame `k` of the batch from g = dE/dr of its pairs, [pairs of the frame][3]. */
void train_batch_set_gradient(train_batch *batch, int k, const double *pair_gradient);
/* w = v_i − v_j + B r of frame k's pairs: the tangent of the edge vectors along which dL/dθ is taken. */
void train_batch_edge_tangent(const train_batch *batch, int k, double *w);

/* Share in the loss of frames begin .. end of the batch; fills their c, v and B and adds to `sums`. A probe's second frame must
 * follow its first, in the same range. */
double train_batch_loss(train_batch *batch, int begin, int end, const mlff_loss *loss, train_sums *sums);
/* sums += more; `finite` only if both are. */
void train_sums_add(train_sums *sums, const train_sums *more);

#endif
