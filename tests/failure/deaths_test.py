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

class DeathTest(ranks.RankTest):
    def harm(self, pid, number):
        self.harmed = time.monotonic()
        os.kill(pid, number)

    def all_gone(self, pids, within):
        """Seconds from the harm until none of them is left, which must be `within` so many."""
        ranks.wait_until(lambda: f"gone: ranks with pids {[pid for pid in pids if ranks.alive(pid)]}",
                         lambda: not any(map(ranks.alive, pids)), within, every=0.002)
        return time.monotonic() - self.harmed


class Kill(DeathTest):
    deadline = 3000

    def kill_one(self, number_of_ranks, rank, number, *words):
        job = self.launch(number_of_ranks, *words, "steps", 60)
        pids = job.ready(number_of_ranks)
        self.harm(pids[rank], number)
        gone = self.all_gone(pids.values(), 1)
        told = self.ends(job, ranks.PEER_LOST, 5)
        name = signal.Signals(number).name
        self.figure(f"{name} of rank {rank} of {number_of_ranks} -> all gone", gone)
        self.assertIn(f"rank {rank} (pid {pids[rank]}) was killed by signal {number} ({name})", told)
        self.assertIn("all_reduce", told)  # what it was in
        for each in range(number_of_ranks):
            calls = (job.logs / "hang" / f"rank{each}.txt").read_text()
            self.assertIn(f"rank {each} of {number_of_ranks}", calls)
            self.assertIn("all_reduce sum f64[1024]", calls)

    def test_each_rank_in_turn(self):
        for rank in range(4):
            with self.subTest(rank=rank):
                self.kill_one(4, rank, signal.SIGKILL)

    def test_over_gloo(self):
        self.kill_one(2, 1, signal.SIGKILL, "--no-shared-memory")

    def test_crashes(self):
        for rank, number in ((1, signal.SIGSEGV), (0, signal.SIGABRT)):
            with self.subTest(signal=number):
                self.kill_one(2, rank, number)

    def test_what_the_peer_of_a_dead_rank_says(self):
        """Without a launcher, which knows more: what happened, in our words and not in those of Gloo's source files."""
        for words, cause in (((), r"\(rank 1, pid \d+, has ended\)"), (("--no-shared-memory",), r"its connection (was closed|was reset|broke)")):
            port = ranks.free_port()
            jobs = [self.rank("--timeout", 20, *words, "steps", 60, RANK=r, WORLD_SIZE=2, LOCAL_RANK=r, LOCAL_WORLD_SIZE=2, MASTER_ADDR="127.0.0.1",
                              MASTER_PORT=port) for r in range(2)]
            for job in jobs:
                job.ready(1)
            self.harm(jobs[1].pid, signal.SIGKILL)
            jobs[1].wait(5)
            told = self.ends(jobs[0], ranks.PEER_LOST, 10)
            self.assertRegex(told, cause)
            self.assertNotRegex(told, r"(?i)gloo/|\.cc:\d|\[/", "of another program's source files")

    def test_at_any_moment(self):
        """While ranks start, meet, connect or work."""
        for trial in range(ranks.options.trials or 1):
            with self.subTest(trial=trial):
                job = self.launch(2, "steps", 60)
                ranks.wait_until("ranks are started", lambda: len(rank_pids(job)) == 2, 10)
                ranks.pause(random.uniform(0.0, 1.5) if ranks.options.trials else 0.3)
                below = rank_pids(job)
                self.harm(random.choice(below), signal.SIGKILL)
                self.all_gone(below, 1)
                told = self.ends(job, ranks.PEER_LOST, 5)
                self.assertIn("was killed by signal 9 (SIGKILL)", told)


def rank_pids(job):
    return [pid for pid, name in ranks.descendants(job.pid).items() if name == "trireme_rank_pr"]


class Stop(DeathTest):
    def test_a_stopped_rank_is_named(self):
        """Several jobs at once, since all they do is wait."""
        stopped = []
        for rank in range(4) if ranks.options.trials else (0, 2):
            job = self.launch(4, "--timeout", 5, "steps", 60)
            pids = job.ready(4)
            self.harm(pids[rank], signal.SIGSTOP)
            stopped.append((rank, job, pids, self.harmed))
        by_hand, harmed = self.stop_the_host_of_the_store()
        self.pause_one_shorter_than_the_timeout()
        for rank, job, pids, self.harmed in stopped:
            with self.subTest(rank=rank):
                told = self.ends(job, ranks.HANG, 15)
                self.figure(f"SIGSTOP of rank {rank} (--timeout 5) -> exit", job.ended - self.harmed)
                self.assertLess(job.ended - self.harmed, 10)
                self.assertIn(f"missing: rank {rank} does not answer", told)
                self.assertIn(f"pid {pids[rank]}", told)
                self.assertFalse(any(map(ranks.alive, pids.values())))
        for job in by_hand[1:]:
            with self.subTest(by_hand=job.pid):
                told = self.ends(job, ranks.HANG, 15)
                self.figure("SIGSTOP of rank 0, which hosts the store (--timeout 5) -> exit of another", job.ended - harmed)
                self.assertLess(job.ended - harmed, 10)
                self.assertIn("the process that hosts the store is stopped; which ranks arrived is not known", told)
                self.assertNotIn("missing: rank", told)
        by_hand[0].signal(signal.SIGKILL)
        by_hand[0].wait(5)

    def stop_the_host_of_the_store(self):
        """Ranks started by hand: the store cannot be asked who is missing when rank 0 is stopped."""
        port = ranks.free_port()
        jobs = [self.rank("--timeout", 5, "steps", 60, RANK=r, WORLD_SIZE=3, LOCAL_RANK=r, MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=port) for r in range(3)]
        for job in jobs:
            job.ready(1)
        self.harm(jobs[0].pid, signal.SIGSTOP)
        return jobs, self.harmed

    def pause_one_shorter_than_the_timeout(self):
        job = self.launch(2, "--timeout", 5, "steps", self.folder / "enough")
        pids = job.ready(2)
        os.kill(pids[1], signal.SIGSTOP)
        ranks.pause(2.5)
        os.kill(pids[1], signal.SIGCONT)
        ranks.pause(0.2)
        (self.folder / "enough").touch()
        self.assertNotIn("error", self.ends(job, 0, 20))


class LauncherKilled(DeathTest):
    def both_ways(self):
        """The program itself, and below a shell that passes nothing on."""
        program = ranks.options.program
        return (([program], ""), (["sh", "-c", '"$0" "$@"; true', program], " (below a shell)"))

    def test_no_rank_outlives_it(self):
        for program, how in self.both_ways():
            with self.subTest(how=how):
                job = self.launch(2, "steps", 60, program=program)
                pids = job.ready(2)
                self.harm(job.pid, signal.SIGKILL)
                gone = self.all_gone(pids.values(), 5)
                self.figure(f"SIGKILL of the launcher{how} -> all ranks gone", gone)
                job.wait(5)

    def test_while_ranks_start(self):
        for program, how in self.both_ways():
            with self.subTest(how=how):
                job = self.launch(2, "steps", 60, program=program)
                ranks.wait_until("ranks are started", lambda: len(rank_pids(job)) == 2, 10)
                ranks.pause(0.2)
                below = [pid for pid, name in ranks.descendants(job.pid).items() if name != "trireme-reaper"]
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
                job = self.launch(2, "steps", 60, program=program)
                pids = job.ready(2)
                self.harm(job.pid, number)
                gone = self.all_gone(pids.values(), 5)
                told = self.ends(job, code, 5)
                self.figure(f"{number.name} of the launcher{how} -> all ranks gone", gone)
                self.assertIn(f"stopped by {number.name}", told)


if __name__ == "__main__":
    ranks.main()
