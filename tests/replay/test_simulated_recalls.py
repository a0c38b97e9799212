"""What a reply uses that the view does not show, and the pages that bring it back."""

from __future__ import annotations

import time

from helix_desktop.engine.facts import PartRef, Text, ToolCall
from helix_desktop.engine.messages import Block, ContextKind, Role
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.histories.recorded_session import RecordedSession
from helix_desktop.replay import simulated_recalls
from helix_desktop.replay.simulated_recalls import (
    MANY,
    MOST_WRONG,
    MissedReferences,
    RecalledPage,
    RecallMode,
    ShownEntry,
    build_shown_entry,
    group_by_round,
    missing_from_view,
)
from tests.benchmarks.public_names import read_public_names
from tests.replay.sessions import Words, long_session, play, returned, says, step, user

OUTPUT = "def merge_tables(left, right):\n    return left + right  # nothing is dropped here"


def shows(misses: MissedReferences, *texts: str) -> None:
    blocks = [
        Block(ContextKind.OUTPUT, Role.TOOL, PartRef(n), Text(text), 1)
        for n, text in enumerate(texts, 1)
    ]
    misses.set_shown_view(
        blocks, lambda block: block.content.text if isinstance(block.content, Text) else ""
    )


def heard() -> MissedReferences:
    misses = MissedReferences(Words())
    misses.add_earlier_message(user("Look at merge_tables in src/tables.py"))
    misses.add_earlier_message(returned("c", OUTPUT))
    return misses


def test_a_name_that_stands_nowhere_any_more_is_missed() -> None:
    misses = heard()
    shows(misses, "[CACHED] something")
    assert misses.references_used_but_not_in_view(says("I change merge_tables")) == {"merge_tables"}
    shows(misses, "[CACHED] something", OUTPUT)
    assert misses.references_used_but_not_in_view(says("I change merge_tables")) == set()


def test_words_of_prose_and_what_is_new_are_not_missed() -> None:
    misses = heard()
    misses.add_earlier_message(says("Documentation and configuration come later."))
    shows(misses, "nothing")
    assert (
        misses.references_used_but_not_in_view(says("The documentation of brand_new_name")) == set()
    )


def test_a_line_is_missed_where_a_call_repeats_it() -> None:
    misses = heard()
    shows(misses, "merge_tables src/tables.py")
    edit = ToolCall(
        "e", "edit", '{"old_text": "    return left + right  # nothing is dropped here"}'
    )
    assert misses.references_used_but_not_in_view(says("", edit)) == {
        "return left + right  # nothing is dropped here"
    }
    assert (
        misses.references_used_but_not_in_view(
            says("return left + right  # nothing is dropped here")
        )
        == set()
    )


def test_numbers_before_lines_do_not_hide_them() -> None:
    misses = heard()
    shows(misses, "    12\t    return left + right  # nothing is dropped here\nmerge_tables")
    edit = ToolCall("e", "edit", '{"old_text": "return left + right  # nothing is dropped here"}')
    assert misses.references_used_but_not_in_view(says("", edit)) == set()


def test_what_stands_inside_a_longer_path_or_line_is_not_missed() -> None:
    missed = {"refactor.md", "agent.prompt", "npm run check", "view_of", "tables.py"}
    call = '{"command": "cd /src && npm run check 2>&1"}'
    view = [
        "see packages/docs/refactor.md",
        "await this.agent.prompt(x)",
        call,
        "the view_of_all and mytables.py",
    ]
    assert missing_from_view(missed, view) == {"view_of", "tables.py"}
    assert missing_from_view(missed, []) == missed


def test_a_long_run_of_spaces_is_read_in_time() -> None:
    begun = time.process_time()
    assert MissedReferences(Words()).references_in(" " * 50_000) == set()
    assert time.process_time() - begun < 1, "it took half a minute"


def test_the_entry_the_view_names_comes_first_and_a_search_only_behind_a_summary() -> None:
    misses = heard()
    shows(misses, "nothing")
    missed = misses.references_used_but_not_in_view(says("merge_tables"))
    reply = says("merge_tables")
    named = misses.pages_to_recall(missed, reply, [ShownEntry("aa", OUTPUT)], [], has_summary=True)
    assert [(page.entry, page.tool) for page in named] == [("aa", ToolName.RECALL)]
    assert misses.pages_to_recall(missed, reply, [], [], has_summary=False) == []
    searched = misses.pages_to_recall(missed, reply, [], [], has_summary=True)
    assert [page.tool for page in searched] == [ToolName.RECALL_HISTORY]


def test_no_limit_hides_what_a_reply_needs() -> None:
    misses = MissedReferences(Words())
    entries = []
    for number in range(9):
        misses.add_earlier_message(returned("c", f"identifier_{number:03}"))
        entries.append(ShownEntry(f"{number}", f"identifier_{number:03}"))
    shows(misses, "nothing")
    reply = says(" ".join(f"identifier_{number:03}" for number in range(9)))
    for recalls in (RecallMode.SEARCHED, RecallMode.NAMED):
        pages = misses.pages_to_recall(
            misses.references_used_but_not_in_view(reply),
            reply,
            entries,
            [],
            has_summary=True,
            recall_mode=recalls,
        )
        assert {page.entry for page in pages} >= {f"{number}" for number in range(9)}


def test_an_entry_whose_marker_fits_better_is_opened_in_vain_first_and_once() -> None:
    misses = MissedReferences(Words())
    right = ShownEntry("right", "merge_tables lives here", "output of bash ls")
    wrong = ShownEntry("wrong", "something else entirely", "read tables of the warehouse")
    misses.add_earlier_message(returned("c", right.text))
    reply = says("In the tables of the warehouse I call merge_tables")
    view = ["the tables of the warehouse"]
    opened = misses.pages_to_recall(
        {"merge_tables"}, reply, [right, wrong], view, has_summary=False
    )
    assert [(page.entry, page.holds >= {"merge_tables"}) for page in opened if page.entry] == [
        ("wrong", False),
        ("right", True),
    ]
    assert [page.tool for page in opened if not page.entry] == ["search_cached_content"], (
        "nothing else fitted"
    )
    assert [page.round for page in opened] == [0, 1, 2]
    again = misses.pages_to_recall({"merge_tables"}, reply, [right, wrong], view, has_summary=False)
    assert [page.entry for page in again if page.entry] == ["right"]


def test_after_some_in_vain_the_agent_searches() -> None:
    misses = MissedReferences(Words())
    wrong = [
        ShownEntry(f"w{number}", "nothing of use", "about the warehouse") for number in range(9)
    ]
    right = ShownEntry("right", "merge_tables lives here", "about ships")
    misses.add_earlier_message(returned("c", right.text))
    pages = misses.pages_to_recall(
        {"merge_tables"},
        says("warehouse merge_tables"),
        [right, *wrong],
        ["warehouse"],
        has_summary=False,
    )
    assert sum(page.entry.startswith("w") for page in pages) == MOST_WRONG
    assert [page.entry for page in pages[MOST_WRONG:]] == ["", "right"]


def test_a_search_behind_a_summary_never_asks_by_what_is_missed() -> None:
    misses = heard()
    reply = says("In src/tables.py the function merge_tables is next")
    pages = misses.pages_to_recall(
        {"merge_tables"}, reply, [], ["the function is next"], has_summary=True
    )
    search = pages[0]
    assert search.asked == (("find", "function next"),)
    assert all("merge_tables" not in words for page in pages for _, words in page.asked)
    assert all(page.seeks == {"merge_tables"} for page in pages)


def test_names_of_public_code_are_never_missed() -> None:
    public_names = read_public_names()
    known = [
        "AttributeError",
        "package.json",
        "self.assertEqual",
        "JSON.stringify",
        "__init__.py",
        "os.path.join",
    ]
    assert all(
        map(
            public_names.has_reference,
            [*known, "from typing import Any, Sequence", "import dataclasses as data"],
        )
    )
    own = [
        "merge_tables",
        "src/__init__.py",
        "self.merge_tables",
        "from helix_tables import join_all",
        "return x  # why",
    ]
    assert not any(map(public_names.has_reference, own))
    misses = MissedReferences(Words(), public_names)
    misses.add_earlier_message(returned("c", "AttributeError in merge_tables"))
    shows(misses, "nothing")
    assert misses.references_used_but_not_in_view(says("AttributeError in merge_tables")) == {
        "merge_tables"
    }


def test_what_the_view_says_of_an_entry() -> None:
    marker = '[CACHED] recall_cached_content("abcd")\nread src/a.py'
    document = "\n".join(
        ["word " * 100] * 20 + ["- abcd: the tables", "of the warehouse", "unrelated"]
    )
    assert build_shown_entry("abcd", "", [marker, "other"]).shown == marker
    assert build_shown_entry("abcd", "", [document]).shown == "- abcd: the tables\nof the warehouse"


def test_recalls_are_billed_beside_the_rest_and_can_be_left_out() -> None:
    session = long_session(4, 90)
    first = step(
        900, " ".join(f"other_word_{n:02}" for n in range(40)) * 18 + " the_first_output_of_all"
    )
    asks = says("Now to the_first_output_of_all.")
    said = RecordedSession(
        "used again", (session.messages[0], *first, *session.messages[1:], user("go on"), asks)
    )
    with_them = play(said)
    without = play(said, recalls=RecallMode.NONE)
    assert with_them.recalls_billed > 0
    assert with_them.recalled_pages > 0
    assert with_them.billed_with_recalls == with_them.billed + with_them.recalls_billed
    assert (without.recalls_billed, without.recalled_pages, without.billed_with_recalls) == (
        0,
        0,
        without.billed,
    )
    assert with_them.share_of_names_outside_markers <= with_them.retained_share


TEXT = "\n".join(
    f"line_{number:05} of topic_{number // 20:03} " + "word " * 9 for number in range(1_000)
)


def read(
    missed: set[str], reply: str, view: str, recalls: RecallMode = RecallMode.SEARCHED
) -> list[RecalledPage]:
    misses = MissedReferences(Words())
    misses.add_earlier_message(returned("c", TEXT))
    return misses.pages_to_recall(
        missed,
        says(reply),
        [ShownEntry("aa", TEXT, "read topic_000 topic_010 topic_030")],
        [view],
        has_summary=False,
        recall_mode=recalls,
    )


def test_an_agent_asks_by_the_words_it_still_sees_and_never_by_what_it_misses() -> None:
    (page,) = read({"line_00210"}, "In topic_010 I change line_00210", "topic_010 is to be changed")
    assert page.asked == (("find", "topic_010"),)
    assert "line_00210" in page.holds
    assert len(page.text) < 3_000


def test_where_the_words_do_not_bring_it_pages_are_read_up_to_what_is_missed() -> None:
    found, *pages = read(
        {"line_00210"}, "In topic_030 I change line_00210", "topic_030 is to be changed"
    )
    assert "find" in dict(found.asked)
    assert [page.round for page in pages] == list(range(1, len(pages) + 1))
    assert "line_00210" in pages[-1].holds
    assert not any("line_00210" in page.holds for page in pages[:-1])
    found, far = read(
        {"line_00999"}, "In topic_030 I change line_00999", "topic_030 is to be changed"
    )
    first, last = map(int, dict(far.asked)["lines"].split("-"))
    assert first <= 1_000 <= last


def test_an_agent_that_knows_the_page_reads_that_alone() -> None:
    (page,) = read({"line_00999"}, "I change line_00999", "", RecallMode.NAMED)
    assert "line_00999" in page.holds
    assert "find" not in dict(page.asked)
    misses = heard()
    assert (
        misses.pages_to_recall(
            {"merge_tables"}, says("x"), [], [], has_summary=True, recall_mode=RecallMode.NAMED
        )
        == []
    )


def test_what_is_used_much_of_is_read_whole_in_one_round() -> None:
    many = {f"line_{number:05}" for number in range(MANY + 1)}
    pages = read(many, "In topic_000 " + " ".join(sorted(many)), "topic_000")
    assert pages
    assert {page.round for page in pages} == {0}
    assert not any("find" in dict(page.asked) for page in pages)


def test_what_is_asked_at_once() -> None:
    pages = [
        RecalledPage(entry, (), "", frozenset(), round=at)
        for entry, at in (("a", 0), ("a", 1), ("b", 0))
    ]
    assert [[page.entry for page in together] for together in group_by_round(pages)] == [
        ["a", "b"],
        ["a"],
    ]


def test_an_agent_that_names_several_entries_finds_the_right_one_in_one_request() -> None:
    wrong = [ShownEntry(f"w{number}", "nothing of use", "warehouse") for number in range(3)]
    right = ShownEntry("right", "merge_tables lives here", "about the old warehouse of tables")
    rounds: dict[RecallMode, list[int]] = {}
    for mode in (RecallMode.SEARCHED, RecallMode.TOGETHER):
        misses = MissedReferences(Words())
        misses.add_earlier_message(returned("c", right.text))
        pages = misses.pages_to_recall(
            {"merge_tables"},
            says("warehouse merge_tables"),
            [right, *wrong],
            ["warehouse"],
            has_summary=False,
            recall_mode=mode,
        )
        assert [page.entry for page in pages if page.holds][-1:] == ["right"]
        rounds[mode] = sorted({page.round for page in pages})
    assert len(rounds[RecallMode.TOGETHER]) < len(rounds[RecallMode.SEARCHED])


def test_the_last_page_that_is_needed_is_the_first_if_none_helps() -> None:
    pages = [
        RecalledPage(entry="e", asked=(), text=name, holds=frozenset({name}))
        for name in ("one", "two", "three")
    ]
    assert simulated_recalls._last_needed_index(pages, frozenset({"elsewhere"})) == 0
    assert simulated_recalls._last_needed_index(pages, frozenset({"one"})) == 0
    assert simulated_recalls._last_needed_index(pages, frozenset({"one", "two"})) == 1
