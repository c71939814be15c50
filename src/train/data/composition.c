// SPDX-License-Identifier: MIT
// composition.c: the name of what a structure is made of.
#include "composition.h"

#include <stdio.h>

void composition_name(const mlff_system *system, char name[COMPOSITION_NAME_BYTES])
{
    const bool periodic = system->periodic[0] || system->periodic[1] || system->periodic[2];
    char formula[COMPOSITION_NAME_BYTES];
    mlff_system_formula(system, formula, sizeof formula);
    snprintf(name, COMPOSITION_NAME_BYTES, "%s%.50s", periodic ? "cell " : "", formula);
}
