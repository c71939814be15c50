// SPDX-License-Identifier: MIT
// kim_library.c: opens libkim-api and keeps what it logs.
#include "kim_library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "worker.h"

#define LIBRARY "libkim-api.so.2"

// The first error is the cause; those after it say that the caller failed too.
static char problem[160];

// "time * number * error * object * file:line * text\n"
static int keep_problem(const char *entry)
{
    if (problem[0]) return 0;
    for (int k = 0; k < 5; k++) {
        const char *star = strstr(entry, " * ");
        if (!star) break;
        entry = star + 3;
    }
    snprintf(problem, sizeof problem, "%.*s", (int)strcspn(entry, "\n"), entry);
    return 0;
}

const char *kim_library_problem(void)
{
    static char text[sizeof problem];
    snprintf(text, sizeof text, "%s", problem[0] ? problem : "no reason given");
    problem[0] = 0;
    return text;
}

typedef struct symbol {
    const char *name;
    size_t offset;
} symbol;

#define SYMBOL(name)                                                                                                             \
    {                                                                                                                            \
        "KIM_" #name, offsetof(kim_library, name)                                                                                \
    }

static const symbol symbols[] = {SYMBOL(Numbering_FromString),
                                 SYMBOL(LengthUnit_FromString),
                                 SYMBOL(EnergyUnit_FromString),
                                 SYMBOL(ChargeUnit_FromString),
                                 SYMBOL(TemperatureUnit_FromString),
                                 SYMBOL(TimeUnit_FromString),
                                 SYMBOL(SpeciesName_FromString),
                                 SYMBOL(ComputeArgumentName_FromString),
                                 SYMBOL(ComputeCallbackName_FromString),
                                 SYMBOL(LanguageName_FromString),
                                 SYMBOL(LogVerbosity_FromString),
                                 SYMBOL(LengthUnit_ToString),
                                 SYMBOL(EnergyUnit_ToString),
                                 SYMBOL(SupportStatus_ToString),
                                 SYMBOL(CollectionItemType_ToString),
                                 SYMBOL(Log_PushDefaultVerbosity),
                                 SYMBOL(Log_PushDefaultPrintFunction),
                                 SYMBOL(Collections_Create),
                                 SYMBOL(Collections_Destroy),
                                 SYMBOL(Collections_GetItemType),
                                 SYMBOL(Collections_GetItemLibraryFileNameAndCollection),
                                 SYMBOL(Model_Create),
                                 SYMBOL(Model_GetUnits),
                                 SYMBOL(Model_GetInfluenceDistance),
                                 SYMBOL(Model_GetNeighborListPointers),
                                 SYMBOL(Model_GetSpeciesSupportAndCode),
                                 SYMBOL(Model_ToString),
                                 SYMBOL(Model_ComputeArgumentsCreate),
                                 SYMBOL(Model_Compute),
                                 SYMBOL(ComputeArguments_GetArgumentSupportStatus),
                                 SYMBOL(ComputeArguments_SetArgumentPointerInteger),
                                 SYMBOL(ComputeArguments_SetArgumentPointerDouble),
                                 SYMBOL(ComputeArguments_SetCallbackPointer),
                                 SYMBOL(ComputeArguments_AreAllRequiredArgumentsAndCallbacksPresent)};

mlff_status kim_library_open(kim_library *kim, char *file, size_t file_bytes)
{
    void *h = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), *function;
    if (!h)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "kim: %s cannot be opened (%s); install it: apt-get install libkim-api2", LIBRARY,
                         dlerror());
    for (size_t k = 0; k < sizeof symbols / sizeof *symbols; k++)
        if (!worker_find(h, symbols[k].name, (char *)kim + symbols[k].offset))
            return mlff_fail(MLFF_ERR_UNSUPPORTED, "kim: %s lacks %s; install libkim-api 2.3", LIBRARY, symbols[k].name);
    memcpy(&function, &kim->Model_Create, sizeof function);
    worker_library_file(function, file, file_bytes);
    kim->Log_PushDefaultVerbosity(kim->LogVerbosity_FromString("error"));
    kim->Log_PushDefaultPrintFunction(kim->LanguageName_FromString("c"), (kim_function *)keep_problem);
    return MLFF_OK;
}
