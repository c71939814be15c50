/* SPDX-License-Identifier: MIT */
/* trainer.h: the trainer's state, shared by trainer.c (steps, schedule), trainer_data.c and checkpoint.c. */
#ifndef TRAINER_H
#define TRAINER_H

#include "base/base.h"
#include "model/training/train_backend.h"
#include "train/data/dataset.h"

/* The order of structures and the learning rate of a step depend on `step` and the members below alone, so these and the
 * vectors of the backend are the whole state of a run. */
struct mlff_trainer {
    const mlff_model *model;
    mlff_trainer_options options;
    train_backend *backend;
    train_set *set;
    energy_kinds kinds; /* of its labels */
    uint64_t data_hash; /* trainer_hash */
    int32_t *unit;      /* [n_units] first frame of each structure or probe */
    int64_t n_nearer;   /* structures of the set that were added to the data */
    int64_t n_units, per_epoch;
    int32_t *order; /* [n_units] units in the order of epoch `ordered_epoch` */
    int64_t ordered_epoch;
    int32_t *frames; /* [2 batch_size] of the batch being made */
    int64_t step;
    int64_t n_structures; /* of the steps that this process has made */
    double elapsed_s;     /* of a whole run (fit.c), up to the last checkpoint */
    train_sums sums; /* of the steps since errors were last asked for, up to the last checkpoint; of later ones the backend's */
    double plateau_scale, plateau_best; /* MLFF_PLATEAU: of the learning rate; best value reported */
    int plateau_waited;                 /* reports without gain */
    mlff_training_errors best;          /* validation of the best weights of a whole run (fit.c), and their step; 0: none yet */
    int64_t best_step;
    char identity[17];  /* of a whole run (fit.c): its checkpoints and its best student hold it; "": none yet */
    char best_by[65];   /* SHA-256 of the structures for validation that choose them, for checkpoints of fit.c; "" else */
    uint64_t validated; /* the state of the dataset that validation_set was built from; 0: none */
    train_set *validation_set;
    double element_force_mae[MLFF_MAX_ATOMIC_NUMBER + 1]; /* of the last validation, eV/Å; NaN without such atoms */
};

/* Adds the backend's sums to the trainer's. */
mlff_status trainer_collect_sums(mlff_trainer *trainer);
/* Whether the weight of the energy is multiplied by energy_boost at this step. */
bool trainer_boosts_energy(const mlff_trainer *trainer, int64_t step);

/* ---- checkpoint.c */

/* The metadata of a best student (fit.c): the identity of its training. */
#define TRAINER_IDENTITY "best_of_training"
/* Sets the trainer's identity: a hash of what its run is of, of best_by and of its weights. */
mlff_status trainer_identify(mlff_trainer *trainer);

/* ---- trainer_data.c */

/* The set of a dataset's structures, and of those in `nearer` (or NULL). Warns of those of the former without a label of the loss. Fails with MLFF_ERR_VALUE where there is no structure, or
 * none with such a label, and as train_set_build. */
mlff_status trainer_build_set(const mlff_model *model, const mlff_loss *loss, const mlff_dataset *data,
                              const mlff_dataset *nearer, bool is_validation, int n_threads, train_set **set_out);
/* A warning where the energies of structures for validation are far from those of the same atoms that are trained on, all by about the
 * same. Fails with MLFF_ERR_MEMORY. */
mlff_status trainer_compare_zeros(const mlff_trainer *trainer, const mlff_dataset *validation);
/* FNV-1a of the set's arrays. */
uint64_t trainer_hash(const train_set *set);

#endif
