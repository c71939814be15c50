// SPDX-License-Identifier: MIT
// model_info.c: what a loaded model is: its description, results and metadata; the sizes of the library's structs.
#include <math.h>
#include <string.h>

#include "mlff_distill.h"
#include "model/model.h"

void mlff_model_info_get(const mlff_model *model, mlff_model_info *info_out)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < model->file.n_tensors; i++)
        bytes += model->file.tensors[i].n_elements * (model->file.tensors[i].is_double ? 8 : 4);
    *info_out = (mlff_model_info){
        .architecture = model->architecture->name,
        .name = model->name,
        .description = model->description,
        .reference = model->architecture->reference,
        .cutoff_angstrom = model->cutoff,
        .n_layers = model->n_layers,
        .n_parameters = model->n_parameters,
        .n_bytes = bytes,
        .trained = model->trained,
        .conservative = model_is_conservative(model),
        .has_atom_energies = (model->outputs & MODEL_ATOM_ENERGY) != 0,
        .energy_unit_ev = model->energy_unit,
        .length_unit_angstrom = model->length_unit,
        .n_elements = model->n_elements,
        .elements = model->elements,
        .n_members = model->n_members,
    };
}

unsigned mlff_model_outputs(const mlff_model *model)
{
    const unsigned has = model->outputs;
    unsigned outputs = MLFF_OUTPUT_ENERGIES;
    if (has & MODEL_ATOM_ENERGY) outputs |= MLFF_OUTPUT_ATOM_ENERGIES;
    if (has & (MODEL_PAIR_GRADIENT | MODEL_ATOM_FORCE)) outputs |= MLFF_OUTPUT_FORCES;
    if (has & (MODEL_PAIR_GRADIENT | MODEL_STRESS)) outputs |= MLFF_OUTPUT_STRESS;
    if (has & MODEL_PAIR_GRADIENT) outputs |= MLFF_OUTPUT_VIRIALS;
    if (has & MODEL_FORCE_ERROR) outputs |= MLFF_OUTPUT_FORCE_ERRORS;
    return outputs;
}

int mlff_model_depends_on_charge(const mlff_model *model)
{
    return weights_is_true(&model->file, "conditioned");
}

const char *mlff_model_metadata(const mlff_model *model, int index, const char **value_out)
{
    if (index < 0 || (size_t)index >= model->file.n_keys) return NULL;
    if (value_out) *value_out = model->file.values[index];
    return model->file.keys[index];
}

int mlff_model_extrapolates_at(const mlff_model *model, double temperature_kelvin, double *highest_out)
{
    static const double far_from_training = 1.25;
    const char *text = weights_get(&model->file, "training.highest_kelvin");
    double highest = INFINITY;
    if (text && !base_parse_double(text, &highest)) highest = INFINITY;
    if (highest_out) *highest_out = highest;
    return temperature_kelvin > far_from_training * highest;
}

double mlff_model_nearest(const mlff_model *model)
{
    const char *text = weights_get(&model->file, "training.nearest_of_covalent");
    double nearest;
    return text && base_parse_double(text, &nearest) && nearest > 0 && nearest <= 1 ? nearest : NAN;
}

size_t mlff_abi_size(const char *struct_name)
{
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {
#define SIZE(type) {#type, sizeof(type)}
        SIZE(mlff_system),
        SIZE(mlff_pairs),
        SIZE(mlff_batch),
        SIZE(mlff_frame_results),
        SIZE(mlff_builder_info),
        SIZE(mlff_neighbors_info),
        SIZE(mlff_dynamics_options),
        SIZE(mlff_dynamics_state),
        SIZE(mlff_relax_options),
        SIZE(mlff_vibrations_options),
        SIZE(mlff_relaxed),
        SIZE(mlff_relax_queue),
        SIZE(mlff_vibrations),
        SIZE(mlff_device),
        SIZE(mlff_import_options),
        SIZE(mlff_setting),
        SIZE(mlff_model_info),
        SIZE(mlff_halo_array),
        SIZE(mlff_halo),
        SIZE(mlff_evaluator_options),
        SIZE(mlff_results),
        SIZE(mlff_stage),
        SIZE(mlff_evaluator_info),
        SIZE(mlff_domain_info),
        SIZE(mlff_work_size),
        SIZE(mlff_stage_work),
        SIZE(mlff_stage_span),
        SIZE(mlff_device_info),
        SIZE(mlff_device_memory),
        SIZE(mlff_labels),
        SIZE(mlff_loss),
        SIZE(mlff_trainer_options),
        SIZE(mlff_training_errors),
        SIZE(mlff_distill_config),
        SIZE(mlff_distill_progress),
        SIZE(mlff_distill_options),
        SIZE(mlff_read_options),
        SIZE(mlff_teacher_options),
        SIZE(mlff_teacher_info),
        SIZE(mlff_label),
        SIZE(mlff_shard_info),
        SIZE(mlff_label_progress),
        SIZE(mlff_label_options),
        SIZE(mlff_sample_options),
        SIZE(mlff_sample_progress),
        SIZE(mlff_explore_options),
        SIZE(mlff_explore_info),
#undef SIZE
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(sizes[i].name, struct_name) == 0) return sizes[i].size;
    return 0;
}
