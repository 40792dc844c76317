"""Shared by the end-to-end tests: paths of the programs, and running a file of tests."""
import argparse
import os
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
DIGITS = os.path.join(ROOT, "samples", "data", "digits")
BUILD = os.path.join(ROOT, "build")
BIN = os.path.join(BUILD, "bin")


def main():
    """Runs the tests of the file that was started: `--build BUILD`, then unittest's arguments."""
    global BUILD, BIN
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=BUILD)
    known, rest = parser.parse_known_args()
    BUILD = os.path.abspath(known.build)
    BIN = os.path.join(BUILD, "bin")
    unittest.main(module="__main__", argv=[sys.argv[0], *rest])
