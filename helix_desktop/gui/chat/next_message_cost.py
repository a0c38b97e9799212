"""Shows what the next message would cost, below the composer, and offers to make it cheaper."""

import math
import time
from collections.abc import Callable

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from helix_desktop.engine.context_usage import NextMessageCost
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import tr

AGING = 15_000  # The milliseconds between two updates of how long the provider's cache stays warm.
LEAST_SAVED = 0.001  # Savings of fewer dollars are not shown.


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
        self._estimate_fold_saving: Callable[[], float] = float
        self.now: Callable[[], float] = time.time
        self._aging = QTimer(self, interval=AGING)
        self._aging.timeout.connect(self._update_next_message_cost)

    def show_next_message_cost(
        self, price: NextMessageCost | None, saving: Callable[[], float] = float
    ) -> None:
        """What the next message costs, if known. `saving`: what folding first would save."""
        self._next = price
        self._estimate_fold_saving = saving
        self._update_next_message_cost()

    def offer_folding_only_if_idle(self, *, idle: bool) -> None:
        self._idle = idle
        self._update_next_message_cost()

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
        price = self._next
        if price is None:
            self.setText("")
            self.setToolTip("")
            self.setAccessibleDescription("")
            return
        cost = _format_rough_dollars(price.cost_when_sent(now))
        words = [tr("Next message: about {price}", price=cost)]
        if price.warm_until:
            minutes_left = math.ceil((price.warm_until - now) / 60)
            if minutes_left > 0:
                words.append(tr("cache expires in {n} min", n=minutes_left))
            else:
                words.append(tr("cache expired"))
        if price.kept:
            cost_of_keeping = _format_rough_dollars(price.kept)
            words.append(tr("cache kept alive for {price}", price=cost_of_keeping))
        self.setText(" · ".join(words))
        self.setToolTip(safe_tooltip(_describe_next_message_cost(price)))
        self.setAccessibleDescription(self.toolTip())

    def _offer_folding_if_it_saves_money(self, now: float) -> None:
        saved_dollars = 0.0
        # While the cache is warm, a fold would replace the cached beginning, which costs more.
        is_cache_cold = self._next is not None and not self._next.is_cache_warm(now)
        if is_cache_cold and self._idle:
            saved_dollars = self._estimate_fold_saving()
        self._fold.setVisible(saved_dollars >= LEAST_SAVED)
        hint = tr(
            "Before the message is sent, each old output is reduced to one line. This saves about {saved}. You can recall the outputs later.",
            saved=format_dollars(saved_dollars),
        )
        self._fold.setToolTip(hint)


def _format_rough_dollars(dollars: float) -> str:
    return format_dollars(max(dollars, 0.001))


def _describe_next_message_cost(price: NextMessageCost) -> str:
    """Says in the tooltip what the figure assumes and what it leaves out."""
    warm_cost = _format_rough_dollars(price.warm)
    cold_cost = _format_rough_dollars(price.cold)
    reply = tr(
        "The reply is not included: this conversation has no replies yet to base an estimate on."
    )
    if price.reply:
        reply = tr(
            "Assumes a reply of typical length for this conversation: {tokens} tokens.",
            tokens=format_token_count(price.reply),
        )
    lines = [
        tr("While the provider's cache is warm: {price}", price=warm_cost),
        tr("After the provider's cache has expired: {price}", price=cold_cost),
        reply,
        tr(
            "Not included: the text and files you are about to send, and further steps if the agent uses tools."
        ),
    ]
    return "\n".join(lines)
