#!/usr/bin/env python3
"""Time from the command to the first finished all-reduce: `trireme launch` beside torchrun, in turn, medians.

usage: launch_time.py BUILD_FOLDER [PAIRS] [RANKS]"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

SCRIPT = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((1,), dist.get_rank() + 1.0, dtype=torch.float64)
dist.all_reduce(x)
if dist.get_rank() == 0:
    print("sum", x.item(), flush=True)
dist.destroy_process_group()
"""


def seconds_until(command, word, folder):
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder) as process:
        for line in process.stdout:
            if word in line:
                took = time.monotonic() - start
                process.stdout.read()
                if process.wait() != 0:
                    break
                return took
    sys.exit(f"error: {' '.join(command)} did not print '{word}' and end well")


def main():
    build = os.path.abspath(sys.argv[1])
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    ranks = sys.argv[3] if len(sys.argv) > 3 else "4"
    python = os.path.join(os.path.dirname(os.path.dirname(build)), ".venv/bin/python")
    if not os.path.exists(python):
        python = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "first.py")
        with open(script, "w", encoding="utf-8") as f:
            f.write(SCRIPT)
        ours = [f"{build}/trireme", "launch", "-n", ranks, "--", f"{build}/tests/trireme_rank_program", "sum"]
        theirs = [python, "-m", "torch.distributed.run", "--nproc-per-node", ranks, script]
        a, b = [], []
        for i in range(pairs + 1):
            mine, other = seconds_until(ours, "sum=", folder), seconds_until(theirs, "sum ", folder)
            if i > 0:  # the first pair only warms the disk
                a.append(mine)
                b.append(other)
        ratio = statistics.median(x / y for x, y in zip(a, b))
        print(f"start to first all-reduce, {ranks} ranks: trireme launch {statistics.median(a):.2f} s, "
              f"torchrun {statistics.median(b):.2f} s, ratio {ratio:.3f} ({pairs} pairs)")


main()
