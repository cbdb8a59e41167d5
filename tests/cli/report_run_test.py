#!/usr/bin/env python3
"""`trireme report` of runs that were trained here: every number of the page is computed again from the files of the run.

usage: report_run_test.py TRIREME [CLASS[.test]...]      TRIREME_REPORT_PICTURES=FOLDER keeps the pictures of the browser"""
import collections
import functools
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import time
import unittest
import xml.etree.ElementTree

import report_page
import train_test
from train_test import INTERRUPTED, QUIET, TrainTest, environment, finish, fresh_folder, start, train

PP2_TP2 = ("--parallelism.pp", "2", "--parallelism.tp", "2", "--model.num_hidden_layers", "4", "--training.steps", "8", "--checkpoint.interval", "3",
           "--validation.interval", "4", "--validation.fraction", "0.02", "--profiler.steps", "[2, 6]", "--activation_checkpoint.mode", "full",
           "--metrics.peak_tflops", "0.5", "--profiler.operations", "true", "--profiler.wait", "5", "--profiler.warmup", "1", "--profiler.active", "2",
           *QUIET)
PARTS = ("forward_time_frac", "backward_time_frac", "comm_exposed_frac", "bubble_time_frac", "optimizer_time_frac", "data_time_frac",
         "other_time_frac")
STAGES, MICROBATCHES = 2, 4


def report(*words, cwd):
    return subprocess.run([train_test.options.trireme, "report", *map(str, words)], cwd=cwd, env=environment(), capture_output=True, text=True,
                          timeout=60)


@functools.cache
def trained():
    run = train(*PP2_TP2, n=4)
    assert run.code == 0, run
    made = report(run.path(), cwd=run.path())
    assert made.returncode == 0 and made.stderr == "", made
    return run.path(), report_page.Page((run.path() / "report.html").read_text())


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def joined(spans):
    out = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


def clipped(spans, begin, end):
    return [(max(a, begin), min(b, end)) for a, b in spans if min(b, end) > max(a, begin)]


def length(spans):
    return sum(b - a for a, b in spans)


def in_both(a, b):
    return length([(max(p, r), min(q, s)) for p, q in a for r, s in b if min(q, s) > max(p, r)])


class Traces:
    """Of one step: what the page says of it, from the files of the ranks."""

    def __init__(self, folder, ranks):
        self.events = []
        for rank in range(ranks):
            with gzip.open(folder / f"rank{rank}.json.gz") as file:
                self.events.append(json.load(file)["traceEvents"])
        self.first = min(event["ts"] for events in self.events for event in events if event["ph"] == "X")

    def spans(self, rank, category, names=".*"):
        # In whole nanoseconds first: seconds since the base of the file would leave no bits for them.
        ns = lambda microseconds: round(microseconds * 1000)
        since_first = lambda time: (time - ns(self.first)) * 1e-9
        return [(since_first(ns(e["ts"])), since_first(ns(e["ts"]) + ns(e["dur"]))) for e in self.events[rank]
                if e["ph"] == "X" and e["cat"] == category and re.match(names, e["name"])]

    def figures(self):
        out, exposed_shares, bubbles = {}, [], []
        calls = collections.defaultdict(lambda: collections.Counter())
        sent = collections.Counter()
        for rank, events in enumerate(self.events):
            actions = self.spans(rank, "step", "forward|backward|input|weight")
            all_of_it = max(b for _, b in actions) - min(a for a, _ in actions)
            bubbles.append(1 - length(actions) / all_of_it)
            out[f"bubble.rank{rank}"] = bubbles[-1]
            [(begin, end)] = self.spans(rank, "whole step")
            waits = clipped(joined(self.spans(rank, "wait")), begin, end)
            comm = clipped(joined(self.spans(rank, "comm")), begin, end)
            exposed_shares.append(length(waits) / (end - begin))
            out[f"overlap.rank{rank}.exposed"] = exposed_shares[-1]
            out[f"overlap.rank{rank}.exposed_s"] = length(waits)
            out[f"overlap.rank{rank}.communication"] = length(comm)
            out[f"overlap.rank{rank}.hidden"] = 1 - in_both(comm, waits) / length(comm)
            for event in events:
                if event["ph"] != "X" or event["cat"] != "comm":
                    continue
                name, members = re.fullmatch(r"(.*)\{([\d,]+)\}", event["args"]["group"]).groups()
                members = [int(member) for member in members.split(",")]
                n, op, size = len(members), event["args"]["op"], event["args"].get("bytes")
                sums = calls[f"call.{op}.{name} ({n} ranks)"]
                sums["count"] += 1
                if size is None:
                    continue
                bus = {"all_reduce": 2 * size * (n - 1) / n, "all_gather": size * n * (n - 1) / n, "reduce_scatter": size * (n - 1) / n,
                       "send": size, "recv": size}[op]
                sums["bytes"] += size
                sums["bus"] += bus
                sums["seconds"] += event["dur"] * 1e-6
                if op == "send":
                    sent[rank, members[event["args"]["peer"]]] += size
                elif op != "recv":
                    for other in members:
                        if other != rank:
                            sent[rank, other] += bus / (n - 1)
        out["bubble.trace"] = max(bubbles)
        out["overlap.exposed"] = statistics.mean(exposed_shares)
        for name, sums in calls.items():
            out[f"{name}.count"] = sums["count"]
            if sums["bytes"]:
                out[f"{name}.bytes"] = sums["bytes"]
                out[f"{name}.busbw"] = sums["bus"] / sums["seconds"]
        out.update({f"bytes.{a}.{b}": value for (a, b), value in sent.items()})
        return out


def operations_of(path):
    """Of a file of libtorch's profiler: the time from the first operation to the last, and that of each name without what it called."""
    with gzip.open(path) as file:
        events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X" and e.get("cat") == "cpu_op"]
    own = collections.Counter()
    for thread in {e["tid"] for e in events}:
        stack = []
        for event in sorted((e for e in events if e["tid"] == thread), key=lambda e: (e["ts"], -e["dur"])):
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"]:
                stack.pop()
            if stack:
                own[stack[-1]["name"]] -= event["dur"] * 1e-6
            own[event["name"]] += event["dur"] * 1e-6
            stack.append(event)
    out = {"operations.wall": (max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)) * 1e-6}
    return out | {f"operations.host.{i}": seconds for i, seconds in enumerate(sorted(own.values(), reverse=True)[:15])}


def upper_median(values):
    return sorted(values)[len(values) // 2]


class Numbers(TrainTest):
    def test_every_number_of_the_page(self):
        path, page = trained()
        rows, ranks = lines_of(path / "metrics.jsonl"), lines_of(path / "ranks.jsonl")
        start_of_run = lines_of(path / "events.jsonl")[0]
        later = rows[1:]
        seconds = sum(row["train_time_s"] for row in later)
        own = [sum(row["own_work_s"][rank] for row in ranks[1:]) for rank in range(4)]
        # The model of train_test: 32 wide, 4 layers, 4 heads and 2 KV heads of 8, MLP 64, vocabulary 257, 16 tokens.
        weights = 4 * (32 * (32 + 2 * 16) + 32 * 32 + 3 * 32 * 64) + 257 * 32
        layers = weights - 257 * 32
        flops, again = 6 * weights + 6 * 4 * 32 * 16, 2 * layers + 2 * 4 * 32 * 16
        expected = {
            "steps": rows[-1]["step"], "loss.last": rows[-1]["loss"], "validation.best": min(r["val/loss"] for r in rows if "val/loss" in r),
            "tokens_per_sec.median": upper_median([row["tokens_per_sec"] for row in later]),
            "mfu.median": upper_median([row["tokens_per_sec"] / 4 * flops / 0.5e12 for row in later]),
            "hfu.median": upper_median([row["tokens_per_sec"] / 4 * (flops + again) / 0.5e12 for row in later]),
            "flops_per_token": flops, "recomputed_flops_per_token": again,
            "peak": max(row["mem_peak_gib"] for row in rows) * 2**30, "memory.peak": max(row["mem_peak_gib"] for row in rows) * 2**30,
            "memory.predicted": start_of_run["predicted_bytes"],
            "bubble.median": upper_median([row["bubble_frac"] for row in later]),
            "bubble.ideal": (STAGES - 1) / MICROBATCHES / (1 + (STAGES - 1) / MICROBATCHES),
            "exposed": sum(row["comm_exposed_frac"] * row["train_time_s"] for row in later) / seconds,
            "share.sum": 1, "slowest_rank": own.index(max(own)), "slowest_excess": max(own) / statistics.median(own) - 1,
        }
        expected["bubble.ideal_measured"] = expected["bubble.ideal"]  # forwards and backwards of equal cost on both stages
        for part in PARTS:
            expected[f"share.{part}"] = sum(row[part] * row["train_time_s"] for row in later) / seconds
        for rank in range(4):
            expected[f"memory.peak.rank{rank}"] = next(row for row in ranks if row["step"] == 6)["peak_bytes"][rank]
        expected.update(Traces(path / "trace/step6", 4).figures())
        expected.update(operations_of(path / "trace/operations/rank0.step8.pt.trace.json.gz"))
        expected = {f"0:{name}": value for name, value in expected.items()}
        expected["smoothing_steps"] = 5
        expected["spikes"] = sum(abs(row.get("loss_z", 0)) > 4 for row in rows)
        self.assertEqual(set(page.figures) ^ set(expected), set())
        for name, value in expected.items():
            self.assertAlmostEqual(page.figures[name], value, delta=1e-6 * abs(value) + 1e-9, msg=name)

    def test_plots_have_the_values_of_the_records(self):
        path, page = trained()
        rows = lines_of(path / "metrics.jsonl")
        for section, name, key in (("loss", "loss", "loss"), ("loss", "learning rate", "lr"), ("throughput", "tokens/s", "tokens_per_sec"),
                                   ("throughput", "MFU", "mfu"), ("throughput", "HFU", "hfu"), ("breakdown", "step time", "train_time_s")):
            self.assertEqual(page.series(section, name), {row["step"]: row[key] for row in rows}, name)
        self.assertEqual({x: y for x, y in page.series("loss", "validation").items() if y is not None},
                         {row["step"]: row["val/loss"] for row in rows if "val/loss" in row})
        keep, sum_, weight, smoothed = 1 - 2 / 6, 0, 0, {}
        for row in rows:
            sum_, weight = keep * sum_ + (1 - keep) * row["loss"], keep * weight + 1 - keep
            smoothed[row["step"]] = sum_ / weight
        for step, value in page.series("loss", "smoothed").items():
            self.assertAlmostEqual(value, smoothed[step], delta=1e-9)
        low, high = (page.series("throughput", f"slowest to fastest rank, {end} end") for end in ("lower", "upper"))
        for row in rows:
            self.assertAlmostEqual(low[row["step"]] * row["own_work_max_s"], row["tokens_per_sec"] * row["train_time_s"], delta=1e-3)
            self.assertAlmostEqual(high[row["step"]] * row["own_work_min_s"], row["tokens_per_sec"] * row["train_time_s"], delta=1e-3)
        self.assertEqual(page.source.count('class="checkpoint '), 3, "after steps 3, 6 and 8")

    def test_the_parts_are_the_step(self):
        path, page = trained()
        names = ["forward", "backward", "communication exposed", "bubble", "optimizer", "data", "other"]
        parts = [page.series("breakdown", name) for name in names]
        for row in lines_of(path / "metrics.jsonl"):
            total = sum(part[row["step"]] for part in parts)
            self.assertLess(abs(total / row["train_time_s"] - 1), 0.02)
            self.assertLess(row["train_time_s"] / row["step_time_s"], 1 + 1e-9)
        # What the clock of each rank says of the traced step, against the trace, which notes every wait.
        row = next(row for row in lines_of(path / "metrics.jsonl") if row["step"] == 6)
        traces = Traces(path / "trace/step6", 4)
        working = []
        for rank in range(4):
            [(begin, end)] = traces.spans(rank, "whole step")
            actions, waits = traces.spans(rank, "step", "forward|backward"), joined(traces.spans(rank, "wait"))
            working.append((length(actions) - in_both(actions, waits)) / (end - begin))
        self.assertAlmostEqual(row["forward_time_frac"] + row["backward_time_frac"], statistics.mean(working), delta=0.03)

    def test_memory_through_the_step(self):
        path, page = trained()
        for rank in range(4):
            with gzip.open(path / f"trace/step6/rank{rank}.json.gz") as file:
                samples = [e["args"] for e in json.load(file)["traceEvents"] if e["ph"] == "C" and e["name"] == "memory by purpose"]
            self.assertGreater(len(samples), 20)
            self.assertEqual(len({sample["weights"] for sample in samples}), 1, "weights are flat")
            for purpose in ("weights", "gradients", "states", "activations"):
                self.assertEqual(list(page.series("memory", purpose, rank).values()), [sample[purpose] for sample in samples])
            self.assertGreater(max(s["activations"] for s in samples), 2 * min(s["activations"] for s in samples) + 1)

    def test_timeline(self):
        path, _ = trained()
        made = report(path, "--timeline", "steps.svg", cwd=path)
        self.assertEqual((made.returncode, made.stderr), (0, ""), made)
        drawing = xml.etree.ElementTree.parse(path / "steps.svg").getroot()
        texts = [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
        for words in ("rank 0", "rank 3", "layers", "tp", "channel", "step 2", "step 6", "forward", "backward", "update", "waiting"):
            self.assertIn(words, texts)
        # Steps 3 to 5 were not traced, and are left out.
        marks = {text.text: float(text.get("x")) - 4 for text in drawing.iter("{http://www.w3.org/2000/svg}text")
                 if text.text in ("step 2", "step 6")}
        spans = {step: [Traces(path / f"trace/step{step}", 4).spans(rank, "whole step")[0] for rank in range(4)] for step in (2, 6)}
        second, sixth = (max(end for _, end in each) - min(begin for begin, _ in each) for each in spans.values())
        scale = (1200 - 70 - 15) / (1.1 * second + sixth)
        self.assertAlmostEqual(marks["step 6"] - marks["step 2"], scale * 1.1 * second, delta=0.02)
        self.assertEqual(report(path, "--timeline", "steps.svg", "--watch", cwd=path).returncode, 64)
        without = train("--training.steps", "1", "--lr_scheduler.warmup_steps", "0", *QUIET)
        refused = report(without.path(), "--timeline", "steps.svg", cwd=path)
        self.assertEqual(refused.returncode, 64)
        self.assertRegex(refused.stderr, r"no step was traced\n  fix: ")

    def test_words(self):
        _, page = trained()
        self.assertIn("finished", page.text["top"])
        for words in ("embedding.weight 257 × 32 256 × 32", "layers.*.attention.qkv.weight 64 × 32 32 × 32", "stage 0: layers 0–1 · stage 1: layers 2–3",
                      "tp 2 {0,1} {2,3}", "pp 2 {0,2} {1,3}"):
            self.assertIn(words, page.text["layout"])
        self.assertIn("training.steps 8 1000", page.text["config"])
        self.assertRegex(page.text["environment"], r"To run it again trireme train t.toml -n 4 --parallelism.pp 2 .* --profiler.steps '\[2, 6\]'")
        self.assertIn("rank 0 ended with exit code 0", page.text["environment"])

    @unittest.skipUnless(report_page.CHROMIUM, "chromium is not installed")
    def test_in_a_browser(self):
        path, page = trained()
        pictures = os.environ.get("TRIREME_REPORT_PICTURES")
        for width in (1280, 390):
            with self.subTest(width=width):
                picture = pathlib.Path(pictures or path) / f"report-{width}.png"
                found, errors = report_page.browse(path / "report.html", width, picture)
                self.assertEqual(errors, [])
                self.assertLessEqual(found["width"], width, "it can be scrolled sideways")
                self.assertGreaterEqual(found["smallest"], 11)
                self.assertRegex(found["tip"], r"^step \dloss \d")
                self.assertEqual((found["before"], found["after"]), ("inline", "none"))
                self.assertGreater(picture.stat().st_size, 50_000)


class Continued(TrainTest):
    def test_on_another_layout(self):
        """Four ranks trace steps 2 and 6; two ranks of a pipeline go on after step 3, and trace step 6 again."""
        folder = fresh_folder()
        words = ("--run.name", "r", "--checkpoint.interval", "3", "--profiler.steps", "[2, 6]", *QUIET)
        run = train(*words, "--training.steps", "6", n=4, folder=folder)
        self.assertEqual(run.code, 0, run)
        shutil.rmtree(folder / "runs/r/checkpoints/step-6")
        run = train(*words, "--training.steps", "8", "--parallelism.pp", "2", n=2, folder=folder)
        self.assertEqual(run.code, 0, run)
        path = folder / "runs/r"
        self.assertEqual(len(list((path / "trace/step6").iterdir())), 4, "files of ranks 2 and 3 are there still")
        made = report(path, cwd=folder)
        self.assertEqual((made.returncode, made.stderr), (0, ""), made)
        page = report_page.Page((path / "report.html").read_text())
        self.assertIn("steps 1–3: dp 4; steps 4–8: pp 2", page.text["top"])
        rows = [row for row in lines_of(path / "metrics.jsonl") if row["step"] > 4]
        self.assertEqual(len(rows), 4)
        self.assertAlmostEqual(page.figures["0:tokens_per_sec.median"], upper_median([row["tokens_per_sec"] for row in rows]))
        self.assertAlmostEqual(page.figures["0:bubble.median"], upper_median([row["bubble_frac"] for row in rows]))
        for name, value in Traces(path / "trace/step6", 2).figures().items():
            self.assertAlmostEqual(page.figures[f"0:{name}"], value, delta=1e-6 * abs(value) + 1e-9, msg=name)
        self.assertEqual([name for name in page.figures if re.search(r"rank[23]|bytes\.[23]", name)], [], "the last layout has two ranks")
        self.assertEqual(page.source.count('class="layout '), 3, "where it was continued, in three plots")


class Watch(TrainTest):
    def test_until_the_run_ends(self):
        folder = fresh_folder()
        process = start(folder, [train_test.options.trireme, "train", "t.toml", "--training.steps", "100000", "--checkpoint.interval", "0", *QUIET])
        metrics = folder / "runs/t-single/metrics.jsonl"
        while not (metrics.exists() and metrics.stat().st_size > 2000) and process.poll() is None:
            time.sleep(0.05)
        watching = start(folder, [train_test.options.trireme, "report", "runs/latest", "--watch", "--interval", "1"])
        page = folder / "runs/t-single/report.html"
        while not page.exists() and watching.poll() is None:
            time.sleep(0.05)
        first = report_page.Page(page.read_text())
        self.assertIn("running", first.text["top"])
        self.assertIn('http-equiv="refresh"', first.source)
        time.sleep(1.5)
        later = report_page.Page(page.read_text())
        self.assertGreater(later.figures["0:steps"], first.figures["0:steps"])
        os.kill(process.pid, signal.SIGINT)
        self.assertEqual(finish(process, folder).code, INTERRUPTED)
        watched = finish(watching, folder, timeout=20)
        self.assertEqual(watched.code, 0, watched)
        last = report_page.Page(page.read_text())
        self.assertIn("stopped by Ctrl-C", last.text["top"])
        self.assertNotIn('http-equiv="refresh"', last.source)
        self.assertEqual(last.figures["0:steps"], lines_of(metrics)[-1]["step"])


if __name__ == "__main__":
    train_test.main()
