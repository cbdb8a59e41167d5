#!/usr/bin/env python3
"""`trireme train` with pipelines: the losses of one rank on every layout, schedules of the user's own, and what is said when
something is wrong.

usage: pipeline_test.py TRIREME [CLASS[.test]...]"""
import functools
import gzip
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import train_test
from train_test import (BLOW_UP, CONFIG, F64, NON_FINITE, PEER_LOST, QUIET, TrainTest, finish, fresh_folder, shared, start, train)

LAYERS = ("--model.num_hidden_layers", "4")
SMALL = (*F64, *LAYERS)
VALIDATED = ("--validation.interval", "2", "--validation.fraction", "0.02")


@functools.cache
def one_rank():
    return shared(*SMALL, *VALIDATED, *QUIET)


def pipeline(pp, schedule="1f1b", **more):
    words = ["--parallelism.pp", pp, "--parallelism.pp_schedule", schedule]
    for key, value in more.items():
        words += [f"--parallelism.{key}", value]
    return [str(word) for word in words]


def schedule_text(*words):
    out = subprocess.run([train_test.options.trireme, "schedule", *words, "--text"], capture_output=True, text=True, check=True).stdout
    return out


class DryRun(TrainTest):
    def test_every_stage_runs_a_step_without_peers(self):
        for n, words in ((2, pipeline(2)), (8, pipeline(2, "zbv", tp=2, zero=3))):
            with self.subTest(words=words):
                run = self.ok(train(*SMALL, *words, "--dry-run", n=n))
                self.assertIn("nothing was started", run.stdout)
                self.assertEqual(run.files(), [])


class Numbers(TrainTest):
    def test_layouts_have_the_losses_of_one_rank(self):
        """Losses, norms and validation; the weights that are exported."""
        one = self.ok(one_rank())
        for n, words in ((2, pipeline(2)), (4, pipeline(2, "zbv", dp=2, zero=3)),
                         (4, pipeline(2, "interleaved-1f1b", tp=2, virtual_stages=2, zero=2)), (4, pipeline(4, "zb1p", zero=0))):
            with self.subTest(words=words):
                run = self.ok(train(*SMALL, *VALIDATED, *QUIET, *words, n=n))
                self.close(run.losses(), one.losses(), 1e-12)
                for key in ("grad_norm", "val/loss"):
                    self.close([r[key] for r in run.metrics() if key in r], [r[key] for r in one.metrics() if key in r], 1e-12)
                self.assertEqual(len((run.saved() / "model.safetensors").read_bytes()), len((one.saved() / "model.safetensors").read_bytes()))
                for row in run.metrics():
                    self.assertTrue(0 < row["bubble_ideal_frac"] < 1 or words[3] == "zbv", row)
                    self.assertTrue(0 <= row["bubble_frac"] < 1, row)

    def test_tied_16_bits(self):
        """A tied model in float16 with a loss scale, bfloat16 with ZeRO 1 and recompute: the losses of one rank to 16 bits."""
        for words in (("--model.dtype", "float16"), ("--model.dtype", "bfloat16", "--activation_checkpoint.mode", "full")):
            tied = (*words, *LAYERS, "--model.tie_word_embeddings", "true", *QUIET)
            one, two = self.ok(train(*tied)), self.ok(train(*tied, *pipeline(2), n=2))
            self.close(two.losses(), one.losses(), 1e-2)
            self.assertEqual([row.get("loss_scale") for row in two.metrics()], [row.get("loss_scale") for row in one.metrics()])

    def test_megatron(self):
        """Text to Megatron's token files, then tp 2 x pp 2 x dp 2 in bfloat16 with ZeRO 1, in one command each."""
        folder = fresh_folder()
        subprocess.run([train_test.options.trireme, "data", "prepare", train_test.scratch / "book.txt", "-t", "bytes", "--format", "megatron",
                        "-o", "wiki", "-q"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        self.assertTrue((folder / "wiki_text_document.bin").exists() and (folder / "wiki_text_document.idx").exists())
        text = (folder / "t.toml").read_text()
        (folder / "t.toml").write_text(text.replace('book.ds', 'wiki_text_document'))
        run = self.ok(train("--model.dtype", "bfloat16", "--model.num_hidden_layers", "4", *pipeline(2, tp=2, dp=2, zero=1), "--training.steps", "6",
                            folder=folder, n=8))
        self.assertIn("pp=2 dp=2 cp=1 tp=2 zero=1", run.stdout)
        self.assertRegex(run.stdout, r"(?m)^stages +1f1b · layers 0-1 \(rank 0\) \| 2-3 \(rank 1\) · ideal bubble 33.3 %$")
        self.assertLess(run.losses()[-1], run.losses()[0] - 0.5)


class Trace(TrainTest):
    def test_actions_and_messages(self):
        run = self.ok(train(*SMALL, *QUIET, *pipeline(2, "zb1p"), "--profiler.steps", "[2]", n=2))
        program = [line.split(": ")[1] for line in schedule_text("zb1p", "--stages", "2", "--microbatches", "4").splitlines() if line.startswith("rank")]
        words = {"F": "forward", "I": "input gradients", "W": "weight gradients", "B": "backward"}
        for rank in (0, 1):
            with gzip.open(run.path() / f"trace/step2/rank{rank}.json.gz") as file:
                events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
            spans = sorted((e["ts"], e["name"]) for e in events if e["cat"] == "step" and e["name"] != "update")
            expected = [re.fullmatch(r"(\d)([FBIW])(\d+)", action).groups() for action in program[rank].split()]
            self.assertEqual([name for _, name in spans],
                             [f"{words[op]} microbatch {m}" + (f" chunk {chunk}" if chunk != "0" else "") for chunk, op, m in expected])
            for op in ("send", "recv"):
                self.assertGreaterEqual(sum(e["name"].startswith(op) for e in events), 4, op)


class OwnSchedule(TrainTest):
    def run_with(self, text, *words):
        folder = fresh_folder()
        (folder / "mine.txt").write_text(text)
        return train(*SMALL, *QUIET, "--parallelism.pp", "2", "--parallelism.pp_schedule_file", "mine.txt", *words, folder=folder, n=2)

    def test_runs(self):
        """Two microbatches ahead, and the backwards of the first rank split."""
        text = ("schedule mine microbatches 4\nchunks on ranks 0 1\nrank 0: 0F0 0F1 0F2 0I0 0F3 0W0 0I1 0W1 0B2 0B3\n"
                "rank 1: 1F0 1B0 1F1 1B1 1F2 1F3 1B2 1B3\n")
        run = self.ok(self.run_with(text, *VALIDATED))
        self.close(run.losses(), one_rank().losses(), 1e-12)
        self.close([r["val/loss"] for r in run.metrics() if "val/loss" in r],
                   [r["val/loss"] for r in one_rank().metrics() if "val/loss" in r], 1e-12)

    def test_a_checkpoint_does_not_need_the_file(self):
        """Inspected, reshaped and resumed on another layout after the schedule's file is gone."""
        text = schedule_text("1f1b", "--stages", "2", "--microbatches", "4")
        words = ("--run.name", "r", "--lr_scheduler.decay", "constant")
        first = self.ok(self.run_with(text, *words, "--training.steps", "2"))
        (first.folder / "mine.txt").unlink()
        saved = first.saved()
        for command in (["checkpoint", "inspect", saved], ["checkpoint", "verify", saved], ["reshape", saved, "--to", "tp=2,pp=1", "-o", "other"]):
            done = subprocess.run([train_test.options.trireme, *command], cwd=first.folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        last = self.ok(train(*SMALL, *QUIET, *words, "--training.steps", "4", folder=first.folder))
        whole = self.ok(train(*SMALL, *QUIET, *words, "--training.steps", "4"))
        self.close(last.losses(), whole.losses(), 1e-12)

    def test_refused(self):
        """By name, before any rank starts."""
        good = schedule_text("1f1b", "--stages", "2", "--microbatches", "4")
        for text, said in ((good.replace("1F0 1B0", "1B0 1F0"), "schedule deadlock: pp rank 0 never gets past step"),
                           (good.replace(" 0B3", ""), "pp rank 0 never computes the input gradient of chunk 0, microbatch 3"),
                           (good.replace("1B2", "1B1"), "pp rank 1, step 5 (1B1): this input gradient was computed before"),
                           (good.replace("0F0", "1F0"), "chunk 1 is on pp rank 1"),
                           (good.replace("microbatches 4", "microbatches 3"), "there are only 3 microbatches"),
                           (schedule_text("1f1b", "--stages", "2", "--microbatches", "3"), "it is for 3 microbatches, a step has 4"),
                           (schedule_text("1f1b", "--stages", "3", "--microbatches", "4"), "it is for 3 pipeline ranks, parallelism.pp = 2"),
                           ("hello\n", "unknown word 'hello'")):
            with self.subTest(said=said):
                run = self.run_with(text)
                self.one_error(run, CONFIG, "parallelism.pp_schedule_file", "mine.txt", said, "fix: ")
                self.nothing_started(run)


class Ends(TrainTest):
    def test_resumes_on_another_layout(self):
        """Stopped on pp 2 with ZeRO 3, goes on with zbv x tp 2 in nanotron's layout, then on one rank: one rank's losses."""
        folder = fresh_folder()
        words = (*SMALL, *QUIET, "--run.name", "r", "--lr_scheduler.decay", "constant")
        whole = self.ok(train(*words, "--training.steps", "6"))
        nanotron = ("--checkpoint.format", "nanotron")
        self.ok(train(*words, *pipeline(2, dp=2, zero=3), "--training.steps", "2", folder=folder, n=4))
        self.ok(train(*words, *pipeline(2, "zbv", tp=2), *nanotron, "--training.steps", "4", folder=folder, n=4))
        self.ok(train(*words, "--training.steps", "6", folder=folder))
        losses = [json.loads(line)["loss"] for line in (folder / "runs/r/metrics.jsonl").read_text().splitlines()]
        self.close(losses, whole.losses(), 1e-12)

    def test_not_finite_names_its_rank(self):
        run = train(*BLOW_UP, *LAYERS, *pipeline(2), n=2)
        self.assertEqual(run.code, NON_FINITE, run)
        self.assertRegex(run.stderr, r"first non-finite value: the (output|gradient) of [a-z0-9_.]+ in microbatch \d+ on rank [01]\n")

    def test_a_killed_stage_ends_all_within_a_second(self):
        folder = fresh_folder()
        process = start(folder, [train_test.options.trireme, "train", "t.toml", "-n", 4, *LAYERS, *pipeline(4), "--training.steps", 1000000])
        path, end = folder / "runs/latest/metrics.jsonl", time.monotonic() + 40
        while not (path.exists() and path.stat().st_size) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        others = []
        for child in train_test.ranks.descendants(process.pid):
            rank = re.search(r"\0RANK=(\d)\0", pathlib.Path(f"/proc/{child}/environ").read_text())
            if rank and rank[1] == "2":
                victim = int(child)
            elif rank:
                others.append(int(child))
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        while any(pathlib.Path(f"/proc/{pid}").exists() for pid in others) and time.monotonic() < killed + 10:
            time.sleep(0.01)
        self.assertLess(time.monotonic() - killed, 1.0)
        run = finish(process, folder, timeout=10)
        self.assertEqual(run.code, PEER_LOST, run)
        self.assertRegex(run.stderr, r"^error: rank 2 \(pid \d+\) was killed by signal 9 \(SIGKILL\)")


if __name__ == "__main__":
    train_test.main()
