#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Labelled structures in which two atoms are nearer than where the teacher can be trusted.

Usage: nearer_pairs.py TEACHER FRAMES.extxyz OUT.extxyz [--pressed 0.6] [--closest 0.2] [--copies 2] [--seed 1] [--device cpu]

Below about 0.6 of the sum of two covalent radii the energy of ANI-2x falls again, and a student without data there diverges. Of each frame two
atoms, bonded or with a common neighbor, are pressed to that distance r_c and labelled by TEACHER. Nearer, the energy is defined as

    E(x) = E_teacher(x with the pair at r_c, the second atom moved along their line) + V(r) - V(r_c)

with the student's repulsion of nuclei V (src/atoms/zbl.h, onset 0.7), so that what the student has to learn does not change with r. Its exact
forces label --copies structures of each, with r between --closest and r_c; they have no energy, whose squared error would outweigh all others.
Left out are structures in which another pair is nearer than r_c, those where TEACHER has a force component above 60 eV/Å, and nearer ones whose
forces have a root mean square above 80 eV/Å: `mlff train` takes 100 times that of the median structure for a mistake. Cells are orthorhombic."""
import argparse
import json

import numpy as np
from ase.data import covalent_radii
from ase.io import iread

from mlff_distiller import Evaluator

ATOMS_A_CALL = 15000
ONSET = 0.7  # of the student's repulsion
NEAR = 1.9  # of the sum of covalent radii: bonded atoms, and most of those with a common neighbor
SHAKE = 0.03  # Å
LARGEST_FORCE, LARGEST_MEAN_SQUARE = 60.0, 80.0**2  # eV/Å, (eV/Å)²
COULOMB, SCREENING = 14.3996454784, 0.8854 * 0.529177210903
UNIVERSAL = (0.18175, 3.19980), (0.50986, 0.94229), (0.28022, 0.40290), (0.02817, 0.20162)


def repulsion(z1, z2, end, r):
    """V and dV/dr, eV and eV/Å."""
    a = SCREENING / (z1**0.23 + z2**0.23)
    terms = [(weight * np.exp(-rate * r / a), rate / a) for weight, rate in UNIVERSAL]
    charge, t = COULOMB * z1 * z2 / r, r / end
    value = charge * sum(term for term, _ in terms)
    slope = -value / r - charge * sum(term * rate for term, rate in terms)
    switch, switch_slope = (1 - t) ** 3 * (1 + 3 * t + 6 * t * t), -30 * t * t * (1 - t) ** 2 / end
    return value * switch, slope * switch + value * switch_slope


class Structure:
    """Atoms whose distances are those of nearest images; `lengths` are infinite where nothing repeats."""

    def __init__(self, numbers, positions, lengths):
        self.numbers, self.positions, self.lengths = numbers, positions, lengths
        self.radii = covalent_radii[numbers]

    def line(self, i, j):
        vector = self.positions[j] - self.positions[i]
        return vector - np.nan_to_num(self.lengths * np.round(vector / self.lengths))

    def ratios(self):
        """[n][n] distances over sums of covalent radii; the diagonal is infinite."""
        vectors = self.positions[:, None] - self.positions[None]
        vectors -= np.nan_to_num(self.lengths * np.round(vectors / self.lengths))
        ratios = np.linalg.norm(vectors, axis=2) / (self.radii[:, None] + self.radii[None])
        np.fill_diagonal(ratios, np.inf)
        return ratios

    def with_pair_at(self, i, j, distance):
        """Atom j moved along the line of both."""
        line, positions = self.line(i, j), self.positions.copy()
        positions[j] = positions[i] + line * (distance / np.linalg.norm(line))
        return Structure(self.numbers, positions, self.lengths)

    def is_alone(self, i, j, least):
        """Is no other pair nearer than `least`?"""
        ratios = self.ratios()
        ratios[i, j] = ratios[j, i] = np.inf
        return ratios.min() >= least


def pressed(frame, ratio, draw):
    """(structure, i, j, r_c) of one pair, or None where another pair would be too near."""
    lengths = np.where(frame.pbc, frame.cell.lengths(), np.inf)
    structure = Structure(frame.numbers, frame.positions + SHAKE * draw.normal(size=frame.positions.shape), lengths)
    pairs = np.argwhere(structure.ratios() < NEAR)
    if len(pairs) == 0:
        return None
    i, j = pairs[draw.integers(len(pairs))]
    r_c = ratio * structure.radii[[i, j]].sum()
    made = structure.with_pair_at(i, j, r_c)
    return (made, i, j, r_c) if made.is_alone(i, j, ratio) else None


def nearer(structure, forces, i, j, r_c, r):
    """The structure with the pair at r, and the forces there: those with the pair at r_c, through the map that moves atom j there."""
    line = structure.line(i, j)
    u = line / np.linalg.norm(line)
    z1, z2 = structure.numbers[[i, j]]
    push = -repulsion(z1, z2, ONSET * structure.radii[[i, j]].sum(), r)[1] * u
    across = (r_c / r) * (forces[j] - u * (u @ forces[j]))  # d(x_j at r_c)/d(x_j) = r_c/r (1 - u uT)
    made = forces.copy()
    made[i] = forces[i] + forces[j] - across - push
    made[j] = across + push
    return structure.with_pair_at(i, j, r), made


def text(frame, positions, forces, energy, group):
    head = [f"group={group}", f'pbc="{" ".join("FT"[int(p)] for p in frame.pbc)}"']
    if energy is not None:
        head.insert(0, f"energy={energy:.7f}")
    if frame.pbc.any():
        head.insert(0, f'Lattice="{" ".join(f"{x:.6f}" for x in frame.cell[:].ravel())}"')
    rows = ["%s %.5f %.5f %.5f %.5f %.5f %.5f" % (symbol, *x, *f)
            for symbol, x, f in zip(frame.get_chemical_symbols(), positions.tolist(), forces.tolist())]
    return "\n".join([str(len(rows)), f"Properties=species:S:1:pos:R:3:forces:R:3 {' '.join(head)}", *rows]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("teacher", "frames", "output"):
        parser.add_argument(name)
    parser.add_argument("--pressed", type=float, default=0.6)
    parser.add_argument("--closest", type=float, default=0.2)
    parser.add_argument("--copies", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    draw, teacher = np.random.default_rng(options.seed), Evaluator(options.teacher, device=options.device)
    frames = list(iread(options.frames, index=":"))
    found = [(frame, made) for frame in frames for made in [pressed(frame, options.pressed, draw)] if made]
    counts, n_atoms, begin = {"frames": len(frames), "pressed": 0, "nearer": 0}, np.array([len(frame) for frame, _ in found]), 0
    with open(options.output, "w") as file:
        while begin < len(found):
            end = begin + max(1, int((np.cumsum(n_atoms[begin:]) <= ATOMS_A_CALL).sum()))
            some, first = found[begin:end], np.cumsum(np.r_[0, n_atoms[begin:end]]).astype(np.int32)
            out = teacher.compute(np.concatenate([frame.numbers for frame, _ in some]), np.concatenate([made[0].positions for _, made in some]),
                                  cells=np.array([frame.cell[:] for frame, _ in some]), periodic=np.array([frame.pbc for frame, _ in some]), first_atom=first)
            energies, all_forces = np.asarray(out["energies"]), np.asarray(out["forces"])
            for k, (frame, (structure, i, j, r_c)) in enumerate(some):
                forces, group = all_forces[first[k]:first[k + 1]], f"pair{begin + k}"
                if not abs(forces).max() <= LARGEST_FORCE:
                    continue
                counts["pressed"] += 1
                file.write(text(frame, structure.positions, forces, energies[k], group))
                for _ in range(options.copies):
                    near, forces_near = nearer(structure, forces, i, j, r_c, draw.uniform(options.closest / options.pressed, 1) * r_c)
                    if (forces_near**2).mean() <= LARGEST_MEAN_SQUARE and near.is_alone(i, j, options.pressed):
                        counts["nearer"] += 1
                        file.write(text(frame, near.positions, forces_near, None, group))
            begin = end
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
