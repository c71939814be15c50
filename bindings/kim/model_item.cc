// SPDX-License-Identifier: MIT
// model_item.cc: shared library of every installed model. `mlff kim install` copies it beside the model's file into a folder of
// the model's name; when the KIM API opens it, it maps that file and presents it as the one parameter file. So no compiler is
// needed to install a model, and the size of the file does not matter.
#include <climits>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "KIM_CollectionItemType.hpp"
#include "KIM_LanguageName.hpp"
#include "KIM_SharedLibrarySchema.hpp"

#include "driver.h"

using KIM::SHARED_LIBRARY_SCHEMA::SharedLibrarySchemaV2;

namespace
{
char path[PATH_MAX]; // of the model's file
char name[NAME_MAX + 1];
unsigned int length;

// The folder of this library: path of the file in it, and the model's name, which is the folder's.
bool find_file()
{
    Dl_info info;
    if (!dladdr(name, &info) || !info.dli_fname || !realpath(info.dli_fname, path)) return false;
    *std::strrchr(path, '/') = '\0';
    const char *slash = std::strrchr(path, '/');
    if (!slash || std::strlen(path) + sizeof "/" MLFF_KIM_FILE > sizeof path) return false;
    std::strncpy(name, slash + 1, sizeof name - 1);
    std::strcat(path, "/" MLFF_KIM_FILE);
    return true;
}

// The file's bytes, mapped as long as the library is open. Where there are none the length is 0, and the driver refuses the empty file.
const unsigned char *map_file()
{
    struct stat about;
    void *memory = MAP_FAILED;
    int file = find_file() ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0 && fstat(file, &about) == 0 && about.st_size > 0 && about.st_size <= UINT_MAX)
        memory = mmap(nullptr, static_cast<size_t>(about.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    if (file >= 0) close(file);
    if (memory == MAP_FAILED) return reinterpret_cast<const unsigned char *>("");
    length = static_cast<unsigned int>(about.st_size);
    return static_cast<const unsigned char *>(memory);
}

const unsigned char *const bytes = map_file();
const SharedLibrarySchemaV2::EmbeddedFile parameters = {MLFF_KIM_FILE, length, bytes};

__attribute__((destructor)) void unmap_file()
{
    if (length > 0) munmap(const_cast<unsigned char *>(bytes), length);
}
} // namespace

extern "C" {
__attribute__((visibility("default"))) int kim_shared_library_schema_version = KIM_SHARED_LIBRARY_SCHEMA_VERSION;

__attribute__((visibility("default"))) SharedLibrarySchemaV2 kim_shared_library_schema = {
    KIM::COLLECTION_ITEM_TYPE::portableModel,
    name,
    KIM::LANGUAGE_NAME::c,
    nullptr, // the driver creates the model
    MLFF_KIM_DRIVER,
    nullptr, // specification of a simulator model
    1,       // parameter files
    &parameters,
    0, // metadata files
    nullptr};
}
