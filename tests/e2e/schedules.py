#!/usr/bin/env python3
"""Tests of pipeline schedules: the searched schedule in plans, and `cleave simulate --pipeline`. Standard library only.

schedules.py --build BUILD [unittest arguments]
"""
import json, os, re

import programs
from e2e import Case
from programs import DIGITS


class Schedules(Case):
    def test_searched_schedule(self):
        model = ["--hidden", "64,256,32,128", "--batch", 24, "--data", DIGITS, "--microbatches", 6]
        split = ["--mesh", "pp=2", "--virtual", 2, "--schedule", "auto"]
        self.assertIn("agree", self.ok("mlp", "check", *model, *split, "--steps", 2))
        one, _ = self.losses("mlp", *model, "--steps", 4)
        many, _ = self.losses("mlp", *model, *split, "--steps", 4)
        self.same(one, many)
        plan, again, strategy = self.path("auto.plan"), self.path("again.plan"), self.path("auto.toml")
        self.ok("mlp", "plan", *model, *split, "-o", plan)
        text = self.ok("cleave", "show", "--strategy", plan)
        self.assertIn('schedule = { name = "auto", microbatches = 6, virtual = 2, origin = "search" }', text)
        self.assertIn("auto, 6 microbatches", self.ok("cleave", "show", plan))
        with open(strategy, "w") as out:
            out.write(text)
        self.ok("mlp", "plan", *model[:-2], "--strategy", strategy, "-o", again)
        self.assertEqual(self.ok("cleave", "show", "--strategy", again).split("\n", 1)[1], text.split("\n", 1)[1]) # but for the origins
        # On one rank no order is better than 1F1B's, so the plan records 1F1B.
        self.ok("mlp", "plan", *model, "--schedule", "auto", "-o", plan)
        self.assertIn('schedule = { name = "1f1b", microbatches = 6, origin = "search" }', self.ok("cleave", "show", "--strategy", plan))
        order = re.search(r'  "(F0 .*)",', text).group(1)
        for was, now, word in (("F0", "G0", 'order: "G0" of rank 0 is not a work'),
                               ("F1 ", "", "must have every work"), ('"auto"', '"1f1b"', 'order is for the schedule "auto" alone'),
                               (order, order.replace("F0 ", "F9 ").replace("F1 ", "F0 ").replace("F9 ", "F1 "),
                                "the forward of stage 0, microbatch 0 must come before those of later microbatches"),
                               ("microbatches = 6", "microbatches = 4", "there are 4 stages and 4 microbatches")):
            with open(strategy, "w") as out:
                out.write(text.replace(was, now))
            self.refused("mlp", "plan", *model[:-2], "--strategy", strategy, "-o", self.path("none.plan"), word=word)
        self.assertFalse(os.path.exists(self.path("none.plan")))

    def test_pipeline_specs(self):
        spec = {"schedule": "1f1b", "stages": 4, "microbatches": 8, "forward_ms": 1, "input_grad_ms": 1, "weight_grad_ms": 1,
                "send_ms": 0, "activation_bytes": 1, "gradient_bytes": 0}
        file, trace = self.path("spec.json"), self.path("trace.json")

        def write(**changes):
            with open(file, "w") as out:
                json.dump({name: value for name, value in {**spec, **changes}.items() if value is not None}, out)

        for changes, status, words in (({"forward_ms": None}, 2, ['"forward_ms" is missing']), ({"speed": 1}, 2, ['unknown field "speed"']),
                                       ({"stages": 0}, 2, ['"stages"', "found 0"]), ({"send_ms": -1}, 2, ['"send_ms"', "found -1"]),
                                       ({"send_ms": float("nan")}, 2, ["JSON"]), ({"forward_ms": [1, 2]}, 2, ["a list of 4", "of 2"]),
                                       ({"schedule": "zb-h3"}, 2, ["zb-h1, zb-h2, zb-v, auto", "zb-h3"]),
                                       ({"schedule": "zb-v", "virtual": 3}, 2, ["must be 2, found 3"]),
                                       ({"schedule": "interleaved", "virtual": 2, "microbatches": 6}, 2, ["6 microbatches and 4 ranks"]),
                                       ({"memory_limit_bytes": 3}, 3, ["rank 0", "3 bytes", "holds 4"]),
                                       ({"schedule": "auto", "memory_limit_bytes": 0.5}, 3, ["no schedule", "takes 1"])):
            write(**changes)
            err = self.refused("cleave", "simulate", "--pipeline", file, "--trace", trace, word=words[0], status=status)
            for word in words[1:]:
                self.assertIn(word, err)
            self.assertFalse(os.path.exists(trace), "a refused spec leaves a file")
        self.refused("cleave", "simulate", "--pipeline", self.path("none.json"), word="none.json")
        self.refused("cleave", "simulate", "--pipeline", "/dev/zero", word="/dev/zero")
        write()
        self.refused("cleave", "simulate", "--pipeline", file, "--trace", "/no/such/trace.json", word="/no/such")
        found = json.loads(self.ok("cleave", "simulate", "--pipeline", file, "--json", "--trace", trace))
        self.assertEqual((found["step_ms"], found["peak_bytes"], found["schedule"]), (33, [4, 3, 2, 1], "1f1b"))
        self.assertEqual(found["ranks"][0], {"busy_ms": 24, "idle_ms": 9, "communication_ms": 0})
        self.assertAlmostEqual(found["bubble_fraction"], 9 / 33)
        with open(trace) as lines:
            events = [e for e in json.load(lines)["traceEvents"] if e["ph"] == "X" and e["tid"] == 0]
        self.assertEqual((len(events), max(e["ts"] + e["dur"] for e in events)), (64, 33000))
        page = self.ok("cleave", "simulate", "--pipeline", file)
        self.assertIn("step 33.00 ms, bubble 27.3%", page)
        write(schedule="auto", virtual=1, stages=1)  # one rank never waits, so no schedule is better than 1F1B
        found = json.loads(self.ok("cleave", "simulate", "--pipeline", file, "--json"))
        self.assertEqual((found["schedule"], found["found"], found["step_ms"]), ("auto", "1f1b", 24))
        self.assertIn("auto: 1f1b   1 rank,", self.ok("cleave", "simulate", "--pipeline", file))
        self.assertLessEqual(max(map(len, page.splitlines())), 100)


if __name__ == "__main__":
    programs.main()
