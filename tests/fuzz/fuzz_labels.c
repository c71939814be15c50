// SPDX-License-Identifier: MIT
// fuzz_labels.c: any bytes as a file of labels. The first byte says how: R the file itself; else payloads, each after its length
// in two bytes, in frames with the right checksum, which a mutation does not find; the first is the header's.
#include <math.h>

#include "fuzz/fuzz_file.h"
#include "mlff_label.h"
#include "mlff_train.h"
#include "train/data/shard.h"

static mlff_status no_forces(void *context, const mlff_system *system, double *energy, double *forces)
{
    (void)context, (void)system, (void)energy, (void)forces;
    return MLFF_ERR_UNSUPPORTED;
}

static mlff_status visit(void *context, shard_label *label)
{
    ++*(int64_t *)context;
    fuzz_demand(label->head.flags & SHARD_FAILED || mlff_system_check(label->system, NULL) == MLFF_OK,
                "a label's structure can be computed");
    return MLFF_OK;
}

// Everything that reads such a file.
static void read_all(const char *path)
{
    static mlff_teacher *teacher;
    mlff_shard *shard = NULL;
    mlff_dataset *dataset = NULL;
    mlff_shard_info info;
    int64_t n_labels = 0, good_bytes = -1, file_bytes = -1;
    char *header = NULL;
    if (!teacher) fuzz_demand(mlff_teacher_create("fuzz", no_forces, NULL, &teacher) == MLFF_OK, "a teacher can be created");
    mlff_status status = shard_visit(path, visit, &n_labels, &header, &good_bytes, &file_bytes);
    fuzz_demand_text(status);
    fuzz_demand(status != MLFF_OK || (header && good_bytes <= file_bytes), "whole frames end within the file");
    base_free(header);
    fuzz_demand(mlff_dataset_create(&dataset) == MLFF_OK, "a dataset can be created");
    fuzz_demand_text(mlff_dataset_read(dataset, path));
    mlff_dataset_destroy(dataset);
    status = mlff_shard_open(path, teacher, &shard);
    fuzz_demand_text(status);
    if (status != MLFF_OK) return;
    mlff_shard_info_get(shard, &info);
    fuzz_demand(info.n_labels + info.n_failed == n_labels, "a file that is opened keeps all whole labels");
    fuzz_demand(mlff_shard_close(shard) == MLFF_OK, "it can be closed");
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    char *file = NULL;
    size_t n = 0, capacity = 0;
    if (length < 1 || length > 1 << 16) return 0;
    if (bytes[0] == 'R') {
        read_all(fuzz_file(bytes + 1, length - 1));
        return 0;
    }
    uint32_t marker = SHARD_MARKER_HEADER;
    for (size_t at = 1; at + 2 <= length;) {
        size_t payload = (size_t)bytes[at] | (size_t)bytes[at + 1] << 8;
        at += 2;
        if (payload > length - at) payload = length - at;
        if (shard_encode_frame(marker, bytes + at, payload, &file, &n, &capacity) != MLFF_OK) break;
        at += payload;
        marker = SHARD_MARKER_LABEL;
    }
    if (n > 0) read_all(fuzz_file(file, n));
    base_free(file);
    return 0;
}
