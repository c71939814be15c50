# SPDX-License-Identifier: MIT
"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """The name of a file beside `path` to be written, which then gets that name; after an exception neither is left."""
    target = pathlib.Path(os.path.realpath(path))  # what a link leads to is replaced, not the link
    if target.exists() and not target.is_file():  # a pipe or a device
        yield target
        return
    part = target.with_name(f".{os.getpid()}.{target.name}")  # with its suffix, which may say its format
    try:
        yield part
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def partial_path(path: pathlib.Path) -> pathlib.Path:
    """A new file `NAME-partial.SUFFIX` beside `path`, for what was made of it."""
    for number in range(1, 1001):
        mark = "-partial" if number == 1 else f"-partial-{number}"
        partial = path.with_name(path.stem + mark + path.suffix)
        with contextlib.suppress(FileExistsError), partial.open("x"):
            return partial
    raise FileExistsError(f"{path}: has too many partial files")
