# SPDX-License-Identifier: MIT
"""Structure, motion and spectrum of a trajectory, and vibrations of one structure, by the C engine.

    found = analyze("water.extxyz", pair="O-O", frame_fs=10)
    print(found.rdf.r[found.rdf.g.argmax()], found.diffusion.value)

    modes = vibrations(relaxed.atoms, "ethanol", precision="float64")
    print(modes.wavenumbers, modes.zero_point_energy)
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterable, Iterator
from ctypes import byref, c_double, c_int, c_uint, c_void_p
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from . import _library as lib
from . import _structs as s
from ._bridge import Interrupts, attach, changed_since, doubles, each_atoms, system_from_atoms, warn_of_constraints
from ._energies import force_consistent
from ._values import as_c
from .engine import Evaluator, Model
from .errors import MlffFormatError, MlffUsageError, MlffWarning

if TYPE_CHECKING:
    from ase import Atoms

Array = npt.NDArray[np.float64]
_LAGS = 200


@dataclass
class RadialDistribution:
    """Pairs at a distance over those of an ideal gas.

    Args:
        r: Å, the middle of each bin.
        g: 1 in an ideal gas.
        error: standard error of `g` from blocks of frames; NaN with fewer than four frames.
        coordination: neighbors up to each bin's end.
    """

    r: Array
    g: Array
    error: Array
    coordination: Array


@dataclass
class Diffusion:
    """A diffusion coefficient; NaN with fewer than 100 frames.

    Args:
        value: cm²/s.
        half_width: of its 95 % interval, cm²/s.
    """

    value: float
    half_width: float


@dataclass
class Spectrum:
    """A vibrational density of states.

    Args:
        wavenumber: 1/cm.
        density: cm, of integral 1.
        error: its standard error from five blocks of the run.
    """

    wavenumber: Array
    density: Array
    error: Array


@dataclass
class Geometry:
    """The bonds, or angles between bonds, of one kind of atoms.

    Args:
        name: elements, as "O-H" or "H-O-H".
        is_angle: degrees, else Å.
        count: in a frame.
        mean: over atoms and frames.
        deviation: standard deviation.
        lowest: of all.
        highest: of all.
        middles: of the bins of `density`.
        density: per Å or degree.
    """

    name: str
    is_angle: bool
    count: int
    mean: float
    deviation: float
    lowest: float
    highest: float
    middles: Array
    density: Array


@dataclass
class Analysis:
    """What `analyze` found; None is what was not asked for or what the frames do not hold.

    Args:
        n_frames: that were read.
        energies: eV, of each frame.
        temperatures: K, of each frame, of 3N - 3 degrees of freedom, without the velocity of the center of mass; with fixed
            atoms of 3 for each atom that moves.
        densities: g/cm³, of each frame, where all are periodic along three axes.
        rdf: of frames that are periodic along three axes.
        lags: fs, at most 200.
        msd: Å², the mean square displacement after each lag.
        diffusion: from the slope of the displacement.
        vdos: of at least 100 frames with velocities.
        geometry: bonds, then angles.
    """

    n_frames: int
    energies: Array | None = None
    temperatures: Array | None = None
    densities: Array | None = None
    rdf: RadialDistribution | None = None
    lags: Array | None = None
    msd: Array | None = None
    diffusion: Diffusion | None = None
    vdos: Spectrum | None = None
    geometry: list[Geometry] = field(default_factory=list)


@dataclass
class Vibrations:
    """Harmonic vibrations around a structure; imaginary frequencies are negative.

    Args:
        wavenumbers: 1/cm, ascending, without those of the whole.
        displacements: [modes, atoms, 3], each mode of length 1.
        rigid_wavenumbers: 1/cm, of translations and rotations of the whole; 0 at a minimum with exact forces.
        rigid_names: "translation" or "rotation" of each of these.
        zero_point_energy: eV, half the sum over the real frequencies.
        largest_force: eV/Å, on an atom that may move; 0 at a minimum.
    """

    wavenumbers: Array
    displacements: Array
    rigid_wavenumbers: Array
    rigid_names: list[str]
    zero_point_energy: float
    largest_force: float


def _element(symbol: str) -> int:
    number: int = lib.core.mlff_element_number(symbol)
    if number == 0:
        raise MlffUsageError(f"'{symbol}' is not an element")
    return number


def _energy_of(atoms: Atoms) -> float:
    energy = force_consistent(atoms.calc) if atoms.calc is not None and not changed_since(atoms) else None
    return np.nan if energy is None else energy


def _open(path: str | os.PathLike[str], file_format: str | None) -> c_void_p:
    reader = c_void_p()
    lib.core.mlff_reader_open(lib.path_bytes(path), file_format or None, byref(reader))
    return reader


def _set_topology(reader: c_void_p, topology: str | os.PathLike[str] | Atoms) -> None:
    if not isinstance(topology, (str, os.PathLike)):
        address = system_from_atoms(topology, 0, motion=True)
        try:
            lib.core.mlff_reader_set_topology(reader, address)
        finally:
            lib.core.mlff_system_destroy(address)
        return
    other, system = _open(topology, None), c_void_p()
    try:
        lib.core.mlff_reader_next(other, byref(system))
        if not system.value:
            raise MlffFormatError(f"{os.fspath(topology)}: holds no frame")
        lib.core.mlff_reader_set_topology(reader, system)
    finally:
        lib.core.mlff_system_destroy(system)
        lib.core.mlff_reader_destroy(other)


def _systems(
    trajectory: str | os.PathLike[str] | Iterable[Atoms], file_format: str | None, topology: str | os.PathLike[str] | Atoms | None
) -> Iterator[int]:
    """Addresses of the frames' systems, each valid until the next is taken."""
    if not isinstance(trajectory, (str, os.PathLike)):
        if topology is not None:
            raise MlffUsageError("a topology goes with a file; Atoms have their elements")
        for atoms in each_atoms(trajectory):
            address = system_from_atoms(atoms, 0, motion=True)
            try:
                s.mlff_system.from_address(address).label_energy = _energy_of(atoms)
                yield address
            finally:
                lib.core.mlff_system_destroy(address)
        return
    reader = _open(trajectory, file_format)
    try:
        if topology is not None:
            _set_topology(reader, topology)
        while True:
            system = c_void_p()
            lib.core.mlff_reader_next(reader, byref(system))
            if not system.value:
                return
            try:
                yield system.value
            finally:
                lib.core.mlff_system_destroy(system)
    finally:
        lib.core.mlff_reader_destroy(reader)


def _next(frames: Iterator[int], interrupts: Interrupts) -> int | None:
    """The next frame, or None. Ctrl-C is raised here alone: elsewhere it would leave a frame in some of the results."""
    interrupts.inside = True
    try:
        if interrupts.pending:
            raise KeyboardInterrupt
        return next(frames, None)
    finally:
        interrupts.inside = False


class _Accumulators:
    """What gathers the frames; those that the first frame does not allow stay empty."""

    def __init__(self, pair: tuple[int, int] | None, reach: float, n_bins: int, element: int, frame_fs: float | None) -> None:
        self.pair, self.reach, self.n_bins, self.element, self.frame_fs = pair, reach, n_bins, element, frame_fs
        self.rdf, self.msd, self.vdos, self.geometry = c_void_p(), c_void_p(), c_void_p(), c_void_p()

    def begin(self, address: int, geometry: bool) -> None:
        system = s.mlff_system.from_address(address)
        if (all(system.periodic) and system.n_atoms > 1) or self.pair:
            lib.core.mlff_rdf_create(self.reach, self.n_bins, *(self.pair or (0, 0)), byref(self.rdf))
        if geometry:
            lib.core.mlff_geometry_create(address, byref(self.geometry))
        if self.frame_fs is not None:
            lib.core.mlff_msd_create(self.frame_fs, self.element, byref(self.msd))
            if system.velocities:
                lib.core.mlff_vdos_create(self.frame_fs, self.element, byref(self.vdos))

    def add(self, address: int) -> None:
        for name in ("rdf", "msd", "vdos", "geometry"):
            if getattr(self, name):
                getattr(lib.core, f"mlff_{name}_add")(getattr(self, name), address)

    def close(self) -> None:
        for name in ("rdf", "msd", "vdos", "geometry"):
            getattr(lib.core, f"mlff_{name}_destroy")(getattr(self, name))

    def finish(self, found: Analysis) -> None:
        if self.rdf:
            found.rdf = RadialDistribution(*(np.empty(self.n_bins) for _ in range(4)))
            lib.core.mlff_rdf_get(
                self.rdf, found.rdf.r.ctypes.data, found.rdf.g.ctypes.data, found.rdf.error.ctypes.data, found.rdf.coordination.ctypes.data
            )
        if self.msd and self.frame_fs is not None:
            n_lags = min(found.n_frames // 2, _LAGS)
            found.lags, found.msd = self.frame_fs * np.arange(1.0, n_lags + 1), np.empty(n_lags)
            lib.core.mlff_msd_get(self.msd, n_lags, found.msd.ctypes.data)
            value, half_width = c_double(), c_double()
            lib.core.mlff_msd_diffusion(self.msd, byref(value), byref(half_width))
            found.diffusion = Diffusion(0.1 * value.value, 0.1 * half_width.value)
        if self.vdos and (n_points := lib.core.mlff_vdos_size(self.vdos)) > 0:
            spectrum = Spectrum(*(np.empty(n_points) for _ in range(3)))
            lib.core.mlff_vdos_get(self.vdos, spectrum.wavenumber.ctypes.data, spectrum.density.ctypes.data, spectrum.error.ctypes.data)
            found.vdos = spectrum
        if self.geometry:
            found.geometry = [self._kind(k) for k in range(lib.core.mlff_geometry_size(self.geometry))]

    def _kind(self, index: int) -> Geometry:
        kind, density = s.mlff_geometry_kind(), np.zeros(s.GEOMETRY_BINS)
        lib.core.mlff_geometry_get(self.geometry, index, byref(kind), density.ctypes.data)
        name = "-".join(lib.core.mlff_element_symbol(z).decode() for z in kind.elements if z)
        middles = kind.bin_width * (np.arange(kind.n_bins) + 0.5)
        extremes = (kind.mean, kind.deviation, kind.low, kind.high)
        return Geometry(name, bool(kind.is_angle), kind.count, *extremes, middles, density[: kind.n_bins].copy())


def analyze(
    trajectory: str | os.PathLike[str] | Iterable[Atoms],
    pair: str | None = None,
    reach: float = 6.0,
    n_bins: int = 120,
    element: str | None = None,
    frame_fs: float | None = None,
    geometry: bool = False,
    file_format: str | None = None,
    topology: str | os.PathLike[str] | Atoms | None = None,
    skip: int = 0,
) -> Analysis:
    """Energies, temperatures, densities, radial distribution, displacement, diffusion, vibrational spectrum, bonds and angles of a trajectory.

    Args:
        trajectory: a file that the command mlff reads, or Atoms of ASE.
        pair: of the radial distribution, as "O-H": H around O; None: all atoms.
        reach: Å, of the radial distribution.
        n_bins: of the radial distribution.
        element: whose displacement and spectrum are computed; None: all atoms.
        frame_fs: fs, the time between two frames; without it there is no displacement, diffusion or spectrum. A warning tells where times
            of the frames differ from it.
        geometry: bonds and angles too; bonds are those of the first frame.
        file_format: of a file; None: by its suffix or content.
        topology: the elements of a DCD, AMBER NetCDF or LAMMPS dump without them: Atoms, or a file whose first frame has the same atoms.
        skip: frames at the beginning that are left out, such as those before equilibrium.

    Raises:
        MlffUsageError: for an element that does not exist, or frames without what was asked for.
        MlffFormatError: there are no frames, or the file is damaged. As any exception that ends the reading, its `analysis` is that of the
            frames before, if there are some.
    """
    elements = pair.split("-") if pair is not None else []
    if pair is not None and len(elements) != 2:
        raise MlffUsageError(f"pair '{pair}': expected two elements, as O-H")
    if element is not None and frame_fs is None:
        raise MlffUsageError("element needs frame_fs, the time between two frames")
    numbers = (_element(elements[0]), _element(elements[1])) if elements else None
    gathered = _Accumulators(numbers, reach, n_bins, _element(element) if element else 0, frame_fs)
    energies: list[float] = []
    temperatures: list[float] = []
    densities: list[float] = []
    times: list[float] = []
    n_frames = 0
    ended: BaseException | None = None
    frames = _systems(trajectory, file_format, topology)
    rest = itertools.islice(frames, as_c(c_uint, skip, "skip"), None)
    try:
        with Interrupts() as interrupts:
            while True:
                try:
                    address = _next(rest, interrupts)
                except BaseException as problem:
                    if n_frames == 0:
                        raise
                    ended = problem
                    break
                if address is None:
                    break
                system = s.mlff_system.from_address(address)
                if n_frames == 0:
                    gathered.begin(address, geometry)
                gathered.add(address)
                n_frames += 1
                energies.append(system.label_energy)
                times.append(system.time_fs)
                temperatures.append(lib.core.mlff_system_temperature(address))
                densities.append(lib.core.mlff_system_density(address))
        if n_frames == 0:
            raise MlffFormatError("the input holds no frame" + (f" beyond the {skip} that are skipped" if skip else ""))
        found = Analysis(n_frames)
        gathered.finish(found)
    finally:
        frames.close()  # type: ignore[attr-defined]
        gathered.close()
    if frame_fs is not None and len(times) > 1 and np.isfinite(times).all():
        intervals = np.diff(times)
        rounding = 1e-3 * frame_fs + 1e-6 * abs(times[-1])  # times of 32 bits, as in NetCDF, have seven digits
        if np.abs(intervals - frame_fs).max() > rounding:
            low, high = intervals.min(), intervals.max()
            apart = f"{low:.4g} to {high:.4g}" if high - low > rounding else f"{high:.4g}"
            text = f"the frames are {apart} fs apart by their own times, and are taken to be {frame_fs:g} fs apart (frame_fs)"
            warnings.warn(text, MlffWarning, stacklevel=2)
    # A series is of all frames or of none.
    found.energies = np.array(energies) if np.isfinite(energies).all() else None
    found.temperatures = np.array(temperatures) if np.isfinite(temperatures).all() else None
    found.densities = np.array(densities) if np.isfinite(densities).all() else None
    if ended is not None:
        attach(ended, "analysis", found)
        raise ended
    return found


def vibrations(
    atoms: Atoms,
    model: Model | str | os.PathLike[str],
    step: float = 0.005,
    device: str = "auto",
    precision: str = "float32",
    n_threads: int = 0,
) -> Vibrations:
    """Harmonic vibrations by central differences of the forces; of a crystal those of its cell as it is (the Γ point).

    Args:
        atoms: a minimum; `FixAtoms` do not move, and then nothing is left out.
        model: a Model, or the path of a model file.
        step: Å, to each side.
        device: as Evaluator's.
        precision: as Evaluator's; "float64" gives the smallest error of the differences.
        n_threads: as Evaluator's.

    Raises:
        MlffUsageError: for a step that is not between 1e-6 and 0.5 Å, or if no atom may move.
        MlffLimitError: for more than 400 atoms that may move.
        KeyboardInterrupt: Ctrl-C, which ends the computation before its end.
    """
    evaluator = Evaluator(model, device, precision, n_threads=n_threads)
    warn_of_constraints(atoms)
    address = system_from_atoms(atoms, 0, motion=True)
    interrupts = Interrupts()
    options = lib.core.mlff_vibrations_options_default()
    options.step, options.progress = step, s.PROGRESS(lambda *_: int(interrupts.pending))
    out = s.mlff_vibrations()
    try:
        with interrupts:
            status = lib.core.mlff_vibrations_compute(evaluator._handle, address, byref(options), byref(out))
        interrupts.finish(status, None, "vibrations")
        n = out.n_modes
        wavenumbers = doubles(out.wavenumbers, n).copy() if n else np.zeros(0)
        displacements = doubles(out.displacements, (n, len(atoms), 3)).copy() if n else np.zeros((0, len(atoms), 3))
        names = ["translation"] * min(out.n_rigid, 3) + ["rotation"] * max(out.n_rigid - 3, 0)
        rigid = np.array(out.rigid_wavenumbers[: out.n_rigid])
        return Vibrations(wavenumbers, displacements, rigid, names, out.zero_point_energy, out.largest_force)
    finally:
        lib.core.mlff_vibrations_free(byref(out))
        lib.core.mlff_system_destroy(address)
