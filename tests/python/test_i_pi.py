# SPDX-License-Identifier: MIT
"""Purpose: i-PI drives `mlff serve`: the blocks of docs/guide/i-pi.md as they stand, with energies and conserved quantities checked, and
water at constant pressure, where a wrong virial would show. Skipped where tools/test_needs could not install i-PI."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np
import support
from ase import Atoms
from ase.io import read, write

from mlff_distiller import Evaluator
from mlff_distiller._command import command_path

I_PI = Path(os.environ.get("MLFF_I_PI", "absent"))
GUIDE = support.ROOT / "docs" / "guide" / "i-pi.md"

PRESSURE = """
<simulation verbosity="low">
  <output prefix="npt">
    <properties filename="md" stride="1">[step, conserved{electronvolt}, volume{angstrom3}]</properties>
  </output>
  <total_steps>200</total_steps>
  <prng><seed>3</seed></prng>
  <ffsocket name="mlff" mode="unix"><address>SOCKET</address></ffsocket>
  <system>
    <initialize nbeads="1">
      <file mode="xyz" units="angstrom">i-pi.xyz</file>
      <cell mode="abc" units="angstrom">[LENGTH, LENGTH, LENGTH]</cell>
      <velocities mode="thermal" units="kelvin">300</velocities>
    </initialize>
    <forces><force forcefield="mlff"/></forces>
    <ensemble><temperature units="kelvin">300</temperature><pressure units="gigapascal">1</pressure></ensemble>
    <motion mode="dynamics">
      <dynamics mode="npt">
        <timestep units="femtosecond">0.25</timestep>
        <barostat mode="isotropic"><tau units="femtosecond">200</tau></barostat>
        <thermostat mode="langevin"><tau units="femtosecond">1000</tau></thermostat>
      </dynamics>
    </motion>
  </system>
</simulation>
"""


def blocks(kind):
    """Those of the guide: (name, text)."""
    return re.findall(rf"^```{kind}(?: (\S+))?\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.S | re.M)


@unittest.skipUnless((I_PI / "bin" / "i-pi").exists(), "i-PI is not installed (tools/test_needs)")
class IPi(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.environment = os.environ | {
            "PATH": f"{I_PI / 'bin'}:{Path(command_path()).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{I_PI}:{os.environ.get('PYTHONPATH', '')}",
            "MLFF_MODEL_PATH": str(support.ROOT / "models"),
            "MLFF_DEVICE": "cpu",
        }

    def run_script(self, text):
        # A busy machine takes its time to start i-PI.
        text = text.replace("mlff serve", "mlff serve --wait 60")
        run = subprocess.Popen(["bash", "-euo", "pipefail", "-c", text], cwd=self.folder, env=self.environment, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
        try:
            out, err = run.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)  # i-PI would wait for another client for ever
            out, err = run.communicate()
            self.fail(f"{text} did not end: {err}, {[path.read_text(encoding='utf-8')[-1000:] for path in self.folder.glob('*.log')]}")
        self.assertEqual((run.returncode, err), (0, ""))
        return out

    def test_guide(self):
        for name, text in blocks("xyz") + blocks("xml"):
            # A socket of this process alone, for tests that run at the same time.
            (self.folder / name).write_text(re.sub(r"<address>(\w+)<", rf"<address>\1-{os.getpid()}<", text), encoding="utf-8")
        for _, script in blocks("sh"):
            if "lmp_mlff" in script:
                continue
            out = self.run_script(re.sub(r"--unix (\w+)", rf"--unix \1-{os.getpid()}", script))
            self.assertIn("steps in", out)

        constant = np.loadtxt(self.folder / "nvt.md")
        # Conserved within 2 meV an atom over 0.5 ps, 0.5 meV measured at 0.5 fs.
        self.assertEqual(len(constant), 101)
        self.assertLess(np.ptp(constant[:, 1]), 9 * 2e-3)
        self.assertTrue(100 < constant[50:, 2].mean() < 500, constant[:, 2])

        # i-PI's energies are the engine's, at its own frames: float32, and positions written with six digits.
        evaluator = Evaluator(support.ROOT / "models" / "ethanol.safetensors", device="cpu")
        frames = read(self.folder / "nvt.pos_0.xyz", ":", format="xyz")
        expected = [evaluator.compute(atoms.numbers, atoms.positions)["energies"][0] for atoms in frames]
        np.testing.assert_allclose(constant[::10, 3], expected, rtol=0, atol=2e-3)

        quantum = np.loadtxt(self.folder / "pimd.md")
        self.assertEqual(len(list(self.folder.glob("pimd.pos_*.xyz"))), 8)
        # Classical nuclei have 0.35 eV; quantum nuclei of ethanol nearly their zero-point energy's half, 1.05 eV.
        self.assertTrue(0.7 < quantum[20:, 2].mean() < 1.4, quantum[:, 2])

    @unittest.skipUnless((Path(command_path()).parent / "lmp_mlff").exists() and shutil.which("mpirun"), "no lmp_mlff or mpirun")
    def test_lammps_computes(self):
        socket = f"lammps-{os.getpid()}"
        for name, text in blocks("lammps") + blocks("xml"):
            text = text.replace("<address>lammps<", f"<address>{socket}<").replace("ipi lammps ", f"ipi {socket} ")
            (self.folder / name).write_text(text, encoding="utf-8")
        (script,) = (text for _, text in blocks("sh") if "lmp_mlff" in text)
        self.environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.assertIn("EXIT message from i-PI", self.run_script(script.replace("/tmp/ipi_lammps", f"/tmp/ipi_{socket}")))

        constant = np.loadtxt(self.folder / "lammps.md")
        # 0.1 meV measured of 64 atoms; the potential energy moves by 1.9 eV.
        self.assertLess(np.ptp(constant[:, 1]), 1e-3)
        self.assertGreater(np.ptp(constant[:, 3]), 0.5)
        evaluator = Evaluator(self.folder / "silicon.safetensors", device="cpu")
        for k, atoms in enumerate(read(self.folder / "lammps.pos_0.xyz", ":", format="xyz")):
            cell = np.eye(3) * 10.862
            energy = evaluator.compute(atoms.numbers, atoms.positions, cell, [True] * 3)["energies"][0]
            self.assertAlmostEqual(constant[5 * k, 3], energy, delta=64 * 2e-6)
        self.assertEqual(k, 4)

    def test_pressure(self):
        socket = f"npt-{os.getpid()}"
        liquid = "mlff md water-small --system water --n-atoms 24 --ensemble langevin --n-steps 400 --every 400"
        self.run_script(f"{liquid} --threads 1 --quiet -o liquid.extxyz")
        last = read(self.folder / "liquid.extxyz", -1)
        atoms = Atoms(last.numbers, last.positions, cell=last.cell, pbc=True)
        write(self.folder / "start.extxyz", atoms)
        write(self.folder / "i-pi.xyz", atoms, format="xyz")
        text = PRESSURE.replace("LENGTH", str(atoms.cell[0, 0])).replace("SOCKET", socket)
        (self.folder / "npt.xml").write_text(text, encoding="utf-8")
        self.run_script(f"i-pi npt.xml >npt.log & mlff serve water-small start.extxyz --unix {socket} --threads 1; wait")

        _, conserved, volume = np.loadtxt(self.folder / "npt.md").T
        # The barostat does work of some 0.7 eV as the volume shrinks by a fifth in 50 fs; the conserved quantity moves by 1 meV.
        self.assertGreater(np.ptp(volume), 0.1 * volume[0])
        self.assertLess(np.ptp(conserved), 5e-3)


if __name__ == "__main__":
    unittest.main()
