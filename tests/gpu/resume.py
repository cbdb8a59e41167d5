#!/usr/bin/env python3
"""A checkpoint of a training on a GPU: what is loaded is what was saved, the run goes on, and how long training waits for it.

usage: resume.py TRIREME      (a machine with a GPU; not part of `make test`)"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

CONFIG = """
[run]
name = "NAME"
[model]
preset = "gpt2"
embd_pdrop = 0.0
resid_pdrop = 0.0
attention_dropout = 0.0
[[data]]
sources = [ { path = "synthetic" } ]
[training]
steps = 40
seq_len = 512
micro_batch_size = 8
global_batch_size = 8
[checkpoint]
interval = 10
export_hf = false
"""


def train(folder, name, *words):
    (folder / f"{name}.toml").write_text(CONFIG.replace("NAME", name))
    run = subprocess.run([os.path.abspath(sys.argv[1]), "train", f"{name}.toml", "--metrics.console", "plain", *words], cwd=folder, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"error: exit code {run.returncode}\n{run.stdout[-2000:]}\n{run.stderr[-2000:]}")
    return [json.loads(line) for line in (folder / f"runs/{name}/metrics.jsonl").read_text().splitlines()], run.stdout


def hashes(checkpoint):
    found = {}
    for part in sorted(checkpoint.glob("rank-*.json")):
        for t in json.loads(part.read_text())["checkpoint"]["tensors"]:
            if t["kind"] != "random":
                found.setdefault((t["name"], t["kind"]), []).extend(s[3] for s in t["slices"])
    return found


def main():
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        whole, _ = train(folder, "whole", "--checkpoint.keep", "0")
        rest, said = train(folder, "rest", "--resume", "runs/whole/checkpoints/step-20", "--checkpoint.keep", "0")
        print([line for line in said.splitlines() if line.startswith("resume")][0])
        later = whole[20:]
        assert [r["step"] for r in rest] == [r["step"] for r in later]
        assert rest[0]["loss_hex"] == later[0]["loss_hex"], "the first loss after resuming has other bits"
        same = sum(a["loss_hex"] == b["loss_hex"] for a, b in zip(rest, later))
        print(f"losses with the same bits after resuming: {same} of {len(rest)}")
        print("largest difference of a loss:", max(abs(a["loss"] - b["loss"]) for a, b in zip(rest, later)))
        one = hashes(folder / "runs/whole/checkpoints/step-40") == hashes(folder / "runs/rest/checkpoints/step-40")
        print("the same bits of all weights and states at the end:", one)
        blocked = [r["checkpoint_blocked_s"] for r in whole if "checkpoint_blocked_s" in r]
        step = statistics.median(r["train_time_s"] for r in whole)
        size = sum(p.stat().st_size for p in (folder / "runs/whole/checkpoints/step-40").iterdir())
        print(f"step {1e3 * step:.1f} ms; blocked by a save of {size / 1e9:.2f} GB, in ms: {[round(1e3 * b, 1) for b in blocked]}")


if __name__ == "__main__":
    main()
