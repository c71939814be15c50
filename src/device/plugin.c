// SPDX-License-Identifier: MIT
// plugin.c: finds and opens libmlff_cuda.so, or gives the reason why not.
#include "device/device.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define PLUGIN_FILE "libmlff_cuda.so"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const device_plugin *plugin;
static mlff_status plugin_status;
static char plugin_text[1024];

void device_own_folder(char *folder, size_t folder_bytes)
{
    Dl_info info;
    char resolved[PATH_MAX];
    const bool known = dladdr((const void *)device_plugin_get, &info) && info.dli_fname && strchr(info.dli_fname, '/');
    folder[0] = '\0';
    if (!realpath(known ? info.dli_fname : "/proc/self/exe", resolved)) return;
    snprintf(folder, folder_bytes, "%.*s", (int)(strrchr(resolved, '/') - resolved) + 1, resolved);
}

// Is the file shorter than the segments that its header promises? Loading it would end the process by a bus error.
static bool is_cut_off(const char *path)
{
    FILE *file = fopen(path, "rb");
    ElfW(Ehdr) header;
    ElfW(Phdr) segment;
    bool whole = true;
    if (!file) return false; // dlopen says why
    const bool known = fread(&header, sizeof header, 1, file) == 1 && memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                       header.e_phentsize == sizeof segment && fseek(file, 0, SEEK_END) == 0;
    const long length = known ? ftell(file) : -1;
    for (int k = 0; known && whole && k < header.e_phnum; k++) {
        whole = fseek(file, (long)(header.e_phoff + (size_t)k * sizeof segment), SEEK_SET) == 0 &&
                fread(&segment, sizeof segment, 1, file) == 1 && segment.p_offset <= (size_t)length &&
                segment.p_filesz <= (size_t)length - segment.p_offset;
    }
    fclose(file);
    return !whole;
}

static void *open_plugin(char *text, size_t text_bytes)
{
    const char *wanted = getenv("MLFF_CUDA_PLUGIN");
    char folder[PATH_MAX], beside[PATH_MAX + 32], lib[PATH_MAX + 32];
    device_own_folder(folder, sizeof folder);
    snprintf(beside, sizeof beside, "%s" PLUGIN_FILE, folder);
    snprintf(lib, sizeof lib, "%s../lib/" PLUGIN_FILE, folder);
    const char *places[] = {beside, lib};
    int n = folder[0] ? 2 : 0;
    snprintf(text, text_bytes, "the library's own folder is unknown");
    if (wanted && wanted[0]) {
        places[0] = wanted;
        n = 1;
    }
    if (n > 0) text[0] = '\0';
    for (int k = 0; k < n; k++) {
        if (is_cut_off(places[k])) {
            snprintf(text, text_bytes, "%s: the file is cut off", places[k]);
            return NULL;
        }
        void *handle = dlopen(places[k], RTLD_NOW | RTLD_LOCAL);
        if (handle) return handle;
        const char *reason = dlerror();
        // The first place that has a file gives the reason that is reported.
        if (reason && (text[0] == '\0' || !strstr(reason, "No such file"))) snprintf(text, text_bytes, "%s", reason);
    }
    return NULL;
}

static void open_once(void)
{
    const device_host host = {mlff_fail, base_warn};
    char reason[512], build_id[128];
    void *handle = open_plugin(reason, sizeof reason);
    if (!handle) {
        plugin_status = mlff_fail(
            MLFF_ERR_DEVICE,
            "no GPU support: " PLUGIN_FILE " cannot be opened (%s); build with nvcc or set MLFF_CUDA_PLUGIN to its path", reason);
    } else {
        void *symbol = dlsym(handle, DEVICE_PLUGIN_SYMBOL);
        device_plugin_entry entry;
        memcpy(&entry, &symbol, sizeof entry); // POSIX: a function pointer fits
        device_build_id(build_id, sizeof build_id);
        if (!symbol)
            plugin_status =
                mlff_fail(MLFF_ERR_DEVICE, "no GPU support: " PLUGIN_FILE " is not this project's plugin; reinstall it");
        else
            plugin_status = entry(build_id, &host, &plugin);
    }
    if (plugin_status != MLFF_OK) snprintf(plugin_text, sizeof plugin_text, "%s", mlff_last_error());
}

mlff_status device_plugin_get(const device_plugin **plugin_out)
{
    pthread_once(&once, open_once);
    if (plugin_status != MLFF_OK) return mlff_fail(plugin_status, "%s", plugin_text);
    *plugin_out = plugin;
    return MLFF_OK;
}
