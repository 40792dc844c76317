#!/usr/bin/env python3
"""End-to-end tests that run the built programs as a user does. Standard library only.

e2e.py --build BUILD [unittest arguments]
"""
import gzip, json, math, os, re, resource, shutil, signal, socket, struct, subprocess, tempfile, time, unittest

import programs
from programs import DIGITS, end_ranks, free_port, run, start_ranks


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="cleave-e2e-")

    def tearDown(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def use_cache(self, folder):
        """Programs use this folder as the user's cache until the test ends."""
        self.addCleanup(os.environ.__setitem__, "XDG_CACHE_HOME", os.environ["XDG_CACHE_HOME"])
        os.environ["XDG_CACHE_HOME"] = folder

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
        return err

    def same(self, one, many, tolerance=5e-5):
        self.assertEqual(len(one), len(many))
        for a, b in zip(one, many):
            self.assertTrue(math.isfinite(a) and math.isfinite(b))
            self.assertLessEqual(abs(a - b), tolerance * abs(a), f"{one} {many}")


class Ranks(Case):
    """Ranks with different options or data, and ranks that stop."""

    common = ["train", "--data", DIGITS, "--mesh", "dp=2", "--threads", 1, "--quiet", "--timeout", 10]

    def test_other_options(self):
        other = self.path("data")
        shutil.copytree(DIGITS, other)
        images = next(f for f in os.listdir(other) if f.startswith("t10k-images"))
        shutil.copy(os.path.join(other, images), os.path.join(other, images.replace("t10k", "train")))
        labels = next(f for f in os.listdir(other) if f.startswith("t10k-labels"))
        shutil.copy(os.path.join(other, labels), os.path.join(other, labels.replace("t10k", "train")))
        for last in (["--seed", 2], ["--steps", 7], ["--lr", 0.25], ["--batch", 20], ["--hidden", 30], ["--data", other],
                     ["--checkpoint", self.path("ck")], ["--precision", "bf16"]):
            steps = [] if last[0] == "--steps" else ["--steps", 2]
            common = [word for word in self.common if last[0] != "--data" or word not in ("--data", DIGITS)]
            first = ["--data", DIGITS] if last[0] == "--data" else []
            ends = end_ranks(start_ranks("mlp", *common, *steps, ranks=2, first=first, last=last))
            text = "".join(err for _, err in ends)
            word = "hidden" if last[0] == "--hidden" else last[0]
            self.assertEqual([status for status, _ in ends], [2, 2], (last, ends))
            self.assertIn("rank 1 was given another", text, last)
            self.assertIn(word, text)

    def test_a_secret(self):
        """The same secret from a variable and from a file. Another one is told to the rank at once and to rank 0's user."""
        def file(name, text, mode=0o600):
            with open(self.path(name), "w") as out:
                out.write(text)
            os.chmod(self.path(name), mode)
            return {"CLEAVE_SECRET_FILE": self.path(name)}

        given = [{"CLEAVE_SECRET": "ours"}, file("secret", "ours\n")]
        started = start_ranks("mlp", *self.common, "--steps", 2, ranks=2, environment=lambda rank: given[rank])
        self.assertEqual([status for status, _ in end_ranks(started)], [0, 0])
        started = start_ranks("mlp", *self.common[:-1], 3, "--steps", 2, ranks=2,
                              environment=lambda rank: {"CLEAVE_SECRET": f"mine {rank}"})
        ends = end_ranks(started)
        self.assertEqual([status for status, _ in ends], [3, 2], ends)
        self.assertRegex(ends[0][1], r"\Awarning: a connection from 127.0.0.1:\d+ is refused: it does not know the job's secret\n")
        self.assertIn("no connection from rank 1 within 3 s", ends[0][1])
        self.assertIn("rank 0 does not accept the secret of this rank", ends[1][1])
        for wrong, words in (({"CLEAVE_SECRET": ""}, "CLEAVE_SECRET: the secret is empty"),
                             ({"CLEAVE_SECRET_FILE": ""}, "CLEAVE_SECRET_FILE=: the secret is empty"),
                             (file("empty", "\n"), "empty: the secret is empty"), (file("open", "ours", 0o666), "its mode is 0666: chmod 600"),
                             (file("read", "ours", 0o644), "its mode is 0644: chmod 600"),
                             ({**given[0], **given[1]}, "CLEAVE_SECRET and CLEAVE_SECRET_FILE are both set")):
            ends = end_ranks(start_ranks("mlp", *self.common, "--steps", 2, ranks=2, environment=lambda rank: wrong))
            self.assertEqual([status for status, _ in ends], [2, 2], ends)
            self.assertIn(words, ends[0][1])

    def test_a_process_of_mpi_that_stops(self):
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", os.path.join(programs.BIN, "mlp"), *map(str, self.common)]
        job = subprocess.Popen([*command[:-1], "5", "--epochs", "100000", "--metrics", self.path("m")], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, errors="replace")
        stopped = None
        try:
            while stopped is None or not os.path.exists(self.path("m")):
                self.assertIsNone(job.poll())
                time.sleep(0.2)
                for pid in filter(str.isdigit, os.listdir("/proc")):
                    try:
                        with open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/environ") as environment:
                            if int(stat.read().rsplit(")", 1)[1].split()[1]) == job.pid and "OMPI_COMM_WORLD_RANK=1\0" in environment.read():
                                stopped = int(pid)
                    except OSError:
                        pass
            began = time.time()
            os.kill(stopped, signal.SIGSTOP)
            _, err = job.communicate(timeout=60)
        finally:
            job.kill()
            if stopped and os.path.exists(f"/proc/{stopped}"):
                os.kill(stopped, signal.SIGKILL)
        self.assertLess(time.time() - began, 30)
        self.assertIn("rank 1 failed: no heartbeat", err)


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

    def test_resume_repeats_nothing(self):
        for program, options in (("mlp", ["--data", DIGITS, "--hidden", "32", "--batch", 60, "--microbatches", 2, "--seed", 5,
                                          "--lr", 0.007, "--momentum", 0.3]),
                                 ("mlp", ["--data", DIGITS, "--hidden", "32", "--optimizer", "adamw", "--batch", 30]),
                                 ("gpt", ["--data", "synthetic", "--layers", 1, "--width", 16, "--heads", 2, "--context", 8,
                                          "--batch", 4, "--lr", 0.01])):
            data, checkpoint = options[:2], tempfile.mkdtemp(dir=self.folder.name)
            whole, _ = self.losses(program, *options, "--steps", 6)
            self.losses(program, *options, "--steps", 3, "--checkpoint", checkpoint)
            rest, _ = self.losses(program, *data, "--steps", 6, "--checkpoint", checkpoint, "--resume")
            self.assertEqual(whole, rest) # metrics were appended

    def test_a_checkpoint_is_not_replaced_unasked(self):
        checkpoint = self.path("ck")
        train = ["train", "--hidden", "16", "--data", DIGITS, "--checkpoint", checkpoint, "--quiet"]
        self.ok("mlp", *train, "--steps", 4)
        err = self.refused("mlp", *train, "--steps", 2, word="--overwrite")
        self.assertIn("--resume", err)
        self.ok("mlp", *train[:1], *train[3:], "--steps", 6, "--resume")
        self.ok("mlp", "eval", "--data", DIGITS, "--checkpoint", checkpoint, "--at-step", 4)
        self.refused("mlp", "eval", "--data", DIGITS, "--checkpoint", checkpoint, "--at-step", 5, word="steps 6, 4, but not of 5")
        self.ok("mlp", *train, "--steps", 2, "--overwrite", "--keep", 1)
        with open(os.path.join(checkpoint, "manifest.json")) as manifest:
            self.assertEqual(json.load(manifest)["step"], 2)
        self.assertEqual(len(os.listdir(checkpoint)), 3)

    def test_checkpoints_within_an_epoch(self):
        """With one command line a job that is killed in an epoch goes on where it was. Ranks agree on the steps by time."""
        def steps(folder):
            with open(os.path.join(folder, "manifest.json")) as file:
                manifest = json.load(file)
            return [manifest["step"], *(kept["step"] for kept in manifest["earlier"])], manifest["position"]

        train = ["train", "--data", DIGITS, "--hidden", "32", "--batch", 30, "--quiet", "--resume-if-any", "--keep", 200]
        folder = self.path("killed")
        killed = subprocess.Popen([os.path.join(programs.BIN, "mlp"), *map(str, train), "--epochs", "1000", "--checkpoint", folder,
                                   "--checkpoint-every", "5"], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(folder, "manifest.json")) and time.monotonic() < deadline:
            time.sleep(0.01)
        killed.kill()
        killed.wait()
        found, position = steps(folder)
        self.assertEqual(position, found[0] % 233 * 30)  # of 7,000 samples
        self.assertEqual(found[0] % 5, 0)
        self.ok("mlp", *train, "--steps", found[0] + 4, "--checkpoint", folder, "--checkpoint-every", "5")
        self.assertEqual(steps(folder)[0][:2], [found[0] + 4, found[0]])
        whole, _ = self.losses("mlp", *train[1:7], "--steps", found[0] + 4)
        rest, _ = self.losses("mlp", *train[1:7], "--steps", found[0] + 4, "--checkpoint", folder, "--resume", "--at-step", found[0])
        self.assertEqual(rest, whole + whole[-4:])  # the metrics were appended
        wide = ["1024" if word == "32" else word for word in train]  # takes longer than 0.05 s
        timed = [*wide, "--mesh", "dp=2", "--steps", 300, "--checkpoint-every", "0.05s"]
        self.ok("mlp", *timed, "--checkpoint", self.path("threads"))
        ends = end_ranks(start_ranks("mlp", *timed, "--checkpoint", self.path("sockets"), ranks=2))
        self.assertEqual([status for status, _ in ends], [0, 0], ends)
        if shutil.which("mpirun"):
            self.ok("mlp", *timed, "--checkpoint", self.path("mpi"), ranks=2)
        for launched in ("threads", "sockets", "mpi"):
            if os.path.exists(self.path(launched)):
                found, position = steps(self.path(launched))
                self.assertEqual((found[0], position), (300, 300 % 233 * 30))
                self.assertGreater(len([step for step in found[1:] if step % 233]), 0, launched)
        for wrong in ("0", "5x", "1e9h"):
            self.refused("mlp", *train, "--checkpoint", folder, "--checkpoint-every", wrong, word="30m")
        self.refused("mlp", "train", "--data", DIGITS, "--checkpoint-every", "5", word="--checkpoint")
        self.refused("mlp", "train", "--data", DIGITS, "--resume-if-any", word="--checkpoint")
        with open(os.path.join(folder, "manifest.json"), "a") as file:
            file.write("x")
        self.refused("mlp", *train, "--steps", 500, "--checkpoint", folder, word="manifest.json", status=3)

    def test_altered_checkpoint(self):
        checkpoint = self.path("ck")
        self.ok("mlp", "train", "--hidden", "16", "--data", DIGITS, "--steps", 2, "--checkpoint", checkpoint, "--quiet")
        name = next(f for f in os.listdir(checkpoint) if f.endswith(".safetensors"))
        with open(os.path.join(checkpoint, name), "r+b") as data:
            data.seek(-9, os.SEEK_END)
            data.write(b"\x7f")
        self.refused("mlp", "eval", "--checkpoint", checkpoint, "--data", DIGITS, word="CRC-32", status=3)

    @unittest.skipUnless(shutil.which("ptxas") or os.path.exists("/usr/local/cuda/bin/ptxas"), "no ptxas")
    def test_equal_layers_are_one_line(self):
        common = ["--layers", 3, "--width", 32, "--heads", 4, "--context", 16, "--batch", 8, "--microbatches", 2, "--no-code"]
        one, two, strategy = self.path("one.plan"), self.path("two.plan"), self.path("s.toml")
        self.ok("gpt", "plan", *common, "--mesh", "tp=2", "-o", one)
        shown = self.ok("cleave", "show", "--strategy", one)
        with open(strategy, "w") as out:
            out.write(shown)
        self.assertIn('"blocks.*.attention.qkv.weight" = {', shown)
        self.assertNotIn('"blocks.0.', shown)
        self.ok("gpt", "plan", *common, "--strategy", strategy, "-o", two)
        changes = json.loads(self.ok("cleave", "diff", "--json", one, two))["changes"]
        self.assertEqual([c for c in changes if c["what"] != "content"], []) # the origins differ
        self.assertIn("optimizer state", self.ok("cleave", "show", one))
        self.ok("gpt", "plan", *common, "--mesh", "dp=2", "-o", two)
        lines = self.ok("cleave", "diff", one, two).splitlines()
        self.assertEqual(len([l for l in lines if l.startswith("blocks.*.attention.qkv.weight (3)")]), 1)
        self.assertFalse([l for l in lines if re.match(r"blocks\.\d", l)])
        self.assertEqual(len([l for l in lines if l.startswith("optimizer state")]), 1)

    def test_plans_for_gpus(self):
        plan = self.path("gpu.plan")
        for program, calls, options in (
                ("mlp", ["cublasLt matmul"], []), ("convnet", ["cudnn conv Forward"], ["--precision", "bf16"]),
                ("resnet", ["cudnn conv BackwardWeights"], ["--opt-level", "O1"]),
                ("gpt", ["cublasLt matmul", "cudnn attention Backward", "nccl stream 1 AllReduce"],
                 ["--precision", "bf16", "--mesh", "dp=2,tp=2,pp=2", "--microbatches", 2])):
            for target in ("sm_80", "sm_90"):
                self.ok(program, "plan", "--backend", "cuda", "--target", target, *options, "-o", plan)
                self.ok("cleave", "verify", plan)
                self.assertIn(target, self.ok("cleave", "show", plan))
                steps = self.ok("cleave", "show", "--steps", plan)
                for call in calls:
                    self.assertIn(call, steps)
                updates = steps.split(" Update update\n")[1].split("\n\n")[0]
                batched = [int(n) for n in re.findall(r" kernel cleave_map_[0-9a-f]+_batch of (\d+) calls, ", updates)]
                self.assertEqual(len(batched), 1, updates)  # the update of every parameter
                slots = re.findall(r"bytes  at \d+ +(\S+) = ", steps.split("\nprogram 1")[0])
                parameters = {name for name in slots if name.endswith((".weight", ".bias"))}
                scaled = 1 if "loss_scale" in slots else 0  # the scale and a small parameter may share a kernel
                self.assertIn(len(parameters) - batched[0], range(1 + scaled), updates)
                if program == "gpt":  # attention reads and writes heads without transposes or copies
                    self.assertNotRegex(steps, r"; transpose  |\d  copy ")
                kernels = [line for line in steps.splitlines() if " kernel cleave_" in line]
                self.assertGreater(len(kernels), 3)
                for kernel in kernels:
                    self.assertRegex(kernel, r"\d+ blocks of \d+ threads, [1-9]\d* registers, \d+ bytes shared")
                    spilled = re.search(r"(\d+) bytes spilled", kernel)
                    self.assertLessEqual(int(spilled[1]) if spilled else 0, 32, kernel)  # the bound of docs/gpu.md
        os.environ["CLEAVE_CUDA_LIBRARIES"] = self.path("nothing")  # hides a device that this machine may have
        self.refused("cleave-run", plan, "--data", "synthetic", word="no CUDA device")
        del os.environ["CLEAVE_CUDA_LIBRARIES"]
        self.refused("mlp", "plan", "--backend", "cuda", "--target", "sm_70", "-o", plan, word="sm_70")
        self.refused("mlp", "plan", "--target", "sm_90", "-o", plan, word="sm_90")

    def test_graphs_round_trip(self):
        for program in ("mlp", "convnet", "gpt", "resnet", "vit", "llama", "lstm"):
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
    """User errors: one message that names the value, and the documented exit status."""

    def test_options(self):
        for args, word in [(["--mesh", "foo=2"], "foo"), (["--mesh", "dp=-1"], "dp"), (["--mesh", "dp=2,dp=2"], "dp"),
                           (["--schedule", "zigzag"], "zigzag"), (["--optimizer", "magic"], "magic"),
                           (["--batch", "9", "--microbatches", "2"], "9"), (["--batch", "0"], "0"),
                           (["--hidden", "1,none"], "1,none"), (["--precision", "fp8"], "fp8"), (["--zero", "1"], "1"),
                           (["--strategy", "/no/such.toml"], "/no/such.toml"), (["--backend", "abacus"], "abacus"),
                           (["--metrics", "/no/such/folder/m.jsonl"], "/no/such/folder"), (["--lr", "fast"], "fast"),
                           (["--mesh", "pp=400"], "400")]:
            self.refused("mlp", "train", "--data", DIGITS, *args, word=word)

    def test_unknown_options_and_words(self):
        for program, args, word in (("mlp", ["train", "--mehs", "dp=2"], "--mehs is not an option of mlp train; did you mean --mesh?"),
                                    ("mlp", ["plan", "--microbatch=2"], "did you mean --microbatches?"),
                                    ("mlp", ["plan", "--hiden", "3"], "did you mean --hidden?"),
                                    ("mlp", ["trian"], "did you mean train?"),
                                    ("mlp", ["plan", "--strategy", "pipelin", "--devices", 2, "-o", "x"], "pipelin"),
                                    ("mlp", ["plan", "--schedule", "1f2b", "-o", "x"], "did you mean 1f1b?"),
                                    ("gpt", ["plan", "--heads", 0, "-o", "x"], "--heads 0: must be a whole number from 1"),
                                    ("cleave", ["show", "--jsn", "x"], "did you mean --json?"),
                                    ("cleave-run", ["x", "--quite"], "did you mean --quiet?")):
            self.refused(program, *args, word=word)

    def test_sizes_that_no_machine_holds(self):
        for args, word in ((["--layers", 1000000], "--layers 1000000: must be a whole number from 1 to 10000"),
                           (["--batch", 2147483647], "gpt.cpp:81:"), (["--batch", 2147483647], "result: 2147483647x64x128"),
                           (["--context", 1000000000], "result: 16x1000000000x128"),
                           (["--batch", 30000000, "--layers", 40], "a rank of stage 0 would take")):
            self.refused("gpt", "plan", *args, "--no-code", "-o", self.path("large.plan"), word=word)

    def test_a_loss_that_is_not_finite(self):
        checkpoint = self.path("ck")
        common = ["--data", DIGITS, "--batch", 24, "--quiet"]
        self.ok("mlp", "train", *common, "--steps", 5, "--checkpoint", checkpoint)
        with open(os.path.join(checkpoint, "manifest.json")) as manifest:
            before = manifest.read()
        again = ["train", *common, "--lr", 1e25, "--steps", 30, "--checkpoint", checkpoint, "--resume"]
        err = self.refused("mlp", *again, word="checkpoint of step 5", status=3)
        self.assertRegex(err, r"step \d+: the loss is (NaN|infinite)")
        with open(os.path.join(checkpoint, "manifest.json")) as manifest:
            self.assertEqual(manifest.read(), before)
        for mesh in ("dp=1", "dp=2,pp=2"):
            err = self.refused("mlp", "train", *common, "--lr", 1e25, "--steps", 9, "--find-nan", "--mesh", mesh,
                               "--microbatches", 2, word="was produced by layers.", status=3)
            self.assertIn("mlp.cpp:", err)
        self.ok("mlp", "train", *common, "--lr", 1e25, "--steps", 5, "--keep-going")
        status, _, err = run("mlp", "train", *common, "--lr", 1e25, "--steps", 9, "--mesh", "dp=2", ranks=2)
        self.assertEqual(status, 3, err)
        self.assertIn("the loss is", err)
        # An overflow that loss scaling skips is not an error.
        self.ok("mlp", "train", *common, "--steps", 5, "--precision", "fp16", "--loss-scale", "dynamic")

    def test_stages_of_a_file(self):
        strategy = self.path("stages.toml")
        for pp, stages, word in ((1, '[["nonsense"]]', "nonsense"), (2, '[["layers.0", "layers.1"], ["layers.1", "layers.2"]]', "twice"),
                                 (2, '[["layers.0", "layers.2"], ["layers.1"]]', "layers.2"), (2, '[["layers.0"]]', "pp = 2")):
            with open(strategy, "w") as out:
                out.write(f"mesh = {{ pp = {pp} }}\nstages = {stages}\n")
            self.refused("mlp", "plan", "--strategy", strategy, "-o", self.path("p.plan"), word=word)
            self.assertFalse(os.path.exists(self.path("p.plan")))

    def test_numbers_beside_a_plan(self):
        plan = self.path("p.plan")
        self.ok("mlp", "plan", "-o", plan)
        for args in (["--steps", -1], ["--threads", -1], ["--epochs", -3]):
            self.refused("mlp", "train", "--plan", plan, "--data", DIGITS, *args, word=str(args[1]))

    def test_commands_and_streams(self):
        self.refused("mlp", "frob", word="frob")
        self.refused("mlp", "train", "--data", DIGITS, "--metrics", "", word="must not be empty")
        self.refused("mlp", "plan", "-o", "/dev/null", word="/dev/null")
        self.refused("mlp", "plan", "--mesh", "tp=600", "-o", self.path("p.plan"), word="tp = 600")
        self.refused("cleave", "simulate", word="--pipeline")
        command = [os.path.join(programs.BIN, "mlp"), "frob"]
        with open("/dev/full", "w") as full:
            self.assertEqual(subprocess.run(command, stderr=full, timeout=60).returncode, 2)
        self.ok("mlp", "plan", "-o", self.path("p.plan"))
        command = [os.path.join(programs.BIN, "cleave"), "show", self.path("p.plan")]
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 3)

    def test_streams_that_are_full_or_closed(self):
        """Requested output that cannot be written gives status 3, after all other work is done. Lost messages do not."""
        def ends(command, streams):
            words = [os.path.join(programs.BIN, command[0]), *map(str, command[1:])]
            return subprocess.run(["/bin/sh", "-c", f'exec "$@" {streams}', "sh", *words], capture_output=True, text=True,
                                  errors="replace", timeout=120)

        plan, metrics, checkpoint = self.path("p.plan"), self.path("m.jsonl"), self.path("ck")
        train = ["mlp", "train", "--data", DIGITS, "--batch", 24, "--steps", 2]
        for streams in ("2>/dev/full", "2>&-", "<&- 2>&-"):
            for status, command in ((3, ["mlp", "plan", "--print-ir-after", "apply", "-o", plan]), (3, [*train, "--profile"]),
                                    (0, [*train, "--metrics", metrics, "--checkpoint", checkpoint, "--overwrite"]),
                                    (0, ["mlp", "graph"]), (2, ["mlp", "frob"]), (2, ["cleave-opt", __file__]),
                                    (3, ["cleave", "verify", __file__])):
                self.assertEqual(ends(command, streams).returncode, status, f"{command} {streams}")
            self.ok("cleave", "verify", plan)
            os.remove(plan)
            with open(metrics) as lines: # no message of another stream is in the file
                self.assertEqual(len([json.loads(line) for line in lines]), 3)
            self.ok("mlp", "eval", "--checkpoint", checkpoint, "--data", DIGITS)
        for streams in (">/dev/full", ">&-", "<&- >&-"):
            for command in (["mlp", "plan", "-o", plan], [*train, "--metrics", metrics], ["mlp", "graph"], ["mlp", "train", "--help"],
                            ["cleave", "doctor"], ["cleave-opt", "--help"]):
                done = ends(command, streams)
                self.assertEqual(done.returncode, 3, f"{command} {streams}")
                self.assertRegex(done.stderr, "standard output cannot be written|output stream")
            self.ok("cleave", "verify", plan)
            with open(metrics) as lines:
                self.assertEqual(len([json.loads(line) for line in lines]), 3)
        for command in ("gpt graph --layers 50", "cleave-opt --help", f"mlp plan --print-ir-after apply -o {plan} 2>&1"):
            done = subprocess.run(["/bin/bash", "-c", f"{programs.BIN}/{command} | head -1 >&2; exit ${{PIPESTATUS[0]}}"], capture_output=True,
                                  timeout=120)
            self.assertEqual(done.returncode, 0, f"{command}: {done.stderr}")

    def test_interrupts(self):
        def catches(pid):  # whether the process has installed its handler: SIGINT is bit 1 of SigCgt
            with open(f"/proc/{pid}/status") as status:
                caught = next(line for line in status if line.startswith("SigCgt"))
            return int(caught.split()[1], 16) & 2

        manifest = os.path.join(self.path("ck"), "manifest.json")
        for program, command, ready in (("resnet", ["plan", "--depth", "50", "-o", self.path("r.plan")], catches),
                                        ("mlp", ["train", "--data", DIGITS, "--epochs", "100000", "--checkpoint", self.path("ck")],
                                         lambda pid: catches(pid) and os.path.exists(manifest))):
            for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                started = subprocess.Popen([os.path.join(programs.BIN, program), *command], stdout=subprocess.DEVNULL,
                                           stderr=subprocess.PIPE, text=True)
                deadline = time.monotonic() + 60
                while not ready(started.pid) and time.monotonic() < deadline:
                    time.sleep(0.01)
                started.send_signal(which)
                err = started.communicate(timeout=60)[1]
                self.assertEqual(started.returncode, 3, f"{program} {which}: {err[-300:]}")
                self.assertIn("interrupted" if program == "mlp" else f"interrupted by {which.name}", err)
        self.assertFalse(os.path.exists(self.path("r.plan")))
        self.ok("mlp", "eval", "--checkpoint", self.path("ck"), "--data", DIGITS)

    def test_interrupts_of_ranks(self):
        """If one rank is interrupted, all ranks end after the same step, and its checkpoint can be resumed."""
        def train(folder):
            return ["mlp", "train", "--data", DIGITS, "--hidden", "32", "--mesh", "dp=2", "--batch", 30, "--epochs", 100000, "--quiet",
                    "--checkpoint", folder, "--metrics", folder + ".jsonl"]

        def wait(ready):
            deadline = time.monotonic() + 60
            while not ready() and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertTrue(ready())

        def check(folder, err):
            found = re.search(r"interrupted after step (\d+), checkpoint written", err)
            self.assertTrue(found, err[-600:])
            with open(os.path.join(folder, "manifest.json")) as file:
                self.assertEqual(json.load(file)["step"], int(found[1]))
            with open(folder + ".jsonl") as lines:
                self.assertEqual([r["step"] for r in map(json.loads, lines) if "step" in r], list(range(1, int(found[1]) + 1)))
            self.ok(*train(folder)[:2], "--data", DIGITS, "--steps", int(found[1]) + 2, "--checkpoint", folder, "--resume", "--quiet")

        for rank in (0, 1):
            folder = self.path(f"ck{rank}")
            started = start_ranks(*train(folder), ranks=2)
            wait(lambda: os.path.exists(os.path.join(folder, "manifest.json")))
            started[rank].send_signal(signal.SIGTERM)
            ends = end_ranks(started, timeout=60)
            self.assertEqual([status for status, _ in ends], [3, 3], ends)
            check(folder, ends[0][1])
            self.assertNotIn("twice", ends[0][1] + ends[1][1])
        if not shutil.which("mpirun"):
            return
        folder, script = self.path("ckm"), self.path("rank.sh")
        with open(script, "w") as out:
            out.write(f'echo $$ > {folder}.$OMPI_COMM_WORLD_RANK; exec "$@"\n')
        started = subprocess.Popen(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "/bin/sh", script,
                                    os.path.join(programs.BIN, "mlp"), *map(str, train(folder)[1:])], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        wait(lambda: os.path.exists(os.path.join(folder, "manifest.json")))
        with open(folder + ".1") as pid:
            os.kill(int(pid.read()), signal.SIGINT)
        err = started.communicate(timeout=60)[1]
        self.assertNotEqual(started.returncode, 0)
        check(folder, err)

    def test_places(self):
        self.refused("mlp", "train", "--data", "/no/such/place", word="/no/such/place")
        self.refused("mlp", "train", word="--data")
        self.refused("mlp", "eval", "--checkpoint", "/no/such/ck", "--data", DIGITS, word="/no/such/ck")
        self.refused("mlp", "train", "--plan", "/no/such.plan", "--data", DIGITS, word="/no/such.plan")

    def test_files_beyond_memory(self):
        """A file that exceeds the memory limit, as stored or when inflated, gives status 3; the error has its name and size."""
        most, large = 3 << 30, 4 << 30 # without data a program takes less than 1 GiB of address space

        def sparse(name, begin=b""):
            with open(self.path(name), "wb") as out:
                out.write(begin)
                out.truncate(large)
            return self.path(name)

        for folder in ("images", "zipped"):
            os.mkdir(self.path(folder))
        header = struct.pack(">IIII", 0x803, large // 1024 - 1, 32, 32)
        sparse("images/train-images-idx3-ubyte", header)
        with open(self.path("zipped/text.txt"), "wb") as out:
            zeros = b"\0" * (1 << 20) # 4096 gzip members of one MiB each
            out.write(gzip.compress(zeros, 6) * 4096)
        for args, file, size in ((["mlp", "train", "--data", DIGITS, "--plan", sparse("p.plan")], "p.plan", large),
                                 (["cleave", "show", self.path("p.plan")], "p.plan", large),
                                 (["mlp", "train", "--data", self.path("images")], "train-images-idx3-ubyte", large - 1024),
                                 (["gpt", "train", "--data", sparse("t.txt")], "t.txt", None),
                                 (["gpt", "train", "--data", self.path("zipped")], "text.txt", None)):
            done = subprocess.run([os.path.join(programs.BIN, args[0]), *args[1:]], capture_output=True, text=True, timeout=120,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)))
            self.assertEqual(done.returncode, 3, f"{args}: {done.stderr[-300:]}")
            self.assertRegex(done.stderr, f"{file}: out of memory: it has {size if size else '[0-9]+'} bytes or more")

    def test_cuda_is_missing(self):
        self.refused("mlp", "train", "--data", DIGITS, "--backend", "cuda", word="CUDA")

    def test_wrong_data_for_the_model(self):
        self.refused("resnet", "train", "--image", 32, "--data", DIGITS, word="32")

    def test_ranks_of_mpirun(self):
        status, _, err = run("mlp", "train", "--data", DIGITS, "--mesh", "dp=3", ranks=2, timeout=60)
        self.assertNotEqual(status, 0)
        self.assertTrue("3" in err and "2" in err)

    def test_environment_of_torchrun(self):
        right = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        command = [os.path.join(programs.BIN, "mlp"), "train", "--data", DIGITS, "--mesh", "dp=2"]
        for wrong, words in (({"RANK": "2"}, ["RANK=2", "WORLD_SIZE=2"]), ({"WORLD_SIZE": "two"}, ["WORLD_SIZE=two"]),
                             ({"MASTER_PORT": "99999"}, ["MASTER_PORT=99999"]), ({"MASTER_ADDR": ""}, ["MASTER_ADDR"]),
                             ({"MASTER_ADDR": "no-such-host.invalid"}, ["MASTER_ADDR=no-such-host.invalid"])):
            done = subprocess.run(command, env={**os.environ, **right, **wrong}, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            for word in words:
                self.assertIn(word, done.stderr)
        with socket.socket() as taken:
            taken.bind(("", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            done = subprocess.run(command, env={**os.environ, **right, "RANK": "0", "MASTER_PORT": port}, capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(f"MASTER_PORT={port}", done.stderr)
        ended = end_ranks(start_ranks("mlp", "train", "--data", DIGITS, "--mesh", "dp=3", ranks=2))
        self.assertEqual([status for status, _ in ended], [2] * 2, ended)
        self.assertTrue("3 ranks" in ended[0][1] and "2 processes" in ended[0][1])
        self.assertEqual(ended[1][1], "") # only rank 0 reports the error

    def test_shapes_in_a_model(self):
        status, _, err = run("llama", "graph", "--heads", 4, "--kv-heads", 3)
        self.assertEqual(status, 2)
        self.assertIn("4 heads cannot share 3 heads", err)
        self.assertIn("llama.cpp:", err)
        status, _, err = run("gpt", "graph", "--width", 30, "--heads", 4)
        self.assertEqual(status, 2)
        self.assertIn("gpt.cpp:", err)
        self.assertIn("rule reshape C1", err)


if __name__ == "__main__":
    programs.main()
