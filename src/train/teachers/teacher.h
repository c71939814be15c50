/* SPDX-License-Identifier: MIT */
/* teacher.h: what a kind of teacher provides: models (teacher_model.c), xtb and KIM (teacher_workers.c), callers' functions (teacher.c). */
#ifndef TEACHER_H
#define TEACHER_H

#include <pthread.h>

#include "atoms/systems_batch.h"
#include "base/base.h"
#include "base/sha256.h"
#include "mlff_label.h"

typedef struct teacher_kind {
    /* labels[n] are empty, with status MLFF_OK; forces are allocated by the callee. Checks of elements, charge and finite results
     * are the caller's. Not called by two threads at once unless `concurrent`. */
    mlff_status (*compute)(mlff_teacher *teacher, const mlff_system *const *systems, int n, mlff_label *labels);
    /* Energies [n_systems] and forces [3 n_atoms] as dynamics need them: no stress, and deviations of an ensemble's forces [3 n_atoms]
     * only where they are not NULL, which is for more than one member. NULL: by compute. */
    mlff_status (*forces)(mlff_teacher *teacher, const mlff_batch *batch, double *energies, double *forces, double *deviations);
    /* Beyond elements and charge; may be NULL. */
    mlff_status (*check)(const mlff_teacher *teacher, const mlff_system *system, const char *name);
    void (*destroy)(mlff_teacher *teacher);
    bool concurrent;
} teacher_kind;

/* What a teacher is, for callers and for a teacher that passes on another's labels. */
typedef struct teacher_facts {
    char name[256], description[512], hash[SHA256_TEXT_BYTES];
    unsigned char elements[MLFF_MAX_ATOMIC_NUMBER]; /* [n_elements] */
    int n_elements;                                 /* 0: any element */
    int n_members;
    int n_parallel;  /* structures computed at once */
    int batch_atoms; /* of one call on all devices; 0: structures are computed one by one */
    bool has_stress, has_atom_energies;
    bool of_charges; /* depends on charge and spin of a system */
} teacher_facts;

struct mlff_teacher {
    const teacher_kind *kind;
    mlff_teacher_options options;
    teacher_facts facts;
    pthread_mutex_t lock;    /* of a kind that is not concurrent */
    systems_batch batch;     /* of teacher_forces */
    bool expects_magnitudes; /* teacher_expect_magnitudes */
    bool forces_alone;       /* of the call of a kind that is not concurrent: no stress is wanted */
    void *state;             /* the kind's own */
};

/* An empty teacher of a kind. Fails with MLFF_ERR_MEMORY. */
mlff_status teacher_allocate(const teacher_kind *kind, const mlff_teacher_options *options, mlff_teacher **teacher_out);
/* Energies [n] and forces [3 atoms of all] and nothing else, for dynamics and for what a call takes. `deviations` (or NULL): standard
 * deviations of an ensemble's forces. Fails as mlff_teacher_compute, or as a structure's label does. */
mlff_status teacher_forces(mlff_teacher *teacher, mlff_system *const *systems, int n, double *energies, double *forces,
                           double *deviations);
/* While `expected`, teacher_forces by a model warns of no energy that float32 cannot hold: atoms are pressed into each other on purpose. */
void teacher_expect_magnitudes(mlff_teacher *teacher, bool expected);
/* Marks a label as failed with the text of the last error. */
void teacher_label_fail(mlff_label *label, mlff_status status);
mlff_status teacher_label_allocate(mlff_label *label, int n_atoms, bool atom_energies);

mlff_status teacher_model_open(const char *name, const mlff_teacher_options *options, mlff_teacher **teacher_out);
/* What follows "xtb:" and "kim:". */
mlff_status teacher_xtb_open(const char *method, const mlff_teacher_options *options, mlff_teacher **teacher_out);
mlff_status teacher_kim_open(const char *model, const mlff_teacher_options *options, mlff_teacher **teacher_out);

#endif
