#!/usr/bin/env python3
"""Time of commands that need no libtorch, in turn with one that loads it (`trireme doctor`): medians in milliseconds.

usage: start_time.py BUILD_FOLDER [ROUNDS]"""
import os
import statistics
import subprocess
import sys
import time


def main():
    trireme = os.path.join(os.path.abspath(sys.argv[1]), "trireme")
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    source = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    commands = (["--help"], ["train", "--help"], ["config", "show", "--model.preset", "llama3-8b"],
                ["config", "check", os.path.join(source, "examples/tiny.toml"), "-n", "4", "--no-files"], ["schedule", "1f1b"], ["data", "--help"], ["doctor"])
    times = {}
    for _ in range(rounds):
        for command in commands:
            begin = time.monotonic()
            subprocess.run([trireme, *command], check=True, stdout=subprocess.DEVNULL)
            times.setdefault(" ".join(command[:2]), []).append(1000 * (time.monotonic() - begin))
    for command, each in times.items():
        print(f"{statistics.median(each):8.1f} ms   trireme {command}")


main()
