// SPDX-License-Identifier: MIT
// painn_trainer_group.c: training on several GPUs of one host. Each has the data and the weights; a batch is divided into shares of
// about equal numbers of atoms, the shares' gradients are added by NCCL, and every GPU makes the same update.
//
//   share 0 … share n−1 ─ gradients, losses ─ NCCL: sums ─> the same on all GPUs ─ squares, clipping, AdamW or SOAP ─> the same weights
#include <stdlib.h>
#include <string.h>

#include "gpu/train/nccl.h"
#include "painn_trainer_gpu.h"

enum { MAX_DEVICES = 8 };

typedef struct painn_group {
    train_backend backend; /* first */
    void (*layout_free)(train_layout *layout);
    int n;
    painn_trainer *member[MAX_DEVICES];
    nccl_comm comm[MAX_DEVICES];
} painn_group;

static train_backend *backend_of(painn_group *g, int k)
{
    return &g->member[k]->backend;
}

// Gradients of all shares, and their sum on every GPU.
static mlff_status sum_gradients(painn_group *g, const int32_t *frames, int n_frames, const mlff_loss *loss,
                                 const train_update *update)
{
    mlff_status status = MLFF_OK;
    int first[MAX_DEVICES + 1];
    gpu_train_call whole = {0};
    nccl_vector gradients[MAX_DEVICES], losses[MAX_DEVICES];
    PLUGIN_TRY(painn_train_count(&g->member[0]->training, frames, n_frames, &whole));
    painn_train_divide(g->member[0]->training.set, frames, n_frames, g->n, first);
    for (int k = 0; k < g->n; k++) {
        painn_trainer *t = g->member[k];
        gpu_train_call call = {0};
        PLUGIN_TRY(painn_train_count(&t->training, frames + first[k], first[k + 1] - first[k], &call));
        call.total_frames = whole.total_frames;
        call.total_atoms = whole.total_atoms;
        painn_train_set_loss(&call, loss);
        if (update) painn_train_set_update(&call, update);
        PLUGIN_TRY(painn_train_submit(t, &t->training, frames + first[k], &call, PAINN_SHARE));
        gradients[k] = (nccl_vector){t->optimizer.gradient, t->stream};
        losses[k] = (nccl_vector){t->optimizer.loss, t->stream};
    }
    PLUGIN_TRY(nccl_sum(g->comm, g->n, gradients, (size_t)g->member[0]->n_weights, losses, 1));
done:
    return status;
}

static mlff_status recover(painn_group *g, mlff_status status)
{
    for (int k = 0; k < g->n && status != MLFF_OK; k++)
        if (cuda_use(g->member[k]->device) == MLFF_OK) painn_train_recover(g->member[k], status);
    return status;
}

static mlff_status step(train_backend *backend, const int32_t *frames, int n_frames, const mlff_loss *loss,
                        const train_update *update)
{
    mlff_status status = MLFF_OK;
    painn_group *g = (painn_group *)backend;
    PLUGIN_TRY(sum_gradients(g, frames, n_frames, loss, update));
    for (int k = 0; k < g->n; k++) {
        painn_trainer *t = g->member[k];
        PLUGIN_TRY(cuda_use(t->device));
        CUDA_TRY(gpu_launch_squares(&t->optimizer, 0, t->stream), "launching the update"); // not before NCCL's kernel has ended
        PLUGIN_TRY(painn_train_update(t, &t->optimizer, t->overlap, t->overlap));
        t->bases_due = t->soap.tiles && update->soap_refresh;
        PLUGIN_TRY(painn_soap_finish(t));
    }
done:
    return recover(g, status);
}

static mlff_status gradient(train_backend *backend, const int32_t *frames, int n_frames, const mlff_loss *loss,
                            double *gradient_out, double *loss_out)
{
    mlff_status status = MLFF_OK;
    painn_group *g = (painn_group *)backend;
    PLUGIN_TRY(sum_gradients(g, frames, n_frames, loss, NULL));
    PLUGIN_TRY(painn_trainer_read_gradient(g->member[0], gradient_out, loss_out));
done:
    return recover(g, status);
}

static mlff_status set_data(train_backend *backend, const train_set *data)
{
    mlff_status status = MLFF_OK;
    painn_group *g = (painn_group *)backend;
    for (int k = 0; k < g->n && status == MLFF_OK; k++) status = backend_of(g, k)->set_data(backend_of(g, k), data);
    return status;
}

static mlff_status evaluate(train_backend *backend, const train_set *data, const mlff_loss *loss, train_sums *sums_out)
{
    painn_group *g = (painn_group *)backend;
    return backend_of(g, 0)->evaluate(backend_of(g, 0), data, loss, sums_out);
}

static mlff_status sums(train_backend *backend, train_sums *sums_out)
{
    mlff_status status = MLFF_OK;
    painn_group *g = (painn_group *)backend;
    train_sums total = {0};
    for (int k = 0; k < g->n; k++) {
        train_sums one;
        PLUGIN_TRY(backend_of(g, k)->sums(backend_of(g, k), &one));
        if (k == 0) total = (train_sums){.n_steps = one.n_steps, .finite = one.finite};
        total.loss += one.loss;
        total.n_frames += one.n_frames;
        total.n_atoms += one.n_atoms;
        total.energy_absolute += one.energy_absolute;
        total.energy_square += one.energy_square;
        total.force_absolute += one.force_absolute;
        total.force_square += one.force_square;
        total.stress_absolute += one.stress_absolute;
        total.n_energies += one.n_energies;
        total.n_force_components += one.n_force_components;
        total.n_stresses += one.n_stresses;
    }
    *sums_out = total;
done:
    return status;
}

static mlff_status get(train_backend *backend, enum train_vector which, double *values_out)
{
    painn_group *g = (painn_group *)backend;
    return backend_of(g, 0)->get(backend_of(g, 0), which, values_out);
}

static mlff_status set(train_backend *backend, enum train_vector which, const double *values)
{
    mlff_status status = MLFF_OK;
    painn_group *g = (painn_group *)backend;
    for (int k = 0; k < g->n && status == MLFF_OK; k++) status = backend_of(g, k)->set(backend_of(g, k), which, values);
    return status;
}

static void destroy(train_backend *backend)
{
    painn_group *g = (painn_group *)backend;
    if (!g) return;
    for (int k = 0; k < g->n; k++)
        if (g->member[k] && cudaSetDevice(g->member[k]->device) == cudaSuccess) cuda_wait(g->member[k]->stream, 0);
    if (cuda_stuck()) return; // left to the end of the process
    nccl_destroy(g->comm, g->n);
    for (int k = 0; k < g->n; k++)
        if (g->member[k]) backend_of(g, k)->destroy(backend_of(g, k));
    if (g->layout_free) g->layout_free(&g->backend.layout);
    free(g);
}

mlff_status painn_trainer_group_create(const device_trainee *trainee, const train_backend_options *options,
                                       train_backend **backend_out)
{
    mlff_status status = MLFF_OK;
    if (options->n_devices > MAX_DEVICES)
        return host.fail(MLFF_ERR_UNSUPPORTED, "training on %d GPUs: at most %d", options->n_devices, (int)MAX_DEVICES);
    painn_group *g = calloc(1, sizeof *g);
    if (!g) return host.fail(MLFF_ERR_MEMORY, "out of memory: a trainer");
    g->n = options->n_devices;
    g->backend = (train_backend){.layout = *trainee->layout,
                                 .set_data = set_data,
                                 .step = step,
                                 .gradient = gradient,
                                 .evaluate = evaluate,
                                 .sums = sums,
                                 .get = get,
                                 .set = set,
                                 .destroy = destroy};
    PLUGIN_TRY(nccl_create(options->devices, g->n, g->comm));
    for (int k = 0; k < g->n; k++) PLUGIN_TRY(painn_trainer_create(trainee, options, options->devices[k], &g->member[k]));
    g->backend.n_soap_values = backend_of(g, 0)->n_soap_values;
    g->layout_free = trainee->layout_free;
    *backend_out = &g->backend;
    g = NULL;
done:
    destroy((train_backend *)g);
    return status;
}
