"""Offers help after a turn ended early; shown above the composer until the next message."""

from enum import StrEnum

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QWidget

from helix_desktop.engine.facts import (
    Fact,
    FilesChanged,
    ModelReplied,
    Rewound,
    Stop,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.session_events import CLOSED, TEXT_CAUSE, ConversationActivity
from helix_desktop.gui.common.widgets import (
    COLUMN,
    build_centred_column,
    build_plain_label,
    build_push_button,
)
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.shown_workspace import ShownSession
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.safe_text import without_backticks
from helix_desktop.gui.transcript.status_lines import describe_changed_files
from helix_desktop.gui.translation import tr, translate_name

_AT_REST = (ConversationActivity.IDLE, ConversationActivity.FAILED)
SPACE = 8  # The pixels between the words and the buttons.
SIDE = 16  # The pixels at both sides of the column.
_STEPS_OF_TURN = (UserSaid, ModelReplied, ToolReturned, TurnEnded, Rewound)
_LIMITS = frozenset({TurnEnd.STEP_LIMIT, TurnEnd.SPENDING_LIMIT, TurnEnd.REPEATING})


class TurnEndHelp(StrEnum):
    """What the last turn needs. The values are keys of the sentences in shown_names.json."""

    BROKEN = "broken"  # The program ended before the turn did.
    LIMITED = "limited"
    REPEATING = "repeating"  # The reply repeats itself.
    STOPPED = "stopped"  # Messages wait behind a turn that the user stopped.
    WAITING = "waiting"
    FAILED = "failed"  # The turn failed, and the failure could not be recorded.


class TurnEndHelpLine(QWidget):
    """`settings_wanted` carries a helpful page. `going_on`: the user wants to continue the turn.
    `review_wanted`: the user wants to see what the turn changed before it was interrupted.
    """

    settings_wanted = Signal(str)
    going_on = Signal()
    review_wanted = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        """Builds the line that says why a turn ended early, with a button for going on
        and one for the settings that would help. It is hidden after any other turn.
        """
        super().__init__(parent)
        self._theme = theme
        self._words = build_plain_label("", "muted", self)
        self._page = ""
        # True if another agent or computer writes this conversation, so its turns do not run here.
        self.elsewhere = False
        self._settings = build_push_button("", self, lambda: self.settings_wanted.emit(self._page))
        self._go = build_push_button("", self, self.going_on.emit)
        self._review = build_push_button(tr("Review"), self, self.review_wanted.emit)
        buttons = build_row(self._review, self._settings, self._go, spacing=SPACE)
        self._words_and_buttons = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._words_and_buttons.setContentsMargins(0, 4, 0, 4)
        self._words_and_buttons.setSpacing(SPACE)
        self._words_and_buttons.addWidget(self._words, 1)
        self._words_and_buttons.addLayout(buttons)
        build_centred_column(self, theme).setLayout(self._words_and_buttons)
        self.hide()

    def show_last_turn_end(self, session: ShownSession | None) -> None:
        """Explains how the last turn ended if something can be done about it."""
        help_kind: TurnEndHelp | None = None
        if not self.elsewhere:
            help_kind = find_turn_end_help(session)
        if help_kind is None:
            self.hide()
            return
        words = translate_name("help after a turn", help_kind)
        if help_kind is TurnEndHelp.BROKEN and _is_end_said_in_transcript(session):
            words = ""
        # A turn that never ended has no line about its files in the transcript.
        changed_files = _describe_files_of_open_turn(session)
        self._review.setVisible(bool(changed_files))
        unrecorded_failure = _describe_unrecorded_failure(session)
        sentences = join_sentences(unrecorded_failure, words)
        shown_words = " · ".join(filter(None, [sentences, changed_files]))
        self._words.setText(without_backticks(shown_words))
        self._show_settings_button(help_kind)
        self._go.setText(_name_of_go_button(help_kind))
        self._fit_buttons_to_width()
        self.show()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_buttons_to_width()

    def _fit_buttons_to_width(self) -> None:
        """Puts the buttons below the words where that takes less height: beside them, the words
        may become a narrow column.
        """
        # At this moment, the column in the middle may still have its width of before.
        width = min(self.width() - 2 * SIDE, self._theme.zoomed_pixels(COLUMN))
        buttons_width = 0
        buttons_height = 0
        for button in (self._review, self._settings, self._go):
            if not button.isHidden():
                buttons_width += button.sizeHint().width() + SPACE
                buttons_height = max(buttons_height, button.sizeHint().height())
        words_beside_width = max(width - buttons_width, self._words.minimumSizeHint().width())
        height_beside = max(self._words.heightForWidth(words_beside_width), buttons_height)
        height_below = self._words.heightForWidth(width) + SPACE + buttons_height
        if height_below < height_beside:
            self._words_and_buttons.setDirection(QBoxLayout.Direction.TopToBottom)
        else:
            self._words_and_buttons.setDirection(QBoxLayout.Direction.LeftToRight)

    def _show_settings_button(self, help_kind: TurnEndHelp) -> None:
        """Offers the settings only where changing them helps."""
        if help_kind is TurnEndHelp.LIMITED:
            self._page = "limits"
            self._settings.setText(tr("Limits…"))
        else:
            self._page = "providers"
            self._settings.setText(tr("Models and providers…"))
        self._settings.setVisible(help_kind in (TurnEndHelp.LIMITED, TurnEndHelp.FAILED))


def find_turn_end_help(session: ShownSession | None) -> TurnEndHelp | None:
    """Returns what the last turn needs, or None if it runs, or ended as it should."""
    if session is None or session.running not in _AT_REST:
        return None
    end = _find_turn_end(session)
    if end is not None and end.reason in _LIMITS:
        return _find_help_at_limit(end)
    if _was_turn_broken(session, end):
        return TurnEndHelp.BROKEN
    # After a failure, the card of the failure offers what helps the waiting messages, too.
    has_failed = end is not None and end.reason is TurnEnd.FAILED
    if session.queue and not has_failed:
        return _find_help_for_waiting_messages(end)
    if _describe_unrecorded_failure(session):
        return TurnEndHelp.FAILED
    return None


def _find_help_at_limit(end: TurnEnded) -> TurnEndHelp:
    if end.cause == TEXT_CAUSE:
        return TurnEndHelp.REPEATING
    return TurnEndHelp.LIMITED


def _was_turn_broken(session: ShownSession, end: TurnEnded | None) -> bool:
    """Whether the program ended in the middle of the turn, or was closed."""
    if session.conversation.state.branch.turn.running:
        return True
    if end is None:
        return False
    return end.reason is TurnEnd.STOPPED and end.why == CLOSED


def _find_help_for_waiting_messages(end: TurnEnded | None) -> TurnEndHelp:
    if end is not None and end.reason is TurnEnd.STOPPED:
        return TurnEndHelp.STOPPED
    return TurnEndHelp.WAITING


def _find_turn_end(session: ShownSession) -> TurnEnded | None:
    """Returns the end of the last turn, if nothing was said or done after it."""
    last_step = _find_last_step(session)
    if isinstance(last_step, TurnEnded):
        return last_step
    return None


def _is_end_said_in_transcript(session: ShownSession | None) -> bool:
    """Whether the transcript says already that the reply was cut off, or that the user has gone
    back, which interrupts no reply.
    """
    if session is None:
        return False
    last_step = _find_last_step(session)
    if isinstance(last_step, ModelReplied):
        return last_step.stop is Stop.CUT
    return isinstance(last_step, Rewound)


def _find_last_step(session: ShownSession) -> Fact | None:
    """Returns the last fact that is a step of a turn, or ends or removes one. The user can undo
    changes, shorten the conversation or name it after a turn, and how the turn ended stays true.
    """
    for recorded in reversed(session.conversation.state.facts):
        if isinstance(recorded.fact, _STEPS_OF_TURN):
            return recorded.fact
    return None


def _describe_files_of_open_turn(session: ShownSession | None) -> str:
    """Says how many files a turn changed that was interrupted, and how many lines."""
    if session is None or not session.conversation.state.branch.turn.running:
        return ""
    undone_seqs: set[int] = set()
    changes: list[FilesChanged] = []
    for recorded in reversed(session.conversation.state.facts):
        fact = recorded.fact
        if isinstance(fact, TurnEnded):
            break
        if not isinstance(fact, FilesChanged):
            continue
        if fact.by == "undo":
            undone_seqs.update(fact.undoes)
        elif recorded.seq not in undone_seqs:
            changes.append(fact)
    return describe_changed_files(changes)


def _name_of_go_button(help_kind: TurnEndHelp) -> str:
    if help_kind is TurnEndHelp.REPEATING:
        return tr("Go on anyway")
    if help_kind is TurnEndHelp.FAILED:
        return tr("Try again")
    return tr("Continue")


def _describe_unrecorded_failure(session: ShownSession | None) -> str:
    """Says why the last turn failed, if the failure could not be recorded in the transcript."""
    if session is None or session.running is not ConversationActivity.FAILED:
        return ""
    end = _find_turn_end(session)
    if end is not None and end.why == session.why:
        return ""
    return translate_sentences(session.why)
