// SPDX-License-Identifier: MIT
// Model files: what is written is read back bit for bit, and a file that lies in any respect is refused with its name.
#include <inttypes.h>

#include "model/painn/painn.h"
#include "support.h"

static char folder[64];

static const char *temporary(const char *name)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

// The file as bytes; freed with base_free.
static char *bytes_of(const char *path, size_t *length)
{
    char *bytes;
    assert_ok(base_read_file(path, 1 << 26, &bytes, length));
    return bytes;
}

// A safetensors file of this header and data, in memory; freed with free.
static char *make_file(const char *header, const void *data, size_t data_bytes, size_t *length)
{
    uint64_t header_bytes = strlen(header);
    char *bytes = malloc(8 + header_bytes + data_bytes + 1);
    memcpy(bytes, &header_bytes, 8);
    memcpy(bytes + 8, header, header_bytes);
    if (data_bytes) memcpy(bytes + 8 + header_bytes, data, data_bytes);
    *length = 8 + header_bytes + data_bytes;
    return bytes;
}

// The file is refused with this status, and the text holds `part`.
static void expect_refusal(const char *header, const void *data, size_t data_bytes, mlff_status expected, const char *part)
{
    size_t length;
    char *bytes = make_file(header, data, data_bytes, &length);
    model_weights weights = {0};
    mlff_status status = weights_parse(bytes, length, "x.safetensors", &weights);
    if (status != expected || !strstr(mlff_last_error(), part) || strncmp(mlff_last_error(), "x.safetensors: ", 15) != 0)
        fail_msg("%s\ngives %s \"%s\", expected %s with \"%s\"", header, mlff_status_name(status), mlff_last_error(),
                 mlff_status_name(expected), part);
    assert_int_equal(weights.n_tensors, 0);
    free(bytes);
}

#define SMALL "n_features=6; n_layers=2; n_radial=5; elements=O, H,6; seed=42"
static const painn_options small = {.n_features = 6,
                                    .n_layers = 2,
                                    .n_radial = 5,
                                    .cutoff = 5,
                                    .radial_basis = "gaussian",
                                    .cutoff_function = "cosine",
                                    .elements = "O, H,6",
                                    .seed = 42};

static void save_load_save_is_the_same_file(void **state)
{
    (void)state;
    mlff_model *model, *again;
    mlff_model_info info;
    size_t length, length_again;
    assert_ok(support_create(&model, "painn", SMALL));
    assert_ok(mlff_model_save(model, temporary("a.b.safetensors")));
    assert_ok(mlff_model_load(temporary("a.b.safetensors"), &again));
    assert_ok(mlff_model_save(again, temporary("again")));
    char *first = bytes_of(temporary("a.b.safetensors"), &length), *second = bytes_of(temporary("again"), &length_again);
    assert_int_equal(length, length_again);
    assert_memory_equal(first, second, length);
    uint64_t header_bytes;
    memcpy(&header_bytes, first, 8);
    assert_int_equal(header_bytes % 8, 0);

    mlff_model_info_get(again, &info);
    assert_string_equal(info.name, "a.b");
    assert_string_equal(info.architecture, "painn");
    assert_int_equal(info.trained, 0);
    assert_int_equal(info.n_elements, 3);
    assert_memory_equal(info.elements, ((unsigned char[]){1, 6, 8}), 3);
    assert_true(again->known[6] && !again->known[7]);
    assert_non_null(strstr(info.description, "untrained"));
    const char *value = NULL;
    assert_string_equal(mlff_model_metadata(again, 0, &value), "format");
    assert_string_equal(value, "mlff");
    assert_null(mlff_model_metadata(again, 1000, NULL));
    base_free(first);
    base_free(second);
    mlff_model_destroy(model);
    mlff_model_destroy(again);
}

// 589,057 and 210,433: counted by hand from the shapes in SchNetPack's state_dict at F = 128, L = 3, K = 20.
static void new_models_have_the_parameters_of_the_paper(void **state)
{
    (void)state;
    mlff_model *model, *other;
    mlff_model_info info;
    assert_ok(mlff_model_create("painn", NULL, &model));
    mlff_model_info_get(model, &info);
    assert_int_equal(info.n_parameters, 589057);
    assert_int_equal(info.n_elements, 99);

    // Xavier: uniform within ±√(6 / (in + out)), so the variance is 2 / (in + out); 4 % is 4 standard errors of 16384 samples
    const painn_parameters *p = model->parameters;
    double sum = 0, squares = 0, largest = 0;
    for (int k = 0; k < 128 * 128; k++) {
        sum += p->layer[1].W1[k];
        squares += (double)p->layer[1].W1[k] * p->layer[1].W1[k];
        largest = fmax(largest, fabs(p->layer[1].W1[k]));
    }
    assert_true(fabs(squares / (128 * 128) * 128 - 1.0) < 0.04);
    assert_true(fabs(sum) < 4 * sqrt(squares));
    assert_true(largest <= sqrt(6.0 / 256) * (1 + 1e-7) && largest > 0.99 * sqrt(6.0 / 256));
    for (int k = 0; k < 128; k++) assert_true(p->layer[1].b1[k] == 0.0f);
    assert_true(fabs((double)p->width[3] - 5.0 / 19) < 1e-6 && fabs((double)p->center[19] - 5.0) < 1e-6);

    // same seed, same numbers; another seed, other numbers
    assert_ok(mlff_model_create("painn", NULL, &other));
    assert_memory_equal(p->embedding, ((painn_parameters *)other->parameters)->embedding, 100 * 128 * sizeof(float));
    mlff_model_destroy(other);
    assert_ok(support_create(&other, "painn", "seed=1; shared_filters=true; shared_interactions=true; radial_basis=bessel"));
    assert_true(memcmp(p->embedding, ((painn_parameters *)other->parameters)->embedding, 100 * 128 * sizeof(float)) != 0);
    mlff_model_info_get(other, &info);
    assert_int_equal(info.n_parameters, 210433);
    const painn_parameters *shared = other->parameters;
    assert_ptr_equal(shared->layer[0].W1, shared->layer[2].W1);
    assert_ptr_equal(shared->layer[0].filter_weight, shared->layer[2].filter_weight);
    mlff_model_destroy(model);
    mlff_model_destroy(other);
}

static void settings_out_of_range_are_refused(void **state)
{
    (void)state;
    mlff_model *model = NULL;
    static const struct {
        const char *setting, *part;
    } cases[] = {
        {"n_features=1", "n_features is '1', not a whole number from 2 to 1024"},
        {"n_features=1073741824", "from 2 to 1024"},
        {"n_features=2.5", "not a whole number"},
        {"n_layers=17", "from 1 to 16"},
        {"n_radial=1", "from 2 to 256"},
        {"cutoff=nan", "cutoff is 'nan', not a number from 0.1 to 100"},
        {"cutoff=-5", "not a number"},
        {"radial_basis=hat", "radial_basis is 'hat'; expected one of gaussian, bessel"},
        {"cutoff_function=", "expected one of cosine, mollifier"},
        {"shared_filters=1", "expected true or false"},
        {"seed=-1", "not a whole number from 0"},
        {"seed=9223372036854775808", "from 0 to 2^63 - 1"},
        {"elements=", "is not an element"},
        {"elements=H,", "is not an element"},
        {"elements=H C", "not a list"},
        {"elements=H,H", "appears twice"},
        {"elements=Xx", "is not an element"},
        {"elements=119", "is not an element"},
        {"elements=Fm", "a PaiNN has 1 to 99"}, // 100: no row in the embedding
        {"n_members=3", "architecture 'painn' has no setting 'n_members'; it has n_features, "},
        {"n_layers=2; n_layers=3", "setting 'n_layers' is given twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mlff_status status = support_create(&model, "painn", "%s", cases[i].setting);
        if (status == MLFF_OK || !strstr(mlff_last_error(), cases[i].part))
            fail_msg("%s gives %s \"%s\", expected \"%s\"", cases[i].setting, mlff_status_name(status), mlff_last_error(),
                     cases[i].part);
    }
    assert_int_equal(mlff_model_create("gpt", NULL, &model), MLFF_ERR_USAGE);
    assert_non_null(strstr(mlff_last_error(), "is not one of painn, ani"));
    assert_int_equal(support_create(&model, "ani", "cutoff=3; angular_cutoff=4"), MLFF_ERR_USAGE);
    assert_null(model);
}

// The sizes that orb-models' names stand for; a setting that is given replaces the model's own.
static void published_models_have_their_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name, *architecture, *layers, *neighbors;
        int depends_on_charge;
    } cases[] = {
        {"orb-d3-v2", "orb-v2", "15", "20", 0},
        {"orb-d3-sm-v2", "orb-v2", "10", "20", 0},
        {"orb-d3-xs-v2", "orb-v2", "5", "20", 0},
        {"orb-v3-direct-20-omat", "orb-v3-direct", "5", "20", 0},
        {"orb-v3-direct-inf-mpa", "orb-v3-direct", "5", "120", 0},
        {"orb-v3", "orb-v3-conservative", "5", "120", 0},
        {"orb-v3-conservative-omol", "orb-v3-conservative", "5", "120", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mlff_model *model;
        assert_ok(support_create(&model, cases[i].name, "n_features=16; hidden=16; n_head=16"));
        assert_string_equal(model->architecture->name, cases[i].architecture);
        assert_string_equal(weights_get(&model->file, "n_layers"), cases[i].layers);
        assert_string_equal(weights_get(&model->file, "max_neighbors"), cases[i].neighbors);
        assert_int_equal(mlff_model_depends_on_charge(model), cases[i].depends_on_charge);
        assert_string_equal(weights_get(&model->file, "trained"), "false");
        mlff_model_destroy(model);
    }
    mlff_model *model;
    assert_ok(support_create(&model, "orb-d3-sm-v2", "n_features=16; hidden=16; n_head=16; n_layers=2"));
    assert_string_equal(weights_get(&model->file, "n_layers"), "2");
    mlff_model_destroy(model);
    assert_ok(support_create(&model, "ani-2x", "n_members=1; hidden=16"));
    assert_string_equal(model->architecture->name, "ani");
    mlff_model_destroy(model);
    assert_ok(mlff_model_create(NULL, (mlff_setting[]){{"n_features", "16"}, {0}}, &model));
    assert_string_equal(model->architecture->name, "painn");
    mlff_model_destroy(model);
    assert_int_equal(mlff_model_create("orb-v1", NULL, &model), MLFF_ERR_USAGE);
}

static void settings_are_listed(void **state)
{
    (void)state;
    const char *value = "", *description = NULL;
    assert_string_equal(mlff_architecture_name(0), "painn");
    assert_string_equal(mlff_architecture_name(1), "ani");
    assert_string_equal(mlff_architecture_name(2), "orb-v2");
    assert_null(mlff_architecture_name(5));
    assert_null(mlff_architecture_name(-1));
    assert_string_equal(mlff_architecture_setting("painn", 0, &value, &description), "n_features");
    assert_string_equal(value, "128");
    assert_non_null(strstr(description, "width"));
    assert_string_equal(mlff_architecture_setting("painn", 9, &value, NULL), "elements");
    assert_null(value);
    assert_null(mlff_architecture_setting("painn", 11, NULL, NULL));
    assert_null(mlff_architecture_setting("painn", 12, NULL, NULL));
    assert_null(mlff_architecture_setting("gpt", 0, NULL, NULL));
    assert_string_equal(mlff_architecture_setting("orb-v3-direct-inf-omat", 4, &value, NULL),
                        "max_neighbors"); // a published model
    assert_string_equal(value, "120");
    assert_string_equal(mlff_architecture_setting("orb-v3-direct-20-omat", 4, &value, NULL), "max_neighbors");
    assert_string_equal(value, "20");
}

static void lying_headers_are_refused(void **state)
{
    (void)state;
    float data[4] = {1, 2, 3, 4};
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}", data, 16, MLFF_ERR_FORMAT, "JSON");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}{}", data, 16, MLFF_ERR_FORMAT, "JSON");
    expect_refusal("[1,2]", data, 16, MLFF_ERR_FORMAT, "not a model file");
    expect_refusal("{\"\xff\":1}", data, 16, MLFF_ERR_FORMAT, "UTF-8");
    expect_refusal("{\"a\\u0000b\":1}", data, 16, MLFF_ERR_FORMAT, "UTF-8");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,16]}}", data, 16, MLFF_ERR_FORMAT,
                   "its shape needs 20");
    expect_refusal("{\"x\":{\"dtype\":\"F64\",\"shape\":[4],\"data_offsets\":[0,16]}}", data, 16, MLFF_ERR_FORMAT,
                   "its shape needs 32");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,20]}}", data, 16, MLFF_ERR_FORMAT, "truncated");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", data, 16, MLFF_ERR_FORMAT,
                   "4 bytes behind");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[4,16]}}", data, 16, MLFF_ERR_FORMAT, "hole");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},\"y\":{\"dtype\":\"F32\",\"shape\":[3],"
                   "\"data_offsets\":[4,16]}}",
                   data, 16, MLFF_ERR_FORMAT, "overlap");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"x\":{\"dtype\":\"F32\",\"shape\":[2],"
                   "\"data_offsets\":[8,16]}}",
                   data, 16, MLFF_ERR_FORMAT, "tensor x appears twice");
    expect_refusal("{\"x\":{\"dtype\":\"I32\",\"shape\":[4],\"data_offsets\":[0,16]}}", data, 16, MLFF_ERR_UNSUPPORTED, "I32");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}", data, 16, MLFF_ERR_FORMAT,
                   "tensor x has the impossible shape [-4]");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[-8],\"data_offsets\":[0,-32]}}", data, 16, MLFF_ERR_FORMAT,
                   "tensor x has the impossible shape [-8]");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[2,1.5],\"data_offsets\":[0,12]}}", data, 16, MLFF_ERR_FORMAT,
                   "tensor x has the impossible shape [2,1.5]");
    expect_refusal("{\"x\":{\"dtype\":\"I32\",\"shape\":[\"4\"],\"data_offsets\":[0,99]}}", data, 16, MLFF_ERR_FORMAT,
                   "tensor x has the impossible shape [\"4\"]");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,16]}}", data, 16,
                   MLFF_ERR_FORMAT, "tensor x has the impossible shape [4294967296,4294967296]");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,16]}}", data, 16, MLFF_ERR_FORMAT,
                   "expected dtype, shape");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,4],\"data_offsets\":[0,16]}}", data, 16, MLFF_ERR_FORMAT,
                   "5 dimensions");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,0]}}", data, 16, MLFF_ERR_FORMAT,
                   "data_offsets");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,1e300]}}", data, 16, MLFF_ERR_FORMAT,
                   "data_offsets");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[4]}}", data, 16, MLFF_ERR_FORMAT, "data_offsets");
    expect_refusal("{\"__metadata__\":{\"a\":1},\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", data, 16,
                   MLFF_ERR_FORMAT, "metadata a is not a text");
    expect_refusal("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"},\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
                   data, 16, MLFF_ERR_FORMAT, "metadata a appears twice");
    data[2] = NAN;
    expect_refusal("{\"bias\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", data, 16, MLFF_ERR_VALUE,
                   "tensor bias holds NaN at element 2");
    double infinite[2] = {0, -INFINITY};
    expect_refusal("{\"bias\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]}}", infinite, 16, MLFF_ERR_VALUE,
                   "tensor bias holds an infinity at element 1");
}

static void header_lengths_are_bounded(void **state)
{
    (void)state;
    uint64_t lengths[] = {UINT64_MAX, UINT64_C(1) << 62, 1 << 30, 100, 20};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char bytes[24] = "........{}";
        model_weights weights;
        memcpy(bytes, &lengths[i], 8);
        assert_int_equal(weights_parse(bytes, sizeof bytes, "x", &weights), MLFF_ERR_FORMAT);
    }
}

static void every_truncation_is_noticed(void **state)
{
    (void)state;
    mlff_model *model;
    size_t length;
    assert_ok(support_create(&model, "painn", SMALL));
    assert_ok(mlff_model_save(model, temporary("whole")));
    mlff_model_destroy(model);
    char *bytes = bytes_of(temporary("whole"), &length);
    int64_t held = base_allocated_bytes();
    for (size_t n = 0; n < length; n++) {
        model_weights weights;
        char *copy = malloc(n + 1); // exactly n bytes, so that a sanitizer sees a read beyond them
        memcpy(copy, bytes, n);
        if (weights_parse(copy, n, "x", &weights) == MLFF_OK)
            fail_msg("the first %zu of %zu bytes are taken for a whole file", n, length);
        free(copy);
    }
    assert_int_equal(base_allocated_bytes(), held);
    base_free(bytes);
}

typedef void change_function(model_weights *weights);

static model_tensor *tensor(model_weights *weights, const char *name)
{
    for (size_t i = 0; i < weights->n_tensors; i++)
        if (strcmp(weights->tensors[i].name, name) == 0) return &weights->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void wide_features(model_weights *weights)
{
    assert_ok(weights_set(weights, "n_features", "1000000000"));
}
static void negative_layers(model_weights *weights)
{
    assert_ok(weights_set(weights, "n_layers", "-1"));
}
static void more_layers(model_weights *weights)
{
    assert_ok(weights_set(weights, "n_layers", "3"));
}
static void fewer_layers(model_weights *weights)
{
    assert_ok(weights_set(weights, "n_layers", "1"));
}
static void other_features(model_weights *weights)
{
    assert_ok(weights_set(weights, "n_features", "5"));
}
static void word_radial(model_weights *weights)
{
    assert_ok(weights_set(weights, "n_radial", "twenty"));
}
static void nan_cutoff(model_weights *weights)
{
    assert_ok(weights_set(weights, "cutoff", "nan"));
}
static void zero_cutoff(model_weights *weights)
{
    assert_ok(weights_set(weights, "cutoff", "0"));
}
static void other_basis(model_weights *weights)
{
    assert_ok(weights_set(weights, "radial_basis", "bessel"));
}
static void unknown_activation(model_weights *weights)
{
    assert_ok(weights_set(weights, "activation", "relu"));
}
static void unknown_architecture(model_weights *weights)
{
    assert_ok(weights_set(weights, "architecture", "schnet"));
}
static void foreign_format(model_weights *weights)
{
    assert_ok(weights_set(weights, "format", "pt"));
}
static void late_element(model_weights *weights)
{
    assert_ok(weights_set(weights, "elements", "1,110"));
}
static void no_elements(model_weights *weights)
{
    assert_ok(weights_set(weights, "elements", "hydrogen"));
}
static void infinite_mean(model_weights *weights)
{
    assert_ok(weights_set(weights, "energy_mean", "inf"));
}
static void zero_width(model_weights *weights)
{
    *(float *)tensor(weights, "representation.radial_basis.widths")->data = 0;
}
static void extra_tensor(model_weights *weights)
{
    assert_non_null(weights_add(weights, "representation.gate", 0, 1, (int64_t[]){1}));
}
static void short_atomref(model_weights *weights)
{
    assert_non_null(weights_add(weights, "postprocessors.atomref", 0, 1, (int64_t[]){9}));
}
static void renamed(model_weights *weights)
{
    tensor(weights, "representation.filter_net.bias")->name[0] = 'R';
}
static void swapped_sizes(model_weights *weights)
{
    model_tensor *matrix = tensor(weights, "representation.filter_net.weight");
    int64_t rows = matrix->shape[0];
    matrix->shape[0] = matrix->shape[1];
    matrix->shape[1] = rows;
}
static void other_cutoff_tensor(model_weights *weights)
{
    model_tensor *cutoff = weights_add(weights, "representation.cutoff_fn.cutoff", 0, 1, (int64_t[]){1});
    assert_non_null(cutoff);
    *(float *)cutoff->data = 4.0f;
}
static void two_energies(model_weights *weights)
{
    char *name = tensor(weights, "output_modules.0.outnet.1.weight")->name; // the readout then ends with its first layer
    name[0] = 'O';
}
static void beyond_float(model_weights *weights)
{
    model_tensor *bias = tensor(weights, "representation.filter_net.bias");
    base_free(bias->data);
    assert_non_null(bias->data = base_alloc((size_t)bias->n_elements, sizeof(double), "a bias"));
    bias->is_double = 1;
    ((double *)bias->data)[3] = 3.5e38;
}
static void infinite_energy(model_weights *weights)
{
    assert_ok(weights_set(weights, "energy_unit_ev", "1e3"));
    model_tensor *atomref = weights_add(weights, "postprocessors.atomref", 1, 1, (int64_t[]){100});
    assert_non_null(atomref);
    ((double *)atomref->data)[8] = 1e306;
}

static void metadata_and_tensors_must_fit(void **state)
{
    (void)state;
    static const struct {
        change_function *change;
        mlff_status status;
        const char *part;
    } cases[] = {
        {wide_features, MLFF_ERR_FORMAT, "metadata n_features is \"1000000000\""},
        {negative_layers, MLFF_ERR_FORMAT, "metadata n_layers is \"-1\""},
        {more_layers, MLFF_ERR_FORMAT, "representation.filter_net.weight is 36 × 5, expected 54 × 5"},
        {fewer_layers, MLFF_ERR_FORMAT, "representation.filter_net.weight is 36 × 5, expected 18 × 5"},
        {other_features, MLFF_ERR_FORMAT, "representation.embedding.weight is 100 × 6"},
        {word_radial, MLFF_ERR_FORMAT, "metadata n_radial is \"twenty\""},
        {nan_cutoff, MLFF_ERR_FORMAT, "metadata cutoff is \"nan\""},
        {zero_cutoff, MLFF_ERR_FORMAT, "metadata cutoff is \"0\""},
        {other_basis, MLFF_ERR_FORMAT, "representation.radial_basis.freqs is missing"},
        {unknown_activation, MLFF_ERR_FORMAT, "metadata activation is \"relu\"; known are \"silu\""},
        {unknown_architecture, MLFF_ERR_UNSUPPORTED, "its architecture is \"schnet\""},
        {foreign_format, MLFF_ERR_FORMAT, "mlff import"},
        {late_element, MLFF_ERR_FORMAT, "element 110"},
        {no_elements, MLFF_ERR_FORMAT, "metadata elements is \"hydrogen\""},
        {infinite_mean, MLFF_ERR_FORMAT, "metadata energy_mean is \"inf\""},
        {zero_width, MLFF_ERR_VALUE, "width 0 of its radial basis is 0"},
        {extra_tensor, MLFF_ERR_FORMAT, "tensor representation.gate is unknown"},
        {short_atomref, MLFF_ERR_FORMAT, "postprocessors.atomref has 9 elements"},
        {renamed, MLFF_ERR_FORMAT, "representation.filter_net.bias is missing"},
        {swapped_sizes, MLFF_ERR_FORMAT, "representation.filter_net.weight is 5 × 36, expected 36 × 5"},
        {other_cutoff_tensor, MLFF_ERR_FORMAT, "metadata cutoff is 5, tensor representation.cutoff_fn.cutoff 4"},
        {beyond_float, MLFF_ERR_VALUE, "representation.filter_net.bias holds 3.5e+38 at element 3, beyond the range of float32"},
        {infinite_energy, MLFF_ERR_VALUE, "the energy of a single atom of O is inf eV"},
        {two_energies, MLFF_ERR_FORMAT, "its readout gives 3 numbers"},
    };
    const painn_options options = small;
    int64_t held = base_allocated_bytes();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model_weights weights = {0};
        mlff_model *model = NULL;
        assert_ok(painn_new(&options, &weights));
        cases[i].change(&weights);
        mlff_status status = model_from_weights(&weights, "folder/model.safetensors", &model);
        if (status != cases[i].status || !strstr(mlff_last_error(), cases[i].part) ||
            strncmp(mlff_last_error(), "folder/model.safetensors: ", 26) != 0)
            fail_msg("case %zu gives %s \"%s\", expected \"%s\"", i, mlff_status_name(status), mlff_last_error(), cases[i].part);
        assert_null(model);
        assert_int_equal(base_allocated_bytes(), held);
    }
}

// SchNetPack lists shared interactions once for each layer; both ways of storing them load, differing copies do not.
static void shared_interactions_may_be_stored_once_or_for_each_layer(void **state)
{
    (void)state;
    painn_options options = small;
    options.shared_interactions = 1;
    for (int differ = 0; differ <= 1; differ++) {
        model_weights weights = {0};
        mlff_model *model;
        assert_ok(painn_new(&options, &weights));
        const char *from = "representation.mixing.0.mu_channel_mix.weight", *to = "representation.mixing.1.mu_channel_mix.weight";
        model_tensor *alias = weights_add(&weights, to, 0, 2, (int64_t[]){12, 6});
        memcpy(alias->data, tensor(&weights, from)->data, 12 * 6 * sizeof(float));
        if (differ) ((float *)alias->data)[7] += 1;
        mlff_status status = model_from_weights(&weights, "x", &model);
        assert_int_equal(status, differ ? MLFF_ERR_FORMAT : MLFF_OK);
        if (differ)
            assert_non_null(strstr(mlff_last_error(), to));
        else
            mlff_model_destroy(model);
    }
}

// offset[z] = (mean + atomref[z]) × unit; float64 tensors are kept in the file and used as float32.
static void offsets_are_in_electronvolts(void **state)
{
    (void)state;
    const painn_options options = small;
    model_weights weights = {0};
    mlff_model *model;
    assert_ok(painn_new(&options, &weights));
    assert_ok(weights_set(&weights, "energy_mean", "%.17g", -10786.226809289834));
    assert_ok(weights_set(&weights, "energy_unit_ev", "%.17g", BASE_KCAL_PER_MOL_EV));
    model_tensor *atomref = weights_add(&weights, "postprocessors.atomref", 1, 1, (int64_t[]){100});
    ((double *)atomref->data)[8] = -0.1;
    assert_ok(model_from_weights(&weights, "x", &model));
    assert_true(model->offset[1] == -10786.226809289834 * BASE_KCAL_PER_MOL_EV);
    assert_true(model->offset[8] == (-10786.226809289834 + -0.1) * BASE_KCAL_PER_MOL_EV);
    assert_true(model->offset[118] == 0.0);
    mlff_model_destroy(model);
}

static void files_that_cannot_be_are_errors(void **state)
{
    (void)state;
    mlff_model *model, *loaded = NULL;
    assert_ok(support_create(&model, "painn", SMALL));
    assert_int_equal(mlff_model_save(model, "/dev/full"), MLFF_ERR_IO);
    assert_int_equal(mlff_model_save(model, temporary("no/such/folder")), MLFF_ERR_IO);
    assert_int_equal(mlff_model_load(temporary("absent"), &loaded), MLFF_ERR_IO);
    assert_int_equal(mlff_model_load(folder, &loaded), MLFF_ERR_IO);
    assert_int_equal(mlff_model_load("/dev/null", &loaded), MLFF_ERR_FORMAT);
    assert_int_equal(mlff_model_load("CMakeLists.txt", &loaded), MLFF_ERR_FORMAT);
    assert_null(loaded);

    // a model file is not imported, a foreign one not loaded
    assert_ok(mlff_model_save(model, temporary("own")));
    assert_int_equal(mlff_model_import(temporary("own"), NULL, &loaded), MLFF_ERR_USAGE);
    assert_non_null(strstr(mlff_last_error(), "nothing to import"));
    FILE *file = fopen(temporary("zip"), "w");
    fputs("PK\3\4 something", file);
    fclose(file);
    assert_int_equal(mlff_model_load(temporary("zip"), &loaded), MLFF_ERR_FORMAT);
    assert_non_null(strstr(mlff_last_error(), "mlff import"));
    mlff_model_destroy(model);
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_weights.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    const char *names[] = {"a.b.safetensors", "again", "whole", "own", "zip"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(temporary(names[i]));
    if (rmdir(folder) != 0) printf("left behind: %s\n", folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(save_load_save_is_the_same_file),
        cmocka_unit_test(new_models_have_the_parameters_of_the_paper),
        cmocka_unit_test(settings_out_of_range_are_refused),
        cmocka_unit_test(published_models_have_their_sizes),
        cmocka_unit_test(settings_are_listed),
        cmocka_unit_test(lying_headers_are_refused),
        cmocka_unit_test(header_lengths_are_bounded),
        cmocka_unit_test(every_truncation_is_noticed),
        cmocka_unit_test(metadata_and_tensors_must_fit),
        cmocka_unit_test(shared_interactions_may_be_stored_once_or_for_each_layer),
        cmocka_unit_test(offsets_are_in_electronvolts),
        cmocka_unit_test(files_that_cannot_be_are_errors),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
