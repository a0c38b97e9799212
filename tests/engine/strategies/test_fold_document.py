"""Documents: what was written, what must not be lost, and where the rest stands; within
their limit.
"""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.conversation_details import KEPT_HEADING, Detail, sort_details
from helix_desktop.engine.facts import FoldKind, Span
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.strategies import handover, observation
from helix_desktop.engine.strategies.fold_document import (
    CUT_OFF,
    DocumentPlan,
    build_fold_document,
)
from helix_desktop.engine.strategies.fold_strategy import FoldPlan
from tests.engine.keeping import Quarters

ENTRY = Digest.of_content(b"details")
FOUND = [
    Detail("rule", "Never touch main.py.", 3),
    Detail("todo", "write the tests", 0),
    Detail("written", "created b.py", 9),
    Detail("failure", "pytest failed: E assert 1 == 2", 12),
    Detail("url", "https://example.org", 4),
]


def making(
    kind: FoldKind = FoldKind.HANDOVER, *, found: list[Detail] | None = None, limit: int = 3_000
) -> DocumentPlan:
    return DocumentPlan(
        FoldPlan(kind, Span(1, 90), "why"),
        "handover-4",
        2,
        FOUND if found is None else found,
        ENTRY,
        1_500,
        limit,
    )


def written(text: str = "the work went on") -> dict[str, str]:
    return dict.fromkeys(handover.SECTIONS, text)


def test_what_the_summary_left_out_is_added_under_its_section() -> None:
    made = build_fold_document(
        making(),
        written() | {"User Preferences": "He said: Never touch main.py. Fine."},
        Quarters(),
    )
    assert made.text.startswith(
        "[Conversation History Summary]\nHandover 2. Notes about the past, not instructions."
    )
    sections = dict(re.findall(r"## (.+)\n((?:(?!## )[\s\S])*)", made.text))
    assert list(sections) == list(handover.SECTIONS)
    assert (
        "the work went on\n\nKept word for word:\n- created b.py [9]" in sections["Completed Work"]
    )
    assert "- write the tests" in sections["TODO Items"]
    assert "- pytest failed: E assert 1 == 2 [12]" in sections["Current Issues"]
    assert KEPT_HEADING not in sections["User Preferences"]
    assert (made.kept.found, made.kept.kept, made.kept.added, made.kept.entry) == (4, 1, 3, 0)
    assert made.tokens == Quarters().count_tokens(made.text)


def test_the_header_says_what_is_covered_and_where_the_originals_are() -> None:
    text = build_fold_document(making(), written(), Quarters()).text
    assert "the numbers 1 to 90" in text
    assert 'recall_history("handover-4")' in text
    assert f'recall_cached_content("{ENTRY.hex}")' in text


def test_the_newest_outputs_it_covers_are_named_so_that_each_can_be_recalled() -> None:
    stored = [
        Detail("stored", f"{Digest.of_content(bytes([n % 20])).hex} read {n % 20}.py · 9 lines", n)
        for n in range(25)
    ]
    text = build_fold_document(making(found=sort_details(stored)), written(), Quarters()).text
    named = re.findall(r"^- ([0-9a-f]{12}) read (\d+)\.py · 9 lines$", text, re.MULTILINE)
    assert [int(number) for _, number in named] == [*range(4, -1, -1), *range(19, 12, -1)]
    assert all(
        Digest.of_content(bytes([int(number)])).hex.startswith(digits) for digits, number in named
    )
    short = build_fold_document(
        making(found=stored, limit=400), written("much to say " * 200), Quarters()
    )
    assert short.tokens <= 400 + 260
    assert " 4.py" in short.text
    assert " 13.py" not in short.text


def test_the_state_of_the_work_stands_above_the_text_and_says_once_what_is_open() -> None:
    state = "State of the work\n- Open tasks [8]: write the tests\n- Last test run [9]: `make test`"
    text = build_fold_document(replace(making(), state=state), written(), Quarters()).text
    assert text.index(state) < text.index("## Project Background")
    assert text.count("write the tests") == 1
    listed = build_fold_document(
        replace(making(FoldKind.OBSERVATIONS), state=state), {"": "- 12:00 [3]"}, Quarters()
    )
    assert state not in listed.text


def test_a_state_that_is_too_long_loses_its_last_lines() -> None:
    state = "\n".join(
        ["State of the work", *(f"- line {number} " + "x" * 200 for number in range(9))]
    )
    made = build_fold_document(replace(making(limit=400), state=state), written(), Quarters())
    assert made.tokens <= 400 + 260
    assert "- line 1 " in made.text
    assert "- line 8 " not in made.text


def test_a_section_with_nothing_to_say_says_so() -> None:
    text = build_fold_document(making(found=[]), {}, Quarters()).text
    assert text.count(handover.NOTHING_TO_REPORT) == 6


def test_observations_are_one_list() -> None:
    made = build_fold_document(
        making(FoldKind.OBSERVATIONS), {"": "- 12:00 !! something [3]"}, Quarters()
    )
    assert made.text.startswith(observation.TITLE)
    assert "##" not in made.text
    assert "- 12:00 !! something [3]" in made.text
    assert "- Never touch main.py. [3]" in made.text


@given(
    st.text(max_size=100),
    st.integers(1, 500),
    st.integers(400, 6_000),
    st.sampled_from([FoldKind.HANDOVER, FoldKind.TRUNCATION]),
)
def test_it_never_takes_more_than_its_limit_and_its_frame(
    text: str, times: int, limit: int, kind: FoldKind
) -> None:
    found = [Detail("rule", f"you must keep rule {number}", number) for number in range(200)]
    made = build_fold_document(
        making(kind, found=found, limit=limit), written(text * times), Quarters()
    )
    assert made.tokens <= limit + 260
    assert made.kept.found == made.kept.kept + made.kept.added + made.kept.entry == 200


def test_a_text_that_is_too_long_is_cut_and_says_so() -> None:
    made = build_fold_document(
        making(limit=1_000), written("a line of the summary\n" * 2_000), Quarters()
    )
    assert made.text.count(CUT_OFF) == 6
