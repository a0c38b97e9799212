"""The entry that details stand in: written, read back, and what it has no room for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine import conversation_details
from helix_desktop.engine.conversation_details import KINDS, Detail, DetailSource
from helix_desktop.engine.details_entry import format_details_entry, parse_details_entry
from tests.engine.collecting import collect_details

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).map(
    lambda t: t.replace("\n", " ").replace("\r", " ")
)
DETAILS = st.builds(
    Detail,
    st.sampled_from([kind for kind in KINDS if kind != "message"]),
    TEXTS,
    st.integers(0, 999),
    st.integers(1, 9),
)


@given(st.lists(DETAILS, max_size=20), st.lists(TEXTS, max_size=4))
def test_an_entry_is_read_back_as_it_was(found: list[Detail], lines: list[str]) -> None:
    found = [*found, Detail("message", "\n".join(["said", *lines]), 3)]
    assert sorted(parse_details_entry(format_details_entry(found)), key=repr) == sorted(
        found, key=repr
    )


def test_a_line_that_is_no_detail_is_skipped() -> None:
    assert parse_details_entry("header\nnonsense\nrule [3] Never.\nunknown [4] x\n") == [
        Detail("rule", "Never.", 3)
    ]


def test_what_an_entry_has_no_room_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    words = " ".join(
        "ab cd ef gh".replace(" ", f"_{chr(97 + number % 26)}{chr(97 + number // 26)}_")
        for number in range(600)
    )
    found = collect_details(
        [DetailSource(1, "user", "Never touch main.py!"), DetailSource(2, "output", words)]
    )
    assert "left out" not in format_details_entry(found)
    monkeypatch.setattr(conversation_details, "REFERENCE_LIMIT", 300)
    kept = format_details_entry(found)
    assert "600 names are left out" in kept
    assert parse_details_entry(kept)[0] == Detail("rule", "Never touch main.py!", 1)
