from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from helix_desktop import tasks
from helix_desktop.engine.facts import (
    ConversationStarted,
    Folded,
    FoldKind,
    Forgotten,
    ModelReplied,
    PartRef,
    Stop,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.ports import About, Hit
from helix_desktop.engine.traces import Traces
from helix_desktop.errors import NotThere, StoreBusy, WrongUse
from helix_desktop.store.forget import BLANK
from helix_desktop.store.workspace import Workspace

SECRET = 'sk-"Qz77x\\Lw"-üKey-4419'


def stands_in(folder: Path, secret: str) -> list[str]:
    """The files whose bytes hold the secret in any of the forms it may be written in; case does not matter to FTS."""
    traces = [Traces(secret), Traces(secret.lower())]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if any(each.in_bytes(path.read_bytes()) for each in traces)]


async def fill(workspace: Workspace) -> ToolReturned:
    """A conversation with the secret wherever a secret can get to."""
    raw = await workspace.cache.put(f"k={SECRET}".encode(), About("shell", f"login {SECRET}"))
    clean = await workspace.cache.put(b"harmless", About("shell", f"curl -H {SECRET}"))
    await workspace.cache.put(SECRET.encode("utf-16"), About("fetch", "page"))
    split = b"\0" * ((1 << 20) - 4) + SECRET.encode() + b"\0" * 100
    await workspace.cache.put(split, About("shell", "large"))
    returned = ToolReturned("1", raw, 3, head=f"k={SECRET}")
    await workspace.journal.append(
        "c",
        [
            ConversationStarted(f"Title {SECRET}"),
            UserSaid((Text(f"my key is {SECRET}, keep it"),)),
            ModelReplied((ToolCall("1", "shell", json.dumps({"command": f"login {SECRET}"})),), "m", Stop.CALLS),
            returned,
            Folded("f", FoldKind.EXCERPT, PartRef(4), "quotes the output", 1, 9, entries=(raw.digest,)),
            ToolReturned("2", clean, 1, head="harmless"),
        ],
    )
    await workspace.journal.append("other", [UserSaid((Text("nothing here"),))])
    await workspace.journal.set_meter("c", SECRET)
    await workspace.index.caught_up()
    return returned


async def test_a_text_leaves_every_file(workspace: Workspace) -> None:
    returned = await fill(workspace)
    await workspace.back_up()
    assert len(stands_in(workspace.folder, SECRET)) > 3, "the trial needs a secret that stands in the files"
    told: list[tuple[int, int]] = []
    purged = await workspace.forget(text=SECRET, report=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] >= told[-1][1] > 0
    assert stands_in(workspace.folder, SECRET) == []
    assert stands_in(workspace.folder, "Qz77x") == []
    assert len(purged.entries) == 3
    assert (purged.facts, purged.conversations, purged.backups) == (5, ("c",), 1)
    with pytest.raises(NotThere, match="forgotten"):
        await workspace.cache.get(returned.output.digest)
    facts = [each.fact for each in await workspace.journal.read("c")]
    assert facts[1] == UserSaid((Text(f"my key is {BLANK}, keep it"),))
    assert facts[-1] == Forgotten(purged.entries, 5, "forgotten at the user's request")
    assert len(await workspace.journal.read("other")) == 1
    assert (await workspace.journal.conversation("c")).title == f"Title {BLANK}"


async def test_what_is_left_still_works(workspace: Workspace) -> None:
    await fill(workspace)
    await workspace.forget(text=SECRET)
    await workspace.index.caught_up()
    assert await workspace.index.search("Qz77x") == ()
    assert len(await workspace.index.search("harmless")) == 1
    assert (await workspace.cache.verify()).damaged == ()
    assert await workspace.journal.damage() == ()
    again = await workspace.cache.put(f"k={SECRET}".encode(), About("shell"))
    assert await workspace.cache.get(again.digest) == f"k={SECRET}".encode()


async def test_an_entry_goes_with_what_quotes_it(workspace: Workspace) -> None:
    returned = await fill(workspace)
    purged = await workspace.forget(entries=[returned.output.digest])
    facts = [each.fact for each in await workspace.journal.read("c")]
    assert isinstance(facts[3], ToolReturned)
    assert facts[3].head == ""
    assert isinstance(facts[4], Folded)
    assert facts[4].text == BLANK
    assert purged.entries == (returned.output.digest,)
    assert facts[1] == UserSaid((Text(f"my key is {SECRET}, keep it"),)), "another text stays"


async def test_hands_are_told_about_their_own_file(workspace: Workspace) -> None:
    workspace.change({"models.main": "secret-model"})
    purged = await workspace.forget(text="secret-model")
    assert len(purged.elsewhere) == 1
    assert "workspace.toml, line" in purged.elsewhere[0]


async def test_a_short_text_is_refused(workspace: Workspace) -> None:
    with pytest.raises(WrongUse):
        await workspace.forget(text="abc")


async def test_stopped_while_it_reads_it_has_changed_nothing(workspace: Workspace) -> None:
    await fill(workspace)
    before = stands_in(workspace.folder, SECRET)
    found = len(await workspace.index.search("Qz77x"))
    work: list[asyncio.Task[object]] = []
    told: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        told.append((done, total))
        work[0].cancel()

    work.append(tasks.Tasks("test").spawn(workspace.forget(text=SECRET, report=stop), name="forget"))
    with pytest.raises(asyncio.CancelledError):
        await work[0]
    assert told[0][0] < told[0][1], "stopped while the cache was read"
    assert stands_in(workspace.folder, SECRET) == before
    assert len(await workspace.index.search("Qz77x")) == found > 0


async def test_once_something_is_removed_all_of_it_is(workspace: Workspace) -> None:
    await fill(workspace)
    work: list[asyncio.Task[object]] = []

    def stop(done: int, total: int) -> None:
        if done == total:
            work[0].get_loop().call_soon(work[0].cancel)

    work.append(tasks.Tasks("test").spawn(workspace.forget(text=SECRET, report=stop), name="forget"))
    with pytest.raises(asyncio.CancelledError):
        await work[0]
    assert stands_in(workspace.folder, SECRET) == []


async def test_a_search_works_while_it_reads_and_says_why_not_while_it_removes(workspace: Workspace) -> None:
    await fill(workspace)
    asked: dict[bool, asyncio.Task[Sequence[Hit]]] = {}

    def ask(done: int, total: int) -> None:
        if done == total:
            asyncio.get_running_loop().call_soon(begin, True)
        else:
            begin(False)

    def begin(removing: bool) -> None:
        asked.setdefault(removing, tasks.Tasks("test").spawn(workspace.index.search("harmless"), name="search"))

    await workspace.forget(text=SECRET, report=ask)
    assert len(await asked[False]) == 1
    with pytest.raises(StoreBusy, match="being permanently removed from this workspace"):
        await asked[True]
