#!/usr/bin/env python3
"""`trireme data ...` as a person runs it: what it prints, what it leaves on disk, and what it leaves when it is stopped.

usage: data_test.py TRIREME      TRIREME_CAMPAIGN=1 stops it 300 times instead of 16, TRIREME_SEED=n at other moments"""
import gzip
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = os.path.abspath(sys.argv.pop(1))
STOPS = 300 if os.environ.get("TRIREME_CAMPAIGN") else 6
SEED = int(os.environ.get("TRIREME_SEED", "1"))
END = 256  # of the tokenizer "bytes"


def datatrove(path):
    """The documents of a data set, read without any code of ours."""
    lines = Path(f"{path}.metadata").read_text().split("\n")
    width = int(lines[0].rsplit("|", 1)[1])
    raw = Path(path).read_bytes()
    tokens = struct.unpack(f"<{len(raw) // width}{'H' if width == 2 else 'I'}", raw)
    index = Path(f"{path}.index").read_bytes()
    ends = struct.unpack(f"<{len(index) // 8}Q", index)
    assert int(lines[1]) == len(tokens) == ends[-1], path
    return [list(tokens[a:b]) for a, b in zip((0, *ends), ends)]


class Data(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.at = Path(self.folder.name)
        rng = random.Random(SEED)
        self.texts = ["".join(rng.choice('ab \n"\\é世😀') for _ in range(rng.randrange(1, 200))) for _ in range(800)]
        lines = [json.dumps({"id": i, "text": t}, ensure_ascii=i % 2 == 0) for i, t in enumerate(self.texts)]
        (self.at / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")

    def tearDown(self):
        self.folder.cleanup()

    def trireme(self, *words):
        return subprocess.run([PROGRAM, "data", *map(str, words)], cwd=self.at, capture_output=True, text=True, timeout=120)

    def ok(self, *words):
        run = self.trireme(*words)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stderr, "", "no progress line but on a terminal")
        return run.stdout

    def fails(self, code, *words):
        before = self.names()
        run = self.trireme(*words)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        self.assertTrue(run.stderr.startswith("error: "), run.stderr)
        self.assertEqual(run.stdout, "")
        self.assertEqual(self.names(), before)
        return run.stderr

    def names(self):
        return sorted(str(p.relative_to(self.at)) for p in self.at.rglob("*"))

    def expected(self, texts=None):
        return [[*t.encode(), END] for t in (self.texts if texts is None else texts)]

    def test_help_ends_with_an_example(self):
        for command in ("prepare", "train-bpe", "inspect", "merge"):
            text = self.ok(command, "--help")
            self.assertIn(f"Example:\n  trireme data {command}", text)
            self.assertLessEqual(len(text.splitlines()), 40)

    def test_documents_are_the_texts(self):
        out = self.ok("prepare", "a.jsonl", "-t", "bytes", "-o", "data/x")
        self.assertEqual(datatrove(self.at / "data/x.ds"), self.expected())
        self.assertIn("documents    800\n", out)
        self.assertRegex(out, r"(?m)^tokens       [\d,]+ · 1\.\d\d bytes a token$|^tokens       [\d,]+ · 0\.\d\d bytes a token$")
        self.assertRegex(out, r"(?m)^tokenizer    bytes · 257 tokens · fingerprint [0-9a-f]{16}$")
        self.assertRegex(out, r"(?m)^time         .* MB/s$")
        self.assertRegex(out, r"(?m)^written      data/x.ds · 800 documents · [\d,]+ tokens$")

    def test_workers_decide_nothing(self):
        seen = set()
        for workers in (1, 2, 3):
            self.ok("prepare", "a.jsonl", "-t", "bytes", "-o", "x", "--workers", workers, "--overwrite", "--shuffle", "--seed", 7, "--validation", 0.1)
            seen.add(b"".join(p.read_bytes() for p in sorted(self.at.glob("x*"))))
        self.assertEqual(len(seen), 1)
        train, held = datatrove(self.at / "x.ds"), datatrove(self.at / "x-validation.ds")
        self.assertEqual(sorted(train + held), sorted(self.expected()))

    def test_compressed_folders_and_text(self):
        (self.at / "in/deep").mkdir(parents=True)
        (self.at / "in/b.txt").write_bytes(b"\xff not UTF-8\n")
        (self.at / "in/deep/c.jsonl.gz").write_bytes(gzip.compress(b'{"text": "zipped"}\n') + gzip.compress(b'{"text": "twice"}'))
        run = self.trireme("prepare", "in", "-t", "bytes", "-o", "x")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("warning: 1 of 3 documents is not UTF-8", run.stderr)
        self.assertEqual(datatrove(self.at / "x.ds"), [[*b"\xff not UTF-8\n", END], [*b"zipped", END], [*b"twice", END]])
        (self.at / "b.txt").write_text("one\n\ntwo\nthree\n")
        self.ok("prepare", "b.txt", "-t", "bytes", "-o", "x", "--documents", "blank-line", "--no-append-eod", "--overwrite")
        self.assertEqual(datatrove(self.at / "x.ds"), [[*b"one"], [*b"two\nthree"]])
        (self.at / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"text": "zipped"}\n')[:-4])
        self.assertIn("cut.jsonl.gz: cut short", self.fails(65, "prepare", "cut.jsonl.gz", "-t", "bytes", "-o", "y"))

    def test_a_tokenizer_that_stays_small_and_text_without_naming_it(self):
        (self.at / "small.txt").write_text("to be or not to be\n")
        run = self.trireme("prepare", "small.txt", "--train-bpe", 100000, "-o", "small")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stderr, r"warning: the text has only enough pairs for \d+ of 100,000 tokens")
        self.assertIn("  | to be or not to be", self.ok("inspect", "small.ds"))  # the tokenizer is beside it
        (self.at / "small-tokenizer.json").unlink()
        self.assertNotIn("to be", self.ok("inspect", "small.ds"))

    def test_bad_lines(self):
        with open(self.at / "a.jsonl", "a") as file:
            file.write('\n{"txt": "x"}\nnonsense\n')
        self.assertIn('a.jsonl:801: has no key "text"; it has "txt"', self.fails(65, "prepare", "a.jsonl", "-t", "bytes", "-o", "x"))
        out = self.ok("prepare", "a.jsonl", "-t", "bytes", "-o", "x", "--skip-bad")
        self.assertIn('documents    800 · left out: 2 bad lines, the first a.jsonl:801: has no key', out)
        self.assertEqual(datatrove(self.at / "x.ds"), self.expected())

    def test_lines_of_many_megabytes_and_deep_ones(self):
        text = "long \u00e9 " * 4_000_000
        deep = "[" * 2_000_000 + "]" * 2_000_000
        (self.at / "a.jsonl").write_text(json.dumps({"text": text}) + f'\n{{"a": {deep}, "text": "deep"}}\n')
        self.ok("prepare", "a.jsonl", "-t", "bytes", "-o", "x")
        first, second = datatrove(self.at / "x.ds")
        self.assertTrue(bytes(first[:-1]).decode() == text)
        self.assertEqual(second, [*b"deep", END])

    def test_megatron_and_llmc_names(self):
        self.ok("prepare", "a.jsonl", "-t", "bytes", "-o", "w", "--format", "megatron")
        self.ok("prepare", "a.jsonl", "-t", "bytes", "-o", "w", "--format", "llmc")
        for name in ("w_text_document.bin", "w_text_document.idx", "w.bin"):
            self.assertIn(name, self.names())
        self.ok("merge", "w_text_document", "-o", "back")
        self.assertEqual(datatrove(self.at / "back.ds"), self.expected())
        self.ok("merge", "w.bin", "-t", "bytes", "-o", "back2")
        self.assertEqual(datatrove(self.at / "back2.ds"), self.expected())

    def test_wrong_words(self):
        self.assertIn("needs a tokenizer", self.fails(64, "prepare", "a.jsonl", "-o", "x"))
        self.assertIn("only one", self.fails(64, "prepare", "a.jsonl", "-t", "bytes", "--train-bpe", 300, "-o", "x"))
        self.assertIn("--format", self.fails(64, "prepare", "a.jsonl", "-t", "bytes", "-o", "x", "--format", "parquet"))
        self.assertIn("--documents", self.fails(64, "prepare", "a.jsonl", "-t", "bytes", "-o", "x", "--documents", "pages"))
        self.assertIn("--pattern", self.fails(64, "prepare", "a.jsonl", "--train-bpe", 300, "-o", "x", "--pattern", "bert"))
        self.assertIn("--validation", self.fails(64, "prepare", "a.jsonl", "-t", "bytes", "-o", "x", "--validation", 2))
        self.assertIn("--workers", self.fails(64, "prepare", "a.jsonl", "-t", "bytes", "-o", "x", "--workers", -1))
        self.assertIn("no such file", self.fails(65, "prepare", "no.jsonl", "-t", "bytes", "-o", "x"))
        self.assertIn("at least 257", self.fails(64, "prepare", "a.jsonl", "--train-bpe", 100, "-o", "x"))
        self.assertIn("datatrove has a place", self.fails(64, "prepare", "a.jsonl", "--chat", "--template", "plain", "-t", "bytes", "-o", "x", "--format", "megatron"))
        self.assertIn("no such file", self.fails(65, "inspect", "nothing.ds"))

    def test_a_tokenizer_is_trained_and_looked_at(self):
        self.ok("prepare", "a.jsonl", "--train-bpe", 300, "-o", "book")
        out = self.ok("train-bpe", "a.jsonl", "--vocab-size", 300, "-o", "again.json", "--workers", 3)
        self.assertEqual((self.at / "again.json").read_bytes(), (self.at / "book-tokenizer.json").read_bytes())
        self.assertRegex(out, r"written      again.json · 300 tokens · fingerprint [0-9a-f]{16}")
        out = self.ok("inspect", "book.ds", "-t", "book-tokenizer.json", "-n", 1)
        self.assertIn("format       datatrove · tokens of 2 bytes (u16)\ndocuments    800\n", out)
        self.assertIn("the same as book-tokenizer.json", out)
        self.assertIn("\ndocument 0 · ", out)
        self.assertNotIn("document 1", out)
        self.assertIn("NOT that of bytes", self.ok("inspect", "book.ds", "-t", "bytes"))
        self.ok("prepare", "a.jsonl", "-t", "bytes", "-o", "other")
        self.assertIn("different tokenizers", self.fails(65, "merge", "book.ds", "other.ds", "-o", "both"))
        self.ok("merge", "book.ds", "other.ds", "-o", "both", "--force")
        out = self.ok("train-bpe", "a.jsonl", "--vocab-size", 260, "-o", "special.json", "--special", "<a>", "--special", "<b>", "--pattern", "gpt2")
        self.assertEqual([t["content"] for t in json.loads((self.at / "special.json").read_text())["added_tokens"]], ["<a>", "<b>"])

    def test_inspect_is_safe_to_print(self):
        (self.at / "evil.txt").write_bytes(b"\x1b[31mred\x07 \xe2\x80\xae")
        self.ok("prepare", "evil.txt", "-t", "bytes", "-o", "x")
        out = self.ok("inspect", "x.ds", "-t", "bytes")
        self.assertIn('\n  | \\u001b[31mred\\u0007 \\u202e<|endoftext|>\n', out)

    def test_chat(self):
        (self.at / "c.jsonl").write_text('{"messages": [{"role": "user", "content": "hi <|im_end|>"}, {"role": "assistant", "content": "yo"}]}\n')
        out = self.ok("prepare", "c.jsonl", "--chat", "--train-bpe", 259, "-o", "c")
        self.assertIn("259 tokens", out)
        vocabulary = json.loads((self.at / "c-tokenizer.json").read_text())["model"]["vocab"]
        spell = {v: k for k, v in vocabulary.items()}
        (tokens,) = datatrove(self.at / "c.ds")
        words = "".join(spell.get(t, "?") for t in tokens).replace("\u0120", " ").replace("\u010a", "\n")
        self.assertEqual(words, "<|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n")
        special = [i for i, t in enumerate(tokens) if spell[t] in ("<|im_start|>", "<|im_end|>", "<|endoftext|>")]
        self.assertEqual(len(special), 4, "the user's own <|im_end|> is text")
        mask = (self.at / "c.ds.loss").read_bytes()
        self.assertEqual(list(mask), [0] * (len(tokens) - 4) + [1] * 4)
        self.assertIn("loss mask    4 tokens count", self.ok("inspect", "c.ds"))

    def catches_interrupts(self, pid):
        words = Path(f"/proc/{pid}/status").read_text().split()
        return bool(int(words[words.index("SigCgt:") + 1], 16) & 1 << signal.SIGINT - 1)

    def stopped(self, how, rng, longest):
        """Starts a long run and ends it by `how` at some moment; the exit code, or None when it was faster."""
        run = subprocess.Popen([PROGRAM, "data", "prepare", "big.jsonl", "-t", "bytes", "-o", "out/x", "--shuffle", "--validation", "0.5"],
                               cwd=self.at, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # Not before the handler is there: what a signal does to a process that has hardly begun is not ours to say.
        while run.poll() is None and not self.catches_interrupts(run.pid):
            time.sleep(0.0005)
        time.sleep(rng.uniform(0, longest))
        run.send_signal(how)
        out, err = run.communicate(timeout=60)
        if how == signal.SIGINT and run.returncode:
            self.assertEqual(err, "error: interrupted; nothing was written (signal 2)\n")
            self.assertEqual(out, "")
        return run.returncode

    def big(self):
        with open(self.at / "big.jsonl", "w") as file:
            for i in range(60_000):
                file.write(json.dumps({"text": f"{i} " + "some words " * (i % 60)}) + "\n")
        begin = time.monotonic()
        self.ok("prepare", "big.jsonl", "-t", "bytes", "-o", "out/x", "--shuffle", "--validation", "0.5")
        took = time.monotonic() - begin
        whole = {p.name: p.read_bytes() for p in (self.at / "out").iterdir()}
        for p in (self.at / "out").iterdir():
            p.unlink()
        (self.at / "out").rmdir()
        return took, whole

    def test_interrupted_at_any_moment_it_leaves_nothing(self):
        took, whole = self.big()
        rng, codes = random.Random(SEED), []
        for _ in range(STOPS):
            codes.append(self.stopped(signal.SIGINT, rng, took))
            if codes[-1] == 0:
                self.assertEqual({p.name: p.read_bytes() for p in (self.at / "out").iterdir()}, whole)
                for p in (self.at / "out").iterdir():
                    p.unlink()
                (self.at / "out").rmdir()
            else:
                self.assertEqual(codes[-1], 130)
                self.assertFalse((self.at / "out").exists(), list(self.at.glob("out/*")))
        self.assertIn(130, codes)

    def test_killed_at_any_moment_it_leaves_no_half_data_set(self):
        took, whole = self.big()
        rng = random.Random(SEED)
        for _ in range(STOPS):
            self.stopped(signal.SIGKILL, rng, took)
            if not (self.at / "out").exists():
                continue
            for name in ("x.ds", "x-validation.ds"):
                run = self.trireme("inspect", f"out/{name}", "-n", 0)
                if run.returncode == 0:
                    for ending in ("", ".index", ".metadata"):
                        self.assertEqual((self.at / f"out/{name}{ending}").read_bytes(), whole[name + ending])
                else:
                    self.assertEqual(run.returncode, 65)
            for p in (self.at / "out").iterdir():
                p.unlink()
            (self.at / "out").rmdir()


unittest.main(verbosity=1)
