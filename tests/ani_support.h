/* SPDX-License-Identifier: MIT */
/* ani_support.h: ANI models of the shared data, and systems of their elements. */
#ifndef ANI_SUPPORT_H
#define ANI_SUPPORT_H

#include "support.h"

#include "model/ani/ani.h"

/* The ANI-2x ensemble of the shared data, or NULL. */
SUPPORT mlff_model *ani_2x(void)
{
    const char *path = support_shared("data/ani2x/ani-2x_8x.info");
    mlff_model *model = NULL;
    if (path) assert_ok(mlff_model_import(path, NULL, &model));
    return model;
}

/* Member 0 of ANI-1x from its NeuroChem files, or NULL: the shared data has this member only, so that a list of one is
 * written beside a link to them. */
SUPPORT mlff_model *ani_1x(void)
{
    const char *folder = support_shared("data/ani1x/ani-1x_8x");
    char place[] = "/tmp/mlff-ani-XXXXXX", path[1100], target[4096];
    mlff_model *model = NULL;
    if (!folder) return NULL;
    assert_non_null(mkdtemp(place));
    assert_non_null(realpath(folder, target));
    snprintf(path, sizeof path, "%s/ani-1x_8x", place);
    assert_int_equal(symlink(target, path), 0);
    snprintf(path, sizeof path, "%s/ani-1x.info", place);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "ani-1x_8x/rHCNO-5.2R_16-3.5A_a4-8.params\nani-1x_8x/sae_linfit.dat\nani-1x_8x/train\n1\n");
    fclose(file);
    assert_ok(mlff_model_import(path, NULL, &model));
    remove(path);
    snprintf(path, sizeof path, "%s/ani-1x_8x", place);
    remove(path);
    remove(place);
    return model;
}

/* An untrained model of ANI-2x's shape with small networks: fast to make, its forces of ordinary size. */
SUPPORT mlff_model *ani_untrained(int n_members, uint64_t seed)
{
    model_weights weights = {0};
    mlff_model *model;
    assert_ok(ani_new(n_members, seed, &weights));
    assert_ok(model_from_weights(&weights, "untrained", &model));
    return model;
}

/* support_random_system with the first n_elements of H, C, N, O, S, F, Cl. */
SUPPORT mlff_system *ani_random_system(int n, int n_elements, int periodic, double closest, uint64_t seed)
{
    static const int elements[] = {1, 6, 7, 8, 16, 9, 17};
    mlff_system *system = support_random_system(n, periodic, closest, seed);
    for (int i = 0; i < n; i++) system->species[i] = elements[(int)(n_elements * base_random_uniform(seed, 9, (uint64_t)i))];
    return system;
}

#endif
