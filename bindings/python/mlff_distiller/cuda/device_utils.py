# SPDX-License-Identifier: MIT
"""Devices: choosing one, what it is, its memory, leaks, waiting for it.

Everything works without a GPU: where a function has no device given it takes `get_device()`, which is then the CPU, whose
"allocated" memory is the engine's heap and whose "reserved" memory is the resident set of the process. Asking for a GPU by
name where there is none is an error (`MlffDeviceError`) that says why, unless `fallback=True` was asked for.
GB are 2³⁰ bytes; the bytes stand beside them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from ctypes import byref, sizeof
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TextIO

from .. import _frameworks as frameworks
from .. import _library as lib
from .. import _structs as s
from .._devices import Device, gpu_problem, parse_device, require_gpu
from .._handles import Handle
from ..errors import MlffDeviceError, MlffWarning

GB = float(1 << 30)

_current: ContextVar[Device | None] = ContextVar("mlff_distiller_device", default=None)


def get_device(device: object = None, fallback: bool = False) -> Device:
    """The device to work on; prints as "cuda:0" or "cpu" and is accepted by `torch.Tensor.to`.

    Args:
        device: "cpu", "cuda", "cuda:1", an index of a GPU, a torch.device, or "auto"/None: the device of an enclosing
            `torch_device_context`, else a GPU if one works, else the CPU.
        fallback: True takes the CPU, with a warning, where the GPU asked for is not there.

    Raises:
        MlffDeviceError: a GPU that is not there, without fallback.
    """
    if device is None and _current.get() is not None:
        return _current.get() or Device("cpu")
    try:
        return parse_device(device)
    except MlffDeviceError as problem:
        if not fallback:
            raise
        warnings.warn(f"{problem}; working on the CPU instead", MlffWarning, stacklevel=2)
        return Device("cpu")


def list_available_devices() -> list[Device]:
    """All devices that work: the GPUs, then the CPU."""
    return [Device("cuda", i) for i in range(lib.core.mlff_device_count(lib.CUDA))] + [Device("cpu")]


@dataclass(frozen=True)
class GPUInfo:
    """What a GPU is.

    Attributes:
        compute_capability: (9, 0).
        total_memory_gb, total_memory_bytes: of the device.
        n_multiprocessors: streaming multiprocessors.
        clock_mhz, memory_clock_mhz: highest; 0 where unknown.
        l2_bytes, shared_memory_bytes: second-level cache; shared memory a block can have.
        driver_version, runtime_version, driver_version_required: 13000 for CUDA 13.0; the last is the oldest driver this
            build runs on.
        pci: "0000:3b:00.0", or "".
    """

    name: str
    device: Device
    compute_capability: tuple[int, int]
    total_memory_gb: float
    total_memory_bytes: int
    n_multiprocessors: int
    clock_mhz: float
    memory_clock_mhz: float
    l2_bytes: int
    shared_memory_bytes: int
    driver_version: int
    runtime_version: int
    driver_version_required: int
    pci: str

    def to_dict(self) -> dict[str, Any]:
        """As a dictionary for JSON."""
        return {**asdict(self), "device": str(self.device)}


def _info(device: Device) -> s.mlff_device_info:
    raw = s.mlff_device_info(struct_size=sizeof(s.mlff_device_info))
    lib.core.mlff_device_info_get(device.struct, byref(raw))
    return raw


def get_gpu_info(device: object = None) -> GPUInfo:
    """Full information about a GPU.

    Raises:
        MlffDeviceError: there is no GPU; the text says why.
    """
    chosen = parse_device("cuda") if device is None and get_device().type != "cuda" else get_device(device)
    require_gpu(chosen, "get_gpu_info")
    raw = _info(chosen)
    return GPUInfo(
        name=raw.name.decode("utf-8", "replace"),
        device=chosen,
        compute_capability=(raw.capability_major, raw.capability_minor),
        total_memory_gb=raw.memory_bytes / GB,
        total_memory_bytes=raw.memory_bytes,
        n_multiprocessors=raw.n_multiprocessors,
        clock_mhz=raw.clock_mhz,
        memory_clock_mhz=raw.memory_clock_mhz,
        l2_bytes=raw.l2_bytes,
        shared_memory_bytes=raw.shared_memory_bytes,
        driver_version=raw.driver_version,
        runtime_version=raw.runtime_version,
        driver_version_required=raw.driver_version_required,
        pci=raw.pci.decode("utf-8", "replace"),
    )


def _memory(device: Device) -> s.mlff_device_memory:
    raw = s.mlff_device_memory()
    lib.core.mlff_device_memory_get(device.struct, byref(raw))
    return raw


def get_gpu_memory_info(device: object = None) -> dict[str, Any]:
    """Memory of a device now, in GB: "allocated", "reserved", "free", "total", "peak", and each in "…_bytes".

    "allocated" is what this process holds: our engine's, and with torch or JAX loaded theirs too, which also stand apart
    under "ledgers" (bytes by name). "device" names the device: the CPU where there is no GPU and none was asked for.
    """
    chosen = get_device(device)
    raw = _memory(chosen)
    held = {name: read() for name, read in frameworks.ledgers(chosen).items()} if chosen.type == "cuda" else {}
    of_frameworks = sum(held[name] for name in held if name.startswith("device"))
    pools = max(of_frameworks, held.get("torch reserved", 0) + held.get("jax reserved", 0))
    values = {
        "allocated": int(raw.allocated) + of_frameworks,
        "reserved": int(raw.reserved) + pools,
        "free": int(raw.free),
        "total": int(raw.total),
        "peak": int(raw.peak) + of_frameworks,
    }
    in_gb: dict[str, Any] = {name: value / GB for name, value in values.items()}
    return {**in_gb, **{f"{name}_bytes": value for name, value in values.items()}, "ledgers": held, "device": str(chosen)}


def print_gpu_memory_summary(device: object = None, file: TextIO | None = None) -> None:
    """Prints the memory of a device, by allocator."""
    memory = get_gpu_memory_info(device)
    out = file or sys.stdout
    print(f"memory of {memory['device']}", file=out)
    meaning = (
        {"allocated": "heap of the engine", "reserved": "resident set of this process"}
        if memory["device"] == "cpu"
        else {"allocated": "held by this process", "reserved": "taken from the driver for it"}
    )
    for name in ("allocated", "reserved", "peak", "free", "total"):
        print(f"  {name:<10}{memory[name]:9.3f} GB  {meaning.get(name, '')}".rstrip(), file=out)
    for name, value in memory["ledgers"].items():
        print(f"  {name:<28}{value / GB:9.3f} GB", file=out)


def empty_cache(device: object = None) -> None:
    """Gives memory that is reserved but not in use back: ours, and torch's where torch has touched a GPU."""
    lib.core.mlff_device_cache_empty(get_device(device).struct)
    if frameworks.torch_uses_gpu():
        frameworks.torch().cuda.empty_cache()


def reset_peak_memory_stats(device: object = None) -> None:
    """The peak counts from what is allocated now."""
    chosen = get_device(device)
    lib.core.mlff_device_peak_reset(chosen.struct)
    if chosen.type == "cuda" and frameworks.torch_uses_gpu():
        frameworks.torch().cuda.reset_peak_memory_stats(chosen.index)


def get_peak_memory_allocated(device: object = None) -> float:
    """Highest allocated memory since the last reset, GB (2³⁰ bytes)."""
    chosen = get_device(device)
    peak = int(_memory(chosen).peak)
    if chosen.type == "cuda" and frameworks.torch_uses_gpu():
        peak += int(frameworks.torch().cuda.max_memory_allocated(chosen.index))
    return peak / GB


@dataclass
class MemoryTrack:
    """What `cuda_memory_tracker` saw. GB; `delta_gb` and `peak_gb` are set when the block ends."""

    name: str
    device: Device
    before_gb: float
    after_gb: float = float("nan")
    peak_gb: float = float("nan")

    @property
    def delta_gb(self) -> float:
        """What the block left behind."""
        return self.after_gb - self.before_gb


def _watched(memory: dict[str, Any]) -> float:
    """The number that grows when something leaks: allocated memory of a GPU, the resident set on the CPU. GB."""
    return float(memory["reserved"] if memory["device"] == "cpu" else memory["allocated"])


@contextmanager
def cuda_memory_tracker(name: str = "block", device: object = None, verbose: bool = True) -> Iterator[MemoryTrack]:
    """Tracks the memory of a block of code and prints what it took and left.

    On the CPU the resident set of the process is followed, on a GPU what is allocated there.
    """
    chosen = get_device(device)
    reset_peak_memory_stats(chosen)
    track = MemoryTrack(name, chosen, _watched(get_gpu_memory_info(chosen)))
    try:
        yield track
    finally:
        synchronize_device(chosen)
        track.after_gb = _watched(get_gpu_memory_info(chosen))
        track.peak_gb = max(get_peak_memory_allocated(chosen), track.before_gb, track.after_gb)
        if verbose:
            print(
                f"{name} on {chosen}: {track.before_gb * 1024:.2f} MB before, {track.after_gb * 1024:.2f} MB after "
                f"({track.delta_gb * 1024:+.2f} MB), peak {track.peak_gb * 1024:.2f} MB"
            )


@contextmanager
def torch_device_context(device: object) -> Iterator[Device]:
    """Makes a device the one that `get_device()` gives, and torch's current one where torch is loaded, for a block."""
    chosen = get_device(device)
    module = frameworks.torch()
    inner: Any = nullcontext()
    if chosen.type == "cuda" and module is not None and module.cuda.is_available():
        inner = module.cuda.device(chosen.index)
    token = _current.set(chosen)
    try:
        with inner:
            yield chosen
    finally:
        _current.reset(token)


def check_memory_leak(initial: dict[str, Any] | float, tolerance_mb: float = 10.0, device: object = None) -> bool:
    """True if memory grew by more than the tolerance since `initial`.

    Args:
        initial: what `get_gpu_memory_info` gave before, or that number alone in GB ("allocated" of a GPU, "reserved" of the
            CPU).
        tolerance_mb: MB of 2²⁰ bytes.
    """
    if isinstance(initial, dict):
        chosen = get_device(device or initial.get("device"))
        before = _watched(initial)
    else:
        chosen, before = get_device(device), float(initial)
    synchronize_device(chosen)
    return (_watched(get_gpu_memory_info(chosen)) - before) * 1024.0 > tolerance_mb


def warmup_cuda(device: object = None) -> None:
    """Gets context, clocks and first launch of a device out of the way, so that the next timed call is representative."""
    lib.core.mlff_device_warm_up(get_device(device).struct)


def synchronize_device(device: object = None) -> None:
    """Waits for all work of a device, ours and that of torch."""
    chosen = get_device(device)
    lib.core.mlff_device_synchronize(chosen.struct)
    if chosen.type == "cuda" and frameworks.torch_uses_gpu():
        frameworks.torch().cuda.synchronize(chosen.index)


class Stream:
    """A stream of work on a device; on the CPU it is nothing. `handle` is the CUDA stream, or None."""

    def __init__(self, device: object = None) -> None:
        self.device = get_device(device)
        self._stream = Handle(partial(lib.core.mlff_stream_destroy, self.device.struct))
        lib.core.mlff_stream_create(self.device.struct, byref(self._stream))
        self.handle = self._stream.value

    def synchronize(self) -> None:
        """Waits for the work of this stream."""
        lib.core.mlff_stream_synchronize(self.device.struct, self.handle)


def get_cuda_stream(device: object = None) -> Stream:
    """A new stream on the device."""
    return Stream(device)


def print_device_summary(file: TextIO | None = None) -> None:
    """Prints every device, and why there is no GPU if there is none."""
    out = file or sys.stdout
    for device in list_available_devices():
        raw = _info(device)
        memory = f"{raw.memory_bytes / GB:.1f} GB"
        if device.type == "cuda":
            detail = f"compute capability {raw.capability_major}.{raw.capability_minor}, {raw.n_multiprocessors} SMs, {memory}"
        else:
            detail = f"{raw.n_multiprocessors} cores, {memory}"
        print(f"{device:<8} {raw.name.decode('utf-8', 'replace')}: {detail}", file=out)
    if lib.core.mlff_device_count(lib.CUDA) == 0:
        print(gpu_problem(), file=out)


__all__ = [
    "Device",
    "GPUInfo",
    "MemoryTrack",
    "Stream",
    "check_memory_leak",
    "cuda_memory_tracker",
    "empty_cache",
    "get_cuda_stream",
    "get_device",
    "get_gpu_info",
    "get_gpu_memory_info",
    "get_peak_memory_allocated",
    "list_available_devices",
    "print_device_summary",
    "print_gpu_memory_summary",
    "reset_peak_memory_stats",
    "synchronize_device",
    "torch_device_context",
    "warmup_cuda",
]
