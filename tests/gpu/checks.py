"""The checks of gpu_check.py, in groups. A check returns a description of its result, or raises Failure or Skip."""
import concurrent.futures, gzip, json, os, shutil, subprocess, sys, tempfile, time

import programs
from programs import end_ranks, kill, last_line, read_losses, run, start_ranks

GROUPS = ("conformance", "curves", "graphs", "splits", "failures", "errors", "sanitizer", "benchmark")
TIMEOUT = 15  # seconds that ranks wait for each other if one is killed
# Relative tolerance of a loss compared with the CPU's. For fp32 it is that of the first step and grows linearly with the steps.
TOLERANCE = {"fp32": 1e-4, "tf32": 1e-2, "bf16": 2e-2, "fp16": 2e-2}
SKIPPED = "skipped"


def unpacked(bundle, name, folder):
    """The plan `name` of the bundle, unpacked into `folder`."""
    path = os.path.join(folder, name.replace("/", "-"))
    if not os.path.exists(path):
        part = tempfile.NamedTemporaryFile(dir=folder, delete=False) # checks run at the same time
        with gzip.open(os.path.join(bundle, name + ".gz"), "rb") as packed, part:
            shutil.copyfileobj(packed, part)
        os.replace(part.name, path)
    return path


class Failure(Exception):
    """A check has found an error."""


class Skip(Exception):
    """A check cannot run; the text is the reason."""


class Checks:
    def __init__(self, a, manifest, target, devices, scratch):
        self.a, self.manifest, self.target, self.devices, self.scratch = a, manifest, target, devices, scratch
        self.deadline = time.monotonic() + a.budget
        self.rows = []
        self.curve_losses = {}

    def plan(self, name, target=None):
        return unpacked(self.a.bundle, name.replace("{target}", target or self.target), self.scratch)

    def data(self, name):
        return name if name == "synthetic" else os.path.join(self.a.bundle, name)

    def left(self, most):
        """Seconds that the next process may take, at most `most`."""
        left = self.deadline - time.monotonic()
        if left < 5:
            raise Skip(f"no time left of --budget {self.a.budget}")
        return min(most, left)

    def process(self, command, limit, **environment):
        """Runs a program of the bundle, or one given by its path. Returns exit status, standard output and standard error."""
        limit = self.left(limit)
        try:
            return run(*command, timeout=limit, environment=environment)
        except subprocess.TimeoutExpired:
            raise Failure(f"not ended after {limit:.0f} s") from None

    def train(self, plan, data, steps, name, *more, target=None, limit=120, tuning="off", status=0, **environment):
        """Trains and returns the losses; if `status` is not 0, returns standard error."""
        metrics = os.path.join(self.scratch, name.replace(" ", "-") + ".jsonl")
        found, _, err = self.process(["cleave-run", self.plan(plan, target), "--data", self.data(data), "--steps",
                                      steps, "--tuning", tuning, "--metrics", metrics, "--quiet", *more], limit, **environment)
        if found != status:
            raise Failure(f"exit status {found}, expected {status}: {last_line(err)}")
        if status:
            return err
        losses = read_losses(metrics)
        if len(losses) != steps:
            raise Failure(f"{len(losses)} steps in the metrics, expected {steps}")
        return losses

    def start_ranks(self, plan, data, steps, ranks, metrics, *more):
        """Starts processes with torchrun's variables that share the devices and connect by sockets, as between machines."""
        return start_ranks("cleave-run", self.plan(plan), "--data", self.data(data), "--steps", steps, "--tuning", "off", "--quiet",
                           "--metrics", metrics, *more, ranks=ranks, errors=lambda rank: f"{metrics}.{rank}.err",
                           environment=lambda rank: {"NCCL_HOSTID": f"gpu-check-rank{rank}", "NCCL_P2P_DISABLE": 1,
                                                     "NCCL_SHM_DISABLE": 1})

    @staticmethod
    def said(metrics, rank):
        with open(f"{metrics}.{rank}.err", errors="replace") as err:
            return last_line(err.read())

    def check(self, group, name, work):
        """Runs `work` as one check and returns its row. The result of `work` is the detail of a check that passed."""
        begin = time.monotonic()
        try:
            result, detail = "passed", work() or ""
        except Failure as failure:
            result, detail = "FAILED", str(failure)
        except Skip as skip:
            result, detail = SKIPPED, str(skip)
        except Exception as error: # an error in the check itself is a failure, too
            result, detail = "FAILED", f"{type(error).__name__}: {error}"
        row = {"group": group, "name": name, "result": result, "detail": detail, "seconds": round(time.monotonic() - begin, 1)}
        print(f"{group:<12} {name:<34} {result:<8} {row['seconds']:>6.1f} s  {detail}", flush=True)
        return row

    def all(self, group, works):
        """Runs independent checks, several at a time, and adds their rows in order."""
        with concurrent.futures.ThreadPoolExecutor(self.a.jobs) as pool:
            self.rows += list(pool.map(lambda one: self.check(group, *one), works))

    # ---- the groups ------------------------------------------------------------------------------------------------------

    def conformance(self):
        """Runs every device case of the conformance suite against the reference device's plain loops."""
        program = "conformance_tests"
        _, listed, _ = self.process([program, "--list-test-names-only"], 30)
        names = [n for n in listed.splitlines() if n.strip() and not n.startswith(("local:", "sockets:", "mpi:", "devices:"))]

        def case(name):
            escaped = name.replace("\\", "\\\\").replace(",", "\\,").replace("[", "\\[")
            status, out, err = self.process([program, escaped], 120, CLEAVE_CONFORMANCE_DEVICE="cuda")
            if status or "All tests passed" not in out:
                raise Failure(next((line.strip() for line in out.splitlines() if "error:" in line.lower() or "FAILED" in line), "")
                              + " " + last_line(out + err))
            return last_line(out).removeprefix("All tests passed ")
        if not names:
            raise RuntimeError("conformance_tests lists no device cases")
        self.all("conformance", [(name.split(":")[0] + (":" + name.split(":")[1] if ":" in name else ""), lambda n=name: case(n))
                                 for name in names])

    def chosen_curves(self):
        return [c for c in self.manifest["curves"] if not self.a.quick or c["quick"]]

    def record(self, name):
        return os.path.join(self.scratch, f"tuning-{name}.json")

    def curve(self, c):
        losses = self.train(c["plan"], c["data"], c["steps"], c["name"], tuning=self.record(c["name"]), limit=240)
        self.curve_losses[c["name"]] = losses
        with open(os.path.join(self.a.bundle, c["expected"])) as file:
            expected = json.load(file)["losses"]
        worst, where, tolerance = self.distance(losses, expected, c["precision"])
        if worst > 1:
            raise Failure(f"step {where + 1}: loss {losses[where]:.6g}, the CPU's {expected[where]:.6g}, allowed {tolerance(where):.1g} apart, relative")
        return f"{len(losses)} steps, at most {worst:.2f} of the tolerance ({TOLERANCE[c['precision']]:g}{' a step' if c['precision'] == 'fp32' else ''}), loss {losses[-1]:.5g}"

    @staticmethod
    def distance(found, expected, precision):
        """The largest distance as a share of the tolerance, its step, and the function that gives the tolerance of a step."""
        def tolerance(i):
            return TOLERANCE[precision] * (i + 1 if precision == "fp32" else 1)
        if len(found) != len(expected):
            raise Failure(f"{len(found)} losses, expected {len(expected)}")
        shares = [abs(a - b) / (tolerance(i) * max(abs(b), 1e-6)) if a == a and b == b else float("inf")
                  for i, (a, b) in enumerate(zip(found, expected))]
        worst = max(shares)
        return worst, shares.index(worst), tolerance

    def curves(self):
        self.all("curves", [(f"{c['sample']} {c['precision']}", lambda c=c: self.curve(c)) for c in self.chosen_curves()])

    def same_bits(self, c, what, *more):
        first = self.curve_losses.get(c["name"])
        if first is None: # the group of curves did not run, or the curve failed
            first = self.train(c["plan"], c["data"], c["steps"], c["name"], tuning=self.record(c["name"]), limit=240)
        again = self.train(c["plan"], c["data"], c["steps"], f"{c['name']}-{what}", *more, tuning=self.record(c["name"]), limit=240)
        if again != first:
            at = next((i for i, (a, b) in enumerate(zip(first, again)) if a != b), min(len(first), len(again)))
            raise Failure(f"step {at + 1}: {again[at]!r}, before {first[at]!r}")
        return f"{len(first)} losses equal bit for bit"

    def graphs(self):
        """Losses are equal bit for bit without captured graphs, and in a second run with the first run's tuning record."""
        works = []
        for c in self.chosen_curves():
            if c["precision"] in ("fp32", "bf16"):
                works.append((f"{c['sample']} {c['precision']} --no-graph", lambda c=c: self.same_bits(c, "plain", "--no-graph")))
                works.append((f"{c['sample']} {c['precision']} again", lambda c=c: self.same_bits(c, "again")))
        self.all("graphs", works)

    def split(self, s, one):
        metrics = os.path.join(self.scratch, s["name"].replace(" ", "-") + ".jsonl")
        limit = self.left(150)
        started = self.start_ranks(s["plan"], s["data"], s["steps"], s["ranks"], metrics, "--timeout", 60)
        try:
            ends = end_ranks(started, limit)
        except subprocess.TimeoutExpired:
            raise Failure(f"not all ranks have ended after {limit:.0f} s") from None
        for rank, (status, _) in enumerate(ends):
            if status:
                raise Failure(f"rank {rank}: exit status {status}: {self.said(metrics, rank)}")
        losses = read_losses(metrics)
        worst, where, _ = self.distance(losses, one(), s["precision"])
        if worst > 1:
            raise Failure(f"step {where + 1}: loss {losses[where]:.7g}, one rank's {one()[where]:.7g}")
        return f"{s['ranks']} processes, at most {worst:.2f} of the tolerance ({TOLERANCE[s['precision']]:g})"

    def splits(self):
        """Tests NCCL between processes that share the machine's devices."""
        chosen = [s for s in self.manifest["splits"] if not self.a.quick or s["quick"]]
        bases = {}
        for s in chosen:
            if s["base"] not in bases:
                name = os.path.basename(s["base"])[:-len(".plan")]
                row = self.check("splits", name.replace("-", " "), lambda s=s, n=name: bases.__setitem__(
                    s["base"], self.train(s["base"], s["data"], s["steps"], n)))
                self.rows.append(row)

        def one(s):
            if s["base"] not in bases:
                raise Failure("one rank did not run")
            return bases[s["base"]]
        self.all("splits", [(s["name"], lambda s=s: self.split(s, lambda: one(s))) for s in chosen])

    def killed_rank(self):
        s = next(s for s in self.manifest["splits"] if s["ranks"] == 2 and s["mesh"] == "dp=2")
        metrics = os.path.join(self.scratch, "killed.jsonl")
        limit = self.left(90)
        started = self.start_ranks(s["plan"], "synthetic" if s["data"] == "synthetic" else s["data"], 100_000_000, s["ranks"], metrics,
                                   "--timeout", TIMEOUT)
        try:
            end = time.monotonic() + limit
            while not read_losses(metrics):
                if time.monotonic() > end or started[0].poll() is not None:
                    raise Failure(f"training does not begin: {self.said(metrics, 0)}")
                time.sleep(0.2)
            started[1].kill()
            begin = time.monotonic()
            try:
                status = started[0].wait(TIMEOUT + 15)
            except subprocess.TimeoutExpired:
                raise Failure(f"rank 0 still runs {TIMEOUT + 15} s after rank 1 was killed") from None
            took = time.monotonic() - begin
        finally:
            kill(started)
        if status != 3:
            raise Failure(f"rank 0: exit status {status}, expected 3: {self.said(metrics, 0)}")
        return f"exit status 3 after {took:.1f} s: {self.said(metrics, 0)}"

    def failures(self):
        self.rows.append(self.check("failures", "a killed rank ends the others", self.killed_rank))

    def refused(self, plan, status, word, target=None, **environment):
        said = self.train(plan, "synthetic", 2, "refused-" + word, target=target, status=status, limit=60, **environment)
        if word not in said:
            raise Failure(f"must say '{word}', found: {last_line(said)}")
        return last_line(said)

    def errors(self):
        small = self.manifest["curves"][0]["plan"]
        errors = self.manifest["errors"]

        def architecture():
            later = [t for t in errors["architectures"] if int(t[3:]) // 10 > self.devices[0]["capability"] // 10]
            if not later:
                raise Skip("the bundle has no plan for a later architecture")
            return self.refused(errors["architecture"], 3, "its code is for", target=later[0])

        def ranks():
            many = next(s for s in self.manifest["splits"] if s["ranks"] == 2)
            if len(self.devices) > 1:
                raise Skip("this machine has a device for every rank")
            return self.refused(many["plan"], 2, "device 1 was asked for")

        works = [("no device", lambda: self.refused(small, 2, "no CUDA device", CUDA_VISIBLE_DEVICES="")),
                 ("a plan for another architecture", architecture), ("more memory than there is", lambda: self.refused(errors["memory"], 3, "free")),
                 ("more ranks than devices", ranks)]
        self.all("errors", works)

    def sanitize(self, c):
        tool = shutil.which("compute-sanitizer") or next((p for p in ("/usr/local/cuda/bin/compute-sanitizer",) if os.path.exists(p)), None)
        if self.a.quick:
            raise Skip("--quick")
        if self.manifest["emulated"]:
            raise Skip("not for emulated devices")
        if not tool:
            raise Skip("compute-sanitizer is not here")
        status, out, err = self.process(
            [tool, "--tool", "memcheck", "--error-exitcode", "77", os.path.join(programs.BIN, "cleave-run"), self.plan(c["plan"]),
             "--data", self.data(c["data"]), "--steps", "2", "--tuning", "off", "--quiet"], 150)
        if "Device not supported" in out + err:
            raise Skip("compute-sanitizer does not support this device")
        if status:
            raise Failure(f"exit status {status}: " + last_line("\n".join(l for l in (out + err).splitlines() if "=====" in l)))
        return next((line.strip("= ") for line in (out + err).splitlines() if "ERROR SUMMARY" in line), "")

    def sanitizer(self):
        chosen = [c for c in self.manifest["curves"] if c["name"] in ("mlp-fp32", "gpt-bf16", "convnet-fp32")]
        self.all("sanitizer", [(f"{c['sample']} {c['precision']}", lambda c=c: self.sanitize(c)) for c in chosen])

    def benchmark(self):
        why = "--quick" if self.a.quick else "not for emulated devices" if self.manifest["emulated"] else None
        if why:
            print(f"benchmark    {SKIPPED}: {why}", flush=True)
            return
        left = self.deadline - time.monotonic()
        print(f"\nbenchmark, {left:.0f} s:", flush=True)
        command = [sys.executable, os.path.join(self.a.bundle, "bench/run.py"), "--bundle", self.a.bundle, "--target", self.target, "--budget",
                   f"{left:.0f}"] + (["--json", self.a.json + ".bench"] if self.a.json else [])
        try:
            subprocess.run(command, timeout=max(30, left + 20))
        except subprocess.TimeoutExpired:
            print("benchmark: not ended in time", flush=True)
