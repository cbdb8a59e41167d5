#!/usr/bin/env python3
"""The same tokens as `tokenizers` and `tiktoken`, for tokenizers of every kind and texts from all of Unicode.

usage: tokenizers_agree.py TOKENIZER_TOOL      with TRIREME_CAMPAIGN set: 100,000 texts for the common kinds, 10,150 for the rest, else 1,500"""
import base64
import json
import os
import struct
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

import tiktoken

import tokenizer_kinds as kinds
from ask_tokenizer import TOOL, ask, check_reference, differ, same_nfc

TEXTS = 100_000 if os.environ.get("TRIREME_CAMPAIGN") else 1_500


def check_round_trip(name, path, texts, nfc):
    """Nothing is lost by byte-level tokenizers, not even bytes that are no text."""
    data = [t.encode() for t in texts]
    backs = ask("encode", path, data, "back", answers=2)[1::2]
    expected = [unicodedata.normalize("NFC", t).encode() for t in texts] if nfc else data
    differ(name, "decode(encode(text))", texts, backs, expected)
    if not nfc:
        random = kinds.Texts(77).random
        broken = [bytes(random.choice(b"\xff\xc3\xa9\xe2\x82\xac\xf0\x9f a1\n") for _ in range(random.randrange(40))) for _ in range(2000)]
        differ(name, "decode(encode(bytes))", broken, ask("encode", path, broken, "back", answers=2)[1::2], broken)


def gpt2_pair(folder):
    """GPT-2's vocabulary as the two files that it came in."""
    pair = Path(folder) / "gpt2"
    pair.mkdir()
    (pair / "vocab.json").write_bytes((kinds.GPT2_FILES / "encoder.json").read_bytes())
    (pair / "merges.txt").write_bytes((kinds.GPT2_FILES / "vocab.bpe").read_bytes())
    return pair


def check_tiktoken(name, pattern, ranks, specials, folder, texts, file_name):
    path = Path(folder) / file_name
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in sorted(ranks.items(), key=lambda item: item[1])))
    theirs = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
    expected = theirs.encode_batch(texts, allowed_special="all")
    differ(name, "tiktoken's encode", texts, ask("encode", path, [t.encode() for t in texts]), expected)
    return path


def few_of(texts):
    return texts[:len(texts) // 10 + 150]


def check_transformers(folder, texts):
    """The way most people meet these files."""
    from transformers import PreTrainedTokenizerFast
    for name in ("llama3", "metaspace", "gpt2"):
        theirs = PreTrainedTokenizerFast(tokenizer_file=str(folder / f"{name}.json"), clean_up_tokenization_spaces=False)
        data = few_of(texts)
        differ(name, "transformers' tokens", data, ask("encode", folder / f"{name}.json", [t.encode() for t in data], "special"), theirs(data)["input_ids"])


def check_training(folder, texts):
    """The same corpus gives the same merges, in the same order, and the file that we write means the same to the reference."""
    data = b"".join(struct.pack("<I", len(t.encode())) + t.encode() for t in texts)
    for name, pattern in (("gpt2", None), ("llama3", kinds.LLAMA3), ("qwen2", kinds.QWEN2)):
        theirs, trainer = kinds.byte_level(pattern, vocab_size=4000)
        theirs.train_from_iterator(texts, trainer)
        path = Path(folder) / f"trained-{name}.json"
        path.write_bytes(subprocess.run([TOOL, "train", name, "4000"], input=data, capture_output=True, check=True).stdout)
        ours, reference = json.loads(path.read_text(encoding="utf-8"))["model"], json.loads(theirs.to_str())["model"]
        first = next((i for i, (a, b) in enumerate(zip(ours["merges"], reference["merges"])) if a != b), None)
        if first is not None or len(ours["merges"]) != len(reference["merges"]):
            sys.exit(f"training, {name}: {len(ours['merges'])} merges, the reference {len(reference['merges'])}; first difference at {first}")
        assert ours["vocab"] == reference["vocab"], name
        check_reference(f"trained-{name}", path, texts[-500:])


def main():
    texts = kinds.Texts(1).texts(TEXTS)
    texts += ["", " ", "a" * 5000, " " * 3000 + "x", "x" + "\n" * 2000, "1" * 1000, "ab" * 3000, "\u4e00" * 500]
    checked = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, path in kinds.make_all(folder).items():
            asked = texts if name in ("gpt2-like", "llama3", "qwen2", "metaspace-split") else few_of(texts)
            agreed = same_nfc(asked) if name == "qwen2" else asked
            assert len(agreed) > 0.9 * len(asked)
            check_reference(name, path, agreed)
            checked += 1
            if name in ("gpt2-like", "llama3", "qwen2", "starcoder", "deepseek", "deepseek3"):
                # <tool> and <right> take white space along, and NFC may join a token's last letter with what follows it
                few = [t for t in texts if name != "qwen2" or not ("<tool>" in t or "<right>" in t or "caf" in t or "lone" in t)][:5000]
                check_round_trip(name, path, few, nfc=name == "qwen2")
        path = kinds.gpt2_real(folder)
        plain = check_reference("gpt2", path, texts)
        differ("gpt2", "vocab.json and merges.txt", texts, ask("encode", gpt2_pair(folder), [t.encode() for t in texts]), plain)
        check_tiktoken("gpt2", kinds.GPT2, kinds.ranks_of(path), {"<|endoftext|>": 50256}, folder, texts, "gpt2.tiktoken")
        ranks = kinds.ranks_of(Path(folder) / "llama3.json")
        check_tiktoken("llama3", kinds.LLAMA3, ranks, {"<|endoftext|>": len(ranks)}, folder, texts, "own.llama3.tiktoken")
        check_tiktoken("o200k", kinds.O200K, ranks, {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}, folder, few_of(texts), "o200k_base.tiktoken")
        check_transformers(Path(folder), texts)
        check_training(folder, kinds.corpus(1.0) + texts[:1500])
        check_round_trip("bytes", "bytes", texts[:2000], nfc=False)
    import tokenizers
    print(f"tokenizers {tokenizers.__version__}, tiktoken {tiktoken.__version__}: {checked + 1} tokenizers, up to {len(texts)} texts each, all tokens alike")


main()
