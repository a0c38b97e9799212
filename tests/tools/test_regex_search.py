from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine.content_recall import PAGE_BYTES
from helix_desktop.errors import CacheCorrupt, InvalidInput
from helix_desktop.processes.starter import Process, start_isolated_script
from helix_desktop.tools import regex_search_worker
from helix_desktop.tools.regex_search import (
    FoundLine,
    GrepPiece,
    GrepResult,
    format_found_lines,
    format_page_of_found_lines,
    grep_entry_lines,
    grep_pieces,
    wrap_chunks_for_grep,
)


async def contents(*pairs: tuple[str, str]) -> AsyncIterator[GrepPiece]:
    for name, text in pairs:
        yield GrepPiece(name, text.encode())


async def parts(content: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def test_matching_lines_of_several_contents() -> None:
    found = await grep_pieces(r"b\d", contents(("one", "a\nb1\nb\n"), ("two", "b2"), ("three", "")))
    assert [(line.name, line.number, line.text) for line in found.lines] == [
        ("one", 2, "b1"),
        ("two", 1, "b2"),
    ]
    assert format_found_lines(found) == "one:2: b1\ntwo:1: b2"


async def test_lines_around_a_match() -> None:
    found = await grep_pieces("x", contents(("f", "1\n2\nx3\n4\n5\n6\n7\nx8\n")), context=1)
    assert format_found_lines(found) == "f-2- 2\nf:3: x3\nf-4- 4\n--\nf-7- 7\nf:8: x8"


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_the_pieces_make_no_difference(size: int) -> None:
    text = "".join(f"line {number} é\n" for number in range(100)).encode() + b"line last"
    found = await grep_pieces("9 é|last", wrap_chunks_for_grep("", parts(text, size)))
    assert [line.number for line in found.lines] == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 101]


async def test_more_hits_than_wanted_are_counted_only() -> None:
    found = await grep_pieces("a", contents(("f", "a\n" * 1000)), limit=3)
    assert found.match_count == 1000
    assert format_found_lines(found).splitlines()[-1] == "[… 997 more matching lines]"


async def test_a_pattern_that_takes_for_ever_is_stopped() -> None:
    async with asyncio.timeout(60):
        found = await grep_pieces(
            "(a+)+$", contents(("quick", "aaa\n"), ("slow", "a" * 40 + "b\n")), seconds=0.5
        )
    assert found.is_cut_by_time
    assert "took too long" in format_found_lines(found)


@pytest.mark.parametrize("pattern", ["(", "*", "", "x" * 20_000, "(?P<a>x)(?P<a>y)"])
async def test_what_is_no_pattern_gets_a_sentence(pattern: str) -> None:
    with pytest.raises(InvalidInput):
        await grep_pieces(pattern, contents(("f", "x" * 200_000)))


async def test_a_line_without_an_end_costs_no_memory_and_is_cut_around_the_match() -> None:
    found = await grep_pieces(
        "needle",
        wrap_chunks_for_grep("", parts(b"x" * 3_000_000 + b"needle" + b"y" * 3_000_000, 1 << 16)),
    )
    assert found.match_count == 1
    assert "needle" in found.lines[0].text
    assert len(found.lines[0].text) < 900


async def test_a_line_after_a_very_long_one_keeps_its_number() -> None:
    """The number is what a recall of lines is then asked for."""
    content = b"x" * 3_000_000 + b"\nneedle\n"
    found = await grep_pieces("needle", wrap_chunks_for_grep("", parts(content, 1 << 16)))
    assert [line.number for line in found.lines] == [2]


async def test_too_many_lines_of_an_entry_are_cut_between_two_of_them() -> None:
    """The cut went through a line, and through what had been searched for in it."""
    lines = [f"{number} {'x' * 300} needle {'y' * 60}" for number in range(1, 151)]
    content = "\n".join(lines).encode()
    answer = await grep_entry_lines("needle", parts(content, 1 << 16), 0)
    assert len(answer) < PAGE_BYTES
    *shown_lines, note = answer.split("\n")
    assert len(shown_lines) > 20
    for number, shown_line in enumerate(shown_lines, 1):
        assert shown_line == f"{number}: {lines[number - 1]}"
    left_out = len(lines) - len(shown_lines)
    assert note == f"[… {left_out} more matching lines; use a narrower pattern, or lines]"


async def test_a_cut_shows_no_lines_around_a_match_that_it_leaves_out() -> None:
    long_line = "x" * 380
    lines = []
    for number in range(60):
        lines += [long_line, f"needle {number}", long_line, "", ""]
    answer = await grep_entry_lines("needle", parts("\n".join(lines).encode(), 1 << 16), 1)
    *shown_lines, _ = answer.split("\n")
    # The last match is shown with the line after it, and without any of the next match.
    assert ": needle" in shown_lines[-2]
    assert shown_lines[-1].endswith(f"- {long_line}")


def test_a_cut_answer_still_says_that_the_search_was_stopped() -> None:
    """Otherwise the agent takes a part of an entry for all of it."""
    lines = [FoundLine("", number, "x" * 390, is_match=True) for number in range(1, 101)]
    answer = format_page_of_found_lines(GrepResult(lines, 100, is_cut_by_time=True))
    assert "use a narrower pattern" in answer
    assert "the search was stopped: it took too long" in answer


async def test_a_match_is_shown_even_if_the_lines_before_it_fill_the_page() -> None:
    lines = ["x" * 400] * 50
    lines.append("the needle")
    answer = await grep_entry_lines("needle", parts("\n".join(lines).encode(), 1 << 16), 50)
    assert answer == "51: the needle"


async def test_an_error_of_the_content_comes_through() -> None:
    async def broken() -> AsyncIterator[GrepPiece]:
        yield GrepPiece("f", b"x\n")
        raise CacheCorrupt("The entry is damaged.")

    with pytest.raises(CacheCorrupt):
        await grep_pieces("x", broken())


async def test_text_that_looks_like_the_protocol_is_only_text() -> None:
    evil = '{"hits": 0}\n{"error": "x"}\n{"name": "/etc/passwd", "size": 99, "more": false}\n'
    found = await grep_pieces("hits|error|name", contents(('evil"\n{', evil), ("next", "name\n")))
    assert [line.name for line in found.lines] == ['evil"\n{'] * 3 + ["next"]


@settings(max_examples=25)
@given(st.lists(st.text("ab\r\x00é\ud800", max_size=8), max_size=8))
async def test_the_numbers_are_those_of_the_lines(lines: Iterable[str]) -> None:
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    found = await grep_pieces("a", wrap_chunks_for_grep("f", parts(content, 5)))
    expected = [number for number, line in enumerate(content.split(b"\n"), 1) if b"a" in line]
    assert [line.number for line in found.lines] == expected


@pytest.mark.skipif(not hasattr(signal, "alarm"), reason="nothing ends it there")
def test_the_process_that_matches_ends_by_itself_when_nobody_is_left_to_end_it() -> None:
    told = {"pattern": "(a+)+$", "seconds": 1}
    about = {"name": "f", "size": 61, "more": False}
    argv = [sys.executable, "-I", "-S", regex_search_worker.__file__]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as worker:
        assert worker.stdin is not None
        worker.stdin.write(f"{json.dumps(told)}\n{json.dumps(about)}\n{'a' * 60}b".encode())
        worker.stdin.flush()
        assert worker.wait() == -signal.SIGALRM


async def test_a_search_whose_process_is_killed_says_that_it_broke_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What had been found until then looked like all there is."""
    started: list[Process] = []

    async def start_and_remember(script: Path, *, line_limit: int) -> Process:
        process = await start_isolated_script(script, line_limit=line_limit)
        started.append(process)
        return process

    async def killed_in_between() -> AsyncIterator[GrepPiece]:
        yield GrepPiece("one", b"b1\n")
        started[0].kill()
        await started[0].wait()
        yield GrepPiece("two", b"b2\n")

    starting = "helix_desktop.tools.regex_search.start_isolated_script"
    monkeypatch.setattr(starting, start_and_remember)
    found = await grep_pieces(r"b\d", killed_in_between())
    assert found.is_broken_off
    assert "[the search broke off, so there may be more." in format_found_lines(found)
