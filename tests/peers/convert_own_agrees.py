#!/usr/bin/env python3
"""`trireme convert` of checkpoints that training wrote, against what training itself exported.

usage: convert_own_agrees.py TRIREME [CLASS[.test]...]
"""
import array
import json
import os
import subprocess
import sys
import unittest

import torch
import transformers

sys.dont_write_bytecode = True
import convert_agrees  # noqa: E402
from convert_agrees import CHECKPOINT, FAMILIES, ConvertTest, logits, make, weights_of  # noqa: E402

TOKENS = 4000
TOML = """
[run]
name = "r-FAMILY"
[model]
hf = "FAMILY"
init = "hf:FAMILY"
[[data]]
sources = [ { path = "tokens.ds" } ]
[training]
steps = 2
seq_len = 16
global_batch_size = 4
[parallelism]
tp = 2
[optimizer]
lr = 1e-2
[lr_scheduler]
warmup_steps = 0
[checkpoint]
interval = 1
[metrics]
console = "quiet"
"""


class Trained(ConvertTest):
    def trained(self, family, *flags):
        """The folder of a run of two steps on two ranks, which starts from random weights of transformers."""
        make(family, self.folder / family, torch.float32)
        (self.folder / "tokens.ds").write_bytes(array.array("H", (i * i % 89 for i in range(TOKENS))))
        (self.folder / "tokens.ds.index").write_bytes(TOKENS.to_bytes(8, "little"))
        (self.folder / "tokens.ds.metadata").write_text(f"made_up|2\n{TOKENS}\n4.0 kT")
        (self.folder / "run.toml").write_text(TOML.replace("FAMILY", family))
        run = subprocess.run([convert_agrees.TRIREME, "train", "run.toml", "-n", "2", *flags], cwd=self.folder, capture_output=True, text=True,
                             env={**os.environ, "OMP_NUM_THREADS": "1", "TRIREME_DEVICE": "cpu"}, timeout=120)
        self.assertEqual(run.returncode, 0, run.stderr)
        return self.folder / "runs" / f"r-{family}"

    def test_every_family(self):
        """In the dtype of the run: what training exported, bit by bit."""
        for family in FAMILIES:
            with self.subTest(model=family):
                run = self.trained(family, "--model.dtype", "bfloat16" if family == "qwen2" else "float32")
                last = run / "checkpoints/step-2"
                exported = weights_of_export(last)
                out = self.converted(last, self.folder / f"{family}-out", "--to", "hf")
                self.assert_same_bits(weights_of(out), exported)
                self.assertEqual((out / "config.json").read_text(), (last / "config.json").read_text())
                self.assertEqual((out / "tokenizer.json").read_text(), '{"a": "tokenizer"}')
                start = weights_of(self.folder / family)
                self.assertTrue(any(not torch.equal(start[name].to(value.dtype), value) for name, value in exported.items()), "nothing was trained")
                loaded, report = transformers.AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
                self.assertFalse(any(report.values()), report)
                reference = transformers.AutoModelForCausalLM.from_pretrained(last)
                self.assertLess((logits(loaded) - logits(reference)).abs().max(), 1e-5)
                if family in ("llama", "qwen2"):
                    there = self.converted(last, self.folder / f"{family}-there", "--to", "nanotron", "--tp", 2)
                    back = self.converted(there, self.folder / f"{family}-back", "--to", "hf")
                    self.assert_same_bits(weights_of(back), exported)

    def test_which_checkpoint_and_which_dtype(self):
        run = self.trained("llama", "--model.dtype", "bfloat16")
        exported = weights_of_export(run / "checkpoints/step-2")
        self.assertEqual({value.dtype for value in exported.values()}, {torch.bfloat16})
        for number, source in enumerate((run, run / "checkpoints", run / "checkpoints/step-2", self.folder / "runs/latest")):
            self.assert_same_bits(weights_of(self.converted(source, self.folder / f"out-{number}", "--to", "hf")), exported)
        master = weights_of(self.converted(run, self.folder / "master", "--to", "hf", "--dtype", "float32"))
        self.assert_same_bits({name: value.bfloat16() for name, value in master.items()}, exported)
        self.assertTrue(any((value.bfloat16().float() != value).any() for value in master.values()), "the optimizer's own precision")
        self.assertEqual(json.loads((self.folder / "master/config.json").read_text())["dtype"], "float32")
        # Not exported, and in the middle of a run.
        first = self.converted(run / "checkpoints/step-1", self.folder / "first", "--to", "hf")
        self.assertEqual(weights_of(first).keys(), exported.keys())
        self.assertTrue(any(not torch.equal(value, exported[name]) for name, value in weights_of(first).items()))

    def test_damage(self):
        run = self.trained("llama")
        last = run / "checkpoints/step-2"
        (last / "model.safetensors").unlink()
        path = last / "rank-00000.safetensors"
        whole = path.read_bytes()
        damaged = bytearray(whole)
        for at in range(len(whole) // 2, len(whole), 97):
            damaged[at] ^= 1
        path.write_bytes(damaged)
        self.refused(CHECKPOINT, "they are damaged", last, self.folder / "out", "--to", "hf")
        path.write_bytes(whole[:-1])
        self.refused(CHECKPOINT, f"rank-00000.safetensors: has {len(whole) - 1} bytes, not {len(whole)}", last, self.folder / "out", "--to", "hf")
        self.converted(run, self.folder / "before", "--to", "hf")  # the one before it
        (last / "checkpoint_metadata.json").unlink()
        self.refused(CHECKPOINT, "it has no checkpoint_metadata.json, which is written last", last, self.folder / "out", "--to", "hf")
        self.assertFalse((self.folder / "out").exists())


def weights_of_export(checkpoint):
    """What training exported; the ranks' files are not of it."""
    return convert_agrees.safetensors.torch.load_file(checkpoint / "model.safetensors")


if __name__ == "__main__":
    convert_agrees.TRIREME = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
