"""What the next message costs, for how long, and whether shortening first is cheaper."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QPushButton, QWidget

from helix_desktop.engine.context_usage import NextMessageCost
from helix_desktop.engine.message_cost_forecast import MessageCostForecast
from helix_desktop.gui.chat.next_message_cost import NextMessageCostLabel
from helix_desktop.gui.theme import Theme

NOW = 1_000.0
FORECAST = MessageCostForecast(0.25, 0.125, 0.5, 1_234)


@pytest.fixture
def label(theme: Theme) -> NextMessageCostLabel:
    around = QWidget()
    label = NextMessageCostLabel(QPushButton(around), around)
    label.around = around  # type: ignore[attr-defined]  # As long as the label.
    label.now = lambda: NOW
    return label


def cost(
    warm: float, cold: float, warm_until: float = 0.0, *, kept: float = 0.0
) -> NextMessageCost:
    return NextMessageCost(warm, cold, 0, warm_until, kept=kept)


@pytest.mark.parametrize(
    ("price", "forecast", "words"),
    [
        (None, None, ""),
        (None, FORECAST, "Messages here cost about $0.250"),
        (cost(0.01, 0.0625), None, "Next message: $0.063 for its first request"),
        (cost(0.01, 0.0099), None, ""),
        (cost(0.01, 0.01), None, "Next message: $0.010 for its first request"),
        (cost(0.01, 0.25), FORECAST, "Messages here cost about $0.250"),
        (cost(0.01, 0.5), FORECAST, "Next message: $0.500 for its first request"),
        (cost(0.01, 0.5, NOW + 1), FORECAST, "Messages here cost about $0.250 · price rises in 1 min"),
        (cost(0.03, 0.5, NOW + 61), None, "Next message: $0.030 for its first request · price rises in 2 min"),
        (cost(0.0, 0.0, NOW), None, "full price again"),
        (cost(0.0, 0.0, NOW + 60, kept=0.02), None, "price rises in 1 min · kept cheap for $0.020"),
        (cost(0.0, 0.0, kept=0.0001), None, "kept cheap for $0.0010"),
    ],
)  # fmt: skip
def test_the_larger_of_what_is_known_is_said_and_for_how_long(
    label: NextMessageCostLabel,
    price: NextMessageCost | None,
    forecast: MessageCostForecast | None,
    words: str,
) -> None:
    label.show_next_message_cost(price, forecast)
    assert label.text().replace("\N{NO-BREAK SPACE}", " ") == words
    assert bool(label.toolTip()) is bool(words)
    assert label.accessibleDescription() == label.toolTip()


def test_only_a_countdown_is_looked_at_again(label: NextMessageCostLabel) -> None:
    for price, counts in (
        (cost(0.1, 0.2, NOW + 60), True),
        (cost(0.1, 0.2, NOW), False),
        (NextMessageCost(0.1, 0.2, 0, forever=True), False),
        (None, False),
    ):
        label.show_next_message_cost(price)
        assert label._aging.isActive() is counts
    label.show_next_message_cost(cost(0.1, 0.2, NOW + 60))
    label.now = lambda: NOW + 60
    label._aging.timeout.emit()
    assert label.text().endswith("full price again")
    assert not label._aging.isActive()


@pytest.mark.parametrize(
    ("warm_until", "idle", "saved", "offered"),
    [
        (NOW, True, 0.01, True),
        (NOW, True, 0.0099, False),
        (NOW, False, 1.0, False),
        (NOW + 1, True, 1.0, False),
    ],
)
def test_shortening_first_is_offered_where_it_saves_a_cent(
    label: NextMessageCostLabel, warm_until: float, idle: bool, saved: float, offered: bool
) -> None:
    heard: list[bool] = []
    label.changed.connect(lambda: heard.append(True))
    label.offer_folding_only_if_idle(idle=idle)
    label.show_next_message_cost(cost(0.1, 0.2, warm_until), None, lambda: saved)
    assert label._fold.isHidden() is not offered
    assert len(heard) == 2
    if offered:
        assert "$0.010" in label._fold.text()
        assert "$0.010" in label._fold.toolTip()
    label.show_next_message_cost(None, None, lambda: saved)
    assert label._fold.isHidden()


def test_the_hint_says_what_the_figures_are_made_of(label: NextMessageCostLabel) -> None:
    label.show_next_message_cost(cost(0.125, 0.5), FORECAST)
    hint = label.toolTip()
    assert "1,234 messages" in hint
    assert "between $0.125 and $0.500" in " ".join(hint.split())
    assert "$0.500 after that" in " ".join(hint.split())
    assert label.describe_provider_cache() == []
    label.show_next_message_cost(None, FORECAST)
    assert "first request" not in label.toolTip()
    assert label.describe_provider_cache() == []
    label.show_next_message_cost(cost(0.1, 0.2, NOW + 120))
    assert label.describe_provider_cache() == ["price rises in 2 min"]
