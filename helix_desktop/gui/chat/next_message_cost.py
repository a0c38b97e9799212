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
        self._next, self._estimate_fold_saving = price, saving
        self._update_next_message_cost()

    def offer_folding_only_if_idle(self, *, idle: bool) -> None:
        self._idle = idle
        self._update_next_message_cost()

    def _update_next_message_cost(self) -> None:
        price, now = self._next, self.now()
        words = (
            [
                tr(
                    "Next message: about {price}",
                    price=_format_rough_dollars(price.cost_when_sent(now)),
                )
            ]
            if price
            else []
        )
        if price and price.warm_until:
            left = math.ceil((price.warm_until - now) / 60)
            words.append(
                tr("cache expires in {n} min", n=left) if left > 0 else tr("cache expired")
            )
        if price and price.kept:
            words.append(
                tr("cache kept alive for {price}", price=_format_rough_dollars(price.kept))
            )
        self.setText(" · ".join(words))
        self.setToolTip(safe_tooltip(_describe_next_message_cost(price)) if price else "")
        self.setAccessibleDescription(self.toolTip())
        saved = (
            self._estimate_fold_saving()
            if price and not price.is_cache_warm(now) and self._idle
            else 0.0
        )
        self._fold.setVisible(saved >= LEAST_SAVED)
        hint = tr(
            "Before the message is sent, each old output is reduced to one line. This saves about {saved}. You can recall the outputs later.",
            saved=format_dollars(saved),
        )
        self._fold.setToolTip(hint)
        self._aging.start() if price and price.is_cache_warm(
            now
        ) and price.warm_until else self._aging.stop()
        self.changed.emit()


def _format_rough_dollars(dollars: float) -> str:
    return format_dollars(max(dollars, 0.001))


def _describe_next_message_cost(price: NextMessageCost) -> str:
    reply = tr(
        "Assumes a reply of typical length for this conversation: {tokens} tokens.",
        tokens=format_token_count(price.reply),
    )
    return "\n".join(
        [
            tr(
                "While the provider's cache is warm: {price}",
                price=_format_rough_dollars(price.warm),
            ),
            tr(
                "After the provider's cache has expired: {price}",
                price=_format_rough_dollars(price.cold),
            ),
            reply
            if price.reply
            else tr(
                "The reply is not included: this conversation has no replies yet to base an estimate on."
            ),
            tr(
                "Not included: the text and files you are about to send, and further steps if the agent uses tools."
            ),
        ]
    )
