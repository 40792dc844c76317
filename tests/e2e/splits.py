#!/usr/bin/env python3
"""End-to-end tests that every split of a sample has the losses of one rank. Standard library only.

splits.py --build BUILD [unittest arguments]
"""
import json, os, re, shutil, signal, time

import programs
from e2e import Case
from programs import DIGITS, end_ranks, run, start_ranks


class Splits(Case):
    """Every split gives the same losses as one rank."""

    def curves(self, program, common, meshes):
        one, _ = self.losses(program, *common, "--mesh", "dp=1")
        self.assertNotEqual(one[0], one[-1])
        for mesh in meshes:
            many, records = self.losses(program, *common, *mesh)
            self.same(one, many)

    def test_mlp(self):
        common = ["--data", DIGITS, "--hidden", "64,48", "--batch", 24, "--microbatches", 2, "--steps", 5, "--seed", 11]
        self.curves("mlp", common, [["--mesh", "dp=2"], ["--mesh", "tp=3"], ["--mesh", "pp=3", "--schedule", "gpipe"],
                                    ["--devices", 4, "--strategy", "hybrid"], ["--mesh", "dp=5"]])

    def test_convnet(self):
        common = ["--data", DIGITS, "--batch", 12, "--microbatches", 2, "--steps", 3, "--lr", 0.001]
        self.curves("convnet", common, [["--mesh", "dp=2,pp=2"], ["--mesh", "tp=2"], ["--mesh", "tp=2", "--layout", "nchw"]])

    def test_gpt(self):
        common = ["--data", "synthetic", "--layers", 2, "--width", 32, "--heads", 2, "--context", 16, "--batch", 8,
                  "--microbatches", 2, "--steps", 3]
        self.curves("gpt", common, [["--mesh", "dp=2,tp=2,pp=2"], ["--mesh", "pp=2", "--schedule", "gpipe"], ["--mesh", "tp=2"]])

    def test_resnet(self):
        common = ["--data", DIGITS, "--batch", 4, "--microbatches", 2, "--steps", 2, "--lr", 0.0001]
        self.curves("resnet", common, [["--mesh", "pp=2"]])
        self.ok("resnet", "check", "--data", "synthetic", "--batch", 4, "--image", 8, "--lr", 0.0005, "--mesh", "dp=2,tp=2",
                "--seed", 1, "--steps", 1)

    def test_vit(self):
        common = ["--data", DIGITS, "--layers", 2, "--width", 32, "--heads", 2, "--batch", 8, "--microbatches", 2, "--steps", 3]
        self.curves("vit", common, [["--mesh", "dp=2,tp=2,pp=2"], ["--mesh", "tp=2"]])

    def test_llama(self):
        common = ["--data", "synthetic", "--layers", 2, "--width", 32, "--heads", 4, "--kv-heads", 2, "--context", 16,
                  "--batch", 8, "--microbatches", 2, "--steps", 3]
        self.curves("llama", common, [["--mesh", "dp=2,tp=2,pp=2"], ["--mesh", "tp=2"], ["--mesh", "tp=4"]])

    def test_seq(self):
        common = ["--data", "synthetic", "--layers", 2, "--width", 16, "--context", 6, "--batch", 8, "--microbatches", 2,
                  "--steps", 3]
        self.curves("lstm", common, [["--mesh", "dp=2,pp=2"], ["--mesh", "tp=2"]])

    def test_split(self):
        common = ["--data", DIGITS, "--width", 48, "--batch", 12, "--microbatches", 2, "--steps", 3]
        lesson = os.path.join(programs.ROOT, "samples", "08_split")
        self.curves("sharding", common, [["--mesh", "dp=4"], ["--mesh", "tp=4"], ["--strategy", os.path.join(lesson, "whole.toml")],
                                      ["--strategy", os.path.join(lesson, "gathered.toml")],
                                      ["--mesh", "tp=3", "--convolutions", "samples"],
                                      ["--mesh", "dp=2,tp=2", "--convolutions", "samples"]])

    def test_schedule(self):
        common = ["--data", DIGITS, "--width", 16, "--batch", 16, "--microbatches", 4, "--steps", 3]
        pipeline = ["--mesh", "pp=4", "--schedule"]
        self.curves("schedule", common, [[*pipeline, "gpipe"], [*pipeline, "interleaved", "--virtual", 2], [*pipeline, "zb-h1"],
                                         ["--mesh", "pp=2", "--schedule", "zb-v"], ["--mesh", "dp=2,pp=2", "--recompute", "full"],
                                         ["--mesh", "tp=2"]])

    def test_search(self):
        common = ["--batch", 16, "--microbatches", 2, "--steps", 3]
        self.curves("search", common, [["--mesh", "dp=2,pp=2"], ["--mesh", "tp=2"], ["--mesh", "tp=3"], ["--devices", 4]])

    def test_positions_share_their_kernels(self):
        plan, kernels = self.path("seq.plan"), {}
        for context in (32, 64):
            self.ok("lstm", "plan", "--context", context, "--batch", 8, "-o", plan)
            kernels[context] = int(re.search(r"(\d+) kernels", self.ok("cleave", "show", plan)).group(1))
        self.assertEqual(kernels[32], kernels[64])

    def test_strategy_file(self):
        strategy = self.path("mine.toml")
        with open(strategy, "w") as out:
            out.write('mesh = { dp = 1, tp = 1, pp = 2 }\nschedule = { name = "gpipe", microbatches = 2 }\n'
                      'stages = [["layers.0"], ["layers.1", "layers.2"]]\n')
        common = ["--data", DIGITS, "--batch", 24, "--steps", 4]
        one, _ = self.losses("mlp", *common, "--microbatches", 2)
        many, records = self.losses("mlp", *common, "--strategy", strategy)
        self.same(one, many)
        self.assertEqual(records[0]["run"]["mesh"]["pp"], 2)
        self.assertEqual(records[0]["run"]["schedule"], "gpipe")

    def test_pinned_shardings(self):
        strategy = self.path("pinned.toml")

        def write(*rules, mesh="dp = 2, tp = 2"):
            with open(strategy, "w") as out:
                out.write(f"mesh = {{ {mesh} }}\n[shard]\n" + "\n".join(rules) + "\n")

        gpt = ["--strategy", strategy, "--layers", 2, "--width", 32, "--heads", 4, "--context", 16, "--batch", 8,
               "--data", "synthetic", "--steps", 2, "--microbatches", 2]
        mlp = ["--strategy", strategy, "--data", "synthetic", "--hidden", "32,32", "--batch", 8]
        write('"layers.*.weight" = { 1 = "tp", 0 = "dp" }', '"layers.*.bias" = { 0 = "dp+tp" }')
        self.ok("mlp", "check", *mlp)
        write('"layers.0.weight" = { "0:2x16.0" = "tp", "0:2x16.1" = "dp" }')
        self.ok("mlp", "check", *mlp)
        write('"blocks.*.attention.qkv.weight" = { heads = "tp" }', '"blocks.*.mlp.up.weight" = { 1 = "dp" }',
              '"embed.weight" = { 1 = "tp" }', '"positions.weight" = { 0 = "dp" }')
        self.ok("gpt", "check", *gpt)
        write('"embed.weight" = { 1 = "dp" }', '"norm.weight" = { 0 = "tp" }', mesh="dp = 2, tp = 2, pp = 2")
        self.ok("gpt", "check", *gpt)
        write('"fc.weight" = { 1 = "tp" }', mesh="tp = 2") # the gradient of a max-pool is split
        self.ok("convnet", "check", "--strategy", strategy, "--data", "synthetic", "--batch", 8, "--steps", 2)
        # The last rule that matches wins, in the order of the file.
        write('"layers.*.weight" = { 0 = "tp" }', '"layers.0.weight" = { 1 = "tp" }')
        self.ok("mlp", "plan", *[a for a in mlp if a not in ("--data", "synthetic")], "-o", self.path("p.plan"))
        shown = self.ok("cleave", "show", self.path("p.plan"), "--strategy")
        self.assertIn('"layers.0.weight" = { "1" = "tp"', shown)
        for rule, word in (('{ 0 = "tp", 1 = "tp" }', "twice"), ('{ 0 = "tp+tp" }', "twice"), ('{ 0 = 2 }', "mesh axes"),
                           ('{ heads = "tp" }', "heads"), ('{ "0:2x16.0" = "tp", "0:4x8.1" = "dp" }', "twice")):
            write(f'"layers.0.weight" = {rule}')
            self.refused("mlp", "check", *mlp, word=word)
        write('"embed.weight" = { "0:2x64.1" = "tp" }')
        self.refused("gpt", "check", *gpt, word="rows of an embedding")

    def test_evaluation(self):
        for program, options in (("convnet", ["--data", DIGITS, "--batch", 50]),
                                 ("gpt", ["--layers", 2, "--width", 32, "--heads", 2, "--context", 16, "--batch", 8,
                                          "--data", "synthetic"])):
            checkpoint = self.path(program)
            self.ok(program, "train", *options, "--steps", 4, "--checkpoint", checkpoint, "--quiet")
            where = options[options.index("--data"):][:2]
            one = json.loads(self.ok(program, "eval", "--checkpoint", checkpoint, *where, "--json"))
            for mesh in ("dp=2", "tp=2", "pp=2", "dp=2,tp=2,pp=2"):
                many = json.loads(self.ok(program, "eval", "--checkpoint", checkpoint, *where, "--json", "--mesh", mesh))
                self.assertEqual(one["samples"], many["samples"])
                self.assertAlmostEqual(one["accuracy"], many["accuracy"], delta=1e-3)
                self.same([one["loss"]], [many["loss"]])

    def test_half_precision_trains_as_well(self):
        for program, options in (("convnet", ["--data", DIGITS, "--batch", 50, "--steps", 60]),
                                 ("gpt", ["--data", "synthetic", "--layers", 2, "--width", 32, "--heads", 2, "--context", 16,
                                          "--batch", 8, "--steps", 30])):
            single, _ = self.losses(program, *options)
            for choice in (["--precision", "bf16", "--opt-level", "O1"], ["--precision", "bf16"], ["--opt-level", "O1"],
                           ["--opt-level", "O2"], ["--opt-level", "O0"]):
                half, records = self.losses(program, *options, *choice)
                self.assertLess(abs(sum(half[-10:]) - sum(single[-10:])), 0.02 * sum(single[-10:]), f"{program} {choice}")
                self.assertEqual("loss_scale" in records[-1], choice[-1] in ("O1", "O2") and "bf16" not in choice)

    def test_half_precision_on_any_split(self):
        common = ["--data", "synthetic", "--layers", 2, "--width", 32, "--heads", 2, "--context", 16, "--batch", 8,
                  "--microbatches", 2, "--steps", 2]
        for choice in (["--precision", "bf16", "--opt-level", "O1"], ["--opt-level", "O2"], ["--opt-level", "O3"]):
            for mesh in ("dp=2", "dp=2,tp=2,pp=2"):
                self.ok("gpt", "check", *common, *choice, "--mesh", mesh)
            self.ok("llama", "check", *common, "--kv-heads", 1, *choice, "--mesh", "dp=2")

    def test_gradients_reduced_in_half(self):
        for program, options in (("convnet", ["--data", DIGITS, "--batch", 48, "--steps", 30]),
                                 ("gpt", ["--data", "synthetic", "--layers", 2, "--width", 32, "--heads", 2, "--context", 16,
                                          "--batch", 8, "--steps", 20])):
            common = [*options, "--precision", "bf16", "--mesh", "dp=2", "--microbatches", 4]
            single, _ = self.losses(program, *common)
            self.same(single, self.losses(program, *common, "--reduce-dtype", "fp32")[0], tolerance=0) # the default
            half, _ = self.losses(program, *common, "--reduce-dtype", "bf16")
            self.assertNotEqual(half, single)
            self.assertLess(abs(sum(half[-10:]) - sum(single[-10:])), 0.02 * sum(single[-10:]), program)
            parts = 1 if program == "convnet" else 4 # batch normalisation of few samples amplifies rounding
            self.ok(program, "check", *options[:-2], *common[len(options):-1], parts, "--reduce-dtype", "bf16", "--steps", 2)

            # Gradients are reduced once per step, with half the bytes.
            plan, found = self.path("half.plan"), {}
            for dtype in ("fp32", "bf16"):
                self.ok(program, "plan", *options[2:-2], *common[len(options):], "--reduce-dtype", dtype, "-o", plan)
                self.ok("cleave", "verify", plan)
                shown = self.ok("cleave", "show", plan)
                found[dtype] = re.search(r"all-reduce +gradients +dp +(\d+) +([\d.]+)", shown).groups()
            self.assertAlmostEqual(float(found["bf16"][1]) / float(found["fp32"][1]), 0.5, delta=0.01, msg=str(found))
            if program == "gpt": # convnet also reduces sums of batch normalisation, in every microbatch
                self.assertEqual(found["bf16"][0], "1")

    def test_reduce_type_on_any_split(self):
        common = ["--data", "synthetic", "--layers", 2, "--width", 32, "--heads", 2, "--context", 16, "--batch", 8,
                  "--microbatches", 2, "--steps", 2]
        for choice in (["--opt-level", "O2", "--reduce-dtype", "fp16"], ["--precision", "bf16", "--opt-level", "O3",
                                                                         "--reduce-dtype", "fp32"]):
            for mesh in ("dp=1", "dp=2,tp=2,pp=2"):
                self.ok("gpt", "check", *common, *choice, "--mesh", mesh)
        strategy = self.path("split.toml")
        with open(strategy, "w") as out:
            out.write('mesh = { dp = 2 }\n[shard]\n"layers.*.weight" = { 0 = "dp" }\n')
        split = ["--strategy", strategy, "--hidden", "32,32", "--batch", 8, "--microbatches", 2]
        self.ok("mlp", "check", *split, "--data", "synthetic", "--precision", "bf16", "--reduce-dtype", "bf16")
        found = {}
        for dtype in ("fp32", "bf16"):
            self.ok("mlp", "plan", *split, "--precision", "bf16", "--reduce-dtype", dtype, "-o", self.path("split.plan"))
            shown = self.ok("cleave", "show", self.path("split.plan"))
            found[dtype] = float(re.search(r"reduce-scatter +gradients +dp +\d+ +([\d.]+)", shown).group(1))
        self.assertAlmostEqual(found["bf16"] / found["fp32"], 0.5, delta=0.01)

    def test_reduce_type_is_kept(self):
        checkpoint = self.path("reduced")
        common = ["--data", DIGITS, "--hidden", "16", "--batch", 32, "--mesh", "dp=2", "--microbatches", 2, "--threads", 1]
        whole, _ = self.losses("mlp", *common, "--precision", "bf16", "--reduce-dtype", "bf16", "--steps", 6)
        self.losses("mlp", *common, "--precision", "bf16", "--reduce-dtype", "bf16", "--steps", 3, "--checkpoint", checkpoint)
        rest, _ = self.losses("mlp", "--data", DIGITS, "--mesh", "dp=2", "--threads", 1, "--steps", 6, "--checkpoint", checkpoint,
                              "--resume")
        self.assertEqual(whole, rest) # metrics were appended
        plan = self.path("reduced.plan")
        self.ok("mlp", "plan", *common[2:], "--precision", "bf16", "--reduce-dtype", "bf16", "-o", plan)
        self.refused("mlp", "train", "--plan", plan, "--data", DIGITS, "--reduce-dtype", "fp32", word="--reduce-dtype fp32")
        self.refused("mlp", "train", *common, "--precision", "fp16", "--reduce-dtype", "bf16", word="--precision is fp16")
        # An overflow of the half type during the reduction is detected: every step is skipped.
        _, records = self.losses("mlp", *common, "--precision", "fp16", "--reduce-dtype", "fp16", "--loss-scale", 16777216,
                                 "--steps", 2)
        self.assertEqual(records[-1]["skipped_steps"], 2)

    def test_loss_scale_is_kept(self):
        checkpoint = self.path("scaled")
        common = ["--data", DIGITS, "--hidden", "16", "--batch", 30]
        # The largest fixed scale overflows fp16 at once: every step is skipped and no parameter changes.
        scaled = [*common, "--precision", "fp16", "--loss-scale", 16777216, "--lr", 0.5]
        self.losses("mlp", *scaled, "--steps", 2, "--checkpoint", checkpoint)
        _, records = self.losses("mlp", *common[:2], "--steps", 4, "--checkpoint", checkpoint, "--resume")
        self.assertEqual(records[-1]["loss_scale"], 16777216)
        whole, again = self.losses("mlp", *scaled, "--steps", 4)
        self.assertEqual(records[-1]["loss"], whole[-1])
        self.assertEqual(records[-1]["skipped_steps"], 4)
        self.assertEqual(again[-1]["skipped_steps"], 4)
        self.refused("mlp", "train", *common, "--precision", "tf32", word="tf32")

    def test_processes_equal_threads(self):
        common = ["--data", DIGITS, "--batch", 24, "--microbatches", 2, "--steps", 3, "--mesh", "dp=2", "--threads", 1]
        threads, _ = self.losses("mlp", *common)
        processes, _ = self.losses("mlp", *common, ranks=2)
        self.assertEqual(threads, processes)

    def test_sockets_equal_threads(self):
        for program, options in (("mlp", ["--data", DIGITS, "--batch", 24]),
                                 ("gpt", ["--data", "synthetic", "--layers", 2, "--width", 32, "--heads", 2, "--context", 16,
                                          "--batch", 8])):
            common = [*options, "--microbatches", 2, "--steps", 4, "--mesh", "dp=2,pp=2", "--threads", 1]
            threads, records = self.losses(program, *common)
            metrics = self.path("sockets.jsonl")
            ended = end_ranks(start_ranks(program, "train", "--metrics", metrics, "--quiet", *common, ranks=4))
            self.assertEqual([status for status, _ in ended], [0] * 4, ended)
            with open(metrics) as lines:
                found = [json.loads(line) for line in lines]
            self.assertEqual(found[0]["run"]["plan_hash"], records[0]["run"]["plan_hash"])
            self.assertEqual([r["loss"] for r in found if "step" in r], threads)

    def test_lost_process(self):
        plan, manifest = self.path("p.plan"), os.path.join(self.path("ck"), "manifest.json")
        self.ok("mlp", "plan", "--mesh", "dp=2,pp=2", "--microbatches", 2, "--batch", 24, "--threads", 1, "-o", plan)
        for which, timeout, words in ((signal.SIGKILL, 60, ["rank 2 failed", "SIGKILL"]),
                                      (signal.SIGSTOP, 3, ["rank 2"])): # any rank that waits for rank 2 may report first
            shutil.rmtree(self.path("ck"), ignore_errors=True)
            started = start_ranks("cleave-run", plan, "--data", DIGITS, "--epochs", 100000, "--quiet", "--timeout", timeout,
                                  "--checkpoint", self.path("ck"), ranks=4)
            deadline = time.monotonic() + 60
            while not os.path.exists(manifest) and time.monotonic() < deadline: # written after an epoch
                time.sleep(0.01)
            began = time.monotonic()
            started[2].send_signal(which)
            others = [process for rank, process in enumerate(started) if rank != 2]
            ended = end_ranks(others, timeout=30)
            self.assertLess(time.monotonic() - began, 20)
            started[2].kill()
            started[2].communicate()
            self.assertEqual([status for status, _ in ended], [3] * 3, ended)
            for word in words:
                self.assertIn(word, ended[0][1])


if __name__ == "__main__":
    programs.main()
