#!/usr/bin/env python3
"""`trireme convert` against transformers, the safetensors package, and a reader of nanotron's format that is written here from its grammar.

usage: convert_agrees.py TRIREME [CLASS[.test]...]
"""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import safetensors
import safetensors.torch
import torch
import transformers

torch.set_num_threads(1)  # the models are small, and other tests run beside this one
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

TRIREME = None
LAYERS, VOCABULARY, HIDDEN, FFN = 2, 96, 64, 128
CONFIG, CHECKPOINT, SECURITY = 64, 66, 77  # exit codes
BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float64: torch.int64}
SIZES = dict(hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=4,
             vocab_size=VOCABULARY, max_position_embeddings=64, bos_token_id=1, eos_token_id=2)
FAMILIES = {
    "gpt2": transformers.GPT2Config(n_embd=HIDDEN, n_head=4, n_inner=FFN, n_layer=LAYERS, vocab_size=VOCABULARY, n_positions=64,
                                    bos_token_id=1, eos_token_id=2),
    "llama": transformers.LlamaConfig(**SIZES),
    "mistral": transformers.MistralConfig(**SIZES, head_dim=16, sliding_window=None),
    "qwen2": transformers.Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": transformers.Qwen3Config(**SIZES, head_dim=24),
    "mixtral": transformers.MixtralConfig(**SIZES, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
    "gemma2": transformers.Gemma2Config(**SIZES, head_dim=24, sliding_window=8, query_pre_attn_scalar=24),
    "qwen3_moe": transformers.Qwen3MoeConfig(**SIZES, head_dim=24, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=40),
}


def make(name, folder, dtype=torch.bfloat16):
    """A model of random weights, saved by transformers with a tokenizer's file and a file that is nobody's."""
    torch.manual_seed(len(name))
    model = transformers.AutoModelForCausalLM.from_config(FAMILIES[name], dtype=dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.2 + (1 if parameter.dim() == 1 else 0))
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text('{"a": "tokenizer"}')
    (folder / ".hidden").write_text("x")
    return model


def convert(*words):
    return subprocess.run([TRIREME, "convert", *map(str, words)], capture_output=True, text=True, timeout=60)


def weights_of(folder):
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        found.update(safetensors.torch.load_file(file))
    return found


def logits(model):
    ids = torch.arange(24).view(1, -1) * 7 % VOCABULARY
    with torch.no_grad():  # in fp32: not every processor multiplies bf16
        return model.eval().float()(input_ids=ids).logits


# ---- nanotron's format, from its grammar

def slice_of(text):
    start, stop, step = (None if word == "None" else int(word) for word in text.split(","))
    return slice(start, stop, step)


def pairs_of(text):
    """[(local slices, global slices)]"""
    return [tuple(tuple(slice_of(s) for s in side.split("|")) for side in pair.split("#")) for pair in text.split(";")]


def read_nanotron(folder):
    """{name: tensor} and {name: [(pp rank, pp, tp rank, tp)]}; asserts that the shards of a tensor cover it once."""
    tensors, covered, ranks = {}, {}, {}
    for file in sorted((folder / "model").rglob("*.safetensors")):
        word = re.fullmatch(r"model_([a-z_]+?)(?:_pp-rank-(\d+)-of-(\d+)_tp-rank-(\d+)-of-(\d+))?\.safetensors", file.name)
        assert word, file
        name = ".".join([*file.parent.relative_to(folder / "model").parts, word[1]])
        with safetensors.safe_open(file, "pt") as opened:
            assert list(opened.keys()) == ["data"], file
            data, metadata = opened.get_tensor("data"), opened.metadata() or {}
        if word[2] is None and "unsharded_shape" not in metadata:
            assert name not in tensors, name
            tensors[name] = data
            continue
        assert metadata["version"] == "1.5", metadata
        if word[2] is not None:
            ranks.setdefault(name, []).append(tuple(map(int, word.groups()[1:])))
        shape = tuple(int(n) for n in metadata["unsharded_shape"].strip("()").split(",") if n.strip())
        whole = tensors.setdefault(name, torch.zeros(shape, dtype=data.dtype))
        seen = covered.setdefault(name, torch.zeros(shape, dtype=torch.int32))
        used = torch.zeros(data.shape, dtype=torch.int32)
        for local, everywhere in pairs_of(metadata["local_global_slices_pairs"]):
            whole[everywhere] = data[local]
            seen[everywhere] += 1
            used[local] += 1
        assert (used == 1).all(), (file, "an element of the shard is used", used.unique())
    for name, seen in covered.items():
        assert (seen == 1).all(), (name, "elements are covered", seen.unique())
    return tensors, ranks


def expected(weights, tied):
    """nanotron's tensors, from those of transformers."""
    made = {"model.token_position_embeddings.pp_block.token_embedding.weight": weights["model.embed_tokens.weight"],
            "model.final_layer_norm.pp_block.weight": weights["model.norm.weight"]}
    if not tied:
        made["model.lm_head.pp_block.weight"] = weights["lm_head.weight"]
    for layer in range(LAYERS):
        ours, theirs = f"model.decoder.{layer}.pp_block.", f"model.layers.{layer}."
        for kind in ("weight", "bias"):
            if theirs + "self_attn.q_proj." + kind in weights:
                made[ours + "attn.qkv_proj." + kind] = torch.cat([weights[f"{theirs}self_attn.{x}_proj.{kind}"] for x in "qkv"])
        made[ours + "mlp.gate_up_proj.weight"] = torch.cat([weights[f"{theirs}mlp.{x}_proj.weight"] for x in ("gate", "up")])
        for a, b in (("input_layernorm", "input_layernorm"), ("post_attention_layernorm", "post_attention_layernorm"),
                     ("attn.o_proj", "self_attn.o_proj"), ("mlp.down_proj", "mlp.down_proj")):
            made[f"{ours}{a}.weight"] = weights[f"{theirs}{b}.weight"]
    return made


class ConvertTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = Path(self.scratch.name)
        self.addCleanup(self.scratch.cleanup)

    def converted(self, source, out, *flags):
        run = convert(source, out, *flags)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue(run.stdout.startswith(f"wrote {out}: "), run.stdout)
        return out

    def refused(self, code, words, *command):
        run = convert(*command)
        self.assertEqual(run.returncode, code, run)
        self.assertIn(words, run.stderr)

    def assert_same_bits(self, a, b):
        self.assertEqual(a.keys(), b.keys())
        for name in a:
            self.assertEqual((a[name].dtype, a[name].shape), (b[name].dtype, b[name].shape), name)
            self.assertTrue(torch.equal(a[name].view(BITS[a[name].dtype]), b[name].view(BITS[b[name].dtype])), name)


class Nanotron(ConvertTest):
    def test_every_layout_holds_the_weights(self):
        for name in ("llama", "qwen2"):
            make(name, self.folder / name)
            weights = weights_of(self.folder / name)
            wanted = expected(weights, tied=name == "qwen2")
            for tp, pp, layout in [(tp, pp, "code") for tp in (1, 2, 4) for pp in (1, 2)] + [(1, 1, "documented"), (2, 2, "documented")]:
                with self.subTest(model=name, tp=tp, pp=pp, layout=layout):
                    out = self.converted(self.folder / name, self.folder / f"{name}-{tp}-{pp}-{layout}", "--to", "nanotron", "--tp", tp,
                                         "--pp", pp, "--layout", layout)
                    tensors, ranks = read_nanotron(out)
                    self.assert_same_bits(tensors, wanted)
                    sharded = {key for key in wanted if "norm" not in key}
                    self.assertEqual(set(ranks), sharded if layout == "code" or tp > 1 else set())
                    for key, places in ranks.items():
                        self.assertEqual([(p, t, n) for _, p, t, n in sorted(places)], [(pp, t, tp) for t in range(tp)], key)
                        layer = re.search(r"decoder\.(\d+)", key)
                        stage = int(layer[1]) * pp // LAYERS if layer else 0 if "embedding" in key else pp - 1
                        self.assertEqual({place[0] for place in places}, {stage}, key)
                    self.assertEqual((out / "tokenizer.json").read_text(), '{"a": "tokenizer"}')
                    self.assertFalse((out / ".hidden").exists())
                    facts = json.loads((out / "checkpoint_metadata.json").read_text())
                    self.assertEqual((facts["version"], facts["tp"], facts["dp"]), ("1.5", tp, 1))
                    back = self.converted(out, self.folder / f"back-{name}-{tp}-{pp}-{layout}", "--to", "hf")
                    self.assert_same_bits(weights_of(back), weights)

    def test_there_and_back_computes_the_same(self):
        for name in ("llama", "qwen2"):
            with self.subTest(model=name):
                model = make(name, self.folder / name, torch.float32)
                there = self.converted(self.folder / name, self.folder / f"{name}-there", "--to", "nanotron", "--tp", 2)
                theirs = json.loads((there / "model_config.json").read_text())
                self.assertTrue(theirs[f"is_{name}_config"])
                self.assertEqual({k: theirs[k] for k in ("hidden_size", "vocab_size", "bos_token_id")},
                                 {"hidden_size": HIDDEN, "vocab_size": VOCABULARY, "bos_token_id": 1})
                for how in ("with its config.json", "by model_config.json alone"):
                    if how != "with its config.json":
                        (there / "config.json").unlink()
                    back = self.converted(there, self.folder / f"{name} {how}", "--to", "hf")
                    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(back, output_loading_info=True)
                    self.assertFalse(any(report.values()), report)
                    self.assertIs(type(loaded), type(model))
                    self.assertTrue(torch.equal(logits(loaded), logits(model)))

    def test_the_files_beside_say_the_new_dtype(self):
        make("llama", self.folder / "llama", torch.float32)
        there = self.converted(self.folder / "llama", self.folder / "there", "--to", "nanotron", "--dtype", "bfloat16")
        back = self.converted(there, self.folder / "back", "--to", "hf")
        self.assertEqual(transformers.AutoModelForCausalLM.from_pretrained(back).dtype, torch.bfloat16)
        same = self.converted(self.folder / "llama", self.folder / "same", "--to", "hf")
        self.assertEqual((same / "config.json").read_bytes(), (self.folder / "llama/config.json").read_bytes())

    def test_a_folder_of_checkpoints(self):
        make("llama", self.folder / "llama")
        self.converted(self.folder / "llama", self.folder / "all/10", "--to", "nanotron")
        (self.folder / "all/latest.txt").write_text("10")
        back = self.converted(self.folder / "all", self.folder / "back", "--to", "hf")
        self.assert_same_bits(weights_of(back), weights_of(self.folder / "llama"))

    def test_what_nanotron_does_not_have(self):
        for name in ("gpt2", "mistral", "qwen3"):
            make(name, self.folder / name)
            self.refused(CONFIG, "it has llama and qwen2", self.folder / name, self.folder / "out", "--to", "nanotron")
        make("llama", self.folder / "llama")
        self.refused(CONFIG, "nanotron needs a divisor of num_attention_heads = 4", self.folder / "llama", self.folder / "out", "--to",
                     "nanotron", "--tp", 3)
        self.refused(CONFIG, "must be from 1 to the number of layers, 2", self.folder / "llama", self.folder / "out", "--to", "nanotron",
                     "--pp", 3)
        self.refused(CONFIG, "--to torch: must be hf or nanotron", self.folder / "llama", self.folder / "out", "--to", "torch")
        self.refused(CONFIG, "a Hugging Face folder is not sharded", self.folder / "llama", self.folder / "out", "--to", "hf", "--tp", 2)
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name.startswith("out")], [])


class HuggingFace(ConvertTest):
    def test_every_family_in_every_dtype(self):
        for name in FAMILIES:
            model = make(name, self.folder / name, torch.float32)
            weights = weights_of(self.folder / name)
            for word in ("float32", "bfloat16", "float16", "float64"):
                with self.subTest(model=name, dtype=word):
                    dtype = getattr(torch, word)
                    out = self.converted(self.folder / name, self.folder / f"{name}-{word}", "--to", "hf", "--dtype", word)
                    self.assert_same_bits(weights_of(out), {key: value.to(dtype) for key, value in weights.items()})
                    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
                    self.assertFalse(any(report.values()), report)
                    self.assertEqual(loaded.dtype, dtype)
                    reference = transformers.AutoModelForCausalLM.from_config(FAMILIES[name], dtype=torch.float32)
                    reference.load_state_dict({key: value.to(dtype) for key, value in model.state_dict().items()})
                    self.assertLess((logits(loaded) - logits(reference)).abs().max(), 1e-5)

    def test_an_interrupted_conversion_leaves_nothing(self):
        """It may be over before the signal comes, on a fast machine: then it is tried again."""
        large = transformers.LlamaConfig(**{**SIZES, "vocab_size": 40_000, "hidden_size": 512, "tie_word_embeddings": True})
        transformers.AutoModelForCausalLM.from_config(large, dtype=torch.float32).save_pretrained(self.folder / "large")
        for target, number, code in (("hf", signal.SIGINT, 130), ("nanotron", signal.SIGTERM, 75)):
            for _ in range(10):
                process = subprocess.Popen([TRIREME, "convert", self.folder / "large", self.folder / "out", "--to", target, "--dtype",
                                            "float64"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                while process.poll() is None and not list(self.folder.glob("out.tmp-*")):
                    time.sleep(0.0005)
                process.send_signal(number)
                told = process.communicate(timeout=60)[1]
                if process.returncode != 0:
                    break
                shutil.rmtree(self.folder / "out")
            self.assertEqual(process.returncode, code, told)
            self.assertIn("interrupted; nothing was written", told)
            self.assertEqual([path.name for path in self.folder.iterdir()], ["large"])
        with self.subTest("memory does not grow with the model, nor with a tensor"):
            size, most = (self.folder / "large/model.safetensors").stat().st_size, 64 << 20
            self.assertGreater(size, most)
            limited = dict(capture_output=True, text=True, timeout=60,
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (most, most)))
            if subprocess.run([TRIREME, "--version"], **limited).returncode != 0:
                self.skipTest("a sanitizer needs more memory than that")
            run = subprocess.run([TRIREME, "convert", self.folder / "large", self.folder / "out", "--to", "nanotron"], **limited)
            self.assertEqual(run.returncode, 0, run)

    def test_nothing_is_overwritten(self):
        make("llama", self.folder / "llama")
        for target in ("hf", "nanotron"):
            self.refused(CHECKPOINT, "already exists and is not empty", self.folder / "llama", self.folder / "llama", "--to", target)


class Hostile(ConvertTest):
    """Folders that somebody has made to be read wrongly."""

    def setUp(self):
        super().setUp()
        make("llama", self.folder / "llama")
        self.good = self.converted(self.folder / "llama", self.folder / "good", "--to", "nanotron", "--tp", 2)
        self.qkv = Path("model/model/decoder/0/pp_block/attn/qkv_proj/model_weight_pp-rank-0-of-1_tp-rank-1-of-2.safetensors")

    def copy(self):
        shutil.rmtree(self.folder / "bad", ignore_errors=True)
        return shutil.copytree(self.good, self.folder / "bad")

    def with_metadata(self, **changes):
        bad = self.copy()
        with safetensors.safe_open(bad / self.qkv, "pt") as opened:
            data, metadata = opened.get_tensor("data"), {**opened.metadata(), **changes}
        safetensors.torch.save_file({"data": data}, bad / self.qkv, {k: v for k, v in metadata.items() if v is not None})
        return bad

    def test_slices(self):
        rows = 3 * HIDDEN // 2
        whole = f"0,{rows},None|0,{HIDDEN},None#"
        for words, changes in {
            "both hold elements": dict(local_global_slices_pairs=f"{whole}0,{rows},None|0,{HIDDEN},None"),
            f"outside of a tensor of shape ({3 * HIDDEN}, {HIDDEN})":
                dict(local_global_slices_pairs=f"{whole}{3 * HIDDEN},{3 * HIDDEN + rows},None|0,{HIDDEN},None",
                     unsharded_shape=f"({6 * HIDDEN}, {HIDDEN})"),
            f"of the {3 * HIDDEN * HIDDEN} elements": dict(local_global_slices_pairs=f"0,1,None|0,{HIDDEN},None#32,33,None|0,{HIDDEN},None"),
            "qkv_proj/model_weight": dict(local_global_slices_pairs="0,9999999999,None#1"),
            f"hold {3 * HIDDEN * HIDDEN // 2} of the {3 * HIDDEN * HIDDEN} elements": dict(local_global_slices_pairs=""),
            "lacks local_global_slices_pairs": dict(local_global_slices_pairs=None),
            "unsharded_shape": dict(unsharded_shape=None),
        }.items():
            with self.subTest(words=words):
                self.refused(CHECKPOINT, words, self.with_metadata(**changes), self.folder / "out", "--to", "hf")
        self.assertFalse((self.folder / "out").exists())

    def test_files(self):
        bad = self.copy()
        (bad / self.qkv).unlink()
        self.refused(CHECKPOINT, f"of the {3 * HIDDEN * HIDDEN} elements", bad, self.folder / "out", "--to", "hf")
        shutil.rmtree((bad / self.qkv).parent)
        self.refused(CHECKPOINT, "attn.qkv_proj.weight is missing", bad, self.folder / "out", "--to", "hf")
        bad = self.copy()
        shutil.copytree(bad / "model/model/decoder/0", bad / "model/model/decoder/7")
        self.refused(CHECKPOINT, "has no place in a llama model", bad, self.folder / "out", "--to", "hf")
        bad = self.copy()
        (bad / "model/notes.txt").write_text("x")
        self.refused(CHECKPOINT, "is not named as a tensor", bad, self.folder / "out", "--to", "hf")
        bad = self.copy()
        (bad / self.qkv).write_bytes(b"\xff" * 100)
        self.refused(CHECKPOINT, str(bad / self.qkv), bad, self.folder / "out", "--to", "hf")

    def test_links(self):
        bad = self.copy()
        (bad / self.qkv).rename(self.folder / "elsewhere")
        (bad / self.qkv).symlink_to(self.folder / "elsewhere")
        self.refused(SECURITY, "is a link", bad, self.folder / "out", "--to", "hf")
        bad = self.copy()
        (bad / "model").rename(self.folder / "moved")
        (bad / "model").symlink_to(self.folder / "moved")
        self.refused(SECURITY, "is a link", bad, self.folder / "out", "--to", "hf")
        shutil.rmtree(self.folder / "moved")
        for target in ("/etc/hostname", "../secret"):
            (self.folder / "secret").write_text("secret")
            bad = self.copy()
            (bad / "tokenizer.json").unlink()
            (bad / "tokenizer.json").symlink_to(target)
            self.refused(SECURITY, "a link that leads out of the folder", bad, self.folder / "out", "--to", "hf")
        (self.folder / "steps").mkdir()
        for word in ("../bad", "", "1e3", "/etc"):
            (self.folder / "steps/latest.txt").write_text(word)
            self.refused(CHECKPOINT, "must hold the number of a step", self.folder / "steps", self.folder / "out", "--to", "hf")

    def test_models_that_would_compute_something_else(self):
        for change in ({"rope_interleaved": True}, {"sliding_window_size": 8}, {"moe_config": {"num_experts": 2}}):
            bad = self.copy()
            (bad / "config.json").unlink()
            theirs = json.loads((bad / "model_config.json").read_text())
            (bad / "model_config.json").write_text(json.dumps(theirs | change))
            self.refused(CHECKPOINT, f"{next(iter(change))} = ", bad, self.folder / "out", "--to", "hf")
        bad = self.copy()
        for name in ("config.json", "model_config.json"):
            (bad / name).unlink()
        self.refused(CHECKPOINT, "has neither model_config.json nor config.json", bad, self.folder / "out", "--to", "hf")
        (self.folder / "empty").mkdir()
        self.refused(CHECKPOINT, "neither a Hugging Face folder", self.folder / "empty", self.folder / "out", "--to", "hf")
        self.refused(CHECKPOINT, "there is no such folder", self.folder / "none", self.folder / "out", "--to", "hf")


if __name__ == "__main__":
    TRIREME = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
