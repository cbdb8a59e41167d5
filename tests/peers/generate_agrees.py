#!/usr/bin/env python3
"""`trireme generate` and `trireme evaluate` next to transformers: the same greedy tokens, on every layout, with and without a cache,
alone and in a batch; the same loss.

usage: generate_agrees.py TRIREME [CLASS[.test]...]"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

TRIREME = None
ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMPTS = ["To be, or not to be", "é", "a much longer prompt, so that the others are padded next to it: 0123456789"]
TOKENS = 24
SIZES = dict(vocab_size=260, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
             max_position_embeddings=256, initializer_range=0.3, bos_token_id=256, eos_token_id=257, pad_token_id=None)
KINDS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES, tie_word_embeddings=False),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=260, n_embd=32, n_layer=4, n_head=4, n_positions=256, initializer_range=0.3,
                                            bos_token_id=256, eos_token_id=257, resid_pdrop=0.1),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=True),
    "mistral": lambda: transformers.MistralConfig(**SIZES, sliding_window=8),
    "gemma2": lambda: transformers.Gemma2Config(**SIZES, head_dim=8, tie_word_embeddings=False, sliding_window=8, query_pre_attn_scalar=10, attn_logit_softcapping=2.0,
                                                final_logit_softcapping=3.0),
    "mixtral": lambda: transformers.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
}


def save_tokenizer(folder):
    """The 256 bytes, and four special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>", "<a>", "<b>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def make_model(kind, folder):
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(KINDS[kind](), dtype=torch.float64, attn_implementation="eager",
                                                              experts_implementation="eager").eval()
    model.save_pretrained(folder)
    return model, save_tokenizer(folder)


def generate(folder, *words):
    done = subprocess.run([TRIREME, "generate", str(folder), *words], capture_output=True, timeout=300)
    if done.returncode != 0:
        raise AssertionError(done.stderr.decode())
    return done.stdout.decode("utf-8"), done.stderr.decode()


def tokens(folder, *words, prompts=PROMPTS):
    file = folder / "prompts.txt"
    file.write_text("\n".join(prompts) + "\n")
    out, _ = generate(folder, "--prompts", str(file), "-n", str(TOKENS), "--dtype", "float64", "--json", *words)
    return [json.loads(line)["tokens"] for line in out.splitlines()]


def theirs(model, tokenizer, prompt, **more):
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=TOKENS, pad_token_id=0, **more)
    new = out[0, ids.shape[1]:].tolist()
    return new[:new.index(257)] if 257 in new else new


class Greedy(unittest.TestCase):
    def test_every_family_on_every_layout(self):
        for kind in KINDS:
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                model, tokenizer = make_model(kind, folder)
                expected = [theirs(model, tokenizer, prompt) for prompt in PROMPTS]
                self.assertGreater(len({t for ids in expected for t in ids}), 10, "tokens that hardly differ show nothing")
                every = kind == "llama"  # the others: the two ends
                for words in [(), ("--tp", "2", "--pp", "2")] + ([("--tp", "2"), ("--pp", "2"), ("--no-cache",), ("--batch", "1"),
                                                                 ("--no-cache", "--tp", "2")] if every else []):
                    with self.subTest(kind=kind, words=words):
                        self.assertEqual(tokens(folder, *words), expected)

    def test_repetition_penalty(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            model, tokenizer = make_model("llama", folder)
            expected = [theirs(model, tokenizer, prompt, repetition_penalty=1.7) for prompt in PROMPTS]
            self.assertNotEqual(expected, [theirs(model, tokenizer, prompt) for prompt in PROMPTS])
            for words in ((), ("--tp", "2")):
                self.assertEqual(tokens(folder, "--repetition-penalty", "1.7", *words), expected)


class OneModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.held.name)
        cls.model, cls.tokenizer = make_model("llama", cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.held.cleanup()


class Sampling(OneModel):
    def test_a_seed_decides_on_every_layout(self):
        words = ("--temperature", "0.9", "--top-k", "40", "--top-p", "0.95")
        one = tokens(self.folder, *words, "--seed", "3")
        self.assertEqual(tokens(self.folder, *words, "--seed", "3", "--tp", "2", "--pp", "2"), one)
        self.assertEqual(tokens(self.folder, *words, "--seed", "3", "--no-cache"), one)
        self.assertNotEqual(tokens(self.folder, *words, "--seed", "4"), one)
        self.assertEqual(tokens(self.folder, "--temperature", "1.5", "--top-k", "1"), tokens(self.folder))

    def test_samples_depend_on_the_number_of_the_prompt_not_on_the_batch(self):
        prompts, words = ["the same"] * 4, ("--temperature", "1.2", "--seed", "3")
        whole = tokens(self.folder, *words, prompts=prompts)
        self.assertEqual(tokens(self.folder, *words, "--batch", "1", prompts=prompts), whole)
        self.assertEqual(len({tuple(ids) for ids in whole}), 4)

    def test_a_prompt_has_the_same_tokens_alone(self):
        """Greedy: a batch changes nothing. Samples depend on the number of the prompt."""
        whole = tokens(self.folder)
        self.assertEqual([tokens(self.folder, prompts=[prompt])[0] for prompt in PROMPTS], whole)


class Output(OneModel):
    def test_text_is_whole_and_ends_before_a_stop_string(self):
        out, err = generate(self.folder, "-p", "é", "-n", "40", "--dtype", "float64")
        self.assertTrue(out.startswith("é") and out.endswith("\n"))
        self.assertRegex(err, r"\d+ new tokens · 2 prompt tokens · [\d.,]+ tokens/s")
        text = out[1:-1]
        stop = re.search("[ -~]{2}", text)[0]
        cut, _ = generate(self.folder, "-p", "é", "-n", "40", "--dtype", "float64", "--stop", stop)
        self.assertEqual(cut, "é" + text[:text.index(stop)] + "\n")
        line = json.loads(generate(self.folder, "-p", "é", "-n", "40", "--dtype", "float64", "--stop", stop, "--json")[0])
        self.assertEqual((line["prompt"], line["text"], line["finish"]), ("é", text[:text.index(stop)], "stop"))

    def test_ends_at_the_length_of_the_model(self):
        prompt = "x" * 250
        line = json.loads(generate(self.folder, "-p", prompt, "-n", "50", "--dtype", "float64", "--json")[0])
        self.assertIn(line["finish"], ("max_length", "end_token"))
        self.assertLessEqual(len(line["tokens"]), 6)

    def refused(self, code, expected, *words):
        done = subprocess.run([TRIREME, "generate", *words], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(expected, done.stderr)

    def test_refused(self):
        folder = str(self.folder)
        self.refused(64, "no prompt", folder)
        self.refused(64, "there is no room for a new one", folder, "-p", "x" * 256)
        self.refused(64, "num_attention_heads = 4 is not divisible by parallelism.tp = 3", folder, "-p", "x", "--tp", "3")
        self.refused(64, "num_hidden_layers = 4 for 5 pipeline chunks (pp 5 × 1)", folder, "-p", "x", "--pp", "5")
        self.refused(64, "temperature = -1", folder, "-p", "x", "--temperature", "-1")
        self.refused(66, "no-such", "no-such", "-p", "x")
        self.refused(65, "no-such.txt", folder, "--prompts", "no-such.txt")
        bad = self.folder / "bad.jsonl"
        bad.write_text('{"text": "x"}\n')
        self.refused(65, "bad.jsonl:1: starts with {", folder, "--prompts", str(bad))


class OwnRun(unittest.TestCase):
    def test_a_checkpoint_and_its_export_as_transformers(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            tokenizer = save_tokenizer(folder)
            words = ["--model.num_hidden_layers", "2", "--training.steps", "4", "--run.name", "r", "--tokenizer.path",
                     str(folder / "tokenizer.json"), "--optimizer.lr", "0.02", "--checkpoint.interval", "2", "--metrics.console", "quiet",
                     "--model.initializer_range", "0.2", "--model.vocab_size", "260", "--model.dtype", "float32"]
            run = subprocess.run([TRIREME, "train", str(ROOT / "examples/tiny.toml"), "-n", "2", *words], cwd=folder, capture_output=True,
                                 text=True, timeout=120)
            self.assertEqual(run.returncode, 0, run.stderr)
            last = folder / "runs/r/checkpoints/step-4"
            model = transformers.AutoModelForCausalLM.from_pretrained(last, dtype=torch.float64).eval()
            expected = [theirs(model, tokenizer, prompt) for prompt in PROMPTS]
            for path in (folder / "runs/r", last):
                out, _ = generate(path, "--prompts", self.file(folder), "-n", str(TOKENS), "--dtype", "float64", "--json", "--tp", "2")
                self.assertEqual([json.loads(line)["tokens"] for line in out.splitlines()], expected)
            before = folder / "runs/r/checkpoints/step-2"  # without weights for transformers
            self.assertFalse((before / "model.safetensors").exists())
            out, _ = generate(before, "-p", "x", "-n", "5")
            self.assertTrue(out.startswith("x"))

    def file(self, folder):
        (folder / "p.txt").write_text("\n".join(PROMPTS))
        return str(folder / "p.txt")


class Evaluate(OneModel):
    def test_the_loss_on_every_layout(self):
        text = self.folder / "text.txt"
        text.write_text("".join(f"{i * i} is the square of {i}. " for i in range(60)))
        made = subprocess.run([TRIREME, "data", "prepare", str(text), "-t", str(self.folder / "tokenizer.json"), "-o",
                               str(self.folder / "data")], capture_output=True, text=True, timeout=60)
        self.assertEqual(made.returncode, 0, made.stderr)
        stored = (self.folder / "data.ds").read_bytes()
        ids = [int.from_bytes(stored[i:i + 2], "little") for i in range(0, len(stored), 2)]
        self.assertEqual(ids[:-1], self.tokenizer.encode(text.read_text()).ids, "and the end of the document")
        length, losses = 32, []
        for begin in range(0, len(ids), length):
            window = torch.tensor([ids[begin:begin + length + 1]])
            if window.shape[1] <= length:
                break
            with torch.no_grad():
                logits = self.model(window[:, :-1]).logits[0]
            losses.append(torch.nn.functional.cross_entropy(logits, window[0, 1:]).item())
        expected = sum(losses) / len(losses)
        for words in ((), ("--tp", "2", "--pp", "2"), ("--dp", "2", "--zero", "3"), ("--cp", "2"), ("--micro-batch-size", "3")):
            done = subprocess.run([TRIREME, "evaluate", str(self.folder), "--data", str(self.folder / "data.ds"), "--seq-len", str(length),
                                   "--dtype", "float64", "--json", *words], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(done.stdout)
            self.assertEqual((found["samples"], found["tokens"]), (len(losses), len(losses) * length))
            # Its norms and rotations are in float32.
            self.assertAlmostEqual(found["loss"], expected, delta=2e-6 * expected, msg=str(words))

    def test_refused(self):
        for code, expected, words in ((65, "x.txt: there is no such file", ("--data", "x.txt")),
                                      (64, "num_attention_heads", ("--data", "x.ds", "--tp", "3"))):
            done = subprocess.run([TRIREME, "evaluate", str(self.folder), *words], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(expected, done.stderr)


if __name__ == "__main__":
    TRIREME = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
