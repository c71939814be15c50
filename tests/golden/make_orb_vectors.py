#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/golden/orb: checkpoints of small Orb models with random weights, written by orb-models' own modules, and what
orb-models computes with them in float64.

    python -m venv VENV && VENV/bin/pip install orb-models==0.5.5 && VENV/bin/python tests/golden/make_orb_vectors.py

The widths are small so that the files are; the equations do not depend on them."""

import json
import sys
from functools import partial
from pathlib import Path

import ase
import ase.build
import numpy as np
import torch

torch.set_default_dtype(torch.float64)  # before the modules are made: they keep constants of their own

from orb_models.forcefield import forcefield_heads as heads  # noqa: E402
from orb_models.forcefield.angular import SphericalHarmonics  # noqa: E402
from orb_models.forcefield.atomic_system import SystemConfig, ase_atoms_to_atom_graphs  # noqa: E402
from orb_models.forcefield.conservative_regressor import ConservativeForcefieldRegressor  # noqa: E402
from orb_models.forcefield.direct_regressor import DirectForcefieldRegressor  # noqa: E402
from orb_models.forcefield.featurization_utilities import gaussian_basis_function  # noqa: E402
from orb_models.forcefield.gns import MoleculeGNS  # noqa: E402
from orb_models.forcefield.nn_util import ChargeSpinConditioner  # noqa: E402
from orb_models.forcefield.rbf import BesselBasis  # noqa: E402

F, H, HEAD, LAYERS = 16, 24, 20, 2


def head(kind, activation, **more):
    return kind(latent_dim=F, num_mlp_layers=1, mlp_hidden_dim=HEAD, activation=activation, **more)


def network(v2, conditioned):
    common = dict(
        latent_dim=F, num_message_passing_steps=LAYERS, num_mlp_layers=2, mlp_hidden_dim=H, use_embedding=True,
        interaction_params={"distance_cutoff": True, "attention_gate": "sigmoid"},
        node_feature_names=["feat"], edge_feature_names=["feat"],
    )  # fmt: skip
    if v2:
        rbf = partial(gaussian_basis_function, num_bases=20, radius=10.0)
        return MoleculeGNS(rbf_transform=rbf, activation="ssp", mlp_norm="layer_norm", **common)
    return MoleculeGNS(
        rbf_transform=BesselBasis(r_max=6.0, num_bases=8),
        angular_transform=SphericalHarmonics(lmax=3, normalize=True, normalization="component"),
        outer_product_with_cutoff=True, conditioner=ChargeSpinConditioner(F) if conditioned else None,
        activation="silu", mlp_norm="rms_norm", **common,
    )  # fmt: skip


def model(name, max_neighbors):
    v2, conditioned = name == "v2", "omol" in name
    activation = "ssp" if v2 else "silu"
    config = SystemConfig(radius=6.0, max_num_neighbors=max_neighbors)
    parts = {"energy": head(heads.EnergyHead, activation, predict_atom_avg=True)}
    if "conservative" in name:
        parts["confidence"] = head(heads.ConfidenceHead, activation)
        return ConservativeForcefieldRegressor(
            heads=parts, model=network(v2, conditioned), ensure_grad_loss_weights=False, pair_repulsion=True,
            system_config=config, has_stress=True,
        )  # fmt: skip
    parts["forces"] = head(heads.ForceHead, activation, remove_mean=True, remove_torque_for_nonpbc_systems=True)
    if v2:
        parts["stress"] = head(heads.GraphHead, activation, target="stress", node_aggregation="mean")
    else:
        parts["confidence"] = head(heads.ConfidenceHead, activation)
        if not conditioned:
            parts["stress"] = head(heads.StressHead, activation, node_aggregation="mean")
    return DirectForcefieldRegressor(heads=parts, model=network(v2, conditioned), pair_repulsion=not v2, system_config=config)


def randomize(made, generator):
    """Norms, normalizers and reference energies off their initial values, so that leaving one out shows."""
    for key, value in made.state_dict().items():
        noise = torch.rand(value.shape, generator=generator) if value.is_floating_point() else None
        if "running_mean" in key or "reference" in key:
            value.copy_(2 * noise - 1)
        elif "running_var" in key or "layer_norm.weight" in key:
            value.copy_(0.5 + noise)
        elif "layer_norm.bias" in key:
            value.copy_(noise - 0.5)


def rattled(atoms, seed, amplitude=0.15):
    atoms.positions += np.random.default_rng(seed).normal(0, amplitude, atoms.positions.shape)
    return atoms


def systems():
    ethanol = rattled(ase.build.molecule("CH3CH2OH"), 1, 0.03)
    triclinic = ase.Atoms(
        "SiOC", scaled_positions=[[0.05, 0.1, 0.02], [0.4, 0.55, 0.45], [0.7, 0.3, 0.8]],
        cell=[[3.1, 0.1, 0.0], [0.7, 3.4, -0.2], [-0.5, 0.6, 3.9]], pbc=True,
    )  # fmt: skip
    found = {
        "ethanol": ethanol,
        "carbon dioxide, on a line": ase.build.molecule("CO2"),
        "short bonds": ase.Atoms("NHF", positions=[[0, 0, 0], [0.4, 0.3, 0.1], [-0.2, 0.9, 0.3]]),
        "one atom": ase.Atoms("Na", positions=[[0.1, 0.2, 0.3]]),
        "no edges": ase.Atoms("OAr", positions=[[0, 0, 0], [0.3, 0.2, 7.5]]),
        "crystal, thermally displaced": rattled(ase.build.bulk("NaCl", "rocksalt", a=5.64, cubic=True), 2),
        "triclinic, self images": triclinic,
        "one atom of a crystal": ase.Atoms("Al", positions=[[5.3, -2.1, 0.4]], cell=[[2.9, 0, 0], [0.2, 3.0, 0], [0.1, -0.3, 3.2]], pbc=True),
        "outside of its cell": rattled(ase.build.bulk("Si", "diamond", a=5.43), 3),
    }  # fmt: skip
    found["outside of its cell"].positions += [7.0, -11.0, 3.0]
    for k, atoms in enumerate(found.values()):
        atoms.info.update(charge=float(k % 3 - 1), spin=float(k % 4))
    return found


def evaluate(made, atoms):
    graph = ase_atoms_to_atom_graphs(atoms, made.system_config, device=torch.device("cpu"))
    out = {k: v.detach().numpy() for k, v in made.predict(graph).items()}
    prefix = "grad_" if "grad_forces" in out else ""
    record = {
        "numbers": atoms.numbers.tolist(), "positions": atoms.positions.ravel().tolist(),
        "charge": atoms.info["charge"], "spin": atoms.info["spin"],
        "energy": float(out["energy"].ravel()[0]), "forces": out[prefix + "forces"].ravel().tolist(),
    }  # fmt: skip
    if atoms.pbc.any():
        record["cell"] = atoms.cell.array.ravel().tolist()
        if prefix + "stress" in out:
            record["stress"] = out[prefix + "stress"].ravel().tolist()
    if "confidence" in out:
        record["confidence of atom 0"] = out["confidence"][0].tolist()
    return record


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "orb"
    folder.mkdir(exist_ok=True)
    for seed, name in enumerate(["v2", "v3-direct", "v3-conservative", "v3-direct-omol", "v3-conservative-omol"]):
        torch.manual_seed(seed)
        made = model(name, 20)
        randomize(made, torch.Generator().manual_seed(seed))
        state = made.state_dict()
        for key, value in state.items():
            if value.dtype == torch.float64 and "rbf" not in key:
                state[key] = value.float()
        made.load_state_dict(state)
        if name == "v2":  # as the files of 2024
            old = {"heads.forces.": "node_head.", "heads.energy.": "graph_head.", "heads.stress.": "stress_head."}
            for key in list(state):
                for new, prefix in old.items():
                    if key.startswith(new):
                        state[prefix + key[len(new) :].replace("normalizer", "normaliser")] = state.pop(key)
        torch.save(state, folder / f"orb-{name}.ckpt")
        made.eval()
        caps = [20] if "omol" in name else [20, 120]
        records = {}
        for cap in caps:
            made._system_config = SystemConfig(radius=6.0, max_num_neighbors=cap)
            records[str(cap)] = {title: evaluate(made, atoms) for title, atoms in systems().items()}
        (folder / f"orb-{name}.json").write_text(json.dumps({"max_neighbors": records}, indent=0) + "\n")
        print(name, sum(p.numel() for p in made.parameters()), "parameters")


main()
