#!/usr/bin/env python3
"""Forward and backward of GPT 50M (h 512, 12 layers, V 32,000; 4 samples of 256): ours beside transformers in eager PyTorch, in
turn, medians; time and peak memory of CPU tensors. Then ours with recompute, and in bf16.

usage: against_transformers.py BUILD_FOLDER [PAIRS]"""
import statistics
import subprocess
import sys
import time

import torch
import transformers

SAMPLES, LENGTH, VOCABULARY = 4, 256, 32000


class Ours:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def say(self, words):
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def step(self, recompute="none"):
        """seconds, peak bytes, loss"""
        self.say(f"step {recompute}")
        return [float(word) for word in self.process.stdout.readline().split()]


class Theirs:
    def __init__(self):
        torch.manual_seed(1)
        config = transformers.GPT2Config(n_embd=512, n_layer=12, n_head=8, vocab_size=VOCABULARY, n_positions=LENGTH, resid_pdrop=0.0,
                                         embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
        self.model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").train()
        numbers = (torch.arange(SAMPLES * LENGTH) * 7919) % VOCABULARY
        self.ids = numbers.view(SAMPLES, LENGTH)

    def step(self):
        self.model.zero_grad(set_to_none=True)
        start = time.perf_counter()
        loss = self.model(input_ids=self.ids, labels=self.ids).loss
        loss.backward()
        return time.perf_counter() - start, loss.item()

    def peak(self):
        """Parameters, and the most that a step had allocated beside them."""
        self.model.zero_grad(set_to_none=True)
        with torch.profiler.profile(profile_memory=True) as profile:
            self.model(input_ids=self.ids, labels=self.ids).loss.backward()
        alive = most = 0
        for event in sorted((e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()):
            alive += event.nbytes()
            most = max(most, alive)
        return most + sum(p.numel() * p.element_size() for p in self.model.parameters())


def main():
    ours, theirs = Ours(sys.argv[1] + "/bench/trireme_model_bench"), Theirs()
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    count = sum(p.numel() for p in theirs.model.parameters())
    print(f"GPT, {count:,} parameters, {SAMPLES} x {LENGTH} tokens, f32; transformers {transformers.__version__}, torch {torch.__version__}")
    for threads in (1, 2):
        torch.set_num_threads(threads)
        ours.say(f"threads {threads}")
        ours.step(), theirs.step()
        mine, others = [], []
        for i in range(pairs):
            turns = [lambda: mine.append(ours.step()[0]), lambda: others.append(theirs.step()[0])]
            for turn in turns if i % 2 == 0 else reversed(turns):
                turn()
        ratios = sorted(a / b for a, b in zip(mine, others))
        print(f"{threads} thread{'s' if threads > 1 else ''}: ours {statistics.median(mine):.3f} s, theirs {statistics.median(others):.3f} s, "
              f"ratio {statistics.median(ratios):.3f} ({pairs} pairs, {ratios[0]:.3f}..{ratios[-1]:.3f})", flush=True)
    peak, peak_of_theirs = ours.step()[1], theirs.peak()
    print(f"peak: ours {peak / 1e6:.0f} MB, theirs {peak_of_theirs / 1e6:.0f} MB, ratio {peak / peak_of_theirs:.3f}")
    plain, selective, full = [], [], []
    for _ in range(pairs):
        for mode, times in (("none", plain), ("selective", selective), ("full", full)):
            times.append(ours.step(mode)[:2])
    base = statistics.median(t for t, _ in plain)
    for mode, times in (("selective", selective), ("full", full)):
        extra = statistics.median(a / b - 1 for (a, _), (b, _) in zip(times, plain))
        print(f"recompute {mode}: {100 * extra:+.1f} % time, peak {times[0][1] / plain[0][1]:.3f} of none's")
    ours.say("dtype bf16")
    ours.step()
    low = [ours.step()[0] for _ in range(max(2, pairs // 2))]
    print(f"bf16, ours alone: {statistics.median(low):.3f} s, {statistics.median(low) / base:.3f} of f32's (2 threads)")


if __name__ == "__main__":
    main()
