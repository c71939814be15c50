/* SPDX-License-Identifier: MIT */
/* parallel.h: an evaluator on several devices (parallel_evaluator.c), shared with the integrator in its domains (parallel_dynamics.c). */
#ifndef PARALLEL_H
#define PARALLEL_H

#include "model/evaluator/evaluator.h"
#include "parallel/decompose.h"
#include "parallel/exchange.h"

/* A domain, or a share of the systems, on its device. */
typedef struct domain {
    mlff_evaluator *evaluator;                  /* of domains, with halo functions; NULL: none was needed yet */
    mlff_evaluator *whole;                      /* of whole systems, likewise */
    int32_t first_atom[2], *share_first;        /* share_first: [systems of the share + 1] */
    int32_t *species;                           /* [n_local] */
    unsigned char *owned;                       /* [n_local] */
    double *positions, *forces, *atom_energies; /* [n_local][3], [n_local][3], [n_local] */
    double energy, virial[9];
    double work_ns, gather_ns; /* so far, of one system; work: also in hooks */
    int64_t apart_ns;          /* of the last step: exchange and waits that are no part of the evaluator's stages */
    bool idle;                 /* had no atoms in the last call: what its evaluators tell is of an earlier one */
    size_t first_capacity, species_capacity, owned_capacity, position_capacity, force_capacity, energy_capacity;
} domain;

typedef struct parallel_evaluator {
    const mlff_model *model;
    mlff_evaluator_options options; /* of each domain */
    char *members;
    int n;
    int decomposing_threads; /* 0: all cores, which serve no domain on GPUs */
    mlff_device devices[MAX_DOMAINS];
    crew *crew;
    decomposition *decomposition;
    exchange *exchange;
    mlff_halo hooks[MAX_DOMAINS];
    mlff_stage *stages; /* [n_stages] of an evaluator, then the exchange */
    int n_stages;
    domain domains[MAX_DOMAINS];
    bool divided;  /* the last batch was one system */
    bool refused;  /* the model cannot be divided */
    bool clock_on; /* of stages */
    int member;    /* -1: the mean */
    int64_t n_computes;
    const void *dynamics; /* whose atoms are in the domains of the decomposition; NULL: none */
    /* of the call under way */
    const mlff_batch *batch;
    const mlff_results *results;
    bool fresh; /* the decomposition was made in this call */
} parallel_evaluator;

/* Creates what domains need that is not there yet; then `refused` says whether the model can be divided. */
mlff_status parallel_ensure_divided(parallel_evaluator *evaluator);
/* Energy and forces of one system, divided; `batch` and `results` stay those of the evaluator. */
mlff_status parallel_compute_divided(parallel_evaluator *evaluator, const mlff_batch *batch, const mlff_results *results);

/* Of a domain, in its thread: arrays of its atoms after a new decomposition; its batch, with those arrays, which the domain's own
 * positions are not yet in; a batch computed. */
mlff_status parallel_take_atoms(parallel_evaluator *evaluator, int index);
void parallel_describe_domain(const parallel_evaluator *evaluator, int index, unsigned char periodic[3], mlff_batch *batch_out);
mlff_status parallel_compute_domain(parallel_evaluator *evaluator, int index, const mlff_batch *batch,
                                    const mlff_results *results);

/* evaluator_interface.dynamics_create: each domain's thread integrates its own atoms. Fails with MLFF_ERR_UNSUPPORTED for several systems,
 * and for a model that cannot be divided. */
mlff_status parallel_dynamics_create(void *self, mlff_dynamics *const *dynamics, int n, dynamics_resident *resident_out);

#endif
