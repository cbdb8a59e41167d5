#!/usr/bin/env python3
"""Reads back, with TensorBoard's own reader, what trireme/base writes, and its traces with json.

usage: tensorboard_reads_events.py PROGRAM      PROGRAM: tests/peers/write_events.cpp, built
"""
import gzip
import json
import math
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from tensorboard.backend.event_processing import event_file_loader
from tensorboard.util import tensor_util

STEPS = 2000


def check(ok, *what):
    if not ok:
        sys.exit("tensorboard_reads_events: " + " ".join(str(w) for w in what))


def equal(found, wanted, what):
    if isinstance(wanted, list) and len(found) == len(wanted) and found != wanted:  # thousands of values: show the first
        i = next(i for i, (f, w) in enumerate(zip(found, wanted)) if f != w)
        found, wanted, what = found[i], wanted[i], f"{what}, entry {i} of {len(wanted)}"
    check(found == wanted, f"{what}: found {found!r}, wanted {wanted!r}")


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def events_in(folder):
    """All events of the only event file in a folder. The loader stops, and logs, at the first record whose checksum is wrong:
    hence the count of bytes."""
    files = list(folder.iterdir())
    equal(len(files), 1, f"event files in {folder}")
    check(re.fullmatch(r"events\.out\.tfevents\.\d{10}\..+\.\d+\.0", files[0].name), "file name", files[0].name)
    data, offset, records = files[0].read_bytes(), 0, 0
    while offset < len(data):
        offset += 12 + struct.unpack_from("<Q", data, offset)[0] + 4
        records += 1
    equal(offset, len(data), "bytes in whole records")
    events = list(event_file_loader.EventFileLoader(str(files[0])).Load())
    equal(len(events), records, "events that TensorBoard's loader accepts")
    return events


def scalars_of(events):
    """tag -> [(step, value)]"""
    out = {}
    for event in events:
        for value in event.summary.value:
            # The loader turns simple_value into a tensor of one float32.
            number = tensor_util.make_ndarray(value.tensor).item() if value.HasField("tensor") else value.simple_value
            out.setdefault(value.tag, []).append((event.step, number))
    return out


def check_events(folder):
    events = events_in(folder)
    equal(events[0].file_version, "brain.Event:2", "file version")
    for before, after in zip(events, events[1:]):
        check(1.6e9 < before.wall_time <= after.wall_time, "wall times out of order", before.wall_time, after.wall_time)
    scalars = scalars_of(events)
    unicode_tag = "Verlust/µ 漢字 😀"
    equal(sorted(scalars), sorted(["loss", "tokens", unicode_tag, "twice", "odd", "bad \N{REPLACEMENT CHARACTER} byte"]), "tags")
    steps = range(1, STEPS + 1)
    equal(scalars["loss"], [(s, float32(10.0 / s)) for s in steps], "loss")
    equal(scalars["tokens"], [(s, float32(s * 4096)) for s in steps], "tokens")
    equal(scalars[unicode_tag], [(s, float32(-0.1 * s)) for s in steps], unicode_tag)
    equal(scalars["twice"], [(2**40, 1.0), (2**40, 2.0)], "a tag twice in one call")
    (nan_step, nan), infinity = scalars["odd"]
    check(nan_step == 0 and math.isnan(nan), "NaN was read as", nan)
    equal(infinity, (1, math.inf), "infinity")


def check_hub(folder, hub):
    """The upload is `cp -r folder hub`: the first makes hub, later ones put the folder into it."""
    wanted = [(s, float32(1.0 / s)) for s in range(1, 101)]
    equal(scalars_of(events_in(folder))["loss"], wanted, "events of the hub logger")
    equal(scalars_of(events_in(hub / folder.name))["loss"], wanted, "events on the hub after close()")


def check_nesting(spans):
    """Of two spans in a lane, one holds the other or they do not touch."""
    open_spans = []
    for span in spans:
        begin, end = span["ts"], span["ts"] + span["dur"]
        while open_spans and open_spans[-1] <= begin + 1e-4:
            open_spans.pop()
        check(not open_spans or end <= open_spans[-1] + 1e-3, "span crosses the one around it:", span)
        open_spans.append(end)


def check_trace(folder):
    text = (folder / "trace.json").read_text(encoding="utf-8")
    equal(gzip.decompress((folder / "trace.json.gz").read_bytes()).decode(), text, "trace.json.gz")

    def refuse(constant):
        sys.exit(f"tensorboard_reads_events: trace has {constant}, which is not JSON")

    trace = json.loads(text, parse_constant=refuse)
    equal(trace["distributedInfo"], {"backend": "gloo", "rank": 3, "world_size": 4}, "distributedInfo")
    events = trace["traceEvents"]
    check(all(event["pid"] == 3 for event in events), "pid is not the rank")
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    equal(names, {0: 'main "thread"', 1: "comm stream"}, "lane names")
    by_phase = {}
    for event in events:
        by_phase.setdefault(event["ph"], []).append(event)
    equal({phase: len(found) for phase, found in by_phase.items()}, {"M": 4, "X": 17, "C": 4}, "events by phase")
    for lane in (0, 1, 2):
        check_nesting([e for e in by_phase["X"] if e["tid"] == lane])
    outer = [e for e in by_phase["X"] if e["name"] == "microbatch"]
    equal([e["args"] for e in outer], [{"microbatch": i, "text": "a\nb\N{REPLACEMENT CHARACTER}", "nan": "NaN"} for i in range(4)], "args")
    now = (trace["baseTimeNanoseconds"] + 1000 * outer[0]["ts"]) / 1e9
    written = (folder / "trace.json").stat().st_mtime
    check(abs(now - written) < 60, "spans are dated", now, "and the file", written)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.argv[1], name], check=True)
        check_events(folder / "tb")
        check_hub(folder / "hub_tb", folder / "hub")
        check_trace(folder)
    print(f"TensorBoard read every value of {STEPS} steps; the trace is valid JSON")


if __name__ == "__main__":
    main()
