# SPDX-License-Identifier: MIT
"""Data to train students on: teachers, structures around seeds, labels, datasets.

    teacher = Teacher("xtb:gfn2")                            # or a model's file or name, a Model, an ASE calculator
    frames = sample(teacher, [molecule("CH3CH2OH")], n_samples=500)
    label(teacher, frames, "ethanol.labels")                 # goes on where it was stopped
    training, validation = Dataset.read("ethanol.labels").split(0.1)

Structures are ASE's atoms. `info["group"]` numbers the trajectory that a structure belongs to; a dataset is split by it.
"""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from collections.abc import Iterable, Sequence
from ctypes import byref, c_char_p, c_int, c_int64, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _library as lib
from . import _structs as s
from ._arrays import charge_and_spin, forget_other_conditions, host_array
from ._bridge import Interrupts, changed_since, check_atoms, doubles, each_atoms, system_from_atoms
from ._devices import parse_device
from ._energies import energy_of, force_consistent, warn_if_other
from ._handles import Handle
from .engine import PRECISIONS, Array, Model
from .errors import MlffUnsupportedError, MlffUsageError

if TYPE_CHECKING:
    from ase import Atoms

__all__ = [
    "Dataset", "Label", "LabelSummary", "Teacher", "label", "label_with_calculator", "sample", "seeds_from_smiles", "select",
]  # fmt: skip


# ---- structures ----------------------------------------------------------------------------------------------------


class _System:
    """A C system of ASE's atoms for the time of a `with`."""

    def __init__(self, atoms: Atoms) -> None:
        self.address = system_from_atoms(atoms, 0)
        system = s.mlff_system.from_address(self.address)
        system.label_energy = float("nan")
        group = atoms.info.get("group", -1)
        system.group = int(group) if isinstance(group, (int, np.integer)) else -1

    def __enter__(self) -> int:
        return self.address

    def __exit__(self, *exception: object) -> None:
        lib.core.mlff_system_destroy(self.address)


def _atoms_from_system(address: int) -> Atoms:
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


def _voigt(stress: Any) -> Array:
    """A stress, also as the matrix that some calculators of ASE give, in Voigt order."""
    if np.shape(stress) != (3, 3):
        return host_array(stress, np.float64, (6,), "stress")
    matrix = host_array(stress, np.float64, (3, 3), "stress")
    voigt: Array = (0.5 * (matrix + matrix.T)).ravel()[[0, 4, 8, 5, 2, 1]]
    return voigt


class _Samples:
    """The C library's list of structures, with each one's origin."""

    def __init__(self, frames: Iterable[Atoms] = (), origin: str = "python") -> None:
        out = Handle(lib.core.mlff_samples_destroy)
        lib.core.mlff_samples_create(byref(out))
        self.handle = out
        for atoms in frames:
            with _System(atoms) as system:
                lib.core.mlff_samples_add(self.handle, system, str(atoms.info.get("origin", origin)).encode()[:23])

    def atoms(self) -> list[Atoms]:
        found = []
        origin = c_char_p()
        for k in range(lib.core.mlff_samples_size(self.handle)):
            atoms = _atoms_from_system(lib.core.mlff_samples_get(self.handle, k, byref(origin)))
            atoms.info["origin"] = (origin.value or b"").decode("utf-8", "ignore")
            found.append(atoms)
        return found


def seeds_from_smiles(smiles: str, n_conformers: int = 1, seed: int = 0) -> list[Atoms]:
    """Conformers of a molecule by its SMILES, hydrogens added; RDKit's ETKDG embedding, relaxed by MMFF94 where it knows the atoms.

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
    ids = list(AllChem.EmbedMultipleConfs(molecule, n_conformers, randomSeed=seed))
    if not ids:
        raise MlffUsageError(f"{smiles!r}: RDKit finds no conformer")
    if AllChem.MMFFHasAllMoleculeParams(molecule):
        AllChem.MMFFOptimizeMoleculeConfs(molecule)
    numbers = [atom.GetAtomicNum() for atom in molecule.GetAtoms()]
    return [Atoms(numbers, np.array(molecule.GetConformer(k).GetPositions())) for k in ids]


# ---- teachers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Label:
    """The label of one structure.

    Attributes:
        energy: eV; NaN where it failed.
        forces: [n_atoms][3] eV/Å; None where it failed.
        stress: [6] eV/Å³ in Voigt order, or None.
        atom_energies: [n_atoms] eV, or None.
        energy_deviation: eV, standard deviation over an ensemble's members; NaN where there is none.
        force_deviation: eV/Å, the largest over atoms of the standard deviation of the force; NaN where there is none.
        problem: why there is no label; "" if there is one.
    """

    energy: float
    forces: Array | None
    stress: Array | None
    atom_energies: Array | None
    energy_deviation: float
    force_deviation: float
    problem: str


class Teacher:
    """A force field that labels structures.

    Args:
        teacher: a model's file or name, "xtb:gfn2" or "xtb:gfn1" (libxtb), "kim:MODEL" (KIM API), a Model, or an ASE
            calculator.
        name: of an ASE calculator, which identifies it in files of labels: give another one if a setting changes.
            None: its class.
        device: of a model, as Evaluator's.
        precision: of a model, as Evaluator's.
        n_threads: CPU threads of a model, processes of xtb and KIM; 0: all cores this process may use.
        timeout: s, of xtb and KIM: longest time for one structure.
    """

    def __init__(
        self,
        teacher: str | os.PathLike[str] | Model | Any,
        name: str | None = None,
        device: str = "auto",
        precision: str = "float32",
        n_threads: int = 0,
        timeout: float = 120.0,
    ) -> None:
        if precision not in PRECISIONS:
            raise MlffUsageError(f"precision {precision!r}: expected one of {', '.join(map(repr, PRECISIONS))}")
        self._interrupts: Interrupts | None = None
        self._lock = threading.RLock()
        options = lib.core.mlff_teacher_options_default()
        options.precision, options.n_threads, options.timeout_s = PRECISIONS[precision], n_threads, timeout
        if isinstance(teacher, (str, os.PathLike, Model)):
            self._handle = self._open(teacher, device, options)
        elif not hasattr(teacher, "get_potential_energy"):
            raise TypeError(f"teacher {teacher!r}: expected the name of a file, a Model or an ASE calculator")
        else:
            from .isolation import IsolatedCalculator

            self.calculator = teacher
            self._function = s.FORCE_FUNCTION(self._compute_one)  # lives as long as the C teacher
            kind = type(teacher.calculator if isinstance(teacher, IsolatedCalculator) else teacher)
            identity = name or f"ase:{kind.__module__}.{kind.__name__}"
            out = Handle(lib.core.mlff_teacher_destroy)
            lib.core.mlff_teacher_create(identity, ctypes.cast(self._function, c_void_p), None, byref(out))
            self._handle = out

    def _open(self, teacher: str | os.PathLike[str] | Model, device: str, options: Any) -> Handle:
        borrowed = [teacher._handle] if isinstance(teacher, Model) else []
        out = Handle(lib.core.mlff_teacher_destroy, *borrowed)
        in_processes = isinstance(teacher, str) and teacher.startswith(("xtb:", "kim:"))
        chosen = parse_device("cpu" if in_processes or options.precision == PRECISIONS["float64"] else device)

        def create() -> None:
            options.device = chosen.struct
            if isinstance(teacher, Model):
                lib.core.mlff_teacher_create_model(teacher._handle, byref(options), byref(out))
            else:
                lib.core.mlff_teacher_open(lib.path_bytes(teacher), byref(options), byref(out))

        try:
            create()
        except MlffUnsupportedError:
            if device != "auto" or chosen.type != "cuda":
                raise
            chosen = parse_device("cpu")  # a model without a path on the GPU
            create()
        return out

    def _compute_one(self, context: Any, system: int, energy: int, forces: int) -> int:
        """Called by the C library: energy and forces of one system by the ASE calculator."""
        interrupts = self._interrupts or Interrupts()
        try:
            if interrupts.pending:
                return interrupts.stop()
            interrupts.inside = True
            atoms = _atoms_from_system(system)
            forget_other_conditions(self.calculator, atoms)
            atoms.calc = self.calculator
            shape = (len(atoms), 3)
            doubles(forces, shape)[:] = host_array(atoms.get_forces(), np.float64, shape, "forces")
            doubles(energy, 1)[0] = energy_of(atoms)
            interrupts.inside = False
            return lib.OK
        except Exception as error:  # this structure's
            interrupts.inside = False
            return lib.fail(lib.CALLBACK, f"{type(error).__name__}: {error}")
        except BaseException as error:
            return interrupts.keep(error)

    @property
    def _info(self) -> s.mlff_teacher_info:
        info = s.mlff_teacher_info()
        lib.core.mlff_teacher_info_get(self._handle, byref(info))
        return info

    @property
    def name(self) -> str:
        """"xtb:gfn2", a model's name, or what identifies a calculator."""
        return str(self._info.name.decode())

    @property
    def description(self) -> str:
        """One line."""
        return str(self._info.description.decode())

    @property
    def hash(self) -> str:
        """SHA-256 of a model's file or files, or of name and version: files of labels are of one hash."""
        return str(self._info.hash.decode())

    @property
    def elements(self) -> tuple[int, ...]:
        """Atomic numbers it knows; empty where unknown."""
        info = self._info
        return tuple(ctypes.string_at(info.elements, info.n_elements)) if info.n_elements else ()

    def compute(self, frames: Sequence[Atoms]) -> list[Label]:
        """Labels of structures; one that fails does so alone, by its `problem`."""
        samples = _Samples(frames)
        n = len(frames)
        systems = (c_void_p * n)(*[lib.core.mlff_samples_get(samples.handle, k, None) for k in range(n)])
        rows = (s.mlff_label * n)()
        with self._lock, Interrupts() as interrupts:
            self._interrupts = interrupts
            status = lib.core.mlff_teacher_compute(self._handle, systems, n, rows)
            self._interrupts = None
        interrupts.finish(status, None, "partial")
        found = [_label_from_struct(row, len(atoms)) for row, atoms in zip(rows, frames)]
        for row in rows:
            lib.core.mlff_label_clear(byref(row))
        return found

    def __repr__(self) -> str:
        return f"<Teacher {self.name}: {self.description}>"


def _label_from_struct(row: s.mlff_label, n_atoms: int) -> Label:
    return Label(
        energy=row.energy,
        forces=doubles(row.forces, (n_atoms, 3)).copy() if row.forces else None,
        stress=None if np.isnan(row.stress[0]) else np.array(row.stress[:]),
        atom_energies=doubles(row.atom_energies, n_atoms).copy() if row.atom_energies else None,
        energy_deviation=row.energy_deviation,
        force_deviation=row.force_deviation,
        problem=row.problem.decode("utf-8", "replace") if row.status else "",
    )


def _as_teacher(teacher: Any) -> Teacher:
    return teacher if isinstance(teacher, Teacher) else Teacher(teacher)


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
        methods: some of "modes", "thermal", "rattle", "md", "pairs", or one text, as "modes,md" (mlff sample --help says what they do).
            None: modes, rattle, md and pairs.
        temperatures: K, at most eight.
        relax: the teacher relaxes the seeds first.
        options: timestep_fs, friction_per_fs, interval_fs, rattle_angstrom, closest, oversample, as in `mlff_sample_options`.

    Returns:
        Atoms with `info["group"]` (of a trajectory) and `info["origin"]` ("md 600 K").
    """
    asked = lib.core.mlff_sample_options_default()
    for name, value in options.items():
        if name not in ("timestep_fs", "friction_per_fs", "interval_fs", "rattle_angstrom", "closest", "oversample"):
            raise MlffUsageError(f"{name} is not an option of sample")
        setattr(asked, name, value)
    if not 1 <= len(temperatures) <= 8:
        raise MlffUsageError(f"{len(temperatures)} temperatures; give 1 to 8")
    asked.n_samples, asked.relax, asked.seed = n_samples, int(relax), seed
    asked.methods = methods if methods is None or isinstance(methods, str) else ",".join(methods)
    asked.n_temperatures = len(temperatures)
    asked.temperatures[: len(temperatures)] = list(temperatures)
    chosen, starts, made = _as_teacher(teacher), _Samples(each_atoms(seeds)), _Samples()
    with chosen._lock, Interrupts() as interrupts:
        progress = s.SAMPLE_PROGRESS(lambda context, state: int(interrupts.pending))
        asked.callback = ctypes.cast(progress, c_void_p)
        chosen._interrupts = interrupts
        status = lib.core.mlff_sample(chosen._handle, starts.handle, byref(asked), made.handle)
        chosen._interrupts = None
    interrupts.finish(status, None, "partial")
    return made.atoms()


def select(frames: Iterable[Atoms], n: int, known: Iterable[Atoms] = ()) -> list[Atoms]:
    """The n structures that differ most from each other and from those known; their order is kept."""
    samples, others = _Samples(frames), _Samples(known)
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
    chosen, samples = _as_teacher(teacher), _Samples(frames)
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


def _label_of(atoms: Atoms, calculator: Any, stress: bool) -> tuple[s.mlff_label, Array]:
    """The calculator's label of one structure, and the array of forces that it borrows."""
    charge, _ = charge_and_spin(atoms)
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
    if stress and all(atoms.pbc):
        row.stress[:] = [float(x) for x in work.get_stress(apply_constraint=False)]
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
    stress: bool = False,
) -> LabelSummary:
    """As `label`, by an ASE calculator that Python drives, with its stress where asked for.

    A structure at which the calculator raises is left out and recorded as failed, which is a warning; with an IsolatedCalculator also
    one at which it crashes or hangs.

    Args:
        name: identifies the calculator in the file: give another one if a setting changes. None: its class.
        stress: of structures that repeat along all three axes.
    """
    import time

    teacher = Teacher(calculator, name)
    start, n_new = time.perf_counter(), 0
    with _LabelFile(path, teacher) as file:
        for atoms in frames:
            with _System(atoms) as system:
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


# ---- datasets ------------------------------------------------------------------------------------------------------


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
        """Files of labels (`label`), extended XYZ, and ASE's databases (.db).

        Args:
            largest_force: eV/Å; structures with a larger force are left out.
            largest_force_deviation: eV/Å; so are those of which an ensemble of teachers is less sure.
            n_threads: CPU threads; 0: all cores.
        """
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
            if "forces" in row and np.linalg.norm(row.forces, axis=1).max() > largest_force:
                continue
            self._add_results(atoms, 1.0, f"{os.fspath(path)}: row {row.id}")

    def _add_results(self, atoms: Atoms, weight: float, name: str) -> None:
        results = {} if atoms.calc is None else atoms.calc.results
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
        if energy is None and forces is None and stress is None and atoms.calc is not None:
            if changed := changed_since(atoms):
                raise MlffUsageError(
                    f"the results of {type(atoms.calc).__name__} are of other {changed} than these atoms have; "
                    "compute them again, or give energy and forces"
                )
            self._add_results(atoms, weight, f"structure {len(self)}")
            return
        f = None if forces is None else host_array(forces, np.float64, (len(atoms), 3), "forces")
        v = None if stress is None else _voigt(stress)
        row = s.mlff_labels(energy=float("nan") if energy is None else float(energy), weight=weight)
        row.forces = None if f is None else f.ctypes.data
        row.stress = None if v is None else v.ctypes.data
        with _System(atoms) as system:
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
            return _atoms_from_system(out.value or 0)
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
        """Looks for structures of other units or another method.

        Raises:
            MlffValueError: names the structure whose energy does not fit the others'.
        """
        lib.core.mlff_dataset_check(self._handle)

    def shifts(self) -> dict[int, float]:
        """Energy of each element, eV by atomic number, that fits the labels best (minimum-norm least squares)."""
        values = np.zeros(119)
        lib.core.mlff_dataset_shifts(self._handle, values.ctypes.data)
        return {z: float(value) for z, value in enumerate(values) if value != 0}
