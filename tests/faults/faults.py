#!/usr/bin/env python3
"""Random faults in running programs: ranks that die, stop, never start or have other options, and checkpoints whose
writers are killed or stopped. Uses only the standard library.

faults.py ranks|checkpoints --build BUILD [--seeds FIRST COUNT] [--keep]

A seed gives the same faults; the machine determines when they occur. Exit status: 0 no case failed, 1 a case failed.
"""
import argparse, collections, json, os, random, re, shutil, signal, subprocess, sys, tempfile, time, zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from programs import DIGITS, ROOT, free_port, torchrun_environment

BIN = ""
TIMEOUT = 3  # --timeout of every rank
BOUND = 25   # seconds within which all ranks must have ended after a fault


class Broken(Exception):
    """A condition of a case is violated."""


def need(holds, text):
    if not holds:
        raise Broken(text)


class ResolvedOptions:
    """One process per rank, with torchrun's environment or under mpirun. The standard error of each goes to a file."""

    def __init__(self, folder, ranks, args, mpi=False):
        """`args(rank)` is the command of a rank; None: the rank is never started."""
        self.logs = [os.path.join(folder, f"log{rank}") for rank in range(ranks)]
        self.port, self.mpi, self.processes, self.pids = free_port(), None, {}, {}
        if mpi:
            # A shell writes the rank's process number to a file, redirects its standard error, and becomes the program.
            script = os.path.join(folder, "rank.sh")
            with open(script, "w") as out:
                out.write(f'exec 2> {folder}/log$OMPI_COMM_WORLD_RANK\necho $$ > {folder}/made$OMPI_COMM_WORLD_RANK\n'
                          f'mv {folder}/made$OMPI_COMM_WORLD_RANK {folder}/pid$OMPI_COMM_WORLD_RANK\n'
                          'case $OMPI_COMM_WORLD_RANK in\n' +
                          "".join(f"{rank}) exec {' '.join(args(rank))};;\n" for rank in range(ranks)) + "esac\n")
            with open(os.path.join(folder, "mpirun"), "w") as log:
                start = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), "/bin/sh", script]
                self.mpi = subprocess.Popen(start, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            self.logs.append(os.path.join(folder, "mpirun"))
            for rank in range(ranks):
                said = os.path.join(folder, f"pid{rank}")
                until(lambda: os.path.exists(said), 30, "mpirun starts no ranks")
                with open(said) as pid:
                    self.pids[rank] = int(pid.read())
            return
        for rank in range(ranks):
            if args(rank) is None:
                continue
            environment = {**os.environ, **torchrun_environment(rank, ranks, self.port)}
            with open(self.logs[rank], "w") as log:
                self.processes[rank] = subprocess.Popen(args(rank), stdout=subprocess.DEVNULL, stderr=log,
                                                        stdin=subprocess.DEVNULL, env=environment)
            self.pids[rank] = self.processes[rank].pid

    def send(self, rank, which):
        if self.running(rank):
            os.kill(self.pids[rank], which)

    def running(self, rank):
        if self.mpi:
            try:
                with open(f"/proc/{self.pids[rank]}/stat") as stat:
                    return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
            except OSError:
                return False
        return rank in self.processes and self.processes[rank].poll() is None

    def statuses(self):
        """Exit statuses by rank; under mpirun only that of mpirun. None: still running."""
        return {"mpirun": self.mpi.poll()} if self.mpi else {rank: p.poll() for rank, p in self.processes.items()}

    def errors(self, rank):
        """The error lines of a rank's log."""
        if not os.path.exists(self.logs[rank]):
            return []
        with open(self.logs[rank], errors="replace") as lines:
            return [line.strip() for line in lines if line.startswith("error: ")]

    def text(self):
        out = ""
        for log in self.logs:
            if os.path.exists(log):
                with open(log, errors="replace") as lines:
                    out += lines.read()
        return "\n".join(line for line in out.splitlines() if "----" not in line)[-1500:]

    def end(self):
        for rank in self.pids:
            self.send(rank, signal.SIGKILL)
        for process in [*self.processes.values(), *([self.mpi] if self.mpi else [])]:
            if process is self.mpi and process.poll() is None:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
            process.wait()


def until(ready, seconds, otherwise):
    end = time.monotonic() + seconds
    while not ready():
        need(time.monotonic() < end, otherwise)
        time.sleep(0.01)


def run(*command, timeout=60):
    """Runs a program. Returns its exit status and standard error."""
    done = subprocess.run([os.path.join(BIN, command[0]), *map(str, command[1:])], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, errors="replace", timeout=timeout)
    return done.returncode, done.stderr


def mesh_of(chance, ranks):
    """A random mesh of this many ranks."""
    meshes = {1: ["dp=1"], 2: ["dp=2", "tp=2", "pp=2"], 3: ["dp=3", "tp=3", "pp=3"],
              4: ["dp=4", "dp=2,tp=2", "dp=2,pp=2", "tp=2,pp=2", "pp=4"]}
    return chance.choice(meshes[ranks])


# ---- ranks ----------------------------------------------------------------------------------------------

OTHER = [["--seed", "2"], ["--lr", "0.25"], ["--batch", "36"], ["--hidden", "30,30,30"],
         ["--precision", "bf16"], ["--epochs", "99999"]]


INTERRUPTS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU]
DEADLY = [signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGQUIT, signal.SIGALRM]


def ranks(seed, folder):
    """Injects a fault into one rank. All other ranks must end soon, with the same documented status, and say which rank is
    the cause and why."""
    chance = random.Random(seed)
    count = chance.randint(2, 4)
    victim = chance.randrange(count)
    mpi = chance.random() < 0.3 and shutil.which("mpirun") is not None
    fault = chance.choice(["kill", "kill", "stop", "stop", "interrupt", "pause", "slow", "options"] +
                          ([] if mpi else ["never"] + ["twice"] * (victim > 0)))
    delay = chance.choice([chance.uniform(0, 0.3), chance.uniform(0, 1.5), chance.uniform(1, 3)])
    other = chance.choice(OTHER)
    which = {"kill": chance.choice(DEADLY), "stop": signal.SIGSTOP, "pause": signal.SIGSTOP,
             "interrupt": chance.choice(INTERRUPTS)}.get(fault, 0)
    common = [os.path.join(BIN, "mlp"), "train", "--data", DIGITS, "--mesh", mesh_of(chance, count), "--hidden",
              "32,32,32", "--batch", "24", "--microbatches", str(chance.choice([1, 2])), "--threads", "1", "--quiet",
              "--timeout", str(TIMEOUT), "--epochs", "100000"]
    if chance.random() < 0.5:
        common += ["--checkpoint", os.path.join(folder, "ck")]

    def command(rank):
        if rank == victim and fault == "never":
            return None
        if rank != victim or fault != "options":
            return common
        at = common.index(other[0]) if other[0] in common else len(common)
        return common[:at] + other + common[at + 2:]

    name = signal.Signals(which).name if fault in ("kill", "interrupt") else fault
    what = f"{name} rank {victim} of {count} after {delay:.2f} s, {'mpirun' if mpi else 'sockets'}"
    job = ResolvedOptions(folder, count, command, mpi)
    try:
        time.sleep(delay)
        hit = job.running(victim) or fault in ("never", "options")
        need(hit, f"{what}: the rank had ended: {job.text()}")
        job.send(victim, which)
        if fault in ("pause", "slow"):
            return endured(job, fault, victim, count, chance, what)
        if fault == "twice":
            return used_twice(job, victim, count, common, folder, what)
        others = [rank for rank in range(count) if rank != victim]
        until(lambda: not any(map(job.running, others)), BOUND, f"{what}: others run on: {job.statuses()} {job.text()}")
        if fault == "stop":  # the rank continues after its job has ended
            job.send(victim, signal.SIGCONT)
        until(lambda: not job.running(victim), BOUND, f"{what}: the rank itself runs on: {job.text()}")
        if job.mpi:
            until(lambda: job.mpi.poll() is not None, BOUND, f"{what}: mpirun does not end")
        check_end(job, fault, which, victim, others, what)
        check_words(job, what)
    finally:
        job.end()
    return fault + (" (mpirun)" if mpi else "")


def check_end(job, fault, which, victim, others, what):
    """Statuses, and who is named as the cause."""
    text, statuses = job.text(), job.statuses()
    expected = 2 if fault == "options" else 3
    for rank in ["mpirun"] if job.mpi else others:
        need(statuses[rank] == expected or (job.mpi and fault != "options" and statuses[rank] not in (0, None)),
             f"{what}: rank {rank} ends with {statuses[rank]}: {text}")
    if job.mpi and "MPI_Init" in text:  # MPI does not say which rank is missing
        return
    said = [line for rank in others for line in job.errors(rank)]
    need(said or any(job.errors(rank) for rank in [victim]), f"{what}: nobody says anything: {text}")
    if job.mpi:  # mpirun ends the others at once; it says itself which process has ended and how
        said = [line for line in said if not line.endswith("interrupted by SIGTERM")]
    for line in said:
        cause = line.split(" while waiting for ")[0]
        named = {number for found in re.findall(r"rank (\d+(?:, \d+)*)", cause) for number in found.split(", ")}
        need(str(victim) in named or (fault == "interrupt" and "interrupted after step" in line) or
             (fault == "options" and victim == 0 and "was given another" in line), f"{what}: the rank is not named: {line}")
    met = not any("no connection from" in line or "no rank 0 answers" in line or "before all" in line for line in said)
    if fault in ("kill", "interrupt") and met and said and "interrupted after step" not in text:
        need(signal.Signals(which).name in "".join(said), f"{what}: the signal is not named: {text}")


def check_words(job, what):
    """No line may show a placeholder's number or a rank's name twice, or come from a crash."""
    for line in job.text().splitlines():
        if "MPI" in line or "mpi" in line or "[[" in line:  # the launcher's own words
            continue
        need(not re.search(r"(?<![\w.-])\d{9,}\b|[\s=]-\d", line), f"{what}: a placeholder is shown: {line}")
        need(not re.search(r"rank (\d+)(?: failed)?: (?:\w+: )?rank \1(?: failed)?:", line), f"{what}: a name twice: {line}")
        need(not re.search(r"error: .*error: |failed: rank \d+ failed|terminate called|egmentation|internal error", line),
             f"{what}: wrong words: {line}")


def endured(job, fault, victim, count, chance, what):
    """A rank that stops for less than the timeout, or is slow all the time, does not affect the job."""
    if fault == "pause":
        time.sleep(chance.uniform(0.1, 1.0))
    else:
        end = time.monotonic() + TIMEOUT + 2
        while time.monotonic() < end:
            job.send(victim, signal.SIGSTOP)
            time.sleep(0.4)
            job.send(victim, signal.SIGCONT)
            time.sleep(0.1)
    job.send(victim, signal.SIGCONT)
    time.sleep(TIMEOUT + 1 if fault == "pause" else 1)
    if not (job.mpi and "MPI_Init" in job.text()):  # which it has slowed beyond the timeout
        need(all(map(job.running, range(count))), f"{what}: the job ended: {job.text()}")
    job.send(chance.randrange(count), signal.SIGTERM)
    until(lambda: not any(map(job.running, range(count))), BOUND, f"{what}: is not interrupted: {job.text()}")
    check_words(job, what)
    return fault


def used_twice(job, victim, count, common, folder, what):
    """A second process with the number of a rank learns at once that it is used, and the job runs on if it had begun."""
    log = os.path.join(folder, "second")
    with open(log, "w") as out:
        second = subprocess.Popen(common, stdout=subprocess.DEVNULL, stderr=out, stdin=subprocess.DEVNULL,
                                  env={**os.environ, **torchrun_environment(victim, count, job.port)})
    job.logs.append(log)
    job.processes[count] = second
    job.pids[count] = second.pid
    until(lambda: not (job.running(count) and job.running(victim)), BOUND, f"{what}: nobody is refused: {job.text()}")
    text = job.text()
    need(f"RANK={victim} is used twice" in text, f"{what}: {text}")
    if not job.running(count):
        need(second.returncode == 2, f"{what}: the second ends with {second.returncode}: {text}")
    job.send(0, signal.SIGTERM)
    until(lambda: not any(map(job.running, range(count))), BOUND, f"{what}: the job does not end: {job.text()}")
    check_words(job, what)
    return "twice"


# ---- checkpoints ----------------------------------------------------------------------------------------

OURS = {"notes.txt": "mine", "step-precious.safetensors": "mine", "step-00000001.rank-0000.safetensors": "mine",
        "step-00000002-0123456789abcdef-1.rank-0000.safetensors": "another's", "sub/step-00000003.manifest.json": "{}"}


def checkpoint_files(checkpoint, name="manifest.json"):
    """The step of a checkpoint, and the names of the files that it and those that it keeps need. Raises Broken if one is not
    complete."""
    with open(os.path.join(checkpoint, name)) as file:
        manifest = json.load(file)
    names = {name}
    for piece, entry in manifest["files"].items():
        with open(os.path.join(checkpoint, piece), "rb") as file:
            data = file.read()
        need(len(data) == entry["bytes"] and zlib.crc32(data) == entry["crc32"], f"{piece} is not what the manifest says")
        names.add(piece)
    if name == "manifest.json":
        own = "step-{:08}-{}-{}.manifest.json".format(manifest["step"], manifest["run"], manifest["generation"])
        for each in [own, *(kept["manifest"] for kept in manifest["earlier"])]:
            names |= checkpoint_files(checkpoint, each)[1]
    return manifest["step"], names


def unneeded(checkpoint):
    """Names in the folder that neither its checkpoints need nor others own."""
    return set(os.listdir(checkpoint)) - checkpoint_files(checkpoint)[1] - {name.split("/")[0] for name in OURS}


def manifest_of(checkpoint):
    """The step of the last checkpoint, or None. Raises Broken if one of its files is not complete."""
    return checkpoint_files(checkpoint)[0] if os.path.exists(os.path.join(checkpoint, "manifest.json")) else None


def in_peace(read, otherwise):
    """Calls `read` until it succeeds, up to 50 times: files of an older checkpoint may be removed while they are read."""
    for _ in range(50):
        try:
            return read()
        except (OSError, ValueError, Broken) as error:
            last = error
            time.sleep(0.01)
    raise Broken(f"{otherwise}: {last}")


def checkpoints(seed, folder):
    """Four jobs in a row write checkpoints into one folder and are ended by signals. Each continues from the last
    checkpoint."""
    chance = random.Random(seed)
    checkpoint = os.path.join(folder, "ck")
    os.makedirs(os.path.join(checkpoint, "sub"))
    for name, text in OURS.items():
        with open(os.path.join(checkpoint, name), "w") as out:
            out.write(text)
    width, known, stopped, done = chance.choice(["8,8", "64,64", "64,64,64"]), None, [], collections.Counter()
    base = ["train", "--data", DIGITS, "--threads", "1", "--quiet", "--timeout", str(TIMEOUT), "--checkpoint",
            checkpoint, "--keep", str(chance.choice([1, 2, 3]))]
    try:
        for turn in range(4):
            count = chance.randint(1, 3)
            args = [*base, "--mesh", mesh_of(chance, count), "--epochs", "1000000"]
            batch = str(chance.choice([100, 500]))
            # `--resume-if-any` with the same options is what restarts a job.
            args += chance.choice([["--resume"], ["--resume-if-any", "--hidden", width]]) if known is not None else [
                "--hidden", width, "--batch", batch, *chance.choice([[], ["--resume-if-any"]])]
            args += chance.choice([[], ["--checkpoint-every", "2"], ["--checkpoint-every", "0.02s"]])
            place = os.path.join(folder, f"job{turn}")
            os.mkdir(place)
            job = ResolvedOptions(place, count, lambda rank: [os.path.join(BIN, "mlp"), *args])
            stopped.append(job)
            known = disturb(job, count, checkpoint, chance, known, done)
            known = usable(checkpoint, base, known, done)
        wake(stopped, checkpoint, done)
        if known is not None:
            found = in_peace(lambda: manifest_of(checkpoint), "the last checkpoint is not whole")
            need(found >= known, f"after stopped jobs woke: from step {known} back to {found}")
            usable(checkpoint, base, found, done)
    finally:
        for job in stopped:
            job.end()
    return done


def wake(jobs, checkpoint, done):
    """Continues stopped jobs. They must end, because other jobs have used the folder since. At most one, which had not
    begun to train when it was stopped, may take the folder's lock and train."""
    for job in jobs:
        for rank in job.pids:
            job.send(rank, signal.SIGCONT)
    runs = lambda job: any(map(job.running, job.pids))
    end = time.monotonic() + 2 * TIMEOUT + 2
    while any(map(runs, jobs)) and time.monotonic() < end:
        time.sleep(0.05)
    left = [job for job in jobs if runs(job)]
    need(len(left) <= 1, f"{len(left)} jobs that were stopped train on")
    for job in left:
        with open(os.path.join(checkpoint, "lock.json")) as lock:
            need(json.load(lock)["pid"] in job.pids.values(),
                 "a job that was stopped trains on without the folder's lock")
        done["a stopped job begins"] += 1
        job.send(0, signal.SIGTERM)
    until(lambda: not any(map(runs, left)), BOUND, "a job that was stopped is not interrupted")


def stands(pid):
    """Whether every thread of a process is stopped, or the process has ended."""
    try:
        states = [open(f"/proc/{pid}/task/{task}/stat").read().rsplit(")", 1)[1].split()[0]
                  for task in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return not os.path.exists(f"/proc/{pid}")
    return all(state in "TtZX" for state in states)


def disturb(job, count, checkpoint, chance, known, done):
    """Waits for a random moment and kills, interrupts or stops the job. Returns the step of the last checkpoint."""
    manifest = os.path.join(checkpoint, "manifest.json")
    early = chance.random() < 0.2  # before or at the first checkpoint
    fault = chance.choice(["kill all", "kill one", "stop one", "stop all", "interrupt"])
    victim = chance.randrange(count)
    which = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "interrupt": signal.SIGTERM}[fault.split()[0]]
    if not early:
        before = os.stat(manifest).st_mtime_ns if known is not None else None
        until(lambda: not any(map(job.running, range(count))) or
              (os.path.exists(manifest) and os.stat(manifest).st_mtime_ns != before), 60, "no checkpoint is written")
        need(any(map(job.running, range(count))), f"training ended: {job.text()}")
    time.sleep(chance.uniform(0, 0.4 if early else 0.15))
    moment = chance.random() < 0.6
    if moment:  # while a file is written
        end = time.monotonic() + 2
        while time.monotonic() < end and not any("tmp" in name for name in listed(checkpoint)):
            pass
    signalled = [rank for rank in range(count) if fault.endswith("all") or rank == victim]
    for rank in signalled:
        job.send(rank, which)
    if which == signal.SIGSTOP: # a call of the system, such as a rename, ends before its thread stops
        until(lambda: all(stands(job.pids.get(rank)) for rank in signalled), BOUND, f"{fault}: not stopped")
    writing = any("tmp" in name for name in listed(checkpoint))
    if not fault.startswith("stop"):
        until(lambda: not any(map(job.running, range(count))), BOUND, f"{fault}: {job.text()}")
    else:
        until(lambda: not any(job.running(r) for r in range(count) if r != victim and fault == "stop one"), BOUND,
              f"{fault} {victim}: others run on: {job.text()}")
    done[fault] += 1
    done["while a file was written"] += writing
    found = in_peace(lambda: manifest_of(checkpoint), "the last checkpoint is not whole")
    need(known is None or (found is not None and found >= known), f"{fault}: from step {known} back to {found}")
    return found


def listed(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def usable(checkpoint, base, known, done):
    """Checks that files of others are unchanged, and that the checkpoint can be evaluated and resumed. Returns the
    checkpoint's step after that."""
    for name, text in OURS.items():
        with open(os.path.join(checkpoint, name)) as file:
            need(file.read() == text, f"{name} is changed")
    if known is None:
        return None
    status, err = run("mlp", "eval", "--checkpoint", checkpoint, "--data", DIGITS)
    need(status == 0, f"eval ends with {status}: {err[-600:]}")
    status, err = run("mlp", *base, "--resume", "--steps", known + 1)
    need(status == 0, f"--resume from step {known} ends with {status}: {err[-600:]}")
    need(manifest_of(checkpoint) == known + 1, f"--resume from step {known} leaves step {manifest_of(checkpoint)}")
    # A process that was stopped, or killed before it wrote a word, may leave a lock that it had not yet taken.
    left = {name for name in unneeded(checkpoint) if not name.startswith(".lock.json-")}
    need(not left, f"these files stay: {left}")
    done["resumed"] += 1
    return known + 1


# ---- the run --------------------------------------------------------------------------------------------

def main():
    global BIN
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["ranks", "checkpoints"])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--seeds", nargs=2, type=int, default=[1, 6], metavar=("FIRST", "COUNT"))
    parser.add_argument("--keep", action="store_true", help="leaves the folder of a case that fails")
    options = parser.parse_args()
    BIN = os.path.join(os.path.abspath(options.build), "bin")
    began, counts, failed = time.monotonic(), collections.Counter(), 0
    for seed in range(options.seeds[0], sum(options.seeds)):
        folder = tempfile.mkdtemp(prefix="cleave-faults-")
        broken = False
        try:
            what = {"ranks": ranks, "checkpoints": checkpoints}[options.what](seed, folder)
            counts.update([what] if isinstance(what, str) else what)
        except (Broken, subprocess.TimeoutExpired) as error:
            broken = True
            failed += 1
            print(f"seed {seed}: {error}", flush=True)
        if not (broken and options.keep):
            shutil.rmtree(folder, ignore_errors=True)
    for what, times in sorted(counts.items()):
        print(f"{times:8}  {what}")
    print(f"faults in {options.what}: {options.seeds[1]} cases, {failed} failed, {time.monotonic() - began:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
