#!/usr/bin/env python3
"""Two NCCL ranks that share one GPU: memory of ZeRO 3 from the start to the first step, and a hang in deterministic sums that is named.
By hand: CI has no GPU.

usage: zero3_start.py TRIREME RANK_PROGRAM

Exit code 1 if llama3.2-3b needs more than 5 % above 18/2 bytes per parameter and one unit, or if a stopped rank is not named in time."""
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

LARGEST_UNIT = 128256 * 3072  # the embedding
PARAMETERS = LARGEST_UNIT + 28 * (3072 * 3072 * 2 + 2 * 1024 * 3072 + 3 * 8192 * 3072 + 2 * 3072) + 3072
TIMEOUT = 6


def memory(trireme, folder):
    (folder / "book.txt").write_text("".join(f"Line {i} of a book that nobody wrote.\n" for i in range(4000)))
    subprocess.run([trireme, "data", "prepare", folder / "book.txt", "-o", folder / "tokens", "--tokenizer", "bytes"], check=True, capture_output=True)
    (folder / "run.toml").write_text(f"""
[run]
name = "start"
dir = "{folder}/runs"
[model]
preset = "llama3.2-3b"
dtype = "bfloat16"
[[data]]
sources = [ {{ path = "{folder}/tokens.ds" }} ]
[training]
steps = 1
seq_len = 64
global_batch_size = 2
micro_batch_size = 1
[parallelism]
zero = 3
[comm]
share_gpu = true
""")
    begin = time.monotonic()
    ended = subprocess.run([trireme, "train", folder / "run.toml", "-n", "2"], capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"train failed with {ended.returncode}:\n{ended.stdout[-2000:]}{ended.stderr[-3000:]}")
    row = json.loads((folder / "runs/latest/metrics.jsonl").read_text().splitlines()[0])
    wanted = (18 / 2 * PARAMETERS + 2 * LARGEST_UNIT) / 2**30
    found = row["mem_start_gib"]
    print(f"ZeRO 3, llama3.2-3b ({PARAMETERS:,} parameters), 2 ranks: {found:.2f} GiB per rank from the start to the first step, "
          f"18/2 bytes per parameter and one unit are {wanted:.2f} (ratio {found / wanted:.3f}); in the step {row['mem_peak_gib']:.2f}; "
          f"{time.monotonic() - begin:.0f} s")
    return found <= 1.05 * wanted


def hang(trireme, program, folder):
    job = subprocess.Popen([trireme, "launch", "-n", "2", "--logs", folder / "logs", "--", program, "--backend", "nccl", "--cuda",
                            "--share-gpu", "--deterministic", "--timeout", str(TIMEOUT), "--hang", folder / "hang", "steps", folder / "never"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(25)  # NCCL has connected, and steps are running
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and "\0RANK=1\0" in "\0" + Path(f"/proc/{entry}/environ").read_text() and \
                    program.name in Path(f"/proc/{entry}/cmdline").read_text():
                stopped = int(entry)
        except OSError:
            continue
    begin = time.monotonic()
    os.kill(stopped, signal.SIGSTOP)
    try:
        _, told = job.communicate(timeout=60)
    finally:
        try:
            os.kill(stopped, signal.SIGKILL)
        except ProcessLookupError:
            pass
    seconds = time.monotonic() - begin
    line = re.search(r"error: .*timed out.*(\n  missing: rank 1.*)?", told)
    print(f"deterministic sum over NCCL with rank 1 stopped: exit code {job.returncode} after {seconds:.1f} s (timeout {TIMEOUT}): "
          f"{line[0] if line else told[-1500:]}")
    return "missing: rank 1" in told and seconds < TIMEOUT + 10


def main():
    trireme, program = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    with TemporaryDirectory() as name:
        folder = Path(name)
        fine = [memory(trireme, folder), hang(trireme, program, folder)]
    sys.exit(0 if all(fine) else 1)


main()
