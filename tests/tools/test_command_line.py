from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.tools.command_line import Simple, simple_commands


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("git status", [["git", "status"]]),
        ("  git   status  ", [["git", "status"]]),
        ("git commit -m 'a; b && c'", [["git", "commit", "-m", "a; b && c"]]),
        ('grep "a b" x.py', [["grep", "a b", "x.py"]]),
        ("a && b || c; d | e\nf", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("pytest -q 2>&1 | tail -3", [["pytest", "-q"], ["tail", "-3"]]),
        ("ls > /dev/null", [["ls"]]),
        ("g'i't status", [["git", "status"]]),
        ("", []),
    ],
)
def test_plain_commands_are_taken_apart(line: str, words: list[list[str]]) -> None:
    assert simple_commands(line) == tuple(Simple(tuple(each)) for each in words)


@pytest.mark.parametrize(
    "line",
    [
        "git status $(rm -rf x)",
        "git status `rm x`",
        'git commit -m "$(rm x)"',
        "git status & rm x",
        "git log > ~/.bashrc",
        "git log >> x",
        "cat < x",
        "git status <(rm x)",
        "git status ${IFS}x",
        "(rm x)",
        "{ rm x; }",
        "if true; then rm x; fi",
        "for a in b; do rm x; done",
        "git status # x",
        "git\\ status",
        "git status \\\n rm x",
        "git status\rrm x",
        "git status 'open",
        'git status "open',
        "eval rm x",
        "exec rm x",
        "source x",
        ". x",
        "alias git=rm",
        "export PATH=x",
        "PATH=/evil",
        "cat <<EOF\nrm x\nEOF",
        "ls *.py",
        "echo !!",
        "function git { rm x; }",
        "git() { rm x; }",
        "git status\u2028rm x",
        "git status &>x",
        "git status 2>x",
        "ls 2>/dev/nullx",
    ],
)
def test_what_could_run_or_write_something_else_is_not_taken_apart(line: str) -> None:
    assert simple_commands(line) is None


def test_a_variable_set_for_a_command_is_seen() -> None:
    assert simple_commands("PATH=/evil git status") == (Simple(("git", "status"), assigns=True),)


@given(st.lists(st.lists(st.text("abc_-./'\" $;&|<>()*~#\\\n", min_size=1), min_size=1), min_size=1, max_size=3))
def test_what_is_taken_apart_is_what_a_shell_would_run(commands: list[list[str]]) -> None:
    """Quoted words come back as they were, whatever is in them, or the line is not taken apart at all."""
    line = " && ".join(shlex.join(words) for words in commands)
    parsed = simple_commands(line)
    if parsed is not None:
        assert [list(each.words) for each in parsed if not each.assigns] == [
            words
            for words in commands
            if not simple_commands(shlex.join(words))[0].assigns  # type: ignore[index]
        ]


@given(st.text("ab '\";&|\n$()><", max_size=40))
def test_any_text_is_parsed_or_not_but_never_fails(line: str) -> None:
    parsed = simple_commands(line)
    assert parsed is None or all(each.words for each in parsed)
    if parsed and len(parsed) == 1 and not any(mark in line for mark in "$&|;<>()\n"):
        assert list(parsed[0].words) == shlex.split(line)
