// SPDX-License-Identifier: MIT
// The loss of a batch: each term's value by the formula of mlff_train.h, and its derivatives c, v, B by central differences in the
// predictions, which here are random numbers.
#include "train_support.h"

#include "model/training/train_batch.h"

enum { N_FRAMES = 5, PLUS = 3 }; // frames PLUS and PLUS + 1 are a probe
static const double STEP = 0.05;

static mlff_model *model_in_ev(void)
{
    mlff_model *model;
    assert_ok(support_create(&model, "painn", "n_features=4; n_layers=1"));
    return model;
}

static train_set *make_set(const mlff_model *model, train_frames *frames)
{
    for (int k = 0; k < PLUS; k++)
        train_frames_add(frames, support_random_system(2 + k, k < 2, 1.2, (uint64_t)k), 0, (uint64_t)k);
    mlff_system *probed = support_random_system(3, 0, 1.2, 7);
    train_frames_add_probe(frames, probed, STEP, 8);
    mlff_system_destroy(probed);
    frames->labels[2].energy = NAN; // labels that are absent count nowhere
    frames->labels[0].forces = NULL;
    frames->labels[1].atom_energies = NULL;
    train_frames_constrain(frames, 2);
    train_frames_constrain(frames, PLUS);
    return train_frames_set(frames, model);
}

static void fill_predictions(train_batch *batch)
{
    for (int i = 0; i < batch->n_atoms; i++) batch->energy[i] = base_random_normal(1, 0, (uint64_t)i);
    for (int i = 0; i < 3 * batch->n_atoms; i++) batch->forces[i] = base_random_normal(1, 1, (uint64_t)i);
    for (int i = 0; i < 9 * batch->n_frames; i++) batch->strain[i] = base_random_normal(1, 2, (uint64_t)i);
}

// The formula, frame by frame in the order of the batch.
static double expected_loss(const train_batch *b, const mlff_loss *w, const train_frames *frames)
{
    double sum = 0, n_atoms = b->n_atoms, n_frames = b->n_frames;
    for (int k = 0; k < b->n_frames; k++) {
        int f = b->frames[k], n = frames->systems[f]->n_atoms, first = b->first_atom[k];
        const mlff_labels *label = &frames->labels[f];
        double total = 0;
        for (int i = 0; i < n; i++) total += b->energy[first + i];
        if (!isnan(label->energy))
            sum += w->energy_weight / n_frames * label->weight * pow((total - label->energy) / (w->energy_per_atom ? n : 1), 2);
        for (int i = 0; label->forces && i < n; i++) {
            double square = 0, d = w->huber_forces;
            if (frames->systems[f]->fixed && i == 0) continue;
            for (int a = 0; a < 3; a++) square += pow(b->forces[3 * (first + i) + a] - label->forces[3 * i + a], 2);
            if (d > 0 && sqrt(square) > d) square = 2 * d * sqrt(square) - d * d;
            sum += w->forces_weight / (3 * n_atoms) * label->weight * square;
        }
        static const int full[9] = {0, 5, 4, 5, 1, 3, 4, 3, 2};
        for (int a = 0; label->stress && a < 9; a++)
            sum += w->stress_weight / (9 * n_frames) * label->weight *
                   pow(b->strain[9 * k + a] / mlff_system_volume(frames->systems[f]) - label->stress[full[a]], 2);
        for (int i = 0; label->atom_energies && i < n; i++)
            sum += w->atom_energies_weight / n_atoms * label->weight * pow(b->energy[first + i] - label->atom_energies[i], 2);
        if (f != PLUS) continue;
        for (int a = 3; a < 3 * n; a++) { // the first atom is fixed
            double student = -(b->forces[3 * first + a] - b->forces[3 * b->first_atom[k + 1] + a]) / (2 * STEP);
            double teacher = -(label->forces[a] - frames->labels[PLUS + 1].forces[a]) / (2 * STEP);
            sum += w->hessian_weight / (3 * n_atoms) * label->weight * pow(student - teacher, 2);
        }
    }
    return sum;
}

static const mlff_loss losses[] = {
    {.energy_weight = 2},    {.energy_weight = 2, .energy_per_atom = 1},
    {.forces_weight = 3},    {.forces_weight = 3, .huber_forces = 1.2},
    {.stress_weight = 4},    {.atom_energies_weight = 5},
    {.hessian_weight = 0.6}, {1, 2, 3, 4, 0.5, 1, 0.8},
};
enum { N_LOSSES = sizeof losses / sizeof *losses };

static double loss_of(train_batch *batch, const mlff_loss *loss)
{
    train_sums sums = {0};
    return train_batch_loss(batch, 0, batch->n_frames, loss, &sums);
}

// Derivative of the loss in *value, exact but for rounding: the terms are of second degree (or nearly straight beyond Huber's δ).
static double difference(train_batch *batch, const mlff_loss *loss, double *value)
{
    double here = *value, h = 1e-5;
    *value = here + h;
    double above = loss_of(batch, loss);
    *value = here - h;
    double below = loss_of(batch, loss);
    *value = here;
    return (above - below) / (2 * h);
}

static void assert_derivative(const char *what, int index, double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-7 * (1 + fabs(expected))))
        fail_msg("%s %d: %.12g, by differences %.12g", what, index, value, expected);
}

static void test_terms(void **state)
{
    (void)state;
    static const int32_t order[N_FRAMES] = {1, PLUS, PLUS + 1, 2, 0};
    mlff_model *model = model_in_ev();
    train_frames frames = {0};
    train_set *set = make_set(model, &frames);
    train_batch batch = {0};
    assert_ok(train_batch_begin(&batch, set, order, N_FRAMES));
    fill_predictions(&batch);
    for (int l = 0; l < N_LOSSES; l++) {
        double loss = loss_of(&batch, &losses[l]), expected = expected_loss(&batch, &losses[l], &frames);
        if (!(fabs(loss - expected) <= 1e-13 * expected && expected > 0))
            fail_msg("loss %d: %.15g, expected %.15g", l, loss, expected);
        double c[32], v[96], B[9 * N_FRAMES];
        memcpy(c, batch.c, sizeof(double) * (size_t)batch.n_atoms);
        memcpy(v, batch.v, sizeof(double) * 3 * (size_t)batch.n_atoms);
        memcpy(B, batch.B, sizeof B);
        for (int i = 0; i < batch.n_atoms; i++) assert_derivative("c", i, c[i], difference(&batch, &losses[l], &batch.energy[i]));
        for (int i = 0; i < 3 * batch.n_atoms; i++)
            assert_derivative("v", i, v[i], difference(&batch, &losses[l], &batch.forces[i]));
        for (int i = 0; i < 9 * N_FRAMES; i++) // V σ is the prediction, so that (1/V) ∂L/∂σ is its derivative
            assert_derivative("B", i, B[i], difference(&batch, &losses[l], &batch.strain[i]));
    }
    train_batch_free(&batch);
    train_set_free(set);
    train_frames_free(&frames);
    mlff_model_destroy(model);
}

// Ranges of a batch add up to the whole, with the whole's counts in the means.
static void test_ranges(void **state)
{
    (void)state;
    static const int32_t order[N_FRAMES] = {0, 1, 2, PLUS, PLUS + 1};
    mlff_model *model = model_in_ev();
    train_frames frames = {0};
    train_set *set = make_set(model, &frames);
    train_batch batch = {0};
    assert_ok(train_batch_begin(&batch, set, order, N_FRAMES));
    fill_predictions(&batch);
    train_sums whole = {.finite = true}, parts = {.finite = true}, more = {.finite = true};
    const mlff_loss *loss = &losses[N_LOSSES - 1];
    double expected = train_batch_loss(&batch, 0, N_FRAMES, loss, &whole);
    double sum = train_batch_loss(&batch, 0, 2, loss, &parts) + train_batch_loss(&batch, 2, N_FRAMES, loss, &more);
    train_sums_add(&parts, &more);
    assert_true(fabs(sum - expected) <= 1e-14 * expected);
    assert_true(parts.n_frames == N_FRAMES && parts.n_atoms == whole.n_atoms && parts.n_energies == 4 && whole.n_energies == 4);
    assert_true(parts.n_stresses == 2 && parts.n_force_components == whole.n_force_components);
    assert_int_equal(whole.n_force_components, 3 * (3 + (4 - 1) + (3 - 1) + 3)); // not of frame 0, nor of two fixed atoms
    assert_true(fabs(parts.force_absolute - whole.force_absolute) <= 1e-13 * whole.force_absolute);
    assert_true(fabs(parts.energy_square - whole.energy_square) <= 1e-13 * whole.energy_square);
    more.finite = false;
    train_sums_add(&parts, &more);
    assert_false(parts.finite);
    train_batch_free(&batch);
    train_set_free(set);
    train_frames_free(&frames);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_terms), cmocka_unit_test(test_ranges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
