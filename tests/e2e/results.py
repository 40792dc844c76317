#!/usr/bin/env python3
"""Tests of what a run reports: an evaluation of a checkpoint is the training's own, whatever the training's options; no result
is of other parameters; metrics of earlier runs and of killed runs stay. Standard library only.

results.py --build BUILD [unittest arguments]
"""
import json, os, signal, subprocess, time

import programs
from e2e import Case
from programs import DIGITS, run

NET = ["convnet", "--data", DIGITS, "--batch", 100, "--threads", 1]


class Results(Case):
    def records(self, file):
        with open(file) as lines:
            return [json.loads(line) for line in lines]

    def test_evaluation_of_a_checkpoint(self):
        """What decides how a training evaluates is in its checkpoint. (Splits and batches round otherwise.)"""
        options = [["--ema", 0.9], ["--ema", 0.9, "--precision", "bf16"], ["--opt-level", "O3"],
                   ["--optimizer", "sgd", "--lr", 0.1, "--momentum", 0.8, "--microbatches", 2, "--seed", 3],
                   ["--eval-batch", 40, "--layout", "nchw", "--winograd", "never", "--lr-schedule", "cosine", "--warmup-epochs", 0.5],
                   ["--mesh", "dp=2,pp=2", "--zero", 1, "--ema", 0.99, "--batch-per-rank", 50, "--weight-decay", 0.01]]
        for number, option in enumerate(options):
            ck, net = self.path(f"ck{number}"), NET if "--batch-per-rank" not in option else NET[:3] + NET[5:]
            trained = json.loads(self.ok(net[0], "train", *net[1:], *option, "--checkpoint", ck, "--json", "--quiet"))
            averages = "--ema" in option
            found = json.loads(self.ok("convnet", "eval", "--data", DIGITS, "--checkpoint", ck, "--json", "--threads", 1))
            half = any(word in option for word in ("bf16", "fp16", "O3"))
            self.assertAlmostEqual(found["loss"], trained["eval_loss"], delta=2e-3 if half else 1e-5, msg=option)
            self.assertAlmostEqual(found["accuracy"], trained["eval_accuracy"], delta=0.002 if half else 0.0006, msg=option)
            self.assertEqual(found.get("averages", False), averages, option)
            said = self.ok("convnet", "eval", "--data", DIGITS, "--checkpoint", ck)
            self.assertEqual("averaged parameters" in said, averages, said)

    def test_last_evaluation(self):
        """A result has the evaluation of the last step, or none."""
        out = json.loads(self.ok("mlp", "train", "--data", DIGITS, "--batch", 100, "--epochs", 1, "--json"))
        self.assertGreater(out["eval_accuracy"], 0.5)
        perEpoch = out["steps"]
        status, text, err = run("mlp", "train", "--data", DIGITS, "--batch", 100, "--steps", perEpoch + 2, "--json",
                                "--checkpoint", self.path("ck"))
        self.assertEqual(status, 0, err)
        self.assertIn("epoch 1  eval loss", err)
        out = json.loads(text)
        self.assertIsNone(out["eval_loss"])
        self.assertIsNone(out["eval_accuracy"])
        self.assertNotIn("evaluation:", self.ok("mlp", "train", "--data", DIGITS, "--batch", 100, "--steps", perEpoch + 2))

    def test_metrics_of_earlier_runs(self):
        file = self.path("m.jsonl")
        train = ["mlp", "train", "--data", DIGITS, "--quiet", "--metrics", file]
        for steps in (1, 2, 3):
            status, _, err = run(*train, "--steps", steps)
            self.assertEqual(status, 0, err)
            self.assertEqual(len(self.records(file)), 1 + steps)
            self.assertEqual(f"{file}.{steps - 1}" in err, steps > 1, err)
        self.assertEqual([len(self.records(f"{file}.{n}")) for n in (1, 2)], [2, 3])
        self.ok(*train, "--steps", 4, "--overwrite")
        self.ok(*train, "--steps", 5, "--checkpoint", self.path("ck"), "--overwrite")
        self.ok(*train, "--steps", 7, "--checkpoint", self.path("ck"), "--resume")
        self.assertEqual([r["step"] for r in self.records(file) if "step" in r], [1, 2, 3, 4, 5, 6, 7])
        self.assertFalse(os.path.exists(file + ".3"))

    def test_metrics_of_a_killed_run(self):
        """A checkpoint's steps are in the metrics, however the run ends."""
        file, ck = self.path("m.jsonl"), self.path("ck")
        command = [os.path.join(programs.BIN, "mlp"), "train", "--data", DIGITS, "--quiet", "--metrics", file, "--epochs", "100",
                   "--checkpoint", ck, "--checkpoint-every", "3"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as job:
            manifest = os.path.join(ck, "manifest.json")
            for _ in range(3000):
                if os.path.exists(manifest):
                    break
                time.sleep(0.01)
            time.sleep(0.05)
            job.send_signal(signal.SIGKILL)
        with open(manifest) as opened:
            step = json.load(opened)["step"]
        with open(file) as opened:
            text = opened.read()
        whole = [json.loads(line) for line in text[:text.rfind("\n")].splitlines()]
        self.assertGreaterEqual([r["step"] for r in whole if "step" in r][-1], step)


if __name__ == "__main__":
    programs.main()
