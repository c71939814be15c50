/* SPDX-License-Identifier: MIT */
/* rivals.h: a comparison of implementations from inside: rivals.c measures, html_rivals.c shows. */
#ifndef PROFILE_RIVALS_H
#define PROFILE_RIVALS_H

#include "profile/profile.h"

/* What a page shows of single frames: of the first ones, some components of forces each. */
enum { RIVALS_FRAMES = 400, RIVALS_COMPONENTS = 6 };

typedef struct rival {
    mlff_rival shown; /* name is the comparison's own */
    double *round_ms; /* [n_rounds] median of its steps */
    double *forces;   /* of the frame */
    size_t capacity;
    double energy, force_squares, force_largest, energy_largest, energy_error, force_error;
    double energy_mean, energy_squares; /* of the difference from the first, eV/atom: Welford's */
    double difference_squares;          /* of force components from the first's */
    int64_t n_force_values, n_frames, n_labelled, n_force_labels;
    double *kept_energy; /* [n_kept] eV/atom */
    double *kept_forces; /* [n_kept][RIVALS_COMPONENTS] eV/Å */
} rival;

struct mlff_rivals {
    mlff_rival *shown;
    rival *own;
    int n, n_rounds, n_frames, n_kept;
    mlff_rivals_options options;
    int *models;        /* [n] or NULL */
    double force_scale; /* root mean square of the first one's forces, eV/Å */
};

/* The word on its results: "agrees", "WRONG", … */
const char *rivals_judgement(const mlff_rival *row);
const char *rivals_change_name(const mlff_rival *row);

#endif
