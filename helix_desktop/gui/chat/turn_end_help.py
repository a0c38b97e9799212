"""Offers help after a turn ended early; shown above the composer until the next message."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.facts import ModelReplied, Stop, TurnEnd, TurnEnded
from helix_desktop.engine.session_events import CLOSED, ConversationActivity
from helix_desktop.engine.turn_loop import TEXT_CAUSE
from helix_desktop.gui.common.widgets import (
    build_centred_column,
    build_plain_label,
    build_push_button,
)
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.safe_text import without_backticks
from helix_desktop.gui.translation import tr, translate_name
from helix_desktop.gui.workbench_types import Session

_LIMITS = frozenset({TurnEnd.STEP_LIMIT, TurnEnd.SPENDING_LIMIT, TurnEnd.REPEATING})


class TurnEndHelpLine(QWidget):
    """`settings_wanted` carries a helpful page. `going_on`: the user wants to continue the turn."""

    settings_wanted = Signal(str)
    going_on = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._words = build_plain_label("", "muted", self)
        self._page = ""
        # True if another agent or computer writes this conversation, so its turns do not run here.
        self.elsewhere = False
        self._settings = build_push_button("", self, lambda: self.settings_wanted.emit(self._page))
        self._go = build_push_button("", self, self.going_on.emit)
        middle = build_centred_column(self, theme)
        build_row(
            (self._words, 1),
            self._settings,
            self._go,
            owner=middle,
            margins=(0, 4, 0, 4),
            spacing=8,
        )
        self.hide()

    def show_last_turn_end(self, session: Session | None) -> None:
        """Explains how the last turn ended if something can be done about it."""
        if self.elsewhere:
            self.hide()
            return
        facts = session.conversation.state.facts if session is not None else ()
        end = facts[-1].fact if facts else None
        idle = session is not None and session.running in (
            ConversationActivity.IDLE,
            ConversationActivity.FAILED,
        )
        reason = end.reason if isinstance(end, TurnEnded) and idle else None
        broken = session is not None and idle and session.conversation.state.branch.turn.running
        broken |= reason is TurnEnd.STOPPED and isinstance(end, TurnEnded) and end.why == CLOSED
        limited = reason in _LIMITS
        stopped, failed = reason is TurnEnd.STOPPED, reason is TurnEnd.FAILED
        waiting = (
            session is not None and idle and bool(session.queue) and not limited and not failed
        )
        sort = "broken" if broken else "limited" if limited else "failed"
        sort = ("stopped" if stopped else "waiting") if waiting and not broken else sort
        repeats_itself = isinstance(end, TurnEnded) and end.cause == TEXT_CAUSE and limited
        if repeats_itself:
            sort = "repeating"
        words = translate_name("help after a turn", sort)
        if broken and isinstance(end, ModelReplied) and end.stop is Stop.CUT:
            words = ""  # The transcript already says that the reply was cut off.
        self._words.setText(
            without_backticks(join_sentences(_describe_unrecorded_failure(session), words))
        )
        self._page = "limits" if limited else "providers"
        self._settings.setText(tr("Limits…") if limited else tr("Models and providers…"))
        self._settings.setVisible(not broken and not waiting and not repeats_itself)
        self._go.setText(tr("Continue") if limited or broken or waiting else tr("Try again"))
        if repeats_itself:
            self._go.setText(tr("Go on anyway"))
        self.setVisible(limited or broken or waiting or bool(_describe_unrecorded_failure(session)))


def _describe_unrecorded_failure(session: Session | None) -> str:
    """Says why the last turn failed, if the failure could not be recorded in the transcript."""
    if session is None or session.running is not ConversationActivity.FAILED:
        return ""
    facts = session.conversation.state.facts
    end = facts[-1].fact if facts else None
    return (
        ""
        if isinstance(end, TurnEnded) and end.why == session.why
        else translate_sentences(session.why)
    )
