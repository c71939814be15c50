// SPDX-License-Identifier: MIT
// driver_item.cc: what the KIM API reads first in a shared library of a model driver.
#include "KIM_CollectionItemType.hpp"
#include "KIM_LanguageName.hpp"
#include "KIM_SharedLibrarySchema.hpp"

#include "driver.h"

extern "C" {
int model_driver_create(...);

__attribute__((visibility("default"))) int kim_shared_library_schema_version = KIM_SHARED_LIBRARY_SCHEMA_VERSION;

__attribute__((visibility("default"))) KIM::SHARED_LIBRARY_SCHEMA::SharedLibrarySchemaV2 kim_shared_library_schema = {
    KIM::COLLECTION_ITEM_TYPE::modelDriver,
    MLFF_KIM_DRIVER,
    KIM::LANGUAGE_NAME::c,
    reinterpret_cast<KIM::Function *>(model_driver_create),
    nullptr, // the driver's own driver
    nullptr, // specification of a simulator model
    0,       // parameter files
    nullptr,
    0, // metadata files
    nullptr};
}
