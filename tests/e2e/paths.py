#!/usr/bin/env python3
"""Tests every option that takes a path with every kind of invalid path. Standard library only.

paths.py --build BUILD [unittest arguments]
"""
import os, re, socket, subprocess, tempfile, unittest

import programs
from programs import DIGITS


SMALL = ["--hidden", "8", "--batch", "8"]
TRAIN = ["train", *SMALL, "--data", DIGITS, "--steps", "1", "--quiet"]
# Commands by the use of the path: it is read or written, and a file or a folder (`data` may be either). PATH is replaced by
# the path, HERE by a folder with p.plan, ck, graph.mlir and c.toml. The first word of a command is the program.
USES = {
    "read file": [
        ["cleave", "show", "PATH"], ["cleave", "verify", "PATH"], ["cleave", "diff", "PATH", "HERE/p.plan"],
        ["cleave", "diff", "HERE/p.plan", "PATH"], ["cleave-run", "PATH", "--data", DIGITS], ["cleave-opt", "PATH"],
        ["mlp", *TRAIN, "--plan", "PATH"], ["mlp", "eval", "--checkpoint", "HERE/ck", "--data", DIGITS, "--plan", "PATH"],
        ["mlp", "check", *SMALL, "--data", DIGITS, "--plan", "PATH"], ["mlp", *TRAIN, "--strategy", "PATH"],
        ["mlp", "plan", "--strategy", "PATH", "-o", "HERE/new.plan"], ["mlp", "check", "--data", DIGITS, "--strategy", "PATH"],
        ["mlp", "graph", "--strategy", "PATH"], ["mlp", "plan", "--no-code", "--cluster", "PATH", "-o", "HERE/new.plan"],
        ["cleave", "simulate", "PATH"], ["cleave", "simulate", "HERE/p.plan", "--cluster", "PATH"],
        ["cleave", "simulate", "--pipeline", "PATH"],
    ],
    "read data": [
        ["mlp", "train", *SMALL, "--data", "PATH", "--steps", "1"], ["mlp", "eval", "--checkpoint", "HERE/ck", "--data", "PATH"],
        ["mlp", "predict", "--checkpoint", "HERE/ck", "--data", "PATH", "-o", "HERE/new.npy"],
        ["mlp", "check", *SMALL, "--data", "PATH"],
        ["gpt", "train", "--data", "PATH", "--steps", "1"], ["cleave-run", "HERE/p.plan", "--data", "PATH"],
    ],
    "read folder": [
        ["mlp", "eval", "--data", DIGITS, "--checkpoint", "PATH"], ["mlp", *TRAIN, "--resume", "--checkpoint", "PATH"],
        ["mlp", "predict", "--data", DIGITS, "-o", "HERE/new.npy", "--checkpoint", "PATH"],
        ["gpt", "sample", "--prompt", "a", "--checkpoint", "PATH"],
        ["cleave-run", "HERE/p.plan", "--data", DIGITS, "--eval", "--checkpoint", "PATH"],
        ["cleave-run", "HERE/p.plan", "--data", DIGITS, "--resume", "--checkpoint", "PATH"],
    ],
    "write file": [
        ["mlp", *TRAIN, "--metrics", "PATH"], ["mlp", *TRAIN, "--trace", "PATH"],
        ["mlp", "eval", "--checkpoint", "HERE/ck", "--data", DIGITS, "--trace", "PATH"],
        ["mlp", "predict", "--checkpoint", "HERE/ck", "--data", DIGITS, "-o", "PATH"],
        ["mlp", "plan", *SMALL, "-o", "PATH"], ["mlp", "graph", *SMALL, "-o", "PATH"],
        ["cleave-run", "HERE/p.plan", "--data", DIGITS, "--steps", "1", "--quiet", "--metrics", "PATH"],
        ["cleave-run", "HERE/p.plan", "--data", DIGITS, "--steps", "1", "--quiet", "--trace", "PATH"],
        ["cleave-opt", "HERE/graph.mlir", "-o", "PATH"], ["cleave", "simulate", "HERE/p.plan", "--cluster", "HERE/c.toml", "--trace", "PATH"],
        ["cleave", "doctor", "--cluster", "PATH"],
    ],
    "write folder": [
        ["mlp", *TRAIN, "--checkpoint", "PATH"],
        ["cleave-run", "HERE/p.plan", "--data", DIGITS, "--steps", "1", "--quiet", "--checkpoint", "PATH"],
    ],
}
# The kinds of invalid paths for each use.
WRONG = {
    "read file": ["long path", "long name", "folder", "through a file", "pipe", "device", "socket", "empty", "dangling", "loop", "missing"],
    "read data": ["long path", "long name", "through a file", "pipe", "device", "socket", "empty", "dangling", "loop", "missing"],
    "read folder": ["long path", "long name", "file", "through a file", "pipe", "device", "socket", "empty", "dangling", "loop", "missing"],
    "write file": ["long path", "long name", "folder", "through a file", "pipe", "device", "socket", "empty", "loop", "below nothing"],
    "write folder": ["long path", "long name", "file", "through a file", "pipe", "device", "socket", "empty", "dangling", "loop"],
}
# The kinds of paths for which a user lacks permission.
FORBIDDEN = {"read file": ["locked", "unreadable"], "read data": ["locked"], "read folder": ["locked", "unlistable"],
             "write file": ["locked", "below unwritable"], "write folder": ["locked", "below unwritable", "unwritable", "unlistable"]}
NOBODY = 65534
# Exceptions that are valid: cleave-opt is a filter, so it may use pipes and devices; metrics may go to a device.
RIGHT = {("cleave-opt", "pipe"), ("cleave-opt -o", "device"), ("--metrics", "device")}
# Options that take a path and are not in USES.
ELSEWHERE = {("mlp plan", "--data"),      # not read: it only selects the data set or synthetic data
             ("cleave-run", "--tuning")}  # used only with a GPU
UNCLEAR = ["basic_filebuf", "basic_ios", "filesystem error", "terminate called", "what()", "iostream", "std::", "internal error"]


class Paths(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory(prefix="cleave-paths-")
        here = cls.here = cls.kept.name
        for command in (["mlp", *TRAIN, "--checkpoint", here + "/ck"], ["mlp", "plan", *SMALL, "-o", here + "/p.plan"],
                        ["mlp", "graph", *SMALL, "-o", here + "/graph.mlir"], ["cleave", "doctor", "--cluster", here + "/c.toml"]):
            subprocess.run([os.path.join(programs.BIN, command[0]), *command[1:]], check=True, capture_output=True, timeout=120)
        with open(here + "/text", "w") as file:
            file.write("text\n")
        os.mkdir(here + "/folder")
        os.mkfifo(here + "/pipe")
        os.symlink("nothing", here + "/dangling")
        os.symlink("loop", here + "/loop")
        cls.socket = socket.socket(socket.AF_UNIX)
        cls.socket.bind(here + "/socket")
        os.chmod(here, 0o777) # so that the user nobody may enter
        for folder, mode in (("closed", 0), ("unwritable", 0o555), ("unlistable", 0)):
            os.mkdir(f"{here}/{folder}")
            os.chmod(f"{here}/{folder}", mode)
        with open(here + "/unreadable", "w"):
            os.chmod(here + "/unreadable", 0)
        cls.wrong = {"locked": here + "/closed/x", "unreadable": here + "/unreadable", "unlistable": here + "/unlistable",
                     "unwritable": here + "/unwritable", "below unwritable": here + "/unwritable/x"}
        cls.wrong |= {"long path": here + "/" + "long/" * 1000 + "x", "long name": here + "/" + "x" * 300, "folder": here + "/folder",
                     "file": here + "/text", "through a file": here + "/text/x", "pipe": here + "/pipe", "device": "/dev/zero",
                     "socket": here + "/socket", "empty": "", "dangling": here + "/dangling", "loop": here + "/loop",
                     "missing": here + "/missing", "below nothing": here + "/missing/x"}

    @classmethod
    def tearDownClass(cls):
        cls.socket.close()
        cls.kept.cleanup()

    def start(self, command, user=None):
        return subprocess.run([os.path.join(programs.BIN, command[0]), *command[1:]], capture_output=True, text=True, errors="replace",
                              timeout=30, stdin=subprocess.DEVNULL, user=user, group=user, extra_groups=[] if user else None)

    def attempt(self, use, kind, user=None):
        """Runs one command with one invalid path. Returns what is wrong with the result, or None."""
        path = self.wrong[kind]
        command = [path if word == "PATH" else word.replace("HERE", self.here) for word in use]
        before = sorted(os.listdir(self.here))
        try:
            done = self.start(command, user)
        except subprocess.TimeoutExpired:
            return "does not end"
        err = done.stderr
        if done.returncode != 2:
            return f"status {done.returncode}: {err[-300:]}"
        if path and path not in err:
            return f"the message does not name the path: {err[-300:]}"
        if any(word in err for word in UNCLEAR):
            return f"unclear: {err[-300:]}"
        if sorted(os.listdir(self.here)) != before:
            return f"leaves {set(os.listdir(self.here)) - set(before)}"
        return None

    def check(self, kinds, user=None):
        faults = []
        for sort, uses in USES.items():
            for use in uses:
                right = {kind for words, kind in RIGHT if set(words.split()) <= {*use}}
                for kind in kinds[sort]:
                    fault = None if kind in right else self.attempt(use, kind, user)
                    if fault:
                        faults.append(f"{' '.join(use)}, {kind}: {fault.replace(self.here, 'HERE').replace('x' * 300, 'x...')}")
        self.assertEqual(faults, [], "\n" + "\n".join(faults))

    def test_wrong_paths(self):
        self.check(WRONG)

    def test_paths_that_a_user_may_not(self):
        if os.geteuid() != 0:
            return self.check(FORBIDDEN)
        try: # root may do anything
            if self.start(["mlp", "eval", "--checkpoint", self.here + "/ck", "--data", DIGITS], NOBODY).returncode == 0:
                return self.check(FORBIDDEN, NOBODY)
        except OSError:
            pass
        self.skipTest("no other user may run the programs")

    def test_every_option_that_takes_a_path_is_here(self):
        used = {(" ".join(use[:2]) if use[0] in ("mlp", "gpt", "cleave") else use[0], word)
                for uses in USES.values() for use in uses for word, path in zip(use, use[1:]) if path == "PATH"}
        missing = set()
        for command in ("mlp train", "mlp eval", "mlp predict", "mlp plan", "mlp check", "mlp graph", "cleave simulate", "cleave doctor",
                        "cleave-run"):
            words = command.split()
            text = subprocess.run([os.path.join(programs.BIN, words[0]), *words[1:], "--help"], capture_output=True, text=True, timeout=60).stdout
            for option in re.findall(r"^  (?:(-\w),)?(--\S+) (?:WORD\|FILE|FILE(?:\.\w+)?|DIR)\b", text, re.MULTILINE):
                if (command, option[0] or option[1]) not in used | ELSEWHERE:
                    missing.add((command, option[0] or option[1]))
        self.assertEqual(missing, set())


if __name__ == "__main__":
    programs.main()
