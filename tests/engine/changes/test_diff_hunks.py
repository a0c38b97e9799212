"""Hunks are exact: all of them taken back give the old version, some of them what git
makes of the same ones.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine.changes.diff_hunks import (
    Hunk,
    find_changes_within_line,
    find_hunks,
    revert_hunks,
)
from helix_desktop.engine.changes.folder_state import PathKind, TreeItem
from helix_desktop.errors import ActionRefused

LINES = st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"", b"\xff\xfe", b"  x"]), max_size=40)
TEXTS = st.builds(lambda lines, end: b"\n".join(lines) + end, LINES, st.sampled_from([b"", b"\n"]))
FILE = TreeItem(PathKind.FILE, 0o100644)


@given(TEXTS, TEXTS)
def test_all_hunks_taken_back_are_the_old_version(before: bytes, after: bytes) -> None:
    assert revert_hunks(before, after, after, find_hunks(before, after)) == before
    assert revert_hunks(before, after, after, ()) == after


@given(TEXTS, TEXTS, st.data())
def test_one_by_one_is_the_same_as_all_at_once(
    before: bytes, after: bytes, data: st.DataObject
) -> None:
    now = after
    for hunk in data.draw(st.permutations(find_hunks(before, after))):
        now = revert_hunks(before, after, now, [hunk])
    assert now == before


def test_what_somebody_changed_beside_it_stays_and_what_they_changed_in_it_is_refused() -> None:
    before = b"".join(b"line %d\n" % i for i in range(40))
    after = before.replace(b"line 5\n", b"five\n").replace(b"line 30\n", b"thirty\n")
    now = after.replace(b"line 20\n", b"mine\n")
    first, second = find_hunks(before, after)
    assert revert_hunks(before, after, now, [first, second]) == before.replace(
        b"line 20\n", b"mine\n"
    )
    with pytest.raises(ActionRefused):
        revert_hunks(before, after, now.replace(b"five", b"FIVE"), [first])


def test_lines_that_were_deleted_come_back_only_between_the_same_neighbours() -> None:
    before = b"a\nb\nc\n"
    after = b"a\nc\n"
    assert revert_hunks(before, after, b"0\na\nc\n", find_hunks(before, after)) == b"0\na\nb\nc\n"
    with pytest.raises(ActionRefused):
        revert_hunks(before, after, b"a\nx\nc\n", find_hunks(before, after))


def test_of_two_hunks_that_are_the_same_one_is_undone() -> None:
    """Files of styles or tables have the same lines around the same change several times."""
    section = b"0\n1\n2\n3\nold\n5\n6\n7\n8\n"
    changed_section = section.replace(b"old", b"new")
    before = section * 3
    after = changed_section + section + changed_section
    hunks = find_hunks(before, after)
    ids = [hunk.stable_id for hunk in hunks]
    # The user's decisions are stored by these names.
    assert ids == [ids[0], f"{ids[0]}-1"]
    chosen = [hunk for hunk in hunks if hunk.stable_id == ids[1]]
    assert revert_hunks(before, after, after, chosen) == changed_section + section * 2


def test_a_last_line_that_comes_back_does_not_run_into_lines_added_since() -> None:
    before = b"x\ny"
    after = b"x\ny2\n"
    hunks = find_hunks(before, after)
    assert revert_hunks(before, after, after, hunks) == before
    assert revert_hunks(before, after, b"x\ny2\nz\n", hunks) == b"x\ny\nz\n"


@settings(deadline=None, max_examples=40)
@given(TEXTS, TEXTS, st.randoms(use_true_random=False))
def test_git_takes_the_same_hunks_back(
    tmp_path_factory: pytest.TempPathFactory, before: bytes, after: bytes, chance: random.Random
) -> None:
    found = find_hunks(before, after)
    chosen = tuple(hunk for hunk in found if chance.random() < 0.5)
    if chosen:
        folder = tmp_path_factory.mktemp("apply")
        assert by_git(folder, before, after, chosen) == revert_hunks(before, after, after, chosen)


def by_git(folder: Path, before: bytes, after: bytes, chosen: tuple[Hunk, ...]) -> bytes:
    (folder / "f").write_bytes(after)
    text = b"".join(_patch(chosen, before, after))
    subprocess.run(
        ["git", "apply", "--unidiff-zero", "-"],
        cwd=folder,
        input=text,
        check=True,
        capture_output=True,
    )
    return (folder / "f").read_bytes()


def _patch(chosen: tuple[Hunk, ...], before: bytes, after: bytes) -> Iterator[bytes]:
    """The same hunks, seen from the new version, and where they come to be without the others."""
    yield b"--- a/f\n+++ b/f\n"
    wanted = {(hunk.old, hunk.new) for hunk in chosen}
    moved = 0
    for hunk in find_hunks(after, before):
        if (hunk.new, hunk.old) not in wanted:
            moved -= (hunk.new_end - hunk.new) - (hunk.old_end - hunk.old)
            continue
        start = hunk.new + moved
        length = hunk.new_end - hunk.new
        yield f"{hunk.unified_header.partition(' +')[0]} +{start + bool(length)},{length} @@\n".encode()
        for sign, line in hunk.rows:
            yield sign.encode() + (
                line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
            )


def test_changed_words_are_marked_and_lines_without_anything_in_common_are_not() -> None:
    assert find_changes_within_line("let a = lock().await?;", "let a = lock();") == ([(14, 7)], [])
    assert find_changes_within_line("alpha", "omega") == ([], [])


def test_lines_of_many_equal_words_are_compared_at_once() -> None:
    began = time.process_time()
    find_changes_within_line("a b " * 500, "a c b " * 330)
    assert time.process_time() - began < 2, "it took minutes"
    gone, come = find_changes_within_line("0,0,1,0," * 40 + "end", "0,0,1,0," * 40 + "stop, end")
    assert (gone, come) == ([], [(320, 6)])


@given(st.text("ab ,", max_size=80), st.text("ab ,", max_size=80))
def test_what_is_not_marked_is_in_both_lines(old: str, new: str) -> None:
    gone, come = find_changes_within_line(old, new)
    if gone or come:
        assert _without(old, gone) == _without(new, come)


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    for at, length in reversed(spans):
        text = text[:at] + text[at + length :]
    return text
