"""A command of the agent breaks a project; the user sees it, takes two hunks back,
comments on a line, and commits the rest.

By real mouse and keyboard; run by test_walk_changes.py under a screen. `python -m
tests.gui.walk_changes HOME [PICTURES]`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from PySide6.QtWidgets import QApplication

from helix_desktop import program_folders
from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.engine.facts import UserSaid
from helix_desktop.gui.changes.commit_button import CommitDialog
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from tests.gui.hands import allow, click, key, type_, xdotool
from tests.gui.walk_context import shown
from tests.scripted_tour import ClockWithoutPauses
from tests.soak.driven import HOME, drive, until

COMMAND = r"sed -i 's/value_\(5\|40\|90\) =/wrong_\1 =/' src/calc.py && rm src/gone.py && echo new > src/new.txt"
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0")


def prepare(home: Path) -> None:
    folder = home / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "node_modules").mkdir()
    (folder / "src" / "calc.py").write_text(whole())
    (folder / "src" / "gone.py").write_text("GONE = True\n")
    for line in (
        ["init", "-q", "."],
        ["config", "user.name", "a"],
        ["config", "user.email", "a@b"],
        ["add", "src"],
    ):
        subprocess.run([*GIT, *line], cwd=folder, check=True)
    subprocess.run([*GIT, "commit", "-qm", "first"], cwd=folder, check=True)

    async def make() -> None:
        where = program_folders.find_program_folders(home / HOME)
        desk = Workbenches(
            where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses()
        )
        bench = await desk.create_workspace("walk", folder)
        await bench.choose_model_for_role("demo/demo")
        await desk.aclose()

    asyncio.run(make())


def whole() -> str:
    return "".join(f"value_{number} = {number}\n" for number in range(120))


class Walk:
    def __init__(self, run: WindowProgram, home: Path, pictures: Path | None) -> None:
        self.window = run.window
        self.folder = home / "project"
        self._pictures = pictures

    async def go(self) -> None:
        await until(lambda: self.window.current_workbench is not None)
        await until(self.window.isActiveWindow)
        await self._break()
        await self._take_back()
        await self._comment()
        await self._commit()

    async def _break(self) -> None:
        """The agent asks for a command, and the user allows it."""
        chat = self.window.chat
        await click(chat.composer.text)
        await type_("run " + COMMAND)
        await key("Return")
        await until(lambda: chat.approvals.visible_card is not None)
        await self._shot("1-asked")
        await allow(chat.approvals)
        await until(lambda: "wrong_40" in (self.folder / "src" / "calc.py").read_text())
        await until(lambda: not self._running())
        await self._shot("2-chat")

    async def _take_back(self) -> None:
        page = self.window.pages.changes
        await key("alt+2")
        await until(
            lambda: (
                page.files.current_changes_row is not None and len(page.body.view._sheet.rows) > 0
            )
        )
        await self._shot("3-page")
        for wrong in ("wrong_5 ", "wrong_40 "):
            await until(
                lambda: bool(page.body.view._buttons) and page.body.view._buttons[0].isVisible()
            )
            # Another part that comes to where Undo was pressed waits until the mouse has moved.
            await xdotool("mousemove", "5", "5")
            await until(lambda: not page.body.view._watching_mouse.isActive())
            await click(page.body.view._buttons[0].back)
            await until(
                lambda wrong=wrong: wrong not in (self.folder / "src" / "calc.py").read_text()  # type: ignore[misc]
            )
            await until(lambda wrong=wrong: bool(self._added()) and wrong not in self._added())  # type: ignore[misc]
        assert (self.folder / "src" / "calc.py").read_text() == whole().replace(
            "value_90", "wrong_90"
        )
        await self._shot("4-two-hunks-back")

    def _added(self) -> str:
        """The lines that are shown on the right."""
        return "\n".join(
            row.right.text
            for row in self.window.pages.changes.body.view._sheet.rows
            if row.right is not None
        )

    async def _comment(self) -> None:
        view = self.window.pages.changes.body.view
        number = next(
            at
            for at, row in enumerate(view._sheet.rows)
            if row.right is not None and row.right.mark == "+"
        )
        top = view._heights.tops[number] - view.verticalScrollBar().value()
        place = view.viewport().rect()
        place.setTop(round(top))
        place.setHeight(14)
        await click(view.viewport(), place)
        await until(view._comment.isVisible)
        await type_("Why another name?")
        await self._shot("5-comment")
        await key("ctrl+Return")
        await until(lambda: any("Why another name?" in words for words in self._said()))
        await until(lambda: not self._running())

    async def _commit(self) -> None:
        page = self.window.pages.changes
        await key("alt+2")
        await until(page.isVisible)
        await click(page.commit_button)
        dialog = await shown(CommitDialog)
        await click(dialog.message)
        await type_("Rename one value")
        await self._shot("6-commit")
        await click(dialog.commit_button)
        await until(lambda: "Rename one value" in self._git("log", "--format=%s"))
        await self._shot("7-committed")
        assert self._git("show", "--format=", "--name-status", "HEAD").split() == [
            "M", "src/calc.py", "D", "src/gone.py", "A", "src/new.txt",
        ]  # fmt: skip
        assert self._git("status", "--porcelain") == ""

    def _git(self, *words: str) -> str:
        return subprocess.run(
            [*GIT, *words], cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout

    def _running(self) -> bool:
        session = self.window.current_session
        return session is not None and session.running.value != "idle"

    def _said(self) -> list[str]:
        assert isinstance(self.window.current_workbench, Workbench)
        assert self.window.current_session is not None
        facts = (each.fact for each in self.window.current_session.conversation.state.facts)
        return [
            str(getattr(part, "text", ""))
            for fact in facts
            if isinstance(fact, UserSaid)
            for part in fact.parts
        ]

    async def _shot(self, name: str) -> None:
        if self._pictures is not None:
            await asyncio.sleep(0.4)
            screen = QApplication.primaryScreen()
            screen.grabWindow(0).save(str(self._pictures / f"{name}.png"))


if __name__ == "__main__":
    home = Path(sys.argv[1])
    prepare(home)
    pictures = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    sys.exit(drive(home, lambda run: Walk(run, home, pictures).go()))
