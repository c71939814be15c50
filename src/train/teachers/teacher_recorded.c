// SPDX-License-Identifier: MIT
// teacher_recorded.c: a teacher whose results are also written to a file, from which they are taken when the same calls are made again.
//
// The file is of frames (train/data/shard.h). The first has the library's version and the teacher's hash, each other one a call:
//   SHA-256 of the structures, number of them i32, and of each its status i32 and
//   energy f64, deviations of energy and forces f64, forces f64[n][3], or, where it failed, the problem char[200]
#include "teacher_recorded.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "train/data/shard.h"

enum { MARKER_HEADER = 0x48524c4d, MARKER_CALL = 0x43524c4d }; // "MLRH", "MLRC"

// Of dynamics of large systems by a fast teacher the file would become larger than all that a run writes.
#define MOST_BYTES ((int64_t)1 << 30)

typedef struct recorded_state {
    mlff_teacher *teacher;
    char *path;
    int descriptor;  // -1: nothing is written
    mapped_file map; // of what was there
    size_t at;       // calls before it were made again; the file ends here once one is not in it
    bool repeats;    // no call was made yet that is not in the file
    char *bytes;     // a frame being made
    size_t capacity;
} recorded_state;

// The sampling goes on without it, and on a full disk with the space that it took.
static void give_up(recorded_state *state, int error)
{
    const bool full = error == ENOSPC || error == EDQUOT;
    (void)!ftruncate(state->descriptor, full ? 0 : (off_t)state->at);
    base_warn("%s: cannot be written: %s; a sampling that is interrupted begins %sagain", state->path, strerror(error),
              full ? "" : "there ");
    close(state->descriptor);
    state->descriptor = -1;
}

// A frame behind the last one, or no part of it.
static void append(recorded_state *state, size_t length)
{
    size_t done = 0;
    if ((int64_t)(state->at + length) > MOST_BYTES) {
        close(state->descriptor);
        state->descriptor = -1;
        return;
    }
    while (done < length) {
        const ssize_t n = pwrite(state->descriptor, state->bytes + done, length - done, (off_t)(state->at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            give_up(state, n < 0 ? errno : ENOSPC);
            return;
        }
        done += (size_t)n;
    }
    state->at += length;
}

// From here on the file has none of the calls.
static void end_repeats(recorded_state *state)
{
    state->repeats = false;
    mapped_file_close(&state->map);
    if (state->descriptor >= 0 && ftruncate(state->descriptor, (off_t)state->at) != 0) give_up(state, errno);
}

// ---- a call as bytes

static void find_key(const mlff_system *const *systems, int n, unsigned char key[SHA256_BYTES])
{
    sha256 hash;
    sha256_begin(&hash);
    for (int k = 0; k < n; k++) {
        const mlff_system *system = systems[k];
        const size_t n_atoms = (size_t)system->n_atoms;
        sha256_add(&hash, &system->n_atoms, sizeof system->n_atoms);
        sha256_add(&hash, system->species, n_atoms * sizeof *system->species);
        sha256_add(&hash, system->positions, 3 * n_atoms * sizeof *system->positions);
        sha256_add(&hash, system->cell, sizeof system->cell);
        sha256_add(&hash, system->periodic, sizeof system->periodic);
        sha256_add(&hash, &system->charge, sizeof system->charge);
        sha256_add(&hash, &system->spin, sizeof system->spin);
    }
    sha256_end(&hash, key);
}

static void put(char **to, const void *from, size_t n_bytes)
{
    memcpy(*to, from, n_bytes);
    *to += n_bytes;
}

static mlff_status write_call(recorded_state *state, const unsigned char key[SHA256_BYTES], const mlff_system *const *systems,
                              int n, const mlff_label *labels)
{
    size_t n_bytes = SHA256_BYTES + sizeof(int32_t), length = 0;
    const int32_t count = n;
    for (int k = 0; k < n; k++)
        n_bytes += sizeof(int32_t) + (3 + 3 * (size_t)systems[k]->n_atoms) * sizeof(double) + sizeof labels[k].problem;
    char *payload = base_alloc(n_bytes, 1, "a call"), *to = payload;
    if (!payload) return MLFF_ERR_MEMORY;
    put(&to, key, SHA256_BYTES);
    put(&to, &count, sizeof count);
    for (int k = 0; k < n; k++) {
        const mlff_label *label = &labels[k];
        const int32_t status = (int32_t)label->status;
        const double numbers[3] = {label->energy, label->energy_deviation, label->force_deviation};
        put(&to, &status, sizeof status);
        if (label->status != MLFF_OK) {
            put(&to, label->problem, sizeof label->problem);
            continue;
        }
        put(&to, numbers, sizeof numbers);
        put(&to, label->forces, 3 * (size_t)systems[k]->n_atoms * sizeof(double));
    }
    const mlff_status status =
        shard_encode_frame(MARKER_CALL, payload, (size_t)(to - payload), &state->bytes, &length, &state->capacity);
    base_free(payload);
    if (status == MLFF_OK) append(state, length);
    return status == MLFF_ERR_LIMIT ? MLFF_OK : status;
}

static bool take(const char **from, size_t *left, void *to, size_t n_bytes)
{
    if (n_bytes > *left) return false;
    memcpy(to, *from, n_bytes);
    *from += n_bytes;
    *left -= n_bytes;
    return true;
}

static mlff_status take_label(const char **from, size_t *left, const mlff_system *system, mlff_label *label, bool *good)
{
    int32_t of_label = MLFF_OK;
    double numbers[3];
    mlff_status status = MLFF_OK;
    *good = *good && take(from, left, &of_label, sizeof of_label);
    if (*good && of_label != MLFF_OK) {
        char problem[sizeof label->problem];
        *good = take(from, left, problem, sizeof problem);
        if (!*good) return MLFF_OK;
        mlff_fail((mlff_status)of_label, "%.*s", (int)sizeof problem - 1, problem);
        teacher_label_fail(label, (mlff_status)of_label);
        return MLFF_OK;
    }
    *good = *good && take(from, left, numbers, sizeof numbers);
    if (!*good) return MLFF_OK;
    MLFF_TRY(teacher_label_allocate(label, system->n_atoms, false));
    label->energy = numbers[0], label->energy_deviation = numbers[1], label->force_deviation = numbers[2];
    *good = take(from, left, label->forces, 3 * (size_t)system->n_atoms * sizeof(double));
done:
    return status;
}

// *found_out: the next call of the file was this one.
static mlff_status read_call(recorded_state *state, const unsigned char key[SHA256_BYTES], const mlff_system *const *systems,
                             int n, mlff_label *labels, bool *found_out)
{
    const char *payload;
    size_t left;
    unsigned char found[SHA256_BYTES];
    int32_t count;
    mlff_status status = MLFF_OK;
    const size_t n_frame = shard_frame_at(&state->map, state->at, MARKER_CALL, &payload, &left);
    bool good = n_frame > 0 && take(&payload, &left, found, sizeof found) && memcmp(found, key, sizeof found) == 0 &&
                take(&payload, &left, &count, sizeof count) && count == n;
    for (int k = 0; good && k < n && status == MLFF_OK; k++) status = take_label(&payload, &left, systems[k], &labels[k], &good);
    if (good && status == MLFF_OK) state->at += n_frame;
    for (int k = 0; !good && k < n; k++) mlff_label_clear(&labels[k]);
    *found_out = good;
    return status;
}

// ---- the teacher

static mlff_status recorded_compute(mlff_teacher *teacher, const mlff_system *const *systems, int n, mlff_label *labels)
{
    mlff_status status = MLFF_OK;
    recorded_state *state = teacher->state;
    unsigned char key[SHA256_BYTES];
    if (state->repeats || state->descriptor >= 0) find_key(systems, n, key);
    if (state->repeats) {
        bool found;
        MLFF_TRY(read_call(state, key, systems, n, labels, &found));
        if (found) goto done;
        end_repeats(state);
    }
    MLFF_TRY(mlff_teacher_compute(state->teacher, systems, n, labels));
    if (state->descriptor >= 0) MLFF_TRY(write_call(state, key, systems, n, labels));
done:
    return status;
}

static mlff_status recorded_check(const mlff_teacher *teacher, const mlff_system *system, const char *name)
{
    const recorded_state *state = teacher->state;
    return mlff_teacher_check(state->teacher, system, name);
}

static void recorded_destroy(mlff_teacher *teacher)
{
    recorded_state *state = teacher->state;
    if (!state) return;
    mapped_file_close(&state->map);
    if (state->descriptor >= 0) close(state->descriptor);
    base_free(state->path);
    base_free(state->bytes);
    base_free(state);
}

// Calls of the file if it is of this teacher; else it begins again.
static mlff_status open_file(recorded_state *state)
{
    mlff_status status = MLFF_OK;
    char header[160];
    const char *payload;
    size_t n_payload, length = 0;
    snprintf(header, sizeof header, "mlff %s, teacher %s", mlff_version(), state->teacher->facts.hash);
    state->descriptor = open(state->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (state->descriptor < 0) {
        base_warn("%s: %s; a sampling that is interrupted begins again", state->path, strerror(errno));
        return MLFF_OK;
    }
    MLFF_TRY(mapped_file_open(state->path, &state->map));
    state->at = shard_frame_at(&state->map, 0, MARKER_HEADER, &payload, &n_payload);
    state->repeats = state->at > 0 && n_payload == strlen(header) && memcmp(payload, header, n_payload) == 0;
    if (state->repeats) return MLFF_OK;
    state->at = 0;
    end_repeats(state);
    if (state->descriptor < 0) return MLFF_OK;
    MLFF_TRY(shard_encode_frame(MARKER_HEADER, header, strlen(header), &state->bytes, &length, &state->capacity));
    append(state, length);
done:
    return status;
}

mlff_status teacher_recorded_open(mlff_teacher *teacher, const char *path, mlff_teacher **recorded_out)
{
    static const teacher_kind kind = {.compute = recorded_compute, .check = recorded_check, .destroy = recorded_destroy};
    mlff_status status = MLFF_OK;
    mlff_teacher *recorded = NULL;
    recorded_state *state = base_alloc(1, sizeof *state, "a teacher");
    if (!state) return MLFF_ERR_MEMORY;
    state->teacher = teacher;
    state->descriptor = -1;
    status = teacher_allocate(&kind, &teacher->options, &recorded);
    if (status != MLFF_OK) {
        base_free(state);
        return status;
    }
    recorded->state = state;
    recorded->facts = teacher->facts;
    recorded->facts.has_stress = recorded->facts.has_atom_energies = false; // the file has neither
    if (!(state->path = base_strdup(path))) MLFF_TRY(MLFF_ERR_MEMORY);
    MLFF_TRY(open_file(state));
    *recorded_out = recorded;
    recorded = NULL;
done:
    mlff_teacher_destroy(recorded);
    return status;
}
