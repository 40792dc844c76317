#!/usr/bin/env python3
"""Tests of options and what they do: initial weights, the batch of a rank, frozen parameters, samples that are combined, numbers
and rules without effect. Standard library only.

options.py --build BUILD [unittest arguments]
"""
import glob, json, os, unittest.mock

import programs
from e2e import Case
from programs import DIGITS, run


class Options(Case):
    def test_tuning(self):
        """Methods are measured once; with a record, every run and every communicator gives the same bits."""
        record = self.path("record/tuning.json")

        def train(*more, where=record, **kw):
            return self.losses("mlp", "--data", DIGITS, "--hidden", "1024,1024", "--batch", 128, "--steps", 3, "--threads", 1,
                               *(["--tuning", where] if where else []), *more, **kw)[0]

        def choices():
            with open(record) as file:
                return json.load(file)["choices"]

        first, measured = train(), choices()
        self.assertTrue(any(" | product m128 n1024 k1024 " in key for key in measured), measured)
        self.assertEqual(train(), first)
        self.assertEqual(choices(), measured)
        other = {"sgemm": "primitive", "primitive": "gemm", "gemm": "sgemm"}
        turned = {key: other[choice] for key, choice in measured.items()}
        with open(record, "w") as file:
            json.dump({"cleave_tuning": 1, "choices": turned}, file)
        self.same(first, train())  # within rounding
        self.assertEqual(choices(), turned)
        os.remove(record)
        ranks = ["--mesh", "dp=2"]
        self.assertEqual(train(*ranks), train(*ranks, ranks=2))
        off = train(where="off")
        cache = self.path("cache")
        self.use_cache(cache)
        for content in (None, '{"cleave_tuning": 1, "choices": {"a": 1}}'):
            if content:
                with open(cache + "/cleave/tuning.json", "w") as file:
                    file.write(content)
            self.same(train(where=None), off)
            with open(cache + "/cleave/tuning.json") as file:
                self.assertEqual(len(json.load(file)["choices"]), len(measured))
        self.use_cache(self.path("metrics.jsonl"))  # a file: nothing can be kept
        self.same(train(where=None), off)
        with unittest.mock.patch.dict(os.environ, {"XDG_CACHE_HOME": "", "HOME": ""}):  # no place: nothing is measured
            self.assertEqual(train(where=None), off)

    def test_initial_weights(self):
        """--steps 0 writes them; a training that continues from them is the same as one from the start."""
        data = ["--data", DIGITS, "--seed", 3]
        checkpoint, plan = self.path("ck"), self.path("mlp.plan")
        self.assertIn("0 steps, the initial weights", self.ok("mlp", "train", *data, "--steps", 0, "--checkpoint", checkpoint))
        start = json.loads(self.ok("mlp", "eval", "--checkpoint", checkpoint, "--data", DIGITS, "--json"))
        self.assertAlmostEqual(start["loss"], 2.3, delta=0.1)
        wanted = self.losses("mlp", *data, "--steps", 3)[0]
        os.remove(self.path("metrics.jsonl"))
        self.assertEqual(self.losses("mlp", *data, "--steps", 3, "--checkpoint", checkpoint, "--resume")[0], wanted)
        self.assertIn("for 1 rank,", self.ok("mlp", "plan", "-o", plan))
        self.ok("cleave-run", plan, "--data", DIGITS, "--steps", 0, "--checkpoint", self.path("run"))
        self.refused("mlp", "check", "--data", DIGITS, "--steps", 0, word="--steps 0: check compares at least one step")
        self.refused("mlp", "train", "--data", DIGITS, "--steps", -1, word="--steps -1")

    def test_recipes_of_samples(self):
        """Both train, as small as they may be."""
        folder = os.path.join(programs.ROOT, "samples", "04_resnet")
        plans = {}
        for name, small in (("gluon", ["--batch", 8]), ("imagenet", ["--batch", 2, "--image", 32, "--depth", 18])):
            plan = plans[name] = self.path(name + ".plan")
            self.ok("resnet", "plan", "--recipe", os.path.join(folder, name + ".toml"), *small, "-o", plan)
            self.ok("cleave-run", plan, "--data", "synthetic", "--steps", 1)
        self.assertEqual([".ema" in self.ok("cleave", "show", "--steps", plans[name]) for name in ("gluon", "imagenet")], [False, True])
        self.refused("resnet", "plan", "--ema", 1.5, "-o", plan, word="--ema 1.5")

    def test_recipe(self):
        """A file gives the options that the command line does not, and a checkpoint's go before it."""
        recipe, ck = self.path("recipe.toml"), self.path("ck")

        def write(text):
            with open(recipe, "w") as out:
                out.write(text)

        write('hidden = [24, 16]\nbatch = 20\nlr = 0.05\nlr-schedule = "cosine"\nwarmup-epochs = 0.5\nquiet = true\nepochs = 2\n')
        train = ["mlp", "--data", DIGITS, "--recipe", recipe, "--threads", 1]
        losses, records = self.losses(*train)
        by_hand = self.losses("mlp", "--data", DIGITS, "--threads", 1, "--hidden", "24,16", "--batch", 20, "--lr", 0.05,
                              "--lr-schedule", "cosine", "--warmup-epochs", 0.5, "--epochs", 2)
        self.assertEqual(losses, by_hand[0][-len(losses):])
        rates = [r["lr"] for r in records if "step" in r]
        warm, epoch = len(rates) // 4, len(rates) // 2
        self.assertAlmostEqual(rates[0], 0.05 / warm)
        self.assertAlmostEqual(max(rates), 0.05)
        self.assertEqual(rates.index(max(rates)), warm - 1)
        self.assertLess(rates[-1], 1e-3)
        self.assertIn("train_accuracy", records[-1])
        # A training that resumes goes on with the schedule, without the recipe.
        os.remove(self.path("metrics.jsonl"))
        self.losses(*train, "--epochs", 1, "--lr-schedule", "step", "--every-epochs", 1, "--lr", 0.1, "--checkpoint", ck)
        os.remove(self.path("metrics.jsonl"))
        write("hidden = 7\n")
        rest = self.losses("mlp", "--data", DIGITS, "--recipe", recipe, "--resume", "--checkpoint", ck, "--epochs", 2)[1]
        self.assertEqual([round(r["lr"], 9) for r in rest if "step" in r], [0.01] * epoch)
        for text, word in (("hiden = 8", "recipe.toml:1:9: mlp has no option --hiden"), ("batch = 0", "--batch 0"),
                           ("batch = [[1]]", "must be a text, a number"), ("batch = ", "recipe.toml:1"),
                           ('plan = "x"', "plan: belongs on the command line"), ("hidden = \"x\"", "recipe.toml:1:10: --hidden x"),
                           ("steps = 2026-01-01", "steps: must be a text, a number"), ("quiet = 1", "quiet: must be true or false"),
                           ("hidden = [4, 2026-01-01]", "hidden: must be a text, a number")):
            write(text)
            self.refused("mlp", "train", "--data", DIGITS, "--recipe", recipe, word=word)
        self.refused("mlp", "train", "--data", DIGITS, "--every-epochs", 2, word="only the schedule step has steps")

    def test_batch_per_rank(self):
        plan, metrics, train = self.path("mlp.plan"), self.path("m.jsonl"), ["mlp", "train", "--data", DIGITS]
        split = ["--mesh", "dp=2,pp=2", "--batch-per-rank", 24]
        status, _, err = run(*train, "--steps", 1, *split, "--metrics", metrics)
        self.assertEqual(status, 0, err)
        self.assertEqual(err.splitlines()[0], "mlp: 4 ranks = dp 2 x pp 2, global batch 48")
        with open(metrics) as lines:
            self.assertEqual(json.loads(lines.readline())["run"]["batch"], 48)
        self.ok("mlp", "plan", *split, "-o", plan)
        self.ok(*train, "--steps", 1, "--plan", plan, "--batch-per-rank", 24, "--checkpoint", self.path("ck"))
        wrong = self.refused(*train, "--plan", plan, "--batch-per-rank", 25, word="--batch-per-rank 25: the plan")
        self.assertRegex(wrong, "48.* 50")
        wrong = self.refused(*train, *split, "--batch", 64, word="--batch 64: contradicts --batch-per-rank 24")
        self.assertIn("48", wrong)
        status, _, err = run(*train, "--steps", 2, "--mesh", "dp=2", "--batch-per-rank", 10, "--resume", "--checkpoint", self.path("ck"))
        self.assertIn("mlp: 2 ranks = dp 2, global batch 20", err)
        self.assertEqual(status, 0, err)

    def test_frozen_parameters(self):
        """They are counted everywhere, also those that no rank holds, and marked."""
        plan = self.path("frozen.plan")
        for mesh, stages in (("dp=2", 1), ("tp=2", 1), ("pp=2", 2)):
            self.ok("own_data", "plan", "--freeze", "true", "--mesh", mesh, "-o", plan)
            report = json.loads(self.ok("cleave", "show", plan, "--json"))
            first, second, spare = 8 * 16 + 16, 16 * 8 + 8, 5 * 5 + 5
            self.assertEqual(report["parameters"], first + second + spare)
            self.assertEqual(report["frozen_parameters"], first + spare)
            self.assertEqual(sum(stage["parameters"] for stage in report["stages"]), report["parameters"])
            self.assertEqual(len(report["stages"]), stages)
            frozen = {t["name"] for t in report["tensors"] if t.get("frozen")}
            self.assertTrue({"first.weight", "first.bias"} <= frozen <= {"first.weight", "first.bias", "spare.weight", "spare.bias"})
            page = self.ok("cleave", "show", plan)
            self.assertIn("310 parameters, 174 of them not trained, in ", page)
            self.assertRegex(page, r"first\.weight .* not trained\n")
            self.assertNotRegex(page, r"second\.weight .* not trained\n")
        self.ok("own_data", "plan", "-o", plan)
        self.assertIn("310 parameters, 30 of them not trained, in ", self.ok("cleave", "show", plan))  # the loss reads no spare

    def test_names_of_programs(self):
        """build/bin in PATH hides no command of the system."""
        names = {os.path.splitext(os.path.basename(path))[0] for folder in ("samples/*", "tests/e2e")
                 for path in glob.glob(os.path.join(programs.ROOT, folder, "*.cpp"))}
        self.assertLess({"mlp", "lstm", "own_data"}, names)
        for folder in ("/bin", "/usr/bin", "/sbin", "/usr/sbin"):
            self.assertEqual(sorted(names & set(os.listdir(folder))), [], folder)

    def test_samples_do_not_depend_on_their_batch(self):
        for program in ("mlp", "convnet", "gpt", "resnet", "vit", "llama", "lstm"):
            plan = self.path(program + ".plan")
            self.ok(program, "plan", "--no-code", "--batch", 8, "-o", plan)
            self.assertEqual(json.loads(self.ok("cleave", "show", "--json", plan))["combines_samples"], {"train": "", "eval": ""})

    def test_numbers_and_rules_without_effect(self):
        for option in ("--lr", "--momentum", "--weight-decay"):
            for value in ("1e-400", "1e400", "1e-50", "nan", "inf", "0.1x", ""):
                self.refused("mlp", "plan", f"{option}={value}", "-o", self.path("p.plan"), word=option)
        for option in ("--batch", "--microbatches", "--threads", "--devices", "--virtual", "--seed", "--zero"):
            for value in ("99999999999999999999", "-99999999999999999999", "1e3", "2,", "0x10"):
                self.refused("mlp", "plan", option, value, "-o", self.path("p.plan"), word=option)
        for value in ("9223372036854775807", "1e-400", "1e400", "0", "-1", "nan"):
            self.refused("mlp", "train", "--data", DIGITS, "--timeout", value, word="must be a number in [0.001, 1000000000)")
            self.refused("cleave-run", "x.plan", "--timeout", value, word="must be a number in [0.001, 1000000000)")
        for mesh in ("dp=2,", ",dp=2", "dp=2,,tp=1"):
            self.refused("mlp", "plan", "--mesh", mesh, "-o", self.path("p.plan"), word='axis ""')
        for args in (["--hidden", "32,"], ["--hidden", ",32"]):
            self.refused("mlp", "plan", *args, "-o", self.path("p.plan"), word="--hidden")
        self.refused("cleave", "verify", "--memory", "999999999999999999", "x", word="must be a whole number from 1 to")
        strategy = self.path("rules.toml")
        for rule, word in (('"*" = { abc = "zz" }', '"abc"'), ('"*" = { 99999999999999999999 = "tp" }', "99999999999999999999"),
                           ('"**" = { 0 = "tp" }', '"**"'), ('"*" = { 0 = "tp" }', 'no parameter or buffer of the model matches "*"'),
                           ('"image" = { 1 = "tp" }', 'no parameter or buffer of the model matches "image"')):
            with open(strategy, "w") as out:
                out.write(f"mesh = {{ tp = 2 }}\n[shard]\n{rule}\n")
            self.refused("mlp", "plan", "--strategy", strategy, "-o", self.path("p.plan"), word=word)


if __name__ == "__main__":
    programs.main()
