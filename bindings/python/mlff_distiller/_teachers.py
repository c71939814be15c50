# SPDX-License-Identifier: MIT
"""Teachers: models, programs and ASE calculators that compute labels, and what they say about one structure."""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from collections.abc import Sequence
from ctypes import byref, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _library as lib
from . import _structs as s
from ._arrays import forget_other_conditions, host_array, voigt
from ._bridge import Interrupts, doubles
from ._devices import parse_device
from ._energies import energy_of
from ._handles import Handle
from ._samples import Samples, atoms_from_system
from .engine import PRECISIONS, Array, Model
from .errors import MlffUnsupportedError, MlffUsageError, MlffWarning

if TYPE_CHECKING:
    from ase import Atoms

_VOIGT = np.array([[0, 5, 4], [5, 1, 3], [4, 3, 2]])  # where a matrix's components are


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


def has_stress(calculator: Any) -> bool:
    """Whether an ASE calculator says that it has a stress."""
    return "stress" in getattr(calculator, "implemented_properties", ()) and hasattr(calculator, "get_stress")


def stress_of(atoms: Atoms) -> Array | None:
    """The stress by the atoms' calculator, [6] eV/Å³ in Voigt order; None where it has none after all."""
    try:
        found = atoms.calc.get_stress(atoms)
    except NotImplementedError:
        return None
    if found is None:  # of a program that was not asked for it
        return None
    stress = voigt(found)
    if not np.isfinite(stress).all():
        raise ValueError("a stress that is not finite")
    return stress


class Teacher:
    """A force field that labels structures; an ASE calculator that implements "stress" with the stress of those that repeat along three axes.

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
            if has_stress(teacher):
                self._virial_function = s.VIRIAL_FUNCTION(self._compute_one)
                lib.core.mlff_teacher_virial_set(out, ctypes.cast(self._virial_function, c_void_p), None)

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

    def _compute_one(self, context: Any, system: int, energy: int, forces: int, virial: int | None = None) -> int:
        """Called by the C library: energy and forces of one system by the ASE calculator, and its virial where wanted."""
        interrupts = self._interrupts or Interrupts()
        try:
            if interrupts.pending:
                return interrupts.stop()
            interrupts.inside = True
            atoms = atoms_from_system(system)
            forget_other_conditions(self.calculator, atoms)
            atoms.calc = self.calculator
            shape = (len(atoms), 3)
            doubles(forces, shape)[:] = host_array(atoms.get_forces(), np.float64, shape, "forces")
            doubles(energy, 1)[0] = energy_of(atoms)
            if virial is not None:
                stress = stress_of(atoms)
                doubles(virial, (3, 3))[:] = np.nan if stress is None else -atoms.get_volume() * stress[_VOIGT]
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
        samples = Samples(frames)
        warn_of_moments(self, samples.has_moments)
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


def warn_of_moments(teacher: Teacher | None, has_moments: bool) -> None:
    """MlffWarning where an ASE calculator will get structures without the magnetic moments of their atoms: the caller's caller is named."""
    if has_moments and hasattr(teacher, "calculator"):
        text = (
            "initial magnetic moments of the atoms are left out: the calculator gets structures without; set them in the calculator, or give "
            "label_with_calculator structures that have them"
        )
        warnings.warn(text, MlffWarning, stacklevel=3)


def as_teacher(teacher: Any) -> Teacher:
    return teacher if isinstance(teacher, Teacher) else Teacher(teacher)
