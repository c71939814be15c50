/* SPDX-License-Identifier: MIT */
/* energy.h: what a run cost in energy, and how the device's clock and temperature went along it. */
#ifndef PROFILE_ENERGY_H
#define PROFILE_ENERGY_H

#include "measure/power/power.h"
#include "profile/profile.h"
#include "profile/report/json/json.h"

typedef struct energy_report {
    char *source;  /* "NVML: the whole GPU"; "" if nothing could be read, and then */
    char *problem; /* why */
    int64_t n_samples;
    double joules_per_step, joules_low, joules_high; /* of the time from step to step, with an interval at 95 % */
    double watts;                                    /* mean */
    double sm_mhz, sm_mhz_min, memory_mhz;           /* median, least, median */
    double temperature_c, temperature_max_c;         /* first, highest */
    double slowed_share;                             /* of the steps, in which the clock was well below its median */
    int64_t reasons;                                 /* why the clock was lowered, all samples together; NVML's bits */
} energy_report;

void energy_report_free(energy_report *report);
/* From samples in the order of steps. */
mlff_status energy_derive(const power_series *series, energy_report **report_out);
/* "1.23 mJ a step (1.20 to 1.26 …), 412 W" or why not. */
void energy_text(const energy_report *report, char *text, size_t text_bytes);
/* "SM clock 1980 MHz (1755 at least), …"; "" where there is none. */
void energy_clock_text(const energy_report *report, char *text, size_t text_bytes);
void energy_write(json *j, const energy_report *report);
struct cJSON;
mlff_status energy_read(const char *path, const struct cJSON *object, energy_report **report_out);

/* ns/day of the run, in the same way from its steps. */
void ns_per_day_interval(const mlff_profile *profile, double *low, double *high);

#endif
