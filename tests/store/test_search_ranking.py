"""Which of the places that a search found comes first: what was wrong on recorded
sessions of agents, each in small.
"""

from __future__ import annotations

import re

import pytest

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.search_query import stem_of_word
from helix_desktop.store import search_ranking
from helix_desktop.store.search_ranking import HANDOVER
from helix_desktop.store.search_words import NOTES
from helix_desktop.store.stored_workspace import StoredWorkspace

LINES = "some other line of the file\n" * 40
TRACE = f"{LINES}raise ConfigError(name, wrapper)\n{LINES}"


async def _search(workspace: StoredWorkspace, query: str) -> list[EntryOrigin]:
    await workspace.index.wait_until_indexed()
    return [hit.about for hit in await workspace.index.search_index(query, entries_only=True)]


@pytest.mark.parametrize(
    "tool",
    [
        "recall_cached_content",
        "mcp__cache__search_cached_content",
        "recall_history",
        HANDOVER,
        NOTES,
    ],
)
async def test_an_original_comes_before_what_was_copied_from_it(
    workspace: StoredWorkspace, tool: str
) -> None:
    original = EntryOrigin("read_file", "src/config.py")
    await workspace.cache.store_content(TRACE.encode(), original)
    copy = EntryOrigin(tool, "ConfigError wrapper")
    await workspace.cache.store_content(
        b"raise ConfigError(name, wrapper)\nConfigError wrapper\n", copy
    )
    assert await _search(workspace, "ConfigError wrapper") == [original, copy]


async def test_a_page_of_the_history_is_no_copy_where_no_output_has_its_line(
    workspace: StoredWorkspace,
) -> None:
    file = EntryOrigin("read_file", "src/config.py")
    await workspace.cache.store_content(
        f"{LINES}class ConfigError: has no wrapper\n{LINES}".encode(), file
    )
    said = EntryOrigin("recall_history", "message 12")
    await workspace.cache.store_content(f"{LINES}no ConfigError or wrapper\n{LINES}".encode(), said)
    assert await _search(workspace, "ConfigError wrapper") == [said, file]


@pytest.mark.parametrize("tool", [HANDOVER, NOTES])
async def test_an_output_that_lacks_one_word_comes_before_a_list_that_has_all(
    workspace: StoredWorkspace, tool: str
) -> None:
    original = EntryOrigin("read_file", "src/config.py")
    await workspace.cache.store_content(TRACE.encode(), original)
    details = EntryOrigin(tool, "details of a conversation")
    names = "\n".join(f"name {word}" for word in ("raise", "ConfigError", "wrapper", "abspath"))
    await workspace.cache.store_content(f"{LINES}{names}".encode(), details)
    assert await _search(workspace, "raise ConfigError wrapper abspath") == [original, details]


async def test_an_output_is_found_by_the_file_and_the_command_of_its_call(
    workspace: StoredWorkspace,
) -> None:
    read = EntryOrigin("read_file", "src/wheelHouse.py")
    ran = EntryOrigin("run_command", "tox -e lint")
    await workspace.cache.store_content(b"def turn(): ...\n", read)
    await workspace.cache.store_content(b"2 errors in wheel.py\n", ran)
    assert await _search(workspace, "wheelHouse.py") == [read]
    assert await _search(workspace, "house turn") == [read]
    assert await _search(workspace, "tox lint errors") == [ran]


async def test_of_two_versions_of_a_file_the_newer_comes_first(workspace: StoredWorkspace) -> None:
    file = EntryOrigin("read_file", "src/a.py")
    for version in (1, 2):
        await workspace.cache.store_content(f"{LINES}the needle {version}\n{LINES}".encode(), file)
    await workspace.index.wait_until_indexed()
    assert [hit.snippet for hit in await workspace.index.search_index("the needle")] == [
        "the needle 2",
        "the needle 1",
    ]


async def test_words_in_the_order_they_were_asked_for_come_first_and_their_line_is_shown(
    workspace: StoredWorkspace,
) -> None:
    for number, line in enumerate(
        ("an exception except here", "except ValueError", "except Exception as wrong:")
    ):
        text = f"exception\n{LINES}except\n{LINES}{line}\n"
        await workspace.cache.store_content(text.encode(), EntryOrigin("read_file", f"{number}.py"))
    await workspace.index.wait_until_indexed()
    first = (await workspace.index.search_index("except Exception"))[0]
    assert (first.about.source, first.snippet, first.line) == (
        "2.py",
        "except Exception as wrong:",
        83,
    )


async def test_of_two_files_with_as_good_a_line_the_one_with_more_of_the_words_in_its_next_lines_comes_first(
    workspace: StoredWorkspace,
) -> None:
    """The words of a search are often from several lines of what is looked for."""
    for name, more in (
        ("one.py", ["def rewrite():", "x = open"]),
        ("two.py", ["def rewrite(open):", "x = 1"]),
    ):
        lines = "\n".join([LINES, "class Config(wrapper):", *more, LINES])
        await workspace.cache.store_content(lines.encode(), EntryOrigin("read_file", name))
    assert (await _search(workspace, "Config wrapper rewrite open"))[0].source == "two.py"


async def test_an_output_that_says_nothing_but_the_word_comes_after_a_file_with_it(
    workspace: StoredWorkspace,
) -> None:
    made = EntryOrigin("write_file", "a.py")
    file = EntryOrigin("read_file", "src/config.py")
    await workspace.cache.store_content(b"written: wrapper\n", made)
    await workspace.cache.store_content(
        b"wrapper = Config()\nwith open(name) as file:\n    file.read()\n", file
    )
    assert await _search(workspace, "wrapper") == [file, made]


async def test_what_an_earlier_result_has_shown_comes_after_other_lines_with_the_words(
    workspace: StoredWorkspace,
) -> None:
    """Pages of the history overlap: the same lines would fill the first places."""
    other = EntryOrigin("read_file", "src/config.py")
    await workspace.cache.store_content(
        f"{LINES}ConfigError wrapper fails early\n{LINES}".encode(), other
    )
    for page in range(3):
        text = f"{LINES}{page}\nConfigError wrapper failed\n{LINES}".encode()
        await workspace.cache.store_content(text, EntryOrigin("run_command", f"test {page}"))
    assert (await _search(workspace, "ConfigError wrapper"))[1] == other


async def test_words_in_upper_and_lower_case_as_asked_come_before_other_words_with_the_same_letters(
    workspace: StoredWorkspace,
) -> None:
    for name, line in (("class.py", "Value of a Field"), ("call.py", "value of a field")):
        text = f"{LINES}{line}\n{LINES}".encode()
        await workspace.cache.store_content(text, EntryOrigin("read_file", name))
    assert (await _search(workspace, "Value Field"))[0].source == "class.py"
    assert (await _search(workspace, "value field"))[0].source == "call.py"


async def test_a_list_of_details_with_all_words_hides_no_output_with_one_of_them(
    workspace: StoredWorkspace,
) -> None:
    original = EntryOrigin("read_file", "src/config.py")
    details = EntryOrigin(HANDOVER, "details of a conversation")
    await workspace.cache.store_content(f"{LINES}signature = True\n{LINES}".encode(), original)
    await workspace.cache.store_content(f"{LINES}autodoc True\n{LINES}".encode(), details)
    assert set(await _search(workspace, "autodoc True")) == {original, details}


async def test_an_older_version_comes_later_though_less_stands_around_its_words(
    workspace: StoredWorkspace,
) -> None:
    """By its words alone, the shorter text would come first."""
    file = EntryOrigin("read_file", "src/a.py")
    other_file = EntryOrigin("read_file", "src/b.py")
    older = f"{LINES}the needle, older\n"
    newer = f"{LINES * 4}the needle, newer\n"
    await workspace.cache.store_content(older.encode(), file)
    await workspace.cache.store_content(newer.encode(), file)
    await workspace.cache.store_content(f"{LINES}the needle, beside\n".encode(), other_file)
    await workspace.index.wait_until_indexed()
    snippets = [hit.snippet for hit in await workspace.index.search_index("the needle")]
    assert snippets.index("the needle, newer") < snippets.index("the needle, older")
    assert snippets.index("the needle, beside") < snippets.index("the needle, older")


def rank(text: str, **weights: float) -> float:
    stems = {stem: re.compile(stem) for stem in map(stem_of_word, weights)}
    return search_ranking._rank_by_frequency(text, stems, weights, 0.0)


def test_a_word_in_full_counts_more_than_another_word_of_its_stem() -> None:
    assert stem_of_word("testing") != "testing"
    assert rank("testing it", testing=1.0) > rank("tested it", testing=1.0)


def test_a_word_that_is_its_own_stem_counts_once() -> None:
    stem = stem_of_word("testing")
    assert rank(f"{stem} it", **{stem: 1.0}) == rank(f"{stem}ed it", testing=1.0)
