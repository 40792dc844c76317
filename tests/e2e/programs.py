"""Functions for tests of built programs, here and in tests/gpu and tests/faults: find and run programs, start ranks, read their
output, and run a file of tests. Standard library only."""
import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
DIGITS = os.path.join(ROOT, "samples", "data", "digits")
BUILD = BIN = None  # see use


def use(build):
    """Takes programs from `build`/bin from now on. They use a cache of the build instead of the user's."""
    global BUILD, BIN
    BUILD = os.path.abspath(build)
    BIN = os.path.join(BUILD, "bin")
    os.environ["XDG_CACHE_HOME"] = os.path.join(BUILD, "tests", "cache")


use(os.path.join(ROOT, "build"))


def run(program, *args, ranks=0, timeout=300, environment=None):
    """Runs a program, with `ranks` under mpirun. Returns exit status (negative for a signal), standard output, standard error.
    After `timeout` seconds its process group is killed, and subprocess.TimeoutExpired is raised."""
    command = [os.path.join(BIN, program), *map(str, args)]
    if ranks:
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                          env={**os.environ, **(environment or {})}, start_new_session=True) as child:
        try:
            out, err = child.communicate(timeout=timeout)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            raise
    return child.returncode, out, err


def free_port():
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]


def torchrun_environment(rank, ranks, port):
    """The variables that torchrun sets for a rank if all ranks run on this machine."""
    said = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port}
    return {name: str(value) for name, value in said.items()}


def start_ranks(program, *args, ranks, port=None, first=(), last=(), environment=lambda rank: {}, errors=None):
    """Starts processes with torchrun's environment. The last rank gets the additional arguments `last`, the others `first`.
    `errors(rank)` names a file for a rank's standard error; without it, end_ranks returns the standard errors."""
    port = port or free_port()
    started = []
    for rank in range(ranks):
        more = map(str, last if rank == ranks - 1 else first)
        said = {**torchrun_environment(rank, ranks, port), **{name: str(value) for name, value in environment(rank).items()}}
        out, err = subprocess.PIPE, subprocess.PIPE
        if errors:
            out, err = subprocess.DEVNULL, open(errors(rank), "w")
        started.append(subprocess.Popen([os.path.join(BIN, program), *map(str, args), *more], stdout=out, stderr=err, text=True,
                                        errors="replace", env={**os.environ, **said}))
        if errors:
            err.close()
    return started


def end_ranks(started, timeout=120):
    """Exit status and standard error of each process. If a process has not ended `timeout` seconds after the one before it, all
    are killed and subprocess.TimeoutExpired is raised."""
    try:
        return [(process.returncode, err) for process in started for _, err in [process.communicate(timeout=timeout)]]
    finally:
        kill(started)


def kill(started):
    for process in started:
        process.kill()
        process.wait()


def read_losses(metrics):
    """The losses that a metrics file has so far, by step."""
    losses = []
    if os.path.exists(metrics):
        with open(metrics) as lines:
            for line in lines:
                try:
                    record = json.loads(line)
                except ValueError:  # the last line is still being written
                    break
                if "step" in record:
                    losses.append(record["loss"])
    return losses


def last_line(text):
    """The last line that is not empty."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:160] if lines else "nothing was said"


def main():
    """Runs the tests of the file that was started: `--build BUILD`, then unittest's arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=BUILD)
    known, rest = parser.parse_known_args()
    use(known.build)
    unittest.main(module="__main__", argv=[sys.argv[0], *rest])
