#!/usr/bin/env python3
"""`trireme data prepare` writes the tokens that `tokenizers` gives, from JSON lines as Python writes them.

usage: prepare_agrees.py TRIREME      with TRIREME_CAMPAIGN set: 20,000 texts for each tokenizer, else 1,500"""
import gzip
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenizers import Tokenizer

import tokenizer_kinds as kinds

PROGRAM = os.path.abspath(sys.argv[1])
TEXTS = 20_000 if os.environ.get("TRIREME_CAMPAIGN") else 1_500
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LEARNS = {"assistant"}


def documents(path):
    """The documents of a data set and their masks, read without any code of ours."""
    width = int(Path(f"{path}.metadata").read_text().split("\n")[0].rsplit("|", 1)[1])
    raw, index = Path(path).read_bytes(), Path(f"{path}.index").read_bytes()
    tokens = struct.unpack(f"<{len(raw) // width}{'H' if width == 2 else 'I'}", raw)
    ends = struct.unpack(f"<{len(index) // 8}Q", index)
    mask = Path(f"{path}.loss").read_bytes() if Path(f"{path}.loss").exists() else bytes(len(tokens))
    return [list(tokens[a:b]) for a, b in zip((0, *ends), ends)], [list(mask[a:b]) for a, b in zip((0, *ends), ends)]


def prepare(*words):
    run = subprocess.run([PROGRAM, "data", "prepare", *map(str, words), "-q", "--overwrite"], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)


def same(what, ours, theirs):
    if len(ours) != len(theirs):
        sys.exit(f"{what}: {len(ours)} documents, expected {len(theirs)}")
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if a != b:
            sys.exit(f"{what}: document {i}\n  ours   {a}\n  theirs {b}")


def lines_of(texts, rng):
    """As json.dumps writes them, with and without escapes, other keys before and behind, blank lines between."""
    out = []
    for text in texts:
        before, behind = ({k: rng.choice([1, -2.5, None, True, [], {"text": "no"}, "\u00e9\"", [{"a": [1]}]]) for k in rng.sample("abcd", rng.randrange(3))}
                          for _ in range(2))
        out.append(json.dumps({**before, "text": text, **{k + k: v for k, v in behind.items()}}, ensure_ascii=rng.random() < 0.5))
        if rng.random() < 0.1:
            out.append(" " * rng.randrange(3))
    return "\n".join(out)


def check_texts(folder, name, path, texts, rng):
    reference = Tokenizer.from_file(str(path))
    end = reference.token_to_id("<|endoftext|>")
    plain, zipped = folder / "a.jsonl", folder / "b.jsonl.gz"
    half = len(texts) // 2
    plain.write_bytes(lines_of(texts[:half], rng).encode())
    zipped.write_bytes(gzip.compress(lines_of(texts[half:], rng).encode()))
    prepare(plain, zipped, "-t", path, "-o", folder / "x", "--workers", rng.randrange(1, 5))
    expected = [e.ids for e in reference.encode_batch(texts, add_special_tokens=False)]
    same(name, documents(folder / "x.ds")[0], [[*ids, end] for ids in expected if ids])


def check_chat(folder, name, path, texts, rng):
    """The words of messages, with the reference told to take special tokens for text."""
    reference = Tokenizer.from_file(str(path))
    _, start, stop = (reference.token_to_id(t) for t in SPECIALS)
    words = Tokenizer.from_file(str(path))
    words.encode_special_tokens = True
    encode = lambda t: words.encode(t, add_special_tokens=False).ids
    lines, tokens, masks = [], [], []
    at = 0
    while at + 4 < len(texts):
        messages = [{"role": rng.choice(["system", "user", "assistant", "tool"]), "content": t + rng.choice(["", *SPECIALS])}
                    for t in texts[at:at + rng.randrange(1, 5)]]
        at += 4
        lines.append(json.dumps({"messages": messages}, ensure_ascii=rng.random() < 0.5))
        ids, mask = [], []
        for message in messages:
            head, learns = message["role"] + "\n", message["role"] in LEARNS
            # One text between special tokens; but nothing spans the beginning of an answer.
            parts = ((encode(head), 0), (encode(message["content"]), 1)) if learns else ((encode(head + message["content"]), 0),)
            for part, counts in (([start], 0), *parts, ([stop, *encode("\n")], int(learns))):
                ids += part
                mask += [counts] * len(part)
        if any(mask):  # a conversation without an answer is left out
            tokens.append(ids)
            masks.append(mask)
    (folder / "c.jsonl").write_text("\n".join(lines), encoding="utf-8")
    prepare(folder / "c.jsonl", "--chat", "-t", path, "-o", folder / "c")
    ours, our_masks = documents(folder / "c.ds")
    same(f"{name}, chat", ours, tokens)
    same(f"{name}, loss mask", our_masks, masks)


with tempfile.TemporaryDirectory() as name:
    folder, rng = Path(name), random.Random(11)
    checked = 0
    for pattern_name, pattern in {"gpt2": None, "llama3": kinds.LLAMA3, "qwen2": kinds.QWEN2, "qwen2 with NFC": kinds.QWEN2}.items():
        tokenizer, trainer = kinds.byte_level(pattern, specials=SPECIALS, nfc="NFC" in pattern_name)
        tokenizer.train_from_iterator(kinds.corpus(0.5), trainer)
        path = folder / "tokenizer.json"
        tokenizer.save(str(path))
        texts = kinds.Texts(rng.randrange(1 << 30)).texts(TEXTS)
        if "NFC" in pattern_name:  # their tables are older than some marks: tokenizers_agree.py
            texts = [t for t in texts if t.isascii()]
        check_texts(folder, pattern_name, path, texts, rng)
        check_chat(folder, pattern_name, path, texts, rng)
        checked += len(texts)
    print(f"{checked} texts became the reference's tokens")
