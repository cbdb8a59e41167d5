#!/usr/bin/env python3
"""Compares our reader of safetensors files with the package safetensors: what both read is alike, what it refuses we refuse.

usage: safetensors_agrees.py PROGRAM SECONDS      PROGRAM: tests/peers/safetensors_dump.cpp, built; SECONDS: for the largest header
TRIREME_CAMPAIGN=1 tries 10,000 damaged files instead of 600; TRIREME_SEED=n others than the usual ones.
"""
import collections
import json
import os
import random
import re
import resource
import struct
import subprocess
import sys
import tempfile
import unicodedata
import zlib
from pathlib import Path

import numpy
import safetensors
from safetensors.numpy import save

MUTANTS = 10_000 if os.environ.get("TRIREME_CAMPAIGN") else 600
SEED = int(os.environ.get("TRIREME_SEED", "20"))
DTYPES = [numpy.bool_, numpy.uint8, numpy.int8, numpy.int16, numpy.uint16, numpy.float16, numpy.int32, numpy.uint32, numpy.float32,
          numpy.complex64, numpy.float64, numpy.int64, numpy.uint64]
# Those that numpy has no types for, with their bits.
OTHER_DTYPES = {"BF16": 16, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
# Where we refuse what the package takes, the text must be of one of these: trireme/files/safetensors_header.hpp, Note [What a
# safetensors header must be].
STRICTER = {
    "given twice": "a key given twice",
    "unknown key ": "a key of a tensor other than the three",
    "must be an object, not a list": "a tensor that is a list",
    "__metadata__: must be an object, not null": "__metadata__ that is null",
    "dtype must be a text, not an object": "a dtype that is an object",
    "a tensor's name must not be empty": "an empty name",
    "a tensor's name must not hold control characters": "control characters in a name",
    "a tensor's name must not start with /": "a name that starts with /",
    "a tensor's name must not have a part \"..\"": "a name with ..",
    "a tensor's name has at most 4096 bytes": "a long name",
    "at most 2^63 - 1 is allowed": "a number above 2^63 - 1",
    "the size overflows 64 bits": "sizes that overflow, with a 0",
    "has more than 64 numbers": "more than 64 sizes",
    "more than 262144 tensors": "too many tensors",
    "has more than 16384 keys": "too many keys of metadata",
    "bytes of JSON; at most 33554432 are allowed": "much JSON",
    "a text of ": "a long text",
    "are allowed between two texts": "much between two texts",
    "only spaces may follow": "white space after the JSON",
    "the header does not start with {": "a header that does not start with {",
}


def check(ok, *what):
    if not ok:
        sys.exit("safetensors_agrees: " + " ".join(str(w) for w in what))


def with_header(header, data=b""):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(header)) + header + data


def header_of(blob):
    return json.loads(blob[8:8 + struct.unpack_from("<Q", blob)[0]])


def package_reads(blob):
    """What the package finds in a file, as safetensors_dump prints it; None when it refuses."""
    try:
        tensors = dict(safetensors.deserialize(bytes(blob)))
    except safetensors.SafetensorError:
        return None
    header = header_of(blob)
    crc = 0
    for name in sorted((n for n in header if n in tensors), key=lambda n: header[n]["data_offsets"]):
        info = tensors[name]
        shape = "".join(f"{size}," for size in info["shape"])
        crc = zlib.crc32(f"{name}\0{info['dtype']}\0{shape}\0".encode(), crc)
        crc = zlib.crc32(info["data"], crc)
    for key, value in sorted((header.get("__metadata__") or {}).items(), key=lambda kv: kv[0].encode()):
        crc = zlib.crc32(f"{key}\0{value}\0".encode(), crc)
    return f"ok {len(tensors)} {crc:08x}"


class Ours:
    def __init__(self, program, folder):
        self.program, self.folder, self.count = program, folder, 0

    def write(self, blob):
        self.count += 1
        path = self.folder / str(self.count)
        path.write_bytes(blob)
        return path

    def ask(self, requests):
        """One process for all: a start takes longer than a hundred files."""
        run = subprocess.run([self.program], input="".join(f"{r}\n" for r in requests), capture_output=True, text=True)
        check(run.returncode == 0, "safetensors_dump ended with", run.returncode, run.stderr)
        answers = run.stdout.splitlines()
        check(len(answers) == len(requests), len(requests), "requests,", len(answers), "answers")
        return answers


def arrays(rng, dtype, shape):
    count = int(numpy.prod(shape, dtype=numpy.int64))
    raw = rng.bytes(count * numpy.dtype(dtype).itemsize)
    return (numpy.frombuffer(raw, numpy.uint8) & 1 if dtype is numpy.bool_ else numpy.frombuffer(raw, dtype)).astype(dtype).reshape(shape)


def good_files(rng):
    """name -> bytes, written by the package; dtypes that numpy lacks by hand."""
    shapes = [(), (1,), (7,), (3, 5), (2, 3, 4), (0,), (4, 0, 2), (2, 1, 3, 2, 2)]
    files = {}
    for dtype in DTYPES:
        files[numpy.dtype(dtype).name] = save({f"t{i}": arrays(rng, dtype, s) for i, s in enumerate(shapes)})
    files["one"] = save({"a": arrays(rng, numpy.float32, (3,))})
    files["none"] = save({})
    files["metadata"] = save({"a": arrays(rng, numpy.int8, (3,))}, {"format": "pt", "": "", "ü漢😀": "\n\t\"\\\x00 line"})
    files["only metadata"] = save({}, {"k": "v"})
    files["mixed"] = save({f"layers.{i}.{numpy.dtype(d).name}": arrays(rng, d, (i + 1, 3)) for i, d in enumerate(DTYPES)}, {"a": "b"})
    files["1000"] = save({f"model.layers.{i}.weight": arrays(rng, DTYPES[i % len(DTYPES)], shapes[i % len(shapes)]) for i in range(1000)})
    files["names"] = save({n: arrays(rng, numpy.uint8, (2,)) for n in ["ü漢😀", "a b", "a/b", "a..b", "quote\"", "back\\slash", "x" * 4096]})
    for name, bits in OTHER_DTYPES.items():
        entry = {"dtype": name, "shape": [2, 4], "data_offsets": [0, bits]}
        files[name] = with_header({"t": entry}, rng.bytes(bits))
    files["unaligned"] = with_header(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} ', rng.bytes(8))
    files["padded"] = with_header(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' + b" " * 200_000, rng.bytes(8))
    return files


def check_round_trip(ours, files):
    paths = [ours.write(blob) for blob in files.values()]
    for name, blob, answer in zip(files, files.values(), ours.ask(paths)):
        wanted = package_reads(blob)
        check(wanted is not None, name, "is refused by the package")
        check(answer == wanted, f"{name}: we say {answer!r}, the package {wanted!r}")
    check_slices(ours, dict(zip(files, paths)))


def check_slices(ours, paths):
    dice, requests, wanted = random.Random(SEED), [], []
    for name in [numpy.dtype(d).name for d in DTYPES] + ["mixed"]:
        with safetensors.safe_open(paths[name], "numpy") as file:
            for tensor in file.keys():
                part = file.get_slice(tensor)
                shape = part.get_shape()
                for _ in range(4 if shape and 0 not in shape else 0):  # the package slices nothing out of a scalar
                    starts = [dice.randrange(size) for size in shape]
                    sizes = [dice.randint(1, size - start) for start, size in zip(starts, shape)]
                    found = part[tuple(slice(b, b + n) for b, n in zip(starts, sizes))].tobytes()
                    requests.append(f"{paths[name]}\t{tensor}\t" + ",".join(f"{b}:{n}" for b, n in zip(starts, sizes)))
                    wanted.append(f"ok {len(found)} {zlib.crc32(found):08x}")
    for request, answer, want in zip(requests, ours.ask(requests), wanted):
        check(answer == want, f"{request}: we say {answer!r}, the package {want!r}")
    print(f"{len(requests)} slices are alike")


# Each takes a file and damages it; those of the header leave its length right.
NUMBERS = [b"0", b"1", b"2", b"3", b"4", b"7", b"8", b"12", b"16", b"255", b"-1", b"-0", b"01", b"1.0", b"1e0", b"1e3", b"1e400", b"4294967296",
           b"9223372036854775807", b"9223372036854775808", b"18446744073709551615", b"18446744073709551616", b"\"1\"", b"null", b"[1]", b""]
WORDS = [b"{", b"}", b"[", b"]", b",", b":", b"\"", b" ", b"\n", b"\\", b"\\u0000", b"\\ud800", b"\xff", b"\xc3", b"\x00", b"\xef\xbb\xbf",
         b"null", b"true", b"{}", b"[]", b"..", b"/", b"../", b"F4", b"F6_E2M3", b"U8", b"I64", b"__metadata__", b"\"x\":1,", b"\"x\":\"y\","]


def in_header(edit):
    def damage(blob, dice):
        length = struct.unpack_from("<Q", blob)[0]
        return with_header(edit(blob[8:8 + length], dice), blob[8 + length:])
    return damage


def flip(blob, dice):
    out = bytearray(blob)
    for _ in range(dice.choice([1, 1, 2, 5])):
        out[dice.randrange(len(out))] ^= 1 << dice.randrange(8)
    return bytes(out)


def any_byte(header, dice):
    at = dice.randrange(len(header))
    return header[:at] + bytes([dice.randrange(256)]) + header[at + 1:]


def number(header, dice):
    found = dice.choice(list(re.finditer(rb"\d+", header)) or [re.match(b"", header)])
    return header[:found.start()] + dice.choice(NUMBERS) + header[found.end():]


def insert(header, dice):
    at = dice.randrange(len(header) + 1)
    return header[:at] + dice.choice(WORDS) + header[at:]


def remove(header, dice):
    at = dice.randrange(len(header))
    return header[:at] + header[at + dice.choice([1, 1, 2, 10]):]


def rename(header, dice):
    """A text becomes another, so that names, keys and dtypes are unknown, hostile or given twice."""
    texts = list(re.finditer(rb'"[^"]*"', header)) or [re.match(b"", header)]
    found, other = dice.choice(texts), dice.choice(texts)
    words = [other[0], b'"' + dice.choice(WORDS) + b'"', b'""', b'"/a"', b'"a/../b"', b'"\\n"', b'"' + b"x" * 5000 + b'"']
    return header[:found.start()] + dice.choice(words) + header[found.end():]


def twice(header, dice):
    """A tensor, a key of one or the metadata once more."""
    found = dice.choice(list(re.finditer(rb'"[^"]*":("[^"]*"|\[[^\]]*\]|\{[^}]*\})', header)) or [re.match(b"", header)])
    return header[:found.end()] + b"," + found[0] + header[found.end():]


def swap_offsets(header, dice):
    ranges = list(re.finditer(rb"\[\d+,\d+\](?=\})", header))
    if len(ranges) < 2:
        return re.sub(rb"\[(\d+),(\d+)\](?=\})", rb"[\2,\1]", header)
    a, b = sorted(dice.sample(ranges, 2), key=lambda m: m.start())
    return header[:a.start()] + b[0] + header[a.end():b.start()] + a[0] + header[b.end():]


def as_list(header, dice):
    """serde takes a list for a struct; we do not."""
    return re.sub(rb'\{"dtype":("\w+"),"shape":(\[[\d,]*\]),"data_offsets":(\[[\d,]*\])\}', rb"[\1,\2,\3]", header, count=1)


def odd_value(header, dice):
    """What serde passes over or takes in another shape."""
    old, new = dice.choice([(b'{"dtype"', b'{"x":[1],"dtype"'), (b'{"dtype":"F32"', b'{"dtype":{"F32":null}'),
                            (b"{", b'{"__metadata__":null,'), (b"}}", b',"x":{}}}')])
    return header.replace(old, new, 1)


def shuffled(header, dice):
    """Another order of tensors and keys is as good."""
    try:
        items = list(json.loads(header).items())
    except (ValueError, AttributeError):  # damaged before
        return header
    dice.shuffle(items)
    mixed = {k: dict(dice.sample(list(v.items()), len(v))) if isinstance(v, dict) else v for k, v in items}
    return json.dumps(mixed, indent=dice.choice([None, 1]), ensure_ascii=dice.random() < 0.5).encode()


def length(blob, dice):
    now = struct.unpack_from("<Q", blob)[0]
    new = dice.choice([0, 1, now - 1, now + 1, now + 8, len(blob) - 8, len(blob) - 7, len(blob), 100_000_000, 100_000_001, 2**31, 2**32 + now,
                       2**63, 2**63 + now, 2**64 - 8, 2**64 - 1])
    return struct.pack("<Q", max(new, 0)) + blob[8:]


def zero_size(header, dice):
    sizes = dice.choice([b"[0,18446744073709551615]", b"[0,9223372036854775807,2]", b"[4294967296,4294967296,0]", b"[0,1,2]",
                         b"[0" + b",1" * 80 + b"]"])
    extra = b'{"zero":{"dtype":"F32","shape":' + sizes + b',"data_offsets":[0,0]}'
    return extra + (b"," if header.strip() != b"{}" else b"") + header[1:]


DAMAGES = [flip, length,
           lambda blob, dice: blob[:dice.randrange(len(blob))],
           lambda blob, dice: blob + dice.randbytes(dice.choice([1, 8, 100])),
           lambda blob, dice: (lambda at: blob[:at] + dice.randbytes(dice.choice([1, 4])) + blob[at:])(dice.randrange(len(blob)))]
DAMAGES += [in_header(edit) for edit in [any_byte, number, number, number, insert, insert, remove, rename, rename, twice, twice, swap_offsets,
                                         as_list, odd_value, shuffled, zero_size,
                                         lambda header, dice: header + dice.choice([b" ", b"\n", b"\t", b"\0", b"\0{}", b"{}", b" " * 1000, b" x"]),
                                         lambda header, dice: dice.choice([b" ", b"\n", b"\xef\xbb\xbf", b"x"]) + header]]


def damaged_files(seeds, count):
    dice = random.Random(SEED)
    for _ in range(count):
        blob = dice.choice(seeds)
        for _ in range(dice.choice([1, 1, 1, 2])):
            if len(blob) >= 8 and struct.unpack_from("<Q", blob)[0] in range(1, len(blob) - 7):
                blob = dice.choice(DAMAGES)(blob, dice)
        yield blob


def check_damaged(ours, files):
    seeds = [files[name] for name in ["one", "none", "metadata", "mixed", "float32", "bool", "F4", "F6_E2M3", "unaligned", "names"]]
    blobs = list(damaged_files(seeds, MUTANTS))
    tally, rules = collections.Counter(), collections.Counter()
    for number_of_file, (blob, answer) in enumerate(zip(blobs, ours.ask([ours.write(blob) for blob in blobs]))):
        if answer.startswith("refused: "):
            wanted = "accepted" if accepted(blob) else "refused"
            check(not any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in answer), "control characters in", ascii(answer))
            check(len(answer) < 1500, "a long text:", len(answer), "bytes")
            if wanted == "accepted":
                rule = next((rule for words, rule in STRICTER.items() if words in answer), None)
                if rule is None and gives_a_key_twice(blob):  # the package looks at the last one only: the first may be wrong
                    rule = STRICTER["given twice"]
                check(rule, f"damaged file {number_of_file}: the package takes it, and we have no such rule: {answer}\n{blob!r}")
                rules[rule] += 1
            tally[f"{wanted} by the package, refused by us"] += 1
        else:
            wanted = package_reads(blob)
            check(wanted is not None, f"damaged file {number_of_file}: we take it, the package does not: {answer}\n{blob!r}")
            check(answer == wanted, f"damaged file {number_of_file}: we say {answer!r}, the package {wanted!r}\n{blob!r}")
            tally["alike in both"] += 1
    check(tally["alike in both"] > MUTANTS // 50, "hardly any damaged file was good:", dict(tally))
    check(tally["refused by the package, refused by us"] > MUTANTS // 4, "hardly any damaged file was bad:", dict(tally))
    print(f"{MUTANTS} damaged files: {dict(tally)}; our stricter rules: {dict(rules)}")


def accepted(blob):
    try:
        safetensors.deserialize(bytes(blob))
        return True
    except safetensors.SafetensorError:
        return False


def check_time(ours, seconds):
    """The largest headers that we read, each within so many seconds of the processor."""
    tail, spent = b'":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}', []
    for header in [b"{" + b",".join(b'"%d' % (i * 7919 % 262_144) + b"n" * 66 + tail for i in range(262_144)) + b"}",
                   b"{" + b",".join(b'"%d' % i + b"n" * 4000 + tail for i in range(8_200)) + b"}",
                   b'{"__metadata__":{' + b",".join(b'"%d":"' % i + b"n" * 1_000_000 + b'"' for i in range(33)) + b"}}"]:
        path = ours.write(with_header(header))
        for _ in range(3):  # again when others keep the machine busy
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            check(ours.ask([path])[0].startswith("ok "), "the largest headers are not read")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)
            if took < seconds:
                break
        spent.append(took)
    print(f"headers of 32 MB: {spent} s")
    check(max(spent) < seconds, f"headers of 32 MB take {spent} s; at most {seconds} s are allowed")


def gives_a_key_twice(blob):
    twice_in = []
    hook = lambda pairs: twice_in.append(len(dict(pairs)) < len(pairs))
    json.loads(blob[8:8 + struct.unpack_from("<Q", blob)[0]], object_pairs_hook=hook)
    return any(twice_in)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    files = good_files(numpy.random.default_rng(SEED))
    with tempfile.TemporaryDirectory() as name:
        ours = Ours(sys.argv[1], Path(name))
        check_round_trip(ours, files)
        print(f"{len(files)} files are alike")
        check_damaged(ours, files)
        check_time(ours, float(sys.argv[2]))


if __name__ == "__main__":
    main()
