// SPDX-License-Identifier: MIT
// painn_trainer_gpu.c: the training backend of PaiNN on one GPU: its creation and the contract of model/training/train_backend.h. Batches
// are enqueued by painn_train_batch.c; several GPUs are a group of such trainers (painn_trainer_group.c).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/training/soap.h"
#include "painn_trainer_gpu.h"

static mlff_status wait(painn_trainer *t)
{
    mlff_status status = MLFF_OK;
    PLUGIN_TRY(cuda_use(t->device));
    CUDA_TRY(cuda_wait(t->stream, 0), "waiting for a step");
done:
    return status;
}

// ---- vectors of weights -------------------------------------------------------------------------------------------------

static mlff_status read_vector(painn_trainer *t, const float *from, double *values_out)
{
    mlff_status status = MLFF_OK;
    const train_layout *layout = &t->backend.layout;
    float *staged = malloc(sizeof *staged * (size_t)t->n_weights);
    if (!staged) return host.fail(MLFF_ERR_MEMORY, "out of memory: weights");
    PLUGIN_TRY(wait(t));
    CUDA_TRY(cuda_copy(staged, from, sizeof *staged * (size_t)t->n_weights, cudaMemcpyDeviceToHost),
             "copying weights from the GPU");
    for (int k = 0; k < layout->n_tensors; k++)
        for (int64_t i = 0; i < layout->tensors[k].n_elements; i++)
            values_out[layout->tensors[k].offset + i] = (double)staged[t->place[k] + i];
done:
    free(staged);
    return status;
}

static mlff_status write_vector(painn_trainer *t, float *to, const double *values)
{
    mlff_status status = MLFF_OK;
    const train_layout *layout = &t->backend.layout;
    float *staged = calloc((size_t)t->n_weights, sizeof *staged);
    if (!staged) return host.fail(MLFF_ERR_MEMORY, "out of memory: weights");
    for (int k = 0; k < layout->n_tensors; k++)
        for (int64_t i = 0; i < layout->tensors[k].n_elements; i++)
            staged[t->place[k] + i] = (float)values[layout->tensors[k].offset + i];
    PLUGIN_TRY(wait(t));
    CUDA_TRY(cuda_copy(to, staged, sizeof *staged * (size_t)t->n_weights, cudaMemcpyHostToDevice), "copying weights to the GPU");
done:
    free(staged);
    return status;
}

static mlff_status get(train_backend *backend, enum train_vector which, double *values_out)
{
    mlff_status status = MLFF_OK;
    painn_trainer *t = (painn_trainer *)backend;
    if (which != TRAIN_SOAP) return read_vector(t, t->vector[which], values_out);
    PLUGIN_TRY(cuda_use(t->device));
    PLUGIN_TRY(painn_soap_finish(t));
    PLUGIN_TRY(wait(t));
    PLUGIN_TRY(painn_soap_get(t, values_out));
done:
    return status;
}

static mlff_status set(train_backend *backend, enum train_vector which, const double *values)
{
    mlff_status status = MLFF_OK;
    painn_trainer *t = (painn_trainer *)backend;
    if (which != TRAIN_SOAP) return write_vector(t, t->vector[which], values);
    PLUGIN_TRY(wait(t));
    PLUGIN_TRY(painn_soap_set(t, values));
    t->bases_due = false;
done:
    return status;
}

// ---- the contract -------------------------------------------------------------------------------------------------------

static mlff_status set_data(train_backend *backend, const train_set *data)
{
    mlff_status status = MLFF_OK;
    painn_trainer *t = (painn_trainer *)backend;
    int32_t *element_of = calloc((size_t)MLFF_MAX_ATOMIC_NUMBER + 1, sizeof *element_of);
    if (!element_of) return host.fail(MLFF_ERR_MEMORY, "out of memory: data of training");
    PLUGIN_TRY(wait(t));
    PLUGIN_TRY(painn_gpu_set_upload(&t->training, data));
    for (int e = 0; e < t->training.n_elements; e++) element_of[t->training.element[e]] = e;
    CUDA_TRY(
        cuda_copy(t->element_of, element_of, sizeof *element_of * ((size_t)MLFF_MAX_ATOMIC_NUMBER + 1), cudaMemcpyHostToDevice),
        "copying data of training to the GPU");
    t->step.data = t->training.data;
    t->step.frame_capacity = 0; // graphs and gradients know the set: memory is laid out again by the next batch
    painn_trainer_forget_graphs(t);
done:
    free(element_of);
    return status;
}

static mlff_status step(train_backend *backend, const int32_t *frames, int n_frames, const mlff_loss *loss,
                        const train_update *update)
{
    mlff_status status = MLFF_OK;
    painn_trainer *t = (painn_trainer *)backend;
    gpu_train_call call = {0};
    PLUGIN_TRY(painn_train_count(&t->training, frames, n_frames, &call));
    painn_train_set_loss(&call, loss);
    painn_train_set_update(&call, update);
    PLUGIN_TRY(painn_train_submit(t, &t->training, frames, &call, t->bases_due ? PAINN_STEP_OF_BASES : PAINN_STEP));
    t->bases_due = t->soap.tiles && update->soap_refresh;
done:
    return painn_train_recover(t, status);
}

mlff_status painn_trainer_read_gradient(painn_trainer *t, double *gradient_out, double *loss_out)
{
    mlff_status status = MLFF_OK;
    double value = 0;
    PLUGIN_TRY(read_vector(t, t->optimizer.gradient, gradient_out));
    CUDA_TRY(cuda_copy(&value, t->optimizer.loss, sizeof value, cudaMemcpyDeviceToHost), "copying the loss from the GPU");
    *loss_out = value;
done:
    return status;
}

static mlff_status gradient(train_backend *backend, const int32_t *frames, int n_frames, const mlff_loss *loss,
                            double *gradient_out, double *loss_out)
{
    mlff_status status = MLFF_OK;
    painn_trainer *t = (painn_trainer *)backend;
    gpu_train_call call = {0};
    PLUGIN_TRY(painn_train_count(&t->training, frames, n_frames, &call));
    painn_train_set_loss(&call, loss);
    PLUGIN_TRY(painn_train_submit(t, &t->training, frames, &call, PAINN_GRADIENT));
    PLUGIN_TRY(painn_trainer_read_gradient(t, gradient_out, loss_out));
done:
    return painn_train_recover(t, status);
}

static mlff_status take_sums(painn_trainer *t, gpu_train_sums *from, train_sums *sums_out)
{
    mlff_status status = MLFF_OK;
    gpu_train_sums s;
    PLUGIN_TRY(wait(t));
    CUDA_TRY(cuda_copy(&s, from, sizeof s, cudaMemcpyDeviceToHost), "copying sums from the GPU");
    CUDA_TRY(cudaMemset(from, 0, sizeof s), "clearing sums");
    CUDA_TRY(cuda_wait(0, 0), "clearing sums");
    *sums_out = (train_sums){.loss = s.loss,
                             .n_steps = (int64_t)s.n_steps,
                             .n_frames = (int64_t)s.n_frames,
                             .n_atoms = (int64_t)s.n_atoms,
                             .energy_absolute = s.energy_absolute,
                             .energy_square = s.energy_square,
                             .force_absolute = s.force_absolute,
                             .force_square = s.force_square,
                             .stress_absolute = s.stress_absolute,
                             .n_energies = (int64_t)s.n_energies,
                             .n_force_components = (int64_t)s.n_force_components,
                             .n_stresses = (int64_t)s.n_stresses,
                             .finite = s.n_failed == 0};
done:
    return status;
}

static mlff_status sums(train_backend *backend, train_sums *sums_out)
{
    painn_trainer *t = (painn_trainer *)backend;
    return take_sums(t, t->optimizer.sums, sums_out);
}

static mlff_status take_element_sums(painn_trainer *t, train_sums *sums_out)
{
    mlff_status status = MLFF_OK;
    painn_train_elements e;
    CUDA_TRY(cuda_copy(&e, t->element_sums, sizeof e, cudaMemcpyDeviceToHost), "copying sums from the GPU");
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        sums_out->force_by_element[z] = e.absolute[z];
        sums_out->n_by_element[z] = (int64_t)e.n_components[z];
    }
done:
    return status;
}

// Sums of evaluations: one that failed may have left some.
static mlff_status clear_evaluation_sums(painn_trainer *t)
{
    mlff_status status = MLFF_OK;
    CUDA_TRY(cudaMemset(t->evaluation_sums, 0, sizeof *t->evaluation_sums), "clearing sums");
    CUDA_TRY(cudaMemset(t->element_sums, 0, sizeof *t->element_sums), "clearing sums");
    CUDA_TRY(cuda_wait(0, 0), "clearing sums");
done:
    return status;
}

// Frames from `first` on that fit into one batch of an evaluation; both frames of a probe or none.
static int frames_at_once(const train_set *set, int64_t first)
{
    enum { ATOMS = 8192, FRAMES = 4096 };
    int64_t n = 0;
    while (first + n < set->n_frames && n < FRAMES) {
        const int pair = set->probe_step && set->probe_step[first + n] > 0 && first + n + 1 < set->n_frames ? 2 : 1;
        if (n > 0 && set->first_atom[first + n + pair] - set->first_atom[first] > ATOMS) break;
        n += pair;
    }
    return (int)n;
}

static mlff_status evaluate(train_backend *backend, const train_set *data, const mlff_loss *loss, train_sums *sums_out)
{
    mlff_status status = MLFF_OK;
    painn_trainer *t = (painn_trainer *)backend;
    int32_t *frames = malloc(sizeof *frames * (size_t)(data->n_frames + 1));
    if (!frames) return host.fail(MLFF_ERR_MEMORY, "out of memory: an evaluation");
    for (int64_t k = 0; k < data->n_frames; k++) frames[k] = (int32_t)k;
    PLUGIN_TRY(wait(t));
    PLUGIN_TRY(clear_evaluation_sums(t));
    const painn_gpu_set *from = &t->training;
    if (data != t->training.set) {
        PLUGIN_TRY(painn_gpu_set_upload(&t->evaluation, data));
        from = &t->evaluation;
    }
    for (int64_t first = 0; first < data->n_frames;) {
        gpu_train_call call = {0};
        const int n = frames_at_once(data, first);
        PLUGIN_TRY(painn_train_count(from, frames + first, n, &call));
        painn_train_set_loss(&call, loss);
        call.total_frames = (double)data->n_frames;
        call.total_atoms = (double)data->n_atoms;
        PLUGIN_TRY(painn_train_submit(t, from, frames + first, &call, PAINN_ERRORS));
        first += n;
    }
    PLUGIN_TRY(take_sums(t, t->evaluation_sums, sums_out));
    PLUGIN_TRY(take_element_sums(t, sums_out));
    sums_out->n_steps = 1;
done:
    free(frames);
    return painn_train_recover(t, status);
}

static void destroy(train_backend *backend)
{
    painn_trainer *t = (painn_trainer *)backend;
    if (!t || cuda_stuck()) return; // left to the end of the process
    cudaSetDevice(t->device);
    if (t->stream && cuda_wait(t->stream, 0) == cudaErrorLaunchTimeout) return;
    painn_trainer_forget_graphs(t);
    for (int k = 0; k < 2; k++)
        if (t->half_done[k]) cudaEventDestroy(t->half_done[k]);
    for (int k = 0; k < GPU_TRAIN_BRANCHES - 1; k++) {
        if (t->joined[k]) cudaEventDestroy(t->joined[k]);
        if (t->side[k]) cudaStreamDestroy(t->side[k]);
    }
    if (t->forked) cudaEventDestroy(t->forked);
    if (t->bases_begin) cudaEventDestroy(t->bases_begin);
    if (t->bases_end) cudaEventDestroy(t->bases_end);
    if (t->bases) cudaStreamDestroy(t->bases);
    if (t->stream) cudaStreamDestroy(t->stream);
    if (t->slots) cudaFreeHost(t->slots);
    cudaGetLastError();
    painn_gpu_set_free(&t->training);
    painn_gpu_set_free(&t->evaluation);
    cuda_release(t->device, t->arena);
    cuda_release(t->device, t->soap_block);
    cuda_release(t->device, t->constants);
    if (t->layout_free) t->layout_free(&t->backend.layout);
    free(t->place);
    free(t->name);
    free(t);
}

// ---- creation -----------------------------------------------------------------------------------------------------------

static mlff_status check_model(const mlff_model *model, const painn_parameters *P, const struct cudaDeviceProp *properties)
{
    const int F = P->n_features, K = P->n_radial;
    if (properties->major < 8)
        return host.fail(MLFF_ERR_UNSUPPORTED, "training needs a GPU of compute capability 8.0 or newer; use device cpu");
    if ((F != 32 && F != 64 && F != 128) || P->n_layers > PAINN_TRAIN_MAX_LAYERS || K + 1 > PAINN_TRAIN_LARGE_BASIS ||
        P->n_readout != 2 || P->readout_width[1] % 16 != 0 || P->readout_width[1] > F)
        return host.fail(
            MLFF_ERR_UNSUPPORTED,
            "%s: on the GPU a PaiNN that is trained has 32, 64 or 128 features, at most %d layers, at most %d radial "
            "functions and a readout of two layers; use device cpu",
            model->name, PAINN_TRAIN_MAX_LAYERS, PAINN_TRAIN_LARGE_BASIS - 1);
    return MLFF_OK;
}

// Tensors on the device begin at multiples of 4 floats. `flat`: an offset into the trainer's flat vector.
static int64_t placed(const painn_trainer *t, int64_t flat)
{
    const train_layout *layout = &t->backend.layout;
    int k = 0;
    while (k + 1 < layout->n_tensors && flat >= layout->tensors[k + 1].offset) k++;
    return t->place[k] + flat - layout->tensors[k].offset;
}

static void set_offsets(painn_trainer *t, const painn_trainable *from)
{
    painn_train_weights *to = &t->step.weights;
    to->embedding = placed(t, from->embedding);
    to->O1 = placed(t, from->readout_weight[0]);
    to->o1 = placed(t, from->readout_bias[0]);
    to->O2 = placed(t, from->readout_weight[1]);
    to->o2 = placed(t, from->readout_bias[1]);
    for (int l = 0; l < t->step.n_layers; l++) {
        const painn_trainable_layer *layer = &from->layer[l];
        to->layer[l].filter_weight = placed(t, layer->filter_weight);
        to->layer[l].filter_bias = placed(t, layer->filter_bias);
        to->layer[l].W1 = placed(t, layer->W1);
        to->layer[l].b1 = placed(t, layer->b1);
        to->layer[l].W2 = placed(t, layer->W2);
        to->layer[l].b2 = placed(t, layer->b2);
        to->layer[l].U = placed(t, layer->U);
        to->layer[l].M1 = placed(t, layer->M1);
        to->layer[l].c1 = placed(t, layer->c1);
        to->layer[l].M2 = placed(t, layer->M2);
        to->layer[l].c2 = placed(t, layer->c2);
    }
}

// What lives as long as the trainer: radial functions, vectors of weights, sums.
static size_t place_constants(painn_trainer *t, char *base, float *radial[3], unsigned char **rules)
{
    size_t at = 0;
    const size_t K = (size_t)t->step.n_radial, n = (size_t)t->n_weights;
#define PLACE(pointer, bytes) (pointer = base ? (void *)(base + at) : NULL, at = (at + (bytes) + 255) / 256 * 256)
    for (int k = 0; k < 3; k++) PLACE(radial[k], sizeof(float) * K);
    for (int k = 0; k < TRAIN_SOAP; k++) PLACE(t->vector[k], sizeof(float) * n);
    PLACE(t->optimizer.gradient, sizeof(float) * n);
    PLACE(*rules, n);
    PLACE(t->element_of, sizeof(int32_t) * (MLFF_MAX_ATOMIC_NUMBER + 1));
    PLACE(t->optimizer.sums, sizeof(gpu_train_sums));
    PLACE(t->evaluation_sums, sizeof(gpu_train_sums));
    PLACE(t->element_sums, sizeof(painn_train_elements));
    PLACE(t->optimizer.loss, sizeof(double));
    PLACE(t->step.turn, sizeof(uint32_t));
#undef PLACE
    return at;
}

static mlff_status upload_constants(painn_trainer *t, const painn_parameters *P, const soap_plan *soap)
{
    mlff_status status = MLFF_OK;
    float *radial[3];
    unsigned char *there = NULL, *rules = calloc((size_t)t->n_weights, 1);
    const float *const from[3] = {P->center, P->width, P->frequency};
    if (!rules) return host.fail(MLFF_ERR_MEMORY, "out of memory: weights");
    const size_t bytes = place_constants(t, NULL, radial, &there);
    PLUGIN_TRY(cuda_allocate(t->device, bytes, "weights", &t->constants));
    place_constants(t, t->constants, radial, &there);
    for (int k = 0; k < 3; k++)
        if (from[k])
            CUDA_TRY(cuda_copy(radial[k], from[k], sizeof(float) * (size_t)P->n_radial, cudaMemcpyHostToDevice),
                     "copying constants to the GPU");
    for (int k = 0; k < t->backend.layout.n_tensors; k++) {
        const train_tensor *tensor = &t->backend.layout.tensors[k];
        const int rule = (tensor->decays ? GPU_DECAYS : 0) | (soap && soap->of_tensor[k] >= 0 ? GPU_OF_SOAP : 0);
        memset(rules + t->place[k], rule, (size_t)tensor->n_elements);
    }
    CUDA_TRY(cuda_copy(there, rules, (size_t)t->n_weights, cudaMemcpyHostToDevice), "copying constants to the GPU");
    t->step.center = radial[0];
    t->step.width = radial[1];
    t->step.frequency = radial[2];
    t->step.element_of = t->element_of;
    t->step.weights.base = t->vector[TRAIN_WEIGHTS];
    t->optimizer.n = t->n_weights;
    t->optimizer.weights = t->vector[TRAIN_WEIGHTS];
    t->optimizer.average = t->vector[TRAIN_AVERAGE];
    t->optimizer.m = t->vector[TRAIN_MOMENT1];
    t->optimizer.v = t->vector[TRAIN_MOMENT2];
    t->optimizer.rules = there;
done:
    free(rules);
    return status;
}

static mlff_status open_device(painn_trainer *t, const device_trainee *trainee, const train_backend_options *options, int device)
{
    mlff_status status = MLFF_OK;
    struct cudaDeviceProp properties;
    t->device = t->training.device = t->evaluation.device = device;
    PLUGIN_TRY(cuda_use(t->device));
    CUDA_TRY(cudaGetDeviceProperties(&properties, t->device), "asking the GPU for its properties");
    PLUGIN_TRY(check_model(trainee->model.model, trainee->model.parameters, &properties));
    t->n_multiprocessors = properties.multiProcessorCount;
    t->shared_bytes = properties.sharedMemPerBlockOptin;
    t->overlap = properties.major >= 9;
    t->parts = options->precision == MLFF_TF32 ? 1 : 3;
    CUDA_TRY(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking), "making a stream");
    for (int k = 0; k < 2; k++) CUDA_TRY(cudaEventCreateWithFlags(&t->half_done[k], cudaEventDisableTiming), "making an event");
    CUDA_TRY(cudaEventCreateWithFlags(&t->forked, cudaEventDisableTiming), "making an event");
    CUDA_TRY(cudaStreamCreateWithFlags(&t->bases, cudaStreamNonBlocking), "making a stream");
    CUDA_TRY(cudaEventCreateWithFlags(&t->bases_begin, cudaEventDisableTiming), "making an event");
    CUDA_TRY(cudaEventCreateWithFlags(&t->bases_end, cudaEventDisableTiming), "making an event");
    for (int k = 0; k < GPU_TRAIN_BRANCHES - 1; k++) {
        CUDA_TRY(cudaStreamCreateWithFlags(&t->side[k], cudaStreamNonBlocking), "making a stream");
        CUDA_TRY(cudaEventCreateWithFlags(&t->joined[k], cudaEventDisableTiming), "making an event");
    }
done:
    return status;
}

static void describe_step(painn_trainer *t, const painn_parameters *P)
{
    painn_train_step *s = &t->step;
    s->n_features = P->n_features;
    s->n_layers = P->n_layers;
    s->n_radial = P->n_radial;
    s->n_hidden = P->readout_width[1];
    s->basis = (int32_t)P->basis;
    s->cutoff_function = (int32_t)P->cutoff_function;
    s->activation = (int32_t)P->activation;
    s->basis_rows = P->n_radial + 1 <= PAINN_TRAIN_SMALL_BASIS ? PAINN_TRAIN_SMALL_BASIS : PAINN_TRAIN_LARGE_BASIS;
    s->cutoff = P->cutoff;
    s->epsilon = (float)P->epsilon;
}

mlff_status painn_trainer_create(const device_trainee *trainee, const train_backend_options *options, int device,
                                 painn_trainer **trainer_out)
{
    mlff_status status = MLFF_OK;
    const painn_parameters *P = trainee->model.parameters;
    painn_trainer *t = calloc(1, sizeof *t);
    if (!t) return host.fail(MLFF_ERR_MEMORY, "out of memory: a trainer");
    t->backend = (train_backend){.layout = *trainee->layout,
                                 .set_data = set_data,
                                 .step = step,
                                 .gradient = gradient,
                                 .evaluate = evaluate,
                                 .sums = sums,
                                 .get = get,
                                 .set = set,
                                 .destroy = destroy};
    t->place = malloc(sizeof *t->place * (size_t)trainee->layout->n_tensors);
    if (!t->place) PLUGIN_TRY(host.fail(MLFF_ERR_MEMORY, "out of memory: a trainer"));
    PLUGIN_TRY(open_device(t, trainee, options, device));
    describe_step(t, P);
    for (int k = 0; k < trainee->layout->n_tensors; k++) {
        t->place[k] = t->n_weights;
        t->n_weights += (trainee->layout->tensors[k].n_elements + 3) / 4 * 4;
    }
    set_offsets(t, trainee->trainable);
    PLUGIN_TRY(upload_constants(t, P, trainee->soap));
    if (trainee->soap && trainee->soap->n_matrices > 0) PLUGIN_TRY(painn_soap_create(t, trainee->soap, trainee->soap_state));
    CUDA_TRY(painn_train_prepare_products(t->shared_bytes), "setting up the kernels");
    CUDA_TRY(painn_train_prepare_readout(&t->step), "setting up the kernels");
    t->weight_tile = t->step.n_features < GPU_WEIGHT_LARGE_TILE ? GPU_WEIGHT_SMALL_TILE : GPU_WEIGHT_LARGE_TILE;
    CUDA_TRY(gpu_prepare_weight_gradients(t->weight_tile, t->parts), "setting up the kernels");
    if (t->overlap) CUDA_TRY(painn_train_prepare_chains(&t->step, t->shared_bytes, &t->chains), "setting up the kernels");
    PLUGIN_TRY(write_vector(t, t->vector[TRAIN_WEIGHTS], trainee->weights));
    PLUGIN_TRY(write_vector(t, t->vector[TRAIN_AVERAGE], trainee->weights));
    *trainer_out = t;
    t = NULL;
done:
    destroy((train_backend *)t);
    return status;
}

mlff_status painn_trainer_gpu_create(const device_trainee *trainee, const train_backend_options *options,
                                     train_backend **backend_out)
{
    painn_trainer *t;
    if (trainee->trainable_bytes != sizeof(painn_trainable))
        return host.fail(
            MLFF_ERR_DEVICE,
            "no GPU support: libmlff and libmlff_cuda.so were built from different sources; install both from one build");
    if (options->precision != MLFF_FLOAT32 && options->precision != MLFF_TF32 && options->precision != MLFF_PRECISION_DEFAULT)
        return host.fail(MLFF_ERR_UNSUPPORTED, "on the GPU PaiNN is trained in float32 or tf32; for float64 use device cpu");
    if (options->n_devices > 1) return painn_trainer_group_create(trainee, options, backend_out);
    const mlff_status status = painn_trainer_create(trainee, options, options->device.index, &t);
    if (status != MLFF_OK) return status;
    t->layout_free = trainee->layout_free;
    *backend_out = &t->backend;
    return MLFF_OK;
}
