#!/usr/bin/env python3
"""`--max-restarts`: ranks that meet anew in each attempt, and a launcher that knows when another one makes no sense.
usage: see tests/launchers/ranks.py"""
import pathlib
import re
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "launchers"))
import ranks


class Restarts(ranks.RankTest):
    def attempts(self, most, *actions):
        return self.launch(2, "attempts", *actions, flags=("--max-restarts", most))

    def seen(self, job):
        """(rank, attempt) and the job id of each start, in the order of the log folders."""
        folders = [job.logs, *sorted(job.logs.parent.glob(job.logs.name + "-*"))]
        text = "".join((folder / f"r{rank:04}.log").read_text() for folder in folders for rank in range(2))
        found = re.findall(r"^rank=(\d+) attempt=(\d+) job=(\S+)$", text, re.M)
        return [(int(rank), int(attempt)) for rank, attempt, _ in found], {job for _, _, job in found}

    def test_all(self):
        """At once, since most of their time is waiting."""
        twice = self.attempts(5, "kill", "kill", "ok")
        always = self.attempts(5, "kill")
        progress = self.attempts(5, "kill", "kill", "kill", "commit+kill", "kill", "ok")
        refused = {code: self.attempts(5, f"exit={code}") for code in (64, 66, 73, 76, 77)}
        stopped = self.attempts(5, "kill")
        own = self.rank("-n", 2, "--max-restarts", 1, "--logs", self.folder / "own", "attempts", "exit=72", "ok")

        with self.subTest("a stop between two attempts"):
            ranks.wait_until("the first restart is announced", lambda: "restart 1 of at most 5" in stopped.stderr(), 60)
            stopped.signal(signal.SIGINT)
            self.assertIn("stopped by SIGINT between two attempts", self.ends(stopped, 130, 10))
        for code, job in refused.items():
            with self.subTest(code=code):
                self.assertIn(f"not restarted: exit code {code} ", self.ends(job, code, 60))
        with self.subTest("killed twice, then fine"):
            told = self.ends(twice, 0, 60)
            order, jobs = self.seen(twice)
            self.assertEqual(order, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)])
            self.assertEqual(len(jobs), 3)
            self.assertRegex(told, r"restart 2 of at most 5 in 2\.0 s: attempt 1 ended after \d+\.\d s, rank 1 \(pid \d+\) was killed")
            self.assertIn(f"logs of attempt 2: {twice.logs}-3", told)
            for attempt in ("", "-2"):
                self.assertTrue(pathlib.Path(f"{twice.logs}{attempt}/hang/rank1.txt").exists())
        with self.subTest("always killed"):
            told = self.ends(always, ranks.PEER_LOST, 60)
            self.assertEqual(len(re.findall("^restart ", told, re.M)), 3)
            self.assertIn("not restarted: 3 restarts without a new checkpoint: the same failure would recur", told)
        with self.subTest("a checkpoint restores the budget"):
            told = self.ends(progress, 0, 60)
            waits = re.findall(r"^restart \d of at most 5 in (\d)\.0 s", told, re.M)
            self.assertEqual(waits, ["1", "2", "4", "1", "2"])
        with self.subTest("a program's own -n"):
            self.assertIn("exited with code 72", self.ends(own, 0, 60))
            self.assertTrue((self.folder / "own-2/r0001.log").exists())

    def test_a_job_over_hosts(self):
        (self.folder / "hosts").write_text("localhost slots=2\n")
        logs = self.folder / "logs0"
        job = self.start(ranks.options.trireme, "launch", "--hostfile", "hosts", "--master", f"127.0.0.1:{ranks.free_port()}", "--max-restarts",
                         1, "--logs", logs, "--", ranks.options.program, "attempts", "exit=72", "ok")
        self.assertIn("restart 1 of at most 1", self.ends(job, 0, 60))
        order, jobs = self.seen(job)
        self.assertEqual(order, [(0, 0), (1, 0), (0, 1), (1, 1)])
        self.assertEqual(len(jobs), 2)

    def test_who_cannot_restart(self):
        several = self.start(ranks.options.trireme, "launch", "-n", 1, "--nnodes", 2, "--node-rank", 0, "--master", "127.0.0.1:1",
                             "--max-restarts", 2, "--", "true")
        self.assertIn("fix: --hostfile, or the restarts of what started the nodes", self.ends(several, ranks.CONFIG, 20))
        alone = self.rank("--max-restarts", 2, "sum")
        self.assertIn("this process does not start the ranks", self.ends(alone, ranks.CONFIG, 20))


if __name__ == "__main__":
    ranks.main()
