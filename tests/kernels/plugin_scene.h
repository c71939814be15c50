/* SPDX-License-Identifier: MIT */
/* plugin_scene.h: a model and a batch of four systems for tests of the plugin on the emulated GPU, and its results in float64. */
#ifndef PLUGIN_SCENE_H
#define PLUGIN_SCENE_H

#include "plugin_emulated.h"

enum { N_SYSTEMS = 4 };

// A model and four systems: free and periodic, of different sizes, joined into one batch.
typedef struct scene {
    mlff_model *model;
    mlff_system *systems[N_SYSTEMS];
    int32_t first_atom[N_SYSTEMS + 1], species[32];
    double positions[96], cells[9 * N_SYSTEMS];
    unsigned char periodic[3 * N_SYSTEMS];
    mlff_batch batch;
} scene;

static inline void make_scene(scene *s, uint64_t seed)
{
    static const int sizes[N_SYSTEMS] = {3, 6, 1, 8};
    memset(s, 0, sizeof *s);
    s->model = support_model(64, 2, "gaussian", "cosine", 0, 3);
    for (int k = 0; k < N_SYSTEMS; k++) {
        s->systems[k] = support_random_system(sizes[k], k % 2, 1.2, seed + (uint64_t)k);
        int at = s->first_atom[k];
        s->first_atom[k + 1] = at + sizes[k];
        for (int i = 0; i < sizes[k]; i++) s->species[at + i] = s->systems[k]->species[i];
        memcpy(s->positions + 3 * at, s->systems[k]->positions, sizeof(double) * 3 * (size_t)sizes[k]);
        memcpy(s->cells + 9 * k, s->systems[k]->cell, sizeof s->systems[k]->cell);
        memcpy(s->periodic + 3 * k, s->systems[k]->periodic, 3);
    }
    s->batch = (mlff_batch){.n_systems = N_SYSTEMS,
                            .first_atom = s->first_atom,
                            .species = s->species,
                            .positions = s->positions,
                            .cells = s->cells,
                            .periodic = s->periodic};
}

static inline void free_scene(scene *s)
{
    for (int k = 0; k < N_SYSTEMS; k++) mlff_system_destroy(s->systems[k]);
    mlff_model_destroy(s->model);
}

static inline void make_scene_on_gpu(scene *s, uint64_t seed, emulate_counts *before, mlff_evaluator **evaluator_out)
{
    make_scene(s, seed);
    *before = counts();
    assert_ok(create_on(s->model, MLFF_CUDA, evaluator_out));
}

static inline support_results reference_of(const mlff_model *model, const mlff_batch *batch)
{
    mlff_evaluator *reference;
    assert_ok(create_on(model, MLFF_CPU, &reference));
    support_results expected = support_compute(reference, batch);
    mlff_evaluator_destroy(reference);
    return expected;
}

#endif
