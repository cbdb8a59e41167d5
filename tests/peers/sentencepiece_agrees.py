#!/usr/bin/env python3
"""The same tokens as `sentencepiece`, for models trained here with many options and for those that `mistral_common` contains; and the same
as `mistral_common` for tekken files. Texts from all of Unicode, encoded and decoded; bytes that are no text.

usage: sentencepiece_agrees.py TOKENIZER_TOOL      with TRIREME_CAMPAIGN set: 10,000 texts for each, and all models, else 300"""
import base64
import io
import json
import os
import random
import re
import sys
import tempfile
from pathlib import Path

try:
    import mistral_common
    import sentencepiece
    from mistral_common.tokens.tokenizers.tekken import SpecialTokenPolicy, Tekkenizer
except ModuleNotFoundError as missing:
    print(f"skipped: {missing.name} is not installed (fix: tools/setup)", file=sys.stderr)
    sys.exit(77)

import tokenizer_kinds as kinds
from ask_tokenizer import ask, differ

TEXTS = 10_000 if os.environ.get("TRIREME_CAMPAIGN") else 300
SYMBOLS = ["<tool>", "caf\u00e9", "two words", "\u2581x", "12", "<", "\u4e00\u4e8c", "the"]

# What the trainer is told beyond the size of the vocabulary.
MODELS = {
    "bpe": {"model_type": "bpe"},
    "bpe-bytes": {"model_type": "bpe", "byte_fallback": True, "split_digits": True, "normalization_rule_name": "identity",
                  "remove_extra_whitespaces": False},
    "bpe-folded": {"model_type": "bpe", "normalization_rule_name": "nfkc_cf", "user_defined_symbols": SYMBOLS, "control_symbols": ["<|im_end|>", "[INST]"]},
    "bpe-bare": {"model_type": "bpe", "add_dummy_prefix": False, "byte_fallback": True, "user_defined_symbols": SYMBOLS, "character_coverage": 0.98},
    "bpe-suffix": {"model_type": "bpe", "treat_whitespace_as_suffix": True, "allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False},
    "bpe-across": {"model_type": "bpe", "split_by_whitespace": False, "unk_surface": "?", "character_coverage": 0.98},
    "unigram": {"model_type": "unigram"},
    "unigram-bytes": {"model_type": "unigram", "byte_fallback": True, "split_digits": True, "normalization_rule_name": "identity",
                      "remove_extra_whitespaces": False},
    "unigram-folded": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc_cf", "user_defined_symbols": SYMBOLS, "control_symbols": ["<|im_end|>"]},
    "unigram-bare": {"model_type": "unigram", "add_dummy_prefix": False, "remove_extra_whitespaces": False, "user_defined_symbols": SYMBOLS},
    "unigram-across": {"model_type": "unigram", "split_by_whitespace": False, "normalization_rule_name": "nfkc", "byte_fallback": True, "pad_id": 3},
}

SAMPLED = ("bpe-bytes", "bpe-folded", "bpe-suffix", "unigram", "unigram-folded")  # without TRIREME_CAMPAIGN


def trained(options):
    out = io.BytesIO()
    lines = [line[:100] for text in kinds.corpus(0.05) + kinds.Texts(5).texts(150) for line in re.split("[\r\n\0]+", text) if line.strip()]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, vocab_size=1600, hard_vocab_limit=False,
                                             num_threads=1, minloglevel=2, **{"character_coverage": 0.995, **options})
    return out.getvalue()


def byte_by_byte(data):
    """Each byte that is not UTF-8 as U+FFFD, which is how sentencepiece shows it."""
    out = []
    while data:
        for size in (1, 2, 3, 4):
            try:
                out.append(data[:size].decode())
                break
            except UnicodeDecodeError:
                size = 0
        if not size:
            out.append("\ufffd")
        data = data[size or 1:]
    return "".join(out)


def broken_bytes(n):
    dice = random.Random(7)
    return [bytes(dice.choice(b"\xff\xc3\xa9\xe2\x82\xac\xf0\x9f a1\n\x00\xed\xa0") for _ in range(dice.randrange(40))) for _ in range(n)]


def check_model(name, path, texts):
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    data = [t.encode() for t in texts] + broken_bytes(len(texts) // 10)
    shown = texts + data[len(texts):]
    ids = [theirs.encode(d) for d in data]
    differ(name, "encode", shown, ask("encode", path, data), ids)
    dice = random.Random(3)
    some = [[dice.randrange(theirs.get_piece_size()) for _ in range(dice.choice((1, 2, 3, 8, 40)))] for _ in range(len(texts) // 4)]
    some += [[dice.randrange(min(400, theirs.get_piece_size())) for _ in range(12)] for _ in range(len(texts) // 4)]  # many bytes and control symbols
    # A control symbol between two bytes ends a character for sentencepiece; we return bytes, and do not look at them.
    some = [[id for k, id in enumerate(i) if not (theirs.is_control(id) and any(map(theirs.is_byte, i[:k])) and any(map(theirs.is_byte, i[k:])))] for i in some]
    expected = [theirs.decode(i) for i in ids + some]
    differ(name, "decode", shown + some, [byte_by_byte(d) for d in ask("decode", path, ids + some)], expected)
    # Python shows an unfinished character as one U+FFFD, as our stream does.
    whole = [d.decode("utf-8", "replace") for d in ask("decode", path, ids + some)]
    differ(name, "decode token by token", shown + some, [d.decode() for d in ask("stream", path, ids + some)], whole)


def tekken_file(folder, ranks, pattern, version, specials):
    tokens = sorted(ranks.items(), key=lambda item: item[1])
    path = Path(folder) / f"tekken-{version}.json"

    def text_of(token):
        try:
            return token.decode()
        except UnicodeDecodeError:
            return None
    data = {"config": {"pattern": pattern, "num_vocab_tokens": len(tokens), "default_vocab_size": len(tokens) - 100 + 50,
                       "default_num_special_tokens": 50, "version": version},
            "vocab": [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": text_of(token)} for token, rank in tokens]}
    if specials:
        data["special_tokens"] = [{"rank": i, "token_str": s, "is_control": True} for i, s in enumerate(specials)]
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def ranks_by_byte(folder):
    """Of a tokenizer trained here, the 256 bytes in order, which tekken wants."""
    ranks = kinds.ranks_of(kinds.make_all(folder, ["llama3"])["llama3"])
    tokens = [bytes([b]) for b in range(256)] + [t for t in sorted(ranks, key=ranks.get) if len(t) > 1]
    return {token: rank for rank, token in enumerate(tokens)}


def check_tekken(name, path, texts):
    theirs = Tekkenizer.from_file(path)
    data = [t.encode() for t in texts]
    ids = [theirs.encode(t, bos=False, eos=False) for t in texts]
    differ(name, "encode", texts, ask("encode", path, data), ids)
    dice = random.Random(3)
    some = [[dice.randrange(theirs.n_words) for _ in range(dice.choice((1, 2, 3, 8, 40)))] for _ in range(len(texts) // 4)]
    some += [[dice.randrange(400) for _ in range(12)] for _ in range(len(texts) // 4)]
    for option, policy in ((), SpecialTokenPolicy.KEEP), (("skip",), SpecialTokenPolicy.IGNORE):
        # mistral_common decodes between special tokens, each stretch for itself; a special token ends an unfinished character either way
        expected = [theirs.decode(i, special_token_policy=policy) for i in ids + some]
        ours = ask("decode", path, ids + some, *option)
        if option:
            keep = [i for i, t in enumerate(ids + some) if not any(id < theirs.num_special_tokens for id in t)]
            ours, expected = [ours[i] for i in keep], [expected[i] for i in keep]
        differ(name, f"decode {option}", texts + some, [d.decode("utf-8", "replace") for d in ours], expected)


def main():
    texts = kinds.Texts(2).texts(TEXTS) + ["", " ", "  ", "\n", "a" * 5000, " " * 300 + "x ", "x" + "\n" * 200, "1" * 1000, "ab" * 3000, "\u4e00" * 500,
                                           "\u2581", "\u2581\u2581a", "two words", "a two words<tool><tool> \u2581x 12x", "\0", "a\0b", "</s>", "<unk>", "<0x41>"]
    texts += [" ".join(SYMBOLS[i] for i in random.Random(n).choices(range(len(SYMBOLS)), k=5)) for n in range(20)]
    checked = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, options in MODELS.items():
            if TEXTS < 1000 and name not in SAMPLED:
                continue
            path = Path(folder) / f"{name}.model"
            path.write_bytes(trained(options))
            check_model(name, path, texts)
            checked += 1
        real = Path(mistral_common.__file__).parent / "data"
        for path in sorted(real.glob("*.model*"))[:None if TEXTS > 1000 else 1]:
            check_model(path.name, path, texts)
            checked += 1
        ranks = ranks_by_byte(folder)
        check_tekken("tekken v3", tekken_file(folder, ranks, kinds.O200K, "v3", None), texts)
        check_tekken("tekken v11", tekken_file(folder, ranks, kinds.LLAMA3, "v11", ["<unk>", "<s>", "</s>", "[INST]", "<|im_end|>"]), texts)
        tekken = sorted(real.glob("tekken*.json")) if TEXTS > 1000 else []
        for path in tekken:
            check_tekken(path.name, path, texts)
    print(f"sentencepiece {sentencepiece.__version__}, mistral_common {mistral_common.__version__}: {checked} models and {len(tekken) + 2} tekken files, "
          f"{len(texts)} texts each, all tokens alike")


main()
