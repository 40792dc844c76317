#!/usr/bin/env python3
"""Tests of the order of the mesh's axes along which ranks are numbered. Standard library only.

orders.py --build BUILD [unittest arguments]
"""
import json, os, shutil

import programs
from e2e import Case
from programs import end_ranks, start_ranks


class Orders(Case):
    def test_order_of_axes(self):
        """The order in which ranks are numbered changes no bit of a result, in threads and in processes."""
        common = ["--data", "synthetic", "--layers", 2, "--width", 32, "--heads", 2, "--context", 16, "--batch", 8,
                  "--microbatches", 2, "--threads", 1]
        usual, _ = self.losses("gpt", *common, "--mesh", "dp=2,tp=2,pp=2", "--steps", 4)
        plan, other, checkpoint = self.path("p.plan"), self.path("q.plan"), self.path("ck")
        for mesh in ("pp=2/tp=2/dp=2", "dp=2/tp=2/pp=2"):
            found, _ = self.losses("gpt", *common, "--mesh", mesh, "--steps", 4)
            self.assertEqual(found, usual, mesh)
            self.ok("gpt", "check", *common[:-2], "--mesh", mesh, "--steps", 1)
        status = end_ranks(start_ranks("gpt", "train", *common, "--mesh", "tp=2/dp=2", "--steps", 2, "--metrics", self.path("m"), ranks=4))
        self.assertEqual({each for each, _ in status}, {0})
        with open(self.path("m")) as lines:
            losses = [record["loss"] for record in map(json.loads, lines) if "step" in record]
        self.assertEqual(losses, self.losses("gpt", *common, "--mesh", "dp=2,tp=2", "--steps", 2)[0])
        # A checkpoint keeps the numbering, and another one can continue it.
        curves = []
        for first, then in (("dp=2,tp=2,pp=2", []), ("pp=2/tp=2/dp=2", []), ("pp=2/tp=2/dp=2", ["--mesh", "dp=2/pp=2/tp=2"])):
            self.losses("gpt", *common, "--mesh", first, "--steps", 2, "--checkpoint", checkpoint)
            rest, _ = self.losses("gpt", "--data", "synthetic", "--threads", 1, "--steps", 4, "--checkpoint", checkpoint, "--resume", *then)
            curves.append(rest)
            shutil.rmtree(checkpoint)
            os.remove(self.path("metrics.jsonl"))
        self.assertEqual(curves[0], curves[1])
        self.same(curves[0], curves[2])
        self.ok("gpt", "plan", *common[2:], "--mesh", "pp=2/tp=2/dp=2", "-o", plan)
        self.ok("cleave", "verify", plan)
        shown = json.loads(self.ok("cleave", "show", "--json", plan))
        self.assertEqual((shown["mesh"], shown["axis_order"]), ({"dp": 2, "tp": 2, "pp": 2}, ["pp", "tp", "dp"]))
        page = self.ok("cleave", "show", plan)
        self.assertIn("8 ranks = dp 2 x tp 2 x pp 2 along pp, tp, dp", page)
        self.assertIn("[0 tp0] [2 tp1]", page)
        strategy = self.path("s.toml")
        with open(strategy, "w") as out:
            out.write(self.ok("cleave", "show", "--strategy", plan))
        self.ok("gpt", "plan", *common[2:-4], *common[-2:], "--strategy", strategy, "-o", other)
        self.assertEqual(json.loads(self.ok("cleave", "show", "--json", other))["axis_order"], ["pp", "tp", "dp"])
        self.ok("gpt", "plan", *common[2:], "--mesh", "dp=2,tp=2,pp=2", "-o", other)
        self.assertIn("pp=2/tp=2/dp=2", self.ok("cleave", "diff", plan, other))
        self.refused("gpt", "train", "--plan", plan, "--data", "synthetic", "--mesh", "dp=2,tp=2,pp=2", word="pp=2/tp=2/dp=2")


if __name__ == "__main__":
    programs.main()
