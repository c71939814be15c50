// SPDX-License-Identifier: MIT
// trace.c: the first steps as a timeline that chrome://tracing, Perfetto and TensorBoard read: one track of steps, one of
// stages, counters of pairs and memory. Stages stand where they ran if the force field records it (our evaluators on the CPU do); where
// their durations alone are known they are laid end to end from the start of their step, and the file says so.
#include <math.h>
#include <string.h>

#include "profile/report/json/json.h"
#include "profile/run/run.h"

mlff_status trace_init(run *r)
{
    int64_t n = r->options.trace_path ? r->options.trace_steps : 0;
    if (r->options.trace_path && n < 1)
        return mlff_fail(MLFF_ERR_USAGE, "profile: a trace of %lld steps; expected 1 or more", (long long)n);
    if (n > r->options.n_steps) n = r->options.n_steps;
    if (n > TRACE_STEPS_MAX) n = TRACE_STEPS_MAX;
    r->trace_capacity = n;
    r->trace = base_alloc((size_t)n, sizeof *r->trace, "a timeline");
    r->trace_stages = base_alloc((size_t)n * (size_t)(r->n_stages > 0 ? r->n_stages : 1), sizeof *r->trace_stages, "a timeline");
    bool spans = n > 0 && r->n_stages > 0 && r->callable.stage_spans;
    r->trace_spans_max = spans ? 2 * r->n_stages + 4 : 0; // a stage may run more than once
    r->trace_spans = base_alloc((size_t)n * (size_t)r->trace_spans_max, sizeof *r->trace_spans, "a timeline");
    return r->trace && r->trace_stages && r->trace_spans ? MLFF_OK : MLFF_ERR_MEMORY;
}

void trace_step(run *r, int64_t start_ns, int64_t time_ns, uint32_t tags)
{
    if (r->n_trace >= r->trace_capacity) return;
    r->trace[r->n_trace] = (traced_step){.start_ns = start_ns,
                                         .time_ns = time_ns,
                                         .force_ns = r->force_ns,
                                         .n_pairs = r->n_pairs,
                                         .resident = r->now_bytes[RESIDENT],
                                         .tags = tags};
    traced_step *t = &r->trace[r->n_trace];
    t->force_start_ns = r->md ? r->force_start_ns : start_ns;
    if (r->trace_spans_max > 0)
        t->n_spans =
            r->callable.stage_spans(r->callable.context, r->trace_spans + r->n_trace * r->trace_spans_max, r->trace_spans_max);
    if (r->n_stages > 0)
        memcpy(r->trace_stages + r->n_trace * r->n_stages, r->stage_step, (size_t)r->n_stages * sizeof *r->stage_step);
    r->n_trace++;
}

static void event(json *j, const char *phase, const char *name, int track, double start_us)
{
    json_open(j, NULL, '{');
    j->flat = true;
    json_string(j, "ph", phase);
    json_string(j, "name", name);
    json_integer(j, "pid", 1);
    json_integer(j, "tid", track);
    json_number(j, "ts", start_us);
}

static void event_end(json *j)
{
    json_close(j, '}');
    j->flat = false;
}

static void name_track(json *j, int track, const char *name)
{
    event(j, "M", track ? "thread_name" : "process_name", track, 0.0);
    json_open(j, "args", '{');
    json_string(j, "name", name);
    json_close(j, '}');
    event_end(j);
}

static void counter(json *j, const char *name, double start_us, double value)
{
    event(j, "C", name, 0, start_us);
    json_open(j, "args", '{');
    json_number(j, "value", value);
    json_close(j, '}');
    event_end(j);
}

static void stage_event(json *j, const char *name, double start_us, double time_us)
{
    event(j, "X", name, 2, start_us);
    json_number(j, "dur", time_us);
    event_end(j);
}

// Stages where they were: between the calls of the force field stands the integrator.
static void write_spans(json *j, const run *r, const mlff_profile *profile, int64_t i)
{
    const traced_step *t = &r->trace[i];
    const mlff_stage_span *spans = r->trace_spans + i * r->trace_spans_max;
    int64_t zero = r->trace[0].start_ns, end = t->start_ns + t->time_ns, force_end = t->force_start_ns + t->force_ns;
    char name[256];
    if (r->md) {
        stage_event(j, "integrate", (double)(t->start_ns - zero) * 1e-3, (double)(t->force_start_ns - t->start_ns) * 1e-3);
        if (force_end < end) stage_event(j, "integrate", (double)(force_end - zero) * 1e-3, (double)(end - force_end) * 1e-3);
    }
    for (int k = 0; k < t->n_spans; k++) {
        if (spans[k].stage < 0 || spans[k].stage >= r->n_stages) continue;
        profile_stage_path(&profile->stages[spans[k].stage], name, sizeof name);
        stage_event(j, name, (double)(spans[k].start_ns - zero) * 1e-3, (double)(spans[k].end_ns - spans[k].start_ns) * 1e-3);
    }
}

// Durations alone are known: end to end, the integrator's part before the forces.
static void write_durations(json *j, const run *r, const mlff_profile *profile, int64_t i)
{
    const traced_step *t = &r->trace[i];
    double at_us = (double)(t->start_ns - r->trace[0].start_ns) * 1e-3;
    char name[256];
    if (r->md) {
        stage_event(j, "integrate", at_us, (double)(t->time_ns - t->force_ns) * 1e-3);
        at_us += (double)(t->time_ns - t->force_ns) * 1e-3;
    }
    for (int k = 0; k < r->n_stages; k++) {
        double time_us = r->trace_stages[i * r->n_stages + k] * 1e-3;
        profile_stage_path(&profile->stages[k], name, sizeof name);
        stage_event(j, name, at_us, time_us);
        at_us += time_us;
    }
}

static void write_step(json *j, const run *r, const mlff_profile *profile, int64_t i)
{
    const traced_step *t = &r->trace[i];
    double start_us = (double)(t->start_ns - r->trace[0].start_ns) * 1e-3;
    char name[256];
    snprintf(name, sizeof name, "step %lld", (long long)i);
    event(j, "X", name, 1, start_us);
    json_number(j, "dur", (double)t->time_ns * 1e-3);
    json_open(j, "args", '{');
    for (int k = 0; k < N_TAGS; k++)
        if (t->tags >> k & 1) json_boolean(j, profile_tag_names[k], 1);
    json_close(j, '}');
    event_end(j);
    (t->n_spans > 0 ? write_spans : write_durations)(j, r, profile, i);
    if (t->n_pairs >= 0) counter(j, "pairs", start_us, (double)t->n_pairs);
    counter(j, "resident MB", start_us, (double)t->resident / 1048576.0);
}

enum { FIRST_STREAM_TRACK = 10, STREAM_TRACKS_MAX = 64, LANES = 3, HOST_WAITS_TRACK = 3 };

typedef struct stream_track {
    uint32_t device, stream;
    int64_t busy_until[LANES]; /* a viewer drops what overlaps on a track: a kernel that begins early gets a lane beside it */
} stream_track;

static int track_of(json *j, stream_track *tracks, int *n_tracks, const activity_record *a)
{
    int t = 0, lane = 0;
    char name[64];
    while (t < *n_tracks && (tracks[t].device != a->device || tracks[t].stream != a->stream)) t++;
    if (t == STREAM_TRACKS_MAX) return -1;
    if (t == *n_tracks) tracks[(*n_tracks)++] = (stream_track){.device = a->device, .stream = a->stream};
    while (lane + 1 < LANES && tracks[t].busy_until[lane] > a->start_ns) lane++;
    int track = FIRST_STREAM_TRACK + t * LANES + lane;
    if (tracks[t].busy_until[lane] == 0) {
        snprintf(name, sizeof name, "GPU %u stream %u%s", a->device, a->stream, lane ? ", overlapping" : "");
        name_track(j, track, name);
    }
    tracks[t].busy_until[lane] = a->end_ns;
    return track;
}

// The steps after the run whose kernels were traced: a track for each stream, and one for the host's waits.
static void write_kernels(json *j, const run *r)
{
    stream_track tracks[STREAM_TRACKS_MAX];
    int n_tracks = 0;
    if (r->n_kernel_steps == 0) return;
    int64_t zero = r->n_trace > 0 ? r->trace[0].start_ns : r->kernel_steps[0].start_ns;
    name_track(j, HOST_WAITS_TRACK, "host waits");
    for (int64_t i = 0; i < r->n_kernel_steps; i++) {
        char name[48];
        const kernel_step *s = &r->kernel_steps[i];
        snprintf(name, sizeof name, "traced step %lld", (long long)i);
        event(j, "X", name, 1, (double)(s->start_ns - zero) * 1e-3);
        json_number(j, "dur", (double)(s->end_ns - s->start_ns) * 1e-3);
        event_end(j);
    }
    for (size_t i = 0; i < r->activity.n_records; i++) {
        const activity_record *a = &r->activity.records[i];
        int track = a->kind == ACTIVITY_WAIT ? HOST_WAITS_TRACK : track_of(j, tracks, &n_tracks, a);
        if (track < 0) continue;
        event(j, "X", kernel_name(&r->activity, a), track, (double)(a->start_ns - zero) * 1e-3);
        json_number(j, "dur", (double)(a->end_ns - a->start_ns) * 1e-3);
        event_end(j);
    }
}

mlff_status trace_write(const run *r, const mlff_profile *profile)
{
    if (!r->options.trace_path) return MLFF_OK;
    char *text = NULL;
    json j = {.empty = true};
    json_open(&j, NULL, '{');
    json_string(&j, "displayTimeUnit", "ms");
    json_open(&j, "otherData", '{');
    json_string(&j, "name", profile->name);
    json_string(&j, "model", profile->model_name);
    json_string(&j, "device", profile->device);
    json_string(&j, "mlff_version", mlff_version());
    json_string(&j, "stages",
                r->n_trace > 0 && r->trace[0].n_spans > 0
                    ? "starts and durations are measured"
                    : "durations are measured; starts are laid end to end from the start of the step");
    json_close(&j, '}');
    json_open(&j, "traceEvents", '[');
    name_track(&j, 0, "mlff");
    name_track(&j, 1, "steps");
    name_track(&j, 2, "stages");
    for (int64_t i = 0; i < r->n_trace; i++) write_step(&j, r, profile, i);
    write_kernels(&j, r);
    json_close(&j, ']');
    json_close(&j, '}');
    mlff_status status = json_take(&j, &text);
    if (status == MLFF_OK) status = profile_write_file(r->options.trace_path, text);
    mlff_text_free(text);
    return status;
}
