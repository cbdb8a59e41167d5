#!/usr/bin/env python3
"""What metrics, checks and tracing cost of a step of the demo model, in percent of its time.

Tracing: every fourth step of a run is traced, and its file is written during the next one; the two together are compared with the two
steps after them, so that both kinds see the same machine. Checks: runs with comm.check "fast" (the default) and "off" in turn. Metrics: rank 0's work between two steps.

usage: overhead.py BUILD_FOLDER [ROUNDS [RANKS]]"""
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

STEPS = 80
FIRST = 11  # the steps before it warm up


def config():
    source = pathlib.Path(__file__).resolve().parents[1]
    text = (source / "examples/demo.toml").read_text()
    for pattern, instead in ((r"build/demo/sources\.ds", "synthetic"), (r"(?m)^path = .*$", ""), (r"(?s)\[validation\].*?(?=\[opt)", "")):
        text = re.sub(pattern, instead, text)
    return text


def run(trireme, ranks, *flags):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "demo.toml").write_text(config())
        subprocess.run([trireme, "train", "demo.toml", "-n", str(ranks), "--parallelism.dp", "-1", "--training.steps", str(STEPS),
                        "--run.dir", "runs", "--checkpoint.interval", "0", "--metrics.console", "plain", *flags], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        lines = (path / "runs/latest/metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["step"] >= FIRST]


def percent(part, whole):
    return f"{100 * part / whole:+6.2f} %"


def main():
    trireme = pathlib.Path(sys.argv[1]).resolve() / "trireme"
    rounds, ranks = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((2, 5), (3, 2)))
    traced = ["--profiler.steps", json.dumps(list(range(FIRST, STEPS, 4)))]
    tracing, metrics, fast, off = [], [], [], []
    for _ in range(rounds):
        times = [row["step_time_s"] for row in run(trireme, ranks, *traced)]
        tracing += [(times[i] + times[i + 1] - times[i + 2] - times[i + 3]) / (times[i + 2] + times[i + 3]) * 2
                    for i in range(0, len(times) - 3, 4)]
        untraced = run(trireme, ranks)
        fast.append(statistics.median(row["train_time_s"] for row in untraced))
        metrics += [(row["step_time_s"] - row["train_time_s"]) / row["train_time_s"] for row in untraced]
        off.append(statistics.median(row["train_time_s"] for row in run(trireme, ranks, "--comm.check", "off")))
    step = statistics.median(fast)
    print(f"demo model, {ranks} ranks, {rounds} rounds of {STEPS - FIRST + 1} steps: {1000 * step:.1f} ms per step")
    print(f"tracing, of a traced step   {percent(statistics.median(tracing), 1)}")
    print(f"metrics                     {percent(statistics.median(metrics), 1)}")
    print(f"checks at their defaults    {percent(step - statistics.median(off), step)}")


if __name__ == "__main__":
    main()
