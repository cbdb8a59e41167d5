#!/usr/bin/env python3
"""`trireme convert` of checkpoints that training wrote, in both layouts, and what other programs read of nanotron's layout: against what
training itself exported.

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
from convert_agrees import CHECKPOINT, FAMILIES, LAYERS, SIZES, ConvertTest, logits, make, pairs_of, read_nanotron, weights_of  # noqa: E402

FAMILIES["grouped"] = transformers.LlamaConfig(**{**SIZES, "num_key_value_heads": 2})

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


class TrainedTest(ConvertTest):
    def trained(self, family, *flags, n=2, path=None):
        """The folder of a run of two steps, which starts from random weights of transformers."""
        make(family, self.folder / family, torch.float32)
        (self.folder / "tokens.ds").write_bytes(array.array("H", (i * i % 89 for i in range(TOKENS))))
        (self.folder / "tokens.ds.index").write_bytes(TOKENS.to_bytes(8, "little"))
        (self.folder / "tokens.ds.metadata").write_text(f"made_up|2\n{TOKENS}\n4.0 kT")
        (self.folder / "run.toml").write_text(TOML.replace("FAMILY", family))
        run = subprocess.run([convert_agrees.TRIREME, "train", "run.toml", "-n", str(n), *flags], cwd=self.folder, capture_output=True, text=True,
                             env={**os.environ, "OMP_NUM_THREADS": "1", "TRIREME_DEVICE": "cpu"}, timeout=120)
        self.assertEqual(run.returncode, 0, run.stderr)
        return self.folder / "runs" / (path or f"r-{family}")


class Trained(TrainedTest):
    def test_every_family(self):
        """In the dtype of the run: what training exported, bit by bit."""
        for family in ("gpt2", "llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe", "gemma2"):
            experts = {"mixtral": ("--parallelism.ep", "2", "--parallelism.expert_tp", "1")}.get(family, ())
            with self.subTest(model=family):
                run = self.trained(family, *experts, "--model.dtype", "bfloat16" if family == "qwen2" else "float32", "--checkpoint.format",
                                   "nanotron" if family in ("gpt2", "mistral", "qwen2") else "trireme")
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


class NanotronLayout(TrainedTest):
    """Without a line of Trireme: safetensors and torch read the files, and the slices in them are put together here."""

    def test_other_programs_read_it(self):
        # Four ranks share two key-value heads: two ranks hold each.
        for n, tp, zero in ((1, 1, 0), (2, 2, 1), (4, 2, 3), (4, 4, 0)):
            with self.subTest(n=n, tp=tp, zero=zero):
                run = self.trained("grouped", "--model.dtype", "bfloat16", "--checkpoint.format", "nanotron", "--parallelism.tp", str(tp),
                                   "--parallelism.zero", str(zero), "--run.name", f"r-{n}-{tp}", n=n, path=f"r-{n}-{tp}")
                last = run / "checkpoints/step-2"
                wanted = in_own_names(weights_of_export(last))
                tensors, ranks = read_nanotron(last)
                self.assert_same_bits(tensors, wanted)
                self.assertEqual(set(ranks), set() if tp == 1 else {name for name in wanted if "norm" not in name})
                self.assertTrue(all((pp, t) == (1, tp) for places in ranks.values() for _, pp, _, t in places))
                states = self.read_optimizer(last, ranks=n)
                self.assertEqual(states.keys(), {(name, kind) for name in wanted for kind in ("weight", "exp_avg", "exp_avg_sq")})
                self.assert_same_bits({name: states[name, "weight"].bfloat16() for name in wanted}, wanted)
                self.assertTrue(all(states[name, "exp_avg_sq"].sum() > 0 for name in wanted))
                for file in sorted(last.glob("lr_scheduler/*.pt")):
                    self.assertEqual(torch.load(file, weights_only=True), {"last_step": 2, "last_lr": 0.005, "base_lr": 0.01})
                random = [torch.load(file, weights_only=True)["random"] for file in sorted(last.glob("random/*.pt"))]
                self.assertEqual((len(random), {state.dtype for state in random}), (n, {torch.uint8}))

    def read_optimizer(self, checkpoint, ranks):
        """{(parameter, kind): full tensor}; every element is there once."""
        whole, seen = {}, {}
        files = sorted(checkpoint.glob("optimizer/*.pt"))
        self.assertEqual(len(files), ranks)
        for file in files:
            saved = torch.load(file, weights_only=True)
            self.assertEqual(saved["step"], 2)
            for name, kinds in saved["state"].items():
                shape = [int(word) for word in saved["unsharded_shape"][name].strip("()").split(",") if word.strip()]
                for kind, parts in kinds.items():
                    for box, values in parts.items():
                        place = pairs_of(f"{box}#{box}")[0][0]
                        whole.setdefault((name, kind), torch.zeros(shape))[place] = values
                        seen.setdefault((name, kind), torch.zeros(shape))[place] += 1
        for key, count in seen.items():
            self.assertTrue((count == 1).all(), key)
        return whole


def in_own_names(weights):
    """The tensors of a llama as Trireme names and fuses them."""
    made = {"embedding.weight": weights["model.embed_tokens.weight"], "norm.weight": weights["model.norm.weight"],
            "head.weight": weights["lm_head.weight"]}
    for layer in range(LAYERS):
        ours, theirs = f"layers.{layer}.", f"model.layers.{layer}."
        made[ours + "attention.qkv.weight"] = torch.cat([weights[f"{theirs}self_attn.{x}_proj.weight"] for x in "qkv"])
        made[ours + "mlp.gate_up.weight"] = torch.cat([weights[f"{theirs}mlp.{x}_proj.weight"] for x in ("gate", "up")])
        for a, b in (("attention_norm", "input_layernorm"), ("mlp_norm", "post_attention_layernorm"), ("attention.out", "self_attn.o_proj"),
                     ("mlp.down", "mlp.down_proj")):
            made[f"{ours}{a}.weight"] = weights[f"{theirs}{b}.weight"]
    return made


def weights_of_export(checkpoint):
    """What training exported; the ranks' files are not of it."""
    return convert_agrees.safetensors.torch.load_file(checkpoint / "model.safetensors")


if __name__ == "__main__":
    convert_agrees.TRIREME = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
