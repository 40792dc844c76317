#!/usr/bin/env python3
"""Checks whether two builds compile the same plans: four samples, each with eight sets of options.

Use it for changes that must not change a plan. Plans are compared byte by byte; if bytes differ, the first lines of `cleave
diff` are shown.

For a change of the plan's format use --fields: it reads each plan with its own build's schema and compares every field of every
step, slot, message and table instead of the bytes. Fields that only one schema has, or whose type differs, are not compared but
listed at the end. If a table was replaced by one of its fields, --was compares that field: --was Kernel.args=slot.

Exit status: 0 all plans are the same, 1 one differs.

same_plans.py BUILD_BEFORE BUILD_AFTER [--fields [--schema-before FILE.fbs] [--was TABLE.FIELD=MEMBER]...]
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCHEMA = os.path.join(ROOT, "runtime", "plan", "plan.fbs")
HEADER_BYTES = 64  # before the flatbuffer of a plan file
SAMPLES = ["mlp", "convnet", "resnet", "gpt --layers 4 --width 64 --heads 4 --context 32 --batch 8"]
OPTIONS = ["", "--mesh dp=2", "--mesh tp=2", "--mesh pp=2 --microbatches 2", "--mesh dp=2,tp=2",
           "--mesh dp=2,tp=2,pp=2 --microbatches 4 --schedule 1f1b", "--mesh dp=2 --precision bf16 --opt-level O2",
           "--backend cuda --target sm_90 --mesh dp=2,tp=2 --precision bf16 --opt-level O2"]


class Schema:
    """The types that a schema declares, by name, and plans read with it."""

    def __init__(self, path, flatc):
        self.path, self.flatc = path, flatc
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"//[^\n]*", "", file.read())
        self.tables = {}
        for name, body in re.findall(r"\b(?:table|struct)\s+(\w+)\s*\{([^}]*)\}", text):
            self.tables[name] = dict(re.findall(r"(\w+)\s*:\s*(\[?\w+\]?)[^;]*;", body))
        self.unions = set(re.findall(r"\bunion\s+(\w+)", text))

    def shape(self, kind):
        """The form of a type's values: "list of ...", "table", "text" or "number"."""
        if kind.startswith("["):
            return "list of " + self.shape(kind[1:-1])
        return "table" if kind in self.tables or kind in self.unions else "text" if kind == "string" else "number"

    def read(self, file, folder):
        """The plan in a file as plain values."""
        payload = os.path.join(folder, "payload.bin")
        with open(file, "rb") as plan, open(payload, "wb") as out:
            out.write(plan.read()[HEADER_BYTES:])
        subprocess.run([self.flatc, "--json", "--strict-json", "--defaults-json", "--raw-binary", "-o", folder, self.path, "--",
                        payload], check=True)
        with open(os.path.join(folder, "payload.json"), encoding="utf-8") as made:
            return json.load(made)


class Comparison:
    """Compares two plans field by field. `different` lists places and both values, `left_out` the fields not compared."""

    def __init__(self, before, after, was, left_out):
        self.before, self.after, self.was, self.left_out = before, after, was, left_out
        self.different = []

    def same(self, place, kinds, a, b):
        if kinds[0].startswith("["):
            if len(a) != len(b):
                self.different.append(f"{place}: {len(a)} entries before, {len(b)} after")
            for i, (one, other) in enumerate(zip(a, b)):
                self.same(f"{place}[{i}]", (kinds[0][1:-1], kinds[1][1:-1]), one, other)
        elif isinstance(a, dict) and isinstance(b, dict):
            self.tables(place, kinds, a, b)
        elif a != b:
            self.different.append(f"{place}: {a} before, {b} after")

    def tables(self, place, kinds, a, b):
        fields = [schema.tables[kind] for schema, kind in zip((self.before, self.after), kinds)]
        for name in sorted(fields[0].keys() ^ fields[1].keys()):
            self.left_out.add(f"{kinds[0]}.{name} (only {'before' if name in fields[0] else 'after'})")
        for name in fields[0].keys() & fields[1].keys():
            self.field(f"{place}.{name}", kinds[0], name, [f[name] for f in fields], a, b)

    def field(self, place, table, name, kinds, a, b):
        values = [a.get(name), b.get(name)]
        shapes = [schema.shape(kind) for schema, kind in zip((self.before, self.after), kinds)]
        if f"{table}.{name}" in self.was:
            member = self.was[f"{table}.{name}"]
            values[0] = None if values[0] is None else [entry[member] for entry in values[0]]
        elif shapes[0] != shapes[1]:
            self.left_out.add(f"{table}.{name} ({kinds[0]} before, {kinds[1]} after)")
            return
        if kinds[0] in self.before.unions:
            kinds = [a.get(name + "_type"), b.get(name + "_type")]
            if kinds[0] != kinds[1]:
                self.different.append(f"{place}: {kinds[0]} before, {kinds[1]} after")
                return
        empty = lambda value: value is None or value == []
        if empty(values[0]) != empty(values[1]):
            self.different.append(f"{place}: {values[0]} before, {values[1]} after")
        elif not empty(values[0]):
            if f"{table}.{name}" in self.was:
                kinds = [kinds[1], kinds[1]]
            self.same(place, kinds, *values)


def plan(build, words, file):
    """Compiles a plan and returns the exit status."""
    program, *rest = words.split()
    return subprocess.run([os.path.join(build, "bin", program), "plan", *rest, "-o", file], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode


def compare(before, after, words, folder, fields):
    """Describes the difference; "" if there is none. `fields` is a function that compares two files field by field, or None to
    compare bytes."""
    files = [os.path.join(folder, name) for name in ("before.plan", "after.plan")]
    statuses = [plan(build, words, file) for build, file in zip((before, after), files)]
    if statuses[0] != statuses[1]:
        return f"status {statuses[0]} before, {statuses[1]} after"
    if statuses[0]:
        return "" if statuses[0] == 2 else f"both builds fail with status {statuses[0]}"
    if fields:
        different = fields(files)
        return "\n  ".join([f"{len(different)} fields differ:", *different[:8]]) if different else ""
    with open(files[0], "rb") as a, open(files[1], "rb") as b:
        if a.read() == b.read():
            return ""
    shown = subprocess.run([os.path.join(after, "bin", "cleave"), "diff", *files], capture_output=True, text=True)
    return "\n  ".join(["the plans differ:", *(shown.stdout + shown.stderr).splitlines()[:5]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", metavar="BUILD_BEFORE")
    parser.add_argument("after", metavar="BUILD_AFTER")
    parser.add_argument("--fields", action="store_true", help="compare fields, not bytes")
    parser.add_argument("--schema-before", default=SCHEMA, metavar="FILE.fbs", help="of BUILD_BEFORE's plans (default: this one's)")
    parser.add_argument("--was", action="append", default=[], metavar="TABLE.FIELD=MEMBER", help="a table that became one of its fields")
    parser.add_argument("--flatc", default="flatc")
    given = parser.parse_args()
    different, left_out = 0, set()
    cases = [f"{sample} {options}".strip() for sample in SAMPLES for options in OPTIONS]
    schemas = Schema(given.schema_before, given.flatc), Schema(SCHEMA, given.flatc)
    was = dict(entry.split("=") for entry in given.was)
    with tempfile.TemporaryDirectory() as folder:
        def fields(files):
            comparison = Comparison(*schemas, was, left_out)
            comparison.tables("plan", ("Plan", "Plan"), *(schema.read(file, folder) for schema, file in zip(schemas, files)))
            return comparison.different

        for words in cases:
            problem = compare(given.before, given.after, words, folder, fields if given.fields else None)
            if problem:
                different += 1
                print(f"{words}: {problem}")
    if left_out:
        print("not compared: " + ", ".join(sorted(left_out)))
    print(f"{len(cases)} plans compared, {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
