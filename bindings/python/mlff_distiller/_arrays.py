# SPDX-License-Identifier: MIT
"""Arrays of NumPy, PyTorch, CuPy, JAX and others as pointers the C library reads and writes: on the host, or on a GPU where
they are never copied. Arrays come in by the array interfaces (`__array_interface__`, `__cuda_array_interface__`) or DLPack.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p, py_object
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _frameworks as frameworks
from . import _library as lib
from ._devices import Device
from .errors import MlffUsageError

_CUDA, _CUDA_MANAGED = 2, 13  # kDLCUDA, kDLCUDAManaged
_ON_GPU = (_CUDA, _CUDA_MANAGED)
_KINDS = {0: "i", 1: "u", 2: "f"}


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, [py_object, c_char_p]


def unmasked(value: Any, name: str) -> Any:
    """`value`, unless entries of it are masked (numpy.ma): NumPy would take the numbers below the mask, which mean nothing."""
    for part in (value,) if isinstance(value, np.ndarray) else value if isinstance(value, (list, tuple)) else ():
        if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
            n = int(np.ma.getmaskarray(part).sum())
            raise MlffUsageError(f"{name}: {n} of {part.size} numbers are masked; fill them in (filled), or leave them out (compressed)")
    return value


def host_array(value: Any, dtype: Any, shape: tuple[int, ...], name: str) -> npt.NDArray[Any]:
    """`value` as a C-contiguous NumPy array of the dtype in native byte order; no copy where it is one already."""
    if not isinstance(value, np.ndarray):
        if on_gpu(value):
            raise MlffUsageError(f"{name}: it is on a GPU; compute_on_device takes it without a copy, or bring it to the host first")
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            value = np.from_dlpack(value)
    value = unmasked(value, name)
    try:
        array = np.asarray(value)
    except ValueError as problem:  # rows of different lengths
        raise MlffUsageError(f"{name}: {problem}") from None
    if array.dtype.kind not in "fiub":
        raise MlffUsageError(f"{name}: dtype {array.dtype} is not of numbers")
    if np.issubdtype(dtype, np.integer) and array.dtype.kind == "f":
        raise MlffUsageError(f"{name}: dtype {array.dtype}, integers are needed")
    if any(have != want for have, want in zip(array.shape, shape) if want >= 0) or array.ndim != len(shape):
        wanted = ", ".join("any" if n < 0 else str(n) for n in shape)
        raise MlffUsageError(f"{name}: shape {array.shape}, ({wanted}) is needed")
    if np.issubdtype(dtype, np.integer) and array.size and array.dtype.kind in "iu":
        limits = np.iinfo(dtype)  # a cast would wrap around
        for value in (array.min(), array.max()):
            if not limits.min <= int(value) <= limits.max:
                raise MlffUsageError(f"{name}: {value} does not fit into {np.dtype(dtype).name}")
    return np.ascontiguousarray(array, dtype=dtype)


def charge_and_spin(atoms: Any) -> tuple[float | None, float | None]:
    """`info["charge"]` (e) and `info["spin"]` (multiplicity 2S + 1) of ASE's atoms, which some models depend on."""
    charge, spin = atoms.info.get("charge"), atoms.info.get("spin")
    for name, value in (("charge", charge), ("spin", spin)):
        if value is not None and not isinstance(value, (int, float, np.integer, np.floating)):
            raise MlffUsageError(f"atoms.info[{name!r}] is {value!r}; expected a number")
        if value is not None and not np.isfinite(value):
            raise MlffUsageError(f"atoms.info[{name!r}] is {value}; expected a finite number, or none")
    return charge, spin


def changed_conditions(stored: Any, atoms: Any) -> list[str]:
    """["info"] where charge or spin of `info` are others than those of `stored` (None: no atoms), at which ASE's own check of changes does
    not look; else []."""
    if stored is None:
        return []
    for name in ("charge", "spin"):
        then, now = stored.info.get(name), atoms.info.get(name)
        if then is not now and not np.array_equal(then, now):  # arrays too, which charge_and_spin then refuses
            return ["info"]
    return []


def forget_other_conditions(calculator: Any, atoms: Any) -> None:
    """Resets a calculator that holds results of another charge or spin than these atoms have, which it could give again."""
    if hasattr(calculator, "reset") and changed_conditions(getattr(calculator, "atoms", None), atoms):
        calculator.reset()


def refuse_settings(calculator: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The method `set` of a calculator whose settings are those that it was made with: ASE's would store others, without effect."""
    if settings:
        raise MlffUsageError(f"{', '.join(settings)}: {type(calculator).__name__} is given its settings when it is made; make another one")
    return {}


def on_gpu(value: Any) -> bool:
    """True for an array that lives on a GPU."""
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) in _ON_GPU
    return hasattr(value, "__cuda_array_interface__")


@dataclass
class _OnDevice:
    """What an array on a GPU says of itself; `keep` holds its memory."""

    pointer: int
    typestr: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # bytes; None: contiguous
    index: int | None  # of the GPU, where it is said
    stream: int | None  # work on it may be in flight there
    keep: Any


def _read_interface(interface: dict[str, Any], value: Any) -> _OnDevice:
    strides = interface.get("strides")
    # Only DLPack says on which GPU; managed memory (another kind) is on none.
    kind, number = value.__dlpack_device__() if hasattr(value, "__dlpack_device__") else (0, 0)
    return _OnDevice(
        int(interface["data"][0] or 0), interface["typestr"], tuple(interface["shape"]), None if strides is None else tuple(strides),
        int(number) if kind == _CUDA else None, interface.get("stream"), value,
    )  # fmt: skip


def _read_dlpack(value: Any, stream: int) -> _OnDevice:
    kind, index = value.__dlpack_device__()
    # The protocol's 1 is the default stream; the owner makes ours wait for what it has in flight.
    capsule = value.__dlpack__(stream=stream or 1)
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    item = tensor.bits // 8
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(item * tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
    typestr = f"<{_KINDS.get(tensor.code, '?')}{item}"
    return _OnDevice(int(tensor.data or 0) + tensor.byte_offset, typestr, shape, strides, int(index), None, capsule)


def _is_contiguous(found: _OnDevice, item: int) -> bool:
    """The stride of an axis of length 1 says nothing, as it is never taken; an array without elements has none that are."""
    if found.strides is None or 0 in found.shape:
        return True
    step = item
    for length, stride in zip(reversed(found.shape), reversed(found.strides)):
        if length > 1 and stride != step:
            return False
        step *= length
    return True


def device_array(
    value: Any, typestr: str, shape: Sequence[int], name: str, device: Device, stream: int, written: bool = False
) -> tuple[int, Any]:
    """Address of a contiguous array on `device`, checked to be what is needed, and what keeps it there. It is not copied.

    One that is to be written is refused where its owner says that it is read-only.

    Work of its owner that is still in flight on another stream than `stream` is waited for, as far as its owner tells.
    """
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        if written and interface["data"][1]:
            raise MlffUsageError(f"{name}: it is read-only, and results are to be written into it")
        found = _read_interface(interface, value)
    elif on_gpu(value):
        found = _read_dlpack(value, stream)
    else:
        raise MlffUsageError(f"{name}: not an array on a CUDA device (it has no __cuda_array_interface__, and no __dlpack__ of one)")
    if found.typestr != typestr or found.shape != tuple(shape):
        raise MlffUsageError(f"{name}: {found.typestr} {found.shape}; {typestr} {tuple(shape)} is needed")
    if not _is_contiguous(found, int(typestr[2:])):
        raise MlffUsageError(f"{name}: it is not contiguous")
    if found.index is not None and found.index != device.index:
        raise MlffUsageError(f"{name}: it is on cuda:{found.index}, the evaluator on {device}")
    if found.stream is not None and (found.stream if found.stream > 2 else 0) != stream:
        lib.core.mlff_stream_synchronize(device.struct, c_void_p(found.stream if found.stream > 2 else None))
    return found.pointer, found.keep


def new_like(value: Any, shape: Sequence[int]) -> Any:
    """A new array of float64, of the framework and on the device of `value`."""
    framework = frameworks.of(value)
    if framework == "torch":
        torch = frameworks.torch()
        return torch.empty(tuple(shape), dtype=torch.float64, device=value.device)
    if framework == "cupy":
        return frameworks.module("cupy").empty(tuple(shape), dtype=np.float64)
    if framework == "jax":
        return frameworks.jax().numpy.zeros(tuple(shape), dtype=np.float64, device=value.device).block_until_ready()
    raise MlffUsageError(f"out: arrays to be filled are needed, {type(value).__name__} cannot be asked for new ones")


def voigt(stress: Any) -> npt.NDArray[np.float64]:
    """A stress, also as the matrix that some calculators of ASE give, in Voigt order."""
    if np.shape(stress) != (3, 3):
        return host_array(stress, np.float64, (6,), "stress")
    matrix = host_array(stress, np.float64, (3, 3), "stress")
    six: npt.NDArray[np.float64] = (0.5 * (matrix + matrix.T)).ravel()[[0, 4, 8, 5, 2, 1]]
    return six
