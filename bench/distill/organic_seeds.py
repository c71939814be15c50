#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random organic molecules and complexes of H, C, N, O, S, F, Cl, as seeds for a distillation.

Usage: organic_seeds.py SEED N OUT.extxyz     (needs RDKit and NumPy: python3-rdkit, python3-numpy)

Molecules are assembled from the fragments of organic_fragments.txt by single bonds, embedded by ETKDG and relaxed a little by MMFF or
UFF, so that they are near a minimum and not in one. 12 % of the structures are complexes of 2 to 4 molecules, 10 % small molecules.
The same SEED gives the same molecules with the same version of RDKit. The README beside this says how the shipped students used it."""
import pathlib
import random
import sys

import numpy as np
from rdkit import Chem, RDLogger
from rdkit.Chem import AllChem

MOST_ATOMS = 110


def read_fragments(path):
    """The sections of the file, as RDKit molecules."""
    sections = {}
    for line in path.read_text().splitlines():
        if line.startswith("== "):
            section = sections.setdefault(line[3:], [])
        elif not line.startswith("#"):
            section += [Chem.MolFromSmiles(smiles) for smiles in line.split()]
    return sections


class Assembler:
    """Draws molecules; all random numbers come from one seed."""

    def __init__(self, seed, fragments):
        self.draw = random.Random(seed)
        self.normal = np.random.default_rng(seed)
        self.rings, self.groups = fragments["rings"], fragments["groups"]
        self.small = [molecule for molecule in fragments["small"] if molecule is not None]
        self.seen = set()

    def attach(self, molecule, group):
        """The molecule with a group on one of its hydrogens; unchanged where that is no molecule."""
        n = molecule.GetNumAtoms()
        sites, ends = bonding_sites(molecule), []
        if self.draw.random() < 0.3:
            ends = bonding_sites(group)
        elif group.GetAtomWithIdx(0).GetTotalNumHs() > 0:
            ends = [0]
        if not ends:
            ends = [0] if group.GetAtomWithIdx(0).GetTotalNumHs() > 0 else bonding_sites(group)
        if not sites or not ends:
            return molecule
        both = Chem.RWMol(Chem.CombineMols(molecule, group))
        pair = self.draw.choice(sites), n + self.draw.choice(ends)
        for index in pair:
            atom = both.GetAtomWithIdx(index)
            if atom.GetNumExplicitHs() > 0:
                atom.SetNumExplicitHs(atom.GetNumExplicitHs() - 1)
        both.AddBond(*pair, Chem.BondType.SINGLE)
        made = both.GetMol()
        try:
            Chem.SanitizeMol(made)
        except ValueError:
            return molecule
        return made

    def assemble(self, n_heavy):
        """A molecule of about so many heavy atoms."""
        molecule = self.draw.choice(self.rings) if self.draw.random() < 0.85 else self.draw.choice(self.groups)
        for _ in range(40):
            if molecule.GetNumAtoms() >= n_heavy:
                break
            room = n_heavy - molecule.GetNumAtoms()
            ring = self.draw.random() < 0.3 and room > 5
            group = self.draw.choice(self.rings) if ring else self.draw.choice(self.groups)
            if group.GetNumAtoms() <= room + 3:
                molecule = self.attach(molecule, group)
        return molecule

    def embed(self, molecule):
        """(symbols, positions), or None where no conformer is found."""
        full = Chem.AddHs(molecule)
        options = AllChem.ETKDGv3()
        options.randomSeed, options.maxIterations = self.draw.randrange(1 << 30), 5
        if AllChem.EmbedMolecule(full, options) != 0:
            return None
        try:
            if AllChem.MMFFHasAllMoleculeParams(full):
                AllChem.MMFFOptimizeMolecule(full, maxIters=self.draw.choice([20, 60, 150]))
            else:
                AllChem.UFFOptimizeMolecule(full, maxIters=100)
        except (RuntimeError, ValueError):
            return None
        return [atom.GetSymbol() for atom in full.GetAtoms()], full.GetConformer().GetPositions()

    def complex(self):
        """Some molecules, each turned at random and set down where its closest atom is 1.7 to 3.2 Å away."""
        symbols, positions = [], np.zeros((0, 3))
        for _ in range(self.draw.choice([2, 2, 2, 3, 4])):
            one = self.embed(self.draw.choice(self.small) if self.draw.random() < 0.7 else self.assemble(8))
            if one is None:
                continue
            turn = np.linalg.qr(self.normal.normal(size=(3, 3)))[0]
            placed = (one[1] - one[1].mean(0)) @ turn
            if symbols:
                direction = self.normal.normal(size=3)
                direction /= np.linalg.norm(direction)
                gap = self.draw.uniform(1.7, 3.2)
                for k in range(300):
                    there = placed + positions.mean(0) + direction * 0.1 * k
                    if np.min(np.linalg.norm(there[:, None] - positions[None], axis=2)) >= gap:
                        break
                placed = there
            symbols += one[0]
            positions = np.vstack([positions, placed])
        return (symbols, positions) if symbols else None

    def next(self):
        """The next structure, or None: try again."""
        kind = self.draw.random()
        if kind < 0.12:
            return self.complex()
        if kind < 0.22:
            return self.embed(self.draw.choice(self.small))
        molecule = self.assemble(int(np.clip(self.normal.gamma(4.5, 4.2), 4, 48)))
        smiles = Chem.MolToSmiles(molecule)
        if smiles in self.seen:
            return None
        self.seen.add(smiles)
        return self.embed(molecule)


def bonding_sites(molecule):
    """Neutral atoms with a hydrogen to give away."""
    return [a.GetIdx() for a in molecule.GetAtoms() if a.GetTotalNumHs() > 0 and a.GetFormalCharge() == 0]


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    RDLogger.DisableLog("rdApp.*")
    seed, count, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    assembler = Assembler(seed, read_fragments(pathlib.Path(__file__).parent / "organic_fragments.txt"))
    n = 0
    with open(out, "w") as file:
        while n < count:
            try:
                made = assembler.next()
            except (RuntimeError, ValueError):
                continue
            if made is None or not 2 <= len(made[0]) <= MOST_ATOMS or not np.isfinite(made[1]).all():
                continue
            file.write(f'{len(made[0])}\nProperties=species:S:1:pos:R:3 pbc="F F F"\n')
            for symbol, position in zip(*made):
                file.write("%s %.5f %.5f %.5f\n" % (symbol, *position))
            n += 1


if __name__ == "__main__":
    main()
