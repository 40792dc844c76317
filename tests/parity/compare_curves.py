#!/usr/bin/env python3
"""Trains the samples for 20 steps and compares their losses with PyTorch's (goldens/curves.json).

    tests/parity/compare_curves.py --build build [--mesh dp=2,pp=2 ...]

Python's standard library only. Exit status 1 if a loss differs by more than 1e-5 (relative). The convnet has other
tolerances: rounding may change a decision of ReLU or max-pooling, and Adam amplifies small gradients, so that one changed
decision can change the loss by 2e-4 after 17 steps (seen between builds with and without contracted products). Its first
two losses, which depend only on the first gradient, must agree within 1e-6, the others within 1e-3.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOLERANCE = 1e-5
DECIDING = {"convnet": [1e-6, 1e-6]}  # tolerances of the first losses; of the others: DECIDED
DECIDED = 1e-3


def losses(build, curve, data, mesh):
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as metrics:
        subprocess.run(
            [build / "bin" / curve["program"], "train", "--data", data[curve["data"]], "--mesh", mesh, "--steps",
             str(len(curve["losses"])), "--metrics", metrics.name, *curve["arguments"]],
            check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        records = [json.loads(line) for line in open(metrics.name)]
    return [record["loss"] for record in records if "step" in record and "loss" in record]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--mesh", nargs="*", default=["dp=1"])
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text.txt"
        text.write_bytes((ROOT / "LICENSE").read_bytes())
        data = {"digits": ROOT / "samples/data/digits", "text": text}
        for name, curve in json.loads((ROOT / "tests/parity/goldens/curves.json").read_text()).items():
            for mesh in options.mesh:
                found = losses(options.build.resolve(), curve, data, mesh)
                same = len(found) == len(curve["losses"])
                apart = [abs(a - b) / abs(b) for a, b in zip(found, curve["losses"])] if same else [float("inf")]
                print(f"{name} {mesh}: worst relative difference {max(apart):.1e} in {len(found)} steps")
                first = DECIDING.get(name, [])
                allowed = first + [DECIDED if first else TOLERANCE] * (len(apart) - len(first))
                failed += not all(a <= b for a, b in zip(apart, allowed))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
