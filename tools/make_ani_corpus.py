#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the seeds under tests/fuzz/corpus/{fnx,neurochem,safetensors/ani}: small ANI models as FeNNol and NeuroChem write them, from
nothing but this script (standard library, same bytes each time). tests/fuzz/replay.c reads them.
Usage: tools/make_ani_corpus.py [FOLDER]"""
import json
import os
import struct
import sys

FOLDER = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "tests", "fuzz", "corpus")


class Array:
    """flax's form of an array: extension 1 with shape, type and bytes."""

    def __init__(self, shape, kind="float32"):
        self.shape, self.kind = shape, kind
        n = 1
        for side in shape:
            n *= side
        self.values = [((7 * k) % 11 - 5) / 8 for k in range(n)]


def length(n, small, limit, codes):
    """A head with its length: in the code itself up to `limit`, else in 1, 2 or 4 bytes (`codes`; None: no such form)."""
    if small is not None and n <= limit:
        return bytes([small | n])
    for code, size in zip(codes, (1, 2, 4)):
        if code is not None and n < 1 << 8 * size:
            return bytes([code]) + n.to_bytes(size, "big")
    raise ValueError(n)


def pack(value):
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return bytes([value]) if 0 <= value < 128 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        text = value.encode()
        return length(len(text), 0xA0, 31, (0xD9, 0xDA, 0xDB)) + text
    if isinstance(value, bytes):
        return length(len(value), None, 0, (0xC4, 0xC5, 0xC6)) + value
    if isinstance(value, list):
        return length(len(value), 0x90, 15, (None, 0xDC, 0xDD)) + b"".join(map(pack, value))
    if isinstance(value, dict):
        return length(len(value), 0x80, 15, (None, 0xDE, 0xDF)) + b"".join(pack(k) + pack(v) for k, v in value.items())
    inner = pack([value.shape, value.kind, struct.pack(f"<{len(value.values)}f", *value.values)])
    return length(len(inner), None, 0, (0xC7, 0xC8, 0xC9)) + b"\x01" + inner


def model(species=("H", "O"), hidden=3, trained_constants=True, unit="Ha", use_bias=True):
    n = len(species)
    size = 2 * n + n * (n + 1) // 2 * 4
    widths = [size, hidden, 1]

    def layer(k):
        made = {"kernel": Array([widths[k], widths[k + 1]])}
        if use_bias:
            made["bias"] = Array([widths[k + 1]])
        return made

    parameters = {"energy": {s: {f"Layer_{k + 1}": layer(k) for k in range(2)} for s in species}}
    if trained_constants:
        parameters["self_energy"] = {"constant": Array([119])}
    return {
        "cutoff": 5.0,
        "energy_terms": ["energy", "self_energy"],
        "energy_unit": unit,
        "modules": [
            ["embedding", {
                "module_name": "ANI_AEV", "graph_key": "graph", "graph_angle_key": "graph_angle", "embedding_key": "aev",
                "species_order": list(species), "radial_eta": 16.0, "angular_eta": 8.0, "zeta": 14.1, "radial_start": 0.8,
                "angular_start": 0.8, "radial_dist_divisions": 2, "angular_dist_divisions": 2, "angle_sections": 2}],
            ["energy", {
                "module_name": "SPECIES_INDEX_NET", "activation": "partial(celu, alpha=0.1)", "use_bias": use_bias,
                "hidden_neurons": {s: [hidden] for s in species}, "input_key": "aev", "output_dim": 1,
                "species_index_key": "species_index"}],
            ["self_energy", {
                "module_name": "CHEMICAL_CONSTANT", "trainable": trained_constants, "value": {s: -0.5 for s in species}}],
        ],
        "preprocessing": [
            ["graph_filter", {"cutoff": 3.5, "graph_key": "graph_angle", "parent_graph": "graph"}],
            ["graph_angular_extension", {"graph_key": "graph_angle"}],
        ],
        "variables": {"params": parameters},
    }


def model_file():
    """The same shape as a model file of ours (safetensors)."""
    tensors = {"aev.radial_shift": [2], "aev.angular_shift": [2], "aev.angle_section": [2], "self_energy": [2]}
    for symbol in ("H", "O"):
        for layer, shape in enumerate(([3, 16], [1, 3])):
            tensors[f"member.0.{symbol}.{layer}.weight"] = shape
            tensors[f"member.0.{symbol}.{layer}.bias"] = shape[:1]
    header = {"__metadata__": {
        "format": "mlff", "architecture": "ani", "species": "H,O", "elements": "1,8", "n_members": "1", "n_radial": "2",
        "n_angular_shifts": "2", "n_angle_sections": "2", "radial_cutoff": "5", "angular_cutoff": "3.5", "eta_radial": "16",
        "eta_angular": "8", "zeta": "32", "activation": "celu_0.1", "energy_unit_ev": "27.2", "length_unit_angstrom": "1",
        "trained": "true"}}
    data = b""
    for name, shape in tensors.items():
        array = Array(shape)
        raw = struct.pack(f"<{len(array.values)}f", *array.values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


PARAMS = """TM = 1
Rcr = 5.0000e+00
Rca = 3.5000e+00
EtaR = [1.6000000e+01]
ShfR = [9.0000000e-01,1.1687500e+00]
Zeta = [3.2000000e+01]
ShfZ = [1.9634954e-01,5.8904862e-01]
EtaA = [8.0000000e+00]
ShfA = [9.0000000e-01,1.5500000e+00]
Atyp = [H,O]
"""
INPUT = """sflparamsfile=a.params
seed=7
network_setup {
    inputsize=16;
    atom_net H $
        layer [ nodes=4; activation=9; type=0; l2norm=1; l2valu=1.0000000e-06; ]
        layer [ nodes=1; activation=6; type=0; ]
    $
    atom_net O $
        layer [ nodes=5; activation=9; type=0; ]
        layer [ nodes=1; activation=6; type=0; ]
    $
}
adptlrn=OFF
"""
FILES = {
    "fnx/two": pack(model()),
    "fnx/one": pack(model(species=("C",), hidden=1, trained_constants=False)),
    "fnx/electronvolt": pack(model(unit="eV", use_bias=False)),
    "fnx/module": pack({**model(), "modules": [["embedding", {"module_name": "RACE"}]]}),
    "fnx/numbers": pack([0, 127, 128, -1, 1.5, None, True, "x" * 40, b"y" * 300, [], {}]),
    "safetensors/ani": model_file(),
    "neurochem/params": b"P" + PARAMS.encode(),
    "neurochem/energies": b"SH,0=-0.5978583943827134\nO,1=-75.19106774742086\n",
    "neurochem/input": b"I" + INPUT.encode(),
}
for name, content in FILES.items():
    path = os.path.join(FOLDER, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
