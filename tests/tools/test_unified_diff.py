from __future__ import annotations

import difflib
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.tools import unified_diff

LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n"]), max_size=30)


def counts(diff: str) -> tuple[int, int]:
    """How many lines came and went."""
    body = diff.split("\n")[2:]
    return sum(line.startswith("+") for line in body), sum(line.startswith("-") for line in body)


def applied(diff: str, before: str, folder: Path) -> str:
    (folder / "file").write_text(before)
    subprocess.run(["patch", "-s", "-p0", "file"], input=diff, text=True, cwd=folder, check=True, capture_output=True)
    return (folder / "file").read_text() if (folder / "file").exists() else ""


@given(LINES, LINES)
def test_a_diff_says_what_came_and_went(before: list[str], after: list[str]) -> None:
    diff = unified_diff.format_unified_diff("".join(before), "".join(after), "file")
    came, went = counts(diff)
    assert len(before) + came - went == len(after)
    assert bool(diff) == (before != after)


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
@pytest.mark.parametrize("seed", range(12))
def test_patch_turns_one_into_the_other(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    before = [f"{chance.randrange(20)}\n" for _ in range(chance.choice((0, 5, 100, 4000)))]
    after = [line for line in before if chance.random() > 0.1]
    for _ in range(chance.choice((0, 3, 200))):
        after.insert(chance.randrange(len(after) + 1), f"new {chance.random()}\n")
    if before == after:
        after.append("end\n")
    text = "".join(before)
    diff = unified_diff.format_unified_diff(text, "".join(after), "file")
    assert applied(diff, text, tmp_path) == "".join(after)


def test_a_missing_line_end_is_shown() -> None:
    assert unified_diff.format_unified_diff("a\nb", "a\nc", "f").splitlines() == [
        "--- f",
        "+++ f",
        "@@ -1,2 +1,2 @@",
        " a",
        "-b",
        "\\ No newline at end of file",
        "+c",
        "\\ No newline at end of file",
    ]


def test_a_small_change_in_a_huge_file_never_reaches_difflib_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = difflib.SequenceMatcher

    def matcher(junk: None, old: list[str], new: list[str], *, autojunk: bool) -> difflib.SequenceMatcher[str]:
        seen.append(len(old) + len(new))
        return real(junk, old, new, autojunk=autojunk)

    monkeypatch.setattr(difflib, "SequenceMatcher", matcher)
    lines = [f"{number}\n" for number in range(200_000)]
    changed = [*lines[:150_000], "x\n", *lines[150_001:]]
    diff = unified_diff.format_unified_diff("".join(lines), "".join(changed), "f")
    assert "@@ -149998,7 +149998,7 @@" in diff
    assert seen == [14]
    assert counts(unified_diff.format_unified_diff("".join(lines), "".join(reversed(lines)), "f")) == (200_000, 200_000)
    assert seen == [14]
