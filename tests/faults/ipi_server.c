// SPDX-License-Identifier: MIT
// ipi_server.c: a server of the i-PI protocol for tests: asks one client for the forces of water, twice, and ends.
//   ipi_server SOCKET
// Exit status: 0 if the client answered all, 1 if it left.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int client;

static int sends(const void *bytes, size_t length)
{
    return send(client, bytes, length, MSG_NOSIGNAL) == (ssize_t)length;
}

static int receives(void *bytes, size_t length)
{
    return recv(client, bytes, length, MSG_WAITALL) == (ssize_t)length;
}

static int asks_forces(void)
{
    enum { ATOMS = 3 };
    static const double matrices[18], positions[3 * ATOMS] = {0, 0, 0.2, 0, 1.4, -0.9, 0, -1.4, -0.9};
    const int32_t n_atoms = ATOMS;
    char answer[12 + 8 + 4 + 8 * 3 * ATOMS + 8 * 9 + 4];
    return sends("POSDATA     ", 12) && sends(matrices, sizeof matrices) && sends(&n_atoms, sizeof n_atoms) &&
           sends(positions, sizeof positions) && sends("GETFORCE    ", 12) && receives(answer, sizeof answer) &&
           memcmp(answer, "FORCEREADY  ", 12) == 0;
}

int main(int argc, char **argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = 10};
    if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path) return 2;
    memcpy(address.sun_path, argv[1], strlen(argv[1]));
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit); // for accept
    unlink(argv[1]);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 1) != 0) return 2;
    client = accept(listener, NULL, NULL);
    const int answered = client >= 0 && asks_forces() && asks_forces() && sends("EXIT        ", 12);
    unlink(argv[1]);
    return answered ? 0 : 1;
}
