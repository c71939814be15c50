// SPDX-License-Identifier: MIT
// Importers of ANI models: a small one written here in NeuroChem's files and in FeNNol's form is read as it is, and every
// damage done to it is refused with a message that names the file and the trouble. No outside data.
#include "ani_support.h"

#include <sys/stat.h>

#include "model/ani/import/ani_import.h"
#include "model/ani/import/msgpack.h"

// ---- a small model in NeuroChem's files -----------------------------------------------------------------------------

static const char params_text[] =
    "TM = 1\nRcr = 5.0000e+00\nRca = 3.5000e+00\nEtaR = [1.6000000e+01]\nShfR = [0.9,2.0]\n"
    "Zeta = [3.2000000e+01]\nShfZ = [1.9634954e-01,5.8904862e-01]\nEtaA = [8.0]\nShfA = [0.9,1.55]\n"
    "Atyp = [H,O]\n";
static const char energies_text[] = "H,0=-0.5\r\nO,1=-75.25\r\n";
static const char input_text[] =
    "seed=1\nnetwork_setup {\n inputsize=16;\n atom_net H $\n layer [ nodes=4; activation=9; type=0; ]\n"
    " layer [ nodes=1; activation=6; type=0; ]\n $\n atom_net O $\n layer [ nodes=5; activation=9; ]\n"
    " layer [ nodes=1; activation=6; ]\n $\n}\nadptlrn=OFF\n";
enum { AEV = 2 * 2 + 3 * 4 };
static const int hidden[2] = {4, 5};

typedef struct place {
    char folder[64], path[256];
} place;

static const char *in(place *p, const char *name)
{
    snprintf(p->path, sizeof p->path, "%s/%s", p->folder, name);
    return p->path;
}

static void put(place *p, const char *name, const void *bytes, size_t length)
{
    FILE *file = fopen(in(p, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static float weight_of(int member, int species, int layer, int k)
{
    return (float)base_random_normal(1, (uint64_t)(member * 100 + species * 10 + layer), (uint64_t)k);
}

static void make(place *p)
{
    snprintf(p->folder, sizeof p->folder, "/tmp/mlff-neurochem-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    put(p, "m.info", "a.params\nsae.dat\ntrain\n2\n", 25);
    put(p, "a.params", params_text, strlen(params_text));
    put(p, "sae.dat", energies_text, strlen(energies_text));
    for (int m = 0; m < 2; m++) {
        char name[128];
        snprintf(name, sizeof name, "train%d", m);
        assert_int_equal(mkdir(in(p, name), 0700), 0);
        snprintf(name, sizeof name, "train%d/networks", m);
        assert_int_equal(mkdir(in(p, name), 0700), 0);
        snprintf(name, sizeof name, "train%d/inputtrain.ipt", m);
        put(p, name, input_text, strlen(input_text));
        for (int s = 0; s < 2; s++)
            for (int l = 0; l < 2; l++) {
                float numbers[AEV * 5];
                int inputs = l ? hidden[s] : AEV, out = l ? 1 : hidden[s];
                for (int k = 0; k < inputs * out; k++) numbers[k] = weight_of(m, s, 2 * l, k);
                snprintf(name, sizeof name, "train%d/networks/ANN-%s.nnf-l%d.wparam", m, s ? "O" : "H", l + 1);
                put(p, name, numbers, sizeof(float) * (size_t)(inputs * out));
                for (int k = 0; k < out; k++) numbers[k] = weight_of(m, s, 2 * l + 1, k);
                snprintf(name, sizeof name, "train%d/networks/ANN-%s.nnf-l%d.bparam", m, s ? "O" : "H", l + 1);
                put(p, name, numbers, sizeof(float) * (size_t)out);
            }
    }
}

static void clear(place *p)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", p->folder);
    assert_int_equal(system(command), 0);
}

static void test_reads_all(void **state)
{
    (void)state;
    place p;
    make(&p);
    mlff_model *model = NULL;
    assert_ok(mlff_model_import(in(&p, "m.info"), NULL, &model));
    mlff_model_info info;
    mlff_model_info_get(model, &info);
    assert_string_equal(info.architecture, "ani");
    assert_string_equal(info.name, "m");
    assert_int_equal(info.n_members, 2);
    assert_int_equal(info.n_elements, 2);
    assert_int_equal(info.n_parameters, 2 * (AEV * 4 + 4 + 4 + 1 + AEV * 5 + 5 + 5 + 1));
    assert_true(info.cutoff_angstrom == 5.0 && info.trained && info.conservative && info.n_layers == 1);
    const ani_parameters *P = model->parameters;
    assert_true(P->zeta == 32 && P->eta_radial == 16 && P->eta_angular == 8 && P->section[1] == 5.8904862e-01);
    assert_true(model->offset[8] == -75.25 * BASE_HARTREE_EV);
    for (int m = 0; m < 2; m++)
        for (int s = 0; s < 2; s++) {
            const ani_network *net = &P->network[m][s];
            assert_int_equal(net->n_layers, 2);
            for (int k = 0; k < AEV * hidden[s]; k++) assert_true(net->weight[0][k] == weight_of(m, s, 0, k));
            for (int k = 0; k < hidden[s]; k++) assert_true(net->bias[0][k] == weight_of(m, s, 1, k));
            for (int k = 0; k < hidden[s]; k++) assert_true(net->weight[1][k] == weight_of(m, s, 2, k));
            assert_true(net->bias[1][0] == weight_of(m, s, 3, 0));
        }
    // Written and read again it is the same model.
    mlff_model *again = NULL;
    assert_ok(mlff_model_save(model, in(&p, "m.safetensors")));
    assert_ok(mlff_model_load(in(&p, "m.safetensors"), &again));
    mlff_system *water;
    assert_ok(mlff_system_build("h2o", 0, 0, &water));
    mlff_evaluator *a = support_evaluator(model, MLFF_FLOAT64), *b = support_evaluator(again, MLFF_FLOAT64);
    assert_true(support_energy(a, water) == support_energy(b, water));
    // A model file is asked for where a foreign one is given, and the way is said.
    mlff_model *none = NULL;
    assert_int_equal(mlff_model_load(in(&p, "m.info"), &none), MLFF_ERR_FORMAT);
    assert_non_null(strstr(mlff_last_error(), "mlff import"));
    mlff_system_destroy(water);
    mlff_evaluator_destroy(a);
    mlff_evaluator_destroy(b);
    mlff_model_destroy(again);
    mlff_model_destroy(model);
    clear(&p);
}

// Options that contradict the files are refused, not ignored; those that say the same are taken.
static void test_options(void **state)
{
    (void)state;
    static const struct {
        const char *energy, *length, *elements, *words; // words NULL: taken
    } cases[] = {{"Hartree", "Ang", "O,H", NULL},
                 {"kcal/mol", NULL, NULL, "its energy unit is 27.2114 eV, not kcal/mol"},
                 {"Ry", NULL, NULL, "\"Ry\" is not known"},
                 {NULL, "Bohr", NULL, "are in Å; leave the length unit out"},
                 {NULL, NULL, "H", "its elements are H,O; leave the elements out"},
                 {NULL, NULL, "H,C,O", "its elements are H,O"}};
    place p;
    make(&p);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_model *model = NULL;
        mlff_import_options options = mlff_import_options_default();
        options.energy_unit = cases[k].energy;
        options.length_unit = cases[k].length;
        options.elements = cases[k].elements;
        const mlff_status status = mlff_model_import(in(&p, "m.info"), &options, &model);
        if (!cases[k].words)
            assert_ok(status);
        else if (status != MLFF_ERR_USAGE || !strstr(mlff_last_error(), cases[k].words))
            fail_msg("case %zu: %s \"%s\"; expected \"%s\"", k, mlff_status_name(status), status ? mlff_last_error() : "",
                     cases[k].words);
        mlff_model_destroy(model);
    }
    clear(&p);
}

// One file replaced (NULL: removed): refused with this status and these words, then put right again.
static void refused(const char *name, const void *bytes, size_t length, mlff_status status, const char *words)
{
    place p;
    make(&p);
    mlff_model *model = NULL;
    if (bytes)
        put(&p, name, bytes, length);
    else
        assert_int_equal(remove(in(&p, name)), 0);
    mlff_status got = mlff_model_import(in(&p, "m.info"), NULL, &model);
    if (got != status || !strstr(mlff_last_error(), words) || model)
        fail_msg("%s: %s: \"%s\"; expected %s with \"%s\"", name, mlff_status_name(got), got ? mlff_last_error() : "",
                 mlff_status_name(status), words);
    clear(&p);
}

static void refused_text(const char *name, const char *text, const char *words)
{
    refused(name, text, strlen(text), MLFF_ERR_FORMAT, words);
}

static void test_damage(void **state)
{
    (void)state;
    float numbers[AEV * 5 + 1] = {0};
    // members and their files
    refused("train1/inputtrain.ipt", NULL, 0, MLFF_ERR_IO, "member 1 of 2");
    refused("train1/networks/ANN-O.nnf-l1.wparam", NULL, 0, MLFF_ERR_IO, "train1/networks/ANN-O.nnf-l1.wparam");
    refused("train1/networks/ANN-O.nnf-l1.wparam", numbers, AEV * 5 * 4 - 1, MLFF_ERR_FORMAT, "has 319 bytes");
    refused("train0/networks/ANN-H.nnf-l1.wparam", numbers, AEV * 5 * 4, MLFF_ERR_FORMAT, "needs 256"); // O's file
    refused("train0/networks/ANN-H.nnf-l2.bparam", numbers, 16, MLFF_ERR_FORMAT, "needs 4");            // layer 1's file
    refused("train0/networks/ANN-H.nnf-l1.bparam", "", 0, MLFF_ERR_FORMAT, "has 0 bytes");
    for (int k = 0; k < AEV * 4; k++) numbers[k] = 1;
    numbers[7] = NAN;
    refused("train0/networks/ANN-H.nnf-l1.wparam", numbers, AEV * 4 * 4, MLFF_ERR_VALUE, "NaN at element 7");
    // the list
    refused_text("m.info", "", "is empty");
    refused_text("m.info", "a.params\nsae.dat\n", "has 2 lines");
    refused_text("m.info", "a.params\nsae.dat\ntrain\n0\n", "1 to 64");
    refused_text("m.info", "a.params\nsae.dat\ntrain\nmany\n", "number of members");
    refused_text("m.info", "../a.params\nsae.dat\ntrain\n2\n", "below the file's own folder");
    refused_text("m.info", "/etc/passwd\nsae.dat\ntrain\n2\n", "below the file's own folder");
    refused("m.info", "a.params\nsae.dat\ntrain\n3\n", 25, MLFF_ERR_IO, "member 2 of 3");
    // the constants
    refused_text("a.params", "TM = 1\nRcr = 5.0\n", "has no Rca");
    refused_text("a.params", "Rcr = five\n", "expected one number");
    refused_text("a.params", "ShfR = [0.9,,1]\n", "list of numbers");
    refused_text("a.params", "ShfR = [0.9,1\n", "list of numbers");
    refused_text("a.params", "ShfR = [nan]\n", "list of numbers");
    refused_text("a.params", "Atyp = [H,Qq]\n", "up to 16 elements");
    refused_text("a.params", "Atyp = [H,H]\n", "up to 16 elements");
    char other[sizeof params_text];
    strcpy(other, params_text);
    *strstr(other, "5.0000") = '0';
    refused("a.params", other, strlen(other), MLFF_ERR_VALUE, "cutoffs of 0");
    strcpy(other, params_text);
    other[5] = '2';
    refused("a.params", other, strlen(other), MLFF_ERR_UNSUPPORTED, "TM = 2");
    // self energies
    refused_text("sae.dat", "H,0=-0.5\n", "no energy of O");
    refused_text("sae.dat", "O,0=-0.5\nH,1=1\n", "begins \"O");
    refused_text("sae.dat", "H,0=-0.5\nO,9=1\n", "species of the .params file, H,O");
    refused_text("sae.dat", "H,0=-0.5\nO,1=inf\n", "begins \"O");
    // layers
    refused_text("train0/inputtrain.ipt", "seed=1\n", "has no network_setup");
    refused_text("train0/inputtrain.ipt", "network_setup { inputsize=17; }", "makes AEVs of 16");
    refused_text("train0/inputtrain.ipt", "network_setup { atom_net H $ layer [ nodes=4; activation=9;", "ends within a layer");
    refused_text("train0/inputtrain.ipt", "network_setup { layer [ nodes=4; activation=9; ]", "before the first atom_net");
    refused_text("train0/inputtrain.ipt", "network_setup { atom_net S $", "not an element of H,O");
    refused_text("train0/inputtrain.ipt", "network_setup { atom_net H $ layer [ nodes=99999; activation=9; ]", "nodes=1");
    const char *unknown = "network_setup { atom_net H $ layer [ nodes=4; activation=5; ] $ }";
    refused("train0/inputtrain.ipt", unknown, strlen(unknown), MLFF_ERR_UNSUPPORTED, "layer 1 of H has activation 5");
    const char *one = "network_setup { atom_net H $ layer [ nodes=4; activation=9; ] layer [ nodes=1; activation=6; ] $ }";
    refused("train0/inputtrain.ipt", one, strlen(one), MLFF_ERR_FORMAT, "has no atom_net O");
    const char *wide =
        "network_setup { atom_net H $ layer [ nodes=4; activation=9; ] layer [ nodes=2; activation=6; ] $ atom_net O "
        "$ layer [ nodes=4; activation=9; ] layer [ nodes=1; activation=6; ] }";
    refused("train0/inputtrain.ipt", wide, strlen(wide), MLFF_ERR_UNSUPPORTED, "one linear (6) node");
}

// ---- FeNNol ---------------------------------------------------------------------------------------------------------

typedef struct pack {
    unsigned char bytes[16384];
    size_t length;
} pack;

static void add(pack *p, const void *bytes, size_t length)
{
    assert_true(p->length + length <= sizeof p->bytes);
    memcpy(p->bytes + p->length, bytes, length);
    p->length += length;
}

static void head(pack *p, int small, int large, size_t n)
{
    unsigned char b[3] = {(unsigned char)(small + (int)n), (unsigned char)(n >> 8), (unsigned char)n};
    if (n > 15) b[0] = (unsigned char)large;
    add(p, b, n > 15 ? 3 : 1);
}

static void map(pack *p, size_t n)
{
    head(p, 0x80, 0xde, n);
}

static void list(pack *p, size_t n)
{
    head(p, 0x90, 0xdc, n);
}

static void text(pack *p, const char *s)
{
    size_t n = strlen(s);
    unsigned char b[2] = {0xd9, (unsigned char)n};
    if (n < 32) b[1] = (unsigned char)(0xa0 + n);
    add(p, b + (n < 32), n < 32 ? 1 : 2);
    add(p, s, n);
}

static void number(pack *p, double value)
{
    unsigned char b[9] = {0xcb};
    uint64_t bits;
    memcpy(&bits, &value, 8);
    for (int k = 0; k < 8; k++) b[1 + k] = (unsigned char)(bits >> (56 - 8 * k));
    add(p, b, 9);
}

static void pair(pack *p, const char *key, double value)
{
    text(p, key);
    number(p, value);
}

static void text_pair(pack *p, const char *key, const char *value)
{
    text(p, key);
    text(p, value);
}

static void array(pack *p, const char *type, int n_dimensions, int rows, int columns, const float *values, size_t n_values)
{
    pack inner = {.length = 0};
    list(&inner, 3);
    list(&inner, (size_t)n_dimensions);
    number(&inner, rows);
    if (n_dimensions == 2) number(&inner, columns);
    text(&inner, type);
    unsigned char binary[3] = {0xc5, (unsigned char)(n_values * 4 >> 8), (unsigned char)(n_values * 4)};
    add(&inner, binary, 3);
    add(&inner, values, n_values * 4);
    unsigned char extension[4] = {0xc8, (unsigned char)(inner.length >> 8), (unsigned char)inner.length, 1};
    add(p, extension, 4);
    add(p, inner.bytes, inner.length);
}

// What a test may bend.
typedef struct bend {
    const char *activation, *module, *extra_setting, *type, *unit, *symbol;
    int rows, values;
    size_t n_terms;
    const char *terms[3]; // of the energy
    bool no_bias, says_no_bias;
    const char *graph_setting, *radial_graph;
    int n_filters;
} bend;
static const bend straight = {"partial(celu, alpha=0.1)",   "ANI_AEV", NULL,  "float32", "Ha",    "O", AEV, AEV * 4, 2,
                              {"energy", "self", "energy"}, false,     false, NULL,      "graph", 1};

static void write_fnx(pack *p, const bend *b)
{
    float numbers[AEV * 5], self[119] = {0};
    p->length = 0;
    map(p, 6);
    pair(p, "cutoff", 5.0);
    text_pair(p, "energy_unit", b->unit);
    text(p, "energy_terms");
    list(p, b->n_terms);
    for (size_t k = 0; k < b->n_terms; k++) text(p, b->terms[k]);
    text(p, "preprocessing");
    list(p, (size_t)b->n_filters);
    for (int k = 0; k < b->n_filters; k++) {
        list(p, 2);
        text(p, "graph_filter");
        map(p, b->graph_setting ? 3 : 2);
        if (b->graph_setting) {
            text(p, b->graph_setting);
            map(p, 1);
            pair(p, "p", 2);
        }
        pair(p, "cutoff", 3.5);
        text_pair(p, "graph_key", "angles");
    }
    text(p, "modules");
    list(p, 3);
    list(p, 2);
    text(p, "embedding");
    map(p, b->extra_setting ? 13 : 12);
    text_pair(p, "graph_key", b->radial_graph);
    text_pair(p, "module_name", b->module);
    text_pair(p, "graph_angle_key", "angles");
    pair(p, "radial_eta", 16);
    pair(p, "angular_eta", 8);
    pair(p, "zeta", 32);
    pair(p, "radial_start", 0.9);
    pair(p, "angular_start", 0.9);
    pair(p, "radial_dist_divisions", 2);
    text(p, "species_order");
    list(p, 2);
    text(p, "H");
    text(p, b->symbol);
    if (b->extra_setting) pair(p, b->extra_setting, 1);
    pair(p, "angle_sections", 2);
    pair(p, "angular_dist_divisions", 2);
    list(p, 2);
    text(p, "energy");
    map(p, b->says_no_bias ? 3 : 2);
    if (b->says_no_bias) text(p, "use_bias"), add(p, "\xc2", 1);
    text_pair(p, "module_name", "SPECIES_INDEX_NET");
    text_pair(p, "activation", b->activation);
    list(p, 2);
    text(p, "self");
    map(p, 2);
    text_pair(p, "module_name", "CHEMICAL_CONSTANT");
    text(p, "value");
    map(p, 2);
    pair(p, "H", -0.6);
    pair(p, "O", -75.1);
    text(p, "variables");
    map(p, 1);
    text(p, "params");
    map(p, 2);
    text(p, "self");
    map(p, 1);
    text(p, "constant");
    self[1] = -0.6f;
    self[8] = -75.0f; // moved by training
    array(p, "float32", 1, 119, 0, self, 119);
    text(p, "energy");
    map(p, 2);
    for (int s = 0; s < 2; s++) {
        text(p, s ? "O" : "H");
        map(p, 2);
        for (int l = 0; l < 2; l++) {
            int inputs = l ? 4 : AEV, out = l ? 1 : 4;
            bool bent = s == 1 && l == 0;
            for (int k = 0; k < inputs * out; k++) numbers[k] = weight_of(0, s, 2 * l, k);
            text(p, l ? "Layer_2" : "Layer_1");
            map(p, bent && b->no_bias ? 1 : 2);
            text(p, "kernel");
            array(p, bent ? b->type : "float32", 2, bent ? b->rows : inputs, out, numbers,
                  (size_t)(bent ? b->values : inputs * out));
            if (bent && b->no_bias) continue;
            text(p, "bias");
            for (int k = 0; k < out; k++) numbers[k] = weight_of(0, s, 2 * l + 1, k);
            array(p, "float32", 1, out, 0, numbers, (size_t)out);
        }
    }
}

static mlff_status parse(const pack *p, mlff_model **model_out)
{
    model_weights weights = {0};
    mlff_status status = fnx_parse((const char *)p->bytes, p->length, "m.fnx", &weights);
    if (status == MLFF_OK) status = model_from_weights(&weights, "m.fnx", model_out);
    return status;
}

static void test_fnx(void **state)
{
    (void)state;
    static pack p;
    mlff_model *model = NULL;
    write_fnx(&p, &straight);
    assert_ok(parse(&p, &model));
    const ani_parameters *P = model->parameters;
    assert_int_equal(P->n_species, 2);
    assert_true(P->radial_cutoff == 5 && P->angular_cutoff == 3.5 && P->radial_shift[1] == 0.9 + (5 - 0.9) / 2);
    assert_true(model->offset[1] == -0.6 * BASE_HARTREE_EV && model->offset[8] == -75.0 * BASE_HARTREE_EV);
    for (int o = 0; o < 4; o++)
        for (int k = 0; k < AEV; k++) assert_true(P->network[0][1].weight[0][o * AEV + k] == weight_of(0, 1, 0, k * 4 + o));
    assert_true(P->network[0][0].bias[1][0] == weight_of(0, 0, 3, 0));
    mlff_model_destroy(model);
}

// As FeNNol: self energies that are no term of the energy are not added.
static void test_fnx_without_self_energies(void **state)
{
    (void)state;
    static pack p;
    mlff_model *model = NULL;
    bend b = straight;
    b.n_terms = 1;
    write_fnx(&p, &b);
    assert_ok(parse(&p, &model));
    assert_true(model->offset[1] == 0 && model->offset[8] == 0);
    mlff_model_destroy(model);
}

static void refused_fnx(bend b, mlff_status status, const char *words)
{
    static pack p;
    mlff_model *model = NULL;
    write_fnx(&p, &b);
    mlff_status got = parse(&p, &model);
    if (got != status || !strstr(mlff_last_error(), words) || strncmp(mlff_last_error(), "m.fnx: ", 7) != 0)
        fail_msg("%s: \"%s\"; expected %s with \"%s\"", mlff_status_name(got), mlff_last_error(), mlff_status_name(status),
                 words);
}

static void test_fnx_damage(void **state)
{
    (void)state;
    bend b = straight;
    b.activation = "swish";
    refused_fnx(b, MLFF_ERR_UNSUPPORTED, "activation is \"swish\"");
    b = straight;
    b.module = "RACE";
    refused_fnx(b, MLFF_ERR_UNSUPPORTED, "has a module RACE");
    b = straight;
    b.extra_setting = "trainable_shifts";
    refused_fnx(b, MLFF_ERR_UNSUPPORTED, "setting \"trainable_shifts\"");
    b = straight;
    b.type = "bfloat16";
    refused_fnx(b, MLFF_ERR_FORMAT, "kernel of Layer_1 of O is not a float32 array");
    b = straight;
    b.unit = "Ry";
    refused_fnx(b, MLFF_ERR_UNSUPPORTED, "energy unit is \"Ry\"");
    b = straight;
    b.n_terms = 3; // the networks twice
    refused_fnx(b, MLFF_ERR_UNSUPPORTED, "name its networks 2 times and its self energies 1 time;");
    b.terms[2] = "dispersion";
    refused_fnx(b, MLFF_ERR_UNSUPPORTED, "\"dispersion\" in its energy_terms");
    b.n_terms = 0;
    refused_fnx(b, MLFF_ERR_UNSUPPORTED, "name its networks 0 times");
    b = straight;
    b.no_bias = true;
    refused_fnx(b, MLFF_ERR_FORMAT, "Layer_1 of O has no bias, its settings say use_bias = true");
    b.says_no_bias = true;
    refused_fnx(b, MLFF_ERR_FORMAT, "Layer_1 of H has a bias, its settings say use_bias = false");
    b = straight;
    b.graph_setting = "switch_params";
    refused_fnx(b, MLFF_ERR_UNSUPPORTED, "its graph \"graph_filter\" has switch_params");
    b = straight;
    b.radial_graph = "angles";
    refused_fnx(b, MLFF_ERR_UNSUPPORTED, "radial functions are of the graph \"angles\"");
    b = straight;
    b.n_filters = 2;
    refused_fnx(b, MLFF_ERR_FORMAT, "has 2 cutoffs of the graph \"angles\"; expected one");
    b.n_filters = 0;
    refused_fnx(b, MLFF_ERR_FORMAT, "has 0 cutoffs");
    b = straight;
    b.symbol = "H";
    refused_fnx(b, MLFF_ERR_FORMAT, "species_order");
    b = straight;
    b.rows = AEV + 1; // the shape lies
    refused_fnx(b, MLFF_ERR_FORMAT, "shape fits its bytes");
    b = straight;
    b.values = AEV * 4 - 1;
    refused_fnx(b, MLFF_ERR_FORMAT, "shape fits its bytes");
    b = straight;
    b.rows = AEV / 2;
    b.values = AEV * 2;
    refused_fnx(b, MLFF_ERR_FORMAT, "expected 16 inputs");
}

// Cut at any length: refused. Any byte changed to any of eight others: refused or a model, and nothing worse.
static void test_fnx_hostile(void **state)
{
    (void)state;
    static pack p;
    static const unsigned char others[] = {0x00, 0x7f, 0x80, 0xc1, 0xc6, 0xc9, 0xdd, 0xff};
    mlff_model *model = NULL;
    write_fnx(&p, &straight);
    size_t length = p.length;
    for (p.length = 0; p.length < length; p.length++) assert_int_equal(parse(&p, &model), MLFF_ERR_FORMAT);
    p.length = length;
    int n_accepted = 0;
    for (size_t at = 0; at < length; at++)
        for (size_t k = 0; k < sizeof others; k++) {
            unsigned char kept = p.bytes[at];
            p.bytes[at] = others[k];
            if (parse(&p, &model) == MLFF_OK) {
                n_accepted++;
                mlff_model_destroy(model);
                model = NULL;
            }
            p.bytes[at] = kept;
        }
    printf("%d of %zu changed files are still models (a weight changed)\n", n_accepted, length * sizeof others);
    assert_true(n_accepted > 0);
}

// Every form of number, and lengths that lie.
static void test_msgpack(void **state)
{
    (void)state;
    static const struct {
        unsigned char bytes[12];
        size_t length;
        double value;
    } numbers[] = {{{0x05}, 1, 5},
                   {{0xff}, 1, -1},
                   {{0xe0}, 1, -32},
                   {{0xcc, 200}, 2, 200},
                   {{0xcd, 1, 0}, 3, 256},
                   {{0xce, 0xff, 0xff, 0xff, 0xff}, 5, 4294967295.0},
                   {{0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0}, 9, 9223372036854775808.0},
                   {{0xd0, 0x80}, 2, -128},
                   {{0xd1, 0xff, 0xfe}, 3, -2},
                   {{0xd2, 0x80, 0, 0, 0}, 5, -2147483648.0},
                   {{0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0}, 9, -9223372036854775808.0},
                   {{0xca, 0x3f, 0xc0, 0, 0}, 5, 1.5},
                   {{0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0}, 9, 1.5}};
    msgpack_value v, item;
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        assert_ok(msgpack_parse(numbers[k].bytes, numbers[k].length, "number", &v));
        assert_int_equal(v.kind, MSGPACK_NUMBER);
        assert_true(v.number == numbers[k].value);
        assert_int_equal(msgpack_parse(numbers[k].bytes, numbers[k].length + 1, "number", &v),
                         MLFF_ERR_FORMAT); // a byte too many
        if (numbers[k].length > 1)
            assert_int_equal(msgpack_parse(numbers[k].bytes, numbers[k].length - 1, "number", &v), MLFF_ERR_FORMAT);
    }
    static const struct {
        unsigned char bytes[8];
        size_t length;
    } lies[] = {{{0xc1}, 1},                               // a code that does not exist
                {{0xdd, 0xff, 0xff, 0xff, 0xff, 0xc0}, 6}, // an array of 4 G items
                {{0xdf, 0xff, 0xff, 0xff, 0xff, 0xc0}, 6}, // a map of as many pairs
                {{0xc6, 0xff, 0xff, 0xff, 0xff, 0}, 6},    // bytes
                {{0xdb, 0x7f, 0xff, 0xff, 0xff, 'a'}, 6},  // a text
                {{0xc9, 0, 0, 0, 2, 1, 0}, 7},             // an extension
                {{0xd8, 1, 0}, 3},
                {{0x81, 0xa1, 'a'}, 3},
                {{0x92, 1}, 2},
                {{0xa2, 'a'}, 2},
                {{0xd9}, 1},
                {{0xc7, 0}, 2}};
    for (size_t k = 0; k < sizeof lies / sizeof *lies; k++)
        assert_int_equal(msgpack_parse(lies[k].bytes, lies[k].length, "lie", &v), MLFF_ERR_FORMAT);
    static const unsigned char twice[] = {0x83, 0xa1, 'a', 1, 0xa1, 'b', 2, 0xa1, 'a', 3}; // {a: 1, b: 2, a: 3}
    assert_ok(msgpack_parse(twice, sizeof twice, "twice", &v));
    assert_true(msgpack_get(&v, "a", &item) && item.number == 3); // as Python reads it
    assert_true(msgpack_get(&v, "b", &item) && item.number == 2 && !msgpack_get(&v, "c", &item));
    unsigned char deep[40];
    memset(deep, 0x91, sizeof deep); // arrays in arrays
    deep[39] = 0;
    assert_int_equal(msgpack_parse(deep, sizeof deep, "deep", &v), MLFF_ERR_FORMAT);
    assert_ok(msgpack_parse(deep + 10, sizeof deep - 10, "less deep", &v));
    assert_true(msgpack_item(&v, 0, &item) && !msgpack_item(&v, 1, &item) && !msgpack_get(&v, "a", &item));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reads_all),   cmocka_unit_test(test_damage),
                                       cmocka_unit_test(test_options),     cmocka_unit_test(test_fnx),
                                       cmocka_unit_test(test_fnx_damage),  cmocka_unit_test(test_fnx_without_self_energies),
                                       cmocka_unit_test(test_fnx_hostile), cmocka_unit_test(test_msgpack)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
