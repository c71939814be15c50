# SPDX-License-Identifier: MIT
"""Pictures of measured times, with matplotlib where it is installed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ._files import whole_file


def plot_times(
    times_ms: Sequence[float], every: int, marks: Mapping[str, float], title: str, path: str | os.PathLike[str] | None
) -> Any:
    """Times over steps beside their histogram, with `marks` as lines; gives the figure and saves it where a path is given."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("plots need matplotlib: pip install matplotlib") from None

    figure = Figure(figsize=(9.0, 3.5), layout="constrained")
    over, histogram = figure.subplots(1, 2, sharey=True, width_ratios=[3, 1])
    over.plot([i * every for i in range(len(times_ms))], times_ms, ".", markersize=3)
    over.set_xlabel("step")
    over.set_ylabel("time, ms")
    histogram.hist(times_ms, bins=min(60, max(5, len(times_ms) // 5)), orientation="horizontal")
    histogram.set_xlabel("steps")
    for i, (label, value) in enumerate(marks.items()):
        for axes in (over, histogram):
            axes.axhline(value, linewidth=1, linestyle=("-", "--", ":")[i % 3], color=f"C{i + 1}", label=label)
    over.legend(loc="upper right", fontsize="small")
    figure.suptitle(title)
    if path is not None:
        with whole_file(path) as part:
            figure.savefig(os.fspath(part))
    return figure
