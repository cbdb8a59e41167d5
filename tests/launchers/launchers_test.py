#!/usr/bin/env python3
"""The same program, unchanged, as four ranks under every launcher that people use.   usage: see ranks.py"""
import os
import pathlib
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
import ranks

HERE = pathlib.Path(__file__).resolve().parent
TWO_NODES = {"nodes": (0, 0, 1, 1), "local_ranks": (0, 1, 0, 1)}

TORCH_SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="env://")
x = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(x)
print(f"python rank={dist.get_rank()} sum={x.item():g}", flush=True)
dist.destroy_process_group()
"""


class TriremeLaunch(ranks.RankTest):
    def test_four_ranks(self):
        job = self.launch(4, "sum")
        self.ends(job, 0, 60)
        self.assert_sums(job.log_text(), "trireme launch")
        self.assertEqual(job.stdout().count("sum="), 1, "rank 0 alone prints to the terminal")

    def test_the_program_starts_its_own_ranks(self):
        job = self.start(ranks.options.program, "-n", 4, "--logs", self.folder / "logs0", "sum")
        self.ends(job, 0, 60)
        self.assert_sums(job.log_text(), "trireme launch")

    def test_variables_and_arguments_reach_the_ranks(self):
        script = 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $OMP_NUM_THREADS $MINE <$1> <$2>"'
        job = self.launch(2, "two words", "", program=["sh", "-c", script, "sh"],
                          env=ranks.environment(MINE="is kept", OMP_NUM_THREADS=3))
        self.ends(job, 0, 30)
        self.assertEqual(job.log_text(), "0/2 0/2 3 is kept <two words> <>\n1/2 1/2 3 is kept <two words> <>\n")


class Python(ranks.RankTest):
    """torch.distributed meets in the store that our launcher hosts."""

    def setUp(self):
        super().setUp()
        need_torch(self)

    def test_torch_distributed_under_trireme_launch(self):
        (self.folder / "script.py").write_text(TORCH_SCRIPT)
        job = self.launch(2, "script.py", program=[ranks.options.peer_python])
        self.ends(job, 0, 90)
        for rank in range(2):
            self.assertIn(f"python rank={rank} sum=3\n", job.log_text())


class Torchrun(ranks.RankTest):
    def setUp(self):
        super().setUp()
        need_torch(self)

    def torchrun(self, *flags, words=("sum",), **variables):
        return self.start(ranks.options.peer_python, "-m", "torch.distributed.run", "--no-python", *flags,
                          ranks.options.program, *words, env=ranks.environment(**variables))

    def test_no_rank_outlives_an_agent_that_is_killed(self):
        job = self.torchrun("--nproc-per-node", 2, words=("steps", 600))
        pids = job.ready(2, within=90)
        os.kill(job.pid, signal.SIGKILL)
        ranks.wait_until(lambda: f"end of {[pid for pid in pids.values() if ranks.alive(pid)]}",
                         lambda: not any(map(ranks.alive, pids.values())), 15)
        job.wait(5)

    def test_one_agent(self):
        job = self.torchrun("--nproc-per-node", 4, TRIREME_SECRET="sesame")
        self.ends(job, 0, 90)
        self.assert_sums(job.stdout(), "torchrun")
        self.assertIn("(hosted by the agent)", job.stderr())

    def test_two_agents(self):
        port = ranks.free_port()
        agents = [self.torchrun("--nnodes", 2, "--nproc-per-node", 2, "--node-rank", node, "--master-addr", "127.0.0.1",
                                "--master-port", port) for node in range(2)]
        for agent in agents:
            self.ends(agent, 0, 90)
        self.assert_sums("".join(agent.stdout() for agent in agents), "torchrun", **TWO_NODES)


class Mpirun(ranks.RankTest):
    def test_open_mpi(self):
        ranks.need_mpirun(self)
        for words in ([], ["--master", f"127.0.0.1:{ranks.free_port()}"]):  # else they meet in a file
            job = self.start("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", 4, ranks.options.program, *words,
                             "sum")
            self.ends(job, 0, 60)
            self.assert_sums(job.stdout(), "Open MPI")


class Srun(ranks.RankTest):
    def test_a_real_slurm_of_one_node(self):
        self.need("srun", "slurmctld", "slurmd", "munged")
        if os.geteuid() != 0:
            self.skipTest("only root can start a Slurm")
        job = self.start(HERE / "one_node_slurm", self.folder, "srun", "-O", "-n", 4, ranks.options.program, "sum")
        self.ends(job, 0, 90)
        self.assert_sums(job.stdout(), "srun")


class SlurmVariables(ranks.RankTest):
    """What srun sets on two hosts, which are loopback addresses here."""

    def variables(self, rank):
        return {"SLURM_JOB_ID": 4242, "SLURM_STEP_ID": 0, "SLURM_NTASKS": 4, "SLURM_STEP_NUM_TASKS": 4,
                "SLURM_NNODES": 2, "SLURM_STEP_NUM_NODES": 2, "SLURM_STEP_NODELIST": "127.0.0.[1-2]",
                "SLURM_JOB_NODELIST": "127.0.0.[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)",
                "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_PROCID": rank, "SLURM_LOCALID": rank % 2,
                "SLURM_NODEID": rank // 2, "MASTER_PORT": self.port}

    def test_two_nodes(self):
        self.port = ranks.free_port()
        jobs = [self.rank("sum", **self.variables(rank)) for rank in range(4)]
        for job in jobs:
            self.ends(job, 0, 60)
        self.assert_sums("".join(job.stdout() for job in jobs), "srun", **TWO_NODES)
        self.assertIn(f"store tcp://127.0.0.1:{self.port}", jobs[0].stderr())

    def test_the_shell_of_salloc_is_no_rank(self):
        self.port = None
        job = self.rank("sum", **{**self.variables(0), "SLURM_STEP_ID": None, "SLURM_PROCID": None})
        self.ends(job, 0, 30)
        self.assertIn('rank=0 world=1 local_rank=0 node=0 sum=1 launcher="alone"', job.stdout())

    def test_one_task_a_host_that_starts_the_ranks_of_its_host(self):
        self.port = ranks.free_port()
        jobs = []
        for node in range(2):
            variables = {**self.variables(node), "SLURM_NTASKS": 2, "SLURM_STEP_NUM_TASKS": 2, "SLURM_LOCALID": 0,
                         "SLURM_NODEID": node, "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
            jobs.append(self.rank("-n", 2, "--logs", self.folder / f"logs{node}", "sum", **variables))
        for job in jobs:
            self.ends(job, 0, 60)
        self.assert_sums("".join(job.log_text() for job in jobs), "trireme launch", **TWO_NODES)


class Kubernetes(ranks.RankTest):
    def pods(self, *words, **variables_of_pod):
        jobs = []
        for pod in range(2):
            variables = {name: value(pod) if callable(value) else value for name, value in variables_of_pod.items()}
            jobs.append(self.rank(*words, "--logs", self.folder / f"logs{pod}", "sum", **variables))
        for job in jobs:
            self.ends(job, 0, 60)
        self.assert_sums("".join(job.log_text() for job in jobs), "trireme launch", **TWO_NODES)
        return jobs[1].stderr()

    def test_pods_of_pytorch_job_and_volcano(self):
        told = self.pods("-n", 2, RANK=lambda pod: pod, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=ranks.free_port())
        self.assertIn("launch: Kubernetes: node 1 of 2, starts 2 ranks", told)

    def test_pods_with_the_variables_of_torchrun(self):
        told = self.pods(PET_NNODES=2, PET_NPROC_PER_NODE=2, PET_NODE_RANK=lambda pod: pod, PET_MASTER_ADDR="127.0.0.1",
                         PET_MASTER_PORT=ranks.free_port())
        self.assertIn("launch: PET: node 1 of 2, starts 2 ranks", told)


def need_torch(test):
    words = [ranks.options.peer_python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"]
    if subprocess.run(words, timeout=60, env=ranks.environment()).returncode != 0:
        test.skipTest(f"{ranks.options.peer_python} has no torch")


if __name__ == "__main__":
    ranks.main()
