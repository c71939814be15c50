# SPDX-License-Identifier: MIT
"""One function, many calls: times, spread, tail and memory; comparisons; timelines.

    result = benchmark_function(f, x, n_calls=100, device=device, name="forward")
    print(result.summary())

The C library calls and times the function and computes the statistics; a call through it costs some 0.1 to 0.2 µs more than a
call in a Python loop (`crossing_cost_ns` measures it here and now). Devices of PyTorch and JAX are waited for inside the
timed call where a program has loaded them.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import pathlib
import shlex
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import byref, c_double, c_void_p
from dataclasses import asdict, dataclass, field
from functools import partial
from types import FrameType, TracebackType
from typing import Any, TextIO

import numpy as np

from .. import _frameworks as frameworks
from .. import _library as lib
from .. import _structs as s
from .._bridge import Interrupts, ProfileHandle, Trajectory, run_profile
from .._devices import Device
from .._files import write_whole
from .._handles import Handle
from .._numbers import change_mb_text, count_text, number_text, time_text
from ..errors import MlffUsageError, MlffWarning
from .device_utils import GB, get_device, get_gpu_memory_info, synchronize_device

_FIELDS = ("mean", "median", "std", "min", "max", "p95", "p99")


@dataclass(frozen=True)
class Speed:
    """How fast an implementation is against the first one.

    Attributes:
        ratio: its time over the first one's, by Hodges and Lehmann's estimate, which an outlier does not move.
        low, high: interval of the ratio at 95 %; 0 and infinity where there are too few rounds.
        p: two-sided, of the exact signed-rank test of rounds.
        change: "faster", "slower", "same" (the interval lies within 1 %) or "unclear"; differences below 1 % are never called
            faster or slower.
    """

    ratio: float
    low: float
    high: float
    p: float
    change: str


@dataclass
class BenchmarkResult:
    """Times of a function's calls in ms and memory in GB (2³⁰ bytes).

    Attributes:
        times_ms: each call; of `benchmark_md_trajectory` with more than 10⁵ inputs a thinned series.
        p95_ms, p99_ms: linear between order statistics (NumPy's default).
        memory_before_gb, memory_after_gb, peak_memory_gb: of the process, plus what it holds on the GPU if `device` is one.
        outliers: indices into `times_ms` beyond Tukey's outer fences (3 interquartile ranges): labelled, never dropped.
        leak: of `benchmark_md_trajectory` the statistical verdict on the resident memory and the device's, the worse of them: "growing"
            (a leak), "inconclusive", "uncollected garbage", "fragmentation", "explained growth", "bounded growth", "stable" or "too few
            samples"; else "".
        partial: the function raised or was interrupted; these are the calls before that.
        speed: of `compare_implementations`, how fast it is against the first; None for the first.
    """

    name: str
    n_calls: int
    device: str
    times_ms: list[float]
    mean_ms: float
    median_ms: float
    std_ms: float
    min_ms: float
    max_ms: float
    p95_ms: float
    p99_ms: float
    memory_before_gb: float
    memory_after_gb: float
    peak_memory_gb: float
    outliers: list[int] = field(default_factory=list)
    n_outliers: int = 0
    leak: str = ""
    partial: bool = False
    speed: Speed | None = None

    @property
    def memory_delta_gb(self) -> float:
        """What the calls left behind, GB."""
        return self.memory_after_gb - self.memory_before_gb

    @property
    def total_time_s(self) -> float:
        """Sum of the calls, s."""
        return self.mean_ms * self.n_calls / 1e3

    @property
    def calls_per_second(self) -> float:
        """Calls a second if nothing stood between them."""
        return 1e3 / self.mean_ms if self.mean_ms > 0 else 0.0

    def summary(self) -> str:
        """Some lines for people."""
        spread = f" ± {time_text(self.std_ms)}" if self.n_calls > 1 else ""
        tail = f", P95 {time_text(self.p95_ms)}" if self.n_calls >= 20 else ""  # of fewer calls none lies beyond it
        tail += f", P99 {time_text(self.p99_ms)}" if self.n_calls >= 100 else ""
        lines = [
            f"{self.name} on {self.device}{' (partial)' if self.partial else ''}",
            f"  mean    {time_text(self.mean_ms)}{spread} (n = {self.n_calls}), median {time_text(self.median_ms)}",
            f"  range   {time_text(self.min_ms)} to {time_text(self.max_ms)}{tail}",
            f"  rate    {number_text(self.calls_per_second)} calls/s, {time_text(self.total_time_s * 1e3)} in all",
            "  memory  not measured"
            if math.isnan(self.memory_delta_gb)
            else f"  memory  {self.memory_before_gb * 1024:.1f} MB before, {self.memory_after_gb * 1024:.1f} MB after "
            f"({change_mb_text(self.memory_delta_gb * 1024)}), peak {self.peak_memory_gb * 1024:.1f} MB",
        ]
        if self.leak:
            lines.append(f"  leak    {self.leak}")
        if self.n_outliers:
            are = "is an outlier; it is" if self.n_outliers == 1 else "are outliers; they are"
            lines.append(f"  {self.n_outliers} of {count_text(self.n_calls, 'call')} {are} in all numbers above")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """As a dictionary for JSON."""
        names = [name for name in self.__dataclass_fields__]
        derived = ("memory_delta_gb", "total_time_s", "calls_per_second")
        found = {name: getattr(self, name) for name in (*names, *derived)}
        found["speed"] = asdict(self.speed) if self.speed is not None else None
        return found

    def to_pandas(self) -> Any:
        """Calls as a pandas DataFrame with "call" and "time_ms" (needs pandas)."""
        from .md_profiler import _need

        return _need("pandas").DataFrame({"call": range(len(self.times_ms)), "time_ms": self.times_ms})

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Times over calls and their histogram (needs matplotlib). Gives the figure; writes it where a path is given."""
        from .._plots import plot_times

        marks = {"median": self.median_ms, "P95": self.p95_ms, "P99": self.p99_ms}
        return plot_times(self.times_ms, 1, marks, f"{self.name} on {self.device}", path)


def _memory_gb(device: Device) -> tuple[float, float]:
    """Memory now and its peak so far: of the process, plus what it holds on a GPU."""
    raw = s.mlff_process_memory()
    lib.profile.mlff_process_memory_get(byref(raw))
    now, peak = raw.resident_bytes / GB, raw.peak_bytes / GB
    if device.type == "cuda":
        memory = get_gpu_memory_info(device)
        now, peak = now + memory["allocated"], peak + memory["peak"]
    return now, peak


def _measure(
    call: Callable[[], Any], wait: Callable[[Any], None] | None, n_warmup: int, n_calls: int, device: Device, name: str
) -> BenchmarkResult:
    times = np.zeros(max(n_calls, 1))
    done = -n_warmup
    interrupts = Interrupts()

    def trampoline(context: Any) -> int:
        nonlocal done
        try:
            interrupts.inside = True
            if interrupts.pending:
                interrupts.inside = False
                return interrupts.stop()
            if wait is None:
                call()
            else:
                wait(call())
            interrupts.inside = False
            done += 1
            return lib.OK
        except BaseException as error:
            return interrupts.keep(error)

    function = s.BENCHMARKED(trampoline)
    gc.collect()  # garbage of before is not to be freed in the middle of what is watched
    before, peak_before = _memory_gb(device)
    with interrupts:
        status = lib.profile.mlff_benchmark(
            ctypes.cast(function, c_void_p), None, n_warmup, n_calls, times.ctypes.data, None
        )
    after, peak = _memory_gb(device)
    # A peak of the past is not of these calls: it counts only if it rose.
    peak = max(before, after, peak if peak > peak_before else 0.0)
    result = _result(name, device, times[: max(done, 0)], before, after, peak) if done > 0 else None
    if result is not None:
        result.partial = done < n_calls
    interrupts.finish(status, result, "benchmark")
    assert result is not None
    return result


def _result(name: str, device: Device, times_ns: Any, before: float, after: float, peak: float) -> BenchmarkResult:
    raw = s.mlff_statistics()
    lib.profile.mlff_statistics_of(times_ns.ctypes.data, len(times_ns), byref(raw))
    outliers = np.flatnonzero((times_ns < raw.fence_low) | (times_ns > raw.fence_high))
    return BenchmarkResult(
        name=name,
        n_calls=len(times_ns),
        device=str(device),
        times_ms=(times_ns * 1e-6).tolist(),
        **{f"{key}_ms": getattr(raw, key) * 1e-6 for key in _FIELDS},
        memory_before_gb=before,
        memory_after_gb=after,
        peak_memory_gb=peak,
        outliers=outliers.tolist(),
        n_outliers=int(raw.n_outliers),
    )


def _name_of(function: Any, name: str | None) -> str:
    return name or getattr(function, "__qualname__", None) or type(function).__name__


def benchmark_function(
    f: Callable[..., Any],
    *args: Any,
    n_warmup: int = 10,
    n_calls: int = 100,
    device: object = None,
    name: str | None = None,
    **kwargs: Any,
) -> BenchmarkResult:
    """Calls `f(*args, **kwargs)` n_warmup + n_calls times and measures the latter.

    Args:
        device: whose work a call waits for and whose memory is watched; None: `get_device()`. A GPU that is not there
            becomes the CPU with a warning: the function computes where it does.

    Raises:
        What `f` raises, or KeyboardInterrupt; the calls before it are kept in its attribute `benchmark`, a
        `BenchmarkResult` marked partial, or None.
    """
    chosen = get_device(device, fallback=True)
    call = f
    if args or kwargs:

        def call() -> Any:
            return f(*args, **kwargs)

    return _measure(call, frameworks.synchronizer(chosen), n_warmup, n_calls, chosen, _name_of(f, name))


def benchmark_md_trajectory(
    model_func: Callable[[Any], Any],
    inputs: Sequence[Any],
    n_warmup: int = 10,
    device: object = None,
    name: str | None = None,
    check_memory_leak: bool = True,
    leak_tolerance_mb: float = 10.0,
) -> BenchmarkResult:
    """Calls `model_func` on each input in turn, sampling the memory along the way.

    Args:
        inputs: structures, or whatever the function takes; the warm-up uses the first ones.
        check_memory_leak: warn if the memory grew by more than `leak_tolerance_mb`, or steadily.
    """
    inputs = list(inputs)
    if not inputs:
        raise MlffUsageError("benchmark_md_trajectory: there are no inputs")
    chosen = get_device(device, fallback=True)
    wait = frameworks.synchronizer(chosen)
    count = -n_warmup

    def step(frame: int, wanted: int, energy: int | None, forces: int | None, stress: int | None) -> None:
        nonlocal count
        result = model_func(inputs[count if count >= 0 else (count + n_warmup) % len(inputs)])
        if wait is not None:
            wait(result)
        if energy:
            c_double.from_address(energy).value = 0.0
        count += 1

    handle, status, interrupts = run_profile(
        step, _one_atom(), name=_name_of(model_func, name), model_name=_name_of(model_func, name), device=chosen,
        offered=["energy"], wanted=["energy"], n_steps=len(inputs), n_warmup=n_warmup, memory_every=10, split=False,
        ledgers=frameworks.ledgers(chosen),
    )  # fmt: skip
    result = _from_profile(handle) if handle else None
    interrupts.finish(status, result, "benchmark")
    assert result is not None
    grown_mb = result.memory_delta_gb * 1024
    if check_memory_leak and (grown_mb > leak_tolerance_mb or result.leak == "growing"):
        warnings.warn(
            f"{result.name}: memory grew by {grown_mb:.1f} MB over {count_text(result.n_calls, 'call')} (tolerance {leak_tolerance_mb:g} MB; "
            f"verdict: {result.leak})",
            MlffWarning,
            stacklevel=2,
        )
    return result


def _one_atom() -> Trajectory:
    from ase import Atoms

    return Trajectory.frames([Atoms("H")])


def _measured(value: float | None) -> float:
    return math.nan if value is None else value


# Verdicts on a memory counter, the worst first.
_LEAKS = (
    "growing", "inconclusive", "uncollected garbage", "fragmentation", "explained growth", "bounded growth", "stable", "too few samples",
)  # fmt: skip


def _worst_leak(ledgers: list[dict[str, Any]]) -> str:
    """Of the resident memory and of that of the device."""
    found = {row["leak"] for row in ledgers if row["name"] == "resident" or row["name"].startswith("device")}
    return next((verdict for verdict in _LEAKS if verdict in found), "")


def _from_profile(handle: ProfileHandle) -> BenchmarkResult:
    data = handle.data()
    times = np.array(data["latencies_ms"])
    raw = s.mlff_statistics()
    lib.profile.mlff_statistics_of(times.ctypes.data, len(times), byref(raw))
    return BenchmarkResult(
        name=data["name"],
        n_calls=data["n_steps"],
        device=data["device"],
        times_ms=data["latencies_ms"],
        **{f"{key}_ms": data[f"{key}_latency_ms"] for key in _FIELDS},
        memory_before_gb=_measured(data["memory_initial_gb"]),
        memory_after_gb=_measured(data["memory_final_gb"]),
        peak_memory_gb=_measured(data["memory_peak_gb"]),
        outliers=np.flatnonzero((times < raw.fence_low) | (times > raw.fence_high)).tolist(),
        n_outliers=data["n_outliers"],
        leak=_worst_leak(data["memory_ledgers"]),
        partial=data["partial"],
    )


ROUNDS = 20
_CHANGES = ("unclear", "same", "faster", "slower")


def compare_implementations(
    implementations: Mapping[str, Callable[..., Any]],
    *args: Any,
    n_warmup: int = 10,
    n_calls: int = 100,
    device: object = None,
    **kwargs: Any,
) -> dict[str, BenchmarkResult]:
    """Benchmarks several functions on the same arguments; results by name, in the order given. The first is the baseline of
    `print_comparison_table`.

    The calls are interleaved in up to 20 rounds, each of which begins with another function, so that a busy machine meets all
    of them alike. Every result but the first has the comparison with the first in `speed`: of the lower quartiles of the rounds,
    which a busy machine changes least. Six rounds (calls) or more can tell
    a difference.

    Raises:
        What a function raises, or KeyboardInterrupt; the round that was interrupted is in its attribute `benchmark`.
    """
    if not implementations:
        raise MlffUsageError("compare_implementations: there are no implementations")
    for name, implementation in implementations.items():
        if not callable(implementation):
            raise MlffUsageError(f"compare_implementations: {name!r} cannot be called: it is of type {type(implementation).__name__}")
    chosen = get_device(device, fallback=True)
    n_rounds = max(1, min(ROUNDS, n_calls))
    parts: dict[str, list[BenchmarkResult]] = {name: [] for name in implementations}
    names = list(implementations)
    for i in range(n_rounds):
        calls = n_calls * (i + 1) // n_rounds - n_calls * i // n_rounds
        for k in range(len(names)):
            name = names[(i + k) % len(names)]
            warmup = n_warmup if i == 0 else 0
            parts[name].append(
                benchmark_function(implementations[name], *args, n_warmup=warmup, n_calls=calls, device=chosen, name=name, **kwargs)
            )
    results = {name: _joined(name, chosen, found) for name, found in parts.items()}
    rounds = {name: [float(np.percentile(part.times_ms, 25)) for part in found] for name, found in parts.items()}
    for name in names[1:]:
        results[name].speed = _speed(rounds[names[0]], rounds[name])
    return results


def _joined(name: str, device: Device, parts: Sequence[BenchmarkResult]) -> BenchmarkResult:
    times = np.array([ms for part in parts for ms in part.times_ms]) * 1e6
    peak = max(part.peak_memory_gb for part in parts)
    return _result(name, device, times, parts[0].memory_before_gb, parts[-1].memory_after_gb, peak)


def _speed(base: Sequence[float], times: Sequence[float]) -> Speed:
    a, b = (np.maximum(np.array(values, dtype=np.float64), 1e-9) for values in (base, times))
    options = lib.profile.mlff_comparison_options_default()
    options.paired = 1
    row = s.mlff_comparison_row()
    lib.profile.mlff_compare_values(a.ctypes.data, len(a), b.ctypes.data, len(b), byref(options), byref(row))
    return Speed(row.ratio, row.low, row.high, row.p, _CHANGES[row.change])


def print_comparison_table(results: Mapping[str, BenchmarkResult], file: TextIO | None = None) -> None:
    """Prints a table with the speed-up of each against the first, its interval at 95 % and a verdict."""
    rows = list(results.items())
    if not rows:
        return
    width = max(14, *(len(name) for name, _ in rows))
    out = file or sys.stdout
    print(
        f"{'implementation':<{width}} {'mean':>11} {'std':>11} {'median':>11} {'P95':>11} {'P99':>11} {'speed-up':>9} "
        f"{'95 % interval':>16}  verdict",
        file=out,
    )
    for name, result in rows:
        cells = [time_text(result.mean_ms), time_text(result.std_ms), time_text(result.median_ms)]
        cells += [time_text(cell) if result.n_calls >= needed else "–" for cell, needed in ((result.p95_ms, 20), (result.p99_ms, 100))]
        speed = result.speed or (_speed([rows[0][1].median_ms], [result.median_ms]) if result is not rows[0][1] else None)
        gain, interval, verdict = "1.00×", "", "baseline"
        if speed is not None:
            gain, verdict = f"{1 / speed.ratio:.2f}×", speed.change
            interval = f"{1 / speed.high:.2f} to {1 / speed.low:.2f}×" if speed.low > 0 else "–"
        print(
            f"{name:<{width}} " + " ".join(f"{cell:>11}" for cell in cells) + f" {gain:>9} {interval:>16}  {verdict}", file=out
        )


def crossing_cost_ns(n_calls: int = 100_000) -> float:
    """Median cost of measuring a function that does nothing, ns: the clock, the way from C into Python and back."""
    return benchmark_function(lambda: None, n_calls=n_calls, device="cpu", name="crossing").median_ms * 1e6


# ---- timers --------------------------------------------------------------------------------------------------------


class CUDATimer:
    """Times a stretch of work with events of the device; on the CPU with a monotonic clock.

        with CUDATimer(device) as timer:
            work()
        print(timer.elapsed_ms)
    """

    def __init__(self, device: object = None, stream: int | None = None) -> None:
        self.device = get_device(device, fallback=True)
        self.stream = stream
        destroy = partial(lib.core.mlff_event_destroy, self.device.struct)
        self._events = (Handle(destroy), Handle(destroy))
        for event in self._events:
            lib.core.mlff_event_create(self.device.struct, byref(event))
        self._elapsed_ns = float("nan")

    def start(self) -> None:
        """Begins."""
        if self.device.type == "cpu" and frameworks.torch_uses_gpu():
            synchronize_device(Device("cpu"))
        lib.core.mlff_event_record(self.device.struct, self._events[0], self.stream)

    def stop(self) -> float:
        """Ends, waits for the work, and gives the time in ms."""
        lib.core.mlff_event_record(self.device.struct, self._events[1], self.stream)
        out = c_double()
        lib.core.mlff_event_elapsed(self.device.struct, *self._events, byref(out))
        self._elapsed_ns = out.value
        return self.elapsed_ms

    @property
    def elapsed_ms(self) -> float:
        """Time of the last stretch, ms; NaN before there was one."""
        return self._elapsed_ns * 1e-6

    @property
    def elapsed_us(self) -> float:
        """The same in µs."""
        return self._elapsed_ns * 1e-3

    def __enter__(self) -> CUDATimer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


@contextmanager
def timer_context(name: str = "block", device: object = None, verbose: bool = True) -> Iterator[CUDATimer]:
    """Times a block of code and prints its time."""
    with CUDATimer(device) as timer:
        yield timer
    if verbose:
        print(f"{name}: {time_text(timer.elapsed_ms)}")


# ---- timelines -----------------------------------------------------------------------------------------------------

class ProfilerContext:
    """Records a timeline of a block in Chrome's trace form, for Perfetto (ui.perfetto.dev) or TensorBoard.

        with ProfilerContext(output_dir="traces") as profiler:
            for atoms in frames:
                with profiler.range("step"):
                    atoms.get_forces()
        print(profiler.trace_path)

    Ranges are what `range` and `step` mark. With torch loaded its own profiler runs too, and its trace (kernels among it) is
    written beside ours as "NAME.torch.trace.json". Ranges are NVTX ranges as well where torch has NVTX.

    Args:
        output_dir: where "NAME.trace.json" is written; None: only `events` are kept.
        profile_memory: samples of memory at each range's end, as a track.
        record_shapes: of torch's operators.
        with_stack: Python's function calls too (slow: for looking, not for measuring); with torch loaded they are in its trace.
        name: of the trace.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        profile_memory: bool = True,
        record_shapes: bool = True,
        with_stack: bool = False,
        name: str = "profile",
    ) -> None:
        self.output_dir = pathlib.Path(output_dir) if output_dir is not None else None
        self.profile_memory = profile_memory
        self.record_shapes = record_shapes
        self.with_stack = with_stack
        self.name = name
        self.events: list[dict[str, Any]] = []
        self.trace_path: pathlib.Path | None = None
        self._torch: Any = None
        self._n_steps = 0
        self._before: Any = None

    @contextmanager
    def range(self, name: str, **details: Any) -> Iterator[None]:
        """Marks a stretch; ranges may hold ranges."""
        module = frameworks.torch()
        nvtx = module.cuda.nvtx if module is not None and frameworks.torch_uses_gpu() else None
        if nvtx is not None:
            nvtx.range_push(name)
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self._add(name, "range", start, time.perf_counter_ns(), details)
            if nvtx is not None:
                nvtx.range_pop()
            if self.profile_memory:
                self._sample_memory()

    def step(self) -> None:
        """Marks the end of a step."""
        self._n_steps += 1
        now = time.perf_counter_ns()
        self.events.append({"name": f"step {self._n_steps}", "ph": "i", "s": "t", "ts": now / 1e3, **self._where()})
        if self.profile_memory:
            self._sample_memory()

    def _where(self) -> dict[str, int]:
        return {"pid": os.getpid(), "tid": threading.get_native_id()}

    def _add(self, name: str, kind: str, start: int, end: int, details: Mapping[str, Any]) -> None:
        event = {"name": name, "cat": kind, "ph": "X", "ts": start / 1e3, "dur": (end - start) / 1e3, **self._where()}
        if details:
            event["args"] = {key: _json_value(value) for key, value in details.items()}
        self.events.append(event)

    def _sample_memory(self) -> None:
        now, _ = _memory_gb(Device("cpu"))
        held = {"resident MB": now * 1024}
        module = frameworks.torch()
        if module is not None and frameworks.torch_uses_gpu():
            held["torch allocated MB"] = module.cuda.memory_allocated() / 2**20
        self.events.append({"name": "memory", "ph": "C", "ts": time.perf_counter_ns() / 1e3, "pid": os.getpid(), "args": held})

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "return"):
            code = frame.f_code
            kind = "B" if event == "call" else "E"
            self.events.append({
                "name": code.co_name, "cat": f"{code.co_filename}:{code.co_firstlineno}", "ph": kind,
                "ts": time.perf_counter_ns() / 1e3, **self._where(),
            })  # fmt: skip

    def __enter__(self) -> ProfilerContext:
        module = frameworks.torch()
        if module is not None:
            activities = [module.profiler.ProfilerActivity.CPU]
            if frameworks.torch_uses_gpu():
                activities.append(module.profiler.ProfilerActivity.CUDA)
            self._torch = module.profiler.profile(
                activities=activities, record_shapes=self.record_shapes, profile_memory=self.profile_memory,
                with_stack=self.with_stack,
            )  # fmt: skip
            self._torch.__enter__()
        if self._own_stack():
            self._before = sys.getprofile()
            sys.setprofile(self._on_call)
        return self

    def _own_stack(self) -> bool:
        """True if calls are ours to record: torch's profiler records them itself, and fails beside a second recorder."""
        return self.with_stack and self._torch is None

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._own_stack():
            sys.setprofile(self._before)
        if self._torch is not None:
            self._torch.__exit__(kind, value, trace)
        if self.output_dir is not None:
            self._write(self.output_dir)

    def _write(self, folder: pathlib.Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.trace.json"
        if self._torch is not None:
            theirs = folder / f"{self.name}.torch.trace.json"
            self._torch.export_chrome_trace(str(theirs))
        write_whole(path, json.dumps({"traceEvents": self.events, "displayTimeUnit": "ms"}))
        self.trace_path = path


def _json_value(value: Any) -> Any:
    """A detail of a range for JSON, which has no NaN and no arrays: as it is, or as text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else str(value)


def profile_with_nsys(script: str | Sequence[str] | None = None, output: str = "profile") -> str:
    """Prints, and gives, the command that runs a program under Nsight Systems.

    Args:
        script: the program with its arguments; None: the one that is running.
        output: name of the report without its suffix.
    """
    words = [sys.executable, *sys.argv] if script is None else [script] if isinstance(script, str) else list(script)
    if script is not None and words[0].endswith(".py"):
        words.insert(0, sys.executable)
    command = shlex.join([
        "nsys", "profile", "--trace=cuda,nvtx,osrt", "--cuda-memory-usage=true", "--force-overwrite=true",
        f"--output={output}", *words,
    ])  # fmt: skip
    print(command)
    return command
