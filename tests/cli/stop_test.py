#!/usr/bin/env python3
"""`trireme train` and signals: the table in docs/errors.md, "Signals", for each signal, moment, and receiver.

usage: stop_test.py TRIREME [CLASS[.test]...]"""
import itertools
import os
import pathlib
import signal
import subprocess
import time

import train_test
from train_test import KILLED, TrainTest, finish, fresh_folder

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
USER_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)  # after which a run goes on
CODE = {number: 130 if number == signal.SIGINT else 75 for number in SIGNALS}
RECEIVERS = ((), ("-n", "2"))  # a single rank, a launcher
LONG = ("--training.steps", "1000000")
# 18 million parameters: writing them takes long enough to be seen.
LARGE = ("--model.hidden_size", "768", "--model.intermediate_size", "3072")


def default_signals():
    """What a shell's background job ignores would stay ignored."""
    for number in (*SIGNALS, *USER_SIGNALS):
        signal.signal(number, signal.SIG_DFL)


def start(folder, *words, **variables):
    return subprocess.Popen([train_test.options.trireme, "train", *words], cwd=folder, env={**train_test.environment(), **variables},
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                            preexec_fn=default_signals)


def wait(process, what, pause=0.01):
    end = time.monotonic() + 60
    while not what():
        assert process.poll() is None, f"ended with {process.returncode}\n{process.stderr.read()}"
        assert time.monotonic() < end, "what the test waits for does not happen"
        time.sleep(pause)


def catches(pid, number):
    words = pathlib.Path(f"/proc/{pid}/status").read_text().split()
    return bool(int(words[words.index("SigCgt:") + 1], 16) & 1 << number - 1)


def rank_pid(process, rank):
    """Of a launcher's rank; None until it exists. A launcher may have a helper beside its ranks."""
    for child in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        try:
            if f"\0RANK={rank}\0" in "\0" + pathlib.Path(f"/proc/{child}/environ").read_text():
                return int(child)
        except OSError:
            pass
    return None


def steps_done(folder):
    path = folder / "runs/latest/metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


class Signals(TrainTest):
    def saved(self, run, saves=1):
        """The checkpoint of the last step is there, and nothing half written."""
        names = [path.name for path in (run.path() / "checkpoints").iterdir()]
        self.assertIn(f"step-{steps_done(run.folder)}", names, run)
        self.assertEqual([len(names), [name for name in names if "." in name]], [saves + 1, []], run)
        self.assertTrue((run.saved() / "checkpoint_metadata.json").exists(), run)

    def each(self, receivers=RECEIVERS, signals=SIGNALS):
        return itertools.product(receivers, signals)

    def labelled(self, how, number):
        return self.subTest(signal=number.name, receiver="launcher" if how else "rank")

    def test_before_main(self):
        for how, number in self.each(signals=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
            with self.labelled(how, number):
                folder = fresh_folder()
                process = start(folder, "t.toml", *how, *LONG)
                process.send_signal(number)
                run = finish(process, folder)
                self.assertIn(run.code, (-number, CODE[number]), run)
                self.assertEqual(steps_done(folder), 0)

    def test_at_the_start(self):
        for how, number in self.each():
            with self.labelled(how, number):
                folder = fresh_folder()
                os.mkfifo(folder / "fifo.toml")  # a config that does not come
                process = start(folder, "fifo.toml", *how)
                wait(process, lambda: catches(process.pid, number))
                process.send_signal(number)
                run = finish(process, folder)
                self.assertEqual(run.code, CODE[number], run)
                self.assertIn(f"stopped by {number.name} during startup", run.stderr)

    def test_while_the_ranks_meet(self):
        port = train_test.free_port()
        for _, number in self.each(receivers=((),)):
            with self.labelled((), number):
                folder = fresh_folder()
                process = start(folder, "t.toml", RANK="1", WORLD_SIZE="2", LOCAL_RANK="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
                wait(process, lambda: catches(process.pid, number))
                process.send_signal(number)
                self.assertEqual(finish(process, folder).code, CODE[number])

    def test_while_the_ranks_of_a_launcher_meet(self):
        for how, number in self.each(receivers=(("-n", "2"),), signals=(signal.SIGINT, signal.SIGHUP)):
            with self.labelled(how, number):
                folder = fresh_folder()
                process = start(folder, "t.toml", *how, *LONG)
                pids = []  # kept from the moment both are seen: a process that becomes another program is not seen for a moment

                def both_are_there():
                    pids[:] = [rank_pid(process, rank) for rank in (0, 1)]
                    return all(pids)
                wait(process, both_are_there, 0.001)
                first, late = pids
                os.kill(late, signal.SIGSTOP)
                wait(process, lambda: catches(first, number))
                process.send_signal(number)
                os.kill(late, signal.SIGCONT)  # it may not have a handler yet
                run = finish(process, folder)
                self.assertEqual(run.code, CODE[number], run)
                self.assertIn(f"stopped by {number.name}", run.stderr)

    def test_in_a_step(self):
        for how, number in self.each():
            with self.labelled(how, number):
                folder = fresh_folder()
                process = start(folder, "t.toml", *how, *LONG)
                wait(process, lambda: steps_done(folder) >= 2)
                process.send_signal(number)
                process.send_signal(number)  # as torchrun and mpirun do
                time.sleep(0.1)
                if process.poll() is None:
                    process.send_signal(number)
                run = finish(process, folder)
                self.assertEqual(run.code, CODE[number], run)
                self.saved(run)

    def stopped_in_the_save(self, how, words, first):
        """A run whose writing rank is stopped in the middle of the save, with its folder and the pid of that rank. `first`: a signal
        that asks for the save, or None. The test may be too slow to see it, on a busy machine: then it tries again."""
        for _ in range(5):
            folder = fresh_folder()
            process = start(folder, "t.toml", *how, *words, *LARGE)
            if first:
                wait(process, lambda: steps_done(folder) >= 1)
                process.send_signal(first)
            while process.poll() is None and not list(folder.glob("runs/*/checkpoints/step-*tmp*")):
                time.sleep(0.001)
            writer = process.pid if not how else process.poll() is None and rank_pid(process, 0)
            if writer and process.poll() is None:
                os.kill(writer, signal.SIGSTOP)
                if list(folder.glob("runs/*/checkpoints/step-*tmp*")):
                    return process, folder, writer
                os.kill(writer, signal.SIGCONT)
            finish(process, folder)
        self.fail("the weights are always written faster than the test can see: they must be larger")

    def test_in_the_save(self):
        for how, number in zip(RECEIVERS, (signal.SIGHUP, signal.SIGINT)):
            with self.labelled(how, number):
                process, folder, writer = self.stopped_in_the_save(how, LONG, number)
                for more in (*SIGNALS, *USER_SIGNALS):
                    if more != number:
                        process.send_signal(more)
                os.kill(writer, signal.SIGCONT)
                run = finish(process, folder)
                self.assertEqual(run.code, CODE[number], run)
                self.saved(run)

    def test_after_the_last_step(self):
        for how in RECEIVERS:
            with self.labelled(how, signal.SIGTERM):
                process, folder, writer = self.stopped_in_the_save(how, ("--training.steps", "1"), None)
                process.send_signal(signal.SIGTERM)
                os.kill(writer, signal.SIGCONT)
                run = finish(process, folder)
                self.assertEqual(run.code, 0, run)
                self.saved(run)

    def test_a_second_request_kills(self):
        for how, number in self.each(signals=(signal.SIGTERM,)):
            with self.labelled(how, number):
                folder = fresh_folder()
                process = start(folder, "t.toml", *how, "--training.steps", "1000", "--training.seq_len", "16384")  # steps of many seconds
                wait(process, lambda: (folder / "runs/latest/config.toml").exists())
                time.sleep(0.3)  # into the first step
                process.send_signal(number)
                time.sleep(1.1)
                process.send_signal(number)
                run = finish(process, folder, timeout=10)
                self.assertEqual(run.code, KILLED if how else -signal.SIGKILL, run)
                self.assertEqual(steps_done(folder), 0)

    def stop(self, process, folder):
        process.send_signal(signal.SIGTERM)
        run = finish(process, folder)
        self.assertEqual(run.code, 75, run)
        return run

    def test_user_signals_at_the_start(self):
        for how, number in self.each(signals=USER_SIGNALS):
            with self.labelled(how, number):
                folder = fresh_folder()
                os.mkfifo(folder / "fifo.toml")
                process = start(folder, "fifo.toml", *how, *LONG)
                wait(process, lambda: catches(process.pid, number))
                process.send_signal(number)
                (folder / "fifo.toml").write_text((folder / "t.toml").read_text())
                if how:  # before their main
                    wait(process, lambda: rank_pid(process, 1), 0.001)
                    process.send_signal(number)
                wait(process, lambda: steps_done(folder) >= 1)
                self.stop(process, folder)

    def test_user_signals_in_a_step(self):
        for how in RECEIVERS:
            with self.labelled(how, signal.SIGUSR1):
                folder = fresh_folder()
                process = start(folder, "t.toml", *how, *LONG)
                wait(process, lambda: steps_done(folder) >= 2)
                for number in USER_SIGNALS:
                    process.send_signal(number)
                calls = [folder / place for place in (["runs/latest/ranks/hang/rank0.txt", "runs/latest/ranks/hang/rank1.txt"] if how
                                                      else ["hang/rank0.txt"])]
                wait(process, lambda: all(path.exists() for path in calls))
                before = steps_done(folder)
                wait(process, lambda: steps_done(folder) >= before + 2)
                run = self.stop(process, folder)
                self.assertRegex(run.stderr, r"SIGUSR1: finishing step \d+, then saving and continuing")
                self.assertIn("SIGUSR2: the last calls of this rank: ", run.stderr)
                self.saved(run, saves=2)

    def test_a_user_signal_that_stops(self):
        for how in RECEIVERS:
            with self.labelled(how, signal.SIGUSR1):
                folder = fresh_folder()
                process = start(folder, "t.toml", *how, "--requeue", *LONG)
                wait(process, lambda: steps_done(folder) >= 1)
                process.send_signal(signal.SIGUSR1)
                run = finish(process, folder)
                self.assertEqual(run.code, 75, run)
                self.saved(run)


class Restarts(TrainTest):
    def test_a_rank_that_was_killed(self):
        """All attempts have one run folder, and each its own logs."""
        folder = fresh_folder()
        process = start(folder, "t.toml", "-n", "2", "--max-restarts", "1", "--training.steps", "40")
        wait(process, lambda: steps_done(folder) >= 1)
        os.kill(rank_pid(process, 1), signal.SIGKILL)
        run = self.ok(finish(process, folder))
        self.assertRegex(run.stderr, r"restart 1 of at most 1 in 1\.0 s: attempt 0 ended after .* was killed by signal 9")
        self.assertEqual(len(list((folder / "runs").glob("*/metrics.jsonl"))), 1 + (folder / "runs/latest").is_symlink())
        for logs in ("ranks", "ranks-2"):
            self.assertTrue((run.path() / logs / "r0001.log").exists(), logs)
        self.assertTrue((run.path() / "checkpoints/step-40/model.safetensors").exists())


if __name__ == "__main__":
    train_test.main()
