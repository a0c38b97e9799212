"""Everything is looked through in slices, and every place is counted."""

from __future__ import annotations

import pytest

from helix_desktop.engine.facts import Rewound
from helix_desktop.gui.transcript import transcript_search
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.transcript_search import TranscriptSearch
from tests.gui.transcript.facts import Told, call


def found(told: Told, text: str) -> TranscriptSearch:
    items = TranscriptItems()
    items.add_many_facts(told.facts)
    looking = TranscriptSearch(items, text)
    for _ in range(100_000):
        if looking.search_slice():
            return looking
    raise AssertionError("it never comes to an end")


@pytest.mark.parametrize("slice_", [transcript_search.SLICE, 0.0])
def test_places_are_counted_by_item_however_busy_the_machine_is(
    monkeypatch: pytest.MonkeyPatch, slice_: float
) -> None:
    monkeypatch.setattr(transcript_search, "SLICE", slice_)
    told = Told()
    told.user("Needle, needle")
    told.reply("nothing", call(1, "search", '{"pattern": "needle"}'))
    told.reply("a NEEDLE")
    looking = found(told, "needle")
    assert list(looking.places) == [0, 0, 2, 3]
    assert looking.current_hit_in_item(0, 2) == -1
    for looking.current, (index, within) in enumerate([(0, 0), (0, 1), (2, 0), (3, 0)]):
        assert [looking.current_hit_in_item(other, 2) for other in (0, 2, 3) if other != index] == [
            -1,
            -1,
        ]
        assert looking.current_hit_in_item(index, 2) == within
    looking.current = 1
    assert looking.current_hit_in_item(0, 1) == 0
    assert looking.first_hit_from(1) == 2
    assert looking.first_hit_from(9) == 0


def test_what_is_set_aside_is_not_found() -> None:
    told = Told()
    told.user("needle")
    told.add(Rewound(0))
    assert list(found(told, "needle").places) == []


def test_nothing_is_done_for_nothing() -> None:
    finding = found(Told(), "")
    assert finding.done
    assert finding.first_hit_from(0) == -1
