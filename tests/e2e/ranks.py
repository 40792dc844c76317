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

    def test_ranks_that_are_ended(self):
        """Ranks get SIGTERM while rank 0 compiles. The others report which rank was ended and by which signal. If all are
        ended, each reports its own signal."""
        for ended in ([0], [1], [2], [0, 1, 2]):
            started = start_ranks("resnet", "train", "--depth", 50, "--data", "synthetic", "--mesh", "dp=3", "--batch", 12, ranks=3)
            deadline = time.monotonic() + 60
            while any(len(os.listdir(f"/proc/{p.pid}/task")) < 2 for p in started) and time.monotonic() < deadline:
                time.sleep(0.01) # a rank is connected once its heartbeat thread runs
            time.sleep(0.1)
            for rank in ended:
                started[rank].send_signal(signal.SIGTERM)
            ends = end_ranks(started, timeout=60)
            self.assertEqual([status for status, _ in ends], [3] * 3, ends)
            said = [err for _, err in ends]
            for rank in ended:
                self.assertIn((f"rank {rank}: " if rank else "error: ") + "interrupted by SIGTERM", said[rank])
            for err in said:
                self.assertNotIn("without a goodbye", err)
                if len(ended) == 1 and err and "interrupted by" not in err:
                    self.assertIn(f"rank {ended[0]} failed: it was ended by SIGTERM", err)
            self.assertTrue(said[0], said) # rank 0 always reports the reason

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
