#!/usr/bin/env python3
"""A torch::nn::Module with batch norms, an encoder and sparse gradients: ten steps of DataParallel equal PyTorch's DistributedDataParallel.

usage: data_parallel_agrees.py TRIREME PROGRAM      PROGRAM: tests/peers/data_parallel_program.cpp, built
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy
import torch
import torch.distributed
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel

BOUND = 1e-10
RATE, STEPS, BATCH = 0.1, 10, 4


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.encoder = torch.nn.TransformerEncoderLayer(4, 2, dim_feedforward=8, dropout=0.0)
        self.table = torch.nn.Embedding(6, 4, sparse=True)
        self.out = torch.nn.Linear(4, 3)

    def forward(self, x):
        pixels = self.norm(self.conv(x.view(-1, 1, 4, 4))).relu().flatten(2).permute(2, 0, 1)
        words = self.table((x[:, 0].abs() * 5).long() % 6)
        return self.out(self.encoder(pixels).mean(0) + words)


def numbers_of(net):
    return [*net.parameters(), *(buffer for buffer in net.buffers() if buffer.is_floating_point())]


def train(rank, ranks, folder, results):
    torch.set_default_dtype(torch.float64)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting_{ranks}", rank=rank, world_size=ranks)
    net = Net()
    if rank == 0:
        weights = torch.from_numpy(numpy.fromfile(folder / "weights.f64"))
        with torch.no_grad():
            for tensor, part in zip(numbers_of(net), weights.split([t.numel() for t in numbers_of(net)])):
                tensor.copy_(part.view(tensor.shape))
    parallel = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    samples = torch.from_numpy(numpy.fromfile(folder / "batches.f64")).view(STEPS, ranks, BATCH, 16)
    losses = []
    for step in range(STEPS):
        x = samples[step][rank]
        y = (x.sum(1).abs() * 3).long() % 3
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(parallel(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    results[rank] = (losses, torch.cat([t.detach().flatten() for t in numbers_of(net)]).tolist() if rank == 0 else None)
    torch.distributed.destroy_process_group()


def check(ok, *what):
    if not ok:
        sys.exit("data_parallel_agrees: " + " ".join(str(w) for w in what))


def main():
    trireme, program = sys.argv[1:]
    torch.set_default_dtype(torch.float64)
    ranks = 3
    with tempfile.TemporaryDirectory() as scratch, torch.multiprocessing.Manager() as manager:
        folder = Path(scratch)
        generator = numpy.random.default_rng(ranks)
        torch.manual_seed(ranks)
        torch.cat([t.detach().flatten() for t in numbers_of(Net())]).numpy().tofile(folder / "weights.f64")
        generator.standard_normal(STEPS * ranks * BATCH * 16).tofile(folder / "batches.f64")
        results = manager.dict()
        torch.multiprocessing.spawn(train, (ranks, folder, results), nprocs=ranks)
        done = subprocess.run([trireme, "launch", "-n", str(ranks), "--logs", folder / "logs", "--", program, folder, str(RATE), str(STEPS),
                               str(BATCH)], env={**os.environ, "TRIREME_DEVICE": "cpu"}, timeout=100)
        check(done.returncode == 0, "exit code", done.returncode)
        worst = 0.0
        for rank in range(ranks):
            ours, theirs = numpy.fromfile(folder / f"losses_{rank}.f64"), numpy.array(results[rank][0])
            check(len(ours) == STEPS and theirs[0] != theirs[-1], "rank", rank, "has losses", ours, theirs)
            worst = max(worst, numpy.abs(ours / theirs - 1).max())
        ours, theirs = numpy.fromfile(folder / "trained.f64"), numpy.array(results[0][1])
        start = numpy.fromfile(folder / "weights.f64")
        worst = max(worst, numpy.linalg.norm(ours - theirs) / numpy.linalg.norm(theirs - start))
        check(worst <= BOUND, ranks, "ranks differ by", worst)
        print(f"{ranks} ranks, {STEPS} steps: losses, parameters and statistics differ from DistributedDataParallel by {worst:.1e}")


if __name__ == "__main__":
    main()
