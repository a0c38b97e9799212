"""Recall: by hash, range, pattern, search and fold, page by page, with errors that help."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine import content_recall
from helix_desktop.engine.content_recall import WantedContent
from helix_desktop.engine.facts import FoldKind, Spent, Stored, ToolReturned
from helix_desktop.engine.ports import CacheEntry, EntryOrigin, TokenCounter
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import AmbiguousName, InvalidInput, ModelFailed, NotFound
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryIndex, MemoryJournal
from tests.engine.keeping import Quarters, Writer, empty, inquiry, keeping
from tests.engine.test_automatic_folding import worked

TOKENS = Quarters()


async def cached(*texts: str) -> tuple[MemoryCache, list[Stored]]:
    cache = MemoryCache()
    return cache, [
        await cache.store_content(text.encode(), EntryOrigin("read", f"file {index}"))
        for index, text in enumerate(texts)
    ]


async def test_by_the_whole_hash_and_by_the_first_digits() -> None:
    cache, (entry,) = await cached("one\ntwo\n")
    digits = entry.digest.hex
    marker = f'[CACHED] recall_cached_content("{digits}")'
    for name in (digits, digits[:8], f' "{digits.upper()}" ', f"sha256:{digits}", marker):
        assert await content_recall.recall_entry(cache, TOKENS, name) == "one\ntwo"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("10-40", (10, 40)),
        ("10:40", (10, 40)),
        ("10, 40", (10, 40)),
        ("L10-L40", (10, 40)),
        ("10-", (10, 0)),
        ("10:", (10, 0)),
        ("10", (10, 10)),
        ("", (1, 0)),
    ],
)
def test_lines_are_read_as_models_write_them(words: str, meant: tuple[int, int]) -> None:
    assert content_recall.parse_line_range(words) == meant


async def test_a_hash_that_is_none_unknown_or_ambiguous() -> None:
    cache, entries = await cached(*(f"text {number}" for number in range(600)))
    with pytest.raises(InvalidInput, match="'xyz' is not a hash"):
        await content_recall.recall_entry(cache, TOKENS, "xyz")
    with pytest.raises(InvalidInput, match="at least the first 4"):
        await content_recall.recall_entry(cache, TOKENS, "abc")
    known = entries[0].digest.hex
    with pytest.raises(NotFound, match=f"Near it is {known}"):
        await content_recall.recall_entry(
            cache, TOKENS, known[:-4] + ("0000" if known[-4:] != "0000" else "1111")
        )
    with pytest.raises(NotFound, match="search_cached_content"):
        await content_recall.recall_entry(cache, TOKENS, "0" * 64)
    starts = [entry.digest.hex[:4] for entry in entries]
    twice = [start for start in starts if starts.count(start) > 1]
    if twice:
        with pytest.raises(AmbiguousName):
            await content_recall.recall_entry(cache, TOKENS, twice[0])


async def test_lines_and_pages_together_give_the_whole_entry() -> None:
    text = "\n".join(f"line number {number} of the entry" for number in range(1, 4_001))
    cache, (entry,) = await cached(text)
    lines_10_to_12 = WantedContent(lines="10-12")
    assert await content_recall.recall_entry(cache, TOKENS, entry.digest.hex, lines_10_to_12) == (
        "[lines 10-12 of 4,000]\nline number 10 of the entry\nline number 11 of the entry\nline number 12 of the entry"
    )
    pages = []
    lines = ""
    while True:
        wanted = WantedContent(lines=lines)
        page = await content_recall.recall_entry(cache, TOKENS, entry.digest.hex, wanted)
        assert TOKENS.count_tokens(page) < 4_000
        pages += [line for line in page.splitlines() if line.startswith("line number")]
        more = re.search(r'go on with lines="(\d+-)"', page)
        if more is None:
            break
        lines = more[1]
    assert "\n".join(pages) == text


@pytest.mark.parametrize(
    "content", ["x" * 5_000_000, "", "\n", "no newline at the end", "a\n\n\nb"]
)
async def test_entries_of_any_shape(content: str) -> None:
    cache, (entry,) = await cached(content)
    page = await content_recall.recall_entry(cache, TOKENS, entry.digest.hex)
    assert page
    assert TOKENS.count_tokens(page) < 4_000


class Watched(MemoryCache):
    """Adds up what is read of entries."""

    taken = 0

    async def read_range(self, digest: Digest, start: int, length: int) -> bytes:
        self.taken += length
        return await super().read_range(digest, start, length)


@given(
    st.lists(
        st.sampled_from(["", "a", "ü" * 40, "x" * 900, " " * 30_000, "y" * 70_000]),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 45),
    st.integers(0, 45),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_lines_of_a_page_are_those_of_the_entry(
    lines: list[str], first: int, more: int, ended: bool
) -> None:
    async def read() -> None:
        content = "\n".join(lines) + "\n" * ended
        cache, (entry,) = await cached(content)
        there = (
            content.split("\n")[: -1 if content.endswith("\n") else None]
            if content
            else ["(empty)"]
        )
        found = await content_recall.read_entry_lines(cache, entry, first, first + more)
        wanted = there[first - 1 : first + more] if content else there
        if not wanted:
            assert not found
            return
        shown, until = content_recall.cut_to_page_with_last_line_number(TOKENS, found, first)
        assert first <= until <= first + more
        whole = "\n".join(wanted[: until - first + 1])
        assert (
            shown == whole
            if len(whole) <= content_recall.PAGE_BYTES
            else shown.startswith(whole[:2_000])
        )

    asyncio.run(read())


async def test_no_more_is_read_than_a_page_needs() -> None:
    cache = Watched()
    entry = await cache.store_content(
        b"a line of some length\n" * 400_000, EntryOrigin("read", "long")
    )
    assert len(await content_recall.read_entry_lines(cache, entry, 1, 20)) == 20
    assert cache.taken <= 2 * content_recall.PAGE_BYTES
    cache.taken = 0
    assert await content_recall.read_entry_lines(cache, entry, 60_000, 60_000) == [
        "a line of some length"
    ]
    assert cache.taken < 3 * content_recall.PIECE_BYTES
    assert await content_recall.read_entry_lines(cache, entry, 400_001, 0) == []


async def test_lines_of_nothing_but_space_are_not_passed_over() -> None:
    cache, (entry,) = await cached("\n".join([" " * 9_000] * 9 + ["the end"]))
    pages = []
    lines = ""
    for _ in range(10):
        wanted = WantedContent(lines=lines)
        page = await content_recall.recall_entry(cache, TOKENS, entry.digest.hex, wanted)
        pages.append(page)
        more = re.search(r'go on with lines="(\d+-)"', page)
        lines = more[1] if more else ""
        if not lines:
            break
    end = 0
    for page in pages:
        lines_of_page = re.match(r"\[lines (\d+)-(\d+) of 10\]", page)
        assert lines_of_page
        assert int(lines_of_page[1]) == end + 1
        end = int(lines_of_page[2])
    assert end == 10
    assert "the end" in pages[-1]


async def test_lines_that_are_not_there_or_cannot_be_read() -> None:
    cache, (entry,) = await cached("one\ntwo\n")
    with pytest.raises(NotFound, match="There is no line 9 in the entry; the last one is 2"):
        await content_recall.recall_entry(cache, TOKENS, entry.digest.hex, WantedContent(lines="9"))
    for lines in ("nine", "9-3", "-4"):
        with pytest.raises(InvalidInput):
            await content_recall.recall_entry(
                cache, TOKENS, entry.digest.hex, WantedContent(lines=lines)
            )
    assert "two" in await content_recall.recall_entry(
        cache, TOKENS, entry.digest.hex, WantedContent(lines="2-")
    )


async def test_a_pattern_runs_where_it_can_be_killed() -> None:
    cache, (entry,) = await cached("one\ntwo\nthree\n")

    async def grep(pattern: str, pieces: AsyncIterator[bytes], context: int) -> str:
        whole = b"".join([piece async for piece in pieces]).decode()
        return (
            "\n".join(line for line in whole.splitlines() if re.search(pattern, line))
            + "!" * context
        )

    assert (
        await content_recall.recall_entry(
            cache,
            TOKENS,
            entry.digest.hex,
            WantedContent(pattern="^t", lines_around_match=1),
            grep=grep,
        )
        == "two\nthree!"
    )
    assert "no line matches" in await content_recall.recall_entry(
        cache, TOKENS, entry.digest.hex, WantedContent(pattern="zzz"), grep=grep
    )
    with pytest.raises(InvalidInput):
        await content_recall.recall_entry(
            cache, TOKENS, entry.digest.hex, WantedContent(pattern="^t")
        )


async def test_search_says_hash_tool_source_and_a_snippet() -> None:
    journal = MemoryJournal()
    cache = MemoryCache()
    entry = await cache.store_content(b"the needle in the hay", EntryOrigin("read", "hay.txt"))
    index = MemoryIndex(journal, cache)
    found = await content_recall.search_entries(index, "needle")
    assert entry.digest.hex in found
    assert "hay.txt" in found
    assert "nothing in the cache contains" in await content_recall.search_entries(
        index, "haystacks_of_gold"
    )
    with pytest.raises(InvalidInput):
        await content_recall.search_entries(index, "  ")


async def test_compaction_of_an_entry() -> None:
    cache, (entry,) = await cached("much text")
    spent: list[Spent] = []
    writer = Writer("fast", lambda _: "little text")
    assert (
        await content_recall.compact_entry(
            cache, writer, entry.digest.hex[:10], "the numbers", inquiry(spent)
        )
        == "little text"
    )
    assert "the numbers" in str(writer.requests[0].messages)
    assert spent[0].purpose == "compaction"
    assert "found nothing" in await content_recall.compact_entry(
        cache, Writer("fast", empty), entry.digest.hex, "x", inquiry(spent)
    )


async def test_history_of_a_fold_is_its_messages_word_for_word() -> None:
    kept = await keeping(window=1_000_000)
    await kept.say("the task itself, word for word")
    await worked(kept, 12, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    (fold,) = kept.folds()
    text = await content_recall.recall_folded_messages(
        kept.conversation.state, kept.cache, TOKENS, f'"{fold.fold}"'
    )
    assert "[4] user: the task itself, word for word" in text
    assert "call of read" in text
    assert "recall_cached_content(" in text
    assert TOKENS.count_tokens(text) < 4_000


async def test_short_outputs_are_recalled_word_for_word_though_the_facts_do_not_hold_them() -> None:
    kept = await keeping(window=1_000_000)
    await kept.say("the task itself")
    await kept.step("the port is 4711\nand it is open")
    await worked(kept, 12, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    (fold,) = kept.folds()
    outputs = [
        each for each in kept.conversation.state.facts if isinstance(each.fact, ToolReturned)
    ]
    assert outputs
    assert not any(each.fact.head for each in outputs if isinstance(each.fact, ToolReturned))
    text = await content_recall.recall_folded_messages(
        kept.conversation.state, kept.cache, TOKENS, fold.fold
    )
    assert "the port is 4711\nand it is open" in text


async def test_a_long_history_goes_on_in_an_entry() -> None:
    kept = await keeping(window=1_000_000)
    await kept.say("a task " * 3_000)
    await worked(kept, 40, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    (fold,) = kept.folds(FoldKind.HANDOVER)
    text = await content_recall.recall_folded_messages(
        kept.conversation.state, kept.cache, TOKENS, fold.fold
    )
    assert TOKENS.count_tokens(text) < 4_000
    more = re.search(r'recall_cached_content\("([0-9a-f]{64})", lines="(\d+-)"\)\]$', text)
    assert more is not None
    assert await content_recall.recall_entry(
        kept.cache, TOKENS, more[1], WantedContent(lines=more[2])
    )


async def test_words_are_found_in_messages_calls_and_outputs_behind_summaries() -> None:
    kept = await keeping(window=1_000_000)
    await kept.say("the port is 4711, and it must not change")
    await kept.step("the log begins\nbroken_pipe here\nthe log ends")
    await worked(kept, 12, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    (fold,) = kept.folds()

    async def found(words: str, name: str = "") -> str:
        return await content_recall.recall_folded_messages(
            kept.conversation.state, kept.cache, TOKENS, name, words
        )

    entries = len(list(kept.cache.all_contents()))
    assert "[4] user: the port is 4711, and it must not change" in await found("4711")
    said = await found("broken_pipe", fold.fold)
    assert "the log begins\nbroken_pipe here\nthe log ends" in said
    entry = re.search(r'recall_cached_content\("([0-9a-f]{12})"\)', said)
    assert entry is not None
    assert "broken_pipe" in await content_recall.recall_entry(kept.cache, TOKENS, entry[1])
    assert "none of these words" in await found("nowhere_at_all")
    assert len(list(kept.cache.all_contents())) == entries  # looking stores nothing


async def test_outputs_too_long_to_be_searched_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = await keeping(window=1_000_000)
    await kept.say("look at it")
    await worked(kept, 12, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    monkeypatch.setattr(content_recall, "FIND_BYTES", 0)
    text = await content_recall.recall_folded_messages(
        kept.conversation.state, kept.cache, TOKENS, "", "nowhere_at_all"
    )
    assert re.search(
        r"\[outputs too long to be searched here: [1-9]\d*; search_cached_content finds words in them\]",
        text,
    )


async def test_of_equal_passages_behind_summaries_the_newest_comes_first() -> None:
    kept = await keeping(window=1_000_000)
    await kept.say("the limit is 10")
    await worked(kept, 6, 300)
    await kept.say("the limit is 20")
    await worked(kept, 12, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    text = await content_recall.recall_folded_messages(
        kept.conversation.state, kept.cache, TOKENS, "", "limit"
    )
    assert text.index("the limit is 20") < text.index("the limit is 10")


async def test_what_the_view_still_shows_comes_after_what_only_the_history_has() -> None:
    kept = await keeping(window=1_000_000)
    await kept.say("begin")
    filler = "\n".join(f"{number} filler" for number in range(40))
    shown = [f"the limit is {number}" for number in range(20, 24)]
    await kept.step(f"{filler}\nthe limit is 10\n{filler}")
    await kept.step(f"\n{filler}\n".join(shown))
    await worked(kept, 12, 300)
    await kept.step("\n".join(shown))
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    text = await content_recall.recall_folded_messages(
        kept.conversation.state, kept.cache, TOKENS, "", "limit is"
    )
    assert "the limit is 10" in text


async def test_what_an_earlier_recall_brought_is_not_searched_beside_the_message_itself() -> None:
    kept = await keeping(window=1_000_000)
    await kept.say("begin")
    await kept.step("the pool holds 40 connections")
    await kept.step(
        "x\nthe pool holds 40 connections\ny", tool="recall_history", arguments='{"find": "pool"}'
    )
    await worked(kept, 12, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    text = await content_recall.recall_folded_messages(
        kept.conversation.state, kept.cache, TOKENS, "", "pool holds"
    )
    assert text.count("the pool holds 40 connections") == 1
    assert "of recall_cached_content(" in text
    assert "recall_history" not in text


async def test_a_fold_that_is_not_there_names_those_that_are() -> None:
    kept = await keeping(window=1_000_000)
    await kept.say("a task")
    await worked(kept, 12, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    with pytest.raises(NotFound, match="handover-99") as error:
        await content_recall.recall_folded_messages(
            kept.conversation.state, kept.cache, TOKENS, "handover-99"
        )
    assert kept.folds()[0].fold in str(error.value)


async def test_a_hanging_model_does_not_hold_a_compaction_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(content_recall, "COMPACT_SECONDS", 0.02)
    cache, (entry,) = await cached("much text")
    with pytest.raises(ModelFailed, match="did not finish"):
        await asyncio.wait_for(
            content_recall.compact_entry(
                cache, Writer("fast", hangs=True), entry.digest.hex, "x", inquiry()
            ),
            60,
        )


async def test_an_entry_comes_back_whole_where_that_is_cheaper_than_another_request() -> None:
    text = "\n".join(f"line number {number} of the entry" for number in range(1, 401))
    cache, (entry,) = await cached(text)
    size = TOKENS.count_tokens(text)
    assert size > content_recall.PAGE_TOKENS
    assert (
        await content_recall.recall_entry(
            cache, TOKENS, entry.digest.hex, WantedContent(whole_tokens=size)
        )
        == text
    )
    outline = await content_recall.recall_entry(
        cache, TOKENS, entry.digest.hex, WantedContent(whole_tokens=size - 1)
    )
    assert TOKENS.count_tokens(outline) < content_recall.PAGE_TOKENS
    head, _, rest = outline.partition("[the rest, by line:]\n")
    last = (
        int(head.splitlines()[-2].split()[2])
        if head.endswith("\n\n")
        else int(head.splitlines()[-1].split()[2])
    )
    ranges = [
        tuple(map(int, found))
        for found in re.findall(r"^(\d+)-(\d+): line number", rest, re.MULTILINE)
    ]
    assert ranges[0][0] == last + 1
    assert ranges[-1][1] == 400
    assert rest.endswith(f'[go on with lines="{last + 1}-"]')


class Uncounted:
    """For texts whose tokens nobody should have to count."""

    def count_tokens(self, text: str) -> int:
        raise AssertionError(text[:80])


async def test_tokens_are_counted_only_where_that_decides_and_nobody_knows_them() -> None:
    cache, (short, long) = await cached("a word\n" * 100, "a longer line of words\n" * 200)
    assert (
        await content_recall.recall_entry(
            cache, Uncounted(), short.digest.hex, WantedContent(whole_tokens=700)
        )
        == "a word\n" * 99 + "a word"
    )

    class Counted(MemoryCache):
        tokens = 0

        async def describe_entry(self, digest: Digest, beginning: int = 0) -> CacheEntry:
            return replace(await super().describe_entry(digest, beginning), tokens=self.tokens)

    async def known(tokens: int, counter: TokenCounter) -> str:
        counted = Counted()
        counted.tokens = tokens
        await counted.store_content(await cache.read_content(long.digest), EntryOrigin("read"))
        return await content_recall.recall_entry(
            counted, counter, long.digest.hex, WantedContent(whole_tokens=1_400)
        )

    whole = "a longer line of words\n" * 199 + "a longer line of words"
    assert await known(1_400, Uncounted()) == whole
    assert "[go on with lines=" in await known(1_401, TOKENS)
    assert await known(0, TOKENS) == whole, "nobody knows them, so they are counted"


async def test_an_outline_names_the_signatures_by_line() -> None:
    body = "\n".join(
        f"def function_{number}(argument):\n" + "    work(argument)\n" * 40 for number in range(40)
    )
    cache, (entry,) = await cached(body)
    outline = await content_recall.recall_entry(cache, TOKENS, entry.digest.hex)
    lines = body.split("\n")
    named = re.findall(
        r"^(\d+): (def function_\d+)", outline.partition("by line:]")[2], re.MULTILINE
    )
    assert len(named) > 10
    assert all(lines[int(number) - 1].startswith(signature) for number, signature in named)


async def test_several_entries_are_recalled_in_one_call() -> None:
    cache, entries = await cached("alpha one\nalpha two", "beta\n" * 3_000, "gamma")
    names = [entry.digest.hex for entry in entries]
    markers = "\n".join(f'[CACHED] recall_cached_content("{name}")' for name in names)
    for asked in (", ".join(names), " ".join(name[:12] for name in names), markers):
        answer = await content_recall.recall_entries(cache, TOKENS, asked)
        for name in names:
            assert f"[{name[:12]}]" in answer
        assert "alpha one\nalpha two" in answer
        assert "gamma" in answer
        assert TOKENS.count_tokens(answer) < content_recall.WHOLE_TOKENS
    with_words = await content_recall.recall_entries(
        cache, TOKENS, ",".join(names), WantedContent(words="alpha")
    )
    assert "alpha two" in with_words
    assert with_words.count("none of these words") == 2
    one = await content_recall.recall_entries(cache, TOKENS, names[0])
    assert one == await content_recall.recall_entry(cache, TOKENS, names[0])


async def test_an_unknown_entry_among_several_hides_no_other() -> None:
    cache, (entry,) = await cached("known")
    answer = await content_recall.recall_entries(cache, TOKENS, f"{entry.digest.hex}, {'0' * 64}")
    assert "known" in answer
    assert f"No entry has the hash {'0' * 64}" in answer
    many = ", ".join(f"{number:064x}" for number in range(content_recall.MOST_AT_ONCE + 1))
    with pytest.raises(InvalidInput, match="too many for one call"):
        await content_recall.recall_entries(cache, TOKENS, many)
    with pytest.raises(InvalidInput, match="one entry at a time"):
        await content_recall.recall_entries(
            cache, TOKENS, f"{entry.digest.hex} {'0' * 64}", WantedContent(lines="1-2")
        )
