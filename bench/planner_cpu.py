#!/usr/bin/env python3
"""Predictions of `trireme plan --machine FILE` next to trainings that the calibration has not seen, on this machine.

usage: planner_cpu.py TRIREME MACHINE.toml [-n RANKS] [--trainings 40] [--seed 7]"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile


def run(words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\nfailed with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trireme")
    parser.add_argument("machine")
    parser.add_argument("-n", type=int, default=2, dest="ranks")
    parser.add_argument("--trainings", type=int, default=40)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    errors = []
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "empty.toml"
        config.write_text('[[data]]\nsources = [{ path = "synthetic" }]\n')
        for index in range(options.trainings):
            hidden = draw.choice([64, 128, 192, 256, 320, 448])
            axis = draw.choice(["dp", "dp", "tp", "pp", "zero3"])
            layers = draw.choice([2, 4, 6, 8])
            micro, accumulated = draw.choice([1, 2, 4]), 4 if axis == "pp" else draw.choice([1, 2])
            length, dp = draw.choice([64, 96, 128, 256]), options.ranks if axis in ("dp", "zero3") else 1
            model = {"model.model_type": "llama", "model.num_hidden_layers": layers, "model.hidden_size": hidden,
                     "model.num_attention_heads": hidden // 32, "model.num_key_value_heads": hidden // 32,
                     "model.intermediate_size": hidden * draw.choice([2, 3, 4]), "model.vocab_size": draw.choice([512, 2048, 6144]),
                     "model.max_position_embeddings": 1024, "training.seq_len": length, "training.micro_batch_size": micro}
            flags = [word for key, value in model.items() for word in (f"--{key}", value)]
            zero = 3 if axis == "zero3" else 1
            layout = {"dp": f"dp{options.ranks}", "tp": f"tp{options.ranks}", "pp": f"pp{options.ranks}", "zero3": f"dp{options.ranks}.zero3"}[axis]
            degrees = [word for name in ("dp", "tp", "pp")
                       for word in (f"--parallelism.{name}", options.ranks if name == axis or (name == "dp" and axis == "zero3") else 1)]
            run([options.trireme, "train", config, "-n", options.ranks, *flags, *degrees, "--parallelism.zero", zero,
                 "--training.grad_accum", accumulated, "--training.steps", options.steps + 3, "--run.dir", folder, "--run.name", f"run-{index}",
                 "--checkpoint.interval", 0, "--checkpoint.resume", "never", "--checkpoint.export_hf", "false", "--metrics.tensorboard", "false",
                 "--metrics.console", "quiet", "--metrics.interval", 1])
            lines = (pathlib.Path(folder) / f"run-{index}" / "metrics.jsonl").read_text().splitlines()
            measured = statistics.median(json.loads(line)["train_time_s"] for line in lines[3:])
            plan = json.loads(run([options.trireme, "plan", config, *flags, "--gpus", options.ranks, "--machine", options.machine,
                                   "--layout", layout, "--tokens-per-step", dp * micro * accumulated * length, "--json"]))["plans"][0]
            errors.append(plan["step_seconds"] / measured - 1)
            print(f"{layout:10} {layers} layers hidden {hidden:3} mlp {model['model.intermediate_size']:4} vocab {model['model.vocab_size']:4} "
                  f"{accumulated} x {micro} x {length}: {measured * 1e3:7.1f} ms, predicted {plan['step_seconds'] * 1e3:7.1f} ms, {100 * errors[-1]:+.1f} %", flush=True)
    sizes = sorted(abs(e) for e in errors)
    print(f"{len(errors)} trainings: median error {100 * statistics.median(sizes):.1f} %, bias {100 * statistics.median(errors):+.1f} %, "
          f"{100 * sum(e <= 0.1 for e in sizes) / len(sizes):.0f} % within 10 %, 90th percentile {100 * sizes[int(0.9 * len(sizes))]:.1f} %")


if __name__ == "__main__":
    main()
