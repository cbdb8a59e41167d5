#!/usr/bin/env python3
"""`trireme train` with context parallelism: the losses of one rank for every method, a resume on another cp, and what is said when
the sizes do not fit.

usage: context_test.py TRIREME [CLASS[.test]...]"""
import functools
import json
import pathlib

import train_test
from train_test import CONFIG, F64, QUIET, TrainTest, fresh_folder, shared, train

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = (*F64, "--data.0.attention", "document", "--data.0.positions", "document")
VALIDATED = ("--validation.interval", "2", "--validation.fraction", "0.02")


@functools.cache
def one_rank():
    return shared(*SMALL, *VALIDATED, *QUIET)


def context(cp, method="ring", **more):
    words = ["--parallelism.cp", cp, "--parallelism.cp_method", method]
    for key, value in more.items():
        words += [f"--parallelism.{key}", value]
    return [str(word) for word in words]


class Numbers(TrainTest):
    def test_every_method_has_the_losses_of_one_rank(self):
        """Losses, norms and validation, with documents that are apart."""
        one = self.ok(one_rank())
        for n, words in ((2, context(2, zero=3)), (4, context(4, "ring-contiguous", zero=0)), (4, context(2, "all-gather", tp=2)),
                         (4, context(2, "ulysses", dp=2, zero=2)), (4, context(2, "ulysses-ring", pp=2, pp_schedule="zb1p"))):
            with self.subTest(words=words):
                run = self.ok(train(*SMALL, *VALIDATED, *QUIET, *words, n=n))
                self.close(run.losses(), one.losses(), 1e-12)
                for key in ("grad_norm", "val/loss", "num_tokens"):
                    self.close([r[key] for r in run.metrics() if key in r], [r[key] for r in one.metrics() if key in r], 1e-12)

    def test_documents_matter(self):
        """Otherwise the test above would not see them."""
        self.assertNotAlmostEqual(self.ok(shared(*F64, *QUIET)).losses()[0], self.ok(one_rank()).losses()[0], places=6)

    def test_the_example(self):
        run = self.ok(train("--run.dir", "runs", "--training.steps", "8", config=ROOT / "examples/long_context.toml", n=2))
        self.assertIn("cp=2", run.stdout)
        self.assertLess(run.losses()[-1], run.losses()[0])


class Resume(TrainTest):
    def test_on_another_cp(self):
        folder = fresh_folder()
        words = (*SMALL, *QUIET, "--run.name", "r", "--lr_scheduler.decay", "constant")
        whole = self.ok(train(*words, "--training.steps", "6"))
        self.ok(train(*words, *context(2, tp=2, zero=1), "--training.steps", "2", folder=folder, n=4))
        self.ok(train(*words, *context(4, "all-gather", zero=3), "--training.steps", "4", folder=folder, n=4))
        self.ok(train(*words, "--training.steps", "6", folder=folder))
        losses = [json.loads(line)["loss"] for line in (folder / "runs/r/metrics.jsonl").read_text().splitlines()]
        self.close(losses, whole.losses(), 1e-12)


class Refused(TrainTest):
    def test_sizes_that_do_not_fit(self):
        for words, said in ((context(2) + ["--training.seq_len", "34"], "seq_len = 34 is not divisible by 2 × cp = 4"),
                            (context(3, "ulysses") + ["--training.seq_len", "36"], "is not divisible by tp 1 × cp 3"),
                            (context(2) + ["--model.attention_dropout", "0.1"], "attention_dropout = 0.1 with cp = 2")):
            with self.subTest(words=words):
                run = train(*F64, *QUIET, *words, n=int(words[1]))
                self.one_error(run, CONFIG, said, "fix: ")
                self.nothing_started(run)


if __name__ == "__main__":
    train_test.main()
