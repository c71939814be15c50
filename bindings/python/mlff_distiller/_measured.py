# SPDX-License-Identifier: MIT
"""ASE calculators as steps of the C profiler: every call computes, and returns when its work is done."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from ctypes import c_double
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, PropertyNotImplementedError, all_changes

from . import _library as lib
from . import _structs as s
from ._arrays import unmasked
from ._bridge import MASKS, doubles
from .errors import MlffUsageError, MlffValueError

# A frame with the positions of the previous call is translated by this: energies and forces stay the same, and caches miss.
SHIFT_ANGSTROM = 1e-3

PROPERTIES = ("energy", "forces", "stress")


def offered_by(calculator: Any) -> list[str]:
    """Which of energy, forces and stress a calculator offers."""
    if isinstance(calculator, type):
        raise MlffUsageError(f"the class {calculator.__name__} in place of a calculator: call it to make one")
    known = getattr(calculator, "implemented_properties", None)
    if known is None:
        return [name for name in PROPERTIES if hasattr(calculator, "get_stress" if name == "stress" else "get_forces")]
    return [name for name in PROPERTIES if name in known]


def _plain(calculator: Any) -> bool:
    """True if `calculate` is called through ASE's own logic: several properties can then be requested in one call."""
    return isinstance(calculator, Calculator) and type(calculator).calculate is not Calculator.calculate


class CalculatorStep:
    """One step: copies positions into the atoms, runs the calculator, copies the results to the addresses that C gave.

    Attributes:
        n_shifted: calls with the positions of the previous call, which were translated.
        one_shot: True if the calculator also computes forces when only the energy is requested; None: not known yet.
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
        # Everything a step needs exists before the first one: an object kept for each frame would look like a leak of the
        # calculator's.
        self._positions = [atoms.arrays["positions"] for atoms in self.frames]
        self._addresses = [int(positions.ctypes.data) for positions in self._positions]
        largest = max(len(atoms) for atoms in self.frames)
        self._forces = np.empty((largest, 3))
        self._last = np.empty((largest, 3))
        self._n_last = 0

    def __call__(self, frame: int, wanted: int, energy: int | None, forces: int | None, stress: int | None) -> None:
        start = time.perf_counter_ns()
        atoms = self._atoms_of(frame)
        results = self._evaluate(atoms, self._lists[wanted])
        if self.wait is not None:
            self.wait(results)
        kind = "energy"
        try:
            if energy:
                c_double.from_address(energy).value = float(results["energy"])
            kind = "forces"
            if forces:
                n = len(atoms)
                given = unmasked(results["forces"], kind)
                self._forces[:n] = given
                if getattr(given, "shape", None) != (n, 3) and np.shape(given) != (n, 3):  # NumPy repeats what is smaller
                    raise ValueError
                ctypes.memmove(forces, self._forces.ctypes.data, 24 * n)
            kind = "stress"
            if stress:
                values = np.asarray(unmasked(results["stress"], kind), dtype=np.float64)
                doubles(stress, 6)[:] = values if values.shape == (6,) else values.reshape(3, 3).flat[[0, 4, 8, 5, 2, 1]]
        except MlffUsageError as error:
            raise MlffValueError(f"{type(self.calculator).__name__} gave {error}") from None
        except (TypeError, ValueError) as error:
            raise self._misshapen(kind, results[kind], len(atoms)) from error
        if self.inner_ns is not None:
            self.host_ns = time.perf_counter_ns() - start - self.inner_ns()

    def _misshapen(self, kind: str, value: Any, n_atoms: int) -> MlffValueError:
        expected = {"energy": "one number", "forces": f"numbers of shape ({n_atoms}, 3)", "stress": "6 or 3 x 3 numbers"}[kind]
        given = f"an array of shape {np.shape(value)}" if isinstance(value, (np.ndarray, list, tuple)) else f"{value!r:.60}"
        return MlffValueError(f"{type(self.calculator).__name__} gave as {kind} {given}; expected {expected}")

    def _atoms_of(self, address: int) -> Atoms:
        """The atoms of a C frame, moved to its positions, which always differ from those of the previous call."""
        system = s.mlff_system.from_address(address)
        label, n = system.label_energy, system.n_atoms
        index = int(label) if label == label else 0
        atoms, positions = self.frames[index], self._positions[index]
        if atoms.arrays["positions"] is not positions:  # the calculator replaced the array
            positions = self._positions[index] = np.ascontiguousarray(atoms.arrays["positions"], dtype=np.float64)
            atoms.arrays["positions"] = positions
            self._addresses[index] = int(positions.ctypes.data)
        ctypes.memmove(self._addresses[index], system.positions, 24 * n)
        if self._n_last == n and (self._last[:n] == positions).all():
            positions += SHIFT_ANGSTROM
            self.n_shifted += 1
        self._last[:n] = positions
        self._n_last = n
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
            # For atoms seen before the run some calculators (LAMMPSlib) compute nothing unless a change is reported.
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
    """The stages of a student's evaluator, and a last one, "host": the time spent in Python and ASE around it."""

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
