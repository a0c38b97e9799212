"""The first start and the tour by real mouse and keyboard; run by test_walk_tour.py under a screen.

`python -m tests.gui.walk_tour HOME [PICTURES]`: an empty home, and the real window on it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from PySide6.QtCore import QRect
from PySide6.QtWidgets import QApplication

from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.engine.facts import Fact, Folded, FoldKind, TurnEnded, Unfolded, UserSaid
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.gui.changes.undo_dialog import UndoChangesDialog
from helix_desktop.gui.frame.tour_card import HighlightRing, TourStepCard
from helix_desktop.gui.timeline.fold_now_dialog import FoldNowDialog
from tests.gui.hands import allow, click, key, press
from tests.soak.driven import HOME, drive, until


class Walk:
    """One person who starts the program for the first time."""

    def __init__(self, run: WindowProgram, home: Path, pictures: Path | None) -> None:
        self.window = run.window
        self.home = home
        self.pictures = pictures
        self.shots = 0

    def facts(self, kind: type[Fact]) -> list[Fact]:
        session = self.window.current_session
        facts = session.all_facts if isinstance(session, Session) else ()
        return [each.fact for each in facts if isinstance(each.fact, kind)]

    @property
    def card(self) -> TourStepCard:
        return next(card for card in self.window.findChildren(TourStepCard) if card.isVisible())

    @property
    def place(self) -> QRect:
        return next(
            ring for ring in self.window.findChildren(HighlightRing) if ring.isVisible()
        ).highlighted_area

    async def go(self) -> None:
        beside = set(self.home.iterdir())
        try:
            await self.walk()
        except BaseException:
            QApplication.screens()[0].grabWindow(0).save(
                str(Path(tempfile.gettempdir(), "helix-walk-failed.png"))
            )
            raise
        assert set(self.home.iterdir()) == beside, "the tour wrote beside its home"

    async def walk(self) -> None:
        window = self.window
        await until(lambda: window.showing.page == "welcome" and window.welcome.tour.isEnabled())
        await until(window.isActiveWindow)
        await self.shot("welcome")
        await click(window.welcome.tour)  # the first action
        await until(
            lambda: bool(window.findChildren(TourStepCard)) and window.chat.empty.first.isVisible()
        )
        assert window.notices.shown_text == ""
        assert window.chat.composer.text.toPlainText() == ""
        await self.shot("send")
        await self.press_there()  # the second: the answer comes
        await until(lambda: bool(self.facts(UserSaid)))
        await self.allow()
        await self.on("Undo a change")
        await self.undo_file()
        await self.on("See what was left out")
        await self.press_there()
        await until(lambda: window.showing.page == "timeline")
        await self.on("Shorten now")
        await self.fold()
        await self.on("Undo the shortening")
        await self.undo()
        await self.on("Connect a model")
        await self.press_there()
        await self.shot("connect")
        await key("Escape")
        await press(self.card, "Finish")
        await until(lambda: not any(card.isVisible() for card in window.findChildren(TourStepCard)))

    async def allow(self) -> None:
        """A change and two commands are asked for; the tour points at the question."""
        for asked in range(3):
            await until(lambda: self.window.chat.approvals.visible_card is not None)
            await until(lambda: not self.place.isEmpty())
            if asked == 0:
                await self.shot("question")
            await allow(self.window.chat.approvals)
        await until(lambda: bool(self.facts(TurnEnded)))
        await self.shot("answered")

    async def fold(self) -> None:
        await until(lambda: not self.place)  # The meter can do nothing before the second message.
        await press(self.card, "Send")
        await until(lambda: len(self.facts(TurnEnded)) == 2)
        await until(
            lambda: (
                self.window.current_session is not None
                and self.window.current_session.running is ConversationActivity.IDLE
            )
        )
        await self.press_there()
        await until(self.window.context_panel.isVisible)
        await self.shot("fold")
        await self.press_there()
        await until(
            lambda: any(isinstance(each, FoldNowDialog) for each in QApplication.topLevelWidgets())
        )
        dialog = next(
            each for each in QApplication.topLevelWidgets() if isinstance(each, FoldNowDialog)
        )
        await press(dialog, "Start")
        await until(
            lambda: any(
                isinstance(fold, Folded) and fold.kind is FoldKind.HANDOVER
                for fold in self.facts(Folded)
            ),
        )

    async def undo(self) -> None:
        await self.shot("undo")
        await self.press_there()
        await until(lambda: self.window.showing.page == "timeline")
        await self.press_there()
        await until(lambda: bool(self.facts(Unfolded)))

    async def undo_file(self) -> None:
        assert self.window.current_workbench is not None
        readme = self.window.current_workbench.main_folder / "README.md"
        assert "run.log" in readme.read_text("utf-8")
        await self.press_there()
        await until(lambda: self.window.showing.page == "changes")
        await until(self.window.pages.changes.body.undo_button.isVisible)
        await self.shot("change")
        await self.press_there()
        await until(
            lambda: any(
                isinstance(each, UndoChangesDialog) for each in QApplication.topLevelWidgets()
            )
        )
        dialog = next(
            each for each in QApplication.topLevelWidgets() if isinstance(each, UndoChangesDialog)
        )
        await press(dialog, "Undo")
        await until(lambda: "run.log" not in readme.read_text("utf-8"))

    async def on(self, title: str) -> None:
        """Next, once the step before has been done."""
        await until(lambda: self.card.next.property("look") == "primary")
        await press(self.card, "Next")
        await until(lambda: self.card.title.text() == title)
        assert self.window.notices.isHidden(), "a notice can cover what the step points at"

    async def press_there(self) -> None:
        """In the middle of what the tour points at, once it no longer moves; the card
        must not cover it.
        """
        await until(lambda: not self.place.isEmpty())
        before = QRect()
        while before != self.place:
            before = self.place
            await asyncio.sleep(0.3)
        assert not self.card.geometry().intersects(self.place), (
            f"{self.card.title.text()}: {self.place}"
        )
        await click(self.window, self.place)

    async def shot(self, name: str) -> None:
        self.shots += 1
        if self.pictures is not None:
            self.window.window().grab().save(str(self.pictures / f"{self.shots:02d}-{name}.png"))


if __name__ == "__main__":
    home = Path(sys.argv[1])
    pictures = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    (home / HOME).mkdir(exist_ok=True)
    sys.exit(drive(home, lambda run: Walk(run, home, pictures).go()))
