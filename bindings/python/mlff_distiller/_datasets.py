# SPDX-License-Identifier: MIT
"""Labelled structures: from files, ASE's databases and atoms with results."""

from __future__ import annotations

import os
from collections.abc import Iterable
from ctypes import byref, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _library as lib
from . import _structs as s
from ._arrays import host_array, voigt
from ._bridge import changed_since, check_atoms
from ._devices import parse_device
from ._energies import force_consistent, warn_if_other
from ._handles import Handle
from ._samples import System, atoms_from_system
from .engine import Array, Model
from .errors import MlffUsageError, MlffValueError

if TYPE_CHECKING:
    from ase import Atoms


def _labels_elsewhere(atoms: Atoms) -> str:
    """Where atoms have what may be labels outside of a calculator, as the arguments that take them: "energy=atoms.info['REF_energy']"."""
    n = len(atoms)
    found: dict[str, str] = {}
    for key, value in atoms.info.items():
        name, shape = key.lower(), np.shape(value)
        if name.endswith("energy") and not name.endswith("kinetic_energy") and shape == ():
            found.setdefault("energy", f"atoms.info[{key!r}]")
        elif name.endswith("stress") and shape in ((6,), (9,), (3, 3)):
            found.setdefault("stress", f"atoms.info[{key!r}]")
    for key, value in atoms.arrays.items():
        if key.lower().endswith(("force", "forces")) and np.shape(value) == (n, 3):
            found.setdefault("forces", f"atoms.arrays[{key!r}]")
    return ", ".join(f"{name}={found[name]}" for name in ("energy", "forces", "stress") if name in found)


class Dataset:
    """Labelled structures, checked: finite labels, neutral systems.

    A sequence of Atoms, whose labels are the results of their calculator.
    """

    def __init__(self, frames: Iterable[Atoms] = ()) -> None:
        out = Handle(lib.core.mlff_dataset_destroy)
        lib.core.mlff_dataset_create(byref(out))
        self._handle = out
        for atoms in frames:
            self.add(atoms)

    @classmethod
    def _of(cls, handle: Handle) -> Dataset:
        made = cls.__new__(cls)
        made._handle = handle
        return made

    @classmethod
    def read(
        cls,
        *paths: str | os.PathLike[str],
        largest_force: float = float("inf"),
        largest_force_deviation: float = float("inf"),
        n_threads: int = 0,
    ) -> Dataset:
        """Files of labels (`label`), extended XYZ, and ASE's databases (.db), where the key `group` numbers the trajectory of a row.

        Args:
            largest_force: eV/Å; structures with a larger force are left out.
            largest_force_deviation: eV/Å; so are those of which an ensemble of teachers is less sure.
            n_threads: CPU threads; 0: all cores.
        """
        for path in paths:
            if not isinstance(path, (str, os.PathLike)):
                raise TypeError(f"{path!r:.60} in place of the name of a file; give several names one by one, and structures to Dataset(frames)")
        made = cls()
        options = lib.core.mlff_read_options_default()
        options.largest_force, options.largest_force_deviation = largest_force, largest_force_deviation
        options.n_threads = n_threads
        for path in paths:
            if os.fspath(path).endswith(".db"):
                made._read_database(path, largest_force)
                continue
            lib.core.mlff_dataset_read_some(made._handle, lib.path_bytes(path), byref(options), byref(c_int64()))
        lib.core.mlff_dataset_center_atom_energies(made._handle)
        return made

    def _read_database(self, path: str | os.PathLike[str], largest_force: float) -> None:
        from ase.db import connect

        for row in connect(os.fspath(path)).select():
            atoms = row.toatoms()
            atoms.info["group"] = row.key_value_pairs.get("group", -1)
            if "forces" in row and np.linalg.norm(row.forces, axis=1).max() > largest_force:
                continue
            self._add_results(atoms, 1.0, f"{os.fspath(path)}: row {row.id}")

    def _add_results(self, atoms: Atoms, weight: float, name: str) -> None:
        results = {} if atoms.calc is None else atoms.calc.results
        if not results and (elsewhere := _labels_elsewhere(atoms)):
            raise MlffValueError(
                f"{name}: no label in a calculator, where ASE keeps them; there may be some elsewhere: "
                f"atoms.calc = SinglePointCalculator(atoms, {elsewhere}), or Dataset.add(atoms, {elsewhere})"
            )
        energy, label = results.get("energy"), None if atoms.calc is None else force_consistent(atoms.calc)
        stress = results.get("stress") if all(atoms.pbc) else None
        self.add(atoms, float("nan") if label is None else label, results.get("forces"), stress, weight)
        if label is None:
            return
        has_free = results.get("free_energy") is not None
        is_other = warn_if_other(energy, label) or (energy is None and has_free)
        if is_other or not has_free:
            lib.core.mlff_dataset_note_energy(self._handle, lib.path_bytes(name), int(is_other))

    def add(
        self, atoms: Atoms, energy: float | None = None, forces: Any = None, stress: Any = None, weight: float = 1.0
    ) -> None:
        """Adds a copy. Without energy, forces and stress: the results that `atoms.calc` holds already, which must be of these atoms;
        "free_energy", whose derivative the forces are, rather than "energy".

        Args:
            energy: eV.
            forces: [n_atoms][3] eV/Å.
            stress: [6] eV/Å³ in Voigt order, or [3][3]; of structures that repeat along all axes.
            weight: in the loss.
        """
        check_atoms(atoms)
        if energy is None and forces is None and stress is None:
            if atoms.calc is not None and (changed := changed_since(atoms)):
                raise MlffUsageError(
                    f"the results of {type(atoms.calc).__name__} are of other {changed} than these atoms have; "
                    "compute them again, or give energy and forces"
                )
            self._add_results(atoms, weight, f"structure {len(self)}")
            return
        f = None if forces is None else host_array(forces, np.float64, (len(atoms), 3), "forces")
        v = None if stress is None else voigt(stress)
        row = s.mlff_labels(energy=float("nan") if energy is None else float(energy), weight=weight)
        row.forces = None if f is None else f.ctypes.data
        row.stress = None if v is None else v.ctypes.data
        with System(atoms) as system:
            lib.core.mlff_dataset_add(self._handle, system, byref(row))

    def __len__(self) -> int:
        return int(lib.core.mlff_dataset_size(self._handle))

    def __getitem__(self, index: int) -> Atoms:
        k = index + len(self) if index < 0 else index
        if not 0 <= k < len(self):
            raise IndexError(f"structure {index} of a dataset of {len(self)}")
        out = c_void_p()
        lib.core.mlff_dataset_get(self._handle, k, byref(out))
        try:
            return atoms_from_system(out.value or 0)
        finally:
            lib.core.mlff_system_destroy(out)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file of labels from which `read` makes the same dataset: structures with groups, labels and weights, to the bit."""
        lib.core.mlff_dataset_save(self._handle, lib.path_bytes(path))

    def split(self, fraction: float = 0.1, seed: int = 0) -> tuple[Dataset, Dataset]:
        """Training and validation, about `fraction` of the structures; whole groups (trajectories) go to either."""
        training, validation = Handle(lib.core.mlff_dataset_destroy), Handle(lib.core.mlff_dataset_destroy)
        lib.core.mlff_dataset_split(self._handle, fraction, seed, byref(training), byref(validation))
        return Dataset._of(training), Dataset._of(validation)

    def remove_far(self, model: Model, largest_error: float, device: str = "auto", n_threads: int = 0) -> int:
        """Removes structures at which a force of `model` is off by more than `largest_error` on an atom, eV/Å, or not finite. A training that
        begins with `model` cannot learn where it diverges.

        Args:
            device: "cpu", "cuda", "cuda:1", or "auto": a GPU if one works, else the CPU.
            n_threads: CPU threads; 0: all cores.

        Returns:
            How many structures were removed.
        """
        options, n = lib.core.mlff_evaluator_options_default(), c_int64()
        options.device, options.n_threads = parse_device(device).struct, n_threads
        lib.core.mlff_dataset_remove_far(self._handle, model._handle, largest_error, byref(options), byref(n))
        return n.value

    def copies(self, of: Dataset) -> dict[int, int]:
        """Structures that are also in `of`, as they are, moved, turned, mirrored or with atoms in another order.

        Returns:
            The index of each such structure, and that of one in `of` that it is a copy of.
        """
        if not isinstance(of, Dataset):
            raise TypeError(f"of must be a Dataset, not {type(of).__name__}")
        n, indices = c_int64(), np.empty(len(self), dtype=np.int64)
        lib.core.mlff_dataset_copies(self._handle, of._handle, byref(n), indices.ctypes.data)
        return {k: int(copy) for k, copy in enumerate(indices) if copy >= 0}

    def check(self) -> None:
        """Looks for structures that no student can learn from: other units, signs or methods, two atoms on one point. Warns of single
        energies far from those of structures of the same atoms that forces and distances do not explain, as of a failed calculation.

        Raises:
            MlffValueError: names the structure whose energy, forces or stress do not fit the others', or each other.
        """
        lib.core.mlff_dataset_check(self._handle)

    def shifts(self) -> dict[int, float]:
        """Energy of each element, eV by atomic number, that fits the labels best (minimum-norm least squares)."""
        values = np.zeros(119)
        lib.core.mlff_dataset_shifts(self._handle, values.ctypes.data)
        return {z: float(value) for z, value in enumerate(values) if value != 0}
