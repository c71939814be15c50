#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Force-field geometries of known molecules of H, C, N, O, S, F, Cl, from which organic_crossed.py makes others.

Usage: organic_bases.py OUT.npz [--held-out FRAMES.extxyz] [--more SEEDS.extxyz ...]      (RDKit, ASE, NumPy)

The molecules are the two lists that RDKit brings along: Pains/test_data/wehi_mols.csv and NCI/first_5K.smi. Each is embedded once by ETKDG and
relaxed for 0 to 150 iterations by MMFF or UFF, so that its bonds are those of a force field and not of a minimum. Every 34th is left
for validation. Molecules with the atoms and bonds of one of --held-out (compared by five rounds of refined neighborhoods) are left out.
--more adds structures as they are, such as those of organic_seeds.py.
OUT.npz: of all molecules in turn, atomic numbers, positions in steps of 0.004 Å, bonds, and the acyclic single bonds between heavy atoms."""
import argparse
import csv
import pathlib
import random

import numpy as np
from ase.io import read
from rdkit import Chem, RDConfig, RDLogger
from rdkit.Chem import AllChem

STEP = 0.004  # Å
MOST_ATOMS = 120
SYMBOLS = {"C", "H", "N", "O", "S", "F", "Cl"}
RADII = {1: 0.31, 6: 0.76, 7: 0.71, 8: 0.66, 9: 0.57, 16: 1.05, 17: 1.02}
ITERATIONS = {"few": 10, "some": 40, "full": 150}


def known_smiles():
    """Canonical SMILES of both lists, each once, in an order that is always the same."""
    data = pathlib.Path(RDConfig.RDDataDir)
    with open(data / "Pains/test_data/wehi_mols.csv") as file:
        lines = [row[0] for row in csv.reader(file)]
    lines += [line.split()[0] for line in (data / "NCI/first_5K.smi").read_text().splitlines() if line.strip()]
    found = {}
    for molecule in filter(None, map(Chem.MolFromSmiles, lines)):
        for part in Chem.GetMolFrags(molecule, asMols=True):
            usual = all(a.GetSymbol() in SYMBOLS and not a.GetNumRadicalElectrons() for a in part.GetAtoms())
            if usual and part.GetNumHeavyAtoms() >= 3:
                found[Chem.MolToSmiles(part, isomericSmiles=False)] = None
    smiles = list(found)
    random.Random(1).shuffle(smiles)
    return smiles


def geometry(molecule, draw):
    """Positions, Å, or None where no conformer is found."""
    options = AllChem.ETKDGv3()
    options.randomSeed, options.maxIterations = draw.randrange(1 << 30), 5
    if AllChem.EmbedMolecule(molecule, options) != 0:
        return None
    how = draw.choice(["raw", "few", "some", "full", "uff"])
    if how == "uff" or (how != "raw" and not AllChem.MMFFHasAllMoleculeParams(molecule)):
        AllChem.UFFOptimizeMolecule(molecule, maxIters=100)
    elif how != "raw":
        AllChem.MMFFOptimizeMolecule(molecule, maxIters=ITERATIONS[how])
    positions = molecule.GetConformer().GetPositions()
    return positions if np.isfinite(positions).all() else None


def bonds_of(numbers, positions):
    """Pairs nearer than 1.25 times the sum of their covalent radii."""
    radii = np.array([RADII[int(z)] for z in numbers])
    distances = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    return np.argwhere(np.triu(distances < 1.25 * (radii[:, None] + radii[None]), 1)).tolist()


def identity(numbers, bonds):
    """Equal for molecules of the same atoms and bonds."""
    colors = [int(z) for z in numbers]
    neighbors = [[] for _ in colors]
    for i, j in bonds:
        neighbors[i].append(j)
        neighbors[j].append(i)
    for _ in range(5):
        colors = [hash((color, tuple(sorted(colors[j] for j in near)))) for color, near in zip(colors, neighbors)]
    return hash(tuple(sorted(colors)))


def known_molecules():
    """(numbers, positions, bonds, bonds to cut) of each molecule that trains."""
    cut = Chem.MolFromSmarts("[!#1]-!@[!#1]")
    for number, smiles in enumerate(known_smiles()):
        molecule, draw = Chem.AddHs(Chem.MolFromSmiles(smiles)), random.Random(number)
        if number % 34 == 33 or molecule.GetNumAtoms() > MOST_ATOMS:
            continue
        try:
            positions = geometry(molecule, draw)
        except (RuntimeError, ValueError):
            continue
        if positions is None:
            continue
        bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
        cuts = [pair for pair in molecule.GetSubstructMatches(cut)
                if molecule.GetBondBetweenAtoms(*pair).GetBondType() == Chem.BondType.SINGLE]
        yield [atom.GetAtomicNum() for atom in molecule.GetAtoms()], positions, bonds, cuts


def main():
    RDLogger.DisableLog("rdApp.*")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    parser.add_argument("--held-out")
    parser.add_argument("--more", nargs="*", default=[])
    options = parser.parse_args()
    held_out = {identity(atoms.numbers, bonds_of(atoms.numbers, atoms.positions))
                for atoms in (read(options.held_out, ":") if options.held_out else [])}
    molecules = list(known_molecules())
    for path in options.more:
        molecules += [(atoms.numbers, atoms.positions, bonds_of(atoms.numbers, atoms.positions), []) for atoms in read(path, ":")]
    kept = [one for one in molecules if identity(one[0], one[2]) not in held_out]
    parts = {"numbers": [], "positions": [], "bonds": [], "cuts": []}
    for numbers, positions, bonds, cuts in kept:
        parts["numbers"].append(np.array(numbers, np.uint8))
        parts["positions"].append(np.rint((positions - positions.mean(0)) / STEP).astype(np.int16))
        parts["bonds"].append(np.array(bonds, np.uint8).reshape(-1, 2))
        parts["cuts"].append(np.array(cuts, np.uint8).reshape(-1, 2))
    arrays = {name: np.concatenate(values) for name, values in parts.items()}
    counts = {f"n_{name}": np.array([len(one) for one in parts[name]], np.uint8) for name in ("numbers", "bonds", "cuts")}
    np.savez_compressed(options.output, **arrays, **counts)
    print(f"{len(kept)} molecules, {len(molecules) - len(kept)} of the held-out ones left out")


if __name__ == "__main__":
    main()
