#!/usr/bin/env python3
"""Saving and loading a checkpoint, beside torch.save, torch's distributed checkpoint (DCP) and the disk itself (O_DIRECT), in turn.

usage: checkpoint_io.py BENCH [--megabytes 1000] [--rounds 5] [--folder DIR]      with the python that has torch
All write the same number of bytes, from memory to disk: fsync is part of each figure. Ratios are of medians."""
import argparse
import json
import mmap
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import torch
import torch.distributed.checkpoint as dcp


def sync_tree(folder):
    for path in [folder, *folder.rglob("*")]:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def drop_cache(folder):
    """Loads read from the disk, not from memory."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def disk(folder, size):
    block = mmap.mmap(-1, 4 << 20)
    block.write(os.urandom(4 << 20))
    begin = time.perf_counter()
    fd = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
    for _ in range(size // len(block)):
        os.write(fd, block)
    os.fsync(fd)
    os.close(fd)
    written = time.perf_counter() - begin
    begin = time.perf_counter()
    fd = os.open(folder / "raw", os.O_RDONLY | os.O_DIRECT)
    while os.readv(fd, [block]):
        pass
    os.close(fd)
    return written, time.perf_counter() - begin


def torch_save(folder, state):
    begin = time.perf_counter()
    with open(folder / "state.pt", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    written = time.perf_counter() - begin
    drop_cache(folder)
    begin = time.perf_counter()
    torch.load(folder / "state.pt", weights_only=True)
    return written, time.perf_counter() - begin


def torch_dcp(folder, state):
    begin = time.perf_counter()
    dcp.save(state, checkpoint_id=folder / "dcp")
    sync_tree(folder / "dcp")
    written = time.perf_counter() - begin
    drop_cache(folder)
    begin = time.perf_counter()
    dcp.load(state, checkpoint_id=folder / "dcp")
    return written, time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=os.path.abspath)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path)
    options = parser.parse_args()
    times = {name: ([], []) for name in ("trireme", "disk O_DIRECT", "torch.save", "torch DCP")}
    blocked = []
    for _ in range(options.rounds):
        for name in ("trireme", "disk O_DIRECT", "torch.save", "trireme", "torch DCP"):
            folder = pathlib.Path(tempfile.mkdtemp(dir=options.folder))
            try:
                if name == "trireme":
                    told = json.loads(subprocess.run([options.bench, folder / "checkpoints", str(options.megabytes), str(options.ranks)],
                                                     check=True, capture_output=True, text=True).stdout)
                    seconds, size = (told["save_s"], told["load_s"]), told["bytes"]
                    blocked.append(told["blocked_s"])
                elif name == "disk O_DIRECT":
                    size = options.megabytes * 1_000_000 // (4 << 20) * (4 << 20)
                    seconds = disk(folder, size)
                else:
                    number = max(1, options.megabytes * 1_000_000 // (12 << 20))
                    state = {f"w{i}.{kind}": torch.randn(1024, 1024) for i in range(number) for kind in ("weight", "exp_avg", "exp_avg_sq")}
                    size = 12 * number << 20
                    seconds = (torch_save if name == "torch.save" else torch_dcp)(folder, state)
                for list_of, value in zip(times[name], seconds):
                    list_of.append(size / value / 1e9)
            finally:
                shutil.rmtree(folder)
    ours = [statistics.median(figures) for figures in times["trireme"]]
    print(f"{'':15}{'save GB/s':>12}{'trireme/it':>12}{'load GB/s':>12}{'trireme/it':>12}")
    for name, figures in times.items():
        save, load = (statistics.median(one) for one in figures)
        print(f"{name:15}{save:12.2f}{ours[0] / save:12.2f}{load:12.2f}{ours[1] / load:12.2f}")
    print(f"training blocked by an asynchronous save: {1e3 * statistics.median(blocked):.1f} ms")


if __name__ == "__main__":
    main()
