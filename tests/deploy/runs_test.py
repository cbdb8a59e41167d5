#!/usr/bin/env python3
"""The scripts of deploy/ train a model: under a Slurm of one node, with mpirun on this host, and as the two pods of each manifest.

usage: runs_test.py TRIREME [CLASS[.test]...]"""
import os
import pathlib
import shutil
import signal
import sys
import unittest

sys.dont_write_bytecode = True
try:
    import yaml
except ModuleNotFoundError:
    print("skipped: PyYAML is not installed (fix: tools/setup)", file=sys.stderr)
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/launchers"))
import ranks
from manifest_rules import pod_specs

TRIREME = pathlib.Path(sys.argv[1]).resolve()
DEPLOY = ROOT / "deploy"
TINY = ("--training.seq_len", "32", "--training.micro_batch_size", "1", "--training.grad_accum", "1", "--parallelism.tp", "1")
SHORT = (*TINY, "--training.steps", "3", "--lr_scheduler.warmup_steps", "1")
LONG = (*TINY, "--training.steps", "1000000")

# Submits the script, and asks it to stop as Slurm does before the time limit. The job must come back and go on.
SLURM = """
set -eu
job=$(sbatch --parsable --nodes=1 --ntasks-per-node=2 --gpus-per-node=0 --cpus-per-task=1 --time=10 "$SCRIPT" run.toml "$@")
until [ -s runs/latest/metrics.jsonl ]; do sleep 0.1; done
scancel --batch --signal=USR1 "$job"
until grep -q "goes back into the queue" "trireme-$job.out"; do sleep 0.1; done
until scontrol show job "$job" | grep -q "JobState=PENDING"; do sleep 0.1; done
scontrol update JobId="$job" StartTime=now   # Slurm waits two minutes before it starts a job again
until grep -q "^resume " "trireme-$job.out" && [ "$(grep -cE '^ *[0-9]+ +[0-9.]+ ' "trireme-$job.out")" -ge 3 ]; do sleep 0.1; done
scancel --signal=TERM "$job.0"   # to the ranks alone: the script lives, and learns their exit code
until [ -z "$(squeue -h)" ]; do sleep 0.1; done
cat "trireme-$job.out"
"""


def environment(**more):
    """Ours, with trireme in PATH, and nothing that a launcher could have put there."""
    return ranks.environment(**{"PATH": f"{TRIREME.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": 1, **more})


class DeployTest(ranks.RankTest):
    def setUp(self):
        super().setUp()
        shutil.copy(ROOT / "examples/tiny.toml", self.folder / "run.toml")

    def begun(self, job):
        """Waits until the first step is recorded."""
        def recorded():
            self.assertTrue(job.running(), "ended before its first step")
            path = self.folder / "runs/latest/metrics.jsonl"
            return path.exists() and path.stat().st_size > 0
        ranks.wait_until("a step", recorded, 60)

    def saved(self):
        return [path.name for path in (self.folder / "runs/latest/checkpoints").glob("step-*")]


class Slurm(DeployTest):
    def test_the_job_is_requeued_before_its_time_limit_and_goes_on(self):
        self.need("sbatch", "srun", "slurmctld", "slurmd", "munged")
        if os.geteuid() != 0:
            self.skipTest("only root can start a Slurm")
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("two tasks need two cores")
        job = self.start(ROOT / "tests/launchers/one_node_slurm", self.folder, "bash", "-c", SLURM, "slurm", *LONG,
                         env=environment(SCRIPT=DEPLOY / "slurm/train.sbatch", OMP_NUM_THREADS=None))  # nproc would believe it
        self.ends(job, 0, 110)
        told = job.stdout()
        self.assertRegex(told, r"SIGUSR1: finishing step \d+, then saving\n")
        self.assertRegex(told, r"resume  runs/\S+/checkpoints/step-\d+, after step \d+")
        self.assertEqual(told.count("goes back into the queue"), 1, "SIGTERM ends it for good")
        self.assertIn("SIGTERM: finishing step", told)


class Mpirun(DeployTest):
    def train(self, *words):
        ranks.need_mpirun(self)
        (self.folder / "hosts").write_text("# hosts\n\nlocalhost slots=2   # this one\n")
        return self.start(DEPLOY / "mpirun/train", "hosts", "run.toml", *words, env=environment(
            MASTER_PORT=ranks.free_port(), OMPI_ALLOW_RUN_AS_ROOT=1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1))

    def test_it_trains(self):
        job = self.train(*SHORT)
        self.ends(job, 0, 90)
        self.assertRegex(job.stdout(), r"2 ranks \(Open MPI; (gloo|shared memory), cpu\)")
        self.assertEqual(self.saved(), ["step-3"])

    def test_sigterm_saves_and_ends_it_with_75(self):
        job = self.train(*LONG)
        self.begun(job)
        job.signal(signal.SIGTERM)
        self.ends(job, 75, 60)
        self.assertEqual(len(self.saved()), 1)

    def test_a_wrong_config_ends_it_with_64(self):
        self.ends(self.train("--parallelism.tp", "7"), 64, 60)

    def test_errors(self):
        for words, error in ((["none", "run.toml"], "none cannot be read"), (["empty", "run.toml"], "empty names no host"), (["run.toml"], "usage")):
            (self.folder / "empty").write_text("# nobody\n")
            job = self.start(DEPLOY / "mpirun/train", *words, env=environment())
            self.ends(job, 64, 30)
            self.assertIn(error, job.stderr())


class Pods(DeployTest):
    """The command of each manifest, in both pods: with what the platform sets, and with what the manifest sets."""

    def both(self, name, platform):
        manifest = yaml.safe_load((DEPLOY / f"kubernetes/{name}.yaml").read_text())
        spec = next(pod_specs(manifest))
        jobs = []
        for pod in range(2):
            variables = platform(pod)
            for each in spec["containers"][0]["env"]:
                source = each.get("valueFrom", {})
                # The secret, and the index of a pod in its annotation.
                variables[each["name"]] = each.get("value") or ("0123456789abcdef" * 2 if "secretKeyRef" in source else str(pod))
            self.assertIn("MASTER_ADDR", variables)
            variables["MASTER_ADDR"] = "127.0.0.1"  # the service or the pod of that name
            variables["MASTER_PORT"] = self.port
            words = [str(self.folder / "run.toml") if word == "/config/run.toml" else word for word in spec["containers"][0]["command"]]
            jobs.append(self.start(TRIREME, *words[1:], *SHORT, env=environment(**variables)))
        for job in jobs:
            self.ends(job, 0, 90)
        self.assertIn("2 ranks", jobs[0].stdout())
        self.assertEqual(self.saved(), ["step-3"])
        return jobs[0].stdout()

    def setUp(self):
        super().setUp()
        self.port = ranks.free_port()

    def master(self, pod):
        return {"MASTER_ADDR": "trireme-master-0", "MASTER_PORT": 23456, "WORLD_SIZE": 2, "RANK": pod}

    def test_pytorchjob(self):
        # The manifest says "gpu", which this machine may lack.
        told = self.both("pytorchjob", lambda pod: {**self.master(pod), "PET_NNODES": 2, "PET_NODE_RANK": pod, "PET_NPROC_PER_NODE": 1})
        self.assertRegex(told, r"\(PET; (gloo|shared memory), cpu\)")

    def test_volcano(self):
        self.assertRegex(self.both("volcano", self.master), r"\(Kubernetes; (gloo|shared memory), cpu\)")

    def test_jobset(self):
        told = self.both("jobset", lambda pod: {"JOB_COMPLETION_INDEX": pod})
        self.assertRegex(told, r"\(Kubernetes; (gloo|shared memory), cpu\)")


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    ranks.LIBC.prctl(ranks.PR_SET_CHILD_SUBREAPER, 1)  # what is left of a test is found below this process
    ended = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result
    for test, why in ended.skipped:
        print(f"SKIPPED {test.id()}: {why}", flush=True)
    sys.exit(1 if not ended.wasSuccessful() else ranks.SKIPPED if ended.skipped else 0)
