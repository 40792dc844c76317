#!/usr/bin/env python3
"""Writes PyTorch's results (CPU, double) for every op and function, their gradients, and the optimizers, as JSON under
goldens/.

    python3 -m venv .venv && .venv/bin/pip install numpy torch
    .venv/bin/python tests/parity/make_goldens.py [ops] [functions] [special] [modules] [optimizers] [curves]

The tests need only the JSON. Inputs are rounded to f32 first, so that both sides start from the same numbers.
"""
import json
import math
import pathlib
import sys

import torch

FOLDER = pathlib.Path(__file__).resolve().parent / "goldens"


def numbers(tensor):
    flat = tensor.reshape(-1)
    if tensor.dtype.is_floating_point:
        return [float(f"{value:.9g}") if math.isfinite(value) else str(value) for value in flat.tolist()]
    return flat.tolist()


def array(tensor):
    return {"shape": list(tensor.shape), "data": numbers(tensor)}


def write(name, value):
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / name
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


def ops():
    from cases import CASES

    out = []
    for case in CASES:
        result, gradients = case.expected()
        out.append({
            "name": case.name,
            "ir": case.ir(),
            "floats": {**{k: array(v) for k, v in case.floats.items()}, "c": array(case.cotangent)},
            "ints": {k: array(v) for k, v in case.ints.items()},
            "result": array(result),
            "gradients": {k: array(v) for k, v in gradients.items()},
        })
    write("ops.json", out)


def functions():
    from functions import CASES

    out = []
    for case in CASES:
        result, cotangent, gradients = case.expected()
        out.append({
            "name": case.name,
            "floats": {**{k: array(v) for k, v in case.floats.items()}, "c": array(cotangent)},
            "ints": {k: array(v) for k, v in case.ints.items()},
            "result": array(result),
            "gradients": {k: array(v) for k, v in gradients.items()},
        })
    write("functions.json", out)


def special():
    from special import CASES

    short = lambda tensor: [float(f"{v:.6g}") if math.isfinite(v) else str(v) for v in tensor.reshape(-1).tolist()]
    out = []
    for case in CASES:
        kinds = []
        for kind, values in case.kinds.items():
            result, gradients = case.expected(values)
            kinds.append({
                "kind": kind,
                "values": {k: short(torch.tensor(v)) for k, v in values.items()},
                "result": short(result),
                "gradients": {k: short(v) for k, v in gradients.items()},
            })
        out.append({
            "name": case.name,
            "shapes": case.shapes,
            "others": {k: short(torch.tensor(v)) for k, v in case.others.items()},
            "ints": {k: array(v) for k, v in case.ints.items()},
            "shape": list(result.shape),
            "kinds": kinds,
        })
    write("special.json", out)


def modules():
    from modules import CASES

    out = []
    for case in CASES:
        result, gradients = case.expected()
        out.append({
            "name": case.name,
            "parameters": {k: array(v) for k, v in case.tensors.items()},
            "c": array(case.cotangent),
            "result": array(result),
            "gradients": {k: array(v) for k, v in gradients.items()},
        })
    write("modules.json", out)


def optimizers():
    from optimizers import CASES

    write("optimizers.json", [case() for case in CASES])


def curves():
    from curves import CURVES

    write("curves.json", {name: make() for name, make in CURVES.items()})


if __name__ == "__main__":
    for step in sys.argv[1:] or ["ops", "functions", "special", "modules", "optimizers"]:
        steps = {"ops": ops, "functions": functions, "special": special, "modules": modules, "optimizers": optimizers, "curves": curves}
        steps[step]()
