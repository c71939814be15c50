// SPDX-License-Identifier: MIT
// Import of SchNetPack saves: what each variant becomes, and that each wrong one is refused by the name of what is wrong.
// Files: tests/fuzz/corpus/schnetpack, made by tools/make_corpus.py (F = 4, two layers, weights from a seed).
#include "model/painn/import/schnetpack.h"
#include "model/painn/painn.h"
#include "support.h"

static mlff_status import_file(const char *name, mlff_model **model)
{
    char path[256];
    mlff_import_options options = mlff_import_options_default();
    options.energy_unit = "kcal/mol";
    options.elements = "H,C";
    snprintf(path, sizeof path, "tests/fuzz/corpus/schnetpack/%s", name);
    *model = NULL;
    return mlff_model_import(path, &options, model);
}

static mlff_model *import_good(const char *name)
{
    mlff_model *model;
    assert_ok(import_file(name, &model));
    return model;
}

static void wrong_files_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *name, *part;
    } cases[] = {
        {"bad-compressed", "is compressed"},
        {"bad-endian", "big-endian"},
        {"bad-two-pickles", "two data.pkl"},
        {"bad-torchscript", "TorchScript"},
        {"bad-cut", "entry best_model/data/5 has 156 bytes, 40 numbers of 4 bytes were promised"},
        {"bad-no-pickle", "without data.pkl"},
        {"bad-class", "its representation is schnetpack.representation.schnet.SchNet"},
        {"bad-activation", "torch.nn.functional.gelu"},
        {"bad-two-activations", "shifted_softplus, elsewhere it is silu"},
        {"bad-intensive", "not extensive"},
        {"bad-average", "\"avg\""},
        {"bad-electronic", "schnetpack.nn.embedding.ElectronicEmbedding"},
        {"bad-output", "schnetpack.atomistic.nuclear_repulsion.ZBLRepulsionEnergy"},
        {"bad-postprocessor", "schnetpack.transform.atomistic.RemoveOffsets"},
        {"bad-extra", "a member \"gate\""},
        {"bad-missing", "interactions.0.interatomic_context_net.0.bias is missing"},
        {"bad-nan", "interactions.0.interatomic_context_net.0.bias holds NaN at element 2"},
        {"bad-shape", "is 4 × 5, expected 4 × 4"},
        {"bad-integers", "torch.LongStorage"},
        {"bad-beyond", "reaches beyond its storage"},
        {"bad-negative", "shape or strides are impossible"},
        {"bad-claim", "larger than any model"},
        {"bad-claim-more", "has 16 bytes, 100 numbers"},
        {"bad-stride-bomb", "larger than any model"},
        {"bad-features", "n_features is \"1000000000\""},
        {"bad-features-negative", "n_features is \"-4\""},
        {"bad-layers", "n_interactions is 3, yet it holds 2"},
        {"bad-radial", "n_radial is \"1000\""},
        {"bad-popped", "its pickle names os.system"},
        {"bad-itself", "representation.interactions is schnetpack.model.base.NeuralNetworkPotential"},
        {"bad-state-dict", "bare state_dict"},
        {"bad-checkpoint", "training checkpoint"},
        {"pickle-other", "a bare pickle"},
    };
    int64_t held = base_allocated_bytes();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mlff_model *model;
        mlff_status status = import_file(cases[i].name, &model);
        if (status == MLFF_OK || !strstr(mlff_last_error(), cases[i].part) || !strstr(mlff_last_error(), cases[i].name))
            fail_msg("%s: gives %s \"%s\", expected \"%s\"", cases[i].name, mlff_status_name(status), mlff_last_error(),
                     cases[i].part);
        assert_null(model);
        assert_int_equal(base_allocated_bytes(), held);
    }
}

static void options_are_checked(void **state)
{
    (void)state;
    const char *path = "tests/fuzz/corpus/schnetpack/good";
    mlff_import_options options = mlff_import_options_default();
    mlff_model *model = NULL;
    assert_int_equal(mlff_model_import(path, NULL, &model), MLFF_ERR_USAGE);
    assert_non_null(strstr(mlff_last_error(), "give it as kcal/mol, eV or Hartree"));
    options.energy_unit = "kcal";
    assert_int_equal(mlff_model_import(path, &options, &model), MLFF_ERR_USAGE);
    options.energy_unit = "eV";
    options.length_unit = "nm";
    assert_int_equal(mlff_model_import(path, &options, &model), MLFF_ERR_USAGE);
    options.length_unit = NULL;
    options.elements = "H,Q";
    assert_int_equal(mlff_model_import(path, &options, &model), MLFF_ERR_ELEMENT);
    options.elements = "H,Ne"; // row 10 of an embedding of 10
    assert_int_equal(mlff_model_import(path, &options, &model), MLFF_ERR_FORMAT);
    options.struct_size = 0;
    assert_int_equal(mlff_model_import(path, &options, &model), MLFF_ERR_USAGE);
    assert_int_equal(mlff_model_import("tests/fuzz/corpus/schnetpack/absent", NULL, &model), MLFF_ERR_IO);
    assert_null(model);
}

static void count_warning(void *context, const char *text)
{
    assert_non_null(strstr(text, "give them, as H,C,O"));
    ++*(int *)context;
}

static void unknown_elements_are_warned_about_once(void **state)
{
    (void)state;
    int n_warnings = 0;
    mlff_model *model;
    mlff_import_options options = mlff_import_options_default();
    options.energy_unit = "eV";
    mlff_warning_handler_set(count_warning, &n_warnings);
    assert_ok(mlff_model_import("tests/fuzz/corpus/schnetpack/good", &options, &model));
    mlff_warning_handler_set(NULL, NULL);
    assert_int_equal(n_warnings, 1);
    assert_int_equal(model->n_elements, 0);
    assert_string_equal(weights_get(&model->file, "elements"), "unknown");
    assert_true(model->known[1] && model->known[9] && !model->known[10] && !model->known[0]); // rows of the embedding
    mlff_model_destroy(model);
}

static void the_object_becomes_a_model(void **state)
{
    (void)state;
    mlff_model *model = import_good("good");
    const painn_parameters *p = model->parameters;
    assert_int_equal(p->n_features, 4);
    assert_int_equal(p->n_layers, 2);
    assert_int_equal(p->n_radial, 3);
    assert_int_equal(p->n_species, 10);
    assert_int_equal(p->n_readout, 2);
    assert_int_equal(p->readout_width[1], 2);
    assert_true(p->basis == PAINN_GAUSSIAN && p->cutoff_function == PAINN_COSINE && p->activation == PAINN_SILU);
    assert_true(p->cutoff == 5.0 && p->epsilon == 1e-8 && p->center[2] == 5.0f && p->width[0] == 2.5f);
    assert_true(model->trained);
    assert_int_equal(model->outputs, MODEL_ATOM_ENERGY | MODEL_PAIR_GRADIENT);
    assert_true(model->offset[6] == -12.5 * BASE_KCAL_PER_MOL_EV);
    assert_string_equal(weights_get(&model->file, "source"), "good");
    assert_string_equal(weights_get(&model->file, "source_version"), "2.1.1");
    assert_string_equal(weights_get(&model->file, "elements"), "1,6");
    mlff_model_destroy(model);

    model = import_good("other");
    p = model->parameters;
    assert_true(p->basis == PAINN_BESSEL && p->cutoff_function == PAINN_MOLLIFIER && p->activation == PAINN_SHIFTED_SOFTPLUS);
    assert_true(fabs((double)p->frequency[1] - 2 * BASE_PI / 5) < 1e-6);
    assert_ptr_equal(p->layer[0].M2, p->layer[1].M2);
    assert_ptr_equal(p->layer[0].filter_bias, p->layer[1].filter_bias);
    mlff_model_destroy(model);
}

// Another pickle protocol and another memory layout of a tensor are the same model.
static void the_way_of_storing_does_not_matter(void **state)
{
    (void)state;
    static const char *const names[] = {"protocol4", "transposed"};
    mlff_model *good = import_good("good");
    for (int i = 0; i < 2; i++) {
        mlff_model *same = import_good(names[i]);
        assert_int_equal(same->file.n_tensors, good->file.n_tensors);
        for (size_t t = 0; t < good->file.n_tensors; t++) {
            const model_tensor *a = &good->file.tensors[t], *b = &same->file.tensors[t];
            assert_string_equal(a->name, b->name);
            assert_int_equal(a->n_elements, b->n_elements);
            if (memcmp(a->data, b->data, (size_t)a->n_elements * sizeof(float)) != 0)
                fail_msg("%s: %s differs", names[i], a->name);
        }
        mlff_model_destroy(same);
    }
    mlff_model_destroy(good);
}

static void half_and_double_become_float(void **state)
{
    (void)state;
    mlff_model *model = import_good("half");
    const float *bias = ((painn_parameters *)model->parameters)->layer[0].b1;
    assert_true(bias[0] == 0.5f && bias[1] == -0.25f && bias[2] == 0x1p-20f && bias[3] == 1.5f);
    mlff_model_destroy(model);
    model = import_good("double");
    bias = ((painn_parameters *)model->parameters)->layer[0].b1;
    assert_true(bias[0] == 0.1f && bias[3] == 0.4f);
    const model_tensor *kept = weights_find(&model->file, "representation.interactions.0.interatomic_context_net.0.bias");
    assert_true(kept->is_double && ((double *)kept->data)[0] == 0.1);
    mlff_model_destroy(model);
}

// "scaled" is "atomref" with everything, offsets included, times 2.
static void scale_and_atomref_are_folded(void **state)
{
    (void)state;
    mlff_model *model = import_good("atomref"), *scaled = import_good("scaled");
    const painn_parameters *p = model->parameters, *q = scaled->parameters;
    assert_true(model->offset[6] == (-12.5 + 6.0) * BASE_KCAL_PER_MOL_EV);
    assert_true(scaled->offset[6] == 2 * (-12.5 + 6.0) * BASE_KCAL_PER_MOL_EV);
    for (int k = 0; k < 2; k++) assert_true(q->readout_weight[1][k] == 2 * p->readout_weight[1][k]);
    assert_true(q->readout_bias[1][0] == 2 * p->readout_bias[1][0]);
    assert_memory_equal(q->readout_weight[0], p->readout_weight[0], 8 * sizeof(float));
    mlff_model_destroy(model);
    mlff_model_destroy(scaled);
}

// The weights of a file in memory.
static mlff_status parse(const char *bytes, size_t length, model_weights *weights)
{
    torch_file *file = NULL;
    mlff_import_options options = mlff_import_options_default();
    options.energy_unit = "eV";
    mlff_status status = torch_file_parse(bytes, length, "x", &file);
    if (status == MLFF_OK) status = schnetpack_read(file, "x", &options, weights);
    torch_file_destroy(file);
    return status;
}

static void damage_is_noticed(void **state)
{
    (void)state;
    char *bytes;
    size_t length;
    assert_ok(base_read_file("tests/fuzz/corpus/schnetpack/good", 1 << 20, &bytes, &length));
    int64_t held = base_allocated_bytes();
    for (size_t n = 0; n < length; n += n < length - 200 ? 37 : 1) {
        model_weights weights = {0};
        char *copy = malloc(n + 1);
        memcpy(copy, bytes, n);
        if (parse(copy, n, &weights) == MLFF_OK) fail_msg("the first %zu of %zu bytes are taken for a whole file", n, length);
        free(copy);
    }
    // a bit flipped in the numbers of a tensor is caught by the zip's checksum
    const char *numbers = memmem(bytes, length, "best_model/data/5", 17);
    assert_non_null(numbers);
    bytes[(numbers - bytes) + 17 + 10] ^= 4;
    model_weights weights = {0};
    assert_int_equal(parse(bytes, length, &weights), MLFF_ERR_FORMAT);
    assert_non_null(strstr(mlff_last_error(), "damaged"));
    assert_int_equal(base_allocated_bytes(), held);
    base_free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_files_are_refused_by_name),        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(unknown_elements_are_warned_about_once), cmocka_unit_test(the_object_becomes_a_model),
        cmocka_unit_test(the_way_of_storing_does_not_matter),     cmocka_unit_test(half_and_double_become_float),
        cmocka_unit_test(scale_and_atomref_are_folded),           cmocka_unit_test(damage_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
