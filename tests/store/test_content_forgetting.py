from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop import concurrency
from helix_desktop.engine.fact_encoding import encode_fact
from helix_desktop.engine.facts import (
    ConversationStarted,
    Folded,
    FoldKind,
    Forgotten,
    ModelReplied,
    PartRef,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.forgotten_text_forms import TextForms
from helix_desktop.engine.ports import EntryOrigin, SearchHit
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import InvalidInput, NotFound, StoreBusy
from helix_desktop.store.content_forgetting import FORGOTTEN_MARK, differ_only_by_forgetting
from helix_desktop.store.stored_workspace import StoredWorkspace
from tests.store.journal_damage import find_journal_damage

SECRET = 'sk-"Qz77x\\Lw"-üKey-4419'


def stands_in(folder: Path, secret: str) -> list[str]:
    """The files whose bytes hold the secret in any of the forms it may be written in;
    case does not matter to FTS.
    """
    traces = [TextForms(secret), TextForms(secret.lower())]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        path.name
        for path in files
        if any(each.occurs_in_bytes(path.read_bytes()) for each in traces)
    ]


async def fill(workspace: StoredWorkspace) -> ToolReturned:
    """A conversation with the secret wherever a secret can get to."""
    raw = await workspace.cache.store_content(
        f"k={SECRET}".encode(), EntryOrigin("shell", f"login {SECRET}")
    )
    clean = await workspace.cache.store_content(
        b"harmless", EntryOrigin("shell", f"curl -H {SECRET}")
    )
    await workspace.cache.store_content(SECRET.encode("utf-16"), EntryOrigin("fetch", "page"))
    split = b"\0" * ((1 << 20) - 4) + SECRET.encode() + b"\0" * 100
    await workspace.cache.store_content(split, EntryOrigin("shell", "large"))
    returned = ToolReturned("1", raw, 3, head=f"k={SECRET}")
    await workspace.journal.append_to_journal(
        "c",
        [
            ConversationStarted(f"Title {SECRET}"),
            UserSaid((Text(f"my key is {SECRET}, keep it"),)),
            ModelReplied(
                (ToolCall("1", "shell", json.dumps({"command": f"login {SECRET}"})),),
                "m",
                Stop.CALLS,
            ),
            returned,
            Folded(
                "f", FoldKind.EXCERPT, PartRef(4), "quotes the output", 1, 9, entries=(raw.digest,)
            ),
            ToolReturned("2", clean, 1, head="harmless"),
        ],
    )
    await workspace.journal.append_to_journal("other", [UserSaid((Text("nothing here"),))])
    await workspace.journal.store_meter("c", SECRET)
    await workspace.index.wait_until_indexed()
    return returned


async def test_a_text_leaves_every_file(workspace: StoredWorkspace) -> None:
    returned = await fill(workspace)
    await workspace.back_up_now()
    assert len(stands_in(workspace.folder, SECRET)) > 3, (
        "the trial needs a secret that stands in the files"
    )
    told: list[tuple[int, int]] = []
    purged = await workspace.forget_content(
        text=SECRET, report=lambda done, total: told.append((done, total))
    )
    assert told == sorted(told)
    assert told[-1][0] >= told[-1][1] > 0
    assert stands_in(workspace.folder, SECRET) == []
    assert stands_in(workspace.folder, "Qz77x") == []
    assert len(purged.entries) == 3
    assert (purged.facts, purged.conversations, purged.backups) == (5, ("c",), 1)
    with pytest.raises(NotFound, match="permanently removed"):
        await workspace.cache.read_content(returned.output.digest)
    facts = [each.fact for each in await workspace.journal.read_facts("c")]
    assert facts[1] == UserSaid((Text(f"my key is {FORGOTTEN_MARK}, keep it"),))
    assert facts[-1] == Forgotten(purged.entries, 5, "forgotten at the user's request")
    assert len(await workspace.journal.read_facts("other")) == 1
    assert (await workspace.journal.find_conversation("c")).title == f"Title {FORGOTTEN_MARK}"


async def test_what_is_left_still_works(workspace: StoredWorkspace) -> None:
    await fill(workspace)
    await workspace.forget_content(text=SECRET)
    await workspace.index.wait_until_indexed()
    assert await workspace.index.search_index("Qz77x") == ()
    assert len(await workspace.index.search_index("harmless")) == 1
    assert (await workspace.cache.verify_cache()).damaged == ()
    assert await find_journal_damage(workspace) == ()
    again = await workspace.cache.store_content(f"k={SECRET}".encode(), EntryOrigin("shell"))
    assert await workspace.cache.read_content(again.digest) == f"k={SECRET}".encode()


async def test_an_entry_goes_with_what_quotes_it(workspace: StoredWorkspace) -> None:
    returned = await fill(workspace)
    purged = await workspace.forget_content(entries=[returned.output.digest])
    facts = [each.fact for each in await workspace.journal.read_facts("c")]
    assert isinstance(facts[3], ToolReturned)
    assert facts[3].head == ""
    assert isinstance(facts[4], Folded)
    assert facts[4].text == FORGOTTEN_MARK
    assert purged.entries == (returned.output.digest,)
    assert facts[1] == UserSaid((Text(f"my key is {SECRET}, keep it"),)), "another text stays"


async def test_hands_are_told_about_their_own_file(workspace: StoredWorkspace) -> None:
    workspace.change_settings({"models.main": "secret-model"})
    purged = await workspace.forget_content(text="secret-model")
    assert len(purged.elsewhere) == 1
    assert "workspace.toml, line" in purged.elsewhere[0]


async def test_a_short_text_is_refused(workspace: StoredWorkspace) -> None:
    with pytest.raises(InvalidInput):
        await workspace.forget_content(text="abc")


@pytest.mark.parametrize("word", ["UserSaid", "calls", "excerpt"])
async def test_a_word_that_also_says_what_a_fact_is_leaves_only_the_texts(
    workspace: StoredWorkspace, word: str
) -> None:
    """Otherwise the fact could not be read any more, and only the cache would have forgotten it."""
    said = UserSaid((Text(f"it {word} me"),))
    call = ToolCall("1", "shell", json.dumps({"command": word}))
    reply = ModelReplied((call,), "m", Stop.CALLS)
    excerpt = Folded("f", FoldKind.EXCERPT, PartRef(1), f"what {word}", 1, 9)
    await workspace.journal.append_to_journal("c", [said, reply, excerpt])

    await workspace.forget_content(text=word)

    recorded = [each.fact for each in await workspace.journal.read_facts("c")]
    assert recorded[:3] == [
        UserSaid((Text(f"it {FORGOTTEN_MARK} me"),)),
        replace(reply, parts=(replace(call, arguments=f'{{"command": "{FORGOTTEN_MARK}"}}'),)),
        replace(excerpt, text=f"what {FORGOTTEN_MARK}"),
    ]


async def test_stopped_while_it_reads_it_has_changed_nothing(workspace: StoredWorkspace) -> None:
    await fill(workspace)
    before = stands_in(workspace.folder, SECRET)
    found = len(await workspace.index.search_index("Qz77x"))
    work: list[asyncio.Task[object]] = []
    told: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        told.append((done, total))
        work[0].cancel()

    work.append(
        concurrency.OwnedTasks("test").spawn_task(
            workspace.forget_content(text=SECRET, report=stop), name="forget"
        )
    )
    with pytest.raises(asyncio.CancelledError):
        await work[0]
    assert told[0][0] < told[0][1], "stopped while the cache was read"
    assert stands_in(workspace.folder, SECRET) == before
    assert len(await workspace.index.search_index("Qz77x")) == found > 0


async def test_once_something_is_removed_all_of_it_is(workspace: StoredWorkspace) -> None:
    await fill(workspace)
    work: list[asyncio.Task[object]] = []

    def stop(done: int, total: int) -> None:
        if done == total:
            work[0].get_loop().call_soon(work[0].cancel)

    work.append(
        concurrency.OwnedTasks("test").spawn_task(
            workspace.forget_content(text=SECRET, report=stop), name="forget"
        )
    )
    with pytest.raises(asyncio.CancelledError):
        await work[0]
    assert stands_in(workspace.folder, SECRET) == []


async def test_a_search_works_while_it_reads_and_says_why_not_while_it_removes(
    workspace: StoredWorkspace,
) -> None:
    await fill(workspace)
    await (
        workspace.index.wait_until_indexed()
    )  # Or the first search waits for it until the removal has begun.
    asked: dict[bool, asyncio.Task[Sequence[SearchHit]]] = {}

    def ask(done: int, total: int) -> None:
        if done == total:
            asyncio.get_running_loop().call_soon(begin, True)
        else:
            begin(False)

    def begin(removing: bool) -> None:
        if removing not in asked:
            search = workspace.index.search_index("harmless")
            asked[removing] = concurrency.OwnedTasks("test").spawn_task(search, name="search")

    await workspace.forget_content(text=SECRET, report=ask)
    assert len(await asked[False]) == 1
    with pytest.raises(StoreBusy, match="being permanently removed from this workspace"):
        await asked[True]


@pytest.mark.parametrize(
    ("before", "after", "fits"),
    [
        ("the key is swordfish", "the key is [forgotten]", True),
        ("swordfish and swordfish", "[forgotten] and [forgotten]", True),
        ("the key is swordfish", "the key is other", False),
        ("the key is swordfish", "a key is [forgotten]", False),
        ("a b a", "[forgotten]b b[forgotten]", False),
        ("[forgotten] and more", "something and [forgotten]", True),
    ],
)
def test_a_fact_that_forgot_something_says_nothing_else_anew(
    before: str, after: str, fits: bool
) -> None:
    one, other = (encode_fact(UserSaid((Text(text, 3),))) for text in (before, after))
    assert differ_only_by_forgetting(one, other) is fits
    assert differ_only_by_forgetting(other, one) is fits


def test_a_fact_that_is_gone_or_lost_its_output_was_forgotten() -> None:
    returned = ToolReturned("1", Stored(Digest.of_content(b"x"), 1), 1, head="x")
    without = encode_fact(replace(returned, head=""))
    assert differ_only_by_forgetting(encode_fact(returned), without)
    assert differ_only_by_forgetting(encode_fact(returned), encode_fact(Forgotten((), 1, "why")))
    assert not differ_only_by_forgetting(
        encode_fact(returned), encode_fact(replace(returned, ok=False))
    )
