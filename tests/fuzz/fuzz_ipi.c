// SPDX-License-Identifier: MIT
// fuzz_ipi.c: any bytes as what a server of the i-PI protocol sends: an error, or an end of the conversation, and never a wait.
#include <fcntl.h>
#include <unistd.h>

#include "cli/serve/ipi.h"
#include "fuzz/fuzz_file.h"

enum { MOST_BYTES = 2048 };

static mlff_status compute(void *context, const mlff_system *system, double *energy, double *forces, double *virial)
{
    (void)context;
    mlff_status status = mlff_system_check(system, "what the server sent");
    *energy = 1;
    for (int k = 0; k < 3 * system->n_atoms; k++) forces[k] = system->positions[k];
    for (int k = 0; k < 9; k++) virial[k] = system->cell[k];
    return status;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    mlff_system *system;
    int64_t n_steps = -1;
    if (length < 1 || length > MOST_BYTES) return 0;
    if (mlff_system_build(bytes[0] & 1 ? "h2o" : "silicon", 0, 0, &system) != MLFF_OK) return 0;
    const int server = open(fuzz_file(bytes + 1, length - 1), O_RDWR);
    fuzz_demand_text(ipi_serve(server, system, compute, NULL, &n_steps));
    fuzz_demand(n_steps >= 0, "the steps are counted, also after a failure");
    close(server);
    mlff_system_destroy(system);
    return 0;
}
