#!/usr/bin/env python3
"""Ranks that cannot meet: a port that is taken, ranks that differ, ranks that never come.
usage: see tests/launchers/ranks.py"""
import os
import pathlib
import socket
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "launchers"))
import ranks

SOON = 5  # seconds in which whoever is wrong is told so


class MeetingTest(ranks.RankTest):
    def by_hand(self, rank, world, port, *words, **variables):
        """One rank, with the variables that a person would set."""
        return self.rank(*words, RANK=rank, WORLD_SIZE=world, LOCAL_RANK=rank, MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                         **variables)

    def told_soon(self, job, code, *words, within=SOON):
        """The error, which came soon after `job` was started, and says all of `words`."""
        told = self.ends(job, code, within)
        for word in words:
            self.assertIn(word, told)
        self.assertLess(job.exit_seconds, within)
        return told


class Ports(MeetingTest):
    def test_the_port_is_taken(self):
        for address, family in (("127.0.0.1", socket.AF_INET), ("::", socket.AF_INET6)):
            with self.subTest(address=address), socket.socket(family) as holder:
                holder.bind((address, 0))
                holder.listen()
                port = holder.getsockname()[1]
                words = (f"port {port}", f"(pid {os.getpid()})", "fix: ")
                self.told_soon(self.launch(2, "sum", flags=["--master", f"127.0.0.1:{port}"]), ranks.CONFIG, *words)
                self.told_soon(self.rank("-n", 2, "--master", f"127.0.0.1:{port}", "sum"), ranks.CONFIG, *words)
                self.told_soon(self.by_hand(0, 2, port, "sum"), ranks.CONFIG, *words)

    def test_something_else_answers_there(self):
        """A port where somebody listens who speaks another language, or none."""
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            job = self.by_hand(1, 2, port, "--init-timeout", 2, "sum")
            told = self.ends(job, ranks.PEER_LOST, 10)
            self.assertIn(f"cannot reach the store at tcp://127.0.0.1:{port}", told)
            self.assertIn("does not answer as a store", told)

    def second_job(self, own_error, first=None, second=None):
        port = ranks.free_port()
        running = [self.by_hand(r, 2, port, "steps", self.folder / "enough", TRIREME_JOB_ID=first) for r in range(2)]
        for job in running:
            job.ready(1)
        late = [self.by_hand(r, 2, port, "steps", 1, TRIREME_JOB_ID=second) for r in range(2)]
        self.told_soon(late[0], ranks.CONFIG, f"port {port}", f"(pid {running[0].pid})")
        self.told_soon(late[1], ranks.CONFIG, own_error)
        (self.folder / "enough").touch()
        for job in running:
            self.ends(job, 0, 20)

    def test_two_jobs_with_names_on_one_port(self):
        self.second_job("belongs to job mine, this is job yours", first="mine", second="yours")

    def test_two_jobs_without_names_on_one_port(self):
        self.second_job("rank 1 of 2 has joined this job already")

    def test_two_launchers_on_one_port(self):
        port = ranks.free_port()
        flags = ["--master", f"127.0.0.1:{port}"]
        first = self.launch(2, "steps", self.folder / "enough", flags=flags)
        first.ready(2)
        self.told_soon(self.launch(2, "sum", flags=flags), ranks.CONFIG, f"port {port}", f"(pid {first.pid})")
        (self.folder / "enough").touch()
        self.ends(first, 0, 20)


class Disagree(MeetingTest):
    def test_world_size(self):
        for sizes in ((2, 3), (3, 2)):
            with self.subTest(sizes=sizes):
                port = ranks.free_port()
                for job in [self.by_hand(r, size, port, "sum") for r, size in enumerate(sizes)]:
                    self.told_soon(job, ranks.CONFIG, f"world size: rank 0 has {sizes[0]}, rank 1 has {sizes[1]}")

    def test_one_of_them_believes_to_be_alone(self):
        port = ranks.free_port()
        alone = self.by_hand(0, 1, port, "steps", self.folder / "enough")
        self.told_soon(self.by_hand(1, 2, port, "sum"), ranks.CONFIG, "world size: rank 0 has 1, rank 1 has 2")
        self.told_soon(self.by_hand(1, 1, port, "sum"), ranks.CONFIG, "RANK = 1: must be below WORLD_SIZE = 1")
        (self.folder / "enough").touch()
        self.ends(alone, 0, 20)

    def launch_with_one_different(self, different, *words, ranks_=3):
        """Rank 1 gets one more shell command before the program."""
        script = 'if [ "$RANK" = 1 ]; then ' + different + '; fi; exec "$0" "$@"'
        return self.launch(ranks_, *words, program=["sh", "-c", script, ranks.options.program])

    def test_config(self):
        job = self.launch_with_one_different('set -- --claim optimizer.lr=2 "$@"', "--claim", "model.layers=4", "sum")
        self.told_soon(job, ranks.CONFIG, "optimizer.lr: rank 0 has (none), rank 1 has 2")
        job = self.launch_with_one_different('set -- "$@" --claim optimizer.lr=2', "sum", "--claim", "optimizer.lr=1")
        told = self.told_soon(job, ranks.CONFIG, "optimizer.lr: rank 0 has 1, rank 1 has 2")
        self.assertNotIn("threads:", told)
        self.figure("another config on one of 3 ranks -> exit, from the start", job.exit_seconds)

    def test_threads(self):
        job = self.launch_with_one_different("export OMP_NUM_THREADS=2", "sum")
        self.told_soon(job, ranks.CONFIG, "threads: rank 0 has 1, rank 1 has 2")

    def test_layout(self):
        job = self.launch_with_one_different('set -- --tp 2 "$@"', "sum", ranks_=4)
        self.told_soon(job, ranks.CONFIG, "layout: rank 0 has", "rank 1 has")

    def test_every_rank_is_told(self):
        port = ranks.free_port()
        jobs = [self.by_hand(r, 3, port, *(["--claim", "data.seed=7"] if r == 2 else []), "sum") for r in range(3)]
        for job in jobs:
            self.told_soon(job, ranks.CONFIG, "data.seed: rank 0 has (none), rank 2 has 7")


class NeverComes(MeetingTest):
    def test_a_rank(self):
        port = ranks.free_port()
        jobs = [self.by_hand(r, 4, port, "--init-timeout", 3, "sum") for r in (0, 2)]
        for job in jobs:
            told = self.ends(job, ranks.HANG, 8)
            self.assertGreater(job.exit_seconds, 3)
            self.assertIn("2 of 4 ranks have come\n  came: 0, 2\n  missing: 1, 3\n", told)
            self.figure("two ranks that never come (--init-timeout 3) -> exit, from the start", job.exit_seconds)

    def test_a_rank_of_a_launcher(self):
        script = '[ "$RANK" = 2 ] && exec sleep 60; exec "$0" "$@"'
        job = self.launch(3, "--init-timeout", 3, "sum", program=["sh", "-c", script, ranks.options.program])
        told = self.ends(job, ranks.HANG, 8)
        self.assertIn("came: 0, 1\n", told)
        self.assertIn("missing: 2\n", told)

    def test_the_host_of_the_store(self):
        port = ranks.free_port()
        jobs = [self.by_hand(r, 3, port, "--init-timeout", 3, "sum") for r in (1, 2)]
        for job in jobs:
            told = self.ends(job, ranks.PEER_LOST, 8)
            self.assertIn(f"cannot reach the store at tcp://127.0.0.1:{port}", told)
            self.assertGreater(job.exit_seconds, 2)
            self.figure("nobody hosts the store (--init-timeout 3) -> exit, from the start", job.exit_seconds)

    def test_a_second_host(self):
        job = self.launch(2, "--init-timeout", 3, "sum",
                          flags=["--nnodes", 2, "--node-rank", 0, "--master", f"127.0.0.1:{ranks.free_port()}"])
        told = self.ends(job, ranks.HANG, 8)
        self.assertIn("came: 0, 1\n", told)
        self.assertIn("missing: 2, 3\n", told)

    def test_a_name_that_nobody_has(self):
        job = self.rank("--init-timeout", 3, "sum", RANK=1, WORLD_SIZE=2, LOCAL_RANK=1, MASTER_ADDR="no-such-host.invalid",
                        MASTER_PORT=29500)
        told = self.ends(job, ranks.PEER_LOST, 10)
        self.assertIn("no-such-host.invalid:29500", told)


if __name__ == "__main__":
    ranks.main()
