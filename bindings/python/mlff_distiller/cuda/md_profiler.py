# SPDX-License-Identifier: MIT
"""Profiles of MD steps with any ASE calculator: latency, energy/forces/stress apart, memory, and what to do about it.

    profiler = MDProfiler(device="cuda")
    result = profiler.profile_calculator(calculator, trajectory, properties=["energy", "forces"])
    print(result.summary())
    result.save_json("profiling_reports/run.json")

The C library measures and judges; this module hands it the calculator. Every step is a real computation: positions differ from
those of the step before (frames that repeat are shifted as a whole by 0.001 Å and back, which changes no result), devices of
PyTorch and JAX are waited for where a program has loaded them.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pathlib
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import byref, c_void_p
from dataclasses import dataclass, field
from typing import Any, TypeAlias, Union

from ase import Atoms

from .. import _frameworks as frameworks
from .. import _library as lib
from .. import _structs as s
from .._bridge import MASKS, ProfileHandle, Trajectory, run_profile
from .._devices import Device
from .._files import write_whole
from .._measured import CalculatorStep, StudentStages, offered_by
from .._numbers import count_text, time_text
from ..errors import MlffError, MlffUnsupportedError, MlffUsageError, MlffWarning
from .device_utils import get_device

Frames: TypeAlias = Union[Sequence[Atoms], Atoms, str, "os.PathLike[str]"]


@dataclass
class MDProfileResult:
    """What a profile found. Times in ms, memory in GB of 2³⁰ bytes; None where something was not measured.

    The fields are the keys of the JSON report; `data` is the whole report, with stages, memory ledgers, verdicts,
    recommendations and the environment.

    Attributes:
        latencies_ms: each step, up to 10⁵; longer runs keep a thinned series (`data["n_samples"]`).
        energy_time_ms: an energy-only step; forces_time_ms, stress_time_ms: what each adds to that.
        memory_per_step_gb: along the run, at every `data["memory_every"]`-th step.
        memory_stable: memory grew by less than 10 MB, None where it was not measured (then so are the memories); the statistical leak verdicts are in `data["memory_ledgers"]`.
        us_per_atom: mean time of a step and atom, µs.
        partial: the run ended early; what it holds was measured.
    """

    name: str
    model_name: str
    n_steps: int
    device: str
    latencies_ms: list[float]
    mean_latency_ms: float
    median_latency_ms: float
    std_latency_ms: float
    min_latency_ms: float
    max_latency_ms: float
    p95_latency_ms: float
    p99_latency_ms: float
    energy_time_ms: float | None
    forces_time_ms: float | None
    stress_time_ms: float | None
    memory_initial_gb: float | None
    memory_final_gb: float | None
    memory_peak_gb: float | None
    memory_per_step_gb: list[float]
    n_atoms: int
    system_size: str
    total_time_s: float
    steps_per_second: float
    timestamp: str
    notes: str
    memory_delta_gb: float | None
    memory_stable: bool | None
    us_per_atom: float
    partial: bool
    data: dict[str, Any] = field(repr=False)
    handle: ProfileHandle = field(repr=False, compare=False)

    @classmethod
    def from_handle(cls, handle: ProfileHandle) -> MDProfileResult:
        """From a profile of the C library."""
        data = handle.data()
        names = [name for name in cls.__dataclass_fields__ if name not in ("data", "handle")]
        return cls(**{name: data[name] for name in names}, data=data, handle=handle)

    @classmethod
    def load_json(cls, path: str | os.PathLike[str]) -> MDProfileResult:
        """Reads a report; of a file with several runs, the first.

        Raises:
            MlffFileError, MlffFormatError: it cannot be read, or is no report; the text says where.
        """
        return cls.from_handle(ProfileHandle.load(path))

    def save_json(self, path: str | os.PathLike[str]) -> None:
        """Writes the report, whole or not at all; its folder is made if it is not there."""
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.handle.save(path)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the report as one page with its charts, to be opened in a browser."""
        save_html([self], path)

    def summary(self, width: int = 100, full: bool = False) -> str:
        """The report on one screen: numbers, parts of the step, reasons, missed targets, advice; `full`: with all tables."""
        return self.handle.text(width, full)

    def to_dict(self) -> dict[str, Any]:
        """The report as a dictionary, as `save_json` writes it."""
        return dict(self.data)

    def to_pandas(self) -> Any:
        """Steps as a pandas DataFrame with "step" and "latency_ms" (needs pandas)."""
        pandas = _need("pandas")
        every = self.data.get("latencies_every", 1)
        steps = [i * every for i in range(len(self.latencies_ms))]
        return pandas.DataFrame({"step": steps, "latency_ms": self.latencies_ms})

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Latency over steps and its histogram (needs matplotlib). Gives the figure; writes it where a path is given."""
        from .._plots import plot_times

        every = self.data.get("latencies_every", 1)
        marks = {"median": self.median_latency_ms, "P95": self.p95_latency_ms, "P99": self.p99_latency_ms}
        return plot_times(self.latencies_ms, every, marks, f"{self.name} on {self.device}", path)

    def __str__(self) -> str:
        return f"{self.name}: {time_text(self.mean_latency_ms)} ± {time_text(self.std_latency_ms)} (n = {self.n_steps}) on {self.device}"

    def __reduce__(self) -> tuple[Any, ...]:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.json"
            self.handle.save(path)
            return _result_from_bytes, (path.read_bytes(),)


def _result_from_bytes(content: bytes) -> MDProfileResult:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.json"
        path.write_bytes(content)
        return MDProfileResult.load_json(path)


def _need(package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        raise ImportError(f"this needs {package}: pip install {package}") from None


class MDProfiler:
    """Measures steps of MD with any ASE calculator.

    Args:
        device: its memory is sampled, and its work is waited for: "cuda", "cuda:1", "cpu", "auto". Where there is no GPU, "cuda"
            becomes the CPU with a warning: a calculator computes where it was made to.
        profile_memory: sample the memory along the run (every `memory_every` steps); False samples at start and end only.
        warmup_steps: steps before the measured ones, told apart.
        memory_every: steps between samples of the memory.
        n_threads: caps the thread pools of OpenMP libraries and torch while measuring; None leaves them as they are.
            Either way the report's notes say what they were.
        kernels: steps after each run that are watched with CUPTI: every kernel on the GPU by name, whose ever it is, and the
            device's part of the step. 0: none; 20 tell enough.
    """

    def __init__(
        self,
        device: object = "cuda",
        profile_memory: bool = True,
        warmup_steps: int = 10,
        memory_every: int = 10,
        n_threads: int | None = None,
        kernels: int = 0,
    ) -> None:
        self.kernels = kernels
        self.device: Device = get_device(device, fallback=True)
        self.profile_memory = profile_memory
        self.warmup_steps = warmup_steps
        self.memory_every = memory_every
        self.n_threads = n_threads

    def profile_calculator(
        self,
        calc: Any,
        trajectory: Frames,
        properties: Iterable[str] = ("energy", "forces"),
        check_memory_leak: bool = True,
        name: str | None = None,
        *,
        n_steps: int | None = None,
        native: bool = False,
        split: bool = True,
        timestep_fs: float = float("nan"),
    ) -> MDProfileResult:
        """Measures a calculator on a trajectory.

        Args:
            calc: any ASE calculator. A `StudentCalculator`, or an `OrbCalculator` in our engine, shows the stages of its step too.
            trajectory: frames, or a file of them, taken again from the start when they end; or one `Atoms`, which is then
                displaced thermally (300 K) again at each step.
            properties: of "energy", "forces", "stress".
            check_memory_leak: warn if the memory grew by 10 MB or more, or steadily.
            name: of the profile.
            n_steps: steps that are measured; None: the number of frames, or 100 for one `Atoms`.
            native: of a `StudentCalculator`, measure the engine alone, without ASE and Python.
            split: afterwards measure energy-only steps against steps with forces (and stress).
            timestep_fs: for ns/day.

        Raises:
            What the calculator raises, or KeyboardInterrupt; the steps before it are kept in its attribute `profile`, an
            `MDProfileResult` marked partial, or None if there were none.
        """
        frames, track = _frames_of(trajectory)
        steps = n_steps if n_steps is not None else (100 if isinstance(trajectory, Atoms) else len(frames))
        return self._run(
            calc, frames, track, list(properties), check_memory_leak, name, steps, native, split, timestep_fs
        )

    def profile_md(
        self,
        calc: Any,
        atoms: Atoms,
        n_steps: int = 100,
        timestep_fs: float = 0.5,
        temperature: float = 300.0,
        friction_per_fs: float = 0.0,
        seed: int = 0,
        properties: Iterable[str] = ("energy", "forces"),
        check_memory_leak: bool = True,
        name: str | None = None,
        *,
        native: bool = False,
    ) -> MDProfileResult:
        """Measures MD run by the calculator itself (velocity Verlet, or Langevin where there is friction); the integrator's
        time is a stage of its own. Atoms without velocities get those of the temperature; `atoms` itself does not move."""
        track = Trajectory.md(atoms, timestep_fs, temperature, friction_per_fs, seed)
        return self._run(
            calc, [atoms], track, list(properties), check_memory_leak, name, n_steps, native, True, timestep_fs
        )

    def property_times(self, calc: Any, trajectory: Frames, n_steps: int = 20) -> dict[str, Any]:
        """The matrix of what is asked for: ms (median) of steps with "energy", "energy+forces" and, where the calculator
        offers it, "energy+forces+stress"; and "one_shot": True if it computes the forces whatever it is asked for."""
        frames, track = _frames_of(trajectory)
        offered = offered_by(calc)
        if "stress" in offered and not all(atoms.pbc.all() for atoms in frames):
            offered.remove("stress")
        step = CalculatorStep(calc, frames, frameworks.synchronizer(self.device))
        handle, status, interrupts = run_profile(
            step, track, name=None, model_name=type(calc).__name__, device=self.device, offered=offered, wanted=offered,
            n_steps=n_steps, n_warmup=self.warmup_steps, memory_every=max(1, n_steps), split=True,
        )  # fmt: skip
        result = MDProfileResult.from_handle(handle) if handle else None
        interrupts.finish(status, result, "profile")
        assert result is not None
        times: dict[str, Any] = {}
        total = 0.0
        for kind, part in zip(("energy", "energy+forces", "energy+forces+stress"), ("energy", "forces", "stress")):
            value = result.data.get(f"{part}_time_ms")
            if value is not None:
                total += value
                times[kind] = total
        times["one_shot"] = step.one_shot
        return times

    def compare_calculators(
        self,
        calculators: Mapping[str, Any],
        trajectory: Frames,
        properties: Iterable[str] = ("energy", "forces"),
        *,
        n_steps: int | None = None,
        separate_processes: bool = False,
        check_memory_leak: bool = True,
    ) -> dict[str, MDProfileResult]:
        """Measures several calculators on the same trajectory; results by name, in the order given.

        Args:
            calculators: calculators by name. A value that is a function or a class is called to make its calculator.
            separate_processes: each in a process of its own, newly spawned, so that settings, allocators and compile caches
                of one cannot touch another. What is handed over must be picklable: best a function at the top of a module.
        """
        frames, _ = _frames_of(trajectory)
        source: Frames = trajectory if isinstance(trajectory, Atoms) else frames
        keywords: dict[str, Any] = {"properties": list(properties), "n_steps": n_steps, "check_memory_leak": check_memory_leak}
        results: dict[str, MDProfileResult] = {}
        for name, made in calculators.items():
            if separate_processes:
                settings = {
                    "device": str(self.device), "profile_memory": self.profile_memory, "warmup_steps": self.warmup_steps,
                    "memory_every": self.memory_every, "n_threads": self.n_threads, "kernels": self.kernels,
                }  # fmt: skip
                results[name] = _profile_elsewhere(settings, made, source, {**keywords, "name": name})
            else:
                results[name] = self.profile_calculator(_make(made), source, name=name, **keywords)
        return results

    # ---- one run --------------------------------------------------------------------------------------------------

    def _run(
        self,
        calc: Any,
        frames: Sequence[Atoms],
        track: Trajectory,
        properties: list[str],
        check_memory_leak: bool,
        name: str | None,
        n_steps: int,
        native: bool,
        split: bool,
        timestep_fs: float,
    ) -> MDProfileResult:
        unknown = [p for p in properties if p not in MASKS]
        if unknown or not properties:
            what = f"unknown properties {', '.join(map(repr, unknown))}" if unknown else "no properties to measure"
            raise MlffUsageError(f"{what}; choose from {', '.join(MASKS)}")
        evaluator = getattr(calc, "evaluator", None)
        student = evaluator if hasattr(evaluator, "stage_rows") else None
        offered = offered_by(calc)
        model_name = str(getattr(calc, "name", None) or type(calc).__name__)  # of a teacher in our engine the one it was asked for by
        if student is not None and not hasattr(calc, "inner"):
            model_name = student.model.info.name
        missing = [p for p in properties if p not in offered]
        if missing:
            computes = f"it computes {', '.join(offered)}" if offered else "is it an ASE calculator?"
            raise MlffUnsupportedError(f"{model_name} does not compute {', '.join(missing)}; {computes}")
        device = student.device if student is not None else self.device

        with frameworks.capped_threads(self.n_threads) as threads:
            step = CalculatorStep(calc, frames, None if student is not None else frameworks.synchronizer(device))
            common: dict[str, Any] = {
                "name": name, "model_name": model_name, "device": device, "offered": offered, "wanted": properties,
                "n_steps": n_steps, "n_warmup": self.warmup_steps, "split": split, "timestep_fs": timestep_fs,
                "memory_every": self.memory_every if self.profile_memory else max(1, n_steps),
                "notes": _notes(calc, student, native, threads, frames, n_steps), "kernels": self.kernels,
            }  # fmt: skip
            if native:
                handle, status, interrupts = self._run_native(student, track, common)
            else:
                stages: dict[str, Any] = {}
                counted = s.mlff_callable()
                if student is not None:
                    rows = StudentStages(student, step)
                    lib.profile.mlff_callable_from_evaluator(student._handle, student.model._handle, byref(counted))
                    stages = {
                        "stages": rows.rows, "stage_clock_set": rows.clock_set, "stage_times": rows.times,
                        "counters": (counted.counters, counted.context),
                    }  # fmt: skip
                ledgers = _ledgers(device, student)
                handle, status, interrupts = run_profile(step, track, ledgers=ledgers, **stages, **common)
                lib.profile.mlff_callable_destroy(byref(counted))
        result = MDProfileResult.from_handle(handle) if handle else None
        interrupts.finish(status, result, "profile")
        assert result is not None
        if check_memory_leak:
            _warn_of_leaks(result)
        return result

    def _run_native(self, student: Any, track: Trajectory, common: dict[str, Any]) -> Any:
        if student is None:
            raise MlffUsageError("native=True measures our engine alone: it needs a StudentCalculator")
        c_callable = s.mlff_callable()
        with student.lock:
            lib.profile.mlff_callable_from_evaluator(student._handle, student.model._handle, byref(c_callable))
            try:
                return run_profile(c_callable, track, **common)
            finally:
                lib.profile.mlff_callable_destroy(byref(c_callable))


def _frames_of(trajectory: Frames) -> tuple[list[Atoms], Trajectory]:
    if isinstance(trajectory, Atoms):
        return [trajectory], Trajectory.thermal(trajectory, 300.0, 0)
    if isinstance(trajectory, (str, os.PathLike)):
        from ase.io import read

        trajectory = read(os.fspath(trajectory), ":")
    frames: list[Atoms] = list(trajectory)
    if not frames or not all(isinstance(atoms, Atoms) for atoms in frames):
        raise MlffUsageError("trajectory: expected ASE Atoms, a list of them that is not empty, or a file of frames")
    return frames, Trajectory.frames(frames)


def _ledgers(device: Device, student: Any) -> dict[str, Callable[[], int]]:
    found = frameworks.ledgers(device)
    if student is not None:
        found["evaluator (host)"] = lambda: int(student.info["host_bytes"])
        if device.type == "cuda":
            found["device: evaluator"] = lambda: int(student.info["device_bytes"])
    return found


def _notes(calc: Any, student: Any, native: bool, threads: Mapping[str, str], frames: Sequence[Atoms], n_steps: int) -> str:
    notes = []
    label = getattr(calc, "profile_notes", "")
    if student is not None and not native:
        if not student.model.info.trained and "untrained" not in label:
            notes.append("untrained: random weights, the numbers of this force field mean nothing but its speed")
        notes.append("measured through ASE")
    if label:
        notes.append(label)
    pools = dict(threads)
    if student is not None:
        pools["engine"] = str(student.info["n_threads"])
    notes.append("threads: " + ", ".join(f"{pool} {size}" for pool, size in pools.items()))
    return "; ".join(notes)


def _warn_of_leaks(result: MDProfileResult) -> None:
    growing = [row["name"] for row in result.data["memory_ledgers"] if row["leak"] == "growing"]
    if result.memory_stable is False or growing:
        grown_mb = (result.memory_delta_gb or 0.0) * 1024
        steady = f"steadily in: {', '.join(growing)}" if growing else "not steadily"
        what = f"grew by {grown_mb:.1f} MB over {count_text(result.n_steps, 'step')}, {steady}" if grown_mb > 0 else f"grows {steady}"
        warnings.warn(f"{result.name}: memory {what}", MlffWarning, stacklevel=4)


# ---- a process of its own ---------------------------------------------------------------------------------------------


def _make(made: Any) -> Any:
    makes = isinstance(made, type) or (callable(made) and not hasattr(made, "get_potential_energy"))
    return made() if makes else made


def _child(settings: dict[str, Any], made: Any, source: Any, keywords: dict[str, Any], connection: Any) -> None:
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = MDProfiler(**settings).profile_calculator(_make(made), source, **keywords)
        connection.send((result, [str(one.message) for one in caught if issubclass(one.category, MlffWarning)], None))
    except BaseException as error:
        connection.send((None, [], f"{type(error).__name__}: {error}"))


def _profile_elsewhere(settings: dict[str, Any], made: Any, source: Frames, keywords: dict[str, Any]) -> MDProfileResult:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    with frameworks.capped_threads(settings["n_threads"]):  # its environment is the child's
        process = context.Process(target=_child, args=(settings, made, source, keywords, there))
        process.start()
    there.close()
    try:
        result, warned, problem = here.recv()
    except EOFError:
        process.join()
        raise MlffError(f"{keywords['name']}: its process ended with status {process.exitcode} and no result") from None
    except BaseException:  # Ctrl-C
        process.kill()
        process.join()
        raise
    finally:
        here.close()
    process.join()
    for text in warned:
        warnings.warn(text, MlffWarning, stacklevel=3)
    if problem is not None:
        raise MlffError(f"{keywords['name']}, in a process of its own: {problem}")
    assert isinstance(result, MDProfileResult)
    return result


# ---- in one call ------------------------------------------------------------------------------------------------------


def profile_md_trajectory(
    calculator: Any,
    trajectory: Frames,
    device: object = "cuda",
    properties: Iterable[str] = ("energy", "forces"),
    output_file: str | os.PathLike[str] | None = None,
) -> MDProfileResult:
    """Profiles a calculator on a trajectory, writes the report where a file is named, and gives the result."""
    result = MDProfiler(device=device).profile_calculator(calculator, trajectory, properties=properties)
    if output_file is not None:
        result.save_json(output_file)
    return result


def identify_hotspots(result: MDProfileResult, threshold_pct: float = 10.0) -> dict[str, Any]:
    """Where the time of a step goes and what to do about it.

    Args:
        threshold_pct: a component above this share of the step, %, is a hotspot.

    Returns:
        "total_time_ms" the mean step; "components" {name: {"time_ms", "percentage", "is_hotspot"}} with energy, forces and
        stress, of force fields without stages "slow steps", what steps take beyond the median, and for our own models their stages
        ("stages/forward/message/0"): percentages of the two kinds are not to be added; "memory_leak" and "high_variance", each {"found", "text"}; "recommendations", sentences.
    """
    found = result.handle.hotspots(threshold_pct)
    growing = [row for row in result.data["memory_ledgers"] if row["leak"] == "growing"]
    judged = {verdict["target"]: verdict for verdict in result.data["verdicts"]}
    memory, variation = judged.get("memory growth < 10 MB"), judged.get("CV < 20 %")
    found["memory_leak"] = {
        "found": bool(growing) or result.memory_stable is False,
        "ledgers": [row["name"] for row in growing],
        "text": memory["text"] if memory else "",
    }
    found["high_variance"] = {
        "found": variation is not None and variation["passed"] is False,
        "text": variation["text"] if variation else "",
    }
    found["recommendations"] = list(result.data["recommendations"])
    return found


def save_html(results: Sequence[MDProfileResult], path: str | os.PathLike[str], title: str | None = None) -> None:
    """Writes several reports as one page, side by side; its folder is made if it is not there."""
    handles = _handles(results)
    text = lib.take_text(lib.profile.mlff_profile_html, handles, len(results), title or None)
    target = pathlib.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, text)


@dataclass(frozen=True)
class Comparison:
    """Whether B is faster than A.

    Attributes:
        change: "faster", "slower", "same" or "unclear", of the whole step.
        data: ratios with their intervals for the step and each stage, and how many runs would tell.
        text: the same for people.
    """

    change: str
    data: dict[str, Any]
    text: str


def compare_profiles(
    a: Sequence[MDProfileResult], b: Sequence[MDProfileResult], noise_floor: float = float("nan"), across: bool = False
) -> Comparison:
    """Is B faster than A? Each is a list of runs of the same work on the same machine; four or more a side can tell.

    Args:
        noise_floor: 0.01 for 1 %: changes below it are never called faster or slower; NaN: 1 %, not measured.
        across: compare also what is not comparable (another machine, other work).

    Raises:
        MlffValueError: the runs are not comparable; the text says what differs.
    """
    if not a or not b:
        raise MlffUsageError("compare_profiles: there are no runs of " + ("a" if not a else "b"))
    options = lib.profile.mlff_comparison_options_default()
    options.noise_floor, options.across = noise_floor, int(across)
    out = c_void_p()
    lib.profile.mlff_profile_compare(_handles(a), len(a), _handles(b), len(b), byref(options), byref(out))
    try:
        data: dict[str, Any] = json.loads(lib.take_text(lib.profile.mlff_comparison_json, out))
        return Comparison(str(data["verdict"]), data, lib.take_text(lib.profile.mlff_comparison_text, out))
    finally:
        lib.profile.mlff_comparison_destroy(out)


def _handles(results: Sequence[MDProfileResult]) -> Any:
    return (c_void_p * max(1, len(results)))(*[result.handle._handle for result in results])


__all__ = [
    "Comparison",
    "MDProfileResult",
    "MDProfiler",
    "compare_profiles",
    "identify_hotspots",
    "profile_md_trajectory",
    "save_html",
]

