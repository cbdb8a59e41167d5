#!/usr/bin/env python3
"""The examples of deploy/ are what Kubernetes, Slurm, Docker and trireme accept; and the checkers that say so can fail.

usage: deploy_test.py [CLASS[.test]...]"""
import copy
import pathlib
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
try:
    import yaml
except ModuleNotFoundError:
    print("skipped: PyYAML is not installed (fix: tools/setup)", file=sys.stderr)
    sys.exit(77)
import script_rules
from manifest_rules import Wrong, check_manifest, pod_specs
from script_rules import check_command, check_dockerfile, command_lines, sbatch_options

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BENCH_PODS = DEPLOY / "kubernetes/bench_pods"
JOBS = ("pytorchjob", "jobset", "volcano")
SCRIPTS = (DEPLOY / "slurm/train.sbatch", DEPLOY / "mpirun/train")
DOCKERFILES = (DEPLOY / "Dockerfile", DEPLOY / "Dockerfile.cuda")
IMAGE = ("--image", "registry.example.com/trireme:cuda")
# What each platform sets by itself in the containers of a job.
SET_BY = {"pytorchjob": {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE"},
          "jobset": {"JOB_COMPLETION_INDEX"}, "volcano": {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"}}


class UniqueKeys(yaml.SafeLoader):
    """PyYAML takes the last of two equal keys; kubectl refuses them."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise Wrong(f"line {node.start_mark.line + 1}: key {key} is there twice")
        return super().construct_mapping(node, deep)


def documents(text):
    return list(yaml.load_all(text, UniqueKeys))


def job(name):
    [found] = documents((DEPLOY / f"kubernetes/{name}.yaml").read_text())
    return found


def bench_pods(*words):
    return subprocess.run([sys.executable, BENCH_PODS, *words], capture_output=True, text=True, timeout=60)


def variables_read():
    """Every name in capitals that the sources of the program hold as a string: the variables they read are among them."""
    return {name for path in (ROOT / "trireme").rglob("*.cpp") if not path.name.endswith("_test.cpp")
            for name in re.findall(r'"([A-Z][A-Z0-9_]+)"', path.read_text())}


def changed(manifest, *path, to=None, rename=None):
    """A copy with another value at a path; `to=None` removes it, `rename` gives the key another name."""
    result = copy.deepcopy(manifest)
    place = result
    for step in path[:-1]:
        place = place[step]
    old = place.pop(path[-1])
    if rename:
        place[rename] = old
    elif to is not None and isinstance(place, list):
        place.insert(path[-1], to)
    elif to is not None:
        place[path[-1]] = to
    return result


class Manifests(unittest.TestCase):
    def test_all_are_valid(self):
        files = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
        self.assertEqual([path.stem for path in files], ["jobset", "pytorchjob", "volcano", "volumes"])
        for path in files:
            for manifest in documents(path.read_text()):
                check_manifest(manifest)

    def test_jobs_start_trireme_on_two_nodes(self):
        pods = {"pytorchjob": lambda spec: sum(each["replicas"] for each in spec["pytorchReplicaSpecs"].values()),
                "jobset": lambda spec: sum(each["replicas"] * each["template"]["spec"]["parallelism"] for each in spec["replicatedJobs"]),
                "volcano": lambda spec: sum(each["replicas"] for each in spec["tasks"])}
        for name in JOBS:
            with self.subTest(name):
                self.assertEqual(pods[name](job(name)["spec"]), 2)
                for spec in pod_specs(job(name)):
                    [container] = spec["containers"]
                    self.assertEqual(container["command"][:2], ["trireme", "train"])

    def test_variables_of_a_rank_are_set_and_read(self):
        read = variables_read()
        for name in JOBS:
            for spec in pod_specs(job(name)):
                own = {each["name"] for each in spec["containers"][0]["env"]}
                self.assertLessEqual({"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "TRIREME_SECRET"}, own | SET_BY[name])
                self.assertEqual(own - read, set(), "nobody reads them")
                self.assertEqual(own & SET_BY[name], set(), "the platform sets them")
                self.assertEqual(SET_BY[name] - read, set(), "nobody reads them")
                self.assertNotIn("LOCAL_RANK", own, "with it the pod would be a rank, not a node")

    def test_the_jobset_counts_and_names_its_pods(self):
        manifest = job("jobset")
        name, [replicated] = manifest["metadata"]["name"], manifest["spec"]["replicatedJobs"]
        spec = replicated["template"]["spec"]
        env = {each["name"]: each.get("value", each.get("valueFrom")) for each in spec["template"]["spec"]["containers"][0]["env"]}
        self.assertEqual(env["RANK"], {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}})
        self.assertEqual(env["MASTER_ADDR"], f"{name}-{replicated['name']}-0-0.{name}")
        self.assertEqual((env["WORLD_SIZE"], spec["completions"], replicated["replicas"]), (str(spec["parallelism"]), spec["parallelism"], 1))

    def test_restarts_follow_the_exit_codes(self):
        codes = {int(code): what for code, what in re.findall(r"^\| (\d+) \|[^|]*\|(.*)\|$", (ROOT / "docs/errors.md").read_text(), re.M)}
        user = {code for code, what in codes.items() if what.strip().startswith("the user")}
        [rule] = job("jobset")["spec"]["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"]["rules"]
        self.assertEqual(set(rule["onExitCodes"]["values"]), user)
        again = {code for code, what in codes.items() if what.strip().startswith(("the launcher", "the scheduler"))}
        self.assertEqual({each["exitCode"] for each in job("volcano")["spec"]["policies"] if "exitCode" in each}, again)

    def test_pods_have_shared_memory_no_root_and_only_known_claims(self):
        claims = {each["metadata"]["name"] for each in documents((DEPLOY / "kubernetes/volumes.yaml").read_text())}
        generated = documents(bench_pods(*IMAGE, "--models", "bert", "--devices", "2").stdout)
        for spec in pod_specs([*map(job, JOBS), *generated]):
            volumes = {each["name"]: each for each in spec["volumes"]}
            mounts = {each["mountPath"]: each["name"] for each in spec["containers"][0]["volumeMounts"]}
            self.assertEqual(volumes[mounts["/dev/shm"]]["emptyDir"]["medium"], "Memory")
            self.assertTrue(spec["securityContext"]["runAsNonRoot"])
            self.assertGreaterEqual(spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], 1)
            used = {each["persistentVolumeClaim"]["claimName"] for each in spec["volumes"] if "persistentVolumeClaim" in each}
            self.assertEqual((used - claims, len(used)), (set(), 1))

    def test_all_jobs_have_the_same_pod(self):
        """But for its name, restarts, and the variables that only a JobSet needs."""
        def common(spec):
            spec = copy.deepcopy(spec)
            spec.pop("restartPolicy", None)
            container = spec["containers"][0]
            container.pop("name")
            container["env"] = [each for each in container["env"] if each["name"] == "TRIREME_SECRET"]
            return spec
        specs = [common(spec) for name in JOBS for spec in pod_specs(job(name))]
        self.assertEqual(len(specs), 5)
        for spec in specs:
            self.assertEqual(spec, specs[0])


class BrokenManifests(unittest.TestCase):
    """The checker refuses what a cluster would."""

    def refused(self, manifest, *path, words, **change):
        with self.assertRaisesRegex(Wrong, words):
            check_manifest(changed(manifest, *path, **change))

    def test_pytorchjob(self):
        good = job("pytorchjob")
        master = ("spec", "pytorchReplicaSpecs", "Master")
        container = (*master, "template", "spec", "containers", 0)
        self.refused(good, "apiVersion", to="kubeflow.org/v2", words="known are")
        self.refused(good, "metadata", "name", words="the key name is missing")
        self.refused(good, "metadata", "name", to="Trireme_1", words="metadata.name")
        self.refused(good, "spec", "pytorchReplicaSpecs", rename="replicaSpecs", words="replicaSpecs: unknown key")
        self.refused(good, *master, rename="master", words="master: unknown key")
        self.refused(good, *master, "replicas", to=2, words="there is one master")
        self.refused(good, *master, "restartPolicy", to="OnError", words="must be one of")
        self.refused(good, "spec", "nprocPerNode", to=8, words="nprocPerNode")
        self.refused(good, *container, "name", to="trireme", words="a container with the name pytorch")
        self.refused(good, *container, "image", words="the key image is missing")
        self.refused(good, *container, "volumeMounts", rename="volumesMounts", words="volumesMounts: unknown key")
        self.refused(good, *container, "command", to="trireme train", words="must be a list")
        self.refused(good, *container, "resources", "limits", "nvidia.com/gpu", to=0, words="at least 1")
        self.refused(good, *container, "resources", "limits", "nvidia.com/gpu", to="8", words="whole number")
        self.refused(good, *container, "resources", "limits", rename="limit", words="limit: unknown key")
        self.refused(good, *container, "env", 0, "valueFrom", words="exactly one of value, valueFrom")
        self.refused(good, *container, "env", 0, "valueFrom", "secretKeyRef", "key", words="the key key is missing")
        self.refused(good, *container, "volumeMounts", 2, "name", to="memory", words="there is no volume memory")
        self.refused(good, *master, "template", "spec", "volumes", 2, "emptyDir", "medium", to="RAM", words="must be one of")
        self.refused(good, *master, "template", "spec", "securityContext", "runAsUser", to=0, words="at least 1")

    def test_jobset(self):
        good = job("jobset")
        spec = ("spec", "replicatedJobs", 0, "template", "spec")
        pod = (*spec, "template", "spec")
        self.refused(good, "kind", to="Jobset", words="known are")
        self.refused(good, "spec", "replicatedJobs", words="the key replicatedJobs is missing")
        self.refused(good, *spec, "parallelism", to="2", words="must be of type int")
        self.refused(good, *spec, "completionMode", to="indexed", words="must be one of")
        self.refused(good, *spec, "template", words="the key template is missing")
        self.refused(good, *spec, "podFailurePolicy", "rules", 0, "onExitCodes", "values", to=[65, 64], words="increasing")
        self.refused(good, *spec, "podFailurePolicy", "rules", 0, "onExitCodes", "containerName", to="main", words="no container main")
        self.refused(good, *pod, "restartPolicy", words="restartPolicy")
        self.refused(good, *pod, "restartPolicy", to="OnFailure", words="restartPolicy")
        self.refused(good, *pod, "containers", 0, "env", 1, "value", to=29500, words="must be of type str")
        self.refused(good, *pod, "containers", 0, "env", 1, "name", to="MASTER_ADDR", words="is there twice")
        self.refused(good, "spec", "failurePolicy", "rules", 0, "onJobFailureReasons", to=["ExitCode"], words="must be one of")

    def test_volcano(self):
        good = job("volcano")
        self.refused(good, "apiVersion", to="batch/v1", words="known are")
        self.refused(good, "spec", "minAvailable", to=3, words="more than the replicas")
        self.refused(good, "spec", "plugins", "pytorch", 1, to="--worker=workers", words="there is no task workers")
        self.refused(good, "spec", "plugins", "pytorch", rename="torch", words="torch: unknown key")
        self.refused(good, "spec", "policies", 0, "event", to="PodEviction", words="must be one of")
        self.refused(good, "spec", "policies", 1, "exitCode", to=0, words="at least 1")
        self.refused(good, "spec", "policies", 1, "exitCode", to=72, words="is there twice")
        self.refused(good, "spec", "policies", 1, "action", words="the key action is missing")
        self.refused(good, "spec", "tasks", 0, "replicas", words="the key replicas is missing")
        self.refused(good, "spec", "tasks", 0, "template", "spec", "restartPolicy", to="Always", words="must be one of")

    def test_pods_and_claims(self):
        [pod] = documents(bench_pods(*IMAGE, "--models", "bert", "--devices", "2").stdout)
        claim = documents((DEPLOY / "kubernetes/volumes.yaml").read_text())[0]
        self.refused(pod, "spec", "containers", to=[], words="must not be empty")
        self.refused(pod, "spec", "tolerations", 0, "operator", to="Exist", words="must be one of")
        self.refused(pod, "metadata", "labels", "devices", to=2, words="labels.devices")
        self.refused(claim, "spec", "accessModes", to=["ReadWriteAll"], words="must be one of")
        self.refused(claim, "spec", "resources", "requests", "storage", to="1 TB", words="quantity")

    def test_equal_keys(self):
        with self.assertRaisesRegex(Wrong, "line 1: key a is there twice"):
            documents("a: 1\nb: 2\na: 3\n")


class BenchPods(unittest.TestCase):
    def test_one_pod_for_each_model_and_number_of_devices(self):
        made = bench_pods(*IMAGE, "--models", "orbit5k,bertbig", "--devices", "2,4,8", "--gpu-type", "Tesla-V100-SXM2-16GB",
                          "--node-selector", "pool=bench")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        pods = documents(made.stdout)
        self.assertEqual([pod["metadata"]["name"] for pod in pods],
                         [f"bench-{model}-tesla-v100-sxm2-16gb-{n}" for model in ("orbit5k", "bertbig") for n in (2, 4, 8)])
        for pod in pods:
            check_manifest(pod)
            self.assertEqual(pod["spec"]["nodeSelector"], {"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB", "pool": "bench"})
            self.assertEqual(pod["spec"]["restartPolicy"], "Never")
        container = pods[4]["spec"]["containers"][0]
        self.assertEqual(container["resources"], {"limits": {"nvidia.com/gpu": 4}})
        self.assertEqual(container["command"], [
            "trireme", "bench", "fit", "--model", "bertbig", "--techniques", "none,fsdp_shard_grad_op,fsdp_full_shard,fsdp_no_shard,pipeline",
            "--batch-sizes", "2,4,8,16,32", "--epochs", "3", "-n", "4", "--output", "/results/bench-bertbig-tesla-v100-sxm2-16gb-4"])

    def test_every_argument_arrives(self):
        made = bench_pods("--image", "host:5000/a/b:c", "--model", "bert", "-n", "1", "--techniques", "none,fsdp_no_shard", "--batch-sizes",
                          "4", "--epochs", "1", "--gpu-label", "cloud.google.com/gke-accelerator", "--gpu-type", "nvidia-tesla-t4",
                          "--claim", "mine", "--shm", "512Mi")
        [pod] = documents(made.stdout)
        check_manifest(pod)
        spec = pod["spec"]
        self.assertEqual(spec["nodeSelector"], {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"})
        self.assertEqual(spec["containers"][0]["image"], "host:5000/a/b:c")
        self.assertEqual([spec["volumes"][0]["persistentVolumeClaim"]["claimName"], spec["volumes"][1]["emptyDir"]["sizeLimit"]], ["mine", "512Mi"])
        self.assertEqual(spec["containers"][0]["command"][3:], ["--model", "bert", "--techniques", "none,fsdp_no_shard", "--batch-sizes", "4",
                                                               "--epochs", "1", "-n", "1", "--output", "/results/bench-bert-nvidia-tesla-t4-1"])

    def test_without_a_gpu_type_any_node_will_do(self):
        [pod] = documents(bench_pods(*IMAGE, "--models", "bert", "--devices", "2").stdout)
        check_manifest(pod)
        self.assertNotIn("nodeSelector", pod["spec"])

    def test_errors_name_the_rule(self):
        good = {"--image": "a:b", "--models": "bert", "--devices": "2"}
        for name, value, rule in (
                ("--models", "gpt", "unknown model 'gpt': must be one of orbit5k, orbit5kbig, bert, bertbig"),
                ("--models", "bert,bert", "a word is there twice"), ("--models", "", "unknown model ''"),
                ("--techniques", "ddp", "unknown technique 'ddp': must be one of none,"),
                ("--devices", "0", "number of devices '0': must be a whole number of at least 1"),
                ("--devices", "2,-1", "number of devices '-1': must be a whole number of at least 1"),
                ("--devices", "two", "number of devices 'two': must be"), ("--devices", "1", "'pipeline' needs at least 2 devices"),
                ("--batch-sizes", "2,0", "batch size '0': must be"), ("--epochs", "0", "number of epochs '0': must be"),
                ("--image", "a b", "image 'a b': must be"), ("--gpu-type", "T4; rm", "label value 'T4; rm': must be"),
                ("--node-selector", "pool", "'pool': must be LABEL=VALUE"), ("--node-selector", "-x=1", "label '-x': must be"),
                ("--claim", "My", "claim 'My': must be"), ("--shm", "8", "size '8': must be"), ("--image", None, "required: --image")):
            with self.subTest(name, value=value):
                words = [f"{key}={each}" for key, each in {**good, name: value}.items() if each is not None]
                made = bench_pods(*words)
                self.assertEqual((made.returncode, made.stdout), (2, ""))
                self.assertIn(rule, made.stderr)

    def test_the_names_are_those_of_the_harness(self):
        text = "".join(path.read_text() for path in (ROOT / "trireme").rglob("*.[ch]pp") if not path.name.endswith("_test.cpp"))
        names = re.search(r"^MODELS = \((.*)\)\nTECHNIQUES = \((.*)\)$", BENCH_PODS.read_text(), re.M)
        for name in re.findall(r'"(\w+)"', names[1] + names[2]):
            self.assertRegex(text, rf"\b{name}\b")


class Scripts(unittest.TestCase):
    def test_bash_accepts_them(self):
        for path in SCRIPTS:
            checked = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
            self.assertEqual((checked.returncode, checked.stderr), (0, ""), path)
            self.assertRegex(path.read_text(), r"\A#!/usr/bin/env bash\n(#.*\n)+set -euo pipefail\n")
            self.assertTrue(path.stat().st_mode & 0o100, path)
        self.assertTrue(BENCH_PODS.stat().st_mode & 0o100)

    def test_scripts_without_arguments_say_what_they_need(self):
        for path in SCRIPTS:
            run = subprocess.run([path], capture_output=True, text=True, stdin=subprocess.DEVNULL)
            self.assertEqual(run.returncode, 64)
            self.assertIn("usage: ", run.stderr)

    def test_sbatch_header(self):
        options = sbatch_options(SCRIPTS[0].read_text())
        self.assertEqual((options["signal"], options["nodes"]), ("B:USR1@180", "2"))
        self.assertIn("requeue", options)
        self.assertEqual(options["ntasks-per-node"], options["gpus-per-node"], "one rank per GPU")

    def test_wrong_sbatch_headers(self):
        for line, words in (("--signal=B:USR1@soon", "must be --signal=VALUE"), ("--signals=B:USR1", "not a long option"),
                            ("--nodes=0", "must be --nodes"), ("--requeue=yes", "must be --requeue"), ("--time", "must be --time"),
                            ("--time=1 day", "must be|not a long option"), ("-N 2", "not a long option"), ("--gpus-per-node=all", "must be"),
                            ("--open-mode=add", "must be"), ("--nodes=2 --nodes=3", "is there twice")):
            with self.subTest(line), self.assertRaisesRegex(Wrong, words):
                sbatch_options(f"#!/bin/bash\n#SBATCH {line}\n")
        with self.assertRaisesRegex(Wrong, "line 2: Slurm does not read"):
            sbatch_options("echo\n#SBATCH --nodes=2\n")

    def test_variables_that_scripts_export_are_read(self):
        for path in SCRIPTS:
            exported = {name for words in re.findall(r"^\s*export (.*)$", path.read_text(), re.M) for name in words.split()}
            exported |= set(re.findall(r" -x ([A-Z_]+)", path.read_text()))
            self.assertTrue(exported)
            self.assertEqual(exported - variables_read(), set(), path)


class Dockerfiles(unittest.TestCase):
    def test_they_are_valid(self):
        for path in DOCKERFILES:
            self.assertEqual(check_dockerfile(path.read_text(), ROOT), ["build", None], path)

    def test_variables_are_read_by_the_tools(self):
        tools = "".join(path.read_text() for folder in ("tools", "cmake") for path in (ROOT / folder).iterdir() if path.is_file())
        for path in DOCKERFILES:
            for _, word, rest in script_rules.instructions(path.read_text()):
                for name in script_rules.assigned(rest) if word == "ENV" else []:
                    self.assertRegex(tools, rf"\$(ENV)?{{?{name}\b", path)

    def test_what_the_build_needs_is_copied(self):
        """Every folder that the top CMakeLists.txt adds in a plain build."""
        needed = {"trireme", "tests", "examples", "bench", "cmake", "tools", "CMakeLists.txt", "CMakePresets.json", "Makefile"}
        for path in DOCKERFILES:
            copied = {source for _, word, rest in script_rules.instructions(path.read_text()) if word == "COPY" and "--from" not in rest
                      for source in rest.split()[:-1]}
            self.assertLessEqual(needed, copied, path)

    def test_broken_ones(self):
        good = DOCKERFILES[0].read_text()
        for old, new, words in (("COPY bench bench", "COPY benches bench", "COPY benches: is not in the repository"),
                                ("COPY bench bench", "COPY ../secret bench", "is not in the repository"),
                                ("COPY bench bench", "COPPY bench bench", "unknown instruction COPPY"),
                                ("ENV TRIREME_TORCH=", "ENV HUB_TOKEN=", "ENV HUB_TOKEN"), ("ENV TRIREME_TORCH=", "ARG DB_PASSWORD=", "ARG DB_PASSWORD"),
                                ("--from=build /opt", "--from=builder /opt", "there is no stage builder"),
                                ("USER 10001:10001", "USER root", "runs as root"), ("USER 10001:10001", "USER 0", "runs as 0"),
                                ("FROM debian:12 AS build", "FROM debian AS build", "must be IMAGE:TAG"),
                                ('ENTRYPOINT ["trireme"]', "ENTRYPOINT trireme", "ENTRYPOINT must be"),
                                ("RUN make build", "RUN", "RUN needs arguments")):
            with self.subTest(new), self.assertRaisesRegex(Wrong, words):
                self.assertIn(old, good)
                check_dockerfile(good.replace(old, new), ROOT)


class Commands(unittest.TestCase):
    """Every command line of trireme in deploy/ has options that exist."""

    @classmethod
    def setUpClass(cls):
        cls.commands, cls.keys = script_rules.declared_commands(ROOT), script_rules.documented_keys(ROOT)

    def test_the_sources_were_understood(self):
        self.assertLessEqual({"--requeue", "--resume", "-n", "--master"}, self.commands["train"])
        self.assertNotIn("--run-folder", self.commands["train"], "it is hidden")
        self.assertLessEqual({"training.steps", "run.dir", "comm.init_timeout_s"}, self.keys)

    def test_of_scripts_and_pages(self):
        found = 0
        for path in (*SCRIPTS, *DOCKERFILES, DEPLOY / "README.md"):
            lines = list(command_lines(path.read_text()))
            # Scripts that take the options of `trireme train`.
            lines += [["train", *words.split()] for words in re.findall(r"^[^|`#\n]*(?:train\.sbatch|mpirun/train hosts) (.*)$", path.read_text(), re.M)
                      if path.suffix == ".md"]
            self.assertTrue(lines, path)
            for words in lines:
                check_command(words, self.commands, self.keys)
            found += len(lines)
        self.assertGreaterEqual(found, 10)

    def test_of_manifests(self):
        generated = documents(bench_pods(*IMAGE, "--models", "bert", "--devices", "2").stdout)
        for spec in pod_specs([*map(job, JOBS), *generated]):
            for container in spec["containers"]:
                self.assertEqual(container["command"][0], "trireme")
                check_command(container["command"][1:], self.commands, self.keys)

    def test_wrong_ones(self):
        for line, words in (("trian run.toml", "no such command"), ("train run.toml --requeues", "--requeues: `trireme train` has"),
                            ("train run.toml --training.step 3", "--training.step: no such setting"), ("bench fit --models bert", "--models"),
                            ("bench run", "no such command"), ("doctor --training.steps 3", "no such setting")):
            with self.subTest(line), self.assertRaisesRegex(Wrong, re.escape(words)):
                check_command(line.split(), self.commands, self.keys)


class Page(unittest.TestCase):
    def test_it_names_every_file_and_its_links_lead_somewhere(self):
        text = (DEPLOY / "README.md").read_text()
        links = re.findall(r"\]\(([^)#:]+)", text)
        for target in links:
            self.assertTrue((DEPLOY / target).exists(), target)
        files = {str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
        self.assertEqual(files - set(links), {"README.md"})

    def test_its_pods_can_be_generated(self):
        [line] = re.findall(r"^deploy/kubernetes/bench_pods (.*?) >", (DEPLOY / "README.md").read_text(), re.M)
        for pod in documents(bench_pods(*line.split()).stdout):
            check_manifest(pod)


if __name__ == "__main__":
    unittest.main()
