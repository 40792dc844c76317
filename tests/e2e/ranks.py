#!/usr/bin/env python3
"""Tests of ranks that a launcher starts as processes: how they connect, and their messages at the end. Standard library only.

ranks.py --build BUILD [unittest arguments]
"""
import os, re, shutil, signal, socket, struct, subprocess, threading, time

import e2e
import programs
from e2e import Case
from programs import DIGITS, end_ranks, start_ranks


class Launched(Case):
    def connected(self, started):
        """Waits until the heartbeat threads of all ranks run."""
        def threads(pid):
            names = []
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/comm") as name:
                    names.append(name.read().strip())
            return names

        deadline = time.monotonic() + 60
        while not all("the heartbeat" in threads(process.pid) for process in started):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_a_secret_through_the_launchers_store(self):
        """torchrun uses the port for its own store: rank 0 writes its port there, and a secret if none was given."""
        values, changed = {}, threading.Condition()

        def serve(client):  # torch.distributed.TCPStore's requests, as AgentStore makes them
            with client, client.makefile("rb") as said:
                number = lambda: struct.unpack("=Q", said.read(8))[0]
                text = lambda: said.read(number())
                while query := said.read(1):
                    if query == b"\0":
                        said.read(4)
                    elif query == b"\1":
                        key, value = text(), text()
                        with changed:
                            values[key] = value
                            changed.notify_all()
                    elif query == b"\6":
                        keys = [text() for _ in range(number())]
                        with changed:
                            changed.wait_for(lambda: all(key in values for key in keys), 60)
                        client.sendall(b"\0")
                    else:
                        value = values[text()]
                        client.sendall(struct.pack("=Q", len(value)) + value)

        def accept(listener):
            while True:
                try:
                    client = listener.accept()[0]
                except OSError:
                    return
                threading.Thread(target=serve, args=[client], daemon=True).start()

        for given, pattern in (({}, rb"\d+ [0-9a-f]{32}"), ({"CLEAVE_SECRET": "ours"}, rb"\d+ ")):
            values.clear()
            with socket.create_server(("127.0.0.1", 0)) as listener:
                threading.Thread(target=accept, args=[listener], daemon=True).start()
                started = start_ranks("mlp", *e2e.Ranks.common, "--steps", 2, ranks=2, port=listener.getsockname()[1],
                                      environment=lambda rank: {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "r", **given})
                ends = end_ranks(started)
            self.assertEqual([status for status, _ in ends], [0, 0], ends)
            self.assertRegex(values[b"cleave/r/"], b"^" + pattern + b"$")

    def test_all_ranks_without_a_mesh(self):
        """A training is searched for the launcher's ranks; evaluation and prediction have a copy of the model on each."""
        ck, data = self.path("ck"), ["--data", DIGITS, "--threads", 1]
        for command in (["train", *data, "--steps", 2, "--checkpoint", ck, "--overwrite", "--quiet"], ["eval", *data, "--checkpoint", ck],
                        ["predict", *data, "--checkpoint", ck, "-o", self.path("p.npy")]):
            alone, together = (re.sub(r"[\d,]+ samples/s", "", self.ok("mlp", *command, ranks=ranks)) for ranks in (0, 2))
            self.assertEqual(alone, together, command)

    def test_every_command(self):
        """Under mpirun, and with torchrun's environment, all ranks end with status 0, and one prints what one process prints."""
        ck, plan, data = self.path("ck"), self.path("p.plan"), ["--data", DIGITS]
        split = ["--mesh", "tp=2", "--threads", 1]
        for command in (["mlp", "plan", *split, "-o", plan], ["mlp", "train", *data, *split, "--steps", 2, "--checkpoint", ck, "--overwrite", "--quiet"],
                        ["mlp", "eval", *data, *split, "--checkpoint", ck], ["mlp", "eval", *data, *split, "--checkpoint", ck, "--json"],
                        ["mlp", "predict", *data, *split, "--checkpoint", ck, "-o", self.path("p.npy")],
                        ["mlp", "graph", *split, "-o", self.path("g.mlir")], ["mlp", "data", *data],
                        ["cleave-run", plan, *data, "--steps", 2, "--quiet"], ["cleave-run", plan, *data, "--eval", "--checkpoint", ck]):
            lines = len(self.ok(*command).splitlines())
            self.assertEqual(len(self.ok(*command, ranks=2).splitlines()), lines, command)
            ends = end_ranks(start_ranks(*command, ranks=2))
            self.assertEqual([status for status, _ in ends], [0, 0], (command, ends))

    def test_ranks_that_are_ended(self):
        """Ranks get SIGTERM while rank 0 compiles. The others report which rank was ended and by which signal. If all are
        ended, each reports its own signal."""
        for ended in ([0], [1], [2], [0, 1, 2]):
            started = start_ranks("resnet", "train", "--depth", 50, "--data", "synthetic", "--mesh", "dp=3", "--batch", 12, ranks=3)
            self.connected(started)
            time.sleep(0.1)
            for rank in ended:
                started[rank].send_signal(signal.SIGTERM)
            ends = end_ranks(started, timeout=60)
            self.assertEqual([status for status, _ in ends], [3] * 3, ends)
            said = [err for _, err in ends]
            for rank in ended:
                if said[rank] or rank == 0 or len(ended) == 1:  # rank 0's message may arrive before the signal
                    self.assertIn((f"rank {rank}: " if rank else "error: ") + "interrupted by SIGTERM", said[rank])
            for err in said:
                self.assertNotIn("without a goodbye", err)
                if len(ended) == 1 and err and "interrupted by" not in err:
                    self.assertIn(f"rank {ended[0]} failed: it was ended by SIGTERM", err)
            self.assertTrue(said[0], said) # rank 0 always reports the reason

    def test_one_rank_twice(self):
        """A second process with RANK=1 is refused at once, also when the job has long begun, and the job runs on."""
        port = programs.free_port()
        started = start_ranks("mlp", *e2e.Ranks.common, "--epochs", 100000, ranks=2, port=port)
        try:
            self.connected(started)
            began = time.monotonic()
            second = start_ranks("mlp", *e2e.Ranks.common[:-2], "--epochs", 100000, ranks=2, port=port)
            ends = end_ranks(second, timeout=60)
            self.assertLess(time.monotonic() - began, 20)
            self.assertEqual([status for status, _ in ends], [3, 2], ends)
            self.assertIn(f"MASTER_PORT={port}: another process of this host has taken the port (perhaps a second one with RANK=0)",
                          ends[0][1])
            self.assertIn("error: rank 1: RANK=1 is used twice: the 2 ranks of the job", ends[1][1])
            self.assertEqual([process.poll() for process in started], [None, None])
        finally:
            programs.kill(started)

    def test_addresses(self):
        """Every rank says at once that MASTER_ADDR does not resolve. An IPv6 address may have brackets."""
        wrong = lambda rank: {"MASTER_ADDR": "no-such-host.invalid"}
        began = time.monotonic()
        ends = end_ranks(start_ranks("mlp", *e2e.Ranks.common, "--steps", 1, ranks=3, environment=wrong))
        self.assertLess(time.monotonic() - began, 60)
        self.assertEqual([status for status, _ in ends], [2] * 3, ends)
        for rank, (_, err) in enumerate(ends):
            self.assertIn("error: " + (f"rank {rank}: " if rank else "") + "MASTER_ADDR=no-such-host.invalid: the name does not resolve",
                          err)
        with socket.socket(socket.AF_INET6) as tried:
            try:
                tried.bind(("::1", 0))
            except OSError:
                self.skipTest("this machine has no IPv6")
        ends = end_ranks(start_ranks("mlp", *e2e.Ranks.common, "--steps", 1, ranks=2, environment=lambda rank: {"MASTER_ADDR": "[::1]"}))
        self.assertEqual([status for status, _ in ends], [0, 0], ends)

    def test_steps_of_slurm(self):
        """Tasks that srun starts without PMIx are refused by every command, with one message. One task, a batch script and a
        shell of salloc are one process, whose ranks are threads. Tasks with torchrun's variables are ranks."""
        def step(task, tasks, **more):
            return {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": str(tasks), "SLURM_STEP_TASKS_PER_NODE": str(tasks),
                    "SLURM_PROCID": str(task), "SLURM_NODEID": "0", "SLURM_NTASKS": str(tasks), **more}

        train, plan, ck = ["mlp", *e2e.Ranks.common, "--steps", 1], self.path("p.plan"), self.path("ck")
        for environment in ({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, step(0, 1, SLURM_NTASKS="4"),
                            step(0, 1, PMIX_RANK="0"), step(0, 1, PMI_RANK="0", PMI_SIZE="1"), step(3, 4, WORLD_SIZE="1")):
            self.ok(*train, "--checkpoint", ck, "--overwrite", environment=environment)
        self.ok("mlp", "plan", "--mesh", "dp=2", "-o", plan)
        for command in (train, ["mlp", "eval", "--data", DIGITS, "--checkpoint", ck], ["mlp", "graph", "-o", self.path("g.mlir")],
                        ["mlp", "plan", "--mesh", "dp=2", "-o", self.path("other.plan")], ["mlp", "data", "--data", DIGITS],
                        ["mlp", "check", "--data", DIGITS], ["cleave-run", plan, "--data", DIGITS]):
            for task in (0, 1):
                status, out, err = programs.run(*command, environment=step(task, 2))
                self.assertEqual((status, out), (2, ""), command)
                if task == 0:
                    self.assertRegex(err, r"\Aerror: srun started 2 tasks of this step without PMIx.*\n\Z", command)
                else:
                    self.assertEqual(err, "", command)
        self.assertFalse(os.path.exists(self.path("other.plan")))
        ends = end_ranks(start_ranks(*train, ranks=2, environment=lambda rank: step(rank, 2, PMI_RANK=rank, PMI_SIZE=2)))
        self.assertEqual([status for status, _ in ends], [0, 0], ends)

    def test_a_rank_of_mpirun_that_does_not_come(self):
        """The ranks that wait print their own numbers."""
        if not shutil.which("mpirun"):
            return
        script = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exec sleep 60; fi; exec "$@"'
        done = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", "/bin/sh", "-c", script, "sh",
                               os.path.join(programs.BIN, "mlp"), "train", "--data", DIGITS, "--mesh", "dp=3", "--timeout", "3"],
                              capture_output=True, text=True, errors="replace", timeout=60)
        self.assertNotEqual(done.returncode, 0)
        said = re.findall(r"error: mpi: (rank \d of \d) has waited for 3 s in MPI_Init", done.stderr)
        self.assertEqual(sorted(said), ["rank 0 of 3", "rank 2 of 3"], done.stderr)


if __name__ == "__main__":
    programs.main()
