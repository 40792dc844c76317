#!/usr/bin/env python3
"""Tests every option that takes a path with every kind of invalid path. Standard library only.

paths.py --build BUILD [unittest arguments]
"""
import os, re, shutil, socket, subprocess, tempfile, unittest

import programs
from programs import DIGITS


SMALL = ["--hidden", "8", "--batch", "8"]
TRAIN = ["train", *SMALL, "--data", DIGITS, "--steps", "1", "--quiet"]
# Commands by the use of the path: it is read or written, and a file or a folder (`data` may be either). PATH is replaced by
# the path, HERE by a folder with p.plan, ck, graph.mlir, c.toml and spec.json. The first word of a command is the program.
USES = {
    "read file": [
        ["cleave", "show", "PATH"], ["cleave", "verify", "PATH"], ["cleave", "diff", "PATH", "HERE/p.plan"],
        ["cleave", "diff", "HERE/p.plan", "PATH"], ["cleave-run", "PATH", "--data", DIGITS], ["cleave-opt", "PATH"],
        ["mlp", *TRAIN, "--plan", "PATH"], ["mlp", "eval", "--checkpoint", "HERE/ck", "--data", DIGITS, "--plan", "PATH"],
        ["mlp", "check", *SMALL, "--data", DIGITS, "--plan", "PATH"], ["mlp", *TRAIN, "--strategy", "PATH"],
        ["mlp", "plan", "--strategy", "PATH", "-o", "HERE/new.plan"], ["mlp", "check", "--data", DIGITS, "--strategy", "PATH"],
        ["mlp", "graph", "--strategy", "PATH"], ["mlp", *TRAIN, "--cluster", "PATH"], ["mlp", "check", "--data", DIGITS, "--cluster", "PATH"],
        ["mlp", "eval", "--checkpoint", "HERE/ck", "--data", DIGITS, "--cluster", "PATH"],
        ["mlp", "predict", "--checkpoint", "HERE/ck", "--data", DIGITS, "-o", "HERE/new.npy", "--cluster", "PATH"],
        ["mlp", *TRAIN, "--recipe", "PATH"],
        ["mlp", "check", "--data", DIGITS, "--recipe", "PATH"], ["mlp", "plan", "-o", "HERE/new.plan", "--recipe", "PATH"],
        ["mlp", "predict", "--checkpoint", "HERE/ck", "--data", DIGITS, "-o", "HERE/new.npy", "--recipe", "PATH"],
        ["mlp", "graph", "--recipe", "PATH"], ["mlp", "eval", "--checkpoint", "HERE/ck", "--recipe", "PATH"],
        ["resnet", "data", "--channels", "3", "--data", "synthetic", "--file", "PATH"], ["mlp", "plan", "--no-code", "--cluster", "PATH", "-o", "HERE/new.plan"],
        ["mlp", "plan", "--no-code", "--like", "PATH", "-o", "HERE/new.plan"], ["cleave", "explain", "PATH"],
        ["cleave", "simulate", "PATH"], ["cleave", "simulate", "HERE/p.plan", "--cluster", "PATH"],
        ["cleave", "simulate", "--pipeline", "PATH"], ["cleave", "report", "PATH", "-o", "HERE/new.html"],
        ["cleave", "report", "HERE/p.plan", "-o", "HERE/new.html", "--cluster", "PATH"],
        ["cleave", "simulate", "HERE/p.plan", "--cluster", "HERE/c.toml", "--against", "PATH"],
    ],
    "read data": [
        ["mlp", "train", *SMALL, "--data", "PATH", "--steps", "1"], ["mlp", "eval", "--checkpoint", "HERE/ck", "--data", "PATH"],
        ["mlp", "predict", "--checkpoint", "HERE/ck", "--data", "PATH", "-o", "HERE/new.npy"],
        ["mlp", "check", *SMALL, "--data", "PATH"], ["mlp", "data", "--data", "PATH"], ["cleave", "data", "PATH"],
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
        ["mlp", "predict", "--checkpoint", "HERE/ck", "--data", DIGITS, "-o", "PATH"], ["mlp", "data", "--data", DIGITS, "-o", "PATH"],
        ["mlp", "plan", *SMALL, "-o", "PATH"], ["mlp", "graph", *SMALL, "-o", "PATH"],
        ["cleave-run", "HERE/p.plan", "--data", DIGITS, "--steps", "1", "--quiet", "--metrics", "PATH"],
        ["cleave-run", "HERE/p.plan", "--data", DIGITS, "--steps", "1", "--quiet", "--trace", "PATH"],
        ["cleave-opt", "HERE/graph.mlir", "-o", "PATH"], ["cleave", "simulate", "HERE/p.plan", "--cluster", "HERE/c.toml", "--trace", "PATH"],
        ["cleave", "simulate", "--pipeline", "HERE/spec.json", "--trace", "PATH"],
        ["cleave", "doctor", "--cluster", "PATH"],
        ["cleave", "report", "HERE/p.plan", "--cluster", "HERE/c.toml", "-o", "PATH"],
    ],
    "write folder": [
        ["mlp", *TRAIN, "--checkpoint", "PATH"], ["mlp", *TRAIN, "--resume-if-any", "--checkpoint-every", "3", "--checkpoint", "PATH"],
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
SPEC = """{"schedule": "1f1b", "stages": 2, "microbatches": 4, "forward_ms": 1, "input_grad_ms": 1, "weight_grad_ms": 1,
"send_ms": 0, "activation_bytes": 1, "gradient_bytes": 1}
"""
# Exceptions that are valid: cleave-opt is a filter, so it may use pipes and devices; metrics may go to a device.
RIGHT = {("cleave-opt", "pipe"), ("cleave-opt -o", "device"), ("--metrics", "device")}
# Options that take a path and are not in USES.
ELSEWHERE = {("mlp plan", "--data"),  # not read: it only selects the data set or synthetic data
             *((command, "--tuning") for command in ("mlp train", "mlp eval", "mlp predict", "cleave-run"))}  # ignored if unusable
UNCLEAR = ["basic_filebuf", "basic_ios", "filesystem error", "terminate called", "what()", "iostream", "std::", "internal error"]


def make_inputs(folder):
    """Writes a checkpoint, a plan, a graph, a cluster and a pipeline's spec into a folder, which ends with a slash."""
    for command in (["mlp", *TRAIN, "--checkpoint", folder + "ck"], ["mlp", "plan", *SMALL, "-o", folder + "p.plan"],
                    ["mlp", "graph", *SMALL, "-o", folder + "graph.mlir"], ["cleave", "doctor", "--cluster", folder + "c.toml"]):
        subprocess.run([os.path.join(programs.BIN, command[0]), *command[1:]], check=True, capture_output=True, timeout=120)
    with open(folder + "spec.json", "w") as file:
        file.write(SPEC)


class Paths(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory(prefix="cleave-paths-")
        here = cls.here = cls.kept.name
        make_inputs(here + "/")
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
        for command in ("mlp train", "mlp eval", "mlp predict", "mlp plan", "mlp check", "mlp graph", "cleave simulate", "cleave report", "cleave doctor",
                        "cleave-run"):
            words = command.split()
            text = subprocess.run([os.path.join(programs.BIN, words[0]), *words[1:], "--help"], capture_output=True, text=True, timeout=60).stdout
            for option in re.findall(r"^  (?:(-\w),)?(--\S+) (?:WORD\|FILE|FILE(?:\.\w+)?|DIR)\b", text, re.MULTILINE):
                if (command, option[0] or option[1]) not in used | ELSEWHERE:
                    missing.add((command, option[0] or option[1]))
        self.assertEqual(missing, set())


def of(use):
    """The program of a command, and its subcommand."""
    return tuple(use[:2]) if use[0] in ("mlp", "gpt", "cleave") else (use[0],)


class Roles(unittest.TestCase):
    """No output replaces a file that its command reads, or another output, by whatever name: every output option of every command
    with every input of it (USES). Nothing is changed, and the message names both."""

    # A valid file for the inputs that a command need not have.
    MORE = {"--plan": "p.plan", "--like": "p.plan", "--strategy": "s.toml", "--cluster": "c.toml", "--against": "trace.json"}

    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory(prefix="cleave-roles-")
        cls.here = cls.kept.name
        os.mkdir(cls.here + "/in")
        shutil.copytree(DIGITS, cls.here + "/in/digits")
        inputs = cls.here + "/in/"
        make_inputs(inputs)
        with open(inputs + "s.toml", "w") as file:
            file.write('mesh = { dp = 1 }\n')
        with open(inputs + "trace.json", "w") as file:
            file.write("{}\n")
        cls.contents = cls.read()

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()

    @classmethod
    def read(cls):
        """The contents of every input."""
        found = {}
        for place, _, names in os.walk(cls.here + "/in"):
            for name in names:
                with open(os.path.join(place, name), "rb") as file:
                    found[os.path.join(place, name)] = file.read()
        return found

    def inputs(self, use):
        """Commands like `use` with one of the files that they read: (command, file)."""
        words = [word.replace("HERE", self.here + "/in").replace(DIGITS, self.here + "/in/digits") for word in use]
        for word in words:
            if word.startswith(self.here + "/in/") and os.path.isfile(word):
                yield words, word
            elif word.startswith(self.here + "/in/") and os.path.isdir(word):
                for name in sorted(os.listdir(word)) + (["lock.json"] if word.endswith("/ck") else []):
                    if name != "README.md":
                        yield words, f"{word}/{name}"
        if of(use) == ("mlp", "train"):
            yield [*words, "--checkpoint", self.here + "/in/ck", "--overwrite"], self.here + "/in/ck/manifest.json"
        for other in USES["read file"]:
            option = other[other.index("PATH") - 1]
            if of(other) == of(use) and option in self.MORE and option not in use and "--pipeline" not in use:
                yield [*words, option, f"{self.here}/in/{self.MORE[option]}"], f"{self.here}/in/{self.MORE[option]}"

    def names(self, file):
        """Names of a file: its own, a link, and a second name."""
        yield file
        os.symlink(file, self.here + "/link")
        yield self.here + "/link"
        os.unlink(self.here + "/link")
        if os.path.exists(file):
            os.link(file, self.here + "/second")
            yield self.here + "/second"
            os.unlink(self.here + "/second")

    def fault(self, command):
        done = subprocess.run([os.path.join(programs.BIN, command[0]), *command[1:]], capture_output=True, text=True, errors="replace",
                              timeout=60, stdin=subprocess.DEVNULL)
        said = " ".join(command).replace(self.here, "HERE")
        if done.returncode != 2 or "is the same file as" not in done.stderr:
            return f"{said}: status {done.returncode}: {done.stderr[-300:]}"
        return None if self.read() == self.contents else f"{said}: an input is changed"

    def test_outputs_onto_inputs(self):
        faults, tried = [], 0
        for use in USES["write file"]:
            for command, file in self.inputs(use):
                for name in self.names(file):
                    tried += 1
                    faults.append(self.fault([name if word == "PATH" else word for word in command]))
        self.assertGreater(tried, 100)
        faults = [fault for fault in faults if fault]
        self.assertEqual(faults, [], "\n" + "\n".join(faults))

    def test_two_outputs_onto_one_file(self):
        os.symlink(self.here, self.here + "/alias")
        os.symlink("new", self.here + "/early")
        for use in USES["write file"]:
            others = {other[other.index("PATH") - 1] for other in USES["write file"] if of(other) == of(use)}
            for option in others - {use[use.index("PATH") - 1]}:
                words = [word.replace("HERE", self.here + "/in") for word in use]
                for first, second in (("new", "new"), ("new", "alias/new"), ("new", "early"), ("early", "./new")):
                    command = [f"{self.here}/{first}" if word == "PATH" else word for word in words]
                    self.assertEqual(self.fault([*command, option, f"{self.here}/{second}"]), None)
        self.assertFalse(os.path.exists(self.here + "/new"))

    def test_metrics_onto_what_is_no_metrics_file(self):
        file = self.here + "/notes"
        for text in ("notes\nwithout an end", "{}\n", '{"ran": 1}'):
            for more in ([], ["--resume", "--checkpoint", self.here + "/in/ck"]):
                with open(file, "w") as out:
                    out.write(text)
                done = subprocess.run([os.path.join(programs.BIN, "mlp"), *TRAIN[:1], *(TRAIN[1:5] if not more else []), *TRAIN[5:], *more,
                                       "--metrics", file], capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("not a metrics file", done.stderr)
                with open(file) as out:
                    self.assertEqual(out.read(), text)
        for text in ("", '{"run"', '{"run":{}}\n'):  # a run that was killed may leave a part
            with open(file, "w") as out:
                out.write(text)
            subprocess.run([os.path.join(programs.BIN, "mlp"), *TRAIN, "--metrics", file], check=True, capture_output=True, timeout=60)

    def test_a_pass_that_fails_leaves_the_output(self):
        """cleave-opt writes beside its output and renames; MLIR's own driver removes the output of a pass that fails."""
        wrong, out = self.here + "/wrong.mlir", self.here + "/out.mlir"
        for file in (wrong, out):
            with open(file, "w") as text:
                text.write("nonsense")
        before = sorted(os.listdir(self.here))
        opt = os.path.join(programs.BIN, "cleave-opt")
        self.assertEqual(subprocess.run([opt, wrong, "-o", out], capture_output=True, timeout=60).returncode, 2)
        with open(out) as text:
            self.assertEqual(text.read(), "nonsense")
        subprocess.run([opt, self.here + "/in/graph.mlir", "-o", out], check=True, capture_output=True, timeout=60)
        with open(out) as text:
            self.assertIn("func.func @forward", text.read())
        self.assertEqual(sorted(os.listdir(self.here)), before)


if __name__ == "__main__":
    programs.main()
