#!/usr/bin/env python3
"""End-to-end tests of the CUDA backend without a GPU: plans for the target "emulated" run on the fakes of NVIDIA's libraries
(tests/fake), which emulate a device's threads, streams, graphs and collectives on the CPU. Standard library only.

gpu.py --build BUILD [unittest arguments]
"""
import json, os, re, unittest

import e2e
import programs
from e2e import Case
from programs import DIGITS, end_ranks, run, start_ranks


class Emulated(Case):
    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(programs.BUILD, "fake", "libcuda.so.1")):
            self.skipTest("no fakes: the build has no CUDA headers")
        self.device("devices=8")
        self.use_cache(self.path("cache"))  # tuning records must not go to the user's cache

    def tearDown(self):
        super().tearDown()
        for name in ("CLEAVE_CUDA_LIBRARIES", "CLEAVE_FAKE_CUDA", "CLEAVE_FAKE_NCCL", "NCCL_HOSTID",
                     "NVTX_INJECTION64_PATH", "CLEAVE_FAKE_NVTX"):
            os.environ.pop(name, None)

    def device(self, what, nccl=""):
        os.environ["CLEAVE_CUDA_LIBRARIES"] = os.path.join(programs.BUILD, "fake")
        os.environ["CLEAVE_FAKE_CUDA"] = what
        os.environ["CLEAVE_FAKE_NCCL"] = nccl

    def plan(self, program, *options, target="emulated", name="gpu.plan"):
        file = self.path(name)
        self.ok(program, "plan", "--backend", "cuda", "--target", target, *options, "-o", file)
        self.ok("cleave", "verify", file)
        return file

    def agrees(self, program, data, *options, steps=2):
        out = self.ok(program, "check", "--plan", self.plan(program, *options), "--data", data, "--steps", steps, timeout=600)
        self.assertIn("plan and graph agree", out)

    def metrics(self, *args, **kw):
        file = self.path("gpu.jsonl")
        self.ok("cleave-run", *args, "--metrics", file, "--quiet", "--tuning", "off", **kw)
        with open(file) as lines:
            return [r["loss"] for r in map(json.loads, lines) if "step" in r]

    def test_plans_agree_with_the_graph(self):
        small = ["--layers", 2, "--width", 32, "--heads", 4, "--context", 16, "--batch", 8, "--microbatches", 4]
        self.device("devices=8,shuffle=7")  # shuffled execution: a missing wait changes results
        for mesh in ("dp=1", "dp=2", "tp=2", "pp=2", "dp=2,tp=2,pp=2"):
            self.agrees("gpt", "synthetic", *small, "--mesh", mesh)
        self.agrees("gpt", "synthetic", *small, "--mesh", "pp=2", "--schedule", "gpipe")
        # On two nodes of two devices, collectives over dp use other links than those over tp, and another stream.
        cluster = self.path("nodes.toml")
        with open(cluster, "w") as out:
            out.write('name = "nodes"\n[devices.gpu]\nbackend = "cuda"\nmemory_gib = 16.0\nmemory_gb_per_s = 1000.0\n'
                      'peak_tflops = { fp32 = 10.0 }\n[[nodes]]\ncount = 4\ndevices = { gpu = 2 }\n'
                      'inside = { gb_per_s = 100.0, latency_us = 2.0 }\n'
                      '[network]\ngb_per_s_per_node = 10.0\nlatency_us = 5.0\n')
        for mesh, replicas, *more in (("dp=2,tp=2", 2, "--zero", 1, "--sequence-parallel"), ("dp=2,tp=2", 2, "--zero", 3),
                                      ("dp=2,tp=2,pp=2", 4)):
            self.agrees("gpt", "synthetic", *small, "--mesh", mesh, "--cluster", cluster, *more)
            steps = self.ok("cleave", "show", "--steps", self.path("gpu.plan"))
            self.assertIn(f"nccl stream {replicas} ", steps)
            self.assertIn("nccl stream 1 ", steps)
        self.agrees("mlp", DIGITS, "--hidden", "48,32", "--batch", 15, "--mesh", "dp=3")  # uneven shares
        self.agrees("mlp", DIGITS, "--hidden", "48,33", "--batch", 16, "--mesh", "tp=3")

    def test_a_trace_against_the_prediction(self):
        """Streams overlap, and all ranks use one clock."""
        plan, trace = self.plan("mlp", "--hidden", "48,32", "--batch", 16, "--mesh", "dp=2,pp=2", "--microbatches", 4), self.path("t.json")
        self.ok("cleave-run", plan, "--data", DIGITS, "--steps", 6, "--quiet", "--tuning", "off", "--trace", trace)
        with open(trace) as file:
            events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X"]
        self.assertEqual({e["pid"] for e in events}, {0, 1, 2, 3})
        self.assertGreater(len({e["tid"] for e in events}), 2)
        last = [e for e in events if e["args"]["iteration"] == 3]
        spans = [(min(e["ts"] for e in last if e["pid"] == rank), max(e["ts"] + e["dur"] for e in last if e["pid"] == rank))
                 for rank in range(4)]
        self.assertLess(max(begin for begin, _ in spans), min(end for _, end in spans))
        with open(self.path("c.toml"), "w") as out:
            out.write('[devices.gpu]\nbackend = "cuda"\nmemory_gib = 80.0\nmemory_gb_per_s = 2000.0\npeak_tflops = { fp32 = 19.5 }\n'
                      '[[nodes]]\ndevices = { gpu = 4 }\ninside = { gb_per_s = 300.0, latency_us = 2.5 }\n')
        found = json.loads(self.ok("cleave", "simulate", plan, "--cluster", self.path("c.toml"), "--against", trace, "--json"))["against"]
        self.assertEqual(found["iterations"], 4)
        self.assertEqual(len(found["ranks"]), 4)
        self.assertTrue({"product", "message", "all-reduce dp"} <= {row["kind"] for row in found["kinds"]}, found["kinds"])

    def test_layouts(self):
        for layout in ("nchw", "nhwc"):
            self.agrees("convnet", "synthetic", "--batch", 8, "--microbatches", 2, "--mesh", "dp=2,tp=2", "--layout", layout)
        steps = {}
        for precision in ("fp32", "bf16"):
            plan = self.plan("convnet", "--batch", 8, "--precision", precision)
            steps[precision] = self.ok("cleave", "show", "--steps", plan)
        self.assertIn("8, 28, 28, 16]", steps["bf16"])
        self.assertNotIn("8, 28, 28, 16]", steps["fp32"])

    def test_gradients_are_reduced_while_the_backward_pass_goes_on(self):
        plan = self.plan("mlp", "--hidden", "3000,3000,3000", "--mesh", "dp=2", "--no-code")
        steps = self.ok("cleave", "show", "--steps", plan)
        backward = steps.split(" backward\n")[1].split("\n\n")[0].strip().splitlines()
        sums = steps.split(" Reduce reduce\n")[1].split("\n\n")[0].strip().splitlines()
        buckets = [int(line.split()[0]) for line in sums if line.endswith("gradients")]
        waits = dict(re.findall(r" reduce\(-?\d+\) step (\d+) waits for backward\(0\) step (\d+)\n", steps))
        after = [int(waits[str(step)]) for step in buckets]  # gradients of the last layer come first
        self.assertEqual(after, sorted(after))
        self.assertGreater(len(after), 2)
        self.assertLess(after[0], len(backward) // 2)
        self.agrees("mlp", DIGITS, "--hidden", "3000,3000", "--batch", 8, "--mesh", "dp=2")

    def test_half_types(self):
        for precision in ("bf16", "fp16"):
            self.agrees("mlp", DIGITS, "--hidden", "32", "--precision", precision)
            self.agrees("mlp", DIGITS, "--hidden", "32", "--precision", precision, "--mesh", "dp=2")

    def test_epilogues(self):
        # The width of a head, 4, is not a multiple of 8, so attention is not fused.
        small = ["--layers", 2, "--width", 32, "--heads", 8, "--context", 16, "--batch", 4]
        for precision in ("fp32", "bf16", "fp16"):
            for mesh in ("dp=1", "tp=2") if precision == "bf16" else ("dp=1",):
                options = [*small, "--precision", precision, "--mesh", mesh]
                plan = self.plan("gpt", *options)
                steps = self.ok("cleave", "show", "--steps", plan)
                self.assertRegex(steps, r"matmul .* bias %\d+ epilogue Gelu aux -> %\d+ +blocks.1.mlp.up")
                self.assertRegex(steps, r"matmul .* epilogue GeluGradient aux %\d+ +blocks.1.mlp.down")
                self.assertNotRegex(steps, r"kernel .*; .*gelu")
                for library in ("activations=1", "activations=0"):  # without library activations, Cleave's kernels compute them
                    self.device(f"devices=8,shuffle=3,{library}")
                    self.use_cache(self.path(library))
                    out = self.ok("gpt", "check", "--plan", plan, "--data", "synthetic", "--steps", 2, timeout=600)
                    self.assertIn("plan and graph agree", out)
        for microbatches in (1, 2):  # products compute bias gradients; kernels accumulate them
            options = [*small, "--precision", "bf16", "--mesh", "dp=2,pp=2", "--microbatches", microbatches]
            steps = self.ok("cleave", "show", "--steps", self.plan("gpt", *options))
            self.assertRegex(steps, r"matmul .* row sums -> %\d+ +blocks.1.mlp.up")
            for library in ("activations=1", "activations=0"):
                self.device(f"devices=8,shuffle=3,{library}")
                self.use_cache(self.path(library))
                self.agrees("gpt", "synthetic", *options)
        relu = self.plan("mlp", "--hidden", "32", "--batch", 32)
        self.assertRegex(self.ok("cleave", "show", "--steps", relu), r"bias %\d+ epilogue Relu +layers.0")

    def test_convolutions_take_relu_along(self):
        for precision in ("fp32", "bf16", "fp16"):
            for mesh in ("dp=2", "tp=2"):
                plan = self.plan("plain", "--precision", precision, "--mesh", mesh)
                steps = self.ok("cleave", "show", "--steps", plan)
                self.assertRegex(steps, r"conv Forward .* bias %\d+ epilogue Relu( winograd)? +first ")
                self.assertRegex(steps, r"conv Forward .* kernel 3x3( winograd)? +second ")  # cuDNN fuses ReLU only after a bias
                out = self.ok("plain", "check", "--plan", plan, "--data", "synthetic", "--steps", 2, timeout=600)
                self.assertIn("plan and graph agree", out)

    def test_epilogues_are_measured(self):
        plan, record = self.plan("mlp", "--hidden", "32", "--batch", 32), self.path("record/tuning.json")
        for library, apart in (("activations=1", None), ("activations=0", True)):  # on the fakes it is random which is faster
            self.device(library)
            self.ok("cleave-run", plan, "--data", DIGITS, "--steps", 2, "--tuning", record, "--quiet")
            with open(record) as file:
                choices = json.load(file)["choices"]
            relu = [choice for key, choice in choices.items() if " Relu" in key]
            self.assertTrue(relu)
            for choice in relu if apart else ():
                self.assertTrue(choice.startswith("apart "), choice)
            os.remove(record)

    def test_graphs_and_steps_give_the_same_bits(self):
        plan = self.plan("mlp", "--hidden", "32", "--batch", 32, "--mesh", "dp=2,pp=2", "--microbatches", 2)
        common = [plan, "--data", DIGITS, "--steps", 7]
        graphs = self.metrics(*common)
        self.assertEqual(graphs, self.metrics(*common, "--no-graph"))
        self.assertEqual(graphs, self.metrics(*common))
        self.assertEqual(len(graphs), 7)
        with open(self.path("gpu.jsonl")) as lines:
            for record in map(json.loads, lines):
                if "step" in record:  # times on the fakes mean nothing, but launching is a part of the host's time
                    self.assertLess(0, record["launch_us"])
                    self.assertLess(record["launch_us"], record["host_us"])
        self.same(self.losses("mlp", "--data", DIGITS, "--hidden", "32", "--batch", 32, "--microbatches", 2, "--steps", 7)[0], graphs)

    def test_checkpoints_travel(self):
        plan = self.plan("mlp", "--hidden", "32", "--batch", 32)
        whole = self.metrics(plan, "--data", DIGITS, "--steps", 6)
        self.metrics(plan, "--data", DIGITS, "--steps", 3, "--checkpoint", self.path("ck"))
        self.metrics(plan, "--data", DIGITS, "--steps", 6, "--checkpoint", self.path("ck"), "--resume")
        with open(self.path("gpu.jsonl")) as lines:
            rest = [r["loss"] for r in map(json.loads, lines) if "step" in r]
        self.assertEqual(rest[-3:], whole[3:])
        self.ok("mlp", "eval", "--checkpoint", self.path("ck"), "--data", DIGITS)  # on the CPU

    def ranges(self, *args):
        """The NVTX ranges that cleave-run reports to a tool: for each thread [(depth, text, payload)] in the order of begin."""
        file = self.path("ranges.txt")
        os.environ["NVTX_INJECTION64_PATH"] = os.path.join(programs.BUILD, "fake", "libcleave_nvtx.so")
        os.environ["CLEAVE_FAKE_NVTX"] = file
        self.ok("cleave-run", *args, "--quiet", "--tuning", "off")
        del os.environ["NVTX_INJECTION64_PATH"]
        threads, depths = {}, {}
        with open(file) as lines:
            self.assertRegex(next(lines), "^thread . domain cleave$")
            for line in lines:
                _, thread, what, domain, *rest = line.rstrip("\n").split(" ", 4)
                self.assertEqual(domain, "cleave")
                if what == "push":
                    text, payload = rest[0].rsplit(" ", 1)
                    threads.setdefault(thread, []).append((depths.get(thread, 0), text, payload))
                depths[thread] = depths.get(thread, 0) + (1 if what == "push" else -1)
                self.assertGreaterEqual(depths[thread], 0)
        self.assertEqual(set(depths.values()), {0})  # all ranges have ended
        return list(threads.values())

    def test_tools_see_ranges(self):
        plan = self.plan("mlp", "--hidden", "32", "--batch", 32, "--mesh", "pp=2", "--microbatches", 2)
        run = [plan, "--data", DIGITS, "--steps", 3]
        # Without graphs: iterations contain actions, actions contain module paths, adjacent ranges of one path are merged.
        seen = self.ranges(*run, "--no-graph")
        self.assertEqual(len(seen), 2)
        for stage, ranges in enumerate(seen):
            self.assertEqual([r[1:] for r in ranges if r[0] == 0], [("train", "1"), ("train", "2"), ("train", "3")])
            forwards = [payload for depth, text, payload in ranges if depth == 1 and text == "forward"]
            self.assertEqual(forwards, ["0", "1"] * 3)
            self.assertLessEqual({depth for depth, _, _ in ranges}, {0, 1, 2})
            for one, next_ in zip(ranges, ranges[1:]):
                self.assertFalse(one[0] == next_[0] == 2 and one[1] == next_[1], one)
        paths = {text for ranges in seen for depth, text, _ in ranges if depth == 2}
        shown = self.ok("cleave", "show", "--steps", plan)
        modules = {m for m in ("layers.0", "layers.1", "layers.1 + loss", "loss") if re.search(rf"  {re.escape(m)}  samples", shown)}
        self.assertGreater(len(modules), 1)
        self.assertLessEqual(modules, paths)
        for path in paths:
            self.assertIn(path, shown)
        # With graphs: the graph of each input buffer is captured once; the host then only launches it.
        for ranges in self.ranges(*run):
            inside = {}
            for depth, text, payload in ranges:
                if depth == 0:
                    iteration = payload
                elif depth == 1:
                    inside.setdefault(iteration, []).append(text)
            self.assertIn("forward", inside["1"])  # the first iteration runs step by step
            self.assertEqual((inside["2"], inside["3"]), (["capture", "launch"], ["capture", "launch"]))

    def test_tuning_is_kept(self):
        plan = self.plan("mlp", "--hidden", "32", "--batch", 32)
        record = self.path("record/tuning.json")
        args = ["cleave-run", plan, "--data", DIGITS, "--steps", 2, "--tuning", record, "--quiet"]
        self.ok(*args)
        with open(record) as file:
            first = file.read()
        self.assertGreater(len(json.loads(first)["choices"]), 3)
        self.ok(*args)
        with open(record) as file:
            self.assertEqual(first, file.read())
        with open(record, "w") as file:
            file.write("{")
        status, _, err = run(*args)
        self.assertEqual(status, 0, err)
        self.assertIn(f"warning: {record}: is not a tuning record and is ignored", err)
        with open(record) as file:
            self.assertEqual(file.read(), "{")  # it may be something else

    def test_processes_share_a_device(self):
        self.device("devices=1")
        plan = self.plan("mlp", "--hidden", "32", "--batch", 32, "--mesh", "dp=2")
        one = self.metrics(self.plan("mlp", "--hidden", "32", "--batch", 32, name="one.plan"), "--data", DIGITS, "--steps", 4)
        file = self.path("two.jsonl")
        script = self.path("rank.sh")
        with open(script, "w") as out:
            out.write('NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK exec "$@"\n')
        status, _, err = run("/bin/sh", script, os.path.join(programs.BIN, "cleave-run"), plan, "--data", DIGITS, "--steps", 4,
                             "--tuning", "off", "--quiet", "--metrics", file, ranks=2, timeout=120)
        self.assertEqual(status, 0, err[-600:])
        with open(file) as lines:
            self.same(one, [r["loss"] for r in map(json.loads, lines) if "step" in r])
        status, _, err = run("cleave-run", plan, "--data", DIGITS, "--steps", 4, "--tuning", "off", ranks=2, timeout=120)
        self.assertNotEqual(status, 0)
        self.assertIn("NCCL_HOSTID", err)

    def test_what_is_missing(self):
        plan = self.plan("mlp", "--hidden", "32", "--batch", 32)
        train = ["cleave-run", plan, "--data", DIGITS, "--steps", 2, "--tuning", "off"]
        os.environ["CLEAVE_CUDA_LIBRARIES"] = self.path("nothing")
        self.refused(*train, word="no CUDA device")
        self.refused("mlp", "train", "--backend", "cuda", "--data", DIGITS, word="no CUDA device")
        self.device("devices=0")
        self.refused(*train, word="no CUDA device")
        self.device("driver=11080")
        self.refused(*train, word="found 11.8", status=3)
        self.device("memory=1048576")
        self.refused(*train, word="1048576 free", status=3)
        self.device("sm=80")
        self.refused("cleave-run", self.plan("mlp", "--no-code", target="sm_90"), "--data", DIGITS, word="no code", status=3)
        self.refused("cleave-run", self.path("nothing.plan"), "--data", DIGITS, word="nothing.plan")
        self.device("devices=1")
        self.refused("cleave-run", self.plan("mlp", "--mesh", "dp=2"), "--data", DIGITS, word="device 1 was asked for")
        self.refused("cleave-run", plan, "--device", "cpu", "--data", DIGITS, word="is for the cuda backend")

    @unittest.skipUnless(e2e.shutil.which("ptxas") or os.path.exists("/usr/local/cuda/bin/ptxas"), "no ptxas")
    def test_another_architecture(self):
        self.device("sm=80")
        self.refused("cleave-run", self.plan("mlp", target="sm_90"), "--data", DIGITS, word="its code is for sm_90", status=3)

    def test_failures_end_cleanly(self):
        plan = self.plan("mlp", "--hidden", "32", "--batch", 32)
        train = ["cleave-run", plan, "--data", DIGITS, "--steps", 12, "--tuning", "off", "--timeout", 3]
        for failure, word in (("cuMemAlloc_v2:1:2", "for the arena: out of memory"), ("cuMemHostAlloc:1:2", "pinned memory"),
                              ("cuLaunchKernel:5:719", "launch failure"), ("cuGraphInstantiateWithFlags:1:2", "out of memory"),
                              ("cuGraphLaunch:1:719", "launch failure"), ("cuStreamEndCapture:1:900", "cuStreamEndCapture"),
                              ("cuModuleLoadData:1:209", "cannot be loaded"), ("cuStreamSynchronize:1:719", "launch failure")):
            self.device(f"fail={failure}")
            self.refused(*train, word=word, status=3)
        both = ["cleave-run", self.plan("mlp", "--hidden", "32", "--batch", 32, "--mesh", "dp=2", name="two.plan"), *train[2:]]
        # The first two calls connect, the next four belong to the first iteration, later ones to a captured iteration.
        for failure in ("async=AllReduce:8", "hang=AllReduce:8", "hang=AllReduce:3"):
            self.device("devices=2", failure)
            err = self.refused(*both, word="AllReduce of 'gradients' among ranks 0, 1", status=3)
            self.assertNotIn("ending communication", err)  # communication was ended in time
        self.device("devices=2", "hang=AllReduce:1")
        self.refused(*both, word="NCCL's start did not end within 8 s", status=3)
        self.device("devices=2")
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
        stages = self.plan("mlp", "--hidden", "32", "--batch", 32, "--mesh", "pp=2", name="stages.plan")
        self.refused("cleave-run", stages, *train[2:], word="CUDA_DEVICE_MAX_CONNECTIONS is 1; pipelines", status=2)
        del os.environ["CUDA_DEVICE_MAX_CONNECTIONS"]

    def test_a_rank_that_fails_while_ranks_connect(self):
        """Ranks that NCCL makes wait for it end soon, not after --timeout (60 s), and name it."""
        plan = self.plan("mlp", "--batch", 16, "--microbatches", 2, "--mesh", "dp=2,pp=2")
        self.device("devices=1", "fail=ncclAllReduce:2:3")
        started = start_ranks("cleave-run", plan, "--data", DIGITS, "--steps", 2, "--quiet", "--tuning", "off", ranks=4,
                              environment=lambda rank: {"NCCL_HOSTID": f"host{rank}"})
        ends = end_ranks(started, timeout=30)
        self.assertEqual([status for status, _ in ends], [3] * 4, ends)
        for _, err in ends[2:]:
            self.assertRegex(err, r"NCCL's start: rank [01] failed: nccl: connecting ranks 0, 2, 1, 3: internal error")


if __name__ == "__main__":
    programs.main()
