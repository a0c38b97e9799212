"""A walk through cache, timeline and inspector by real mouse and keyboard; run by
test_walk_context.py under a screen.

`python -m tests.gui.walk_context HOME`: makes a workspace with a session of the tour in
it, and opens the real window on it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QPoint, QPointF
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QDialog, QFileDialog, QLineEdit, QWidget
from shiboken6 import isValid

from helix_desktop import program_folders
from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.engine.facts import (
    Attachment,
    DocumentEdited,
    Excluded,
    Fact,
    Folded,
    FoldKind,
    Included,
    Pinned,
    Refolded,
    Unfolded,
)
from helix_desktop.engine.session import Session
from helix_desktop.gui.common.consent_dialog import ConsentDialog
from helix_desktop.gui.replay_lab.replay_lab_dialog import ReplayLabDialog
from helix_desktop.gui.timeline.fold_now_dialog import FoldNowDialog
from helix_desktop.gui.views.text_comparison import TextComparisonDialog
from helix_desktop.secrets import SecretStorage
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.imported_proposals import list_imported_questions
from helix_desktop.workbench import Workbench, Workbenches
from helix_desktop.workbench.tour_folder import create_tour_folder
from tests.gui.hands import answer, choose, click, drag, hot, key, press, type_
from tests.scripted_tour import ClockWithoutPauses, run_tour_session
from tests.soak.driven import HOME, drive, until

D = TypeVar("D", bound=QWidget)


def prepare(home: Path) -> None:
    async def make() -> None:
        folder = home / "project"
        create_tour_folder(folder)
        where = program_folders.find_program_folders(home / HOME)
        desk = Workbenches(
            where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses()
        )
        bench = await desk.create_workspace("walk", folder)
        await run_tour_session(bench)
        await desk.aclose()

    asyncio.run(make())


class Walk:
    """One person at one window. What comes of each step is looked up in the journal and
    in the cache.
    """

    def __init__(self, run: WindowProgram) -> None:
        self.window = run.window

    @property
    def bench(self) -> Workbench:
        assert isinstance(self.window.current_workbench, Workbench)
        return self.window.current_workbench

    @property
    def session(self) -> Session:
        assert isinstance(self.window.current_session, Session)
        return self.window.current_session

    @property
    def last(self) -> Fact:
        return self.session.all_facts[-1].fact

    def facts(self, kind: type[Fact]) -> list[Fact]:
        return [each.fact for each in self.session.all_facts if isinstance(each.fact, kind)]

    async def go(self) -> None:
        await until(lambda: self.window.current_workbench is not None)
        await until(self.window.isActiveWindow)
        await key("ctrl+Next")
        await until(lambda: self.window.current_session is not None)
        await self.bench.workspace.index.wait_until_indexed()
        for part in (
            self.cache,
            self.timeline,
            self.inspector,
            self.lab,
            self.workspaces,
            self.created_elsewhere,
        ):
            try:
                await part()
            except BaseException:
                self.window.window().grab().save(
                    str(Path(tempfile.gettempdir(), "helix-walk-failed.png"))
                )
                raise

    # --- cache

    async def cache(self) -> None:
        """Filter, search, jump by hash, save, recall lines, pin, verify, forget."""
        page = self.window.pages.cache
        await key("alt+3")
        await until(lambda: page.viewer.row is not None)
        await choose("Read", lambda: click(page.bar._tool_button))
        await until(
            lambda: page.model.entry_filter.tool == "read_file" and page.model.rowCount() > 0
        )
        await choose("All tools", lambda: click(page.bar._tool_button))
        await key("ctrl+f")
        await type_("adapter not trimmed")
        await until(lambda: page.model.shows_search_hits and page.model.rowCount() > 0)
        log = next(
            at for at in range(page.model.rowCount()) if page.model.index(at, 0).data() == "run.log"
        )
        await click(page.table.viewport(), page.table.visualRect(page.model.index(log, 0)))
        await until(
            lambda: (
                page.viewer.row is not None and len(page.viewer.content_view.lines.viewed_lines) > 1
            )
        )
        await self._jump_by_hash()
        await self._save_to_file()
        await self._recall_lines()
        await self._pin_verify_forget()

    async def _jump_by_hash(self) -> None:
        page = self.window.pages.cache
        rows = [page.model.get_or_load_row(number) for number in range(page.model.rowCount())]
        digest = next(
            row.stored.digest for row in rows if row is not None and row.about.tool == "read_file"
        )
        await key("ctrl+f", "ctrl+a", "Delete")
        QGuiApplication.clipboard().setText(digest.hex)
        await key("ctrl+v", "Return")
        await until(lambda: page.viewer.row is not None and page.viewer.row.stored.digest == digest)

    async def _save_to_file(self) -> None:
        page = self.window.pages.cache
        target = Path(self.bench.main_folder, "saved.txt")
        row = page.viewer.row
        assert row is not None
        await click(page.viewer._save)
        await self._name_file(target)
        await until(target.exists)
        assert target.read_bytes() == await self.bench.workspace.cache.read_range(
            row.stored.digest, 0, row.stored.size
        )
        await until(lambda: str(target) in page._figures_label.text())

    async def _recall_lines(self) -> None:
        page = self.window.pages.cache
        chat = self.window.chat
        lines = page.viewer.content_view.lines
        await until(lambda: lines.isVisible() and len(lines.viewed_lines) > 6)
        lines.scroll_to_line(0)
        height = int(lines._line_height)
        await drag(
            lines.viewport(),
            QPoint(80, height * 2 + height // 2),
            QPoint(160, height * 4 + height // 2),
        )
        await until(lambda: lines.selected_line_range() is not None)
        chosen = lines.selected_line_range()
        assert chosen is not None
        await click(page.viewer.recall_button)
        await until(lambda: self.window.showing.page == "chat")
        await until(lambda: bool(chat.composer.attachments.listed_attachments))
        attached = chat.composer.attachments.listed_attachments[-1]
        assert isinstance(attached, Attachment)
        text = (
            await self.bench.workspace.cache.read_range(attached.stored.digest, 0, 10_000)
        ).decode()
        assert str(lines.viewed_lines[chosen[0]]) in text

    async def _pin_verify_forget(self) -> None:
        page = self.window.pages.cache
        await key("alt+3")
        row = page.viewer.row
        assert row is not None
        await choose("Pin", lambda: click(page.viewer._more))
        await until(lambda: page.viewer.row is not None and page.viewer.row.pinned)
        await choose("Verify", lambda: click(page.viewer._more))
        await until(lambda: "matches its hash" in page._figures_label.text())
        await key("ctrl+f", "ctrl+a", "Delete")
        await until(lambda: not page.model.shows_search_hits and page.model.rowCount() > 2)
        await until(
            lambda: (
                page.table.current_row < 0
                or page.model.get_or_load_row(page.table.current_row) == page.viewer.row
            )
        )
        await click(
            page.table.viewport(), page.table.visualRect(page.model.index(0, 0))
        )  # the lines recalled just now
        await until(
            lambda: (
                page.viewer.row is not None and page.viewer.row.stored.digest != row.stored.digest
            )
        )
        gone = page.viewer.row.stored.digest if page.viewer.row is not None else row.stored.digest
        await choose("Forget", lambda: click(page.viewer._more))
        await answer("Forget permanently")
        await until(lambda: page.viewer.row is None or page.viewer.row.stored.digest != gone)
        await self.bench.workspace.index.wait_until_indexed()  # forgetting makes it anew
        kept = await self.bench.workspace.index.find_entry_row(row.stored.digest)
        assert kept is not None
        assert kept.pinned
        found = await self.bench.workspace.index.find_entry_row(gone)
        assert found is None or found.gone

    # --- timeline

    async def timeline(self) -> None:
        """A fold is chosen, undone, redone, edited; handed over with a wish; two
        compared; the story written.
        """
        page = self.window.pages.timeline
        await key("alt+4")
        await until(lambda: bool(page.list.rows.items))
        await self._choose_handover(0)
        before = self.session.conversation.current_view().blocks
        await click(page.panel.undo_button)
        await until(lambda: isinstance(self.last, Unfolded))
        assert self.session.conversation.current_view().blocks != before
        await until(lambda: page.panel.undo_button.text() == "Redo")
        await click(page.panel.undo_button)
        await until(lambda: isinstance(self.last, Refolded))
        assert self.session.conversation.current_view().blocks == before
        await click(page.panel._edit)
        await key("ctrl+a")
        await type_("## User Preferences")
        await key("Return")
        await type_("Never change a file outside of src/.")
        await press(page.panel, "Save")
        await until(lambda: isinstance(self.last, DocumentEdited))
        assert any(
            "Never change" in getattr(block.content, "text", "")
            for block in self.session.conversation.current_view().blocks
        )
        await self._hand_over()
        await self._choose_on_the_chart()
        await self._compare()

    async def _choose_handover(self, number: int) -> None:
        page = self.window.pages.timeline
        rows = [
            at
            for at, event in enumerate(page.list.rows.items)
            if event.fold_kind is FoldKind.HANDOVER
        ]
        await click(page.list.viewport(), page.list.visualRect(page.list.rows.index(rows[number])))
        await until(
            lambda: (
                page.panel._shown is not None
                and page.panel._shown.event.fold_kind is FoldKind.HANDOVER
            )
        )

    async def _say(self, words: str) -> None:
        await click(self.window.chat.composer.text)
        await type_(words)
        turn = len(self.session.all_facts)
        await key("Return")
        await until(
            lambda: len(self.session.all_facts) > turn + 3 and self.session.running.value == "idle"
        )

    async def _choose_on_the_chart(self) -> None:
        """The older handover by a click on its mark, with the newer one chosen before."""
        page = self.window.pages.timeline
        await until(lambda: self._handovers() == 2)
        await self._choose_handover(0)
        newer = page.panel._shown
        older = min(
            (e for e in page.timeline.events if e.fold_kind is FoldKind.HANDOVER),
            key=lambda event: event.point,
        )
        points = page.timeline.points
        place = QPointF(
            page.chart.scale.x_of_point(older.point),
            page.chart.scale.y_of_tokens(points[older.point]),
        )
        await click(page.chart, place.toPoint())
        await until(lambda: page.panel._shown is not None and page.panel._shown.event is older)
        assert newer is not None
        assert newer.event is not older

    def _handovers(self) -> int:
        return sum(
            event.fold_kind is FoldKind.HANDOVER
            for event in self.window.pages.timeline.list.rows.items
        )

    async def _hand_over(self) -> None:
        handovers = self._handed_over()
        await key("alt+1")
        await self._say("read src/pairs.py")
        await key("alt+4")
        await choose("Shorten now…", lambda: click(self.window.pages.timeline.menu_button))
        dialog = await shown(FoldNowDialog)
        await click(dialog.wish)
        await type_("keep the API decisions")
        await key("Return")
        await until(lambda: self._handed_over() == handovers + 1)

    async def _compare(self) -> None:
        page = self.window.pages.timeline
        await self._choose_handover(0)
        await click(page.panel._compare)
        dialog = await shown(TextComparisonDialog)
        await key("Escape")
        await until(lambda: gone(dialog))

    # --- inspector

    async def inspector(self) -> None:
        """A block is pinned, left out and taken back; an earlier step is looked at."""
        panel = self.window.pages.inspector
        await key("alt+1")
        await until(lambda: self.window.showing.page == "chat")
        if not panel.isVisible():
            await key("ctrl+i")
        await until(lambda: panel.isVisible() and bool(panel._parts))
        await hot(panel.view, "outputs in the context")
        part = next(part for part in panel._parts if part.shown_name.words == "read src/pairs.py")
        name = part.shown_name.words
        for words, fact in (("Pin", Pinned), ("Exclude", Excluded)):
            await choose(words, lambda: hot(panel.view, name))
            await until(lambda fact=fact: isinstance(self.last, fact))  # type: ignore[misc]
            if fact is Pinned:  # and it is drawn
                await until(
                    lambda: any(
                        "pinned" in place and part.shown_name.words in place
                        for place in names(panel.view)
                    )
                )
        assert part.block.source not in [
            block.source for block in self.session.conversation.current_view().blocks
        ]
        await until(lambda: any("Include" in place for place in names(panel.view)))
        await hot(panel.view, "Include")
        await until(lambda: isinstance(self.last, Included))
        await click(panel.slider, QPoint(8, panel.slider.height() // 2))
        await key("Home")
        await until(lambda: panel._step.text().startswith("Step 1 of"))
        await until(
            lambda: sum(panel_tokens(panel)) < self.session.context.next_request_meter().used
        )
        await click(panel._now_button)
        await until(lambda: panel._step.text().startswith("Now"))
        await self._fold_from_the_inspector()

    async def _fold_from_the_inspector(self) -> None:
        handovers = self._handed_over()
        for words in ("read run.log", "read src/pairs.py"):  # something a handover pays for
            await self._say(words)
        await hot(self.window.pages.inspector.view, "Shorten now")
        dialog = await shown(FoldNowDialog)
        await click(dialog.wish)
        await type_("keep the names of files")
        await key("Return")
        await until(lambda: self._handed_over() == handovers + 1)
        assert gone(dialog)

    def _handed_over(self) -> int:
        return sum(
            isinstance(fold, Folded) and fold.kind is FoldKind.HANDOVER
            for fold in self.facts(Folded)
        )

    # --- replay lab

    async def lab(self) -> None:
        """The policies are played over the conversation, and one becomes the workspace's."""
        await self._do("other settings have cost")
        dialog = await shown(ReplayLabDialog)
        await until(lambda: "would have" in dialog.answer.text())
        preset_before = self.bench.policy_name
        await press(dialog, "Use this setting")
        await until(lambda: self.bench.policy_name != preset_before)
        preset = self.bench.policy_name
        assert self.bench.workspace.settings.preset == preset
        name = dialog._names[preset]
        await until(lambda: self.window.context_panel.policy.text().startswith(name))
        await key("Escape")

    # --- whole workspaces

    async def workspaces(self) -> None:
        """To a file and back: the copy has the history, and nothing of it is in force
        until it is allowed.
        """
        first = self.bench.id
        facts = len(self.session.all_facts)
        target = self.bench.main_folder / "walk.helix"
        await self.bench.choose_permission_mode("allow all")
        # A button of the settings and the menu of the workspaces do these two.
        self.window.window_actions["export-workspace"].trigger()
        await self._name_file(target)
        await until(lambda: target.exists() and self.window.isActiveWindow())
        self.window.window_actions["import-workspace"].trigger()
        await self._name_file(target)
        await until(
            lambda: (
                self.window.current_workbench is not None
                and self.window.current_workbench.id != first
            )
        )
        assert self.bench.allowed_folders == ()
        assert self.bench.permission_mode == "ask"
        imported = self.window.current_workbench
        assert imported is not None
        for _ in list_imported_questions(imported.workspace.settings.proposed):
            question = await shown(ConsentDialog)
            await press(question, "Allow")
            await until(partial(_is_hidden, question))
        await until(
            lambda: (
                self.window.current_workbench is not None
                and bool(self.window.current_workbench.allowed_folders)
            )
        )
        assert self.bench.permission_mode == "allow all"
        await key("ctrl+Next")
        await until(lambda: self.window.current_session is not None)
        assert len(self.session.all_facts) == facts

    async def created_elsewhere(self) -> None:
        """What the recorder or a command creates was not in the rail before the next start."""
        known = AllWorkspaces(self.bench.workspace.folder.parent)
        created = await asyncio.to_thread(known.create_stored_workspace, "Recorded meanwhile")
        await until(lambda: created.id in [row.id for row in self.window.workspaces.listed])

    async def _do(self, words: str) -> None:
        await key("ctrl+k")
        await type_(words)
        await key("Return")

    async def _name_file(self, target: Path) -> None:
        dialog = await shown(QFileDialog)
        line = dialog.findChild(QLineEdit)
        assert line is not None
        await click(line)
        await key("ctrl+a")
        await type_(str(target))
        await key("Return")


def names(view: object) -> list[str]:
    stack = view._stack  # type: ignore[attr-defined]
    return [stack.hot_spot_and_rect(spot)[0].name for spot in stack.list_hot_spots()]


def panel_tokens(panel: object) -> list[int]:
    return [part.tokens for part in panel._parts]  # type: ignore[attr-defined]


def _is_hidden(widget: QWidget) -> bool:
    return not isValid(widget) or not widget.isVisible()


async def shown(kind: type[D]) -> D:
    """The dialog of a kind, once it has the keyboard."""

    def found() -> list[D]:
        return [
            each
            for each in QApplication.topLevelWidgets()
            if isinstance(each, kind) and each.isActiveWindow()
        ]

    await until(lambda: bool(found()))
    return found()[0]


def gone(dialog: QDialog) -> bool:
    return not any(each is dialog and each.isVisible() for each in QApplication.topLevelWidgets())


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
    sys.exit(drive(Path(sys.argv[1]), lambda run: Walk(run).go()))
