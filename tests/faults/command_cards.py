"""A rule covers no more than the words on the card said: compared with what a real bash starts.

python -m tests.faults.command_cards [--lines 2000] [--seed 1]

Command lines are made of pipes, lists, groups, loops, expansions and quotes. For each, the rules
that its card would offer are taken, and other lines of the same kind are tried against them. What
they allow runs in a real bash in which every program is a stand-in that writes down how it was
called; each call must begin with the words of a rule on the card.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from helix_desktop.tools.permission import (
    ActionEffect,
    PermissionRule,
    ToolAction,
    choices_to_offer,
    describe_choice,
    rules_allow_action,
)
from tests.faults.store_report import report

PROGRAMS = (
    "ls", "head", "tail", "wc", "sort", "grep", "git", "cat", "tee", "make", "rm", "pytest", "xargs", "find",
    "python3", "sed", "env", "nice", "sudo", "cp", "diff", "rg", "cargo", "npm", "gh",
)  # fmt: skip
ARGUMENTS = (
    "-la", "-n 3", "a.txt", "src/*.py", "*.py", "'a b'", '"a b"', "$HOME", '"$HOME"', "$(rm x)", "`rm x`", "status", "log",
    "log --help", "commit -m x", "branch --edit-description", "--output=x", "-o x", "test", "pr list", "-delete",
    "x{a,b}", "~/x", "\\;", "a\\ b", "-e", "--", "<(rm x)", "2>&1", "> out", "< a.txt", "2>/dev/null", "-exec rm {} +",
)  # fmt: skip
JOINTS = (" | ", " && ", " || ", "; ", "\n", " & ", " |& ")
FRAMES = (
    "{}", "{}", "{}", "({})", "{{ {}; }}", "! {}", "if {}; then {}; else {}; fi", "for f in a b; do {}; done",
    'for f in a b; do {} "$f"; done', "for f in a b; do {} $f; done", 'for f in -x --evil; do {} "$f"; done',
    'for f in src/*.py; do {} "$f"; done', "for f in $(rm x); do {}; done", "while false; do {}; done", "{} # rm x",
    "f() {{ {}; }}; f", "A=1 {}", "PATH=x {}", 'for f in a; do read f; {} "$f"; done', "case a in a) {};; esac",
    "{}\\\n x", "time {}", "eval '{}'", "sh -c '{}'", "echo {}", 'echo "$({})"', "true && {}",
)  # fmt: skip


def build_line(chance: random.Random) -> str:
    line = " ".join([chance.choice(PROGRAMS), *chance.sample(ARGUMENTS, chance.randint(0, 2))])
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        more = " ".join([chance.choice(PROGRAMS), *chance.sample(ARGUMENTS, chance.randint(0, 2))])
        line = f"{line}{chance.choice(JOINTS)}{more}"
    frame = chance.choice(FRAMES)
    return frame.format(*[line] * frame.count("{}"))


def change_line(line: str, chance: random.Random) -> str:
    """The same line with a word more, a word less, or within something."""
    kind = chance.random()
    words = line.split(" ")
    if kind < 0.4:
        words.insert(chance.randint(1, len(words)), chance.choice(ARGUMENTS))
        return " ".join(words)
    if kind < 0.5 and len(words) > 2:
        del words[chance.randrange(1, len(words))]
        return " ".join(words)
    if kind < 0.8:
        frame = chance.choice(FRAMES)
        return frame.format(*[line] * frame.count("{}"))
    return f"{line}{chance.choice(JOINTS)}{build_line(chance)}"


def _action(line: str) -> ToolAction:
    return ToolAction("run_command", ActionEffect.RUN, "Run a command", line, command=line)


class StandIns:
    """A folder with a stand-in for each program, and a bash that finds no others."""

    def __init__(self, folder: Path) -> None:
        self._programs = folder / "programs"
        self._log = folder / "log"
        self._work = folder / "work"
        self._programs.mkdir()
        (self._work / "src").mkdir(parents=True)
        for name in ("a.txt", "src/a.py", "src/b.py", "--help.py"):
            (self._work / name).write_text("x\n", encoding="utf-8")
        for name in (*PROGRAMS, "sh"):
            self.add_stand_in(name)

    def add_stand_in(self, name: str) -> None:
        # One write each: the programs of a pipe write at the same time.
        script = (
            '#!/bin/sh\nprintf "%s\\0" "${0##*/}" "$@" "$(printf "\\001")" >> "$STAND_IN_LOG"\n'
        )
        (self._programs / name).write_text(script, encoding="utf-8")
        (self._programs / name).chmod(0o755)

    def add_real_program(self, name: str, path: str) -> None:
        (self._programs / name).unlink(missing_ok=True)
        (self._programs / name).symlink_to(path)

    def list_calls(self, line: str) -> list[list[str]]:
        """How the line calls programs in a real bash."""
        self._log.write_bytes(b"")
        environment = {
            "PATH": str(self._programs), "STAND_IN_LOG": str(self._log), "HOME": str(self._work),
        }  # fmt: skip
        subprocess.run(
            ["/bin/bash", "--noprofile", "--norc", "-c", line], check=False, cwd=self._work,
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=20,
        )  # fmt: skip
        calls = self._log.read_bytes().split(b"\1\0")[:-1]
        return [os.fsdecode(call).split("\0")[:-1] for call in calls]


def is_named(call: list[str], card: str) -> bool:
    """Whether the words on the card are the beginning of this call, or all of it."""
    for pattern in card.split(", "):
        words = shlex.split(pattern.removesuffix(" *"))
        if call == words or (pattern.endswith(" *") and call[: len(words)] == words):
            return True
    return False


def run_trials(number: int, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="cards-") as folder:
        stand_ins = StandIns(Path(folder))
        while found["lines"] < number:
            line = build_line(chance)
            found["lines"] += 1
            for choice in choices_to_offer(_action(line)):
                found["choices"] += 1
                _try_choice(stand_ins, line, choice, chance, found)


def _try_choice(
    stand_ins: StandIns,
    line: str,
    choice: tuple[PermissionRule, ...],
    chance: random.Random,
    found: Counter[str],
) -> None:
    card = describe_choice(choice)
    others = [change_line(line, chance) for _ in range(6)] + [build_line(chance)]
    for other in (line, *others):
        if not rules_allow_action(choice, _action(other)):
            continue
        found["allowed"] += 1
        for call in stand_ins.list_calls(other):
            found["calls"] += 1
            if not is_named(call, card):
                found[f"LOST {card!r} allowed {other!r}, which called {call}"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return report(
        "command_cards",
        arguments.seed,
        lambda found: run_trials(arguments.lines, arguments.seed, found),
    )


if __name__ == "__main__":
    sys.exit(main())
