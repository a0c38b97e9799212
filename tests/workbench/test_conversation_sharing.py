"""Two homes that share a workspace: real stores and sessions, the scripted model, an
engine in memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import Text, TurnEnd, TurnEnded, UserSaid
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import ConversationActivity, Event, FactAppended
from helix_desktop.errors import ActionRefused, SharedStoreUnreachable
from helix_desktop.secrets import SecretStorage
from helix_desktop.store.shared.async_rows import AsyncRowStore
from helix_desktop.store.shared.conversation_heads import ConversationHead, HeadMark, HeadUpdate
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.row_store import RowStore
from helix_desktop.store.shared.shared_store_link import SHARED, SharedStoreConnection
from helix_desktop.workbench import Workbench, Workbenches, conversation_sharing
from tests.scripted_tour import ClockWithoutPauses
from tests.store.shared.memory_rows import MemoryHeads, MemoryRowStore, MemoryServer

KEY = bytes(range(32))


@dataclass
class Home:
    """A machine with its desk. `engine.away` cuts it off."""

    bench: Workbench
    engine: MemoryRowStore
    remote: AsyncRowStore


@dataclass
class Cut:
    """Heads that cannot be reached while their machine's engine cannot."""

    engine: MemoryRowStore
    heads: MemoryHeads

    def fetch_changed_heads(self, since: int) -> tuple[Sequence[ConversationHead], HeadMark]:
        self.engine.describe_server()
        return self.heads.fetch_changed_heads(since)

    def update_heads(
        self, moves: Sequence[HeadUpdate]
    ) -> list[tuple[bool, ConversationHead | None]]:
        self.engine.describe_server()
        return self.heads.update_heads(moves)

    def update_heads_with_rows(
        self, engine: RowStore, rows: Mapping[bytes, bytes], moves: Sequence[HeadUpdate]
    ) -> list[tuple[bool, ConversationHead | None]]:
        return self.heads.update_heads_with_rows(engine, rows, moves)

    def fetch_heads(self, names: Collection[bytes]) -> Sequence[ConversationHead]:
        self.engine.describe_server()
        return self.heads.fetch_heads(names)


@pytest.fixture
async def homes(tmp_path: Path, folder: Path) -> AsyncIterator[tuple[Home, Home]]:
    """A desktop and a laptop."""
    shelf = MemoryServer()
    memory = MemoryHeads(time.monotonic)
    desks: list[Workbenches] = []
    made: list[Home] = []
    for name in ("desktop", "laptop"):
        where = program_folders.find_program_folders(tmp_path / name)
        desk = Workbenches(
            where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses()
        )
        desks.append(desk)
        bench = await desk.create_workspace("Pairs", folder)
        await bench.choose_model_for_role("demo/demo")
        engine = MemoryRowStore(shelf, b"space")
        heads = Cut(engine, memory)
        remote = AsyncRowStore(engine)
        connected = SharedStoreConnection(remote, RowCipher(KEY))
        bench.sharing.start_conversation_sync(
            partial(bench.workspace.build_conversation_sync, connected, heads, name)
        )
        made.append(Home(bench, engine, remote))
    yield made[0], made[1]
    for desk, home in zip(desks, made, strict=True):
        await desk.aclose()
        home.engine.is_away = False
        await home.remote.aclose()


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


async def told(session: Session, words: str) -> None:
    session.send_message((Text(words),))
    await asyncio.wait_for(session.wait_until_idle(), 60)
    end = session.all_facts[-1].fact
    assert isinstance(end, TurnEnded)
    assert end.reason is TurnEnd.DONE


def facts(home: Home, session: Session) -> list[object]:
    found = home.bench.sessions.find_open_session(session.id)
    return [] if found is None else [(one.seq, one.time, one.fact) for one in found.all_facts]


async def arrived(home: Home, session: Session) -> Session:
    """The conversation as the other machine has it, when it has all of it."""
    await until(lambda: home.bench.conversation_row(session.id))
    there = await home.bench.open_session(session.id)
    await until(lambda: len(there.all_facts) == len(session.all_facts))
    return there


async def test_a_conversation_is_read_live_on_the_other_machine(homes: tuple[Home, Home]) -> None:
    here, there = homes
    session = await here.bench.start_conversation()
    await told(session, "read README.md")
    seen = await arrived(there, session)
    row = there.bench.conversation_row(session.id)
    assert row is not None
    assert (row.title, row.machine) == ("read README.md", "desktop")
    await there.bench.predict_next_request(session.id)
    row = there.bench.conversation_row(session.id)
    assert row is not None
    assert row.parts == seen.context.next_request_meter().parts
    heard: list[Event] = []
    seen.subscribe_to_events(heard.append)
    await told(session, "read src/pairs.py")
    await until(lambda: facts(here, session) == facts(there, session))
    assert [event.recorded.seq for event in heard if isinstance(event, FactAppended)]
    assert seen.conversation.current_view() == session.conversation.current_view()
    own = here.bench.conversation_row(session.id)
    assert own is not None
    assert own.machine == ""


async def test_one_machine_writes_until_the_user_continues_on_the_other(
    homes: tuple[Home, Home],
) -> None:
    here, there = homes
    session = await here.bench.start_conversation()
    await told(session, "read README.md")
    seen = await arrived(there, session)
    assert there.bench.sharing.other_machine_writing(session.id) == "desktop"
    with pytest.raises(ActionRefused, match="desktop is working in this conversation"):
        await seen.set_title("Mine")
    seen.send_message((Text("read src/pairs.py"),))
    await until(lambda: seen.running is ConversationActivity.FAILED)
    assert len(seen.queue) == 1  # what was written waits
    await there.bench.sharing.take_over_conversation(session.id)
    assert there.bench.sharing.other_machine_writing(session.id) == ""
    seen.resume_turn()
    await asyncio.wait_for(seen.wait_until_idle(), 60)
    await until(lambda: here.bench.sharing.other_machine_writing(session.id) == "laptop")
    await until(lambda: facts(here, session) == facts(there, session))
    assert (
        here.bench.sharing.synced_sessions.branch_by_conversation
        == there.bench.sharing.synced_sessions.branch_by_conversation
        == {}
    )
    assert session.conversation.current_view() == seen.conversation.current_view()


async def test_what_two_machines_wrote_apart_becomes_two_conversations(
    homes: tuple[Home, Home],
) -> None:
    here, there = homes
    session = await here.bench.start_conversation()
    await told(session, "read README.md")
    seen = await arrived(there, session)
    here.engine.is_away = True
    await until(lambda: here.bench.sharing.sharing_state.state == "away")
    await told(session, "zebra: read src/pairs.py")
    await there.bench.sharing.take_over_conversation(session.id)
    await told(seen, "what is in README.md?")
    await until(lambda: there.bench.sharing.sharing_state.state == "in step")
    here.engine.is_away = False
    await until(lambda: here.bench.sharing.synced_sessions.branch_by_conversation)
    branch = here.bench.sharing.synced_sessions.branch_by_conversation[session.id]
    await until(lambda: there.bench.conversation_row(branch))
    row = there.bench.conversation_row(branch)
    assert row is not None
    assert row.title == "read README.md (desktop)"
    for home in homes:
        apart = await home.bench.open_session(branch)
        assert "zebra: read src/pairs.py" in words(apart)
        together = await home.bench.open_session(session.id)
        await until(partial(said, together, "what is in README.md?"))
        assert "zebra: read src/pairs.py" not in words(together)
    assert [
        one.conversation.current_view() for one in (session, await here.bench.open_session(branch))
    ] == [one.conversation.current_view() for one in (seen, await there.bench.open_session(branch))]
    index = here.bench.workspace.index
    await until(lambda: not index._rebuilding)  # it is made anew after the list knows the branch
    await index.wait_until_indexed()
    found = await here.bench.workspace.index.search_index("zebra")
    assert {hit.conversation for hit in found if hit.conversation} == {branch}


def said(session: Session, text: str) -> bool:
    return text in words(session)


def words(session: Session) -> set[str]:
    messages = [one.fact for one in session.all_facts if isinstance(one.fact, UserSaid)]
    return {part.text for fact in messages for part in fact.parts if isinstance(part, Text)}


async def test_work_goes_on_while_the_engine_is_away(homes: tuple[Home, Home]) -> None:
    here, there = homes
    here.engine.is_away = True
    await until(lambda: here.bench.sharing.sharing_state.state == "away")
    session = await here.bench.start_conversation()
    await told(session, "read README.md")
    await until(lambda: here.bench.sharing.sharing_state.waiting >= len(session.all_facts))
    assert here.bench.sharing.sharing_state.since <= time.time()
    with pytest.raises(SharedStoreUnreachable):
        await here.bench.sharing.take_over_conversation(session.id)
    here.engine.is_away = False
    here.bench.sharing._has_news_to_send.set()
    assert (
        await arrived(there, session)
    ).conversation.current_view() == session.conversation.current_view()
    await until(lambda: here.bench.sharing.sharing_state.state == "in step")


async def test_a_machine_that_closes_the_workspace_lets_go_of_the_conversation(
    homes: tuple[Home, Home],
) -> None:
    here, there = homes
    session = await here.bench.start_conversation()
    await told(session, "read README.md")
    seen = await arrived(there, session)
    await here.bench.sharing.stop_conversation_sync()
    await until(lambda: there.bench.sharing.other_machine_writing(session.id) == "")
    await told(seen, "read src/pairs.py")
    assert here.bench.sharing.sharing_state.state == "off"


async def test_a_workspace_that_is_closing_confirms_nothing_as_sent(
    homes: tuple[Home, Home],
) -> None:
    here, _ = homes
    session = await here.bench.start_conversation()
    assert await here.bench.sharing.ensure_sent(session.id)

    async def connect() -> SharedStoreConnection:
        raise SharedStoreUnreachable("Nobody answers.")

    here.bench.workspace.share_content("postgresql://helix@localhost/nowhere", connect)
    await here.bench.sharing.stop_conversation_sync()
    with pytest.raises(SharedStoreUnreachable):
        await here.bench.sharing.ensure_sent(session.id)


async def test_what_is_forgotten_here_is_gone_there_and_makes_no_branch(
    homes: tuple[Home, Home],
) -> None:
    here, there = homes
    session = await here.bench.start_conversation()
    await told(session, "the password is swordfish")
    seen = await arrived(there, session)
    before = len(session.all_facts)
    await until(lambda: here.bench.sharing.sharing_state.state == "in step")
    purged = await here.bench.forget_content(text="swordfish")
    assert session.id in purged.conversations
    here.bench.sharing._has_news_to_send.set()
    await until(lambda: len(seen.all_facts) == before + 1)
    assert not any("swordfish" in str(fact) for fact in facts(there, session))
    assert seen.conversation.current_view() == session.conversation.current_view()
    assert (
        here.bench.sharing.synced_sessions.branch_by_conversation
        == there.bench.sharing.synced_sessions.branch_by_conversation
        == {}
    )
    await told(session, "read README.md")  # and goes on
    await until(lambda: len(seen.all_facts) == len(session.all_facts))
    assert facts(here, session) == facts(there, session)
    names = {one.id for one in there.bench.list_conversations()}
    assert names == {one.id for one in here.bench.list_conversations()} == {session.id}


async def test_a_turn_begins_with_what_the_other_machine_wrote(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        conversation_sharing, "EXCHANGE_SECONDS", 600.0
    )  # between two looks: what is known of the other machine is old
    here, there = homes
    session = await here.bench.start_conversation()
    await told(session, "read README.md")
    await here.bench.sharing.sync_conversations_now()
    await there.bench.sharing.sync_conversations_now()
    seen = await there.bench.open_session(session.id)
    await told(session, "read src/pairs.py")
    await here.bench.sharing.sync_conversations_now()
    seen.send_message((Text("me too"),))
    await asyncio.wait_for(seen.wait_until_idle(), 60)
    assert (seen.running, len(seen.queue)) == (ConversationActivity.FAILED, 1)
    assert seen.why.startswith("desktop is working in this conversation.")
    assert facts(there, seen) == facts(here, session)  # it can be watched
    await here.bench.sharing.stop_conversation_sync()
    seen.resume_turn()
    await asyncio.wait_for(seen.wait_until_idle(), 60)
    assert said(seen, "me too")
    assert facts(there, seen)[: len(session.all_facts)] == facts(here, session)
    assert (
        here.bench.sharing.synced_sessions.branch_by_conversation
        == there.bench.sharing.synced_sessions.branch_by_conversation
        == {}
    )


def stop_looking(home: Home) -> None:
    """Nothing is sent or fetched by itself."""
    task = home.bench.sharing._task
    assert task is not None
    task.cancel()


async def test_no_turn_begins_while_too_much_waits_to_be_sent(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = homes
    stop_looking(here)
    first, second, third = [await here.bench.start_conversation() for _ in range(3)]
    await told(first, "read README.md")
    await told(second, "read README.md")
    await there.bench.sharing.sync_conversations_now()
    assert len((await there.bench.open_session(first.id)).all_facts) < len(first.all_facts)
    monkeypatch.setattr(conversation_sharing, "MOST_UNSENT_FACTS", 2)
    await told(third, "read README.md")
    await there.bench.sharing.sync_conversations_now()
    assert (
        await there.bench.open_session(first.id)
    ).conversation.current_view() == first.conversation.current_view()
    assert (
        await there.bench.open_session(second.id)
    ).conversation.current_view() == second.conversation.current_view()


async def test_where_work_counts_once_it_is_shared_a_turn_ends_when_others_have_it(
    homes: tuple[Home, Home],
) -> None:
    here, there = homes
    stop_looking(here)
    connected = SharedStoreConnection(AsyncRowStore(here.engine), RowCipher(KEY))

    async def connect() -> SharedStoreConnection:
        return connected

    here.bench.workspace.share_content("memory://", connect, acknowledge=SHARED)
    sessions = [await here.bench.start_conversation() for _ in range(3)]
    await asyncio.gather(*(told(session, "read README.md") for session in sessions))
    await there.bench.sharing.sync_conversations_now()
    for session in sessions:
        assert (
            await there.bench.open_session(session.id)
        ).conversation.current_view() == session.conversation.current_view()
    here.engine.is_away = True
    sessions[0].send_message((Text("more"),))
    await asyncio.wait_for(sessions[0].wait_until_idle(), 60)
    assert (sessions[0].running, sessions[0].why[:40]) == (
        ConversationActivity.FAILED,
        "The shared store is not responding. You "[:40],
    )


async def test_what_was_written_apart_is_a_branch_before_the_next_turn_begins(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_sharing, "EXCHANGE_SECONDS", 600.0)
    monkeypatch.setattr(conversation_sharing, "LONGEST_PAUSE_SECONDS", 600.0)
    here, there = homes
    session = await here.bench.start_conversation()
    await told(session, "read README.md")
    await here.bench.sharing.sync_conversations_now()
    await there.bench.sharing.sync_conversations_now()
    seen = await there.bench.open_session(session.id)
    there.engine.is_away = True
    with pytest.raises(SharedStoreUnreachable):
        await there.bench.sharing.take_over_conversation(session.id)
    await told(seen, "zebra: read src/pairs.py")
    await told(session, "what is in README.md?")
    await here.bench.sharing.sync_conversations_now()
    await here.bench.sharing.stop_conversation_sync()
    there.engine.is_away = False
    there.bench.sharing.sharing_state = replace(there.bench.sharing.sharing_state, state="in step")
    there.bench.sharing._conversations.leases.taken_over.clear()  # type: ignore[union-attr]  # as after the program was opened again
    await told(seen, "and now together")
    await until(lambda: there.bench.sharing.synced_sessions.branch_by_conversation)
    assert facts(there, seen)[: len(session.all_facts)] == facts(here, session)
    assert said(seen, "and now together")
    assert not said(seen, "zebra: read src/pairs.py")


@pytest.mark.parametrize("turns", range(4))
async def test_sharing_ends_also_when_it_is_stopped_just_as_a_fact_wakes_it(
    homes: tuple[Home, Home], turns: int
) -> None:
    """The defect: `asyncio.wait_for` loses a cancellation that comes as its work ends,
    so that closing hung for ever.
    """
    sharing = homes[0].bench.sharing
    await until(lambda: sharing.sharing_state.state == "in step")
    sharing._has_news_to_send.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    stopping = OwnedTasks("test").spawn_task(sharing.stop_conversation_sync(), name="stop")
    done, _ = await asyncio.wait([stopping], timeout=60)
    assert done
