from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from helix_desktop.engine import fact_encoding
from helix_desktop.engine.facts import (
    Attachment,
    DocumentEdited,
    Fact,
    FileChanged,
    Folded,
    FoldKind,
    ModelReplied,
    PartRef,
    Reasoning,
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
from helix_desktop.engine.view_contents import SAMPLE_BYTES, estimate_entry_tokens
from helix_desktop.store import index_file as module
from helix_desktop.store.cache_records import CacheRecord, EntryState
from helix_desktop.store.index_file import IndexFile, StoreFeed, entries_used_by, searchable_texts
from helix_desktop.store.journal_file import StoredFact

DIGESTS = [Digest.of_content(str(number).encode()) for number in range(6)]
STORED = [Stored(digest, 1) for digest in DIGESTS]


class ListFeed(StoreFeed):
    """Stores with what a test puts into them: a real implementation of the index's
    source, in lists.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[CacheRecord, bytes | None]] = []
        self.facts: list[StoredFact] = []
        self.pins: set[Digest] = set()

    def add(self, content: bytes | None, tool: str = "shell", *, number: int = 0) -> Digest:
        digest = Digest.of_content(
            content if content is not None else str(len(self.entries)).encode()
        )
        at = number or len(self.entries) + 1
        record = CacheRecord(
            at, at, digest, len(content or b""), 5, 1, float(at), EntryOrigin(tool, f"source {at}")
        )
        self.entries.append((record, content))
        return digest

    def say(self, fact: Fact, conversation: str = "c") -> None:
        at = len(self.facts) + 1
        self.facts.append(
            StoredFact(at, conversation, at, float(at), fact_encoding.encode_fact(fact), b"")
        )

    def last_entry_and_fact(self) -> tuple[int, int]:
        return max((record.number for record, _ in self.entries), default=0), len(self.facts)

    def read_entry_records(self, after: int, limit: int) -> Sequence[CacheRecord]:
        return [record for record, _ in self.entries if record.number > after][:limit]

    def read_content_beginnings(
        self, records: Sequence[CacheRecord], limit: int
    ) -> Sequence[tuple[CacheRecord, bytes | None]]:
        contents = dict(self.entries)
        return [(record, contents[record]) for record in records][
            :3
        ]  # not all at once, as when they are large

    def read_stored_facts_after(self, after: int, limit: int) -> Sequence[StoredFact]:
        return [line for line in self.facts if line.id > after][:limit]

    def pinned_digests(self) -> frozenset[Digest]:
        return frozenset(self.pins)

    def find_record(self, digest: Digest) -> CacheRecord | None:
        return next((record for record, _ in self.entries if record.digest == digest), None)


@pytest.fixture
def feed() -> ListFeed:
    return ListFeed()


@pytest.fixture
def index(tmp_path: Path, feed: ListFeed) -> Iterator[IndexFile]:
    opened = IndexFile(tmp_path / "index.sqlite3", feed, count=lambda text: len(text.split()))
    yield opened
    opened.close()


def finish(index: IndexFile) -> int:
    """Catch up; how many steps it took."""
    steps = 1
    while not index.index_next_slice().is_complete:
        steps += 1
        assert steps < 1000, "it never ends"
    return steps


def column(index: IndexFile, name: str) -> list[object]:
    return [
        row[0]
        for row in index.connection.execute(f"SELECT {name} FROM entries ORDER BY number")  # noqa: S608 - a name of ours
    ]


def found(index: IndexFile, word: str) -> int:
    return int(
        index.connection.execute(
            "SELECT count(*) FROM words WHERE words MATCH ?", (word,)
        ).fetchone()[0]
    )


def test_it_follows_entries_and_facts(index: IndexFile, feed: ListFeed) -> None:
    digests = [feed.add(f"zebra number {number}".encode()) for number in range(10)]
    feed.say(ToolReturned("1", Stored(digests[3], 5), 7))
    finish(index)
    assert column(index, "number") == list(range(1, 11))
    assert column(index, "tokens") == [3, 3, 3, 7, 3, 3, 3, 3, 3, 3], (
        "a fact's own count is kept, and not made again"
    )
    assert column(index, "uses") == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert found(index, "zebra") == 10
    feed.add(b"one more zebra")
    feed.say(UserSaid((Text("a zebra in a message"),)))
    finish(index)
    assert found(index, "zebra") == 12
    assert finish(index) == 1, "what is done is done"


def test_many_entries_get_their_orders_afterwards(
    index: IndexFile, feed: ListFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MANY_MISSING_ENTRIES", 20)
    monkeypatch.setattr(module, "ROWS", 8)
    for number in range(40):
        feed.add(f"zebra {number}".encode())
    first = index.index_next_slice()
    assert (first.rows, first.orders, first.is_complete) == (8, 8, False)
    finish(index)
    assert index.current_progress().orders == 0
    assert column(index, "number") == list(range(1, 41))
    feed.add(b"one more")
    finish(index)
    assert found(index, "zebra") == 40


def test_entries_and_facts_that_come_while_others_are_counted_are_indexed_once(
    index: IndexFile, feed: ListFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        feed.add(b"zebra %d" % number)
        feed.say(UserSaid((Text(f"zebra {number}"),)))
    with monkeypatch.context() as patched:
        patched.setattr(
            feed, "last_entry_and_fact", lambda: (2, 2)
        )  # The third come before they are read.
        finish(index)
    finish(index)
    assert index.connection.execute("SELECT count(*) FROM pieces").fetchone() == (6,)


def test_rows_that_were_read_are_kept_only_until_their_words_are_indexed(
    index: IndexFile, feed: ListFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        module, "ROWS", 8
    )  # Two slices of rows are read before any words, and only the second is kept.
    for number in range(13):
        feed.add(b"zebra %d" % number)
    finish(index)
    assert (found(index, "zebra"), list(index._last_rows[1])) == (13, [])


def test_contents_of_checkpoints_that_come_while_others_are_counted_are_counted_once(
    index: IndexFile, feed: ListFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        feed.add(b"content %d" % number, "checkpoint")
    monkeypatch.setattr(
        feed, "last_entry_and_fact", lambda: (2, 0)
    )  # two were known; the others came before they were read
    finish(index)
    monkeypatch.undo()
    finish(index)
    assert index.index_mark("checkpoints") == 4


def test_gaps_in_the_numbers_do_no_harm(index: IndexFile, feed: ListFeed) -> None:
    for number in (3, 7, 8, 50):
        feed.add(f"zebra {number}".encode(), number=number)
    finish(index)
    assert (column(index, "number"), found(index, "zebra")) == ([3, 7, 8, 50], 4)


def test_what_is_no_text_or_cannot_be_read_has_no_words(index: IndexFile, feed: ListFeed) -> None:
    feed.add(b"\0\0binary zebra")
    feed.add(None)
    feed.add(b"")
    finish(index)
    assert (column(index, "tokens"), found(index, "zebra")) == ([0, 0, 0], 0)


def test_a_large_entry_is_counted_by_the_text_a_turn_counts(tmp_path: Path, feed: ListFeed) -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text.split())

    content = b"seven words stand in this long line\n" * 90_000
    feed.add(content)
    index = IndexFile(tmp_path / "large.sqlite3", feed, count=count)
    finish(index)
    tokens = column(index, "tokens")
    index.close()
    assert counted == [content[:SAMPLE_BYTES].decode()]
    assert tokens == [estimate_entry_tokens(len(content), content[:SAMPLE_BYTES], count)]


def test_uses_before_entries_are_counted_too(index: IndexFile, feed: ListFeed) -> None:
    digest = Digest.of_content(b"late")
    feed.say(ToolReturned("1", Stored(digest, 4), 1))
    call = json.dumps({"sha256": digest.hex})
    feed.say(ModelReplied((ToolCall("1", "recall_cached_content", call),), "m", Stop.CALLS))
    finish(index)
    feed.add(b"late")
    feed.pins.add(digest)
    finish(index)
    assert (column(index, "uses"), column(index, "recalled"), column(index, "pinned")) == (
        [2],
        [2.0],
        [1],
    )
    assert index.connection.execute("SELECT * FROM members").fetchall() == [("c", 1)]


def test_an_output_that_was_folded_is_not_used_a_second_time_by_its_fold(
    index: IndexFile, feed: ListFeed
) -> None:
    """Four equal outputs, each folded, were eight uses in the list of the cache."""
    early = feed.add(b"early")
    late = Digest.of_content(b"late")
    for digest in (early, late) * 4:
        feed.say(ToolReturned("1", Stored(digest, 5), 1))
        feed.say(Folded("f", FoldKind.MARKER, PartRef(1), "", 1, 2, entries=(digest,)))
    finish(index)
    feed.add(b"late")
    finish(index)
    assert column(index, "uses") == [4, 4]


def test_a_conversation_has_an_entry_once_however_often_it_names_it(
    index: IndexFile, feed: ListFeed
) -> None:
    digest = feed.add(b"named")
    for conversation in ("c", "d", "c"):
        feed.say(ToolReturned("1", Stored(digest, 5), 1), conversation)
    finish(index)
    assert index.connection.execute("SELECT * FROM members").fetchall() == [("c", 1), ("d", 1)]


def test_changes_of_known_entries_are_taken_over(index: IndexFile, feed: ListFeed) -> None:
    one = feed.add(b"one")
    two = feed.add(b"two")
    finish(index)
    feed.pins.add(one)
    record, content = feed.entries.pop()
    index.refresh_entries([one, two])
    assert (column(index, "number"), column(index, "pinned")) == ([1], [1])
    gone = CacheRecord(
        record.number,
        record.blob,
        record.digest,
        3,
        0,
        1,
        2.0,
        record.about,
        (),
        EntryState.COLLECTED,
    )
    feed.entries.append((gone, content))
    index._insert_cache_records([gone], frozenset())
    assert column(index, "state") == [0, 1]


@pytest.mark.parametrize(
    ("fact", "texts"),
    [
        (UserSaid((Text("a"), Attachment("f", STORED[0]), Text("b"))), ["a", "b"]),
        (ModelReplied((Reasoning("thought"), Text("answer")), "m", Stop.END), ["answer"]),
        (Folded("f", FoldKind.HANDOVER, PartRef(1), "document", 1, 2), ["document"]),
        (Folded("f", FoldKind.MARKER, PartRef(1), "[CACHED]", 1, 2), []),
        (DocumentEdited("f", "edited", 1), ["edited"]),
        (TurnEnded(TurnEnd.DONE), []),
    ],
)
def test_what_a_search_over_messages_finds(fact: Fact, texts: list[str]) -> None:
    assert searchable_texts(fact) == texts


def recall(arguments: str) -> ModelReplied:
    return ModelReplied(
        (ToolCall("1", "builtin_context_cache.recall_cached_content", arguments),), "m", Stop.CALLS
    )


@pytest.mark.parametrize(
    ("fact", "uses"),
    [
        (UserSaid((Attachment("f", STORED[0]),)), [("attachment", DIGESTS[0])]),
        (
            ToolReturned(
                "1",
                STORED[0],
                1,
                images=(STORED[1],),
                changes=(FileChanged("p", DIGESTS[2], None),),
            ),
            [("output", DIGESTS[0]), ("image", DIGESTS[1]), ("change", DIGESTS[2])],
        ),
        (
            Folded("f", FoldKind.MARKER, PartRef(1), "", 1, 2, entries=(DIGESTS[4],)),
            [("fold", DIGESTS[4])],
        ),
        (recall(json.dumps({"sha256": DIGESTS[5].hex})), [("recall", DIGESTS[5])]),
        (recall('{"sha256": "abc"}'), []),
        (recall("not json"), []),
        (recall("[]"), []),
        (TurnEnded(TurnEnd.DONE), []),
    ],
)
def test_what_a_fact_refers_to(fact: Fact, uses: list[tuple[str, Digest]]) -> None:
    assert entries_used_by(fact) == uses
