# SPDX-License-Identifier: MIT
"""Data to train students on: teachers, structures around seeds, labels, datasets.

    teacher = Teacher("xtb:gfn2")                            # or a model's file or name, a Model, an ASE calculator
    frames = sample(teacher, [molecule("CH3CH2OH")], n_samples=500)
    label(teacher, frames, "ethanol.labels")                 # goes on where it was stopped
    training, validation = Dataset.read("ethanol.labels").split(0.1)

Structures are ASE's atoms. `info["group"]`, a number or a text, is the trajectory that a structure belongs to; a dataset is split by it.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Iterable, Sequence
from ctypes import byref, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _library as lib
from . import _structs as s
from ._arrays import charge_and_spin, forget_other_conditions, host_array
from ._bridge import Interrupts, each_atoms
from ._datasets import Dataset
from ._energies import energy_of
from ._samples import Samples, System, charge_of_atoms
from ._teachers import Label, Teacher, as_teacher, has_stress, stress_of, warn_of_moments
from .engine import Array, Model
from .errors import MlffUnsupportedError, MlffUsageError

if TYPE_CHECKING:
    from ase import Atoms

__all__ = [
    "Dataset", "Label", "LabelSummary", "Teacher", "label", "label_with_calculator", "sample", "seeds_from_smiles", "select",
]  # fmt: skip


# ---- structures ----------------------------------------------------------------------------------------------------


def seeds_from_smiles(smiles: str, n_conformers: int = 1, seed: int = 0) -> list[Atoms]:
    """Conformers of a molecule by its SMILES, hydrogens added; RDKit's ETKDG embedding, relaxed by MMFF94 where it knows the atoms.

    Parts that no bond connects, as of an ion pair or a dimer, begin 3 Å apart, each in a random direction (`seed`).

    Raises:
        MlffUsageError: a SMILES that cannot be read, or a molecule that carries a charge.
        ImportError: RDKit is not installed (Debian: python3-rdkit).
    """
    from ase import Atoms

    try:
        from rdkit import Chem
        from rdkit.Chem import AllChem
    except ImportError as problem:
        raise ImportError(f"seeds_from_smiles needs RDKit ({problem}); install it: apt-get install python3-rdkit, or pip install rdkit") from None
    plain = Chem.MolFromSmiles(smiles)
    if plain is None:
        raise MlffUsageError(f"{smiles!r}: RDKit cannot read it as SMILES")
    if Chem.GetFormalCharge(plain):
        raise MlffUsageError(f"{smiles!r}: a charge of {Chem.GetFormalCharge(plain)} e; students know neutral systems only")
    molecule = Chem.AddHs(plain)
    # RDKit takes multiples of its seed, one for each conformer: of 0 they are all the same, of 1 and 2 some.
    multiplied = int(np.random.default_rng(seed % 2**32).integers(1, 2**20))
    ids = list(AllChem.EmbedMultipleConfs(molecule, n_conformers, randomSeed=multiplied))
    if not ids:
        raise MlffUsageError(f"{smiles!r}: RDKit finds no conformer")
    parts = Chem.GetMolFrags(molecule)
    for k in ids if len(parts) > 1 else []:
        conformer = molecule.GetConformer(k)
        for i, position in enumerate(_parts_apart(np.array(conformer.GetPositions()), parts, np.random.default_rng([seed % 2**32, k])).tolist()):
            conformer.SetAtomPosition(i, position)
    if AllChem.MMFFHasAllMoleculeParams(molecule):
        AllChem.MMFFOptimizeMoleculeConfs(molecule, ignoreInterfragInteractions=False)
    numbers = [atom.GetAtomicNum() for atom in molecule.GetAtoms()]
    return [Atoms(numbers, np.array(molecule.GetConformer(k).GetPositions())) for k in ids]


def _parts_apart(positions: Array, parts: Sequence[Sequence[int]], random: np.random.Generator) -> Array:
    """The positions with each part moved along a random direction until it is 3 Å from all before it: RDKit embeds them on top of each other."""
    placed = positions[list(parts[0])] - positions[list(parts[0])].mean(axis=0)
    moved = positions.copy()
    moved[list(parts[0])] = placed
    for part in parts[1:]:
        atoms = positions[list(part)] - positions[list(part)].mean(axis=0)
        direction = random.normal(size=3)
        step = 0.25 * direction / np.linalg.norm(direction)
        while np.linalg.norm(placed[:, None] - atoms[None], axis=2).min() < 3.0:
            atoms = atoms + step
        moved[list(part)] = atoms
        placed = np.concatenate([placed, atoms])
    return moved


# ---- sampling ------------------------------------------------------------------------------------------------------


def sample(
    teacher: Teacher | str | os.PathLike[str] | Model | Any,
    seeds: Iterable[Atoms],
    n_samples: int = 1000,
    methods: Iterable[str] | None = None,
    temperatures: Sequence[float] = (300.0, 600.0, 1000.0),
    relax: bool = True,
    seed: int = 0,
    **options: float,
) -> list[Atoms]:
    """Structures around seeds, for a teacher to label; deterministic in `seed`.

    Args:
        teacher: as Teacher takes it.
        seeds: structures, around each of which about the same number is made.
        n_samples: in all; fewer are a warning.
        methods: some of "modes", "thermal", "rattle", "md", "pairs", or one text, as "modes,md" (mlff sample --help says what they do).
            None: modes, rattle, md and pairs.
        temperatures: K, at most eight.
        relax: the teacher relaxes the seeds first.
        options: timestep_fs, friction_per_fs, interval_fs, rattle_angstrom, closest, oversample, strain, as in `mlff_sample_options`.

    Returns:
        Atoms with `info["group"]` (of a trajectory) and `info["origin"]` ("md 600 K").

    Raises:
        KeyboardInterrupt: Ctrl-C; what was made before it is in its attribute `samples`: relaxed seeds and all candidates, of
            which none is chosen.
    """
    asked = lib.core.mlff_sample_options_default()
    for name, value in options.items():
        if name not in ("timestep_fs", "friction_per_fs", "interval_fs", "rattle_angstrom", "closest", "oversample", "strain"):
            raise MlffUsageError(f"{name} is not an option of sample")
        setattr(asked, name, value)
    if not 1 <= len(temperatures) <= 8:
        raise MlffUsageError(f"{len(temperatures)} temperatures; give 1 to 8")
    asked.n_samples, asked.relax, asked.seed = n_samples, int(relax), seed
    asked.methods = methods if methods is None or isinstance(methods, str) else ",".join(methods)
    asked.n_temperatures = len(temperatures)
    asked.temperatures[: len(temperatures)] = list(temperatures)
    chosen, starts, made = as_teacher(teacher), Samples(each_atoms(seeds)), Samples()
    warn_of_moments(chosen, starts.has_moments)
    with chosen._lock, Interrupts() as interrupts:
        progress = s.SAMPLE_PROGRESS(lambda context, state: int(interrupts.pending))
        asked.callback = ctypes.cast(progress, c_void_p)
        chosen._interrupts = interrupts
        status = lib.core.mlff_sample(chosen._handle, starts.handle, byref(asked), made.handle)
        chosen._interrupts = None
    found = made.atoms()
    interrupts.finish(status, found, "samples")
    return found


def select(frames: Iterable[Atoms], n: int, known: Iterable[Atoms] = ()) -> list[Atoms]:
    """The n structures that differ most from each other and from those known; their order is kept."""
    samples, others = Samples(frames), Samples(known)
    lib.core.mlff_samples_select(samples.handle, n, others.handle)
    return samples.atoms()


# ---- labels --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelSummary:
    """What a call of `label` did.

    Attributes:
        n_labels: structures with a label in the file.
        n_failed: structures in the file that the teacher could not label.
        n_new: structures that this call asked the teacher for.
        time_s: s, of this call.
    """

    n_labels: int
    n_failed: int
    n_new: int
    time_s: float


class _LabelFile:
    """A file of labels that grows, for the time of a `with`."""

    def __init__(self, path: str | os.PathLike[str], teacher: Teacher) -> None:
        out = c_void_p()
        lib.core.mlff_shard_open(lib.path_bytes(path), teacher._handle, byref(out))
        self.handle = out

    def __enter__(self) -> _LabelFile:
        return self

    def __exit__(self, *exception: object) -> None:
        handle, self.handle = self.handle, c_void_p()
        lib.core.mlff_shard_close(handle)

    def counts(self) -> tuple[int, int]:
        info = s.mlff_shard_info()
        lib.core.mlff_shard_info_get(self.handle, byref(info))
        return int(info.n_labels), int(info.n_failed)


def label(
    teacher: Teacher | str | os.PathLike[str] | Model | Any,
    frames: Iterable[Atoms],
    path: str | os.PathLike[str],
    hvp: int = 0,
    hvp_step: float = 0.01,
    seed: int = 0,
) -> LabelSummary:
    """Labels structures into a file, those that it has not yet: after Ctrl-C or a crash the same call goes on.

    Energies and forces far beyond all others, which Dataset.check refuses, are kept with a warning.

    Args:
        path: of the file; it belongs to one teacher (by its hash) and refuses another.
        hvp: Hessian-vector products for each structure, two labels each, along directions drawn from `seed`.
        hvp_step: Å, of their central differences.

    Raises:
        MlffValueError: the file is of another teacher.
        MlffFileError: the disk is full; whole labels are kept.
        KeyboardInterrupt: Ctrl-C; labels so far are kept.
    """
    chosen, samples = as_teacher(teacher), Samples(frames)
    warn_of_moments(chosen, samples.has_moments)
    if hvp:
        lib.core.mlff_samples_add_probes(samples.handle, hvp, hvp_step, seed)
    last = s.mlff_label_progress()
    with _LabelFile(path, chosen) as file:
        with chosen._lock, Interrupts() as interrupts:
            progress = s.LABEL_PROGRESS(lambda context, state: int(interrupts.pending))
            options = lib.core.mlff_label_options_default()
            options.callback = ctypes.cast(progress, c_void_p)
            chosen._interrupts = interrupts
            status = lib.core.mlff_shard_label(file.handle, chosen._handle, samples.handle, byref(options), byref(last))
            chosen._interrupts = None
        interrupts.finish(status, None, "partial")
        n_labels, n_failed = file.counts()
    n_new = int(last.n_done - last.n_before)
    _warn_of_labels(path, n_new)
    return LabelSummary(n_labels, n_failed, n_new, last.elapsed_s)


def _warn_of_labels(path: str | os.PathLike[str], n_new: int) -> None:
    """Warns of energies and forces far beyond all others, where there are new ones."""
    if n_new > 0:
        lib.core.mlff_labels_warn(lib.path_bytes(path), 0)
    lib.show_warnings()


def _label_of(atoms: Atoms, calculator: Any, stress: bool | None) -> tuple[s.mlff_label, Array]:
    """The calculator's label of one structure, and the array of forces that it borrows."""
    charge = charge_and_spin(atoms)[0] or charge_of_atoms(atoms)
    if charge:
        raise MlffUnsupportedError(f"a charge of {charge:g} e; students know neutral systems only, leave the structure out")
    work = atoms.copy()
    forget_other_conditions(calculator, work)
    work.calc = calculator
    # ASE zeroes forces on fixed atoms unless told otherwise; the label is the derivative of the energy.
    forces = host_array(work.get_forces(apply_constraint=False), np.float64, (len(atoms), 3), "forces")
    row = s.mlff_label(energy=energy_of(work), energy_deviation=np.nan, force_deviation=np.nan)
    row.forces = forces.ctypes.data
    row.stress[0] = np.nan
    if stress is None and all(atoms.pbc) and has_stress(calculator):
        found = stress_of(work)
        if found is not None:
            row.stress[:] = found.tolist()
    elif stress and all(atoms.pbc):
        row.stress[:] = host_array(work.get_stress(apply_constraint=False), np.float64, (6,), "stress").tolist()
        if not np.isfinite(row.stress[:]).all():
            raise ValueError("a stress that is not finite")
    if not (np.isfinite(row.energy) and np.isfinite(forces).all()):
        raise ValueError("an energy or a force that is not finite")
    return row, forces


def label_with_calculator(
    calculator: Any,
    frames: Iterable[Atoms],
    path: str | os.PathLike[str],
    name: str | None = None,
    stress: bool | None = None,
) -> LabelSummary:
    """As `label`, by an ASE calculator that Python drives.

    A structure at which the calculator raises is left out and recorded as failed, which is a warning; with an IsolatedCalculator also
    one at which it crashes or hangs.

    Args:
        name: identifies the calculator in the file: give another one if a setting changes. None: its class.
        stress: of structures that repeat along all three axes. None: if the calculator says that it implements it.
    """
    import time

    teacher = Teacher(calculator, name)
    start, n_new = time.perf_counter(), 0
    with _LabelFile(path, teacher) as file:
        for atoms in frames:
            with System(atoms) as system:
                if lib.core.mlff_shard_has(file.handle, system):
                    continue
                n_new += 1
                try:
                    row, _forces = _label_of(atoms, calculator, stress)
                except Exception as error:
                    text = f"{type(error).__name__}: {error}"
                    warnings.warn(f"skipped a structure: {text}", stacklevel=2)
                    row = s.mlff_label(status=lib.CALLBACK, problem=text.encode("utf-8", "replace")[:199])
                lib.core.mlff_shard_append(file.handle, system, byref(row), str(atoms.info.get("origin", "")).encode()[:23])
        n_labels, n_failed = file.counts()
    _warn_of_labels(path, n_new)
    return LabelSummary(n_labels, n_failed, n_new, time.perf_counter() - start)
