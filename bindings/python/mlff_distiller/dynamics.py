# SPDX-License-Identifier: MIT
"""Molecular dynamics by the C engine: whole runs of steps without Python in between, on a GPU without leaving it.

    dynamics = Dynamics(atoms, "ethanol.safetensors", timestep_fs=0.5, device="cuda")
    for _ in range(100):
        dynamics.run(1000)
        print(dynamics.step, dynamics.temperature, dynamics.conserved_energy)
    dynamics.save("run.restart")
"""

from __future__ import annotations

import os
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _library as lib
from . import _structs as s
from ._bridge import doubles, system_from_atoms
from .engine import Array, Evaluator, Model

if TYPE_CHECKING:
    from ase import Atoms


class Dynamics:
    """Velocity Verlet, or Langevin dynamics (BAOAB) where there is friction. `FixAtoms` stay.

    Where the GPU can integrate the model the atoms stay there between calls of `run`; else the host makes the steps with the
    forces of `device`, and a warning says so.

    Args:
        atoms: of ASE; read once. Positions and velocities of the run are `positions` and `velocities`.
        model: a Model, or the path of a model file.
        timestep_fs: fs.
        friction_per_fs: 1/fs, of Langevin's bath; None: no bath (NVE).
        temperature: K, of the bath, and of velocities drawn where `atoms` has none.
        seed: of the noise and of drawn velocities.
        device: as Evaluator's.
        precision: as Evaluator's.
        n_threads: as Evaluator's.
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
    ) -> None:
        self._handle: c_void_p | None = None
        self._system = 0
        self.evaluator = Evaluator(model, device, precision, n_threads=n_threads)
        self._n = len(atoms)
        self._system = system_from_atoms(atoms, 0, motion=True)
        if not np.any(atoms.get_velocities()):
            lib.core.mlff_system_thermalize(self._system, temperature, seed)
        options = lib.core.mlff_dynamics_options_default()
        options.ensemble = 0 if friction_per_fs is None else 1
        options.timestep_fs, options.temperature_kelvin, options.seed = timestep_fs, temperature, seed
        if friction_per_fs is not None:
            options.friction_per_fs = friction_per_fs
        out = c_void_p()
        lib.core.mlff_dynamics_create_on(self.evaluator._handle, byref(options), self._system, None, None, byref(out))
        self._handle = out

    def __del__(self) -> None:
        if lib is None or lib.core is None:
            return
        if getattr(self, "_handle", None):
            lib.core.mlff_dynamics_destroy(self._handle)
        if getattr(self, "_system", None):
            lib.core.mlff_system_destroy(self._system)

    @property
    def device(self) -> str:
        """Device that integrates: "cpu", "cuda:0"."""
        device = lib.core.mlff_dynamics_device(self._handle)
        return "cpu" if device.kind == 0 else f"cuda:{device.index}"

    def run(self, n_steps: int) -> Array:
        """Makes `n_steps` and returns each one's time in ns, by the clock of the device that made it.

        Raises:
            MlffUnstableError: energies, forces or positions stopped being finite; the state is that of the last good step.
        """
        times = np.empty(max(n_steps, 0))
        lib.core.mlff_dynamics_run(self._handle, n_steps, times.ctypes.data)
        return times

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
    def forces(self) -> Array:
        """eV/Å, [n_atoms][3]; a copy."""
        return np.array(doubles(self._state().forces, (self._n, 3)))

    @property
    def positions(self) -> Array:
        """Å, [n_atoms][3]; a copy."""
        self._state()
        return np.array(doubles(s.mlff_system.from_address(self._system).positions, (self._n, 3)))

    @property
    def velocities(self) -> Array:
        """Å/fs, [n_atoms][3]; a copy."""
        self._state()
        return np.array(doubles(s.mlff_system.from_address(self._system).velocities, (self._n, 3)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a restart file, whole or not at all."""
        lib.core.mlff_dynamics_save(self._handle, lib.path_bytes(path))

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Goes on from a restart file of the same atoms, also one that another device or `mlff md` wrote."""
        lib.core.mlff_dynamics_restore(self._handle, lib.path_bytes(path))
