# SPDX-License-Identifier: MIT
"""ASE calculators as steps of the C profiler: every call is a real one, and waits until its work is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from ctypes import c_double
from typing import Any

import numpy as np
import numpy.typing as npt
from ase import Atoms
from ase.calculators.calculator import Calculator, PropertyNotImplementedError, all_changes

from . import _library as lib
from . import _structs as s
from ._bridge import MASKS, doubles

# Frames that repeat are shifted back and forth by this as a whole: energies and forces stay, caches do not hit.
SHIFT_ANGSTROM = 1e-3

PROPERTIES = ("energy", "forces", "stress")


def offered_by(calculator: Any) -> list[str]:
    """Which of energy, forces and stress a calculator offers."""
    known = getattr(calculator, "implemented_properties", None)
    if known is None:
        return [name for name in PROPERTIES if hasattr(calculator, "get_stress" if name == "stress" else "get_forces")]
    return [name for name in PROPERTIES if name in known]


def _plain(calculator: Any) -> bool:
    """True if ASE's own logic stands between a question and `calculate`: we can then ask for several properties at once."""
    return isinstance(calculator, Calculator) and type(calculator).calculate is not Calculator.calculate


class CalculatorStep:
    """One step: positions into the atoms, the properties out of the calculator, the results to where C wants them.

    Attributes:
        n_shifted: calls whose frame was that of the call before and was shifted.
        one_shot: the forces were there although only the energy was asked for; None before that was asked.
        host_ns: time of the last step outside `inner_ns`.
    """

    def __init__(self, calculator: Any, frames: Sequence[Atoms], wait: Callable[[Any], None] | None) -> None:
        self.calculator = calculator
        self.frames = [atoms.copy() for atoms in frames]
        self.wait = wait
        self.n_shifted = 0
        self.one_shot: bool | None = None
        self.host_ns = 0
        self.inner_ns: Callable[[], int] | None = None
        self._plain = _plain(calculator)
        self._lists = {mask: [p for p in PROPERTIES if mask & MASKS[p]] for mask in range(1, 8)}
        self._seen: dict[int, tuple[s.mlff_system, int, npt.NDArray[np.float64]]] = {}
        self._views: dict[tuple[int, int], npt.NDArray[np.float64]] = {}
        self._last = np.empty((0, 3))

    def __call__(self, frame: int, wanted: int, energy: int | None, forces: int | None, stress: int | None) -> None:
        start = time.perf_counter_ns()
        atoms = self._atoms_of(frame)
        results = self._evaluate(atoms, self._lists[wanted])
        if self.wait is not None:
            self.wait(results)
        if energy:
            c_double.from_address(energy).value = float(results["energy"])
        if forces:
            n = len(atoms)
            view = self._views.get((forces, n))
            if view is None:
                view = self._views[forces, n] = doubles(forces, (n, 3))
            view[:] = results["forces"]
        if stress:
            values = np.asarray(results["stress"], dtype=np.float64)
            doubles(stress, 6)[:] = values if values.shape == (6,) else values.reshape(3, 3).flat[[0, 4, 8, 5, 2, 1]]
        if self.inner_ns is not None:
            self.host_ns = time.perf_counter_ns() - start - self.inner_ns()

    def _atoms_of(self, address: int) -> Atoms:
        """The atoms of a C frame, moved to where it has them, and never where the call before had them."""
        seen = self._seen.get(address)
        if seen is None or seen[0].positions != seen[1] or len(seen[2]) != seen[0].n_atoms:
            system = s.mlff_system.from_address(address)
            if len(self._seen) > 4096:
                self._seen.clear()
                self._views.clear()
            seen = (system, system.positions, doubles(system.positions, (system.n_atoms, 3)))
            self._seen[address] = seen
        label = seen[0].label_energy
        atoms = self.frames[int(label) if label == label else 0]
        positions = atoms.arrays["positions"]
        positions[:] = seen[2]
        if self._last.shape == positions.shape and (self._last == positions).all():
            positions += SHIFT_ANGSTROM
            self.n_shifted += 1
        self._last = positions.copy()
        return atoms

    def _evaluate(self, atoms: Atoms, properties: list[str]) -> Any:
        calculator = self.calculator
        if self._plain:
            changes = calculator.check_state(atoms)
            if changes:
                calculator.reset()
            else:
                calculator.results.clear()
            if getattr(calculator, "use_cache", True):
                calculator.atoms = atoms.copy()
            # Atoms it has seen before the run: some, LAMMPSlib among them, compute nothing where nothing changed.
            calculator.calculate(atoms, list(properties), changes or list(all_changes))
            results = calculator.results
            missing = [p for p in properties if p not in results]
            if missing:
                raise PropertyNotImplementedError(f"{type(calculator).__name__} did not compute {', '.join(missing)}")
            if properties == ["energy"]:
                self.one_shot = "forces" in results
            return results
        results = {}
        # The most demanding first, so that what comes with it is not computed twice.
        if "stress" in properties:
            results["stress"] = calculator.get_stress(atoms)
        if "forces" in properties:
            results["forces"] = calculator.get_forces(atoms)
        if "energy" in properties:
            results["energy"] = calculator.get_potential_energy(atoms)
        return results


class StudentStages:
    """The stages of a student's evaluator, and one of our own: what Python and ASE take around it."""

    def __init__(self, evaluator: Any, step: CalculatorStep) -> None:
        self.evaluator = evaluator
        self.step = step
        self.rows = [*evaluator.stage_rows(), s.mlff_stage(b"host", b"", -1, b"Python, ASE, conversion of arrays")]
        step.inner_ns = lambda: int(evaluator.compute_ns)

    def clock_set(self, on: bool) -> None:
        self.evaluator.stage_clock(on)

    def times(self, address: int) -> None:
        n = len(self.rows)
        lib.core.mlff_evaluator_stage_times(self.evaluator._handle, address)
        c_double.from_address(address + 8 * (n - 1)).value = float(self.step.host_ns)
