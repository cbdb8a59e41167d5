#!/usr/bin/env python3
"""How the start of a job grows with its ranks, all on this machine: time until every rank has finished an all-reduce,
processor time for it, and the descriptors that a rank and the launcher then hold.

usage: start_growth.py BUILD_FOLDER [RANKS...]      (default: 8 16 32 64)"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

LIMIT = 600  # seconds


def measure(build, ranks):
    with tempfile.TemporaryDirectory() as folder:
        enough, logs = pathlib.Path(folder, "enough"), pathlib.Path(folder, "logs")
        command = [f"{build}/trireme", "launch", "-n", str(ranks), "--threads", "1", "--logs", logs, "--",
                   f"{build}/tests/trireme_rank_program", "steps", enough]
        start = time.monotonic()
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as launcher:
            try:
                pids = {}
                while len(pids) < ranks:
                    if launcher.poll() is not None or time.monotonic() - start > LIMIT:
                        sys.exit(f"error: {ranks} ranks: only {len(pids)} came")
                    time.sleep(0.05)
                    for log in logs.glob("r*.log"):
                        for rank, pid in re.findall(r"^ready rank=(\d+) pid=(\d+)$", log.read_text(), re.M):
                            pids[int(rank)] = int(pid)
                took = time.monotonic() - start
                ticks = os.sysconf("SC_CLK_TCK")
                cpu = sum(sum(map(int, pathlib.Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
                          for p in pids.values()) / ticks
                held = max(len(os.listdir(f"/proc/{p}/fd")) for p in pids.values())
                launchers = len(os.listdir(f"/proc/{launcher.pid}/fd"))
            finally:
                enough.touch()
                try:
                    launcher.wait(60)
                except subprocess.TimeoutExpired:
                    launcher.terminate()
        if launcher.returncode != 0:
            sys.exit(f"error: {ranks} ranks: exit code {launcher.returncode}")
        return took, cpu, held, launchers


def main():
    build = os.path.abspath(sys.argv[1])
    print(f"{'ranks':>5}  {'start (s)':>9}  {'cpu of a rank (s)':>17}  {'descriptors of a rank':>21}  {'of the launcher':>15}")
    for ranks in [int(word) for word in sys.argv[2:]] or [8, 16, 32, 64]:
        took, cpu, held, launchers = measure(build, ranks)
        print(f"{ranks:5}  {took:9.2f}  {cpu / ranks:17.2f}  {held:21}  {launchers:15}", flush=True)


main()
