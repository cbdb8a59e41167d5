#!/usr/bin/env python3
"""Each of the errors E1 to E7 of docs/errors.md, provoked for real: its text and its exit code.

usage: errors_test.py TRIREME [CLASS[.test]...]"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TRIREME = None
ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ROOT / "examples/tiny.toml"


def trireme(*words, folder=None):
    return subprocess.run([TRIREME, *map(str, words)], capture_output=True, text=True, timeout=120, cwd=folder)


class Errors(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)

    def says(self, done, code, *expected):
        self.assertEqual(done.returncode, code, done.stdout[-2000:] + done.stderr[-2000:])
        self.assertTrue(done.stderr.lstrip().startswith(("error: ", "warning: ", "note: ")), done.stderr)
        for words in expected:
            self.assertIn(words, done.stderr)
        self.assertEqual(sorted(p.name for p in self.folder.glob("runs/*/checkpoints/*")), [], "nothing half done")

    def test_every_error_has_its_section(self):
        page = (ROOT / "docs/errors.md").read_text()
        self.assertEqual(re.findall(r"^## (E\d):", page, re.M), [f"E{i}" for i in range(1, 8)])
        for i in range(1, 8):
            self.assertTrue(any(name.startswith(f"test_E{i}") for name in dir(self)))

    def test_E1_world_size(self):
        self.says(trireme("train", TINY, "-n", 3, "--parallelism.dp", 2, folder=self.folder), 64,
                  "error: the layout needs 4 ranks, 3 were started", "-->", "dp=2 tp=2 pp=1 cp=1", "fix: start 4 ranks")

    def test_E2_settings_that_do_not_fit(self):
        self.says(trireme("train", TINY, "-n", 3, "--parallelism.tp", 3, "--training.global_batch_size", 7, folder=self.folder), 64,
                  "config errors (nothing was started)", "num_attention_heads = 4", "global_batch_size = 7", "  1. ",
                  "  2. ")

    def test_E3_unknown_key(self):
        config = self.folder / "run.toml"
        config.write_text(TINY.read_text().replace("warmup_steps = 20", "warmup = 200"))
        self.says(trireme("train", config, "-n", 2, folder=self.folder), 64, "error: unknown key", "run.toml:", "warmup = 200", "^^^^^^",
                  'did you mean "warmup_steps"')

    def test_E4_data_and_model_disagree(self):
        text = self.folder / "text.txt"
        text.write_text("some words, " * 500)
        self.assertEqual(trireme("data", "prepare", text, "--train-bpe", 300, "-o", self.folder / "data").returncode, 0)
        done = trireme("train", TINY, "-n", 2, "--data.0.sources.0.path", self.folder / "data.ds", "--tokenizer.path", "",
                       "--model.vocab_size", 100, folder=self.folder)
        self.says(done, 65, "data.ds", "vocab", "100", "fix:")
        other = trireme("train", TINY, "-n", 2, "--data.0.sources.0.path", self.folder / "data.ds", folder=self.folder)
        self.says(other, 65, "tokenizer", "data.ds", "fix:")

    def test_E5_out_of_memory(self):
        done = trireme("train", TINY, "-n", 2, "--model.hidden_size", 16384, "--model.intermediate_size", 65536,
                       "--model.num_hidden_layers", 400, "--model.num_attention_heads", 128, "--model.num_key_value_heads", 128,
                       "--model.head_dim", 128, folder=self.folder)
        self.says(done, 73, "the model needs", "per rank for weights, gradients and optimizer states; this host has", "nothing was started",
                  "fix:")

    def test_E6_a_call_that_never_ends(self):
        run = subprocess.Popen([TRIREME, "train", str(TINY), "-n", "2", "--comm.timeout_s", "4", "--run.name", "hang", "--training.steps",
                                "100000", "--checkpoint.interval", "0"], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
        self.addCleanup(lambda: run.poll() is None and run.kill())
        metrics = self.folder / "runs/hang/metrics.jsonl"
        deadline = time.monotonic() + 60
        while not (metrics.exists() and metrics.read_text().count("\n") >= 8):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        ranks = {pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0RANK=")[1][:1].decode(): int(pid) for pid in children
                 if b"\0RANK=" in pathlib.Path(f"/proc/{pid}/environ").read_bytes()}
        os.kill(ranks["1"], signal.SIGSTOP)
        try:
            out, err = run.communicate(timeout=60)
        finally:
            try:
                os.kill(ranks["1"], signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.assertEqual(run.returncode, 72, err)
        for words in ("timed out after 4.0 s: 1 of 2 ranks arrived", "missing: rank 1", "fix:", "last 64 calls"):
            self.assertIn(words, err)

    @unittest.skipUnless(pathlib.Path("/dev/nvidia0").exists(), "needs a GPU")
    def test_E7_two_ranks_on_one_gpu(self):
        done = subprocess.run([TRIREME, "train", str(TINY), "-n", "2", "--training.steps", "2"], capture_output=True, text=True,
                              timeout=120, cwd=self.folder, env={**os.environ, "CUDA_VISIBLE_DEVICES": "0"})
        self.says(done, 64, "both on cuda:0", "fix:", "comm.share_gpu")


if __name__ == "__main__":
    TRIREME = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
