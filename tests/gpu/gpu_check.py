#!/usr/bin/env python3
"""Checks Cleave on a machine with an NVIDIA GPU: needs a bundle of scripts/gpu-bundle (it carries a copy of this program),
python3 and NVIDIA's libraries. Builds nothing and writes nothing outside a temporary folder.

usage: gpu-check [--bundle DIR] [--quick] [--only GROUP,...] [--json FILE] [--jobs N] [--budget SECONDS]
  --bundle DIR  default: the one that this program lies in, else build/gpu-bundle
  --quick       fewer precisions and splits, no compute-sanitizer, no benchmark
  --only        among: conformance, curves, graphs, splits, failures, errors, sanitizer, benchmark
  --json FILE   results as JSON too
  --jobs N      checks at a time (default: a quarter of the processors, at most 4)
  --budget S    ends within about this many seconds; what does not fit is skipped (default 530)
Prints a table and `N passed, N failed, N skipped`, then the benchmark's table.
Exit status: 0 nothing failed, 1 something did, 2 a wrong argument, 3 no bundle, no device or no library.
"""
import argparse, json, os, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
import programs
from checks import GROUPS, SKIPPED, Checks
from programs import ROOT


def fail(status, text):
    print(f"gpu-check: {text}", file=sys.stderr)
    sys.exit(status)


def summary(rows, a, found, manifest):
    """Prints the table by group and the totals, writes the JSON file, and returns the exit status."""
    counts = {result: sum(r["result"] == result for r in rows) for result in ("passed", "FAILED", SKIPPED)}
    print("\n| group | passed | failed | skipped | seconds |\n|---|---|---|---|---|")
    for group in GROUPS:
        own = [r for r in rows if r["group"] == group]
        if own:
            cells = [sum(r["result"] == result for r in own) for result in counts]
            print(f"| {group} | {' | '.join(map(str, cells))} | {sum(r['seconds'] for r in own):.0f} |")
    for r in rows:
        if r["result"] == "FAILED":
            print(f"failed: {r['group']}: {r['name']}: {r['detail']}")
    print(f"{counts['passed']} passed, {counts['FAILED']} failed, {counts[SKIPPED]} skipped", flush=True)
    if a.json:
        with open(a.json, "w") as out:
            json.dump({"bundle": {k: manifest[k] for k in ("version", "revision", "made", "targets")}, **found, "rows": rows}, out, indent=1)
    return 1 if counts["FAILED"] else 0


def header(manifest, found, target):
    print(f"cleave {manifest['version']}, revision {manifest['revision']}, bundle made {manifest['made']}")
    for device in found["devices"]:
        print(f"device   {device['name']}, {device['bytes'] / 2**30:.0f} GiB, capability {device['capability'] / 10:.1f}")
    for name, library in found["libraries"].items():
        print(f"{name:<8} {library['version'] or 'missing'}  {library['file']}")
    print(f"plans    {target}\n", flush=True)


def choose_target(manifest, devices):
    """The newest target that is not newer than the device: its code runs as it is, or its PTX is compiled for the device."""
    if manifest["emulated"]:
        return "emulated"
    here = devices[0]["capability"]
    fitting = [t for t in manifest["targets"] if int(t[3:]) <= here]
    if not fitting:
        fail(3, f"the bundle has plans for {', '.join(manifest['targets'])}, the device is sm_{here}")
    return max(fitting, key=lambda t: int(t[3:]))


def options():
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1], add_help=False)
    p.add_argument("--bundle")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--only", default=",".join(GROUPS))
    p.add_argument("--json")
    p.add_argument("--jobs", type=int, default=max(1, min(4, (os.cpu_count() or 1) // 4)))
    p.add_argument("--budget", type=float, default=530)
    p.add_argument("-h", "--help", action="store_true")
    a = p.parse_args()
    if a.help:
        print(__doc__.strip())
        sys.exit(0)
    a.only = a.only.split(",")
    for group in a.only:
        if group not in GROUPS:
            fail(2, f"--only: must be among {', '.join(GROUPS)}, found '{group}'")
    if a.jobs < 1:
        fail(2, f"--jobs: must be at least 1, found {a.jobs}")
    own = os.path.exists(os.path.join(ROOT, "manifest.json"))
    a.bundle = os.path.abspath(a.bundle or (ROOT if own else os.path.join(ROOT, "build/gpu-bundle")))
    programs.use(a.bundle)
    return a


def main():
    a = options()
    try:
        with open(os.path.join(a.bundle, "manifest.json")) as file:
            manifest = json.load(file)
    except (OSError, ValueError):
        fail(3, f"{a.bundle}: is not a bundle: scripts/gpu-bundle makes one")
    if "curves" not in manifest:
        fail(3, f"{a.bundle}: was not finished: make it again with scripts/gpu-bundle")
    if manifest["emulated"] and not os.environ.get("CLEAVE_CUDA_LIBRARIES"):
        fail(3, "the bundle is for the fakes of NVIDIA's libraries: CLEAVE_CUDA_LIBRARIES must name their folder (tests/fake/README.md)")
    try:
        found = json.loads(subprocess.run([sys.executable, os.path.join(HERE, "libraries.py")], capture_output=True, text=True, timeout=60).stdout)
    except (ValueError, subprocess.TimeoutExpired):
        fail(3, "the libraries cannot be asked for their versions")
    if not found["devices"]:
        fail(3, f"no CUDA device: {found.get('why') or found['libraries']['driver']['file']}")
    target = choose_target(manifest, found["devices"])
    header(manifest, found, target)
    with tempfile.TemporaryDirectory(prefix="cleave-gpu-check-") as scratch:
        checks = Checks(a, manifest, target, found["devices"], scratch)
        for group in GROUPS:
            if group in a.only and group != "benchmark":
                getattr(checks, group)()
        status = summary(checks.rows, a, found, manifest)
        if "benchmark" in a.only:
            checks.benchmark()
    return status


if __name__ == "__main__":
    sys.exit(main())
