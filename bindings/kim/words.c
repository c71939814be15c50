// SPDX-License-Identifier: MIT
// words.c: settings that users of KIM and LAMMPS write as words.
#include "words.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *const precisions[] = {"float32", "float64", "tf32", "bf16"}; // in the order of mlff_precision, from float32

const char *words_of_precision(mlff_precision precision)
{
    return precisions[precision ? precision - MLFF_FLOAT32 : 0];
}

mlff_status words_precision(const char *origin, const char *word, mlff_precision *precision_out)
{
    for (int k = 0; k < 4; k++)
        if (strcmp(word, precisions[k]) == 0) {
            *precision_out = (mlff_precision)(MLFF_FLOAT32 + k);
            return MLFF_OK;
        }
    return mlff_fail(MLFF_ERR_USAGE, "%s %s is not float32, float64, tf32 or bf16", origin, word);
}

mlff_status words_ghosts(const char *origin, const char *word, bool *are_images_out)
{
    *are_images_out = strcmp(word, "images") == 0;
    if (*are_images_out || strcmp(word, "atoms") == 0) return MLFF_OK;
    return mlff_fail(MLFF_ERR_USAGE, "%s %s is not images or atoms", origin, word);
}

static mlff_status read_threads(const char *word, int *n_out)
{
    char *end;
    errno = 0;
    const long n = strtol(word, &end, 10);
    if (end == word || *end || errno || n < 1 || n > INT_MAX)
        return mlff_fail(MLFF_ERR_USAGE, "pair_style mlff: threads %s is not a positive number", word);
    *n_out = (int)n;
    return MLFF_OK;
}

mlff_status words_style(int n, const char *const *words, mlff_evaluator_options *options, const char **device_out)
{
    mlff_status status = MLFF_OK;
    if (n % 2) return mlff_fail(MLFF_ERR_USAGE, "pair_style mlff: the keyword %s needs a value", words[n - 1]);
    for (int k = 0; k + 1 < n && status == MLFF_OK; k += 2) {
        if (strcmp(words[k], "precision") == 0)
            status = words_precision("pair_style mlff: precision", words[k + 1], &options->precision);
        else if (strcmp(words[k], "threads") == 0)
            status = read_threads(words[k + 1], &options->n_threads);
        else if (strcmp(words[k], "device") == 0)
            *device_out = words[k + 1];
        else
            status = mlff_fail(MLFF_ERR_USAGE, "pair_style mlff: %s is not one of precision, device, threads", words[k]);
    }
    return status;
}

mlff_status words_elements(int n_types, const char *const *words, const mlff_model_info *info, const char *path,
                           int *elements_out)
{
    for (int t = 0; t < n_types; t++) {
        const int element = elements_out[t] = strcmp(words[t], "NULL") == 0 ? 0 : mlff_element_number(words[t]);
        if (element == 0 && strcmp(words[t], "NULL") != 0)
            return mlff_fail(MLFF_ERR_USAGE, "pair_coeff of mlff: %s is not an element", words[t]);
        bool known = element == 0 || info->n_elements == 0;
        for (int k = 0; k < info->n_elements; k++) known = known || info->elements[k] == element;
        if (!known) return mlff_fail(MLFF_ERR_USAGE, "pair_coeff of mlff: the model %s does not know %s", path, words[t]);
    }
    return MLFF_OK;
}
