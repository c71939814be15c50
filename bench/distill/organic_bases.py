#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Force-field geometries of known molecules of H, C, N, O, S, F, Cl, from which organic_crossed.py makes others.

Usage: organic_bases.py OUT.npz [--held-out FRAMES.extxyz] [--more SEEDS.extxyz ...] [--changed SHARE]      (RDKit, ASE, NumPy)

The molecules are the two lists that RDKit brings along: Pains/test_data/wehi_mols.csv and NCI/first_5K.smi. Each is embedded once by ETKDG and
relaxed for 0 to 150 iterations by MMFF or UFF, so that its bonds are those of a force field and not of a minimum. Every 34th is left
for validation. Molecules with the atoms and bonds of one of --held-out (compared by five rounds of refined neighborhoods) are left out.
--more adds structures as they are, such as those of organic_seeds.py. --changed adds that share of the known molecules once more, with one to
four atoms or bonds changed at random (`Changes`): hydrogens added and taken away, so that unusual valences occur, other elements and groups.
OUT.npz: of all molecules in turn, atomic numbers, positions in steps of 0.004 Å, bonds, the acyclic single bonds between heavy atoms, and
whether it is one of --changed."""
import argparse
import concurrent.futures
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


class Changes:
    """Random changes of a molecule whose hydrogens are atoms of it. Each returns whether it found a place."""

    def __init__(self, molecule, draw):
        self.made, self.draw = Chem.RWMol(molecule), draw
        Chem.Kekulize(self.made, clearAromaticFlags=True)
        for atom in self.made.GetAtoms():
            atom.SetNoImplicit(True)

    def pick(self, items):
        items = list(items)
        return self.draw.choice(items) if items else None

    def heavy(self, symbols):
        return [atom for atom in self.made.GetAtoms() if atom.GetSymbol() in symbols]

    def hydrogens(self, atom):
        return [near.GetIdx() for near in atom.GetNeighbors() if near.GetAtomicNum() == 1]

    def attach(self, index, number):
        new = Chem.Atom(number)
        new.SetNoImplicit(True)
        at = self.made.AddAtom(new)
        self.made.AddBond(index, at, Chem.BondType.SINGLE)
        return at

    def drop(self, hydrogens):
        for index in sorted(hydrogens, reverse=True):
            self.made.RemoveAtom(index)

    def saturate(self):
        """A double bond becomes a single one, a triple a double; or every one between two elements does."""
        lower = {Chem.BondType.DOUBLE: Chem.BondType.SINGLE, Chem.BondType.TRIPLE: Chem.BondType.DOUBLE}

        def kind(bond):
            return tuple(sorted((bond.GetBeginAtom().GetAtomicNum(), bond.GetEndAtom().GetAtomicNum())))

        kinds = {}
        for bond in self.made.GetBonds():
            if bond.GetBondType() in lower:
                kinds.setdefault(kind(bond), []).append(bond.GetIdx())
        if not kinds:
            return False
        places = kinds[self.pick(sorted(kinds))]
        for place in places if self.draw.random() < 0.4 else [self.pick(places)]:
            bond = self.made.GetBondWithIdx(place)
            bond.SetBondType(lower[bond.GetBondType()])
            for atom in (bond.GetBeginAtom(), bond.GetEndAtom()):
                if atom.GetFormalCharge() <= 0:
                    self.attach(atom.GetIdx(), 1)
                    continue
                atom.SetFormalCharge(0)  # of a nitro group; its other oxygen gets the hydrogen
                for near in atom.GetNeighbors():
                    if near.GetFormalCharge() < 0 and self.draw.random() < 0.8:
                        near.SetFormalCharge(0)
                        self.attach(near.GetIdx(), 1)
        return True

    def add_hydrogen(self):
        atom = self.pick(atom for atom in self.heavy("NO") if atom.GetFormalCharge() <= 0)
        if atom is None:
            return False
        atom.SetFormalCharge(atom.GetFormalCharge() + 1)
        self.attach(atom.GetIdx(), 1)
        return True

    def remove_hydrogen(self):
        atom = self.pick(atom for atom in self.heavy("CNO") if self.hydrogens(atom) and atom.GetFormalCharge() == 0)
        if atom is None:
            return False
        how = self.draw.choice(["radical", "cation", "anion"]) if atom.GetSymbol() == "C" else self.draw.choice(["radical", "anion"])
        if how == "radical":
            atom.SetNumRadicalElectrons(1)
        else:
            atom.SetFormalCharge(1 if how == "cation" else -1)
        self.drop(self.hydrogens(atom)[:1])
        return True

    def replace(self):
        """An atom of C, N or O becomes another of these, with the hydrogens that it needs."""
        atom = self.pick(atom for atom in self.heavy("CNO") if atom.GetFormalCharge() == 0 and not atom.GetNumRadicalElectrons())
        if atom is None:
            return False
        hydrogens = self.hydrogens(atom)
        used = int(sum(bond.GetBondTypeAsDouble() for bond in atom.GetBonds())) - len(hydrogens)
        number = self.pick(z for z, valence in ((6, 4), (7, 3), (8, 2)) if z != atom.GetAtomicNum() and used <= valence)
        if number is None:
            return False
        index, wanted = atom.GetIdx(), 10 - number - used
        atom.SetAtomicNum(number)
        for _ in range(wanted - len(hydrogens)):
            self.attach(index, 1)
        self.drop(hydrogens[wanted:] if wanted < len(hydrogens) else [])
        return True

    def substitute(self):
        """A hydrogen becomes OH, NH2, CH3, F or Cl."""
        place = self.pick(index for atom in self.heavy("CN") for index in self.hydrogens(atom))
        if place is None:
            return False
        number = self.draw.choice([8, 8, 8, 8, 7, 7, 6, 9, 17])
        self.made.GetAtomWithIdx(place).SetAtomicNum(number)
        for _ in range({6: 3, 7: 2, 8: 1}.get(number, 0)):
            self.attach(place, 1)
        return True


def changed(molecule, draw):
    """The molecule with one to four changes, or None where that is no molecule."""
    changes = Changes(molecule, draw)
    kinds = [changes.saturate] * 3 + [changes.add_hydrogen] + [changes.remove_hydrogen] * 3 + [changes.replace] * 2 + [changes.substitute] * 2
    for _ in range(draw.choice([1, 1, 2, 2, 3, 4])):
        if not draw.choice(kinds)():
            return None
    made = changes.made.GetMol()
    Chem.SanitizeMol(made)
    return made


def known_molecule(task):
    """(numbers, positions, bonds, bonds to cut) of a molecule, or None; it is changed where the task says so."""
    number, smiles, changes = task
    RDLogger.DisableLog("rdApp.*")
    molecule, draw = Chem.AddHs(Chem.MolFromSmiles(smiles)), random.Random(number + 1000003 * changes)
    try:
        if changes:
            molecule = changed(molecule, draw)
        positions = geometry(molecule, draw) if molecule and molecule.GetNumAtoms() <= MOST_ATOMS else None
    except (RuntimeError, ValueError):
        return None
    if positions is None:
        return None
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
    cuts = [pair for pair in molecule.GetSubstructMatches(Chem.MolFromSmarts("[!#1]-!@[!#1]"), maxMatches=10000)
            if molecule.GetBondBetweenAtoms(*pair).GetBondType() == Chem.BondType.SINGLE]
    return [atom.GetAtomicNum() for atom in molecule.GetAtoms()], positions, bonds, cuts


def known_molecules(share_changed, processes):
    """(is it changed, what known_molecule makes of it) of each molecule that trains, then of those that are changed."""
    tasks = [(number, smiles, False) for number, smiles in enumerate(known_smiles()) if number % 34 != 33]
    draw = random.Random(2)
    tasks += [(number, smiles, True) for number, smiles, _ in tasks if draw.random() < share_changed]
    with concurrent.futures.ProcessPoolExecutor(processes) as pool:
        found = zip(tasks, pool.map(known_molecule, tasks, chunksize=100))
        return [(is_changed, made) for (_, _, is_changed), made in found if made]


def main():
    RDLogger.DisableLog("rdApp.*")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    parser.add_argument("--held-out")
    parser.add_argument("--more", nargs="*", default=[])
    parser.add_argument("--changed", type=float, default=0)
    parser.add_argument("--processes", type=int)
    options = parser.parse_args()
    held_out = {identity(atoms.numbers, bonds_of(atoms.numbers, atoms.positions))
                for atoms in (read(options.held_out, ":") if options.held_out else [])}
    molecules = known_molecules(options.changed, options.processes)
    for path in options.more:
        molecules += [(False, (atoms.numbers, atoms.positions, bonds_of(atoms.numbers, atoms.positions), [])) for atoms in read(path, ":")]
    kept = [one for one in molecules if identity(one[1][0], one[1][2]) not in held_out]
    parts = {"numbers": [], "positions": [], "bonds": [], "cuts": []}
    for _, (numbers, positions, bonds, cuts) in kept:
        parts["numbers"].append(np.array(numbers, np.uint8))
        parts["positions"].append(np.rint((positions - positions.mean(0)) / STEP).astype(np.int16))
        parts["bonds"].append(np.array(bonds, np.uint8).reshape(-1, 2))
        parts["cuts"].append(np.array(cuts, np.uint8).reshape(-1, 2))
    arrays = {name: np.concatenate(values) for name, values in parts.items()}
    counts = {f"n_{name}": np.array([len(one) for one in parts[name]], np.uint8) for name in ("numbers", "bonds", "cuts")}
    np.savez_compressed(options.output, **arrays, **counts, changed=np.array([is_changed for is_changed, _ in kept]))
    print(f"{len(kept)} molecules, {len(molecules) - len(kept)} of the held-out ones left out")


if __name__ == "__main__":
    main()
