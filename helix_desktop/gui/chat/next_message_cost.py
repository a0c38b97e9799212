"""Shows what the next message would cost, below the composer, and offers to make it cheaper."""

import math
import time
from collections.abc import Callable

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from helix_desktop.engine.context_usage import NextMessageCost
from helix_desktop.engine.message_cost_forecast import MessageCostForecast
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import format_number, tr

AGING = 15_000  # The milliseconds between two updates of how long the provider's cache stays warm.
LEAST_SAVED = 0.01  # Savings of fewer dollars are not worth a decision.
# The request alone is not shown if it costs fewer dollars.
LEAST_REQUEST_SHOWN = 0.01


class NextMessageCostLabel(QLabel):
    """`fold` is shown while folding first saves money. `changed`: the label or the
    button needs more room.
    """

    changed = Signal()

    def __init__(self, fold: QPushButton, parent: QWidget) -> None:
        super().__init__(parent)
        self.setProperty("look", "small")
        self._fold = fold
        self._idle = True
        self._next: NextMessageCost | None = None
        self._forecast: MessageCostForecast | None = None
        self._estimate_fold_saving: Callable[[], float] = float
        self.now: Callable[[], float] = time.time
        self._aging = QTimer(self, interval=AGING)
        self._aging.timeout.connect(self._update_next_message_cost)

    def show_next_message_cost(
        self,
        price: NextMessageCost | None,
        forecast: MessageCostForecast | None = None,
        saving: Callable[[], float] = float,
    ) -> None:
        """What the request of the next message costs, if known, and what messages cost in all, if
        enough were answered. `saving`: what folding first would save.
        """
        self._next = price
        self._forecast = forecast
        self._estimate_fold_saving = saving
        self._update_next_message_cost()

    def offer_folding_only_if_idle(self, *, idle: bool) -> None:
        self._idle = idle
        self._update_next_message_cost()

    def describe_provider_cache(self) -> list[str]:
        """Says how long the conversation costs less, and what keeping it so has cost."""
        if self._next is None:
            return []
        return _describe_cache(self._next, self.now())

    def _update_next_message_cost(self) -> None:
        now = self.now()
        self._show_cost_and_cache_time(now)
        self._offer_folding_if_it_saves_money(now)
        # Only a countdown changes by itself; everything else is shown when it happens.
        has_countdown = False
        if self._next is not None:
            has_countdown = self._next.is_cache_warm(now) and bool(self._next.warm_until)
        if has_countdown:
            self._aging.start()
        else:
            self._aging.stop()
        self.changed.emit()

    def _show_cost_and_cache_time(self, now: float) -> None:
        """Shows what the next message would cost if it were sent now, and how long the
        provider still keeps the conversation in its cache, which makes it cheaper.
        """
        words: list[str] = []
        cost = self._describe_cost(now)
        if cost:
            words.append(cost)
        if self._next is not None:
            words += _describe_cache(self._next, now)
        self.setText(" · ".join(words))
        self.setToolTip("")
        if words:
            self.setToolTip(safe_tooltip(_explain_cost(self._next, self._forecast)))
        self.setAccessibleDescription(self.toolTip())

    def _describe_cost(self, now: float) -> str:
        """Says what messages of this conversation cost, or what the request alone costs where
        that is more or nothing else is known. Of a small request that would mislead: its
        message costs several times as much.
        """
        request_dollars = 0.0
        if self._next is not None:
            request_dollars = self._next.cost_when_sent(now)
        if self._forecast is not None and self._forecast.dollars >= request_dollars:
            cost = _format_rough_dollars(self._forecast.dollars)
            return tr("Messages here cost about {price}", price=cost)
        if request_dollars < LEAST_REQUEST_SHOWN:
            return ""
        cost = _format_rough_dollars(request_dollars)
        return tr("Next message: {price} for its first request", price=cost)

    def _offer_folding_if_it_saves_money(self, now: float) -> None:
        saved_dollars = 0.0
        # While the cache is warm, a fold would replace the cached beginning, which costs more.
        is_cache_cold = self._next is not None and not self._next.is_cache_warm(now)
        if is_cache_cold and self._idle:
            saved_dollars = self._estimate_fold_saving()
        self._fold.setVisible(saved_dollars >= LEAST_SAVED)
        saved = format_dollars(saved_dollars)
        self._fold.setText(tr("Shorten first, saves about {saved}", saved=saved))
        hint = tr(
            "Before the message is sent, each old output is reduced to one line. This saves about {saved}. You can recall the outputs later.",
            saved=saved,
        )
        self._fold.setToolTip(hint)


def _format_rough_dollars(dollars: float) -> str:
    return format_dollars(max(dollars, 0.001))


def _describe_cache(price: NextMessageCost, now: float) -> list[str]:
    """Says how long the provider's cache stays warm, and what keeping it so has cost."""
    words: list[str] = []
    if price.warm_until:
        seconds_left = price.warm_seconds_left(now)
        if seconds_left > 0:
            minutes_left = math.ceil(seconds_left / 60)
            words.append(tr("price rises in {n} min", n=minutes_left))
        else:
            words.append(tr("full price again"))
    if price.kept:
        cost_of_keeping = _format_rough_dollars(price.kept)
        words.append(tr("kept cheap for {price}", price=cost_of_keeping))
    return words


def _explain_cost(price: NextMessageCost | None, forecast: MessageCostForecast | None) -> str:
    """Says in the tooltip what the figures are learned from and what they leave out."""
    lines: list[str] = []
    if forecast is not None:
        varying_costs = tr(
            "Half of the last {n} messages in this conversation cost between {low} and {high}, with all their requests. What sub-agents cost is not included.",
            n=format_number(forecast.messages),
            low=_format_rough_dollars(forecast.low),
            high=_format_rough_dollars(forecast.high),
        )
        lines.append(varying_costs)
    if price is not None:
        cost_of_request = tr(
            "The first request of the next message: {warm} while the provider still has what it has read, {cold} after that. Your text and further requests are added to that.",
            warm=_format_rough_dollars(price.warm),
            cold=_format_rough_dollars(price.cold),
        )
        lines.append(cost_of_request)
    return "\n".join(lines)
