from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.tools.command_lines.shell_parser import (
    ANY,
    MANY,
    ParsedLine,
    UnreadableCommand,
    is_certain_word,
    parse_command_line,
)


def words(line: str) -> list[list[str]]:
    return [one.words for one in parse_command_line(line).commands if one.words]


def plainly(line: str) -> ParsedLine | None:
    """What was read, where it is written out in full."""
    try:
        reading = parse_command_line(line)
    except UnreadableCommand:
        return None
    return None if reading.unsure else reading


@pytest.mark.parametrize(
    ("line", "expected"),
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
        ("(ls x)", [["ls", "x"]]),
        ("{ ls x; }", [["ls", "x"]]),
        ("if true; then ls x; fi", [["true"], ["ls", "x"]]),
        ("for a in b; do ls x; done", [[], ["ls", "x"]]),
        ('for a in b; do ls "$a"; done', [[], ["ls", ANY]]),
        ("git status # x", [["git", "status"]]),
        ("git status \\\n x", [["git", "status", "x"]]),
    ],
)
def test_plain_commands_are_taken_apart(line: str, expected: list[list[str]]) -> None:
    reading = plainly(line)
    assert reading is not None
    assert [one.words for one in reading.commands] == expected


NOT_PLAIN = (
    "git status $(rm -rf x)",
    "git status `rm x`",
    'git commit -m "$(rm x)"',
    "git status & rm x",
    "git log > ~/.bashrc",
    "git log >> x",
    "git status <(rm x)",
    "git status ${IFS}x",
    "git\\ status",
    "git status\rrm x",
    "git status 'open",
    'git status "open',
    "PATH=/evil",
    "cat <<EOF\nrm x\nEOF",
    "ls *.py",
    "function git { rm x; }",
    "git() { rm x; }",
    "git status\u2028rm x",
    "git status &>x",
    "cat < x",
    "select a in b; do ls; done",
    "case x in x) ls;; esac",
    'for a in -x; do ls "$a"; done',
    'for a in $y; do ls "$a"; done',
    "for a in b; do ls $a; done",
    'for a in b; do ls "x$a"; done',
    'for a; do ls "$a"; done',
    'for a in b; do read a; ls "$a"; done',
    'for a in b; do printf -v a %s -x; ls "$a"; done',
    'for a in b; do :; done; while true; do ls "$a"; for a in -x; do :; done; done',
    'for a in b; do ls "$c"; done',
    "git status 2>x",
    "ls 2>/dev/nullx",
)


def test_what_could_run_or_write_something_else_is_not_plain() -> None:
    for line in NOT_PLAIN:
        assert plainly(line) is None, line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("X=1 rm -rf x > f 2>&1", [["rm", "-rf", "x"]]),
        ("r'm' x", [["rm", "x"]]),
        ("\\rm x", [["rm", "x"]]),
        ("$'\\x72\\155' x", [["rm", "x"]]),
        ("git \\\n push", [["git", "push"]]),
        ("echo $(rm x) `ls y`", [["rm", "x"], ["ls", "y"], ["echo", MANY, MANY]]),
        ('echo "a $(rm "$x") b"', [["rm", ANY], ["echo", f"a {ANY} b"]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("for i in *; do rm $i; done | sort", [["rm", MANY], ["sort"]]),
        ("while read -r x; do rm; done < <(ls)", [["read", "-r", "x"], ["rm"], ["ls"]]),
        ("case $x in a|b) rm x;; (c) ls;; esac; id", [["rm", "x"], ["ls"], ["id"]]),
        ('f() { rm "$@"; }; f x', [["rm", MANY], ["f", "x"]]),
        ("function g { ls; }\ng", [["ls"], ["g"]]),
        ("{ a; (b; c) & } | d", [["a"], ["b"], ["c"], ["d"]]),
        ("! time -p rm x", [["time"], ["rm", "x"]]),
        ("cat <<E | sh\n$(rm x)\nE\nls", [["cat"], ["sh"], ["rm", "x"], ["ls"]]),
        ("cat <<'E'\n$(rm x)\nE\nls", [["cat"], ["ls"]]),
        ("cat <<A <<-B\nx\nA\n\t`rm`\n\tB\nls", [["cat"], ["rm"], ["ls"]]),
        ("[[ a && $(rm x) =~ ^(a|b)$ ]] && ls", [["rm", "x"], ["ls"]]),
        ("((i = 1)); for ((i=0; i<3; i++)); do ls; done", [["ls"]]),
        ("{fd}>f 2>g rm x", [["rm", "x"]]),
        ("echo ${x:-`rm`} ${#x} $((1 + $(ls)))", [["rm"], ["ls"], ["echo", MANY, MANY, MANY]]),
        ("echo a#b # rm\nls", [["echo", "a#b"], ["ls"]]),
        ("a=(1 $(rm x)) ls", [["rm", "x"], ["ls"]]),
        ("diff <(rm x) >(ls)", [["rm", "x"], ["ls"], ["diff", ANY, ANY]]),
        ("ls *.py ~/x {a,b} [ab]", [["ls", f"{MANY}.py", f"{ANY}/x", MANY, f"{MANY}ab]"]]),
    ],
)
def test_commands_are_found_wherever_they_are_written(line: str, expected: list[list[str]]) -> None:
    assert sorted(words(line)) == sorted(expected)


@pytest.mark.parametrize(
    "line",
    [
        "r\\\nm x",
        "echo 'open",
        'echo "open',
        "echo `open",
        "echo $(open",
        "(ls",
        "ls)",
        "echo\rrm x",
        "echo\x1b[0m",
        "git status\u2028rm x",
        "cat <<E\nno end",
        "cat <<E\nx\\\nE\nrm x",
        "echo ${x@P}",
        "echo ${!x}",
        "echo $((a[$(rm x)]))",
        "echo $((rm x); ls)",
        "coproc rm x",
        "f(x) { ls; }",
        "ls \\",
    ],
)
def test_what_is_not_certain_is_hidden(line: str) -> None:
    with pytest.raises(UnreadableCommand):
        parse_command_line(line)


def test_the_input_that_is_written_into_a_line_belongs_to_its_command() -> None:
    line = parse_command_line("python3 <<'END' && cat <<-LAST\nimport os\nEND\n\tlast\nLAST\nls")
    assert [command.words for command in line.commands] == [["python3"], ["cat"], ["ls"]]
    assert [command.here_documents for command in line.commands] == [
        ["import os\n"],
        ["last\n"],
        [],
    ]


def test_files_the_shell_writes_are_told() -> None:
    assert parse_command_line("a > x 2>> 'y z' >| z 2>&1 > /dev/null < in").written_files == [
        "x",
        "y z",
        "z",
    ]


@given(
    st.lists(
        st.lists(st.text("abc_-./'\" $;&|<>()*~#\\\n", min_size=1), min_size=1),
        min_size=1,
        max_size=3,
    )
)
def test_quoted_words_come_back_as_they_were(commands: list[list[str]]) -> None:
    line = " && ".join(shlex.join(each) for each in commands)
    reading = plainly(line)
    if reading is not None:
        assert [one.words for one in reading.commands] == commands


@given(st.text("ab '\";&|\n$()><`\\{}#!=*", max_size=40))
def test_any_text_is_read_or_hidden_and_never_fails(line: str) -> None:
    reading = plainly(line)
    if reading and len(reading.commands) == 1 and not any(mark in line for mark in "$&|;<>()\n"):
        assert all(map(is_certain_word, reading.commands[0].words))
        assert reading.commands[0].words == shlex.split(line)
