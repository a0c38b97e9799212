"""Rules of what checkpoints leave out: names with spaces, conditions, wild cards, and
folders that say they are a cache.
"""

from __future__ import annotations

import pytest

from helix_desktop.tools.changes.checkpoint_coverage import CACHE_TAG_FILE, CheckpointCoverage


def left_out(
    rule: str, name: str, *, folder: bool = True, beside: str = "", within: str = ""
) -> str:
    return CheckpointCoverage(leave_out=(rule,)).find_rule_leaving_out(
        name, beside.__eq__, within.__eq__, folder=folder
    )


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("build/", "build"),
        ("My data/", "My data"),
        ("work with me/", "work with me"),
        ("[[]old] x/", "[old] x"),
    ],
)
def test_a_folder_by_its_name(rule: str, name: str) -> None:
    assert left_out(rule, name) == rule
    assert left_out(rule, name, folder=False) == ""
    assert left_out(rule, f"{name}2") == ""


def test_a_condition_holds_or_not() -> None:
    rule = "my target/ beside Cargo.toml"
    assert left_out(rule, "my target", beside="Cargo.toml") == rule
    assert left_out(rule, "my target") == ""
    assert left_out("venv/ with pyvenv.cfg", "venv", within="pyvenv.cfg") == "venv/ with pyvenv.cfg"
    assert left_out("venv/ with pyvenv.cfg", "venv") == ""


def test_files_by_a_pattern() -> None:
    assert left_out("my *.iso", "my disk.iso", folder=False) == "my *.iso"
    assert left_out("*.iso", "disk.img", folder=False) == ""
    assert CheckpointCoverage(leave_out=("*.iso",)).file_name_check("a.iso")
    assert not CheckpointCoverage().file_name_check("a.iso")


def test_a_folder_that_says_it_is_a_cache() -> None:
    assert left_out("x/", "anything", within=CACHE_TAG_FILE) == CACHE_TAG_FILE
