#!/usr/bin/env python3
"""Pipelines over NCCL, with all ranks on one GPU: the losses of one rank, for every schedule, with tp, dp and ZeRO.

usage: pipeline.py TRIREME      (a machine with a GPU; not part of `make test`)"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

CONFIG = """
[model]
preset = "tiny-llama"
num_hidden_layers = 8
[tokenizer]
path = "bytes"
[[data]]
sources = [ { path = "synthetic" } ]
[training]
steps = 5
seq_len = 64
micro_batch_size = 1
global_batch_size = 8
[lr_scheduler]
warmup_steps = 1
[validation]
interval = 5
fraction = 0.0001
[checkpoint]
export_hf = false
"""
LAYOUTS = [(2, "pp 2"), (2, "pp 2 pp_schedule zb1p"), (2, "pp 2 pp_schedule zbv"), (2, "pp 2 pp_schedule interleaved-1f1b virtual_stages 2"),
           (2, "pp 2 pp_schedule dualpipe-v"), (2, "pp 2 pp_schedule afab"), (4, "pp 2 tp 2"), (4, "pp 2 dp 2 zero 3"), (4, "pp 4 zero 1"),
           (4, "pp 2 tp 2 pp_schedule zbv")]


def train(folder, name, dtype, ranks=1, layout=""):
    words = layout.split()
    options = [w for key, value in zip(words[::2], words[1::2]) for w in (f"--parallelism.{key}", value)]
    program = os.path.abspath(sys.argv[1])
    command = [program, "train", "c.toml", "-n", str(ranks), "--run.name", name, "--model.dtype", dtype, "--comm.share_gpu", "true", "--comm.timeout_s", "20",
               "--metrics.console", "quiet", *options]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"error: {dtype} {layout}: exit code {run.returncode}\n{run.stdout[-2000:]}\n{run.stderr[-4000:]}")
    rows = [json.loads(line) for line in (folder / f"runs/{name}/metrics.jsonl").read_text().splitlines()]
    return [value for row in rows for value in (row["loss"], row["grad_norm"])] + [rows[-1]["val/loss"]]


def main():
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "c.toml").write_text(CONFIG)
        failed = 0
        for dtype, bound in (("float64", 1e-11), ("bfloat16", 2e-2)):
            one = train(folder, f"one-{dtype}", dtype)
            for i, (ranks, layout) in enumerate(LAYOUTS if dtype == "float64" else [LAYOUTS[0], LAYOUTS[6], LAYOUTS[7]]):
                many = train(folder, f"many-{dtype}-{i}", dtype, ranks, layout)
                worst = max(abs(a - b) / abs(b) for a, b in zip(many, one))
                failed += worst > bound or len(many) != len(one)
                print(f"{dtype:9} {layout:48} {ranks} ranks: losses, norms and validation within {worst:.1e} of one rank{'' if worst <= bound else '   WRONG'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
