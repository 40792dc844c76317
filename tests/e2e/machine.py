#!/usr/bin/env python3
"""Signals, and machines on which something is missing or full. Standard library only.

machine.py --build BUILD [unittest arguments]
"""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
import unittest

import programs
from e2e import Case
from programs import DIGITS, run, start_ranks

INTERRUPTS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR1, signal.SIGUSR2]


def namespaces():
    """Whether this machine lets us mount: unshare needs root or user namespaces."""
    return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


class Signals(Case):
    def train(self, *more, **kw):
        """A training that runs until it is ended, with checkpoints: a new one, or with the options `more`."""
        if not more:
            shutil.rmtree(self.path("ck"), ignore_errors=True)
        return subprocess.Popen([os.path.join(programs.BIN, "mlp"), "train", "--data", DIGITS, "--hidden", "16", "--threads", "1",
                                 "--epochs", "1000000", "--quiet", "--checkpoint", self.path("ck"), *more],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **kw)

    def step(self):
        try:
            with open(os.path.join(self.path("ck"), "manifest.json")) as file:
                return json.load(file)["step"]
        except OSError:
            return 0

    def wait(self, ready, seconds=60):
        deadline = time.monotonic() + seconds
        while not ready():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)

    def test_interrupts_write_a_checkpoint(self):
        for which in INTERRUPTS:
            before = self.step()
            job = self.train(*(["--resume"] if before else []))
            self.wait(lambda: self.step() > before)
            job.send_signal(which)
            err = job.communicate(timeout=60)[1]
            self.assertEqual(job.returncode, 3, f"{which}: {err}")
            found = re.search(r"interrupted after step (\d+), checkpoint written", err)
            self.assertTrue(found, err)
            self.assertEqual(self.step(), int(found[1]))

    def test_ignored_signals_stay_ignored(self):
        """nohup ignores SIGHUP; a launcher may ignore others."""
        ignored = [signal.SIGHUP, signal.SIGUSR1]
        job = self.train(preexec_fn=lambda: [signal.signal(which, signal.SIG_IGN) for which in ignored])
        self.wait(lambda: self.step() > 0)
        for which in ignored:
            job.send_signal(which)
        before = self.step()
        self.wait(lambda: self.step() > before + 20)
        self.assertIsNone(job.poll())
        job.send_signal(signal.SIGTERM)
        err = job.communicate(timeout=60)[1]
        self.assertEqual(job.returncode, 3)
        self.assertIn("checkpoint written", err)

    def test_signals_while_a_program_starts(self):
        """A program prepares its signals first of all: no signal may end it without a message."""
        def prepared(pid):  # once SIGTERM, bit 15, is caught
            with open(f"/proc/{pid}/status") as status:
                caught = next(line for line in status if line.startswith("SigCgt"))
            return int(caught.split()[1], 16) & 1 << 14

        for turn in range(12):
            which = INTERRUPTS[turn % len(INTERRUPTS)]
            job = self.train()
            self.wait(lambda: prepared(job.pid))
            time.sleep(0.01 * (turn // 2))
            job.send_signal(which)
            err = job.communicate(timeout=60)[1]
            self.assertEqual(job.returncode, 3, f"{which}: {err}")
            self.assertRegex(err, f"interrupted by {which.name}|interrupted after step")

    def test_other_signals_are_named(self):
        for which, status in ((signal.SIGQUIT, 3), (signal.SIGALRM, 3), (signal.SIGSEGV, 3), (signal.SIGABRT, 3), (signal.SIGBUS, 3)):
            job = self.train()
            self.wait(lambda: self.step() > 0)
            job.send_signal(which)
            err = job.communicate(timeout=60)[1]
            self.assertEqual((job.returncode, err), (status, f"error: interrupted by {which.name}\n"))

    def test_grace(self):
        """A rank is interrupted while the other one is stopped: it cannot write a checkpoint, and ends when the grace is over."""
        ck = self.path("ck")
        for limit, said in (("2", "did not end within --grace 2 s; the last checkpoint known to be complete is of step "),
                            ("30", "interrupted after step")):
            shutil.rmtree(ck, ignore_errors=True)
            started = start_ranks("mlp", "train", "--data", DIGITS, "--mesh", "dp=2", "--threads", 1, "--hidden", 16, "--quiet",
                                  "--epochs", 1000000, "--checkpoint", ck, "--grace", limit, ranks=2)
            try:
                self.wait(lambda: self.step() > 0)
                if limit == "2":
                    started[1].send_signal(signal.SIGSTOP)
                    time.sleep(0.5)
                    step = self.step()
                    self.assertGreater(step, 0)
                began = time.monotonic()
                started[0].send_signal(signal.SIGTERM)
                err = started[0].communicate(timeout=60)[1]
                self.assertEqual(started[0].returncode, 3)
                self.assertIn(said, err)
                if limit == "2":
                    self.assertTrue(1.5 < time.monotonic() - began < 10)
                    self.assertEqual(self.step(), step)
                    self.assertLessEqual(int(err.split()[-1]), step)
                    started[1].send_signal(signal.SIGCONT)
                    err = started[1].communicate(timeout=60)[1]
                    self.assertEqual((started[1].returncode, err), (3, ""))  # rank 0 has given the reason
            finally:
                programs.kill(started)
        self.ok("mlp", "eval", "--checkpoint", ck, "--data", DIGITS)


class Places(Case):
    """Where generated code lies while it is linked and loaded, and stacks."""

    command = ["train", "--data", DIGITS, "--steps", "2", "--quiet", "--mesh", "dp=2", "--threads", "1", "--batch", "20", "--hidden", "16"]

    def after(self, setup, program="mlp", command=None):
        """Runs a program in a shell after `setup`, in a mount namespace of its own. Returns its status and standard error."""
        done = subprocess.run(["unshare", "-m", "/bin/bash", "-c", setup + ' && exec "$@"', "sh", os.path.join(programs.BIN, program),
                               *(command or self.command)], capture_output=True, text=True, errors="replace", timeout=120)
        return done.returncode, done.stderr

    def check_failure(self, ended, *words):
        status, err = ended
        self.assertEqual(status, 3, err)
        self.assertEqual(len(err.splitlines()), 1, err)
        for word in words:
            self.assertIn(word, err)

    @unittest.skipUnless(namespaces(), "skipped: this machine does not let us mount (unshare -m)")
    @unittest.skipIf(os.path.realpath(__file__).startswith("/tmp/"), "skipped: the clone is in /tmp, which this test hides")
    def test_full_and_missing_places(self):
        full = lambda folder: f"mount -t tmpfs -o size=4k none {folder} && head -c 4096 /dev/zero > {folder}/full"
        read_only, no_proc = "mount -t tmpfs -o ro none {}", "mount -t tmpfs -o ro none /proc"
        for setup in (full("/dev/shm"), read_only.format("/dev/shm"), no_proc, f"{no_proc} && {full('/dev/shm')}",
                      f"{no_proc} && {read_only.format('/tmp')}", f"mount -t tmpfs -o noexec none /dev/shm && {no_proc}"):
            status, err = self.after(setup)
            self.assertEqual(status, 0, f"{setup}: {err}")
        everywhere = f"unset TMPDIR && {no_proc} && {full('/dev/shm')} && {read_only.format('/tmp')}"
        self.check_failure(self.after(everywhere), "code generation: the objects cannot be stored", "memory: /proc is missing",
                           "/dev/shm: No space left on device", "/tmp: Read-only file system")
        plan = self.path("p.plan")
        self.ok("mlp", "plan", "--mesh", "dp=2", "--batch", 20, "--hidden", 16, "-o", plan)
        training = [plan, "--data", DIGITS, "--steps", "2", "--quiet"]
        self.assertEqual(self.after(f"{no_proc} && {full('/dev/shm')}", "cleave-run", training)[0], 0)
        moved = os.path.join(programs.BUILD, "machine-test.plan")
        os.replace(plan, moved)
        try:
            self.check_failure(self.after(everywhere, "cleave-run", [moved, *training[1:]]), ": its code cannot be loaded")
        finally:
            os.unlink(moved)

    def test_waiting_threads(self):
        """OpenMP's threads sleep soon when they wait, unless the user says otherwise."""
        others = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        for setting, spins in (({}, 5000), ({"GOMP_SPINCOUNT": "77"}, 77), ({"OMP_WAIT_POLICY": "passive"}, 0)):
            for program in ("mlp", "cleave-run"):
                shown = subprocess.run([os.path.join(programs.BIN, program), "--version"], text=True, capture_output=True,
                                       env={**others, **setting, "OMP_DISPLAY_ENV": "VERBOSE"}).stderr
                self.assertIn(f"GOMP_SPINCOUNT = '{spins}'", shown)

    def test_code_cache(self):
        """A plan has the same bytes whatever the cache holds, and nothing that is wrong with a cache is said."""
        def compiled(cache):
            self.use_cache(cache)
            status, out, err = run("gpt", "plan", "--mesh", "dp=2", "--batch", 4, "--layers", 1, "-o", self.path("p.plan"))
            self.assertEqual((status, err), (0, ""))
            with open(self.path("p.plan"), "rb") as plan:
                return plan.read()

        cache = self.path("cache")
        cold = compiled(cache)
        files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(cache) for name in names)
        kept = {name: os.stat(name).st_ino for name in files}
        self.assertGreater(len(files), 10)
        self.assertEqual(compiled(cache), cold)
        self.assertEqual({name: os.stat(name).st_ino for name in files}, kept)  # every kernel was found
        for i, name in enumerate(files):  # a few are whole, others are torn, changed, another kernel's, or missing
            if i % 5 == 1:
                os.truncate(name, os.path.getsize(name) // 2)
            elif i % 5 == 2:
                with open(name, "r+b") as file:
                    file.seek(500)
                    file.write(b"\xcc\xcc\xcc\xcc")
            elif i % 5 == 3:
                shutil.copy(files[i - 3], name)
            elif i % 5 == 4:
                os.unlink(name)
        self.assertEqual(compiled(cache), cold)
        self.assertEqual(sorted(kept), sorted(os.path.join(folder, name) for folder, _, names in os.walk(cache) for name in names))
        with open(self.path("file"), "w"):
            pass
        self.assertEqual(compiled(self.path("file")), cold)
        started = [subprocess.Popen([os.path.join(programs.BIN, "gpt"), "plan", "--mesh", "dp=2", "--batch", "4", "--layers", "1",
                                     "-o", self.path(f"{i}.plan")], env={**os.environ, "XDG_CACHE_HOME": self.path("shared")},
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for i in range(4)]
        for i, job in enumerate(started):
            self.assertEqual((job.communicate(timeout=120)[1], job.returncode), (b"", 0))
            with open(self.path(f"{i}.plan"), "rb") as plan:
                self.assertEqual(plan.read(), cold)

    @unittest.skipUnless(namespaces(), "skipped: this machine does not let us mount (unshare -m)")
    def test_code_cache_on_a_full_disk(self):
        os.mkdir(self.path("cache"))
        self.use_cache(self.path("cache"))
        for options in ("size=4k", "ro"):
            self.assertEqual(self.after(f"mount -t tmpfs -o {options} none {self.path('cache')}"), (0, ""))

    def test_limits(self):
        def limited(what, value):
            done = subprocess.run([os.path.join(programs.BIN, "mlp"), *self.command], capture_output=True, text=True, timeout=120,
                                  preexec_fn=lambda: resource.setrlimit(what, (value, value)))
            return done.returncode, done.stderr

        for stack in (64 << 10, 100 << 10):
            status, err = limited(resource.RLIMIT_STACK, stack)
            self.assertEqual(status, 0, err)
        for most in (0, 4096):
            self.check_failure(limited(resource.RLIMIT_FSIZE, most), "the limit of file sizes (ulimit -f)")

    def test_too_few_threads(self):
        """If the system starts no more than so many threads, a program ends with one message, or does the same with fewer."""
        plan = self.path("p.plan")
        training = ["--data", DIGITS, "--batch", 20, "--steps", 2, "--quiet", "--threads", 4, "--workers", 2]
        self.ok("mlp", "plan", "--mesh", "dp=2", "--hidden", 16, "--batch", 20, "-o", plan)
        library = os.path.join(programs.BUILD, "tests", "faults", "failing_calls.so")
        for command in (["mlp", "plan", "--mesh", "dp=2", "--hidden", 24, "-o", self.path("other.plan")],
                        ["mlp", "train", "--mesh", "dp=2", "--hidden", 16, *training, "--checkpoint", self.path("ck"), "--overwrite"],
                        ["mlp", "check", "--mesh", "dp=2", "--hidden", 16, "--data", DIGITS], ["cleave", "doctor"],
                        ["cleave", "doctor", "--cluster", self.path("c.toml")],
                        ["cleave-run", plan, *training[:2], *training[4:]]):
            refused = 0
            for threads in range(24):
                self.use_cache(os.path.join(self.folder.name, f"cache{threads}"))  # so that code is generated
                status, _, err = run(*command, environment={"LD_PRELOAD": library, "CLEAVE_FAULT_THREADS": str(threads)})
                refused += status != 0
                if status == 0:
                    continue
                self.check_failure((status, err), "error: no thread can be started for ", "pids.max")
            self.assertGreater(refused, 0, command)


if __name__ == "__main__":
    programs.main()
