"""A walk through the chat by real mouse and keyboard: the bar of a message, other
answers, a group of calls, a failure's card; run by test_walk_chat.py under a screen.

`python -m tests.gui.walk_chat HOME [PICTURES]`: a workspace whose model is the built-in
script, and the real window on it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from PySide6.QtCore import QRect, QRectF
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from helix_desktop import program_folders
from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.engine.facts import Rewound, TurnEnded
from helix_desktop.engine.session import Session
from helix_desktop.gui.transcript.failure_cards import FailureCardBox
from helix_desktop.gui.transcript.message_bar import BAR
from helix_desktop.gui.transcript.transcript_item import TranscriptItemKind
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.gui.hands import REST, click, key, type_, xdotool
from tests.soak.driven import HOME, drive, until

DEAD = "dead/model"


def prepare(home: Path) -> None:
    async def make() -> None:
        folder = home / "project"
        folder.mkdir(parents=True)
        for name in ("one.md", "two.md", "three.md"):
            (folder / name).write_text(f"# {name}\n\nNothing much.\n")
        where = program_folders.find_program_folders(home / HOME)
        desk = Workbenches(where, SecretStorage(where.key_file, environ={}))
        desk.configured.save_provider(ProviderConfig("dead", base_url="http://127.0.0.1:9/v1"))
        bench = await desk.create_workspace("walk", folder)
        await bench.choose_model_for_role("demo/demo")
        await bench.choose_permission_mode("allow all")
        await desk.aclose()

    asyncio.run(make())


class Walk:
    """One person at one window."""

    def __init__(self, run: WindowProgram, pictures: Path | None) -> None:
        self.window = run.window
        self.pictures = pictures

    @property
    def session(self) -> Session:
        assert isinstance(self.window.current_session, Session)
        return self.window.current_session

    def ended(self) -> int:
        session = self.window.current_session
        return (
            sum(isinstance(each.fact, TurnEnded) for each in session.all_facts)
            if isinstance(session, Session)
            else 0
        )

    def shown(self, kind: TranscriptItemKind) -> list[int]:
        items = self.window.chat.transcript.view.items
        return [
            index
            for index, item in enumerate(items.all)
            if item.kind is kind and not items.is_item_hidden(index)
        ]

    async def go(self) -> None:
        try:
            await until(
                lambda: self.window.current_workbench is not None and self.window.isActiveWindow()
            )
            for part in (self.answers, self.group, self.failure):
                await part()
        except BaseException:
            QApplication.screens()[0].grabWindow(0).save(
                str(Path(tempfile.gettempdir(), "helix-walk-failed.png"))
            )
            raise

    async def say(self, words: str) -> None:
        await click(self.window.chat.composer.text)
        await type_(words)
        before = self.ended()
        await key("Return")
        await until(lambda: self.ended() > before)

    async def answers(self) -> None:
        """Copied, asked for again, gone back to, by the mouse; and by the keyboard."""
        view = self.window.chat.transcript.view
        await self.say("hello")
        await until(lambda: bool(self.shown(TranscriptItemKind.REPLY)))
        await self.on_bar(self.shown(TranscriptItemKind.REPLY)[-1], "Copy message")
        await until(
            lambda: "demonstration, not a language model" in QGuiApplication.clipboard().text()
        )
        await self.on_bar(self.shown(TranscriptItemKind.REPLY)[-1], "Regenerate")
        await until(lambda: self.ended() == 2)
        assert self.shown(TranscriptItemKind.REWOUND) == []
        await until(lambda: bool(self.shown(TranscriptItemKind.REPLY)))
        await until(
            lambda: len(view.items.answer_choice_of(len(view.items.all) - 1).answer_ends) == 2
        )
        await self.shot("answers")
        await self.on_bar(self.shown(TranscriptItemKind.REPLY)[-1], "Previous answer")
        await until(
            lambda: sum(isinstance(each.fact, Rewound) for each in self.session.all_facts) == 2
        )
        await until(
            lambda: (
                view.items.answer_choice_of(self.shown(TranscriptItemKind.REPLY)[-1]).number == 1
            )
        )
        view.setFocus()
        for _ in range(20):
            await key("Tab")
            if (
                view._spot is not None
                and view._spot[1].box == BAR
                and view.items.all[view._spot[0]].kind is TranscriptItemKind.REPLY
            ):
                break
        await key("Return")  # the first that can be pressed: the answer after this one
        await until(
            lambda: (
                view.items.answer_choice_of(self.shown(TranscriptItemKind.REPLY)[-1]).number == 2
            )
        )

    async def group(self) -> None:
        """Three files are read at once: one line, which a click opens and closes."""
        view = self.window.chat.transcript.view
        await self.say("tour")
        await until(
            lambda: any(
                view.items.groups.group_headed_by(index) for index in range(len(view.items.all))
            )
        )
        first = next(
            index
            for index in range(len(view.items.all))
            if view.items.groups.group_headed_by(index) is not None
        )
        before = len(self.shown(TranscriptItemKind.CALL))
        await self.press(first, "")
        await until(lambda: len(self.shown(TranscriptItemKind.CALL)) == before + 2)
        await self.shot("group")
        await self.press(first, "")
        await until(lambda: len(self.shown(TranscriptItemKind.CALL)) == before)

    async def failure(self) -> None:
        """A server that is not there: a card with one button, which tries again; the
        list says failed.
        """
        view = self.window.chat.transcript.view
        bench = self.window.current_workbench
        session = self.window.current_session
        assert bench is not None
        assert session is not None
        await bench.save_conversation_model(session.id, DEAD)
        await self.say("are you there?")
        await until(lambda: bool(self.shown(TranscriptItemKind.ERROR)))
        card = self.shown(TranscriptItemKind.ERROR)[-1]
        box = view.column.lay_out_fully(card).boxes[0]
        assert isinstance(box, FailureCardBox)
        assert "connection" in box.text
        await self.shot("failure")
        before = self.ended()
        await self.press(card, "Try again")
        await until(lambda: self.ended() == before + 1)
        await until(lambda: view.column.lay_out_fully(card).boxes[0].hot_spots == [])

    async def on_bar(self, index: int, name: str) -> None:
        """Point at a message, then press a button of its bar."""
        view = self.window.chat.transcript.view
        inner = QRectF(40, 4, 10, 10)
        at = view.viewport().mapToGlobal((await self.at_rest(index, inner)).center())
        await xdotool("mousemove", str(at.x()), str(at.y()))
        await until(lambda: view._over == index)
        bar = view.hover_bar_of(index)
        assert bar is not None
        hot = next(hot for hot in bar.hot_spots if hot.name == name)
        await click(
            view.viewport(),
            hot.place.translated(view.hover_bar_rect(index, bar).topLeft()).toRect(),
        )

    async def press(self, index: int, name: str) -> None:
        """A place of an item; without a name its first."""
        view = self.window.chat.transcript.view

        def places() -> list[QRectF]:
            laid = view.column.lay_out_fully(index)
            spots = [laid.hot_spot_and_rect(spot) for spot in laid.list_hot_spots()]
            return [place for hot, place in spots if not name or hot.name == name]

        await until(lambda: bool(places()))  # A failure's buttons come once its turn is over.
        await click(view.viewport(), await self.at_rest(index, places()[0]))

    async def at_rest(self, index: int, place: QRectF) -> QRect:
        """Where a place of an item is in the view, once the view no longer moves."""
        view = self.window.chat.transcript.view
        view.scroll_to_item(index)
        seen: list[QRect] = []

        def still() -> bool:
            seen.append(view.rect_in_viewport(index, place).toRect())
            return len(seen) > REST and all(each == seen[-1] for each in seen[-REST:])

        await until(still)
        return seen[-1]

    async def shot(self, name: str) -> None:
        if self.pictures is not None:
            self.window.window().grab().save(str(self.pictures / f"{name}.png"))


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
    pictures = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    sys.exit(drive(Path(sys.argv[1]), lambda run: Walk(run, pictures).go()))
