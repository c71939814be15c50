// SPDX-License-Identifier: MIT
// painn_trainable.c: layout of the trainable tensors of a PaiNN, in the order of the model file.
#include "painn_trainable.h"

#include <string.h>

// Index of a layer in `name` after `prefix`, or -1.
static int layer_of(const char *name, const char *prefix)
{
    size_t length = strlen(prefix);
    int layer = -1;
    if (strncmp(name, prefix, length) != 0 || sscanf(name + length, "%d.", &layer) != 1) return -1;
    return layer;
}

static bool is_trainable(const char *name, bool shared_interactions)
{
    int message = layer_of(name, "representation.interactions."), update = layer_of(name, "representation.mixing.");
    if (message >= 0 || update >= 0) return !shared_interactions || (message <= 0 && update <= 0);
    return strcmp(name, "representation.embedding.weight") == 0 || strncmp(name, "representation.filter_net.", 26) == 0 ||
           strncmp(name, "output_modules.", 15) == 0;
}

static bool decays(const char *name)
{
    size_t length = strlen(name);
    return length > 7 && strcmp(name + length - 7, ".weight") == 0 && strcmp(name, "representation.embedding.weight") != 0;
}

static int find(const train_layout *layout, const char *name)
{
    for (int t = 0; t < layout->n_tensors; t++)
        if (strcmp(layout->tensors[t].name, name) == 0) return t;
    return -1;
}

static int64_t offset_of(const train_layout *layout, const char *block, int l, const char *leaf)
{
    char name[128];
    snprintf(name, sizeof name, "representation.%s.%d.%s", block, l, leaf);
    int t = find(layout, name);
    if (t < 0) { // shared with the first layer
        snprintf(name, sizeof name, "representation.%s.0.%s", block, leaf);
        t = find(layout, name);
    }
    return layout->tensors[t].offset;
}

static void fill_offsets(const painn_parameters *P, const train_layout *layout, painn_trainable *T)
{
    int64_t filter_weight = layout->tensors[find(layout, "representation.filter_net.weight")].offset;
    int64_t filter_bias = layout->tensors[find(layout, "representation.filter_net.bias")].offset;
    T->embedding = layout->tensors[find(layout, "representation.embedding.weight")].offset;
    for (int l = 0; l < P->n_layers; l++) {
        int64_t row = P->layer[l].filter_bias - P->layer[0].filter_bias; // 0 with shared filters
        T->layer[l] = (painn_trainable_layer){
            .filter_weight = filter_weight + row * P->n_radial,
            .filter_bias = filter_bias + row,
            .W1 = offset_of(layout, "interactions", l, "interatomic_context_net.0.weight"),
            .b1 = offset_of(layout, "interactions", l, "interatomic_context_net.0.bias"),
            .W2 = offset_of(layout, "interactions", l, "interatomic_context_net.1.weight"),
            .b2 = offset_of(layout, "interactions", l, "interatomic_context_net.1.bias"),
            .U = offset_of(layout, "mixing", l, "mu_channel_mix.weight"),
            .M1 = offset_of(layout, "mixing", l, "intraatomic_context_net.0.weight"),
            .c1 = offset_of(layout, "mixing", l, "intraatomic_context_net.0.bias"),
            .M2 = offset_of(layout, "mixing", l, "intraatomic_context_net.1.weight"),
            .c2 = offset_of(layout, "mixing", l, "intraatomic_context_net.1.bias"),
        };
    }
    for (int k = 0; k < P->n_readout; k++) {
        char name[64];
        snprintf(name, sizeof name, "output_modules.0.outnet.%d.weight", k);
        T->readout_weight[k] = layout->tensors[find(layout, name)].offset;
        snprintf(name, sizeof name, "output_modules.0.outnet.%d.bias", k);
        T->readout_bias[k] = layout->tensors[find(layout, name)].offset;
    }
}

mlff_status painn_trainable_create(const mlff_model *model, train_layout *layout_out, painn_trainable *trainable_out)
{
    mlff_status status = MLFF_OK;
    const painn_parameters *P = model->parameters;
    const model_weights *file = &model->file;
    train_layout layout = {0};
    bool shared = P->n_layers > 1 && P->layer[1].W1 == P->layer[0].W1;

    layout.tensors = base_alloc(file->n_tensors, sizeof *layout.tensors, "trainable tensors");
    layout.of_file = base_alloc(file->n_tensors, sizeof *layout.of_file, "trainable tensors");
    if (!layout.tensors || !layout.of_file) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    for (size_t i = 0; i < file->n_tensors; i++) {
        const model_tensor *tensor = &file->tensors[i];
        layout.of_file[i] = -1;
        if (!is_trainable(tensor->name, shared)) continue;
        layout.of_file[i] = layout.n_tensors;
        layout.tensors[layout.n_tensors++] =
            (train_tensor){tensor->name, layout.n_parameters, tensor->n_elements, decays(tensor->name), (int)tensor->shape[0]};
        layout.n_parameters += tensor->n_elements;
    }
    for (size_t i = 0; shared && i < file->n_tensors; i++) { // aliases of the first layer's tensors
        char name[128];
        static const char *const blocks[] = {"representation.interactions.", "representation.mixing."};
        for (int b = 0; b < 2; b++) {
            if (layer_of(file->tensors[i].name, blocks[b]) <= 0) continue;
            const char *leaf = strchr(file->tensors[i].name + strlen(blocks[b]), '.');
            snprintf(name, sizeof name, "%s0%s", blocks[b], leaf);
            layout.of_file[i] = find(&layout, name);
        }
    }
    fill_offsets(P, &layout, trainable_out);
    *layout_out = layout;
    layout = (train_layout){0};
done:
    train_layout_free(&layout);
    return status;
}
