# SPDX-License-Identifier: MIT
"""Molecular dynamics by the C engine: whole runs of steps without Python in between, on a GPU without leaving it.

    dynamics = Dynamics(atoms, "ethanol.safetensors", timestep_fs=0.5, device="cuda")
    for _ in range(100):
        dynamics.run(1000)
        print(dynamics.step, dynamics.temperature, dynamics.conserved_energy)
    dynamics.save("run.restart")

    replicas = Replicas([atoms] * 64, "ethanol.safetensors", ensemble="bussi", temperature=300, device="cuda")
    replicas.run(100000)
    print([replica.temperature for replica in replicas])
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_int64, c_void_p, pointer
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _library as lib
from . import _structs as s
from ._arrays import unmasked
from ._bridge import doubles, in_pieces, system_from_atoms, warn_of_constraints
from ._handles import Handle, exclusive
from ._numbers import count_text
from ._values import as_c
from .engine import Array, Evaluator, Model
from .errors import MlffUsageError

if TYPE_CHECKING:
    from ase import Atoms

_ENSEMBLES = ("nve", "langevin", "bussi", "nose-hoover", "scr", "mtk")  # by mlff_ensemble


def _options(
    ensemble: str | None,
    timestep_fs: float,
    friction_per_fs: float | None,
    temperature: float,
    seed: int,
    thermostat_fs: float,
    pressure: float,
    barostat_fs: float,
    compressibility: float,
    anisotropic: bool,
    ramp: tuple[float, int] | None,
) -> s.mlff_dynamics_options:
    if ensemble is None:
        ensemble = "nve" if friction_per_fs is None else "langevin"
    if ensemble not in _ENSEMBLES:
        raise MlffUsageError(f"ensemble {ensemble!r} is unknown; use one of {', '.join(_ENSEMBLES)}")
    if friction_per_fs is not None and ensemble != "langevin":
        raise MlffUsageError(f"friction_per_fs is of ensemble 'langevin', not of {ensemble!r}")
    if ensemble not in ("scr", "mtk") and (pressure != 0 or anisotropic):
        raise MlffUsageError(f"pressure and anisotropic are of ensembles 'scr' and 'mtk', not of {ensemble!r}")
    if ensemble == "nve" and ramp is not None:
        raise MlffUsageError("ramp needs a thermostat, as ensemble 'bussi'")
    options: s.mlff_dynamics_options = lib.core.mlff_dynamics_options_default()
    options.ensemble = _ENSEMBLES.index(ensemble)
    options.timestep_fs, options.temperature_kelvin, options.seed = timestep_fs, temperature, seed
    options.thermostat_fs, options.barostat_fs = thermostat_fs, barostat_fs
    options.pressure, options.compressibility, options.anisotropic = pressure, compressibility, anisotropic
    if friction_per_fs is not None:
        options.friction_per_fs = friction_per_fs
    if ramp is not None:
        options.ramp_end_kelvin, options.ramp_steps = ramp
        if options.ramp_steps < 1:
            raise MlffUsageError(f"ramp of {options.ramp_steps} steps: expected 1 or more")
    return options


def _make_system(atoms: Atoms, options: s.mlff_dynamics_options) -> Handle:
    """A C system with velocities, drawn where the atoms have none."""
    warn_of_constraints(atoms)
    address = system_from_atoms(atoms, 0, motion=True)
    system = Handle(lib.core.mlff_system_destroy, address=address)
    if atoms.has("momenta"):
        return system
    lib.core.mlff_system_thermalize(system, options.temperature_kelvin, options.seed)
    # Langevin dynamics drives the motion of the whole too, which drawn velocities do not have: 3 degrees of freedom more.
    if options.ensemble == 1 and len(atoms) > 1 and not s.mlff_system.from_address(address).fixed:
        doubles(s.mlff_system.from_address(address).velocities, 3 * len(atoms))[:] *= math.sqrt(len(atoms) / (len(atoms) - 1))
    return system


class _Simulation:
    """What can be seen of a simulation."""

    _handle: c_void_p
    _lock: Any  # of the evaluator
    _evaluator: Any  # its handle
    _system = 0  # address
    _n = 0

    @exclusive
    def _state(self) -> Any:
        state = s.mlff_dynamics_state()
        lib.core.mlff_dynamics_state_get(self._handle, byref(state))
        return state

    @property
    def step(self) -> int:
        """Steps made, those before a restart included."""
        return int(self._state().step)

    @property
    def time_fs(self) -> float:
        """fs since the start."""
        return float(self._state().time_fs)

    @property
    def potential_energy(self) -> float:
        """eV."""
        return float(self._state().potential_energy)

    @property
    def kinetic_energy(self) -> float:
        """eV."""
        return float(self._state().kinetic_energy)

    @property
    def temperature(self) -> float:
        """K, of the free degrees of freedom."""
        return float(self._state().temperature_kelvin)

    @property
    def conserved_energy(self) -> float:
        """eV: the total energy; with a bath less the heat that it gave. How far it moves tells the quality of the run."""
        return float(self._state().conserved_energy)

    @property
    def pressure(self) -> float:
        """eV/Å³; NaN unless the ensemble is one of constant pressure."""
        return float(self._state().pressure)

    @property
    def volume(self) -> float:
        """Å³; 0 without a cell."""
        return float(self._state().volume)

    @property
    @exclusive
    def cell(self) -> Array:
        """Å, [3][3], rows are the cell vectors; a copy."""
        self._state()
        return np.array(s.mlff_system.from_address(self._system).cell[:]).reshape(3, 3)

    @property
    @exclusive
    def forces(self) -> Array:
        """eV/Å, [n_atoms][3]; a copy."""
        return np.array(doubles(self._state().forces, (self._n, 3)))

    @property
    @exclusive
    def positions(self) -> Array:
        """Å, [n_atoms][3]; a copy."""
        self._state()
        return np.array(doubles(s.mlff_system.from_address(self._system).positions, (self._n, 3)))

    @property
    @exclusive
    def velocities(self) -> Array:
        """Å/fs, [n_atoms][3]; a copy."""
        self._state()
        return np.array(doubles(s.mlff_system.from_address(self._system).velocities, (self._n, 3)))

    @exclusive
    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a restart file, whole or not at all."""
        lib.core.mlff_dynamics_save(self._handle, lib.path_bytes(path))

    @exclusive
    def restore(self, path: str | os.PathLike[str]) -> None:
        """Goes on from a restart file of the same atoms and model, with its cell, also one that another device or `mlff md` wrote.

        Raises:
            MlffError: the energy in the file is not this model's, by more than 0.1 eV an atom; positions and velocities are then
                the file's.
        """
        lib.core.mlff_dynamics_restore_on(self._evaluator, self._handle, lib.path_bytes(path))


class Dynamics(_Simulation):
    """Molecular dynamics of one system. `FixAtoms` stay.

    Where the GPU can integrate the model the atoms stay there between calls of `run`; else the host makes the steps with the
    forces of `device`, and a warning says so.

    Args:
        atoms: of ASE; read once. Positions and velocities of the run are `positions` and `velocities`.
        model: a Model, or the path of a model file.
        timestep_fs: fs.
        friction_per_fs: 1/fs, of Langevin's bath; with no `ensemble`, None means NVE.
        temperature: K, of the bath, and of velocities drawn where `atoms` has none.
        seed: of the noise and of drawn velocities.
        device: as Evaluator's.
        precision: as Evaluator's.
        n_threads: as Evaluator's.
        ensemble: "nve" (velocity Verlet), "langevin" (BAOAB), "bussi" (stochastic velocity rescaling), "nose-hoover" (chains), at
            constant pressure "scr" (stochastic cell rescaling) or "mtk" (Martyna-Tobias-Klein); None: by friction_per_fs.
        thermostat_fs: fs, time constant of the thermostats but Langevin's.
        pressure: eV/Å³, of the barostat; ase.units.bar and GPa convert.
        barostat_fs: fs, its time constant.
        compressibility: Å³/eV, of "scr": scales its time constant alone.
        anisotropic: the cell is strained along x, y and z independently.
        ramp: K and steps: the temperature goes linearly there within so many steps, and stays.
    """

    def __init__(
        self,
        atoms: Atoms,
        model: Model | str | os.PathLike[str],
        timestep_fs: float = 0.5,
        friction_per_fs: float | None = None,
        temperature: float = 300.0,
        seed: int = 0,
        device: str = "auto",
        precision: str = "float32",
        n_threads: int = 0,
        ensemble: str | None = None,
        thermostat_fs: float = 100.0,
        pressure: float = 0.0,
        barostat_fs: float = 1000.0,
        compressibility: float = 72.1,
        anisotropic: bool = False,
        ramp: tuple[float, int] | None = None,
    ) -> None:
        options = _options(
            ensemble, timestep_fs, friction_per_fs, temperature, seed, thermostat_fs, pressure, barostat_fs, compressibility,
            anisotropic, ramp,
        )  # fmt: skip
        self.evaluator = Evaluator(model, device, precision, n_threads=n_threads)
        self._lock, self._evaluator = self.evaluator.lock, self.evaluator._handle
        self._n = len(atoms)
        system = _make_system(atoms, options)
        self._system = system.value or 0
        out = Handle(lib.core.mlff_dynamics_destroy, self.evaluator._handle, system)
        lib.core.mlff_dynamics_create_on(self.evaluator._handle, byref(options), system, None, None, byref(out))
        self._handle = out

    @property
    def device(self) -> str:
        """Device that integrates: "cpu", "cuda:0"."""
        device = lib.core.mlff_dynamics_device(self._handle)
        return "cpu" if device.kind == 0 else f"cuda:{device.index}"

    @exclusive
    def run(self, n_steps: int) -> Array:
        """Makes `n_steps` and returns each one's time in ns, by the clock of the device that made it.

        Raises:
            MlffUnstableError: energies, forces or positions stopped being finite; the state is that of the last good step.
            KeyboardInterrupt: Ctrl-C; the state is that of the last step made, from which another call goes on.
        """
        times = np.empty(max(as_c(c_int64, n_steps, "n_steps"), 0))
        in_pieces(n_steps, lambda first, n: lib.core.mlff_dynamics_run(self._handle, n, times.ctypes.data + 8 * first))
        return times


class Replica(_Simulation):
    """One of `Replicas`."""

    def __init__(self, owner: Replicas, index: int, n_atoms: int) -> None:
        self._replicas = owner._replicas  # own what this one borrows
        self._lock, self._evaluator = owner._lock, owner.evaluator._handle
        self._index = index
        self._n = n_atoms
        self._system = owner._systems[index]
        self._handle = c_void_p(lib.core.mlff_replicas_dynamics(owner._replicas, index))

    @property
    @exclusive
    def error(self) -> str:
        """Why it has ended; "" while it runs."""
        return str(lib.core.mlff_replicas_error(self._replicas, self._index).decode())


class Replicas:
    """Simulations that make their steps together, in one batch. One that explodes ends, with a warning, and the others go on.

    Args:
        atoms: of ASE, one for each replica; they may be the same or different structures.
        model: as Dynamics'.
        timestep_fs: as Dynamics'.
        friction_per_fs: as Dynamics'.
        temperature: K, of all, or one for each.
        seed: of the first; the next ones have the next numbers.
        device: as Evaluator's.
        precision: as Evaluator's.
        n_threads: as Evaluator's.
        ensemble: as Dynamics', and so are those that follow.
    """

    def __init__(
        self,
        atoms: Sequence[Atoms],
        model: Model | str | os.PathLike[str],
        timestep_fs: float = 0.5,
        friction_per_fs: float | None = None,
        temperature: float | Sequence[float] = 300.0,
        seed: int = 0,
        device: str = "auto",
        precision: str = "float32",
        n_threads: int = 0,
        ensemble: str | None = None,
        thermostat_fs: float = 100.0,
        pressure: float = 0.0,
        barostat_fs: float = 1000.0,
        compressibility: float = 72.1,
        anisotropic: bool = False,
        ramp: tuple[float, int] | None = None,
    ) -> None:
        n = len(atoms)
        kelvin = np.atleast_1d(np.asarray(unmasked(temperature, "temperature"), dtype=float)).tolist()
        if len(kelvin) not in (1, n):
            raise MlffUsageError(f"temperature: {len(kelvin)} of them for {count_text(n, 'replica')}; give one, or one for each")
        kelvin = kelvin * n if len(kelvin) == 1 else kelvin
        options = [
            _options(
                ensemble, timestep_fs, friction_per_fs, kelvin[k], seed + k, thermostat_fs, pressure, barostat_fs,
                compressibility, anisotropic, ramp,
            )  # fmt: skip
            for k in range(n)
        ]
        self.evaluator = Evaluator(model, device, precision, n_threads=n_threads)
        self._lock = self.evaluator.lock
        made = [_make_system(one, of_one) for one, of_one in zip(atoms, options)]
        self._systems = [system.value or 0 for system in made]
        each = (POINTER(s.mlff_dynamics_options) * n)(*(pointer(o) for o in options))
        out = Handle(lib.core.mlff_replicas_destroy, self.evaluator._handle, *made)
        lib.core.mlff_replicas_create(self.evaluator._handle, each, (c_void_p * n)(*self._systems), n, byref(out))
        self._replicas = out
        self._each = [len(one) for one in atoms]

    def __len__(self) -> int:
        return len(self._systems)

    def __getitem__(self, index: int) -> Replica:
        if not -len(self) <= index < len(self):
            raise IndexError(f"replica {index} of {len(self)}")
        return Replica(self, index % len(self), self._each[index])

    def __iter__(self) -> Iterator[Replica]:
        return (self[k] for k in range(len(self)))

    @property
    def device(self) -> str:
        """Device that integrates: "cpu", "cuda:0"."""
        device = lib.core.mlff_replicas_device(self._replicas)
        return "cpu" if device.kind == 0 else f"cuda:{device.index}"

    @exclusive
    def run(self, n_steps: int) -> Array:
        """Makes `n_steps` of all that run and returns each step's time in ns.

        Raises:
            MlffUnstableError: none is left that runs.
            KeyboardInterrupt: Ctrl-C; the states are those of the last step made, from which another call goes on.
        """
        times = np.full(max(as_c(c_int64, n_steps, "n_steps"), 0), np.nan)
        in_pieces(n_steps, lambda first, n: lib.core.mlff_replicas_run(self._replicas, n, times.ctypes.data + 8 * first))
        return times
