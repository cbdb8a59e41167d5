#!/usr/bin/env python3
"""`trireme data prepare` on one core, with one worker (its reader and writer may use other cores), and with several workers, in turns, on
JSON lines made of what is installed here; medians.

The rates are the program's own: from the first byte read to the data set on disk, without loading the tokenizer.

usage: prepare_time.py BUILD_FOLDER [MEGABYTES] [ROUNDS] [WORKERS]      run with the Python of .venv; defaults 120, 5, all cores"""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDERS = [Path(os.__file__).parent, Path("/usr/share/perl"), Path("/usr/share/doc"), Path("/usr/include")]
ENDINGS = (".py", ".md", ".rst", ".txt", ".pod", ".pl", ".html", ".pyi", ".h", ".hpp")


def installed_lines(path, megabytes):
    """One file a line, at most 1 MB of it; the bytes of the JSON."""
    folders = FOLDERS + [Path(p) for p in sys.path if p.endswith("-packages")]
    size = 0
    with open(path, "w", encoding="utf-8") as out:
        while True:  # again from the start where less is installed
            before = size
            for folder in folders:
                for file in sorted(folder.rglob("*")):
                    if file.suffix not in ENDINGS or not file.is_file():
                        continue
                    text = file.read_text(encoding="utf-8", errors="ignore")[:1_000_000]
                    size += out.write(json.dumps({"id": size, "text": text}, ensure_ascii=False) + "\n")
                    if size > megabytes * 1e6:
                        return os.path.getsize(path)
            if size == before:
                sys.exit("no text is installed here")


def main():
    program = Path(sys.argv[1]).resolve() / "trireme"
    megabytes, rounds = (float(a) if i == 0 else int(a) for i, a in enumerate((sys.argv[2:4] + ["120", "5"][len(sys.argv[2:4]):])))
    workers = int(sys.argv[4]) if len(sys.argv) > 4 else os.cpu_count()
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "in.jsonl")
        size = installed_lines(lines, megabytes) / 1e6
        few = Path(folder, "few.jsonl")
        with open(lines, encoding="utf-8") as source, open(few, "w", encoding="utf-8") as out:
            written = 0
            while written < 10e6:
                written += out.write(source.readline())
        tokenizer = Path(folder, "tokenizer.json")
        subprocess.run([program, "data", "train-bpe", few, "--vocab-size", "32000", "-o", tokenizer], check=True, stdout=subprocess.DEVNULL)

        def rate(count, *more, cores=None):
            run = subprocess.run([program, "data", "prepare", lines, "-t", tokenizer, "-o", Path(folder, "out"), "-q", "--overwrite", "--workers", str(count), *more],
                                 check=True, capture_output=True, text=True, preexec_fn=lambda: cores and os.sched_setaffinity(0, cores))
            return float(re.search(r"([\d.]+) MB/s", run.stdout)[1])

        rate(workers)  # the page cache
        alone, one, several = [], [], []
        for _ in range(rounds):
            alone.append(rate(1, cores={sorted(os.sched_getaffinity(0))[0]}))
            one.append(rate(1))
            several.append(rate(workers))
        print(f"{size:.0f} MB of JSON lines, vocabulary 32,000, medians of {rounds}")
        for name, rates in (("one core", alone), ("1 worker", one)):
            ratio = statistics.median(b / a for a, b in zip(rates, several))
            print(f"{name}             {statistics.median(rates):6.1f} MB/s   {workers} workers are {ratio:.2f} times as fast ({max(several) / max(rates):.2f} by the best of each)")
        print(f"{workers} workers            {statistics.median(several):6.1f} MB/s")
        print(f"{workers} workers, shuffled  {rate(workers, '--shuffle'):6.1f} MB/s")


main()
