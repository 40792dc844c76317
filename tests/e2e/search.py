#!/usr/bin/env python3
"""Tests of strategies that a search finds, and of `cleave solve`. Standard library only.

search.py --build BUILD [unittest arguments]
"""
import gzip, json, math, os, shutil, signal, subprocess, time

import programs
from e2e import Case
from programs import DIGITS, end_ranks, run, start_ranks

CLUSTER = """name = "two nodes"
[devices.a100-40g]
backend = "cuda"
memory_gib = %s
memory_gb_per_s = 1555.0
peak_tflops = { fp32 = 19.5, tf32 = 156.0, fp16 = 312.0, bf16 = 312.0 }
[[nodes]]
count = 2
devices = { a100-40g = 4 }
inside = { gb_per_s = 300.0, latency_us = 3.0 }
[network]
gb_per_s_per_node = 25.0
latency_us = 10.0
"""
MIXED = """name = "mixed"
[devices.v100-16g]
backend = "cuda"
memory_gib = 16.0
memory_gb_per_s = 900.0
peak_tflops = { fp32 = 15.7, fp16 = 125.0 }
[devices.a100-40g]
backend = "cuda"
memory_gib = 40.0
memory_gb_per_s = 1555.0
peak_tflops = { fp32 = 19.5, tf32 = 156.0, fp16 = 312.0, bf16 = 312.0 }
[[nodes]]
count = 2
devices = { v100-16g = 1, a100-40g = 1 }
inside = { gb_per_s = 130.0, latency_us = 3.0 }
[network]
gb_per_s_per_node = 25.0
latency_us = 10.0
"""
GPT = ["--layers", 8, "--width", 512, "--heads", 8, "--context", 256, "--vocab", 8192, "--batch", 64, "--precision", "bf16", "--no-code"]
GPT16 = ["fp16" if word == "bf16" else word for word in GPT]


class Search(Case):
    def cluster(self, memory=40.0):
        with open(self.path("cluster.toml"), "w") as out:
            out.write(CLUSTER % memory)
        return ["--cluster", self.path("cluster.toml")]

    def said(self, *command):
        """What a program that succeeds writes to standard error."""
        status, _, err = run(*command)
        self.assertEqual(status, 0, err)
        return err

    def test_a_cluster_is_enough(self):
        one, two = self.path("one.plan"), self.path("two.plan")
        self.ok("gpt", "plan", *GPT, *self.cluster(), "-o", one)
        self.ok("gpt", "plan", *GPT, *self.cluster(), "--strategy", "auto", "--devices", 8, "-o", two)
        with open(one, "rb") as a, open(two, "rb") as b:
            self.assertEqual(a.read(), b.read())
        self.ok("cleave", "verify", one)
        shown = json.loads(self.ok("cleave", "show", "--json", one))
        found, counts = shown["search"], shown["search"]["configurations"]
        self.assertEqual(shown["ranks"], 8)
        self.assertEqual(sum(counts[name] for name in counts if name != "total"), counts["total"])
        self.assertGreater(counts["total"], 1000)
        self.assertLessEqual(found["compiled"], 4)
        self.assertLessEqual(found["lower_bound_ms"], found["step_ms"])
        self.assertLess(found["floor_ms"], found["step_ms"])
        self.assertIn("plans:", self.ok("cleave", "show", one))
        for hand in (["--mesh", "dp=8"], ["--mesh", "dp=4,tp=2"], ["--mesh", "dp=2,tp=2,pp=2", "--microbatches", 8], ["--mesh", "tp=4,pp=2", "--microbatches", 4]):
            self.ok("gpt", "plan", *GPT, *self.cluster(), *hand, "-o", two)
            self.assertGreaterEqual(json.loads(self.ok("cleave", "simulate", "--json", two))["step_ms"], found["step_ms"] * 0.9999, hand)
            self.assertIsNone(json.loads(self.ok("cleave", "show", "--json", two))["search"])

    def test_a_strategy_reads_back(self):
        one, two, strategy = self.path("one.plan"), self.path("two.plan"), self.path("found.toml")
        self.ok("gpt", "plan", *GPT, *self.cluster(), "-o", one)
        with open(strategy, "w") as out:
            out.write(self.ok("cleave", "show", "--strategy", one))
        self.ok("gpt", "plan", *GPT, *self.cluster(), "--strategy", strategy, "-o", two)
        steps = [json.loads(self.ok("cleave", "simulate", "--json", plan))["step_ms"] for plan in (one, two)]
        self.assertAlmostEqual(steps[0], steps[1])

    def test_options_are_kept(self):
        plan = self.path("kept.plan")
        self.ok("gpt", "plan", *GPT, *self.cluster(), "--microbatches", 4, "--zero", 1, "--recompute", "full", "-o", plan)
        shown = json.loads(self.ok("cleave", "show", "--json", plan))
        self.assertEqual(shown["microbatches"], 4)
        text = self.ok("cleave", "show", "--strategy", plan)
        self.assertIn("zero = 1", text)
        self.assertIn('"full"', text)

    def test_a_file_may_pin_the_mesh(self):
        plan, strategy = self.path("pinned.plan"), self.path("pins.toml")
        with open(strategy, "w") as out:
            out.write("mesh = { dp = 2, tp = 2, pp = 2 }\nzero = 1\n")
        self.ok("gpt", "plan", *GPT, *self.cluster(), "--strategy", strategy, "-o", plan)
        shown = json.loads(self.ok("cleave", "show", "--json", plan))
        self.assertEqual(shown["mesh"], {"dp": 2, "tp": 2, "pp": 2})
        self.assertIn("zero = 1", self.ok("cleave", "show", "--strategy", plan))
        self.assertEqual(shown["axis_order"], ["pp", "dp", "tp"])
        self.assertGreater(shown["search"]["configurations"]["total"], 10)

    def test_a_file_keeps_its_order_and_its_layers(self):
        plan, strategy = self.path("pinned.plan"), self.path("pins.toml")
        with open(strategy, "w") as out:
            out.write('mesh = "pp=2/tp=2/dp=2"\n')
        self.ok("gpt", "plan", *GPT, *self.cluster(), "--strategy", strategy, "-o", plan)
        shown = json.loads(self.ok("cleave", "show", "--json", plan))
        self.assertEqual(shown["axis_order"], ["pp", "tp", "dp"])
        self.assertIsNotNone(shown["search"])
        with open(strategy, "w") as out:
            out.write('mesh = { dp = 2, tp = 2, pp = 2 }\n[recompute]\n"blocks.0" = "full"\n')
        self.ok("gpt", "plan", *GPT, *self.cluster(), "--strategy", strategy, "-o", plan)
        self.assertIsNotNone(json.loads(self.ok("cleave", "show", "--json", plan))["search"])
        self.assertIn('"blocks.0" = { kind = "full", origin = "file" }\n', self.ok("cleave", "show", "--strategy", plan))

    def planned(self, strategy, *args):
        """A plan with a strategy file: what `cleave show` says, and its strategy."""
        plan, pins = self.path("pinned.plan"), self.path("pins.toml")
        with open(pins, "w") as out:
            out.write(strategy)
        self.ok("gpt", "plan", *GPT, *self.cluster(), "--strategy", pins, *args, "-o", plan)
        shown = json.loads(self.ok("cleave", "show", "--json", plan))
        self.assertIsNotNone(shown["search"])
        return shown, self.ok("cleave", "show", "--strategy", plan)

    def test_a_file_may_pin_anything(self):
        stages = [["embed", "blocks.0", "blocks.1"], ["blocks.2"], [*(f"blocks.{i}" for i in range(3, 7))], ["blocks.7", "norm"]]
        shown, text = self.planned(f"stages = {json.dumps(stages)}\n")
        self.assertEqual([[layer for layer in stage["layers"] if layer != "positions"] for stage in shown["stages"]], stages)
        self.assertIn('stages = "file"', text.splitlines()[0])
        self.assertEqual(shown["mesh"]["pp"] * (2 if "virtual = 2" in text else 1), 4)
        shown, text = self.planned('mesh = "tp=2,dp=4"\n[shard]\n"blocks.3.mlp.*.weight" = {}\n')
        self.assertIn('"blocks.3.mlp.up.weight" = { origin = "file" }', text)
        self.assertIn('"blocks.2.mlp.up.weight" = { "0" = "tp", origin = "default" }', text)
        shown, text = self.planned('schedule = { name = "zb-h1" }\nzero = 1\n')
        self.assertGreater(shown["mesh"]["dp"], 1)
        self.assertIn("zero = 1\n", text)
        self.assertTrue(shown["mesh"]["pp"] == 1 or "zb-h1" in text)
        shown, text = self.planned('sequence = "tp"\n[recompute]\n"*" = "selective"\n"blocks.5" = "full"\n', "--microbatches", 8)
        self.assertGreater(shown["mesh"]["tp"], 1)
        self.assertEqual(shown["microbatches"], 8)
        self.assertIn('[recompute]\n"*" = "selective"\n"blocks.5" = "full"\n', text)
        order = ["F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"]
        shown, text = self.planned(f'schedule = {{ name = "auto", microbatches = 4 }}\norder = {json.dumps(order)}\n')
        self.assertEqual((shown["mesh"]["pp"], shown["microbatches"]), (2, 4))
        for line in order:
            self.assertIn(line, text)

    def test_a_file_that_does_not_suit_the_model(self):
        pins, none = self.path("pins.toml"), self.path("none.plan")
        for text, line, word in (("zero = 1\n[shard]\n\"blocks.9.mlp.up.weight\" = { 0 = \"tp\" }\n", 3, "no parameter"),
                                 ("[recompute]\n\"blocks.9\" = \"full\"\n", 2, "no layer"),
                                 ("zero = 1\nstages = [[\"embed\"], [\"nothing\"]]\n", 2, "no layer \"nothing\"")):
            with open(pins, "w") as out:
                out.write(text)
            for cluster in (self.cluster(), ["--mesh", "dp=2,pp=2"]):
                error = self.refused("gpt", "plan", *GPT, *cluster, "--strategy", pins, "-o", none, word=word)
                self.assertIn(f"pins.toml:{line}:", error)

    def test_kinds_of_strategies_restrict_the_search(self):
        plan = self.path("kind.plan")
        for kind, check in (("data", lambda m: m["tp"] == m["pp"] == 1), ("model", lambda m: m["dp"] == m["pp"] == 1),
                            ("pipeline", lambda m: m["dp"] == m["tp"] == 1), ("hybrid", lambda m: sorted(m.values())[1] > 1)):
            self.ok("gpt", "plan", *GPT, *self.cluster(), "--strategy", kind, *(["--devices", 4] if kind == "data" else []), "-o", plan)
            shown = json.loads(self.ok("cleave", "show", "--json", plan))
            self.assertEqual(shown["ranks"], 4 if kind == "data" else 8)
            self.assertTrue(check(shown["mesh"]), (kind, shown["mesh"]))
            self.assertIsNotNone(shown["search"])
        self.refused("gpt", "plan", *GPT, *self.cluster(), "--strategy", "data", "--mesh", "tp=8", "-o", plan,
                     word="--strategy data: splits 8 devices as dp=8,tp=1,pp=1, --mesh tp=8 does not")

    def test_devices_of_several_kinds(self):
        with open(self.path("cluster.toml"), "w") as out:
            out.write(MIXED)
        plan, cluster = self.path("mixed.plan"), ["--cluster", self.path("cluster.toml")]
        self.ok("gpt", "plan", *GPT16, *cluster, "--mesh", "dp=2,pp=2", "--microbatches", 8, "-o", plan)
        even = json.loads(self.ok("cleave", "simulate", "--json", plan))["step_ms"]
        self.ok("gpt", "plan", *GPT16, *cluster, "-o", plan)
        self.ok("cleave", "verify", plan)
        found, shown = json.loads(self.ok("cleave", "simulate", "--json", plan)), json.loads(self.ok("cleave", "show", "--json", plan))
        self.assertLess(found["step_ms"], 0.85 * even)
        self.assertTrue(found["fits"])
        search, counts = shown["search"], shown["search"]["configurations"]
        self.assertEqual(sum(counts[name] for name in counts if name != "total"), counts["total"])
        self.assertLessEqual(search["lower_bound_ms"], search["step_ms"])
        self.assertGreater(search["lower_bound_ms"], 0.5 * search["step_ms"])
        # Devices alternate, so that axis pp must be the fastest for stages with devices of one kind.
        flops = {}
        for stage in shown["stages"]:
            for rank in stage["ranks"]:
                flops[rank % 2] = flops.get(rank % 2, 0) + stage["flops"]
        self.assertGreater(flops[1], 1.5 * flops[0])

    def test_memory_decides_what_is_open(self):
        plan, mesh = self.path("fits.plan"), ["--mesh", "dp=4,pp=2", "--microbatches", 8]
        sizes = {}
        for kind in ("none", "selective", "full"):
            self.ok("gpt", "plan", *GPT, *mesh, "--backend", "cuda", "--recompute", kind, "-o", plan)
            sizes[kind] = max(json.loads(self.ok("cleave", "show", "--json", plan))["peak_bytes"]) / 2**30
        self.assertGreater(sizes["none"], sizes["selective"])
        self.assertGreater(sizes["selective"], sizes["full"])
        self.assertEqual(self.said("gpt", "plan", *GPT, *self.cluster(), *mesh, "-o", plan), "")
        reserved = 1.0
        for kind, less in (("selective", "none"), ("full", "selective")):
            cluster = self.cluster(memory=reserved + (sizes[kind] + sizes[less]) / 2)
            said = self.said("gpt", "plan", *GPT, *cluster, *mesh, "-o", plan)
            self.assertRegex(said, f"^recompute: {kind}, the least that fits cluster two nodes; without recomputation rank [0-9]+ needs .*\n$")
            text = self.ok("cleave", "show", "--strategy", plan)
            self.assertIn(f'"*" = "{kind}"\n', text)
            self.assertIn('recompute = "memory"', text.splitlines()[0])
            self.refused("gpt", "plan", *GPT, *cluster, *mesh, "--recompute", less, "-o", self.path("none.plan"), word="memory", status=3)
        self.refused("gpt", "plan", *GPT, *self.cluster(memory=reserved + sizes["full"] / 2), *mesh, "-o", self.path("none.plan"),
                     word="--zero 3", status=3)

    def test_a_search_that_stops_early(self):
        plan, none = self.path("early.plan"), self.path("none.plan")
        auto = ["gpt", "plan", *GPT, *self.cluster()]
        self.refused(*auto, "--search-seconds", 0, "-o", none, word="--search-seconds", status=3)
        self.assertFalse(os.path.exists(none))
        self.ok(*auto, "--search-seconds", 1000, "-o", plan)
        whole = json.loads(self.ok("cleave", "show", "--json", plan))["search"]
        self.assertFalse(whole["stopped_early"])
        for seconds in (0.5, 1, 2, 4, 8):  # until something is found
            if run(*auto, "--search-seconds", seconds, "-o", plan)[0] == 0:
                break
        found = json.loads(self.ok("cleave", "show", "--json", plan))["search"]
        self.assertLessEqual(found["lower_bound_ms"], whole["step_ms"])
        self.assertGreaterEqual(found["step_ms"], 0.999 * whole["lower_bound_ms"])
        self.assertEqual(sum(v for name, v in found["configurations"].items() if name != "total"), found["configurations"]["total"])
        self.refused("gpt", "plan", "--plan", plan, "--search-seconds", 1, "-o", none, word="--plan")

    def test_an_interrupted_search(self):
        plan = self.path("interrupted.plan")
        for wait in (0.3, 0.6, 1.2, 2.4):
            command = [os.path.join(programs.BIN, "gpt"), "plan", *map(str, GPT), *self.cluster(), "-o", plan]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(wait)
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=60)
            self.assertIn(process.returncode, (0, 3), error)
            if process.returncode == 0:
                self.assertIn("lower_bound_ms", json.loads(self.ok("cleave", "show", "--json", plan))["search"])
                self.ok("cleave", "verify", plan)
                break
            self.assertRegex(error, "stopped before|interrupted")

    def test_ranks_of_a_launcher(self):
        model = ["--data", DIGITS, "--batch", 24, "--steps", 4, "--seed", 3]
        one, _ = self.losses("mlp", *model)
        shared = ["mlp", "train", *model, "--microbatches", 1, "--quiet"]
        metrics = self.path("ranks.jsonl")
        for end in end_ranks(start_ranks(*shared, "--metrics", metrics, ranks=4)):
            self.assertEqual(end[0], 0, end)
        with open(metrics) as lines:
            records = [json.loads(line) for line in lines]
        self.assertEqual(math.prod(records[0]["run"]["mesh"].values()), 4)
        self.same(one, [record["loss"] for record in records if "step" in record])
        for kind, axis in (("data", "dp"), ("pipeline", "pp")):
            ends = end_ranks(start_ranks(*shared, "--strategy", kind, "--metrics", metrics, ranks=2))
            self.assertEqual([end[0] for end in ends], [0, 0], ends)
            with open(metrics) as lines:
                self.assertEqual(json.loads(next(lines))["run"]["mesh"][axis], 2)
        ends = end_ranks(start_ranks("mlp", "train", *model, "--batch-per-rank", 4, "--quiet", ranks=2))
        self.assertTrue(all(end[0] == 2 and "--mesh" in end[1] for end in ends), ends)
        if shutil.which("mpirun"):
            many, records = self.losses("mlp", *model, "--microbatches", 1, ranks=2)
            self.assertEqual(math.prod(records[0]["run"]["mesh"].values()), 2)
            self.same(one, many)

    def test_models_that_combine_samples_keep_their_microbatches(self):
        plan = self.path("norms.plan")
        model = ["--depth", 18, "--batch", 64, "--no-code"]
        self.ok("resnet", "plan", *model, *self.cluster(), "-o", plan)
        shown = json.loads(self.ok("cleave", "show", "--json", plan))
        self.assertEqual((shown["ranks"], shown["microbatches"]), (8, 1))
        one = shown["search"]["configurations"]["total"]
        self.ok("resnet", "plan", *model, *self.cluster(), "--microbatches", 1, "-o", plan)
        self.assertEqual(json.loads(self.ok("cleave", "show", "--json", plan))["search"]["configurations"]["total"], one)

    def test_problems_are_written_and_solved_again(self):
        folder, plan, out = self.path("problems"), self.path("dumped.plan"), self.path("again.json")
        pins = self.path("pins.toml")
        with open(pins, "w") as file:
            file.write("mesh = { dp = 2, tp = 4 }\n")
        self.ok("gpt", "plan", *GPT, *self.cluster(), "--strategy", pins, "--dump-problems", folder, "-o", plan)
        names = sorted(name for name in os.listdir(folder) if not name.endswith(".solution.json"))
        self.assertTrue(names)
        for name in names:
            with open(os.path.join(folder, name)) as file:
                self.assertGreater(len(json.load(file)["problem"]["nodes"]["costs"]), 100)
            with open(os.path.join(folder, name[:-5] + ".solution.json")) as file:
                used = json.load(file)
            self.ok("cleave", "solve", os.path.join(folder, name), "-o", out)
            with open(out) as file:
                found = json.load(file)
            self.assertTrue(used["optimal"] and found["optimal"], name)
            self.assertEqual(used["cost"], found["cost"], name)
        self.refused("gpt", "plan", *GPT, *self.cluster(), "--mesh", "dp=8", "--dump-problems", folder, "-o", plan, word="--dump-problems")

    def test_layers_that_want_different_splits(self):
        """A wide layer, a wide classifier behind convolutions, and a large table are split; the layers beside them split the rows."""
        one, two, strategy = self.path("one.plan"), self.path("two.plan"), self.path("found.toml")
        meshes = ("dp=8", "dp=4,tp=2", "dp=2,tp=4", "tp=8", "dp=2,pp=4", "dp=4,pp=2")
        for program, model, split, gain in (
                ("mlp", ["--hidden", "1024,1024,65536,1024", "--batch", 1024], "layers.2.weight", 1),
                ("layers", ["--net", "vgg", "--batch", 256, "--precision", "bf16"], "fc1.weight", 1.2),
                ("layers", ["--net", "recommender"], "table.weight", 1.5)):
            self.ok(program, "plan", *model, "--no-code", *self.cluster(), "-o", one)
            found = json.loads(self.ok("cleave", "simulate", "--json", one))["step_ms"]
            for mesh in meshes:
                self.ok(program, "plan", *model, "--no-code", *self.cluster(), "--mesh", mesh, "--microbatches", 8 if "pp" in mesh else 1, "-o", two)
                self.assertGreater(json.loads(self.ok("cleave", "simulate", "--json", two))["step_ms"], gain * found, (program, model, mesh))
            text = self.ok("cleave", "show", "--strategy", one)
            self.assertIn(f'"{split}" = {{ "', text)
            with open(strategy, "w") as out:
                out.write(text)
            self.ok(program, "plan", *model, "--no-code", *self.cluster(), "--strategy", strategy, "-o", two)
            self.assertAlmostEqual(json.loads(self.ok("cleave", "simulate", "--json", two))["step_ms"], found)

    def test_solved_shardings_train_alike(self):
        strategy, model = self.path("solved.toml"), ["--hidden", "64,96,32", "--data", DIGITS, "--batch", 24, "--steps", 6]
        with open(strategy, "w") as out:  # rows over both axes, a wide layer split, a gradient that is scattered
            out.write('''mesh = { dp = 2, tp = 2 }
[shard]
"layers.0.weight" = {}
"layers.1.weight" = { 0 = "dp+tp" }
"layers.1.bias" = { 0 = "dp+tp" }
"layers.2.weight" = { 1 = "dp+tp" }
"layers.3.weight" = { 1 = "tp" }
[ops]
"layers.0" = { matmul = "dp+tp, _ ; _, _ -> dp+tp, _" }
"layers.1" = { matmul = "_, _ ; dp+tp, _ -> _, dp+tp" }
"layers.2" = { matmul = "_, dp+tp ; _, dp+tp -> _, _ | sum dp+tp => dp+tp, _" }
''')
        one, _ = self.losses("mlp", *model)
        many, _ = self.losses("mlp", *model, "--strategy", strategy)
        self.same(one, many)
        for ops, word in (('"layers.9" = { matmul = "dp, _ ; _, _ -> dp, _" }', "layers.9"), ('"layers.0" = { matmul = "dp, _ ; _, dp -> dp, _" }', "cannot run"),
                          ('"layers.0" = { matmul = 3 }', "string"), ('"layers.0" = 3', "table")):
            with open(strategy, "w") as out:
                out.write("mesh = { dp = 2 }\n[ops]\n" + ops + "\n")
            self.refused("mlp", "train", *model, "--strategy", strategy, word=word)
        with open(strategy, "w") as out:  # of a plan for GPUs in fp32: channels are dimension 1 there
            out.write('mesh = { tp = 2 }\n[ops]\n"block2.conv" = { conv2d = "_, tp, _, _ ; _, tp, _, _ -> _, _, _, _ | sum tp" }\n')
        self.ok("convnet", "plan", "--no-code", "--layout", "nchw", "--strategy", strategy, "-o", self.path("layout.plan"))
        self.refused("convnet", "plan", "--no-code", "--strategy", strategy, "-o", self.path("layout.plan"),
                     word="which is written for images in another layout (see --layout)")

    def test_training_without_a_cluster(self):
        model = ["--data", DIGITS, "--batch", 24, "--steps", 4]
        one, _ = self.losses("mlp", *model)
        many, _ = self.losses("mlp", *model, "--devices", 4, "--microbatches", 1)
        self.same(one, many)
        for precision in ("bf16", "fp16"):
            self.ok("mlp", "train", *model, "--devices", 2, "--precision", precision, "--quiet")

    def test_what_cannot_be(self):
        none = self.path("none.plan")
        for memory in (1.0, 0.25):  # less than is reserved
            said = self.refused("gpt", "plan", *GPT, *self.cluster(memory=memory), "-o", none, word="memory", status=3)
            self.assertIn("its device has 0.00 GiB for it; more devices", said)
        with open(self.path("pins.toml"), "w") as out:
            out.write('[shard]\n"embed.weight" = {}\n"norm.weight" = {}\n')
        self.refused("gpt", "plan", *GPT, *self.cluster(memory=1.01), "--strategy", self.path("pins.toml"), "-o", none,
                     word="; the split of embed.weight, 0.02 GiB, is pinned; more devices", status=3)
        self.refused("gpt", "plan", *GPT, *self.cluster(), "--devices", 9, "-o", none, word="9")
        self.refused("gpt", "plan", *GPT, *self.cluster(), "--batch-per-rank", 2, "-o", none, word="batch")
        self.refused("gpt", "plan", *GPT, "--backend", "cuda", "--devices", 4, "-o", none, word="--cluster")
        self.assertFalse(os.path.exists(none))


class Solve(Case):
    def problem(self, **changes):
        problem = {"name": "small", "nodes": {"intervals": [[0, 2], [1, 3]], "costs": [[5, 1], [4, 2]], "usages": [[1, 10], [1, 10]]},
                   "edges": {"nodes": [[0, 1]], "costs": [[0, 3, 3, 0]]}, "usage_limit": 11}
        for path, value in changes.items():
            at, keys = problem, path.split("__")
            for key in keys[:-1]:
                at = at[key]
            at[keys[-1]] = value
        with open(self.path("problem.json"), "w") as out:
            json.dump({"problem": problem}, out)
        return self.path("problem.json")

    def test_solutions(self):
        out = self.path("solution.json")
        for limit, cost, choice in ((None, 3, [1, 1]), (20, 3, [1, 1]), (11, 8, [1, 0]), (2, 9, [0, 0])):
            self.ok("cleave", "solve", self.problem(usage_limit=limit), "-o", out)
            with open(out) as file:
                found = json.load(file)
            self.assertEqual((found["cost"], found["lower_bound"], found["optimal"], found["assignment"]), (cost, cost, True, choice))
        with open(self.problem(), "rb") as file, gzip.open(self.path("problem.json.gz"), "wb") as packed:
            packed.write(file.read())
        self.ok("cleave", "solve", self.path("problem.json.gz"), "-o", out)

    def test_what_cannot_be(self):
        out = self.path("none.json")
        for changes, word in (({"edges__nodes": [[0, 2]]}, "edges.nodes"), ({"edges__costs": [[0, 3, 3]]}, "edges.costs"),
                              ({"nodes__costs": [[5, 1], []]}, "nodes.costs"), ({"nodes__usages": [[1, 10], [1]]}, "usages"),
                              ({"nodes__intervals": [[2, 0], [1, 3]]}, "intervals"), ({"nodes__costs": [[5, "1"], [4, 2]]}, "nodes.costs")):
            self.refused("cleave", "solve", self.problem(**changes), "-o", out, word=word)
        self.refused("cleave", "solve", self.problem(usage_limit=1), "-o", out, word="1", status=3)
        self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    programs.main()
