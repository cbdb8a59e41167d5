#!/usr/bin/env python3
"""What a person meets in the first runs: how the program starts, what it shows meanwhile, Ctrl-C, failed starts.

usage: first_contact_run_test.py TRIREME [CLASS[.test]...]"""
import fcntl
import os
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import termios
import time
import unittest

import train_test
from train_test import BLOW_UP, CHECKPOINT, CONFIG, INTERRUPTED, NON_FINITE, PREEMPTED, QUIET, TrainTest, finish, fresh_folder, start, train

OUT_OF_MEMORY = 73


def program(*words, **more):
    return subprocess.run([train_test.options.trireme, *map(str, words)], capture_output=True, text=True, timeout=60,
                          env=train_test.environment(), **more)


class Start(unittest.TestCase):
    def test_a_config_from_a_pipe_is_checked(self):
        folder = fresh_folder()
        with open(folder / "t.toml", encoding="utf-8") as config:
            run = subprocess.run(["sh", "-c", f"cat | {train_test.options.trireme} config check /dev/stdin"], stdin=config, capture_output=True,
                                 text=True, timeout=60, cwd=folder, env=train_test.environment())
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("ok           /dev/stdin is valid, and can be trained", run.stdout)

    def test_commands_without_libtorch_do_not_load_it(self):
        """The program alone, without the one that has libtorch, answers all that needs none."""
        folder = fresh_folder()
        alone = shutil.copy(train_test.options.trireme, folder)
        text = folder / "text.txt"
        text.write_text("one line\n")
        for words in (["--help"], ["train", "--help"], ["config", "show"], ["schedule", "1f1b"],
                      ["data", "prepare", text, "-t", "bytes", "-o", folder / "out"], ["data", "inspect", folder / "out.ds"]):
            run = subprocess.run([alone, *words], capture_output=True, text=True, timeout=60, cwd=folder)
            self.assertEqual(run.returncode, 0, f"{words}: {run.stderr}")
        run = subprocess.run([alone, "train", "t.toml"], capture_output=True, text=True, timeout=60, cwd=folder)
        if "this build has no libtorch" not in run.stderr:
            self.assertRegex(run.stderr, r"^error: .*/trireme-torch: No such file or directory\n  fix: install trireme and trireme-torch")
        self.assertEqual(run.returncode, CONFIG)

    def test_alone_it_prints_the_overview(self):
        run, asked = program(), program("--help")
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, asked.stdout, ""))


class Terminal:
    """A run whose output is a terminal."""

    def __init__(self, folder, *words, columns=80):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen([train_test.options.trireme, *map(str, words)], cwd=folder, stdin=slave, stdout=slave, stderr=slave,
                                        env={**train_test.environment(), "TERM": "xterm"}, start_new_session=True)
        os.close(slave)
        self.master, self.text = master, ""

    def read_until(self, wanted, seconds=60):
        end = time.monotonic() + seconds
        while not re.search(wanted, self.text):
            if time.monotonic() > end:
                raise AssertionError(f"no {wanted!r} in {self.text!r}")
            try:
                part = os.read(self.master, 65536)
            except OSError:  # the other end is closed
                part = b""
            if not part:
                if wanted == "$never":
                    break
                raise AssertionError(f"ended without {wanted!r}: {self.text!r}")
            self.text += part.decode(errors="replace")

    def end(self):
        try:
            self.read_until("$never")
        finally:
            os.close(self.master)
        return self.process.wait(30)


class OnATerminal(TrainTest):
    def test_a_line_from_the_start_and_an_answer_to_ctrl_c(self):
        screen = Terminal(fresh_folder(), "train", "t.toml", "-n", 2, "--training.steps", 1000000)
        screen.read_until("  building the model ")
        screen.read_until("  step 1 of 1,000,000")
        screen.read_until(" 5/1000000| [0-9]{2,}/1000000")  # the bar is there
        screen.process.send_signal(signal.SIGINT)
        screen.read_until(r"\r\x1b\[KSIGINT: finishing step [0-9]+, then saving; again to stop now, without saving\r?\n")
        self.assertEqual(screen.end(), INTERRUPTED, screen.text)
        self.assertLess(screen.text.index("connecting 2 ranks"), screen.text.index("building the model"))
        header = screen.text[:screen.text.index("  step 1 of")]
        for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;]*[mK]", "", header)):
            self.assertLessEqual(len(line), 80, "wrapped at words")
        self.assertIn("parameters", header)
        self.assertNotIn("MFU", screen.text, "a column that would always be empty")
        self.assertIn("tok/s", screen.text)

    def test_ctrl_c_in_a_log_file(self):
        folder = fresh_folder()
        process = start(folder, [train_test.options.trireme, "train", "t.toml", "-n", 2, "--training.steps", 1000000])
        metrics = folder / "runs/latest/metrics.jsonl"
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size > 0):
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        run = finish(process, folder)
        self.assertEqual(run.code, PREEMPTED, run)
        self.assertRegex(run.stderr, r"(?m)^SIGTERM: finishing step [0-9]+, then saving; again to stop now")
        self.assertNotIn("\x1b", run.stderr)


class Results(TrainTest):
    def test_a_reader_that_leaves_changes_nothing(self):
        for ranks in ("", "-n 2"):
            with self.subTest(ranks):
                folder = fresh_folder()
                command = f"{train_test.options.trireme} train t.toml {ranks} --metrics.interval 1 --training.steps 30 2> errors | head -1 > first; echo ${{PIPESTATUS[0]}}"
                run = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=120,
                                     env=train_test.environment())
                self.assertEqual(run.stdout, "0\n", (folder / "errors").read_text())
                self.assertTrue((folder / "runs/latest/checkpoints/step-30/model.safetensors").exists())

    def test_records_have_the_time_of_day(self):
        before = time.time()
        run = self.ok(train(*QUIET))
        times = [row["time"] for row in run.metrics()]
        self.assertEqual(times, sorted(times))
        self.assertTrue(before < times[0] and times[-1] < time.time(), times)


class FailedStarts(TrainTest):
    def test_leave_no_folder(self):
        for ranks in ((), ("-n", 2)):
            with self.subTest(ranks):
                folder = fresh_folder()
                weights = folder / "weights"
                weights.mkdir()
                (weights / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")  # without a tensor: found by the model
                run = finish(start(folder, [train_test.options.trireme, "train", "t.toml", *ranks, "--model.init", "hf:weights"]), folder)
                self.assertEqual(run.code, CHECKPOINT, run)
                self.assertEqual(list((folder / "runs").iterdir()), [], run)

    def test_the_link_to_the_latest_run_and_folders_of_the_user_stay(self):
        folder = fresh_folder()
        good = train(*QUIET, folder=folder)
        self.assertEqual(good.code, 0, good)
        latest = os.readlink(folder / "runs/latest")
        (folder / "weights").mkdir()
        (folder / "weights/model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
        (folder / "elsewhere").mkdir()
        (folder / "runs/mine").symlink_to("../elsewhere")
        failed = train("--model.init", "hf:weights", "--run.name", "mine", folder=folder)
        self.assertEqual(failed.code, CHECKPOINT, failed)
        self.assertEqual(os.readlink(folder / "runs/latest"), latest)
        self.assertEqual(os.readlink(folder / "runs/mine"), "../elsewhere")
        self.assertEqual(list((folder / "elsewhere").iterdir()), [])

    def test_a_signal_while_a_single_rank_starts(self):
        folder = fresh_folder()
        large = ("--model.vocab_size", "100000", "--model.hidden_size", "512")  # takes a while to build
        process = start(folder, [train_test.options.trireme, "train", "t.toml", *large])
        while process.poll() is None and not list(folder.glob("runs/*/metrics.jsonl")):
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        run = finish(process, folder)
        self.assertEqual(run.code, INTERRUPTED, run)
        if "during startup" in run.stderr:
            self.assertEqual(list((folder / "runs").iterdir()), [], run)

    def test_keep_what_was_done(self):
        run = train(*BLOW_UP, n=2)
        self.assertEqual(run.code, NON_FINITE, run)
        self.assertTrue((run.path() / "metrics.jsonl").stat().st_size > 0)

    def test_n_under_another_launcher(self):
        folder = fresh_folder()
        env = {**train_test.environment(), "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": "29555", "TORCHELASTIC_RUN_ID": "x"}
        for n in ("2", "4"):
            run = subprocess.run([train_test.options.trireme, "train", "t.toml", "-n", n], cwd=folder, env=env, capture_output=True, text=True,
                                 timeout=60)
            self.assertEqual(run.returncode, CONFIG, run.stderr)
            self.assertIn(f"-n {n}: torchrun started 2 ranks on this host already\n  fix: leave out -n {n} after trireme", run.stderr)
        self.assertFalse((folder / "runs").exists())


class Memory(TrainTest):
    # Much memory and little work.
    LARGE = ("--model.vocab_size", "100000", "--model.hidden_size", "256", "--training.steps", "1", *QUIET)

    def test_what_cannot_fit_is_refused_before_anything_starts(self):
        for ranks in ((), ("-n", 2)):
            folder = fresh_folder()
            run = finish(start(folder, [train_test.options.trireme, "train", "t.toml", *ranks, "--model.hidden_size", "65536",
                                        "--model.num_hidden_layers", "200", "--model.intermediate_size", "262144"]), folder)
            self.one_error(run, OUT_OF_MEMORY, "the model needs ", " per rank for weights, gradients and optimizer states; th", "(nothing was started)",
                           "\n  fix: ")
            self.assertFalse((folder / "runs").exists(), run)
            check = finish(start(folder, [train_test.options.trireme, "config", "check", *run.words[2:]]), folder)
            self.one_error(check, OUT_OF_MEMORY, "the model needs ")

    def test_the_advice_can_be_followed(self):
        """The settings that a refusal names are accepted as they stand."""
        words = ("--model.hidden_size", "8192", "--model.num_hidden_layers", "40", "--model.intermediate_size", "16384", "--parallelism.zero", "0",
                 "--model.num_attention_heads", "64", "--model.num_key_value_heads", "64", "--training.global_batch_size", "16")
        folder = fresh_folder()
        refused = finish(start(folder, [train_test.options.trireme, "config", "check", "t.toml", "-n", 8, *words]), folder)
        self.assertEqual(refused.code, OUT_OF_MEMORY, refused)
        for fix in re.findall(r"(?m)^(?:  fix: |       )(.*) \(predicted .*", refused.stderr):
            hosts = re.match("([0-9]+) times as many hosts like this one with ", fix)
            ranks = 8 * int(hosts[1]) if hosts else 8
            settings = dict(pair.split(" = ") for pair in (fix[hosts.end():] if hosts else fix).split(", "))
            flags = dict(zip(words[::2], words[1::2])) | {f"--{key}": value.strip('"') for key, value in settings.items()}
            flags.setdefault("--training.micro_batch_size", "2")
            again = finish(start(folder, [train_test.options.trireme, "config", "check", "t.toml", "-n", ranks, "--no-files",
                                          *(word for pair in flags.items() for word in pair)]), folder)
            self.assertEqual(again.code, 0, f"{fix}\n{again}")

    def test_wherever_memory_ends_the_exit_code_is_73(self):
        """From libraries that hardly load to runs that succeed."""
        reached = 0
        for limit in [mib << 20 for mib in (800, 1000, 1250, 1500, 1750, 2000, 4000)]:
            folder = fresh_folder()
            run = finish(start(folder, [train_test.options.trireme, "train", "t.toml", *self.LARGE],
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))), folder)
            if run.code == 0:
                break
            if "error while loading shared libraries" in run.stderr:
                continue
            if "AddressSanitizer" in run.stderr:
                self.skipTest("a sanitizer needs terabytes of addresses")
            if "more threads and could start" in run.stderr:  # asked for before anything else
                self.assertEqual(run.code, CONFIG, run)
                self.assertIn("ulimit -v", run.stderr)
                continue
            self.assertEqual(run.code, OUT_OF_MEMORY, f"{limit >> 20} MiB: {run}")
            if "could not allocate" in run.stderr:
                reached += 1
                self.assertRegex(run.stderr, r"error: out of memory: rank 0 of 1 could not allocate .* (in step 1|while the model was built)")
                self.assertRegex(run.stderr, r"\n  predicted .*MiB/rank.*\n  fix: .* \(predicted .* per rank\)")
            if "phase=save" not in run.stderr:  # after the step: what was done is kept
                self.assertFalse((folder / "runs").exists() and list((folder / "runs").iterdir()), run)
        if reached == 0:
            self.skipTest("no limit of the address space let libtorch start and training fail")


if __name__ == "__main__":
    train_test.main()
