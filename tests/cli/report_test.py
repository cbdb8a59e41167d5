#!/usr/bin/env python3
"""`trireme report` without a training: files that are missing, cut off or hostile, several runs, and what is refused.

usage: report_test.py TRIREME [CLASS[.test]...]"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import report_page  # noqa: E402

CONFIG = 64
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
trireme = None


def report(*words):
    return subprocess.run([trireme, "report", *map(str, words)], capture_output=True, text=True, timeout=60)


class ReportTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="trireme-report-", ignore_cleanup_errors=True)))

    def make_run(self, name="r", steps=20, **more):
        run = self.folder / name
        run.mkdir()
        rows = [{"step": i, "loss": 3 + 3 / i, "lr": 1e-4 * i, "tokens_per_sec": 1000.0 + i, "train_time_s": 0.5, "step_time_s": 0.6,
                 "data_time_frac": 0.1, "forward_time_frac": 0.3, "backward_time_frac": 0.4, "comm_exposed_frac": 0.1,
                 "optimizer_time_frac": 0.05, "other_time_frac": 0.05, "mem_peak_gib": 0.5} for i in range(1, steps + 1)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        events = [{"time": 1.7e9, "event": "start", "program": "trireme 0.1.0", "command": "trireme train t.toml -n 2", "ranks": 2, "steps": steps,
                   "layout": "pp=1 dp=2 cp=1 tp=1", "predicted_bytes": 4e8, **more.get("start", {})}, *more.get("events", [])]
        (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        (run / "ranks.jsonl").write_text("".join(json.dumps({"step": i, "own_work_s": [0.4, 0.44]}) + "\n" for i in range(1, steps + 1)))
        (run / "config.toml").write_text(more.get("config", '[model]\npreset = "tiny-llama"\n[training]\nseq_len = 64\nglobal_batch_size = 2\n'))
        return run

    def page(self, *words):
        done = report(*words)
        self.assertEqual(done.returncode, 0, done)
        path = words[words.index("-o") + 1] if "-o" in words else words[0] / "report.html"
        return report_page.Page(pathlib.Path(path).read_text())


class Damaged(ReportTest):
    def test_a_cut_last_line(self):
        run = self.make_run()
        with open(run / "metrics.jsonl", "a") as file:
            file.write('{"step":21,"loss":1.')
        done = report(run)
        self.assertEqual((done.returncode, done.stderr), (0, "warning: r: metrics.jsonl: 1 line is not whole, and left out\n"))
        page = report_page.Page((run / "report.html").read_text())
        self.assertEqual(page.figures["0:steps"], 20)
        self.assertIn("1 line is not whole", page.text["environment"])

    def test_missing_files(self):
        run = self.make_run()
        for name in ("events.jsonl", "ranks.jsonl", "config.toml"):
            (run / name).unlink()
        page = self.page(run)
        self.assertEqual(page.figures["0:loss.last"], 3 + 3 / 20)
        for section, words in (("ranks", "ranks.jsonl has none"), ("layout", "config.toml"), ("config", "config.toml is missing"),
                               ("environment", "events.jsonl is missing"), ("memory", "--profiler.steps 20"), ("pipeline", "--profiler.steps 20"),
                               ("overlap", "--profiler.steps 20")):
            self.assertIn(words, page.text[section])

    def test_no_record_yet(self):
        run = self.make_run(steps=0)
        page = self.page(run)
        self.assertIn("metrics.jsonl has no record yet", page.text["loss"])

    def test_traces_that_are_none(self):
        run = self.make_run()
        (run / "trace/step3").mkdir(parents=True)
        (run / "trace/step3/rank0.json.gz").write_bytes(b"\x1f\x8b\x08 no gzip")
        (run / "trace/stepx").mkdir()
        done = report(run)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("rank0.json.gz", done.stderr)

    def test_values_of_other_types(self):
        run = self.make_run()
        (run / "metrics.jsonl").write_text('[1]\n"x"\n{"step":"1","loss":2}\n{"step":1,"loss":null,"loss_hex":"nan","tokens_per_sec":{},"lr":1e400}\n'
                                           '{"step":2,"loss":2.5,"train_time_s":-1,"forward_time_frac":"x"}\n{"step":2,"loss":2.25}\n')
        (run / "ranks.jsonl").write_text('{"step":1,"own_work_s":[null,1]}\n{"step":2,"own_work_s":{"a":1}}\n{"step":3,"own_work_s":[1,2,3]}\n')
        (run / "events.jsonl").write_text('{"event":3,"time":"x"}\n{"event":"start","ranks":-5,"steps":1e300,"predicted_bytes":"many"}\n'
                                          '{"event":"saved","folder":"step-99999999999999999999"}\n{"event":"exit","code":"x"}\n')
        page = self.page(run)
        self.assertEqual(page.figures["0:steps"], 2)
        self.assertEqual(page.figures["0:loss.last"], 2.25, "the last record of a step counts")
        self.assertNotIn("NaN", page.source.replace("NaN:", ""))


class Hostile(ReportTest):
    def test_everything_is_escaped(self):
        run = self.make_run(name="a<b>&'\"", events=[{"time": 1.7e9, "event": "warning", "text": HOSTILE}, {"event": "exit", "code": 0}],
                            start={"command": HOSTILE, "host": HOSTILE, "layout": HOSTILE}, config=f"[run]\nname = '{HOSTILE}'\n")
        page = self.page(run)
        self.assertEqual(page.scripts, 1, "only our own script")
        self.assertNotIn("<img", page.source)
        self.assertIn(HOSTILE, page.text["environment"])
        self.assertIn("a<b>&'\"", page.text["top"])

    def test_nothing_is_loaded(self):
        page = self.page(self.make_run())
        self.assertEqual([link for link in page.links if not link.startswith(("#", "data:"))], [])
        self.assertIn("default-src 'none'", page.source)


class Several(ReportTest):
    def test_are_compared(self):
        a, b = self.make_run("a"), self.make_run("b", steps=10, config='[model]\npreset = "tiny-llama"\n[training]\nseq_len = 32\nglobal_batch_size = 2\n')
        page = self.page(a, b, "-o", self.folder / "both.html")
        self.assertEqual((page.figures["0:steps"], page.figures["1:steps"]), (20, 10))
        self.assertEqual(len(page.series("loss", "a: loss")), 20)
        self.assertEqual(len(page.series("loss", "b: loss")), 10)
        self.assertIn("training.seq_len 64 32 1024", page.text["config"])
        self.assertFalse((a / "report.html").exists())

    def test_eight_runs(self):
        runs = [self.make_run(f"r{i}", steps=5) for i in range(8)]
        page = self.page(*runs, "-o", self.folder / "all.html")
        for i in range(8):
            self.assertEqual(len(page.series("loss", f"r{i}: loss")), 5)
        colours = dict(re.findall(r"--c-run(\d):(#[0-9a-f]{6})", page.source.split("prefers-color-scheme:dark")[0]))
        self.assertEqual(len(set(colours.values())), 8, "a colour of its own for each")
        self.assertIn("c-run7", page.source)

    def test_a_long_run_is_thinned_out(self):
        run = self.make_run(steps=20_000)
        with open(run / "metrics.jsonl", "a") as file:
            file.write(json.dumps({"step": 20_001, "loss": 9.0, "loss_z": 5.5}) + "\n")
        page = self.page(run)
        loss = page.series("loss", "loss")
        self.assertLess(len(loss), 2000)
        self.assertEqual((max(loss.values()), loss[20_001]), (9.0, 9.0), "spikes stay")
        self.assertEqual(page.figures["spikes"], 1)
        self.assertLess(len(page.source), 1_500_000)

    @unittest.skipUnless(report_page.CHROMIUM, "chromium is not installed")
    def test_in_a_browser_without_traces(self):
        a, b = self.make_run("a"), self.make_run("b")
        self.page(a, b, "-o", self.folder / "both.html")
        found, errors = report_page.browse(self.folder / "both.html", 390)
        self.assertEqual(errors, [])
        self.assertLessEqual(found["width"], 390)


class Continued(ReportTest):
    """A run that was continued on another layout: each number is of one of them."""

    def test_on_fewer_ranks(self):
        run = self.make_run(start={"ranks": 4, "layout": "pp=1 dp=4 cp=1 tp=1", "step": 1}, config='[model]\npreset = "tiny-llama"\n',
                            events=[{"time": 1.7e9 + 60, "event": "start", "ranks": 2, "layout": "pp=1 dp=1 cp=1 tp=2", "step": 11, "steps": 20}])
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for row in rows[10:]:
            row.update(tokens_per_sec=500, mem_peak_gib=0.25, comm_exposed_frac=0.3, forward_time_frac=0.1)
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        own = lambda step: [0.4, 0.4, 0.4, 0.9] if step <= 10 else [0.5, 0.6]
        (run / "ranks.jsonl").write_text("".join(json.dumps({"step": i, "own_work_s": own(i)}) + "\n" for i in range(1, 21)))
        page = self.page(run)
        self.assertIn("steps 1–10: dp 4; steps 11–20: tp 2", page.text["top"])
        self.assertEqual(page.figures["0:tokens_per_sec.median"], 500)
        self.assertEqual(page.figures["0:peak"], 2**28)
        self.assertAlmostEqual(page.figures["0:exposed"], 0.3)
        self.assertEqual(page.figures["0:slowest_rank"], 1)
        self.assertEqual(len(page.series("loss", "loss")), 20, "the loss is of the whole run")
        for section in ("loss", "throughput", "breakdown"):
            self.assertIn('class="layout ', page.source.split(f'<section id="{section}">')[1].split("</section>")[0])
        self.assertRegex(page.text["layout"], r"steps 1–10 dp 4 4 1\.0\dK 500 ms 512 MiB steps 11–20 tp 2 2 500 500 ms 256 MiB")
        last, earlier = page.text["ranks"].split("Earlier layout: steps 1–10, dp 4")
        self.assertNotIn("rank 3", last)
        self.assertIn("rank 3", earlier)
        self.assertIn("started (launcher: ), step 11, pp=1 dp=1 cp=1 tp=2", page.text["environment"])


class Refused(ReportTest):
    def refused(self, *words):
        done = report(*words)
        self.assertEqual((done.returncode, done.stdout), (CONFIG, ""), done)
        self.assertIn("\n  fix: ", done.stderr)
        return done.stderr

    def test_what_is_no_run(self):
        (self.folder / "file").write_text("")
        self.assertIn(": no such folder", self.refused(self.folder / "none"))
        self.assertIn(": not a folder", self.refused(self.folder / "file"))
        self.assertIn("not a run, it contains no metrics.jsonl", self.refused(self.folder))

    def test_what_cannot_be_written(self):
        run = self.make_run()
        self.assertIn("nowhere", self.refused(run, "-o", self.folder / "nowhere/x.html"))

    def test_too_many(self):
        run = self.make_run()
        self.assertIn("9 runs: a report is of at most 8", self.refused(*[run] * 9))

    def test_no_interval(self):
        self.assertIn("--interval 0", self.refused(self.make_run(), "--watch", "--interval", "0"))

    def test_a_run_that_has_ended_is_not_watched(self):
        run = self.make_run(events=[{"event": "exit", "code": 0}])
        done = report(run, "--watch")
        self.assertEqual(done.returncode, 0)
        self.assertNotIn("watching", done.stdout)

    def test_help_ends_with_an_example(self):
        done = report("--help")
        self.assertTrue(done.stdout.rstrip().endswith("trireme report runs/a runs/b -o compared.html"), done.stdout)


if __name__ == "__main__":
    trireme = os.path.abspath(sys.argv.pop(1))
    ended = unittest.main(verbosity=2, exit=False).result
    for test, why in ended.skipped:
        print(f"SKIPPED {test.id()}: {why}", flush=True)
    sys.exit(1 if not ended.wasSuccessful() else 77 if ended.skipped else 0)
