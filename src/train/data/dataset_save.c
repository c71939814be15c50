// SPDX-License-Identifier: MIT
// dataset_save.c: a dataset as a file of labels (shard.h), from which it is read back to the bit.
#include <math.h>
#include <string.h>

#include "base/sha256.h"
#include "dataset.h"
#include "shard.h"

// A frame with the labels that its system carries; the second half of a probe has no step of its own.
static mlff_status encode_frame(const dataset_frame *frame, const dataset_frame *before, char **bytes, size_t *length,
                                size_t *capacity)
{
    const mlff_system *system = frame->system;
    const bool is_minus = before && before->probe_step > 0;
    const sample s = {.system = frame->system,
                      .probe = frame->probe_step > 0 ? SAMPLE_PLUS
                               : is_minus            ? SAMPLE_MINUS
                                                     : SAMPLE_PLAIN,
                      .probe_step = is_minus ? before->probe_step : frame->probe_step};
    mlff_label label = {.energy = system->label_energy,
                        .forces = system->label_forces,
                        .atom_energies = frame->atom_energies,
                        .energy_deviation = NAN,
                        .force_deviation = NAN};
    memcpy(label.stress, system->label_stress, sizeof label.stress);
    return shard_encode(&s, &label, &frame->weight, bytes, length, capacity);
}

mlff_status mlff_dataset_save(const mlff_dataset *dataset, const char *path)
{
    mlff_status status = MLFF_OK;
    char hash[SHA256_TEXT_BYTES], *bytes = NULL;
    size_t length = 0, capacity = 0;
    base_output output = {0};
    if (!dataset || !path) return mlff_fail(MLFF_ERR_USAGE, "mlff_dataset_save: dataset and path must be given");
    if (dataset->n_frames == 0) return mlff_fail(MLFF_ERR_VALUE, "%s: not written, as the dataset is empty", path);
    MLFF_TRY(mlff_dataset_hash(dataset, hash));
    MLFF_TRY(base_output_open(path, &output));
    MLFF_TRY(shard_encode_header("a dataset", "labels of a dataset", hash, &bytes, &length, &capacity));
    (void)fwrite(bytes, 1, length, output.file); // committing finds what could not be written
    for (size_t f = 0; f < dataset->n_frames; f++) {
        length = 0;
        MLFF_TRY(encode_frame(&dataset->frames[f], f > 0 ? &dataset->frames[f - 1] : NULL, &bytes, &length, &capacity));
        (void)fwrite(bytes, 1, length, output.file);
    }
    MLFF_TRY(base_output_commit(&output));
done:
    if (status != MLFF_OK && output.file) base_output_abandon(&output);
    base_free(bytes);
    return status;
}
