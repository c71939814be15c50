// SPDX-License-Identifier: MIT
// fuzz_resume.c: any bytes as the trajectory of water that a run at step 10 goes on with: refused and left as it was, or the frames
// up to that step are kept, a frame is added, and the result can be gone on with again. The first byte chooses the format.
#include "atoms/atoms.h"
#include "fuzz/fuzz_file.h"

enum { STEP = 10 };

static const struct {
    const char *name;
    bool resumed;       // or added to
    size_t n_frames_at; // four bytes of a header
} formats[] = {{"extxyz", true, SIZE_MAX / 2},
               {"lammps-dump", true, SIZE_MAX / 2},
               {"netcdf", true, 4},
               {"dcd", false, 8},
               {"netcdf", false, 4},
               {"dcd", true, 8}};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static mlff_status go_on(int k, int64_t step, int64_t *n_removed_out, mlff_writer **writer_out)
{
    *n_removed_out = 0;
    return formats[k].resumed
               ? mlff_writer_resume(FUZZ_FIRST, formats[k].name, 3, step, STEP + 1, n_removed_out, NULL, writer_out)
               : mlff_writer_open(FUZZ_FIRST, formats[k].name, 1, writer_out);
}

// What is kept is the beginning of what was there, but for the number of frames in a header.
static void demand_kept(int k, const unsigned char *before, size_t n_before)
{
    size_t n;
    const unsigned char *kept = memory_files_get(FUZZ_FIRST, &n);
    fuzz_demand(kept && n <= n_before, "a trajectory is only cut");
    for (size_t b = 0; b < n; b++)
        fuzz_demand(before[b] == kept[b] || b - formats[k].n_frames_at < 4, "frames that are kept are not changed");
}

static mlff_status add_frame(mlff_writer *writer, bool has_velocities)
{
    mlff_system *water = NULL;
    const mlff_frame_results results = {.energy = -1, .step = STEP + 1, .time_fs = 5.5};
    fuzz_demand(mlff_system_build("h2o", 0, 0, &water) == MLFF_OK, "water can be built");
    if (has_velocities) water->velocities = base_alloc(9, sizeof(double), "velocities");
    const mlff_status status = mlff_writer_write(writer, water, &results);
    mlff_system_destroy(water);
    return status;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    mlff_writer *writer = NULL;
    int64_t n_removed;
    if (length < 1 || length > 1 << 16) return 0;
    const int k = (bytes[0] & 7) % N_FORMATS;
    const bool has_velocities = bytes[0] & 8;
    fuzz_file(++bytes, --length);
    mlff_status status = go_on(k, STEP, &n_removed, &writer);
    fuzz_demand_text(status);
    demand_kept(k, bytes, length);
    if (status != MLFF_OK) {
        size_t n;
        fuzz_demand(memory_files_get(FUZZ_FIRST, &n) && n == length, "a file that is refused is left as it was");
    } else {
        status = add_frame(writer, has_velocities);
        fuzz_demand_text(status); // a file with a cell or velocities takes only frames that have them
        fuzz_demand(mlff_writer_close(writer) == MLFF_OK, "a trajectory can be closed");
        if (status == MLFF_OK) {
            fuzz_demand(go_on(k, STEP + 1, &n_removed, &writer) == MLFF_OK && n_removed == 0, "it can be gone on with again");
            mlff_writer_destroy(writer);
        }
    }
    memory_files_clear();
    return 0;
}
