// SPDX-License-Identifier: MIT
// ipi.h: the client's side of the i-PI protocol: a server that runs the dynamics (i-PI, ASE's SocketIOCalculator) sends cells and
// positions and is sent energies, forces and virials.
#ifndef IPI_H
#define IPI_H

#include "mlff_profile.h"

/* Computes `system` as it now is: energy eV, forces [n_atoms][3] eV/Å, virial [3][3] eV, -dE/dstrain. */
typedef mlff_status (*ipi_compute)(void *context, const mlff_system *system, double *energy, double *forces, double *virial);

typedef struct ipi_address {
    const char *unix_name; // socket /tmp/ipi_NAME, or a path if it has a slash; NULL: host and port
    const char *host;
    int port;
    double wait_s; // for a server that is not there yet
} ipi_address;

/* Connects; the descriptor is the caller's to close. MLFF_ERR_IO if there is no server in time, or the wait is interrupted. */
mlff_status ipi_connect(const ipi_address *address, int *socket_out);
/* Answers until the server says EXIT or closes, which both end well. The positions and the cell of `system` follow the server;
 * n_steps_out counts the steps computed, also on failure. MLFF_ERR_INTERRUPTED after Ctrl-C. */
mlff_status ipi_serve(int socket, mlff_system *system, ipi_compute compute, void *context, int64_t *n_steps_out);

#endif
