// SPDX-License-Identifier: MIT
// power.c: a meter of either kind, and its samples along a run.
#include "power.h"

#include <math.h>
#include <string.h>

#include "mlff_profile.h"

enum { FIRST_INTERVAL_NS = 20000000, READING_SHARE = 500 };

mlff_status power_open(const char *device, const char *pci, power_meter *meter)
{
    *meter = (power_meter){0};
    return strncmp(device, "cuda", 4) == 0 ? nvml_open(device, pci, meter) : rapl_open(meter);
}

void power_read(power_meter *meter, power_sample *s)
{
    int64_t step = s->step;
    *s = (power_sample){.time_ns = mlff_clock_ns(),
                        .step = step,
                        .joules = NAN,
                        .watts = NAN,
                        .sm_mhz = -1,
                        .memory_mhz = -1,
                        .temperature_c = -1,
                        .whole_bytes = -1,
                        .process_bytes = -1};
    meter->device ? nvml_read(meter, s) : rapl_read(meter, s);
}

void power_close(power_meter *meter)
{
    base_free(meter->last_joules);
    *meter = (power_meter){0};
}

mlff_status power_series_open(power_series *s, const char *device, const char *pci)
{
    *s = (power_series){.interval_ns = FIRST_INTERVAL_NS};
    s->samples = base_alloc(POWER_SAMPLES, sizeof *s->samples, "samples of power");
    if (!s->samples) return MLFF_ERR_MEMORY;
    s->open = power_open(device, pci, &s->meter) == MLFF_OK;
    if (!s->open) snprintf(s->problem, sizeof s->problem, "%s", mlff_last_error());
    if (s->open) power_read(&s->meter, &(power_sample){0}); // the first reading takes many times as long as the others
    return MLFF_OK;
}

void power_series_look(power_series *s, int64_t step, bool always)
{
    if (!s->open) return;
    int64_t now = mlff_clock_ns();
    if (!always && now < s->next_ns) return;
    if (s->n == POWER_SAMPLES) {
        for (int i = 0; i < POWER_SAMPLES / 2; i++) s->samples[i] = s->samples[2 * i];
        s->n = POWER_SAMPLES / 2;
        s->interval_ns *= 2;
    }
    power_sample *sample = &s->samples[s->n++];
    sample->step = step;
    power_read(&s->meter, sample);
    int64_t pause_ns = (mlff_clock_ns() - now) * READING_SHARE; // for this one; the next may be quicker
    s->next_ns = now + (pause_ns > s->interval_ns ? pause_ns : s->interval_ns);
}

void power_series_close(power_series *s)
{
    power_close(&s->meter);
    base_free(s->samples);
    *s = (power_series){0};
}
