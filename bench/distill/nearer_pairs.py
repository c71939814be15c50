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
forces have a root mean square above 80 eV/Å: `mlff train` takes 100 times that of the median structure for a mistake."""
import argparse
import json

import numpy as np
from ase.calculators.singlepoint import SinglePointCalculator
from ase.data import covalent_radii
from ase.io import iread, write
from batches import computed

from mlff_distiller import Evaluator

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


def ratios(frame):
    """[n][n] distances over sums of covalent radii; the diagonal is infinite."""
    radii = covalent_radii[frame.numbers]
    found = frame.get_all_distances(mic=True) / (radii[:, None] + radii[None])
    np.fill_diagonal(found, np.inf)
    return found


def with_pair_at(frame, i, j, distance):
    """A copy with atom j moved along the line of both."""
    made = frame.copy()
    made.set_distance(i, j, distance, fix=0, mic=True)
    return made


def is_alone(frame, i, j, least):
    """Is no other pair nearer than `least`?"""
    found = ratios(frame)
    found[i, j] = found[j, i] = np.inf
    return found.min() >= least


def pressed(frame, ratio, draw):
    """(structure, i, j, r_c) of one pair, or None where another pair would be too near."""
    frame = frame.copy()
    frame.positions += SHAKE * draw.normal(size=frame.positions.shape)
    pairs = np.argwhere(ratios(frame) < NEAR)
    if len(pairs) == 0:
        return None
    i, j = pairs[draw.integers(len(pairs))]
    r_c = ratio * covalent_radii[frame.numbers[[i, j]]].sum()
    made = with_pair_at(frame, i, j, r_c)
    return (made, i, j, r_c) if is_alone(made, i, j, ratio) else None


def nearer(frame, forces, i, j, r_c, r):
    """The structure with the pair at r, and the forces there: those with the pair at r_c, through the map that moves atom j there."""
    u = frame.get_distance(i, j, mic=True, vector=True) / r_c
    z1, z2 = frame.numbers[[i, j]]
    push = -repulsion(z1, z2, ONSET * covalent_radii[[z1, z2]].sum(), r)[1] * u
    across = (r_c / r) * (forces[j] - u * (u @ forces[j]))  # d(x_j at r_c)/d(x_j) = r_c/r (1 - u uT)
    made = forces.copy()
    made[i] = forces[i] + forces[j] - across - push
    made[j] = across + push
    return with_pair_at(frame, i, j, r), made


def labelled(frame, group, **label):
    frame.calc, frame.info = SinglePointCalculator(frame, **label), {"group": group}
    return frame


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
    found = [made for made in (pressed(frame, options.pressed, draw) for frame in frames) if made]
    n_pressed, made = 0, []
    for k, ((frame, i, j, r_c), (energy, forces)) in enumerate(zip(found, computed(teacher, [one[0] for one in found]))):
        if not abs(forces).max() <= LARGEST_FORCE:
            continue
        n_pressed += 1
        made.append(labelled(frame, f"pair{k}", energy=energy, forces=forces))
        for _ in range(options.copies):
            near, forces_near = nearer(frame, forces, i, j, r_c, draw.uniform(options.closest / options.pressed, 1) * r_c)
            if (forces_near**2).mean() <= LARGEST_MEAN_SQUARE and is_alone(near, i, j, options.pressed):
                made.append(labelled(near, f"pair{k}", forces=forces_near))
    write(options.output, made, format="extxyz")
    print(json.dumps({"frames": len(frames), "pressed": n_pressed, "nearer": len(made) - n_pressed}))


if __name__ == "__main__":
    main()
