#!/usr/bin/env python3
"""Tests of data sets that the user wrote: random numbers that every split draws alike, and data sets that are wrong. Standard
library only.

own_data.py --build BUILD [unittest arguments]
"""
import json, os, shutil

import programs
from e2e import Case
from programs import end_ranks, run, start_ranks

FUNCTION = "a sample must depend on (seed, epoch, index) alone"


class OwnData(Case):
    def losses(self, *args, ranks=0):
        """Losses of the steps and of the evaluations."""
        file = self.path("losses.jsonl")
        status, _, err = run("own_data", "train", "--seed", 5, "--metrics", file, "--quiet", *args, ranks=ranks)
        self.assertEqual(status, 0, err)
        with open(file) as lines:
            records = [json.loads(line) for line in lines]
        os.remove(file)
        return [r.get("loss", r.get("eval_loss")) for r in records if "loss" in r or "eval_loss" in r]

    def close(self, found, wanted, what):
        self.assertEqual(len(found), len(wanted), what)
        for a, b in zip(found, wanted):
            self.assertAlmostEqual(a, b, delta=1e-4, msg=what)

    def test_every_split_draws_the_same_numbers(self):
        """Picture and mask are read by different stages, the picture by every part of a split layer."""
        wanted = self.losses("--epochs", 3)
        self.assertEqual(len(wanted), 3 * (64 // 16 + 1))
        self.assertGreater(wanted[0], wanted[-1])
        for mesh in ("dp=2", "tp=2", "pp=2", "dp=2,tp=2,pp=2"):
            self.close(self.losses("--epochs", 3, "--mesh", mesh), wanted, mesh)
        self.close(self.losses("--epochs", 3, "--mesh", "pp=2", "--microbatches", 4), wanted, "microbatches")
        if shutil.which("mpirun"):
            self.close(self.losses("--epochs", 3, "--mesh", "tp=2,pp=2", ranks=4), wanted, "mpi")

    def test_resume_and_evaluation_draw_the_same_numbers(self):
        whole = self.losses("--epochs", 2)
        first = self.losses("--steps", 3, "--checkpoint", self.path("ck"))
        rest = self.losses("--epochs", 2, "--checkpoint", self.path("ck"), "--resume")
        self.assertEqual(first + rest, whole)
        for _ in range(2):
            status, out, err = run("own_data", "eval", "--checkpoint", self.path("ck"), "--json")
            self.assertEqual(status, 0, err)
            self.assertAlmostEqual(json.loads(out)["loss"], whole[-1], delta=1e-6)
        status, _, err = run("own_data", "check", "--mesh", "tp=2,pp=2", "--steps", 5, "--seed", 7)
        self.assertEqual(status, 0, err)

    def refused(self, fault, *words, command=("train",)):
        status, _, err = run("own_data", *command, "--fault", fault)
        self.assertEqual(status, 2, err)
        for word in words:
            self.assertIn(word, err)
        self.assertEqual(err.count("error:"), 1, err)

    def test_data_sets_that_are_no_function(self):
        self.refused("count-reads", "data field picture of evaluation sample 23: read again", FUNCTION)
        self.refused("unwritten", "data field picture of evaluation sample 23: read again", "write every element")
        self.refused("order", "data field mask of evaluation sample 23: read without the other fields", FUNCTION)
        self.refused("order", "data field mask", command=("check",))

    def test_where_the_data_are(self):
        one, two, empty = (self.path(name) for name in ("one", "two", "empty"))
        for path, text in ((one, "1.25"), (two, "1.26"), (empty, "")):
            with open(path, "w") as out:
                out.write(text)
        refused = f"--data {one}: the program's own data set does not read it: leave it out, or override Dataset::open"
        for command in (["train"], ["check"], ["plan", "-o", self.path("p")], ["data"]):
            self.refused("none", refused, command=[*command, "--data", one])
        self.refused("file", "--data /no/such/file: no such file", command=["train", "--data", "/no/such/file"])
        self.refused("file", f"--data {empty}: holds no number", command=["train", "--data", empty])
        plain = self.losses("--fault", "file", "--steps", 3)
        first = self.losses("--fault", "file", "--data", one, "--steps", 3)
        self.assertNotEqual(first, plain)
        self.assertNotEqual(first, self.losses("--fault", "file", "--data", two, "--steps", 3))
        self.assertEqual(self.losses("--steps", 3), self.losses("--fault", "file", "--steps", 3))
        self.losses("--data", "synthetic", "--steps", 3)

    def test_other_data_than_before(self):
        one, two = self.path("one"), self.path("two")
        for path, text in ((one, "1.25"), (two, "1.26")):
            with open(path, "w") as out:
                out.write(text)
        for fault in ("file", "known"):
            ck = self.path(fault)
            train = ["train", "--quiet", "--checkpoint", ck, "--steps"]
            self.assertEqual(run("own_data", *train, 3, "--seed", 5, "--fault", fault, "--data", one)[0], 0)
            self.assertEqual(run("own_data", *train, 4, "--resume", "--data", one)[0], 0)
            status, _, err = run("own_data", *train, 5, "--resume", "--data", two)
            self.assertEqual(status, 2 if fault == "file" else 0, err)
            if fault == "file":
                self.assertIn("trained on other data: field picture of some training samples: sha256:", err)
                status, _, err = run("own_data", *train, 5, "--resume", "--data", two, "--new-data")
                self.assertEqual(status, 0, err)
                self.assertIn("at the beginning of epoch 2", err)
            status, _, err = run("own_data", *train, 6, "--resume", "--data", "synthetic")
            self.assertEqual(status, 2, err)
            self.assertIn("training samples: 1024 now, 64 before", err)

    def test_exceptions_are_the_users(self):
        self.refused("throw", "data fields picture, mask of training sample 5: this picture is torn")
        self.refused("torn", "data field mask of training sample 5: an exception that is not derived from std::exception")
        self.refused("count", "data: the number of training samples: the list of pictures is torn")
        self.refused("forward", "forward: forward gives up")
        status, _, err = run("own_data", "train", "--fault", "throw", "--mesh", "pp=2")
        self.assertEqual(status, 2, err)
        self.assertIn("training sample 5: this picture is torn", err)

    def test_an_exception_on_another_rank(self):
        ends = end_ranks(start_ranks("own_data", "train", "--fault", "throw", "--mesh", "dp=2", "--batch", 64, ranks=2))
        self.assertEqual([status for status, _ in ends], [2, 2], ends)
        self.assertTrue(any("training sample 5: this picture is torn" in err for _, err in ends), ends)

    def test_ranks_that_read_different_values(self):
        """Over threads, sockets and MPI. The sample is not one of those that are compared before training."""
        words = "data field picture of training sample 5 (step 1): ranks 0 and 1 read different values", FUNCTION
        args = "train", "--fault", "rank", "--batch", 64, "--mesh", "tp=2"
        said = [run("own_data", *args)[::2], end_ranks(start_ranks("own_data", *args, ranks=2))[0]]
        if shutil.which("mpirun"):
            said.append(run("own_data", *args, ranks=2)[::2])
        for status, err in said:
            self.assertEqual(status, 2, err)
            for word in words:
                self.assertIn(word, err)


if __name__ == "__main__":
    programs.main()
