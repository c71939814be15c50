# SPDX-License-Identifier: MIT
"""Which energy of an ASE calculator is the label: the one whose derivative the forces are."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import MlffWarning

if TYPE_CHECKING:
    from ase import Atoms


def force_consistent(calculator: Any) -> float | None:
    """The energy, of the results that a calculator holds, whose derivative the forces are: the free energy where there is one; energy
    may be extrapolated to 0 K."""
    from ase.calculators.mixing import LinearCombinationCalculator

    results = calculator.results
    if results.get("free_energy") is not None:
        return float(results["free_energy"])
    if isinstance(calculator, LinearCombinationCalculator) and calculator.atoms is not None:
        # It has a free energy only where each part offers one, but forces of all parts.
        mixer = getattr(calculator, "mixer", calculator)  # ASE 3.22 has none
        parts = [None if part.check_state(calculator.atoms) else force_consistent(part) for part in mixer.calcs]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            return float(np.dot(mixer.weights, known))
    energy = results.get("energy")
    return None if energy is None else float(energy)


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
    from ase.calculators.mixing import LinearCombinationCalculator

    calculator = atoms.calc
    found = None
    try:
        label = float(atoms.get_potential_energy(force_consistent=True))
    except (PropertyNotImplementedError, TypeError):  # TypeError: of calculators whose method lacks the argument
        label = float(atoms.get_potential_energy())
        if isinstance(calculator, LinearCombinationCalculator):
            found = force_consistent(calculator)
    results = getattr(calculator, "results", {})
    warn_if_other(results.get("energy"), results.get("free_energy") if found is None else found)
    return label if found is None else found
