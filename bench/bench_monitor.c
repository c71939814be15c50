// SPDX-License-Identifier: MIT
// bench_monitor.c: what watching a run costs (mlff_monitor), against the same steps without: blocks of the monitor's period in
// turns, the median of the differences of neighbors in processor time. The force field is arithmetic of a length that is given, with stages,
// counters and nothing else, so that a step of a GPU-resident run is imitated too.
//   bench_monitor [µs a step] [blocks]
#include <math.h>
#include <string.h>

#include "bench.h"
#include "mlff_profile.h"

enum { PERIOD = 320, N_STAGES = 16, ATOMS = 8 };

typedef struct force_field {
    int64_t rounds; // of arithmetic a step
    int clocks;
    double stage_ns[N_STAGES];
    volatile uint64_t sink;
} force_field;

// One copy of it for both: two of them would not run alike.
__attribute__((noinline)) static mlff_status step(void *context, const mlff_system *frame, unsigned wanted, double *energy,
                                                  double *forces, double *stress)
{
    force_field *f = context;
    uint64_t x = f->sink | 1;
    (void)wanted;
    (void)stress;
    for (int k = 0; k < N_STAGES; k++) {
        int64_t start = f->clocks ? mlff_clock_ns() : 0;
        for (int64_t i = 0; i < f->rounds / N_STAGES; i++) x *= x | 1;
        if (f->clocks) f->stage_ns[k] = (double)(mlff_clock_ns() - start);
    }
    f->sink = x;
    if (energy) *energy = 0.0;
    if (forces) memset(forces, 0, 3 * (size_t)frame->n_atoms * sizeof *forces);
    return MLFF_OK;
}

static mlff_status bare_forces(void *context, const mlff_system *frame, double *energy, double *forces)
{
    return step(context, frame, MLFF_ENERGY | MLFF_FORCES, energy, forces, NULL);
}

static mlff_status clock_set(void *context, int on)
{
    ((force_field *)context)->clocks = on;
    return MLFF_OK;
}

static void times(void *context, double *time_ns)
{
    memcpy(time_ns, ((force_field *)context)->stage_ns, N_STAGES * sizeof *time_ns);
}

static void counters(void *context, int64_t *n_pairs, int64_t *n_rebuilds, int64_t *n_growths)
{
    (void)context;
    *n_pairs = 100;
    *n_rebuilds = *n_growths = 0;
}

// Of this thread: what other programs take of the machine is not in it.
static double processor_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static mlff_system *atoms(void)
{
    mlff_system *system;
    bench_check(mlff_system_create(ATOMS, &system));
    for (int i = 0; i < ATOMS; i++) {
        system->species[i] = 14;
        system->positions[3 * i] = 2.5 * i;
    }
    return system;
}

int main(int argc, char **argv)
{
    double step_us = argc > 1 ? atof(argv[1]) : 30.0;
    int n_blocks = argc > 2 ? atoi(argv[2]) : 200;
    mlff_stage stages[N_STAGES];
    for (int k = 0; k < N_STAGES; k++) stages[k] = (mlff_stage){"stage", "", k, ""};
    force_field f = {.rounds = 1000000};
    mlff_callable callable = {.struct_size = sizeof callable,
                              .name = "arithmetic",
                              .context = &f,
                              .properties = MLFF_ENERGY | MLFF_FORCES,
                              .step = step,
                              .n_stages = N_STAGES,
                              .stages = stages,
                              .stage_clock_set = clock_set,
                              .stage_times = times,
                              .counters = counters};
    mlff_system *watched = atoms(), *bare = atoms();
    mlff_dynamics_options options = mlff_dynamics_options_default();
    mlff_monitor *monitor;
    mlff_dynamics *dynamics[2];
    double begun = processor_ms(), energy, forces[3 * ATOMS];
    bench_check(bare_forces(&f, bare, &energy, forces));
    f.rounds = (int64_t)((double)f.rounds * step_us * 1e-3 / (processor_ms() - begun));

    double *differences = malloc((size_t)n_blocks * sizeof *differences), *all = malloc((size_t)n_blocks * sizeof *all);
    if (!differences || !all) return 1;
    bench_check(mlff_monitor_create(&callable, watched, 1.0, 100, &monitor));
    bench_check(mlff_dynamics_create(&options, watched, mlff_monitor_forces, monitor, &dynamics[0]));
    bench_check(mlff_dynamics_create(&options, bare, bare_forces, &f, &dynamics[1]));
    for (int block = 0; block < n_blocks; block++) {
        double ms[2];
        for (int turn = 0; turn < 2; turn++) { // on off, off on
            int side = (turn + block) % 2;
            begun = processor_ms();
            for (int i = 0; i < PERIOD; i++)
                bench_check(side == 0 ? mlff_monitor_step(monitor, dynamics[0]) : mlff_dynamics_step(dynamics[1]));
            ms[side] = (processor_ms() - begun) / PERIOD;
        }
        differences[block] = (ms[0] - ms[1]) * 1e6;
        all[block] = ms[1] * 1e3;
    }
    qsort(differences, (size_t)n_blocks, sizeof *differences, bench_ascending);
    qsort(all, (size_t)n_blocks, sizeof *all, bench_ascending);
    double reach = 0.98 * sqrt((double)n_blocks); // of the median, in ranks: 1.96 √n/2
    int low = (int)fmax(0.5 * n_blocks - reach, 0.0), high = (int)fmin(0.5 * n_blocks + reach, n_blocks - 1.0);
    printf("step %.2f µs; watching it costs %.0f ns (%.0f to %.0f at 95 %%), %.2f %%\n", all[n_blocks / 2],
           differences[n_blocks / 2], differences[low], differences[high], differences[n_blocks / 2] * 0.1 / all[n_blocks / 2]);
    mlff_profile *profile;
    char *text;
    bench_check(mlff_monitor_profile(monitor, NULL, NULL, &profile));
    bench_check(mlff_profile_text(profile, 120, &text));
    char *line = strstr(text, "measuring adds");
    printf("by its own account: %.*s\n", line ? (int)strcspn(line, "\n") : 12, line ? line : "not measured");
    mlff_text_free(text);
    mlff_profile_destroy(profile);
    for (int k = 0; k < 2; k++) mlff_dynamics_destroy(dynamics[k]);
    mlff_monitor_destroy(monitor);
    mlff_system_destroy(watched);
    mlff_system_destroy(bare);
    free(differences);
    free(all);
    return 0;
}
