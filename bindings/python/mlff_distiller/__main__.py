# SPDX-License-Identifier: MIT
"""`python -m mlff_distiller …` is the command `mlff …`."""

from __future__ import annotations

from ._command import mlff

if __name__ == "__main__":
    mlff()
