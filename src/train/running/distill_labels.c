// SPDX-License-Identifier: MIT
// distill_labels.c: a run from labels that are there: their files, what of them trains, validates and tests, and structures of the test
// for the dynamics of the verdict.
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"
#include "distill.h"
#include "train/data/dataset.h"
#include "train/judging/verdict.h"
#include "train/sampling/sample_geometry.h"

enum {
    MOST_SYSTEMS = 3, // that dynamics begin with: a verdict takes that many times as long
    STREAM_GROUPS = 0x67727073
};

// ---- reading

// Trajectories of two files are two, whatever their numbers. Two that get the same number only stay together.
static void tell_groups_apart(mlff_dataset *dataset, uint64_t file)
{
    for (size_t f = 0; f < dataset->n_frames; f++) {
        int64_t *group = &dataset->frames[f].system->group;
        if (*group < 0) continue;
        *group = (int64_t)(0x1p53 * base_random_uniform(file, STREAM_GROUPS, (uint64_t)*group));
    }
}

static mlff_status append(mlff_dataset *to, const mlff_dataset *from)
{
    mlff_status status = energy_kinds_join(&to->kinds, &from->kinds);
    for (size_t k = 0; k < from->n_frames && status == MLFF_OK; k++) status = dataset_add_copy(to, &from->frames[k]);
    return status;
}

// The SHA-256 of the structures with their labels and groups.
static mlff_status hash_labels(const mlff_dataset *dataset, char text[SHA256_TEXT_BYTES])
{
    sha256 hash;
    unsigned char digest[SHA256_BYTES];
    mlff_status status = mlff_dataset_hash(dataset, text);
    if (status != MLFF_OK) return status;
    sha256_begin(&hash);
    sha256_add(&hash, text, SHA256_TEXT_BYTES - 1);
    for (size_t f = 0; f < dataset->n_frames; f++)
        sha256_add(&hash, &dataset->frames[f].system->group, sizeof dataset->frames[f].system->group);
    sha256_end(&hash, digest);
    sha256_text(digest, text);
    return MLFF_OK;
}

static mlff_status note_labels(distill *d, const char *name, const mlff_dataset *dataset)
{
    mlff_status status = MLFF_OK;
    char hash[SHA256_TEXT_BYTES];
    const char *comma = d->labels.length > 0 ? "," : "", *other = d->labels.text;
    if (strchr(name, ','))
        return mlff_fail(MLFF_ERR_USAGE, "%s: names of files are separated by commas, and this one has a comma; rename it", name);
    MLFF_TRY(hash_labels(dataset, hash));
    for (const char *known = d->labels_hash.text; known && *known; known += strcspn(known, ","), known += *known == ',') {
        if (strncmp(known, hash, sizeof hash - 1) == 0)
            return mlff_fail(MLFF_ERR_VALUE, "%s: has the same labels as %.*s; give each file once", name,
                             (int)strcspn(other, ","), other);
        other += strcspn(other, ",") + 1;
    }
    base_text_add(&d->labels, "%s%s", comma, name);
    base_text_add(&d->labels_hash, "%s%s", comma, hash);
    MLFF_TRY(d->labels.status);
    MLFF_TRY(d->labels_hash.status);
    if (d->labels.length + d->labels_hash.length > DISTILL_TEXT_BYTES / 2)
        status = mlff_fail(MLFF_ERR_LIMIT, "the names of the files of labels are too long together; join some of the files");
done:
    return status;
}

// The labels of a run that goes on were checked when it began, and are the same by their hash.
static bool is_new(const distill *d)
{
    return !d->config.labels_hash;
}

// One file, checked by itself, so that an error names it and the structure in it.
static mlff_status read_file(distill *d, const char *path, int index)
{
    mlff_status status = MLFF_OK;
    mlff_dataset *one = NULL;
    mlff_read_options options = mlff_read_options_default();
    int64_t n_unsure = 0;
    char whole[PATH_MAX];
    options.n_threads = d->options.n_threads;
    if (d->config.max_teacher_deviation > 0) options.largest_force_deviation = d->config.max_teacher_deviation;
    if (strcmp(path, "-") == 0 || base_is_stream(path))
        return mlff_fail(MLFF_ERR_USAGE, "%s: is no file, and a run that goes on reads its labels again; give a file", path);
    MLFF_TRY(mlff_dataset_create(&one));
    MLFF_TRY(mlff_dataset_read_some(one, path, &options, &n_unsure));
    if (n_unsure > 0)
        MLFF_TRY(distill_tell(d, 0, 1, "%s: %" PRId64 " structure%s left out, of which the teacher is less sure than %g eV/Å",
                              path, n_unsure, base_plural(n_unsure), d->config.max_teacher_deviation));
    if (is_new(d) && one->n_frames > 0) status = mlff_dataset_check(one);
    if (status == MLFF_ERR_VALUE) MLFF_FAIL(status, "%s: %s", path, mlff_last_error());
    MLFF_TRY(status);
    MLFF_TRY(note_labels(d, realpath(path, whole) ? whole : path, one));
    tell_groups_apart(one, (uint64_t)index);
    MLFF_TRY(append(d->labelled, one));
done:
    mlff_dataset_destroy(one);
    return status;
}

// Is this the file that distill_labels_save wrote, in a folder that has been moved since?
static bool is_own(const distill *d, const char *name)
{
    const char *slash = strrchr(name, '/'), *own = strrchr(d->path[DISTILL_LABELS], '/');
    return access(name, F_OK) != 0 && slash && strcmp(slash, own) == 0 && distill_is_there(d, DISTILL_LABELS);
}

static mlff_status read_files(distill *d)
{
    mlff_status status = MLFF_OK;
    char *list = base_strdup(d->config.labels), *rest = list, *name;
    int n = 0;
    if (!list) return MLFF_ERR_MEMORY;
    while ((name = strtok_r(rest, ",", &rest))) MLFF_TRY(read_file(d, is_own(d, name) ? d->path[DISTILL_LABELS] : name, n++));
    if (n == 0) MLFF_FAIL(MLFF_ERR_USAGE, "\"%s\" names no file of labels; give some, separated by commas", d->config.labels);
    if (is_new(d) && n > 1) status = mlff_dataset_check(d->labelled);
    if (status == MLFF_ERR_VALUE)
        status = mlff_fail(status, "the %d files of labels together, structures counted through all: %s", n, mlff_last_error());
done:
    base_free(list);
    return status;
}

// The file that distill_labels_save will write is read by its absolute name.
static mlff_status check_folder(const distill *d)
{
    char here[PATH_MAX];
    if (strchr(d->folder, ',') || (d->folder[0] != '/' && getcwd(here, sizeof here) && strchr(here, ',')))
        return mlff_fail(MLFF_ERR_USAGE,
                         "%s: names of files of labels are separated by commas, and this folder has one in its name; "
                         "give another folder",
                         d->folder);
    return MLFF_OK;
}

// As if it were read from the file that distill_labels_save writes.
static mlff_status take_dataset(distill *d)
{
    mlff_status status = MLFF_OK;
    if (is_new(d)) MLFF_TRY(check_folder(d));
    MLFF_TRY(append(d->labelled, d->options.labels));
    if (is_new(d)) MLFF_TRY(mlff_dataset_check(d->labelled));
    MLFF_TRY(note_labels(d, d->config.labels, d->labelled));
    tell_groups_apart(d->labelled, 0);
done:
    return status;
}

// A file is kept where it holds these labels: a process that wrote it was killed before the run existed.
static mlff_status save_dataset(const distill *d, const char *path)
{
    mlff_status status = MLFF_OK;
    mlff_dataset *there = NULL;
    char hash[SHA256_TEXT_BYTES] = "";
    if (access(path, F_OK) != 0) return mlff_dataset_save(d->options.labels, path);
    MLFF_TRY(mlff_dataset_create(&there));
    if (mlff_dataset_read(there, path) == MLFF_OK) MLFF_TRY(hash_labels(there, hash));
    if (strcmp(hash, d->labels_hash.text) != 0) status = distill_refuse_found(path);
done:
    mlff_dataset_destroy(there);
    return status;
}

mlff_status distill_labels_save(distill *d)
{
    mlff_status status = MLFF_OK;
    char whole[PATH_MAX];
    const char *path = d->path[DISTILL_LABELS];
    MLFF_TRY(save_dataset(d, path));
    d->labels.length = 0;
    base_text_add(&d->labels, "%s", realpath(path, whole) ? whole : path);
    MLFF_TRY(d->labels.status);
    d->config.labels = d->labels.text;
done:
    return status;
}

void distill_add_names(const char *list, base_text *text)
{
    for (const char *name = list; name; name = strchr(name, ',') ? strchr(name, ',') + 1 : NULL) {
        const size_t length = strcspn(name, ",");
        const char *slash = memrchr(name, '/', length), *own = slash ? slash + 1 : name;
        base_text_add(text, "%s%.*s", name == list ? "" : ", ", (int)(name + length - own), own);
    }
}

static int count_names(const char *list)
{
    int n = 1;
    for (; (list = strchr(list, ',')); list++) n++;
    return n;
}

// The hash of each file, against those that the folder's run began with.
static mlff_status check_hashes(const distill *d)
{
    const char *began = d->config.labels_hash, *now = d->labels_hash.text, *name = d->labels.text;
    if (strcmp(began, now) == 0) return MLFF_OK;
    if (d->options.labels)
        return mlff_fail(MLFF_ERR_VALUE, "%s: the run began with other labels than those given now; give another folder",
                         d->folder);
    if (count_names(began) != count_names(now))
        return mlff_fail(MLFF_ERR_VALUE, "%s: the run began with %d file%s of labels, not with %d; give another folder",
                         d->folder, count_names(began), base_plural(count_names(began)), count_names(now));
    for (size_t n; n = strcspn(now, ","), now[n] && strncmp(began, now, n + 1) == 0; now += n + 1) {
        began += n + 1;
        name += strcspn(name, ",") + 1;
    }
    return mlff_fail(MLFF_ERR_VALUE,
                     "%.*s: its labels are not those that the run in %s began with; restore the file, or give another folder",
                     (int)strcspn(name, ","), name, d->folder);
}

static mlff_status check_number(const distill *d)
{
    const int64_t n = mlff_dataset_size(d->labelled);
    int64_t n_with_forces = 0;
    if (n < DISTILL_FEWEST_LABELS)
        return mlff_fail(MLFF_ERR_VALUE,
                         "%s: %" PRId64
                         " labelled structure%s; training, validation and test together need %d at least: add more, or "
                         "train without a verdict (mlff train)",
                         d->config.labels, n, base_plural(n), DISTILL_FEWEST_LABELS);
    for (int64_t k = 0; k < n; k++) n_with_forces += d->labelled->frames[k].system->label_forces != NULL;
    if (n_with_forces == 0)
        return mlff_fail(
            MLFF_ERR_VALUE,
            "%s: no structure has forces, which the verdict judges; add them, or train on energies alone (mlff train)",
            d->config.labels);
    return MLFF_OK;
}

mlff_status distill_labels_read(distill *d)
{
    mlff_status status = MLFF_OK;
    d->stage = "read";
    MLFF_TRY(mlff_dataset_create(&d->labelled));
    d->labelled->n_threads = d->options.n_threads;
    MLFF_TRY(d->options.labels ? take_dataset(d) : read_files(d));
    if (d->config.labels_hash) MLFF_TRY(check_hashes(d));
    d->config.labels = d->labels.text;
    d->config.labels_hash = d->labels_hash.text;
    MLFF_TRY(check_number(d));
    const int64_t n = mlff_dataset_size(d->labelled);
    if (d->config.n_structures > 0 && d->config.n_structures < n)
        MLFF_TRY(dataset_choose(d->labelled, d->config.n_structures, d->config.seed));
    if (mlff_dataset_size(d->labelled) < n)
        MLFF_TRY(distill_tell(d, 0, 1, "%" PRId64 " of %" PRId64 " labelled structures %s used", mlff_dataset_size(d->labelled),
                              n, mlff_dataset_size(d->labelled) == 1 ? "is" : "are"));
done:
    return status;
}

// ---- what trains, validates and tests

// Structures with forces of at most `most`, eV/Å.
static size_t count_forces(const mlff_dataset *dataset, double most)
{
    size_t n = 0;
    for (size_t f = 0; f < dataset->n_frames; f++) {
        const mlff_system *system = dataset->frames[f].system;
        n += system->label_forces && verdict_largest_force(system) <= most;
    }
    return n;
}

// Elements that training lacks, and forces that the test lacks: of single strained structures, or of other units.
static mlff_status check_parts(const distill *d)
{
    const mlff_dataset *held_out[2] = {d->data.test, d->data.validation};
    bool trained[MLFF_MAX_ATOMIC_NUMBER + 1] = {false};
    dataset_find_elements(d->data.train, trained);
    for (int part = 0; part < 2; part++) {
        bool present[MLFF_MAX_ATOMIC_NUMBER + 1] = {false};
        dataset_find_elements(held_out[part], present);
        for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
            if (present[z] && !trained[z])
                return mlff_fail(
                    MLFF_ERR_VALUE,
                    "%s: no structures can be held out without %s leaving the training data, as each element is in one "
                    "group alone; add structures, or give trajectories of their own numbers (group=N)",
                    d->config.labels, mlff_element_symbol(z));
    }
    if (count_forces(d->data.test, VERDICT_STRAINED) > 0) return MLFF_OK;
    const size_t n = count_forces(d->data.train, INFINITY), n_judging = count_forces(d->data.train, VERDICT_STRAINED);
    if (2 * n_judging < n && count_forces(d->data.test, INFINITY) > 0)
        return mlff_fail(
            MLFF_ERR_VALUE,
            "%s: %zu of %zu structures with forces for training and none of the %zu held out for the test have forces of at most "
            "%g eV/Å, by which a student is judged; are energies in eV and forces in eV/Å (1 kcal/mol is 0.0433641 "
            "eV, 1 kJ/mol 0.0103643 eV)?",
            d->config.labels, n_judging, n, d->data.test->n_frames, VERDICT_STRAINED);
    return mlff_fail(MLFF_ERR_VALUE,
                     "%s: none of the %zu structure%s held out for the test has forces of at most %g eV/Å, by which a student is "
                     "judged; add structures with forces, or give another seed",
                     d->config.labels, d->data.test->n_frames, base_plural((int64_t)d->data.test->n_frames), VERDICT_STRAINED);
}

// Hydrogen is bonded in what a student is trained on: where it seldom is, positions are in other units, as in Bohr.
static mlff_status warn_of_unbonded(const distill *d)
{
    mlff_status status = MLFF_OK;
    const mlff_dataset *train = d->data.train;
    size_t n = 0, n_unbonded = 0;
    sample_bonds bonds = {0};
    for (size_t f = 0; f < train->n_frames; f++) {
        const mlff_system *system = train->frames[f].system;
        bool has_hydrogen = false;
        for (int i = 0; i < system->n_atoms; i++) has_hydrogen = has_hydrogen || system->species[i] == 1;
        if (!has_hydrogen || system->n_atoms < 2) continue;
        MLFF_TRY(sample_bonds_find(system, &bonds));
        n++;
        n_unbonded += bonds.n == 0;
    }
    if (2 * n_unbonded > n)
        mlff_warn(
            "%s: %zu of %zu structures with hydrogen have no two atoms within the distance of a bond; positions must be in Å "
            "(1 Bohr is 0.529177 Å)",
            d->config.labels, n_unbonded, n);
done:
    sample_bonds_free(&bonds);
    return status;
}

// Where labels have no compressed bonds, a student attracts atoms below the shortest distances: the fixed repulsion of nuclei begins among
// them, in reach of a tenth of the structures. docs/decisions/students-cores-and-strain.md
static mlff_status choose_core(distill *d)
{
    mlff_status status = MLFF_OK;
    const mlff_dataset *train = d->data.train;
    double *closest = base_alloc(train->n_frames, sizeof *closest, "distances");
    if (!closest) return MLFF_ERR_MEMORY;
    if (!(d->core_repulsion > 0)) goto done;
    for (size_t f = 0; f < train->n_frames; f++) MLFF_TRY(sample_closest(train->frames[f].system, &closest[f]));
    base_sort(closest, train->n_frames);
    d->core_repulsion = fmin(d->core_repulsion, floor(1e3 * closest[train->n_frames / 10]) * 1e-3);
    if (closest[0] <= 1)
        MLFF_TRY(distill_tell(d, 1, 1,
                              "fixed repulsion of nuclei below %.3g of the sum of their covalent radii; closest atoms: %.3g",
                              d->core_repulsion, closest[0]));
    else
        MLFF_TRY(distill_tell(d, 1, 1,
                              "fixed repulsion of nuclei below %.3g of the sum of their covalent radii; no atoms are as near",
                              d->core_repulsion));
    MLFF_TRY(warn_of_unbonded(d));
done:
    base_free(closest);
    return status;
}

// ---- structures for the dynamics of the verdict

// A structure of the test; those of one composition, molecules and crystals apart, have one name.
typedef struct candidate {
    char name[COMPOSITION_NAME_BYTES];
    double force; // eV/Å, its largest: the calmest structure is the nearest to a minimum
    int64_t frame, n_alike;
} candidate;

static int compare_candidates(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    const int names = strcmp(a->name, b->name);
    if (names != 0) return names;
    if (a->force != b->force) return a->force < b->force ? -1 : 1;
    return (a->frame > b->frame) - (a->frame < b->frame);
}

static candidate make_candidate(const mlff_system *system, int64_t frame)
{
    candidate c = {.force = system->label_forces ? verdict_largest_force(system) : INFINITY, .frame = frame};
    composition_name(system, c.name);
    return c;
}

// The calmest of each composition, in the order of their names; how many there are.
static size_t find_calmest(candidate *candidates, size_t n)
{
    size_t n_kept = 0;
    qsort(candidates, n, sizeof *candidates, compare_candidates);
    for (size_t k = 0; k < n; k++) {
        if (n_kept == 0 || strcmp(candidates[n_kept - 1].name, candidates[k].name) != 0) candidates[n_kept++] = candidates[k];
        candidates[n_kept - 1].n_alike++;
    }
    return n_kept;
}

// Of the calmest ones the best: one with an element that was not judged yet, then one of which the test has many.
static const candidate *find_best(const mlff_dataset *test, const candidate *candidates, size_t n, const bool *judged)
{
    const candidate *best = NULL;
    bool best_is_new = false;
    for (size_t k = 0; k < n; k++) {
        const mlff_system *system = test->frames[candidates[k].frame].system;
        bool is_new = false;
        for (int i = 0; i < system->n_atoms; i++) is_new = is_new || !judged[system->species[i]];
        if (candidates[k].n_alike == 0 || (best && is_new < best_is_new)) continue;
        if (best && is_new == best_is_new && candidates[k].n_alike <= best->n_alike) continue;
        best = &candidates[k];
        best_is_new = is_new;
    }
    return best;
}

// The compositions of the test of which no dynamics are judged.
static void warn_of_others(const distill *d, const candidate *candidates, size_t n)
{
    base_text names = {0};
    int n_others = 0;
    for (size_t k = 0; k < n; k++) {
        if (candidates[k].n_alike == 0) continue;
        if (n_others++ < 8) base_text_add(&names, "%s%s", n_others > 1 ? ", " : "", candidates[k].name);
    }
    if (n_others > 8) base_text_add(&names, " and %d more", n_others - 8);
    if (n_others > 0 && names.status == MLFF_OK)
        mlff_warn("%s: the verdict's dynamics are of %d compositions alone, not of %s; the errors are of all", d->config.labels,
                  MOST_SYSTEMS, names.text);
    base_text_free(&names);
}

// One atom has no bond and no pair: it is taken where there is nothing else.
static mlff_status choose_systems(distill *d)
{
    mlff_status status = MLFF_OK;
    const mlff_dataset *test = d->data.test;
    bool judged[MLFF_MAX_ATOMIC_NUMBER + 1] = {false};
    size_t n = 0;
    candidate *candidates = base_alloc(test->n_frames, sizeof *candidates, "structures");
    if (!candidates) return MLFF_ERR_MEMORY;
    for (int fewest = 2; fewest >= 1 && n == 0; fewest--)
        for (size_t f = 0; f < test->n_frames; f++)
            if (test->frames[f].system->n_atoms >= fewest) candidates[n++] = make_candidate(test->frames[f].system, (int64_t)f);
    n = find_calmest(candidates, n);
    MLFF_TRY(mlff_samples_create(&d->systems));
    while (mlff_samples_size(d->systems) < MOST_SYSTEMS) {
        const candidate *best = find_best(test, candidates, n, judged);
        if (!best) break;
        const mlff_system *system = test->frames[best->frame].system;
        if (d->teacher) MLFF_TRY(mlff_teacher_check(d->teacher, system, NULL));
        MLFF_TRY(mlff_samples_add(d->systems, system, best->name));
        for (int i = 0; i < system->n_atoms; i++) judged[system->species[i]] = true;
        candidates[best - candidates].n_alike = 0; // taken
    }
    warn_of_others(d, candidates, n);
done:
    base_free(candidates);
    return status;
}

mlff_status distill_labels_divide(distill *d)
{
    mlff_status status = MLFF_OK;
    d->stage = "read";
    MLFF_TRY(distill_data_create(&d->data));
    MLFF_TRY(distill_divide(d->labelled, d->config.seed, &d->data));
    mlff_dataset_destroy(d->labelled);
    d->labelled = NULL;
    MLFF_TRY(check_parts(d));
    MLFF_TRY(distill_tell(d, 1, 1, "%" PRId64 " labelled structures to train on, %" PRId64 " to validate and %" PRId64 " to test",
                          mlff_dataset_size(d->data.train), mlff_dataset_size(d->data.validation),
                          mlff_dataset_size(d->data.test)));
    MLFF_TRY(choose_core(d));
    MLFF_TRY(choose_systems(d));
done:
    return status;
}
