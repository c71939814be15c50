// SPDX-License-Identifier: MIT
// model_path.c: a model by name: searched in the folders of MLFF_MODEL_PATH (separated by ":"), then in the user's data
// folder, $XDG_DATA_HOME/mlff/models or ~/.local/share/mlff/models, then among the models that are installed with the library.
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"
#include "model/model.h"

// NAME or NAME.safetensors in a folder; NULL if neither is there. The caller's.
static char *find_in(const char *folder, size_t length, const char *const names[4])
{
    for (int n = 0; n < 4 && names[n]; n++)
        for (int suffix = 1; suffix >= 0; suffix--) {
            base_text path = {0};
            base_text_add(&path, "%.*s/%s%s", (int)length, folder, names[n], suffix ? ".safetensors" : "");
            if (path.status == MLFF_OK && access(path.text, R_OK) == 0 && !base_is_folder(path.text)) return path.text;
            base_text_free(&path);
        }
    return NULL;
}

// Where the shipped models lie beside the library: as installed (lib, lib/TRIPLET; a build folder has a link there) and in a Python wheel
// (lib); those that are there.
static void add_shipped_folders(base_text *folders)
{
    static const char *const places[] = {"../share/mlff/models", "../../share/mlff/models", "../models"};
    char own[PATH_MAX], folder[PATH_MAX + 32], resolved[PATH_MAX];
    device_own_folder(own, sizeof own);
    for (size_t k = 0; own[0] && k < sizeof places / sizeof *places; k++) {
        snprintf(folder, sizeof folder, "%s%s", own, places[k]);
        if (realpath(folder, resolved) && base_is_folder(resolved)) base_text_add(folders, ":%s", resolved);
    }
}

static void add_user_folder(base_text *text)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (data && *data)
        base_text_add(text, "%s/mlff/models", data);
    else
        base_text_add(text, "%s/.local/share/mlff/models", home && *home ? home : ".");
}

mlff_status model_path_find(const char *name, char **path_out)
{
    const char *names[4] = {NULL}, *listed = getenv("MLFF_MODEL_PATH");
    char *found = NULL;
    base_text folders = {0};
    if (!*name) return mlff_fail(MLFF_ERR_USAGE, "a model has an empty name; give the path of a file or a name");
    bool is_folder = base_is_folder(name); // hides no model of its name
    if (strchr(name, '/') || (access(name, F_OK) == 0 && !is_folder))
        return (*path_out = base_strdup(name)) ? MLFF_OK : MLFF_ERR_MEMORY;
    const model_architecture *architecture;
    const model_published *published = model_published_find(name, &architecture);
    if (published)
        memcpy(names, published->names, sizeof names);
    else
        names[0] = name;
    if (listed && *listed) base_text_add(&folders, "%s:", listed);
    add_user_folder(&folders);
    add_shipped_folders(&folders);
    if (folders.status != MLFF_OK) {
        base_text_free(&folders);
        return MLFF_ERR_MEMORY;
    }
    for (const char *folder = folders.text; !found && *folder;) {
        size_t length = strcspn(folder, ":");
        if (length > 0) found = find_in(folder, length, names);
        folder += length + (folder[length] == ':');
    }
    mlff_status status = MLFF_OK;
    if (found)
        *path_out = found;
    else
        status = mlff_fail(MLFF_ERR_IO, "%s: %s, and no model of this name in %s (MLFF_MODEL_PATH, user data, shipped)%s%s", name,
                           is_folder ? "is a folder; give a file" : "no such file", folders.text, published ? "; " : "",
                           published ? published->source : "");
    base_text_free(&folders);
    return status;
}

// Gives `found` away: copied into the caller's memory, and freed.
static mlff_status hand_out(const char *name, char *found, char *path, size_t path_bytes)
{
    mlff_status status = MLFF_OK;
    if (strlen(found) < path_bytes)
        memcpy(path, found, strlen(found) + 1);
    else
        status = mlff_fail(MLFF_ERR_LIMIT, "%s: its path is longer than %zu bytes", name, path_bytes);
    base_free(found);
    return status;
}

mlff_status mlff_model_find(const char *name, char *path, size_t path_bytes)
{
    char *found = NULL;
    if (!name || !path) return mlff_fail(MLFF_ERR_USAGE, "model: name or path is NULL");
    mlff_status status = model_path_find(name, &found);
    return status == MLFF_OK ? hand_out(name, found, path, path_bytes) : status;
}

mlff_status mlff_model_install_path(const char *name, char *path, size_t path_bytes)
{
    base_text text = {0};
    if (!name || !path) return mlff_fail(MLFF_ERR_USAGE, "model: name or path is NULL");
    if (!*name || *name == '.' || strpbrk(name, "/:"))
        return mlff_fail(MLFF_ERR_USAGE, "'%s' is not a name of a model: use letters, digits, - and _, no path and no suffix",
                         name);
    add_user_folder(&text);
    base_text_add(&text, "/%s.safetensors", name);
    if (text.status == MLFF_OK) return hand_out(name, text.text, path, path_bytes);
    base_text_free(&text);
    return MLFF_ERR_MEMORY;
}
