#!/usr/bin/env python3
"""Disturbs every call with which a training reads and writes its files, one at a time. Uses only the standard library.

calls.py --build BUILD [--part I OF] [--keep]

`disturbed`: a call is not done and reported as failed, done and reported as failed (`doubt`: and the next call fails), done twice,
or the process is killed before it (FailingCalls.cpp). `crashes`: the machine fails after a call, and of what was not synced all,
one or some are lost: names, contents, or both (Pillai et al., OSDI 2014: "All file systems are not created equal"). After each,
the last checkpoint and those that are kept are complete and no older than before, training resumes from it, and then the folder
holds nothing else but the files of others. Part I of OF: every OF-th case. Exit status: 0 no case failed, 1 a case failed.
"""
import argparse, collections, json, os, random, shutil, subprocess, sys, tempfile, time, zlib

from faults import OURS, Broken, checkpoint_files, need, unneeded
from programs import DIGITS, ROOT, free_port, torchrun_environment

# What may happen to a call. Calls that change nothing on the disk are not done twice, and killing before them is the same as
# killing before the next one that does.
KINDS = {"create": ("fail", "done", "twice", "kill"), "write": ("fail", "done", "twice", "kill"), "fsync": ("fail", "kill"),
         "rename": ("fail", "done", "twice", "doubt", "kill"), "unlink": ("fail", "done", "twice", "kill"),
         "flock": ("fail", "done"), "open": ("fail",), "read": ("fail",), "close": ("done",), "utimensat": ("fail",)}
EPOCHS = 2  # of the checkpoints that are there before; the disturbed run trains as many again


def train(build, plan, folder, epochs, ranks=1, environment=None):
    """Trains on in the folder. Returns the first exit status that is not 0 (or 0), and the standard errors."""
    port, started = free_port(), []
    for rank in range(ranks):
        said = torchrun_environment(rank, ranks, port) if ranks > 1 else {}
        started.append(subprocess.Popen(
            [os.path.join(build, "bin", "cleave-run"), plan, "--data", DIGITS, "--quiet", "--epochs", str(epochs), "--checkpoint",
             folder + "/ck", "--trace", folder + "/trace.json", "--timeout", "10",
             *(["--resume"] if os.path.exists(folder + "/ck/manifest.json") else [])],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **said, **(environment or {})}))
    try:
        errors = [process.communicate(timeout=60)[1] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return next((process.returncode for process in started if process.returncode), 0), "".join(errors)


class Folders:
    """A folder with a plan and checkpoints, copied for every case."""

    def __init__(self, build, place, ranks):
        self.build, self.place, self.ranks, self.before = build, place, ranks, place + "/before"
        self.plan, self.cases = place + "/p.plan", 0
        os.makedirs(self.before + "/ck/sub")
        mesh = [] if ranks == 1 else ["--mesh", f"tp={ranks}"]
        subprocess.run([build + "/bin/mlp", "plan", "--hidden", "8", "--batch", "1000", "--threads", "1", *mesh, "-o", self.plan],
                       check=True, stdout=subprocess.DEVNULL)
        for name, text in OURS.items():
            with open(f"{self.before}/ck/{name}", "w") as out:
                out.write(text)
        status, err = train(build, self.plan, self.before, EPOCHS, ranks)
        need(status == 0, f"training ends with {status}: {err}")
        self.step = checkpoint_files(self.before + "/ck")[0]

    def copy(self):
        self.cases += 1
        folder = f"{self.place}/case{self.cases}"
        shutil.copytree(self.before, folder)
        return folder

    def check(self, folder):
        """The checkpoints of the folder are complete and no older than before; training goes on; nothing stays."""
        checkpoint = folder + "/ck"
        step, _ = checkpoint_files(checkpoint)
        need(step >= self.step, f"from step {self.step} back to {step}")
        trace = folder + "/trace.json"
        if os.path.exists(trace):
            with open(trace) as file:
                json.load(file)
        for turn in range(2):
            for name in os.listdir(checkpoint):  # a lock whose writer died before it wrote a word may be removed only later
                if turn and name.startswith(".lock.json") and not os.path.getsize(f"{checkpoint}/{name}"):
                    os.utime(f"{checkpoint}/{name}", (1, 1))
            status, err = train(self.build, self.plan, folder, 2 * EPOCHS + 1 + turn, self.ranks)
            need(status == 0, f"--resume ends with {status}: {err}")
            if not unneeded(checkpoint):
                break
        need(not unneeded(checkpoint), f"these files stay: {unneeded(checkpoint)}")
        for name, text in OURS.items():
            with open(f"{checkpoint}/{name}") as file:
                need(file.read() == text, f"{name} is changed")
        return step


# ---- disturbed calls --------------------------------------------------------------------------------------

def preload(folder, log, build, **fault):
    return {"LD_PRELOAD": build + "/tests/faults/failing_calls.so", "CLEAVE_FAULTS": folder, "CLEAVE_FAULT_LOG": log,
            **{"CLEAVE_FAULT_" + name.upper(): str(value) for name, value in fault.items()}}


def read_log(log):
    """Every call as (rank, number, call, result, names, data)."""
    with open(log) as lines:
        words = [line.rstrip("\n").split(" ") for line in lines]
    return [(int(w[0]), int(w[1]), w[2], int(w[3]), w[4:-1], bytes.fromhex(w[-1])) for w in words]


def undisturbed(folders):
    folder = folders.copy()
    log = folder + ".log"
    status, err = train(folders.build, folders.plan, folder, 2 * EPOCHS, folders.ranks, preload(folder, log, folders.build))
    need(status == 0, f"training ends with {status}: {err}")
    return folder, read_log(log)


def disturbed(folders, part, parts, done, keep):
    _, calls = undisturbed(folders)
    cases = [(rank, number, call, names, kind) for rank, number, call, _, names, _ in calls for kind in KINDS[call]]
    random.Random(1).shuffle(cases)
    failed = 0
    for rank, number, call, names, kind in cases[part::parts]:
        folder = folders.copy()
        fault = preload(folder, folder + ".log", folders.build, at=number, kind=kind, rank=rank if folders.ranks > 1 else "")
        what = f"{folders.ranks} ranks, rank {rank}, call {number}, {call} of {os.path.basename(names[0])[:40]}: {kind}"
        try:
            status, err = train(folders.build, folders.plan, folder, 2 * EPOCHS, folders.ranks, fault)
            need(status in ((-9, 3) if kind == "kill" else (0, 2, 3)), f"ends with {status}: {err[-600:]}")
            need(status in (0, -9) or "error: " in err, f"does not say what failed: {err[-600:]}")
            need("internal" not in err and "terminate" not in err, err[-600:])
            # A name that is given is given, whatever is reported; and a removal is no reason to end.
            given = call == "rename" and (kind in ("done", "twice") or kind == "doubt" and names[1].endswith("/manifest.json"))
            need(status == 0 or not (given or call == "unlink" and kind != "kill"), f"ends with {status}: {err[-600:]}")
            if call == "unlink" and kind == "fail" and "step-" in names[0] and "/.step" not in names[0]:
                need("warning: " in err and os.path.basename(names[0]) in err, f"no warning: {err[-600:]}")
            step = folders.check(folder)
            need(status != 0 or step == 2 * folders.step, f"ends with 0 at step {step}")
            done[f"{call}: {kind}"] += 1
        except (Broken, OSError, ValueError) as error:
            failed += 1
            print(f"{what}: {error}", flush=True)
            if keep:
                continue
        shutil.rmtree(folder)
    return failed


# ---- crashes ----------------------------------------------------------------------------------------------

class Disk:
    """The folder after the calls of a log, as far as they are on the disk."""

    def __init__(self, before):
        self.names, self.contents = {}, []  # name -> index of contents
        for place, _, files in os.walk(before):
            for name in files:
                with open(os.path.join(place, name), "rb") as file:
                    self.names[os.path.join(place, name)] = self.add(file.read())
        self.synced = {index: len(data) for index, data in enumerate(self.contents)}  # bytes that no crash can lose

    def add(self, data=b""):
        self.contents.append(data)
        return len(self.contents) - 1

    def write(self, to):
        for name, index in self.names.items():
            os.makedirs(os.path.dirname(to + name), exist_ok=True)
            with open(to + name, "wb") as file:
                file.write(self.contents[index])


def states(calls, before):
    """What may be on the disk after a crash at any time: (call, what is lost, names -> contents), each once."""
    seen = set()
    pending = []  # changes of names since the folder was synced, as indices of calls
    for end in range(len(calls) + 1):
        for lost, contents in losses(pending):
            disk = replay(calls[:end], before, lost, contents)
            state = tuple(sorted((name, zlib.crc32(disk.contents[index])) for name, index in disk.names.items()))
            if state not in seen:
                seen.add(state)
                yield end, lost, contents, disk
        if end < len(calls):
            _, _, call, result, names, _ = calls[end]
            if result >= 0 and call in ("create", "rename", "unlink"):
                pending.append(end)
            if call == "fsync" and os.path.isdir(names[0]):
                pending = []


def losses(pending):
    """Sets of changes of names that are lost, and whether contents that were not synced are lost, too."""
    sets = [frozenset()] + [frozenset([one]) for one in pending] + [frozenset(pending[i:]) for i in range(len(pending))]
    return [(lost, contents) for lost in dict.fromkeys(sets) for contents in (False, True)]


def replay(calls, before, lost, contents):
    disk = Disk(before)
    live = dict(disk.names)  # as the program sees the folder
    for i, (_, _, call, result, names, data) in enumerate(calls):
        if result < 0:
            continue
        if call == "create":
            live[names[0]] = disk.add()
            if i not in lost:
                disk.names[names[0]] = live[names[0]]
        elif call == "write":
            disk.contents[live[names[0]]] += data[:result]
        elif call == "fsync" and names[0] in live:
            disk.synced[live[names[0]]] = len(disk.contents[live[names[0]]])
        elif call == "rename":
            live[names[1]] = live.pop(names[0])
            if i not in lost and disk.names.get(names[0]) == live[names[1]]:
                disk.names[names[1]] = disk.names.pop(names[0])
        elif call == "unlink":
            live.pop(names[0], None)
            if i not in lost:
                disk.names.pop(names[0], None)
    if contents:
        disk.contents = [data[:disk.synced.get(index, 0)] for index, data in enumerate(disk.contents)]
    return disk


def crashes(folders, part, parts, done, keep):
    run, calls = undisturbed(folders)
    before = f"{folders.place}/case{folders.cases}"  # the names that the log has
    shutil.rmtree(before)
    shutil.copytree(folders.before, before)
    failed = 0
    for number, (end, lost, contents, disk) in enumerate(states(calls, before)):
        if number % parts != part:
            continue
        folder = folders.copy()
        shutil.rmtree(folder)
        disk.write(folder + "/root")
        try:
            folders.check(folder + "/root" + before)
            done["crash: " + ("nothing lost" if not lost and not contents else "names lost" if not contents else
                              "contents lost" if not lost else "both lost")] += 1
        except (Broken, OSError, ValueError) as error:
            failed += 1
            names = [(calls[i][2], [os.path.basename(name) for name in calls[i][4]]) for i in lost]
            print(f"crash after call {end} of {len(calls)}, lost {names}{', contents' if contents else ''}: {error}", flush=True)
            if keep:
                continue
        shutil.rmtree(folder)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--part", nargs=2, type=int, default=[0, 1], metavar=("I", "OF"))
    parser.add_argument("--keep", action="store_true", help="leaves the folders of cases that fail")
    options = parser.parse_args()
    build, (part, parts) = os.path.abspath(options.build), options.part
    began, done, failed = time.monotonic(), collections.Counter(), 0
    place = tempfile.mkdtemp(prefix="cleave-calls-")
    for ranks in (1, 2):
        folders = Folders(build, f"{place}/{ranks}", ranks)
        failed += disturbed(folders, part, parts, done, options.keep)
        if ranks == 1:
            failed += crashes(folders, part, parts, done, options.keep)
    if not (failed and options.keep):
        shutil.rmtree(place)
    for what, times in sorted(done.items()):
        print(f"{times:8}  {what}")
    print(f"disturbed calls: {sum(done.values()) + failed} cases, {failed} failed, {time.monotonic() - began:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
