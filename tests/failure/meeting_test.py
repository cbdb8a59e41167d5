#!/usr/bin/env python3
"""Ranks that cannot meet: a port that is taken, ranks that differ, ranks that never come.
usage: see tests/launchers/ranks.py"""
import os
import pathlib
import resource
import socket
import sys

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
        self.assertLess(job.seconds(), within)
        return told


class Ports(MeetingTest):
    def test_the_port_is_taken(self):
        for address, family in (("127.0.0.1", socket.AF_INET), ("::", socket.AF_INET6)):
            with self.subTest(address=address), socket.socket(family) as holder:
                holder.bind((address, 0))
                holder.listen()
                port = holder.getsockname()[1]
                for job in [self.launch(2, "sum", flags=["--master", f"127.0.0.1:{port}"]),
                            self.rank("-n", 2, "--master", f"127.0.0.1:{port}", "sum"),
                            self.by_hand(0, 2, port, "sum")]:
                    self.told_soon(job, ranks.CONFIG, f"port {port}", f"(pid {os.getpid()})", "fix: ")

    def test_two_jobs_on_one_port(self):
        for first, second, error in (("mine", "yours", "belongs to job mine, this is job yours"),
                                     (None, None, "rank 1 of 2 has joined this job already")):
            with self.subTest(names=(first, second)):
                port, enough = ranks.free_port(), self.folder / f"enough of {first}"
                running = [self.by_hand(r, 2, port, "steps", enough, TRIREME_JOB_ID=first) for r in range(2)]
                for job in running:
                    job.ready(1)
                late = [self.by_hand(r, 2, port, "sum", TRIREME_JOB_ID=second) for r in range(2)]
                self.told_soon(late[0], ranks.CONFIG, f"port {port}", f"(pid {running[0].pid})")
                self.told_soon(late[1], ranks.CONFIG, error)
                enough.touch()
                for job in running:
                    self.ends(job, 0, 20)

    def test_two_launchers_on_one_port(self):
        port, enough = ranks.free_port(), self.folder / "enough"
        flags = ["--master", f"127.0.0.1:{port}"]
        first = self.launch(2, "steps", enough, flags=flags)
        first.ready(2)
        self.told_soon(self.launch(2, "sum", flags=flags), ranks.CONFIG, f"port {port}", f"(pid {first.pid})")
        enough.touch()
        self.ends(first, 0, 20)


class Strangers(MeetingTest):
    def test_a_thousand_idle_connections(self):
        """Before the ranks come, and while they work."""
        port, enough = ranks.free_port(), self.folder / "enough"
        job = self.launch(3, "steps", enough, flags=["--master", f"127.0.0.1:{port}"],
                          program=["sh", "-c", f'while [ ! -e {self.folder}/go ]; do sleep 0.02; done; exec "$0" "$@"',
                                   ranks.options.program])
        idle = []

        def crowd(count):
            for _ in range(count):
                idle.append(socket.socket())
                idle[-1].connect(("127.0.0.1", port))
        self.addCleanup(lambda: [each.close() for each in idle])
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        ranks.wait_until("the store listens", lambda: connects(port), 20)
        crowd(500)
        (self.folder / "go").touch()
        job.ready(3, within=20)
        crowd(500)
        # Those that the store has not accepted yet are open, too.
        left = lambda: sum(1 for each in idle if still_open(each))
        ranks.wait_until(lambda: f"at most 128 connections, but there are {left()}", lambda: left() <= 128, 20)
        enough.touch()
        self.ends(job, 0, 20)

    def test_on_one_host_only_loopback_is_served(self):
        port, enough = ranks.free_port(), self.folder / "enough"
        job = self.launch(2, "steps", enough, flags=["--master", f"{socket.gethostname()}:{port}"])
        job.ready(2)
        listening = [line.split() for name in ("tcp", "tcp6") for line in pathlib.Path("/proc/net", name).read_text().splitlines()]
        self.assertEqual([words[1] for words in listening if words[1].endswith(f":{port:04X}") and words[3] == "0A"],
                         [f"0100007F:{port:04X}"])
        enough.touch()
        self.ends(job, 0, 20)


def connects(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def still_open(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


class Disagree(MeetingTest):
    def test_world_size(self):
        for sizes in ((2, 3), (3, 2)):
            with self.subTest(sizes=sizes):
                port = ranks.free_port()
                for job in [self.by_hand(r, size, port, "sum") for r, size in enumerate(sizes)]:
                    self.told_soon(job, ranks.CONFIG, f"world size: rank 0 has {sizes[0]}, rank 1 has {sizes[1]}")

    def test_one_of_them_believes_to_be_alone(self):
        port, enough = ranks.free_port(), self.folder / "enough"
        alone = self.by_hand(0, 1, port, "steps", enough)
        self.told_soon(self.by_hand(1, 2, port, "sum"), ranks.CONFIG, "world size: rank 0 has 1, rank 1 has 2")
        self.told_soon(self.by_hand(1, 1, port, "sum"), ranks.CONFIG, "RANK = 1: must be below WORLD_SIZE = 1")
        enough.touch()
        self.ends(alone, 0, 20)

    def launch_with_one_different(self, different, *words, ranks_=3):
        """Rank 1 gets one more shell command before the program."""
        script = 'if [ "$RANK" = 1 ]; then ' + different + '; fi; exec "$0" "$@"'
        return self.launch(ranks_, *words, program=["sh", "-c", script, ranks.options.program])

    def test_config(self):
        job = self.launch_with_one_different('set -- "$@" --claim optimizer.lr=2', "sum", "--claim", "optimizer.lr=1")
        told = self.told_soon(job, ranks.CONFIG, "rank 1 differs from rank 0", "optimizer.lr: rank 0 has 1, rank 1 has 2")
        self.assertNotIn("threads:", told)
        self.figure("another config on one of 3 ranks -> exit, from the start", job.seconds())

    def test_layout(self):
        job = self.launch_with_one_different('set -- --tp 2 "$@"', "sum", ranks_=4)
        self.told_soon(job, ranks.CONFIG, "layout: rank 0 has pp=1 dp=4 cp=1 tp=1", "rank 1 has pp=1 dp=2 cp=1 tp=2")

    def test_hosts_with_different_core_counts(self):
        self.ends(self.launch_with_one_different("export OMP_NUM_THREADS=$((OMP_NUM_THREADS + 1))", "sum", ranks_=2), 0, 20)

    def test_every_rank_is_told(self):
        """Even though the store ends with rank 0, which hosts it."""
        port = ranks.free_port()
        jobs = [self.by_hand(r, 3, port, *(["--claim", "data.seed=7"] if r == 2 else []), "sum") for r in range(3)]
        for job in jobs:
            self.told_soon(job, ranks.CONFIG, "data.seed: rank 0 has (none), rank 2 has 7")


class NeverComes(MeetingTest):
    """Several jobs at once, since all they do is wait."""

    def test_ranks(self):
        script = '[ "$RANK" = 2 ] && exec sleep 60; exec "$0" "$@"'
        timeout = ["--init-timeout", 3]
        port = ranks.free_port()
        by_hand = [self.by_hand(r, 4, port, *timeout, "sum") for r in (0, 2)]
        launched = self.launch(3, *timeout, "sum", program=["sh", "-c", script, ranks.options.program])
        one_host = self.launch(2, *timeout, "sum",
                               flags=["--nnodes", 2, "--node-rank", 0, "--master", f"127.0.0.1:{ranks.free_port()}"])
        for job, lines in ((by_hand[0], "2 of 4 ranks have joined\n  joined: 0, 2\n  missing: 1, 3\n"),
                           (by_hand[1], "2 of 4 ranks have joined\n  joined: 0, 2\n  missing: 1, 3\n"),
                           (launched, "2 of 3 ranks have joined\n  joined: 0, 1\n  missing: 2\n"),
                           (one_host, "2 of 4 ranks have joined\n  joined: 0, 1\n  missing: 2, 3\n")):
            with self.subTest(lines=lines):
                told = self.ends(job, ranks.HANG, 10).replace("\n  | ", "\n")  # a launcher quotes its rank
                self.assertIn(lines, told)
                self.assertGreater(job.seconds(), 3)
                self.figure("ranks that never come (--init-timeout 3) -> exit, from the start", job.seconds())

    def test_the_store(self):
        with socket.socket() as silent:  # somebody listens, and says nothing
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            other, nobody = silent.getsockname()[1], ranks.free_port()
            jobs = [(self.by_hand(1, 2, nobody, "--init-timeout", 3, "sum"), f"127.0.0.1:{nobody}", ""),
                    (self.by_hand(2, 3, other, "--init-timeout", 3, "sum"), f"127.0.0.1:{other}", "does not answer as a store"),
                    (self.rank("--init-timeout", 3, "sum", RANK=1, WORLD_SIZE=2, LOCAL_RANK=1, MASTER_PORT=29500,
                               MASTER_ADDR="no-such-host.invalid"), "no-such-host.invalid:29500", "")]
            for job, address, words in jobs:
                with self.subTest(address=address):
                    told = self.ends(job, ranks.PEER_LOST, 12)
                    self.assertIn(f"cannot reach the store at tcp://{address}", told)
                    self.assertIn(words, told)
                    self.figure(f"no store (--init-timeout 3) at {address} -> exit, from the start", job.seconds())


if __name__ == "__main__":
    ranks.main()
