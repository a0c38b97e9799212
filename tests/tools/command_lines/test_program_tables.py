"""The tables of programs say no two things of one word, and what they say is what the analysis of a
command finds.
"""

from __future__ import annotations

import re

import pytest

from helix_desktop.tools.command_lines import program_tables
from helix_desktop.tools.command_lines.command_analysis import (
    KnownPrograms,
    find_started_programs,
)
from helix_desktop.tools.command_lines.program_tables import WRAPPERS, WrapperProgram

# What stands before the command, if a wrapper needs more than the program that it starts.
OWN_OPERANDS = "5 "
# These read the words behind them in a way of their own, and are tried in the tests of the analysis.
SPECIAL = {"sudo"}
PLAIN_WRAPPERS = sorted(set(WRAPPERS) - SPECIAL)


def found_programs(line: str) -> set[str]:
    known = find_started_programs(line)
    assert isinstance(known, KnownPrograms), line
    return {program.program_name for program in known.all_programs if program.is_certain}


def test_no_option_is_said_to_be_with_and_without_a_value() -> None:
    for name, wrapper in WRAPPERS.items():
        short_options = wrapper.flags + wrapper.takes
        assert len(set(short_options)) == len(short_options), name
        assert wrapper.bare.isdisjoint(wrapper.words), name
        # Otherwise the last word of a list would be one with its comma or dashes.
        for word in wrapper.bare | wrapper.words:
            assert re.fullmatch(r"[a-z][a-z-]*[a-z]", word), name


def write_every_use(name: str, wrapper: WrapperProgram) -> list[str]:
    """Return command lines in which a wrapper starts `rm x`, with each of its options."""
    command = f"{OWN_OPERANDS * wrapper.operands}rm x"
    lines = [f"{name} {command}"]
    lines += [f"{name} -{flag} {command}" for flag in wrapper.flags]
    lines += [f"{name} -{option} 5 {command}" for option in wrapper.takes]
    lines += [f"{name} --{word} {command}" for word in wrapper.bare]
    lines += [f"{name} --{word} 5 {command}" for word in wrapper.words]
    return lines


def test_the_command_behind_each_option_of_a_wrapper_is_found() -> None:
    for name in PLAIN_WRAPPERS:
        program = name
        if name == "time":  # The shell has a word of its own, which takes no options.
            program = "/usr/bin/time"
        for line in write_every_use(program, WRAPPERS[name]):
            assert "rm" in found_programs(line), line


@pytest.mark.parametrize("name", ["nice", "timeout", "stdbuf", "chroot"])
def test_behind_an_option_that_no_table_knows_nothing_is_certain(name: str) -> None:
    known = find_started_programs(f"{name} --no-such-option 5 rm x")
    assert isinstance(known, KnownPrograms)
    (command,) = known.commands
    names = {program.program_name for program in command.started_programs}
    assert "rm" in names
    assert [program for program in command.started_programs if program.is_certain] == []


def test_a_wrapper_has_no_options_and_operands_unless_it_says_so() -> None:
    assert WrapperProgram() == WrapperProgram("", "", frozenset(), frozenset(), 0, sets=False)
    assert program_tables.word_set(" a  b\na ") == {"a", "b"}
    assert [name for name, wrapper in WRAPPERS.items() if wrapper.sets] == ["sudo"]


@pytest.mark.parametrize(
    "code",
    ["os.system('ls')", "subprocess.run", "exec('x')", "os.execv(", "`ls`", "%x(ls)", "eval(x)", "a | getline", "open('| ls')", "Process.run", ":!ls", "sh -c"],
)  # fmt: skip
def test_code_that_starts_a_program_is_recognised(code: str) -> None:
    assert re.search(program_tables.STARTING_CODE, code)


@pytest.mark.parametrize("code", ["print(1 + 1)", "open('a.txt')", "x = 3", "x = shell", "cmdline"])
def test_other_code_is_not(code: str) -> None:
    assert not re.search(program_tables.STARTING_CODE, code)


def test_a_program_that_is_safe_by_itself_is_no_wrapper_or_shell() -> None:
    starters = set(WRAPPERS) | program_tables.SHELLS | program_tables.OTHER_SHELLS
    starters |= program_tables.LOOSE_WRAPPERS | program_tables.SCRIPT_INTERPRETERS
    assert program_tables.SAFE_PROGRAMS.isdisjoint(starters)
    assert not program_tables.SHELLS & program_tables.OTHER_SHELLS
    assert not set(program_tables.STARTING_OPTIONS) & set(WRAPPERS)
