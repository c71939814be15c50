# SPDX-License-Identifier: MIT
"""ASE calculators in a process of their own, so that a structure at which one crashes or hangs is lost alone.

    calculator = IsolatedCalculator(SomeCalculator(), timeout=60)
    label_with_calculator(calculator, frames, "some.labels")     # or Teacher(calculator), and distill
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import stat
import threading
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from ase.calculators.calculator import Calculator, PropertyNotImplementedError, all_changes

from ._arrays import changed_conditions, forget_other_conditions
from ._energies import free_energy_of
from ._handles import exclusive
from .errors import MlffUnsupportedError, MlffUsageError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from ase import Atoms

__all__ = ["IsolatedCalculator"]


def _plain(results: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in results.items() if isinstance(value, (int, float, np.ndarray, np.generic))}


def _open_files() -> set[tuple[int, int, int]]:
    """Regular files: descriptors with device and inode, since a closed file's descriptor becomes that of the next one."""
    found = set()
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            file = os.fstat(int(name))
            if stat.S_ISREG(file.st_mode):
                found.add((int(name), file.st_dev, file.st_ino))
    return found


def _serve(calculator: Any, files: set[tuple[int, int, int]], connection: Connection, parents: Connection) -> None:
    """In the process: structures come in, results or the text of an error go out."""
    parents.close()  # or its end would never be seen here
    for descriptor, _, _ in _open_files() - files:
        if descriptor > 2:
            os.close(descriptor)  # a file of labels stays locked while anybody has it open
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    while True:
        try:
            atoms, properties = connection.recv()
        except EOFError:
            return
        try:
            forget_other_conditions(calculator, atoms)
            found = {key: calculator.get_property(key, atoms) for key in properties}
            results = {**getattr(calculator, "results", {}), **found}
            free_energy = free_energy_of(calculator)
            if free_energy is not None:
                results["free_energy"] = free_energy  # of a combination, whose parts are here alone
            answer = (_plain(results), "", RuntimeError)
        except Exception as error:  # this structure's
            kind = PropertyNotImplementedError if isinstance(error, NotImplementedError) else RuntimeError
            answer = ({}, f"{type(error).__name__}: {error}", kind)
        try:
            connection.send(answer)
        except OSError:  # the pipe is closed, after Ctrl-C
            return


class IsolatedCalculator(Calculator):  # type: ignore[misc]
    """Another ASE calculator, which computes in a process that is forked at the first structure.

    A structure at which that process ends, or does not answer in time, raises RuntimeError; the next one starts a new process.
    In files of labels it has the name of the wrapped calculator. A calculator that has used a GPU in the calling process cannot be
    forked: let it make its model at the first structure.

    Args:
        calculator: any ASE calculator.
        timeout: s, for one structure.
    """

    def __init__(self, calculator: Any, timeout: float = 120.0) -> None:
        if not hasattr(calculator, "get_property"):
            raise TypeError(f"calculator {calculator!r}: expected an ASE calculator")
        if not timeout > 0:
            raise MlffUsageError(f"timeout {timeout!r}: expected seconds above 0")
        super().__init__()
        self.calculator = calculator
        self.timeout = timeout
        self.implemented_properties = list(getattr(calculator, "implemented_properties", ["energy", "forces"]))
        self._files = _open_files()  # which the calculator may need
        self._process: Any = None
        self._connection: Connection | None = None
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_process": None, "_connection": None}
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the end of the interpreter
            self.close()

    def close(self) -> int | None:
        """Ends the process, if there is one, and returns its exit status (minus a signal's number)."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None:
            connection.close()
        if process is None:
            return None
        process.join(0.2)  # a crash closes the pipe before it is an exit status
        if process.exitcode is None:
            process.kill()
            process.join()
        return int(process.exitcode)

    def _start(self) -> Connection:
        if "fork" not in multiprocessing.get_all_start_methods():
            raise MlffUnsupportedError("a calculator in a process of its own needs fork(), which this system lacks")
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(self.calculator, self._files, theirs, ours), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: those of the engine hold no lock between calls
            process.start()
        self._process = process  # a process that could not be started has no end to wait for
        theirs.close()
        return ours

    @contextlib.contextmanager
    def _asking(self) -> Iterator[Connection]:
        """The connection; whatever goes wrong with it, the process ends, since its answer could come to a later question."""
        try:
            if self._connection is None:
                self._connection = self._start()
            yield self._connection
        except (EOFError, ConnectionError):
            status = self.close() or 0
            how = f"signal {-status} ({signal.strsignal(-status)})" if status < 0 else f"status {status}"
            raise RuntimeError(f"the calculator's process ended at this structure, with {how}") from None
        except BaseException:
            self.close()
            raise

    def check_state(self, atoms: Atoms, tol: float = 1e-15) -> list[str]:
        """What changed since the last call, as ASE's method of this name, and "info" where charge or spin did."""
        return [*super().check_state(atoms, tol=tol), *changed_conditions(self.atoms, atoms)]

    @exclusive
    def get_property(self, name: str, atoms: Atoms | None = None, allow_calculation: bool = True) -> Any:
        """One property, as by ASE's method of this name. Threads that share a calculator wait for each other."""
        return super().get_property(name, atoms, allow_calculation)

    @exclusive
    def get_potential_energy(self, atoms: Atoms | None = None, force_consistent: bool = False) -> float:
        """Energy, eV, or with `force_consistent` the free energy, as by ASE's method of this name."""
        return float(super().get_potential_energy(atoms, force_consistent))

    @exclusive
    def calculate(self, atoms: Atoms | None = None, properties: list[str] = ["energy"], system_changes: list[str] = all_changes) -> None:  # noqa: B006
        """Computes `properties`; other results of the wrapped calculator are stored too."""
        super().calculate(atoms, properties, system_changes)
        self.results = {}  # of atoms before, where these have none
        with self._asking() as connection:
            connection.send((self.atoms, properties))
            if not connection.poll(self.timeout):
                raise RuntimeError(f"no answer of the calculator within {self.timeout:g} s")
            results, problem, kind = connection.recv()
        if problem:
            raise kind(problem)
        self.results = results
