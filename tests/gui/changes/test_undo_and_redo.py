"""Undo and redo of hunks, steps and turns: what is asked, done and said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from PySide6.QtTest import QSignalSpy
from PySide6.QtWidgets import QApplication, QComboBox, QLabel, QMenu, QScrollArea

from helix_desktop.engine.changes.diff_hunks import find_hunks
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.changes.turn_changes import (
    ChangeSource,
    FileChange,
    PlannedUndo,
    TurnOfChanges,
    UndoOutlook,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.changes.changes_page import ChangesPage, GatheredChanges
from helix_desktop.gui.changes.undo_and_redo import name_turn
from helix_desktop.gui.changes.undo_dialog import UndoChangesDialog
from helix_desktop.gui.common.figure_formats import format_time_of_day
from helix_desktop.gui.theme import Theme
from tests.gui import fake_changes
from tests.gui.changes.changes_page_hands import AFTER, BEFORE, dialog
from tests.gui.fake_changes import FakeChanges


def test_a_hunk_is_taken_back_and_another_kept(page: ChangesPage, changes: FakeChanges) -> None:
    first, second = find_hunks(BEFORE, AFTER)
    said: list[str] = []
    page.notice_wanted.connect(lambda words, _button: said.append(words))
    page.body.view.hunk_undo_requested.emit(first.stable_id)
    page.body.view.hunk_keep_requested.emit(second.stable_id)
    assert changes.now["src/a.py"] == AFTER.replace(b"LINE 5\n", b"line 5\n")
    assert changes.kept_hunks == {"0/src/a.py": {second.stable_id}}
    assert said == ["The change was undone. The rest of the file was not changed."]


def test_an_undo_asks_first_and_what_somebody_else_changed_is_the_users_choice(
    page: ChangesPage, changes: FakeChanges
) -> None:
    changes.now["new.txt"] = b"mine\n"
    turn = page._turns[0]
    page.undo.confirm_and_undo_sources(turn.sources, "Undo turn 12")
    asked = dialog(page, UndoChangesDialog)
    assert isinstance(asked, UndoChangesDialog)
    assert asked.choices_by_path == {"0/new.txt": "now"}
    assert changes.now["src/a.py"] == AFTER, "nothing is done before the answer"
    asked.accept()
    assert changes.undone == [{"0/new.txt": "now"}]
    assert changes.now["src/a.py"] == BEFORE
    assert changes.now["new.txt"] == b"mine\n"


def test_a_file_that_a_later_turn_of_the_agent_changed_is_said_to_be_so(
    page: ChangesPage, changes: FakeChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was laid to the user's charge."""
    (turn,) = page._turns
    later = replace(
        turn,
        number=13,
        last=13,
        seq=10,
        title="Then more",
        sources=(replace(turn.sources[0], seq=11),),
    )
    page.undo.turns = (turn, later)
    files = [replace(file, sources=turn.sources) for file in changes._files()]
    changes.now["new.txt"] = b"newer\n"

    async def files_of(sources: Sequence[ChangeSource]) -> Sequence[FileChange]:
        new = next(file for file in files if file.place == "new.txt")
        after = PathChange("0/new.txt", new.change.after, fake_changes._item(b"newer\n"))
        return [replace(new, change=after)] if sources == later.sources else files

    monkeypatch.setattr(changes, "changes_with_folders", files_of)

    def said() -> list[str]:
        page.undo.confirm_and_undo_sources(turn.sources, "Undo turn 12")
        asked = page.findChildren(UndoChangesDialog)[-1]
        return [label.text() for label in asked.findChildren(QLabel)]

    assert (
        "The agent changed these files again in later turns. Choose what to do with each file:"
        in said()
    )
    assert "new.txt · “Then more”" in said()
    changes.now["new.txt"] = b"mine\n"
    assert (
        "You or another program changed these files later. Choose what to do with each file:"
        in said()
    )


def test_what_was_undone_can_be_redone_from_the_notice_and_undone_again(
    page: ChangesPage, changes: FakeChanges
) -> None:
    buttons: list[dict[str, Any]] = []
    said: list[str] = []
    page.notice_wanted.connect(lambda _words, button: buttons.append(button))
    page.notice_wanted.connect(lambda words, _button: said.append(words))
    page.undo.confirm_and_undo_sources(page._turns[0].sources, "Undo turn 12")
    asked = dialog(page, UndoChangesDialog)
    assert isinstance(asked, UndoChangesDialog)
    asked.accept()
    assert changes.now["src/a.py"] == BEFORE
    assert "redone" not in said[-1]
    for button, content in (("Redo", AFTER), ("Undo", BEFORE), ("Redo", AFTER)):
        assert buttons[-1]["button"] == button
        buttons[-1]["act"]()
        assert changes.now["src/a.py"] == content
        assert ("redone" in said[-1]) == (button == "Redo"), "both said that files were restored"
    page.undo.plan_and_confirm_undo(changes._files(), redo=True)
    assert not any(each.isVisible() for each in page.findChildren(UndoChangesDialog))
    assert buttons[-1]["button"] == "Undo", "what was redone can be undone"


def test_the_question_tells_what_goes_and_a_redo_speaks_of_the_undo(
    page: ChangesPage, theme: Theme
) -> None:
    def item(content: bytes) -> TreeItem:
        return TreeItem(PathKind.FILE, 0o644, 1, content)

    def shown(*, redo: bool) -> UndoChangesDialog:
        planned = (
            PlannedUndo("0/old", item(b"1"), item(b"2"), item(b"2"), UndoOutlook.RESTORE),
            PlannedUndo("0/new", None, item(b"2"), item(b"2"), UndoOutlook.RESTORE),
            PlannedUndo("0/src", TreeItem(PathKind.FOLDER, 0o755), None, None, UndoOutlook.RESTORE),
            PlannedUndo("0/both", item(b"1"), item(b"2"), item(b"3"), UndoOutlook.CONFLICT),
        )
        return UndoChangesDialog(theme, "Undo", (), planned, page, redo=redo)

    def words(of: UndoChangesDialog) -> list[str]:
        (box,) = of.findChildren(QComboBox)
        return [box.itemText(at) for at in range(1, box.count())]

    said = [label.text() for label in shown(redo=False).findChildren(QLabel)]
    assert said[:2] == ["1 file will be restored: old", "1 file will be deleted: new"]
    assert words(shown(redo=False)) == [
        "Restore the file to its state before the agent's changes",
        "Undo only the agent's lines",
    ]
    assert words(shown(redo=True)) == [
        "Restore the file to its state before the undo",
        "Redo only the agent's lines",
    ]


def test_a_long_path_pushes_nothing_out_of_the_dialog(page: ChangesPage, theme: Theme) -> None:
    """Beside it, the button “Compare…” was cut."""
    item = TreeItem(PathKind.FILE, 0o644, 1, b"1")
    planned = [PlannedUndo(f"0/{'deep/' * 20}report.py", item, item, item, UndoOutlook.CONFLICT)]
    dialog = UndoChangesDialog(theme, "Undo", (), planned, page)
    dialog.show()
    QApplication.processEvents()
    (area,) = dialog.findChildren(QScrollArea)
    assert area.horizontalScrollBar().maximum() == 0
    labels = [label.text() for label in dialog.findChildren(QLabel)]
    assert "Only this file is changed. You can reverse this later." in labels
    dialog.reject()


def test_undo_offers_each_step_the_turn_and_all_since(
    page: ChangesPage, changes: FakeChanges
) -> None:
    page.undo_button.click()
    (menu,) = page.findChildren(QMenu)
    assert [action.text() for action in menu.actions()] == ["Undo “Extract it”…"]
    source = page._turns[0].sources[0]
    source = replace(source, fact=replace(source.fact, files=1, names=("src/R&D.md",)))
    later = replace(
        source,
        seq=20,
        what="run_command",
        step=40,
        fact=replace(source.fact, files=3, names=("a", "b")),
    )
    two = replace(page._turns[0], sources=(source, later))
    page._turns = [two, replace(two, number=13, seq=10, end=30, title="Then more")]
    page.files.files.items = [replace(entry, turn=two) for entry in page.files.files.items]
    menu.deleteLater()
    page.undo_button.click()
    words = [action.text() for action in page.findChildren(QMenu)[-1].actions()]
    assert words == [
        "Undo only “Run a, b, …”",  # The dots of a cut name say that a question comes, too.
        "Undo only “Edit src/R&&D.md”…",
        "Undo “Extract it”…",
        "Undo everything since “Extract it”…",
        "",  # the line before the other turns
        "Undo “Then more”…",
    ]
    undo = replace(later, seq=40, fact=replace(later.fact, by="undo", undoes=(8,)))
    page._turns = [replace(two, sources=(source, undo))]
    page.files.files.items = [
        replace(entry, turn=page._turns[0]) for entry in page.files.files.items
    ]
    page.undo_button.click()
    words = [action.text() for action in page.findChildren(QMenu)[-1].actions()]
    assert words == [
        f"Redo 3 files, undone at {format_time_of_day(undo.time)}",
        "Undo “Extract it”…",
    ]


def test_a_turn_is_named_by_its_message_and_by_its_time_if_that_was_sent_twice(
    page: ChangesPage,
) -> None:
    """It was "Turn 3", where two messages were in sight: one that was edited counts, too."""
    (turn,) = page._turns
    assert name_turn(turn, [turn]) == "“Extract it”"
    long = replace(turn, title="Please fix the fee and then " * 3)
    assert name_turn(long, [long]) == "“Please fix the fee and then Please fix…”"
    assert name_turn(replace(turn, title=""), [turn]) == "turn 12"
    again = replace(turn, number=13, seq=10)
    assert name_turn(again, [turn, again]) == f"“Extract it”, {format_time_of_day(1.0)}"
    assert name_turn(replace(turn, last=14), [turn]) == "“Extract it” + 2 more messages"


def test_of_steps_with_one_name_each_says_its_number(page: ChangesPage) -> None:
    (turn,) = page._turns
    first = turn.sources[0]
    second = replace(first, seq=20, step=32)
    page._turns = [replace(turn, sources=(first, second))]
    page.files.files.items = [
        replace(entry, turn=page._turns[0]) for entry in page.files.files.items
    ]
    page.undo_button.click()
    words = [action.text() for action in page.findChildren(QMenu)[-1].actions()]
    assert words[:2] == ["Undo only “Edit” (step 32)…", "Undo only “Edit” (step 31)…"]


def test_each_undo_can_be_reversed_not_only_the_last(
    page: ChangesPage, changes: FakeChanges
) -> None:
    """A first undo may have taken the user's own lines, and its notice is gone after
    some seconds.
    """
    (turn,) = page._turns
    undo = replace(turn.sources[0].fact, by="undo", undoes=(8,), files=1, names=("src/a.py",))
    first = replace(turn.sources[0], seq=40, time=1.0, fact=undo)
    second = replace(first, seq=41, time=9e5, fact=replace(first.fact, files=2))
    page._turns = [replace(turn, sources=(*turn.sources, first, second))]
    page.files.files.items = [
        replace(entry, turn=page._turns[0]) for entry in page.files.files.items
    ]
    page.undo_button.click()
    actions = page.findChildren(QMenu)[-1].actions()
    assert [action.text() for action in actions] == [
        f"Redo 2 files, undone at {format_time_of_day(9e5)}",
        f"Redo src/a.py, undone at {format_time_of_day(1.0)}",
        "Undo “Extract it”…",
    ]
    reports = QSignalSpy(page.notice_wanted)
    actions[0].trigger()
    assert page.findChildren(UndoChangesDialog) == [], "the message redoes without one, too"
    assert reports.at(0)[1]["button"] == "Undo"


def test_what_somebody_changed_since_is_redone_only_after_a_question(
    page: ChangesPage, changes: FakeChanges
) -> None:
    changes.now["new.txt"] = b"mine\n"
    page.undo.plan_and_confirm_undo(changes._files(), redo=True)
    asked = dialog(page, UndoChangesDialog)
    assert isinstance(asked, UndoChangesDialog)
    assert asked.isVisible()
    assert changes.now["new.txt"] == b"mine\n"


def test_an_undo_that_was_reversed_at_once_is_not_offered_again(
    page: ChangesPage, changes: FakeChanges
) -> None:
    """After Undo and Redo, two lines looked the same: one would have taken the changes
    away again.
    """
    (turn,) = page._turns
    states = Digest.of_content(b"one"), Digest.of_content(b"two")
    fact = replace(turn.sources[0].fact, by="undo", undoes=(8,), before=states[0], after=states[1])
    undo = replace(turn.sources[0], seq=40, time=1.0, fact=fact)
    redo = replace(undo, seq=41, time=2.0, fact=replace(fact, before=states[1], after=states[0]))
    page._turns = [replace(turn, sources=(*turn.sources, undo, redo))]
    page.files.files.items = [
        replace(entry, turn=page._turns[0]) for entry in page.files.files.items
    ]
    page.undo_button.click()
    assert [action.text() for action in page.findChildren(QMenu)[-1].actions()] == [
        "Undo “Extract it”…"
    ]


def test_a_step_that_is_undone_already_is_not_offered(
    page: ChangesPage, changes: FakeChanges
) -> None:
    class OneUndone(FakeChanges):
        async def changes_with_folders(
            self, sources: Sequence[ChangeSource]
        ) -> Sequence[FileChange]:
            return self._files() if len(sources) % 2 else []  # each undo or redo turns it over

    changes = OneUndone()
    changes.fill({"a.py": (BEFORE, AFTER)})
    page.show_changes_of(changes, "c1")
    (turn,) = page._turns
    first = turn.sources[0]
    second = replace(first, seq=9, what="run_command", step=40)
    undo = replace(first, seq=20, fact=replace(first.fact, by="undo", undoes=(9,)))

    def offered(*sources: ChangeSource) -> list[str]:
        page._turns = [replace(turn, sources=sources)]
        page.files.files.items = [
            replace(entry, turn=page._turns[0]) for entry in page.files.files.items
        ]
        page.undo_button.click()
        return [
            action.text()
            for action in page.findChildren(QMenu)[-1].actions()
            if action.text().startswith("Undo only")
        ]

    assert offered(first, second, undo) == ["Undo only “Edit”…"]
    assert offered(first, second, undo, replace(undo, seq=21)) == [
        "Undo only “Run”…",
        "Undo only “Edit”…",
    ]


def test_a_turn_that_was_undone_can_be_redone_and_is_called_so(
    page: ChangesPage, changes: FakeChanges
) -> None:
    (turn,) = page._turns
    undo = replace(turn.sources[0], fact=replace(turn.sources[0].fact, by="undo"))
    undone_turn = replace(turn, sources=(*turn.sources, undo))
    page._show_gathered_changes(GatheredChanges(changes, page._conversation, [undone_turn], []))
    assert (
        page.body._sentence_label.text()
        == "The agent's changes here have been undone. You can redo them from the Undo menu."
    )
    page.undo_button.click()
    assert [action.text() for action in page.findChildren(QMenu)[-1].actions()] == [
        "Redo “Extract it”"
    ]


def test_an_undo_of_what_was_committed_says_so_and_stays_in_sight(
    page: ChangesPage, changes: FakeChanges
) -> None:
    """The turn vanished, and nothing said that there was a new change to commit."""
    notices = QSignalSpy(page.notice_wanted)
    changes.git_repository.committed.append((("0/src/a.py",), "Extract it"))
    page.reload_changes()
    hunk = find_hunks(BEFORE, AFTER)[0]
    page.body.view.hunk_undo_requested.emit(hunk.stable_id)
    assert notices.at(0)[0].endswith(
        "The commit keeps what it has: this undo is a new change to commit."
    )

    class TurnUndone(FakeChanges):
        async def file_changes_of_steps(
            self, sources: Sequence[ChangeSource]
        ) -> Sequence[FileChange]:
            is_undo_alone = all(source.fact.by == "undo" for source in sources)
            return self._files(undo=True) if is_undo_alone else []

        async def turns_with_changes(self, conversation: str) -> Sequence[TurnOfChanges]:
            (turn,) = await super().turns_with_changes(conversation)
            (source,) = turn.sources
            undo = replace(source, fact=replace(source.fact, by="undo"))
            return [replace(turn, sources=(source, undo))]

    undone = TurnUndone()
    undone.fill({"src/a.py": (BEFORE, AFTER), "b.py": (BEFORE, AFTER)})
    undone.git_repository.changed_since_commit = frozenset({"0/src/a.py"})
    page.show_changes_of(undone, "c1")
    assert page.files.files.items[0].heading == "Undone by you, not committed yet · 1 file"
    assert [file.place for file in page._files] == ["src/a.py"]
    assert page.commit_button.isEnabled()


def test_what_is_redone_is_called_so_in_the_question(page: ChangesPage) -> None:
    class AllUndone(FakeChanges):
        async def changes_with_folders(
            self, sources: Sequence[ChangeSource]
        ) -> Sequence[FileChange]:
            return self._files() if all(source.fact.by == "undo" for source in sources) else []

    changes = AllUndone()
    changes.fill({"a.py": (BEFORE, AFTER)})
    changes.now["a.py"] = b"mine\n"  # Otherwise, it asks nothing.
    page.show_changes_of(changes, "c1")
    source = page._turns[0].sources[0]
    page.undo.confirm_and_undo_sources(
        [source, replace(source, fact=replace(source.fact, by="undo"))], "Redo “Extract it”…"
    )
    asked = dialog(page, UndoChangesDialog)
    assert isinstance(asked, UndoChangesDialog)
    assert (asked.windowTitle(), asked.undo_button.text()) == ("Redo “Extract it”", "Redo")


def test_since_a_checkpoint_and_everything_put_back_to_it(
    page: ChangesPage, changes: FakeChanges
) -> None:
    page._show_scope_menu()
    menus = page.findChildren(QMenu)
    (moment,) = [
        action
        for menu in menus
        for action in menu.actions()
        if action.text().endswith("“Extract it”")
    ]
    moment.trigger()
    assert page.scope.text() == "Since “Extract it” ▾"
    assert page.files.files.items[0].heading == "Since “Extract it” · 3 files"
    page._ask_what_to_undo()
    asked = dialog(page, UndoChangesDialog)
    assert isinstance(asked, UndoChangesDialog)
    assert (
        asked.windowTitle()
        == "Restore everything to its state before “Extract it” (your own changes are undone too)"
    )
    asked.accept()
    assert changes.now["src/a.py"] == BEFORE
