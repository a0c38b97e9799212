"""What git starts: the same command without its own options, and what those and its subcommand name."""

from __future__ import annotations

import re

from helix_desktop.tools.command_lines import program_tables
from helix_desktop.tools.command_lines.program_finder import ProgramFinder, StartedProgram, option_values
from helix_desktop.tools.command_lines.shell_words import is_certain_word


def find_behind_git(line: ProgramFinder, rest: list[str]) -> list[StartedProgram]:
    """The same command without git's own options, and what those and its subcommand start."""
    found: list[StartedProgram] = []
    at = 0
    while at < len(rest) and rest[at].startswith("-"):
        word = rest[at]
        name, equals, value = word.partition("=")
        if word in program_tables.GIT_VALUES:
            at += 1
            value = rest[at] if at < len(rest) else ""
        elif word.startswith("-c") and not equals and word not in program_tables.GIT_VALUES:
            name, value = "-c", word[2:]
        elif name not in program_tables.GIT_FLAGS and name not in program_tables.GIT_VALUES:
            line.doubts.append("git has an option that is not known")
        _check_git_setting(line, "-c" if word == "-c" else name, value)
        at += 1
    words = rest[at:]
    if not words:
        return found
    if not is_certain_word(words[0]):
        line.doubts.append("the shell fills in what git does")
    elif words[0] not in program_tables.GIT_COMMANDS:
        line.doubts.append(f"git {words[0]} may stand for something else")
    return [*([StartedProgram(("git", *words))] if at else []), *found, *_find_behind_git_subcommand(line, words)]


def _check_git_setting(line: ProgramFinder, option: str, value: str) -> None:
    if option in ("--exec-path", "--config-env") and value:
        line.doubts.append("git is told where its programs are")
    elif option == "-c" and not value.casefold().startswith(program_tables.GIT_SAFE_SETTINGS):
        line.doubts.append("git is given a setting that may run a program")
        line.texts.append(value)


def _find_behind_git_subcommand(line: ProgramFinder, words: list[str]) -> list[StartedProgram]:
    name, rest = words[0], words[1:]
    if name == "submodule" and "foreach" in rest:
        behind = [word for word in rest[rest.index("foreach") + 1 :] if word not in ("--recursive", "-q", "--quiet")]
        return line.find_in_text(" ".join(behind), bash=False)
    if name == "bisect" and rest[:1] == ["run"]:
        return line.find_in_words(tuple(rest[1:]), sure=True)
    if name == "config" and any(word.casefold().startswith("alias.") for word in rest):
        line.doubts.append("git is given another name for a command")
    if name in ("filter-branch", "for-each-repo", "hook", "difftool", "mergetool", "instaweb", "send-email"):
        line.doubts.append(f"git {name} runs other programs")
    if name in ("merge", "pull") and any(re.match(r"-s|--strategy(=|$)", word) for word in rest):
        line.doubts.append("git is told which program merges")
    found = option_values(rest, tuple(program_tables.GIT_COMMAND_OPTIONS - {"-u", "-x"}))
    if name == "rebase":
        found += option_values(rest, ("-x",))
    if name in ("clone", "fetch", "ls-remote", "pull") and any("::" in word for word in rest):
        line.doubts.append("git is given an address that runs a program")
    if any(re.match(r"-O.|-O$|-u$|-c$|--config", word) for word in rest) and name in ("grep", "clone"):
        line.doubts.append(f"git {name} is given a program or a setting")
    return [one for value in found for one in line.find_in_text(value, bash=False)]
