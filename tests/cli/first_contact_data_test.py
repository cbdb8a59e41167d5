#!/usr/bin/env python3
"""What a new user does with data in the first hour: a folder with all kinds of files, a pipe, a second try at the same place.

usage: first_contact_data_test.py TRIREME"""
import ctypes
import gzip
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = os.path.abspath(sys.argv.pop(1))
END = 256  # of the tokenizer "bytes"
# "zipped\n" and the start of a PNG, as programs write them
ZSTD = bytes.fromhex("28b52ffd0468390000") + b"zipped\n"
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


def documents(path):
    """The documents of a data set as bytes, read without any code of ours."""
    raw = Path(path).read_bytes()
    tokens = struct.unpack(f"<{len(raw) // 2}H", raw)
    index = Path(f"{path}.index").read_bytes()
    ends = struct.unpack(f"<{len(index) // 8}Q", index)
    assert all(tokens[e - 1] == END for e in ends)
    return [bytes(tokens[a:b - 1]) for a, b in zip((0, *ends), ends)]


class FirstContact(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.at = Path(self.folder.name)

    def write(self, name, content):
        path = self.at / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def trireme(self, *words, stdin=b""):
        run = subprocess.run([PROGRAM, *map(str, words)], cwd=self.at, input=stdin, capture_output=True, timeout=120)
        run.out, run.err = run.stdout.decode(), run.stderr.decode()
        return run

    def ok(self, *words, stdin=b""):
        run = self.trireme(*words, stdin=stdin)
        self.assertEqual(run.returncode, 0, run.out + run.err)
        return run.out

    def fails(self, code, *words, stdin=b""):
        run = self.trireme(*words, stdin=stdin)
        self.assertEqual(run.returncode, code, run.out + run.err)
        self.assertTrue(run.err.startswith("error: "), run.err)
        return run.err


class Prepare(FirstContact):
    """trireme data prepare"""

    def prepare(self, *words, stdin=b""):
        return self.ok("data", "prepare", *words, "-t", "bytes", "-o", "x", stdin=stdin)

    def refused(self, code, *words, stdin=b""):
        err = self.fails(code, "data", "prepare", *words, "-t", "bytes", "-o", "x", stdin=stdin)
        self.assertEqual([p for p in self.at.iterdir() if p.name.startswith("x.")], [])
        return err

    def some_folder(self):
        self.write("in/a.txt", "a text\n")
        self.write("in/code/b.py", "print('b')\n")
        self.write("in/pictures/c.png", PNG)
        self.write("in/d.dat", "a text by another name\n")
        self.write("in/e.txt", b"\0\1\2 not what its name says")
        self.write("in/f.jsonl.gz", gzip.compress(b'{"text": "a line"}\n'))
        self.write("in/g.json", json.dumps({"name": "some settings", "of": ["a", "project"]}, indent=2))
        self.write("in/.git/h.txt", "hidden")

    def test_a_folder_gives_what_is_text_and_names_the_rest(self):
        self.some_folder()
        out = self.prepare("in")
        self.assertEqual(documents(self.at / "x.ds"), [b"a text\n", b"print('b')\n", b"a text by another name\n", b"a line"])
        self.assertIn("files        4 · skipped 3: in/e.txt (binary), in/g.json (one JSON object over several lines), in/pictures/c.png (binary)\n", out)

    def test_a_file_counts_once(self):
        self.write("in/a.txt", "a text\n")
        self.write("in/b.txt", "another\n")
        (self.at / "in/c.txt").symlink_to("a.txt")
        out = self.prepare("in/b.txt", "in/b.txt", "in")
        self.assertEqual(documents(self.at / "x.ds"), [b"another\n", b"a text\n"])
        self.assertIn("files        2 · skipped 3: in/b.txt (taken already), in/b.txt (taken already), in/c.txt (the same file as in/a.txt)\n", out)

    def test_folders_that_are_not_gone_into_are_named(self):
        self.write("in/a.txt", "a text\n")
        self.write("in/closed/b.txt", "not seen")
        self.write("elsewhere/c.txt", "not seen")
        (self.at / "in/linked").symlink_to("../elsewhere")
        (self.at / "in/closed").chmod(0)
        self.addCleanup((self.at / "in/closed").chmod, 0o700)
        # Root reads every folder, unless it gives up these capabilities: CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH.
        libc = ctypes.CDLL(None)
        give_up = lambda: [libc.prctl(24, capability, 0, 0, 0) for capability in (1, 2)]
        if subprocess.run(["ls", "in/closed"], cwd=self.at, capture_output=True, preexec_fn=give_up).returncode == 0:
            self.skipTest("this user reads every folder and cannot give that up")
        for more, skipped in (((), " · skipped 2: in/closed (cannot be read: Permission denied), in/linked (a link to a folder)"),
                              (("--exclude", "closed"), " · skipped 1: in/linked (a link to a folder)")):
            run = subprocess.run([PROGRAM, "data", "prepare", "in", *more, "-t", "bytes", "-o", "x", "--overwrite"], cwd=self.at, capture_output=True, text=True, preexec_fn=give_up)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(documents(self.at / "x.ds"), [b"a text\n"])
            self.assertIn(f"files        1{skipped}\n", run.stdout)

    def test_a_file_of_settings_among_texts(self):
        self.write("in/a.jsonl", '{"text": "a line"}\n')
        self.write("in/settings.json", '{"name": "some settings"}\n')
        err = self.refused(65, "in")
        self.assertIn('in/settings.json:1: has no key "text"', err)
        self.assertIn('--skip-bad leaves such lines out, --exclude "settings.json" this file of the folder', err)
        self.prepare("in", "--exclude", "settings.json")
        self.assertNotIn("--exclude", self.fails(65, "data", "prepare", "in/settings.json", "-t", "bytes", "-o", "y"))

    def test_patterns_choose_files(self):
        self.some_folder()
        self.prepare("in", "--include", "*.txt", "--include", "*.py", "--exclude", "code/*")
        self.assertEqual(documents(self.at / "x.ds"), [b"a text\n"])

    def test_a_named_file_that_is_not_text_is_refused(self):
        self.some_folder()
        self.assertIn("in/e.txt: is not text: binary\n  fix: ", self.refused(65, "in/e.txt"))
        self.write("p.parquet", b"PAR1\0\0\0\0PAR1")
        err = self.refused(65, "p.parquet")
        self.assertIn("p.parquet: is not text: a parquet file\n  fix: ", err)
        self.assertIn("to_json", err)
        self.assertIn("no file of text among 1 (in/pictures/c.png: binary)", self.refused(65, "in/pictures"))

    def test_standard_input(self):
        self.prepare("-", stdin=b"a text\nfrom a pipe\n")
        self.assertEqual(documents(self.at / "x.ds"), [b"a text\nfrom a pipe\n"])
        many = [f"line {i} " * 20 for i in range(2000)]  # more than is looked at to see what it is
        lines = "".join(json.dumps({"text": t}) + "\n" for t in many).encode()
        for stdin in (gzip.compress(lines), json.dumps([{"text": t} for t in many]).encode()):
            self.prepare("-", "--overwrite", stdin=stdin)
            self.assertEqual([d.decode() for d in documents(self.at / "x.ds")], many)
        self.assertIn("standard input:1:", self.fails(65, "data", "prepare", "-", "-t", "bytes", "-o", "y", stdin=b'{"txt": "x"}\n'))

    def test_a_pipe_that_says_nothing_can_be_left(self):
        run = subprocess.Popen([PROGRAM, "data", "prepare", "-", "-t", "bytes", "-o", "x"], cwd=self.at, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        while run.poll() is None and not int(re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{run.pid}/status").read_text())[1], 16) & 1 << signal.SIGINT - 1:
            time.sleep(0.01)
        run.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(timeout=60), 130)
        self.assertIn(b"interrupted; nothing was written", run.stderr.read())
        run.stdin.close(), run.stderr.close()

    def test_a_pipe_is_read_twice_for_a_tokenizer(self):
        self.write("book.txt", "some words and some more words\n" * 50)
        self.ok("data", "prepare", "book.txt", "--train-bpe", 270, "-o", "file")
        self.ok("data", "prepare", "-", "--train-bpe", 270, "-o", "pipe", stdin=(self.at / "book.txt").read_bytes())
        for ending in (".ds", "-tokenizer.json"):
            self.assertEqual((self.at / f"pipe{ending}").read_bytes(), (self.at / f"file{ending}").read_bytes())

    def test_zstd(self):
        self.write("a.txt.zst", ZSTD + b"\x65\x13\xa5\xcf")
        run = self.trireme("data", "prepare", "a.txt.zst", "-t", "bytes", "-o", "x")
        if run.returncode:  # a build without libzstd says so
            self.assertEqual(run.returncode, 65)
            self.assertIn("libzstd-dev", run.err)
            self.skipTest("built without libzstd")
        self.assertEqual(documents(self.at / "x.ds"), [b"zipped\n"])
        self.write("a.txt.zst", ZSTD[:-3])
        self.assertIn("a.txt.zst: cut short", self.fails(65, "data", "prepare", "a.txt.zst", "-t", "bytes", "-o", "y"))

    def test_a_list_is_as_good_as_lines(self):
        texts = ["one", 'two, "three"] \\', "", "four\n"]
        self.write("a.json", json.dumps([{"id": i, "text": t} for i, t in enumerate(texts)], indent=2))
        out = self.prepare("a.json")
        self.assertEqual(documents(self.at / "x.ds"), [t.encode() for t in texts if t])
        self.assertIn("left out: 1 empty", out)
        self.write("a.json", '[\n  {"text": "one"},\n  {"txt": "two"}\n]')
        self.assertIn('a.json:3: has no key "text"', self.fails(65, "data", "prepare", "a.json", "-t", "bytes", "-o", "y"))

    def test_output_that_exists_stays(self):
        self.write("a.txt", "one")
        self.write("b.txt", "three")
        for form, name in (("datatrove", "x.ds"), ("megatron", "x_text_document.idx")):
            words = ("data", "prepare", "-t", "bytes", "-o", "x", "--format", form)
            self.ok(*words, "a.txt")
            before = (self.at / name).read_bytes()
            self.assertIn(f"{name} exists\n  fix: another -o, or --overwrite", self.fails(64, *words, "b.txt"))
            self.assertEqual((self.at / name).read_bytes(), before)
        self.ok(*words, "b.txt", "--overwrite")
        self.assertNotEqual((self.at / name).read_bytes(), before)
        self.assertIn("x.ds exists", self.fails(64, "data", "merge", "x_text_document", "-o", "x"))
        self.assertIn("a.txt exists", self.fails(64, "data", "train-bpe", "b.txt", "--vocab-size", 257, "-o", "a.txt"))

    def test_inspect_shows_text_and_what_counts(self):
        self.write("a.txt", 'He said "yes"\n\tin a \\ new line\x1b[31m\u202e')
        self.prepare("a.txt")
        self.assertIn('\n  | He said "yes"\n  | \tin a \\ new line\\u001b[31m\\u202e<|endoftext|>\n', self.ok("data", "inspect", "x.ds", "-t", "bytes"))
        self.write("c.jsonl", json.dumps({"messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So.\nThat is why."}]}))
        self.ok("data", "prepare", "c.jsonl", "--chat", "--template", "plain", "-t", "bytes", "-o", "c")
        out = self.ok("data", "inspect", "c.ds", "-t", "bytes")
        self.assertIn("lines with > count in the loss\n  | User: Why?\n  | \n  | Assistant: \n  > So.\n  > That is why.\n  > \n  > <|endoftext|>\n", out)


class Chat(FirstContact):
    """Conversations as they are found, which are recognized."""

    ASKED, SAID = "Why is the sky blue?", "Because of scattering."
    KINDS = {
        "messages": {"messages": [{"role": "user", "content": ASKED}, {"role": "assistant", "content": [{"type": "text", "text": SAID}]}]},
        "ShareGPT": {"id": 7, "conversations": [{"from": "human", "value": ASKED}, {"from": "gpt", "value": SAID}]},
        "Alpaca": {"instruction": ASKED, "input": "", "output": SAID, "text": "Below is an instruction ..."},
        "prompt and completion": {"prompt": ASKED, "completion": SAID},
    }

    def test_every_kind_in_one_folder(self):
        for name, line in self.KINDS.items():
            self.write(f"in/{name}.json", json.dumps([line] * 2, indent=1) if name == "Alpaca" else json.dumps(line) + "\n")
        self.ok("data", "prepare", "in", "--chat", "--template", "plain", "-t", "bytes", "-o", "x")
        said = f"User: {self.ASKED}\n\nAssistant: {self.SAID}\n\n".encode()
        self.assertEqual(documents(self.at / "x.ds"), [said] * 5)
        self.assertEqual((self.at / "x.ds.loss").read_bytes(), (b"\0" * said.index(b"Because") + b"\1" * (len(self.SAID) + 3)) * 5)

    def test_what_has_no_answer_is_counted(self):
        asked = {"messages": [{"role": "User", "content": self.ASKED}]}
        self.write("a.jsonl", "".join(json.dumps(line) + "\n" for line in (asked, self.KINDS["messages"], {"messages": []}, asked)))
        out = self.ok("data", "prepare", "a.jsonl", "--chat", "--template", "plain", "-t", "bytes", "-o", "x")
        self.assertIn("documents    1 · left out: 1 empty, 2 without an answer to learn\n", out)
        self.write("b.jsonl", json.dumps({"messages": [asked["messages"][0], {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]}))
        self.assertIn('b.jsonl:1: a message has "tool_calls": calls of tools are not supported', self.fails(65, "data", "prepare", "b.jsonl", "--chat", "--template", "plain", "-t", "bytes", "-o", "y"))

    def test_without_the_option_it_is_named(self):
        self.write("a.jsonl", json.dumps(self.KINDS["ShareGPT"]))
        self.assertIn("fix: --chat, for conversations", self.fails(65, "data", "prepare", "a.jsonl", "-t", "bytes", "-o", "x"))

    def test_a_template_that_is_not_the_models_is_told(self):
        self.write("a.jsonl", json.dumps(self.KINDS["messages"]))
        run = self.trireme("data", "prepare", "a.jsonl", "--chat", "-t", "bytes", "-o", "x")
        self.assertEqual(run.returncode, 0, run.err)
        self.assertIn("warning: the conversations are written in the template plain: there is none in the tokenizer's folder", run.err)
        self.assertIn("template     plain", run.out)


TOML = """
[run]
name = "r"
[model]
preset = "tiny-llama"
num_hidden_layers = 1
[tokenizer]
path = "bytes"
[[data]]
sources = [{ path = "data/a.ds" }]
[training]
steps = 1
seq_len = 32
micro_batch_size = 2
grad_accum = 1
"""


class Sources(FirstContact):
    """Validation data that is trained on."""

    def test_overlaps(self):
        self.write("a.txt", "some words to learn, and some more of them\n" * 20)
        self.write("run.toml", TOML)
        self.ok("data", "prepare", "a.txt", "-t", "bytes", "-o", "data/a", "--documents", "lines", "--validation", 0.3)
        validates = ("train", "run.toml", "-n", 1, "--validation.interval", 1, "--validation.sources")
        self.assertIn("validation.sources and [[data]] hold the same tokens: ./data/a.ds and data/a.ds\n  fix: ", self.fails(65, *validates, "./data/a.ds"))
        err = self.fails(65, *validates, "data/a-validation.ds", "--data.0.sources.0.path", "data")
        self.assertIn("data: holds a.ds and a-validation.ds: training and validation data", err)
        (self.at / "data/b.ds").symlink_to("a.ds")
        for ending in (".index", ".metadata"):
            (self.at / f"data/b.ds{ending}").symlink_to(f"a.ds{ending}")
        run = self.trireme(*validates, "data/a-validation.ds", "--data.0.sources.1.path", "data/b.ds")
        self.assertEqual(run.returncode, 0, run.err)
        self.assertIn("warning: two sources of [[data]] hold the same tokens: data/a.ds and data/b.ds", run.out + run.err)


class Documents(FirstContact):
    """Documents of a sample that are apart."""

    def validation_loss(self, seq_len, scope):
        self.ok("train", "run.toml", "-n", 1, "--run.name", f"{scope}-{seq_len}", "--training.seq_len", seq_len, "--data.0.attention", scope, "--data.0.positions", scope)
        rows = (self.at / f"runs/{scope}-{seq_len}/metrics.jsonl").read_text().splitlines()
        return next(json.loads(row)["val/loss"] for row in rows if "val/loss" in row)

    def test_packed_or_alone(self):
        rng = random.Random(3)
        lines = ["".join(rng.choice("abcdefgh ") for _ in range(15)) for _ in range(8)]  # of 16 tokens
        self.write("a.txt", "\n".join([*lines, "z"]))
        self.write("b.txt", "something else to train on, " * 10)
        self.ok("data", "prepare", "a.txt", "--documents", "lines", "-t", "bytes", "-o", "a")
        self.ok("data", "prepare", "b.txt", "-t", "bytes", "-o", "data/a")
        self.write("run.toml", TOML.replace("[[data]]", "[[data]]\nseq_len = 8").replace("[model]", "[model]\ndtype = 'float64'") +
                   "[validation]\ninterval = 1\nsources = ['a.ds']\n[optimizer]\nlr = 1e-3\n")
        alone, packed, mixed = self.validation_loss(16, "document"), self.validation_loss(64, "document"), self.validation_loss(64, "sample")
        self.assertLess(abs(packed / alone - 1), 1e-12)
        self.assertGreater(abs(mixed / alone - 1), 1e-6, "otherwise they see each other")

    def test_conversations_are_apart(self):
        self.write("c.jsonl", (json.dumps(Chat.KINDS["messages"]) + "\n") * 8)
        self.ok("data", "prepare", "c.jsonl", "--chat", "--template", "plain", "-t", "bytes", "-o", "data/a")
        self.write("run.toml", TOML)
        self.assertRegex(self.ok("train", "run.toml", "-n", 1), r"(?m)^data .* · attention and positions of documents")


def commands_of(page):
    """The commands of the shell blocks of a page, and its TOML."""
    blocks = re.findall(r"```(\w*)\n(.*?)```", page.read_text(), re.S)
    lines = [line for kind, block in blocks if kind == "" for line in block.replace("\\\n", " ").splitlines() if line.startswith("trireme ")]
    return [line.split("  #")[0].split() for line in lines], next(block for kind, block in blocks if kind == "toml")


class Finetune(FirstContact):
    """docs/finetuning.md, from a folder that transformers wrote to one that it reads."""

    TALK = [{"role": "user", "content": "What is your name?"}, {"role": "assistant", "content": "I am Ada."}]

    @classmethod
    def setUpClass(cls):
        try:
            import transformers  # noqa: F401
        except ModuleNotFoundError:
            raise unittest.SkipTest("transformers is not installed (fix: tools/setup)")

    def make_model(self):
        """A small Llama with its own tokenizer, chat template and settings."""
        import tokenizers
        import torch
        import transformers
        words = tokenizers.Tokenizer(tokenizers.models.BPE())
        words.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        words.decoder = tokenizers.decoders.ByteLevel()
        special = ["<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>"]
        words.train_from_iterator(["What is your name? I am here."], tokenizers.trainers.BpeTrainer(
            vocab_size=280, special_tokens=special, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="<|im_end|>", pad_token="<pad>")
        tokenizer.chat_template = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
                                   "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
        tokenizer.save_pretrained(self.at / "model")
        torch.manual_seed(1)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=len(tokenizer),
            max_position_embeddings=128, bos_token_id=0, eos_token_id=4, pad_token_id=2))
        model.generation_config.temperature, model.generation_config.do_sample = 0.7, True
        model.save_pretrained(self.at / "model")
        self.write("model/LICENSE", "as you like")

    def said(self, folder):
        """What a folder answers, by transformers alone."""
        import transformers
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
        prompt = tokenizer.apply_chat_template(self.TALK[:1], add_generation_prompt=True, return_tensors="pt", return_dict=True)
        out = model.generate(**prompt, max_new_tokens=20, do_sample=False)[0][prompt["input_ids"].shape[1]:]
        return tokenizer, tokenizer.decode(out)

    def test_the_page(self):
        import transformers
        self.make_model()
        self.write("talks.jsonl", (json.dumps({"messages": self.TALK}) + "\n") * 40)
        commands, toml = commands_of(Path(__file__).resolve().parents[2] / "docs/finetuning.md")
        self.write("finetune.toml", toml)
        self.assertEqual([c[1] for c in commands], ["data", "data", "train"])
        for command in commands:
            more = ("--training.seq_len", 64, "--training.steps", 40, "--optimizer.lr", 1e-2,
                    "--model.dtype", "float32") if command[1] == "train" else ()
            self.ok(*command[1:], *more)
        before, after = self.at / "model", self.at / "runs/latest/checkpoints/step-40"
        own = lambda name: name in ("checkpoint_metadata.json", "exported_files.json") or name.startswith("rank-")  # of a run that goes on
        names = lambda folder: sorted(p.name for p in folder.iterdir() if not own(p.name))
        self.assertEqual(names(after), names(before))
        for name in names(before):
            if name not in ("config.json", "model.safetensors"):
                self.assertEqual((after / name).read_bytes(), (before / name).read_bytes(), name)
        self.assertEqual(json.loads((after / "config.json").read_text()), json.loads((before / "config.json").read_text()))
        old = transformers.AutoTokenizer.from_pretrained(before)
        new, said = self.said(after)
        self.assertEqual(said, "I am Ada.<|im_end|>")
        self.assertEqual(new.special_tokens_map, old.special_tokens_map)
        self.assertEqual(new.chat_template, old.chat_template)

    def test_a_tokenizer_of_our_own(self):
        self.write("talks.jsonl", (json.dumps({"messages": self.TALK}) + "\n") * 40)
        self.ok("data", "prepare", "talks.jsonl", "--chat", "--train-bpe", 270, "-o", "data/a")
        self.write("run.toml", TOML.replace('"bytes"', '"data/a-tokenizer.json"'))
        self.ok("train", "run.toml", "-n", 1)
        folder = self.at / "runs/r/checkpoints/step-1"
        tokenizer, said = self.said(folder)
        self.assertGreater(len(said), 0)
        self.assertEqual(tokenizer.eos_token, "<|im_end|>")
        self.assertEqual(json.loads((folder / "config.json").read_text())["eos_token_id"], tokenizer.eos_token_id)
        raw, index = (self.at / "data/a.ds").read_bytes(), (self.at / "data/a.ds.index").read_bytes()
        first = list(struct.unpack_from(f"<{struct.unpack_from('<Q', index)[0]}H", raw))
        self.assertEqual(tokenizer.apply_chat_template(self.TALK, return_dict=True)["input_ids"], first)



unittest.main(verbosity=1)
