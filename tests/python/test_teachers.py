# SPDX-License-Identifier: MIT
"""Purpose: the teachers' calculators make what their packages' interfaces ask for (both generations of orb_models, fennol), and
say what is missing. The packages are stood in for by modules of the same shape: no weights, no downloads."""

import copy
import os
import pickle
import sys
import types
import unittest
from unittest import mock

import numpy as np
from ase.calculators.calculator import Calculator, PropertyNotImplementedError, all_changes

import support
from mlff_distiller._devices import Device
from mlff_distiller.cuda.md_profiler import MDProfiler
from mlff_distiller.engine import Model
from mlff_distiller.errors import MlffDeviceError, MlffFileError, MlffUnsupportedError, MlffUsageError, MlffWarning
from mlff_distiller.models import FeNNolCalculator, OrbCalculator, StudentCalculator
from mlff_distiller.models.teacher_wrappers import model_folders

ABSENT = {name: None for name in ("orb_models", "orb_models.forcefield", "orb_models.forcefield.pretrained", "fennol", "fennol.ase")}


class Inner(Calculator):
    """Computes everything at once, as Orb's does, or what it is asked for."""

    implemented_properties = ["energy", "forces", "stress"]
    at_once = True

    def __init__(self, *made, **options):
        super().__init__()
        self.made, self.options, self.asked = made, options, []

    def calculate(self, atoms=None, properties=None, system_changes=all_changes):
        super().calculate(atoms)
        self.asked.append((list(properties), list(system_changes)))
        found = {"energy": np.float32(atoms.positions.sum()), "forces": np.zeros((len(atoms), 3), np.float32), "stress": np.zeros(6)}
        self.results.update({name: found[name] for name in found if name in properties or name == "energy" or self.at_once})


class FakeModel:
    def __init__(self):
        self.trained = False

    def to(self, where):
        return self

    def train(self, on):
        return self

    def parameters(self):
        return []


def orb_modules(new, weights=True):
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(is_available=lambda: False)
    torch.float32, torch.float64 = "float32", "float64"
    torch.defaults = {"dtype": "float32", "products": "highest"}
    torch.get_default_dtype = lambda: torch.defaults["dtype"]
    torch.set_default_dtype = lambda dtype: torch.defaults.update(dtype=dtype)
    torch.get_float32_matmul_precision = lambda: torch.defaults["products"]
    torch.set_float32_matmul_precision = lambda level: torch.defaults.update(products=level)
    pretrained = types.ModuleType("orb_models.forcefield.pretrained")

    def set_torch_precision(precision):
        kind, _, products = precision.partition("-")
        torch.set_default_dtype(kind)
        if products:
            torch.set_float32_matmul_precision(products)
        return kind

    pretrained.set_torch_precision = set_torch_precision
    pretrained.calls = []

    def load_model(model, weights_path, device=None, precision="float32-high", compile=None, train=False):
        if not weights:
            raise ConnectionError("no route to the weights")
        set_torch_precision(precision)
        model.trained = True
        return model

    pretrained.load_model = load_model

    def orb_v2(weights_path="https://elsewhere/orb-v2.ckpt", device=None, precision="float32-high", compile=None):
        pretrained.calls.append({"weights_path": weights_path, "device": device, "precision": precision, "compile": compile})
        model = pretrained.load_model(FakeModel(), weights_path, device, precision=precision, compile=compile)
        return (model, "adapter") if new else model

    pretrained.orb_v1 = lambda weights_path=None, device=None: 1 / 0  # what is left of it
    pretrained.orb_v2 = orb_v2
    pretrained.ORB_PRETRAINED_MODELS = {"orb-v2": orb_v2}
    calculator = types.ModuleType("calculator")
    calculator.ORBCalculator = Inner
    home = "orb_models.forcefield.inference.calculator" if new else "orb_models.forcefield.calculator"
    modules = {"torch": torch, "orb_models.forcefield.pretrained": pretrained, home: calculator}
    return {"orb_models": types.ModuleType("orb_models"), "orb_models.forcefield": types.ModuleType("f"), **modules}, pretrained


class Orb(unittest.TestCase):
    def test_both_generations_of_its_interface(self):
        for new in (True, False):
            modules, pretrained = orb_modules(new)
            with mock.patch.dict(sys.modules, modules):
                calc = OrbCalculator("orb-v2", device="cpu", precision="float64", edge_method="knn", engine="orb-models")
            self.assertEqual(calc.inner.made[1:], ("adapter",) if new else ())
            self.assertEqual(calc.inner.options, {"device": "cpu", "edge_method": "knn"})
            self.assertEqual(
                {k: pretrained.calls[0][k] for k in ("device", "precision", "compile")},
                {"device": "cpu", "precision": "float64", "compile": False},
            )
            self.assertEqual(modules["torch"].defaults, {"dtype": "float32", "products": "highest"})  # others' settings stay
            atoms = support.copper_frames(1)[0]
            atoms.calc = calc
            self.assertIs(type(atoms.get_potential_energy()), float)
            self.assertEqual(atoms.get_potential_energy(force_consistent=True), atoms.get_potential_energy())
            self.assertEqual(atoms.get_forces().shape, (4, 3))
            self.assertEqual(len(calc.inner.asked), 1)

    def test_it_is_profiled_and_known_as_one_shot(self):
        modules, _ = orb_modules(True)
        with mock.patch.dict(sys.modules, modules):
            calc = OrbCalculator("orb-v2", device="cpu", random_weights=True, engine="orb-models")
            self.assertFalse(calc.inner.made[0].trained)
            result = MDProfiler(device="cpu").profile_calculator(calc, support.copper_frames(3), n_steps=12)
            times = MDProfiler(device="cpu").property_times(calc, support.copper_frames(3))
        self.assertEqual(result.model_name, "orb-v2")
        self.assertIn("untrained: random weights", result.notes)
        self.assertIn("untrained", " ".join(result.data["recommendations"]))
        self.assertTrue(times["one_shot"])

    def test_weights(self):
        folder = support.scratch("weights")
        folder.mkdir(exist_ok=True)
        (folder / "orb-v2-20241011.ckpt").write_bytes(b"")
        modules, pretrained = orb_modules(True)
        with mock.patch.dict(sys.modules, modules), mock.patch.dict(os.environ, MLFF_MODEL_PATH=f"/nowhere:{folder}"):
            self.assertEqual(model_folders()[1], folder)
            OrbCalculator("orb-v2", device="cpu", engine="orb-models")
            self.assertEqual(pretrained.calls[-1]["weights_path"], str(folder / "orb-v2-20241011.ckpt"))
            with self.assertRaisesRegex(MlffFileError, "mine.ckpt"):
                OrbCalculator("orb-v2", device="cpu", weights_path="mine.ckpt", engine="orb-models")
        modules, _ = orb_modules(True, weights=False)
        with mock.patch.dict(sys.modules, modules), self.assertRaisesRegex(MlffFileError, "orb-v2.*Looked for.*random_weights=True"):
            OrbCalculator("orb-v2", device="cpu", engine="orb-models")

    def test_what_is_missing_is_said(self):
        with mock.patch.dict(sys.modules, ABSENT), self.assertRaisesRegex(ImportError, "pip install orb-models"):
            OrbCalculator(model_name="orb-v2", device="cuda", precision="float32-high", engine="orb-models")
        modules, _ = orb_modules(True)
        with mock.patch.dict(sys.modules, modules):
            with self.assertRaisesRegex(MlffDeviceError, "device='cpu'"):
                OrbCalculator(model_name="orb-v2", device="cuda", engine="orb-models")
            with self.assertRaisesRegex(MlffUsageError, "this orb_models has orb-v2"):
                OrbCalculator(model_name="orb-v9", device="cpu", engine="orb-models")
            with self.assertRaises(MlffUsageError):
                OrbCalculator(model_name="load-model", device="cpu", engine="orb-models")
            with self.assertRaisesRegex(MlffUsageError, "no longer builds it"):
                OrbCalculator(model_name="orb-v1", device="cpu", engine="orb-models")
            with self.assertRaises(MlffUsageError):
                OrbCalculator(precision="float8", device="cpu", engine="orb-models")
            with self.assertRaisesRegex(MlffUsageError, "'bf16' is of the native engine"):
                OrbCalculator(precision="bf16", device="cpu", engine="orb-models")

    def test_a_gpu_that_was_found_has_its_precision(self):
        # Of device None and "auto" the default precision was that of the CPU, also where a GPU computes.
        made = []

        def student(model, device, precision, uncertainty):
            made.append((device, precision))
            return StudentCalculator(model, device="cpu")

        wrappers = "mlff_distiller.models.teacher_wrappers."
        with mock.patch(wrappers + "parse_device", return_value=Device("cuda", 0)), mock.patch(wrappers + "StudentCalculator", student):
            for device in (None, "auto", "cuda:1"):
                OrbCalculator("orb-d3-xs-v2", device=device, random_weights=True)
        self.assertEqual(made, [("cuda:0", "tf32"), ("cuda:0", "tf32"), ("cuda:1", "tf32")])

    def test_it_runs_in_our_own_engine(self):
        with mock.patch.dict(sys.modules, ABSENT):
            calc = OrbCalculator("orb-d3-xs-v2", device="cpu", random_weights=True)
            self.assertIn("untrained", calc.profile_notes)
            atoms = support.copper_frames(1)[0]
            atoms.calc = calc
            self.assertEqual(atoms.get_forces().shape, (4, 3))
            self.assertEqual(atoms.get_stress().shape, (6,))
            self.assertNotIn("energies", calc.implemented_properties)
            # As orb_models: the net torque is removed where there is no cell, and not where there is one that does not repeat.
            ethanol = support.ethanol_frames(1)[0]
            ethanol.set_cell(np.zeros((3, 3)))
            without = calc.get_forces(ethanol).copy()
            ethanol.set_cell([20, 20, 20])
            within = calc.get_forces(ethanol).copy()
            ethanol.pbc = False
            self.assertGreater(np.abs(within - without).max(), 1e-3)
            arms = ethanol.positions - ethanol.positions.mean(axis=0)
            np.testing.assert_allclose(np.cross(arms, without).sum(axis=0), 0, atol=1e-6)
            np.testing.assert_array_equal(within, calc.calculate_batch([ethanol])[0]["forces"])
            calc = OrbCalculator("orb-v3-direct-20-omat", device="cpu", random_weights=True, uncertainty=True)
            calc.get_forces(atoms)
            self.assertEqual(calc.results["force_errors"].shape, (4,))
            self.assertTrue(np.all((calc.results["force_errors"] > 0) & (calc.results["force_errors"] < 0.3)))
            with self.assertRaisesRegex(MlffUsageError, "native engine"):
                OrbCalculator("orb-v2", device="cpu", engine="orb-models", uncertainty=True)
            with self.assertRaisesRegex(MlffFileError, "orb-v2.*mlff import"):
                OrbCalculator("orb-v2", device="cpu")
            with self.assertRaisesRegex(MlffUsageError, "orb-models"):
                OrbCalculator("orb-v2", device="cpu", edge_method="knn")


    def test_bfloat16(self):
        atoms = support.ethanol_frames(1)[0]
        forces = OrbCalculator("orb-d3-xs-v2", device="cpu", random_weights=True).get_forces(atoms)
        try:
            rounded = OrbCalculator("orb-d3-xs-v2", device="cpu", random_weights=True, precision="bf16").get_forces(atoms)
        except MlffUnsupportedError as error:
            self.assertIn("AVX512-BF16", str(error))
            return
        difference = np.linalg.norm(rounded - forces) / np.linalg.norm(forces)
        self.assertGreater(difference, 1e-5)  # 5e-7 in float32
        self.assertLess(difference, 0.1)  # 8 bits are 2e-3 a product, and there are five layers

    def test_it_is_copied(self):
        calc = OrbCalculator("orb-d3-xs-v2", device="cpu", random_weights=True)
        atoms = support.copper_frames(1)[0]
        energy = calc.get_potential_energy(atoms)
        for other in (copy.deepcopy(calc), pickle.loads(pickle.dumps(calc))):
            self.assertEqual(other.get_potential_energy(atoms), energy)
            self.assertEqual(other.profile_notes, calc.profile_notes)

    def test_threads_share_it(self):
        calc = OrbCalculator("orb-d3-xs-v2", device="cpu", random_weights=True)
        frames = support.copper_frames(4)
        expected = [(calc.get_potential_energy(atoms), calc.get_forces(atoms)) for atoms in frames]

        def is_right(i):
            energy, forces = expected[i]
            return calc.get_potential_energy(frames[i]) == energy and np.array_equal(calc.get_forces(frames[i]), forces)

        wrong = support.wrong_in_threads(len(frames), 30, is_right)
        self.assertEqual(wrong, [])

    def test_its_stages_in_our_own_engine(self):
        calc = OrbCalculator("orb-d3-xs-v2", device="cpu", random_weights=True)
        for native in (False, True):
            result = MDProfiler(device="cpu").profile_calculator(calc, support.copper_frames(3), n_steps=6, native=native)
            rows = result.data["stages"]
            self.assertEqual(sorted(row["layer"] for row in rows if row["name"] == "message"), [0, 1, 2, 3, 4])
            self.assertEqual(result.model_name, "orb-d3-xs-v2-untrained" if native else "orb-d3-xs-v2")
            self.assertIn("untrained: random weights", result.notes)

    def test_another_charge_is_another_structure(self):
        model = Model.create("orb-v3-direct", conditioned=True, n_layers=1, n_features=32, hidden=32)
        path = support.scratch("omol.safetensors")
        model.save(path)
        calc = OrbCalculator("omol", device="cpu", weights_path=path)
        energies = {}
        for charge, spin in ((0, 1), (1, 2), (0, 1)):
            atoms = support.ethanol_frames(1)[0]
            atoms.info.update(charge=charge, spin=spin)
            for name, chosen in (("same", calc), ("alone", StudentCalculator(model, device="cpu"))):
                energies.setdefault((charge, name), set()).add(chosen.get_potential_energy(atoms))
        for charge in (0, 1):
            self.assertEqual(energies[charge, "same"], energies[charge, "alone"])
        self.assertNotEqual(energies[0, "same"], energies[1, "same"])


def fennol_modules():
    import contextlib

    jax = types.ModuleType("jax")
    placed = []
    cpu = types.SimpleNamespace(platform="cpu")

    def devices(kind):
        if kind != "cpu":
            raise RuntimeError("unknown backend")
        return [cpu]

    @contextlib.contextmanager
    def default_device(device):
        placed.append(device)
        yield

    jax.devices, jax.default_device, jax.placed = devices, default_device, placed
    jax.config = types.SimpleNamespace(update=lambda key, value: placed.append((key, value)))
    module = types.ModuleType("fennol.ase")
    module.FENNIXCalculator = Inner
    return {"jax": jax, "fennol": types.ModuleType("fennol"), "fennol.ase": module}


class Batches(unittest.TestCase):
    def test_one_call_of_our_own_engine(self):
        calc = OrbCalculator("orb-d3-xs-v2", device="cpu", random_weights=True)
        frames = [support.copper_frames(1)[0], support.ethanol_frames(1)[0]]
        with mock.patch.object(calc.evaluator, "compute", wraps=calc.evaluator.compute) as compute:
            rows = calc.calculate_batch(frames, ["energy", "forces", "stress"])
        self.assertEqual(compute.call_count, 1)
        self.assertEqual(["stress" in row for row in rows], [True, False])
        for row, atoms in zip(rows, frames):
            # 1e-5 eV/Å: products in float32 are summed in other orders in a batch
            np.testing.assert_allclose(row["forces"], calc.get_forces(atoms), atol=1e-5)

    def test_one_after_another_by_a_package(self):
        modules, _ = orb_modules(True)
        with mock.patch.dict(sys.modules, modules):
            calc = OrbCalculator("orb-v2", device="cpu", engine="orb-models")
        frames = [support.copper_frames(1)[0], support.ethanol_frames(1)[0]]
        rows = calc.calculate_batch(frames, ["forces"])
        self.assertEqual([row["forces"].shape for row in rows], [(4, 3), (9, 3)])
        self.assertEqual([sorted(row) for row in rows], [["energy", "forces", "free_energy"]] * 2)
        self.assertEqual(rows[1]["energy"], calc.get_potential_energy(frames[1]))
        self.assertEqual(calc.calculate_batch([]), [])
        with self.assertRaisesRegex(PropertyNotImplementedError, "dipole: not among energy"):
            calc.calculate_batch(frames, ["dipole"])


class FeNNol(unittest.TestCase):
    def setUp(self):
        self.path = support.scratch("ani2x.fnx")
        self.path.write_bytes(b"")

    def test_nothing_of_other_atoms_stays(self):
        with mock.patch.dict(sys.modules, fennol_modules()), mock.patch.object(Inner, "at_once", False):
            calc = FeNNolCalculator(model_path=self.path, device="cpu")
            ethanol = support.ethanol_frames(1)[0]
            self.assertEqual(calc.get_forces(ethanol).shape, (9, 3))
            calc.get_potential_energy(ethanol[:3])
            self.assertNotIn("forces", calc.results)
            self.assertEqual(calc.get_forces(ethanol[:3]).shape, (3, 3))
            calc.calculate(ethanol, ["energy"])
            self.assertNotIn("forces", calc.results)
            self.assertFalse(MDProfiler(device="cpu").property_times(calc, support.ethanol_frames(3))["one_shot"])

    def test_its_interface(self):
        modules = fennol_modules()
        with mock.patch.dict(sys.modules, modules):
            calc = FeNNolCalculator(model_path=self.path, device="cpu", precision="float64", use_atom_padding=True)
            self.assertEqual(calc.inner.made, (str(self.path),))
            self.assertEqual(
                calc.inner.options,
                {"gpu_preprocessing": False, "use_float64": True, "matmul_prec": "highest", "use_atom_padding": True},
            )
            atoms = support.ethanol_frames(1)[0]
            atoms.calc = calc
            atoms.get_potential_energy(force_consistent=True)
            atoms.positions += 0.1
            atoms.get_forces()
        # It must be told of every change, else it takes old positions; it has no free energy of its own.
        self.assertEqual(calc.inner.asked[0], (["energy"], list(all_changes)))
        self.assertEqual(calc.inner.asked[1], (["forces"], list(all_changes)))
        self.assertTrue(modules["jax"].placed)

    def test_by_name(self):
        with mock.patch.dict(sys.modules, fennol_modules()), mock.patch.dict(os.environ, MLFF_MODEL_PATH=str(self.path.parent)):
            self.assertEqual(FeNNolCalculator(model_name="ani2x", device="cpu").name, "ani2x")
            with self.assertRaisesRegex(MlffFileError, "ani9z: no weights; looked for"):
                FeNNolCalculator(model_name="ani9z", device="cpu")

    def test_without_fennol_an_ani_model_runs_in_our_engine(self):
        published = support.SHARED / "data" / "ani1x" / "ani1x-member0.fnx"
        if not published.exists():
            self.skipTest(f"{published} is not there; set MLFF_SHARED to the folder that has data/ani1x")
        atoms = support.ethanol_frames(1)[0]
        with mock.patch.dict(sys.modules, ABSENT), self.assertWarnsRegex(MlffWarning, "own engine.*fennol"):
            calc = FeNNolCalculator(model_path=published, device="cpu", precision="float64")
        own = StudentCalculator(Model.import_ani(published), device="cpu", precision="float64")
        self.assertEqual(calc.get_potential_energy(atoms), own.get_potential_energy(atoms))
        np.testing.assert_array_equal(calc.get_forces(atoms), own.get_forces(atoms))
        self.assertIn("own engine", calc.profile_notes)
        with mock.patch.dict(sys.modules, ABSENT), self.assertRaisesRegex(ImportError, "Our own engine has no option energy_terms"):
            FeNNolCalculator(model_path=published, device="cpu", energy_terms=["energy"])
        with mock.patch.dict(sys.modules, ABSENT), self.assertRaisesRegex(ImportError, "Our own engine does not run this model"):
            FeNNolCalculator(model_path=self.path, device="cpu")  # an empty file

    def test_what_is_missing_is_said(self):
        with mock.patch.dict(sys.modules, ABSENT), self.assertRaisesRegex(ImportError, "pip install fennol.*mlff import"):
            FeNNolCalculator(model_path="ani2x.fnx", device="cuda")
        with mock.patch.dict(sys.modules, fennol_modules()):
            with self.assertRaisesRegex(MlffFileError, "nowhere.fnx: there is no such file"):
                FeNNolCalculator(model_path="nowhere.fnx", device="cpu")
            with self.assertRaisesRegex(MlffDeviceError, "device='cpu'"):
                FeNNolCalculator(model_path=self.path, device="cuda")
            with self.assertRaises(MlffUsageError):
                FeNNolCalculator(device="cpu")
            with self.assertRaises(MlffUsageError):
                FeNNolCalculator(model_path=self.path, model_name="ani2x")


if __name__ == "__main__":
    unittest.main()
