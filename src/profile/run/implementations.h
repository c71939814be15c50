/* SPDX-License-Identifier: MIT */
/* implementations.h: a comparison of implementations from inside: implementations.c measures, html_implementations.c shows. */
#ifndef PROFILE_IMPLEMENTATIONS_H
#define PROFILE_IMPLEMENTATIONS_H

#include "profile/profile.h"

/* What a page shows of single frames: of the first ones, some components of forces each. */
enum { IMPLEMENTATIONS_FRAMES = 400, IMPLEMENTATIONS_COMPONENTS = 6 };

typedef struct implementation {
    mlff_implementation shown; /* name is the comparison's own */
    double *round_ms;          /* [n_rounds] median of its steps */
    double *forces;            /* of the frame */
    size_t capacity;
    double energy, force_squares, force_largest, energy_largest, energy_error, force_error;
    double energy_mean, energy_squares; /* of the difference from the first, eV/atom: Welford's */
    double difference_squares;          /* of force components from the first's */
    int64_t n_force_values, n_frames, n_labelled, n_force_labels;
    double *kept_energy; /* [n_kept] eV/atom */
    double *kept_forces; /* [n_kept][IMPLEMENTATIONS_COMPONENTS] eV/Å */
} implementation;

struct mlff_implementations {
    mlff_implementation *shown;
    implementation *own;
    int n, n_rounds, n_frames, n_kept;
    mlff_implementations_options options;
    int *models;        /* [n] or NULL */
    double force_scale; /* root mean square of the first one's forces, eV/Å */
};

/* The word on its results: "agrees", "WRONG", … */
const char *implementations_judgement(const mlff_implementation *row);
const char *implementations_change_name(const mlff_implementation *row);

#endif
