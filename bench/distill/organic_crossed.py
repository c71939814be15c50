#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Labelled structures of molecules crossed from others, as many as fit in a time.

Usage: organic_crossed.py TEACHER SAMPLER STUDENT BASES.npz OUT SECONDS [--moved 0.4] [--changed 0] [--stripped 0] [--left-out 0] [--seed 1]
    [--device cuda]

Two molecules of organic_bases.py, the part --changed of them of its changed ones, are cut at an acyclic single bond each, and a half of one is joined
to a half of the other by a new bond, turned until no atoms meet; three in ten are crossed once more. 12 % stay whole and 7 % are pairs of whole ones,
1.7 to 3.2 Å apart. The part --left-out of those with F, S or Cl is not used. The part --stripped then lacks one or two hydrogens. Sizes and bonds to
hydrogen vary by about 1 %, as between force fields; molecules with atoms nearer than 0.7 of their covalent distance are left out. Each molecule is
labelled by TEACHER where it stands. The part --moved of them also descends twelve steps by SAMPLER (an earlier student) and gives one frame displaced
by 0.01 to 0.05 Å and two of Langevin dynamics, after 40 and 80 fs, 30 to 800 K. Frames with a force component above 20 eV/Å are left out, and those
to which STUDENT, which the training begins with, gives one above 40 eV/Å: where it diverges, no step of the training is finite. Geometry is computed
by processes, forces on the device.
Writes OUT.train.extxyz and OUT.valid.extxyz; molecules whose number is 249 modulo 250 validate."""
import argparse
import concurrent.futures
import json
import time

import numpy as np
from ase.data import atomic_masses, chemical_symbols

from mlff_distiller import Evaluator

STEP = 0.004  # Å, of the positions in BASES.npz
RADII = {1: 0.31, 6: 0.76, 7: 0.71, 8: 0.66, 9: 0.57, 16: 1.03, 17: 0.99}
NEAREST = np.array([2.75, 2.2, 1.85])  # Å, of atoms of two halves, by how many of both are hydrogen
RARER = 9, 16, 17  # atomic numbers, see --left-out
FEWEST_ATOMS, MOST_ATOMS, MOST_ATOMS_OF_PAIR = 5, 110, 70
HOTTEST_FORCE, LARGEST_FORCE_MOVED = 20.0, 40.0  # eV/Å
ACCELERATION, BOLTZMANN = 9.6485332e-3, 8.617333e-5  # Å/fs² of eV/Å/amu; eV/K
NEAREST_RATIO = 0.7  # of the sum of covalent radii
MOLECULES_AT_ONCE = 1000

bases = []  # (numbers, positions, bonds, cuts); read before the processes are made
chances = np.zeros(0)  # of each base and those before it to be drawn


def load(path, share_changed):
    data = np.load(path)
    first = {name: np.cumsum(np.r_[0, data[f"n_{name}"].astype(int)]) for name in ("numbers", "bonds", "cuts")}
    array = {name: data[name] for name in ("numbers", "positions", "bonds", "cuts")}

    def part(name, k, counted):
        return array[name][first[counted][k]:first[counted][k + 1]].astype(float if name == "positions" else int)

    for k in range(len(data["n_numbers"])):
        bases.append((part("numbers", k, "numbers"), STEP * part("positions", k, "numbers"), part("bonds", k, "bonds"), part("cuts", k, "cuts")))
    global chances
    changed = data["changed"]
    weights = np.where(changed, share_changed / max(1, changed.sum()), (1 - share_changed) / max(1, (~changed).sum()))
    chances = np.cumsum(weights)
    chances /= chances[-1]  # the last one is 1: every number drawn has a base


def bonds_between(n_atoms, bonds, begin, without):
    """[n_atoms] the number of bonds from atom `begin` to each, not along the bond `without`; -1 where there is no way."""
    neighbors, counts, front = [[] for _ in range(n_atoms)], np.full(n_atoms, -1), [begin]
    for i, j in bonds.tolist():
        if {i, j} != without:
            neighbors[i].append(j)
            neighbors[j].append(i)
    counts[begin] = 0
    while front:
        front, before = [], front
        for i in before:
            for j in neighbors[i]:
                if counts[j] < 0:
                    counts[j] = counts[i] + 1
                    front.append(j)
    return counts


def half(molecule, draw):
    """One side of a random cut: numbers, positions from the cut's atom, bonds, cuts, that atom, direction of the cut, bonds from that atom."""
    numbers, positions, bonds, cuts = molecule
    if len(cuts) == 0:
        return None
    i, j = draw.permutation(cuts[draw.integers(len(cuts))])
    counts = bonds_between(len(numbers), bonds, i, {i, j})
    keep, new = np.flatnonzero(counts >= 0), np.full(len(numbers), -1)
    new[keep] = np.arange(len(keep))
    inside = [new[pairs][(new[pairs] >= 0).all(1)] for pairs in (bonds, cuts)]
    direction = positions[j] - positions[i]
    return numbers[keep], positions[keep] - positions[i], *inside, new[i], direction / np.linalg.norm(direction), counts[keep]


def turn_about(axis, angle):
    """The rotation about a unit vector (Rodrigues)."""
    cross = np.cross(np.eye(3), axis)
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def turn_onto(a, b):
    """A rotation that turns the unit vector a onto b."""
    axis = np.cross(a, b)
    angle = np.arctan2(np.linalg.norm(axis), a @ b)
    if np.linalg.norm(axis) < 1e-6:  # along each other: any axis across
        axis = np.cross(a, np.eye(3)[np.argmin(abs(a))])
    return turn_about(axis / np.linalg.norm(axis), angle)


def crossed(a, b, draw):
    """A half of each of two molecules with a bond between, or None where that does not fit."""
    one, other = half(a, draw), half(b, draw)
    if one is None or other is None or not FEWEST_ATOMS <= len(one[0]) + len(other[0]) <= MOST_ATOMS:
        return None
    numbers, positions, bonds, cuts, i, direction, counts = one
    numbers2, positions2, bonds2, cuts2, k, direction2, counts2 = other
    n = len(numbers)
    if numbers[i] != 6 and numbers2[k] != 6 and draw.random() < 0.85:
        return None
    length = (RADII[numbers[i]] + RADII[numbers2[k]]) * draw.normal(0.99, 0.01)
    ready = positions2 @ turn_onto(direction2, -direction).T
    hydrogens = (numbers[:, None] == 1).astype(int) + (numbers2[None] == 1)
    nearest = np.where(counts[:, None] + counts2[None] >= 3, NEAREST[hydrogens], 0)  # beyond those of a torsion angle
    for _ in range(8):
        placed = ready @ turn_about(direction, draw.uniform(0, 2 * np.pi)).T + length * direction
        if (np.linalg.norm(positions[:, None] - placed[None], axis=2) >= nearest).all():
            joint = [[i, k + n]]
            return (np.r_[numbers, numbers2], np.r_[positions, placed], np.r_[bonds, bonds2 + n, joint],
                    np.r_[cuts, cuts2 + n, joint].astype(int))
    return None


def paired(a, b, draw):
    """Two whole molecules beside each other."""
    if len(a[0]) + len(b[0]) > MOST_ATOMS_OF_PAIR:
        return None
    turned = b[1] @ np.linalg.qr(draw.normal(size=(3, 3)))[0].T
    direction, gap = draw.normal(size=3), draw.uniform(1.7, 3.2)
    direction /= np.linalg.norm(direction)
    for k in range(1, 200):
        placed = turned + 0.1 * k * direction
        if np.linalg.norm(a[1][:, None] - placed[None], axis=2).min() >= gap:
            return np.r_[a[0], b[0]], np.r_[a[1], placed], np.r_[a[2], b[2] + len(a[0])], np.zeros((0, 2), int)
    return None


def varied(numbers, positions, bonds, draw):
    """Positions as another force field might have them."""
    scaled = positions * draw.normal(1, 0.006)
    made, stretch = scaled.copy(), draw.normal(1.003, 0.012)
    for i, j in bonds.tolist():
        if numbers[i] == 1:
            i, j = j, i
        if numbers[j] == 1 and numbers[i] != 1:
            made[j] = scaled[i] + stretch * (scaled[j] - scaled[i])
    return made + draw.choice([0, 0.004, 0.01, 0.02]) * draw.normal(size=made.shape)


def stripped(numbers, positions, bonds, draw):
    """Without one or two hydrogens; bonds of those that stay."""
    hydrogens = np.flatnonzero(numbers == 1)
    keep = np.ones(len(numbers), bool)
    keep[draw.permutation(hydrogens)[:draw.integers(1, 3)]] = False
    new = np.cumsum(keep) - 1
    return numbers[keep], positions[keep], new[bonds[keep[bonds].all(1)]]


def touches(numbers, positions):
    """Are two atoms within the range of the student's core repulsion?"""
    radii = np.array([RADII[z] for z in numbers.tolist()])
    distances = np.linalg.norm(positions[:, None] - positions[None], axis=2) / (radii[:, None] + radii[None])
    return (distances[np.triu_indices(len(numbers), 1)] < NEAREST_RATIO).any()


def assembled(seed, share_stripped, left_out):
    """(numbers, positions) of MOLECULES_AT_ONCE molecules."""
    draw, made = np.random.default_rng(seed), []
    while len(made) < MOLECULES_AT_ONCE:
        kind, (a, b, c) = draw.random(), (bases[k] for k in np.searchsorted(chances, draw.random(3)))
        if kind < 0.12:
            molecule = a
        elif kind < 0.19:
            molecule = paired(a, b, draw)
        else:
            molecule = crossed(a, b, draw)
            if molecule is not None and draw.random() < 0.3:
                molecule = crossed(molecule, c, draw)
        if molecule is not None and not (np.isin(molecule[0], RARER).any() and draw.random() < left_out):
            numbers, positions, bonds = stripped(*molecule[:3], draw) if draw.random() < share_stripped else molecule[:3]
            placed = varied(numbers, positions, bonds, draw)
            if not touches(numbers, placed):
                made.append((numbers, placed))
    return made


def moved(molecules, sampler, draw):
    """(index of its molecule, positions) of three frames of each molecule that stays in one piece."""
    first = np.cumsum(np.r_[0, [len(numbers) for numbers, _ in molecules]]).astype(np.int32)
    numbers, positions = (np.concatenate(parts) for parts in zip(*molecules))
    owner, mass = np.repeat(np.arange(len(molecules)), np.diff(first)), atomic_masses[numbers][:, None]
    broken = np.zeros(len(molecules), bool)

    def forces_at(positions):
        forces = np.nan_to_num(np.asarray(sampler.compute(numbers, positions, first_atom=first)["forces"]), nan=np.inf)
        broken[owner[abs(forces).max(1) > LARGEST_FORCE_MOVED]] = True
        return np.clip(forces, -LARGEST_FORCE_MOVED, LARGEST_FORCE_MOVED)

    for _ in range(12):
        positions = positions + np.clip(0.012 * forces_at(positions), -0.06, 0.06)
    broken[:] = False
    shots = [positions + draw.uniform(0.01, 0.05, len(molecules))[owner, None] * draw.normal(size=positions.shape)]
    temperature = draw.uniform(np.sqrt(30), np.sqrt(800), len(molecules))[owner, None] ** 2
    thermal, keep = np.sqrt(BOLTZMANN * temperature * ACCELERATION / mass), np.exp(-0.03)  # Å/fs; of a velocity after 1 fs
    velocities, forces = thermal * draw.normal(size=positions.shape), forces_at(positions)
    for step in range(1, 81):
        velocities = velocities + 0.5 * ACCELERATION * forces / mass
        positions = positions + 0.5 * velocities
        velocities = keep * velocities + np.sqrt(1 - keep * keep) * thermal * draw.normal(size=positions.shape)
        positions = positions + 0.5 * velocities
        forces = forces_at(positions)
        velocities = velocities + 0.5 * ACCELERATION * forces / mass
        if step in (40, 80):
            shots.append(positions.copy())
    return [(k, shot[first[k]:first[k + 1]]) for shot in shots for k in np.flatnonzero(~broken)]


def labelled(frames, teacher, student):
    """(group, numbers, positions, energy, forces) of the frames (group, numbers, positions) that are not too hot."""
    made = []
    for begin in range(0, len(frames), MOLECULES_AT_ONCE):
        some = frames[begin:begin + MOLECULES_AT_ONCE]
        first = np.cumsum(np.r_[0, [len(numbers) for _, numbers, _ in some]]).astype(np.int32)
        batch = np.concatenate([one[1] for one in some]), np.concatenate([one[2] for one in some])
        out, by_student = (model.compute(*batch, first_atom=first) for model in (teacher, student))
        energies, forces = np.asarray(out["energies"]), np.asarray(out["forces"])
        hottest, diverging = (np.maximum.reduceat(abs(np.nan_to_num(found, nan=np.inf)).max(1), first[:-1])
                              for found in (forces, np.asarray(by_student["forces"])))
        made += [(*frame, energies[k], forces[first[k]:first[k + 1]]) for k, frame in enumerate(some)
                 if hottest[k] <= HOTTEST_FORCE and diverging[k] <= LARGEST_FORCE_MOVED]
    return made


def texts(frames):
    """Extended XYZ: energies in eV, forces in eV/Å."""
    lines = []
    for group, numbers, positions, energy, forces in frames:
        lines.append(f'{len(numbers)}\nProperties=species:S:1:pos:R:3:forces:R:3 energy={energy:.7f} group={group} pbc="F F F"')
        lines += ["%s %.5f %.5f %.5f %.5f %.5f %.5f" % (chemical_symbols[z], *x, *f)
                  for z, x, f in zip(numbers.tolist(), positions.tolist(), forces.tolist())]
    return "\n".join(lines) + "\n" if lines else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("teacher", "sampler", "student", "bases", "output"):
        parser.add_argument(name)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--moved", type=float, default=0.4)
    parser.add_argument("--changed", type=float, default=0)
    parser.add_argument("--stripped", type=float, default=0)
    parser.add_argument("--left-out", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=7)
    options = parser.parse_args()
    started, draw = time.time(), np.random.default_rng((options.seed, 999))
    load(options.bases, options.changed)
    with concurrent.futures.ProcessPoolExecutor(options.processes) as pool:
        waiting = [pool.submit(assembled, (options.seed, k), options.stripped, options.left_out) for k in range(options.processes + 2)]
        n_asked, n_molecules, n_frames, pending = len(waiting), 0, 0, []
        models = options.teacher, options.sampler, options.student
        teacher, sampler, student = (Evaluator(model, device=options.device, n_threads=1) for model in models)
        files = [open(f"{options.output}.{kind}.extxyz", "w") for kind in ("train", "valid")]
        while time.time() - started < options.seconds:
            molecules = waiting.pop(0).result()
            waiting.append(pool.submit(assembled, (options.seed, n_asked), options.stripped, options.left_out))
            n_asked += 1
            frames = [(n_molecules + k, *one) for k, one in enumerate(molecules)]
            part = molecules[:int(options.moved * len(molecules))]
            frames += [(n_molecules + k, part[k][0], positions) for k, positions in (moved(part, sampler, draw) if part else [])]
            made = labelled(frames, teacher, student)
            made = [made[k] for k in draw.permutation(len(made))]
            n_molecules, n_frames = n_molecules + len(molecules), n_frames + len(made)
            for valid, file in enumerate(files):
                pending.append((file, pool.submit(texts, [one for one in made if (one[0] % 250 == 249) == valid])))
            while len(pending) > 12:
                file, text = pending.pop(0)
                file.write(text.result())
        for task in waiting:
            task.cancel()
        for file, text in pending:
            file.write(text.result())
        for file in files:
            file.close()
    print(json.dumps({"molecules": n_molecules, "frames": n_frames, "seconds": round(time.time() - started, 1)}))


if __name__ == "__main__":
    main()
