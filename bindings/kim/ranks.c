// SPDX-License-Identifier: MIT
// ranks.c: rank and device of this process under an MPI launcher.
#include "ranks.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "words.h"

// The first variable that holds a number; `otherwise` where none does.
static int read_first(const char *const *names, int otherwise)
{
    for (; *names; names++) {
        const char *text = getenv(*names);
        char *end;
        if (!text || !text[0]) continue;
        long value = strtol(text, &end, 10);
        if (*end == '\0' && value >= 0 && value < 1 << 24) return (int)value;
    }
    return otherwise;
}

// Open MPI, MPICH and Intel MPI (Hydra), MVAPICH, Slurm.
int ranks_local(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK",
                                        "SLURM_LOCALID", NULL};
    return read_first(names, -1);
}

// Of Slurm the tasks of a step, which srun sets; SLURM_NTASKS is there for a serial program of a batch script too.
int ranks_count(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", NULL};
    return read_first(names, 1);
}

int ranks_own(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID", NULL};
    return read_first(names, 0);
}

// Processes of a job have the launcher as their parent on a host. The first one binds a name of the abstract namespace, which no file
// holds and which ends with it.
bool ranks_first_to_warn(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "mlff-warned-%ld", (long)getppid());
    const int name = ranks_count() > 1 ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (name < 0) return true;
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (bind(name, (const struct sockaddr *)&address, bytes) == 0) return true; // open until the process ends
    const bool taken = errno == EADDRINUSE;
    close(name);
    return !taken;
}

static bool is_any(const char *wanted)
{
    return !wanted || !wanted[0] || strcmp(wanted, "auto") == 0;
}

mlff_status ranks_device(const char *wanted, mlff_device *device_out)
{
    const bool any = is_any(wanted);
    if (!any && strcmp(wanted, "cuda") != 0) return mlff_device_parse(wanted, device_out);
    const int n_gpus = mlff_device_count(MLFF_CUDA), local = ranks_local();
    if (n_gpus == 0) return mlff_device_parse(any ? "cpu" : "cuda", device_out);
    *device_out = (mlff_device){MLFF_CUDA, local > 0 ? local % n_gpus : 0};
    return MLFF_OK;
}

mlff_status ranks_evaluator(const char *wanted, const mlff_model *model, mlff_evaluator_options *options, char text[RANKS_TEXT],
                            mlff_evaluator **evaluator_out)
{
    char device[16], threads[32] = "", reason[400] = "";
    mlff_evaluator_info info;

    mlff_status status = ranks_device(wanted, &options->device);
    if (status != MLFF_OK) return status;
    if (is_any(wanted)) snprintf(reason, sizeof reason, "%s", mlff_device_problem());
    status = mlff_evaluator_create(model, options, evaluator_out);
    if (status == MLFF_ERR_UNSUPPORTED && is_any(wanted) && options->device.kind == MLFF_CUDA) {
        snprintf(reason, sizeof reason, "%s", mlff_last_cause());
        options->device = (mlff_device){.kind = MLFF_CPU};
        status = mlff_evaluator_create(model, options, evaluator_out);
    }
    if (status == MLFF_ERR_UNSUPPORTED && reason[0]) return mlff_fail(status, "%s (device auto: %s)", mlff_last_error(), reason);
    if (status != MLFF_OK) return status;
    mlff_evaluator_info_get(*evaluator_out, &info);
    mlff_device_text(info.device, device, sizeof device);
    if (info.n_threads > 0)
        snprintf(threads, sizeof threads, ", %d CPU thread%s", info.n_threads, info.n_threads == 1 ? "" : "s");
    snprintf(text, RANKS_TEXT, "%s, %s%s%s%s%s", device, words_of_precision(info.precision), threads,
             reason[0] ? " (device auto: " : "", reason, reason[0] ? ")" : "");
    return MLFF_OK;
}
