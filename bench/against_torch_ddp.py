#!/usr/bin/env python3
"""Training GPT 10M (h 256, 8 layers, V 8,192) and 50M (h 512, 12 layers, V 32,000) in fp32 on CPU ranks with a thread each: time of a step
and peak memory of a rank, `trireme train` beside PyTorch's DDP and FSDP2.

Theirs is transformers' GPT-2 with sdpa, fused AdamW, DDP with gradients as views of buckets and a static graph, FSDP2 around each
block. Ours is zero = 0 beside DDP, and zero = 3, freeing what FSDP2 frees, beside that. Runs go ours, theirs, ours, theirs, ..., ours; a
ratio is the mean of ours before and behind over theirs. Memory is the highest VmHWM of a rank, less that of a process that has only loaded
the libraries.

usage: against_torch_ddp.py BUILD_FOLDER [ROUNDS [SIZES [RANKS [THEIRS]]]]      as in: build/release 3 10M,50M 2,4 ddp,fsdp2
       against_torch_ddp.py - ...      theirs alone"""
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = {"10M": dict(hidden=256, layers=8, heads=4, vocabulary=8192, samples=2),  # samples: of a rank and step
         "50M": dict(hidden=512, layers=12, heads=8, vocabulary=32000, samples=1)}
LENGTH = 256
STEPS, WARMUP = 7, 2  # the first are not counted


# --- a rank of theirs; nothing else here imports torch -----------------------------------------------------------------------------
def torch_rank(kind, size, out):
    import torch
    import torch.distributed
    import transformers
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(1)
    shape = SIZES[size]
    config = transformers.GPT2Config(n_embd=shape["hidden"], n_layer=shape["layers"], n_head=shape["heads"], vocab_size=shape["vocabulary"],
                                     n_positions=LENGTH, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").train()
    if kind == "ddp":
        model = DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    else:
        for block in model.transformer.h:
            fully_shard(block)
        fully_shard(model)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=3e-4,
                                  betas=(0.9, 0.95), fused=True)
    batches = torch.randint(shape["vocabulary"], (STEPS, shape["samples"], LENGTH), generator=torch.Generator().manual_seed(
        torch.distributed.get_rank()))
    times, losses, last = [], [], time.perf_counter()
    for ids in batches:
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        now = time.perf_counter()
        times.append(now - last)
        last = now
    if torch.distributed.get_rank() == 0:
        Path(out).write_text(json.dumps({"times": times, "losses": losses, "versions": [torch.__version__, transformers.__version__]}))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def bare_torch():
    import torch.distributed.fsdp
    from transformers.models.gpt2 import modeling_gpt2
    del torch, modeling_gpt2
    print(peak_of("self"))


# --- measuring processes -----------------------------------------------------------------------------------------------------------
def peak_of(pid):
    """VmHWM in bytes; 0 for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def with_children(pids):
    found, new = set(), set(pids)
    while new:
        found |= new
        children = set()
        for pid in new:
            for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
                try:
                    children.update(map(int, tasks.read_text().split()))
                except (FileNotFoundError, ProcessLookupError):
                    pass
        new = children - found
    return found


def watch(processes, is_over, log):
    """The highest peak of these processes and their children until it is over. All must end well."""
    peak = 0
    while any(p.poll() is None for p in processes):
        if not is_over():
            peak = max([peak, *map(peak_of, with_children(p.pid for p in processes))])
        time.sleep(0.1)
        if any(p.poll() for p in processes):  # one that failed leaves the others waiting
            for p in processes:
                p.kill()
    if any(p.wait() for p in processes):
        sys.exit(f"error: a run ended with {[p.returncode for p in processes]}:\n{log.read_text()[-3000:]}")
    return peak


def environment(**more):
    return os.environ | {"OMP_NUM_THREADS": "1"} | more


# --- runs: (median seconds of a step, peak bytes of a rank above a bare process) -----------------------------------------------------
class Theirs:
    def __init__(self):
        self.bare = int(subprocess.run([sys.executable, __file__, "--bare"], check=True, capture_output=True, text=True,
                                       env=environment()).stdout)
        self.versions = None

    def run(self, kind, size, ranks, scratch):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        out, log = scratch / "theirs.json", scratch / "theirs.log"
        out.unlink(missing_ok=True)
        with log.open("w") as output:
            processes = [subprocess.Popen([sys.executable, __file__, "--rank", kind, size, str(out)], stdout=output, stderr=output,
                                          env=environment(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                                                          MASTER_PORT=str(port))) for rank in range(ranks)]
            peak = watch(processes, lambda: False, log)
        said = json.loads(out.read_text())
        self.versions = said["versions"]
        return statistics.median(said["times"][WARMUP:]), peak - self.bare


class Ours:
    def __init__(self, build):
        self.program, self.runs = os.path.abspath(build + "/trireme"), 0
        # The program that ranks run, linked with libtorch. A child's ru_maxrss is at least its parent's memory when it was started; this
        # script has little.
        process = subprocess.Popen([self.program + "-torch", "--version"], stdout=subprocess.DEVNULL, env=environment())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        if status != 0:
            sys.exit(f"error: {self.program}-torch --version ended with {status}")
        self.bare = usage.ru_maxrss * 1024

    def run(self, kind, size, ranks, scratch):
        self.runs += 1
        run, shape = scratch / "runs" / f"run{self.runs}", SIZES[size]
        zero = "zero = 0" if kind == "ddp" else "zero = 3\npersistence_threshold = 0\nmax_reuse_distance = 0"
        config, log, metrics = scratch / "ours.toml", scratch / "ours.log", run / "metrics.jsonl"
        config.write_text(f"""
[run]
name = "{run.name}"
dir = "{run.parent}"
[model]
model_type = "gpt2"
hidden_size = {shape["hidden"]}
num_hidden_layers = {shape["layers"]}
num_attention_heads = {shape["heads"]}
vocab_size = {shape["vocabulary"]}
max_position_embeddings = {LENGTH}
hidden_act = "gelu_new"
tie_word_embeddings = true
dtype = "float32"
[[data]]
sources = [ {{ path = "synthetic" }} ]
[training]
steps = {STEPS}
seq_len = {LENGTH}
micro_batch_size = {shape["samples"]}
grad_accum = 1
max_norm = 1.0
[lr_scheduler]
decay = "constant"
[parallelism]
dp = {ranks}
{zero}
[checkpoint]
interval = 0
[metrics]
console = "quiet"
tensorboard = false
""")
        with log.open("w") as output:
            process = subprocess.Popen([self.program, "train", config, "-n", str(ranks)], stdout=output, stderr=output, env=environment())
            # What the checkpoint at the end takes does not count: theirs writes none.
            peak = watch([process], lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= STEPS, log)
        times = [json.loads(line)["train_time_s"] for line in metrics.read_text().splitlines()]
        return statistics.median(times[WARMUP:]), peak - self.bare


# --- the comparison ----------------------------------------------------------------------------------------------------------------
def spread(ratios):
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f}..{max(ratios):.3f})"


def compare(ours, theirs, kind, size, ranks, rounds, scratch):
    mine, others, time_ratios, memory_ratios = [], [], [], []
    if ours:
        mine.append(ours.run(kind, size, ranks, scratch))
    for _ in range(rounds):
        others.append(theirs.run(kind, size, ranks, scratch))
        if ours:
            mine.append(ours.run(kind, size, ranks, scratch))
            time_ratio, memory_ratio = (statistics.mean(pair) / other for pair, other in zip(zip(*mine[-2:]), others[-1]))
            time_ratios.append(time_ratio)
            memory_ratios.append(memory_ratio)
    name = {"ddp": "DDP", "fsdp2": "FSDP2"}[kind]
    line = f"GPT {size}, {ranks} ranks x {SIZES[size]['samples']}: "
    seconds, peak = map(statistics.median, zip(*others))
    if not ours:
        print(line + f"{name} {seconds:.3f} s a step, {peak / 1e6:.0f} MB a rank", flush=True)
        return
    my_seconds, my_peak = map(statistics.median, zip(*mine))
    print(line + f"zero {0 if kind == 'ddp' else 3} {my_seconds:.3f} s a step, {name} {seconds:.3f} s, ratio {spread(time_ratios)}; "
          f"a rank's peak {my_peak / 1e6:.0f} MB, {peak / 1e6:.0f} MB, ratio {spread(memory_ratios)}; {rounds} rounds", flush=True)


def main():
    if sys.argv[1] == "--rank":
        return torch_rank(*sys.argv[2:])
    if sys.argv[1] == "--bare":
        return bare_torch()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    sizes = sys.argv[3].split(",") if len(sys.argv) > 3 else list(SIZES)
    ranks = [int(n) for n in sys.argv[4].split(",")] if len(sys.argv) > 4 else [2, 4]
    kinds = sys.argv[5].split(",") if len(sys.argv) > 5 else ["ddp", "fsdp2"]
    ours, theirs = None if sys.argv[1] == "-" else Ours(sys.argv[1]), Theirs()
    bare = f", trireme {ours.bare / 1e6:.0f} MB" if ours else ""
    print(f"samples of {LENGTH} tokens, f32, {os.cpu_count()} cores; bare processes: torch {theirs.bare / 1e6:.0f} MB{bare}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            for n in ranks:
                for kind in kinds:
                    compare(ours, theirs, kind, size, n, rounds, Path(folder))
    print("torch {}, transformers {}".format(*theirs.versions))


if __name__ == "__main__":
    main()
