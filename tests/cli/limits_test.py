#!/usr/bin/env python3
"""`trireme` with little: closed descriptors, small limits, half-written files of runs that were killed.

usage: limits_test.py TRIREME [CLASS[.test]...]"""
import glob
import os
import pathlib
import resource
import signal
import subprocess
import time

import train_test
from train_test import CONFIG, QUIET, TrainTest, finish, fresh_folder

TOO_LITTLE_MEMORY = 73


def trireme(*words, folder=None, limits=(), shell="", variables=(), **more):
    """`limits`: (resource, value) pairs. `shell`: redirections."""
    folder = folder or fresh_folder()

    def limit():
        for which, value in limits:
            resource.setrlimit(which, (value, value))
    command = ["sh", "-c", f'exec "$@" {shell}', "sh", train_test.options.trireme, *map(str, words)]
    process = subprocess.Popen(command, cwd=folder, env={**train_test.environment(), **dict(variables)}, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=limit, **more)
    run = finish(process, folder)
    run.pid = process.pid
    return run


class Descriptors(TrainTest):
    def test_standard_ones_that_are_closed(self):
        for closed in ("<&-", "<&- >&-", "<&- >&- 2>&-"):
            with self.subTest(closed):
                run = trireme("launch", "-n", 2, "--", "sh", "-c", "echo said", shell=closed)
                self.assertEqual(run.code, 0, run)
                [log] = run.folder.glob("runs/*/ranks/r0000.log")
                self.assertEqual(log.read_text(), "said\n")

    def test_training_too(self):
        run = trireme("train", "t.toml", "-n", 2, shell="<&- >&-")
        self.assertEqual(run.code, 0, run)
        self.assertTrue((run.path() / "checkpoints/step-4/model.safetensors").exists())

    def test_too_few(self):
        for ranks in ((), ("-n", 2)):
            self.one_error(trireme("train", "t.toml", *ranks, limits=[(resource.RLIMIT_NOFILE, 24)]), CONFIG,
                           "needs about 65 descriptors; ulimit -n allows 24", "fix: ulimit -n")
        self.one_error(trireme("launch", "-n", 8, "--", "true", limits=[(resource.RLIMIT_NOFILE, 24)]), CONFIG,
                       "the launcher of 8 ranks needs about 136 descriptors; ulimit -n allows 24")

    def test_doctor(self):
        run = trireme("doctor", limits=[(resource.RLIMIT_NOFILE, 100), (resource.RLIMIT_FSIZE, 1 << 20)])
        self.assertRegex(run.stdout, r"open files +100, at most 100 +low: .* enough for 18 ranks")
        self.assertRegex(run.stdout, r"file size +1.00 MiB +no file may be larger")


class Limits(TrainTest):
    def test_threads(self):
        self.one_error(trireme("train", "t.toml", variables={"OMP_NUM_THREADS": "5000"}), CONFIG,
                       "OMP_NUM_THREADS = 5000: must be at most ", "fix: OMP_NUM_THREADS=")

    def test_addresses(self):
        run = trireme("--version", limits=[(resource.RLIMIT_AS, 300 << 20)])
        if "error while loading shared libraries" in run.stderr:
            self.skipTest("libtorch alone needs more: " + run.stderr.strip()[:200])
        if run.code != 0 and "Sanitizer" not in run.stderr:  # a build without libtorch fits; a sanitizer needs terabytes of addresses
            self.one_error(run, TOO_LITTLE_MEMORY, "ulimit -v allows 300 MiB", "fix: ulimit -v unlimited")

    def test_file_size(self):
        run = trireme("train", "t.toml", limits=[(resource.RLIMIT_FSIZE, 64 << 10)])
        self.one_error(run, 66, "rank-00000.safetensors: cannot be written: File too large, ulimit -f allows 64.0 KiB\n  fix: ulimit -f unlimited")

    def test_a_program_that_is_launched_has_the_systems_handling(self):
        run = trireme("launch", "-n", 1, "--", "grep", "SigIgn", "/proc/self/status")
        self.assertEqual(int(run.stdout.split()[1], 16) & 1 << signal.SIGXFSZ - 1, 0, run)


class Leftovers(TrainTest):
    def test_of_a_save_that_was_killed(self):
        folder = fresh_folder()
        killed = 0
        for _ in range(5):
            words = ["train", "t.toml", "--training.steps", "1", "--model.hidden_size", "768", "--model.intermediate_size", "3072", *QUIET]
            process = subprocess.Popen([train_test.options.trireme, *words], cwd=folder, env=train_test.environment(),
                                       stdout=subprocess.DEVNULL)
            while process.poll() is None and not glob.glob(f"{folder}/runs/*/checkpoints/*.tmp-*"):
                time.sleep(0.001)
            process.kill()
            process.wait()
            killed = len(glob.glob(f"{folder}/runs/t-single*/checkpoints/*.tmp-*"))
            if killed:
                break
        self.assertEqual(killed, 1, "no save was killed half way")
        self.assertEqual(trireme("train", "t.toml", *QUIET, folder=folder).code, 0)
        self.assertEqual(glob.glob(f"{folder}/runs/*/checkpoints/*.tmp-*"), [])

    def test_no_profile_of_kernels(self):
        run = trireme("train", "t.toml", "--model.dtype", "bfloat16", "--training.steps", 1, *QUIET)
        self.assertEqual(run.code, 0, run)
        self.assertFalse(os.path.exists(f"/tmp/perf-{run.pid}.map"))


class ConfigOnce(TrainTest):
    def test_from_a_pipe(self):
        folder = fresh_folder()
        for ranks in ((), ("-n", 2)):
            text = (folder / "t.toml").read_text()
            run = subprocess.run([train_test.options.trireme, "train", "/dev/stdin", "--resume", "never", *map(str, ranks)], cwd=folder, input=text,
                                 env=train_test.environment(), capture_output=True, text=True, timeout=60)
            self.assertEqual(run.returncode, 0, run)
        self.assertEqual((folder / "runs/latest/ranks/launched.toml").read_text(), text)
        run = subprocess.run([train_test.options.trireme, "train", "/dev/stdin", "-n", "2"], cwd=folder, input=text + "[nothing]\na = 1\n",
                             env=train_test.environment(), capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, CONFIG, run)
        self.assertIn("/dev/stdin", run.stderr)


class OldValidation(TrainTest):
    def test_is_told(self):
        folder = fresh_folder()
        pathlib.Path(folder / "lines.txt").write_text("".join(f"line {i} of a text\n" for i in range(200)))
        for form, file in (("datatrove", "out-validation.ds"), ("megatron", "out-validation_text_document.bin")):
            prepare = ("data", "prepare", "lines.txt", "--documents", "lines", "-t", "bytes", "-o", "out", "--format", form)
            first = trireme(*prepare, "--validation", "0.2", folder=folder)
            self.assertEqual((first.code, first.stderr), (0, ""), first)
            again = trireme(*prepare, "--overwrite", folder=folder)
            self.assertEqual(again.code, 0, again)
            self.assertRegex(again.stderr, rf"^warning: {file} is from an earlier prepare and was not written again")
            self.assertEqual(trireme(*prepare, "--overwrite", "--validation", "0.2", folder=folder).stderr, "")


class Waiting(TrainTest):
    def test_a_store_that_does_not_answer_is_named(self):
        rank = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        run = trireme("train", "t.toml", "--comm.init_timeout_s", 4, variables=rank)
        self.assertEqual(run.code, 71, run)
        self.assertIn("note: rank 1 of 2 waits for the store at tcp://127.0.0.1:1: Connection refused (3 s of at most 4 s)\n", run.stderr)
        self.assertNotIn("frame #", run.stderr)

    def test_a_store_that_is_lost_is_told_in_one_error(self):
        folder = fresh_folder()
        port = str(train_test.free_port())
        ranks = [train_test.start(folder, ["env", f"RANK={r}", "WORLD_SIZE=2", f"LOCAL_RANK={r}", "LOCAL_WORLD_SIZE=2",
                                           "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}", train_test.options.trireme, "train", "t.toml",
                                           "--training.steps", 1000000, *QUIET]) for r in (0, 1)]
        metrics = folder / "runs/latest/metrics.jsonl"
        end = time.monotonic() + 30
        while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < end:
            time.sleep(0.02)
        ranks[0].kill()  # it hosts the store
        lost = finish(ranks[1], folder)
        finish(ranks[0], folder)
        self.one_error(lost, 71, "rank=1/2")
        self.assertNotIn("frame #", lost.stderr)

    def test_by_the_launcher_of_another_node(self):
        run = trireme("launch", "-n", 1, "--nnodes", 2, "--node-rank", 1, "--master", "127.0.0.1:1", "--", "sleep", "4")
        self.assertIn("note: node 1 of 2 waits for the store at tcp://127.0.0.1:1: Connection refused (3 s)\n", run.stderr)

    def test_ranks_that_do_not_come_are_named(self):
        rank = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(train_test.free_port())}
        run = trireme("train", "t.toml", "--comm.init_timeout_s", 4, variables=rank)
        self.assertEqual(run.code, 72, run)
        self.assertIn("note: rank 0 of 2 waits for rank 1 (3 s of at most 4 s)\n", run.stderr)


if __name__ == "__main__":
    train_test.main()
