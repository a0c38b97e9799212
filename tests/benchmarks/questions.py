"""How often a person is asked for permission in recorded sessions, and whether only what rules and
presses named would have run.

    python -m tests.benchmarks.questions FOLDER [FOLDER ...]

The sessions are files of one message a line, with tool calls in the shape of OpenAI's chat
completions. Each command and each edit is decided in the order of the session, in a new workspace
that asks. The person presses the first "always" that is offered, or allows it once where none is.
Each line that a rule then allows without a question runs in a real bash, in a box of its own in
which every program is a stand-in that writes down how it was called. Each call must begin with the
words of a rule that was pressed. The network is never wanted, and files are within the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from helix_desktop.engine.tool_names import ToolName
from helix_desktop.tools.command_lines.command_analysis import KnownPrograms, find_started_programs
from helix_desktop.tools.permission import (
    ActionEffect,
    PermissionMode,
    PermissionRule,
    ToolAction,
    choices_to_offer,
    decide_permission,
)
from tests.faults.command_cards import PROGRAMS

COMMAND_TOOLS = {"bash", "Bash", "command", "run_command", "shell", "execute_bash"}
EDIT_TOOLS = {"Edit", "MultiEdit", "Write", "edit", "write", "write_file", "edit_file"}
EDITS_OF_AN_EDITOR = {"create", "edit", "insert", "str_replace", "undo_edit"}
# Commands of SWE-agent's own, which no shell knows.
OWN_COMMANDS = {
    "create", "edit", "end_of_edit", "find_file", "goto", "insert", "open", "scroll_down", "scroll_up",
    "search_dir", "search_file", "submit",
}  # fmt: skip
ANY_FOLDER = "cd() { return 0; }"  # The folders of the recordings are not there.
STAND_IN = '#!/bin/sh\nprintf "%s\\0" "${0##*/}" "$@" "$(printf "\\001")" >> /log/calls\n'


@dataclass
class Count:
    """What a session asked. `wrong`: what ran that no rule named."""

    commands: int = 0
    edits: int = 0
    asked_commands: int = 0
    asked_edits: int = 0
    only_once: int = 0
    unasked: list[tuple[str, tuple[PermissionRule, ...]]] = field(default_factory=list)


def list_actions(path: Path) -> Iterator[ToolAction]:
    for line in path.read_text(encoding="utf-8").splitlines():
        for call in json.loads(line).get("tool_calls") or ():
            name = call["function"]["name"]
            arguments = json.loads(call["function"]["arguments"] or "{}")
            action = _read_action(name, arguments)
            if action is not None:
                yield action


def _read_action(name: str, arguments: dict[str, object]) -> ToolAction | None:
    if name in COMMAND_TOOLS:
        command = str(arguments.get("command", "")).strip()
        if not command or command.split()[0] in OWN_COMMANDS:
            return None
        return ToolAction(
            ToolName.RUN_COMMAND, ActionEffect.RUN, "Run a command", command, command=command
        )
    is_edit = name in EDIT_TOOLS or (
        name == "editor" and arguments.get("command") in EDITS_OF_AN_EDITOR
    )
    if not is_edit:
        return None
    file = str(arguments.get("file_path") or arguments.get("path") or "file").lstrip("/")
    return ToolAction(ToolName.EDIT_FILE, ActionEffect.EDIT, "Edit a file", "", path=file)


def count_questions(actions: Iterable[ToolAction]) -> Count:
    rules: tuple[PermissionRule, ...] = ()
    count = Count()
    for action in actions:
        is_command = action.effect is ActionEffect.RUN
        decision = decide_permission(action, PermissionMode.ASK, rules, sandboxed=True)
        if is_command:
            count.commands += 1
        else:
            count.edits += 1
        if decision.verdict == "allow":
            if is_command:
                count.unasked.append((action.command, rules))
            continue
        if is_command:
            count.asked_commands += 1
        else:
            count.asked_edits += 1
        choices: Sequence[Sequence[PermissionRule]] = ()
        if "always" in decision.scopes:
            choices = choices_to_offer(action, rules)
        if choices:
            rules = (*rules, *choices[0])
        else:
            count.only_once += 1
    return count


class Box:
    """A bash with no network and no files but those of this folder, and stand-ins for programs."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self._folder = folder
        for each in ("log", "work", "programs"):
            (folder / each).mkdir()
        for name in names:
            program = folder / "programs" / name
            program.write_text(STAND_IN, encoding="utf-8")
            program.chmod(0o755)

    def list_calls(self, line: str) -> list[list[str]]:
        log = self._folder / "log" / "calls"
        log.write_bytes(b"")
        box = [
            "bwrap", "--unshare-all", "--die-with-parent", "--dev", "/dev", "--tmpfs", "/tmp",
            "--ro-bind", "/usr/lib", "/usr/lib", "--symlink", "usr/lib", "/lib", "--ro-bind-try", "/lib64", "/lib64",
            "--ro-bind", "/bin/bash", "/bin/bash", "--ro-bind", "/bin/sh", "/bin/sh",
            "--ro-bind", str(self._folder / "programs"), "/programs",
            "--bind", str(self._folder / "log"), "/log", "--bind", str(self._folder / "work"), "/work",
            "--chdir", "/work", "--clearenv", "--setenv", "PATH", "/programs", "--setenv", "HOME", "/work",
        ]  # fmt: skip
        subprocess.run(
            [*box, "/bin/bash", "--noprofile", "--norc", "-c", f"{ANY_FOLDER}\n{line}"],
            check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=30,
        )  # fmt: skip
        calls = log.read_bytes().split(b"\1\0")[:-1]
        return [os.fsdecode(call).split("\0")[:-1] for call in calls]


def is_named(call: Sequence[str], rules: Iterable[PermissionRule]) -> bool:
    """Whether a rule's words are the beginning of this call, or all of it."""
    for rule in rules:
        words = shlex.split(rule.command.removesuffix(" *"))
        if call == words or (rule.command.endswith(" *") and call[: len(words)] == words):
            return True
    return False


def list_program_names(lines: Iterable[str]) -> set[str]:
    names = set(PROGRAMS)
    for line in lines:
        programs = find_started_programs(line)
        if isinstance(programs, KnownPrograms):
            names.update(Path(command.words[0]).name for command in programs.commands)
    return {name for name in names if name and len(name) < 100}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    arguments = parser.parse_args()
    total = Count()
    sessions = 0
    for folder in arguments.folders:
        for path in sorted(folder.rglob("*.jsonl")):
            actions = list(list_actions(path))
            if not actions:
                continue
            count = count_questions(actions)
            sessions += 1
            sys.stdout.write(
                f"{path.stem[:60]}: {count.commands} commands, {count.edits} edits; asked"
                f" {count.asked_commands} + {count.asked_edits}, {count.only_once} only once\n"
            )
            for name in ("commands", "edits", "asked_commands", "asked_edits", "only_once"):
                setattr(total, name, getattr(total, name) + getattr(count, name))
            total.unasked += count.unasked
    if not sessions:
        sys.stdout.write("no session with commands or edits\n")
        return 1
    asked = total.asked_commands + total.asked_edits
    calls, wrong = check_unasked(total.unasked)
    sys.stdout.write(
        f"{sessions} sessions, {total.commands} commands, {total.edits} edits: {asked} questions,"
        f" {asked / sessions:.1f} a session ({total.asked_commands} for commands, {total.only_once}"
        f" that only once can answer); {len(total.unasked)} commands unasked, {calls} calls of"
        f" programs, {len(wrong)} that no rule named\n"
    )
    sys.stdout.writelines(f"{each}\n" for each in wrong)
    return bool(wrong)


def check_unasked(
    unasked: Sequence[tuple[str, tuple[PermissionRule, ...]]],
) -> tuple[int, list[str]]:
    """Run what no one was asked about, and return how many programs ran, and which wrongly."""
    calls = 0
    wrong = []
    with tempfile.TemporaryDirectory(prefix="helix-questions-") as folder:
        box = Box(Path(folder), list_program_names(line for line, _rules in unasked))
        for line, rules in unasked:
            for call in box.list_calls(line):
                calls += 1
                if not is_named(call, rules):
                    wrong.append(f"{call} of {line!r}")
    return calls, wrong


if __name__ == "__main__":
    sys.exit(main())
