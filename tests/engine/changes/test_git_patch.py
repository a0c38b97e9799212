"""git takes our patches: texts, binary files, links, modes, and names of any bytes."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.changes.folder_state import PathKind, TreeItem
from helix_desktop.engine.changes.git_patch import (
    FileVersion,
    format_git_patch,
    format_unified_diff,
)

FILE = TreeItem(PathKind.FILE, 0o100644)
RUN = TreeItem(PathKind.FILE, 0o100755)
LINK = TreeItem(PathKind.LINK, 0o120777)
CASES = [
    ("new.txt", (None, b""), (FILE, b"one\ntwo")),
    ("empty", (None, b""), (FILE, b"")),
    ("gone.txt", (FILE, b"one\n"), (None, b"")),
    ("run.sh", (FILE, b"#!/bin/sh\n"), (RUN, b"#!/bin/sh\necho\n")),
    ("mode", (FILE, b"x"), (RUN, b"x")),
    ("bin", (FILE, bytes(range(256)) * 9), (FILE, b"\0" * 5000)),
    ("new bin", (None, b""), (FILE, b"\0\1\2")),
    ("link", (LINK, b"a"), (LINK, b"b")),
    ("was a file", (FILE, b"x\n"), (LINK, b"there")),
    ('quo"te\\\n\t\udcff\u00e9', (FILE, b"1\n"), (FILE, b"2\n")),
]


def put(path: Path, version: tuple[TreeItem | None, bytes]) -> None:
    item, content = version
    if item is not None and item.kind is PathKind.LINK:
        path.symlink_to(os.fsdecode(content))
    elif item is not None:
        path.write_bytes(content)
        path.chmod(item.mode & 0o777)


def found(path: Path) -> object:
    if path.is_symlink():
        return ("link", os.fsencode(path.readlink()))
    return (path.stat().st_mode & 0o100, path.read_bytes()) if path.exists() else None


@pytest.mark.parametrize(("name", "before", "after"), CASES)
def test_git_applies_it(
    tmp_path: Path,
    name: str,
    before: tuple[TreeItem | None, bytes],
    after: tuple[TreeItem | None, bytes],
) -> None:
    here = tmp_path / "here"
    there = tmp_path / "there"
    here.mkdir()
    there.mkdir()
    put(here / name, before)
    put(there / name, after)
    old = FileVersion(*before)
    new = FileVersion(*after)
    for versions, flags in (((old, new), []), ((old, new), ["-R"])):
        subprocess.run(
            ["git", "apply", *flags, "-"],
            cwd=here,
            input=format_git_patch(name, *versions),
            check=True,
        )
        if not flags:
            assert found(here / name) == found(there / name)
    (there / name).unlink(missing_ok=True)
    put(there / name, before)
    assert found(here / name) == found(there / name)


DIFF_LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n"]), max_size=30)


def diff_counts(diff: str) -> tuple[int, int]:
    """How many lines came and went."""
    body = diff.split("\n")[2:]
    return sum(line.startswith("+") for line in body), sum(line.startswith("-") for line in body)


def applied(diff: str, before: str, folder: Path) -> str:
    (folder / "file").write_text(before)
    subprocess.run(
        ["patch", "-s", "-p0", "file"],
        input=diff,
        text=True,
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return (folder / "file").read_text() if (folder / "file").exists() else ""


@given(DIFF_LINES, DIFF_LINES)
def test_a_diff_says_what_came_and_went(before: list[str], after: list[str]) -> None:
    diff = format_unified_diff("".join(before), "".join(after), "file")
    came, went = diff_counts(diff)
    assert len(before) + came - went == len(after)
    assert bool(diff) == (before != after)


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
@pytest.mark.parametrize("seed", range(12))
def test_patch_turns_one_text_into_the_other(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    before = [f"{chance.randrange(20)}\n" for _ in range(chance.choice((0, 5, 100, 4000)))]
    after = [line for line in before if chance.random() > 0.1]
    for _ in range(chance.choice((0, 3, 200))):
        after.insert(chance.randrange(len(after) + 1), f"new {chance.random()}\n")
    if before == after:
        after.append("end\n")
    text = "".join(before)
    diff = format_unified_diff(text, "".join(after), "file")
    assert applied(diff, text, tmp_path) == "".join(after)


def test_a_missing_line_end_is_shown() -> None:
    assert format_unified_diff("a\nb", "a\nc", "f").splitlines() == [
        "--- f",
        "+++ f",
        "@@ -1,2 +1,2 @@",
        " a",
        "-b",
        "\\ No newline at end of file",
        "+c",
        "\\ No newline at end of file",
    ]


def test_a_difference_of_huge_texts_is_cheap() -> None:
    lines = [f"{number}\n" for number in range(200_000)]
    changed = [*lines[:150_000], "x\n", *lines[150_001:]]
    diff = format_unified_diff("".join(lines), "".join(changed), "f")
    assert "@@ -149998,7 +149998,7 @@" in diff
    assert diff_counts(diff) == (1, 1)
