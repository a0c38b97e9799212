"""Which sessions of a workspace stay open, and that letting go of the others loses nothing."""

from __future__ import annotations

import asyncio
import gc
import warnings
import weakref
from pathlib import Path

import pytest

from helix_desktop.engine.facts import FoldKind, Text, TurnEnded
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import ConversationActivity, Event, FoldProgress
from helix_desktop.workbench import Workbench, open_sessions
from tests.workbench.conftest import Desks


@pytest.fixture
async def bench(desks: Desks, folder: Path) -> Workbench:
    made = await desks().create_workspace("Pairs", folder)
    await made.choose_model_for_role("demo/demo")
    return made


async def told(session: Session, words: str) -> str:
    """Says it, waits for the end, and lets the session go."""
    session.send_message((Text(words),))
    await asyncio.wait_for(session.wait_until_idle(), 60)
    assert isinstance(session.all_facts[-1].fact, TurnEnded)
    return session.id


async def stopped(session: Session) -> str:
    """Says two things and stops at the first: the second waits."""
    session.send_message((Text("read README.md"),))
    session.send_message((Text("and then this"),))
    while session.running is ConversationActivity.IDLE:
        await asyncio.sleep(0)
    session.stop_turn()
    await asyncio.wait_for(session.wait_until_idle(), 60)
    return session.id


async def others(bench: Workbench, many: int = open_sessions.MOST_IDLE_SESSIONS) -> None:
    for _ in range(many):
        await told(await bench.start_conversation(), "hello")


async def gone(session: weakref.ref[Session]) -> bool:
    """Whether it is freed, by counting references alone."""
    for _ in range(2_000):
        if session() is None:
            return True
        await asyncio.sleep(0.01)
    return False


async def test_what_is_at_rest_is_let_go_when_others_were_wanted_and_opens_again_as_it_was(
    bench: Workbench,
) -> None:
    with warnings.catch_warnings():
        # Sockets that an earlier test of this process has left are not this test's.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    gc.disable()
    try:
        first = await bench.start_conversation()
        name = await told(first, "read README.md")
        facts = list(first.all_facts)
        state = weakref.ref(first)
        first = None  # type: ignore[assignment]
        await others(bench, open_sessions.MOST_IDLE_SESSIONS - 1)
        assert state() is not None
        await others(bench, 1)
        assert await gone(state)
    finally:
        gc.enable()
    again = await bench.open_session(name)
    assert list(again.all_facts) == facts
    await told(again, "and README.md once more")
    assert again.all_facts[-1].seq > facts[-1].seq


async def test_what_somebody_holds_is_the_one_that_is_found(bench: Workbench) -> None:
    shown = await bench.start_conversation()
    await others(bench)
    assert await bench.open_session(shown.id) is shown


async def test_a_message_that_waits_is_not_lost(bench: Workbench) -> None:
    """Queued while a turn ran that was then stopped: the queue waits for the user."""
    session = await bench.start_conversation()
    name = await stopped(session)
    del session
    await others(bench)
    gc.collect()
    assert len((await bench.open_session(name)).queue) == 1


async def test_one_that_was_let_go_but_is_held_stays_once_something_waits_in_it(
    bench: Workbench,
) -> None:
    session = await bench.start_conversation()
    await others(bench)  # it is only held here now
    name = await stopped(session)
    del session
    await others(bench)
    gc.collect()
    assert len((await bench.open_session(name)).queue) == 1


async def test_a_fold_that_is_being_made_keeps_its_session(bench: Workbench) -> None:
    session = await bench.start_conversation()
    for _ in range(2):
        await told(session, "Count the pairs once more. " * 300)
    folds: list[Event] = []
    bench.subscribe_to_events(
        lambda event: folds.append(event) if isinstance(event, FoldProgress) else None
    )
    making = asyncio.ensure_future(session.fold_on_request(FoldKind.HANDOVER))  # noqa: TID251
    while not any(isinstance(event, FoldProgress) for event in folds):
        await asyncio.sleep(0)
    assert not session.is_idle
    await making
    assert session.is_idle


async def test_the_workbench_closes_what_is_held_elsewhere_as_well(bench: Workbench) -> None:
    session = await bench.start_conversation()
    await others(bench)
    session.send_message((Text("read README.md"),))
    await asyncio.sleep(0)
    await bench.aclose()
    assert session.is_idle


async def test_what_a_conversation_knows_of_files_outlives_its_session(
    bench: Workbench, folder: Path
) -> None:
    session = await bench.start_conversation()
    name = await told(session, "read README.md")
    seen = bench.kit.resources.files_seen[name]
    del session
    await others(bench)
    gc.collect()
    await told(await bench.open_session(name), "read README.md")
    assert bench.kit.resources.files_seen[name] is seen
    assert seen.digests_seen_by_agent
