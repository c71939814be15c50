// SPDX-License-Identifier: MIT
// Checkpoints of orb-models that are not models of ours: one clear line each, which names the key or the kind. They are the golden ones
// (make_orb_vectors.py) with the names of some keys changed or exchanged: names of equal length, so that the pickle stays whole.
#include <unistd.h>
#include <zip.h>

#include "base/base.h"
#include "support.h"
#include "unit/test_folder.h"

// Exchanges all occurrences of two texts of equal length.
static void exchange(char *bytes, size_t length, const char *a, const char *b)
{
    const size_t n = strlen(a);
    int n_found = 0;
    assert_int_equal(n, strlen(b));
    for (size_t i = 0; i + n <= length; i++) {
        const char *other = memcmp(bytes + i, a, n) == 0 ? b : memcmp(bytes + i, b, n) == 0 ? a : NULL;
        if (!other) continue;
        memcpy(bytes + i, other, n);
        n_found++;
    }
    assert_true(n_found > 0);
}

// Checkpoint `name` with names `a` and `b` exchanged, as a file of its own.
static void make(const char *copy, const char *name, const char *a, const char *b)
{
    char path[256], entry[256], *bytes = NULL;
    size_t length = 0;
    int code = 0;
    snprintf(path, sizeof path, "tests/golden/orb/orb-%s.ckpt", name);
    assert_ok(base_read_file(path, 1 << 24, &bytes, &length));
    FILE *file = fopen(copy, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
    base_free(bytes);

    zip_t *zip = zip_open(copy, 0, &code);
    assert_non_null(zip);
    snprintf(entry, sizeof entry, "orb-%s/data.pkl", name);
    const zip_int64_t index = zip_name_locate(zip, entry, 0);
    zip_stat_t info;
    assert_int_equal(zip_stat_index(zip, (zip_uint64_t)index, 0, &info), 0);
    char *pickle = malloc(info.size);
    zip_file_t *from = zip_fopen_index(zip, (zip_uint64_t)index, 0);
    assert_int_equal(zip_fread(from, pickle, info.size), info.size);
    zip_fclose(from);
    exchange(pickle, info.size, a, b);
    zip_source_t *source = zip_source_buffer(zip, pickle, info.size, 1);
    assert_int_equal(zip_file_replace(zip, (zip_uint64_t)index, source, 0), 0);
    assert_int_equal(zip_set_file_compression(zip, (zip_uint64_t)index, ZIP_CM_STORE, 0), 0);
    assert_int_equal(zip_close(zip), 0);
}

static void what_is_refused_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *model, *a, *b;
        mlff_status status;
        const char *text;
    } cases[] = {
        {"v2", "model._decoder.", "model._dexoder.", MLFF_ERR_FORMAT, "tensor model._dexoder.node_fn.mlp.NN-0.weight is unknown"},
        {"v2", "node_head.mlp", "cube_head.mlp", MLFF_ERR_UNSUPPORTED, "neither an Orb-v2 nor an Orb-v3"},
        {"v2", "_edge_fn.mlp.NN-0.weight", "_edge_fn.mlp.NN-1.weight", MLFF_ERR_UNSUPPORTED, "24 inputs; Orb-v2 has 23"},
        {"v2", "model.atom_emb.embeddings.weight", "model.atom_emb.embeddinks.weight", MLFF_ERR_FORMAT,
         "tensor model.atom_emb.embeddings.weight is missing: not an Orb-v2 or Orb-v3 model"},
        {"v2", "model.gnn_stacks.1._send_attn.weight", "model.gnn_stacks.1._sent_attn.weight", MLFF_ERR_FORMAT,
         "tensor model.gnn_stacks.1._send_attn.weight is missing"},
        {"v2", "model.gnn_stacks.1.", "model.gnn_stacks.2.", MLFF_ERR_FORMAT, "tensor model.gnn_stacks.2."},
        {"v3-direct", "heads.forces.", "heads.farces.", MLFF_ERR_FORMAT, "tensor heads.forces.mlp.NN-0.weight is missing"},
        {"v3-direct", "confidence.bin_edges", "confidence.bin_etges", MLFF_ERR_FORMAT,
         "tensor heads.confidence.bin_edges is missing"},
        {"v3-direct", "heads.energy.reference.", "heads.energy.rererence.", MLFF_ERR_FORMAT,
         "tensor heads.energy.reference.linear.weight is missing"},
        {"v3-direct", "0._node_mlp.mlp.NN-0.bias", "0._node_mlp.mlp.NN-2.bias", MLFF_ERR_FORMAT,
         "tensor model.gnn_stacks.0._node_mlp.mlp.NN-0.bias is 16, expected 24"},
        {"v3-direct", "_edge_fn.mlp.NN-0.weight", "_edge_fn.mlp.NN-1.weight", MLFF_ERR_UNSUPPORTED,
         "24 inputs; Orb-v3 has a multiple of 16"},
        {"v3-conservative", "heads.energy.mlp.NN-0.weight", "heads.emergy.mlp.NN-0.weight", MLFF_ERR_FORMAT,
         "tensor heads.energy.mlp.NN-0.weight is missing: not an Orb-v2 or Orb-v3 model"},
        {"v3-conservative-omol", "charge_embedding", "charme_embedding", MLFF_ERR_FORMAT, "is unknown"},
        {"v3-direct", "gnn_stacks", "gnn_stocks", MLFF_ERR_UNSUPPORTED, "bare state_dict"},
    };
    const char *copy = in_folder("copy.ckpt");
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_model *model = NULL;
        make(copy, cases[k].model, cases[k].a, cases[k].b);
        const mlff_status status = mlff_model_import(copy, NULL, &model);
        if (status != cases[k].status || !strstr(mlff_last_error(), cases[k].text) || strchr(mlff_last_error(), '\n'))
            fail_msg("%s with %s for %s: status %d, \"%s\"; expected %d, \"%s\"", cases[k].model, cases[k].b, cases[k].a, status,
                     mlff_last_error(), cases[k].status, cases[k].text);
        assert_null(model);
    }
    unlink(copy);
}

// The cap of neighbors, and that a model computes the dispersion alone, are in the file's name.
static void names_say_what_the_file_does_not(void **state)
{
    (void)state;
    static const struct {
        const char *name, *cap, *warning;
    } cases[] = {{"orb-v3-direct-20-omat-20250404.ckpt", "20", ""},
                 {"orb-v3-direct-inf-omat-20250404.ckpt", "120", ""},
                 {"separate-d3-3layer.ckpt", "120", "dispersion correction alone"},
                 {"mine.ckpt", "120", "120 are taken; if it was trained with 20"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char warnings[SUPPORT_WARNING_BYTES] = "";
        const char *key, *value, *cap = "";
        mlff_model *model = NULL;
        mlff_import_options options = mlff_import_options_default();
        options.elements = "H";
        const char *path = in_folder(cases[k].name);
        make(path, "v3-direct", "heads", "heads");
        mlff_warning_handler_set(support_keep_warning, warnings);
        assert_ok(mlff_model_import(path, &options, &model));
        mlff_warning_handler_set(NULL, NULL);
        for (int i = 0; (key = mlff_model_metadata(model, i, &value)); i++)
            if (strcmp(key, "max_neighbors") == 0) cap = value;
        assert_string_equal(cap, cases[k].cap);
        if (cases[k].warning[0])
            assert_non_null(strstr(warnings, cases[k].warning));
        else
            assert_string_equal(warnings, "");
        mlff_model_destroy(model);
        unlink(path);
    }
}

// Units that are not an Orb model's are refused, not ignored.
static void other_units_are_refused(void **state)
{
    (void)state;
    mlff_model *model = NULL;
    mlff_import_options options = mlff_import_options_default();
    const char *path = in_folder("units-20-.ckpt");
    make(path, "v3-direct", "heads", "heads");
    options.elements = "H";
    options.length_unit = "Bohr";
    assert_int_equal(mlff_model_import(path, &options, &model), MLFF_ERR_USAGE);
    assert_non_null(strstr(mlff_last_error(), "are in Å; leave the length unit out"));
    options.length_unit = NULL;
    options.energy_unit = "Hartree";
    assert_int_equal(mlff_model_import(path, &options, &model), MLFF_ERR_USAGE);
    options.length_unit = "Ang";
    options.energy_unit = "eV";
    assert_ok(mlff_model_import(path, &options, &model));
    mlff_model_destroy(model);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_refused_is_named),
        cmocka_unit_test(names_say_what_the_file_does_not),
        cmocka_unit_test(other_units_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
