# SPDX-License-Identifier: MIT
"""Energies and forces of many structures by one model (NumPy, ASE)."""
import numpy as np

ATOMS_A_CALL = 15000


def computed(evaluator, frames):
    """(energy, forces [n_atoms][3]) of each frame; eV, eV/Å."""
    end = np.cumsum([len(frame) for frame in frames])
    for some in np.split(np.arange(len(frames)), np.flatnonzero(np.diff(end // ATOMS_A_CALL)) + 1):
        batch = [frames[k] for k in some]
        first = np.cumsum([0] + [len(frame) for frame in batch]).astype(np.int32)
        numbers, positions = (np.concatenate([getattr(frame, name) for frame in batch]) for name in ("numbers", "positions"))
        cells, periodic = (np.array([getattr(frame, name)[:] for frame in batch]) for name in ("cell", "pbc"))
        out = evaluator.compute(numbers, positions, cells=cells, periodic=periodic, first_atom=first)
        yield from zip(np.asarray(out["energies"]).tolist(), np.split(np.asarray(out["forces"]), first[1:-1]))
