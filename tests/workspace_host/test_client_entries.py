"""The cache page's questions about a workspace elsewhere have the answers of the workspace itself."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

from helix_desktop.engine.cache_entry_rows import EntryFilter, EntryRow, EntrySort
from helix_desktop.engine.facts import Stored, Text
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, NotFound
from helix_desktop.workbench import Workbench
from helix_desktop.workspace_host import client_entries
from helix_desktop.workspace_host.client_workspace import ClientWorkspace
from helix_desktop.workspace_host.host_interface import WorkspaceDescription
from tests.workspace_host.test_client_workspace import client, is_done, line, until

__all__ = ["client", "line"]


async def test_they_are_the_same_as_in_the_workspace(
    client: ClientWorkspace, bench: Workbench
) -> None:
    first = await client.attach_content("a.txt", b"a gooseberry", "text/plain")
    await client.attach_content("b.txt", b"a plum", "text/plain")
    await bench.workspace.index.wait_until_indexed()
    digest = first.stored.digest
    here = client.catalogue
    there = bench.catalogue
    chosen = EntryFilter()
    order = {"sort": EntrySort.SIZE, "descending": True, "offset": 0, "limit": 10}
    listed = await here.index.entries_page(chosen, **order)  # type: ignore[arg-type]
    assert listed == list(await there.index.entries_page(chosen, **order))  # type: ignore[arg-type]
    assert len(listed) == await here.index.count_entries(chosen) == 2
    assert await here.index.compute_figures() == await there.index.compute_figures()
    assert list(await here.index.count_tools()) == list(await there.index.count_tools())
    assert await here.index.find_entry_row(digest) == await there.index.find_entry_row(digest)
    assert await here.index.find_entry_row(Digest.of_content(b"none")) is None
    assert list(await here.index.find_entry_uses(digest)) == []
    hits = await here.index.search_index("gooseberry", entries_only=True)
    assert [hit.digest for hit in hits] == [digest]


async def test_messages_are_found_too(client: ClientWorkspace, bench: Workbench) -> None:
    session = await client.start_users_conversation()
    session.send_message((Text("a gooseberry, please"),))
    await until(lambda: is_done(session), client)
    await bench.workspace.index.wait_until_indexed()
    hits = await client.catalogue.index.search_index("gooseberry please")
    assert all(time.time() - hit.time < 600 for hit in hits)
    assert {(hit.conversation, hit.digest) for hit in hits} == {(session.id, None)}
    assert await client.catalogue.index.search_index("gooseberry", entries_only=True) == []


async def test_an_entry_is_found_pinned_and_verified(
    client: ClientWorkspace, bench: Workbench
) -> None:
    attached = await client.attach_content("a.txt", b"a gooseberry", "text/plain")
    await bench.workspace.index.wait_until_indexed()
    digest = attached.stored.digest
    assert await client.catalogue.cache.resolve_prefix(digest.hex[:8]) == digest
    await client.catalogue.cache.verify_entry(digest)
    await client.catalogue.cache.pin_entry(digest)
    row = await bench.catalogue.index.find_entry_row(digest)
    assert row is not None
    assert row.pinned
    with pytest.raises(NotFound):
        await client.catalogue.cache.resolve_prefix("00000000")
    with pytest.raises(ActionRefused):
        await client.catalogue.content_forgetter(entries=[digest])


@pytest.mark.parametrize("time", [math.nan, math.inf, -1.0, 1e300])
def test_a_row_of_a_host_that_lies_can_be_drawn(time: float) -> None:
    stored = Stored(Digest.of_content(b"x"), 1, 1, "text/plain")
    row = EntryRow(stored, EntryOrigin("t" * 10_000, "s" * 10_000_000), 1, 1, time, recalled=time)
    shown = client_entries._shortened_row(row)
    assert (shown.time, shown.recalled) == (0.0, 0.0)
    assert len(shown.about.source) == len(shown.about.tool) == client_entries.LONGEST_TEXT
    honest = replace(row, about=EntryOrigin("read_file", "a.txt"), time=1.0, recalled=0.0)
    assert client_entries._shortened_row(honest) == honest


@pytest.mark.parametrize("time", [math.nan, math.inf, -1.0, 1e300])
async def test_an_end_that_no_clock_shows_is_none(client: ClientWorkspace, time: float) -> None:
    client._description = WorkspaceDescription(everything_allowed_until=time)
    assert client.everything_allowed_until == 0.0
