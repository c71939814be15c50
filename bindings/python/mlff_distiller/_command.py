# SPDX-License-Identifier: MIT
"""The console scripts: thin doors to the command `mlff`, which the wheel brings along."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import sys
from typing import NoReturn

import mlff_distiller


def command_path() -> str:
    """The command: $MLFF_COMMAND, that of this package, of the clone it lies in, or the one on PATH."""
    if os.environ.get("MLFF_COMMAND"):
        return os.environ["MLFF_COMMAND"]
    places = [pathlib.Path(path) / "bin" / "mlff" for path in mlff_distiller.__path__]
    places.append(pathlib.Path(__file__).resolve().parents[3] / "build" / "bin" / "mlff")
    own = pathlib.Path(sys.argv[0]).resolve()
    for place in places:
        if place.is_file():
            return str(place)
    found = shutil.which("mlff")
    if found and pathlib.Path(found).resolve() != own:
        return found
    sys.exit("mlff: the command was not found; install the package with `pip install .`, or set MLFF_COMMAND to its path")


def _run(*words: str) -> NoReturn:
    path = command_path()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, which the command would inherit
    os.execv(path, [path, *words, *sys.argv[1:]])


def mlff() -> NoReturn:
    """`mlff …`"""
    _run()


def profile() -> NoReturn:
    """`mlff profile …`; with --model, --compare-all or --output-dir the teachers' profiler."""
    if any(word.partition("=")[0] in ("--model", "--compare-all", "--output-dir") for word in sys.argv[1:]):
        from .profile_teachers import main

        sys.exit(main(sys.argv[1:]))
    _run("profile")


def check() -> NoReturn:
    """`mlff check …`"""
    _run("check")


def bench() -> NoReturn:
    """`mlff bench …`; options alone are those of its worked example."""
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    example = first.startswith("-") and first not in ("-h", "--help")
    _run("bench", *(["example"] if example else []))
