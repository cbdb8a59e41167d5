#!/usr/bin/env python3
"""One rank of four makes another call than the others: never a wrong result, never a hang, always a text that names it.
usage: see tests/launchers/ranks.py; with --trials N: about N of all 448 combinations, from 150 on (and in a
campaign) all of them; else one of each kind"""
import collections
import os
import pathlib
import re
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "launchers"))
import ranks

RANKS = 4
KINDS = ("shape", "dtype", "op", "group", "order", "skip", "duplicate")
TIMEOUT = 3
AT_ONCE = max(4, os.cpu_count() - 2)  # jobs, which mostly wait

# kind, rank, call, mode. Calls 8 and 9 have no later call on their group to swap with.
SAMPLE = [(kind, i % RANKS, (3 * i) % 8, "fast") for i, kind in enumerate(KINDS)] + [("order", 2, 5, "strict")]
ALL = [(kind, rank, call, mode) for call in range(8) for kind in KINDS for rank in range(RANKS) for mode in ("fast", "strict")]


def verdict(text):
    """What the ranks said, in one word; None: nothing that names the cause."""
    if re.search(r"ranks \d+ and \d+ of group \S+ did not make the same (call|number of calls)\n  rank \d+: .*\n  rank \d+: ", text):
        return "mismatch"
    if re.search(r"missing: rank \d+", text):
        return "timeout"
    return None


class Mismatch(ranks.RankTest):
    deadline = 3600

    def test_trials(self):
        trials = SAMPLE
        if ranks.options.trials:
            step = len(ALL) // ranks.options.trials
            trials = ALL[::step | 1] if step > 2 else ALL  # odd: both modes
        waiting, running, bad = list(trials), {}, []
        counts, seconds = collections.Counter(), []
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                trial = waiting.pop(0)
                kind, rank, call, mode = trial
                job = self.launch(RANKS, "--tp", 2, "--timeout", TIMEOUT, "--check", mode, "mismatch", kind, rank, call)
                running[trial] = job
            for trial, job in list(running.items()):
                if job.running():
                    self.assertLess(time.monotonic() - job.started, 60, f"{trial} hangs")
                    continue
                seconds.append(job.seconds())
                del running[trial]
                found = verdict(job.log_text() + job.stderr())
                counts[trial[3], found] += 1
                if job.wait(1) != ranks.HANG or found is None or "did not notice" in job.log_text():
                    bad.append(trial)
                else:
                    self.jobs.remove(job)  # only what the others said is shown
            ranks.pause(0.01)
        named = ", ".join(f"{count} by {found} ({mode})" for (mode, found), count in sorted(counts.items(), key=str))
        print(f"    {len(trials)} mismatches: {named}; {len(bad)} missed or unnamed", flush=True)
        self.figure(f"from the start to the exit (--timeout {TIMEOUT}, {AT_ONCE} jobs at once): median",
                    sorted(seconds)[len(seconds) // 2])
        self.figure("most", max(seconds))
        self.assertEqual(bad, [])


if __name__ == "__main__":
    ranks.main()
