from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile


def test_values_survive_a_restart(tmp_path: Path, application: QApplication) -> None:
    state_file = WindowStateFile(tmp_path / "window.json")
    state_file.remember_value("layout", "one", "sidebar", value=False)
    state_file.remember_value("draft", "one", "talk", value={"text": "half a sentence"})
    state_file.write_state_file()
    again = WindowStateFile(tmp_path / "window.json")
    assert again.get_remembered("layout", "one", "sidebar", default=True) is False
    assert again.get_remembered("draft", "one", "talk", default=dict[str, str]()) == {
        "text": "half a sentence"
    }


def test_half_a_sign_keeps_no_draft_from_the_disk(
    tmp_path: Path, application: QApplication
) -> None:
    """Names of files, and what models write, may hold what is no text in UTF-8."""
    state_file = WindowStateFile(tmp_path / "window.json")
    state_file.remember_value("draft", "one", "talk", value={"text": "about \ud83d and caf\udce9"})
    state_file.write_state_file()
    again = WindowStateFile(tmp_path / "window.json")
    assert again.get_remembered("draft", "one", "talk", default=dict[str, str]()) == {
        "text": "about ? and caf?"
    }


def test_a_value_of_another_type_is_not_believed(state_file: WindowStateFile) -> None:
    state_file.remember_value("layout", "width", value="wide")
    assert state_file.get_remembered("layout", "width", default=252) == 252


def test_an_empty_value_is_forgotten(state_file: WindowStateFile) -> None:
    state_file.remember_value("draft", "one", "a", value={"text": "x"})
    state_file.remember_value("draft", "one", "a", value={})
    assert state_file.get_remembered("draft", "one", "a", default={"gone": 1}) == {"gone": 1}


@pytest.mark.parametrize("content", [b"{half", b"[]", b"null", b'"words"', b"\xff", b"[" * 100_000])
def test_a_file_that_cannot_be_read_is_kept_under_another_name_and_said(
    tmp_path: Path, application: QApplication, expect: Callable[[str], None], content: bytes
) -> None:
    expect("cannot be read and is set aside")
    (tmp_path / "window.damaged").write_text("from an earlier start")
    (tmp_path / "window.json").write_bytes(content)
    state_file = WindowStateFile(tmp_path / "window.json")
    state_file.remember_value("window", value="x")
    state_file.write_state_file()
    assert (tmp_path / "window.damaged1").read_bytes() == content
    assert (tmp_path / "window.damaged").read_text() == "from an earlier start"
    (mistake,) = state_file.mistakes
    assert str(tmp_path / "window.damaged1") in mistake.what
    again = WindowStateFile(tmp_path / "window.json")
    assert (again.get_remembered("window", default=""), again.mistakes) == ("x", [])
    again.forget_remembered_text("half", within="one")
    assert [path.name for path in tmp_path.iterdir()] == ["window.json"]


def test_drafts_are_on_the_disk_before_writing_counts_as_done(
    tmp_path: Path, application: QApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_file = WindowStateFile(tmp_path / "window.json")
    synced = list[int]()
    sync = os.fsync

    def sync_and_note(handle: int) -> None:
        synced.append(os.fstat(handle).st_size)
        sync(handle)

    monkeypatch.setattr(os, "fsync", sync_and_note)
    for text in ("first", "second"):
        state_file.remember_value("draft", "one", "talk", value={"text": text})
        state_file._write_on_thread()
    state_file.write_state_file()
    size = (tmp_path / "window.json").stat().st_size
    assert synced.count(size) >= 2, "the file's own content, twice the same"
    assert "second" in (tmp_path / "window.json").read_text()


def test_a_disk_that_refuses_is_only_said(
    tmp_path: Path, application: QApplication, expect: Callable[[str], None]
) -> None:
    expect("could not be kept")
    state_file = WindowStateFile(tmp_path / "folder" / "window.json")
    (tmp_path / "folder").write_text("a file where a folder should be")
    state_file.remember_value("window", value="x")
    state_file.write_state_file()
    assert state_file.get_remembered("window", default="") == "x"


def test_a_text_is_cut_out_of_what_is_kept_for_a_workspace(
    tmp_path: Path, application: QApplication
) -> None:
    state_file = WindowStateFile(tmp_path / "window.json")
    (tmp_path / "window.damaged").write_text("{the key")
    for workspace in ("one", "two"):
        state_file.remember_value(
            "draft",
            workspace,
            "talk",
            value={"text": "use the key here", "attachments": [{"name": "the key"}]},
        )
        state_file.remember_value("history", workspace, value=["hello", "the key"])
    state_file.forget_remembered_text("the key", within="one")
    again = WindowStateFile(tmp_path / "window.json")
    assert again.get_remembered("draft", "one", "talk", default=dict[str, object]()) == {
        "text": "use  here",
        "attachments": [{"name": ""}],
    }
    assert again.get_remembered("history", "one", default=list[str]()) == ["hello"]
    assert again.get_remembered("history", "two", default=list[str]()) == ["hello", "the key"]
    assert not (tmp_path / "window.damaged").exists()


def test_who_types_without_a_pause_is_kept_on_the_disk_as_well(
    state_file: WindowStateFile, tmp_path: Path
) -> None:
    """Each key would put off a timer that begins anew with it."""
    state_file._timer.setInterval(
        600_000
    )  # so that it does not run off while a busy machine lets this test wait
    state_file.remember_value("draft", "one", "talk", value={"text": "a"})
    due = state_file._timer.remainingTime()
    QTest.qWait(20)
    state_file.remember_value("draft", "one", "talk", value={"text": "ab"})
    assert state_file._timer.remainingTime() < due


def test_before_work_that_blocks_the_window_what_waits_is_written(
    tmp_path: Path, application: QApplication
) -> None:
    state_file = WindowStateFile(tmp_path / "window.json")
    state_file._timer.setInterval(600_000)  # As if the window were busy for so long.
    state_file.start_waiting_write()
    assert state_file._writer is None, "nothing waited"
    state_file.remember_value("draft", "one", "talk", value={"text": "half a word"})
    state_file.start_waiting_write()
    assert state_file._writer is not None
    state_file._writer.shutdown()
    assert "half a word" in (tmp_path / "window.json").read_text()
    assert not state_file._timer.isActive()


def test_all_windows_have_the_order_that_the_user_made_in_one(
    tmp_path: Path, application: QApplication
) -> None:
    """A second window had the workspaces in another order, so Ctrl+1 meant another one."""
    first = WindowStateFile(tmp_path / "window.json")
    first.remember_value("rail", value=["b", "a"])
    first.write_state_file()
    second = WindowStateFile(tmp_path / "window-2.json")
    assert second.get_remembered_in_any_window("rail", default=[""]) == ["b", "a"]
    second.remember_value("rail", value=["b", "a", "c"])
    second.write_state_file()
    assert first.get_remembered_in_any_window("rail", default=[""]) == ["b", "a"]
    second.remember_in_all_windows("rail", value=["c", "b", "a"])
    first.take_changes_of_other_windows()
    for window in (first, second, WindowStateFile(tmp_path / "window.json")):
        assert window.get_remembered("rail", default=[""]) == ["c", "b", "a"]


def test_what_is_forgotten_is_removed_from_the_files_of_other_windows(
    tmp_path: Path, application: QApplication
) -> None:
    further = WindowStateFile(tmp_path / "window-2.json")
    further.remember_value("draft", "one", "talk", value={"text": "the secret is hunter2"})
    further.remember_value("draft", "one", "gone", value={"text": "a"})
    further.remember_value("draft", "two", "talk", value={"text": "b"})
    further.write_state_file()
    first = WindowStateFile(tmp_path / "window.json")
    first.forget_remembered_text("hunter2", within="one")
    first.forget_deleted_ids("gone")
    again = WindowStateFile(tmp_path / "window-2.json")
    nothing = dict[str, str]()
    assert again.get_remembered("draft", "one", "talk", default=nothing)["text"] == "the secret is "
    assert again.get_remembered("draft", "one", "gone", default=nothing) == nothing
    assert again.get_remembered("draft", "two", "talk", default=nothing) == {"text": "b"}


def test_what_is_forgotten_does_not_come_back_from_a_window_that_is_open(
    tmp_path: Path, application: QApplication
) -> None:
    """The defect: the other window wrote its own drafts again at the next key."""
    further = WindowStateFile(tmp_path / "window-2.json")
    further.remember_value("draft", "one", "talk", value={"text": "the secret is hunter2"})
    further.remember_value("draft", "one", "gone", value={"text": "a"})
    further.remember_value("draft", "two", "talk", value={"text": "b"})
    further.write_state_file()
    told = QSignalSpy(further.changed_by_other_window)
    first = WindowStateFile(tmp_path / "window.json")
    first.forget_remembered_text("hunter2", within="one")
    first.forget_deleted_ids("gone")
    assert "hunter2" not in "".join(file.read_text() for file in tmp_path.iterdir())

    further.remember_value("draft", "two", "talk", value={"text": "bc"})
    further.write_state_file()
    assert told.count() == 1
    nothing = dict[str, str]()
    for window in (further, WindowStateFile(tmp_path / "window-2.json")):
        assert window.get_remembered("draft", "one", "talk", default=nothing) == {
            "text": "the secret is "
        }
        assert window.get_remembered("draft", "one", "gone", default=nothing) == nothing
        assert window.get_remembered("draft", "two", "talk", default=nothing) == {"text": "bc"}
    assert [file.name for file in tmp_path.iterdir() if file.suffix != ".json"] == []


def test_what_another_window_changed_is_taken_over_once(
    tmp_path: Path, application: QApplication
) -> None:
    further = WindowStateFile(tmp_path / "window-2.json")
    further.remember_value("draft", "one", "talk", value={"text": "the secret is hunter2"})
    further.write_state_file()
    WindowStateFile(tmp_path / "window.json").forget_remembered_text("hunter2", within="one")
    again = WindowStateFile(tmp_path / "window-2.json")
    again.remember_value("draft", "one", "talk", value={"text": "written since"})
    again.write_state_file()
    known = again.get_remembered("draft", "one", "talk", default=dict[str, str]())
    assert known == {"text": "written since"}
