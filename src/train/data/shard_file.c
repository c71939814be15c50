// SPDX-License-Identifier: MIT
// shard_file.c: a file of labels that grows: opened for one teacher, repaired at its end, appended to and synced.
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/helper_thread.h"
#include "shard.h"
#include "train/teachers/teacher.h"

#define SYNC_INTERVAL_NS 2000000000

struct mlff_shard {
    char *path;
    int descriptor;
    int64_t good_bytes; // whole frames end here
    int64_t synced_ns;
    uint64_t *keys;   // open addressing, 0: free; keys_capacity is a power of two
    uint32_t *counts; // labels of each: a trajectory may have a structure twice
    size_t n_keys, keys_capacity;
    char *bytes; // frames being made
    size_t bytes_capacity;
    char teacher[256], hash[80];
    int64_t n_labels, n_failed, n_dropped_bytes;
};

// ---- the set of keys

static size_t key_place(const mlff_shard *shard, uint64_t key)
{
    size_t at = (size_t)(key & (shard->keys_capacity - 1));
    while (shard->keys[at] && shard->keys[at] != key) at = (at + 1) & (shard->keys_capacity - 1);
    return at;
}

static mlff_status add_key(mlff_shard *shard, uint64_t key)
{
    if (2 * (shard->n_keys + 1) > shard->keys_capacity) {
        uint64_t *old = shard->keys;
        uint32_t *old_counts = shard->counts;
        const size_t old_capacity = shard->keys_capacity, capacity = old_capacity ? 2 * old_capacity : 1024;
        uint64_t *grown = base_alloc(capacity, sizeof *grown, "keys of labels");
        uint32_t *counts = grown ? base_alloc(capacity, sizeof *counts, "keys of labels") : NULL;
        if (!counts) {
            base_free(grown);
            return MLFF_ERR_MEMORY;
        }
        shard->keys = grown;
        shard->counts = counts;
        shard->keys_capacity = capacity;
        for (size_t k = 0; k < old_capacity; k++) {
            if (!old[k]) continue;
            const size_t at = key_place(shard, old[k]);
            grown[at] = old[k];
            counts[at] = old_counts[k];
        }
        base_free(old);
        base_free(old_counts);
    }
    const size_t at = key_place(shard, key);
    shard->n_keys += shard->keys[at] == 0;
    shard->keys[at] = key;
    shard->counts[at]++;
    return MLFF_OK;
}

static bool has_key(const mlff_shard *shard, uint64_t key)
{
    return shard->keys_capacity > 0 && shard->keys[key_place(shard, key)] == key;
}

// ---- opening

static mlff_status take_existing(void *context, shard_label *label)
{
    mlff_shard *shard = context;
    if (label->head.flags & SHARD_FAILED)
        shard->n_failed++;
    else
        shard->n_labels++;
    return add_key(shard, label->head.key);
}

static void copy_text(const cJSON *json, const char *key, char *text, size_t text_bytes)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItem(json, key));
    snprintf(text, text_bytes, "%s", value ? value : "");
}

static mlff_status read_header(mlff_shard *shard, const char *header)
{
    cJSON *json = cJSON_Parse(header);
    if (!json) return mlff_fail(MLFF_ERR_FORMAT, "%s: its header is not JSON", shard->path);
    copy_text(json, "teacher", shard->teacher, sizeof shard->teacher);
    copy_text(json, "teacher_sha256", shard->hash, sizeof shard->hash);
    cJSON_Delete(json);
    return MLFF_OK;
}

// All of the bytes behind the good end, or nothing.
static mlff_status append(mlff_shard *shard, size_t length)
{
    size_t done = 0;
    int failed = 0;
    if (base_is_removed(shard->descriptor, shard->path))
        return mlff_fail(MLFF_ERR_IO, "%s: was removed while it was written, with its labels", shard->path);
    while (done < length && !failed) {
        const ssize_t n =
            pwrite(shard->descriptor, shard->bytes + done, length - done, (off_t)(shard->good_bytes + (int64_t)done));
        if (n < 0 && errno != EINTR) failed = errno;
        if (n == 0) failed = ENOSPC;
        if (n > 0) done += (size_t)n;
    }
    if (failed) {
        if (ftruncate(shard->descriptor, (off_t)shard->good_bytes) != 0) failed = errno;
        return mlff_fail(MLFF_ERR_IO, "%s: cannot be written: %s; kept: %" PRId64 " label%s; free space", shard->path,
                         strerror(failed), shard->n_labels, base_plural(shard->n_labels));
    }
    shard->good_bytes += (int64_t)length;
    const int64_t now = base_clock_ns();
    if (now - shard->synced_ns > SYNC_INTERVAL_NS) {
        fdatasync(shard->descriptor);
        shard->synced_ns = now;
    }
    return MLFF_OK;
}

static mlff_status write_header(mlff_shard *shard, const mlff_teacher *teacher)
{
    mlff_status status = MLFF_OK;
    mlff_teacher_info info;
    size_t length = 0;
    mlff_teacher_info_get(teacher, &info);
    snprintf(shard->teacher, sizeof shard->teacher, "%s", info.name);
    snprintf(shard->hash, sizeof shard->hash, "%s", info.hash);
    MLFF_TRY(shard_encode_header(info.name, info.description, info.hash, &shard->bytes, &length, &shard->bytes_capacity));
    MLFF_TRY(append(shard, length));
done:
    return status;
}

// What the file holds; an incomplete last frame is cut off.
static mlff_status take_file(mlff_shard *shard, const mlff_teacher *teacher)
{
    mlff_status status = MLFF_OK;
    mlff_teacher_info info;
    char *header = NULL;
    int64_t file_bytes;

    MLFF_TRY(shard_visit(shard->path, take_existing, shard, &header, &shard->good_bytes, &file_bytes));
    MLFF_TRY(read_header(shard, header));
    mlff_teacher_info_get(teacher, &info);
    if (strcmp(shard->hash, info.hash) != 0)
        MLFF_FAIL(MLFF_ERR_VALUE,
                  "%s: its labels are of another teacher, %s with SHA-256 %.12s…; this is %s with %.12s…; write to another file",
                  shard->path, shard->teacher, shard->hash, info.name, info.hash);
    if (file_bytes > shard->good_bytes) {
        shard->n_dropped_bytes = file_bytes - shard->good_bytes;
        base_warn("%s: dropped an incomplete last label of %" PRId64 " byte%s; whole labels: %" PRId64 "", shard->path,
                  shard->n_dropped_bytes, base_plural(shard->n_dropped_bytes), shard->n_labels);
        if (ftruncate(shard->descriptor, (off_t)shard->good_bytes) != 0)
            MLFF_FAIL(MLFF_ERR_IO, "%s: %s", shard->path, strerror(errno));
    }
done:
    base_free(header);
    return status;
}

static void shard_free(mlff_shard *shard)
{
    if (!shard) return;
    if (shard->descriptor >= 0) close(shard->descriptor);
    base_free(shard->path);
    base_free(shard->keys);
    base_free(shard->counts);
    base_free(shard->bytes);
    base_free(shard);
}

mlff_status mlff_shard_open(const char *path, const mlff_teacher *teacher, mlff_shard **shard_out)
{
    mlff_status status = MLFF_OK;
    struct stat file;
    mlff_shard *shard = base_alloc(1, sizeof *shard, "a file of labels");
    if (!shard) return MLFF_ERR_MEMORY;

    shard->descriptor = -1;
    if (!(shard->path = base_strdup(path))) MLFF_TRY(MLFF_ERR_MEMORY);
    if (stat(path, &file) == 0 && !S_ISREG(file.st_mode))
        MLFF_FAIL(MLFF_ERR_IO, "%s: is not a regular file; labels need one that can grow", path);
    MLFF_TRY(base_lock_name(path, O_RDWR, "labels", &shard->descriptor));
    if (fstat(shard->descriptor, &file) != 0) MLFF_FAIL(MLFF_ERR_IO, "%s: %s", path, strerror(errno));
    shard->synced_ns = base_clock_ns();
    if (file.st_size > 0 && !shard_is_file(path))
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: exists and is not a file of labels; give another name or remove it", path);
    MLFF_TRY(file.st_size > 0 ? take_file(shard, teacher) : write_header(shard, teacher));
    *shard_out = shard;
    shard = NULL;
done:
    shard_free(shard);
    return status;
}

mlff_status mlff_shard_close(mlff_shard *shard)
{
    mlff_status status = MLFF_OK;
    if (!shard) return MLFF_OK;
    if (fsync(shard->descriptor) != 0 && errno != EINVAL)
        status = mlff_fail(MLFF_ERR_IO, "%s: cannot be synced: %s", shard->path, strerror(errno));
    shard_free(shard);
    return status;
}

void mlff_shard_info_get(const mlff_shard *shard, mlff_shard_info *info_out)
{
    *info_out = (mlff_shard_info){.teacher = shard->teacher,
                                  .teacher_hash = shard->hash,
                                  .n_labels = shard->n_labels,
                                  .n_failed = shard->n_failed,
                                  .n_bytes = shard->good_bytes};
}

// ---- labels

static mlff_status append_labels(mlff_shard *shard, const sample *const *samples, const mlff_label *labels, int n)
{
    mlff_status status = MLFF_OK;
    size_t length = 0;
    for (int k = 0; k < n; k++)
        MLFF_TRY(shard_encode(samples[k], &labels[k], NULL, &shard->bytes, &length, &shard->bytes_capacity));
    MLFF_TRY(append(shard, length));
    for (int k = 0; k < n; k++) {
        MLFF_TRY(add_key(shard, shard_key(samples[k]->system)));
        if (labels[k].status == MLFF_OK)
            shard->n_labels++;
        else
            shard->n_failed++;
    }
done:
    return status;
}

int mlff_shard_has(const mlff_shard *shard, const mlff_system *system)
{
    return has_key(shard, shard_key(system));
}

// A label that mlff_dataset_read would refuse, and with it the whole file. An energy of NaN is absent, and so is a stress that begins with it.
static bool is_finite_label(const mlff_label *label, int n_atoms)
{
    bool finite = !isinf(label->energy) && !isinf(label->stress[0]);
    for (int k = 1; k < 6 && isfinite(label->stress[0]); k++) finite = finite && isfinite(label->stress[k]);
    for (size_t k = 0; label->forces && k < 3 * (size_t)n_atoms; k++) finite = finite && isfinite(label->forces[k]);
    for (int i = 0; label->atom_energies && i < n_atoms; i++) finite = finite && isfinite(label->atom_energies[i]);
    return finite;
}

mlff_status mlff_shard_append(mlff_shard *shard, const mlff_system *system, const mlff_label *label, const char *origin)
{
    sample s = {.system = (mlff_system *)system}; // read only
    const sample *const list[1] = {&s};
    mlff_status status = mlff_system_check(system, shard->path);
    if (status != MLFF_OK) return status;
    if (label->status == MLFF_OK && isfinite(system->charge) && system->charge != 0)
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "%s: a charge of %g e; students know neutral systems only, leave the structure out", shard->path,
                         system->charge);
    if (label->status == MLFF_OK && !is_finite_label(label, system->n_atoms))
        return mlff_fail(MLFF_ERR_VALUE, "%s: a label that is not finite; append it with a status, as failed", shard->path);
    snprintf(s.origin, sizeof s.origin, "%s", origin ? origin : "");
    return append_labels(shard, list, label, 1);
}

// Structures of one call to the teacher: so many that it takes about this time, so that little is lost by a kill and Ctrl-C need
// not wait long.
#define CALL_NS 300000000.0
enum { FIRST_CALL = 8, LARGEST_CALL = 4096 };

mlff_label_options mlff_label_options_default(void)
{
    return (mlff_label_options){.struct_size = sizeof(mlff_label_options)};
}

// The samples that the file has no label of, in their order. Of a structure that is there several times as many are missing as it has too
// few labels: so a run that goes on labels what one that was never stopped does.
static mlff_status find_missing(const mlff_shard *shard, const mlff_samples *samples, const sample ***missing_out, size_t *n_out)
{
    mlff_status status = MLFF_OK;
    const sample **missing = base_alloc(samples->n, sizeof *missing, "samples");
    uint32_t *found = base_alloc(shard->keys_capacity, sizeof *found, "samples");
    if (!missing || !found) MLFF_TRY(MLFF_ERR_MEMORY);
    size_t n = 0;
    for (size_t k = 0; k < samples->n; k++) {
        const uint64_t key = shard->n_keys > 0 ? shard_key(samples->samples[k].system) : 0;
        const size_t at = shard->n_keys > 0 ? key_place(shard, key) : 0;
        if (shard->n_keys > 0 && shard->keys[at] == key && found[at] < shard->counts[at])
            found[at]++;
        else
            missing[n++] = &samples->samples[k];
    }
    *missing_out = missing;
    *n_out = n;
    missing = NULL;
done:
    base_free(missing);
    base_free(found);
    return status;
}

// Structures that were computed in one call, and their way into the file.
typedef struct label_call {
    mlff_shard *shard;
    const sample *const *samples;
    const mlff_system **systems;
    mlff_label *labels;
    int n;
    mlff_status status; // of the writing
    char cause[512];
} label_call;

typedef struct labelling {
    mlff_shard *shard;
    const sample *first; // to number samples
    mlff_label_options options;
    mlff_label_progress progress;
    int64_t start_ns, failed_before;
    helper_thread writer; // writes the labels of a call while the teacher computes the next ones
    label_call *writing;  // NULL: none
    bool stopped;         // by the callback
    char problem[200];    // of the structure that was skipped last
    int64_t n_alike;      // skipped since then for the same
} labelling;

static void warn_of_alike(labelling *l)
{
    if (l->n_alike > 0) base_warn("skipped %" PRId64 " more structure%s: %s", l->n_alike, base_plural(l->n_alike), l->problem);
    l->n_alike = 0;
}

// One line for those in succession that fail alike, as all of a file do with a wrong teacher.
static void warn_of_skipped(labelling *l, int64_t structure, const char *problem)
{
    if (strcmp(problem, l->problem) == 0) {
        l->n_alike++;
        return;
    }
    warn_of_alike(l);
    snprintf(l->problem, sizeof l->problem, "%s", problem);
    base_warn("skipped structure %" PRId64 ": %s", structure, problem);
}

static void call_free(label_call *call)
{
    for (int k = 0; call->labels && k < call->n; k++) mlff_label_clear(&call->labels[k]);
    base_free(call->systems);
    base_free(call->labels);
    *call = (label_call){0};
}

static mlff_status compute_call(label_call *call, mlff_shard *shard, mlff_teacher *teacher, const sample *const *samples, int n)
{
    mlff_status status = MLFF_OK;
    *call = (label_call){.shard = shard,
                         .samples = samples,
                         .n = n,
                         .systems = base_alloc((size_t)n, sizeof *call->systems, "structures"),
                         .labels = base_alloc((size_t)n, sizeof *call->labels, "labels")};
    if (!call->systems || !call->labels) MLFF_TRY(MLFF_ERR_MEMORY);
    for (int k = 0; k < n; k++) call->systems[k] = samples[k]->system;
    MLFF_TRY(mlff_teacher_compute(teacher, call->systems, n, call->labels));
done:
    if (status != MLFF_OK) call_free(call);
    return status;
}

// In the writer's thread, if the system gives one.
static void write_call(void *context)
{
    label_call *call = context;
    call->status = append_labels(call->shard, call->samples, call->labels, call->n);
    if (call->status != MLFF_OK) snprintf(call->cause, sizeof call->cause, "%s", mlff_last_error());
}

static void start_writing(labelling *l, label_call *call)
{
    l->writing = call;
    if (l->writer.begun)
        helper_start(&l->writer, write_call, call);
    else
        write_call(call);
}

// Ends the writing that is under way, if any, and tells of it.
static mlff_status finish_writing(labelling *l)
{
    label_call *call = l->writing;
    if (!call) return MLFF_OK;
    if (l->writer.begun) helper_wait(&l->writer);
    l->writing = NULL;
    const mlff_status status = call->status;
    for (int k = 0; k < call->n; k++)
        if (call->labels[k].status != MLFF_OK) warn_of_skipped(l, call->samples[k] - l->first, call->labels[k].problem);
    if (status == MLFF_OK) {
        l->progress.n_done += call->n;
        l->progress.n_failed = l->shard->n_failed - l->failed_before;
        l->progress.elapsed_s = 1e-9 * (double)(base_clock_ns() - l->start_ns);
        if (l->options.callback && l->options.callback(l->options.context, &l->progress) != 0) l->stopped = true;
    } else {
        mlff_fail(status, "%s", call->cause);
    }
    call_free(call);
    return status;
}

// Few structures, as the teacher may be slow; on GPUs as many as fit into one batch, since each larger one would set them up again.
static size_t first_call(const mlff_teacher *teacher, const sample *const *samples, size_t n_samples)
{
    if (teacher->options.device.kind != MLFF_CUDA) return FIRST_CALL;
    size_t n = 0;
    for (int64_t n_atoms = 0; n < n_samples && n < LARGEST_CALL; n++) {
        n_atoms += samples[n]->system->n_atoms;
        if (n > 0 && n_atoms > teacher->facts.batch_atoms) break;
    }
    return n;
}

static mlff_status label_missing(labelling *l, mlff_teacher *teacher, const sample *const *missing, size_t n_missing)
{
    label_call calls[2] = {0};
    const size_t first = first_call(teacher, missing, n_missing), last = teacher->options.device.kind == MLFF_CUDA ? first : 0;
    size_t wanted = first;
    mlff_status status = MLFF_OK;

    for (size_t begin = 0, k = 0; begin < n_missing && !l->stopped; k++) {
        size_t n = wanted < n_missing - begin ? wanted : n_missing - begin;
        const bool shortened = last > 0 && begin + n == n_missing && n >= 2 * last;
        if (shortened) n -= last; // the teacher waits while the last call is written: a short one
        label_call *call = &calls[k % 2];
        const int64_t called = base_clock_ns();
        MLFF_TRY(compute_call(call, l->shard, teacher, missing + begin, (int)n));
        const double change = fmin(CALL_NS / (double)(base_clock_ns() - called + 1), 4);
        if (shortened)
            wanted = last;
        else if (change < 0.7 || change > 1.4)
            wanted = (size_t)fmin(fmax((double)n * change, 1), LARGEST_CALL);
        begin += n;
        status = finish_writing(l);
        if (status != MLFF_OK) call_free(call);
        MLFF_TRY(status);
        start_writing(l, call);
    }
    return finish_writing(l);
done:;
    char cause[512]; // the first failure is reported
    snprintf(cause, sizeof cause, "%s", mlff_last_error());
    finish_writing(l);
    return mlff_fail(status, "%s", cause);
}

mlff_status mlff_shard_label(mlff_shard *shard, mlff_teacher *teacher, const mlff_samples *samples,
                             const mlff_label_options *given, mlff_label_progress *progress_out)
{
    mlff_status status = MLFF_OK;
    labelling l = {.shard = shard,
                   .first = samples->samples,
                   .options = mlff_label_options_default(),
                   .start_ns = base_clock_ns(),
                   .failed_before = shard->n_failed};
    const sample **missing = NULL;
    size_t n_missing = 0;
    mlff_teacher_info info;

    MLFF_TRY(base_take_options(__func__, "mlff_label_options", given, sizeof l.options, &l.options));
    mlff_teacher_info_get(teacher, &info);
    if (strcmp(info.hash, shard->hash) != 0)
        MLFF_FAIL(MLFF_ERR_VALUE, "%s: was opened for the teacher %s, not for %s", shard->path, shard->teacher, info.name);
    MLFF_TRY(find_missing(shard, samples, &missing, &n_missing));
    l.progress.n_total = (int64_t)samples->n;
    l.progress.n_before = l.progress.n_done = (int64_t)(samples->n - n_missing);
    helper_begin(&l.writer); // without a thread the labels are written between two calls
    status = label_missing(&l, teacher, missing, n_missing);
    helper_end(&l.writer);
    warn_of_alike(&l);
    if (progress_out) *progress_out = l.progress;
    MLFF_TRY(status);
    if (l.stopped)
        MLFF_FAIL(MLFF_ERR_INTERRUPTED, "%s: interrupted after %" PRId64 " of %" PRId64 " label%s; what was labelled is kept",
                  shard->path, l.progress.n_done, l.progress.n_total, base_plural(l.progress.n_total));
done:
    base_free(missing);
    return status;
}
