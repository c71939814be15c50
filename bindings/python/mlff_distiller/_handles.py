# SPDX-License-Identifier: MIT
"""Objects of the C library that Python owns."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from ctypes import c_void_p
from typing import Any, Concatenate, ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def exclusive(method: Callable[Concatenate[Any, _Given], _Result]) -> Callable[Concatenate[Any, _Given], _Result]:
    """A method that waits while another thread is in one of the same object: a C object serves one thread at a time, and ctypes lets
    the others run. The object has a `_lock`."""

    @functools.wraps(method)
    def call(self: Any, /, *arguments: _Given.args, **named: _Given.kwargs) -> _Result:
        with self._lock:
            return method(self, *arguments, **named)

    return call


class Handle(c_void_p):
    """A pointer to an object of the C library, which is destroyed when nothing in Python refers to the handle.

    Copies of a Python object share its handle, so that the C object is destroyed once. An object that borrows others is destroyed
    before them, whatever order the garbage collector takes.

    Args:
        destroy: the C function that ends the object.
        borrowed: handles of the objects that it uses while it exists.
        address: of an object that exists; None: a C function fills the handle in.
    """

    _counting = threading.RLock()  # an attribute: module variables are gone when the interpreter ends

    def __init__(self, destroy: Callable[[Any], Any], *borrowed: Handle, address: int | None = None) -> None:
        super().__init__(address)
        self._destroy = destroy
        self._borrowed = borrowed
        self._n_borrowers = 0
        self._unused = False
        with self._counting:
            for handle in borrowed:
                handle._n_borrowers += 1

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("what the C library computes with cannot be copied or pickled: make it again in the copy's or the process's place")

    def __del__(self) -> None:
        with self._counting:
            self._unused = True
        self._end()

    def _end(self) -> None:
        """Destroys the object unless it is referred to or borrowed, then those that it alone borrowed."""
        with self._counting:
            if not self._unused or self._n_borrowers:
                return
            address, self.value = self.value, None
            borrowed, self._borrowed = self._borrowed, ()
        if address:
            self._destroy(address)
        for handle in borrowed:
            with self._counting:
                handle._n_borrowers -= 1
            handle._end()
