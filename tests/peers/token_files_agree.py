#!/usr/bin/env python3
"""Exchanges token files with our reader and writers, in both directions, through readers and writers of its own.

They are written from the descriptions of the formats alone, with struct and numpy, and share nothing with the C++ ones.

usage: token_files_agree.py PROGRAM      PROGRAM: tests/peers/token_files_tool.cpp, built
TRIREME_CAMPAIGN=1 exchanges 1,000 data sets instead of 60, TRIREME_SEED=n others than the usual ones.
"""
import os
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy

SETS = 1_000 if os.environ.get("TRIREME_CAMPAIGN") else 60
SEED = int(os.environ.get("TRIREME_SEED", "20"))
FINGERPRINT = "0123456789abcdef"
MEGATRON_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}


def check(ok, *what):
    if not ok:
        sys.exit("token_files_agree: " + " ".join(str(w) for w in what))


# A data set here: {"documents": [[id ...] ...], "masks": [[0 or 1 ...] ...] or None, "name": str, "fingerprint": str}. Readers give
# back the bytes of a token as "width", too. In llm.c's format documents cannot be told apart: there is one.

def flat(documents):
    return [token for document in documents for token in document]


# --- datatrove: tokens; u64 ends of documents; text; one bool a token -------------------------------------------------------------
def write_datatrove(path, data, width, age="today"):
    tokens = numpy.array(flat(data["documents"]), dtype="<u2" if width == 2 else "<u4")
    tokens.tofile(f"{path}.ds")
    ends = numpy.cumsum([len(d) for d in data["documents"]])
    Path(f"{path}.ds.index").write_bytes(struct.pack(f"<{len(ends)}Q", *(int(e) for e in ends)))
    lines = [data["name"] if age == "old" else f"{data['name']}|{width}", str(len(tokens)), "some tokens"]
    if data["fingerprint"]:
        lines.append(data["fingerprint"])
    Path(f"{path}.ds.metadata").write_text("\n".join(lines))
    if data["masks"] is not None:
        bits = flat(data["masks"])
        Path(f"{path}.ds.loss").write_bytes(struct.pack(f"<{len(bits)}?", *bits))


def read_datatrove(path):
    lines = Path(f"{path}.ds.metadata").read_text().split("\n")
    name, width = lines[0].rsplit("|", 1)
    raw = Path(f"{path}.ds").read_bytes()
    count = int(lines[1])
    check(len(raw) == count * int(width), "datatrove: sizes")
    tokens = struct.unpack(f"<{count}{'H' if width == '2' else 'I'}", raw)
    index = Path(f"{path}.ds.index").read_bytes()
    ends = struct.unpack(f"<{len(index) // 8}Q", index)
    begins = (0,) + ends[:-1]
    loss, masks = Path(f"{path}.ds.loss"), None
    if loss.exists():
        bits = struct.unpack(f"<{count}?", loss.read_bytes())
        masks = [[int(b) for b in bits[begin:end]] for begin, end in zip(begins, ends)]
    return {"documents": [list(tokens[begin:end]) for begin, end in zip(begins, ends)], "masks": masks, "name": name,
            "fingerprint": lines[3] if len(lines) > 3 else "", "width": int(width), "human": lines[2], "count": count}


def for_people(count):
    """Three significant digits and a metric prefix, then T."""
    exponent = len(str(count)) - 1
    value = count / 1000 ** (exponent // 3)
    return f"{value:.{2 - exponent % 3}f} {['', 'k', 'M', 'G'][exponent // 3]}T"


# --- Megatron: an index of sequences and documents, and the tokens ----------------------------------------------------------------
def write_megatron(path, data, code, dice, kinds=False):
    """Documents are cut into sequences at random: each has one or more."""
    dtype = numpy.dtype(MEGATRON_TYPES[code])
    numpy.array(flat(data["documents"]), dtype=dtype).tofile(f"{path}.bin")
    lengths, marks = [], [0]
    for document in data["documents"]:
        cuts = sorted(dice.randint(0, len(document)) for _ in range(dice.choice([0, 0, 1, 3])))
        lengths += [b - a for a, b in zip([0] + cuts, cuts + [len(document)])]
        marks.append(len(lengths))
    offsets = [0]
    for length in lengths[:-1]:
        offsets.append(offsets[-1] + length * dtype.itemsize)
    out = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(lengths), len(marks))
    out += numpy.array(lengths, "<i4").tobytes() + numpy.array(offsets, "<i8").tobytes() + numpy.array(marks, "<i8").tobytes()
    Path(f"{path}.idx").write_bytes(out + (bytes(len(lengths)) if kinds else b""))
    write_record(path, data)


def read_megatron(path):
    raw = Path(f"{path}.idx").read_bytes()
    check(raw[:9] == b"MMIDIDX\x00\x00", "megatron: magic")
    version, code, sequences, marks_count = struct.unpack_from("<QBQQ", raw, 9)
    check(version == 1, "megatron: version")
    dtype = numpy.dtype(MEGATRON_TYPES[code])
    lengths = numpy.frombuffer(raw, "<i4", sequences, 34)
    offsets = numpy.frombuffer(raw, "<i8", sequences, 34 + 4 * sequences)
    marks = numpy.frombuffer(raw, "<i8", marks_count, 34 + 12 * sequences)
    check(len(raw) == 34 + 12 * sequences + 8 * marks_count, "megatron: bytes behind the index")
    check(marks[0] == 0 and marks[-1] == sequences, "megatron: marks", marks)
    bin_bytes = Path(f"{path}.bin").read_bytes()
    pieces = [numpy.frombuffer(bin_bytes, dtype, int(n), int(o)).tolist() for n, o in zip(lengths, offsets)]
    check(sum(lengths) * dtype.itemsize == len(bin_bytes), "megatron: size of .bin")
    return {"documents": [flat(pieces[a:b]) for a, b in zip(marks[:-1], marks[1:])], "masks": None, "width": dtype.itemsize,
            **read_record(path)}


# --- llm.c: 256 i32, then tokens ------------------------------------------------------------------------------------------------
def write_llmc(path, data, width):
    tokens = flat(data["documents"])
    header = numpy.zeros(256, "<i4")
    header[:3] = [20240520, 1, len(tokens)] if width == 2 else [20240801, 7, len(tokens)]
    Path(f"{path}.bin").write_bytes(header.tobytes() + numpy.array(tokens, "<u2" if width == 2 else "<u4").tobytes())
    write_record(path, data)


def read_llmc(path):
    raw = Path(f"{path}.bin").read_bytes()
    header = struct.unpack_from("<256i", raw)
    width = {(20240520, 1): 2, (20240801, 7): 4}[header[:2]]
    check(len(raw) == 1024 + header[2] * width and not any(header[3:]), "llm.c: header", header[:4])
    tokens = numpy.frombuffer(raw, "<u2" if width == 2 else "<u4", header[2], 1024).tolist()
    return {"documents": [tokens], "masks": None, "width": width, **read_record(path)}


def write_record(path, data):
    if data["name"] or data["fingerprint"]:
        Path(f"{path}.tokenizer").write_text(f"{data['name']}\n{data['fingerprint']}\n{len(flat(data['documents']))}\n")


def read_record(path):
    record = Path(f"{path}.tokenizer")
    lines = record.read_text().split("\n") if record.exists() else ["", ""]
    return {"name": lines[0], "fingerprint": lines[1]}


READERS = {"datatrove": read_datatrove, "megatron": read_megatron, "llmc": read_llmc}


# --- the exchange ---------------------------------------------------------------------------------------------------------------
class Ours:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words, documents=None):
        self.process.stdin.write("\t".join(map(str, words)) + "\n" + ("" if documents is None else documents + ".\n"))
        self.process.stdin.flush()
        answer = ""
        while (line := self.process.stdout.readline()) != ".\n":
            check(line, words, "ended with", self.process.poll())
            answer += line
        return answer

    def end(self):
        self.process.stdin.close()
        check(self.process.wait() == 0, "the program ended with", self.process.returncode)


def as_text(data, empty):
    masks = data["masks"] or [None] * len(data["documents"])
    return "".join(" ".join(map(str, document)) + (" / " + " ".join(map(str, mask)) if mask is not None else "") + "\n"
                   for document, mask in zip(data["documents"], masks) if empty or document)


def some_data(dice, largest, masked):
    documents = [[dice.choice([0, largest, dice.randint(0, largest)]) for _ in range(dice.choice([0, 1, 2, 7, 300]))]
                 for _ in range(dice.choice([1, 2, 5, 700]))]
    if not any(documents):
        documents.append([largest])
    return {"documents": documents, "masks": [[dice.randint(0, 1) for _ in d] for d in documents] if masked else None,
            "name": dice.choice(["gpt2", "a b|c", "ü/漢.json"]), "fingerprint": dice.choice(["", FINGERPRINT])}


def check_we_read(ours, path, data, documents, what):
    """`documents`: how many there are, with those that have no tokens."""
    out = ours.ask("dump", path).split("\n", 1)
    wanted = f"{len(flat(data['documents']))} {documents} {data['fingerprint'] or '-'} {data['name'] or '-'}"
    check(out[0] == wanted, what, f"we read {out[0]!r}, it is {wanted!r}")
    check(out[1] == as_text(data, empty=False), what, "we read other tokens")


def exchange_to_us(ours, folder, dice):
    for number in range(SETS):
        path = folder / f"to-{number}"
        kind = number % 3
        if kind == 0:
            width, age = dice.choice([(2, "old"), (2, "today"), (4, "today")])
            data = some_data(dice, 256 ** width - 1, masked=dice.random() < 0.5)
            if age == "old":
                data["name"] = "gpt2"  # a bar would be taken for the width
            write_datatrove(path, data, width, age)
            check_we_read(ours, f"{path}.ds", data, len(data["documents"]), f"datatrove {width} {age}")
        elif kind == 1:
            code = dice.choice(list(MEGATRON_TYPES))
            largest = {1: 255, 2: 127, 3: 32767, 4: 2**31 - 1, 5: 2**32 - 1, 8: 65535}[code]
            data = some_data(dice, largest, masked=False)
            write_megatron(path, data, code, dice, kinds=dice.random() < 0.3)
            check_we_read(ours, path, data, len(data["documents"]), f"megatron type {code}")
        else:
            width = dice.choice([2, 4])
            data = some_data(dice, 256 ** width - 1, masked=False)
            data["documents"] = [flat(data["documents"])]
            write_llmc(path, data, width)
            check_we_read(ours, f"{path}.bin", data, 1, f"llm.c {width}")


def exchange_from_us(ours, folder, dice):
    for number in range(SETS):
        path, kind = folder / f"from-{number}", list(READERS)[number % 3]
        vocab_size = dice.choice([2, 50_257, 65_499, 65_500, 65_536, 65_537, 128_256, 2**31])
        data = some_data(dice, vocab_size - 1, masked=kind == "datatrove" and dice.random() < 0.5)
        out = ours.ask("write", kind, path, vocab_size, data["name"], data["fingerprint"], int(data["masks"] is not None),
                       documents=as_text(data, empty=True))
        check(out == "", kind, out)
        found = READERS[kind](path)
        wanted = dict(data, documents=[flat(data["documents"])]) if kind == "llmc" else data
        for key in ["documents", "masks", "name", "fingerprint"]:
            check(found[key] == wanted[key], kind, "vocab_size", vocab_size, key, "differ")
        narrow = vocab_size < 65_500 if kind == "megatron" else vocab_size <= 65_536
        check(found["width"] == (2 if narrow else 4), kind, "vocab_size", vocab_size, "width", found["width"])
        if kind == "datatrove":
            check(found["human"] == for_people(found["count"]), "for people:", found["human"], found["count"])


def check_folders_and_documents(ours, folder):
    shards = folder / "shards"
    shards.mkdir()
    for number, documents in [(1, [[3], [4, 5]]), (0, [[1, 2]]), (10, [[6]])]:
        write_datatrove(shards / f"{number:05d}_shuffled", {"documents": documents, "masks": None, "name": "gpt2", "fingerprint": ""}, 2)
    check(ours.ask("dump", shards) == "6 4 - gpt2\n1 2\n3\n4 5\n6\n", "a folder of shards:", ours.ask("dump", shards))
    write_llmc(folder / "marked", {"documents": [[9, 1, 2, 9, 3]], "name": "", "fingerprint": ""}, 2)
    check(ours.ask("dump", folder / "marked.bin", 9) == "5 3 - -\n9\n1 2 9\n3\n", "documents of llm.c")


def check_negative(ours, folder):
    numpy.array([1, -1], "<i4").tofile(folder / "negative.bin")
    (folder / "negative.idx").write_bytes(b"MMIDIDX\x00\x00" + struct.pack("<QBQQiqqq", 1, 4, 1, 2, 2, 0, 0, 1))
    out = ours.ask("dump", folder / "negative")
    check("refused: token -1 at position 1 of " in out, "a negative token:", out)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as name:
        ours, folder, dice = Ours(sys.argv[1]), Path(name), random.Random(SEED)
        exchange_to_us(ours, folder, dice)
        exchange_from_us(ours, folder, dice)
        check_folders_and_documents(ours, folder)
        check_negative(ours, folder)
        ours.end()
    print(f"{SETS} data sets read and {SETS} written alike")


if __name__ == "__main__":
    main()
