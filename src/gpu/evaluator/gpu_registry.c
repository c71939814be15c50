// SPDX-License-Identifier: MIT
// gpu_registry.c: the one place of the plugin that names architectures.
#include "gpu_registry.h"

#include <string.h>

enum { MAX_ARCHITECTURES = 16 };

extern const gpu_architecture painn_gpu_architecture, ani_gpu_architecture, orb_v2_gpu_architecture,
    orb_v3_direct_gpu_architecture, orb_v3_conservative_gpu_architecture;

static const gpu_architecture *architectures[MAX_ARCHITECTURES] = {&painn_gpu_architecture, &ani_gpu_architecture,
                                                                   &orb_v2_gpu_architecture, &orb_v3_direct_gpu_architecture,
                                                                   &orb_v3_conservative_gpu_architecture};

const gpu_kernel gpu_common_kernels[] = {{"prepare_kernel", "forward/transfer"},
                                         {"search_kernel", "forward/neighbors"},
                                         {"fused_search_kernel", "forward/neighbors"},
                                         {"pairs_kernel", "forward/neighbors"},
                                         {"row_kernel", "forward/neighbors"},
                                         {"rows_kernel", "forward/neighbors"},
                                         {"scan_kernel", "forward/neighbors"},
                                         {"sort_kernel", "forward/neighbors"},
                                         {"reverse_kernel", "forward/neighbors"},
                                         {"transpose_count_kernel", "forward/neighbors"},
                                         {"transpose_fill_kernel", "forward/neighbors"},
                                         {"ghost_rows_kernel", "forward/neighbors"},
                                         {"advance_kernel", "integrate"},
                                         {"finish_kernel", "integrate"},
                                         {"move_systems_kernel", "integrate"},
                                         {"motion_kernel", "integrate"},
                                         {"dense_kernel", ""}, // of these a model names the stage
                                         {"norm_kernel", ""},
                                         {"norm_back_kernel", ""},
                                         {"attention_sum_kernel", ""},
                                         {"attention_back_kernel", ""},
                                         {"segment_sum_kernel", ""},
                                         {"softmax_kernel", ""},
                                         {"softmax_back_kernel", ""},
                                         {"weight_gradient", "train/weight_gradient"},
                                         {"gradient_sums", "train/optimizer"},
                                         {"squares", "train/optimizer"},
                                         {"update_weights", "train/optimizer"},
                                         {"soap_rotate", "train/optimizer"},
                                         {"soap_scale", "train/optimizer"},
                                         {"soap_return", "train/optimizer"},
                                         {"soap_move", "train/optimizer"},
                                         {"soap_grow", "train/optimizer"},
                                         {"soap_turn", "train/optimizer"},
                                         {"count_step", "train/optimizer"},
                                         {"clock_kernel", ""},
                                         {"code_kernel", ""},
                                         {0}};

const gpu_architecture *gpu_architecture_find(const char *name)
{
    for (int i = 0; i < MAX_ARCHITECTURES && architectures[i]; i++)
        if (strcmp(architectures[i]->name, name) == 0) return architectures[i];
    return NULL;
}

bool gpu_architecture_register(const gpu_architecture *architecture)
{
    for (int i = 0; i < MAX_ARCHITECTURES; i++) {
        if (architectures[i] && strcmp(architectures[i]->name, architecture->name) == 0) return false;
        if (architectures[i]) continue;
        architectures[i] = architecture;
        return true;
    }
    return false;
}

static mlff_status find_for(const device_model *model, const gpu_architecture **found_out)
{
    const gpu_architecture *found = *found_out = gpu_architecture_find(model->architecture);
    if (!found) return host.fail(MLFF_ERR_UNSUPPORTED, "%s runs on the CPU only; use device cpu", model->title);
    if (model->model_bytes != found->model_bytes || model->parameters_bytes != found->parameters_bytes)
        return host.fail(
            MLFF_ERR_DEVICE,
            "no GPU support: libmlff and libmlff_cuda.so were built from different sources; install both from one build");
    return MLFF_OK;
}

mlff_status gpu_trainer_create(const device_trainee *trainee, const struct train_backend_options *options,
                               struct train_backend **backend_out)
{
    const gpu_architecture *found;
    mlff_status status = find_for(&trainee->model, &found);
    if (status != MLFF_OK) return status;
    if (!found->create_trainer)
        return host.fail(MLFF_ERR_UNSUPPORTED, "%s is trained on the CPU only; use device cpu", trainee->model.title);
    return found->create_trainer(trainee, options, backend_out);
}

mlff_status gpu_evaluator_create(const device_model *model, const mlff_evaluator_options *options, gpu_evaluator **evaluator_out)
{
    const gpu_architecture *found;
    mlff_status status = find_for(model, &found);
    if (status != MLFF_OK) return status;
    status = found->create(model, options, evaluator_out);
    if (status == MLFF_OK) (*evaluator_out)->architecture = found;
    return status;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

static bool is_identifier(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static const char *find_stage(const gpu_kernel *table, const char *name, size_t length)
{
    for (; table->name; table++)
        if (strlen(table->name) == length && memcmp(table->name, name, length) == 0) return table->stage;
    return NULL;
}

// "void shapes::message_kernel<128, 0>(gpu_step)": the identifier before the first "<" or "(".
const char *gpu_evaluator_kernel_stage(const gpu_evaluator *e, const char *kernel)
{
    const char *end = kernel + strcspn(kernel, "<("), *begin = end;
    while (begin > kernel && is_identifier(begin[-1])) begin--;
    const size_t length = (size_t)(end - begin);
    const char *stage = find_stage(e->architecture->kernels, begin, length);
    return stage ? stage : find_stage(gpu_common_kernels, begin, length);
}
