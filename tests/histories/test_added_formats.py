"""Formats of histories that extensions add beside those of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop.errors import InvalidInput
from helix_desktop.histories import added_formats
from helix_desktop.histories.added_formats import OWN_KINDS, AddedFormat, AddedReading
from helix_desktop.histories.all_formats import ALL_FORMATS, find_format


def _begins_with(mark: bytes) -> Callable[[Path, bytes], bool]:
    return lambda _, beginning: beginning.startswith(mark)


def _fail(_: Path, __: bytes) -> bool:
    raise InvalidInput("It failed.")


def _read(_: Path) -> AddedReading:
    raise NotImplementedError


TALKER = AddedFormat("talker", "Talker", _begins_with(b"TALK"), _read, (".talk",), ("~/.talker",))
OTHER = AddedFormat("other", "Other", _begins_with(b"T"), _read, (".o1", ".o2"), ("/var/other",))


@pytest.fixture(autouse=True)
def _none_stays() -> Iterator[None]:
    yield
    for added in added_formats.list_added_formats():
        added_formats.remove_format(added.kind)


def test_no_extension_can_take_a_kind_that_is_listed() -> None:
    assert {listed.kind for listed in ALL_FORMATS} == set(OWN_KINDS)
    for kind in ("codex", ""):
        with pytest.raises(InvalidInput, match="belongs to Helix Desktop"):
            added_formats.add_format(replace(TALKER, kind=kind))
    added_formats.add_format(TALKER)
    with pytest.raises(InvalidInput, match="'talker' belongs to another extension"):
        added_formats.add_format(replace(OTHER, kind="talker"))
    assert added_formats.list_added_formats() == [TALKER]


def test_a_kind_of_an_extension_has_no_format_here() -> None:
    assert find_format("codex") is not None
    assert find_format("talker") is None


def test_a_kind_is_known_as_long_as_its_extension_is() -> None:
    with pytest.raises(InvalidInput, match="Unknown kind of history: 'talker'") as refused:
        added_formats.check_kind_of_history("talker")
    assert "codex" in refused.value.remedy
    assert added_formats.name_of_program("talker") == ""
    added_formats.add_format(TALKER)
    added_formats.check_kind_of_history("talker")
    assert added_formats.name_of_program("talker") == "Talker"
    assert added_formats.name_of_program("codex") == "Codex"
    added_formats.remove_format("talker")
    added_formats.remove_format("talker")
    assert not added_formats.is_kind_of_history("talker")
    assert added_formats.is_kind_of_history("codex")


def test_a_file_belongs_to_its_named_kind_or_to_the_first_that_recognizes_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"TALK x")
    complaints: list[str] = []
    assert added_formats.find_added_format(file, "", complaints) is None
    failing = replace(OTHER, kind="failing", recognizes=_fail)
    for added in (failing, TALKER, OTHER):
        added_formats.add_format(added)
    assert added_formats.find_added_format(file, "", complaints) is TALKER
    assert complaints == [f"{file}: It failed."]
    assert added_formats.find_added_format(file, "other", complaints) is OTHER
    assert added_formats.find_added_format(file, "codex", complaints) is None
    file.write_bytes(b"nobody's")
    assert added_formats.find_added_format(file, "", complaints) is None


def test_files_are_looked_for_by_their_endings_in_the_programs_own_folders(tmp_path: Path) -> None:
    assert added_formats.folders_of_format(TALKER, tmp_path) == [tmp_path / ".talker"]
    assert added_formats.folders_of_format(OTHER, tmp_path) == [Path("/var/other")]
    assert added_formats.patterns_of_format(OTHER) == ["*.o1", "*.o2"]
    folder = tmp_path / ".talker" / "sessions"
    folder.mkdir(parents=True)
    for name, content in (("a.talk", "TALK"), ("b.talk", "else"), ("c.txt", "TALK")):
        (folder / name).write_text(content)
    assert list(added_formats.find_files_of_format(TALKER, tmp_path)) == [folder / "a.talk"]


def test_a_format_is_asked_with_no_more_than_the_beginning(tmp_path: Path) -> None:
    asked: list[int] = []

    def recognizes(_: Path, beginning: bytes) -> bool:
        asked.append(len(beginning))
        return True

    added_formats.add_format(replace(TALKER, recognizes=recognizes))
    file = tmp_path / "a"
    file.write_bytes(b"x" * 1_000_000)
    added_formats.find_added_format(file, "", [])
    assert 0 < asked[0] < 1_000_000
