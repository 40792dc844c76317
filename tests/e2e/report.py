#!/usr/bin/env python3
"""Tests of `cleave report`: the page's data, and the page in a browser if chromium is installed. Standard library only.

report.py --build BUILD [unittest arguments]
"""
import json, os, re, shutil, subprocess, unittest

import programs
from e2e import Case
from simulate import CLUSTER

BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = "</script><script>document.documentElement.dataset.ran = 1</script><!-- <b>"


class Report(Case):
    def setUp(self):
        super().setUp()
        self.cluster, self.plan, self.page = self.path("c.toml"), self.path("p.plan"), self.path("r.html")
        with open(self.cluster, "w") as out:
            out.write(CLUSTER.replace('"two nodes"', json.dumps(HOSTILE)))

    def compiled(self, program, *args):
        self.ok(program, "plan", "--no-code", "--precision", "fp16", "--cluster", self.cluster, "-o", self.plan, *args)

    def gpt(self):
        self.compiled("gpt", "--layers", 4, "--width", 64, "--heads", 4, "--context", 64, "--vocab", 128, "--batch", 16,
                      "--microbatches", 4, "--mesh", "tp=2,pp=2")

    def report(self, *args):
        """Writes the page; returns its text and its data."""
        self.ok("cleave", "report", self.plan, "-o", self.page, *args)
        with open(self.page, encoding="utf-8") as file:
            text = file.read()
        found = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
        self.assertEqual(len(found), 1)
        return text, json.loads(found[0])

    def check(self):
        text, data = self.report()
        said = json.loads(self.ok("cleave", "simulate", self.plan, "--json"))
        shown = json.loads(self.ok("cleave", "show", self.plan, "--json"))
        head, classes = data["head"], data["classes"]
        for name in ("step_ms", "samples_per_s", "bubble_fraction", "flops_per_device"):
            self.assertAlmostEqual(head[name], said[name], delta=1e-9 * abs(said[name]))
        self.assertEqual(head["peak_bytes"], max(said["peak_bytes"]))
        self.assertEqual(head["cluster"], HOSTILE)
        self.assertEqual(sum(one["ranks"] for one in classes), len(said["ranks"]))
        self.assertEqual(sum(node["nodes"] * len(node["devices"]) for node in data["nodes"]), len(said["ranks"]))
        for one in classes:
            self.assertEqual(sum(one["memory"].values()), said["peak_bytes"][one["rank"]])
            for name in ("busy_ms", "idle_ms", "communication_ms", "hidden_ms"):
                self.assertAlmostEqual(one[name], said["ranks"][one["rank"]][name])
        self.assertEqual(sum(one[3] for one in data["communication"]),
                         sum(one["count"] for one in shown["collectives"] + shown["messages"]))
        self.assertEqual(sum(one[5] for module in data["modules"] for one in module["parameters"]), shown["parameters"])
        self.assertAlmostEqual(sum(module["share"] for module in data["modules"]), 1)
        self.check_timeline(data)
        self.assertEqual(set(re.findall(r"\bhttps?://[^\"'\s]*", text)), {"http://www.w3.org/2000/svg"})
        self.assertNotRegex(text, r"\b(src|href)\s*=")
        self.assertEqual(text.count("</script>"), 2)
        self.assertNotIn(HOSTILE, text)
        self.assertLess(len(text), 500_000)
        return data

    def check_timeline(self, data):
        lines = data["timeline"]
        self.assertEqual(len(lines["classes"]), len(data["classes"]))
        for one, owner in zip(lines["classes"], data["classes"]):
            for stream in one["streams"]:
                at = 0
                for name, microbatch, gap, length, *_ in stream["events"]:
                    self.assertLess(name, len(lines["names"]))
                    self.assertLess(microbatch, data["head"]["microbatches"])
                    self.assertGreaterEqual(gap, 0)
                    at += gap + length
                self.assertLessEqual(at * lines["tick_ms"], data["head"]["step_ms"] * (1 + 1e-6))
            placed = max((kept + running for _, kept, running in one["memory"]), default=0)
            self.assertLessEqual(placed, owner["memory"]["activations"])
            self.assertGreater(placed, owner["memory"]["activations"] / 2)

    def test_a_rank(self):
        self.compiled("mlp", "--mesh", "dp=1")
        data = self.check()
        self.assertEqual((len(data["classes"]), data["communication"]), (1, []))
        self.assertEqual([row for module in data["modules"] for row in module["collectives"]], [])

    def test_a_pipeline(self):
        self.gpt()
        data = self.check()
        self.assertEqual([one["ranks"] for one in data["classes"]], [2, 2])
        kinds = {data["timeline"]["names"][event[0]][3] for one in data["timeline"]["classes"] for stream in one["streams"]
                 for event in stream["events"]}
        self.assertGreaterEqual(kinds, {0, 1, 3, 4, 5})
        modules = {module["path"]: module for module in data["modules"]}
        self.assertEqual(modules["blocks.*.attention.qkv"]["times"], 4)
        self.assertEqual(modules["blocks.*.attention.qkv"]["stages"], "0, 1")
        self.assertIn(["weight", "f32", "[192, 64]", "[3*64/tp, 64]", 4, 4 * 192 * 64], modules["blocks.*.attention.qkv"]["parameters"])
        self.assertTrue(all(0 < link["mean"] <= 1 for node in data["nodes"] for link in node["links"]))
        self.assertTrue(any(link["name"].startswith("network") for node in data["nodes"] for link in node["links"]))

    def test_many_steps_are_one_event(self):
        self.compiled("gpt", "--layers", 16, "--width", 64, "--heads", 4, "--context", 16, "--vocab", 64, "--batch", 256,
                      "--microbatches", 64, "--mesh", "pp=4", "--schedule", "zb-h1")
        data = self.check()
        self.assertTrue(data["timeline"]["merged"])
        events = [event for one in data["timeline"]["classes"] for stream in one["streams"] for event in stream["events"]]
        self.assertLess(len(events), 24000)
        for event in events:
            if len(event) > 4:
                self.assertEqual(event[4], len(data["timeline"]["passes"][event[6]]))
                self.assertLessEqual(event[5], event[3] + event[4])

    def test_mistakes(self):
        self.ok("mlp", "plan", "--no-code", "-o", self.plan)
        self.refused("cleave", "report", self.plan, "-o", self.page, word="--cluster FILE.toml")
        self.refused("cleave", "report", self.plan, word="--output")
        self.refused("cleave", "report", self.plan, "-o", self.page, "--cluster", self.cluster, word="is for cuda")
        self.assertFalse(os.path.exists(self.page))
        self.compiled("mlp")
        self.refused("cleave", "report", self.plan, "-o", self.path("none/r.html"), word="none/r.html")
        with open(self.plan, "rb") as file:
            before = file.read()
        os.symlink(self.plan, self.path("link"))
        for out in (self.plan, self.path("link")):
            self.refused("cleave", "report", self.plan, "-o", out, word="the plan")
        self.refused("cleave", "report", self.plan, "-o", self.cluster, "--cluster", self.cluster, word="--cluster")
        with open(self.plan, "rb") as file:
            self.assertEqual(file.read(), before)
        with open(self.plan, "wb") as file:
            file.write(before[:100])
        self.refused("cleave", "report", self.plan, "-o", self.page, word="p.plan", status=3)

    def with_an_alternative(self):
        """A page with a section that this plan does not have, and hostile texts in it."""
        with open(self.page, encoding="utf-8") as file:
            text = file.read()
        row = {"decision": HOSTILE, "value": "dp=4", "step_ms": 1.5, "peak_bytes": 1 << 30, "reason": HOSTILE}
        self.assertEqual(text.count('"alternatives":[]'), 1)
        with open(self.path("alternatives.html"), "w", encoding="utf-8") as file:
            file.write(text.replace('"alternatives":[]', '"alternatives":[' + json.dumps(row).replace("<", "\\u003c") + "]"))
        return self.path("alternatives.html")

    @unittest.skipUnless(BROWSER, "no chromium is installed")
    def test_a_browser(self):
        self.gpt()
        self.report()
        for page in (self.page, self.with_an_alternative()):
            for size in ("1280,900", "400,800"):
                for dark in (0, 1):
                    self.act(page, size, dark)

    def act(self, page, size, dark):
        done = subprocess.run([BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
                               f"--user-data-dir={self.path('browser')}", "--virtual-time-budget=10000", f"--window-size={size}",
                               f"--blink-settings=preferredColorScheme={1 - dark}", # 0 is dark
                               "--dump-dom", f"file://{page}#selftest"], capture_output=True, text=True, timeout=120)
        self.assertEqual([line for line in done.stderr.splitlines() if "CONSOLE" in line], [])
        tag = re.search(r"<html[^>]*>", done.stdout)
        self.assertTrue(tag, done.stderr[-500:])
        said = dict(re.findall(r'data-([a-z]+)="([^"]*)"', tag[0]))
        self.assertEqual((said["ready"], said["errors"], said["theme"]), ("1", "0", "dark" if dark else "light"))
        self.assertNotIn("ran", said)
        acted = json.loads(said["selftest"].replace("&quot;", '"'))
        self.assertEqual({name for name, fine in acted.items() if not fine}, set(), size)
        self.assertGreaterEqual(len(acted), 10)
        self.assertEqual('id="alternatives"' in done.stdout, page != self.page)


if __name__ == "__main__":
    programs.main()
