# SPDX-License-Identifier: MIT
"""Models and evaluators of the C engine, on arrays.

    model = Model.load("ethanol.safetensors")
    evaluator = Evaluator(model)
    results = evaluator.compute(numbers, positions)
    results["energies"], results["forces"]

Arrays of any dtype, order and strides are taken; what is not float64 and contiguous is copied once. Arrays of other
frameworks in host memory come in through DLPack or the array interface. Arrays on a CUDA device (torch, CuPy, JAX: anything
with `__cuda_array_interface__` or DLPack) go in and come out by their pointers, see `compute_on_device`.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Sequence
from ctypes import byref, c_char_p, c_int
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _frameworks as frameworks
from . import _library as lib
from . import _structs as s
from ._arrays import device_array, host_array, new_like, unmasked
from ._devices import Device, gpu_problem, parse_device, parse_devices
from ._handles import Handle
from ._values import text_bytes
from .errors import MlffUnsupportedError, MlffUsageError

Array = npt.NDArray[np.float64]

_RESULTS = (
    "energies", "forces", "stresses", "atom_energies", "virials",
    "member_energies", "member_forces", "energy_deviations", "force_deviations",
    "force_errors",
)  # fmt: skip
_OUTPUTS = {1: "energies", 2: "atom_energies", 4: "forces", 8: "stresses", 16: "virials", 32: "force_errors"}
PRECISIONS = {"default": 0, "float32": 1, "float64": 2, "tf32": 3, "bf16": 4}


def _setting_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(str(entry) for entry in value)
    return str(value)


@dataclass(frozen=True)
class ModelInfo:
    """Architecture, elements, cutoff and units of a model.

    Attributes:
        elements: atomic numbers it knows, ascending; empty where unknown.
        n_members: of an ensemble, whose mean the energy is; 1 where it is none.
        cutoff: Å, of the neighbor list.
        trained: False for random weights, of which only the speed means something.
        conservative: forces are the derivative of the energy.
        outputs: results that an evaluator computes: "energies", "atom_energies", "forces", "stresses", "virials", "force_errors". Others
            are refused.
        energy_unit: the file's unit in eV.
        length_unit: the file's unit in Å.
    """

    architecture: str
    name: str
    description: str
    reference: str
    cutoff: float
    n_layers: int
    n_parameters: int
    n_bytes: int
    trained: bool
    conservative: bool
    has_atom_energies: bool
    energy_unit: float
    length_unit: float
    elements: tuple[int, ...]
    n_members: int
    outputs: tuple[str, ...]


class Model:
    """Weights and shape of a force field, read-only, shared by threads. Made by `load`, `import_schnetpack` or `create`."""

    def __init__(self, handle: Handle) -> None:
        if not isinstance(handle, Handle):
            raise TypeError(f"Model({handle!r}): a file is read by Model.load, and a checkpoint by Model.import_…")
        self._handle = handle

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """Loads a model file (.safetensors, written by `save` or by `mlff import`)."""
        out = Handle(lib.core.mlff_model_destroy)
        lib.core.mlff_model_load(lib.path_bytes(path), byref(out))
        return cls(out)

    @classmethod
    def import_schnetpack(
        cls, path: str | os.PathLike[str], energy_unit: str, length_unit: str = "Ang", elements: str | Iterable[str] | None = None
    ) -> Model:
        """Reads what SchNetPack saved for a PaiNN; nothing in the file is executed.

        Args:
            energy_unit: what the file computes: "kcal/mol", "eV", "Hartree".
            length_unit: "Ang" or "Bohr".
            elements: symbols the model was trained on, "H,C,O" or a list; None: unknown.
        """
        options = lib.core.mlff_import_options_default()
        names = ",".join(elements) if elements is not None and not isinstance(elements, str) else elements
        options.energy_unit = energy_unit
        options.length_unit = length_unit
        options.elements = names or None
        out = Handle(lib.core.mlff_model_destroy)
        lib.core.mlff_model_import(lib.path_bytes(path), byref(options), byref(out))
        return cls(out)

    @classmethod
    def import_ani(cls, path: str | os.PathLike[str]) -> Model:
        """Reads an ANI model of NeuroChem (its .info file) or of FeNNol (a .fnx file); nothing in the file is executed."""
        out = Handle(lib.core.mlff_model_destroy)
        lib.core.mlff_model_import(lib.path_bytes(path), None, byref(out))
        return cls(out)

    @classmethod
    def import_orb(cls, path: str | os.PathLike[str]) -> Model:
        """Reads a checkpoint of orb-models (.ckpt); nothing in the file is executed."""
        return cls.import_ani(path)

    @classmethod
    def create(cls, architecture: str, **settings: object) -> Model:
        """An untrained model, deterministic in its setting `seed`: right for measuring speed, meaningless for chemistry.

        Args:
            architecture: "painn", "ani", "orb-v2", "orb-v3-direct" or "orb-v3-conservative", or a published model's name, as
                "orb-v3-direct-inf-omat": its sizes are then the defaults.
            settings: of the architecture, such as `n_features=64, elements="H,C,O"`; lists become "H,C,O", None is the default.
        """
        given = {name: _setting_text(value) for name, value in settings.items() if value is not None}
        table = (s.mlff_setting * (len(given) + 1))()
        for entry, (name, value) in zip(table, given.items()):
            entry.name, entry.value = name, value
        out = Handle(lib.core.mlff_model_destroy)
        lib.core.mlff_model_create(text_bytes(architecture, "architecture"), table, byref(out))
        return cls(out)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a .safetensors model file."""
        lib.core.mlff_model_save(self._handle, lib.path_bytes(path))

    @property
    def info(self) -> ModelInfo:
        """Architecture, elements, cutoff and units of the model."""
        raw = s.mlff_model_info()
        lib.core.mlff_model_info_get(self._handle, byref(raw))
        elements = ctypes.string_at(raw.elements, raw.n_elements) if raw.n_elements else b""
        return ModelInfo(
            architecture=_text(raw.architecture),
            name=_text(raw.name),
            description=_text(raw.description),
            reference=_text(raw.reference),
            cutoff=raw.cutoff_angstrom,
            n_layers=raw.n_layers,
            n_parameters=raw.n_parameters,
            n_bytes=raw.n_bytes,
            trained=bool(raw.trained),
            conservative=bool(raw.conservative),
            has_atom_energies=bool(raw.has_atom_energies),
            energy_unit=raw.energy_unit_ev,
            length_unit=raw.length_unit_angstrom,
            elements=tuple(elements),
            n_members=raw.n_members,
            outputs=tuple(name for flag, name in _OUTPUTS.items() if lib.core.mlff_model_outputs(self._handle) & flag),
        )

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the model file."""
        found: dict[str, str] = {}
        value = c_char_p()
        while key := lib.core.mlff_model_metadata(self._handle, len(found), byref(value)):
            found[_text(key)] = _text(value.value)
        return found

    def __repr__(self) -> str:
        info = self.info
        said = info.trained or info.description.endswith("untrained")
        return f"<Model {info.name}: {info.description}{'' if said else ', untrained'}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        return self  # read-only

    def __reduce__(self) -> tuple[Any, ...]:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / f"{self.info.name}.safetensors"
            self.save(path)
            return _model_from_bytes, (path.name, path.read_bytes())


def _model_from_bytes(name: str, content: bytes) -> Model:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / name
        path.write_bytes(content)
        return Model.load(path)


def _text(value: bytes | None) -> str:
    return value.decode("utf-8", "replace") if value else ""


def _blocks(value: Any, shape: tuple[int, ...], name: str) -> Array:
    """`value` as [n_systems] blocks of a shape."""
    array = np.asarray(unmasked(value, name))
    if array.size % int(np.prod(shape)):
        raise MlffUsageError(f"{name}: shape {array.shape}, {shape} for each system is needed")
    return np.reshape(array, (-1, *shape))


def _flags(periodic: Any, n_systems: int) -> Array:
    flags = _blocks(np.asarray(unmasked(periodic, "periodic"), dtype=bool), (3,), "periodic")
    return host_array(flags, np.uint8, (n_systems, 3), "periodic")


def _first_atoms(value: Any, n_atoms: int) -> npt.NDArray[np.int32]:
    """[n_systems + 1] of a batch, of which C knows the number of atoms by the last one; None: one system."""
    first = np.array([0, n_atoms], np.int32) if value is None else host_array(value, np.int32, (-1,), "first_atom")
    if first.size < 2 or first[0] != 0 or first[-1] != n_atoms:
        raise MlffUsageError(f"first_atom: it must run from 0 to {n_atoms}, the number of atoms")
    return first


def _conditions(charges: Any, spins: Any, n_systems: int) -> list[Array | None]:
    """Charges and spins as arrays of the systems, or None where not given."""
    return [
        None if value is None else host_array(np.atleast_1d(unmasked(value, name)), np.float64, (n_systems,), name)
        for value, name in ((charges, "charges"), (spins, "spins"))
    ]


class Evaluator:
    """One model on one device in one precision, with its buffers and its neighbor list.

    Calls from several threads wait for each other; for speed give each thread its own evaluator (the model is shared).

    Args:
        model: a Model, or the path of a model file.
        device: "cpu", "cuda", "cuda:1", or "auto": a GPU where one works, else the CPU. Several, as "cuda:0,1": a system is divided
            among them in space, the systems of a batch are handed out.
        precision: "float32", "float64" (the reference, on the CPU), on a GPU "tf32" or "bf16", on CPUs with AMX "tf32", and "bf16" of Orb
            on the CPU.
        skin: Å, of the neighbor list; 0 rebuilds it at each call.
        n_threads: of the CPU; 0 takes all cores this process may use.
        cpu_path: "avx512", "amx", "avx2", "portable"; None takes the best there is.
        members: of an ensemble, those to run, as [0, 3]; None: all.
    """

    def __init__(
        self,
        model: Model | str | os.PathLike[str],
        device: str = "auto",
        precision: str = "float32",
        skin: float = 0.5,
        n_threads: int = 0,
        cpu_path: str | None = None,
        members: Sequence[int] | None = None,
    ) -> None:
        if precision not in PRECISIONS:
            raise MlffUsageError(f"precision {precision!r}: expected one of {', '.join(map(repr, PRECISIONS))}")
        self.model = model if isinstance(model, Model) else Model.load(model)
        self.devices = parse_devices(device)
        self.device: Device = self.devices[0]
        options = lib.core.mlff_evaluator_options_default()
        options.device = self.device.struct
        if len(self.devices) > 1:
            options.devices = (s.mlff_device * len(self.devices))(*(one.struct for one in self.devices))
            options.n_devices = len(self.devices)
        options.precision = PRECISIONS[precision]
        options.skin_angstrom = skin
        options.n_threads = n_threads
        options.cpu_path = cpu_path or None
        options.members = ",".join(map(str, members)) if members is not None else None
        out = Handle(lib.core.mlff_evaluator_destroy, self.model._handle)
        try:
            lib.core.mlff_evaluator_create(self.model._handle, byref(options), byref(out))
        except MlffUnsupportedError as error:
            if device != "auto":
                raise
            if self.device.type != "cuda":
                raise MlffUnsupportedError(f"{error} (device auto: {gpu_problem()})") from None
            cause = lib.last_cause()
            self.device = parse_device("cpu")
            self.devices = [self.device]
            options.device = self.device.struct
            try:
                lib.core.mlff_evaluator_create(self.model._handle, byref(options), byref(out))
            except MlffUnsupportedError as refused:
                raise MlffUnsupportedError(f"{refused} (device auto: {cause})") from None
            warnings.warn(f"device auto: {cause}; using the CPU", stacklevel=2)
        self._handle = out
        self.precision = "float32" if precision == "default" else precision
        self.lock = threading.RLock()
        self.compute_ns = 0  # of the last call, as Python saw it
        self._batch = s.mlff_batch()
        self._results = s.mlff_results()

    def compute(
        self,
        numbers: Any,
        positions: Any,
        cells: Any = None,
        periodic: Any = None,
        first_atom: Any = None,
        forces: bool = True,
        stresses: bool = False,
        atom_energies: bool = False,
        virials: bool = False,
        members: bool = False,
        charges: Any = None,
        spins: Any = None,
        force_errors: bool = False,
    ) -> dict[str, Array]:
        """Energies, forces and stresses of one system or of a batch of several, concatenated.

        Args:
            numbers: [n_atoms] atomic numbers.
            positions: [n_atoms][3] Å.
            cells: [3][3] or [n_systems][3][3] Å, rows are lattice vectors; None: no cells.
            periodic: [3] or [n_systems][3] booleans; None: nothing repeats.
            first_atom: [n_systems + 1]; None: all atoms are one system.
            forces, stresses, atom_energies, virials: what is wanted beside the energies.
            members: of an ensemble, each member's results and their standard deviations too.
            charges, spins: [n_systems] e and multiplicities 2S + 1, or one number for one system: of models that depend on them.
            force_errors: the error of each atom's force that the model expects, of models that estimate it.

        Returns:
            "energies" [n_systems] eV; where wanted "forces" [n_atoms][3] eV/Å, "stresses" [n_systems][6] eV/Å³ in Voigt
            order xx yy zz yz xz xy (NaN where not all axes repeat), "atom_energies" [n_atoms] eV, "virials" [n_systems][9] eV,
            "member_energies" [n_members][n_systems] eV, "member_forces" [n_members][n_atoms][3] eV/Å, "energy_deviations"
            [n_systems] eV, "force_deviations" [n_atoms][3] eV/Å, "force_errors" [n_atoms] eV/Å.

        Raises:
            MlffElementError: an element the model does not know.
            MlffValueError: positions or cells that are not finite, two atoms on one point.
        """
        numbers = host_array(numbers, np.int32, (-1,), "numbers")
        n_atoms = numbers.shape[0]
        positions = host_array(positions, np.float64, (n_atoms, 3), "positions")
        first = _first_atoms(first_atom, n_atoms)
        n_systems = first.shape[0] - 1
        if cells is not None:
            cells = host_array(_blocks(cells, (3, 3), "cells"), np.float64, (n_systems, 3, 3), "cells")
        if periodic is not None:
            periodic = _flags(periodic, n_systems)
        conditions = _conditions(charges, spins, n_systems)

        out: dict[str, Array] = {"energies": np.empty(n_systems)}
        if forces:
            out["forces"] = np.empty((n_atoms, 3))
        if stresses:
            out["stresses"] = np.empty((n_systems, 6))
        if atom_energies:
            out["atom_energies"] = np.empty(n_atoms)
        if virials:
            out["virials"] = np.empty((n_systems, 9))
        if force_errors:
            out["force_errors"] = np.empty(n_atoms)
        if members:
            out["member_energies"] = np.empty((self.n_members, n_systems))
            out["energy_deviations"] = np.empty(n_systems)
            if forces:
                out["member_forces"] = np.empty((self.n_members, n_atoms, 3))
                out["force_deviations"] = np.empty((n_atoms, 3))
        with self.lock:
            b, r = self._batch, self._results
            b.n_systems, b.location, b.stream = n_systems, lib.HOST, None
            b.first_atom, b.species, b.positions = first.ctypes.data, numbers.ctypes.data, positions.ctypes.data
            b.cells = None if cells is None else cells.ctypes.data
            b.periodic = None if periodic is None else periodic.ctypes.data
            b.charges, b.spins = [None if v is None else v.ctypes.data for v in conditions]
            r.location = lib.HOST
            for name in _RESULTS:
                setattr(r, name, out[name].ctypes.data if name in out else None)
            self._compute()
        return out

    def _compute(self) -> None:
        start = time.perf_counter_ns()
        status = lib.core.mlff_evaluator_compute(self._handle, byref(self._batch), byref(self._results))
        self.compute_ns = time.perf_counter_ns() - start
        if status != lib.OK:
            lib.raise_status(status)
        if lib._warnings:
            lib.show_warnings()

    def compute_on_device(
        self,
        numbers: Any,
        positions: Any,
        out: dict[str, Any] | None = None,
        cells: Any = None,
        periodic: Any = None,
        first_atom: Any = None,
        stream: int | None = None,
        charges: Any = None,
        spins: Any = None,
    ) -> dict[str, Any]:
        """The same on arrays that live on this evaluator's GPU: nothing is copied, and the call may return before it is done.

        Args:
            numbers: [n_atoms] int32; positions: [n_atoms][3] float64; cells: [n_systems][3][3] float64 or None: contiguous
                arrays on the GPU, with `__cuda_array_interface__` or DLPack (torch, CuPy, JAX).
            out: arrays on the GPU to be filled, contiguous, of float64, by the names `compute` returns; None: new "energies"
                and "forces" of the framework of `positions`.
            periodic, first_atom, charges, spins: host arrays as for `compute`.
            stream: CUDA stream to work on; None: that which torch or CuPy, whose `positions` are, works on now, for others
                the default stream. Results are there when that stream has come so far; those of JAX are waited for.

        Returns:
            `out`.

        Raises:
            MlffUsageError: an array is not on this GPU, not contiguous, or of another dtype or shape.
        """
        if self.device.type != "cuda":
            raise MlffUsageError(f"this evaluator is on {self.device}; arrays of a GPU need one made with device='cuda'")
        jax = frameworks.jax() if frameworks.of(positions) == "jax" else None
        if jax is not None:
            jax.block_until_ready((numbers, positions, cells))
        on_stream = frameworks.current_stream(positions) if stream is None else stream
        n_atoms = int(positions.shape[0])
        first = _first_atoms(first_atom, n_atoms)
        n_systems = first.shape[0] - 1
        flags = None
        if periodic is not None:
            flags = _flags(periodic, n_systems)
        conditions = _conditions(charges, spins, n_systems)
        shapes = {"energies": (n_systems,), "forces": (n_atoms, 3), "stresses": (n_systems, 6), "atom_energies": (n_atoms,),
                  "virials": (n_systems, 9)}  # fmt: skip
        if out is None:
            out = {name: new_like(positions, shapes[name]) for name in ("energies", "forces")}
        unknown = set(out) - set(shapes)
        if unknown or not out:
            raise MlffUsageError(f"out: {', '.join(sorted(unknown)) or 'nothing'}; results are {', '.join(shapes)}")
        keep = []

        def pointer(array: Any, typestr: str, shape: tuple[int, ...], name: str, written: bool = False) -> int:
            address, owner = device_array(array, typestr, shape, name, self.device, on_stream, written)
            keep.append(owner)
            return address

        with self.lock:
            b, r = self._batch, self._results
            b.n_systems, b.location, b.stream = n_systems, lib.DEVICE_MEMORY, on_stream or None
            b.first_atom = first.ctypes.data
            b.species = pointer(numbers, "<i4", (n_atoms,), "numbers")
            b.positions = pointer(positions, "<f8", (n_atoms, 3), "positions")
            b.cells = None if cells is None else pointer(cells, "<f8", (n_systems, 3, 3), "cells")
            b.periodic = None if flags is None else flags.ctypes.data
            b.charges, b.spins = [None if v is None else v.ctypes.data for v in conditions]
            r.location = lib.DEVICE_MEMORY
            for name in _RESULTS:
                setattr(r, name, pointer(out[name], "<f8", shapes[name], name, written=True) if name in out else None)
            self._compute()
            if jax is not None:
                lib.core.mlff_device_synchronize(self.device.struct)
        return out

    @property
    def n_members(self) -> int:
        """Members of the ensemble that run; 1 where the model is none."""
        raw = s.mlff_evaluator_info()
        with self.lock:
            lib.core.mlff_evaluator_info_get(self._handle, byref(raw))
        return int(raw.n_members)

    @property
    def stages(self) -> list[tuple[str, str, int]]:
        """(phase, name, layer) of each stage of a step; layer is -1 where there is none."""
        return [(_text(row.phase), _text(row.name), row.layer) for row in self.stage_rows()]

    def stage_rows(self) -> list[s.mlff_stage]:
        """The C rows of the stages, borrowed from this evaluator."""
        n = c_int()
        rows = lib.core.mlff_evaluator_stages(self._handle, byref(n))
        return [rows[i] for i in range(n.value)]

    def stage_clock(self, on: bool) -> None:
        """Switches the stages' clocks on or off."""
        with self.lock:
            lib.core.mlff_evaluator_stage_clock_set(self._handle, int(on))

    def stage_times_ns(self) -> Array:
        """Time of each stage in the last call, ns; zeros while the clocks are off."""
        times = np.zeros(len(self.stages))
        with self.lock:
            lib.core.mlff_evaluator_stage_times(self._handle, times.ctypes.data)
        return times

    @property
    def info(self) -> dict[str, Any]:
        """device, precision, cpu_path, n_threads, and so far: n_computes, n_pairs (of the last call), n_rebuilds, n_growths,
        host_bytes, device_bytes."""
        raw = s.mlff_evaluator_info()
        with self.lock:
            lib.core.mlff_evaluator_info_get(self._handle, byref(raw))
        counts = ("n_threads", "n_computes", "n_pairs", "n_rebuilds", "n_growths", "host_bytes", "device_bytes")
        return {
            "device": self.device,
            "precision": self.precision,
            "cpu_path": _text(raw.cpu_path),
            **{name: int(getattr(raw, name)) for name in counts},
        }
