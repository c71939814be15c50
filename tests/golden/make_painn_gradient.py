#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes painn_gradient.json: training gradients of small PaiNNs by the NumPy oracle below MLFF_SHARED, an implementation of its own.

Weights follow a formula, so that the test needs no model file: element k of tensor t is 0.4 sin(1.3 t + 0.7 k + 0.2).
Of each tensor's gradient the file has three sums: of all elements, and of elements times cos(k) and sin(0.3 k).
The second part is a training run with SchNetPack's recipe as PyTorch computes it: loss 0.01 MSE(E) + 0.99 MSE(F) (means over
structures and over force components), AdamW with rate 1e-3 and no decay, moving average 0.995.
Usage: MLFF_SHARED=… python3 make_painn_gradient.py > painn_gradient.json
"""
import json
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.environ["MLFF_SHARED"], "oracle"))
import painn_numpy

F, K, L, CUTOFF = 4, 5, 2, 4.0
SPECIES = np.array([6, 8, 1, 1])
POSITIONS = np.array([[0.0, 0.1, -0.2], [1.3, 0.2, 0.1], [-0.5, 0.9, 0.4], [1.7, -0.6, 0.7]])
CELL = np.array([[3.4, 0.0, 0.0], [0.6, 3.6, 0.0], [-0.4, 0.5, 3.5]])
ACROSS = range(-3, 4)


def tensors(shared):
    """Names and shapes in the order of a model file; shared interactions once."""
    rows = 3 * F if shared else 3 * F * L
    shapes = [("representation.embedding.weight", (100, F)), ("representation.filter_net.weight", (rows, K)),
              ("representation.filter_net.bias", (rows,))]
    for l in range(1 if shared else L):
        message, update = f"representation.interactions.{l}.interatomic_context_net.", f"representation.mixing.{l}."
        shapes += [(message + "0.weight", (F, F)), (message + "0.bias", (F,)), (message + "1.weight", (3 * F, F)),
                   (message + "1.bias", (3 * F,)), (update + "intraatomic_context_net.0.weight", (F, 2 * F)),
                   (update + "intraatomic_context_net.0.bias", (F,)), (update + "intraatomic_context_net.1.weight", (3 * F, F)),
                   (update + "intraatomic_context_net.1.bias", (3 * F,)), (update + "mu_channel_mix.weight", (2 * F, F))]
    out = "output_modules.0.outnet."
    return shapes + [(out + "0.weight", (F // 2, F)), (out + "0.bias", (F // 2,)), (out + "1.weight", (1, F // 2)), (out + "1.bias", (1,))]


def parameters(basis, shared):
    P = {}
    for t, (name, shape) in enumerate(sorted(tensors(shared))):
        P[name] = 0.4 * np.sin(1.3 * t + 0.7 * np.arange(np.prod(shape)) + 0.2).reshape(shape)
        for l in range(1, L if shared and (".interactions.0." in name or ".mixing.0." in name) else 1):
            P[name.replace(".0.", f".{l}.", 1)] = P[name]
    P["representation.cutoff_fn.cutoff"] = np.array([CUTOFF])
    if basis == "gaussian":
        P["representation.radial_basis.offsets"] = np.linspace(0, CUTOFF, K).astype(np.float32)
        P["representation.radial_basis.widths"] = np.full(K, CUTOFF / (K - 1)).astype(np.float32)
    else:
        P["representation.radial_basis.freqs"] = (np.arange(1, K + 1) * np.pi / CUTOFF).astype(np.float32)
    return P


def edges(cell, positions=POSITIONS):
    i, j, r = [], [], []
    images = [(a, b, c) for a in ACROSS for b in ACROSS for c in ACROSS] if cell is not None else [(0, 0, 0)]
    for a in range(len(SPECIES)):
        for b in range(len(SPECIES)):
            for image in images:
                v = positions[b] - positions[a] + (np.array(image) @ cell if cell is not None else 0)
                if (a, *image) != (b, 0, 0, 0) and np.linalg.norm(v) < CUTOFF:
                    i.append(a), j.append(b), r.append(v)
    return np.array(i), np.array(j), np.array(r)


def case(basis, shared, cell):
    P = parameters(basis, shared)
    i, j, r = edges(cell)
    c = np.cos(np.arange(4))
    v = np.sin(np.arange(12)).reshape(4, 3)
    B = 0.1 * np.cos(np.arange(9)).reshape(3, 3) if cell is not None else np.zeros((3, 3))
    model = painn_numpy.PaiNN(P, basis)
    result = model.eval(SPECIES, i, j, r, v=v[i] - v[j] + r @ B.T, c=c, pgrad=True)
    sums = {}
    for name, shape in tensors(shared):
        G = result["G"][name]
        for l in range(1, L if shared and (".interactions.0." in name or ".mixing.0." in name) else 1):
            G = G + result["G"][name.replace(".0.", f".{l}.", 1)]
        G, k = G.ravel(), np.arange(G.size)
        sums[name] = [G.sum(), G @ np.cos(k), G @ np.sin(0.3 * k), np.abs(G).sum()]
    return {"basis": basis, "shared": shared, "pairs": len(i), "cell": cell.ravel().tolist() if cell is not None else None,
            "c": c.tolist(), "v": v.ravel().tolist(), "B": B.ravel().tolist(), "energies": result["E"].tolist(), "sums": sums}


def frame(k):
    """Positions, energy and forces of labelled structure k."""
    n = np.arange(12).reshape(4, 3)
    return POSITIONS + 0.1 * np.sin(2.0 * n + k), 1.5 * np.cos(k), 0.8 * np.sin(1.1 * n + 3.0 * k)


def training(n_frames=6, batch=4, steps=100, rate=1e-3, average=0.995):
    P = parameters("gaussian", False)
    names = [name for name, _ in tensors(False)]
    m, v, ema = ({name: np.zeros_like(P[name]) for name in names} for _ in range(3))
    ema = {name: P[name].copy() for name in names}
    losses = []
    for step in range(steps):
        model, loss, total = painn_numpy.PaiNN(P, "gaussian"), 0.0, {name: 0.0 for name in names}
        for k in range(batch):
            positions, energy, forces = frame((batch * step + k) % n_frames)
            i, j, r = edges(None, positions)
            result = model.eval(SPECIES, i, j, r)
            F_now = painn_numpy.seg(i, result["g"], 4) - painn_numpy.seg(j, result["g"], 4)
            dE, dF = result["E"].sum() - energy, F_now - forces
            loss += 0.01 * dE**2 / batch + 0.99 * (dF**2).sum() / (12 * batch)
            c, w = np.full(4, 0.02 * dE / batch), 1.98 * dF / (12 * batch)
            G = model.eval(SPECIES, i, j, r, v=w[i] - w[j], c=c, pgrad=True)["G"]
            total = {name: total[name] + G[name] for name in names}
        losses.append(loss)
        for name in names:
            m[name] = 0.9 * m[name] + 0.1 * total[name]
            v[name] = 0.999 * v[name] + 0.001 * total[name] ** 2
            root = np.sqrt(v[name]) / np.sqrt(1 - 0.999 ** (step + 1)) + 1e-8
            P[name] = P[name] - rate / (1 - 0.9 ** (step + 1)) * m[name] / root
            ema[name] -= (1 - average) * (ema[name] - P[name])
    frames = [frame(k) for k in range(n_frames)]
    return {"batch": batch, "rate": rate, "average": average, "losses": losses,
            "positions": [f[0].ravel().tolist() for f in frames], "energies": [f[1] for f in frames],
            "forces": [f[2].ravel().tolist() for f in frames],
            "weights": {name: [P[name].sum(), np.abs(P[name]).sum()] for name in names},
            "averages": {name: [ema[name].sum(), np.abs(ema[name]).sum()] for name in names}}


json.dump({"n_features": F, "n_radial": K, "n_layers": L, "cutoff": CUTOFF, "species": SPECIES.tolist(),
           "positions": POSITIONS.ravel().tolist(),
           "cases": [case("gaussian", False, None), case("gaussian", False, CELL), case("bessel", False, CELL),
                     case("gaussian", True, CELL), case("bessel", True, None)], "training": training()}, sys.stdout)
print()
