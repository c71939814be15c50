/* SPDX-License-Identifier: MIT */
/* driver.h: what the KIM model driver and the program that installs models share. */
#ifndef DRIVER_H
#define DRIVER_H

#include "mlff.h"

/* Names of the driver in the KIM collections and of a model's file in its folder. */
#define MLFF_KIM_DRIVER "MLFF_Distiller_Driver"
#define MLFF_KIM_FILE "model.safetensors"

/* MLFF_ERR_UNSUPPORTED, with the reason, for a model that cannot be a KIM model. */
mlff_status driver_check_model(const mlff_model *model);

#endif
