// SPDX-License-Identifier: MIT
// fuzz_ipi.c: any bytes as what a server of the i-PI protocol sends: an error, or an end of the conversation, and never a wait.
#include <math.h>
#include <sys/socket.h>

#include "cli/serve/ipi.h"
#include "fuzz/fuzz_file.h"

// Fewer answers than a socket's buffer holds, since they are not read.
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
    int ends[2];
    int64_t n_steps = -1;
    if (length < 1 || length > MOST_BYTES) return 0;
    if (mlff_system_build(bytes[0] & 1 ? "h2o" : "silicon", 0, 0, &system) != MLFF_OK) return 0;
    fuzz_demand(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "there are sockets");
    fuzz_demand(write(ends[1], bytes + 1, length - 1) == (ssize_t)length - 1, "the bytes fit into a socket's buffer");
    shutdown(ends[1], SHUT_WR);
    fuzz_demand_text(ipi_serve(ends[0], system, compute, NULL, &n_steps));
    fuzz_demand(n_steps >= 0, "the steps are counted, also after a failure");
    close(ends[0]);
    close(ends[1]);
    mlff_system_destroy(system);
    return 0;
}
