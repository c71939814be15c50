/* SPDX-License-Identifier: MIT */
/* loaded_code.h: which build of the library computes. */
#ifndef LOADED_CODE_H
#define LOADED_CODE_H

#include "base/sha256.h"
#include "mlff.h"

/* SHA-256 of the code that computes on `device`: of the library, or the program that it is linked into, and on a GPU of the plugin. */
void device_code_hash(mlff_device device, char text[SHA256_TEXT_BYTES]);

#endif
