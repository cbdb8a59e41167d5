#!/usr/bin/env python3
"""`trireme train` stopped, killed, and started again: the same bits on the same layout, the same losses on any other.

usage: resume_test.py TRIREME [CLASS[.test]...]      TRIREME_KILLS: how often Killed kills its run, 6 if it is not set"""
import collections
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

import train_test
from train_test import CHECKPOINT, CONFIG, STORAGE, F64, QUIET, TrainTest, finish, fresh_folder, shared, train

MANIFEST = "checkpoint_metadata.json"
EVERY_2 = ("--checkpoint.interval", "2")


def manifest_of(checkpoint):
    """The manifest, with the slices that its parts list: docs/checkpoints.md."""
    manifest = json.loads((checkpoint / MANIFEST).read_text())["checkpoint"]
    tensors = {(t["name"], t["kind"]): t | {"slices": []} for t in manifest["tensors"]}
    first = 0
    for index in manifest["parts"]:
        part = json.loads((checkpoint / manifest["files"][index]["name"]).read_text())["checkpoint"]
        assert part["files"] == manifest["files"][first:index]
        for t in part["tensors"]:
            tensors[t["name"], t["kind"]]["slices"] += [[box, file + first, *rest] for box, file, *rest in t["slices"]]
        first = index + 1
    return manifest | {"tensors": list(tensors.values())}


def state_of(checkpoint):
    """Everything that a later step depends on: the hashes of all tensors, and the rest of the state."""
    manifest = manifest_of(checkpoint)
    return manifest["training"], {(t["name"], t["kind"]): [(s[0], s[3]) for s in t["slices"]] for t in manifest["tensors"]}


def records(run_folder):
    """Of each step what must not depend on where a run was interrupted."""
    rows = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: row.get(key) for key in ("step", "loss_hex", "grad_norm_hex", "lr", "tokens", "skipped", "loss_z", "grad_norm_z",
                                           "val/loss", "loss_scale")} for row in rows]


def checkpoints(run_folder):
    found = (p for p in (run_folder / "checkpoints").glob("step-*") if p.name[5:].isdigit() and (p / MANIFEST).exists())
    return sorted(found, key=lambda p: int(p.name[5:]))


def damage(path, at=-100):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def ranks_of(process):
    """The ranks of a launcher, without its helpers."""
    found = []
    for pid in train_test.ranks.descendants(process.pid):
        try:
            if "\0RANK=" in pathlib.Path(f"/proc/{pid}/environ").read_text():
                found.append(pid)
        except OSError:
            pass
    return found


class ResumeTest(TrainTest):
    def same(self, run_folder, other):
        """Two runs ended with the same state, and recorded the same steps."""
        self.assertEqual(records(run_folder), records(other))
        self.assertEqual([p.name for p in checkpoints(run_folder)], [p.name for p in checkpoints(other)])
        self.assertEqual(state_of(checkpoints(run_folder)[-1]), state_of(checkpoints(other)[-1]))


class Killed(ResumeTest):
    words = (*EVERY_2, "--validation.interval", "5", "--validation.fraction", "0.1", "--parallelism.zero", "1")

    def start(self, folder, *more):
        # Sessions of their own: killing the group is killing the job.
        return train_test.start(folder, [train_test.options.trireme, "train", "t.toml", "-n", 2, *self.words, *more])

    def test_kill_9_anywhere(self):
        """Runs that are killed up to ten times each, whole or in part, while they start, step, save, prune and resume, and started again with
        the same command, end as one that was not killed. TRIREME_KILLS kills in all."""
        kills = int(os.environ.get("TRIREME_KILLS", "6"))
        each = min(kills, 10)
        folder = fresh_folder()
        reference = self.ok(finish(self.start(folder, "--training.steps", self.steps), folder, timeout=300)).path()
        times = [json.loads(line)["time"] for line in (reference / "metrics.jsonl").read_text().splitlines()]
        self.seconds_of_training = times[-1] - times[0]  # several times as long with a sanitizer
        killed = resumed = 0
        for chain in range((kills + each - 1) // each):
            rng = random.Random(f"{os.environ.get('TRIREME_SEED', '18')} {chain}")
            with self.subTest(chain=chain):
                run, more_killed, more_resumed = self.killed_often(rng, each)
                self.same(run.path(), reference)
                self.assertEqual([p.name for p in run.path().glob("checkpoints/*") if "tmp" in p.name or "trash" in p.name], [],
                                 "nothing unfinished is left")
                with_checkpoints = [p.name for p in (run.folder / "runs").iterdir() if p.name != "latest" and checkpoints(p)]
                self.assertEqual(len(with_checkpoints), 1, f"one run, from the first checkpoint on: {with_checkpoints}")
            shutil.rmtree(run.folder)
            killed, resumed = killed + more_killed, resumed + more_resumed
        print(f"kills: {killed}, resumed: {resumed}, all with the same bits", flush=True)
        self.assertGreater(resumed, kills // 3, "it hardly came to a checkpoint: the test shows nothing")

    steps = 290

    def killed_often(self, rng, kills):
        """The run that ended at last, the number of kills, and how often it resumed from a checkpoint."""
        folder = fresh_folder()
        resumed = 0
        for kill in range(kills + 1):
            process = self.start(folder, "--training.steps", self.steps)
            if kill < kills:
                self.sleep_for_a_while(rng, process, folder / "runs/latest/metrics.jsonl")
                victims = [process.pid, *ranks_of(process)]
                for pid in victims if rng.random() < 0.5 else [rng.choice(victims)]:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            run = finish(process, folder, timeout=300)
            self.assertNotEqual(run.code, CHECKPOINT, run)
            resumed += "\nresume " in run.stdout
            if run.code == 0:
                return run, kill, resumed
        self.fail(f"it was not killed, and did not end well\n{run}")

    def sleep_for_a_while(self, rng, process, path):
        """Mostly until a little after the first step of this attempt, else for a time that may end before it."""
        if rng.random() < 0.7:
            before = path.stat().st_mtime_ns if path.exists() else 0
            end = time.monotonic() + 30
            while process.poll() is None and time.monotonic() < end and not (path.exists() and path.stat().st_size
                                                                             and path.stat().st_mtime_ns > before):
                time.sleep(0.002)
            time.sleep(rng.uniform(0, max(0.3, self.seconds_of_training / 10)))
        else:
            time.sleep(rng.uniform(0, 1.5))

    def test_in_the_middle_of_an_export(self):
        """Rank 0 is writing the weights for transformers when a rank is killed: the checkpoint was complete before, and is what the next
        start goes on from."""
        for victim in (0, 1):
            with self.subTest(victim=victim):
                folder = fresh_folder()
                with train_test.variables(LD_PRELOAD=str(train_test.faulty_storage()), FAULTY_PATH="model.safetensors", FAULTY_RANK="0", FAULTY_WRITES="1",
                                          FAULTY_HOW="hang"):
                    process = self.start(folder, "--run.name", "r", "--training.steps", "4")
                end = time.monotonic() + 60
                saved = folder / "runs/r/checkpoints"
                while process.poll() is None and time.monotonic() < end and not list(saved.glob("step-4.tmp-*/**/*model.safetensors*")):
                    time.sleep(0.005)
                [pid] = [pid for pid in ranks_of(process) if f"\0RANK={victim}\0" in pathlib.Path(f"/proc/{pid}/environ").read_text()]
                os.kill(pid, signal.SIGKILL)
                run = finish(process, folder)
                self.assertEqual(run.code, train_test.PEER_LOST, run)
                self.assertIn(f"rank {victim} (pid {pid}) was killed by signal 9", run.stderr)
                self.assertFalse((saved / "step-4/exported_files.json").exists(), "it was not in the middle")
                self.assertEqual([p.name for p in checkpoints(folder / "runs/r")], ["step-2", "step-4"])
                state = state_of(saved / "step-4")
                run = self.ok(finish(self.start(folder, "--run.name", "r", "--training.steps", "6"), folder))
                self.assertRegex(run.stdout, r"(?m)^resume +\S+/step-4, after step 4")
                self.assertEqual(sorted(p.name for p in saved.iterdir()), ["latest", "step-4", "step-6"], "nothing unfinished is left")
                self.assertEqual(state_of(saved / "step-4"), state)
                self.assertTrue((saved / "step-6/exported_files.json").exists())

    def test_restarts_by_itself(self):
        reference = self.ok(shared(*self.words, "--training.steps", "40", n=2)).path()
        folder = fresh_folder()
        process = self.start(folder, "--training.steps", "40", "--max-restarts", "3")
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end and not checkpoints(folder / "runs/t-dp2"):
            time.sleep(0.005)
        os.kill(ranks_of(process)[-1], signal.SIGKILL)
        run = self.ok(finish(process, folder))
        self.assertIn("resume", run.stdout)
        self.assertRegex(run.stderr, "restart")
        self.same(folder / "runs/t-dp2", reference)


class Saves(ResumeTest):
    def test_memory_that_is_too_small_and_steps_that_are_kept(self):
        """Shared runs have checkpoint.buffer_mb = 0: what the state needs."""
        words = (*EVERY_2, "--training.steps", "10", "--checkpoint.keep", "2", "--checkpoint.keep_every", "4")
        run = self.ok(train(*words, "--checkpoint.buffer_mb", "0.1", folder=fresh_folder()))
        self.assertIn("warning: saves in the background have 97.7 KiB of memory per rank (checkpoint.buffer_mb), and the state of a rank has 411 KiB: "
                      "after each save the next update waits for the disk", run.stdout)
        self.assertEqual([p.name for p in checkpoints(run.path())], ["step-4", "step-8", "step-10"])
        self.assertNotIn("saves in the background", self.ok(train_test.two_ranks()).stdout)

    def test_the_last_one_is_tried_after_too_many_failures(self):
        """The save of step 3 fails when all steps are done: the run may still succeed, by its last save."""
        folder = fresh_folder()
        with train_test.variables(LD_PRELOAD=str(train_test.faulty_storage()), FAULTY_PATH="checkpoints/step-3.tmp", FAULTY_WRITES="1",
                                  FAULTY_HOW="late", FAULTY_RANK=""):
            run = self.ok(train("--run.name", "r", "--checkpoint.interval", "3", "--checkpoint.max_failures", "1", folder=folder))
        self.assertRegex(run.stdout, r"warning: checkpoint 3 was not saved, training continues: [\s\S]*Input/output error")
        self.assertEqual([p.name for p in checkpoints(run.path())], ["step-4"])
        with train_test.variables(LD_PRELOAD=str(train_test.faulty_storage()), FAULTY_PATH="checkpoints/step-3.tmp", FAULTY_WRITES="1",
                                  FAULTY_RANK=""):
            run = train("--run.name", "r2", "--checkpoint.interval", "3", "--checkpoint.max_failures", "1", "--checkpoint.async", "false",
                        folder=folder)
        self.one_error(run, STORAGE, "the last 1 checkpoints were not saved, from step 3 on", "checkpoint.max_failures = 1")

    def test_one_of_the_replicas_reads(self):
        """Four ranks with the same weights: each byte of the checkpoint is read once, and by few of them."""
        folder = fresh_folder()
        words = ("--run.name", "r", "--parallelism.zero", "0", *F64, *QUIET)
        self.ok(train(*words, n=4, folder=folder))
        saved = folder / "runs/r/checkpoints/step-4"
        sizes = {path.name: path.stat().st_size for path in saved.glob("rank-*.safetensors")}
        with train_test.variables(LD_PRELOAD=str(train_test.faulty_storage()), FAULTY_PATH="step-4/rank-", FAULTY_LOG=str(folder / "reads")):
            run = self.ok(train(*words, "--training.steps", "5", n=4, folder=folder))
        self.assertEqual(len(run.metrics()), 5)
        read = collections.Counter()
        for line in (folder / "reads").read_text().splitlines():
            *_, path, size = line.split()
            if path.endswith(".safetensors"):
                read[pathlib.Path(path).name] += int(size)
        self.assertEqual(set(read), set(sizes))
        slack = 32 << 10  # headers, and random states of each rank
        for name, size in sizes.items():
            self.assertTrue(size - slack <= read[name] <= size + slack, f"{name}: {read[name]} bytes read, of {size}")


class Stopped(ResumeTest):
    def test_goes_on_in_a_new_run(self):
        for words in ((), ("--checkpoint.async", "false")):
            with self.subTest(words=words):
                folder = fresh_folder()
                self.ok(train(*words, *EVERY_2, "--training.steps", "6", n=2, folder=folder))
                run = self.ok(train(*words, *EVERY_2, "--training.steps", "12", "--resume", "runs/t-dp2", n=2, folder=folder))
                self.assertRegex(run.stdout, r"(?m)^resume +runs/t-dp2/checkpoints/step-6, after step 6 · .*training.steps: 6 in the checkpoint, 12 now")
                self.assertEqual(os.readlink(folder / "runs/latest"), "t-dp2-2")
                self.assertEqual([r["step"] for r in records(run.path())], list(range(7, 13)))

    def test_sigusr1_saves_and_goes_on(self):
        folder = fresh_folder()
        process = train_test.start(folder, [train_test.options.trireme, "train", "t.toml", "-n", 2, "--training.steps", 1000000])
        end = time.monotonic() + 60
        path = folder / "runs/latest/metrics.jsonl"
        while process.poll() is None and time.monotonic() < end and not (path.exists() and path.stat().st_size):
            time.sleep(0.01)
        process.send_signal(signal.SIGUSR1)
        while process.poll() is None and time.monotonic() < end and not checkpoints(folder / "runs/latest"):
            time.sleep(0.01)
        [saved] = checkpoints(folder / "runs/latest")
        self.assertIsNone(process.poll(), "it goes on")
        process.send_signal(signal.SIGTERM)
        run = finish(process, folder)
        self.assertEqual(run.code, train_test.PREEMPTED, run)
        self.assertGreater(int(checkpoints(folder / "runs/latest")[-1].name[5:]), int(saved.name[5:]))

    def test_which_run_goes_on(self):
        folder = fresh_folder()
        first = self.ok(train(*EVERY_2, "--training.steps", "4", n=2, folder=folder))
        self.assertNotIn("resume", first.stdout)
        again = self.ok(train(*EVERY_2, "--training.steps", "4", n=2, folder=folder))
        self.assertRegex(again.stdout, r"^\S+/t-dp2 is complete \(4 steps\): nothing to do\n  --resume never starts a new run$")
        self.assertEqual(os.readlink(folder / "runs/latest"), "t-dp2")
        self.assertNotIn("resume", self.ok(train(*EVERY_2, "--training.steps", "4", "--resume", "never", n=2, folder=folder)).stdout)
        self.assertEqual(os.readlink(folder / "runs/latest"), "t-dp2-2")
        process = train_test.start(folder, [train_test.options.trireme, "train", "t.toml", "-n", 2, *EVERY_2, "--training.steps", 300])
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end and not checkpoints(folder / "runs/t-dp2-3"):
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        finish(process, folder)
        # Another config is another run; never means never; the same one goes on, on any number of ranks.
        self.assertNotIn("resume", self.ok(train(*EVERY_2, "--training.steps", "3", "--optimizer.lr", "1e-3", folder=folder)).stdout)
        self.assertNotIn("resume", self.ok(train(*EVERY_2, "--training.steps", "3", "--resume", "never", folder=folder)).stdout)
        run = self.ok(train(*EVERY_2, "--training.steps", "300", *QUIET, folder=folder))
        self.assertEqual(os.readlink(folder / "runs/latest"), "t-dp2-3")
        self.assertEqual([r["step"] for r in records(run.path())], list(range(1, 301)))


    def test_a_complete_run_is_not_trained_again(self):
        """Also without a launcher of ours, by a launcher that restarts, and if it ended before its weights for transformers were written."""
        folder = fresh_folder()
        words = ("--run.name", "r", *EVERY_2, "--training.steps", "4")
        run = self.ok(train(*words, folder=folder))
        files = {p: p.read_bytes() for p in (folder / "runs/r").rglob("*") if p.is_file()}
        for ranks in (None, 2):
            self.assertIn("runs/r is complete (4 steps): nothing to do\n  --resume never", self.ok(train(*words, n=ranks, folder=folder)).stdout)
        self.assertEqual({p: p.read_bytes() for p in (folder / "runs/r").rglob("*") if p.is_file()}, files)
        self.assertEqual(os.listdir(folder / "runs").count("r-2"), 0)
        (run.path() / "checkpoints/step-4/exported_files.json").unlink()
        self.assertIn("trireme convert runs/r/checkpoints/step-4 OUT --to hf", self.ok(train(*words, folder=folder)).stdout)
        self.assertRegex(self.ok(train(*words[:-1], "6", folder=folder)).stdout, r"(?m)^resume +\S+/step-4, after step 4")

    def test_a_complete_run_with_another_config_is_an_error(self):
        folder = fresh_folder()
        words = ("--run.name", "r", *EVERY_2, "--training.steps", "4")
        self.ok(train(*words, folder=folder))
        for key, value, then in (("run.seed", "7", "42"), ("optimizer.lr", "0.5", ""), ("model.num_hidden_layers", "1", "")):
            run = train(*words, "--" + key, value, folder=folder)
            self.one_error(run, train_test.CHECKPOINT, "runs/r: is complete (4 steps), and the config no longer matches it", f"{key}: {then}",
                           " in the checkpoint, ", "fix: --resume never for a new run next to it, or --run.name")
        # What has no effect on the result may differ, and fewer steps than it has done are done.
        for more in (("--metrics.interval", "3"), ("--training.micro_batch_size", "1"), ("--training.steps", "2")):
            self.assertIn("runs/r is complete (4 steps): nothing to do", self.ok(train(*words[:-2], *(more if more[0].endswith("steps") else words[-2:] + more),
                                                                                       folder=folder)).stdout)

    def test_a_run_that_is_running_is_an_error(self):
        for name, words in (("s", ("--checkpoint.interval", "0")), ("r", EVERY_2)):  # also before its first checkpoint
            folder = fresh_folder()
            run = folder / "runs" / name
            first = train_test.start(folder, [train_test.options.trireme, "train", "t.toml", "--run.name", name, *words, "--training.steps", 1000000])
            end = time.monotonic() + 60
            while first.poll() is None and time.monotonic() < end and not ((run / ".lock").exists() if name == "s" else checkpoints(run)):
                time.sleep(0.01)
            second = finish(train_test.start(folder, first.args), folder)
            first.send_signal(signal.SIGTERM)
            self.assertEqual(finish(first, folder).code, train_test.PREEMPTED)
            self.one_error(second, CONFIG, f"runs/{name}: another run writes to this folder: pid {first.pid} on host", "fix: wait until that run ends")
            self.assertFalse((folder / f"runs/{name}-2").exists())
        (folder / "runs/r/.lock").mkdir()
        self.one_error(train("--run.name", "r", *EVERY_2, folder=folder), CONFIG, "runs/r/.lock: cannot be read as a lock file", "fix: remove it")
        self.assertFalse((folder / "runs/r-2").exists(), "it is not trained a second time")


    def test_of_a_run_that_cannot_be_read_nobody_knows_whether_it_goes_on(self):
        """Its name has the date, so another run might be meant: it is not trained again without a word."""
        folder = fresh_folder()
        named = ("--run.name", "p-%date", "--checkpoint.interval", "2")
        self.ok(train(*named, folder=folder))
        [run] = [path for path in (folder / "runs").iterdir() if path.name.startswith("p-")]
        (run / "checkpoints/step-2").is_dir() and shutil.rmtree(run / "checkpoints/step-2")
        faults = {"LD_PRELOAD": str(train_test.faulty_storage()), "FAULTY_PATH": "checkpoints/step-4/", "FAULTY_READS": "1000000", "FAULTY_RANK": ""}
        with train_test.variables(**faults):
            again = train(*named, "--training.steps", "6", folder=folder)
        self.one_error(again, STORAGE, f"whether runs/{run.name} goes on is not known", "Input/output error", "--resume never for a new run")
        with train_test.variables(**faults):
            read = finish(train_test.start(folder, [train_test.options.trireme, "checkpoint", "verify", run]), folder)
        self.assertNotEqual(read.code, 0, read)

    def test_a_name_that_looks_like_a_second_run(self):
        """gpt-2 is another experiment, not the second run of gpt."""
        folder = fresh_folder()
        for name, rate in (("gpt", "0.01"), ("gpt-2", "0.05")):
            self.ok(train("--run.name", name, "--optimizer.lr", rate, *EVERY_2, "--training.steps", "4", folder=folder))
        other = {p: p.read_bytes() for p in (folder / "runs/gpt-2").rglob("*") if p.is_file()}
        run = self.ok(train("--run.name", "gpt", "--optimizer.lr", "0.01", *EVERY_2, "--training.steps", "8", folder=folder))
        self.assertRegex(run.stdout, r"(?m)^resume +runs/gpt/checkpoints/step-4, after step 4")
        self.assertNotIn("optimizer.lr", run.stdout)
        self.assertEqual({p: p.read_bytes() for p in (folder / "runs/gpt-2").rglob("*") if p.is_file()}, other)

    def restarted(self, folder, name, resume, killed_when, *words):
        """A run under `trireme launch --max-restarts 1` whose rank is killed once `killed_when(run)` holds."""
        process = train_test.start(folder, [train_test.options.trireme, "launch", "-n", 1, "--max-restarts", 1, "--logs", folder / f"logs-{name}",
                                            "--", train_test.options.trireme, "train", "t.toml", "--run.name", name, "--resume", resume,
                                            "--training.steps", 150, *QUIET, *words])
        path = folder / "runs" / name
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end and not (path.exists() and killed_when(path)):
            time.sleep(0.005)
        os.kill(ranks_of(process)[-1], signal.SIGKILL)
        run = self.ok(finish(process, folder))
        self.assertIn("restart 1 of at most 1", run.stderr)
        self.assertFalse((folder / f"runs/{name}-2").exists(), "it goes on in the folder of the first attempt")
        return run, [r["step"] for r in records(path)]

    def test_a_restart_keeps_its_folder(self):
        """Whatever checkpoint.resume says; and a step is recorded once, also if it was done again because nothing was saved."""
        folder = fresh_folder()
        self.ok(train("--run.name", "base", "--training.steps", "4", folder=folder))
        recorded = lambda run: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text().count("\n") >= 3
        _, steps = self.restarted(folder, "path", "runs/base", recorded, "--checkpoint.interval", "0")
        self.assertEqual(steps, list(range(5, 151)))
        run, steps = self.restarted(folder, "never", "never", checkpoints, *EVERY_2)
        self.assertEqual(steps, list(range(1, 151)))
        self.assertLess(int(re.search(r"(?m)^done +(\d+) steps", run.stdout)[1]), 150, "from its own checkpoint")

    def test_the_same_command_again_goes_on(self):
        """Also one that began from a checkpoint of another run: a scheduler that starts it again does not know better."""
        folder = fresh_folder()
        self.ok(train("--run.name", "base", "--training.steps", "4", folder=folder))
        words = ("--run.name", "r", "--resume", "runs/base", *EVERY_2, "--training.steps", "150", *QUIET)
        process = train_test.start(folder, [train_test.options.trireme, "train", "t.toml", *words])
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end and not checkpoints(folder / "runs/r"):
            time.sleep(0.005)
        process.kill()
        finish(process, folder)
        run = self.ok(train(*words, folder=folder))
        self.assertLess(int(re.search(r"(?m)^done +(\d+) steps", run.stdout)[1]), 146, "from its own checkpoint")
        self.assertEqual([r["step"] for r in records(folder / "runs/r")], list(range(5, 151)))

    def test_what_is_unfinished_is_removed_first(self):
        """Before anything that may fail, for want of space for instance: the next attempt needs what the interrupted save has taken."""
        folder = fresh_folder()
        self.ok(train("--run.name", "r", "--training.steps", "4", folder=folder))
        unfinished = folder / "runs/r/checkpoints/step-9.tmp-0123456789abcdef0123456789abcdef"
        unfinished.mkdir()
        self.one_error(train("--run-folder", "runs/r", "--training.steps", "4", n=1, folder=folder), CONFIG, "nothing is left to do")
        self.assertFalse(unfinished.exists())


class OtherLayouts(ResumeTest):
    def test_losses_are_those_of_one_rank(self):
        """One rank, then four with ZeRO 3, then two with tensor parallelism: as one rank without a stop, to 1e-12."""
        reference = self.ok(shared(*F64, *QUIET, "--training.steps", "9"))
        folder = fresh_folder()
        layouts = ((1, ()), (4, ("--parallelism.tp", "2", "--parallelism.zero", "3")), (2, ("--parallelism.tp", "2")))
        common = (*F64, *QUIET, "--run.name", "one", "--lr_scheduler.decay_end_step", "9")
        reference = self.ok(shared(*common, "--training.steps", "9"))
        for steps, (n, words) in zip((3, 6, 9), layouts):
            run = self.ok(train(*common, *words, "--training.steps", steps, n=n, folder=folder))
        self.assertEqual(os.readlink(folder / "runs/latest"), "one")
        self.close(run.losses(), reference.losses(), 1e-12)
        self.close([r["grad_norm"] for r in run.metrics()], [r["grad_norm"] for r in reference.metrics()], 1e-12)


NANOTRON = ("--checkpoint.format", "nanotron")


class Nanotron(ResumeTest):
    """checkpoint.format = "nanotron": its files, and the same promises as of the other layout."""

    def files_of(self, checkpoint):
        return {str(p.relative_to(checkpoint)) for p in checkpoint.rglob("*") if p.is_file()} - {"config.json", "exported_files.json",
                                                                                                        "model.safetensors"}

    def test_the_files(self):
        one = {"checkpoint_metadata.json", "rank-00000.json", "optimizer/optimizer_config.json", "optimizer/optimizer_tp-0-of-1_dp-0-of-1_pp-0-of-1.pt",
               "lr_scheduler/lr_scheduler_tp-0-of-1_dp-0-of-1_pp-0-of-1.pt", "random/tp-0-of-1_dp-0-of-1_pp-0-of-1.pt"}
        modules = ["embedding", "head", "norm"] + [f"layers/{i}/{m}" for i in (0, 1) for m in (
            "attention/qkv", "attention/out", "attention_norm", "mlp/gate_up", "mlp/down", "mlp_norm")]
        run = self.ok(train(*NANOTRON, "--training.steps", "2"))
        self.assertEqual(self.files_of(checkpoints(run.path())[-1]), one | {f"model/{m}/model_weight.safetensors" for m in modules})
        config = json.loads((checkpoints(run.path())[-1] / "optimizer/optimizer_config.json").read_text())
        self.assertEqual((config["type"], config["parallelizer"], config["configs"]["lr"]), ("adamw", {"tp_size": 1, "dp_size": 1, "pp_size": 1}, 0.01))
        run = self.ok(train(*NANOTRON, "--training.steps", "2", "--parallelism.tp", "2", n=4))
        places = [f"tp-{t}-of-2_dp-{d}-of-2_pp-0-of-1.pt" for t in (0, 1) for d in (0, 1)]
        self.assertEqual(self.files_of(checkpoints(run.path())[-1]),
                         {"checkpoint_metadata.json", "optimizer/optimizer_config.json", *(f"rank-0000{r}.json" for r in range(4))}
                         | {f"{folder}_{place}" for folder in ("optimizer/optimizer", "lr_scheduler/lr_scheduler") for place in places}
                         | {f"random/{place}" for place in places}
                         | {f"model/{m}/model_weight.safetensors" for m in modules if "norm" in m}
                         | {f"model/{m}/model_weight_pp-rank-0-of-1_tp-rank-{t}-of-2.safetensors" for m in modules if "norm" not in m for t in (0, 1)})
        self.reshaped(run)
        self.with_files_of_another(checkpoints(run.path())[-1])

    def program(self, *words):
        return subprocess.run([train_test.options.trireme, *map(str, words)], capture_output=True, text=True)

    def reshaped(self, run):
        """Into the other layout: without what only this one has."""
        told = self.program("reshape", run.path(), "--to", "tp=1,dp=2", "-o", run.folder / "reshaped")
        self.assertEqual(told.returncode, 0, told)
        target = run.folder / "reshaped/step-2"
        self.assertEqual(self.files_of(target), {"checkpoint_metadata.json", "rank-00000.json", "rank-00000.safetensors", "rank-00001.json",
                                                  "rank-00001.safetensors"})
        self.assertEqual(self.program("checkpoint", "verify", target).returncode, 0)
        weights = lambda saved: {(t["name"], t["kind"]) for t in manifest_of(saved)["tensors"] if t["kind"] not in ("model", "random")}
        self.assertEqual(weights(target), weights(checkpoints(run.path())[-1]))

    def with_files_of_another(self, checkpoint):
        """Files with tensors that the manifest does not list are of another checkpoint; what else is there is the user's."""
        (checkpoint / "model/notes.txt").write_text("mine")
        self.assertEqual(self.program("checkpoint", "verify", checkpoint).returncode, 0)
        for name in ("model/norm/model_weight_pp-rank-0-of-1_tp-rank-1-of-2.safetensors", "optimizer/optimizer_tp-9-of-10_dp-0-of-2_pp-0-of-1.pt",
                     "model/layers/2/norm/model_weight.safetensors"):
            (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(checkpoint / "model/norm/model_weight.safetensors", checkpoint / name)
            told = self.program("checkpoint", "verify", checkpoint)
            self.assertEqual(told.returncode, CHECKPOINT, told)
            self.assertIn(f'"{name}": is not of this checkpoint', told.stdout + told.stderr)
            (checkpoint / name).unlink()

    def test_killed_and_started_again(self):
        """The same bits, with and without a background, and old checkpoints are removed."""
        words = (*NANOTRON, *EVERY_2, "--parallelism.zero", "1", "--training.steps", "16")
        reference = self.ok(shared(*words, n=2)).path()
        self.assertEqual([p.name for p in checkpoints(reference)], ["step-14", "step-16"])
        for more in ((), ("--checkpoint.async", "false")):
            folder = fresh_folder()
            process = train_test.start(folder, [train_test.options.trireme, "train", "t.toml", "-n", 2, *words, *more])
            end = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < end and not checkpoints(folder / "runs/latest"):
                time.sleep(0.005)
            os.killpg(process.pid, signal.SIGKILL)
            finish(process, folder)
            run = self.ok(train(*words, *more, n=2, folder=folder))
            self.assertRegex(run.stdout, r"(?m)^resume +\S+/step-")
            self.same(run.path(), reference)
            self.assertEqual(sorted(p.name for p in run.path().glob("checkpoints/*")), ["latest", "step-14", "step-16"])

    def test_other_layouts(self):
        """On one rank, then on four with ZeRO 3, then on two in the other format, and back: the losses of one rank, to 1e-12."""
        common = (*F64, *QUIET, "--run.name", "one", "--lr_scheduler.decay_end_step", "12")
        reference = self.ok(shared(*common, "--training.steps", "12"))
        folder = fresh_folder()
        layouts = ((1, NANOTRON), (4, (*NANOTRON, "--parallelism.tp", "2", "--parallelism.zero", "3")), (2, ("--parallelism.tp", "2")), (2, NANOTRON))
        for steps, (n, words) in zip((3, 6, 9, 12), layouts):
            run = self.ok(train(*common, *words, "--training.steps", steps, n=n, folder=folder))
        self.close(run.losses(), reference.losses(), 1e-12)
        self.close([r["grad_norm"] for r in run.metrics()], [r["grad_norm"] for r in reference.metrics()], 1e-12)

    def test_damage(self):
        """The newest is damaged, in a tensor, between two, or lacks a file: the one before is used. None is left: exit code 66."""
        folder = fresh_folder()
        words = (*NANOTRON, *EVERY_2, "--run.name", "r", "--checkpoint.keep", "0")
        self.ok(train(*words, "--training.steps", "8", folder=folder))
        rank = "tp-0-of-1_dp-0-of-1_pp-0-of-1.pt"
        saved = folder / "runs/r/checkpoints"
        damage(saved / f"step-8/optimizer/optimizer_{rank}", 60_000)
        damage(saved / f"step-6/optimizer/optimizer_{rank}", -30)
        (saved / f"step-4/lr_scheduler/lr_scheduler_{rank}").unlink()
        run = self.ok(train(*words, "--training.steps", "10", folder=folder))
        said = run.stdout + run.stderr
        self.assertRegex(said, rf"step-8/optimizer/optimizer_{rank}: the bytes from[\s\S]*they are damaged")
        self.assertRegex(said, rf"step-6: 1 fault\n[^\n]*optimizer/optimizer_{rank}: the \d+ bytes that are in no tensor")
        self.assertRegex(said, rf"step-4: 1 fault\n[^\n]*lr_scheduler/lr_scheduler_{rank}: is missing")
        self.assertRegex(run.stdout, r"(?m)^resume +\S+/step-2, after step 2")
        for each in checkpoints(folder / "runs/r"):
            damage(each / f"random/{rank}", 500)
        self.one_error(train(*words, "--training.steps", "12", folder=folder), CHECKPOINT, "no other checkpoint is left", f"random/{rank}", "fix: ")

    def test_a_folder_of_the_user_stays(self):
        folder = fresh_folder()
        words = (*NANOTRON, *EVERY_2, "--run.name", "r")
        self.ok(train(*words, "--training.steps", "4", folder=folder))
        notes = folder / "runs/r/checkpoints/step-2/model/notes"
        notes.mkdir()
        self.ok(train(*words, "--training.steps", "10", folder=folder))
        self.assertEqual([p.name for p in checkpoints(folder / "runs/r")], ["step-2", "step-8", "step-10"])
        self.assertTrue(notes.exists())


class Refused(ResumeTest):
    def stopped(self, *words):
        folder = fresh_folder()
        self.ok(train("--run.name", "r", "--training.steps", "4", *EVERY_2, *words, folder=folder))
        return folder

    def again(self, folder, *words, **more):
        return train("--run.name", "r", *(() if "--training.steps" in words else ("--training.steps", "8")), *EVERY_2, *words, folder=folder, **more)

    def test_a_run_that_has_changed(self):
        folder = self.stopped()
        for words, parts in ((("--model.hidden_size", "48"), ("model.hidden_size: 32 in the checkpoint, 48 now",)),
                             (("--model.num_hidden_layers", "3", "--run.seed", "7"),
                              ("model.num_hidden_layers: 2 in the checkpoint, 3 now", "run.seed: 42 in the checkpoint, 7 now")),
                             (("--training.seq_len", "8"), ("stage 1: from step 1, 16 tokens per sample in the checkpoint",)),
                             (("--data.0.attention", "document"), ("16 tokens per sample, attention of documents now",)),
                             (("--data.0.positions", "document"), ("16 tokens per sample, positions of documents now",)),
                             (("--optimizer.name", "sgd"), ('optimizer.name: "adamw" in the checkpoint, "sgd" now',))):
            with self.subTest(words=words):
                self.one_error(self.again(folder, *words), CHECKPOINT, *parts, "fix: ")
        for name in ("book.ds", "book.ds.metadata", "book.ds.index"):
            (folder / name).unlink(missing_ok=True)
        text = folder / "other.txt"
        text.write_text("another book " * 500)
        subprocess.run([train_test.options.trireme, "data", "prepare", text, "-t", "bytes", "-o", "book"], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        self.one_error(self.again(folder), CHECKPOINT, "stage 1 source 1: ", "tokens", "fix: ")
        run = self.ok(self.again(folder, "--checkpoint.accept_changes", "data"))
        self.assertRegex(run.stdout, r"(?m)^resume +\S+/step-4, after step 4 · .*stage 1 source 1")

    def test_a_refused_start_leaves_no_logs(self):
        folder = self.stopped()
        before = sorted(p.name for p in (folder / "runs/r").iterdir())
        run = self.again(folder, "--model.hidden_size", "48", n=2)
        self.assertEqual(run.code, CHECKPOINT, run)
        self.assertNotIn("logs:", run.stderr)
        self.assertNotIn("nothing is lost", run.stderr, "which the other rank says of itself")
        self.assertEqual(sorted(p.name for p in (folder / "runs/r").iterdir()), before)
        self.assertIn("--checkpoint.accept_changes seed\n", self.again(folder, "--run.seed", "7").stderr, "only what applies is offered")

    def test_accepted(self):
        folder = self.stopped()
        run = self.ok(self.again(folder, "--optimizer.name", "sgd", "--run.seed", "7", "--checkpoint.accept_changes", "optimizer,seed"))
        self.assertEqual(len(run.metrics()), 8)
        self.assertEqual(manifest_of(run.path() / "checkpoints/step-8")["training"]["optimizer_steps"], 4, "its state began anew")

    def test_another_tokenizer(self):
        folder = self.stopped()
        text = (folder / "t.toml").read_text().replace('path = "bytes"', 'path = "bpe-tokenizer.json"').replace("book.ds", "bpe.ds")
        (folder / "t.toml").write_text(text.replace("vocab_size = 257", "vocab_size = 300"))
        self.one_error(self.again(folder), CHECKPOINT, "model.vocab_size: 257 in the checkpoint, 300 now", "tokenizer: ", "fix: ")

    def test_a_manifest_that_was_edited(self):
        folder = self.stopped()
        path = folder / "runs/r/checkpoints/step-4" / MANIFEST
        path.write_text(path.read_text().replace('"step": 4', '"step": 3'))
        run = self.ok(self.again(folder))
        self.assertRegex(run.stdout + run.stderr, r"step-4\S*: its hash is wrong[\s\S]*trying the checkpoint before it")
        self.assertRegex(run.stdout, r"(?m)^resume +\S+/step-2, after step 2")

    def test_a_checkpoint_that_is_a_symlink(self):
        """It may lead anywhere: the one before is used. Given by name, it is refused."""
        folder = self.stopped()
        checkpoint = folder / "runs/r/checkpoints/step-4"
        checkpoint.rename(folder / "elsewhere")
        checkpoint.symlink_to(folder / "elsewhere")
        self.one_error(train("--run.name", "new", "--training.steps", "8", "--resume", checkpoint, folder=folder), 77, "is a symlink", "fix: ")
        run = self.ok(self.again(folder))
        self.assertRegex(run.stdout, r"(?m)^resume +\S+/step-2, after step 2")
        self.assertIn("step-4 is renamed to step-4.damaged", run.stdout)
        self.assertTrue((folder / "elsewhere" / MANIFEST).exists())

    def test_a_damaged_checkpoint(self):
        """The newest is damaged: the one before is used, and the result is the same. None is left: exit code 66."""
        folder = self.stopped()
        damage(folder / "runs/r/checkpoints/step-4/rank-00000.safetensors")
        run = self.ok(self.again(folder, "--checkpoint.keep", "0"))
        self.assertRegex(run.stdout + run.stderr, r"step-4[\s\S]*rank-00000.safetensors[\s\S]*trying the checkpoint before it")
        self.assertIn("step-4 is renamed to step-4.damaged", run.stdout)
        self.assertTrue((run.path() / "checkpoints/step-4.damaged/rank-00000.safetensors").exists(), "nothing is lost")
        self.assertEqual([p.name for p in checkpoints(run.path())], ["step-2", "step-4", "step-6", "step-8"], "and it was saved again")
        self.assertRegex(run.stdout, r"(?m)^resume +\S+/step-2, after step 2")
        self.assertEqual([r["step"] for r in records(run.path())], list(range(1, 9)))
        for saved in checkpoints(run.path()):
            damage(saved / "rank-00000.safetensors", 20)
        self.one_error(self.again(folder, "--training.steps", "12"), CHECKPOINT, "no other checkpoint is left", "fix: ")

    def test_storage_that_cannot_be_read(self):
        """One rank has read errors for a while: it tries again. They stay: the start ends, and the checkpoint is as good as before."""
        folder = self.stopped()
        with_faults = lambda reads: {"LD_PRELOAD": str(train_test.faulty_storage()), "FAULTY_PATH": "checkpoints/step-4/", "FAULTY_RANK": "1", "FAULTY_READS": reads}
        with train_test.variables(**with_faults("1000000")):
            run = self.again(folder, n=2)
        self.one_error(run, STORAGE, "rank 1: ", "runs/r/checkpoints/step-4", "Input/output error", "fix: check the disk")
        self.assertEqual([p.name for p in checkpoints(folder / "runs/r")], ["step-2", "step-4"], "nothing was renamed")
        with train_test.variables(FAULTY_HOW="hang", **with_faults("1000000")):
            run = self.again(folder, "--checkpoint.stall_warning_s", "1", "--checkpoint.stall_timeout_s", "3", n=2)
        self.assertEqual(run.code, STORAGE, run)
        self.assertRegex(run.stderr, r"warning: rank 1: \S+step-4: the storage does not respond: nothing was read for ")
        self.assertRegex(run.stderr, r"error: rank 1: \S+step-4: the storage does not respond[\s\S]*fix: check the disk")
        with train_test.variables(**with_faults("3")):
            run = self.ok(self.again(folder, n=2))
        self.assertRegex(run.stdout, r"(?m)^resume +\S+/step-4, after step 4")

    def test_paths(self):
        folder = self.stopped()
        self.one_error(train("--resume", "runs/no", folder=folder), CHECKPOINT, 'checkpoint.resume = "runs/no": no such folder', "fix: ")
        self.one_error(train("--resume", ".", folder=folder), CHECKPOINT, "no checkpoint there", "fix: ")
        self.one_error(train("--run.name", "new", "--training.steps", "4", "--resume", "runs/r", folder=folder), CONFIG, "nothing is left to do",
                       "fix: ")
        self.ok(train("--run.name", "new", "--training.steps", "5", "--resume", "runs/r/checkpoints/step-2", folder=folder))
        self.assertEqual([r["step"] for r in records(folder / "runs/new")], [3, 4, 5])


if __name__ == "__main__":
    train_test.main()
