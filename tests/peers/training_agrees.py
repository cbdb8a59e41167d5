#!/usr/bin/env python3
"""20 steps of training in fp64: the losses and gradient norms of `trireme train` equal those of PyTorch's own data and pipeline parallelism.

A GPT-2 (tied) and a Llama (grouped keys, untied, some labels masked) of transformers are trained by DistributedDataParallel and by FSDP2
with two Gloo ranks, and by one process alone, the Llama also by torch.distributed.pipelining (1F1B and interleaved); then by `trireme train`, from
the same folders and token files, on several layouts, pipelines included.

usage: training_agrees.py TRIREME SAMPLES_TOOL      SAMPLES_TOOL: tests/peers/samples_tool.cpp, built
       training_agrees.py --references SAMPLES_TOOL      without ours
"""
import contextlib
import copy
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # a core a rank

import numpy
import torch
import torch.distributed
import torch.multiprocessing
import transformers
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.nn.parallel import DistributedDataParallel

from transformers_in_fp64 import random_model

BOUND = 1e-10             # ours and theirs, relative
REFERENCE_BOUND = 1e-12   # theirs among each other
RANKS, ACCUMULATE, MICRO_BATCH = 2, 2, 3
ROWS = RANKS * ACCUMULATE * MICRO_BATCH
STEPS, LENGTH, SEED = 20, 62, 11
VOCABULARY, TOKENS = 257, 14_000  # fewer than STEPS x ROWS x LENGTH: the end is in the second epoch
LR, MIN_LR, WARMUP, BETAS, EPS, DECAY = 3e-3, 4e-4, 5, (0.9, 0.95), 1e-8, 0.1


def check(ok, *what):
    if not ok:
        sys.exit("training_agrees: " + " ".join(str(w) for w in what))


# --- what is trained ---------------------------------------------------------------------------------------------------------------
def configs():
    """name: config, max_norm (some steps are clipped and some are not), whether labels are masked"""
    gpt2 = transformers.GPT2Config(n_embd=60, n_head=4, n_inner=122, n_layer=2, vocab_size=VOCABULARY, n_positions=97, resid_pdrop=0.0,
                                   embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    llama = transformers.LlamaConfig(hidden_size=66, intermediate_size=102, num_hidden_layers=4, num_attention_heads=6, head_dim=18,
                                     num_key_value_heads=2, vocab_size=VOCABULARY, max_position_embeddings=128, rms_norm_eps=1e-5,
                                     tie_word_embeddings=False, use_cache=False)
    return {"gpt2_tied": (gpt2, 1.0, False), "llama_gqa": (llama, 1.48, True)}


def write_tokens(path, masked):
    """datatrove's format. Nine times of ten a token has the same successor; masks are long runs, so microbatches count differently."""
    dice = numpy.random.default_rng(5)
    successor = dice.permutation(VOCABULARY)
    tokens = dice.integers(VOCABULARY, size=TOKENS)
    for i in range(1, TOKENS):
        if dice.random() < 0.9:
            tokens[i] = successor[tokens[i - 1]]
    tokens.astype("<u2").tofile(path)
    Path(f"{path}.index").write_bytes(struct.pack("<2Q", TOKENS // 3, TOKENS))
    Path(f"{path}.metadata").write_text(f"made_up|2\n{TOKENS}\n14.0 kT")
    if masked:
        numpy.repeat(dice.random(TOKENS // 50) < 0.6, 50).tofile(f"{path}.loss")


def read_samples(tool, tokens):
    """inputs, labels (-100: masked), each [step, row, LENGTH]"""
    said = subprocess.run([tool, tokens, str(SEED), str(ROWS), str(LENGTH), str(STEPS)], check=True, capture_output=True, text=True)
    samples = [json.loads(line) for line in said.stdout.splitlines()]
    check([(s["step"], s["row"]) for s in samples] == [(i + 1, r) for i in range(STEPS) for r in range(ROWS)], "samples in another order")
    numbers = torch.tensor([s["tokens"] for s in samples]).view(STEPS, ROWS, LENGTH + 1)
    labels = numbers[..., 1:].clone()
    if "mask" in samples[0]:
        labels[torch.tensor([s["mask"] for s in samples]).view(STEPS, ROWS, LENGTH + 1)[..., 1:] == 0] = -100
    return numbers[..., :-1].contiguous(), labels


# --- how PyTorch trains it ---------------------------------------------------------------------------------------------------------
def learning_rate(step):
    if step <= WARMUP:
        return LR * step / WARMUP
    return MIN_LR + (LR - MIN_LR) * (1 + math.cos(math.pi * (step - 1 - WARMUP) / (STEPS - WARMUP))) / 2


def is_decayed(name):
    """In our names, those of norms have "norm" in them."""
    return not any(part in name for part in ("norm", "ln_", "bias"))


def train(case, kind="plain", steps=STEPS, lr_factor=1.0, decay_all=False, mean_of_means=False):
    """[(loss, norm before clipping)] of the first `steps`. kind: plain (one process), ddp or fsdp2 (this is one of RANKS)."""
    model, max_norm, (inputs, labels) = copy.deepcopy(case["model"]), case["max_norm"], case["samples"]
    rank, ranks = (torch.distributed.get_rank(), RANKS) if kind != "plain" else (0, 1)
    wrapped = model
    if kind == "ddp":
        wrapped = DistributedDataParallel(model)
    elif kind == "fsdp2":
        for block in model.transformer.h if hasattr(model, "transformer") else model.model.layers:
            fully_shard(block)
        fully_shard(model)
    groups = [{"params": [p for n, p in model.named_parameters() if (decay_all or is_decayed(n)) == decayed],
               "weight_decay": DECAY if decayed else 0.0} for decayed in (True, False)]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], betas=BETAS, eps=EPS)
    microbatches = ROWS // MICRO_BATCH // ranks
    record = []
    for step in range(steps):
        valid = (labels[step] != -100).sum()  # of the global batch
        total = torch.zeros(())
        for m in range(microbatches):
            first = (m * ranks + rank) * MICRO_BATCH
            rows = slice(first, first + MICRO_BATCH)
            with wrapped.no_sync() if kind == "ddp" and m + 1 < microbatches else contextlib.nullcontext():
                logits = wrapped(input_ids=inputs[step, rows]).logits
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[step, rows].flatten(), reduction="sum")
                count = valid if not mean_of_means else (labels[step, rows] != -100).sum() * (ROWS // MICRO_BATCH)
                (loss / count * ranks).backward()  # DDP and FSDP2 take the mean over ranks
            total += loss.detach() / count
        if ranks > 1:
            torch.distributed.all_reduce(total)
        check(total.dtype == torch.float64 and logits.dtype == torch.float64, kind, "did not compute in fp64")
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        norm = norm.full_tensor() if kind == "fsdp2" else norm
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step + 1) * lr_factor
        optimizer.step()
        optimizer.zero_grad()
        record.append((total.item(), norm.item()))
    return record


class PartOfLlama(torch.nn.Module):
    """A contiguous part of its layers; the first has the embedding, the last the head."""
    def __init__(self, whole, part, parts):
        super().__init__()
        count = len(whole.model.layers) // parts
        self.embedding = whole.model.embed_tokens if part == 0 else None
        self.rotary = whole.model.rotary_emb
        self.layers = whole.model.layers[part * count:(part + 1) * count]
        self.head = torch.nn.Sequential(whole.model.norm, whole.lm_head) if part == parts - 1 else None

    def forward(self, x):
        x = self.embedding(x) if self.embedding is not None else x
        rotation = self.rotary(x, torch.arange(LENGTH).unsqueeze(0))
        mask = torch.full((1, 1, LENGTH, LENGTH), -math.inf).triu(1)
        for layer in self.layers:
            x = layer(x, attention_mask=mask, position_embeddings=rotation)
            x = x[0] if isinstance(x, tuple) else x
        return self.head(x) if self.head is not None else x


def train_pipelined(case, kind):
    """As train(), by torch.distributed.pipelining."""
    model, (inputs, labels) = copy.deepcopy(case["model"]), case["samples"]
    rank, parts = torch.distributed.get_rank(), RANKS * (2 if kind == "interleaved" else 1)
    own = list(range(rank, parts, RANKS))
    stages = [PipelineStage(PartOfLlama(model, part, parts), part, parts, torch.device("cpu")) for part in own]
    named = [(n, p) for stage in stages for n, p in stage.submod.named_parameters()]
    optimizer = torch.optim.AdamW([{"params": [p for n, p in named if (p.dim() > 1) == decayed], "weight_decay": DECAY if decayed else 0.0}
                                   for decayed in (True, False)], betas=BETAS, eps=EPS)
    valid = 0

    def loss_of(logits, targets):
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / valid

    options = {"n_microbatches": ROWS // MICRO_BATCH, "loss_fn": loss_of, "scale_grads": False}
    schedule = ScheduleInterleaved1F1B(stages, **options) if kind == "interleaved" else Schedule1F1B(stages[0], **options)
    record = []
    for step in range(STEPS):
        valid, losses = (labels[step] != -100).sum(), []
        schedule.step(*([inputs[step]] if rank == 0 else []), **({"target": labels[step], "losses": losses} if rank == RANKS - 1 else {}))
        sums = torch.stack([sum(losses, torch.zeros(())).detach(), sum(p.grad.square().sum() for _, p in named)])
        torch.distributed.all_reduce(sums)
        norm = sums[1].sqrt()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step + 1)
            for p in group["params"]:
                p.grad.mul_((case["max_norm"] / (norm + 1e-6)).clamp_max(1.0))
        optimizer.step()
        optimizer.zero_grad()
        record.append((sums[0].item(), norm.item()))
    return record


def train_as_rank(rank, cases, scratch):
    torch.distributed.init_process_group("gloo", init_method=f"file://{scratch}/meeting", rank=rank, world_size=RANKS)
    records = {name: {kind: train(case, kind) for kind in ("ddp", "fsdp2")} for name, case in cases.items()}
    records["llama_gqa"] |= {kind: train_pipelined(cases["llama_gqa"], kind) for kind in ("1f1b", "interleaved")}
    if rank == 0:
        (scratch / "records.json").write_text(json.dumps(records))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def train_references(cases, scratch):
    """name: {kind: record}"""
    # Forked, which saves seconds of imports: nothing has started a thread of autograd yet.
    ranks = torch.multiprocessing.start_processes(train_as_rank, (cases, scratch), nprocs=RANKS, join=False, daemon=True, start_method="fork")
    plain = {name: train(case) for name, case in cases.items()}
    for name, case in cases.items():
        check_the_judge(name, case, plain[name])
    while not ranks.join():
        pass
    records = json.loads((scratch / "records.json").read_text())
    return {name: {"plain": plain[name], **records[name]} for name in cases}


# --- ours --------------------------------------------------------------------------------------------------------------------------
# name: settings of [parallelism], micro_batch_size, its reference (if that has the model). The batches are the same, so the layout must not matter.
LAYOUTS = {
    "dp2_zero0": ({"dp": 2, "zero": 0}, MICRO_BATCH, "ddp"),
    "dp2_zero3": ({"dp": 2, "zero": 3, "persistence_threshold": 0, "max_reuse_distance": 0}, MICRO_BATCH, "fsdp2"),
    "tp2": ({"dp": 1, "tp": 2, "zero": 0}, 4, "ddp"),
    "pp2_zero1": ({"dp": 1, "pp": 2, "zero": 1}, MICRO_BATCH, "ddp"),
    "pp2": ({"dp": 1, "pp": 2, "zero": 0}, MICRO_BATCH, "1f1b"),
    "pp2_interleaved": ({"dp": 1, "pp": 2, "pp_schedule": "interleaved-1f1b", "virtual_stages": 2, "zero": 0}, MICRO_BATCH, "interleaved"),
}


def config_text(run, folder, tokens, parallelism, micro_batch, max_norm):
    sections = {
        "run": {"name": run.name, "dir": str(run.parent), "seed": SEED},
        "model": {"hf": str(folder), "init": f"hf:{folder}", "dtype": "float64"},
        "training": {"steps": STEPS, "seq_len": LENGTH, "micro_batch_size": micro_batch, "global_batch_size": ROWS,
                     "max_norm": max_norm},
        "optimizer": {"name": "adamw", "lr": LR, "betas": list(BETAS), "eps": EPS, "weight_decay": DECAY, "no_decay": ["norm", "bias"]},
        "lr_scheduler": {"warmup_steps": WARMUP, "decay": "cosine", "min_lr": MIN_LR},
        "parallelism": parallelism,
        "metrics": {"console": "quiet", "tensorboard": False},
    }
    lines = []
    for section, settings in sections.items():
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
    return "\n".join([*lines, "[[data]]", 'attention = "sample"', 'positions = "sample"', 'packing = "cut"', f"sources = [ {{ path = {json.dumps(str(tokens))} }} ]", ""])


def train_ours(program, run, text):
    """[(loss, norm)] from metrics.jsonl"""
    run.parent.mkdir(exist_ok=True)
    config = run.with_suffix(".toml")
    config.write_text(text)
    done = subprocess.run([program, "train", config, "-n", str(RANKS)], capture_output=True, text=True, timeout=300)
    check(done.returncode == 0, f"`trireme train` of {run.name} ended with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    check([s["step"] for s in steps] == list(range(1, STEPS + 1)), run.name, "has the steps", [s["step"] for s in steps])
    return [(float.fromhex(s["loss_hex"]), float.fromhex(s["grad_norm_hex"])) for s in steps]


# --- the judgement -----------------------------------------------------------------------------------------------------------------
def difference(record, reference):
    """The largest relative difference, and where it is."""
    found = [(abs(a - b) / abs(b) if math.isfinite(a) else math.inf, f"{what} of step {step}: {a!r}, wanted {b!r}")
             for step, (mine, wanted) in enumerate(zip(record, reference, strict=True), 1)
             for what, a, b in zip(("loss", "norm"), mine, wanted)]
    return max(found)


def check_references(name, case, records):
    plain = records["plain"]
    losses, norms = zip(*plain)
    check(max(losses[-3:]) < min(losses[:3]) - 0.2, name, "does not learn:", losses)
    clipped = sum(norm > case["max_norm"] for norm in norms)
    check(3 <= clipped <= STEPS - 3, name, "is clipped in", clipped, "of", STEPS, "steps: norms", norms)
    worst = max(difference(record, plain) for record in records.values())
    check(worst[0] <= REFERENCE_BOUND, name, "trained by PyTorch on two ranks and on one differs:", *worst)
    print(f"{name}: loss {losses[0]:.3f} to {losses[-1]:.3f}, {clipped} of {STEPS} steps clipped; {', '.join(records)} differ by "
          f"{worst[0]:.1e}", flush=True)


def check_the_judge(name, case, right):
    """Mistakes that a trainer could make must be seen."""
    mistakes = {"a learning rate wrong by a millionth": {"lr_factor": 1 + 1e-6}, "decay of norms and biases": {"decay_all": True}}
    if case["masked"]:
        mistakes["the mean of the microbatches' means"] = {"mean_of_means": True}
    for mistake, how in mistakes.items():
        seen = difference(train(case, steps=6, **how), right[:6])[0]
        check(seen > 10 * BOUND, name, "with", mistake, "is not told apart:", seen)
        print(f"{name}: {mistake} shows as {seen:.1e}", flush=True)


def main():
    program, tool = sys.argv[1:]
    torch.set_num_threads(1)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        scratch, cases = Path(folder), {}
        for number, (name, (config, max_norm, masked)) in enumerate(configs().items()):
            model = random_model(config, torch.Generator().manual_seed(number), 0.1)
            model.save_pretrained(scratch / name)
            tokens = scratch / f"{name}.ds"
            write_tokens(tokens, masked)
            cases[name] = {"model": model, "max_norm": max_norm, "masked": masked, "tokens": tokens, "samples": read_samples(tool, tokens)}
        records = train_references(cases, scratch)
        for name, case in cases.items():
            check_references(name, case, records[name])
        print(f"references: {time.perf_counter() - began:.1f} s", flush=True)
        if program == "--references":
            return
        worst, runs = (0.0, ""), 0
        for name, case in cases.items():
            for layout, (parallelism, micro_batch, reference) in LAYOUTS.items():
                if reference not in records[name]:
                    continue
                run = scratch / "runs" / f"{name}_{layout}"
                text = config_text(run, scratch / name, case["tokens"], parallelism, micro_batch, case["max_norm"])
                found = difference(train_ours(program, run, text), records[name][reference])
                check(found[0] <= BOUND, f"{name} on {layout} compared with {reference} differs by {found[0]:.1e}, in", found[1])
                worst, runs = max(worst, found), runs + 1
        print(f"torch {torch.__version__}: {len(cases)} models, {runs} runs, {STEPS} steps; largest relative difference of "
              f"a loss or a norm: {worst[0]:.1e}; {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
