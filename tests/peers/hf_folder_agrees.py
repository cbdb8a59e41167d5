#!/usr/bin/env python3
"""Folders that we write, loaded by transformers and by safetensors: every tensor bit by bit, the config, the logits.

usage: hf_folder_agrees.py PROGRAM      PROGRAM: tests/peers/hf_folder_tool.cpp, built
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import safetensors
import safetensors.torch
import torch
import transformers

torch.set_num_threads(1)  # the models are small, and other tests run beside this one
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

VOCABULARY, LAYERS, LENGTH = 97, 2, 24
SAFETENSORS = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}
BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float64: torch.int64}
# Not of the model: where it was, and who wrote it.
OTHER_KEYS = {"_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype"}


def check(ok, *what):
    if not ok:
        sys.exit("hf_folder_agrees: " + " ".join(str(w) for w in what))


def gpt2(heads, **more):
    return transformers.GPT2Config(n_embd=16 * heads, n_head=heads, n_inner=80, n_layer=LAYERS, vocab_size=VOCABULARY, n_positions=32,
                                   n_ctx=32, bos_token_id=1, eos_token_id=2, **more)


def llama_like(kind, **more):
    sizes = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS, num_attention_heads=4, head_dim=24, num_key_value_heads=2,
                 vocab_size=VOCABULARY, max_position_embeddings=64, rms_norm_eps=1e-3, bos_token_id=1, eos_token_id=2)
    return kind(**(sizes | more))


def rope(theta, **more):
    return dict(rope_theta=theta, **(more or dict(rope_type="default")))


LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
LLAMA, MISTRAL = transformers.LlamaConfig, transformers.MistralConfig
QWEN2, QWEN3 = transformers.Qwen2Config, transformers.Qwen3Config

# The numbers once in the words of transformers and once in ours: name -> config, flags beside the common ones, dtype.
GPT2_FLAGS = {"intermediate_size": 80, "max_position_embeddings": 32, "hidden_act": "gelu_new", "norm_eps": 1e-5}
LLAMA_FLAGS = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 24, "num_key_value_heads": 2,
               "max_position_embeddings": 64, "norm_eps": 1e-3}
LLAMA3_FLAGS = {"rope_scaling." + key: value for key, value in LLAMA3.items()}
MODELS = {
    "gpt2": (gpt2(4), {**GPT2_FLAGS, "hidden_size": 64, "num_attention_heads": 4, "tie_word_embeddings": True, "embd_pdrop": 0.1,
                       "resid_pdrop": 0.1, "attention_dropout": 0.1}, torch.float32),
    "gpt2_untied": (gpt2(3, tie_word_embeddings=False, activation_function="gelu", layer_norm_epsilon=1e-2, embd_pdrop=0.0, resid_pdrop=0.2,
                         attn_pdrop=0.3),
                    {**GPT2_FLAGS, "hidden_size": 48, "num_attention_heads": 3, "hidden_act": "gelu", "norm_eps": 1e-2, "resid_pdrop": 0.2,
                     "attention_dropout": 0.3}, torch.float16),
    "llama": (llama_like(LLAMA, rope_parameters=rope(100.0)), {"rope_theta": 100}, torch.bfloat16),
    "llama_scaled_bias_tied": (llama_like(LLAMA, rope_parameters=rope(500.0, **LLAMA3), attention_bias=True, tie_word_embeddings=True),
                               {**LLAMA3_FLAGS, "rope_theta": 500, "attention_bias": True, "tie_word_embeddings": True}, torch.float64),
    "llama_linear": (llama_like(LLAMA, rope_parameters=rope(10000.0, rope_type="linear", factor=3.0)),
                     {"rope_scaling.rope_type": "linear", "rope_scaling.factor": 3}, torch.float32),
    "mistral": (llama_like(MISTRAL, sliding_window=None, rope_parameters=rope(10000.0)), {}, torch.bfloat16),
    "mistral_window": (llama_like(MISTRAL, sliding_window=5, rope_parameters=rope(10000.0)), {"sliding_window": 5}, torch.float32),
    "qwen2": (llama_like(QWEN2, sliding_window=None, max_window_layers=LAYERS, rope_parameters=rope(1e6)), {"rope_theta": 1e6},
              torch.bfloat16),
    "qwen2_window_tied": (llama_like(QWEN2, sliding_window=5, use_sliding_window=True, max_window_layers=0, tie_word_embeddings=True,
                                     rope_parameters=rope(10000.0)), {"sliding_window": 5, "tie_word_embeddings": True}, torch.float32),
    "qwen3": (llama_like(QWEN3, sliding_window=None, max_window_layers=LAYERS, rope_parameters=rope(10000.0)), {"qk_norm": True},
              torch.bfloat16),
    "qwen3_window_bias_tied": (llama_like(QWEN3, sliding_window=5, use_sliding_window=True, max_window_layers=0, attention_bias=True,
                                          tie_word_embeddings=True, rope_parameters=rope(10000.0)),
                               {"qk_norm": True, "sliding_window": 5, "attention_bias": True, "tie_word_embeddings": True}, torch.float32),
}


def flags_of(config, flags):
    common = {"model_type": config.model_type, "num_hidden_layers": LAYERS, "vocab_size": VOCABULARY}
    rest = flags if config.model_type == "gpt2" else {**LLAMA_FLAGS, **flags}
    text = lambda value: str(value).lower() if isinstance(value, bool) else str(value)
    return [f"--model.{key}={text(value)}" for key, value in {**common, **rest}.items()]


def make(name, config, dtype):
    """A model of random weights, and those that a file has: the head is not among them where it is the embedding."""
    generator = torch.Generator().manual_seed(len(name))
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + (1 if parameter.dim() == 1 else 0))
    return model, {key: value.detach() for key, value in model.named_parameters()}  # a tied one only once


def write_weights(path, weights):
    with open(path, "wb") as file:
        for tensor in weights.values():
            file.write(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    Path(f"{path}.txt").write_text("".join("\t".join([key, SAFETENSORS[tensor.dtype], *map(str, tensor.shape)]) + "\n"
                                           for key, tensor in weights.items()))


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.view(BITS[a.dtype]), b.view(BITS[b.dtype]))


def check_files(folder, weights, sharded):
    """With the package alone: every tensor is in one file, the one that the index names."""
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safetensors.safe_open(file, "pt") as opened:
            check(opened.metadata() == {"format": "pt"}, file, "has the metadata", opened.metadata())
        for key, tensor in safetensors.torch.load_file(file).items():
            check(key not in found, folder.name, key, "is in two files")
            found[key] = file.name
            check(same_bits(tensor, weights[key]), folder.name, key, "differs in the file")
    check(set(found) == set(weights), folder.name, "has other tensors:", set(found) ^ set(weights))
    index = folder / "model.safetensors.index.json"
    check(index.exists() == sharded and (len(set(found.values())) > 1) == sharded, folder.name, "is not sharded as it should be")
    if sharded:
        read = json.loads(index.read_text())
        check(read["weight_map"] == found, folder.name, "has another index")
        check(read["metadata"]["total_size"] == sum(t.nbytes for t in weights.values()), folder.name, read["metadata"])
    return len(set(found.values()))


def check_loaded(folder, config, model, weights, dtype):
    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    check(not any(report.values()), folder.name, "was loaded with", report)
    check(type(loaded) is type(model) and loaded.dtype == dtype, folder.name, "is a", type(loaded), "of", loaded.dtype)
    ours, theirs = ({k: v for k, v in c.to_dict().items() if k not in OTHER_KEYS} for c in (loaded.config, config))
    differ = {k: (ours.get(k), theirs.get(k)) for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k)}
    check(not differ, folder.name, "config (ours, theirs):", differ)
    read = dict(loaded.named_parameters())
    check(read.keys() == weights.keys(), folder.name, "other parameters:", read.keys() ^ weights.keys())
    for key, tensor in weights.items():
        check(same_bits(read[key].detach(), tensor), folder.name, key, "differs in the loaded model")
    ids = torch.arange(LENGTH).view(1, -1) * 7 % VOCABULARY
    with torch.no_grad():  # in fp32: not every processor multiplies bf16
        check(torch.equal(*(m.eval().float()(input_ids=ids).logits for m in (loaded, model))), folder.name, "computes other logits")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        made, requests = {}, []
        for number, (name, (config, flags, dtype)) in enumerate(MODELS.items()):
            folder, weights_file = Path(scratch) / name, Path(scratch) / f"{name}.weights"
            made[name] = make(name, config, dtype)
            write_weights(weights_file, made[name][1])
            limit = 30_000 if number % 2 == 1 else 5_000_000_000
            requests.append("\t".join([str(folder), str(limit), str(dtype).removeprefix("torch."), str(weights_file), *flags_of(config, flags)]))
        run = subprocess.run([sys.argv[1]], input="".join(f"{r}\n" for r in requests), capture_output=True, text=True, timeout=100)
        check(run.returncode == 0, run.stderr)
        files = 0
        for number, (name, (config, _, dtype)) in enumerate(MODELS.items()):
            model, weights = made[name]
            files += check_files(Path(scratch) / name, weights, sharded=number % 2 == 1)
            check_loaded(Path(scratch) / name, config, model, weights, dtype)
        tensors = sum(len(weights) for _, weights in made.values())
        print(f"transformers {transformers.__version__}, safetensors {safetensors.__version__}: {len(MODELS)} models, {files} files,",
              f"{tensors} tensors are alike bit by bit, and all logits")


if __name__ == "__main__":
    main()
