#!/usr/bin/env python3
"""A checkpoint holds the states of libtorch's generators after its step, also if the run stops in the middle of a later one.

usage: random_state_test.py OWN_FAMILIES [CLASS[.test]...]"""
import json
import re
import struct

import train_test
from train_test import BLOW_UP, DATA, NON_FINITE, QUIET, TrainTest, folder_with_a_broken_token, late_results, train

NOISY = ("--model.model_type", "noisy-llama", *QUIET)


def generators(run, step, rank):
    """The bytes of a rank's generators in the checkpoint of a step."""
    stored = (run.path() / f"checkpoints/step-{step}/rank-{rank:05}.safetensors").read_bytes()
    [size] = struct.unpack("<Q", stored[:8])
    [(begin, end)] = [facts["data_offsets"] for name, facts in json.loads(stored[8:8 + size]).items() if "random" in name]
    return stored[8 + size + begin:8 + size + end]


class Generators(TrainTest):
    def check(self, stopped, step, *words):
        """`stopped` in the step after `step`, next to a run that ends there."""
        whole = self.ok(train(*NOISY, *words, "--training.steps", step, n=2))
        longer = self.ok(train(*NOISY, *words, "--training.steps", step + 1, n=2))
        for rank in (0, 1):
            self.assertEqual(generators(stopped, step, rank), generators(whole, step, rank), stopped)
            self.assertNotEqual(generators(longer, step + 1, rank), generators(whole, step, rank), "a step draws")

    def test_not_finite(self):
        words = (*NOISY, *BLOW_UP)
        runs = [train(*words, n=2)]
        with late_results():
            runs.append(train(*words, n=2))
        for run in runs:
            self.assertEqual(run.code, NON_FINITE, run)
        [step] = {int(re.search(r"those after step (\d+), saved in ", run.stderr)[1]) for run in runs}
        for run in runs:
            for rank in (0, 1):
                self.assertEqual(generators(run, step, rank), generators(runs[0], step, rank), run)
        self.check(runs[0], step, *BLOW_UP[:-2], "--checks.non_finite", "skip")

    def test_broken_data(self):
        with late_results():
            run = train(*NOISY, "--training.steps", 2000, n=2, folder=folder_with_a_broken_token())
        self.assertEqual(run.code, DATA, run)
        self.check(run, len(run.metrics()))


if __name__ == "__main__":
    train_test.main()
