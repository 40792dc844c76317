#!/usr/bin/env python3
"""Plans for a cluster, and what `cleave simulate` predicts of them. Standard library only.

simulate.py --build BUILD [unittest arguments]
"""
import json, os

import programs
from e2e import Case

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
        """The cluster file, with one thing changed."""
        self.assertIn(was, CLUSTER)
        with open(self.cluster, "w") as out:
            out.write(CLUSTER.replace(was, now, 1))

    def predicted(self, *args):
        return json.loads(self.ok("cleave", "simulate", self.plan, "--json", *args))

    def test_clusters_that_do_not_suit_the_plan(self):
        for was, now, status, word in (
            ("gb_per_s = 300.0", "gb_per_s = -300.0", 2, "c.toml:10:23: nodes.inside.gb_per_s must be above 0"),
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
        self.assertAlmostEqual(found["samples_per_s"], 128 / found["step_ms"] * 1e3)
        with open(trace) as lines:
            ends = [e["ts"] + e["dur"] for e in json.load(lines)["traceEvents"] if e["ph"] == "X"]
        self.assertAlmostEqual(max(ends), found["step_ms"] * 1e3)
        page = self.ok("cleave", "simulate", self.plan)
        self.assertIn("mlp   4 ranks on two nodes", page)
        self.assertLessEqual(max(map(len, page.splitlines())), 100)

    def test_other_hardware(self):
        self.write()
        self.ok("mlp", "plan", "--cluster", self.cluster, *self.split)
        usual = self.predicted()["step_ms"]
        for was, now in (("gb_per_s_per_node = 25.0", "gb_per_s_per_node = 0.025"), ("fp32 = 19.5", "fp32 = 0.195"),
                         ("memory_gb_per_s = 2039.0", "memory_gb_per_s = 20.39"), ("latency_us = 5.0", "latency_us = 5000")):
            self.write(was, now)
            self.assertGreater(self.predicted("--cluster", self.cluster)["step_ms"], usual, now)

    def test_attention_that_is_not_fused(self):
        """Its scores take memory and time: 5 bytes each, of every microbatch in flight."""
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
        self.write("memory_gib = 80.0", f"memory_gib = {needed}\nfused_attention = true")
        self.assertTrue(self.predicted("--cluster", self.cluster)["fits"])

    def test_this_machine(self):
        self.ok("cleave", "doctor", "--cluster", self.cluster)
        self.ok("mlp", "plan", "--cluster", self.cluster, "--no-code", "-o", self.plan)
        found = self.predicted()
        self.assertGreater(found["step_ms"], 0)
        self.assertEqual(found["bubble_fraction"], 0)
        self.refused("cleave", "doctor", "--cluster", "/no/such/c.toml", word="/no/such")


if __name__ == "__main__":
    programs.main()
