"""Everything is looked through in slices, and every place is counted."""

from __future__ import annotations

from helix_desktop.engine.facts import Rewound
from helix_desktop.gui.transcript.finding import Finding
from helix_desktop.gui.transcript.projection import Items
from tests.gui.transcript.facts import Told, call


def found(told: Told, text: str) -> Finding:
    items = Items()
    items.extend(told.facts)
    finding = Finding(items, text)
    while not finding.advance():
        pass
    return finding


def test_places_are_counted_by_item() -> None:
    told = Told()
    told.user("Needle, needle")
    told.reply("nothing", call(1, "search", '{"pattern": "needle"}'))
    told.reply("a NEEDLE")
    finding = found(told, "needle")
    assert list(finding.places) == [0, 0, 2, 3]
    assert [finding.within(number) for number in range(4)] == [0, 1, 0, 0]
    assert finding.near(1) == 2
    assert finding.near(9) == 0


def test_what_is_set_aside_is_not_found() -> None:
    told = Told()
    told.user("needle")
    told.add(Rewound(0))
    assert list(found(told, "needle").places) == []


def test_nothing_is_done_for_nothing() -> None:
    finding = found(Told(), "")
    assert finding.done
    assert finding.near(0) == -1
