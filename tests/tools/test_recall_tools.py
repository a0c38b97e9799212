from __future__ import annotations

import pytest

from helix_desktop.engine.content_recall import LINES_TOKENS as PAGE_TOKENS
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from tests.tools.world import Words, World


async def stored(here: World, text: str, source: str = "a.txt") -> str:
    return (
        await here.cache.store_content(text.encode(), EntryOrigin("read_file", source))
    ).digest.hex


async def test_a_short_entry_comes_back_as_it_was(here: World) -> None:
    name = await stored(here, "one\ntwo\n")
    assert await here.said("recall_cached_content", sha256=name) == "one\ntwo"
    assert await here.said("recall_cached_content", sha256=f' "{name[:8].upper()}" ') == "one\ntwo"


async def test_a_long_entry_comes_back_page_by_page(here: World) -> None:
    lines = [f"line {number} {'x' * (number % 50)}" for number in range(1, 5001)]
    name = await stored(here, "\n".join(lines))
    seen = []
    wanted = ""
    while True:
        said = await here.said("recall_cached_content", sha256=name, lines=wanted)
        assert Words().count_tokens(said) <= PAGE_TOKENS + 100
        seen += [line for line in said.splitlines() if line.startswith("line ")]
        rest = said.rpartition('[go on with lines="')[2]
        if rest == said:
            break
        wanted = rest.partition('"')[0]
    assert seen == lines


@pytest.mark.parametrize(
    ("lines", "shown"),
    [("2-3", "2\n3"), ("4", "4"), ("5-", "5"), (" 1 - 2 ", "1\n2")],
)
async def test_some_lines(here: World, lines: str, shown: str) -> None:
    name = await stored(here, "1\n2\n3\n4\n5\n")
    assert (await here.said("recall_cached_content", sha256=name, lines=lines)).partition("\n")[
        2
    ] == shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sha256": "0" * 64}, "No entry has"),
        ({"sha256": "abc"}, "is not a hash"),
        ({"sha256": "../../etc/passwd"}, "is not a hash"),
        ({"sha256": "x" * 10_000_000}, "is not a hash"),
        ({"sha256": "ffffffff"}, "No entry"),
        ({"sha256": "", "lines": "1"}, "is not a hash"),
        ({"lines": "7-9"}, "no line 7"),
        ({"lines": "9-7"}, "before"),
        ({"lines": "a"}, "is not a valid line range"),
        ({"grep": "("}, "not a valid regular expression"),
    ],
)
async def test_what_cannot_be_recalled_says_why(
    here: World, arguments: dict[str, str], words: str
) -> None:
    name = await stored(here, "1\n2\n3\n")
    said = await here.said("recall_cached_content", **{"sha256": name, **arguments})
    assert words in said
    assert len(said) < 500


async def test_matching_lines(here: World) -> None:
    name = await stored(here, "".join(f"{number}\n" for number in range(3_000_00)))
    said = await here.said("recall_cached_content", sha256=name, grep="^12345$")
    assert said == "12344- 12343\n12345- 12344\n12346: 12345\n12347- 12346\n12348- 12347"
    said = await here.said("recall_cached_content", sha256=name, find="the 12345")
    assert said.startswith("[lines 12336-12356 of 300,000]\n12335\n")
    assert "\n[lines 112336-112356 of 300,000]\n" in said
    assert said.endswith('212346; go on with lines="112357-"]')


async def test_a_line_longer_than_a_page_is_cut_and_that_is_said(here: World) -> None:
    name = await stored(here, "x" * 1_000_000 + "\nend\n")
    said = await here.said("recall_cached_content", sha256=name)
    assert "longer than a page" in said
    assert Words().count_tokens(said) < PAGE_TOKENS + 100


async def test_search_names_the_entries(here: World) -> None:
    name = await stored(here, "nothing\nthe needle here\n", "b.txt")
    assert (await here.said("search_cached_content", query="needle")).startswith(
        f"{name}  read_file b.txt  line 2\n"
    )
    assert "nothing in the cache contains" in await here.said("search_cached_content", query="hay")
    assert "query is needed" in await here.said("search_cached_content", query=" ")


async def test_compacting_and_history_are_offered_where_somebody_does_them(here: World) -> None:
    async def compact(digest: Digest, keep: str) -> str:
        return f"{digest.short_hex}: {keep}"

    async def history(fold: str, words: str) -> str:
        return f"{fold}, {words}"

    name = await stored(here, "long")
    here.box = here.kit.build_toolbox(compact=compact, history=history)
    assert (
        await here.said("compact_cached_content", sha256=name, keep="all")
        == f"{Digest.from_hex(name).short_hex}: all"
    )
    assert await here.said("recall_history", fold="f1") == "f1, "
    assert await here.said("recall_history", find="a word") == ", a word"
