"""Asks tokenizer_tool (the first argument of the test) to encode and decode, and compares its answers."""
import struct
import subprocess
import sys
import unicodedata

from tokenizers import Tokenizer, normalizers

TOOL = sys.argv[1]


def ask(word, path, items, *options, answers=1):
    """The tool's answers: `items` are bytes or lists of tokens."""
    packed = [item if isinstance(item, bytes) else struct.pack(f"<{len(item)}I", *item) for item in items]
    counts = [len(p) if isinstance(i, bytes) else len(i) for p, i in zip(packed, items)]
    stream = b"".join(struct.pack("<I", n) + p for n, p in zip(counts, packed))
    run = subprocess.run([TOOL, word, str(path), *options], input=stream, capture_output=True)
    if run.returncode:
        sys.exit(f"{word} {path}: {run.stderr.decode()}")
    out, at = [], 0
    for i in range(len(items) * answers):
        (n,) = struct.unpack_from("<I", run.stdout, at)
        tokens = word in ("encode", "pieces") and i % answers == 0
        size = n * 4 if tokens else n
        raw = run.stdout[at + 4:at + 4 + size]
        out.append(list(struct.unpack(f"<{n}I", raw)) if tokens else raw)
        at += 4 + size
    assert at == len(run.stdout)
    return out


def differ(name, what, texts, ours, theirs):
    wrong = [i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b]
    if wrong:
        shortest = min(wrong, key=lambda i: len(texts[i]))
        sys.exit(f"{name}: {what} differs for {len(wrong)} of {len(texts)} texts; {texts[shortest]!r}\n  ours   {ours[shortest]}\n  theirs {theirs[shortest]}")


def check_reference(name, path, texts):
    """Ids with and without the post-processor, and back."""
    theirs = Tokenizer.from_file(str(path))
    data = [t.encode() for t in texts]
    plain = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)]
    differ(name, "encode", texts, ask("encode", path, data), plain)
    with_special = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=True)]
    differ(name, "encode with special tokens", texts, ask("encode", path, data, "special"), with_special)
    whole = [d.decode("utf-8", "replace") for d in ask("decode", path, plain)]
    differ(name, "decode", texts, whole, theirs.decode_batch(plain, skip_special_tokens=False))
    differ(name, "decode without special tokens", texts, [d.decode("utf-8", "replace") for d in ask("decode", path, plain, "skip")],
           theirs.decode_batch(plain, skip_special_tokens=True))
    differ(name, "decode token by token", texts, [d.decode() for d in ask("stream", path, plain)], whole)
    slow = texts[:500]
    differ(name, "the regular expression's words", slow, ask("pieces", path, data[:500]), plain[:500])
    return plain


def same_nfc(texts):
    """Those whose NFC the reference makes as Unicode 14 says. Its tables are older than some combining marks."""
    theirs = normalizers.NFC()
    return [t for t in texts if theirs.normalize_str(t) == unicodedata.normalize("NFC", t)]
