# SPDX-License-Identifier: MIT
"""Python functions as what the C profiler measures, and ASE's atoms as its frames.

The profiler calls a trampoline; whatever the function raises is kept there, ends the run (MLFF_ERR_CALLBACK, or
MLFF_ERR_INTERRUPTED for Ctrl-C) with what was measured so far, and is raised again when the C call has returned.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_char_p, c_double, c_int, c_int64, c_void_p
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _library as lib
from . import _structs as s
from ._arrays import charge_and_spin, host_array
from ._devices import Device
from ._handles import Handle
from .errors import MlffWarning

MASKS = {"energy": lib.ENERGY, "forces": lib.FORCES, "stress": lib.STRESS}

# step(frame, wanted, energy, forces, stress): addresses of a C system and of the results, None where not wanted
Step = Callable[[int, int, "int | None", "int | None", "int | None"], None]


def doubles(address: int, shape: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
    """The doubles at an address, as an array that borrows them."""
    n = shape if isinstance(shape, int) else math.prod(shape)
    memory = memoryview((c_double * n).from_address(address))
    return np.ndarray(shape, np.float64, memory)


class Interrupts:
    """What ends a run early: an exception of the function that is measured, or Ctrl-C between two calls of it.

    While a run is on, Ctrl-C raises KeyboardInterrupt only inside the measured function, where the trampoline catches it;
    elsewhere, where ctypes would swallow it, it is noted and ends the run at the next call.
    """

    def __init__(self) -> None:
        self.inside = False
        self.pending = False
        self.error: BaseException | None = None
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.inside:
            raise KeyboardInterrupt
        self.pending = True

    def keep(self, error: BaseException) -> int:
        """Keeps the exception of the measured function and gives the status the C library is to end with."""
        self.inside = False
        self.error = error
        if isinstance(error, KeyboardInterrupt):
            return lib.fail(lib.INTERRUPTED, "interrupted")
        return lib.fail(lib.CALLBACK, f"{type(error).__name__}: {error}")

    def stop(self) -> int:
        """The status for an interrupt noted between calls."""
        return lib.fail(lib.INTERRUPTED, "interrupted")

    def finish(self, status: int, measured: Any, attribute: str) -> None:
        """After the C call: raises what ended it, with `measured` (or None) attached under the name `attribute`."""
        error = self.error
        if error is None and (self.pending or status == lib.INTERRUPTED):
            error = KeyboardInterrupt()
        if error is not None:
            attach(error, attribute, measured)
            raise error
        if status != lib.OK:
            try:
                lib.raise_status(status)
            except Exception as problem:
                attach(problem, attribute, measured)
                raise
        lib.show_warnings()


def in_pieces(n_steps: int, run: Callable[[int, int], None]) -> None:
    """Calls run(first, n) for one piece of the steps after the other, of 20 to 500 ms each where a step takes less. Ctrl-C ends the run between
    two pieces."""
    done, piece = 0, 10
    with Interrupts() as interrupts:
        while True:
            n = min(piece, n_steps - done)
            start = time.perf_counter_ns()
            run(done, n)
            took = time.perf_counter_ns() - start
            done += n
            if interrupts.pending:
                raise KeyboardInterrupt
            if done >= n_steps:
                return
            if took < 20_000_000:
                piece *= 10
            elif took > 500_000_000:
                piece = max(1, piece // 10)


def attach(error: BaseException, attribute: str, measured: Any) -> None:
    """Gives an exception what was found before it."""
    try:
        setattr(error, attribute, measured)
    except AttributeError:
        pass  # an exception with slots has no room for it


class Pauses:
    """Time that Python's garbage collector has taken so far, counted while the context is open, where C reads it."""

    def __init__(self) -> None:
        self.total = c_int64(0)
        self._start = 0

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._start = time.perf_counter_ns()
        elif self._start:
            self.total.value += time.perf_counter_ns() - self._start

    def __enter__(self) -> Pauses:
        gc.callbacks.append(self._on_collection)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        gc.callbacks.remove(self._on_collection)


# ---- profiles ------------------------------------------------------------------------------------------------------


class ProfileHandle:
    """A profile of the C library."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ProfileHandle:
        out = Handle(lib.profile.mlff_profile_destroy)
        lib.profile.mlff_profile_load(lib.path_bytes(path), byref(out))
        return cls(out)

    def data(self) -> dict[str, Any]:
        """The report as a dictionary."""
        found: dict[str, Any] = json.loads(lib.take_text(lib.profile.mlff_profile_json, self._handle))
        return found

    def text(self, width: int, full: bool) -> str:
        write = lib.profile.mlff_profile_text if full else lib.profile.mlff_profile_text_short
        return lib.take_text(write, self._handle, width)

    def hotspots(self, threshold_pct: float) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(lib.take_text(lib.profile.mlff_profile_hotspots_json, self._handle, threshold_pct))
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        lib.profile.mlff_profile_save(self._handle, lib.path_bytes(path))


def run_profile(
    step: Step | s.mlff_callable,
    trajectory: Trajectory,
    *,
    name: str | None,
    model_name: str,
    device: Device,
    offered: Sequence[str],
    wanted: Sequence[str],
    n_steps: int,
    n_warmup: int,
    memory_every: int,
    split: bool,
    kernels: int = 0,
    notes: str = "",
    timestep_fs: float = float("nan"),
    ledgers: Mapping[str, Callable[[], int]] | None = None,
    stages: Sequence[s.mlff_stage] = (),
    stage_clock_set: Callable[[bool], None] | None = None,
    stage_times: Callable[[int], None] | None = None,
    counters: tuple[int | None, int | None] = (None, None),
) -> tuple[ProfileHandle | None, int, Interrupts]:
    """Measures; gives the profile (None if no step was measured), the status, and what ended it.

    `step` is a Python function, or a C callable that is measured as it is. `counters` is the address of a C function and
    of its context.
    """
    interrupts = Interrupts()
    ledgers = ledgers or {}
    reads = list(ledgers.values())

    def call(context: Any, frame: int, mask: int, energy: int | None, forces: int | None, stress: int | None) -> int:
        try:
            interrupts.inside = True
            if interrupts.pending:
                interrupts.inside = False
                return interrupts.stop()
            python_step(frame, mask, energy, forces, stress)
            interrupts.inside = False
            return lib.OK
        except BaseException as error:
            return interrupts.keep(error)

    def clock_set(context: Any, on: int) -> int:
        try:
            if stage_clock_set is not None:
                stage_clock_set(bool(on))
            return lib.OK
        except BaseException as error:
            return interrupts.keep(error)

    def times(context: Any, address: int) -> None:
        if stage_times is not None:
            stage_times(address)

    def ledger_bytes(context: Any, address: int) -> None:
        out = (c_int64 * len(reads)).from_address(address)
        for i, read in enumerate(reads):
            try:
                out[i] = read()
            except Exception:
                out[i] = 0  # an allocator that cannot be asked holds nothing we could tell

    def progress(context: Any, done: int, total: int) -> int:
        return int(interrupts.pending)

    def collect(context: Any) -> None:
        gc.collect()

    options = lib.profile.mlff_profile_options_default()
    keep: list[Any] = [s.PROGRESS(progress)]
    options.n_steps, options.n_warmup, options.memory_every, options.split = n_steps, n_warmup, memory_every, int(split)
    # What measuring costs takes 120 more steps at least: for our own models these are quick.
    options.overhead = int(split and bool(stages or isinstance(step, s.mlff_callable)))
    options.kernels = kernels
    options.properties = sum(MASKS[p] for p in set(wanted))
    options.timestep_fs = timestep_fs
    options.name = name or None
    options.notes = notes or None
    options.progress = ctypes.cast(keep[0], c_void_p)

    if isinstance(step, s.mlff_callable):
        c_callable = step
    else:
        python_step = step
        keep.append(s.STEP(call))
        c_callable = s.mlff_callable(struct_size=ctypes.sizeof(s.mlff_callable))
        c_callable.name = model_name
        c_callable.device = device
        c_callable.properties = sum(MASKS[p] for p in set(offered))
        c_callable.step = ctypes.cast(keep[-1], c_void_p)
        if stages and stage_times is not None:
            rows = (s.mlff_stage * len(stages))(*stages)
            keep += [rows, s.STAGE_CLOCK_SET(clock_set), s.STAGE_TIMES(times)]
            c_callable.n_stages, c_callable.stages = len(stages), ctypes.addressof(rows)
            c_callable.stage_clock_set = ctypes.cast(keep[-2], c_void_p)
            c_callable.stage_times = ctypes.cast(keep[-1], c_void_p)
        if ledgers:
            names = (c_char_p * len(reads))(*[text.encode() for text in ledgers])
            keep += [names, s.LEDGERS(ledger_bytes)]
            c_callable.n_ledgers, c_callable.ledger_names = len(reads), ctypes.addressof(names)
            c_callable.ledgers = ctypes.cast(keep[-1], c_void_p)
        c_callable.counters, c_callable.context = counters

    # With the collector off nothing would free what it collects: memory that waits for it is a leak then.
    if gc.isenabled():
        keep.append(s.COLLECT(collect))
        c_callable.collect = ctypes.cast(keep[-1], c_void_p)
    out = Handle(lib.profile.mlff_profile_destroy)
    pauses = Pauses()
    c_callable.paused_ns = ctypes.addressof(pauses.total)
    gc.collect()  # what is already garbage must not be freed in the middle of the measurement
    with interrupts, pauses:
        status = lib.profile.mlff_profile_run(byref(c_callable), trajectory.handle, byref(options), byref(out))
    return (ProfileHandle(out) if out.value else None), status, interrupts


# ---- trajectories --------------------------------------------------------------------------------------------------


class Trajectory:
    """A trajectory of the C library, made from ASE's atoms. The frame's index travels in the system's label."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    @classmethod
    def frames(cls, frames: Sequence[Any]) -> Trajectory:
        """The frames, again from the start when they end."""
        systems = [system_from_atoms(atoms, i) for i, atoms in enumerate(frames)]
        out = Handle(lib.profile.mlff_trajectory_destroy)
        try:
            pointers = (c_void_p * len(systems))(*systems)
            lib.profile.mlff_trajectory_frames(pointers, len(systems), byref(out))
        finally:
            for system in systems:
                lib.core.mlff_system_destroy(system)
        return cls(out)

    @classmethod
    def thermal(cls, atoms: Any, temperature: float, seed: int) -> Trajectory:
        """A new independent thermal displacement at each step."""
        system = system_from_atoms(atoms, 0)
        out = Handle(lib.profile.mlff_trajectory_destroy)
        try:
            lib.profile.mlff_trajectory_thermal(system, temperature, seed, byref(out))
        finally:
            lib.core.mlff_system_destroy(system)
        return cls(out)

    @classmethod
    def md(cls, atoms: Any, timestep_fs: float, temperature: float, friction_per_fs: float, seed: int) -> Trajectory:
        """MD by the measured force field itself: NVE, or Langevin where there is friction."""
        system = system_from_atoms(atoms, 0, motion=True)
        options = lib.core.mlff_dynamics_options_default()
        options.ensemble = 1 if friction_per_fs > 0 else 0
        options.timestep_fs, options.temperature_kelvin, options.seed = timestep_fs, temperature, seed
        if friction_per_fs > 0:
            options.friction_per_fs = friction_per_fs
        out = Handle(lib.profile.mlff_trajectory_destroy)
        try:
            lib.profile.mlff_trajectory_md(system, byref(options), byref(out))
        finally:
            lib.core.mlff_system_destroy(system)
        return cls(out)


def each_atoms(given: Any) -> Any:
    """Atoms of ASE as a list of one: iterating over them gives single atoms."""
    return [given] if hasattr(given, "numbers") and hasattr(given, "positions") else given


def batch_of(systems: Any, properties: Any) -> tuple[list[Any], list[str]]:
    """Structures and properties of `calculate_batch`, from any iterables or one of either."""
    atoms = list(each_atoms(systems))
    for one in atoms:
        check_atoms(one)
    return atoms, [properties] if isinstance(properties, str) else list(properties)


def check_atoms(atoms: Any) -> None:
    """TypeError for what is not like ASE's atoms."""
    if not hasattr(atoms, "numbers") or not hasattr(atoms, "positions"):
        raise TypeError(f"{atoms!r:.60} in place of ASE's Atoms")


def changed_since(atoms: Any) -> str | None:
    """What of the atoms is another than when their calculator's results were computed: a calculator may serve several atoms."""
    computed: Any = getattr(atoms.calc, "atoms", None)
    if not hasattr(computed, "positions"):
        return None
    for name, old, new in (
        ("numbers", computed.numbers, atoms.numbers),
        ("positions", computed.positions, atoms.positions),
        ("cell", computed.cell[:], atoms.cell[:]),
        ("pbc", computed.pbc, atoms.pbc),
    ):
        if not np.array_equal(old, new):
            return name
    return None


def warn_of_constraints(atoms: Any) -> None:
    """MlffWarning for constraints of ASE that the engine does not have: the caller's caller is named."""
    check_atoms(atoms)
    constraints = getattr(atoms, "constraints", None)
    if not constraints:
        return
    from ase.constraints import FixAtoms

    others = sorted({type(c).__name__ for c in constraints if not isinstance(c, FixAtoms)})
    if others:
        warnings.warn(f"{', '.join(others)}: only FixAtoms is obeyed here, other constraints are left out", MlffWarning, stacklevel=3)


def fixed_atoms(atoms: Any) -> list[int]:
    """The indices of FixAtoms."""
    if not atoms.constraints:
        return []
    from ase.constraints import FixAtoms

    return [int(i) for c in atoms.constraints if isinstance(c, FixAtoms) for i in c.index]


def system_from_atoms(atoms: Any, index: int, motion: bool = False, fixed: bool = False) -> int:
    """A C system of ASE's atoms; `index` goes into its label_energy. With `fixed` FixAtoms too, with `motion` also velocities and masses."""
    check_atoms(atoms)
    n = len(atoms)
    numbers = host_array(atoms.numbers, np.int32, (n,), "atomic numbers")
    out = Handle(lib.core.mlff_system_destroy)
    lib.core.mlff_system_create(n, byref(out))
    address = out.value or 0
    system = s.mlff_system.from_address(address)
    ctypes.memmove(system.species, numbers.ctypes.data, numbers.nbytes)
    doubles(system.positions, (n, 3))[:] = host_array(atoms.positions, np.float64, (n, 3), "positions")
    system.cell[:] = [float(x) for x in np.asarray(atoms.cell[:]).ravel()]
    system.periodic[:] = [int(flag) for flag in atoms.pbc]
    system.label_energy = float(index)
    system.charge, system.spin = (float("nan") if value is None else float(value) for value in charge_and_spin(atoms))
    if motion:
        from ase.units import fs

        lib.core.mlff_system_add_masses(address)
        doubles(system.masses, n)[:] = host_array(atoms.get_masses(), np.float64, (n,), "masses")
        if atoms.has("momenta"):
            lib.core.mlff_system_add_velocities(address)
            doubles(system.velocities, (n, 3))[:] = host_array(atoms.get_velocities(), np.float64, (n, 3), "velocities") * fs
    if (motion or fixed) and atoms.constraints:
        held = fixed_atoms(atoms)
        if held:
            lib.core.mlff_system_add_fixed(address)
            flags = (ctypes.c_ubyte * n).from_address(system.fixed)
            for i in held:
                flags[int(i)] = 1
    out.value = None  # the caller's from here on
    return address
