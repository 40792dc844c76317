#!/usr/bin/env python3
"""Tests of plans for a cluster, and of the predictions of `cleave simulate`. Standard library only.

simulate.py --build BUILD [unittest arguments]
"""
import json, os, shutil, signal, time, tomllib

import programs
from e2e import Case
from programs import DIGITS, end_ranks, run, start_ranks

CLUSTER = """name = "two nodes"
[devices.a100-80g]
backend = "cuda"
memory_gib = 80.0
memory_gb_per_s = 2039.0
peak_tflops = { fp32 = 19.5, fp16 = 312.0 }
[[nodes]]
count = 2
devices = { a100-80g = 2 }
inside = { gb_per_s = 300.0, latency_us = 2.5 }
[network]
gb_per_s_per_node = 25.0
latency_us = 5.0
"""


class Simulate(Case):
    def setUp(self):
        super().setUp()
        self.cluster, self.plan = self.path("c.toml"), self.path("p.plan")
        self.split = ["--mesh", "dp=2,pp=2", "--microbatches", 4, "--no-code", "-o", self.plan]

    def write(self, was="", now=""):
        """Writes the cluster file with the text `was` replaced by `now`."""
        self.assertIn(was, CLUSTER)
        with open(self.cluster, "w") as out:
            out.write(CLUSTER.replace(was, now, 1))

    def predicted(self, *args):
        return json.loads(self.ok("cleave", "simulate", self.plan, "--json", *args))

    def test_clusters_that_do_not_suit_the_plan(self):
        for was, now, status, word in (
            ("gb_per_s = 300.0", "gb_per_s = -300.0", 2, "c.toml:10:23: nodes.inside.gb_per_s must be at least 1e-6"),
            ("{ a100-80g = 2 }", "{ a100 = 2 }", 2, '"a100", which is no device of this cluster'),
            ("count = 2", "count = 1", 2, "the plan has 4 ranks, cluster two nodes has 2 devices"),
            ("memory_gib = 80.0", "memory_gib = 1.01", 3, "needs"),
        ):
            self.write(was, now)
            self.refused("mlp", "plan", "--cluster", self.cluster, *self.split, word=word, status=status)
            self.assertFalse(os.path.exists(self.plan), "a refused plan leaves a file")
        self.write()
        self.refused("mlp", "plan", "--cluster", self.cluster, "--backend", "cpu", *self.split, word="are for cuda")
        self.ok("mlp", "plan", "--cluster", self.cluster, "--precision", "bf16", *self.split)
        self.refused("cleave", "simulate", self.plan, word="no peak_tflops.bf16")

    def test_what_simulate_is_given(self):
        self.write()
        self.refused("cleave", "simulate", word="FILE.plan, or --pipeline")
        self.ok("mlp", "plan", *self.split)
        self.refused("cleave", "simulate", self.plan, word="--cluster")
        self.refused("cleave", "simulate", self.plan, "--cluster", self.cluster, word="the plan is for cpu")
        self.refused("cleave", "simulate", self.plan, "--pipeline", "spec.json", word="excludes")
        self.refused("cleave", "simulate", self.plan, "--cluster", self.path("none.toml"), word="none.toml")
        self.refused("cleave", "simulate", "--cluster", self.cluster, word="plan")

    def test_predictions(self):
        self.write()
        self.ok("mlp", "plan", "--cluster", self.cluster, *self.split)
        trace = self.path("trace.json")
        self.refused("cleave", "simulate", self.plan, "--trace", "/no/such/trace.json", word="/no/such")
        found = self.predicted("--trace", trace)
        self.assertEqual((found["cluster"], found["fits"], len(found["ranks"])), ("two nodes", True, 4))
        self.assertEqual(found["peak_bytes"], json.loads(self.ok("cleave", "show", "--json", self.plan))["peak_bytes"])
        for rank in found["ranks"]:
            self.assertAlmostEqual(rank["busy_ms"] + rank["idle_ms"] + rank["communication_ms"], found["step_ms"])
            self.assertTrue(rank["idle_ms"] == 0 or rank["idle_ms"] > 1e-12 * found["step_ms"], "no time, only rounding")
        self.assertAlmostEqual(found["samples_per_s"], 128 / found["step_ms"] * 1e3)
        with open(trace) as lines:
            ends = [e["ts"] + e["dur"] for e in json.load(lines)["traceEvents"] if e["ph"] == "X"]
        self.assertAlmostEqual(max(ends), found["step_ms"] * 1e3)
        page = self.ok("cleave", "simulate", self.plan)
        self.assertIn("mlp   4 ranks on two nodes", page)
        self.assertLessEqual(max(map(len, page.splitlines())), 100)

    def test_show_and_diff_have_the_prediction(self):
        self.write()
        self.ok("mlp", "plan", "--cluster", self.cluster, *self.split)
        simulated = self.predicted()
        shown = json.loads(self.ok("cleave", "show", "--json", self.plan))["predicted"]
        self.assertEqual((shown["step_ms"], shown["bubble_fraction"]), (simulated["step_ms"], simulated["bubble_fraction"]))
        self.assertAlmostEqual(shown["compute_ms"] + shown["communication_ms"] + shown["idle_ms"], shown["step_ms"])
        busiest = max(simulated["ranks"], key=lambda rank: rank["busy_ms"])
        self.assertEqual([shown[key] for key in ("compute_ms", "communication_ms", "hidden_ms", "idle_ms")],
                         [busiest[key] for key in ("busy_ms", "communication_ms", "hidden_ms", "idle_ms")])
        self.assertRegex(self.ok("cleave", "show", self.plan),
                         r"(?m)^predicted \S+ ms a step: compute \S+, communication \S+ \(\S+ hidden\), bubble \S+ \(\d+%\)$")
        without = self.path("without.plan")
        self.ok("mlp", "plan", *self.split[:-1], without)
        self.assertIsNone(json.loads(self.ok("cleave", "show", "--json", without))["predicted"])
        self.assertNotIn("predicted", self.ok("cleave", "show", without))
        self.assertEqual(json.loads(self.ok("cleave", "diff", "--json", self.plan, without))["step_ms"], [simulated["step_ms"], None])

    def test_other_hardware(self):
        self.write()
        self.ok("mlp", "plan", "--cluster", self.cluster, *self.split)
        usual = self.predicted()["step_ms"]
        for was, now in (("gb_per_s_per_node = 25.0", "gb_per_s_per_node = 0.025"), ("fp32 = 19.5", "fp32 = 0.195"),
                         ("memory_gb_per_s = 2039.0", "memory_gb_per_s = 20.39"), ("latency_us = 5.0", "latency_us = 5000")):
            self.write(was, now)
            self.assertGreater(self.predicted("--cluster", self.cluster)["step_ms"], usual, now)

    def test_order_of_axes(self):
        """The fastest axis is inside a node: tensor parallelism between nodes is slower."""
        model = ["--layers", 2, "--width", 512, "--heads", 8, "--context", 128, "--batch", 16, "--no-code", "-o", self.plan]
        self.write()
        steps = []
        for mesh in ("dp=2,tp=2", "dp=2/tp=2", "tp=2/dp=2"):
            self.ok("gpt", "plan", "--cluster", self.cluster, *model, "--mesh", mesh)
            steps.append(self.predicted()["step_ms"])
        self.assertEqual(steps[0], steps[1])
        self.assertGreater(steps[2], 1.2 * steps[0])

    def test_links_of_pairs(self):
        """A pair of devices has its own links alone; a mistake in them is one message."""
        model = ["--layers", 2, "--width", 512, "--heads", 8, "--context", 128, "--batch", 16, "--mesh", "tp=2", "--no-code", "-o", self.plan]
        was, steps = "inside = { gb_per_s = 300.0, latency_us = 2.5 }", []
        links = 'inside = { latency_us = 2.5, link_gb_per_s = { NV = 25.0, SYS = 9.0 }, links = ["X %s", "%s X"] }'
        for now in (was, was.replace(" }", ", pair_gb_per_s = 50.0 }"), links % ("NV1", "NV1"), links % ("SYS", "SYS")):
            self.write(was, now)
            self.ok("gpt", "plan", "--cluster", self.cluster, *model)
            steps.append(self.predicted()["step_ms"])
        self.assertEqual(steps, sorted(steps))
        self.assertEqual(len(set(steps)), 4)
        self.write(was, links % ("NV1", "NV2"))
        self.refused("cleave", "simulate", self.plan, "--cluster", self.cluster,
                     word="c.toml:10:90: nodes.inside.links must be symmetric; device 1 has NV2 to device 0, which has NV1")

    def test_searched_schedule(self):
        """On a cluster, auto is at least as fast as the fastest published schedule, and respects the devices' memory."""
        model = ["--layers", 6, "--width", 256, "--context", 128, "--batch", 32, "--microbatches", 8, "--mesh", "pp=4", "--no-code", "-o", self.plan]
        self.write()
        found = {}

        def make(schedule, *options):
            self.ok("gpt", "plan", "--cluster", self.cluster, *model, "--schedule", schedule, *options)
            found[schedule] = self.predicted()
            return max(found[schedule]["peak_bytes"])

        peaks = {name: make(name) for name in ("gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "interleaved", "auto")}
        steps = {name: each["step_ms"] for name, each in found.items()}
        self.assertLessEqual(steps["auto"], min(steps.values()) * (1 + 1e-9), steps)
        gib = 2**30
        reserved = 1  # GiB of a GPU, see docs/prediction.md
        self.assertLess(peaks["1f1b"], peaks["zb-h2"])
        self.write("memory_gib = 80.0", f"memory_gib = {reserved + peaks['1f1b'] / gib:.6f}")
        self.assertLessEqual(make("auto"), peaks["1f1b"])
        self.assertLessEqual(found["auto"]["step_ms"], steps["1f1b"])
        os.remove(self.plan)
        self.write("memory_gib = 80.0", f"memory_gib = {reserved + 0.3 * peaks['1f1b'] / gib:.6f}")
        self.refused("gpt", "plan", "--cluster", self.cluster, *model, "--schedule", "auto", status=3,
                     word='schedule "auto": no schedule fits the cluster: rank')
        self.write()
        self.refused("gpt", "plan", "--cluster", self.cluster, "--layers", 1, *model[2:], "--schedule", "auto",
                     word="pp = 4 asks for more stages than the model's 3 layers")
        self.assertFalse(os.path.exists(self.plan), "a refused plan leaves a file")

    def test_collectives_grow_with_the_rows(self):
        """With one row per rank, dimensions are merged that are separate with more rows; the split must be the same. (Residual
        networks are not tested: the size of their statistics does not depend on the rows.)"""
        def sent(program, mesh, batch, options):
            self.ok(program, "plan", "--mesh", mesh, "--batch", batch, *options, "--no-code", "-o", self.plan)
            found = {}
            for each in json.loads(self.ok("cleave", "show", "--json", self.plan))["collectives"]:
                if each["source"] == "loss":
                    continue
                key = each["kind"], each["axis"], "gradients" if each["source"] == "gradients" else "activations"
                count, total = found.get(key, (0, 0))
                found[key] = count + each["count"], total + each["bytes"]
            return found

        for program in ("gpt", "llama", "vit", "lstm"):
            for mesh, dp in (("tp=2", 1), ("dp=2,tp=2", 2)):
                for options in ([], ["--sequence-parallel"]):
                    with self.subTest(f"{program} {mesh} {options}"):
                        one, two = (sent(program, mesh, rows * dp, options) for rows in (1, 2))
                        self.assertEqual(one.keys(), two.keys())
                        for key, (count, size) in one.items():
                            self.assertEqual(two[key][0], count, key)
                            self.assertAlmostEqual(two[key][1] / size, 1 if key[2] == "gradients" else 2, msg=f"{key} {size} {two[key]}",
                                                   delta=0.1)

    def test_attention_that_is_not_fused(self):
        """The scores take time and memory: 5 bytes per score of every microbatch in flight."""
        model = ["--layers", 2, "--width", 64, "--heads", 4, "--context", 512, "--vocab", 512, "--batch", 32, "--precision", "fp16"]
        self.write()
        self.ok("gpt", "plan", "--cluster", self.cluster, *model, "--mesh", "pp=2", "--microbatches", 4, "--schedule", "1f1b",
                "--no-code", "-o", self.plan)
        apart = self.predicted()
        self.write("memory_gib = 80.0", "memory_gib = 80.0\nfused_attention = true")
        fused = self.predicted("--cluster", self.cluster)
        scores = 5 * (32 // 4) * 4 * 512 * 512  # of one layer and microbatch
        self.assertEqual([a - f for a, f in zip(apart["peak_bytes"], fused["peak_bytes"])], [2 * scores, scores])
        self.assertGreater(apart["step_ms"], fused["step_ms"])
        self.assertEqual(fused["peak_bytes"], json.loads(self.ok("cleave", "show", "--json", self.plan))["peak_bytes"])
        needed = 1 + (fused["peak_bytes"][0] + scores) / 2**30  # fits only if fused
        self.write("memory_gib = 80.0", f"memory_gib = {needed}")
        self.assertFalse(self.predicted("--cluster", self.cluster)["fits"])
        self.refused("gpt", "plan", "--cluster", self.cluster, *model, "--mesh", "pp=2", "--microbatches", 4, "--schedule", "1f1b",
                     "--recompute", "none", "--no-code", "-o", self.path("no.plan"), word="it fits with fused attention (fused_attention = true", status=3)
        self.write("memory_gib = 80.0", f"memory_gib = {needed}\nfused_attention = true")
        self.assertTrue(self.predicted("--cluster", self.cluster)["fits"])
        # Selective recomputation computes attention again and does not keep its scores: only those of one layer exist at once.
        for fuses, kept in ((False, scores), (True, 0)):
            self.write("memory_gib = 80.0", f"memory_gib = 80.0\nfused_attention = {'true' if fuses else 'false'}")
            self.ok("gpt", "plan", "--cluster", self.cluster, *model, "--mesh", "pp=2", "--microbatches", 4, "--schedule", "1f1b",
                    "--recompute", "selective", "--no-code", "-o", self.plan)
            shown = json.loads(self.ok("cleave", "show", "--json", self.plan))["peak_bytes"]
            self.assertEqual([a - b for a, b in zip(self.predicted()["peak_bytes"], shown)], [kept, kept])

    def test_this_machine(self):
        self.ok("cleave", "doctor", "--cluster", self.cluster)
        self.ok("mlp", "plan", "--cluster", self.cluster, "--no-code", "-o", self.plan)
        found = self.predicted()
        self.assertGreater(found["step_ms"], 0)
        self.assertEqual(found["bubble_fraction"], 0)
        self.refused("cleave", "doctor", "--cluster", "/no/such/c.toml", word="/no/such")

    def test_links_between_ranks(self):
        """Rank 0 writes the measurements of all ranks, with every launcher."""
        ways = [lambda: [status for status, _ in end_ranks(start_ranks("cleave", "doctor", "--cluster", self.cluster, ranks=2))]]
        if shutil.which("mpirun"):
            ways.append(lambda: [run("cleave", "doctor", "--cluster", self.cluster, ranks=2)[0]])
            self.assertNotEqual(run("cleave", "doctor", "--cluster", "/no/such/c.toml", ranks=2)[0], 0)
        for way in ways:
            self.assertEqual(set(way()), {0})
            with open(self.cluster, "rb") as file:
                found = tomllib.load(file)
            self.assertEqual(found["nodes"][0]["count"], 1)  # one machine, however many ranks
            self.assertGreater(found["nodes"][0]["inside"]["gb_per_s"], 0)
            self.assertGreater(found["nodes"][0]["inside"]["latency_us"], 0)
            self.assertNotIn("network", found)
            self.assertNotIn("group_gb_per_s", found["nodes"][0]["inside"])
            self.ok("mlp", "plan", "--cluster", self.cluster, "--no-code", "-o", self.plan)
            os.remove(self.cluster)

    def test_groups_of_ranks(self):
        """Groups of 2, 4, ... ranks of a machine are measured; gb_per_s is the rate of all of its ranks."""
        self.assertEqual({status for status, _ in end_ranks(start_ranks("cleave", "doctor", "--cluster", self.cluster, ranks=5))}, {0})
        with open(self.cluster, "rb") as file:
            inside = tomllib.load(file)["nodes"][0]["inside"]
        self.assertEqual(len(inside["group_gb_per_s"]), 2)
        self.assertTrue(all(rate > 0 for rate in [inside["gb_per_s"], *inside["group_gb_per_s"]]), inside)
        self.ok("mlp", "plan", "--cluster", self.cluster, "--no-code", "-o", self.plan)


CORES = """[devices.core]
backend = "cpu"
memory_gib = 8.0
memory_gb_per_s = 20.0
peak_tflops = { fp32 = 0.1 }
[[nodes]]
devices = { core = 4 }
inside = { gb_per_s = 10.0, latency_us = 1.0 }
"""


class Against(Case):
    def setUp(self):
        super().setUp()
        self.cluster, self.plan, self.trace = self.path("c.toml"), self.path("p.plan"), self.path("t.json")
        with open(self.cluster, "w") as out:
            out.write(CORES)

    def make(self, *split, plan=None):
        self.ok("mlp", "plan", *split, "--threads", 1, "--cluster", self.cluster, "-o", plan or self.plan)

    def against(self, trace=None):
        return json.loads(self.ok("cleave", "simulate", self.plan, "--json", "--against", trace or self.trace))["against"]

    def events(self):
        with open(self.trace) as lines:
            return [e for e in json.load(lines)["traceEvents"] if e["ph"] == "X"]

    def check(self, ranks):
        """All ranks are in the trace, on one clock, and compared."""
        events, found = self.events(), self.against()
        self.assertEqual({e["pid"] for e in events}, set(range(ranks)))
        self.assertEqual(found["iterations"], 4)
        for iteration in range(4):  # the ranks' iterations overlap, because ranks wait for each other
            spans = [[(e["ts"], e["ts"] + e["dur"]) for e in events if e["pid"] == rank and e["args"]["iteration"] == iteration]
                     for rank in range(ranks)]
            self.assertLess(max(min(one)[0] for one in spans), min(max(end for _, end in one) for one in spans))
        self.assertEqual([rank["rank"] for rank in found["ranks"]], list(range(ranks)))
        kinds = {row["kind"]: row for row in found["kinds"]}
        self.assertGreater(kinds["product"]["measured_ms"], 0)
        self.assertAlmostEqual(kinds["product"]["ratio"], kinds["product"]["measured_ms"] / kinds["product"]["predicted_ms"])
        misses = [abs(row["measured_ms"] - row["predicted_ms"]) for row in found["steps"]]
        self.assertEqual(misses, sorted(misses, reverse=True))
        for rank in found["ranks"]:
            parts = sum(rank[part]["measured_ms"] for part in ("busy", "communication", "idle"))
            self.assertGreater(parts, 0.5 * found["step"]["measured_ms"])
        return kinds

    def test_ranks_as_threads(self):
        self.make("--mesh", "dp=2,pp=2", "--microbatches", 4)
        self.ok("cleave-run", self.plan, "--data", DIGITS, "--steps", 8, "--quiet", "--trace", self.trace)
        kinds = self.check(4)
        self.assertIn("all-reduce dp", kinds)
        self.assertIn("message", kinds)
        page = self.ok("cleave", "simulate", self.plan, "--against", self.trace)
        for word in ("median of 4 iterations", "stage 1", "all-reduce dp", "largest misses first", "layers.0"):
            self.assertIn(word, page)
        self.assertLessEqual(max(map(len, page.splitlines())), 108)

    def test_an_epoch_with_evaluation(self):
        """The trace covers training, although an evaluation ran last. Here the program writes it, not cleave-run."""
        self.make("--mesh", "dp=2")
        self.ok("mlp", "train", "--plan", self.plan, "--data", DIGITS, "--epochs", 1, "--quiet", "--trace", self.trace)
        self.check(2)
        self.assertNotIn("eval", {e["cat"] for e in self.events()})

    def test_ranks_as_processes(self):
        self.make("--mesh", "dp=2")
        words = [self.plan, "--data", DIGITS, "--steps", 8, "--quiet", "--trace", self.trace]
        ends = end_ranks(start_ranks("cleave-run", *words, ranks=2))
        self.assertEqual([status for status, _ in ends], [0, 0], ends)
        self.check(2)
        if shutil.which("mpirun"):
            os.remove(self.trace)
            status, _, err = run("cleave-run", *words, ranks=2)
            self.assertEqual(status, 0, err)
            self.check(2)

    def test_a_rank_that_dies_or_has_no_trace(self):
        self.make("--mesh", "dp=2")
        words = [self.plan, "--data", DIGITS, "--quiet", "--timeout", 10]
        ends = end_ranks(start_ranks("cleave-run", *words, "--steps", 4, ranks=2, last=["--trace", self.trace]))
        self.assertTrue(all(status in (2, 3) for status, _ in ends), ends)
        self.assertIn("--trace", "".join(err for _, err in ends))
        metrics = self.path("m.jsonl")
        started = start_ranks("cleave-run", *words, "--epochs", 100000, "--trace", self.trace, "--metrics", metrics, ranks=2)
        deadline = time.monotonic() + 60
        while not (os.path.exists(metrics) and os.path.getsize(metrics) > 1000) and time.monotonic() < deadline:
            time.sleep(0.01)
        started[1].send_signal(signal.SIGKILL)
        ends = end_ranks(started, timeout=60)
        self.assertEqual(ends[0][0], 3, ends)
        self.assertFalse(os.path.exists(self.trace))

    def test_traces_that_do_not_suit_the_plan(self):
        self.make("--mesh", "dp=2")
        other = self.path("other.plan")
        self.make("--mesh", "tp=2", plan=other)
        run_plan = lambda plan, *args: self.ok("cleave-run", plan, "--data", DIGITS, "--quiet", "--trace", self.trace, *args)
        refused = lambda word, trace=self.trace: self.refused("cleave", "simulate", self.plan, "--against", trace, word=word)
        refused("none.json", self.path("none.json"))
        refused("torn, or no JSON", self.cluster)
        run_plan(other, "--steps", 2)
        refused("a trace of another plan")
        self.refused("cleave", "simulate", "--against", self.trace, word="plan")
        run_plan(self.plan, "--steps", 2)
        self.assertEqual(self.against()["iterations"], 2)
        with open(self.trace) as file:
            text = file.read()
        whole = json.loads(text)
        for word, events in (("lacks rank 1", [e for e in whole["traceEvents"] if e["pid"] == 0]), ("not complete", whole["traceEvents"][:-3])):
            with open(self.trace, "w") as file:
                json.dump({**whole, "traceEvents": events}, file)
            refused(word)
        with open(self.trace, "w") as file:
            file.write(text[:len(text) // 2])
        refused("torn, or no JSON")
        self.ok("cleave", "simulate", self.plan, "--trace", self.trace)
        refused("no trace of a run")  # it is a predicted trace


class Calibrate(Case):
    def setUp(self):
        super().setUp()
        self.cluster, self.plan, self.trace, self.fitted = (self.path(name) for name in ("c.toml", "p.plan", "t.json", "f.toml"))
        with open(self.cluster, "w") as out:
            out.write(CORES)
        self.ok("mlp", "plan", "--mesh", "dp=2", "--threads", 1, "--cluster", self.cluster, "-o", self.plan)
        self.ok("mlp", "train", "--plan", self.plan, "--data", DIGITS, "--steps", 8, "--quiet", "--trace", self.trace)

    def text(self, path):
        with open(path, "rb") as file:
            return file.read()

    def test_the_next_plan_uses_the_fit(self):
        said = json.loads(self.ok("cleave", "calibrate", self.plan, self.trace, "-o", self.fitted, "--json"))
        constants = {each["name"]: each for each in said["constants"]}
        peak = constants["devices.core.peak_tflops.fp32"]
        self.assertTrue(peak["determined"])
        self.assertGreater(peak["steps"], 5)
        self.assertLess(peak["relative_error"], 0.25)
        self.assertFalse(constants["devices.core.constants.convolution_fp32"]["determined"])
        for each in said["constants"]:
            self.assertGreater(each["after"], 0)
            if not each["determined"]:
                self.assertEqual(each["after"], each["before"])
        self.assertEqual([each["iterations"] for each in said["plans"]], [4])
        with open(self.fitted, "rb") as file:
            device = tomllib.load(file)["devices"]["core"]
        self.assertEqual(device["peak_tflops"]["fp32"], peak["after"])
        self.assertEqual(device["memory_gib"], 8.0)
        simulated = json.loads(self.ok("cleave", "simulate", self.plan, "--cluster", self.fitted, "--json"))["step_ms"]
        self.assertAlmostEqual(said["plans"][0]["predicted_after_ms"], simulated)
        self.ok("mlp", "plan", "--devices", 2, "--batch", 64, "--cluster", self.fitted, "--no-code", "-o", self.path("next.plan"))
        self.assertIsNotNone(json.loads(self.ok("cleave", "show", "--json", self.path("next.plan")))["predicted"])

    def test_several_plans(self):
        other, trace = self.path("o.plan"), self.path("o.json")
        self.ok("mlp", "plan", "--batch", 32, "--threads", 1, "--cluster", self.cluster, "-o", other)
        self.ok("cleave-run", other, "--data", DIGITS, "--steps", 8, "--quiet", "--trace", trace)
        page = self.ok("cleave", "calibrate", self.plan, self.trace, self.trace, other, trace, "-o", self.fitted)
        self.assertIn("of 2 plans", page)
        self.assertIn("not determined", page)
        first = self.text(self.fitted)
        self.ok("cleave", "calibrate", self.plan, self.trace, self.trace, other, trace, "-o", self.fitted)
        self.assertEqual(self.text(self.fitted), first)

    def test_mistakes(self):
        def refused(*words, word, status=2):
            self.refused("cleave", "calibrate", *words, word=word, status=status)
            self.assertEqual([name for name in os.listdir(self.folder.name) if "f.toml" in name], [], "a file is left behind")
        good = [self.plan, self.trace]
        without = self.path("w.plan")
        self.ok("mlp", "plan", "--mesh", "dp=2", "--threads", 1, "-o", without)
        refused(*good, word="--output")
        refused(self.trace, self.plan, "-o", self.fitted, word="a trace must follow its plan")
        refused(self.plan, "-o", self.fitted, word="needs at least one trace")
        refused(without, self.trace, "-o", self.fitted, word="make it with --cluster")
        refused(*good, without, self.trace, "-o", self.fitted, "--cluster", self.cluster, word="a trace of another plan")
        refused(self.plan, self.cluster, "-o", self.fitted, word="torn, or no JSON")
        refused(self.plan, self.path("none.json"), "-o", self.fitted, word="none.json")
        refused(self.path("none.plan"), self.trace, "-o", self.fitted, word="none.plan")
        refused(*good, "-o", self.path("none/f.toml"), word="none/f.toml")
        content = self.text(self.plan)
        for path in (self.plan, self.trace, self.cluster):
            before = self.text(path)
            refused(*good, "--cluster", self.cluster, "-o", path, word="--output")
            self.assertEqual(self.text(path), before)
        with open(self.trace) as file:
            text = file.read()
        torn = self.path("torn.json")
        with open(torn, "w") as file:
            file.write(text[:len(text) // 2])
        refused(self.plan, torn, "-o", self.fitted, word="torn, or no JSON")
        damaged = self.path("damaged.plan")
        with open(damaged, "wb") as file:
            file.write(content[:len(content) // 2])
        refused(damaged, self.trace, "-o", self.fitted, word="damaged.plan", status=3)
        with open(damaged, "wb") as file:
            file.write(content[:8] + (999).to_bytes(4, "little") + content[12:])
        refused(damaged, self.trace, "-o", self.fitted, word="999", status=3)
        small = self.path("small.toml")
        with open(small, "w") as out:
            out.write(CORES.replace("core = 4", "core = 1"))
        refused(*good, "--cluster", small, "-o", self.fitted, word="the plan has 2 ranks")
        with open(small, "w") as out:
            out.write(CORES.replace("[[nodes]]", "constants = { lunch_us = 1.0 }\n[[nodes]]"))
        refused(*good, "--cluster", small, "-o", self.fitted, word="did you mean launch_us?")


if __name__ == "__main__":
    programs.main()
