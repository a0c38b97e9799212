"""Shortening now: what it sends and brings is said before it is begun, and what was wished is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from PySide6.QtWidgets import QPushButton, QWidget

from helix_desktop.engine.context_usage import FoldForecast
from helix_desktop.engine.facts import FoldKind, ModelRole, ModelSet
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.fold_now_dialog import FoldNowDialog
from tests.gui.fake_desk import FakeSession, now
from tests.gui.timeline.conftest import Written

ANOTHER_TRY = "If the text cannot be used, another try sends about as much again."


class Folded(FakeSession):
    """Notes what it was asked to fold. `forecast`: what folds by a model would take and bring."""

    forecast: FoldForecast | None = FoldForecast(sent=8_800, freed=2_000, dollars=0.03)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.wanted: list[tuple[FoldKind, str]] = []

    def forecast_fold_on_demand(self, kind: FoldKind) -> FoldForecast | None:
        if kind is FoldKind.MARKER:
            return FoldForecast(sent=0, freed=700, dollars=0.0)
        return self.forecast

    async def fold_on_request(self, kind: FoldKind, *, wish: str = "") -> None:
        self.wanted.append((kind, wish))


@pytest.fixture
def folded(written: Written) -> Folded:
    return Folded("c", written.facts)


@pytest.fixture
def parent(theme: Theme) -> Iterator[QWidget]:
    made = QWidget()
    yield made
    made.close()


def dialog_of(session: Folded, parent: QWidget, **values: Any) -> FoldNowDialog:
    return FoldNowDialog(session, BackgroundRunner(now), parent, **values)


def test_the_way_that_is_asked_for_is_chosen_at_first(folded: Folded, parent: QWidget) -> None:
    assert dialog_of(folded, parent).kind.currentData() == FoldKind.HANDOVER
    marker = dialog_of(folded, parent, kind=FoldKind.MARKER)
    assert marker.kind.currentData() == FoldKind.MARKER
    offered = [FoldKind(marker.kind.itemData(number)) for number in range(marker.kind.count())]
    assert offered == [
        FoldKind.HANDOVER,
        FoldKind.OBSERVATIONS,
        FoldKind.REFLECTION,
        FoldKind.MARKER,
    ]


def test_what_it_sends_costs_and_brings_is_said_and_said_anew_for_another_way(
    folded: Folded, parent: QWidget
) -> None:
    dialog = dialog_of(folded, parent)
    assert dialog.forecast.text() == (
        "This sends about 8.8K tokens to a model, which writes the text for at most about $0.030."
        f" {ANOTHER_TRY} Afterwards, each request sends about 2K tokens less."
    )
    dialog.kind.setCurrentIndex(dialog.kind.count() - 1)
    assert dialog.forecast.text() == (
        "This sends nothing: no model is used. Afterwards, each request sends about 700 tokens less."
    )


def test_without_anything_to_shorten_that_is_said(folded: Folded, parent: QWidget) -> None:
    folded.forecast = None
    assert dialog_of(folded, parent).forecast.text().startswith("There is nothing to shorten yet")


def test_a_text_without_a_known_price_is_never_said_to_cost_nothing(
    folded: Folded, parent: QWidget
) -> None:
    """The dialog said "This costs nothing", and 8.8K tokens were sent."""
    folded.forecast = FoldForecast(sent=8_800, freed=0, dollars=None)
    sends = "This sends about 8.8K tokens to a model, which writes the text."
    assert dialog_of(folded, parent).forecast.text() == f"{sends} {ANOTHER_TRY}"
    elsewhere = dialog_of(folded, parent, can_forecast=False)
    assert "its provider may charge for it" in elsewhere.forecast.text()
    folded.append(ModelSet(ModelRole.MAIN, "elsewhere/m", 128_000, 8_000, 0.0, 0.0, 0.0, 0.0))
    assert (
        dialog_of(folded, parent).forecast.text()
        == f"{sends} The price is not known. {ANOTHER_TRY}"
    )
    folded.append(ModelSet(ModelRole.MAIN, "ollama/m", 128_000, 8_000, 0.0, 0.0, 0.0, 0.0))
    assert dialog_of(folded, parent).forecast.text() == f"{sends} {ANOTHER_TRY}"


def test_start_shortens_as_chosen_with_the_wish_and_closes(folded: Folded, parent: QWidget) -> None:
    dialog = dialog_of(folded, parent)
    dialog.open()
    dialog.kind.setCurrentIndex(1)
    dialog.wish.setText("  the decisions ")
    start = next(each for each in dialog.findChildren(QPushButton) if each.text() == "Start")
    start.click()
    assert folded.wanted == [(FoldKind.OBSERVATIONS, "the decisions")]
    assert not dialog.isVisible()


def test_nothing_is_shortened_before_it_is_started(folded: Folded, parent: QWidget) -> None:
    dialog = dialog_of(folded, parent)
    dialog.open()
    assert dialog.wish.hasFocus() or dialog.focusWidget() is dialog.wish
    dialog.reject()
    assert folded.wanted == []
