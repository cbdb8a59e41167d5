#!/usr/bin/env python3
"""Two hosts, which are two network namespaces joined by a cable (a veth pair): they reach each other by address alone.
usage: see ranks.py"""
import os
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import ranks

TWO_NODES = {"nodes": (0, 0, 1, 1), "local_ranks": (0, 1, 0, 1)}


def inside(name):
    """The words that run a command in a namespace: `ip netns exec` would remount /, which a chroot does not allow."""
    return ("nsenter", f"--net=/run/netns/{name}")


def ip(*words):
    if words[0] == "-n":
        words = (*inside(words[1]), "ip", *words[2:])
    else:
        words = ("ip", *words)
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=20)


class TwoHosts(ranks.RankTest):
    def setUp(self):
        super().setUp()
        self.need("ip")
        self.need("nsenter")
        self.names = [f"trireme{os.getpid()}{side}" for side in "ab"]
        links = [f"tr{os.getpid()}{side}" for side in "ab"]  # at most 15 characters
        self.addresses = ["10.77.77.1", "10.77.77.2"]  # seen by nobody else
        self.addCleanup(self.remove_hosts)
        try:
            for name in self.names:
                ip("netns", "add", name)
            ip("link", "add", links[0], "netns", self.names[0], "type", "veth", "peer", "name", links[1], "netns", self.names[1])
        except subprocess.CalledProcessError as e:
            self.skipTest("no network namespaces on this machine: " + e.stderr.strip())
        for name, link, address in zip(self.names, links, self.addresses):
            ip("-n", name, "address", "add", address + "/24", "dev", link)
            ip("-n", name, "link", "set", link, "up")
            ip("-n", name, "link", "set", "lo", "up")
        self.cable = ("-n", self.names[1], "link", "set", links[1])
        self.port = ranks.free_port()
        self.master = f"{self.addresses[0]}:{self.port}"

    def remove_hosts(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=20)

    def launch_by_hand(self, *words, secrets=(None, None)):
        jobs = []
        for node, name in enumerate(self.names):
            jobs.append(self.start(*inside(name), ranks.options.trireme, "launch", "-n", 2, "--nnodes", 2,
                                   "--node-rank", node, "--master", self.master, "--logs", self.folder / f"logs{node}", "--",
                                   ranks.options.program, *words, env=ranks.environment(TRIREME_SECRET=secrets[node])))
        return jobs

    def launch_by_hostfile(self, *words):
        """Through a program in ssh's place that finds the host by its name."""
        hosts = self.folder / "hosts"
        hosts.write_text("".join(f"{address} slots=2\n" for address in self.addresses))
        ssh = self.folder / "fake_ssh"
        ssh.write_text("#!/bin/sh\n# HOST COMMAND: what ssh would do there\n"
                       f'printf "%s\\n" "$2" >> {self.folder}/commands\ncase $1 in\n' +
                       "".join(f'{address}) exec ' + " ".join(inside(name)) + ' sh -c "$2" ;;\n'
                               for address, name in zip(self.addresses, self.names)) +
                       '*) echo "fake_ssh: no host $1" >&2; exit 255 ;;\nesac\n')
        ssh.chmod(0o755)
        return self.start(ranks.options.trireme, "launch", "--hostfile", hosts, "--ssh", ssh, "--master", self.master,
                          "--logs", self.folder / f"logs{self.count}", "--", ranks.options.program, *words)

    def test_by_hand(self):
        jobs = self.launch_by_hand("sum")
        for job in jobs:
            self.ends(job, 0, 60)
        self.assert_sums("".join(job.log_text() for job in jobs), "trireme launch", **TWO_NODES)
        self.assertIn(f"store tcp://{self.master}", jobs[0].stderr())
        self.assertIn("without TRIREME_SECRET anyone who reaches it may join", jobs[0].stderr())

    def test_a_secret(self):
        """Whoever has it joins, who has another or none is told so at once; nobody else can reach the store at all."""
        enough = self.folder / "enough"
        jobs = self.launch_by_hand("steps", enough, secrets=("sesame", "sesame"))
        for job in jobs:
            job.ready(2)
        listening = subprocess.run([*inside(self.names[0]), "cat", "/proc/net/tcp", "/proc/net/tcp6"], check=True,
                                   capture_output=True, text=True, timeout=20).stdout
        at_port = [line.split()[1] for line in listening.splitlines() if f":{self.port:04X} 0" in line and " 0A " in line]
        self.assertEqual(at_port, [f"014D4D0A:{self.port:04X}"], "the master's interface alone")
        for secret, words in ((None, "asks for a secret"), ("barley", "a different secret")):
            stranger = self.start(*inside(self.names[1]), ranks.options.program, "sum",
                                  env=ranks.environment(RANK=3, WORLD_SIZE=4, LOCAL_RANK=1, LOCAL_WORLD_SIZE=2,
                                                        MASTER_ADDR=self.addresses[0], MASTER_PORT=self.port,
                                                        TRIREME_SECRET=secret))
            self.assertIn(words, self.ends(stranger, ranks.SECURITY, 20))
        enough.touch()
        for job in jobs:
            self.ends(job, 0, 20)
            self.assertNotIn("sesame", job.stderr() + job.stdout() + job.log_text())

    def test_ranks_that_meet_in_a_file(self):
        """Nothing names an address: each rank finds one that the other host reaches."""
        jobs = [self.start(*inside(name), ranks.options.program, "--store-file", self.folder / "store", "--init-timeout", 20,
                           "sum", env=ranks.environment(OMPI_COMM_WORLD_RANK=node, OMPI_COMM_WORLD_SIZE=2,
                                                        OMPI_COMM_WORLD_LOCAL_RANK=0, OMPI_COMM_WORLD_LOCAL_SIZE=1,
                                                        OMPI_MCA_ess_base_jobid=7))
                for node, name in enumerate(self.names)]
        for job in jobs:
            self.ends(job, 0, 40)
        self.assert_sums("".join(job.stdout() for job in jobs), "Open MPI", nodes=(0, 1), local_ranks=(0, 0))

    def test_the_mpu_of_megatron(self):
        jobs = [self.start(*inside(name), ranks.options.program, "--init-timeout", 20, "mpu", self.port, self.addresses[0],
                           env=ranks.environment(RANK=node, WORLD_SIZE=2, LOCAL_RANK=node, MASTER_ADDR="127.0.0.1"))
                for node, name in enumerate(self.names)]
        for node, job in enumerate(jobs):
            self.ends(job, 0, 40)
            self.assertIn(f"rank={node} tp=self{{{node}}} dp=world{{0,1}}", job.stdout())

    def test_counted_bytes_are_those_on_the_wire(self):
        """One rank a host: what the groups count, against what the kernel sent through the cable."""
        jobs = [self.start(*inside(name), ranks.options.trireme, "launch", "-n", 1, "--nnodes", 2, "--node-rank", node,
                           "--master", self.master, "--logs", self.folder / f"logs{node}", "--", ranks.options.program, "traffic")
                for node, name in enumerate(self.names)]
        for job in jobs:
            self.ends(job, 0, 60)
        counted = sum(int(line.split()[-1]) for job in jobs for line in job.log_text().splitlines() if " counted " in line)
        sent = 0
        for name in self.names:
            shown = subprocess.run([*inside(name), "cat", "/proc/net/dev"], check=True, capture_output=True, text=True, timeout=20).stdout
            sent += sum(int(line.split()[9]) for line in shown.splitlines() if line.strip().startswith("tr"))
        self.assertGreater(counted, 250e6)
        print(f"    bytes on the wire / bytes counted: {sent / counted:.4f}", flush=True)
        self.assertAlmostEqual(sent / counted, 1, delta=0.03)

    def test_hostfile(self):
        job = self.launch_by_hostfile("sum")
        self.ends(job, 0, 60)
        self.assert_sums(job.log_text(), "trireme launch", **TWO_NODES)
        commands = (self.folder / "commands").read_text()  # which every user of the hosts can see
        self.assertIn("read -r TRIREME_SECRET", commands)
        self.assertNotIn("TRIREME_SECRET=", commands)
        self.assertNotIn("anyone who reaches it may join", job.stderr())

    def test_hostfile_and_a_rank_is_killed(self):
        job = self.launch_by_hostfile("steps", 60)
        pids = job.ready(4)
        harm = time.monotonic()
        os.kill(pids[3], signal.SIGKILL)
        ranks.wait_until("ranks of both hosts gone", lambda: not any(map(ranks.alive, pids.values())), 10)
        gone = time.monotonic() - harm
        told = self.ends(job, ranks.PEER_LOST, 10)
        self.assertIn("rank 3", told)
        self.assertIn("SIGKILL", told)
        self.figure("SIGKILL of a rank of the second host -> ranks of both hosts gone", gone)
        self.figure("SIGKILL of a rank of the second host -> launcher's exit", time.monotonic() - harm)
        self.assertLess(gone, 2)

    def test_the_cable_is_pulled(self):
        jobs = self.launch_by_hand("--timeout", 3, "--init-timeout", 6, "steps", 60)
        for job in jobs:
            job.ready(2)
        harm = time.monotonic()
        ip(*self.cable, "down")
        for job, words in zip(jobs, ("missing: rank [23] ", "the store does not answer: this host may be cut off")):
            told = self.ends(job, ranks.HANG, 15)
            self.assertRegex(told, words)
            self.figure("cable pulled (--timeout 3) -> exit of one side", time.monotonic() - harm)


if __name__ == "__main__":
    ranks.main()
