#!/usr/bin/env python3
"""Tests of `cleave explain`, of plans that repeat a request (--like), and of tables of numbers of devices. Standard library only.

explain.py --build BUILD [unittest arguments]
"""
import json, os, shutil, unittest

import programs
from e2e import Case
from simulate import CLUSTER

GPT = ("--layers", 2, "--width", 64, "--heads", 4, "--context", 64, "--vocab", 128, "--batch", 16, "--precision", "fp16")
PINNED = ("--devices", 4, "--schedule", "1f1b", "--microbatches", 2) # a small space to search


class Explain(Case):
    def setUp(self):
        super().setUp()
        self.cluster = self.path("c.toml")
        with open(self.cluster, "w") as out:
            out.write(CLUSTER.replace("count = 2", "count = 4"))

    def fails(self, status, words, program, *args):
        found, _, err = programs.run(program, *args)
        self.assertEqual((found, words in err), (status, True), err[-600:])

    def made(self, name, *args):
        plan = self.path(name)
        self.ok("gpt", "plan", "--no-code", *GPT, "--cluster", self.cluster, "-o", plan, *args)
        return plan

    def again(self, plan, *args):
        other = self.path("again.plan")
        self.ok("gpt", "plan", "--no-code", "--like", plan, "-o", other, *args)
        return other

    def json(self, *args):
        return json.loads(self.ok("cleave", *args, "--json"))

    def changes(self, a, b):
        return {one["what"]: (one["a"], one["b"]) for one in self.json("diff", a, b)["changes"]}

    def test_a_request_repeated(self):
        """The same plan from the plan alone; a change of one option changes what follows from it and nothing else."""
        given = self.made("given.plan", "--mesh", "dp=2,pp=2", "--microbatches", 4, "--schedule", "gpipe", "--zero", 1)
        found = self.made("found.plan", *PINNED)
        for plan in (given, found):
            with open(plan, "rb") as one, open(self.again(plan), "rb") as other:
                self.assertEqual(one.read(), other.read())
        changed = self.changes(given, self.again(given, "--microbatches", 8))
        self.assertEqual(changed["microbatches"], ("4", "8"))
        self.assertNotIn("mesh", changed)
        self.assertNotIn("schedule", changed)
        changed = self.changes(given, self.again(given, "--mesh", "dp=4", "--layers", 3))
        self.assertEqual(changed["mesh"], ("dp=2,tp=1,pp=2", "dp=4,tp=1,pp=1"))
        self.assertNotIn("microbatches", changed)
        pinned = found
        text = self.ok("cleave", "show", "--strategy", pinned)
        self.assertIn('origin = { mesh = "search", schedule = "command line", microbatches = "command line", ', text)
        self.assertEqual(self.json("show", self.again(pinned, "--batch", 32))["microbatches"], 2)

    def test_mistakes_of_like(self):
        plan = self.made("p.plan", "--mesh", "dp=2")
        self.fails(2, "the plan is for model gpt, but this program is mlp", "mlp", "plan", "--like", plan, "-o", self.path("m.plan"))
        self.fails(2, "no.plan", "gpt", "plan", "--like", self.path("no.plan"), "-o", self.path("m.plan"))
        self.fails(2, "--alternatives: needs --cluster", "gpt", "plan", "--mesh", "dp=2", "--alternatives", "-o", self.path("m.plan"))
        self.assertFalse(os.path.exists(self.path("m.plan")))
        strategy = self.path("s.toml")
        with open(strategy, "w") as out:
            out.write('origin = { meshes = "search" }\n')
        self.fails(2, '"meshes" is none', "gpt", "plan", "--strategy", strategy, "-o", self.path("m.plan"))

    def test_time_and_memory(self):
        plan = self.made("p.plan", "--mesh", "dp=2,pp=2", "--microbatches", 4)
        said, simulated = self.json("explain", plan), self.json("simulate", plan)
        self.assertAlmostEqual(said["step_ms"], simulated["step_ms"])
        busiest = max(simulated["ranks"], key=lambda one: one["busy_ms"])
        self.assertAlmostEqual(sum(one["ms"] for one in said["time"]), simulated["step_ms"], delta=1e-6 * said["step_ms"])
        self.assertAlmostEqual(sum(one["exposed_ms"] for one in said["axes"]), busiest["communication_ms"], delta=1e-6 * said["step_ms"])
        self.assertEqual({one["axis"] for one in said["axes"]} & {"dp", "pp"}, {"dp", "pp"})
        self.assertEqual(said["memory"]["needed_bytes"], max(simulated["peak_bytes"]))
        self.assertEqual(sum(said["memory"]["parts"].values()), said["memory"]["needed_bytes"])
        self.assertIn("gpt.cpp:", said["bottleneck"]["op"]["location"])
        kept = sum(one["bytes"] for one in said["memory"]["kept"])
        self.assertTrue(0 < kept <= said["memory"]["parts"]["activations"])
        page = self.ok("cleave", "explain", plan)
        for words in ("bottleneck: ", "other plans, each with one decision changed", "gpt.cpp:"):
            self.assertIn(words, page)

    def test_alternatives(self):
        """Each is what the program makes of that decision; of those that a search had to choose from, none is faster by more than 1%."""
        plan = self.made("p.plan", *PINNED)
        said = self.json("explain", plan)
        self.assertTrue(said["alternatives"])
        for one in said["alternatives"]:
            if one["step_ms"] and one["decision"] not in ("microbatches", "schedule"): # which were asked for
                self.assertGreater(one["step_ms"], 0.99 * said["step_ms"], one)
                self.assertEqual(one["matters"], abs(one["step_ms"] / said["step_ms"] - 1) > 0.01)
        stored = self.made("stored.plan", *PINNED, "--alternatives")
        self.assertEqual(self.json("explain", stored)["alternatives"], said["alternatives"])
        self.ok("cleave", "verify", stored)
        by_hand = self.json("explain", self.made("hand.plan", "--mesh", "tp=4,pp=2", "--microbatches", 4))
        mesh = next(one for one in by_hand["alternatives"] if one["decision"] == "mesh")
        there = self.json("simulate", self.made("there.plan", "--mesh", mesh["value"], "--microbatches", 4))
        self.assertAlmostEqual(mesh["step_ms"], there["step_ms"], delta=0.05 * mesh["step_ms"])

    def test_what_if(self):
        plan = self.made("p.plan", *PINNED)
        def what_if(words, of=plan):
            return self.json("explain", of, "--what-if", words)["what_if"][0]
        faster = what_if("network 4000")
        self.assertLessEqual(faster["step_ms"][1], faster["step_ms"][0])
        zero = what_if("zero 3")
        self.assertIn("predicted step, ms", {one["what"] for one in zero["changes"]})
        two = self.json("explain", plan, "--what-if", "batch 32", "--what-if", "mesh dp=4")["what_if"]
        self.assertEqual([one["change"] for one in two], ["batch 32", "mesh dp=4"])
        self.assertIn({"what": "batch", "a": "16", "b": "32"}, two[0]["changes"])
        self.assertIn("problem", what_if("memory 0.001"))
        self.fails(2, "must be one of batch", "cleave", "explain", plan, "--what-if", "color 3")
        self.fails(2, "must be a number above 0, found 'x'", "cleave", "explain", plan, "--what-if", "network x")
        self.fails(2, "did you mean network", "cleave", "explain", plan, "--what-if", "netwrk 3")
        self.fails(2, "the plan has 27 ranks", "cleave", "explain", plan, "--what-if", "mesh dp=3,pp=9")

    def test_decisions_of_two_plans(self):
        """Each decision of the second plan alone is what the program makes of the first with that option."""
        first = self.made("a.plan", "--mesh", "dp=2,pp=2", "--microbatches", 4)
        second = self.made("b.plan", "--mesh", "dp=2,pp=2", "--microbatches", 8, "--zero", 1, "--recompute", "full", "--schedule", "gpipe",
                           "--optimizer", "sgd")
        said = self.json("diff", first, second)
        decisions = {one["decision"]: one for one in said["changes"] if "decision" in one}
        self.assertEqual({name: (one["from"], one["to"]) for name, one in decisions.items()},
                         {"microbatches": ("4", "8"), "zero": ("0", "1"), "recompute": ("none", "full"), "schedule": ("1f1b", "gpipe"),
                          "optimizer": ("adamw", "sgd")})
        for name, one in decisions.items():
            alone = self.json("show", self.again(first, "--" + name, one["to"]))
            self.assertEqual(one["step_ms"], [said["step_ms"][0], alone["predicted"]["step_ms"]], name)
            self.assertEqual(one["peak_bytes"][1], self.json("diff", first, self.path("again.plan"))["peak_bytes"][1], name)
        self.assertEqual(said["model"], [])
        page = self.ok("cleave", "diff", first, second)
        self.assertRegex(page, r"\nzero +0 +1\n    alone [0-9.]+ ms \([-+][0-9.]+%\), memory -[0-9.]+ MiB")
        other = self.json("diff", first, self.made("c.plan", "--mesh", "dp=4", "--microbatches", 4))
        mesh = next(one for one in other["changes"] if one["what"] == "mesh")
        self.assertEqual(mesh["with"], ["stages"])
        self.assertEqual(mesh["step_ms"], other["step_ms"])
        self.assertEqual(self.json("diff", first, first)["changes"], [])
        alone = self.path("bin")
        os.mkdir(alone)
        shutil.copy(os.path.join(programs.BIN, "cleave"), alone)
        page = self.ok(os.path.join(alone, "cleave"), "diff", first, second)
        self.assertIn("needs the program 'gpt'", page)

    def test_changes_of_the_model(self):
        """Parameters and ops that only one of the plans has, or that differ, with the line of the model."""
        first = self.made("a.plan", "--mesh", "dp=2")
        deeper = self.json("diff", first, self.again(first, "--layers", 3))
        self.assertIn("option --layers", {one["what"] for one in deeper["changes"]})
        up = next(one for one in deeper["model"] if one["path"] == "blocks.2.mlp.up.weight")
        self.assertEqual((up["what"], up["a"], up["b"]), ("new", "", "F32 [256, 64]"))
        self.assertIn("gpt.cpp:", up["location"])
        page = self.ok("cleave", "diff", first, self.again(first, "--width", 128))
        self.assertRegex(page, r"changed +blocks.\*.mlp.up.weight \(2\) +F32 \[256, 64\] -> F32 \[512, 128\] +\S*gpt.cpp:")

    def test_who_decided(self):
        plan = self.made("p.plan", *PINNED, "--recompute", "full")
        decisions = {one["decision"]: (one["value"], one["origin"]) for one in self.json("show", plan)["decisions"] if "path" not in one}
        self.assertEqual(decisions["microbatches"], ("2", "command line"))
        self.assertEqual(decisions["recompute"], ("full", "command line"))
        self.assertEqual(decisions["mesh"][1], "search")
        self.assertRegex(self.ok("cleave", "show", plan), r"found by the search +mesh [^;]+; stages ")
        only = self.made("only.plan", "--devices", 4, "--strategy", "pipeline", "--microbatches", 2)
        self.assertEqual(self.json("show", self.again(only))["mesh"]["pp"], 4) # the restriction is kept
        marked = self.path("marked.plan")
        self.ok("sharding", "plan", "--no-code", "--convolutions", "samples", "--mesh", "dp=2,tp=2", "-o", marked)
        self.assertTrue([one for one in self.json("show", marked)["decisions"] if one["origin"] == "code"])
        self.assertIn("marked in the code", self.ok("cleave", "show", marked))

    def test_one_tensor(self):
        plan = self.made("p.plan", "--mesh", "dp=2,tp=2", "--microbatches", 2)
        said = self.json("explain", plan, "--tensor", "blocks.1.mlp.up.weight")["tensor"]
        self.assertIn("gpt.cpp:", said["location"])
        self.assertEqual(said["split"], "[256/tp, 64]")
        chosen = [one["split"] for one in said["options"] if one.get("chosen")]
        self.assertEqual(chosen, ["dimension 0 over tp"])
        self.assertGreater(sum(one["step_ms"] is not None for one in said["options"]), 2)
        self.fails(2, "did you mean blocks.1.mlp.up.weight", "cleave", "explain", plan, "--tensor", "blocks.1.mlp.up.wight")

    def test_sensitivity(self):
        plan = self.made("p.plan", *PINNED)
        said = self.json("explain", plan, "--sensitivity")["sensitivity"]
        self.assertIn("network.gb_per_s_per_node", {one["constant"] for one in said["constants"]})
        for one in said["constants"]:
            self.assertEqual(set(one["losses"]), {"-30%", "-10%", "+10%", "+30%"})
            self.assertAlmostEqual(one["worst_loss"], max(one["losses"].values()))
        self.fails(2, "needs a plan that a search found", "cleave", "explain", self.made("h.plan", "--mesh", "dp=2"), "--sensitivity")

    def test_plans_that_cannot_be_explained(self):
        plan = self.path("p.plan")
        self.ok("gpt", "plan", "--no-code", *GPT, "--mesh", "dp=2", "-o", plan)
        self.fails(2, "does not say for which cluster", "cleave", "explain", plan)
        plan = self.made("q.plan", "--mesh", "dp=2")
        alone = self.path("bin")
        os.mkdir(alone)
        shutil.copy(os.path.join(programs.BIN, "cleave"), alone)
        self.fails(2, "needs the program 'gpt'", os.path.join(alone, "cleave"), "explain", plan)
        self.ok(os.path.join(alone, "cleave"), "explain", plan, "--program", os.path.join(programs.BIN, "gpt"))
        self.fails(2, "is not a program", "cleave", "explain", plan, "--program", plan)

    def test_a_table_of_devices(self):
        table = json.loads(self.ok("gpt", "plan", *GPT, "--cluster", self.cluster, "--devices", "1,2,4", "--microbatches", 2, "--samples", 1000, "--json"))
        rows = table["rows"]
        self.assertEqual([row["devices"] for row in rows], [1, 2, 4])
        self.assertEqual(rows[0]["efficiency"], 1)
        for row in rows:
            single = self.json("simulate", self.made("one.plan", "--devices", row["devices"], "--microbatches", 2))
            self.assertAlmostEqual(row["step_ms"], single["step_ms"])
            self.assertAlmostEqual(row["hours"] * 3600 * row["samples_per_s"], 1000)
            self.assertAlmostEqual(row["device_hours"], row["hours"] * row["devices"])
        other = self.path("other.toml")
        with open(other, "w") as out:
            out.write(CLUSTER.replace('"two nodes"', '"the others"'))
        with open(other, "w") as out: # searches share nothing that depends on the kind of devices
            out.write(CLUSTER.replace('"two nodes"', '"the others"').replace('backend = "cuda"', 'backend = "cpu"'))
        exact = (*GPT[:-2], "--precision", "fp32", "--devices", 2, "--microbatches", 2)
        rows = json.loads(self.ok("gpt", "plan", *exact, "--cluster", f"{self.cluster},{other}", "--json"))["rows"]
        for row, cluster in zip(rows, (self.cluster, other)):
            single = self.path("single.plan")
            self.ok("gpt", "plan", "--no-code", *exact, "--cluster", cluster, "-o", single)
            self.assertEqual(row["step_ms"], self.json("simulate", single)["step_ms"])
        page = self.ok("gpt", "plan", *exact[:-4], "--cluster", f"{self.cluster},{other}", "--devices", 2, "--microbatches", 2)
        self.assertIn("the others", page)
        self.fails(2, "each of the list must be a whole number", "gpt", "plan", *GPT, "--cluster", self.cluster, "--devices", "1,x")
        self.fails(2, "needs --cluster FILE", "gpt", "plan", *GPT, "--devices", "1,2")
        self.fails(2, "a table of several plans is printed", "gpt", "plan", *GPT, "--cluster", self.cluster, "--devices", "1,2", "-o", other)
        self.fails(2, "--output is required", "gpt", "plan", *GPT)


if __name__ == "__main__":
    programs.main()
