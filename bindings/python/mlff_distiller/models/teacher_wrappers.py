# SPDX-License-Identifier: MIT
"""The teachers as ASE calculators: Orb in our own engine or by the package orb_models (PyTorch), ANI-2x by the package fennol (JAX).

Both packages are optional and are imported only when a calculator is made. Weights are looked for, by name, in the folders of
the environment variable MLFF_MODEL_PATH (separated by ":"), then in $XDG_DATA_HOME/mlff/models (~/.local/share/mlff/models).
"""

from __future__ import annotations

import importlib
import inspect
import os
import pathlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, PropertyNotImplementedError, all_changes

from .._arrays import changed_conditions, refuse_settings
from .._bridge import batch_of
from .._devices import parse_device
from ..engine import Model
from ..errors import MlffDeviceError, MlffError, MlffFileError, MlffUsageError, MlffWarning
from .student import StudentCalculator


def model_folders() -> list[pathlib.Path]:
    """Folders in which weights are looked for, best first."""
    named = [pathlib.Path(folder) for folder in os.environ.get("MLFF_MODEL_PATH", "").split(":") if folder]
    data = os.environ.get("XDG_DATA_HOME") or str(pathlib.Path.home() / ".local" / "share")
    return [*named, pathlib.Path(data) / "mlff" / "models"]


def _find_weights(patterns: Sequence[str]) -> pathlib.Path | None:
    for folder in model_folders():
        for pattern in patterns:
            found = sorted(folder.glob(pattern))
            if found:
                return found[-1]  # names end in dates
    return None


def _import(module: str, calculator: str, install: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise ImportError(
            f"{calculator} needs the package {module.split('.')[0]}, which cannot be imported ({problem}); install it with: {install}"
        ) from None


class _Teacher(Calculator):  # type: ignore[misc]
    """A calculator around another: ASE's cache is ours, every `calculate` is one of the inner one."""

    nolabel = True

    def __init__(self, inner: Any, name: str, device: str, notes: str) -> None:
        self._name = name
        super().__init__()
        self.inner = inner
        self.device = device
        self.profile_notes = notes
        offered = list(dict.fromkeys(inner.implemented_properties))
        self.implemented_properties = offered if "free_energy" in offered else [*offered, "free_energy"]

    @property
    def name(self) -> str:
        """Of the model."""
        return self._name

    @property
    def evaluator(self) -> Any:
        """Of a model that runs in our engine, whose stages the profiler shows; else None."""
        return self.inner.evaluator if isinstance(self.inner, StudentCalculator) else None

    def set(self, **settings: Any) -> dict[str, Any]:
        """Refuses settings: a calculator has those that it was made with."""
        return refuse_settings(self, settings)

    def get_property(self, name: str, atoms: Atoms | None = None, allow_calculation: bool = True) -> Any:
        """One property, as by ASE's method of this name. Threads that share a calculator in our engine wait for each other."""
        with self._exclusive():
            return super().get_property(name, atoms, allow_calculation)

    def get_potential_energy(self, atoms: Atoms | None = None, force_consistent: bool = False) -> float:
        """Energy, eV; the force-consistent one is "free_energy"."""
        with self._exclusive():
            return float(super().get_potential_energy(atoms, force_consistent))

    def _exclusive(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.evaluator is None else self.evaluator.lock

    def check_state(self, atoms: Atoms, tol: float = 1e-15) -> list[str]:
        """What changed since the last call, as ASE asks, and "info" where charge or spin did."""
        return [*super().check_state(atoms, tol=tol), *changed_conditions(self.atoms, atoms)]

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = tuple(all_changes),
    ) -> None:
        """Computes `properties` of `atoms` into `results`."""
        with self._exclusive():
            if atoms is not None:
                if self.check_state(atoms):
                    self.results = {}  # of other atoms: a caller of this method has not reset them, as get_property has
                self.atoms = atoms.copy()
            self.results.update(self._compute(self.atoms, properties))

    def _compute(self, atoms: Atoms, properties: Sequence[str]) -> dict[str, Any]:
        wanted = ["energy" if name == "free_energy" else name for name in properties]
        self.inner.results = {}  # FeNNol's adds to them: forces of other atoms would stay
        with self._placed():
            # All changes: FeNNol updates only what it is told of, and must never see old positions.
            self.inner.calculate(atoms, list(dict.fromkeys(wanted)), list(all_changes))
        results = dict(self.inner.results)
        if "energy" in results:
            results["energy"] = float(results["energy"])
            results["free_energy"] = float(results["free_energy"] if "free_energy" in results else results["energy"])
        return results

    def calculate_batch(
        self, systems: Iterable[Atoms], properties: Sequence[str] = ("energy", "forces")
    ) -> list[dict[str, Any]]:
        """Results of several structures, as `StudentCalculator.calculate_batch`: in one call of this project's own engine where it
        computes, one after another where a package does."""
        if isinstance(self.inner, StudentCalculator):
            return self.inner.calculate_batch(systems, properties)
        systems, properties = batch_of(systems, properties)
        if unknown := set(properties) - set(self.implemented_properties):
            raise PropertyNotImplementedError(f"{', '.join(sorted(unknown))}: not among {', '.join(self.implemented_properties)}")
        rows: list[dict[str, Any]] = []
        for atoms in systems:
            wanted = [name for name in properties if name != "stress" or np.all(atoms.pbc)]
            found = self._compute(atoms.copy(), ["energy", *wanted])
            rows.append({name: found[name] for name in dict.fromkeys(["energy", "free_energy", *wanted])})
        return rows

    def get_spin_polarized(self) -> bool:
        """False."""
        return False

    def _placed(self) -> AbstractContextManager[Any]:
        return nullcontext()


# ---- Orb -----------------------------------------------------------------------------------------------------------

_ORB_PRECISIONS = ("float32-high", "float32-highest", "float64", "bf16")


class OrbCalculator(_Teacher):
    """Orb-v2 and its kin, in this project's own engine or by the package orb_models.

    With the package, one call always computes energy, forces and stress, whatever is asked for.

    Args:
        model_name: "orb-v2", "orb-v3-direct-20-omat", "orb-v3-conservative-inf-omat", … as orb_models has them.
        device: "cuda", "cuda:1", "cpu"; None: a GPU where one works (with the package: if torch sees one), else the CPU.
        precision: "float32-high" (TF32 products on a GPU), "float32-highest", "float64" (of the native engine on the CPU), and of the
            native engine "bf16".
        weights_path: a checkpoint, or a model file; None: MODEL.safetensors or MODEL*.ckpt in the folders above, and with the package
            else what orb_models downloads or has cached.
        random_weights: True builds the model without weights: right for measuring speed, meaningless for chemistry.
        compile: torch.compile; orb_models' own default is True but for the first calls it is very slow, and it fails on
            some machines.
        engine: "native", this project's own; "orb-models", the package, which alone reads `compile` and `calculator_options`.
        uncertainty: of the native engine and Orb-v3: True adds "force_errors" [n_atoms] eV/Å to the results, the
            error of each atom's force components that the model expects (the mean over the bins of orb_models' "confidence").
        calculator_options: handed to ORBCalculator ("edge_method", "max_num_neighbors").

    Raises:
        ImportError: orb_models was asked for and is not installed; the text says how to.
        MlffDeviceError: a GPU was asked for and there is none (with the package: torch sees none).
        MlffFileError: there are no weights; the text says where they belong.
    """

    def __init__(
        self,
        model_name: str = "orb-v2",
        device: str | None = "cuda",
        precision: str = "float32-high",
        weights_path: str | os.PathLike[str] | None = None,
        random_weights: bool = False,
        compile: bool = False,
        engine: str = "native",
        uncertainty: bool = False,
        **calculator_options: Any,
    ) -> None:
        if precision not in _ORB_PRECISIONS:
            raise MlffUsageError(f"precision {precision!r}: expected one of {', '.join(map(repr, _ORB_PRECISIONS))}")
        if engine not in ("native", "orb-models"):
            raise MlffUsageError(f"engine {engine!r}: expected 'native' or 'orb-models'")
        if engine == "orb-models" and precision == "bf16":
            raise MlffUsageError("precision 'bf16' is of the native engine; orb_models has 'float32-high', 'float32-highest', 'float64'")
        if engine == "native":
            if compile or calculator_options:
                given = ", ".join([*(["compile"] if compile else []), *calculator_options])
                raise MlffUsageError(f"OrbCalculator: {given} are options of the package; add engine='orb-models'")
            self._run_in_engine(model_name, device, precision, weights_path, random_weights, uncertainty)
            return
        if uncertainty:
            raise MlffUsageError("OrbCalculator: uncertainty is an option of the native engine; orb_models always adds 'confidence'")
        install = "pip install orb-models (Python 3.12 or newer and a GPU build of PyTorch for the newest)"
        pretrained = _import("orb_models.forcefield.pretrained", "OrbCalculator", install)
        torch = importlib.import_module("torch")
        chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if chosen.startswith("cuda") and not torch.cuda.is_available():
            raise MlffDeviceError(f"OrbCalculator: device {chosen!r} was asked for and PyTorch sees no GPU; use device='cpu'")

        load = getattr(pretrained, model_name.replace("-", "_"), None)
        if load is None or not model_name.startswith("orb"):
            known = sorted(getattr(pretrained, "ORB_PRETRAINED_MODELS", {})) or [n for n in dir(pretrained) if n.startswith("orb_v")]
            raise MlffUsageError(f"model {model_name!r}: this orb_models has {', '.join(known)}")
        if "precision" not in inspect.signature(load).parameters:
            raise MlffUsageError(f"model {model_name!r}: this orb_models names it but no longer builds it; 'orb-v2' is the oldest it has")
        keywords: dict[str, Any] = {"device": chosen, "precision": precision, "compile": compile}
        weights = pathlib.Path(weights_path) if weights_path is not None else _find_weights([f"{model_name}*.ckpt"])
        if weights_path is not None and weights is not None and not weights.is_file():
            raise MlffFileError(f"{weights}: there is no such checkpoint")
        if weights is not None:
            keywords["weights_path"] = str(weights)
        # orb_models sets torch's global defaults and reads them in every call: they are set around ours, and only there.
        self._torch: Any = torch
        self._torch_defaults = (torch.get_default_dtype(), torch.get_float32_matmul_precision())
        with _torch_defaults(torch, None), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Setting global torch default dtype")
            made = self._load(pretrained, load, keywords, model_name, random_weights)
            inner = self._calculator(made, chosen, calculator_options)
            self._torch_defaults = (torch.get_default_dtype(), torch.get_float32_matmul_precision())
        notes = f"precision {precision}, {'compiled' if compile else 'eager'}"
        if random_weights:
            notes = f"untrained: random weights, the numbers of this force field mean nothing but its speed; {notes}"
        super().__init__(inner, model_name, chosen, notes)

    def _run_in_engine(
        self,
        name: str,
        device: str | None,
        precision: str,
        weights_path: str | os.PathLike[str] | None,
        random_weights: bool,
        uncertainty: bool,
    ) -> None:
        model = _untrained_orb(name) if random_weights else _native_orb(name, weights_path)
        chosen = str(parse_device(device)) if device in (None, "auto") else str(device)
        inner_precision = {"float32-high": "tf32" if chosen.startswith("cuda") else "float32", "float32-highest": "float32"}
        inner = StudentCalculator(model, device=chosen, precision=inner_precision.get(precision, precision), uncertainty=uncertainty)
        notes = f"precision {precision}, in this project's own engine"
        if random_weights:
            notes = f"untrained: random weights, the numbers of this force field mean nothing but its speed; {notes}"
        self._torch = None
        super().__init__(inner, name, inner.device, notes)

    @staticmethod
    def _load(pretrained: Any, load: Any, keywords: dict[str, Any], name: str, random_weights: bool) -> Any:
        if random_weights:
            with _without_weights(pretrained):
                return load(**{**keywords, "weights_path": ""})
        try:
            return load(**keywords)
        except Exception as problem:
            folders = ", ".join(str(folder / f"{name}*.ckpt") for folder in model_folders())
            raise MlffFileError(
                f"{name}: orb_models could not load its weights ({type(problem).__name__}: {problem}). Looked for: {folders}, then "
                "orb_models' own download and its cache. Put the checkpoint there or pass weights_path=; "
                "random_weights=True measures speed without them"
            ) from problem

    def _placed(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._torch is None else _torch_defaults(self._torch, self._torch_defaults)

    @staticmethod
    def _calculator(made: Any, device: str, options: dict[str, Any]) -> Any:
        if isinstance(made, tuple):  # 0.6 and newer: a model and its adapter
            module = importlib.import_module("orb_models.forcefield.inference.calculator")
            return module.ORBCalculator(*made, device=device, **options)
        module = importlib.import_module("orb_models.forcefield.calculator")
        return module.ORBCalculator(made, device=device, **options)


def _untrained_orb(name: str) -> Model:
    """A published Orb, with random weights."""
    if not name.startswith("orb-") or name == "orb-v1":
        raise MlffUsageError(f"model {name!r}: our engine has Orb-v2 and Orb-v3, as 'orb-v2' or 'orb-v3-conservative-inf-omat'")
    return Model.create(name)


def _native_orb(name: str, weights_path: str | os.PathLike[str] | None) -> Model:
    """The model file or the checkpoint of an Orb."""
    path = pathlib.Path(weights_path) if weights_path is not None else None
    if path is not None and not path.is_file():
        raise MlffFileError(f"{path}: there is no such checkpoint")
    if path is None and _find_weights([f"{name}.safetensors"]) is None:
        path = _find_weights([f"{name}*.ckpt"])
    if path is None:
        return Model.load(name)  # its error says where the weights are published
    return Model.load(path) if path.suffix == ".safetensors" else Model.import_orb(path)


@contextmanager
def _torch_defaults(torch: Any, values: tuple[Any, str] | None) -> Iterator[None]:
    """Torch's default dtype and its precision of products in float32: `values` inside, what they were before outside."""
    before = torch.get_default_dtype(), torch.get_float32_matmul_precision()

    def put(dtype: Any, precision: str) -> None:
        torch.set_default_dtype(dtype)
        torch.set_float32_matmul_precision(precision)

    if values is not None:
        put(*values)
    try:
        yield
    finally:
        put(*before)


@contextmanager
def _without_weights(pretrained: Any) -> Iterator[None]:
    """Lets orb_models build a model as it does, and leaves out the reading of weights."""
    loader = getattr(pretrained, "load_model", None)
    set_precision = getattr(pretrained, "set_torch_precision", None)
    if loader is None or set_precision is None:
        raise MlffUsageError("random_weights: this version of orb_models builds its models in a way that is not known here")

    def leave_as_made(model: Any, weights_path: Any, device: Any = None, **others: Any) -> Any:
        model = model.to(set_precision(others["precision"])).to(device).train(False)
        if others["compile"]:
            model.compile(mode="default", dynamic=True)
        if hasattr(model, "prepare_for_inference"):  # from 0.6 on
            model.prepare_for_inference()
        for parameter in model.parameters():
            parameter.requires_grad = False
        return model

    pretrained.load_model = leave_as_made
    try:
        yield
    finally:
        pretrained.load_model = loader


# ---- FeNNol --------------------------------------------------------------------------------------------------------

_FENNOL_FILES = {"ani2x": ["ani2x*.fnx"], "ani-2x": ["ani2x*.fnx", "ani-2x*.fnx"], "ani1x": ["ani1x*.fnx"]}


class FeNNolCalculator(_Teacher):
    """ANI-2x and other models of the package fennol.

    It computes what is asked for: energy, energy and forces, or these and the stress, each a program of its own to compile.
    Where fennol is not installed, ANI models run in this project's own engine, with a warning; `profile_notes` says so.

    Args:
        model_path: a .fnx file.
        model_name: "ani2x", …: NAME*.fnx in the folders above; instead of `model_path`.
        device: "cuda", "cuda:1", "cpu"; None: what JAX prefers.
        precision: "float32" or "float64".
        gpu_preprocessing: neighbor lists on the GPU (fennol's own default is a list on the CPU, quadratic in atoms); None:
            on where the device is a GPU.
        matmul_precision: "default", "high", "highest": of products in float32.
        calculator_options: handed to FENNIXCalculator ("use_atom_padding", "energy_terms").

    Raises:
        ImportError: fennol is not installed and the model is none that our engine runs; the text says how to install it.
        MlffDeviceError: a GPU was asked for and JAX sees none.
        MlffFileError: there is no such model file; the text says where it belongs.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        model_name: str | None = None,
        device: str | None = "cuda",
        precision: str = "float32",
        gpu_preprocessing: bool | None = None,
        matmul_precision: str = "highest",
        **calculator_options: Any,
    ) -> None:
        if precision not in ("float32", "float64"):
            raise MlffUsageError(f"precision {precision!r}: expected 'float32' or 'float64'")
        if (model_path is None) == (model_name is None):
            raise MlffUsageError("FeNNolCalculator: give model_path= or model_name=, one of them")
        try:
            module = _import(
                "fennol.ase",
                "FeNNolCalculator",
                "pip install fennol 'jax[cuda12]' (or jax alone for the CPU). ANI models run without it in this project's own engine: "
                "`mlff import ani2x.fnx -o ani2x.safetensors`, then StudentCalculator('ani2x.safetensors'); with random "
                "weights, to measure speed: `mlff profile fennol-ani2x --random-weights`, or StudentCalculator(Model.create('ani'))",
            )
        except ImportError as missing:
            self._device = None
            path = self._path(model_path, model_name, missing)
            given = [name for name in calculator_options if name != "use_atom_padding"]  # which changes no result
            if given:
                raise ImportError(f"{missing}. Our own engine has no option {', '.join(given)}") from None
            self._run_in_engine(path, device, precision, missing)
            return
        path = self._path(model_path, model_name)
        self._device = _jax_device(device)
        on_gpu = self._device is not None and self._device.platform != "cpu"
        if precision == "float64":
            importlib.import_module("jax").config.update("jax_enable_x64", True)
        with self._placed():
            inner = module.FENNIXCalculator(
                str(path),
                gpu_preprocessing=on_gpu if gpu_preprocessing is None else gpu_preprocessing,
                use_float64=precision == "float64",
                matmul_prec=matmul_precision,
                **calculator_options,
            )
        super().__init__(inner, path.stem, "cuda" if on_gpu else "cpu", f"{precision}, matrix products {matmul_precision}")

    def _run_in_engine(self, path: pathlib.Path, device: str | None, precision: str, missing: ImportError) -> None:
        try:
            inner = StudentCalculator(Model.import_ani(path), device=device or "auto", precision=precision)
        except MlffDeviceError:
            raise
        except MlffError as problem:
            raise ImportError(f"{missing}. Our own engine does not run this model: {problem}") from None
        warnings.warn(
            f"{path.name} runs in this project's own engine, because the package fennol cannot be imported", MlffWarning, stacklevel=3
        )
        super().__init__(inner, path.stem, inner.device, f"{precision}, in this project's own engine (fennol is not installed)")

    @staticmethod
    def _path(
        model_path: str | os.PathLike[str] | None, model_name: str | None, missing: ImportError | None = None
    ) -> pathlib.Path:
        patterns = _FENNOL_FILES.get(model_name or "", [f"{model_name}*.fnx"])
        path = pathlib.Path(model_path) if model_path is not None else _find_weights(patterns)
        if path is not None and path.is_file():
            return path
        if missing is not None:
            raise missing
        folders = ", ".join(str(folder / patterns[0]) for folder in model_folders())
        where = f"{path}: there is no such file" if model_path is not None else f"{model_name}: no weights; looked for {folders}"
        raise MlffFileError(
            f"{where}. FeNNol's repositories hold .fnx files (examples/md/ani2x.fnx, FeNNol-PMC); put one there or pass model_path="
        )

    def _placed(self) -> AbstractContextManager[Any]:
        device = getattr(self, "_device", None)
        if device is None:
            return nullcontext()
        context: AbstractContextManager[Any] = importlib.import_module("jax").default_device(device)
        return context


def _jax_device(device: str | None) -> Any:
    if device is None:
        return None
    jax = importlib.import_module("jax")
    kind, _, index = device.partition(":")
    try:
        found = jax.devices("gpu" if kind == "cuda" else kind)
    except RuntimeError:
        found = []
    number = int(index) if index.isdigit() else 0
    if number >= len(found):
        raise MlffDeviceError(f"FeNNolCalculator: device {device!r} was asked for and JAX has {len(found)} of them; use device='cpu'")
    return found[number]
