#!/usr/bin/env python3
"""Tests of labels and ids that nothing can mean: an error names sample, field and value before they count, and of indices that
the model computes, the function that reads them. Standard library only.

indices.py --build BUILD [unittest arguments]
"""
import json, os

import programs
from e2e import Case
from programs import end_ranks, run, start_ranks


class Indices(Case):
    def said(self, *args, status=2, command="train", ranks=0):
        found, out, err = run("indices", command, *args, ranks=ranks)
        self.assertEqual(found, status, (args, out, err[-800:]))
        return err

    def test_labels_that_the_loss_cannot_mean(self):
        """Whatever the field declares, in every loss, with every split, in training and evaluation."""
        for loss in ("plain", "smooth", "weights", "nll", "focal", "top"):
            err = self.said("--loss", loss, "--label", 3)
            self.assertIn("data field label: ", err)
            self.assertIn("reads values in [0, 3), or negative ones, which it ignores, found 3 in training sample 7", err)
        for mesh in ("dp=2", "tp=2", "pp=2", "dp=2,pp=2"):
            err = self.said("--label", 255, "--mesh", mesh, "--epochs", 2)
            self.assertIn("found 255 in training sample 7", err)
        err = self.said("--label", 3, "--odd", "eval")
        self.assertIn("crossEntropy at indices.cpp:", err)
        self.assertIn("found 3 in evaluation sample 7", err)
        self.assertIn("found 3 in training sample 7", self.said("--label", 3, "--steps", 4, command="check"))
        self.assertIn("data field label: values lie in [0, 3), or are negative to be ignored, found 3 in training sample 7",
                      self.said("--declared", 3, "--label", 3))
        self.said("--label", -1, status=0)
        self.said("--label", -100, "--loss", "top", status=0)

    def test_ignored_label(self):
        ignoring = "--loss", "ignoring", "--ignored", 255
        self.said(*ignoring, "--label", 255, status=0)
        self.said(*ignoring, "--label", 255, "--declared", 3, status=0)
        self.assertIn("found 254", self.said(*ignoring, "--label", 254))

    def test_declared_classes(self):
        err = self.said("--declared", 10, "--outputs", 5)
        self.assertIn("crossEntropy: field label of the data has values from 0 to 9, but an index must be less than 5 here", err)
        self.assertIn("indices.cpp:", err)
        err = self.said("--declared", 3, "--outputs", 8, status=0)
        self.assertRegex(err, r"warning: crossEntropy at indices.cpp:\d+: there are outputs for 8 classes, field label of the data has 3")

    def test_ids_outside_a_table(self):
        """As PyTorch, unless the model says that they are zeros."""
        for reader in ("embedding", "gather", "indexSelect", "oneHot"):
            for value in (6, 1000000):
                err = self.said("--reader", reader, "--id", value)
                self.assertRegex(err, rf"data field ids: {reader} at indices.cpp:\d+ reads values in \[0, 6\).*, "
                                      rf"found {value} at element 2 of training sample 7")
            self.said("--reader", reader, "--id", 6, "--zeros", "true", status=0)
        self.assertIn("found -1 at element 2", self.said("--id", -1))
        self.said("--id", -1, "--zeros", "true", status=0)
        self.assertIn("data field byte: ", self.said("--reader", "byte", "--id", 200))
        for reader in ("part", "clamped", "best"):  # these read no such value
            self.said("--reader", reader, "--id", 6, status=0)

    def test_computed_indices(self):
        """They end the step, and no checkpoint is written after it."""
        ck = self.path("ck")
        for mesh in ("dp=1", "dp=2", "tp=2", "pp=2"):
            err = self.said("--reader", "computed", "--id", 6, "--mesh", mesh, "--checkpoint", ck, "--checkpoint-every", 1, "--overwrite")
            self.assertRegex(err, r"step \d+: 1 index of embedding at indices.cpp:\d+: must lie in \[0, 6\)")
        step = int(err.split("error: step ")[1].split(":")[0])
        if step > 1:
            with open(os.path.join(ck, "manifest.json")) as file:
                self.assertEqual(json.load(file)["step"], step - 1)
        self.assertIn("1 index of crossEntropy", self.said("--loss", "shifted", "--label", 3, "--mesh", "pp=2", "--microbatches", 2))
        self.assertIn("1 index of", self.said("--reader", "computed", "--id", -5))
        self.assertIn("index of", self.said("--reader", "indexAdd", "--id", 9))
        self.said("--reader", "computed", "--id", 6, "--zeros", "true", status=0)
        self.said("--reader", "computed", status=0)
        self.assertRegex(self.said("--reader", "computed", "--id", 6, "--steps", 4, command="check"), r"step \d: 1 index of")

    def test_evaluation_and_prediction(self):
        ck = self.path("ck")
        for reader, words in (("embedding", "found 6 at element 2 of evaluation sample 7"), ("computed", "of embedding at")):
            train = "--reader", reader, "--id", 6, "--odd", "eval", "--checkpoint", ck
            err = self.said(*train, "--overwrite")
            self.assertIn(words, err)
            for command in (["eval"], ["predict", "-o", self.path("p.npy")]):
                for mesh in ("dp=1", "dp=2", "pp=2"):
                    err = self.said(*command[1:], "--checkpoint", ck, "--mesh", mesh, command=command[0])
                    self.assertIn(words, err)

    def test_ranks(self):
        """Processes end together, whichever of them reads the odd sample."""
        for odd in (["--label", 9], ["--reader", "computed", "--id", 6]):
            ends = end_ranks(start_ranks("indices", "train", *odd, "--mesh", "dp=2", "--threads", 1, ranks=2))
            self.assertEqual([status for status, _ in ends], [2, 2], ends)

    def test_ties_and_nan_are_not_right(self):
        """Accuracy is that of argmax: the first of equal logits, and never NaN."""
        out = self.ok("indices", "train", "--reader", "ties", "--json")
        self.assertAlmostEqual(json.loads(out)["eval_accuracy"], 11 / 32)  # the labels that are 0
        for precision in ("fp32", "bf16", "fp16"):
            for more in ([], ["--checkpoint", self.path("nan")]):
                err = self.said("--reader", "nan", "--precision", precision, *more, status=3)
                self.assertIn("the loss is NaN", err)
        out = self.ok("indices", "train", "--reader", "nan", "--loss", "top", "--keep-going", "--json")
        self.assertEqual(json.loads(out)["eval_accuracy"], 0)


if __name__ == "__main__":
    programs.main()
