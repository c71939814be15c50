// SPDX-License-Identifier: MIT
// fuzz_checkpoint.c: any bytes as a training checkpoint. The first byte says how: R the file itself; else the header of a file
// whose tensors are those of the run, with the right checksum. What is refused leaves the run as it was.
#include "fuzz/fuzz_file.h"
#include "mlff_train.h"

static mlff_trainer *trainer;
static char *whole; // checkpoint of the run's start
static size_t whole_bytes;

// A PaiNN of 4 features and a run of 10 steps over two structures of water.
static void create_run(void)
{
    const char *path = FUZZ_SECOND;
    mlff_model *model = NULL;
    mlff_dataset *dataset = NULL;
    mlff_system *water = NULL;
    mlff_trainer_options options = mlff_trainer_options_default();
    const mlff_setting settings[] = {{"n_features", "4"}, {"n_layers", "1"}, {"n_radial", "2"}, {"elements", "H,O"}, {0}};
    double forces[9] = {0};
    options.n_steps = 10;
    options.n_threads = 1;
    options.batch_size = 1;
    bool made = mlff_model_create("painn", settings, &model) == MLFF_OK && mlff_dataset_create(&dataset) == MLFF_OK &&
                mlff_system_build("h2o", 0, 0, &water) == MLFF_OK;
    for (int k = 0; made && k < 2; k++) {
        const mlff_labels labels = {.energy = -1 - k, .forces = forces, .weight = 1};
        water->positions[0] += 0.01;
        made = mlff_dataset_add(dataset, water, &labels) == MLFF_OK;
    }
    made = made && mlff_trainer_create(model, dataset, &options, &trainer) == MLFF_OK &&
           mlff_trainer_save(trainer, path) == MLFF_OK && base_read_file(path, 1 << 20, &whole, &whole_bytes) == MLFF_OK;
    fuzz_demand(made, "a run can be created");
    mlff_system_destroy(water);
    mlff_dataset_destroy(dataset); // the model must outlive the trainer, which lives on
}

// A file of the format safetensors: the header's length, the header, the tensors of the run.
static const char *file_of(const unsigned char *header, size_t length)
{
    static char *file;
    static size_t capacity;
    uint64_t whole_header, n = length;
    memcpy(&whole_header, whole, sizeof whole_header);
    const size_t tensors = whole_bytes - 8 - (size_t)whole_header;
    if (base_grow(&file, &capacity, 8 + length + tensors, 1, "a file") != MLFF_OK) return NULL;
    memcpy(file, &n, 8);
    memcpy(file + 8, header, length);
    memcpy(file + 8 + length, whole + whole_bytes - tensors, tensors);
    return fuzz_file(file, 8 + length + tensors);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    if (!trainer) create_run();
    if (length < 1 || length > 1 << 16) return 0;
    const char *path = bytes[0] == 'R' ? fuzz_file(bytes + 1, length - 1) : file_of(bytes + 1, length - 1);
    const int64_t step = mlff_trainer_step(trainer);
    const mlff_status status = mlff_trainer_restore(trainer, path);
    fuzz_demand_text(status);
    if (status != MLFF_OK) fuzz_demand(mlff_trainer_step(trainer) == step, "a checkpoint that is refused changes nothing");
    fuzz_demand(mlff_trainer_step(trainer) >= 0 && mlff_trainer_step(trainer) <= 10, "the step is one of the run");
    mlff_checkpoint_info info = {.struct_size = sizeof info};
    const mlff_status told = mlff_checkpoint_info_get(path, &info);
    fuzz_demand_text(told);
    fuzz_demand(status != MLFF_OK || (told == MLFF_OK && info.step == mlff_trainer_step(trainer)),
                "what is gone on from is told");
    return 0;
}
