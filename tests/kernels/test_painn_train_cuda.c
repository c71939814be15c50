// SPDX-License-Identifier: MIT
// The training backend of the GPU, a real one or the emulated one of MLFF_CUDA_PLUGIN, against the float64 reference: gradients,
// losses, steps, evaluate(); the same bits each time; no allocation after the first batch.
#include <dlfcn.h>

#include "emulate/emulate.h"
#include "gpu_support.h"
#include "train_support.h"

#include "model/painn/painn.h"
#include "model/training/soap.h"

// Relative L2 error of a gradient: products of numbers split in two, float32 sums of some 10² to 10³ terms.
#define TOLERANCE 2e-6

static const mlff_loss all_terms = {0.3, 1, 2, 0.5, 0.2, 1, 1.5};

typedef struct setting {
    const char *name;
    int n_features, n_layers;
    const char *basis, *cutoff_function;
    int shared, softplus, n_radial;
} setting;

static const setting settings[] = {
    {"32 features", 32, 2, "gaussian", "cosine", 0, 0, 20},
    {"64 features, Bessel, mollifier", 64, 2, "bessel", "mollifier", 0, 0, 24},
    {"shared weights, softplus", 32, 3, "gaussian", "mollifier", 1, 1, 7},
    {"128 features, one layer", 128, 1, "bessel", "cosine", 0, 0, 20},
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };
// All kernels of a chain of products, with blocks of 32 features.
static const setting two_layers = {"128 features, two layers", 128, 2, "gaussian", "cosine", 0, 0, 20};

static mlff_model *model_of(const setting *s)
{
    const char *shared = s->shared ? "true" : "false";
    mlff_model *model;
    assert_ok(support_create(&model, "painn",
                             "n_features=%d; n_layers=%d; n_radial=%d; cutoff=4; radial_basis=%s; cutoff_function=%s; "
                             "shared_filters=%s; shared_interactions=%s; seed=5",
                             s->n_features, s->n_layers, s->n_radial, s->basis, s->cutoff_function, shared, shared));
    if (s->softplus) ((painn_parameters *)model->parameters)->activation = PAINN_SHIFTED_SOFTPLUS;
    return model;
}

static train_backend *gpu_backend(const mlff_model *model, mlff_precision precision)
{
    train_backend_options options = {.device = {MLFF_CUDA, 0}, .precision = precision};
    train_backend *backend;
    assert_ok(model->architecture->create_train_backend(model, &options, &backend));
    return backend;
}

// A ragged batch: molecules, a triclinic cell with self-images, one atom alone, a Hessian probe.
static void add_structures(train_frames *frames)
{
    for (int k = 0; k < 3; k++)
        train_frames_add(frames, support_random_system(4 + 3 * k, k == 1, 1.0, (uint64_t)k), 0, (uint64_t)k);
    train_frames_add(frames, support_random_system(2, 1, 1.6, 20), 0, 20);
    train_frames_add(frames, support_random_system(1, 0, 1.0, 21), 0, 21);
    mlff_system *probed = support_random_system(5, 0, 1.1, 30);
    train_frames_add_probe(frames, probed, 0.02, 30);
    mlff_system_destroy(probed);
    train_frames_constrain(frames, 0);
    train_frames_constrain(frames, frames->n - 1); // of a probe
}

// More than 32 atoms a structure, one with more than a block's threads take at once, and a Hessian probe.
static void add_large_structures(train_frames *frames)
{
    train_frames_add(frames, support_random_system(70, 0, 1.3, 40), 0, 40);
    train_frames_add(frames, support_random_system(40, 1, 1.3, 41), 0, 41);
    mlff_system *probed = support_random_system(36, 0, 1.3, 42);
    train_frames_add_probe(frames, probed, 0.02, 42);
    mlff_system_destroy(probed);
    train_frames_constrain(frames, 0);
}

static void add_ethanols_of(train_frames *frames, uint64_t n)
{
    for (uint64_t k = 0; k < n; k++) {
        mlff_system *system;
        assert_ok(mlff_system_build("ethanol", 0, 0, &system));
        assert_ok(mlff_system_perturb(system, 600, k));
        train_frames_add(frames, system, 0, k);
    }
}

static void add_ethanols(train_frames *frames)
{
    add_ethanols_of(frames, 3);
}

// Fewer than 8 atoms for each multiprocessor, with 128 features in more clusters than run at once.
static void add_some_ethanols(train_frames *frames)
{
    mlff_device_info info = {.struct_size = sizeof info};
    assert_ok(mlff_device_info_get((mlff_device){MLFF_CUDA, 0}, &info));
    add_ethanols_of(frames, 6 * (uint64_t)info.n_multiprocessors / 9);
}

static void add_ethanols_of_multiprocessors(train_frames *frames, uint64_t atoms)
{
    mlff_device_info info = {.struct_size = sizeof info};
    assert_ok(mlff_device_info_get((mlff_device){MLFF_CUDA, 0}, &info));
    add_ethanols_of(frames, atoms * (uint64_t)info.n_multiprocessors / 9 + 1);
}

// More than 8 atoms for each multiprocessor: two branches of the graph.
static void add_many_ethanols(train_frames *frames)
{
    add_ethanols_of_multiprocessors(frames, 8);
}

// More than 18 in each branch: matrix products at atoms have a kernel each.
static void add_more_ethanols(train_frames *frames)
{
    add_ethanols_of_multiprocessors(frames, 38);
}

// For the products of large batches: so many that not all blocks run at once.
static void add_most_ethanols(train_frames *frames)
{
    add_ethanols_of_multiprocessors(frames, 130);
}

static void add_large_structure(train_frames *frames)
{
    mlff_device_info info = {.struct_size = sizeof info};
    assert_ok(mlff_device_info_get((mlff_device){MLFF_CUDA, 0}, &info));
    train_frames_add(frames, support_random_system(8 * (int)info.n_multiprocessors + 1, 1, 1.3, 43), 0, 43);
}

// One branch of the graph has nearly all atoms; or all of them, and the other has no structure.
static void add_large_first(train_frames *frames)
{
    add_large_structure(frames);
    add_ethanols_of(frames, 1);
}
static void add_large_last(train_frames *frames)
{
    add_ethanols_of(frames, 1);
    add_large_structure(frames);
}

// Of TF32 against float32, with the same weights; NULL: the model's.
static void check_tf32(const mlff_model *model, const train_set *set, const double *weights, const double *gradient)
{
    train_backend *backend = gpu_backend(model, MLFF_TF32);
    double loss;
    if (weights) assert_ok(backend->set(backend, TRAIN_WEIGHTS, weights));
    double *in_tf32 = train_support_gradient(backend, set, &all_terms, &loss);
    const double error = train_support_error(in_tf32, gradient, (size_t)backend->layout.n_parameters);
    printf("TF32, %d structures: relative error of the gradient %.1e\n", (int)set->n_frames, error);
    assert_true(error > 1e-6 && error < 2e-2);
    free(in_tf32);
    backend->destroy(backend);
}

static void check_gradients(const setting *s, void (*fill)(train_frames *frames), bool well_conditioned, bool also_tf32)
{
    mlff_model *model = model_of(s);
    train_backend *reference = train_support_backend(model, MLFF_FLOAT64, 1, NULL), *backend = gpu_backend(model, MLFF_FLOAT32);
    double *weights = train_support_weights(reference, 0.02, 9), loss, expected_loss;
    size_t n = (size_t)reference->layout.n_parameters;
    train_frames frames = {0};
    fill(&frames);
    train_set *set = train_frames_set(&frames, model);
    assert_ok(reference->set(reference, TRAIN_WEIGHTS, weights));
    assert_ok(backend->set(backend, TRAIN_WEIGHTS, weights));
    double *expected = train_support_gradient(reference, set, &all_terms, &expected_loss);
    double sensitivity = train_support_sensitivity(reference, set, &all_terms, weights, expected);
    double *gradient = train_support_gradient(backend, set, &all_terms, &loss);
    double error = train_support_error(gradient, expected, n);
    printf("%s: relative error of the gradient %.1e (weights' rounding: %.1e), of the loss %.1e\n", s->name, error, sensitivity,
           fabs(loss - expected_loss) / expected_loss);
    assert_true(fabs(loss - expected_loss) <= 2e-6 * expected_loss);
    train_support_check_tensors(s->name, &backend->layout, gradient, expected, fmax(2e-5, 40 * sensitivity));
    assert_true(error <= (well_conditioned ? TOLERANCE : fmax(TOLERANCE, 8 * sensitivity)));
    if (also_tf32) check_tf32(model, set, weights, gradient);
    free(gradient);
    free(expected);
    free(weights);
    train_set_free(set);
    train_frames_free(&frames);
    backend->destroy(backend);
    reference->destroy(reference);
    mlff_model_destroy(model);
}

static void check_gradient(const setting *s, void (*fill)(train_frames *frames), bool well_conditioned)
{
    check_gradients(s, fill, well_conditioned, false);
}

static void test_gradient(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    for (int s = 0; s < N_SETTINGS; s++) check_gradient(&settings[s], add_structures, false);
}

static void test_gradient_of_large_structures(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    check_gradient(&settings[0], add_large_structures, false);
}

static void test_gradient_of_molecules(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    for (int s = 0; s < N_SETTINGS; s++) check_gradient(&settings[s], add_ethanols, true);
}

static void test_gradient_of_medium_batches(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    check_gradient(&two_layers, add_some_ethanols, true);
}

// Kernels of the first gradient, on the emulated GPU; -1 on another, which does not count them.
static int64_t count_launches(const setting *s)
{
    void *library = dlopen(getenv("MLFF_CUDA_PLUGIN"), RTLD_NOW | RTLD_LOCAL),
         *symbol = library ? dlsym(library, "emulate_counts_get") : NULL;
    emulate_counts_function counts_get;
    emulate_counts before, after;
    if (!library) fail_msg("%s", dlerror());
    if (!symbol) return -1;
    memcpy(&counts_get, &symbol, sizeof counts_get);
    mlff_model *model = model_of(s);
    train_backend *backend = gpu_backend(model, MLFF_FLOAT32);
    train_frames frames = {0};
    add_ethanols(&frames);
    train_set *set = train_frames_set(&frames, model);
    double loss;
    counts_get(&before);
    free(train_support_gradient(backend, set, &all_terms, &loss));
    counts_get(&after);
    train_set_free(set);
    train_frames_free(&frames);
    backend->destroy(backend);
    mlff_model_destroy(model);
    dlclose(library);
    return after.launches - before.launches;
}

// A chain of products is one kernel where a block may have the shared memory: where that is 99 kB (compute capability 12.0) with 64 features,
// not with 128.
static void test_chains(void **state)
{
    (void)state;
    const setting *const few = &settings[1];
    if (!getenv("MLFF_CUDA_PLUGIN") || !have_gpu()) return;
    const char *capability = getenv("MLFF_EMULATE_CAPABILITY");
    const int64_t with_few = count_launches(few), with_many = count_launches(&two_layers);
    if (with_few < 0) {
        printf("skipped: launches are counted on the emulated GPU\n");
        return;
    }
    if (!capability) {
        assert_int_equal(with_few, with_many);
        return;
    }
    assert_string_equal(capability, "12.0");
    assert_true(with_few < with_many);
    check_gradient(few, add_ethanols, true);
    check_gradient(&settings[3], add_ethanols, true);
}

static void test_gradient_of_large_batches(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    check_gradient(&settings[1], add_more_ethanols, true);
    check_gradients(&settings[3], add_more_ethanols, true, true);
}

static void test_gradient_of_two_branches(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    check_gradient(&settings[3], add_many_ethanols, true);
    check_gradient(&settings[0], add_large_first, false);
    check_gradient(&settings[0], add_large_last, false);
}

// TF32 where not all blocks run at once; too slow for the emulated GPU, which has it in test_gradient_of_large_batches.
static void test_tf32_of_largest_batches(void **state)
{
    (void)state;
    if (!have_gpu() || gpu_is_emulated()) return;
    mlff_model *model = model_of(&settings[3]);
    train_frames frames = {0};
    add_most_ethanols(&frames);
    train_set *set = train_frames_set(&frames, model);
    train_backend *backend = gpu_backend(model, MLFF_FLOAT32);
    double loss, *gradient = train_support_gradient(backend, set, &all_terms, &loss);
    check_tf32(model, set, NULL, gradient);
    free(gradient);
    backend->destroy(backend);
    train_set_free(set);
    train_frames_free(&frames);
    mlff_model_destroy(model);
}

// 20 steps, sums and evaluate() as those of the CPU backend. Adam divides by the gradient's size, so that relative errors of small
// elements count: the weights' way agrees to 5e-3 of its length.
static void test_steps(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    enum { STEPS = 20 };
    mlff_model *model = model_of(&settings[0]);
    train_frames frames = {0};
    add_structures(&frames);
    train_set *set = train_frames_set(&frames, model);
    train_backend *backends[2] = {train_support_backend(model, MLFF_FLOAT32, 2, NULL), gpu_backend(model, MLFF_FLOAT32)};
    size_t n = (size_t)backends[0]->layout.n_parameters;
    double *weights[2], *start = train_support_weights(backends[0], 0, 0);
    train_sums sums[2], errors[2], again;
    for (int b = 0; b < 2; b++) {
        static const int32_t batches[2][4] = {{5, 6, 0, 4}, {3, 1, 2, 0}};
        weights[b] = calloc(n, sizeof(double));
        assert_ok(backends[b]->set_data(backends[b], set));
        for (int s = 1; s <= STEPS; s++) {
            const train_update u = train_support_update(s, 0.1);
            assert_ok(backends[b]->step(backends[b], batches[s % 2], s % 3 ? 4 : 3, &all_terms, &u));
        }
        assert_ok(backends[b]->sums(backends[b], &sums[b]));
        assert_ok(backends[b]->evaluate(backends[b], set, &all_terms, &errors[b]));
        assert_ok(backends[b]->get(backends[b], TRAIN_WEIGHTS, weights[b]));
    }
    const double pairs[][2] = {{sums[0].loss, sums[1].loss},
                               {sums[0].energy_absolute, sums[1].energy_absolute},
                               {sums[0].force_square, sums[1].force_square},
                               {errors[0].loss, errors[1].loss},
                               {errors[0].energy_square, errors[1].energy_square},
                               {errors[0].force_absolute, errors[1].force_absolute},
                               {errors[0].stress_absolute, errors[1].stress_absolute}};
    for (int k = 0; k < 7; k++)
        if (!(fabs(pairs[k][0] - pairs[k][1]) <= 2e-4 * pairs[k][0]))
            fail_msg("sum %d: %.12g, CPU %.12g", k, pairs[k][1], pairs[k][0]);
    assert_true(sums[1].finite && sums[1].n_steps == STEPS && sums[1].n_frames == sums[0].n_frames);
    assert_true(sums[1].n_atoms == sums[0].n_atoms && sums[1].n_stresses == sums[0].n_stresses);
    assert_true(sums[1].n_force_components == sums[0].n_force_components && sums[1].n_energies == sums[0].n_energies);
    assert_true(errors[1].n_steps == 1 && errors[1].n_frames == set->n_frames && errors[1].n_atoms == set->n_atoms);
    assert_ok(backends[1]->evaluate(backends[1], set, &all_terms, &again)); // begins from zeros
    assert_memory_equal(again.n_by_element, errors[1].n_by_element, sizeof again.n_by_element);
    assert_memory_equal(again.force_by_element, errors[1].force_by_element, sizeof again.force_by_element);
    assert_memory_equal(errors[1].n_by_element, errors[0].n_by_element, sizeof errors[0].n_by_element);
    double by_elements = 0;
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        by_elements += errors[1].force_by_element[z];
        assert_true(fabs(errors[1].force_by_element[z] - errors[0].force_by_element[z]) <= 2e-4 * errors[0].force_absolute);
    }
    assert_true(fabs(by_elements - errors[1].force_absolute) <= 1e-12 * errors[1].force_absolute); // the same float64 terms
    for (size_t k = 0; k < n; k++)
        for (int b = 0; b < 2; b++) weights[b][k] -= start[k];
    double error = train_support_error(weights[1], weights[0], n);
    printf("steps: %.1e of the weights' way\n", error);
    assert_true(error <= 5e-3);
    free(start);
    for (int b = 0; b < 2; b++) {
        free(weights[b]);
        backends[b]->destroy(backends[b]);
    }
    train_set_free(set);
    train_frames_free(&frames);
    mlff_model_destroy(model);
}

static train_backend *soap_backend(const mlff_model *model, mlff_device device)
{
    train_backend_options options = {.device = device, .precision = MLFF_FLOAT32, .n_threads = 2, .optimizer = MLFF_SOAP};
    train_backend *backend;
    assert_ok(cpu_path_choose(NULL, false, &options.cpu_path));
    assert_ok(model->architecture->create_train_backend(model, &options, &backend));
    return backend;
}

static void soap_step_of(train_backend *backend, int step)
{
    static const int32_t batches[2][4] = {{5, 6, 0, 4}, {3, 1, 2, 0}};
    train_update u = train_support_update(step, 0.1);
    u.soap_decay = 0.9;
    u.soap_refresh = step % 3 == 0;
    assert_ok(backend->step(backend, batches[step % 2], step % 3 ? 4 : 3, &all_terms, &u));
}

static double *vector_of(train_backend *backend, enum train_vector which)
{
    double *values = calloc((size_t)train_vector_size(backend, which), sizeof *values);
    assert_ok(backend->get(backend, which, values));
    return values;
}

// The basis of a side after its update: orthonormal, and what Gram-Schmidt makes of Z = (C + shift) Q. Where C has almost no
// eigenvalue the columns are those of rounding, and differ between devices.
static void check_basis(const soap_side *side, const double *before, const double *after)
{
    if (side->at < 0) return;
    const int n = side->n, ld = side->ld;
    const double *c = after + side->at, *old = before + side->at + (int64_t)n * ld, *basis = after + side->at + (int64_t)n * ld;
    double *z = calloc((size_t)(n * n), sizeof *z), trace = 0, largest = 0;
    for (int i = 0; i < n; i++) trace += c[i * ld + i];
    for (int k = 0; k < n; k++) {
        double square = 0;
        for (int i = 0; i < n; i++) {
            double *to = &z[i * n + k];
            *to = SOAP_SHIFT * trace / n * old[i * ld + k];
            for (int l = 0; l < n; l++) *to += c[i * ld + l] * old[l * ld + k];
            square += *to * *to;
        }
        if (square > largest) largest = square;
    }
    for (int j = 0; j < n; j++)
        for (int k = 0; k < n; k++) {
            double dot = 0, along = 0;
            for (int i = 0; i < n; i++) dot += basis[i * ld + j] * basis[i * ld + k], along += basis[i * ld + j] * z[i * n + k];
            assert_true(fabs(dot - (j == k)) <= 1e-3); // measured 2e-5 on the GPU, 1e-4 on the CPU
            if (j > k) assert_true(fabs(along) <= 1e-3 * sqrt(largest));
            if (j == k) assert_true(along >= -1e-3 * sqrt(largest));
        }
    free(z);
}

// A step of SOAP on the GPU against the same step on the CPU, from the same state.
static void compare_soap_step(train_backend *cpu, train_backend *gpu, const soap_plan *plan, int step)
{
    // Where a rotated gradient is almost 0, its rounding is large beside the root of its mean square.
    static const double tolerance[] = {1e-2, 1e-2, 1e-5, 1e-4, 1e-6};
    double *before[TRAIN_VECTORS];
    for (int which = 0; which < TRAIN_VECTORS; which++) {
        before[which] = vector_of(cpu, which);
        assert_ok(gpu->set(gpu, which, before[which]));
    }
    soap_step_of(cpu, step);
    soap_step_of(gpu, step);
    for (int which = 0; which < TRAIN_VECTORS; which++) {
        double *want = vector_of(cpu, which), *got = vector_of(gpu, which);
        const size_t n = (size_t)train_vector_size(cpu, which);
        if (which == TRAIN_SOAP && step % 3 == 0) {
            for (int k = 0; k < plan->n_matrices; k++) {
                check_basis(&plan->matrices[k].left, before[which], got);
                check_basis(&plan->matrices[k].right, before[which], got);
            }
        } else {
            for (size_t i = 0; i < n && which < TRAIN_MOMENT1; i++) want[i] -= before[which][i], got[i] -= before[which][i];
            const double error = train_support_error(got, want, n);
            if (!(error <= tolerance[which])) fail_msg("step %d of SOAP, vector %d: relative error %.1e", step, which, error);
        }
        free(want);
        free(got);
    }
    for (int which = 0; which < TRAIN_VECTORS; which++) free(before[which]);
}

static void test_soap(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    enum { STEPS = 4 };
    static const int kinds[] = {0, 3}; // sides of 32, of 128 and more
    for (int k = 0; k < 2; k++) {
        mlff_model *model = model_of(&settings[kinds[k]]);
        train_frames frames = {0};
        add_structures(&frames);
        train_set *set = train_frames_set(&frames, model);
        train_backend *cpu = soap_backend(model, (mlff_device){MLFF_CPU, 0}), *gpu[2];
        soap_plan plan;
        assert_ok(soap_plan_create(&cpu->layout, NN_PAD, &plan));
        assert_ok(cpu->set_data(cpu, set));
        for (int g = 0; g < 2; g++) {
            gpu[g] = soap_backend(model, (mlff_device){MLFF_CUDA, 0});
            assert_true(plan.n_state > 0 && gpu[g]->n_soap_values == plan.n_state);
            assert_ok(gpu[g]->set_data(gpu[g], set));
        }
        for (int s = 1; s <= STEPS; s++) compare_soap_step(cpu, gpu[0], &plan, s);
        for (int which = 0; which < TRAIN_VECTORS; which++) { // another trainer goes on from here with the same bits
            double *values = vector_of(gpu[0], which);
            assert_ok(gpu[1]->set(gpu[1], which, values));
            free(values);
        }
        for (int s = 1; s <= STEPS; s++)
            for (int g = 0; g < 2; g++) soap_step_of(gpu[g], s);
        for (int which = 0; which < TRAIN_VECTORS; which++) {
            double *one = vector_of(gpu[0], which), *two = vector_of(gpu[1], which);
            assert_memory_equal(one, two, sizeof *one * (size_t)train_vector_size(cpu, which));
            free(one);
            free(two);
        }
        soap_plan_free(&plan);
        cpu->destroy(cpu);
        for (int g = 0; g < 2; g++) gpu[g]->destroy(gpu[g]);
        train_set_free(set);
        train_frames_free(&frames);
        mlff_model_destroy(model);
    }
}

// Two trainers end in the same bits, whatever was evaluated between, and allocate nothing after the first batch.
static void test_bits_and_allocations(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    mlff_model *model = model_of(&settings[0]);
    train_frames frames = {0};
    add_structures(&frames);
    train_set *set = train_frames_set(&frames, model);
    double *expected = NULL;
    for (int turn = 0; turn < 2; turn++) {
        train_backend *backend = gpu_backend(model, turn == 0 ? MLFF_FLOAT32 : MLFF_PRECISION_DEFAULT);
        size_t n = (size_t)backend->layout.n_parameters;
        double *weights = calloc(n, sizeof *weights);
        const train_update u = train_support_update(1, 0);
        train_sums sums;
        mlff_device_memory before, after;
        int32_t batch[TRAIN_FRAMES_MAX];
        for (int k = 0; k < set->n_frames; k++) batch[k] = k;
        assert_ok(backend->set_data(backend, set));
        assert_ok(backend->step(backend, batch, (int)set->n_frames, &all_terms, &u));
        assert_ok(backend->evaluate(backend, set, &all_terms, &sums));
        assert_ok(mlff_device_memory_get((mlff_device){MLFF_CUDA, 0}, &before));
        for (int s = 0; s < 4; s++) {
            assert_ok(backend->step(backend, batch, (int)set->n_frames - s, &all_terms, &u));
            if (turn) assert_ok(backend->evaluate(backend, set, &all_terms, &sums));
        }
        assert_ok(mlff_device_memory_get((mlff_device){MLFF_CUDA, 0}, &after));
        assert_true(before.allocated > 0 && after.allocated == before.allocated);
        assert_ok(backend->get(backend, TRAIN_WEIGHTS, weights));
        if (expected)
            assert_memory_equal(weights, expected, sizeof *weights * n);
        else
            expected = weights;
        if (turn) free(weights);
        backend->destroy(backend);
    }
    free(expected);
    train_set_free(set);
    train_frames_free(&frames);
    mlff_model_destroy(model);
}

// Weights without a finite loss stay as they are, and training goes on once better ones are set. TF32 is close to float32.
static void test_not_finite_and_tf32(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    mlff_model *model = model_of(&settings[3]);
    train_frames frames = {0};
    add_ethanols(&frames);
    train_set *set = train_frames_set(&frames, model);
    train_backend *backends[2] = {gpu_backend(model, MLFF_FLOAT32), gpu_backend(model, MLFF_TF32)};
    size_t n = (size_t)backends[0]->layout.n_parameters;
    double *bad = calloc(n, sizeof *bad), *got = calloc(n, sizeof *got), *good = train_support_weights(backends[0], 0, 0), loss;
    const train_update u = train_support_update(1, 0);
    int32_t batch[3] = {0, 1, 2};
    train_sums sums;
    for (size_t k = 0; k < n; k++) bad[k] = 1e30;
    assert_ok(backends[0]->set_data(backends[0], set));
    assert_ok(backends[0]->set(backends[0], TRAIN_WEIGHTS, bad));
    assert_ok(backends[0]->step(backends[0], batch, 3, &all_terms, &u));
    assert_ok(backends[0]->get(backends[0], TRAIN_WEIGHTS, got));
    for (size_t k = 0; k < n; k++) assert_true((float)got[k] == 1e30f);
    assert_ok(backends[0]->sums(backends[0], &sums));
    assert_true(!sums.finite && sums.n_steps == 1);
    assert_ok(backends[0]->set(backends[0], TRAIN_WEIGHTS, good));
    assert_ok(backends[0]->step(backends[0], batch, 3, &all_terms, &u));
    assert_ok(backends[0]->sums(backends[0], &sums));
    assert_true(sums.finite && sums.n_steps == 1 && isfinite(sums.loss));

    assert_ok(backends[0]->set(backends[0], TRAIN_WEIGHTS, good));
    double *exact = train_support_gradient(backends[0], set, &all_terms, &loss);
    double *rounded = train_support_gradient(backends[1], set, &all_terms, &loss), error = train_support_error(rounded, exact, n);
    printf("TF32: relative error of the gradient %.1e\n", error);
    assert_true(error > 1e-6 && error < 2e-2);
    free(exact);
    free(rounded);
    free(bad);
    free(got);
    free(good);
    for (int b = 0; b < 2; b++) backends[b]->destroy(backends[b]);
    train_set_free(set);
    train_frames_free(&frames);
    mlff_model_destroy(model);
}

// Two GPUs make the gradient, the weights and the sums of one, within rounding.
static void test_two_gpus(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    static const int devices[2] = {0, 1};
    if (mlff_device_count(MLFF_CUDA) < 2) {
        printf("skipped: one GPU\n");
        return;
    }
    mlff_model *model = model_of(&settings[0]);
    train_frames frames = {0};
    add_structures(&frames);
    train_set *set = train_frames_set(&frames, model);
    train_backend_options options = {.device = {MLFF_CUDA, 0}, .devices = devices, .n_devices = 2, .precision = MLFF_FLOAT32};
    train_backend *backends[2] = {gpu_backend(model, MLFF_FLOAT32), NULL};
    const char *named = getenv("MLFF_NCCL");
    setenv("MLFF_NCCL", "/nonexistent/libnccl.so.2", 1);
    assert_int_equal(model->architecture->create_train_backend(model, &options, &backends[1]), MLFF_ERR_DEVICE);
    assert_non_null(strstr(mlff_last_error(), "needs NCCL, and /nonexistent/libnccl.so.2 cannot be opened"));
    assert_non_null(strstr(mlff_last_error(), "name one GPU"));
    if (named)
        setenv("MLFF_NCCL", named, 1);
    else
        unsetenv("MLFF_NCCL");
    if (model->architecture->create_train_backend(model, &options, &backends[1]) != MLFF_OK) {
        assert_non_null(strstr(mlff_last_error(), "NCCL"));
        printf("skipped: %s\n", mlff_last_error());
    } else {
        size_t n = (size_t)backends[0]->layout.n_parameters;
        double loss[2], *gradient[2], *weights[2], *start = train_support_weights(backends[0], 0, 0);
        train_sums sums[2];
        for (int b = 0; b < 2; b++) {
            static const int32_t batches[3][4] = {{5, 6, 0, 4}, {3, 1, 2, 0}, {4, 0, 0, 0}}; // the last for one of them
            assert_ok(backends[b]->set_data(backends[b], set));
            gradient[b] = train_support_gradient(backends[b], set, &all_terms, &loss[b]);
            weights[b] = calloc(n, sizeof(double));
            for (int s = 1; s <= 9; s++) {
                const train_update u = train_support_update(s, 0.1);
                assert_ok(backends[b]->step(backends[b], batches[s % 3], s % 3 == 2 ? 1 : 4, &all_terms, &u));
            }
            assert_ok(backends[b]->sums(backends[b], &sums[b]));
            assert_ok(backends[b]->get(backends[b], TRAIN_WEIGHTS, weights[b]));
            for (size_t k = 0; k < n; k++) weights[b][k] -= start[k];
        }
        double error = train_support_error(gradient[1], gradient[0], n), moved = train_support_error(weights[1], weights[0], n);
        printf("two GPUs: %.1e of the gradient, %.1e of the weights' way\n", error, moved);
        assert_true(error <= 1e-5 && moved <= 5e-3 && fabs(loss[1] - loss[0]) <= 2e-6 * loss[0]);
        assert_true(sums[1].finite && sums[1].n_steps == 9 && sums[1].n_frames == sums[0].n_frames);
        assert_true(fabs(sums[1].force_square - sums[0].force_square) <= 1e-4 * sums[0].force_square);
        for (int b = 0; b < 2; b++) {
            free(gradient[b]);
            free(weights[b]);
        }
        free(start);
        backends[1]->destroy(backends[1]);
    }
    backends[0]->destroy(backends[0]);
    train_set_free(set);
    train_frames_free(&frames);
    mlff_model_destroy(model);
}

static void test_refusals(void **state)
{
    (void)state;
    if (!have_gpu()) return;
    mlff_model *narrow = support_model(24, 1, "gaussian", "cosine", 0, 5);
    train_backend_options options = {.device = {MLFF_CUDA, 0}, .precision = MLFF_FLOAT32};
    train_backend *backend;
    assert_int_equal(narrow->architecture->create_train_backend(narrow, &options, &backend), MLFF_ERR_UNSUPPORTED);
    assert_non_null(strstr(mlff_last_error(), "32, 64 or 128 features"));
    options.precision = MLFF_FLOAT64;
    assert_int_equal(narrow->architecture->create_train_backend(narrow, &options, &backend), MLFF_ERR_UNSUPPORTED);
    assert_non_null(strstr(mlff_last_error(), "use device cpu"));
    mlff_model_destroy(narrow);
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_gradient_of_large_structures),
        cmocka_unit_test(test_gradient_of_molecules),
        cmocka_unit_test(test_gradient_of_medium_batches),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_gradient_of_large_batches),
        cmocka_unit_test(test_gradient_of_two_branches),
        cmocka_unit_test(test_tf32_of_largest_batches),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_soap),
        cmocka_unit_test(test_bits_and_allocations),
        cmocka_unit_test(test_not_finite_and_tf32),
        cmocka_unit_test(test_two_gpus),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
