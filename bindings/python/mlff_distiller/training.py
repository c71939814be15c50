# SPDX-License-Identifier: MIT
"""Training of students, and whole distillations.

    run = distill("xtb:gfn2", [molecule("CH3CH2OH")], "ethanol.run", preset="quick")
    run = distill(labels="dft.extxyz", out="dft.run")    # from labels that are there
    print(run.passed, run.verdict["bars"], run.history["validation_force_mae"])

    trainer = Trainer(Model.create("painn", elements="H,C,O"), training, n_steps=20000)    # one's own loop
    while trainer.step < trainer.n_steps:
        errors = trainer.run(1000)
        print(trainer.step, errors.force_mae, trainer.validate(validation).force_mae)
    trainer.model().save("student.safetensors")
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import pathlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from ctypes import byref, c_double, c_int, c_int64, c_void_p
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _library as lib
from . import _structs as s
from ._bridge import Interrupts, each_atoms, fixed_atoms, in_pieces
from ._devices import parse_device
from ._files import write_whole
from ._handles import Handle, exclusive
from ._samples import has_moments
from ._teachers import warn_of_moments
from ._values import as_c
from .distill import Dataset, Teacher
from .engine import PRECISIONS, Array, Model
from .errors import MlffFormatError, MlffUsageError

if TYPE_CHECKING:
    from ase import Atoms

__all__ = ["Errors", "Distillation", "Trainer", "distill", "read_history"]

LOSS = ("energy_weight", "forces_weight", "stress_weight", "atom_energies_weight", "hessian_weight", "energy_per_atom", "huber_forces")
OPTIONS = (
    "batch_size", "energy_boost", "learning_rate", "learning_rate_end", "warm_up", "schedule", "plateau_factor",
    "plateau_patience", "beta1", "beta2", "epsilon", "weight_decay", "clip", "average",
    "soap_interval", "soap_decay", "nearer",
)  # fmt: skip
OPTIMIZERS = ("adamw", "soap")  # as enum mlff_trainer_optimizer


@dataclass(frozen=True)
class Errors:
    """Means over structures; NaN where there is no label.

    Attributes:
        n_frames: structures.
        n_atoms: atoms.
        loss: mean over the steps, in the model's units.
        energy_mae: eV/atom; energy_rmse likewise.
        energy_rmse: eV/atom.
        force_mae: eV/Å, of components; force_rmse likewise.
        force_rmse: eV/Å.
        stress_mae: eV/Å³.
    """

    n_frames: int
    n_atoms: int
    loss: float
    energy_mae: float
    energy_rmse: float
    force_mae: float
    force_rmse: float
    stress_mae: float


def _errors(row: s.mlff_training_errors) -> Errors:
    return Errors(*(getattr(row, field[0]) for field in row._fields_))


def _set_options(options: Any, names: Sequence[str], given: dict[str, Any]) -> None:
    for name in [name for name in given if name in names]:
        setattr(options, name, given.pop(name))


class Trainer:
    """One model being trained.

    Args:
        model: a PaiNN; it keeps its weights, `model()` gives the trained ones.
        data: labelled structures.
        n_steps: of the whole run, which the learning rate's schedule spans.
        shifts: True begins with the energies of the elements that fit the labels best, False with those of the model. None, as
            `mlff train` does: a new model gets those that fit, one that was trained keeps its own, unless its energies are more than
            1 eV/atom off the labels, as those of another method; a warning tells so.
        device: as Evaluator's.
        precision: "float32", "float64" (the reference, CPU) or, on a GPU, "tf32".
        n_threads: CPU; 0: all cores this process may use.
        seed: of the order of structures.
        optimizer: "adamw", or "soap".
        options: of the loss (energy_weight, forces_weight, stress_weight, atom_energies_weight, hessian_weight,
            energy_per_atom, huber_forces) and of the optimizer (batch_size, learning_rate, clip, average, ...), as in
            `mlff_trainer_options`.
    """

    def __init__(
        self,
        model: Model,
        data: Dataset,
        n_steps: int = 10000,
        shifts: bool | None = None,
        device: str = "auto",
        precision: str = "float32",
        n_threads: int = 0,
        seed: int = 0,
        optimizer: str = "adamw",
        **options: Any,
    ) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"model: {model!r:.60} in place of a Model")
        if not isinstance(data, Dataset):
            raise TypeError(f"data: {data!r:.60} in place of a Dataset")
        asked = lib.core.mlff_trainer_options_default()
        _set_options(asked.loss, LOSS, options)
        _set_options(asked, OPTIONS, options)
        if options:
            raise MlffUsageError(f"{next(iter(options))} is not an option of Trainer")
        if precision not in PRECISIONS:
            raise MlffUsageError(f"precision {precision!r}: expected one of {', '.join(map(repr, PRECISIONS))}")
        if optimizer not in OPTIMIZERS:
            raise MlffUsageError(f"optimizer {optimizer!r}: expected one of {', '.join(map(repr, OPTIMIZERS))}")
        asked.optimizer = OPTIMIZERS.index(optimizer)
        asked.n_steps, asked.n_threads, asked.seed, asked.precision = n_steps, n_threads, seed, PRECISIONS[precision]
        asked.device = parse_device("cpu" if precision == "float64" else device).struct
        self.n_steps = n_steps
        self._model = model  # the C trainer borrows it
        out = Handle(lib.core.mlff_model_destroy)
        if shifts is None:
            lib.core.mlff_model_to_train(model._handle, data._handle, n_threads, byref(out))
            self._model = Model(out)
        elif shifts:
            values = (c_double * 119)()
            lib.core.mlff_dataset_shifts(data._handle, values)
            lib.core.mlff_model_with_shifts(model._handle, values, byref(out))
            self._model = Model(out)
        out = Handle(lib.core.mlff_trainer_destroy, self._model._handle)
        lib.core.mlff_trainer_create(self._model._handle, data._handle, byref(asked), byref(out))
        self._handle = out
        self._lock = threading.RLock()

    @property
    @exclusive
    def step(self) -> int:
        """Steps made."""
        return int(lib.core.mlff_trainer_step(self._handle))

    @property
    @exclusive
    def learning_rate(self) -> float:
        """Of the next step."""
        return float(lib.core.mlff_trainer_learning_rate(self._handle))

    @exclusive
    def run(self, n_steps: int) -> Errors:
        """n_steps more steps, less at the run's end; the errors are those of their batches as they were trained on.

        Raises:
            MlffUnstableError: the loss stopped being finite.
            KeyboardInterrupt: Ctrl-C; another call goes on from the last step made, and its errors are of the steps before too.
        """
        row = s.mlff_training_errors()

        def run(first: int, n: int) -> None:
            last = first + n >= n_steps
            lib.core.mlff_trainer_run(self._handle, n, None, byref(row) if last else None)

        in_pieces(as_c(c_int64, n_steps, "n_steps"), run)
        return _errors(row)

    @exclusive
    def validate(self, data: Dataset) -> Errors:
        """Errors of the averaged weights."""
        row = s.mlff_training_errors()
        lib.core.mlff_trainer_validate(self._handle, data._handle, byref(row))
        return _errors(row)

    @exclusive
    def element_errors(self) -> dict[str, float]:
        """Mean absolute force errors of the last validation by element, eV/Å; empty before it."""
        errors = np.empty(119)
        lib.core.mlff_trainer_element_errors(self._handle, errors.ctypes.data)
        return {lib.core.mlff_element_symbol(z).decode(): float(errors[z]) for z in np.flatnonzero(~np.isnan(errors))}

    @exclusive
    def report(self, value: float) -> None:
        """Passes a validation error to the plateau schedule."""
        lib.core.mlff_trainer_report(self._handle, value)

    @exclusive
    def gradient(self, frames: Sequence[int]) -> tuple[float, Array]:
        """Loss and its gradient with respect to every trainable parameter, of structures by index in the data."""
        indices = [as_c(c_int64, frame, "frame") for frame in frames]
        out = np.empty(lib.core.mlff_trainer_n_parameters(self._handle))
        loss = c_double()
        lib.core.mlff_trainer_gradient(self._handle, (c_int64 * len(indices))(*indices), len(indices), out.ctypes.data, byref(loss))
        return loss.value, out

    @exclusive
    def model(self, raw: bool = False) -> Model:
        """A new model with the averaged weights, or those being trained."""
        out = Handle(lib.core.mlff_model_destroy)
        lib.core.mlff_trainer_model(self._handle, int(raw), byref(out))
        return Model(out)

    @exclusive
    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint, whole or not at all."""
        lib.core.mlff_trainer_save(self._handle, lib.path_bytes(path))

    @exclusive
    def restore(self, path: str | os.PathLike[str]) -> None:
        """Goes on from a checkpoint of the same model, data and options, to the same bits."""
        lib.core.mlff_trainer_restore(self._handle, lib.path_bytes(path))


# ---- a whole run -----------------------------------------------------------------------------------------------------


def read_history(path: str | os.PathLike[str]) -> dict[str, Array]:
    """A run's history.jsonl as arrays by name: step, learning_rate, training_force_mae, validation_energy_mae, ...

    Energies are eV/atom, forces eV/Å, stress eV/Å³; NaN where there is no label. Force errors by element, validation_force_mae_H, ...,
    are NaN in lines without them.
    """
    columns: dict[str, list[float]] = {}
    elements: dict[str, dict[int, float]] = {}
    n_lines = 0
    for number, line in enumerate(pathlib.Path(path).read_bytes().splitlines(), 1):
        try:
            row = json.loads(line)
            flat = {key: value for key, value in row.items() if not isinstance(value, dict)}
            for part in ("training", "validation"):
                flat.update({f"{part}_{key.split('_ev')[0]}": value for key, value in row[part].items()})
            numbers = {key: float("nan") if value is None else float(value) for key, value in flat.items()}
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            raise MlffFormatError(f"{path}:{number}: not a line of a run's history (an object with training and validation)") from None
        for key in [key for key in numbers if key.startswith("validation_force_mae_")]:
            elements.setdefault(key, {})[number] = numbers.pop(key)
        if columns and list(columns) != list(numbers):
            raise MlffFormatError(f"{path}:{number}: not of the same numbers as the lines before it")
        for key, value in numbers.items():
            columns.setdefault(key, []).append(value)
        n_lines = number
    by_element = {key: np.array([row.get(k, np.nan) for k in range(1, n_lines + 1)]) for key, row in elements.items()}
    return {**{key: np.array(values) for key, values in columns.items()}, **by_element}


@dataclass(frozen=True)
class Distillation:
    """A finished run.

    Attributes:
        folder: of the run; report.html in it is for people.
        passed: every bar of the verdict passed.
        verdict: verdict.json: `bars` with name, state, value, limit, unit, text, and system where there are several; `speed_s`
            and other settings.
        history: `read_history`; empty where the file is gone.
    """

    folder: pathlib.Path
    passed: bool
    verdict: dict[str, Any] = field(repr=False)
    history: dict[str, Array] = field(repr=False)

    def __str__(self) -> str:
        """One line: what failed, and where the student and its page are."""
        failed = [bar["name"] for bar in self.verdict["bars"] if bar["state"] != "passed"]
        told = "passed" if self.passed else f"failed: {', '.join(failed)}"
        return f"{told}; student {self.folder / 'student.safetensors'}, page {self.folder / 'report.html'}"

    def student(self) -> Model:
        """The student."""
        return Model.load(self.folder / "student.safetensors")


def _take_settings(config: s.mlff_distill_config, given: dict[str, Any]) -> None:
    known = {field[0] for field in config._fields_} - {"struct_size", "teacher", "systems", "labels", "labels_hash", "systems_hash"}
    for name, value in given.items():
        if name not in known:
            raise MlffUsageError(f"{name} is not a setting of distill; there are {', '.join(sorted(known))}")
        setattr(config, name, value)


def _seed_text(atoms: Any) -> str:
    """One structure as extended XYZ, with its fixed atoms as a column, for which older versions of ASE need an array of that name, and newer
    ones must not have it."""
    from ase.constraints import FixAtoms
    from ase.io import write

    held, made, text = fixed_atoms(atoms), atoms.copy(), io.StringIO()
    made.set_constraint(FixAtoms(indices=held) if held else None)
    write(text, made, format="extxyz")
    if held and ":move_mask:" not in text.getvalue():
        made.set_array("move_mask", ~np.isin(np.arange(len(made)), held))
        text = io.StringIO()
        write(text, made, format="extxyz")
    return text.getvalue()


def _name_seeds(folder: pathlib.Path, seeds: Any) -> bytes:
    """The names of seeds; structures become a file in the run's folder."""
    if isinstance(seeds, (str, os.PathLike)):
        return lib.path_bytes(seeds)
    path = folder / "seeds.extxyz"
    if "," in os.fspath(path):
        raise MlffUsageError(f"{folder}: names of systems are separated by commas, and this folder has one in its name; give another folder")
    text = "".join(_seed_text(atoms) for atoms in seeds)
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        write_whole(path, text)
    elif path.read_text(encoding="utf-8") != text:
        raise MlffUsageError(f"{folder} holds a run of other seeds; give another folder")
    return lib.path_bytes(path)


@contextlib.contextmanager
def _without_leftovers(folder: pathlib.Path) -> Iterator[None]:
    """Removes what `_name_seeds` wrote for a run that then did not begin, as by a mistyped setting."""
    path, was_folder = folder / "seeds.extxyz", folder.exists()
    was_file = path.exists()
    try:
        yield
    finally:
        if not was_file and not (folder / "config.json").exists():
            path.unlink(missing_ok=True)
            if not was_folder:
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _name_labels(labels: Any) -> tuple[bytes, Dataset | None]:
    """The names of files of labels, and the Dataset that stands for those that C does not read."""
    if isinstance(labels, Dataset):
        return b"a Dataset of Python", labels
    paths = [labels] if isinstance(labels, (str, os.PathLike)) else list(each_atoms(labels))
    if paths and not any(isinstance(path, (str, os.PathLike)) for path in paths):
        return b"a Dataset of Python", Dataset(paths)
    if not paths or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        raise TypeError(f"labels: {labels!r:.60} in place of a Dataset, structures, the name of a file, or several")
    if any(os.fspath(path).endswith(".db") for path in paths):
        return b" and ".join(lib.path_bytes(path) for path in paths), Dataset.read(*paths)
    for path in paths:
        if "," in os.fspath(path):
            raise MlffUsageError(f"{path}: a name of labels with a comma; rename the file")
    return b",".join(lib.path_bytes(path) for path in paths), None


def distill(
    teacher: Teacher | str | os.PathLike[str] | Model | Any | None = None,
    seeds: str | os.PathLike[str] | Iterable[Atoms] | None = None,
    out: str | os.PathLike[str] | None = None,
    preset: str = "quick",
    device: str = "auto",
    n_threads: int = 0,
    progress: Callable[[str, float, str], None] | None = None,
    labels: Dataset | Iterable[Atoms] | str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    **config: Any,
) -> Distillation:
    """From a teacher, or labels, to a judged student; a folder that holds an unfinished run of the same settings is gone on with.

    Args:
        teacher: as Teacher takes it, an ASE calculator too. With `labels`: what the student is measured beside; None: nothing.
        seeds: structures, or names of built-in systems and files, separated by commas.
        out: folder of the run.
        preset: "demo", "quick", "standard" or "thorough".
        device: that trains and runs the student.
        n_threads: CPU threads, and processes of xtb and KIM; 0: all cores this process may use.
        progress: called with stage, fraction done and a line of text.
        labels: labelled structures in place of seeds: a Dataset, what it is made of, or files as Dataset.read takes them. A tenth each is held out for
            validation and test, by group; `n_structures` of them at most are used (0: all). The run keeps a Dataset as labels.mlff,
            so that `mlff distill --resume -o OUT` goes on with it as well.
        config: settings over the preset's, by their names in config.json.

    Raises:
        MlffUsageError: neither a teacher with seeds nor labels; both seeds and labels.
        KeyboardInterrupt: Ctrl-C; the same call goes on from there.
    """
    if out is None or (labels is None) == (seeds is None) or (labels is None and teacher is None):
        raise MlffUsageError("distill takes a teacher and seeds, or labels, and the folder `out`")
    chosen = teacher if isinstance(teacher, Teacher) or teacher is None else Teacher(teacher, n_threads=n_threads)
    folder = pathlib.Path(out)
    asked, data = s.mlff_distill_config(), None
    lib.core.mlff_distill_preset(preset, byref(asked))
    asked.teacher = None if chosen is None else chosen.name
    if labels is not None:
        name, data = _name_labels(labels)
        lib.core.mlff_distill_use_labels(byref(asked), name)
    _take_settings(asked, config)
    if seeds is not None:
        if not isinstance(seeds, (str, os.PathLike)):
            seeds = list(each_atoms(seeds))
            warn_of_moments(chosen, any(map(has_moments, seeds)))
    options = lib.core.mlff_distill_options_default()
    options.device, options.n_threads = parse_device(device).struct, n_threads
    options.teacher = None if chosen is None else chosen._handle
    options.labels = None if data is None else data._handle
    passed = c_int()
    with contextlib.nullcontext() if chosen is None else chosen._lock, _without_leftovers(folder), Interrupts() as interrupts:
        if seeds is not None:
            asked.systems = _name_seeds(folder, seeds)

        def tell(context: Any, address: int) -> int:
            row = s.mlff_distill_progress.from_address(address)
            try:
                if progress is not None:
                    progress(row.stage.decode(), row.fraction, row.text.decode())
            except BaseException as error:
                interrupts.keep(error)
                return 1
            return int(interrupts.pending)

        callback = s.DISTILL_PROGRESS(tell)
        options.callback = ctypes.cast(callback, c_void_p)
        if chosen is not None:
            chosen._interrupts = interrupts
        status = lib.core.mlff_distill(byref(asked), lib.path_bytes(folder), byref(options), byref(passed))
        if chosen is not None:
            chosen._interrupts = None
    interrupts.finish(status, None, "partial")
    lib.show_warnings()
    verdict = json.loads((folder / "verdict.json").read_text(encoding="utf-8"))
    history = folder / "history.jsonl"
    return Distillation(folder, bool(passed.value), verdict, read_history(history) if history.exists() else {})
