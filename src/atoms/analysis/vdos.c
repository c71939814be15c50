// SPDX-License-Identifier: MIT
// vdos.c: the vibrational density of states of a trajectory, from the velocities of its frames, with standard errors from blocks.
#include <math.h>
#include <string.h>

#include "atoms/analysis/same_atoms.h"
#include "atoms/analysis/spectrum.h"
#include "atoms/atoms.h"
#include "mlff_analysis.h"

enum { BLOCKS = 5, LEAST_FRAMES = 100, MOST_POINTS = 512 };

struct mlff_vdos {
    double frame_fs;
    int element, n_atoms, n_chosen;
    int64_t n_frames;
    size_t capacity;
    double *velocities; // [n_frames][n_chosen][3] Å/fs, of the vibrations
    double *masses;     // [n_chosen] amu
    double *all;        // [n_atoms][3] of one frame
    int *species;       // [n_atoms] of the first frame
};

mlff_status mlff_vdos_create(double frame_fs, int element, mlff_vdos **vdos_out)
{
    if (!(frame_fs > 0) || !isfinite(frame_fs))
        return mlff_fail(MLFF_ERR_USAGE, "%g fs between frames; give a time above 0", frame_fs);
    const mlff_status status = same_atoms_check_element(element);
    if (status != MLFF_OK) return status;
    mlff_vdos *vdos = base_alloc(1, sizeof *vdos, "a density of states");
    if (!vdos) return MLFF_ERR_MEMORY;
    *vdos = (mlff_vdos){.frame_fs = frame_fs, .element = element};
    *vdos_out = vdos;
    return MLFF_OK;
}

static bool is_chosen(const mlff_vdos *vdos, const mlff_system *system, int i)
{
    return vdos->element == 0 || vdos->element == system->species[i];
}

static mlff_status begin(mlff_vdos *vdos, const mlff_system *system)
{
    int n = 0;
    for (int i = 0; i < system->n_atoms; i++) n += is_chosen(vdos, system, i);
    if (n == 0)
        return mlff_fail(MLFF_ERR_USAGE, "no atom of %s in the first frame; choose an element that it has",
                         mlff_element_symbol(vdos->element));
    if (!vdos->masses) vdos->masses = base_alloc((size_t)n, sizeof *vdos->masses, "a density of states");
    if (!vdos->all) vdos->all = base_alloc(3 * (size_t)system->n_atoms, sizeof *vdos->all, "a density of states");
    if (!vdos->masses || !vdos->all) return MLFF_ERR_MEMORY;
    const mlff_status status = same_atoms_keep(system, &vdos->species);
    if (status != MLFF_OK) return status;
    vdos->n_atoms = system->n_atoms;
    for (int i = 0; i < system->n_atoms; i++)
        if (is_chosen(vdos, system, i)) vdos->masses[vdos->n_chosen++] = atoms_mass(system, i);
    return MLFF_OK;
}

mlff_status mlff_vdos_add(mlff_vdos *vdos, const mlff_system *system)
{
    mlff_status status = mlff_system_check(system, "a density of states");
    if (status != MLFF_OK) return status;
    if (!system->velocities)
        return mlff_fail(MLFF_ERR_USAGE, "a density of states needs velocities; extended XYZ of mlff md has them");
    if (vdos->n_frames == 0 && vdos->n_chosen == 0 && (status = begin(vdos, system)) != MLFF_OK) return status;
    if ((status = same_atoms_check(system, vdos->species, vdos->n_atoms)) != MLFF_OK) return status;
    const size_t n = 3 * (size_t)vdos->n_chosen, begin_row = (size_t)vdos->n_frames * n;
    status = base_grow(&vdos->velocities, &vdos->capacity, begin_row + n, sizeof *vdos->velocities, "a density of states");
    if (status != MLFF_OK) return status;
    spectrum_velocities(system, vdos->all);
    double *row = vdos->velocities + begin_row;
    for (int i = 0; i < system->n_atoms; i++) {
        if (!is_chosen(vdos, system, i)) continue;
        memcpy(row, vdos->all + 3 * (size_t)i, 3 * sizeof *row);
        row += 3;
    }
    vdos->n_frames++;
    return MLFF_OK;
}

int mlff_vdos_size(const mlff_vdos *vdos)
{
    if (vdos->n_frames < LEAST_FRAMES) return 0;
    const int64_t most = vdos->n_frames / BLOCKS / 2;
    return most < MOST_POINTS ? (int)most : MOST_POINTS;
}

mlff_status mlff_vdos_get(const mlff_vdos *vdos, double *wavenumber, double *density, double *error)
{
    mlff_status status = MLFF_OK;
    const int n = mlff_vdos_size(vdos);
    const int64_t length = vdos->n_frames / BLOCKS;
    double step = 0;
    if (n == 0) return MLFF_OK;
    double *blocks = base_alloc((size_t)BLOCKS * (size_t)n, sizeof *blocks, "a density of states");
    if (!blocks) return MLFF_ERR_MEMORY;
    for (int b = 0; b < BLOCKS; b++) {
        double *block = blocks + (size_t)b * (size_t)n;
        MLFF_TRY(spectrum_of(vdos->velocities + (size_t)(b * length) * 3 * (size_t)vdos->n_chosen, length, vdos->masses,
                             vdos->n_chosen, vdos->frame_fs, n, block, &step));
        const double area = 1 - 0.5 * block[0]; // the first point stands for half an interval
        for (int k = 0; k < n; k++) block[k] /= area;
    }
    for (int k = 0; k < n; k++) {
        double mean = 0, squares = 0;
        for (int b = 0; b < BLOCKS; b++) mean += blocks[b * n + k] / BLOCKS;
        for (int b = 0; b < BLOCKS; b++) squares += (blocks[b * n + k] - mean) * (blocks[b * n + k] - mean);
        if (wavenumber) wavenumber[k] = k * step;
        if (density) density[k] = mean / step;
        if (error) error[k] = sqrt(squares / (BLOCKS - 1) / BLOCKS) / step;
    }
done:
    base_free(blocks);
    return status;
}

void mlff_vdos_destroy(mlff_vdos *vdos)
{
    if (!vdos) return;
    base_free(vdos->velocities);
    base_free(vdos->species);
    base_free(vdos->masses);
    base_free(vdos->all);
    base_free(vdos);
}
