"""What a declaration of a format means where it says nothing."""

from pathlib import Path

from helix_desktop.histories.history_format import HistoryFormat, HistoryPlaces


def test_a_format_that_declares_its_kind_alone_claims_nothing(tmp_path: Path) -> None:
    bare = HistoryFormat("talker")
    assert not bare.recognizes({"type": "user"})
    assert not bare.recognizes_file(tmp_path / "session.jsonl")
    assert bare.folders(HistoryPlaces(tmp_path, {})) == ()
    assert list(bare.find_older_sessions(tmp_path)) == []
    assert bare.working_folder(tmp_path / "session.jsonl", b"{}") == ""


def test_a_programs_own_variable_is_followed_before_the_home_folder(tmp_path: Path) -> None:
    unset = HistoryPlaces(tmp_path, {"CODEX_HOME": ""})
    assert unset.folder_from_variable("CODEX_HOME", ".codex") == tmp_path / ".codex"
    assert unset.data_folder() == tmp_path / ".local" / "share"

    moved = HistoryPlaces(tmp_path, {"CODEX_HOME": "/srv/codex", "XDG_DATA_HOME": "/srv/data"})
    assert moved.folder_from_variable("CODEX_HOME", ".codex") == Path("/srv/codex")
    assert moved.data_folder() == Path("/srv/data")
