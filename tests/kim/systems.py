# SPDX-License-Identifier: MIT
"""Systems for LAMMPS and for mlff from one set of numbers, and their results compared.

systems.py make silicon|triclinic|repeated|slab|sheet|water|molecule N    system.extxyz, system.data, system.in (box and species for LAMMPS)
systems.py drift STEPS TOLERANCE                      total energy of log.lammps (nve.in), eV/atom
systems.py compare TOLERANCE KEY                       forces.dump of LAMMPS against expected.extxyz of mlff eval; virials of atoms
                                                      against the virial, and against those of an earlier run with this KEY
systems.py displacements N                            displacements.in: N atoms moved along each axis, by 1e-4 Angstrom both ways
systems.py close DISTANCE                             system.data with atoms 1 and 2 so far from each other, Angstrom, in a cube's
                                                      middle, where domains of several ranks meet
systems.py trained MODEL KELVIN                       says in a model file up to which temperature it was trained
systems.py scale FILE TENSOR FACTOR                   a tensor of a model file (safetensors, float32) times FACTOR
systems.py derivatives TOLERANCE                      energies.txt of displacements.in against forces.dump
systems.py structures                                 events.dump of LAMMPS as structures, events.extxyz
systems.py events TOLERANCE                           events.dump against expected.extxyz of mlff eval
"""
import itertools
import json
import math
import os
import random
import struct
import sys

MASSES = {"H": 1.008, "O": 15.999, "Si": 28.085}


def silicon(n, tilt):
    """Diamond silicon, n cubic cells along each axis, atoms displaced by up to 0.08 Angstrom."""
    numbers = random.Random(1)
    basis = [(0, 0, 0), (0, 2, 2), (2, 0, 2), (2, 2, 0), (1, 1, 1), (1, 3, 3), (3, 1, 3), (3, 3, 1)]
    length = 5.431 * n
    cell = [[length, 0, 0], [tilt[0] * length, length, 0], [tilt[1] * length, tilt[2] * length, length]]
    atoms = []
    for i in range(n):
        for j in range(n):
            for k in range(n):
                for b in basis:
                    fraction = [(i + b[0] / 4) / n, (j + b[1] / 4) / n, (k + b[2] / 4) / n]
                    ideal = [sum(fraction[a] * cell[a][c] for a in range(3)) for c in range(3)]
                    atoms.append(("Si", [x + 0.2 + numbers.uniform(-0.08, 0.08) for x in ideal]))
    return cell, atoms


def repeated(n):
    """n^3 primitive cells of diamond silicon, whose vectors are 60 degrees apart, each with the same two atoms off their sites: more lattices
    than the box's explain its images."""
    edge = 5.431 / math.sqrt(2)
    cell = [[edge, 0, 0], [edge / 2, edge * math.sqrt(3) / 2, 0], [edge / 2, edge * math.sqrt(3) / 6, edge * math.sqrt(2 / 3)]]
    atoms = []
    for at in itertools.product(range(n), repeat=3):
        for fraction in ((0, 0, 0), (0.28, 0.23, 0.24)):
            atoms.append(("Si", [0.1 + sum((at[a] + fraction[a]) * cell[a][c] for a in range(3)) for c in range(3)]))
    return [[n * x for x in row] for row in cell], atoms


def water(n):
    """n^3 molecules on a grid of 3.2 Angstrom, turned at random; n = 1: one molecule in the middle of a large box."""
    numbers = random.Random(2)
    atoms = []
    for i in range(n):
        for j in range(n):
            for k in range(n):
                center = [3.2 * x + 1.5 + numbers.uniform(-0.1, 0.1) for x in (i, j, k)]
                a, b = numbers.uniform(0, 2 * math.pi), numbers.uniform(0, math.pi)
                axes = ([math.cos(a), math.sin(a), 0], [-math.sin(a) * math.cos(b), math.cos(a) * math.cos(b), math.sin(b)])
                atoms.append(("O", center))
                for side in (1, -1):
                    atoms.append(("H", [c + side * 0.76 * u + 0.58 * v for c, u, v in zip(center, *axes)]))
    length = 3.2 * n if n > 1 else 40.0
    return [[length, 0, 0], [0, length, 0], [0, 0, length]], atoms


def sheet(n):
    """n^2 atoms of silicon in a plane, for LAMMPS in two dimensions."""
    numbers = random.Random(4)
    cell = [[2.6 * n, 0, 0], [0, 2.6 * n, 0], [0, 0, 0.2]]
    return cell, [("Si", [2.6 * i + 0.5 + numbers.uniform(-0.1, 0.1), 2.6 * j + 0.5 + numbers.uniform(-0.1, 0.1), 0.0]) for i in range(n) for j in range(n)]


def make(kind, n):
    periodic = [kind != "molecule"] * 2 + [kind not in ("molecule", "slab", "sheet")]
    if kind in ("silicon", "triclinic", "repeated", "slab"):
        cell, atoms = repeated(n) if kind == "repeated" else silicon(n, (0.1, 0.2, 0.15) if kind == "triclinic" else (0, 0, 0))
        if kind == "slab":
            cell[2][2] += 1.0  # vacuum, and no images across it
    elif kind == "sheet":
        cell, atoms = sheet(n)
    else:
        cell, atoms = water(n)
    if kind == "molecule":
        atoms = [(s, [x + 18 for x in p]) for s, p in atoms]
    species = sorted({s for s, _ in atoms})
    lattice = " ".join(repr(float(x)) for row in cell for x in row)
    with open("system.extxyz", "w") as file:
        file.write(f'{len(atoms)}\nLattice="{lattice}" Properties=species:S:1:pos:R:3 pbc="{" ".join("T" if p else "F" for p in periodic)}"\n')
        for s, p in atoms:
            file.write(f"{s} {p[0]!r} {p[1]!r} {p[2]!r}\n")
    with open("system.data", "w") as file:
        file.write(f"{kind}\n\n{len(atoms)} atoms\n{len(species)} atom types\n")
        for c, axis in enumerate("xyz"):
            below = -0.1 if kind == "sheet" and c == 2 else 0.0
            file.write(f"{below!r} {float(cell[c][c]) + below!r} {axis}lo {axis}hi\n")
        if kind in ("triclinic", "repeated"):
            file.write(f"{cell[1][0]!r} {cell[2][0]!r} {cell[2][1]!r} xy xz yz\n")
        file.write("\nMasses\n\n" + "".join(f"{k + 1} {MASSES[s]}\n" for k, s in enumerate(species)))
        file.write("\nAtoms # atomic\n\n")
        for i, (s, p) in enumerate(atoms):
            file.write(f"{i + 1} {species.index(s) + 1} {p[0]!r} {p[1]!r} {p[2]!r}\n")
    other = {"slab": "s", "sheet": "p"}.get(kind, "f")  # in two dimensions LAMMPS wants z periodic
    with open("system.in", "w") as file:
        file.write("dimension 2\n" if kind == "sheet" else "")
        file.write(f"boundary {' '.join('p' if p else other for p in periodic)}\nvariable species string \"{' '.join(species)}\"\n")


def determinant(cell):
    (a, b, c), (d, e, f), (g, h, i) = cell
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


def virial_errors(rows, header, stress, key):
    """Errors in eV of the sum of the atoms' virials, and of the largest component against an earlier run on other ranks."""
    if len(rows[0]) == 5:  # a run without them
        return 0.0, 0.0, 1.0
    virials = [[x / 1.6021765e6 for x in row[5:11]] for row in rows]
    total = 0.0
    if stress:
        cell = [float(x) for x in header.split('Lattice="')[1].split('"')[0].split()]
        volume = determinant([cell[0:3], cell[3:6], cell[6:9]])
        # LAMMPS: xx yy zz xy xz yz
        total = max(abs(sum(v[k] for v in virials) - volume * stress[at]) for k, at in enumerate((0, 4, 8, 1, 2, 5)))
    name = f"virials-{key}"
    if not os.path.exists(name):
        json.dump(virials, open(name, "w"))
    earlier = json.load(open(name))
    largest = max(abs(x) for v in virials for x in v)
    return total, max(abs(a - b) for u, v in zip(earlier, virials) for a, b in zip(u, v)), largest


def compare(tolerance, key):
    lines = open("expected.extxyz").read().split("\n")
    n = int(lines[0])
    energy = float(lines[1].split("energy=")[1].split()[0])
    forces = [[float(x) for x in line.split()[4:7]] for line in lines[2 : 2 + n]]
    rows = [[float(x) for x in line.split()] for line in open("forces.dump").read().split("\n")[9 : 9 + n]]
    total, *pressure = [float(x) for x in open("energy.txt").read().split()]
    energy_error = abs(sum(row[4] for row in rows) - energy) / n
    total_error = abs(total - energy) / n
    force_error = max(abs(a - b) for f, row in zip(forces, rows) for a, b in zip(f, row[1:4]))
    largest = max(abs(x) for f in forces for x in f)
    pressure_error, stress = 0.0, None
    if "stress=" in lines[1]:
        stress = [float(x) for x in lines[1].split('stress="')[1].split('"')[0].split()]
        # bar in one eV/A^3 as LAMMPS has it; the sign is the other way round.
        pressure_error = max(abs(p / 1.6021765e6 + stress[k]) for p, k in zip(pressure, (0, 4, 8, 5, 2, 1)))
    sum_error, rank_error, largest_virial = virial_errors(rows, lines[1], stress, key)
    print(f"|dE| {total_error:.1e} eV/atom, sum of atom energies {energy_error:.1e}, |dF| {force_error:.1e} of {largest:.2g} eV/A, |dP| {pressure_error:.1e} eV/A^3; "
          f"virials of atoms: sum {sum_error:.1e}, between ranks {rank_error:.1e}, of {largest_virial:.2g} eV")
    # 1e-11 for float64 in both: sums of at most some 10^4 terms in another order.
    good = max(energy_error, total_error, force_error, pressure_error) <= tolerance
    good = good and rank_error <= 10 * tolerance * max(1, largest_virial) and sum_error <= 10 * tolerance * n * max(1, largest_virial)
    if not (good and largest > 1e-3 and largest_virial > 1e-3 and len(rows) == n):
        sys.exit(1)


def scale(path, tensor, factor):
    with open(path, "rb") as file:
        content = bytearray(file.read())
    start = 8 + struct.unpack_from("<Q", content)[0]
    begin, end = json.loads(content[8:start])[tensor]["data_offsets"]
    numbers = struct.unpack_from(f"<{(end - begin) // 4}f", content, start + begin)
    struct.pack_into(f"<{len(numbers)}f", content, start + begin, *(factor * x for x in numbers))
    with open(path, "wb") as file:
        file.write(content)


STEP = 1e-4  # Angstrom, of the numerical derivatives


def displaced(n):
    """Atoms, by LAMMPS's ID, and axes that are displaced: n atoms spread over the system."""
    n_atoms = int(open("system.extxyz").readline())
    return [(1 + k * n_atoms // n, axis) for k in range(n) for axis in range(3)]


def displacements(n):
    with open("displacements.in", "w") as file:
        for atom, axis in displaced(n):
            file.write(f"group one id {atom}\n")
            for move, measured in ((STEP, True), (-2 * STEP, True), (STEP, False)):
                file.write(f"displace_atoms one move {' '.join(repr(move if c == axis else 0.0) for c in range(3))} units box\n")
                if measured:
                    file.write('run 0\nprint "$(pe:%.17g)" append energies.txt\n')
            file.write("group one delete\n")


def derivatives(tolerance):
    """Forces against central differences of the energies, in the order of displacements."""
    energies = [float(line) for line in open("energies.txt")]
    forces = [[float(x) for x in line.split()[1:4]] for line in open("forces.dump").read().split("\n")[9:] if line]
    moved = displaced(len(energies) // 6)
    worst = max(abs((energies[2 * k] - energies[2 * k + 1]) / (2 * STEP) + forces[atom - 1][axis]) for k, (atom, axis) in enumerate(moved))
    largest = max(abs(forces[atom - 1][axis]) for atom, axis in moved)
    print(f"|dE/dx + F| {worst:.1e} of {largest:.2g} eV/A")
    if not (len(energies) == 2 * len(moved) > 0 and largest > 1e-2 and worst <= tolerance * largest):
        sys.exit(1)


def dumped():
    """Of each step in events.dump: vectors of the box, axes that repeat, and rows of id x y z fx fy fz energy."""
    lines = open("events.dump").read().split("\n")
    at = 0
    while at < len(lines) and lines[at]:
        n, words = int(lines[at + 3]), lines[at + 4].split()
        bounds = [[float(x) for x in line.split()] for line in lines[at + 5 : at + 8]]
        xy, xz, yz = [row[2] if len(row) > 2 else 0.0 for row in bounds]
        outside = ((0, xy, xz, xy + xz), (0, yz), (0,))
        edges = [row[1] - row[0] - max(beyond) + min(beyond) for row, beyond in zip(bounds, outside)]
        rows = [[float(x) for x in line.split()] for line in lines[at + 9 : at + 9 + n]]
        yield [[edges[0], 0, 0], [xy, edges[1], 0], [xz, yz, edges[2]]], [word == "pp" for word in words[-3:]], rows
        at += 9 + n


def structures():
    with open("events.extxyz", "w") as file:
        for cell, periodic, rows in dumped():
            lattice = " ".join(repr(float(x)) for row in cell for x in row)
            file.write(f'{len(rows)}\nLattice="{lattice}" Properties=species:S:1:pos:R:3 pbc="{" ".join("T" if p else "F" for p in periodic)}"\n')
            file.writelines(f"Si {row[1]!r} {row[2]!r} {row[3]!r}\n" for row in rows)


def events(tolerance):
    lines = open("expected.extxyz").read().split("\n")
    at = n_frames = 0
    numbers, worst_energy, worst_force, largest = set(), 0.0, 0.0, 0.0
    for _, _, rows in dumped():
        n = int(lines[at])
        energy = float(lines[at + 1].split("energy=")[1].split()[0])
        forces = [[float(x) for x in line.split()[4:7]] for line in lines[at + 2 : at + 2 + n]]
        worst_energy = max(worst_energy, abs(sum(row[7] for row in rows) - energy) / n)
        worst_force = max(worst_force, max(abs(a - b) for f, row in zip(forces, rows) for a, b in zip(f, row[4:7])))
        largest = max(largest, max(abs(x) for f in forces for x in f))
        numbers.add(n)
        n_frames += n == len(rows)
        at += 2 + n
    print(f"{n_frames} steps of {min(numbers)} to {max(numbers)} atoms: |dE| {worst_energy:.1e} eV/atom, |dF| {worst_force:.1e} of {largest:.2g} eV/A")
    if not (n_frames > 50 and len(numbers) > 5 and 0.1 < largest < 100 and max(worst_energy, worst_force) <= tolerance):
        sys.exit(1)


def drift(steps, tolerance):
    """Largest deviation of the total energy from its first value in log.lammps; prints it and the last potential energy."""
    rows = [line.split() for line in open("log.lammps") if line.split() and line.split()[0].isdigit() and len(line.split()) == 3]
    n = int(open("system.extxyz").readline())
    energies = [float(row[1]) for row in rows]
    worst = max(abs(e - energies[0]) for e in energies) / n
    print(f"{worst:.2e} eV/atom over {rows[-1][0]} steps, potential energy {rows[-1][2]}")
    if not (int(rows[-1][0]) == steps and worst <= tolerance):
        sys.exit(1)


def close(distance):
    lines = open("system.data").read().split("\n")
    at = lines.index("Atoms # atomic") + 2
    middle = float(next(line for line in lines if line.endswith("xlo xhi")).split()[1]) / 2
    for i, side in ((0, -1), (1, 1)):
        x = middle + side * distance / math.sqrt(12)
        lines[at + i] = f"{i + 1} {lines[at + i].split()[1]} {x!r} {x!r} {x!r}"
    open("system.data", "w").write("\n".join(lines))


def trained(path, kelvin):
    content = open(path, "rb").read()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"]["training.highest_kelvin"] = kelvin
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(len(text).to_bytes(8, "little") + text + content[8 + length :])


if sys.argv[1] == "make":
    make(sys.argv[2], int(sys.argv[3]))
elif sys.argv[1] == "displacements":
    displacements(int(sys.argv[2]))
elif sys.argv[1] == "derivatives":
    derivatives(float(sys.argv[2]))
elif sys.argv[1] == "structures":
    structures()
elif sys.argv[1] == "events":
    events(float(sys.argv[2]))
elif sys.argv[1] == "close":
    close(float(sys.argv[2]))
elif sys.argv[1] == "trained":
    trained(sys.argv[2], sys.argv[3])
elif sys.argv[1] == "scale":
    scale(sys.argv[2], sys.argv[3], float(sys.argv[4]))
elif sys.argv[1] == "drift":
    drift(int(sys.argv[2]), float(sys.argv[3]))
else:
    compare(float(sys.argv[2]), sys.argv[3])
