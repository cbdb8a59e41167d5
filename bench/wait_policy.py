#!/usr/bin/env python3
"""What threads that wait do to the speed of steps: OMP_WAIT_POLICY=ACTIVE (they spin, as libgomp's do by default) next to PASSIVE (our
default), for ranks with threads of their own, alone and next to programs that keep every core busy.

The two policies run in turn; medians of the steps of the demo model after the warm-up.

usage: wait_policy.py BUILD_FOLDER [ROUNDS]"""
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys

import overhead

overhead.STEPS = 30


def step_ms(trireme, ranks, threads, policy):
    os.environ["OMP_WAIT_POLICY"] = policy
    return 1000 * statistics.median(row["train_time_s"] for row in overhead.run(trireme, ranks, "--threads", str(threads)))


@contextlib.contextmanager
def busy_cores():
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count())]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def main():
    trireme = pathlib.Path(sys.argv[1]).resolve() / "trireme"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    cores = os.cpu_count()
    print(f"{cores} cores, medians of {rounds} rounds\n{'ranks x threads':17}{'machine':11}{'active (ms)':>12}{'passive (ms)':>13}{'passive / active':>18}")
    for ranks, threads in ((1, cores), (2, max(1, cores // 2)), (2, cores), (4, cores)):
        for name, load in (("idle", contextlib.nullcontext), ("busy", busy_cores)):
            with load():
                times = [(step_ms(trireme, ranks, threads, "ACTIVE"), step_ms(trireme, ranks, threads, "PASSIVE")) for _ in range(rounds)]
            active, passive = (statistics.median(column) for column in zip(*times))
            print(f"{f'{ranks} x {threads}':17}{name:11}{active:12.1f}{passive:13.1f}{passive / active:18.2f}", flush=True)


if __name__ == "__main__":
    main()
