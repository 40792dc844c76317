#!/usr/bin/env python3
"""Runs the commands of the samples' READMEs unchanged, in a temporary folder that looks like the repository: build/, the
lessons' folders, samples/data/digits with fewer images, and a TEXT.txt. Standard library only.

A block ```output after a block of commands must be what these commands print on standard output, except for the plan's hash.

readmes.py --build BUILD [unittest arguments]
readmes.py --build BUILD --write LESSON...       writes the blocks ```output of samples/LESSON/README.md anew
"""
import argparse, glob, os, re, subprocess, sys

import programs
from e2e import Case
from precision import few_digits
from programs import ROOT, last_line

PICTURES = 320  # a few batches of every sample


BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(readme):
    """The blocks of a page, in order: lists of commands (fenced, without a language; a backslash at the end of a line continues
    it) and texts of outputs."""
    with open(readme) as text:
        for language, block in BLOCK.findall(text.read()):
            if language == "output":
                yield block
            elif not language:
                yield [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def printed(text):
    """What a page shows of an output: without the plan's hash, trailing spaces and a last empty line."""
    lines = [re.sub(r"( +plan) [0-9a-f]{6}$", "", line.rstrip()) for line in text.splitlines()]
    return "\n".join(lines).strip("\n") + "\n"


class Readmes(Case):
    def setUp(self):
        super().setUp()
        os.symlink(programs.BUILD, self.path("build"))
        os.makedirs(self.path("samples/data"))
        few_digits(self.path("samples/data/digits"), PICTURES)
        for lesson in glob.glob(os.path.join(ROOT, "samples/[0-9]*")):
            os.symlink(lesson, self.path("samples/" + os.path.basename(lesson)))
        with open(self.path("TEXT.txt"), "w") as text:
            for i in range(400):
                text.write(f"ROMEO:\nThe {i}th night is {'long' if i % 3 else 'short'}, and so am I.\n\n")

    def follow(self, readme):
        """Runs the commands, and compares or returns the outputs that the page shows."""
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        ran, said, outputs = 0, "", []
        for block in blocks(readme):
            if isinstance(block, str):
                outputs.append((block, printed(said)))
                continue
            said = ""
            for line in block:
                done = subprocess.run(["/bin/bash", "-c", "set -o pipefail; " + line], cwd=self.folder.name, env=environment,
                                      capture_output=True, text=True, errors="replace", timeout=600)
                self.assertEqual(done.returncode, 0, f"{line}: {last_line(done.stderr)}")
                said += done.stdout
                ran += 1
        self.assertTrue(ran, f"{readme} shows no commands")
        return outputs

    def compare(self, readme):
        self.maxDiff = None
        for shown, said in self.follow(readme):
            self.assertEqual(shown, said, f"{readme}: if the new output is right, run tests/e2e/readmes.py --write, and read the "
                                          "page's text again")


for file in sorted(glob.glob(os.path.join(ROOT, "samples/*/README.md"))):
    name = "test_" + os.path.basename(os.path.dirname(file))
    setattr(Readmes, name, lambda self, file=file: self.compare(file))


def write(lesson):
    """Puts what the commands of a lesson print into its page."""
    page = os.path.join(ROOT, "samples", lesson, "README.md")
    case = Readmes()
    case.setUp()
    try:
        fresh = iter([said for _, said in case.follow(page)])
    finally:
        case.tearDown()
    with open(page) as file:
        text = file.read()
    with open(page, "w") as file:
        file.write(BLOCK.sub(lambda m: f"```output\n{next(fresh)}```" if m[1] == "output" else m[0], text))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--build", default=programs.BUILD)
    parser.add_argument("--write", nargs="+")
    known, _ = parser.parse_known_args()
    if known.write:
        programs.use(known.build)
        for lesson in known.write:
            write(lesson)
        sys.exit(0)
    programs.main()
