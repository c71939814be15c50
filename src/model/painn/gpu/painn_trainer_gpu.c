// SPDX-License-Identifier: MIT
// painn_trainer_gpu.c: the training backend of PaiNN on a GPU: batches, the order of kernels, graphs, the contract of
// model/train_backend.h.
//
// A step is enqueued, not waited for: the host fills a slot of mapped memory and launches the graph captured for batches of this
// size; the graph's first kernel reads the slot. Graphs are captured for classes of sizes; memory is allocated when a batch has
// more frames than all before it, for the largest frames of the data, so that later batches of other frames fit.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "painn_trainer_gpu.h"

// ---- graphs and launches ------------------------------------------------------------------------------------------------

void painn_trainer_forget_graphs(painn_trainer *t)
{
    for (int k = 0; k < PAINN_TRAIN_GRAPHS; k++) {
        if (t->graph[k].executable) cudaGraphExecDestroy(t->graph[k].executable);
        t->graph[k] = (painn_train_graph){0};
    }
}

// What is done with a batch.
enum { PASS_ERRORS, PASS_GRADIENT, PASS_STEP };

static mlff_status enqueue_forward(const painn_train_step *s, const painn_train_plan *plan, int tangent, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    for (int l = 0; l < s->n_layers; l++) {
        if (l > 0 || !tangent) // tangents of the first layer's input, and so of x, are 0
            CUDA_TRY(painn_train_launch_node(s, plan, PAINN_MESSAGE_NET, l, tangent, stream), "launching a message network");
        CUDA_TRY(painn_train_launch_message(s, plan, l, tangent, stream), "launching a message");
        CUDA_TRY(painn_train_launch_node(s, plan, PAINN_UPDATE_VECTOR, l, tangent, stream), "launching an update");
        CUDA_TRY(painn_train_launch_node(s, plan, PAINN_UPDATE_NET, l, tangent, stream), "launching an update");
    }
    CUDA_TRY(painn_train_launch_node(s, plan, PAINN_READOUT, 0, tangent, stream), "launching the readout");
done:
    return status;
}

static mlff_status enqueue_backward(const painn_train_step *s, const painn_train_plan *plan, int tangent, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    for (int l = s->n_layers - 1; l >= 0; l--) {
        CUDA_TRY(painn_train_launch_node(s, plan, PAINN_UPDATE_NET_BACK, l, tangent, stream), "launching an update's reverse");
        CUDA_TRY(painn_train_launch_node(s, plan, PAINN_UPDATE_VECTOR_BACK, l, tangent, stream), "launching an update's reverse");
        CUDA_TRY(painn_train_launch_message_back(s, plan, l, tangent, stream), "launching a message's reverse");
        CUDA_TRY(painn_train_launch_node(s, plan, PAINN_MESSAGE_NET_BACK, l, tangent, stream),
                 "launching a message network's reverse");
    }
done:
    return status;
}

static mlff_status enqueue(painn_trainer *t, const painn_train_step *s, const painn_train_plan *plan, int pass,
                           const gpu_optimizer *optimizer)
{
    mlff_status status = MLFF_OK;
    cudaStream_t stream = t->stream;
    CUDA_TRY(painn_train_launch_begin(s, plan, stream), "launching a batch");
    CUDA_TRY(painn_train_launch_gather(s, plan, stream), "launching a batch");
    PLUGIN_TRY(enqueue_forward(s, plan, 0, stream));
    PLUGIN_TRY(enqueue_backward(s, plan, 0, stream));
    CUDA_TRY(painn_train_launch_forces(s, plan, stream), "launching forces");
    CUDA_TRY(painn_train_launch_loss(s, plan, stream), "launching the loss");
    if (pass == PASS_ERRORS) {
        CUDA_TRY(gpu_launch_count(optimizer, plan->overlap, stream), "launching sums");
        goto done;
    }
    CUDA_TRY(painn_train_launch_pair_tangents(s, plan, stream), "launching tangents");
    PLUGIN_TRY(enqueue_forward(s, plan, 1, stream));
    PLUGIN_TRY(enqueue_backward(s, plan, 1, stream));
    CUDA_TRY(painn_train_launch_embedding(s, plan, stream), "launching the embedding's gradient");
    CUDA_TRY(gpu_launch_weight_gradients(t->jobs, t->n_jobs, t->n_job_blocks, s->call, plan->parts, plan->overlap, stream),
             "launching weight gradients");
    CUDA_TRY(gpu_launch_gradient_sums(optimizer, plan->overlap, stream), "launching gradient sums");
    if (pass == PASS_STEP) CUDA_TRY(gpu_launch_update(optimizer, plan->overlap, stream), "launching the update");
done:
    return status;
}

// Sizes are rounded up to eighths of a power of two, so that ragged batches need few graphs.
static int class_of(int64_t n)
{
    int64_t step = 1;
    while (step * 16 < n) step *= 2;
    return (int)((n + step - 1) / step * step);
}

static int at_most(int n, int capacity)
{
    return n < capacity ? n : capacity;
}

#ifndef SMALL_ATOMS
#define SMALL_ATOMS 4
#endif
static painn_train_plan plan_of(const painn_trainer *t, const gpu_train_call *call)
{
    painn_train_plan plan = {.n_frames = at_most(class_of(call->n_frames), t->step.frame_capacity),
                             .n_atoms = at_most(class_of(call->n_atoms), t->step.atom_capacity),
                             .n_pairs = at_most(class_of(call->n_pairs), t->step.pair_capacity),
                             .parts = t->parts,
                             .overlap = t->overlap,
                             .n_multiprocessors = t->n_multiprocessors};
    plan.small = plan.n_atoms <= SMALL_ATOMS * t->n_multiprocessors;
    return plan;
}

static mlff_status capture(painn_trainer *t, const painn_train_plan *plan, cudaGraphExec_t *executable_out)
{
    mlff_status status = MLFF_OK;
    cudaGraph_t graph = NULL;
    CUDA_TRY(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal), "capturing a step");
    status = enqueue(t, &t->step, plan, PASS_STEP, &t->optimizer);
    cudaError_t ended = cudaStreamEndCapture(t->stream, &graph);
    if (status != MLFF_OK) goto done;
    CUDA_TRY(ended, "capturing a step");
    CUDA_TRY(cudaGraphInstantiate(executable_out, graph, 0), "building a graph");
done:
    if (graph) cudaGraphDestroy(graph);
    return status;
}

static mlff_status graph_of(painn_trainer *t, const painn_train_plan *plan, cudaGraphExec_t *executable_out)
{
    mlff_status status = MLFF_OK;
    painn_train_graph *oldest = &t->graph[0];
    for (int k = 0; k < PAINN_TRAIN_GRAPHS; k++) {
        painn_train_graph *g = &t->graph[k];
        if (g->executable && memcmp(&g->plan, plan, sizeof *plan) == 0) {
            g->used = t->n_calls;
            *executable_out = g->executable;
            return MLFF_OK;
        }
        if (oldest->executable && (!g->executable || g->used < oldest->used)) oldest = g;
    }
    cudaGraphExec_t executable = NULL;
    PLUGIN_TRY(capture(t, plan, &executable));
    if (oldest->executable) cudaGraphExecDestroy(oldest->executable); // the driver keeps it until its last launch is done
    *oldest = (painn_train_graph){*plan, executable, t->n_calls};
    *executable_out = executable;
done:
    return status;
}

// ---- batches ------------------------------------------------------------------------------------------------------------

static mlff_status count_batch(const painn_gpu_set *set, const int32_t *frames, int n_frames, gpu_train_call *call)
{
    int64_t atoms = 0, pairs = 0;
    for (int k = 0; k < n_frames; k++) {
        atoms += set->set->first_atom[frames[k] + 1] - set->set->first_atom[frames[k]];
        pairs += set->frame_pairs[frames[k] + 1] - set->frame_pairs[frames[k]];
    }
    if (atoms > INT32_MAX / 1024 || pairs > INT32_MAX / 4)
        return host.fail(MLFF_ERR_LIMIT, "a batch of %d structures with %lld atoms is too large; choose a smaller batch size",
                         n_frames, (long long)atoms);
    call->n_frames = n_frames;
    call->n_atoms = (int32_t)atoms;
    call->n_pairs = (int32_t)pairs;
    call->total_frames = n_frames;
    call->total_atoms = (double)atoms;
    return MLFF_OK;
}

// Memory for any batch of so many frames of the set. Fewer where that would be more than `limit` times this one.
static mlff_status make_room(painn_trainer *t, const painn_gpu_set *set, const gpu_train_call *call)
{
    enum { LIMIT = 4 };
    const painn_train_step *s = &t->step;
    if (call->n_frames <= s->frame_capacity && call->n_atoms <= s->atom_capacity && call->n_pairs <= s->pair_capacity)
        return MLFF_OK;
    int64_t frames = call->n_frames, atoms = frames * set->set->largest_frame, pairs = frames * set->most_pairs;
    if (atoms > LIMIT * (int64_t)call->n_atoms) atoms = LIMIT * (int64_t)call->n_atoms;
    if (pairs > LIMIT * (int64_t)call->n_pairs) pairs = LIMIT * (int64_t)call->n_pairs;
    if (frames < s->frame_capacity) frames = s->frame_capacity;
    if (atoms < s->atom_capacity) atoms = s->atom_capacity;
    if (pairs < s->pair_capacity) pairs = s->pair_capacity;
    return painn_train_arena_create(t, (int)frames, (int)atoms, (int)pairs);
}

static void set_loss(gpu_train_call *call, const mlff_loss *loss)
{
    call->energy_per_atom = loss->energy_per_atom;
    call->energy_weight = loss->energy_weight;
    call->forces_weight = loss->forces_weight;
    call->stress_weight = loss->stress_weight;
    call->atom_energies_weight = loss->atom_energies_weight;
    call->hessian_weight = loss->hessian_weight;
    call->huber_forces = loss->huber_forces;
}

static void set_update(gpu_train_call *call, const train_update *u)
{
    call->learning_rate = u->learning_rate;
    call->beta1 = u->beta1;
    call->beta2 = u->beta2;
    call->epsilon = u->epsilon;
    call->weight_decay = u->weight_decay;
    call->clip = u->clip;
    call->average = u->average;
    call->correction1 = u->correction1;
    call->correction2 = u->correction2;
}

// The next slot. The host may be as many calls ahead as there are slots; then it waits for half of them.
static mlff_status fill_slot(painn_trainer *t, const painn_gpu_set *set, const int32_t *frames, const gpu_train_call *call)
{
    mlff_status status = MLFF_OK;
    const int slot = (int)(t->n_calls % PAINN_TRAIN_SLOTS), half = PAINN_TRAIN_SLOTS / 2;
    if (slot % half == 0) CUDA_TRY(cudaEventSynchronize(t->half_done[slot / half]), "waiting for earlier steps");
    char *to = t->slots + t->step.slot_bytes * (size_t)slot;
    int32_t *list = (int32_t *)(void *)(to + sizeof *call), *first_atom = list + t->step.frame_capacity;
    int32_t *first_pair = first_atom + t->step.frame_capacity + 1;
    memcpy(to, call, sizeof *call);
    first_atom[0] = first_pair[0] = 0;
    for (int k = 0; k < call->n_frames; k++) {
        const int32_t f = frames[k];
        list[k] = f;
        first_atom[k + 1] = first_atom[k] + (int32_t)(set->set->first_atom[f + 1] - set->set->first_atom[f]);
        first_pair[k + 1] = first_pair[k] + (int32_t)(set->frame_pairs[f + 1] - set->frame_pairs[f]);
    }
done:
    return status;
}

static mlff_status slot_taken(painn_trainer *t)
{
    mlff_status status = MLFF_OK;
    const int slot = (int)(t->n_calls++ % PAINN_TRAIN_SLOTS), half = PAINN_TRAIN_SLOTS / 2;
    if (slot % half == half - 1) CUDA_TRY(cudaEventRecord(t->half_done[slot / half], t->stream), "recording a step");
done:
    return status;
}

// After a failure the device may have taken fewer slots than the host filled.
static mlff_status recover(painn_trainer *t, mlff_status status)
{
    if (status == MLFF_OK) return status;
    cudaStreamSynchronize(t->stream);
    const uint32_t turn = (uint32_t)(t->n_calls % PAINN_TRAIN_SLOTS);
    cuda_copy(t->step.turn, &turn, sizeof turn, cudaMemcpyHostToDevice);
    cudaGetLastError();
    return status;
}

static mlff_status wait(painn_trainer *t)
{
    mlff_status status = MLFF_OK;
    PLUGIN_TRY(cuda_use(t->device));
    CUDA_TRY(cudaStreamSynchronize(t->stream), "waiting for a step");
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
    painn_trainer *t = (painn_trainer *)backend;
    return read_vector(t, t->vector[which], values_out);
}

static mlff_status set(train_backend *backend, enum train_vector which, const double *values)
{
    painn_trainer *t = (painn_trainer *)backend;
    return write_vector(t, t->vector[which], values);
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
    cudaGraphExec_t graph = NULL;
    PLUGIN_TRY(cuda_use(t->device));
    PLUGIN_TRY(count_batch(&t->training, frames, n_frames, &call));
    PLUGIN_TRY(make_room(t, &t->training, &call));
    set_loss(&call, loss);
    set_update(&call, update);
    const painn_train_plan plan = plan_of(t, &call);
    PLUGIN_TRY(graph_of(t, &plan, &graph));
    PLUGIN_TRY(fill_slot(t, &t->training, frames, &call));
    CUDA_TRY(cudaGraphLaunch(graph, t->stream), "launching a step");
    PLUGIN_TRY(slot_taken(t));
done:
    return recover(t, status);
}

static mlff_status gradient(train_backend *backend, const int32_t *frames, int n_frames, const mlff_loss *loss,
                            double *gradient_out, double *loss_out)
{
    mlff_status status = MLFF_OK;
    painn_trainer *t = (painn_trainer *)backend;
    gpu_train_call call = {0};
    double value = 0;
    PLUGIN_TRY(cuda_use(t->device));
    PLUGIN_TRY(count_batch(&t->training, frames, n_frames, &call));
    PLUGIN_TRY(make_room(t, &t->training, &call));
    set_loss(&call, loss);
    const painn_train_plan plan = plan_of(t, &call);
    PLUGIN_TRY(fill_slot(t, &t->training, frames, &call));
    PLUGIN_TRY(enqueue(t, &t->step, &plan, PASS_GRADIENT, &t->optimizer));
    PLUGIN_TRY(slot_taken(t));
    PLUGIN_TRY(read_vector(t, t->optimizer.gradient, gradient_out));
    CUDA_TRY(cuda_copy(&value, t->optimizer.loss, sizeof value, cudaMemcpyDeviceToHost), "copying the loss from the GPU");
    *loss_out = value;
done:
    return recover(t, status);
}

static mlff_status take_sums(painn_trainer *t, gpu_train_sums *from, train_sums *sums_out)
{
    mlff_status status = MLFF_OK;
    gpu_train_sums s;
    PLUGIN_TRY(wait(t));
    CUDA_TRY(cuda_copy(&s, from, sizeof s, cudaMemcpyDeviceToHost), "copying sums from the GPU");
    CUDA_TRY(cudaMemset(from, 0, sizeof s), "clearing sums");
    CUDA_TRY(cudaStreamSynchronize(0), "clearing sums");
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
    const painn_gpu_set *from = &t->training;
    if (data != t->training.set) {
        PLUGIN_TRY(painn_gpu_set_upload(&t->evaluation, data));
        from = &t->evaluation;
    }
    for (int64_t first = 0; first < data->n_frames;) {
        gpu_train_call call = {0};
        const int n = frames_at_once(data, first);
        PLUGIN_TRY(count_batch(from, frames + first, n, &call));
        PLUGIN_TRY(make_room(t, from, &call));
        set_loss(&call, loss);
        call.total_frames = (double)data->n_frames;
        call.total_atoms = (double)data->n_atoms;
        const painn_train_plan plan = plan_of(t, &call);
        painn_train_step s = t->step;
        gpu_optimizer optimizer = t->optimizer;
        s.data = from->data;
        s.weights.base = t->vector[TRAIN_AVERAGE];
        optimizer.sums = t->evaluation_sums;
        PLUGIN_TRY(fill_slot(t, from, frames + first, &call));
        PLUGIN_TRY(enqueue(t, &s, &plan, PASS_ERRORS, &optimizer));
        PLUGIN_TRY(slot_taken(t));
        first += n;
    }
    PLUGIN_TRY(take_sums(t, t->evaluation_sums, sums_out));
    sums_out->n_steps = 1;
done:
    free(frames);
    return recover(t, status);
}

static void destroy(train_backend *backend)
{
    painn_trainer *t = (painn_trainer *)backend;
    if (!t) return;
    if (cudaSetDevice(t->device) == cudaSuccess && t->stream) cudaStreamSynchronize(t->stream);
    painn_trainer_forget_graphs(t);
    for (int k = 0; k < 2; k++)
        if (t->half_done[k]) cudaEventDestroy(t->half_done[k]);
    if (t->stream) cudaStreamDestroy(t->stream);
    if (t->slots) cudaFreeHost(t->slots);
    cudaGetLastError();
    painn_gpu_set_free(&t->training);
    painn_gpu_set_free(&t->evaluation);
    cuda_release(t->device, t->arena);
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
        return host.fail(MLFF_ERR_UNSUPPORTED, "training needs a GPU of compute capability 8.0 or newer; use --device cpu");
    if ((F != 32 && F != 64 && F != 128) || P->n_layers > PAINN_TRAIN_MAX_LAYERS || K + 1 > PAINN_TRAIN_LARGE_BASIS ||
        P->n_readout != 2 || P->readout_width[1] % 16 != 0 || P->readout_width[1] > F)
        return host.fail(
            MLFF_ERR_UNSUPPORTED,
            "%s: on the GPU a PaiNN that is trained has 32, 64 or 128 features, at most %d layers, at most %d radial "
            "functions and a readout of two layers; use --device cpu",
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
static size_t place_constants(painn_trainer *t, char *base, float *radial[3], unsigned char **decays)
{
    size_t at = 0;
    const size_t K = (size_t)t->step.n_radial, n = (size_t)t->n_weights;
#define PLACE(pointer, bytes) (pointer = base ? (void *)(base + at) : NULL, at = (at + (bytes) + 255) / 256 * 256)
    for (int k = 0; k < 3; k++) PLACE(radial[k], sizeof(float) * K);
    for (int k = 0; k < TRAIN_VECTORS; k++) PLACE(t->vector[k], sizeof(float) * n);
    PLACE(t->optimizer.gradient, sizeof(float) * n);
    PLACE(*decays, n);
    PLACE(t->element_of, sizeof(int32_t) * (MLFF_MAX_ATOMIC_NUMBER + 1));
    PLACE(t->optimizer.sums, sizeof(gpu_train_sums));
    PLACE(t->evaluation_sums, sizeof(gpu_train_sums));
    PLACE(t->optimizer.loss, sizeof(double));
    PLACE(t->step.turn, sizeof(uint32_t));
#undef PLACE
    return at;
}

static mlff_status upload_constants(painn_trainer *t, const painn_parameters *P)
{
    mlff_status status = MLFF_OK;
    float *radial[3];
    unsigned char *there = NULL, *decays = calloc((size_t)t->n_weights, 1);
    const float *const from[3] = {P->center, P->width, P->frequency};
    if (!decays) return host.fail(MLFF_ERR_MEMORY, "out of memory: weights");
    const size_t bytes = place_constants(t, NULL, radial, &there);
    PLUGIN_TRY(cuda_allocate(t->device, bytes, "weights", &t->constants));
    place_constants(t, t->constants, radial, &there);
    for (int k = 0; k < 3; k++)
        if (from[k])
            CUDA_TRY(cuda_copy(radial[k], from[k], sizeof(float) * (size_t)P->n_radial, cudaMemcpyHostToDevice),
                     "copying constants to the GPU");
    for (int k = 0; k < t->backend.layout.n_tensors; k++)
        memset(decays + t->place[k], t->backend.layout.tensors[k].decays, (size_t)t->backend.layout.tensors[k].n_elements);
    CUDA_TRY(cuda_copy(there, decays, (size_t)t->n_weights, cudaMemcpyHostToDevice), "copying constants to the GPU");
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
    t->optimizer.decays = there;
done:
    free(decays);
    return status;
}

static mlff_status open_device(painn_trainer *t, const device_trainee *trainee, const train_backend_options *options)
{
    mlff_status status = MLFF_OK;
    struct cudaDeviceProp properties;
    t->device = t->training.device = t->evaluation.device = options->device.index;
    PLUGIN_TRY(cuda_use(t->device));
    CUDA_TRY(cudaGetDeviceProperties(&properties, t->device), "asking the GPU for its properties");
    PLUGIN_TRY(check_model(trainee->model.model, trainee->model.parameters, &properties));
    t->n_multiprocessors = properties.multiProcessorCount;
    t->shared_bytes = properties.sharedMemPerBlockOptin;
    t->overlap = properties.major >= 9;
    t->parts = options->precision == MLFF_TF32 ? 1 : 3;
    CUDA_TRY(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking), "making a stream");
    for (int k = 0; k < 2; k++) CUDA_TRY(cudaEventCreateWithFlags(&t->half_done[k], cudaEventDisableTiming), "making an event");
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

mlff_status painn_trainer_gpu_create(const device_trainee *trainee, const train_backend_options *options,
                                     train_backend **backend_out)
{
    mlff_status status = MLFF_OK;
    const painn_parameters *P = trainee->model.parameters;
    if (trainee->trainable_bytes != sizeof(painn_trainable))
        return host.fail(
            MLFF_ERR_DEVICE,
            "no GPU support: libmlff and libmlff_cuda.so were built from different sources; install both from one build");
    if (options->precision != MLFF_FLOAT32 && options->precision != MLFF_TF32 && options->precision != MLFF_PRECISION_DEFAULT)
        return host.fail(MLFF_ERR_UNSUPPORTED, "on the GPU PaiNN is trained in float32 or tf32; for float64 use --device cpu");
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
    PLUGIN_TRY(open_device(t, trainee, options));
    describe_step(t, P);
    for (int k = 0; k < trainee->layout->n_tensors; k++) {
        t->place[k] = t->n_weights;
        t->n_weights += (trainee->layout->tensors[k].n_elements + 3) / 4 * 4;
    }
    set_offsets(t, trainee->trainable);
    PLUGIN_TRY(upload_constants(t, P));
    CUDA_TRY(painn_train_prepare(&t->step, t->shared_bytes), "setting up the kernels");
    PLUGIN_TRY(write_vector(t, t->vector[TRAIN_WEIGHTS], trainee->weights));
    PLUGIN_TRY(write_vector(t, t->vector[TRAIN_AVERAGE], trainee->weights));
    t->layout_free = trainee->layout_free;
    *backend_out = &t->backend;
    t = NULL;
done:
    destroy((train_backend *)t);
    return status;
}
