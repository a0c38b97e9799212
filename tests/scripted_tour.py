"""A real session of the built-in scripted model on the tour's folder, for tests that
need a conversation with everything in it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from helix_desktop import program_folders
from helix_desktop.engine.facts import Folded, FoldKind, Text, TurnEnd, TurnEnded
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, QuestionAsked
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from helix_desktop.workbench.tour_folder import MODEL, create_tour_folder


class ClockWithoutPauses:
    """The real clock without the demonstration's pauses for human readers."""

    def current_time(self) -> float:
        return time.time()

    def steady_time(self) -> float:
        return time.monotonic()

    async def sleep_seconds(self, seconds: float) -> None:
        await asyncio.sleep(0)


async def run_tour_session(bench: Workbench) -> Session:
    """A tour of the tools, more large outputs, a handover, its undo and redo, and a
    recall behind it.

    What is allowed for it, and that its questions are answered, ends with it.
    """
    mode = bench.permission_mode
    await bench.choose_model_for_role(MODEL)
    await bench.choose_permission_mode("allow all")
    session = await bench.start_conversation("Tour")
    leave = session.subscribe_to_events(lambda event: _allow(session, event))
    try:
        for words in (
            "Never change a file outside of src/. Show me what you can do in this folder.",
            "Read run.log",
            "Large output",
            "Read samples.csv",
            "Search ERROR",
        ):
            await _turn(session, words)
        await session.fold_on_request(FoldKind.HANDOVER, wish="keep the error in run.log")
        handover = next(fold for fold in folds_of(session) if fold.kind is FoldKind.HANDOVER)
        await session.folding.unfold(handover.fold)
        await session.folding.refold(handover.fold)
        behind = next(fold for fold in folds_of(session) if fold.kind is FoldKind.EXCERPT)
        await _turn(session, f"Recall {behind.entries[0].hex}")
        await _turn(session, "Find adapter not trimmed")
    finally:
        leave()
        await bench.choose_permission_mode(mode)
    return session


async def _turn(session: Session, words: str) -> None:
    session.send_message((Text(words),))
    await session.wait_until_idle()
    end = session.all_facts[-1].fact
    assert isinstance(end, TurnEnded)
    assert end.reason is TurnEnd.DONE, end.why


def _allow(session: Session, event: Event) -> None:
    """Questions are answered yes: the folder is the tour's own."""
    if isinstance(event, QuestionAsked):
        session.answer_question(event.number, PermissionAnswer(allowed=True))


def folds_of(session: Session) -> Sequence[Folded]:
    return [recorded.fact for recorded in session.all_facts if isinstance(recorded.fact, Folded)]


async def main(home: Path, folder: Path) -> None:
    """For packaging/pictures.py: the session in a home, and its id on standard output."""
    where = program_folders.find_program_folders(home)
    create_tour_folder(folder)
    desk = Workbenches(where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses())
    try:
        session = await run_tour_session(await desk.create_workspace("Tour", folder))
        sys.stdout.write(session.id)
    finally:
        await desk.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
