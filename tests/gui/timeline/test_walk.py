"""A walk through cache, timeline and inspector on a real session in a real workspace.
What came of each step is looked up in the journal and in the cache, also after a
restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMessageBox

from helix_desktop import program_folders
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import (
    DocumentEdited,
    Fact,
    Folded,
    FoldKind,
    Pinned,
    Refolded,
    Unfolded,
)
from helix_desktop.engine.session import Session
from helix_desktop.errors import NotFound
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.cache.cache_page import CachePage
from helix_desktop.gui.inspector.context_inspector import ContextInspector
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.timeline_page import TimelinePage
from helix_desktop.gui.transcript.chat_actions import ChatIntent, RecallEntry, ShowInChat
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from helix_desktop.workbench.tour_folder import create_tour_folder
from tests.scripted_tour import ClockWithoutPauses, run_tour_session

LEFT = Qt.MouseButton.LeftButton


async def until(done: Callable[[], object]) -> None:
    """Let both loops run until something is so."""
    for _ in range(4_000):
        QApplication.processEvents()
        if done():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come about")


def desk_at(home: Path) -> Workbenches:
    where = program_folders.find_program_folders(home)
    return Workbenches(where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses())


def last(session: Session) -> Fact:
    return session.all_facts[-1].fact


async def test_a_walk(theme: Theme, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    create_tour_folder(folder)
    desk = desk_at(tmp_path / "home")
    tasks = OwnedTasks("walk")
    bench = await desk.create_workspace("walk", folder)
    session = await run_tour_session(bench)
    await bench.workspace.index.wait_until_indexed()
    await read_the_timeline(theme, tasks, bench, session)
    blocks = session.conversation.current_view().blocks
    await look_into_the_inspector(theme, tasks, session)
    await find_in_the_cache(theme, tasks, bench)
    await tasks.aclose()
    await desk.aclose()
    again = desk_at(tmp_path / "home")
    opened = await again.open_workspace(bench.id)
    restarted = await opened.open_session(session.id)
    assert [
        (block.source, block.fold) for block in restarted.conversation.current_view().blocks
    ] == [(b.source, b.fold) for b in blocks]
    assert restarted.conversation.current_view().blocks[-1].pinned
    await again.aclose()


async def read_the_timeline(
    theme: Theme, tasks: OwnedTasks, bench: Workbench, session: Session
) -> None:
    """Every fold is there; undo, redo and the user's wording become facts, and the view follows."""
    page = TimelinePage(theme, BackgroundRunner(tasks.spawn_task))
    page.resize(600, 800)
    page.show()
    page.panel.resize(560, 800)
    page.panel.show()
    leave = session.subscribe_to_events(lambda event: page.update_timeline_from_events([event]))
    page.show_timeline_of(session, bench)
    await until(lambda: page.timeline.events and page.panel._shown is not None)
    folds = [recorded.fact for recorded in session.all_facts if isinstance(recorded.fact, Folded)]
    assert sum(len(event.current_folds) for event in page.timeline.events) == len(folds)
    handover = next(fold for fold in folds if fold.kind is FoldKind.HANDOVER)
    page.choose_fold(handover.fold)
    with_it = session.conversation.current_view().blocks
    QTest.mouseClick(page.panel.undo_button, LEFT)
    await until(lambda: last(session) == Unfolded(handover.fold))
    assert session.conversation.current_view().blocks != with_it
    await until(lambda: page.panel.undo_button.text() == "Redo")
    QTest.mouseClick(page.panel.undo_button, LEFT)
    await until(lambda: last(session) == Refolded(handover.fold))
    assert session.conversation.current_view().blocks == with_it
    QTest.mouseClick(page.panel._edit, LEFT)
    page.panel._editor.setPlainText("## User Preferences\nNever change a file outside of src/.")
    page.panel._save_document_edit()
    await until(lambda: isinstance(last(session), DocumentEdited))
    assert any(
        "Never change a file" in getattr(block.content, "text", "")
        for block in session.conversation.current_view().blocks
    )
    leave()
    page.close()
    page.panel.close()


async def look_into_the_inspector(theme: Theme, tasks: OwnedTasks, session: Session) -> None:
    """The figures and the blocks are the session's own; a pin is a fact."""
    panel = ContextInspector(theme, BackgroundRunner(tasks.spawn_task))
    panel.resize(300, 1_400)
    panel.show()
    leave = session.subscribe_to_events(lambda event: panel.update_inspector_from_events([event]))
    panel.inspect_conversation(session)
    await until(lambda: panel._parts)
    assert [part.block for part in panel._parts] == list(session.conversation.current_view().blocks)
    number = next(
        part.number
        for part in panel._parts
        if part.block.source == session.conversation.current_view().blocks[-1].source
    )
    next(
        action for action in panel.build_block_menu(number).actions() if "Pin" in action.text()
    ).trigger()
    await until(lambda: isinstance(last(session), Pinned))
    leave()
    panel.close()


async def find_in_the_cache(theme: Theme, tasks: OwnedTasks, bench: Workbench) -> None:
    """Found by words and by hash; recalled by lines; pinned, verified, forgotten in the
    store itself.
    """
    page = CachePage(theme, BackgroundRunner(tasks.spawn_task))
    wanted = list[ChatIntent]()
    page.intent_wanted.connect(wanted.append)
    page.resize(1_100, 800)
    page.show()
    page.show_cache_of(bench.workspace)
    await until(lambda: page.viewer.row is not None)
    QTest.keyClicks(page.bar.field, "adapter not trimmed")
    QTest.keyClick(page.bar.field, Qt.Key.Key_Return)
    await until(lambda: page.model.shows_search_hits and page.model.rowCount())
    log = next(
        at for at in range(page.model.rowCount()) if page.model.index(at, 0).data() == "run.log"
    )
    page.table.selectRow(log)
    await until(lambda: page.viewer.uses and len(page.viewer.content_view.lines.viewed_lines) > 1)
    row = page.viewer.row
    assert row is not None
    digest = row.stored.digest
    lines = page.viewer.content_view.lines
    lines.verticalScrollBar().setValue(0)
    in_the_margin = QPoint(2, round(lines._ink.scaled_pixels(10) + 1.5 * lines._line_height))
    QTest.mouseClick(lines.viewport(), LEFT, pos=in_the_margin)
    QTest.keyClick(lines, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    QTest.mouseClick(page.viewer.recall_button, LEFT)
    QTest.mouseClick(page.viewer._show, LEFT)
    assert wanted[0] == RecallEntry(digest, (2, 3))
    assert isinstance(wanted[1], ShowInChat)
    page.table.setFocus()
    QTest.keyClick(page.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert digest.hex in QGuiApplication.clipboard().text()
    page.viewer._toggle_pin()
    await until(lambda: page.viewer.row is not None and page.viewer.row.pinned)
    page.entry_actions.verify_shown_entry()
    await until(lambda: "matches its hash" in page._figures_label.text())
    page.entry_actions.ask_to_forget_entry()

    def questions() -> list[QMessageBox]:
        return [
            w
            for w in QApplication.topLevelWidgets()
            if isinstance(w, QMessageBox) and w.isVisible()
        ]

    await until(questions)
    (box,) = questions()
    QTest.mouseClick(next(b for b in box.buttons() if "Forget" in b.text()), LEFT)
    await until(lambda: page.viewer.row is None or page.viewer.row.stored.digest != digest)
    with pytest.raises(NotFound):
        await bench.workspace.cache.read_content(digest)
    page.close()
