// SPDX-License-Identifier: MIT
// shard.c: labels as bytes and back (the format: shard.h).
#include "shard.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/sha256.h"

uint64_t shard_key(const mlff_system *system)
{
    sha256 hash;
    unsigned char digest[SHA256_BYTES];
    uint64_t key;
    const size_t n = (size_t)system->n_atoms;
    sha256_begin(&hash);
    sha256_add(&hash, system->species, n * sizeof *system->species);
    sha256_add(&hash, system->positions, 3 * n * sizeof *system->positions);
    sha256_add(&hash, system->periodic, sizeof system->periodic);
    sha256_add(&hash, system->cell, sizeof system->cell);
    sha256_add(&hash, &system->spin, sizeof system->spin);
    sha256_end(&hash, digest);
    memcpy(&key, digest, sizeof key);
    return key;
}

static void label_free(shard_label *label)
{
    mlff_system_destroy(label->system);
    base_free(label->atom_energies);
    *label = (shard_label){0};
}

// ---- writing

static uint64_t checksum(const void *payload, size_t n_payload)
{
    unsigned char digest[SHA256_BYTES];
    uint64_t sum;
    sha256_of(payload, n_payload, digest);
    memcpy(&sum, digest, sizeof sum);
    return sum;
}

static void add_bytes(char *bytes, size_t *length, const void *from, size_t n)
{
    memcpy(bytes + *length, from, n);
    *length += n;
}

mlff_status shard_encode_frame(uint32_t marker, const void *payload, size_t n_payload, char **bytes, size_t *length,
                               size_t *capacity)
{
    if (n_payload > SHARD_MAX_PAYLOAD)
        return mlff_fail(MLFF_ERR_LIMIT, "a label of %zu bytes; a file of labels takes %d at most", n_payload, SHARD_MAX_PAYLOAD);
    mlff_status status = base_grow(bytes, capacity, *length + n_payload + SHARD_FRAME_BYTES, 1, "labels");
    if (status != MLFF_OK) return status;
    const uint32_t size = (uint32_t)n_payload;
    const uint64_t sum = checksum(payload, n_payload);
    add_bytes(*bytes, length, &marker, sizeof marker);
    add_bytes(*bytes, length, &size, sizeof size);
    add_bytes(*bytes, length, payload, n_payload);
    add_bytes(*bytes, length, &sum, sizeof sum);
    return MLFF_OK;
}

static shard_head make_head(const sample *s, const mlff_label *label)
{
    const mlff_system *system = s->system;
    const bool failed = label->status != MLFF_OK;
    shard_head head = {.n_atoms = system->n_atoms,
                       .key = shard_key(system),
                       .group = system->group,
                       .energy = failed ? NAN : label->energy,
                       .energy_deviation = failed ? NAN : label->energy_deviation,
                       .force_deviation = failed ? NAN : label->force_deviation,
                       .probe_step = s->probe_step,
                       .spin = system->spin,
                       .stress = {NAN}};
    head.flags = (failed ? SHARD_FAILED : 0) | (!failed && label->forces ? SHARD_FORCES : 0) |
                 (!failed && label->atom_energies ? SHARD_ATOM_ENERGIES : 0) | (s->probe == SAMPLE_PLUS ? SHARD_PLUS : 0) |
                 (s->probe == SAMPLE_MINUS ? SHARD_MINUS : 0);
    memcpy(head.cell, system->cell, sizeof head.cell);
    if (!failed) memcpy(head.stress, label->stress, sizeof head.stress);
    memcpy(head.periodic, system->periodic, sizeof system->periodic);
    if (system->config_type[0]) head.flags |= SHARD_TYPED;
    memcpy(head.origin, system->config_type[0] ? system->config_type : s->origin, sizeof head.origin);
    return head;
}

mlff_status shard_encode(const sample *s, const mlff_label *label, const double *weight, char **bytes, size_t *length,
                         size_t *capacity)
{
    const mlff_system *system = s->system;
    const size_t n = (size_t)system->n_atoms;
    shard_head head = make_head(s, label);
    if (weight) head.flags |= SHARD_WEIGHT | (system->masses ? SHARD_MASSES : 0) | (system->fixed ? SHARD_FIXED : 0);
    const size_t n_problem = head.flags & SHARD_FAILED ? strlen(label->problem) : 0;
    size_t used = 0;
    char *payload =
        base_alloc(sizeof head + n * (sizeof(int32_t) + 8 * sizeof(double) + 1) + sizeof *weight + n_problem, 1, "a label");
    if (!payload) return MLFF_ERR_MEMORY;
    add_bytes(payload, &used, &head, sizeof head);
    add_bytes(payload, &used, system->species, n * sizeof(int32_t));
    add_bytes(payload, &used, system->positions, 3 * n * sizeof(double));
    if (head.flags & SHARD_FORCES) add_bytes(payload, &used, label->forces, 3 * n * sizeof(double));
    if (head.flags & SHARD_ATOM_ENERGIES) add_bytes(payload, &used, label->atom_energies, n * sizeof(double));
    if (head.flags & SHARD_WEIGHT) add_bytes(payload, &used, weight, sizeof *weight);
    if (head.flags & SHARD_MASSES) add_bytes(payload, &used, system->masses, n * sizeof(double));
    if (head.flags & SHARD_FIXED) add_bytes(payload, &used, system->fixed, n);
    add_bytes(payload, &used, label->problem, n_problem);
    const mlff_status status = shard_encode_frame(SHARD_MARKER_LABEL, payload, used, bytes, length, capacity);
    base_free(payload);
    return status;
}

mlff_status shard_encode_header(const char *teacher, const char *description, const char *hash, char **bytes, size_t *length,
                                size_t *capacity)
{
    mlff_status status = MLFF_OK;
    char *text = NULL;
    cJSON *json = cJSON_CreateObject();
    const bool made = json && cJSON_AddStringToObject(json, "format", "mlff labels") &&
                      cJSON_AddNumberToObject(json, "version", 1) && cJSON_AddStringToObject(json, "teacher", teacher) &&
                      cJSON_AddStringToObject(json, "teacher_description", description) &&
                      cJSON_AddStringToObject(json, "teacher_sha256", hash) &&
                      cJSON_AddStringToObject(json, "units", "eV, Angstrom") && (text = cJSON_PrintUnformatted(json));
    if (!made) MLFF_FAIL(MLFF_ERR_MEMORY, "out of memory for the header of a file of labels");
    MLFF_TRY(shard_encode_frame(SHARD_MARKER_HEADER, text, strlen(text), bytes, length, capacity));
done:
    cJSON_free(text);
    cJSON_Delete(json);
    return status;
}

// ---- reading

size_t shard_frame_at(const mapped_file *map, size_t at, uint32_t marker, const char **payload_out, size_t *n_payload_out)
{
    uint32_t found, size;
    uint64_t sum;
    if (map->length - at < SHARD_FRAME_BYTES) return 0;
    memcpy(&found, map->bytes + at, sizeof found);
    memcpy(&size, map->bytes + at + 4, sizeof size);
    if (found != marker || size > SHARD_MAX_PAYLOAD || size > map->length - at - SHARD_FRAME_BYTES) return 0;
    memcpy(&sum, map->bytes + at + 8 + size, sizeof sum);
    if (sum != checksum(map->bytes + at + 8, size)) return 0;
    *payload_out = map->bytes + at + 8;
    *n_payload_out = size;
    return size + (size_t)SHARD_FRAME_BYTES;
}

// Does a whole frame begin anywhere from `at` on?
static bool any_frame_behind(const mapped_file *map, size_t at)
{
    static const uint32_t marker = SHARD_MARKER_LABEL;
    const char *payload;
    size_t n_payload;
    for (; at + SHARD_FRAME_BYTES <= map->length; at++) {
        const char *next = memmem(map->bytes + at, map->length - at, &marker, sizeof marker);
        if (!next) return false;
        at = (size_t)(next - map->bytes);
        if (shard_frame_at(map, at, marker, &payload, &n_payload) > 0) return true;
    }
    return false;
}

bool shard_is_file(const char *path)
{
    uint32_t marker = 0;
    if (strcmp(path, "-") == 0 || base_is_stream(path)) return false;
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    const bool got = fread(&marker, sizeof marker, 1, file) == 1;
    fclose(file);
    return got && marker == SHARD_MARKER_HEADER;
}

// Takes n numbers of `size` bytes from the payload; false if it is too short.
static bool take(const char **from, size_t *left, void *to, size_t n, size_t size)
{
    if (n * size > *left) return false;
    memcpy(to, *from, n * size);
    *from += n * size;
    *left -= n * size;
    return true;
}

// A new array of n numbers from the payload.
static mlff_status take_array(const char **from, size_t *left, size_t n, double **array_out, bool *whole)
{
    if (!(*array_out = base_alloc(n, sizeof(double), "a label"))) return MLFF_ERR_MEMORY;
    *whole = *whole && take(from, left, *array_out, n, sizeof(double));
    return MLFF_OK;
}

static mlff_status decode(const char *payload, size_t left, shard_label *label_out)
{
    mlff_status status = MLFF_OK;
    shard_label label = {.weight = 1};
    bool whole = take(&payload, &left, &label.head, 1, sizeof label.head) && label.head.n_atoms > 0 &&
                 (size_t)label.head.n_atoms <= left / (sizeof(int32_t) + 3 * sizeof(double));
    if (!whole) return mlff_fail(MLFF_ERR_FORMAT, "a label with impossible sizes");
    const size_t n = (size_t)label.head.n_atoms;
    mlff_system *system = NULL;
    MLFF_TRY(mlff_system_create(label.head.n_atoms, &label.system));
    system = label.system;
    whole = take(&payload, &left, system->species, n, sizeof(int32_t)) &&
            take(&payload, &left, system->positions, 3 * n, sizeof(double));
    memcpy(system->cell, label.head.cell, sizeof system->cell);
    memcpy(system->periodic, label.head.periodic, sizeof system->periodic);
    system->group = label.head.group;
    system->spin = label.head.spin;
    if (!isnan(system->spin)) system->charge = 0; // labels are of neutral systems
    system->label_energy = label.head.energy;
    memcpy(system->label_stress, label.head.stress, sizeof system->label_stress);
    if (label.head.flags & SHARD_FORCES) MLFF_TRY(take_array(&payload, &left, 3 * n, &system->label_forces, &whole));
    if (label.head.flags & SHARD_ATOM_ENERGIES) MLFF_TRY(take_array(&payload, &left, n, &label.atom_energies, &whole));
    if (label.head.flags & SHARD_WEIGHT) whole = whole && take(&payload, &left, &label.weight, 1, sizeof label.weight);
    if (label.head.flags & SHARD_MASSES) MLFF_TRY(take_array(&payload, &left, n, &system->masses, &whole));
    if (label.head.flags & SHARD_FIXED) {
        MLFF_TRY(mlff_system_add_fixed(system));
        whole = whole && take(&payload, &left, system->fixed, n, 1);
    }
    if (label.head.flags & SHARD_FAILED)
        snprintf(label.problem, sizeof label.problem, "%.*s", (int)(left < 199 ? left : 199), payload);
    if (!whole) MLFF_FAIL(MLFF_ERR_FORMAT, "a label with impossible sizes");
    label.head.origin[sizeof label.head.origin - 1] = 0;
    if (label.head.flags & SHARD_TYPED) memcpy(system->config_type, label.head.origin, sizeof system->config_type);
    MLFF_TRY(mlff_system_check(label.system, NULL));
    *label_out = label;
    label = (shard_label){0};
done:
    label_free(&label);
    return status;
}

mlff_status shard_visit(const char *path, shard_visitor visitor, void *context, char **header_out, int64_t *good_bytes_out,
                        int64_t *file_bytes_out)
{
    mlff_status status = MLFF_OK;
    mapped_file map = {0};
    const char *payload = NULL;
    char *header = NULL;
    size_t n_payload = 0;
    int64_t n_labels = 0;

    MLFF_TRY(mapped_file_open(path, &map));
    size_t at = shard_frame_at(&map, 0, SHARD_MARKER_HEADER, &payload, &n_payload);
    if (at == 0) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: is not a file of labels, or its beginning is damaged", path);
    if (!(header = base_alloc(n_payload + 1, 1, "a header"))) MLFF_TRY(MLFF_ERR_MEMORY);
    memcpy(header, payload, n_payload);
    for (size_t n; (n = shard_frame_at(&map, at, SHARD_MARKER_LABEL, &payload, &n_payload)) > 0; at += n, n_labels++) {
        shard_label label;
        status = decode(payload, n_payload, &label);
        if (status == MLFF_ERR_MEMORY) goto done;
        if (status != MLFF_OK)
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: label %" PRId64 ", at byte %zu: %s", path, n_labels + 1, at, mlff_last_error());
        status = visitor ? visitor(context, &label) : MLFF_OK;
        label_free(&label);
        MLFF_TRY(status);
    }
    if (at < map.length && any_frame_behind(&map, at))
        MLFF_FAIL(MLFF_ERR_FORMAT,
                  "%s: damaged after %" PRId64
                  " labels, at byte %zu, with whole labels behind; the file was changed, restore it or "
                  "cut it there (truncate -s %zu)",
                  path, n_labels, at, at);
    *good_bytes_out = (int64_t)at;
    *file_bytes_out = (int64_t)map.length;
    if (header_out) {
        *header_out = header;
        header = NULL;
    }
done:
    base_free(header);
    mapped_file_close(&map);
    return status;
}
