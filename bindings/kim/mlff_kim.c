// SPDX-License-Identifier: MIT
// mlff_kim.c: program behind `mlff kim`: installs, lists and removes model files as KIM portable models.
//
// A model is a folder NAME with a copy of the model file and of a small library that presents it to the KIM API (model_item.cc).
// The driver is a folder of links to the libraries beside this program, so that an update of mlff reaches installed models.
// Folders are those of the KIM API's environment collection where its variables are set (KIM_API_MODEL_DRIVERS_DIR,
// KIM_API_PORTABLE_MODELS_DIR), else of the user collection.
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"
#include "KIM_Collection.h"
#include "KIM_CollectionItemType.h"
#include "KIM_Collections.h"
#include "KIM_Log.h"
#include "KIM_LogVerbosity.h"

#define DRIVER_LIBRARY "libkim-api-model-driver.so"
#define MODEL_LIBRARY "libkim-api-portable-model.so"

typedef struct place {
    char models[PATH_MAX], drivers[PATH_MAX]; // folders of the collection
    char library[PATH_MAX];                   // folder of mlff_kim_driver.so, mlff_kim_model.so and libmlff
} place;

void kim_memory_handler_set(void); // mlff_kim_memory.cc

// ---- paths -----------------------------------------------------------------------------------------------------------------

static mlff_status join(char path[PATH_MAX], const char *folder, const char *name)
{
    return snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX
               ? MLFF_OK
               : mlff_fail(MLFF_ERR_LIMIT, "%s/%s: the path is too long", folder, name);
}

static mlff_status fail_io(const char *path)
{
    return mlff_fail(MLFF_ERR_IO, "%s: %s", path, strerror(errno));
}

static mlff_status make_folder(const char *path)
{
    char part[PATH_MAX];
    for (const char *slash = path; slash;) {
        slash = strchr(slash + 1, '/');
        snprintf(part, sizeof part, "%.*s", slash ? (int)(slash - path) : (int)strlen(path), path);
        if (mkdir(part, 0777) != 0 && errno != EEXIST) return fail_io(part);
    }
    return MLFF_OK;
}

// Folder with the libraries that this program was built or installed with.
static mlff_status find_libraries(char library[PATH_MAX])
{
    static const char *const folders[] = {"../lib", "../" MLFF_LIBDIR, NULL};
    char self[PATH_MAX], driver[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) return fail_io("/proc/self/exe");
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    for (int k = 0; folders[k]; k++) {
        char candidate[2 * PATH_MAX];
        snprintf(candidate, sizeof candidate, "%s/%s", self, folders[k]);
        if (!realpath(candidate, library)) continue;
        mlff_status status = join(driver, library, "mlff_kim_driver.so");
        if (status != MLFF_OK) return status;
        if (access(driver, R_OK) == 0) return MLFF_OK;
    }
    return mlff_fail(MLFF_ERR_IO, "mlff_kim_driver.so is not in %s/%s; install mlff again", self, folders[1]);
}

static mlff_status first_folder(KIM_Collections *collections, KIM_Collection collection, KIM_CollectionItemType type,
                                char folder[PATH_MAX])
{
    const char *name;
    int n = 0;
    folder[0] = '\0';
    if (KIM_Collections_CacheListOfDirectoryNames(collections, collection, type, &n) || n == 0 ||
        KIM_Collections_GetDirectoryName(collections, 0, &name))
        return mlff_fail(MLFF_ERR_IO, "the KIM API names no folder for models, or memory ran out");
    return snprintf(folder, PATH_MAX, "%s", name) < PATH_MAX ? MLFF_OK
                                                             : mlff_fail(MLFF_ERR_LIMIT, "%s: the path is too long", name);
}

static mlff_status find_place(KIM_Collections *collections, place *p)
{
    const bool environment = getenv("KIM_API_MODEL_DRIVERS_DIR") && getenv("KIM_API_PORTABLE_MODELS_DIR");
    const KIM_Collection collection = environment ? KIM_COLLECTION_environmentVariable : KIM_COLLECTION_user;
    mlff_status status = first_folder(collections, collection, KIM_COLLECTION_ITEM_TYPE_portableModel, p->models);
    if (status == MLFF_OK) status = first_folder(collections, collection, KIM_COLLECTION_ITEM_TYPE_modelDriver, p->drivers);
    return status == MLFF_OK ? find_libraries(p->library) : status;
}

// ---- files -----------------------------------------------------------------------------------------------------------------

static mlff_status copy_file(const char *from, const char *to)
{
    char buffer[1 << 16];
    size_t n;
    FILE *in = fopen(from, "rb");
    if (!in) return fail_io(from);
    FILE *out = fopen(to, "wb");
    mlff_status status = out ? MLFF_OK : fail_io(to);
    while (status == MLFF_OK && (n = fread(buffer, 1, sizeof buffer, in)) > 0)
        if (fwrite(buffer, 1, n, out) != n) status = fail_io(to);
    if (status == MLFF_OK && ferror(in)) status = fail_io(from);
    if (status == MLFF_OK && (fflush(out) != 0 || fsync(fileno(out)) != 0)) status = fail_io(to);
    if (out && fclose(out) != 0 && status == MLFF_OK) status = fail_io(to);
    fclose(in);
    return status;
}

// folder/name leads to `target`, whatever it was before.
static mlff_status link_to(const char *target, const char *folder, const char *name)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    mlff_status status = join(path, folder, name);
    if (status != MLFF_OK) return status;
    if (snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid()) >= PATH_MAX)
        return mlff_fail(MLFF_ERR_LIMIT, "%s: the path is too long", path);
    if (symlink(target, temporary) != 0) return fail_io(temporary);
    if (rename(temporary, path) == 0) return MLFF_OK;
    status = fail_io(path);
    unlink(temporary);
    return status;
}

// Removes the files named and then the folder; fails if it holds anything else.
static mlff_status remove_folder(const char *folder, const char *const *names)
{
    char path[PATH_MAX];
    for (; *names; names++) {
        mlff_status status = join(path, folder, *names);
        if (status != MLFF_OK) return status;
        if (unlink(path) != 0 && errno != ENOENT) return fail_io(path);
    }
    return rmdir(folder) == 0 ? MLFF_OK : fail_io(folder);
}

// Fails if the folder holds anything but the files named.
static mlff_status check_contents(const char *folder, const char *const *names)
{
    const struct dirent *entry;
    mlff_status status = MLFF_OK;
    DIR *opened = opendir(folder);
    if (!opened) return fail_io(folder);
    while (status == MLFF_OK && (entry = readdir(opened))) {
        bool known = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        for (int k = 0; names[k]; k++) known = known || strcmp(entry->d_name, names[k]) == 0;
        if (!known)
            status = mlff_fail(MLFF_ERR_USAGE, "%s/%s is not a file of the model; move it elsewhere, then remove the model again",
                               folder, entry->d_name);
    }
    closedir(opened);
    return status;
}

static const char *const model_files[] = {MLFF_KIM_FILE, MODEL_LIBRARY, NULL};
static const char *const driver_files[] = {DRIVER_LIBRARY, MLFF_SONAME, MLFF_PROFILE_SONAME, "libmlff_cuda.so", NULL};

// The first bytes of a file, up to `most`. None where there is no such file.
static mlff_status read_beginning(const char *path, char *bytes, size_t most, size_t *n_out)
{
    mlff_status status = MLFF_OK;
    ssize_t n = 1;
    size_t length = 0;
    *n_out = 0;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return errno == ENOENT || errno == ENOTDIR ? MLFF_OK : fail_io(path);
    while (n > 0 && length < most) {
        n = read(file, bytes + length, most - length);
        if (n > 0) length += (size_t)n;
        if (n < 0 && errno == EINTR) n = 1;
    }
    if (n < 0) status = fail_io(path);
    close(file);
    *n_out = length;
    return status;
}

// Is folder/name a model that this program installed? Its library names the driver; the model's file may have been lost.
static mlff_status check_ours(const char *folder, const char *name, bool *ours_out)
{
    static char bytes[1 << 20]; // more than such a library has
    char path[PATH_MAX];
    size_t n = 0;
    *ours_out = false;
    if (snprintf(path, sizeof path, "%s/%s/" MODEL_LIBRARY, folder, name) >= PATH_MAX) return MLFF_OK;
    const mlff_status status = read_beginning(path, bytes, sizeof bytes, &n);
    *ours_out = status == MLFF_OK && memmem(bytes, n, MLFF_KIM_DRIVER, sizeof MLFF_KIM_DRIVER) != NULL;
    return status;
}

// ---- install ---------------------------------------------------------------------------------------------------------------

// The driver's folder is left with links to this build's libraries.
static mlff_status install_driver(const place *p)
{
    static const char *const targets[] = {"mlff_kim_driver.so", MLFF_SONAME, MLFF_PROFILE_SONAME,
                                          "libmlff_cuda.so"}; // in the order of driver_files
    char folder[PATH_MAX], target[PATH_MAX];
    mlff_status status = join(folder, p->drivers, MLFF_KIM_DRIVER);
    if (status == MLFF_OK) status = make_folder(folder);
    for (int k = 0; status == MLFF_OK && driver_files[k]; k++) {
        status = join(target, p->library, targets[k]);
        if (status == MLFF_OK && access(target, R_OK) == 0) status = link_to(target, folder, driver_files[k]);
    }
    return status;
}

static mlff_status check_name(KIM_Collections *collections, const char *name)
{
    KIM_CollectionItemType type;
    bool good = isalpha((unsigned char)name[0]) || name[0] == '_';
    for (const char *c = name; *c; c++) good = good && (isalnum((unsigned char)*c) || *c == '_');
    if (!good || strlen(name) > 200)
        return mlff_fail(MLFF_ERR_USAGE, "'%s' is not a KIM name; use letters, digits and _, as in Water_PaiNN", name);
    if (!KIM_Collections_GetItemType(collections, name, &type))
        return mlff_fail(MLFF_ERR_USAGE,
                         "%s is the name of an installed KIM item; choose another, or remove it first: mlff kim remove %s", name,
                         name);
    return MLFF_OK;
}

// The model appears whole or not at all: it is prepared in a hidden folder, which then takes the name.
static mlff_status install_model(const place *p, const mlff_model *model, const char *name)
{
    char hidden[PATH_MAX], path[PATH_MAX], from[PATH_MAX], folder[PATH_MAX];
    mlff_status status = make_folder(p->models);
    if (status == MLFF_OK) status = join(hidden, p->models, ".mlff-XXXXXX");
    if (status == MLFF_OK) status = join(folder, p->models, name);
    if (status != MLFF_OK) return status;
    if (!mkdtemp(hidden)) return fail_io(hidden);
    if (chmod(hidden, 0755) != 0) status = fail_io(hidden);
    if (status == MLFF_OK) status = join(path, hidden, MLFF_KIM_FILE);
    if (status == MLFF_OK) status = mlff_model_save(model, path);
    if (status == MLFF_OK) status = join(from, p->library, "mlff_kim_model.so");
    if (status == MLFF_OK) status = join(path, hidden, MODEL_LIBRARY);
    if (status == MLFF_OK) status = copy_file(from, path);
    if (status == MLFF_OK && rename(hidden, folder) != 0) status = fail_io(folder);
    if (status != MLFF_OK) {
        char reason[1024];
        snprintf(reason, sizeof reason, "%s", mlff_last_error());
        remove_folder(hidden, model_files);
        return mlff_fail(status, "%s", reason);
    }
    return MLFF_OK;
}

static mlff_status install(KIM_Collections *collections, const place *p, const char *path, const char *name)
{
    mlff_model *model = NULL;
    mlff_model_info info;
    mlff_status status = check_name(collections, name);
    if (status == MLFF_OK) status = mlff_model_load(path, &model);
    if (status == MLFF_OK) status = driver_check_model(model);
    if (status == MLFF_OK) status = install_driver(p);
    if (status == MLFF_OK) status = install_model(p, model, name);
    if (status == MLFF_OK) {
        mlff_model_info_get(model, &info);
        printf("%s: %s\n  influence distance %g Å; in %s\n", name, info.description, info.n_layers * info.cutoff_angstrom,
               p->models);
        if (!info.trained) fputs("mlff: warning: the model is untrained: its weights are random\n", stderr);
    }
    mlff_model_destroy(model);
    return status;
}

// ---- list and remove -------------------------------------------------------------------------------------------------------

static int accept_ours(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void print_model(const place *p, const char *name)
{
    char path[PATH_MAX];
    mlff_model *model = NULL;
    mlff_model_info info;
    if (snprintf(path, sizeof path, "%s/%s/" MLFF_KIM_FILE, p->models, name) >= PATH_MAX) return;
    const bool good = mlff_model_load(path, &model) == MLFF_OK;
    if (good) mlff_model_info_get(model, &info);
    printf("%-30s  %s\n", name, good ? info.description : mlff_last_error());
    mlff_model_destroy(model);
}

static mlff_status list(const place *p, bool print, int *n_out)
{
    mlff_status status = MLFF_OK;
    struct dirent **entries;
    int n = scandir(p->models, &entries, accept_ours, alphasort);
    *n_out = 0;
    if (n < 0) return errno == ENOENT ? MLFF_OK : fail_io(p->models);
    for (int k = 0; k < n; k++) {
        bool ours = false;
        if (status == MLFF_OK) status = check_ours(p->models, entries[k]->d_name, &ours);
        *n_out += ours;
        if (ours && print) print_model(p, entries[k]->d_name);
        free(entries[k]);
    }
    free(entries);
    return status;
}

// Models whose driver leads to no library cannot be run: mlff was moved or removed. KIM and simulators do not say so.
static void warn_of_driver(const place *p)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/" MLFF_KIM_DRIVER "/" DRIVER_LIBRARY, p->drivers) >= PATH_MAX || access(path, R_OK) == 0)
        return;
    fprintf(stderr,
            "mlff: kim: warning: the driver that runs these models cannot be read: %s: %s; mlff kim install restores it\n", path,
            strerror(errno));
}

// The driver goes with the last model.
static mlff_status remove_model(const place *p, const char *name)
{
    char folder[PATH_MAX], hidden[PATH_MAX];
    int n = 0;
    bool ours = false;
    mlff_status status = strchr(name, '/') || name[0] == '.' ? MLFF_OK : check_ours(p->models, name, &ours);
    if (status != MLFF_OK) return status;
    if (!ours)
        return mlff_fail(MLFF_ERR_USAGE, "%s is not a model that mlff kim installed in %s; mlff kim list shows them", name,
                         p->models);
    status = join(folder, p->models, name);
    if (status == MLFF_OK) status = check_contents(folder, model_files);
    if (status == MLFF_OK) status = join(hidden, p->models, ".mlff-XXXXXX");
    if (status != MLFF_OK) return status;
    // At once, by its name: a model that is removed in part could neither be run nor removed.
    if (!mkdtemp(hidden)) return fail_io(hidden);
    if (rename(folder, hidden) != 0) {
        status = fail_io(folder);
        rmdir(hidden);
        return status;
    }
    status = remove_folder(hidden, model_files);
    if (status == MLFF_OK) status = list(p, false, &n);
    if (status == MLFF_OK && n == 0 && (status = join(folder, p->drivers, MLFF_KIM_DRIVER)) == MLFF_OK &&
        access(folder, F_OK) == 0)
        status = remove_folder(folder, driver_files);
    return status;
}

// ---- program ---------------------------------------------------------------------------------------------------------------

int main(int argc, char **argv)
{
    KIM_Collections *collections = NULL;
    place p;
    int n = 0;
    const char *action = argc > 1 ? argv[1] : "";
    mlff_status status = MLFF_OK;
    kim_memory_handler_set();
    KIM_Log_PushDefaultVerbosity(KIM_LOG_VERBOSITY_silent); // else kim.log grows in the folder where the command runs
    if (KIM_Collections_Create(&collections))
        status = mlff_fail(MLFF_ERR_IO, "the KIM API cannot read its collections, or memory ran out");
    if (status == MLFF_OK) status = find_place(collections, &p);
    if (status != MLFF_OK)
        ;
    else if (strcmp(action, "install") == 0 && argc == 4)
        status = install(collections, &p, argv[2], argv[3]);
    else if (strcmp(action, "list") == 0 && argc == 2) {
        status = list(&p, true, &n);
        if (status == MLFF_OK && n > 0) warn_of_driver(&p);
    } else if (strcmp(action, "remove") == 0 && argc == 3)
        status = remove_model(&p, argv[2]);
    else
        status = mlff_fail(MLFF_ERR_USAGE, "this program is run by mlff kim; see mlff kim --help");
    if (collections) KIM_Collections_Destroy(&collections);
    if (status == MLFF_OK && fflush(stdout) != 0) status = fail_io("standard output");
    if (status == MLFF_OK) return EXIT_SUCCESS;
    fprintf(stderr, "mlff: kim: %s\n", mlff_last_error());
    return status == MLFF_ERR_USAGE ? 2 : EXIT_FAILURE;
}
