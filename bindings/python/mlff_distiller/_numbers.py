# SPDX-License-Identifier: MIT
"""Numbers in texts for people: with a unit, without powers of ten, and no "-0.00"."""

from __future__ import annotations


def time_text(ms: float) -> str:
    """Four digits with their unit: "41.2 µs"; as the C library writes times."""
    if abs(ms) >= 1000.0:
        return f"{ms * 1e-3:.4g} s"
    return f"{ms:.4g} ms" if abs(ms) >= 1.0 else f"{ms * 1e3:.4g} µs"


def count_text(n: int, noun: str) -> str:
    """A number of things: "1 step", "20 steps"."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def number_text(value: float, digits: int = 4) -> str:
    """So many digits, never in powers of ten: "622.4", "3151000"."""
    return f"{value:.{digits}g}" if abs(value) < 10.0**digits else f"{float(f'{value:.{digits}g}'):.0f}"


def change_mb_text(mb: float) -> str:
    """ "+0.12 MB"."""
    return f"{0.0 if abs(mb) < 0.005 else mb:+.2f} MB"
