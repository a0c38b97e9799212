"""Shows below the transcript what the last turn cost because context had to be cached again."""

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.context_usage import PendingRewrite
from helix_desktop.engine.request_changes import CauseKind
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.common.tool_words import name_tool_of_rule
from helix_desktop.gui.common.widgets import (
    build_centred_column,
    build_plain_label,
    build_push_button,
)
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.shown_workspace import ShownSession
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import tr, translate_name
from helix_desktop.gui.workbench_types import CauseCost, RequestCost

# A cost is shown above this many dollars, or above this share of the turn's cost.
TOLD_DOLLARS = 0.10
TOLD_SHARE = 0.1
LEAST_DOLLARS = 0.01  # Costs of fewer dollars are never shown, however cheap the turn is.


class RewriteCostLine(QWidget):
    """Shown if the last turn had avoidable costs. `price_wanted`: the model's price is needed."""

    price_wanted = Signal()

    def __init__(
        self, theme: Theme, doing: BackgroundRunner, parent: QWidget | None = None
    ) -> None:
        """Builds the line, which is hidden until a choice of the user would make the
        provider read the conversation anew, for money, or has just done so.
        """
        super().__init__(parent)
        self._doing = doing
        self._session: ShownSession | None = None
        self._is_warning = False  # True if the line shows what the user's choice will cost.
        self._words = build_plain_label("", "muted", self)
        self._set_price = build_push_button(tr("Set the price…"), self, self.price_wanted.emit)
        close = build_push_button(tr("Hide"), self, self.hide)
        column = build_centred_column(self, theme)
        margins = (0, 4, 0, 4)
        build_row((self._words, 1), self._set_price, close, owner=column, margins=margins)
        self.hide()

    def warn_before_message(self, session: ShownSession) -> None:
        """Warns once what the user's choice would cost with the next message, or that
        no spending limit can work.
        """
        warning = describe_pending_rewrite(session.context.pending_rewrite())
        is_price_missing = False
        if not warning:
            model = session.context.model_whose_cost_cannot_be_limited()
            warning = describe_missing_price(model)
            is_price_missing = bool(warning)
        self._set_price.setVisible(is_price_missing)

        is_new_warning = bool(warning) and warning != self._words.text()
        is_warning_over = self._is_warning and not warning
        if is_new_warning or is_warning_over:
            self._words.setText(warning)
            self.setVisible(bool(warning))
        self._is_warning = bool(warning)

    def explain_costs_of_last_turn(self, session: ShownSession | None) -> None:
        """Examines the requests of the last turn in a thread, and shows the line if
        they cost more than necessary.
        """
        if session is not self._session:
            self._words.clear()
        self._session = session
        self._is_warning = False
        if session is None or not session.conversation.state.branch.steps:
            self.hide()
            return
        self._doing.run_in_background(
            session.context.explain_costs_of_last_turn(),
            owner=self,
            then=lambda found: self._show_costs(session, found),
        )

    def hide_costs_of_last_turn(self) -> None:
        """Hides them once the next turn runs, of which they would seem to be."""
        if not self._is_warning:
            self.hide()

    def _show_costs(self, session: ShownSession, requests: Sequence[RequestCost]) -> None:
        words = describe_avoidable_costs(requests)
        if session is self._session and not self._is_warning:
            self._set_price.hide()
            self._words.setText(words)
            self.setVisible(bool(words))


def describe_missing_price(model: str) -> str:
    if not model:
        return ""
    return tr(
        "No price is set for {model}, so cost limits have no effect on this model. To set a price, click the model at the top right, then “Edit model…”.",
        model=model,
    )


def describe_pending_rewrite(rewrite: PendingRewrite | None) -> str:
    if rewrite is None or rewrite.dollars < LEAST_DOLLARS:
        return ""
    reason = tr("the tools, the system prompt or the rules have changed")
    if rewrite.is_model:
        reason = tr("another model or thinking level reads everything anew")
    rewritten_tokens = format_token_count(rewrite.tokens)
    price = format_dollars(rewrite.dollars)
    return tr(
        "With the next message, {tokens} tokens cost the full price again: about {price}. Reason: {reason}.",
        tokens=rewritten_tokens,
        price=price,
        reason=reason,
    )


def describe_avoidable_costs(requests: Sequence[RequestCost]) -> str:
    """Says what was paid only because the provider's cache could not be used, with the
    most expensive reason, or "" if it is too little to mention: next to nothing, or a small
    sum that is also a small part of the whole cost.
    """
    whole_cost = 0.0
    avoidable_cost = 0.0
    tokens = 0
    dearest: CauseCost | None = None
    for request in requests:
        whole_cost += request.cost
        for cause in request.avoidable_causes():
            is_loss = cause.cause.kind is CauseKind.NOT_KEPT
            if is_loss and not request.shows_lost_cache:
                continue  # Perhaps the provider never had it.
            avoidable_cost += cause.cost
            tokens += cause.tokens
            if dearest is None or cause.cost > dearest.cost:
                dearest = cause
    is_small_part = avoidable_cost <= min(TOLD_DOLLARS, TOLD_SHARE * whole_cost)
    if dearest is None or avoidable_cost < LEAST_DOLLARS or is_small_part:
        return ""
    paid_tokens = format_token_count(tokens)
    price = format_dollars(avoidable_cost)
    reason = _describe_reason(dearest)
    return tr(
        "{tokens} tokens had to be paid at the full price again: {price}. Reason: {reason}.",
        tokens=paid_tokens,
        price=price,
        reason=reason,
    )


def _describe_reason(cause_cost: CauseCost) -> str:
    cause = cause_cost.cause
    otherwise = tr("the provider had not kept what it had read, although nothing had changed")
    names = cause.detail
    if cause.kind is CauseKind.TOOLS:
        names = _name_changed_tools(cause.detail)
    # A sentence names either the length of a pause or what has changed.
    return translate_name(
        "cause of a cost", cause.kind, otherwise=otherwise, pause=cause.detail, names=names
    )


def _name_changed_tools(detail: str) -> str:
    """Says in words what the engine writes with signs, such as "+weather__forecast, ~read_file"."""
    named: list[str] = []
    for change in detail.split(", "):
        words = {
            "+": tr("new: {tool}"),
            "−": tr("gone: {tool}"),
            "~": tr("changed: {tool}"),
        }.get(change[:1])
        tool, more, number = change[1:].partition(" and ")
        if words is None:
            return detail
        named.append(words.format(tool=name_tool_of_rule(tool)))
        if more:
            named.append(tr("{n} more", n=number.removesuffix(" more")))
    return ", ".join(named)
