#!/usr/bin/env python3
"""Tests of a program's own options, of every type: restarts by the same command line and in other spellings, other values, and what
the help and the errors say. (tests/unit/frontend/OwnOptionsTest.cpp draws thousands of programs.) Standard library only.

own_options.py --build BUILD [unittest arguments]
"""
import json, os, random

import programs
from e2e import Case
from programs import DIGITS, end_ranks, run, start_ranks
from simulate import CLUSTER

PROGRAM = "own_options"
# Spellings of one value, and another value with what messages show of both.
VALUES = {
    "--wide": ([["--wide"], ["--wide", "true"], ["--wide=1"]], ["--wide", "0"], ("--wide false", "has true")),
    "--width": ([["--width", "12"], ["--width=012"]], ["--width", "13"], ("--width 13", "has 12")),
    "--scale": ([["--scale", "0.20"], ["--scale=.2"], ["--scale", "2e-1"], ["--scale", "+0.2"]], ["--scale", "0.25"],
                ("--scale 0.25", "has 0.2")),
    "--tag": ([["--tag", "0.20"], ["--tag=0.20"]], ["--tag", "0.2"], ("--tag 0.2:", "has 0.20")),
    "--hidden": ([["--hidden", "4,6"], ["--hidden=04,6"]], ["--hidden", "4"], ("--hidden 4:", "has 4,6")),
}
DEFAULTS = {"--wide": ["--wide", "false"], "--width": ["--width=8"], "--scale": ["--scale", "1e-1"], "--tag": ["--tag", ""],
            "--hidden": ["--hidden", ""]}


class OwnOptions(Case):
    def train(self, checkpoint, steps, *words):
        return ["train", "--data", "synthetic", "--quiet", "--threads", 1, *words, "--steps", steps, "--checkpoint", checkpoint,
                "--resume-if-any"]

    def test_restarts(self):
        """One command line goes on after a restart, in any spelling, also of defaults, and eval and --plan take the values."""
        draw = random.Random(1)
        for step, names in enumerate((list(VALUES), [], ["--scale", "--hidden"])):
            checkpoint, plan = self.path(f"ck{step}"), self.path(f"{step}.plan")

            def words(repeat):
                chosen = [draw.choice(VALUES[name][0]) if name in names else DEFAULTS[name] for name in VALUES if name in names or repeat]
                draw.shuffle(chosen)
                return sum(chosen, [])

            first = words(False)
            self.ok(PROGRAM, *self.train(checkpoint, 1, *first))
            self.ok(PROGRAM, *self.train(checkpoint, 2, *first))
            self.ok(PROGRAM, *self.train(checkpoint, 3, *words(True)))
            self.ok(PROGRAM, *self.train(checkpoint, 4))
            with open(os.path.join(checkpoint, "manifest.json")) as file:
                manifest = json.load(file)
            self.assertEqual(manifest["step"], 4)
            self.assertEqual(list(manifest["options"].values()), [True, 12, 0.2, "0.20", [4, 6]] if len(names) > 2 else
                             [False, 8, 0.2 if names else 0.1, "", [4, 6] if names else []])
            for more in ([], words(True)):
                self.ok(PROGRAM, "eval", "--data", "synthetic", "--checkpoint", checkpoint, *more)
            self.ok(PROGRAM, "plan", "--no-code", *first, "-o", plan)
            self.ok(PROGRAM, "plan", "--no-code", "--like", plan, *words(True), "-o", self.path("like.plan"))
            self.ok(PROGRAM, "plan", *first, "-o", plan)
            self.ok(PROGRAM, "train", "--data", "synthetic", "--plan", plan, *words(True), "--steps", 1, "--quiet")
            for name in names:
                _, other, (given, kept) = VALUES[name]
                for where in (self.train(checkpoint, 9), ["eval", "--data", "synthetic", "--checkpoint", checkpoint],
                              ["train", "--data", "synthetic", "--plan", plan, "--steps", 1]):
                    err = self.refused(PROGRAM, *where, *other, word=given)
                    self.assertIn(kept, err)
                    self.assertLess(len(err), 200)

    def test_values_that_cannot_be(self):
        for words, text in ((["--scale", "fast"], "--scale fast: must be a number"), (["--wide", "yes"], "--wide yes: must be true or false"),
                            (["--width", "0"], "--width 0: must be a whole number from 1 to 1000"),
                            (["--hidden", "3,"], "--hidden 3,: must be numbers separated by commas"),
                            (["--tag"], "--tag needs a value, TEXT"), (["--width", "--wide"], "--width needs a value, N"),
                            (["--width", "1", "--width", "2"], "--width is given twice, 1 and 2")):
            self.refused(PROGRAM, "plan", "--no-code", *words, "-o", self.path("p.plan"), word=text)

    def test_help(self):
        """It has the types and the defaults, and is printed beside any other option."""
        page = self.ok(PROGRAM, "train", "--lr", "--help")
        for line in ("--wide true|false", "--width N", "--scale X", "--tag TEXT", "--hidden N,N,...", "(default: 0.1)", '(default: "")'):
            self.assertIn(line, page)
        self.assertEqual(self.ok(PROGRAM, "train", "--frob", "3", "--width", "1", "--width", "2", "-h"), page)

    def test_differences_of_plans(self):
        """cleave diff plans the first again with each option of the second, also with a text that begins with a dash."""
        plans = []
        with open(self.path("c.toml"), "w") as file:
            file.write(CLUSTER)
        for name, words in (("a", []), ("b", ["--tag=--lr", "--wide"])):
            plans.append(self.path(name + ".plan"))
            self.ok(PROGRAM, "plan", "--no-code", "--cluster", self.path("c.toml"), "--mesh", "dp=2", *words, "-o", plans[-1])
        changes = {one["decision"]: one for one in json.loads(self.ok("cleave", "diff", "--json", *plans))["changes"]
                   if one.get("decision", "").startswith("option")}
        self.assertEqual({name: (one["from"], one["to"]) for name, one in changes.items()},
                         {"option --tag": ("", "--lr"), "option --wide": ("false", "true")})
        for name, one in changes.items():
            self.assertEqual(len(one["step_ms"]), 2, (name, one))

    def test_ranks_with_other_values(self):
        """The message names the option and the two values."""
        ends = end_ranks(start_ranks(PROGRAM, "train", "--data", DIGITS, "--mesh", "dp=2", "--threads", 1, "--quiet", "--timeout", 10,
                                     "--steps", 2, "--wide", ranks=2, first=["--scale", "0.20"], last=["--scale", "0.3"]))
        self.assertEqual([status for status, _ in ends], [2, 2], ends)
        self.assertIn("rank 1 was given another --scale than rank 0: 0.3, rank 0 has 0.2;", "".join(err for _, err in ends))
        status = [status for status, _ in end_ranks(start_ranks(
            PROGRAM, "train", "--data", DIGITS, "--mesh", "dp=2", "--threads", 1, "--quiet", "--timeout", 10, "--steps", 2, ranks=2,
            first=["--scale", "0.20", "--wide"], last=["--wide=1", "--scale", ".2"]))]
        self.assertEqual(status, [0, 0])

    def test_warmup_longer_than_the_training(self):
        status, _, err = run(PROGRAM, "train", "--data", "synthetic", "--steps", 3, "--warmup-epochs", 50)
        self.assertEqual(status, 0, err)
        self.assertRegex(err, r"warning: the learning rate warms up for \d+ steps, but the training ends after step 3, at ")


if __name__ == "__main__":
    programs.main()
