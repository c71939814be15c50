/* SPDX-License-Identifier: MIT */
/* moving.h: the own atoms of a domain while it integrates them, in the memory of its device. */
#ifndef MOVING_H
#define MOVING_H

#include "atoms/dynamics/bath.h"
#include "atoms/dynamics/domain_motion.h"
#include "device/device.h"

/* Arrays of a domain, in one block; on a GPU a block of the host has the same layout. */
typedef struct moving_arrays {
    double *positions[2], *velocities[2]; /* [n_owned][3] Å, Å/fs */
    double *forces[2];                    /* [n_owned][3] eV/Å */
    double *inverse_mass, *listed;        /* [n_owned], [n_owned][3]: domain_motion.h */
    double *cell;                         /* [9] Å */
    int32_t *species, *atom, *shift;      /* [n_local], [n_local], [n_local][3] */
    unsigned char *owned;                 /* [n_local] */
    double *found;                        /* [n_local][3] eV/Å, by the evaluator, of the next positions */
    double *local;                        /* [n_local][3] Å, in the frame of the domain */
} moving_arrays;

/* Of the whole system. */
typedef struct moving_bath {
    dynamics_bath state;
    double cell[9], virial[3]; /* Å; eV, the diagonal, at constant pressure */
    double stretch[3];         /* along x, y, z, of the step that led here */
    double strained[3];        /* product of them since the system was decomposed */
} moving_bath;

typedef struct moving_domain {
    const device_plugin *plugin; /* NULL: a domain of the CPU */
    int gpu;
    void *stream;
    moving_arrays here, there; /* of the host, of the device; on the CPU the same */
    char *host_block, *device_block;
    size_t capacity;          /* bytes of each */
    size_t sent_bytes;        /* of the arrays that moving_upload copies, which are the first */
    domain_outcome *outcomes; /* behind the host's arrays, as is `found_energy` */
    double *found_energy;     /* eV, by the evaluator, of the next positions; and their virial, at constant pressure */
    double *found_virial;     /* [9] */
    domain_motion motion;
    int now;                                  /* which of two arrays is current; the other one is next */
    double energy, heat[2];                   /* eV; heat: that Langevin's bath gave to own atoms, current, next */
    double twice_kinetic[3], twice_kicked[3]; /* along x, y, z, eV; kicked: of the beginning of the step, after its kick */
    moving_bath bath[2];                      /* of the system: each domain has the same numbers; current, next */
    int64_t n_done;                           /* steps since the threads began */
    int64_t apart_ns;                         /* exchange_apart when the last step ended */
    bool begun;                               /* within a step */
    bool far;                                 /* an atom has left the range of the decomposition */
} moving_domain;

/* Room for so many atoms; the arrays' contents are lost. Fails with MLFF_ERR_MEMORY, MLFF_ERR_DEVICE. */
mlff_status moving_reserve(moving_domain *domain, int n_owned, int n_local);
void moving_release(moving_domain *domain);
/* All arrays but `found` and `local`, which are computed there, to the device; from it the current positions, velocities and forces and, within a step, the next positions and velocities. */
mlff_status moving_upload(moving_domain *domain);
mlff_status moving_fetch(moving_domain *domain);
/* Points the motion to the current and the next arrays. */
void moving_aim(moving_domain *domain);
/* A domain_move. A move with an outcome is waited for; others are enqueued on a GPU. */
mlff_status moving_move(moving_domain *domain, domain_move move, domain_outcome *outcome_out);
/* Waits for what is enqueued. */
mlff_status moving_wait(const moving_domain *domain);

#endif
