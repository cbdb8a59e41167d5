#!/usr/bin/env python3
"""Training speed and memory on one GPU: `trireme train` beside PyTorch, eager and with torch.compile, in one run. By hand: CI has no GPU.

usage: gpu.py TRIREME [--rows gpt2,gpt2-xl,llama,llama-fp8,gpt2-dropout,experts,qwen3,...] [--steps 40] [--no-peers] [--trace] [--out FOLDER]

The peers are the models of transformers with the same recipe: weights and activations in bf16, float32 master weights and Adam states, gradient
clipping. Medians over the steps after the first ten. Writes
gpu.md, gpu.json and gpu.svg to FOLDER. --trace also sums up the kernels of a few steps: the share of the step in kernels that use tensor cores
(matrix products and attention), how long the GPU was idle, and how often the host waited for it."""
import argparse
import gc
import gzip
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

PEAKS = {"H200": 989.0, "H100": 989.0, "A100": 312.0}  # dense bf16 TFLOP/s of the data sheet
SUSTAINED = 790.0  # what cuBLAS reaches on an H200 with large matrices, at its power limit
SKIPPED = 10

# Keys of [model], and of transformers' Qwen3MoeConfig where they are called otherwise.
EXPERTS = dict(model_type="qwen3_moe", hidden_size=1024, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=4, head_dim=64,
               intermediate_size=512, moe_intermediate_size=512, num_local_experts=32, num_experts_per_tok=4, norm_topk_prob=True,
               vocab_size=50304, tie_word_embeddings=False, max_position_embeddings=2048)

QWEN3 = dict(model_type="qwen3", hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
             intermediate_size=3072, vocab_size=151936, tie_word_embeddings=True, max_position_embeddings=40960)

ROWS = {
    "experts": dict(name="Qwen3-MoE, 32 experts of 512, 4 chosen, 8 x 2048", model=EXPERTS, batch=8, length=2048, flags=[]),
    "experts-balanced": dict(name="Qwen3-MoE, the same with a balancing loss", model=EXPERTS, batch=8, length=2048, peers=False,
                             flags=["--model.router_aux_loss_coef", "0.001"]),
    "qwen3": dict(name="Qwen3 0.6B, 8 x 4096", model=QWEN3, batch=8, length=4096, flags=[]),
    "gpt2-small-batch": dict(name="GPT-2 124M, 4 x 1024", preset="gpt2", batch=4, length=1024, flags=[]),
    "gpt2-accumulation": dict(name="GPT-2 124M, 4 microbatches of 16 x 1024", preset="gpt2", batch=16, length=1024, microbatches=4, flags=[]),
    "llama-long": dict(name="Llama 3.2 1B, tied, 1 x 32,768", preset="llama3.2-1b", batch=1, length=32768, tied=True, flags=[]),
    "gpt2": dict(name="GPT-2 124M, 32 x 1024", preset="gpt2", batch=32, length=1024, flags=[]),
    "gpt2-selective": dict(name="GPT-2 124M, 32 x 1024, selective recompute", preset="gpt2", batch=32, length=1024,
                           flags=["--activation_checkpoint.mode", "selective"], peers=False),
    "gpt2-full": dict(name="GPT-2 124M, 32 x 1024, full recompute", preset="gpt2", batch=32, length=1024,
                      flags=["--activation_checkpoint.mode", "full"], peers=False),
    "gpt2-xl": dict(name="GPT-2 1558M, 16 x 1024", preset="gpt2-xl", batch=16, length=1024, flags=[], peers=False),  # compiles for minutes
    "llama": dict(name="Llama 3.2 1B, untied, 4 x 4096", preset="llama3.2-1b", batch=4, length=4096,
                  flags=["--model.tie_word_embeddings", "false", "--activation_checkpoint.mode", "selective"]),
    "llama-none": dict(name="Llama 3.2 1B, untied, 4 x 4096, no recompute", preset="llama3.2-1b", batch=4, length=4096,
                       flags=["--model.tie_word_embeddings", "false"], peers=False),
    "llama-fp8": dict(name="Llama 3.2 1B, untied, 4 x 4096, fp8", preset="llama3.2-1b", batch=4, length=4096,
                      flags=["--model.tie_word_embeddings", "false", "--precision.matmul", "fp8"], peers=False),
    "llama-fp8-delayed": dict(name="Llama 3.2 1B, untied, 4 x 4096, fp8, scales of past steps", preset="llama3.2-1b", batch=4, length=4096,
                              flags=["--model.tie_word_embeddings", "false", "--precision.matmul", "fp8", "--precision.fp8_amax", "delayed"], peers=False),
    "llama-fp8-row": dict(name="Llama 3.2 1B, untied, 4 x 4096, fp8, scales of rows", preset="llama3.2-1b", batch=4, length=4096,
                          flags=["--model.tie_word_embeddings", "false", "--precision.matmul", "fp8", "--precision.fp8_scaling", "row"], peers=False),
    "gpt2-dropout": dict(name="GPT-2 124M, 32 x 1024, dropout 0.1", preset="gpt2", batch=32, length=1024, peers=False,
                         flags=["--model.resid_pdrop", "0.1", "--model.embd_pdrop", "0.1", "--model.attention_dropout", "0.1"]),
}


def run(words, **how):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True, **how)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}\nfailed with {result.returncode}:\n{result.stdout[-2000:]}{result.stderr[-3000:]}")
    return result.stdout


def flops_per_token(row):
    """Of forward and backward: 6 per weight that multiplies, and causal attention."""
    if "model" in row:
        m = row["model"]
        layers, width, heads = m["num_hidden_layers"], m["num_attention_heads"] * m["head_dim"], m["num_attention_heads"] + m["num_key_value_heads"]
        mlp = (m["num_local_experts"] + 3 * m["num_experts_per_tok"] * m["moe_intermediate_size"] if "num_local_experts" in m
               else 3 * m["intermediate_size"])
        weights = m["vocab_size"] * m["hidden_size"] + layers * m["hidden_size"] * (2 * heads * m["head_dim"] + mlp)
    elif row["preset"].startswith("gpt2"):
        layers, width, vocabulary = (12, 768, 50257) if row["preset"] == "gpt2" else (48, 1600, 50257)
        weights = layers * 12 * width * width + vocabulary * width
    else:
        layers, width, vocabulary = 16, 2048, 128256
        weights = layers * (width * (2048 + 2 * 512) + width * width + 3 * width * 8192) + vocabulary * width
    return 6 * weights + 6 * layers * row["length"] * width


def ours(trireme, folder, row, steps, trace):
    keys = row.get("model") or dict(preset=row["preset"])
    model = "\n".join(f"{key} = {json.dumps(value)}" for key, value in keys.items())
    (folder / "run.toml").write_text(f"""
[run]
name = "run"
dir = "{folder}/runs"
[model]
{model}
dtype = "bfloat16"
[[data]]
sources = [ {{ path = "{folder}/tokens.ds" }} ]
[training]
steps = {steps}
seq_len = {row['length']}
global_batch_size = {row['batch'] * row.get('microbatches', 1)}
micro_batch_size = {row['batch']}
max_norm = 1.0
[optimizer]
lr = 1e-4
[checkpoint]
export_hf = false
""")
    words = [trireme, "train", folder / "run.toml", "-n", 1, *row["flags"],]
    if trace:
        words += ["--profiler.operations", "true", "--profiler.wait", SKIPPED + 2, "--profiler.warmup", 2, "--profiler.active", 4]
    run(["rm", "-rf", folder / "runs"])
    run(words)
    records = [json.loads(line) for line in (folder / "runs/run/metrics.jsonl").read_text().splitlines()]
    # The first seconds are slower, and the last step is read at once.
    step = statistics.median(record["train_time_s"] for record in records[SKIPPED:-1])
    events = [json.loads(line) for line in (folder / "runs/run/events.jsonl").read_text().splitlines()]
    predicted = next((event["predicted_bytes"] / 2**30 for event in events if "predicted_bytes" in event), None)
    result = dict(step=step, gib=max(record["mem_peak_gib"] for record in records), losses=[record["loss"] for record in records],
                  predicted=predicted)
    if trace:
        result["trace"] = kernels_of(folder / "runs/run")
    return result


PRODUCTS = re.compile(r"gemm|cutlass|nvjet|xmma|flash|fmha|sdpa|cublas|splitK", re.I)
WAITS = re.compile(r"^cuda(Stream|Device|Event)Synchronize$|^cudaMemcpy$|^cuStreamSynchronize$")


def short_name(kernel):
    return re.sub(r"<.*|\(.*", "", re.sub(r"\(anonymous namespace\)::|<unnamed>::|^void ", "", kernel))[:80]


def whole_steps(kernels):
    """The kernels from the end of one update to the end of the last one, in order, and the number of steps: the host runs ahead, so a trace
    begins and ends within a step."""
    ordered = sorted(kernels, key=lambda e: e["ts"])
    ends, update = [], None
    for i, e in enumerate(ordered):
        if short_name(e["name"]).endswith("kernels::detail::adam"):
            update = i
        elif update is not None and PRODUCTS.search(e["name"]):
            ends, update = ends + [update], None
    ends += [update] if update is not None else []
    if len(ends) < 2:
        raise RuntimeError(f"the trace holds {len(ends)} updates: a step from one to the next is needed")
    return ordered[ends[0] + 1:ends[-1] + 1], len(ends) - 1


def kernels_of(folder):
    """Of the whole steps of libtorch's trace, in milliseconds per step."""
    traces = sorted(folder.rglob("*.json*"), key=lambda path: path.stat().st_size)
    path = traces[-1]
    text = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
    events = json.loads(text)["traceEvents"]
    kernels, steps = whole_steps([e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")])
    begin, end = kernels[0]["ts"], max(e["ts"] + e["dur"] for e in kernels)
    busy, last = 0.0, begin
    for e in kernels:
        busy += max(0.0, e["ts"] + e["dur"] - max(last, e["ts"]))
        last = max(last, e["ts"] + e["dur"])
    by_name = {}
    for e in kernels:
        known = by_name.setdefault(short_name(e["name"]), [0, 0.0])
        known[0] += 1 / steps
        known[1] += e["dur"] / 1000 / steps
    waits = {}
    for e in events:
        if e.get("cat") == "cuda_runtime" and WAITS.match(e["name"]):
            waits[e["name"]] = waits.get(e["name"], 0) + 1
    products = sum(time for name, (_, time) in by_name.items() if PRODUCTS.search(name))
    return dict(steps=steps, window_ms=(end - begin) / 1000 / steps, busy_ms=busy / 1000 / steps, products_ms=products, waits=waits,
                kernels=sorted(([name, round(count, 2), round(time, 3)] for name, (count, time) in by_name.items()), key=lambda k: -k[2])[:40])


def theirs(row, steps, compiled):
    import torch
    from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig,
                              Qwen3MoeForCausalLM)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        if row.get("preset", "").startswith("gpt2"):
            wide = row["preset"] == "gpt2-xl"
            model = GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, n_embd=1600 if wide else 768,
                                               n_layer=48 if wide else 12, n_head=25 if wide else 12, attn_implementation="sdpa"))
        elif row.get("model") == QWEN3:
            keys = {key: value for key, value in QWEN3.items() if key != "model_type"}
            model = Qwen3ForCausalLM(Qwen3Config(**keys, attn_implementation="sdpa"))
        elif "model" in row:
            keys = {key: value for key, value in row["model"].items() if key not in ("model_type", "num_local_experts")}
            model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**keys, num_experts=row["model"]["num_local_experts"], attn_implementation="sdpa"))
        else:
            model = LlamaForCausalLM(LlamaConfig(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                                                 num_attention_heads=32, num_key_value_heads=8, head_dim=64, tie_word_embeddings=row.get("tied", False),
                                                 max_position_embeddings=131072, rope_theta=5e5, attn_implementation="sdpa"))
        torch.set_default_dtype(torch.float32)
    model.train()
    model.config.use_cache = False
    params = list(model.parameters())
    masters = [p.detach().float() for p in params]
    optimizer = torch.optim.AdamW(masters, lr=1e-4, betas=(0.9, 0.95), fused=True)
    vocabulary = model.config.vocab_size
    tokens = torch.randint(0, vocabulary, (row["batch"], row["length"] + 1), device="cuda")

    def loss_of(tokens):
        logits = model(tokens[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())

    forward = torch.compile(loss_of) if compiled else loss_of
    torch.cuda.reset_peak_memory_stats()
    times, microbatches = [], row.get("microbatches", 1)
    for _ in range(steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(microbatches):
            (forward(tokens) / microbatches).backward()
        for p, master in zip(params, masters):
            master.grad, p.grad = p.grad.float(), None
        torch.nn.utils.clip_grad_norm_(masters, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_copy_(params, masters)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return dict(step=statistics.median(times[SKIPPED:]), gib=torch.cuda.max_memory_allocated() / 2**30)


def peer(row, steps, compiled):
    """In a process of its own, so that its memory is given back."""
    code = f"import gpu, json; print('RESULT', json.dumps(gpu.theirs(gpu.ROWS[{row!r}], {steps}, {compiled})))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent)
    for line in result.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line[7:])
    out_of_memory = "OutOfMemoryError" in result.stderr
    return dict(step=None, gib=None, why="out of memory" if out_of_memory else result.stderr[-600:])


def figure(results, path):
    bars = [(r["name"], kind, r["tokens"] / r[kind]["step"], r[kind]["gib"]) for r in results for kind in ("ours", "compiled", "eager")
            if r.get(kind) and r[kind]["step"]]
    colours = {"ours": "#1f6feb", "compiled": "#8b949e", "eager": "#d0d7de"}
    height = 26 * len(bars) + 40
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="860" height="{height}" font-family="sans-serif" font-size="12">',
             '<text x="8" y="18" font-weight="bold">tokens per second on one GPU, relative to ours in each row (peak memory)</text>']
    best = {r["name"]: r["tokens"] / r["ours"]["step"] for r in results}
    for i, (name, kind, rate, gib) in enumerate(bars):
        y = 32 + 26 * i
        lines.append(f'<text x="8" y="{y + 15}">{name if kind == "ours" else ""}</text>')
        lines.append(f'<rect x="300" y="{y}" width="{380 * rate / best[name]:.1f}" height="20" fill="{colours[kind]}"/>')
        label = {"ours": "trireme", "compiled": "torch.compile", "eager": "eager"}[kind]
        lines.append(f'<text x="{306 + 380 * rate / best[name]:.1f}" y="{y + 15}">{label} {rate / 1000:,.0f}k ({gib:.0f} GiB)</text>')
    path.write_text("\n".join(lines + ["</svg>"]) + "\n")


def table(results, peak):
    lines = ["| job | ours | eager | torch.compile | ours / compile | MFU of ours, of "
             f"{peak:.0f} and {SUSTAINED:.0f} TFLOP/s | tensor cores in use | predicted memory |", "|---|---|---|---|---|---|---|---|"]
    cell = lambda r, kind: (f"{r['tokens'] / r[kind]['step'] / 1000:,.1f}k, {r[kind]['gib']:.1f} GiB" if r.get(kind) and r[kind]["step"]
                            else r.get(kind, {}).get("why", ""))
    for r in results:
        tflops = r["flops"] * r["tokens"] / r["ours"]["step"] / 1e12
        ratio = f"{r['compiled']['step'] / r['ours']['step']:.2f}" if r.get("compiled") and r["compiled"]["step"] else ""
        predicted, trace = r["ours"].get("predicted"), r.get("trace")
        tensor_cores = f"{100 * trace['products_ms'] / trace['window_ms']:.0f} %" if trace else ""
        lines.append(f"| {r['name']} | {cell(r, 'ours')} | {cell(r, 'eager')} | {cell(r, 'compiled')} | {ratio} | "
                     f"{100 * tflops / peak:.1f} %, {100 * tflops / SUSTAINED:.1f} % | "
                     f"{tensor_cores} | "
                     f"{f'{predicted:.2f} GiB' if predicted else ''} |")
    return "\n".join(lines)


def commit():
    """Of these sources; "unknown" where they are without their history."""
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent)
    return found.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme", type=lambda word: Path(word).resolve())
    parser.add_argument("--rows", default="gpt2,gpt2-xl,llama,llama-fp8,gpt2-dropout")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--flags", default="", help="more flags for trireme train")
    parser.add_argument("--out", type=Path, default=Path("gpu-bench"))
    options = parser.parse_args()
    import torch
    name = torch.cuda.get_device_name()
    peak = next((value for key, value in PEAKS.items() if key in name), SUSTAINED)
    del torch
    gc.collect()
    options.out.mkdir(parents=True, exist_ok=True)
    results = []
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        root = Path(__file__).resolve().parents[1]
        sources = [str(path) for path in sorted((root / "trireme").rglob("*.cpp"))]
        run([options.trireme, "data", "prepare", *sources, "--train-bpe", "2048", "-o", folder / "tokens", "-q"])
        for key in options.rows.split(","):
            row = dict(ROWS[key])
            row["flags"] = row["flags"] + options.flags.split()
            result = dict(name=row["name"], tokens=row["batch"] * row["length"] * row.get("microbatches", 1), flops=flops_per_token(row))
            try:
                result["ours"] = ours(options.trireme, folder, row, options.steps, False)
                if not options.no_peers and row.get("peers", True):
                    result["eager"] = peer(key, options.steps, False)
                    result["compiled"] = peer(key, options.steps, True)
                    again = ours(options.trireme, folder, row, options.steps, False)  # before and after the peers
                    result["ours"]["step"] = (result["ours"]["step"] + again["step"]) / 2
                if options.trace:
                    result["trace"] = ours(options.trireme, folder, row, SKIPPED + 12, True)["trace"]
            except RuntimeError as e:
                print(f"{row['name']}: {e}", flush=True)
                continue
            results.append(result)
            print(table([result], peak).splitlines()[-1], flush=True)
            if "trace" in result:
                trace = result["trace"]
                print(f"  per step, of {trace['steps']} steps: {trace['window_ms']:.1f} ms, GPU busy {trace['busy_ms']:.1f}, matrix products "
                      f"and attention {trace['products_ms']:.1f}; in the whole trace the host waited: {trace['waits'] or 'never'}")
                for kernel, count, ms in trace["kernels"][:24]:
                    print(f"    {ms:8.3f} ms per step {count:7.1f} x  {kernel}")
    when = time.strftime("%Y-%m-%d", time.gmtime())
    (options.out / "gpu.json").write_text(json.dumps(dict(device=name, date=when, commit=commit(), rows=results), indent=1) + "\n")
    (options.out / "gpu.md").write_text(f"{name}, {when}, commit {commit()}\n\n{table(results, peak)}\n")
    figure(results, options.out / "gpu.svg")
    print(table(results, peak))


if __name__ == "__main__":
    main()
