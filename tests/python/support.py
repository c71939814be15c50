# SPDX-License-Identifier: MIT
"""What the Python tests share: models, trajectories, and where the published data lie."""

import contextlib
import io
import mmap
import os
import pathlib
import signal
import tempfile
import threading
import unittest
import warnings

import numpy as np
from ase.build import bulk, molecule

from mlff_distiller.engine import Model
from mlff_distiller.errors import MlffWarning

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("MLFF_SHARED", ROOT.parent / "shared"))
ETHANOL = SHARED / "data" / "painn" / "ethanol.best_model"

_folder = tempfile.TemporaryDirectory()
_made = {}


def scratch(name):
    """A path in a folder that goes away with the tests."""
    return pathlib.Path(_folder.name) / name


def wrong_in_threads(n_threads, n_calls, is_right):
    """Calls is_right(thread) n_calls times in each of n_threads threads at once; the threads of calls that were not right, and what was raised."""
    wrong = []

    def work(thread):
        for _ in range(n_calls):
            try:
                if not is_right(thread):
                    wrong.append(thread)
            except Exception as problem:
                wrong.append(problem)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def untrained():
    """A small PaiNN with random weights, which knows H, C, N, O, Si."""
    if "untrained" not in _made:
        _made["untrained"] = Model.create("painn", elements="H,C,N,O,Si", n_features=32, n_layers=2, cutoff=4.0, seed=7)
    return _made["untrained"]


def untrained_path():
    path = scratch("untrained.safetensors")
    if not path.exists():
        untrained().save(path)
    return path


def trained_ethanol():
    """The published ethanol model, or a skipped test."""
    if not ETHANOL.exists():
        raise unittest.SkipTest(f"{ETHANOL} is not there; set MLFF_SHARED to the folder that has data/painn")
    if "ethanol" not in _made:
        _made["ethanol"] = Model.import_schnetpack(ETHANOL, "kcal/mol", elements="H,C,O")
    return _made["ethanol"]


def ethanol_frames(n, amplitude=0.02):
    """Ethanol with n different small displacements."""
    frames = []
    for seed in range(n):
        atoms = molecule("CH3CH2OH")
        atoms.positions += np.random.default_rng(seed).normal(scale=amplitude, size=atoms.positions.shape)
        frames.append(atoms)
    return frames


def fresh(n_bytes):
    """Memory that malloc has not held before, written to: the resident set grows by it wherever it is taken."""
    memory = mmap.mmap(-1, n_bytes)
    for page in range(0, n_bytes, mmap.PAGESIZE):
        memory[page] = 1
    return memory


def silicon(repeat=2, amplitude=0.05, seed=3):
    atoms = bulk("Si", "diamond", a=5.431, cubic=True) * (repeat, repeat, repeat)
    atoms.positions += np.random.default_rng(seed).normal(scale=amplitude, size=atoms.positions.shape)
    return atoms


def copper_frames(n):
    atoms = bulk("Cu", "fcc", a=3.6, cubic=True)
    frames = []
    for seed in range(n):
        frame = atoms.copy()
        frame.positions += np.random.default_rng(seed).normal(scale=0.05, size=frame.positions.shape)
        frames.append(frame)
    return frames


def heed_ctrl_c(test):
    """For one test: a shell that starts the tests in the background has SIGINT ignored."""
    test.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))


@contextlib.contextmanager
def quiet():
    """Our warnings and prints, which a test is not about, kept out of its log; gives what was printed."""
    out = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(out):
        warnings.simplefilter("ignore", MlffWarning)
        yield out
