#!/usr/bin/env python3
"""Ranks and launchers that are killed or stopped in the middle of their work. Times count from the signal.
usage: see tests/launchers/ranks.py"""
import os
import pathlib
import random
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "launchers"))
import ranks

RANKS = 4


class DeathTest(ranks.RankTest):
    def harm(self, pid, number):
        self.harmed = time.monotonic()
        os.kill(pid, number)

    def since_harm(self):
        return time.monotonic() - self.harmed

    def all_gone(self, pids, within):
        """Seconds from the harm until none of them is left, which must be `within` so many."""
        ranks.wait_until(lambda: f"gone: ranks with pids {[pid for pid in pids if ranks.alive(pid)]}",
                         lambda: not any(map(ranks.alive, pids)), within, every=0.002)
        return self.since_harm()


class Kill(DeathTest):
    def kill_one(self, rank, number, after=0.0):
        job = self.launch(RANKS, "steps", 60)
        pids = job.ready(RANKS)
        time.sleep(after)
        self.harm(pids[rank], number)
        gone = self.all_gone(pids.values(), 1)
        told = self.ends(job, ranks.PEER_LOST, 5)
        name = signal.Signals(number).name
        self.figure(f"{name} of rank {rank} -> all gone", gone)
        self.assertIn(f"rank {rank} (pid {pids[rank]}) was killed by signal {number} ({name})", told)
        self.assertIn("all_reduce", told)  # what it was in
        for each in range(RANKS):
            calls = (job.logs / "hang" / f"rank{each}.txt").read_text()
            self.assertIn(f"rank {each} of {RANKS}", calls)
            self.assertIn("all_reduce sum f64[1024]", calls)

    def test_each_rank_in_turn(self):
        for rank in range(RANKS):
            with self.subTest(rank=rank):
                self.kill_one(rank, signal.SIGKILL)

    def test_crashes(self):
        for rank, number in ((1, signal.SIGSEGV), (0, signal.SIGABRT)):
            with self.subTest(signal=number):
                self.kill_one(rank, number)

    def test_at_any_moment(self):
        """While ranks start, meet, connect or work."""
        for trial in range(ranks.options.trials or 2):
            with self.subTest(trial=trial):
                job = self.launch(RANKS, "steps", 60)
                time.sleep(random.uniform(0.0, 2.0) if ranks.options.trials else 0.1 + 0.6 * trial)
                below = [pid for pid, name in ranks.descendants(job.pid).items() if name.startswith("trireme_rank")]
                if not below:
                    job.signal(signal.SIGKILL)
                    job.wait(5)
                    continue
                self.harm(random.choice(below), signal.SIGKILL)
                self.all_gone(below, 1)
                told = self.ends(job, ranks.PEER_LOST, 5)
                self.assertIn("was killed by signal 9 (SIGKILL)", told)


class Stop(DeathTest):
    deadline = 200

    def test_a_pause_shorter_than_the_timeout_is_none(self):
        job = self.launch(RANKS, "--timeout", 4, "steps", self.folder / "enough")
        pids = job.ready(RANKS)
        os.kill(pids[1], signal.SIGSTOP)
        time.sleep(2.5)
        os.kill(pids[1], signal.SIGCONT)
        time.sleep(0.2)
        (self.folder / "enough").touch()
        told = self.ends(job, 0, 20)
        self.assertNotIn("error", told)

    def stop_one(self, job, pids, rank):
        self.harm(pids[rank], signal.SIGSTOP)
        told = self.ends(job, ranks.HANG, 10)
        self.figure(f"SIGSTOP of rank {rank} (--timeout 5) -> exit", self.since_harm())
        self.assertIn(f"missing: rank {rank} does not answer", told)
        self.assertIn(f"pid {pids[rank]}", told)
        self.assertFalse(any(map(ranks.alive, pids.values())))

    def test_a_stopped_rank_is_named(self):
        for rank in range(RANKS) if ranks.options.trials else (0, 2):
            with self.subTest(rank=rank):
                job = self.launch(RANKS, "--timeout", 5, "steps", 60)
                self.stop_one(job, job.ready(RANKS), rank)

    def test_the_host_of_the_store_stops(self):
        """Ranks started by hand: rank 0 hosts the store, so it cannot be asked who is missing."""
        port = ranks.free_port()
        jobs = [self.rank("--timeout", 5, "steps", 60, RANK=r, WORLD_SIZE=3, LOCAL_RANK=r, MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=port) for r in range(3)]
        for job in jobs:
            job.ready(1)
        self.harm(jobs[0].pid, signal.SIGSTOP)
        for rank in (1, 2):
            told = self.ends(jobs[rank], ranks.HANG, 12)
            self.assertIn("missing: rank 0", told)
            self.figure(f"SIGSTOP of rank 0, which hosts the store (--timeout 5) -> exit of rank {rank}", self.since_harm())
        jobs[0].signal(signal.SIGKILL)
        jobs[0].wait(5)


class LauncherKilled(DeathTest):
    def both_ways(self):
        """The program itself, and below a shell that passes nothing on."""
        program = ranks.options.program
        return (([program], ""), (["sh", "-c", '"$0" "$@"; true', program], " (below a shell)"))

    def test_no_rank_outlives_it(self):
        for program, how in self.both_ways():
            with self.subTest(how=how):
                job = self.launch(RANKS, "steps", 60, program=program)
                pids = job.ready(RANKS)
                self.harm(job.pid, signal.SIGKILL)
                gone = self.all_gone(pids.values(), 5)
                self.figure(f"SIGKILL of the launcher{how} -> all ranks gone", gone)
                job.wait(5)

    def test_while_ranks_start(self):
        for program, how in self.both_ways():
            with self.subTest(how=how):
                job = self.launch(RANKS, "steps", 60, program=program)
                ranks.wait_until("ranks are started", lambda: "trireme_rank_pr" in ranks.descendants(job.pid).values(), 10)
                time.sleep(0.2)
                below = ranks.descendants(job.pid)
                self.harm(job.pid, signal.SIGKILL)
                gone = self.all_gone(below, 5)
                self.figure(f"SIGKILL of the launcher while ranks start{how} -> all ranks gone", gone)
                job.wait(5)

    def test_programs_that_know_nothing_of_us(self):
        job = self.launch(2, program=["sh", "-c", "sleep 300; true"])
        ranks.wait_until("ranks run", lambda: list(ranks.descendants(job.pid).values()).count("sleep") == 2, 10)
        below = ranks.descendants(job.pid)
        self.harm(job.pid, signal.SIGKILL)
        gone = self.all_gone(below, 5)
        self.figure("SIGKILL of the launcher of a foreign program (below a shell) -> all ranks gone", gone)
        job.wait(5)

    def test_term_and_interrupt(self):
        for number, code, (program, how) in zip((signal.SIGTERM, signal.SIGINT), (143, 130), self.both_ways()):
            with self.subTest(signal=number, how=how):
                job = self.launch(RANKS, "steps", 60, program=program)
                pids = job.ready(RANKS)
                self.harm(job.pid, number)
                gone = self.all_gone(pids.values(), 5)
                told = self.ends(job, code, 5)
                self.figure(f"{number.name} of the launcher{how} -> all ranks gone", gone)
                self.assertIn(f"stopped by {number.name}", told)


if __name__ == "__main__":
    ranks.main()
