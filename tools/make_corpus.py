#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the seeds under tests/fuzz/corpus/{pickle,safetensors,schnetpack}: small files as torch.save and SchNetPack
write them, and broken ones, from nothing but this script (standard library, same bytes each time).

tests/unit/test_schnetpack.c and tests/fuzz/replay.c read them.
Usage: tools/make_corpus.py [FOLDER]"""
import collections
import io
import json
import math
import os
import pickle
import random
import struct
import sys
import types
import zipfile

FOLDER = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "tests", "fuzz", "corpus")
F, L, K, SPECIES = 4, 2, 3, 10
HARNESS_SIZES = {4, 8, 12, 16, 32, 40, 48, 64, 96, 128, 144, 160, 192, 288}  # in tests/fuzz/fuzz_schnetpack.c


def named(path, base=object):
    """A class or function that pickles under this name, although no such module is installed."""
    module, name = path.rsplit(".", 1)
    if hasattr(sys.modules.get(module), name):
        return getattr(sys.modules[module], name)
    parts = module.split(".")
    for i in range(len(parts)):
        sys.modules.setdefault(".".join(parts[: i + 1]), types.ModuleType(".".join(parts[: i + 1])))
    made = type(name, (base,), {"__module__": module, "__qualname__": name})
    setattr(sys.modules[module], name, made)
    return made


FLOAT, DOUBLE, HALF, LONG = (named(f"torch.{t}Storage") for t in ("Float", "Double", "Half", "Long"))
CODES = {FLOAT: "f", DOUBLE: "d", HALF: "e", LONG: "q"}
REBUILD_TENSOR = named("torch._utils._rebuild_tensor_v2")
REBUILD_PARAMETER = named("torch._utils._rebuild_parameter")
DENSE = named("schnetpack.nn.base.Dense")
IDENTITY = named("torch.nn.modules.linear.Identity")
LIST = named("torch.nn.modules.container.ModuleList")
SEQUENTIAL = named("torch.nn.modules.container.Sequential")
SILU = named("torch.nn.functional.silu")
SOFTPLUS = named("schnetpack.nn.activations.shifted_softplus")


class Storage:
    def __init__(self, kind, values, claimed=None, key=None):
        self.kind, self.values, self.claimed, self.key = kind, values, claimed, key


class Tensor:
    """Pickles as torch's tensors do."""

    def __init__(self, shape, values, kind=FLOAT, stride=None, offset=0, claimed=None, parameter=False):
        self.storage = Storage(kind, values, claimed)
        if stride is None:
            stride = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
        self.shape, self.stride, self.offset, self.parameter = tuple(shape), tuple(stride), offset, parameter

    def __reduce__(self):
        arguments = (self.storage, self.offset, self.shape, self.stride, False, collections.OrderedDict())
        if not self.parameter:
            return REBUILD_TENSOR, arguments
        plain = Tensor(self.shape, None, stride=self.stride, offset=self.offset)
        plain.storage = self.storage
        return REBUILD_PARAMETER, (plain, True, collections.OrderedDict())


class Pickler(pickle._Pickler):
    """The one in Python, which believes __reduce__ when it says that a class is a function."""

    def __init__(self, file, protocol):
        super().__init__(file, protocol)
        self.storages = []

    def persistent_id(self, thing):
        if not isinstance(thing, Storage):
            return None
        if thing.key is None:
            thing.key = str(len(self.storages))
            self.storages.append(thing)
        n = len(thing.values) if thing.claimed is None else thing.claimed
        return ("storage", thing.kind, thing.key, "cpu", n)


def module(path_or_class, parameters=None, buffers=None, modules=None, **attributes):
    made = (named(path_or_class) if isinstance(path_or_class, str) else path_or_class)()
    made.__dict__.update(training=False, _parameters=parameters or {}, _buffers=buffers or {}, _forward_hooks=collections.OrderedDict(),
                         _non_persistent_buffers_set=set(), _modules=modules or {})
    made.__dict__.update(attributes)
    return made


def listed(items, kind=LIST):
    return module(kind, modules={str(i): item for i, item in enumerate(items)})


class Model:
    """A PaiNN of F features and L layers as SchNetPack pickles it. Options change one thing each."""

    def __init__(self, **options):
        self.random = random.Random(7)
        self.options = options

    def option(self, name, default=None):
        return self.options.get(name, default)

    def parameter(self, *shape):
        n = math.prod(shape)
        return Tensor(shape, [self.random.uniform(-0.5, 0.5) for _ in range(n)], parameter=True)

    def dense(self, out, n_in, activation=None, bias=True):
        state = dict(parameters={"weight": self.parameter(out, n_in), "bias": self.parameter(out) if bias else None},
                     in_features=n_in, out_features=out)
        if activation is None:
            return module(DENSE, modules={"activation": module(IDENTITY)}, **state)
        return module(DENSE, activation=activation, **state)

    def message(self, activation):
        return module("schnetpack.representation.painn.PaiNNInteraction", modules={
            "interatomic_context_net": listed([self.dense(F, F, activation), self.dense(3 * F, F)], SEQUENTIAL)}, n_atom_basis=F)

    def mixing(self, activation):
        return module("schnetpack.representation.painn.PaiNNMixing", modules={
            "intraatomic_context_net": listed([self.dense(F, 2 * F, activation), self.dense(3 * F, F)], SEQUENTIAL),
            "mu_channel_mix": self.dense(2 * F, F, bias=False)}, n_atom_basis=F, epsilon=1e-8)

    def radial(self):
        if self.option("bessel"):
            return module("schnetpack.nn.radial.BesselRBF", buffers={"freqs": Tensor([K], [(k + 1) * math.pi / 5 for k in range(K)])}, n_rbf=K)
        return module("schnetpack.nn.radial.GaussianRBF", buffers={"widths": Tensor([K], [2.5] * K), "offsets": Tensor([K], [0, 2.5, 5.0])},
                      n_rbf=self.option("n_rbf", K))

    def cutoff(self):
        if self.option("mollifier"):
            return module("schnetpack.nn.cutoff.MollifierCutoff", buffers={"cutoff": Tensor([1], [5.0]), "eps": Tensor([1], [1e-7])})
        return module("schnetpack.nn.cutoff.CosineCutoff", buffers={"cutoff": Tensor([1], [5.0])})

    def representation(self):
        activation = self.option("activation", SILU)
        shared = self.option("shared_interactions")
        messages = [self.message(activation)] * L if shared else [self.message(activation) for _ in range(L)]
        mixings = [self.mixing(activation)] * L if shared else [self.mixing(activation) for _ in range(L)]
        filters = 1 if self.option("shared_filters") else L
        return module(self.option("representation", "schnetpack.representation.painn.PaiNN"), modules={
            "cutoff_fn": self.cutoff(), "radial_basis": self.radial(),
            "embedding": module("torch.nn.modules.sparse.Embedding", {"weight": self.parameter(SPECIES, F)}, num_embeddings=SPECIES,
                                embedding_dim=F, max_norm=None),
            "electronic_embeddings": listed([module(x) for x in self.option("electronic", [])]),
            "filter_net": self.dense(filters * 3 * F, K), "interactions": listed(messages), "mixing": listed(mixings)},
            n_atom_basis=self.option("n_features", F), n_interactions=self.option("n_layers", L), share_filters=filters == 1,
            cutoff=Tensor([1], [5.0]))

    def postprocessors(self):
        made = [module("schnetpack.transform.casting.CastTo64", type_map={"float32": "float64"})]
        atomref = Tensor([SPECIES], [float(z) for z in range(SPECIES)])
        made.append(module("schnetpack.transform.atomistic.AddOffsets", buffers={"atomref": atomref, "mean": Tensor([], [-12.5], DOUBLE)},
                           _property="energy", add_mean=True, add_atomrefs=bool(self.option("atomref")),
                           is_extensive=not self.option("intensive")))
        if self.option("scale"):
            made.append(module("schnetpack.transform.atomistic.ScaleProperty", buffers={"scale": Tensor([], [self.option("scale")])},
                               input_key="energy", output_key="energy"))
        return made + [module(x) for x in self.option("postprocessors", [])]

    def make(self):
        head = module("schnetpack.atomistic.atomwise.Atomwise", modules={
            "outnet": listed([self.dense(2, F, self.option("readout_activation", self.option("activation", SILU))), self.dense(1, 2)],
                             SEQUENTIAL)}, output_key="energy", n_out=1, aggregation_mode=self.option("aggregation", "sum"))
        forces = module("schnetpack.atomistic.response.Forces", energy_key="energy", force_key="forces")
        model = module("schnetpack.model.base.NeuralNetworkPotential", modules={
            "postprocessors": listed(self.postprocessors()), "representation": self.representation(),
            "input_modules": listed([module("schnetpack.atomistic.distances.PairwiseDistances")]),
            "output_modules": listed([head, forces] + [module(x) for x in self.option("outputs", [])])},
            do_postprocessing=True, input_dtype_str="float32", spk_version="2.1.1")
        change = self.option("change")
        if change:
            change(model)
        return model


def dumps(thing, protocol=2):
    file = io.BytesIO()
    pickler = Pickler(file, protocol)
    pickler.dump(thing)
    return file.getvalue(), pickler.storages


def archive(data, storages, byteorder=b"little", root="best_model", compression=zipfile.ZIP_STORED, cut=(), more=()):
    file = io.BytesIO()
    entries = [("data.pkl", data)] + ([("byteorder", byteorder)] if byteorder else [])
    for storage in storages:
        code = CODES.get(storage.kind, "f")
        raw = struct.pack(f"<{len(storage.values)}{code}", *storage.values)
        entries.append((f"data/{storage.key}", raw[:-4] if storage.key in cut else raw))
    with zipfile.ZipFile(file, "w") as z:
        for name, raw in entries + list(more):
            info = zipfile.ZipInfo(f"{root}/{name}" if root and "/data.pkl" not in name else name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = compression
            z.writestr(info, raw)
    return file.getvalue()


def save(kind, name, data):
    folder = os.path.join(FOLDER, kind)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def save_model(name, protocol=2, zip_options=None, **options):
    data, storages = dumps(Model(**options).make(), protocol)
    save("schnetpack", name, archive(data, storages, **(zip_options or {})))


def members(model, path):
    """Dictionary and key of a parameter, buffer or module, by its dotted name."""
    *way, last = path.split(".")
    for step in way:
        model = model._modules[step]
    for group in (model._parameters, model._buffers, model._modules):
        if last in group:
            return group, last
    return model._buffers, last


def put(path, thing):
    def change(model):
        group, key = members(model, path)
        group[key] = thing
    return change


FIRST_BIAS = "representation.interactions.0.interatomic_context_net.0.bias"
FIRST_WEIGHT = "representation.interactions.0.interatomic_context_net.0.weight"


def schnetpack_seeds():
    save_model("good")
    save_model("atomref", atomref=True)
    save_model("scaled", atomref=True, scale=2.0)
    save_model("protocol4", protocol=4)
    save_model("other", bessel=True, mollifier=True, shared_filters=True, shared_interactions=True, activation=SOFTPLUS)

    def transposed(model):
        group, key = members(model, FIRST_WEIGHT)
        values = group[key].storage.values
        group[key] = Tensor([F, F], [0.0] + [values[r * F + c] for c in range(F) for r in range(F)], stride=[1, F], offset=1)
    save_model("transposed", change=transposed)
    save_model("half", change=put(FIRST_BIAS, Tensor([F], [0.5, -0.25, 2.0**-20, 1.5], HALF)))
    save_model("double", change=put(FIRST_BIAS, Tensor([F], [0.1, 0.2, 0.3, 0.4], DOUBLE)))

    save_model("bad-compressed", zip_options=dict(compression=zipfile.ZIP_DEFLATED))
    save_model("bad-endian", zip_options=dict(byteorder=b"big"))
    save_model("bad-two-pickles", zip_options=dict(more=[("other/data.pkl", b"N.")]))
    save_model("bad-torchscript", zip_options=dict(more=[("constants.pkl", b"N.")]))
    save_model("bad-cut", zip_options=dict(cut=("5",)))
    save("schnetpack", "bad-no-pickle", archive(b"N.", [], root=""))
    save_model("bad-class", representation="schnetpack.representation.schnet.SchNet")
    save_model("bad-activation", activation=named("torch.nn.functional.gelu"))
    save_model("bad-two-activations", readout_activation=SOFTPLUS)
    save_model("bad-intensive", intensive=True)
    save_model("bad-average", aggregation="avg")
    save_model("bad-electronic", electronic=["schnetpack.nn.embedding.ElectronicEmbedding"])
    save_model("bad-output", outputs=["schnetpack.atomistic.nuclear_repulsion.ZBLRepulsionEnergy"])
    save_model("bad-postprocessor", postprocessors=["schnetpack.transform.atomistic.RemoveOffsets"])
    save_model("bad-extra", change=put("representation.mixing.0.gate", Tensor([1], [1.0])))
    save_model("bad-missing", change=put(FIRST_BIAS, None))
    save_model("bad-nan", change=put(FIRST_BIAS, Tensor([F], [0.0, 0.0, math.nan, 0.0])))
    save_model("bad-shape", change=put(FIRST_WEIGHT, Tensor([F, F + 1], [0.0] * F * (F + 1))))
    save_model("bad-integers", change=put(FIRST_BIAS, Tensor([F], [1] * F, LONG)))
    save_model("bad-beyond", change=put(FIRST_BIAS, Tensor([F], [0.0] * F, offset=1)))
    save_model("bad-negative", change=put(FIRST_BIAS, Tensor([F], [0.0] * F, stride=[-1], offset=3)))
    save_model("bad-claim", change=put(FIRST_BIAS, Tensor([F], [0.0] * F, claimed=10**12)))
    save_model("bad-claim-more", change=put(FIRST_BIAS, Tensor([F], [0.0] * F, claimed=100)))
    save_model("bad-stride-bomb", change=put(FIRST_BIAS, Tensor([1 << 13] * 4, [0.0], stride=[0] * 4)))
    save_model("bad-features", n_features=10**9)
    save_model("bad-features-negative", n_features=-4)
    save_model("bad-layers", n_layers=3)
    save_model("bad-radial", n_rbf=1000)

    # os.system("false") is called and its result popped: nothing refers to it.
    data, storages = dumps(Model().make())
    save("schnetpack", "bad-popped", archive(data[:2] + b"cos\nsystem\nX\x05\0\0\0false\x85R0" + data[2:], storages))

    def itself(model):
        model._modules["representation"]._modules["interactions"] = model
    save_model("bad-itself", change=itself)
    data, storages = dumps(collections.OrderedDict(weight=Tensor([2], [1.0, 2.0])))
    save("schnetpack", "bad-state-dict", archive(data, storages))
    data, storages = dumps({"epoch": 3, "pytorch-lightning_version": "2.0", "state_dict": {"weight": Tensor([2], [1.0, 2.0])}})
    save("schnetpack", "bad-checkpoint", archive(data, storages))

    # The fuzzer mutates a bare pickle better than one in a zip: its harness gives it storages, the key being the size in bytes.
    other = dict(bessel=True, shared_filters=True, shared_interactions=True, scale=2.0, atomref=True)
    for name, options in (("pickle-gaussian", {}), ("pickle-other", other)):
        model, found = Model(**options).make(), []
        original = Pickler.persistent_id

        def by_size(self, thing):
            if isinstance(thing, Storage):
                thing.key = str(len(thing.values) * struct.calcsize(CODES[thing.kind]))
                found.append(thing.key)
            return original(self, thing)
        Pickler.persistent_id = by_size
        data, _ = dumps(model)
        Pickler.persistent_id = original
        assert set(map(int, found)) <= HARNESS_SIZES, sorted(set(map(int, found)))
        save("schnetpack", name, data)


def pickle_seeds():
    loop = [1, 2.5, None, True, "text", b"bytes", (1, 2, 3), {"key": -1}, {1, 2}, 1 << 40, -(1 << 40)]
    loop.append(loop)
    thing = collections.OrderedDict(a=1, b=[named("some.module.Class")(), named("some.module.function")])
    for protocol in (2, 3, 4, 5):
        save("pickle", f"values-{protocol}", dumps([loop, thing, (), frozenset([1]), tuple(range(10))], protocol)[0])
    save("pickle", "model", dumps(Model(bessel=True).make())[0])
    save("pickle", "nested", b"\x80\x02" + b"]" * 300 + b"a" * 299 + b".")
    save("pickle", "doubling", b"\x80\x02]q\x00" + b"".join(b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(60)) + b".")
    save("pickle", "empty", b"\x80\x02(t(lN0(d.")
    save("pickle", "marks", b"\x80\x02" + b"(" * 200 + b"t" * 200 + b".")


def safetensors(entries, metadata=None):
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, dtype, shape, values in entries:
        raw = struct.pack(f"<{len(values)}{'d' if dtype == 'F64' else 'f'}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def safetensors_seeds():
    save("safetensors", "two", safetensors([("double", "F64", [2], [1, 2]), ("matrix", "F32", [2, 3], range(6))], {"key": "väl\"ue"}))
    save("safetensors", "scalar", safetensors([("scalar", "F32", [], [1]), ("empty", "F32", [0, 4], [])]))
    save("safetensors", "no-tensors", safetensors([], {"format": "mlff"}))
    save("safetensors", "integers", safetensors([("x", "I64", [1], [1, 2])]))
    settings = dict(format="mlff", architecture="painn", n_features="2", n_layers="1", n_radial="2", cutoff="5", radial_basis="bessel",
                    cutoff_function="cosine", activation="silu", epsilon="1e-08", shared_filters="false", shared_interactions="false",
                    energy_unit="eV", energy_unit_ev="1", length_unit="Ang", length_unit_angstrom="1", elements="1,6", energy_mean="-3.5",
                    trained="false", source="corpus", source_version="1")
    message, mixing = "representation.interactions.0.interatomic_context_net", "representation.mixing.0.intraatomic_context_net"
    shapes = {"representation.embedding.weight": [8, 2], "representation.radial_basis.freqs": [2], "representation.filter_net.weight": [6, 2],
              "representation.filter_net.bias": [6], message + ".0.weight": [2, 2], message + ".0.bias": [2], message + ".1.weight": [6, 2],
              message + ".1.bias": [6], mixing + ".0.weight": [2, 4], mixing + ".0.bias": [2], mixing + ".1.weight": [6, 2],
              mixing + ".1.bias": [6], "representation.mixing.0.mu_channel_mix.weight": [4, 2], "output_modules.0.outnet.0.weight": [1, 2],
              "output_modules.0.outnet.0.bias": [1], "postprocessors.atomref": [8]}
    save("safetensors", "painn", safetensors([(n, "F32", s, [0.25 * i for i in range(math.prod(s))]) for n, s in shapes.items()], settings))


schnetpack_seeds()
pickle_seeds()
safetensors_seeds()
