#!/usr/bin/env python3
"""Tokens per second of `trireme generate` on one GPU, next to transformers' generate(), in one run. By hand: CI has no GPU.

usage: gpu_decode.py TRIREME [--rows gpt2,llama] [--tokens 512] [--streams 1,64] [--no-peers]

Models with initial weights, bfloat16, greedy. Both sides report the tokens after the first one of each sequence, without loading the model and
without the prompt. The peer has a cache of fixed size and is measured in its second call."""
import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROWS = {"gpt2": "GPT-2 124M", "llama": "Llama 3.2 1B"}
PRESETS = {"gpt2": "gpt2", "llama": "llama3.2-1b"}


def run(words, folder):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}\nfailed with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return done


def made(trireme, row, folder):
    """A checkpoint of the first step: what generate needs of a model."""
    (folder / "c.toml").write_text(f"""
[run]
name = "{row}"
[model]
preset = "{PRESETS[row]}"
dtype = "bfloat16"
[tokenizer]
path = "bytes"
[[data]]
sources = [ {{ path = "synthetic" }} ]
[training]
steps = 1
seq_len = 256
global_batch_size = 1
micro_batch_size = 1
[checkpoint]
export_hf = false
""")
    run([trireme, "train", "c.toml", "-n", 1], folder)
    return folder / "runs" / row


def ours(trireme, checkpoint, tokens, streams, folder):
    (folder / "prompts").write_text("Once upon a time\n" * streams)
    done = run([trireme, "generate", checkpoint, "--prompts", "prompts", "-n", tokens, "--batch", streams, "--dtype", "bfloat16", "--json"], folder)
    rate = re.search(r"([\d.,]+[KM]?) tokens/s", done.stderr)
    made = sum(len(json.loads(line)["tokens"]) for line in done.stdout.splitlines() if line.startswith("{"))
    return rate.group(1) if rate else done.stderr.strip()[-200:], made


def theirs(row, tokens, streams):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = (GPT2LMHeadModel(GPT2Config()) if row == "gpt2" else
                 LlamaForCausalLM(LlamaConfig(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                                              num_attention_heads=32, num_key_value_heads=8, head_dim=64, tie_word_embeddings=True)))
    model.eval()
    ids = torch.randint(0, 256, (streams, 16), device="cuda")
    how = dict(max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
    with torch.no_grad():
        for _ in range(2):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            model.generate(ids, **how)
            torch.cuda.synchronize()
    return streams * tokens / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme", type=lambda word: Path(word).resolve())
    parser.add_argument("--rows", default="gpt2,llama")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--streams", default="1,64")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        print("RESULT", theirs(options.peer, options.tokens, int(options.streams)))
        return
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for row in options.rows.split(","):
            checkpoint = made(options.trireme, row, folder)
            for streams in map(int, options.streams.split(",")):
                rate, tokens = ours(options.trireme, checkpoint, options.tokens, streams, folder)
                line = f"{ROWS[row]:14} {streams:3} streams: ours {rate} tokens/s ({tokens} tokens)"
                if not options.no_peers:
                    peer = subprocess.run([sys.executable, __file__, options.trireme, "--peer", row, "--tokens", str(options.tokens), "--streams", str(streams)],
                                          capture_output=True, text=True)
                    found = re.search(r"RESULT ([\d.]+)", peer.stdout)
                    line += f", transformers {float(found.group(1)):,.0f} tokens/s" if found else f", transformers: {peer.stderr[-300:]}"
                print(line, flush=True)


if __name__ == "__main__":
    main()
