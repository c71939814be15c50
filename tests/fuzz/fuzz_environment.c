// SPDX-License-Identifier: MIT
// fuzz_environment.c: any bytes as environment variables, ended by newlines; the first byte of each chooses its name. Everything that reads
// them by itself: the fast path, threads, models by name, and of KIM and LAMMPS the precision, device, profile and ranks.
#include "device/cpu.h"
#include "device/team.h"
#include "fuzz/fuzz_file.h"
#include "mlff_profile.h"
#include "model/model.h"
#include "ranks.h"
#include "words.h"

extern char **environ;

enum { MOST_VARIABLES = 16, MOST_BYTES = 512 };

static const char *const names[] = {"MLFF_CPU",
                                    "OMP_NUM_THREADS",
                                    "MLFF_MODEL_PATH",
                                    "XDG_DATA_HOME",
                                    "HOME",
                                    "MLFF_DEVICE",
                                    "MLFF_PRECISION",
                                    "MLFF_PROFILE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "SLURM_LOCALID",
                                    "PMI_SIZE",
                                    "SLURM_STEP_NUM_TASKS",
                                    "PMI_RANK",
                                    "MV2_COMM_WORLD_RANK"};
enum { N_NAMES = sizeof names / sizeof *names };

static void read_ranks(void)
{
    const char *profile = getenv("MLFF_PROFILE"), *precision = getenv("MLFF_PRECISION");
    mlff_precision chosen = MLFF_FLOAT32;
    mlff_device device = {MLFF_CUDA, -1};
    char path[256];
    fuzz_demand(ranks_local() >= -1 && ranks_count() >= 0 && ranks_own() >= 0, "ranks are numbers");
    fuzz_demand_text(ranks_device(getenv("MLFF_DEVICE"), &device));
    if (precision) fuzz_demand_text(words_precision("MLFF_PRECISION", precision, &chosen));
    fuzz_demand(chosen <= MLFF_BF16, "a precision is one of those offered");
    const mlff_status status = mlff_profile_rank_path(profile, ranks_own(), path, sizeof path);
    fuzz_demand_text(status);
    if (status == MLFF_OK) fuzz_demand(strlen(path) >= strlen(profile), "a rank's path is that of the profile and its number");
}

static void read_all(void)
{
    const char *path = NULL;
    char found[256];
    fuzz_demand_text(cpu_path_choose(NULL, false, &path));
    const int n_threads = team_default_size();
    fuzz_demand(n_threads >= 1 && n_threads <= TEAM_MAX, "threads are in their range");
    fuzz_demand_text(mlff_model_find("b", found, sizeof found));
    fuzz_demand_text(mlff_model_install_path("b", found, sizeof found));
    read_ranks();
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    static char variables[MOST_VARIABLES][MOST_BYTES + 40];
    char *given[MOST_VARIABLES + 1], **kept = environ;
    int n = 0;
    if (length > MOST_BYTES || memchr(bytes, 0, length)) return 0;
    for (size_t at = 0; at < length && n < MOST_VARIABLES;) {
        const unsigned char *end = memchr(bytes + at, '\n', length - at);
        const size_t next = end ? (size_t)(end - bytes) : length;
        if (next > at) {
            snprintf(variables[n], sizeof variables[n], "%s=%.*s", names[bytes[at] % N_NAMES], (int)(next - at - 1),
                     bytes + at + 1);
            given[n] = variables[n];
            n++;
        }
        at = next + 1;
    }
    given[n] = NULL;
    environ = given; // setenv keeps every value that it was ever given
    memory_files_put("/memory/b.safetensors", "", 0);
    memory_files_only(true);
    read_all();
    memory_files_only(false);
    environ = kept;
    return 0;
}
