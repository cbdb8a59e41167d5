#!/usr/bin/env python3
"""data_parallel beside PyTorch's DDP, and fully_shard beside FSDP2, for the models bert and bertbig of trireme/workloads on CPU ranks with a
thread each: forward, backward and communication of a step, without the optimizer.

Runs go ours, theirs, ours, theirs, ..., ours; a ratio is the mean of the medians of ours before and behind over that of theirs.

usage: against_torch_modules.py BUILD_FOLDER [ROUNDS [MODELS [RANKS]]]      as in: build/release 3 bert,bertbig 2"""
import os
import socket
import statistics
import subprocess
import sys
import time

SHAPES = {"bert": dict(vocabulary=1000, length=32, layers=2, width=128, heads=2, hidden=512),
          "bertbig": dict(vocabulary=4000, length=64, layers=6, width=256, heads=4, hidden=1024)}
SAMPLES, STEPS, WARMUP = 8, 12, 3


def torch_rank(kind, name):
    import torch
    import torch.distributed
    from torch.distributed.fsdp import fully_shard
    from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention
    from torch.nn.parallel import DistributedDataParallel

    shape = SHAPES[name]
    width, heads = shape["width"], shape["heads"]

    class Embedding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = torch.nn.Embedding(shape["vocabulary"], width), torch.nn.Embedding(shape["length"], width)
            self.norm = torch.nn.LayerNorm(width)

        def forward(self, ids):
            return self.norm(self.tokens(ids) + self.positions.weight[:ids.size(1)])

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.up, self.down = torch.nn.Linear(width, shape["hidden"]), torch.nn.Linear(shape["hidden"], width)
            self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)

        def forward(self, x):
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
            x = self.norm1(x + self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)))
            return self.norm2(x + self.down(gelu(self.up(x))))

    class Pooler(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(width, width)

        def forward(self, x):
            return torch.tanh(self.linear(x[:, 0]))

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.Sequential(Embedding(), *[Block() for _ in range(shape["layers"])], Pooler(), torch.nn.Linear(width, 2))
    if kind == "data_parallel":
        model = DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    else:
        for child in model:
            if sum(p.numel() for p in child.parameters()) >= 1000:
                fully_shard(child)
        fully_shard(model)
    ids, labels = torch.randint(shape["vocabulary"], (SAMPLES, shape["length"])), torch.randint(2, (SAMPLES,))
    for _ in range(STEPS):
        model.zero_grad(set_to_none=True)
        torch.distributed.barrier()
        begin = time.perf_counter()
        loss = cross_entropy(model(ids), labels)
        loss.backward()
        loss.item()
        if torch.distributed.get_rank() == 0:
            print(f"step {time.perf_counter() - begin:.6f}", flush=True)
    torch.distributed.destroy_process_group()


def median_of(output):
    times = [float(line.split()[1]) for line in output.splitlines() if line.startswith("step ")]
    if len(times) != STEPS:
        sys.exit(f"error: {len(times)} of {STEPS} steps\n{output[-2000:]}")
    return statistics.median(times[WARMUP:])


def ours(build, kind, name, ranks):
    program = [f"{build}/trireme", "launch", "-n", ranks, "--", f"{build}/bench/trireme_module_bench", kind, name, SAMPLES, STEPS]
    return median_of(subprocess.run([str(word) for word in program], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout)


def theirs(kind, name, ranks):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, __file__, "--rank", kind, name]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True,
                                env={**os.environ, "OMP_NUM_THREADS": "1", "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                                     "MASTER_PORT": str(port)}) for rank in range(ranks)]
    return median_of([process.communicate()[0] for process in started][0])


def main():
    if sys.argv[1:2] == ["--rank"]:
        return torch_rank(*sys.argv[2:])
    build, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    models = sys.argv[3].split(",") if len(sys.argv) > 3 else list(SHAPES)
    ranks = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    for name in models:
        for kind, peer in (("data_parallel", "DDP"), ("fully_shard", "FSDP2")):
            mine, others = [ours(build, kind, name, ranks)], []
            for _ in range(rounds):
                others.append(theirs(kind, name, ranks))
                mine.append(ours(build, kind, name, ranks))
            ratios = [(a + b) / 2 / t for a, b, t in zip(mine, mine[1:], others)]
            print(f"{name:8} {ranks} ranks: {kind} {1e3 * statistics.median(mine):.1f} ms, {peer} {1e3 * statistics.median(others):.1f} ms, "
                  f"ratio {statistics.median(ratios):.3f} (of {', '.join(f'{r:.3f}' for r in ratios)})", flush=True)


if __name__ == "__main__":
    main()
