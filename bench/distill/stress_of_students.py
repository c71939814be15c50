#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pressures of students of crystals, by the strain of the cells that they learn and the weight of the stress.

Usage: stress_of_students.py argon|copper [--n-samples 600] [--steps 15000] [--strains 0,0.03] [--weights 100,3000,10000] [--json FILE]

Teachers are ASE's calculators: Lennard-Jones argon with a cutoff of 9 Å, which a student of 5 Å does not see whole, and EMT's copper. Each student is compared
with its teacher at cells with lengths changed by -5 to 5 %, atoms displaced by 0.05 Å."""
import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones
from ase.units import GPa

from mlff_distiller import Model, StudentCalculator
from mlff_distiller.distill import Teacher, label, sample
from mlff_distiller.training import Dataset, Trainer

TEACHERS = {
    "argon": (bulk("Ar", "fcc", a=5.3, cubic=True) * (2, 2, 2), LennardJones(sigma=3.4, epsilon=0.0104, rc=9.0, smooth=True)),
    "copper": (bulk("Cu", cubic=True) * (2, 2, 2), EMT()),
}


def compared(atoms, calculator, student):
    """GPa, meV/Å and meV/atom at each strain."""
    rows, drawn = [], np.random.default_rng(1)
    for strain in (-0.05, -0.03, -0.01, 0.0, 0.01, 0.03, 0.05):
        frame = atoms.copy()
        frame.set_cell(frame.cell * (1 + strain), scale_atoms=True)
        frame.positions += 0.05 * drawn.standard_normal(frame.positions.shape)
        other = frame.copy()
        frame.calc, other.calc = calculator, student
        pressures = [-one.get_stress()[:3].mean() / GPa for one in (frame, other)]
        rows.append({
            "strain": strain,
            "teacher_gpa": pressures[0],
            "error_gpa": pressures[1] - pressures[0],
            "force_mae_mev": 1e3 * np.abs(frame.get_forces() - other.get_forces()).mean(),
            "energy_mev_per_atom": 1e3 * (other.get_potential_energy() - frame.get_potential_energy()) / len(frame),
        })  # fmt: skip
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", choices=TEACHERS)
    parser.add_argument("--n-samples", type=int, default=600)
    parser.add_argument("--steps", type=int, default=15000)
    parser.add_argument("--strains", default="0,0.03")
    parser.add_argument("--weights", default="100,3000,10000")
    parser.add_argument("--json")
    options = parser.parse_args()
    atoms, calculator = TEACHERS[options.system]
    students = []
    for strain in map(float, options.strains.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "labels.mlff"
            teacher = Teacher(calculator)
            label(teacher, sample(teacher, [atoms], n_samples=options.n_samples, methods="thermal,rattle,md", strain=strain), path)
            data = Dataset.read(path)
        for weight in map(float, options.weights.split(",")):
            model = Model.create("painn", n_features=32, n_layers=2, elements=atoms[0].symbol, cutoff_function="mollifier", core_repulsion=0.7)
            trainer = Trainer(model, data, n_steps=options.steps, batch_size=8, learning_rate=6e-3, huber_forces=0.1, stress_weight=weight, device="cpu")
            trainer.run(options.steps)
            rows = compared(atoms, calculator, StudentCalculator(trainer.model(), device="cpu"))
            students.append({"strain": strain, "stress_weight": weight, "at": rows})
            print(f"strain {strain:g}, weight {weight:g}: " + ", ".join(f"{row['error_gpa']:+.3f}" for row in rows) + " GPa; "
                  + ", ".join(f"{row['force_mae_mev']:.1f}" for row in rows) + " meV/Å", flush=True)  # fmt: skip
    if options.json:
        Path(options.json).write_text(json.dumps({"system": options.system, "n_samples": options.n_samples, "steps": options.steps, "students": students}, indent=1) + "\n")


if __name__ == "__main__":
    main()
