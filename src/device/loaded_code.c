// SPDX-License-Identifier: MIT
// loaded_code.c: which build of the library computes. Of the loaded code, not of its file, which another build may have replaced since, and not
// of a version, which many builds have.
#include "loaded_code.h"

#include <link.h>

#include "device/device.h"

typedef struct image {
    uintptr_t address; // within the image that is looked for
    sha256 *hash;
} image;

// Segments that cannot be written hold what the linker wrote, without addresses of this process.
static int add_image(struct dl_phdr_info *info, size_t info_bytes, void *context)
{
    const image *wanted = context;
    bool holds = false;
    (void)info_bytes;
    for (int k = 0; k < info->dlpi_phnum; k++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[k];
        const uintptr_t begin = info->dlpi_addr + segment->p_vaddr;
        holds = holds || (segment->p_type == PT_LOAD && wanted->address >= begin && wanted->address - begin < segment->p_memsz);
    }
    for (int k = 0; holds && k < info->dlpi_phnum; k++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[k];
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_R) && !(segment->p_flags & PF_W))
            sha256_add(wanted->hash, (const void *)(info->dlpi_addr + segment->p_vaddr), segment->p_filesz);
    }
    return holds;
}

void device_code_hash(mlff_device device, char text[SHA256_TEXT_BYTES])
{
    sha256 hash;
    unsigned char digest[SHA256_BYTES];
    const device_plugin *plugin = NULL;
    sha256_begin(&hash);
    dl_iterate_phdr(add_image, &(image){(uintptr_t)device_code_hash, &hash});
    if (device.kind != MLFF_CPU && device_plugin_get(&plugin) == MLFF_OK)
        dl_iterate_phdr(add_image, &(image){(uintptr_t)plugin, &hash});
    sha256_end(&hash, digest);
    sha256_text(digest, text);
}
