// SPDX-License-Identifier: MIT
// analyze.h: what mlff analyze computes, and how it is shown.
#ifndef ANALYZE_H
#define ANALYZE_H

#include "mlff_analysis.h"

enum { ANALYZE_MAX_LAGS = 200, ANALYZE_BLOCKS = 10 };

// Values of frames, and their mean with a standard error of blocks and the slope of a fit.
typedef struct frame_series {
    double *values; // [n]
    double *beyond; // [n] the mean
    size_t n, capacity;
    double mean, error, slope, slope_half_width; // the slope a frame; NaN with fewer than 20 frames
} frame_series;

typedef struct analysis {
    const char *pair, *element, *page, *path;
    int n_bins, n_lags, n_points;
    double range, frame_fs, interval_fs; // interval_fs: by the frames' own times; NaN where they have none, or others
    int64_t n_skipped;                   // frames at the beginning that are left out
    bool with_geometry;
    mlff_rdf *rdf;           // NULL: the first frame has no cell
    mlff_msd *msd;           // NULL: no --frame-time
    mlff_vdos *vdos;         // NULL: no --frame-time or no velocities
    mlff_geometry *geometry; // NULL: not asked for
    frame_series energy, temperature, density;
    int64_t n_frames;
    mlff_status ended; // why the input was not read to its end, with the error's text
    char why_ended[1024];
    double *values;                                                // [4][n_bins] r, g, error, coordination
    double *spectrum;                                              // [3][n_points] wavenumber, density, error
    double lags[ANALYZE_MAX_LAGS], displacement[ANALYZE_MAX_LAGS]; // [n_lags]
    double diffusion, half_width;
} analysis;

void analyze_print_json(const analysis *run);
void analyze_print_tables(const analysis *run);
// Writes run->page.
mlff_status analyze_write_page(const analysis *run);

#endif
