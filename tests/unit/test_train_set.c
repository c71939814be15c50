// SPDX-License-Identifier: MIT
// Labelled structures as training backends take them: units, offsets, labels that are absent, what is refused.
#include "train_support.h"

static mlff_model *hydrogen_and_oxygen(void)
{
    mlff_model *model;
    assert_ok(support_create(&model, "painn", "n_features=4; n_layers=1; elements=H,O"));
    model->energy_unit = 0.5;
    model->length_unit = 2.0;
    model->offset[1] = -10;
    model->offset[8] = -100;
    return model;
}

static mlff_system *water(double shift)
{
    mlff_system *system;
    assert_ok(mlff_system_build("h2o", 0, 0, &system));
    system->positions[0] += shift;
    return system;
}

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-14 * fabs(expected))) fail_msg("%.17g, expected %.17g", value, expected);
}

static void test_units_and_offsets(void **state)
{
    (void)state;
    mlff_model *model = hydrogen_and_oxygen();
    train_frames frames = {0};
    train_frames_add(&frames, water(0), 0, 1);
    mlff_system *cell = water(0.1);
    for (int c = 0; c < 3; c++) {
        cell->cell[4 * c] = 4;
        cell->periodic[c] = 1;
    }
    train_frames_add(&frames, cell, 0, 2);
    frames.labels[0].atom_energies = NULL;
    frames.labels[0].energy = NAN;
    train_set *set = train_frames_set(&frames, model);
    assert_int_equal(set->n_frames, 2);
    assert_int_equal(set->n_atoms, 6);
    assert_int_equal(set->largest_frame, 3);
    assert_int_equal(set->first_atom[2], 6);
    assert_int_equal(set->first_pair[6], set->n_pairs);
    assert_true(set->first_pair[3] == 6 && set->n_pairs > 12); // three atoms see each other; then their images too
    for (int i = 0; i < 6; i++) assert_int_equal(set->species[i], frames.systems[i / 3]->species[i % 3]);
    assert_true(isnan(set->energy[0]) && isnan(set->volume[0]) && isnan(set->stress[0]) && isnan(set->atom_energies[0]));
    assert_near(set->energy[1], (frames.labels[1].energy + 120) / 0.5);
    assert_near(set->volume[1], 8);
    assert_near(set->forces[9], frames.labels[1].forces[0] * 4);
    assert_near(set->stress[9 + 1], frames.labels[1].stress[5] * 16);
    assert_near(set->stress[9 + 8], frames.labels[1].stress[2] * 16);
    assert_near(set->atom_energies[4], frames.labels[1].atom_energies[1] * 2);
    assert_near(set->weight[1], frames.labels[1].weight);
    assert_null(set->probe_step);
    for (int64_t i = 0; i < set->n_atoms; i++) {
        int64_t frame = i / 3;
        for (int64_t p = set->first_pair[i]; p < set->first_pair[i + 1]; p++) {
            int64_t reverse = set->first_pair[3 * frame] + set->reverse[p];
            assert_int_equal(set->first_pair[3 * frame] + set->reverse[reverse], p);
            for (int c = 0; c < 3; c++) assert_true(fabs(set->vectors[3 * p + c] + set->vectors[3 * reverse + c]) < 1e-14);
            if (frame > 0) continue;
            for (int c = 0; c < 3; c++)
                assert_true(fabs(2 * set->vectors[3 * p + c] - (frames.systems[0]->positions[3 * set->neighbor[p] + c] -
                                                                frames.systems[0]->positions[3 * i + c])) < 1e-14);
        }
    }
    train_set_free(set);
    train_frames_free(&frames);
    mlff_model_destroy(model);
}

static void assert_set_refused(const train_frames *frames, const mlff_model *model, mlff_status expected, const char *text)
{
    train_set *set = NULL;
    assert_int_equal(train_set_build(model, (const mlff_system *const *)frames->systems, frames->labels, frames->probe_steps,
                                     frames->n, 2, &set),
                     expected);
    assert_null(set);
    if (!strstr(mlff_last_error(), text)) fail_msg("\"%s\" does not say \"%s\"", mlff_last_error(), text);
}

static void test_refused(void **state)
{
    (void)state;
    mlff_model *model = hydrogen_and_oxygen();
    train_frames frames = {0};
    assert_set_refused(&frames, model, MLFF_ERR_VALUE, "no labelled structures");
    train_frames_add(&frames, water(0), 0, 1);
    train_frames_add(&frames, water(0), 0, 2);
    frames.systems[1]->species[2] = 6;
    assert_set_refused(&frames, model, MLFF_ERR_ELEMENT, "frame 1: atom 2 is C");
    frames.systems[1]->species[2] = 0;
    assert_set_refused(&frames, model, MLFF_ERR_ELEMENT, "atomic number 0");
    frames.systems[1]->species[2] = 1;
    for (int c = 0; c < 3; c++) frames.systems[1]->positions[3 + c] = frames.systems[1]->positions[c];
    assert_set_refused(&frames, model, MLFF_ERR_VALUE, "frame 1: atoms 0 and 1");
    frames.systems[1]->positions[3] += 1;
    frames.probe_steps[1] = 0.01;
    assert_set_refused(&frames, model, MLFF_ERR_VALUE, "frame 1 begins a Hessian probe");
    frames.probe_steps[1] = 0;
    train_set_free(train_frames_set(&frames, model));
    train_frames_free(&frames);
    mlff_model_destroy(model);
}

// Read, written and read again; the first layer's tensors stand for all layers where interactions are shared.
static void test_layout(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        mlff_model *model = support_model(4, 3, "gaussian", "cosine", shared, 3), *copy;
        train_backend *backend = train_support_backend(model, MLFF_FLOAT64, 1, NULL);
        const train_layout *layout = &backend->layout;
        assert_int_equal(layout->n_parameters, model->n_parameters);
        double *weights = train_support_weights(backend, 0.1, 4), *again = calloc((size_t)layout->n_parameters, sizeof(double));
        model_weights file;
        assert_ok(train_layout_write(layout, model, weights, &file));
        assert_ok(model_from_weights(&file, "copy.safetensors", &copy));
        train_layout_read(layout, copy, again);
        assert_memory_equal(weights, again, sizeof(double) * (size_t)layout->n_parameters);
        for (int t = 0, at = 0; t < layout->n_tensors; t++) {
            assert_int_equal(layout->tensors[t].offset, at);
            at += (int)layout->tensors[t].n_elements;
            bool bias = strstr(layout->tensors[t].name, ".bias") != NULL;
            assert_int_equal(layout->tensors[t].decays, !bias && !strstr(layout->tensors[t].name, "embedding"));
        }
        free(weights);
        free(again);
        backend->destroy(backend);
        mlff_model_destroy(copy);
        mlff_model_destroy(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units_and_offsets),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
