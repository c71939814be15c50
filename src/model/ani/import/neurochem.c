// SPDX-License-Identifier: MIT
// neurochem.c: an ANI ensemble as its authors publish it (the NeuroChem program's files) as weights and metadata.
//
//   X.info                       four lines: the .params file, the self energies, the folder prefix of members, their number
//   X/*.params                   cutoffs, exponents, shifts, species, one "key = value" or "key = [v,v,…]" a line
//   X/sae_linfit.dat             "H,0=-0.59…" a line, Hartree
//   X/train0/inputtrain.ipt      widths and activations of the layers of every species
//   X/train0/networks/ANN-H.nnf-l1.{wparam,bparam}     float32 little-endian, [out][in] and [out]
// The .nnf files (bzip2) repeat inputtrain.ipt and the sizes of the weight files, and are not read.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ani_import.h"

enum { MAX_TEXT_BYTES = 1 << 20, ACTIVATION_LINEAR = 6, ACTIVATION_CELU = 9 };

// ---- text

// The next line of the text, its end cut off; NULL past the last one.
static char *next_line(char **cursor)
{
    char *line = *cursor;
    if (!line || !*line) return NULL;
    char *end = line + strcspn(line, "\r\n");
    *cursor = *end == '\r' && end[1] == '\n' ? end + 2 : *end ? end + 1 : end;
    *end = 0;
    return line;
}

static char *trimmed(char *text)
{
    while (isspace((unsigned char)*text)) text++;
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1])) text[--length] = 0;
    return text;
}

// "[v,v,…]" or "v": at most `most` numbers; their count, 0 if it is no such list.
static int numbers(char *text, int most, double *values)
{
    size_t length = strlen(text);
    if (text[0] == '[') {
        if (length < 2 || text[length - 1] != ']') return 0;
        text[length - 1] = 0;
        text++;
    }
    int n = 0;
    for (char *token = text;;) {
        char *comma = strchr(token, ',');
        if (comma) *comma = 0;
        if (n == most || !base_parse_double(trimmed(token), &values[n]) || !isfinite(values[n])) return 0;
        n++;
        if (!comma) return n;
        token = comma + 1;
    }
}

mlff_status neurochem_params_parse(char *text, const char *path, ani_settings *s)
{
    double kind = 1, radial_cutoff = 0, angular_cutoff = 0;
    struct {
        const char *key;
        double *values;
        int most, found;
    } wanted[] = {{"TM", &kind, 1, 0},
                  {"Rcr", &radial_cutoff, 1, 0},
                  {"Rca", &angular_cutoff, 1, 0},
                  {"EtaR", &s->eta_radial, 1, 0},
                  {"ShfR", s->radial_shift, ANI_MAX_GRID, 0},
                  {"Zeta", &s->zeta, 1, 0},
                  {"ShfZ", s->section, ANI_MAX_GRID, 0},
                  {"EtaA", &s->eta_angular, 1, 0},
                  {"ShfA", s->angular_shift, ANI_MAX_GRID, 0}};
    enum { N_WANTED = sizeof wanted / sizeof *wanted };
    char symbols[ANI_MAX_SPECIES][4];
    s->n_species = 0;
    for (char *line; (line = next_line(&text));) {
        char *equals = strchr(line, '=');
        if (!equals) continue;
        *equals = 0;
        char *key = trimmed(line), *value = trimmed(equals + 1);
        if (strcmp(key, "Atyp") == 0) {
            size_t length = strlen(value);
            if (length > 2 && value[0] == '[' && value[length - 1] == ']' && length - 2 < sizeof s->species) {
                memcpy(s->species, value + 1, length - 2);
                s->species[length - 2] = 0;
                s->n_species = ani_species_parse(s->species, symbols);
            }
            if (s->n_species == 0)
                return mlff_fail(MLFF_ERR_FORMAT, "%s: Atyp is \"%.60s\"; expected up to %d elements, as [H,C,N,O]", path, value,
                                 ANI_MAX_SPECIES);
            continue;
        }
        for (int k = 0; k < N_WANTED; k++) {
            if (strcmp(key, wanted[k].key) != 0) continue;
            wanted[k].found = numbers(value, wanted[k].most, wanted[k].values);
            if (wanted[k].found == 0)
                return mlff_fail(MLFF_ERR_FORMAT, "%s: %s = \"%.60s\"; expected %s", path, key, value,
                                 wanted[k].most == 1 ? "one number" : "a list of numbers such as [0.8,1.07]");
        }
    }
    for (int k = 0; k < N_WANTED; k++)
        if (wanted[k].found == 0 && k > 0)
            return mlff_fail(MLFF_ERR_FORMAT, "%s: has no %s; it is not a .params file of an ANI model, or was cut short", path,
                             wanted[k].key);
    if (s->n_species == 0) return mlff_fail(MLFF_ERR_FORMAT, "%s: has no Atyp, the list of elements", path);
    if (kind != 1)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: TM = %g; only the modified symmetry functions, 1, are known", path, kind);
    s->n_radial = wanted[4].found;
    s->n_sections = wanted[6].found;
    s->n_shifts = wanted[8].found;
    s->radial_cutoff = radial_cutoff;
    s->angular_cutoff = angular_cutoff;
    if (!(radial_cutoff > 0 && radial_cutoff <= 100 && angular_cutoff > 0 && angular_cutoff <= 100))
        return mlff_fail(MLFF_ERR_VALUE, "%s: cutoffs of %g and %g Å; they must lie in 0 … 100 Å", path, radial_cutoff,
                         angular_cutoff);
    return MLFF_OK;
}

mlff_status neurochem_energies_parse(char *text, const char *path, ani_settings *s)
{
    char symbols[ANI_MAX_SPECIES][4];
    bool found[ANI_MAX_SPECIES] = {false};
    int n = ani_species_parse(s->species, symbols);
    for (char *line; (line = next_line(&text));) {
        line = trimmed(line);
        if (!*line) continue;
        char *comma = strchr(line, ','), *equals = strchr(line, '=');
        int64_t index = -1;
        double value = NAN;
        if (comma && equals && comma < equals) {
            *comma = *equals = 0;
            if (!base_parse_int64(trimmed(comma + 1), &index)) index = -1;
            if (!base_parse_double(trimmed(equals + 1), &value)) value = NAN;
        }
        if (index < 0 || index >= n || !isfinite(value) || strcmp(trimmed(line), symbols[index]) != 0)
            return mlff_fail(MLFF_ERR_FORMAT,
                             "%s: a line begins \"%.40s\"; expected such as H,0=-0.5978 with the species of the .params file, %s",
                             path, line, s->species);
        s->self_energy[index] = value;
        found[index] = true;
    }
    for (int k = 0; k < n; k++)
        if (!found[k]) return mlff_fail(MLFF_ERR_FORMAT, "%s: has no energy of %s", path, symbols[k]);
    return MLFF_OK;
}

// ---- inputtrain.ipt

// One token of the network definition: a word, "key=value" without the ';', or one of { } [ ] $.
typedef struct token {
    char text[64];
} token;

static bool next_token(const char **cursor, token *t)
{
    const char *p = *cursor;
    while (*p && (isspace((unsigned char)*p) || *p == ';')) p++;
    if (!*p) return false;
    size_t length = strchr("{}[]$", *p) ? 1 : strcspn(p, " \t\r\n;{}[]$");
    size_t kept = length < sizeof t->text ? length : sizeof t->text - 1;
    memcpy(t->text, p, kept);
    t->text[kept] = 0;
    *cursor = p + length;
    return true;
}

static bool value_of(const token *t, const char *key, int64_t *value)
{
    size_t length = strlen(key);
    return strncmp(t->text, key, length) == 0 && t->text[length] == '=' && base_parse_int64(t->text + length + 1, value);
}

static mlff_status parse_layer(const char **cursor, const char *path, const char *symbol, neurochem_net *net)
{
    token t;
    int64_t nodes = -1, activation = -1;
    if (!next_token(cursor, &t) || strcmp(t.text, "[") != 0)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: a layer of %s does not begin with [", path, symbol);
    for (;;) {
        if (!next_token(cursor, &t)) return mlff_fail(MLFF_ERR_FORMAT, "%s: ends within a layer of %s", path, symbol);
        if (strcmp(t.text, "]") == 0) break;
        value_of(&t, "nodes", &nodes);
        value_of(&t, "activation", &activation);
    }
    if (net->n_layers == ANI_MAX_LAYERS)
        return mlff_fail(MLFF_ERR_LIMIT, "%s: the network of %s has more than %d layers", path, symbol, ANI_MAX_LAYERS);
    if (nodes < 1 || nodes > ANI_MAX_WIDTH)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: a layer of %s has no nodes=1 … %d", path, symbol, ANI_MAX_WIDTH);
    if (activation != ACTIVATION_CELU && activation != ACTIVATION_LINEAR)
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "%s: layer %d of %s has activation %d; known are 9 (CELU) and 6 (linear, the last)", path,
                         net->n_layers + 1, symbol, (int)activation);
    net->activation[net->n_layers] = (int)activation;
    net->width[net->n_layers++] = (int)nodes;
    return MLFF_OK;
}

mlff_status neurochem_input_parse(const char *text, const char *path, const ani_settings *s, neurochem_net nets[ANI_MAX_SPECIES])
{
    mlff_status status = MLFF_OK;
    char symbols[ANI_MAX_SPECIES][4];
    int n = ani_species_parse(s->species, symbols);
    token t;
    const char *cursor = strstr(text, "network_setup");
    if (!cursor) return mlff_fail(MLFF_ERR_FORMAT, "%s: has no network_setup", path);
    memset(nets, 0, sizeof *nets * ANI_MAX_SPECIES);
    neurochem_net *net = NULL;
    const char *symbol = NULL;
    while (next_token(&cursor, &t)) {
        int64_t size;
        if (value_of(&t, "inputsize", &size) && size != ani_length(s))
            return mlff_fail(MLFF_ERR_FORMAT, "%s: inputsize is %lld, the .params file makes AEVs of %d", path, (long long)size,
                             ani_length(s));
        if (strcmp(t.text, "atom_net") == 0) {
            if (!next_token(&cursor, &t)) break;
            net = NULL;
            for (int k = 0; k < n; k++)
                if (strcmp(t.text, symbols[k]) == 0) {
                    net = &nets[k];
                    symbol = symbols[k];
                }
            if (!net || net->n_layers > 0)
                return mlff_fail(MLFF_ERR_FORMAT, "%s: atom_net \"%.8s\" is not an element of %s, or is there twice", path,
                                 t.text, s->species);
        } else if (strcmp(t.text, "layer") == 0) {
            if (!net) return mlff_fail(MLFF_ERR_FORMAT, "%s: a layer stands before the first atom_net", path);
            MLFF_TRY(parse_layer(&cursor, path, symbol, net));
        }
    }
    for (int k = 0; k < n; k++) {
        const neurochem_net *own = &nets[k];
        if (own->n_layers == 0) return mlff_fail(MLFF_ERR_FORMAT, "%s: has no atom_net %s, or was cut short", path, symbols[k]);
        for (int l = 0; l < own->n_layers; l++) {
            bool last = l + 1 == own->n_layers;
            if ((own->activation[l] == ACTIVATION_LINEAR) != last || (last && own->width[l] != 1))
                return mlff_fail(
                    MLFF_ERR_UNSUPPORTED,
                    "%s: layer %d of %d of %s has %d nodes and activation %d; expected CELU (9) in all but the last, "
                    "which is one linear (6) node",
                    path, l + 1, own->n_layers, symbols[k], own->width[l], own->activation[l]);
        }
    }
done:
    return status;
}

// ---- files

static mlff_status read_floats(const char *path, model_weights *weights, const char *name, int n_dimensions, const int64_t *shape)
{
    mlff_status status = MLFF_OK;
    char *bytes = NULL;
    size_t length = 0;
    model_tensor *tensor = weights_add(weights, name, 0, n_dimensions, shape);
    if (!tensor) return MLFF_ERR_MEMORY;
    size_t expected = (size_t)tensor->n_elements * sizeof(float);
    MLFF_TRY(base_read_file(path, expected + MAX_TEXT_BYTES, &bytes, &length));
    if (length != expected)
        MLFF_FAIL(MLFF_ERR_FORMAT,
                  "%s: has %zu byte%s; a layer of %lld output%s%s needs %zu; the file was cut short or is another's", path,
                  length, base_plural((int64_t)length), (long long)shape[0], base_plural(shape[0]),
                  n_dimensions == 2 ? " with its inputs" : "", expected);
    memcpy(tensor->data, bytes, length);
done:
    base_free(bytes);
    return status;
}

static mlff_status read_member(const char *folder, const char *prefix, int member, const ani_settings *s, model_weights *weights)
{
    mlff_status status = MLFF_OK;
    char symbols[ANI_MAX_SPECIES][4], name[128];
    base_text path = {0};
    char *text = NULL;
    size_t length = 0;
    neurochem_net nets[ANI_MAX_SPECIES];
    int n = ani_species_parse(s->species, symbols);

    base_text_add(&path, "%s%s%d/inputtrain.ipt", folder, prefix, member);
    MLFF_TRY(path.status);
    if (base_read_file(path.text, MAX_TEXT_BYTES, &text, &length) != MLFF_OK) {
        base_text reason = {0};
        base_text_add(&reason, "%s", mlff_last_error());
        status = mlff_fail(MLFF_ERR_IO, "%s (member %d of %d; for fewer members, say so in the last line of the .info file)",
                           reason.text ? reason.text : path.text, member, s->n_members);
        base_text_free(&reason);
        goto done;
    }
    MLFF_TRY(neurochem_input_parse(text, path.text, s, nets));
    for (int k = 0; k < n; k++)
        for (int l = 0, in = ani_length(s); l < nets[k].n_layers; l++) {
            int out = nets[k].width[l];
            for (int is_bias = 0; is_bias < 2; is_bias++) {
                base_text_free(&path);
                base_text_add(&path, "%s%s%d/networks/ANN-%s.nnf-l%d.%s", folder, prefix, member, symbols[k], l + 1,
                              is_bias ? "bparam" : "wparam");
                MLFF_TRY(path.status);
                snprintf(name, sizeof name, "member.%d.%s.%d.%s", member, symbols[k], l, is_bias ? "bias" : "weight");
                MLFF_TRY(read_floats(path.text, weights, name, is_bias ? 1 : 2, (int64_t[]){out, in}));
            }
            in = out;
        }
done:
    base_free(text);
    base_text_free(&path);
    return status;
}

// A path inside the folder of the .info file: relative, and not out of it again.
static bool is_inside(const char *path)
{
    return *path && *path != '/' && strncmp(path, "../", 3) != 0 && !strstr(path, "/../");
}

mlff_status neurochem_read(const char *path, model_weights *weights_out)
{
    mlff_status status = MLFF_OK;
    model_weights weights = {0};
    ani_settings s = {.energy_unit = BASE_HARTREE_EV};
    base_text folder = {0}, file = {0};
    char *info = NULL, *text = NULL, *lines[4] = {NULL};
    size_t length = 0;
    int64_t n_members = 0;

    MLFF_TRY(base_read_file(path, MAX_TEXT_BYTES, &info, &length));
    char *cursor = info;
    for (int k = 0; k < 4; k++) {
        char *line = next_line(&cursor);
        if (!line)
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: has %d line%s; expected 4: .params file, self energies, prefix, number", path, k,
                      base_plural(k));
        lines[k] = trimmed(line);
        if (k < 3 && !is_inside(lines[k]))
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: line %d is \"%.80s\"; expected a path below the file's own folder", path, k + 1,
                      lines[k]);
    }
    if (!base_parse_int64(lines[3], &n_members) || n_members < 1 || n_members > ANI_MAX_MEMBERS)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: line 4 is \"%.40s\"; expected the number of members, 1 to %d", path, lines[3],
                  ANI_MAX_MEMBERS);
    s.n_members = (int)n_members;
    const char *slash = strrchr(path, '/');
    base_text_add(&folder, "%.*s", slash ? (int)(slash - path + 1) : 0, path);
    MLFF_TRY(folder.status);

    base_text_add(&file, "%s%s", folder.text, lines[0]);
    MLFF_TRY(file.status);
    MLFF_TRY(base_read_file(file.text, MAX_TEXT_BYTES, &text, &length));
    MLFF_TRY(neurochem_params_parse(text, file.text, &s));
    base_free(text);
    text = NULL;
    base_text_free(&file);
    base_text_add(&file, "%s%s", folder.text, lines[1]);
    MLFF_TRY(file.status);
    MLFF_TRY(base_read_file(file.text, MAX_TEXT_BYTES, &text, &length));
    MLFF_TRY(neurochem_energies_parse(text, file.text, &s));

    MLFF_TRY(ani_settings_write(&s, "NeuroChem", &weights));
    for (int m = 0; m < s.n_members; m++) MLFF_TRY(read_member(folder.text, lines[2], m, &s, &weights));
    MLFF_TRY(weights_check_finite(&weights, path));
    *weights_out = weights;
    weights = (model_weights){0};
done:
    weights_free(&weights);
    base_free(info);
    base_free(text);
    base_text_free(&folder);
    base_text_free(&file);
    return status;
}
