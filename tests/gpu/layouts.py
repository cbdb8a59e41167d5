#!/usr/bin/env python3
"""Ranks over NCCL, all on one GPU: the losses of one rank with pipelines, context and expert parallelism.

usage: layouts.py TRIREME [one_stage] [graphs] [dropout] [pipeline] [context] [documents] [windows] [gemma2] [frozen] [experts] [capacity]      (a machine with a GPU; not part of `make test`)"""
import json
import os
import pathlib
import random
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
EXPERTS = """
num_local_experts = 4
num_experts_per_tok = 2
moe_intermediate_size = 96
router_aux_loss_coef = 0.01
"""


class Model:
    """What is added to [model], the layouts compared with one rank in fp64, and how many of them also in bf16."""

    def __init__(self, model, layouts, in_bf16, documents=False, options=""):
        # A model type of its own replaces the preset's.
        preset = 'preset = "tiny-llama"' if "model_type" not in model else 'vocab_size = 257\nhidden_size = 64\nnum_attention_heads = 4'
        self.config = CONFIG.replace('preset = "tiny-llama"', preset + model)
        if documents:
            self.config = self.config.replace('[[data]]\nsources = [ { path = "synthetic" } ]', '[[data]]\nattention = "document"\nsources = [ { path = "documents.ds" } ]').replace("fraction = 0.0001", "fraction = 0.01")
        self.layouts, self.in_bf16, self.options = layouts, layouts[:in_bf16], options  # options: of all runs, also the one on one rank


GPT2 = """
model_type = "gpt2"
hidden_act = "gelu_new"
attention_dropout = 0.1
resid_pdrop = 0.1
embd_pdrop = 0.1
"""
WINDOWS = """
model_type = "mistral"
num_key_value_heads = 2
intermediate_size = 96
sliding_window = 24
"""
GEMMA2 = """
model_type = "gemma2"
hidden_act = "gelu_pytorch_tanh"
num_key_value_heads = 2
intermediate_size = 96
sliding_window = 24
sliding_window_pattern = 2
query_pre_attn_scalar = 20
attn_logit_softcapping = 2.0
final_logit_softcapping = 3.0
"""
CONTEXT = [(2, "cp 2"), (4, "cp 4"), (2, "cp 2 cp_method ring-contiguous"), (2, "cp 2 cp_method all-gather"), (4, "cp 4 cp_method ulysses-ring")]
ONE_STAGE = [(2, "tp 2 sequence_parallel false"), (2, "tp 2 sequence_parallel true"), (2, "dp 2 zero 1"), (2, "dp 2 zero 3"), (4, "dp 2 tp 2 zero 3")]

MODELS = {
    "one_stage": Model("", ONE_STAGE, 5),
    "graphs": Model("", [(1, "cuda.graphs on"), (2, "tp 2 cuda.graphs on"), (2, "tp 2 sequence_parallel true cuda.graphs on"),
                         (4, "dp 2 tp 2 zero 1 cuda.graphs on")], 4),
    "dropout": Model(GPT2, ONE_STAGE[:3], 3),
    "pipeline": Model("", [(2, "pp 2"), (4, "pp 2 tp 2"), (4, "pp 2 dp 2 zero 3"), (2, "pp 2 pp_schedule zb1p"), (2, "pp 2 pp_schedule zbv"),
                           (2, "pp 2 pp_schedule interleaved-1f1b virtual_stages 2"), (2, "pp 2 pp_schedule dualpipe-v"), (2, "pp 2 pp_schedule afab"),
                           (4, "pp 4 zero 1"), (4, "pp 2 tp 2 pp_schedule zbv")], 3),
    "context": Model("", [(2, "cp 2"), (2, "cp 2 cp_method ring-contiguous"), (2, "cp 2 cp_method all-gather"), (2, "cp 2 cp_method ulysses"),
                          (4, "cp 2 tp 2"), (4, "cp 4 zero 3")], 4),
    "documents": Model("", CONTEXT, 4, documents=True),
    "windows": Model(WINDOWS, CONTEXT, 4, documents=True),
    "gemma2": Model(GEMMA2, [(2, "tp 2"), (2, "pp 2"), (2, "cp 2"), (4, "dp 2 tp 2 zero 3"), (1, "cuda.graphs on")], 5),
    "frozen": Model("", [(2, "dp 2 zero 3"), (2, "pp 2"), (4, "dp 2 tp 2 zero 1"), (1, "cuda.graphs on")], 4,
                    options="optimizer.frozen [\"embedding\",\"layers.0\",\"layers.2.mlp\"]"),
    "experts": Model(EXPERTS, [(2, "ep 2 dp 2"), (2, "ep 2 dp 2 zero 3"), (4, "ep 2 dp 2 tp 2"), (4, "ep 4 cp 2 dp 2")], 2),
    "capacity": Model(EXPERTS + "expert_capacity_factor = 1.25\n", [(2, "ep 2 dp 2"), (4, "ep 4 dp 4 zero 1")], 2),
}


def train(folder, name, dtype, ranks=1, layout=""):
    words = layout.split()
    options = [w for key, value in zip(words[::2], words[1::2]) for w in ("--" + (key if "." in key else f"parallelism.{key}"), value)]
    program = os.path.abspath(sys.argv[1])
    command = [program, "train", "c.toml", "-n", str(ranks), "--run.name", name, "--model.dtype", dtype, "--comm.share_gpu", "true", "--comm.timeout_s", "20",
               "--metrics.console", "quiet", *options]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"error: {dtype} {layout}: exit code {run.returncode}\n{run.stdout[-2000:]}\n{run.stderr[-4000:]}")
    rows = [json.loads(line) for line in (folder / f"runs/{name}/metrics.jsonl").read_text().splitlines()]
    return [value for row in rows for value in (row["loss"], row["grad_norm"])] + [rows[-1]["val/loss"]]


def compare(folder, name, model, dtype, bound, layouts):
    """How many layouts differ from one rank by more than the bound."""
    (folder / "c.toml").write_text(model.config)
    if "documents.ds" in model.config and not (folder / "documents.ds").exists():
        letters = random.Random(1)
        texts = ["".join(letters.choices("abcdefgh ", k=letters.randint(1, 60))) for _ in range(3000)]
        (folder / "documents.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        subprocess.run([os.path.abspath(sys.argv[1]), "data", "prepare", "documents.jsonl", "-t", "bytes", "-o", "documents", "-q"], cwd=folder, check=True)
    one = train(folder, f"{name}-one-{dtype}", dtype, layout=model.options)
    wrong = 0
    for i, (ranks, layout) in enumerate(layouts):
        many = train(folder, f"{name}-{dtype}-{i}", dtype, ranks, f"{layout} {model.options}")
        worst = max(abs(a - b) / abs(b) for a, b in zip(many, one))
        right = worst <= bound and len(many) == len(one)
        wrong += not right
        print(f"{name:8} {dtype:8} {layout:48} {ranks} ranks: losses, norms and validation within {worst:.1e} of one rank{'' if right else '   WRONG'}", flush=True)
    return wrong


def main():
    with tempfile.TemporaryDirectory() as place:
        failed = 0
        for name in sys.argv[2:] or MODELS:
            model = MODELS[name]
            failed += compare(pathlib.Path(place), name, model, "float64", 1e-11, model.layouts)
            failed += compare(pathlib.Path(place), name, model, "bfloat16", 2e-2, model.in_bf16)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
