#!/usr/bin/env python3
"""Trains the samples for 20 steps and compares their losses with PyTorch's (goldens/curves.json).

    tests/parity/compare_curves.py --build build [--mesh dp=2,pp=2 ...]

Python's standard library only. Exit status 77 where no data set is present, 1 where a loss differs by more than 1e-5.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = {"digits": ROOT / "samples/data/digits", "text": ROOT.parent / "shared/data/text"}
TOLERANCE = 1e-5


def losses(build, curve, mesh):
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as metrics:
        subprocess.run(
            [build / "bin" / curve["program"], "train", "--data", DATA[curve["data"]], "--mesh", mesh, "--steps",
             str(len(curve["losses"])), "--metrics", metrics.name, *curve["arguments"]],
            check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        records = [json.loads(line) for line in open(metrics.name)]
    return [record["loss"] for record in records if "step" in record and "loss" in record]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--mesh", nargs="*", default=["dp=1"])
    options = parser.parse_args()
    compared, failed = 0, 0
    for name, curve in json.loads((ROOT / "tests/parity/goldens/curves.json").read_text()).items():
        if curve is None or not DATA[curve["data"]].exists():
            print(f"{name}: skipped, there is no {curve['data'] if curve else 'golden'}")
            continue
        for mesh in options.mesh:
            found = losses(options.build.resolve(), curve, mesh)
            same = len(found) == len(curve["losses"])
            worst = max(abs(a - b) / abs(b) for a, b in zip(found, curve["losses"])) if same else float("inf")
            print(f"{name} {mesh}: worst relative difference {worst:.1e} in {len(found)} steps")
            compared, failed = compared + 1, failed + (not worst <= TOLERANCE)
    return 77 if compared == 0 else int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
