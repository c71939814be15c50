// SPDX-License-Identifier: MIT
// sites.c: atoms of a file whose number is known only at its end; and cells given as lengths and angles.
#include "sites.h"

#include <math.h>
#include <string.h>

mlff_status sites_add(mlff_reader *reader, site_list *list, const site *added)
{
    if (list->n >= ATOMS_MAX_ATOMS) return reader_fail(reader, MLFF_ERR_LIMIT, "more than %d atoms", ATOMS_MAX_ATOMS);
    const mlff_status status = base_grow(&list->sites, &list->capacity, list->n + 1, sizeof *list->sites, "atoms");
    if (status == MLFF_OK) list->sites[list->n++] = *added;
    return status;
}

int sites_element(const char *symbol, double *mass_out)
{
    if (strcmp(symbol, "D") != 0) return mlff_element_number(symbol);
    *mass_out = 2.014;
    return 1;
}

mlff_status sites_make_system(const mlff_reader *reader, const site_list *list, const double cell[9], mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    bool has_masses = false;
    MLFF_TRY(mlff_system_create((int)list->n, &system));
    for (size_t i = 0; i < list->n; i++) {
        const site *at = &list->sites[i];
        system->species[i] = at->species;
        memcpy(system->positions + 3 * i, at->position, sizeof at->position);
        has_masses |= at->mass > 0 && at->mass != mlff_element_mass(at->species);
    }
    if (has_masses) MLFF_TRY(mlff_system_add_masses(system));
    for (size_t i = 0; i < list->n && has_masses; i++)
        if (list->sites[i].mass > 0) system->masses[i] = list->sites[i].mass;
    if (cell) {
        memcpy(system->cell, cell, sizeof system->cell);
        memset(system->periodic, 1, sizeof system->periodic);
    }
    MLFF_TRY(mlff_system_check(system, reader->name));
    *system_out = system;
    system = NULL;
done:
    mlff_system_destroy(system);
    return status;
}

void sites_free(site_list *list)
{
    base_free(list->sites);
    *list = (site_list){0};
}

// Exact for 90°, so that an orthorhombic cell has zeros.
static double cosine(double degrees)
{
    return degrees == 90 ? 0 : cos(degrees * (BASE_PI / 180));
}

bool cell_from_lengths(const double lengths[3], const double angles[3], double cell[9])
{
    for (int k = 0; k < 3; k++)
        if (!(lengths[k] > 0) || !isfinite(lengths[k]) || !(angles[k] > 0 && angles[k] < 180)) return false;
    const double c_alpha = cosine(angles[0]), c_beta = cosine(angles[1]), c_gamma = cosine(angles[2]);
    const double s_gamma = sqrt(1 - c_gamma * c_gamma), y = (c_alpha - c_beta * c_gamma) / s_gamma;
    const double z2 = 1 - c_beta * c_beta - y * y;
    if (!(z2 > 1e-12)) return false; // the three vectors lie in a plane, or cannot be
    const double made[9] = {
        lengths[0],           0, 0, lengths[1] * c_gamma, lengths[1] * s_gamma, 0, lengths[2] * c_beta, lengths[2] * y,
        lengths[2] * sqrt(z2)};
    memcpy(cell, made, sizeof made);
    return true;
}
