#!/usr/bin/env python3
"""Tokenizing and training beside `tokenizers` and `tiktoken`, one core, the same texts, in turns; medians of ratios.

usage: against_tokenizers.py BUILD_FOLDER [ROUNDS]"""
import os

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import json
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tiktoken
from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "peers"))
import tokenizer_kinds as kinds

BENCH = Path(sys.argv[1]) / "bench" / "trireme_tokenizer_bench"
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3


def installed_texts(megabytes):
    """What is installed on every machine that runs this: Python's library, its packages, Debian's documents. Pieces of at most 16 KB."""
    out, size = [], 0
    known = set(map(chr, kinds.assigned()))
    folders = [Path(os.__file__).parent, Path(tiktoken.__file__).parents[1], Path("/usr/share/perl"), Path("/usr/share/doc")]
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix not in (".py", ".md", ".rst", ".txt", ".pod", ".pl", ".html", ".pyi") or not path.is_file():
                continue
            text = path.read_text(encoding="utf-8", errors="ignore")[:1_000_000]
            if not known.issuperset(text):
                continue  # characters newer than Unicode 14: not all know how to cut them
            for i in range(0, len(text), 16_000):
                out.append(text[i:i + 16_000])
                size += len(out[-1].encode())
                if size > megabytes * 1e6:
                    return out
    if size < 20e6:
        sys.exit(f"only {size / 1e6:.0f} MB of text are installed here")
    while size < megabytes * 1e6:  # again, in other pieces: less varied, for all alike
        whole = "".join(out)
        out = [whole[i:i + 15_001] for i in range(0, len(whole), 15_001)] * 2
        size *= 2
    return out


def timed(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def ours(word, *arguments):
    return subprocess.run([BENCH, word, *map(str, arguments)], capture_output=True, text=True, check=True).stdout.split()


def tiktoken_of(path, pattern):
    ranks = kinds.ranks_of(path)
    return tiktoken.Encoding("own", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": len(ranks)})


def encode(name, path, pattern, texts, file, megabytes):
    """A slow peer gets a part of the texts, timed by the megabyte."""
    part = texts[::6]
    part_mb = sum(len(t.encode()) for t in part) / 1e6
    huggingface, openai = Tokenizer.from_file(str(path)), tiktoken_of(path, pattern)
    rates = {"ours": [], "tokenizers": [], "tiktoken": []}
    count = sum(len(huggingface.encode(t, add_special_tokens=False).ids) for t in part[:200])
    with tempfile.NamedTemporaryFile() as few:
        write(few.name, part[:200])
        assert int(ours("encode", path, few.name)[-1]) == count
    for _ in range(ROUNDS):
        rates["ours"].append(megabytes / float(ours("encode", path, file)[0]))
        rates["tokenizers"].append(part_mb / timed(lambda: [huggingface.encode(t, add_special_tokens=False) for t in part]))
        rates["tiktoken"].append(part_mb / timed(lambda: [openai.encode_ordinary(t) for t in part]))
    best = [max(a, b) for a, b in zip(rates["tokenizers"], rates["tiktoken"])]
    ratios = [a / b for a, b in zip(rates["ours"], best)]
    print(f"encode, {name}: " + ", ".join(f"{k} {statistics.median(v):.1f} MB/s" for k, v in rates.items()) +
          f"; {statistics.median(ratios):.1f}x the faster peer ({min(ratios):.1f}..{max(ratios):.1f}, {ROUNDS} rounds)", flush=True)


def write(file, texts):
    with open(file, "wb") as out:
        for text in texts:
            data = text.encode()
            out.write(struct.pack("<I", len(data)) + data)


def main():
    texts = installed_texts(60)
    megabytes = sum(len(t.encode()) for t in texts) / 1e6
    print(f"{megabytes:.0f} MB in {len(texts)} texts", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write(folder / "texts", texts)
        few = texts[::6]
        write(folder / "few", few)
        few_mb = sum(len(t.encode()) for t in few) / 1e6
        ratios = []
        for _ in range(ROUNDS):
            tokenizer, trainer = kinds.byte_level(kinds.LLAMA3, vocab_size=32000)
            mine = float(ours("train", "llama3", 32000, folder / "few", folder / "32k.json")[0])
            theirs = timed(lambda: tokenizer.train_from_iterator(few, trainer))
            ratios.append(theirs / mine)
        assert json.loads(tokenizer.to_str())["model"]["merges"] == json.loads((folder / "32k.json").read_text(encoding="utf-8"))["model"]["merges"]
        print(f"train 32k on {few_mb:.0f} MB: ours {mine:.2f} s, tokenizers {theirs:.2f} s; {statistics.median(ratios):.1f}x (the same merges)", flush=True)
        for pattern, regex in (("llama3", kinds.LLAMA3), ("gpt2", kinds.GPT2)):
            ours("train", pattern, 128000, folder / "texts", folder / f"128k-{pattern}.json")
            encode(f"128k, {pattern}'s pattern", folder / f"128k-{pattern}.json", regex, texts, folder / "texts", megabytes)
        gpt2 = kinds.gpt2_real(folder)
        encode("GPT-2's vocabulary", gpt2, kinds.GPT2, texts, folder / "texts", megabytes)
        one, two = (min(float(ours("batch", gpt2, folder / "texts", n)[0]) for _ in range(ROUNDS)) for n in (1, 2))
        print(f"two threads: {one / two:.2f}x one")


main()
