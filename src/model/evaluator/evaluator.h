/* SPDX-License-Identifier: MIT */
/* evaluator.h: the interface that the evaluator of a device implements. evaluator.c checks inputs, runs ensembles member by
 * member, and calls it; evaluator_cpu.c and evaluator_gpu.c implement it. */
#ifndef EVALUATOR_H
#define EVALUATOR_H

#include "atoms/dynamics/dynamics.h"
#include "model/model.h"

typedef struct evaluator_interface {
    /* `options` are checked and are completed here (threads, fast path); they live as long as the evaluator. `members`
     * [n_members] of an ensemble, to be run; n_members 0: all. Fails with MLFF_ERR_UNSUPPORTED, MLFF_ERR_DEVICE, MLFF_ERR_MEMORY. */
    mlff_status (*create)(const mlff_model *model, mlff_evaluator_options *options, const int *members, int n_members,
                          void **self_out);
    void (*destroy)(void *self);

    /* One call is begin, prepare, then compute once, or for each member and once more. `results` of prepare says all that the
     * call needs; compute is for a batch that was prepared, and for no more than that. NULL begin: nothing to do. */
    void (*begin)(void *self);
    mlff_status (*prepare)(void *self, const mlff_batch *batch, const mlff_results *results);
    mlff_status (*compute)(void *self, const mlff_batch *batch, const mlff_results *results);
    /* Ensembles: compute() runs this member of those that run, or, with −1, their mean. */
    void (*select_member)(void *self, int member);

    const mlff_stage *(*stages)(const void *self, int *n_out);
    mlff_status (*stage_clock_set)(void *self, int on);
    void (*stage_times)(const void *self, double *time_ns);
    int (*stage_spans)(const void *self, mlff_stage_span *spans, int capacity); /* NULL: not known */
    const char *(*kernel_stage)(const void *self, const char *kernel);          /* NULL: no kernels */
    void (*info)(const void *self, mlff_evaluator_info *info_out);              /* adds to what is there */
    int (*domains)(const void *self, mlff_domain_info *domains, int capacity);  /* NULL: one device */
    void (*domain_stage_times)(const void *self, int domain, double *time_ns);  /* where there are domains */

    /* Integrates the atoms of n systems, of one ensemble, on the evaluator's device; NULL: the host does. Fails with
     * MLFF_ERR_UNSUPPORTED where the device cannot integrate this model or system. */
    mlff_status (*dynamics_create)(void *self, mlff_dynamics *const *dynamics, int n, dynamics_resident *resident_out);
} evaluator_interface;

extern const evaluator_interface cpu_evaluator_interface, gpu_evaluator_interface;
extern const evaluator_interface parallel_evaluator_interface; /* several devices: src/parallel, which is above this folder */

struct mlff_evaluator {
    const mlff_model *model;
    mlff_evaluator_options options;
    mlff_halo halo; /* copy of the caller's, where options.halo is not NULL */
    const evaluator_interface *interface;
    void *self;                         /* the interface's */
    double *member_value, *member_mean; /* [n_systems + 3 n_atoms] energies and forces of one member, and the mean so far */
    size_t member_capacity, mean_capacity;
    int64_t n_growths;
    bool warned_of_magnitude, warned_of_charge;
};

/* A simulation that the host integrates with the evaluator's forces, or those of `forces` (mlff_dynamics_create_on). */
mlff_status dynamics_of_evaluator(mlff_evaluator *evaluator, const mlff_dynamics_options *options, mlff_system *system,
                                  mlff_force_function forces, void *context, mlff_dynamics **dynamics_out);
/* Whether steps are to be made by its devices, which at constant pressure need virials that are derivatives. Domains of the CPU can make
 * them, but other calls of the evaluator must not come between. */
bool evaluator_can_integrate(const mlff_evaluator *evaluator, mlff_ensemble ensemble);
/* Warns if the forces are not the derivative of the energy, with what follows from it. */
void evaluator_warn_not_conservative(const mlff_evaluator *evaluator, const char *consequence);
/* Warns of the first charge, e, that is not 0 where the model does not depend on it. `charges` may be NULL. */
void evaluator_warn_of_charge(mlff_evaluator *evaluator, const double *charges, int n_systems);
/* While `expected`, there is no warning of energies that float32 cannot hold: atoms are pressed into each other on purpose. Otherwise the
 * first one is warned of. Returns the setting before. */
bool evaluator_expect_magnitudes(mlff_evaluator *evaluator, bool expected);
#define EVALUATOR_ENERGY_DRIFTS "the total energy is not conserved in NVE dynamics"

#endif
