// SPDX-License-Identifier: MIT
// weights.c: named tensors and metadata, and their file: safetensors (an 8-byte little-endian length, a JSON
// header, raw data), read strictly and written whole, with the same bytes for the same content.
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "atoms/atoms.h"
#include "model/model.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are copied as the file stores them, little-endian");

enum {
    LENGTH_BYTES = 8,
    MAX_HEADER_BYTES = 16 << 20,
    MAX_TENSORS = 100000,
    MAX_NAME_BYTES = 255,
};
#define MAX_FILE_BYTES ((size_t)4 << 30)

void weights_free(model_weights *weights)
{
    for (size_t i = 0; i < weights->n_tensors; i++) {
        base_free(weights->tensors[i].name);
        base_free(weights->tensors[i].data);
    }
    for (size_t i = 0; i < weights->n_keys; i++) {
        base_free(weights->keys[i]);
        base_free(weights->values[i]);
    }
    base_free(weights->tensors);
    base_free(weights->keys);
    base_free(weights->values);
    *weights = (model_weights){0};
}

model_tensor *weights_add(model_weights *weights, const char *name, int is_double, int n_dimensions, const int64_t *shape)
{
    model_tensor tensor = {.is_double = is_double, .n_dimensions = n_dimensions, .n_elements = 1};
    if (n_dimensions < 0 || n_dimensions > 4) {
        mlff_fail(MLFF_ERR_FORMAT, "tensor %s has %d dimensions; at most 4 are known here", name, n_dimensions);
        return NULL;
    }
    for (int d = 0; d < n_dimensions; d++) {
        if (shape[d] < 0 || (shape[d] > 0 && tensor.n_elements > INT64_MAX / 8 / shape[d])) {
            mlff_fail(MLFF_ERR_FORMAT, "tensor %s has an impossible shape (%" PRId64 " along axis %d)", name, shape[d], d);
            return NULL;
        }
        tensor.shape[d] = shape[d];
        tensor.n_elements *= shape[d];
    }
    if (base_grow(&weights->tensors, &weights->tensor_capacity, weights->n_tensors + 1, sizeof *weights->tensors, "tensors"))
        return NULL;
    tensor.name = base_strdup(name);
    tensor.data = base_alloc((size_t)tensor.n_elements, is_double ? sizeof(double) : sizeof(float), name);
    if (!tensor.name || !tensor.data) {
        base_free(tensor.name);
        base_free(tensor.data);
        return NULL;
    }
    weights->tensors[weights->n_tensors] = tensor;
    return &weights->tensors[weights->n_tensors++];
}

mlff_status weights_set(model_weights *weights, const char *key, const char *format, ...)
{
    base_text text = {0};
    va_list arguments;
    va_start(arguments, format);
    base_text_add_list(&text, format, arguments);
    va_end(arguments);
    if (text.status != MLFF_OK) return text.status;

    for (size_t i = 0; i < weights->n_keys; i++)
        if (strcmp(weights->keys[i], key) == 0) {
            base_free(weights->values[i]);
            weights->values[i] = text.text;
            return MLFF_OK;
        }
    size_t capacity = weights->key_capacity; // keys and values grow alike
    char *copy = base_strdup(key);
    if (!copy || base_grow(&weights->keys, &capacity, weights->n_keys + 1, sizeof *weights->keys, "metadata") ||
        base_grow(&weights->values, &weights->key_capacity, weights->n_keys + 1, sizeof *weights->values, "metadata")) {
        base_free(copy);
        base_text_free(&text);
        return MLFF_ERR_MEMORY;
    }
    weights->keys[weights->n_keys] = copy;
    weights->values[weights->n_keys++] = text.text;
    return MLFF_OK;
}

void weights_remove(model_weights *weights, const char *key)
{
    size_t i = 0;
    while (i < weights->n_keys && strcmp(weights->keys[i], key) != 0) i++;
    if (i == weights->n_keys) return;
    base_free(weights->keys[i]);
    base_free(weights->values[i]);
    weights->n_keys--;
    for (; i < weights->n_keys; i++) {
        weights->keys[i] = weights->keys[i + 1];
        weights->values[i] = weights->values[i + 1];
    }
}

const model_tensor *weights_find(const model_weights *weights, const char *name)
{
    for (size_t i = 0; i < weights->n_tensors; i++)
        if (strcmp(weights->tensors[i].name, name) == 0) return &weights->tensors[i];
    return NULL;
}

const char *weights_get(const model_weights *weights, const char *key)
{
    for (size_t i = 0; i < weights->n_keys; i++)
        if (strcmp(weights->keys[i], key) == 0) return weights->values[i];
    return NULL;
}

bool weights_is_true(const model_weights *weights, const char *key)
{
    const char *value = weights_get(weights, key);
    return value && strcmp(value, "true") == 0;
}

mlff_status weights_copy(const model_weights *from, model_weights *to)
{
    mlff_status status = MLFF_OK;
    for (size_t k = 0; k < from->n_keys; k++) MLFF_TRY(weights_set(to, from->keys[k], "%s", from->values[k]));
    for (size_t k = 0; k < from->n_tensors; k++) {
        const model_tensor *tensor = &from->tensors[k];
        model_tensor *copy = weights_add(to, tensor->name, tensor->is_double, tensor->n_dimensions, tensor->shape);
        if (!copy) return MLFF_ERR_MEMORY;
        memcpy(copy->data, tensor->data, (size_t)tensor->n_elements * (tensor->is_double ? sizeof(double) : sizeof(float)));
    }
done:
    return status;
}

mlff_status weights_check_finite(const model_weights *weights, const char *path)
{
    for (size_t i = 0; i < weights->n_tensors; i++) {
        const model_tensor *tensor = &weights->tensors[i];
        for (int64_t k = 0; k < tensor->n_elements; k++) {
            double value = tensor->is_double ? ((double *)tensor->data)[k] : (double)((float *)tensor->data)[k];
            if (!isfinite(value))
                return mlff_fail(MLFF_ERR_VALUE, "%s: tensor %s holds %s at element %" PRId64 "; its training has diverged", path,
                                 tensor->name, isnan(value) ? "NaN" : "an infinity", k);
        }
    }
    return MLFF_OK;
}

// ---- reading

// RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool weights_utf8_valid(const char *bytes, size_t length)
{
    const unsigned char *text = (const unsigned char *)bytes;
    for (size_t i = 0; i < length;) {
        unsigned char c = text[i];
        int n_more = c < 0x80 ? 0 : c >= 0xC2 && c < 0xE0 ? 1 : c >= 0xE0 && c < 0xF0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : -1;
        if (n_more < 0 || (size_t)n_more >= length - i) return false;
        for (int k = 1; k <= n_more; k++)
            if ((text[i + (size_t)k] & 0xC0) != 0x80) return false;
        unsigned char next = n_more ? text[i + 1] : 0;
        if ((c == 0xE0 && next < 0xA0) || (c == 0xED && next > 0x9F) || (c == 0xF0 && next < 0x90) || (c == 0xF4 && next > 0x8F))
            return false;
        i += (size_t)n_more + 1;
    }
    return true;
}

enum { MAX_DIMENSIONS = 4 };

typedef struct entry {
    const cJSON *json;
    int64_t begin, end;
    int64_t shape[MAX_DIMENSIONS];
    int n_dimensions;
} entry;

// A count in JSON: a whole number that a double holds exactly.
static bool count_of(const cJSON *json, int64_t *value_out)
{
    if (!cJSON_IsNumber(json) || !(json->valuedouble >= 0) || json->valuedouble > 0x1p53) return false;
    *value_out = (int64_t)json->valuedouble;
    return (double)*value_out == json->valuedouble;
}

static int by_begin(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

// `names` is sorted in place.
static mlff_status check_duplicates(const char *path, const char *what, const char **names, size_t n)
{
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return mlff_fail(MLFF_ERR_FORMAT, "%s: %s %s appears twice", path, what, names[i]);
    return MLFF_OK;
}

static mlff_status read_metadata(const char *path, const cJSON *metadata, model_weights *weights)
{
    mlff_status status = MLFF_OK;
    size_t n = 0, count = (size_t)cJSON_GetArraySize(metadata);
    const char **names = NULL;

    if (!cJSON_IsObject(metadata)) return mlff_fail(MLFF_ERR_FORMAT, "%s: __metadata__ is not an object", path);
    if (count > 10000) return mlff_fail(MLFF_ERR_LIMIT, "%s: %zu metadata entries; at most 10000 are read", path, count);
    if (!(names = base_alloc(count, sizeof *names, "metadata"))) return MLFF_ERR_MEMORY;
    const cJSON *item;
    cJSON_ArrayForEach(item, metadata)
    {
        if (!cJSON_IsString(item)) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: metadata %s is not a text", path, item->string);
        names[n++] = item->string;
    }
    MLFF_TRY(check_duplicates(path, "metadata", names, n));
    cJSON_ArrayForEach(item, metadata) MLFF_TRY(weights_set(weights, item->string, "%s", item->valuestring));
done:
    base_free(names);
    return status;
}

static mlff_status read_shape(const char *path, const cJSON *shape, entry *to)
{
    const char *name = to->json->string;
    char text[160];
    int64_t bytes = 8; // of an element, at most
    to->n_dimensions = cJSON_GetArraySize(shape);
    if (to->n_dimensions > MAX_DIMENSIONS)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: tensor %s has %d dimensions; at most %d are read", path, name, to->n_dimensions,
                         MAX_DIMENSIONS);
    for (int d = 0; d < to->n_dimensions; d++) {
        int64_t *size = &to->shape[d];
        if (!count_of(cJSON_GetArrayItem(shape, d), size) || (*size > 0 && bytes > INT64_MAX / *size)) {
            if (!cJSON_PrintPreallocated((cJSON *)(uintptr_t)shape, text, sizeof text, 0)) snprintf(text, sizeof text, "[…]");
            return mlff_fail(MLFF_ERR_FORMAT,
                             "%s: tensor %s has the impossible shape %s; sizes are whole numbers from 0, their product times 8 "
                             "at most 2^63 - 1",
                             path, name, text);
        }
        bytes *= *size;
    }
    return MLFF_OK;
}

// Finds the tensors' places in the data: sorted, without holes or overlaps, exactly filling it.
static mlff_status read_entries(const char *path, const cJSON *root, int64_t data_bytes, entry *entries, size_t n)
{
    size_t i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, root)
    {
        if (strcmp(item->string, "__metadata__") == 0) continue;
        if (item->string[0] == 0 || strlen(item->string) > MAX_NAME_BYTES)
            return mlff_fail(MLFF_ERR_FORMAT, "%s: a tensor's name has %zu bytes; 1 to %d are read", path, strlen(item->string),
                             MAX_NAME_BYTES);
        const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets"),
                    *shape = cJSON_GetObjectItemCaseSensitive(item, "shape");
        entries[i].json = item;
        // First the shape: from an impossible one a writer computes impossible offsets.
        const mlff_status status = cJSON_IsArray(shape) ? read_shape(path, shape, &entries[i]) : MLFF_OK;
        if (status != MLFF_OK) return status;
        if (!cJSON_IsObject(item) || cJSON_GetArraySize(item) != 3 || !cJSON_IsArray(shape) || !cJSON_IsArray(offsets) ||
            cJSON_GetArraySize(offsets) != 2 || !count_of(cJSON_GetArrayItem(offsets, 0), &entries[i].begin) ||
            !count_of(cJSON_GetArrayItem(offsets, 1), &entries[i].end) || entries[i].end < entries[i].begin)
            return mlff_fail(MLFF_ERR_FORMAT, "%s: tensor %s: expected dtype, shape and data_offsets [begin, end]", path,
                             item->string);
        if (entries[i].end > data_bytes)
            return mlff_fail(MLFF_ERR_FORMAT,
                             "%s: tensor %s ends at data byte %" PRId64 ", the file holds %" PRId64 ": it is truncated", path,
                             item->string, entries[i].end, data_bytes);
        i++;
    }
    qsort(entries, n, sizeof *entries, by_begin);
    int64_t end = 0;
    for (i = 0; i < n; i++) {
        if (entries[i].begin != end)
            return mlff_fail(MLFF_ERR_FORMAT, "%s: tensor %s begins at data byte %" PRId64 ", expected %" PRId64 " (%s)", path,
                             entries[i].json->string, entries[i].begin, end, entries[i].begin < end ? "an overlap" : "a hole");
        end = entries[i].end;
    }
    if (end != data_bytes)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: %" PRId64 " byte%s behind the last tensor", path, data_bytes - end,
                         base_plural(data_bytes - end));
    return MLFF_OK;
}

static mlff_status read_tensor(const char *path, const entry *from, const char *data, model_weights *weights)
{
    const char *name = from->json->string;
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(from->json, "dtype");
    if (!cJSON_IsString(dtype))
        return mlff_fail(MLFF_ERR_FORMAT, "%s: tensor %s: expected dtype, shape and data_offsets", path, name);
    int is_double = strcmp(dtype->valuestring, "F64") == 0;
    if (!is_double && strcmp(dtype->valuestring, "F32") != 0)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: tensor %s has dtype %.16s; only F32 and F64 are read", path, name,
                         dtype->valuestring);
    int64_t bytes = is_double ? 8 : 4;
    for (int d = 0; d < from->n_dimensions; d++) bytes *= from->shape[d];
    if (bytes != from->end - from->begin)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: tensor %s: its shape needs %" PRId64 " bytes, its data_offsets span %" PRId64,
                         path, name, bytes, from->end - from->begin);
    model_tensor *tensor = weights_add(weights, name, is_double, from->n_dimensions, from->shape);
    if (!tensor) return MLFF_ERR_MEMORY;
    memcpy(tensor->data, data + from->begin, (size_t)bytes);
    return MLFF_OK;
}

// The text of the header: bounded, UTF-8, without NUL (which would cut a name short), one JSON object.
static mlff_status parse_header(const char *bytes, size_t length, const char *path, cJSON **root_out, size_t *header_bytes_out)
{
    uint64_t header_bytes;
    if (length < LENGTH_BYTES + 2) return mlff_fail(MLFF_ERR_FORMAT, "%s: too short for a model file (bytes: %zu)", path, length);
    memcpy(&header_bytes, bytes, LENGTH_BYTES);
    const char *header = bytes + LENGTH_BYTES;
    if (atoms_begins_labels(bytes))
        return mlff_fail(MLFF_ERR_FORMAT, "%s: is a file of labels, not a model; mlff train %s -o STUDENT.safetensors makes one",
                         path, path);
    if (header[0] != '{') return mlff_fail(MLFF_ERR_FORMAT, "%s: not a model file (safetensors)", path);
    if (header_bytes > MAX_HEADER_BYTES)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: its header claims %" PRIu64 " bytes; at most %d are read", path, header_bytes,
                         MAX_HEADER_BYTES);
    if (header_bytes > length - LENGTH_BYTES)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: its header claims %" PRIu64 " bytes, the file has %zu: it is truncated", path,
                         header_bytes, length);
    if (!weights_utf8_valid(header, header_bytes) || memchr(header, 0, header_bytes) || base_json_has_zero(header, header_bytes))
        return mlff_fail(MLFF_ERR_FORMAT, "%s: its header is not UTF-8 text", path);

    const char *end = NULL;
    errno = 0; // cJSON does not tell a mistake in the text from missing memory
    cJSON *root = cJSON_ParseWithLengthOpts(header, header_bytes, &end, 0);
    if (!root && errno == ENOMEM) return mlff_fail(MLFF_ERR_MEMORY, "out of memory: the header of %s", path);
    size_t parsed = root ? (size_t)(end - header) : 0;
    while (parsed < header_bytes && header[parsed] == ' ') parsed++;
    if (!cJSON_IsObject(root) || parsed != header_bytes) {
        cJSON_Delete(root);
        return mlff_fail(MLFF_ERR_FORMAT, "%s: its header is not one JSON object", path);
    }
    *root_out = root;
    *header_bytes_out = header_bytes;
    return MLFF_OK;
}

mlff_status weights_parse(const char *bytes, size_t length, const char *path, model_weights *weights_out)
{
    mlff_status status = MLFF_OK;
    model_weights weights = {0};
    cJSON *root = NULL;
    entry *entries = NULL;
    const char **names = NULL;
    size_t header_bytes = 0;

    MLFF_TRY(parse_header(bytes, length, path, &root, &header_bytes));
    const char *data = bytes + LENGTH_BYTES + header_bytes;
    size_t data_bytes = length - LENGTH_BYTES - header_bytes;

    size_t n = 0, n_tensors = 0;
    const cJSON *item;
    size_t n_items = (size_t)cJSON_GetArraySize(root);
    if (n_items > MAX_TENSORS) MLFF_FAIL(MLFF_ERR_LIMIT, "%s: %zu tensors; at most %d are read", path, n_items, MAX_TENSORS);
    if (!(names = base_alloc(n_items, sizeof *names, "tensors")) ||
        !(entries = base_alloc(n_items, sizeof *entries, "tensors"))) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    cJSON_ArrayForEach(item, root)
    {
        names[n++] = item->string;
        n_tensors += strcmp(item->string, "__metadata__") != 0;
    }
    MLFF_TRY(check_duplicates(path, "tensor", names, n));
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(root, "__metadata__");
    if (metadata) MLFF_TRY(read_metadata(path, metadata, &weights));
    MLFF_TRY(read_entries(path, root, (int64_t)data_bytes, entries, n_tensors));
    for (size_t i = 0; i < n_tensors; i++) MLFF_TRY(read_tensor(path, &entries[i], data, &weights));
    MLFF_TRY(weights_check_finite(&weights, path));

    *weights_out = weights;
    weights = (model_weights){0};
done:
    weights_free(&weights);
    base_free(names);
    base_free(entries);
    cJSON_Delete(root);
    return status;
}

mlff_status weights_read(const char *path, model_weights *weights_out)
{
    mlff_status status = MLFF_OK;
    char *bytes = NULL;
    size_t length = 0;

    MLFF_TRY(base_read_file(path, MAX_FILE_BYTES, &bytes, &length));
    MLFF_TRY(weights_parse(bytes, length, path, weights_out));
done:
    base_free(bytes);
    return status;
}

// ---- writing

static int64_t tensor_bytes(const model_tensor *tensor)
{
    return tensor->n_elements * (tensor->is_double ? 8 : 4);
}

// Takes over `item`, which may be NULL. False if memory ran out.
static bool add_item(cJSON *parent, const char *name, cJSON *item)
{
    const bool added = item && (name ? cJSON_AddItemToObject(parent, name, item) : cJSON_AddItemToArray(parent, item));
    if (!added) cJSON_Delete(item);
    return added;
}

// Adds a tensor's entry; false if memory ran out, and what was added stays with `root`.
static bool add_entry(cJSON *root, const model_tensor *tensor, int64_t begin)
{
    cJSON *json = cJSON_AddObjectToObject(root, tensor->name);
    if (!cJSON_AddStringToObject(json, "dtype", tensor->is_double ? "F64" : "F32")) return false;
    cJSON *shape = cJSON_AddArrayToObject(json, "shape");
    for (int d = 0; d < tensor->n_dimensions; d++)
        if (!add_item(shape, NULL, cJSON_CreateNumber((double)tensor->shape[d]))) return false;
    const double range[2] = {(double)begin, (double)(begin + tensor_bytes(tensor))};
    return shape && add_item(json, "data_offsets", cJSON_CreateDoubleArray(range, 2));
}

static bool add_metadata(cJSON *root, const model_weights *weights)
{
    if (weights->n_keys == 0) return true;
    cJSON *metadata = cJSON_AddObjectToObject(root, "__metadata__");
    bool good = metadata;
    for (size_t i = 0; i < weights->n_keys && good; i++) {
        base_text value = {0}; // a name of a file may be any bytes, and a header must be UTF-8
        base_text_add_utf8(&value, weights->values[i]);
        good = value.status == MLFF_OK && cJSON_AddStringToObject(metadata, weights->keys[i], value.text ? value.text : "");
        base_text_free(&value);
    }
    return good;
}

// NULL if memory ran out: a header is complete or is not written. Doubles come first, so that every tensor is aligned to its own type.
static char *header_text(const model_weights *weights)
{
    cJSON *root = cJSON_CreateObject();
    bool good = root && add_metadata(root, weights);
    int64_t begin = 0;
    for (int is_double = 1; is_double >= 0; is_double--)
        for (size_t i = 0; i < weights->n_tensors && good; i++) {
            const model_tensor *tensor = &weights->tensors[i];
            if (!tensor->is_double != !is_double) continue;
            good = add_entry(root, tensor, begin);
            begin += tensor_bytes(tensor);
        }
    char *text = good ? cJSON_PrintUnformatted(root) : NULL;
    cJSON_Delete(root);
    return text;
}

mlff_status weights_write(const model_weights *weights, const char *path)
{
    mlff_status status = MLFF_OK;
    base_output output = {0};
    char *header = header_text(weights);
    if (!header) return mlff_fail(MLFF_ERR_MEMORY, "out of memory: the header of %s", path);

    MLFF_TRY(base_output_open(path, &output));
    size_t length = strlen(header);
    uint64_t padded = (length + 7) / 8 * 8;
    fwrite(&padded, LENGTH_BYTES, 1, output.file);
    fwrite(header, 1, length, output.file);
    for (size_t i = length; i < padded; i++) fputc(' ', output.file);
    for (int is_double = 1; is_double >= 0; is_double--)
        for (size_t i = 0; i < weights->n_tensors; i++) {
            const model_tensor *tensor = &weights->tensors[i];
            if (!tensor->is_double == !is_double) fwrite(tensor->data, 1, (size_t)tensor_bytes(tensor), output.file);
        }
    MLFF_TRY(base_output_commit(&output)); // sees every write that failed
done:
    cJSON_free(header);
    return status;
}
