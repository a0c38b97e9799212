"""What the journal and the index know of entries, and where lost ones still are."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop.engine.facts import (
    Attachment,
    Fact,
    ModelReplied,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store import lost_entries
from helix_desktop.store.cache_repair import KnownEntry
from helix_desktop.store.journal_file import JournalFile
from helix_desktop.store.lost_entries import EntryWitnesses, FoundContent

OUTPUT = Stored(Digest.of_content(b"output"), 6, 1)
PICTURE = Stored(Digest.of_content(b"picture"), 7, 0, "image/png")
NEVER_HERE = Digest.of_content(b"a hash that a model made up")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[JournalFile]:
    with closing(JournalFile(tmp_path / "journal.sqlite3")) as journal:
        recall = json.dumps({"sha256": NEVER_HERE.hex})
        calls = (ToolCall("1", "shell", "{}"), ToolCall("2", "recall_cached_content", recall))
        facts: list[Fact] = [
            UserSaid((Text("look at this"), Attachment("p.png", PICTURE))),
            ModelReplied(calls, "demo/demo", Stop.CALLS),
            ToolReturned("1", OUTPUT, 1, head="output"),
        ]
        journal.append_all_or_nothing("first", facts)
        journal.append_all_or_nothing("second", [ToolReturned("9", OUTPUT, 1)])
        yield journal


def write_index(path: Path, *entries: tuple[object, ...]) -> None:
    columns = "digest, tool, source, media, size, lines, time, state"
    with closing(sqlite3.connect(path)) as index:
        index.execute(f"CREATE TABLE entries({columns})")
        index.executemany("INSERT INTO entries VALUES(?, ?, ?, ?, ?, ?, ?, ?)", entries)
        index.commit()


def test_the_journal_tells_what_was_used_by_whom_and_as_what(
    tmp_path: Path, journal: JournalFile
) -> None:
    known = lost_entries.read_known_entries(tmp_path / "no index", EntryWitnesses(journal))
    assert set(known) == {OUTPUT.digest, PICTURE.digest}, (
        "a hash that is only named is not expected"
    )
    output = known[OUTPUT.digest]
    assert (output.about.tool, output.size, output.lines) == ("shell", 6, 1)
    assert output.conversations == ("first", "second")
    assert known[PICTURE.digest].about.media_type == "image/png"


def test_the_index_tells_the_source_and_what_nobody_used_but_not_what_was_collected(
    tmp_path: Path, journal: JournalFile
) -> None:
    unused = Digest.of_content(b"unused")
    collected = Digest.of_content(b"collected")
    write_index(
        tmp_path / "index",
        (OUTPUT.digest.raw, "shell", "make", "text/plain", 6, 1, 5.0, 0),
        (unused.raw, "fetch", "a page", "text/html", 60, 2, 6.0, 0),
        (collected.raw, "fetch", "another", "text/html", 60, 2, 6.0, 1),
    )
    known = lost_entries.read_known_entries(tmp_path / "index", EntryWitnesses(journal))
    assert known[OUTPUT.digest].about == EntryOrigin("shell", "make")
    assert known[OUTPUT.digest].conversations == ("first", "second")
    assert known[unused] == KnownEntry(EntryOrigin("fetch", "a page", "text/html"), 2, 6.0, 60)
    assert collected not in known


def test_in_a_shared_workspace_only_what_was_here_is_expected(
    tmp_path: Path, journal: JournalFile
) -> None:
    write_index(
        tmp_path / "index", (OUTPUT.digest.raw, "shell", "make", "text/plain", 6, 1, 5.0, 0)
    )
    witnesses = EntryWitnesses(journal, is_shared=True)
    known = lost_entries.read_known_entries(tmp_path / "index", witnesses)
    assert set(known) == {OUTPUT.digest}


def test_a_damaged_index_tells_nothing_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"nonsense" * 1000)
    assert lost_entries.read_known_entries(tmp_path / "index", lost_entries.NOBODY) == {}


def test_contents_are_found_in_each_place_once_and_only_if_their_hash_is_right(
    tmp_path: Path, journal: JournalFile
) -> None:
    in_file = b"the content of a file"
    in_history = "what another program recorded"
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "file").write_bytes(in_file)
    (tmp_path / "project" / "same size").write_bytes(b"x" * len(in_file))
    (tmp_path / "history.jsonl").write_text(json.dumps({"deep": [in_history]}) + "\n{torn")
    witnesses = EntryWitnesses(
        journal, (str(tmp_path / "project"),), histories=(tmp_path / "history.jsonl",)
    )
    contents = (b"output", in_file, in_history.encode())
    lost = {
        Digest.of_content(content): KnownEntry(EntryOrigin(), size=len(content))
        for content in contents
    }
    found = lost_entries.find_lost_contents(lost, tmp_path, witnesses)
    assert list(found) == [
        FoundContent(b"output", "the journal"),
        FoundContent(in_history.encode(), "the histories of other programs"),
        FoundContent(in_file, "the workspace's folders"),
    ]


def test_a_lost_entry_is_named_with_what_is_known_of_it() -> None:
    digest = OUTPUT.digest
    entry = KnownEntry(EntryOrigin("shell", "make"), size=12_000)
    describe = lost_entries.describe_lost_entry
    assert describe(digest, entry, {}) == (
        f"Lost: the entry {digest} (shell make, 12,000 bytes), which no conversation used."
    )
    used = replace(entry, conversations=("c1", "c2"))
    assert describe(digest, used, {"c1": "Build it"}).endswith("used in: Build it, c2.")
