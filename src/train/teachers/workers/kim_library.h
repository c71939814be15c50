/* SPDX-License-Identifier: MIT */
/* kim_library.h: the part of the KIM API's C interface (2.3, KIM_SimulatorHeaders.h) that a simulator of single structures calls, from
 * libkim-api opened at run time. Its enumerations are structs of one int, passed by value. */
#ifndef KIM_LIBRARY_H
#define KIM_LIBRARY_H

#include "base/base.h"

typedef struct kim_id {
    int id;
} kim_id;
typedef struct kim_model kim_model;
typedef struct kim_arguments kim_arguments;
typedef struct kim_collections kim_collections;
typedef void kim_function(void);

/* Fields are named as the functions, without KIM_. Those that return int give 0 for success. */
typedef struct kim_library {
    kim_id (*Numbering_FromString)(const char *text);
    kim_id (*LengthUnit_FromString)(const char *text);
    kim_id (*EnergyUnit_FromString)(const char *text);
    kim_id (*ChargeUnit_FromString)(const char *text);
    kim_id (*TemperatureUnit_FromString)(const char *text);
    kim_id (*TimeUnit_FromString)(const char *text);
    kim_id (*SpeciesName_FromString)(const char *text);
    kim_id (*ComputeArgumentName_FromString)(const char *text);
    kim_id (*ComputeCallbackName_FromString)(const char *text);
    kim_id (*LanguageName_FromString)(const char *text);
    kim_id (*LogVerbosity_FromString)(const char *text);
    const char *(*LengthUnit_ToString)(kim_id unit);
    const char *(*EnergyUnit_ToString)(kim_id unit);
    const char *(*SupportStatus_ToString)(kim_id status);
    const char *(*CollectionItemType_ToString)(kim_id type);
    void (*Log_PushDefaultVerbosity)(kim_id verbosity);
    void (*Log_PushDefaultPrintFunction)(kim_id language, kim_function *function);
    int (*Collections_Create)(kim_collections **collections);
    void (*Collections_Destroy)(kim_collections **collections);
    int (*Collections_GetItemType)(kim_collections *collections, const char *name, kim_id *type);
    int (*Collections_GetItemLibraryFileNameAndCollection)(kim_collections *collections, kim_id type, const char *name,
                                                           const char **file, kim_id *collection);
    int (*Model_Create)(kim_id numbering, kim_id length, kim_id energy, kim_id charge, kim_id temperature, kim_id time,
                        const char *name, int *units_accepted, kim_model **model);
    void (*Model_GetUnits)(const kim_model *model, kim_id *length, kim_id *energy, kim_id *charge, kim_id *temperature,
                           kim_id *time);
    void (*Model_GetInfluenceDistance)(const kim_model *model, double *distance);
    void (*Model_GetNeighborListPointers)(const kim_model *model, int *n_lists, const double **cutoffs,
                                          const int **no_ghost_rows);
    int (*Model_GetSpeciesSupportAndCode)(const kim_model *model, kim_id species, int *supported, int *code);
    const char *(*Model_ToString)(const kim_model *model);
    int (*Model_ComputeArgumentsCreate)(const kim_model *model, kim_arguments **arguments);
    int (*Model_Compute)(const kim_model *model, const kim_arguments *arguments);
    int (*ComputeArguments_GetArgumentSupportStatus)(const kim_arguments *arguments, kim_id name, kim_id *status);
    int (*ComputeArguments_SetArgumentPointerInteger)(kim_arguments *arguments, kim_id name, const int *pointer);
    int (*ComputeArguments_SetArgumentPointerDouble)(kim_arguments *arguments, kim_id name, const double *pointer);
    int (*ComputeArguments_SetCallbackPointer)(kim_arguments *arguments, kim_id name, kim_id language, kim_function *function,
                                               void *data);
    void (*ComputeArguments_AreAllRequiredArgumentsAndCallbacksPresent)(const kim_arguments *arguments, int *result);
} kim_library;

/* Opens libkim-api in this process, with its log of errors in memory: no kim.log is written. `file` gets the library's own name.
 * Fails with MLFF_ERR_UNSUPPORTED where it is absent or of another interface. */
mlff_status kim_library_open(kim_library *kim, char *file, size_t file_bytes);
/* The first error that the KIM API or the model logged since it was asked last, or "no reason given"; in static memory. */
const char *kim_library_problem(void);

#endif
