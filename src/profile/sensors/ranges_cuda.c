// SPDX-License-Identifier: MIT
// ranges_cuda.c: named ranges for NVIDIA's tools (NVTX), where the build had their header; one branch where no tool listens.
#include "profile/run/run.h"

#ifdef MLFF_NVTX
#include <nvtx3/nvToolsExt.h>

static nvtxDomainHandle_t domain(void)
{
    static nvtxDomainHandle_t mlff;
    if (!mlff) mlff = nvtxDomainCreateA("mlff"); // NULL again and again where no tool listens
    return mlff;
}

void ranges_begin(const char *name)
{
    nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                   .message.ascii = name};
    nvtxDomainRangePushEx(domain(), &event);
}

void ranges_end(void)
{
    nvtxDomainRangePop(domain());
}
#else
void ranges_begin(const char *name)
{
    (void)name;
}

void ranges_end(void)
{
}
#endif
