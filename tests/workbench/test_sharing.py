"""Two homes that share a workspace: real stores and sessions, the scripted model, an engine in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from helix_desktop import places
from helix_desktop.engine.events import Event, FactAppended, Running
from helix_desktop.engine.facts import Text, TurnEnd, TurnEnded, UserSaid
from helix_desktop.engine.session import Session
from helix_desktop.errors import Away, Refused
from helix_desktop.secrets import Secrets
from helix_desktop.store.shared.heads import Head, Memory, Move
from helix_desktop.store.shared.link import SHARED, Connected
from helix_desktop.store.shared.memory import MemoryEngine, Shelf
from helix_desktop.store.shared.remote import Remote
from helix_desktop.store.shared.sealing import Seal
from helix_desktop.workbench import Desk, Workbench, sharing
from helix_desktop.workbench.tour import Quick

KEY = bytes(range(32))


@dataclass
class Home:
    """A machine with its desk. `engine.away` cuts it off."""

    bench: Workbench
    engine: MemoryEngine
    remote: Remote


@dataclass
class Cut:
    """Heads that cannot be reached while their machine's engine cannot."""

    engine: MemoryEngine
    heads: Memory

    def changed(self, since: int) -> tuple[Sequence[Head], int]:
        self.engine.about()
        return self.heads.changed(since)

    def move(self, move: Move) -> tuple[bool, Head | None]:
        self.engine.about()
        return self.heads.move(move)

    def get(self, names: Collection[bytes]) -> Sequence[Head]:
        self.engine.about()
        return self.heads.get(names)


@pytest.fixture
async def homes(tmp_path: Path, folder: Path) -> AsyncIterator[tuple[Home, Home]]:
    """A desktop and a laptop."""
    shelf, memory = Shelf(), Memory(time.monotonic)
    desks: list[Desk] = []
    made: list[Home] = []
    for name in ("desktop", "laptop"):
        where = places.find(tmp_path / name)
        desk = Desk(where, Secrets(where.key_file, environ={}), clock=Quick())
        desks.append(desk)
        bench = await desk.create("Pairs", folder)
        await bench.choose_model("demo/demo")
        engine = MemoryEngine(shelf, b"space")
        heads, remote = Cut(engine, memory), Remote(engine)
        connected = Connected(remote, Seal(KEY))
        bench.sharing.begin(partial(bench.workspace.shared_conversations, connected, heads, name))
        made.append(Home(bench, engine, remote))
    yield made[0], made[1]
    for desk, home in zip(desks, made, strict=True):
        await desk.aclose()
        home.engine.away = False
        await home.remote.aclose()


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


async def told(session: Session, words: str) -> None:
    session.send((Text(words),))
    await asyncio.wait_for(session.idle(), 60)
    end = session.facts[-1].fact
    assert isinstance(end, TurnEnded)
    assert end.reason is TurnEnd.DONE


def facts(home: Home, session: Session) -> list[object]:
    found = home.bench.sessions.find(session.id)
    return [] if found is None else [(one.seq, one.time, one.fact) for one in found.facts]


async def arrived(home: Home, session: Session) -> Session:
    """The conversation as the other machine has it, when it has all of it."""
    await until(lambda: home.bench.row(session.id))
    there = await home.bench.session(session.id)
    await until(lambda: len(there.facts) == len(session.facts))
    return there


async def test_a_conversation_is_read_live_on_the_other_machine(homes: tuple[Home, Home]) -> None:
    here, there = homes
    session = await here.bench.new_conversation()
    await told(session, "read README.md")
    seen = await arrived(there, session)
    row = there.bench.row(session.id)
    assert row is not None
    assert (row.title, row.machine) == ("read README.md", "desktop")
    await there.bench.look_ahead(session.id)
    row = there.bench.row(session.id)
    assert row is not None
    assert row.parts == seen.meter().parts
    heard: list[Event] = []
    seen.subscribe(heard.append)
    await told(session, "read src/pairs.py")
    await until(lambda: facts(here, session) == facts(there, session))
    assert [event.recorded.seq for event in heard if isinstance(event, FactAppended)]
    assert seen.view() == session.view()
    own = here.bench.row(session.id)
    assert own is not None
    assert own.machine == ""


async def test_one_machine_writes_until_the_user_continues_on_the_other(homes: tuple[Home, Home]) -> None:
    here, there = homes
    session = await here.bench.new_conversation()
    await told(session, "read README.md")
    seen = await arrived(there, session)
    assert there.bench.sharing.elsewhere(session.id) == "desktop"
    with pytest.raises(Refused, match="desktop is working in this conversation"):
        await seen.rename("Mine")
    seen.send((Text("read src/pairs.py"),))
    await until(lambda: seen.running is Running.FAILED)
    assert len(seen.queue) == 1  # what was written waits
    await there.bench.sharing.take_over(session.id)
    assert there.bench.sharing.elsewhere(session.id) == ""
    seen.resume()
    await asyncio.wait_for(seen.idle(), 60)
    await until(lambda: here.bench.sharing.elsewhere(session.id) == "laptop")
    await until(lambda: facts(here, session) == facts(there, session))
    assert here.bench.sharing.branches == there.bench.sharing.branches == {}
    assert session.view() == seen.view()


async def test_what_two_machines_wrote_apart_becomes_two_conversations(homes: tuple[Home, Home]) -> None:
    here, there = homes
    session = await here.bench.new_conversation()
    await told(session, "read README.md")
    seen = await arrived(there, session)
    here.engine.away = True
    await until(lambda: here.bench.sharing.standing.state == "away")
    await told(session, "zebra: read src/pairs.py")
    await there.bench.sharing.take_over(session.id)
    await told(seen, "what is in README.md?")
    await until(lambda: there.bench.sharing.standing.state == "in step")
    here.engine.away = False
    await until(lambda: here.bench.sharing.branches)
    branch = here.bench.sharing.branches[session.id]
    await until(lambda: there.bench.row(branch))
    row = there.bench.row(branch)
    assert row is not None
    assert row.title == "read README.md (desktop)"
    for home in homes:
        apart = await home.bench.session(branch)
        assert "zebra: read src/pairs.py" in words(apart)
        together = await home.bench.session(session.id)
        await until(partial(said, together, "what is in README.md?"))
        assert "zebra: read src/pairs.py" not in words(together)
    assert [one.view() for one in (session, await here.bench.session(branch))] == [
        one.view() for one in (seen, await there.bench.session(branch))
    ]
    index = here.bench.workspace.index
    await until(lambda: not index._removing)  # it is made anew after the list knows the branch
    await index.caught_up()
    found = await here.bench.workspace.index.search("zebra")
    assert {hit.conversation for hit in found if hit.conversation} == {branch}


def said(session: Session, text: str) -> bool:
    return text in words(session)


def words(session: Session) -> set[str]:
    messages = [one.fact for one in session.facts if isinstance(one.fact, UserSaid)]
    return {part.text for fact in messages for part in fact.parts if isinstance(part, Text)}


async def test_work_goes_on_while_the_engine_is_away(homes: tuple[Home, Home]) -> None:
    here, there = homes
    here.engine.away = True
    await until(lambda: here.bench.sharing.standing.state == "away")
    session = await here.bench.new_conversation()
    await told(session, "read README.md")
    await until(lambda: here.bench.sharing.standing.waiting >= len(session.facts))
    assert here.bench.sharing.standing.since <= time.time()
    with pytest.raises(Away):
        await here.bench.sharing.take_over(session.id)
    here.engine.away = False
    here.bench.sharing._poke.set()
    assert (await arrived(there, session)).view() == session.view()
    await until(lambda: here.bench.sharing.standing.state == "in step")


async def test_a_machine_that_closes_the_workspace_lets_go_of_the_conversation(homes: tuple[Home, Home]) -> None:
    here, there = homes
    session = await here.bench.new_conversation()
    await told(session, "read README.md")
    seen = await arrived(there, session)
    await here.bench.sharing.end()
    await until(lambda: there.bench.sharing.elsewhere(session.id) == "")
    await told(seen, "read src/pairs.py")
    assert here.bench.sharing.standing.state == "off"


async def test_what_is_forgotten_here_is_gone_there_and_makes_no_branch(homes: tuple[Home, Home]) -> None:
    here, there = homes
    session = await here.bench.new_conversation()
    await told(session, "the password is swordfish")
    seen = await arrived(there, session)
    before = len(session.facts)
    await until(lambda: here.bench.sharing.standing.state == "in step")
    purged = await here.bench.forget(text="swordfish")
    assert session.id in purged.conversations
    here.bench.sharing._poke.set()
    await until(lambda: len(seen.facts) == before + 1)
    assert not any("swordfish" in str(fact) for fact in facts(there, session))
    assert seen.view() == session.view()
    assert here.bench.sharing.branches == there.bench.sharing.branches == {}
    await told(session, "read README.md")  # and goes on
    await until(lambda: len(seen.facts) == len(session.facts))
    assert facts(here, session) == facts(there, session)
    names = {one.id for one in there.bench.conversations()}
    assert names == {one.id for one in here.bench.conversations()} == {session.id}


async def test_a_turn_begins_with_what_the_other_machine_wrote(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "EVERY", 600.0)  # between two looks: what is known of the other machine is old
    here, there = homes
    session = await here.bench.new_conversation()
    await told(session, "read README.md")
    await here.bench.sharing.now()
    await there.bench.sharing.now()
    seen = await there.bench.session(session.id)
    await told(session, "read src/pairs.py")
    await here.bench.sharing.now()
    seen.send((Text("me too"),))
    await asyncio.wait_for(seen.idle(), 60)
    assert (seen.running, len(seen.queue)) == (Running.FAILED, 1)
    assert seen.why.startswith("desktop is working in this conversation.")
    assert facts(there, seen) == facts(here, session)  # it can be watched
    await here.bench.sharing.end()
    seen.resume()
    await asyncio.wait_for(seen.idle(), 60)
    assert said(seen, "me too")
    assert facts(there, seen)[: len(session.facts)] == facts(here, session)
    assert here.bench.sharing.branches == there.bench.sharing.branches == {}


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
    first, second, third = [await here.bench.new_conversation() for _ in range(3)]
    await told(first, "read README.md")
    await told(second, "read README.md")
    await there.bench.sharing.now()
    assert len((await there.bench.session(first.id)).facts) < len(first.facts)
    monkeypatch.setattr(sharing, "MOST_UNSENT_FACTS", 2)
    await told(third, "read README.md")
    await there.bench.sharing.now()
    assert (await there.bench.session(first.id)).view() == first.view()
    assert (await there.bench.session(second.id)).view() == second.view()


async def test_where_work_counts_once_it_is_shared_a_turn_ends_when_others_have_it(homes: tuple[Home, Home]) -> None:
    here, there = homes
    stop_looking(here)
    connected = Connected(Remote(here.engine), Seal(KEY))

    async def connect() -> Connected:
        return connected

    here.bench.workspace.share("memory://", connect, acknowledge=SHARED)
    sessions = [await here.bench.new_conversation() for _ in range(3)]
    await asyncio.gather(*(told(session, "read README.md") for session in sessions))
    await there.bench.sharing.now()
    for session in sessions:
        assert (await there.bench.session(session.id)).view() == session.view()
    here.engine.away = True
    sessions[0].send((Text("more"),))
    await asyncio.wait_for(sessions[0].idle(), 60)
    assert (sessions[0].running, sessions[0].why[:40]) == (
        Running.FAILED,
        "The shared store is not responding. You "[:40],
    )


async def test_what_was_written_apart_is_a_branch_before_the_next_turn_begins(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "EVERY", 600.0)
    monkeypatch.setattr(sharing, "SLOWER", 600.0)
    here, there = homes
    session = await here.bench.new_conversation()
    await told(session, "read README.md")
    await here.bench.sharing.now()
    await there.bench.sharing.now()
    seen = await there.bench.session(session.id)
    there.engine.away = True
    with pytest.raises(Away):
        await there.bench.sharing.take_over(session.id)
    await told(seen, "zebra: read src/pairs.py")
    await told(session, "what is in README.md?")
    await here.bench.sharing.now()
    await here.bench.sharing.end()
    there.engine.away = False
    there.bench.sharing.standing = replace(there.bench.sharing.standing, state="in step")
    there.bench.sharing._conversations._own.clear()  # type: ignore[union-attr]  # as after the program was opened again
    await told(seen, "and now together")
    await until(lambda: there.bench.sharing.branches)
    assert facts(there, seen)[: len(session.facts)] == facts(here, session)
    assert said(seen, "and now together")
    assert not said(seen, "zebra: read src/pairs.py")
