# SPDX-License-Identifier: MIT
"""Errors of the C library as Python exceptions. Each is also the built-in that fits, so that `except ValueError` works."""

from __future__ import annotations


class MlffError(Exception):
    """A call of the library failed. Its text is the library's own: one line that names the thing and the remedy.

    Attributes:
        status: number of the C status (`mlff_status` in mlff_base.h).
    """

    status: int = 0


class MlffUsageError(MlffError, ValueError):
    """An argument that is not valid."""

    status = 1


class MlffFileError(MlffError, OSError):
    """A file cannot be opened, read or written."""

    status = 2

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class MlffFormatError(MlffError, ValueError):
    """A file does not say what its format promises."""

    status = 3


class MlffValueError(MlffError, ValueError):
    """A number that cannot be: NaN, infinite, a cell without volume, two atoms on one point."""

    status = 4


class MlffElementError(MlffError, ValueError):
    """An element that the model does not know."""

    status = 5


class MlffLimitError(MlffError, ValueError):
    """Larger than the library or the machine handles."""

    status = 6


class MlffMemoryError(MlffError, MemoryError):
    """Out of host or device memory."""

    status = 7


class MlffDeviceError(MlffError, RuntimeError):
    """No such device, a driver too old, a device lost."""

    status = 8


class MlffUnsupportedError(MlffError, NotImplementedError):
    """Meant and legal, but not offered."""

    status = 9


class MlffUnstableError(MlffError, ArithmeticError):
    """A simulation whose energy or positions are no longer finite."""

    status = 10


class MlffInterruptedError(MlffError):
    """The run was asked to stop; what was measured is kept."""

    status = 11


class MlffCallbackError(MlffError):
    """A function handed to the library failed."""

    status = 12


class MlffWarning(UserWarning):
    """A warning of the library."""


BY_STATUS: dict[int, type[MlffError]] = {
    error.status: error
    for error in (
        MlffUsageError,
        MlffFileError,
        MlffFormatError,
        MlffValueError,
        MlffElementError,
        MlffLimitError,
        MlffMemoryError,
        MlffDeviceError,
        MlffUnsupportedError,
        MlffUnstableError,
        MlffInterruptedError,
        MlffCallbackError,
    )
}
