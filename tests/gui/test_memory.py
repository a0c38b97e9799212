from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.memory import Memory


def test_values_survive_a_restart(tmp_path: Path, application: QApplication) -> None:
    memory = Memory(tmp_path / "window.json")
    memory.put("layout", "one", "sidebar", value=False)
    memory.put("draft", "one", "talk", value={"text": "half a sentence"})
    memory.write()
    again = Memory(tmp_path / "window.json")
    assert again.get("layout", "one", "sidebar", default=True) is False
    assert again.get("draft", "one", "talk", default=dict[str, str]()) == {"text": "half a sentence"}


def test_half_a_sign_keeps_no_draft_from_the_disk(tmp_path: Path, application: QApplication) -> None:
    """Names of files, and what models write, may hold what is no text in UTF-8."""
    memory = Memory(tmp_path / "window.json")
    memory.put("draft", "one", "talk", value={"text": "about \ud83d and caf\udce9"})
    memory.write()
    again = Memory(tmp_path / "window.json")
    assert again.get("draft", "one", "talk", default=dict[str, str]()) == {"text": "about ? and caf?"}


def test_a_value_of_another_type_is_not_believed(memory: Memory) -> None:
    memory.put("layout", "width", value="wide")
    assert memory.get("layout", "width", default=252) == 252


def test_an_empty_value_is_forgotten(memory: Memory) -> None:
    memory.put("draft", "one", "a", value={"text": "x"})
    memory.put("draft", "one", "a", value={})
    assert memory.get("draft", "one", "a", default={"gone": 1}) == {"gone": 1}


def test_a_damaged_file_is_set_aside(tmp_path: Path, application: QApplication, expect: Callable[[str], None]) -> None:
    expect("cannot be read and is set aside")
    (tmp_path / "window.json").write_text("{half")
    memory = Memory(tmp_path / "window.json")
    memory.put("window", value="x")
    memory.write()
    assert (tmp_path / "window.damaged").read_text() == "{half"
    assert Memory(tmp_path / "window.json").get("window", default="") == "x"


def test_a_disk_that_refuses_is_only_said(
    tmp_path: Path, application: QApplication, expect: Callable[[str], None]
) -> None:
    expect("could not be kept")
    memory = Memory(tmp_path / "folder" / "window.json")
    (tmp_path / "folder").write_text("a file where a folder should be")
    memory.put("window", value="x")
    memory.write()
    assert memory.get("window", default="") == "x"


def test_a_text_is_cut_out_of_what_is_kept_for_a_workspace(tmp_path: Path, application: QApplication) -> None:
    memory = Memory(tmp_path / "window.json")
    (tmp_path / "window.damaged").write_text("{the key")
    for workspace in ("one", "two"):
        memory.put("draft", workspace, "talk", value={"text": "use the key here", "attachments": [{"name": "the key"}]})
        memory.put("history", workspace, value=["hello", "the key"])
    memory.forget("the key", within="one")
    again = Memory(tmp_path / "window.json")
    assert again.get("draft", "one", "talk", default=dict[str, object]()) == {
        "text": "use  here",
        "attachments": [{"name": ""}],
    }
    assert again.get("history", "one", default=list[str]()) == ["hello"]
    assert again.get("history", "two", default=list[str]()) == ["hello", "the key"]
    assert not (tmp_path / "window.damaged").exists()


def test_who_types_without_a_pause_is_kept_on_the_disk_as_well(memory: Memory, tmp_path: Path) -> None:
    """Each key would put off a timer that begins anew with it."""
    memory.put("draft", "one", "talk", value={"text": "a"})
    due = memory._timer.remainingTime()
    QTest.qWait(20)
    memory.put("draft", "one", "talk", value={"text": "ab"})
    assert memory._timer.remainingTime() < due
