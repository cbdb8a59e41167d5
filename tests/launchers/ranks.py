"""Starts ranks under a launcher, watches them, and leaves nothing running. Shared by the tests of launchers and failures.

Every test runs in a folder of its own, below a hard deadline, and must have waited for all that it started: what still
runs at its end is a failure, and is killed. That holds for grandchildren too, since this process is their reaper.

usage of each test: X_test.py RANK_PROGRAM TRIREME [--peer-python PYTHON] [--trials N] [CLASS[.test]...]
"""
import argparse
import ctypes
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None)
SKIPPED = 77  # ctest's SKIP_RETURN_CODE of these tests
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "NODE_RANK", "MASTER_", "TORCHELASTIC_", "PET_", "SLURM",
           "OMPI_", "PMI", "PALS_", "MPI_", "TRIREME_", "OMP_NUM_THREADS")
PEER_LOST, HANG, CONFIG, SECURITY = 71, 72, 64, 77  # exit codes

options = None  # of the command line; set by main()


def environment(**more):
    """Ours without anything that a launcher could have put there; None removes."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    env["TRIREME_DEVICE"] = "cpu"
    env.update({k: str(v) for k, v in more.items() if v is not None})
    return env


def need_mpirun(test):
    """An Open MPI without ssh on the machine starts nothing, not even here."""
    if shutil.which("mpirun") is None:
        test.skipTest("mpirun is not installed")
    alone = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4", "true"], capture_output=True, text=True,
                           env=environment())
    if alone.returncode != 0:
        test.skipTest("mpirun cannot start a process: " + " ".join(alone.stderr.split())[:200])


def free_port():
    """Below the range that the system hands out by itself, so that nobody takes it before we do."""
    for _ in range(1000):
        port = random.randrange(30000, 32500)
        with socket.socket(socket.AF_INET6) as probe:
            try:
                probe.bind(("::", port))
                return port
            except OSError:
                pass
    raise RuntimeError("no free port between 30000 and 32500")


# ---- processes

def facts(pid):
    """(parent, state, start time, name) of a process; None when there is none."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
    return int(rest[1]), rest[0], rest[19], name


def alive(pid):
    found = facts(pid)
    return found is not None and found[1] not in "ZX"


def descendants(root=None):
    """Living processes below `root` (this one), as {pid: name}."""
    children, names = {}, {}
    for entry in os.listdir("/proc"):
        found = facts(entry) if entry.isdigit() else None
        if found:
            children.setdefault(found[0], []).append(int(entry))
            if found[1] not in "ZX":
                names[int(entry)] = found[3]
    below, todo = {}, [root or os.getpid()]
    while todo:
        for pid in children.get(todo.pop(), []):
            todo.append(pid)
            if pid in names:
                below[pid] = names[pid]
    return below


def kill_descendants():
    for _ in range(200):
        left = descendants()
        if not left:
            break
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def wait_until(what, condition, within, every=0.005):
    """Returns when `condition` holds; an error that says `what` when it does not `within` so many seconds."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > within:
            raise AssertionError(f"not within {within:.1f} s: {what() if callable(what) else what}")
        pause(every)


def pause(seconds):
    """Sleeps, and notes which jobs end meanwhile."""
    until = time.monotonic() + seconds
    while True:
        for job in list(Job.unfinished):
            job.running()
        left = until - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, 0.01))


class Job:
    """A command that was started; its output goes to files, so that nobody has to read it in time."""
    unfinished = set()

    def __init__(self, words, folder, env, number):
        self.words, self.folder = [str(word) for word in words], pathlib.Path(folder)
        self.out, self.err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        self.logs = self.folder / f"logs{number}"
        self.started, self.ended = time.monotonic(), None
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(self.words, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=err, process_group=0,
                                            preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
        self.pid = self.process.pid
        Job.unfinished.add(self)

    def running(self):
        if self.process.poll() is None:
            return True
        if self.ended is None:
            self.ended = time.monotonic()
            Job.unfinished.discard(self)
        return False

    def wait(self, within):
        """The exit code, which must come `within` so many seconds from now."""
        wait_until("end of " + " ".join(self.words), lambda: not self.running(), within)
        return self.process.returncode

    def seconds(self):
        """From its start to its end."""
        return self.ended - self.started

    def stdout(self):
        return self.out.read_text(errors="replace")

    def stderr(self):
        return self.err.read_text(errors="replace")

    def log_text(self):
        return "".join(path.read_text(errors="replace") for path in sorted(self.logs.glob("r*.log")))

    def ready(self, ranks, within=60):
        """{rank: pid} once all have said that they are at work."""
        found = {}

        def all_there():
            text = self.log_text() if self.logs.is_dir() else self.stdout()
            found.update({int(r): int(p) for r, p in re.findall(r"^ready rank=(\d+) pid=(\d+)$", text, re.M)})
            if len(found) < ranks and not self.running():
                raise AssertionError(f"ended, with code {self.process.returncode}, before it was ready")
            return len(found) == ranks
        wait_until(lambda: f"{ranks} ranks ready, only {sorted(found)}", all_there, within)
        return found

    def signal(self, number):
        os.kill(self.pid, number)

    def told(self):
        code = "still running" if self.running() else f"exit code {self.process.returncode}"
        parts = [f"$ {' '.join(self.words)}   ({code})"]
        for path in [self.out, self.err, *sorted(self.logs.glob("**/r*.log"))]:
            text = path.read_text(errors="replace")
            if text:
                parts.append(f"--- {path.name}\n{text[-4000:]}")
        return "\n".join(parts)


# ---- tests

class RankTest(unittest.TestCase):
    deadline = 120  # seconds, of one test

    def run(self, result=None):
        self.jobs, self.count = [], 0
        before = len(result.failures) + len(result.errors)
        with tempfile.TemporaryDirectory(prefix="trireme-", ignore_cleanup_errors=True) as folder:
            self.folder = pathlib.Path(folder)
            try:
                super().run(result)
            finally:
                signal.alarm(0)
                told = [job.told() for job in self.jobs]
                kill_descendants()
                Job.unfinished.clear()
            if len(result.failures) + len(result.errors) > before:
                print(f"\n==== {self.id()}: what its processes said", *told, sep="\n", flush=True)

    def setUp(self):
        def too_late(*_):
            raise TimeoutError(f"{self.id()} took longer than {self.deadline} s")
        signal.signal(signal.SIGALRM, too_late)
        signal.alarm(self.deadline)

    def tearDown(self):
        wait_until(lambda: f"all gone at the end of the test, but there are {descendants()}",
                   lambda: not descendants(), 2)

    def start(self, *words, env=None):
        self.jobs.append(Job(words, self.folder, environment() if env is None else env, self.count))
        self.count += 1
        return self.jobs[-1]

    def rank(self, *words, **variables):
        """One rank of the program, started by hand."""
        return self.start(options.program, *words, env=environment(**variables))

    def launch(self, ranks, *words, program=None, flags=(), env=None):
        """`trireme launch` with logs; words are the program's."""
        logs = self.folder / f"logs{self.count}"
        return self.start(options.trireme, "launch", "-n", ranks, "--logs", logs, *flags, "--",
                          *(program or [options.program]), *words, env=env)

    def ends(self, job, code, within):
        """Its standard error, when it ended with `code` `within` so many seconds from now."""
        self.assertEqual(job.wait(within), code)
        return job.stderr()

    def assert_sums(self, text, launcher, nodes=(0, 0, 0, 0), local_ranks=(0, 1, 2, 3)):
        """Every rank of the mode `sum` once, with the right numbers."""
        lines = re.findall(r'^rank=(\d+) world=(\d+) local_rank=(\d+) node=(\d+) sum=(\S+) launcher="([^"]*)"', text, re.M)
        size = len(nodes)
        expected = [(str(r), str(size), str(local_ranks[r]), str(nodes[r]), str(size * (size + 1) // 2), launcher)
                    for r in range(size)]
        self.assertEqual(sorted(lines), expected, text)

    def figure(self, what, seconds):
        print(f"    {what}: {seconds:.2f} s", flush=True)

    def need(self, *programs):
        for program in programs:
            if shutil.which(program) is None:
                self.skipTest(f"{program} is not installed")


def main():
    global options
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("trireme", type=os.path.abspath)
    parser.add_argument("--peer-python", type=os.path.abspath, default=sys.executable, help="a python that may have torch")
    parser.add_argument("--trials", type=int, default=200 if os.environ.get("TRIREME_CAMPAIGN") else 0,
                        help="more than `make test` does")
    parser.add_argument("tests", nargs="*")
    options = parser.parse_intermixed_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
    ended = unittest.main(argv=[sys.argv[0], *options.tests], verbosity=2, exit=False).result
    for test, why in ended.skipped:
        print(f"SKIPPED {test.id()}: {why}", flush=True)
    sys.exit(1 if not ended.wasSuccessful() else SKIPPED if ended.skipped else 0)
