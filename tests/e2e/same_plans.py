#!/usr/bin/env python3
"""Checks whether two builds do the same for the same command lines: plans of all samples with code, plans for every decision that a
strategy has, with and without a cluster, searches, requests that are repeated (--like), predictions, and refusals.

Use it for changes that must not change a plan. Exit statuses, what is printed, and plans are compared; plans byte by byte. If
bytes differ, the first lines of `cleave diff` are shown. With --pages, what `cleave show`, `explain` and `simulate` print of each
plan is compared, too.

For a change of the plan's format use --fields: it reads each plan with its own build's schema and compares every field of every
step, slot, message and table instead of the bytes. Fields that only one schema has, or whose type differs, are not compared but
listed at the end. If a table was replaced by one of its fields, --was compares that field: --was Kernel.args=slot.

Exit status: 0 all cases are the same, 1 one differs.

same_plans.py BUILD_BEFORE BUILD_AFTER [--only WORD] [--pages] [--fields [--schema-before FILE.fbs] [--was TABLE.FIELD=MEMBER]...]
"""
import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCHEMA = os.path.join(ROOT, "runtime", "plan", "plan.fbs")
HEADER_BYTES = 64  # before the flatbuffer of a plan file
SEARCH, SCHEDULE, SPLIT = (os.path.join(ROOT, "samples", name, "cluster.toml") for name in ("10_search", "09_schedule", "08_split"))

GPT = "gpt --layers 4 --width 64 --heads 4 --context 32"
DEEP = "gpt --layers 8 --width 64 --heads 4 --context 32"
CODE = ["", "--mesh dp=2", "--mesh tp=2", "--mesh pp=2 --microbatches 2", "--mesh dp=2,tp=2",
        "--mesh dp=2,tp=2,pp=2 --microbatches 4 --schedule 1f1b", "--mesh dp=2 --precision bf16 --opt-level O2",
        "--backend cuda --target sm_90 --mesh dp=2,tp=2 --precision bf16 --opt-level O2"]
MESHES = ["", "--mesh dp=2", "--mesh tp=2", "--mesh pp=2 --microbatches 2", "--mesh dp=2,tp=2,pp=2 --microbatches 4"]
DECISIONS = [
    *(f"--mesh dp=4 --zero {stage}" for stage in (1, 2, 3)), "--mesh dp=2,tp=2 --zero 1", "--mesh dp=2,pp=2 --microbatches 4 --zero 2",
    *(f"--mesh {mesh} --recompute {kind}" for mesh in ("dp=2", "pp=2 --microbatches 4") for kind in ("none", "selective", "full")),
    *(f"--mesh pp=2 --microbatches 8 --schedule {name}" for name in ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "auto")),
    "--mesh pp=2 --microbatches 8 --schedule interleaved --virtual 2", "--mesh dp=2,pp=2 --microbatches 4 --schedule auto",
    "--mesh tp=2 --sequence-parallel", "--mesh dp=2,tp=2 --sequence-parallel --zero 1 --recompute selective",
    *(f"--mesh tp=2,pp=2 --microbatches 4 --scatter-gather {when}" for when in ("never", "always", "auto")),
    "--mesh pp=2/tp=2/dp=2 --microbatches 2", "--mesh dp=2 --precision fp16", "--mesh dp=2 --precision bf16 --reduce-dtype bf16",
    "--mesh dp=2 --precision bf16 --opt-level O3", "--mesh dp=2 --ema 0.9", "--mesh dp=2 --batch-per-rank 4",
    "--mesh dp=2 --optimizer adamw --weight-decay 0.1", "--backend cuda --mesh tp=2,pp=2 --microbatches 4 --precision bf16",
    "--backend cuda --mesh dp=4 --zero 3 --precision bf16", *(f"--strategy {word} --devices 4" for word in ("data", "model", "pipeline", "hybrid"))]
# With a cluster: what is left to the search, and what is pinned.
SEARCHES = [
    "", "--strategy auto", "--devices 4", "--mesh dp=8", "--mesh dp=8 --strategy auto", "--mesh tp=4,dp=2", "--mesh dp=2,tp=2,pp=2 --strategy auto",
    "--mesh pp=8 --microbatches 8", "--zero 1", "--zero 3 --mesh dp=8", "--recompute full", "--microbatches 4", "--schedule 1f1b", "--schedule auto",
    "--mesh pp=4,dp=2 --microbatches 8 --schedule auto", "--precision bf16", "--precision bf16 --mesh tp=8 --sequence-parallel",
    "--scatter-gather never", "--strategy data", "--strategy hybrid --devices 8", "--search-seconds 60", "--devices 2,4,8", "--alternatives"]
LIKE = ["", "--zero 1", "--batch 32", "--precision bf16", "--mesh dp=4,tp=2", "--recompute full", "--alternatives", "--devices 4"]
REFUSED = [
    "--mesh dp=3", "--mesh tp=3", "--mesh pp=9", "--mesh pp=2 --microbatches 3", "--mesh dp=0", "--mesh dp", "--mesh xp=2", "--mesh dp=2,dp=2",
    "--zero 4", "--zero 1", "--mesh tp=2 --zero 1", "--recompute most", "--schedule best", "--schedule zb-h1", "--mesh pp=2 --schedule zb-v --virtual 3",
    "--mesh pp=2 --schedule 1f1b --virtual 2", "--mesh pp=2 --virtual 99 --microbatches 4", "--sequence-parallel", "--mesh dp=2 --sequence-parallel",
    "--mesh dp=2 --scatter-gather always", "--scatter-gather often", "--devices 0", "--devices 4 --mesh dp=2", "--devices 2,x", "--strategy auto",
    "--strategy no.toml", "--cluster no.toml", "--like no.plan", "--alternatives", "--search-seconds -1", "--microbatches 0", "--batch 0",
    "--batch 7 --mesh dp=2", "--batch-per-rank 4 --batch 4", "--precision int8", "--precision fp32 --opt-level O2", "--reduce-dtype bf16", "--backend tpu",
    "--target sm_12", "--samples 10", "--dump-problems", "--mesh pp=2/dp=2 --order x", f"--cluster {SEARCH} --mesh dp=16",
    f"--cluster {SEARCH} --mesh tp=3", f"--cluster {SEARCH} --devices 9", f"--cluster {SEARCH} --backend cpu", f"--cluster {SEARCH} --zero 9",
    f"--cluster {SEARCH} --devices 2,4 -o {{out}}", f"--cluster {SEARCH} --batch 1048576 --mesh dp=1"]


class Case:
    """A command line. `{like}` in it is a plan that the words `like` make first; `pages`: also what is printed of its plan."""

    def __init__(self, words, like=""):
        self.words, self.like = " ".join(words.split()), like


def planned(samples, options):
    return [Case(f"{sample} plan {option}") for sample in samples for option in options]


def cases():
    quick = "--no-code"
    made = planned(["mlp", "convnet", "resnet", GPT], CODE)
    made += planned([f"{one} {quick}" for one in ("vit", "llama", "lstm", "schedule", "sharding", "search")], MESHES)
    made += planned([f"{DEEP} {quick}", f"convnet {quick}", f"llama {quick}"], DECISIONS)
    made += planned([f"{DEEP} {quick} --cluster {SEARCH}", f"mlp {quick} --cluster {SEARCH}"], SEARCHES)
    made += planned([f"{one} {quick} --cluster {file}" for one, file in (("schedule", SCHEDULE), ("sharding", SPLIT), ("search", SEARCH))], ["", "--strategy auto"])
    made += planned([f"{DEEP} {quick}"], ["--devices 2 --strategy auto", "--devices 4 --mesh tp=4", "--devices 4", "--mesh dp=2 --strategy auto"])
    asked = f"{DEEP} plan {quick} --cluster {SEARCH}"
    made += [Case(f"{DEEP} plan {quick} --like {{like}} {more}", like) for like in (asked, f"{asked} --mesh dp=2,tp=4", f"{asked} --strategy auto --zero 1")
             for more in LIKE]
    made += [Case(f"{DEEP} plan {quick} --devices 4 --strategy {{strategy}}", f"{DEEP} plan {quick} --mesh {mesh}") for mesh in ("dp=4", "tp=2,pp=2", "dp=2,pp=2 --zero 1")]
    made += planned([f"{GPT} {quick}", f"mlp {quick}"], REFUSED)
    trained = f"{GPT} train --data synthetic --steps 2 --checkpoint {{checkpoint}}"
    made += [Case(f"{GPT} {command} --data synthetic --checkpoint {{checkpoint}} {more}", f"{trained} {training}")
             for training in ("", "--mesh dp=2 --ema 0.9", "--mesh tp=2,pp=2 --microbatches 2 --precision bf16")
             for command in ("predict -o {out}.npy", "eval") for more in ("", "--mesh tp=2", "--mesh dp=2,pp=2 --batch 4", "--mesh tp=3")]
    return made


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
        self.texts = set(re.findall(r"(\w+)\s*:\s*\[?uint\]?\s*\(index: \"Plan.strings\"\)", text))

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
            return self.with_texts(json.load(made))

    def with_texts(self, plan):
        """A plan with texts for the indices of its table of texts, whose order does not matter."""
        strings = plan.pop("strings")

        def replaced(value):
            if isinstance(value, list):
                return [replaced(one) for one in value]
            if isinstance(value, dict):
                return {name: strings[one] if name in self.texts and isinstance(one, int) else replaced(one) for name, one in value.items()}
            return value

        return replaced(plan)


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


class Run:
    """What a build does for a case in a folder of its own: its status, what it prints, and the file that it writes."""

    def __init__(self, build, case, folder):
        self.build, self.folder = build, folder
        self.file = ""
        names = {name: os.path.join(folder, name) for name in ("like", "checkpoint", "out", "strategy")}
        if case.like:
            self.start(case.like.format(**names), names["like"])
            if "{strategy}" in case.words:
                with open(names["strategy"], "w", encoding="utf-8") as file:
                    subprocess.run([os.path.join(build, "bin", "cleave"), "show", names["like"], "--strategy"], stdout=file)
        self.file = names["out"] + (".npy" if "{out}.npy" in case.words else "")
        self.status, self.printed = self.start(case.words.format(**names), names["out"])

    def start(self, words, file):
        """Starts a program; the command stands first of its words, `plan` gets a file to write if it makes one plan."""
        words = words.split()
        program, command = words[0], next(word for word in words if word in ("plan", "train", "predict", "eval"))
        rest = [word for word in words[1:] if word != command]
        devices = rest[rest.index("--devices") + 1] if "--devices" in rest else ""
        if command == "plan" and "-o" not in rest and "," not in devices:
            rest += ["-o", file]
        return self.command([os.path.join(self.build, "bin", program), command, *rest])

    def command(self, command):
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, self.without_times(done.stdout + done.stderr)

    def without_times(self, text):
        """The text without the names of this build and folder, and without how long something took."""
        text = text.replace(self.folder, "FOLDER").replace(os.path.abspath(self.build), "BUILD")
        return re.sub(r"\b(in|after) [0-9.e+-]+ (ms|s)\b|[0-9.e+]+ (samples|tokens)/s", r"\1 TIME", text)

    def plan(self):
        return self.file if self.status == 0 and self.file.endswith("out") and os.path.exists(self.file) else ""

    def pages(self):
        tool = os.path.join(self.build, "bin", "cleave")
        return [self.command([tool, *page, self.plan()])[1] for page in (["show"], ["explain"], ["simulate"])]


def of_content(text):
    """The text without a plan's hash and size, which change with its format."""
    return re.sub(r"plan [0-9a-f]{6}|, [0-9]+ bytes", "", text)


def lines(name, a, b):
    """The first lines in which two texts differ."""
    for x, y in itertools.zip_longest(a.splitlines(), b.splitlines(), fillvalue="(nothing)"):
        if x != y:
            return f"{name} differs:\n    {x}\n    {y}"
    return ""


def compare(builds, case, fields, pages, statuses):
    """Describes the difference; "" if there is none. Counts the exit status. `fields` is a function that compares two files field by field, or None to
    compare bytes."""
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        before, after = (Run(build, case, folder) for build, folder in zip(builds, (a, b)))
        statuses[after.status] += 1
        if before.status != after.status:
            return f"status {before.status} before, {after.status} after: {after.printed[-200:]}"
        if before.status not in (0, 2, 3):
            return f"both builds fail with status {before.status}"
        printed = [run.printed for run in (before, after)]
        found = [lines("what is printed", *map(of_content, printed) if fields else printed)]
        written = [run.file for run in (before, after)]
        if [os.path.exists(file) for file in written] not in ([True, True], [False, False]):
            found.append("one build writes a file, the other does not")
        elif os.path.exists(written[0]):
            with open(written[0], "rb") as one, open(written[1], "rb") as other:
                same = one.read() == other.read()
            if fields and before.plan():
                different = fields(written)
                found += [f"{len(different)} fields differ:", *different[:8]] if different else []
            elif not same and before.plan():
                shown = subprocess.run([os.path.join(builds[1], "bin", "cleave"), "diff", *written], capture_output=True, text=True)
                found += ["the plans differ:", *(shown.stdout + shown.stderr).splitlines()[:5]]
            elif not same:
                found.append("the predictions differ")
        if pages and before.plan() and after.plan():
            shown = zip(("show", "explain", "simulate"), before.pages(), after.pages())
            found += [lines(page, *map(of_content, texts) if fields else texts) for page, *texts in shown]
        return "\n  ".join(filter(None, found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", metavar="BUILD_BEFORE")
    parser.add_argument("after", metavar="BUILD_AFTER")
    parser.add_argument("--only", default="", metavar="WORD", help="only cases with this text")
    parser.add_argument("--pages", action="store_true", help="compare what cleave show, explain and simulate print, too")
    parser.add_argument("--fields", action="store_true", help="compare fields, not bytes")
    parser.add_argument("--schema-before", default=SCHEMA, metavar="FILE.fbs", help="of BUILD_BEFORE's plans (default: this one's)")
    parser.add_argument("--was", action="append", default=[], metavar="TABLE.FIELD=MEMBER", help="a table that became one of its fields")
    parser.add_argument("--flatc", default="flatc")
    given = parser.parse_args()
    different, left_out, statuses = 0, set(), collections.Counter()
    schemas = Schema(given.schema_before, given.flatc), Schema(SCHEMA, given.flatc)
    was = dict(entry.split("=") for entry in given.was)

    def fields(files):
        comparison = Comparison(*schemas, was, left_out)
        comparison.tables("plan", ("Plan", "Plan"), *(schema.read(file, os.path.dirname(file)) for schema, file in zip(schemas, files)))
        return comparison.different

    chosen = [case for case in cases() if given.only in case.words]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = pool.map(lambda case: compare((given.before, given.after), case, fields if given.fields else None, given.pages, statuses), chosen)
        for case, problem in zip(chosen, problems):
            if problem:
                different += 1
                print(f"{case.words.format(like=case.like, checkpoint=case.like, strategy=case.like, out='FILE')}: {problem}", flush=True)
    if left_out:
        print("not compared: " + ", ".join(sorted(left_out)))
    counts = ", ".join(f"{count} with status {status}" for status, count in sorted(statuses.items()))
    print(f"{len(chosen)} cases compared ({counts}), {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
