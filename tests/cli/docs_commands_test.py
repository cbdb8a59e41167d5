#!/usr/bin/env python3
"""Runs the commands of README.md, CONTRIBUTING.md and docs/. A command that one machine without a GPU can run is run as the page has it,
in a folder with the files that the pages refer to. The others are in NOT_RUN with the reason: their names and options must exist.

usage: docs_commands_test.py TRIREME      with TRIREME_CAMPAIGN=1 also the commands of SHORTER as the pages have them; -v shows times
"""
import concurrent.futures
import gzip
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

TRIREME = None
ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md"))]

# Other tests run these: "$ trireme ..." (repository.readme compares what it prints with the page), and the blocks of this page.
GETTING_STARTED = "docs/getting_started.md"  # cli.getting_started

# What a line or a span in backquotes begins with, if it is a command. A name or a path alone is none.
PROGRAMS = ("trireme", "torchrun", "mpirun", "mpiexec", "srun", "sbatch", "salloc", "scancel", "make", "cmake", "ctest", "python",
            "python3", "pip", "tensorboard", "ulimit", "git", "ssh", "docker", "kubectl", "apt-get", "sh", "bash", "export", "cd")
COMMAND = re.compile(rf"(?:[A-Z_]+=\S* +trireme|(?:{'|'.join(PROGRAMS)})|(?:\./|tools/|tests/|bench/|build/|deploy/)[\w./-]+) +\S")

# Words of a synopsis, and what they are in the folder of the test.
VALUES = {"CHECKPOINT": "runs/latest", "CONFIG": "run.toml", "FILE": "own_schedule.txt", "K": "1", "KEY": "training.steps", "N": "2",
          "NAME": "zbv", "OUT": None,  # a new folder each time
          "PROGRAM": "./all_reduce", "SOURCE": "models/llama", "m": "8", "p": "4"}

# What is run besides `trireme ...`, word by word. Nothing else is ever started: a page is no reason to install or remove something.
OTHERS = {
    "ulimit -n", "ulimit -u", "ulimit -v", "ulimit -f", "./my_program -n 4", "tools/config_reference build/release/trireme --fix",
    """python3 -c 'import json; print([json.loads(l)["loss"] for l in open("runs/latest/metrics.jsonl")])'""",
}

# What `make test` runs instead of a command that takes long: with the same options, and with less to do. None: nothing, because another
# test, which the line names, runs such a command.
SHORTER = {
    "trireme bench fit --model bert --techniques none,fsdp_full_shard,pipeline --batch-sizes 2,8,32 --epochs 3 -n 2":
        "trireme bench fit --model bert --techniques pipeline --batch-sizes 8 --epochs 1 -n 2 --samples 8",
    "trireme bench fit --model bert --batch-sizes 8,16 -n 2":
        "trireme bench fit --model bert --batch-sizes 8 -n 2 --techniques none --epochs 1 --samples 8",
    "trireme bench run.toml -n 4 --layouts dp4,tp4,dp2.tp2": None,  # cli.bench_layouts, cli.getting_started
    "trireme bench comm -n 4": None,  # cli.bench, cli.getting_started
    "./my_program -n 4": None,  # examples.tensor_parallel_mlp_2
    "trireme launch -n 4 -- ./own_module": None,  # examples.own_module
    "trireme launch -n 3 -- ./dummy_model": None,  # examples.dummy_model_3
    "trireme train examples/long_context.toml -n 2":
        "trireme train examples/long_context.toml -n 2 --training.steps 1 --training.seq_len 512",
    "trireme launch -n 4 ./my_program --steps 10": "trireme launch -n 2 ./my_program --steps 10",
    "trireme train examples/moe.toml -n 2": "trireme train examples/moe.toml -n 2 --training.steps 1 --training.seq_len 64",
    "trireme train run.toml -n 4 --parallelism.cp 2 --parallelism.tp 2 --training.seq_len 32768":
        "trireme train run.toml -n 4 --parallelism.cp 2 --parallelism.tp 2 --training.seq_len 1024",
    "trireme train run.toml -n 8 --model.hf Mixtral-8x7B-v0.1 --model.init hf:Mixtral-8x7B-v0.1 --parallelism.ep 8 --parallelism.zero 1":
        "trireme train run.toml -n 8 --model.hf Mixtral-8x7B-v0.1 --model.init hf:Mixtral-8x7B-v0.1 --parallelism.ep 8 "
        "--parallelism.zero 1 --dry-run",
    "trireme evaluate runs/latest --data data/book.ds": "trireme evaluate runs/latest --data data/book.ds --samples 8",
    "trireme train finetune.toml": "trireme train finetune.toml --training.steps 1 --training.seq_len 32",
    "trireme train finetune.toml -n 1": "trireme train finetune.toml -n 1 --training.steps 1 --training.seq_len 32",
}

WHEEL = "install.wheel does it, for a Python of its own"
WHOLE_BUILD = "builds everything, or is the suite that this test is a part of"
LAUNCHERS = "tests/launchers starts ranks with it, where it is installed"
SCHEDULER = "needs a Slurm cluster"
OPTION = "names an option; it is not a whole command"
BY_HAND = "takes long, and is run by hand"
NOT_RUN = {
    "make demo": WHOLE_BUILD, "make test": WHOLE_BUILD, "make build": WHOLE_BUILD, "make bench": WHOLE_BUILD, "make campaign": WHOLE_BUILD,
    "make test PRESET=asan": WHOLE_BUILD, "make test PRESET=lower-deck": WHOLE_BUILD,
    "build/release/bench/trireme_planner_accuracy DATA": "needs the published figures, which are not ours",
    "make format": "changes the sources; repository.format checks them",
    "tools/check_layers.py trireme --page": "changes docs/rooms.md; repository.layers checks it",
    "build/release/tests/trireme_schedule_test --gtest_filter='Replay.*'": "is in `make test`, as schedule.*",
    "make build && cmake --install build/release --prefix /opt/trireme": "writes outside of the test's folder; install.find_package has another prefix",
    "torchrun --no-python --nproc-per-node 4 PROGRAM": LAUNCHERS, "srun -n 4 PROGRAM": LAUNCHERS, "mpirun -n 4 PROGRAM": LAUNCHERS,
    "srun --gpus-per-task=1": OPTION, "sbatch --requeue": SCHEDULER, "sbatch --signal=USR1@120": SCHEDULER, "scancel -s USR1 JOB": SCHEDULER,
    "trireme launch -n 8 --nnodes 2 --node-rank 0 --master h1:29500 -- ./my_program": "needs two hosts",
    "trireme launch --hostfile hosts -- ./my_program": "needs hosts with ssh",
    "trireme launch --max-restarts": OPTION, "trireme launch --max-restarts K": OPTION, "torchrun --max-restarts": OPTION,
    "trireme launch -- trireme train": OPTION, "trireme data prepare ... --validation 0.05": OPTION,
    "tests/mutants/mutants.py BUILD_FOLDER": BY_HAND, "tests/mutants/mutants.py BUILD pipelines": BY_HAND,
    "tests/mutants/mutants.py BUILD context": BY_HAND, "tests/mutants/mutants.py BUILD experts": BY_HAND,
    "bench/against_torch_ddp.py build/release 2": BY_HAND, "bench/gpu.py build/cuda/trireme --trace --out gpu-bench": "needs a GPU",
    "bench/gpu_decode.py build/cuda/trireme": "needs a GPU",
    "make wheel": "a build, and tools/make_wheel, which install.wheel runs", "make wheel PRESET=cuda": "needs nvcc",
    "pip install dist/trireme-*.whl": WHEEL, "pip install 'torch==2.13.*'": "installs a package",
    "pip install trireme-0.1.0-py3-none-manylinux_2_35_x86_64.whl": WHEEL,
    "cmake -S . -B build -DCMAKE_PREFIX_PATH=$(python3 -c 'import trireme; print(trireme.cmake_prefix_path)')": WHEEL,
    "cmake --install build/release --prefix /opt/trireme": "writes outside of the test's folder; install.find_package has another prefix",
    "pip install torch-tb-profiler": "installs a package", "tensorboard --logdir runs/x/trace": "a server that does not end",
}

# Programs in the folder of the test, and which of examples/ they are.
EXAMPLES = {"./my_program": "tensor_parallel_mlp", "./all_reduce": "all_reduce", "./own_module": "own_module",
            "./dummy_model": "dummy_model"}
RUN_TOML = """[run]
name = "run"
[model]
{model}
[[data]]
sources = [{{ path = "data/validation.ds" }}]
[training]
steps = 2
seq_len = 32
micro_batch_size = 1
grad_accum = 1
"""
MODEL = """model_type = "llama"
hidden_size = 16
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 4
intermediate_size = 32
max_position_embeddings = 32768
[tokenizer]
path = "gpt2/tokenizer.json"
"""


def parts_of(page):
    """The text of a page: (language, block of code) for each block, (None, prose) for what is between them."""
    for number, part in enumerate(re.split(r"^```(\w*\n.*?)^```$", page, flags=re.M | re.S)):
        language, _, code = part.partition("\n")
        yield (language, code) if number % 2 else (None, part)


def collect(page):
    """Every command of a page in its order, with `$ ` where the page has it."""
    for language, text in parts_of(page):
        if language is None:
            for span in re.findall(r"(?<!`)`((?:[^`\n]|\n(?!\n))+)`(?!`)", text):
                span = " ".join(span.replace("\\|", "|").split())
                if COMMAND.match(span):
                    yield span
        elif language in ("", "sh", "bash", "console"):
            for line in text.replace("\\\n", " ").splitlines():
                line = re.sub(r"\s+#\s.*", "", line).strip()
                bare = line.removeprefix("$ ")
                if line and (language in ("sh", "bash") or COMMAND.match(bare)):
                    line = line if bare.startswith("trireme ") else bare
                    yield line if re.search("['\"]", line) else " ".join(line.split())


def headings(page):
    """Headings that are the name of a command, as "trireme train --dry-run"."""
    return re.findall(r"^#+ (trireme \S.*)$", "".join(text for language, text in parts_of(page) if language is None), re.M)


def documented():
    """The commands of all pages that are for this test: {page: [command, ...]}, each one once."""
    texts = {page: (ROOT / page).read_text() for page in PAGES}
    blocks = "".join(f"```sh\n{code}```\n" for language, code in parts_of(texts[GETTING_STARTED]) if language == "sh")
    seen = set(collect(blocks))
    result = {}
    for page, text in texts.items():
        commands = [c for c in dict.fromkeys(collect(text)) if c not in seen and (page == "CONTRIBUTING.md" or not c.startswith("$ "))]
        result[page] = [command.removeprefix("$ ") for command in commands]
        seen |= {command for command in commands if not command.startswith("trireme data ")}  # other commands of a page need its files
    return result


class Help:
    """What `trireme COMMAND --help` says."""

    def __init__(self):
        self.texts = {}

    def text(self, words):
        if words not in self.texts:
            self.texts[words] = subprocess.run([TRIREME, *words, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
        return self.texts[words]

    def split(self, command):
        """The name of the command in "trireme COMMAND ...", and the words behind it."""
        words, name = shlex.split(command)[1:], ()
        while words and re.search(rf"^Subcommands:\n(?:  .*\n)*?  {re.escape(words[0])} ", self.text(name), re.M):
            name += (words.pop(0),)
        return name, words

    def is_name(self, command):
        """Whether it is the name of a command alone, as `trireme data prepare`."""
        return command.startswith("trireme ") and not self.split(command)[1]

    def faults(self, command):
        """What in "trireme COMMAND ..." the program does not have. Words that are neither options nor commands are not looked at."""
        name, words = self.split(command)
        words = words[:words.index("--")] if "--" in words else words
        if not name:
            return [f"{command}: not a command"]
        if words and re.fullmatch(r"[a-z-]+", words[0]) and "Subcommands:" in self.text(name):
            return [f"{command}: {words[0]} is no command of {' '.join(name)}"]
        return [f"{command}: {' '.join(name)} has no option {word}" for word in words if word.startswith("-") and word != "-"
                and not self.has(name, word.partition("=")[0])]

    def has(self, name, option):
        if "." in option:
            return subprocess.run([TRIREME, "config", "explain", option[2:]], capture_output=True, timeout=60).returncode == 0
        return re.search(rf"^  (?:-\w,)?(?:--[\w-]+,)*{re.escape(option)}(?![\w-])", self.text(name), re.M) is not None


def variants(command, numbers):
    """A command with values for the words of a synopsis: [optional] with and without, a|b each."""
    texts = [command]
    if re.search(r" \[-", command):
        texts = [re.sub(r" \[(-[^\]]*)\]", r"", command), re.sub(r" \[(-[^\]]*)\]", r" \1", command)]
    for text in texts:
        choice = re.search(r"(?<=\s)[\w-]+(?:\|[\w-]+)+(?=\s|$)", text)
        for word in choice.group().split("|") if choice else [None]:
            one = text.replace(choice.group(), word) if choice else text
            yield re.sub(r"(?<=\s)(\w+)(?=\s|$)", lambda m: (VALUES.get(m[1], m[1]) or f"out-{next(numbers)}"), one)


def may_run(command):
    """Whether the test starts it: `trireme`, of which `launch` starts a program of the test's folder, or one of OTHERS."""
    words = command.split()
    return command in OTHERS or (words[0] == "trireme" and ("--" not in words or words[words.index("--") + 1] in EXAMPLES))


def options(command):
    return {word for word in shlex.split(command) if word.startswith("-")}


class Folder:
    """The files that the pages speak of: small ones, and a small model."""

    def __init__(self, at):
        self.at = at
        self.variables = {**os.environ, "TRIREME_DEVICE": "cpu", "PATH": f"{at}/build/release:{os.environ['PATH']}"}
        at.mkdir()
        for each in ("examples", "docs", "tools"):
            shutil.copytree(ROOT / each, at / each)
        (at / "build").mkdir()
        (at / "build/release").symlink_to(pathlib.Path(TRIREME).resolve().parent)
        for program, example in EXAMPLES.items():
            (at / program).symlink_to(f"build/release/examples/trireme_example_{example}")
        self.write_texts()
        for name, file in (("config.yaml", "smollm3_stage1.yaml"), ("my.yaml", "smollm3_stage1.yaml"), ("train.toml", "titan_debug.toml"),
                           ("pretrain.sh", "gpt3_175b.sh"), ("ds_config.json", "deepspeed_warmup_decay.json"),
                           ("args.json", "trainer_args.json"), ("zero3_auto.json", "zero3_auto.json")):
            shutil.copy(ROOT / "tests/cli/data" / file, at / name)
        (at / "own_schedule.txt").write_text(self.ok("trireme schedule 1f1b --stages 2 --microbatches 4 --text"))
        self.make_tokens()
        self.make_runs()

    def write_texts(self):
        at, pages = self.at, ("getting_started.md", "checkpoints.md", "config.md", "library.md")
        page = "".join((ROOT / "docs" / name).read_text() for name in pages)
        lines = "".join(json.dumps({"text": text}) + "\n" for text in page.split("\n\n"))
        talk = [{"role": "user", "content": "What is your name?"}, {"role": "assistant", "content": "I am Ada."}]
        (at / "raw").mkdir()
        (at / "raw/a.jsonl").write_text(lines)
        (at / "more.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
        (at / "wikitext.jsonl").write_text(lines)
        (at / "book.txt").write_text(page)
        (at / "talks.jsonl").write_text((json.dumps({"messages": talk}) + "\n") * 40)
        (at / "prompts.txt").write_text("To train\nEvery rank\n")
        [finetune] = [code for language, code in parts_of((ROOT / "docs/finetuning.md").read_text()) if language == "toml"]
        (at / "finetune.toml").write_text(finetune)

    def make_tokens(self):
        at = self.at
        self.ok("trireme data prepare book.txt --train-bpe 512 -o data/validation")
        (at / "gpt2").mkdir()
        (at / "data/validation-tokenizer.json").rename(at / "gpt2/tokenizer.json")
        for name, ending in itertools.product("abx", (".ds", ".ds.index", ".ds.metadata")):
            shutil.copy(at / f"data/validation{ending}", at / f"{name}{ending}")

    def make_runs(self):
        """runs/x and others with the checkpoint step-400; the folders of models; run.toml, which trains two steps of one of them."""
        at = self.at
        (at / "run.toml").write_text(RUN_TOML.format(model=MODEL))
        self.ok("trireme train run.toml --run.name x --training.steps 400 --checkpoint.interval 200 --profiler.steps 5")
        for name in ("a", "b"):
            shutil.copytree(at / "runs/x", at / "runs" / name)
        self.ok("trireme convert runs/x models/llama --to hf")
        shutil.copytree(at / "models/llama", at / "model")
        self.ok("trireme train run.toml --run.dir mixtral --training.steps 1 --model.model_type mixtral --model.num_local_experts 8 "
                "--model.num_experts_per_tok 2")
        self.ok("trireme convert mixtral/run Mixtral-8x7B-v0.1 --to hf")
        (at / "run.toml").write_text(RUN_TOML.format(model='init = "hf:model"'))
        self.ok("trireme train run.toml --run.name other --training.steps 1")
        (at / "runs/latest").unlink()
        (at / "runs/latest").symlink_to("x")

    def run(self, command, folder=None):
        words = ["bash", "-c", command] if command in OTHERS else [TRIREME, *shlex.split(command)[1:]]
        return subprocess.run(words, cwd=folder or self.at, env=self.variables, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=600)

    def ok(self, command):
        done = self.run(command)
        if done.returncode != 0:
            raise RuntimeError(f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout


class Documentation(unittest.TestCase):
    def setUp(self):
        self.help = Help()
        self.pages = documented()
        self.commands = [command for commands in self.pages.values() for command in commands]

    def test_commands_are_found(self):
        page = ("text `trireme schedule NAME\n--stages p`, `trireme data`, `a \\| b`, `make test`, `tests/cli/x.py`\n\n"
                "```\n$ trireme doctor --x\nstep  loss\n$ make it\ntrireme train run.toml \\\n  -n 4    # four ranks\n```\n\n"
                "```sh\nwhatever --it is\n```\n\n```cpp\nmake test\n```\n"
                "`./mine -n 2`, `A_B=c trireme doctor`, `A_B=c`\n")
        self.assertEqual(list(collect(page)), [
            "trireme schedule NAME --stages p", "trireme data", "make test", "$ trireme doctor --x", "make it",
            "trireme train run.toml -n 4", "whatever --it is", "./mine -n 2", "A_B=c trireme doctor"])
        self.assertEqual(list(variants("trireme x CONFIG [-n N] --to a|b OUT", iter("12345"))),
                         ["trireme x run.toml --to a out-1", "trireme x run.toml --to b out-2", "trireme x run.toml -n 2 --to a out-3",
                          "trireme x run.toml -n 2 --to b out-4"])
        self.assertGreater(len(self.commands), 80)
        for command, expected in (("trireme launch -- ./my_program", True), ("trireme launch -- rm", False), ("pip install x", False)):
            self.assertEqual(may_run(command), expected, command)

    def test_lists_have_no_commands_that_no_page_has(self):
        self.assertEqual([c for c in (*NOT_RUN, *SHORTER, *OTHERS) if c not in self.commands], [])
        used = {word for command in self.commands for word in command.replace("]", " ").split()}
        self.assertEqual([word for word in VALUES if word not in used], [])
        for command, shorter in SHORTER.items():
            self.assertLessEqual(options(command), options(shorter or command), command)

    def test_what_is_not_run_exists(self):
        known = self.help
        self.assertEqual(known.faults("trireme train run.toml -n 4 --resume x --training.steps 5 -- --what"), [])
        for wrong in ("trireme trian x", "trireme data look x", "trireme train x --rank 4", "trireme train x --training.stepz 5",
                      "trireme train -q"):
            self.assertEqual(len(known.faults(wrong)), 1, wrong)
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
        faults = []
        for page in PAGES:
            text = (ROOT / page).read_text()
            named = [c for c in collect(text) if c.startswith("trireme ")
                     and (c in NOT_RUN or SHORTER.get(c, c) is None or known.is_name(c))]
            faults += [f"{page}: {fault}" for each in (*named, *headings(text)) for fault in known.faults(each)]
        for command in NOT_RUN:
            program, *words = command.split()
            if program == "make" and words[0] not in targets:
                faults.append(f"{command}: the Makefile has no such target")
            if "/" in program and not pathlib.Path(ROOT, program.replace("build/release", os.path.dirname(TRIREME))).exists():
                faults.append(f"{command}: there is no such program")
        self.assertEqual(faults, [])

    def test_every_other_command_runs(self):
        numbers = itertools.count(1)
        campaign = "TRIREME_CAMPAIGN" in os.environ
        work, faults = {}, []
        for page, commands in self.pages.items():
            for command in commands:
                if command in NOT_RUN or self.help.is_name(command):
                    continue
                chosen = dict.fromkeys([SHORTER.get(command, command), command] if campaign else [SHORTER.get(command, command)])
                chosen = [variant for each in chosen if each for variant in variants(each, numbers)]
                faults += [f"{page}: {each}: not in OTHERS, so it is not run, and not in NOT_RUN" for each in chosen if not may_run(each)]
                work.setdefault(page, []).extend(filter(may_run, chosen))
        self.assertGreater(sum(map(len, work.values())), 60)
        with tempfile.TemporaryDirectory() as name:
            folder = Folder(pathlib.Path(name) / "all")
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                pages = sorted(work, key=lambda page: -len(re.findall(r"trireme (?:train|launch|bench|verify|generate)", str(work[page]))))
                results = pool.map(lambda page: self.run_page(folder, pathlib.Path(name) / page.replace("/", "-"), work[page]), pages)
                faults += [f"{page}: {fault}" for page, found in zip(pages, results) for fault in found]
        self.assertEqual(faults, [], "\n".join(faults))

    def run_page(self, files, folder, commands):
        """Runs the commands of a page in its own copy of the files, and returns what failed."""
        faults = []
        shutil.copytree(files.at, folder, symlinks=True)
        for command in commands:
            if command.endswith(" -o run.toml"):
                (folder / "run.toml").rename(folder / "run.toml.old")
            begin = time.monotonic()
            done = files.run(command, folder)
            if "-v" in sys.argv:
                print(f"{time.monotonic() - begin:6.1f} s  {done.returncode}  {command}", flush=True)
            if done.returncode != 0:
                faults.append(f"{command}\nexit code {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
            if (folder / "run.toml.old").exists():
                (folder / "run.toml.old").replace(folder / "run.toml")
        return faults


if __name__ == "__main__":
    TRIREME = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
