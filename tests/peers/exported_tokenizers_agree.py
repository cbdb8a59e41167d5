#!/usr/bin/env python3
"""The tokenizer of a saved model folder, as AutoTokenizer of transformers reads it, has the ids of the `tokenizers` package for every
family of models: a class of the family must not put its own way to cut text in the place of the file's.

usage: exported_tokenizers_agree.py TRIREME MODEL_FOLDER_TOOL"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import transformers
from tokenizers import Tokenizer

TRIREME = TOOL = None
TEXTS = ["the year 1234567 was", "  don't DON'T\n\n stop ", "é 日本 <|endoftext|> x", "a1b22c333 4444", ""]


class EveryFamily(unittest.TestCase):
    def folders(self, folder, pattern, *words):
        text = folder / "text.txt"
        text.write_text("the year 1234567 was the year 12345 the 1234 123 1999 2000, don't DON'T stop  now\n" * 50)
        subprocess.run([TRIREME, "data", "train-bpe", text, "--vocab-size", "320", "--pattern", pattern, *words, "-o",
                        folder / "tokenizer.json"], check=True, capture_output=True)
        done = subprocess.run([TOOL, folder / "models", folder / "tokenizer.json"], check=True, capture_output=True, text=True)
        return {family: folder / "models" / family for family in done.stdout.split()}

    def test_the_same_ids(self):
        for pattern in ("gpt2", "llama3", "qwen2"):
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                families = self.folders(folder, pattern)
                self.assertGreaterEqual(set(families), {"gpt2", "llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe"})
                wanted = Tokenizer.from_file(str(folder / "tokenizer.json"))
                for family, path in families.items():
                    found = transformers.AutoTokenizer.from_pretrained(path)
                    for text in TEXTS:
                        with self.subTest(family=family, pattern=pattern, text=text):
                            self.assertEqual(found(text)["input_ids"], wanted.encode(text).ids)
                    self.assertEqual(found.eos_token, "<|endoftext|>", family)
                    self.assertEqual(len(found), wanted.get_vocab_size(), family)


if __name__ == "__main__":
    TRIREME, TOOL = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
