// SPDX-License-Identifier: MIT
// Import of the trained models: every weight, bit for bit, as an independent reader in Python sees it.
// Reference: shared/oracle/schnetpack_reader.py (Python's own unpickler and NumPy), its float32 arrays digested as in
// digest() below, and three tensors summed in float64. Needs the shared data; says so and skips where they are not.
#include "model/painn/painn.h"
#include "support.h"

// Each number's bits times its place, each tensor's sum times the FNV-1a hash of its name, modulo 2^64.
static uint64_t digest(const model_weights *weights)
{
    uint64_t total = 0;
    for (size_t t = 0; t < weights->n_tensors; t++) {
        uint64_t hash = 0xcbf29ce484222325, sum = 0;
        for (const char *c = weights->tensors[t].name; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3;
        for (int64_t k = 0; k < weights->tensors[t].n_elements; k++) {
            uint32_t bits;
            memcpy(&bits, (const float *)weights->tensors[t].data + k, sizeof bits);
            sum += (uint64_t)bits * (uint64_t)(k + 1);
        }
        total += hash * sum;
    }
    return total;
}

static const struct {
    const char *path, *elements;
    int n_layers;
    size_t n_tensors;
    int64_t n_parameters;
    uint64_t digest;
    double mean; // kcal/mol for each atom
    struct {
        const char *name;
        int64_t n_elements;
        double sum;
    } tensors[3];
} models[] = {
    {"data/painn/ethanol.best_model",
     "H,C,O",
     3,
     37,
     589057,
     0xecbf67a416ca9689,
     -10786.226809289834,
     {{"representation.embedding.weight", 12800, 177.25533180406183},
      {"representation.filter_net.weight", 23040, -14.534305556737479},
      {"representation.mixing.2.intraatomic_context_net.0.weight", 32768, -1075.4405210054679}}},
    {"data/painn/aspirin.best_model",
     "C,H,O",
     2,
     28,
     399745,
     0xd50f6862f5ad38bf,
     -19368.43602386448,
     {{"representation.embedding.weight", 12800, 52.987857377236651},
      {"representation.interactions.1.interatomic_context_net.1.weight", 49152, -3.337950561169464},
      {"output_modules.0.outnet.0.weight", 8192, -6.1985183875240182}}},
};

static void trained_models_are_read_bit_for_bit(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        const char *path = support_shared(models[m].path);
        if (!path) skip();
        mlff_import_options options = mlff_import_options_default();
        mlff_model *model;
        mlff_model_info info;
        options.energy_unit = "kcal/mol";
        options.elements = models[m].elements;
        assert_ok(mlff_model_import(path, &options, &model));
        mlff_model_info_get(model, &info);
        assert_int_equal(info.n_parameters, models[m].n_parameters);
        assert_int_equal(info.n_layers, models[m].n_layers);
        assert_int_equal(info.n_elements, 3);
        assert_true(info.trained && info.cutoff_angstrom == 5.0);
        assert_int_equal(model->file.n_tensors, models[m].n_tensors);
        assert_string_equal(weights_get(&model->file, "source_version"), "2.1.1");
        assert_string_equal(weights_get(&model->file, "elements"), "1,6,8");
        assert_true(model->offset[8] == models[m].mean * BASE_KCAL_PER_MOL_EV);
        for (int t = 0; t < 3; t++) {
            const model_tensor *tensor = weights_find(&model->file, models[m].tensors[t].name);
            double sum = 0;
            assert_non_null(tensor);
            assert_int_equal(tensor->n_elements, models[m].tensors[t].n_elements);
            for (int64_t k = 0; k < tensor->n_elements; k++) sum += (double)((float *)tensor->data)[k];
            // NumPy sums pairwise: 5e4 terms below 1 in another order differ by less than 1e-10
            if (fabs(sum - models[m].tensors[t].sum) > 1e-10)
                fail_msg("%s: sum %.17g, expected %.17g", tensor->name, sum, models[m].tensors[t].sum);
        }
        if (digest(&model->file) != models[m].digest)
            fail_msg("%s: digest 0x%llx, expected 0x%llx", path, (unsigned long long)digest(&model->file),
                     (unsigned long long)models[m].digest);
        mlff_model_destroy(model);
    }
}

static void saving_an_imported_model_loses_nothing(void **state)
{
    (void)state;
    const char *path = support_shared(models[0].path);
    if (!path) skip();
    char folder[] = "/tmp/test_import.XXXXXX", first[64], second[64], *a, *b;
    size_t length_a, length_b;
    mlff_import_options options = mlff_import_options_default();
    mlff_model *model, *loaded;
    options.energy_unit = "kcal/mol";
    assert_non_null(mkdtemp(folder));
    snprintf(first, sizeof first, "%s/ethanol.safetensors", folder);
    snprintf(second, sizeof second, "%s/again.safetensors", folder);
    assert_ok(mlff_model_import(path, &options, &model));
    assert_ok(mlff_model_save(model, first));
    assert_ok(mlff_model_load(first, &loaded));
    assert_ok(mlff_model_save(loaded, second));
    assert_ok(base_read_file(first, 1 << 24, &a, &length_a));
    assert_ok(base_read_file(second, 1 << 24, &b, &length_b));
    assert_int_equal(length_a, length_b);
    assert_memory_equal(a, b, length_a);
    assert_true(digest(&loaded->file) == models[0].digest);
    assert_true(loaded->offset[1] == model->offset[1]);
    assert_string_equal(loaded->description, model->description);
    base_free(a);
    base_free(b);
    mlff_model_destroy(model);
    mlff_model_destroy(loaded);
    unlink(first);
    unlink(second);
    rmdir(folder);
}

static void another_architecture_is_refused_by_name(void **state)
{
    (void)state;
    const char *path = support_shared("data/painn/not-painn-so3net.model");
    if (!path) skip();
    mlff_import_options options = mlff_import_options_default();
    mlff_model *model = NULL;
    options.energy_unit = "eV";
    assert_int_equal(mlff_model_import(path, &options, &model), MLFF_ERR_UNSUPPORTED);
    assert_non_null(strstr(mlff_last_error(),
                           "not-painn-so3net.model: its representation is schnetpack.representation.so3net.SO3net; "
                           "only schnetpack.representation.painn.PaiNN can be imported"));
    assert_null(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trained_models_are_read_bit_for_bit),
        cmocka_unit_test(saving_an_imported_model_loses_nothing),
        cmocka_unit_test(another_architecture_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
