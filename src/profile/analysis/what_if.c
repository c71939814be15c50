// SPDX-License-Identifier: MIT
// what_if.c: Amdahl's law: the time of a step if some of its stages were faster.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profile/profile.h"
#include "profile/sensors/energy.h"

#define NO_STAGE "what-if: there is no stage '%s'; %s"

// "message" is a stage of any phase and layer, "forward/message" of one phase, "forward/message/0" one row.
static bool is_meant(const mlff_stage *row, const char *name)
{
    char both[256], path[272];
    snprintf(both, sizeof both, "%s%s%s", row->phase, *row->phase ? "/" : "", row->name);
    snprintf(path, sizeof path, "%s/%d", both, row->layer);
    return strcmp(row->name, name) == 0 || strcmp(row->phase, name) == 0 || strcmp(both, name) == 0 ||
           (row->layer >= 0 && strcmp(path, name) == 0);
}

// "2x": factor 2; "0": free, which is an infinite one.
static mlff_status read_change(const char *text, size_t length, char name[128], double *factor)
{
    char copy[192];
    const char *equals = memchr(text, '=', length);
    if (!equals || length >= sizeof copy || equals == text || (size_t)(equals - text) >= 128)
        return mlff_fail(MLFF_ERR_USAGE, "what-if: '%.*s' is not STAGE=2x or STAGE=0", (int)(length < 100 ? length : 100), text);
    memcpy(copy, text, length);
    copy[length] = 0;
    copy[equals - text] = 0;
    snprintf(name, 128, "%.127s", copy);
    char *value = copy + (equals - text) + 1;
    size_t digits = strlen(value);
    bool times = digits > 0 && value[digits - 1] == 'x';
    if (times) value[digits - 1] = 0;
    if (!base_parse_double(value, factor) || !isfinite(*factor) || *factor < 0.0 || (times && *factor == 0.0) ||
        (!times && *factor != 0.0))
        return mlff_fail(MLFF_ERR_USAGE, "what-if: %s=%s%s: give how many times as fast, as in %s=2x, or %s=0 for free", name,
                         value, times ? "x" : "", name, name);
    if (!times) *factor = INFINITY;
    return MLFF_OK;
}

// The same arithmetic on every fortieth of the run: how far the forecast and the gain may be off, which is a ratio of sums. "" where parts are
// not known.
static void write_interval(const mlff_profile *profile, const double *factors, char *text, size_t text_bytes)
{
    double now[STAGE_BLOCKS], then[STAGE_BLOCKS], gain[STAGE_BLOCKS], sum_now = 0.0, sum_then = 0.0, low, high, gain_low,
                                                                      gain_high;
    int64_t n = profile->n_latency;
    text[0] = 0;
    if (n < STAGE_BLOCKS) return;
    for (int b = 0; b < STAGE_BLOCKS; b++) {
        int64_t begin = n * b / STAGE_BLOCKS, end = n * (b + 1) / STAGE_BLOCKS;
        now[b] = 0.0;
        for (int64_t i = begin; i < end; i++) now[b] += profile->latency_ms[i] / (double)(end - begin);
        then[b] = now[b];
        for (int i = 0; i < profile->n_stages; i++) {
            if (!(factors[i] > 0.0)) continue;
            if (profile->stages[i].n_blocks == 0) return;
            then[b] -= profile->stages[i].blocks_ms[b] * (1.0 - 1.0 / factors[i]);
        }
        sum_now += now[b];
        sum_then += then[b];
    }
    const double ratio = sum_now / sum_then;
    for (int b = 0; b < STAGE_BLOCKS; b++) gain[b] = ratio + (now[b] - ratio * then[b]) * STAGE_BLOCKS / sum_then;
    mean_interval(then, STAGE_BLOCKS, &low, &high);
    mean_interval(gain, STAGE_BLOCKS, &gain_low, &gain_high);
    if (low > 0.0 && isfinite(gain_high))
        base_format(text, text_bytes, " (%s to %s, %.2f to %.2f× at 95 %%)", PROFILE_TIME(low), PROFILE_TIME(high), gain_low,
                    gain_high);
}

// Names of stages, each once, as many as fit.
static void list_names(const mlff_callable *callable, char *text, size_t text_bytes)
{
    size_t length = (size_t)snprintf(text, text_bytes, "known are");
    for (int i = 0; i < callable->n_stages && length < text_bytes; i++) {
        bool listed = false;
        for (int k = 0; k < i && !listed; k++) listed = strcmp(callable->stages[k].name, callable->stages[i].name) == 0;
        if (!listed)
            length += (size_t)snprintf(text + length, text_bytes - length, "%s %s", i ? "," : "", callable->stages[i].name);
    }
}

mlff_status mlff_profile_what_if_check(const mlff_callable *callable, const char *changes)
{
    if (!callable || !changes) return mlff_fail(MLFF_ERR_USAGE, "what-if: callable or changes is NULL");
    static const mlff_stage others[] = {{"integrate", "", -1, ""},
                                        {"unattributed", "", -1, ""},
                                        {"energy", "", -1, ""},
                                        {"forces", "", -1, ""},
                                        {"stress", "", -1, ""}};
    bool own = callable->n_stages > 0 && callable->stages;
    mlff_status status = MLFF_OK;
    for (const char *at = changes; *at;) {
        char name[128], known[512];
        double factor;
        size_t length = strcspn(at, ",");
        bool found = false;
        MLFF_TRY(read_change(at, length, name, &factor));
        for (int i = 0; own && i < callable->n_stages && !found; i++) found = is_meant(&callable->stages[i], name);
        for (size_t i = 0; i < (own ? 2 : sizeof others / sizeof *others) && !found; i++) found = is_meant(&others[i], name);
        if (!found) {
            if (own) list_names(callable, known, sizeof known);
            MLFF_FAIL(MLFF_ERR_USAGE, NO_STAGE, name, own ? known : "known are energy, forces, stress, integrate");
        }
        at += length;
        at += *at == ',';
    }
done:
    return status;
}

mlff_status mlff_profile_what_if(const mlff_profile *profile, const char *changes, double *step_ms_out, char **text_out)
{
    if (!profile || !changes || !text_out) return mlff_fail(MLFF_ERR_USAGE, "what-if: profile, changes or output is NULL");
    mlff_status status = MLFF_OK;
    double step_ms = profile->summary.latency_ms.mean, then_ms = step_ms;
    base_text text = {0};
    double *factors = base_alloc((size_t)profile->n_stages, sizeof *factors, "stages");
    if (!factors) return MLFF_ERR_MEMORY;
    base_text_add(&text, "if");
    for (const char *at = changes; *at;) {
        char name[128];
        size_t length = strcspn(at, ",");
        double factor, share = 0.0;
        int n_rows = 0;
        MLFF_TRY(read_change(at, length, name, &factor));
        for (int i = 0; i < profile->n_stages; i++) {
            const profile_stage *row = &profile->stages[i];
            if (!is_meant(&(mlff_stage){row->name, row->phase, row->shown.layer, ""}, name)) continue;
            if (factors[i] > 0.0) MLFF_FAIL(MLFF_ERR_USAGE, "what-if: '%s' names a stage that another change names too", name);
            factors[i] = factor;
            share += profile->stages[i].shown.share;
            then_ms -= profile->stages[i].shown.mean_ms * (1.0 - 1.0 / factor);
            n_rows++;
        }
        if (n_rows == 0) MLFF_FAIL(MLFF_ERR_USAGE, NO_STAGE, name, "its table of stages names them");
        if (isinf(factor))
            base_text_add(&text, "%s %s (%.1f %% of the step) were free", at == changes ? "" : " and", name, share * 100.0);
        else
            base_text_add(&text, "%s %s (%.1f %% of the step) were %.4g× as fast", at == changes ? "" : " and", name,
                          share * 100.0, factor);
        at += length;
        at += *at == ',';
    }
    if (then_ms < 0.0) then_ms = 0.0;
    char interval[128];
    write_interval(profile, factors, interval, sizeof interval);
    base_text_add(&text, ": a step would take %s in place of %s, %.2f× as fast%s\n", PROFILE_TIME(then_ms), PROFILE_TIME(step_ms),
                  then_ms > 0.0 ? step_ms / then_ms : INFINITY, interval);
    MLFF_TRY(text.status);
    if (step_ms_out) *step_ms_out = then_ms;
    *text_out = text.text;
    text = (base_text){0};
done:
    base_text_free(&text);
    base_free(factors);
    return status;
}
