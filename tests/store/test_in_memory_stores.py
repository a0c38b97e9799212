"""The conformance suite: what every implementation of the ports does, run on memory and on disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helix_desktop.engine.facts import (
    ConversationChanged,
    ConversationStarted,
    Fact,
    ModelReplied,
    Pinned,
    Rewound,
    Span,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import AmbiguousName, InvalidInput, NotFound
from helix_desktop.store.cache_records import CHUNK
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryJournal
from helix_desktop.store.stored_workspace import StoredWorkspace
from tests.store.conftest import Stores

SHELL = EntryOrigin("shell", "make test")


def said(text: str) -> UserSaid:
    return UserSaid((Text(text),))


async def pieces(*content: bytes) -> AsyncIterator[bytes]:
    for piece in content:
        yield piece


CONTENTS = [
    b"",
    b"x",
    b"two\nlines\n",
    bytes(range(256)) * 20,
    b"\0" * CHUNK,
    b"a" * (CHUNK + 1),
    bytes(7) * CHUNK,
    "naïve 日本語".encode("utf-16"),
    b"\xff\xfe\x00\xd8",
]


@pytest.mark.parametrize(
    "content", CONTENTS, ids=lambda content: f"{len(content)}-{content[:4].hex()}"
)
async def test_content_comes_back_as_it_was(stores: Stores, content: bytes) -> None:
    stored = await stores.cache.store_content(content, SHELL)
    assert stored.digest == Digest.of_content(content)
    assert stored.size == len(content)
    assert await stores.cache.read_content(stored.digest) == content
    assert (await stores.cache.describe_entry(stored.digest)).stored == stored
    assert (await stores.cache.describe_entry(stored.digest, 1_000)).beginning == content[:1_000]


async def test_streamed_content_is_the_same_entry(stores: Stores) -> None:
    content = bytes(range(256)) * 10_000
    whole = await stores.cache.store_content(content, SHELL)
    streamed = await stores.cache.store_content(
        pieces(content[:7], b"", content[7:1_500_000], content[1_500_000:]), EntryOrigin("other")
    )
    assert streamed == whole
    assert (await stores.cache.describe_entry(whole.digest)).about == SHELL


async def test_only_streamed_content_comes_back(stores: Stores) -> None:
    for content in ([b""], [b"short"], [b"x" * 700_000] * 4, [bytes(CHUNK)] * 2):
        stored = await stores.cache.store_content(pieces(*content), SHELL)
        assert await stores.cache.read_content(stored.digest) == b"".join(content)


async def test_a_stream_that_fails_leaves_nothing(stores: Stores) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"y" * (3 * CHUNK)
        raise EOFError

    with pytest.raises(EOFError):
        await stores.cache.store_content(broken(), SHELL)
    await stores.settle()
    assert await stores.index.search_index("yyy") == ()


async def test_a_part_is_the_part(stores: Stores) -> None:
    content = bytes(range(251)) * 12_000
    stored = await stores.cache.store_content(content, SHELL)
    for start, length in [
        (0, 0),
        (0, 10),
        (CHUNK - 3, 6),
        (len(content) - 4, 100),
        (len(content) + 1, 5),
        (5, 2 * CHUNK),
    ]:
        assert (
            await stores.cache.read_range(stored.digest, start, length)
            == content[start : start + length]
        )
    with pytest.raises(InvalidInput):
        await stores.cache.read_range(stored.digest, -1, 5)


async def test_lines_are_counted_in_text_alone(stores: Stores) -> None:
    assert (await stores.cache.store_content(b"a\nb\n", SHELL)).lines == 2
    assert (await stores.cache.store_content(b"a\nb", SHELL)).lines == 2
    assert (
        await stores.cache.store_content(b"a\nb", EntryOrigin(media_type="image/png"))
    ).lines == 2, "the entry is the one stored first"
    assert (
        await stores.cache.store_content(b"\n\n\n", EntryOrigin(media_type="image/png"))
    ).lines == 0


async def test_content_that_is_there_is_what_it_is_put_as_now(stores: Stores) -> None:
    picture = EntryOrigin(media_type="image/png")
    first = await stores.cache.store_content(b"bytes", picture)
    second = await stores.cache.store_content(b"bytes", SHELL)
    streamed = await stores.cache.store_content(pieces(b"by", b"tes"), picture)
    assert [each.media_type for each in (first, second, streamed)] == [
        "image/png",
        "text/plain",
        "image/png",
    ]
    assert (await stores.cache.describe_entry(first.digest)).stored == first, (
        "the entry is the one stored first"
    )


async def test_what_is_not_there_is_named(stores: Stores) -> None:
    unknown = Digest.of_content(b"never")
    for call in (
        stores.cache.read_content(unknown),
        stores.cache.read_range(unknown, 0, 1),
        stores.cache.describe_entry(unknown),
    ):
        with pytest.raises(NotFound, match=unknown.hex):
            await call


async def test_a_shortened_hash_is_found_while_it_is_unique(stores: Stores) -> None:
    stored = [
        await stores.cache.store_content(str(number).encode(), SHELL) for number in range(600)
    ]
    first = stored[0].digest
    assert await stores.cache.resolve_prefix(first.hex) == first
    assert await stores.cache.resolve_prefix(first.hex[:20].upper()) == first
    assert await stores.cache.resolve_prefix(first.hex[:21]) == first
    heads = [each.digest.hex[:4] for each in stored]
    twice = next(head for head in heads if heads.count(head) > 1)
    with pytest.raises(AmbiguousName, match="2 entries"):
        await stores.cache.resolve_prefix(twice)
    with pytest.raises(NotFound):
        await stores.cache.resolve_prefix("0123456789abcdef")
    for wrong in ("abc", "", "xyzw", "12345g", "a" * 65):
        with pytest.raises(InvalidInput):
            await stores.cache.resolve_prefix(wrong)


async def test_many_puts_at_once_all_last(stores: Stores) -> None:
    stored = await asyncio.gather(
        *(stores.cache.store_content(str(number % 40).encode(), SHELL) for number in range(200))
    )
    assert len({each.digest for each in stored}) == 40
    assert [await stores.cache.read_content(each.digest) for each in stored] == [
        str(number % 40).encode() for number in range(200)
    ]


async def test_facts_are_numbered_from_one_in_each_conversation(stores: Stores) -> None:
    first = await stores.journal.append_to_journal("a", [said("one"), said("two")])
    other = await stores.journal.append_to_journal("b", [said("three")])
    more = await stores.journal.append_to_journal("a", [said("four")])
    assert [each.seq for each in (*first, *more)] == [1, 2, 3]
    assert [each.seq for each in other] == [1]
    assert list(await stores.journal.read_facts("a")) == [*first, *more]
    assert await stores.journal.read_facts("nobody") == ()
    assert await stores.journal.append_to_journal("a", []) == ()
    with pytest.raises(InvalidInput):
        await stores.journal.append_to_journal("", [said("x")])


async def test_reading_begins_behind_and_ends_at_a_limit(stores: Stores) -> None:
    facts = await stores.journal.append_to_journal("a", [said(str(number)) for number in range(10)])
    assert list(await stores.journal.read_facts("a", 4)) == list(facts[4:])
    assert list(await stores.journal.read_facts("a", 4, 3)) == list(facts[4:7])
    assert await stores.journal.read_facts("a", 10) == ()
    assert await stores.journal.read_facts("a", 99) == ()


async def test_a_fork_owns_a_copy(workspace: StoredWorkspace) -> None:
    journal = workspace.journal
    facts = await journal.append_to_journal(
        "a", [ConversationStarted("Title"), said("one"), said("two")]
    )
    fork = await journal.fork_conversation("a", 2, "b")
    assert [each.fact for each in fork] == [
        *(each.fact for each in facts[:2]),
        ConversationStarted(forked_from="a", forked_at=2),
    ]
    assert [(each.conversation, each.seq) for each in fork] == [("b", 1), ("b", 2), ("b", 3)]
    await journal.append_to_journal("b", [said("three")])
    assert len(await journal.read_facts("a")) == 3
    assert list(await journal.read_facts("b"))[:3] == list(fork)
    for conversation, at, new, error in [
        ("a", 4, "c", NotFound),
        ("a", 0, "c", NotFound),
        ("no", 1, "c", NotFound),
        ("a", 1, "b", InvalidInput),
    ]:
        with pytest.raises(error):
            await journal.fork_conversation(conversation, at, new)


async def test_the_list_of_conversations_follows_the_facts(workspace: StoredWorkspace) -> None:
    journal = workspace.journal
    await journal.append_to_journal(
        "a",
        [
            ConversationStarted("First", parent="p", parent_call="c"),
            said("  hello\n there "),
            TurnEnded(TurnEnd.DONE),
        ],
    )
    await journal.append_to_journal(
        "a", [ConversationChanged(title="Renamed", pinned=True, trashed=True)]
    )
    await journal.fork_conversation("a", 4, "b")
    rows = {row.id: row for row in await journal.list_conversations()}
    assert (rows["a"].title, rows["a"].begins, rows["a"].turns, rows["a"].last_seq) == (
        "Renamed",
        "hello there",
        1,
        4,
    )
    assert (rows["a"].pinned, rows["a"].trashed, rows["a"].parent) == (True, True, "p")
    assert (rows["b"].title, rows["b"].forked_from, rows["b"].forked_at, rows["b"].trashed) == (
        "Renamed",
        "a",
        4,
        False,
    )
    await journal.store_meter("a", "{}")
    assert (await journal.find_conversation("a")).meter == "{}"
    with pytest.raises(NotFound):
        await journal.find_conversation("nobody")


async def test_half_a_surrogate_pair_does_no_harm(stores: Stores) -> None:
    await stores.journal.append_to_journal(
        "a", [ConversationStarted("bad \ud800 title"), said("bad \ud800 text")]
    )
    assert len(await stores.journal.read_facts("a")) == 2


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("zebra", True),
        ("ZEBRA crossing", True),
        ("parseHttpRequest", True),
        ("HttpRequest", True),
        ("request", True),
        ("retry_budget", True),
        ("budget", True),
        ("src/net/http_client.py", True),
        ("http_client", True),
        ('"zebra crossing"', True),
        ('"crossing zebra"', False),
        ("zeb*", True),
        ("zeb", False),
        ("unicorn", False),
        ("", False),
        ('"', False),
        ("AND OR NOT ( ) * :", False),
    ],
)
async def test_words_and_identifiers_are_found(stores: Stores, query: str, found: bool) -> None:
    text = b"first line\na zebra crossing\ndef parseHttpRequest(retry_budget): # src/net/http_client.py\n"
    stored = await stores.cache.store_content(text, SHELL)
    await stores.settle()
    hits = await stores.index.search_index(query)
    assert [hit.digest for hit in hits] == ([stored.digest] if found else [])


async def test_a_hit_says_where(stores: Stores) -> None:
    stored = await stores.cache.store_content(b"one\ntwo\nthree zebras here\n", SHELL)
    await stores.cache.store_content(b"zebras elsewhere", EntryOrigin("fetch", "page"))
    await stores.journal.append_to_journal("a", [said("nothing"), said("about zebras")])
    await stores.settle()
    (hit,) = await stores.index.search_index("zebras", tool="shell")
    assert (hit.digest, hit.line, hit.snippet, hit.about) == (
        stored.digest,
        3,
        "three zebras here",
        SHELL,
    )
    places = await stores.index.search_index("zebras")
    assert {(each.conversation, each.seq) for each in places if each.digest is None} == {("a", 2)}
    assert len(places) == 3
    assert len(await stores.index.search_index("zebras", entries_only=True)) == 2
    assert len(await stores.index.search_index("zebras", limit=1)) == 1


def called(output: Stored, number: int) -> list[Fact]:
    call = ToolCall(f"c{number}", "shell", "{}")
    return [ModelReplied((call,), "m", Stop.CALLS), ToolReturned(call.id, output, 3)]


async def test_an_entry_is_left_if_every_conversation_left_it(stores: Stores) -> None:
    left, kept_here, kept_elsewhere, again = [
        await stores.cache.store_content(word.encode(), SHELL)
        for word in ("left", "kept here", "kept elsewhere", "run again")
    ]
    journal = stores.journal
    digests = [stored.digest for stored in (left, kept_here, kept_elsewhere, again)]
    await journal.append_to_journal("a", [said("first"), *called(kept_here, 1)])
    for number, stored in enumerate((left, kept_elsewhere, again), 2):
        await journal.append_to_journal("a", called(stored, number))
    await journal.append_to_journal("b", [said("first"), *called(kept_elsewhere, 1)])
    await stores.settle()
    assert await stores.index.find_left_entries(digests) == {}

    await journal.append_to_journal("a", [Rewound(3), *called(again, 5)])
    # Who asks for it again does not have it yet.
    recall = ToolCall("r", "recall_cached_content", f'{{"sha256":"{left.digest.hex}"}}')
    await journal.append_to_journal("a", [ModelReplied((recall,), "m", Stop.CALLS)])
    await stores.settle()
    assert await stores.index.find_left_entries(digests) == {left.digest: frozenset("a")}
    assert await stores.index.find_left_entries([]) == {}

    await journal.append_to_journal("a", [Rewound(9)])  # back to what was left
    await stores.settle()
    assert await stores.index.find_left_entries(digests) == {}


FACTS: st.SearchStrategy[Fact] = st.one_of(
    st.builds(said, st.text(max_size=50)),
    st.builds(ConversationStarted, st.text(max_size=10)),
    st.builds(Pinned, st.builds(Span, st.integers(1, 99), st.integers(1, 99))),
)


@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(batches=st.lists(st.tuples(st.sampled_from("abc"), st.lists(FACTS, max_size=4)), max_size=8))
async def test_memory_and_disk_agree(stores: Stores, batches: list[tuple[str, list[Fact]]]) -> None:
    """On the disk this also covers everything earlier examples left behind."""
    before = {name: len(await stores.journal.read_facts(name)) for name in "abc"}
    memory = MemoryJournal()
    for name, facts in batches:
        await memory.append_to_journal(name, facts)
        await stores.journal.append_to_journal(name, facts)
    for name in "abc":
        read = list(await stores.journal.read_facts(name))
        added = [each.fact for each in read[before[name] :]]
        assert added == [each.fact for each in await memory.read_facts(name)]
        assert [each.seq for each in read] == list(range(1, len(read) + 1))


def test_memory_is_a_cache_of_its_own() -> None:
    assert MemoryCache().all_contents() == {}.values() or not list(MemoryCache().all_contents())


async def test_many_are_read_at_once_and_what_is_lacking_is_named(stores: Stores) -> None:
    stored = [await stores.cache.store_content(content, SHELL) for content in CONTENTS]
    unknown = Digest.of_content(b"nobody put this")
    wanted = [each.digest for each in stored] + [unknown]
    assert await stores.cache.read_contents(wanted) == {
        Digest.of_content(content): content for content in CONTENTS
    }
    assert await stores.cache.find_missing_content(wanted) == {unknown}
    assert await stores.cache.read_contents([]) == {}
    assert await stores.cache.find_missing_content([]) == frozenset()
