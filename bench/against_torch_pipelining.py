#!/usr/bin/env python3
"""Pipelines on CPU ranks with a thread each: time of a step of `trireme train` beside torch.distributed.pipelining, 1F1B and interleaved.

A GPT (h 256, 8 layers, V 4,096, untied) in fp32, microbatches of 2 x 128 tokens. Theirs is transformers' GPT-2 blocks with sdpa, cut into the same
stages, PipelineStage with Schedule1F1B or ScheduleInterleaved1F1B, fused AdamW, clipping by the norm of all stages. Runs go ours, theirs, ours,
theirs, ..., ours; a ratio is the mean of ours before and behind over theirs.

usage: against_torch_pipelining.py BUILD_FOLDER [ROUNDS [RANKS [SCHEDULES [MICROBATCHES]]]]      as in: build/release 3 2,4 1f1b,interleaved-1f1b 8"""
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HIDDEN, LAYERS, HEADS, VOCABULARY, LENGTH, SAMPLES = 256, 8, 4, 4096, 128, 2
STEPS, WARMUP = 7, 2  # the first are not counted


# --- a rank of theirs; nothing else here imports torch -----------------------------------------------------------------------------
def torch_rank(schedule, microbatches, out):
    import torch
    import torch.distributed
    import transformers
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, ranks, count = torch.distributed.get_rank(), torch.distributed.get_world_size(), int(microbatches)
    config = transformers.GPT2Config(n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, vocab_size=VOCABULARY, n_positions=LENGTH, resid_pdrop=0.0,
                                     embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    config._attn_implementation = "sdpa"

    class Part(torch.nn.Module):
        def __init__(self, index, parts):
            super().__init__()
            self.first, self.last = index == 0, index == parts - 1
            if self.first:
                self.wte, self.wpe = torch.nn.Embedding(VOCABULARY, HIDDEN), torch.nn.Embedding(LENGTH, HIDDEN)
            begin, end = index * LAYERS // parts, (index + 1) * LAYERS // parts
            self.blocks = torch.nn.ModuleList(GPT2Block(config, layer_idx=i) for i in range(begin, end))
            if self.last:
                self.norm, self.head = torch.nn.LayerNorm(HIDDEN), torch.nn.Linear(HIDDEN, VOCABULARY, bias=False)

        def forward(self, x):
            if self.first:
                x = self.wte(x) + self.wpe(torch.arange(LENGTH))
            for block in self.blocks:
                x = block(x)
                x = x[0] if isinstance(x, tuple) else x
            return self.head(self.norm(x)) if self.last else x

    def loss_of(logits, targets):
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    torch.manual_seed(1)
    parts = ranks * (2 if schedule == "interleaved-1f1b" else 1)
    own = [Part(i, parts) for i in range(rank, parts, ranks)]
    stages = [PipelineStage(part, i, parts, torch.device("cpu")) for part, i in zip(own, range(rank, parts, ranks))]
    runner = (ScheduleInterleaved1F1B(stages, count, loss_fn=loss_of) if schedule == "interleaved-1f1b"
              else Schedule1F1B(stages[0], count, loss_fn=loss_of))
    parameters = [p for part in own for p in part.parameters()]
    optimizer = torch.optim.AdamW([{"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
                                   {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0}], lr=3e-4, betas=(0.9, 0.95), fused=True)
    batches = torch.randint(VOCABULARY, (STEPS, count * SAMPLES, LENGTH), generator=torch.Generator().manual_seed(3))
    times, last = [], time.perf_counter()
    for ids in batches:
        losses = []
        words = ([ids] if rank == 0 else [])
        runner.step(*words, **({"target": ids, "losses": losses} if rank == ranks - 1 else {}))
        square = sum(p.grad.square().sum() for p in parameters)
        torch.distributed.all_reduce(square)
        factor = (1.0 / (square.sqrt() + 1e-6)).clamp_max(1.0)
        for p in parameters:
            p.grad.mul_(factor)
        optimizer.step()
        optimizer.zero_grad()
        torch.distributed.barrier()
        now = time.perf_counter()
        times.append(now - last)
        last = now
    if rank == 0:
        Path(out).write_text(json.dumps({"times": times, "versions": [torch.__version__, transformers.__version__]}))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def environment(**more):
    return os.environ | {"OMP_NUM_THREADS": "1"} | more


def run_theirs(schedule, ranks, microbatches, scratch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out, log = scratch / "theirs.json", scratch / "theirs.log"
    with log.open("w") as output:
        processes = [subprocess.Popen([sys.executable, __file__, "--rank", schedule, str(microbatches), str(out)], stdout=output, stderr=output,
                                      env=environment(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)))
                     for rank in range(ranks)]
        if any([p.wait() for p in processes]):
            sys.exit(f"error: torch's run failed\n{log.read_text()[-3000:]}")
    said = json.loads(out.read_text())
    return statistics.median(said["times"][WARMUP:]), said["versions"]


def run_ours(program, schedule, ranks, microbatches, scratch, number):
    run = scratch / "runs" / f"run{number}"
    (scratch / "ours.toml").write_text(f"""
[run]
name = "{run.name}"
dir = "{run.parent}"
[model]
model_type = "gpt2"
hidden_size = {HIDDEN}
num_hidden_layers = {LAYERS}
num_attention_heads = {HEADS}
vocab_size = {VOCABULARY}
max_position_embeddings = {LENGTH}
hidden_act = "gelu_new"
tie_word_embeddings = false
dtype = "float32"
[[data]]
sources = [ {{ path = "synthetic" }} ]
[training]
steps = {STEPS}
seq_len = {LENGTH}
micro_batch_size = {SAMPLES}
grad_accum = {microbatches}
max_norm = 1.0
[lr_scheduler]
decay = "constant"
[parallelism]
pp = {ranks}
pp_schedule = "{schedule}"
virtual_stages = {2 if schedule == "interleaved-1f1b" else 1}
stages = {[LAYERS // (ranks * (2 if schedule == "interleaved-1f1b" else 1))] * (ranks * (2 if schedule == "interleaved-1f1b" else 1))}
zero = 0
[checkpoint]
interval = 0
export_hf = false
[metrics]
console = "quiet"
tensorboard = false
""")
    done = subprocess.run([program, "train", scratch / "ours.toml", "-n", str(ranks)], capture_output=True, text=True, env=environment())
    if done.returncode:
        sys.exit(f"error: {done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][WARMUP:]
    return statistics.median(row["train_time_s"] for row in rows), statistics.median(row["bubble_frac"] for row in rows), rows[0]["bubble_ideal_frac"]


def main():
    if sys.argv[1] == "--rank":
        return torch_rank(*sys.argv[2:])
    program = os.path.abspath(sys.argv[1] + "/trireme")
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    ranks = [int(n) for n in sys.argv[3].split(",")] if len(sys.argv) > 3 else [2, 4]
    schedules = sys.argv[4].split(",") if len(sys.argv) > 4 else ["1f1b", "interleaved-1f1b"]
    microbatches = int(sys.argv[5]) if len(sys.argv) > 5 else 8
    versions, number = None, 0
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for n in ranks:
            for schedule in schedules:
                ours, theirs = [run_ours(program, schedule, n, microbatches, scratch, number := number + 1)], []
                ratios = []
                for _ in range(rounds):
                    seconds, versions = run_theirs(schedule, n, microbatches, scratch)
                    theirs.append(seconds)
                    ours.append(run_ours(program, schedule, n, microbatches, scratch, number := number + 1))
                    ratios.append((ours[-2][0] + ours[-1][0]) / 2 / seconds)
                print(f"{schedule}, {n} ranks, {microbatches} microbatches: ours {statistics.median(o[0] for o in ours):.3f} s a step, torch "
                      f"{statistics.median(theirs):.3f} s, ratio {statistics.median(ratios):.3f} ({min(ratios):.3f}..{max(ratios):.3f}); bubble "
                      f"{statistics.median(o[1] for o in ours):.1%} measured, {ours[0][2]:.1%} ideal; {rounds} rounds", flush=True)
    print("{} cores, torch {}, transformers {}".format(os.cpu_count(), *versions))


if __name__ == "__main__":
    main()
