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

    def launch_by_hand(self, *words):
        jobs = []
        for node, name in enumerate(self.names):
            jobs.append(self.start(*inside(name), ranks.options.trireme, "launch", "-n", 2, "--nnodes", 2,
                                   "--node-rank", node, "--master", self.master, "--logs", self.folder / f"logs{node}", "--",
                                   ranks.options.program, *words))
        return jobs

    def launch_by_hostfile(self, *words):
        """Through a program in ssh's place that finds the host by its name."""
        hosts = self.folder / "hosts"
        hosts.write_text("".join(f"{address} slots=2\n" for address in self.addresses))
        ssh = self.folder / "fake_ssh"
        ssh.write_text("#!/bin/sh\n# HOST COMMAND: what ssh would do there\ncase $1 in\n" +
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
        for job, others in zip(jobs, ((2, 3), (0, 1))):
            told = self.ends(job, ranks.HANG, 15)
            self.assertTrue(any(f"missing: rank {r}" in told for r in others), told)
            self.figure("cable pulled (--timeout 3) -> exit of one side", time.monotonic() - harm)


if __name__ == "__main__":
    ranks.main()
