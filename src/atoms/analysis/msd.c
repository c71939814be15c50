// SPDX-License-Identifier: MIT
// msd.c: mean square displacement <|r(t + lag) - r(t)|²> over atoms and origins t, and D = slope / 6 (Einstein's relation).
#include <math.h>
#include <string.h>

#include "atoms/analysis/same_atoms.h"
#include "atoms/images.h"
#include "base/base.h"
#include "mlff_analysis.h"

enum { BLOCKS = 5, LEAST_FRAMES = 100, FIT_LAGS = 20 };
#define STUDENT_T 2.776 // 95 %, BLOCKS - 1 degrees of freedom
// Of the power of time from 1: 99 % of random walks of one atom over 100 frames are within 0.3.
#define LARGEST_DEVIATION 0.35

struct mlff_msd {
    double frame_fs;
    int element, n_atoms, n_chosen;
    int64_t n_frames;
    size_t capacity;
    double *positions; // [n_frames][n_chosen][3] Å, unwrapped
    double *last;      // [n_chosen][3] Å, as the last frame had them
    int *species;      // [n_atoms] of the first frame
};

mlff_status mlff_msd_create(double frame_fs, int element, mlff_msd **msd_out)
{
    if (!(frame_fs > 0) || !isfinite(frame_fs))
        return mlff_fail(MLFF_ERR_USAGE, "%g fs between frames; give a time above 0", frame_fs);
    const mlff_status status = same_atoms_check_element(element);
    if (status != MLFF_OK) return status;
    mlff_msd *msd = base_alloc(1, sizeof *msd, "displacements");
    if (!msd) return MLFF_ERR_MEMORY;
    *msd = (mlff_msd){.frame_fs = frame_fs, .element = element};
    *msd_out = msd;
    return MLFF_OK;
}

static bool is_chosen(const mlff_msd *msd, const mlff_system *system, int i)
{
    return msd->element == 0 || msd->element == system->species[i];
}

static mlff_status begin(mlff_msd *msd, const mlff_system *system)
{
    int n = 0;
    for (int i = 0; i < system->n_atoms; i++) n += is_chosen(msd, system, i);
    if (n == 0)
        return mlff_fail(MLFF_ERR_USAGE, "no atom of %s in the first frame; choose an element that it has",
                         mlff_element_symbol(msd->element));
    const mlff_status status = same_atoms_keep(system, &msd->species);
    if (status != MLFF_OK) return status;
    if (!(msd->last = base_alloc(3 * (size_t)n, sizeof(double), "displacements"))) return MLFF_ERR_MEMORY;
    msd->n_chosen = n;
    msd->n_atoms = system->n_atoms;
    return MLFF_OK;
}

mlff_status mlff_msd_add(mlff_msd *msd, const mlff_system *system)
{
    atoms_images images;
    mlff_status status = mlff_system_check(system, "displacements");
    if (status == MLFF_OK && msd->n_frames == 0 && !msd->last) status = begin(msd, system);
    if (status != MLFF_OK) return status;
    const int n_periodic = !!system->periodic[0] + !!system->periodic[1] + !!system->periodic[2];
    if ((status = same_atoms_check(system, msd->species, msd->n_atoms)) != MLFF_OK) return status;
    if (n_periodic == 1 || n_periodic == 2)
        return mlff_fail(MLFF_ERR_USAGE, "displacements need a cell that is periodic along all axes or none");
    const size_t n = 3 * (size_t)msd->n_chosen, begin_row = (size_t)msd->n_frames * n;
    status = base_grow(&msd->positions, &msd->capacity, begin_row + n, sizeof *msd->positions, "displacements");
    if (status != MLFF_OK) return status;
    atoms_images_make(system, &images);
    double *row = msd->positions + begin_row, *last = msd->last;
    for (int i = 0; i < system->n_atoms; i++) {
        if (!is_chosen(msd, system, i)) continue;
        double d[3];
        for (int x = 0; x < 3; x++) d[x] = system->positions[3 * (size_t)i + x] - (msd->n_frames ? last[x] : 0);
        if (msd->n_frames) atoms_nearest_image(&images, d);
        for (int x = 0; x < 3; x++) row[x] = (msd->n_frames ? (row - n)[x] : 0) + d[x];
        memcpy(last, system->positions + 3 * (size_t)i, 3 * sizeof *last);
        row += 3;
        last += 3;
    }
    msd->n_frames++;
    return MLFF_OK;
}

// Mean over atoms and over all origins of frames begin .. end.
static double displacement(const mlff_msd *msd, int64_t begin_frame, int64_t end, int64_t lag)
{
    const size_t n = 3 * (size_t)msd->n_chosen;
    double sum = 0;
    if (end - begin_frame <= lag) return NAN;
    for (int64_t t = begin_frame; t + lag < end; t++) {
        const double *a = msd->positions + (size_t)t * n, *b = msd->positions + (size_t)(t + lag) * n;
        for (size_t k = 0; k < n; k++) sum += (b[k] - a[k]) * (b[k] - a[k]);
    }
    return sum / ((double)msd->n_chosen * (double)(end - begin_frame - lag));
}

void mlff_msd_get(const mlff_msd *msd, int n_lags, double *values)
{
    for (int k = 0; k < n_lags; k++) values[k] = displacement(msd, 0, msd->n_frames, k + 1);
}

// Slope / 6 by least squares over lags of a tenth to a half of the block.
static double block_diffusion(const mlff_msd *msd, int64_t begin_frame, int64_t length)
{
    const int64_t low = length / 10 > 1 ? length / 10 : 1,
                  stride = (length / 2 - low) / FIT_LAGS > 1 ? (length / 2 - low) / FIT_LAGS : 1;
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int64_t lag = low; lag <= length / 2; lag += stride) {
        const double time = (double)lag * msd->frame_fs, value = displacement(msd, begin_frame, begin_frame + length, lag);
        n++;
        x += time;
        y += value;
        xx += time * time;
        xy += time * value;
    }
    return (n * xy - x * y) / (n * xx - x * x) / 6;
}

// Atoms that diffuse move by t^(1/2): a displacement squared that grows by another power is that of vibrations, cages or free flight.
static void warn_unless_diffusive(const mlff_msd *msd, int64_t length)
{
    const int64_t low = length / 10 > 1 ? length / 10 : 1, high = length / 2;
    const double begin = displacement(msd, 0, msd->n_frames, low), end = displacement(msd, 0, msd->n_frames, high);
    const double power = log(end / begin) / log((double)high / (double)low);
    if (begin > 0 && fabs(power - 1) > LARGEST_DEVIATION)
        mlff_warn("between %g and %g fs the mean square displacement grows as t^%.2f, where atoms diffuse as t^1: the diffusion "
                  "coefficient is not reliable; analyze a longer run",
                  (double)low * msd->frame_fs, (double)high * msd->frame_fs, power);
}

void mlff_msd_diffusion(const mlff_msd *msd, double *diffusion_out, double *half_width_out)
{
    double values[BLOCKS], mean = 0, squares = 0;
    *diffusion_out = *half_width_out = NAN;
    if (msd->n_frames < LEAST_FRAMES) return;
    const int64_t length = msd->n_frames / BLOCKS;
    warn_unless_diffusive(msd, length);
    for (int b = 0; b < BLOCKS; b++) {
        values[b] = block_diffusion(msd, b * length, length);
        mean += values[b] / BLOCKS;
    }
    for (int b = 0; b < BLOCKS; b++) squares += (values[b] - mean) * (values[b] - mean);
    *diffusion_out = mean;
    *half_width_out = STUDENT_T * sqrt(squares / (BLOCKS - 1) / BLOCKS);
}

void mlff_msd_destroy(mlff_msd *msd)
{
    if (!msd) return;
    base_free(msd->species);
    base_free(msd->last);
    base_free(msd->positions);
    base_free(msd);
}
