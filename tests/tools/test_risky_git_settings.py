from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from helix_desktop.tools.risky_git_settings import (
    list_doubtful_settings,
    may_setting_run_program,
    parse_git_settings,
)

TEXT = """# a comment
[core]
	bare = false ; another
	fsmonitor = "a \\"b\\" # c" d
	logAllRefUpdates
[remote "Ori\\"gin"] url = https://x
[Alias]
	st = !x \\
 y
[old.Section]
	Key-2 = value
"""


def test_settings_are_read_as_git_reads_them(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(TEXT)
    said = subprocess.run(
        ["git", "config", "-f", "config", "--list", "-z"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    theirs = [one.partition("\n")[::2] for one in said.stdout.decode().split("\0") if one]
    assert [
        (name, "" if value == "true" else value) for name, value in parse_git_settings(TEXT)
    ] == theirs


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("core.fsmonitor", "true", False),
        ("core.fsmonitor", "x", True),
        ("core.bare", "false", False),
        ("remote.origin.url", "https://x", False),
        ("remote.origin.url", "ext::sh -c x", True),
        ("remote.origin.uploadpack", "x", True),
        ("branch.main.remote", "origin", False),
        ("branch.main.remote", "ext::x", True),
        ("alias.st", "status", True),
        ("unheard.of", "x", True),
        ("include.path", "x", True),
    ],
)
def test_what_is_not_known_to_be_harmless_counts(name: str, value: str, *, expected: bool) -> None:
    assert may_setting_run_program(name, value) is expected


def test_a_line_git_would_not_take_counts() -> None:
    assert list_doubtful_settings("[core]\n\tbare = false\n") == []
    assert list_doubtful_settings("[core]\n\tbare = false\n<<<<<<< x\n")


def test_what_git_reads_in_part_counts_as_something_that_runs() -> None:
    """Git ends a name or a value at a NUL: the first of these is `gc.recentObjectsHook` for it."""
    for text in (
        '[gc "recentobjectshook\0x"]\nreflogexpire = evil\n',
        "[core]\nfilemode = true\0\n",
    ):
        assert list_doubtful_settings(text)


def test_a_long_file_of_settings_is_read_in_time() -> None:
    began = time.process_time()
    assert len(list_doubtful_settings("[core]\n" + "fsmonitor=x\n" * 40_000)) == 40_000
    assert time.process_time() - began < 5  # it was 8 s
