// SPDX-License-Identifier: MIT
// torch_file.c: what torch.save writes: a zip whose entries are all stored, with one pickle and one raw array for
// each storage. Sizes are accepted only if they agree with each other and with the length of the file.
#include "torch_file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <zip.h>

enum {
    MAX_PICKLE_BYTES = 16 << 20,
    MAX_ENTRIES = 100000,
    MAX_ELEMENTS = 1 << 26,     // numbers in a tensor: 5 times the largest a PaiNN may have
    MAX_ALL_ELEMENTS = 1 << 28, // read in all
};

struct torch_file {
    const char *path;
    zip_t *zip;
    char root[256]; // folder inside the zip, "best_model/"
    pickle *pickle;
    int64_t n_elements; // read so far
};

// ---- the zip

static mlff_status read_entry(torch_file *file, const char *name, size_t limit, char **bytes_out, size_t *length_out)
{
    mlff_status status = MLFF_OK;
    zip_stat_t info;
    zip_file_t *entry = NULL;
    char *bytes = NULL;

    zip_stat_init(&info);
    if (zip_stat(file->zip, name, 0, &info) != 0)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: entry %s is missing from the zip", file->path, name);
    zip_uint64_t wanted = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    if ((info.valid & wanted) != wanted || info.comp_method != ZIP_CM_STORE || info.size != info.comp_size)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: entry %s is compressed; torch.save only stores", file->path, name);
    if (info.size > limit)
        MLFF_FAIL(MLFF_ERR_LIMIT, "%s: entry %s has %" PRIu64 " bytes; at most %zu are read", file->path, name,
                  (uint64_t)info.size, limit);
    if (!(bytes = base_alloc((size_t)info.size + 1, 1, name))) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    if (!(entry = zip_fopen(file->zip, name, 0)) && zip_error_code_zip(zip_get_error(file->zip)) == ZIP_ER_MEMORY)
        MLFF_FAIL(MLFF_ERR_MEMORY, "out of memory: reading %s", file->path);
    if (!entry) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: entry %s: %s", file->path, name, zip_strerror(file->zip));
    char beyond;
    zip_int64_t got = zip_fread(entry, bytes, info.size);
    if (got == (zip_int64_t)info.size) got += zip_fread(entry, &beyond, 1); // only reading past the end checks the checksum
    if (got != (zip_int64_t)info.size)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: entry %s is damaged: %s", file->path, name, zip_file_strerror(entry));
    *length_out = (size_t)info.size;
    *bytes_out = bytes;
    bytes = NULL;
done:
    if (entry) zip_fclose(entry);
    base_free(bytes);
    return status;
}

// Finds "<root>/data.pkl", and what the other entries say about the file.
static mlff_status find_root(torch_file *file)
{
    zip_int64_t n = zip_get_num_entries(file->zip, 0);
    bool found = false;
    if (n > MAX_ENTRIES)
        return mlff_fail(MLFF_ERR_LIMIT, "%s: %" PRId64 " entries in the zip; at most %d are read", file->path, (int64_t)n,
                         MAX_ENTRIES);
    for (zip_int64_t i = 0; i < n; i++) {
        const char *name = zip_get_name(file->zip, (zip_uint64_t)i, ZIP_FL_ENC_RAW);
        const char *slash = name ? strchr(name, '/') : NULL;
        if (!slash || (size_t)(slash - name) + 1 >= sizeof file->root) continue;
        if (strcmp(slash, "/constants.pkl") == 0)
            return mlff_fail(MLFF_ERR_UNSUPPORTED,
                             "%s: is a TorchScript archive; save the SchNetPack model itself with torch.save", file->path);
        if (strcmp(slash, "/data.pkl") != 0) continue;
        if (found) return mlff_fail(MLFF_ERR_FORMAT, "%s: two data.pkl in one zip", file->path);
        found = true;
        memcpy(file->root, name, (size_t)(slash - name) + 1);
    }
    if (!found) return mlff_fail(MLFF_ERR_FORMAT, "%s: a zip without data.pkl: no torch.save", file->path);
    return MLFF_OK;
}

static mlff_status check_byte_order(torch_file *file)
{
    mlff_status status = MLFF_OK;
    char name[300], *text = NULL;
    size_t length = 0;
    snprintf(name, sizeof name, "%sbyteorder", file->root);
    if (zip_name_locate(file->zip, name, 0) < 0) return MLFF_OK; // absent before PyTorch 2.1: little
    MLFF_TRY(read_entry(file, name, 64, &text, &length));
    if (strncmp(text, "little", 6) != 0)
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: its numbers are %.16s-endian; only little-endian is read", file->path, text);
done:
    base_free(text);
    return status;
}

// ---- tensors

// What _rebuild_tensor_v2 is called with.
struct view {
    const char *key;  // of the storage
    const char *type; // "torch.FloatStorage"
    int item_bytes;
    int64_t n_stored, offset;
    int n_dimensions;
    int64_t shape[4], stride[4];
    int64_t n_elements;
};

static bool whole_number(const pickle_value *value, int64_t *number_out)
{
    if (value->kind != PICKLE_INTEGER || value->integer < 0 || value->integer > INT64_C(1) << 40) return false;
    *number_out = value->integer;
    return true;
}

static const char *view_of_storage(const pickle_value *identifier, struct view *view)
{
    static const struct {
        const char *name;
        int item_bytes;
    } types[] = {{"torch.FloatStorage", 4}, {"torch.DoubleStorage", 8}, {"torch.HalfStorage", 2}};
    const pickle_value *parts = identifier->kind == PICKLE_PERSISTENT ? identifier->items[0] : NULL;
    if (!parts || parts->kind != PICKLE_TUPLE || parts->n < 5 || strcmp(pickle_text(parts->items[0], ""), "storage") != 0 ||
        parts->items[1]->kind != PICKLE_GLOBAL || parts->items[2]->kind != PICKLE_TEXT ||
        !whole_number(parts->items[4], &view->n_stored))
        return "its storage is not described as torch.save does";
    view->type = parts->items[1]->text;
    view->key = parts->items[2]->text;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, view->type) == 0) view->item_bytes = types[i].item_bytes;
    if (view->item_bytes == 0) return "only float16, float32 and float64 are read";
    if (view->n_stored > MAX_ELEMENTS) return "its storage is larger than any model of ours";
    if (strlen(view->key) > 32 || strspn(view->key, "0123456789") != strlen(view->key)) return "its storage's name is no number";
    return NULL;
}

// NULL, or what is wrong.
static const char *view_of(const pickle_value *value, struct view *view)
{
    *view = (struct view){.n_elements = 1, .type = "unknown type"};
    if (pickle_is(value, "torch._utils._rebuild_parameter")) {
        const pickle_value *of_parameter = value->items[1];
        if (of_parameter->n < 1) return "its parameter holds no tensor";
        value = of_parameter->items[0];
    }
    if (!pickle_is(value, "torch._utils._rebuild_tensor_v2")) return "it is no plain tensor";
    const pickle_value *arguments = value->items[1];
    if (arguments->n < 4) return "its description is too short";
    const char *wrong = view_of_storage(arguments->items[0], view);
    if (wrong) return wrong;
    const pickle_value *shape = arguments->items[2], *stride = arguments->items[3];
    if (!whole_number(arguments->items[1], &view->offset) || shape->kind != PICKLE_TUPLE || stride->kind != PICKLE_TUPLE ||
        shape->n != stride->n || shape->n > 4)
        return "its shape and strides do not fit each other, or it has more than 4 dimensions";
    view->n_dimensions = (int)shape->n;
    int64_t last = view->offset;
    for (int d = 0; d < view->n_dimensions; d++) {
        if (!whole_number(shape->items[d], &view->shape[d]) || !whole_number(stride->items[d], &view->stride[d]) ||
            view->shape[d] == 0 || view->shape[d] > MAX_ELEMENTS || view->stride[d] > MAX_ELEMENTS)
            return "its shape or strides are impossible";
        last += (view->shape[d] - 1) * view->stride[d]; // at most 4 × 2^52 beyond the offset
        view->n_elements *= view->shape[d];
        if (view->n_elements > MAX_ELEMENTS) return "it is larger than any model of ours";
    }
    return last >= view->n_stored ? "it reaches beyond its storage" : NULL;
}

// IEEE binary16.
static double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 31  ? (fraction ? NAN : INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(1024 + fraction, exponent - 25);
    return bits >> 15 ? -value : value;
}

static void copy_element(const char *stored, const struct view *view, int64_t from, model_tensor *tensor, int64_t to)
{
    const char *source = stored + from * view->item_bytes;
    if (view->item_bytes == 2) {
        uint16_t bits;
        memcpy(&bits, source, sizeof bits);
        ((float *)tensor->data)[to] = (float)half_value(bits);
    } else {
        memcpy((char *)tensor->data + to * view->item_bytes, source, (size_t)view->item_bytes);
    }
}

mlff_status torch_file_add_tensor(torch_file *file, const pickle_value *value, const char *name, model_weights *weights)
{
    mlff_status status = MLFF_OK;
    struct view view;
    char entry[300], *stored = NULL;
    size_t length = 0;

    if (!value || value->kind == PICKLE_NONE) return mlff_fail(MLFF_ERR_FORMAT, "%s: tensor %s is missing", file->path, name);
    const char *wrong = view_of(value, &view);
    if (wrong)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: tensor %s (%s, %s): %s", file->path, name, pickle_class(value), view.type, wrong);
    file->n_elements += view.n_elements + view.n_stored;
    if (file->n_elements > MAX_ALL_ELEMENTS)
        return mlff_fail(MLFF_ERR_LIMIT, "%s: its tensors are larger than any model of ours", file->path);
    snprintf(entry, sizeof entry, "%sdata/%s", file->root, view.key);
    MLFF_TRY(read_entry(file, entry, (size_t)view.n_stored * (size_t)view.item_bytes, &stored, &length));
    if (length != (size_t)view.n_stored * (size_t)view.item_bytes)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: tensor %s: entry %s has %zu byte%s, %" PRId64 " number%s of %d bytes were promised",
                  file->path, name, entry, length, base_plural((int64_t)length), view.n_stored, base_plural(view.n_stored),
                  view.item_bytes);
    if (view.n_dimensions == 0) view.n_dimensions = 1, view.shape[0] = 1, view.stride[0] = 1;
    model_tensor *tensor = weights_add(weights, name, view.item_bytes == 8, view.n_dimensions, view.shape);
    if (!tensor) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    int64_t at[4] = {0}, from = view.offset;
    for (int64_t to = 0; to < view.n_elements; to++) {
        copy_element(stored, &view, from, tensor, to);
        for (int d = view.n_dimensions - 1; d >= 0; d--) { // the next index, last dimension fastest
            from += view.stride[d];
            if (++at[d] < view.shape[d]) break;
            from -= at[d] * view.stride[d];
            at[d] = 0;
        }
    }
done:
    base_free(stored);
    return status;
}

// ---- the file

static mlff_status open_zip(const char *bytes, size_t length, const char *path, zip_t **zip_out)
{
    zip_error_t error;
    zip_error_init(&error);
    errno = 0;
    zip_source_t *source = zip_source_buffer_create(bytes, length, 0, &error);
    zip_t *zip = source ? zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error) : NULL;
    mlff_status status = MLFF_OK;
    if (!zip) {
        // Where memory runs out libzip may name another cause.
        if (zip_error_code_zip(&error) == ZIP_ER_MEMORY || errno == ENOMEM)
            status = mlff_fail(MLFF_ERR_MEMORY, "out of memory: reading %s", path);
        else
            status =
                mlff_fail(MLFF_ERR_FORMAT, "%s: not a whole zip (%s); it may be truncated", path, zip_error_strerror(&error));
        if (source) zip_source_free(source);
    }
    zip_error_fini(&error);
    *zip_out = zip;
    return status;
}

mlff_status torch_file_parse(const char *bytes, size_t length, const char *path, torch_file **file_out)
{
    mlff_status status = MLFF_OK;
    char name[300], *text = NULL;
    size_t text_bytes = 0;
    torch_file *file = base_alloc(1, sizeof *file, "a file");
    if (!file) return MLFF_ERR_MEMORY;
    file->path = path;

    MLFF_TRY(open_zip(bytes, length, path, &file->zip));
    MLFF_TRY(find_root(file));
    MLFF_TRY(check_byte_order(file));
    snprintf(name, sizeof name, "%sdata.pkl", file->root);
    MLFF_TRY(read_entry(file, name, MAX_PICKLE_BYTES, &text, &text_bytes));
    MLFF_TRY(pickle_parse(text, text_bytes, path, &file->pickle));
    *file_out = file;
    file = NULL;
done:
    torch_file_destroy(file);
    base_free(text);
    return status;
}

const pickle_value *torch_file_root(const torch_file *file)
{
    return pickle_root(file->pickle);
}

const char *torch_file_global(const torch_file *file, size_t index)
{
    return pickle_global(file->pickle, index);
}

void torch_file_destroy(torch_file *file)
{
    if (!file) return;
    pickle_destroy(file->pickle);
    if (file->zip) zip_discard(file->zip);
    base_free(file);
}
