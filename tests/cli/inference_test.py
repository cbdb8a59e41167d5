#!/usr/bin/env python3
"""`trireme evaluate`, `generate` and `convert` of models that we train: also those that transformers lacks. The loss is that of validation
in training, with the run's own settings.

usage: inference_test.py TRIREME [CLASS[.test]...]"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TRIREME = None
TOML = """
[model]
{model}
hidden_size = 32
num_hidden_layers = 2
intermediate_size = 64
vocab_size = 260
max_position_embeddings = 64
dtype = "float64"
initializer_range = 0.2

[tokenizer]
path = "bytes"

[[data]]
{data}
sources = [ {{ path = "book.ds" }} ]

[validation]
interval = 2
sources = [ "other.ds" ]

[training]
steps = 2
seq_len = 24
global_batch_size = 4
micro_batch_size = 4

[optimizer]
lr = 1e-2
"""
HEADS = "num_attention_heads = 4\nnum_key_value_heads = 2\n"
MODELS = {
    # Heads that do not divide hidden_size, norms of q and k, a window, scaled RoPE; documents apart.
    "llama": ("num_attention_heads = 3\nhead_dim = 12\nqk_norm = true\nsliding_window = 9\n"
              "rope_scaling = { rope_type = \"llama3\", factor = 4.0, original_max_position_embeddings = 16 }\n",
              'attention = "document"\npositions = "document"\n'),
    "qwen3_moe": (HEADS + "head_dim = 8\nqk_norm = true\nnum_local_experts = 4\nnum_experts_per_tok = 2\nmoe_intermediate_size = 24\n"
                  "shared_expert_intermediate_size = 16\nscoring_func = \"sigmoid\"\nrouter_bias_update_rate = 0.05\n", ""),
    # Learned positions: more of them than a sample has tokens.
    "gpt2": ("num_attention_heads = 4\nhidden_act = \"gelu_new\"\ntie_word_embeddings = true\n", ""),
}


def trireme(folder, *words, before=(), **more):
    env = {**os.environ, "OMP_NUM_THREADS": "2", "TRIREME_DEVICE": "cpu", **more}
    return subprocess.run([*before, TRIREME, *map(str, words)], cwd=folder, env=env, capture_output=True, text=True, timeout=120)


class Inference(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        held = tempfile.TemporaryDirectory()
        cls.addClassCleanup(held.cleanup)
        cls.folder = pathlib.Path(held.name)
        (cls.folder / "book.txt").write_text("\n".join(f"line {i} of a text, with {i * i} in it" for i in range(200)))
        (cls.folder / "other.txt").write_text("\n".join(f"an other line: {7 * i}" for i in range(40)))
        for name in ("book", "other"):
            cls.ok("data", "prepare", f"{name}.txt", "-t", "bytes", "--documents", "lines", "-o", name)
        cls.ok("data", "prepare", "other.txt", "--train-bpe", "260", "-o", "bpe")

    @classmethod
    def ok(cls, *words):
        done = trireme(cls.folder, *words)
        if done.returncode != 0:
            raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def fails(self, code, *words):
        done = trireme(self.folder, *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertTrue(done.stderr.startswith("error: ") or "\nerror: " in done.stderr, done.stderr)
        self.assertIn("\n  fix: ", done.stderr)
        return done

    def trained(self, family):
        run = self.folder / "runs" / family
        if not run.exists():
            model, data = MODELS[family]
            (self.folder / f"{family}.toml").write_text(TOML.format(model=f'model_type = "{family}"\n' + model, data=data))
            out = self.ok("train", f"{family}.toml", "--run.name", family).stdout
            self.assertIn(f"trireme generate runs/{family}", out)
        return f"runs/{family}", json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["val/loss"]

    def loss(self, checkpoint, *words):
        return json.loads(self.ok("evaluate", checkpoint, "--data", "other.ds", "--dtype", "float64", "--json", *words).stdout)["loss"]

    def test_every_model_that_is_trained(self):
        for family in MODELS:
            run, expected = self.trained(family)
            for words in ((), ("--dp", "2", "--zero", "3")) + ((("--pp", "2", "--tp", "2"),) if family == "qwen3_moe" else ()):
                with self.subTest(family=family, words=words):
                    self.assertAlmostEqual(self.loss(run, *words), expected, delta=1e-11 * expected)
            self.assertNotIn("-t TOKENIZER", self.ok("evaluate", run, "--data", "other.ds").stderr)

    def test_a_newer_checkpoint_that_is_damaged(self):
        run, _ = self.trained("llama")
        damaged = self.folder / run / "checkpoints/step-9999"
        shutil.copytree(max((self.folder / run / "checkpoints").glob("step-*"), key=lambda p: int(p.name.split("-")[1])), damaged)
        try:
            for words in (("generate", run, "-p", "a", "-n", "2"), ("evaluate", run, "--data", "other.ds"), ("convert", run, "from-damaged", "--to", "hf")):
                self.assertIn(f"warning: not valid, and not used: {run}/checkpoints/step-9999: 1 fault", self.ok(*words).stderr)
        finally:
            shutil.rmtree(damaged)

    def test_pipes_are_not_waited_for(self):
        run, _ = self.trained("llama")
        os.mkfifo(self.folder / "tokenizer.json")
        (self.folder / "hf").mkdir()
        os.mkfifo(self.folder / "hf/config.json")
        toml = (self.folder / "llama.toml").read_text()
        (self.folder / "from_hf.toml").write_text('[model]\ninit = "hf:hf"\n' + toml[toml.index("\n[", 2):])
        self.assertIn("tokenizer.json: is not a regular file", self.fails(65, "generate", run, "-p", "a", "-t", "tokenizer.json").stderr)
        self.assertIn("tokenizer.json: is not a regular file", self.fails(65, "data", "prepare", "book.txt", "-t", "tokenizer.json", "-o", "none").stderr)
        self.assertIn("hf/config.json: is not a regular file", self.fails(64, "config", "check", "from_hf.toml").stderr)

    def test_numbers_of_evaluate(self):
        run, _ = self.trained("llama")
        for words in (("--samples", "-1"), ("--micro-batch-size", "0"), ("--seq-len", "-5")):
            done = trireme(self.folder, "evaluate", run, "--data", "other.ds", *words)
            self.assertEqual(done.returncode, 64, done)
            self.assertIn(f"error: {words[0]} {words[1]}: must be at least", done.stderr)

    def test_text_and_folders_of_them(self):
        for family in MODELS:
            with self.subTest(family=family):
                run, _ = self.trained(family)
                words = ("--dtype", "float64", "-p", "line 3", "-n", "12", "--json")
                text = json.loads(self.ok("generate", run, *words).stdout)
                self.assertEqual(len(text["tokens"]), 12)
                self.assertEqual(json.loads(self.ok("generate", run, *words, "--no-cache").stdout), text)
                said = self.ok("convert", run, f"models/{family}", "--to", "hf", "--dtype", "float64").stderr
                kind = json.loads((self.folder / "models" / family / "config.json").read_text())["model_type"]
                lacks = family != "gpt2"
                self.assertEqual(kind, f"trireme_{family}" if lacks else family)
                self.assertEqual("transformers cannot load it" in said, lacks)
                # Without the settings of the run: its documents see each other.
                back = json.loads(self.ok("generate", f"models/{family}", "-t", "bytes", *words).stdout)
                self.assertEqual(back, text)

    def test_values_of_a_config_json_that_are_not_supported(self):
        """A model with another value instead would be another model, without a word."""
        run, _ = self.trained("llama")
        self.ok("convert", run, "models/refused", "--to", "hf")
        file = self.folder / "models/refused/config.json"
        good = json.loads(file.read_text())
        for key, value in (("hidden_act", "relu"), ("rms_norm_eps", -1), ("rms_norm_eps", "abc"), ("tie_word_embeddings", "yes"),
                           ("rope_scaling", {"rope_type": "longrope", "factor": 2})):
            file.write_text(json.dumps({**good, key: value}))
            for words in (("evaluate", "models/refused", "--data", "other.ds", "-t", "bytes"), ("generate", "models/refused", "-t", "bytes", "-p", "x"),
                          ("convert", "models/refused", "models/never", "--to", "nanotron")):
                with self.subTest(key=key, value=value, words=words[0]):
                    done = trireme(self.folder, *words)
                    self.assertEqual(done.returncode, 64, done.stdout + done.stderr)
                    self.assertIn("models/refused/config.json: ", done.stderr)
                    self.assertNotIn("copy it again", done.stderr)
                    self.assertFalse((self.folder / "models/never").exists())

    def test_files_and_tokenizers_of_others(self):
        run, _ = self.trained("llama")
        self.assertIn("was made by a different tokenizer", self.fails(65, "evaluate", run, "--data", "bpe.ds").stderr)
        for command in (("generate", "-p", "x"), ("evaluate", "--data", "bpe.ds")):
            said = self.fails(65, command[0], run, *command[1:], "-t", "bpe-tokenizer.json").stderr
            self.assertIn("-t bpe-tokenizer.json is not the model's tokenizer", said)

    def test_options_are_checked_before_anything_is_printed(self):
        run, _ = self.trained("llama")
        for words, said in ((("--temperature", "-1"), "temperature = -1"), (("--top-p", "0"), "top_p = 0"), (("-n", "0"), "0 tokens"),
                            (("--tp", "2"), "num_attention_heads = 3 is not divisible"), (("--dtype", "int8"), 'dtype "int8"'),
                            (("--repetition-penalty", "0"), "repetition penalty 0"), (("--system", "x"), "--system needs --chat")):
            done = trireme(self.folder, "generate", run, "-p", "line 3", *words)
            self.assertEqual((done.returncode, done.stdout), (64, ""), done.stdout + done.stderr)
            self.assertIn(said, done.stderr)
        done = trireme(self.folder, "generate", run, "-p", "x" * 64)
        self.assertEqual((done.returncode, done.stdout), (64, ""))
        self.assertIn("prompt 1 has 64 tokens, the model is for 64", done.stderr)

    def test_what_changes_nothing_and_what_ends_early_is_told(self):
        run, _ = self.trained("llama")
        said = self.ok("generate", run, "-p", "line 3", "-n", "4", "--top-k", "5").stderr
        self.assertIn("note: --top-k 5 has no effect at --temperature 0", said)
        said = self.ok("generate", run, "-p", "line 3", "-n", "500").stderr
        self.assertIn("note: text 1 ends at the model's length of 64 tokens (max_position_embeddings), after 58 new ones", said)
        said = self.ok("generate", run, "-p", "line 3", "-n", "4", "--temperature", "1", "--top-k", "5").stderr
        self.assertNotIn("note:", said)


class Chat(unittest.TestCase):
    """Conversations, from messages to an answer."""

    def test_whole_conversations_and_answers(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)

            def ok(*words):
                done = trireme(folder, *words)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                return done
            talks = [{"messages": [{"role": "user", "content": f"what is {i}?"}, {"role": "assistant", "content": f"it is {i}. " * (1 + i % 3)}]}
                     for i in range(60)]
            talks[7]["messages"][1]["content"] *= 40
            (folder / "talks.jsonl").write_text("\n".join(map(json.dumps, talks)))
            ok("data", "prepare", "talks.jsonl", "--chat", "--train-bpe", "300", "-o", "talks")
            (folder / "t.toml").write_text(TOML.replace('path = "bytes"', 'path = "talks-tokenizer.json"').replace("260", "300").format(
                model='model_type = "llama"\n' + HEADS, data="").replace("book.ds", "talks.ds").replace('sources = [ "other.ds" ]', "")
                .replace("interval = 2", "interval = 0").replace("seq_len = 24", "seq_len = 60"))
            out = ok("train", "t.toml", "--run.name", "chat").stdout
            self.assertIn("whole documents in a sample", out)
            self.assertIn("warning: 1 document is longer than a sample, and truncated", out)
            self.assertNotIn("whole documents", ok("train", "t.toml", "--run.name", "cut", "--data.0.packing", "cut", "--training.steps", "1").stdout)
            words = ("-n", "6", "--dtype", "float64", "--json")
            def answer(*more):
                return json.loads(ok("generate", "runs/chat", *words, *more).stdout)["tokens"]
            user = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
            self.assertEqual(answer("--chat", "-p", "hi"), answer("-p", user))
            system = "<|im_start|>system\nbe kind<|im_end|>\n"
            self.assertEqual(answer("--chat", "-p", "hi", "--system", "be kind"), answer("-p", system + user))
            lines = [{"prompt": "hi"}, {"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]}]
            (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
            found = [json.loads(line)["tokens"] for line in ok("generate", "runs/chat", "--chat", "--prompts", "prompts.jsonl", *words).stdout.splitlines()]
            self.assertEqual(found, [answer("-p", user), answer("-p", system + user)])
            shown = ok("generate", "runs/chat", "--chat", "-p", "hi", "-n", "3").stdout
            self.assertNotIn("im_start", shown)
            # What message text spells is text.
            self.assertNotEqual(answer("--chat", "-p", "<|im_end|>"), answer("-p", user.replace("hi", "<|im_end|>")))


class Memory(unittest.TestCase):
    """What does not fit is told before anything is allocated."""

    def test_that_ends(self):
        """Memory that is refused while a command works: 73, and no stack of libtorch's."""
        with tempfile.TemporaryDirectory() as folder:
            words = ("/dev/stdin", "--model.preset", "tiny-llama", "--model.vocab_size", "60000", "--model.hidden_size", "768", "--training.seq_len", "64",
                     "--training.micro_batch_size", "1", "--training.global_batch_size", "1", "--data.0.sources.0.path", "synthetic")
            for command in (("verify",), ("train", "--dry-run")):
                reached = False
                for mib in (1200, 1500, 1800, 2200, 3000):
                    done = trireme(folder, command[0], *words, *command[1:], before=["prlimit", f"--as={mib << 20}"], OMP_NUM_THREADS="1")
                    if done.returncode == 0 or "AddressSanitizer" in done.stderr:
                        break
                    if "loading shared libraries" in done.stderr or "threads and could start" in done.stderr:
                        continue
                    self.assertEqual(done.returncode, 73, f"{command} {mib}: {done.stdout}{done.stderr}")
                    self.assertNotIn("frame #", done.stderr)
                    reached = reached or "out of memory" in done.stderr
                if not reached:
                    self.skipTest("no limit here that a start survives, and not a step")

    def test_of_a_large_model(self):
        with tempfile.TemporaryDirectory() as folder:
            for words in (("train", "--dry-run"), ("verify",), ("verify", "--against", "tp=2")):
                done = trireme(folder, words[0], "/dev/stdin", *words[1:], "--model.preset", "llama3-70b", "--training.seq_len", "64",
                               "--data.0.sources.0.path", "synthetic")
                self.assertEqual(done.returncode, 73, done.stdout + done.stderr)
                self.assertRegex(done.stderr, r"error: (the model|verify) needs [\d.]+ [GT]iB.*\(nothing was started\)")
                self.assertIn("\n  fix: ", done.stderr)


if __name__ == "__main__":
    TRIREME = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
