# SPDX-License-Identifier: MIT
"""Which energy of an ASE calculator is the label: the one whose derivative the forces are."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import MlffWarning

if TYPE_CHECKING:
    from ase import Atoms


def _parts(calculator: Any) -> tuple[list[Any], list[float]]:
    """What one of ASE's combinations of calculators adds, and the weights."""
    from ase.calculators.mixing import LinearCombinationCalculator

    if not isinstance(calculator, LinearCombinationCalculator):
        return [], []
    mixer = getattr(calculator, "mixer", calculator)  # ASE 3.22 has none
    return mixer.calcs, mixer.weights


def force_consistent(calculator: Any) -> float | None:
    """The energy, of the results that a calculator holds, whose derivative the forces are: the free energy where there is one; energy
    may be extrapolated to 0 K."""
    free_energy = free_energy_of(calculator)
    energy = calculator.results.get("energy") if free_energy is None else free_energy
    return None if energy is None else float(energy)


def free_energy_of(calculator: Any) -> float | None:
    """Of the results that a calculator holds. A combination offers one only where each part does, but has forces of all parts."""
    results = getattr(calculator, "results", {})
    if results.get("free_energy") is not None:
        return float(results["free_energy"])
    parts, weights = _parts(calculator)
    if not parts or calculator.atoms is None:
        return None
    energies = [None if part.check_state(calculator.atoms) else force_consistent(part) for part in parts]
    known = [energy for energy in energies if energy is not None]
    return float(np.dot(weights, known)) if len(known) == len(parts) else None


def warn_if_other(energy: float | None, label: float | None) -> bool:
    """Whether the label is another energy."""
    if energy is None or label is None or abs(label - energy) <= 1e-6:  # less is rounding of decimals
        return False
    text = (
        "free_energy, to which forces belong, is the label, not energy, which differs; leave free_energy out if energy is meant "
        "(a calculator that changes the energy of another one changes both)"
    )
    warnings.warn(text, MlffWarning, stacklevel=3)
    return True


def energy_of(atoms: Atoms) -> float:
    """The energy that is the label."""
    from ase.calculators.calculator import PropertyNotImplementedError

    try:
        label = float(atoms.get_potential_energy(force_consistent=True))
        free_energy = getattr(atoms.calc, "results", {}).get("free_energy")
    except (PropertyNotImplementedError, TypeError) as problem:  # TypeError: of calculators whose method lacks the argument
        label = float(atoms.get_potential_energy())
        free_energy = None if isinstance(problem, TypeError) else free_energy_of(atoms.calc)
        label = label if free_energy is None else free_energy
    warn_if_other(getattr(atoms.calc, "results", {}).get("energy"), free_energy)
    return label
