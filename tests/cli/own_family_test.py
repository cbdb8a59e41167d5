#!/usr/bin/env python3
"""examples/own_decoder.cpp: a program with a family of its own trains, resumes on other layouts, and says what such a family cannot do.

usage: own_family_test.py OWN_DECODER [CLASS[.test]...]"""
import json
import os
import pathlib
import subprocess

import train_test
from train_test import CHECKPOINT, CONFIG, F64, QUIET, TrainTest, finish, fresh_folder, start, train

OWN = ("--model.model_type", "parallel-llama")
FULL = ("--activation_checkpoint.mode", "full")


def program(folder, *words):
    return finish(start(folder, [train_test.options.trireme, *words]), folder)


class Trains(TrainTest):
    def test_other_layouts_go_on_with_the_losses_of_one_rank(self):
        """Three steps each on one rank, on tp 2 x dp 2 with ZeRO 3, and on a pipeline with recompute."""
        folder = fresh_folder()
        common = (*OWN, *F64, *QUIET, "--run.name", "one", "--lr_scheduler.decay_end_step", "9")
        one = self.ok(train(*common, "--training.steps", "9"))
        layouts = ((1, ()), (4, ("--parallelism.tp", "2", "--parallelism.zero", "3")), (2, ("--parallelism.pp", "2", *FULL)))
        for steps, (n, words) in zip((3, 6, 9), layouts):
            run = self.ok(train(*common, *words, "--training.steps", steps, n=n, folder=folder))
        self.assertEqual(os.readlink(folder / "runs/latest"), "one")
        self.close(run.losses(), one.losses(), 1e-12)
        self.close([r["grad_norm"] for r in run.metrics()], [r["grad_norm"] for r in one.metrics()], 1e-12)

        checkpoint = folder / "runs/one/checkpoints/step-9"
        manifest = json.loads((checkpoint / "checkpoint_metadata.json").read_text())["checkpoint"]
        names = {t["name"] for t in manifest["tensors"] if t["kind"] == "weight"}
        self.assertTrue({"layers.1.up.weight", "layers.1.norm.weight", "norm.weight"} <= names, names)
        self.assertFalse((checkpoint / "config.json").exists() or (checkpoint / "model.safetensors").exists(), "for transformers")
        for words, code, told in (
                (("checkpoint", "verify", checkpoint), 0, ""),
                (("reshape", checkpoint, "--to", "tp=2", "-o", folder / "r"), 0, ""),
                (("checkpoint", "verify", folder / "r" / "step-9"), 0, ""),
                (("convert", checkpoint, folder / "c", "--to", "hf"), CONFIG, "of the family parallel-llama: this program has registered it")):
            with self.subTest(words=words):
                ended = program(folder, *words)
                self.assertEqual(ended.code, code, ended)
                self.assertIn(told, ended.stderr)
        # The program without the family.
        trireme = pathlib.Path(train_test.options.trireme).parents[1] / "trireme"
        for words, code in ((("reshape", checkpoint, "--to", "tp=2", "-o", folder / "s"), CHECKPOINT), (("train", "t.toml", *OWN), CONFIG)):
            ended = subprocess.run([trireme, *words], capture_output=True, text=True, cwd=folder)
            self.assertEqual(ended.returncode, code, ended)
            self.assertIn("parallel-llama", ended.stderr)

    def test_header(self):
        """The parameters are those of the family, not of the one that it is like."""
        ended = program(fresh_folder(), "config", "check", "t.toml", *OWN)
        attention, mlp, norm = 32 * (32 + 16 + 16) + 32 * 32, 2 * 32 * 64, 32
        total = 2 * 257 * 32 + 2 * (attention + mlp + norm) + norm
        self.assertEqual(ended.code, 0, ended)
        self.assertIn(f"parameters   {total:,}: embedding 8,224 · layers {2 * (attention + mlp + norm):,} · norms 32 · head 8,224\n", ended.stdout)
        self.assertIn("activations are predicted as those of llama, and no weights are written for transformers or nanotron", ended.stderr)
        run = self.ok(train(*OWN, "--training.steps", "2", n=2))
        self.assertIn(f"parallel-llama · 2 layers · hidden 32 · 4 heads · vocab 257 · {total:,} parameters", run.stdout)


class Refused(TrainTest):
    def test_what_needs_names_of_other_formats(self):
        folder = fresh_folder()
        for key, value in (("model.init", "hf:models/llama"), ("checkpoint.format", "nanotron"), ("checkpoint.export_hf", "true")):
            with self.subTest(key=key):
                run = train(*OWN, f"--{key}", value, folder=folder)
                self.assertEqual(run.code, CONFIG, run)
                self.assertRegex(run.stderr, rf'(?s)^error: {key} = "?{value}"? with the family parallel-llama\n.*this program has registered it.*\n  fix: ')
                self.assertEqual(run.files(), [])


if __name__ == "__main__":
    train_test.main()
