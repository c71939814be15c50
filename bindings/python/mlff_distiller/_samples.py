# SPDX-License-Identifier: MIT
"""ASE's atoms as the C library's systems, and back: one, and lists of them."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import byref, c_char_p, c_int, c_int64, c_ubyte
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _library as lib
from . import _structs as s
from ._bridge import check_atoms, doubles, system_from_atoms
from ._handles import Handle
from ._values import as_c

if TYPE_CHECKING:
    from ase import Atoms


def has_moments(atoms: Atoms) -> bool:
    """Whether atoms have initial magnetic moments: ASE's calculators read them, and a C system does not hold them."""
    return bool(np.any(atoms.arrays.get("initial_magmoms", 0)))


def charge_of_atoms(atoms: Atoms) -> float:
    """The charge of the structure by the atoms' initial charges, which some of ASE's calculators read, as the command takes it from extended XYZ.
    0 where they tell none, or `info["charge"]` gives it."""
    charges = atoms.arrays.get("initial_charges")
    if charges is None or charges.ndim != 1 or charges.dtype.kind not in "iuf" or atoms.info.get("charge") is not None:
        return 0.0
    charge = float(lib.core.mlff_charge_of_sum(float(np.sum(charges))))
    return 0.0 if np.isnan(charge) else charge


def group_of(group: Any) -> int:
    """The number of a trajectory; texts have one too, as in extended XYZ. -1: none."""
    if isinstance(group, str):
        return int(lib.core.mlff_group_of_text(group.encode()))
    return int(as_c(c_int64, group, "group")) if isinstance(group, (int, np.integer)) else -1


class System:
    """A C system of ASE's atoms for the time of a `with`."""

    def __init__(self, atoms: Atoms) -> None:
        check_atoms(atoms)
        number = group_of(atoms.info.get("group", -1))
        self.address = system_from_atoms(atoms, 0, fixed=True)
        system = s.mlff_system.from_address(self.address)
        system.label_energy = float("nan")
        system.group = number
        if isinstance(kind := atoms.info.get("config_type"), str):
            system.config_type = kind.encode()[:23].decode(errors="ignore").encode()
        if charge := charge_of_atoms(atoms):
            system.charge = charge

    def __enter__(self) -> int:
        return self.address

    def __exit__(self, *exception: object) -> None:
        lib.core.mlff_system_destroy(self.address)


def atoms_from_system(address: int) -> Atoms:
    """ASE's atoms of a C system; labels become the results of a SinglePointCalculator."""
    from ase import Atoms
    from ase.calculators.singlepoint import SinglePointCalculator

    system = s.mlff_system.from_address(address)
    n = system.n_atoms
    numbers = np.ctypeslib.as_array((c_int * n).from_address(system.species)).copy()
    cell = np.array(system.cell[:]).reshape(3, 3)
    atoms = Atoms(numbers, doubles(system.positions, (n, 3)).copy(), cell=cell, pbc=[bool(flag) for flag in system.periodic])
    if system.group >= 0:
        atoms.info["group"] = int(system.group)
    if system.config_type:
        atoms.info["config_type"] = system.config_type.decode(errors="replace")
    for name, value in (("charge", system.charge), ("spin", system.spin)):
        if not np.isnan(value):
            atoms.info[name] = float(value)
    results: dict[str, Any] = {}
    if not np.isnan(system.label_energy):
        results["energy"] = system.label_energy
    if system.label_forces:
        results["forces"] = doubles(system.label_forces, (n, 3)).copy()
    if not np.isnan(system.label_stress[0]):
        results["stress"] = np.array(system.label_stress[:])
    if results:
        atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


class Samples:
    """The C library's list of structures, with each one's origin."""

    def __init__(self, frames: Iterable[Atoms] = (), origin: str = "python") -> None:
        out = Handle(lib.core.mlff_samples_destroy)
        lib.core.mlff_samples_create(byref(out))
        self.handle = out
        self.has_moments = False
        for atoms in frames:
            with System(atoms) as system:
                lib.core.mlff_samples_add(self.handle, system, str(atoms.info.get("origin", origin)).encode()[:23])
            self.has_moments = self.has_moments or has_moments(atoms)

    def atoms(self) -> list[Atoms]:
        from ase.constraints import FixAtoms

        found = []
        origin = c_char_p()
        for k in range(lib.core.mlff_samples_size(self.handle)):
            address = lib.core.mlff_samples_get(self.handle, k, byref(origin))
            atoms = atoms_from_system(address)
            if flags := s.mlff_system.from_address(address).fixed:
                held = np.ctypeslib.as_array((c_ubyte * len(atoms)).from_address(flags))
                atoms.set_constraint(FixAtoms(indices=np.flatnonzero(held)))
            atoms.info["origin"] = (origin.value or b"").decode("utf-8", "ignore")
            found.append(atoms)
        return found
