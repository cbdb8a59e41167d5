"""Checkers of Dockerfiles, of the header of an sbatch script, and of `trireme ...` command lines. Each raises Wrong."""
import re
import shlex

from manifest_rules import Wrong

# ---- Dockerfiles

INSTRUCTIONS = ("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "ONBUILD", "RUN", "SHELL",
                "STOPSIGNAL", "USER", "VOLUME", "WORKDIR")
SECRET = re.compile(r"TOKEN|PASSWORD|PASSWD|SECRET|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.I)


def instructions(text):
    """(line number, instruction, arguments) of a Dockerfile, with continued lines joined."""
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or (not joined and not line.strip()):
            continue
        first = first if joined else number
        joined += line.rstrip().removesuffix("\\") + " "
        if not line.rstrip().endswith("\\"):
            word, _, rest = joined.strip().partition(" ")
            yield first, word, rest.strip()
            joined = ""
    if joined:
        raise Wrong(f"line {first}: the last line is continued")


def assigned(rest):
    """The names that ENV or ARG sets."""
    return [word.partition("=")[0] for word in shlex.split(rest)]


def check_dockerfile(text, root):
    """What the stages are called, in order: None for one without a name."""
    stages, user, entry = [], None, None
    for number, word, rest in instructions(text):
        here = f"line {number}"
        if word not in INSTRUCTIONS:
            raise Wrong(f"{here}: unknown instruction {word}")
        if not rest:
            raise Wrong(f"{here}: {word} needs arguments")
        if not stages and word not in ("FROM", "ARG"):
            raise Wrong(f"{here}: {word} before the first FROM")
        if word == "FROM":
            match = re.fullmatch(r"(\S+)( AS ([a-z][a-z0-9_-]*))?", rest)
            if not match or not re.search(r":\S+$", match[1]):
                raise Wrong(f"{here}: FROM {rest}: must be IMAGE:TAG, or IMAGE:TAG AS STAGE")
            stages.append(match[3])
            user = entry = None
        elif word in ("ENV", "ARG"):
            for name in assigned(rest):
                if SECRET.search(name):
                    raise Wrong(f"{here}: {word} {name}: an image keeps it, and everybody who has the image can read it")
        elif word == "COPY":
            words = shlex.split(rest)
            flags = [each for each in words if each.startswith("--")]
            sources = [each for each in words if not each.startswith("--")][:-1]
            stage = next((flag.partition("=")[2] for flag in flags if flag.startswith("--from=")), None)
            if not sources:
                raise Wrong(f"{here}: COPY {rest}: needs a source and a target")
            if stage is not None and stage not in stages[:-1]:
                raise Wrong(f"{here}: COPY --from={stage}: there is no stage {stage} before")
            for source in sources if stage is None else []:
                if source.startswith("/") or ".." in source.split("/") or not (root / source).exists():
                    raise Wrong(f"{here}: COPY {source}: is not in the repository")
        elif word == "ADD":
            raise Wrong(f"{here}: ADD: COPY says what it does")
        elif word == "USER":
            user = rest
        elif word == "ENTRYPOINT":
            entry = rest
    if not user or not re.fullmatch(r"[1-9][0-9]*(:[1-9][0-9]*)?", user):
        raise Wrong(f"the image runs as {user or 'root'}: USER must be a number other than 0")
    if entry != '["trireme"]':
        raise Wrong(f'ENTRYPOINT must be ["trireme"], not {entry}')
    return stages


# ---- sbatch

NUMBER, WORD, TIME = r"[1-9][0-9]*", r"[^\s]+", r"(\d+-)?\d+(:\d\d){0,2}"
SBATCH = {  # long options of sbatch, and what their values look like; None: takes no value
    "account": WORD, "array": r"[0-9,:%-]+", "chdir": WORD, "comment": WORD, "constraint": WORD, "cpus-per-gpu": NUMBER,
    "cpus-per-task": NUMBER, "dependency": WORD, "error": WORD, "exclude": WORD, "exclusive": None, "export": WORD, "gpus": WORD,
    "gpus-per-node": r"([a-z0-9_]+:)?[0-9]+", "gpus-per-task": r"([a-z0-9_]+:)?[0-9]+", "gres": WORD, "hint": WORD, "job-name": WORD,
    "kill-on-invalid-dep": "yes|no", "mail-type": WORD, "mail-user": WORD, "mem": r"[0-9]+[KMGT]?", "mem-per-cpu": r"[0-9]+[KMGT]?",
    "mem-per-gpu": r"[0-9]+[KMGT]?", "nice": NUMBER, "no-requeue": None, "nodelist": WORD, "nodes": rf"{NUMBER}(-{NUMBER})?",
    "ntasks": NUMBER, "ntasks-per-gpu": NUMBER, "ntasks-per-node": NUMBER, "open-mode": "append|truncate", "output": WORD,
    "partition": WORD, "qos": WORD, "requeue": None, "reservation": WORD, "signal": r"([RB]{1,2}:)?([A-Z]+[0-9]?|[0-9]+)(@[0-9]{1,5})?",
    "switches": WORD, "time": TIME, "time-min": TIME, "wckey": WORD,
}


def sbatch_options(text):
    """{option: value} of the #SBATCH lines, which Slurm reads up to the first command."""
    found, commands = {}, False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("#SBATCH"):
            commands = commands or bool(line.strip() and not line.startswith("#"))
            continue
        here = f"line {number}"
        if commands:
            raise Wrong(f"{here}: Slurm does not read #SBATCH lines after the first command")
        for word in shlex.split(line.removeprefix("#SBATCH"), comments=True):
            name, equals, value = word.removeprefix("--").partition("=")
            if not word.startswith("--") or name not in SBATCH:
                raise Wrong(f"{here}: {word}: not a long option of sbatch")
            if (SBATCH[name] is None) == bool(equals) or (equals and not re.fullmatch(SBATCH[name], value)):
                raise Wrong(f"{here}: {word}: must be --{name}" + ("" if SBATCH[name] is None else f"=VALUE, as {SBATCH[name]}"))
            if name in found:
                raise Wrong(f"{here}: --{name} is there twice")
            found[name] = value
    return found


# ---- trireme's command lines

GROUPS = {"show": "config", "check": "config", "import": "config", "explain": "config", "new": "config", "fit": "bench", "combine": "bench"}


def declared_commands(root):
    """{"train": options, "config check": options, ...}: what the sources of the program declare, without hidden options."""
    commands = {}
    for path in sorted((root / "trireme/cli").glob("*.cpp")):
        parts = re.split(r'\badd_(?:subcommand|config_command)\((?:\s*\*?\w+,)*\s*"([a-z-]+)"', path.read_text())
        for name, body in zip(parts[1::2], parts[2::2]):
            body = body.partition("\n}\n")[0]  # up to the end of the function
            declared = re.findall(r'add_(?:option|flag)\(\s*"([^"]*)"([^;]*);', body)
            options = {word for names, rest in declared if '->group("")' not in rest for word in names.split(",") if word.startswith("-")}
            commands[f"{GROUPS[name]} {name}" if name in GROUPS else name] = options
    for group in set(GROUPS.values()) & set(commands):  # no command by itself
        del commands[group]
    return commands


def documented_keys(root):
    """The settings, "training.steps", of the reference in docs/config.md."""
    text = (root / "docs/config.md").read_text().partition("\n## Keys\n")[2]
    parts = re.split(r"^### \[([a-z_.]+)\]$", text, flags=re.M)
    return {f"{section}.{key}" for section, body in zip(parts[1::2], parts[2::2]) for key in re.findall(r"^\| `([a-z0-9_.]+)`", body, re.M)}


def check_command(words, commands, keys):
    """`words`: those behind `trireme`."""
    line = "trireme " + " ".join(words)
    if words and words[0] in ("--help", "--version"):
        return
    name = next((each for each in (" ".join(words[:2]), " ".join(words[:1])) if each in commands), None)
    if name is None:
        raise Wrong(f"{line}: no such command; there are {', '.join(sorted(commands))}")
    for word in words[len(name.split()):]:
        option = word.partition("=")[0]
        if option.startswith("--") and "." in option:
            if name.split()[0] not in ("train", "config") or option[2:] not in keys:
                raise Wrong(f"{line}: {option}: no such setting")
        elif option.startswith("-") and option not in commands[name] | {"-h", "--help"}:
            raise Wrong(f"{line}: {option}: `trireme {name}` has {', '.join(sorted(commands[name]))}")


# Where a command begins: a line, behind another command, or behind a program that starts it.
BEGINS = re.compile(r"""(?:^\s*(?:RUN\s+)?|[;|]\s*|&&\s*|\bsrun(?:\s+--\S+)*\s+|\bmpirun\b.*?\s|\bdocker\srun\b.*?\s)
                        (?:trireme(?::[a-z]+)?|"\$program")\s+([^|;&>]+)""", re.X)


def command_lines(text):
    """The words behind `trireme` of each command in a script, a Dockerfile, or the blocks of a page."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if not line.lstrip().startswith("#"):
            for words in BEGINS.findall(line.partition(" #")[0]):
                yield [word for word in shlex.split(words) if not word.startswith("$")]
