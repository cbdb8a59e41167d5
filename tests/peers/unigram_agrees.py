#!/usr/bin/env python3
"""The same tokens as `tokenizers` for unigram and WordPiece models, with the normalizers, pre-tokenizers and decoders of their files.

usage: unigram_agrees.py TOKENIZER_TOOL      with TRIREME_CAMPAIGN set: 10,000 texts for each and every code point, else 300 texts and a part of them"""
import os
import sys
import tempfile
import unicodedata

import tokenizers
from tokenizers import normalizers

import tokenizer_kinds as kinds
from ask_tokenizer import check_reference

TEXTS = 10_000 if os.environ.get("TRIREME_CAMPAIGN") else 300


def normal_forms_agree(text):
    """Whether the reference decomposes as Unicode 14 does: its tables are older than some combining marks."""
    return all(theirs.normalize_str(text) == unicodedata.normalize(form, text)
               for form, theirs in (("NFD", normalizers.NFD()), ("NFKD", normalizers.NFKD()), ("NFKC", normalizers.NFKC())))


def every_character():
    """All of Unicode 14, some characters to a text, each between two letters."""
    points = [c for c in kinds.assigned() if c < 0xF0000]
    return ["a" + "a".join(map(chr, points[i:i + 60])) + "b" for i in range(0, len(points), 60)]


def main():
    texts = [t for t in kinds.Texts(4).texts(TEXTS) if normal_forms_agree(t)]
    assert len(texts) > 0.9 * TEXTS
    texts += ["", " ", "  \n", "a" * 5000, " " * 300 + "x ", "1" * 1000, "ab" * 3000, "\u4e00" * 500, "\uff41\u0301x", "A\u030a\u0301", "\x01\x02a", "\x01 a", "\u0301a",
              "<unk>", "<unk>\u4e00\u4e8c<unk>", "[UNK][CLS]", "I do n't, do not 's . ! ' m", "\u0130stanbul \u00c9T\u00c9", "\u03a3\u03a3 \u03c3", "``x'' ``"]
    if TEXTS > 1000:
        texts += [t for t in every_character() if normal_forms_agree(t)]
    with tempfile.TemporaryDirectory() as folder:
        names = None if TEXTS > 1000 else ("t5", "albert", "bert", "bert-accents", "wordpiece-merged")
        made = {**kinds.make_all(folder, names, kinds.unigram_kinds), **kinds.make_all(folder, names, kinds.wordpiece_kinds)}
        for name, path in made.items():
            check_reference(name, path, texts)
    print(f"tokenizers {tokenizers.__version__}: {len(made)} unigram and WordPiece tokenizers, {len(texts)} texts each, all tokens alike")


try:
    import sentencepiece  # noqa: F401, makes the rules of Precompiled
except ModuleNotFoundError:
    print("skipped: sentencepiece is not installed (fix: tools/setup)", file=sys.stderr)
    sys.exit(77)
main()
