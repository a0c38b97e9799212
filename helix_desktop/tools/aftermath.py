"""After a command: what it left behind that other programs run later is put back, and the user is asked about it, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from helix_desktop.engine.ports import Answer, Question
from helix_desktop.errors import HelixError
from helix_desktop.tools import difference, texts
from helix_desktop.tools.guard import Guard, Planted, State
from helix_desktop.tools.tool import Use
from helix_desktop.values import dataclass

APART = "runs_later"
_NAMED = 20


@dataclass(slots=True)
class Watched:
    """One command under the guard. `asking`: the question that is open; it ends when the turn is stopped. `lasting`: it
    runs in the background, and what was there before is held by the sandbox: a change of that is the user's own.
    """

    guard: Guard
    before: State
    lasting: bool = False
    asking: asyncio.Task[Any] | None = None
    settled: bool = False

    @classmethod
    async def begin(cls, guard: Guard, *, lasting: bool = False) -> Watched:
        return cls(guard, await asyncio.to_thread(guard.state), lasting)

    async def settle(self, use: Use, *, ask: bool) -> str:
        """Put back what the command changed, ask about it, and say what came of it; nothing where there is nothing."""
        self.settled = True
        planted = await asyncio.to_thread(self.guard.planted, self.before)
        planted = [one for one in planted if not self.lasting or one.before is None]
        if not planted:
            return ""
        failed = await asyncio.to_thread(self.guard.put_back, planted)
        done = [one for one in planted if one.path not in failed]
        allowed = ask and bool(done) and await self._allowed(use, done)
        if allowed:
            await asyncio.to_thread(self.guard.allow, done)
        self.before = await asyncio.to_thread(self.guard.state)
        return "".join(_told(use, done, allowed=allowed)) + _told_of_failed(use, failed)

    async def take_back(self) -> None:
        """Put back what the command changed where nobody is told any more."""
        if not self.settled:
            self.settled = True
            planted = await asyncio.to_thread(self.guard.planted, self.before)
            await asyncio.to_thread(self.guard.put_back, planted)

    def stop(self) -> None:
        """The turn ends: so does the question."""
        if self.asking is not None:
            self.asking.cancel()

    async def _allowed(self, use: Use, planted: Sequence[Planted]) -> bool:
        count = f"{len(planted)} files" if len(planted) > 1 else shown(use, planted[0].path)
        why = "other programs run these files outside the sandbox; the files stay unchanged until you answer"
        question = Question(
            use.call, f"Keep the command's changes to {count}?", _preview(use, planted), why, ("once",), apart=APART
        )
        self.asking = asyncio.ensure_future(use.context.ask(question))  # noqa: TID251 -- to end it with the turn
        try:
            answer: Answer = await asyncio.shield(self.asking)
        except (asyncio.CancelledError, HelixError):
            if not self.asking.done():
                self.asking.cancel()
                raise
            return False
        return answer.allowed


def shown(use: Use, path: str) -> str:
    try:
        return use.roots.shown(use.roots.place(path))
    except HelixError:
        return path


def _preview(use: Use, planted: Sequence[Planted]) -> str:
    return "\n".join(_difference(shown(use, one.path), one) for one in planted)


def _difference(name: str, one: Planted) -> str:
    if one.after.link:
        return f"{name} → {one.after.link}"
    if one.after.content is None:
        return f"{name}: cannot be shown"
    before = texts.decoded((one.before.content if one.before else None) or b"")
    return difference.unified(before, texts.decoded(one.after.content), name)


def _told(use: Use, planted: Sequence[Planted], *, allowed: bool) -> list[str]:
    if not planted:
        return []
    names = ", ".join(shown(use, one.path) for one in planted[:_NAMED])
    more = f" and {len(planted) - _NAMED} more" if len(planted) > _NAMED else ""
    if allowed:
        return [f"[The user was asked about {names}{more}, and keeps what the command did there.]\n"]
    way = "Change such files with write_file, where the user sees what is changed."
    return [f"[Put back as it was: {names}{more}. Other programs run what is in there later. {way}]\n"]


def _told_of_failed(use: Use, failed: Sequence[str]) -> str:
    if not failed:
        return ""
    names = ", ".join(shown(use, path) for path in failed[:_NAMED])
    return f"[Could not be put back: {names}. Other programs run what is in there. Tell the user.]\n"
