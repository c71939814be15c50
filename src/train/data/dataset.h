/* SPDX-License-Identifier: MIT */
/* dataset.h: the content of a dataset, for the parts of src/train that read it directly (train_set.c, dataset_split.c). */
#ifndef DATASET_H
#define DATASET_H

#include "base/base.h"
#include "mlff_train.h"

typedef struct dataset_frame {
    mlff_system *system;   /* with label_energy, label_forces, label_stress; NaN or NULL where absent */
    double *atom_energies; /* [n_atoms] eV, or NULL */
    double weight;         /* in the loss, above 0 */
    double probe_step;     /* Å, h > 0: this frame and the next are a probe's + and - displacement; else 0 */
} dataset_frame;

/* Names of the first structure whose label is a free energy unlike its energy, and of the first that has an energy alone; NULL: none. */
typedef struct energy_kinds {
    char *free, *alone;
} energy_kinds;

struct mlff_dataset {
    dataset_frame *frames; /* [n_frames] */
    energy_kinds kinds;
    size_t n_frames, capacity;
    int n_threads;  /* to read and to check it; 0: all cores */
    uint64_t state; /* another number for each dataset and after each change: an address may be used again */
};

/* mlff_dataset_add of a system with labels of its own; `name` begins the error text. */
mlff_status dataset_add_named(mlff_dataset *dataset, const mlff_system *system, const double *atom_energies, double weight,
                              const char *name);
/* Adds a copy of a frame that another dataset holds. Fails with MLFF_ERR_MEMORY. */
mlff_status dataset_add_copy(mlff_dataset *dataset, const dataset_frame *frame);
/* Fails with MLFF_ERR_VALUE where a structure's forces are far larger than those of all others, and where the energies of near
 * structures do not change as their forces say. */
mlff_status dataset_check_forces(const mlff_dataset *dataset);
/* A warning, with `name`, where forces of the frames from index `first` on are too large for their energies. Fails with MLFF_ERR_MEMORY. */
mlff_status dataset_warn_of_forces(const mlff_dataset *dataset, size_t first, const char *name);
/* A warning where energies are far from those of other structures of the same atoms and neither forces nor distances tell why. Fails with
 * MLFF_ERR_VALUE where such an energy is 0, MLFF_ERR_MEMORY. */
mlff_status dataset_check_energies(const mlff_dataset *dataset);
/* The same number for structures of the same atoms in any order. */
uint64_t dataset_atoms_key(const int *species, int n_atoms);
/* Fails with MLFF_ERR_VALUE where stresses are far larger than any, and where the energies of structures with near cells do not change as
 * their stresses say. */
mlff_status dataset_check_stress(const mlff_dataset *dataset);
/* The median of the sizes of forces, root mean square of a structure, eV/Å; 0 without forces. Fails with MLFF_ERR_MEMORY. */
mlff_status dataset_median_forces(const mlff_dataset *dataset, double *median_out);
/* Whether dataset_check_forces refuses a structure for the size of its forces. */
bool dataset_forces_outlie(const mlff_system *system, double median);
/* Sets far[n_frames] for the structures that mlff_dataset_check refuses for their energies; for none where these are half of all or more.
 * Fails with MLFF_ERR_MEMORY. */
mlff_status dataset_find_far_energies(const mlff_dataset *dataset, bool *far);
/* Removes the structures that mlff_dataset_check refuses for their energies or for the size of their forces: of labels by one teacher they
 * are where it fails, not of other units. Fails with MLFF_ERR_MEMORY. */
mlff_status dataset_drop_outliers(mlff_dataset *dataset, int64_t *n_dropped_out);
/* Keeps n structures at most, a probe as two or none, chosen by `seed`, in their order. Fails with MLFF_ERR_MEMORY. */
mlff_status dataset_choose(mlff_dataset *dataset, int64_t n, uint64_t seed);
/* Removes the structures for which remove[n_frames] is set, of a probe both if it is set for one, and returns their number. The others keep their
 * order. */
int64_t dataset_remove(mlff_dataset *dataset, const bool *remove);
/* Adds structures to `nearer` in which two atoms are nearer than in `data`, with forces alone: at most `part` times as many as `data` has, made
 * of those in which two atoms are pressed to 0.76 of the sum of their covalent radii or more. None for a model without core repulsion, whose
 * form they take. Fails with MLFF_ERR_MEMORY. */
mlff_status dataset_make_nearer(const mlff_dataset *data, const mlff_model *model, double part, int n_threads, uint64_t seed,
                                mlff_dataset *nearer);
/* Whether the frame is one of the two of a Hessian probe. */
bool dataset_is_probe(const mlff_dataset *dataset, size_t frame);
/* Sets present[z] for the elements of its structures. */
void dataset_find_elements(const mlff_dataset *dataset, bool present[MLFF_MAX_ATOMIC_NUMBER + 1]);
/* "H,C,O" of the elements that are present. */
void dataset_elements_text(const bool present[MLFF_MAX_ATOMIC_NUMBER + 1], char *text, size_t text_bytes);
/* Gives it another state. */
void dataset_changed(mlff_dataset *dataset);
/* Removes the frames from index n_frames on. */
void dataset_truncate(mlff_dataset *dataset, size_t n_frames);

/* ---- dataset_kinds.c */

/* A warning where labels of the two together are of both kinds, and those of neither alone. */
void energy_kinds_compare(const energy_kinds *a, const energy_kinds *b);
/* The same, and adds the later ones. Fails with MLFF_ERR_MEMORY. */
mlff_status energy_kinds_join(energy_kinds *all, const energy_kinds *later);
void energy_kinds_free(energy_kinds *kinds);

#endif
