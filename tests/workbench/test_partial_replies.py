"""What a model was writing survives a kill, but for the last second."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from helix_desktop.engine.facts import ModelReplied, Stop, Text, ToolCall, ToolReturned, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.session_events import Event, ReplyStreamed, ToolPrinted
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.workbench import partial_replies
from tests.peers.chat_server import ChatServer, reply
from tests.workbench.conftest import Desks


def replies(facts: object) -> list[ModelReplied]:
    return [each.fact for each in facts if isinstance(each.fact, ModelReplied)]  # type: ignore[attr-defined]


async def test_a_kill_in_the_middle_of_an_answer_leaves_what_was_shown(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_replies, "EVERY", 0.0)
    words = "The lock manager is extracted. " * 4
    with ChatServer([reply(words).silent_after(12, 30.0)]) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
        bench = await desk.create_workspace("Killed", folder)
        await bench.choose_model_for_role("peer/scripted")
        session = await bench.start_conversation("Killed")
        shown: list[str] = []
        enough = asyncio.Event()

        def heard(event: Event) -> None:
            if isinstance(event, ReplyStreamed) and hasattr(event.delta, "text"):
                shown.append(event.delta.text)
                if len("".join(shown)) >= 60:
                    enough.set()

        bench.subscribe_to_events(heard)
        session.send_message((Text("Extract it."),))
        await asyncio.wait_for(enough.wait(), 60)
        partial = bench.workspace.folder / "partial" / f"{session.id}.json"
        while not partial.exists() or "".join(shown)[:60] not in partial.read_text():
            await asyncio.sleep(0.01)
        kept = json.loads(partial.read_text())
        session.stop_turn()
        await session.wait_until_idle()
        await desk.aclose()
        # A file whose deletion was cut off by the closing is deleted at the next opening.
        next_desk = desks()
        await (await next_desk.open_workspace(bench.id)).open_session(session.id)
        await next_desk.aclose()
    assert "".join(shown).startswith(kept["text"])
    asked = next(each.seq for each in session.all_facts if isinstance(each.fact, UserSaid))
    assert kept["after"] >= asked, "what stands before the answer would count as its record"
    assert not partial.exists(), "a fact needs no second place"


async def test_a_conversation_whose_id_is_a_path_writes_into_no_other_folder(
    desks: Desks, folder: Path
) -> None:
    """An earlier version imported such a conversation."""
    mine = folder / "settings.json"
    mine.write_text("mine")
    desk = desks()
    bench = await desk.create_workspace("Path", folder)
    await bench.choose_model_for_role("demo/demo")
    session = await bench.start_conversation("Path", identity=str(mine.with_suffix("")))
    session.send_message((Text("say hello"),))
    await session.wait_until_idle()
    await desk.aclose()
    assert mine.read_text() == "mine"
    # A file whose deletion was cut off by the closing is deleted at the next opening.
    left = {path.stem for path in bench.workspace.folder.glob("partial/*")}
    assert left <= {partial_replies.file_name_of_conversation(session.id)}


async def test_it_becomes_a_fact_once_when_the_conversation_is_opened_again(
    desks: Desks, folder: Path
) -> None:
    first = desks()
    bench = await first.create_workspace("Again", folder)
    session = await bench.start_conversation("Again")
    partial = bench.workspace.folder / "partial" / f"{session.id}.json"
    partial.parent.mkdir()
    partial.write_text(f'{{"after": {session.conversation.state.seq}, "text": "Half an answ"}}')
    await first.aclose()
    for _ in range(2):
        desk = desks()
        session = await (await desk.open_workspace("Again")).open_session(session.id)
        (found,) = replies(session.all_facts)
        assert (found.parts[0].text, found.stop) == ("Half an answ", Stop.CUT)  # type: ignore[union-attr]
        assert not partial.exists()
        await desk.aclose()


@pytest.mark.parametrize(
    "content", ["", "[]", '{"after": "x"}', '{"after": 0, "text": "older than the last reply"}']
)
async def test_a_file_that_is_damaged_or_older_than_the_last_reply_adds_nothing(
    content: str, desks: Desks, folder: Path
) -> None:
    first = desks()
    bench = await first.create_workspace("Old", folder)
    await bench.choose_model_for_role("demo")
    session = await bench.start_conversation("Old")
    session.send_message((Text("Hello"),))
    await asyncio.wait_for(session.wait_until_idle(), 60)
    before = len(session.all_facts)
    partial = bench.workspace.folder / "partial" / f"{session.id}.json"
    await first.aclose()
    partial.parent.mkdir(exist_ok=True)
    partial.write_text(content)
    session = await (await desks().open_workspace("Old")).open_session(session.id)
    assert len(session.all_facts) == before


async def test_what_a_running_command_had_printed_survives_a_kill(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a build of 20 minutes nothing was left, while the window said that nothing
    shown was lost.
    """
    monkeypatch.setattr(partial_replies, "EVERY", 0.0)
    first = desks()
    bench = await first.create_workspace("Printed", folder)
    session = await bench.start_conversation("Printed")
    calls = tuple(ToolCall(name, "run_command", '{"command": "make"}') for name in ("a", "b", "c"))
    await session.conversation.append_facts(
        UserSaid((Text("build it"),)), ModelReplied(calls, "m", Stop.CALLS)
    )
    partial = bench.workspace.folder / "partial"

    async def wait_for_files(count: int) -> None:
        while len(list(partial.glob("*.json"))) != count:
            await asyncio.sleep(0.01)

    for number in range(3_000):
        session.conversation.notify_listeners(ToolPrinted(session.id, "a", f"tick {number}\n"))
    session.conversation.notify_listeners(ToolPrinted(session.id, "b", "done"))
    await wait_for_files(2)
    stored = await bench.workspace.cache.store_content(b"done", EntryOrigin("run_command", "make"))
    await session.conversation.append_facts(ToolReturned("b", stored, 1))
    await wait_for_files(1)
    await first.aclose()
    for _ in range(2):
        desk = desks()
        bench = await desk.open_workspace("Printed")
        session = await bench.open_session(session.id)
        (found,) = [
            one.fact
            for one in session.all_facts
            if isinstance(one.fact, ToolReturned) and not one.fact.ok
        ]
        text = (await bench.workspace.cache.read_content(found.output.digest)).decode()
        assert (found.call, found.stopped) == ("a", True)
        assert text.endswith(f"tick 2999\n{partial_replies.CUT_OFF}")
        assert len(text) < 10_000
        assert not list(partial.glob("*.json"))
        await desk.aclose()
