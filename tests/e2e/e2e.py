#!/usr/bin/env python3
"""End to end: the built programs run the way a user would run them. Standard library only.

e2e.py --build BUILD [unittest arguments]
"""
import argparse, json, math, os, subprocess, sys, tempfile, unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
DIGITS = os.path.join(ROOT, "samples", "data", "digits")
BIN = ""


def run(program, *args, ranks=0, timeout=300):
    """Exit status, standard output, standard error. A signal is a negative status."""
    command = [os.path.join(BIN, program), *map(str, args)]
    if ranks:
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), *command]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout)
    return done.returncode, done.stdout, done.stderr


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="cleave-e2e-")

    def tearDown(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def ok(self, program, *args, **kw):
        status, out, err = run(program, *args, **kw)
        self.assertEqual(status, 0, f"{program} {' '.join(map(str, args))}: {err[-600:]}")
        return out

    def losses(self, program, *args, **kw):
        metrics = self.path("metrics.jsonl")
        self.ok(program, "train", "--metrics", metrics, "--quiet", *args, **kw)
        with open(metrics) as lines:
            records = [json.loads(line) for line in lines]
        self.assertIn("run", records[0])
        return [r["loss"] for r in records if "step" in r], records

    def refused(self, program, *args, word, status=2, **kw):
        found, out, err = run(program, *args, timeout=60, **kw)
        self.assertEqual(found, status, f"{program} {' '.join(map(str, args))}: {err[-400:]}")
        self.assertIn(word, err)
        self.assertNotIn("terminate called", err)

    def same(self, one, many, tolerance=5e-5):
        self.assertEqual(len(one), len(many))
        for a, b in zip(one, many):
            self.assertTrue(math.isfinite(a) and math.isfinite(b))
            self.assertLessEqual(abs(a - b), tolerance * abs(a), f"{one} {many}")


class Splits(Case):
    """Every split trains as one rank does."""

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
        self.curves("convnet", common, [["--mesh", "dp=2,pp=2"], ["--mesh", "tp=2"]])

    def test_gpt(self):
        common = ["--data", "synthetic", "--layers", 2, "--width", 32, "--heads", 2, "--context", 16, "--batch", 8,
                  "--microbatches", 2, "--steps", 3]
        self.curves("gpt", common, [["--mesh", "dp=2,tp=2,pp=2"], ["--mesh", "pp=2", "--schedule", "gpipe"], ["--mesh", "tp=2"]])

    def test_resnet(self):
        common = ["--data", DIGITS, "--batch", 4, "--microbatches", 2, "--steps", 2, "--lr", 0.0001]
        self.curves("resnet", common, [["--mesh", "pp=2"]])

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

    def test_processes_equal_threads(self):
        common = ["--data", DIGITS, "--batch", 24, "--microbatches", 2, "--steps", 3, "--mesh", "dp=2", "--threads", 1]
        threads, _ = self.losses("mlp", *common)
        processes, _ = self.losses("mlp", *common, ranks=2)
        self.assertEqual(threads, processes)


class Files(Case):
    """Plans, checkpoints and graphs."""

    def test_plan_file(self):
        plan = self.path("mlp.plan")
        common = ["--mesh", "dp=2,pp=2", "--batch", 24, "--microbatches", 2, "--seed", 5, "--hidden", "64,64"]
        self.ok("mlp", "plan", *common, "-o", plan)
        self.ok("cleave", "verify", plan)
        one, _ = self.losses("mlp", *common, "--data", DIGITS, "--steps", 3)
        two, _ = self.losses("mlp", "--plan", plan, "--data", DIGITS, "--steps", 3)
        self.assertEqual(one, two)
        self.refused("mlp", "train", "--plan", plan, "--data", DIGITS, "--batch", 48, word="48")
        self.refused("mlp", "train", "--plan", plan, "--data", DIGITS, "--hidden", "8", word="--hidden")
        self.refused("mlp", "train", "--plan", plan, "--data", DIGITS, "--lr", 3, word="--lr")
        self.refused("convnet", "train", "--plan", plan, "--data", DIGITS, word="convnet")

    def test_checkpoint_needs_nothing_repeated(self):
        checkpoint = self.path("ck")
        self.ok("mlp", "train", "--hidden", "40", "--data", DIGITS, "--steps", 30, "--batch", 50, "--checkpoint", checkpoint, "--quiet")
        found = json.loads(self.ok("mlp", "eval", "--checkpoint", checkpoint, "--data", DIGITS, "--json"))
        self.assertGreater(found["accuracy"], 0.5)
        split = json.loads(self.ok("mlp", "eval", "--checkpoint", checkpoint, "--data", DIGITS, "--json", "--mesh", "dp=2"))
        self.assertEqual(found["samples"], split["samples"])
        self.assertLess(abs(found["loss"] - split["loss"]), 1e-4)
        self.refused("mlp", "eval", "--checkpoint", checkpoint, "--data", DIGITS, "--hidden", "41", word="41")

    def test_graphs_round_trip(self):
        for program in ("mlp", "convnet", "gpt", "resnet"):
            first, second = self.path("a.mlir"), self.path("b.mlir")
            self.ok(program, "graph", "-o", first)
            text = self.ok("cleave-opt", first)
            with open(second, "w") as out:
                out.write(text)
            self.assertEqual(self.ok("cleave-opt", second), text)

    def test_check(self):
        self.assertIn("agree", self.ok("mlp", "check", "--hidden", "32", "--batch", 8, "--microbatches", 2, "--mesh", "dp=2,pp=2",
                                       "--data", DIGITS, "--steps", 2))
        self.assertIn("agree", self.ok("gpt", "check", "--layers", 1, "--width", 16, "--heads", 2, "--context", 8, "--batch", 4,
                                       "--mesh", "tp=2", "--data", "synthetic"))


class Mistakes(Case):
    """One message that names the value, and the right status."""

    def test_options(self):
        for args, word in [(["--mesh", "foo=2"], "foo"), (["--mesh", "dp=-1"], "dp"), (["--mesh", "dp=2,dp=2"], "dp"),
                           (["--schedule", "zigzag"], "zigzag"), (["--optimizer", "magic"], "magic"),
                           (["--batch", "9", "--microbatches", "2"], "9"), (["--batch", "0"], "0"),
                           (["--hidden", "1,none"], "1,none"), (["--precision", "fp8"], "fp8"), (["--zero", "1"], "1"),
                           (["--strategy", "/no/such.toml"], "/no/such.toml"), (["--backend", "abacus"], "abacus"),
                           (["--metrics", "/no/such/folder/m.jsonl"], "/no/such/folder"), (["--lr", "fast"], "fast"),
                           (["--mesh", "pp=400"], "400")]:
            self.refused("mlp", "train", "--data", DIGITS, *args, word=word)

    def test_places(self):
        self.refused("mlp", "train", "--data", "/no/such/place", word="/no/such/place")
        self.refused("mlp", "train", word="--data")
        self.refused("mlp", "eval", "--checkpoint", "/no/such/ck", "--data", DIGITS, word="/no/such/ck")
        self.refused("mlp", "train", "--plan", "/no/such.plan", "--data", DIGITS, word="/no/such.plan")

    def test_cuda_is_missing(self):
        self.refused("mlp", "train", "--data", DIGITS, "--backend", "cuda", word="CUDA", status=3)

    def test_wrong_data_for_the_model(self):
        self.refused("resnet", "train", "--image", 32, "--data", DIGITS, word="32")

    def test_ranks_of_mpirun(self):
        status, _, err = run("mlp", "train", "--data", DIGITS, "--mesh", "dp=3", ranks=2, timeout=60)
        self.assertNotEqual(status, 0)
        self.assertTrue("3" in err and "2" in err)

    def test_shapes_in_a_model(self):
        status, _, err = run("gpt", "graph", "--width", 30, "--heads", 4)
        self.assertEqual(status, 2)
        self.assertIn("gpt.cpp:", err)
        self.assertIn("rule reshape C1", err)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    known, rest = parser.parse_known_args()
    BIN = os.path.join(os.path.abspath(known.build), "bin")
    unittest.main(argv=[sys.argv[0], *rest])
