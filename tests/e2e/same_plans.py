#!/usr/bin/env python3
"""Checks that two builds compile the same plans: four samples under eight options, byte by byte.

For changes that must not change a plan. Where the bytes differ, the first lines of `cleave diff` are shown. Exit status: 0 all
plans are the same, 1 one differs.

same_plans.py BUILD_BEFORE BUILD_AFTER
"""
import argparse
import os
import subprocess
import sys
import tempfile

SAMPLES = ["mlp", "convnet", "resnet", "gpt --layers 4 --width 64 --heads 4 --context 32 --batch 8"]
OPTIONS = ["", "--mesh dp=2", "--mesh tp=2", "--mesh pp=2 --microbatches 2", "--mesh dp=2,tp=2",
           "--mesh dp=2,tp=2,pp=2 --microbatches 4 --schedule 1f1b", "--mesh dp=2 --precision bf16 --opt-level O2",
           "--backend cuda --target sm_90 --mesh dp=2,tp=2 --precision bf16 --opt-level O2"]


def plan(build, words, file):
    """Compiles a plan; the exit status."""
    program, *rest = words.split()
    return subprocess.run([os.path.join(build, "bin", program), "plan", *rest, "-o", file], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode


def compare(before, after, words, folder):
    """What differs; "" where nothing does."""
    files = [os.path.join(folder, name) for name in ("before.plan", "after.plan")]
    statuses = [plan(build, words, file) for build, file in zip((before, after), files)]
    if statuses[0] != statuses[1]:
        return f"status {statuses[0]} before, {statuses[1]} after"
    if statuses[0]:
        return "" if statuses[0] == 2 else f"both builds fail with status {statuses[0]}"
    with open(files[0], "rb") as a, open(files[1], "rb") as b:
        if a.read() == b.read():
            return ""
    shown = subprocess.run([os.path.join(after, "bin", "cleave"), "diff", *files], capture_output=True, text=True)
    return "\n  ".join(["the plans differ:", *(shown.stdout + shown.stderr).splitlines()[:5]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", metavar="BUILD_BEFORE")
    parser.add_argument("after", metavar="BUILD_AFTER")
    given = parser.parse_args()
    different = 0
    cases = [f"{sample} {options}".strip() for sample in SAMPLES for options in OPTIONS]
    with tempfile.TemporaryDirectory() as folder:
        for words in cases:
            problem = compare(given.before, given.after, words, folder)
            if problem:
                different += 1
                print(f"{words}: {problem}")
    print(f"{len(cases)} plans compared, {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
