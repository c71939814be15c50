// SPDX-License-Identifier: MIT
// device.c: names of devices.
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "mlff.h"

mlff_status mlff_device_parse(const char *text, mlff_device *device_out)
{
    int64_t index = 0;
    if (!text || !device_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_device_parse: text and device_out must be given");
    if (strcmp(text, "cpu") == 0) {
        *device_out = (mlff_device){.kind = MLFF_CPU};
        return MLFF_OK;
    }
    if (strcmp(text, "auto") == 0) {
        base_warn("device auto: this build has no GPU support; using the CPU");
        *device_out = (mlff_device){.kind = MLFF_CPU};
        return MLFF_OK;
    }
    if (strcmp(text, "cuda") == 0 ||
        (strncmp(text, "cuda:", 5) == 0 && base_parse_int64(text + 5, &index) && index >= 0 && index < 1024))
        return mlff_fail(MLFF_ERR_DEVICE, "device %s: this build has no GPU support; use cpu", text);
    return mlff_fail(MLFF_ERR_USAGE, "device \"%.40s\" is not known; use auto, cpu, cuda or cuda:INDEX", text);
}

void mlff_device_text(mlff_device device, char *text, size_t text_bytes)
{
    if (device.kind == MLFF_CPU)
        snprintf(text, text_bytes, "cpu");
    else
        snprintf(text, text_bytes, "cuda:%d", device.index);
}
