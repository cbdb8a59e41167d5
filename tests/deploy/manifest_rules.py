"""A strict checker of Kubernetes objects: keys that a kind does not have, wrong types, missing keys and names that lead nowhere.

Only what deploy/ may use is listed: a key that is missing here is looked up in the published API first, then added.
A rule is a type, a tuple of allowed values, a compiled pattern, [RULE] for a list, {KEY: RULE} for an object (KEY! is required), or a
function(value, place) that calls wrong().
"""
import re

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
DNS_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
PATH = re.compile(r"/[^:]*")
IMAGE = re.compile(r"[a-z0-9][a-z0-9._/-]*(:[0-9]+/[a-z0-9._/-]+)?(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?")


class Wrong(Exception):
    """An object that the API server, or a controller, would refuse."""


def wrong(place, what):
    raise Wrong(f"{place}: {what}")


def check(value, rule, place):
    if isinstance(rule, dict):
        check_object(value, rule, place)
    elif isinstance(rule, list):
        if not isinstance(value, list):
            wrong(place, f"must be a list, not {value!r}")
        for index, item in enumerate(value):
            check(item, rule[0], f"{place}[{index}]")
    elif isinstance(rule, tuple):
        if value not in rule:
            wrong(place, f"{value!r}: must be one of {', '.join(map(str, rule))}")
    elif isinstance(rule, re.Pattern):
        if not isinstance(value, str) or not rule.fullmatch(value):
            wrong(place, f"{value!r} must be a word as {rule.pattern}")
    elif isinstance(rule, type):
        if not isinstance(value, rule) or (rule is int and isinstance(value, bool)):
            wrong(place, f"{value!r} must be of type {rule.__name__}")
    else:
        rule(value, place)


def check_object(value, rule, place):
    if not isinstance(value, dict):
        wrong(place, f"must be an object, not {value!r}")
    rules = {key.rstrip("!"): each for key, each in rule.items()}
    for key in value:
        if key not in rules:
            wrong(f"{place}.{key}", f"unknown key; known are {', '.join(rules)}")
    for key in rule:
        if key.endswith("!") and key[:-1] not in value:
            wrong(place, f"the key {key[:-1]} is missing")
    for key, each in value.items():
        check(each, rules[key], f"{place}.{key}")


def at_least(low):
    def rule(value, place):
        check(value, int, place)
        if value < low:
            wrong(place, f"{value}: must be at least {low}")
    return rule


def pairs(keys, values):
    """An object whose keys are free words."""
    def rule(value, place):
        if not isinstance(value, dict):
            wrong(place, f"must be an object, not {value!r}")
        for key, each in value.items():
            check(key, keys, f"{place}.{key}")
            check(each, values, f"{place}.{key}")
    return rule


def exactly_one_of(rule, *names):
    """The object `rule`, with one of `names` in it, as for the sources of a value or a volume."""
    def checked(value, place):
        check(value, rule, place)
        if len([name for name in names if name in value]) != 1:
            wrong(place, f"must have exactly one of {', '.join(names)}")
    return checked


def quantity(value, place):
    if isinstance(value, bool) or not QUANTITY.fullmatch(str(value)):
        wrong(place, f"{value!r}: must be a quantity, as 8 or 16Gi")


def resources(value, place):
    check(value, {"limits": pairs(LABEL_KEY, quantity), "requests": pairs(LABEL_KEY, quantity)}, place)
    for name, count in value.get("limits", {}).items():
        if "/" in name:  # an extended resource: whole numbers, and as many requested as allowed
            if type(count) is not int or count < 1:
                wrong(f"{place}.limits.{name}", f"{count!r}: must be a whole number of at least 1")
            if value.get("requests", {}).get(name, count) != count:
                wrong(f"{place}.requests.{name}", "must equal the limit")
    for name in value.get("requests", {}):
        if "/" in name and name not in value.get("limits", {}):
            wrong(f"{place}.limits", f"{name} is requested, so it needs a limit")


def unique(value, place, key):
    names = [item[key] for item in value]
    for name in names:
        if names.count(name) > 1:
            wrong(place, f"{key} {name} is there twice")


METADATA = {"name": DNS_NAME, "namespace": DNS_LABEL, "labels": pairs(LABEL_KEY, LABEL_VALUE), "annotations": pairs(LABEL_KEY, str)}
NAMED = {**METADATA, "name!": DNS_NAME}
SELECT_KEY = {"name!": DNS_NAME, "key!": str, "optional": bool}
VALUE_FROM = exactly_one_of({"fieldRef": {"fieldPath!": str, "apiVersion": str}, "secretKeyRef": SELECT_KEY, "configMapKeyRef": SELECT_KEY},
                            "fieldRef", "secretKeyRef", "configMapKeyRef")
SECCOMP = {"type!": ("RuntimeDefault", "Localhost", "Unconfined"), "localhostProfile": str}
CONTAINER = {
    "name!": DNS_LABEL, "image!": IMAGE, "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "command": [str], "args": [str], "workingDir": PATH,
    "env": [exactly_one_of({"name!": VARIABLE, "value": str, "valueFrom": VALUE_FROM}, "value", "valueFrom")],
    "ports": [{"name": DNS_LABEL, "containerPort!": at_least(1), "protocol": ("TCP", "UDP", "SCTP")}],
    "resources": resources,
    "securityContext": {"allowPrivilegeEscalation": bool, "privileged": (False,), "readOnlyRootFilesystem": bool, "runAsNonRoot": bool,
                        "runAsUser": at_least(1), "runAsGroup": at_least(1), "capabilities": {"add": [str], "drop": [str]}},
    "volumeMounts": [{"name!": DNS_LABEL, "mountPath!": PATH, "readOnly": bool, "subPath": str}],
}
VOLUME = exactly_one_of({"name!": DNS_LABEL, "emptyDir": {"medium": ("", "Memory"), "sizeLimit": quantity},
                         "configMap": {"name!": DNS_NAME, "optional": bool}, "secret": {"secretName!": DNS_NAME, "optional": bool},
                         "persistentVolumeClaim": {"claimName!": DNS_NAME, "readOnly": bool}},
                        "emptyDir", "configMap", "secret", "persistentVolumeClaim")
POD_KEYS = {
    "containers!": [CONTAINER], "initContainers": [CONTAINER], "volumes": [VOLUME], "restartPolicy": ("Always", "OnFailure", "Never"),
    "terminationGracePeriodSeconds": at_least(0), "nodeSelector": pairs(LABEL_KEY, LABEL_VALUE), "schedulerName": str,
    "serviceAccountName": DNS_NAME, "imagePullSecrets": [{"name!": DNS_NAME}], "priorityClassName": DNS_NAME, "hostNetwork": bool,
    "tolerations": [{"key": LABEL_KEY, "operator": ("Exists", "Equal"), "value": LABEL_VALUE,
                     "effect": ("NoSchedule", "PreferNoSchedule", "NoExecute")}],
    "securityContext": {"runAsNonRoot": bool, "runAsUser": at_least(1), "runAsGroup": at_least(1), "fsGroup": at_least(1),
                        "seccompProfile": SECCOMP},
}


def pod_spec(value, place):
    check(value, POD_KEYS, place)
    if not value["containers"]:
        wrong(f"{place}.containers", "must not be empty")
    unique(value["containers"], f"{place}.containers", "name")
    volumes = value.get("volumes", [])
    unique(volumes, f"{place}.volumes", "name")
    for index, container in enumerate(value["containers"]):
        here = f"{place}.containers[{index}]"
        unique(container.get("env", []), f"{here}.env", "name")
        unique(container.get("volumeMounts", []), f"{here}.volumeMounts", "mountPath")
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in [volume["name"] for volume in volumes]:
                wrong(f"{here}.volumeMounts", f"there is no volume {mount['name']}")


TEMPLATE = {"metadata": METADATA, "spec!": pod_spec}


def finite_pod(value, place):
    """The template of a batch job: its pods may not be restarted without end."""
    check(value, TEMPLATE, place)
    check(value["spec"].get("restartPolicy"), ("OnFailure", "Never"), f"{place}.spec.restartPolicy")


def exit_codes(value, place):
    check(value, {"containerName": DNS_LABEL, "operator!": ("In", "NotIn"), "values!": [int]}, place)
    codes = value["values"]
    if not codes or codes != sorted(set(codes)) or (value["operator"] == "In" and 0 in codes):
        wrong(f"{place}.values", f"{codes}: must be increasing, and without 0")


def job_spec(value, place):
    check(value, {"completionMode": ("Indexed", "NonIndexed"), "parallelism": at_least(0), "completions": at_least(0),
                  "backoffLimit": at_least(0), "activeDeadlineSeconds": at_least(1), "ttlSecondsAfterFinished": at_least(0),
                  "suspend": bool, "template!": finite_pod,
                  "podFailurePolicy": {"rules!": [{"action!": ("FailJob", "Ignore", "Count", "FailIndex"), "onExitCodes": exit_codes}]}}, place)
    if "podFailurePolicy" in value:
        spec = value["template"]["spec"]
        check(spec["restartPolicy"], ("Never",), f"{place}.template.spec.restartPolicy")  # the API's own rule
        for rule in value["podFailurePolicy"]["rules"]:
            name = rule.get("onExitCodes", {}).get("containerName")
            if name and name not in [container["name"] for container in spec["containers"]]:
                wrong(f"{place}.podFailurePolicy", f"there is no container {name}")


def pytorch_replica(name):
    def rule(value, place):
        check(value, {"replicas": at_least(1), "restartPolicy": ("Always", "OnFailure", "Never", "ExitCode"), "template!": TEMPLATE}, place)
        if name == "Master" and value.get("replicas", 1) != 1:
            wrong(f"{place}.replicas", "there is one master")
        if "pytorch" not in [container["name"] for container in value["template"]["spec"]["containers"]]:
            wrong(f"{place}.template.spec.containers", "the operator needs a container with the name pytorch")
    return rule


PYTORCH_JOB = {"apiVersion!": ("kubeflow.org/v1",), "kind!": ("PyTorchJob",), "metadata!": NAMED, "spec!": {
    "nprocPerNode": re.compile("auto|cpu|gpu|[1-9][0-9]*"),
    "runPolicy": {"backoffLimit": at_least(0), "cleanPodPolicy": ("All", "Running", "None"), "ttlSecondsAfterFinished": at_least(0),
                  "activeDeadlineSeconds": at_least(1), "suspend": bool,
                  "schedulingPolicy": {"minAvailable": at_least(1), "queue": str, "priorityClass": str}},
    "pytorchReplicaSpecs!": {"Master!": pytorch_replica("Master"), "Worker": pytorch_replica("Worker")}}}


def jobset_spec(value, place):
    reasons = ("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy")
    check(value, {
        "network": {"enableDNSHostnames": bool, "subdomain": DNS_LABEL, "publishNotReadyAddresses": bool},
        "successPolicy": {"operator!": ("All", "Any"), "targetReplicatedJobs": [str]},
        "failurePolicy": {"maxRestarts": at_least(0), "restartStrategy": ("Recreate", "BlockingRecreate", "InPlaceRestart"), "rules": [
            {"name!": re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"), "targetReplicatedJobs": [str],
             "action!": ("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"), "onJobFailureReasons": [reasons]}]},
        "suspend": bool, "ttlSecondsAfterFinished": at_least(0),
        "replicatedJobs!": [{"name!": DNS_LABEL, "replicas": at_least(1), "template!": {"metadata": METADATA, "spec!": job_spec}}]}, place)
    unique(value["replicatedJobs"], f"{place}.replicatedJobs", "name")


JOB_SET = {"apiVersion!": ("jobset.x-k8s.io/v1alpha2",), "kind!": ("JobSet",), "metadata!": NAMED, "spec!": jobset_spec}
VOLCANO_ACTIONS = ("AbortJob", "RestartJob", "RestartTask", "TerminateJob", "CompleteJob", "ResumeJob")
VOLCANO_EVENTS = ("*", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed")


def volcano_policies(value, place):
    check(value, [exactly_one_of({"action!": VOLCANO_ACTIONS, "event": VOLCANO_EVENTS, "events": [VOLCANO_EVENTS],
                                  "exitCode": at_least(1), "timeout": str}, "event", "events", "exitCode")], place)
    codes = [policy["exitCode"] for policy in value if "exitCode" in policy]
    if len(codes) != len(set(codes)):
        wrong(place, f"exit codes {codes}: one is there twice")


def volcano_spec(value, place):
    check(value, {"schedulerName": str, "queue": DNS_NAME, "minAvailable": at_least(1), "maxRetry": at_least(0),
                  "priorityClassName": DNS_NAME, "ttlSecondsAfterFinished": at_least(0), "policies": volcano_policies,
                  "plugins": {"pytorch": [re.compile(r"--(master|worker|port)=[a-z0-9-]+")], "svc": [str], "env": [str], "ssh": [str]},
                  "tasks!": [{"name!": DNS_LABEL, "replicas!": at_least(1), "minAvailable": at_least(1), "policies": volcano_policies,
                              "template!": finite_pod}]}, place)
    unique(value["tasks"], f"{place}.tasks", "name")
    for word in value.get("plugins", {}).get("pytorch", []):
        role, _, name = word[2:].partition("=")
        if role != "port" and name not in [task["name"] for task in value["tasks"]]:
            wrong(f"{place}.plugins.pytorch", f"{word}: there is no task {name}")
    if value.get("minAvailable", 1) > sum(task["replicas"] for task in value["tasks"]):
        wrong(f"{place}.minAvailable", "is more than the replicas of all tasks")


VOLCANO_JOB = {"apiVersion!": ("batch.volcano.sh/v1alpha1",), "kind!": ("Job",), "metadata!": NAMED, "spec!": volcano_spec}
POD = {"apiVersion!": ("v1",), "kind!": ("Pod",), "metadata!": NAMED, "spec!": pod_spec}
CLAIM = {"apiVersion!": ("v1",), "kind!": ("PersistentVolumeClaim",), "metadata!": NAMED, "spec!": {
    "accessModes!": [("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")], "storageClassName": str,
    "resources!": {"requests!": {"storage!": quantity}}}}
KINDS = {("kubeflow.org/v1", "PyTorchJob"): PYTORCH_JOB, ("jobset.x-k8s.io/v1alpha2", "JobSet"): JOB_SET,
         ("batch.volcano.sh/v1alpha1", "Job"): VOLCANO_JOB, ("v1", "Pod"): POD, ("v1", "PersistentVolumeClaim"): CLAIM}


def check_manifest(value):
    """Raises Wrong, with the place in the object."""
    if not isinstance(value, dict):
        wrong("manifest", f"must be an object, not {value!r}")
    kind = (value.get("apiVersion"), value.get("kind"))
    if kind not in KINDS:
        wrong("manifest", f"apiVersion {kind[0]} and kind {kind[1]}: known are {', '.join(' '.join(each) for each in KINDS)}")
    check(value, KINDS[kind], kind[1])


def pod_specs(value):
    """Every pod spec in a manifest."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for each in value.values():
            yield from pod_specs(each)
    elif isinstance(value, list):
        for each in value:
            yield from pod_specs(each)
