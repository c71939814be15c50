/* SPDX-License-Identifier: MIT */
/* composition.h: the name of what a structure is made of. */
#ifndef COMPOSITION_H
#define COMPOSITION_H

#include "base/base.h"
#include "mlff_atoms.h"

enum { COMPOSITION_NAME_BYTES = 64 };

/* Its formula, of a structure with periodic axes after "cell ": molecules and crystals are told apart. */
void composition_name(const mlff_system *system, char name[COMPOSITION_NAME_BYTES]);

#endif
