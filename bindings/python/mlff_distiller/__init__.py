# SPDX-License-Identifier: MIT
"""Machine-learned force fields, fast, and where the time of an MD step goes.

The work is done by the C libraries libmlff (models, energies, forces, stress) and libmlff_profile (statistics, memory,
verdicts); this package hands them Python's arrays, ASE's atoms and anybody's function.

    mlff_distiller.models             ASE calculators: StudentCalculator, OrbCalculator, FeNNolCalculator
    mlff_distiller.cuda.device_utils      devices, their memory, leaks
    mlff_distiller.cuda.benchmark_utils   one function, many calls; comparisons; timelines
    mlff_distiller.cuda.md_profiler       steps of MD with any ASE calculator, and where their time went
    mlff_distiller.engine             models and evaluators without ASE
    mlff_distiller.distill            teachers, sampling, labels, datasets
    mlff_distiller.isolation          ASE calculators in a process of their own
    mlff_distiller.training           training of students, and whole distillations
    mlff_distiller.dynamics           runs of MD by the engine, on a GPU without leaving it
    mlff_distiller.relaxation         many structures relaxed at once
    mlff_distiller.analysis           structure, motion and spectrum of trajectories; vibrations

Units are ASE's: eV, Å, amu, eV/Å, eV/Å³; times are ms where a name ends in _ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _library
from .errors import MlffError, MlffWarning

if TYPE_CHECKING:
    from .analysis import Analysis, Vibrations, analyze, vibrations
    from .cuda.benchmark_utils import BenchmarkResult, benchmark_function
    from ._devices import Device
    from .cuda.device_utils import get_device
    from .cuda.md_profiler import MDProfiler, MDProfileResult, identify_hotspots
    from .dynamics import Dynamics, Replica, Replicas
    from .relaxation import Relaxed, relax
    from .engine import Evaluator, Model
    from .models import FeNNolCalculator, OrbCalculator, StudentCalculator

__version__: str = _library.version()

_HOMES = {
    "Analysis": "analysis",
    "Vibrations": "analysis",
    "analyze": "analysis",
    "vibrations": "analysis",
    "BenchmarkResult": "cuda.benchmark_utils",
    "benchmark_function": "cuda.benchmark_utils",
    "Device": "_devices",
    "get_device": "cuda.device_utils",
    "MDProfiler": "cuda.md_profiler",
    "MDProfileResult": "cuda.md_profiler",
    "identify_hotspots": "cuda.md_profiler",
    "Dynamics": "dynamics",
    "Replica": "dynamics",
    "Replicas": "dynamics",
    "Relaxed": "relaxation",
    "relax": "relaxation",
    "Evaluator": "engine",
    "Model": "engine",
    "FeNNolCalculator": "models",
    "OrbCalculator": "models",
    "StudentCalculator": "models",
}

__all__ = ["MlffError", "MlffWarning", "__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
