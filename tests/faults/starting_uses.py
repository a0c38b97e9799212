"""What "always allow" covers starts no program that no word named.

python -m tests.faults.starting_uses [--uses 600] [--seed 1] [--flagged]

For every program that rules are offered for and that is installed here, the options are read from
its manual page, or from its --help. Uses are made of them, and of files and numbers. What the
widest offered rule covers is run, in a sandbox without a network, and every program that the
kernel starts is written down. `--flagged` prints the options whose description speaks of editors,
pagers, browsers, filters or other programs, to be judged in resources/tables/programs.toml.

Needs man, strace and bwrap.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.tools.command_lines import program_tables
from helix_desktop.tools.permission import (
    ActionEffect,
    ToolAction,
    rules_allow_action,
    rules_to_offer,
)
from tests.faults.store_report import report

LONGEST_SECONDS = 20
# An option begins a line, at most this far to the right.
OPTION_LINE = re.compile(r"^\s{1,12}(-{1,2}[A-Za-z0-9?].*)$")
OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z0-9][\w-]*)(\[?[= ]?[<\[A-Z(][^,\s]*)?")
SPEAKS_OF_PROGRAMS = re.compile(
    r"editor|pager|paginat|browser|\bopens?\b|launch|execut|invok|spawn|fork|\bcommands?\b|\bprograms?\b|external"
    r"|filter|textconv|helper|\bshell\b|hook|plugin|gpg|\bsign|decompress|compressed|install|watch|\bserver\b"
    r"|\bui\b|debugger|interactive|manual page|script",
    re.IGNORECASE,
)
CANARY = "/usr/bin/false"  # Everything that configuration can name is this program.
# There is no network. These ask again and again, and wait between.
ASKED_ONCE = {"npm_config_fetch_retries": "0", "CARGO_NET_RETRY": "0", "PIP_RETRIES": "0"}
NAMES = (
    "a.txt",
    "b.x",
    "folder",
    "a.c",
    "HEAD",
    "main",
    "origin",
    "new",
    "3",
    "10",
    "*",
    "stash@{0}",
)
INTERPRETERS = r"python[\d.]*|node|ruby|perl|dash|sh|env"
# What these start belongs to them: the parts that they are made of.
FAMILIES = {
    "git": r"git(-.*)?|rebase|pack-objects",
    "cargo": r"cargo.*|rustc|rustdoc|rustfmt|clippy.*|cc|gcc|ld|collect2|as|rustup|probe|a|a-[0-9a-f]+|ld\.lld|rust-lld",
    "npm": r"npm|node|sh|git",
    "pnpm": r"pnpm|node|sh", "yarn": r"yarn|node|sh",
    "docker": r"docker.*", "kubectl": r"kubectl.*", "gh": r"gh",
    "go": r"go|compile|asm|link|vet|cgo|gcc|cc1|as|ld|collect2|pack|buildid|cover|gofmt|git|test2json|doc|\w+\.test",
    "pip": r"pip|python.*|lsb_release|ldconfig.*|git|rustc|uname|cut|getopt|tr",  # It tells the index what there is here.
    # What it runs is the project's own code, and plugins such as pytest-benchmark ask git.
    "pytest": r"pytest|python.*|git|file",
    "rustfmt": r"rustfmt|cargo-fmt|rustc|rustup|cargo", "egrep": r"e?grep|sh|dash", "fgrep": r"f?grep|sh|dash",
    "which": r"which.*|sh|dash",
    # Their packages begin with a script that chooses the program for this system.
    "biome": rf"biome|ldd|getconf|{INTERPRETERS}", "tsc": rf"tsc|{INTERPRETERS}",
}  # fmt: skip


@dataclass(frozen=True)
class Option:
    words: str  # As it is written: `--output=<file>`.
    about: str

    @property
    def is_flagged(self) -> bool:
        return SPEAKS_OF_PROGRAMS.search(f"{self.words} {self.about[:500]}") is not None


def list_commands() -> list[tuple[str, ...]]:
    """Every command that a prefix rule may be offered for, and that is installed."""
    commands = [(name,) for name in program_tables.SAFE_PROGRAMS]
    for name, subcommands in program_tables.SAFE_SUBCOMMANDS.items():
        commands += [(name, *subcommand.split("/")) for subcommand in subcommands]
    chosen = os.environ.get("PROGRAMS", "").split()
    here = sorted(words for words in commands if shutil.which(words[0]) is not None)
    return [words for words in here if not chosen or words[0] in chosen]


@functools.cache
def read_options(words: tuple[str, ...]) -> tuple[Option, ...]:
    if words[0] == "go":  # It has pages of its own.
        text = _read_help(("go", "help", *words[1:]))
        if words[1:] == ("test",):
            text += _read_help(("go", "help", "testflag"))
        if words[1:] != ("doc",):
            text += _read_help(("go", "help", "build"))
    else:
        text = _read_manual("-".join(words)) or _read_help(words)
    options: list[Option] = []
    header = ""
    about = ""
    for line in text.split("\n"):
        if (found := OPTION_LINE.match(line)) is not None:
            if header:
                options.append(Option(header, about))
            header = found[1]
            about = ""
        elif header:
            about += f" {line.strip()}"
    if header:
        options.append(Option(header, about))
    return tuple(options)


def _environment() -> dict[str, str]:
    names = ("EDITOR", "VISUAL", "PAGER", "BROWSER", "GIT_EDITOR", "GIT_PAGER", "MANPAGER")
    plain = {"LC_ALL": "C.UTF-8", "MANWIDTH": "100", "MANPAGER": "cat", "PAGER": "cat"}
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return {**kept, **plain}


def search_path_without_shims() -> str:
    """The search path without pyenv's shims, scripts that only find out which program is meant."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    real = [folder for folder in folders if Path(folder).name != "shims"]
    return os.pathsep.join([*real, f"{sys.base_prefix}/bin"])


def _read_manual(page: str) -> str:
    done = subprocess.run(
        ["man", "--nj", "--nh", page], check=False, capture_output=True, env=_environment()
    )
    text = done.stdout.decode("utf-8", "replace")
    return re.sub(r".\x08", "", text) if done.returncode == 0 else ""


def _read_help(words: Sequence[str]) -> str:
    asking = () if words[:2] == ("go", "help") else ("--help",)
    try:
        done = subprocess.run(
            [*words, *asking], check=False, capture_output=True, env=_environment(),
            stdin=subprocess.DEVNULL, timeout=LONGEST_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def build_use(words: tuple[str, ...], chance: random.Random) -> tuple[str, ...]:
    """The command with some of its options, each with a value where it takes one."""
    use = list(words)
    options = read_options(words)
    flagged = [option for option in options if option.is_flagged]
    for _ in range(chance.randint(1, 3)):
        pool = flagged if flagged and chance.random() < 0.6 else options
        if not pool:
            break
        spellings = OPTION.findall(chance.choice(pool).words)
        if spellings:
            name, takes = chance.choice(spellings)
            use += spell_option(name, takes, chance)
    if chance.random() < 0.1:
        use.append("--help")
    use += chance.sample(NAMES, chance.randint(0, 2))
    return tuple(use)


def spell_option(name: str, takes: str, chance: random.Random) -> list[str]:
    """It may be shortened; the value of one that takes any stands behind = or by itself."""
    if chance.random() < 0.1 and name.startswith("--") and len(name) > 6:
        name = name[: chance.randint(5, len(name))]
    may_be_left_out = takes.startswith("[")
    if not takes or (may_be_left_out and chance.random() < 0.5):
        return [name]
    if name.startswith("--") and chance.random() < 0.7:
        return [f"{name}={chance.choice(NAMES)}"]
    return [name, chance.choice(NAMES)]


def is_covered(words: tuple[str, ...], use: tuple[str, ...]) -> bool:
    """Whether the widest rule that is offered for the bare command covers this use."""
    bare = shlex.join(words)
    offered = rules_to_offer(_action(bare))
    return any(rules_allow_action((rule,), _action(shlex.join(use))) for rule in offered)


def _action(line: str) -> ToolAction:
    return ToolAction("run_command", ActionEffect.RUN, "Run a command", line, command=line)


class Sandbox:
    """A small repository, a home whose every setting names the canary, and no way out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._home = folder / "home"
        self._project = folder / "project"
        self._unused_project = folder / "unused project"
        self._home.mkdir()
        settings = (
            f"[user]\nname=a\nemail=a@b\n[core]\neditor={CANARY}\npager={CANARY}\n[gpg]\nprogram={CANARY}\n"
            f'[web]\nbrowser=canary\n[browser "canary"]\ncmd={CANARY}\n[interactive]\ndiffFilter={CANARY}\n'
            f"[merge]\ntool=canary\n[sequence]\neditor={CANARY}\n[init]\ndefaultBranch=main\n"
            f"[safe]\ndirectory=*\n[commit]\ngpgsign=false\n"
        )  # fmt: skip
        (self._home / ".gitconfig").write_text(settings, encoding="utf-8")
        self._make_project(self._unused_project)

    def _make_project(self, project: Path) -> None:
        (project / "folder").mkdir(parents=True)
        (project / "src").mkdir()
        for name, text in (
            ("a.txt", "one\n"), ("b.x", "two\n"), ("a.c", "int main(void){return 0;}\n"),
            ("a.py", "def test_a():\n    pass\n"), ("a.js", "const a = 1;\n"), ("src/main.rs", "fn main() {}\n"),
            ("package.json", '{"name":"a","version":"1.0.0","scripts":{"test":"true"}}\n'),
            ("go.mod", "module example.org/a\n\ngo 1.19\n"), ("a.go", "package a\n\nfunc A() int { return 1 }\n"),
            ("a_test.go", 'package a\n\nimport "testing"\n\nfunc TestA(t *testing.T) { A() }\n'),
            ("Cargo.toml", '[package]\nname="a"\nversion="0.1.0"\nedition="2021"\n'),
        ):  # fmt: skip
            (project / name).write_text(text, encoding="utf-8")
        shutil.copyfile("/usr/share/man/man1/ls.1.gz", project / "a.gz")
        git = ["git", "-C", str(project)]
        environment = {**_environment(), "HOME": str(self._home)}
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"], ["tag", "v1"]):
            subprocess.run([*git, *words], check=False, capture_output=True, env=environment)
        (project / "a.txt").write_text("one\nmore\n", encoding="utf-8")

    def list_started(self, use: Sequence[str]) -> list[str]:
        """The programs that the kernel started for this use, without the first."""
        shutil.rmtree(self._project, ignore_errors=True)
        shutil.copytree(self._unused_project, self._project, symlinks=True)
        log = self._project.parent / "started"
        log.write_bytes(b"")
        environment = {
            **_environment(), "HOME": str(self._home), "EDITOR": CANARY, "VISUAL": CANARY, "PAGER": CANARY,
            "BROWSER": CANARY, "MANPAGER": CANARY, **ASKED_ONCE,
        }  # fmt: skip
        command = [
            *("bwrap", "--unshare-all", "--cap-drop", "ALL", "--die-with-parent", "--ro-bind", "/", "/"),
            *("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind", str(self._folder), str(self._folder)),
            *("--ro-bind", str(self._unused_project), str(self._unused_project)),
            *("--ro-bind", str(self._home), str(self._home), "--chdir", str(self._project)),
            *("strace", "-f", "-qq", "-z", "-e", "trace=execve", "-s", "200", "-o", str(log), *use),
        ]  # fmt: skip
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command, check=False, capture_output=True, env=environment, timeout=LONGEST_SECONDS,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        text = log.read_text(encoding="utf-8", errors="replace")
        return re.findall(r'execve\("([^"]*)"', text)[1:]


def find_foreign(words: Sequence[str], use: Sequence[str], started: Sequence[str]) -> list[str]:
    """Programs that are no part of the command, and that none of its words names."""
    family = FAMILIES.get(words[0], re.escape(words[0]))
    if words[0] == "git" and words[1] in ("fetch", "pull", "push"):
        family += "|sh|ssh"  # A remote that is a folder or a host is reached through these.
    if words[0] not in FAMILIES and _is_script(words[0]):
        family += f"|{INTERPRETERS}"
    foreign = []
    for path in started:
        name = path.rpartition("/")[2]
        if re.fullmatch(family, name) is None and name not in use and path not in use:
            foreign.append(path)
    return foreign


@functools.cache
def _is_script(name: str) -> bool:
    path = shutil.which(name)
    if path is None:
        return False
    with Path(path).open("rb") as file:
        return file.read(2) == b"#!"


def run_trials(number: int, seed: int, found: Counter[str]) -> None:
    commands = [words for words in list_commands() if rules_to_offer(_action(shlex.join(words)))]
    found["programs"] = len({words[0] for words in commands})
    found["commands"] = len(commands)
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="uses-") as folder:
        sandbox = Sandbox(Path(folder))
        while found["covered"] < number:
            words = chance.choice(commands)
            use = build_use(words, chance)
            found["uses"] += 1
            if not is_covered(words, use):
                continue
            found["covered"] += 1
            if found["covered"] % 50 == 0:
                print(f"starting_uses: {found['covered']} uses that are covered", flush=True)
            foreign = find_foreign(words, use, sandbox.list_started(use))
            if foreign:
                found[f"LOST {shlex.join(use)} started {', '.join(sorted(set(foreign)))}"] += 1


def print_flagged() -> None:
    for words in list_commands():
        for option in read_options(words):
            if option.is_flagged:
                print(" ".join(words), "|", option.words[:70], "|", option.about[:150].strip())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--uses", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flagged", action="store_true")
    arguments = parser.parse_args()
    os.environ["PATH"] = search_path_without_shims()
    if arguments.flagged:
        print_flagged()
        return 0
    return report(
        "starting_uses",
        arguments.seed,
        lambda found: run_trials(arguments.uses, arguments.seed, found),
    )


if __name__ == "__main__":
    sys.exit(main())
