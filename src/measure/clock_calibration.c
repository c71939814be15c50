// SPDX-License-Identifier: MIT
// clock_calibration.c: what the host clock costs and resolves.
#include <pthread.h>

#include "measure.h"

static pthread_once_t calibrated = PTHREAD_ONCE_INIT;
static double quantum, read_cost;

// The quantum is the smallest difference ever seen between two readings, not the average one: a preempted
// reading is long, none is too short. The cost is that of the best of several batches for the same reason.
static void calibrate(void)
{
    enum { BATCHES = 16, READS = 500 };
    int64_t smallest = INT64_MAX;
    double best = 1e18;
    for (int batch = 0; batch < BATCHES; batch++) {
        int64_t start = mlff_clock_ns(), last = start;
        for (int i = 0; i < READS; i++) {
            int64_t now = mlff_clock_ns();
            if (now > last && now - last < smallest) smallest = now - last;
            last = now;
        }
        double cost = (double)(last - start) / READS;
        if (cost < best) best = cost;
    }
    // On a coarse clock no difference may fall into the batches: wait for one.
    for (int64_t start = mlff_clock_ns(); smallest == INT64_MAX;) {
        int64_t now = mlff_clock_ns();
        if (now > start) smallest = now - start;
    }
    quantum = (double)smallest;
    read_cost = best;
}

void mlff_clock_calibration(double *quantum_ns, double *read_ns)
{
    pthread_once(&calibrated, calibrate);
    if (quantum_ns) *quantum_ns = quantum;
    if (read_ns) *read_ns = read_cost;
}
