# SPDX-License-Identifier: MIT
"""What a device is called, and how to get from a name to the one the library means."""

from __future__ import annotations

from ctypes import byref, c_int
from typing import Any

from . import _library as lib
from . import _structs as s
from .errors import MlffDeviceError


class Device(str):
    """A device: "cpu" or "cuda:0". It is a string, so that `torch.Tensor.to` and the like take it.

    Attributes:
        type: "cpu" or "cuda".
        index: of the device among those of its type.
    """

    type: str
    index: int  # type: ignore[assignment]

    def __new__(cls, type: str = "cpu", index: int = 0) -> Device:
        device = super().__new__(cls, "cpu" if type == "cpu" else f"{type}:{index}")
        device.type = type
        device.index = index
        return device

    def __reduce__(self) -> tuple[Any, tuple[str, int]]:
        return Device, (self.type, self.index)

    @property
    def struct(self) -> s.mlff_device:
        """The C struct."""
        return s.mlff_device(lib.CPU if self.type == "cpu" else lib.CUDA, self.index)


def gpu_problem() -> str:
    """Why no GPU works here, one line; "" if one does."""
    text: bytes = lib.core.mlff_device_problem()
    return text.decode("utf-8", "replace")


def parse_device(device: object = "auto") -> Device:
    """The device of a name, of a torch.device, or of an index of a GPU; "auto" is a GPU if one works, else the CPU.

    Raises:
        MlffDeviceError: a GPU that is not there; the text says why and what to do.
        MlffUsageError: a name that means no device.
    """
    if isinstance(device, Device):
        return device
    text = f"cuda:{device}" if isinstance(device, int) else str("auto" if device is None else device)
    if text == "auto":
        return Device("cuda", 0) if lib.core.mlff_device_count(lib.CUDA) > 0 else Device("cpu")
    out = s.mlff_device()
    lib.core.mlff_device_parse(text, byref(out))
    return Device("cpu") if out.kind == lib.CPU else Device("cuda", out.index)


def parse_devices(device: object = "auto") -> list[Device]:
    """The devices of a name: those of `parse_device`, or several, as "cuda:0,1" or "cpu:4" (four domains of one thread each)."""
    if not isinstance(device, str) or isinstance(device, Device) or not (device.startswith("cpu:") or "," in device):
        return [parse_device(device)]
    out, n = (s.mlff_device * lib.MAX_DEVICES)(), c_int()
    lib.core.mlff_devices_parse(device, out, lib.MAX_DEVICES, byref(n))
    return [Device("cpu") if one.kind == lib.CPU else Device("cuda", one.index) for one in out[: n.value]]


def require_gpu(device: Device, what: str) -> None:
    """Raises a clear error if `device` is not a GPU."""
    if device.type != "cuda":
        raise MlffDeviceError(f"{what} is of GPUs, and {device} is none; {gpu_problem() or 'ask for cuda:0'}")
