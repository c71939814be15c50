# SPDX-License-Identifier: MIT
"""Relaxes many structures at once by the C engine.

    for relaxed in relax(structures, "fennol-ani2x", fmax=0.01, device="cuda"):
        print(relaxed.end, relaxed.n_steps, relaxed.atoms.get_potential_energy())
"""

from __future__ import annotations

import os
from ctypes import byref, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Iterable

import numpy as np

from . import _library as lib
from . import _structs as s
from ._bridge import Interrupts, doubles, each_atoms, system_from_atoms, warn_of_constraints
from .engine import Evaluator, Model
from .errors import MlffUsageError

if TYPE_CHECKING:
    from ase import Atoms

_ENDS = ("converged", "max_steps", "failed", "stopped")
_OPTIMIZERS = {"fire": 0, "lbfgs": 1}


@dataclass
class Relaxed:
    """A structure after `relax`.

    Args:
        atoms: a copy with the new positions and cell; a calculator holds its energy and forces.
        end: "converged", "max_steps", or "failed": its forces could not be computed.
        n_steps: steps made.
        start_energy: eV, of the structure as it was given.
        largest_force: eV/Å, the longest on a free atom.
        error: of one that failed, why.
    """

    atoms: Atoms
    end: str
    n_steps: int
    start_energy: float
    largest_force: float
    error: str


def relax(
    structures: Iterable[Atoms],
    model: Model | str | os.PathLike[str],
    fmax: float = 0.05,
    optimizer: str = "lbfgs",
    max_steps: int = 1000,
    cell: bool = False,
    pressure: float = 0.0,
    stress_max: float | None = None,
    batch: int = 0,
    device: str = "auto",
    precision: str = "float32",
    n_threads: int = 0,
    keep_symmetry: bool = True,
) -> list[Relaxed]:
    """Relaxes structures to minima of the energy, or, with their cells, of E + P V; those given are not changed. `FixAtoms` stay.

    Args:
        structures: Atoms of ASE.
        model: a Model, or the path of a model file.
        fmax: eV/Å, the longest force on a free atom at the end.
        optimizer: "lbfgs" or "fire".
        max_steps: of one structure.
        cell: relax cells too; they must be periodic along three axes.
        pressure: eV/Å³, with `cell`.
        stress_max: eV/Å³, the largest component of stress and pressure together at the end, with `cell`; None: 3.12e-4, which is 500 bar.
        batch: structures at once; 0: 64, on a GPU 256.
        device: as Evaluator's.
        precision: as Evaluator's.
        n_threads: as Evaluator's.
        keep_symmetry: with `cell`, a structure of up to 400 atoms keeps the symmetry it starts with (atoms to 1e-3 Å).

    Returns:
        One Relaxed for each structure, in their order.

    Raises:
        KeyboardInterrupt: Ctrl-C. As any exception that ends the run, its `relaxed` lists what was ready by then.
    """
    from ase.calculators.singlepoint import SinglePointCalculator

    given = list(each_atoms(structures))
    for atoms in given:
        warn_of_constraints(atoms)
    evaluator = Evaluator(model, device, precision, n_threads=n_threads)
    if optimizer not in _OPTIMIZERS:
        raise MlffUsageError(f"optimizer '{optimizer}' is unknown; use lbfgs or fire")
    options = lib.core.mlff_relax_options_default()
    options.optimizer, options.force_limit, options.max_steps = _OPTIMIZERS[optimizer], fmax, max_steps
    options.relax_cell, options.pressure = int(cell), pressure
    if stress_max is not None:
        options.stress_limit = stress_max
    options.keep_symmetry = int(keep_symmetry)
    info = s.mlff_evaluator_info()
    lib.core.mlff_evaluator_info_get(evaluator._handle, byref(info))
    options.n_at_once = batch or (64 if info.device.kind == lib.CPU else 256)
    results: list[Relaxed | None] = [None] * len(given)
    index_of: dict[int, int] = {}

    def next_system(_: int, out: int) -> int:
        try:
            address = system_from_atoms(given[len(index_of)], 0, fixed=True) if len(index_of) < len(given) else None
            if address is not None:
                index_of[address] = len(index_of)
            c_void_p.from_address(out).value = address
            return lib.OK
        except BaseException as problem:  # a callback cannot raise
            return interrupts.keep(problem)

    def done(_: int, address: int, result: int) -> int:
        try:
            relaxed, system = s.mlff_relaxed.from_address(result), s.mlff_system.from_address(address)
            k, n = index_of[address], system.n_atoms
            atoms = given[k].copy()
            atoms.set_cell(np.array(system.cell[:]).reshape(3, 3))
            atoms.positions[:] = doubles(system.positions, (n, 3))
            if relaxed.forces:
                forces = np.array(doubles(relaxed.forces, (n, 3)))
                atoms.calc = SinglePointCalculator(atoms, energy=relaxed.energy, forces=forces)
            error = (relaxed.error or b"").decode()
            results[k] = Relaxed(atoms, _ENDS[relaxed.end], relaxed.n_steps, relaxed.start_energy, relaxed.largest_force, error)
            return lib.OK
        except BaseException as problem:
            return interrupts.keep(problem)

    interrupts = Interrupts()
    stopped = s.RELAX_STOPPED(lambda _: int(interrupts.pending))
    queue = s.mlff_relax_queue(s.RELAX_NEXT(next_system), s.RELAX_DONE(done), None, stopped)
    try:
        with interrupts:
            status = lib.core.mlff_relax(evaluator._handle, byref(options), byref(queue))
    finally:
        for address in index_of:
            lib.core.mlff_system_destroy(address)
    ready = [result for result in results if result is not None]
    interrupts.finish(status, ready, "relaxed")
    return ready
