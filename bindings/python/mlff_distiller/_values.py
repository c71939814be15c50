# SPDX-License-Identifier: MIT
"""Numbers and texts on their way into C: refused where ctypes would cut them off (whole numbers beyond the range of their type, texts
with a NUL byte), and named where they are of another type."""

from __future__ import annotations

import operator
import os
from ctypes import Structure, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint, c_uint64
from typing import Any

from .errors import MlffUsageError

_RANGES: dict[Any, tuple[int, int]] = {
    c_int: (-(2**31), 2**31 - 1),
    c_uint: (0, 2**32 - 1),
    c_int64: (-(2**63), 2**63 - 1),
    c_uint64: (0, 2**64 - 1),
    c_size_t: (0, 2**64 - 1),
}
CHECKED = (*_RANGES, c_double, c_char_p)


def text_bytes(text: Any, name: str) -> bytes:
    """UTF-8 of a text for C."""
    if not isinstance(text, (str, bytes)):
        raise TypeError(f"{name}: {text!r} is not a text")
    content = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    if b"\0" in content:
        raise MlffUsageError(f"{name} {text[:60]!r}: it has a NUL byte, at which C would cut it off; remove it")
    return content


def path_bytes(path: str | os.PathLike[str]) -> bytes:
    """A file's name for C."""
    name = os.fsencode(os.fspath(path))
    if not name:
        raise MlffUsageError("the name of a file is empty; give one")
    return text_bytes(name, "file")


def as_c(kind: Any, value: Any, name: str) -> Any:
    """`value` as ctypes takes it for a field or an argument of this kind."""
    if kind in _RANGES:
        try:
            number = operator.index(value)
        except TypeError:
            raise TypeError(f"{name}: {value!r} is not a whole number") from None
        low, high = _RANGES[kind]
        if not low <= number <= high:
            raise MlffUsageError(f"{name} {number}: expected a whole number from {low} to {high}")
        return number
    if kind is c_double:
        try:
            if not isinstance(value, (str, bytes)):
                return float(value)
        except (TypeError, ValueError, OverflowError):
            pass
        raise TypeError(f"{name}: {value!r} is not a number")
    if kind is c_char_p and value is not None:
        return text_bytes(value, name)
    return value


class Options(Structure):
    """A struct that users' values are put into."""

    def __setattr__(self, name: str, value: Any) -> None:
        kinds = {field[0]: field[1] for field in self._fields_}
        super().__setattr__(name, as_c(kinds.get(name), value, name))
