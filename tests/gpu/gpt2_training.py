#!/usr/bin/env python3
"""GPT-2 124M in bf16 on one GPU: ours beside eager PyTorch, same weights and batches. By hand: CI has no GPU.

usage: gpt2_training.py TRIREME SAMPLES_TOOL [STEPS]

Prints the losses of the first 20 steps of both, of two NCCL ranks that share the GPU, and tokens per second of each; and the same losses
in float32. Exit code 1 if a loss in bf16 differs by more than 1 % from PyTorch's with the same recipe or by more than 0.1 % from its autocast,
in float32 by more than 0.1 %, if two ranks differ by more than 0.5 % from one, or if 200 steps do not learn."""
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import GPT2Config, GPT2LMHeadModel

ROOT = Path(__file__).resolve().parents[2]
BATCH, LENGTH, SEED, LR, WARMUP = 16, 1024, 7, 1e-4, 40  # larger ones make spikes, in which rounding decides
COMPARED = 20


def run(words, **how):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True, **how)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\nfailed with {result.returncode}:\n{result.stdout[-3000:]}{result.stderr[-3000:]}")
    return result.stdout


def ours(trireme, folder, name, steps, ranks, dtype="bfloat16"):
    config = folder / "run.toml"
    config.write_text(f"""
[run]
name = "{name}"
dir = "{folder}/runs"
seed = {SEED}
[model]
hf = "{folder}/model"
init = "hf:{folder}/model"
dtype = "{dtype}"
[[data]]
sources = [ {{ path = "{folder}/tokens.ds" }} ]
[training]
steps = {steps}
seq_len = {LENGTH}
global_batch_size = {BATCH}
micro_batch_size = {BATCH // ranks}
max_norm = 1.0
[optimizer]
lr = {LR}
betas = [0.9, 0.95]
weight_decay = 0.1
no_decay = ["norm", "bias"]
[lr_scheduler]
warmup_steps = {WARMUP}
decay = "constant"
[parallelism]
zero = 1
[comm]
share_gpu = {"true" if ranks > 1 else "false"}
""")
    out = run([trireme, "train", config, "-n", ranks])
    print(out[-1500:])
    return [json.loads(line) for line in (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()]


def theirs(folder, samples, steps, recipe):
    """float32; autocast: matrix products in bf16, everything else in float32; bfloat16: weights and activations in bf16, float32 master
    weights in the optimizer, which is our recipe."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel.from_pretrained(folder / "model", attn_implementation="sdpa", dtype=torch.float32).cuda()
    if recipe == "bfloat16":
        model = model.to(torch.bfloat16)
    named = list(model.named_parameters())
    masters = [p.detach().float().requires_grad_() for _, p in named] if recipe == "bfloat16" else [p for _, p in named]
    is_rest = ["ln_" in name or "bias" in name for name, _ in named]
    optimizer = torch.optim.AdamW([{"params": [m for m, rest in zip(masters, is_rest) if not rest], "weight_decay": 0.1},
                                   {"params": [m for m, rest in zip(masters, is_rest) if rest], "weight_decay": 0.0}],
                                  lr=LR, betas=(0.9, 0.95), eps=1e-8, fused=True)
    torch.cuda.reset_peak_memory_stats()
    losses, times = [], []
    for step in range(1, steps + 1):
        tokens = torch.tensor(samples[(step - 1) % COMPARED], device="cuda")
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=recipe == "autocast"):
            logits = model(tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        if recipe == "bfloat16":
            for (_, p), master in zip(named, masters):
                master.grad, p.grad = p.grad.float(), None
        for group in optimizer.param_groups:
            group["lr"] = LR * min(1, step / WARMUP)
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if recipe == "bfloat16":
            with torch.no_grad():
                for (_, p), master in zip(named, masters):
                    p.copy_(master)
        losses.append(loss.item())
        times.append(time.perf_counter() - begin)
    return losses, BATCH * LENGTH / statistics.median(times[5:]), torch.cuda.max_memory_allocated()


def main():
    trireme, samples_tool = (Path(word).resolve() for word in sys.argv[1:3])
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 200
    wrong = []
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        torch.manual_seed(1)
        GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).save_pretrained(folder / "model")
        sources = [str(path) for end in ("hpp", "cpp") for path in sorted((ROOT / "trireme").glob(f"*/*.{end}"))]
        run([trireme, "data", "prepare", *sources, ROOT / "docs", "--train-bpe", "4096", "-o", folder / "tokens", "-q"])
        samples = {}
        for line in run([samples_tool, folder / "tokens.ds", SEED, BATCH, LENGTH, COMPARED]).splitlines():
            sample = json.loads(line)
            samples.setdefault(sample["step"], []).append(sample["tokens"])
        batches = [samples[step] for step in range(1, COMPARED + 1)]

        one = ours(trireme, folder, "one", steps, 1)
        two = ours(trireme, folder, "two", COMPARED, 2)
        whole = ours(trireme, folder, "float32", COMPARED, 1, "float32")
        reference, _, _ = theirs(folder, batches, COMPARED, "bfloat16")
        reference32, _, _ = theirs(folder, batches, COMPARED, "float32")
        autocast, rate, memory = theirs(folder, batches, 60, "autocast")
    for step in range(COMPARED):
        a, b, c = one[step]["loss"], reference[step], two[step]["loss"]
        d, e = whole[step]["loss"], reference32[step]
        print(f"step {step + 1:3}  ours {a:.5f}  pytorch {b:.5f} ({a / b - 1:+.1e})  two ranks {c:.5f} ({c / a - 1:+.1e})  "
              f"float32 {d:.5f} pytorch {e:.5f} ({d / e - 1:+.1e})  autocast {autocast[step]:.5f}")
        if abs(d / e - 1) > 0.001:
            wrong.append(f"step {step + 1}: float32 {d} against PyTorch's {e}")
        if abs(a / b - 1) > 0.01:
            wrong.append(f"step {step + 1}: {a} against PyTorch's {b}")
        if abs(a / autocast[step] - 1) > 0.001:
            wrong.append(f"step {step + 1}: {a} against PyTorch's {autocast[step]} with autocast")
        if abs(c / a - 1) > 0.005:
            wrong.append(f"step {step + 1}: two ranks {c}, one {a}")
    mean = lambda records: sum(record["loss"] for record in records) / len(records)
    if not mean(one[-10:]) < 0.7 * mean(one[:10]):
        wrong.append(f"{steps} steps do not learn: {mean(one[:10]):.3f} -> {mean(one[-10:]):.3f}")
    ours_rate = BATCH * LENGTH / statistics.median(record["train_time_s"] for record in one[5:])
    print(f"loss {one[0]['loss']:.3f} -> {one[-1]['loss']:.3f} in {steps} steps")
    print(f"tokens/s: ours {ours_rate:,.0f}, eager PyTorch with autocast {rate:,.0f}, ratio {ours_rate / rate:.2f}; "
          f"peak {one[-1]['mem_peak_gib']:.1f} GiB, theirs {memory / 2**30:.1f}")
    for line in wrong:
        print("wrong:", line)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
