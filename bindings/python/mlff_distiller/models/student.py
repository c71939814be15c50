# SPDX-License-Identifier: MIT
"""The student: any model file of ours as an ASE calculator."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, PropertyNotImplementedError, all_changes

from .._arrays import changed_conditions, charge_and_spin, host_array, refuse_settings
from .._bridge import batch_of
from ..engine import Evaluator, Model, ModelInfo
from ..errors import MlffUsageError


# Which output of a model a property of ASE needs.
_OUTPUT_OF = {"forces": "forces", "stress": "stresses", "energies": "atom_energies"}


class StudentCalculator(Calculator):  # type: ignore[misc]
    """Energies, forces and stress of a model file, for ASE's dynamics, optimizers, vibrations and everything else.

    Results (ASE's units and signs): "energy" and "free_energy" eV, "energies" [n_atoms] eV, "forces" [n_atoms][3] eV/Å,
    "stress" [6] eV/Å³ in Voigt order xx yy zz yz xz xy, for cells that repeat along all three axes.

    What is not asked for is not computed where that saves work; asking for the forces gives the energy too. Threads may
    share a calculator (they wait for each other). Models that depend on charge and spin read `atoms.info["charge"]` (e) and
    `atoms.info["spin"]` (multiplicity 2S + 1) of the whole structure.

    Args:
        model: path of a model file (.safetensors), or a `Model`.
        device: "auto" (a GPU where one works, else the CPU), "cpu", "cuda", "cuda:1".
        precision: "float32"; "float64", the reference, of the CPU; "tf32", "bf16", fast modes of GPUs ("tf32" of CPUs with AMX and "bf16" of
            Orb on the CPU too).
        skin: Å, of the neighbor list; more means fewer rebuilds and more pairs.
        n_threads: of the CPU; 0 takes all cores this process may use.
        members: of an ensemble, those to run, as [0, 3]; None: all, and the results are their mean.
        uncertainty: True adds to the results of each calculation what `ensemble` gives, or of a model that estimates the error of its
            forces (Orb-v3) "force_errors" [n_atoms] eV/Å.

    Raises:
        MlffDeviceError: a GPU was asked for and there is none.
        MlffFileError, MlffFormatError: the model file cannot be read.
    """

    implemented_properties = ["energy", "free_energy", "forces", "stress", "energies"]
    atoms: Any
    default_parameters: dict[str, Any] = {}
    nolabel = True

    def __init__(
        self,
        model: str | os.PathLike[str] | Model,
        device: str = "auto",
        precision: str = "float32",
        skin: float = 0.5,
        n_threads: int = 0,
        members: Sequence[int] | None = None,
        uncertainty: bool = False,
        **kwargs: Any,
    ) -> None:
        settings: dict[str, Any] = {
            "device": device, "precision": precision, "skin": skin, "n_threads": n_threads, "members": members,
        }  # fmt: skip
        self.evaluator = Evaluator(model, **settings)
        self._uncertainty = uncertainty
        self._estimates_errors = uncertainty and "force_errors" in self.evaluator.model.info.outputs
        self._settings = {**settings, "uncertainty": uncertainty}
        self._stress_wanted = False
        info = self.model_info
        self._name = f"student {info.name}"
        if unknown := set(kwargs) - {"atoms", "directory", "label"}:
            raise TypeError(f"StudentCalculator has no setting {', '.join(sorted(unknown))}; it has {', '.join(self._settings)}")
        super().__init__(**kwargs)
        self.parameters.update(self._settings, model=info.name)
        missing = {name for name, output in _OUTPUT_OF.items() if output not in info.outputs}
        if missing:
            self.implemented_properties = [name for name in self.implemented_properties if name not in missing]

    @property
    def name(self) -> str:
        """Name of the calculator in ASE's files."""
        return self._name

    @property
    def model(self) -> Model:
        """The model; it may be shared with other calculators."""
        return self.evaluator.model

    @property
    def model_info(self) -> ModelInfo:
        """Architecture, elements, cutoff and units of the model."""
        return self.evaluator.model.info

    @property
    def device(self) -> str:
        """Where it computes: "cpu", "cuda:0"."""
        return self.evaluator.device

    def __reduce__(self) -> tuple[Any, ...]:
        state = {name: value for name, value in self.__dict__.items() if name != "evaluator"}
        return _rebuild, (type(self), self.model, self._settings), state

    # ---- ASE -----------------------------------------------------------------------------------------------------

    def set(self, **settings: Any) -> dict[str, Any]:
        """Refuses settings: a calculator has those that it was made with."""
        return refuse_settings(self, settings)

    def get_spin_polarized(self) -> bool:
        """False. (Where a class has none, ASE ties each calculator to itself, and its memory stays until a collection.)"""
        return False

    def check_state(self, atoms: Atoms, tol: float = 1e-15) -> list[str]:
        """What changed since the last call, of "positions", "numbers", "cell", "pbc" and `info`'s charge and spin: as ASE's own
        method, in a tenth of its time. Charges and magnetic moments of atoms, on which no result depends, are not compared."""
        stored = self.atoms
        if stored is None or len(stored) != len(atoms):
            return list(all_changes)
        now, then = atoms.arrays, stored.arrays
        changes = [name for name in ("positions", "numbers") if now[name].shape != then[name].shape or (now[name] != then[name]).any()]
        if (atoms.cell.array != stored.cell.array).any():
            changes.append("cell")
        if (atoms.pbc != stored.pbc).any():
            changes.append("pbc")
        return changes + changed_conditions(stored, atoms)

    def get_property(self, name: str, atoms: Atoms | None = None, allow_calculation: bool = True) -> Any:
        """One property, as by ASE's method of this name."""
        with self.evaluator.lock:
            return super().get_property(name, atoms, allow_calculation)

    def get_potential_energy(self, atoms: Atoms | None = None, force_consistent: bool = False) -> float:
        """Energy, eV; the force-consistent one is the same."""
        with self.evaluator.lock:
            return float(super().get_potential_energy(atoms, force_consistent))

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = tuple(all_changes),
    ) -> None:
        """Computes `properties` of `atoms` into `results`."""
        with self.evaluator.lock:
            stored: Atoms | None = self.atoms
            if atoms is None:
                atoms = stored
            elif stored is None or self.check_state(atoms):  # whatever system_changes tells
                self.atoms = atoms.copy()
                self.results = {}  # of other atoms: a caller of this method has not reset them, as get_property has
            if atoms is None:
                raise MlffUsageError("StudentCalculator: there are no atoms to compute")
            periodic_everywhere = bool(np.all(atoms.pbc))
            stress = "stress" in properties
            if stress and not periodic_everywhere:
                raise PropertyNotImplementedError("the stress needs a cell that repeats along all three axes")
            # A barostat asks for forces, then for the stress of the same atoms: from then on one call serves both.
            self._stress_wanted = self._stress_wanted or list(properties) == ["stress"]
            if list(properties) == ["forces"] and self._stress_wanted and periodic_everywhere:
                stress = True
            self.results.update(self._compute(atoms, stress or "forces" in properties, stress))

    def _compute(self, atoms: Atoms, forces: bool, stress: bool) -> dict[str, Any]:
        has_energies = "energies" in self.implemented_properties
        charge, spin = charge_and_spin(atoms)
        out = self.evaluator.compute(
            atoms.arrays["numbers"],
            atoms.arrays["positions"],
            cells=_cell_or_none(atoms),
            periodic=atoms.pbc,
            forces=forces,
            stresses=stress,
            atom_energies=has_energies,
            members=self._uncertainty and not self._estimates_errors,
            force_errors=self._estimates_errors,
            charges=charge,
            spins=spin,
        )
        energy = float(out["energies"][0])
        results: dict[str, Any] = {"energy": energy, "free_energy": energy}
        if self._estimates_errors:
            results["force_errors"] = out["force_errors"]
        elif self._uncertainty:
            results.update(_of_members(out))
        if has_energies:
            results["energies"] = out["atom_energies"]
        if forces:
            results["forces"] = out["forces"]
        if stress:
            results["stress"] = out["stresses"][0]
        return results

    # ---- more than one system at once ------------------------------------------------------------------------------

    def calculate_batch(
        self, systems: Iterable[Atoms], properties: Sequence[str] = ("energy", "forces")
    ) -> list[dict[str, Any]]:
        """Results of several structures, of any sizes, in one call of the engine; equal to one call for each.

        Args:
            systems: structures; an empty list gives an empty list.
            properties: of "energy", "forces", "stress", "energies".

        Returns:
            For each structure a dictionary as `results` has it. "stress" is missing for structures that do not repeat
            along all three axes.
        """
        systems, properties = batch_of(systems, properties)
        known = {"energy", "free_energy", "forces", "stress", "energies"}
        if set(properties) - known:
            raise PropertyNotImplementedError(f"{', '.join(sorted(set(properties) - known))}: not among {', '.join(sorted(known))}")
        if not systems:
            return []
        counts = [len(atoms) for atoms in systems]
        first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        conditions = np.array([charge_and_spin(atoms) for atoms in systems], dtype=float)  # None is NaN: not given
        out = self.evaluator.compute(
            np.concatenate([atoms.numbers for atoms in systems]),
            np.concatenate([host_array(atoms.positions, np.float64, (-1, 3), "positions") for atoms in systems]),
            cells=np.stack([atoms.cell.array for atoms in systems]),
            periodic=np.stack([atoms.pbc for atoms in systems]),
            first_atom=first,
            forces="forces" in properties,
            stresses="stress" in properties,
            atom_energies="energies" in properties,
            charges=conditions[:, 0],
            spins=conditions[:, 1],
        )
        rows: list[dict[str, Any]] = []
        for i, atoms in enumerate(systems):
            part = slice(first[i], first[i + 1])
            energy = float(out["energies"][i])
            row: dict[str, Any] = {"energy": energy, "free_energy": energy}
            if "energies" in properties:
                row["energies"] = out["atom_energies"][part].copy()
            if "forces" in properties:
                row["forces"] = out["forces"][part].copy()
            if "stress" in properties and np.all(atoms.pbc):
                row["stress"] = out["stresses"][i].copy()
            rows.append(row)
        return rows

    def ensemble(self, atoms: Atoms) -> dict[str, Any]:
        """Results of each member of an ensemble, and their standard deviations, its uncertainty.

        Returns:
            "member_energies" [n_members] eV, "member_forces" [n_members][n_atoms][3] eV/Å, "energy_deviation" eV and
            "force_deviations" [n_atoms][3] eV/Å, standard deviations over the members (NaN for one).
        """
        charge, spin = charge_and_spin(atoms)
        out = self.evaluator.compute(
            atoms.numbers, atoms.positions, _cell_or_none(atoms), atoms.pbc, members=True, charges=charge, spins=spin
        )
        return _of_members(out)

    def memory(self) -> dict[str, int]:
        """Bytes held by this calculator's evaluator: "host_bytes", "device_bytes". They grow with the largest batch."""
        info = self.evaluator.info
        return {"host_bytes": info["host_bytes"], "device_bytes": info["device_bytes"]}


def _cell_or_none(atoms: Atoms) -> Any:
    """The cell also where nothing repeats: whether there is one decides whether Orb's direct models remove the net torque."""
    return atoms.cell.array if np.any(atoms.cell.array) else None


def _of_members(out: dict[str, Any]) -> dict[str, Any]:
    """Results of the members of an ensemble for one system, under the names of `ensemble`."""
    found = {"member_energies": out["member_energies"][:, 0], "energy_deviation": float(out["energy_deviations"][0])}
    return found | {name: out[name] for name in ("member_forces", "force_deviations") if name in out}


def _rebuild(kind: type[StudentCalculator], model: Model, settings: dict[str, Any]) -> StudentCalculator:
    made = kind.__new__(kind)
    StudentCalculator.__init__(made, model, **settings)
    return made
