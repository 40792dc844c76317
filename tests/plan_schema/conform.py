#!/usr/bin/env python3
"""Whether the plan's schema is still that of its format version, and whether versions follow the rules of docs/plan.md.

runtime/plan/baseline/plan-MAJOR.MINOR.fbs holds the declarations of the current version, and of every earlier minor one that a
release of Cleave writes (RELEASED). What is checked, with the numbers formatMajor and formatMinor of runtime/plan/PlanFile.h:
  - plan.fbs declares what the baseline of the current version declares; comments may differ;
  - every minor version only adds to the released one before it: by `flatc --conform`, and by a comparison of the declarations, because
    flatc permits what is removed at the end of a table, what is renamed, and structs that grow;
  - the check itself: altered copies of the schema are refused, and those that only add something are not.

conform.py [--flatc FLATC] [--write]

--write makes the baseline of a new version, and removes that of the one before, to which it only may add, unless that was
released. Exit status: 0 everything holds, 1 something does not.
"""
import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLAN = os.path.join(ROOT, "runtime", "plan")
BASELINE = os.path.join(PLAN, "baseline")
RELEASED = []  # versions (major, minor) of the format that released programs write, ascending; none so far
HEADER = "// The declarations of plan.fbs in format version {}, made by tests/plan_schema/conform.py --write. Never changed.\n"
BLOCK = re.compile(r"\b(table|struct|enum|union)\s+(\w+)\s*(?::\s*(\w+)\s*)?\{([^}]*)\}")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def version():
    """Major and minor version of the format."""
    found = re.search(r"formatMajor = (\d+), formatMinor = (\d+);", read(os.path.join(PLAN, "PlanFile.h")))
    if not found:
        sys.exit("conform.py: runtime/plan/PlanFile.h does not say formatMajor and formatMinor")
    return int(found[1]), int(found[2])


def baseline(major, minor):
    return os.path.join(BASELINE, f"plan-{major}.{minor}.fbs")


def undeclared(schema):
    """A schema without the values that it declares for each field, which are rules of the checker and not part of the format."""
    schema = re.sub(r'attribute "[^"]*";\n?', "", schema)
    return re.sub(r"\s*\(\s*\)", "", re.sub(r'(range|index|text): "[^"]*"(,\s*)?', "", schema))


def declarations(schema):
    """What a schema declares: by block ("table Plan"), its entries in their order, without comments; "rest" is what is outside
    of blocks."""
    text = undeclared(re.sub(r"//[^\n]*", "", schema))
    found = {}
    for kind, name, base, body in BLOCK.findall(text):
        entries = re.split(r";" if kind in ("table", "struct") else r",", body)
        head = f"{kind} {name}" + (f" : {base}" if base else "")
        found[head] = [" ".join(entry.split()) for entry in entries if entry.strip()]
    found["rest"] = [" ".join(line.split()) for line in BLOCK.sub("", text).split(";") if line.strip()]
    return found


def written(schema):
    """The same as a schema again, a line for each declaration."""
    blocks = declarations(schema)
    lines = [f"{entry};" for entry in blocks["rest"] if entry.startswith("namespace")]
    for head, entries in blocks.items():
        if head != "rest":
            end = ";" if head.startswith(("table", "struct")) else ","
            lines += [head + " {", *(f"  {entry}{end}" for entry in entries), "}"]
    lines += [f"{entry};" for entry in blocks["rest"] if not entry.startswith("namespace")]
    return "\n".join(lines) + "\n"


def conform(flatc, old, new):
    """What flatc says against `new` as a later form of `old`, two files; "" for nothing."""
    done = subprocess.run([flatc, "--conform", old, new], capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    return " ".join((done.stdout + done.stderr).split()) or f"flatc ended with status {done.returncode}"


def removed(old, new):
    """What a plan of `old` may contain and `new` does not declare, or not in the same way."""
    before, after = declarations(old), declarations(new)
    for head, entries in before.items():
        if head not in after:
            yield f"'{head}' is gone"
            continue
        for entry in entries:
            if entry not in after[head]:
                yield f"'{entry}' of '{head}' is gone or declared otherwise"
        if head.startswith("struct") and len(after[head]) != len(entries):
            yield f"'{head}' has another size"


def incompatible(flatc, old, new):
    """Everything by which a program that knows `new` cannot read plans of `old`, two files."""
    problems = list(removed(read(old), read(new)))
    said = conform(flatc, old, new)
    return problems + ([said] if said else [])


def versions_kept(now):
    """The versions that have a baseline: those that were released, of this major version, and the current one."""
    return sorted({one for one in RELEASED if one[0] == now[0] and one < now} | {now})


def others(now):
    """The names of other baselines."""
    return sorted(set(os.listdir(BASELINE)) - {os.path.basename(baseline(*one)) for one in versions_kept(now)})


def check_current(flatc, schema, now):
    """What is wrong with the schema against the baseline of its version."""
    kept = baseline(*now)
    name = f"{now[0]}.{now[1]}"
    if not os.path.exists(kept):
        return [f"format version {name} has no baseline: run tests/plan_schema/conform.py --write, and commit what it writes"]
    old, new = read(kept), read(schema)
    if declarations(old) == declarations(new):
        return []
    changes = [line for line in difflib.unified_diff(written(old).splitlines(), written(new).splitlines(), lineterm="", n=0)
               if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    problems = incompatible(flatc, kept, schema)
    todo = (f"raise formatMajor to {now[0] + 1} and set formatMinor to 0: programs of format {now[0]} plans cannot be read any more"
            if problems else f"raise formatMinor to {now[1] + 1}: the change only adds to format {name}")
    return [f"plan.fbs does not declare what format version {name} does:", *(f"  {line}" for line in changes[:20]),
            *(f"  incompatible: {problem}" for problem in problems[:20]), f"in runtime/plan/PlanFile.h {todo}",
            "then run tests/plan_schema/conform.py --write (docs/plan.md, Versions)"]


def check_history(flatc, now):
    """What is wrong with the released versions before, each against the one that follows it, and with the list of baselines."""
    problems = []
    kept = versions_kept(now)
    for before, after in zip(kept, kept[1:]):
        old, new = baseline(*before), baseline(*after)
        if not os.path.exists(old):
            problems.append(f"the baseline of format version {before[0]}.{before[1]} is missing")
        elif os.path.exists(new):
            problems += [f"{after[0]}.{after[1]} after {before[0]}.{before[1]}: {text}" for text in incompatible(flatc, old, new)]
    for name in others(now):
        problems.append(f"runtime/plan/baseline/{name} is of no released version, nor of {now[0]}.{now[1]}: remove it")
    return problems


# Alterations of a schema: (what, regular expression, replacement, who refuses it: "flatc", "names" (only the comparison of
# declarations), or "" where it only adds something).
ALTERATIONS = [
    ("another type of a field", r"batch:uint;", "batch:ulong;", "flatc"),
    ("another default of a field", r"grain:long = 1; outputs", "grain:long = 2; outputs", "flatc"),
    ("a field in the middle of a table", r"threads:uint;", "cores:uint; threads:uint;", "flatc"),
    ("two fields that change places", r"a:View; b:View;", "b:View; a:View;", "flatc"),
    ("a value in the middle of an enumeration", r"enum Epilogue : ubyte \{ None, Relu,", "enum Epilogue : ubyte { None, Tanh, Relu,",
     "flatc"),
    ("a step in the middle of the union", r"union StepOp \{ Matmul,", "union StepOp { Matmul, Stage,", "flatc"),
    ("a removed field at the end of a table", r"alternatives:\[Alternative\];", "", "names"),
    ("a field of another name", r"\bschedule:string;", "order:string;", "names"),
    ("a deprecated field", r"\bschedule:string;", "schedule:string (deprecated);", "names"),
    ("a table of another name", r"\bMeshAxis\b", "Axis", "flatc"),
    ("an enumeration's value of another name", r"enum ReduceKind : ubyte \{ Sum,", "enum ReduceKind : ubyte { Add,", "names"),
    ("a struct with one field more", r"struct SendId \{ tag:uint; microbatch:int;", r"\g<0> from:uint;", "names"),
    ("another comment", r"\Z", "// The end.\n", ""),
    ("a field at the end of a table", r"alternatives:\[Alternative\];", r"\g<0> more:string;", ""),
    ("a value at the end of an enumeration", r"Max, Min, Or \}", "Max, Min, Or, And }", ""),
    ("a step at the end of the union", r"Attention, KernelBatch \}", "Attention, KernelBatch, Stage }", ""),
    ("a new table", r"\Z", "table New { a:int; }\n", ""),
]


def check_check(flatc, schema, folder):
    """Whether altered copies of the schema are refused, and by whom."""
    problems = []
    text = undeclared(read(schema))
    for what, pattern, replacement, by in ALTERATIONS:
        altered, count = re.subn(pattern, replacement, text)
        if not count:
            problems.append(f"{what}: the schema has nothing that matches {pattern}")
            continue
        path = os.path.join(folder, "altered.fbs")
        with open(path, "w", encoding="utf-8") as file:
            file.write(altered)
        said, gone = conform(flatc, schema, path), list(removed(text, altered))
        found = "flatc" if said else "names" if gone else ""
        if found != by:
            problems.append(f"{what}: refused by '{found}', should be by '{by}' ({said or gone})")
    return problems


def write(flatc, schema, now):
    kept = baseline(*now)
    text = HEADER.format(f"{now[0]}.{now[1]}") + written(read(schema))
    if os.path.exists(kept) and declarations(read(kept)) != declarations(text):
        sys.exit(f"conform.py: {os.path.relpath(kept, ROOT)} is there and declares something else: this version is taken, raise "
                 "formatMajor or formatMinor in runtime/plan/PlanFile.h")
    os.makedirs(BASELINE, exist_ok=True)
    for name in others(now):
        before = os.path.join(BASELINE, name)
        if name.startswith(f"plan-{now[0]}.") and (problems := incompatible(flatc, before, schema)):
            sys.exit(f"conform.py: {now[0]}.{now[1]} does not only add to {name}: {'; '.join(problems[:5])}: raise formatMajor in "
                     "runtime/plan/PlanFile.h")
        os.remove(before)
    with open(kept, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"wrote {os.path.relpath(kept, ROOT)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flatc", default="flatc", help="the schema compiler (default: flatc)")
    parser.add_argument("--write", action="store_true", help="write the baseline of the current version")
    given = parser.parse_args()
    schema, now = os.path.join(PLAN, "plan.fbs"), version()
    if given.write:
        write(given.flatc, schema, now)
    with tempfile.TemporaryDirectory() as folder:
        problems = check_current(given.flatc, schema, now) + check_history(given.flatc, now)
        problems += check_check(given.flatc, schema, folder)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"plan format {now[0]}.{now[1]}: the schema is that of its baseline; {len(ALTERATIONS)} altered schemas judged rightly")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
