# SPDX-License-Identifier: MIT
"""`mlff-profile --model orb-v2 …`: the teachers profiled, one, over system sizes, or all of them on one trajectory.

    mlff-profile --model ani-2x --system water --n-steps 1000
    mlff-profile --model orb-v2 --system-sizes 32,64,128,256 --random-weights
    mlff-profile --compare-all --device cuda

Orb and ANI-2x (all members) run in our own engine. Reports go into a folder: MODEL_profile.json,
MODEL_scaling_SYSTEM.json, comparison_SYSTEM.json.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import sys
import tempfile
import warnings
from collections.abc import Sequence
from ctypes import byref, c_int, c_void_p
from typing import Any

import numpy as np
from ase import Atoms
from ase.data import chemical_symbols

from . import _library as lib
from . import _structs as s
from ._bridge import doubles
from ._files import partial_path, write_whole
from ._numbers import count_text
from .cuda.device_utils import get_device
from .cuda.md_profiler import MDProfiler, MDProfileResult
from .engine import Model
from .errors import MlffElementError, MlffError, MlffUsageError
from .models import OrbCalculator, StudentCalculator

ALIASES = {"orb-v3": "orb-v3-conservative-inf-omat", "ani-2x": "fennol-ani2x", "ani2x": "fennol-ani2x"}
COMPARED = ("orb-v2", "orb-v3", "ani-2x")
KNOWN_TO_ALL = "water"  # of the systems below the one whose elements every teacher knows

README = """# Profiling reports

Written by `mlff-profile --model`. A file holds one profile, or several as `{"runs": [...]}`; times are in ms, memory in GB of 2^30 bytes, and
`notes` says *untrained* where weights were random. `mlff report FILE -o page.html` makes a page, `mlff compare A B` compares.
"""


def make_teacher(name: str, device: str, random_weights: bool) -> Any:
    """The calculator of a teacher by its name: "orb-v2", "orb-v3", "orb-…", "ani-2x"; or of one of our model files by its path.

    Raises:
        ImportError, MlffFileError: a package or weights are missing; the text says where they are looked for and how to get them.
    """
    full = ALIASES.get(name, name)
    if full.startswith("orb-"):
        return OrbCalculator(full, device=device, random_weights=random_weights)
    if full == "fennol-ani2x" and random_weights:
        return StudentCalculator(Model.create("ani"), device=device)
    return StudentCalculator(full, device=device)


def build_system(name: str, n_atoms: int, seed: int = 0) -> Atoms:
    """A built-in system ("silicon", "water", …) of the number of atoms nearest to `n_atoms` that it allows."""
    out = c_void_p()
    lib.core.mlff_system_build(name, n_atoms, seed, byref(out))
    try:
        system = s.mlff_system.from_address(out.value or 0)
        n = system.n_atoms
        numbers = list((c_int * n).from_address(system.species))
        return Atoms(
            numbers, doubles(system.positions, (n, 3)).copy(), cell=np.reshape(system.cell[:], (3, 3)), pbc=[bool(p) for p in system.periodic]
        )
    finally:
        lib.core.mlff_system_destroy(out)


def _slug(name: str) -> str:
    text = pathlib.Path(ALIASES.get(name, name) if name != "orb-v3" else name).stem
    return text.replace("-", "_")


def _check_elements(calculator: Any, name: str, atoms: Atoms) -> None:
    info = getattr(calculator, "model_info", None)
    if info is not None and info.elements and set(atoms.numbers) - set(info.elements):
        missing = ", ".join(chemical_symbols[z] for z in sorted(set(map(int, atoms.numbers)) - set(info.elements)))
        known = ", ".join(chemical_symbols[z] for z in info.elements)
        raise MlffElementError(f"{name} does not know {missing}; it knows {known}. Choose another --system ({KNOWN_TO_ALL})")


def _profile(options: argparse.Namespace, profiler: MDProfiler, name: str, n_atoms: int) -> MDProfileResult:
    atoms = build_system(options.system, n_atoms, options.seed)
    calculator = make_teacher(name, profiler.device, options.random_weights)
    _check_elements(calculator, name, atoms)
    title = f"{name}, {options.system}, {count_text(len(atoms), 'atom')}"
    if options.trajectory == "md":
        return profiler.profile_md(calculator, atoms, options.n_steps, seed=options.seed, name=title)
    source = atoms if options.trajectory == "thermal" else options.trajectory
    return profiler.profile_calculator(calculator, source, n_steps=options.n_steps, name=title)


def _check_folder(folder: pathlib.Path) -> None:
    """Before the measurement, which would be lost."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _save(folder: pathlib.Path, name: str, results: Sequence[MDProfileResult], ended_early: bool) -> pathlib.Path:
    """Writes the file, and says so. A run that ended early leaves one that is there as it was: it may be of a whole run."""
    if not (folder / "README.md").exists():
        write_whole(folder / "README.md", README)
    path = folder / name
    beside = ended_early and path.exists()
    if beside:
        path = partial_path(path)
    try:
        _write(path, results)
    except BaseException:
        if beside:
            path.unlink(missing_ok=True)
        raise
    print(f"written: {path}")
    return path


def _write(path: pathlib.Path, results: Sequence[MDProfileResult]) -> None:
    if len(results) == 1:
        results[0].save_json(path)
    else:
        write_whole(path, json.dumps({"runs": [result.to_dict() for result in results]}))


def _table(results: Sequence[MDProfileResult]) -> None:
    width = max(len(result.name) for result in results)
    print(f"{'':<{width}} {'mean/ms':>10} {'median/ms':>10} {'P95/ms':>10} {'P99/ms':>10} {'µs/atom':>9}")
    for r in results:
        cells = [(r.mean_latency_ms, 1), (r.median_latency_ms, 1), (r.p95_latency_ms, 20), (r.p99_latency_ms, 100)]  # with the steps needed
        texts = [f"{cell:10.3f}" if r.n_steps >= needed else f"{'–':>10}" for cell, needed in cells]
        print(f"{r.name:<{width}} " + " ".join(texts) + f" {r.us_per_atom:9.2f}")


def _finish(folder: pathlib.Path, name: str, results: Sequence[MDProfileResult], ended: str | None = None, status: int = 130) -> int:
    """Shows and saves several profiles. ended: why the run ended early, which gives this exit status; None: it did not."""
    kept = ""
    if results:
        _table(results)
        path = _save(folder, name, results, ended is not None)
        kept = f"; kept: {count_text(len(results), 'profile')} in {path}"
    if ended:
        print(f"mlff-profile: {ended}{kept}", file=sys.stderr)
        return status
    return 0 if results else 1


def _lost(path: pathlib.Path, left_out: Sequence[str]) -> list[str]:
    """Those of these teachers that the file at `path` has: without them its place would be taken by a part. All, if it cannot be read."""
    if not path.exists():
        return []
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        there = {run["name"] for run in data.get("runs", [data])}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return list(left_out)
    return [name for name in left_out if name in there]


def _compare_all(options: argparse.Namespace, profiler: MDProfiler) -> int:
    """Every teacher that runs here, each in a process of its own, on the same frames; those that do not say why."""
    options.system = KNOWN_TO_ALL
    atoms = build_system(options.system, options.n_atoms, options.seed)
    file = f"comparison_{options.system}.json"
    results: list[MDProfileResult] = []
    left_out: list[str] = []
    for name in COMPARED:
        maker = functools.partial(make_teacher, name, str(profiler.device), options.random_weights)
        try:
            found = profiler.compare_calculators({name: maker}, atoms, n_steps=options.n_steps, separate_processes=True)
            results.append(found[name])
        except (MlffError, OSError) as problem:
            print(f"left out: {problem}", file=sys.stderr)
            left_out.append(name)
        except KeyboardInterrupt:
            return _finish(options.output_dir, file, results, f"interrupted during {name}")
    lost = _lost(options.output_dir / file, left_out)
    return _finish(options.output_dir, file, results, f"left out: {', '.join(lost)}" if lost else None, 1)


def _scale(options: argparse.Namespace, profiler: MDProfiler) -> int:
    results: list[MDProfileResult] = []
    ended, status = None, 130
    for n_atoms in _built_sizes(options):
        try:
            results.append(_profile(options, profiler, options.model, n_atoms))
        except KeyboardInterrupt:
            ended = f"interrupted at {count_text(n_atoms, 'atom')}"
            break
        except (MlffError, OSError) as problem:
            if not results:
                raise
            ended, status = f"{count_text(n_atoms, 'atom')}: {problem}", 1
            break
    return _finish(options.output_dir, f"{_slug(options.model)}_scaling_{options.system}.json", results, ended, status)


def _one(options: argparse.Namespace, profiler: MDProfiler) -> int:
    interrupted = False
    try:
        result = _profile(options, profiler, options.model, options.n_atoms)
    except KeyboardInterrupt as stopped:
        measured: MDProfileResult | None = getattr(stopped, "profile", None)
        if measured is None:
            raise
        interrupted, result = True, measured
    print(result.summary())
    path = _save(options.output_dir, f"{_slug(options.model)}_profile.json", [result], interrupted)
    if interrupted:
        print(f"mlff-profile: interrupted after {count_text(result.n_steps, 'step')}; kept: what was measured in {path}", file=sys.stderr)
    return 130 if interrupted else 0


def _built_sizes(options: argparse.Namespace) -> list[int]:
    """The sizes that the system can have nearest to those asked for, each once: a molecule has one."""
    return list(dict.fromkeys(len(build_system(options.system, n, options.seed)) for n in options.system_sizes))


def _run(options: argparse.Namespace) -> int:
    _check_folder(options.output_dir)
    profiler = MDProfiler(device=get_device(options.device, fallback=True), warmup_steps=options.warmup)
    if options.compare_all:
        return _compare_all(options, profiler)
    return _scale(options, profiler) if options.system_sizes else _one(options, profiler)


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of 1 or more")
    return int(text)


def _sizes(text: str) -> list[int]:
    return [_count(word) for word in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; gives its exit status: 0, 1 if it failed, 2 if it was called wrongly, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="mlff-profile", description="Profiles teachers: one, over system sizes, or all of them.")
    parser.add_argument("--model", default="orb-v2", help="orb-v2, orb-v3, orb-…, ani-2x, or a model file (orb-v2)")
    parser.add_argument("--n-steps", type=_count, default=100, help="steps that are measured (100; 1000 and more to see a leak)")
    parser.add_argument("--n-atoms", type=_count, default=64, help="atoms; the nearest count the system allows is built (64)")
    parser.add_argument("--system", default="silicon", help="water, silicon, aluminum, iron, or a molecule (silicon)")
    parser.add_argument("--system-sizes", type=_sizes, help="measure a system of each of these numbers of atoms: 32,64,128,256")
    parser.add_argument("--compare-all", action="store_true", help=f"all teachers that run here, on {KNOWN_TO_ALL}")
    parser.add_argument("--trajectory", default="thermal", help="thermal (displacements at 300 K), md, or a file of frames (thermal)")
    parser.add_argument("--random-weights", action="store_true", help="measure speed without weights; reports say so")
    parser.add_argument("--warmup", type=int, default=10, help="steps before the measured ones (10)")
    parser.add_argument("--output-dir", type=pathlib.Path, default=pathlib.Path("profiling_reports"), help="folder of reports (profiling_reports)")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, cpu, auto; where there is no GPU the CPU, with a warning (cuda)")
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers (0)")
    options = parser.parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *details, **more: print(f"warning: {message}", file=sys.stderr)
            return _run(options)
    except KeyboardInterrupt:
        print("mlff-profile: interrupted before a step was measured", file=sys.stderr)
        return 130
    except (MlffError, ImportError, OSError) as problem:
        print(f"mlff-profile: {problem}", file=sys.stderr)
        return 2 if isinstance(problem, MlffUsageError) else 1


if __name__ == "__main__":
    sys.exit(main())
