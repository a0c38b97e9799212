"""Where a wrapper's own options end, and what the options of a program are given."""

from __future__ import annotations

import pytest

from helix_desktop.tools.command_lines import program_finder, program_tables
from helix_desktop.tools.command_lines.shell_parser import ANY, MANY, UnreadableCommand


@pytest.mark.parametrize(
    ("wrapper", "rest", "end"),
    [
        ("nice", ["git", "push"], 0),
        ("nice", ["-n", "3", "git"], 2),
        ("nice", ["-n3", "git"], 1),
        ("nice", ["-3", "git"], 1),
        ("nice", ["--adjustment", "3", "git"], 2),
        ("nice", ["--adjustment=3", "git"], 1),
        ("nice", ["--", "-n"], 1),
        ("nice", ["-", "x"], 0),
        ("nice", ["--unknown", "git"], None),
        ("nice", ["-z", "git"], None),
        ("timeout", ["-k", "3", "5", "git"], 2),
        ("timeout", ["-vk", "3", "5"], 2),
        ("timeout", ["--preserve-status", "5"], 1),
        ("sudo", ["-nu", "root", "git"], 2),
        ("sudo", ["-uroot", "git"], 1),
        ("nice", ["-n"], 2),
    ],
)
def test_where_a_wrappers_own_options_end(wrapper: str, rest: list[str], end: int | None) -> None:
    prefix = program_tables.WRAPPERS[wrapper]
    assert program_finder.find_end_of_options(prefix, rest) == end


@pytest.mark.parametrize("rest", [[f"-n{ANY}".replace("n", MANY), "git"], ["-n", MANY, "git"]])
def test_an_expansion_that_may_be_several_words_hides_the_program(rest: list[str]) -> None:
    with pytest.raises(UnreadableCommand):
        program_finder.find_end_of_options(program_tables.WRAPPERS["nice"], rest)


@pytest.mark.parametrize(
    ("rest", "options", "values"),
    [
        (["-e", "ssh x"], ("-e", "--rsh"), ["ssh x"]),
        (["-essh"], ("-e", "--rsh"), ["ssh"]),
        (["--rsh=ssh"], ("-e", "--rsh"), ["ssh"]),
        (["--rsh", "ssh"], ("-e", "--rsh"), ["ssh"]),
        (["--rs", "ssh"], ("-e", "--rsh"), ["ssh"]),
        (["--", "ssh"], ("-e", "--rsh"), []),
        (["-exec=x"], ("-exec", "--exec"), ["x"]),
        (["-e"], ("-e",), [""]),
        (["a", "b"], ("-e",), []),
        (["-e", "a", "-e", "b"], ("-e",), ["a", "b"]),
    ],
)
def test_the_values_of_options(
    rest: list[str], options: tuple[str, ...], values: list[str]
) -> None:
    assert program_finder.option_values(rest, options) == values


def test_a_letter_at_the_end_of_others_takes_the_next_word() -> None:
    assert program_finder.option_values(["-ix", "make"], ("-x",)) == []
    assert program_finder.option_values(["-ix", "make"], ("-x",), clusters=True) == ["make"]


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("/usr/bin/python3.11", "python"),
        ("git", "git"),
        ("proxychains4", "proxychains4"),
        ("7", "7"),
        ("sqlite3", "sqlite3"),
        ("/usr/bin/m4", "m4"),
    ],
)
def test_a_program_is_known_without_its_version(word: str, name: str) -> None:
    assert program_finder.name_without_version(word) == name


@pytest.mark.parametrize(
    ("wrapper", "rest", "end"),
    [
        ("timeout", ["-kv", "3", "5"], 1),
        ("timeout", ["-k3", "5"], 1),
        ("timeout", ["--signal=KILL", "--kill-after", "1", "5", "git"], 3),
        ("sudo", ["-n", "--", "-x"], 2),
        ("sudo", ["--stdin", "git"], 1),
        ("sudo", ["--stdin=x", "git"], 1),
        ("chrt", ["-f", "10", "git"], 1),
        ("nice", [], 0),
    ],
)
def test_letters_that_take_a_value_end_the_word_or_take_the_next(
    wrapper: str, rest: list[str], end: int
) -> None:
    prefix = program_tables.WRAPPERS[wrapper]
    assert program_finder.find_end_of_options(prefix, rest) == end


@pytest.mark.parametrize(
    ("arguments", "option", "clusters", "values"),
    [
        (["-xe", "a"], "-e", True, ["a"]),
        (["-xe", "a"], "-e", False, []),
        (["-ex", "a"], "-e", True, ["x"]),
        (["-x1e", "a"], "-e", True, []),
        (["--exec=a"], "--exec", False, ["a"]),
        (["--ex=a"], "--exec", False, ["a"]),
        (["--executable", "a"], "--exec", False, []),
        (["-exec", "a"], "--exec", False, []),
    ],
)
def test_an_option_is_found_alone_among_others_or_cut_short(
    arguments: list[str], option: str, clusters: bool, values: list[str]
) -> None:
    assert program_finder.option_values(arguments, [option], clusters=clusters) == values


@pytest.mark.parametrize(
    ("name", "is_program"), [("git", True), ("", False), ("A=1", False), (f"g{ANY}", False)]
)
def test_a_name_is_a_program_only_if_it_is_known_in_full(name: str, is_program: bool) -> None:
    assert program_finder._can_be_program(name) == is_program
