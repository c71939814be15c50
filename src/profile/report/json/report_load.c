// SPDX-License-Identifier: MIT
// report_load.c: a record back from JSON. What can be derived (shares, verdicts, recommendations) is derived again, so
// that files of other programs that keep the contract's keys are judged by the same rules.
#include <cjson/cJSON.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "json_members.h"
#include "profile/ranks/rank_report.h"
#include "profile/sensors/energy.h"
#include "profile/sensors/gpu_kernels.h"

// A profile of 10^5 steps has 2 MB. A parsed number costs 80 bytes, so the count of values is bounded before parsing.
enum { FILE_LIMIT = 128 << 20, VALUES_LIMIT = 4000000 };

static mlff_status read_contract(const loader *l, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    mlff_profile_summary *s = &profile->summary;
    int64_t n_atoms = 0;
    if (!cJSON_GetObjectItemCaseSensitive(l->object, "name") && cJSON_GetObjectItemCaseSensitive(l->object, "bars"))
        MLFF_FAIL(MLFF_ERR_FORMAT,
                  "%s: a verdict on a student, not a profile; the page of a distillation is report.html in its folder", l->path);
    MLFF_TRY(member_text(l, "name", REQUIRED, &profile->name));
    MLFF_TRY(member_text(l, "model_name", REQUIRED, &profile->model_name));
    MLFF_TRY(member_integer(l, "n_steps", REQUIRED, 1, (int64_t)1 << 53, &s->n_steps));
    MLFF_TRY(member_text(l, "device", REQUIRED, &profile->device));
    MLFF_TRY(member_numbers(l, "latencies_ms", &profile->latency_ms, &profile->n_latency));
    s->latency_ms.n = s->n_steps;
    MLFF_TRY(member_number(l, "mean_latency_ms", REQUIRED, &s->latency_ms.mean));
    MLFF_TRY(member_number(l, "median_latency_ms", REQUIRED, &s->latency_ms.median));
    MLFF_TRY(member_number(l, "std_latency_ms", REQUIRED, &s->latency_ms.std));
    MLFF_TRY(member_number(l, "min_latency_ms", REQUIRED, &s->latency_ms.min));
    MLFF_TRY(member_number(l, "max_latency_ms", REQUIRED, &s->latency_ms.max));
    MLFF_TRY(member_number(l, "p95_latency_ms", REQUIRED, &s->latency_ms.p95));
    MLFF_TRY(member_number(l, "p99_latency_ms", REQUIRED, &s->latency_ms.p99));
    MLFF_TRY(member_number(l, "energy_time_ms", REQUIRED | MAY_BE_NULL, &s->energy_time_ms));
    MLFF_TRY(member_number(l, "forces_time_ms", REQUIRED | MAY_BE_NULL, &s->forces_time_ms));
    MLFF_TRY(member_number(l, "stress_time_ms", REQUIRED | MAY_BE_NULL, &s->stress_time_ms));
    s->memory_initial_gb = s->memory_final_gb = s->memory_peak_gb = NAN;
    MLFF_TRY(member_number(l, "memory_initial_gb", REQUIRED | MAY_BE_NULL, &s->memory_initial_gb));
    MLFF_TRY(member_number(l, "memory_final_gb", REQUIRED | MAY_BE_NULL, &s->memory_final_gb));
    MLFF_TRY(member_number(l, "memory_peak_gb", REQUIRED | MAY_BE_NULL, &s->memory_peak_gb));
    MLFF_TRY(member_numbers(l, "memory_per_step_gb", &profile->memory_gb, &profile->n_memory));
    MLFF_TRY(member_integer(l, "n_atoms", REQUIRED, 0, INT_MAX, &n_atoms));
    s->n_atoms = (int)n_atoms;
    MLFF_TRY(member_text(l, "system_size", REQUIRED, &profile->system_size));
    MLFF_TRY(member_number(l, "mean_atoms", 0, &profile->mean_atoms));
    MLFF_TRY(member_number(l, "first_pairs", MAY_BE_NULL, &profile->first_pairs));
    MLFF_TRY(member_number(l, "total_time_s", REQUIRED, &s->total_time_s));
    MLFF_TRY(member_number(l, "steps_per_second", REQUIRED, &s->steps_per_second));
    MLFF_TRY(member_text(l, "timestamp", REQUIRED | MAY_BE_NULL, &profile->timestamp));
    MLFF_TRY(member_text(l, "notes", REQUIRED | MAY_BE_NULL, &profile->notes));
done:
    return status;
}

static mlff_status read_ceilings(const loader *l, ceilings *c)
{
    mlff_status status = MLFF_OK;
    loader inner = {.path = l->path, .inside = "ceilings."};
    double *values = NULL;
    char *products = NULL;
    int64_t n = 0, threads = 0;
    MLFF_TRY(member_get(l, "ceilings", false, &inner.object));
    if (!inner.object) return MLFF_OK;
    MLFF_TRY(member_integer(&inner, "threads", 0, 0, 100000, &threads));
    MLFF_TRY(member_number(&inner, "gflops", MAY_BE_NULL, &c->flops_a_ns));
    MLFF_TRY(member_number(&inner, "product_gflops", MAY_BE_NULL, &c->product_flops_a_ns));
    MLFF_TRY(member_text(&inner, "products", MAY_BE_NULL, &products));
    for (int k = 1; products && k < N_CEILING_PRODUCTS; k++)
        if (strcmp(products, ceiling_product_names[k]) == 0) c->products = (ceiling_products)k;
    for (int pass = 0; pass < 2; pass++) {
        MLFF_TRY(member_numbers(&inner, pass ? "gbytes_per_s" : "level_bytes", &values, &n));
        for (int64_t k = 0; k < n && k < CEILING_LEVELS; k++) (pass ? c->bytes_a_ns : c->level_bytes)[k] = values[k];
        base_free(values);
        values = NULL;
    }
    c->n_threads = (int)threads;
done:
    base_free(products);
    return status;
}

static mlff_status read_counters(const loader *l, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    mlff_profile_summary *s = &profile->summary;
    loader inner = {.path = l->path, .inside = "counters."};
    MLFF_TRY(member_get(l, "counters", false, &inner.object));
    MLFF_TRY(member_number(&inner, "mean_pairs", MAY_BE_NEGATIVE, &s->mean_pairs));
    MLFF_TRY(member_integer(&inner, "n_rebuilds", 0, -1, INT64_MAX / 2, &s->n_rebuilds));
    MLFF_TRY(member_integer(&inner, "n_growths", 0, -1, INT64_MAX / 2, &profile->n_growths));
    MLFF_TRY(member_integer(&inner, "n_not_finite", 0, 0, INT64_MAX / 2, &profile->n_not_finite));
    MLFF_TRY(member_number(&inner, "rebuild_median_ms", MAY_BE_NULL, &profile->rebuild_median_ms));
    MLFF_TRY(member_number(&inner, "other_median_ms", MAY_BE_NULL, &profile->other_median_ms));
    inner.inside = "steps_with.";
    MLFF_TRY(member_get(l, "steps_with", false, &inner.object));
    for (int k = 0; k < N_TAGS; k++)
        MLFF_TRY(member_integer(&inner, profile_tag_names[k], 0, 0, (int64_t)1 << 53, &profile->n_tagged[k]));
    inner.inside = "timer.";
    MLFF_TRY(member_get(l, "timer", false, &inner.object));
    MLFF_TRY(member_number(&inner, "quantum_ns", MAY_BE_NULL, &profile->quantum_ns));
    MLFF_TRY(member_number(&inner, "read_ns", MAY_BE_NULL, &profile->read_ns));
    MLFF_TRY(read_ceilings(l, &profile->ceilings));
    inner.inside = "overhead.";
    MLFF_TRY(member_get(l, "overhead", false, &inner.object));
    MLFF_TRY(member_number(&inner, "ns", MAY_BE_NULL | MAY_BE_NEGATIVE, &profile->overhead_ns));
    MLFF_TRY(member_number(&inner, "low_ns", MAY_BE_NULL | MAY_BE_NEGATIVE, &profile->overhead_low_ns));
    MLFF_TRY(member_number(&inner, "high_ns", MAY_BE_NULL | MAY_BE_NEGATIVE, &profile->overhead_high_ns));
done:
    return status;
}

static mlff_status read_added(const loader *l, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    mlff_profile_summary *s = &profile->summary;
    int64_t version = PROFILE_SCHEMA_VERSION;
    bool partial = false;
    MLFF_TRY(member_integer(l, "schema_version", 0, 1, INT_MAX, &version));
    if (version > PROFILE_SCHEMA_VERSION)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: schema_version %lld is of a newer mlff than this one, which knows %d; update mlff",
                  l->path, (long long)version, PROFILE_SCHEMA_VERSION);
    MLFF_TRY(member_integer(l, "latencies_every", 0, 1, (int64_t)1 << 53, &profile->latency_every));
    MLFF_TRY(member_integer(l, "n_warmup", 0, 0, (int64_t)1 << 53, &s->n_warmup));
    MLFF_TRY(member_number(l, "warmup_first_ms", MAY_BE_NULL, &s->warmup_first_ms));
    MLFF_TRY(member_number(l, "warmup_mean_ms", MAY_BE_NULL, &s->warmup_mean_ms));
    MLFF_TRY(member_boolean(l, "partial", &partial));
    s->partial = partial;
    MLFF_TRY(member_text(l, "trajectory", MAY_BE_NULL, &profile->trajectory));
    MLFF_TRY(member_number(l, "timestep_fs", MAY_BE_NULL, &profile->timestep_fs));
    s->latency_ms.cv = s->latency_ms.mean > 0.0 ? s->latency_ms.std / s->latency_ms.mean : 0.0;
    MLFF_TRY(member_number(l, "cv", MAY_BE_NULL, &s->latency_ms.cv));
    MLFF_TRY(member_integer(l, "n_outliers", 0, 0, (int64_t)1 << 53, &s->latency_ms.n_outliers));
    MLFF_TRY(member_number(l, "wall_time_s", MAY_BE_NULL, &profile->wall_time_s));
    MLFF_TRY(member_integer(l, "memory_every", 0, 1, (int64_t)1 << 53, &profile->memory_every));
    MLFF_TRY(member_number(l, "heap_initial_gb", MAY_BE_NULL, &s->heap_initial_gb));
    MLFF_TRY(member_number(l, "heap_final_gb", MAY_BE_NULL, &s->heap_final_gb));
    MLFF_TRY(read_counters(l, profile));

    int64_t expected = (s->n_steps - 1) / profile->latency_every + 1;
    if (profile->n_latency != expected)
        MLFF_FAIL(MLFF_ERR_FORMAT,
                  "%s: \"latencies_ms\" has %lld values where \"n_steps\" and \"latencies_every\" make %lld; the file was cut or "
                  "changed",
                  l->path, (long long)profile->n_latency, (long long)expected);
done:
    return status;
}

static mlff_status read_samples(const loader *l, profile_ledger *ledger)
{
    const cJSON *array;
    int64_t n = 0;
    mlff_status status = member_get(l, "samples", true, &array);
    if (status != MLFF_OK || !array) return status;
    if (cJSON_GetArraySize(array) > MEMORY_SAMPLES)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: \"%ssamples\" has %d values, more than the %d a run keeps", l->path, l->inside,
                         cJSON_GetArraySize(array), MEMORY_SAMPLES);
    status = member_numbers(l, "samples", &ledger->samples, &n);
    ledger->n_samples = (int)n;
    return status;
}

static mlff_status read_ledgers(const loader *l, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    char inside[48], *leak = NULL;
    const cJSON *array, *item;
    MLFF_TRY(member_integer(l, "available_bytes", 0, -1, INT64_MAX / 2, &profile->available_bytes));
    MLFF_TRY(member_get(l, "memory_ledgers", true, &array));
    if (!array) return MLFF_OK;
    profile->ledgers = base_alloc((size_t)cJSON_GetArraySize(array), sizeof *profile->ledgers, "memory ledgers");
    if (!profile->ledgers) return MLFF_ERR_MEMORY;
    cJSON_ArrayForEach(item, array)
    {
        profile_ledger *ledger = &profile->ledgers[profile->n_ledgers];
        snprintf(inside, sizeof inside, "memory_ledgers[%d].", profile->n_ledgers++);
        loader inner = {l->path, item, inside};
        MLFF_TRY(member_text(&inner, "name", REQUIRED, &ledger->name));
        MLFF_TRY(member_integer(&inner, "initial_bytes", REQUIRED, INT64_MIN / 2, INT64_MAX / 2, &ledger->initial_bytes));
        MLFF_TRY(member_integer(&inner, "final_bytes", REQUIRED, INT64_MIN / 2, INT64_MAX / 2, &ledger->final_bytes));
        MLFF_TRY(member_integer(&inner, "peak_bytes", REQUIRED, INT64_MIN / 2, INT64_MAX / 2, &ledger->peak_bytes));
        MLFF_TRY(member_number(&inner, "leak_bytes_per_step", MAY_BE_NEGATIVE | MAY_BE_NULL, &ledger->leak.bytes_per_sample));
        int64_t explained_by = 0;
        ledger->leak.detectable = NAN;
        MLFF_TRY(member_number(&inner, "leak_low_bytes_per_step", MAY_BE_NEGATIVE | MAY_BE_NULL, &ledger->leak.low));
        MLFF_TRY(member_number(&inner, "leak_high_bytes_per_step", MAY_BE_NEGATIVE | MAY_BE_NULL, &ledger->leak.high));
        MLFF_TRY(member_number(&inner, "detectable_bytes_per_step", MAY_BE_NULL, &ledger->leak.detectable));
        MLFF_TRY(member_integer(&inner, "explained_by", 0, 0, 1, &explained_by));
        ledger->leak.explained_by = (int)explained_by;
        MLFF_TRY(member_number(&inner, "explained_bytes_per_unit", MAY_BE_NULL, &ledger->leak.bytes_per_unit));
        MLFF_TRY(read_samples(&inner, ledger));
        MLFF_TRY(member_text(&inner, "leak", MAY_BE_NULL, &leak));
        for (int k = 0; leak && k < N_LEAK_KINDS; k++)
            if (strcmp(leak, profile_leak_names[k]) == 0) ledger->leak.kind = (leak_kind)k;
        base_free(leak);
        leak = NULL;
    }
done:
    base_free(leak);
    return status;
}

static mlff_status read_blocks(const loader *l, profile_stage *row)
{
    const cJSON *array;
    double *values = NULL;
    int64_t n = 0;
    mlff_status status = member_get(l, "blocks_ms", true, &array);
    if (status != MLFF_OK || !array) return status;
    status = member_numbers(l, "blocks_ms", &values, &n);
    if (status == MLFF_OK && n == STAGE_BLOCKS) { // of another number nothing is made
        memcpy(row->blocks_ms, values, sizeof row->blocks_ms);
        row->n_blocks = STAGE_BLOCKS;
    }
    base_free(values);
    return status;
}

// The advice of earlier builds said by what a stage is bound, whether or not a limit was measured. This clause is left out; from the numbers
// the same is derived again where they show it. Other texts, which may be a callable's own, stay as they are.
static void drop_unmeasured_bound(char *advice)
{
    static const char *const described[] = {"matrix products of every member for each atom",
                                            "matrix products for each edge",
                                            "matrix products for each atom",
                                            "matrix products over atoms",
                                            "means over systems and small networks",
                                            "a small network for each atom",
                                            "the sum over pairs of products of features",
                                            "one pass over all pairs",
                                            "pair gradients summed into forces"};
    static const char claim[] = ", bound by ";
    for (size_t k = 0; k < sizeof described / sizeof *described; k++) {
        const size_t n = strlen(described[k]);
        if (strncmp(advice, described[k], n) != 0 || strncmp(advice + n, claim, sizeof claim - 1) != 0) continue;
        const char *end = advice + n + strcspn(advice + n, ".");
        memmove(advice + n, end, strlen(end) + 1);
        return;
    }
}

static mlff_status read_stage(const loader *l, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    char *name = NULL, *phase = NULL, *includes = NULL, *advice = NULL;
    int64_t layer = -1;
    mlff_statistics time = {.median = NAN, .p95 = NAN};
    MLFF_TRY(profile_set(&phase, ""));
    MLFF_TRY(profile_set(&includes, ""));
    MLFF_TRY(profile_set(&advice, ""));
    MLFF_TRY(member_text(l, "name", REQUIRED, &name));
    MLFF_TRY(member_text(l, "phase", MAY_BE_NULL, &phase));
    MLFF_TRY(member_text(l, "includes", MAY_BE_NULL, &includes));
    MLFF_TRY(member_text(l, "advice", MAY_BE_NULL, &advice));
    drop_unmeasured_bound(advice);
    MLFF_TRY(member_integer(l, "layer", 0, -1, 1000000, &layer));
    MLFF_TRY(member_number(l, "mean_ms", REQUIRED | MAY_BE_NEGATIVE, &time.mean));
    MLFF_TRY(member_number(l, "median_ms", MAY_BE_NULL | MAY_BE_NEGATIVE, &time.median));
    MLFF_TRY(member_number(l, "p95_ms", MAY_BE_NULL | MAY_BE_NEGATIVE, &time.p95));
    MLFF_TRY(profile_add_stage(profile, &(mlff_stage){name, phase, (int)layer, includes}, &time));
    profile_stage *row = &profile->stages[profile->n_stages - 1];
    MLFF_TRY(profile_set(&row->advice, advice));
    MLFF_TRY(read_blocks(l, row));
    MLFF_TRY(member_number(l, "in_median_step_ms", MAY_BE_NULL | MAY_BE_NEGATIVE, &row->example_ms[EXAMPLE_MEDIAN]));
    MLFF_TRY(member_number(l, "in_slowest_step_ms", MAY_BE_NULL | MAY_BE_NEGATIVE, &row->example_ms[EXAMPLE_SLOW]));
    MLFF_TRY(member_number(l, "flops", MAY_BE_NULL, &row->flops));
    MLFF_TRY(member_number(l, "bytes", MAY_BE_NULL, &row->bytes));
    MLFF_TRY(member_number(l, "bound_ms", MAY_BE_NULL, &row->bound_ms));
    MLFF_TRY(member_boolean(l, "bound_by_memory", &row->bound_by_memory));
done:
    base_free(name);
    base_free(phase);
    base_free(includes);
    base_free(advice);
    return status;
}

static mlff_status read_example(const loader *l, const char *key, profile_example *example)
{
    mlff_status status = MLFF_OK;
    loader inner = {.path = l->path, .inside = ""};
    MLFF_TRY(member_get(l, key, false, &inner.object));
    if (!inner.object) return MLFF_OK;
    MLFF_TRY(member_integer(&inner, "step", REQUIRED, 0, (int64_t)1 << 53, &example->step));
    MLFF_TRY(member_number(&inner, "time_ms", REQUIRED, &example->ms));
done:
    return status;
}

static mlff_status read_stages(const loader *l, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    char inside[32];
    const cJSON *array, *item;
    MLFF_TRY(member_boolean(l, "stages_measured", &profile->stages_measured));
    MLFF_TRY(member_get(l, "stages", true, &array));
    if (cJSON_GetArraySize(array) == 0) {
        profile->stages_measured = false;
        MLFF_TRY(profile_add_split(profile, NULL));
        return profile_add_unattributed(profile, NAN, NAN);
    }
    if (cJSON_GetArraySize(array) > PROFILE_MAX_STAGES)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: \"stages\" has %d rows, more than the %d any step has", l->path,
                  cJSON_GetArraySize(array), PROFILE_MAX_STAGES);
    cJSON_ArrayForEach(item, array)
    {
        snprintf(inside, sizeof inside, "stages[%d].", profile->n_stages);
        MLFF_TRY(read_stage(&(loader){l->path, item, inside}, profile));
    }
    for (int k = 0; k < N_EXAMPLES; k++) MLFF_TRY(read_example(l, profile_example_names[k], &profile->examples[k]));
done:
    return status;
}

// A cause by its name; unknown for those of a newer mlff.
static int cause_named(const char *name)
{
    int k = 0;
    if (!name) return UNKNOWN_CAUSE;
    if (strcmp(name, "preempted") == 0) return CAUSE_CPU_WAIT; // its name in older reports
    while (k < UNKNOWN_CAUSE && strcmp(name, profile_cause_names[k]) != 0) k++;
    return k;
}

static mlff_status read_slowest(const loader *l, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    char inside[32];
    const cJSON *array, *item, *seen, *word;
    MLFF_TRY(member_get(l, "slowest_steps", true, &array));
    cJSON_ArrayForEach(item, array)
    {
        if (profile->n_slowest == SERIES_SLOWEST) break;
        series_slow *slow = &profile->slowest[profile->n_slowest];
        snprintf(inside, sizeof inside, "slowest_steps[%d].", profile->n_slowest++);
        loader inner = {l->path, item, inside};
        MLFF_TRY(member_integer(&inner, "step", REQUIRED, 0, (int64_t)1 << 53, &slow->step));
        MLFF_TRY(member_number(&inner, "latency_ms", REQUIRED, &slow->value));
        MLFF_TRY(member_get(&inner, "seen", true, &seen));
        char *cause = NULL;
        MLFF_TRY(member_text(&inner, "cause", MAY_BE_NULL, &cause));
        profile->slowest_cause[profile->n_slowest - 1] = cause_named(cause);
        base_free(cause);
        cJSON_ArrayForEach(word, seen) for (int k = 0; k < N_TAGS;
                                            k++) if (cJSON_IsString(word) && strcmp(word->valuestring, profile_tag_names[k]) == 0)
            slow->tags |= 1u << k;
    }
done:
    return status;
}

static mlff_status read_tail(const loader *l, profile_tail *tail)
{
    mlff_status status = MLFF_OK;
    char inside[40], *cause = NULL;
    const cJSON *array, *item;
    loader inner = {.path = l->path, .inside = "tail."};
    int n = 0;
    MLFF_TRY(member_get(l, "tail", false, &inner.object));
    MLFF_TRY(member_number(&inner, "threshold_ms", MAY_BE_NULL, &tail->threshold_ms));
    MLFF_TRY(member_number(&inner, "median_ms", MAY_BE_NULL, &tail->median_ms));
    MLFF_TRY(member_get(&inner, "causes", true, &array));
    tail->cpu_wait_share = tail->cpu_rise = tail->pace_rise = tail->queue_ms = tail->queue_least_ms = NAN;
    tail->team_cores = tail->program_cores = tail->off_share = NAN;
    MLFF_TRY(member_number(&inner, "share", MAY_BE_NULL, &tail->share));
    MLFF_TRY(member_number(&inner, "cpu_wait_share", MAY_BE_NULL, &tail->cpu_wait_share));
    MLFF_TRY(member_number(&inner, "own_threads_cores", MAY_BE_NULL, &tail->team_cores));
    MLFF_TRY(member_number(&inner, "other_programs_cores", MAY_BE_NULL, &tail->program_cores));
    MLFF_TRY(member_number(&inner, "off_share", MAY_BE_NULL, &tail->off_share));
    MLFF_TRY(member_number(&inner, "cpu_rise", MAY_BE_NULL, &tail->cpu_rise));
    MLFF_TRY(member_number(&inner, "pace_rise", MAY_BE_NULL, &tail->pace_rise));
    MLFF_TRY(member_number(&inner, "gpu_queue_ms", MAY_BE_NULL, &tail->queue_ms));
    MLFF_TRY(member_number(&inner, "gpu_queue_least_ms", MAY_BE_NULL, &tail->queue_least_ms));
    MLFF_TRY(member_boolean(&inner, "virtual_machine", &tail->virtual_machine));
    cJSON_ArrayForEach(item, array)
    {
        snprintf(inside, sizeof inside, "tail.causes[%d].", n++);
        loader row = {l->path, item, inside};
        int64_t n_steps = 0;
        double excess_ms = 0.0;
        int k = 0;
        MLFF_TRY(member_text(&row, "cause", REQUIRED, &cause));
        MLFF_TRY(member_integer(&row, "n_steps", REQUIRED, 1, (int64_t)1 << 40, &n_steps));
        MLFF_TRY(member_number(&row, "excess_ms", REQUIRED, &excess_ms));
        k = cause_named(cause);
        tail->n_by_cause[k] += n_steps;
        tail->excess_ms[k] += excess_ms;
        tail->n_steps += n_steps;
        MLFF_TRY(member_number(&row, "each_ms", MAY_BE_NULL, &tail->each_ms[k]));
        MLFF_TRY(member_integer(&row, "period", 0, 0, (int64_t)1 << 40, &tail->period[k]));
        if (!isfinite(tail_excess_ms(tail)))
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: \"%sexcess_ms\" is larger than times can be", l->path, inside);
    }
    MLFF_TRY(member_integer(&inner, "n_steps", 0, 0, (int64_t)1 << 53, &tail->n_steps));
done:
    base_free(cause);
    return status;
}

static mlff_status read_pairs(const loader *l, const char *key, environment *pairs)
{
    mlff_status status = MLFF_OK;
    const cJSON *object, *item;
    MLFF_TRY(member_get(l, key, false, &object));
    cJSON_ArrayForEach(item, object)
    {
        if (pairs->n == ENVIRONMENT_MAX) break;
        if (cJSON_IsString(item)) MLFF_TRY(environment_add(pairs, item->string, item->valuestring));
    }
done:
    return status;
}

// ---- the file ------------------------------------------------------------------------------------

static mlff_status syntax_error(const char *path, const char *text, size_t length, const char *at)
{
    int line = 1;
    if (!at || at < text || at > text + length) at = text + length;
    for (const char *c = text; c < at; c++) line += *c == '\n';
    size_t rest = strspn(at, " \t\r\n,:-[");
    if (strncmp(at + rest, "NaN", 3) == 0 || strncmp(at + rest, "Infinity", 8) == 0)
        return mlff_fail(MLFF_ERR_FORMAT, "%s:%d: NaN and Infinity are not JSON; write null", path, line);
    if (!at[rest]) return mlff_fail(MLFF_ERR_FORMAT, "%s:%d: the JSON ends in the middle; the file was cut", path, line);
    return mlff_fail(MLFF_ERR_FORMAT, "%s:%d: not JSON at \"%.20s\"", path, line, at);
}

static mlff_status parse(const char *path, const char *text, size_t length, cJSON **root_out)
{
    int64_t n_values = 0;
    for (size_t i = 0; i < length; i++) n_values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    if (n_values > VALUES_LIMIT)
        return mlff_fail(MLFF_ERR_LIMIT,
                         "%s: more than %d values; a profile has 10⁵ latencies at most, split the runs into files of their own",
                         path, VALUES_LIMIT);
    if (memchr(text, 0, length) || base_json_has_zero(text, length)) // the second would end a text early
        return mlff_fail(MLFF_ERR_FORMAT, "%s: holds zero bytes; it is not a text file", path);

    const char *end = NULL;
    errno = 0; // cJSON does not tell a mistake in the text from missing memory
    cJSON *root = cJSON_ParseWithLengthOpts(text, length + 1, &end, 1); // with the closing 0, so that nothing may follow
    if (!root && errno == ENOMEM) return mlff_fail(MLFF_ERR_MEMORY, "out of memory: the report %s", path);
    if (!root) return syntax_error(path, text, length, end);
    *root_out = root;
    return MLFF_OK;
}

// The runs of {"runs": […]}, or the object itself as the only one.
static mlff_status runs_of(const char *path, const cJSON *root, const cJSON **first_out, int *n_runs_out)
{
    if (!cJSON_IsObject(root))
        return mlff_fail(MLFF_ERR_FORMAT, "%s: holds %s, expected the object of a profile", path, member_type_text(root));
    const cJSON *runs = cJSON_GetObjectItemCaseSensitive(root, "runs");
    *first_out = root;
    *n_runs_out = 1;
    if (!runs) return MLFF_OK;
    if (!cJSON_IsArray(runs))
        return mlff_fail(MLFF_ERR_FORMAT, "%s: \"runs\" is %s, expected an array of profiles", path, member_type_text(runs));
    int n = cJSON_GetArraySize(runs);
    if (n == 0) return mlff_fail(MLFF_ERR_FORMAT, "%s: \"runs\" is empty", path);
    *n_runs_out = n;
    *first_out = runs->child;
    return MLFF_OK;
}

static mlff_status read_run(const loader *l, int run, mlff_profile **profile_out)
{
    mlff_status status = MLFF_OK;
    mlff_profile *profile = NULL;
    if (!cJSON_IsObject(l->object))
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: \"runs\"[%d] is %s, expected the object of a profile", l->path, run,
                  member_type_text(l->object));
    MLFF_TRY(profile_new(&profile));
    MLFF_TRY(read_contract(l, profile));
    MLFF_TRY(read_added(l, profile));
    MLFF_TRY(read_ledgers(l, profile));
    MLFF_TRY(read_stages(l, profile));
    MLFF_TRY(read_slowest(l, profile));
    MLFF_TRY(kernels_read(l->path, cJSON_GetObjectItemCaseSensitive(l->object, "gpu_kernels"), &profile->kernels));
    MLFF_TRY(energy_read(l->path, cJSON_GetObjectItemCaseSensitive(l->object, "energy"), &profile->energy));
    MLFF_TRY(read_tail(l, &profile->tail));
    double run_ms = profile->summary.latency_ms.mean * (double)profile->n_latency;
    if (profile->tail.share == 0.0 && run_ms > 0.0)
        profile->tail.share = tail_excess_ms(&profile->tail) / run_ms; // an older report
    MLFF_TRY(read_pairs(l, "environment", &profile->environment));
    MLFF_TRY(read_pairs(l, "workload", &profile->workload));
    MLFF_TRY(read_pairs(l, "implementation", &profile->implementation));
    *profile_out = profile;
    profile = NULL;
done:
    mlff_profile_destroy(profile);
    return status;
}

mlff_status profile_parse(const char *path, const char *text, size_t length, mlff_profile **profile_out)
{
    mlff_status status = MLFF_OK;
    mlff_profile *profile = NULL;
    cJSON *root = NULL;
    int n_runs;
    loader l = {.path = path, .inside = ""};

    MLFF_TRY(parse(path, text, length, &root));
    MLFF_TRY(runs_of(path, root, &l.object, &n_runs));
    MLFF_TRY(read_run(&l, 0, &profile));
    if (n_runs > 1) MLFF_TRY(profile_note(profile, "the first of %d runs in its file", n_runs));
    MLFF_TRY(profile_derive(profile));
    *profile_out = profile;
    profile = NULL;
done:
    mlff_profile_destroy(profile);
    cJSON_Delete(root);
    return status;
}

mlff_status profile_parse_runs(const char *path, const char *text, size_t length, mlff_profile ***profiles_out, int *n_out)
{
    mlff_status status = MLFF_OK;
    mlff_profile **profiles = NULL;
    cJSON *root = NULL;
    int n_runs = 0, n = 0;
    char inside[32] = "";
    loader l = {.path = path, .inside = inside};

    MLFF_TRY(parse(path, text, length, &root));
    MLFF_TRY(runs_of(path, root, &l.object, &n_runs));
    profiles = base_alloc((size_t)n_runs, sizeof *profiles, "runs");
    if (!profiles) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    for (; n < n_runs; l.object = l.object->next, n++) {
        if (l.object != root) snprintf(inside, sizeof inside, "runs[%d].", n);
        MLFF_TRY(read_run(&l, n, &profiles[n]));
        MLFF_TRY(profile_derive(profiles[n]));
    }
    *profiles_out = profiles;
    *n_out = n;
    profiles = NULL;
done:
    mlff_profile_destroy_runs(profiles, n_runs);
    cJSON_Delete(root);
    return status;
}

mlff_status mlff_profile_load(const char *path, mlff_profile **profile_out)
{
    if (!path || !profile_out) return mlff_fail(MLFF_ERR_USAGE, "loading a profile: path or output is NULL");
    char *text = NULL;
    size_t length = 0;
    mlff_status status = base_read_file(path, FILE_LIMIT, &text, &length);
    if (status == MLFF_OK) status = profile_parse(path, text, length, profile_out);
    base_free(text);
    return status;
}

mlff_status mlff_profile_load_runs(const char *path, mlff_profile ***profiles_out, int *n_out)
{
    if (!path || !profiles_out || !n_out) return mlff_fail(MLFF_ERR_USAGE, "loading runs: path or output is NULL");
    char *text = NULL;
    size_t length = 0;
    mlff_status status = base_read_file(path, FILE_LIMIT, &text, &length);
    mlff_profile **profiles = NULL;
    int n = 0;
    if (status == MLFF_OK) status = profile_parse_runs(path, text, length, &profiles, &n);
    base_free(text);
    if (status == MLFF_OK) status = ranks_load_others(path, &profiles, &n);
    if (status != MLFF_OK) {
        mlff_profile_destroy_runs(profiles, n);
        return status;
    }
    *profiles_out = profiles;
    *n_out = n;
    return status;
}

void mlff_profile_destroy_runs(mlff_profile **profiles, int n)
{
    for (int i = 0; profiles && i < n; i++) mlff_profile_destroy(profiles[i]);
    base_free(profiles);
}
