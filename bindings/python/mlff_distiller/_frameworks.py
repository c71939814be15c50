# SPDX-License-Identifier: MIT
"""PyTorch and JAX where a program has already imported them: waiting for their devices, their memory, their threads.

Nothing here imports a framework: one that is not in `sys.modules` has no work in flight and holds no memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import _library as lib
from ._devices import Device


def torch() -> Any:
    """The module torch, or None if the program has not imported it (whole)."""
    module = sys.modules.get("torch")
    return module if module is not None and hasattr(module, "Tensor") and hasattr(module, "cuda") else None


def jax() -> Any:
    """The module jax, or None."""
    module = sys.modules.get("jax")
    return module if module is not None and hasattr(module, "block_until_ready") else None


def module(name: str) -> Any:
    """A module that the program has imported, or None."""
    return sys.modules.get(name)


def of(array: Any) -> str:
    """Whose an array is: "torch", "cupy", "jax", or another package's name."""
    home = type(array).__module__.partition(".")[0]
    return "jax" if home == "jaxlib" else home


def current_stream(array: Any) -> int:
    """The CUDA stream that the owner of an array works on now; 0: the default one."""
    owner = of(array)
    if owner == "torch":
        return int(module("torch").cuda.current_stream(array.device).cuda_stream)
    if owner == "cupy":
        return int(module("cupy").cuda.get_current_stream().ptr)
    return 0


def torch_uses_gpu() -> bool:
    """True if torch is loaded and has touched a GPU."""
    module = torch()
    return bool(module is not None and module.cuda.is_available() and module.cuda.is_initialized())


def synchronizer(device: Device) -> Callable[[Any], None] | None:
    """A function that waits until the work behind a result is done, or None where there is nothing to wait for."""
    waits: list[Callable[[Any], None]] = []
    torch_module, jax_module = torch(), jax()
    if torch_module is not None and torch_module.cuda.is_available():
        waits.append(lambda result: torch_module.cuda.synchronize())
    if jax_module is not None:
        # It looks through whatever it is given, half a microsecond for nothing at all.
        waits.append(lambda result: None if result is None else jax_module.block_until_ready(result))
    if device.type == "cuda":
        struct = device.struct
        waits.append(lambda result: lib.core.mlff_device_synchronize(struct))
    if not waits:
        return None
    if len(waits) == 1:
        return waits[0]

    def wait(result: Any) -> None:
        for one in waits:
            one(result)

    return wait


def ledgers(device: Device) -> dict[str, Callable[[], int]]:
    """Memory in bytes that the loaded frameworks hold on a GPU, by name. Names begin with "device" where it is device memory."""
    found: dict[str, Callable[[], int]] = {}
    torch_module, jax_module = torch(), jax()
    index = device.index if device.type == "cuda" else 0
    if torch_module is not None and torch_module.cuda.is_available():
        found["device: torch allocated"] = lambda: int(torch_module.cuda.memory_allocated(index))
        found["torch reserved"] = lambda: int(torch_module.cuda.memory_reserved(index))
    if jax_module is not None:
        try:
            accelerators = [d for d in jax_module.local_devices() if d.platform != "cpu"]
        except RuntimeError:
            accelerators = []
        if index < len(accelerators) and accelerators[index].memory_stats():
            chosen = accelerators[index]
            found["device: jax in use"] = lambda: int((chosen.memory_stats() or {}).get("bytes_in_use", 0))
            found["jax reserved"] = lambda: int((chosen.memory_stats() or {}).get("pool_bytes", 0))
    return found


def threads() -> dict[str, str]:
    """Sizes of the thread pools in this process, as far as they can be told without loading anything."""
    found = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "not set")}
    module = torch()
    if module is not None:
        found["torch"] = str(module.get_num_threads())
    found["cores"] = str(cores())
    return found


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def capped_threads(n_threads: int | None) -> Iterator[dict[str, str]]:
    """Caps the thread pools of OpenMP libraries and torch for a block; gives what holds inside. None leaves them alone."""
    if n_threads is None:
        yield threads()
        return
    module = torch()
    before = module.get_num_threads() if module is not None else None
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: os.environ.get(name) for name in variables}
    omp = _openmp()
    omp_before = omp.omp_get_max_threads() if omp is not None else None
    try:
        for name in variables:
            os.environ[name] = str(n_threads)  # for libraries and processes that start inside the block
        if module is not None:
            module.set_num_threads(n_threads)
        if omp is not None:
            omp.omp_set_num_threads(n_threads)
        yield threads()
    finally:
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if module is not None:
            module.set_num_threads(before)
        if omp is not None:
            omp.omp_set_num_threads(omp_before)


def _openmp() -> Any:
    """GCC's OpenMP runtime if something in this process has loaded it, or None."""
    import ctypes

    try:
        return ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except (OSError, AttributeError):
        return None
