#!/usr/bin/env python3
"""Compares Cleave with PyTorch (eager and torch.compile) on the same GPU: GPT-2 124M, ResNet-50, ConvNet and MLP from the plans of a
bundle (scripts/gpu-bundle). README.md in this folder says what is and is not measured. Not part of any test.

usage: run.py [--bundle DIR] [--target sm_90] [--models NAME,...] [--rounds N] [--no-torch] [--no-compile] [--json FILE] [--budget S]
Prints Markdown for docs/performance.md. Exit status: 0 measured, 1 a side failed, 2 a wrong argument, 3 no bundle.
"""
import argparse, gzip, json, os, re, selectors, shutil, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
WHAT = {"gpt2": "GPT-2 124M, context 1024, bf16", "resnet50-b256": "ResNet-50 at 224, bf16, batch 256",
        "convnet": "ConvNet, tf32, batch 100", "mlp": "MLP 784-512-512-10, tf32, batch 128"}
GPT2 = {"layers": 12, "width": 768, "context": 1024}
LAUNCH_US = 20 # limit of host time per step for launching captured graphs
NAMES = {"cleave": "Cleave", "eager": "PyTorch eager", "compile": "torch.compile"}


def say(text):
    print(text, file=sys.stderr, flush=True)


class Problem(Exception):
    """A side that cannot be measured, with the reason."""


class Worker:
    """A persistent worker.py process."""

    def __init__(self, limit, model=None, mode="eager"):
        self.err = tempfile.TemporaryFile("w+")
        command = [sys.executable, os.path.join(HERE, "worker.py"), "--mode", mode] + (["--model", model] if model else [])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.err, text=True, cwd=HERE)
        self.about = self.answer(limit)

    def answer(self, limit):
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            line = self.process.stdout.readline() if ready.select(max(1, limit)) else None
        if line is None:
            self.end()
            raise Problem(f"no answer within {limit:.0f} s")
        if not line:
            self.process.wait()
            self.err.seek(0)
            said = [l for l in self.err.read().splitlines() if l.strip()]
            raise Problem(said[-1][:200] if said else f"exit status {self.process.returncode}")
        return json.loads(line)

    def ask(self, what, limit):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self.answer(limit)

    def end(self):
        self.process.kill()
        self.process.wait()


class Bench:
    def __init__(self, a, manifest, scratch):
        self.a, self.manifest, self.scratch = a, manifest, scratch
        self.deadline = time.monotonic() + a.budget
        self.problems, self.results, self.facts = [], {}, {}
        self.plans = {b["name"]: b for b in manifest["bench"]}

    def left(self, most):
        left = self.deadline - time.monotonic()
        if left < 10:
            raise Problem(f"no time left of --budget {self.a.budget:.0f}")
        return min(most, left)

    def plan(self, name):
        """The path of the unpacked plan."""
        path = os.path.join(self.scratch, f"{name}.plan")
        if not os.path.exists(path):
            with gzip.open(os.path.join(self.a.bundle, self.plans[name]["plan"].replace("{target}", self.a.target) + ".gz"), "rb") as packed, \
                    open(path, "wb") as out:
                shutil.copyfileobj(packed, out)
        return path

    def cleave(self, name, steps, *more):
        """One run: step time after the first quarter, peak memory from the plan, and the text on standard error."""
        metrics = os.path.join(self.scratch, f"{name}.jsonl")
        command = [os.path.join(self.a.bundle, "bin/cleave-run"), self.plan(name), "--data", "synthetic", "--steps", str(steps), "--metrics",
                   metrics, "--quiet", "--tuning", os.path.join(self.scratch, f"{name}.tuning.json"), *more]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=self.left(180))
        except subprocess.TimeoutExpired:
            raise Problem("cleave-run has not ended in time") from None
        if done.returncode:
            lines = [l for l in done.stderr.splitlines() if l.strip()]
            raise Problem(f"cleave-run: exit status {done.returncode}: {lines[-1][:200] if lines else ''}")
        with open(metrics) as lines:
            records = [json.loads(line) for line in lines]
        times = [r["step_ms"] for r in records if "step" in r]
        run = records[0]["run"]
        # Steps are reported in groups, so the time of a single step is meaningless; their sum is correct.
        host = {key: statistics.median([r[key] for r in records if key in r][len(times) // 4:]) for key in ("host_us", "launch_us")
                if any(key in r for r in records)}
        return {**host, "step_ms": statistics.fmean(times[len(times) // 4:]), "peak_bytes": run["peak_bytes"][0], "parameters": run["parameters"],
                "loss": next(r["loss"] for r in reversed(records) if "step" in r)}, done.stderr

    def attempt(self, what, work):
        try:
            return work()
        except Problem as problem:
            self.problems.append(f"{what}: {problem}")
            say(f"bench: {self.problems[-1]}")
            return None

    def measure_device(self):
        def work():
            worker = Worker(self.left(120))
            self.facts.update(worker.about, matmul_flops=worker.ask("matmul", 60)["flops"], copy_bytes_per_s=worker.ask("copy", 60)["bytes_per_s"])
            worker.end()
        self.attempt("the device", work)

    def compare(self, name):
        """Measures all sides of a model in turn: {side: {"step_ms": [...], ...}}."""
        steps = self.a.steps or self.plans[name]["steps"]
        sides, workers = {}, {}
        for kind in self.a.kinds:
            if kind != "cleave":
                workers[kind] = self.attempt(f"{name}, {NAMES[kind]}", lambda k=kind: Worker(self.left(120), name, k))
        for turn in range(self.a.rounds):
            for kind in self.a.kinds:
                if kind != "cleave" and not workers[kind]:
                    continue
                limit = 240 if turn == 0 and kind == "compile" else 120
                said = self.attempt(f"{name}, {NAMES[kind]}", lambda k=kind, s=limit: self.cleave(name, steps)[0] if k == "cleave"
                                    else workers[k].ask(f"run {steps}", self.left(s)))
                if said is None:
                    if kind != "cleave":
                        workers[kind].end()
                        workers[kind] = None
                    continue
                side = sides.setdefault(kind, {"step_ms": [], "batch": self.batch(name)})
                side["step_ms"].append(said.pop("step_ms"))
                side.update(said)
        for worker in workers.values():
            if worker:
                worker.end()
        counts = {side["parameters"] for side in sides.values()}
        if len(counts) > 1:
            self.problems.append(f"{name}: the sides have different numbers of parameters, {sorted(counts)}: not comparable")
            return {}
        for side in sides.values():
            side["median_ms"] = statistics.median(side["step_ms"])
            side["samples_per_s"] = side["batch"] / side["median_ms"] * 1000
        return sides

    def batch(self, name):
        return int(re.search(r"--batch (\d+)", self.plans[name]["choices"]).group(1))

    def gpt2(self):
        """Measures each side at its best batch size, found by short runs of Cleave and of eager; torch.compile uses eager's."""
        names = [n for n in self.plans if n.startswith("gpt2-")]
        best, where = {}, {}
        for name in names:
            for kind in [k for k in self.a.kinds if k != "compile"]:
                def work():
                    if kind == "cleave":
                        return self.cleave(name, 12)[0]
                    worker = Worker(self.left(120), name, kind)
                    try:
                        return worker.ask("run 8", self.left(120))
                    finally:
                        worker.end()
                said = self.attempt(f"{name}, {NAMES[kind]}, batch search", work)
                rate = self.batch(name) / said["step_ms"] if said else 0
                if rate > best.get(kind, 0):
                    best[kind], where[kind] = rate, name
        where.setdefault("compile", where.get("eager"))
        sides, kinds = {}, self.a.kinds
        for name in dict.fromkeys(where[k] for k in kinds if where.get(k)):
            self.a.kinds = [k for k in kinds if where.get(k) == name]
            sides.update(self.compare(name))
        self.a.kinds = kinds
        return sides, where.get("cleave")

    def bandwidth(self, name):
        """Compares generated kernels with a copy: bytes of a kernel's slots divided by its time in --profile."""
        said = self.attempt(f"{name}, profile", lambda: self.cleave(name, 12, "--profile")[1])
        shown = subprocess.run([os.path.join(self.a.bundle, "bin/cleave"), "show", "--steps", self.plan(name)], capture_output=True, text=True)
        return kernel_rates(said or "", shown.stdout)


def kernel_rates(profile, steps):
    """[(path, segment, ms per call, bytes per second)] of the rows of a profile that stand for exactly one kernel of the plan,
    in the order of the profile (longest first)."""
    slots = {m[1]: int(m[2].replace(",", "")) for m in re.finditer(r"^\s+%(\d+)\s.*?\]\s+([\d,]+) bytes", steps, re.M)}
    kernels, segment = {}, ""
    for line in steps.splitlines():
        head = re.match(r"^  segment \d+ \w+ (\S+)$", line)
        segment = head[1] if head else segment
        found = re.match(r"^\s+\d+\s+kernel (\S+?)\(([^)]*)\).*?; \S.*?  (.*)  \S+:\d+:\d+$", line)
        if found: # a slot that is read and written is listed twice
            kernels.setdefault((segment, found[3].strip()), []).append(sum(slots.get(a.strip().lstrip("%"), 0) for a in found[2].split(",")))
    rates = []
    for line in profile.splitlines():
        row = re.match(r"^\s*([\d.]+)\s+[\d.]+%\s+(\d+)\s+[\d.]+\s+Kernel\s+(\S+)\s+(.*)$", line)
        known = kernels.get((row[3], row[4].strip())) if row else None
        if known and len(known) == 1 and known[0]:
            ms = float(row[1]) / int(row[2])
            rates.append((row[4].strip(), row[3], ms, known[0] / ms * 1000 if ms else 0))
    return rates


def mib(side):
    return f"{side['peak_bytes'] / 2**20:,.0f}" if side else "-"


def row(title, sides):
    """A line of the table. Ratios of rates: above 1, Cleave is faster; of memory: below 1, Cleave needs less."""
    own = sides.get("cleave")
    cells = [title]
    for kind in NAMES:
        side = sides.get(kind)
        cells.append(f"{side['median_ms']:.3f} (batch {side['batch']})" if side else "-")
    for kind in ("eager", "compile"):
        cells.append(f"{own['samples_per_s'] / sides[kind]['samples_per_s']:.2f}" if own and kind in sides else "-")
    cells += [mib(sides.get(kind)) for kind in NAMES]
    least = [sides[k]["peak_bytes"] / sides[k]["batch"] for k in ("eager", "compile") if k in sides]
    cells.append(f"{own['peak_bytes'] / own['batch'] / min(least):.2f}" if own and least else "-")
    return "| " + " | ".join(cells) + " |"


def matrix_share(side, facts):
    """FLOP/s of the matrix products in GPT-2's step, and their share of the rate of a plain product. FLOPs are 6 per parameter
    and token, and half of attention's two products, because attention is causal."""
    tokens = side["batch"] * GPT2["context"]
    flops = tokens * (6 * side["parameters"] + 6 * GPT2["layers"] * GPT2["width"] * GPT2["context"])
    return flops / (side["median_ms"] / 1000), flops / (side["median_ms"] / 1000) / facts["matmul_flops"]


def report(bench, rates):
    a, facts, manifest = bench.a, bench.facts, bench.manifest
    lines = [f"`bench/gpu/run.py`, {time.strftime('%Y-%m-%d')}, {facts.get('device', 'device unknown')}, {a.rounds} rounds in turns; Cleave "
             f"{manifest['revision']} ({a.target}), PyTorch {facts.get('torch', 'missing')}.", "",
             "| model | " + " | ".join(f"{n}, ms a step" for n in NAMES.values()) + " | speed against eager | against torch.compile | "
             + " | ".join(f"{n}, peak MiB" for n in NAMES.values()) + " | memory a sample against the lesser of PyTorch's |", "|---" * 10 + "|"]
    lines += [row(WHAT[name], sides) for name, sides in bench.results.items() if sides]
    lines.append("")
    if "matmul_flops" in facts:
        lines.append(f"A plain 8192^3 bf16 product: {facts['matmul_flops'] / 1e12:.0f} TFLOP/s. A copy within the device's memory: "
                     f"{facts['copy_bytes_per_s'] / 1e12:.2f} TB/s, read and written.")
        for kind, side in bench.results.get("gpt2", {}).items():
            rate, share = matrix_share(side, facts)
            lines.append(f"{NAMES[kind]}, GPT-2: {rate / 1e12:.0f} TFLOP/s, {share:.0%} of it.")
    if rates:
        lines += ["", "| generated kernel | model | segment | ms a call | GB/s | of the copy |", "|---|---|---|---|---|---|"]
        copied = facts.get("copy_bytes_per_s")
        lines += [f"| {path} | {model} | {segment} | {ms:.3f} | {rate / 1e9:,.0f} | {f'{rate / copied:.0%}' if copied else '-'} |"
                  for model, path, segment, ms, rate in rates]
    launches = {name: sides["cleave"] for name, sides in bench.results.items() if "launch_us" in sides.get("cleave", {})}
    if launches:
        lines += ["", f"| host's time a step, Cleave | starting its graphs, us (bound: {LAUNCH_US}) | within | with inputs, scalars, metrics and "
                  "events, us |", "|---|---|---|---|"]
        lines += [f"| {WHAT[name]} | {side['launch_us']:.1f} | {'yes' if side['launch_us'] < LAUNCH_US else 'no'} | {side['host_us']:.1f} |"
                  for name, side in launches.items()]
    lines += [""] + [f"Not measured: {problem}" for problem in bench.problems]
    return "\n".join(lines)


def options():
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1], add_help=False)
    up = os.path.dirname(HERE)
    p.add_argument("--bundle", default=up if os.path.exists(os.path.join(up, "manifest.json")) else os.path.join(os.path.dirname(up), "build/gpu-bundle"))
    p.add_argument("--target", default="sm_90")
    p.add_argument("--models", default=",".join(WHAT))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, help="of every run; by default as many as the model needs")
    p.add_argument("--no-torch", action="store_true")
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--json")
    p.add_argument("--budget", type=float, default=560)
    p.add_argument("-h", "--help", action="store_true")
    a = p.parse_args()
    if a.help:
        print(__doc__.strip())
        sys.exit(0)
    a.models = a.models.split(",")
    for model in a.models:
        if model not in WHAT:
            say(f"bench: --models: must be among {', '.join(WHAT)}, found '{model}'")
            sys.exit(2)
    return a


def main():
    a = options()
    try:
        with open(os.path.join(a.bundle, "manifest.json")) as file:
            manifest = json.load(file)
    except (OSError, ValueError):
        manifest = {}
    if not manifest.get("bench"):
        say(f"bench: {a.bundle}: has no plans for the benchmark: scripts/gpu-bundle makes them")
        sys.exit(3)
    there = not a.no_torch and subprocess.run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], capture_output=True).returncode == 0
    if not there:
        say("bench: " + ("--no-torch" if a.no_torch else "torch is missing, or sees no GPU") + ": Cleave alone, without ratios")
    a.kinds = ["cleave"] + ((["eager"] + ([] if a.no_compile else ["compile"])) if there else [])
    with tempfile.TemporaryDirectory(prefix="cleave-bench-") as scratch:
        bench, rates = Bench(a, manifest, scratch), []
        if there:
            bench.measure_device()
        for model in a.models:
            if model == "gpt2":
                bench.results[model], used = bench.gpt2()
            else:
                bench.results[model], used = bench.compare(model), model
            if used and model in ("gpt2", "resnet50-b256"):
                rates += [(WHAT[model], *rate) for rate in bench.bandwidth(used)[:8]]
            if bench.results[model]:
                say(row(WHAT[model], bench.results[model]))
        print(report(bench, rates), flush=True)
        if a.json:
            with open(a.json, "w") as out:
                json.dump({"facts": bench.facts, "results": bench.results, "kernels": rates, "problems": bench.problems}, out, indent=1)
    return 1 if bench.problems else 0


if __name__ == "__main__":
    sys.exit(main())
