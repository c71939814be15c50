# SPDX-License-Identifier: MIT
"""Objects of the C library that Python owns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from ctypes import c_void_p
from typing import Any


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
