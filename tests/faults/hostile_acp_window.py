"""The lying agents of hostile_acp in conversations of the real window, answered on its real card.

    python -m tests.faults.hostile_acp_window [--conversations 60] [--seed 1] [--first 1]

Needs a display. A conversation is opened in the sidebar, its message is typed, the card is read as
its widgets hold it, scrolled to its end and pressed; what hangs is stopped by the window's own
action. Only what stood on a card that was allowed may run, no card holds a sign that cannot be
seen, the window's thread works for at most a second at once, and its memory stays bounded.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

from PySide6 import QtGui
from PySide6.QtCore import Qt
from PySide6.QtGui import QTextDocument
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QPlainTextEdit, QPushButton, QTextEdit

from helix_desktop import program_folders
from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.engine.session import Session
from helix_desktop.gui.chat.permission_card import PermissionQuestionCard
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from tests.faults.hostile_acp import (
    CALM_SECONDS,
    CONTROLS,
    FREEZE_SECONDS,
    MARK,
    STOP_SECONDS,
    ErrorKeeper,
    LoopWatcher,
    Trial,
    check_recorded,
    last_words,
)
from tests.soak.driven import drive, opened, until

TURN_SECONDS = 20.0
MOST_MEGABYTES = 1_500
SCROLLS = 400  # A longer preview is not read to its end, and refused.
WORKSPACE = "w"


class PersonAtWindow:
    def __init__(self, run: WindowProgram, trial: Trial) -> None:
        self.run = run
        self.window = run.window
        self.trial = trial
        self.name = ""
        self.says_yes = False
        self.seen_cards: set[int] = set()

    @property
    def bench(self) -> Workbench:
        assert isinstance(self.window.current_workbench, Workbench)
        return self.window.current_workbench

    async def converse(self, number: int) -> None:
        self.name = f"conversation {number}"
        self.says_yes = random.Random(f"{self.trial.seed} {number}").random() < 0.6
        started = await self.bench.start_conversation(acp_agent="Liar")
        self.window.sidebar.list.opened.emit(started.id)
        await until(lambda: getattr(self.window.current_session, "id", "") == started.id)
        session = self.window.current_session
        assert isinstance(session, Session)
        await self.take_turn(session, f"conversation {number} message 0", TURN_SECONDS)
        agent = await self.bench.acp.open_conversation(session.conversation)
        await self.take_turn(session, "calm", CALM_SECONDS)
        if not last_words(session).endswith("I am calm."):
            self.trial.counts["agents that had to be ended"] += 1
            await agent.end_agent()
            await self.take_turn(session, "calm", CALM_SECONDS)
        if not last_words(session).endswith("I am calm."):
            self.trial.fail(self.name, f"the calm turn said {last_words(session)[-80:]!r}")
        await agent.end_agent()
        check_recorded(self.trial, session)

    async def take_turn(self, session: Session, words: str, seconds: float) -> None:
        self.window.switch_to_page("chat")
        box = self.window.chat.composer.text
        box.setPlainText(words)
        QTest.keyClick(box, Qt.Key.Key_Return)
        await until(lambda: not session.is_idle or session.turns.last_end is not None)
        end = time.monotonic() + seconds
        while not session.is_idle and time.monotonic() < end:
            card = self.window.chat.approvals.visible_card
            if card is not None:
                await self.answer(card)
            await asyncio.sleep(0.05)
        if session.is_idle:
            return
        self.trial.counts["turns stopped by the user"] += 1
        session.stop_turn()
        try:
            await until(lambda: session.is_idle, STOP_SECONDS)
        except TimeoutError:
            self.trial.fail(self.name, f"the turn could not be stopped in {STOP_SECONDS:.0f} s")

    async def answer(self, card: PermissionQuestionCard) -> None:
        """Reads the card, scrolls to its end, and presses a button."""
        question = card.question
        shown = read_shown_text(card)
        self.trial.counts["cards"] += 1
        raw = CONTROLS.search(shown)
        if raw:
            around = shown[max(0, raw.start() - 60) : raw.end() + 60]
            self.trial.fail(self.name, f"a sign nobody sees is on the card: {around!r}")
        allows = self.says_yes and not question.form and question.apart != "opened"
        if not allows or str(self.trial.outside) in shown:
            card.refuse_permission()
            return
        button = card._allowing[0]
        preview = card._preview
        if preview is not None:
            bar = preview.verticalScrollBar()
            for _ in range(SCROLLS):
                if button.isEnabled():
                    break
                bar.setValue(bar.value() + max(bar.pageStep(), 1))
                await asyncio.sleep(0.01)
        if self.window.chat.approvals.visible_card is not card:
            return
        if not button.isEnabled():
            self.trial.counts["cards too long to read"] += 1
            card.refuse_permission()
            return
        self.trial.allowed.update(MARK.findall(shown))
        self.trial.counts["cards allowed"] += 1
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)


def read_shown_text(card: PermissionQuestionCard) -> str:
    """The texts that the card's visible widgets hold, as they are painted."""
    texts: list[str] = []
    for label in card.findChildren(QLabel):
        text = label.text()
        if QtGui.Qt.mightBeRichText(text):
            document = QTextDocument()
            document.setHtml(text)
            text = document.toPlainText()
        texts.append(text)
    editors: list[QPlainTextEdit | QTextEdit] = [*card.findChildren(QPlainTextEdit)]
    editors += card.findChildren(QTextEdit)
    for editor in editors:
        texts.append(editor.toPlainText())
    texts += [button.text() for button in card.findChildren(QPushButton)]
    return "\n".join(texts)


def resident_megabytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


async def story(run: WindowProgram, trial: Trial, first: int, amount: int) -> None:
    errors = ErrorKeeper()
    logging.getLogger().addHandler(errors)
    watcher = LoopWatcher()
    watching = asyncio.ensure_future(watcher.watch())  # noqa: TID251
    await opened(run, WORKSPACE)
    person = PersonAtWindow(run, trial)
    begun = time.monotonic()
    for number in range(first, first + amount):
        watcher.reset()
        try:
            await person.converse(number)
        except TimeoutError as error:
            trial.fail(person.name, f"hung: {error!r}")
        longest, of_processor = watcher.reset()
        trial.slowest = max(trial.slowest, longest)
        trial.slowest_of_processor = max(trial.slowest_of_processor, of_processor)
        if of_processor > FREEZE_SECONDS:
            held = f"{longest:.1f} s ({of_processor:.1f} s of processor)"
            trial.fail(person.name, f"the window was held for {held} by {watcher.held_by}")
        await asyncio.to_thread(trial.check, person.name)
        for kept in errors.kept:
            trial.fail(person.name, f"logged: {kept}")
        errors.kept.clear()
        trial.counts["conversations"] += 1
        memory = resident_megabytes()
        trial.counts["most MB"] = max(trial.counts["most MB"], memory)
        if memory > MOST_MEGABYTES:
            trial.fail(person.name, f"the window has {memory} MB")
        print(
            f"{person.name}: {time.monotonic() - begun:.0f} s, {len(trial.failures)} failures, {memory} MB, "
            f"held {longest:.1f} s ({of_processor:.2f} of processor)",
            flush=True,
        )
    watching.cancel()


async def prepare_workspace(trial: Trial) -> None:
    places = program_folders.find_program_folders(trial.home)
    desk = Workbenches(places, SecretStorage(places.key_file, environ={}))
    await desk.create_workspace(WORKSPACE, trial.inside)
    await desk.aclose()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conversations", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="the number of the first one")
    parser.add_argument("--only", default="", help="one attack, by the name of its function")
    arguments = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        trial = Trial(Path(folder), arguments.seed, arguments.only)
        trial.prepare()
        asyncio.run(prepare_workspace(trial))
        code = drive(
            trial.place,
            lambda run: story(run, trial, arguments.first, arguments.conversations),
        )
    counts = ", ".join(f"{count} {key}" for key, count in sorted(trial.counts.items()))
    print(
        f"hostile_acp_window: {counts}; the window was held for at most {trial.slowest:.2f} s "
        f"({trial.slowest_of_processor:.2f} s of processor); {len(trial.failures)} failures; "
        f"{time.monotonic() - begun:.0f} s, seed {arguments.seed}, from number {arguments.first}"
    )
    return code or int(bool(trial.failures))


if __name__ == "__main__":
    sys.exit(main())
