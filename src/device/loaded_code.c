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

// The address sanitizer's guards between constants are part of a segment.
__attribute__((no_sanitize("address"))) static void add_bytes(sha256 *hash, const volatile unsigned char *from, size_t n)
{
    unsigned char block[4096];
    for (size_t at = 0; at < n; at += sizeof block) {
        const size_t here = n - at < sizeof block ? n - at : sizeof block;
        for (size_t k = 0; k < here; k++) block[k] = from[at + k];
        sha256_add(hash, block, here);
    }
}

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
            add_bytes(wanted->hash, (const volatile unsigned char *)(info->dlpi_addr + segment->p_vaddr), segment->p_filesz);
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
