from __future__ import annotations

import pytest

from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.ports import About
from helix_desktop.store.workspace import Workspace

SHELL = About("shell", "cat log")


async def test_a_hit_in_a_long_entry_has_its_line(workspace: Workspace) -> None:
    lines = [f"line {number} of many words" for number in range(1, 30_000)]
    lines[25_000] = "here is the needle"
    stored = await workspace.cache.put("\n".join(lines).encode(), SHELL)
    await workspace.index.caught_up()
    (hit,) = await workspace.index.search("needle")
    assert (hit.digest, hit.line, hit.snippet) == (stored.digest, 25_001, "here is the needle")


async def test_an_entry_is_found_once_however_often_it_says_it(workspace: Workspace) -> None:
    await workspace.cache.put(b"needle in a line\n" * 20_000, SHELL)
    await workspace.index.caught_up()
    assert len(await workspace.index.search("needle")) == 1


async def test_where_no_place_has_every_word_one_with_some_is_shown(workspace: Workspace) -> None:
    await workspace.cache.put(b"only apples here", SHELL)
    await workspace.cache.put(b"only pears here", SHELL)
    await workspace.index.caught_up()
    assert len(await workspace.index.search("apples pears")) == 2
    assert len(await workspace.index.search("apples here")) == 1


async def test_the_better_place_comes_first(workspace: Workspace) -> None:
    await workspace.cache.put(b"needle once, and many other words besides, on and on and on", SHELL)
    best = await workspace.cache.put(b"needle needle needle", SHELL)
    await workspace.index.caught_up()
    assert (await workspace.index.search("needle"))[0].digest == best.digest


async def test_accents_and_scripts_without_blanks(workspace: Workspace) -> None:
    await workspace.cache.put("café au lait, 東京タワー".encode(), SHELL)
    await workspace.index.caught_up()
    for query in ("cafe", "CAFÉ", "京タ", "東京タワー"):
        assert len(await workspace.index.search(query)) == 1, query
    assert await workspace.index.search("京東") == ()


async def test_utf_16_is_searched_too(workspace: Workspace) -> None:
    await workspace.cache.put("a needle in UTF-16\n".encode("utf-16"), SHELL)
    await workspace.index.caught_up()
    (hit,) = await workspace.index.search("needle")
    assert hit.snippet == "a needle in UTF-16"


async def test_what_is_damaged_sends_nobody_there(workspace: Workspace) -> None:
    stored = await workspace.cache.put(b"a needle", SHELL)
    await workspace.journal.append("c", [UserSaid((Text("a needle said"),))])
    await workspace.index.caught_up()
    cache, thread = workspace._stores.cache, workspace._stores.thread
    await thread.run(
        cache.level.write, [(b"b" + cache.record(stored.digest).blob.to_bytes(8, "big") + bytes(4), b"\0a noodle")]
    )
    connection = workspace._stores.journal.connection
    await thread.run(connection.execute, "UPDATE facts SET fact = replace(fact, 'needle', 'noodle')")
    assert await workspace.index.search("needle") == ()


@pytest.mark.parametrize("query", ['"', "a*b", "(", "NEAR(a b)", "text:x", "-x", "x AND", "'", "*", "^x", "a\0b"])
async def test_no_query_is_an_error(workspace: Workspace, query: str) -> None:
    await workspace.cache.put(b"something", SHELL)
    await workspace.index.caught_up()
    assert await workspace.index.search(query) == ()


async def test_a_broken_index_is_made_anew(workspace: Workspace) -> None:
    await workspace.cache.put(b"a needle", SHELL)
    await workspace.index.caught_up()
    await workspace.index._writer.run(workspace.index._file.connection.execute, "DROP TABLE words")
    await workspace.index.search("needle")
    await workspace.index.caught_up()
    assert len(await workspace.index.search("needle")) == 1
