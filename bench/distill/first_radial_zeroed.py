#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A PaiNN whose first radial functions have no weight.

Usage: first_radial_zeroed.py MODEL.safetensors OUT.safetensors N

Radial functions with centers below the shortest distance of the training data are hardly trained, and long trainings make their weights large: there
the model diverges. OUT has zero in place of the filters' weights of the first N; train it again."""
import json
import sys

import numpy as np

WEIGHT = "representation.filter_net.weight"


def main():
    model, output, n_zeroed = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with open(model, "rb") as file:
        content = bytearray(file.read())
    data = 8 + int.from_bytes(content[:8], "little")
    try:
        tensor = json.loads(content[8:data])[WEIGHT]
    except (ValueError, KeyError):
        sys.exit(f"{model}: not a model file of a PaiNN (safetensors with {WEIGHT})")
    begin, end = (data + offset for offset in tensor["data_offsets"])
    weights = np.frombuffer(bytes(content[begin:end]), "<f4").reshape(tensor["shape"]).copy()
    print("root mean square of the weights of each:", " ".join(f"{x:.2f}" for x in np.sqrt((weights**2).mean(0))))
    weights[:, :n_zeroed] = 0
    content[begin:end] = weights.tobytes()
    with open(output, "wb") as file:
        file.write(content)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main()
