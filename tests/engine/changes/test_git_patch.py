"""git takes our patches: texts, binary files, links, modes, and names of any bytes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from helix_desktop.engine.changes.folder_state import PathKind, TreeItem
from helix_desktop.engine.changes.git_patch import format_git_patch

FILE, RUN, LINK = (
    TreeItem(PathKind.FILE, 0o100644),
    TreeItem(PathKind.FILE, 0o100755),
    TreeItem(PathKind.LINK, 0o120777),
)
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
    tmp_path: Path, name: str, before: tuple[TreeItem | None, bytes], after: tuple[TreeItem | None, bytes]
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    put(here / name, before)
    put(there / name, after)
    for versions, flags in (((before, after), []), ((before, after), ["-R"])):
        subprocess.run(["git", "apply", *flags, "-"], cwd=here, input=format_git_patch(name, *versions), check=True)
        if not flags:
            assert found(here / name) == found(there / name)
    (there / name).unlink(missing_ok=True)
    put(there / name, before)
    assert found(here / name) == found(there / name)
