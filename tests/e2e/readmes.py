#!/usr/bin/env python3
"""Runs the commands of the samples' READMEs unchanged, in a temporary folder that looks like the repository: build/,
samples/data/digits with fewer images, and a TEXT.txt. Standard library only.

readmes.py --build BUILD [unittest arguments]
"""
import glob, os, re, subprocess

import programs
from e2e import Case
from precision import few_digits
from programs import ROOT, last_line

PICTURES = 320  # a few batches of every sample


def commands(readme):
    """The lines of fenced blocks without a language, in order. A backslash at the end of a line continues it."""
    with open(readme) as text:
        blocks = re.findall(r"^```\n(.*?)^```$", text.read(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


class Readmes(Case):
    def setUp(self):
        super().setUp()
        os.symlink(programs.BUILD, self.path("build"))
        os.makedirs(self.path("samples/data"))
        few_digits(self.path("samples/data/digits"), PICTURES)
        with open(self.path("TEXT.txt"), "w") as text:
            for i in range(400):
                text.write(f"ROMEO:\nThe {i}th night is {'long' if i % 3 else 'short'}, and so am I.\n\n")

    def follow(self, readme):
        lines = commands(readme)
        self.assertTrue(lines, f"{readme} shows no commands")
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        for line in lines:
            done = subprocess.run(["/bin/bash", "-c", line], cwd=self.folder.name, env=environment, capture_output=True, text=True,
                                  errors="replace", timeout=600)
            self.assertEqual(done.returncode, 0, f"{line}: {last_line(done.stderr)}")


for file in sorted(glob.glob(os.path.join(ROOT, "samples/*/README.md"))):
    name = "test_" + os.path.basename(os.path.dirname(file))
    setattr(Readmes, name, lambda self, file=file: self.follow(file))


if __name__ == "__main__":
    programs.main()
