// SPDX-License-Identifier: MIT
// Training gradients of PaiNN in float64: against central differences of the loss in the weights, and properties that hold exactly.
#include "train_support.h"

#include "model/painn/train/painn_gradient.h"

typedef struct setting {
    const char *name, *basis, *cutoff_function;
    int shared, softplus;
} setting;

static const setting settings[] = {
    {"Gaussian, cosine", "gaussian", "cosine", 0, 0},
    {"Bessel, mollifier", "bessel", "mollifier", 0, 0},
    {"shared weights, shifted softplus", "gaussian", "cosine", 1, 1},
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static mlff_model *small_model(const setting *s)
{
    const char *shared = s->shared ? "true" : "false";
    mlff_model *model;
    assert_ok(support_create(&model, "painn",
                             "n_features=6; n_layers=3; n_radial=5; cutoff=3.5; radial_basis=%s; cutoff_function=%s; "
                             "shared_filters=%s; shared_interactions=%s; seed=5",
                             s->basis, s->cutoff_function, shared, shared));
    if (s->softplus) ((painn_parameters *)model->parameters)->activation = PAINN_SHIFTED_SOFTPLUS;
    return model;
}

// A free molecule, a triclinic cell shorter than the cutoff (self-images), one atom alone.
static void add_structures(train_frames *frames)
{
    train_frames_add(frames, support_random_system(7, 0, 1.0, 1), 0, 1);
    train_frames_add(frames, support_random_system(2, 1, 1.6, 2), 0, 2);
    train_frames_add(frames, support_random_system(1, 0, 1.0, 3), 0, 3);
}

typedef struct term {
    const char *name;
    mlff_loss loss;
} term;

static const term terms[] = {
    {"energies", {.energy_weight = 1}},        {"energies per atom", {.energy_weight = 1, .energy_per_atom = 1}},
    {"forces", {.forces_weight = 1}},          {"forces, Huber", {.forces_weight = 1, .huber_forces = 1.5}},
    {"stress", {.stress_weight = 1}},          {"atomic energies", {.atom_energies_weight = 1}},
    {"Hessian probes", {.hessian_weight = 1}}, {"all", {0.3, 1, 2, 0.5, 0.2, 1, 1.5}},
};
enum { N_TERMS = sizeof terms / sizeof *terms };

// ---- central differences ------------------------------------------------------------------------------------------------

static double loss_at(train_backend *backend, const train_set *set, const mlff_loss *loss, const double *weights)
{
    train_sums sums;
    assert_ok(backend->set(backend, TRAIN_AVERAGE, weights));
    assert_ok(backend->evaluate(backend, set, loss, &sums));
    return sums.loss;
}

// Derivative of the loss along `direction` of one tensor, error of order h⁴.
static double by_difference(train_backend *backend, const train_set *set, const mlff_loss *loss, double *weights,
                            const train_tensor *tensor, const double *direction, double h)
{
    double value[4];
    static const double step[4] = {-2, -1, 1, 2};
    double *moved = malloc(sizeof(double) * (size_t)backend->layout.n_parameters);
    for (int s = 0; s < 4; s++) {
        memcpy(moved, weights, sizeof(double) * (size_t)backend->layout.n_parameters);
        for (int64_t k = 0; k < tensor->n_elements; k++) moved[tensor->offset + k] += h * step[s] * direction[k];
        value[s] = loss_at(backend, set, loss, moved);
    }
    free(moved);
    return (8 * (value[2] - value[1]) - (value[3] - value[0])) / (12 * h);
}

// `expected` within 1e-6 of the tensor's largest element. The norm √(Σ V² + 1e-8) bends within some 1e-4 of V = 0, so the step that
// balances truncation and rounding differs: steps from 4e-4 down to 6e-6, the nearest counts.
static void check_direction(train_backend *backend, const train_set *set, const term *t, double *weights,
                            const train_tensor *tensor, const double *direction, double expected, double largest)
{
    double error = INFINITY, nearest = 0;
    for (double h = 4e-4; h > 5e-6 && !(error <= 1e-6 * largest + 1e-11); h /= 4) {
        double value = by_difference(backend, set, &t->loss, weights, tensor, direction, h);
        if (!(fabs(value - expected) < error)) continue;
        error = fabs(value - expected);
        nearest = value;
    }
    if (!(error <= 1e-6 * largest + 1e-11))
        fail_msg("%s, %s: gradient %.12g, by differences %.12g, largest element %.3g", t->name, tensor->name, expected, nearest,
                 largest);
}

// A random direction of each tensor, which sees all its elements, and its largest element alone.
static void check_tensor(train_backend *backend, const train_set *set, const term *t, double *weights, const double *gradient,
                         int index)
{
    const train_tensor *tensor = &backend->layout.tensors[index];
    const double *part = gradient + tensor->offset;
    double *direction = calloc((size_t)tensor->n_elements, sizeof *direction);
    double largest = support_largest(part, (size_t)tensor->n_elements), along = 0;
    int64_t at = 0;
    for (int64_t k = 0; k < tensor->n_elements; k++) {
        direction[k] = base_random_normal(77, (uint64_t)index, (uint64_t)k) / sqrt((double)tensor->n_elements);
        along += direction[k] * part[k];
        if (fabs(part[k]) > fabs(part[at])) at = k;
    }
    check_direction(backend, set, t, weights, tensor, direction, along, largest);
    memset(direction, 0, sizeof *direction * (size_t)tensor->n_elements);
    direction[at] = 1;
    check_direction(backend, set, t, weights, tensor, direction, part[at], largest);
    free(direction);
}

static void test_central_differences(void **state)
{
    (void)state;
    for (int s = 0; s < N_SETTINGS; s++) {
        mlff_model *model = small_model(&settings[s]);
        train_backend *backend = train_support_backend(model, MLFF_FLOAT64, 1, NULL);
        double *weights = train_support_weights(backend, 0.1, 9);
        train_frames frames = {0};
        add_structures(&frames);
        mlff_system *probed = support_random_system(4, 0, 1.1, 7);
        train_frames_add_probe(&frames, probed, 0.01, 8);
        train_set *set = train_frames_set(&frames, model);
        assert_ok(backend->set(backend, TRAIN_WEIGHTS, weights));
        for (int t = 0; t < N_TERMS; t++) {
            if (SUPPORT_SANITIZED && t % 4 != 3) continue;
            double loss, again = loss_at(backend, set, &terms[t].loss, weights);
            double *gradient = train_support_gradient(backend, set, &terms[t].loss, &loss);
            assert_true(loss > 0 && fabs(loss - again) <= 1e-13 * loss);
            for (int k = 0; k < backend->layout.n_tensors; k++) check_tensor(backend, set, &terms[t], weights, gradient, k);
            free(gradient);
        }
        train_set_free(set);
        mlff_system_destroy(probed);
        train_frames_free(&frames);
        free(weights);
        backend->destroy(backend);
        mlff_model_destroy(model);
    }
}

// ---- exact properties ---------------------------------------------------------------------------------------------------

// Σ ε̇_i = Σ g·w: the tangent of the energy along w is the energy's gradient along w.
static void test_energy_tangent(void **state)
{
    (void)state;
    mlff_model *model = small_model(&settings[0]);
    train_layout layout;
    painn_trainable trainable;
    painn_gradient *gradient;
    assert_ok(painn_trainable_create(model, &layout, &trainable));
    assert_ok(painn_gradient_create(model->parameters, &trainable, &gradient));
    double *weights = calloc((size_t)layout.n_parameters, sizeof(double)),
           *total = calloc((size_t)layout.n_parameters, sizeof(double));
    train_layout_read(&layout, model, weights);
    train_frames frames = {0};
    add_structures(&frames);
    train_set *set = train_frames_set(&frames, model);
    for (int k = 0; k < 2; k++) {
        int64_t atom = set->first_atom[k], pair = set->first_pair[atom], n_pairs = set->first_pair[set->first_atom[k + 1]] - pair;
        painn_gradient_frame frame = {(int)(set->first_atom[k + 1] - atom), set->species + atom, set->first_pair + atom,
                                      set->neighbor + pair, set->vectors + 3 * pair};
        double energy[8], tangent[8], c[8] = {0}, sum = 0, expected = 0, size = 0;
        double *g = calloc(3 * (size_t)n_pairs, sizeof *g), *w = calloc(3 * (size_t)n_pairs, sizeof *w);
        for (int64_t a = 0; a < 3 * n_pairs; a++) w[a] = base_random_normal(4, 0, (uint64_t)a);
        assert_ok(painn_gradient_base(gradient, &frame, weights, energy, g));
        assert_ok(painn_gradient_add(gradient, &frame, weights, c, w, total, tangent));
        for (int i = 0; i < frame.n_atoms; i++) sum += tangent[i];
        for (int64_t a = 0; a < 3 * n_pairs; a++) {
            expected += g[a] * w[a];
            size += fabs(g[a] * w[a]);
        }
        assert_true(n_pairs > 0 && fabs(sum - expected) <= 1e-12 * size);
        free(g);
        free(w);
    }
    train_set_free(set);
    train_frames_free(&frames);
    free(weights);
    free(total);
    painn_gradient_destroy(gradient);
    train_layout_free(&layout);
    mlff_model_destroy(model);
}

static const double *tensor_of(const train_backend *backend, const double *gradient, const char *name)
{
    for (int k = 0; k < backend->layout.n_tensors; k++)
        if (strcmp(backend->layout.tensors[k].name, name) == 0) return gradient + backend->layout.tensors[k].offset;
    fail_msg("no tensor %s", name);
    return NULL;
}

static void assert_zero(const double *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        if (x[k] != 0) fail_msg("element %d is %g", (int)k, x[k]);
}

// μ⁰ = 0 and the last layer's μ is not used: these rows cannot matter. Nor can elements that do not occur.
static void test_dead_parameters(void **state)
{
    (void)state;
    mlff_model *model = small_model(&settings[0]);
    train_backend *backend = train_support_backend(model, MLFF_FLOAT64, 1, NULL);
    train_frames frames = {0};
    add_structures(&frames);
    train_set *set = train_frames_set(&frames, model);
    double loss, *gradient = train_support_gradient(backend, set, &terms[N_TERMS - 1].loss, &loss);
    const int F = 6, K = 5;
    assert_zero(tensor_of(backend, gradient, "representation.filter_net.weight") + 2 * F * K, F * K);
    assert_zero(tensor_of(backend, gradient, "representation.filter_net.bias") + 2 * F, F);
    assert_zero(tensor_of(backend, gradient, "representation.interactions.0.interatomic_context_net.1.weight") + 2 * F * F,
                F * F);
    assert_zero(tensor_of(backend, gradient, "representation.interactions.0.interatomic_context_net.1.bias") + 2 * F, F);
    assert_zero(tensor_of(backend, gradient, "representation.mixing.2.intraatomic_context_net.1.weight") + F * F, F * F);
    assert_zero(tensor_of(backend, gradient, "representation.mixing.2.intraatomic_context_net.1.bias") + F, F);
    const double *embedding = tensor_of(backend, gradient, "representation.embedding.weight");
    assert_zero(embedding + 2 * F, 4 * F); // He to B
    assert_true(support_largest(embedding + set->species[0] * F, F) > 0);
    free(gradient);
    train_set_free(set);
    train_frames_free(&frames);
    backend->destroy(backend);
    mlff_model_destroy(model);
}

static void rotate_frame(train_frames *frames, int64_t k, const double q[9])
{
    mlff_system *system = frames->systems[k];
    support_rotate(q, system->positions, system->positions, system->n_atoms);
    support_rotate(q, system->cell, system->cell, 3);
    support_rotate(q, frames->arrays[k][0], frames->arrays[k][0], system->n_atoms);
    static const int full[9] = {0, 5, 4, 5, 1, 3, 4, 3, 2}, voigt[6] = {0, 4, 8, 5, 2, 1};
    double *stress = frames->arrays[k][1], turned[9] = {0};
    for (int a = 0; a < 9; a++)
        for (int c = 0; c < 9; c++) turned[a] += q[3 * (a / 3) + c / 3] * stress[full[c]] * q[3 * (a % 3) + c % 3];
    for (int a = 0; a < 6; a++) stress[a] = turned[voigt[a]];
}

// Rotated and mirrored structures with rotated labels have the same gradient.
static void test_rotations(void **state)
{
    (void)state;
    mlff_model *model = small_model(&settings[0]);
    train_backend *backend = train_support_backend(model, MLFF_FLOAT64, 1, NULL);
    double *expected = NULL, size = 0;
    for (int turn = 0; turn < 4; turn++) {
        train_frames frames = {0};
        add_structures(&frames);
        double q[9];
        support_random_orthogonal((uint64_t)turn, turn % 2, q);
        for (int64_t k = 0; turn && k < frames.n; k++) rotate_frame(&frames, k, q);
        train_set *set = train_frames_set(&frames, model);
        double loss, *gradient = train_support_gradient(backend, set, &terms[N_TERMS - 1].loss, &loss);
        if (turn) {
            double difference = support_difference(gradient, expected, (size_t)backend->layout.n_parameters);
            if (difference > 1e-12 * size) fail_msg("rotation %d: off by %.3g of %.3g", turn, difference, size);
            free(gradient);
        } else {
            expected = gradient;
            size = support_largest(gradient, (size_t)backend->layout.n_parameters);
        }
        train_set_free(set);
        train_frames_free(&frames);
    }
    free(expected);
    backend->destroy(backend);
    mlff_model_destroy(model);
}

// Moved as a whole, a molecule's forces stay: a probe along a translation has the product 0, as its label, and no gradient. Along a random
// direction neither is 0.
static void test_translation_as_probe(void **state)
{
    (void)state;
    mlff_model *model = small_model(&settings[0]);
    train_backend *backend = train_support_backend(model, MLFF_FLOAT64, 1, NULL);
    mlff_system *molecule = support_random_system(7, 0, 1.0, 1);
    const double h = 0.01;
    double found[2], size[2];
    for (int translated = 0; translated < 2; translated++) {
        train_frames frames = {0};
        train_frames_add_probe(&frames, molecule, h, 8);
        for (int a = 0; a < 3 * molecule->n_atoms && translated; a++) {
            static const double along[3] = {0.6, -0.48, 0.64};
            for (int side = 0; side < 2; side++)
                frames.systems[side]->positions[a] = molecule->positions[a] + (side ? -h : h) * along[a % 3];
            frames.arrays[1][0][a] = frames.arrays[0][0][a];
        }
        train_set *set = train_frames_set(&frames, model);
        double *gradient = train_support_gradient(backend, set, &(mlff_loss){.hessian_weight = 1}, &found[translated]);
        size[translated] = support_largest(gradient, (size_t)backend->layout.n_parameters);
        free(gradient);
        train_set_free(set);
        train_frames_free(&frames);
    }
    assert_true(found[0] > 1e-3 && size[0] > 1e-3);
    // Differences of forces of some eV/Å, 1e-15 of them by rounding, over 2h: 1e-13, squared in the loss.
    if (!(found[1] < 1e-22 && size[1] < 1e-9 * size[0]))
        fail_msg("translated: loss %.3g, gradient %.3g of %.3g", found[1], size[1], size[0]);
    mlff_system_destroy(molecule);
    backend->destroy(backend);
    mlff_model_destroy(model);
}

// Energy and stress terms are means over structures, force and atom terms over atoms.
static void test_batch_is_sum_of_singles(void **state)
{
    (void)state;
    mlff_model *model = small_model(&settings[1]);
    train_backend *backend = train_support_backend(model, MLFF_FLOAT64, 1, NULL);
    train_frames frames = {0};
    add_structures(&frames);
    train_set *set = train_frames_set(&frames, model);
    size_t n = (size_t)backend->layout.n_parameters;
    double *single = calloc(n, sizeof *single), *sum = calloc(n, sizeof *sum);
    for (int t = 0; t < N_TERMS - 2; t++) {
        bool by_frame = terms[t].loss.energy_weight > 0 || terms[t].loss.stress_weight > 0;
        double loss, part, total = 0, *gradient = train_support_gradient(backend, set, &terms[t].loss, &loss);
        memset(sum, 0, sizeof *sum * n);
        for (int32_t k = 0; k < set->n_frames; k++) {
            double share = by_frame ? 1.0 / (double)set->n_frames
                                    : (double)(set->first_atom[k + 1] - set->first_atom[k]) / (double)set->n_atoms;
            assert_ok(backend->gradient(backend, &k, 1, &terms[t].loss, single, &part));
            for (size_t a = 0; a < n; a++) sum[a] += share * single[a];
            total += share * part;
        }
        assert_true(fabs(total - loss) <= 1e-13 * loss);
        double size = support_largest(sum, n), difference = support_difference(gradient, sum, n);
        if (!(difference <= 1e-13 * size)) fail_msg("%s: off by %.3g of %.3g", terms[t].name, difference, size);
        free(gradient);
    }
    free(single);
    free(sum);
    train_set_free(set);
    train_frames_free(&frames);
    backend->destroy(backend);
    mlff_model_destroy(model);
}

// Predictions are the evaluator's: evaluate() gives the errors of its energies, forces and stress.
static void test_evaluate_is_the_evaluator(void **state)
{
    (void)state;
    mlff_model *model = small_model(&settings[1]);
    train_backend *backend = train_support_backend(model, MLFF_FLOAT64, 1, NULL);
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT64);
    train_frames frames = {0};
    add_structures(&frames);
    train_set *set = train_frames_set(&frames, model);
    train_sums sums, expected = {0};
    assert_ok(backend->evaluate(backend, set, &terms[0].loss, &sums));
    for (int64_t k = 0; k < frames.n; k++) {
        int n = frames.systems[k]->n_atoms;
        support_results r = support_compute_system(evaluator, frames.systems[k]);
        double delta = (r.r.energies[0] - frames.labels[k].energy) / n;
        expected.energy_absolute += fabs(delta);
        expected.energy_square += delta * delta;
        for (int a = 0; a < 3 * n; a++) {
            double error = r.r.forces[a] - frames.labels[k].forces[a];
            expected.force_by_element[frames.systems[k]->species[a / 3]] += fabs(error);
            expected.n_by_element[frames.systems[k]->species[a / 3]]++;
            expected.force_absolute += fabs(error);
            expected.force_square += error * error;
        }
        for (int a = 0; frames.labels[k].stress && a < 6; a++)
            expected.stress_absolute += fabs(r.r.stresses[a] - frames.labels[k].stress[a]);
        support_results_free(&r);
    }
    assert_true(sums.finite && sums.n_steps == 1 && sums.n_frames == 3 && sums.n_atoms == set->n_atoms);
    assert_true(sums.n_energies == 3 && sums.n_force_components == 3 * set->n_atoms && sums.n_stresses == 1);
    const double pairs[][2] = {{sums.energy_absolute, expected.energy_absolute},
                               {sums.energy_square, expected.energy_square},
                               {sums.force_absolute, expected.force_absolute},
                               {sums.force_square, expected.force_square},
                               {sums.stress_absolute, expected.stress_absolute}};
    for (int k = 0; k < 5; k++)
        if (!(fabs(pairs[k][0] - pairs[k][1]) <= 1e-12 * pairs[k][1]))
            fail_msg("sum %d: %.15g, expected %.15g", k, pairs[k][0], pairs[k][1]);
    int n_elements = 0;
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        n_elements += sums.n_by_element[z] > 0;
        assert_int_equal(sums.n_by_element[z], expected.n_by_element[z]);
        assert_true(fabs(sums.force_by_element[z] - expected.force_by_element[z]) <= 1e-12 * expected.force_absolute);
    }
    assert_true(n_elements > 1);
    train_set_free(set);
    train_frames_free(&frames);
    mlff_evaluator_destroy(evaluator);
    backend->destroy(backend);
    mlff_model_destroy(model);
}

// Three steps of AdamW with clipping and average against the formula, element by element.
static void test_step(void **state)
{
    (void)state;
    mlff_model *model = small_model(&settings[0]);
    train_backend *backend = train_support_backend(model, MLFF_FLOAT64, 1, NULL);
    train_frames frames = {0};
    add_structures(&frames);
    train_set *set = train_frames_set(&frames, model);
    size_t n = (size_t)backend->layout.n_parameters;
    double *w = train_support_weights(backend, 0, 0), *average = train_support_weights(backend, 0, 0), loss, total = 0;
    double *m = calloc(n, sizeof *m), *v = calloc(n, sizeof *v), *got = calloc(n, sizeof *got);
    int32_t batch[3] = {2, 0, 1};
    assert_ok(backend->set_data(backend, set));
    for (int s = 1; s <= 3; s++) {
        double *g = calloc(n, sizeof *g), square = 0;
        train_update u = {.learning_rate = 0.01,
                          .beta1 = 0.9,
                          .beta2 = 0.99,
                          .epsilon = 1e-8,
                          .weight_decay = 0.1,
                          .clip = 0.5,
                          .average = 0.9,
                          .correction1 = 1 - pow(0.9, s),
                          .correction2 = 1 - pow(0.99, s)};
        assert_ok(backend->gradient(backend, batch, 3, &terms[N_TERMS - 1].loss, g, &loss));
        total += loss;
        for (size_t k = 0; k < n; k++) square += g[k] * g[k];
        assert_true(sqrt(square) > u.clip);
        for (int t = 0; t < backend->layout.n_tensors; t++) {
            const train_tensor *tensor = &backend->layout.tensors[t];
            for (int64_t k = tensor->offset; k < tensor->offset + tensor->n_elements; k++) {
                double grad = g[k] * u.clip / sqrt(square);
                m[k] = 0.9 * m[k] + 0.1 * grad;
                v[k] = 0.99 * v[k] + 0.01 * grad * grad;
                if (tensor->decays) w[k] -= 0.01 * 0.1 * w[k];
                w[k] -= 0.01 * (m[k] / u.correction1) / (sqrt(v[k] / u.correction2) + 1e-8);
                average[k] = 0.9 * average[k] + 0.1 * w[k];
            }
        }
        assert_ok(backend->step(backend, batch, 3, &terms[N_TERMS - 1].loss, &u));
        free(g);
        assert_ok(backend->get(backend, TRAIN_WEIGHTS, got));
        assert_true(support_difference(got, w, n) <= 1e-13);
        assert_ok(backend->get(backend, TRAIN_AVERAGE, got));
        assert_true(support_difference(got, average, n) <= 1e-13);
    }
    train_sums sums;
    assert_ok(backend->sums(backend, &sums));
    assert_true(sums.finite && sums.n_steps == 3 && sums.n_frames == 9 && fabs(sums.loss - total) <= 1e-12 * total);
    // Weights that give no finite loss stay as they are.
    for (size_t k = 0; k < n; k++) got[k] = 1e300;
    assert_ok(backend->set(backend, TRAIN_WEIGHTS, got));
    train_update u = {.learning_rate = 1, .correction1 = 1, .correction2 = 1};
    assert_ok(backend->step(backend, batch, 3, &terms[N_TERMS - 1].loss, &u));
    assert_ok(backend->get(backend, TRAIN_WEIGHTS, w));
    assert_memory_equal(w, got, sizeof *w * n);
    assert_ok(backend->sums(backend, &sums));
    assert_true(!sums.finite && sums.n_steps == 1);
    free(w);
    free(average);
    free(m);
    free(v);
    free(got);
    train_set_free(set);
    train_frames_free(&frames);
    backend->destroy(backend);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_central_differences),       cmocka_unit_test(test_energy_tangent),
        cmocka_unit_test(test_dead_parameters),           cmocka_unit_test(test_rotations),
        cmocka_unit_test(test_translation_as_probe),      cmocka_unit_test(test_batch_is_sum_of_singles),
        cmocka_unit_test(test_evaluate_is_the_evaluator), cmocka_unit_test(test_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
