// SPDX-License-Identifier: MIT
// energy_forces.c: energy and forces of each frame of a file, by the public headers alone.
//   cc energy_forces.c $(pkg-config --cflags --libs mlff) -o energy_forces && ./energy_forces MODEL.safetensors FRAMES.extxyz
#include <stdio.h>
#include <stdlib.h>

#include "mlff.h"

static mlff_status print_frame(mlff_evaluator *evaluator, const mlff_system *system)
{
    double energy;
    double *forces = calloc(3 * (size_t)system->n_atoms, sizeof *forces);
    if (!forces) return mlff_fail(MLFF_ERR_MEMORY, "no memory for %d forces", system->n_atoms);

    int32_t first_atom[2];
    mlff_batch batch; // here of one system; several of different sizes go into one call just so
    mlff_batch_from_system(system, first_atom, &batch);
    mlff_results results = {.energies = &energy, .forces = forces}; // what is left NULL is not computed
    mlff_status status = mlff_evaluator_compute(evaluator, &batch, &results);
    if (status == MLFF_OK) {
        printf("energy %.6f eV\n", energy);
        for (int i = 0; i < system->n_atoms; i++)
            printf("%-2s %12.6f %12.6f %12.6f eV/Å\n", mlff_element_symbol(system->species[i]), forces[3 * i], forces[3 * i + 1],
                   forces[3 * i + 2]);
    }
    free(forces);
    return status;
}

int main(int argc, char **argv)
{
    mlff_model *model = NULL;
    mlff_evaluator *evaluator = NULL;
    mlff_reader *reader = NULL;
    mlff_system *system = NULL;

    if (argc != 3) {
        fprintf(stderr, "usage: energy_forces MODEL.safetensors FRAMES.extxyz\n");
        return 2;
    }
    mlff_status status = mlff_model_load(argv[1], &model);
    if (status == MLFF_OK) status = mlff_evaluator_create(model, NULL, &evaluator);
    if (status == MLFF_OK) status = mlff_reader_open(argv[2], NULL, &reader);
    while (status == MLFF_OK) {
        status = mlff_reader_next(reader, &system);
        if (status != MLFF_OK || !system) break;
        status = print_frame(evaluator, system);
        mlff_system_destroy(system);
    }
    if (status != MLFF_OK) fprintf(stderr, "%s\n", mlff_last_error());

    mlff_reader_destroy(reader);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
    return status == MLFF_OK ? 0 : 1;
}
