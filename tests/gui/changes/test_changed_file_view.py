"""One changed file: its versions, its lines, and comments on them."""

from __future__ import annotations

import pytest
from PySide6.QtTest import QSignalSpy
from PySide6.QtWidgets import QLabel, QMenu

from helix_desktop.errors import NotFound
from helix_desktop.gui.changes.changes_page import ChangesPage
from helix_desktop.gui.changes.undo_dialog import ThreeVersionsDialog, find_differing_lines
from helix_desktop.gui.theme import Theme
from tests.gui.changes.changes_page_hands import AFTER, BEFORE, row_of_text
from tests.gui.fake_changes import FakeChanges


def test_three_versions_are_shown(page: ChangesPage, changes: FakeChanges, theme: Theme) -> None:
    shown = ThreeVersionsDialog(theme, "a", (b"one", b"two\n", b"\0"), page)
    assert [
        [view.viewed_lines[n] for n in range(len(view.viewed_lines))] for view in shown.views
    ] == [
        ["one"],
        ["two", ""],
        ["1 B"],
    ]


def test_the_lines_that_differ_stand_out_in_three_versions(page: ChangesPage, theme: Theme) -> None:
    versions = (b"a\nb\nc\n", b"a\nB\nc\n", b"a\nB\nc\nmine\n")
    differing = find_differing_lines(versions)
    assert differing == [{1}, {1}, {3}]
    plain, marked = (
        ThreeVersionsDialog(theme, "a", versions, page, differing=each)
        for each in ([(), (), ()], differing)
    )
    for shown in (plain, marked):
        shown.show()
    for old, new in zip(plain.views, marked.views, strict=True):
        assert old.grab().toImage() != new.grab().toImage()
    assert [view._labels(number) for view, number in zip(marked.views, (1, 1, 0), strict=True)] == [  # type: ignore[misc]
        "2 -",
        "2 +",
        "1  ",
    ]


def test_a_comment_goes_to_the_agent_with_its_place(page: ChangesPage) -> None:
    said: list[str] = []
    page.agent_message_written.connect(said.append)
    view = page.body.view
    number = next(
        i
        for i, row in enumerate(view._sheet.rows)
        if row.right is not None and row.right.text == "LINE 5"
    )
    view.open_comment_on_row(number)
    view._comment.words.setPlainText("Why capitals?")
    view._comment._send_comment()
    assert said == ["About src/a.py, line 6:\n\n    LINE 5\n\nWhy capitals?"]


def test_a_comment_that_is_being_written_outlives_what_the_agent_changes_meanwhile(
    page: ChangesPage, changes: FakeChanges
) -> None:
    """The words and the place were gone with the agent's next step."""
    said: list[str] = []
    page.agent_message_written.connect(said.append)
    page.resize(1100, 300)
    view = page.body.view
    view.open_comment_on_row(row_of_text(page, "LINE 5"))
    view._comment.words.setPlainText("Why capitals?")
    view.verticalScrollBar().setValue(7)
    changes.fill({"src/a.py": (BEFORE, b"first\n" + AFTER)})
    page.reload_changes()
    assert view._comment.isVisible()
    assert view.verticalScrollBar().value() == 7
    assert view._heights.commented_row == row_of_text(page, "LINE 5")
    view._comment._send_comment()
    assert said == ["About src/a.py, line 7:\n\n    LINE 5\n\nWhy capitals?"]


def test_a_comment_stays_where_its_line_was_and_goes_with_another_file(
    page: ChangesPage, changes: FakeChanges
) -> None:
    view = page.body.view
    view.open_comment_on_row(row_of_text(page, "LINE 5"))
    view._comment.words.setPlainText("Why capitals?")
    changes.fill({"src/a.py": (BEFORE, BEFORE + b"last\n"), "new.txt": (b"", b"new\n")})
    page.reload_changes()
    assert view._comment.isVisible()
    assert view._comment.words.toPlainText() == "Why capitals?"
    new_row = next(
        number
        for number, entry in enumerate(page.files.files.items)
        if entry.file is not None and entry.file.place == "new.txt"
    )
    page.files.setCurrentIndex(page.files.files.index(new_row))
    assert not view._comment.isVisible()


def test_both_columns_hold_the_same_lines(page: ChangesPage) -> None:
    """The button with an arrow looked like a menu, and changed the view at once."""
    chosen = QSignalSpy(page.columns_chosen)
    page.columns.click()
    (menu,) = page.findChildren(QMenu)
    assert [(action.text(), action.isChecked()) for action in menu.actions()] == [
        ("Unified", True),
        ("Side by side", False),
    ]
    menu.actions()[1].trigger()
    assert page.columns.text().startswith("Side by side")
    assert chosen.count() == 1
    rows = [row for row in page.body.view._sheet.rows if not row.head]
    assert [row.left.text for row in rows if row.left and row.left.mark == "-"] == [
        "line 5",
        "line 40",
    ]
    assert [row.right.text for row in rows if row.right and row.right.mark == "+"] == [
        "LINE 5",
        "line forty",
        "more",
    ]
    page.grab()


def test_a_binary_and_a_picture_have_their_own_way(page: ChangesPage, changes: FakeChanges) -> None:
    changes.fill({"x.bin": (b"\0a", b"\0b"), "y.png": (b"", b"no picture")})
    page.show_changes_of(changes, "c1")
    assert "a file of 2 B" in page.body._sentence_label.text()
    page.files.setCurrentIndex(page.files.files.index(2))
    assert page.body._stack.currentIndex() == 2
    assert {"After", "Before", "no picture", "—"} <= {
        label.text() for label in page.body.findChildren(QLabel)
    }


def test_a_file_whose_content_is_gone_does_not_leave_another_one_in_its_place(
    page: ChangesPage, changes: FakeChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(_file: object) -> tuple[bytes, bytes]:
        raise NotFound("The entry was forgotten.")

    monkeypatch.setattr(changes, "contents_of_both_versions", gone)
    page._load_and_show_changed_file(page.files.files.items[-3])
    assert page.body._sentence_label.text() == "The entry was forgotten."
