#!/usr/bin/env python3
"""Tests of scripts/gpu-bundle and scripts/gpu-check without a GPU: a bundle of small plans for the fakes of NVIDIA's libraries
(tests/fake) passes the whole check, and injected errors are found. Standard library only.

gpu_bundle.py --build BUILD [unittest arguments]
"""
import json, os, subprocess, sys, tempfile, unittest

import programs
from programs import ROOT


class GpuCheck(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        fake = os.path.join(programs.BUILD, "fake")
        if not os.path.exists(os.path.join(fake, "libcuda.so.1")):
            raise unittest.SkipTest("no fakes: the build has no CUDA")
        cls.scratch = tempfile.TemporaryDirectory(prefix="cleave-gpu-check-test-")
        cls.bundle = os.path.join(cls.scratch.name, "bundle")
        cls.environment = {**os.environ, "CLEAVE_CUDA_LIBRARIES": fake, "CLEAVE_FAKE_CUDA": "devices=1", "CLEAVE_FAKE_NCCL": ""}
        made = subprocess.run([os.path.join(ROOT, "scripts/gpu-bundle"), "--target", "emulated", "--build", programs.BUILD, "--programs",
                               os.path.join(programs.BUILD, "bin"), "-o", cls.bundle], capture_output=True, text=True, timeout=300)
        if made.returncode:
            raise AssertionError(made.stderr)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def check(self, *args, **environment):
        done = subprocess.run([os.path.join(self.bundle, "gpu-check"), "--jobs", "2", *args], capture_output=True, text=True, timeout=400,
                              env={**self.environment, **environment})
        return done.returncode, done.stdout, done.stderr

    def test_all_passes(self):
        status, out, err = self.check("--quick", "--json", os.path.join(self.scratch.name, "rows.json"))
        print(out.splitlines()[-2], file=sys.stderr)
        self.assertEqual(status, 0, out + err)
        self.assertIn(" 0 failed", out)
        self.assertIn("benchmark    skipped: --quick", out)
        with open(os.path.join(self.scratch.name, "rows.json")) as file:
            rows = json.load(file)["rows"]
        for group, least in (("conformance", 12), ("curves", 9), ("graphs", 12), ("splits", 8), ("failures", 1), ("errors", 3)):
            self.assertGreaterEqual(sum(r["group"] == group and r["result"] == "passed" for r in rows), least, group)

    def test_what_is_wrong_is_found(self):
        files = [os.path.join(self.bundle, name) for name in ("expected/mlp-fp32.json", "manifest.json")]
        before = []
        for file in files:
            with open(file) as text:
                before.append(text.read())
        expected, manifest = map(json.loads, before)
        expected["losses"][3] *= 1.001
        manifest["curves"] = [c for c in manifest["curves"] if c["sample"] == "mlp"]
        try:
            for file, changed in zip(files, (expected, manifest)):
                with open(file, "w") as written:
                    json.dump(changed, written)
            status, out, _ = self.check("--quick", "--only", "curves")
        finally:
            for file, text in zip(files, before):
                with open(file, "w") as written:
                    written.write(text)
        self.assertEqual(status, 1, out)
        self.assertIn("failed: curves: mlp fp32: step 4", out)
        self.assertIn("3 passed, 1 failed", out)
        status, out, _ = self.check("--quick", "--only", "splits", CLEAVE_FAKE_NCCL="fail=ncclAllReduce:2:3")
        self.assertEqual(status, 1, out)
        self.assertIn("exit status 3", out)

    def test_mistakes(self):
        for args, status, word in ((("--only", "x"), 2, "found 'x'"), (("--bundle", self.scratch.name), 3, "is not a bundle")):
            found, _, err = self.check(*args)
            self.assertEqual((found, word in err), (status, True), err)
        found, _, err = self.check("--quick", CLEAVE_FAKE_CUDA="devices=0")
        self.assertEqual((found, "no CUDA device" in err), (3, True), err)
        found, _, err = self.check("--quick", CLEAVE_CUDA_LIBRARIES="")
        self.assertEqual((found, "CLEAVE_CUDA_LIBRARIES" in err), (3, True), err)


if __name__ == "__main__":
    programs.main()
