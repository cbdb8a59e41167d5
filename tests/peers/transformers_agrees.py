#!/usr/bin/env python3
"""Small random models made by transformers, in fp64: logits, loss and every gradient equal ours on every layout.

usage: transformers_agrees.py PROGRAM      PROGRAM: tests/parity/peer_program.cpp, built
"""
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch
import transformers

from transformers_in_fp64 import random_model

BOUND = 1e-10
VOCABULARY, LAYERS, SAMPLES, LENGTH = 257, 2, 4, 12


def gpt2(heads, **more):
    return transformers.GPT2Config(n_embd=24 * heads, n_head=heads, n_inner=96, n_layer=LAYERS, vocab_size=VOCABULARY, n_positions=32,
                                   resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **more)


def llama_like(kind, heads, kv_heads, **more):
    sizes = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS, num_attention_heads=heads, head_dim=24,
                 num_key_value_heads=kv_heads, vocab_size=VOCABULARY, max_position_embeddings=64, rms_norm_eps=1e-5)
    return kind(**{key: value for key, value in (sizes | more).items() if key != "head_dim" or value})


LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=16)
YARN_ROPE = dict(rope_type="yarn", rope_theta=500.0, factor=4.0, original_max_position_embeddings=16, beta_fast=4.0)
LLAMA, MISTRAL = transformers.LlamaConfig, transformers.MistralConfig
QWEN2, QWEN3 = transformers.Qwen2Config, transformers.Qwen3Config
MIXTRAL, QWEN3_MOE, GEMMA2 = transformers.MixtralConfig, transformers.Qwen3MoeConfig, transformers.Gemma2Config
POWERS, THREE = (1, 2, 4), (1, 3)  # ranks
EXPERTS = dict(output_router_logits=True, router_aux_loss_coef=0.3)  # with the auxiliary loss

# name: config, ranks of tp; models with experts also with ep
MODELS = {
    "gpt2_tied": (gpt2(4), POWERS),
    "gpt2_untied_8": (gpt2(8, tie_word_embeddings=False), POWERS),
    "gpt2_erf_3": (gpt2(3, activation_function="gelu"), THREE),
    "llama_gqa": (llama_like(LLAMA, 4, 2), POWERS),
    "llama_8_scaled_rope_bias_tied": (llama_like(LLAMA, 8, 2, attention_bias=True, tie_word_embeddings=True,
                                                 rope_parameters=LLAMA3_ROPE), POWERS),
    "llama_linear_rope": (llama_like(LLAMA, 2, 1, rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=4.0)), (1, 2)),
    "llama_dynamic_rope": (llama_like(LLAMA, 2, 1, max_position_embeddings=8,  # shorter than the samples
                                      rope_parameters=dict(rope_type="dynamic", rope_theta=1e4, factor=2.0)), (1, 2)),
    "qwen2_yarn_rope": (llama_like(QWEN2, 2, 1, head_dim=None, rope_parameters=YARN_ROPE), (1, 2)),
    "llama_3": (llama_like(LLAMA, 3, 3, head_dim=None, hidden_size=72), THREE),
    "mistral_3": (llama_like(MISTRAL, 3, 1, sliding_window=None), THREE),
    "qwen2_3": (llama_like(QWEN2, 3, 3, head_dim=None, hidden_size=72), THREE),
    "qwen3_3_tied": (llama_like(QWEN3, 3, 3, tie_word_embeddings=True), THREE),
    "mistral_window": (llama_like(MISTRAL, 4, 2, sliding_window=5), POWERS),
    "mistral_8": (llama_like(MISTRAL, 8, 4, sliding_window=None, tie_word_embeddings=True), POWERS),
    "qwen2_tied": (llama_like(QWEN2, 4, 4, head_dim=None, hidden_size=96, tie_word_embeddings=True), POWERS),
    "qwen2_mqa_8": (llama_like(QWEN2, 8, 1, head_dim=None, hidden_size=192), POWERS),
    "qwen3": (llama_like(QWEN3, 4, 2), POWERS),
    "qwen3_8_tied": (llama_like(QWEN3, 8, 4, tie_word_embeddings=True), POWERS),
    "mixtral": (llama_like(MIXTRAL, 4, 2, num_local_experts=8, num_experts_per_tok=2, sliding_window=None, **EXPERTS), (1, 2)),
    "mixtral_window": (llama_like(MIXTRAL, 4, 2, num_local_experts=4, num_experts_per_tok=1, sliding_window=5, **EXPERTS), (1, 2)),
    "qwen3_moe": (llama_like(QWEN3_MOE, 4, 2, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=40, norm_topk_prob=True,
                             **EXPERTS), (1, 2)),
    "qwen3_moe_tied": (llama_like(QWEN3_MOE, 4, 2, num_experts=4, num_experts_per_tok=4, moe_intermediate_size=24,
                                  norm_topk_prob=False, tie_word_embeddings=True, **EXPERTS), (1, 2)),
    # Caps so small that they bend every score and logit.
    "gemma2": (llama_like(GEMMA2, 4, 2, sliding_window=5, query_pre_attn_scalar=20, attn_logit_softcapping=1.5,
                          final_logit_softcapping=2.0, num_hidden_layers=3), POWERS),
    "gemma2_untied": (llama_like(GEMMA2, 3, 1, hidden_size=72, sliding_window=4, attn_logit_softcapping=None, final_logit_softcapping=None,
                                 query_pre_attn_scalar=24, tie_word_embeddings=False, attention_bias=True), THREE),
}


def check(ok, *what):
    if not ok:
        sys.exit("transformers_agrees: " + " ".join(str(w) for w in what))


def as_saved(family, name, gradient):
    """A parameter of a module by the names in its files, where experts have tensors of their own."""
    if family == "mixtral":
        name = name.replace(".mlp.", ".block_sparse_moe.")
    gate, up, down = ("w1", "w3", "w2") if family == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    if name.endswith("experts.gate_up_proj"):
        stem = name.removesuffix("gate_up_proj")
        parts = {f"{stem}{e}.{what}.weight": half for e, both in enumerate(gradient)
                 for what, half in zip((gate, up), both.chunk(2))}
    elif name.endswith("experts.down_proj"):
        parts = {f"{name.removesuffix('down_proj')}{e}.{down}.weight": one for e, one in enumerate(gradient)}
    else:
        parts = {name: gradient}
    return name, parts


def make(folder, config, sharded):
    """The model's folder, and what transformers computes with it: logits, loss, gradients by name."""
    generator = torch.Generator().manual_seed(len(folder.name))
    model = random_model(config, generator, 0.2)  # larger than usual
    model.save_pretrained(folder, max_shard_size="200KB" if sharded else "5GB")
    check((folder / "model.safetensors.index.json").exists() == sharded, folder.name, "was not saved in shards as it should be")
    ids = torch.randint(VOCABULARY, (SAMPLES, LENGTH), generator=generator)
    labels = ids.clone()
    labels[0, 3:9] = -100  # other counts in other samples
    output = model(input_ids=ids, labels=labels)
    output.loss.backward()
    check(output.loss.dtype == torch.float64 and output.logits.dtype == torch.float64, folder.name, "was not computed in fp64")
    targets = torch.full_like(labels, -100)
    targets[:, :-1] = labels[:, 1:]
    (folder / "batch.txt").write_text(f"{SAMPLES} {LENGTH}\n" + " ".join(map(str, ids.flatten().tolist())) + "\n" +
                                      " ".join(map(str, targets.flatten().tolist())) + "\n")
    gradients = dict(as_saved(config.model_type, name, parameter.grad) for name, parameter in model.named_parameters())
    gradients = {name: gradient for names in gradients.values() for name, gradient in names.items()}
    return output.logits.detach(), output.loss.item(), gradients


def read(file, like):
    numbers = numpy.fromfile(file, dtype=numpy.float64)
    check(numbers.size == like.numel(), file, "has", numbers.size, "numbers, wanted", like.numel())
    return torch.from_numpy(numbers).view(like.shape)


def compare(folder, ranks, sequence_parallel, experts, wanted):
    """The largest difference of each kind, relative; stops at the first beyond the bound."""
    logits, loss, gradients = wanted
    out = folder / f"out_{ranks}_{sequence_parallel}_{experts}"
    where = f"{folder.name}, tp {ranks}, sequence parallel {sequence_parallel}, ep {experts}:"
    total = torch.sqrt(sum(g.square().sum() for g in gradients.values()))
    worst = {"logits": ((read(out / "logits.f64", logits) - logits).norm() / logits.norm()).item(),
             "loss": abs(float((out / "loss.txt").read_text()) - loss) / loss, "gradients": 0.0}
    for kind in ("logits", "loss"):
        check(worst[kind] <= BOUND, where, kind, "differ by", worst[kind])
    files = {file.name.removeprefix("grad_").removesuffix(".f64") for file in out.glob("grad_*.f64")}
    check(files == set(gradients), where, "gradients of other weights:", files ^ set(gradients))
    for name, gradient in gradients.items():
        difference = (read(out / f"grad_{name}.f64", gradient) - gradient).norm()
        relative = (difference / max(gradient.norm(), 1e-6 * total)).item()
        check(relative <= BOUND, where, "the gradient of", name, "differs by", relative)
        rolled = (read(out / f"grad_{name}.f64", gradient) - gradient.flatten().roll(1).view(gradient.shape)).norm()
        check(rolled > 1e-3 * gradient.norm() or gradient.norm() == 0, where,  # an expert without a token
              "the gradient of", name, "is found equal to another one")
        worst["gradients"] = max(worst["gradients"], relative)
    return worst, len(gradients)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as scratch:
        wanted, cells = {}, []
        for number, (name, (config, ranks)) in enumerate(MODELS.items()):
            folder = Path(scratch) / name
            wanted[name] = make(folder, config, sharded=number % 2 == 1)
            has_experts = hasattr(config, "num_experts_per_tok")
            # dp = ep; up to 8 ranks, with each way of tp.
            cells += [(folder, tp, sp, ep) for tp, sp, ep in itertools.product(ranks, (0, 1), (1, 2, 4) if has_experts else (1,))
                      if not (has_experts and tp == 1 and sp == 1)]
        done = subprocess.run([program, *(":".join(map(str, cell)) for cell in cells)], timeout=250)
        check(done.returncode == 0, program, "ended with exit code", done.returncode)
        worst, gradients = {"logits": 0.0, "loss": 0.0, "gradients": 0.0}, 0
        for folder, *cell in cells:
            found, count = compare(folder, *cell, wanted[folder.name])
            gradients += count
            worst = {kind: max(worst[kind], found[kind]) for kind in worst}
        print(f"transformers {transformers.__version__}: {len(MODELS)} models, {len(cells)} layouts, {gradients} gradients;",
              "largest relative difference:", json.dumps({k: float(f"{v:.1e}") for k, v in worst.items()}))


if __name__ == "__main__":
    main()
